// Factors of products in bf16: what products alone read is rounded where it lies, once, and no bit of a result changes.
#include "tests/trainer/model/tape_case.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

extern "C" {
#include "trainer/lora/lora.h"
#include "trainer/model/memory_plan.h"
}

namespace {

using tape::Model;

const char *const kConfigs[] = {
    R"({"model_type": "llama", "vocab_size": 50, "hidden_size": 24, "intermediate_size": 33, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 300,
        "attention_bias": true, "mlp_bias": true})",
    R"({"model_type": "gpt2", "vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 300})"};

// A device of the CPU that is told, or not, what has been rounded and may be.
ckpt_device_table real_table;
size_t n_scratch, n_rounded;

ckpt_status CountHints(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  n_scratch += gemm->is_a_scratch;
  n_rounded += gemm->is_a_rounded + gemm->is_b_rounded;
  return real_table.gemm(device, gemm, err);
}

ckpt_status DropHints(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  ckpt_gemm g = *gemm;
  g.is_a_scratch = g.is_a_rounded = g.is_b_rounded = false;
  return real_table.gemm(device, &g, err);
}

struct Result {
  double loss_sum;
  std::vector<float> gradients, log_probabilities;
};

std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<float> out(n);
  for (float &x : out) x = normal(engine);
  return out;
}

Result Train(const ckpt_model *model, const ckpt_lora *lora, const ckpt_tape_kernels *kernels,
             ckpt_recompute_kind recompute, decltype(real_table.gemm) gemm) {
  const uint32_t rows = 3, length = 40;
  ckpt_error err = {};
  ckpt_device *device = nullptr;
  EXPECT_EQ(ckpt_device_cpu_new(&device, 2, kernels, &err), CKPT_OK);
  const ckpt_device_table *kept = device->table;
  real_table = *kept;
  ckpt_device_table table = *kept;
  table.gemm = gemm;
  device->table = &table;
  std::vector<float> base = Normal(model->n_flat, 5), own = Normal(lora == nullptr ? 0 : lora->table.n_flat, 6);
  Result result;
  result.gradients.resize(lora == nullptr ? base.size() : own.size());
  std::vector<ckpt_parameter_place> places(model->n_parameters + (lora == nullptr ? 0 : lora->table.n_parameters));
  ckpt_lora_weights weights = {};
  weights.base = base.data(), weights.own = own.data(), weights.own_gradients = result.gradients.data();
  if (lora != nullptr)
    ckpt_lora_places(lora, &weights, places.data());
  else
    for (uint32_t i = 0; i < model->n_parameters; i++)
      places[i].weights = base.data() + model->parameters[i].offset,
      places[i].gradients = result.gradients.data() + model->parameters[i].offset;
  ckpt_executor_options options = {};
  options.struct_size = sizeof options, options.max_rows = rows, options.max_length = length, options.device = device;
  options.has_backward = true, options.recompute = recompute, options.places = places.data();
  options.loss_rows = 50;
  ckpt_executor *x = nullptr;
  EXPECT_EQ(ckpt_executor_new(&x, model, &options, &err), CKPT_OK) << err.message;
  std::vector<int32_t> ids(rows * length);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = (int32_t)(i * 31 % 50);
  result.log_probabilities.resize(ids.size());
  ckpt_token_batch batch = {};
  batch.n_rows = rows, batch.length = length, batch.ids = batch.targets = ids.data();
  batch.log_probabilities = result.log_probabilities.data();
  ckpt_forward_result forward, trained;
  for (int pass = 0; pass < 2; pass++) {  // what the first leaves rounded does not mislead the second
    EXPECT_EQ(ckpt_executor_forward(x, &batch, &forward, &err), CKPT_OK) << err.message;
    EXPECT_EQ(ckpt_executor_train(x, &batch, 0.5, &trained, &err), CKPT_OK) << err.message;
  }
  result.loss_sum = trained.loss_sum;
  ckpt_executor_free(x);
  device->table = kept;
  ckpt_device_free(device);
  return result;
}

void ExpectSame(const Result &a, const Result &b) {
  EXPECT_TRUE(std::isfinite(a.loss_sum));
  EXPECT_EQ(a.loss_sum, b.loss_sum);
  EXPECT_EQ(a.log_probabilities, b.log_probabilities);
  EXPECT_EQ(memcmp(a.gradients.data(), b.gradients.data(), a.gradients.size() * sizeof(float)), 0);
}

/* Every level of this processor, however much is made again, gives what products that round by themselves give. */
void ExpectNoBitChanges(const ckpt_model *model, const ckpt_lora *lora) {
  for (size_t level = 0; ckpt_tape_kernels_cpu(level) != nullptr; level++) {
    const ckpt_tape_kernels *kernels = ckpt_tape_kernels_cpu(level);
    const Result expected = Train(model, lora, kernels, CKPT_RECOMPUTE_NONE, DropHints);
    for (const auto recompute : {CKPT_RECOMPUTE_NONE, CKPT_RECOMPUTE_SELECTIVE, CKPT_RECOMPUTE_FULL}) {
      SCOPED_TRACE(std::string(kernels->name) + ", recompute " + std::to_string(recompute));
      n_scratch = n_rounded = 0;
      ExpectSame(Train(model, lora, kernels, recompute, CountHints), expected);
      EXPECT_GT(n_scratch, 0U);
      EXPECT_GT(n_rounded, 0U);
    }
  }
}

TEST(Factors, AreRoundedOnceWithoutAChangedBit) {
  for (const char *config : kConfigs) {
    Model model(config, true, true);
    ASSERT_EQ(model.status, CKPT_OK) << model.err.message;
    ExpectNoBitChanges(model.model, nullptr);
  }
}

TEST(Factors, OfAdaptersToo) {
  const std::string folder = testing::TempDir() + "factors_lora";
  std::filesystem::create_directories(folder);
  for (const char *dropout : {"0", "0.25"}) {
    std::ofstream(folder + "/adapter_config.json")
        << R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"])"
        << ", \"lora_dropout\": " << dropout << "}";
    Model model(kConfigs[0], true, true);
    ASSERT_EQ(model.status, CKPT_OK) << model.err.message;
    ckpt_lora *lora = nullptr;
    ASSERT_EQ(ckpt_lora_new(&lora, folder.c_str(), model.model, "model", &model.err), CKPT_OK) << model.err.message;
    ASSERT_EQ(ckpt_lora_apply(lora, model.model, &model.err), CKPT_OK) << model.err.message;
    ExpectNoBitChanges(model.model, lora);
    ckpt_lora_free(lora);
  }
}

// A value that something else reads too stays as it is: attention's output, which its backward reads, the residual.
TEST(Factors, AreWhatProductsAloneRead) {
  for (const char *config : kConfigs) {
    Model model(config, true, true);
    ckpt_arena arena;
    ckpt_arena_init(&arena, UINT64_MAX);
    ckpt_memory_plan plan;
    const ckpt_tape_limits limits = {120, 3, 40, 120, 4, CKPT_RECOMPUTE_NONE};
    for (const bool has_backward : {false, true}) {
      ASSERT_EQ(ckpt_memory_plan_make(&plan, &arena, &model.model->tape, &limits, has_backward, nullptr), CKPT_OK);
      const ckpt_tape *tape = &model.model->tape;
      size_t n = 0;
      for (uint32_t i = 0; i < tape->n_entries; i++) {
        const ckpt_tape_entry *entry = &tape->entries[i];
        const std::string op = ckpt_tape_ops[entry->op]->name;
        const bool is_norm = op == "rmsnorm" || op == "layernorm";
        if (op == "attention") {
          EXPECT_EQ(plan.is_factor[entry->out[0]], !has_backward);
        }
        if (is_norm || op == "gelu" || op == "silu_mul") {
          EXPECT_TRUE(plan.is_factor[entry->out[0]]);
        }
        if (is_norm && entry->n_in == 2) {
          EXPECT_FALSE(plan.is_factor[entry->out[2]]);
        }
        n += op == "embedding" && plan.is_factor[entry->out[0]];
      }
      EXPECT_EQ(n, 0U);
    }
    ckpt_arena_free(&arena);
  }
}

}  // namespace
