// Runs within their memory, that fail, that are cancelled, and with what callers bring.
#include "tests/libckpt/run/run_testing.h"

namespace {

size_t heap_bytes() {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

size_t most_heap;
void measured_partial(const ckpt_op_call *call, void *partial) {
  sum_sq.partial(call, partial);
  most_heap = std::max(most_heap, heap_bytes());
}

// However many there are: 64 of 1 MiB each. (Sanitizers have a heap of their own, of which nothing is seen here.)
TEST_F(Run, PartialsAreWithinTheMemory) {
  plain("x", CKPT_F32, {64, CKPT_REDUCE_ELEMENTS});
  open();
  ckpt_op large = sum_sq;
  large.value_bytes = 1 << 20;
  large.partial = measured_partial;
  ckpt_expr *x = read("x");
  const void *values[2];
  ASSERT_EQ(ckpt_plan_reduce(plan_, "sum", apply(sum_sq, {x}), &values[0], &err_), CKPT_OK);
  ASSERT_EQ(ckpt_plan_reduce(plan_, "large", apply(large, {x}), &values[1], &err_), CKPT_OK);
  ckpt_run_options o = options(24, 1);
  uint64_t peak;
  ASSERT_EQ(ckpt_plan_check(plan_, &o, &peak, nullptr, &err_), CKPT_OK) << text_of(err_);
  EXPECT_LE(peak, o.memory);
  size_t before = heap_bytes();
  most_heap = before;
  run_well(o);
  EXPECT_LE(most_heap - before, o.memory + (1 << 20));
  EXPECT_EQ(memcmp(values[0], values[1], sizeof(double)), 0);
}

// ---- refusing, cancelling -------------------------------------------------------------------------------------------

TEST_F(Run, WhatCannotFitIsRefusedBeforeAnythingIsWritten) {
  plain("x", CKPT_F32, {3, 3000000});
  open();
  output();
  add(0, "wide row", apply(row_sum, {read("x")}));
  EXPECT_EQ(run(options(16, 1)), CKPT_ELIMIT);
  EXPECT_STREQ(err_.tensor, "wide row");
  EXPECT_NE(std::string(err_.message).find("needs 24000000 bytes at once"), std::string::npos) << err_.message;
  EXPECT_NE(std::string(err_.message).find("memory limit of 16777216"), std::string::npos);
  char text[2048];
  EXPECT_NE(std::string(ckpt_error_text(&err_, text, sizeof text)).find(" (memory=26621440 would do for it)"),
            std::string::npos)
      << text;
  EXPECT_TRUE(sinks_[0].names.empty());
  EXPECT_EQ(bytes_read(), 0u);
  run_well(options(64, 1));
}

TEST_F(Run, MemoryTooSmallForAnything) {
  plain("x", CKPT_F32, {3});
  open();
  output();
  add(0, "x", read("x"));
  ckpt_run_options o = options();
  o.memory = 1000;
  EXPECT_EQ(run(o), CKPT_ELIMIT);
  EXPECT_NE(std::string(err_.message).find("the memory limit of 1000 bytes is too low"), std::string::npos);
  EXPECT_TRUE(sinks_[0].names.empty());
}

struct Canceller {
  volatile int flag = 0;
  int calls = 0, at = 0;
  static void progress(void *arg, uint64_t, uint64_t) {
    Canceller *c = static_cast<Canceller *>(arg);
    if (++c->calls == c->at) __atomic_store_n(&c->flag, 1, __ATOMIC_RELAXED);
  }
};

TEST_F(Run, CancellingAtAnyTileLeavesNothing) {
  for (int i = 0; i < 12; i++) plain("x" + std::to_string(i), CKPT_F32, {1000});
  open();
  for (int at = 0; at <= 36; at += 5) {
    ckpt_plan_free(plan_);
    ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
    sinks_.clear();
    output(), output(3, 2);
    for (int i = 0; i < 12; i++)
      for (uint32_t sink : {0u, 1u}) add(sink, "x" + std::to_string(i), read("x" + std::to_string(i)));
    Canceller canceller;
    canceller.at = at;
    canceller.flag = at == 0;
    ckpt_run_options o = options(64, static_cast<uint32_t>(at % 4 + 1));
    o.progress = Canceller::progress;
    o.progress_arg = &canceller;
    o.cancel = &canceller.flag;
    ckpt_status status = run(o);
    if (canceller.calls < at) {
      EXPECT_EQ(status, CKPT_OK);
      continue;
    }
    EXPECT_EQ(status, CKPT_ECANCELED) << at;
    EXPECT_STREQ(err_.message, "cancelled; nothing was written");
    for (const MemorySink &sink : sinks_) EXPECT_TRUE(sink.is_abandoned && !sink.is_published);
  }
}

TEST_F(Run, EveryFailingReadEndsTheRun) {
  for (int i = 0; i < 9; i++) plain("x" + std::to_string(i), CKPT_F32, {100, 10});
  open();
  for (long n = 1; n <= 12; n++) {
    ckpt_plan_free(plan_);
    ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
    sinks_.clear();
    output(3, 3);
    for (int i = 0; i < 9; i++) add(0, "x" + std::to_string(i), read("x" + std::to_string(i)));
    reads_.n_calls = 0;
    reads_.fail_at = n;
    ckpt_status status = run(options(64, static_cast<uint32_t>(n % 3 + 1)));
    EXPECT_EQ(status, reads_.n_calls >= n ? CKPT_EIO : CKPT_OK);
    EXPECT_EQ(sinks_[0].is_published, status == CKPT_OK);
    EXPECT_EQ(sinks_[0].is_abandoned, status != CKPT_OK);
    EXPECT_STREQ(err_.file, status == CKPT_OK ? "" : "file-0");
  }
}

// The caller's allocator gives the index and the workspace, and gets back what it gave.
TEST_F(Run, LargeMemoryComesFromTheCallersAllocator) {
  struct Counts {
    std::atomic<uint64_t> n_bytes{0}, n_most{0}, n_calls{0};
  } counts;
  ckpt_allocator allocator = {};
  allocator.ctx = &counts;
  allocator.allocate = [](void *ctx, size_t n_bytes) {
    Counts *c = static_cast<Counts *>(ctx);
    c->n_bytes += n_bytes;
    c->n_calls++;
    if (c->n_bytes > c->n_most) c->n_most = c->n_bytes.load();
    void *memory = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    memset(memory, 0xEE, n_bytes);
    return memory;
  };
  allocator.release = [](void *ctx, void *memory, size_t n_bytes) {
    static_cast<Counts *>(ctx)->n_bytes -= n_bytes;
    free(memory);
  };
  std::string path = testing::TempDir() + "ckpt-allocator-" + std::to_string(getpid()) + ".safetensors";
  const Array &x = plain("x", CKPT_F32, {300, 1000});
  open();
  uint32_t sink;
  ASSERT_EQ(ckpt_plan_output(plan_, path.c_str(), nullptr, true, &sink, &err_), CKPT_OK) << text_of(err_);
  add(sink, "x", read("x"));
  ckpt_run_options o = options();
  o.allocator = &allocator;
  ASSERT_EQ(ckpt_plan_run(plan_, &o, &err_), CKPT_OK) << text_of(err_);
  EXPECT_EQ(counts.n_bytes, 0u);
  EXPECT_EQ(counts.n_calls, 1u);
  EXPECT_EQ(counts.n_most, plan_->workspace_bytes);
  ckpt_open_options with = {};
  with.struct_size = sizeof with;
  with.allocator = &allocator;
  ckpt_index *index = nullptr;
  ASSERT_EQ(ckpt_open(&index, path.c_str(), &with, &err_), CKPT_OK) << text_of(err_);
  EXPECT_EQ(counts.n_bytes, index->arena.n_taken);
  EXPECT_EQ(read_all(index, ckpt_index_find(index, "x")), x.bytes);
  ckpt_index_free(index);
  EXPECT_EQ(counts.n_bytes, 0u);
  unlink(path.c_str());
}

TEST_F(Run, AnyBackendAndAnyVersionOfTheOptions) {
  EXPECT_EQ(ckpt_backend_find("abacus"), nullptr);
  const Array &x = plain("x", CKPT_F32, {100, 100});
  open();
  output();
  ckpt_expr *half = nullptr;
  ASSERT_EQ(ckpt_expr_cast(&half, plan_, read("x"), CKPT_BF16, &err_), CKPT_OK);
  add(0, "x", half);
  ckpt_run_options o = options();
  o.backend = ckpt_backend_find("reference");
  ASSERT_NE(o.backend, nullptr);
  static uint64_t n_calls = 0;
  ckpt_backend counting = *o.backend;
  counting.cast = [](ckpt_dtype to, void *dst, ckpt_dtype from, const void *src, size_t n, ckpt_cast_stats *stats) {
    n_calls++;
    ckpt_backend_reference.cast(to, dst, from, src, n, stats);
  };
  o.backend = &counting;
  ckpt_error err = {};
  o.struct_size = 0;
  EXPECT_EQ(ckpt_plan_run(plan_, &o, &err), CKPT_EINVAL);
  EXPECT_STREQ(err.message, "an option struct has struct_size 0 (set it to its sizeof)");
  o.struct_size = sizeof o;
  run_well(o);
  EXPECT_GT(n_calls, 0u);
  ckpt_digest wanted = digest_of(cast(x, CKPT_BF16));
  EXPECT_EQ(memcmp(&plan_->rows[0].digest, &wanted, sizeof wanted), 0);
  // a caller that was built before there were backends
  n_calls = 0;
  o.struct_size = offsetof(ckpt_run_options, backend);
  ckpt_plan_free(plan_);
  ASSERT_EQ(ckpt_plan_new(&plan_, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_cast(&half, plan_, read("x"), CKPT_BF16, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_plan_add_like(plan_, CKPT_NO_SINK, "x", half, nullptr, nullptr, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_plan_run(plan_, &o, &err_), CKPT_OK) << text_of(err_);
  EXPECT_EQ(n_calls, 0u);
  EXPECT_EQ(memcmp(&plan_->rows[0].digest, &wanted, sizeof wanted), 0);
}

}  // namespace
