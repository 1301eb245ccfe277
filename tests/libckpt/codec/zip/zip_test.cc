// Zip directories: what zipfile and PyTorch write, zip64 and comments; what lies, overlaps or can be read in two ways.
#include <gtest/gtest.h>
#include <zlib.h>

#include <chrono>
#include <fstream>

extern "C" {
#include "libckpt/codec/zip/zip.h"
}

namespace {

std::string number(uint64_t value, int n_bytes) {
  std::string out;
  for (int i = 0; i < n_bytes; i++) out.push_back(static_cast<char>(i < 8 ? value >> 8 * i : 0));
  return out;
}

struct Entry {
  Entry(const std::string &entry_name, const std::string &content) : name(entry_name), payload(content) {}
  std::string name, payload;
  uint16_t flags = 0, method = 0, disk = 0;
  uint64_t n_bytes = UINT64_MAX;  // the payload's where this stays
  uint32_t moved = 0;             // of the header offset in the directory
  std::string local_name;         // where it differs
};

struct Archive {
  std::vector<Entry> entries;
  std::string comment, behind;
  bool zip64 = false;
  uint64_t n_more = 0;  // entries that the end claims and the directory lacks

  std::string bytes() const {
    std::string out, directory;
    for (const Entry &e : entries) {
      uint64_t n = e.n_bytes == UINT64_MAX ? e.payload.size() : e.n_bytes, at = out.size() + e.moved;
      const std::string &local = e.local_name.empty() ? e.name : e.local_name;
      std::string crc =
          number(crc32(0, reinterpret_cast<const Bytef *>(e.payload.data()), static_cast<uInt>(e.payload.size())), 4);
      std::string head = number(20, 2) + number(e.flags, 2) + number(e.method, 2) + number(0, 4) + crc;
      std::string extra = zip64 ? number(1, 2) + number(16, 2) + number(n, 8) + number(e.payload.size(), 8) : "";
      std::string sizes = zip64 ? number(UINT64_MAX, 8) : number(e.payload.size(), 4) + number(n, 4);
      out += "PK\3\4" + head + sizes + number(local.size(), 2) + number(extra.size(), 2) + local + extra + e.payload;
      if (zip64) extra += number(at, 8), extra[2] = 24;
      directory += "PK\1\2" + number(20, 2) + head + sizes + number(e.name.size(), 2) + number(extra.size(), 2) +
                   number(0, 2) + number(e.disk, 2) + number(0, 6) + number(zip64 ? UINT32_MAX : at, 4) + e.name +
                   extra;
    }
    uint64_t at = out.size(), end = at + directory.size(), n = entries.size() + n_more;
    out += directory;
    if (zip64)
      out += "PK\6\6" + number(44, 8) + number(0, 12) + number(n, 8) + number(n, 8) + number(directory.size(), 8) +
             number(at, 8) + "PK\6\7" + number(0, 4) + number(end, 8) + number(1, 4);
    out += "PK\5\6" + number(0, 4) + (zip64 ? number(UINT32_MAX, 4) : number(n, 2) + number(n, 2));
    out += zip64 ? number(UINT64_MAX, 8) : number(directory.size(), 4) + number(at, 4);
    return out + number(comment.size(), 2) + comment + behind;
  }
};

struct Opened {
  explicit Opened(const std::string &bytes, uint64_t max_bytes = 64 << 20, size_t offset = 0, size_t n_behind = 0) {
    EXPECT_EQ(ckpt_source_memory(&source, bytes.data(), bytes.size(), "a.zip", nullptr), CKPT_OK);
    status = ckpt_zip_open(&zip, source, 0, offset, bytes.size() - offset - n_behind, max_bytes, &err);
    message = err.message;
  }
  ~Opened() {
    ckpt_zip_free(zip);
    ckpt_source_free(source);
  }
  ckpt_source *source = nullptr;
  ckpt_zip *zip = nullptr;
  ckpt_error err = {};
  ckpt_status status;
  std::string message;
};

void expect_refused(const Archive &archive, ckpt_status status, const char *part) {
  Opened opened(archive.bytes());
  EXPECT_EQ(opened.status, status) << part << ": " << opened.message;
  EXPECT_NE(opened.message.find(part), std::string::npos) << opened.message;
}

Archive two() {
  Archive out;
  out.entries = {{"r/data.pkl", "abc"}, {"r/data/0", std::string(5000, 'd')}};
  return out;
}

TEST(Zip, EntriesInASliceWithAComment) {
  for (bool zip64 : {false, true})
    for (size_t n_comment : {0, 1, 5000, 65535}) {
      Archive archive = two();
      archive.zip64 = zip64;
      archive.comment.assign(n_comment, 'c');
      std::string bytes = "before" + archive.bytes() + "after";
      Opened opened(bytes, 1 << 20, 6, 5);
      ASSERT_EQ(opened.status, CKPT_OK) << opened.message;
      ASSERT_EQ(ckpt_zip_count(opened.zip), 2u);
      const ckpt_zip_entry *e = ckpt_zip_find(opened.zip, "r/data/0");
      ASSERT_EQ(e, ckpt_zip_at(opened.zip, 1));
      EXPECT_EQ(bytes.substr(e->offset, e->n_stored), archive.entries[1].payload);
      EXPECT_EQ(e->n_bytes, 5000u);
      EXPECT_EQ(e->crc32, crc32(0, reinterpret_cast<const Bytef *>(archive.entries[1].payload.data()), 5000));
      EXPECT_EQ(ckpt_zip_find(opened.zip, "r/data/1"), nullptr);
    }
}

TEST(Zip, WhatZipfileAndTorchWrite) {
  for (const char *name : {"stored", "deflated", "zip64", "streamed", "torch-one", "torch-empty", "torch-two"}) {
    std::ifstream in(std::string(CKPT_TESTS_DIR "/fuzz/corpus/zip/") + name, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    Opened opened(bytes);
    ASSERT_EQ(opened.status, CKPT_OK) << name << opened.message;
    const ckpt_zip_entry *e = ckpt_zip_find(opened.zip, "archive/byteorder");
    ASSERT_NE(e, nullptr) << name;
    EXPECT_EQ(e->n_bytes, 6u);
    if (e->method == CKPT_ZIP_STORED) {
      EXPECT_EQ(bytes.substr(e->offset, 6), "little");
    }
    if (std::string(name).find("torch") == 0) {
      EXPECT_EQ(e->offset % 64, 0u);
    }
  }
}

std::string checked(const std::string &bytes) {
  Opened opened(bytes);
  EXPECT_EQ(opened.status, CKPT_OK) << opened.message;
  ckpt_error err = {};
  uint32_t n_torch = 0;
  for (uint32_t i = 0; opened.zip != nullptr && i < ckpt_zip_count(opened.zip); i++)
    if (ckpt_zip_check(opened.zip, i, opened.source, 0, &n_torch, &err) != CKPT_OK) return err.message;
  if (opened.zip != nullptr) ckpt_zip_check_ends(opened.zip, n_torch, opened.source, 0, &err);
  return err.message;
}

std::string corpus(const std::string &name) {
  std::ifstream in(CKPT_TESTS_DIR "/fuzz/corpus/zip/" + name, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

// What honest writers leave around payloads passes; what no reader looks at is looked at.
TEST(Zip, AroundPayloads) {
  for (const char *name : {"stored", "deflated", "zip64", "streamed", "torch-one", "torch-empty", "torch-two"})
    EXPECT_EQ(checked(corpus(name)), "") << name;
  for (bool zip64 : {false, true}) {
    Archive archive = two();
    archive.zip64 = zip64;
    EXPECT_EQ(checked(archive.bytes()), "");
  }
  const std::string good = corpus("torch-one"), first = "zip entry 'archive/data.pkl': ";
  const size_t descriptor = good.find("PK\7\10");
  const std::string behind = first + "the descriptor behind it contradicts the directory (at 0)",
                    local = first + "its local header contradicts the directory (at 0)";
  for (size_t at = descriptor; at < descriptor + 16; at++) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    EXPECT_EQ(checked(bytes), behind) << at;
  }
  for (const auto &[at, bit] :
       std::vector<std::pair<size_t, int>>{{6, 4}, {7, 4}, {10, 1}, {13, 128}, {14, 2}, {25, 1}}) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ bit);
    EXPECT_EQ(checked(bytes), local) << at;
  }
  std::string bytes = good;
  bytes[good.find("ZZZ")] = 'z';
  EXPECT_EQ(checked(bytes), first + "its padding is not 'Z' (at 0)");
  bytes = good;
  bytes[bytes.find("FB") + 2]++;
  EXPECT_EQ(checked(bytes), first + "its extra field is damaged (at 0)");
  const size_t central = good.find("PK\1\2"), end64 = good.find("PK\6\6"), locator = good.find("PK\6\7");
  const std::string plain = first + "the directory has versions, attributes or a comment that PyTorch does not write";
  bytes = good;
  bytes[central + 38] = 0x10;  // the folder bit of DOS
  EXPECT_EQ(checked(bytes), first +
                                "its attributes are those of a folder, whose content PyTorch passes by: it gives "
                                "uninitialised memory (at 0)");
  for (size_t at : {4, 5, 36, 37, 39, 40, 41}) {
    bytes = good;
    bytes[central + at] = 1;
    EXPECT_EQ(checked(bytes), plain + " (at 0)") << at;
  }
  bytes = good;
  bytes[4] = bytes[central + 6] = 20;
  EXPECT_EQ(checked(bytes), plain + " (at 0)");
  bytes = good;
  bytes[central + 6] = 20;
  EXPECT_EQ(checked(bytes), local);
  bytes = good;
  bytes[locator + 16] = 0;
  EXPECT_EQ(checked(bytes), "the zip archive's end says that it has 0 disks (it is one)");
  for (size_t at : {12, 13, 14, 15}) {
    bytes = good;
    bytes[end64 + at] = static_cast<char>(bytes[end64 + at] ^ 1);
    EXPECT_NE(checked(bytes).find("the zip archive's end states versions"), std::string::npos) << at;
  }
  bytes = good;
  bytes[bytes.find("FB")] = 'f';
  EXPECT_NE(checked(bytes).find("lack the field that PyTorch pads them with"), std::string::npos);
  Archive hole = two();
  hole.entries = {{"a", "xyz"}, {"b", "in the way"}, {"c", ""}};
  bytes = hole.bytes();
  const size_t entry = bytes.find("PK\1\2", bytes.find("PK\1\2") + 1), end = bytes.find("PK\1\2", entry + 1);
  bytes.erase(entry, end - entry);
  const size_t tail = bytes.find("PK\5\6");
  bytes[tail + 8] = bytes[tail + 10] = 2;
  bytes[tail + 12] = static_cast<char>(bytes[tail + 12] - (end - entry));
  EXPECT_EQ(checked(bytes), "zip entry 'a': bytes that are no entry's follow it (at 0)");
}

TEST(Zip, LiesAreRefused) {
  Archive a = two();
  a.behind = "x";
  expect_refused(a, CKPT_EFORMAT, "follow the end");
  a = two(), a.n_more = 1;
  expect_refused(a, CKPT_EFORMAT, "zip");
  a = two(), a.n_more = 60000;
  expect_refused(a, CKPT_EFORMAT, "entries in a zip directory");
  a = two(), a.entries[1].name = "r/data.pkl";
  expect_refused(a, CKPT_EFORMAT, "stands there twice");
  a = two(), a.entries[1].local_name = "r/data/1";
  expect_refused(a, CKPT_EFORMAT, "contradicts the directory");
  a = two(), a.entries[0].moved = 1;
  expect_refused(a, CKPT_EFORMAT, "contradicts the directory");
  a = two(), a.entries[0].flags = 1;
  expect_refused(a, CKPT_EUNSUPPORTED, "encrypted");
  a = two(), a.entries[0].method = 12;
  expect_refused(a, CKPT_EUNSUPPORTED, "method 12");
  a = two(), a.entries[0].disk = 1;
  expect_refused(a, CKPT_EUNSUPPORTED, "several disks");
  a = two(), a.entries[0].n_bytes = 4;
  expect_refused(a, CKPT_EFORMAT, "cannot have 4 bytes in 3");
  a = two(), a.entries[0].method = 8, a.entries[0].n_bytes = 1000000;
  expect_refused(a, CKPT_EFORMAT, "cannot have 1000000 bytes in 3");
  a = two(), a.entries[0].name = "r/\xff", a.entries[0].flags = 1 << 11;
  expect_refused(a, CKPT_EFORMAT, "not UTF-8");
  a = two(), a.entries[0].name = std::string("r/\0x", 4);
  expect_refused(a, CKPT_EFORMAT, "zero byte");
  a = two(), a.entries[0].name = std::string(4097, 'n');
  expect_refused(a, CKPT_EFORMAT, "1 to 4096");
  Opened little(two().bytes(), 64);
  EXPECT_EQ(little.status, CKPT_ELIMIT);
}

// The second entry stands inside the payload of the first.
TEST(Zip, ASlicePastTheFileIsRefused) {
  const std::string bytes = two().bytes();
  Opened longer(bytes, 64 << 20, 0, SIZE_MAX), behind(bytes, 64 << 20, bytes.size() + 1, SIZE_MAX);
  EXPECT_EQ(longer.status, CKPT_EFORMAT);
  EXPECT_EQ(longer.message,
            "a zip archive of " + std::to_string(bytes.size() + 1) + " bytes at 0 lies past the end of the file");
  EXPECT_EQ(behind.status, CKPT_EFORMAT);
  EXPECT_EQ(behind.message,
            "a zip archive of 0 bytes at " + std::to_string(bytes.size() + 1) + " lies past the end of the file");
}

TEST(Zip, OverlapsAreRefused) {
  Entry inner{"b", "xy"};
  std::string hidden = "PK\3\4" + number(20, 2) + number(0, 8) +
                       number(crc32(0, reinterpret_cast<const Bytef *>("xy"), 2), 4) + number(2, 4) + number(2, 4) +
                       number(1, 2) + number(0, 2) + "bxy";
  Archive a;
  a.entries = {{"a", hidden}, inner};
  a.entries[1].moved = static_cast<uint32_t>(0 - hidden.size());
  expect_refused(a, CKPT_EFORMAT, "overlap");
}

TEST(Zip, EveryCutIsRefused) {
  std::string whole = two().bytes();
  for (size_t n = 0; n < whole.size(); n += n < 5000 ? 37 : 1)
    EXPECT_EQ(Opened(whole.substr(0, n)).status, CKPT_EFORMAT) << n;
}

TEST(Zip, ManyEntriesOpenInLinearTime) {
  Archive archive;
  for (int i = 0; i < 200000; i++) archive.entries.push_back({"archive/data/" + std::to_string(i), "x"});
  archive.zip64 = true;
  std::string bytes = archive.bytes();
  auto start = std::chrono::steady_clock::now();
  Opened opened(bytes);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(opened.status, CKPT_OK) << opened.message;
  for (uint32_t i = 0; i < 200000; i += 999) {
    const ckpt_zip_entry *e = ckpt_zip_at(opened.zip, i);
    EXPECT_EQ(ckpt_zip_find(opened.zip, e->name), e);
  }
  EXPECT_LE(ckpt_source_bytes_read(opened.source), 2 * bytes.size());
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds.count()));
  EXPECT_LT(seconds.count(), 10);
}

// A file that torch.save writes has an entry for each storage.
TEST(Zip, EntriesAtTheLimitAndOnePast) {
  Archive archive;
  for (int i = 0; i < CKPT_ZIP_MAX_ENTRIES; i++) archive.entries.push_back({"d/" + std::to_string(i), ""});
  archive.zip64 = true;
  {
    Opened most(archive.bytes(), CKPT_ZIP_MAX_BYTES);
    EXPECT_EQ(most.status, CKPT_OK) << most.message;
    EXPECT_EQ(ckpt_zip_count(most.zip), static_cast<uint32_t>(CKPT_ZIP_MAX_ENTRIES));
  }
  archive.entries.assign(1000, {std::string(60000, 'n'), ""}); /* room for as many as are claimed */
  archive.n_more = CKPT_ZIP_MAX_ENTRIES + 1 - 1000;
  Opened past(archive.bytes(), CKPT_ZIP_MAX_BYTES);
  EXPECT_EQ(past.status, CKPT_ELIMIT);
  EXPECT_EQ(past.message, "1000001 zip entries (at most 1000000)");
}

}  // namespace
