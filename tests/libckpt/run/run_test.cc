// The loop's promises, one by one: each read is made once, reductions do not depend on tiles, lanes keep their order,
// values are there before they are used, cancelling and refusing leave nothing.
#include "tests/libckpt/run/run_testing.h"

namespace {

// ---- one read -------------------------------------------------------------------------------------------------------

TEST_F(Run, ColumnsOfOneTensorAreOneRead) {
  const Array &qkv = plain("qkv", CKPT_F32, {1000, 3 * 700});
  open();
  output(), output(3);
  for (uint32_t k = 0; k < 3; k++) {
    add(0, std::string("qkv").substr(k, 1), slice(read("qkv"), 1, 700 * k, 700));
    add(1, std::string("qkv").substr(k, 1), slice(read("qkv"), 1, 700 * k, 700));
    add(CKPT_NO_SINK, "digest" + std::to_string(k), slice(read("qkv"), 1, 700 * k, 700));
  }
  run_well(options());
  // a lane reads each of its tensors by itself, but the raw output and the digests share one read
  uint64_t shared = bytes_read();
  EXPECT_LE(shared, 4 * qkv.bytes.size());
  for (uint32_t k = 0; k < 3; k++)
    for (uint32_t sink = 0; sink < 2; sink++)
      EXPECT_EQ(written(sink, std::string("qkv").substr(k, 1)), fake::slice(qkv, 1, 700 * k, 700).bytes);
}

std::atomic<uint64_t> n_negated{0};

ckpt_status negate_counting(const ckpt_op_call *call, ckpt_error *) {
  const auto *x = static_cast<const float *>(call->args[0]);
  auto *out = static_cast<float *>(call->out);
  for (uint64_t i = 0; i < call->n_elements; i++) out[i] = -x[i];
  n_negated += call->n_elements;
  return CKPT_OK;
}

std::vector<uint8_t> flipped(std::vector<uint8_t> f32) {
  for (size_t i = 3; i < f32.size(); i += 4) f32[i] ^= 0x80;
  return f32;
}

// Rows of one first argument compute it once, rows of one expression that; others in between are none of them.
TEST_F(Run, WhatRowsShareIsComputedOnce) {
  ckpt_op negate = {};
  negate.name = "negate";
  negate.rule = CKPT_RULE_FLAT;
  negate.run = negate_counting;
  const Array &x = plain("x", CKPT_F32, {3000, 500}), &y = plain("y", CKPT_F32, {3000, 500});
  open();
  output(), output(), output();
  ckpt_expr *negated = apply(negate, {read("x")}), *half = negated, *bfloat = negated;
  ASSERT_EQ(ckpt_expr_cast(&half, plan_, negated, CKPT_F16, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_cast(&bfloat, plan_, negated, CKPT_BF16, &err_), CKPT_OK);
  plan_->allow_overflow = true;
  add(0, "x", half), add(1, "x", bfloat), add(2, "x", half);
  add(0, "same", read("x")), add(1, "sum", apply(fake::add, {read("x"), read("y")}));
  n_negated = 0;
  run_well(options());
  Array wanted = x;
  for (size_t i = 3; i < wanted.bytes.size(); i += 4) wanted.bytes[i] ^= 0x80;
  EXPECT_EQ(n_negated, x.bytes.size() / 4);
  EXPECT_EQ(written(0, "x"), cast(wanted, CKPT_F16).bytes);
  EXPECT_EQ(written(1, "x"), cast(wanted, CKPT_BF16).bytes);
  EXPECT_EQ(written(2, "x"), written(0, "x"));
  EXPECT_EQ(written(0, "same"), x.bytes);
  EXPECT_EQ(written(1, "sum"), fake::apply(fake::add, {&x, &y}).bytes);
  EXPECT_EQ(ckpt_row_stats(&plan_->rows[0]).n_overflow, ckpt_row_stats(&plan_->rows[2]).n_overflow);
}

// A stack and the parts that a reader finds in it, rows and the same in another order: neither is computed twice.
TEST_F(Run, WhatIsWrittenAndWhatIsFoundIsComputedOnce) {
  ckpt_op negate = {};
  negate.name = "negate";
  negate.rule = CKPT_RULE_ROW;
  negate.is_rowwise = true;
  negate.run = negate_counting;
  for (uint32_t n_threads : {1, 3}) {
    SetUp();
    const uint64_t n_cols = 5000, flat[] = {60, n_cols}, deep[] = {1, 60, n_cols};
    const Array &x = plain("x", CKPT_F32, {480, n_cols}), &y = plain("y", CKPT_F32, {4, 60, n_cols});
    open();
    output();
    add(0, "x", apply(negate, {read("x")}));
    ckpt_expr *moved = nullptr, *stacked = apply(negate, {read("y")}), *wanted = nullptr;
    ASSERT_EQ(ckpt_expr_move_rows_in(&moved, &plan_->arena, apply(negate, {read("x")}), 8, 3, 2, &err_), CKPT_OK);
    add(CKPT_NO_SINK, "moved", moved);
    std::vector<uint8_t> bytes(x.bytes.size());  // 8 parts of 3 times 2 chunks of 10 rows
    const uint64_t n_chunk = 10 * n_cols * 4;
    for (uint64_t part = 0; part < 8; part++)
      for (uint64_t i = 0; i < 3; i++)
        for (uint64_t j = 0; j < 2; j++)
          memcpy(&bytes[(part * 6 + j * 3 + i) * n_chunk], &x.bytes[(part * 6 + i * 2 + j) * n_chunk], n_chunk);
    bytes = flipped(bytes);
    ASSERT_EQ(ckpt_expr_memory_in(&wanted, &plan_->arena, CKPT_F32, 2, moved->shape, bytes.data(), &err_), CKPT_OK);
    add(CKPT_NO_SINK, "wanted", wanted);
    std::vector<ckpt_expr *> parts, found;
    for (uint64_t i = 0; i < 4; i++) {
      ckpt_expr *one = slice(stacked, 0, i, 1);
      ASSERT_EQ(ckpt_expr_reshape(&one, plan_, one, 2, flat, &err_), CKPT_OK);
      found.push_back(one);
      ASSERT_EQ(ckpt_expr_reshape(&one, plan_, one, 3, deep, &err_), CKPT_OK);
      parts.push_back(one);
    }
    add(0, "y", concat(parts, 0));
    for (ckpt_expr *one : found) add(CKPT_NO_SINK, "part" + std::to_string(plan_->n_rows), one);
    n_negated = 0;
    run_well(options(n_threads == 1 ? 20 : 160, n_threads));  // with slots for all leaves that tiles of threads cut
    EXPECT_EQ(n_negated, (x.bytes.size() + y.bytes.size()) / 4);
    EXPECT_EQ(bytes_read(), x.bytes.size() + y.bytes.size());
    EXPECT_EQ(written(0, "x"), flipped(x.bytes));
    EXPECT_EQ(written(0, "y"), flipped(y.bytes));
    EXPECT_EQ(memcmp(&plan_->rows[1].digest, &plan_->rows[2].digest, sizeof(ckpt_digest)), 0);
    EXPECT_NE(memcmp(&plan_->rows[0].digest, &plan_->rows[2].digest, sizeof(ckpt_digest)), 0);
    EXPECT_GT(plan_->batches[0].n_tiles, 1u);
  }
}

TEST_F(Run, SeveralOutputsOfOneTensorAreOneRead) {
  const Array &x = plain("x", CKPT_F32, {3000, 500});
  open();
  std::string trace = testing::TempDir() + "/ckpt-run-trace-" + std::to_string(getpid());
  output(), output(0, 4);
  for (uint32_t k = 0; k < 3; k++) add(0, "c" + std::to_string(k), slice(read("x"), 1, 100 * k, 100 + k));
  add(1, "x", read("x"));
  add(1, "sum", apply(row_sum, {read("x")}));
  add(CKPT_NO_SINK, "half", read("x"));
  ckpt_run_options o = options();
  o.trace = trace.c_str();
  unlink(trace.c_str());
  run_well(o);
  EXPECT_EQ(bytes_read(), x.bytes.size());
  std::ifstream in(trace);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(text.find("{\"total\":{\"read\":" + std::to_string(x.bytes.size())), std::string::npos) << text;
  EXPECT_EQ(written(1, "x"), x.bytes);
  EXPECT_EQ(written(0, "c2"), fake::slice(x, 1, 200, 102).bytes);
  unlink(trace.c_str());
}

// Rows see parts of a tensor, all of it, and all of it by other axes, whichever comes first: each by its own axes.
TEST_F(Run, ViewsOfATensorKeepTheirAxes) {
  const uint64_t split[] = {6, 2, 10, 4}, heads[] = {12, 2, 5, 4};
  const uint32_t turned[] = {0, 2, 1}, turned_heads[] = {0, 2, 1, 3};
  std::vector<int> which = {0, 1, 2, 3, 4};
  do {
    SetUp();
    const Array &x = plain("x", CKPT_F32, {12, 10, 4});
    open();
    output();
    for (int i : which) {
      ckpt_expr *y = read("x");
      ckpt_status status = CKPT_OK;
      if (i == 0) y = slice(y, 2, 0, 3);
      if (i == 2) status = ckpt_expr_reshape(&y, plan_, y, 4, split, &err_);
      if (i == 3) status = ckpt_expr_permute(&y, plan_, y, turned, &err_);
      if (i == 4) status = ckpt_expr_reshape(&y, plan_, y, 4, heads, &err_);
      if (i == 4 && status == CKPT_OK) status = ckpt_expr_permute(&y, plan_, y, turned_heads, &err_);
      ASSERT_EQ(status, CKPT_OK);
      add(0, std::to_string(i), y);
    }
    run_well(options());
    Array by_heads = x;
    by_heads.shape.assign(heads, heads + 4);
    SCOPED_TRACE(testing::PrintToString(which));
    EXPECT_EQ(written(0, "0"), fake::slice(x, 2, 0, 3).bytes);
    EXPECT_EQ(written(0, "1"), x.bytes);
    EXPECT_EQ(written(0, "2"), x.bytes);
    EXPECT_EQ(written(0, "3"), fake::permute(x, {0, 2, 1}).bytes);
    EXPECT_EQ(written(0, "4"), fake::permute(by_heads, {0, 2, 1, 3}).bytes);
  } while (!HasFailure() && std::next_permutation(which.begin(), which.end()));
}

// Every range of a tensor that was made flat, whether it is a box of the tensor's own shape or not.
TEST_F(Run, RangesOfAFlatTensor) {
  const Array &x = plain("x", CKPT_I64, {2, 3, 1, 5});
  open();
  output();
  const uint64_t flat[] = {30};
  ckpt_expr *y = nullptr;
  ASSERT_EQ(ckpt_expr_reshape(&y, plan_, read("x"), 1, flat, &err_), CKPT_OK);
  const auto name = [](uint64_t begin, uint64_t n) { return std::to_string(begin) + "+" + std::to_string(n); };
  for (uint64_t begin = 0; begin < 30; begin++)
    for (uint64_t n = 1; n <= 30 - begin; n++) add(0, name(begin, n), slice(y, 0, begin, n));
  run_well(options());
  for (uint64_t begin = 0; begin < 30; begin++)
    for (uint64_t n = 1; n <= 30 - begin; n++) {
      const auto from = x.bytes.begin() + static_cast<long>(8 * begin);
      EXPECT_EQ(written(0, name(begin, n)), std::vector<uint8_t>(from, from + static_cast<long>(8 * n)))
          << name(begin, n);
    }
}

// A slice that begins inside blocks goes by the axes of its own argument, which other rows have without one of
// length 1.
TEST_F(Run, SlicesInsideBlocksKeepTheirAxes) {
  const Array x = random_array(&random_, CKPT_F6_E2M3, {5, 8});
  store_.add_plain("x", x);
  open();
  output();
  const uint64_t deep[] = {5, 1, 8};
  ckpt_expr *wide = read("x"), *narrow = nullptr;
  ASSERT_EQ(ckpt_expr_reshape(&narrow, plan_, wide, 3, deep, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_cast(&wide, plan_, wide, CKPT_F32, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_cast(&narrow, plan_, narrow, CKPT_F32, &err_), CKPT_OK);
  add(0, "reversed", apply(reverse, {wide}));
  add(0, "wide", wide);
  add(0, "narrow", slice(narrow, 2, 2, 3));
  run_well(options());
  EXPECT_EQ(written(0, "wide"), cast(x, CKPT_F32).bytes);
  EXPECT_EQ(written(0, "narrow"), fake::slice(cast(x, CKPT_F32), 1, 2, 3).bytes);
}

// Blocks of a cast lie across parts that are shorter than one.
TEST_F(Run, BlocksAcrossPartsOfAConcat) {
  const Array &x = plain("x", CKPT_F32, {13}), &y = plain("y", CKPT_F32, {3});
  open();
  output();
  ckpt_expr *narrow = concat({slice(read("x"), 0, 12, 1), read("y"), read("x"), read("y")}, 0);
  ASSERT_EQ(ckpt_expr_cast(&narrow, plan_, narrow, CKPT_F6_E2M3, &err_), CKPT_OK);
  plan_->allow_overflow = true;
  add(0, "z", narrow);
  run_well(options());
  EXPECT_EQ(written(0, "z"), cast(fake::concat({fake::slice(x, 0, 12, 1), y, x, y}, 0), CKPT_F6_E2M3).bytes);
}

// What every tile needs whole is read and made once for each worker, not for each tile; a batch that takes all of the
// workspace in between takes it away from those that kept something there.
TEST_F(Run, WholeArgumentsAreReadOnceForAllTiles) {
  for (uint32_t n_threads : {1, 2}) {
    SetUp();
    const Array &x = plain("x", CKPT_F32, {4096, 1000}), &w = plain("w", CKPT_F32, {300000});
    const Array &big = plain("big", CKPT_F32, {1500000});
    open();
    output();
    add(0, "a", apply(bias, {read("x"), read("w")}));
    add(0, "b", apply(bias, {read("x"), apply(reverse, {read("w")})}));
    add(0, "c", apply(reverse, {read("big")}));
    run_well(options(20, n_threads));
    const Array reversed = fake::apply(reverse, {&w});
    EXPECT_EQ(written(0, "a"), fake::apply(bias, {&x, &w}).bytes) << n_threads;
    EXPECT_EQ(written(0, "b"), fake::apply(bias, {&x, &reversed}).bytes) << n_threads;
    EXPECT_EQ(written(0, "c"), fake::apply(reverse, {&big}).bytes) << n_threads;
    const uint64_t n_times = n_threads == 1 ? 1 : 2 * n_threads;  // again where `big` came in between
    EXPECT_GT(plan_->batches[0].n_tiles, n_times);
    EXPECT_LE(bytes_read(), x.bytes.size() + big.bytes.size() + n_times * w.bytes.size());
  }
}

// What casts did to an argument that is needed whole is told of each row that has it, and once, whoever made it again.
TEST_F(Run, CastsOfWholeArgumentsAreCounted) {
  plain("x", CKPT_F32, {4096, 1000});
  Array w = random_array(&random_, CKPT_F32, {3000});
  const float large = 1e6f, small = 1e-30f;
  memcpy(&w.bytes[0], &large, sizeof large);
  memcpy(&w.bytes[4], &small, sizeof small);
  store_.add_plain("w", w);
  open();
  output();
  ckpt_expr *narrow = read("w"), *x = read("x");
  ASSERT_EQ(ckpt_expr_cast(&narrow, plan_, narrow, CKPT_F16, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_cast(&narrow, plan_, narrow, CKPT_F32, &err_), CKPT_OK);
  add(0, "a", apply(bias, {x, narrow}));
  add(0, "b", apply(bias, {x, narrow}));
  plan_->allow_overflow = true;
  run_well(options(20, 3));
  ASSERT_EQ(plan_->n_batches, 1u);
  EXPECT_EQ(plan_->batches[0].n_wholes, 1u);
  EXPECT_GT(plan_->batches[0].n_tiles, 2u);
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(ckpt_row_stats(&plan_->rows[i]).n_overflow, 1u) << plan_->rows[i].name;
    EXPECT_GE(ckpt_row_stats(&plan_->rows[i]).n_underflow, 1u) << plan_->rows[i].name;
    EXPECT_EQ(ckpt_row_stats(&plan_->rows[i]).largest, 1e6) << plan_->rows[i].name;
  }
}

TEST_F(Run, StackingExpertsReadsEachOnce) {
  std::vector<Array> experts;
  for (int i = 0; i < 8; i++) experts.push_back(plain("e" + std::to_string(i), CKPT_F32, {300, 400}));
  open();
  output();
  std::vector<ckpt_expr *> parts;
  uint64_t shape[] = {1, 300, 400};
  for (int i = 0; i < 8; i++) {
    ckpt_expr *one = nullptr;
    ASSERT_EQ(ckpt_expr_reshape(&one, plan_, read("e" + std::to_string(i)), 3, shape, &err_), CKPT_OK);
    parts.push_back(one);
  }
  add(0, "stack", concat(parts, 0));
  run_well(options());
  EXPECT_EQ(bytes_read(), 8 * experts[0].bytes.size());
  for (Array &e : experts) e.shape = {1, 300, 400};
  EXPECT_EQ(written(0, "stack"), fake::concat(experts, 0).bytes);
}

TEST_F(Run, AColumnSliceReadsOnlyItsThird) {
  const Array &x = plain("x", CKPT_F32, {60, 3 * 30000});  // runs far apart: no window reads across
  open();
  output();
  add(0, "y", slice(read("x"), 1, 30000, 30000));
  run_well(options());
  EXPECT_EQ(bytes_read(), x.bytes.size() / 3);
}

// Reductions of a tensor and a copy of it: one read too.
TEST_F(Run, AReductionSharesTheReadOfACopy) {
  const Array &x = plain("x", CKPT_F32, {700, 800});
  open();
  output();
  const void *value = nullptr;
  ASSERT_EQ(ckpt_plan_reduce(plan_, "norm", apply(sum_sq, {read("x")}), &value, &err_), CKPT_OK);
  add(0, "x", read("x"));
  run_well(options());
  EXPECT_EQ(bytes_read(), x.bytes.size());
  double wanted = reduce_sum_sq(x);
  EXPECT_EQ(memcmp(value, &wanted, 8), 0);
}

// ---- order ----------------------------------------------------------------------------------------------------------

// A part of a lane's tensor that a raw output reads first: the lane's bytes still come in their order.
TEST_F(Run, ALaneKeepsItsOrderWhoeverReadsFirst) {
  const Array &a = plain("a", CKPT_F32, {50, 20}), &b = plain("b", CKPT_F32, {30, 20});
  open();
  output(), output(3);
  add(0, "b", read("b"));
  for (const char *name : {"p", "q"}) add(1, name, read("a"));  // the third tensor is the encoded one
  add(1, "joined", concat({read("a"), read("b"), read("a")}, 0));
  run_well(options());
  EXPECT_EQ(written(1, "joined"), fake::concat({a, b, a}, 0).bytes);
}

// The lane's value is that of everything, computed before its first byte.
TEST_F(Run, ALaneWaitsForItsValues) {
  const Array &x = plain("x", CKPT_F32, {900, 700}), &y = plain("y", CKPT_F32, {40, 70});
  open();
  output(3);
  add(0, "p", read("y")), add(0, "q", read("x"));
  ckpt_expr *normed = apply(divide, {read("x")});
  ASSERT_EQ(ckpt_expr_add_prologue(normed, plan_, apply(sum_sq, {read("x")}), &err_), CKPT_OK);
  add(0, "normed", normed);
  run_well(options(0, 4));
  double sum = reduce_sum_sq(x);
  EXPECT_EQ(written(0, "normed"), fake::apply(divide, {&x}, &sum).bytes);
  EXPECT_EQ(written(0, "p"), y.bytes);
}

// Values of several tensors, in an order that is not that of the file, one behind another.
TEST_F(Run, PrologueBehindPrologueInAnyOrderOfFiles) {
  std::vector<Array> xs;
  for (int i = 0; i < 6; i++) xs.push_back(plain("x" + std::to_string(i), CKPT_F32, {100, 50}));
  open();
  output();
  ckpt_expr *node = read("x0");
  Array wanted = xs[0];
  for (int i : {5, 2, 4, 1, 3}) {
    ckpt_expr *reduction = apply(sum_sq, {apply(fake::add, {node, read("x" + std::to_string(i))})});
    Array sum = fake::apply(fake::add, {&wanted, &xs[static_cast<size_t>(i)]});
    double value = reduce_sum_sq(sum);
    node = apply(divide, {node});
    ASSERT_EQ(ckpt_expr_add_prologue(node, plan_, reduction, &err_), CKPT_OK);
    wanted = fake::apply(divide, {&wanted}, &value);
  }
  add(0, "y", node);
  run_well(options(0, 3));
  EXPECT_EQ(written(0, "y"), wanted.bytes);
}

// Two values of one row: it follows the later one, also where offsets differ in more than their lowest byte.
TEST_F(Run, ARowFollowsTheLastOfItsValues) {
  const Array &x = plain("x", CKPT_F32, {60});
  plain("pad", CKPT_U8, {11});
  const Array &b = plain("b", CKPT_F32, {1});  // at 251
  plain("gap", CKPT_U8, {1});
  const Array &a = plain("a", CKPT_F32, {300, 7});  // at 256
  open();
  output();
  std::vector<ckpt_expr *> parts;
  for (const char *name : {"a", "b"}) {
    parts.push_back(apply(divide, {read("x")}));
    ASSERT_EQ(ckpt_expr_add_prologue(parts.back(), plan_, apply(sum_sq, {read(name)}), &err_), CKPT_OK);
  }
  add(0, "y", apply(fake::add, parts));
  run_well(options(0, 3));
  double sum_a = reduce_sum_sq(a), sum_b = reduce_sum_sq(b);
  Array by_a = fake::apply(divide, {&x}, &sum_a), by_b = fake::apply(divide, {&x}, &sum_b);
  EXPECT_EQ(written(0, "y"), fake::apply(fake::add, {&by_a, &by_b}).bytes);
}

// Rows that read the same but need values of different places: one read must not put one before its value.
TEST_F(Run, RowsOfOneReadWithValuesOfDifferentPlaces) {
  const Array &x = plain("x", CKPT_F32, {60}), &z = plain("z", CKPT_F32, {300, 7});
  open();
  output();
  for (const char *name : {"x", "z"}) {
    ckpt_expr *y = apply(divide, {read("x")});
    ASSERT_EQ(ckpt_expr_add_prologue(y, plan_, apply(sum_sq, {read(name)}), &err_), CKPT_OK);
    add(0, std::string("by ") + name, y);
  }
  run_well(options(0, 3));
  double sum_x = reduce_sum_sq(x), sum_z = reduce_sum_sq(z);
  EXPECT_EQ(written(0, "by x"), fake::apply(divide, {&x}, &sum_x).bytes);
  EXPECT_EQ(written(0, "by z"), fake::apply(divide, {&x}, &sum_z).bytes);
}

// Rows that read the same places are hashed once, and those that are written nowhere are read once; what only begins
// there, or is of another shape, is not the same.
TEST_F(Run, TwinsAreHashedOnce) {
  static std::atomic<uint64_t> n_hashed;
  ckpt_backend counting = ckpt_backend_cpu;
  counting.hash_leaves = [](const uint8_t *const *, size_t n, uint8_t(*)[32]) {
    n_hashed += n;
    return size_t{0};
  };
  const uint64_t n_leaves = 6, n = n_leaves * CKPT_LEAF_BYTES;
  for (uint32_t world : {1u, 2u}) {
    SetUp();
    for (const char *name : {"master", "prefix", "shape", "twice", "weight"}) plain(name, CKPT_U8, {n});
    open();
    const ckpt_tensor *master = ckpt_index_find(index_.get(), "master");
    const uint64_t shape[] = {2, n / 2};
    ckpt_extent halves[2][2];
    for (uint32_t i = 0; i < index_->n_tensors; i++) {  // of halves: one as it is, the other half twice
      ckpt_tensor *tensor = &index_->tensors[i];
      const std::string name = tensor->name;
      if (name == "weight" || name == "shape") tensor->extents = master->extents;
      if (name == "shape") tensor->rank = 2, tensor->shape = shape;
      ckpt_extent *own = name == "prefix" ? halves[0] : halves[1];
      if (name != "prefix" && name != "twice") continue;
      own[0] = own[1] = master->extents[0];
      own[0].n_stored = own[1].n_stored = own[0].count = own[1].count = n / 2;
      own[1].start = n / 2;
      if (name == "prefix") own[1].offset += n / 2;
      tensor->extents = own, tensor->n_extents = 2;
    }
    output(0, world);
    const char *names[] = {"weight", "master", "shape", "prefix", "twice"};
    add(CKPT_NO_SINK, "weight", read("weight")), add(0, "master", read("master"));
    add(CKPT_NO_SINK, "shape", read("shape"));
    add(CKPT_NO_SINK, "prefix", read("prefix")), add(CKPT_NO_SINK, "twice", read("twice"));
    ckpt_run_options o = options();
    o.backend = &counting;
    n_hashed = 0;
    run_well(o);
    EXPECT_EQ(n_hashed, 4 * n_leaves);
    EXPECT_EQ(bytes_read(), 4 * n);
    EXPECT_EQ(plan_->rows[0].same_as, 1u);
    for (uint32_t i = 0; i < 5; i++) {
      Array array{CKPT_U8, {n}, read_all(index_.get(), ckpt_index_find(index_.get(), names[i]))};
      if (i == 2) array.shape = {2, n / 2};
      ckpt_digest wanted = digest_of(array);
      EXPECT_EQ(memcmp(&plan_->rows[i].digest, &wanted, sizeof wanted), 0) << names[i];
    }
    EXPECT_EQ(written(0, "master"), read_all(index_.get(), master));
  }
}

// Digests of rows that tiles cut and for which there is no buffer: read back, blocks of 3 bytes and zstd frames too.
TEST_F(Run, RowsAreReadBackForTheirDigests) {
  std::vector<Array> xs = {plain("a", CKPT_F6_E2M3, {1024, 2048}), plain("b", CKPT_F32, {600, 700}),
                           plain("c", CKPT_BF16, {900, 1000})};
  for (const char *name : {"d", "e", "f"}) xs.push_back(plain(name, CKPT_U8, {1500000}));
  open();
  output(3, 2);
  for (const char *name : {"a", "b", "c", "d", "e", "f"}) add(0, name, read(name));  // whole, in boxes, encoded, ...
  ckpt_run_options o = options();
  ASSERT_EQ(ckpt_plan_check(plan_, &o, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
  plan_->n_leaf_slots = 0;
  for (uint32_t b = 0; b < plan_->n_batches; b++) {
    ckpt_batch *batch = &plan_->batches[b];
    batch->tile_rows = batch->n_rows / 7 + 1;
    batch->n_tiles = (batch->n_rows + batch->tile_rows - 1) / batch->tile_rows;
  }
  run_well(o);
  for (uint32_t i = 0; i < 6; i++) {
    ckpt_digest wanted = digest_of(xs[i]);
    EXPECT_EQ(memcmp(&plan_->rows[i].digest, &wanted, sizeof wanted), 0) << i;
  }
}

// A transposition that does not fit is cut into blocks: runs of some kilobytes on both sides, every byte read once.
TEST_F(Run, ATransposeIsCutIntoBlocks) {
  struct {
    Shape shape;
    std::vector<uint32_t> order;
  } const cases[] = {{{3000, 2500}, {1, 0}}, {{2, 2000, 1700}, {0, 2, 1}}, {{1500, 3, 1700}, {2, 1, 0}}};
  for (const auto &test : cases) {
    for (ckpt_dtype to : {CKPT_F32, CKPT_BF16}) {
      if (to == CKPT_BF16 && test.shape.size() > 2 && getenv("CKPT_TEST_FULL") == nullptr) continue;
      SetUp();
      const Array x = plain("x", CKPT_F32, test.shape);
      open();
      output();
      ckpt_expr *expr = read("x");
      ASSERT_EQ(ckpt_expr_permute(&expr, plan_, expr, test.order.data(), &err_), CKPT_OK);
      ASSERT_EQ(ckpt_expr_cast(&expr, plan_, expr, to, &err_), CKPT_OK);
      add(0, "x", expr);
      plan_->allow_overflow = true;
      ckpt_run_options o = options(16, 1);
      ASSERT_EQ(ckpt_plan_check(plan_, &o, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
      const ckpt_batch *batch = &plan_->batches[0];
      ASSERT_NE(batch->block, nullptr);
      EXPECT_GT(batch->n_tiles, 1u);
      EXPECT_GE(batch->block->tile_rows * 4, 1500u);
      EXPECT_GE(batch->block->tile_cols * 4, 1500u);
      run_well(o);
      Array wanted = cast(permute(x, test.order), to);
      EXPECT_EQ(written(0, "x"), wanted.bytes);
      ckpt_digest digest = digest_of(wanted);
      EXPECT_EQ(memcmp(&plan_->rows[0].digest, &digest, sizeof digest), 0);
      EXPECT_LE(bytes_read(), plan_->n_bytes_fetched);  // less by the gaps at which windows end
      EXPECT_GT(bytes_read(), plan_->n_bytes_fetched * 95 / 100);
      EXPECT_LT(plan_->n_bytes_fetched, x.bytes.size() * 2);
    }
  }
}

// Where an element stands matters with a whole argument: slices and concats must not move it.
TEST_F(Run, StructureDoesNotMoveWhatDependsOnItsPlace) {
  const Array &x = plain("x", CKPT_F32, {40, 5}), &w = plain("w", CKPT_F32, {7}), &y = plain("y", CKPT_F32, {13, 5});
  open();
  output();
  add(0, "sliced", slice(apply(bias, {read("x"), read("w")}), 0, 9, 20));
  add(0, "joined", apply(bias, {concat({read("y"), read("x")}, 0), read("w")}));
  run_well(options());
  EXPECT_EQ(written(0, "sliced"), fake::slice(fake::apply(bias, {&x, &w}), 0, 9, 20).bytes);
  Array joined = fake::concat({y, x}, 0);
  EXPECT_EQ(written(0, "joined"), fake::apply(bias, {&joined, &w}).bytes);
}

// Parts without elements neither confuse the order nor send lowering round in circles.
TEST_F(Run, EmptyPartsOfConcats) {
  const Array &x = plain("x", CKPT_F32, {4, 5}), &w = plain("none", CKPT_F32, {0, 5});
  plain("thin", CKPT_F32, {4, 0}), plain("deep", CKPT_F32, {4, 3, 0});
  const Array &y = plain("y", CKPT_F32, {4, 5, 3});
  open();
  output();
  ckpt_expr *both = concat({read("none"), read("x"), read("none")}, 0);
  uint32_t turned[] = {1, 0};
  ckpt_expr *thin = nullptr;
  ASSERT_EQ(ckpt_expr_permute(&thin, plan_, read("thin"), turned, &err_), CKPT_OK);
  thin = concat({thin, slice(read("thin"), 0, 0, 0)}, 1);
  add(0, "thin", thin);
  ASSERT_EQ(ckpt_expr_permute(&thin, plan_, read("none"), turned, &err_), CKPT_OK);
  ckpt_expr *turned_x = nullptr;
  ASSERT_EQ(ckpt_expr_permute(&turned_x, plan_, read("x"), turned, &err_), CKPT_OK);
  add(0, "turned", concat({thin, turned_x}, 1));
  uint32_t inner[] = {0, 2, 1};
  ckpt_expr *deep = nullptr;
  ASSERT_EQ(ckpt_expr_permute(&deep, plan_, read("deep"), inner, &err_), CKPT_OK);
  add(0, "deep", concat({deep, read("y")}, 1));
  add(0, "sum", apply(fake::add, {both, concat({read("x"), read("none")}, 0)}));
  add(0, "rows", concat({apply(row_sum, {read("thin")}), read("x")}, 1));
  add(0, "nothing", concat({read("none"), read("none")}, 0));
  ckpt_expr *over_nothing = apply(divide, {read("x")});
  ASSERT_EQ(ckpt_expr_add_prologue(over_nothing, plan_, apply(sum_sq, {read("none")}), &err_), CKPT_OK);
  add(0, "over nothing", over_nothing);
  run_well(options());
  EXPECT_EQ(written(0, "sum"), fake::apply(fake::add, {&x, &x}).bytes);
  EXPECT_EQ(written(0, "rows"), x.bytes);
  EXPECT_EQ(written(0, "deep"), y.bytes);
  EXPECT_EQ(written(0, "turned"), fake::permute(x, {1, 0}).bytes);
  EXPECT_EQ(written(0, "over nothing"), x.bytes);
  EXPECT_EQ(written(0, "nothing"), w.bytes);
}

TEST_F(Run, ASliceThatCutsBlocksOfWhatItIsCastFrom) {
  const Array &x = plain("x", CKPT_F4_E2M1, {6, 8});
  open();
  output();
  ckpt_expr *wide = nullptr;
  ASSERT_EQ(ckpt_expr_cast(&wide, plan_, read("x"), CKPT_F32, &err_), CKPT_OK);
  add(0, "y", slice(wide, 1, 3, 3));
  run_well(options());
  EXPECT_EQ(written(0, "y"), fake::slice(cast(x, CKPT_F32), 1, 3, 3).bytes);
}

TEST_F(Run, PartOfMemoryIsNotItsBeginning) {
  plain("x", CKPT_F32, {2, 3});
  open();
  output();
  Array memory = random_array(&random_, CKPT_F32, {5, 3});
  ckpt_expr *m = nullptr;
  ASSERT_EQ(ckpt_expr_memory(&m, plan_, CKPT_F32, 2, memory.shape.data(), memory.bytes.data(), &err_), CKPT_OK);
  add(0, "y", slice(m, 0, 3, 2));
  run_well(options());
  EXPECT_EQ(written(0, "y"), fake::slice(memory, 0, 3, 2).bytes);
}

// ---- reductions -----------------------------------------------------------------------------------------------------

TEST_F(Run, ReductionsAreTheSameBitForBit) {
  plain("x", CKPT_F32, {1300, 777}), plain("y", CKPT_F32, {1300, 777});
  open();
  std::vector<std::vector<uint8_t>> first;
  for (int round = 0; round < 6; round++) {
    ckpt_plan_free(plan_);
    ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
    ckpt_expr *x = nullptr, *y = nullptr;
    ASSERT_EQ(ckpt_expr_cast(&x, plan_, read("x"), CKPT_F64, &err_), CKPT_OK);
    ASSERT_EQ(ckpt_expr_cast(&y, plan_, read("y"), CKPT_F64, &err_), CKPT_OK);
    static const ckpt_tolerance tolerance = {0, 0.5};
    const void *values[3];
    ASSERT_EQ(ckpt_plan_reduce(plan_, "stats", apply(ckpt_op_stats, {x}), &values[0], &err_), CKPT_OK);
    ASSERT_EQ(ckpt_plan_reduce(plan_, "compare", apply(ckpt_op_compare, {x, y}, &tolerance), &values[1], &err_),
              CKPT_OK);
    ASSERT_EQ(ckpt_plan_reduce(plan_, "sum", apply(sum_sq, {read("x")}), &values[2], &err_), CKPT_OK);
    ckpt_run_options o =
        options(round == 0 ? 200 : 4 + 7 * static_cast<uint64_t>(round), static_cast<uint32_t>(round + 1));
    ASSERT_EQ(ckpt_plan_check(plan_, &o, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
    for (uint32_t b = 0; b < plan_->n_batches && round > 2; b++) {  // as small as they may be
      ckpt_batch *batch = &plan_->batches[b];
      uint64_t per_row = 1300 * 777 / batch->n_rows;
      batch->tile_rows = CKPT_REDUCE_ELEMENTS / per_row;
      ASSERT_EQ(CKPT_REDUCE_ELEMENTS % per_row, 0u);
      batch->n_tiles = (batch->n_rows + batch->tile_rows - 1) / batch->tile_rows;
    }
    run_well(o);
    size_t sizes[] = {ckpt_op_stats.value_bytes, ckpt_op_compare.value_bytes, sum_sq.value_bytes};
    for (int i = 0; i < 3; i++) {
      const uint8_t *bytes = static_cast<const uint8_t *>(values[i]);
      std::vector<uint8_t> value(bytes, bytes + sizes[i]);
      if (round == 0)
        first.push_back(value);
      else
        EXPECT_EQ(value, first[static_cast<size_t>(i)]) << "reduction " << i << " round " << round;
    }
  }
}

// A scale of zero hides codes, but not from a comparison of bits.
TEST_F(Run, BlocksDifferInBitsWhereTheirBytesDo) {
  open();
  const uint64_t shape[] = {4, 32};
  std::vector<uint8_t> a(4 * 18, 0), b;
  a[18 + 1] = 0x3C;  // the second block's scale is 1
  b = a;
  b[5] = 0x21;       // codes of the first, under its zero
  b[18 + 2] = 0x05;  // one of the second
  ckpt_expr *x = nullptr, *y = nullptr;
  ASSERT_EQ(ckpt_expr_memory(&x, plan_, CKPT_Q4_0, 2, shape, a.data(), &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_memory(&y, plan_, CKPT_Q4_0, 2, shape, b.data(), &err_), CKPT_OK);
  static const ckpt_tolerance tolerance = {0, 0};
  const void *value = nullptr;
  ASSERT_EQ(ckpt_plan_reduce(plan_, "compare", apply(ckpt_op_compare, {x, y}, &tolerance), &value, &err_), CKPT_OK);
  ckpt_run_options o = options(200, 1);
  run_well(o);
  const ckpt_difference *d = static_cast<const ckpt_difference *>(value);
  EXPECT_EQ(d->n_different, 1u);
  EXPECT_EQ(d->first, 32u);
  EXPECT_EQ(d->max_abs, 5.0);
  EXPECT_EQ(d->n_bits, 2u);
  EXPECT_EQ(d->first_bits, 0u);
}

// A concat of 4,000 parts, of which each row sees the end of one and the beginning of the next.
TEST_F(Run, ManySlicesOfAWideConcat) {
  const uint32_t n = 4000;
  const Array &x = plain("x", CKPT_F32, {4 * n});
  open();
  std::vector<ckpt_expr *> parts;
  for (uint32_t i = 0; i < n; i++) parts.push_back(slice(read("x"), 0, 4 * i, 4));
  ckpt_expr *wide = nullptr;
  ASSERT_EQ(ckpt_expr_cast(&wide, plan_, concat(parts, 0), CKPT_F64, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_cast(&wide, plan_, wide, CKPT_F32, &err_), CKPT_OK);
  output();
  for (uint32_t i = 0; i < n; i++) add(0, "y" + std::to_string(i), slice(wide, 0, 4 * i + 1, i + 1 == n ? 0 : 4));
  ckpt_run_options o = options(32, 1);
  ASSERT_EQ(ckpt_plan_check(plan_, &o, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
  EXPECT_LE(plan_->work.n_taken, n * UINT64_C(8192));
  run_well(o);
  for (uint32_t i : {0u, 1u, 1999u, n - 2})
    EXPECT_EQ(written(0, "y" + std::to_string(i)), fake::slice(x, 0, 4 * i + 1, 4).bytes);
}

// 64 compressed columns take turns in every tile: each is read and decoded forwards, once.
TEST_F(Run, CompressedColumnsAreDecodedOnce) {
  const Array &x = store_.add_columns("x", random_array(&random_, CKPT_U32, {512, 1024}), 64).array;
  open();
  plan_->wants_digests = false;
  add(output(), "x", read("x"));
  ckpt_run_options o = options(1024);
  ASSERT_EQ(ckpt_plan_check(plan_, &o, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
  ASSERT_EQ(plan_->n_batches, 1u);
  ckpt_batch *batch = &plan_->batches[0];
  batch->n_tiles = 32;
  batch->tile_rows = batch->n_rows / 32;
  uint64_t before = bytes_read();
  run_well(o);
  EXPECT_EQ(written(0, "x"), x.bytes);
  EXPECT_LE(bytes_read() - before, x.bytes.size() + x.bytes.size() / 8);
}

}  // namespace
