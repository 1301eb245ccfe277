// Derived tensors: expressions over tensors of that or other indexes, which everything reads as it reads stored ones.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/libckpt/fake/fake_format.h"
#include "tests/libckpt/fake/fake_store.h"

extern "C" {
#include "libckpt/index/index.h"
#include "libckpt/plan/derive.h"
#include "libckpt/run/read.h"
}

namespace {

using namespace fake;

// An index of one tensor "x", which is `x` of `from` with its axes in another order, as another dtype.
IndexPointer across(const ckpt_index *from, ckpt_dtype as) {
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  ckpt_expr *x = nullptr;
  uint32_t number;
  const uint32_t order[] = {1, 0};
  EXPECT_EQ(ckpt_index_new(&index, nullptr, "derived", "fake", nullptr, &err), CKPT_OK);
  EXPECT_EQ(ckpt_expr_read_in(&x, &index->arena, from, ckpt_index_find(from, "x"), &err), CKPT_OK);
  EXPECT_EQ(ckpt_expr_permute_in(&x, &index->arena, x, order, &err), CKPT_OK);
  EXPECT_EQ(ckpt_expr_cast_in(&x, &index->arena, x, as, &err), CKPT_OK);
  EXPECT_EQ(ckpt_index_add(index, "x", 1, as, 2, x->shape, CKPT_ROLE_PARAMETER, nullptr, 0, &number, &err), CKPT_OK);
  EXPECT_EQ(ckpt_derive(index, number, x, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(ckpt_index_finish(index, &err), CKPT_OK) << text_of(err);
  return IndexPointer(index, ckpt_index_free);
}

Array stored(Random *random) { return random_array(random, CKPT_F32, {30, 41}); }

TEST(Derived, ReadsAsWhatItIs) {
  Random random(first_seed());
  Store store(&random);
  const Array array = stored(&random);
  store.add_plain("x", array);
  ckpt_error err = {};
  IndexPointer from = store.build(&err);
  ASSERT_TRUE(from) << text_of(err);
  IndexPointer index = across(from.get(), CKPT_F32);
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "x");
  const Array wanted = permute(array, {1, 0});
  std::vector<uint8_t> bytes(tensor->n_bytes);
  ASSERT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << text_of(err);
  EXPECT_EQ(bytes, wanted.bytes);
  ckpt_box box = {};
  box.start[0] = 5, box.count[0] = 7, box.start[1] = 3, box.count[1] = 2;
  std::vector<uint8_t> part(7 * 2 * 4);
  ASSERT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_F32, part.data(), part.size(), &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(part, slice(slice(wanted, 0, 5, 7), 1, 3, 2).bytes);
  EXPECT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_F32, part.data(), part.size() - 1, &err), CKPT_EINVAL);
  uint64_t n_read = 0, n_fetched = 0;
  EXPECT_EQ(ckpt_read_cost(index.get(), tensor, nullptr, &n_read, &n_fetched, &err), CKPT_OK);
  EXPECT_EQ(n_read, array.bytes.size());
}

TEST(Derived, HasTheDigestOfItsValues) {
  Random random(first_seed() + 1);
  Store store(&random), other(&random);
  const Array array = stored(&random);
  store.add_plain("x", array);
  other.add_plain("x", cast(permute(array, {1, 0}), CKPT_BF16));
  ckpt_error err = {};
  IndexPointer from = store.build(&err), plain = other.build(&err);
  IndexPointer index = across(from.get(), CKPT_BF16);
  ckpt_digest a, b;
  ASSERT_EQ(ckpt_hash(index.get(), nullptr, &a, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(ckpt_hash(plain.get(), nullptr, &b, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(0, memcmp(&a, &b, sizeof a));
}

// Where the bytes are that it is computed from; they are not its elements.
TEST(Derived, ShowsTheExtentsOfWhatItReads) {
  Random random(first_seed() + 2);
  Store store(&random);
  store.add_plain("x", stored(&random));
  ckpt_error err = {};
  IndexPointer from = store.build(&err), index = across(from.get(), CKPT_F32);
  ckpt_extent_view view = {}, of = {};
  view.struct_size = of.struct_size = sizeof view;
  ASSERT_TRUE(ckpt_tensor_extents(index.get(), ckpt_index_find(index.get(), "x"), 0, &view));
  ASSERT_TRUE(ckpt_tensor_extents(from.get(), ckpt_index_find(from.get(), "x"), 0, &of));
  EXPECT_FALSE(view.raw);
  EXPECT_TRUE(of.raw);
  EXPECT_EQ(view.count[0], of.count[0]);
  EXPECT_FALSE(ckpt_tensor_extents(index.get(), ckpt_index_find(index.get(), "x"), 1, &view));
}

// One of a derived tensor is derived, too.
TEST(Derived, StandsOnDerivedTensors) {
  Random random(first_seed() + 3);
  Store store(&random);
  const Array array = stored(&random);
  store.add_plain("x", array);
  ckpt_error err = {};
  IndexPointer from = store.build(&err), once = across(from.get(), CKPT_F32), twice = across(once.get(), CKPT_F32);
  const ckpt_tensor *tensor = ckpt_index_find(twice.get(), "x");
  std::vector<uint8_t> bytes(tensor->n_bytes);
  ASSERT_EQ(ckpt_read(twice.get(), tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << text_of(err);
  EXPECT_EQ(bytes, array.bytes);
}

TEST(Derived, HasTheShapeOfItsExpression) {
  Random random(first_seed() + 4);
  Store store(&random);
  store.add_plain("x", stored(&random));
  ckpt_error err = {};
  IndexPointer from = store.build(&err);
  ckpt_index *index = nullptr;
  ckpt_expr *x = nullptr;
  uint32_t number;
  const uint64_t shape[] = {41, 30};
  ASSERT_EQ(ckpt_index_new(&index, nullptr, "derived", "fake", nullptr, &err), CKPT_OK);
  ASSERT_EQ(ckpt_expr_read_in(&x, &index->arena, from.get(), ckpt_index_find(from.get(), "x"), &err), CKPT_OK);
  ASSERT_EQ(ckpt_index_add(index, "x", 1, CKPT_F32, 2, shape, CKPT_ROLE_PARAMETER, nullptr, 0, &number, &err), CKPT_OK);
  EXPECT_EQ(ckpt_derive(index, number, x, &err), CKPT_EINTERNAL);
  ckpt_index_free(index);
}

}  // namespace
