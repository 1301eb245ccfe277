// Weights as they are stored, and products in bf16: the bits of weights that are f32, for any threads.
#include <cstring>
#include <random>

#include "tests/trainer/model/tape_case.h"

extern "C" {
#include "libckpt/base/backend.h"
#include "libckpt/base/dtype.h"
#include "trainer/model/weights.h"
}

namespace {

using tape::Executor;
using tape::Index;
using tape::Model;
using Floats = std::vector<float>;

Floats Normal(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 1);
  Floats out(n);
  for (float &x : out) x = normal(engine);
  return out;
}

// Rows of x as dtype has them.
std::vector<uint8_t> Stored(ckpt_dtype dtype, const Floats &x, size_t n_columns) {
  uint64_t n_bytes = 0;
  EXPECT_TRUE(ckpt_dtype_bytes(dtype, x.size(), &n_bytes));
  std::vector<uint8_t> out(n_bytes);
  ckpt_cast_stats stats = {};
  if (ckpt_dtype_is_block(dtype))
    EXPECT_TRUE(ckpt_backend_cpu.quantize(dtype, out.data(), x.data(), x.size() / n_columns, n_columns, nullptr));
  else
    ckpt_backend_cpu.cast(dtype, out.data(), CKPT_F32, x.data(), x.size(), &stats);
  return out;
}

// A product of m x k and k x n of a stored b has the bits of its f32, on any number of threads.
void ExpectTheBitsOfItsF32(ckpt_dtype dtype, size_t m, size_t n, size_t k) {
  const Floats a = Normal(m * k, 1), bias = Normal(n, 3);
  for (int how = 0; how < 3; how++) { /* transposed, not, and not but stored as the transpose */
    const bool is_transposed = how == 0, is_turned = how == 2;
    const size_t ldb = is_transposed ? k : n;
    const std::vector<uint8_t> stored = Stored(dtype, Normal(n * k, 2), is_turned ? k : ldb);
    Floats b(n * k);
    ckpt_cast_stats stats = {};
    ckpt_backend_read(&ckpt_backend_cpu, CKPT_F32, b.data(), dtype, stored.data(), n * k, &stats);
    if (is_turned) {
      const Floats rows = b;
      for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < k; j++) b[j * n + i] = rows[i * k + j];
    }
    for (bool is_bf16 : {false, true}) {
      std::vector<Floats> c;
      for (uint32_t n_threads : {1, 3}) {
        ckpt_device *device = nullptr;
        ASSERT_EQ(ckpt_device_cpu_new(&device, n_threads, nullptr, nullptr), CKPT_OK);
        for (bool is_stored : {false, true}) {
          c.emplace_back(m * n, 0.5F);
          ckpt_gemm g = {};
          g.is_b_transposed = is_transposed, g.is_bf16 = is_bf16, g.m = m, g.n = n, g.k = k, g.alpha = 1, g.beta = 1;
          g.a = a.data(), g.lda = k, g.ldb = ldb, g.c = c.back().data(), g.ldc = n, g.bias = bias.data();
          g.b = is_stored ? static_cast<const void *>(stored.data()) : b.data();
          g.b_dtype = is_stored ? dtype : CKPT_DTYPE_NONE;
          if (is_stored && is_turned) g.is_b_turned = true, g.ldb = k;
          EXPECT_EQ(device->table->gemm(device, &g, nullptr), CKPT_OK);
        }
        ckpt_device_free(device);
      }
      for (size_t i = 1; i < c.size(); i++)
        EXPECT_EQ(memcmp(c[0].data(), c[i].data(), m * n * sizeof(float)), 0)
            << i << ", " << how << (is_bf16 ? ", bf16" : "");
    }
  }
}

class StoredProduct : public testing::TestWithParam<ckpt_dtype> {};

// Of several tiles; transposed b is cut between its rows, the other within them, also within a block.
TEST_P(StoredProduct, HasTheBitsOfItsF32) { ExpectTheBitsOfItsF32(GetParam(), 100, 768, 256); }

// The summed axis is taken in slices.
TEST(LongProduct, HasTheBitsOfItsF32) {
  ExpectTheBitsOfItsF32(CKPT_BF16, 2, 256, 16640);
  ExpectTheBitsOfItsF32(CKPT_Q8_0, 2, 256, 16640);
}

// Sums of slices, with what c and bias add once, of factors as they lie and transposed.
TEST(LongProduct, AddsItsSlices) {
  const size_t m = 3, n = 300, k = 17000;
  const Floats a = Normal(m * k, 1), b = Normal(k * n, 2), bias = Normal(n, 3);
  const auto rounded = [](float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof bits);
    return static_cast<double>(x);
  };
  for (const bool turns : {false, true}) { /* both factors are transposed */
    Floats c(m * n, 0.5F);
    ckpt_device *device = nullptr;
    ASSERT_EQ(ckpt_device_cpu_new(&device, 2, nullptr, nullptr), CKPT_OK);
    ckpt_gemm g = {};
    g.is_a_transposed = g.is_b_transposed = turns, g.is_bf16 = true, g.m = m, g.n = n, g.k = k, g.alpha = 1, g.beta = 1;
    g.a = a.data(), g.lda = turns ? m : k, g.b = b.data(), g.ldb = turns ? k : n, g.c = c.data(), g.ldc = n;
    g.bias = bias.data();
    ASSERT_EQ(device->table->gemm(device, &g, nullptr), CKPT_OK);
    ckpt_device_free(device);
    for (size_t i = 0; i < m; i++)
      for (size_t j = 0; j < n; j++) {
        double sum = 0.5 + bias[j];
        for (size_t s = 0; s < k; s++)
          sum += rounded(a[turns ? s * m + i : i * k + s]) * rounded(b[turns ? j * k + s : s * n + j]);
        ASSERT_NEAR(c[i * n + j], sum, 2e-3) << turns << ' ' << i << ' ' << j; /* of sums of some 130 */
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StoredProduct,
                         testing::Values(CKPT_BF16, CKPT_F16, CKPT_Q8_0, CKPT_Q4_0, CKPT_Q4_K, CKPT_Q6_K),
                         [](const auto &which) { return std::string(ckpt_dtype_get(which.param)->name); });

// Logits of a golden model whose weights are bf16, as they are stored and in f32.
Floats Logits(ckpt_executor *x, const Model &model) {
  std::vector<int32_t> ids(24);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int32_t>(i * 7 % model.model->vocabulary);
  Floats logits(ids.size() * model.model->vocabulary, NAN);
  ckpt_token_batch batch = {};
  batch.n_rows = 2, batch.length = 12, batch.ids = ids.data(), batch.logits = logits.data();
  ckpt_forward_result result;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_executor_forward(x, &batch, &result, &err), CKPT_OK) << err.message;
  return logits;
}

class Weights : public testing::TestWithParam<const char *> {};

TEST_P(Weights, AsStoredGiveTheBitsOfF32InLessMemory) {
  const std::string folder = tape::DataFolder() + GetParam();
  Index index(folder);
  for (bool is_bf16 : {false, true}) {
    Model model(tape::FileText(folder + "/config.json"), false, is_bf16);
    ASSERT_EQ(model.status, CKPT_OK) << model.err.message;
    Executor flat(model.model, 2, 12, false);
    ASSERT_EQ(ckpt_model_load(flat.Parameters(), model.model, index.index, nullptr, nullptr, nullptr), CKPT_OK);
    ckpt_weights weights = {};
    ckpt_error err = {};
    ASSERT_EQ(ckpt_weights_load(&weights, model.model, index.index, nullptr, &err), CKPT_OK) << err.message;
    uint64_t n_stored = 0;
    ckpt_weights planned = {};
    ASSERT_EQ(ckpt_weights_plan(&planned, model.model, index.index, nullptr), CKPT_OK);
    EXPECT_EQ(planned.n_bytes, weights.n_bytes);
    EXPECT_EQ(planned.memory, nullptr);
    ckpt_weights_release(&planned);
    for (uint32_t i = 0; i < model.model->n_parameters; i++) {
      const ckpt_parameter *p = &model.model->parameters[i];
      const bool is_matrix = p->rank == 2 && std::string(p->name).find("wpe") == std::string::npos;
      EXPECT_EQ(weights.places[i].dtype, is_matrix ? CKPT_BF16 : CKPT_DTYPE_NONE) << p->name;
      n_stored += p->n_elements * (is_matrix ? 2 : 4);
    }
    EXPECT_LE(weights.n_bytes, n_stored + 64 * static_cast<uint64_t>(model.model->n_parameters));
    ckpt_executor_options options = {};
    options.struct_size = sizeof options, options.max_rows = 2, options.max_length = 12;
    options.places = weights.places;
    ckpt_executor *x = nullptr;
    ASSERT_EQ(ckpt_executor_new(&x, model.model, &options, &err), CKPT_OK) << err.message;
    const Floats of_stored = Logits(x, model), of_f32 = Logits(flat.executor, model);
    EXPECT_EQ(memcmp(of_stored.data(), of_f32.data(), of_f32.size() * sizeof(float)), 0);
    ckpt_executor_free(x);
    ckpt_weights_release(&weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Weights, testing::Values("llama", "mistral", "qwen2", "gpt2"),
                         [](const auto &which) { return std::string(which.param); });

// Training in bf16: the same bits for any threads, and near f32's, which it is not.
TEST(Bf16, TrainsToTheSameBitsForAnyThreads) {
  const std::string folder = tape::DataFolder() + "llama", config = tape::FileText(folder + "/config.json");
  Index index(folder);
  std::vector<int32_t> ids(3 * 20);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int32_t>(i * 11 % 61);
  std::vector<Floats> gradients;
  std::vector<double> losses;
  for (uint32_t kind = 0; kind < 3; kind++) { /* bf16 on 1 thread and on 3, then f32 */
    Model model(config, true, kind != 2);
    Executor x(model.model, 3, 20, true, nullptr, kind == 1 ? 3 : 1, 7);
    ASSERT_EQ(ckpt_model_load(x.Parameters(), model.model, index.index, nullptr, nullptr, nullptr), CKPT_OK);
    ckpt_token_batch batch = {};
    batch.n_rows = 3, batch.length = 20, batch.ids = ids.data(), batch.targets = ids.data();
    ckpt_forward_result result;
    ASSERT_EQ(ckpt_executor_train(x.executor, &batch, 1, &result, &x.err), CKPT_OK) << x.err.message;
    losses.push_back(result.loss_sum);
    gradients.emplace_back(x.Gradients(), x.Gradients() + model.model->n_flat);
  }
  EXPECT_EQ(memcmp(&losses[0], &losses[1], sizeof(double)), 0);
  EXPECT_EQ(memcmp(gradients[0].data(), gradients[1].data(), gradients[0].size() * sizeof(float)), 0);
  EXPECT_NEAR(losses[0], losses[2], 5e-3 * losses[2]);
  const double distance = tape::Distance(gradients[0].data(), gradients[2].data(), gradients[2].size());
  EXPECT_GT(distance, 1e-5);
  EXPECT_LT(distance, 3e-2);
}

}  // namespace
