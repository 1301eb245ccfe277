// What kernels are tried with: cases that run on any device through its table and give back all that they computed.
#ifndef CKPT_TESTS_CUDA_ON_CPU_CASES_H
#define CKPT_TESTS_CUDA_ON_CPU_CASES_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "trainer/model/device.h"
}

namespace cuda_cases {

using Floats = std::vector<float>;

inline Floats Normal(size_t n, uint32_t seed, float deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  Floats out(n);
  for (float &x : out) x = normal(engine);
  return out;
}

inline std::vector<int32_t> Below(size_t n, int32_t limit, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> out(n);
  for (int32_t &x : out) x = (int32_t)(engine() % (uint32_t)limit);
  return out;
}

// A device's memory, and launches in it.
class Machine {
 public:
  explicit Machine(ckpt_device *device) : device_(device) {}
  ~Machine() {
    for (const auto &item : items_) device_->table->release(device_, item.first, item.second);
  }
  Machine(const Machine &) = delete;

  template <class T>
  T *Put(const std::vector<T> &values) {
    const size_t n_bytes = values.size() * sizeof(T);
    void *at = device_->table->allocate(device_, n_bytes);
    EXPECT_NE(at, nullptr);
    device_->table->copy_in(device_, at, values.data(), n_bytes);
    items_.emplace_back(at, n_bytes);
    return static_cast<T *>(at);
  }
  float *Zeros(size_t n) { return Put(Floats(n, 0)); }
  // Appends what stands there.
  template <class T>
  void Get(Floats &to, const T *at, size_t n) {
    const size_t n_floats = n * sizeof(T) / sizeof(float), before = to.size();
    to.resize(before + n_floats);
    device_->table->copy_out(device_, to.data() + before, at, n * sizeof(T));
  }
  void Run(ckpt_tape_kernel_id id, const void *args, size_t n) { device_->table->launch(device_, id, args, n, 3); }
  ckpt_device *device() { return device_; }
  // What failed; nothing, else.
  std::string Finish() {
    ckpt_error err = {};
    return device_->table->synchronize(device_, &err) == CKPT_OK ? "" : err.message;
  }

 private:
  ckpt_device *device_;
  std::vector<std::pair<void *, size_t>> items_;
};

struct Case {
  std::string name;
  std::function<Floats(Machine &)> run;
  bool has_barriers = false;
};

std::vector<Case> All();

// Two NaNs count as the same bits.
inline std::string FirstDifference(const Floats &a, const Floats &b) {
  if (a.size() != b.size()) return std::to_string(a.size()) + " and " + std::to_string(b.size()) + " numbers";
  for (size_t i = 0; i < a.size(); i++)
    if (!(std::isnan(a[i]) && std::isnan(b[i])) && memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return "number " + std::to_string(i) + ": " + std::to_string(a[i]) + " and " + std::to_string(b[i]);
  return "";
}

}  // namespace cuda_cases

#endif
