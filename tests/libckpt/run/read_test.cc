// ckpt_read against the oracle: tensors stored in every way, whole and in boxes, as stored and cast.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/run/read.h"
}

namespace {

using namespace fake;

TEST(Read, BoxesOfEveryExtentFormMatchTheOracle) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(60); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Store store(&random);
    for (int i = 0; i < 6; i++) {
      ckpt_dtype dtype = random_dtype(&random);
      store.add("t" + std::to_string(i), random_array(&random, dtype, random_shape(&random, dtype, 5, 40000)));
    }
    ckpt_error err = {};
    IndexPointer index = store.build(&err);
    ASSERT_TRUE(index) << text_of(err);
    for (const Stored &stored : store.tensors()) {
      SCOPED_TRACE(stored.name + " " + ckpt_dtype_name(stored.array.dtype));
      const ckpt_tensor *tensor = ckpt_index_find(index.get(), stored.name.c_str());
      Array part = stored.array;
      ckpt_box box = {};
      uint64_t block = ckpt_dtype_get(part.dtype)->block_elements;
      for (uint32_t axis = 0; axis < tensor->rank; axis++) {
        uint64_t unit = axis + 1 == tensor->rank ? block : 1, n = stored.array.shape[axis] / unit;
        uint64_t start = random.between(0, n), count = random.between(0, n - start);
        box.start[axis] = start * unit, box.count[axis] = count * unit;
        part = slice(part, axis, box.start[axis], box.count[axis]);
      }
      std::vector<uint8_t> got(part.bytes.size());
      EXPECT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_DTYPE_NONE, got.data(), got.size(), &err), CKPT_OK)
          << text_of(err);
      EXPECT_EQ(got, part.bytes);
      EXPECT_EQ(read_all(index.get(), tensor), stored.array.bytes);
      if (part.dtype == CKPT_F16) {
        Array wide = cast(part, CKPT_F32);
        std::vector<uint8_t> converted(wide.bytes.size());
        EXPECT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_F32, converted.data(), converted.size(), &err), CKPT_OK);
        EXPECT_EQ(converted, wide.bytes);
      }
    }
  }
}

// Packed elements at any place, also where rows begin within a unit: what the whole tensor has there.
TEST(Read, BoxesThatCutUnitsAreCast) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(30); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Store store(&random);
    store.add("f4", random_array(&random, CKPT_F4_E2M1, {3, 2, 5}));
    store.add("f6", random_array(&random, CKPT_F6_E2M3, {4, 7, 3}));
    store.add("rows", random_array(&random, CKPT_F4_E2M1, {3, 5000}));
    store.add("flat", random_array(&random, CKPT_F6_E3M2, {8, 1253}));
    ckpt_error err = {};
    IndexPointer index = store.build(&err);
    ASSERT_TRUE(index) << text_of(err);
    for (const Stored &stored : store.tensors()) {
      SCOPED_TRACE(stored.name);
      const ckpt_tensor *tensor = ckpt_index_find(index.get(), stored.name.c_str());
      Array part = cast(stored.array, CKPT_F32);
      ckpt_box box = {};
      for (uint32_t axis = 0; axis < tensor->rank; axis++) {
        box.start[axis] = random.between(0, stored.array.shape[axis]);
        box.count[axis] = random.between(0, stored.array.shape[axis] - box.start[axis]);
        part = slice(part, axis, box.start[axis], box.count[axis]);
      }
      std::vector<uint8_t> got(part.bytes.size() + 1, 0xAA);
      EXPECT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_F32, got.data(), part.bytes.size(), &err), CKPT_OK)
          << text_of(err);
      EXPECT_EQ(got.back(), 0xAA) << "written past the end";
      got.pop_back();
      EXPECT_EQ(got, part.bytes);
    }
  }
}

// What a plan says of a box is what reading it reads: whole blocks, and the gaps between runs that lie close, along the
// axes where they do and no further.
TEST(Read, CostsWhatItSays) {
  struct Case {
    ckpt_dtype dtype;
    std::vector<uint64_t> shape, start, count;
    uint64_t n_read, n_fetched;
  };
  const std::vector<Case> cases = {
      {CKPT_F32, {300, 1000}, {0, 3}, {300, 1}, 1200, 1200 + 299 * 3996},
      {CKPT_F32, {300, 1025}, {0, 3}, {300, 1}, 1200, 1200 + 299 * 4096},
      {CKPT_F32, {300, 1026}, {0, 3}, {300, 1}, 1200, 1200},  // too far apart
      {CKPT_F32, {40, 30, 1000}, {1, 2, 0}, {38, 2, 1}, 304, 38 * (4000 + 4)},
      {CKPT_F32, {40, 30, 1000}, {1, 2, 0}, {38, 2, 1000}, 304000, 304000},
      {CKPT_F32, {8, 100000}, {0, 0}, {8, 60000}, 1920000, 1920000},  // as long as half a window
      {CKPT_F32, {40, 30}, {10, 0}, {5, 30}, 600, 600},
      {CKPT_F32, {40, 30}, {10, 0}, {0, 30}, 0, 0},
      {CKPT_F4_E2M1, {4, 64}, {0, 0}, {4, 1}, 4, 4},
      {CKPT_F4_E2M1, {4, 64}, {0, 1}, {4, 2}, 8, 8},
      {CKPT_F4_E2M1, {4, 5}, {0, 1}, {4, 1}, 4, 4},
      {CKPT_F4_E2M1, {4, 5}, {0, 1}, {4, 2}, 6, 6},  // whole blocks in every second row
      {CKPT_Q8_0, {4, 64}, {0, 0}, {4, 1}, 136, 136},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(std::string(ckpt_dtype_name(c.dtype)) + " " + std::to_string(&c - cases.data()));
    Random random(1);
    Store store(&random);
    store.add_plain("x", random_array(&random, c.dtype, c.shape));
    ckpt_error err = {};
    IndexPointer index = store.build(&err);
    ASSERT_TRUE(index) << text_of(err);
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), "x");
    ckpt_box box = {};
    uint64_t n_elements = 1, n_read = 1, n_fetched = 1;
    for (size_t axis = 0; axis < c.shape.size(); axis++) {
      box.start[axis] = c.start[axis], box.count[axis] = c.count[axis];
      n_elements *= c.count[axis];
    }
    ASSERT_EQ(ckpt_read_cost(index.get(), tensor, &box, &n_read, &n_fetched, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(n_read, c.n_read);
    EXPECT_EQ(n_fetched, c.n_fetched);
    std::vector<float> got(n_elements);
    const uint64_t before = ckpt_source_bytes_read(index->source);
    ASSERT_EQ(ckpt_read(index.get(), tensor, &box, CKPT_F32, got.data(), 4 * n_elements, &err), CKPT_OK)
        << text_of(err);
    const uint64_t n = ckpt_source_bytes_read(index->source) - before;
    EXPECT_LE(n, c.n_fetched);
    EXPECT_GE(n, c.n_fetched - c.n_fetched / 50);  // a window may end in a gap
  }
}

TEST(Read, RefusesWhatDoesNotFit) {
  Random random(1);
  Store store(&random);
  store.add_plain("x", random_array(&random, CKPT_F32, {4, 6}));
  store.add_plain("q", random_array(&random, CKPT_F4_E2M1, {4, 6}));
  ckpt_error err = {};
  IndexPointer index = store.build(&err);
  ASSERT_TRUE(index) << text_of(err);
  const ckpt_tensor *x = ckpt_index_find(index.get(), "x"), *q = ckpt_index_find(index.get(), "q");
  std::vector<uint8_t> out(96);
  ckpt_box past = {{1, 0}, {4, 6}}, wraps = {{1, 0}, {UINT64_MAX, 6}}, cut = {{0, 1}, {4, 2}};
  EXPECT_EQ(ckpt_read(index.get(), x, &past, CKPT_DTYPE_NONE, out.data(), 96, nullptr), CKPT_EINVAL);
  EXPECT_EQ(ckpt_read(index.get(), x, &wraps, CKPT_DTYPE_NONE, out.data(), 96, nullptr), CKPT_EINVAL);
  EXPECT_EQ(ckpt_read(index.get(), x, nullptr, CKPT_DTYPE_NONE, out.data(), 95, nullptr), CKPT_EINVAL);
  EXPECT_EQ(ckpt_read(index.get(), q, &cut, CKPT_DTYPE_NONE, out.data(), 4, nullptr), CKPT_EUNSUPPORTED);
  EXPECT_EQ(ckpt_read(index.get(), x, nullptr, CKPT_DTYPE_NONE, out.data(), 96, nullptr), CKPT_OK);
}

// Where bytes are, for callers with I/O of their own: only a file has a path.
TEST(Read, ExtentsSayWhereTheBytesAre) {
  const std::string header = R"({"w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}})";
  const uint64_t n_header = header.size();
  const std::string bytes = std::string(reinterpret_cast<const char *>(&n_header), 8) + header + "abcdef";
  std::string path = testing::TempDir() + "ckpt_extents_" + std::to_string(getpid()) + ".safetensors";
  FILE *file = fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  fclose(file);
  ckpt_error err = {};
  ckpt_index *indexes[2] = {};
  ASSERT_EQ(ckpt_open(&indexes[0], path.c_str(), nullptr, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(ckpt_open_memory(&indexes[1], bytes.data(), bytes.size(), "memory", nullptr, &err), CKPT_OK);
  for (ckpt_index *index : indexes) {
    ckpt_extent_view view = {};
    view.struct_size = sizeof view;
    const ckpt_tensor *tensor = ckpt_index_find(index, "w");
    ASSERT_TRUE(ckpt_tensor_extents(index, tensor, 0, &view));
    EXPECT_STREQ(view.file, index == indexes[0] ? path.c_str() : nullptr);
    EXPECT_EQ(view.offset, 8 + n_header);
    EXPECT_EQ(view.n_bytes, 6u);
    EXPECT_TRUE(view.flat && view.raw);
    EXPECT_EQ(view.start[0], 0u);
    EXPECT_EQ(view.count[0], 6u);
    EXPECT_FALSE(ckpt_tensor_extents(index, tensor, 1, &view));
    ckpt_index_free(index);
  }
  unlink(path.c_str());
}

// A literal is stored nowhere: its value is no offset that a program could read at.
TEST(Read, AnExtentThatIsALiteralHasNoPlace) {
  Random random(1);
  Store store(&random);
  for (uint64_t value : {UINT64_C(0), UINT64_C(0x3fc00000)}) {
    Array two = random_array(&random, CKPT_F64, {2});
    ckpt_extent literal = {};
    literal.file = CKPT_FILE_LITERAL, literal.offset = value, literal.count = 2;
    store.add_plain(value == 0 ? "zeros" : "value", two).extents = {literal};
  }
  ckpt_error err = {};
  IndexPointer index = store.build(&err);
  ASSERT_TRUE(index) << text_of(err);
  for (const char *name : {"zeros", "value"}) {
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), name);
    ckpt_extent_view view = {};
    view.struct_size = sizeof view;
    ASSERT_TRUE(ckpt_tensor_extents(index.get(), tensor, 0, &view));
    EXPECT_EQ(view.file, nullptr);
    EXPECT_EQ(view.offset, 0u) << name;
    EXPECT_EQ(view.n_bytes, 0u);
    EXPECT_FALSE(view.raw) << name;
    EXPECT_TRUE(view.flat);
    EXPECT_EQ(view.count[0], 2u);
    uint64_t out[2] = {7, 7}, wanted = name[0] == 'z' ? 0 : UINT64_C(0x3fc00000);
    EXPECT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_DTYPE_NONE, out, sizeof out, &err), CKPT_OK);
    EXPECT_EQ(out[0], wanted);
    EXPECT_EQ(out[1], wanted);
  }
}

TEST(Read, ACastThatLosesANaNIsRefused) {
  Random random(1);
  Store store(&random, 1);
  Array x = zeros(CKPT_F32, {2});
  const float values[] = {__builtin_nanf(""), 1};
  memcpy(x.bytes.data(), values, sizeof values);
  store.add_plain("x", x);
  ckpt_error err = {};
  IndexPointer index = store.build(&err);
  ASSERT_TRUE(index) << text_of(err);
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "x");
  uint8_t bytes[2];
  EXPECT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_F4_E2M1, bytes, 1, &err), CKPT_EVALUE);
  EXPECT_EQ(text_of(err), "store: tensor 'x': 1 NaN has no form in f4_e2m1 (another dtype)");
  EXPECT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_F8_E5M2, bytes, 2, nullptr), CKPT_OK);
}

}  // namespace
