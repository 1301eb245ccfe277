// Writing of DeepSpeed's checkpoints: what is read back, in every stage and at uneven numbers of ranks; what they have
// no place for. That DeepSpeed itself goes on from them is tests/interop/test_deepspeed.py.
#include <math.h>

#include "tests/formats/reshard_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/";

const Target kTargets[] = {{"universal", 0, 1}, {"universal", 0, 3}, {"zero", 1, 1}, {"zero", 1, 5},
                           {"zero", 2, 3},      {"zero", 3, 1},      {"zero", 3, 4}, {"zero", 3, 17}};

// Runs with masters have all their tensors again, to the bit.
TEST(ZeroWrite, WhatIsReadIsWhatWasThere) {
  for (const char *name : {"stage1", "bf16-optimizer", "stage2-fp16", "round-robin", "alignment", "stage3-bf16",
                           "tensor-mean", "scalar-stage1", "fused-stage0-fp16", "fused-stage2", "offload-stage2"})
    for (const Target &target : kTargets) {
      Folder folder;
      ckpt_error err = {};
      const std::string out = folder / "out", back = folder / "back";
      ASSERT_EQ(write(kData + "zero/" + name, out, target, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(digest_of(out), digest_of(kData + "zero/" + name)) << name << " " << target.format << target.stage;
      ASSERT_EQ(write(out, back, {"zero", 3, 2}, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(digest_of(back), digest_of(kData + "zero/" + name)) << name << " " << target.format << target.stage;
    }
}

// Rows of a vocabulary that are there are not padding where they are read again, in a checkpoint of a lower stage.
TEST(ZeroWrite, PaddingThatIsKeptStays) {
  const std::string from = std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/noted-rows-of-one-in-stage-3";
  for (const Target &target : kTargets) {
    Folder folder;
    ckpt_error err = {};
    ASSERT_EQ(write(from, folder / "out", target, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(digest_of(folder / "out"), digest_of(from)) << target.format << target.stage;
  }
}

// Runs without masters get those that their parameters are.
TEST(ZeroWrite, ParametersAreTheirOwnMasters) {
  for (const char *name : {"zero/stage0", "zero/scalar-stage0", "dcp/fsdp4"})
    for (const Target &target : kTargets) {
      Folder folder;
      ckpt_error err = {};
      const std::string out = folder / "out", once = folder / "once";
      ASSERT_EQ(write(kData + name, out, target, &err), CKPT_OK) << text_of(err);
      ASSERT_EQ(write(kData + name, once, {"universal", 0, 1}, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(digest_of(out, "model"), digest_of(kData + name, "model")) << name;
      EXPECT_EQ(digest_of(out), digest_of(once)) << name << " " << target.format << target.stage;
      EXPECT_EQ(digest_of(out, "optimizer").rfind("ckpt1:", 0), 0u);
    }
}

TEST(ZeroWrite, ObjectsAreThoseOfTheRun) {
  for (const std::string name : {"stage2-fp16", "fused-stage2"})
    for (const Target &target : kTargets) {
      Folder folder;
      ckpt_error err = {};
      const std::string out = folder / "out";
      ASSERT_EQ(write(kData + "zero/" + name, out, target, &err), CKPT_OK) << text_of(err);
      IndexPointer was = open(kData + "zero/" + name, &err, false), is = open(out, &err, false);
      ASSERT_NE(is, nullptr) << text_of(err);
      EXPECT_EQ(is->step, 3);
      for (const char *key : {CKPT_STATE_PARAM_GROUPS, CKPT_STATE_SCHEDULER, CKPT_STATE_LOSS_SCALER})
        EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(was->objects, key), ckpt_object_get(is->objects, key))) << key;
      const ckpt_object *trainer = ckpt_object_get(is->objects, CKPT_STATE_TRAINER);
      EXPECT_STREQ(ckpt_object_get(trainer, "note")->text, "kept as it is");
      EXPECT_EQ(ckpt_object_get(trainer, "global_steps")->integer, 3);
      EXPECT_STREQ(is->format, target.format);
      for (uint32_t i = 0; i < is->n_notes; i++) EXPECT_FALSE(is->notes[i].is_problem) << is->notes[i].text;
    }
}

// Steps that are numbers of groups are tensors of parameters where torch goes on, and numbers again on the way back.
TEST(ZeroWrite, StepsThatAreNumbersGoThroughTorch) {
  for (const std::string name : {"fused-stage2", "offload-stage2", "offload-stage3-bf16", "muon-stage3"})
    for (const char *between : {"dcp", "torch"}) {
      Folder folder;
      ckpt_error err = {};
      const std::string from = kData + "zero/" + name, there = folder / "there.pt", back = folder / "back";
      ASSERT_EQ(write(from, there, {between, 0, 1}, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(digest_of(there), digest_of(from)) << name << " " << between;
      IndexPointer index = open(there, &err, false);
      const ckpt_tensor *step = ckpt_index_find(index.get(), "optimizer.state.norm.bias.step");
      float value = 0;
      ASSERT_TRUE(step != nullptr && step->rank == 0 && step->dtype == CKPT_F32) << name << " " << between;
      ASSERT_EQ(ckpt_read(index.get(), step, nullptr, CKPT_F32, &value, sizeof value, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(value, 3) << name << " " << between;
      ASSERT_EQ(write(there, back, {"zero", 3, 2}, &err), CKPT_OK) << text_of(err);
      EXPECT_EQ(digest_of(back), digest_of(from)) << name << " " << between;
      IndexPointer was = open(from, &err, false), is = open(back, &err, false);
      const ckpt_object *before = ckpt_object_get(was->objects, CKPT_STATE_PARAM_GROUPS),
                        *behind = ckpt_object_get(is->objects, CKPT_STATE_PARAM_GROUPS);
      ASSERT_EQ(before->n, behind->n);
      for (uint64_t g = 0; g < before->n; g++) {
        const ckpt_object *is_now = ckpt_object_get(behind->items[g], "step");
        EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(before->items[g], "step"), is_now)) << name << " " << between;
        EXPECT_TRUE(is_now == nullptr || is_now->kind == CKPT_OBJECT_INT)
            << name << " " << between; /* Muon's has none */
      }
    }
}

// Parts of several sizes are said as DeepSpeed says them, by an object of its own.
TEST(ZeroWrite, PartsOfSeveralSizesAreSaid) {
  Folder folder;
  ckpt_error err = {};
  const std::string zero = folder / "out/global_step3_universal/zero/";
  ASSERT_EQ(write(kData + "zero/grid-uneven", folder / "out", {"universal", 0, 1}, &err), CKPT_OK) << text_of(err);
  const std::string uneven =
      R"("sub_param_shape": {"deepspeed.checkpoint.universal_checkpoint.SubparamShape": [], "state": {"patterns": )";
  const std::pair<const char *, std::string> cases[] = {
      {"1.up.weight", R"(0, )" + uneven + R"(["\\d+\\.up\\.weight"], "shape": [[12, 8], 6], "partition_dim": 0}}})"},
      {"1.down.weight",
       R"(1, )" + uneven + R"(["\\d+\\.down\\.weight"], "shape": [6, [12, 8]], "partition_dim": 1}}})"},
      {"1.down.bias", R"(0})"}};
  for (const auto &[name, wanted] : cases) {
    IndexPointer index = open(zero + name + "/exp_avg.pt", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(ckpt_object_print(ckpt_object_get(index->objects, "torch"), 1000, &index->arena),
              R"({"param": "<tensor 0>", "cat_dim": )" + wanted);
  }
}

// With round-robin gradients param_shapes is in the order of the ranks; what is written, in that of the optimizer.
TEST(ZeroWrite, OrderIsThatOfTheOptimizer) {
  ckpt_error err = {};
  IndexPointer plain = open(kData + "zero/stage2-bf16", &err, false),
               mixed = open(kData + "zero/round-robin", &err, false);
  for (int group : {0, 1}) {
    const ckpt_object *a = ckpt_object_get(plain->objects, CKPT_STATE_PARAM_GROUPS)->items[group];
    const ckpt_object *b = ckpt_object_get(mixed->objects, CKPT_STATE_PARAM_GROUPS)->items[group];
    EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(a, "params"), ckpt_object_get(b, "params"))) << group;
  }
}

TEST(ZeroWrite, WeightsAloneGoByTheGroups) {
  for (const Target &target : kTargets) {
    Folder folder;
    ckpt_error err = {};
    const std::string out = folder / "out";
    ASSERT_EQ(write(kData + "zero/stage1", out, target, &err, "model"), CKPT_OK) << text_of(err);
    EXPECT_EQ(digest_of(out, "model"), digest_of(kData + "zero/stage1", "model"));
    IndexPointer index = open(out, &err, false);
    EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.up.weight.exp_avg"), nullptr);
    EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.fixed.weight.master"), nullptr);
  }
}

// Bytes do not depend on memory or on threads.
TEST(ZeroWrite, TilesDoNotMatter) {
  for (const Target &target : kTargets) {
    Folder folder;
    ckpt_error err = {};
    ASSERT_EQ(write(kData + "zero/stage3", folder / "a", target, &err), CKPT_OK) << text_of(err);
    ASSERT_EQ(write(kData + "zero/stage3", folder / "b", target, &err, "all", 5 << 20), CKPT_OK) << text_of(err);
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder / "a"))
      if (entry.is_regular_file()) {
        const std::string name = std::filesystem::relative(entry.path(), folder / "a");
        EXPECT_TRUE(slurp(entry.path()) == slurp(folder / ("b/" + name))) << name;
      }
  }
}

TEST(ZeroWrite, WhatHasNoPlaceIsNamed) {
  const struct {
    const char *input, *message;
    Target target;
  } cases[] = {
      {"gpt2-tiny", "parameters stand in the order of an optimizer in ZeRO, and the input names none", {"zero", 2, 2}},
      {"dcp/objects", "tensor 'optimizer.state.w.exp_avg': its parameter is no floating one", {"universal", 0, 1}},
      {"dcp/app.safetensors", "it has states, and the optimizer has no param_groups", {"zero", 1, 1}},
  };
  Folder other;
  ckpt_error wrong = {};
  EXPECT_EQ(write(kData + "zero/stage1", other / "out", {"zero", 4, 1}, &wrong), CKPT_EINVAL) << text_of(wrong);
  for (const auto &c : cases) {
    Folder folder;
    ckpt_error err = {};
    EXPECT_EQ(write(kData + c.input, folder / "out", c.target, &err), CKPT_EUNSUPPORTED);
    EXPECT_NE(text_of(err).find(c.message), std::string::npos) << text_of(err);
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

// A model of one parameter, and a master that is not of its shape.
TEST(ZeroWrite, MastersHaveTheShapeOfTheirParameters) {
  const std::string header =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
      "\"optimizer.state.a.master\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]}}";
  for (const Target &target : kTargets) {
    Folder folder;
    ckpt_error err = {};
    spill(folder / "in.safetensors", safetensors(header, std::string(32, '\0')));
    EXPECT_EQ(write(folder / "in.safetensors", folder / "out", target, &err, "all", 16 << 20, "model"),
              CKPT_EUNSUPPORTED);
    EXPECT_NE(text_of(err).find("a master of another shape than its parameter"), std::string::npos) << text_of(err);
    EXPECT_NE(text_of(err).find("optimizer.state.a.master"), std::string::npos) << text_of(err);
  }
}

// Masters of f32 would round what the parameters are.
TEST(ZeroWrite, ValuesThatMastersDoNotHoldAreRefused) {
  Folder folder;
  spill(folder / "f64.safetensors", safetensors("{\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                                                "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[16,32]},"
                                                "\"c\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}",
                                                std::string(40, '\0')));
  for (const Target &target : kTargets) {
    Folder work;
    ckpt_error err = {};
    EXPECT_EQ(write(folder / "f64.safetensors", work / "out", target, &err), CKPT_EUNSUPPORTED);
    EXPECT_NE(text_of(err).find("tensor 'a': its values are f64"), std::string::npos) << text_of(err);
    EXPECT_FALSE(std::filesystem::exists(work / "out"));
  }
}

// Stage 3 has one copy of a parameter, and that is not the one that was asked for.
TEST(ZeroWrite, WeightsOfTheModelAreNotMasters) {
  for (const Target &target : kTargets) {
    Folder work;
    ckpt_error err = {};
    const bool has_both = target.stage != 3;
    EXPECT_EQ(write(kData + "zero/stage2-bf16", work / "out", target, &err, "all", 16 << 20, "model"),
              has_both ? CKPT_OK : CKPT_EUNSUPPORTED)
        << text_of(err);
    if (has_both) continue;
    EXPECT_NE(text_of(err).find("stage 3 has masters and no weights of the model"), std::string::npos) << text_of(err);
  }
}

TEST(ZeroWrite, WhatMastersDoNotSayIsSaid) {
  const struct {
    std::string input;
    Target target;
    std::vector<std::string> losses;
  } cases[] = {
      {kData + "zero/stage2-fp16", {"universal", 0, 1}, {}},
      {kData + "zero/stage2-fp16", {"zero", 2, 1}, {}},
      {kData + "zero/stage2-fp16",
       {"zero", 3, 2},
       {"the model's own values of 6 parameters 308 B (stage 3 has masters)"}},
      {kData + "zero/stage0-bf16",
       {"zero", 3, 2},
       {"the model's own values of 6 parameters 308 B (stage 3 has masters)"}},
      {kData + "zero/stage3-bf16", {"zero", 3, 2}, {}},
      {kData + "dcp/fsdp4", {"zero", 3, 2}, {}},
  };
  for (const auto &c : cases) {
    Folder work;
    ckpt_error err = {};
    std::vector<std::string> losses;
    ASSERT_EQ(write(c.input, work / "out", c.target, &err, "all", 16 << 20, nullptr, &losses), CKPT_OK) << text_of(err);
    EXPECT_EQ(losses, c.losses) << c.input << " " << c.target.format << c.target.stage;
  }
}

// What many ranks take to describe is refused before it is taken.
TEST(ZeroWrite, ManyRanksAreWithinTheMemory) {
  for (uint32_t stage : {2, 3}) {
    Folder folder;
    ckpt_error err = {};
    EXPECT_EQ(write(kData + "zero/stage1", folder / "out", {"zero", stage, 4096}, &err, "all", 5 << 20), CKPT_ELIMIT);
    EXPECT_NE(text_of(err).find("the files of 35 tensors for 4096 ranks take more than"), std::string::npos)
        << text_of(err);
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

// Parameters that are numbers are not guessed, and what is left behind so is said.
TEST(ZeroWrite, NumberedParametersAreNotGuessed) {
  Folder folder, out;
  ckpt_error err = {};
  spill(folder / "a.safetensors",
        safetensors("{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"optimizer.state.0.exp_avg\":"
                    "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
                    std::string(32, '\0')));
  EXPECT_EQ(write(folder / "a.safetensors", out / "a", {"universal", 0, 1}, &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err).find("the optimizer numbers its parameters, and nothing says which is which"),
            std::string::npos)
      << text_of(err);
  std::filesystem::copy(std::string(CKPT_TESTS_DIR) + "/data/llama-tiny", folder / "checkpoint-500",
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(std::string(CKPT_TESTS_DIR) + "/data/torch/views.pt", folder / "checkpoint-500/optimizer.pt");
  const struct {
    const char *include;
    std::vector<std::string> losses;
  } cases[] = {{"all", {"the optimizer's states in optimizer.pt, which are not read (inspect says why)"}},
               {"model", {"1 file of training state (optimizer.pt)"}}};
  for (const auto &c : cases) {
    std::vector<std::string> losses;
    err = {};
    ASSERT_EQ(write(folder / "checkpoint-500", out / c.include, {"universal", 0, 1}, &err, c.include, 16 << 20, nullptr,
                    &losses),
              CKPT_OK)
        << text_of(err);
    EXPECT_EQ(losses, c.losses);
    EXPECT_EQ(std::filesystem::exists(out / c.include + "/optimizer.pt"), c.include == std::string("all"));
  }
  spill(folder / "checkpoint-500/optimizer.pt", "damaged");
  EXPECT_EQ(write(folder / "checkpoint-500", out / "none", {"universal", 0, 1}, &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err).find("its states are not read"), std::string::npos) << text_of(err);
}

// A run saves one tag after the other into a folder, and converters put theirs beside them: what `latest` says is
// whole.
TEST(ZeroWrite, OtherTagsAreOtherCheckpoints) {
  const auto all = std::filesystem::copy_options::recursive;
  for (const char *unread : {"", "latest"}) {
    Folder folder, out;
    std::filesystem::copy(kData + "zero/stage1", folder / "in", all);
    std::filesystem::copy(kData + "zero/stage1/global_step3", folder / "in/global_step5", all);
    std::filesystem::copy(kData + "universal/stage2-bf16", folder / "in", all);
    if (*unread != '\0') std::filesystem::remove(folder / "in/latest");
    ckpt_error err = {};
    std::vector<std::string> losses;
    ASSERT_EQ(write(folder / "in", out / "out", {"universal", 0, 1}, &err, "all", 16 << 20, nullptr, &losses), CKPT_OK)
        << text_of(err);
    EXPECT_EQ(losses, std::vector<std::string>()) << unread;
    EXPECT_EQ(digest_of(out / "out"), digest_of(kData + (*unread == '\0' ? "zero/stage1" : "universal/stage2-bf16")));
    IndexPointer index = open(folder / "in", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_STREQ(index->notes[0].text,
                 *unread == '\0'
                     ? "also holds other checkpoints: global_step3_universal/, global_step5/, latest_universal"
                     : "also holds other checkpoints: global_step3/, global_step5/");
  }
}

// accelerate's is pytorch_model, and client code may give any. What lies beside the save goes along.
TEST(ZeroWrite, TagsOfOnesOwnAreFollowed) {
  const auto all = std::filesystem::copy_options::recursive;
  for (const char *other : {"", "epoch2"}) {
    Folder folder, out;
    std::filesystem::create_directory(folder / "in");
    std::filesystem::copy(kData + "zero/stage1/global_step3", folder / "in/best", all);
    if (*other != '\0') std::filesystem::copy(folder / "in/best", (folder / "in/") + other, all);
    spill(folder / "in/latest", std::string("best"));
    spill(folder / "in/random_states_0.pkl", std::string("N."));
    ckpt_error err = {};
    IndexPointer index = open(folder / "in", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(digest_of(folder / "in"), digest_of(kData + "zero/stage1"));
    ASSERT_EQ(write(folder / "in", out / "out", {"universal", 0, 1}, &err, "all"), CKPT_OK) << text_of(err);
    EXPECT_EQ(slurp(out / "out/random_states_0.pkl"), "N.");
    ASSERT_EQ(write(out / "out", out / "zero", {"zero", 1, 3}, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(slurp(out / "zero/latest"), "best");
    EXPECT_TRUE(std::filesystem::exists(out / "zero/best/mp_rank_00_model_states.pt"));
    ASSERT_EQ(write(folder / "in", out / "zero", {"zero", 2, 2}, &err, "all", 16 << 20, nullptr, nullptr, true),
              CKPT_OK)
        << text_of(err);
    EXPECT_FALSE(std::filesystem::exists(out / "zero/best/zero_pp_rank_2_mp_rank_00_optim_states.pt"));
    spill(folder / "in/latest", std::string("worst"));
    EXPECT_EQ(open(folder / "in", &err, false), nullptr);
    EXPECT_NE(text_of(err).find("worst"), std::string::npos) << text_of(err);
  }
}

// DCP tells no buffers from frozen parameters, of which an engine of stage 3 has pieces alone.
TEST(ZeroWrite, BuffersOfAnyModelAreBuffers) {
  Folder folder;
  ckpt_error err = {};
  const std::string dcp = folder / "dcp", zero = folder / "zero";
  ASSERT_EQ(write(kData + "zero/hpz", dcp, {"dcp", 0, 1}, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(write(dcp, zero, {"zero", 3, 2}, &err), CKPT_OK) << text_of(err);
  IndexPointer before = open(dcp, &err, false), after = open(zero, &err, false);
  ASSERT_NE(before, nullptr) << text_of(err);
  ASSERT_NE(after, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_find(before.get(), "count")->role, CKPT_ROLE_PARAMETER);
  EXPECT_EQ(ckpt_index_find(after.get(), "count")->role, CKPT_ROLE_BUFFER);
  EXPECT_EQ(ckpt_index_find(after.get(), "scale")->role, CKPT_ROLE_PARAMETER);  // f32: it could be either
}

// With force: whatever ours was at the output, of the same step; a file that is none of ours stays, and all with it.
TEST(ZeroWrite, AFormerOutputIsReplaced) {
  const std::string input = kData + "zero/stage1", tag = "global_step3/";
  auto replace = [&](const Folder &folder, const Target &target, const char *include = "all") {
    ckpt_error err = {};
    return write(input, folder / "out", target, &err, include, 16 << 20, nullptr, nullptr, true) == CKPT_OK
               ? ""
               : text_of(err);
  };
  for (const Target &former : kTargets)
    for (const Target &target : {Target{"zero", 1, 2}, Target{"zero", 3, 2}, Target{"universal", 0, 2}}) {
      Folder folder, fresh;
      ASSERT_EQ(replace(folder, former), "");
      ASSERT_EQ(replace(fresh, target), "");
      const Names before = folder.tree();
      const std::string said = replace(folder, target);
      const bool is_same = strcmp(former.format, target.format) == 0;
      EXPECT_EQ(said == "", is_same) << said;
      EXPECT_EQ(folder.tree(), is_same ? fresh.tree() : before) << former.stage << former.world << target.stage;
    }
  Folder states, without; /* a universal checkpoint without moments in place of one with */
  ASSERT_EQ(replace(states, {"universal", 0, 3}), "");
  ASSERT_TRUE(std::filesystem::exists(states / "out/global_step3_universal/zero/up.bias/exp_avg.pt"));
  EXPECT_EQ(replace(states, {"universal", 0, 1}, "model"), "");
  ASSERT_EQ(replace(without, {"universal", 0, 1}, "model"), "");
  EXPECT_EQ(states.tree(), without.tree());
  const struct {
    Target former;
    std::string stray, missing, said;
  } cases[] = {
      {{"zero", 1, 4}, tag + "notes.pt", "", "notes.pt"},
      {{"zero", 1, 4}, tag + "zero_pp_rank_1_mp_rank_01_optim_states.pt", "", "mp_rank_01"},
      {{"zero", 1, 4}, tag + "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "", "bf16_"},
      {{"zero", 1, 4}, "", tag + "zero_pp_rank_2_mp_rank_00_optim_states.pt", "rank_3"},
      {{"zero", 3, 4}, "", tag + "zero_pp_rank_3_mp_rank_00_model_states.pt", "rank_3"},
      {{"zero", 1, 4}, "", "latest", "rank_3"},
      {{"zero", 1, 4}, "global_step2/mp_rank_00_model_states.pt", "", "global_step2/"},
      {{"zero", 1, 4}, "zero_to_fp32.py", "", "zero_to_fp32.py"},
      {{"universal", 0, 4}, "global_step3_universal/zero/notes", "", "zero/notes"},
      {{"universal", 0, 4}, "global_step3_universal/zero/w2/fp32.pt", "", "zero/w2/"},
      {{"universal", 0, 4}, "", "global_step3_universal/zero/optimizer_state.pt", "rank_3"},
  };
  for (const auto &c : cases) {
    Folder folder;
    ASSERT_EQ(replace(folder, c.former), "");
    if (!c.stray.empty()) folder.write("out/" + c.stray, "theirs");
    if (!c.missing.empty()) {
      ASSERT_TRUE(std::filesystem::remove(folder / ("out/" + c.missing))) << c.missing;
    }
    const Names before = folder.tree();
    const std::string said = replace(folder, {c.former.format, 2, 2});
    EXPECT_NE(said.find(c.said), std::string::npos) << c.stray << c.missing << ": " << said;
    EXPECT_NE(said.find("would not be written anew"), std::string::npos) << said;
    EXPECT_EQ(folder.tree(), before);
  }
}

// Objects that no file of DeepSpeed holds: they end, and are named.
class HostileObjects : public ::testing::Test {
 protected:
  void SetUp() override {
    ckpt_error err = {};
    index_ = open_bytes(bytes_, &err);
    ASSERT_NE(index_, nullptr) << text_of(err);
    arena_ = &index_->arena;
    index_->objects = Dict(10);
  }
  ckpt_object *Dict(uint64_t n) {
    ckpt_object *dict = ckpt_object_new(arena_, CKPT_OBJECT_DICT, n, nullptr);
    dict->n = 0;
    return dict;
  }
  void Set(ckpt_object *dict, const char *key, ckpt_object *value) {
    dict->items[2 * dict->n] = ckpt_object_text(arena_, key, strlen(key));
    dict->items[2 * dict->n++ + 1] = value;
  }
  ckpt_object *List(ckpt_object *item) {
    ckpt_object *list = ckpt_object_new(arena_, CKPT_OBJECT_LIST, 1, nullptr);
    list->items[0] = item;
    return list;
  }
  ckpt_object *Cycle() {
    ckpt_object *inner = List(nullptr);
    return inner->items[0] = List(inner);
  }
  // What is lost on the way; the checkpoint is read again.
  std::vector<std::string> Losses(const char *format) {
    Folder folder;
    ckpt_error err = {};
    std::vector<std::string> losses;
    spill(folder, formats_testing::write(format, index_.get(), {}, &err, &losses));
    EXPECT_EQ(err.status, CKPT_OK) << text_of(err);
    again_ = open(folder.path(), &err, false);
    EXPECT_NE(again_, nullptr) << text_of(err);
    return losses;
  }

  const std::string bytes_ =
      safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", std::string(16, '\0'));
  IndexPointer index_{nullptr, ckpt_index_free}, again_{nullptr, ckpt_index_free};
  ckpt_arena *arena_ = nullptr;
};

TEST_F(HostileObjects, CyclesAndDepthsAreNoData) {
  ckpt_object *group = Dict(3), *scheduler = Dict(2), *trainer = Dict(2), *deep = ckpt_object_none(arena_);
  for (int i = 0; i < 300; i++) deep = List(deep);
  Set(group, "lr", ckpt_object_float(arena_, 0.5));
  Set(group, "betas", Cycle());
  Set(group, "params", List(ckpt_object_text(arena_, "a", 1)));
  Set(scheduler, "self", scheduler);
  Set(trainer, "note", ckpt_object_text(arena_, "kept", 4));
  Set(trainer, "again", trainer);
  Set(index_->objects, CKPT_STATE_PARAM_GROUPS, List(group));
  Set(index_->objects, CKPT_STATE_SCHEDULER, scheduler);
  Set(index_->objects, CKPT_STATE_TRAINER, trainer);
  Set(index_->objects, "client_state.deep", deep);
  for (const char *format : {"zero", "universal"}) {
    EXPECT_EQ(
        Losses(format),
        (std::vector<std::string>{
            "optimizer.param_groups.betas (it has no end or is more than 200 deep, or holds tensors that stand "
            "elsewhere)",
            "scheduler (it has no end or is more than 200 deep, or holds tensors that stand elsewhere)",
            "trainer.again (it has no end or is more than 200 deep, or holds tensors that stand elsewhere)",
            "client_state.deep (it has no end or is more than 200 deep, or holds tensors that stand elsewhere)"}));
    ASSERT_NE(again_, nullptr);
    const ckpt_object *groups = ckpt_object_get(again_->objects, CKPT_STATE_PARAM_GROUPS);
    ASSERT_TRUE(groups != nullptr && groups->n == 1);
    EXPECT_EQ(ckpt_object_get(groups->items[0], "lr")->number, 0.5);
    EXPECT_EQ(ckpt_object_get(groups->items[0], "betas"), nullptr);
    EXPECT_STREQ(ckpt_object_get(ckpt_object_get(again_->objects, CKPT_STATE_TRAINER), "note")->text, "kept");
  }
}

TEST_F(HostileObjects, NamesOutsideTheModelAreNotItsNames) {
  ckpt_error err = {};
  ckpt_object *group = Dict(1);
  Set(group, "params", List(ckpt_object_text(arena_, "a", 1)));
  Set(index_->objects, CKPT_STATE_PARAM_GROUPS, List(group));
  ASSERT_EQ(ckpt_index_alias_as(index_.get(), 0, "ema.a", CKPT_ROLE_OTHER, &err), CKPT_OK) << text_of(err);
  for (const char *format : {"universal", "zero"}) {
    EXPECT_EQ(Losses(format), (std::vector<std::string>{"name ema.a (of a, outside the model)"}));
    ASSERT_NE(again_, nullptr);
    EXPECT_EQ(again_->n_aliases, 0u);
  }
}

// A prefix that the reader adds is taken off again, and no other; what would stand in one place is named.
TEST_F(HostileObjects, ObjectsKeepTheirKeys) {
  for (const char *format : {"zero", "universal"}) {
    ckpt_object *group = Dict(1);
    Set(group, "params", List(ckpt_object_text(arena_, "a", 1)));
    index_->objects->n = 0;
    Set(index_->objects, CKPT_STATE_PARAM_GROUPS, List(group));
    for (const char *key : {"foo", "client_state.foo", "client_state.module", "client_state.loss_scaler"})
      Set(index_->objects, key, List(ckpt_object_text(arena_, key, strlen(key))));
    EXPECT_EQ(Losses(format), std::vector<std::string>());
    ASSERT_NE(again_, nullptr);
    for (const char *key : {"foo", "client_state.foo", "client_state.module", "client_state.loss_scaler"}) {
      const ckpt_object *list = ckpt_object_get(again_->objects, key);
      ASSERT_TRUE(list != nullptr && list->kind == CKPT_OBJECT_LIST) << format << " " << key;
      EXPECT_STREQ(list->items[0]->text, key);
    }
    ckpt_object *trainer = Dict(1);
    Set(trainer, "scheduler", ckpt_object_int(arena_, 1));
    Set(index_->objects, CKPT_STATE_TRAINER, trainer);
    Set(index_->objects, CKPT_STATE_RNG, List(ckpt_object_int(arena_, 2)));
    Set(index_->objects, "client_state.rng", List(ckpt_object_int(arena_, 3)));
    index_->objects->items[2] = ckpt_object_text(arena_, "client_state.scheduler", 22);  // that was foo
    EXPECT_EQ(Losses(format),
              (std::vector<std::string>{"client_state.scheduler (DeepSpeed has one place for it and scheduler)",
                                        "client_state.rng (DeepSpeed has one place for it and rng)"}));
  }
}

// How many steps without an overflow go by before DeepSpeed's scaler grows (update_scale of its loss_scaler.py).
int64_t StepsToGrowth(const ckpt_object *state) {
  const int64_t last = ckpt_object_get(state, "last_overflow_iter")->integer;
  const int64_t window = ckpt_object_get(state, "scale_window")->integer;
  int64_t iter = ckpt_object_get(state, "cur_iter")->integer, n = 1;
  while (iter - last - 1 <= 0 || (iter - last - 1) % window != 0) iter++, n++;
  return n;
}

// torch's scaler becomes DeepSpeed's that grows at the same step; one that DeepSpeed's cannot be is named.
TEST_F(HostileObjects, GradScalers) {
  const struct {
    double scale, growth, backoff;
    int64_t interval, tracker;
    bool is_kept;
  } cases[] = {{65536, 2, 0.5, 2000, 0, true},  {1024, 2, 0.5, 4, 3, true}, {0.5, 4, 0.25, 7, 5, true},
               {8, 2, 0.5, 1, 0, true},         {8, 2, 0.25, 4, 0, false},  {8, 3, 1.0 / 3, 4, 0, false},
               {8, 1, 1, 4, 0, false},          {8, 2, 0.5, 4, 4, false},   {8, 2, 0.5, 4, -1, false},
               {-8, 2, 0.5, 4, 0, false},       {8, 2, 0.5, 0, 0, false},   {NAN, 2, 0.5, 4, 0, false},
               {INFINITY, 2, 0.5, 4, 0, false}, {8, NAN, NAN, 4, 0, false}, {8, INFINITY, 0, 4, 0, false},
               {8, 2, 0.5, INT64_MAX, 9, true}};
  for (const auto &c : cases)
    for (const char *format : {"zero", "universal"}) {
      ckpt_object *group = Dict(1), *scaler = Dict(5);
      Set(group, "params", List(ckpt_object_text(arena_, "a", 1)));
      index_->objects->n = 0;
      Set(index_->objects, CKPT_STATE_PARAM_GROUPS, List(group));
      Set(index_->objects, CKPT_STATE_LOSS_SCALER, scaler);
      EXPECT_EQ(Losses(format), std::vector<std::string>()) << "of a scaler that is off";
      Set(scaler, "scale", ckpt_object_float(arena_, c.scale));
      Set(scaler, "growth_factor", ckpt_object_float(arena_, c.growth));
      Set(scaler, "backoff_factor", ckpt_object_float(arena_, c.backoff));
      Set(scaler, "growth_interval", ckpt_object_int(arena_, c.interval));
      EXPECT_EQ(Losses(format).size(), 1u) << "without its count";
      Set(scaler, "_growth_tracker", ckpt_object_int(arena_, c.tracker));
      const std::vector<std::string> losses = Losses(format);
      ASSERT_NE(again_, nullptr);
      const ckpt_object *state = ckpt_object_get(again_->objects, CKPT_STATE_LOSS_SCALER);
      ASSERT_NE(state, nullptr);
      EXPECT_EQ(losses.size(), c.is_kept ? 0u : 1u) << c.growth << " " << c.tracker;
      ASSERT_EQ(ckpt_object_get(state, "scale_window") != nullptr, c.is_kept) << c.growth << " " << c.tracker;
      EXPECT_EQ(ckpt_object_get(state, "cur_scale")->number, c.is_kept ? c.scale : 1);
      if (!c.is_kept) continue;
      EXPECT_EQ(ckpt_object_get(state, "scale_factor")->number, c.growth);
      if (c.interval > 10000) continue;
      EXPECT_EQ(StepsToGrowth(state), c.interval - c.tracker);
    }
}

TEST_F(HostileObjects, GroupsAreAListOfDicts) {
  ckpt_object *of_number = List(ckpt_object_int(arena_, 7)), *of_group = List(Dict(1));
  for (ckpt_object *groups : {of_number, List(of_group), Dict(1), Cycle()}) {
    index_->objects->n = 0;
    Set(index_->objects, CKPT_STATE_PARAM_GROUPS, groups);
    EXPECT_EQ(Losses("universal"), (std::vector<std::string>{"optimizer.param_groups (no list of groups)"}));
    ASSERT_NE(again_, nullptr);
    EXPECT_NE(ckpt_index_find(again_.get(), "a"), nullptr);
  }
}

}  // namespace
}  // namespace formats_testing
