// The cpu backend on every level of this processor: bits and statistics equal the reference's.
#include <gtest/gtest.h>

#include "tests/kernels/cast/cast_support.h"

namespace {

// Casts at some misalignment, between guard bytes that must survive.
std::string run(const ckpt_convert_level *level, ckpt_dtype dst, ckpt_dtype src, const std::string &from, size_t n,
                size_t misalignment, ckpt_cast_stats *stats) {
  size_t n_bytes = bytes_of(dst, n);
  std::string source = std::string(misalignment, '\0') + from, target(misalignment + n_bytes + 64, '\x5a');
  ckpt_convert_cast(level, dst, &target[misalignment], src, source.data() + misalignment, n, stats);
  EXPECT_EQ(target.substr(0, misalignment), std::string(misalignment, '\x5a'));
  EXPECT_EQ(target.substr(misalignment + n_bytes), std::string(64, '\x5a'));
  return target.substr(misalignment, n_bytes);
}

void expect_like_reference(ckpt_dtype dst, ckpt_dtype src, const std::string &from, size_t n, size_t misalignment) {
  std::string want(bytes_of(dst, n), '\0');
  ckpt_cast_stats expected = {};
  ckpt_backend_reference.cast(dst, &want[0], src, from.data(), n, &expected);
  for (const ckpt_convert_level *level : levels()) {
    SCOPED_TRACE(std::string(level->name) + " " + ckpt_dtype_name(src) + " -> " + ckpt_dtype_name(dst));
    ckpt_cast_stats stats = {};
    std::string got = run(level, dst, src, from, n, misalignment, &stats);
    EXPECT_EQ(stats.n_overflow, expected.n_overflow);
    EXPECT_EQ(stats.largest, expected.largest);
    EXPECT_EQ(stats.n_nan_lost, expected.n_nan_lost);
    EXPECT_EQ(stats.n_underflow, expected.n_underflow);
    EXPECT_EQ(stats.has_nonzero && expected.n_underflow != 0, expected.has_nonzero && expected.n_underflow != 0);
    if (got == want) continue;
    for (size_t i = 0; i < n; i++)
      ASSERT_EQ(ckpt_float_load(dst, got.data(), i), ckpt_float_load(dst, want.data(), i))
          << "from 0x" << std::hex << ckpt_float_load(src, from.data(), i);
  }
}

TEST(Convert, EqualsTheReferenceForEveryPair) {
  for (ckpt_dtype src : float_dtypes()) {
    std::vector<uint64_t> codes = interesting_codes(src);
    while (codes.size() < 256 || codes.size() % 4 != 0) codes.push_back(codes[codes.size() % 16]);
    std::string from = packed(src, codes);
    for (ckpt_dtype dst : float_dtypes()) expect_like_reference(dst, src, from, codes.size(), 0);
  }
}

TEST(Convert, AnyLengthAndAlignment) {
  for (ckpt_dtype src : float_dtypes())
    for (ckpt_dtype dst : float_dtypes()) {
      uint32_t block = std::max(ckpt_dtype_get(src)->block_elements, ckpt_dtype_get(dst)->block_elements);
      std::vector<uint64_t> codes = interesting_codes(src);
      while (codes.size() < 2200) codes.insert(codes.end(), codes.begin(), codes.end());
      codes.resize(2200);
      std::string from = packed(src, codes);
      for (size_t n : {0, 1, 2, 3, 4, 7, 31, 32, 33, 63, 100, 255, 256, 257, 1023, 1024, 1025, 2200})
        if (n % block == 0) expect_like_reference(dst, src, from, n, n % 7);
    }
}

uint64_t code_of(ckpt_dtype dtype, double value) {
  ckpt_cast_stats ignored = {};
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return ckpt_float_encode(dtype, bits, &ignored);
}

struct Limit {
  ckpt_dtype dst, src;
  uint64_t overflows;  // the least code of src that does, or that keeps a value; the one below does not
};

// One overflow anywhere in a tensor is found, alone in its block or beside an infinity, and nothing else is counted.
TEST(Convert, FindsOneOverflow) {
  const Limit limits[] = {
      {CKPT_BF16, CKPT_F32, 0x7f7f8000},
      {CKPT_F16, CKPT_F32, 0x477ff000},
      {CKPT_F8_E4M3, CKPT_F32, 0x43e80001},
      {CKPT_F8_E5M2, CKPT_F32, 0x47700000},
      {CKPT_F16, CKPT_BF16, 0x4780},
      {CKPT_F8_E4M3, CKPT_F16, 0x5f41},
      {CKPT_F32, CKPT_F64, 0x47effffff0000000},
      {CKPT_F8_E4M3, CKPT_F8_E5M2, 0x60},
      {CKPT_F8_E4M3FNUZ, CKPT_BF16, 0x4378},
      {CKPT_F4_E2M1, CKPT_F16, 0x4700},
  };
  for (const Limit &limit : limits)
    for (size_t at : {0, 31, 32, 1023, 1024, 1500, 2055})
      for (bool infinity_too : {false, true}) {
        // An infinity is lost where it becomes a number or NaN.
        unsigned lost =
            infinity_too && (limit.dst == CKPT_F8_E4M3 || limit.dst == CKPT_F8_E4M3FNUZ || limit.dst == CKPT_F4_E2M1);
        SCOPED_TRACE(std::string(ckpt_dtype_name(limit.src)) + " -> " + ckpt_dtype_name(limit.dst));
        std::vector<uint64_t> codes(2056, code_of(limit.src, 1));
        if (infinity_too) codes[(at + 7) % 2056] = code_of(limit.src, 1 / 0.0);
        for (int over : {0, 1}) {
          codes[at] = (limit.overflows - 1 + over) | 1ull << (ckpt_float_width(limit.src) - 1);  // negative
          std::string from = packed(limit.src, codes), to(bytes_of(limit.dst, codes.size()), '\0');
          ckpt_cast_stats stats = {5, 1e-9, 7, 9, false};
          ckpt_backend_cpu.cast(limit.dst, &to[0], limit.src, from.data(), codes.size(), &stats);
          EXPECT_EQ(stats.n_overflow, 5u + over + lost);
          EXPECT_EQ(stats.largest > 1, over + lost != 0);
          EXPECT_EQ(stats.n_nan_lost, 7u);
          EXPECT_EQ(stats.n_underflow, 9u);
          expect_like_reference(limit.dst, limit.src, from, codes.size(), 0);
        }
      }
}

// The greatest code that becomes zero is counted wherever it stands, the next one keeps its value, zeros are no loss.
TEST(Convert, FindsOneUnderflow) {
  const Limit limits[] = {
      {CKPT_BF16, CKPT_F32, 0x00008001},
      {CKPT_F16, CKPT_F32, 0x33000001},
      {CKPT_F8_E4M3, CKPT_F32, 0x3a800001},
      {CKPT_F8_E5M2, CKPT_F32, 0x37000001},
      {CKPT_F16, CKPT_BF16, 0x3301},
      {CKPT_F8_E4M3, CKPT_F16, 0x1401},
      {CKPT_F32, CKPT_F64, 0x3690000000000001},
      {CKPT_F8_E4M3, CKPT_F8_E5M2, 0x15},
      {CKPT_F4_E2M1, CKPT_F16, 0x3401},
      {CKPT_F8_E4M3FNUZ, CKPT_BF16, 0x3a01},
  };
  for (const Limit &limit : limits)
    for (size_t at : {0, 31, 32, 1023, 1024, 1500, 2055})
      for (int lost : {0, 1}) {
        SCOPED_TRACE(std::string(ckpt_dtype_name(limit.src)) + " -> " + ckpt_dtype_name(limit.dst));
        std::vector<uint64_t> codes(2056, 0);
        codes[at] = (limit.overflows - lost) | 1ull << (ckpt_float_width(limit.src) - 1);  // negative
        std::string from = packed(limit.src, codes), to(bytes_of(limit.dst, codes.size()), '\0');
        ckpt_cast_stats stats = {};
        ckpt_backend_cpu.cast(limit.dst, &to[0], limit.src, from.data(), codes.size(), &stats);
        EXPECT_EQ(stats.n_underflow, lost);
        EXPECT_EQ(stats.has_nonzero, lost == 0);
        expect_like_reference(limit.dst, limit.src, from, codes.size(), 0);
      }
}

TEST(Convert, BackendUsesTheBestLevel) {
  std::vector<uint64_t> codes = interesting_codes(CKPT_F32);
  std::string from = packed(CKPT_F32, codes), a(codes.size(), '\0'), b = a;
  ckpt_cast_stats x = {}, y = {};
  ckpt_backend_cpu.cast(CKPT_F8_E4M3, &a[0], CKPT_F32, from.data(), codes.size(), &x);
  ckpt_backend_reference.cast(CKPT_F8_E4M3, &b[0], CKPT_F32, from.data(), codes.size(), &y);
  EXPECT_EQ(a, b);
  EXPECT_EQ(x.n_overflow, y.n_overflow);
  EXPECT_GT(x.n_overflow, 0u);
}

}  // namespace
