// Folders of torch_checkpointing (DCPv2): those that it wrote (tests/data/make_dcpv2.py) against the full tensors of
// the runs that wrote them, and what is left of them after damage.
#include "tests/formats/formats_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/dcpv2/";

// The digest of all that an index holds, or the error.
std::string digest_of(const ckpt_index *index) {
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.memory = 16 << 20;
  run.n_threads = 1;
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.include = "all";
  options.run = &run;
  ckpt_digest found;
  ckpt_error err = {};
  ckpt_status status = ckpt_hash(index, &options, &found, &err);
  EXPECT_NE(status, CKPT_EINTERNAL) << text_of(err);
  return status == CKPT_OK ? std::string(reinterpret_cast<const char *>(&found), sizeof found) : text_of(err);
}

std::string digest_of(const std::string &path) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false);
  EXPECT_NE(index, nullptr) << text_of(err);
  return index == nullptr ? "" : digest_of(index.get());
}

class Copy {
 public:
  explicit Copy(const std::string &name) {
    std::filesystem::copy(kData + name, folder_ / "c", std::filesystem::copy_options::recursive);
  }
  std::string operator/(const std::string &name) const { return folder_ / ("c/" + name); }
  std::string path() const { return folder_ / "c"; }
  // What opening says, which fails.
  std::string refusal(ckpt_status status) const {
    ckpt_error err = {};
    EXPECT_EQ(open(path(), &err, false), nullptr);
    EXPECT_EQ(err.status, status) << text_of(err);
    return text_of(err);
  }
  // The metadata with one text in place of another of the same length.
  void change(const std::string &what, const std::string &with) const {
    std::string bytes = slurp(*this / "metadata.pkl");
    size_t at = bytes.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    ASSERT_EQ(what.size(), with.size());
    spill(*this / "metadata.pkl", bytes.replace(at, what.size(), with));
  }

 private:
  Folder folder_;
};

TEST(Dcpv2, TensorsAreThoseOfTheRunThatWroteThem) {
  for (const char *name : {"fsdp", "mesh", "safetensors", "parallel"})
    EXPECT_EQ(digest_of(kData + name), digest_of(kData + name + ".safetensors")) << name;
}

// The same metadata as version 1.0 has it.
TEST(Dcpv2, OlderMetadataSaysTheSame) {
  for (const std::string name : {"fsdp", "safetensors"}) {
    Copy copy(name);
    const std::string older = slurp(kData + name + "-1.0.pkl");
    spill(copy / "metadata.pkl", older);
    EXPECT_EQ(digest_of(copy.path()), digest_of(kData + name + ".safetensors")) << name;
    for (size_t n = 0; n < older.size(); n += 13) {
      spill(copy / "metadata.pkl", older.substr(0, n));
      copy.refusal(CKPT_EFORMAT);
    }
  }
}

// What stands where the usual place is takes nothing, however many ranks there are.
TEST(Dcpv2, UsualPathsTakeNoMemory) {
  const auto text = [](const std::string &value) { return "V" + value + "\n"; };
  std::string ranks;
  for (int i = 0; i < 60000; i++) ranks += "I" + std::to_string(i) + "\nN";
  Folder folder;
  spill(folder / "c/metadata.pkl", "}(" + text("version") + text("2.0") + text("metadata") + "}(" +
                                       text(std::string(240, 'm')) + "}(" + text("nested_path_to_metadata") + "}" +
                                       text("rank_to_layout_info") + "}(" + ranks + "uuuu.");
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.max_index_bytes = 16 << 20;
  const std::string path = folder / "c";
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_open(&index, path.c_str(), &options, &err), CKPT_OK) << text_of(err);
  ckpt_index_free(index);
}

TEST(Dcpv2, NamesRolesAndObjects) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "fsdp", &err, false), stored = open(kData + "fsdp", &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  const std::map<std::string, ckpt_role> wanted = {{"0.weight", CKPT_ROLE_PARAMETER},
                                                   {"optimizer.state.0.weight.exp_avg", CKPT_ROLE_EXP_AVG},
                                                   {"optimizer.state.2.weight.exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
                                                   {"optimizer.state.0.bias.step", CKPT_ROLE_STEP}};
  for (const auto &[name, role] : wanted) {
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), name.c_str());
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->role, role) << name;
  }
  EXPECT_EQ(index->n_tensors, 12u);
  EXPECT_NE(ckpt_index_find(stored.get(), "model.0.weight"), nullptr);
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS);
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(ckpt_object_get(groups->items[0], "lr")->number, 0.1);
  const ckpt_object *model = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "model");
  const ckpt_object *leaf = ckpt_object_get(model, "2.weight");  // the whole tensor, where a DTensor was
  ASSERT_EQ(leaf->kind, CKPT_OBJECT_TENSOR);
  EXPECT_STREQ(index->tensors[leaf->tensor].name, "2.weight");
  EXPECT_EQ(index->tensors[leaf->tensor].n_extents, 2u);
  EXPECT_EQ(notes_of(index.get()),
            std::vector<std::string>({"not read: 2 files of items that the metadata does not place (step_0.pt, ...)"}));
}

TEST(Dcpv2, WhatIsMissingIsNamed) {
  Copy copy("mesh");
  std::filesystem::remove(copy / "model_3.pt");
  EXPECT_NE(copy.refusal(CKPT_EFORMAT).find("layer."), std::string::npos);  // a hole
  for (int i = 0; i < 3; i++) std::filesystem::remove(copy / ("model_" + std::to_string(i) + ".pt"));
  EXPECT_NE(copy.refusal(CKPT_ENOTFOUND).find("4 are missing, first model_0.pt"), std::string::npos);
}

TEST(Dcpv2, ContradictionsAreRefused) {
  Copy version("mesh"), placement("mesh"), path("mesh"), twice("safetensors"), shape("mesh"), split("parallel");
  version.change("2.0", "3.0");
  EXPECT_NE(version.refusal(CKPT_EUNSUPPORTED).find("version 3.0"), std::string::npos);
  placement.change("Replicate", "Partially");
  EXPECT_NE(placement.refusal(CKPT_EUNSUPPORTED).find("placement Partially"), std::string::npos);
  path.change("[\"layer.one\"]", "[\"layer.one\",");
  path.refusal(CKPT_EFORMAT);
  twice.change("rank_1/model", "rank_0/model");
  EXPECT_NE(twice.refusal(CKPT_EFORMAT).find("two ranks or items"), std::string::npos);
  shape.change("layer.rows", "layer.same");
  EXPECT_NE(shape.refusal(CKPT_EUNSUPPORTED).find("two paths"), std::string::npos);
  split.change("split_factor\x94K\x02", "split_factor\x94K\x04");
  EXPECT_NE(split.refusal(CKPT_EUNSUPPORTED).find("a strided shard of it is no box"), std::string::npos);
}

// A dict of many keys that all ranks share is not looked through for each.
TEST(Dcpv2, LayoutsAreSmall) {
  const auto text = [](const std::string &value) { return "V" + value + "\n"; };
  for (const bool is_many : {false, true}) {
    std::string layout = "}(" + text("file_path") + text("x") + text("serialization_format") + "}(" + text("type") +
                         text("TorchSerialization") + "u",
                ranks;
    for (int i = 0; i < (is_many ? 100 : 10); i++) layout += text("k" + std::to_string(i)) + "N";
    for (int i = 0; i < 100; i++) ranks += "I" + std::to_string(i) + "\ng1\n";
    Folder folder;
    std::filesystem::create_directory(folder / "c");
    spill(folder / "c/metadata.pkl", layout + "up1\n0}(" + text("version") + text("2.0") + text("metadata") + "}(" +
                                         text("m") + "}(" + text("nested_path_to_metadata") + "}" +
                                         text("rank_to_layout_info") + "}(" + ranks + "uuuu.");
    ckpt_error err = {};
    IndexPointer index = open(folder / "c", &err, false);
    EXPECT_EQ(index == nullptr, is_many);
    EXPECT_EQ(text_of(err).find("no file and format of rank 0") != std::string::npos, is_many) << text_of(err);
  }
}

TEST(Dcpv2, CutMetadataIsRefusedAtEveryByte) {
  Copy copy("mesh");
  const std::string whole = slurp(copy / "metadata.pkl");
  for (size_t n = 0; n < whole.size(); n++) {
    spill(copy / "metadata.pkl", whole.substr(0, n));
    copy.refusal(CKPT_EFORMAT);
  }
}

TEST(Dcpv2, DamagedMetadataIsReadOrRefused) {
  for (const char *name : {"mesh", "safetensors", "parallel"}) {
    Copy copy(name);
    const std::string whole = slurp(copy / "metadata.pkl");
    uint32_t random = 1;
    const size_t step = getenv("CKPT_TEST_FULL") != nullptr ? 1 : 3;
    for (size_t i = 0; i < whole.size(); i += step) {
      std::string damaged = whole;
      random = random * 1664525 + 1013904223;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 + (random >> 24) % 255));
      spill(copy / "metadata.pkl", damaged);
      ckpt_error err = {};
      IndexPointer index = open(copy.path(), &err, false);
      EXPECT_NE(err.status, CKPT_EINTERNAL) << i << text_of(err);
      if (index != nullptr) (void)digest_of(index.get());
    }
  }
}

}  // namespace
}  // namespace formats_testing
