// What of a ZeRO checkpoint is no tensor: groups of the optimizer, schedulers, loss scalers, client state.
#include "tests/formats/formats_testing.h"

namespace formats_testing {
namespace {

const std::string kErrors = std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/";

// Thousands of groups can share one list: the first of them has its names, which no other can have.
TEST(ZeroObjects, NamesAreOfOneGroup) {
  ckpt_error err = {};
  IndexPointer index = open(kErrors + "noted-groups-again", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_EQ(groups->n, 4096u);
  const ckpt_object *first = ckpt_object_get(groups->items[0], "params");
  ASSERT_EQ(first->n, 2u);
  EXPECT_STREQ(first->items[1]->text, "b");
  for (uint64_t g = 1; g < groups->n; g++) {
    const ckpt_object *params = ckpt_object_get(groups->items[g], "params");
    ASSERT_TRUE(params->n == 1 && params->items[0]->kind == CKPT_OBJECT_INT) << g;
  }
}

}  // namespace
}  // namespace formats_testing
