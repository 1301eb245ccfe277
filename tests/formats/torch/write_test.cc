// Torch files that we write, read again: the same tensors, names, ties, roles and objects; what is left out is said.
// What PyTorch makes of them: tests/interop/test_torch_write.py.
#include <ctime>
#include <set>

#include "tests/build.h"
#include "tests/formats/torch/torch_testing.h"

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/pickle.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/torch/";
using Texts = std::vector<std::string>;

// The harness moves raw bytes only: an index of the same tensors over a source in memory, in their order.
struct Flat {
  std::string bytes;
  ckpt_index *index = nullptr;
  explicit Flat(const ckpt_index *from) {
    std::vector<uint64_t> offsets;
    for (uint32_t i = 0; i < from->n_tensors; i++) {
      offsets.push_back(bytes.size());
      bytes += values(from, &from->tensors[i]);
    }
    begin();
    for (uint32_t i = 0; i < from->n_tensors; i++) {
      const ckpt_tensor *t = &from->tensors[i];
      add(t->name, static_cast<ckpt_dtype>(t->dtype), std::vector<uint64_t>(t->shape, t->shape + t->rank),
          static_cast<ckpt_role>(t->role), offsets[i], t->n_bytes, t->n_elements);
      for (const char *const *alias = t->aliases; alias != nullptr && *alias != nullptr; alias++)
        EXPECT_EQ(ckpt_index_alias(index, i, *alias, nullptr), CKPT_OK);
    }
    ckpt_index_set_objects(index, from->objects, from->whole);
  }
  Flat() : bytes(64, 'x') { begin(); }
  ~Flat() { ckpt_index_free(index); }
  void begin() {
    ckpt_source *source = nullptr;
    EXPECT_EQ(ckpt_source_memory(&source, bytes.data(), bytes.size(), "memory", nullptr), CKPT_OK);
    EXPECT_EQ(ckpt_index_new(&index, source, "memory", "test", nullptr, nullptr), CKPT_OK);
  }
  void add(const std::string &name, ckpt_dtype dtype, const std::vector<uint64_t> &shape, ckpt_role role,
           uint64_t offset, uint64_t n_bytes, uint64_t n) {
    ckpt_extent extent = {};
    extent.offset = offset, extent.n_stored = n_bytes, extent.count = n;
    if (dtype == CKPT_F4_E2M1) extent.count = n / 2;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_index_add(index, name.data(), name.size(), dtype, static_cast<uint32_t>(shape.size()), shape.data(),
                             role, &extent, 1, nullptr, &err),
              CKPT_OK)
        << text_of(err);
  }
  void f32(const std::string &name, ckpt_role role) { add(name, CKPT_F32, {2}, role, 0, 8, 2); }
  void finish() { EXPECT_EQ(ckpt_index_finish(index, nullptr), CKPT_OK); }
};

std::string write_torch(const ckpt_index *index, Texts *losses = nullptr, Texts *notes = nullptr) {
  ckpt_error err = {};
  Files files = write("torch", index, {}, &err, losses, notes);
  EXPECT_EQ(files.size(), 1u) << text_of(err);
  return files[""];
}

Texts aliases_of(const ckpt_tensor *tensor) {
  Texts names;
  for (const char *const *alias = tensor->aliases; alias != nullptr && *alias != nullptr; alias++)
    names.push_back(*alias);
  return names;
}

void expect_same(const ckpt_index *a, const ckpt_index *b, const std::string &what) {
  ASSERT_EQ(a->n_tensors, b->n_tensors) << what;
  for (size_t i = 0; i < a->n_tensors; i++) {
    const ckpt_tensor *x = ckpt_index_at(a, i), *y = ckpt_index_at(b, i);
    ASSERT_STREQ(x->name, y->name) << what;
    EXPECT_EQ(x->dtype, y->dtype) << what << x->name;
    int role = x->role == CKPT_ROLE_BUFFER ? int(CKPT_ROLE_PARAMETER) : int(x->role);  // a state dict does not tell
    EXPECT_EQ(role, y->role) << what << x->name;
    EXPECT_TRUE(ckpt_tensor_same_shape(x, y)) << what << x->name;
    EXPECT_EQ(aliases_of(x), aliases_of(y)) << what << x->name;
    EXPECT_EQ(values(a, x), values(b, y)) << what << x->name;
  }
}

// Every file of PyTorch, written and read: the same index; and once more: the same bytes.
TEST(TorchWrite, WhatTorchWroteComesBack) {
  size_t n_files = 0;
  std::set<std::string> not_whole; /* something is lost, which is said */
  for (const auto &file : std::filesystem::directory_iterator(kData)) {
    if (file.path().extension() != ".pt" || file.path().stem() == "script") continue;
    const std::string what = file.path().stem().string() + ": ";
    ckpt_error err = {};
    IndexPointer first = open(file.path(), &err, false);
    ASSERT_NE(first, nullptr) << text_of(err);
    Flat flat(first.get());
    flat.finish();
    Texts losses;
    std::string bytes = write_torch(flat.index, &losses);
    IndexPointer second = open_bytes(bytes, &err, false);
    ASSERT_NE(second, nullptr) << what << text_of(err);
    if (what.rfind("dtensor", 0) != 0) expect_same(first.get(), second.get(), what); /* its ties: another comes first */
    const ckpt_object *before = ckpt_object_get(first->objects, "torch"),
                      *after = ckpt_object_get(second->objects, "torch");
    if (losses.empty()) {
      EXPECT_EQ(before == nullptr, after == nullptr) << what;
      EXPECT_TRUE(before == nullptr || after == nullptr || ckpt_object_equal(before, after)) << what;
    } else {
      not_whole.insert(file.path().stem().string());
    }
    Flat again(second.get());
    again.finish();
    EXPECT_EQ(write_torch(again.index), bytes) << what;
    n_files++;
  }
  EXPECT_GE(n_files, 20u);
  EXPECT_EQ(not_whole,
            (std::set<std::string>{"dtensor", "dtensor-training", "flat-quantized", "module", "module-legacy",
                                   "module-training", "parts", "quantized", "refused", "summand", "wrapped"}));
}

// A dict of nothing but tensors, one of which has no name but the one that we give it.
TEST(TorchWrite, EmptyKeysStay) {
  ckpt_error err = {};
  IndexPointer first = open(kData + "empty-key.pt", &err, false);
  ASSERT_NE(first, nullptr) << text_of(err);
  Flat flat(first.get());
  flat.finish();
  Texts losses;
  const std::string written = write_torch(flat.index, &losses);
  IndexPointer second = open_bytes(written, &err, false);
  ASSERT_NE(second, nullptr) << text_of(err);
  EXPECT_EQ(losses, Texts());
  expect_same(first.get(), second.get(), "");
  const ckpt_object *root = ckpt_object_get(second->objects, "torch");
  EXPECT_NE(ckpt_object_get(root, ""), nullptr);
  EXPECT_NE(ckpt_object_get(root, "tensor"), nullptr);
}

// Files that ckpt_convert makes of others, each in the place of the last.
class Converted : public testing::Test {
 protected:
  void SetUp() override {
    options_.struct_size = sizeof options_;
    options_.include = "all";
    options_.force = true;
  }

  // Null where it fails, which fails the test.
  IndexPointer Convert(const std::string &input) {
    const std::string output = folder_ / "out.pt";
    options_.input = input.c_str();
    options_.output = output.c_str();
    ckpt_error err = {};
    EXPECT_EQ(ckpt_convert(&options_, &err), CKPT_OK) << text_of(err);
    IndexPointer written = open(output, &err, false);
    EXPECT_NE(written, nullptr) << text_of(err);
    return written;
  }

  ckpt_convert_options options_ = {};
  Folder folder_;
};

// What has no values that we read is in its object all the same, its storage as bytes; a meta tensor has none.
TEST_F(Converted, TensorsThatAreNotReadStay) {
  const std::string input = kData + "refused.pt";
  ckpt_error err = {};
  const char *const exclude[] = {"wide", nullptr};  // which the object does not hold either
  options_.exclude = exclude;
  IndexPointer first = open(input, &err, false), second = Convert(input);
  ASSERT_NE(first, nullptr) << text_of(err);
  ASSERT_NE(second, nullptr);
  expect_same(first.get(), second.get(), "");
  const ckpt_object *before = ckpt_object_get(first->objects, "torch"),
                    *after = ckpt_object_get(second->objects, "torch");
  for (const char *key : {"complex32", "bits", "meta"}) {
    EXPECT_TRUE(ckpt_index_is_unread(second.get(), key)) << key;
    ASSERT_NE(ckpt_object_get(after, key), nullptr) << key;
    EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(before, key), ckpt_object_get(after, key))) << key;
  }
  EXPECT_EQ(ckpt_object_get(after, "wide"), nullptr);
}

// The values of conjugates and negatives are written, not the bit, and none shares memory with what it was a view of.
TEST_F(Converted, ValuesOfConjugatesAndNegatives) {
  ckpt_error err = {};
  IndexPointer first = open(kData + "signs.pt", &err, true), second = Convert(kData + "signs.pt");
  ASSERT_NE(first, nullptr) << text_of(err);
  ASSERT_NE(second, nullptr);
  ASSERT_EQ(second->n_tensors, first->n_tensors);
  for (uint32_t i = 0; i < second->n_tensors; i++) EXPECT_EQ(second->tensors[i].extents[0].signs, 0);
  ckpt_digest digests[2];
  ASSERT_EQ(ckpt_hash(first.get(), nullptr, &digests[0], &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(ckpt_hash(second.get(), nullptr, &digests[1], &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(memcmp(&digests[0], &digests[1], sizeof digests[0]), 0);
}

// Arrays of numpy stay what they are, and notes say what loading them takes: of each kind once.
TEST_F(Converted, RandomStatesStay) {
  const std::string input = kData + "random-states.pt";
  ckpt_error err = {};
  IndexPointer first = open(input, &err, false), second = Convert(input);
  ASSERT_NE(first, nullptr) << text_of(err);
  ASSERT_NE(second, nullptr);
  const ckpt_object *before = ckpt_object_get(first->objects, "torch"),
                    *after = ckpt_object_get(second->objects, "torch");
  EXPECT_TRUE(ckpt_object_equal(before, after));
  EXPECT_EQ(ckpt_object_get(after, "numpy")->items[1]->kind, CKPT_OBJECT_FOREIGN);
  Flat flat(first.get());
  flat.finish();
  Texts losses, notes;
  write_torch(flat.index, &losses, &notes);
  EXPECT_EQ(losses, Texts());
  ASSERT_EQ(notes.size(), 4u);
  EXPECT_EQ(notes[0],
            "holds numpy.ndarray: torch.load(weights_only=True) takes it after torch.serialization.add_safe_globals(["
            "numpy._core.multiarray._reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype('u4'))])");
}

// What is not numbers as numpy pickles them is left out whole.
TEST(TorchWrite, OnlyNumbersOfNumpy) {
  const std::string dtype = "cnumpy\ndtype\n(Vu4\nI00\nI01\ntR(I3\nV<\nNNNI-1\nI-1\nI0\ntb";
  const std::string array =
      "cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\1btR(I1\n(I1\nt" + dtype + "I00\nC\4abcdtb";
  const std::string buffer = "cnumpy._core.numeric\n_frombuffer\n(C\4abcd" + dtype + "(I1\ntVC\ntR";  // of protocol 5
  const auto with = [&](const std::string &text, const std::string &from, const std::string &to) {
    std::string out = text;
    return out.replace(out.find(from), from.size(), to);
  };
  const std::pair<std::string, bool> cases[] = {{array, true},
                                                {dtype, true},
                                                {with(array, "_core", "core"), true},
                                                {with(array, "Vu4", "VO8"), false},
                                                {with(array, "Vu4", "Vu3"), false},
                                                {with(array, "Vu4", "VS4"), false},
                                                {with(array, "I-1\nI0\nt", "I-1\nI63\nt"), false},
                                                {with(array, "(I1\nt", "(I-1\nt"), false},
                                                {with(array, "(I1\nt", "(I2\nt"), false},
                                                {with(array, "(I1\nt", "(I4611686018427387905\nt"), false},
                                                {with(array, "NNN", "N(cos\nsystem\ntN"), false},
                                                {with(array, "numpy\nndarray", "numpy\nmatrix"), false},
                                                {with(array, "C\4abcd", "(Vx\nl"), false},
                                                {with(array, "_reconstruct", "_rebuild"), false},
                                                {buffer, true},
                                                {with(buffer, "VC\n", "VF\n"), true},
                                                {with(buffer, "VC\n", "VK\n"), false},
                                                {with(buffer, "VC\n", "VC\nN"), false},
                                                {with(buffer, "Vu4", "VO8"), false},
                                                {with(buffer, "(I1\nt", "(I2\nt"), false},
                                                {with(buffer, "(I1\nt", "Vx\n"), false},
                                                {with(buffer, "C\4abcd", "(Vx\nl"), false},
                                                {with(buffer, "C\4abcd", "cos\nsystem\n"), false}};
  for (const auto &[value, stays] : cases) {
    ckpt_error err = {};
    const std::string object =
        "}(Vw\n" + view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"}) + "Vn\n" + value + "u.";
    const std::string file = archive(object, {kSixFloats});
    IndexPointer index = open_bytes(file, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    Flat flat(index.get());
    flat.finish();
    Texts losses;
    IndexPointer again = open_bytes(write_torch(flat.index, &losses), &err, false);
    ASSERT_NE(again, nullptr) << text_of(err);
    EXPECT_EQ(losses.empty(), stays) << value;
    EXPECT_EQ(ckpt_object_get(ckpt_object_get(again->objects, "torch"), "n") != nullptr, stays) << value;
  }
}

// A flattened optimizer of a DCP folder, under torch's own keys; its groups are known again.
TEST_F(Converted, FlattenedOptimizersStayFlattened) {
  const std::string input = kData + "../dcp/objects";
  ckpt_error err = {};
  IndexPointer first = open(input, &err, false), second = Convert(input);
  ASSERT_NE(first, nullptr) << text_of(err);
  ASSERT_NE(second, nullptr);
  expect_same(first.get(), second.get(), "");
  for (const char *key : {"optimizer.param_groups", "torch"}) {
    const ckpt_object *before = ckpt_object_get(first->objects, key), *after = ckpt_object_get(second->objects, key);
    if (strcmp(key, "torch") == 0) {
      before = ckpt_object_get(ckpt_object_get(before, "optimizer"), "param_groups.w.betas");
      after = ckpt_object_get(ckpt_object_get(after, "optimizer"), "param_groups.w.betas");
    }
    ASSERT_NE(after, nullptr) << key;
    EXPECT_TRUE(ckpt_object_equal(before, after)) << key;
  }
  options_.include = "model";  // its groups go with the states
  second = Convert(input);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(ckpt_object_get(ckpt_object_get(second->objects, "torch"), "optimizer"), nullptr);
}

// By their calls, with numbers where they were numbers; a cast of the parts leaves the parts.
TEST_F(Converted, QuantizedTensorsStayQuantized) {
  const std::string input = kData + "quantized.pt";
  ckpt_error err = {};
  IndexPointer first = open(input, &err, false), second = Convert(input);
  ASSERT_NE(first, nullptr) << text_of(err);
  ASSERT_NE(second, nullptr);
  expect_same(first.get(), second.get(), "");
  EXPECT_EQ(second->n_composites, 3u);
  EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(first->objects, "torch"), ckpt_object_get(second->objects, "torch")));
  EXPECT_EQ(ckpt_index_find(second.get(), "p.scales")->extents[0].file, CKPT_FILE_LITERAL);

  const ckpt_cast_rule cast_all = {nullptr, CKPT_BF16}; /* of scales too */
  options_.casts = &cast_all;
  options_.n_casts = 1;
  IndexPointer cast = Convert(input);
  ASSERT_NE(cast, nullptr);
  EXPECT_EQ(cast->n_composites, 0u);
  EXPECT_EQ(cast->n_tensors, first->n_tensors);
}

// Training state from elsewhere has the same names and roles when it is read again.
TEST(TorchWrite, TrainingStateOfOtherFormats) {
  Flat flat;
  flat.f32("layers.0.w", CKPT_ROLE_PARAMETER);
  flat.f32("layers.0.running_mean", CKPT_ROLE_PARAMETER);
  flat.f32("optimizer.state.layers.0.w.exp_avg", CKPT_ROLE_EXP_AVG);
  flat.f32("optimizer.state.b.exp_avg", CKPT_ROLE_EXP_AVG);
  flat.f32("optimizer.state.layers.0.w.exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ);
  flat.f32("optimizer.state.layers.0.w.momentum", CKPT_ROLE_MOMENTUM);
  flat.f32("optimizer.state.layers.0.w.master", CKPT_ROLE_MASTER);
  flat.f32("optimizer.state.layers.0.w.step", CKPT_ROLE_STEP);
  flat.f32("optimizer.param_groups.0.lr", CKPT_ROLE_OTHER);
  flat.f32("loader.a.b", CKPT_ROLE_OTHER);
  flat.f32("seed", CKPT_ROLE_OTHER);
  EXPECT_EQ(ckpt_index_alias(flat.index, 0, "layers.1.w", nullptr), CKPT_OK);
  ckpt_arena *arena = &flat.index->arena;
  ckpt_object *groups = ckpt_object_new(arena, CKPT_OBJECT_LIST, 1, nullptr);
  ckpt_object *trainer = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
  groups->items[0] = trainer;
  trainer->items[0] = ckpt_object_text(arena, "step", 4);
  trainer->items[1] = ckpt_object_int(arena, 7);
  ckpt_object *objects = flat.index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 4, nullptr);
  const char *keys[] = {CKPT_STATE_PARAM_GROUPS, CKPT_STATE_TRAINER, CKPT_STATE_SCHEDULER, CKPT_STATE_LOSS_SCALER};
  for (int i = 0; i < 4; i++) {
    objects->items[2 * i] = ckpt_object_text(arena, keys[i], strlen(keys[i]));
    objects->items[2 * i + 1] = i == 0 ? groups : trainer;
  }
  flat.finish();
  Texts losses;
  ckpt_error err = {};
  const std::string bytes = write_torch(flat.index, &losses);
  IndexPointer index = open_bytes(bytes, &err, false); /* which borrows them */
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(losses, Texts());
  expect_same(flat.index, index.get(), "");
  for (int i = 0; i < 4; i++)
    EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(index->objects, keys[i]), ckpt_object_get(objects, keys[i])))
        << keys[i];
  EXPECT_EQ(index->step, 7);
}

class Renamed : public Converted {
 protected:
  // The object of a file of ours whose tensors got other names, printed.
  std::string Object(const std::string &input, const std::vector<const char *> &rename,
                     const std::vector<const char *> &exclude = {nullptr}) {
    options_.rename = rename.data();
    options_.exclude = exclude.data();
    index_ = Convert(input);
    const ckpt_object *object = ckpt_object_get(index_->objects, "torch");
    return object == nullptr ? "" : ckpt_object_print(object, 1 << 16, &index_->arena);
  }
  bool Has(const char *name) { return ckpt_index_find(index_.get(), name) != nullptr; }
  IndexPointer index_{nullptr, ckpt_index_free};
};

std::string replaced(std::string text, const std::string &what, const std::string &with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// Keys follow the names, and all else of the object stays: groups, numbers, other optimizers.
TEST_F(Renamed, TensorsKeepTheirObject) {
  const std::string before = Object(kData + "training.pt", {nullptr});
  const std::string model = Object(kData + "training.pt", {"s/^0\\./first./", nullptr});
  EXPECT_TRUE(Has("first.weight") && Has("optimizer.state.0.weight.exp_avg")) << model;
  size_t end = before.find("\"optimizer\"");
  EXPECT_EQ(model, replaced(before.substr(0, end), "\"0.", "\"first.") + before.substr(end));
  const std::string both = Object(kData + "training.pt", {"s/^(optimizer.state.|)0\\.([wb])/\\1first.\\2/", nullptr});
  EXPECT_TRUE(Has("first.weight") && Has("optimizer.state.first.weight.exp_avg")) << both;
  EXPECT_EQ(both, replaced(before, "\"0.", "\"first."));
}

// A name less of a tensor that has several is an entry less.
TEST_F(Renamed, NamesThatAreLeftOutGoFromTheObject) {
  const std::string before = Object(kData + "views.pt", {nullptr});
  const std::string less = Object(kData + "views.pt", {nullptr}, {"head.copy", nullptr});
  EXPECT_TRUE(Has("head.weight") && !Has("head.copy"));
  size_t at = before.find(", \"head.copy\""), end = before.find(", \"rows\"");
  EXPECT_EQ(less.substr(0, at), before.substr(0, at));
  EXPECT_EQ(less.substr(at, 8), before.substr(end, 8));
}

// What the tensors' names leave no place for is named.
TEST_F(Renamed, WhatGoesIsNamed) {
  IndexPointer index = [&] {
    ckpt_error err = {};
    return open(kData + "training.pt", &err, false);
  }();
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (strcmp(index->tensors[i].name, "second.state.0.momentum") == 0) index->tensors[i].name = "third.x";
  ckpt_error err = {};
  Texts losses;
  ckpt_index *described = describe(index.get(), &err);
  described->objects_of = index.get();
  ckpt_losses said = {};
  said.arena = &described->arena;
  IndexPointer original = open(kData + "training.pt", &err, false);
  described->objects_of = original.get();
  EXPECT_EQ(ckpt_normalize(ckpt_format_find("torch"), described, &said, &err), CKPT_OK) << text_of(err);
  for (uint32_t i = 0; i < said.n; i++) losses.push_back(said.texts[i]);
  ckpt_index_free(described);
  ASSERT_FALSE(losses.empty());
  EXPECT_EQ(losses[0], "2 objects, but for their tensors (second, args)");
}

// One tensor under very many keys is written in time that is linear in them, its names changed or not.
TEST_F(Renamed, ManyNamesOfOneTensor) {
  const int n = is_sanitized() ? 50000 : 150000;  // there each step takes longer
  IndexPointer index{nullptr, ckpt_index_free};
  {
    Flat flat;
    flat.f32("k000000", CKPT_ROLE_PARAMETER);
    ckpt_arena *arena = &flat.index->arena;
    ckpt_object *root = ckpt_object_new(arena, CKPT_OBJECT_DICT, n, nullptr);
    root->name = "collections.OrderedDict", root->n_module = 11;
    for (int i = 0; i < n; i++) {
      char name[16];
      snprintf(name, sizeof name, "k%06d", i);
      EXPECT_TRUE(i == 0 || ckpt_index_alias(flat.index, 0, name, nullptr) == CKPT_OK);
      root->items[2 * i] = ckpt_object_text(arena, name, strlen(name));
      root->items[2 * i + 1] = ckpt_object_tensor(arena, 0);
    }
    ckpt_object *objects = flat.index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
    objects->items[0] = ckpt_object_text(arena, "torch", 5);
    objects->items[1] = root;
    flat.index->whole = root;
    flat.finish();
    spill(folder_ / "many.pt", write_torch(flat.index));
  }
  const clock_t started = clock(); /* of this process: the machine may be busy */
  EXPECT_NE(Object(folder_ / "many.pt", {nullptr}).find("k000001"), std::string::npos);
  Object(folder_ / "many.pt", {"s/^k/l/", nullptr});
  EXPECT_TRUE(Has("l000000") && Has(is_sanitized() ? "l049999" : "l149999"));
  EXPECT_LT((clock() - started) / CLOCKS_PER_SEC, 100); /* a loop over pairs of names takes hours */
}

// Names that the nested object would change: one dict of all, which keeps them, and a word about it.
TEST(TorchWrite, NamesInTheWay) {
  for (const char *name : {"model.x", "state_dict", "module.y", "optimizer.state", "optimizer", "loader"}) {
    Flat flat;
    flat.f32("w", CKPT_ROLE_PARAMETER);
    flat.f32("loader.a", CKPT_ROLE_OTHER);
    flat.f32(name, CKPT_ROLE_OTHER);
    flat.finish();
    Texts losses;
    ckpt_error err = {};
    const std::string bytes = write_torch(flat.index, &losses);
    IndexPointer index = open_bytes(bytes, &err, true); /* which borrows them */
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(losses, Texts({"roles and objects (" + std::string(name) + " stands in their way)"}));
    for (uint32_t i = 0; i < 3; i++) EXPECT_NE(ckpt_index_find(index.get(), flat.index->tensors[i].name), nullptr);
  }
}

// A tensor of the root and a number of the trainer with one key, and two objects with one: the first stays, as Python
// would keep the last of a dict.
TEST(TorchWrite, KeysOfTheRootAreThereOnce) {
  Flat flat;
  flat.f32("w", CKPT_ROLE_PARAMETER);
  flat.f32("epoch", CKPT_ROLE_OTHER);
  ckpt_arena *arena = &flat.index->arena;
  auto dict = [&](std::vector<std::pair<const char *, ckpt_object *>> entries) {
    ckpt_object *made = ckpt_object_new(arena, CKPT_OBJECT_DICT, entries.size(), nullptr);
    for (size_t i = 0; i < entries.size(); i++) {
      made->items[2 * i] = ckpt_object_text(arena, entries[i].first, strlen(entries[i].first));
      made->items[2 * i + 1] = entries[i].second;
    }
    return made;
  };
  flat.index->objects = dict({{CKPT_STATE_TRAINER, dict({{"epoch", ckpt_object_int(arena, 3)},
                                                         {"best", ckpt_object_int(arena, 4)},
                                                         {"scaler", ckpt_object_int(arena, 5)}})},
                              {CKPT_STATE_LOSS_SCALER, dict({{"scale", ckpt_object_int(arena, 6)}})}});
  flat.finish();
  Texts losses;
  ckpt_error err = {};
  const std::string bytes = write_torch(flat.index, &losses);
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(losses, Texts({"epoch (something else has that name)", "scaler (something else has that name)"}));
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  ASSERT_EQ(root->n, 4u);
  EXPECT_EQ(ckpt_object_get(root, "epoch")->kind, CKPT_OBJECT_TENSOR);
  EXPECT_EQ(ckpt_object_get(root, "best")->integer, 4);
  EXPECT_NE(ckpt_index_find(index.get(), "epoch"), nullptr);
}

// An index of one tensor and the object `extra` that a pickle describes.
void add_extra(Flat *flat, const std::string &pickle) {
  flat->f32("w", CKPT_ROLE_PARAMETER);
  ckpt_pickle_options options = {};
  options.data = pickle.data(), options.n_bytes = pickle.size();
  ckpt_object *root = nullptr;
  ckpt_error err = {};
  ckpt_arena *arena = &flat->index->arena;
  ASSERT_EQ(ckpt_pickle_read(&root, nullptr, &options, arena, &err), CKPT_OK) << text_of(err);
  ckpt_object *objects = flat->index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
  objects->items[0] = ckpt_object_text(arena, "extra", 5);
  objects->items[1] = root;
  flat->finish();
}

// A module that was saved whole becomes a dict of its tensors by name: there is no training state beside them.
TEST(TorchWrite, ModulesBecomeStateDicts) {
  ckpt_error err = {};
  IndexPointer whole = open(kData + "module.pt", &err, false);
  ASSERT_NE(whole, nullptr) << text_of(err);
  Texts losses;
  const std::string bytes = write_torch(whole.get(), &losses);
  IndexPointer index = open_bytes(bytes, &err); /* stored names: those of load_state_dict */
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_EQ(index->n_tensors, whole->n_tensors);
  for (uint32_t i = 0; i < whole->n_tensors; i++)
    EXPECT_NE(ckpt_index_find(index.get(), whole->tensors[i].name), nullptr) << whole->tensors[i].name;
  EXPECT_NE(std::string(losses.empty() ? "" : losses[0]).find("no plain data"), std::string::npos);
}

// Beside a module that was saved whole all else stays. What is called by numbers is, for load_state_dict takes a text
// for no parameter's number and says nothing.
TEST(TorchWrite, WhatStandsBesideModulesStays) {
  ckpt_error err = {};
  IndexPointer whole = open(kData + "module-training.pt", &err, false);
  ASSERT_NE(whole, nullptr) << text_of(err);
  Texts losses;
  const std::string bytes = write_torch(whole.get(), &losses);
  EXPECT_EQ(losses, Texts({"the object as it was (tensors are in torch.nn.modules.container.Sequential at model, which "
                           "is no plain data)",
                           "1 object, but for its tensors (model)"}));
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(index->n_tensors, whole->n_tensors);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(root, "args"), 1000, &index->arena),
               "{\"argparse.Namespace\": [], \"state\": {\"lr\": 0.01, \"out\": [1, \"x\"]}}");
  const ckpt_object *state = ckpt_object_get(ckpt_object_get(root, "optimizer"), "state");
  ASSERT_EQ(state->n, 4u);
  for (uint64_t i = 0; i < state->n; i++) {
    EXPECT_EQ(state->items[2 * i]->kind, CKPT_OBJECT_INT);
    EXPECT_EQ(state->items[2 * i]->integer, static_cast<int64_t>(i));
  }
}

// The mesh of a DTensor, which becomes a tensor, is no entry of an optimizer's state.
TEST(TorchWrite, MeshesAreNoStates) {
  ckpt_error err = {};
  IndexPointer whole = open(kData + "dtensor-training.pt", &err, false);
  ASSERT_NE(whole, nullptr) << text_of(err);
  IndexPointer index = open_bytes(write_torch(whole.get()), &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  EXPECT_EQ(ckpt_object_get(ckpt_object_get(root, "optimizer"), "state")->n, 1u);
  EXPECT_EQ(index->n_tensors, whole->n_tensors);
}

// What an unpickler would run is never written, whatever the input has; data beside it is.
TEST(TorchWrite, NothingThatRunsIsWritten) {
  Flat flat;
  const char *pickle =
      "(d"
      "Va\ncos\nsystem\n(Vls\ntRs"
      "Vb\n(lI1\nacos\nsystem\nas"
      "Vc\ncargparse\nNamespace\n)\x81}Vk\nI2\nsbs"
      "Vd\n(cos\nsystem\n(Vls\ntRtsVe\nctorch\nfloat32\nsVf\nctorch\nSize\n((cm\nC\n)\x81ttRs.";
  ASSERT_NO_FATAL_FAILURE(add_extra(&flat, pickle));
  ckpt_error err = {};
  ckpt_arena *arena = &flat.index->arena;
  Texts losses;
  std::string bytes = write_torch(flat.index, &losses);
  EXPECT_EQ(bytes.find("system"), std::string::npos);
  EXPECT_EQ(losses, Texts({"os.system at extra.a (no plain data, 3 times)", "m.C at extra.f.0 (no plain data)"}));
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *extra = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "extra");
  EXPECT_STREQ(ckpt_object_print(extra, 1000, arena),
               "{\"b\": [1, null], \"c\": {\"argparse.Namespace\": [], \"state\": {\"k\": 2}}, \"d\": [null], \"e\": "
               "\"<torch.float32>\", "
               "\"f\": {\"torch.Size\": [[null]]}}");
}

// Python's own collections stay, what was put into them an argument; what only looks like one does not.
TEST(TorchWrite, CollectionsStay) {
  Flat flat;
  const char *pickle =
      "(dVa\nccollections\ndefaultdict\n(c__builtin__\nlong\ntR(Vk\nI1\nus"
      "Vb\nccollections\ndeque\n((tI3\ntR(I1\nI2\nes"
      "Vc\nccollections\ndeque\n((lI1\natRs"
      "Vd\nccollections\ndefaultdict\n(cos\nsystem\ntRs"
      "Ve\nccollections\ndefaultdict\n(N(dVk\ncos\nsystem\nstRs"
      "Vf\nccollections\ndeque\n((lI1\naI3\ntR(I2\nes"
      "Vg\nccollections\ndeque\n((tVx\ntRs"
      "Vh\nccollections\nOrderedDict\n(tR(ccollections\ndeque\n(cos\nsystem\ntRI1\nus"
      "Vi\n(lp9\nccollections\ndeque\n(g9\ntRas"
      "Vj\nccollections\ndefaultdict\n(tRp8\n(Vk\ng8\nus.";
  ASSERT_NO_FATAL_FAILURE(add_extra(&flat, pickle));
  ckpt_error err = {};
  Texts losses, notes;
  const std::string bytes = write_torch(flat.index, &losses, &notes);
  EXPECT_EQ(bytes.find("system"), std::string::npos);
  EXPECT_EQ(losses,
            Texts({"an object within itself, 2 times (None, or nothing, stands there)",
                   "collections.defaultdict at extra.d (no plain data)", "os.system at extra.e.k (no plain data)",
                   "collections.deque at extra.f (no plain data, 4 times)"}));
  EXPECT_EQ(notes.size(), 2u);
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *extra = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "extra");
  EXPECT_STREQ(ckpt_object_print(extra, 1000, &flat.index->arena),
               "{\"a\": {\"collections.defaultdict\": [\"<__builtin__.long>\", {\"k\": 1}]}, "
               "\"b\": {\"collections.deque\": [[1, 2], 3]}, \"c\": {\"collections.deque\": [[1], null]}, "
               "\"e\": {\"collections.defaultdict\": [null, {}]}, \"h\": {}, \"i\": [null], "
               "\"j\": {\"collections.defaultdict\": [null, {}]}}");
}

// Namespaces stay what they are, empty, within themselves, or with something in them that is left out; what only looks
// like one does not. A note says once of each class what loading it takes.
TEST(TorchWrite, NamespacesStay) {
  Flat flat;
  const char *pickle =
      "(dVa\ncargparse\nNamespace\n)\x81p1\n(dVme\ng1\nsVrun\ncos\nsystem\n(Vls\ntRsVk\nI1\nsbs"
      "Vb\ncargparse\nNamespace\n)\x81s"
      "Vc\nctypes\nSimpleNamespace\n)R(dVk\nI2\nsbs"
      "Vd\ncargparse\nNamespace\n(I1\nt\x81s"
      "Ve\ncargparse\nNamespace\n)\x81I3\nbs"
      "Vf\ncargparse\nNamespac\n)\x81s.";
  ASSERT_NO_FATAL_FAILURE(add_extra(&flat, pickle));
  ckpt_error err = {};
  Texts losses, notes;
  const std::string bytes = write_torch(flat.index, &losses, &notes);
  EXPECT_EQ(losses,
            Texts({"os.system at extra.a.run (no plain data)", "argparse.Namespace at extra.d (no plain data, 2 times)",
                   "argparse.Namespac at extra.f (no plain data)"}));
  const std::string told = ": torch.load(weights_only=True) takes it after torch.serialization.add_safe_globals([";
  EXPECT_EQ(notes, Texts({"holds argparse.Namespace" + told + "argparse.Namespace])",
                          "holds types.SimpleNamespace" + told + "types.SimpleNamespace])"}));
  IndexPointer index = open_bytes(bytes, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *extra = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "extra");
  ASSERT_EQ(extra->n, 3u);
  const ckpt_object *a = ckpt_object_get(extra, "a"), *state = ckpt_object_extra_of(a, CKPT_EXTRA_STATE);
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(state->n, 2u);
  EXPECT_EQ(ckpt_object_get(state, "me"), a);
  EXPECT_EQ(ckpt_object_get(state, "k")->integer, 1);
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(extra, "b"), 100, &index->arena), R"({"argparse.Namespace": []})");
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(extra, "c"), 100, &index->arena),
               R"({"types.SimpleNamespace": [], "state": {"k": 2}})");
  Flat again(index.get());
  again.finish();
  EXPECT_EQ(write_torch(again.index), bytes);
}

// All dtypes that torch has, no others; pairs of a float4 have to be whole.
TEST(TorchWrite, Dtypes) {
  for (int i = 1; i <= CKPT_C128; i++) {
    Flat flat;
    bool is_six = i == CKPT_F6_E2M3 || i == CKPT_F6_E3M2;
    if (is_six) continue;
    flat.add("w", static_cast<ckpt_dtype>(i), {2}, CKPT_ROLE_PARAMETER, 0,
             i == CKPT_F4_E2M1 ? 1 : 2 * ckpt_dtype_get(static_cast<ckpt_dtype>(i))->block_bytes, 2);
    flat.finish();
    ckpt_error err = {};
    const std::string bytes = write_torch(flat.index);
    IndexPointer index = open_bytes(bytes, &err, false); /* which borrows them */
    ASSERT_NE(index, nullptr) << text_of(err);
    expect_same(flat.index, index.get(), ckpt_dtype_name(static_cast<ckpt_dtype>(i)));
  }
  Flat six;
  six.add("w", CKPT_F6_E2M3, {4}, CKPT_ROLE_PARAMETER, 0, 3, 1);
  six.finish();
  ckpt_error err = {};
  EXPECT_TRUE(write("torch", six.index, {}, &err).empty());
  EXPECT_NE(text_of(err).find("torch cannot hold f6_e2m3"), std::string::npos) << text_of(err);
}

}  // namespace
}  // namespace formats_testing
