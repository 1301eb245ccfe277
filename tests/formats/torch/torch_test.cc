// PyTorch files: values of what torch.save wrote, names, roles, objects; every storage and call. Lies:
// lies_test.cc.
#include <tuple>

#include "tests/formats/torch/torch_testing.h"

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/index/object.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/torch/";

IndexPointer open_golden(const std::string &name, bool stored_names = false) {
  ckpt_error err = {};
  IndexPointer index = open(kData + name + ".pt", &err, stored_names);
  EXPECT_NE(index, nullptr) << text_of(err);
  return index;
}

std::vector<std::string> aliases_of(const ckpt_tensor *tensor) {
  std::vector<std::string> names;
  for (const char *const *alias = tensor->aliases; alias != nullptr && *alias != nullptr; alias++)
    names.push_back(*alias);
  return names;
}

std::string printed(const ckpt_object *object) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 20);
  std::string text = ckpt_object_print(object, 100000, &arena);
  ckpt_arena_free(&arena);
  return text;
}

// ---- what torch wrote -----------------------------------------------------------------------------------------------

// Every golden file holds the tensors of the safetensors file beside it and no others, bit for bit.
TEST(Torch, ValuesOfWhatTorchWrote) {
  size_t n_files = 0, n_tensors = 0;
  for (const auto &file : std::filesystem::directory_iterator(kData)) {
    if (file.path().extension() != ".safetensors") continue;
    ckpt_error err = {};
    IndexPointer expected = open(file.path(), &err, true), index = open_golden(file.path().stem());
    ASSERT_NE(expected, nullptr) << text_of(err);
    ASSERT_NE(index, nullptr);
    EXPECT_EQ(ckpt_index_count(index.get()), ckpt_index_count(expected.get())) << file.path();
    for (size_t i = 0; i < ckpt_index_count(expected.get()); i++) {
      const ckpt_tensor *want = ckpt_index_at(expected.get(), i), *have = ckpt_index_find(index.get(), want->name);
      ASSERT_NE(have, nullptr) << file.path() << ": " << want->name;
      EXPECT_STREQ(have->name, want->name);
      EXPECT_EQ(have->dtype, want->dtype) << want->name;
      ASSERT_TRUE(ckpt_tensor_same_shape(have, want)) << file.path() << ": " << want->name;
      EXPECT_EQ(values(index.get(), have), values(expected.get(), want)) << file.path() << ": " << want->name;
      n_tensors++;
    }
    n_files++;
  }
  EXPECT_EQ(n_files, 33u);
  EXPECT_GT(n_tensors, 140u);
}

TEST(Torch, ComplexOfDoubles) {
  IndexPointer index = open_golden("complex128");
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "c");
  ASSERT_EQ(tensor->dtype, CKPT_C128);
  const double expected[] = {1, 2, 3, -4};
  EXPECT_EQ(values(index.get(), tensor), std::string(reinterpret_cast<const char *>(expected), sizeof expected));
}

// Views of one storage share it, equal ones are one tensor, and what is contiguous is a plain range.
TEST(Torch, TiesAndViews) {
  for (const std::string name : {"views", "legacy", "deflated"}) {
    IndexPointer index = open_golden(name);
    const ckpt_tensor *embed = ckpt_index_find(index.get(), "head.weight");
    ASSERT_STREQ(embed->name, "embed.weight");
    EXPECT_EQ(aliases_of(embed), (std::vector<std::string>{"head.weight", "head.copy"}));
    EXPECT_EQ(embed->details->extent_form, CKPT_EXTENT_FLAT);
    EXPECT_EQ(ckpt_index_find(index.get(), "rows")->details->extent_form, CKPT_EXTENT_FLAT);
    EXPECT_EQ(ckpt_index_find(index.get(), "one")->details->extent_form, CKPT_EXTENT_FLAT);
    EXPECT_NE(embed->storage, 0u);
    for (const char *shared : {"rows", "columns", "transposed", "steps", "row.expanded", "one"})
      EXPECT_EQ(ckpt_index_find(index.get(), shared)->storage, embed->storage) << shared;
    for (const char *strided : {"columns", "transposed", "steps", "expanded", "row.expanded", "deep"})
      EXPECT_EQ(ckpt_index_find(index.get(), strided)->details->extent_form, CKPT_EXTENT_STRIDED) << strided;
    for (const char *own : {"scalar", "deep", "empty", "expanded"})
      EXPECT_EQ(ckpt_index_find(index.get(), own)->storage, 0u) << own;
    EXPECT_NE(ckpt_object_extra_of(ckpt_object_get(index->objects, "torch"), CKPT_EXTRA_STATE), nullptr);
    EXPECT_TRUE(notes_of(index.get()).empty());
  }
}

// {'a.b': x, 'a': {'b': y, 'b~2': z}}
TEST(Torch, PathsThatAreOneName) {
  auto element = [](const char *at) { return view(storage("FloatStorage", "0", "6"), at, {"1"}, {"1"}); };
  const float six[] = {0, 1, 2, 3, 4, 5};
  const std::string bytes =
      archive(dict({{"a.b", element("0")}, {"a", dict({{"b", element("1")}, {"b~2", element("2")}})}}) + ".",
              {std::string(reinterpret_cast<const char *>(six), sizeof six)});
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (int i = 0; i < 3; i++) {
    const char *const names[] = {"a.b", "a.b~3", "a.b~2"};
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), names[i]);
    ASSERT_NE(tensor, nullptr) << names[i];
    EXPECT_EQ(values(index.get(), tensor).substr(0, 4),
              std::string(reinterpret_cast<const char *>(&six[i]), sizeof(float)));
  }
  EXPECT_EQ(notes_of(index.get()),
            (std::vector<std::string>{"1 path makes a name that there is, first 'a.b': such names end in ~2"}));
}

TEST(Torch, TrainingState) {
  IndexPointer index = open_golden("training");
  std::map<std::string, int> roles;
  for (uint32_t i = 0; i < index->n_tensors; i++) roles[ckpt_role_name((ckpt_role)index->tensors[i].role)]++;
  EXPECT_EQ(roles,
            (std::map<std::string, int>{
                {"parameter", 4}, {"exp_avg", 4}, {"exp_avg_sq", 4}, {"step", 4}, {"momentum", 1}, {"other", 2}}));
  EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.1.weight.exp_avg")->role, CKPT_ROLE_EXP_AVG);
  EXPECT_EQ(index->step, 12);
  ASSERT_NE(index->objects, nullptr);
  EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_TRAINER)), "{\"epoch\": 3, \"global_step\": 12}");
  EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_SCHEDULER)),
            "{\"last_epoch\": 3, \"_last_lr\": [0.01]}");
  EXPECT_EQ(ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS)->n, 1u);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  const ckpt_object *weight = ckpt_object_get(ckpt_object_get(root, "model"), "1.weight");
  ASSERT_EQ(weight->kind, CKPT_OBJECT_TENSOR);
  EXPECT_STREQ(index->tensors[weight->tensor].name, "1.weight");
  EXPECT_EQ(printed(ckpt_object_get(root, "args")).substr(0, 70),
            "{\"argparse.Namespace\": [], \"state\": {\"lr\": 0.01, \"layers\": [1, 2], \"ma");
}

// A flat dict of a model whose modules are called as parts of a training state are.
TEST(Torch, ParametersCalledLikeTrainingState) {
  const std::string f = storage("FloatStorage", "0", "6");
  auto tensor = [&](const char *offset) { return view(f, offset, {"1"}, {"1"}); };
  ckpt_error err = {};
  IndexPointer index = open_bytes(archive(dict({{"scaler.weight", tensor("0")},
                                                {"optimal.bias", tensor("1")},
                                                {"optimizer.state.w.exp_avg", tensor("2")},
                                                {"rng_state", tensor("3")}}) +
                                              ".",
                                          {kSixFloats}),
                                  &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_find(index.get(), "scaler.weight")->role, CKPT_ROLE_PARAMETER);
  EXPECT_EQ(ckpt_index_find(index.get(), "optimal.bias")->role, CKPT_ROLE_PARAMETER);
  EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.w.exp_avg")->role, CKPT_ROLE_EXP_AVG);
  EXPECT_EQ(ckpt_index_find(index.get(), "rng_state")->role, CKPT_ROLE_OTHER);
}

// In a flat dict the model's are all dotted names, also of what is no plain tensor; where a model is below a key, those
// below it.
TEST(Torch, WhatDottedNamesAre) {
  const struct {
    const char *file, *parameters, *others;
  } cases[] = {{"flat-quantized.pt",
                "fc._packed_params.0 fc.bias fc.weight.scales fc.weight.values fc.weight.zero_points ", "meta.0 "},
               {"beside-dotted.pt", "fc.weight ", "ema.decay "}};
  for (const auto &c : cases) {
    ckpt_error err = {};
    IndexPointer index = open(std::string(CKPT_TESTS_DIR) + "/data/torch/" + c.file, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    std::string parameters, others;
    for (uint32_t k = 0; k < index->n_tensors; k++) {
      const ckpt_tensor &tensor = index->tensors[index->by_name[k]];
      (ckpt_role_is_model((ckpt_role)tensor.role) ? parameters : others) += std::string(tensor.name) + " ";
    }
    EXPECT_EQ(parameters, c.parameters) << c.file;
    EXPECT_EQ(others, c.others) << c.file;
  }
}

TEST(Torch, StoredNames) {
  IndexPointer index = open_golden("training", true);
  EXPECT_NE(ckpt_index_find(index.get(), "model.0.weight"), nullptr);
  EXPECT_NE(ckpt_index_find(index.get(), "optimizer.state.0.exp_avg"), nullptr);
  EXPECT_NE(ckpt_index_find(index.get(), "second.state.0.momentum_buffer"), nullptr);
}

TEST(Torch, Modules) {
  for (const std::string name : {"module", "module-legacy"}) {
    IndexPointer index = open_golden(name);
    EXPECT_EQ(ckpt_index_find(index.get(), "1.running_mean")->role, CKPT_ROLE_BUFFER);
    EXPECT_EQ(ckpt_index_find(index.get(), "1.weight")->role, CKPT_ROLE_PARAMETER);
    EXPECT_EQ(notes_of(index.get()), std::vector<std::string>());  // torch's own layers are known
  }
}

// "scaler" is a trainer's, but in what a module's state_dict() gave.
TEST(Torch, AllTensorsOfAModulesStateAreTheModels) {
  const std::string w = view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"}),
                    scaler = view(storage("FloatStorage", "1", "6"), "0", {"6"}, {"1"});
  ckpt_error err = {};
  for (const bool is_module : {false, true}) {
    const std::string versions =
        is_module ? dict({{"_metadata", dict({{"", dict({{"version", "I1\n"}})}})}}) + "b" : "";
    IndexPointer index =
        open_bytes(archive("ccollections\nOrderedDict\n)R(Va.w\n" + w + "Vscaler\n" + scaler + "u" + versions + ".",
                           {kSixFloats, kSixFloats}),
                   &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    ASSERT_NE(ckpt_index_find(index.get(), "scaler"), nullptr);
    EXPECT_EQ(ckpt_index_find(index.get(), "scaler")->role, is_module ? CKPT_ROLE_PARAMETER : CKPT_ROLE_OTHER);
  }
}

TEST(Torch, BytesBehindAStreamAreAProblem) {
  Folder folder;
  const std::string bytes = slurp(kData + "legacy.pt");
  spill(folder / "a.pt", bytes + "more");
  ckpt_error err = {};
  IndexPointer index = open(folder / "a.pt", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(notes_of(index.get()), std::vector<std::string>{"! a.pt: bytes follow its last storage (4 of " +
                                                            std::to_string(bytes.size() + 4) + ")"});
}

TEST(Torch, SparseTensorsAreComposites) {
  IndexPointer index = open_golden("sparse");
  ASSERT_EQ(index->n_composites, 1u);
  EXPECT_STREQ(index->composites[0].name, "s");
  EXPECT_EQ(index->composites[0].rank, 2u);
  EXPECT_EQ(index->composites[0].shape[1], 3u);
  EXPECT_STREQ(index->composites[0].components[0], "s.indices");
  EXPECT_STREQ(index->composites[0].components[1], "s.values");
}

// Integers, scales and zero points are tensors; what belongs together is said, and nothing is lost of the object.
TEST(Torch, QuantizedTensorsAreComposites) {
  IndexPointer index = open_golden("quantized");
  EXPECT_EQ(notes_of(index.get()).size(), 0u);
  ASSERT_EQ(index->n_composites, 3u);
  std::map<std::string, const ckpt_composite *> found;
  for (uint32_t i = 0; i < 3; i++) found[index->composites[i].name] = &index->composites[i];
  ASSERT_EQ(found.count("w"), 1u);
  ASSERT_EQ(found.count("layer.v"), 1u);
  ASSERT_EQ(found.count("p"), 1u);
  EXPECT_STREQ(found["p"]->components[1], "p.scales"); /* numbers of the pickle */
  EXPECT_EQ(ckpt_index_find(index.get(), "p.scales")->dtype, CKPT_F64);
  EXPECT_EQ(found["w"]->kind, CKPT_COMPOSITE_QUANTIZED);
  EXPECT_EQ(found["w"]->shape[0], 4u);
  EXPECT_STREQ(found["w"]->components[0], "w.values");
  EXPECT_STREQ(found["w"]->components[1], "w.scales");
  EXPECT_STREQ(found["w"]->components[2], "w.zero_points");
  EXPECT_EQ(ckpt_index_find(index.get(), "w.values")->dtype, CKPT_I8);
  EXPECT_EQ(ckpt_index_find(index.get(), "layer.v.values")->dtype, CKPT_U8);
  const ckpt_object *call = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "w");
  EXPECT_STREQ(call->name, "torch._utils._rebuild_qtensor");
  EXPECT_EQ(call->items[0]->kind, CKPT_OBJECT_TENSOR);
}

// What one rank saved of an optimizer is an optimizer's, whatever wraps it.
TEST(Torch, DTensorsOfAnOptimizerHaveTheirRoles) {
  IndexPointer index = open_golden("dtensor-training");
  const std::map<std::string, ckpt_role> wanted = {{"weight", CKPT_ROLE_PARAMETER},
                                                   {"optimizer.state.weight.exp_avg", CKPT_ROLE_EXP_AVG},
                                                   {"optimizer.state.weight.exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
                                                   {"optimizer.state.weight.step", CKPT_ROLE_STEP}};
  for (const auto &[name, role] : wanted) {
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), name.c_str());
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->role, role) << name;
  }
  const ckpt_tensor *momentum = ckpt_index_find(index.get(), "second.state.0.momentum");
  ASSERT_NE(momentum, nullptr);
  EXPECT_EQ(momentum->role, CKPT_ROLE_MOMENTUM);
}

TEST(Torch, DTensorsAreTheirLocalParts) {
  IndexPointer index = open_golden("dtensor");
  EXPECT_EQ(notes_of(index.get()), std::vector<std::string>()); /* of one rank: all of each */
  EXPECT_EQ(ckpt_index_find(index.get(), "weight._spec.mesh._rank_map")->role, CKPT_ROLE_OTHER);
  const ckpt_object *weight = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "weight");
  EXPECT_STREQ(weight->name, "torch._tensor._rebuild_from_type_v2");
  EXPECT_NE(printed(weight).find("placement_types.Shard"), std::string::npos);
}

// What one rank has of a tensor is not the tensor: told with both shapes, and not of what each rank has whole.
TEST(Torch, PartsAreNoWholes) {
  IndexPointer parts = open_golden("parts"), summand = open_golden("summand"), whole = open_golden("dtensor");
  EXPECT_STREQ(parts->part, "holds one rank's part of 3 tensors (first cut: [3,3] of [5,3])");
  EXPECT_STREQ(parts->notes[parts->n_notes - 1].message, parts->part);
  EXPECT_TRUE(parts->notes[parts->n_notes - 1].is_problem);
  EXPECT_STREQ(summand->part, "holds one rank's part of 1 tensor (sum: a summand of [2])");
  Folder folder;  // the same of a class that is made of it
  std::string bytes = slurp(kData + "summand.pt");
  const std::string class_name = "placement_types\nPartial\n";
  ASSERT_NE(bytes.find(class_name), std::string::npos);
  spill(folder / "n.pt", bytes.replace(bytes.find(class_name), class_name.size(), "placement_\n_NormPartial\n"));
  ckpt_error err = {};
  IndexPointer norm = open(folder / "n.pt", &err, false, true);
  ASSERT_NE(norm, nullptr) << text_of(err);
  EXPECT_STREQ(norm->part, summand->part);
  EXPECT_EQ(whole->part, nullptr);
}

// What a subclass wraps is read as its parts, which is said: nobody else puts them together.
TEST(Torch, PartsOfSubclassesAreNamed) {
  IndexPointer index = open_golden("wrapped");
  ASSERT_EQ(index->n_composites, 2u);
  EXPECT_EQ(index->composites[0].kind, CKPT_COMPOSITE_WRAPPED);
  EXPECT_STREQ(index->composites[0].name, "fc.weight");
  EXPECT_EQ(index->composites[0].dtype, CKPT_F32);
  EXPECT_EQ(index->composites[0].shape[1], 3u);
  EXPECT_STREQ(index->composites[0].components[0], "fc.weight.a");
  EXPECT_STREQ(index->composites[0].components[1], "fc.weight.b");
  EXPECT_EQ(index->composites[0].components[2], nullptr);
  EXPECT_EQ(notes_of(index.get()).back(),
            "holds the parts of 2 tensors that a subclass wraps (first fc.weight: "
            "torch.testing._internal.two_tensor.TwoTensor)");
  EXPECT_EQ(open_golden("dtensor")->n_composites, 0u);
}

// What is not read is said, and is still there as the call that it was.
TEST(Torch, RefusedTensorsStayObjects) {
  IndexPointer index = open_golden("refused");
  EXPECT_EQ(notes_of(index.get()).size(), 4u);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  EXPECT_STREQ(ckpt_object_get(root, "bits")->name, "torch._utils._rebuild_tensor_v3");
  EXPECT_EQ(ckpt_object_get(root, "conj")->kind, CKPT_OBJECT_TENSOR);
  EXPECT_EQ(ckpt_object_get(root, "half")->kind, CKPT_OBJECT_TENSOR);
}

// A folder of pytorch_model.bin, whole or in shards with an index; safetensors come first.
TEST(Torch, HuggingFaceFolders) {
  Folder folder;
  const std::string plain = slurp(kData + "list.pt"), ties = slurp(kData + "views.pt");
  spill(folder / "one/pytorch_model.bin", ties);
  spill(folder / "one/config.json", "{}");
  spill(folder / "shards/pytorch_model-00001-of-00002.bin", plain);
  spill(folder / "shards/pytorch_model-00002-of-00002.bin", ties);
  std::string map;
  ckpt_error err = {};
  IndexPointer one = open(folder / "one", &err);
  ASSERT_NE(one, nullptr) << text_of(err);
  EXPECT_STREQ(one->format, "hf");
  EXPECT_EQ(one->n_side_files, 1u);
  for (uint32_t i = 0; i < one->n_tensors; i++) {
    map += "\"" + std::string(one->tensors[i].name) + "\":\"pytorch_model-00002-of-00002.bin\",";
    for (const std::string &alias : aliases_of(&one->tensors[i]))
      map += "\"" + alias + "\":\"pytorch_model-00002-of-00002.bin\",";
  }
  map += "\"0\":\"pytorch_model-00001-of-00002.bin\",\"1\":\"pytorch_model-00001-of-00002.bin\"";
  spill(folder / "shards/pytorch_model.bin.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  IndexPointer shards = open(folder / "shards", &err);
  ASSERT_NE(shards, nullptr) << text_of(err);
  EXPECT_EQ(shards->n_tensors, one->n_tensors + 2);
  EXPECT_TRUE(notes_of(shards.get()).empty());
  for (uint32_t i = 0; i < one->n_tensors; i++) {
    const ckpt_tensor *same = ckpt_index_find(shards.get(), one->tensors[i].name);
    EXPECT_EQ(values(shards.get(), same), values(one.get(), &one->tensors[i]));
  }
  spill(folder / "shards/model.safetensors", slurp(kData + "list.safetensors"));
  IndexPointer first = open(folder / "shards", &err);
  ASSERT_NE(first, nullptr) << text_of(err);
  EXPECT_EQ(first->n_tensors, 2u);
}

// ---- storages and calls ---------------------------------------------------------------------------------------------

// What is held of one tensor "w": its name and dtype for each, or why it is not read; * where it is not the model's.
std::string held(const std::string &tensor) {
  ckpt_error err = {};
  std::string bytes = one(tensor), found;
  IndexPointer index = open_bytes(bytes, &err, false);
  if (index == nullptr) return text_of(err);
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *w = ckpt_index_at(index.get(), i);
    found += (i == 0 ? "" : ", ") + std::string(w->name) + " " + ckpt_dtype_name(static_cast<ckpt_dtype>(w->dtype)) +
             (w->role == CKPT_ROLE_OTHER ? "*" : "");
  }
  for (const std::string &note : notes_of(index.get()))
    if (note.rfind("not read", 0) == 0) found += (found.empty() ? "" : "; ") + note;
  return found;
}

// Of a dtype that we have not; where the storage's elements are known, it is a tensor of bytes.
std::string not_read(const std::string &dtype) {
  const bool is_known = dtype.find("Untyped") == std::string::npos && dtype != "strange";
  return (is_known ? "w.storage u8*; not read: w (of dtype " : "not read: w (of dtype ") + dtype + ")";
}

TEST(Torch, EveryStorageType) {
  const std::vector<std::tuple<std::string, std::string, int>> types = {{"DoubleStorage", "w f64", 8},
                                                                        {"FloatStorage", "w f32", 4},
                                                                        {"HalfStorage", "w f16", 2},
                                                                        {"BFloat16Storage", "w bf16", 2},
                                                                        {"LongStorage", "w i64", 8},
                                                                        {"IntStorage", "w i32", 4},
                                                                        {"ShortStorage", "w i16", 2},
                                                                        {"CharStorage", "w i8", 1},
                                                                        {"ByteStorage", "w u8", 1},
                                                                        {"BoolStorage", "w bool", 1},
                                                                        {"ComplexFloatStorage", "w c64", 8},
                                                                        {"ComplexHalfStorage", "complex32", 4},
                                                                        {"QInt8Storage", "qint8", 1},
                                                                        {"QUInt8Storage", "quint8", 1},
                                                                        {"QInt32Storage", "qint32", 4},
                                                                        {"QUInt4x2Storage", "quint4x2", 1},
                                                                        {"QUInt2x4Storage", "quint2x4", 1},
                                                                        {"UntypedStorage", "UntypedStorage", 1},
                                                                        {"_UntypedStorage", "_UntypedStorage", 1}};
  for (const auto &[type, wanted, n_bytes] : types) {
    const std::string read = wanted[0] == 'w' ? wanted : not_read(wanted), n = std::to_string(24 / n_bytes);
    EXPECT_EQ(held(view(storage(type, "0", n), "0", {n}, {"1"})), read) << type;
    const std::string id = storage(type, "0", n),
                      cuda = "ctorch.cuda\n" + id.substr(id.find('\n', id.find("ctorch")) + 1);
    EXPECT_EQ(held(view(id.substr(0, id.find("ctorch")) + cuda, "0", {n}, {"1"})), read) << "cuda " << type;
  }
  const std::string sixteen = storage("ComplexDoubleStorage", "0", "1");
  EXPECT_EQ(held(view(sixteen, "0", {"1"}, {"1"})), "memory: storage '0' is said to have 16 bytes, its record has 24");
  EXPECT_EQ(held(view(storage("StrangeStorage", "0", "6"), "0", {"6"}, {"1"})),
            "not read: w (of a storage whose class is not known)");
  const std::string untyped = storage("UntypedStorage", "0", "24");
  const std::vector<std::tuple<std::string, std::string, int>> dtypes = {{"float64", "w f64", 8},
                                                                         {"bfloat16", "w bf16", 2},
                                                                         {"uint16", "w u16", 2},
                                                                         {"uint32", "w u32", 4},
                                                                         {"uint64", "w u64", 8},
                                                                         {"float8_e4m3fn", "w f8_e4m3", 1},
                                                                         {"float8_e5m2", "w f8_e5m2", 1},
                                                                         {"float8_e4m3fnuz", "w f8_e4m3fnuz", 1},
                                                                         {"float8_e5m2fnuz", "w f8_e5m2fnuz", 1},
                                                                         {"float8_e8m0fnu", "w f8_e8m0", 1},
                                                                         {"float4_e2m1fn_x2", "w f4_e2m1", 1},
                                                                         {"complex32", "complex32", 4},
                                                                         {"bits8", "bits8", 1},
                                                                         {"bits16", "bits16", 2},
                                                                         {"bits1x8", "bits1x8", 1},
                                                                         {"bits2x4", "bits2x4", 1},
                                                                         {"bits4x2", "bits4x2", 1},
                                                                         {"strange", "strange", 1}};
  for (const auto &[dtype, wanted, n_bytes] : dtypes) {
    const std::string n = std::to_string(24 / n_bytes);
    EXPECT_EQ(held(call("_rebuild_tensor_v3",
                        {untyped, number("0"), sizes({n}), sizes({"1"}), "I00\n", "}", "ctorch\n" + dtype + "\n"})),
              wanted[0] == 'w' ? wanted : not_read(wanted))
        << dtype;
  }
}

TEST(Torch, EveryRebuildFunction) {
  const std::string f = storage("FloatStorage", "0", "6"), v = view(f, "0", {"6"}, {"1"}), named = "ctorch\nTensor\n";
  const std::string bytes = storage("CharStorage", "0", "24"), packed = storage("QInt8Storage", "0", "24");
  const auto scheme = [](const std::string &name) { return "ctorch\nper_" + name + "\n"; };
  const auto layout = [](const std::string &name) {
    return "ctorch.serialization\n_get_layout\n" + tuple({text("torch.sparse_" + name)}) + "R";
  };
  const auto quantized = [&](const std::string &from, const std::string &n, const std::vector<std::string> &with) {
    return call("_rebuild_qtensor", {from, number("0"), sizes({n}), sizes({"1"}), tuple(with), "I00\n", "}"});
  };
  const auto from_type = [&](const std::string &module, const std::string &function, const std::string &args) {
    return "c" + module + "\n" + function + "\n" +
           tuple({"ctorch._utils\n_rebuild_tensor_v2\n", "cm\nSubclass\n", args, "}"}) + "R";
  };
  const std::string args = tuple({f, number("0"), sizes({"6"}), sizes({"1"}), "I00\n", "}"});
  const std::string wrapped = "ctorch._tensor\n_rebuild_from_type_v2\n" +
                              tuple({"ctorch._utils\n_rebuild_wrapper_subclass\n", "cm\nSubclass\n", tuple({named}),
                                     dict({{"_data", v}, {"_scale", view(f, "0", {"1"}, {"1"})}})}) +
                              "R";
  const auto attributed = [&](const std::string &function, const std::string &with) {
    return "ctorch._tensor\n_rebuild_from_type_v2\n" +
           tuple({"ctorch._utils\n" + function + "\n", named, with, dict({{"note", view(f, "2", {"2"}, {"1"})}})}) +
           "R";
  };
  const std::string not_read = "not read: w (";
  const std::vector<std::pair<std::string, std::string>> calls = {
      {call("_rebuild_tensor", {f, number("0"), sizes({"6"}), sizes({"1"})}), "w f32"},
      {v, "w f32"},
      {call("_rebuild_parameter", {v, "I01\n", "}"}), "w f32"},
      {call("_rebuild_parameter_with_state", {v, "I01\n", "}", "}"}), "w f32"},
      {call("_rebuild_device_tensor_from_cpu_tensor", {v, "ctorch\nfloat32\n", text("xla:0"), "I00\n"}), "w f32"},
      {from_type("torch._tensor", "_rebuild_from_type_v2", args), "w f32"},
      {from_type("torch._tensor", "_rebuild_from_type", args), "w f32"},
      {from_type("torch.tensor", "_rebuild_from_type", args), "w f32"},
      {wrapped, "w._data f32, w._scale f32"},
      {quantized(packed, "24", {scheme("tensor_affine"), "F0.5\n", number("3")}),
       "w.scales f64, w.values i8, w.zero_points i64"},
      {quantized(packed, "24", {scheme("channel_affine"), v, v, number("0")}), "w.scales f32, w.values i8"},
      {attributed("_rebuild_qtensor", tuple({packed, number("0"), sizes({"24"}), sizes({"1"}),
                                             tuple({scheme("tensor_affine"), "F0.5\n", number("3")}), "I00\n", "}"})),
       "w.note f32*, w.scales f64, w.values i8, w.zero_points i64"},
      {attributed("_rebuild_sparse_tensor",
                  tuple({layout("coo"), tuple({v, view(f, "0", {"1"}, {"1"}), sizes({"9"})})})),
       "w.indices f32, w.note f32*, w.values f32"},
      {attributed("_rebuild_meta_tensor_no_storage", tuple({named, sizes({"1"}), sizes({"1"}), "I00\n"})),
       "w.note f32*; " + not_read + "a meta tensor, without data)"},
      {quantized(storage("QUInt4x2Storage", "0", "24"), "48", {scheme("tensor_affine"), "F0.5\n", number("3")}),
       "w.storage u8*; " + not_read + "quantized, several values in a byte)"},
      {quantized(storage("QUInt2x4Storage", "0", "24"), "96", {scheme("channel_affine"), v, v, number("0")}),
       "w.scales f32*, w.storage u8*; " + not_read + "quantized, several values in a byte)"},
      {quantized(packed, "24", {scheme("strange"), v, v, number("0")}),
       "unnamed.0 f32*; " + not_read + "quantized in a way that is not known)"},
      {quantized(packed, "24", {scheme("tensor_affine"), text("x"), number("3")}),
       not_read + "quantized in a way that is not known)"},
      {call("_rebuild_sparse_tensor", {layout("coo"), tuple({v, view(f, "0", {"1"}, {"1"}), sizes({"9"})})}),
       "w.indices f32, w.values f32"},
      {call("_rebuild_meta_tensor_no_storage", {named, sizes({"1"}), sizes({"1"}), "I00\n"}),
       not_read + "a meta tensor, without data)"},
      {call("_rebuild_device_tensor_from_numpy", {"N", named, text("xla:0"), "I00\n"}),
       not_read + "a NumPy array inside the pickle)"},
      {call("_rebuild_xla_tensor", {"N", named, text("xla:0"), "I00\n"}),
       not_read + "a NumPy array inside the pickle)"},
      {call("_rebuild_strange", {v}), "w.0 f32"}};
  for (const auto &[made, wanted] : calls) EXPECT_EQ(held(made), wanted) << made.substr(0, 80);
  for (const std::string name : {"csr", "bsr", "csc", "bsc"}) {
    const std::string first = name[1] == 's' && name[2] == 'r' ? "crow_indices" : "ccol_indices";
    const std::string second = first == "crow_indices" ? "col_indices" : "row_indices";
    const std::string found = held(
        call("_rebuild_sparse_tensor",
             {layout(name), tuple({v, view(f, "1", {"5"}, {"1"}), view(f, "0", {"1"}, {"1"}), sizes({"9", "9"})})}));
    for (const std::string &part : {first, second, std::string("values")})
      EXPECT_NE(found.find("w." + part + " f32"), std::string::npos) << name << ": " << found;
  }
}

}  // namespace
}  // namespace formats_testing
