// Importance matrices: the older files, what is damaged in them, and the importance that both forms give.
#include <cmath>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/recipe/quantize/imatrix.h"
}

namespace formats_testing {
namespace {

using Floats = std::vector<float>;

std::string i32(int32_t x) { return std::string(reinterpret_cast<const char *>(&x), sizeof x); }
std::string f32s(const Floats &x) { return std::string(reinterpret_cast<const char *>(x.data()), 4 * x.size()); }

std::string entry(const std::string &name, int32_t n_calls, const Floats &values) {
  return i32(static_cast<int32_t>(name.size())) + name + i32(n_calls) + i32(static_cast<int32_t>(values.size())) +
         f32s(values);
}

const std::string kTwo =
    i32(2) + entry("blk.0.attn_q.weight", 4, {8, 2, 0, 1}) + entry("blk.0.ffn_down_exps.weight", 0, {1, 2, 3, 4, 5, 6});
const std::string kText = i32(7) + i32(8) + "wiki.txt";

std::string metadata_of(const ckpt_index *index, const std::string &key) {
  for (uint32_t i = 0; i < index->n_metadata; i++)
    if (index->metadata[i].key == key) return index->metadata[i].value;
  return "";
}

TEST(Imatrix, OldFilesAreRead) {
  ckpt_error err = {};
  const std::string bytes = kTwo + kText;
  IndexPointer index = open_bytes(bytes, &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_STREQ(index->format, "imatrix");
  EXPECT_EQ(index->n_tensors, 4u);
  EXPECT_EQ(metadata_of(index.get(), "imatrix.chunk_count"), "7");
  EXPECT_EQ(metadata_of(index.get(), "imatrix.datasets"), "wiki.txt");
  const ckpt_tensor *sums = ckpt_index_find(index.get(), "blk.0.attn_q.weight.in_sum2");
  ASSERT_NE(sums, nullptr);
  EXPECT_EQ(bytes_of(index.get(), sums), f32s({8, 2, 0, 1}));
  EXPECT_EQ(ckpt_imatrix_check(index.get(), &err), CKPT_OK) << text_of(err);
}

// Cut anywhere but before its trailer, it is refused; nothing is read past its end.
TEST(Imatrix, CutFilesAreRefused) {
  const std::string whole = kTwo + kText;
  for (size_t n = 0; n < whole.size(); n++) {
    ckpt_error err = {};
    IndexPointer index = open_bytes(whole.substr(0, n), &err);
    EXPECT_EQ(index != nullptr, n == kTwo.size() || n == kTwo.size() + 4) << n;
  }
}

TEST(Imatrix, CountsThatLieAreRefused) {
  const std::string huge = i32(2) + entry("a.weight", 1, {1}) + i32(1) + "b" + i32(1) + i32(INT32_MAX);
  const std::string negative = i32(2) + entry("a.weight", 1, {1}) + i32(1) + "b" + i32(-1) + i32(1) + f32s({1});
  const std::string twice = i32(2) + entry("a.weight", 1, {1}) + entry("a.weight", 1, {1});
  const std::string name = i32(2) + entry("a.weight", 1, {1}) + entry("a\nb", 1, {1});
  for (const std::string &bytes : {huge, negative, twice, name}) {
    ckpt_error err = {};
    EXPECT_EQ(open_bytes(bytes, &err), nullptr);
    EXPECT_EQ(err.status, CKPT_EFORMAT) << text_of(err);
  }
}

// An importance matrix of one tensor, as llama-imatrix has it in GGUF, here in safetensors.
std::string gguf_like(const Floats &sums, const Floats &counts) {
  const std::string n = std::to_string(4 * sums.size()), end = std::to_string(4 * (sums.size() + counts.size()));
  const std::string width = std::to_string(sums.size() / counts.size()), height = std::to_string(counts.size());
  return safetensors("{\"w.in_sum2\":{\"dtype\":\"F32\",\"shape\":[" + height + "," + width + "],\"data_offsets\":[0," +
                         n + "]},\"w.counts\":{\"dtype\":\"F32\",\"shape\":[" + height + ",1],\"data_offsets\":[" + n +
                         "," + end + "]}}",
                     f32s(sums) + f32s(counts));
}

// What the plan makes of the importance of `w`, of this shape.
ckpt_status importance(const std::string &bytes, const std::vector<uint64_t> &shape, Floats *out, ckpt_error *err,
                       const char *name = "w") {
  Folder folder;
  const std::string path = folder.path() + "/out.safetensors";
  IndexPointer index = open_bytes(bytes, err);
  if (index == nullptr) return err->status;
  ckpt_tensor tensor = {};
  tensor.name = name;
  tensor.rank = static_cast<uint8_t>(shape.size());
  tensor.shape = shape.data();
  ckpt_plan *plan = nullptr;
  ckpt_expr *expr = nullptr;
  uint32_t sink;
  out->clear();
  EXPECT_EQ(ckpt_plan_new(&plan, err), CKPT_OK);
  EXPECT_EQ(ckpt_plan_output(plan, path.c_str(), nullptr, false, &sink, err), CKPT_OK);
  ckpt_status status = ckpt_imatrix_expr(&expr, plan, index.get(), &tensor, err);
  if (status == CKPT_OK && expr != nullptr) {
    EXPECT_EQ(ckpt_plan_add(plan, sink, "w", expr, err), CKPT_OK);
    status = ckpt_plan_run(plan, nullptr, err);
  }
  ckpt_plan_free(plan);
  if (status != CKPT_OK || expr == nullptr) return status;
  IndexPointer written = open(path, err);
  const ckpt_tensor *w = ckpt_index_find(written.get(), "w");
  out->resize(w->n_elements);
  return ckpt_read(written.get(), w, nullptr, CKPT_F32, out->data(), w->n_bytes, err);
}

TEST(Imatrix, ImportanceIsTheMeanSquare) {
  ckpt_error err = {};
  Floats got;
  ASSERT_EQ(importance(gguf_like({8, 2, 6, 4, 1, 1}, {4, 0, 2}), {3, 5, 2}, &got, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(got, (Floats{2, 0.5, 1, 1, 0.5, 0.5}));  // the second expert was never used
  ASSERT_EQ(importance(i32(1) + entry("w", 4, {8, 2}), {5, 2}, &got, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(got, (Floats{2, 0.5}));
  ASSERT_EQ(importance(i32(1) + entry("w", 0, {8, 2}), {5, 2}, &got, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(got, (Floats{8, 2}));
  ASSERT_EQ(importance(i32(1) + entry("other", 1, {8, 2}), {5, 2}, &got, &err), CKPT_OK) << text_of(err);
  EXPECT_TRUE(got.empty());
}

TEST(Imatrix, WidthsHaveToMatchAndValuesBeFinite) {
  ckpt_error err = {};
  Floats got;
  EXPECT_EQ(importance(i32(1) + entry("w", 1, {8, 2, 1}), {5, 2}, &got, &err), CKPT_EDIFFERENT);
  EXPECT_STREQ(err.tensor, "w");
  err = {};
  EXPECT_EQ(importance(gguf_like({8, 2}, {1}), {2, 5, 2}, &got, &err), CKPT_EDIFFERENT);
  err = {};
  const std::string embedding = i32(1) + entry("token_embd.weight", 1, {8, 2, 1});  // llama-quantize passes it by
  EXPECT_EQ(importance(embedding, {5, 2}, &got, &err, "token_embd.weight"), CKPT_EDIFFERENT);
  err = {};
}

// What would make zeros or noise of the weights without a word.
TEST(Imatrix, ImportanceHasToBeSome) {
  const std::pair<std::string, std::vector<uint64_t>> cases[] = {
      {gguf_like({8, INFINITY}, {1}), {5, 2}},     {gguf_like({8, -1}, {1}), {5, 2}},
      {gguf_like({8, 1}, {INFINITY}), {5, 2}},     {gguf_like({8, 1}, {-2}), {5, 2}},
      {gguf_like({8, 1}, {NAN}), {5, 2}},          {gguf_like({0, 0}, {3}), {5, 2}},
      {gguf_like({8, 1, 0, 0}, {1, 3}), {2, 5, 2}}};
  for (const auto &[bytes, shape] : cases) {
    ckpt_error err = {};
    Floats got;
    EXPECT_EQ(importance(bytes, shape, &got, &err), CKPT_EVALUE) << text_of(err);
  }
}

TEST(Imatrix, WhatIsNoneIsRefused) {
  ckpt_error err = {};
  const std::string bytes = safetensors("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", f32s({1}));
  IndexPointer model = open_bytes(bytes, &err), matrix = open_bytes(kTwo, &err);
  EXPECT_EQ(ckpt_imatrix_check(model.get(), &err), CKPT_EFORMAT);
  uint32_t n_entries = 0;
  err = {};
  EXPECT_EQ(ckpt_imatrix_fits(matrix.get(), model.get(), &n_entries, &err), CKPT_EDIFFERENT);
  EXPECT_EQ(n_entries, 2u);
}

}  // namespace
}  // namespace formats_testing
