// Block types in plans: the operations quantize and dequantize over tiles, matrices and structure; and what ckpt_read
// makes of blocks. The kernels themselves are tests/kernels/quant/quant_test.cc's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/libckpt/fake/fake_format.h"

namespace {

using namespace fake;

class Quantize : public testing::Test {
 protected:
  Quantize() : random_(first_seed()), store_(&random_, 1) {}
  void SetUp() override { ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK); }
  ~Quantize() override { ckpt_plan_free(plan_); }

  Array values(const Shape &shape) {
    Array x = zeros(CKPT_F32, shape);
    for (size_t i = 0; i < x.n_elements(); i++) {
      float value = static_cast<float>(static_cast<int>(random_.below(20001)) - 10000) * 1e-5f;
      memcpy(&x.bytes[4 * i], &value, 4);
    }
    return x;
  }
  static Array quantized(const Array &x, ckpt_dtype dtype, const Array *importance = nullptr, size_t n_matrices = 1) {
    Array out = zeros(dtype, x.shape);
    size_t n_per_row = x.shape.back(), n_rows = x.n_elements() / n_per_row / n_matrices;
    for (size_t m = 0; m < n_matrices; m++)
      ckpt_backend_reference.quantize(
          dtype, &out.bytes[out.bytes.size() / n_matrices * m],
          reinterpret_cast<const float *>(&x.bytes[x.bytes.size() / n_matrices * m]), n_rows, n_per_row,
          importance ? reinterpret_cast<const float *>(importance->bytes.data()) + m * n_per_row : nullptr);
    return out;
  }
  ckpt_expr *memory(const Array &x) {
    ckpt_expr *out = nullptr;
    EXPECT_EQ(ckpt_expr_memory(&out, plan_, x.dtype, static_cast<uint32_t>(x.shape.size()), x.shape.data(),
                               x.bytes.data(), &err_),
              CKPT_OK);
    return out;
  }
  ckpt_expr *quantize(ckpt_expr *x, ckpt_dtype dtype, ckpt_expr *importance = nullptr) {
    ckpt_expr *out = nullptr;
    EXPECT_EQ(ckpt_expr_quantize(&out, plan_, x, dtype, importance, &err_), CKPT_OK) << text_of(err_);
    return out;
  }
  void add(const std::string &name, ckpt_expr *expr) {
    EXPECT_EQ(ckpt_plan_add_like(plan_, 0, name.c_str(), expr, nullptr, nullptr, &err_), CKPT_OK) << text_of(err_);
  }
  ckpt_status run(uint64_t memory = 0) {
    ckpt_run_options o = {};
    o.struct_size = sizeof o;
    o.memory = memory;
    o.n_threads = 2;
    err_ = {};
    return ckpt_plan_run(plan_, &o, &err_);
  }
  std::vector<uint8_t> written(const std::string &name) {
    ckpt_error err = {};
    IndexPointer opened = open_fake(sink_.files, &err);
    EXPECT_TRUE(opened) << text_of(err);
    return opened ? read_all(opened.get(), ckpt_index_find(opened.get(), name.c_str())) : std::vector<uint8_t>();
  }

  Random random_;
  Store store_;
  ckpt_plan *plan_ = nullptr;
  MemorySink sink_;
  ckpt_error err_ = {};
};

TEST_F(Quantize, TilesGiveWhatTheWholeGives) {
  Array x = values({3000, 512});
  add_output(plan_, &sink_, &format, 1, 0);
  for (ckpt_dtype dtype : {CKPT_Q4_K, CKPT_Q6_K, CKPT_Q5_0}) {
    ckpt_expr *back = nullptr, *node = quantize(memory(x), dtype);
    add(ckpt_dtype_name(dtype), node);
    ASSERT_EQ(ckpt_expr_dequantize(&back, plan_, node, &err_), CKPT_OK);
    add(std::string("back ") + ckpt_dtype_name(dtype), back);
  }
  ASSERT_EQ(run(UINT64_C(24) << 20), CKPT_OK) << text_of(err_);
  for (ckpt_dtype dtype : {CKPT_Q4_K, CKPT_Q6_K, CKPT_Q5_0}) {
    Array want = quantized(x, dtype);
    EXPECT_EQ(written(ckpt_dtype_name(dtype)), want.bytes);
    std::vector<uint8_t> back(x.bytes.size());
    ckpt_backend_reference.dequantize(dtype, reinterpret_cast<float *>(back.data()), want.bytes.data(), x.n_elements());
    EXPECT_EQ(written(std::string("back ") + ckpt_dtype_name(dtype)), back);
  }
}

// Each matrix has its own weights, wherever tiles and slices begin.
TEST_F(Quantize, ImportanceBelongsToItsMatrix) {
  Array x = values({5, 70, 256}), importance = values({5, 256});
  for (size_t i = 0; i < importance.n_elements(); i++) {
    float value;
    memcpy(&value, &importance.bytes[4 * i], 4);
    value = std::fabs(value);
    memcpy(&importance.bytes[4 * i], &value, 4);
  }
  add_output(plan_, &sink_, &format, 1, 0);
  ckpt_expr *node = quantize(memory(x), CKPT_Q3_K, memory(importance)), *part = nullptr;
  add("all", node);
  ASSERT_EQ(ckpt_expr_slice(&part, plan_, node, 0, 3, 2, &err_), CKPT_OK);
  add("part", part);
  add("iq", quantize(memory(x), CKPT_IQ2_XXS, memory(importance)));
  ASSERT_EQ(run(), CKPT_OK) << text_of(err_);
  Array want = quantized(x, CKPT_Q3_K, &importance, 5);
  EXPECT_EQ(written("all"), want.bytes);
  EXPECT_EQ(written("part"), std::vector<uint8_t>(want.bytes.begin() + want.bytes.size() / 5 * 3, want.bytes.end()));
  EXPECT_EQ(written("iq"), quantized(x, CKPT_IQ2_XXS, &importance, 5).bytes);
}

// What makes no difference is not read, and may hold anything.
TEST_F(Quantize, ImportanceThatIsIgnoredIsNotRead) {
  Array x = values({70, 256}), importance = zeros(CKPT_F32, {1, 256});
  const float bad = -INFINITY;
  memcpy(importance.bytes.data(), &bad, sizeof bad);
  add_output(plan_, &sink_, &format, 1, 0);
  add("q8", quantize(memory(x), CKPT_Q8_0, memory(importance)));
  ASSERT_EQ(run(), CKPT_OK) << text_of(err_);
  EXPECT_EQ(plan_->n_bytes_read, x.bytes.size());
  EXPECT_EQ(written("q8"), quantized(x, CKPT_Q8_0).bytes);
}

// An axis before the matrices repeats them: importance goes round.
TEST_F(Quantize, ImportanceOfFourAxes) {
  Array x = values({2, 3, 40, 256}), importance = zeros(CKPT_F32, {3, 256});
  for (size_t i = 0; i < importance.n_elements(); i++) {
    const float value = std::pow(100.0f, static_cast<float>(i / 256)) * static_cast<float>(1 + i % 7 * (i / 256));
    memcpy(&importance.bytes[4 * i], &value, 4);
  }
  add_output(plan_, &sink_, &format, 1, 0);
  add("all", quantize(memory(x), CKPT_Q4_K, memory(importance)));
  ASSERT_EQ(run(2 << 20), CKPT_OK) << text_of(err_);
  std::vector<uint8_t> want;
  for (size_t half = 0; half < 2; half++) {
    Array part = zeros(CKPT_F32, {3, 40, 256});
    memcpy(part.bytes.data(), &x.bytes[part.bytes.size() * half], part.bytes.size());
    const std::vector<uint8_t> blocks = quantized(part, CKPT_Q4_K, &importance, 3).bytes;
    want.insert(want.end(), blocks.begin(), blocks.end());
  }
  EXPECT_EQ(written("all"), want);
}

// What needs no importance reads the weights where what needs it does, whichever comes first.
TEST_F(Quantize, OneReadWithImportanceAndWithout) {
  Array x = values({5, 70, 256}), importance = zeros(CKPT_F32, {5, 256});
  for (size_t i = 0; i < importance.bytes.size(); i += 4) importance.bytes[i + 3] = 0x3f; /* 0.5 */
  add_output(plan_, &sink_, &format, 1, 0);
  ckpt_expr *cast = nullptr, *source = memory(x), *weights = memory(importance);
  ASSERT_EQ(ckpt_expr_cast(&cast, plan_, source, CKPT_F16, &err_), CKPT_OK);
  add("before", cast);
  add("q3", quantize(source, CKPT_Q3_K, weights));
  add("after", source);
  add("iq2", quantize(source, CKPT_IQ2_XXS, weights));
  ASSERT_EQ(run(2 << 20), CKPT_OK) << text_of(err_);
  EXPECT_EQ(plan_->n_bytes_read, x.bytes.size() + importance.bytes.size());
  EXPECT_EQ(written("q3"), quantized(x, CKPT_Q3_K, &importance, 5).bytes);
  EXPECT_EQ(written("iq2"), quantized(x, CKPT_IQ2_XXS, &importance, 5).bytes);
  EXPECT_EQ(written("after"), x.bytes);
}

TEST_F(Quantize, StackedMatricesAndSlicedRows) {
  Array a = values({20, 256}), b = values({12, 256});
  ckpt_expr *stack = nullptr, *xs[2] = {memory(a), memory(b)}, *rows = nullptr;
  add_output(plan_, &sink_, &format, 1, 0);
  ASSERT_EQ(ckpt_expr_concat(&stack, plan_, xs, 2, 0, &err_), CKPT_OK);
  add("stack", quantize(stack, CKPT_Q4_K));
  ASSERT_EQ(ckpt_expr_slice(&rows, plan_, quantize(memory(a), CKPT_Q4_K), 0, 7, 5, &err_), CKPT_OK);
  add("rows", rows);
  ASSERT_EQ(run(), CKPT_OK) << text_of(err_);
  std::vector<uint8_t> want = quantized(a, CKPT_Q4_K).bytes, more = quantized(b, CKPT_Q4_K).bytes;
  EXPECT_EQ(written("rows"), std::vector<uint8_t>(want.begin() + 7 * 144, want.begin() + 12 * 144));
  want.insert(want.end(), more.begin(), more.end());
  EXPECT_EQ(written("stack"), want);
}

// Experts that are stacked, each with its importance, and any slice of that: all of it larger than the workspace.
TEST_F(Quantize, StackedExpertsTakeTheirImportanceWithThem) {
  const size_t n_experts = 6, n_rows = 96, n = 2048;
  const ckpt_dtype type = CKPT_Q3_K;
  Array x = values({n_experts, n_rows, n}), importance = values({n_experts, n});
  for (size_t i = 0; i < importance.bytes.size(); i += 4) importance.bytes[i + 3] &= 0x7f;
  std::vector<Array> parts;
  std::vector<ckpt_expr *> experts;
  for (size_t i = 0; i < n_experts; i++) {
    parts.push_back(zeros(CKPT_F32, {1, n_rows, n}));
    memcpy(parts[i].bytes.data(), &x.bytes[parts[i].bytes.size() * i], parts[i].bytes.size());
  }
  for (const Array &part : parts) experts.push_back(memory(part));
  add_output(plan_, &sink_, &format, 1, 0);
  ckpt_expr *stack = nullptr;
  ASSERT_EQ(ckpt_expr_concat(&stack, plan_, experts.data(), n_experts, 0, &err_), CKPT_OK);
  ckpt_expr *all = quantize(stack, type, memory(importance)), *some = nullptr, *rows = nullptr, *flat = nullptr,
            *within = nullptr, *moved = nullptr;
  const uint64_t shape[2] = {n_experts * n_rows, n};
  const uint32_t order[3] = {1, 0, 2};
  add("all", all);
  ASSERT_EQ(ckpt_expr_slice(&some, plan_, all, 0, 2, 3, &err_), CKPT_OK);
  add("some", some);
  ASSERT_EQ(ckpt_expr_slice(&rows, plan_, all, 1, 5, 7, &err_), CKPT_OK);
  add("rows", rows);
  ASSERT_EQ(ckpt_expr_reshape(&flat, plan_, all, 2, shape, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_slice(&within, plan_, flat, 0, n_rows + 3, 90, &err_), CKPT_OK);
  add("within", within); /* rows of the second expert */
  ASSERT_EQ(ckpt_expr_slice(&some, plan_, all, 0, 4, 1, &err_), CKPT_OK);
  ASSERT_EQ(ckpt_expr_permute(&moved, plan_, some, order, &err_), CKPT_OK);
  add("moved", moved);
  ASSERT_EQ(run(UINT64_C(3) << 20), CKPT_OK) << text_of(err_);
  const std::vector<uint8_t> want = quantized(x, type, &importance, n_experts).bytes;
  const size_t expert = want.size() / n_experts, row = expert / n_rows;
  auto from = [&](size_t begin, size_t size) {
    return std::vector<uint8_t>(want.begin() + static_cast<ptrdiff_t>(begin),
                                want.begin() + static_cast<ptrdiff_t>(begin + size));
  };
  EXPECT_EQ(written("all"), want);
  EXPECT_EQ(written("some"), from(2 * expert, 3 * expert));
  EXPECT_EQ(written("within"), from(expert + 3 * row, 90 * row));
  EXPECT_EQ(written("moved"), from(4 * expert, expert));
  std::vector<uint8_t> sliced;
  for (size_t i = 0; i < n_experts; i++) {
    const std::vector<uint8_t> part = from(i * expert + 5 * row, 7 * row);
    sliced.insert(sliced.end(), part.begin(), part.end());
  }
  EXPECT_EQ(written("rows"), sliced);
}

// Mixtral's experts: planned, not run, so that nothing is ever read of what is merely zero.
TEST_F(Quantize, MixtralsExpertsFitWithImportance) {
  const size_t n_experts = 8;
  const uint64_t shape[3] = {1, 14336, 4096};
  const std::unique_ptr<void, decltype(&free)> zero(calloc(shape[1] * shape[2], 2), free);
  Array weights = values({n_experts, 4096});
  std::vector<ckpt_expr *> experts(n_experts);
  for (ckpt_expr *&x : experts) {
    ASSERT_EQ(ckpt_expr_memory(&x, plan_, CKPT_BF16, 3, shape, zero.get(), &err_), CKPT_OK);
    ASSERT_EQ(ckpt_expr_cast(&x, plan_, x, CKPT_F32, &err_), CKPT_OK);
  }
  ckpt_expr *stack = nullptr, *part = nullptr;
  ASSERT_EQ(ckpt_expr_concat(&stack, plan_, experts.data(), n_experts, 0, &err_), CKPT_OK);
  ckpt_expr *all = quantize(stack, CKPT_Q4_K, memory(weights));
  ASSERT_EQ(ckpt_expr_slice(&part, plan_, all, 1, 1000, 7168, &err_), CKPT_OK);
  add_output(plan_, &sink_, &format, 1, 0);
  add("all", all);
  add("part", part);
  ckpt_run_options o = {};
  o.struct_size = sizeof o;
  o.memory = UINT64_C(128) << 20;
  o.n_threads = 2;
  ASSERT_EQ(ckpt_plan_prepare(plan_, &o, &err_), CKPT_OK) << text_of(err_);
  EXPECT_LE(plan_->peak, o.memory);
}

TEST_F(Quantize, RefusesWhatBlocksCannotHold) {
  Array x = values({40, 256});
  float nan = NAN;
  memcpy(&x.bytes[4 * 5000], &nan, 4);
  add_output(plan_, &sink_, &format, 1, 0);
  add("x", quantize(memory(x), CKPT_Q4_K));
  EXPECT_EQ(run(), CKPT_EVALUE);
  EXPECT_NE(text_of(err_).find("tensor 'x': value 5000 is NaN, which Q4_K cannot hold"), std::string::npos)
      << text_of(err_);
}

// Floats pass as they are, and the first that is not finite is named by its place in the whole tensor.
TEST_F(Quantize, FloatsThatPassAreFinite) {
  const std::pair<ckpt_dtype, uint64_t> ones[] = {
      {CKPT_F16, 0x7c00}, {CKPT_BF16, 0x7f80}, {CKPT_F32, 0x7f800000}, {CKPT_F64, UINT64_C(0x7ff) << 52}};
  for (const auto &[dtype, infinity] : ones) {
    const size_t n_each = ckpt_dtype_get(dtype)->block_bytes, n = 3 << 18, at = n - 5;
    Array x = zeros(dtype, {n});
    const uint64_t sign = UINT64_C(1) << (8 * n_each - 1), others[] = {0, sign, 1, infinity - 1, sign | (infinity - 1)};
    for (size_t i = 0; i < n; i++) memcpy(&x.bytes[i * n_each], &others[i % 5], n_each);
    const std::pair<uint64_t, std::string> all[] = {
        {0, ""}, {infinity, "infinite"}, {sign | infinity, "infinite"}, {infinity | 1, "NaN"}};
    for (const auto &[bits, what] : all) {
      memcpy(&x.bytes[at * n_each], &bits, n_each);
      MemorySink sink;
      add_output(plan_, &sink, &format, 1, 0);
      ckpt_expr *node = nullptr;
      ASSERT_EQ(ckpt_expr_finite(&node, plan_, memory(x), &err_), CKPT_OK);
      add("x", node);
      EXPECT_EQ(run(), what.empty() ? CKPT_OK : CKPT_EVALUE) << ckpt_dtype_name(dtype) << what;
      const std::string text = "tensor 'x': value " + std::to_string(at) + " is " + what;
      EXPECT_EQ(text_of(err_), what.empty() ? "" : text + ", and no run of a model survives that");
      ckpt_plan_free(plan_); /* before its sink */
      ASSERT_EQ(ckpt_plan_new(&plan_, nullptr), CKPT_OK);
    }
  }
}

TEST_F(Quantize, RefusesScalesThatOverflow) {
  Array x = values({40, 256});
  float large = 1e30f;
  add_output(plan_, &sink_, &format, 1, 0);
  memcpy(&x.bytes[4 * 5000], &large, 4);
  add("x", quantize(memory(x), CKPT_Q8_0));
  EXPECT_EQ(run(), CKPT_EVALUE);
  EXPECT_NE(text_of(err_).find("tensor 'x': a scale does not fit Q8_0 (values up to 1e+30"), std::string::npos)
      << text_of(err_);
}

TEST_F(Quantize, RefusesWhatItCannotDo) {
  Array x = values({4, 256}), odd = values({4, 48}), weights = values({3, 256});
  ckpt_expr *out = nullptr;
  EXPECT_EQ(ckpt_expr_quantize(&out, plan_, memory(odd), CKPT_Q4_K, nullptr, &err_), CKPT_EINVAL);
  EXPECT_EQ(text_of(err_), "a row of 48 is no whole number of blocks of Q4_K (256)");
  err_ = {};
  EXPECT_EQ(ckpt_expr_quantize(&out, plan_, memory(x), CKPT_IQ1_S, nullptr, &err_), CKPT_EINVAL);
  EXPECT_EQ(text_of(err_), "IQ1_S needs importance (an imatrix that has this tensor)");
  EXPECT_EQ(ckpt_expr_quantize(&out, plan_, memory(x), CKPT_Q8_K, nullptr, nullptr), CKPT_EUNSUPPORTED);
  EXPECT_EQ(ckpt_expr_quantize(&out, plan_, memory(x), CKPT_BF16, nullptr, nullptr), CKPT_EUNSUPPORTED);
  EXPECT_EQ(ckpt_expr_quantize(&out, plan_, memory(x), CKPT_Q4_K, memory(weights), nullptr), CKPT_EINVAL);
  EXPECT_EQ(ckpt_expr_dequantize(&out, plan_, memory(x), nullptr), CKPT_EINVAL);
  EXPECT_EQ(ckpt_expr_cast(&out, plan_, memory(x), CKPT_Q4_K, nullptr), CKPT_EUNSUPPORTED);
}

TEST_F(Quantize, BlocksAreReadAsValues) {
  Array x = values({6, 512}), blocks = quantized(x, CKPT_Q5_K);
  store_.add_plain("w", blocks);
  IndexPointer index = store_.build(&err_);
  ASSERT_TRUE(index) << text_of(err_);
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "w");
  std::vector<float> want(x.n_elements()), got(x.n_elements()), part(3 * 100);
  ckpt_backend_reference.dequantize(CKPT_Q5_K, want.data(), blocks.bytes.data(), want.size());
  ASSERT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_F32, got.data(), 4 * got.size(), &err_), CKPT_OK)
      << text_of(err_);
  EXPECT_EQ(got, want);
  ckpt_box box = {};
  box.start[0] = 2, box.count[0] = 3, box.start[1] = 200, box.count[1] = 100; /* within two blocks */
  ASSERT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_F32, part.data(), 4 * part.size(), &err_), CKPT_OK)
      << text_of(err_);
  for (size_t i = 0; i < part.size(); i++) EXPECT_EQ(part[i], want[(2 + i / 100) * 512 + 200 + i % 100]) << i;
  std::vector<double> wide(x.n_elements());
  ASSERT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_F64, wide.data(), 8 * wide.size(), &err_), CKPT_OK);
  for (size_t i = 0; i < wide.size(); i++) ASSERT_EQ(wide[i], static_cast<double>(want[i]));
}

}  // namespace
