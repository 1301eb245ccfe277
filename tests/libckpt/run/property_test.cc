// Random tensors x random extents x random expression trees: what the run writes and digests equals a plain oracle in
// memory, for any memory limit, number of threads and size of tiles; and the same bytes come out each time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/libckpt/fake/fake_case.h"

namespace {

using namespace fake;

ckpt_run_options options_of(uint64_t memory_mib, uint32_t n_threads) {
  ckpt_run_options options = {};
  options.struct_size = sizeof options;
  options.memory = memory_mib << 20;
  options.n_threads = n_threads;
  return options;
}

// Every line of a trace: workspace used against what its batch planned, and the sum of bytes read.
void check_trace(const std::string &path, const ckpt_plan *plan) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    size_t group = line.find("{\"group\":"), bytes = line.find("\"bytes\":");
    if (group == std::string::npos) continue;
    uint64_t number = std::stoull(line.substr(group + 9)), used = std::stoull(line.substr(bytes + 8));
    ASSERT_LT(number, plan->n_batches);
    EXPECT_LE(used, plan->batches[number].tile_bytes) << line;
  }
}

TEST(Property, RunEqualsTheOracleForAnyMemoryThreadsAndTiles) {
  std::string trace = testing::TempDir() + "/ckpt-trace-" + std::to_string(getpid());
  uint64_t n_blocks = 0;
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(40); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " (CKPT_TEST_SEED)");
    Case c(seed);
    std::map<std::string, std::string> first[2];
    Random how(seed + 77);
    for (int round = 0; round < 3; round++) {
      ASSERT_NO_FATAL_FAILURE(c.build(seed));
      ckpt_run_options options =
          options_of(round == 0 ? 64 : how.between(24, 200), static_cast<uint32_t>(how.between(1, 4)));
      options.trace = trace.c_str();
      ckpt_error err = {};
      uint64_t peak = 0;
      ckpt_status status = ckpt_plan_check(c.plan(), &options, &peak, nullptr, &err);
      ASSERT_EQ(status, CKPT_OK) << text_of(err);
      EXPECT_LE(peak, options.memory);
      // Round 2 has few buffers for digests, so that rows are read back or computed again.
      if (round == 2) c.plan()->n_leaf_slots = static_cast<uint32_t>(how.between(1, 2));
      if (round != 0) c.shrink_tiles(&how);
      unlink(trace.c_str());
      ASSERT_EQ(ckpt_plan_run(c.plan(), &options, &err), CKPT_OK) << text_of(err);
      ASSERT_NO_FATAL_FAILURE(c.check_results());
      check_trace(trace, c.plan());
      for (int i = 0; i < 2; i++) {
        if (round == 0) first[i] = c.sink(i)->files;
        EXPECT_TRUE(first[i] == c.sink(i)->files) << "output " << i << " differs from the first run's";
      }
      if (HasFailure()) return;
    }
    n_blocks += c.n_blocks();
  }
  EXPECT_GT(n_blocks, 0u);
  unlink(trace.c_str());
}

// The n-th read or write fails: the run says so, abandons both sinks and leaves nothing to hang on.
TEST(Property, EveryFailingCallEndsTheRun) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(2); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Case c(seed + 500);
    for (long n = 1;; n += 1 + n / 8) {
      Faults faults;
      faults.fail_at = n;
      c.build(seed, &faults);
      ckpt_run_options options = options_of(200, static_cast<uint32_t>(n % 4 + 1));
      ckpt_error err = {};
      ASSERT_EQ(ckpt_plan_check(c.plan(), &options, nullptr, nullptr, &err), CKPT_OK) << text_of(err);
      ckpt_status status = ckpt_plan_run(c.plan(), &options, &err);
      if (faults.n_calls < n) {
        EXPECT_EQ(status, CKPT_OK) << text_of(err);
        break;
      }
      EXPECT_EQ(status, CKPT_EIO) << n;
      EXPECT_STREQ(err.message, "planted write failure");
      // the last output may fail to publish when the first one stands already
      EXPECT_FALSE(c.sink(1)->is_published);
      EXPECT_TRUE(c.sink(1)->is_abandoned || c.sink(1)->names.empty());
      EXPECT_TRUE(c.sink(0)->is_published || c.sink(0)->is_abandoned);
    }
  }
}

}  // namespace
