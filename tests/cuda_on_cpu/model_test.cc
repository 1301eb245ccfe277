// Whole models on CUDA: logits, loss, gradients and perplexity are the CPU's; failures of the device are said.
#include "emulator.h"
#include "tests/trainer/model/tape_case.h"

extern "C" {
#include "trainer/evaluation/perplexity.h"
#include "trainer/evaluation/runner.h"
}

namespace {

using cuda_on_cpu::control;

// A golden case's model on a device.
struct On {
  On(const ckpt_model *model, const ckpt_index *weights, const char *name, bool has_backward) {
    ckpt_executor_options options = {};
    options.struct_size = sizeof options, options.max_rows = 3, options.max_length = 24;
    options.has_backward = has_backward, options.loss_rows = 7;
    EXPECT_EQ(ckpt_device_choose(&device, name, 2, &err), CKPT_OK) << err.message;
    EXPECT_STREQ(device->table->name, name);
    options.device = device;
    EXPECT_EQ(ckpt_executor_new(&executor, model, &options, &err), CKPT_OK) << err.message;
    EXPECT_EQ(ckpt_executor_load(executor, weights, nullptr, &err), CKPT_OK) << err.message;
  }
  ~On() {
    ckpt_executor_free(executor);
    ckpt_device_free(device);
  }
  On(const On &) = delete;
  std::vector<float> Gradients(size_t n) {
    std::vector<float> out(n);
    device->table->copy_out(device, out.data(), ckpt_executor_gradients(executor), n * sizeof(float));
    EXPECT_EQ(device->table->synchronize(device, &err), CKPT_OK) << err.message;
    return out;
  }
  ckpt_device *device = nullptr;
  ckpt_executor *executor = nullptr;
  ckpt_error err = {};
};

class CudaModel : public testing::TestWithParam<const char *> {
 protected:
  CudaModel()
      : folder(tape::DataFolder() + GetParam()),
        golden(folder + ".golden.safetensors"),
        weights(folder),
        model(tape::FileText(folder + "/config.json"), true) {}
  std::string folder;
  tape::Index golden, weights;
  tape::Model model;
};

// Products alone may round differently.
constexpr double kLogits = 1e-5, kGradients = 1e-4;

TEST_P(CudaModel, LogitsAreTheCpus) {
  ASSERT_EQ(model.status, CKPT_OK);
  for (const std::string label : {"plain", "padded", "packed"}) {
    if (!golden.Has(label + ".ids")) continue;
    tape::Batch b(golden, label.c_str());
    std::vector<float> logits[2];
    for (int i = 0; i < 2; i++) {
      On x(model.model, weights.index, i == 0 ? "cpu" : "cuda", false);
      logits[i].assign(b.Tokens() * model.model->vocabulary, NAN);
      b.batch.logits = logits[i].data();
      ckpt_forward_result result;
      ASSERT_EQ(ckpt_executor_forward(x.executor, &b.batch, &result, &x.err), CKPT_OK) << x.err.message;
    }
    EXPECT_LT(tape::Distance(logits[1].data(), logits[0].data(), logits[0].size()), kLogits) << label;
  }
}

TEST_P(CudaModel, LossAndGradientsAreTheCpus) {
  ASSERT_EQ(model.status, CKPT_OK);
  tape::Batch b(golden, "train");
  const size_t n = (size_t)model.model->n_flat;
  std::vector<float> gradients[2];
  ckpt_forward_result result[2];
  for (int i = 0; i < 2; i++) {
    On x(model.model, weights.index, i == 0 ? "cpu" : "cuda", true);
    const size_t n_allocated = control.n_allocated;
    ASSERT_EQ(ckpt_executor_train(x.executor, &b.batch, 1, &result[i], &x.err), CKPT_OK) << x.err.message;
    EXPECT_EQ(control.n_allocated, n_allocated) << "memory that is not the arena's";
    gradients[i] = x.Gradients(n);
    EXPECT_LE(ckpt_executor_high_water(x.executor), ckpt_executor_memory_of(x.executor)->arena);
  }
  EXPECT_EQ(result[0].n_targets, result[1].n_targets);
  EXPECT_NEAR(result[1].loss_sum, result[0].loss_sum, 1e-5 * result[0].loss_sum);
  EXPECT_GT(tape::Largest(gradients[0].data(), n), 0);
  EXPECT_LT(tape::Distance(gradients[1].data(), gradients[0].data(), n), kGradients);
}

// In bf16, against f32 on the same device: 0 on the CPU, 1 on the default, which is CUDA where it can be used.
TEST_P(CudaModel, PerplexityAndDivergenceAreTheCpus) {
  std::vector<int32_t> ids = golden.Read<int32_t>("plain.ids", CKPT_I32);
  ckpt_perplexity_options options = {};
  options.ctx = 8, options.scoring = CKPT_SCORING_LLAMA, options.bos = -1;
  ckpt_perplexity result[2];
  for (int i = 0; i < 2; i++) {
    ckpt_runner_options with = {};
    with.max_rows = 1, with.max_length = 8, with.n_threads = 2, with.device = i == 0 ? "cpu" : nullptr;
    ckpt_runner runner, reference;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_runner_open(&reference, weights.index, &with, &err), CKPT_OK) << err.message;
    with.is_bf16 = true;
    ASSERT_EQ(ckpt_runner_open(&runner, weights.index, &with, &err), CKPT_OK) << err.message;
    EXPECT_STREQ(runner.device->table->name, i == 0 ? "cpu" : "cuda");
    ASSERT_EQ(ckpt_perplexity_run(&result[i], runner.executor, reference.executor, runner.model->vocabulary, ids.data(),
                                  ids.size(), &options, &err),
              CKPT_OK)
        << err.message;
    ckpt_runner_close(&runner);
    ckpt_runner_close(&reference);
  }
  EXPECT_EQ(result[0].n_tokens, result[1].n_tokens);
  EXPECT_NEAR(result[1].ref_ppl, result[0].ref_ppl, 1e-6 * result[0].ref_ppl);
  EXPECT_NEAR(result[1].nll, result[0].nll, 1e-4 * result[0].nll);
  EXPECT_GT(result[1].kl_mean, 0);
  EXPECT_NEAR(result[1].kl_mean, result[0].kl_mean, 0.2 * result[0].kl_mean);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaModel, testing::Values("llama", "qwen2", "gpt2"));

TEST(CudaDevice, ReasonsAreGiven) {
  ckpt_error err = {};
  ckpt_device *device = nullptr;
  control.n_devices = 0;
  EXPECT_EQ(ckpt_device_choose(&device, "cuda", 1, &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(std::string(err.message).find("no CUDA-capable device"), std::string::npos) << err.message;
  EXPECT_EQ(ckpt_device_choose(&device, nullptr, 1, &err), CKPT_OK);
  EXPECT_STREQ(device->table->name, "cpu");
  ckpt_device_free(device);
  control.n_devices = 1;
  control.capability = 7;
  err = {};
  EXPECT_EQ(ckpt_device_check("cuda", &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(std::string(err.message).find("compute capability 7"), std::string::npos) << err.message;
  EXPECT_EQ(ckpt_device_check(nullptr, nullptr), CKPT_OK);
  control.capability = 9;
}

TEST(CudaDevice, NoMemoryIsSaidAndReleased) {
  tape::Index weights(tape::DataFolder() + "llama");
  tape::Model model(tape::FileText(tape::DataFolder() + "llama/config.json"), false);
  const size_t before = control.n_allocated;
  for (size_t limit : {size_t(1) << 20, size_t(32) << 20, (size_t(32) << 20) + 1000}) {
    control.limit = before + limit;
    ckpt_error err = {};
    ckpt_runner_options with = {};
    with.max_rows = 1, with.max_length = 8, with.device = "cuda";
    ckpt_runner runner;
    EXPECT_NE(ckpt_runner_open(&runner, weights.index, &with, &err), CKPT_OK);
    EXPECT_NE(std::string(err.message), "");
    ckpt_runner_close(&runner);
    EXPECT_EQ(control.n_allocated, before);
  }
  control.limit = SIZE_MAX;
}

TEST(CudaDevice, AFailureStaysUntilItIsAskedFor) {
  ckpt_error err = {};
  ckpt_device *device = nullptr;
  ASSERT_EQ(ckpt_device_choose(&device, "cuda", 1, &err), CKPT_OK) << err.message;
  float host[4] = {};
  device->table->copy_in(device, host, host, sizeof host);  // no memory of the device
  device->table->fill_zero(device, host, sizeof host);
  EXPECT_EQ(device->table->synchronize(device, &err), CKPT_EIO);
  EXPECT_NE(std::string(err.message).find("copy_in"), std::string::npos) << err.message;
  EXPECT_EQ(device->table->synchronize(device, nullptr), CKPT_OK);
  ckpt_device_free(device);
}

TEST(CudaDevice, EventsOrderAndTime) {
  for (const char *name : {"cpu", "cuda"}) {
    ckpt_error err = {};
    ckpt_device *device = nullptr, *other = nullptr;
    ASSERT_EQ(ckpt_device_choose(&device, name, 1, &err), CKPT_OK) << err.message;
    ASSERT_EQ(ckpt_device_choose(&other, name, 1, &err), CKPT_OK) << err.message;
    const ckpt_device_table *t = device->table;
    ckpt_device_event *from = t->event_new(device), *to = t->event_new(device);
    t->event_record(device, from);
    t->event_record(device, to);
    t->event_wait(other, to);
    EXPECT_EQ(t->synchronize(other, &err), CKPT_OK);
    EXPECT_TRUE(t->event_is_done(device, to));
    EXPECT_GE(t->event_seconds(device, from, to), 0);
    EXPECT_EQ(t->stream(device) == nullptr, std::string(name) == "cpu");
    t->event_free(device, from);
    t->event_free(device, to);
    ckpt_device_free(device);
    ckpt_device_free(other);
  }
}

}  // namespace
