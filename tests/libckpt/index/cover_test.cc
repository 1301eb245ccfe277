// Whether stored pieces cover a tensor: holes, overlaps, replicas, pieces outside their file, and a million of them.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/index/cover.h"
}

namespace {

using namespace fake;

struct Piece {
  Shape box;  // starts, counts; flat: start, count
  uint64_t offset = 0, n_stored = 0;
};

// Finishes an index with one u8 tensor of these pieces in a file of 1,000 bytes; its message, or "".
std::string finish(const Shape &shape, const std::vector<Piece> &pieces, ckpt_extent_form form,
                   uint32_t *n_kept = nullptr) {
  ckpt_error err = {};
  ckpt_index *index = nullptr;
  ckpt_source *source = memory_source({{"file", std::string(1000, 'x')}});
  EXPECT_EQ(ckpt_index_new(&index, source, "test", "fake", nullptr, &err), CKPT_OK);
  std::vector<ckpt_extent> extents;
  for (const Piece &piece : pieces) {
    ckpt_extent extent = {};
    extent.offset = piece.offset;
    extent.n_stored = piece.n_stored;
    if (form == CKPT_EXTENT_FLAT)
      extent.start = piece.box[0], extent.count = piece.box[1];
    else
      extent.box = piece.box.data();
    extents.push_back(extent);
  }
  uint32_t number = 0;
  EXPECT_EQ(ckpt_index_add(index, "t", 1, CKPT_U8, static_cast<uint32_t>(shape.size()), shape.data(),
                           CKPT_ROLE_PARAMETER, extents.data(), static_cast<uint32_t>(extents.size()), &number, &err),
            CKPT_OK);
  index->tensors[number].details->extent_form = static_cast<uint8_t>(form);
  ckpt_status status = ckpt_index_finish(index, &err);
  EXPECT_EQ(status == CKPT_OK ? CKPT_OK : CKPT_EFORMAT, status);
  if (n_kept != nullptr) *n_kept = index->tensors[number].n_extents;
  ckpt_index_free(index);
  return status == CKPT_OK ? "" : err.message;
}

std::string finish_flat(uint64_t n, const std::vector<Piece> &pieces, uint32_t *n_kept = nullptr) {
  return finish({n}, pieces, CKPT_EXTENT_FLAT, n_kept);
}

TEST(Cover, FlatHolesOverlapsAndReplicas) {
  uint32_t n_kept = 0;
  EXPECT_EQ(finish_flat(10, {{{5, 5}, 5, 5}, {{0, 5}, 0, 5}, {{5, 5}, 100, 5}, {{3, 0}, 0, 0}}, &n_kept), "");
  EXPECT_EQ(n_kept, 2u);
  EXPECT_EQ(finish_flat(0, {}), "");
  EXPECT_EQ(finish_flat(10, {}), "0 of 10 elements are stored");
  EXPECT_NE(finish_flat(10, {{{0, 4}, 0, 4}, {{5, 5}, 5, 5}}).find("a stored piece is missing at element 4"),
            std::string::npos);
  EXPECT_NE(finish_flat(10, {{{0, 6}, 0, 6}, {{5, 5}, 5, 5}}).find("stored pieces overlap at element 5"),
            std::string::npos);
  EXPECT_NE(finish_flat(10, {{{0, 11}, 0, 11}}).find("more than its 10"), std::string::npos);
  EXPECT_NE(finish_flat(10, {{{0, 10}, 0, 10}, {{10, UINT64_MAX}, 0, 10}}).find("more than its 10"), std::string::npos);
  EXPECT_NE(finish_flat(10, {{{0, 10}, 0, 9}}).find("needs 10 bytes, 9 are stored"), std::string::npos);
  EXPECT_NE(finish_flat(10, {{{0, 10}, 991, 10}}).find("past the end of the file (1000 bytes)"), std::string::npos);
  EXPECT_NE(finish_flat(10, {{{0, 10}, UINT64_MAX - 3, 10}}).find("past the end of the file"), std::string::npos);
}

TEST(Cover, BoxHolesOverlapsAndReplicas) {
  auto boxes = [](const std::vector<Piece> &pieces, uint32_t *n_kept = nullptr) {
    return finish({4, 6}, pieces, CKPT_EXTENT_BOX, n_kept);
  };
  Piece left = {{0, 0, 4, 2}, 0, 8}, right = {{0, 2, 4, 4}, 8, 16}, top = {{0, 2, 2, 4}, 8, 8};
  uint32_t n_kept = 0;
  EXPECT_EQ(boxes({right, left, left, {{1, 1, 0, 3}, 0, 0}}, &n_kept), "");
  EXPECT_EQ(n_kept, 2u);
  EXPECT_NE(boxes({left, top}).find("leave holes (16 elements in boxes, 24 in the tensor)"), std::string::npos);
  EXPECT_NE(boxes({left, right, top}).find("overlap"), std::string::npos);
  // as many elements as the tensor has, but one box twice over and a hole elsewhere
  EXPECT_NE(boxes({left, top, {{1, 2, 2, 4}, 16, 8}}).find("overlap"), std::string::npos);
  EXPECT_NE(boxes({{{0, 0, 4, 7}, 0, 28}}).find("reaches 7 on axis 1 of 6"), std::string::npos);
  EXPECT_NE(boxes({{{UINT64_MAX, 0, 2, 6}, 0, 12}}).find("on axis 0 of 4"), std::string::npos);
  EXPECT_NE(boxes({{{0, 0, 4, 6}, 0, 23}}).find("needs 24 bytes, 23 are stored"), std::string::npos);
}

TEST(Cover, StridesStayInTheirBytes) {
  auto strided = [](const Shape &box, uint64_t n_stored) {
    return finish({3, 4}, {{box, 0, n_stored}}, CKPT_EXTENT_STRIDED);
  };
  EXPECT_EQ(strided({0, 0, 3, 4, 1, 3}, 12), "");   // transposed
  EXPECT_EQ(strided({0, 0, 3, 4, 0, 1}, 4), "");    // expanded
  EXPECT_EQ(strided({0, 0, 3, 4, 10, 2}, 27), "");  // with gaps
  EXPECT_NE(strided({0, 0, 3, 4, 10, 2}, 26).find("needs 27 bytes"), std::string::npos);
  EXPECT_NE(strided({0, 0, 3, 4, UINT64_MAX, 1}, 12).find("strides are negative"), std::string::npos);
  EXPECT_NE(strided({0, 0, 3, 4, INT64_MAX, INT64_MAX}, 12).find("strides are negative or too large"),
            std::string::npos);
}

TEST(Cover, RandomGridsPassAndOneChangedNumberIsSeen) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(300); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Shape shape(random.between(1, 4));
    for (auto &extent : shape) extent = random.between(1, 5);
    std::vector<Piece> pieces(1);
    pieces[0].box = Shape(shape.size());
    pieces[0].box.insert(pieces[0].box.end(), shape.begin(), shape.end());
    for (int i = 0; i < 6; i++) {  // cut one of the pieces in two
      Piece &piece = pieces[random.below(pieces.size())];
      size_t axis = random.below(shape.size());
      uint64_t n = piece.box[shape.size() + axis], at = random.between(0, n);
      Piece high = piece;
      piece.box[shape.size() + axis] = at;
      high.box[axis] += at, high.box[shape.size() + axis] = n - at;
      pieces.push_back(high);
    }
    for (Piece &piece : pieces) {
      piece.n_stored = 1;
      for (size_t i = shape.size(); i < piece.box.size(); i++) piece.n_stored *= piece.box[i];
    }
    EXPECT_EQ(finish(shape, pieces, CKPT_EXTENT_BOX), "");
    Piece &changed = pieces[random.below(pieces.size())];
    if (changed.n_stored == 0) continue;
    changed.n_stored = 1000;
    uint64_t &number = changed.box[random.below(changed.box.size())];
    number = number != 0 && random.chance(50) ? number - 1 : number + 1;
    EXPECT_NE(finish(shape, pieces, CKPT_EXTENT_BOX), "");
  }
}

TEST(Cover, AMillionBoxesTakeSeconds) {
  const uint64_t n = 1000;  // a grid of n x n boxes of 2 x 3 units, shuffled
  ckpt_error err = {};
  ckpt_index *index = nullptr;
  ASSERT_EQ(ckpt_index_new(&index, memory_source({{"file", std::string(6, 'x')}}), "test", "fake", nullptr, &err),
            CKPT_OK);
  IndexPointer owner(index, ckpt_index_free);
  std::vector<uint64_t> boxes(4 * n * n);
  std::vector<ckpt_extent> extents(n * n);
  for (uint64_t i = 0; i < n * n; i++) {
    uint64_t place = i * 7919 % (n * n), *box = &boxes[4 * i];
    box[0] = place / n * 2, box[1] = place % n * 3, box[2] = 2, box[3] = 3;
    extents[i] = {};
    extents[i].n_stored = 6;
    extents[i].box = box;
  }
  uint64_t shape[] = {2 * n, 3 * n};
  ASSERT_EQ(ckpt_index_add(index, "t", 1, CKPT_U8, 2, shape, CKPT_ROLE_PARAMETER, extents.data(),
                           static_cast<uint32_t>(extents.size()), nullptr, &err),
            CKPT_OK);
  index->tensors[0].details->extent_form = CKPT_EXTENT_BOX;
  auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(ckpt_index_finish(index, &err), CKPT_OK) << text_of(err);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));  // 1 s without sanitizers
  started = std::chrono::steady_clock::now();
  EXPECT_EQ(read_all(index, &index->tensors[0]), std::vector<uint8_t>(6 * n * n, 'x'));
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
}

}  // namespace
