// Manifests survive being written and read, damaged ones are refused; findings; sums of whole files.
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/libckpt/recipe/prove_testing.h"

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/recipe/convert/convert.h"
#include "libckpt/recipe/verify/verify.h"
}

namespace {

using prove::Bytes;
using prove::Opened;
using prove::Stored;

struct ManifestDeleter {
  void operator()(ckpt_manifest *manifest) const { ckpt_manifest_free(manifest); }
};
using Manifest = std::unique_ptr<ckpt_manifest, ManifestDeleter>;

Manifest ManifestOf(const ckpt_index *index, ckpt_dtype cast = CKPT_DTYPE_NONE) {
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.cast = cast;
  ckpt_hashing hashing = {};
  ckpt_manifest *manifest = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_hashing_start(&hashing, index, &options, &err), CKPT_OK) << err.message;
  prove::Run(ckpt_hashing_proof(&hashing));
  EXPECT_EQ(ckpt_manifest_new(&manifest, &hashing, nullptr, &err), CKPT_OK) << err.message;
  ckpt_hashing_end(&hashing);
  return Manifest(manifest);
}

std::vector<Stored> Tensors() {
  return {{"b \\u00e9\\\" \\\\", "F32", {2, 3}, std::string(24, 'a')},
          {"a", "I64", {}, std::string(8, 'b')},
          {"empty", "F16", {0, 5}, ""}};
}

Manifest Read(const std::string &path, ckpt_status expected, ckpt_error *err) {
  ckpt_manifest *manifest = nullptr;
  EXPECT_EQ(ckpt_manifest_read(&manifest, path.c_str(), err), expected) << err->message;
  return Manifest(manifest);
}

TEST(Manifest, IsReadAsItWasWritten) {
  Folder folder;
  Opened file(Tensors());
  auto written = ManifestOf(file.index, CKPT_BF16);
  std::string path = folder / "m.json";
  ckpt_error err = {};
  ASSERT_EQ(ckpt_manifest_write(written.get(), path.c_str(), false, &err), CKPT_OK) << err.message;
  EXPECT_EQ(ckpt_manifest_write(written.get(), path.c_str(), false, nullptr), CKPT_EEXIST);
  auto read = Read(path, CKPT_OK, &err);
  ASSERT_EQ(read->n, 3u);
  EXPECT_EQ(read->cast, CKPT_BF16);
  EXPECT_STREQ(read->names, "stored");
  EXPECT_EQ(memcmp(&read->digest, &written->digest, sizeof read->digest), 0);
  EXPECT_STREQ(read->entries[1].name, "b \u00e9\" \\");
  EXPECT_EQ(read->entries[1].dtype, CKPT_BF16);
  ckpt_findings findings = {};
  EXPECT_EQ(ckpt_verify_manifest(&findings, file.index, written.get(), read.get(), "m.json", nullptr), CKPT_OK);
  EXPECT_EQ(findings.n_of[CKPT_PROBLEM], 0u);
  EXPECT_EQ(findings.n_of[CKPT_PROVEN], 1u);
  ckpt_findings_free(&findings);
}

TEST(Manifest, CutAnywhereIsRefused) {
  Folder folder;
  Opened file(Tensors());
  auto written = ManifestOf(file.index);
  std::string whole = folder / "m.json", cut = folder / "cut.json";
  ASSERT_EQ(ckpt_manifest_write(written.get(), whole.c_str(), false, nullptr), CKPT_OK);
  std::ifstream stream(whole);
  std::stringstream text;
  text << stream.rdbuf();
  std::string bytes = text.str();
  ASSERT_EQ(bytes.substr(bytes.size() - 2), "}\n");
  for (size_t n = 0; n + 1 < bytes.size(); n++) {
    std::ofstream(cut) << bytes.substr(0, n);
    ckpt_error err = {};
    Read(cut, CKPT_EFORMAT, &err);
  }
}

TEST(Manifest, NothingMayBeMissing) {
  Folder folder;
  std::string path = folder / "m.json", digest = "ckpt1:" + std::string(64, '0');
  std::vector<std::string> parts = {"\"ckpt_manifest\":1",  "\"digest\":\"" + digest + "\"",
                                    "\"names\":\"stored\"", "\"include\":\"model\"",
                                    "\"cast\":null",        "\"tensors\":[]"};
  for (size_t missing = 0; missing <= parts.size(); missing++) {
    std::string text;
    for (size_t i = 0; i < parts.size(); i++)
      if (i != missing) text += (text.empty() ? "{" : ",") + parts[i];
    std::ofstream(path) << text + "}";
    ckpt_error err = {};
    Read(path, missing == parts.size() ? CKPT_OK : CKPT_EFORMAT, &err);
  }
}

TEST(Manifest, EachDifferenceIsAProblemOfItsTensor) {
  Opened file(Tensors());
  auto changed = Tensors();
  changed[0].bytes[7] = 'x';
  changed[1].dtype = "F64";
  changed[2].name = "renamed";
  Opened other(changed);
  auto expected = ManifestOf(file.index), actual = ManifestOf(other.index);
  ckpt_findings findings = {};
  ASSERT_EQ(ckpt_verify_manifest(&findings, other.index, actual.get(), expected.get(), "m.json", nullptr), CKPT_OK);
  std::string all;
  for (size_t i = 0; i < findings.n; i++)
    all += std::string(findings.items[i].tensor) + ": " + findings.items[i].message + "\n";
  EXPECT_EQ(all,
            "a: its dtype differs from m.json\n"
            "b \u00e9\" \\: its bytes differ from m.json\n"
            "empty: missing, but listed in m.json\n"
            "renamed: extra, not listed in m.json\n");
  EXPECT_EQ(findings.n_of[CKPT_PROBLEM], 4u);
  ckpt_findings_free(&findings);
}

// What could not be read has no digest; that is told where it was tried, and what is wrong beside is told here.
TEST(Manifest, WhatCouldNotBeReadIsNotCompared) {
  Opened file(Tensors());
  auto expected = ManifestOf(file.index), actual = ManifestOf(file.index);
  actual->entries[1].digest = {};
  ckpt_findings findings = {};
  ASSERT_EQ(ckpt_verify_manifest(&findings, file.index, actual.get(), expected.get(), "m.json", nullptr), CKPT_OK);
  ASSERT_EQ(findings.n, 1u);
  EXPECT_STREQ(findings.items[0].message, "bytes: 2 tensors are those of m.json");
  for (size_t i = 0; i < 3; i++) actual->entries[i].digest = {};
  ASSERT_EQ(ckpt_verify_manifest(&findings, file.index, actual.get(), expected.get(), "m.json", nullptr), CKPT_OK);
  EXPECT_EQ(findings.n, 1u);
  actual->entries[0].dtype = CKPT_F16;
  ASSERT_EQ(ckpt_verify_manifest(&findings, file.index, actual.get(), expected.get(), "m.json", nullptr), CKPT_OK);
  ASSERT_EQ(findings.n, 2u);
  EXPECT_STREQ(findings.items[1].message, "its dtype differs from m.json");
  ckpt_findings_free(&findings);
}

TEST(Manifest, ItsDigestIsThatOfWhatWasRead) {
  Opened file(Tensors());
  auto expected = ManifestOf(file.index), actual = ManifestOf(file.index);
  ckpt_findings findings = {};
  expected->digest = {};
  ASSERT_EQ(ckpt_verify_manifest(&findings, file.index, actual.get(), expected.get(), "m.json", nullptr), CKPT_OK);
  ASSERT_EQ(findings.n_of[CKPT_PROBLEM], 1u);
  EXPECT_EQ(findings.n_of[CKPT_PROVEN], 0u);
  EXPECT_STREQ(findings.items[0].file, "m.json");
  ckpt_findings_free(&findings);
}

TEST(Verify, ValuesByRole) {
  Opened file({{"nan", "F32", {1}, Bytes<float>({NAN})},
               {"zeros", "F32", {2, 2}, std::string(16, '\0')},
               {"zero", "F32", {4}, std::string(16, '\0')},
               {"fine", "F32", {1}, Bytes<float>({1})}});
  for (ckpt_role role : {CKPT_ROLE_PARAMETER, CKPT_ROLE_BUFFER}) {
    for (uint32_t i = 0; i < file.index->n_tensors; i++) file.index->tensors[i].role = role;
    auto plan = prove::NewPlan();
    ckpt_value_checks checks = {};
    ckpt_findings findings = {};
    ASSERT_EQ(ckpt_verify_plan(&checks, plan.get(), file.index, 0, 4, nullptr), CKPT_OK);
    prove::Run(plan.get());
    ASSERT_EQ(ckpt_verify_values(&findings, &checks, file.index, 0, 4, nullptr), CKPT_OK);
    bool is_parameter = role == CKPT_ROLE_PARAMETER;
    EXPECT_EQ(findings.n_of[CKPT_PROBLEM], is_parameter ? 1u : 0u);
    EXPECT_EQ(findings.n_of[CKPT_WARNING], 1u);
    ASSERT_GE(findings.n, 1u);
    EXPECT_STREQ(findings.items[0].tensor, "nan");
    ckpt_value_checks_free(&checks);
    ckpt_findings_free(&findings);
  }
}

TEST(Verify, OfOneSortSoManyAreKeptAndAllAreCounted) {
  ckpt_findings findings = {};
  for (int i = 0; i < 1500; i++) {
    std::string name = "t" + std::to_string(i);
    for (ckpt_finding_kind kind : {CKPT_PROBLEM, CKPT_WARNING})
      ASSERT_EQ(ckpt_findings_add(&findings, nullptr, kind, nullptr, name.c_str(), "is %d", i), CKPT_OK);
  }
  ASSERT_EQ(ckpt_findings_add(&findings, nullptr, CKPT_WARNING, nullptr, "x", "is another"), CKPT_OK);
  EXPECT_EQ(findings.n_of[CKPT_PROBLEM], 1500u);
  EXPECT_EQ(findings.n_of[CKPT_WARNING], 1501u);
  size_t n_kept[CKPT_N_FINDING_KINDS] = {};
  for (size_t i = 0; i < findings.n; i++) {
    const ckpt_finding &item = findings.items[i];
    size_t n_more = item.tensor == std::string("t999") && item.kind == CKPT_PROBLEM  ? 500u
                    : item.tensor == std::string("t19") && item.kind == CKPT_WARNING ? 1480u
                                                                                     : 0u;
    EXPECT_EQ(item.n_more, n_more) << item.tensor;
    n_kept[item.kind]++;
  }
  EXPECT_EQ(n_kept[CKPT_PROBLEM], 1000u);
  EXPECT_EQ(n_kept[CKPT_WARNING], 21u);
  ckpt_findings_free(&findings);
}

// A zip archive of one stored record; its directory may call it otherwise than its local header does.
std::string Archive(const std::string &name, const std::string &named, const std::string &payload) {
  auto number = [](uint64_t value, int n) {
    std::string bytes;
    for (int i = 0; i < n; i++) bytes += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
    return bytes;
  };
  auto crc = crc32(0, reinterpret_cast<const Bytef *>(payload.data()), static_cast<uInt>(payload.size()));
  std::string known = number(0, 8) + number(crc, 4) + number(payload.size(), 4) + number(payload.size(), 4) +
                      number(name.size(), 2) + number(0, 2);
  std::string file = "PK\3\4" + number(20, 2) + known + name + payload;
  uint64_t directory = file.size();
  file += "PK\1\2" + number(20, 2) + number(20, 2) + known + number(0, 14) + named;
  return file + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) + number(file.size() - directory, 4) +
         number(directory, 4) + number(0, 2);
}

struct Slice {
  uint64_t offset, n_bytes;
  bool is_packed;
};

// What is counted and found in slices of a file, each the archive of a tensor of eight bytes.
ckpt_crc_counts CountCrc(const std::string &file, const std::vector<Slice> &slices, std::string *found = nullptr) {
  ckpt_source *source = nullptr;
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  ckpt_findings findings = {};
  ckpt_run_options run = {};
  ckpt_crc_counts counts = {};
  EXPECT_EQ(ckpt_source_memory(&source, file.data(), file.size(), "items", &err), CKPT_OK);
  EXPECT_EQ(ckpt_index_new(&index, source, "items", "dcp", nullptr, &err), CKPT_OK);
  for (size_t i = 0; i < slices.size(); i++) {
    std::string name = "t" + std::to_string(i);
    const uint64_t shape[] = {8};
    ckpt_extent extent = {};
    extent.offset = slices[i].offset;
    extent.n_stored = slices[i].n_bytes;
    extent.count = 8;
    extent.chain[0] = slices[i].is_packed ? CKPT_DECODE_ZSTD : CKPT_DECODE_RECORD;
    if (slices[i].is_packed) extent.chain[1] = CKPT_DECODE_RECORD;
    EXPECT_EQ(ckpt_index_add(index, name.data(), name.size(), CKPT_U8, 1, shape, CKPT_ROLE_PARAMETER, &extent, 1,
                             nullptr, &err),
              CKPT_OK)
        << err.message;
  }
  EXPECT_EQ(ckpt_verify_crc(&findings, index, &run, &counts, &err), CKPT_OK) << err.message;
  for (size_t i = 0; i < findings.n && found != nullptr; i++)
    *found += std::string(findings.items[i].tensor) + ": " + findings.items[i].message + "\n";
  EXPECT_EQ(findings.n, counts.n_wrong);
  ckpt_findings_free(&findings);
  ckpt_index_free(index);
  return counts;
}

// All names of a tensor that is broken are known to be there.
TEST(Verify, OtherNamesOfWhatIsBrokenAreNotMissing) {
  ckpt_source *source = nullptr;
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  const uint64_t shape[] = {8};
  uint32_t number = 0;
  ckpt_extent extent = {};
  extent.n_stored = extent.count = 8;
  ASSERT_EQ(ckpt_source_memory(&source, "8 bytes.", 8, "items", &err), CKPT_OK);
  ASSERT_EQ(ckpt_index_new(&index, source, "items", "dcp", nullptr, &err), CKPT_OK);
  for (const std::string name : {"broken", "whole"}) {
    ASSERT_EQ(ckpt_index_add(index, name.data(), name.size(), CKPT_U8, 1, shape, CKPT_ROLE_PARAMETER, &extent, 1,
                             &number, &err),
              CKPT_OK);
    ASSERT_EQ(ckpt_index_alias(index, number, (name + ".tied").c_str(), &err), CKPT_OK);
  }
  ckpt_index_break(index, 0, 1);
  ASSERT_EQ(ckpt_index_finish(index, &err), CKPT_OK) << err.message;
  EXPECT_TRUE(ckpt_index_is_unread(index, "broken"));
  EXPECT_TRUE(ckpt_index_is_unread(index, "broken.tied"));
  EXPECT_FALSE(ckpt_index_is_unread(index, "whole.tied"));
  EXPECT_NE(ckpt_index_find(index, "whole.tied"), nullptr);
  EXPECT_EQ(index->n_aliases, 1u);
  ckpt_index_free(index);
}

TEST(Crc, AnArchiveThatIsRefusedIsAProblem) {
  std::string good = Archive("a/data/0", "a/data/0", "8 bytes."), bad = Archive("a/data/0", "a/data/1", "8 bytes.");
  std::string packed(ZSTD_compressBound(bad.size()), '\0'), found;
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bad.data(), bad.size(), 3));
  auto counts = CountCrc(good + packed, {{0, good.size(), false}, {good.size(), packed.size(), true}}, &found);
  EXPECT_EQ(counts.n_checked, 1u);
  EXPECT_EQ(counts.n_wrong, 1u);
  EXPECT_EQ(found.substr(0, 17), "t1: its archive: ") << found;
}

TEST(Crc, WhatIsPassedOverIsCounted) {
  std::string file = Archive("a/data/0", "a/data/0", "8 bytes.");
  auto counts = CountCrc(file + file, {{0, file.size(), false},
                                       {0, file.size(), false},  // two tensors in one item
                                       {8, file.size() - 8, false},
                                       {file.size(), file.size(), false}});
  EXPECT_EQ(counts.n_checked, 2u);
  EXPECT_EQ(counts.n_passed, 1u);
  EXPECT_EQ(counts.n_wrong, 0u);
}

TEST(Files, SumsOfManyFilesByAnyThreads) {
  Folder folder;
  std::vector<std::string> names, texts;
  for (int i = 0; i < 9; i++) {
    names.push_back("f" + std::to_string(i));
    texts.push_back(i == 0 ? "" : i == 1 ? "abc" : std::string(700000 * i, 'a' + i));
    std::ofstream(folder / names.back()) << texts.back();
  }
  const char *empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  const char *abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  ckpt_hasher *hasher = nullptr;
  ASSERT_EQ(ckpt_hasher_new(&hasher, nullptr), CKPT_OK);
  for (uint32_t n_threads : {1u, 4u, 100u}) {
    ckpt_source *source = nullptr;
    ASSERT_EQ(ckpt_source_open(&source, folder.path().c_str(), nullptr), CKPT_OK);
    std::vector<ckpt_file_sum> sums(names.size());
    uint64_t size;
    for (size_t i = 0; i < names.size(); i++)
      ASSERT_EQ(ckpt_source_add(source, names[i].c_str(), &sums[i].file, &size, nullptr), CKPT_OK);
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    run.n_threads = n_threads;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_sum_files(source, sums.data(), sums.size(), &run, &err), CKPT_OK) << err.message;
    char text[65];
    EXPECT_STREQ(ckpt_sum_text(sums[0].sha256, text), empty);
    EXPECT_STREQ(ckpt_sum_text(sums[1].sha256, text), abc);
    for (size_t i = 0; i < sums.size(); i++) {
      uint8_t wanted[32];
      ASSERT_EQ(ckpt_digest_leaf(hasher, texts[i].data(), texts[i].size(), wanted, nullptr), CKPT_OK);
      EXPECT_EQ(memcmp(sums[i].sha256, wanted, 32), 0) << i;
    }
    volatile int cancel = 1;
    run.cancel = &cancel;
    EXPECT_EQ(ckpt_sum_files(source, sums.data(), sums.size(), &run, &err), CKPT_ECANCELED);
    run.cancel = nullptr; /* what is there now has another sum than what was read */
    std::ofstream(folder / names[1], std::ios::binary | std::ios::app) << "more";
    err = {};
    EXPECT_EQ(ckpt_sum_files(source, sums.data(), sums.size(), &run, &err), CKPT_EIO);
    EXPECT_NE(std::string(err.message).find("changed while being read"), std::string::npos) << err.message;
    std::filesystem::resize_file(folder / names[1], texts[1].size());
    ckpt_source_free(source);
  }
  ckpt_hasher_free(hasher);
}

TEST(Files, SumsAreReadStrictly) {
  uint8_t sum[32];
  std::string hex(64, 'A');
  EXPECT_TRUE(ckpt_sum_parse(hex.c_str(), sum));
  EXPECT_EQ(sum[31], 0xAA);
  EXPECT_FALSE(ckpt_sum_parse((hex + "0").c_str(), sum));
  EXPECT_FALSE(ckpt_sum_parse(hex.substr(1).c_str(), sum));
  EXPECT_FALSE(ckpt_sum_parse("", sum));
  hex[63] = 'g';
  EXPECT_FALSE(ckpt_sum_parse(hex.c_str(), sum));
}

}  // namespace
