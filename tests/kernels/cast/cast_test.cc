// The reference casts: against a search for the nearest value, and the rules of docs/casts.md one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/cast/cast_support.h"

namespace {

uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

double value_of(ckpt_dtype dtype, uint64_t code) {
  uint64_t bits = ckpt_float_decode(dtype, code);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint64_t encode(ckpt_dtype dtype, double value, ckpt_cast_stats *stats = nullptr) {
  ckpt_cast_stats ignored = {};
  return ckpt_float_encode(dtype, bits_of(value), stats ? stats : &ignored);
}

uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Casts one code.
uint64_t cast(ckpt_dtype dst, ckpt_dtype src, uint64_t code, ckpt_cast_stats *stats = nullptr) {
  ckpt_cast_stats ignored = {};
  return ckpt_float_encode(dst, ckpt_float_decode(src, code), stats ? stats : &ignored);
}

TEST(Cast, DecodesWhatTheFormatsSay) {
  EXPECT_EQ(value_of(CKPT_F16, 0x0001), std::ldexp(1, -24));
  EXPECT_EQ(value_of(CKPT_F16, 0x7bff), 65504);
  EXPECT_EQ(value_of(CKPT_BF16, 0x8001), -std::ldexp(1, -133));
  EXPECT_EQ(value_of(CKPT_F32, 0x00000003), std::ldexp(3, -149));
  EXPECT_EQ(value_of(CKPT_F8_E4M3, 0x7e), 448);
  EXPECT_EQ(value_of(CKPT_F8_E4M3, 0x01), std::ldexp(1, -9));
  EXPECT_EQ(value_of(CKPT_F8_E5M2, 0x7b), 57344);
  EXPECT_EQ(value_of(CKPT_F8_E4M3FNUZ, 0x7f), 240);
  EXPECT_EQ(value_of(CKPT_F8_E5M2FNUZ, 0x01), std::ldexp(1, -17));
  EXPECT_EQ(value_of(CKPT_F8_E8M0, 0x00), std::ldexp(1, -127));
  EXPECT_EQ(value_of(CKPT_F8_E8M0, 0xfe), std::ldexp(1, 127));
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int i = 0; i < 8; i++) EXPECT_EQ(value_of(CKPT_F4_E2M1, i | 8), -e2m1[i]);
  EXPECT_EQ(value_of(CKPT_F6_E2M3, 0x1f), 7.5);
  EXPECT_EQ(value_of(CKPT_F6_E2M3, 0x01), 0.125);
  EXPECT_EQ(value_of(CKPT_F6_E3M2, 0x1f), 28);
  EXPECT_EQ(value_of(CKPT_F6_E3M2, 0x01), 0.0625);
}

// For each format of at most 16 bits: every value, every midpoint of neighbours and the binary64 beside it.
TEST(Cast, RoundsOnceToTheNearestValueTiesToEven) {
  for (ckpt_dtype dtype : float_dtypes()) {
    if (ckpt_float_width(dtype) > 16 || dtype == CKPT_F8_E8M0) continue;
    std::vector<uint64_t> codes;  // finite magnitudes, ascending
    for (uint64_t code = 0; code < 1u << (ckpt_float_width(dtype) - 1); code++)
      if (std::isfinite(value_of(dtype, code))) codes.push_back(code);
    uint64_t sign = 1u << (ckpt_float_width(dtype) - 1);
    for (size_t i = 0; i < codes.size(); i++) {
      double value = value_of(dtype, codes[i]);
      ASSERT_EQ(encode(dtype, value), codes[i]) << ckpt_dtype_name(dtype);
      if (i == 0) continue;
      ASSERT_EQ(encode(dtype, -value), codes[i] | sign) << ckpt_dtype_name(dtype);
      double below = value_of(dtype, codes[i - 1]), middle = (below + value) / 2;
      ASSERT_LT(below, value);
      ASSERT_EQ(encode(dtype, std::nextafter(middle, 0)), codes[i - 1]) << ckpt_dtype_name(dtype) << " " << middle;
      ASSERT_EQ(encode(dtype, middle), codes[i] % 2 ? codes[i - 1] : codes[i]) << ckpt_dtype_name(dtype) << middle;
      ASSERT_EQ(encode(dtype, std::nextafter(middle, INFINITY)), codes[i]) << ckpt_dtype_name(dtype) << " " << middle;
    }
    EXPECT_EQ(encode(dtype, 4.9e-324), 0u);
  }
}

// From f64 the result is not that of a detour through f32, which is what PyTorch takes.
TEST(Cast, RoundsF64Once) {
  double above_tie = 1 + std::ldexp(1, -8) + std::ldexp(1, -40);
  EXPECT_EQ(encode(CKPT_BF16, above_tie), 0x3f81u);
  EXPECT_EQ(cast(CKPT_BF16, CKPT_F32, encode(CKPT_F32, above_tie)), 0x3f80u) << "the detour rounds twice";
  EXPECT_EQ(encode(CKPT_F16, 1 + std::ldexp(1, -11) + std::ldexp(1, -40)), 0x3c01u);
  EXPECT_EQ(encode(CKPT_F8_E4M3, 1 + std::ldexp(1, -4) + std::ldexp(1, -40)), 0x39u);
}

TEST(Cast, RoundsF64ToF32AsTheProcessorDoes) {
  for (uint64_t code : interesting_codes(CKPT_F64)) {
    double value = value_of(CKPT_F64, code);
    if (std::isnan(value)) continue;
    ASSERT_EQ(cast(CKPT_F32, CKPT_F64, code), bits_of_float((float)value)) << value;
  }
}

struct Range {
  ckpt_dtype dtype;
  double last;             // the greatest magnitude that is no overflow
  uint64_t beyond, minus;  // codes of what is greater, and less than -last
};

TEST(Cast, OverflowsAsEachFormatDoesAndCounts) {
  const Range ranges[] = {
      {CKPT_F32, 0x1.fffffefffffffp127, 0x7f800000, 0xff800000}, {CKPT_F16, 0x1.ffdffffffffffp15, 0x7c00, 0xfc00},
      {CKPT_BF16, 0x1.fefffffffffffp127, 0x7f80, 0xff80},        {CKPT_F8_E4M3, 464, 0x7e, 0xfe},
      {CKPT_F8_E5M2, 0x1.dffffffffffffp15, 0x7c, 0xfc},          {CKPT_F8_E4M3FNUZ, 0x1.effffffffffffp7, 0x80, 0x80},
      {CKPT_F8_E5M2FNUZ, 0x1.dffffffffffffp15, 0x80, 0x80},      {CKPT_F6_E2M3, 0x1.effffffffffffp2, 0x1f, 0x3f},
      {CKPT_F6_E3M2, 0x1.dffffffffffffp4, 0x1f, 0x3f},           {CKPT_F4_E2M1, 0x1.bffffffffffffp2, 0x7, 0xf},
  };
  for (const Range &r : ranges) {
    SCOPED_TRACE(ckpt_dtype_name(r.dtype));
    ckpt_cast_stats stats = {};
    EXPECT_TRUE(std::isfinite(value_of(r.dtype, encode(r.dtype, r.last, &stats))));
    EXPECT_EQ(stats.n_overflow, 0u);
    EXPECT_EQ(encode(r.dtype, std::nextafter(r.last, INFINITY), &stats), r.beyond);
    EXPECT_EQ(encode(r.dtype, -1e300, &stats), r.minus);
    EXPECT_EQ(stats.n_overflow, 2u);
    EXPECT_EQ(stats.largest, 1e300);
    EXPECT_EQ(encode(r.dtype, INFINITY, &stats), r.beyond);
    EXPECT_EQ(encode(r.dtype, -INFINITY, &stats), r.minus);
    bool is_kept = std::isinf(value_of(r.dtype, r.beyond));
    EXPECT_EQ(stats.n_overflow, is_kept ? 2u : 4u) << "an infinity is lost where it becomes a number or NaN";
    EXPECT_EQ(stats.largest, is_kept ? 1e300 : INFINITY);
    EXPECT_EQ(stats.n_underflow, 0u);
  }
}

TEST(Cast, CountsWhatBecameZero) {
  for (const Range &r : {Range{CKPT_F32, 0x1p-150, 1, 0x80000001}, Range{CKPT_F16, 0x1p-25, 1, 0x8001},
                         Range{CKPT_BF16, 0x1p-134, 1, 0x8001}, Range{CKPT_F8_E4M3, 0x1p-10, 1, 0x81},
                         Range{CKPT_F8_E5M2, 0x1p-17, 1, 0x81}, Range{CKPT_F8_E4M3FNUZ, 0x1p-11, 1, 0x81},
                         Range{CKPT_F6_E2M3, 0.0625, 1, 0x21}, Range{CKPT_F4_E2M1, 0.25, 1, 0x9}}) {
    SCOPED_TRACE(ckpt_dtype_name(r.dtype));
    ckpt_cast_stats stats = {};
    EXPECT_EQ(encode(r.dtype, 0, &stats), 0u);
    EXPECT_EQ(value_of(r.dtype, encode(r.dtype, -0.0, &stats)), 0);
    EXPECT_EQ(stats.n_underflow, 0u) << "zero is no loss";
    EXPECT_EQ(value_of(r.dtype, encode(r.dtype, r.last, &stats)), 0);
    EXPECT_EQ(value_of(r.dtype, encode(r.dtype, -r.last, &stats)), 0);
    EXPECT_EQ(value_of(r.dtype, encode(r.dtype, 0x1p-1070, &stats)), 0);
    EXPECT_EQ(stats.n_underflow, 3u);
    EXPECT_FALSE(stats.has_nonzero);
    EXPECT_EQ(encode(r.dtype, std::nextafter(r.last, 1), &stats), r.beyond);
    EXPECT_TRUE(stats.has_nonzero);
    EXPECT_EQ(encode(r.dtype, std::nextafter(-r.last, -1), &stats), r.minus);
    EXPECT_EQ(stats.n_underflow, 3u);
  }
}

TEST(Cast, PowersOfTwo) {
  ckpt_cast_stats stats = {};
  EXPECT_EQ(encode(CKPT_F8_E8M0, 0, &stats), 0x00u);
  EXPECT_EQ(encode(CKPT_F8_E8M0, -0.0, &stats), 0x00u);
  EXPECT_EQ(encode(CKPT_F8_E8M0, 1, &stats), 0x7fu);
  EXPECT_EQ(encode(CKPT_F8_E8M0, std::nextafter(3, 0), &stats), 0x80u);
  EXPECT_EQ(encode(CKPT_F8_E8M0, 3, &stats), 0x81u);
  EXPECT_EQ(encode(CKPT_F8_E8M0, 0x1.7ffffffffffffp127, &stats), 0xfeu);
  EXPECT_EQ(stats.n_overflow, 0u);
  EXPECT_EQ(encode(CKPT_F8_E8M0, 0x1.8p127, &stats), 0xffu);
  EXPECT_EQ(encode(CKPT_F8_E8M0, -2, &stats), 0x80u);
  EXPECT_EQ(stats.n_overflow, 2u) << "a lost sign is out of range too";
}

TEST(Cast, NaN) {
  EXPECT_EQ(cast(CKPT_F16, CKPT_F32, 0xff812345), 0xfe09u) << "sign and top of the payload, quiet";
  EXPECT_EQ(cast(CKPT_F32, CKPT_F16, 0x7c01), 0x7fc02000u);
  EXPECT_EQ(cast(CKPT_F64, CKPT_F32, 0x7f800001), 0x7ff8000020000000u);
  EXPECT_EQ(cast(CKPT_F32, CKPT_F64, 0xfff0000000000001), 0xffc00000u);
  EXPECT_EQ(cast(CKPT_F32, CKPT_BF16, 0x7f81), 0x7f810000u) << "as stored";
  EXPECT_EQ(cast(CKPT_BF16, CKPT_F32, 0xffffffff), 0x7fc0u) << "one NaN only";
  EXPECT_EQ(cast(CKPT_F8_E4M3, CKPT_F32, 0xffc00000), 0xffu);
  EXPECT_EQ(cast(CKPT_F8_E5M2, CKPT_F16, 0x7e00), 0x7fu);
  EXPECT_EQ(cast(CKPT_F8_E4M3FNUZ, CKPT_BF16, 0xffc0), 0x80u);
  EXPECT_EQ(cast(CKPT_F8_E8M0, CKPT_BF16, 0xffc0), 0xffu);
  EXPECT_EQ(cast(CKPT_F32, CKPT_F8_E8M0, 0xff), 0x7f800001u);
  ckpt_cast_stats stats = {};
  EXPECT_EQ(cast(CKPT_F4_E2M1, CKPT_F32, 0xffc00000, &stats), 0x7u);
  EXPECT_EQ(cast(CKPT_F6_E2M3, CKPT_F32, 0x7fc00000, &stats), 0x1fu);
  EXPECT_EQ(stats.n_nan_lost, 2u);
  EXPECT_EQ(stats.n_overflow, 0u);
}

TEST(Cast, PacksTheFirstElementLowest) {
  ckpt_cast_stats stats = {};
  const float values[] = {0.5f, -6, 1, 0};
  uint8_t f4[3] = {0xaa, 0xaa, 0xaa}, f6[4] = {0xaa, 0xaa, 0xaa, 0xaa};
  ckpt_backend_reference.cast(CKPT_F4_E2M1, f4, CKPT_F32, values, 4, &stats);
  EXPECT_EQ(f4[0], 0xf1);
  EXPECT_EQ(f4[1], 0x02);
  EXPECT_EQ(f4[2], 0xaa);
  ckpt_backend_reference.cast(CKPT_F6_E2M3, f6, CKPT_F4_E2M1, f4, 4, &stats); /* codes 04 3c 08 00 */
  EXPECT_EQ(f6[0] | f6[1] << 8 | f6[2] << 16, 0x04 | 0x3c << 6 | 0x08 << 12);
  EXPECT_EQ(f6[3], 0xaa);
}

TEST(Cast, OnlyFloats) {
  for (const ckpt_backend *backend : {&ckpt_backend_reference, &ckpt_backend_cpu}) {
    EXPECT_TRUE(backend->can_cast(CKPT_F6_E3M2, CKPT_F64));
    for (ckpt_dtype dtype : {CKPT_DTYPE_NONE, CKPT_BOOL, CKPT_I8, CKPT_U64, CKPT_C64}) {
      EXPECT_FALSE(backend->can_cast(dtype, CKPT_F32));
      EXPECT_FALSE(backend->can_cast(CKPT_F32, dtype));
      EXPECT_FALSE(backend->can_cast(dtype, dtype));
    }
  }
}

}  // namespace
