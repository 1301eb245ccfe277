// TrainingArguments by one table: files, flags, what is said, what is refused, what contradicts itself.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "trainer/loop/arguments.h"
#include "trainer/loop/options.h"
}

namespace {

class Arguments : public testing::Test {
 protected:
  void SetUp() override {
    ckpt_arena_init(&arena_, 1 << 24);
    ckpt_arguments_init(&arguments_, &arena_);
    arguments_.say = [](void *arg, const char *text) { static_cast<std::vector<std::string> *>(arg)->push_back(text); };
    arguments_.say_arg = &said_;
  }
  void TearDown() override { ckpt_arena_free(&arena_); }

  ckpt_status read(const char *suffix, const std::string &text) {
    const std::string path = folder_.write(std::string("arguments") + suffix, text);
    error_ = {};
    return ckpt_arguments_read(&arguments_, path.c_str(), &error_);
  }
  ckpt_status set(const char *name, const char *text) {
    error_ = {};
    return ckpt_arguments_set(&arguments_, name, text, &error_);
  }
  ckpt_status check(bool has_eval = true) {
    error_ = {};
    return ckpt_arguments_check(&arguments_, has_eval, &error_);
  }

  Folder folder_;
  ckpt_arena arena_;
  ckpt_arguments arguments_;
  std::vector<std::string> said_;
  ckpt_error error_ = {};
};

TEST_F(Arguments, ReadsJson) {
  ASSERT_EQ(read(".json", R"({"learning_rate": 2e-5, "max_steps": 10, "warmup_steps": 0.1, "save_total_limit": null,
      "eval_strategy": "steps", "eval_steps": 5, "lr_scheduler_type": "cosine",
      "lr_scheduler_kwargs": {"num_cycles": 2}, "report_to": ["wandb"],
      "dataloader_num_workers": 4, "tf32": null, "_n_gpu": 1, "gradient_checkpointing": null})"),
            CKPT_OK)
      << error_.message;
  EXPECT_EQ(arguments_.learning_rate, 2e-5);
  EXPECT_EQ(arguments_.max_steps, 10);
  EXPECT_EQ(arguments_.warmup_steps, 0.1);
  EXPECT_EQ(arguments_.save_total_limit, CKPT_ARGUMENT_NONE);
  EXPECT_STREQ(arguments_.lr_scheduler_kwargs, R"({"num_cycles": 2})");
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[0], "report_to [\"wandb\"]: it is not written; metrics stay in OUT/log.jsonl");
  EXPECT_EQ(check(), CKPT_OK) << error_.message;
}

TEST_F(Arguments, ReadsYaml) {
  ASSERT_EQ(read(".yaml",
                 "# a run\nlearning_rate: 2e-5\nmax_steps: 10\neval_strategy: \"no\"\nsave_total_limit: ~\n"
                 "dataloader_drop_last: true\nlr_scheduler_kwargs:\n  num_cycles: 2\nreport_to: [none]\n"),
            CKPT_OK)
      << error_.message;
  EXPECT_EQ(arguments_.learning_rate, 2e-5);
  EXPECT_TRUE(arguments_.dataloader_drop_last);
  EXPECT_STREQ(arguments_.eval_strategy, "no");
  EXPECT_EQ(read(".yml", "learning_rate: 1e-4\nmax_steps: [1, 2\n"), CKPT_EINVAL);
  EXPECT_NE(std::string(error_.message).find("line 3"), std::string::npos) << error_.message;
}

// Truth values are PyYAML's; a whole number that could be octal, a second document and an empty file are refused.
TEST_F(Arguments, YamlIsThatOfPyYaml) {
  for (const char *yes : {"yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"}) {
    arguments_.bf16 = false;
    EXPECT_EQ(read(".yaml", std::string("bf16: ") + yes), CKPT_OK) << yes << error_.message;
    EXPECT_TRUE(arguments_.bf16) << yes;
  }
  for (const char *no : {"no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"}) {
    arguments_.bf16 = true;
    EXPECT_EQ(read(".yaml", std::string("bf16: ") + no), CKPT_OK) << no << error_.message;
    EXPECT_FALSE(arguments_.bf16) << no;
  }
  for (const char *text : {"bf16: yEs", "bf16: y", "bf16: \"yes\"", "max_steps: 1_0"})
    EXPECT_EQ(read(".yaml", text), CKPT_EINVAL) << text;
  ASSERT_EQ(read(".yaml", "---\nmax_steps: 0\nlearning_rate: 0.5\nwarmup_steps: 1e-1\n...\n"), CKPT_OK)
      << error_.message;
  EXPECT_EQ(arguments_.learning_rate, 0.5);
  const std::pair<const char *, const char *> wrong[] = {
      {"seed: 1\nmax_steps: 010\n", "line 2: 010 could be octal"},
      {"max_steps: -010\n", "line 1: -010 could be octal"},
      {"run_name: 08\n", "line 1: 08 could be octal"},
      {"max_steps: 1\n---\nmax_steps: 2\n", "line 2: a second document begins"},
      {"max_steps: 1\n...\nmax_steps: 2\n", "line 3: "},
      {"", "it is empty"},
      {"# nothing\n", "it is empty"},
  };
  for (const auto &[text, what] : wrong) {
    EXPECT_EQ(read(".yaml", text), CKPT_EINVAL) << text;
    EXPECT_NE(std::string(error_.message).find(what), std::string::npos) << error_.message;
  }
  EXPECT_EQ(read(".json", ""), CKPT_EINVAL);
}

// One argument under two names: a null is as if it were not there, and other values have to be the same.
TEST_F(Arguments, OneArgumentHasOneValue) {
  EXPECT_EQ(read(".json", R"({"max_steps": 2, "max-steps": 2})"), CKPT_EINVAL);
  EXPECT_STREQ(error_.message, "max-steps (max_steps) is given twice");
  EXPECT_EQ(read(".yaml", "max_steps: 2\nmax-steps: 3\n"), CKPT_EINVAL);
  for (const char *text : {R"({"activation_checkpointing": true, "gradient_checkpointing": null})",
                           R"({"gradient_checkpointing": null, "activation_checkpointing": true})",
                           R"({"gradient_checkpointing": true, "activation_checkpointing": true})",
                           R"({"activation_checkpointing": true, "activation_checkpointing_kwargs": null})"}) {
    arguments_.gradient_checkpointing = false;
    EXPECT_EQ(read(".json", text), CKPT_OK) << error_.message;
    EXPECT_TRUE(arguments_.gradient_checkpointing) << text;
  }
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(read(".json", R"({"activation_checkpointing": true, "gradient_checkpointing": false})"), CKPT_EINVAL);
  EXPECT_STREQ(error_.message,
               "gradient_checkpointing (activation_checkpointing) is the same argument, and they differ");
  EXPECT_EQ(read(".json", R"({"activation_checkpointing_kwargs": {"use_reentrant": false}})"), CKPT_OK);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("a layer is run again with the same bits"), std::string::npos) << said_[0];
}

TEST_F(Arguments, SaysTheLineOfBrokenJson) {
  EXPECT_EQ(read(".json", "{\n\"seed\": 1,\n\"max_steps\": }"), CKPT_EINVAL);
  EXPECT_NE(std::string(error_.message).find("line 3"), std::string::npos) << error_.message;
}

TEST_F(Arguments, NamesTheNearest) {
  EXPECT_EQ(read(".json", R"({"learning_rat": 1})"), CKPT_EINVAL);
  EXPECT_STREQ(error_.message, "there is no argument learning_rat (did you mean learning_rate?)");
}

TEST_F(Arguments, FlagsHaveDashesOrUnderscoresAndTypes) {
  EXPECT_EQ(set("learning-rate", "3e-4"), CKPT_OK);
  EXPECT_EQ(arguments_.learning_rate, 3e-4);
  EXPECT_EQ(set("evaluation_strategy", "epoch"), CKPT_OK);
  EXPECT_STREQ(arguments_.eval_strategy, "epoch");
  EXPECT_EQ(set("max_steps", "ten"), CKPT_EINVAL);
  EXPECT_EQ(set("max_steps", "1.5"), CKPT_EINVAL);
  EXPECT_EQ(set("dataloader_drop_last", "yes"), CKPT_OK);
  EXPECT_TRUE(arguments_.dataloader_drop_last);
  EXPECT_EQ(set("bf16", "true"), CKPT_OK);
  EXPECT_TRUE(arguments_.bf16);
  EXPECT_EQ(set("fp16", "true"), CKPT_EINVAL);
  EXPECT_STREQ(error_.message, "fp16 true: f32 alone");
  EXPECT_EQ(set("label_smoothing_factor", "0.0"), CKPT_OK);
  EXPECT_EQ(set("fsdp", ""), CKPT_OK);
  EXPECT_EQ(set("fsdp", "full_shard"), CKPT_EINVAL);
  EXPECT_TRUE(said_.empty());
}

TEST_F(Arguments, RefusesContradictions) {
  const std::vector<std::vector<std::pair<const char *, const char *>>> wrong = {
      {{"load_best_model_at_end", "true"}},
      {{"load_best_model_at_end", "true"}, {"eval_strategy", "steps"}, {"eval_steps", "3"}, {"save_steps", "10"}},
      {{"load_best_model_at_end", "true"}, {"eval_strategy", "epoch"}, {"save_strategy", "steps"}},
      {{"learning_rate", "-1"}},
      {{"per_device_train_batch_size", "0"}},
      {{"gradient_accumulation_steps", "0"}},
      {{"adam_beta2", "1"}},
      {{"label_smoothing_factor", "1"}},
      {{"lr_scheduler_type", "lineal"}},
      {{"eval_strategy", "sometimes"}},
      {{"save_strategy", "best"}, {"eval_strategy", "steps"}},
      {{"logging_steps", "0"}},
      {{"logging_steps", "2.5"}},
      {{"logging_steps", "1e20"}},
      {{"save_steps", "1e20"}},
      {{"save_steps", "1.1e15"}},
      {{"eval_steps", "1e308"}},
      {{"warmup_steps", "1e20"}},
      {{"max_steps", "2000000000000000"}},
      {{"lr_scheduler_kwargs", "{bad"}},
      {{"lr_scheduler_kwargs", "[1]"}},
      {{"lr_scheduler_kwargs", "{\"num_cicles\": 2}"}},
      {{"lr_scheduler_kwargs", "{\"power\": 2}"}},
      {{"lr_scheduler_type", "polynomial"}, {"lr_scheduler_kwargs", "{\"power\": \"two\"}"}},
      {{"lr_scheduler_type", "polynomial"}, {"lr_scheduler_kwargs", "{\"lr_end\": 1}"}},
      {{"lr_scheduler_type", "cosine_with_min_lr"}},
      {{"lr_scheduler_type", "warmup_stable_decay"}},
      {{"optim", "adafactor"}},
      {{"max_steps", "0"}, {"num_train_epochs", "0"}},
      {{"metric_for_best_model", "accuracy"}, {"load_best_model_at_end", "true"}, {"eval_strategy", "steps"}},
  };
  for (const auto &settings : wrong) {
    ckpt_arguments_init(&arguments_, &arena_);
    for (const auto &one : settings) ASSERT_EQ(set(one.first, one.second), CKPT_OK) << one.first;
    EXPECT_EQ(check(), CKPT_EINVAL) << settings[0].first << " " << settings[0].second;
    const std::string message = error_.message, first = settings[0].first;
    if (std::string(settings[0].second) == "1e20") {
      EXPECT_EQ(message, first + " 1e+20: it has to be at most 1e+15 steps");
    }
  }
  ckpt_arguments_init(&arguments_, &arena_);
  ASSERT_EQ(set("eval_strategy", "steps"), CKPT_OK);
  EXPECT_EQ(check(false), CKPT_EINVAL);
  EXPECT_EQ(check(true), CKPT_OK);
}

TEST_F(Arguments, GoRoundThroughJson) {
  ASSERT_EQ(set("learning_rate", "0.1"), CKPT_OK);
  ASSERT_EQ(set("lr_scheduler_type", "cosine"), CKPT_OK);
  ASSERT_EQ(set("save_total_limit", "3"), CKPT_OK);
  const std::string json = ckpt_arguments_json(&arguments_, &arena_);
  ckpt_arguments_init(&arguments_, &arena_);
  ASSERT_EQ(read(".json", json), CKPT_OK) << error_.message;
  EXPECT_EQ(ckpt_arguments_json(&arguments_, &arena_), json);
}

// The command borrows its words, so they stay.
ckpt_status parse(std::vector<std::string> given, ckpt_command *command, ckpt_error *err) {
  static std::deque<std::vector<std::string>> kept;
  std::vector<std::string> &words = kept.emplace_back(std::move(given));
  std::vector<char *> argv;
  words.insert(words.begin(), "ckpt-train");
  for (auto &word : words) argv.push_back(&word[0]);
  return ckpt_command_parse(command, int(argv.size()), argv.data(), nullptr, nullptr, err);
}

TEST(Command, ReadsItsOwnOptionsAndTheArguments) {
  ckpt_command command = {};
  ckpt_error err = {};
  ASSERT_EQ(parse({"--model",
                   "m",
                   "--data",
                   "a.jsonl",
                   "--data=b.jsonl",
                   "-o",
                   "out",
                   "--learning-rate",
                   "1e-3",
                   "--dataloader_drop_last",
                   "--max_length",
                   "64",
                   "--mesh",
                   "dp_shard=4",
                   "--stage=3",
                   "--packing",
                   "document",
                   "--no_eval_on_start",
                   "--save-format",
                   "dcp,torch"},
                  &command, &err),
            CKPT_OK)
      << err.message;
  EXPECT_EQ(command.n_data, 2u);
  EXPECT_STREQ(command.data[1], "b.jsonl");
  EXPECT_EQ(command.arguments.learning_rate, 1e-3);
  EXPECT_TRUE(command.arguments.dataloader_drop_last);
  EXPECT_EQ(command.train.n_ranks, 4u);
  EXPECT_EQ(command.train.stage, 3u);
  EXPECT_EQ(command.train.packing, CKPT_PACKING_DOCUMENT);
  EXPECT_EQ(command.train.max_length, 64u);
  ckpt_command_free(&command);
}

TEST(Command, RefusesWhatCannotBeMeant) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--learning_rat", "1"},
      {"--mesh", "tp=2"},
      {"--ranks", "2", "--mesh", "dp_shard=3", "--stage", "1"},
      {"--mesh", "dp_shard=3", "--ranks", "2", "--stage", "1"},
      {"--mesh", "dp_shard=2"},
      {"--mesh", "dp_replicate=2", "--stage", "3"},
      {"--mesh", "dp_replicate=2,dp_shard=2"},
      {"--mesh", "dp_shard=2,dp_shard=3", "--stage", "3"},
      {"--mesh", "dp_replicate=2,dp_replicate=2"},
      {"--mesh", ""},
      {"--mesh", "dp_replicate=2,"},
      {"--bf16", "maybe"},
      {"--activation_checkpointing", "true", "--gradient_checkpointing", "false"},
      {"--lr_scheduler_kwargs", "{bad"},
      {"--mesh", "dp_replicate=2,dp_shard=2", "--ranks", "2", "--stage", "3"},
      {"--stage", "4"},
      {"--packing", "yes"},
      {"stray"},
      {"--ranks"},
      {"--save-format", "hf"},
      {"--init", "zeros"},
      {"--force=1"},
      {"--max_steps", "many"},
      {"--device", "tpu"},
      {"--recompute", "some"},
      {"--resume", "last", "--force"},
      {"--early_stopping_patience", "2"}};
  for (auto words : wrong) {
    ckpt_command command = {};
    ckpt_error err = {};
    words.insert(words.end(), {"--model", "m", "--data", "d", "-o", "o"});
    EXPECT_EQ(parse(words, &command, &err), CKPT_EINVAL) << words[0];
    EXPECT_NE(err.message[0], '\0');
    ckpt_command_free(&command);
  }
  ckpt_command command = {};
  ckpt_error err = {};
  EXPECT_EQ(parse({"--model", "m", "--data", "d", "-o", "o", "--fsdp", "full_shard"}, &command, &err), CKPT_EINVAL);
  EXPECT_NE(std::string(err.message).find("fsdp"), std::string::npos) << err.message;
  ckpt_command_free(&command);
  command = {};
  err = {};
  EXPECT_EQ(parse({"--rank", "2"}, &command, &err), CKPT_EINVAL);
  EXPECT_STREQ(err.message, "there is no option --rank (did you mean --ranks?)");
  ckpt_command_free(&command);
}

TEST(Command, SaysWhatATruthValueIs) {
  ckpt_command command = {};
  ckpt_error err = {};
  EXPECT_EQ(parse({"--model", "m", "--data", "d", "-o", "o", "--bf16", "maybe"}, &command, &err), CKPT_EINVAL);
  EXPECT_STREQ(err.message, "bf16 \"maybe\": it has to be true or false");
  ckpt_command_free(&command);
}

// Names of one argument, and a flag that comes again: the last one wins.
TEST(Command, ReadsAliases) {
  for (const auto &words :
       std::vector<std::vector<std::string>>{{"--activation_checkpointing"},
                                             {"--activation-checkpointing", "true", "--gradient_checkpointing", "1"},
                                             {"--no_gradient_checkpointing", "--gradient_checkpointing"}}) {
    ckpt_command command = {};
    ckpt_error err = {};
    auto all = words;
    all.insert(all.end(), {"--model", "m", "--data", "d", "-o", "o"});
    EXPECT_EQ(parse(all, &command, &err), CKPT_OK) << err.message;
    EXPECT_TRUE(command.arguments.gradient_checkpointing) << words[0];
    ckpt_command_free(&command);
  }
}

// true is the newest checkpoint and false is none, as a flag and in a file, and a flag wins.
TEST(Command, ResumesAsTheTrainerIsAsked) {
  const Folder folder;
  const std::string file = folder.write("resume.json", R"({"resume_from_checkpoint": true})");
  const std::string yaml = folder.write("resume.yaml", "resume_from_checkpoint: False\n");
  const std::pair<std::vector<std::string>, const char *> cases[] = {
      {{"--resume_from_checkpoint", "true"}, "last"},
      {{"--resume-from-checkpoint=True"}, "last"},
      {{"--resume_from_checkpoint", "False"}, nullptr},
      {{"--resume_from_checkpoint", "None"}, nullptr},
      {{"--resume_from_checkpoint", "run/checkpoint-5"}, "run/checkpoint-5"},
      {{"--args", file}, "last"},
      {{"--args", yaml}, nullptr},
      {{"--args", file, "--resume_from_checkpoint", "false"}, nullptr},
      {{"--args", yaml, "--resume_from_checkpoint", "true"}, "last"},
      {{"--args", file, "--resume", "run/checkpoint-5"}, "run/checkpoint-5"},
  };
  for (const auto &[words, wanted] : cases) {
    ckpt_command command = {};
    ckpt_error err = {};
    auto all = words;
    all.insert(all.end(), {"--model", "m", "--data", "d", "-o", "o"});
    ASSERT_EQ(parse(all, &command, &err), CKPT_OK) << err.message;
    EXPECT_STREQ(command.train.resume, wanted) << words.back();
    ckpt_command_free(&command);
  }
}

// A device that cannot be used is no wrong word: it fails when it is asked for.
TEST(Command, ADeviceThatCannotBeUsedIsAFailure) {
  ckpt_command command = {};
  ckpt_error err = {};
  ckpt_outcome outcome;
  ASSERT_EQ(parse({"--model", "m", "--data", "d", "-o", "o", "--device", "cuda"}, &command, &err), CKPT_OK)
      << err.message;
  EXPECT_EQ(ckpt_train(&command.train, &outcome, &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(err.message[0], '\0');
  ckpt_command_free(&command);
}

}  // namespace
