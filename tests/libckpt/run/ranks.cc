// Two meetings per call: all have said where their bytes are; all have copied them.
#include "tests/libckpt/run/ranks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace fake {

Ranks::Ranks(uint32_t size) : size_(size), sources_(size), sizes_(size) {}

void Ranks::meet() {
  std::unique_lock<std::mutex> lock(mutex_);
  uint64_t meeting = n_meetings_;
  if (++n_waiting_ == size_) {
    n_waiting_ = 0;
    n_meetings_++;
    changed_.notify_all();
    return;
  }
  bool came = changed_.wait_for(lock, std::chrono::seconds(60), [&] { return n_meetings_ != meeting; });
  if (!came) {
    fprintf(stderr, "a rank waits for another that never comes\n");
    abort();  // a test that hangs says nothing
  }
}

ckpt_status Ranks::all_gather(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *) {
  Member *member = static_cast<Member *>(ctx);
  Ranks *ranks = member->ranks;
  ranks->sources_[member->rank] = src;
  ranks->sizes_[member->rank] = n_bytes;
  ranks->meet();
  for (uint32_t rank = 0; rank < ranks->size_; rank++) {
    EXPECT_EQ(ranks->sizes_[rank], n_bytes) << "ranks are in different calls";
    if (ranks->sizes_[rank] == n_bytes)
      memcpy(static_cast<char *>(dst) + rank * n_bytes, ranks->sources_[rank], n_bytes);
  }
  ranks->meet();
  return CKPT_OK;
}

void Ranks::run(const std::function<void(const ckpt_group *)> &rank) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < size_; i++)
    threads.emplace_back([this, i, &rank] {
      Member member = {this, i};
      ckpt_group group = {&member, i, size_, all_gather};
      rank(&group);
    });
  for (auto &thread : threads) thread.join();
}

}  // namespace fake
