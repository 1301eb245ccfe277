// What a rank holds: buffers are those of the plan to the byte, in every stage, whole and by layers. And how often
// layers are gathered and summed: never again what is at hand.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

extern "C" {
#include "trainer/parallel/axis_threads.h"
#include "trainer/parallel/sharded.h"
}

namespace {

// The CPU, with what is allocated of it added up.
thread_local uint64_t n_held = 0, n_most = 0;
thread_local ckpt_device_table real_table, counting_table;

void *Allocate(ckpt_device *device, size_t n_bytes) {
  n_held += n_bytes;
  n_most = n_held > n_most ? n_held : n_most;
  return real_table.allocate(device, n_bytes);
}

void Release(ckpt_device *device, void *memory, size_t n_bytes) {
  n_held -= n_bytes;
  real_table.release(device, memory, n_bytes);
}

struct Made {
  uint64_t planned, held, left;
};

Made Make(const ckpt_model *model, ckpt_axis_group *group, ckpt_axis_group *background, uint32_t stage,
          bool by_layers) {
  ckpt_device *device = nullptr;
  ckpt_error err = {};
  ckpt_sharded *sharded = nullptr;
  EXPECT_EQ(ckpt_device_cpu_new(&device, 1, nullptr, &err), CKPT_OK) << err.message;
  real_table = counting_table = *device->table;
  counting_table.allocate = Allocate;
  counting_table.release = Release;
  const ckpt_device_table *kept = device->table;
  device->table = &counting_table;
  n_held = n_most = 0;
  const ckpt_sharded_options options = {model, group, background, nullptr, device, stage, by_layers, true};
  EXPECT_EQ(ckpt_sharded_new(&sharded, &options, &err), CKPT_OK) << err.message;
  Made made = {};
  ckpt_sharded_memory plan;
  ckpt_sharded_plan(&plan, model, stage, by_layers, group->rank, group->size);
  made.planned = plan.weights + plan.gradients + plan.moments + plan.summed;
  made.held = n_most - (sharded->n_blocks + 1) * sizeof(double);  // partial sums of the norm
  ckpt_sharded_free(sharded);
  made.left = n_held;
  device->table = kept;
  ckpt_device_free(device);
  return made;
}

TEST(Sharded, HoldsWhatThePlanSays) {
  std::ifstream file(std::string(CKPT_TESTS_DIR) + "/data/training/llama/config.json");
  std::stringstream text;
  text << file.rdbuf();
  const ckpt_model_options options = {sizeof options, true, false, false, false};
  ckpt_model *model = nullptr;
  ckpt_error err = {};
  ASSERT_EQ(ckpt_model_new(&model, text.str().c_str(), text.str().size(), nullptr, &options, &err), CKPT_OK);
  for (const uint32_t n_ranks : {1U, 2U, 3U, 8U})
    for (uint32_t stage = 0; stage <= 3; stage++)
      for (const bool by_layers : {false, true}) {
        const ckpt_mesh mesh = {{1, n_ranks, 1, 1}};
        const ckpt_axis_set set = {"dp_shard", 1U << CKPT_MESH_DP_SHARD}, sets[] = {set, set};
        ckpt_axis_threads *ranks = nullptr;
        ASSERT_EQ(ckpt_axis_threads_new(&ranks, &mesh, sets, 2, 0, &err), CKPT_OK);
        std::vector<Made> made(n_ranks);
        std::vector<std::thread> threads;
        for (uint32_t r = 0; r < n_ranks; r++)
          threads.emplace_back([&, r] {
            made[r] = Make(model, ckpt_axis_threads_group(ranks, r, 0), ckpt_axis_threads_group(ranks, r, 1), stage,
                           by_layers);
          });
        for (auto &thread : threads) thread.join();
        for (uint32_t r = 0; r < n_ranks; r++) {
          EXPECT_EQ(made[r].held, made[r].planned) << n_ranks << " ranks, stage " << stage << ", rank " << r;
          EXPECT_EQ(made[r].left, 0u);
        }
        ckpt_axis_threads_free(ranks);
      }
  ckpt_model_free(model);
}

// Ranks that only count.
struct Counting {
  ckpt_axis_group base;
  int n_gathered, n_reduced;
};
ckpt_status Count(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *, ckpt_error *) {
  auto *counting = reinterpret_cast<Counting *>(group);
  (call->kind == CKPT_ALL_GATHER ? counting->n_gathered : counting->n_reduced)++;
  return CKPT_OK;
}
ckpt_status Finish(ckpt_axis_group *, ckpt_axis_ticket, ckpt_error *) { return CKPT_OK; }

void Pass(const ckpt_unit_hooks *hooks, int32_t n_layers, bool is_backward) {
  ckpt_error err = {};
  const auto visit = [&](int32_t layer) {
    EXPECT_EQ(hooks->enter(hooks->arg, layer, is_backward, &err), CKPT_OK) << err.message;
    EXPECT_EQ(hooks->leave(hooks->arg, layer, is_backward, &err), CKPT_OK) << err.message;
  };
  visit(-1);
  for (int32_t i = 0; i < n_layers; i++) visit(is_backward ? n_layers - 1 - i : i);
  visit(-1);
}

TEST(Units, WhatIsAtHandIsNotGatheredAgain) {
  for (const int32_t n_layers : {1, 2, 4, 5}) {
    std::ifstream file(std::string(CKPT_TESTS_DIR) + "/data/training/llama/config.json");
    std::stringstream stream;
    stream << file.rdbuf();
    std::string text = stream.str();
    const std::string key = "\"num_hidden_layers\": ";
    ASSERT_NE(text.find(key), std::string::npos);
    text.replace(text.find(key) + key.size(), 1, std::to_string(n_layers));
    const ckpt_model_options model_options = {sizeof model_options, true, false, false, false};
    ckpt_model *model = nullptr;
    ckpt_device *device = nullptr;
    ckpt_sharded *sharded = nullptr;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_model_new(&model, text.c_str(), text.size(), nullptr, &model_options, &err), CKPT_OK) << err.message;
    ASSERT_EQ(ckpt_device_cpu_new(&device, 1, nullptr, &err), CKPT_OK) << err.message;
    const ckpt_axis_table table = {Count, Finish, nullptr};
    Counting ranks = {{&table, "dp_shard", 0, 2, 0, 0}, 0, 0};
    const ckpt_sharded_options options = {model, &ranks.base, &ranks.base, nullptr, device, 3, true, false};
    ASSERT_EQ(ckpt_sharded_new(&sharded, &options, &err), CKPT_OK) << err.message;
    const ckpt_unit_hooks *hooks = ckpt_units_hooks(sharded->units);
    ASSERT_EQ(ckpt_units_begin(sharded->units, &err), CKPT_OK);
    const int turn = n_layers > 2 ? n_layers - 2 : 0;  // two are at hand where a pass turns
    for (int micro = 0; micro < 3; micro++) {
      ranks.n_reduced = 0;
      Pass(hooks, n_layers, false);
      Pass(hooks, n_layers, true);
      ASSERT_EQ(ckpt_units_end(sharded->units, &err), CKPT_OK);
      EXPECT_EQ(ranks.n_gathered, 1 + n_layers + turn + micro * 2 * turn) << n_layers << " layers, batch " << micro;
      EXPECT_EQ(ranks.n_reduced, n_layers + 1);
    }
    ckpt_sharded_free(sharded);
    ckpt_device_free(device);
    ckpt_model_free(model);
  }
}

}  // namespace
