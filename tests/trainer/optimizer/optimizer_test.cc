// AdamW, the norm, clipping and schedules, as training runs them, against torch and transformers
// (tests/data/make_training_goldens.py); Philox.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "trainer/model/device.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/random.h"
#include "trainer/optimizer/schedule.h"
}

namespace {

json_t *golden(const char *name) {
  const std::string path = std::string(CKPT_TESTS_DIR) + "/data/training/" + name;
  json_error_t error;
  json_t *root = json_load_file(path.c_str(), 0, &error);
  EXPECT_NE(root, nullptr) << path << ": " << error.text;
  return root;
}

double number(const json_t *object, const char *key, double otherwise) {
  const json_t *value = json_object_get(object, key);
  return value == nullptr ? otherwise : json_number_value(value);
}

std::vector<float> floats(const json_t *list) {
  std::vector<float> out;
  for (size_t i = 0; i < json_array_size(list); i++) out.push_back(float(json_number_value(json_array_get(list, i))));
  return out;
}

ckpt_slope slope(const json_t *kwargs, const char *key, ckpt_slope otherwise) {
  const char *text = json_string_value(json_object_get(kwargs, key));
  if (text == nullptr) return otherwise;
  return std::string(text) == "linear"   ? CKPT_SLOPE_LINEAR
         : std::string(text) == "cosine" ? CKPT_SLOPE_COSINE
                                         : CKPT_SLOPE_SQRT;
}

TEST(Schedule, GivesTheRatesOfTransformers) {
  json_t *root = golden("schedules.json");
  size_t n_rates = 0;
  std::set<std::string> kinds;
  for (size_t i = 0; i < json_array_size(root); i++) {
    const json_t *row = json_array_get(root, i), *kwargs = json_object_get(row, "kwargs");
    const char *name = json_string_value(json_object_get(row, "name"));
    kinds.insert(name);
    ckpt_schedule s = ckpt_schedule_default(ckpt_schedule_find(name), 1e-3, uint64_t(number(row, "warmup", 0)),
                                            uint64_t(number(row, "total", 0)));
    s.n_cycles = number(kwargs, "num_cycles", s.n_cycles);
    s.end = number(kwargs, "lr_end", s.end);
    s.power = number(kwargs, "power", s.power);
    s.timescale = number(kwargs, "timescale", 0);
    s.min_rate =
        number(kwargs, "min_lr", 0) / 1e-3 + number(kwargs, "min_lr_rate", 0) + number(kwargs, "min_lr_ratio", 0);
    s.warmup_rate = number(kwargs, "warmup_lr_rate", -1);
    if (json_object_get(kwargs, "num_stable_steps") != nullptr)
      s.n_stable = uint64_t(number(kwargs, "num_stable_steps", 0));
    if (json_object_get(kwargs, "num_decay_steps") != nullptr)
      s.n_decay = uint64_t(number(kwargs, "num_decay_steps", 0));
    s.warmup = slope(kwargs, "warmup_type", s.warmup);
    s.decay = slope(kwargs, "decay_type", s.decay);
    ASSERT_EQ(ckpt_schedule_check(&s, nullptr), CKPT_OK) << name;
    const json_t *rates = json_object_get(row, "rates");
    for (size_t step = 0; step < json_array_size(rates); step++, n_rates++)
      EXPECT_EQ(ckpt_schedule_rate(&s, nullptr, step), json_number_value(json_array_get(rates, step)))
          << name << " (row " << i << ") at step " << step;
  }
  EXPECT_EQ(kinds.size(), size_t(CKPT_N_SCHEDULES) - 1);  // but for the one that goes by evaluations
  EXPECT_GT(n_rates, 300u);
  json_decref(root);
}

TEST(Schedule, FallsOnAPlateauAsTorchDoes) {
  json_t *root = golden("plateau.json");
  ASSERT_EQ(json_array_size(root), 6u);
  size_t n_falls = 0;
  for (size_t i = 0; i < json_array_size(root); i++) {
    const json_t *row = json_array_get(root, i), *kwargs = json_object_get(row, "kwargs");
    const auto is = [&](const char *key, const char *word) {
      const char *text = json_string_value(json_object_get(kwargs, key));
      return text != nullptr && std::string(text) == word;
    };
    ckpt_schedule s = ckpt_schedule_default(CKPT_SCHEDULE_REDUCE_ON_PLATEAU, 1e-3, 0, 100);
    s.plateau.factor = number(kwargs, "factor", s.plateau.factor);
    s.plateau.patience = uint64_t(number(kwargs, "patience", 10));
    s.plateau.cooldown = uint64_t(number(kwargs, "cooldown", 0));
    s.plateau.threshold = number(kwargs, "threshold", s.plateau.threshold);
    s.plateau.epsilon = number(kwargs, "eps", s.plateau.epsilon);
    s.plateau.least = number(kwargs, "min_lr", 0);
    s.plateau.is_max = is("mode", "max");
    s.plateau.is_absolute = is("threshold_mode", "abs");
    ckpt_plateau state = {};
    state.rate = 1e-3, state.best = NAN;
    const json_t *metrics = json_object_get(row, "metrics"), *rates = json_object_get(row, "rates");
    for (size_t k = 0; k < json_array_size(metrics); k++) {
      const json_t *metric = json_array_get(metrics, k);
      const double before = state.rate;
      ckpt_plateau_step(&state, &s, json_is_null(metric) ? NAN : json_number_value(metric));
      n_falls += state.rate < before;
      EXPECT_EQ(ckpt_schedule_rate(&s, &state, k), json_number_value(json_array_get(rates, k))) << i << " " << k;
    }
  }
  EXPECT_GT(n_falls, 10u);
  json_decref(root);
}

TEST(Schedule, RefusesWhatCannotBeMeant) {
  ckpt_schedule wsd = ckpt_schedule_default(CKPT_SCHEDULE_WARMUP_STABLE_DECAY, 1e-3, 5, 10);
  EXPECT_EQ(ckpt_schedule_check(&wsd, nullptr), CKPT_EINVAL);
  wsd.n_decay = 6;
  EXPECT_EQ(ckpt_schedule_check(&wsd, nullptr), CKPT_EINVAL);
  wsd.n_decay = 5;
  EXPECT_EQ(ckpt_schedule_check(&wsd, nullptr), CKPT_OK);
  ckpt_schedule polynomial = ckpt_schedule_default(CKPT_SCHEDULE_POLYNOMIAL, 1e-8, 0, 10);
  EXPECT_EQ(ckpt_schedule_check(&polynomial, nullptr), CKPT_EINVAL);
  ckpt_schedule plateau = ckpt_schedule_default(CKPT_SCHEDULE_REDUCE_ON_PLATEAU, 1e-3, 0, 10);
  EXPECT_EQ(ckpt_schedule_check(&plateau, nullptr), CKPT_OK);
  for (const double factor : {1.0, 0.0, -0.5}) {
    plateau.plateau.factor = factor;
    EXPECT_EQ(ckpt_schedule_check(&plateau, nullptr), CKPT_EINVAL);
  }
  EXPECT_EQ(ckpt_schedule_find("lineal"), CKPT_N_SCHEDULES);
}

// The kernels that a run launches: those of a level of this processor.
class AdamW : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    ASSERT_EQ(ckpt_device_cpu_new(&device_, 2, ckpt_tape_kernels_cpu(GetParam()), nullptr), CKPT_OK);
  }
  void TearDown() override { ckpt_device_free(device_); }

  void launch(ckpt_tape_kernel_id kernel, const void *args, size_t n, size_t grain) {
    device_->table->launch(device_, kernel, args, n, grain);
  }

  void update(const ckpt_adamw &how, bool decays, float *w, float *m, float *v, const float *g, size_t n,
              size_t grain = 1 << 16) {
    ckpt_adamw_args args = ckpt_adamw_args_of(&how, decays);
    args.weights = w, args.exp_avg = m, args.exp_avg_sq = v, args.gradients = g;
    launch(CKPT_KERNEL_adamw, &args, n, grain);
  }

  double square_sum(const std::vector<float> &g) {
    std::vector<double> sums((g.size() + CKPT_SQUARE_BLOCK - 1) / CKPT_SQUARE_BLOCK);
    const ckpt_square_sum_args args = {g.data(), sums.data(), g.size()};
    launch(CKPT_KERNEL_square_sum, &args, sums.size(), 1);
    double sum = 0;
    for (double part : sums) sum += part;
    return sum;
  }

  ckpt_device *device_ = nullptr;
};

size_t count_levels() {
  size_t n = 0;
  while (ckpt_tape_kernels_cpu(n) != nullptr) n++;
  return n;
}

INSTANTIATE_TEST_SUITE_P(Levels, AdamW, testing::Range(size_t(0), count_levels()),
                         [](const auto &which) { return "level" + std::to_string(which.param); });

TEST_P(AdamW, FollowsTorch) {
  json_t *root = golden("adamw.json");
  std::vector<float> w = floats(json_object_get(root, "begin")), m(w.size()), v(w.size());
  const size_t n_decayed = 15;
  const json_t *steps = json_object_get(root, "steps");
  ASSERT_EQ(json_array_size(steps), 6u);
  bool has_clipped = false, has_left = false;
  for (size_t step = 0; step < 6; step++) {
    const json_t *row = json_array_get(steps, step);
    const std::vector<float> g = floats(json_object_get(row, "gradients")),
                             wanted = floats(json_object_get(row, "weights"));
    const double norm = std::sqrt(square_sum(g));
    EXPECT_NEAR(norm, number(row, "norm", 0), 1e-6 * norm);
    const double scale = ckpt_clip_scale(norm, 1.0);
    (scale < 1 ? has_clipped : has_left) = true;
    const ckpt_adamw how = {1e-2, 0.9, 0.95, 1e-8, 0.1, scale, step + 1};
    update(how, true, w.data(), m.data(), v.data(), g.data(), n_decayed);
    update(how, false, w.data() + n_decayed, m.data() + n_decayed, v.data() + n_decayed, g.data() + n_decayed,
           w.size() - n_decayed);
    for (size_t i = 0; i < w.size(); i++)
      EXPECT_NEAR(w[i], wanted[i], 2e-7 * std::fabs(wanted[i]) + 1e-9) << step << " " << i;
  }
  EXPECT_TRUE(has_clipped && has_left);
  json_decref(root);
}

TEST_P(AdamW, GivesTheSameBitsHoweverItIsCut) {
  std::vector<float> w(1003), m(1003), v(1003), g(1003);
  for (size_t i = 0; i < w.size(); i++) g[i] = std::sin(float(i)), w[i] = std::cos(float(i));
  std::vector<float> w2 = w, m2 = m, v2 = v;
  const ckpt_adamw how = {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 3};
  update(how, true, w.data(), m.data(), v.data(), g.data(), w.size(), 7);
  for (size_t at = 0, n = 1; at < w.size(); at += n, n = n % 97 + 1) {
    n = std::min(n, w.size() - at);
    update(how, true, &w2[at], &m2[at], &v2[at], &g[at], n);
  }
  EXPECT_EQ(w, w2);
  EXPECT_EQ(v, v2);
}

// Known answers of Random123 (philox4x32-10).
TEST(Philox, GivesTheKnownAnswers) {
  uint32_t out[4];
  ckpt_philox(out, 0, 0, 0);
  EXPECT_EQ(out[0], 0x6627e8d5u);
  EXPECT_EQ(out[1], 0xe169c58du);
  EXPECT_EQ(out[2], 0xbc57ac4cu);
  EXPECT_EQ(out[3], 0x9b00dbd8u);
  ckpt_philox(out, UINT64_MAX, UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(out[0], 0x408f276du);
  EXPECT_EQ(out[1], 0x41c83b0eu);
  EXPECT_EQ(out[2], 0xa20bc7c6u);
  EXPECT_EQ(out[3], 0x6d5451fdu);
}

TEST(Philox, NormalValuesAreNormalAndByIndex) {
  std::vector<float> all(200000), part(1001);
  ckpt_normal_fill(all.data(), 42, "wte.weight", 0, all.size(), 0.02);
  ckpt_normal_fill(part.data(), 42, "wte.weight", 777, part.size(), 0.02);
  for (size_t i = 0; i < part.size(); i++) ASSERT_EQ(part[i], all[777 + i]);
  double sum = 0, squares = 0, fourth = 0;
  size_t n_far = 0;
  for (float x : all) {
    const double z = x / 0.02;
    sum += z, squares += z * z, fourth += z * z * z * z;
    n_far += std::fabs(z) > 3;
  }
  const double n = double(all.size());
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 3, 0.15);
  EXPECT_NEAR(double(n_far) / n, 0.0027, 0.0006);
  std::vector<float> other(16);
  ckpt_normal_fill(other.data(), 42, "wpe.weight", 0, other.size(), 0.02);
  EXPECT_NE(other[0], all[0]);
}

}  // namespace
