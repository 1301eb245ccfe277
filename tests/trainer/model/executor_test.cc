// The executor: an arena that is exact, one plan for every length, the same bits for any threads, gradients in f64.
#include "tests/trainer/model/tape_case.h"

#include <cstring>
#include <random>

extern "C" {
#include "kernels/cpu/tape/tape.h"
#include "libckpt/base/dtype.h"
#include "trainer/model/memory_plan.h"
}

// The most that products of bf16 have asked for since it was set to 0 (wrapped by the linker, tests/CMakeLists.txt).
static size_t n_shared;
static std::atomic<size_t> n_panels; /* threads ask for them */
extern "C" void *__real_ckpt_device_cpu_shared(ckpt_device *device, size_t n_bytes);
extern "C" void *__wrap_ckpt_device_cpu_shared(ckpt_device *device, size_t n_bytes); /* NOLINT: the linker's name */
void *__wrap_ckpt_device_cpu_shared(ckpt_device *device, size_t n_bytes) {
  n_shared = std::max(n_shared, n_bytes);
  return __real_ckpt_device_cpu_shared(device, n_bytes);
}
extern "C" void *__real_ckpt_gemm_scratch(size_t n_bytes);
extern "C" void *__wrap_ckpt_gemm_scratch(size_t n_bytes); /* NOLINT: as above */
void *__wrap_ckpt_gemm_scratch(size_t n_bytes) {
  size_t most = n_panels;
  while (most < n_bytes && !n_panels.compare_exchange_weak(most, n_bytes)) {
  }
  return __real_ckpt_gemm_scratch(n_bytes);
}

namespace {

using tape::Executor;
using tape::Model;

const char *const kConfigs[] = {
    R"({"model_type": "llama", "vocab_size": 50, "hidden_size": 24, "intermediate_size": 33, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 300,
        "attention_bias": true, "mlp_bias": true})",
    R"({"model_type": "gpt2", "vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 300,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})"};

class ExecutorOf : public testing::TestWithParam<const char *> {
 protected:
  ExecutorOf() : model(GetParam(), true) { EXPECT_EQ(model.status, CKPT_OK) << model.err.message; }

  template <typename Real>
  void Fill(void *parameters) {
    std::mt19937 engine(5);
    std::normal_distribution<double> normal(0, 0.3);
    for (uint64_t i = 0; i < model.model->n_flat; i++) ((Real *)parameters)[i] = (Real)(float)normal(engine);
  }

  Model model;
};

std::vector<int32_t> Numbers(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> out(n);
  for (int32_t &x : out) x = (int32_t)(engine() % 50);
  return out;
}

ckpt_token_batch BatchOf(uint32_t rows, uint32_t length, const std::vector<int32_t> &ids,
                         const std::vector<int32_t> &targets) {
  ckpt_token_batch batch = {};
  batch.n_rows = rows, batch.length = length, batch.ids = ids.data();
  batch.targets = targets.empty() ? nullptr : targets.data();
  return batch;
}

TEST_P(ExecutorOf, UsesTheArenaToTheByte) {
  for (bool has_backward : {false, true}) {
    Executor x(model.model, 3, 40, has_backward);
    Fill<float>(x.Parameters());
    const std::vector<int32_t> ids = Numbers(120, 1);
    ckpt_token_batch batch = BatchOf(3, 40, ids, ids);
    ckpt_forward_result result;
    const ckpt_executor_memory *memory = ckpt_executor_memory_of(x.executor);
    EXPECT_EQ(ckpt_executor_high_water(x.executor), 0U);
    ASSERT_EQ(has_backward ? ckpt_executor_train(x.executor, &batch, 1, &result, &x.err)
                           : ckpt_executor_forward(x.executor, &batch, &result, &x.err),
              CKPT_OK)
        << x.err.message;
    EXPECT_EQ(ckpt_executor_high_water(x.executor), memory->arena);
    EXPECT_GE(memory->arena, memory->live);
    EXPECT_LE(memory->arena, memory->live + memory->live / 8);
    ckpt_executor_options options = {};
    ckpt_executor_memory planned;
    options.struct_size = sizeof options, options.max_rows = 3, options.max_length = 40;
    options.has_backward = has_backward;
    ASSERT_EQ(ckpt_executor_plan(&planned, model.model, &options, nullptr), CKPT_OK);
    EXPECT_EQ(planned.arena, memory->arena);
    EXPECT_EQ(planned.parameters, model.model->n_flat * 4);
  }
}

// What lives at the same time never overlaps; what has the arena's last byte is there.
TEST_P(ExecutorOf, PlansNoOverlap) {
  for (const auto recompute : {CKPT_RECOMPUTE_NONE, CKPT_RECOMPUTE_SELECTIVE, CKPT_RECOMPUTE_FULL}) {
    ckpt_arena arena;
    ckpt_arena_init(&arena, UINT64_MAX);
    ckpt_memory_plan plan;
    const ckpt_tape_limits limits = {120, 3, 40, 120, 4, recompute};
    ASSERT_EQ(ckpt_memory_plan_make(&plan, &arena, &model.model->tape, &limits, true, nullptr), CKPT_OK);
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan.n_buffers; i++) {
      const ckpt_planned_buffer *a = &plan.buffers[i];
      if (a->n_bytes == 0) continue;
      end = std::max(end, a->offset + a->n_bytes);
      for (uint32_t j = 0; j < i; j++) {
        const ckpt_planned_buffer *b = &plan.buffers[j];
        if (b->n_bytes == 0 || a->last < b->first || b->last < a->first) continue;
        EXPECT_TRUE(a->offset + a->n_bytes <= b->offset || b->offset + b->n_bytes <= a->offset) << i << " and " << j;
      }
    }
    EXPECT_EQ(end, plan.arena);
    ckpt_arena_free(&arena);
  }
}

// Layers that run again give the same bits, in less memory, which is used to the byte; evaluation is the same too.
TEST_P(ExecutorOf, RecomputesToTheSameBits) {
  const std::vector<int32_t> ids = Numbers(120, 1), targets = Numbers(120, 2);
  ckpt_token_batch batch = BatchOf(3, 40, ids, targets);
  ckpt_forward_result kept, again;
  Executor plain(model.model, 3, 40, true);
  Fill<float>(plain.Parameters());
  ASSERT_EQ(ckpt_executor_train(plain.executor, &batch, 0.5, &kept, nullptr), CKPT_OK);
  uint64_t most = ckpt_executor_memory_of(plain.executor)->arena * 19 / 20;
  for (const auto kind : {CKPT_RECOMPUTE_SELECTIVE, CKPT_RECOMPUTE_FULL}) {
    ckpt_executor_options options = {};
    ckpt_executor *x = nullptr;
    options.struct_size = sizeof options, options.max_rows = 3, options.max_length = 40, options.n_threads = 2;
    options.has_backward = true, options.recompute = kind;
    ASSERT_EQ(ckpt_executor_new(&x, model.model, &options, nullptr), CKPT_OK);
    Fill<float>(ckpt_executor_parameters(x));
    ASSERT_EQ(ckpt_executor_train(x, &batch, 0.5, &again, nullptr), CKPT_OK);
    EXPECT_EQ(kept.loss_sum, again.loss_sum);
    EXPECT_EQ(memcmp(plain.Gradients(), ckpt_executor_gradients(x), model.model->n_flat * sizeof(float)), 0);
    EXPECT_EQ(ckpt_executor_high_water(x), ckpt_executor_memory_of(x)->arena);
    EXPECT_LT(ckpt_executor_memory_of(x)->arena, most) << kind;
    most = ckpt_executor_memory_of(x)->arena;
    ASSERT_EQ(ckpt_executor_forward(x, &batch, &again, nullptr), CKPT_OK);
    EXPECT_EQ(kept.loss_sum, again.loss_sum);
    ckpt_executor_free(x);
  }
}

// Shorter and smaller batches run in the arena of the largest, and as in one of their own.
TEST_P(ExecutorOf, OnePlanForEveryLength) {
  Executor large(model.model, 4, 130, true);
  Fill<float>(large.Parameters());
  for (auto [rows, length] : {std::pair<uint32_t, uint32_t>{4, 130}, {1, 1}, {3, 17}, {2, 130}, {4, 65}}) {
    Executor own(model.model, rows, length, true);
    Fill<float>(own.Parameters());
    const std::vector<int32_t> ids = Numbers((size_t)rows * length, length), targets = Numbers(ids.size(), 9);
    std::vector<float> a(ids.size() * 50), b(a.size());
    ckpt_token_batch batch = BatchOf(rows, length, ids, targets);
    ckpt_forward_result of_large, of_own;
    memset(large.Gradients(), 0, model.model->n_flat * sizeof(float));
    batch.logits = a.data();
    ASSERT_EQ(ckpt_executor_train(large.executor, &batch, 0.5, &of_large, nullptr), CKPT_OK);
    batch.logits = b.data();
    ASSERT_EQ(ckpt_executor_train(own.executor, &batch, 0.5, &of_own, nullptr), CKPT_OK);
    EXPECT_EQ(of_large.loss_sum, of_own.loss_sum);
    EXPECT_EQ(memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
    EXPECT_EQ(memcmp(large.Gradients(), own.Gradients(), model.model->n_flat * sizeof(float)), 0);
    ASSERT_EQ(ckpt_executor_forward(large.executor, &batch, &of_large, nullptr), CKPT_OK);
    EXPECT_EQ(of_large.loss_sum, of_own.loss_sum);
  }
}

TEST_P(ExecutorOf, TheSameBitsForAnyThreads) {
  const std::vector<int32_t> ids = Numbers(2 * 150, 3);
  std::vector<float> gradients;
  for (uint32_t n_threads : {1, 2, 5}) {
    Executor x(model.model, 2, 150, true, nullptr, n_threads);
    Fill<float>(x.Parameters());
    ckpt_token_batch batch = BatchOf(2, 150, ids, ids);
    ckpt_forward_result result;
    ASSERT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, nullptr), CKPT_OK);
    std::vector<float> now(x.Gradients(), x.Gradients() + model.model->n_flat);
    if (gradients.empty()) gradients = now;
    EXPECT_EQ(memcmp(gradients.data(), now.data(), now.size() * sizeof(float)), 0) << n_threads;
  }
}

TEST_P(ExecutorOf, GradientsAddUp) {
  Executor x(model.model, 2, 20, true);
  Fill<float>(x.Parameters());
  const std::vector<int32_t> ids = Numbers(40, 3);
  ckpt_token_batch batch = BatchOf(2, 20, ids, ids);
  ckpt_forward_result result;
  ASSERT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, nullptr), CKPT_OK);
  std::vector<float> once(x.Gradients(), x.Gradients() + model.model->n_flat);
  ASSERT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, nullptr), CKPT_OK);
  for (size_t i = 0; i < once.size(); i++) EXPECT_NEAR(x.Gradients()[i], 2 * once[i], 1e-4 * std::fabs(once[i]) + 1e-5);
}

// Whatever the gradients held before, a batch that begins them leaves what one that adds to zeros does.
TEST_P(ExecutorOf, ABatchThatBeginsGradientsSetsThemAll) {
  const std::vector<int32_t> ids = Numbers(600, 3);  // the head goes through several chunks
  ckpt_token_batch batch = BatchOf(4, 150, ids, ids);
  ckpt_forward_result result;
  Executor adding(model.model, 4, 150, true), setting(model.model, 4, 150, true);
  Fill<float>(adding.Parameters()), Fill<float>(setting.Parameters());
  ASSERT_EQ(ckpt_executor_train(adding.executor, &batch, 1, &result, nullptr), CKPT_OK);
  std::fill_n(setting.Gradients(), model.model->n_flat, NAN);
  batch.begins_gradients = true;
  ASSERT_EQ(ckpt_executor_train(setting.executor, &batch, 1, &result, nullptr), CKPT_OK);
  for (uint32_t i = 0; i < model.model->n_parameters; i++)
    for (uint64_t j = 0; j < model.model->parameters[i].n_elements; j++) {
      const uint64_t at = model.model->parameters[i].offset + j;
      ASSERT_EQ(setting.Gradients()[at], adding.Gradients()[at]) << model.model->parameters[i].name << ' ' << j;
    }
}

// The whole tape in f64 on the reference kernels: every parameter's gradient against finite differences.
TEST_P(ExecutorOf, GradientsAreFiniteDifferencesInF64) {
  Executor x(model.model, 2, 7, true, &ckpt_tape_kernels_ref_f64, 1, 5);
  double *parameters = (double *)(void *)x.Parameters(), *gradients = (double *)(void *)x.Gradients();
  Fill<double>(parameters);
  const std::vector<int32_t> ids = Numbers(14, 3), targets = Numbers(14, 4);
  ckpt_token_batch batch = BatchOf(2, 7, ids, targets);
  ckpt_forward_result result, above, below;
  ASSERT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, nullptr), CKPT_OK);
  uint32_t n;
  const ckpt_parameter *p = ckpt_model_parameters(model.model, &n);
  const double step = 1e-5;
  for (uint32_t i = 0; i < n; i++)
    for (uint64_t j = 0; j < p[i].n_elements; j += 1 + p[i].n_elements / 5) {
      double *at = &parameters[p[i].offset + j], kept = *at;
      *at = kept + step;
      ASSERT_EQ(ckpt_executor_forward(x.executor, &batch, &above, nullptr), CKPT_OK);
      *at = kept - step;
      ASSERT_EQ(ckpt_executor_forward(x.executor, &batch, &below, nullptr), CKPT_OK);
      *at = kept;
      const double expected = (above.loss_sum - below.loss_sum) / (2 * step);
      EXPECT_NEAR(gradients[p[i].offset + j], expected, 1e-6 * std::max(1.0, std::fabs(expected)))
          << p[i].name << " " << j;
    }
}

TEST_P(ExecutorOf, AnEmptyBatchIsNothing) {
  Executor x(model.model, 2, 20, true);
  Fill<float>(x.Parameters());
  ckpt_forward_result result;
  const std::vector<int32_t> none(1, 0);
  for (auto [rows, length] : {std::pair<uint32_t, uint32_t>{0, 20}, {2, 0}}) {
    ckpt_token_batch batch = BatchOf(rows, length, none, none);
    EXPECT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, nullptr), CKPT_OK);
    EXPECT_EQ(result.n_targets, 0U);
    EXPECT_EQ(result.loss_sum, 0);
    EXPECT_EQ(ckpt_executor_forward(x.executor, &batch, &result, nullptr), CKPT_OK);
  }
}

// A row that is all padding changes nothing of the others, and gives finite numbers.
TEST_P(ExecutorOf, AFullyMaskedRowIsHarmless) {
  Executor x(model.model, 2, 12, true);
  Fill<float>(x.Parameters());
  const std::vector<int32_t> ids = Numbers(24, 3);
  std::vector<int32_t> targets = ids;
  std::vector<uint8_t> mask(24, 1);
  std::fill(mask.begin() + 12, mask.end(), 0);
  std::fill(targets.begin() + 12, targets.end(), -100);
  ckpt_token_batch both = BatchOf(2, 12, ids, targets), one = BatchOf(1, 12, ids, targets);
  ckpt_forward_result result, alone;
  std::vector<float> logits(24 * 50);
  both.mask = mask.data(), both.logits = logits.data();
  ASSERT_EQ(ckpt_executor_train(x.executor, &both, 1, &result, nullptr), CKPT_OK);
  std::vector<float> gradients(x.Gradients(), x.Gradients() + model.model->n_flat);
  memset(x.Gradients(), 0, gradients.size() * sizeof(float));
  ASSERT_EQ(ckpt_executor_train(x.executor, &one, 1, &alone, nullptr), CKPT_OK);
  EXPECT_NEAR(result.loss_sum, alone.loss_sum, 1e-5 * alone.loss_sum);
  for (float value : logits) EXPECT_TRUE(std::isfinite(value));
  for (size_t i = 0; i < gradients.size(); i++) EXPECT_NEAR(gradients[i], x.Gradients()[i], 1e-3) << i;
}

// Not in forward, where a weight is none; not in backward, where the loss is as it was and its scale is none.
TEST_P(ExecutorOf, WhatIsNotFiniteIsNotHidden) {
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    Executor x(model.model, 1, 12, true);
    Fill<float>(x.Parameters());
    std::vector<int32_t> ids(12, 3);
    ckpt_token_batch batch = BatchOf(1, 12, ids, ids);
    ckpt_forward_result result, whole;
    ASSERT_EQ(ckpt_executor_forward(x.executor, &batch, &whole, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_executor_train(x.executor, &batch, odd, &result, nullptr), CKPT_OK);
    EXPECT_EQ(result.loss_sum, whole.loss_sum);
    uint32_t n;
    const ckpt_parameter *p = ckpt_model_parameters(model.model, &n);
    for (uint32_t i = 0; i < n; i++) {
      const float *g = x.Gradients() + p[i].offset;
      EXPECT_TRUE(std::any_of(g, g + p[i].n_elements, [](float v) { return !std::isfinite(v); })) << p[i].name << odd;
    }
    memset(x.Gradients(), 0, model.model->n_flat * sizeof(float));
    x.Parameters()[3 * 24 + 2] = odd;  // of the token 3
    ASSERT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, nullptr), CKPT_OK);
    EXPECT_FALSE(std::isfinite(result.loss_sum)) << odd;
    EXPECT_FALSE(std::isfinite(x.Gradients()[3 * 24])) << odd;
  }
}

TEST_P(ExecutorOf, RefusesWhatWasNotPlanned) {
  Executor x(model.model, 2, 20, false);
  std::vector<int32_t> ids = Numbers(63, 3), bad = ids;
  ckpt_forward_result result;
  auto fails = [&](ckpt_token_batch batch, const char *message) {
    ckpt_error err = {};
    EXPECT_EQ(ckpt_executor_forward(x.executor, &batch, &result, &err), CKPT_EINVAL);
    EXPECT_STREQ(err.message, message);
  };
  fails(BatchOf(3, 20, ids, {}), "a batch of 3 rows of 20 tokens, planned are 2 of 20");
  fails(BatchOf(1, 21, ids, {}), "a batch of 1 rows of 21 tokens, planned are 2 of 20");
  bad[24] = 50;
  fails(BatchOf(2, 20, bad, {}), "row 1, position 4: id 50 is not below 50");
  fails(BatchOf(2, 20, ids, bad), "row 1, position 4: target 50 is not below 50");
  bad[24] = -1;
  fails(BatchOf(2, 20, bad, {}), "row 1, position 4: id -1 is not below 50");
  ckpt_token_batch batch = BatchOf(2, 20, ids, ids);
  ckpt_error err = {};
  EXPECT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, &err), CKPT_EINVAL);
  EXPECT_STREQ(err.message, "the executor was made without backward");
  if (model.model->has_position_table) {
    std::vector<int32_t> positions(40, 300);
    batch.positions = positions.data();
    fails(batch, "row 0, position 0: position 300 is not below 300");
  }
  ckpt_executor_options options = {};
  ckpt_executor_memory memory;
  options.struct_size = sizeof options, options.max_length = 301;
  err = {};
  EXPECT_EQ(ckpt_executor_plan(&memory, model.model, &options, &err), CKPT_EINVAL);
  EXPECT_STREQ(err.message, "a length of 301, the model has 300 positions");
  options.max_length = 300, options.max_rows = UINT32_MAX;
  EXPECT_EQ(ckpt_executor_plan(&memory, model.model, &options, nullptr), CKPT_ELIMIT);
}

INSTANTIATE_TEST_SUITE_P(Families, ExecutorOf, testing::ValuesIn(kConfigs),
                         [](const auto &which) { return which.index == 0 ? "llama" : "gpt2"; });

// What products in bf16 take beside the arena is planned: of one, whose factors are small or not, and of a model.
TEST(ProductsPlan, HoldsWhatIsTaken) {
  const size_t shapes[][3] = {{40, 50, 60},     {17, 2100, 2001}, {5100, 24, 1000},
                              {2100, 2001, 40}, {3, 5, 7},        {24, 300, 17000}};
  for (size_t level = 0; ckpt_tape_kernels_cpu(level) != nullptr; level++)
    for (const auto &[m, n, k] : shapes) {
      const ckpt_tape_kernels *kernels = ckpt_tape_kernels_cpu(level);
      ckpt_device *device = nullptr;
      ckpt_error err = {};
      ASSERT_EQ(ckpt_device_cpu_new(&device, 1, kernels, &err), CKPT_OK);
      std::vector<float> a(m * k), b(n * k), c(m * n);
      ckpt_gemm gemm = {};
      gemm.m = m, gemm.n = n, gemm.k = k, gemm.lda = gemm.ldb = k, gemm.ldc = n, gemm.alpha = 1;
      gemm.a = a.data(), gemm.b = b.data(), gemm.c = c.data(), gemm.is_b_transposed = gemm.is_bf16 = true;
      n_shared = n_panels = 0;
      ASSERT_EQ(device->table->gemm(device, &gemm, &err), CKPT_OK) << err.message;
      size_t panels;
      const size_t shared = ckpt_gemm_cpu_bytes(kernels, &gemm, false, &panels);
      const bool is_at_once = m * k <= 1 << 22;
      EXPECT_GE(shared, n_shared) << kernels->name << m;
      if (is_at_once) {
        EXPECT_LT(shared - n_shared, 64u) << kernels->name << m;
      }
      EXPECT_GE(panels, n_panels) << kernels->name << m;
      EXPECT_EQ(panels == 0, n_panels == 0) << kernels->name << m;
      EXPECT_LE(panels, 17u << 20);
      ckpt_device_free(device);
    }
}

// A factor that may be rounded where it lies gives the same bits, whatever its size, its stride and that of the other.
TEST(Products, AScratchFactorIsRoundedWhereItLies) {
  const size_t shapes[][3] = {{40, 50, 60}, {130, 70, 33000}, {40, 2100, 2001}, {10, 300, 17000}};
  for (size_t level = 0; ckpt_tape_kernels_cpu(level) != nullptr; level++)
    for (const auto &[m, n, k] : shapes) {
      ckpt_device *device = nullptr;
      ASSERT_EQ(ckpt_device_cpu_new(&device, 2, ckpt_tape_kernels_cpu(level), nullptr), CKPT_OK);
      std::vector<float> a(m * (k + 3)), b(n * k), c(m * n), expected(m * n);
      for (size_t i = 0; i < a.size(); i++) a[i] = (float)((i * 7919) % 1009) / 1009 - 0.5F;
      for (size_t i = 0; i < b.size(); i++) b[i] = (float)((i * 104729) % 997) / 997 - 0.5F;
      const std::vector<float> before = a;
      ckpt_gemm gemm = {};
      gemm.m = m, gemm.n = n, gemm.k = k, gemm.lda = k + 3, gemm.ldb = n, gemm.ldc = n, gemm.alpha = 1;
      gemm.a = a.data(), gemm.b = b.data(), gemm.c = expected.data(), gemm.is_bf16 = true;
      ASSERT_EQ(device->table->gemm(device, &gemm, nullptr), CKPT_OK);
      EXPECT_EQ(a, before);
      gemm.is_a_scratch = true, gemm.c = c.data();
      ASSERT_EQ(device->table->gemm(device, &gemm, nullptr), CKPT_OK);
      EXPECT_EQ(memcmp(c.data(), expected.data(), c.size() * sizeof(float)), 0) << m << ' ' << n << ' ' << k;
      for (size_t i = 0; i < a.size(); i++)
        if (i % (k + 3) >= k) {
          ASSERT_EQ(a[i], before[i]) << i;
        }
      ckpt_device_free(device);
    }
}

// A product of a factor whose rows are summed over, which lie `stride` apart, by the hook.
struct StridedProduct {
  size_t m, n, k;
  bool is_of_b;  // that factor
  int how;       // 0: f32; 1: bf16; 2: bf16, and the factor is rounded already
};

std::vector<float> Multiply(ckpt_device *device, const StridedProduct &p, size_t stride) {
  const size_t width = p.is_of_b ? p.n : p.m, others = p.is_of_b ? p.m : p.n;
  std::vector<float> factor(p.k * stride), other(p.k * others), c(p.m * p.n);
  for (size_t i = 0; i < p.k * width; i++)
    factor[i / width * stride + i % width] = (float)((i * 7919) % 127) / 128 - 0.5F; /* bf16 has these */
  for (size_t i = 0; i < other.size(); i++) other[i] = (float)((i * 104729) % 997) / 997 - 0.5F;
  ckpt_gemm gemm = {};
  gemm.m = p.m, gemm.n = p.n, gemm.k = p.k, gemm.ldc = p.n, gemm.alpha = 1, gemm.is_bf16 = p.how != 0;
  gemm.a = p.is_of_b ? other.data() : factor.data(), gemm.b = p.is_of_b ? factor.data() : other.data();
  gemm.is_a_transposed = !p.is_of_b, gemm.lda = p.is_of_b ? p.k : stride, gemm.ldb = p.is_of_b ? stride : p.n;
  gemm.is_a_rounded = p.how == 2 && !p.is_of_b, gemm.is_b_rounded = p.how == 2 && p.is_of_b;
  gemm.c = c.data();
  size_t panels;
  const size_t shared = ckpt_gemm_cpu_bytes(device->kernels, &gemm, false, &panels);
  n_shared = n_panels = 0;
  EXPECT_EQ(device->table->gemm(device, &gemm, nullptr), CKPT_OK);
  EXPECT_GE(shared, n_shared);
  EXPECT_GE(panels, n_panels);
  return c;
}

// A factor whose rows are summed over and lie far apart is packed, with the bits of one whose rows lie otherwise,
// whether it is rounded or not; what that takes is planned.
TEST(Products, ASlowStrideIsPacked) {
  const size_t shapes[][3] = {{512, 70, 60}, {1024, 300, 130}, {1024, 63, 33}, {1024, 64, 4200}};
  for (size_t level = 0; ckpt_tape_kernels_cpu(level) != nullptr; level++)
    for (const auto &[width, others, k] : shapes)
      for (bool is_of_b : {false, true})
        for (int how = 0; how < 3; how++) {
          const ckpt_tape_kernels *kernels = ckpt_tape_kernels_cpu(level);
          const std::string what = kernels->name + (" " + std::to_string(width)) + (is_of_b ? " b " : " a ");
          SCOPED_TRACE(what + std::to_string(others) + " " + std::to_string(how));
          ckpt_device *device = nullptr;
          ASSERT_EQ(ckpt_device_cpu_new(&device, 1, kernels, nullptr), CKPT_OK);
          const StridedProduct p = {is_of_b ? others : width, is_of_b ? width : others, k, is_of_b, how};
          const std::vector<float> c = Multiply(device, p, width);
          if (how == 0) {
            EXPECT_EQ(n_panels != 0, kernels->slow_stride != 0 && others >= 64);
          }
          const std::vector<float> expected = Multiply(device, p, width + 3);
          if (kernels->slow_stride != 0) { /* else oneDNN goes by strides itself */
            EXPECT_EQ(memcmp(c.data(), expected.data(), c.size() * sizeof(float)), 0);
          }
          ckpt_device_free(device);
        }
}

// Of weights that are stored in bf16 or blocks, as they lie or turned, a panel in f32.
TEST(ProductsPlan, HoldsPanelsOfWhatIsStoredOtherwise) {
  const ckpt_tape_kernels *kernels = ckpt_device_cpu_kernels();
  ckpt_device *device = nullptr;
  ASSERT_EQ(ckpt_device_cpu_new(&device, 1, kernels, nullptr), CKPT_OK);
  for (const auto &[n, k] : {std::pair<size_t, size_t>{512, 256}, {3072, 2048}, {256, 33024}})
    for (int how = 0; how < 3; how++) { /* bf16 as Linear has it, as GPT-2 has it, blocks turned */
      const ckpt_dtype dtype = how == 2 ? CKPT_Q8_0 : CKPT_BF16;
      uint64_t n_bytes = 0;
      ASSERT_TRUE(ckpt_dtype_bytes(dtype, n * k, &n_bytes));
      std::vector<uint8_t> b(n_bytes);
      std::vector<float> a(4 * k), c(4 * n);
      ckpt_gemm gemm = {};
      gemm.m = 4, gemm.n = n, gemm.k = k, gemm.lda = k, gemm.ldc = n, gemm.alpha = 1;
      gemm.is_b_transposed = how == 0, gemm.is_b_turned = how == 2, gemm.ldb = how == 1 ? n : k;
      gemm.a = a.data(), gemm.b = b.data(), gemm.c = c.data(), gemm.b_dtype = dtype;
      n_shared = n_panels = 0;
      ASSERT_EQ(device->table->gemm(device, &gemm, nullptr), CKPT_OK);
      size_t panels;
      EXPECT_EQ(ckpt_gemm_cpu_bytes(kernels, &gemm, false, &panels), n_shared);
      EXPECT_GE(panels, n_panels) << n << " " << k << " " << how;
      EXPECT_LE(panels, 17u << 20); /* tiles of larger batches are larger */
      EXPECT_NE(n_panels, 0u);
    }
  ckpt_device_free(device);
}

TEST(ProductsPlan, OfAModelIsTheLargest) {
  ckpt_model_options model_options = {};
  model_options.struct_size = sizeof model_options, model_options.needs_backward = model_options.is_bf16 = true;
  for (const char *config : kConfigs) {
    ckpt_model *model = nullptr;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_model_new(&model, config, strlen(config), nullptr, &model_options, &err), CKPT_OK) << err.message;
    ckpt_executor_options options = {};
    options.struct_size = sizeof options, options.max_rows = 3, options.max_length = 40, options.n_threads = 1;
    for (const bool has_backward : {false, true}) {
      options.has_backward = has_backward;
      ckpt_executor *x = nullptr;
      ckpt_executor_memory memory;
      ASSERT_EQ(ckpt_executor_plan(&memory, model, &options, &err), CKPT_OK);
      const uint64_t planned = memory.products;
      ASSERT_EQ(ckpt_executor_new(&x, model, &options, &err), CKPT_OK) << err.message;
      const std::vector<int32_t> ids = Numbers(120, 1);
      ckpt_token_batch batch = BatchOf(3, 40, ids, ids);
      ckpt_forward_result result;
      n_shared = n_panels = 0;
      ASSERT_EQ(has_backward ? ckpt_executor_train(x, &batch, 1, &result, &err)
                             : ckpt_executor_forward(x, &batch, &result, &err),
                CKPT_OK);
      EXPECT_GT(n_shared + n_panels, 0u);
      EXPECT_GE(planned, n_shared + n_panels);
      EXPECT_LT(planned, n_shared + n_panels + 64 + (n_panels == 0 ? 0 : 1 << 20));
      ckpt_executor_free(x);
    }
    ckpt_model_free(model);
  }
}

// A class that gives labels is the family's body with a head of a few rows, the last parameter of the table.
TEST(Labels, AreWhatRowsOfTheHeadGive) {
  const std::string classes[] = {"LlamaForSequenceClassification", "GPT2ForSequenceClassification"};
  for (size_t i = 0; i < 2; i++) {
    std::string config = kConfigs[i];
    config.insert(1, R"("id2label": {"0": "a", "1": "b", "2": "c"}, "architectures": [")" + classes[i] + "\"], ");
    ckpt_model_options options = {};
    options.struct_size = sizeof options;
    ckpt_model *labels = nullptr;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_model_new(&labels, config.data(), config.size(), nullptr, &options, &err), CKPT_EUNSUPPORTED);
    options.may_have_labels = true;
    ASSERT_EQ(ckpt_model_new(&labels, config.data(), config.size(), nullptr, &options, &err), CKPT_OK) << err.message;
    Model tokens(kConfigs[i], false);
    EXPECT_EQ(ckpt_model_logits(labels), 3U);
    EXPECT_EQ(ckpt_model_logits(tokens.model), 50U);
    EXPECT_STREQ(labels->parameters[labels->n_parameters - 1].name, "score.weight");
    Executor of_labels(labels, 2, 7, false), of_tokens(tokens.model, 2, 7, false);
    std::mt19937 engine(5);
    std::normal_distribution<float> normal(0, 0.3F);
    for (uint64_t k = 0; k < tokens.model->n_flat; k++) of_tokens.Parameters()[k] = normal(engine);
    for (uint32_t k = 0; k < labels->n_parameters; k++) {
      const ckpt_parameter *p = &labels->parameters[k];
      const bool is_score = k + 1 == labels->n_parameters;
      const ckpt_parameter *same = ckpt_model_find(tokens.model, is_score ? "lm_head.weight" : p->name);
      ASSERT_NE(same, nullptr) << p->name;
      memcpy(of_labels.Parameters() + p->offset, of_tokens.Parameters() + same->offset, p->n_elements * sizeof(float));
    }
    const std::vector<int32_t> ids = Numbers(14, 1);
    std::vector<float> a(14 * 3), b(14 * 50);
    ckpt_token_batch batch = BatchOf(2, 7, ids, {});
    ckpt_forward_result result;
    batch.logits = a.data();
    ASSERT_EQ(ckpt_executor_forward(of_labels.executor, &batch, &result, &err), CKPT_OK) << err.message;
    batch.logits = b.data();
    ASSERT_EQ(ckpt_executor_forward(of_tokens.executor, &batch, &result, &err), CKPT_OK) << err.message;
    for (size_t token = 0; token < 14; token++)
      for (size_t label = 0; label < 3; label++)
        EXPECT_NEAR(a[token * 3 + label], b[token * 50 + label], 1e-5) << token << ", " << label;
    ckpt_model_free(labels);
  }
}

TEST(Tape, RefusesARowThatLacksASlot) {
  ckpt_tape_op op = {};
  ckpt_error err = {};
  op.name = "imagined";
  EXPECT_EQ(ckpt_tape_check_op(&op, false, &err), CKPT_EUNSUPPORTED);
  EXPECT_STREQ(err.message, "operation 'imagined' has no shapes, which this tape needs");
  op = *ckpt_tape_ops[CKPT_OP_rope];
  op.backward = nullptr;
  err = {};
  EXPECT_EQ(ckpt_tape_check_op(&op, false, &err), CKPT_OK);
  EXPECT_EQ(ckpt_tape_check_op(&op, true, &err), CKPT_EUNSUPPORTED);
  EXPECT_STREQ(err.message, "operation 'rope' has no backward, which this tape needs");
  for (const ckpt_tape_op *row : ckpt_tape_ops) EXPECT_EQ(ckpt_tape_check_op(row, true, nullptr), CKPT_OK) << row->name;
}

}  // namespace
