// PyTorch files: values of what torch.save wrote, names, roles, objects, and every kind of lie about storages and
// views.
#include <tuple>

#include "tests/formats/torch_testing.h"

extern "C" {
#include "libckpt/dtype.h"
#include "libckpt/object.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/torch/";

std::string values(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::string bytes(tensor->n_bytes, '\0');
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << tensor->name << ": " << text_of(err);
  return bytes;
}

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
  EXPECT_EQ(n_files, 26u);
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
    EXPECT_EQ(embed->extent_form, CKPT_EXTENT_FLAT);
    EXPECT_EQ(ckpt_index_find(index.get(), "rows")->extent_form, CKPT_EXTENT_FLAT);
    EXPECT_EQ(ckpt_index_find(index.get(), "one")->extent_form, CKPT_EXTENT_FLAT);
    EXPECT_NE(embed->storage, 0u);
    for (const char *shared : {"rows", "columns", "transposed", "steps", "row.expanded", "one"})
      EXPECT_EQ(ckpt_index_find(index.get(), shared)->storage, embed->storage) << shared;
    for (const char *strided : {"columns", "transposed", "steps", "expanded", "row.expanded", "deep"})
      EXPECT_EQ(ckpt_index_find(index.get(), strided)->extent_form, CKPT_EXTENT_STRIDED) << strided;
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
  EXPECT_EQ(notes_of(index.get()),
            (std::vector<std::string>{"holds 2 DTensors: of each its local part, which one rank has"}));
  EXPECT_EQ(ckpt_index_find(index.get(), "weight._spec.mesh._rank_map")->role, CKPT_ROLE_OTHER);
  const ckpt_object *weight = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "weight");
  EXPECT_STREQ(weight->name, "torch._tensor._rebuild_from_type_v2");
  EXPECT_NE(printed(weight).find("placement_types.Shard"), std::string::npos);
}

// What is not read is said, and is still there as the call that it was.
TEST(Torch, RefusedTensorsStayObjects) {
  IndexPointer index = open_golden("refused");
  EXPECT_EQ(notes_of(index.get()).size(), 5u);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  EXPECT_STREQ(ckpt_object_get(root, "conj")->name, "torch._utils._rebuild_tensor_v2");
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
  spill(folder / "shards/pytorch_model.bin.index.json", "{\"weight_map\":{" + map + "}}");
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

// ---- lies -----------------------------------------------------------------------------------------------------------

TEST(Torch, HandMadeArchive) {
  const std::string floats = storage("FloatStorage", "0", "6");
  ckpt_error err = {};
  const std::string bytes = one(view(floats, "1", {"2", "2"}, {"2", "1"}));
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(values(index.get(), ckpt_index_find(index.get(), "w")), std::string(16, 'x'));
}

TEST(Torch, LiesAboutViews) {
  const std::string f = storage("FloatStorage", "0", "6"), outside = "memory: tensor 'w': reaches outside its storage ";
  EXPECT_EQ(failure(one(view(f, "1", {"6"}, {"1"}))), outside + "(6 elements from 1, the storage has 6)");
  EXPECT_EQ(failure(one(view(f, "0", {"2", "2"}, {"5", "1"}))), outside + "(7 elements from 0, the storage has 6)");
  EXPECT_EQ(failure(one(view(f, "7", {"1"}, {"1"}))), outside + "(1 element from 7, the storage has 6)");
  const std::string impossible = "memory: tensor 'w': its offset, shape or strides are not possible";
  EXPECT_EQ(failure(one(view(f, "-1", {"1"}, {"1"}))), impossible);
  EXPECT_EQ(failure(one(view(f, "0", {"4294967296", "4294967296"}, {"1", "1"}))), impossible);
  EXPECT_EQ(failure(one(view(f, "0", {"3", "2"}, {"9223372036854775807", "1"}))), impossible);
  const std::string axes = "memory: tensor 'w': its shape and strides are no two lists of as many sizes";
  EXPECT_EQ(failure(one(view(f, "0", {"1", "-4"}, {"1", "1"}))),
            "memory: tensor 'w': the size of axis 1 is negative (-4)");
  EXPECT_EQ(failure(one(view(f, "0", {"1"}, {"-1"}))), "memory: tensor 'w': the stride of axis 0 is negative (-1)");
  EXPECT_EQ(failure(one(view(f, "0", {"2", "3"}, {"1"}))), axes);
  EXPECT_EQ(failure(one(call("_rebuild_tensor_v2", {f}))),
            "memory: tensor 'w': a tensor without storage, offset, shape or strides");
  EXPECT_EQ(failure(one(view("N", "0", {"1"}, {"1"}))),
            "memory: tensor 'w': a tensor without storage, offset, shape or strides");
}

// A view of 24 bytes may be as large as it likes up to a limit of bytes, which all views of a file share.
TEST(Torch, ViewsOfLittleAreReadUpToALimit) {
  const uint64_t most = ((UINT64_C(4) << 30) + 16 * 24) / 4;
  const std::string f = storage("FloatStorage", "0", "6");
  struct {
    std::vector<uint64_t> lengths;
    std::vector<bool> is_read;
  } cases[] = {
      {{most}, {true}},
      {{most + 1}, {false}},
      {{UINT64_C(1) << 35}, {false}},
      {{UINT64_C(1) << 61, 2}, {false, true}},
      {{1 << 20, most - (1 << 20) - 2, 2, 1}, {true, true, true, false}},
      {{1 << 20, most, 1 << 20}, {true, false, true}},
  };
  for (const auto &c : cases) {
    std::vector<std::pair<std::string, std::string>> items;
    for (size_t i = 0; i < c.lengths.size(); i++)
      items.push_back({"w" + std::to_string(i), view(f, "0", {std::to_string(c.lengths[i])}, {"0"})});
    ckpt_error err = {};
    IndexPointer index = open_bytes(archive(dict(items) + ".", {kSixFloats}), &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    std::string notes;
    for (const std::string &note : notes_of(index.get())) notes += note;
    for (size_t i = 0; i < c.lengths.size(); i++)
      EXPECT_EQ(ckpt_index_find(index.get(), items[i].first.c_str()) != nullptr, c.is_read[i]) << i << ": " << notes;
    bool is_all = std::find(c.is_read.begin(), c.is_read.end(), false) == c.is_read.end();
    EXPECT_EQ(notes.empty(), is_all) << notes;
    EXPECT_EQ(notes.find(" bytes of a storage of 24; such views are read up to 4294967296 bytes in all") != notes.npos,
              !is_all)
        << notes;
  }
}

// Strides that are not 0 can repeat what is stored as well.
TEST(Torch, OverlappingViewsAreViewsOfLittle) {
  ckpt_error err = {};
  const std::string floats(4 << 17, 'x');
  const std::string tensor = view(storage("FloatStorage", "0", "131072"), "0", {"65536", "65536"}, {"1", "1"});
  IndexPointer index = open_bytes(archive(dict({{"w", tensor}}) + ".", {floats}), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(index->n_unread, 1u);
  EXPECT_EQ(index->n_tensors, 0u);
}

TEST(Torch, LiesAboutStorages) {
  auto with = [](const std::string &from) { return one(view(from, "0", {"1"}, {"1"})); };
  EXPECT_EQ(failure(with(storage("FloatStorage", "0", "7"))),
            "memory: storage '0' is said to have 28 bytes, its record has 24");
  EXPECT_EQ(failure(with(storage("FloatStorage", "0", "5"))),
            "memory: storage '0' is said to have 20 bytes, its record has 24");
  EXPECT_EQ(failure(with(storage("UntypedStorage", "0", "6"))),
            "memory: storage '0' is said to have 6 bytes, its record has 24");
  EXPECT_EQ(failure(with(storage("FloatStorage", "1", "6"))), "memory: storage '1' has no record");
  EXPECT_EQ(failure(with(storage("FloatStorage", "0", "-6"))),
            "memory: storage '0' has no possible number of elements");
  EXPECT_EQ(failure(with(storage("DoubleStorage", "0", "2305843009213693952"))),
            "memory: storage '0' has no possible number of elements");
  ckpt_error err = {};
  const std::string round = with(storage("RoundStorage", "0", "6"));
  IndexPointer index = open_bytes(round, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(index->n_tensors, 0u);
  EXPECT_NE(notes_of(index.get()).back().find("class is not known"), std::string::npos);
  EXPECT_EQ(failure(with(tuple({text("storage"), "ctorch\nFloatStorage\n", "N", text("cpu"), number("6")}) + "Q")),
            "memory: a storage whose key is no text");
  const std::string both = dict({{"a", view(storage("FloatStorage", "0", "6"), "0", {"1"}, {"1"})},
                                 {"b", view(storage("FloatStorage", "0", "5"), "0", {"1"}, {"1"})}});
  EXPECT_EQ(failure(archive(both + ".", {kSixFloats})), "memory: storage '0' is said to have 24 bytes, and 20");
}

// A view by another type of the same bytes is another tensor of the same storage.
// As pickle_protocol=0 has them.
TEST(Torch, StoragesNamedByText) {
  const std::string id = "P('storage', <class 'torch.FloatStorage'>, '0', 'cpu', 6)\n";
  EXPECT_EQ(failure(one(view(id, "0", {"6"}, {"1"}))).find("memory: storages are named by text, as pickle protocol 0"),
            0u);
}

// Another root, which could hold anything, and a storage of nothing.
TEST(Torch, RecordsThatNothingUses) {
  const std::string object = dict({{"w", view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"})}}) + ".";
  ckpt_error err = {};
  for (const auto &[name, is_used] : std::vector<std::pair<std::string, bool>>{
           {"b/data.pkl", false}, {"a/data/1", false}, {"a/version", true}, {"a/data/", true}}) {
    const std::string bytes =
        zip({{"a/data.pkl", object}, {"a/data/0", kSixFloats}, {name, name.back() == '/' ? "" : "3"}});
    IndexPointer index = open_bytes(bytes, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const std::vector<std::string> said = {"! memory: 1 record that its object does not use (" + name + ")"};
    EXPECT_EQ(notes_of(index.get()), is_used ? std::vector<std::string>() : said) << name;
  }
}

TEST(Torch, OneStorageTwoTypes) {
  const std::string bytes = archive(dict({{"a", view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"})},
                                          {"b", view(storage("ByteStorage", "0", "24"), "0", {"24"}, {"1"})}}) +
                                        ".",
                                    {kSixFloats});
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_find(index.get(), "a")->storage, ckpt_index_find(index.get(), "b")->storage);
  EXPECT_EQ(index->n_tensors, 2u);
}

TEST(Torch, OtherArchives) {
  ckpt_status status;
  EXPECT_EQ(failure(zip({{"a/version", "3"}}), &status), "memory: a zip archive without a/data.pkl, no PyTorch file");
  EXPECT_EQ(status, CKPT_EFORMAT);
  EXPECT_EQ(failure(slurp(kData + "script.pt"), &status),
            "memory: a TorchScript archive, which is a program (save its state_dict with torch.save)");
  EXPECT_EQ(status, CKPT_EUNSUPPORTED);
  EXPECT_EQ(failure(zip({{"a/data.pkl", "}."}, {"a/byteorder", "middle"}})),
            "memory: byteorder is neither 'little' nor 'big'");
  EXPECT_EQ(failure(zip({{"a/data.pkl", "}."}, {"a/code/__torch__.py", ""}}), &status).substr(0, 29),
            "memory: a TorchScript archive");
  EXPECT_NE(failure(std::string("\x80\2}.")).find("a pickle"), std::string::npos);
  EXPECT_NE(failure(zip({{"a.npy", ""}})).find("NumPy"), std::string::npos);
}

TEST(Torch, CodeIsNamedAndNotRun) {
  const std::string bytes = archive(dict({{"w", view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"})},
                                          {"x", "cos\nsystem\n" + tuple({text("true")}) + "R"},
                                          {"y", "cmine\nThing\n)R"},
                                          {"z", "\x82\x07)R"}}) +
                                        ".",
                                    {kSixFloats});
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(notes_of(index.get()),
            (std::vector<std::string>{"! memory: would run code when it is unpickled: os.system, "
                                      "copyreg extension.7",
                                      "speaks of classes that are not known: mine.Thing"}));
  EXPECT_EQ(index->n_tensors, 1u);
}

// Graphs that are small and have paths without end.
TEST(Torch, PathsWithoutEnd) {
  const std::string w = view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"});
  std::string bomb = "(" + w + "l";
  for (int i = 0; i < 40; i++) bomb += "p0\n0(g0\ng0\nl";  // a list of twice the list before
  EXPECT_EQ(failure(archive(bomb + ".", {kSixFloats})),
            "memory: the same containers, or long names, again and again in its object");
  ckpt_error err = {};
  const std::string cycle = archive("(lp0\n" + w + "ag0\na.", {kSixFloats});
  IndexPointer index = open_bytes(cycle, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(index->n_tensors, 1u);
  EXPECT_STREQ(index->tensors[0].name, "0");
  EXPECT_NE(failure(archive(std::string(100000, '(') + w + std::string(100000, 'l') + ".", {kSixFloats}))
                .find("a tensor name of more than 4096 bytes"),
            std::string::npos);
}

// A dict of many keys that much of the object shares is not looked through each time.
TEST(Torch, SharedDictsOfManyKeys) {
  const std::string from = storage("FloatStorage", "0", "6"), w = view(from, "0", {"6"}, {"1"});
  const auto name_of = [](const std::string &pickle) {
    ckpt_error err = {};
    const std::string bytes = archive(pickle + ".", {kSixFloats});
    IndexPointer index = open_bytes(bytes, &err, false);
    EXPECT_NE(index, nullptr) << text_of(err);
    return index == nullptr ? "" : index->n_tensors == 0 ? notes_of(index.get())[0] : index->tensors[0].name;
  };
  for (const bool is_many : {false, true}) {
    std::string more;
    for (int i = 0; i < (is_many ? 100 : 10); i++) more += text("k" + std::to_string(i)) + "N";
    const std::string optimizer = "}(" + text("state") + dict({{"w", w}}) + text("param_groups") + "]";
    EXPECT_EQ(name_of(dict({{"app", dict({{"a", optimizer + more + "u"}})}})),
              is_many ? "app.a.state.w" : "optimizer.state.w");
    const std::string group =
        "}(" + text("params") + "(" + number("0") + "l" + text("param_names") + "(" + text("w") + "l" + more + "u";
    EXPECT_EQ(name_of("}(" + text("state") + "}" + number("0") + dict({{"exp_avg", w}}) + "s" + text("param_groups") +
                      "(" + group + "lu"),
              is_many ? "optimizer.state.0.exp_avg" : "optimizer.state.w.exp_avg");
    const std::string metadata = "}(" + text("conj") + "I00\n" + more + "u";
    EXPECT_EQ(name_of(dict({{"w", call("_rebuild_tensor_v2",
                                       {from, number("0"), sizes({"6"}), sizes({"1"}), "I00\n", "}", metadata})}})),
              is_many ? "not read: w (more metadata than conj and neg)" : "w");
  }
}

// Many names of few tensors: linear, as is everything else.
TEST(Torch, ManyNames) {
  const std::string f = storage("FloatStorage", "0", "6");
  std::string pickle = view(f, "0", {"6"}, {"1"}) + "p0\n0" + view(f, "0", {"3"}, {"1"}) + "p1\n0(";
  for (int i = 0; i < 20000; i++) pickle += "g0\ng1\n";
  ckpt_error err = {};
  const std::string bytes = archive(pickle + "l.", {kSixFloats});
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(index->n_tensors, 2u);
  EXPECT_EQ(index->n_aliases, 39998u);
  EXPECT_LT(index->arena.n_taken, 64u << 20);
}

// An object that is kept counts against the index's memory; of a plain dict of tensors nothing is kept.
TEST(Torch, MemoryOfTheObject) {
  const std::string w = view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"});
  std::string pickle = "}(" + text("w") + w;
  for (int i = 0; i < 50000; i++) pickle += text("k" + std::to_string(i)) + "]";
  ckpt_error err = {};
  const std::string kept = archive(pickle + "u.", {kSixFloats});
  IndexPointer index = open_bytes(kept, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_GT(index->arena.n_taken, 50000u * 2 * sizeof(ckpt_object));
  pickle = "}(";
  for (int i = 0; i < 20000; i++) pickle += text("k" + std::to_string(i)) + w;
  const std::string plain = archive(pickle + "u.", {kSixFloats});
  IndexPointer dict = open_bytes(plain, &err, false);
  ASSERT_NE(dict, nullptr) << text_of(err);
  EXPECT_EQ(dict->objects, nullptr);
  EXPECT_LT(dict->arena.n_taken, 20000u * 150);
}

// A file that ends anywhere does not open: an archive has its directory last, a stream its storages.
TEST(Torch, TruncationAtEveryByte) {
  for (const std::string name : {"protocol2", "legacy2"}) {
    const std::string bytes = slurp(kData + name + ".pt");
    for (size_t n = 0; n < bytes.size(); n++) {
      ckpt_error err = {};
      const std::string cut = bytes.substr(0, n);
      ASSERT_EQ(open_bytes(cut, &err, false), nullptr) << name << " " << n;
      ASSERT_NE(err.message[0], '\0');
      ASSERT_NE(err.status, CKPT_EINTERNAL);
    }
  }
}

// Every bit of the small files is flipped: they open and can be read, or fail with a message.
TEST(Torch, EveryBitFlipped) {
  for (const std::string name : {"protocol2", "legacy4", "sparse", "dtensor"}) {
    std::string bytes = slurp(kData + name + ".pt");
    size_t n_opened = 0, end = name == "legacy4" ? bytes.size() : bytes.find("PK\3\4", 4);
    for (size_t bit = 0; bit < 8 * end; bit++) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      ckpt_error err = {};
      IndexPointer index = open_bytes(bytes, &err, bit % 3 == 0);
      if (index == nullptr) {
        ASSERT_NE(err.message[0], '\0');
        ASSERT_NE(err.status, CKPT_EINTERNAL) << text_of(err);
      }
      for (uint32_t i = 0; index != nullptr && i < index->n_tensors; i++)
        if (index->tensors[i].n_bytes < 1 << 20) values(index.get(), &index->tensors[i]);
      n_opened += index != nullptr;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    }
    EXPECT_GT(n_opened, 100u) << name;
  }
}

}  // namespace
}  // namespace formats_testing
