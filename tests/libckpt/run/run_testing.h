// run_testing.h - rows of fake operations over tensors in memory, and their run.
#ifndef CKPT_TESTS_LIBCKPT_RUN_TESTING_H
#define CKPT_TESTS_LIBCKPT_RUN_TESTING_H

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>
#include <atomic>

#include <cstring>
#include <fstream>

#include "tests/libckpt/fake/fake_format.h"
#include "tests/libckpt/fake/fake_ops.h"

using namespace fake;

class Run : public testing::Test {
 protected:
  Run() : random_(first_seed()), store_(&random_, 1) {}
  void SetUp() override {  // everything anew
    ckpt_plan_free(plan_);
    sinks_.clear();
    index_ = nullptr;
    store_ = Store(&random_, 1);
    ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
  }
  ~Run() override { ckpt_plan_free(plan_); }

  const Array &plain(const std::string &name, ckpt_dtype dtype, const Shape &shape) {
    return store_.add_plain(name, random_array(&random_, dtype, shape)).array;
  }
  void open() {
    index_ = store_.build(&err_, &reads_);
    ASSERT_TRUE(index_) << text_of(err_);
  }
  ckpt_expr *read(const std::string &name) {
    ckpt_expr *expr = nullptr;
    EXPECT_EQ(ckpt_expr_read(&expr, plan_, index_.get(), ckpt_index_find(index_.get(), name.c_str()), &err_), CKPT_OK);
    return expr;
  }
  ckpt_expr *slice(ckpt_expr *x, uint32_t axis, uint64_t start, uint64_t count) {
    EXPECT_EQ(ckpt_expr_slice(&x, plan_, x, axis, start, count, &err_), CKPT_OK);
    return x;
  }
  ckpt_expr *concat(std::vector<ckpt_expr *> xs, uint32_t axis) {
    ckpt_expr *out = nullptr;
    EXPECT_EQ(ckpt_expr_concat(&out, plan_, xs.data(), static_cast<uint32_t>(xs.size()), axis, &err_), CKPT_OK);
    return out;
  }
  ckpt_expr *apply(const ckpt_op &op, std::vector<ckpt_expr *> args, const void *params = nullptr) {
    ckpt_expr *out = nullptr;
    EXPECT_EQ(
        ckpt_expr_apply(&out, plan_, &op, CKPT_F32, args.data(), static_cast<uint32_t>(args.size()), params, &err_),
        CKPT_OK);
    return out;
  }
  void add(uint32_t sink, const std::string &name, ckpt_expr *expr) {
    EXPECT_EQ(ckpt_plan_add_like(plan_, sink, name.c_str(), expr, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
  }
  uint32_t output(int zstd_level = 0, uint32_t world = 1) {
    sinks_.emplace_back();
    return add_output(plan_, &sinks_.back(), &format, world, zstd_level);
  }
  ckpt_run_options options(uint64_t memory_mib = 0, uint32_t n_threads = 2) {
    ckpt_run_options o = {};
    o.struct_size = sizeof o;
    o.memory = memory_mib << 20;
    o.n_threads = n_threads;
    return o;
  }
  ckpt_status run(const ckpt_run_options &o) {
    err_ = {};
    return ckpt_plan_run(plan_, &o, &err_);
  }
  void run_well(const ckpt_run_options &o) { ASSERT_EQ(run(o), CKPT_OK) << text_of(err_); }
  std::vector<uint8_t> written(uint32_t sink, const std::string &name) {
    ckpt_error err = {};
    IndexPointer opened = open_fake(sinks_[sink].files, &err);
    if (!opened) return {};
    return read_all(opened.get(), ckpt_index_find(opened.get(), name.c_str()));
  }
  uint64_t bytes_read() { return ckpt_source_bytes_read(index_->source); }

  Random random_;
  Store store_;
  Faults reads_;
  IndexPointer index_{nullptr, ckpt_index_free};
  ckpt_plan *plan_ = nullptr;
  std::deque<MemorySink> sinks_;
  ckpt_error err_ = {};
};

#endif
