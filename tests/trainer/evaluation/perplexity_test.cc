// Perplexity and divergence against sums over the logits of each window, made here.
#include "tests/trainer/model/tape_case.h"

extern "C" {
#include "trainer/evaluation/perplexity.h"
}

namespace {

using tape::Executor;
using tape::Index;
using tape::Model;

class Perplexity : public testing::Test {
 protected:
  Perplexity()
      : folder(tape::DataFolder() + "llama"), weights(folder), model(tape::FileText(folder + "/config.json"), false) {
    for (size_t i = 0; i < 75; i++) ids.push_back(static_cast<int32_t>((i * 37 + i * i) % model.model->vocabulary));
  }

  void Load(Executor &x, float scale = 1) {
    ASSERT_EQ(ckpt_model_load(x.Parameters(), model.model, weights.index, nullptr, nullptr, nullptr), CKPT_OK);
    uint32_t n;
    ckpt_model_parameters(model.model, &n);
    for (size_t i = 0; i < model.model->n_flat; i++) x.Parameters()[i] *= scale;
  }

  // log p of each token of a window after the first, and the logits of all.
  std::vector<double> LogP(Executor &x, std::vector<int32_t> window, std::vector<float> *logits) {
    const size_t v = model.model->vocabulary;
    logits->resize(window.size() * v);
    ckpt_token_batch batch = {};
    batch.n_rows = 1, batch.length = static_cast<uint32_t>(window.size());
    batch.ids = window.data(), batch.logits = logits->data();
    ckpt_forward_result result;
    EXPECT_EQ(ckpt_executor_forward(x.executor, &batch, &result, nullptr), CKPT_OK);
    std::vector<double> out = {0};
    for (size_t t = 0; t + 1 < window.size(); t++) out.push_back(LogSoftmax(&(*logits)[t * v])[window[t + 1]]);
    return out;
  }

  std::vector<double> LogSoftmax(const float *row) {
    const size_t v = model.model->vocabulary;
    double sum = 0;
    for (size_t i = 0; i < v; i++) sum += std::exp(static_cast<double>(row[i]));
    std::vector<double> out;
    for (size_t i = 0; i < v; i++) out.push_back(static_cast<double>(row[i]) - std::log(sum));
    return out;
  }

  ckpt_perplexity Run(Executor &x, Executor *reference, const ckpt_perplexity_options &options) {
    ckpt_perplexity out = {};
    ckpt_error err = {};
    EXPECT_EQ(ckpt_perplexity_run(&out, x.executor, reference == nullptr ? nullptr : reference->executor,
                                  model.model->vocabulary, ids.data(), ids.size(), &options, &err),
              CKPT_OK)
        << err.message;
    return out;
  }

  ckpt_status Refused(Executor &x, const ckpt_perplexity_options &options, size_t n) {
    ckpt_perplexity out;
    return ckpt_perplexity_run(&out, x.executor, nullptr, model.model->vocabulary, ids.data(), n, &options, nullptr);
  }

  static ckpt_perplexity_options Options(ckpt_scoring scoring, uint32_t ctx, uint32_t stride = 0, int32_t bos = -1) {
    ckpt_perplexity_options options = {};
    options.scoring = scoring, options.ctx = ctx, options.stride = stride, options.bos = bos;
    return options;
  }

  std::string folder;
  Index weights;
  Model model;
  std::vector<int32_t> ids;
};

// Logits are compared a chunk of tokens at a time, whichever chunks these are; a model without a reference is scored to
// the same bits.
TEST_F(Perplexity, ComparesByChunks) {
  for (const ckpt_perplexity_options &options :
       {Options(CKPT_SCORING_LLAMA, 16), Options(CKPT_SCORING_HF, 20, 13), Options(CKPT_SCORING_LLAMA, 3)}) {
    std::vector<ckpt_perplexity> results;
    for (uint32_t loss_rows : {0, 3, 7}) {
      Executor x(model.model, 1, 20, false, nullptr, 2, loss_rows), y(model.model, 1, 20, false, nullptr, 2, loss_rows);
      Load(x);
      Load(y, 0.9F);
      results.push_back(Run(x, &y, options));
      const ckpt_perplexity alone = Run(x, nullptr, options);
      EXPECT_EQ(alone.nll, results.back().nll);
      EXPECT_EQ(alone.ppl_stderr, results.back().ppl_stderr);
    }
    EXPECT_GT(results[0].kl_mean, 0);
    for (const ckpt_perplexity &r : results) {
      EXPECT_NEAR(r.kl_mean, results[0].kl_mean, 1e-5 * r.kl_mean);
      EXPECT_NEAR(r.kl_max, results[0].kl_max, 1e-4 * r.kl_max);
      EXPECT_NEAR(r.ref_ppl, results[0].ref_ppl, 1e-5 * r.ref_ppl);
      EXPECT_EQ(r.top1, results[0].top1);
    }
  }
}

TEST_F(Perplexity, LlamaScoresTheSecondHalfOfWholeWindows) {
  Executor x(model.model, 1, 16, false);
  Load(x);
  std::vector<float> logits;
  double sum = 0, squares = 0;
  size_t n = 0;
  for (size_t begin = 0; begin + 16 <= ids.size(); begin += 16) {
    std::vector<int32_t> window(ids.begin() + begin, ids.begin() + begin + 16);
    window[0] = 3;
    std::vector<double> log_p = LogP(x, window, &logits);
    for (size_t t = 9; t < 16; t++, n++) sum -= log_p[t], squares += log_p[t] * log_p[t];
  }
  ckpt_perplexity got = Run(x, nullptr, Options(CKPT_SCORING_LLAMA, 16, 0, 3));
  EXPECT_EQ(got.n_tokens, n);
  EXPECT_EQ(got.n_windows, 4u);
  EXPECT_TRUE(got.is_finite);
  const double mean = sum / n, variance = squares / n - mean * mean;
  EXPECT_NEAR(got.nll, mean, 1e-6);
  EXPECT_NEAR(got.ppl, std::exp(mean), 1e-5 * std::exp(mean));
  EXPECT_NEAR(got.ppl_stderr, std::exp(mean) * std::sqrt(variance / (n - 1)), 1e-4 * got.ppl_stderr + 1e-6);
}

TEST_F(Perplexity, HfScoresEveryTokenOnceWithWhatItsWindowKnows) {
  Executor x(model.model, 1, 20, false);
  Load(x);
  std::vector<float> logits;
  double sum = 0;
  size_t n = 0, scored = 1;
  for (size_t begin = 0; scored < ids.size(); begin += 8) {
    std::vector<int32_t> window(ids.begin() + begin, ids.begin() + std::min(begin + 20, ids.size()));
    std::vector<double> log_p = LogP(x, window, &logits);
    for (; scored < begin + window.size(); scored++, n++) sum -= log_p[scored - begin];
  }
  ckpt_perplexity got = Run(x, nullptr, Options(CKPT_SCORING_HF, 20, 8));
  EXPECT_EQ(got.n_tokens, ids.size() - 1);
  EXPECT_EQ(n, ids.size() - 1);
  EXPECT_NEAR(got.nll, sum / n, 1e-6);
  got =
      Run(x, nullptr, Options(CKPT_SCORING_HF, 20));  // windows that do not overlap: their first tokens follow nothing
  EXPECT_EQ(got.n_tokens, ids.size() - 4);
  EXPECT_EQ(got.n_windows, 4u);
}

TEST_F(Perplexity, DivergenceIsThatOfTheReferencesDistribution) {
  Executor x(model.model, 1, 16, false), reference(model.model, 1, 16, false);
  Load(x, 0.9F);
  Load(reference);
  const size_t v = model.model->vocabulary;
  std::vector<float> of_x, of_reference;
  std::vector<double> kl;
  size_t same = 0;
  for (size_t begin = 0; begin + 16 <= ids.size(); begin += 16) {
    std::vector<int32_t> window(ids.begin() + begin, ids.begin() + begin + 16);
    LogP(x, window, &of_x);
    LogP(reference, window, &of_reference);
    for (size_t t = 8; t < 15; t++) {
      std::vector<double> q = LogSoftmax(&of_x[t * v]), p = LogSoftmax(&of_reference[t * v]);
      double sum = 0;
      for (size_t i = 0; i < v; i++) sum += std::exp(p[i]) * (p[i] - q[i]);
      kl.push_back(sum);
      same += std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
    }
  }
  ckpt_perplexity got = Run(x, &reference, Options(CKPT_SCORING_LLAMA, 16));
  double mean = 0;
  for (double value : kl) mean += value / static_cast<double>(kl.size());
  std::sort(kl.begin(), kl.end());
  EXPECT_NEAR(got.kl_mean, mean, 1e-6);
  EXPECT_NEAR(got.kl_max, kl.back(), 1e-6);
  EXPECT_NEAR(got.kl_median, (kl[13] + kl[14]) / 2, 1e-6);
  EXPECT_DOUBLE_EQ(got.top1, static_cast<double>(same) / static_cast<double>(kl.size()));
  EXPECT_GT(got.kl_mean, 0);
  ckpt_perplexity alone = Run(x, nullptr, Options(CKPT_SCORING_LLAMA, 16));
  EXPECT_EQ(alone.nll, got.nll);
  EXPECT_NEAR(got.ppl_ratio, got.ppl / got.ref_ppl, 1e-9);
  got = Run(reference, &reference, Options(CKPT_SCORING_LLAMA, 16));
  EXPECT_EQ(got.kl_max, 0);
  EXPECT_EQ(got.top1, 1);
  EXPECT_EQ(got.ppl_ratio, 1);
}

TEST_F(Perplexity, TheSameBitsForAnyThreads) {
  Executor one(model.model, 1, 16, false, nullptr, 1), three(model.model, 1, 16, false, nullptr, 3);
  Load(one, 0.9F);
  Load(three, 0.9F);
  ckpt_perplexity a = Run(one, &three, Options(CKPT_SCORING_LLAMA, 16));
  ckpt_perplexity b = Run(three, &one, Options(CKPT_SCORING_LLAMA, 16));
  EXPECT_EQ(a.nll, b.nll);
  EXPECT_EQ(a.kl_mean, 0);
}

TEST_F(Perplexity, WhatIsNoNumberIsSaidAndShortTextsAreRefused) {
  Executor x(model.model, 1, 16, false);
  Load(x, NAN);
  EXPECT_FALSE(Run(x, nullptr, Options(CKPT_SCORING_LLAMA, 16)).is_finite);
  EXPECT_EQ(Refused(x, Options(CKPT_SCORING_LLAMA, 16), 31), CKPT_ENOTFOUND);
  EXPECT_EQ(Refused(x, Options(CKPT_SCORING_HF, 16), 1), CKPT_ENOTFOUND);
  EXPECT_EQ(Refused(x, Options(CKPT_SCORING_LLAMA, 2), 75), CKPT_EINVAL);  // its second half is no token
  EXPECT_EQ(Refused(x, Options(CKPT_SCORING_HF, 16, 17), 75), CKPT_EINVAL);
  EXPECT_EQ(Refused(x, Options(CKPT_SCORING_LLAMA, 17), 75), CKPT_EINVAL);  // past what is planned
}

}  // namespace
