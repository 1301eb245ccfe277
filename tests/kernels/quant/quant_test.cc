// Block types: the golden hashes of ggml's own C (tests/data/quant.tsv, made by quant_against_ggml.sh), every level of
// the processor against the reference, and scales that do not stay finite.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "kernels/cpu/quant/quant.h"
#include "kernels/ref/quant/quant.h"
#include "libckpt/base/dtype.h"
}
#include "tests/build.h"
#include "tests/kernels/quant/quant_inputs.h"

namespace {

size_t row_bytes(ckpt_dtype dtype) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  return QUANT_ROW / row->block_elements * row->block_bytes;
}

std::string sha256(const std::string &bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size(), digest);
  std::string text;
  for (unsigned char byte : digest) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

std::vector<float> input(int kind) {
  std::vector<float> x(QUANT_VALUES);
  quant_fill(kind, x.data());
  return x;
}

// Blocks of each input, at a level (NULL: the reference).
std::vector<std::string> quantized(const ckpt_quant_level *level, ckpt_dtype dtype, const float *importance) {
  std::vector<std::string> all;
  for (int kind = 0; kind < QUANT_N_INPUTS; kind++) {
    std::string blocks(row_bytes(dtype) * QUANT_ROWS, '\xee');
    std::vector<float> x = input(kind);
    if (level)
      ckpt_quant_at(level, dtype, &blocks[0], x.data(), QUANT_ROWS, QUANT_ROW, importance);
    else
      ckpt_backend_reference.quantize(dtype, &blocks[0], x.data(), QUANT_ROWS, QUANT_ROW, importance);
    all.push_back(blocks);
  }
  return all;
}

std::vector<ckpt_dtype> block_types() {
  std::vector<ckpt_dtype> types;
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (ckpt_dtype_is_block(static_cast<ckpt_dtype>(i))) types.push_back(static_cast<ckpt_dtype>(i));
  return types;
}

class Quant : public testing::TestWithParam<ckpt_dtype> {};
std::string name_of(const testing::TestParamInfo<ckpt_dtype> &info) { return ckpt_dtype_name(info.param); }
INSTANTIATE_TEST_SUITE_P(Types, Quant, testing::ValuesIn(block_types()), name_of);

TEST_P(Quant, GivesTheBytesAndValuesOfGgml) {
  ckpt_dtype dtype = GetParam();
  std::ifstream file(CKPT_TESTS_DIR "/data/quant.tsv");
  std::string line;
  size_t n_lines = 0;
  while (std::getline(file, line)) {
    std::string name, importance_name, blocks_hash, values_hash;
    std::istringstream(line) >> name >> importance_name >> blocks_hash >> values_hash;
    if (name != ckpt_dtype_name(dtype)) continue;
    n_lines++;
    int k = 0;
    while (importance_name != quant_importances[k]) ASSERT_LT(++k, QUANT_N_IMPORTANCES);
    std::vector<float> importance(QUANT_ROW), values(QUANT_VALUES);
    bool has_importance = quant_importance(k, importance.data());
    std::string all_blocks, all_values;
    for (const std::string &blocks : quantized(nullptr, dtype, has_importance ? importance.data() : nullptr)) {
      ckpt_backend_reference.dequantize(dtype, values.data(), blocks.data(), QUANT_VALUES);
      all_blocks += blocks;
      all_values.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
    }
    EXPECT_EQ(sha256(all_blocks), blocks_hash) << importance_name;
    EXPECT_EQ(sha256(all_values), values_hash) << importance_name;
  }
  size_t n_importances = ckpt_can_quantize(dtype, false)  ? QUANT_N_IMPORTANCES
                         : ckpt_can_quantize(dtype, true) ? QUANT_N_IMPORTANCES - 1
                                                          : 0;
  EXPECT_EQ(n_lines, n_importances);
}

// The golden hashes say whose they are: those of the ggml that dtypes are of.
TEST(QuantGoldens, NameTheirGgml) {
  std::string line, row;
  ASSERT_TRUE(std::getline(std::ifstream(CKPT_TESTS_DIR "/data/quant.tsv"), line));
  const size_t at = line.find("commit ");
  ASSERT_EQ(line.rfind("# ggml ", 0), 0u) << line;
  ASSERT_NE(at, std::string::npos) << line;
  std::ifstream dtypes(CKPT_TESTS_DIR "/../libckpt/base/dtype.def");
  bool is_there = false;
  while (std::getline(dtypes, row)) is_there = is_there || row.find(line.substr(at, 7 + 40)) != std::string::npos;
  EXPECT_TRUE(is_there) << line;
}

TEST_P(Quant, IsTheSameAtEveryLevel) {
  ckpt_dtype dtype = GetParam();
  for (size_t i = 1; ckpt_quant_level_at(i) != nullptr; i++) {
    const ckpt_quant_level *level = ckpt_quant_level_at(i);
    for (int k = 0; k < (is_thorough() ? QUANT_N_IMPORTANCES : 2); k++) {
      std::vector<float> importance(QUANT_ROW);
      const float *weights = quant_importance(k, importance.data()) ? importance.data() : nullptr;
      if (!ckpt_can_quantize(dtype, weights != nullptr)) continue;
      if (level->types[dtype].quantize == nullptr) continue;
      std::vector<std::string> want = quantized(nullptr, dtype, weights), got = quantized(level, dtype, weights);
      for (int kind = 0; kind < QUANT_N_INPUTS; kind++)
        EXPECT_TRUE(got[kind] == want[kind]) << level->name << " " << quant_inputs[kind] << " " << quant_importances[k];
    }
    if (level->types[dtype].dequantize == nullptr) continue;
    uint64_t state = 5;
    std::string blocks(row_bytes(dtype), '\0');
    for (int round = 0; round < (is_thorough() ? 400 : 40); round++) {
      std::vector<float> want(QUANT_ROW), got(QUANT_ROW);
      for (char &byte : blocks) byte = static_cast<char>(quant_bits(&state) >> 56);
      ckpt_backend_reference.dequantize(dtype, want.data(), blocks.data(), QUANT_ROW);
      ckpt_dequant_at(level, dtype, got.data(), blocks.data(), QUANT_ROW);
      for (size_t j = 0; j < QUANT_ROW; j++) /* a NaN may have any bits: of two that are added either may stay */
        ASSERT_TRUE(ckpt_float_bits(got[j]) == ckpt_float_bits(want[j]) || (std::isnan(want[j]) && std::isnan(got[j])))
            << level->name << " " << j << ": " << got[j] << ", not " << want[j];
    }
  }
}

// Rows that do not fill the lanes.
TEST_P(Quant, RowsOfAnyLength) {
  ckpt_dtype dtype = GetParam();
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  std::vector<float> importance(QUANT_ROW), x = input(2);
  quant_importance(1, importance.data());
  if (!ckpt_can_quantize(dtype, true)) return;
  for (size_t i = 1; ckpt_quant_level_at(i) != nullptr; i++)
    for (size_t n = row->block_elements; n <= QUANT_ROW; n += row->block_elements * (is_thorough() ? 1 : 3))
      for (const float *weights :
           {static_cast<const float *>(nullptr), static_cast<const float *>(importance.data())}) {
        if (!ckpt_can_quantize(dtype, weights != nullptr)) continue;
        std::string want(n / row->block_elements * row->block_bytes + 1, '\x7e'), got = want;
        ckpt_backend_reference.quantize(dtype, &want[0], x.data(), 1, n, weights);
        ckpt_quant_at(ckpt_quant_level_at(i), dtype, &got[0], x.data(), 1, n, weights);
        EXPECT_TRUE(got == want) << ckpt_quant_level_at(i)->name << " " << n;
      }
}

// Rows longer than what is searched together, of values that no row of the golden inputs has.
TEST_P(Quant, LongRows) {
  enum { kLong = 2 * 4096 + 256 };
  const int n_rounds = is_thorough() ? 6 : 2;
  ckpt_dtype dtype = GetParam();
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  if (!ckpt_can_quantize(dtype, true)) return;
  std::vector<float> x(kLong), importance(kLong);
  uint64_t state = 77;
  for (int round = 0; round < n_rounds; round++) {
    for (int i = 0; i < kLong; i++) {
      int kind = round < 3 ? round : static_cast<int>(quant_bits(&state) % QUANT_N_INPUTS);
      x[i] = kind == 14 ? 0 : quant_value(kind, i, &state);
      importance[i] = round == 1 ? 1 : quant_unit(&state);
    }
    for (int k = ckpt_can_quantize(dtype, false) ? 0 : 1; k < 2; k++) {
      const float *weights = k == 0 ? nullptr : importance.data();
      std::string want(kLong / row->block_elements * row->block_bytes, '\x7e'), got = want;
      ckpt_backend_reference.quantize(dtype, &want[0], x.data(), 1, kLong, weights);
      for (size_t i = 1; ckpt_quant_level_at(i) != nullptr; i++) {
        ckpt_quant_at(ckpt_quant_level_at(i), dtype, &got[0], x.data(), 1, kLong, weights);
        EXPECT_TRUE(got == want) << ckpt_quant_level_at(i)->name << " " << round << " " << k;
      }
    }
  }
}

// A row alone gives what it gives among others, whatever block follows it.
TEST_P(Quant, DependsOnItsRowOnly) {
  ckpt_dtype dtype = GetParam();
  std::vector<float> importance(QUANT_ROW), x = input(0);
  quant_importance(1, importance.data());
  if (!ckpt_can_quantize(dtype, true)) return;
  std::string together(row_bytes(dtype) * QUANT_ROWS, '\0'), alone(row_bytes(dtype), '\0');
  ckpt_backend_cpu.quantize(dtype, &together[0], x.data(), QUANT_ROWS, QUANT_ROW, importance.data());
  for (size_t row = 0; row < QUANT_ROWS; row++) {
    ckpt_backend_cpu.quantize(dtype, &alone[0], x.data() + row * QUANT_ROW, 1, QUANT_ROW, importance.data());
    EXPECT_EQ(alone, together.substr(row * alone.size(), alone.size()));
  }
}

// NVFP4 and the types with 8-bit exponents hold what overflows a binary16.
TEST_P(Quant, SaysWhereAScaleOverflows) {
  ckpt_dtype dtype = GetParam();
  std::vector<float> x(QUANT_ROW, 0.5f), importance(QUANT_ROW, 1);
  std::string blocks(row_bytes(dtype), '\0');
  if (!ckpt_can_quantize(dtype, true)) return;
  for (size_t i = 0; i < 32; i++) x[i + 512] = i % 2 ? 1e10f : -1e10f;
  bool is_wide = dtype == CKPT_MXFP4 || dtype == CKPT_NVFP4;
  EXPECT_EQ(ckpt_backend_reference.quantize(dtype, &blocks[0], x.data(), 1, QUANT_ROW, importance.data()), is_wide);
  EXPECT_EQ(ckpt_backend_cpu.quantize(dtype, &blocks[0], x.data(), 1, QUANT_ROW, importance.data()), is_wide);
  for (size_t i = 0; i < QUANT_ROW; i++) x[i] *= i % 3 == 0 ? 0 : 1e15f;  // squares overflow, and weigh zeros
  bool want = ckpt_backend_reference.quantize(dtype, &blocks[0], x.data(), 1, QUANT_ROW, importance.data());
  for (size_t i = 1; ckpt_quant_level_at(i) != nullptr; i++)
    EXPECT_EQ(ckpt_quant_at(ckpt_quant_level_at(i), dtype, &blocks[0], x.data(), 1, QUANT_ROW, importance.data()), want)
        << ckpt_quant_level_at(i)->name;
}

// ggml's exponent wraps where the largest value is below 2^-125. 255 would be read as something else; under those that
// come before it, down to the smallest subnormal, all codes are those of 0.
TEST(QuantMxfp4, ExponentsThatWrapAreRefused) {
  const std::pair<float, int> exponents[] = {{0x1p-125f, 0},     {0x1.8p-126f, 255}, {0x1p-126f, 255},
                                             {0x1.8p-127f, 254}, {0x1p-127f, 254},   {0x1p-149f, 232}};
  for (const auto &[largest, exponent] : exponents) {
    float x[32] = {0, largest, -largest}, y[32];
    uint8_t block[17];
    EXPECT_EQ(ckpt_backend_reference.quantize(CKPT_MXFP4, block, x, 1, 32, nullptr), exponent != 255) << largest;
    EXPECT_EQ(block[0], exponent) << largest;
    ckpt_backend_reference.dequantize(CKPT_MXFP4, y, block, 32);
    for (size_t i = 0; i < 32 && exponent > 0 && exponent < 255; i++) EXPECT_EQ(y[i], 0) << largest;
  }
}

// What is said to ignore importance does, and nothing else.
TEST_P(Quant, ImportanceIsUsedOrNot) {
  ckpt_dtype dtype = GetParam();
  if (!ckpt_can_quantize(dtype, true)) {
    EXPECT_FALSE(ckpt_uses_importance(dtype));
    return;
  }
  std::vector<float> ramp(QUANT_ROW), even(QUANT_ROW, 1);
  for (size_t i = 0; i < QUANT_ROW; i++) ramp[i] = static_cast<float>(1 + i % 37 * (i % 5));
  EXPECT_EQ(quantized(nullptr, dtype, ramp.data()) != quantized(nullptr, dtype, even.data()),
            ckpt_uses_importance(dtype));
}

TEST(QuantNumbers, HalvesAreThoseOfF16Casts) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    float value = ckpt_f16_value(bits), want;
    uint16_t half = static_cast<uint16_t>(bits);
    ckpt_cast_stats stats = {};
    ckpt_backend_reference.cast(CKPT_F32, &want, CKPT_F16, &half, 1, &stats);
    ASSERT_EQ(memcmp(&value, &want, 4), std::isnan(want) ? memcmp(&value, &want, 4) : 0) << bits;
    for (int step = -1; step <= 1 && !std::isnan(want); step++) {  // around the value, and around the tie above it
      for (uint32_t between : {0u, 0x1000u}) {
        float x = ckpt_float_from_bits(ckpt_float_bits(want) + between + static_cast<uint32_t>(step));
        if (std::isnan(x)) continue;
        ckpt_backend_reference.cast(CKPT_F16, &half, CKPT_F32, &x, 1, &stats);
        ASSERT_EQ(ckpt_f16_bits(x), half) << x;
      }
    }
  }
}

}  // namespace
