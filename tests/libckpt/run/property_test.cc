// Random tensors x random extents x random expression trees: what the run writes and digests equals a plain oracle in
// memory, for any memory limit, number of threads and size of tiles; and the same bytes come out each time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

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

// The number after a key of a line of a trace.
uint64_t number_of(const std::string &line, const std::string &key) {
  size_t at = line.find("\"" + key + "\":");
  EXPECT_NE(at, std::string::npos) << key << " is missing: " << line;
  return at == std::string::npos ? 0 : std::stoull(line.substr(at + key.size() + 3));
}

// What the lines of a trace say of one batch.
struct Traced {
  uint64_t n_tiles = 0, n_read = 0;
};

// A batch has a line per tile, and makes each read once; of what every tile needs whole, each worker has its own.
void check_batch(const ckpt_plan *plan, uint32_t number, const Traced &traced) {
  const ckpt_batch *batch = &plan->batches[number];
  uint64_t n_cut = 0, n_whole = 0;
  for (uint32_t i = 0; i < batch->n_reads; i++) (batch->reads[i].is_whole ? n_whole : n_cut) += batch->reads[i].n_bytes;
  EXPECT_EQ(traced.n_tiles, batch->n_tiles) << "batch " << number;
  EXPECT_GT(traced.n_tiles, 0U) << "batch " << number;
  uint64_t most = batch->exclusive ? batch->n_tiles : std::min<uint64_t>(batch->n_tiles, plan->n_workers);
  EXPECT_GE(traced.n_read, n_cut + n_whole) << "batch " << number;
  EXPECT_LE(traced.n_read, n_cut + n_whole * most) << "batch " << number;
  EXPECT_TRUE(n_whole == 0 || (traced.n_read - n_cut) % n_whole == 0) << "batch " << number << ": " << traced.n_read;
}

// A trace has a line per tile: workspace used against what its batch planned, and bytes read against the plan's. The
// last line sums them up.
void check_trace(const std::string &path, const ckpt_plan *plan) {
  std::vector<Traced> batches(plan->n_batches);
  Traced all, total;
  uint32_t n_totals = 0;
  std::ifstream in(path);
  ASSERT_TRUE(in.is_open()) << path;
  for (std::string line; std::getline(in, line);) {
    ASSERT_EQ(n_totals, 0U) << "after the last line: " << line;
    if (line.rfind("{\"total\":", 0) == 0) {
      total = {number_of(line, "tiles"), number_of(line, "read")};
      EXPECT_EQ(number_of(line, "planned_peak"), plan->peak);
      n_totals++;
      continue;
    }
    uint64_t number = number_of(line, "group"), n_read = number_of(line, "read");
    ASSERT_LT(number, plan->n_batches) << line;
    EXPECT_LE(number_of(line, "bytes"), plan->batches[number].tile_bytes) << line;
    batches[number].n_tiles++, batches[number].n_read += n_read;
    all.n_tiles++, all.n_read += n_read;
  }
  ASSERT_EQ(n_totals, 1U) << path;
  EXPECT_EQ(total.n_tiles, all.n_tiles);
  EXPECT_EQ(total.n_read, all.n_read);
  uint64_t n_planned = 0;
  for (uint32_t b = 0; b < plan->n_batches; b++) {
    check_batch(plan, b, batches[b]);
    for (uint32_t i = 0; i < plan->batches[b].n_reads; i++) n_planned += plan->batches[b].reads[i].n_bytes;
  }
  EXPECT_EQ(n_planned, plan->n_bytes_read);
}

TEST(Property, RunEqualsTheOracleForAnyMemoryThreadsAndTiles) {
  std::string trace = testing::TempDir() + "/ckpt-trace-" + std::to_string(getpid());
  uint64_t n_blocks = 0, n_refused = 0;
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
      if (status == CKPT_ELIMIT) { /* few plans need more */
        n_refused++;
        options.memory = UINT64_C(200) << 20;
        ASSERT_NO_FATAL_FAILURE(c.build(seed));
        status = ckpt_plan_check(c.plan(), &options, &peak, nullptr, &err);
      }
      ASSERT_EQ(status, CKPT_OK) << text_of(err);
      EXPECT_LE(peak, options.memory);
      // Round 2 has few buffers for digests, so that rows are read back or computed again.
      if (round == 2) c.plan()->n_leaf_slots = static_cast<uint32_t>(how.between(1, 2));
      if (round != 0) c.shrink_tiles(&how);
      unlink(trace.c_str());
      ASSERT_EQ(ckpt_plan_run(c.plan(), &options, &err), CKPT_OK) << text_of(err);
      ASSERT_NO_FATAL_FAILURE(c.check_results());
      ASSERT_NO_FATAL_FAILURE(check_trace(trace, c.plan()));
      for (int i = 0; i < 2; i++) {
        if (round == 0) first[i] = c.sink(i)->files;
        EXPECT_TRUE(first[i] == c.sink(i)->files) << "output " << i << " differs from the first run's";
      }
      if (HasFailure()) return;
    }
    n_blocks += c.n_blocks();
  }
  EXPECT_GT(n_blocks, 0u);
  EXPECT_LE(n_refused, n_cases(40) / 100);
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
