// A rank that fails in any phase of a run ends all ranks, and the run says what that rank said: functions that each
// phase goes through are wrapped by the linker (tests/CMakeLists.txt) and fail on one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "libckpt/base/error.h"
#include "trainer/loop/job.h"
#include "trainer/loop/options.h"
}

namespace {

namespace fs = std::filesystem;

enum Phase {
  kNone,
  kNothing,
  kLoad,
  kForward,
  kReduce,
  kNorm,
  kUpdate,
  kState,
  kPlan,
  kCommit,
  kEvaluate,
  kFinal,
  kLeave
};

thread_local uint32_t this_rank = 0;
thread_local bool has_saved = false;
Phase failing = kNone;
uint32_t failing_rank = 0;

bool Fails(Phase phase) { return failing == phase && this_rank == failing_rank; }

ckpt_status Fail(const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EIO, nullptr, nullptr, "no %s", what);
}

}  // namespace

#define WRAP(phase, what, name, parameters, arguments)                             \
  extern "C" ckpt_status __real_##name parameters;                                 \
  extern "C" ckpt_status __wrap_##name parameters; /* NOLINT: the linker's name */ \
  ckpt_status __wrap_##name parameters { return Fails(phase) ? Fail(what, err) : __real_##name arguments; }

WRAP(kLoad, "load", ckpt_state_load_weights, (ckpt_sharded * s, const ckpt_index *index, ckpt_error *err),
     (s, index, err))
WRAP(kForward, "forward", ckpt_executor_train,
     (ckpt_executor * x, const ckpt_token_batch *batch, double scale, ckpt_forward_result *result, ckpt_error *err),
     (x, batch, scale, result, err))
WRAP(kEvaluate, "evaluation", ckpt_executor_forward,
     (ckpt_executor * x, const ckpt_token_batch *batch, ckpt_forward_result *result, ckpt_error *err),
     (x, batch, result, err))
WRAP(kReduce, "reduce", ckpt_sharded_reduce, (ckpt_sharded * s, bool is_last, ckpt_error *err), (s, is_last, err))
WRAP(kNorm, "norm", ckpt_sharded_norm, (ckpt_sharded * s, double *norm, ckpt_error *err), (s, norm, err))
WRAP(kUpdate, "update", ckpt_sharded_update, (ckpt_sharded * s, const ckpt_adamw *how, ckpt_error *err), (s, how, err))
WRAP((has_saved = true, kState), "state", ckpt_state_index,
     (ckpt_index * *out, const ckpt_state_parts *parts, ckpt_error *err), (out, parts, err))
WRAP(kPlan, "plan", ckpt_convert_plan, (ckpt_plan * plan, const struct ckpt_convert_request *request, ckpt_error *err),
     (plan, request, err))
WRAP(has_saved ? kCommit : kNothing, /* and not what weights are read by */ "commit", ckpt_sink_commit,
     (struct ckpt_sink *const *sinks, uint32_t n, ckpt_error *err), (sinks, n, err))
WRAP(kFinal, "final", ckpt_publish_files, (const char *from, const char *into, ckpt_error *err), (from, into, err))

// Inside backward: a rank fails when it has asked the thread beside to sum a layer's gradients. That thread takes its
// time, and is still at work when the ranks have ended: it may read what any of them holds.
namespace {

constexpr uint32_t kMostRanks = 8;
std::atomic<int> n_at_work[kMostRanks];
std::atomic<int> n_released_at_work{0};
thread_local const ckpt_unit_hooks *real_hooks;
thread_local ckpt_unit_hooks failing_hooks;

ckpt_status LeaveAndFail(void *arg, int32_t layer, bool is_backward, ckpt_error *err) {
  const ckpt_status status = real_hooks->leave(arg, layer, is_backward, err);
  return status == CKPT_OK && is_backward && layer >= 0 && Fails(kLeave) ? Fail("leave", err) : status;
}

}  // namespace

extern "C" const ckpt_unit_hooks *__real_ckpt_units_hooks(const ckpt_units *units);
extern "C" const ckpt_unit_hooks *__wrap_ckpt_units_hooks(const ckpt_units *units);
const ckpt_unit_hooks *__wrap_ckpt_units_hooks(const ckpt_units *units) {
  real_hooks = __real_ckpt_units_hooks(units);
  failing_hooks = {real_hooks->arg, real_hooks->enter, LeaveAndFail};
  return &failing_hooks;
}

extern "C" decltype(ckpt_collective_reduce_scatter) __real_ckpt_collective_reduce_scatter;
extern "C" decltype(ckpt_collective_reduce_scatter) __wrap_ckpt_collective_reduce_scatter;
ckpt_status __wrap_ckpt_collective_reduce_scatter(ckpt_axis_group *group, float *data, const ckpt_range *ranges,
                                                  uint32_t n_ranges, void *stream, ckpt_error *err) {
  if (failing != kLeave) return __real_ckpt_collective_reduce_scatter(group, data, ranges, n_ranges, stream, err);
  const uint32_t rank = group->rank;
  n_at_work[rank]++;
  const ckpt_status status = __real_ckpt_collective_reduce_scatter(group, data, ranges, n_ranges, stream, err);
  if (rank == failing_rank) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  n_at_work[rank]--;
  return status;
}

extern "C" void __real_ckpt_sharded_free(ckpt_sharded *sharded);
extern "C" void __wrap_ckpt_sharded_free(ckpt_sharded *sharded);
void __wrap_ckpt_sharded_free(ckpt_sharded *sharded) {
  for (uint32_t r = 0; sharded != nullptr && r < kMostRanks; r++)
    if (r != sharded->group->rank) n_released_at_work += n_at_work[r];
  __real_ckpt_sharded_free(sharded);
}

// Gathers of floats over all ranks.
namespace {

std::atomic<int> n_gathers{0};

}  // namespace

extern "C" decltype(ckpt_collective_all_gather) __real_ckpt_collective_all_gather;
extern "C" decltype(ckpt_collective_all_gather) __wrap_ckpt_collective_all_gather;
ckpt_status __wrap_ckpt_collective_all_gather(ckpt_axis_group *group, float *data, const ckpt_range *ranges,
                                              uint32_t n_ranges, void *stream, ckpt_error *err) {
  n_gathers++;
  return __real_ckpt_collective_all_gather(group, data, ranges, n_ranges, stream, err);
}

// Products of matrices.
namespace {

std::atomic<int> n_products{0};

}  // namespace

extern "C" ckpt_status __real_ckpt_gemm_cpu(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err);
extern "C" ckpt_status __wrap_ckpt_gemm_cpu(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err);
ckpt_status __wrap_ckpt_gemm_cpu(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  n_products++;
  return __real_ckpt_gemm_cpu(device, gemm, err);
}

extern "C" void __real_ckpt_rank_run(ckpt_rank *rank);
extern "C" void __wrap_ckpt_rank_run(ckpt_rank *rank);
void __wrap_ckpt_rank_run(ckpt_rank *rank) {
  this_rank = rank->groups.all->rank;
  has_saved = false;
  __real_ckpt_rank_run(rank);
}

namespace {

class Failure : public testing::Test {
 protected:
  void SetUp() override {
    out_ = (fs::path(testing::TempDir()) / ("ckpt_failure_" + std::to_string(getpid()))).string();
    fs::remove_all(out_);
  }
  void TearDown() override {
    failing = kNone;
    fs::remove_all(out_);
  }

  struct Done {
    ckpt_status status;
    ckpt_outcome outcome;
    std::string message, said;
  };

  // Four steps on three ranks, or on a mesh, with a checkpoint and an evaluation after two.
  Done run(Phase phase, uint32_t rank, const char *stage, const char *resume = nullptr, const char *mesh = nullptr) {
    const std::string data = std::string(CKPT_TESTS_DIR) + "/data/training/";
    std::vector<std::string> words = {"ckpt-train",
                                      "--model",
                                      data + "llama",
                                      "--data",
                                      data + "rows.jsonl",
                                      "--eval-data",
                                      data + "eval.jsonl",
                                      "-o",
                                      out_,
                                      mesh == nullptr ? "--ranks" : "--mesh",
                                      mesh == nullptr ? "3" : mesh,
                                      "--threads",
                                      "1",
                                      "--stage",
                                      stage,
                                      "--max_steps",
                                      "4",
                                      "--save_steps",
                                      "2",
                                      "--eval_strategy",
                                      "steps",
                                      "--eval_steps",
                                      "2",
                                      "--per_device_train_batch_size",
                                      "2",
                                      "--per_device_eval_batch_size",
                                      "2"};
    if (resume != nullptr) words.insert(words.end(), {"--resume", resume});
    return run_words(words, phase, rank);
  }

  Done run_words(std::vector<std::string> words, Phase phase = kNone, uint32_t rank = 0) {
    std::vector<char *> argv;
    for (std::string &word : words) argv.push_back(word.data());
    ckpt_command command = {};
    ckpt_error err = {};
    Done done = {};
    EXPECT_EQ(ckpt_command_parse(&command, static_cast<int>(argv.size()), argv.data(), nullptr, nullptr, &err), CKPT_OK)
        << err.message;
    command.train.report = [](void *arg, ckpt_report_kind kind, const char *text) {
      if (kind == CKPT_REPORT_WARNING) static_cast<Done *>(arg)->said += std::string(text) + "\n";
    };
    command.train.report_arg = &done;
    command.train.stop = &stop_;
    failing = phase;
    has_saved = false;
    failing_rank = rank;
    done.status = ckpt_train(&command.train, &done.outcome, &err);
    failing = kNone;
    done.message = err.message;
    ckpt_command_free(&command);
    return done;
  }

  std::string out_;
  volatile sig_atomic_t stop_ = 0;
};

TEST_F(Failure, OfOneRankEndsAllWithItsMessage) {
  const struct {
    Phase phase;
    const char *what;
  } phases[] = {{kLoad, "no load"}, {kForward, "no forward"}, {kReduce, "no reduce"},
                {kNorm, "no norm"}, {kUpdate, "no update"},   {kEvaluate, "no evaluation"}};
  for (const auto &phase : phases)
    for (uint32_t rank : {0U, 2U}) {
      fs::remove_all(out_);
      const Done done = run(phase.phase, rank, rank == 0 ? "0" : "3");
      EXPECT_EQ(done.status, CKPT_EIO) << phase.what;
      EXPECT_EQ(done.message, "rank " + std::to_string(rank) + ": " + phase.what);
    }
  for (const auto &phase : phases)
    for (uint32_t rank : {1U, 2U}) {
      fs::remove_all(out_);
      const Done done = run(phase.phase, rank, rank == 1 ? "2" : "3", nullptr, "dp_replicate=2,dp_shard=2");
      EXPECT_EQ(done.message, "rank " + std::to_string(rank) + ": " + phase.what);
    }
  fs::remove_all(out_);
  const Done final = run(kFinal, 0, "1");
  EXPECT_EQ(final.status, CKPT_EIO);
  EXPECT_EQ(final.message, "rank 0: no final");
}

// No rank's memory goes while another's thread beside is at work, which may read it.
TEST_F(Failure, InsideBackwardReleasesNothingThatIsRead) {
  for (const char *stage : {"2", "3"})
    for (uint32_t rank : {1U, 2U}) {
      fs::remove_all(out_);
      n_released_at_work = 0;
      const Done done = run(kLeave, rank, stage);
      EXPECT_EQ(done.message, "rank " + std::to_string(rank) + ": no leave");
      EXPECT_EQ(n_released_at_work, 0) << stage << " " << rank;
    }
}

// What fails while a checkpoint is written ends no run: all ranks go on, and the end says it.
TEST_F(Failure, WhileSavingIsSaidAndTheRunGoesOn) {
  const struct {
    Phase phase;
    const char *what;
    bool is_any; /* or rank 0's alone */
  } phases[] = {{kState, "no state", true}, {kPlan, "no plan", true}, {kCommit, "no commit", false}};
  for (const auto &phase : phases)
    for (uint32_t rank = 0; rank < (phase.is_any ? 3 : 1); rank += 2) {
      fs::remove_all(out_);
      const Done done = run(phase.phase, rank, "2");
      const bool ends = rank == 0; /* it writes the final model, in the same way */
      EXPECT_EQ(done.status, ends ? CKPT_EIO : CKPT_OK) << phase.what << rank;
      if (!ends) {
        EXPECT_EQ(done.outcome, CKPT_OUTCOME_INCOMPLETE);
      }
      EXPECT_NE(done.said.find("the checkpoint of step 2 is not written, training goes on: "), std::string::npos)
          << done.said;
      EXPECT_NE(done.said.find(phase.what), std::string::npos) << done.said;
      EXPECT_FALSE(fs::exists(out_ + "/checkpoint-2"));
      for (const auto &entry : fs::directory_iterator(out_))
        EXPECT_NE(entry.path().filename().string()[0], '.') << phase.what << rank << entry.path();
      const Done again = run(kNone, 0, "2", "auto");
      EXPECT_EQ(again.status, CKPT_OK) << again.message;
      EXPECT_EQ(again.outcome, CKPT_OUTCOME_DONE);
    }
}

// What a step of a run costs: what `count` shows after four steps, and after two, by step.
class Costs : public Failure {
 protected:
  double a_step(std::atomic<int> *count, const std::vector<std::string> &more) {
    const std::string data = std::string(CKPT_TESTS_DIR) + "/data/training/";
    int counted[2] = {};
    for (int i = 0; i < 2; i++) {
      fs::remove_all(out_);
      std::vector<std::string> words = {"ckpt-train",
                                        "--model",
                                        data + "llama",
                                        "--data",
                                        data + "rows.jsonl",
                                        "-o",
                                        out_,
                                        "--threads",
                                        "1",
                                        "--save_strategy",
                                        "no",
                                        "--per_device_train_batch_size",
                                        "1",
                                        "--max_steps",
                                        i == 0 ? "2" : "4"};
      words.insert(words.end(), more.begin(), more.end());
      *count = 0;
      EXPECT_EQ(run_words(words).status, CKPT_OK);
      counted[i] = *count;
    }
    return (counted[1] - counted[0]) / 2.0;
  }

  std::string adapter(const std::string &text) {
    const std::string path = out_ + ".json";
    std::ofstream(path) << R"({"r": 2, "target_modules": ["q_proj"], "peft_type": "LORA")" << text << "}";
    return path;
  }
  void TearDown() override {
    fs::remove(out_ + ".json");
    Failure::TearDown();
  }
};

// Each of two ranks gathers an adapter once before its batches, as --plan counts it, merged or not.
TEST_F(Costs, OfAnAdapterAreOneGatherAStep) {
  for (const char *more : {"", R"(, "use_dora": true)"})
    for (const char *batches : {"1", "3"})
      EXPECT_EQ(a_step(&n_gathers, {"--lora", adapter(more), "--ranks", "2", "--stage", "3",
                                    "--gradient_accumulation_steps", batches}),
                2)
          << more << batches;
}

// Of 14 linears and a head each makes one product forward and two backward; a frozen one passes its gradient on and
// makes none of its weight. An adapted one has two products more forward, four backward. Merged, all are made.
TEST_F(Costs, OfFrozenWeightsAreTheProductsOfTheOthers) {
  EXPECT_EQ(a_step(&n_products, {}), 15 * 3);
  EXPECT_EQ(a_step(&n_products, {"--lora", adapter("")}), 15 * 2 + 2 * 6);
}

// Nobody goes on from a checkpoint that is not there: the run failed.
TEST_F(Failure, WhileSavingForAStopIsAFailure) {
  stop_ = 1;
  EXPECT_EQ(run(kNone, 0, "2").outcome, CKPT_OUTCOME_STOPPED);
  EXPECT_TRUE(fs::exists(out_ + "/checkpoint-1"));
  fs::remove_all(out_);
  EXPECT_EQ(run(kCommit, 0, "2").outcome, CKPT_OUTCOME_INCOMPLETE);
}

}  // namespace
