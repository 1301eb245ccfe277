// Kernels of the tape: every level of this processor equals the reference bit for bit, whatever the shape and the
// parts.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

extern "C" {
#include "kernels/cpu/tape/tape.h"
}

#include "tests/build.h"

namespace {

using Floats = std::vector<float>;
using Launch = std::function<void(ckpt_tape_kernel_id, const void *, size_t n)>;

struct Random {
  explicit Random(uint32_t seed) : engine(seed) {}
  Floats Normal(size_t n, float std = 1) {
    std::normal_distribution<float> normal(0, std);
    Floats out(n);
    for (float &x : out) x = normal(engine);
    return out;
  }
  std::vector<int32_t> Below(size_t n, int32_t limit) {
    std::uniform_int_distribution<int32_t> number(0, limit - 1);
    std::vector<int32_t> out(n);
    for (int32_t &x : out) x = number(engine);
    return out;
  }
  std::mt19937 engine;
};

// Which of two NaNs an instruction gives is the compiler's affair: one is as good as another.
bool SameBits(const Floats &a, const Floats &b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); i++)
    same = (std::isnan(a[i]) && std::isnan(b[i])) || memcmp(&a[i], &b[i], sizeof(float)) == 0;
  return same;
}

// What a case computes with some kernels, cut into parts in some way: all of its outputs, one after the other.
using Case = std::function<Floats(const Launch &)>;

void ExpectLevelsEqualReference(const char *what, const Case &compute) {
  auto with = [](const ckpt_tape_kernels *kernels, size_t grain) {
    return [kernels, grain](ckpt_tape_kernel_id id, const void *args, size_t n) {
      for (size_t i = 0; i < n; i += grain) kernels->run[id](args, i, std::min(n, i + grain));
    };
  };
  const Floats expected = compute(with(&ckpt_tape_kernels_ref_f32, 1 << 20));
  EXPECT_TRUE(SameBits(expected, compute(with(&ckpt_tape_kernels_ref_f32, 3)))) << what << ": ref, in parts of 3";
  for (size_t i = 0; ckpt_tape_kernels_cpu(i) != nullptr; i++)
    for (size_t grain : is_thorough() ? std::vector<size_t>{1 << 20, 3, 64} : std::vector<size_t>{3})
      EXPECT_TRUE(SameBits(expected, compute(with(ckpt_tape_kernels_cpu(i), grain))))
          << what << ": " << ckpt_tape_kernels_cpu(i)->name << ", in parts of " << grain;
}

Floats Joined(std::initializer_list<Floats> parts) {
  Floats out;
  for (const Floats &part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

const size_t kWidths[] = {1, 15, 16, 17, 64, 300};

TEST(TapeKernels, Elements) {
  for (size_t n : {1, 15, 16, 100, 700}) {
    Random random((uint32_t)n);
    Floats a = random.Normal(n, 3), b = random.Normal(n), d = random.Normal(n), before = random.Normal(n);
    const float odd[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 1e-40F, -88.0F, 120.0F, -200.0F, 3e38F};
    for (size_t i = 0; i < std::min(n, (size_t)10); i++) a[i] = odd[i];
    for (bool adds : {false, true})
      ExpectLevelsEqualReference("elements", [&](const Launch &run) {
        Floats out(n), d_a = before, d_b = before, sum = before, all;
        ckpt_activation_args args = {};
        args.a = a.data(), args.b = b.data(), args.d_out = d.data(), args.out = out.data();
        args.d_a = d_a.data(), args.d_b = d_b.data(), args.adds_a = adds, args.adds_b = adds;
        for (ckpt_tape_kernel_id id : {CKPT_KERNEL_silu_mul, CKPT_KERNEL_gelu, CKPT_KERNEL_gelu_exact}) {
          run(id, &args, n);
          run((ckpt_tape_kernel_id)(id + 1), &args, n);
          all = Joined({all, out, d_a, d_b});
        }
        ckpt_dropout_args drop = {};
        drop.x = b.data(), drop.y = d_a.data(), drop.n_columns = n, drop.length = 1, drop.adds = adds;
        drop.dropout = {5, 1.25, 0x33333333, 1, 2};
        run(CKPT_KERNEL_dropout, &drop, 1);
        all = Joined({all, d_a});
        ckpt_add_args add = {a.data(), sum.data()};
        run(CKPT_KERNEL_add, &add, n);
        return Joined({all, sum});
      });
  }
}

TEST(TapeKernels, Norms) {
  for (size_t width : kWidths) {
    const size_t rows = 5;
    Random random((uint32_t)width);
    Floats x = random.Normal(rows * width), residual = random.Normal(rows * width), weight = random.Normal(width);
    Floats bias = random.Normal(width), d_y = random.Normal(rows * width), before = random.Normal(rows * width);
    x[0] = width == 300 ? NAN : x[0];
    for (bool is_rms : {true, false})
      for (bool has_residual : {true, false})
        ExpectLevelsEqualReference("norms", [&](const Launch &run) {
          Floats sum(rows * width), y(rows * width), mean(rows), inverse(rows), d_x = before, d_residual = before;
          Floats d_weight = weight, d_bias = bias;
          ckpt_norm_args args = {};
          args.x = x.data(), args.weight = weight.data(), args.bias = bias.data(), args.y = y.data();
          args.mean = mean.data(), args.inverse = inverse.data(), args.n_columns = width, args.epsilon = 1e-5;
          if (has_residual) args.residual = residual.data(), args.sum = sum.data();
          run(is_rms ? CKPT_KERNEL_rmsnorm : CKPT_KERNEL_layernorm, &args, rows);
          ckpt_norm_backward_args back = {};
          back.x = has_residual ? sum.data() : x.data(), back.weight = weight.data(), back.inverse = inverse.data();
          back.mean = is_rms ? nullptr : mean.data(), back.d_y = d_y.data(), back.d_x = d_x.data();
          back.d_weight = d_weight.data(), back.d_bias = is_rms ? nullptr : d_bias.data();
          back.n_tokens = rows, back.n_columns = width, back.adds_residual = true;
          if (has_residual) back.d_sum = residual.data(), back.d_residual = d_residual.data();
          run(is_rms ? CKPT_KERNEL_rmsnorm_weights : CKPT_KERNEL_layernorm_weights, &back, width);
          run(is_rms ? CKPT_KERNEL_rmsnorm_backward : CKPT_KERNEL_layernorm_backward, &back, rows);
          return Joined({sum, y, mean, inverse, d_x, d_residual, d_weight, d_bias});
        });
  }
}

TEST(TapeKernels, EmbeddingBiasRopeAndLoss) {
  for (size_t width : kWidths) {
    const size_t rows = 9, vocabulary = 7, half = 8;
    Random random((uint32_t)width);
    Floats table = random.Normal(vocabulary * width), places = random.Normal(rows * width),
           d = random.Normal(rows * width);
    Floats logits = random.Normal(rows * width, 4), heads = random.Normal(rows * 3 * 2 * half);
    std::vector<int32_t> ids = random.Below(rows, vocabulary), targets = random.Below(rows, (int32_t)width);
    Floats frequencies = {1, 0.5F, 0.3F, 0.1F, 0.03F, 0.01F, 1e-3F, 1e-4F};
    std::vector<int32_t> positions = {0, 1, 2, 100, 5000, 131071, 7, 3, 2};
    targets[3] = -100;
    if (width == 300) logits[5] = NAN;
    ExpectLevelsEqualReference("rows", [&](const Launch &run) {
      Floats out(rows * width), d_table = table, d_others = table, biased = d,
                                d_bias = Floats(d.begin(), d.begin() + (long)width);
      Floats rope(rows * 2 * half), turned(heads.size()), back = heads, kept = logits, gradient = logits;
      Floats p(rows), q(rows), at_targets(rows), smoothed = logits;
      ckpt_embedding_args e = {};
      e.out = out.data(), e.table = table.data(), e.position_table = places.data(), e.ids = ids.data();
      e.n_tokens = rows, e.n_columns = width, e.length = 4;
      run(CKPT_KERNEL_embedding, &e, rows);
      e.out = d.data(), e.table = d_table.data();
      run(CKPT_KERNEL_embedding_backward, &e, width);
      e.table = d_others.data(), e.has_padding = true, e.padding = ids[0];
      run(CKPT_KERNEL_embedding_backward, &e, width);
      for (size_t i = 0; i < vocabulary * width; i++)
        EXPECT_EQ(d_others[i], (int32_t)(i / width) == ids[0] ? table[i] : d_table[i]) << i;
      ckpt_bias_args b = {biased.data(), table.data(), rows, width, width};
      run(CKPT_KERNEL_bias, &b, rows);
      b.bias = d_bias.data();
      run(CKPT_KERNEL_bias_backward, &b, width);
      ckpt_rope_table_args t = {rope.data(), frequencies.data(), positions.data(), 2 * half, rows};
      run(CKPT_KERNEL_rope_table, &t, rows);
      ckpt_rope_args r = {heads.data(), rope.data(), turned.data(), 3, 2 * half, false, false};
      run(CKPT_KERNEL_rope, &r, rows);
      r.is_inverse = r.adds = true, r.y = back.data();
      run(CKPT_KERNEL_rope, &r, rows);
      ckpt_loss_args l = {kept.data(), p.data(), targets.data(), width, 1, false, 0};
      run(CKPT_KERNEL_loss, &l, rows);
      l = {gradient.data(), q.data(), targets.data(), width, 0.25, true, 0};
      run(CKPT_KERNEL_loss, &l, rows);
      EXPECT_TRUE(width == 300 || SameBits(p, q));
      l = {smoothed.data(), at_targets.data(), targets.data(), width, 0.25, true, 0.1};
      run(CKPT_KERNEL_loss, &l, rows);
      EXPECT_TRUE(SameBits(kept, logits));
      return Joined({out, d_table, d_others, biased, d_bias, rope, turned, back, p, q, gradient, at_targets, smoothed});
    });
  }
}

// Lengths that are no multiple of a vector, of a lane's step, or of a block of squares; values that are odd.
TEST(TapeKernels, Optimizer) {
  for (size_t n : {1, 7, 16, 1003, 2 * CKPT_SQUARE_BLOCK + 5}) {
    Random random((uint32_t)n);
    Floats w = random.Normal(n), m = random.Normal(n, 0.1F), v = random.Normal(n, 0.1F), g = random.Normal(n, 3);
    const float odd[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 1e-40F, 1e-30F, 3e38F};
    for (float &x : v) x *= x;
    for (size_t i = 0; n > 100 && i < 8; i++) g[3 * i] = odd[i], w[5 * i + 1] = odd[i], m[7 * i + 2] = odd[i];
    for (size_t i = 0; i < n; i += 9) v[i] = 0;
    ExpectLevelsEqualReference("optimizer", [&](const Launch &run) {
      Floats weights = w, average = m, squares = v;
      const ckpt_adamw_args a = {weights.data(), average.data(), squares.data(), g.data(), 1 - 1e-4, 0.1,
                                 1e-3,           0.999,          1e-3 / 0.7,     0.4,      1e-8,     0.37};
      run(CKPT_KERNEL_adamw, &a, n);
      const size_t n_blocks = (n + CKPT_SQUARE_BLOCK - 1) / CKPT_SQUARE_BLOCK;
      std::vector<double> sums(n_blocks);
      for (const Floats *x : {&g, &v}) {
        const ckpt_square_sum_args s = {x->data(), sums.data(), n};
        run(CKPT_KERNEL_square_sum, &s, n_blocks);
        for (double sum : sums) { /* all its bits, in floats that are no NaN */
          uint32_t halves[2];
          memcpy(halves, &sum, sizeof sum);
          for (uint32_t half : halves) {
            if (std::isnan(sum)) half = 0;
            weights.push_back((float)(half >> 16));
            weights.push_back((float)(half & 0xFFFF));
          }
        }
      }
      return Joined({weights, average, squares});
    });
  }
}

// A first moment whose gradients are 0 fades to 0, not to a subnormal number that it would keep; the weight stays.
TEST(TapeKernels, MomentsEndAtZero) {
  const Floats g(64), v(64, 1e-6F);
  ExpectLevelsEqualReference("moments", [&](const Launch &run) {
    Floats weights(64, 0.5F), average(64, 1e-3F), squares = v;
    average[1] = -1e-3F, average[2] = FLT_MIN, average[3] = -FLT_MIN / 2, average[4] = FLT_MIN / 0.89F;
    ckpt_adamw_args a = {weights.data(), average.data(), squares.data(), g.data(), 1,    0.1,
                         1e-3,           0.999,          1e-3,           1,        1e-8, 1};
    run(CKPT_KERNEL_adamw, &a, g.size());
    Floats first = average;
    EXPECT_EQ(first[2], 0);
    EXPECT_EQ(first[3], 0);
    EXPECT_GE(first[4], FLT_MIN);
    for (int step = 1; step < 900; step++) {
      run(CKPT_KERNEL_adamw, &a, g.size());
      for (float x : average) EXPECT_TRUE(x == 0 || std::fabs(x) >= FLT_MIN);
    }
    EXPECT_EQ(average, Floats(64));
    EXPECT_EQ(weights[3], 0.5F);
    return Joined({weights, first, squares});
  });
}

// One attention call: shapes, and which tokens are hidden how.
struct AttentionCase {
  size_t rows, length, heads, kv_heads, width, window;
  bool has_documents, has_mask;
  double dropout;
};

class TapeAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(TapeAttention, LevelsEqualReference) {
  const AttentionCase c = GetParam();
  Random random(7);
  const size_t tokens = c.rows * c.length, n = tokens * c.heads * c.width, n_kv = tokens * c.kv_heads * c.width;
  Floats q = random.Normal(n), k = random.Normal(n_kv), v = random.Normal(n_kv), d_o = random.Normal(n);
  Floats before = random.Normal(n), before_kv = random.Normal(n_kv);
  std::vector<int32_t> documents(tokens);
  std::vector<uint8_t> mask(tokens, 1);
  for (size_t t = 0; t < tokens; t++) documents[t] = (int32_t)(t % c.length / 23);
  for (size_t t = 0; t < std::min(c.length, (size_t)3); t++) mask[t] = 0;
  for (bool adds : is_thorough() ? std::vector<bool>{false, true} : std::vector<bool>{true})
    ExpectLevelsEqualReference("attention", [&](const Launch &run) {
      Floats o(n), log_sum(tokens * c.heads), deltas(tokens * c.heads, NAN), d_q = before, d_k = before_kv;
      Floats d_v = before_kv;
      ckpt_attention_args a = {};
      a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data(), a.log_sum = log_sum.data();
      a.d_o = d_o.data(), a.d_q = d_q.data(), a.d_k = d_k.data(), a.d_v = d_v.data(), a.deltas = deltas.data();
      a.documents = c.has_documents ? documents.data() : nullptr, a.mask = c.has_mask ? mask.data() : nullptr;
      a.q_stride = a.o_stride = c.heads * c.width, a.k_stride = a.v_stride = c.kv_heads * c.width;
      a.n_rows = c.rows, a.length = c.length, a.n_heads = c.heads, a.n_kv_heads = c.kv_heads;
      a.head_width = c.width, a.window = c.window, a.scale = 0.3, a.adds_q = a.adds_k = a.adds_v = adds;
      a.dropout = {11, 1 / (1 - c.dropout), (uint32_t)(c.dropout * 4294967296.0), 2, 5};
      const size_t n_blocks = (c.length + CKPT_ATTENTION_BLOCK - 1) / CKPT_ATTENTION_BLOCK;
      run(CKPT_KERNEL_attention, &a, c.rows * c.heads * n_blocks);
      run(CKPT_KERNEL_attention_backward, &a, c.rows * c.kv_heads);
      for (const Floats &x : {o, d_q, d_k, d_v})
        for (float value : x) EXPECT_TRUE(std::isfinite(value));
      return Joined({o, log_sum, d_q, d_k, d_v});
    });
}

// The longer ones take minutes where a sanitizer looks.
std::vector<AttentionCase> Attentions() {
  std::vector<AttentionCase> cases = {{1, 1, 1, 1, 8, 0, false, false, 0},
                                      {2, 70, 2, 1, 16, 0, false, true, 0},
                                      {1, 64, 2, 2, 64, 64, true, true, 0.5}};
  if (is_thorough())
    cases.insert(cases.end(), {{1, 130, 3, 3, 33, 0, true, false, 0.1},
                               {1, 200, 4, 2, 20, 9, false, false, 0},
                               {2, 129, 2, 1, 256, 70, true, true, 0.25}});
  else
    cases.insert(cases.end(), {{1, 130, 2, 2, 33, 0, true, false, 0.1},
                               {1, 140, 2, 1, 20, 70, false, false, 0},
                               {1, 66, 2, 1, 256, 9, true, true, 0.25}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, TapeAttention, testing::ValuesIn(Attentions()));

// A query that sees nothing gives zeros, and no gradient goes anywhere from it.
TEST(TapeKernels, AFullyMaskedRowIsZeros) {
  const size_t length = 5, width = 4;
  Random random(1);
  Floats q = random.Normal(length * width), k = q, v = q, o(length * width, 9), d_o = q, log_sum(length);
  Floats d_q(length * width, 9), d_k = d_q, d_v = d_q, deltas(length);
  std::vector<uint8_t> mask(length, 0);
  ckpt_attention_args a = {};
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data(), a.log_sum = log_sum.data();
  a.d_o = d_o.data(), a.d_q = d_q.data(), a.d_k = d_k.data(), a.d_v = d_v.data(), a.mask = mask.data();
  a.q_stride = a.k_stride = a.v_stride = a.o_stride = a.head_width = width;
  a.n_rows = a.n_heads = a.n_kv_heads = 1, a.length = length, a.scale = 1, a.deltas = deltas.data();
  for (size_t i = 0; ckpt_tape_kernels_cpu(i) != nullptr; i++) {
    ckpt_tape_kernels_cpu(i)->run[CKPT_KERNEL_attention](&a, 0, 1);
    ckpt_tape_kernels_cpu(i)->run[CKPT_KERNEL_attention_backward](&a, 0, 1);
    for (const Floats &x : {o, d_q, d_k, d_v})
      for (float value : x) EXPECT_EQ(value, 0);
    for (float value : log_sum) EXPECT_EQ(value, -INFINITY);
  }
}

TEST(TapeKernels, FormulasAreAccurate) {
  for (double x = -700; x < 700; x += 0.137) EXPECT_NEAR(ckpt_tape_exp(x) / std::exp(x), 1, 5e-16) << x;
  for (float x = -87; x < 88; x += 0.0137F) EXPECT_NEAR(ckpt_tape_exp_f32(x) / std::exp((double)x), 1, 2e-7) << x;
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(ckpt_tape_log(x), std::log(x), 5e-16 * std::max(1.0, std::fabs(std::log(x)))) << x;
    if (x > 1e-45 && x < 3e38) {
      const double expected = std::log((double)(float)x);
      EXPECT_NEAR(ckpt_tape_log_f32((float)x), expected, 2e-7 * std::max(1.0, std::fabs(expected))) << x;
    }
  }
  for (double x = -7; x < 7; x += 0.0137) {
    EXPECT_NEAR(ckpt_tape_erfc(x), std::erfc(x), 1e-15) << x;
    EXPECT_NEAR(ckpt_tape_erfc_f32((float)x), std::erfc(x), 5e-7) << x;
  }
  for (double x = -1e6; x < 1e6; x += 777.7) {
    double sine, cosine;
    ckpt_tape_sine_cosine(x, &sine, &cosine);
    EXPECT_NEAR(sine, std::sin(x), 3e-16) << x;
    EXPECT_NEAR(cosine, std::cos(x), 3e-16) << x;
  }
  EXPECT_EQ(ckpt_tape_exp_f32(-INFINITY), 0);
  EXPECT_EQ(ckpt_tape_exp_f32(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(ckpt_tape_exp_f32(NAN)) && std::isnan(ckpt_tape_erfc_f32(NAN)));
  EXPECT_EQ(ckpt_tape_log(0), -INFINITY);
  EXPECT_TRUE(std::isnan(ckpt_tape_log(-1)) && std::isnan(ckpt_tape_log(NAN)));
  EXPECT_EQ(ckpt_tape_log(INFINITY), INFINITY);
}

TEST(TapeKernels, GemmEqualsTheReferenceClosely) {
  Random random(3);
  const size_t m = 33, n = 47, k = 29;
  for (int flags = 0; flags < 16; flags++) {
    Floats a = random.Normal(m * k), b = random.Normal(k * n), bias = random.Normal(n), c = random.Normal(m * n), d = c;
    ckpt_gemm g = {};
    g.is_a_transposed = flags & 1, g.is_b_transposed = flags & 2, g.m = m, g.n = n, g.k = k, g.alpha = 1;
    g.a = a.data(), g.lda = flags & 1 ? m : k, g.b = b.data(), g.ldb = flags & 2 ? k : n, g.ldc = n;
    g.beta = flags & 4 ? 1 : 0, g.bias = flags & 8 ? bias.data() : nullptr, g.c = c.data();
    EXPECT_EQ(ckpt_tape_kernels_ref_f32.gemm(&g, nullptr), CKPT_OK);
    g.c = d.data();
    EXPECT_EQ(ckpt_tape_kernels_cpu(0)->gemm(&g, nullptr), CKPT_OK);
    for (size_t i = 0; i < m * n; i++) EXPECT_NEAR(c[i], d[i], 2e-5);
  }
}

// All levels, and that of bf16 also where f32 is faster, if the processor has its instructions.
std::vector<const ckpt_tape_kernels *> Bf16Levels() {
  std::vector<const ckpt_tape_kernels *> out;
  for (size_t i = 0; ckpt_tape_kernels_cpu(i) != nullptr; i++) out.push_back(ckpt_tape_kernels_cpu(i));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") && getenv("ONEDNN_MAX_CPU_ISA") == nullptr)
    out.push_back(&ckpt_tape_kernels_avx512_bf16);
#endif
  return out;
}

// Factors are rounded to nearest even, by panels at every level and by pairs where the processor has them; NaN and
// infinity stay.
TEST(TapeKernels, Bf16GemmEqualsTheReferenceClosely) {
  Random random(4);
  const size_t m = 35, n = 49, k = 70;
  for (int flags = 0; flags < 4; flags++) {
    Floats a = random.Normal(m * k), b = random.Normal(k * n), exact(m * n), expected(m * n), c(m * n);
    ckpt_gemm g = {};
    g.is_a_transposed = flags & 1, g.is_b_transposed = flags & 2, g.m = m, g.n = n, g.k = k, g.alpha = 1;
    g.a = a.data(), g.lda = flags & 1 ? m : k, g.b = b.data(), g.ldb = flags & 2 ? k : n, g.ldc = n;
    g.c = exact.data();
    EXPECT_EQ(ckpt_tape_kernels_ref_f32.gemm(&g, nullptr), CKPT_OK);
    g.is_bf16 = true, g.c = expected.data();
    EXPECT_EQ(ckpt_tape_kernels_ref_f32.gemm(&g, nullptr), CKPT_OK);
    EXPECT_FALSE(SameBits(exact, expected));
    g.c = c.data();
    for (const ckpt_tape_kernels *level : Bf16Levels()) {
      EXPECT_EQ(level->gemm(&g, nullptr), CKPT_OK);
      for (size_t i = 0; i < m * n; i++) EXPECT_NEAR(c[i], expected[i], 3e-5) << level->name;
    }
  }
  Floats one = {NAN, INFINITY, 1, 1.00390625F, 1.01171875F, -0.0F}, two(1, 1), out(6);
  ckpt_gemm g = {};
  g.m = 6, g.n = 1, g.k = 1, g.lda = g.ldb = g.ldc = 1, g.alpha = 1, g.is_bf16 = true;
  g.a = one.data(), g.b = two.data(), g.c = out.data();
  for (const ckpt_tape_kernels *level : Bf16Levels()) {
    EXPECT_EQ(level->gemm(&g, nullptr), CKPT_OK);
    EXPECT_TRUE(std::isnan(out[0]) && std::isinf(out[1]));
    EXPECT_EQ(out[2], 1);
    EXPECT_EQ(out[3], 1); /* a tie: to even */
    EXPECT_EQ(out[4], 1.015625F);
  }
}

}  // namespace
