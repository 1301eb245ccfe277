// Casts against PyTorch: all 2^16 f16 and bf16 and 2^8 8-bit codes to every target, and edges of f32 and f64.
// tests/data/casts/make_casts.py writes the files and says what is in them.
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/kernels/cast/cast_support.h"

namespace {

const ckpt_dtype kTargets[] = {CKPT_F64,     CKPT_F32,     CKPT_F16,         CKPT_BF16,       CKPT_F8_E4M3,
                               CKPT_F8_E5M2, CKPT_F8_E8M0, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ};

std::string read_gz(const std::string &path) {
  std::string data;
  gzFile file = gzopen(path.c_str(), "rb");
  char buffer[1 << 16];
  for (int n; file && (n = gzread(file, buffer, sizeof buffer)) > 0;) data.append(buffer, n);
  if (file) gzclose(file);
  return data;
}

class Golden : public testing::TestWithParam<ckpt_dtype> {
 protected:
  // The next n elements of dtype, from planes of bytes to elements.
  std::string take(ckpt_dtype dtype, size_t n) {
    size_t width = ckpt_float_width(dtype) / 8;
    std::string elements(n * width, '\0');
    for (size_t i = 0; i < n * width; i++) elements[i % n * width + i / n] = data_.at(at_ + i);
    at_ += n * width;
    return elements;
  }

  void expect_equal(const char *who, ckpt_dtype dst, ckpt_dtype src, const std::string &from, const std::string &got,
                    const std::string &want, size_t n) {
    if (got == want) return;
    for (size_t i = 0; i < n; i++)
      if (ckpt_float_load(dst, got.data(), i) != ckpt_float_load(dst, want.data(), i)) {
        ADD_FAILURE() << who << ": " << ckpt_dtype_name(src) << " 0x" << std::hex
                      << ckpt_float_load(src, from.data(), i) << " -> " << ckpt_dtype_name(dst) << " 0x"
                      << ckpt_float_load(dst, got.data(), i) << ", PyTorch 0x" << ckpt_float_load(dst, want.data(), i);
        return;
      }
  }

  std::string data_;
  size_t at_ = 0;
};

TEST_P(Golden, EqualsPyTorch) {
  ckpt_dtype src = GetParam();
  data_ = read_gz(std::string(CKPT_TESTS_DIR "/data/casts/") + ckpt_dtype_name(src) + ".gz");
  size_t row = 0;
  for (ckpt_dtype dst : kTargets)
    if (dst == src || src != CKPT_F64 || dst == CKPT_F32) row += ckpt_float_width(dst) / 8;
  size_t n = data_.size() / row;
  ASSERT_GE(n, 256u);
  std::string from = take(src, n);
  for (ckpt_dtype dst : kTargets) {
    if (dst == src || (src == CKPT_F64 && dst != CKPT_F32)) continue;
    std::string want = take(dst, n), got(want.size(), '\0');
    ckpt_cast_stats stats = {};
    ckpt_backend_reference.cast(dst, &got[0], src, from.data(), n, &stats);
    expect_equal("reference", dst, src, from, got, want, n);
    for (const ckpt_convert_level *level : levels()) {
      got.assign(want.size(), '\0');
      ckpt_convert_cast(level, dst, &got[0], src, from.data(), n, &stats);
      expect_equal(level->name, dst, src, from, got, want, n);
    }
  }
  EXPECT_EQ(at_, data_.size());
}

INSTANTIATE_TEST_SUITE_P(Sources, Golden, testing::ValuesIn(kTargets),
                         [](const auto &source) { return std::string(ckpt_dtype_name(source.param)); });

}  // namespace
