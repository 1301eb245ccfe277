// The table of dtypes: what it says of itself, and ggml's numbers.
extern "C" {
#include "libckpt/base/dtype.h"
}

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace {

TEST(Dtype, NamesAreReadInAnyCase) {
  std::set<std::string> names;
  for (int i = 1; i < CKPT_N_DTYPES; i++) {
    ckpt_dtype dtype = static_cast<ckpt_dtype>(i);
    std::string name = ckpt_dtype_name(dtype), small;
    for (char c : name) small += static_cast<char>(tolower(c));
    EXPECT_TRUE(names.insert(small).second) << name;
    EXPECT_EQ(ckpt_dtype_parse(name.c_str()), dtype);
    EXPECT_EQ(ckpt_dtype_parse(small.c_str()), dtype);
  }
}

// The mask is a range of ids: a block type that is added elsewhere is found here.
TEST(Dtype, TheMaskOfBlockTypesIsTheirKind) {
  for (int i = 0; i < CKPT_N_DTYPES; i++) {
    bool is_block = ckpt_dtype_is_block(static_cast<ckpt_dtype>(i));
    EXPECT_EQ((CKPT_BLOCK_DTYPES >> i & 1) != 0, is_block) << ckpt_dtype_name(static_cast<ckpt_dtype>(i));
    EXPECT_FALSE(is_block && ckpt_dtype_is_float(static_cast<ckpt_dtype>(i)));
  }
}

// ggml's enum as of 0.25.3 has 43 numbers, of which 4, 5, 31 to 33 and 36 to 38 are gone.
TEST(Dtype, EveryNumberOfGgmlHasOneDtype) {
  const std::set<uint32_t> gone = {4, 5, 31, 32, 33, 36, 37, 38};
  for (uint32_t number = 0; number < 50; number++) {
    ckpt_dtype dtype = ckpt_dtype_of_ggml(number);
    EXPECT_EQ(dtype == CKPT_DTYPE_NONE, number > 42 || gone.count(number) == 1) << number;
    EXPECT_EQ(ckpt_dtype_get(dtype)->ggml, dtype == CKPT_DTYPE_NONE ? -1 : static_cast<int>(number));
  }
  EXPECT_EQ(ckpt_dtype_of_ggml(UINT32_MAX), CKPT_DTYPE_NONE);
  EXPECT_EQ(ckpt_dtype_of_ggml(12), CKPT_Q4_K);
  EXPECT_EQ(ckpt_dtype_of_ggml(30), CKPT_BF16);
}

TEST(Dtype, BlocksHaveWholeSizes) {
  uint64_t n_bytes = 0;
  EXPECT_TRUE(ckpt_dtype_bytes(CKPT_Q4_K, 512, &n_bytes));
  EXPECT_EQ(n_bytes, 288u);
  EXPECT_FALSE(ckpt_dtype_bytes(CKPT_Q4_K, 384, &n_bytes));
}

}  // namespace
