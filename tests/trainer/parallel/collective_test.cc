// The ranks of one process: sums in the order of ranks, shards, and what happens when one fails.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

extern "C" {
#include "libckpt/base/error.h"
#include "trainer/parallel/collective.h"
}

namespace {

void run(uint32_t n, const std::function<void(ckpt_collective *)> &rank) {
  ckpt_thread_ranks *all = nullptr;
  ASSERT_EQ(ckpt_thread_ranks_new(&all, n, nullptr), CKPT_OK);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < n; i++) threads.emplace_back([=, &rank] { rank(ckpt_thread_ranks_at(all, i)); });
  for (auto &thread : threads) thread.join();
  ckpt_thread_ranks_free(all);
}

TEST(Collective, SumsInTheOrderOfRanks) {
  for (uint32_t n : {1u, 2u, 3u, 8u})
    run(n, [n](ckpt_collective *c) {
      std::vector<double> values(3000);
      for (size_t i = 0; i < values.size(); i++) values[i] = 0.1 * double(i) + 1e-9 * c->rank;
      for (int again = 0; again < 3; again++) {
        std::vector<double> mine = values;
        ASSERT_EQ(ckpt_collective_sum(c, mine.data(), mine.size(), nullptr), CKPT_OK);
        for (size_t i = 0; i < mine.size(); i++) {
          double wanted = n == 1 ? values[i] : 0;
          for (uint32_t r = 0; r < n && n > 1; r++) wanted += 0.1 * double(i) + 1e-9 * r;
          ASSERT_EQ(mine[i], wanted) << i;
        }
      }
    });
}

TEST(Collective, ShardsOfUnevenAndEmptySizes) {
  const uint32_t n = 3;
  static const ckpt_range ranges[3][2] = {{{0, 5}, {10, 4000}}, {{5, 2}, {4010, 90}}, {{7, 0}, {4100, 0}}};
  static const ckpt_ranges owned[3] = {{ranges[0], 2}, {ranges[1], 2}, {ranges[2], 2}};
  run(n, [](ckpt_collective *c) {
    std::vector<float> data(4100);
    for (size_t i = 0; i < data.size(); i++) data[i] = float(i) + 100000.0f * float(c->rank);
    ASSERT_EQ(ckpt_collective_reduce_scatter(c, data.data(), owned, nullptr), CKPT_OK);
    for (uint32_t k = 0; k < 2; k++)
      for (uint64_t i = owned[c->rank].ranges[k].first, end = i + owned[c->rank].ranges[k].n; i < end; i++)
        ASSERT_EQ(data[i], 3 * float(i) + 300000.0f);
    ASSERT_EQ(ckpt_collective_all_gather(c, data.data(), owned, nullptr), CKPT_OK);
    for (size_t i = 0; i < 7; i++) ASSERT_EQ(data[i], 3 * float(i) + 300000.0f);
    for (size_t i = 10; i < 4100; i++) ASSERT_EQ(data[i], 3 * float(i) + 300000.0f);
  });
}

TEST(Collective, GathersBytesAsAGroupOfTheLibrary) {
  run(4, [](ckpt_collective *c) {
    const ckpt_group group = ckpt_collective_group(c);
    uint32_t all[4] = {9, 9, 9, 9}, mine = group.rank * 11;
    ASSERT_EQ(group.all_gather(group.ctx, &mine, all, sizeof mine, nullptr), CKPT_OK);
    for (uint32_t r = 0; r < 4; r++) ASSERT_EQ(all[r], r * 11);
  });
}

TEST(Collective, ARankThatFailsEndsAll) {
  for (int round = 0; round < 20; round++)
    run(4, [](ckpt_collective *c) {
      double value = 1;
      if (c->rank == 2) {
        std::this_thread::yield();
        ckpt_collective_abort(c);
        return;
      }
      ckpt_error err = {};
      EXPECT_EQ(ckpt_collective_sum(c, &value, 1, &err), CKPT_ECANCELED);
      EXPECT_STREQ(err.message, "another rank failed");
      EXPECT_EQ(ckpt_collective_barrier(c, nullptr), CKPT_ECANCELED);
    });
}

}  // namespace
