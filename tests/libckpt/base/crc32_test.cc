// CRC-32 is zlib's, whatever the length, the alignment, and how it is cut.
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <vector>

extern "C" {
#include "libckpt/base/crc32.h"
}

namespace {

std::vector<uint8_t> random_bytes(size_t n) {
  std::mt19937_64 random(7);
  std::vector<uint8_t> bytes(n);
  for (uint8_t &byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Crc32, IsThatOfZlib) {
  EXPECT_EQ(ckpt_crc32(7, nullptr, 0), 7u);
  const std::vector<uint8_t> bytes = random_bytes(1 << 20);
  EXPECT_EQ(ckpt_crc32(0, "123456789", 9), 0xCBF43926u);
  for (size_t n = 0; n <= 2600; n++) /* 64 bytes at once from 1,024 on */
    for (size_t at : {n % 17, size_t{0}}) {
      EXPECT_EQ(ckpt_crc32(0, bytes.data() + at, n), crc32_z(0, bytes.data() + at, n)) << n;
      EXPECT_EQ(ckpt_crc32(0x9e3779b9u, bytes.data() + at, n), crc32_z(0x9e3779b9u, bytes.data() + at, n)) << n;
    }
  for (size_t n : {bytes.size(), bytes.size() - 255})
    EXPECT_EQ(ckpt_crc32(0, bytes.data(), n), crc32_z(0, bytes.data(), n));
  const std::vector<uint8_t> zeros(1 << 16), ones(1 << 16, 0xff);
  EXPECT_EQ(ckpt_crc32(0, zeros.data(), zeros.size()), crc32_z(0, zeros.data(), zeros.size()));
  EXPECT_EQ(ckpt_crc32(0, ones.data(), ones.size()), crc32_z(0, ones.data(), ones.size()));
}

TEST(Crc32, PiecesAreTheWhole) {
  const std::vector<uint8_t> bytes = random_bytes(10000);
  const uint32_t whole = ckpt_crc32(0, bytes.data(), bytes.size());
  for (size_t cut = 0; cut <= bytes.size(); cut += 37)
    EXPECT_EQ(ckpt_crc32(ckpt_crc32(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut), whole) << cut;
}

}  // namespace
