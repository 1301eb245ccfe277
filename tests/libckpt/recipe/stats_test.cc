// Statistics of tensors against a plain loop, for every dtype; the same bits for any threads and tiles; one read.
#include <cmath>

#include "tests/libckpt/recipe/prove_testing.h"

extern "C" {
#include "libckpt/recipe/compare/hash.h"
#include "libckpt/recipe/compare/stats.h"
}

namespace {

using prove::Bytes;
using prove::Opened;
using prove::Stored;

ckpt_stats StatsOf(const ckpt_index *index, const char *name, uint32_t n_threads = 2, uint64_t memory = 16 << 20) {
  auto plan = prove::NewPlan();
  const ckpt_stats *stats = nullptr;
  EXPECT_EQ(ckpt_stats_add(plan.get(), index, ckpt_index_find(index, name), &stats, nullptr), CKPT_OK);
  prove::Run(plan.get(), n_threads, memory);
  return *stats;
}

template <typename T>
void Check(const char *dtype, const std::vector<T> &values) {
  Opened file({{"x", dtype, {values.size()}, Bytes(values)}});
  ckpt_stats stats = StatsOf(file.index, "x");
  double min = INFINITY, max = -INFINITY, sum = 0;
  uint64_t n_zero = 0;
  for (T value : values) {
    min = std::fmin(min, static_cast<double>(value));
    max = std::fmax(max, static_cast<double>(value));
    sum += static_cast<double>(value);
    n_zero += value == 0;
  }
  EXPECT_EQ(stats.n, values.size()) << dtype;
  EXPECT_EQ(stats.n_finite, values.size()) << dtype;
  EXPECT_EQ(stats.min, min) << dtype;
  EXPECT_EQ(stats.max, max) << dtype;
  EXPECT_EQ(stats.n_zero, n_zero) << dtype;
  double mean = sum / static_cast<double>(values.size());
  EXPECT_NEAR(stats.mean, mean, std::fabs(mean) * 1e-12 + 1e-9) << dtype;
}

template <typename T>
std::vector<T> Random(size_t n) {
  std::mt19937_64 random(sizeof(T) * 7 + n);
  std::vector<T> values(n);
  for (auto &value : values) value = static_cast<T>(random());
  values[n / 2] = 0;
  return values;
}

TEST(Stats, EveryIntegerDtype) {
  Check("U8", Random<uint8_t>(1000));
  Check("U16", Random<uint16_t>(1000));
  Check("U32", Random<uint32_t>(1000));
  Check("U64", Random<uint64_t>(1000));
  Check("I8", Random<int8_t>(1000));
  Check("I16", Random<int16_t>(1000));
  Check("I32", Random<int32_t>(1000));
  Check("I64", Random<int64_t>(1000));
}

TEST(Stats, FloatsLongerThanABlockAndAPartial) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal(3, 2);
  std::vector<double> values((1 << 16) * 3 + 1025);
  for (auto &value : values) value = normal(random);
  Check("F64", values);
  Check("F32", std::vector<float>(values.begin(), values.end()));
  Opened file({{"x", "F64", {values.size()}, Bytes(values)}});
  ckpt_stats stats = StatsOf(file.index, "x");
  double mean = 0, squares = 0;
  for (double value : values) mean += value / static_cast<double>(values.size());
  for (double value : values) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(ckpt_stats_mean(&stats), mean, 1e-12);
  EXPECT_NEAR(ckpt_stats_std(&stats), std::sqrt(squares / static_cast<double>(values.size())), 1e-10);
}

// What E[x^2] - E[x]^2 gets wrong: a large mean, a constant, an outlier first, values whose sum has no double.
TEST(Stats, MomentsSurviveLargeMeansAndTheEndsOfTheRange) {
  auto moments = [](const std::vector<double> &values) {
    Opened file({{"x", "F64", {values.size()}, Bytes(values)}});
    ckpt_stats stats = StatsOf(file.index, "x");
    return std::make_pair(ckpt_stats_mean(&stats), ckpt_stats_std(&stats));
  };
  std::vector<double> values(200000);
  for (size_t i = 0; i < values.size(); i++) values[i] = 1e4 + (i % 2 == 0 ? 1e-3 : -1e-3);
  EXPECT_NEAR(moments(values).first, 1e4, 1e-9);
  EXPECT_NEAR(moments(values).second, 1e-3, 1e-9);
  EXPECT_EQ(moments(std::vector<double>(100000, 0.1)), std::make_pair(0.1, 0.0));
  values.assign(1000, 1.0);
  values[0] = 1e8;
  EXPECT_NEAR(moments(values).second / (1e8 * std::sqrt(999.0) / 1000), 1, 1e-6);
  EXPECT_NEAR(moments(std::vector<double>(3000, 1e308)).first / 1e308, 1, 1e-12);
  values.assign(2000, 1.5e308);
  for (size_t i = 0; i < values.size(); i += 2) values[i] = -1.5e308;
  EXPECT_NEAR(moments(values).first / 1e308, 0, 1e-12);
  EXPECT_TRUE(std::isnan(moments(values).second));
}

TEST(Stats, TheSameBitsForAnyThreadsAndMemory) {
  std::vector<float> values = std::vector<float>((1 << 20) + 77);
  std::mt19937 random(6);
  for (auto &value : values) value = static_cast<float>(random()) / 1e7f;
  Opened file({{"x", "F32", {values.size()}, Bytes(values)}});
  ckpt_stats first = StatsOf(file.index, "x", 1, 8 << 20);
  for (uint32_t n_threads : {2u, 5u})
    for (uint64_t memory : {UINT64_C(8) << 20, UINT64_C(64) << 20}) {
      ckpt_stats other = StatsOf(file.index, "x", n_threads, memory);
      EXPECT_EQ(memcmp(&first, &other, sizeof first), 0) << n_threads << " " << memory;
    }
}

TEST(Stats, SpecialValues) {
  const float nan = NAN, infinity = INFINITY;
  Opened file({{"special", "F32", {2, 3}, Bytes<float>({nan, infinity, -infinity, 0.0f, -0.0f, 3})},
               {"none", "F32", {1}, Bytes<float>({nan})},
               {"empty", "F32", {0, 4}, ""},
               {"bool", "BOOL", {4}, std::string("\0\1\2\0", 4)},
               {"complex", "C64", {2}, Bytes<float>({3, -4, nan, 0})},
               {"packed", "F4", {4}, "\x10\x8f"}});  // 0 0.5 | -6 -0
  ckpt_stats stats = StatsOf(file.index, "special");
  EXPECT_EQ(stats.n_nan, 1u);
  EXPECT_EQ(stats.n_inf, 2u);
  EXPECT_EQ(stats.n_zero, 2u);
  EXPECT_EQ(ckpt_stats_mean(&stats), 1);
  stats = StatsOf(file.index, "none");
  EXPECT_EQ(stats.n_finite, 0u);
  EXPECT_TRUE(std::isnan(ckpt_stats_mean(&stats)) && std::isnan(ckpt_stats_std(&stats)));
  EXPECT_EQ(StatsOf(file.index, "empty").n, 0u);
  stats = StatsOf(file.index, "bool");
  EXPECT_EQ(stats.mean, 0.5);  // any byte but 0 is true
  stats = StatsOf(file.index, "complex");
  EXPECT_EQ(stats.max, 5);
  EXPECT_EQ(stats.n_nan, 1u);
  stats = StatsOf(file.index, "packed");
  EXPECT_EQ(stats.min, -6);
  EXPECT_EQ(stats.max, 0.5);
  EXPECT_EQ(stats.n_zero, 2u);
}

TEST(Stats, PackedDtypesBeyondOneBlock) {
  Opened file({{"f4", "F4", {5000}, std::string(2499, '\x21') + "\x75"},
               {"f6", "F6_E2M3", {4000}, std::string(2999, '\0') + "\x7c"}});
  ckpt_stats stats = StatsOf(file.index, "f4");
  EXPECT_EQ(stats.max, 6);  // the last one
  EXPECT_NEAR(stats.mean, (2499 * (0.5 + 1) + 3 + 6) / 5000, 1e-15);
  stats = StatsOf(file.index, "f6");
  EXPECT_EQ(stats.n_zero, 3999u);
  EXPECT_EQ(stats.max, 7.5);
}

TEST(Stats, ShareTheReadWithADigest) {
  std::vector<float> values(1 << 18, 1.5f);
  Opened file({{"x", "F32", {512, 512}, Bytes(values)}, {"y", "F32", {512, 512}, Bytes(values)}});
  auto plan = prove::NewPlan();
  const ckpt_stats *stats = nullptr;
  ckpt_hashing hashing = {};
  ASSERT_EQ(ckpt_hashing_start(&hashing, file.index, nullptr, nullptr), CKPT_OK);
  ASSERT_EQ(ckpt_hashing_add(&hashing, plan.get(), 0, 2, nullptr), CKPT_OK);
  for (const char *name : {"x", "y"})
    ASSERT_EQ(ckpt_stats_add(plan.get(), file.index, ckpt_index_find(file.index, name), &stats, nullptr), CKPT_OK);
  uint64_t before = ckpt_source_bytes_read(file.index->source);
  prove::Run(plan.get());
  EXPECT_EQ(ckpt_source_bytes_read(file.index->source) - before, 2 * values.size() * sizeof(float));
  EXPECT_EQ(stats->max, 1.5);
  ckpt_hashing_end(&hashing);
}

}  // namespace
