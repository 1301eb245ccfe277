// Proofs in slices: the same results as from one plan of everything, and one progress.
#include "tests/libckpt/recipe/prove_testing.h"

extern "C" {
#include "libckpt/recipe/compare/diff.h"
#include "libckpt/recipe/compare/hash.h"
}

namespace {

using prove::Opened;
using prove::Stored;

// More than two slices of them, each with a value of its own; `other` has another one.
std::vector<Stored> Many(size_t other = SIZE_MAX) {
  std::vector<Stored> tensors;
  for (size_t i = 0; i < 2 * CKPT_PROOF_SLICE + 77; i++) {
    std::string bytes(4, '\0');
    for (int k = 0; k < 4; k++) bytes[k] = static_cast<char>((i == other ? i + 1 : i) >> (8 * k));
    tensors.push_back({"t" + std::to_string(i), "I32", {1}, bytes});
  }
  return tensors;
}

ckpt_digest InOnePlan(const ckpt_index *index) {
  ckpt_hashing hashing = {};
  ckpt_digest digest = {};
  auto plan = prove::NewPlan();
  EXPECT_EQ(ckpt_hashing_start(&hashing, index, nullptr, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_hashing_add(&hashing, plan.get(), 0, index->n_tensors, nullptr), CKPT_OK);
  prove::Run(plan.get(), 2, 128 << 20);
  ckpt_hashing_take(&hashing, plan.get());
  EXPECT_EQ(ckpt_hashing_result(&hashing, &digest, nullptr), CKPT_OK);
  ckpt_hashing_end(&hashing);
  return digest;
}

struct Progress {
  uint64_t n_done = 0, n_total = 0, n_calls = 0;
  bool is_steady = true;
};

void Advance(void *arg, uint64_t n_done, uint64_t n_total) {
  auto *p = static_cast<Progress *>(arg);
  p->is_steady = p->is_steady && n_done >= p->n_done && (p->n_calls == 0 || n_total == p->n_total);
  p->n_done = n_done, p->n_total = n_total, p->n_calls++;
}

TEST(Prove, SlicesGiveOneDigestAndOneProgress) {
  Opened file(Many());
  Progress progress;
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.memory = 16 << 20;
  run.progress = Advance;
  run.progress_arg = &progress;
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.run = &run;
  ckpt_digest sliced = {}, whole = InOnePlan(file.index);
  uint64_t before = ckpt_source_bytes_read(file.index->source);
  ASSERT_EQ(ckpt_hash(file.index, &options, &sliced, nullptr), CKPT_OK);
  EXPECT_LE(ckpt_source_bytes_read(file.index->source) - before, 4u << 20);
  EXPECT_EQ(memcmp(&sliced, &whole, sizeof whole), 0);
  EXPECT_TRUE(progress.is_steady);
  EXPECT_EQ(progress.n_total, 4u * file.index->n_tensors);
  EXPECT_EQ(progress.n_done, progress.n_total);
}

TEST(Prove, ADifferenceIsFoundInEverySlice) {
  Opened left(Many());
  for (size_t other : {size_t{0}, size_t{CKPT_PROOF_SLICE}, size_t{2 * CKPT_PROOF_SLICE + 76}}) {
    Opened right(Many(other));
    ckpt_diff *diff = nullptr;
    const ckpt_diff_options options = {};
    ASSERT_EQ(ckpt_diff_new(&diff, left.index, right.index, &options, nullptr), CKPT_OK);
    prove::Run(ckpt_diff_proof(diff));
    size_t n_different = 0;
    for (size_t i = 0; i < diff->n; i++) {
      bool is_different = ckpt_diff_counts(ckpt_diff_judge(&diff->pairs[i]));
      n_different += is_different;
      if (!is_different) continue;
      EXPECT_EQ(diff->pairs[i].name, "t" + std::to_string(other));
      EXPECT_EQ(ckpt_diff_count(&diff->pairs[i], nullptr), 1u);
    }
    EXPECT_EQ(n_different, 1u);
    ckpt_diff_free(diff);
  }
}

ckpt_status FailAt(void *arg, ckpt_plan *, size_t first, size_t, ckpt_error *err) {
  auto *n_calls = static_cast<size_t *>(arg);
  if (++*n_calls != 2) return CKPT_OK;
  EXPECT_EQ(first, size_t{CKPT_PROOF_SLICE});
  err->status = CKPT_EDIFFERENT;
  return CKPT_EDIFFERENT;
}

ckpt_status TakeNothing(void *, const ckpt_plan *, size_t, size_t, ckpt_error *) { return CKPT_OK; }

TEST(Prove, AFailureEndsIt) {
  size_t n_calls = 0;
  ckpt_error err = {};
  ckpt_proof proof = {};
  proof.n = 4 * CKPT_PROOF_SLICE;
  proof.arg = &n_calls;
  proof.add = FailAt;
  proof.take = TakeNothing;
  EXPECT_EQ(ckpt_prove(&proof, nullptr, nullptr, nullptr, &err), CKPT_EDIFFERENT);
  EXPECT_EQ(n_calls, 2u);
}

}  // namespace
