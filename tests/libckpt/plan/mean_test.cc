// Means of slices against torch's order of operations, spelled out: read, written, in boxes, for any memory and number
// of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/index/index.h"
#include "libckpt/plan/derive.h"
#include "libckpt/run/read.h"
}

namespace {

using namespace fake;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// sum(slices) / len(slices), one rounding after the other.
float mean_of(const std::vector<float> &slices) {
  volatile float sum = 0;
  for (float x : slices) sum = sum + x;
  return sum / static_cast<float>(slices.size());
}

// An index whose tensor "mean" of that shape is the mean of slices, each of them in two pieces, the later one first.
IndexPointer open_mean(const Shape &shape, const std::vector<std::vector<float>> &slices, ckpt_dtype as) {
  std::string bytes;
  std::vector<ckpt_extent> extents;
  std::vector<uint32_t> n_of;
  for (const std::vector<float> &slice : slices) {
    const uint64_t half = slice.size() / 2;
    for (uint64_t at : {half, uint64_t{0}}) {
      ckpt_extent extent = {};
      extent.start = at, extent.count = at == 0 ? half : slice.size() - half;
      extent.offset = bytes.size(), extent.n_stored = 4 * extent.count;
      bytes.append(reinterpret_cast<const char *>(slice.data() + at), 4 * extent.count);
      extents.push_back(extent);
    }
    n_of.push_back(2);
  }
  ckpt_index *index = nullptr;
  uint32_t number = 0;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_index_new(&index, memory_source({{"file", bytes}}), "test", "fake", nullptr, &err), CKPT_OK);
  EXPECT_EQ(ckpt_index_add(index, "mean", 4, as, static_cast<uint32_t>(shape.size()), shape.data(), CKPT_ROLE_PARAMETER,
                           extents.data(), static_cast<uint32_t>(extents.size()), &number, &err),
            CKPT_OK);
  EXPECT_EQ(ckpt_derive_mean(index, number, CKPT_F32, n_of.data(), static_cast<uint32_t>(n_of.size()), &err), CKPT_OK);
  EXPECT_EQ(ckpt_index_finish(index, &err), CKPT_OK) << text_of(err);
  return IndexPointer(index, ckpt_index_free);
}

std::vector<float> read_f32(const ckpt_index *index, const ckpt_box *box, size_t n) {
  std::vector<float> values(n);
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, ckpt_index_at(index, 0), box, CKPT_F32, values.data(), 4 * n, &err), CKPT_OK)
      << text_of(err);
  return values;
}

TEST(Mean, IsThatOfTorch) {
  const struct {
    std::vector<float> slices;
    uint32_t wanted;
  } cases[] = {
      {{-0.0F}, 0},  // Python's sum begins with 0
      {{-0.0F, -0.0F}, 0},
      {{1e-45F, 0, 0}, 0},                     // a third of the smallest
      {{1, 16777216, -16777216}, 0},           // in their order: 1 is lost
      {{16777216, -16777216, 1}, 0x3EAAAAAB},  // and here it is not
      {{3e38F, 3e38F}, 0x7F800000},            // the sum is past the largest, the mean is not
      {{0.1F, 0.2F, 0.4F}, bits_of(mean_of({0.1F, 0.2F, 0.4F}))},
      {{kInf, 1}, 0x7F800000},
      {{kInf, -kInf}, 0xFFC00000},
      {{float_of(0x7F812345), kNan}, 0x7FC12345},  // the first NaN, made quiet
      {{1, float_of(0xFF812345), kInf}, 0xFFC12345},
  };
  for (const auto &c : cases) {
    std::vector<std::vector<float>> slices;
    for (float x : c.slices) slices.push_back({x, x});
    IndexPointer index = open_mean({2}, slices, CKPT_F32);
    for (float x : read_f32(index.get(), nullptr, 2)) EXPECT_EQ(bits_of(x), c.wanted) << c.slices[0];
  }
}

// Written whole, transposed and cut, with little memory and much, it is the mean of what is in its place.
TEST(Mean, AnyPlanOfItHasTheSameBytes) {
  const Shape shape = {300, 401};
  for (uint32_t n : {1U, 3U, 40U}) {  // 40: more than there are bits for arguments that are needed whole
    Random random(first_seed() + n);
    std::vector<std::vector<float>> slices(n, std::vector<float>(300 * 401));
    for (auto &slice : slices)
      for (float &x : slice) x = static_cast<float>(random.between(0, 1 << 30)) * 1.1e-7F - 50;
    IndexPointer index = open_mean(shape, slices, CKPT_F32), half = open_mean(shape, slices, CKPT_BF16);
    std::vector<float> wanted(300 * 401), turned(300 * 401);
    for (size_t i = 0; i < wanted.size(); i++) {
      std::vector<float> column;
      for (const auto &slice : slices) column.push_back(slice[i]);
      wanted[i] = turned[i % 401 * 300 + i / 401] = mean_of(column);
    }
    EXPECT_EQ(read_f32(index.get(), nullptr, wanted.size()), wanted);
    ckpt_box box = {};
    box.start[0] = 7, box.count[0] = 3, box.start[1] = 11, box.count[1] = 2;
    const std::vector<float> part = read_f32(index.get(), &box, 6);
    for (size_t i = 0; i < 6; i++) EXPECT_EQ(part[i], wanted[(7 + i / 2) * 401 + 11 + i % 2]);
    Array rounded{CKPT_F32, shape, {}};
    rounded.bytes.assign(reinterpret_cast<uint8_t *>(wanted.data()),
                         reinterpret_cast<uint8_t *>(wanted.data() + wanted.size()));
    rounded = cast(cast(rounded, CKPT_BF16), CKPT_F32);
    EXPECT_EQ(0,
              memcmp(read_f32(half.get(), nullptr, wanted.size()).data(), rounded.bytes.data(), rounded.bytes.size()));
    for (uint64_t memory : {uint64_t{6} << 20, uint64_t{256} << 20})
      for (uint32_t n_threads : {1U, 3U}) {
        ckpt_plan *plan = nullptr;
        ckpt_expr *whole = nullptr, *across = nullptr;
        ckpt_error err = {};
        MemorySink sink;
        const uint32_t order[] = {1, 0};
        ASSERT_EQ(ckpt_plan_new(&plan, &err), CKPT_OK);
        const uint32_t out = add_output(plan, &sink, &format, 1, 0);
        ASSERT_EQ(ckpt_expr_read(&whole, plan, index.get(), ckpt_index_at(index.get(), 0), &err), CKPT_OK);
        ASSERT_EQ(ckpt_expr_permute(&across, plan, whole, order, &err), CKPT_OK);
        ASSERT_EQ(ckpt_plan_add_like(plan, out, "whole", whole, nullptr, nullptr, &err), CKPT_OK);
        ASSERT_EQ(ckpt_plan_add_like(plan, out, "turned", across, nullptr, nullptr, &err), CKPT_OK);
        ckpt_run_options options = {};
        options.struct_size = sizeof options;
        options.memory = memory, options.n_threads = n_threads;
        EXPECT_EQ(ckpt_plan_run(plan, &options, &err), CKPT_OK) << text_of(err);
        ckpt_plan_free(plan);
        IndexPointer made = open_fake(sink.files, &err);
        ASSERT_TRUE(made) << text_of(err);
        const auto bytes = [&](const char *name) { return read_all(made.get(), ckpt_index_find(made.get(), name)); };
        EXPECT_EQ(0, memcmp(bytes("whole").data(), wanted.data(), 4 * wanted.size())) << n << " " << memory;
        EXPECT_EQ(0, memcmp(bytes("turned").data(), turned.data(), 4 * turned.size())) << n << " " << memory;
      }
  }
}

// A slice that is not all there is found when the index is finished, as of any tensor.
TEST(Mean, EachSliceIsWhole) {
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  const uint64_t shape[] = {4};
  ckpt_extent extents[2] = {};
  extents[0].n_stored = 16, extents[0].count = 4;
  extents[1].n_stored = 12, extents[1].offset = 16, extents[1].count = 3;
  const uint32_t n_of[] = {1, 1};
  uint32_t number = 0;
  ASSERT_EQ(ckpt_index_new(&index, memory_source({{"file", std::string(28, 'x')}}), "test", "fake", nullptr, &err),
            CKPT_OK);
  ASSERT_EQ(ckpt_index_add(index, "mean", 4, CKPT_F32, 1, shape, CKPT_ROLE_PARAMETER, extents, 2, &number, &err),
            CKPT_OK);
  ASSERT_EQ(ckpt_derive_mean(index, number, CKPT_F32, n_of, 2, &err), CKPT_OK);
  EXPECT_EQ(ckpt_index_finish(index, &err), CKPT_EFORMAT);
  EXPECT_NE(text_of(err).find("3 of 4 elements are stored"), std::string::npos) << text_of(err);
  ckpt_index_free(index);
}

}  // namespace
