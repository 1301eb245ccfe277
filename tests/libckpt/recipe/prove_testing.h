// What tests of statistics, differences and manifests share: safetensors files in memory, opened as indexes.
#ifndef CKPT_TESTS_PROVE_TESTING_H
#define CKPT_TESTS_PROVE_TESTING_H

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/index/index.h"
#include "libckpt/recipe/compare/prove.h"
}

namespace prove {

struct Stored {
  std::string name, dtype;  // as safetensors calls it
  std::vector<uint64_t> shape;
  std::string bytes;
};

inline std::string File(const std::vector<Stored> &tensors) {
  std::string header = "{", payload;
  for (const auto &tensor : tensors) {
    std::string shape;
    for (uint64_t axis : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(axis);
    header += (header.size() == 1 ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" +
              shape + "],\"data_offsets\":[" + std::to_string(payload.size()) + "," +
              std::to_string(payload.size() + tensor.bytes.size()) + "]}";
    payload += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (int i = 0; i < 8; i++) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + payload;
}

// An index over a file in memory, which it keeps.
struct Opened {
  std::string bytes;
  ckpt_index *index = nullptr;
  explicit Opened(const std::vector<Stored> &tensors) : bytes(File(tensors)) {
    ckpt_error err = {};
    EXPECT_EQ(ckpt_open_memory(&index, bytes.data(), bytes.size(), "memory", nullptr, &err), CKPT_OK) << err.message;
  }
  Opened(const Opened &) = delete;
  ~Opened() { ckpt_index_free(index); }
};

struct PlanDeleter {
  void operator()(ckpt_plan *plan) const { ckpt_plan_free(plan); }
};
using Plan = std::unique_ptr<ckpt_plan, PlanDeleter>;

inline Plan NewPlan() {
  ckpt_plan *plan = nullptr;
  EXPECT_EQ(ckpt_plan_new(&plan, nullptr), CKPT_OK);
  return Plan(plan);
}

inline void Run(ckpt_plan *plan, uint32_t n_threads = 2, uint64_t memory = 16 << 20) {
  ckpt_error err = {};
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.n_threads = n_threads;
  run.memory = memory;
  ASSERT_EQ(ckpt_plan_run(plan, &run, &err), CKPT_OK) << err.message;
}

inline void Run(const ckpt_proof &proof, uint32_t n_threads = 2, uint64_t memory = 16 << 20) {
  ckpt_error err = {};
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.n_threads = n_threads;
  run.memory = memory;
  ASSERT_EQ(ckpt_prove(&proof, &run, nullptr, nullptr, &err), CKPT_OK) << err.message;
}

template <typename T>
std::string Bytes(const std::vector<T> &values) {
  return std::string(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T));
}

}  // namespace prove

#endif
