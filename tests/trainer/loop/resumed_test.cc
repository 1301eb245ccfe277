// What a run goes on from: only what is whole, of this run, with the data and the model that it had.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <random>

#include "tests/trainer/loop/train_case.h"

using namespace training;

namespace {

class Resumed : public Train {
 protected:
  const std::string common_ = "--max_steps 6 --quiet --save_steps 2 --per_device_train_batch_size 4 ";

  // A run that was cut back to its second checkpoint.
  void cut_back(const std::string &out, const std::string &words = "") {
    ASSERT_EQ(train(out, common_ + words).code, 0);
    fs::remove_all(at(out + "/checkpoint-6"));
    fs::remove(at(out + "/model.safetensors"));
  }

  void refuse(const std::string &out, const std::string &words, const std::string &message) {
    const Outcome done =
        run(words + " -o " + at(out) + " --threads 1 --learning_rate 5e-3 " + common_ + "--resume last");
    EXPECT_NE(done.code, 0) << words;
    EXPECT_NE(done.text.find(message), std::string::npos) << words << "\n" << done.text;
    EXPECT_FALSE(fs::exists(at(out + "/checkpoint-6"))) << words;
  }

  std::string rows() { return "--data " + data_folder + "rows.jsonl "; }
  std::string llama() { return "--model " + data_folder + "llama "; }

  // The config of a copy of the llama, changed.
  std::string model_with(const std::string &name, const std::string &from, const std::string &to) {
    fs::remove_all(at(name));
    fs::copy(data_folder + "llama", at(name));
    fs::permissions(at(name), fs::perms::owner_all);
    std::string text = bytes(name + "/config.json");
    EXPECT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    fs::remove(at(name + "/config.json"));
    std::ofstream(at(name + "/config.json")) << text;
    return "--model " + at(name) + " ";
  }
};

TEST_F(Resumed, WithOtherDataIsRefused) {
  cut_back("run");
  const std::string text = bytes("run/run.json");
  std::ifstream file(data_folder + "rows.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::ofstream reversed(at("reversed.jsonl"));
  for (size_t i = lines.size(); i > 0; i--) reversed << lines[i - 1] << "\n";
  reversed.close();
  refuse("run", llama() + "--data " + at("reversed.jsonl"), "its run had the data sha256:");
  refuse("run", llama() + rows() + "--max_length 5", "its rows were single, max_length 0, here they are single, ");
  refuse("run", llama() + rows() + "--train_sampling_strategy sequential", "by another train_sampling_strategy");
  refuse("run", llama() + rows() + "--dataloader_drop_last", "by another dataloader_drop_last");
  refuse("run", llama() + rows() + "--data_seed 7", "in the order of seed 42, here it is 7");
  EXPECT_EQ(bytes("run/run.json"), text);
  EXPECT_EQ(train("run", common_ + "--resume last").code, 0);
}

TEST_F(Resumed, OfAnotherModelIsRefused) {
  cut_back("run");
  refuse("run", model_with("short", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1") + rows(),
         "it is of another model: LlamaForCausalLM here has no such parameter");
  refuse("run", model_with("rope", "10000.0", "20000.0") + rows(), "its config.json has another rope_parameters");
  EXPECT_EQ(train("run", common_ + "--resume last").code, 0);
  const Outcome fresh = run(model_with("short", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1") + rows() +
                            "-o " + at("fresh") + " --max_steps 1 --quiet --save_strategy no");
  EXPECT_EQ(fresh.code, 0) << fresh.text;
  EXPECT_NE(fresh.text.find("9 tensors are not trained, since LlamaForCausalLM has no such parameters"),
            std::string::npos)
      << fresh.text;
}

TEST_F(Resumed, OfAnAdapterOfAnotherBaseOrScaleIsRefused) {
  std::ofstream(at("lora.json")) << R"({"r": 2, "target_modules": ["q_proj"], "peft_type": "LORA"})";
  std::ofstream(at("alpha.json")) << R"({"r": 2, "target_modules": ["q_proj"], "peft_type": "LORA", "lora_alpha": 64})";
  const std::string with = "--lora " + at("lora.json") + " ";
  cut_back("run", with);
  refuse("run", llama() + rows() + "--lora " + at("alpha.json"), "its adapter_config.json has another lora_alpha");
  ASSERT_EQ(train("other", "--max_steps 1 --quiet --save_strategy no").code, 0);
  refuse("run", "--model " + at("other") + " " + rows() + with, "its adapter is of the model ckpt1:");
  EXPECT_EQ(train("run", common_ + with + "--resume last").code, 0);
}

// Where nothing can be gone on from, a new run begins, of whatever base.
TEST_F(Resumed, ANewRunAsksNothingOfTheOld) {
  std::ofstream(at("lora.json")) << R"({"r": 2, "target_modules": ["q_proj"], "peft_type": "LORA"})";
  const std::string with = "--lora " + at("lora.json") + " ";
  ASSERT_EQ(train("run", common_ + with).code, 0);
  for (const char *step : {"2", "4", "6"})
    std::ofstream(at(std::string("run/checkpoint-") + step + "/.metadata")) << "";
  ASSERT_EQ(train("other", "--max_steps 1 --quiet --save_strategy no").code, 0);
  const Outcome done = run("--model " + at("other") + " " + rows() + with + common_ + "--resume auto -o " + at("run"));
  EXPECT_EQ(done.code, 0) << done.text;
}

TEST_F(Resumed, WithAnotherSeedIsRefusedWhereItDrops) {
  const std::string drops = model_with("drops", "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1") + rows();
  ASSERT_EQ(run(drops + "-o " + at("run") + " --threads 1 --learning_rate 5e-3 " + common_).code, 0);
  fs::remove_all(at("run/checkpoint-6"));
  refuse("run", drops + "--seed 7 --data_seed 42", "its run drew dropout by seed 42, here it is 7");
  cut_back("none");
  EXPECT_EQ(train("none", common_ + "--seed 7 --data_seed 42 --resume last").code, 0);
}

// Any byte of weights or moments, in the file of any rank.
TEST_F(Resumed, NoChangedByteIsTrainedOn) {
  const std::string two = "--ranks 2 --stage 3 ";
  cut_back("base", two);
  fs::copy(at("base"), at("whole"), fs::copy_options::recursive);
  ASSERT_EQ(train("whole", common_ + two + "--resume last").code, 0);
  const std::string whole = bytes("whole/model.safetensors");
  std::mt19937 random(7);
  size_t n_skipped = 0;
  for (int i = 0; i < 12; i++) {
    const std::string file = "flip/checkpoint-4/__" + std::to_string(i % 2) + "_0.distcp";
    fs::remove_all(at("flip"));
    fs::copy(at("base"), at("flip"), fs::copy_options::recursive);
    std::string content = bytes(file);
    content[random() % content.size()] ^= static_cast<char>(1 << random() % 8);
    std::ofstream(at(file), std::ios::binary) << content;
    const Outcome done = train("flip", common_ + two + "--resume last");
    EXPECT_EQ(done.code, 0) << done.text;
    EXPECT_EQ(bytes("flip/model.safetensors"), whole) << i << " " << done.text;
    n_skipped += done.text.find("checkpoint-4 is skipped") != std::string::npos;
  }
  EXPECT_GE(n_skipped, 6u);
}

TEST_F(Resumed, ANameThatChangedIsDamageAndStays) {
  cut_back("run");
  std::string content = bytes("run/checkpoint-4/.metadata");
  const size_t at_name = content.find("model.norm.weightX\x07"); /* in the path of its first moment */
  ASSERT_NE(at_name, std::string::npos);
  content[at_name + 4] ^= 1;
  std::ofstream(at("run/checkpoint-4/.metadata"), std::ios::binary) << content;
  fs::create_directories(at("run/broken-checkpoint-4"));
  std::ofstream(at("run/broken-checkpoint-4/mine")) << "x";
  const Outcome done = train("run", common_ + "--resume last");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_NE(done.text.find("checkpoint-4 is skipped"), std::string::npos) << done.text;
  EXPECT_EQ(bytes("run/broken-checkpoint-4/mine"), "x");
  EXPECT_TRUE(fs::exists(at("run/broken-checkpoint-4.1/.metadata")));
}

TEST_F(Resumed, ARunThatOnlyDumpsChangesNothing) {
  cut_back("run");
  std::ofstream(at("run/checkpoint-4/.metadata")) << "";
  const std::string text = bytes("run/run.json");
  const Outcome done = train("run", common_ + "--resume last --dump-grads " + at("grads.safetensors"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_TRUE(fs::exists(at("run/checkpoint-4")));
  EXPECT_FALSE(fs::exists(at("run/broken-checkpoint-4")));
  EXPECT_EQ(bytes("run/run.json"), text);
}

TEST_F(Resumed, OneRunWritesAFolderAtATime) {
  cut_back("run");
  const int log = open(at("run/log.jsonl").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(log, LOCK_EX), 0);
  for (const std::string words : {"--resume auto", "--force"}) {
    const Outcome done = train("run", common_ + words);
    EXPECT_NE(done.code, 0) << words;
    EXPECT_NE(done.text.find("another run writes it now"), std::string::npos) << done.text;
  }
  close(log);
  EXPECT_EQ(train("run", common_ + "--resume auto").code, 0);
}

// Early stopping is part of the state: the checkpoint of the last step is that of a run that has ended.
TEST_F(Resumed, ARunThatStoppedEarlyHasEnded) {
  const std::string words =
      "--max_steps 40 --quiet --per_device_train_batch_size 4 --learning_rate 0.3 --save_steps 1 --eval_strategy steps "
      "--lr_scheduler_type constant --eval_steps 1 --early_stopping_patience 3 --eval-data " +
      data_folder + "eval.jsonl ";
  ASSERT_EQ(train("run", words).code, 0);
  const size_t n = log("run").size();
  const std::string whole = bytes("run/model.safetensors");
  ASSERT_LT(n, 40u);
  fs::remove(at("run/model.safetensors"));
  ASSERT_EQ(train("run", words + "--resume auto").code, 0);
  EXPECT_EQ(log("run").size(), n);
  EXPECT_EQ(bytes("run/model.safetensors"), whole);
}

// ---- the best -------------------------------------------------------------------------------------------------------

class Best : public Train {
 protected:
  const std::string common_ =
      "--per_device_train_batch_size 4 --learning_rate 0.3 --lr_scheduler_type constant --load_best_model_at_end "
      "--eval_strategy steps --quiet --eval-data " +
      data_folder + "eval.jsonl ";
};

// An evaluation between two checkpoints was better than any that has one: the best that was saved is taken and kept.
TEST_F(Best, ThatWasSavedIsKept) {
  const Outcome done = train("run", common_ + "--max_steps 12 --eval_steps 1 --save_steps 4 --save_total_limit 1");
  ASSERT_EQ(done.code, 0) << done.text;
  const auto losses = log("run", "eval_loss");
  ASSERT_EQ(losses.size(), 12u);
  size_t best = 0, saved = 0;
  for (size_t i = 0; i < losses.size(); i++) {
    if (losses[i].loss < losses[best].loss) best = i;
    if ((i + 1) % 4 == 0 && best == i) saved = i + 1;
  }
  ASSERT_NE(best + 1, saved);
  ASSERT_NE(saved, 0u);
  const std::string name = "checkpoint-" + std::to_string(saved);
  ASSERT_TRUE(fs::exists(at("run/" + name))) << name;
  EXPECT_NE(done.text.find("the weights are those of step " + std::to_string(saved)), std::string::npos) << done.text;
  const auto wanted = tensors("run/" + name);
  for (const auto &[key, values] : tensors("run")) EXPECT_EQ(values, wanted.at(key)) << key;
}

TEST_F(Best, TheLastStepIsEvaluatedToo) {
  ASSERT_EQ(train("run", common_ + "--max_steps 7 --eval_steps 3 --save_steps 3").code, 0);
  EXPECT_EQ(log("run", "eval_loss").size(), 3u);
}

TEST_F(Best, ThatIsTheLastLeavesOne) {
  ASSERT_EQ(
      train("run", common_ + "--learning_rate 1e-4 --max_steps 6 --eval_steps 2 --save_steps 2 --save_total_limit 1")
          .code,
      0);
  EXPECT_EQ(checkpoints("run"), (std::vector<std::string>{"checkpoint-6"}));
}

TEST_F(Best, SharesAndNumbersOfStepsDoNotMix) {
  const Outcome mixed = train("run", common_ + "--max_steps 6 --eval_steps 3 --save_steps 0.5");
  EXPECT_NE(mixed.code, 0);
  EXPECT_NE(mixed.text.find("save_steps has to be a multiple of eval_steps"), std::string::npos) << mixed.text;
}

// ---- what is written ------------------------------------------------------------------------------------------------

TEST_F(Train, TheConfigSaysWhatTheWeightsAre) {
  fs::copy(data_folder + "llama", at("half"));
  fs::permissions(at("half"), fs::perms::owner_all);
  std::string text = bytes("half/config.json");
  text.replace(text.find("\"float32\""), 9, "\"bfloat16\"");
  fs::remove(at("half/config.json"));
  std::ofstream(at("half/config.json")) << text;
  ASSERT_EQ(run("--model " + at("half") + " --data " + data_folder + "rows.jsonl -o " + at("run") +
                " --max_steps 1 --save_steps 1 --quiet")
                .code,
            0);
  for (const std::string folder : {"run/", "run/checkpoint-1/"})
    EXPECT_NE(bytes(folder + "config.json").find("\"dtype\": \"float32\""), std::string::npos) << folder;
}

// Weights, gradients and moments that no machine holds are refused before anything is allocated or written.
TEST_F(Train, WhatTheMachineCannotHoldIsRefused) {
  fs::copy(data_folder + "llama", at("large"));
  fs::permissions(at("large"), fs::perms::owner_all);
  std::string text = bytes("large/config.json");
  const size_t size = text.find("\"vocab_size\": 96");
  ASSERT_NE(size, std::string::npos);
  text.replace(size, 16, "\"vocab_size\": 2000000000");
  fs::remove(at("large/config.json"));
  std::ofstream(at("large/config.json")) << text;
  const Outcome done = run("--init scratch --model " + at("large") + " --data " + data_folder + "rows.jsonl -o " +
                           at("run") + " --max_steps 1 --quiet");
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.text.find("the ranks need 1.0 TB, this machine has "), std::string::npos) << done.text;
  EXPECT_FALSE(fs::exists(at("run")));
}

// A share of batches, not of updates: 21 rows are 11 batches of 2, of which 4 make a step.
TEST_F(Train, TheEpochIsTheShareOfBatches) {
  ASSERT_EQ(train("run",
                  "--max_steps 2 --quiet --save_strategy no --per_device_train_batch_size 2 "
                  "--gradient_accumulation_steps 4")
                .code,
            0);
  std::ifstream file(data_folder + "rows.jsonl");
  size_t n = 0;
  for (std::string line; std::getline(file, line);) n++;
  const double n_batches = static_cast<double>((n + 1) / 2);
  EXPECT_EQ(log("run").at(0).epoch, 4 / n_batches);
  EXPECT_EQ(log("run").at(1).epoch, 8 / n_batches);
}

TEST_F(Train, SchedulesTakeOnlyTheirOwnArguments) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"cosine --lr_scheduler_kwargs '{\"min_lr\":1e-5}'", "min_lr is not of cosine"},
      {"cosine_with_min_lr", "has to give min_lr or min_lr_rate"},
      {"cosine_with_min_lr --lr_scheduler_kwargs '{\"min_lr\":1e-5,\"min_lr_rate\":0.1}'", "not both"},
      {"cosine_warmup_with_min_lr", "has to give min_lr or min_lr_rate"},
      {"warmup_stable_decay --lr_scheduler_kwargs '{\"num_decay_steps\":-3}'", "a whole number, at least 0"},
      {"warmup_stable_decay --lr_scheduler_kwargs '{\"num_decay_steps\":2.5}'", "a whole number, at least 0"},
      {"linear --lr_scheduler_kwargs '{\"what\":1}'", "no schedule has what"},
      {"cosine --lr_scheduler_kwargs '{\"num_cycles\":\"x\"}'", "it has to be a number"}};
  for (const auto &[words, message] : wrong) {
    const Outcome done = train("run", "--max_steps 4 --quiet --lr_scheduler_type " + words);
    EXPECT_NE(done.code, 0) << words;
    EXPECT_NE(done.text.find(message), std::string::npos) << done.text;
  }
  EXPECT_EQ(train("run",
                  "--max_steps 2 --quiet --lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs "
                  "'{\"min_lr\":1e-5,\"min_lr_rate\":null}'")
                .code,
            0);
}

}  // namespace
