// Low-rank updates against sums in double: values are small multiples of 1/8, so that f32 holds every sum exactly.
#include <cmath>

#include "tests/libckpt/run/run_testing.h"

extern "C" {
#include "libckpt/plan/ops/lora.h"
}

namespace {

std::vector<double> values_of(const Array &array) {
  std::vector<double> out;
  for (size_t i = 0; i + 4 <= array.bytes.size(); i += 4) {
    float value;
    memcpy(&value, &array.bytes[i], sizeof value);
    out.push_back(static_cast<double>(value));
  }
  return out;
}

std::vector<double> values_of(const std::vector<uint8_t> &bytes) {
  Array array;
  array.bytes = bytes;
  return values_of(array);
}

class Lora : public Run {
 protected:
  ckpt_expr *lora(ckpt_expr *base, const std::vector<ckpt_lora_term> &terms, ckpt_expr *magnitudes = nullptr) {
    ckpt_expr *out = nullptr;
    EXPECT_EQ(ckpt_expr_lora_in(&out, &plan_->arena, base, terms.data(), static_cast<uint32_t>(terms.size()),
                                magnitudes, CKPT_F32, &err_),
              CKPT_OK)
        << text_of(err_);
    return out;
  }
  ckpt_expr *permute(ckpt_expr *x, std::vector<uint32_t> order) {
    EXPECT_EQ(ckpt_expr_permute(&x, plan_, x, order.data(), &err_), CKPT_OK);
    return x;
  }
  ckpt_expr *reshape(ckpt_expr *x, const Shape &shape) {
    EXPECT_EQ(ckpt_expr_reshape(&x, plan_, x, static_cast<uint32_t>(shape.size()), shape.data(), &err_), CKPT_OK);
    return x;
  }
};

void add_product(std::vector<double> *w, const std::vector<double> &b, const std::vector<double> &a, size_t m, size_t n,
                 double scale) {
  const size_t r = b.size() / m;
  for (size_t i = 0; i < m; i++)
    for (size_t k = 0; k < r; k++)
      for (size_t j = 0; j < n; j++) (*w)[i * n + j] += scale * b[i * r + k] * a[k * n + j];
}

TEST_F(Lora, AddsTheProductsOfItsTerms) {
  const size_t m = 37, n = 531;  // more than a stretch of columns, and no multiple of it
  auto wanted = values_of(plain("w", CKPT_F32, {m, n}));
  add_product(&wanted, values_of(plain("b1", CKPT_F32, {m, 4})), values_of(plain("a1", CKPT_F32, {4, n})), m, n, 2);
  add_product(&wanted, values_of(plain("b2", CKPT_F32, {m, 2})), values_of(plain("a2", CKPT_F32, {2, n})), m, n, -0.5);
  open();
  for (uint32_t n_threads : {1u, 3u}) {
    ckpt_plan_free(plan_);
    sinks_.clear();
    ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
    uint32_t sink = output();
    add(sink, "y", lora(read("w"), {{read("b1"), read("a1"), 2}, {read("b2"), read("a2"), -0.5f}}));
    run_well(options(0, n_threads));
    EXPECT_EQ(values_of(written(sink, "y")), wanted);
  }
}

// GPT-2's Conv1D and embeddings store the product transposed: the factors swap their roles.
TEST_F(Lora, TransposedFactorsGiveTheTransposedProduct) {
  const size_t m = 40, n = 24;
  auto w = values_of(plain("w", CKPT_F32, {n, m})), b = values_of(plain("b", CKPT_F32, {m, 3})),
       a = values_of(plain("a", CKPT_F32, {3, n}));
  for (size_t i = 0; i < m; i++)
    for (size_t k = 0; k < 3; k++)
      for (size_t j = 0; j < n; j++) w[j * m + i] += b[i * 3 + k] * a[k * n + j];
  open();
  uint32_t sink = output();
  add(sink, "y", lora(read("w"), {{permute(read("a"), {1, 0}), permute(read("b"), {1, 0}), 1}}));
  run_well(options());
  EXPECT_EQ(values_of(written(sink, "y")), w);
}

// Rows of the result, permuted, cut and stacked as a dialect does: the structure goes down to the base and to the
// factor of the output, so that a matrix larger than the workspace passes.
TEST_F(Lora, RowsMoveThroughItInBoundedMemory) {
  const size_t heads = 8, half = 64, m = heads * 2 * half, n = 4096, r = 8;  // 16 MiB
  auto rows = values_of(plain("w", CKPT_F32, {m, n}));
  add_product(&rows, values_of(plain("b", CKPT_F32, {m, r})), values_of(plain("a", CKPT_F32, {r, n})), m, n, 0.25);
  open();
  uint32_t sink = output();
  ckpt_expr *merged = lora(read("w"), {{read("b"), read("a"), 0.25f}});
  ckpt_expr *y = permute(reshape(merged, {heads, 2, half, n}), {0, 2, 1, 3});
  add(sink, "permuted", reshape(y, {m, n}));
  add(sink, "part", slice(merged, 0, 5, 3));
  run_well(options(8));
  auto permuted = values_of(written(sink, "permuted")), part = values_of(written(sink, "part"));
  ASSERT_EQ(permuted.size(), rows.size());
  size_t n_wrong = 0;
  for (size_t h = 0; h < heads; h++)
    for (size_t i = 0; i < half; i++)
      for (size_t s = 0; s < 2; s++)
        n_wrong += !std::equal(&permuted[((h * half + i) * 2 + s) * n], &permuted[((h * half + i) * 2 + s + 1) * n - 1],
                               &rows[((h * 2 + s) * half + i) * n]);
  EXPECT_EQ(n_wrong, 0u);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), rows.begin() + 5 * n));
}

TEST_F(Lora, MagnitudesAreTheNormsOfTheRows) {
  const size_t m = 11, n = 300;
  auto wanted = values_of(plain("w", CKPT_F32, {m, n}));
  add_product(&wanted, values_of(plain("b", CKPT_F32, {m, 4})), values_of(plain("a", CKPT_F32, {4, n})), m, n, 1);
  auto magnitudes = values_of(plain("m", CKPT_F32, {m}));
  open();
  uint32_t sink = output();
  add(sink, "y", lora(read("w"), {{read("b"), read("a"), 1}}, read("m")));
  run_well(options());
  auto got = values_of(written(sink, "y"));
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < m; i++) {
    double squares = 0;
    for (size_t j = 0; j < n; j++) squares += wanted[i * n + j] * wanted[i * n + j];
    for (size_t j = 0; j < n; j++) {
      double value = wanted[i * n + j] * magnitudes[i] / std::sqrt(squares);
      ASSERT_NEAR(got[i * n + j], value, std::fabs(value) * 3e-7) << i << " " << j;
    }
  }
}

float round_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&x, &bits, 4);
  return x;
}

// What an update did comes of the same pass, against sums in f64, and is the same to the bit whatever the tiles.
TEST_F(Lora, SaysWhatAnUpdateDid) {
  const size_t m = 2048, n = 512, r = 2;  // 4 MiB
  const auto w = values_of(plain("w", CKPT_F32, {m, n}));
  auto wanted = w;
  add_product(&wanted, values_of(plain("b", CKPT_F32, {m, r})), values_of(plain("a", CKPT_F32, {r, n})), m, n,
              0.0009765625);
  double added = 0, base = 0;
  uint64_t n_same = 0, n_same_f32 = 0;
  for (size_t i = 0; i < w.size(); i++) {
    added += (wanted[i] - w[i]) * (wanted[i] - w[i]);
    base += w[i] * w[i];
    n_same += round_to_bf16(static_cast<float>(wanted[i])) == static_cast<float>(w[i]);
    n_same_f32 += wanted[i] == w[i];
  }
  ASSERT_NE(n_same, n_same_f32);
  open();
  ckpt_update_stats first = {};
  for (uint64_t memory : {uint64_t{0}, uint64_t{6}})
    for (uint32_t n_threads : {1u, 3u}) {
      ckpt_plan_free(plan_);
      sinks_.clear();
      ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
      plan_->wants_updates = plan_->counts_same = true;
      const uint64_t n_before = bytes_read();
      ckpt_expr *merged = nullptr;
      const ckpt_lora_term term = {read("b"), read("a"), 0.0009765625f};
      ASSERT_EQ(ckpt_expr_lora_in(&merged, &plan_->arena, read("w"), &term, 1, nullptr, CKPT_BF16, &err_), CKPT_OK);
      add(output(), "y", merged);
      ckpt_update_stats update = {};
      plan_->rows[0].update = &update;
      run_well(options(memory, n_threads));
      EXPECT_NEAR(ckpt_exact_sum_value(&update.added), added, 1e-11 * added);
      EXPECT_NEAR(ckpt_exact_sum_value(&update.base), base, 1e-11 * base);
      EXPECT_EQ(update.n, m * n);
      EXPECT_EQ(update.n_same, n_same);
      EXPECT_EQ(update.n_same_f32, n_same_f32);
      EXPECT_LE(bytes_read() - n_before, 4 * (m * n + n_threads * 8 * (m * r + r * n)));
      if (first.n == 0) first = update;
      EXPECT_EQ(memcmp(&first, &update, sizeof update), 0) << memory << " " << n_threads;
    }
}

TEST_F(Lora, RefusesWhatDoesNotFit) {
  plain("w", CKPT_F32, {4, 6}), plain("b", CKPT_F32, {4, 2}), plain("a", CKPT_F32, {2, 6});
  plain("long", CKPT_F32, {3, 6}), plain("vector", CKPT_F32, {6});
  open();
  ckpt_expr *out = nullptr;
  auto status = [&](ckpt_expr *base, ckpt_lora_term term, uint32_t n_terms, ckpt_expr *magnitudes) {
    std::vector<ckpt_lora_term> terms(n_terms, term);
    err_ = {};
    return ckpt_expr_lora_in(&out, &plan_->arena, base, terms.data(), n_terms, magnitudes, CKPT_F32, &err_);
  };
  EXPECT_EQ(status(read("w"), {read("b"), read("a"), 1}, 15, nullptr), CKPT_OK);
  EXPECT_EQ(status(read("w"), {read("b"), read("a"), 1}, 16, nullptr), CKPT_ELIMIT);
  EXPECT_EQ(status(read("w"), {read("b"), read("long"), 1}, 1, nullptr), CKPT_EINVAL);
  EXPECT_EQ(status(read("w"), {read("a"), read("b"), 1}, 1, nullptr), CKPT_EINVAL);
  EXPECT_EQ(status(read("w"), {read("vector"), read("a"), 1}, 1, nullptr), CKPT_EINVAL);
  EXPECT_EQ(status(read("vector"), {read("b"), read("a"), 1}, 1, nullptr), CKPT_EINVAL);
  EXPECT_EQ(status(read("w"), {read("b"), read("a"), 1}, 1, read("vector")), CKPT_EINVAL);
}

}  // namespace
