// cast_support.h - what the tests of casts share: the list of floating dtypes, and arrays of codes.
#ifndef CKPT_TESTS_KERNELS_CAST_SUPPORT_H
#define CKPT_TESTS_KERNELS_CAST_SUPPORT_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "kernels/cpu/cast/cast.h"
#include "kernels/ref/cast/float_format.h"
#include "libckpt/base/backend.h"
#include "libckpt/base/dtype.h"
}

inline std::vector<ckpt_dtype> float_dtypes() {
  std::vector<ckpt_dtype> dtypes;
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (ckpt_dtype_is_float((ckpt_dtype)i)) dtypes.push_back((ckpt_dtype)i);
  return dtypes;
}

inline std::vector<const ckpt_convert_level *> levels() {
  std::vector<const ckpt_convert_level *> all;
  for (size_t i = 0; ckpt_convert_level_at(i); i++) all.push_back(ckpt_convert_level_at(i));
  return all;
}

inline size_t bytes_of(ckpt_dtype dtype, size_t n_elements) {
  uint64_t n_bytes = 0;
  EXPECT_TRUE(ckpt_dtype_bytes(dtype, n_elements, &n_bytes));
  return n_bytes;
}

// Codes as packed elements, and back.
inline std::string packed(ckpt_dtype dtype, const std::vector<uint64_t> &codes) {
  std::string bytes(bytes_of(dtype, codes.size()), '\0');
  for (size_t i = 0; i < codes.size(); i++) ckpt_float_store(dtype, &bytes[0], i, codes[i]);
  return bytes;
}

// Every code of a dtype of at most 16 bits; for wider ones every exponent (f64: those near the range of the others)
// with mantissas at, just below and just above each place where some target ties, and beside all leading four bits.
inline std::vector<uint64_t> interesting_codes(ckpt_dtype dtype) {
  std::vector<uint64_t> codes;
  uint32_t width = ckpt_float_width(dtype);
  if (width <= 16) {
    for (uint64_t code = 0; code < (1u << width); code++) codes.push_back(code);
    return codes;
  }
  uint32_t n_mantissa = width == 32 ? 23 : 52, n_exponents = width == 32 ? 256 : 2048;
  for (uint64_t exponent = 0; exponent < n_exponents; exponent++) {
    if (width == 64 && exponent > 2 && exponent < 2045 && (exponent < 1023 - 155 || exponent > 1023 + 130)) continue;
    std::vector<uint64_t> mantissas;
    for (uint32_t k = 0; k < n_mantissa; k++)
      for (uint64_t mantissa :
           {1ull << k, (1ull << k) - 1, (1ull << k) + 1, 3ull << k, (3ull << k) - 1, ~0ull << k, ~(1ull << k)})
        mantissas.push_back(mantissa & ((1ull << n_mantissa) - 1));
    for (uint64_t lead = 0; lead < 16; lead++)
      for (uint64_t beside : {-1, 0, 1})
        mantissas.push_back(((lead << (n_mantissa - 4)) + beside) & ((1ull << n_mantissa) - 1));
    for (uint64_t mantissa : mantissas)
      for (uint64_t sign : {0, 1}) codes.push_back(sign << (width - 1) | exponent << n_mantissa | mantissa);
  }
  return codes;
}

#endif
