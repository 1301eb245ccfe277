// ZeRO of runs like LoRA's: a frozen parameter with two names, which DeepSpeed may leave out of what it saves
// (tests/data/make_zero_frozen.py); and the loss scale of a run without ZeRO. That DeepSpeed goes on from what is
// written is tests/interop/test_deepspeed_frozen.py.
#include "tests/formats/reshard_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/zero/";
const Target kTargets[] = {{"universal", 0, 1}, {"zero", 1, 2}, {"zero", 2, 3}, {"zero", 3, 1}, {"zero", 3, 4}};

TEST(ZeroFrozen, TensorsAreThoseOfTheRunThatWroteThem) {
  for (const char *name : {"frozen-ties", "frozen-left-over", "frozen-left-over-stage2", "stage0-fp16"}) {
    EXPECT_EQ(digest_of(kData + name), digest_of(kData + name + ".safetensors")) << name;
    for (const Target &target : kTargets) {
      Folder folder;
      ckpt_error err = {};
      ASSERT_EQ(write(kData + name, folder / "out", target, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(digest_of(folder / "out"), digest_of(kData + name)) << name << " " << target.format << target.stage;
    }
  }
}

TEST(ZeroFrozen, WhatASaveLeftOutIsNotHalfThere) {
  for (const char *name : {"frozen-left-over", "frozen-left-over-stage2"}) {
    ckpt_error err = {};
    IndexPointer index = open(kData + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(ckpt_index_find(index.get(), "again.weight"), nullptr);
    EXPECT_NE(ckpt_index_find(index.get(), "learned.weight"), nullptr);
    ASSERT_GE(index->n_notes, 1u);
    EXPECT_STREQ(index->notes[0].text,
                 "not read: again.weight, another name of a frozen parameter that this save left out "
                 "(exclude_frozen_parameters)");
  }
}

// An engine looks for the name that is first in its model, which no other format says.
TEST(ZeroFrozen, FragmentsHaveAllNames) {
  for (uint32_t stage : {2u, 3u}) {
    Folder folder;
    ckpt_error err = {};
    ASSERT_EQ(write(kData + "frozen-ties", folder / "out", {"zero", stage, 2}, &err), CKPT_OK) << text_of(err);
    const std::string file = std::string(stage == 3 ? "zero_pp_rank_1_" : "") + "mp_rank_00_model_states.pt";
    IndexPointer index = open(folder / "out/global_step3/" + file, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    for (const char *name : {"first", "again"})
      EXPECT_NE(ckpt_index_find(index.get(), (std::string("frozen_param_fragments.") + name + ".weight").c_str()),
                nullptr)
          << name << stage;
  }
}

TEST(ZeroFrozen, ARunWithoutZeroHasALossScale) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "stage0-fp16", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *scaler = ckpt_object_get(index->objects, CKPT_STATE_LOSS_SCALER);
  ASSERT_NE(scaler, nullptr);
  EXPECT_EQ(ckpt_object_get(scaler, "cur_scale")->number, 16);
  EXPECT_EQ(ckpt_object_get(scaler, "scale_factor")->number, 2);
  EXPECT_EQ(ckpt_object_get(scaler, "min_scale")->number, 2);
  EXPECT_EQ(ckpt_object_get(scaler, "cur_iter")->integer, 3);
  EXPECT_EQ(ckpt_object_get(scaler, "last_overflow_iter")->integer, -1);
  EXPECT_EQ(ckpt_object_get(scaler, "scale_window")->integer, 1000);
  for (const Target &target : kTargets) {
    Folder folder;
    ASSERT_EQ(write(kData + "stage0-fp16", folder / "out", target, &err), CKPT_OK) << text_of(err);
    IndexPointer back = open(folder / "out", &err, false);
    ASSERT_NE(back, nullptr) << text_of(err);
    EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(back->objects, CKPT_STATE_LOSS_SCALER), scaler)) << target.format;
  }
}

}  // namespace
}  // namespace formats_testing
