// Products of f64 matrices: the reference against sums in order, and every level of the processor against it, bit for
// bit, whatever the shape and the strides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
#include "kernels/cpu/product/product.h"
}

namespace {

std::vector<double> Values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> some(-1, 1);
  std::vector<double> values(n);
  for (double &value : values) value = some(generator);
  return values;
}

struct Shape {
  size_t m, n, k;
  bool is_transposed;
};

class Product : public testing::TestWithParam<Shape> {
 protected:
  // c's rows lie 3 apart, with what must not change between them.
  std::vector<double> run(void (*product)(const ckpt_product *)) {
    const Shape s = GetParam();
    const std::vector<double> a = Values(s.m * s.k, 1), b = Values(s.k * s.n, 2);
    std::vector<double> c = Values(s.m * (s.n + 3), 3);
    ckpt_product p = {};
    p.c = c.data();
    p.a = a.data();
    p.b = b.data();
    p.m = s.m;
    p.n = s.n;
    p.k = s.k;
    p.c_row = s.n + 3;
    p.a_row = s.is_transposed ? 1 : s.k;
    p.a_column = s.is_transposed ? s.m : 1;
    p.b_row = s.n;
    product(&p);
    return c;
  }
};

TEST_P(Product, SumsInOrder) {
  const Shape s = GetParam();
  const std::vector<double> a = Values(s.m * s.k, 1), b = Values(s.k * s.n, 2), c = run(ckpt_product_reference);
  std::vector<double> wanted = Values(s.m * (s.n + 3), 3);
  for (size_t i = 0; i < s.m; i++)
    for (size_t j = 0; j < s.n; j++)
      for (size_t k = 0; k < s.k; k++) {
        double &sum = wanted[i * (s.n + 3) + j];
        sum = std::fma(a[s.is_transposed ? k * s.m + i : i * s.k + k], b[k * s.n + j], sum);
      }
  EXPECT_EQ(memcmp(c.data(), wanted.data(), 8 * c.size()), 0);
}

TEST_P(Product, IsTheSameAtEveryLevel) {
  const std::vector<double> wanted = run(ckpt_product_reference);
  const ckpt_product_level *level;
  for (size_t i = 0; (level = ckpt_product_level_at(i)) != nullptr; i++) {
    const std::vector<double> c = run(level->run);
    EXPECT_EQ(memcmp(c.data(), wanted.data(), 8 * c.size()), 0) << level->name;
  }
  const std::vector<double> c = run(ckpt_product_cpu);
  EXPECT_EQ(memcmp(c.data(), wanted.data(), 8 * c.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Product,
                         testing::Values(Shape{1, 1, 1, false}, Shape{3, 5, 7, false}, Shape{4, 12, 128, false},
                                         Shape{12, 16, 129, false}, Shape{125, 17, 300, false},
                                         Shape{125, 17, 300, true}, Shape{7, 48, 2, true}, Shape{241, 31, 128, true},
                                         Shape{0, 4, 4, false}, Shape{4, 0, 4, false}, Shape{4, 4, 0, false}));

}  // namespace
