// Groups whose ranks are threads, and the group of one: calls start and finish, in place where they can; sums are in
// the order of ranks; ranks meet along the axes of a set; and what happens when one fails or is late.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "libckpt/base/error.h"
#include "trainer/parallel/axis_threads.h"
#include "trainer/parallel/collective.h"
}

namespace {

constexpr uint32_t kShard = 1U << CKPT_MESH_DP_SHARD;

// n ranks of one group, each on a thread of its own.
void RunRanks(uint32_t n, const std::function<void(ckpt_axis_group *)> &rank) {
  const ckpt_mesh mesh = {{1, n, 1, 1}};
  const ckpt_axis_set set = {"dp_shard", kShard};
  ckpt_axis_threads *ranks = nullptr;
  ASSERT_EQ(ckpt_axis_threads_new(&ranks, &mesh, &set, 1, 0, nullptr), CKPT_OK);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < n; i++) threads.emplace_back([=, &rank] { rank(ckpt_axis_threads_group(ranks, i, 0)); });
  for (auto &thread : threads) thread.join();
  ckpt_axis_threads_free(ranks);
}

ckpt_axis_call Call(ckpt_axis_kind_of_call kind, ckpt_dtype dtype, const void *src, void *dst, uint64_t n) {
  ckpt_axis_call call = {};
  call.kind = kind, call.dtype = dtype, call.src = src, call.dst = dst, call.n = n;
  return call;
}

TEST(AxisThreads, CallsStartAndFinish) {
  RunRanks(3, [](ckpt_axis_group *group) {
    const uint32_t r = group->rank;
    float sums[2] = {(float)r, 1}, all[6] = {-1, -1, -1, -1, -1, -1};
    double parts[3] = {1, 2, 3 + (double)r}, swapped[3] = {0};
    all[2 * r] = 10.0F * (float)r, all[2 * r + 1] = 10.0F * (float)r + 1;
    ckpt_axis_ticket tickets[3];
    const ckpt_axis_call calls[] = {Call(CKPT_ALL_REDUCE, CKPT_F32, nullptr, sums, 2),
                                    Call(CKPT_ALL_GATHER, CKPT_F32, nullptr, all, 2),
                                    Call(CKPT_ALL_TO_ALL, CKPT_F64, parts, swapped, 3)};
    // under way together, finished in another order
    for (int i : {0, 1, 2}) EXPECT_EQ(ckpt_axis_start(group, &calls[i], &tickets[i], nullptr), CKPT_OK);
    for (int i : {1, 2, 0}) EXPECT_EQ(ckpt_axis_finish(group, tickets[i], nullptr), CKPT_OK);
    EXPECT_EQ(sums[0], 3);
    EXPECT_EQ(sums[1], 3);
    EXPECT_EQ(std::vector<float>(all, all + 6), (std::vector<float>{0, 1, 10, 11, 20, 21}));
    EXPECT_EQ(swapped[0], r == 2 ? 3 : r + 1.0);
    EXPECT_EQ(swapped[2], r == 2 ? 5 : r + 1.0);
  });
}

// In place, and from elsewhere; of any number of elements, so that some ranks sum none for the others.
TEST(AxisThreads, SumsInTheOrderOfRanks) {
  for (uint32_t n : {1u, 2u, 3u, 8u})
    for (size_t n_values : {0u, 1u, 5u, 17u, 40u, 3000u})
      RunRanks(n, [n, n_values](ckpt_axis_group *group) {
        const auto value = [](size_t i, uint32_t r) { return 0.1 * double(i) + 1e-9 * r; };
        std::vector<double> own(n_values), sums(n_values, -1);
        for (size_t i = 0; i < n_values; i++) own[i] = value(i, group->rank);
        const ckpt_axis_call apart = Call(CKPT_ALL_REDUCE, CKPT_F64, own.data(), sums.data(), n_values);
        for (int again = 0; again < 3; again++) {
          std::vector<double> in_place = own;
          ASSERT_EQ(ckpt_collective_sum(group, in_place.data(), n_values, nullptr), CKPT_OK);
          ASSERT_EQ(ckpt_axis_run(group, &apart, nullptr), CKPT_OK);
          for (size_t i = 0; i < n_values; i++) {
            double wanted = value(i, 0);
            for (uint32_t r = 1; r < n; r++) wanted += value(i, r);
            ASSERT_EQ(in_place[i], wanted) << i;
            ASSERT_EQ(sums[i], wanted) << i;
            ASSERT_EQ(own[i], value(i, group->rank));
          }
        }
      });
}

TEST(AxisThreads, RangesOfUnevenAndEmptySizes) {
  static const ckpt_range ranges[] = {{0, 5}, {10, 4000}, {5, 2}, {4010, 90}, {7, 0}, {4100, 0}};
  RunRanks(3, [](ckpt_axis_group *group) {
    std::vector<float> data(4100);
    for (size_t i = 0; i < data.size(); i++) data[i] = float(i) + 100000.0f * float(group->rank);
    const std::vector<float> before = data;
    ASSERT_EQ(ckpt_collective_reduce_scatter(group, data.data(), ranges, 2, nullptr, nullptr), CKPT_OK);
    for (size_t i = 0; i < data.size(); i++) {
      bool is_own = false;
      for (uint32_t k = 0; k < 2; k++) {
        const ckpt_range own = ranges[group->rank * 2 + k];
        is_own = is_own || (i >= own.first && i < own.first + own.n);
      }
      ASSERT_EQ(data[i], is_own ? 3 * float(i) + 300000.0f : before[i]) << i;
    }
    ASSERT_EQ(ckpt_collective_all_gather(group, data.data(), ranges, 2, nullptr, nullptr), CKPT_OK);
    for (size_t i = 0; i < data.size(); i++)
      ASSERT_EQ(data[i], i >= 7 && i < 10 ? before[i] : 3 * float(i) + 300000.0f) << i;
  });
}

TEST(AxisThreads, GathersBytesAsAGroupOfTheLibrary) {
  for (uint32_t n : {1u, 4u})
    RunRanks(n, [n](ckpt_axis_group *of) {
      const ckpt_group group = ckpt_collective_group(of);
      uint32_t all[4] = {9, 9, 9, 9}, mine = group.rank * 11;
      ASSERT_EQ(group.size, n);
      ASSERT_EQ(group.all_gather(group.ctx, &mine, all, sizeof mine, nullptr), CKPT_OK);
      for (uint32_t r = 0; r < n; r++) ASSERT_EQ(all[r], r * 11);
    });
}

// Every set of axes: a group's ranks are those that differ along them alone, in order; two sets do not meet.
TEST(AxisThreads, GroupsLieAlongTheirAxes) {
  const ckpt_mesh mesh = {{2, 3, 1, 2}};
  const uint32_t n = ckpt_mesh_size(&mesh), n_sets = 1U << CKPT_N_MESH_AXES;
  std::vector<ckpt_axis_set> sets;
  for (uint32_t axes = 0; axes < n_sets; axes++) sets.push_back({"some", axes});
  ckpt_axis_threads *ranks = nullptr;
  ASSERT_EQ(ckpt_axis_threads_new(&ranks, &mesh, sets.data(), n_sets, 30, nullptr), CKPT_OK);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < n; rank++)
    threads.emplace_back([&, rank] {
      for (uint32_t axes = 0; axes < n_sets; axes++) {
        std::vector<uint32_t> wanted, met;
        for (uint32_t other = 0; other < n; other++) {
          const ckpt_mesh own = ckpt_mesh_place(&mesh, rank), at = ckpt_mesh_place(&mesh, other);
          bool is_along = true;
          for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++)
            is_along = is_along && (own.at[i] == at.at[i] || (axes >> i & 1) != 0);
          if (is_along) wanted.push_back(other);
        }
        ckpt_axis_group *group = ckpt_axis_threads_group(ranks, rank, axes);
        ASSERT_EQ(group->size, wanted.size());
        met.resize(group->size);
        met[group->rank] = rank;
        const ckpt_axis_call call = Call(CKPT_ALL_GATHER, CKPT_U32, nullptr, met.data(), 1);
        ASSERT_EQ(ckpt_axis_run(group, &call, nullptr), CKPT_OK);
        EXPECT_EQ(met, wanted) << "axes " << axes;
      }
    });
  for (auto &thread : threads) thread.join();
  ckpt_axis_threads_free(ranks);
}

TEST(AxisThreads, ARankThatFailsEndsAll) {
  for (int round = 0; round < 20; round++)
    RunRanks(4, [](ckpt_axis_group *group) {
      double value = 1;
      if (group->rank == 2) {
        std::this_thread::yield();
        ckpt_axis_abort(group);
        return;
      }
      ckpt_error err = {};
      EXPECT_EQ(ckpt_collective_sum(group, &value, 1, &err), CKPT_ECANCELED);
      EXPECT_STREQ(err.message, "dp_shard: another rank failed");
      EXPECT_EQ(ckpt_collective_barrier(group, nullptr), CKPT_ECANCELED);
    });
}

// One that never comes, and one that comes and does not end its call.
TEST(AxisThreads, TheDeadlineNamesWhoIsLate) {
  const ckpt_mesh mesh = {{1, 2, 1, 1}};
  const ckpt_axis_set set = {"dp_shard", kShard};
  for (const bool comes : {false, true}) {
    ckpt_axis_threads *ranks = nullptr;
    ASSERT_EQ(ckpt_axis_threads_new(&ranks, &mesh, &set, 1, 0.02, nullptr), CKPT_OK);
    ckpt_axis_group *group = ckpt_axis_threads_group(ranks, 0, 0), *late = ckpt_axis_threads_group(ranks, 1, 0);
    float values[2][2] = {};
    const ckpt_axis_call call = Call(CKPT_REDUCE_SCATTER, CKPT_F32, nullptr, values[0], 1);
    const ckpt_axis_call other = Call(CKPT_REDUCE_SCATTER, CKPT_F32, nullptr, values[1], 1);
    ckpt_axis_ticket ticket;
    ckpt_error err = {};
    EXPECT_EQ(comes ? ckpt_axis_start(late, &other, &ticket, nullptr) : CKPT_OK, CKPT_OK);
    EXPECT_EQ(ckpt_axis_run(group, &call, &err), CKPT_EIO);
    EXPECT_EQ(std::string(err.message), std::string("dp_shard: rank 1 of 2 has not ") + (comes ? "ended" : "come to") +
                                            " call 1 in 0.02 seconds");
    EXPECT_EQ(ckpt_axis_run(late, &other, nullptr), CKPT_ECANCELED);
    ckpt_axis_threads_free(ranks);
  }
}

TEST(AxisThreads, WhatCannotBeSummedIsRefused) {
  for (uint32_t n : {1u, 2u})
    RunRanks(n, [](ckpt_axis_group *group) {
      int32_t numbers[2] = {1, 2};
      ckpt_error err = {};
      const ckpt_axis_call sum = Call(CKPT_ALL_REDUCE, CKPT_I32, nullptr, numbers, 2);
      EXPECT_EQ(ckpt_axis_run(group, &sum, &err), CKPT_EINVAL);
      EXPECT_STREQ(err.message, "dp_shard: ranks cannot sum i32");
      const ckpt_axis_call gather = Call(CKPT_ALL_GATHER, CKPT_Q8_0, nullptr, numbers, 2);
      EXPECT_EQ(ckpt_axis_run(group, &gather, nullptr), CKPT_EINVAL);
    });
}

}  // namespace
