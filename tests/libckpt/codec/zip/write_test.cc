// Archives that codec/zip/write.h prints: read again by our reader, and their bytes and large sizes checked by hand.
// What PyTorch makes of them stands in tests/interop/test_torch_write.py.
extern "C" {
#include "libckpt/codec/zip/write.h"
#include "libckpt/codec/zip/zip.h"
}

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

struct Printed {
  std::string bytes;
  ckpt_sink *sink = nullptr;
  ckpt_stream out;
  char window[64];  // small: generators must not depend on it
  Printed() {
    EXPECT_EQ(ckpt_sink_memory(&sink, nullptr), CKPT_OK);
    ckpt_sink_file file = {nullptr, CKPT_SIZE_UNKNOWN};
    EXPECT_EQ(ckpt_sink_open(sink, &file, 1, nullptr), CKPT_OK);
    ckpt_stream_sink(&out, sink, 0, 0, window, sizeof window, nullptr);
  }
  std::string text() {
    EXPECT_EQ(ckpt_stream_end(&out), CKPT_OK);
    EXPECT_EQ(ckpt_sink_seal(sink, nullptr), CKPT_OK);
    uint64_t n_bytes = 0;
    const void *at = ckpt_sink_bytes(sink, 0, &n_bytes);
    return std::string(static_cast<const char *>(at), n_bytes);
  }
  ~Printed() { ckpt_sink_free(sink); }
};

std::string u(uint64_t value, int n) {
  std::string text;
  for (int i = 0; i < n; i++) text += static_cast<char>(value >> (8 * i));
  return text;
}

// The reader takes what was printed, with the payloads where the writer said.
TEST(ZipWrite, IsReadAgain) {
  std::vector<std::string> payloads = {"pickle", "1", "", std::string(1000, 'x'), "64"};
  std::vector<std::string> names = {"archive/data.pkl", "archive/.format_version", "archive/data/0", "archive/data/1",
                                    "archive/" + std::string(56, 'n')};
  std::vector<ckpt_zip_record> records;
  for (size_t i = 0; i < names.size(); i++)
    records.push_back(
        {names[i].c_str(), payloads[i].size(), 0, ckpt_zip_crc32(payloads[i].data(), payloads[i].size())});
  uint32_t n = static_cast<uint32_t>(records.size());
  uint64_t directory = ckpt_zip_place(records.data(), n);
  Printed printed;
  for (uint32_t i = 0; i < n; i++) {
    EXPECT_EQ(printed.out.n_bytes, records[i].offset);
    EXPECT_EQ(ckpt_zip_payload(&records[i]) % 64, 0u);
    ckpt_zip_put_record(&printed.out, &records[i], payloads[i].data());
  }
  EXPECT_EQ(printed.out.n_bytes, directory);
  ckpt_zip_put_end(&printed.out, records.data(), n, directory);
  std::string bytes = "before" + printed.text() + "behind";
  ckpt_source *source = nullptr;
  ASSERT_EQ(ckpt_source_memory(&source, bytes.data(), bytes.size(), "memory", nullptr), CKPT_OK);
  ckpt_zip *zip = nullptr;
  ASSERT_EQ(ckpt_zip_open(&zip, source, 0, 6, bytes.size() - 12, 1 << 20, nullptr), CKPT_OK);
  ASSERT_EQ(ckpt_zip_count(zip), n);
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_zip_entry *entry = ckpt_zip_at(zip, i);
    EXPECT_EQ(entry->name, names[i]);
    EXPECT_EQ(entry->offset, 6 + ckpt_zip_payload(&records[i]));
    EXPECT_EQ(entry->crc32, records[i].crc32);
    EXPECT_EQ(bytes.substr(entry->offset, entry->n_bytes), payloads[i]);
  }
  ckpt_zip_free(zip);
  ckpt_source_free(source);
}

// A header to the byte, as PyTorch 2.15 has it.
TEST(ZipWrite, HasTheBytesOfPyTorch) {
  ckpt_zip_record record = {"model/data/0", 24, 0, 0x91e79017};
  ckpt_zip_place(&record, 1);
  Printed printed;
  ckpt_zip_put_local(&printed.out, &record);
  ckpt_zip_put_descriptor(&printed.out, &record);
  EXPECT_EQ(printed.text(), std::string("PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0c\0\x16\0", 30) +
                                "model/data/0" + std::string("FB\x12\0", 4) + std::string(18, 'Z') +
                                std::string("PK\7\10\x17\x90\xe7\x91\x18\0\0\0\x18\0\0\0", 16));
}

// From 4 GiB - 1 on sizes and places stand in the zip64 field, and the descriptor has 8 bytes for each.
TEST(ZipWrite, LargeRecordsAreZip64) {
  const uint64_t large = UINT64_C(0xffffffff);
  ckpt_zip_record records[] = {{"a/0", large - 1, 0, 1}, {"a/1", large, 0, 2}, {"a/2", 5, 0, 3}};
  uint64_t directory = ckpt_zip_place(records, 3);
  ASSERT_LT(records[1].offset, UINT64_C(1) << 33);
  for (const ckpt_zip_record &record : records) EXPECT_EQ(ckpt_zip_payload(&record) % 64, 0u);
  EXPECT_EQ(records[1].offset, ckpt_zip_payload(&records[0]) + large - 1 + 16);
  EXPECT_EQ(records[2].offset, ckpt_zip_payload(&records[1]) + large + 24);
  EXPECT_EQ(directory, ckpt_zip_payload(&records[2]) + 5 + 24);
  for (int i = 0; i < 3; i++) {
    Printed local, descriptor;
    ckpt_zip_put_local(&local.out, &records[i]);
    ckpt_zip_put_descriptor(&descriptor.out, &records[i]);
    std::string text = local.text(),
                extra = i == 0   ? ""
                        : i == 1 ? u(1, 2) + u(24, 2) + u(large, 8) + u(large, 8) + u(records[1].offset, 8)
                                 : u(1, 2) + u(8, 2) + u(records[2].offset, 8);
    EXPECT_EQ(text.size(), ckpt_zip_payload(&records[i]) - records[i].offset);
    EXPECT_EQ(text.substr(33, extra.size() + 2), extra + "FB") << i;
    int n_size = i == 0 ? 4 : 8;
    EXPECT_EQ(descriptor.text(),
              "PK\7\10" + u(records[i].crc32, 4) + u(records[i].n_bytes, n_size) + u(records[i].n_bytes, n_size));
  }
  Printed end;
  ckpt_zip_put_end(&end.out, records, 3, directory);
  std::string text = end.text();
  EXPECT_NE(text.find("a/1" + u(1, 2) + u(24, 2) + u(large, 8)), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 22),
            "PK\5\6" + u(0, 4) + u(3, 2) + u(3, 2) + u(text.size() - 98, 4) + u(large, 4) + u(0, 2));
}

// The stream that takes a checksum takes that of the bytes, whatever they were printed by.
TEST(ZipWrite, ChecksumOfAStream) {
  ckpt_stream out;
  ckpt_stream_checksum(&out, nullptr);
  ckpt_stream_text(&out, "12");
  ckpt_stream_fill(&out, '3', 1);
  ckpt_stream_printf(&out, "%d", 456);
  ckpt_stream_le(&out, 0x393837, 3);
  EXPECT_EQ(out.n_bytes, 9u);
  EXPECT_EQ(out.crc32, 0xcbf43926u);
  EXPECT_EQ(ckpt_zip_crc32("123456789", 9), 0xcbf43926u);
}

}  // namespace
