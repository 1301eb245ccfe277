// Whole runs of ckpt-train on tiny models: ranks and stages, resuming, what is kept and removed, and what a run
// refuses. The Trainer's curves: curves_test.cc.
#include <iostream>
#include <random>

#include "tests/build.h"
#include "tests/trainer/loop/train_case.h"

namespace {

namespace fs = std::filesystem;
using training::data_folder;
using training::Outcome;
using Train = training::Train;

// ---- ranks ----------------------------------------------------------------------------------------------------------

class Ranks : public Train {
 protected:
  // A run whose steps have as many rows as those of `one` that it is compared with: 8, or where ranks are threes 6.
  void train_on(const std::string &out, int n_ranks, const std::string &words) {
    const int n_rows = n_ranks % 3 == 0 ? 6 : 8;
    const Outcome done = train(out, common_ + std::to_string(n_rows / n_ranks) + " " + words);
    ASSERT_EQ(done.code, 0) << out << done.text;
    runs_.push_back({out, n_rows == 8 ? "one" : "one-6"});
  }

  // Every stage gives the same bits.
  void train_in_stages(const std::string &out, int n_ranks, const std::vector<int> &stages, const std::string &words) {
    std::string first;
    for (int stage : stages) {
      const std::string to = out + std::to_string(stage);
      train_on(to, n_ranks, words + " --stage " + std::to_string(stage));
      if (first.empty()) first = bytes(to + "/model.safetensors");
      EXPECT_EQ(bytes(to + "/model.safetensors"), first) << "stages differ: " << to;
    }
  }

  void compare(const std::string &out, const std::string &wanted) {
    const auto rows = log(out), one = log(wanted), evaluated = log(out, "eval_loss"),
               one_eval = log(wanted, "eval_loss");
    const auto weights = tensors(wanted);
    ASSERT_EQ(rows.size(), 10u) << out;
    ASSERT_EQ(evaluated.size(), 2u) << out;
    for (size_t i = 0; i < 10; i++) {
      EXPECT_NEAR(rows[i].loss, one[i].loss, 1e-6 * one[i].loss) << out << " " << i;
      EXPECT_NEAR(rows[i].norm, one[i].norm, 1e-5 * one[i].norm) << out << " " << i;
    }
    for (size_t i = 0; i < 2; i++) EXPECT_NEAR(evaluated[i].loss, one_eval[i].loss, 1e-6) << out;
    for (const auto &[name, values] : tensors(out)) {
      float largest = 0;
      for (float x : weights.at(name)) largest = std::max(largest, std::fabs(x));
      for (size_t i = 0; i < values.size(); i++)
        ASSERT_NEAR(values[i], weights.at(name)[i], 1e-5 * largest) << out << " " << name;
    }
  }

  const std::string common_ =
      "--max_steps 10 --weight_decay 0.1 --lr_scheduler_type cosine --quiet --save_steps 10 --eval-data " +
      data_folder +
      "eval.jsonl --eval_strategy steps --eval_steps 5 --per_device_eval_batch_size 3 --per_device_train_batch_size ";
  std::vector<std::pair<std::string, std::string>> runs_;
};

// With --full all numbers of ranks; else some, drawn by a seed that is printed (CKPT_TEST_SEED gives it).
TEST_F(Ranks, OfAnyNumberAndStageGiveTheCurveOfOne) {
  std::vector<int> counts = {1, 2, 3, 4, 8};
  const char *given = std::getenv("CKPT_TEST_SEED");
  const auto seed = given != nullptr ? std::strtoul(given, nullptr, 10) : std::random_device()() % 10000UL;
  std::cout << "CKPT_TEST_SEED=" << seed << "\n";
  std::mt19937 engine((uint32_t)seed);
  for (size_t i = counts.size(); i > 1; i--) std::swap(counts[i - 1], counts[engine() % i]);
  if (std::getenv("CKPT_TEST_FULL") == nullptr) counts.resize(is_sanitized() ? 1 : 2);
  ASSERT_EQ(train("one", common_ + "8").code, 0);
  ASSERT_EQ(train("one-6", common_ + "6").code, 0);
  ASSERT_NO_FATAL_FAILURE(train_on("accumulated", 4, "--gradient_accumulation_steps 4"));
  for (int n : counts)
    ASSERT_NO_FATAL_FAILURE(
        train_in_stages("n" + std::to_string(n) + "s", n, {0, 1, 2, 3}, "--ranks " + std::to_string(n)));
  // Both axes: shards and replicas of them; one replica saves.
  std::vector<std::pair<int, int>> meshes = {{2, 2}, {4, 2}, {2, 3}};
  if (!is_thorough()) meshes.resize(1);
  for (const auto &[replicas, shards] : meshes) {
    const std::string r = std::to_string(replicas), s = std::to_string(shards), out = "r" + r + "s" + s;
    ASSERT_NO_FATAL_FAILURE(
        train_in_stages(out, replicas * shards, {1, 2, 3}, "--mesh dp_replicate=" + r + ",dp_shard=" + s));
    size_t n_files = 0;
    for (const auto &entry : fs::directory_iterator(at(out) + "1/checkpoint-10"))
      n_files += entry.path().extension() == ".distcp";
    EXPECT_EQ(n_files, (size_t)shards) << out;
  }
  for (const auto &[out, wanted] : runs_) compare(out, wanted);
}

// Layers gathered and summed beside the computing, or in turn; run again for backward or kept; ranks without a row.
TEST_F(Train, OverlapAndRecomputationChangeNoBit) {
  fs::copy(data_folder + "llama", at("deep"));
  std::string whole;
  int number = 0;
  for (const int n_layers : {4, 5}) {  // slots of layers are taken anew, from either end
    json_t *config = json_load_file((at("deep") + "/config.json").c_str(), 0, nullptr);
    json_object_set_new(config, "num_hidden_layers", json_integer(n_layers));
    json_dump_file(config, (at("deep") + "/config.json").c_str(), 0);
    json_decref(config);
    const std::string common = "--model " + at("deep") + " --init scratch --data " + data_folder +
                               "rows.jsonl --threads 1 --learning_rate 5e-3 --max_steps 5 --quiet --save_steps 3 "
                               "--per_device_train_batch_size 1 --gradient_accumulation_steps 2 --ranks 4 "
                               "--eval_strategy steps --eval_steps 3 --per_device_eval_batch_size 3 --eval-data " +
                               data_folder + "eval.jsonl ";
    whole.clear();
    for (const char *stage : is_thorough() ? std::vector<const char *>{"2", "3"} : std::vector<const char *>{"3"})
      for (const char *how :
           {"--overlap on", "--overlap off", "--overlap on --gradient_checkpointing true", "--recompute selective"}) {
        const std::string out = "run" + std::to_string(number++);
        const Outcome done = run(common + "-o " + at(out) + " " + how + " --stage " + stage);
        ASSERT_EQ(done.code, 0) << done.text;
        if (whole.empty()) whole = bytes(out + "/model.safetensors");
        EXPECT_EQ(bytes(out + "/model.safetensors"), whole) << n_layers << stage << how;
        fs::remove_all(at(out));
      }
  }
  EXPECT_EQ(train("wrong", "--overlap maybe").code, 2);
}

// Rows are counted over the step, so ranks and accumulation draw alike; evaluation does not drop.
TEST_F(Train, DropsTheSameOnAnyRanksAndAfterResuming) {
  fs::copy(data_folder + "gpt2", at("model"));
  json_t *config = json_load_file((at("model") + "/config.json").c_str(), 0, nullptr);
  for (const char *key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json_object_set_new(config, key, json_real(0.2));
  json_dump_file(config, (at("model") + "/config.json").c_str(), 0);
  json_decref(config);
  auto dropped = [&](const std::string &out, const std::string &words) {
    return run("--model " + at("model") + " --data " + data_folder + "rows.jsonl --eval-data " + data_folder +
               "eval.jsonl -o " + at(out) + " --threads 1 --quiet --max_steps 6 --eval_strategy steps --eval_steps 6 " +
               words);
  };
  const std::string batch = "--per_device_train_batch_size ";
  ASSERT_EQ(dropped("one", batch + "8 --save_steps 3").code, 0);
  ASSERT_EQ(dropped("accumulated", batch + "2 --gradient_accumulation_steps 4").code, 0);
  ASSERT_EQ(dropped("ranks", batch + "4 --ranks 2 --stage 2").code, 0);
  ASSERT_EQ(dropped("other", batch + "8 --seed 7 --data_seed 42").code, 0);
  fs::remove_all(at("one/checkpoint-6"));
  const auto one = log("one");
  const std::string whole = bytes("one/model.safetensors");
  ASSERT_EQ(dropped("one", batch + "8 --save_steps 3 --resume last").code, 0);
  EXPECT_EQ(bytes("one/model.safetensors"), whole);
  ASSERT_EQ(train("without", batch + "8 --max_steps 6 --quiet --learning_rate 5e-5", "gpt2").code, 0);
  for (size_t i = 0; i < 6; i++) {
    EXPECT_NEAR(log("accumulated")[i].loss, one[i].loss, 1e-6 * one[i].loss) << i;
    EXPECT_NEAR(log("ranks")[i].loss, one[i].loss, 1e-6 * one[i].loss) << i;
    EXPECT_NE(log("other")[i].loss, one[i].loss) << i;
    EXPECT_NE(log("without")[i].loss, one[i].loss) << i;
  }
  EXPECT_NEAR(log("one", "eval_loss").back().loss, log("ranks", "eval_loss").back().loss, 1e-6);
}

TEST_F(Train, UnevenRanksGiveTheSameBitsForAnyThreads) {
  const std::string common =
      "--max_steps 8 --quiet --save_steps 4 --per_device_train_batch_size 2 --ranks 3 --stage 2 ";
  ASSERT_EQ(train("a", common).code, 0);
  ASSERT_EQ(train("b", common + "--threads 3").code, 0);
  EXPECT_EQ(bytes("a/model.safetensors"), bytes("b/model.safetensors"));
  EXPECT_EQ(log("a").back().loss, log("b").back().loss);
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

TEST_F(Train, ResumesToTheSameBytesTwiceInARow) {
  const std::string common =
      "--max_steps 24 --lr_scheduler_type linear --quiet --per_device_train_batch_size 2 "
      "--gradient_accumulation_steps 3 --packing document --max_length 10 ";
  ASSERT_EQ(train("whole", common + "--save_steps 24").code, 0);
  ASSERT_EQ(train("cut", common + "--save_steps 7").code, 0);
  for (int i = 0; i < 2; i++) {
    fs::remove_all(at("cut/checkpoint-24"));
    fs::remove_all(at("cut/checkpoint-21"));
    if (i == 1) fs::remove_all(at("cut/checkpoint-14"));
    fs::remove(at("cut/model.safetensors"));
    const Outcome done = train("cut", common + "--save_steps 7 --resume last");
    ASSERT_EQ(done.code, 0) << done.text;
    EXPECT_EQ(bytes("cut/model.safetensors"), bytes("whole/model.safetensors"));
  }
  const auto whole = log("whole"), cut = log("cut");
  ASSERT_EQ(whole.size(), 24u);
  ASSERT_EQ(cut.size(), 24u);
  for (size_t i = 0; i < 24; i++) {
    EXPECT_EQ(cut[i].loss, whole[i].loss) << i;
    EXPECT_EQ(cut[i].norm, whole[i].norm) << i;
    EXPECT_EQ(cut[i].rate, whole[i].rate) << i;
  }
  const auto a = tensors("whole/checkpoint-24"), b = tensors("cut/checkpoint-24");
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.count("optimizer.state.model.norm.weight.exp_avg"), 1u);
}

TEST_F(Train, ResumesOnOtherRanksAndStages) {
  const std::string common = "--max_steps 10 --quiet --save_steps 5 ";
  ASSERT_EQ(train("one", common + "--per_device_train_batch_size 4").code, 0);
  for (const char *mesh :
       {"--ranks 2 --per_device_train_batch_size 2 --stage 3", "--ranks 4 --per_device_train_batch_size 1",
        "--mesh dp_replicate=2,dp_shard=2 --per_device_train_batch_size 1 --stage 2",
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 4"}) {
    fs::remove_all(at("other"));
    fs::copy(at("one"), at("other"), fs::copy_options::recursive);
    fs::remove_all(at("other/checkpoint-10"));
    const Outcome done = train("other", common + mesh + " --resume last");
    ASSERT_EQ(done.code, 0) << done.text;
    const auto a = log("one"), b = log("other");
    for (size_t i = 0; i < 10; i++) EXPECT_NEAR(a[i].loss, b[i].loss, 1e-6 * a[i].loss) << mesh << i;
    const auto wanted = tensors("one/checkpoint-10"), found = tensors("other/checkpoint-10");
    for (const auto &[name, values] : wanted) {
      float largest = 1e-6f;
      for (float x : values) largest = std::max(largest, std::fabs(x));
      for (size_t i = 0; i < values.size(); i++) ASSERT_NEAR(found.at(name)[i], values[i], 2e-5 * largest) << name;
    }
  }
  const Outcome refused = train("one", common + "--per_device_train_batch_size 2 --resume last");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.text.find("its steps had 4 rows, here they have 2"), std::string::npos) << refused.text;
}

TEST_F(Train, EveryFormatIsGoneOnFrom) {
  for (const char *format : {"dcp", "torch", "universal", "zero"}) {
    const std::string out = std::string("with-") + format;
    const std::string common = std::string(
                                   "--max_steps 8 --quiet --save_steps 4 --ranks 2 --stage 1 "
                                   "--per_device_train_batch_size 2 --save-format ") +
                               format;
    const Outcome first = train(out, common);
    ASSERT_EQ(first.code, 0) << first.text;
    const std::string whole = bytes(out + "/model.safetensors");
    fs::remove_all(at(out + "/checkpoint-8"));
    const Outcome done = train(out, common + " --resume last");
    ASSERT_EQ(done.code, 0) << format << done.text;
    EXPECT_EQ(bytes(out + "/model.safetensors"), whole) << format;
  }
}

TEST_F(Train, WalksBackPastWhatIsBroken) {
  const std::string common = "--max_steps 12 --quiet --save_steps 4 --per_device_train_batch_size 4 --ranks 2 ";
  ASSERT_EQ(train("run", common).code, 0);
  const std::string whole = bytes("run/model.safetensors");
  fs::remove(at("run/checkpoint-12/__0_0.distcp"));
  const auto broken = at("run/checkpoint-8/.metadata");
  fs::resize_file(broken, fs::file_size(broken) / 2);
  const Outcome done = train("run", common + "--resume last --save_total_limit 3");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_NE(done.text.find("checkpoint-12 is skipped"), std::string::npos) << done.text;
  EXPECT_NE(done.text.find("checkpoint-8 is skipped"), std::string::npos) << done.text;
  EXPECT_EQ(bytes("run/model.safetensors"), whole);
  EXPECT_EQ(log("run").size(), 12u);
  // What was broken is written anew; nothing of it counts among those that are kept.
  EXPECT_EQ(checkpoints("run"), (std::vector<std::string>{"checkpoint-12", "checkpoint-4", "checkpoint-8"}));
  EXPECT_TRUE(fs::exists(at("run/broken-checkpoint-12")));
  EXPECT_TRUE(fs::exists(at("run/checkpoint-12/__0_0.distcp")));
}

// Headers are whole, and bytes of tensors are others: that shows when they are loaded.
TEST_F(Train, WalksBackPastBytesThatChanged) {
  for (const std::string format : {"dcp", "torch", "zero"}) {
    const std::string common =
        "--max_steps 9 --quiet --save_steps 3 --per_device_train_batch_size 4 --ranks 2 "
        "--stage 1 --save-format " +
        format + " ";
    ASSERT_EQ(train(format, common).code, 0);
    const std::string whole = bytes(format + "/model.safetensors");
    if (format == "zero") { /* killed before run.json named the last one */
      json_t *run = json_load_file((at(format) + "/run.json").c_str(), 0, nullptr);
      json_object_del(json_object_get(run, "checkpoints"), "checkpoint-9");
      json_dump_file(run, (at(format) + "/run.json").c_str(), 0);
      json_decref(run);
    }
    for (const char *step : {"9", "6"}) {
      fs::path largest;
      for (const auto &entry : fs::recursive_directory_iterator(at(format + "/checkpoint-" + step)))
        if (entry.is_regular_file() && (largest.empty() || entry.file_size() > fs::file_size(largest)))
          largest = entry.path();
      std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(largest) / 2));
      file << std::string(700, 'x');
    }
    const Outcome done = train(format, common + "--resume last");
    ASSERT_EQ(done.code, 0) << done.text;
    EXPECT_NE(done.text.find("checkpoint-9"), std::string::npos) << done.text;
    EXPECT_NE(done.text.find(format == "torch" ? "contradicts the directory" : "CRC-32"), std::string::npos)
        << done.text;
    EXPECT_NE(done.text.find("checkpoint-6 is now " + at(format + "/broken-checkpoint-6")), std::string::npos)
        << done.text;
    EXPECT_EQ(bytes(format + "/model.safetensors"), whole);
    EXPECT_EQ(log(format).size(), 9u);
    EXPECT_EQ(train(format, common + "--resume last").code, 0);
  }
}

// A flipped byte can make it look like another version's, which is damage too.
TEST_F(Train, WalksBackPastWhatLooksLikeAnotherVersion) {
  const std::string common = "--max_steps 6 --quiet --save_steps 3 --per_device_train_batch_size 4 ";
  ASSERT_EQ(train("run", common).code, 0);
  const std::string whole = bytes("run/model.safetensors");
  std::fstream file(at("run/checkpoint-6/.metadata"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1);
  file.put('\x7f'); /* the pickle's protocol */
  file.close();
  const Outcome done = train("run", common + "--resume auto");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_NE(done.text.find("is skipped"), std::string::npos) << done.text;
  EXPECT_EQ(bytes("run/model.safetensors"), whole);
}

// A later checkpoint of the same run would be taken for what follows; a folder of another is not written over.
TEST_F(Train, TimesOfARunAreNotMixed) {
  const std::string common = "--max_steps 6 --quiet --save_steps 2 --per_device_train_batch_size 4 ";
  ASSERT_EQ(train("run", common).code, 0);
  const Outcome old = train("run", common + "--learning_rate 1e-4 --resume " + at("run/checkpoint-2"));
  EXPECT_EQ(old.code, 1);
  EXPECT_NE(old.text.find("it has the checkpoint of step 6, and the one to go on from is of step 2"), std::string::npos)
      << old.text;
  EXPECT_EQ(train("other", common + "--resume " + at("run/checkpoint-2")).code, 0);
  EXPECT_EQ(bytes("other/model.safetensors"), bytes("run/model.safetensors"));
  fs::create_directories(at("foreign/checkpoint-4"));
  std::ofstream(at("foreign/checkpoint-4/mine")) << "x";
  const Outcome foreign = train("foreign", common + "--resume auto");
  EXPECT_EQ(foreign.code, 1);
  EXPECT_NE(foreign.text.find("it is there, and this run did not write it"), std::string::npos) << foreign.text;
  EXPECT_EQ(bytes("foreign/checkpoint-4/mine"), "x");
  EXPECT_TRUE(fs::exists(at("foreign/checkpoint-6")));
  ASSERT_EQ(train("only", common + "--save_only_model").code, 0);
  const Outcome only = train("only", common + "--resume auto");
  EXPECT_EQ(only.code, 1);
  EXPECT_NE(only.text.find("with save_only_model no run can go on"), std::string::npos) << only.text;
  EXPECT_TRUE(fs::exists(at("only/checkpoint-6")));
}

TEST_F(Train, KeepsAsManyCheckpointsAsAskedAndTheBest) {
  const std::string common =
      "--max_steps 12 --quiet --save_steps 2 --per_device_train_batch_size 4 --save_total_limit 2 ";
  fs::create_directories(at("run"));
  ASSERT_EQ(train("run", common + "--resume auto").code, 0);
  EXPECT_EQ(checkpoints("run"), (std::vector<std::string>{"checkpoint-10", "checkpoint-12"}));
  // Only what this run wrote goes: a folder of another run stays.
  fs::create_directories(at("other/checkpoint-1"));
  std::ofstream(at("other/checkpoint-1/mine")) << "x";
  ASSERT_EQ(train("other", common + "--resume auto").code, 0);
  EXPECT_EQ(checkpoints("other"), (std::vector<std::string>{"checkpoint-1", "checkpoint-10", "checkpoint-12"}));
  // The rate is such that the loss grows after a while: the best is not the last.
  const Outcome best = train("best", common +
                                         "--learning_rate 0.3 --lr_scheduler_type constant --load_best_model_at_end "
                                         "--eval_strategy steps --eval_steps 2 --eval-data " +
                                         data_folder + "eval.jsonl");
  ASSERT_EQ(best.code, 0) << best.text;
  const auto losses = log("best", "eval_loss");
  size_t least = 0;
  for (size_t i = 0; i < losses.size(); i++)
    if (losses[i].loss < losses[least].loss) least = i;
  ASSERT_LT(least + 1, losses.size());
  const std::string name = "checkpoint-" + std::to_string(2 * (least + 1));
  EXPECT_TRUE(fs::exists(at("best/" + name))) << name;
  EXPECT_TRUE(fs::exists(at("best/checkpoint-12")));
  const auto final_weights = tensors("best"), wanted = tensors("best/" + name);
  for (const auto &[key, values] : final_weights) EXPECT_EQ(values, wanted.at(key)) << key;
}

TEST_F(Train, TheBestMayHaveNoCheckpoint) {
  const Outcome done = train("run",
                             "--max_steps 12 --per_device_train_batch_size 4 --learning_rate 0.3 --save_steps 12 "
                             "--lr_scheduler_type constant --load_best_model_at_end --eval_strategy steps --quiet "
                             "--eval_steps 2 --save-format torch --eval-data " +
                                 data_folder + "eval.jsonl");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_NE(done.text.find("has no checkpoint: the last weights stay"), std::string::npos) << done.text;
  const auto last = tensors("run/checkpoint-12/state.pt");
  for (const auto &[key, values] : tensors("run")) EXPECT_EQ(values, last.at(key)) << key;
}

TEST_F(Train, StopsEarly) {
  const Outcome done = train("run",
                             "--max_steps 40 --per_device_train_batch_size 4 --learning_rate 0.3 --save_strategy no "
                             "--lr_scheduler_type constant --eval_strategy steps --eval_steps 1 "
                             "--early_stopping_patience 3 --eval-data " +
                                 data_folder + "eval.jsonl");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_NE(done.text.find("early stopping"), std::string::npos);
  EXPECT_LT(log("run").size(), 40u);
}

TEST_F(Train, SavesAndStopsWhenAsked) {
  const std::string words = "--max_steps 100000 --quiet --save_strategy no --per_device_train_batch_size 4 --ranks 2 ";
  const std::string command = "--model " + data_folder + "llama --data " + data_folder + "rows.jsonl -o " + at("run") +
                              " --threads 1 --learning_rate 5e-3 " + words;
  for (const char *signal : {"TERM", "USR1", "INT"}) {
    const std::string resume = fs::exists(at("run")) ? " --resume last" : "";
    const std::string log = at("run/log.jsonl");  // it has grown: the run has begun
    const std::string script = "bash -c 'touch -a " + at("before") + "; cp " + log + " " + at("before") +
                               " 2>/dev/null; " + binary_dir() + "/bin/ckpt-train " + command + resume +
                               " & pid=$!; for i in {1..600}; do cmp -s " + log + " " + at("before") + " || [ ! -s " +
                               log + " ] || break; sleep 0.05; done; kill -" + signal + " $pid; wait $pid'";
    const int status = std::system(script.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 3) << signal;
  }
  const auto names = checkpoints("run");
  ASSERT_EQ(names.size(), 3u);
  EXPECT_FALSE(fs::exists(at("run/model.safetensors")));
}

// ---- what it writes -------------------------------------------------------------------------------------------------

TEST_F(Train, EndsWithAHuggingFaceFolder) {
  ASSERT_EQ(train("run", "--num_train_epochs 1 --quiet --per_device_train_batch_size 4", "gpt2").code, 0);
  for (const char *name : {"config.json", "generation_config.json", "model.safetensors", "run.json",
                           "train_results.json", "log.jsonl", "checkpoint-7/.metadata", "checkpoint-7/config.json"})
    EXPECT_TRUE(fs::exists(at(std::string("run/") + name))) << name;
  const auto before = tensors("../../" + data_folder + "gpt2"), after = tensors("run");
  EXPECT_EQ(after.count("transformer.wte.weight"), 1u);
  ASSERT_EQ(train("again", "--num_train_epochs 1 --quiet --per_device_train_batch_size 4 --model " + at("run")).code,
            0);
}

TEST_F(Train, InitializesFromScratchAlikeOnAnyRanks) {
  fs::create_directories(at("config"));
  fs::copy(data_folder + "llama/config.json", at("config/config.json"));
  const std::string words = " --data " + data_folder +
                            "rows.jsonl --init scratch --max_steps 3 --quiet --learning_rate 0 "
                            "--lr_scheduler_type constant ";
  ASSERT_EQ(run("--model " + at("config") + words + "--per_device_train_batch_size 2 -o " + at("a")).code, 0);
  ASSERT_EQ(
      run("--model " + at("config") + words + "--ranks 2 --stage 3 --per_device_train_batch_size 1 -o " + at("b")).code,
      0);
  ASSERT_EQ(run("--model " + at("config") + words + "--seed 7 --per_device_train_batch_size 2 -o " + at("c")).code, 0);
  EXPECT_EQ(bytes("a/model.safetensors"), bytes("b/model.safetensors"));
  EXPECT_NE(bytes("a/model.safetensors"), bytes("c/model.safetensors"));
  for (const auto &[name, values] : tensors("a")) {
    double squares = 0;
    for (float x : values) squares += double(x) * x;
    const double deviation = std::sqrt(squares / double(values.size()));
    if (name.find("norm") == std::string::npos)
      EXPECT_NEAR(deviation, 0.02, 0.003) << name;
    else
      EXPECT_EQ(deviation, 1.0) << name;
  }
}

TEST_F(Train, DumpsGradientsThatAreThoseOfAllRanks) {
  ASSERT_EQ(train("x", "--per_device_train_batch_size 4 --dump-grads " + at("one.safetensors")).code, 0);
  ASSERT_EQ(
      train("y", "--per_device_train_batch_size 1 --ranks 4 --stage 2 --dump-grads " + at("four.safetensors")).code, 0);
  const auto one = tensors("one.safetensors"), four = tensors("four.safetensors");
  ASSERT_EQ(one.size(), 21u);
  double squares = 0;
  for (const auto &[name, values] : one)
    for (size_t i = 0; i < values.size(); i++) {
      ASSERT_NEAR(values[i], four.at(name)[i], 1e-6) << name;
      squares += double(values[i]) * values[i];
    }
  ASSERT_EQ(train("z", "--per_device_train_batch_size 4 --max_steps 1 --quiet").code, 0);
  EXPECT_NEAR(std::sqrt(squares), log("z")[0].norm, 1e-6);
  ASSERT_EQ(train("l", "--per_device_train_batch_size 4 --dump-logits " + at("logits.safetensors")).code, 0);
  EXPECT_EQ(tensors("logits.safetensors").at("logits").size() % (4 * 96), 0u);
}

// ---- adapters -------------------------------------------------------------------------------------------------------

const char *const lora_words =
    "--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --max_steps 12 --weight_decay 0.1 "
    "--lr_scheduler_type cosine --warmup_steps 4 --adam_beta2 0.95 --quiet --save_steps 5 "
    "--train_sampling_strategy sequential ";

// tests/data/make_training_lora.py
// The names that PEFT writes, but for those of copies: of a head beside its adapter, of what is saved whole.
void ExpectNames(const std::map<std::string, std::vector<float>> &tensors, const json_t *norms,
                 const std::string &out) {
  const char *key;
  json_t *value;
  size_t n = 0;
  json_object_foreach(const_cast<json_t *>(norms), key, value) {
    n += tensors.count(key);
    EXPECT_TRUE(tensors.count(key) == 1 || strstr(key, "lm_head.base_layer.weight") != nullptr ||
                strstr(key, ".modules_to_save.") != nullptr || strstr(key, ".original_module.") != nullptr)
        << out << " " << key;
  }
  EXPECT_EQ(n, tensors.size()) << out;
}

TEST_F(Train, FollowsTheTrainerWithPeft) {
  json_t *golden = json_load_file((data_folder + "lora.json").c_str(), 0, nullptr), *row;
  ASSERT_NE(golden, nullptr);
  const char *name;
  size_t n_cases = 0;
  json_object_foreach(golden, name, row) {
    const std::string out = name, model = json_string_value(json_object_get(row, "model"));
    const std::string words = lora_words + ("--lora " + data_folder + "lora-" + out);
    const Outcome done = train(out, words, model);
    ASSERT_EQ(done.code, 0) << done.text;
    const auto rows = log(out);
    const json_t *steps = json_object_get(row, "steps");
    ASSERT_EQ(rows.size(), json_array_size(steps));
    for (size_t i = 0; i < rows.size(); i++) {
      const auto wanted = [&](const char *key) {
        return json_number_value(json_object_get(json_array_get(steps, i), key));
      };
      EXPECT_NEAR(rows[i].loss, wanted("loss"), 1e-6 * wanted("loss")) << out << " " << i;
      EXPECT_NEAR(rows[i].norm, wanted("grad_norm"), 1e-5 * wanted("grad_norm")) << out << " " << i;
    }
    const auto all = tensors(out + "/adapter_model.safetensors");
    const json_t *norms = json_object_get(row, "norms");
    ExpectNames(all, norms, out);
    for (const auto &[key, values] : all) {
      double squares = 0;
      for (float x : values) squares += double(x) * x;
      const double wanted = json_number_value(json_object_get(norms, key.c_str()));
      const bool is_rounding =
          key.find("k_proj.bias") != std::string::npos || key.find("c_attn.bias") != std::string::npos;
      EXPECT_NEAR(std::sqrt(squares), wanted, (is_rounding ? 1e-2 : 1e-5) * wanted) << out << " " << key;
    }
    if (++n_cases % 4 != 1 && !is_thorough()) continue;
    // Resumed, to the same bytes; on two ranks, to the same values.
    const std::string whole = bytes(out + "/adapter_model.safetensors");
    fs::remove_all(at(out + "/checkpoint-12"));
    fs::remove_all(at(out + "/checkpoint-10"));
    const Outcome again = train(out, words + " --resume last", model);
    ASSERT_EQ(again.code, 0) << again.text;
    EXPECT_EQ(bytes(out + "/adapter_model.safetensors"), whole);
    std::string ranks = words;
    ranks.replace(ranks.find("batch_size 2"), 12, "batch_size 1");
    ASSERT_EQ(train(out + "-ranks", ranks + " --ranks 2 --stage 3", model).code, 0);
    for (const auto &[key, values] : tensors(out + "-ranks/adapter_model.safetensors"))
      for (size_t i = 0; i < values.size() && key.find("k_proj.bias") == std::string::npos &&
                         key.find("c_attn.bias") == std::string::npos;
           i++)
        ASSERT_NEAR(values[i], all.at(key)[i], 1e-5) << key;
  }
  EXPECT_EQ(n_cases, 14u);
  json_decref(golden);
}

// What is frozen has no gradients, and their inputs are not kept; DoRA runs merged, with gradients of all weights.
TEST_F(Train, FrozenWeightsTakeNoGradients) {
  auto planned = [&](const std::string &what, const std::string &words) {
    EXPECT_EQ(train("p", "--plan --per_device_train_batch_size 4 " + words).code, 0);
    const std::string text = bytes("stdout");
    const size_t place = text.find(what + " ");
    EXPECT_NE(place, std::string::npos) << text;
    std::stringstream rest(text.substr(place + what.size()));
    double n = 0;
    std::string unit;
    rest >> n >> unit;
    return n * (unit.rfind("KB", 0) == 0 ? 1e3 : unit.rfind("MB", 0) == 0 ? 1e6 : 1);
  };
  std::ofstream(at("lora.json")) << R"({"r": 2, "target_modules": ["q_proj"], "peft_type": "LORA"})";
  std::ofstream(at("dora.json")) << R"({"r": 2, "target_modules": ["q_proj"], "peft_type": "LORA", "use_dora": true})";
  const std::string lora = "--lora " + at("lora.json"), dora = "--lora " + at("dora.json");
  EXPECT_LT(planned("gradients", lora), 0.1 * planned("gradients", ""));
  EXPECT_GT(planned("gradients", dora), 0.9 * planned("gradients", ""));
  EXPECT_LT(planned("activations", lora), 0.9 * planned("activations", ""));
  EXPECT_LT(planned("activations", "--gradient_checkpointing true"), 0.95 * planned("activations", ""));
}

// What goes through A is dropped while training: another curve, the same on any ranks, and none of it in evaluation.
TEST_F(Train, DropsWhatGoesThroughAnAdapter) {
  std::ofstream(at("lora.json")) << R"({"r": 4, "target_modules": "all-linear", "init_lora_weights": false,
                                        "lora_dropout": 0.5, "peft_type": "LORA"})";
  std::ofstream(at("plain.json")) << R"({"r": 4, "target_modules": "All-Linear", "init_lora_weights": false,
                                         "peft_type": "LORA"})";
  const std::string words =
      "--max_steps 3 --quiet --eval_on_start true --eval_strategy steps --eval_steps 3 --eval-data " + data_folder +
      "eval.jsonl --per_device_train_batch_size ";
  ASSERT_EQ(train("one", words + "4 --lora " + at("lora.json")).code, 0);
  ASSERT_EQ(train("two", words + "2 --ranks 2 --lora " + at("lora.json")).code, 0);
  ASSERT_EQ(train("plain", words + "4 --lora " + at("plain.json")).code, 0);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_NEAR(log("one")[i].loss, log("two")[i].loss, 1e-6 * log("one")[i].loss) << i;
    EXPECT_NE(log("one")[i].loss, log("plain")[i].loss) << i;
  }
  EXPECT_EQ(log("one", "eval_loss")[0].loss, log("plain", "eval_loss")[0].loss);
  ASSERT_EQ(train("again", words + "4 --gradient_checkpointing true --lora " + at("lora.json")).code, 0);
  EXPECT_EQ(bytes("again/adapter_model.safetensors"), bytes("one/adapter_model.safetensors"));
  std::ofstream(at("lora.json")) << R"({"lora_dropout": 1, "peft_type": "LORA"})";
  const Outcome wrong = train("wrong", "--lora " + at("lora.json"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.text.find("lora_dropout 1"), std::string::npos) << wrong.text;
}

TEST_F(Train, ANewAdapterChangesNothingYet) {
  std::ofstream(at("lora.json")) << R"({"r": 4, "target_modules": ["q_proj", "down_proj"], "peft_type": "LORA"})";
  ASSERT_EQ(train("a", "--max_steps 2 --quiet --per_device_train_batch_size 4 --lora " + at("lora.json")).code, 0);
  ASSERT_EQ(train("b", "--max_steps 2 --quiet --per_device_train_batch_size 4").code, 0);
  EXPECT_EQ(log("a")[0].loss, log("b")[0].loss);
  EXPECT_LT(log("a")[0].norm, log("b")[0].norm);
  EXPECT_EQ(tensors("a/adapter_model.safetensors").size(), 8u);
  EXPECT_FALSE(fs::exists(at("a/config.json")));
  EXPECT_NE(bytes("a/adapter_config.json").find("\"alpha_pattern\": {}"), std::string::npos);
  const Outcome plan = train("c", "--plan --lora " + at("lora.json"));
  EXPECT_NE(bytes("stdout").find("trained: 704 of 8528 parameters"), std::string::npos) << bytes("stdout");
  EXPECT_NE(bytes("stdout").find("frozen: 8528 parameters in 21 of the model's 21 tensors"), std::string::npos)
      << bytes("stdout");
  std::ofstream(at("all.json")) << R"({"r": 2, "target_modules": ["c_fc"], "peft_type": "LORA", "bias": "all",
                                       "modules_to_save": ["ln_f"]})";
  ASSERT_EQ(train("e", "--plan --lora " + at("all.json"), "gpt2").code, 0);
  EXPECT_NE(bytes("stdout").find("of 2 layers, and 14 tensors whole (384 parameters)"), std::string::npos)
      << bytes("stdout");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"use_qalora": true})", "use_qalora true"},
      {R"({"bias": "some"})", "bias \"some\": it has to be none, lora_only or all"},
      {R"({"target_modules": ["nothing"]})", "no linear layer of LlamaForCausalLM is called so"},
      {R"({"r": 0})", "r is no positive number"},
      {R"({"peft_type": "IA3"})", "it has to be LORA"},
      {R"({"target_modules": "(["})", "(["},
      {R"({"r": )", "line 1"}};
  for (const auto &[text, what] : wrong) {
    std::ofstream(at("wrong.json")) << text;
    const Outcome done = train("d", "--lora " + at("wrong.json"));
    EXPECT_EQ(done.code, 1) << text;
    EXPECT_NE(done.text.find(what), std::string::npos) << done.text;
  }
}

// ---- data -----------------------------------------------------------------------------------------------------------

// Two rows in one block: what stands in the first changes nothing in the second's loss where documents are kept apart.
TEST_F(Train, PackedDocumentsDoNotSeeEachOther) {
  const auto loss = [&](const std::string &first, const std::string &packing, int number) {
    const std::string rows = at("rows.jsonl"), out = "run" + packing + std::to_string(number);
    std::ofstream(rows) << "{\"input_ids\": " << first << ", \"labels\": [-100, -100, -100, -100]}\n"
                        << "{\"input_ids\": [9, 8, 7, 6, 5]}\n";
    const Outcome done =
        run("--model " + data_folder + "llama --data " + rows + " -o " + at(out) + " --max_length 9 --packing " +
            packing + " --max_steps 1 --quiet --save_strategy no --train_sampling_strategy sequential");
    EXPECT_EQ(done.code, 0) << done.text;
    return log(out).at(0).loss;
  };
  EXPECT_EQ(loss("[1, 2, 3, 4]", "document", 1), loss("[50, 60, 70, 80]", "document", 2));
  EXPECT_NE(loss("[1, 2, 3, 4]", "concat", 1), loss("[50, 60, 70, 80]", "concat", 2));
  const std::string rows = at("alone.jsonl");
  std::ofstream(rows) << "{\"input_ids\": [9, 8, 7, 6, 5]}\n";
  ASSERT_EQ(
      run("--model " + data_folder + "llama --data " + rows + " -o " + at("alone") + " --max_steps 1 --quiet").code, 0);
  EXPECT_NEAR(log("alone").at(0).loss, loss("[1, 2, 3, 4]", "document", 3), 1e-6);
}

// ---- refusals -------------------------------------------------------------------------------------------------------

TEST_F(Train, RefusesWhatItCannotDo) {
  const std::string model = "--model " + data_folder + "llama ", data = "--data " + data_folder + "rows.jsonl ";
  ASSERT_EQ(train("there", "--max_steps 2 --quiet --save_steps 1 --per_device_train_batch_size 4").code, 0);
  ASSERT_EQ(train("gpt2-run", "--max_steps 2 --quiet --per_device_train_batch_size 4", "gpt2").code, 0);
  std::ofstream(at("nothing.jsonl")) << "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n";
  std::ofstream(at("broken.jsonl")) << "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2\n";
  std::ofstream(at("empty.jsonl")) << "";
  std::ofstream(at("args.json")) << "{\"learning_rate\": }";
  std::ofstream(at("typo.json")) << "{\"learning_rat\": 1}";
  const struct {
    std::string words;
    int code;
    std::string what;
  } cases[] = {
      {model + data + "-o " + at("there"), 1,
       "it is there already (--resume last goes on from it, --force moves it aside)"},
      {model + data + "-o " + at("x") + " --resume last", 1, "there is no checkpoint to go on from"},
      {model + "--data " + at("nothing.jsonl") + " -o " + at("x1"), 1, "step 1 has no token to learn from"},
      {model + "--data " + at("broken.jsonl") + " -o " + at("x2") + " --train_sampling_strategy sequential", 1,
       "broken.jsonl: line 2: it is no JSON"},
      {model + "--data " + at("broken.jsonl") + " -o " + at("x3") + " --packing document", 1, "line 2"},
      {model + "--data " + at("empty.jsonl") + " -o " + at("x4"), 1, "there is no row to train on"},
      {model + "--data " + at("none.jsonl") + " -o " + at("x5"), 1, "none.jsonl"},
      {model + data + "-o " + at("x6") + " --max_length 33", 1, "the model has 32 positions"},
      {model + data + "-o " + at("x7") + " --resume " + at("gpt2-run/checkpoint-2") +
           " --per_device_train_batch_size 4",
       1, "embed_tokens"},
      {model + data + "-o " + at("x8") + " --resume " + at("there"), 1, "no run can go on from it"},
      {model + data + "-o " + at("gpt2-run") + " --per_device_train_batch_size 4 --resume " + at("there/checkpoint-1"),
       1, "and the checkpoint is one of run"},
      {model + data + "-o " + at("x9") + " --args " + at("args.json"), 2, "args.json: line 1"},
      {model + data + "-o " + at("x10") + " --args " + at("typo.json"), 2, "did you mean learning_rate?"},
      {model + data + "-o " + at("x11") + " --load_best_model_at_end", 2, "the best needs eval_strategy"},
      {model + data + "-o " + at("x12") + " --fp16", 2, "fp16 true"},
      {model + "-o " + at("x13"), 2, "--data has to be given"},
      {model + data + "-o " + at("x16") + " --lr_scheduler_kwargs '{bad'", 2, "it has to be a JSON object"},
      {model + data + "-o " + at("x17") + " --lr_scheduler_kwargs '{\"power\": 2}'", 2, "power is not of linear"},
      {"--model " + at("nowhere") + " " + data + "-o " + at("x14"), 1, "nowhere"},
      {"--model " + at("") + " --init scratch " + data + "-o " + at("x15"), 1, "there is no config.json in it"},
  };
  for (const auto &one : cases) {
    const Outcome done = run(one.words);
    EXPECT_EQ(done.code, one.code) << one.words << "\n" << done.text;
    EXPECT_NE(done.text.find(one.what), std::string::npos) << one.words << "\n" << done.text;
  }
}

// A row that is broken is met by the rank that reads it; the others do not wait for it.
TEST_F(Train, ARankThatFailsEndsAll) {
  std::ofstream rows(at("rows.jsonl"));
  for (int i = 0; i < 8; i++) rows << (i == 6 ? "{\"input_ids\": [1, 999]}\n" : "{\"input_ids\": [1, 2, 3]}\n");
  rows.close();
  const Outcome done = run("--model " + data_folder + "llama --data " + at("rows.jsonl") + " -o " + at("run") +
                           " --ranks 4 --stage 3 --per_device_train_batch_size 1 --train_sampling_strategy sequential");
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.text.find("rank 2: line 7: input_ids[1] is 999"), std::string::npos) << done.text;
}

// No file may have more than 2 KiB: lines of the log that do not fit are left out whole, and training goes on.
TEST_F(Train, ALogThatCannotBeWrittenIsSaid) {
  const std::string script = "bash -c 'ulimit -f 2; exec " + binary_dir() + "/bin/ckpt-train --model " + data_folder +
                             "llama --data " + data_folder + "rows.jsonl -o " + at("run") +
                             " --max_steps 12 --quiet --save_strategy no' 2>" + at("stderr");
  const int status = std::system(script.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string said = bytes("stderr");
  EXPECT_NE(said.find("is not written, training goes on: "), std::string::npos) << said;
  EXPECT_EQ(said.find("training goes on"), said.rfind("training goes on")) << said;
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  const size_t n = log("run").size();
  EXPECT_GT(n, 3u);
  EXPECT_LT(n, 12u);
  EXPECT_EQ(bytes("run/log.jsonl").back(), '\n');
}

TEST_F(Train, MovesAnOldRunAside) {
  ASSERT_EQ(train("run", "--max_steps 1 --quiet --per_device_train_batch_size 4").code, 0);
  const std::string old = bytes("run/run.json");
  ASSERT_EQ(train("run", "--max_steps 1 --quiet --force --per_device_train_batch_size 4").code, 0);
  EXPECT_EQ(bytes("run.1/run.json"), old);
  EXPECT_NE(bytes("run/run.json"), old);
}

// A rate that makes the weights infinite: the step is not taken, and the run ends where none may be skipped.
TEST_F(Train, SkipsStepsThatAreNotFinite) {
  const std::string words =
      "--max_steps 6 --quiet --learning_rate 1e38 --lr_scheduler_type constant --adam_epsilon 1e-30 "
      "--weight_decay 1e3 --max_grad_norm 0 --save_strategy no --per_device_train_batch_size 4 ";
  const Outcome refused = train("a", words);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.text.find("(--max-skipped)"), std::string::npos) << refused.text;
  const Outcome skipped = train("b", words + "--max-skipped 10");
  EXPECT_EQ(skipped.code, 0) << skipped.text;
  EXPECT_NE(skipped.text.find("is skipped"), std::string::npos);
}

// The rate falls after evaluations, and a run that goes on knows how many were no better.
TEST_F(Train, FallsOnAPlateauAndRemembersIt) {
  const std::string words =
      "--max_steps 16 --quiet --per_device_train_batch_size 2 --learning_rate 0.05 --save_steps 5 "
      "--lr_scheduler_type reduce_lr_on_plateau --lr_scheduler_kwargs '{\"patience\":2,\"factor\":0.5}' "
      "--eval_strategy steps --eval_steps 1 --per_device_eval_batch_size 4 --eval-data " +
      data_folder + "eval.jsonl ";
  ASSERT_EQ(train("whole", words).code, 0);
  ASSERT_EQ(train("cut", words).code, 0);
  fs::remove_all(at("cut/checkpoint-15"));
  fs::remove_all(at("cut/checkpoint-16"));
  ASSERT_EQ(train("cut", words + "--resume last").code, 0);
  const auto whole = log("whole"), cut = log("cut");
  ASSERT_EQ(whole.size(), 16u);
  ASSERT_EQ(cut.size(), 16u);
  EXPECT_LT(whole.back().rate, whole.front().rate / 2);
  for (size_t i = 0; i < 16; i++) {
    EXPECT_EQ(cut[i].rate, whole[i].rate) << i;
    EXPECT_EQ(cut[i].loss, whole[i].loss) << i;
  }
  EXPECT_EQ(bytes("cut/model.safetensors"), bytes("whole/model.safetensors"));
  EXPECT_EQ(train("no", "--lr_scheduler_type reduce_lr_on_plateau").code, 2);
}

// Activations are those of the largest batch, of training or evaluation, and of the length that executors have.
TEST_F(Train, PlansTheLargestBatch) {
  const auto planned = [&](const std::string &words) {
    EXPECT_EQ(run("--plan --model " + data_folder + "llama -o " + at("p") + " " + words).code, 0);
    const std::string said = bytes("stdout");
    const size_t begin = said.find("activations "), end = said.find(" tokens each");
    return begin == std::string::npos ? said : said.substr(begin, end - begin);
  };
  std::ofstream(at("short.jsonl")) << "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2]}\n";
  std::ofstream(at("long.jsonl")) << "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7]}\n";
  const std::string data = "--per_device_train_batch_size 2 --data " + at("short.jsonl");
  const std::string eval = " --eval-data " + data_folder + "eval.jsonl --per_device_eval_batch_size 64 ";
  const std::string small = planned(data), with = planned(data + eval + "--eval_strategy epoch");
  EXPECT_NE(small.find("(batches of 2 rows, at most 3"), std::string::npos) << small;
  EXPECT_NE(with.find("(batches of 11 rows, at most "), std::string::npos) << with;
  EXPECT_EQ(planned(data + eval), small); /* nobody evaluates */
  EXPECT_NE(planned(data + eval + "--eval_on_start true").find("of 11 rows"), std::string::npos);
  EXPECT_NE(planned(data + " --eval_strategy epoch --eval-data " + at("long.jsonl")).find("of 2 rows, at most 7"),
            std::string::npos);
  /* both lengths become 32 */
  const std::string other = planned("--per_device_train_batch_size 2 --data " + data_folder + "rows.jsonl");
  EXPECT_NE(other.find("at most 20"), std::string::npos) << other;
  EXPECT_EQ(other.substr(0, other.find('(')), small.substr(0, small.find('(')));
}

TEST_F(Train, PlansWithoutTraining) {
  const Outcome done = train("run", "--plan --ranks 2 --stage 3");
  EXPECT_EQ(done.code, 0) << done.text;
  const std::string said = bytes("stdout");
  EXPECT_NE(said.find("8528 parameters"), std::string::npos) << said;
  EXPECT_NE(said.find("rank 1:"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(at("run")));
  ASSERT_EQ(train("run", "--plan --mesh dp_replicate=2,dp_shard=2 --stage 3").code, 0);
  EXPECT_NE(bytes("stdout").find("receives 34.1 KB over dp_shard, 17.1 KB over dp_replicate"), std::string::npos)
      << bytes("stdout");
}

}  // namespace
