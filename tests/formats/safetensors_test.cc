// safetensors: the same bytes as the reference writes, its verdicts on damaged headers, limits, and memory.
#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/codec/safetensors/safetensors.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data";

std::string entry(const std::string &name, const std::string &dtype, const std::string &shape, uint64_t begin,
                  uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// Files of the reference library, read and written again, are the same bytes.
TEST(Safetensors, WritesWhatTheReferenceWrites) {
  size_t n_files = 0;
  for (const auto &file : std::filesystem::directory_iterator(kData + "/safetensors")) {
    ckpt_error err = {};
    IndexPointer index = open(file.path(), &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_TRUE(notes_of(index.get()).empty()) << file.path();
    Files files = write("safetensors", index.get(), {}, &err);
    ASSERT_EQ(files.size(), 1u) << text_of(err);
    EXPECT_EQ(files[""], slurp(file.path())) << file.path();
    n_files++;
  }
  EXPECT_EQ(n_files, 13u);
}

// Order does not depend on the order of the source: the same tensors in another order give the same bytes.
TEST(Safetensors, OrderOfTheSourceDoesNotMatter) {
  const std::string a = entry("a", "F32", "[1]", 0, 4), b = entry("b", "F64", "[1]", 4, 12),
                    c = entry("c", "F32", "[1]", 12, 16);
  const std::string payload = "AAAABBBBBBBBCCCC";
  ckpt_error err = {};
  std::string first;
  for (const std::string &header :
       {"{" + a + "," + b + "," + c + "}", "{" + c + "," + a + "," + b + "}", "{" + b + "," + c + "," + a + "}"}) {
    const std::string bytes = safetensors(header, payload);
    IndexPointer index = open_bytes(bytes, &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_TRUE(notes_of(index.get()).empty());
    std::string written = write("safetensors", index.get(), {}, &err)[""];
    if (first.empty()) first = written;
    EXPECT_EQ(written, first);
  }
  EXPECT_EQ(first.substr(first.size() - 16), "BBBBBBBBAAAACCCC");
}

TEST(Safetensors, PackedSixBitTypes) {
  const std::string bytes = safetensors(
      "{" + entry("a", "F6_E2M3", "[2,2]", 0, 3) + "," + entry("b", "F6_E3M2", "[4]", 3, 6) + "}", "abcdef");
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_find(index.get(), "a")->dtype, CKPT_F6_E2M3);
  const std::string written = write("safetensors", index.get(), {}, &err)[""];
  EXPECT_EQ(written.substr(written.size() - 6), "defabc");
}

// The reference's verdict on 700 damaged files. What differs is listed here and nowhere else.
TEST(Safetensors, AgreesWithTheReferenceOnDamage) {
  std::istringstream table(slurp(kData + "/safetensors-verdicts.tsv"));
  std::string line;
  size_t n = 0, n_accepted = 0, n_noted = 0;
  std::map<std::string, size_t> stricter;
  while (std::getline(table, line)) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    const bool accepts = line.substr(0, first) == "accept";
    const std::string hex = line.substr(first + 1, second - first - 1), why = line.substr(second + 1);
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    n++;
    if (index != nullptr && accepts) {
      n_accepted++;
      EXPECT_TRUE(notes_of(index.get()).empty()) << hex << " " << notes_of(index.get())[0];
    } else if (index != nullptr) {  // tolerated: holes, trailing bytes, empty tensors anywhere; always said
      ASSERT_FALSE(notes_of(index.get()).empty()) << "accepted, the reference says " << why << ": " << hex;
      EXPECT_EQ(notes_of(index.get())[0].substr(0, 2), "! ");
      EXPECT_TRUE(why.find("not fully covered") != std::string::npos || why.find("invalid offset") != std::string::npos)
          << why << ": " << hex;
      n_noted++;
    } else if (accepts) {
      std::string message = err.message;
      stricter[message.substr(0, message.find(" (byte"))]++;
    }
  }
  EXPECT_GT(n, 650u);
  EXPECT_GT(n_accepted, 45u);
  EXPECT_GT(n_noted, 10u);
  for (const auto &row : stricter)
    EXPECT_TRUE(row.first == "what describes a tensor has to be an object, not an array" ||  // serde's other spelling
                row.first == "dtype has to be a string, not an object")
        << row.first << " refused, accepted by the reference " << row.second << " times";
}

TEST(Safetensors, TruncationAtEveryByte) {
  const std::string whole = slurp(kData + "/safetensors/every-dtype.safetensors");
  for (size_t n = 0; n < whole.size(); n++) {
    const std::string cut = whole.substr(0, n);
    ckpt_error err = {};
    IndexPointer index = open_bytes(cut, &err);
    ASSERT_EQ(index, nullptr) << n;
    ASSERT_NE(err.status, CKPT_EINTERNAL) << n;
    ASSERT_STRNE(err.message, "") << n;
  }
}

TEST(Safetensors, MetadataAndRoles) {
  const std::string bytes =
      safetensors("{\"__metadata__\":{\"z\":\"1\",\"a\":\"\\u00e9\\\"\"}," +
                      entry("optimizer.state.w.exp_avg", "F32", "[1]", 4, 8) + "," +
                      entry("optimizer.state.w.odd", "F32", "[1]", 8, 12) + "," + entry("w", "F32", "[]", 0, 4) + "}",
                  "123456789012");
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "a"), "\u00e9\"");
  EXPECT_EQ(ckpt_index_find(index.get(), "w")->role, CKPT_ROLE_PARAMETER);
  EXPECT_EQ(ckpt_index_find(index.get(), "w")->rank, 0);
  EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.w.exp_avg")->role, CKPT_ROLE_EXP_AVG);
  EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.w.odd")->role, CKPT_ROLE_OTHER);
  std::string written = write("safetensors", index.get(), {}, &err)[""];
  EXPECT_EQ(written.substr(8, 38), "{\"__metadata__\":{\"a\":\"\u00e9\\\"\",\"z\":\"1\"},\"");
}

// As the reference library, which writes what it is given: nothing for None, an empty object for one.
TEST(Safetensors, EmptyMetadataStays) {
  for (const char *metadata : {"", "\"__metadata__\":{},"}) {
    const std::string header = "{" + std::string(metadata) + entry("x", "F32", "[1]", 0, 4) + "}";
    const std::string bytes = safetensors(header + std::string((8 - header.size() % 8) % 8, ' '), "1234");
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(write("safetensors", index.get(), {}, &err)[""].substr(0, bytes.size() - 4),
              bytes.substr(0, bytes.size() - 4));
  }
}

TEST(Safetensors, RefusesToWriteItsOwnKey) {
  const std::string bytes = safetensors("{" + entry("x", "F32", "[1]", 0, 4) + "}", "1234");
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err);
  ASSERT_NE(index, nullptr);
  const_cast<ckpt_tensor *>(index->tensors)[0].name = "__metadata__";
  EXPECT_TRUE(write("safetensors", index.get(), {}, &err).empty());
  EXPECT_EQ(text_of(err), "tensor '__metadata__': safetensors keeps this name for itself (rename it)");
}

// ---- limits, at and one past ----

TEST(SafetensorsLimits, Names) {
  for (size_t n : {4096u, 4097u}) {
    const std::string bytes = safetensors("{" + entry(std::string(n, 'n'), "U8", "[1]", 0, 1) + "}", "x");
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    EXPECT_EQ(index != nullptr, n == 4096) << text_of(err);
    EXPECT_EQ(err.status, n == 4096 ? CKPT_OK : CKPT_ELIMIT);
  }
}

TEST(SafetensorsLimits, Axes) {
  for (int n : {8, 9}) {
    std::string shape = "[1";
    for (int i = 1; i < n; i++) shape += ",1";
    const std::string bytes = safetensors("{" + entry("x", "U8", shape + "]", 0, 1) + "}", "x");
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    EXPECT_EQ(index != nullptr, n == 8) << text_of(err);
  }
}

TEST(SafetensorsLimits, HeaderBytes) {
  for (size_t n : {100000000u, 100000001u}) {
    std::string bytes = safetensors("{}" + std::string(n - 2, ' '), "");
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    EXPECT_EQ(index != nullptr, n == 100000000) << text_of(err);
    EXPECT_EQ(err.status, n == 100000000 ? CKPT_OK : CKPT_ELIMIT);
  }
}

// A header of n one-byte tensors, built in place.
std::string many(size_t n, const char *pattern) {
  std::string header = "{";
  header.reserve(n * 100);
  char text[200];
  for (size_t i = 0; i < n; i++) {
    snprintf(text, sizeof text, pattern, i);
    header += (i == 0 ? "\"" : ",\"") + std::string(text) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  return safetensors(header + "}", std::string(n, 'x'));
}

TEST(SafetensorsLimits, Tensors) {
  for (size_t n : {1000000u, 1000001u}) {
    const std::string bytes = many(n, "t%zu");
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    EXPECT_EQ(index != nullptr, n == 1000000) << text_of(err);
    EXPECT_EQ(err.status, n == 1000000 ? CKPT_OK : CKPT_ELIMIT);
  }
}

TEST(SafetensorsLimits, MetadataEntries) {
  for (size_t n : {1000000u, 1000001u}) {
    std::string header = "{\"__metadata__\":{";
    for (size_t i = 0; i < n; i++) header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
    ckpt_error err = {};
    IndexPointer index = open_bytes(safetensors(header + "}}", ""), &err);
    EXPECT_EQ(index != nullptr, n == 1000000) << text_of(err);
    EXPECT_EQ(err.status, n == 1000000 ? CKPT_OK : CKPT_ELIMIT);
  }
}

// 500,000 tensors with names of ordinary length: memory per extent stays below its bounds (index.h).
TEST(SafetensorsLimits, MemoryPerExtent) {
  const size_t n = 500000;
  const std::string bytes = many(n, "model.layers.%zu.mlp.experts.down_proj.weight");
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_EQ(ckpt_index_count(index.get()), n);
  const uint64_t n_kept = index->arena.n_taken + index->capacity * sizeof(ckpt_tensor);
  EXPECT_LE(n_kept / n, 400u);
  RecordProperty("bytes_per_extent", std::to_string(n_kept / n));
}

// What lies in the index's arena and what grows beside it share the limit, whichever comes to its end.
TEST(SafetensorsLimits, IndexMemoryIsBounded) {
  const std::string bytes = many(1000, "t%zu");
  int n_refused = 0, n_opened = 0;
  for (uint64_t limit = 1000; limit < 1000000; limit += limit / 8) {
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    options.max_index_bytes = limit;
    ckpt_index *index = nullptr;
    ckpt_error err = {};
    ckpt_status status = ckpt_open_memory(&index, bytes.data(), bytes.size(), "memory", &options, &err);
    (status == CKPT_OK ? n_opened : n_refused)++;
    if (status == CKPT_OK)
      EXPECT_LE(index->arena.n_taken + index->n_tensors * sizeof(ckpt_tensor), limit);
    else
      EXPECT_EQ(text_of(err), "memory: an index of more than " + std::to_string(limit) + " bytes (max_index_bytes)");
    EXPECT_EQ(status, status == CKPT_OK ? CKPT_OK : CKPT_ELIMIT);
    ckpt_index_free(index);
  }
  EXPECT_GT(n_opened, 5);
  EXPECT_GT(n_refused, 20);
}

// Bytes of an entry that is broken are no hole, nor what follows the last tensor; a name that stands twice overlaps
// nothing.
TEST(Safetensors, OneDefectIsOneProblem) {
  const std::string whole = "\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}", "a tensor name is empty"},
      {"\"a\":{\"dtype\":\"U8\",\"shape\":[2]}", "data_offsets is missing"},
      {"\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[9000,9002]}", "truncated"},
      {"\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}", "overlaps 'z'"},
      {"\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}", "stands twice in the header"}};
  for (const auto &[entry, message] : cases) {
    Folder folder;
    spill(folder / "m.safetensors", safetensors("{" + whole + entry + "}", "1234"));
    IndexPointer index(nullptr, ckpt_index_free);
    const std::vector<std::string> reported = broken_parts(folder / "m.safetensors", &index);
    ASSERT_EQ(reported.size(), 1u) << entry;
    EXPECT_NE(reported[0].find(message), std::string::npos) << reported[0];
    EXPECT_TRUE(index == nullptr || notes_of(index.get()).empty()) << entry;
  }
}

}  // namespace
}  // namespace formats_testing
