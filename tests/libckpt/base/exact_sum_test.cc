// Sums that do not depend on the order, against long doubles and at the ends of the range.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

extern "C" {
#include "libckpt/base/exact_sum.h"
}

namespace {

double sum_of(const std::vector<double> &values) {
  ckpt_exact_sum sum = {};
  for (double value : values) ckpt_exact_sum_add(&sum, value);
  return ckpt_exact_sum_value(&sum);
}

TEST(ExactSum, IsTheSameInAnyOrder) {
  std::mt19937_64 random(1);
  std::vector<double> values(1000);
  for (double &value : values)
    value = std::ldexp(std::uniform_real_distribution<double>(0.5, 1)(random), static_cast<int>(random() % 120) - 80);
  long double wanted = 0;
  std::sort(values.begin(), values.end());
  for (double value : values) wanted += value;
  const double sum = sum_of(values);
  EXPECT_NEAR(sum, static_cast<double>(wanted), 2e-16 * sum);
  for (int i = 0; i < 5; i++) {
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_EQ(sum_of(values), sum);
    ckpt_exact_sum parts[3] = {};
    for (size_t k = 0; k < values.size(); k++) ckpt_exact_sum_add(&parts[k % 3], values[k]);
    ckpt_exact_sum_join(&parts[0], &parts[1]);
    ckpt_exact_sum_join(&parts[0], &parts[2]);
    EXPECT_EQ(ckpt_exact_sum_value(&parts[0]), sum);
  }
}

TEST(ExactSum, IsExactAndRoundsOnce) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({0, 0}), 0);
  EXPECT_EQ(sum_of({1}), 1);
  EXPECT_EQ(sum_of({0x1p255, 0x1p-256, 0x1p-200}), 0x1p255);
  EXPECT_EQ(sum_of({1, 0x1p-53}), 1);                      // a tie goes to even
  EXPECT_EQ(sum_of({1, 0x1p-53, 0x1p-250}), 1 + 0x1p-52);  // which is none
  EXPECT_EQ(sum_of({0x1p64, 0x1p0, 0x1p-64}), 0x1p64);
  EXPECT_EQ(sum_of({0x1.fffffffffffffp63, 0x1p10}), 0x1p64);  // carries over a word
}

TEST(ExactSum, EndsOfTheRange) {
  EXPECT_EQ(sum_of({0x1p-256}), 0x1p-256);
  EXPECT_EQ(sum_of({0x1p-257, 0x1p-257}), 0);  // each is cut off
  EXPECT_EQ(sum_of({0x1.8p-256}), 0x1p-256);
  EXPECT_EQ(sum_of({0x1p255}), 0x1p255);
  EXPECT_EQ(sum_of({0x1p255, 0x1p255}), HUGE_VAL);
  EXPECT_EQ(sum_of({0x1p256}), HUGE_VAL);
  EXPECT_EQ(sum_of({HUGE_VAL, 1}), HUGE_VAL);
  EXPECT_EQ(sum_of({std::nan("")}), HUGE_VAL);
  EXPECT_EQ(sum_of({5e-324}), 0);
}

}  // namespace
