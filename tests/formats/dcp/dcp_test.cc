// PyTorch Distributed Checkpoint folders: those that torch wrote (tests/data/make_dcp.py) against the full tensors of
// the runs that wrote them, and what is left of them after damage.
#include "tests/formats/formats_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/dcp/";
const char *const kCases[] = {"dtypes",         "signs",     "zstd",         "fsdp4",       "app",
                              "no-collectives", "mesh",      "safetensors",  "old-1.12",    "old-2.2",
                              "mcore",          "hf-shards", "zstd-strided", "state-dicts", "unsaid-strides",
                              "rank-local",     "rank-equal"};

ckpt_status hash(const ckpt_index *index, std::string *digest, ckpt_error *err) {
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.memory = 16 << 20;
  run.n_threads = 1;
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.include = "all";
  options.run = &run;
  ckpt_digest found;
  ckpt_status status = ckpt_hash(index, &options, &found, err);
  digest->assign(reinterpret_cast<const char *>(&found), sizeof found);
  return status;
}

// The digest of all that a path holds.
std::string digest_of(const std::string &path) {
  ckpt_error err = {};
  std::string digest;
  IndexPointer index = open(path, &err, false);
  EXPECT_NE(index, nullptr) << text_of(err);
  if (index == nullptr) return digest;
  EXPECT_EQ(hash(index.get(), &digest, &err), CKPT_OK) << text_of(err);
  return digest;
}

std::map<std::string, ckpt_role> roles_of(const ckpt_index *index) {
  std::map<std::string, ckpt_role> roles;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    roles[index->tensors[i].name] = static_cast<ckpt_role>(index->tensors[i].role);
  return roles;
}

class Copy {
 public:
  explicit Copy(const std::string &name) {
    std::filesystem::copy(kData + name, folder_ / "c", std::filesystem::copy_options::recursive);
  }
  std::string operator/(const std::string &name) const { return folder_ / ("c/" + name); }
  std::string path() const { return folder_ / "c"; }

 private:
  Folder folder_;
};

TEST(Dcp, TensorsAreThoseOfTheRunThatWroteThem) {
  for (const char *name : kCases) EXPECT_EQ(digest_of(kData + name), digest_of(kData + name + ".safetensors")) << name;
}

TEST(Dcp, TheModelIsToldFromTheOptimizer) {
  ckpt_error err = {};
  for (const char *name : {"fsdp4", "app", "old-1.12", "state-dicts"}) {
    IndexPointer index = open(kData + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    auto roles = roles_of(index.get());
    EXPECT_EQ(roles.size(), 12u);
    EXPECT_EQ(roles.at("0.weight"), CKPT_ROLE_PARAMETER);
    EXPECT_EQ(roles.at("optimizer.state.0.weight.exp_avg"), CKPT_ROLE_EXP_AVG);
    EXPECT_EQ(roles.at("optimizer.state.2.weight.exp_avg_sq"), CKPT_ROLE_EXP_AVG_SQ);
    EXPECT_EQ(roles.at("optimizer.state.0.bias.step"), CKPT_ROLE_STEP);
  }
  IndexPointer index = open(kData + "dtypes", &err, false);
  auto roles = roles_of(index.get());
  EXPECT_EQ(roles.at("transposed"), CKPT_ROLE_PARAMETER);
  EXPECT_EQ(roles.at("nested.list.0"), CKPT_ROLE_PARAMETER); /* no name beside it has dots: as in a torch file */
}

TEST(Dcp, StoredNamesAreThoseOfTheMetadata) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "app", &err, true);
  ASSERT_NE(index, nullptr) << text_of(err);
  auto roles = roles_of(index.get());
  EXPECT_EQ(roles.at("app.model.0.weight"), CKPT_ROLE_PARAMETER);
  EXPECT_EQ(roles.at("app.optim.state.0.weight.exp_avg"), CKPT_ROLE_EXP_AVG);
}

TEST(Dcp, WhatIsNoTensorIsAnObject) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "fsdp4", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_NE(index->objects, nullptr);
  EXPECT_STREQ(ckpt_object_get(ckpt_object_get(index->objects, "torch"), "note")->text, "kept as it is");
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_EQ(groups->n, 1u);
  EXPECT_EQ(ckpt_object_get(groups->items[0], "lr")->number, 0.1);
  index = open(kData + "mesh", &err, false);
  EXPECT_EQ(ckpt_object_get(index->objects, "torch")->n, 1u); /* {'state_dict': ...} */
  index = open(kData + "no-collectives", &err, false);
  EXPECT_EQ(index->objects, nullptr); /* names and tensors */
}

TEST(Dcp, UnevenAndEmptyShardsAreBoxes) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "fsdp4", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  // 5 rows over 4 ranks: 2, 2, 1 and none; 2 rows: two ranks have none
  EXPECT_EQ(ckpt_index_find(index.get(), "0.weight")->n_extents, 3u);
  EXPECT_EQ(ckpt_index_find(index.get(), "2.weight")->n_extents, 2u);
  index = open(kData + "mesh", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_find(index.get(), "both")->n_extents, 4u);
  EXPECT_EQ(ckpt_index_find(index.get(), "columns")->n_extents, 2u);
  EXPECT_EQ(ckpt_index_find(index.get(), "few")->n_extents, 3u);
}

TEST(Dcp, CutMetadataIsRefusedAtEveryByte) {
  Copy copy("mesh");
  const std::string whole = slurp(copy / ".metadata");
  for (size_t n = 0; n < whole.size(); n++) {
    spill(copy / ".metadata", whole.substr(0, n));
    ckpt_error err = {};
    EXPECT_EQ(open(copy.path(), &err, false), nullptr) << n;
    EXPECT_EQ(err.status, CKPT_EFORMAT) << n << text_of(err);
  }
}

TEST(Dcp, DamagedMetadataIsReadOrRefused) {
  for (const char *name : {"mesh", "zstd", "zstd-strided", "no-collectives"}) {
    Copy copy(name);
    const std::string file = name == std::string("no-collectives") ? "__1.metadata" : ".metadata";
    const std::string whole = slurp(copy / file);
    uint32_t random = 1;
    const size_t step = getenv("CKPT_TEST_FULL") != nullptr ? 1 : 7;
    for (size_t i = 0; i < whole.size(); i += step) {
      std::string damaged = whole;
      random = random * 1664525 + 1013904223;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 + (random >> 24) % 255));
      spill(copy / file, damaged);
      ckpt_error err = {};
      std::string digest;
      IndexPointer index = open(copy.path(), &err, false);
      uint64_t n_bytes = 0;
      for (uint32_t k = 0; index != nullptr && k < index->n_tensors; k++) n_bytes += index->tensors[k].n_bytes;
      if (index != nullptr && n_bytes < 1 << 24) (void)hash(index.get(), &digest, &err);
      EXPECT_NE(err.status, CKPT_EINTERNAL) << i << text_of(err);
    }
  }
}

// Too little memory is said to be that, wherever it runs out: here also while a tensor is described that is not read.
// Without blocks to cut it from, each piece of the index is asked for by itself.
TEST(Dcp, TooLittleMemoryIsNoDefect) {
  const std::string path = std::string(CKPT_TESTS_DIR) + "/golden-errors/dcp/shape-too-many-axes";
  int n_left = 0, most = 0;
  ckpt_allocator allocator = {};
  allocator.ctx = &n_left;
  allocator.allocate = [](void *ctx, size_t n_bytes) -> void * {
    return n_bytes < 4096 && (*static_cast<int *>(ctx))-- > 0 ? malloc(n_bytes) : nullptr;
  };
  allocator.release = [](void *, void *memory, size_t) { free(memory); };
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.allocator = &allocator;
  ckpt_status status = CKPT_ENOMEM;
  for (; status != CKPT_OK && most < 10000; most++) {
    n_left = most;
    ckpt_index *index = nullptr;
    ckpt_error err = {};
    status = ckpt_open(&index, path.c_str(), &options, &err);
    ASSERT_TRUE(status == CKPT_OK || status == CKPT_ENOMEM) << most << ": " << text_of(err);
    ckpt_index_free(index);
  }
  EXPECT_EQ(status, CKPT_OK);
  EXPECT_GT(most, 100);
}

// Who asks for all defects gets each with its own tensor and words.
TEST(Dcp, EachDefectIsReported) {
  const std::pair<const char *, std::vector<std::string>> cases[] = {
      {"without-list", {"tensor 'w': it has no list of chunks", "tensor 'v': it has no list of chunks"}},
      {"missing", {"tensor 'w': 0 of 6 elements are stored", "tensor 'v': 0 of 5 elements are stored"}}};
  for (const auto &[name, wanted] : cases) {
    const std::string path = std::string(CKPT_TESTS_DIR) + "/golden-errors/dcp/chunks-of-two-" + name;
    IndexPointer index(nullptr, ckpt_index_free);
    const std::vector<std::string> reported = broken_parts(path, &index);
    ASSERT_EQ(reported.size(), wanted.size()) << name;
    for (size_t i = 0; i < wanted.size(); i++) EXPECT_EQ(reported[i], path + "/.metadata: " + wanted[i]);
    EXPECT_EQ(names_of(index.get()), "; w v") << name;
  }
}

TEST(Dcp, CutDataIsRefusedAtOpen) {
  Copy copy("mesh");
  const std::string whole = slurp(copy / "__2_0.distcp");
  for (size_t n : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
    spill(copy / "__2_0.distcp", whole.substr(0, n));
    ckpt_error err = {};
    EXPECT_EQ(open(copy.path(), &err, false), nullptr) << n;
    EXPECT_NE(text_of(err).find("past the end of the file"), std::string::npos) << text_of(err);
  }
  std::filesystem::remove(copy / "__3_0.distcp");
  ckpt_error err = {};
  EXPECT_EQ(open(copy.path(), &err, false), nullptr);
  EXPECT_EQ(err.status, CKPT_ENOTFOUND);
  EXPECT_NE(text_of(err).find("__3_0.distcp"), std::string::npos) << text_of(err);
}

TEST(Dcp, ASaveWithoutMetadataNeverFinished) {
  Copy copy("mesh");
  std::filesystem::remove(copy / ".metadata");
  ckpt_error err = {};
  EXPECT_EQ(open(copy.path(), &err, false), nullptr);
  EXPECT_NE(text_of(err).find("the save never finished"), std::string::npos) << text_of(err);
}

TEST(Dcp, LinksOutOfTheFolderAreRefused) {
  Copy copy("mesh");
  std::filesystem::remove(copy / "__1_0.distcp");
  std::filesystem::create_symlink(kData + "mesh/__1_0.distcp", copy / "__1_0.distcp");
  ckpt_error err = {};
  EXPECT_EQ(open(copy.path(), &err, false), nullptr);
  EXPECT_NE(err.status, CKPT_EINTERNAL) << text_of(err);
}

std::string replaced(std::string text, const std::string &what, const std::string &with) {
  size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

// A chunk whose archive says other strides than the metadata's: earlier PyTorch did not write them there.
TEST(Dcp, StridesThatMetadataDoesNotTellAreRefused) {
  Copy copy("dtypes");
  // "transposed" says (1, 4) as its strides in its properties: K\x01K\x04\x86 in the pickle; say (3, 1), row-major
  spill(copy / ".metadata", replaced(slurp(copy / ".metadata"), "K\x01K\x04\x86", "K\x03K\x01\x86"));
  ckpt_error err = {};
  std::string digest;
  IndexPointer index = open(copy.path(), &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(hash(index.get(), &digest, &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err).find("not contiguous"), std::string::npos) << text_of(err);
}

// Without collectives each rank has all that it was given (tests/data/make_dcp_local.py).
TEST(Dcp, ValuesOfRanksAreKeptApartOnlyWhereTheyDiffer) {
  ckpt_error err = {};
  for (const char *name : {"rank-local", "rank-local-zstd"}) {  // by checksums, and by the values themselves
    IndexPointer index = open(kData + name, &err, false);
    ASSERT_NE(index, nullptr) << name << text_of(err);
    std::set<std::string> names;
    for (const auto &tensor : roles_of(index.get())) names.insert(tensor.first);
    EXPECT_EQ(names, (std::set<std::string>{"b", "w", "data.position", "data.position@1", "data.position@2",
                                            "data.seen", "data.seen@1"}))
        << name;
    EXPECT_EQ(digest_of(kData + name), digest_of(kData + "rank-local.safetensors")) << name;
    bool is_said = false;
    for (uint32_t i = 0; i < index->n_notes; i++)
      is_said = is_said || strstr(index->notes[i].text, "values of their own of 2 tensors") != nullptr;
    EXPECT_TRUE(is_said) << name;
  }
  IndexPointer index = open(kData + "rank-equal", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(roles_of(index.get()).size(), 3u);
}

// A part of a tensor that two ranks have with other values belongs to neither's whole.
TEST(Dcp, ReplicasThatHaveDriftedAreRefused) {
  ckpt_error err = {};
  IndexPointer index = open(std::string(CKPT_TESTS_DIR) + "/golden-errors/dcp/rank-drift", &err, false);
  EXPECT_EQ(index, nullptr);
  EXPECT_EQ(err.status, CKPT_EDIFFERENT);
  EXPECT_STREQ(err.tensor, "w");
  EXPECT_NE(strstr(err.message, "ranks 1 and 3 have different values of one part of it ([2,3] at [2,0])"), nullptr)
      << text_of(err);
}

TEST(Dcp, AShardInBetweenIsMissed) {
  Copy copy("hf-shards");
  std::filesystem::remove(copy / "shard-00001-model-00001-of-00001.safetensors");
  ckpt_error err = {};
  EXPECT_EQ(open(copy.path(), &err, false), nullptr);
  EXPECT_EQ(err.status, CKPT_ENOTFOUND) << text_of(err);
  std::filesystem::copy(kData + "hf-shards/shard-00001-model-00001-of-00001.safetensors",
                        copy / "shard-00000-model-00001-of-00001.safetensors");
  err = {};
  EXPECT_EQ(open(copy.path(), &err, false), nullptr);  // torch counts from 1: this is not the one that is missing
  EXPECT_EQ(err.status, CKPT_EFORMAT) << text_of(err);
}

// One shard's file over another's: the parts of the other are lost, whatever the bytes.
TEST(Dcp, AShardInAnothersPlaceIsRefused) {
  Copy copy("hf-shards");
  std::filesystem::copy(copy / "shard-00001-model-00001-of-00001.safetensors",
                        copy / "shard-00002-model-00001-of-00001.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
  ckpt_error err = {};
  EXPECT_EQ(open(copy.path(), &err, false), nullptr);
  EXPECT_EQ(err.status, CKPT_EFORMAT) << text_of(err);
  EXPECT_STREQ(err.tensor, "v");
  EXPECT_NE(strstr(err.message, "its part at [0, 0] is in shard-00001-model-00001-of-00001.safetensors too"), nullptr)
      << text_of(err);
}

// That the last shard is lost cannot be told: a warning says what was guessed.
TEST(Dcp, ShapesThatAreGuessedAreAWarning) {
  Copy copy("hf-shards");
  std::filesystem::remove(copy / "shard-00002-model-00001-of-00001.safetensors");
  ckpt_error err = {};
  IndexPointer index = open(copy.path(), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_EQ(index->n_notes, 1u);
  EXPECT_TRUE(ckpt_note_is_warning(&index->notes[0])) << index->notes[0].text;
}

// Each of them once, with its whole path, however often the metadata names it.
TEST(Dcp, MissingFilesAreCountedOnce) {
  for (const auto &[name, files, message] : std::vector<std::array<std::string, 3>>{
           {"no-collectives", "__0_0.distcp __2_0.distcp", "2 of the files that its metadata names are missing: "},
           {"accelerate", "optimizer_0/__0_0.distcp pytorch_model_fsdp_0/__0_0.distcp", "2 of the files"},
           {"mesh", "__0_0.distcp __1_0.distcp __2_0.distcp __3_0.distcp", "4 of the files"}}) {
    Copy copy(name);
    std::istringstream each(files);
    for (std::string file; each >> file;) std::filesystem::remove(copy / file);
    ckpt_error err = {};
    EXPECT_EQ(open(copy.path(), &err, false), nullptr);
    EXPECT_EQ(err.status, CKPT_ENOTFOUND);
    EXPECT_NE(text_of(err).find(message), std::string::npos) << text_of(err);
    std::istringstream again(files);
    for (std::string file; again >> file;) EXPECT_NE(text_of(err).find(file), std::string::npos) << text_of(err);
  }
}

TEST(Dcp, AFolderAboveIsSearched) {
  Folder folder;
  std::filesystem::copy(kData + "mesh", folder / "pytorch_model_fsdp_0", std::filesystem::copy_options::recursive);
  EXPECT_EQ(digest_of(folder.path()), digest_of(kData + "mesh"));
}

}  // namespace
}  // namespace formats_testing
