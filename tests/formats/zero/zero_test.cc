// DeepSpeed's ZeRO: folders that it wrote (tests/data/make_zero.py) against the full tensors that were gathered in the
// runs that wrote them, and what is left of them after damage. Hostile ones are in tests/golden-errors/zero.
#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/recipe/verify/verify.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/zero/";
const char *const kCases[] = {"stage0",      "stage0-bf16", "stage1", "bf16-optimizer", "stage2-bf16", "stage2-fp16",
                              "round-robin", "alignment",   "stage3", "stage3-bf16",    "wrapped"};

// What options change: overflows, optimizers on the CPU whose steps are tensors or numbers, masters and states in bf16,
// parameters that groups of ranks have once more, one without axes, FusedAdam and its rows of masters.
const char *const kOptionCases[] = {"fp16-skipped",
                                    "offload-stage2",
                                    "offload-stage2-fp16",
                                    "offload-stage3-bf16",
                                    "bf16-states",
                                    "bf16-states-stage3",
                                    "hpz",
                                    "scalar-stage0",
                                    "scalar-stage1",
                                    "muon-stage1",
                                    "muon-stage2-offload",
                                    "muon-stage3",
                                    "fused-stage2",
                                    "fused-stage0-fp16",
                                    "fused-stage0-bf16-groups"};

// Of runs on more than data-parallel ranks (make_zero_moe.py, make_zero_pipe.py, make_zero_grid.py).
const char *const kParallelCases[] = {"moe-stage0",  "moe-stage1-bf16", "moe-stage2",
                                      "pipe-stage0", "pipe-stage1",     "pipe-stage1-bf16",
                                      "grid-stage1", "grid-uneven",     "grid-bf16-optimizer"};

IndexPointer open_with(const std::string &path, const char *weights, ckpt_error *err) {
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.weights = weights;
  ckpt_index *index = nullptr;
  EXPECT_EQ(ckpt_open(&index, path.c_str(), &options, err), CKPT_OK) << text_of(*err);
  return IndexPointer(index, ckpt_index_free);
}

// The digest of what an index holds.
std::string digest_of(const ckpt_index *index, const char *include) {
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.memory = 16 << 20;
  run.n_threads = 1;
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.include = include;
  options.run = &run;
  ckpt_digest found;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_hash(index, &options, &found, &err), CKPT_OK) << text_of(err);
  return std::string(reinterpret_cast<const char *>(&found), sizeof found);
}

std::string digest_of(const std::string &path, const char *weights, const char *include = "all") {
  ckpt_error err = {};
  IndexPointer index = open_with(path, weights, &err);
  return index == nullptr ? text_of(err) : digest_of(index.get(), include);
}

// Names of tensors, and how many extents each has.
std::map<std::string, uint32_t> extents_of(const ckpt_index *index) {
  std::map<std::string, uint32_t> extents;
  for (uint32_t i = 0; i < index->n_tensors; i++) extents[index->tensors[i].name] = index->tensors[i].n_extents;
  return extents;
}

std::vector<float> floats_of(const ckpt_index *index, const char *name) {
  const ckpt_tensor *tensor = ckpt_index_find(index, name);
  std::vector<float> values(tensor == nullptr ? 0 : tensor->n_elements);
  const size_t n = values.size() * sizeof(float);
  EXPECT_TRUE(tensor != nullptr && ckpt_read(index, tensor, nullptr, CKPT_F32, values.data(), n, nullptr) == CKPT_OK)
      << name;
  return values;
}

TEST(Zero, TensorsAreThoseOfTheRunThatWroteThem) {
  for (const char *name : kCases)
    EXPECT_EQ(digest_of(kData + name, nullptr), digest_of(kData + name + ".safetensors", nullptr)) << name;
  for (const char *name : kParallelCases)
    EXPECT_EQ(digest_of(kData + name, nullptr), digest_of(kData + name + ".safetensors", nullptr)) << name;
  for (const char *name : kOptionCases)
    EXPECT_EQ(digest_of(kData + name, nullptr), digest_of(kData + name + ".safetensors", nullptr)) << name;
}

// A step that the loss scaler skipped is none of the optimizer's: no problem.
TEST(Zero, StepsThatOverflowedAreNoProblem) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "fp16-skipped", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const int64_t n_skipped =
      ckpt_object_get(ckpt_object_get(index->objects, CKPT_STATE_TRAINER), "skipped_steps")->integer;
  EXPECT_TRUE(n_skipped > 0 && n_skipped < 3) << n_skipped;
  EXPECT_EQ(floats_of(index.get(), "optimizer.state.up.weight.step"), std::vector<float>({3.0f - float(n_skipped)}));
  for (const std::string &note : notes_of(index.get())) EXPECT_EQ(note.find("! "), std::string::npos) << note;
  EXPECT_EQ(ckpt_object_get(ckpt_object_get(index->objects, CKPT_STATE_LOSS_SCALER), "cur_iter")->integer, 3);
}

// FusedAdam's groups have a step, too, which stays 0: that of the states is the one that counts, and parameters have.
TEST(Zero, StepsOfFusedAdamAreThoseOfItsStates) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "fused-stage2", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_EQ(groups->n, 2u);
  for (int group : {0, 1}) EXPECT_EQ(ckpt_object_get(groups->items[group], "step")->integer, 3);
  EXPECT_EQ(floats_of(index.get(), "optimizer.state.up.weight.step"), std::vector<float>({3}));
}

TEST(Zero, MastersAndStatesInBf16) {
  ckpt_error err = {};
  for (const char *name : {"bf16-states", "bf16-states-stage3"}) {
    IndexPointer index = open(kData + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    for (const char *key : {"master", "exp_avg", "exp_avg_sq"})
      EXPECT_EQ(ckpt_index_find(index.get(), (std::string("optimizer.state.up.weight.") + key).c_str())->dtype,
                CKPT_BF16);
  }
}

// Of tensor-parallel ranks: slices, put together by maps and (stage 3) by patterns alone.
TEST(Zero, SlicesMakeTheTensorsOfTheRunThatWroteThem) {
  for (const char *name : {"tensor-stage2-bf16", "tensor-stage3"})
    EXPECT_EQ(digest_of(kData + name, nullptr), digest_of(kData + name + ".safetensors", nullptr)) << name;
  EXPECT_EQ(digest_of(kData + "tensor-stage2-bf16", "model"),
            digest_of(kData + "tensor-stage2-bf16.safetensors", "model"));
  ckpt_error err = {};
  IndexPointer index = open(kData + "tensor-stage3", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(std::string(index->writer), "DeepSpeed 0.19.8 (ZeRO stage 3, 4 ranks, 2 tensor parallel)");
  EXPECT_EQ(index->min_ranks, 4u);
  EXPECT_EQ(ckpt_index_find(index.get(), "head.weight"), ckpt_index_find(index.get(), "embed.weight"));
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_EQ(groups->n, 2u);
  EXPECT_EQ(ckpt_object_get(groups->items[0], "params")->n, 5u);  // names once, though two ranks have each
}

// Both ranks hold b as [[3, 0], [1, 2]], whose first element is on the first data-parallel rank, and a as [0, 1, 2].
TEST(Zero, SlicesByRule) {
  const std::string errors = std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/";
  const std::string b = "optimizer.state.b.master";
  const std::map<std::string, std::vector<float>> wanted = {
      {"noted-slices", {3, 0, 3, 0, 1, 2, 1, 2}},     // along axis 1
      {"noted-map", {3, 0, 3, 0, 1, 2, 1, 2}},        // as well, by blocks
      {"noted-rows", {3, 0, 1, 2, 3, 0}},             // three rows of four are the vocabulary's
      {"noted-two-parts", {3, 0, 3, 0, 1, 2, 1, 2}},  // one row of each rank, then the other
      {"noted-parts", {3, 3, 0, 0, 1, 1, 2, 2}},      // the same along axis 1
      {"noted-widths", {3, 0, 3, 0, 1, 2, 1, 2}},     // one row, and one
  };
  for (const auto &[name, values] : wanted) {
    ckpt_error err = {};
    IndexPointer index = open(errors + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(floats_of(index.get(), b.c_str()), values) << name;
  }
  ckpt_error err = {};
  IndexPointer index = open(errors + "noted-slices", &err, false);
  EXPECT_EQ(floats_of(index.get(), "optimizer.state.a.exp_avg"), std::vector<float>({0, 1, 2}));  // the same on both
  EXPECT_EQ(floats_of(index.get(), "c"), std::vector<float>({0, 1}));
}

// What `verify` finds of a kind.
std::string found_in(const std::string &path, ckpt_finding_kind kind) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false, true);
  ckpt_findings findings = {};
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  EXPECT_EQ(ckpt_verify_format(&findings, index.get(), &run, &err), CKPT_OK) << text_of(err);
  std::string text;
  for (size_t i = 0; i < findings.n; i++)
    if (findings.items[i].kind == kind)
      text += std::string(findings.items[i].tensor == nullptr ? "" : findings.items[i].tensor) + ": " +
              findings.items[i].message + "\n";
  ckpt_findings_free(&findings);
  return text;
}

// The first rank's copy is read; that the others' are the same is proven by looking.
TEST(Zero, CopiesThatDifferAreFound) {
  Folder folder;
  for (const char *name : {"tensor-stage2-bf16", "tensor-stage3"}) {
    std::filesystem::copy(kData + name, folder / name, std::filesystem::copy_options::recursive);
    EXPECT_EQ(found_in(folder / name, CKPT_PROBLEM), "");
    EXPECT_NE(found_in(folder / name, CKPT_PROVEN).find("is the same on them (26 tensors)"), std::string::npos);
  }
  EXPECT_EQ(found_in(kData + "stage3", CKPT_PROVEN), "");
  const std::string path = folder / "tensor-stage2-bf16/global_step3/mp_rank_01_model_states.pt";
  ckpt_error err = {};
  IndexPointer file = open(path, &err, false);
  ASSERT_NE(file, nullptr) << text_of(err);
  const ckpt_tensor *norm = ckpt_index_find(file.get(), "norm.weight");
  ASSERT_NE(norm, nullptr);
  std::string bytes = slurp(path);
  bytes[norm->extents[0].offset + 2] ^= 1;
  spill(path, bytes);
  EXPECT_EQ(found_in(folder / "tensor-stage2-bf16", CKPT_PROBLEM),
            "norm.weight: tensor parallel rank 1 has other values of it than rank 0 (1 of 6, the first at element 1): "
            "they are to be the same, and rank 0's are read\n");
}

// Flips a bit of the element number `at` of a tensor in a torch file.
void flip(const std::string &path, const char *name, uint64_t at) {
  ckpt_error err = {};
  IndexPointer file = open(path, &err, false);
  ASSERT_NE(file, nullptr) << text_of(err);
  const ckpt_tensor *tensor = ckpt_index_find(file.get(), name);
  ASSERT_NE(tensor, nullptr) << name;
  std::string bytes = slurp(path);
  bytes[tensor->extents[0].offset + 4 * at + 1] ^= 1;
  spill(path, bytes);
}

// A torch file's bytes as those of one that was saved under another name, as long as this one.
std::string saved_as(std::string bytes, const std::string &was, const std::string &name) {
  EXPECT_EQ(was.size(), name.size());
  for (size_t at = 0; (at = bytes.find(was + "/", at)) != std::string::npos; at += name.size())
    bytes.replace(at, name.size(), name);
  return bytes;
}

// In stage 3 no field of a rank's file says whose it is, but the name that its archive was saved under does. One under
// two ranks' names is told by what its archive records. Ranks that have one value again and again may be the same.
TEST(Zero, FilesOfOneRankUnderTwoNamesAreFound) {
  Folder folder;
  std::filesystem::copy(kData + "stage3", folder / "stage3", std::filesystem::copy_options::recursive);
  const std::string first = folder / "stage3/global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt",
                    second = folder / "stage3/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt";
  const std::string zero = "zero_pp_rank_0_mp_rank_00_optim_states", one = "zero_pp_rank_1_mp_rank_00_optim_states";
  EXPECT_EQ(found_in(folder / "stage3", CKPT_PROBLEM).find("has the same records"), std::string::npos);
  spill(second, saved_as(slurp(first), zero, one));
  EXPECT_EQ(found_in(folder / "stage3", CKPT_PROBLEM),
            ": has the same records as zero_pp_rank_0_mp_rank_00_optim_states.pt, by their sizes and CRCs: one rank's "
            "states in place of another's\n");
  ckpt_error err = {};
  IndexPointer file = open(first, &err, false);
  ASSERT_NE(file, nullptr) << text_of(err);
  std::string bytes = slurp(first);
  uint32_t n = 0;
  for (uint32_t i = 0; i < file->n_tensors; i++) {
    const ckpt_tensor *tensor = &file->tensors[i];
    if (strstr(tensor->name, "fp32_flat_groups") == nullptr) continue;
    std::fill_n(bytes.begin() + (long)tensor->extents[0].offset, 4 * tensor->n_elements, 0);
    n++;
  }
  EXPECT_NE(n, 0u);
  spill(first, bytes);
  spill(second, saved_as(bytes, zero, one));
  EXPECT_EQ(found_in(folder / "stage3", CKPT_PROBLEM), "");
}

// Files of two ranks that have changed places, in every stage.
TEST(Zero, FilesOfRanksThatChangedPlacesAreFound) {
  for (const char *name : {"stage1", "stage3", "stage3-bf16", "tensor-stage3", "moe-stage1-bf16", "pipe-stage1"}) {
    Folder folder;
    const std::string tag = folder / "run/global_step3/";
    std::filesystem::copy(kData + name, folder / "run", std::filesystem::copy_options::recursive);
    EXPECT_EQ(found_in(folder / "run", CKPT_PROBLEM).find("saved as"), std::string::npos) << name;
    EXPECT_EQ(found_in(folder / "run", CKPT_UNPROVEN).find("order"), std::string::npos) << name;
    std::string a, b;
    for (const auto &entry : std::filesystem::directory_iterator(tag)) {
      const std::string file = entry.path().filename().string();
      if (file.find("zero_pp_rank_0_mp_rank_00_optim") != std::string::npos) a = file;
      if (file.find("zero_pp_rank_1_mp_rank_00_optim") != std::string::npos) b = file;
    }
    std::filesystem::rename(tag + a, tag + "kept");
    std::filesystem::rename(tag + b, tag + a);
    std::filesystem::rename(tag + "kept", tag + b);
    const std::string found = found_in(folder / "run", CKPT_PROBLEM);
    EXPECT_NE(found.find("its archive says that it was saved as " + b + ": it lies in another's place"),
              std::string::npos)
        << name << found;
    EXPECT_NE(found.find("was saved as " + a), std::string::npos) << name << found;
    ckpt_error err = {};
    EXPECT_EQ(open(folder / "run", &err, false), nullptr) << name; /* and no other verb takes them */
    EXPECT_EQ(err.status, CKPT_EFORMAT) << text_of(err);
    EXPECT_NE(std::string(err.message).find("another's place"), std::string::npos) << text_of(err);
  }
}

// Each stage of a pipeline that has a tied module trains a copy, and each layer that is one has a file: the first is
// read, and the others are proven to be the same. All tensor-parallel ranks of the stage are looked at.
TEST(Zero, CopiesOfTiedModulesThatDifferAreFound) {
  Folder folder;
  for (const char *name : {"pipe-stage1", "grid-stage1"}) {
    std::filesystem::copy(kData + name, folder / name, std::filesystem::copy_options::recursive);
    EXPECT_EQ(found_in(folder / name, CKPT_PROBLEM), "");
    EXPECT_NE(found_in(folder / name, CKPT_PROVEN).find("tied modules is the same on them (4 tensors)"),
              std::string::npos);
  }
  const char *const masters = "optimizer_state_dict.single_partition_of_fp32_groups.0";
  flip(folder / "pipe-stage1/global_step3/zero_pp_rank_0_mp_rank_01_optim_states.pt", masters, 2);
  EXPECT_EQ(found_in(folder / "pipe-stage1", CKPT_PROBLEM),
            "optimizer.state.tied_modules.embed.weight.master: copy 1 of this tied module has other values of it than "
            "the first (1 of 35, the first at element 2): they are to be the same, and the first stage's are read\n");
  flip(folder / "grid-stage1/global_step3/zero_pp_rank_0_mp_rank_03_optim_states.pt", masters, 1);
  EXPECT_EQ(found_in(folder / "grid-stage1", CKPT_PROBLEM),
            "optimizer.state.tied_modules.embed.weight.master: copy 1 of this tied module has other values of it than "
            "the first (1 of 42, the first at element 25): they are to be the same, and the first stage's are read\n");
  const std::string twice = std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/noted-layer-twice-tied";
  std::filesystem::copy(twice, folder / "twice", std::filesystem::copy_options::recursive);
  EXPECT_EQ(found_in(folder / "twice", CKPT_PROBLEM), "");
  flip(folder / "twice/global_step1/layer_03-model_states.pt", "b", 3);
  EXPECT_NE(found_in(folder / "twice", CKPT_PROBLEM).find("tied_modules.t.b: copy 1 of this tied module has other"),
            std::string::npos);
}

// The weights that the model was run with, where there are any: stage 3 stores none but masters.
TEST(Zero, StoredWeightsAreThoseOfTheModel) {
  for (const char *name : kCases) {
    if (std::string(name).find("stage3") == 0) continue;
    EXPECT_EQ(digest_of(kData + name, "model"), digest_of(kData + name + ".safetensors", "model")) << name;
  }
  for (const char *name : kParallelCases)
    EXPECT_EQ(digest_of(kData + name, "model"), digest_of(kData + name + ".safetensors", "model")) << name;
}

// Experts have the numbers that they have among those of all ranks, and groups list them in the model's order.
TEST(Zero, ExpertsOfAllRanks) {
  const std::string experts = ".deepspeed_moe.experts.deepspeed_experts.";
  ckpt_error err = {};
  IndexPointer index = open(kData + "moe-stage2", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (const char *name : {"mix.0%s3.up.weight", "mix.0%s0.up.bias", "mix.1%s1.down.weight"}) {
    std::string full = name;
    full.replace(full.find("%s"), 2, experts);
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), full.c_str());
    ASSERT_NE(tensor, nullptr) << full;
    EXPECT_EQ(tensor->role, CKPT_ROLE_PARAMETER) << full;
  }
  EXPECT_EQ(ckpt_index_find(index.get(), ("mix.0" + experts + "2.scale").c_str())->role, CKPT_ROLE_BUFFER);
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_EQ(groups->n, 4u);
  const ckpt_object *params = ckpt_object_get(groups->items[3], "params");
  ASSERT_EQ(params->n, 6u);
  for (int i = 0; i < 6; i++)
    EXPECT_EQ(params->items[i]->text, "mix." + std::to_string(i / 4) + experts + std::to_string(i % 4) + ".up.bias");
}

TEST(Zero, StageThreeHasMastersAlone) {
  ckpt_error err = {};
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.weights = "model";
  ckpt_index *none = nullptr;
  EXPECT_EQ(ckpt_open(&none, (kData + "stage3-bf16").c_str(), &options, &err), CKPT_ENOTFOUND);
  for (const char *weights : {static_cast<const char *>(nullptr), "master"}) {
    err = {};
    IndexPointer index = open_with(kData + "stage3-bf16", weights, &err);
    EXPECT_STREQ(index->weights, "master");
    EXPECT_EQ(notes_of(index.get()),
              std::vector<std::string>({"weights: master f32 (no other copy of them is stored)"}));
    EXPECT_EQ(digest_of(index.get(), "all"), digest_of(kData + "stage3-bf16", nullptr));
  }
}

TEST(Zero, NamesRolesAndObjects) {
  for (const char *name : kCases) {
    ckpt_error err = {};
    IndexPointer index = open(kData + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const std::map<std::string, ckpt_role> wanted = {{"embed.weight", CKPT_ROLE_PARAMETER},
                                                     {"fixed.bias", CKPT_ROLE_PARAMETER},
                                                     {"count", CKPT_ROLE_BUFFER},
                                                     {"table", CKPT_ROLE_OTHER},
                                                     {"optimizer.state.norm.bias.exp_avg", CKPT_ROLE_EXP_AVG},
                                                     {"optimizer.state.up.weight.exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
                                                     {"optimizer.state.down.weight.step", CKPT_ROLE_STEP}};
    for (const auto &[tensor_name, role] : wanted) {
      const ckpt_tensor *tensor = ckpt_index_find(index.get(), tensor_name.c_str());
      ASSERT_NE(tensor, nullptr) << name << " " << tensor_name;
      EXPECT_EQ(tensor->role, role) << name << " " << tensor_name;
    }
    EXPECT_EQ(ckpt_index_find(index.get(), "head.weight"), ckpt_index_find(index.get(), "embed.weight")) << name;
    EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.fixed.weight.exp_avg"), nullptr) << name;
    EXPECT_EQ(index->step, 3) << name;
    const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
    ASSERT_NE(groups, nullptr) << name;
    ASSERT_EQ(groups->n, 2u) << name;
    EXPECT_EQ(ckpt_object_get(groups->items[0], "weight_decay")->number, 0.1) << name;
    const ckpt_object *params = ckpt_object_get(groups->items[1], "params");
    ASSERT_EQ(params->n, 3u) << name;
    EXPECT_STREQ(params->items[0]->text, "up.bias") << name;
    const ckpt_object *trainer = ckpt_object_get(index->objects, CKPT_STATE_TRAINER);
    EXPECT_STREQ(ckpt_object_get(trainer, "note")->text, "kept as it is") << name;
    EXPECT_EQ(ckpt_object_get(trainer, "dp_world_size"), nullptr) << name;
    EXPECT_NE(ckpt_object_get(index->objects, CKPT_STATE_SCHEDULER), nullptr) << name;
  }
}

TEST(Universal, TensorsAreThoseOfTheRunThatWroteThem) {
  const std::string universal = std::string(CKPT_TESTS_DIR) + "/data/universal/";
  for (const char *name : {"stage2-bf16", "stage3-bf16"}) {
    EXPECT_EQ(digest_of(universal + name, nullptr), digest_of(kData + name + ".safetensors", nullptr)) << name;
    EXPECT_EQ(digest_of(universal + name + "/global_step3_universal", nullptr), digest_of(kData + name, nullptr))
        << name;
    ckpt_error err = {};
    IndexPointer index = open(universal + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_STREQ(index->format, "universal");
    const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
    EXPECT_STREQ(ckpt_object_get(groups->items[0], "params")->items[1]->text, "up.weight") << name;
  }
}

TEST(Universal, WhatIsMissingIsNamed) {
  for (const char *file : {"up.weight/exp_avg.pt", "norm.bias/fp32.pt", "optimizer_state.pt"}) {
    Folder folder;
    std::filesystem::copy(std::string(CKPT_TESTS_DIR) + "/data/universal/stage2-bf16", folder / "c",
                          std::filesystem::copy_options::recursive);
    std::filesystem::remove(folder / (std::string("c/global_step3_universal/zero/") + file));
    ckpt_error err = {};
    EXPECT_EQ(open(folder / "c", &err, false), nullptr);
    EXPECT_EQ(err.status, CKPT_ENOTFOUND) << text_of(err);
    EXPECT_NE(text_of(err).find(file), std::string::npos) << text_of(err);
  }
}

// States that the first parameter has not, and parameters that the model file does not know.
TEST(Universal, WhatWouldBeLostIsRefused) {
  for (const char *file : {"up.weight/max_exp_avg_sq.pt", "unknown.weight"}) {
    Folder folder;
    std::filesystem::copy(std::string(CKPT_TESTS_DIR) + "/data/universal/stage2-bf16", folder / "c",
                          std::filesystem::copy_options::recursive);
    const std::filesystem::path zero = folder / "c/global_step3_universal/zero";
    std::filesystem::copy(zero / (strchr(file, '/') != nullptr ? "up.weight/exp_avg.pt" : "up.weight"), zero / file,
                          std::filesystem::copy_options::recursive);
    ckpt_error err = {};
    EXPECT_EQ(open(folder / "c", &err, false), nullptr);
    EXPECT_EQ(err.status, CKPT_EUNSUPPORTED) << text_of(err);
    EXPECT_NE(text_of(err).find(strchr(file, '/') != nullptr ? "max_exp_avg_sq.pt" : file), std::string::npos)
        << text_of(err);
    EXPECT_NE(text_of(err).find("would be lost"), std::string::npos) << text_of(err);
  }
}

// Version 0.1 had masters and moments and nothing else: they are read, and a run that would go on from them is refused.
TEST(Universal, TheFirstVersionHasNoSteps) {
  Folder folder;
  const std::string whole = std::string(CKPT_TESTS_DIR) + "/data/universal/stage2-bf16",
                    tag = "c/global_step3_universal/";
  std::filesystem::copy(whole, folder / "c", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder / (tag + "zero/optimizer_state.pt"));
  size_t n_steps = 0;
  for (const auto &entry : std::filesystem::directory_iterator(folder / (tag + "zero")))
    n_steps += std::filesystem::remove(entry.path() / "step.pt");
  ASSERT_NE(n_steps, 0u);
  ckpt_error err = {};
  IndexPointer first = open(folder / "c", &err, false), now = open(whole, &err, false);
  ASSERT_NE(first, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_count(first.get()) + n_steps, ckpt_index_count(now.get()));
  for (uint32_t i = 0; i < first->n_tensors; i++) {
    const ckpt_tensor *tensor = &first->tensors[i], *same = ckpt_index_find(now.get(), tensor->name);
    ASSERT_NE(same, nullptr) << tensor->name;
    EXPECT_EQ(bytes_of(first.get(), tensor), bytes_of(now.get(), same)) << tensor->name;
  }
  EXPECT_EQ(ckpt_object_get(first->objects, CKPT_STATE_PARAM_GROUPS), nullptr);
  EXPECT_EQ(notes_of(first.get())[0],
            "a universal checkpoint of version 0.1: it has no zero/optimizer_state.pt and no steps, so that "
            "hyperparameters and steps are not known");
}

// A parameter lies on several ranks, and in stage 3 on all that have some of it.
TEST(Zero, ParametersAreCutAmongRanks) {
  ckpt_error err = {};
  IndexPointer second = open(kData + "stage2-bf16", &err, false), third = open(kData + "stage3-bf16", &err, false);
  ASSERT_TRUE(second != nullptr && third != nullptr) << text_of(err);
  auto of_second = extents_of(second.get()), of_third = extents_of(third.get());
  EXPECT_EQ(of_second["optimizer.state.up.weight.exp_avg"], 3u);
  EXPECT_EQ(of_second["optimizer.state.embed.weight.exp_avg"], 1u);
  EXPECT_EQ(of_third["optimizer.state.embed.weight.exp_avg"], 3u);
  EXPECT_EQ(of_third["fixed.bias"], 3u);
  EXPECT_EQ(std::string(third->writer), "DeepSpeed 0.19.8 (ZeRO stage 3, 3 ranks)");
  EXPECT_EQ(third->min_ranks, 3u);
}

// The folder of a tag is the same checkpoint without `latest`.
TEST(Zero, TagIsFollowed) {
  Folder folder;
  std::filesystem::copy(kData + "stage1", folder / "c", std::filesystem::copy_options::recursive);
  const std::string whole = digest_of(kData + "stage1", nullptr);
  EXPECT_EQ(digest_of(kData + "stage1/global_step3", nullptr), whole);
  std::filesystem::copy(folder / "c/global_step3", folder / "c/global_step3b");
  EXPECT_EQ(digest_of(folder / "c", nullptr), whole);  // of two tags `latest` says which
  EXPECT_EQ(digest_of(folder / "c/global_step3b", nullptr), whole);
  std::filesystem::remove(folder / "c/latest");
  ckpt_error err = {};
  ckpt_index *several = nullptr;
  EXPECT_EQ(ckpt_open(&several, (folder / "c").c_str(), nullptr, &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err).find("holds 2 checkpoints, name one of them: global_step3 global_step3b"), std::string::npos)
      << text_of(err);
  std::filesystem::remove_all(folder / "c/global_step3");
  EXPECT_EQ(digest_of(folder / "c", nullptr), whole);  // the only one
  spill(folder / "c/latest", "global_step3b\n");
  spill(folder / "c/config.json", "{\"model_type\": \"none\"}");
  IndexPointer index = open_with(folder / "c", nullptr, &err);
  EXPECT_NE(ckpt_index_side_file(index.get(), "config.json"), nullptr);
}

// A step that is a number beside the states, as DeepSpeed's own optimizers have it, is in the groups; each parameter
// has it as torch does.
TEST(Zero, StepsThatAreNumbers) {
  for (const char *name : {"noted-nothing", "noted-nothing-3"}) {
    ckpt_error err = {};
    IndexPointer index = open(std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/" + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const ckpt_object *group = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS)->items[0];
    ASSERT_NE(ckpt_object_get(group, "step"), nullptr) << name;
    EXPECT_EQ(ckpt_object_get(group, "step")->integer, 1) << name;
    EXPECT_EQ(floats_of(index.get(), "optimizer.state.a.step"), std::vector<float>({1})) << name;
    EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.a.step")->role, CKPT_ROLE_STEP) << name;
  }
  for (const char *name : {"offload-stage2", "offload-stage3-bf16"}) {  // DeepSpeedCPUAdam's
    ckpt_error err = {};
    IndexPointer index = open(kData + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
    for (uint64_t g = 0; g < groups->n; g++)
      EXPECT_EQ(ckpt_object_get(groups->items[g], "step")->integer, 3) << name << " " << g;
  }
}

// The Trainer of Hugging Face saves the model beside it: training state comes first, where it can be read.
TEST(Zero, BesideAModel) {
  Folder folder;
  std::filesystem::copy(std::string(CKPT_TESTS_DIR) + "/data/llama-tiny", folder / "c",
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(kData + "stage2-bf16", folder / "c", std::filesystem::copy_options::recursive);
  ckpt_error err = {};
  IndexPointer index = open_with(folder / "c", nullptr, &err);
  ASSERT_NE(index, nullptr);
  EXPECT_STREQ(index->format, "zero");
  EXPECT_NE(ckpt_index_side_file(index.get(), "tokenizer.json"), nullptr);
  spill(folder / "c/global_step3/new_rank_0_mp_rank_00_optim_states.pt", "of a version to come");
  index = open_with(folder / "c", nullptr, &err);
  ASSERT_NE(index, nullptr);
  EXPECT_STREQ(index->format, "hf");
}

// Writes other bytes where some stand first.
void patch(const std::string &path, const std::string &before, const std::string &after) {
  std::string bytes = slurp(path);
  const size_t at = bytes.find(before);
  ASSERT_NE(at, std::string::npos) << path;
  spill(path, bytes.replace(at, before.size(), after));
}

const std::string kThree("\0\0\x40\x40", 4), kFour("\0\0\x80\x40", 4);

// Tensors that are steps are compared, too.
TEST(Zero, RanksOfDifferentStepsAreRefused) {
  const char *const cases[][3] = {
      {"stage1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", "another step than rank 0 (4, 3)"},
      {"moe-stage0", "expp_rank_1_mp_rank_00_optim_states.pt", "has made 4 steps, and that of rank 0 3"}};
  for (const auto &of : cases) {
    Folder folder;
    std::filesystem::copy(kData + of[0], folder / "c", std::filesystem::copy_options::recursive);
    patch(folder / (std::string("c/global_step3/") + of[1]), kThree, kFour);
    ckpt_error err = {};
    EXPECT_EQ(open(folder / "c", &err, false), nullptr);
    EXPECT_NE(text_of(err).find(of[1]), std::string::npos) << text_of(err);
    EXPECT_NE(text_of(err).find(of[2]), std::string::npos) << text_of(err);
  }
}

// All ranks' optimizers are of one step, and the model's file of an earlier one.
TEST(Zero, AModelOfAnotherStepIsAProblem) {
  for (const char *name : {"stage1", "stage3", "moe-stage0", "moe-stage2"}) {
    Folder folder;
    std::filesystem::copy(kData + name, folder / "c", std::filesystem::copy_options::recursive);
    for (const auto &entry : std::filesystem::directory_iterator(folder / "c/global_step3")) {
      std::string bytes = slurp(entry.path());
      if (entry.path().filename().string().find("_optim_states.pt") == std::string::npos) continue;
      for (size_t at = 0; (at = bytes.find(kThree, at)) != std::string::npos; at += 4)
        bytes.replace(at, 4, std::string("\0\0\xe0\x40", 4));  // 7
      spill(entry.path(), bytes);
    }
    ckpt_error err = {};
    IndexPointer index = open(folder / "c", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const std::string note = notes_of(index.get())[0];
    EXPECT_NE(note.find("! "), std::string::npos) << note;
    EXPECT_NE(note.find("rank_0_mp_rank_00_optim_states.pt: its optimizer has made 7 steps, and "), std::string::npos)
        << note;
    EXPECT_NE(note.find("mp_rank_00_model_states.pt says 3 and 0 skipped"), std::string::npos) << note;
  }
}

// Without ZeRO: an optimizer's file that is missing, and one that has too much.
TEST(Zero, ExpertsOptimizersAreAllThere) {
  Folder folder;
  std::filesystem::copy(kData + "moe-stage0", folder / "c", std::filesystem::copy_options::recursive);
  const std::string step = folder / "c/global_step3/", file = "_mp_rank_00_optim_states.pt";
  std::filesystem::copy(step + "expp_rank_1" + file, step + "expp_rank_3" + file);
  ckpt_error err = {};
  EXPECT_EQ(open(folder / "c", &err, false), nullptr);
  EXPECT_NE(text_of(err).find("expp_rank_2_mp_rank_00_optim_states.pt is missing"), std::string::npos) << text_of(err);
  std::filesystem::rename(step + "expp_rank_3" + file, step + "expp_rank_2" + file);
  err = {};
  EXPECT_EQ(open(folder / "c", &err, false, true), nullptr);  // which reads what lies in another's place
  EXPECT_NE(text_of(err).find("27 parameters of experts, the model has 18"), std::string::npos) << text_of(err);
  std::filesystem::remove(step + "expp_rank_1" + file);
  std::filesystem::remove(step + "expp_rank_2" + file);
  err = {};
  EXPECT_EQ(open(folder / "c", &err, false), nullptr);
  EXPECT_NE(text_of(err).find("have 9 of 18 parameters of experts"), std::string::npos) << text_of(err);
}

// A tied module is there once, though both stages have it; groups are those of all stages.
TEST(Zero, StagesOfAPipeline) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "pipe-stage1", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_find(index.get(), "0.weight"), nullptr);
  EXPECT_EQ(ckpt_index_find(index.get(), "tied_modules.embed.weight")->role, CKPT_ROLE_PARAMETER);
  EXPECT_EQ(ckpt_index_find(index.get(), "3.scale")->role, CKPT_ROLE_BUFFER);
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  std::vector<std::string> names;
  const ckpt_object *params = ckpt_object_get(groups->items[0], "params");
  for (uint64_t i = 0; i < params->n; i++) names.push_back(params->items[i]->text);
  EXPECT_EQ(names, std::vector<std::string>(
                       {"tied_modules.embed.weight", "1.up.weight", "1.down.weight", "3.up.weight", "3.down.weight"}));
}

// Stages whose ranks are tensor-parallel: slices, of each stage's own files.
TEST(Zero, StagesOfTensorParallelRanks) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "grid-stage1", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(std::string(index->writer), "DeepSpeed 0.19.8 (ZeRO stage 1, 8 ranks, 2 tensor parallel)");
  EXPECT_EQ(index->min_ranks, 8u);
  const ckpt_tensor *embed = ckpt_index_find(index.get(), "tied_modules.embed.weight");
  ASSERT_NE(embed, nullptr);
  EXPECT_EQ(embed->shape[0], 7u);  // less the row of padding
  EXPECT_EQ(ckpt_index_find(index.get(), "3.scale")->role, CKPT_ROLE_BUFFER);
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_EQ(groups->n, 2u);
  EXPECT_EQ(ckpt_object_get(groups->items[0], "params")->n, 5u);
  EXPECT_EQ(ckpt_object_get(groups->items[1], "params")->n, 6u);
}

// Wherever a file ends too early, opening says so or what is read fails; nothing crashes.
TEST(Zero, CutAnywhere) {
  for (const char *name : {"stage2-bf16", "stage3-bf16", "stage0-bf16", "moe-stage2", "pipe-stage1", "moe-stage0",
                           "tensor-stage3", "grid-bf16-optimizer"}) {
    for (const auto &entry : std::filesystem::directory_iterator(kData + name + "/global_step3")) {
      Folder folder;
      std::filesystem::copy(kData + name, folder / "c", std::filesystem::copy_options::recursive);
      const std::string bytes = slurp(entry.path()),
                        path = folder / ("c/global_step3/" + entry.path().filename().string());
      for (size_t n = 0; n < bytes.size(); n += 499) {
        spill(path, bytes.substr(0, n));
        ckpt_error err = {};
        EXPECT_EQ(open(folder / "c", &err, false), nullptr) << path << " " << n;
        EXPECT_NE(err.status, CKPT_EINTERNAL) << text_of(err);
      }
    }
  }
}

// Without ZeRO the n-th of a group's numbers is its n-th parameter, wherever the state of that number stands.
TEST(Zero, StatesOfNumbersMayStandInAnyOrder) {
  ckpt_error err = {};
  IndexPointer index =
      open(std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/noted-whole-in-another-order", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(floats_of(index.get(), "optimizer.state.p0.exp_avg"), std::vector<float>({20, 21, 22}));
  EXPECT_EQ(floats_of(index.get(), "optimizer.state.p2.exp_avg"), std::vector<float>({10, 11, 12}));
  EXPECT_EQ(floats_of(index.get(), "optimizer.state.p1.exp_avg").size(), 4u);
}

}  // namespace
}  // namespace formats_testing
