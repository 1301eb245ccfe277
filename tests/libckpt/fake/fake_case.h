// Random plans over random indexes, with what has to come out of them by a plain oracle in memory: what the property
// tests run with any memory, threads, tiles and ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "tests/libckpt/fake/fake_format.h"
#include "tests/libckpt/fake/fake_ops.h"

namespace fake {

// A node and what it has to be.
struct Value {
  ckpt_expr *expr;
  Array array;
};

struct Row {
  std::string name;
  uint32_t sink;
  uint32_t number;  // in the plan
  Array array;
};

struct Reduction {
  const void *got;
  double wanted;
};

// One random case: an index, a plan over it, and what has to come out. The same seed gives the same case.
class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed), store_(&random_) {
    bool sequential = random_.chance(50);
    uint64_t n_tensors = random_.between(1, 6);
    for (uint64_t i = 0; i < n_tensors; i++) {
      ckpt_dtype dtype = random_.chance(50) ? CKPT_F32 : random_dtype(&random_);
      uint64_t most = random_.chance(8) ? 300000 : 4000;
      store_.add("t" + std::to_string(i), random_array(&random_, dtype, random_shape(&random_, dtype, 5, most)),
                 sequential);
    }
    index_ = store_.build(&err_);
    EXPECT_TRUE(index_) << text_of(err_);
  }
  ~Case() { ckpt_plan_free(plan_); }

  // Builds the plan anew: the same rows for each call.
  void build(uint64_t seed, Faults *faults = nullptr) {
    clear();
    sinks_[0] = std::make_shared<MemorySink>();
    sinks_[1] = std::make_shared<MemorySink>();
    build_into(seed, faults);
  }

  // The same, into what another rank's case writes.
  void build_like(const Case &other, uint64_t seed, Faults *faults = nullptr) {
    clear();
    sinks_[0] = other.sinks_[0];
    sinks_[1] = other.sinks_[1];
    build_into(seed, faults);
  }

  // Makes every tile small, as a plan with little memory and huge tensors has them.
  void shrink_tiles(Random *random) {
    for (uint32_t b = 0; b < plan_->n_batches; b++) {
      ckpt_batch *batch = &plan_->batches[b];
      ckpt_block found;
      if (batch->block == nullptr && random->chance(70) && ckpt_block_find(plan_, batch, &found)) {
        blocks_.push_back(found);  // as if rows of the output were read in runs that are too short
        batch->block = &blocks_.back();
        batch->n_rows = found.n_outer * found.n_rows * found.n_cols;
        batch->tile_rows = std::min<uint64_t>(batch->tile_rows, found.n_rows * found.n_cols);
        n_blocks_++;
      }
      if (batch->block != nullptr) {
        batch->n_tiles = ckpt_block_cut(batch->block, random->between(1, batch->tile_rows));
        batch->tile_rows = batch->block->tile_rows * batch->block->tile_cols;
        continue;
      }
      uint64_t must = 1;
      for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan_->pieces[p].next)
        if (plan_->pieces[p].expr->op->rule == CKPT_RULE_REDUCE)
          while (plan_->pieces[p].n_elements / batch->n_rows * must % CKPT_REDUCE_ELEMENTS != 0) must *= 2;
      uint64_t n = random->between(batch->n_rows / 40 + 1, batch->n_rows) / must * must;
      if (n == 0) n = must;
      if (n >= batch->tile_rows) continue;
      batch->tile_rows = n;
      batch->n_tiles = (batch->n_rows + n - 1) / n;
    }
  }

  // What came out of the run is what the oracle says; of a rank: of the run of all.
  void check_results() {
    for (int i = 0; i < 2; i++) {
      EXPECT_TRUE(sinks_[i]->is_published);
      EXPECT_EQ(check_checksums(sinks_[i]->files), "");
      opened_[i] = nullptr;
      err_ = {};
      opened_[i] = open_fake(sinks_[i]->files, &err_);
      ASSERT_TRUE(opened_[i]) << text_of(err_);
    }
    for (const Row &row : rows_) {
      SCOPED_TRACE(row.name);
      ckpt_digest wanted = digest_of(row.array);
      bool is_digested = plan_->rows[row.number].wants_digest;
      EXPECT_TRUE(!is_digested || memcmp(&plan_->rows[row.number].digest, &wanted, sizeof wanted) == 0)
          << "digest of " << describe(row);
      if (row.sink == CKPT_NO_SINK) continue;
      const ckpt_tensor *tensor = ckpt_index_find(opened_[row.sink].get(), row.name.c_str());
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(read_all(opened_[row.sink].get(), tensor), row.array.bytes) << describe(row);
    }
    for (const Reduction &reduction : reductions_) EXPECT_EQ(memcmp(reduction.got, &reduction.wanted, 8), 0);
  }

  std::string describe(const Row &row) {
    struct Lines {
      std::string text, name;
    } lines = {"", row.name + " "};
    (void)ckpt_plan_print(
        plan_,
        [](void *arg, const char *line, const char *) {
          Lines *l = static_cast<Lines *>(arg);
          if (std::string(line).rfind(l->name, 0) == 0) l->text = line;
        },
        &lines, nullptr);
    return lines.text;
  }

  ckpt_plan *plan() { return plan_; }
  uint64_t n_blocks() const { return n_blocks_; }
  ckpt_index *index() { return index_.get(); }
  const Store &store() { return store_; }
  MemorySink *sink(int i) { return sinks_[i].get(); }

 private:
  void clear() {  // the plan closes its sinks
    ckpt_plan_free(plan_);
    plan_ = nullptr;
    memory_.clear();
    rows_.clear();
    reductions_.clear();
  }

  void build_into(uint64_t seed, Faults *faults) {
    random_ = Random(seed * 1000003);
    ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
    plan_->allow_overflow = true;
    add_output(plan_, sinks_[0].get(), &format, static_cast<uint32_t>(random_.between(1, 4)), 0, faults);
    add_output(plan_, sinks_[1].get(), &format, static_cast<uint32_t>(random_.between(1, 4)), 3, faults);
    uint64_t n_exprs = random_.between(1, 6);
    for (uint64_t i = 0; i < n_exprs; i++) add_rows("r" + std::to_string(i));
  }

  Value stored() {
    const Stored &stored = store_.tensors()[random_.below(store_.tensors().size())];
    Value value = {nullptr, stored.array};
    EXPECT_EQ(
        ckpt_expr_read(&value.expr, plan_, index_.get(), ckpt_index_find(index_.get(), stored.name.c_str()), &err_),
        CKPT_OK);
    return value;
  }

  // A tensor with this shape: stored, if there is one, or the caller's memory.
  Value like(ckpt_dtype dtype, const Shape &shape) {
    for (const Stored &stored : store_.tensors()) {
      if (stored.array.dtype != dtype || stored.array.shape != shape || random_.chance(30)) continue;
      Value value = {nullptr, stored.array};
      EXPECT_EQ(
          ckpt_expr_read(&value.expr, plan_, index_.get(), ckpt_index_find(index_.get(), stored.name.c_str()), &err_),
          CKPT_OK);
      return value;
    }
    memory_.push_back(random_array(&random_, dtype, shape));
    Value value = {nullptr, memory_.back()};
    EXPECT_EQ(ckpt_expr_memory(&value.expr, plan_, dtype, static_cast<uint32_t>(shape.size()), shape.data(),
                               memory_.back().bytes.data(), &err_),
              CKPT_OK);
    return value;
  }

  Value sliced(Value x) {
    if (x.array.shape.empty()) return x;
    uint32_t axis = static_cast<uint32_t>(random_.below(x.array.shape.size()));
    uint64_t unit = axis + 1 == x.array.shape.size() ? ckpt_dtype_get(x.array.dtype)->block_elements : 1;
    uint64_t n = x.array.shape[axis] / unit;
    if (n * unit != x.array.shape[axis]) return x;
    uint64_t start = random_.between(0, n == 0 ? 0 : n - 1), count = random_.between(n == 0 ? 0 : 1, n - start);
    EXPECT_EQ(ckpt_expr_slice(&x.expr, plan_, x.expr, axis, start * unit, count * unit, &err_), CKPT_OK);
    x.array = slice(x.array, axis, start * unit, count * unit);
    return x;
  }

  Value permuted(Value x) {
    std::vector<uint32_t> order(x.array.shape.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<uint32_t>(i);
    size_t n = order.size();
    if (ckpt_dtype_get(x.array.dtype)->block_elements > 1 && n != 0) n--;
    for (size_t i = n; i > 1; i--) std::swap(order[i - 1], order[random_.below(i)]);
    EXPECT_EQ(ckpt_expr_permute(&x.expr, plan_, x.expr, order.data(), &err_), CKPT_OK);
    x.array = permute(x.array, order);
    return x;
  }

  Value reshaped(Value x) {
    uint64_t block = ckpt_dtype_get(x.array.dtype)->block_elements;
    Shape shape = x.array.shape;
    if (shape.empty()) {
      shape = {1};
    } else if (shape.size() > 1 && random_.chance(50)) {  // two axes become one
      size_t axis = random_.below(shape.size() - 1);
      shape[axis] *= shape[axis + 1];
      shape.erase(shape.begin() + static_cast<ptrdiff_t>(axis) + 1);
    } else if (shape.size() < 6) {  // one becomes two
      size_t axis = random_.below(shape.size());
      uint64_t unit = axis + 1 == shape.size() ? block : 1, n = shape[axis] / unit, divisor = 1;
      for (uint64_t d : {2, 3, 5, 7})
        if (n % d == 0 && n != 0 && random_.chance(60)) divisor = d;
      shape[axis] = n / divisor * unit;
      shape.insert(shape.begin() + static_cast<ptrdiff_t>(axis), divisor);
    }
    if (product(shape) != x.array.n_elements()) return x;
    if (random_.chance(20) && !shape.empty()) shape.insert(shape.begin(), 1);
    EXPECT_EQ(ckpt_expr_reshape(&x.expr, plan_, x.expr, static_cast<uint32_t>(shape.size()), shape.data(), &err_),
              CKPT_OK);
    x.array = reshape(x.array, shape);
    return x;
  }

  Value concatenated(Value x, int depth) {
    if (x.array.shape.empty()) return x;
    uint32_t axis = static_cast<uint32_t>(random_.chance(60) ? 0 : random_.below(x.array.shape.size()));
    std::vector<Value> parts = {x};
    for (uint64_t n = random_.between(1, 3); n > 0; n--) {
      Shape shape = x.array.shape;
      if (ckpt_dtype_get(x.array.dtype)->block_elements == 1 || axis + 1 < shape.size())
        shape[axis] = random_.between(random_.chance(20) ? 0 : 1, 5);
      Value part = random_.chance(40) && depth > 1 ? x : like(x.array.dtype, shape);
      parts.insert(random_.chance(50) ? parts.begin() : parts.end(), part);
    }
    std::vector<ckpt_expr *> exprs;
    std::vector<Array> arrays;
    for (const Value &part : parts) exprs.push_back(part.expr), arrays.push_back(part.array);
    EXPECT_EQ(ckpt_expr_concat(&x.expr, plan_, exprs.data(), static_cast<uint32_t>(exprs.size()), axis, &err_),
              CKPT_OK);
    x.array = concat(arrays, axis);
    return x;
  }

  Value casted(Value x) {
    ckpt_dtype to = random_.chance(50) ? CKPT_F32 : random_dtype(&random_);
    uint64_t block = ckpt_dtype_get(to)->block_elements;
    if (!ckpt_backend_reference.can_cast(x.array.dtype, to) ||
        (block > 1 && (x.array.shape.empty() || x.array.shape.back() % block != 0)))
      return x;
    EXPECT_EQ(ckpt_expr_cast(&x.expr, plan_, x.expr, to, &err_), CKPT_OK);
    x.array = cast(x.array, to);
    return x;
  }

  void apply_op(Value *x, const ckpt_op &op, const std::vector<Value> &args, const double *value = nullptr) {
    std::vector<ckpt_expr *> exprs;
    std::vector<const Array *> arrays;
    for (const Value &a : args) exprs.push_back(a.expr), arrays.push_back(&a.array);
    EXPECT_EQ(ckpt_expr_apply(&x->expr, plan_, &op, CKPT_F32, exprs.data(), static_cast<uint32_t>(exprs.size()),
                              nullptr, &err_),
              CKPT_OK);
    x->array = fake::apply(op, arrays, value);
  }

  Value computed(Value x, int depth) {
    if (x.array.dtype != CKPT_F32) {
      if (!ckpt_backend_reference.can_cast(x.array.dtype, CKPT_F32)) return x;
      EXPECT_EQ(ckpt_expr_cast(&x.expr, plan_, x.expr, CKPT_F32, &err_), CKPT_OK);
      x.array = cast(x.array, CKPT_F32);
    }
    switch (random_.below(6)) {
      case 0: apply_op(&x, add, {x, like(CKPT_F32, x.array.shape)}); break;
      case 1: apply_op(&x, row_sum, {x}); break;
      case 2: apply_op(&x, reverse, {x}); break;
      case 3: {
        Value w = depth > 1 && random_.chance(50) ? tree(depth - 1) : like(CKPT_F32, {random_.between(1, 9)});
        if (w.array.dtype != CKPT_F32 || w.array.n_elements() == 0) w = like(CKPT_F32, {3});
        apply_op(&x, bias, {x, w});
        break;
      }
      case 4: {
        Value y = random_.chance(50) ? x : permuted(x);
        ckpt_expr *reduction = nullptr;
        EXPECT_EQ(ckpt_expr_apply(&reduction, plan_, &sum_sq, CKPT_F32, &y.expr, 1, nullptr, &err_), CKPT_OK);
        double sum = reduce_sum_sq(y.array);
        apply_op(&x, divide, {x}, &sum);
        EXPECT_EQ(ckpt_expr_add_prologue(x.expr, plan_, reduction, &err_), CKPT_OK);
        break;
      }
      default: apply_op(&x, add, {x, x}); break;
    }
    return x;
  }

  Value tree(int depth) {
    Value x = stored();
    for (uint64_t n = random_.below(static_cast<uint64_t>(depth) + 1); n > 0; n--) {
      switch (random_.below(7)) {
        case 0: x = sliced(x); break;
        case 1: x = permuted(x); break;
        case 2: x = reshaped(x); break;
        case 3: x = concatenated(x, depth); break;
        case 4: x = casted(x); break;
        default: x = computed(x, depth);
      }
      if (x.array.n_elements() > 2000000) break;
    }
    return x;
  }

  void add_rows(const std::string &name) {
    Value x = tree(5);
    for (uint32_t sink : {0u, 1u, CKPT_NO_SINK}) {
      if (!random_.chance(60)) continue;
      Value y = random_.chance(30) ? sliced(x) : x;
      Row row = {name + (sink == CKPT_NO_SINK ? ".digest" : ""), sink, 0, y.array};
      EXPECT_EQ(ckpt_plan_add_like(plan_, sink, row.name.c_str(), y.expr, nullptr, &row.number, &err_), CKPT_OK)
          << text_of(err_);
      rows_.push_back(row);
    }
    if (x.array.dtype == CKPT_F32 && random_.chance(40)) {
      ckpt_expr *reduction = nullptr;
      Reduction wanted = {nullptr, reduce_sum_sq(x.array)};
      EXPECT_EQ(ckpt_expr_apply(&reduction, plan_, &sum_sq, CKPT_F32, &x.expr, 1, nullptr, &err_), CKPT_OK);
      EXPECT_EQ(ckpt_plan_reduce(plan_, name.c_str(), reduction, &wanted.got, &err_), CKPT_OK);
      reductions_.push_back(wanted);
    }
  }

  Random random_;
  Store store_;
  IndexPointer index_{nullptr, ckpt_index_free};
  ckpt_plan *plan_ = nullptr;
  std::deque<Array> memory_;
  std::deque<ckpt_block> blocks_;
  uint64_t n_blocks_ = 0;
  std::vector<Row> rows_;
  std::vector<Reduction> reductions_;
  std::shared_ptr<MemorySink> sinks_[2];
  IndexPointer opened_[2] = {IndexPointer(nullptr, ckpt_index_free), IndexPointer(nullptr, ckpt_index_free)};
  ckpt_error err_ = {};
};

}  // namespace fake
