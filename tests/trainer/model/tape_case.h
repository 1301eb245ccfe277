// A golden case of tests/data/tape: its model, loaded, with an executor, and the arrays of its golden file.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "trainer/model/executor.h"
}

namespace tape {

inline std::string DataFolder() { return std::string(CKPT_TESTS_DIR) + "/data/tape/"; }

inline std::string FileText(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/* An opened checkpoint. */
struct Index {
  explicit Index(const std::string &path) {
    ckpt_error err = {};
    EXPECT_EQ(ckpt_open(&index, path.c_str(), nullptr, &err), CKPT_OK) << err.message;
  }
  ~Index() { ckpt_index_free(index); }
  Index(const Index &) = delete;
  bool Has(const std::string &name) const { return ckpt_index_find(index, name.c_str()) != nullptr; }
  template <typename T>
  std::vector<T> Read(const std::string &name, ckpt_dtype as = CKPT_DTYPE_NONE) const {
    const ckpt_tensor *tensor = ckpt_index_find(index, name.c_str());
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<T> out(tensor->n_elements);
    ckpt_error err = {};
    EXPECT_EQ(ckpt_read(index, tensor, nullptr, as, out.data(), out.size() * sizeof(T), &err), CKPT_OK) << err.message;
    return out;
  }
  ckpt_index *index = nullptr;
};

struct Model {
  Model(const std::string &config, bool needs_backward, bool is_bf16 = false) {
    ckpt_model_options options = {};
    options.struct_size = sizeof options, options.needs_backward = needs_backward, options.is_bf16 = is_bf16;
    status = ckpt_model_new(&model, config.data(), config.size(), "config.json", &options, &err);
  }
  ~Model() { ckpt_model_free(model); }
  Model(const Model &) = delete;
  ckpt_model *model = nullptr;
  ckpt_error err = {};
  ckpt_status status;
};

/* kernels NULL: the best level. */
struct Executor {
  Executor(const ckpt_model *model, uint32_t rows, uint32_t length, bool has_backward,
           const ckpt_tape_kernels *kernels = nullptr, uint32_t n_threads = 2, uint32_t loss_rows = 0) {
    EXPECT_EQ(ckpt_device_cpu_new(&device, n_threads, kernels, &err), CKPT_OK) << err.message;
    ckpt_executor_options options = {};
    options.struct_size = sizeof options;
    options.max_rows = rows;
    options.max_length = length;
    options.device = device;
    options.has_backward = has_backward;
    options.loss_rows = loss_rows;
    status = ckpt_executor_new(&executor, model, &options, &err);
    EXPECT_EQ(status, CKPT_OK) << err.message;
  }
  ~Executor() {
    ckpt_executor_free(executor);
    ckpt_device_free(device);
  }
  Executor(const Executor &) = delete;
  float *Parameters() { return ckpt_executor_parameters(executor); }
  float *Gradients() { return ckpt_executor_gradients(executor); }
  ckpt_device *device = nullptr;
  ckpt_executor *executor = nullptr;
  ckpt_error err = {};
  ckpt_status status;
};

/* The arrays of one batch of a golden file. */
struct Batch {
  Batch(const Index &golden, const std::string &label) {
    auto array = [&](const char *key) {
      const std::string name = label + "." + key;
      return golden.Has(name) ? golden.Read<int32_t>(name) : std::vector<int32_t>();
    };
    const ckpt_tensor *tensor = ckpt_index_find(golden.index, (label + ".ids").c_str());
    EXPECT_NE(tensor, nullptr) << label;
    ids = array("ids"), targets = array("targets"), positions = array("positions"), documents = array("documents");
    if (golden.Has(label + ".mask")) mask = golden.Read<uint8_t>(label + ".mask");
    batch.n_rows = (uint32_t)tensor->shape[0];
    batch.length = (uint32_t)tensor->shape[1];
    batch.ids = ids.data();
    batch.targets = Pointer(targets), batch.positions = Pointer(positions), batch.documents = Pointer(documents);
    batch.mask = mask.empty() ? nullptr : mask.data();
  }
  static const int32_t *Pointer(const std::vector<int32_t> &v) { return v.empty() ? nullptr : v.data(); }
  size_t Tokens() const { return (size_t)batch.n_rows * batch.length; }
  std::vector<int32_t> ids, targets, positions, documents;
  std::vector<uint8_t> mask;
  ckpt_token_batch batch = {};
};

inline double Largest(const float *x, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; i++) largest = std::max(largest, (double)std::fabs(x[i]));
  return largest;
}

/* The greatest difference over the greatest expected magnitude; infinite where something is no number. */
inline double Distance(const float *actual, const float *expected, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; i++) {
    if (!std::isfinite(actual[i])) return INFINITY;
    largest = std::max(largest, std::fabs((double)actual[i] - expected[i]));
  }
  return largest / std::max(Largest(expected, n), 1e-30);
}

}  // namespace tape
