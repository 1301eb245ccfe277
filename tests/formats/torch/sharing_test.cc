// PyTorch files whose objects share: what is legitimate is read, and what would make N of N is refused, or looked at no
// more often than the file is long. Bounds are seen by what is counted, not by time.
#include "tests/formats/torch/torch_testing.h"

extern "C" {
#include "libckpt/codec/torch/state/groups.h"
}

namespace formats_testing {
namespace {

std::string times(const std::string &text, int n) {
  std::string out;
  for (int i = 0; i < n; i++) out += text;
  return out;
}

std::string names_of(const ckpt_index *index) {
  std::string names;
  for (size_t i = 0; i < ckpt_index_count(index); i++) names += std::string(ckpt_index_at(index, i)->name) + " ";
  return names;
}

// Arguments of a tensor quantized as a whole, and the parameters that it is quantized with.
std::string quantized(const std::string &with) {
  return tuple({storage("QInt8Storage", "0", "24"), number("0"), sizes({"24"}), sizes({"1"}), with, "I00\n", "}"});
}
const std::string kWith = "ctorch\nper_tensor_affine\nF0.5\n" + number("3");

// Two calls of one tuple of arguments, which is in the object itself, too.
TEST(TorchSharing, CallsOfOneTuple) {
  const std::string qtensor = "ctorch._utils\n_rebuild_qtensor\n", lazy = "ctorch._utils\n_rebuild_tensor_v2\n";
  const std::string conjugate = tuple({storage("FloatStorage", "0", "6"), number("0"), sizes({"6"}), sizes({"1"}),
                                       "I00\n", "}", dict({{"conj", "I01\n"}})});
  const std::pair<std::string, std::string> cases[] = {
      {qtensor + quantized("(" + kWith + "t") + "p1\nRp2\n0" +
           dict({{"a", "g2\n"}, {"b", qtensor + "g1\nR"}, {"args", "g1\n"}}),
       "a.scales a.values a.zero_points b.scales b.zero_points "},
      {lazy + conjugate + "p1\nRp2\n0" + dict({{"a", "g2\n"}, {"b", lazy + "g1\nR"}, {"args", "g1\n"}}), "a.storage "}};
  for (const auto &[object, names] : cases) {
    ckpt_error err = {};
    IndexPointer index = open_bytes(archive(object + ".", {kSixFloats}), &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(names_of(index.get()), names);
    const ckpt_object *root = ckpt_object_get(index->objects, "torch");
    EXPECT_EQ(ckpt_object_get(root, "a")->items[0]->kind, CKPT_OBJECT_TENSOR);
    EXPECT_EQ(ckpt_object_get(root, "b")->items[0]->kind, CKPT_OBJECT_TENSOR);
    EXPECT_EQ(ckpt_object_get(root, "args")->items[0]->form, CKPT_FORM_PERSISTENT);  // the tuple is as it was
  }
}

TEST(TorchSharing, CallsOfOneLongTuple) {
  const std::string many = times("N", 5000);
  for (const std::string &made : {"cfoo\nbar\n(" + many + "tp1\n0cfoo\nbar\np0\n0(" + times("g0\ng1\nR", 5000),
                                  "cfoo\nbar\n(" + many + "tp1\n0cfoo\nbar\np0\n0(" + times("g0\ng1\n\x81", 5000),
                                  "cfoo\nbar\n)R0(" + many + "tp1\n0cfoo\nbar\n)Rp0\n0(" + times("g0\ng1\nR", 5000)}) {
    ckpt_status status;
    EXPECT_NE(failure(archive(made + "l.", {kSixFloats}), &status).find("copies of the same values again and again"),
              std::string::npos);
    EXPECT_EQ(status, CKPT_ELIMIT);
  }
}

// Parameters of a quantized tensor are as many as torch unpacks: others could be copied for each that shares them.
TEST(TorchSharing, ParametersOfQuantizedTensors) {
  for (int n_more : {0, 1, 2}) {
    const std::string object =
        dict({{"w", "ctorch._utils\n_rebuild_qtensor\n" + quantized("(" + kWith + times("N", n_more) + "t") + "R"}});
    ckpt_error err = {};
    IndexPointer index = open_bytes(archive(object + ".", {kSixFloats}), &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(names_of(index.get()), n_more == 0 ? "w.scales w.values w.zero_points " : "") << n_more;
  }
}

// One tensor in a list under a long key, again and again.
TEST(TorchSharing, LongNames) {
  const std::string w = view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"});
  for (int n_name : {60, 4000}) {
    const std::string list = "(" + w + "p0\n" + times("g0\n", 5000) + "l";
    const std::string bytes = archive(dict({{std::string(n_name, 'k'), list}}) + ".", {kSixFloats});
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err, false);
    EXPECT_EQ(index != nullptr, n_name == 60) << text_of(err);
    if (index != nullptr) continue;
    EXPECT_EQ(err.status, CKPT_ELIMIT);
    EXPECT_NE(text_of(err).find("the same containers, or long names, again and again in its object (more than "),
              std::string::npos);
  }
}

TEST(TorchSharing, KeysOfStorages) {
  for (size_t n : {1024u, 1025u}) {
    ckpt_status status;
    const std::string said =
        failure(one(view(storage("FloatStorage", std::string(n, 'k'), "6"), "0", {"6"}, {"1"})), &status);
    EXPECT_EQ(status, n == 1024 ? CKPT_EFORMAT : CKPT_ELIMIT);
    EXPECT_NE(said.find(n == 1024 ? "has no record" : "a storage whose key has 1025 bytes (at most 1024)"),
              std::string::npos)
        << said;
  }
}

// Of a long list that is no shape only as much is looked at as a shape can have.
TEST(TorchSharing, StridesThatAreNone) {
  for (int at : {63, 65}) {
    const std::string strides = "(" + times("K\1", at) + number("-1") + times("K\1", 100) + "t";
    const std::string said = failure(one(call(
        "_rebuild_tensor_v2", {storage("FloatStorage", "0", "6"), number("0"), sizes({"6"}), strides, "I00\n", "}"})));
    EXPECT_EQ(said.find("is negative") != std::string::npos, at < CKPT_MAX_RANK + 1) << said;
  }
}

// Values of groups are compared up to a count: lists that many parameters share are not gone through each time.
TEST(TorchSharing, ValuesOfFlattenedGroups) {
  for (uint64_t n_items : {100u, 100000u}) {
    ckpt_arena arena;
    ckpt_arena_init(&arena, 64 << 20);
    ckpt_object *lists[2], *groups = nullptr, *none = ckpt_object_none(&arena);
    for (ckpt_object *&list : lists) {
      list = ckpt_object_new(&arena, CKPT_OBJECT_LIST, n_items, nullptr);
      for (uint64_t i = 0; i < n_items; i++) list->items[i] = none;
    }
    ckpt_object *flat = ckpt_object_new(&arena, CKPT_OBJECT_DICT, 40, nullptr);
    flat->n = 0;
    for (int i = 0; i < 40; i++)
      ckpt_object_put(&arena, flat, ("param_groups.p" + std::to_string(i) + ".x").c_str(), lists[i % 2]);
    ASSERT_EQ(ckpt_torch_groups_of(&groups, flat, &arena, nullptr), CKPT_OK);
    EXPECT_EQ(groups->n, n_items == 100 ? 1u : 2u);
    ckpt_arena_free(&arena);
  }
}

// A limit on the index is named whatever its part of the file ran into it.
TEST(TorchSharing, FullIndexIsALimit) {
  const std::string f = storage("FloatStorage", "0", "6");
  std::string made = "(";
  for (int i = 0; i < 300; i++)
    made += "ctorch._utils\n_rebuild_qtensor\n" + quantized("(" + kWith + "t") + "R" + view(f, "0", {"6"}, {"1"}) +
            "L" + std::string(300, '7') + "L\n";
  const std::string bytes = archive(made + "l.", {kSixFloats});
  size_t n_refused = 0;
  for (uint64_t limit = 12 << 10; limit < 1 << 20; limit += 3331) {
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    options.max_index_bytes = limit;
    ckpt_error err = {};
    ckpt_index *index = nullptr;
    if (ckpt_open_memory(&index, bytes.data(), bytes.size(), "memory", &options, &err) == CKPT_OK) {
      ckpt_index_free(index);
      continue;
    }
    EXPECT_EQ(err.status, CKPT_ELIMIT) << limit << ": " << text_of(err);
    n_refused++;
  }
  EXPECT_GT(n_refused, 50u);
}

}  // namespace
}  // namespace formats_testing
