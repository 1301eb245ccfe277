// Limits of what a file may hold, each at the limit and one past it: GGUF, importance matrices and DCPv2. Those of
// safetensors stand in safetensors_test.cc, of zip in tests/libckpt/codec/zip/zip_test.cc, of JSON, pickles and configs
// beside their readers.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "tests/formats/formats_testing.h"

// Names that the next listing ends with (--wrap=readdir), and the number of the next of them.
static uint64_t more_names, next_name;

extern "C" struct dirent *__real_readdir(DIR *folder);

extern "C" struct dirent *__wrap_readdir(DIR *folder);
struct dirent *__wrap_readdir(DIR *folder) {
  static thread_local struct dirent made;
  struct dirent *entry = __real_readdir(folder);
  if (entry != nullptr || more_names == 0) return entry;
  if (next_name == more_names) {
    more_names = next_name = 0;
    return nullptr;
  }
  snprintf(made.d_name, sizeof made.d_name, "%llu", static_cast<unsigned long long>(next_name++));
  return &made;
}

namespace formats_testing {
namespace {

std::string number(uint64_t value, int n_bytes) {
  std::string out;
  for (int i = 0; i < n_bytes; i++) out.push_back(static_cast<char>(value >> 8 * i));
  return out;
}

std::string text(const std::string &value) { return number(value.size(), 8) + value; }

std::string gguf(uint64_t n_tensors, uint64_t n_keys, const std::string &rest) {
  std::string bytes = "GGUF" + number(3, 4) + number(n_tensors, 8) + number(n_keys, 8) + rest;
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes;
}

std::string tensor(const std::string &name, uint64_t offset) {
  return text(name) + number(1, 4) + number(1, 8) + number(24, 4) + number(offset, 8);  // i8, one axis
}

void expect(const std::string &bytes, bool is_read, ckpt_status status, const std::string &message) {
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err);
  EXPECT_EQ(index != nullptr, is_read) << text_of(err);
  EXPECT_EQ(err.status, is_read ? CKPT_OK : status);
  EXPECT_EQ(std::string(err.message), is_read ? "" : message);
}

TEST(Limits, GgufTensors) {
  for (size_t n : {1000000u, 1000001u}) {
    std::string rest;
    for (size_t i = 0; i < n; i++) rest += tensor("t" + std::to_string(i), 32 * i);
    std::string bytes = gguf(n, 0, rest);
    bytes.resize(bytes.size() + 32 * n);
    expect(bytes, n == 1000000, CKPT_ELIMIT, "1000001 tensors (at most 1000000)");
  }
}

TEST(Limits, GgufKeys) {
  for (size_t n : {1000000u, 1000001u}) {
    std::string rest;
    for (size_t i = 0; i < n; i++) rest += text("k" + std::to_string(i)) + number(0, 4) + number(7, 1);
    expect(gguf(0, n, rest), n == 1000000, CKPT_ELIMIT, "1000001 keys (at most 1000000)");
  }
}

TEST(Limits, GgufNamesAndAxes) {
  for (size_t n : {4096u, 4097u})
    expect(gguf(1, 0, tensor(std::string(n, 'n'), 0)) + std::string(32, 'x'), n == 4096, CKPT_ELIMIT,
           "a tensor name of 4097 bytes (1 to 4096 are accepted)");
  for (size_t n : {65535u, 65536u})
    expect(gguf(0, 1, text(std::string(n, 'k')) + number(0, 4) + number(7, 1)), n == 65535, CKPT_ELIMIT,
           "a key of 65536 bytes (1 to 65535 are accepted)");
  for (unsigned n : {4u, 5u}) {
    std::string axes;
    for (unsigned i = 0; i < n; i++) axes += number(1, 8);
    expect(gguf(1, 0, text("t") + number(n, 4) + axes + number(24, 4) + number(0, 8)) + std::string(32, 'x'), n == 4,
           CKPT_EFORMAT, "5 axes (at most 4)");
  }
}

std::string entry(const std::string &name) {
  return number(name.size(), 4) + name + number(1, 4) + number(1, 4) + "1234";
}

TEST(Limits, ImatrixEntries) {
  for (size_t n : {1000000u, 1000001u}) {
    std::string bytes = number(n, 4);
    for (size_t i = 0; i < n; i++) bytes += entry("t" + std::to_string(i));
    expect(bytes, n == 1000000, CKPT_EFORMAT,
           "not a checkpoint of a known format (" + std::to_string(bytes.size()) + " bytes)");
  }
}

TEST(Limits, ImatrixNamesAndText) {
  for (size_t n : {1024u, 1025u})
    expect(number(2, 4) + entry("a") + entry(std::string(n, 'n')), n == 1024, CKPT_EFORMAT,
           "the name of entry 1 has 1025 bytes (1 to 1024 are expected)");
  for (size_t n : {65536u, 65537u})
    expect(number(1, 4) + entry("a") + number(1, 4) + number(n, 4) + std::string(n, 't'), n == 65536, CKPT_EFORMAT,
           "the dataset's name has 65537 bytes (at most 65536, and 65537 are left)");
}

// Opens a folder of nothing but DCPv2's metadata, a pickle of protocol 0. OK where that is read: the ranks' files are
// missing then.
ckpt_error open_metadata(const std::string &pickle) {
  Folder folder;
  spill(folder / "c/metadata.pkl", pickle);
  ckpt_error err = {};
  EXPECT_EQ(open(folder / "c", &err), nullptr);
  if (err.status == CKPT_ENOTFOUND) err = {};
  return err;
}

std::string line(const std::string &value) { return "V" + value + "\n"; }

std::string older_metadata(const std::string &paths) {
  const std::string layout = "}(" + line("file_path") + line("x") + line("serialization_format") + "}(" + line("type") +
                             line("TorchSerialization") + "uu";
  return "}(" + line("metadata") + "}(" + paths + "u" + line("rank_to_layout_info_mappings") + "}(I0\n}(" + line("i0") +
         layout + "uuu.";
}

TEST(Limits, Dcpv2Items) {
  for (int n : {1024, 1025}) {
    std::string older, items;
    for (int i = 0; i < n; i++) older += line("[\"i" + std::to_string(i) + "\",\"w\"]") + "]";
    for (int i = 0; i < n; i++)
      items += line("i" + std::to_string(i)) + "}(" + line("nested_path_to_metadata") + "}" +
               line("rank_to_layout_info") + "}u";
    ckpt_error err = open_metadata(older_metadata(older));
    EXPECT_EQ(err.status, n == 1024 ? CKPT_OK : CKPT_ELIMIT) << text_of(err);
    EXPECT_STREQ(err.message, n == 1024 ? "" : "path [\"i1024\",\"w\"] is of one more item: 1025 (at most 1024)");
    Folder folder;
    spill(folder / "c/metadata.pkl", "}(" + line("version") + line("2.0") + line("metadata") + "}(" + items + "uu.");
    err = {};
    EXPECT_NE(open(folder / "c", &err), nullptr) << text_of(err);  // 2.0 does not look for items
  }
}

TEST(Limits, Dcpv2PathsAndNames) {
  for (size_t n : {4096u, 4097u}) {
    ckpt_error err = open_metadata(older_metadata(line("[\"i0\",\"" + std::string(n - 9, 'k') + "\"]") + "]"));
    EXPECT_EQ(err.status, n == 4096 ? CKPT_OK : CKPT_ELIMIT) << text_of(err);
    EXPECT_STREQ(err.message, n == 4096 ? "" : "a path of 4097 bytes (at most 4096)");
    // The item's key stands before the name: it can be longer than its path.
    const std::string item(500, 'i'), path = "[\"" + std::string(n - 501, 'k') + "\"]";
    const std::string layout = "}(" + line("file_path") + line("x") + line("serialization_format") + "}(" +
                               line("type") + line("TorchSerialization") + "uu";
    err = open_metadata("}(" + line("version") + line("2.0") + line("metadata") + "}(" + line(item) + "}(" +
                        line("nested_path_to_metadata") + "}(" + line(path) + "]u" + line("rank_to_layout_info") +
                        "}(I0\n" + layout + "uuuu.");
    EXPECT_EQ(err.status, n == 4096 ? CKPT_OK : CKPT_ELIMIT) << text_of(err);
    EXPECT_EQ(std::string(err.message),
              n == 4096 ? "" : "path " + path.substr(0, 80) + " makes a name of 4097 bytes and more (at most 4096)");
  }
}

// A folder of a million names, all of which but one are gone when they are looked at.
TEST(Limits, NamesInAFolder) {
  Folder folder;
  std::filesystem::copy(CKPT_TESTS_DIR "/data/gpt2-tiny/model.safetensors", folder / "model.safetensors");
  for (size_t n : {999999u, 1000000u}) {
    more_names = n;
    next_name = 0;
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err, false);
    more_names = 0;
    EXPECT_EQ(index != nullptr, n == 999999) << text_of(err);
    EXPECT_EQ(err.status, n == 999999 ? CKPT_OK : CKPT_ELIMIT);
    EXPECT_EQ(text_of(err), n == 999999 ? "" : folder.path() + ": more than 1000000 entries in this folder");
  }
}

// The same of files, in memory since that takes seconds there: names of one file, which no other file system has so
// many of.
TEST(Limits, FilesInAFolder) {
  if (getenv("CKPT_TEST_FULL") == nullptr) GTEST_SKIP() << "a million files are made with CKPT_TEST_FULL (--full)";
  char folder[] = "/dev/shm/ckpt-limits-XXXXXX";
  if (mkdtemp(folder) == nullptr) GTEST_SKIP() << "no file system in memory at /dev/shm";
  int fd = ::open(folder, O_RDONLY | O_DIRECTORY), n_made = 0;
  const std::string model(CKPT_TESTS_DIR "/data/gpt2-tiny/model.safetensors");
  std::ofstream(std::string(folder) + "/model.safetensors") << std::ifstream(model).rdbuf();
  std::ofstream(std::string(folder) + "/0");
  auto add = [&](int upto) {
    for (; n_made < upto; n_made++)
      if (linkat(fd, "0", fd, std::to_string(n_made + 1).c_str(), 0) != 0) return false;
    return true;
  };
  const bool has_room = add(999998);
  ckpt_error err = {};
  if (has_room) {
    EXPECT_NE(open(folder, &err, false), nullptr) << text_of(err);
    EXPECT_TRUE(add(999999));
    EXPECT_EQ(open(folder, &err, false), nullptr);
    EXPECT_EQ(err.status, CKPT_ELIMIT);
    EXPECT_EQ(text_of(err), std::string(folder) + ": more than 1000000 entries in this folder");
  }
  for (; n_made >= 0; n_made--) unlinkat(fd, std::to_string(n_made).c_str(), 0);
  unlinkat(fd, "model.safetensors", 0);
  close(fd);
  rmdir(folder);
  if (!has_room) GTEST_SKIP() << "/dev/shm has no room for a million names";
}

}  // namespace
}  // namespace formats_testing
