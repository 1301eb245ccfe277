// What DCP folders hold besides tensors (tests/data/make_dcp_objects.py): items of bytes, the dict that was saved, the
// canonical state, and what is left of them after damage.
#include "tests/formats/formats_testing.h"
#include "tests/formats/torch/torch_testing.h"

extern "C" {
#include "libckpt/extents/decode.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/dcp/";

std::string printed(const ckpt_object *object) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 20);
  std::string text = object == nullptr ? "none" : ckpt_object_print(object, 1 << 16, &arena);
  ckpt_arena_free(&arena);
  return text;
}

IndexPointer open_golden(const std::string &name) {
  ckpt_error err = {};
  IndexPointer index = open(kData + name, &err, false);
  EXPECT_NE(index, nullptr) << text_of(err);
  return index;
}

// "<tensor 3>" with the tensor's name instead of its number.
std::string named(const ckpt_index *index, std::string text) {
  for (uint32_t i = index->n_tensors; i-- > 0;) {
    const std::string number = "<tensor " + std::to_string(i) + ">";
    for (size_t at; (at = text.find(number)) != std::string::npos;)
      text.replace(at, number.size(), std::string("<") + index->tensors[i].name + ">");
  }
  return text;
}

TEST(DcpObjects, TheDictThatWasSaved) {
  for (const char *name : {"objects", "objects-zstd"}) {
    IndexPointer index = open_golden(name);
    const ckpt_object *root = ckpt_object_get(index->objects, "torch");
    EXPECT_EQ(
        named(index.get(), printed(root)),
        "{\"model\": {\"w\": \"<w>\", \"b\": \"<b>\"}, \"optimizer\": {\"state.w.exp_avg\": "
        "\"<optimizer.state.w.exp_avg>\", \"state.w.step\": \"<optimizer.state.w.step>\", \"param_groups.w.lr\": 0.5, "
        "\"param_groups.w.betas\": [0.5, 0.75], \"param_groups.b.lr\": 0.5, \"param_groups.b.betas\": [0.5, 0.75], "
        "\"param_groups.g.lr\": 0.25, \"param_groups.g.betas\": [0.5, 0.75]}, \"lr_scheduler\": {\"last_epoch\": 3, "
        "\"_last_lr\": [0.5, 0.25]}, \"extra\": [\"<extra.0>\", {\"x\": \"<extra.1.x>\", \"y\": null}], \"sparse\": "
        "[{\"torch._utils._rebuild_sparse_tensor\": [{\"torch.serialization._get_layout\": [\"torch.sparse_coo\"]}, "
        "[\"<sparse.0.indices>\", \"<sparse.0.values>\", {\"torch.Size\": [[2, 2]]}, true]]}], \"list\": "
        "[\"<list.0>\", "
        "{\"k\": \"<5 bytes>\"}, \"text\"], \"global_step\": 7, \"big\": 1180591620717411303424}")
        << name;
    EXPECT_EQ(ckpt_object_get(root, "extra")->kind, CKPT_OBJECT_TUPLE);
    EXPECT_EQ(ckpt_object_get(root, "list")->kind, CKPT_OBJECT_LIST);
    EXPECT_TRUE(notes_of(index.get()).empty());
  }
}

TEST(DcpObjects, CanonicalState) {
  IndexPointer index = open_golden("objects");
  EXPECT_EQ(index->step, 7);
  EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS)),
            "[{\"lr\": 0.5, \"betas\": [0.5, 0.75], \"params\": [\"w\", \"b\"]}, "
            "{\"lr\": 0.25, \"betas\": [0.5, 0.75], \"params\": [\"g\"]}]");
  EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_SCHEDULER)),
            "{\"last_epoch\": 3, \"_last_lr\": [0.5, 0.25]}");
  EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_TRAINER)),
            "{\"global_step\": 7, \"big\": 1180591620717411303424}");
}

// Tensors within items have the bytes that were saved, and no part of the model.
TEST(DcpObjects, TensorsWithin) {
  for (const char *name : {"objects", "objects-zstd"}) {
    IndexPointer index = open_golden(name);
    const ckpt_tensor *x = ckpt_index_find(index.get(), "extra.1.x");
    ASSERT_NE(x, nullptr);
    EXPECT_EQ(x->role, CKPT_ROLE_OTHER);
    float values[2] = {};
    ckpt_reader reader = {};
    reader.source = index->source;
    ASSERT_EQ(ckpt_reader_read(&reader, &x->extents[0], 4, x->extents[0].skip, values, sizeof values, nullptr),
              CKPT_OK);
    ckpt_reader_reset(&reader);
    EXPECT_EQ(values[0], 1.0f);
    EXPECT_EQ(values[1], 2.0f);
    ASSERT_EQ(index->n_composites, 1u);
    EXPECT_STREQ(index->composites[0].name, "sparse.0");
  }
}

// accelerate saves the model and its optimizer in folders of their own, as others do whose dicts do not say what they
// are: one checkpoint, and the files of the run beside them belong to it.
TEST(DcpObjects, TwoFolders) {
  for (const char *name : {"accelerate", "apart"}) {
    IndexPointer index = open_golden(name);
    ASSERT_NE(index, nullptr) << name;
    EXPECT_EQ(ckpt_index_find(index.get(), "w")->role, CKPT_ROLE_PARAMETER) << name;
    EXPECT_EQ(ckpt_index_find(index.get(), "optimizer.state.w.exp_avg")->role, CKPT_ROLE_EXP_AVG) << name;
    EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS)),
              "[{\"lr\": 0.5, \"params\": [\"w\"]}]");
    EXPECT_EQ(notes_of(index.get()), std::vector<std::string>());
  }
  EXPECT_NE(ckpt_index_side_file(open_golden("accelerate").get(), "scheduler.bin"), nullptr);
  Folder folder;
  const auto recursive = std::filesystem::copy_options::recursive;
  ckpt_error held = {};
  std::filesystem::create_directory(folder / "b");
  std::filesystem::copy(kData + "accelerate/pytorch_model_fsdp_0", folder / "b/model", recursive);
  std::filesystem::copy(kData + "accelerate/optimizer_0", folder / "b/optimizer", recursive);
  EXPECT_NE(ckpt_index_find(open(folder / "b", &held, false).get(), "w"), nullptr) << "containers that are there stay";
  std::filesystem::remove_all(folder / "b/optimizer");
  std::filesystem::copy(kData + "../llama-tiny", folder / "b/optimizer", recursive);
  EXPECT_EQ(open(folder / "b", &held, false), nullptr) << "two models of equal rank";
  EXPECT_NE(std::string(held.message).find("holds 2 checkpoints"), std::string::npos) << held.message;
  std::filesystem::copy(kData + "accelerate", folder / "c", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder / "c/optimizer_0/__0_0.distcp");
  ckpt_error err = {};
  EXPECT_EQ(open(folder / "c", &err, false), nullptr);
  EXPECT_EQ(err.status, CKPT_ENOTFOUND) << text_of(err);
}

// A file of torch's beside a checkpoint is other weights where it has tensors; else it goes on as what lies there.
TEST(DcpObjects, TorchFilesBesideItWithoutTensors) {
  Folder folder;
  std::filesystem::copy(kData + "apart", folder / "a", std::filesystem::copy_options::recursive);
  std::filesystem::copy(kData + "../trainer/llama-lora/scheduler.pt", folder / "a/meta.pt");
  std::filesystem::copy(kData + "../torch/tensor.pt", folder / "a/w.pt");
  spill(folder / "a/cut.pt", slurp(folder / "a/meta.pt").substr(0, 200));
  ckpt_error err = {};
  IndexPointer index = open(folder / "a", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_NE(ckpt_index_side_file(index.get(), "meta.pt"), nullptr);
  EXPECT_EQ(notes_of(index.get()),
            std::vector<std::string>{"also holds other weights, not read or carried: cut.pt, w.pt"});
}

// What such a folder has beside the model or the optimizer stays where it was saved; what both have stays each one's.
TEST(DcpObjects, TwoFoldersWithMore) {
  IndexPointer index = open_golden("beside");
  ASSERT_NE(index, nullptr);
  ASSERT_NE(ckpt_index_find(index.get(), "w"), nullptr);
  ASSERT_NE(ckpt_index_find(index.get(), "optimizer.state.w.exp_avg"), nullptr);
  EXPECT_EQ(printed(ckpt_object_get(index->objects, CKPT_STATE_SCHEDULER)), "{\"last_epoch\": 3}");
  EXPECT_EQ(index->step, 7);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  EXPECT_EQ(printed(ckpt_object_get(ckpt_object_get(root, "optimizer"), "step")), "8");
  for (const char *name : {"seen", "optimizer.seen"}) EXPECT_NE(ckpt_index_find(index.get(), name), nullptr) << name;
}

// A folder of two ranks, each with its own metadata, in which both have an item x with these bytes.
void write_ranks(const Folder &folder, const std::string &item) {
  const std::string metadata = "ctorch.distributed.checkpoint.metadata\n", made = ")\x81";
  for (const std::string rank : {"0", "1"}) {
    spill(folder / ("__" + rank + "_0.distcp"), item);
    const std::string key = metadata + "MetadataIndex\n" + made + dict({{"fqn", text("x")}, {"offset", "N"}}) + "b";
    const std::string at = "ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n" + made +
                           dict({{"relative_path", text("__" + rank + "_0.distcp")},
                                 {"offset", number("0")},
                                 {"length", number(std::to_string(item.size()))}}) +
                           "b";
    spill(folder / ("__" + rank + ".metadata"),
          "\x80\x02" + metadata + "Metadata\n" + made +
              dict({{"state_dict_metadata", dict({{"x", metadata + "BytesStorageMetadata\n" + made}})},
                    {"planner_data", "N"},
                    {"storage_data", "(d" + key + at + "s"}}) +
              "b.");
  }
}

// Ranks' objects are compared as far as their own bytes go: a text that a file has once, and its list a thousand times,
// is not gone through a thousand times. Such objects stay each rank's.
TEST(DcpObjects, WhatRanksHaveIsComparedWithinItsBytes) {
  for (const auto &[n_times, wanted] : {std::pair<int, const char *>{3, "x"}, {1000, "x x@1"}}) {
    Folder folder;
    std::string list = "(lp1\n" + text(std::string(1 << 16, 't')) + "p0\na";
    for (int i = 1; i < n_times; i++) list += "g0\na";
    ASSERT_NO_FATAL_FAILURE(write_ranks(folder, archive(list + ".", {})));
    ckpt_error err = {};
    IndexPointer index = open(folder / "", &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const ckpt_object *whole = ckpt_object_get(index->objects, "torch");
    ASSERT_NE(whole, nullptr);
    std::string keys;
    for (uint64_t i = 0; i < whole->n; i++) keys += (i == 0 ? "" : " ") + std::string(whole->items[2 * i]->text);
    EXPECT_EQ(keys, wanted) << n_times;
  }
}

// Tensors in ranks' items are each rank's own, whether or not the items look alike.
TEST(DcpObjects, TensorsOfRanksStay) {
  Folder folder;
  const std::string tensor = view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"});
  ASSERT_NO_FATAL_FAILURE(write_ranks(folder, archive(tuple({tensor, number("1")}) + ".", {kSixFloats})));
  spill(folder / "__1_0.distcp", archive(tuple({tensor, number("1")}) + ".", {std::string(24, 'y')}));
  ckpt_error err = {};
  IndexPointer index = open(folder / "", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (const auto &[name, bytes] :
       {std::pair<const char *, std::string>{"x.0", kSixFloats}, {"x@1.0", std::string(24, 'y')}}) {
    const ckpt_tensor *held = ckpt_index_find(index.get(), name);
    ASSERT_NE(held, nullptr) << name;
    EXPECT_EQ(values(index.get(), held), bytes) << name;
  }
}

// Any damage to the bytes of items leaves the rest readable, or is refused.
TEST(DcpObjects, DamagedItems) {
  for (const char *name : {"objects", "objects-zstd"}) {
    Folder folder;
    std::filesystem::copy(kData + name, folder / "c", std::filesystem::copy_options::recursive);
    const std::string path = folder / "c/__0_0.distcp", whole = slurp(path);
    uint32_t random = 1;
    size_t n_noted = 0;
    for (size_t i = 0; i < whole.size(); i += 61) {
      std::string damaged = whole;
      random = random * 1664525 + 1013904223;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 + (random >> 24) % 255));
      spill(path, damaged);
      ckpt_error err = {};
      IndexPointer index = open(folder / "c", &err, false);
      EXPECT_NE(err.status, CKPT_EINTERNAL) << i << text_of(err);
      for (const std::string &note : index == nullptr ? std::vector<std::string>{} : notes_of(index.get()))
        n_noted += note.rfind("! not read: ", 0) == 0;
    }
    EXPECT_GT(n_noted, 5u) << name;
  }
}

// A torch file of them is the dict that dcp_to_torch_save makes: one key alone, an empty one, tuples with tensors.
TEST(DcpObjects, TorchFilesHaveTheDict) {
  const std::pair<const char *, const char *> cases[] = {
      {"alone", "{\"net\": {\"w\": \"<net.w>\", \"b.c\": \"<net.b.c>\"}}"},
      {"odd",
       "{\"\": \"<tensor>\", \"l\": [[\"<l.0.0>\", 2], \"<l.1>\"], \"t\": [{\"x\": \"<t.0.x>\"}, null], \"args\": "
       "{\"lr\": 1}}"}};
  for (const auto &[name, dict] : cases) {
    Folder folder;
    const std::string input = kData + name, output = folder / "out.pt";
    ckpt_convert_options options = {};
    options.struct_size = sizeof options;
    options.input = input.c_str();
    options.output = output.c_str();
    options.include = "all";
    ckpt_error err = {};
    ASSERT_EQ(ckpt_convert(&options, &err), CKPT_OK) << text_of(err);
    for (const std::string &path : {input, output}) {
      IndexPointer index = open(path, &err, false);
      ASSERT_NE(index, nullptr) << text_of(err);
      const ckpt_object *root = ckpt_object_get(index->objects, "torch");
      EXPECT_EQ(named(index.get(), printed(root)), dict) << path;
      if (strcmp(name, "odd") != 0) continue;
      EXPECT_EQ(ckpt_object_get(root, "t")->kind, CKPT_OBJECT_TUPLE);
      EXPECT_EQ(ckpt_object_get(root, "l")->items[0]->kind, CKPT_OBJECT_TUPLE);
    }
  }
}

// Items of a planner that does not flatten have what one rank had of DTensors (tests/data/make_dcp.py), each another's.
TEST(DcpObjects, PartsInItems) {
  IndexPointer index = open_golden("parts");
  ASSERT_NE(index, nullptr);
  const std::pair<const char *, uint64_t> parts[] = {{"w", 3}, {"optimizer.state.w.exp_avg", 2}};
  for (const auto &[name, n_rows] : parts) {
    const ckpt_tensor *part = ckpt_index_find(index.get(), name);
    ASSERT_NE(part, nullptr) << name;
    EXPECT_EQ(part->shape[0], n_rows) << name;
    EXPECT_EQ(part->shape[1], 3u) << name;
    EXPECT_EQ(part->role == CKPT_ROLE_PARAMETER, n_rows == 3) << name;
  }
  EXPECT_STREQ(index->part, "holds one rank's part of 1 tensor (w: [3,3] of [5,3])");
  EXPECT_EQ(notes_of(index.get()),
            (std::vector<std::string>{
                "! .metadata: holds one rank's part of 1 tensor (w: [3,3] of [5,3])",
                "! .metadata: holds one rank's part of 1 tensor (optimizer.state.w.exp_avg: [2,3] of [5,3])"}));
}

// A rank that saves items as well puts its safetensors behind them.
TEST(DcpObjects, SafetensorsBehindItems) {
  IndexPointer index = open_golden("behind");
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(named(index.get(), printed(ckpt_object_get(index->objects, "torch"))),
            "{\"w\": \"<w>\", \"none\": \"<none>\", \"epoch\": 3}");
  const float wanted[] = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(values(index.get(), ckpt_index_find(index.get(), "w")),
            std::string(reinterpret_cast<const char *>(wanted), sizeof wanted));
  EXPECT_TRUE(notes_of(index.get()).empty());
  for (const char *name : {"shard-00001-model-00001-of-00001.safetensors", "model.safetensors"}) {
    Folder folder;  // HuggingFaceStorageWriter does the same, and no metadata says where
    spill(folder / name, slurp(kData + "behind/__0_0.distcp"));
    ckpt_error err = {};
    EXPECT_EQ(open(folder.path(), &err), nullptr);
    EXPECT_NE(text_of(err).find("begins with a zip archive, not with the length of a header"), std::string::npos)
        << text_of(err);
  }
}

std::string instance(const std::string &name, const std::string &state) {
  return "ctorch.distributed.checkpoint.metadata\n" + name + "\n)\x81" + state + "b";
}

// A folder of items that are 7, with these paths; of each key the pickle that makes it.
void write_paths(const Folder &folder, const std::vector<std::vector<std::string>> &keys) {
  const std::string item = archive("I7\n.", {});
  const std::string info = instance("_StorageInfo", dict({{"relative_path", text("__0_0.distcp")},
                                                          {"offset", number("0")},
                                                          {"length", number(std::to_string(item.size()))}}));
  std::vector<std::pair<std::string, std::string>> items, paths;
  std::string places = "}(";
  for (size_t i = 0; i < keys.size(); i++) {
    const std::string name = "n" + std::to_string(i);
    items.push_back({name, instance("BytesStorageMetadata", "}")});
    paths.push_back({name, tuple(keys[i])});
    places += instance("MetadataIndex", dict({{"fqn", text(name)}, {"offset", "N"}})) + info;
  }
  spill(folder / "__0_0.distcp", item);
  spill(folder / ".metadata", instance("Metadata", dict({{"state_dict_metadata", dict(items)},
                                                         {"planner_data", dict(paths)},
                                                         {"storage_data", places + "u"}})) +
                                  ".");
}

// A long key that all paths share is kept once, not in each dict.
TEST(DcpObjects, LongKeysThatPathsShare) {
  const int n = 3000, n_key = 4000;
  std::vector<std::vector<std::string>> keys;
  for (int i = 0; i < n; i++)
    keys.push_back({text("n" + std::to_string(i)), i == 0 ? text(std::string(n_key, 'k')) + "p0\n" : "g0\n"});
  Folder folder;
  write_paths(folder, keys);
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  ASSERT_EQ(root->n, static_cast<uint64_t>(n));
  EXPECT_EQ(root->items[1]->items[0]->n, static_cast<uint64_t>(n_key));
  EXPECT_EQ(root->items[1]->items[0], root->items[3]->items[0]);
  EXPECT_LT(index->arena.n_taken, 4u << 20);  // copies would take 12 MB
}

// Lists with gaps have no more empty places in all than there are leaves, and 16: of the others numbers are keys.
TEST(DcpObjects, GapsOfAllListsArePaidFor) {
  const int n = 40, n_keys = 200;
  std::vector<std::vector<std::string>> keys;
  for (int i = 0; i < n; i++) {
    keys.push_back({text("n" + std::to_string(i))});
    for (int k = 1; k < n_keys; k++) keys.back().push_back(number("15"));
  }
  Folder folder;
  write_paths(folder, keys);
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  ASSERT_EQ(root->n, static_cast<uint64_t>(n));
  uint64_t n_empty = 0, n_dicts = 0;
  for (int i = 0; i < n; i++)
    for (const ckpt_object *at = root->items[2 * i + 1]; at->kind != CKPT_OBJECT_INT;
         at = at->items[at->kind == CKPT_OBJECT_LIST ? 15 : 1]) {
      ASSERT_TRUE(at->kind == CKPT_OBJECT_LIST || at->kind == CKPT_OBJECT_DICT);
      n_empty += at->kind == CKPT_OBJECT_LIST ? at->n - 1 : 0;
      n_dicts += at->kind == CKPT_OBJECT_DICT;
    }
  EXPECT_GT(n_empty, 0u);
  EXPECT_LE(n_empty, n + 16u);
  EXPECT_GT(n_dicts, 0u);
}

}  // namespace
}  // namespace formats_testing
