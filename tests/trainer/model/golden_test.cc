// Logits, loss and gradients of the families equal those of transformers in f64: tests/data/tape.
#include "tests/trainer/model/tape_case.h"

namespace {

using tape::Batch;
using tape::Executor;
using tape::Index;
using tape::Model;

class Golden : public testing::TestWithParam<const char *> {
 protected:
  Golden()
      : folder(tape::DataFolder() + GetParam()),
        golden(folder + ".golden.safetensors"),
        weights(folder),
        model(tape::FileText(folder + "/config.json"), true) {}

  void Load(Executor &x) {
    ckpt_error err = {};
    ASSERT_EQ(ckpt_model_load(x.Parameters(), model.model, weights.index, nullptr, nullptr, &err), CKPT_OK)
        << err.tensor << ": " << err.message;
  }

  // The distance of logits, over the tokens that are no padding.
  double Logits(Executor &x, const char *label) {
    Batch b(golden, label);
    const size_t vocabulary = model.model->vocabulary;
    std::vector<float> logits(b.Tokens() * vocabulary, NAN);
    std::vector<float> expected = golden.Read<float>(std::string(label) + ".logits");
    b.batch.logits = logits.data();
    ckpt_forward_result result;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_executor_forward(x.executor, &b.batch, &result, &err), CKPT_OK) << err.message;
    for (size_t t = 0; t < b.Tokens(); t++)
      if (b.batch.mask != nullptr && b.mask[t] == 0)
        std::copy_n(&expected[t * vocabulary], vocabulary, &logits[t * vocabulary]);
    return tape::Distance(logits.data(), expected.data(), logits.size());
  }

  std::string folder;
  Index golden, weights;
  Model model;
};

TEST_P(Golden, Logits) {
  ASSERT_EQ(model.status, CKPT_OK) << model.err.message;
  const bool is_long = golden.Has("long.ids");
  Executor x(model.model, 2, is_long ? 150 : 24, false);
  Load(x);
  for (const std::string label : {"plain", "padded", "packed", "long"}) {
    if (!golden.Has(label + ".ids")) continue;
    EXPECT_LT(Logits(x, label.c_str()), 1e-5) << label;
  }
}

TEST_P(Golden, LossAndGradients) {
  ASSERT_EQ(model.status, CKPT_OK) << model.err.message;
  Batch b(golden, "train");
  b.batch.dropout_key = 0x0123456789ABCDEF, b.batch.first_row = 5;
  for (uint32_t loss_rows : {0, 7}) {
    Executor x(model.model, 3, 20, true, nullptr, 2, loss_rows);
    Load(x);
    ckpt_forward_result result;
    ASSERT_EQ(ckpt_executor_train(x.executor, &b.batch, 1, &result, &x.err), CKPT_OK) << x.err.message;
    const double loss = golden.Read<double>("train.loss")[0];
    EXPECT_EQ(result.n_targets, 3 * 19 - 6);
    EXPECT_NEAR(result.loss_sum, loss, 1e-5 * loss);
    uint32_t n;
    const ckpt_parameter *p = ckpt_model_parameters(model.model, &n);
    double scale = 0;
    for (uint32_t i = 0; i < n; i++)
      scale = std::max(scale, tape::Largest(x.Gradients() + p[i].offset, p[i].n_elements));
    for (uint32_t i = 0; i < n; i++) {
      std::vector<float> expected = golden.Read<float>(std::string("gradient.") + p[i].name);
      ASSERT_EQ(expected.size(), p[i].n_elements) << p[i].name;
      const float *actual = x.Gradients() + p[i].offset;
      // gradients of a key's bias are zero but for rounding
      if (tape::Largest(expected.data(), expected.size()) < 1e-9 * scale)
        EXPECT_LT(tape::Largest(actual, expected.size()), 1e-5 * scale) << p[i].name;
      else
        EXPECT_LT(tape::Distance(actual, expected.data(), expected.size()), 1e-4) << p[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("llama", "llama-bias", "mistral", "qwen2", "gpt2", "gpt2-exact",
                                         "gpt2-dropout", "llama-dropout"),
                         [](const auto &which) {
                           std::string name = which.param;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
