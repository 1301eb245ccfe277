// What a rank holds: buffers are those of the plan to the byte, in every stage, whole and by layers; and shards of
// stage 3 are a fraction of the whole.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

extern "C" {
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

Made Make(const ckpt_model *model, ckpt_collective *collective, ckpt_collective *background, uint32_t stage,
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
  const ckpt_sharded_options options = {model, collective, background, device, stage, by_layers, true};
  EXPECT_EQ(ckpt_sharded_new(&sharded, &options, &err), CKPT_OK) << err.message;
  Made made = {};
  ckpt_sharded_memory plan;
  ckpt_sharded_plan(&plan, model, stage, by_layers, collective->rank, collective->size);
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
  const ckpt_model_options options = {sizeof options, true, false};
  ckpt_model *model = nullptr;
  ckpt_error err = {};
  ASSERT_EQ(ckpt_model_new(&model, text.str().c_str(), text.str().size(), nullptr, &options, &err), CKPT_OK);
  for (const uint32_t n_ranks : {1U, 2U, 3U, 8U})
    for (uint32_t stage = 0; stage <= 3; stage++)
      for (const bool by_layers : {false, true}) {
        ckpt_thread_ranks *ranks = nullptr, *background = nullptr;
        ASSERT_EQ(ckpt_thread_ranks_new(&ranks, n_ranks, &err), CKPT_OK);
        ASSERT_EQ(ckpt_thread_ranks_new(&background, n_ranks, &err), CKPT_OK);
        std::vector<Made> made(n_ranks);
        std::vector<std::thread> threads;
        for (uint32_t r = 0; r < n_ranks; r++)
          threads.emplace_back([&, r] {
            made[r] =
                Make(model, ckpt_thread_ranks_at(ranks, r), ckpt_thread_ranks_at(background, r), stage, by_layers);
          });
        for (auto &thread : threads) thread.join();
        for (uint32_t r = 0; r < n_ranks; r++) {
          EXPECT_EQ(made[r].held, made[r].planned) << n_ranks << " ranks, stage " << stage << ", rank " << r;
          EXPECT_EQ(made[r].left, 0u);
        }
        ckpt_thread_ranks_free(ranks);
        ckpt_thread_ranks_free(background);
      }
  ckpt_model_free(model);
}

}  // namespace
