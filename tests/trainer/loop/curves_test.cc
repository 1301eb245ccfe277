// Whole runs of ckpt-train on tiny models give the curves of the real Trainer: in f32, in bf16, with smoothed labels.
#include "tests/trainer/loop/train_case.h"

namespace {

using training::data_folder;
using training::Outcome;
using Train = training::Train;

const char *const curve_words =
    "--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --max_steps 40 --weight_decay 0.1 "
    "--lr_scheduler_type cosine --warmup_steps 4 --adam_beta2 0.95 --train_sampling_strategy sequential --quiet "
    "--eval_strategy steps --eval_steps 40 --save_strategy no ";

TEST_F(Train, FollowsTheTrainer) {
  json_t *golden = json_load_file((data_folder + "curves.json").c_str(), 0, nullptr);
  ASSERT_NE(golden, nullptr);
  for (const char *family : {"gpt2", "llama", "mistral", "qwen2"}) {
    const Outcome done = train(family, std::string(curve_words) + "--eval-data " + data_folder + "eval.jsonl", family);
    ASSERT_EQ(done.code, 0) << done.text;
    const json_t *curve = json_object_get(json_object_get(golden, "curves"), family);
    const json_t *steps = json_object_get(curve, "steps");
    const auto rows = log(family);
    ASSERT_EQ(rows.size(), 40u);
    for (size_t i = 0; i < 40; i++) {
      const auto wanted = [&](const char *key) {
        return json_number_value(json_object_get(json_array_get(steps, i), key));
      };
      EXPECT_NEAR(rows[i].loss, wanted("loss"), (i < 10 ? 1e-6 : 1e-5) * wanted("loss")) << family << " " << i;
      EXPECT_NEAR(rows[i].norm, wanted("grad_norm"), (i < 10 ? 1e-5 : 1e-4) * wanted("grad_norm"))
          << family << " " << i;
      EXPECT_EQ(rows[i].rate, wanted("learning_rate")) << family << " " << i;
      EXPECT_EQ(rows[i].epoch, wanted("epoch")) << family << " " << i;
    }
    const auto evaluated = log(family, "eval_loss");
    ASSERT_EQ(evaluated.size(), 1u);
    EXPECT_NEAR(evaluated[0].loss, json_number_value(json_object_get(curve, "eval_loss")), 1e-5) << family;
  }
  json_decref(golden);
}

// Autocast rounds the results of products to bf16 too, ckpt-train their factors alone: the curves are near, and drift
// apart. Weights have the same bits whatever the threads.
TEST_F(Train, FollowsTheTrainerInBf16) {
  json_t *golden = json_load_file((data_folder + "curves.json").c_str(), 0, nullptr);
  ASSERT_NE(golden, nullptr);
  const json_t *curves = json_object_get(golden, "curves");
  for (const std::string family : {"gpt2", "llama"}) {
    const std::string words = std::string(curve_words) + "--bf16 true --eval-data " + data_folder + "eval.jsonl ";
    ASSERT_EQ(train(family, words + "--threads 1", family).code, 0);
    const json_t *curve = json_object_get(curves, (family + "-bf16").c_str());
    const json_t *exact = json_object_get(json_object_get(curves, family.c_str()), "steps");
    const auto rows = log(family);
    ASSERT_EQ(rows.size(), 40u);
    double largest = 0;
    for (size_t i = 0; i < 40; i++) {
      const json_t *step = json_array_get(json_object_get(curve, "steps"), i);
      const double loss = json_number_value(json_object_get(step, "loss"));
      const double norm = json_number_value(json_object_get(step, "grad_norm"));
      const double f32 = json_number_value(json_object_get(json_array_get(exact, i), "loss"));
      EXPECT_NEAR(rows[i].loss, loss, 2e-3 * loss) << family << " " << i;
      EXPECT_NEAR(rows[i].norm, norm, (i < 10 ? 1e-2 : 3e-2) * norm) << family << " " << i;
      largest = std::max(largest, std::fabs(rows[i].loss - f32) / f32);
    }
    EXPECT_GT(largest, 1e-5) << family;
    const auto evaluated = log(family, "eval_loss");
    ASSERT_EQ(evaluated.size(), 1u);
    const double wanted = json_number_value(json_object_get(curve, "eval_loss"));
    EXPECT_NEAR(evaluated[0].loss, wanted, 2e-3 * wanted) << family;
    const auto first = tensors(family);
    ASSERT_EQ(train(family + "-threads", words + "--threads 3", family).code, 0);
    EXPECT_EQ(tensors(family + "-threads"), first) << family;
  }
  json_decref(golden);
}

const char *const twelve_steps =
    "--max_steps 12 --learning_rate 5e-3 --weight_decay 0.1 --lr_scheduler_type cosine --warmup_steps 4 --adam_beta2 "
    "0.95 --train_sampling_strategy sequential --save_strategy no --quiet ";

void ExpectCurve(const std::vector<training::Row> &rows, const json_t *curve, const std::string &out) {
  ASSERT_EQ(rows.size(), 12u);
  for (size_t i = 0; i < rows.size(); i++) {
    const json_t *step = json_array_get(json_object_get(curve, "steps"), i);
    const double loss = json_number_value(json_object_get(step, "loss"));
    const double norm = json_number_value(json_object_get(step, "grad_norm"));
    EXPECT_NEAR(rows[i].loss, loss, 1e-6 * loss) << out << " " << i;
    EXPECT_NEAR(rows[i].norm, norm, 1e-5 * norm) << out << " " << i;
  }
}

// Labels are smoothed as transformers does it, on any ranks, and in evaluations.
TEST_F(Train, SmoothsLabelsAsTheTrainer) {
  json_t *golden = json_load_file((data_folder + "smoothed.json").c_str(), 0, nullptr);
  ASSERT_NE(golden, nullptr);
  for (const std::string family : {"gpt2", "llama"})
    for (const char *how : {"4", "1 --gradient_accumulation_steps 2 --ranks 2 --stage 2"}) {
      const std::string out = family + how[0];
      const Outcome done = train(out,
                                 std::string(twelve_steps) +
                                     "--label_smoothing_factor 0.1 --eval_strategy steps --eval_steps 12 --eval-data " +
                                     data_folder + "eval.jsonl --per_device_train_batch_size " + how,
                                 family);
      ASSERT_EQ(done.code, 0) << done.text;
      const json_t *curve = json_object_get(json_object_get(golden, "curves"), family.c_str());
      ExpectCurve(log(out), curve, out);
      const double wanted = json_number_value(json_object_get(curve, "eval_loss"));
      EXPECT_NEAR(log(out, "eval_loss").at(0).loss, wanted, 1e-5 * wanted) << out;
    }
  json_decref(golden);
}

// A token that is pad_token_id has an embedding, which is not trained by being looked up (padding_idx of torch).
TEST_F(Train, LooksUpPaddingAsTheTrainer) {
  json_t *golden = json_load_file((data_folder + "padding.json").c_str(), 0, nullptr);
  ASSERT_NE(golden, nullptr);
  const char *family;
  json_t *curve;
  json_object_foreach(json_object_get(golden, "curves"), family, curve) {
    const std::string model = at(family) + "-padding", out = std::string(family) + "-out";
    training::fs::copy(data_folder + family, model);
    json_t *config = json_load_file((model + "/config.json").c_str(), 0, nullptr);
    json_object_set(config, "pad_token_id", json_object_get(curve, "pad_token_id"));
    ASSERT_EQ(json_dump_file(config, (model + "/config.json").c_str(), 0), 0);
    json_decref(config);
    const Outcome done = run(twelve_steps + ("--model " + model) + " --data " + data_folder + "rows.jsonl -o " +
                             at(out) + " --per_device_train_batch_size 2 --ranks 2 --stage 3");
    ASSERT_EQ(done.code, 0) << done.text;
    ExpectCurve(log(out), curve, out);
  }
  json_decref(golden);
}

// dataloader_drop_last is for training: the last rows of an evaluation, which fill no batch, count all the same.
TEST_F(Train, EvaluationsCountEveryRow) {
  double losses[2];
  for (const std::string drops : {"true", "false"}) {
    const Outcome done = train(drops,
                               "--max_steps 1 --quiet --save_strategy no --eval_strategy steps --eval_on_start true "
                               "--per_device_eval_batch_size 8 --dataloader_drop_last " +
                                   drops + " --eval-data " + data_folder + "eval.jsonl");
    ASSERT_EQ(done.code, 0) << done.text;
    losses[drops == "true"] = log(drops, "eval_loss").at(0).loss;
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_GT(losses[0], 0);
}

}  // namespace
