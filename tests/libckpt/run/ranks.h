// Threads as ranks: every rank runs the same function in a thread of its own, with a group over memory.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

extern "C" {
#include "libckpt/base/group.h"
}

namespace fake {

class Ranks {
 public:
  explicit Ranks(uint32_t size);

  // Calls `rank` once per rank, each in its thread, and returns when all have.
  void run(const std::function<void(const ckpt_group *group)> &rank);

 private:
  struct Member {
    Ranks *ranks;
    uint32_t rank;
  };
  static ckpt_status all_gather(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err);
  void meet();

  uint32_t size_, n_waiting_ = 0;
  uint64_t n_meetings_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void *> sources_;
  std::vector<size_t> sizes_;
};

}  // namespace fake
