// PyTorch Distributed Checkpoint folders that we write: read back, cut as torch.chunk cuts, the same from any source.
// That torch reads them is for tests/interop/test_dcp_write.py.
#include <zstd.h>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "formats/dcp/write.h"
#include "libckpt/codec/pickle/pickle.h"
}

namespace formats_testing {
namespace {

using Texts = std::vector<std::string>;

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/dcp/";

class DcpWrite : public testing::Test {
 protected:
  // Converts everything to DCP for some ranks.
  ckpt_status Write(const std::string &input, const std::string &output, uint32_t world, uint32_t n_threads = 1,
                    int zstd_level = 0, uint64_t memory = 0) {
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    run.n_threads = n_threads;
    run.memory = memory;
    ckpt_convert_options options = {};
    options.struct_size = sizeof options;
    options.input = input.c_str();
    options.output = output.c_str();
    options.to = "dcp";
    options.world = world;
    const ckpt_format_value level = {"zstd_level", static_cast<uint64_t>(zstd_level), nullptr, nullptr};
    options.values = &level;
    options.n_values = 1;
    options.run = &run;
    return ckpt_convert(&options, &err_);
  }

  // The digest of all that a path holds.
  std::string Digest(const std::string &path) {
    ckpt_hash_options options = {};
    options.struct_size = sizeof options;
    options.include = "all";
    ckpt_digest found;
    IndexPointer index = open(path, &err_, false);
    if (index == nullptr || ckpt_hash(index.get(), &options, &found, &err_) != CKPT_OK) return text_of(err_);
    return std::string(reinterpret_cast<const char *>(&found), sizeof found);
  }

  static Files Slurp(const std::string &path) {
    Files files;
    for (const auto &entry : std::filesystem::directory_iterator(path))
      files[entry.path().filename()] = slurp(entry.path());
    return files;
  }

  // A safetensors file of u8 tensors, each with its number of rows of `width`; -1 rows: a scalar.
  std::string Source(const std::vector<int> &rows, int width = 3) {
    std::string header = "{", payload;
    for (size_t i = 0; i < rows.size(); i++) {
      size_t n = rows[i] < 0 ? 1 : static_cast<size_t>(rows[i] * width), at = payload.size();
      std::string shape = rows[i] < 0 ? "" : std::to_string(rows[i]) + "," + std::to_string(width);
      header += (i == 0 ? "" : ",") + ("\"t" + std::to_string(i)) + R"(":{"dtype":"U8","shape":[)" + shape +
                R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(at + n) + "]}";
      for (size_t k = 0; k < n; k++) payload += static_cast<char>(7 * i + k);
    }
    spill(folder_ / "source.safetensors", safetensors(header + "}", payload));
    return folder_ / "source.safetensors";
  }

  // What is written of a tensor `t0` and the object that a pickle is.
  Files WritePickle(const std::string &pickle, Texts *losses = nullptr) {
    IndexPointer index = open(Source({1}), &err_);
    ckpt_arena *arena = &index->arena;
    ckpt_pickle_options options = {};
    options.data = pickle.data(), options.n_bytes = pickle.size();
    ckpt_object *objects = index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
    objects->items[0] = ckpt_object_text(arena, "torch", 5);
    EXPECT_EQ(ckpt_pickle_read(&objects->items[1], nullptr, &options, arena, &err_), CKPT_OK) << text_of(err_);
    index->whole = objects->items[1];
    return write("dcp", index.get(), {}, &err_, losses);
  }

  Folder folder_;
  ckpt_error err_ = {};
};

std::map<std::string, ckpt_role> roles_of(const ckpt_index *index) {
  std::map<std::string, ckpt_role> roles;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    roles[index->tensors[i].name] = static_cast<ckpt_role>(index->tensors[i].role);
  return roles;
}

TEST_F(DcpWrite, NamesRolesAndValuesComeBack) {
  for (const char *name :
       {"fsdp4", "app", "mesh", "dtypes", "no-collectives", "mcore", "old-1.12", "hf-shards", "state-dicts"})
    for (uint32_t world : {1u, 2u, 7u}) {
      std::string out = folder_ / (name + std::to_string(world));
      ASSERT_EQ(Write(kData + name, out, world), CKPT_OK) << name << text_of(err_);
      EXPECT_EQ(Digest(kData + name), Digest(out)) << name << world;
      IndexPointer before = open(kData + name, &err_, false), after = open(out, &err_, false);
      EXPECT_EQ(roles_of(before.get()), roles_of(after.get())) << name;
    }
}

TEST_F(DcpWrite, ObjectsComeBack) {
  for (const char *name : {"fsdp4", "app", "state-dicts"}) {
    std::string out = folder_ / name;
    ASSERT_EQ(Write(kData + name, out, 3), CKPT_OK) << text_of(err_);
    IndexPointer before = open(kData + name, &err_, false), after = open(out, &err_, false);
    for (const char *key : {CKPT_STATE_PARAM_GROUPS, CKPT_STATE_TRAINER}) {
      const ckpt_object *a = ckpt_object_get(before->objects, key), *b = ckpt_object_get(after->objects, key);
      ASSERT_EQ(a == nullptr, b == nullptr) << name << key;
      if (a != nullptr) {
        EXPECT_TRUE(ckpt_object_equal(a, b)) << name << key;
      }
    }
    EXPECT_EQ(before->step, after->step);
  }
}

// SGD without momentum has groups and no tensors; where the tensors are left out, so are the groups.
TEST_F(DcpWrite, AnOptimizerWithoutStatesKeepsItsGroups) {
  ASSERT_EQ(Write(kData + "app", folder_ / "app", 1), CKPT_OK) << text_of(err_);
  IndexPointer app = open(folder_ / "app", &err_, false);
  ASSERT_NE(ckpt_object_get(app->objects, CKPT_STATE_PARAM_GROUPS), nullptr);
  IndexPointer model = open(folder_ / "app", &err_, false);
  uint32_t n = 0;
  for (uint32_t i = 0; i < model->n_tensors; i++)
    if (model->tensors[i].role == CKPT_ROLE_PARAMETER) model->tensors[n++] = model->tensors[i];
  model->n_tensors = n;
  auto groups = [&](const ckpt_index *of) {
    model->objects_of = of;
    ckpt_losses losses = {};
    losses.arena = &model->arena;
    ckpt_object *objects = model->objects;
    const ckpt_object *whole = model->whole;
    EXPECT_EQ(ckpt_dcp_normalize(model.get(), &losses, &err_), CKPT_OK) << text_of(err_);
    uint32_t n_found = 0;
    for (uint64_t i = 0; model->objects != nullptr && i < model->objects->n; i++) {
      char name[CKPT_DCP_NAME_BYTES + 1];
      (void)ckpt_dcp_path_text(name, model->objects->items[2 * i]);
      n_found += strstr(name, "param_groups") != nullptr;
    }
    ckpt_index_set_objects(model.get(), objects, whole);
    return n_found;
  };
  EXPECT_NE(groups(model.get()), 0u);
  EXPECT_EQ(groups(app.get()), 0u);
}

TEST_F(DcpWrite, RowsFallToRanksAsTorchChunks) {
  // 10 rows for 4 ranks: 3, 3, 3, 1; 5 rows: 2, 2, 1; one row: the first rank; scalars in turn.
  std::string source = Source({10, 5, 1, -1, -1, 0, -1, -1});
  ASSERT_EQ(Write(source, folder_ / "o", 4), CKPT_OK) << text_of(err_);
  IndexPointer index = open(folder_ / "o", &err_, false);
  ASSERT_NE(index, nullptr) << text_of(err_);
  auto counts = [&](const char *name) {
    std::vector<uint64_t> found;
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), name);
    for (uint32_t i = 0; i < tensor->n_extents && tensor->details->extent_form == CKPT_EXTENT_BOX; i++)
      found.push_back(tensor->extents[i].box[tensor->rank]);
    return found;
  };
  auto file = [&](const char *name) {
    return std::filesystem::path(ckpt_source_path(index->source, ckpt_index_find(index.get(), name)->extents[0].file))
        .filename()
        .string();
  };
  EXPECT_EQ(counts("t0"), (std::vector<uint64_t>{3, 3, 3, 1}));
  EXPECT_EQ(counts("t1"), (std::vector<uint64_t>{2, 2, 1}));
  EXPECT_EQ(file("t2"), "__0_0.distcp");
  EXPECT_EQ(file("t3"), "__0_0.distcp");
  EXPECT_EQ(file("t4"), "__1_0.distcp"); /* t5, which is empty, is written by the third */
  EXPECT_EQ(file("t6"), "__3_0.distcp");
  EXPECT_EQ(file("t7"), "__0_0.distcp");
  EXPECT_EQ(Digest(source), Digest(folder_ / "o"));
}

TEST_F(DcpWrite, RanksWithNothingHaveNoFile) {
  ASSERT_EQ(Write(Source({2, 1}), folder_ / "o", 1000), CKPT_OK) << text_of(err_);
  std::vector<std::string> names;
  for (const auto &file : Slurp(folder_ / "o")) names.push_back(file.first);
  EXPECT_EQ(names, (std::vector<std::string>{".metadata", "__0_0.distcp", "__1_0.distcp"}));
}

TEST_F(DcpWrite, BytesDoNotDependOnThreadsOrOnTheSource) {
  std::string source = Source({40, 41, -1, 7, 500}, 1000);
  ASSERT_EQ(Write(source, folder_ / "a", 3), CKPT_OK) << text_of(err_);
  ASSERT_EQ(Write(source, folder_ / "b", 3, 4), CKPT_OK) << text_of(err_);
  ASSERT_EQ(Write(source, folder_ / "c", 5, 2), CKPT_OK) << text_of(err_);
  ASSERT_EQ(Write(folder_ / "c", folder_ / "d", 3, 4), CKPT_OK) << text_of(err_);
  EXPECT_EQ(Slurp(folder_ / "a"), Slurp(folder_ / "b"));
  EXPECT_EQ(Slurp(folder_ / "a"), Slurp(folder_ / "d"));
}

// Every chunk's slice is one frame of the very archive that is written without compression.
TEST_F(DcpWrite, CompressedChunksAreFramesOfTheSameArchives) {
  for (const char *name : {"fsdp4", "app", "dtypes", "mcore"}) {
    std::string plain = folder_ / (name + std::string(".plain")), packed = folder_ / name;
    ASSERT_EQ(Write(kData + name, plain, 3), CKPT_OK) << text_of(err_);
    ASSERT_EQ(Write(kData + name, packed, 3, 1, 3), CKPT_OK) << text_of(err_);
    EXPECT_EQ(Digest(kData + name), Digest(packed)) << name;
    IndexPointer a = open(plain, &err_, false), b = open(packed, &err_, false);
    ASSERT_NE(b, nullptr) << text_of(err_);
    EXPECT_EQ(a->step, b->step);
    for (uint32_t i = 0; i < a->n_tensors; i++)
      for (uint32_t k = 0; k < a->tensors[i].n_extents; k++) {
        const ckpt_extent *x = &a->tensors[i].extents[k], *y = &b->tensors[i].extents[k];
        ASSERT_EQ(y->chain[0], CKPT_DECODE_ZSTD) << a->tensors[i].name;
        std::string stored(y->n_stored, '\0'), archive(x->n_stored, '\0'), unpacked(x->n_stored, '\0');
        ASSERT_EQ(ckpt_source_read(b->source, y->file, y->offset, &stored[0], stored.size(), &err_), CKPT_OK);
        ASSERT_EQ(ckpt_source_read(a->source, x->file, x->offset, &archive[0], archive.size(), &err_), CKPT_OK);
        EXPECT_EQ(ZSTD_findFrameCompressedSize(stored.data(), stored.size()), stored.size());
        EXPECT_EQ(ZSTD_decompress(&unpacked[0], unpacked.size(), stored.data(), stored.size()), archive.size());
        EXPECT_EQ(unpacked, archive) << a->tensors[i].name;
      }
    const ckpt_object *groups = ckpt_object_get(a->objects, CKPT_STATE_PARAM_GROUPS);
    if (groups != nullptr) {
      EXPECT_TRUE(ckpt_object_equal(groups, ckpt_object_get(b->objects, CKPT_STATE_PARAM_GROUPS))) << name;
    }
  }
}

TEST_F(DcpWrite, CompressedBytesDoNotDependOnThreadsMemoryOrTheSource) {
  std::string source = Source({40, 41, -1, 7, 0, 5000}, 1000);
  for (int level : {1, 19}) {
    Folder folder;
    uint64_t least = level == 1 ? UINT64_C(12) << 20 : UINT64_C(200) << 20;
    ASSERT_EQ(Write(source, folder / "a", 3, 1, level, UINT64_C(1) << 30), CKPT_OK) << text_of(err_);
    ASSERT_EQ(Write(source, folder / "b", 3, 4, level, least), CKPT_OK) << text_of(err_);
    ASSERT_EQ(Write(source, folder / "c", 5, 2, 3), CKPT_OK) << text_of(err_);
    ASSERT_EQ(Write(folder / "c", folder / "d", 3, 4, level, UINT64_C(2) << 30), CKPT_OK) << text_of(err_);
    EXPECT_EQ(Slurp(folder / "a"), Slurp(folder / "b"));
    EXPECT_EQ(Slurp(folder / "a"), Slurp(folder / "d"));
    EXPECT_EQ(Digest(source), Digest(folder / "d"));
  }
}

TEST_F(DcpWrite, NamesThatTorchWouldTakeForOneAreRefused) {
  std::string header = R"({"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                       R"("optimizer.state.w.momentum":{"dtype":"U8","shape":[],"data_offsets":[1,2]},)"
                       R"("optimizer.state.w.momentum_buffer":{"dtype":"U8","shape":[],"data_offsets":[2,3]}})";
  spill(folder_ / "s.safetensors", safetensors(header, "abc"));
  IndexPointer index = open(folder_ / "s.safetensors", &err_, false);
  ASSERT_NE(index, nullptr);
  index->tensors[1].role = CKPT_ROLE_MOMENTUM;
  index->tensors[2].role = CKPT_ROLE_OTHER;
  EXPECT_TRUE(write("dcp", index.get(), {}, &err_).empty());
  EXPECT_EQ(text_of(err_),
            "tensor 'optimizer.state.w.momentum': another tensor, 'optimizer.state.w.momentum_buffer', would have its "
            "name in torch's dict, 'optimizer.state.w.momentum_buffer' (rename, exclude)");
}

TEST_F(DcpWrite, AliasesHaveNamesToo) {
  IndexPointer index = open(std::string(CKPT_TESTS_DIR) + "/data/gpt2-tiny", &err_, false);
  ASSERT_NE(index, nullptr) << text_of(err_);
  ckpt_tensor *other = &index->tensors[index->by_name[0]];
  other->name = "model.lm_head.weight"; /* as the tied name, below the model */
  other->role = CKPT_ROLE_OTHER;
  EXPECT_TRUE(write("dcp", index.get(), {}, &err_).empty());
  EXPECT_NE(text_of(err_).find("would have its name in torch's dict, 'model.lm_head.weight'"), std::string::npos)
      << text_of(err_);
}

// Pickles of protocol 0: {"a": {"b": 1}, "a.b": 2} and so on. One of each two would be lost.
TEST_F(DcpWrite, ObjectsThatTorchWouldTakeForOneAreRefused) {
  const struct {
    std::string pickle, message;
  } cases[] = {
      {"(dVa\n(dVb\nI1\nssVa.b\nI2\ns.", "two objects would be 'a.b' in torch's dict: ['a']['b'] and ['a.b']"},
      {"(dVx\n(dI1\nI5\nsV1\nI6\nssVy\nI1\ns.",
       "two objects would be 'x.1' in torch's dict: ['x']['1'], with a number and with a text as key"},
      {"(dVx\n(l(dVa\nI1\nsasVx.0\n(dVa\nI2\nss.",
       "two objects would be 'x.0.a' in torch's dict: ['x'][0]['a'] and ['x.0']['a']"},
      {"(dVx\n(dI1\n(dVy\nI5\nssV1\nI6\nss.",
       "'x.1' would be a value in torch's dict, and a dict that has 'x.1.y' (one key is a number and the other its "
       "text?)"},
      {"(dVt0\nI1\ns.", "tensor 't0': the object at ['t0'] has its name in torch's dict, 't0' (rename, exclude)"},
  };
  for (const auto &c : cases) {
    err_ = {};
    EXPECT_TRUE(WritePickle(c.pickle).empty()) << c.pickle;
    EXPECT_EQ(text_of(err_), c.message);
  }
}

// What torch.load(weights_only=True) takes, as torch files are written, and namespaces of that: no more and no less.
TEST_F(DcpWrite, ObjectsAreWhatWeightsOnlyLoadingTakes) {
  std::string nines(600, '9');
  Texts losses;
  Files files = WritePickle(
      "(dVsize\nctorch\nSize\n((I2\nI3\ntt"
      "RsVdtype\nctorch\nfloat32\nsVfits\nL" +
          nines + "L\nsVbig\nL9" + nines + "L\nsVran\ncos\nsystem\n(Vls\ntRs" +
          "Vargs\ncargparse\nNamespace\n)\x81(dVk\ncargparse\nNamespace\n)\x81sbs"
          "Vbad\ncargparse\nNamespace\n)\x81(dVa\nI1\nsVk\ncos\nsystem\n(Vls\ntRsbs.",
      &losses);
  EXPECT_EQ(losses, Texts({"object big (a large number)", "object ran (os.system)", "object bad.k (os.system)"}));
  spill(folder_, files);
  IndexPointer index = open(folder_.path(), &err_);
  ASSERT_NE(index, nullptr) << text_of(err_);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(root, "size"), 100, &index->arena), R"({"torch.Size": [[2, 3]]})");
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(root, "dtype"), 100, &index->arena), R"("<torch.float32>")");
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(root, "args"), 100, &index->arena),
               R"({"argparse.Namespace": [], "state": {"k": {"argparse.Namespace": []}}})");
  EXPECT_STREQ(ckpt_object_print(ckpt_object_get(root, "bad"), 100, &index->arena),
               R"({"argparse.Namespace": [], "state": {"a": 1}})");
  ASSERT_NE(ckpt_object_get(root, "fits"), nullptr);
  EXPECT_EQ(ckpt_object_get(root, "fits")->n, nines.size());
}

// What the archives of a folder's items are: by their names, in `path` itself.
std::map<std::string, std::string> items_of(const std::string &path) {
  std::map<std::string, std::string> items;
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false);
  EXPECT_NE(index, nullptr) << text_of(err);
  for (uint32_t i = 0; index != nullptr && i < index->n_archives; i++) {
    const ckpt_archive &a = index->archives[i];
    const std::string file = slurp(ckpt_source_path(index->source, a.file));
    items[a.name] = file.substr(a.offset, a.n_bytes);
  }
  return items;
}

TEST_F(DcpWrite, ItemsOfAnyClassGoOnAsTheyLie) {
  const std::string in = kData + "carried";
  const auto expected = items_of(in);
  ASSERT_EQ(expected.size(), 4u);
  for (uint32_t world : {1u, 2u}) {
    const std::string out = folder_ / ("carried" + std::to_string(world));
    ASSERT_EQ(Write(in, out, world), CKPT_OK) << text_of(err_);
    EXPECT_EQ(items_of(out), expected);
    IndexPointer was = open(in, &err_, false), index = open(out, &err_, false);
    ASSERT_NE(index, nullptr) << text_of(err_);
    EXPECT_EQ(roles_of(index.get()), roles_of(was.get()));
  }
}

TEST_F(DcpWrite, CarriedItemsStayBehindZstdAndWithoutAreFrames) {
  const std::string in = kData + "carried", zstd = folder_ / "zstd", plain = folder_ / "plain";
  ASSERT_EQ(Write(in, zstd, 2, 2, 3), CKPT_OK) << text_of(err_);
  ASSERT_EQ(Write(zstd, plain, 1), CKPT_OK) << text_of(err_);
  const auto expected = items_of(in), frames = items_of(zstd);
  EXPECT_EQ(items_of(plain), frames);
  ASSERT_EQ(frames.count("path"), 1u);
  std::string archive(expected.at("path").size(), 0);
  const std::string &frame = frames.at("path");
  EXPECT_EQ(ZSTD_decompress(archive.data(), archive.size(), frame.data(), frame.size()), archive.size());
  EXPECT_EQ(archive, expected.at("path"));
  EXPECT_EQ(Digest(plain), Digest(zstd));
}

TEST_F(DcpWrite, AnItemWhoseTensorsAreCastIsNotCarried) {
  const ckpt_cast_rule halves = {"args.*", CKPT_BF16};
  ckpt_convert_options options = {};
  const std::string in = kData + "carried", out = folder_ / "cast";
  options.struct_size = sizeof options;
  options.input = in.c_str(), options.output = out.c_str(), options.to = "dcp";
  options.casts = &halves, options.n_casts = 1;
  ASSERT_EQ(ckpt_convert(&options, &err_), CKPT_OK) << text_of(err_);
  const auto found = items_of(out);
  EXPECT_EQ(found.count("tuple"), 1u);  // integers stay
  EXPECT_EQ(found.count("args"), 0u);
  EXPECT_EQ(found.count("args.lr"), 1u);
}

TEST_F(DcpWrite, TiedTensorsHaveBothNamesAndOnePlace) {
  const std::string gpt2 = std::string(CKPT_TESTS_DIR) + "/data/gpt2-tiny";
  ASSERT_EQ(Write(gpt2, folder_ / "o", 2), CKPT_OK) << text_of(err_);
  IndexPointer index = open(folder_ / "o", &err_);
  ASSERT_NE(index, nullptr) << text_of(err_);
  const ckpt_tensor *kept = ckpt_index_find(index.get(), "transformer.wte.weight");
  const ckpt_tensor *tied = ckpt_index_find(index.get(), "lm_head.weight");
  ASSERT_NE(tied, nullptr);
  EXPECT_EQ(kept, tied); /* what lies in one place is one tensor */
  EXPECT_EQ(Digest(gpt2), Digest(folder_ / "o"));
}

// What has no bytes has a place all the same.
TEST_F(DcpWrite, EmptyTensorsStayTied) {
  IndexPointer index = open(Source({0, 4}), &err_, false);
  ASSERT_EQ(ckpt_index_alias(index.get(), 0, "again", &err_), CKPT_OK);
  const std::string torch = folder_ / "tied.pt";
  spill(torch, write("torch", index.get(), {}, &err_)[""]);
  for (int zstd_level : {0, 1}) {
    const std::string out = folder_ / ("o" + std::to_string(zstd_level));
    ASSERT_EQ(Write(torch, out, 2, 1, zstd_level), CKPT_OK) << text_of(err_);
    IndexPointer back = open(out, &err_, false);
    ASSERT_NE(back, nullptr) << text_of(err_);
    EXPECT_EQ(ckpt_index_find(back.get(), "again"), ckpt_index_find(back.get(), "t0"));
    EXPECT_EQ(back->n_tensors, 2u);
    EXPECT_EQ(back->n_notes, 0u) << back->notes[0].text;
    EXPECT_EQ(Digest(torch), Digest(out));
  }
}

// Two names of one place are no problem either where their tensor is of a dtype that is not read.
TEST_F(DcpWrite, TiedTensorsThatAreNotReadShareAPlace) {
  ASSERT_EQ(Write(std::string(CKPT_TESTS_DIR) + "/data/gpt2-tiny", folder_ / "o", 2), CKPT_OK) << text_of(err_);
  std::string metadata = slurp(folder_ / "o/.metadata");
  size_t n_changed = 0;
  for (const std::string dtype : {"float32", "bfloat16", "float16"})
    for (size_t at = 0; (at = metadata.find(dtype, at)) != std::string::npos; n_changed++)
      metadata.replace(at, dtype.size(), std::string(dtype.size(), 'x'));
  ASSERT_NE(n_changed, 0u);
  spill(folder_ / "o/.metadata", metadata);
  IndexPointer index = open(folder_ / "o", &err_);
  ASSERT_NE(index, nullptr) << text_of(err_);
  EXPECT_EQ(index->n_tensors, 0u);
  EXPECT_NE(index->n_unread, 0u);
  for (uint32_t i = 0; i < index->n_notes; i++) EXPECT_FALSE(index->notes[i].is_problem) << index->notes[i].text;
}

// A weight that an average shares, whichever of the two the dict has first.
TEST_F(DcpWrite, TensorsOfAllKindsStayTied) {
  for (const char *pickle : {"(dVmodel\n(dVw\nNssVema\n(dVw\nNss.", "(dVema\n(dVw\nNssVmodel\n(dVw\nNss."}) {
    IndexPointer index = open(Source({4}), &err_, false);
    ckpt_arena *arena = &index->arena;
    ckpt_pickle_options options = {};
    options.data = pickle, options.n_bytes = strlen(pickle);
    ckpt_object *objects = index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
    objects->items[0] = ckpt_object_text(arena, "torch", 5);
    ASSERT_EQ(ckpt_pickle_read(&objects->items[1], nullptr, &options, arena, &err_), CKPT_OK) << text_of(err_);
    index->whole = objects->items[1];
    for (int i = 1; i <= 3; i += 2) objects->items[1]->items[i]->items[1] = ckpt_object_tensor(arena, 0);
    index->tensors[0].name = "w";
    ASSERT_EQ(ckpt_index_alias(index.get(), 0, "ema.w", &err_), CKPT_OK);
    spill(folder_ / "tied.pt", write("torch", index.get(), {}, &err_)[""]);
    ASSERT_EQ(Write(folder_ / "tied.pt", folder_ / "tied" + pickle[4], 2), CKPT_OK) << text_of(err_);
    IndexPointer back = open(folder_ / "tied" + pickle[4], &err_, false);
    ASSERT_EQ(back->n_tensors, 1u) << pickle;
    EXPECT_STREQ(back->tensors[0].name, "w"); /* the model's, though another is first in byte order */
    EXPECT_STREQ(back->tensors[0].aliases[0], "ema.w");
    EXPECT_EQ(back->tensors[0].role, CKPT_ROLE_PARAMETER);
    EXPECT_EQ(Digest(folder_ / "tied.pt"), Digest(folder_ / "tied" + pickle[4]));
  }
}

// Many names are as long as they may be: what the file stores, its reader may join.
TEST_F(DcpWrite, ManyLongNames) {
  const int n = 2000;
  std::string header = "{";
  for (int i = 0; i < n; i++)
    header += (i == 0 ? "\"" : ",\"") + std::string(4000, 'k') + "." + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," + std::to_string(i + 1) +
              "]}";
  const std::string source = folder_ / "long.safetensors", torch = folder_ / "long.pt", out = folder_ / "o";
  spill(source, safetensors(header + "}", std::string(n, 'x')));
  IndexPointer index = open(source, &err_, false);
  ASSERT_NE(index, nullptr) << text_of(err_);
  spill(torch, write("torch", index.get(), {}, &err_)[""]);
  ASSERT_EQ(Write(torch, out, 2), CKPT_OK) << text_of(err_);
  const std::string wanted = Digest(source);
  EXPECT_EQ(wanted.size(), sizeof(ckpt_digest)) << wanted;
  EXPECT_EQ(Digest(torch), wanted);
  EXPECT_EQ(Digest(out), wanted);
}

TEST_F(DcpWrite, WritesForManyRanks) {
  const bool is_full = getenv("CKPT_TEST_FULL") != nullptr;
  std::string source = Source(std::vector<int>(is_full ? 200 : 60, 500), 2);
  ASSERT_EQ(Write(source, folder_ / "o", 500), CKPT_OK) << text_of(err_); /* 30,000 chunks, or 100,000 */
  EXPECT_EQ(Digest(source), Digest(folder_ / "o"));
  source = Source(std::vector<int>(is_full ? 30 : 10, 500), 2);
  ASSERT_EQ(Write(source, folder_ / "z", 500, 2, 1), CKPT_OK) << text_of(err_); /* 5,000 frames, or 15,000 */
  EXPECT_EQ(Digest(source), Digest(folder_ / "z"));
}

}  // namespace
}  // namespace formats_testing
