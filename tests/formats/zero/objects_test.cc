// What of a ZeRO checkpoint is no tensor: groups of the optimizer, schedulers, loss scalers, client state.
extern "C" {
#include "libckpt/codec/pickle/pickle.h"
}

#include <set>

#include "tests/formats/formats_testing.h"

namespace formats_testing {
namespace {

const std::string kErrors = std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/";

std::string print(const ckpt_index *index, const char *key) {
  const ckpt_object *object = ckpt_object_get(index->objects, key);
  return object == nullptr ? "" : ckpt_object_print(object, 1000, const_cast<ckpt_arena *>(&index->arena));
}

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

// The index, once it is written without loss and read again; "": as it is.
void write_again(IndexPointer *index, const std::string &format, const Folder &folder) {
  if (format.empty()) return;
  ckpt_error err = {};
  std::vector<std::string> losses;
  spill(folder, formats_testing::write(format.c_str(), index->get(), {}, &err, &losses));
  ASSERT_EQ(err.status, CKPT_OK) << text_of(err);
  EXPECT_EQ(losses, std::vector<std::string>()) << format;
  *index = open(folder.path(), &err, false);
  ASSERT_NE(*index, nullptr) << text_of(err);
}

// Dicts of tensors keep how they are nested, and keys that are numbers; written and read again, too.
TEST(ZeroObjects, ClientStateKeepsItsShape) {
  ckpt_error err = {};
  IndexPointer index = open(kErrors + "noted-client-state", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (const char *format : {"", "zero", "universal"}) {
    Folder folder;
    ASSERT_NO_FATAL_FAILURE(write_again(&index, format, folder));
    const ckpt_object *ema = ckpt_object_get(index->objects, "ema");
    ASSERT_TRUE(ema != nullptr && ema->kind == CKPT_OBJECT_DICT && ema->n == 2) << format;
    EXPECT_STREQ(ema->items[0]->text, "b") << format;
    EXPECT_EQ(ema->items[1]->kind, CKPT_OBJECT_TENSOR) << format;
    const ckpt_object *inner = ckpt_object_get(ema, "a");
    ASSERT_TRUE(inner != nullptr && inner->n == 1) << format;
    EXPECT_EQ(inner->items[0]->kind, CKPT_OBJECT_INT) << format;
    const ckpt_object *best = ckpt_object_get(ckpt_object_get(index->objects, CKPT_STATE_TRAINER), "best");
    EXPECT_TRUE(best != nullptr && best->kind == CKPT_OBJECT_NONE) << format;
    ASSERT_EQ(inner->items[1]->kind, CKPT_OBJECT_TENSOR) << format;
    EXPECT_STREQ(index->tensors[inner->items[1]->tensor].name, "ema.a.0") << format;
  }
}

// A tensor beside values of other kinds, however many, stands in their dict in torch files and DCP folders, and in no
// other.
TEST(ZeroObjects, TensorsStandBesideValues) {
  for (const char *format : {"torch", "dcp"}) {
    ckpt_error err = {};
    IndexPointer index = open(kErrors + "noted-client-state", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    ckpt_arena *arena = &index->arena;
    const ckpt_object *ema = ckpt_object_get(index->objects, "ema");
    ckpt_object *list = ckpt_object_new(arena, CKPT_OBJECT_LIST, (1 << 20) + 1, nullptr),
                *one = ckpt_object_int(arena, 1);
    ckpt_object *with = ckpt_object_new(arena, CKPT_OBJECT_DICT, 3, nullptr);
    for (uint64_t i = 0; i < list->n; i++) list->items[i] = one;
    with->n = 0;
    ckpt_object_put(arena, with, "b", ckpt_object_get(ema, "b"));
    ckpt_object_put(arena, with, "ones", list);
    ckpt_object_put(arena, with, "a", ckpt_object_get(ema, "a"));
    for (uint64_t i = 0; i < index->objects->n; i++)
      if (index->objects->items[2 * i + 1] == ema) index->objects->items[2 * i + 1] = with;
    std::vector<std::string> losses;
    Files files = formats_testing::write(format, index.get(), {}, &err, &losses);
    ASSERT_EQ(err.status, CKPT_OK) << text_of(err);
    EXPECT_EQ(losses, std::vector<std::string>()) << format;
    Folder folder;
    const bool is_file = files.count("") != 0;
    if (is_file)
      spill(folder / "out.pt", files[""]);
    else
      spill(folder, files);
    IndexPointer out = open(is_file ? folder / "out.pt" : folder.path(), &err, false);
    ASSERT_NE(out, nullptr) << text_of(err);
    const ckpt_object *root = ckpt_object_get(out->objects, "torch"), *read = ckpt_object_get(root, "ema");
    ASSERT_TRUE(read != nullptr && read->kind == CKPT_OBJECT_DICT && read->n == 3) << format;
    EXPECT_EQ(ckpt_object_get(read, "b")->kind, CKPT_OBJECT_TENSOR) << format;
    EXPECT_TRUE(ckpt_object_equal(ckpt_object_get(read, "ones"), list)) << format;
    const ckpt_object *leaf = ckpt_object_get(read, "a")->items[1];
    ASSERT_EQ(leaf->kind, CKPT_OBJECT_TENSOR) << format;
    EXPECT_STREQ(out->tensors[leaf->tensor].name, "ema.a.0") << format;
    for (uint64_t i = 0; i < root->n; i++) EXPECT_EQ(strchr(root->items[2 * i]->text, '.'), nullptr) << format;
  }
}

// A namespace, collections of Python's own, dates and paths stay what they are, also within one another; what is of no
// such class is said with its class. Weights-only loading sets nothing in a defaultdict: what it holds is an argument.
TEST(ZeroObjects, PythonsOwnValuesStay) {
  ckpt_error err = {};
  for (const char *format : {"zero", "universal"}) {
    IndexPointer index = open(kErrors + "noted-client-state", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    ckpt_arena *arena = &index->arena;
    ckpt_object *one = ckpt_object_int(arena, 1), *dict = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
    dict->n = 0;
    ckpt_object_put(arena, dict, "a", one);
    ckpt_object *factory = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 0, "builtins.int");
    factory->form = CKPT_FORM_NAME;
    factory->n_module = sizeof "builtins" - 1;
    ckpt_object *counts = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 2, "collections.defaultdict");
    counts->n = 1;
    counts->n_module = sizeof "collections" - 1;
    counts->items[0] = factory;
    counts->items[1] = dict;
    counts->extras = CKPT_EXTRA_DICT;
    ckpt_object *path = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 1, "pathlib.PosixPath");
    path->n_module = sizeof "pathlib" - 1;
    path->items[0] = ckpt_object_text(arena, "x", 1);
    ckpt_object *frozen = ckpt_object_new(arena, CKPT_OBJECT_SET, 1, nullptr);
    frozen->items[0] = one;
    frozen->name = CKPT_PICKLE_FROZENSET;
    ckpt_object *attributes = ckpt_object_new(arena, CKPT_OBJECT_DICT, 4, nullptr);
    attributes->n = 0;
    ckpt_object_put(arena, attributes, "counts", counts);
    ckpt_object_put(arena, attributes, "path", path);
    ckpt_object_put(arena, attributes, "frozen", frozen);
    ckpt_object *args = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 1, "argparse.Namespace");
    args->n = 0;
    args->n_module = sizeof "argparse" - 1;
    args->form = CKPT_FORM_NEW;
    args->extras = CKPT_EXTRA_STATE;
    args->items[0] = attributes;
    const ckpt_object *ema = ckpt_object_get(index->objects, "ema");
    for (uint64_t i = 0; i < index->objects->n; i++)
      if (index->objects->items[2 * i + 1] == ema) index->objects->items[2 * i + 1] = args;
    for (const bool is_foreign : {false, true}) {
      ckpt_object *fraction = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 0, "fractions.Fraction");
      fraction->n_module = sizeof "fractions" - 1;
      if (is_foreign) ckpt_object_put(arena, attributes, "half", fraction);
      std::vector<std::string> losses, wanted;
      Folder folder;
      spill(folder, formats_testing::write(format, index.get(), {}, &err, &losses));
      ASSERT_EQ(err.status, CKPT_OK) << text_of(err);
      if (is_foreign) wanted.push_back("ema (no plain data: fractions.Fraction)");
      EXPECT_EQ(losses, wanted) << format;
      IndexPointer out = open(folder.path(), &err, false);
      ASSERT_NE(out, nullptr) << text_of(err);
      if (is_foreign) continue;
      EXPECT_EQ(print(out.get(), "ema"),
                R"({"argparse.Namespace": [], "state": {"counts": {"collections.defaultdict": ["<builtins.int>", )"
                R"({"a": 1}]}, "path": {"pathlib.PosixPath": ["x"]}, "frozen": [1]}})")
          << format;
    }
  }
}

// The attributes of a tensor are part of the data: with one that is of another class the entry is not written. A tensor
// of a subclass is written as a tensor, which is said, and as no Parameter.
TEST(ZeroObjects, AttributesOfTensorsAreLookedAt) {
  for (const char *format : {"zero", "universal"}) {
    for (const char *held : {"plain", "foreign", "subclass"}) {
      ckpt_error err = {};
      IndexPointer index = open(kErrors + "noted-client-state", &err, false);
      ASSERT_NE(index, nullptr) << text_of(err);
      ckpt_arena *arena = &index->arena;
      const bool is_foreign = strcmp(held, "foreign") == 0, is_subclass = strcmp(held, "subclass") == 0;
      ckpt_object *attributes = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr),
                  *value = ckpt_object_int(arena, 1);
      if (is_foreign) {
        value = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 0, "fractions.Fraction");
        value->n_module = sizeof "fractions" - 1;
      }
      attributes->n = 0;
      ckpt_object_put(arena, attributes, "note", value);
      const ckpt_object *ema = ckpt_object_get(index->objects, "ema");
      auto *leaf = const_cast<ckpt_object *>(ckpt_object_get(ema, "b"));
      leaf->name = is_subclass ? "m.C" : "torch.Tensor";
      leaf->n_module = is_subclass ? 1 : 5;
      leaf->extras = CKPT_EXTRA_STATE;
      leaf->items = static_cast<ckpt_object **>(ckpt_arena_array(arena, 1, sizeof *leaf->items));
      leaf->items[0] = attributes;
      std::vector<std::string> losses, wanted;
      Folder folder;
      spill(folder, formats_testing::write(format, index.get(), {}, &err, &losses));
      ASSERT_EQ(err.status, CKPT_OK) << text_of(err);
      if (is_foreign) wanted.push_back("ema (no plain data: fractions.Fraction)");
      if (is_subclass) wanted.push_back("ema (no plain data: m.C)");
      EXPECT_EQ(losses, wanted) << format << " " << held;
      IndexPointer out = open(folder.path(), &err, false);
      ASSERT_NE(out, nullptr) << text_of(err);
      for (uint32_t i = 0; i < out->n_notes; i++)
        EXPECT_EQ(strstr(out->notes[i].text, "Fraction"), nullptr) << out->notes[i].text;
      if (is_foreign) continue;
      const ckpt_object *read = ckpt_object_get(ckpt_object_get(out->objects, "ema"), "b");
      ASSERT_TRUE(read != nullptr && read->kind == CKPT_OBJECT_TENSOR) << format << " " << held;
      EXPECT_STREQ(read->name, "torch.Tensor") << format << " " << held;
      EXPECT_TRUE(ckpt_object_equal(ckpt_object_extra_of(read, CKPT_EXTRA_STATE), attributes)) << format;
    }
  }
}

// What no object can be called by is said, and reshard refuses it.
TEST(ZeroObjects, KeysAreTexts) {
  ckpt_error err = {};
  IndexPointer index = open(kErrors + "noted-client-key", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_NE(index->n_notes, 0u);
  EXPECT_STREQ(index->notes[0].text, "not read: the key 5 of client_state, which is no text");
  EXPECT_EQ(index->notes[0].kind, CKPT_NOTE_STATE_LEFT);
}

// A key that its tensor is not called by would be another one where it is written: reshard refuses it.
TEST(ZeroObjects, KeysThatNamesCannotSayAreRefused) {
  const std::pair<std::string, std::string> cases[] = {
      {"noted-client-path", "the key 'ema.b' of client_state is lost: its tensor is called ema.b~2 here"},
      {"noted-client-empty", "the key '' of client_state is lost: its tensor is called tensor here"}};
  for (const auto &[name, text] : cases) {
    ckpt_error err = {};
    IndexPointer index = open(kErrors + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < index->n_notes; i++)
      n += index->notes[i].kind == CKPT_NOTE_STATE_LEFT && index->notes[i].text == text;
    EXPECT_EQ(n, 1u) << name;
  }
}

// One tensor under two keys of client_state, one of them within a dict, stays under both, also written and read again.
TEST(ZeroObjects, OneTensorStaysUnderSeveralKeys) {
  ckpt_error err = {};
  IndexPointer index = open(kErrors + "noted-client-twice", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (const char *format : {"", "zero", "universal"}) {
    Folder folder;
    ASSERT_NO_FATAL_FAILURE(write_again(&index, format, folder));
    for (uint32_t i = 0; i < index->n_notes; i++)
      EXPECT_NE(index->notes[i].kind, CKPT_NOTE_STATE_LEFT) << index->notes[i].text;
    const ckpt_object *leaf = ckpt_object_get(ckpt_object_get(index->objects, "k2"), "x");
    ASSERT_TRUE(leaf != nullptr && leaf->kind == CKPT_OBJECT_TENSOR) << format;
    const ckpt_tensor *tensor = &index->tensors[leaf->tensor];
    std::set<std::string> names = {tensor->name};
    for (const char *const *alias = tensor->aliases; alias != nullptr && *alias != nullptr; alias++)
      names.insert(*alias);
    EXPECT_EQ(names, std::set<std::string>({"k1", "k2.x"})) << format;
  }
}

// A learning rate may be a tensor, and what a scheduler or a loss scaler keeps, too: of one element it is a number.
TEST(ZeroObjects, TensorsAreNumbers) {
  for (const std::string name :
       {"noted-numbers", "noted-numbers-of-stage-3", "noted-numbers-of-universal", "noted-whole-numbers"}) {
    ckpt_error err = {};
    IndexPointer index = open(kErrors + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const std::string groups = print(index.get(), CKPT_STATE_PARAM_GROUPS);
    EXPECT_EQ(groups.find(R"([{"lr": 0.25, "betas": [0.5, 0.25], "params": [)"), 0u) << name << groups;
    EXPECT_NE(groups.find(R"("eps": -3, "amsgrad": true)"), std::string::npos) << name << groups;
  }
  ckpt_error err = {};
  IndexPointer zero = open(kErrors + "noted-numbers", &err, false),
               whole = open(kErrors + "noted-whole-numbers", &err, false);
  ASSERT_TRUE(zero != nullptr && whole != nullptr) << text_of(err);
  EXPECT_EQ(print(zero.get(), CKPT_STATE_LOSS_SCALER), R"({"cur_scale": 4.0, "dynamic": false})");
  EXPECT_EQ(print(whole.get(), CKPT_STATE_LOSS_SCALER), R"({"cur_scale": 4.0, "dynamic": false})");
  EXPECT_EQ(print(zero.get(), CKPT_STATE_SCHEDULER), R"({"base_lrs": [0.75], "last_epoch": 2})");
}

// Other tensors there, and those of entries that are not known, are said by their names: reshard refuses them.
TEST(ZeroObjects, TensorsThatAreNoNumbersAreRefused) {
  for (const std::string name :
       {"noted-groups-of-tensors", "noted-scheduler-of-a-tensor", "noted-scaler-of-a-tensor", "noted-settings-unknown",
        "noted-settings-unknown-within", "noted-settings-of-universal", "noted-whole-settings-unknown"}) {
    ckpt_error err = {};
    IndexPointer index = open(kErrors + name, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < index->n_notes; i++) n += index->notes[i].kind == CKPT_NOTE_STATE_LEFT;
    EXPECT_EQ(n, 1u) << name;
  }
}

}  // namespace
}  // namespace formats_testing
