// PyTorch files that lie about storages and views, share without end, are cut off, or are none.
#include "tests/formats/torch/torch_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/torch/";

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
  EXPECT_EQ(failure(one(view(f, "-1", {"1"}, {"1"}))), "memory: tensor 'w': its offset is negative (-1)");
  const std::string past = " goes past 2^64 elements";
  EXPECT_EQ(failure(one(view(f, "0", {"4294967296", "4294967296"}, {"1", "1"}))),
            "memory: tensor 'w': its shape [4294967296,4294967296] with strides [1,1]" + past);
  EXPECT_EQ(failure(one(view(f, "0", {"3", "2"}, {"9223372036854775807", "1"}))),
            "memory: tensor 'w': its shape [3,2] with strides [9223372036854775807,1]" + past);
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
           {"b/data.pkl", false}, {"a/data/1", false}, {"a/.data/version", true}, {"a/data/", true}}) {
    const std::string bytes = zip(
        {{"a/data.pkl", object}, {"a/data/0", kSixFloats}, {"a/version", "3"}, {name, name.back() == '/' ? "" : "3"}});
    IndexPointer index = open_bytes(bytes, &err, false);
    ASSERT_NE(index, nullptr) << text_of(err);
    const std::vector<std::string> said = {"! memory: 1 record that its object does not use (" + name + ")"};
    EXPECT_EQ(notes_of(index.get()), is_used ? std::vector<std::string>() : said) << name;
  }
}

// As torch 2.9 and 2.15 load them: std::stoull of the version, from 1 to 10, and Python's int() of the alignment.
TEST(Torch, VersionsAndAlignmentsThatTorchRefuses) {
  const std::string object = dict({{"w", view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"})}}) + ".";
  const auto notes = [&](const std::vector<std::pair<std::string, std::string>> &more) {
    std::vector<std::pair<std::string, std::string>> records = {{"a/data.pkl", object}, {"a/data/0", kSixFloats}};
    records.insert(records.end(), more.begin(), more.end());
    ckpt_error err = {};
    IndexPointer index = open_bytes(zip(records), &err, false);
    EXPECT_NE(index, nullptr) << text_of(err);
    return index == nullptr ? std::vector<std::string>() : notes_of(index.get());
  };
  for (const char *good : {"1", "3\n", "10", "3x", " 3", "+3", "010", "3 \n4"})
    EXPECT_EQ(notes({{"a/version", good}}), std::vector<std::string>()) << good;
  for (const char *bad : {"0", "11", "99", "abc", "", "-3", "0x3", "99999999999999999999999"})
    EXPECT_EQ(notes({{"a/version", bad}}).size(), 1u) << bad;
  EXPECT_EQ(notes({}), std::vector<std::string>{"! memory: it has no record of its version: torch refuses it"});
  EXPECT_EQ(notes({{"a/.data/version", "3"}}), std::vector<std::string>());
  EXPECT_EQ(notes({{"a/version", "3"}, {"a/.data/version", "99"}}).size(), 1u);
  for (const char *good : {"64", "0", "-1", " 64\n", "1_0", "+64", "99999999999999999999999"})
    EXPECT_EQ(notes({{"a/version", "3"}, {"a/.storage_alignment", good}}), std::vector<std::string>()) << good;
  for (const char *bad : {"abc", "", "64x", "6.5", "_1", "1__0", "1_"})
    EXPECT_EQ(notes({{"a/version", "3"}, {"a/.storage_alignment", bad}}).size(), 1u) << bad;
}

// What no container says is an optimizer's is a state by its path.
TEST(Torch, StatesBelowOptimStateHaveRoles) {
  const std::string w = view(storage("FloatStorage", "0", "6"), "0", {"6"}, {"1"});
  const auto role = [&](const std::string &name, const std::string &pickle) {
    ckpt_error err = {};
    IndexPointer index = open_bytes(archive(pickle + ".", {kSixFloats}), &err, false);
    const ckpt_tensor *tensor = index == nullptr ? nullptr : ckpt_index_find(index.get(), name.c_str());
    EXPECT_NE(tensor, nullptr) << name << text_of(err);
    return std::string(tensor == nullptr ? "" : ckpt_role_name(static_cast<ckpt_role>(tensor->role)));
  };
  const auto below = [&](const std::string &a, const std::string &b) {
    const std::string app = dict({{a, dict({{"state", dict({{"x.weight", dict({{b, w}})}})}})}});
    return dict({{"deep", dict({{"app", dict({{"app", app}})}})}});
  };
  EXPECT_EQ(role("deep.app.app.optim.state.x.weight.exp_avg", below("optim", "exp_avg")), "exp_avg");
  EXPECT_EQ(role("deep.app.app.optimizer.state.x.weight.fp32_param", below("optimizer", "fp32_param")), "other");
  EXPECT_EQ(role("deep.app.app.layer.state.x.weight.exp_avg", below("layer", "exp_avg")), "parameter");
  EXPECT_EQ(role("chained_0.optimizer.state.exp_avg.x", dict({{"chained_0.optimizer.state.exp_avg.x", w}})), "exp_avg");
  EXPECT_EQ(role("optim.state.weight", dict({{"optim.state.weight", w}})), "parameter");
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
  EXPECT_EQ(failure(zip({{"a/data.pkl", "}."}, {"a/byteorder", "middle"}}), &status),
            "memory: byteorder is neither 'little' nor 'big'");
  EXPECT_EQ(status, CKPT_EFORMAT);
  EXPECT_EQ(failure(zip({{"a/data.pkl", "}."}, {"a/code/__torch__.py", ""}}), &status).substr(0, 29),
            "memory: a TorchScript archive");
  EXPECT_EQ(
      failure(zip({{"a/.data/0.storage", ""}, {"a/.data/extern_modules", ""}}), &status),
      "memory: a torch.package archive, which holds modules and their code (save their state_dict with torch.save)");
  EXPECT_EQ(status, CKPT_EUNSUPPORTED);
  EXPECT_EQ(failure(zip({{"a/data/weights/weight_0", ""}, {"a/archive_format", "pt2"}})),
            "memory: a torch.export archive, which is a program (save its state_dict with torch.save)");
  EXPECT_EQ(failure(zip({{"serialized_exported_program.json", "{}"}})),
            "memory: a torch.export archive, which is a program (save its state_dict with torch.save)");
  EXPECT_EQ(failure(zip({{"data.pkl", "}."}, {"version", "3"}})),
            "memory: a PyTorch archive packed again without its folder (pack the folder that its files were in)");
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
  EXPECT_NE(failure(archive(bomb + ".", {kSixFloats}))
                .find("the same containers, or long names, again and again in its object (more than "),
            std::string::npos);
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

// Of several flattened optimizers all states are known; one that stands under very many keys is looked at few times.
TEST(Torch, FlattenedOptimizers) {
  const std::string from = storage("FloatStorage", "0", "6"), w = view(from, "0", {"6"}, {"1"});
  const auto flat = [&](const char *offset) {
    return dict({{"state.w.exp_avg", view(from, offset, {"3"}, {"1"})}, {"param_groups.w.lr", number("1")}});
  };
  const auto read = [](const std::string &pickle, ckpt_error *err) {
    return open_bytes(archive(pickle + ".", {kSixFloats}), err, false);
  };
  ckpt_error err = {};
  IndexPointer index = read(dict({{"optimizer_0", flat("0")}, {"optimizer_1", flat("3")}}), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_EQ(index->n_tensors, 2u);
  for (uint32_t i = 0; i < 2; i++) EXPECT_EQ(index->tensors[i].role, CKPT_ROLE_EXP_AVG) << index->tensors[i].name;
  // 2000 entries under 8 keys are 32000 steps to walk and 16000 to look at; 8 for each of 4034 children, and 4096, are
  // allowed: looks are counted, or both would open.
  std::string shared = "}(";
  for (int i = 0; i < 2000; i++) shared += text("state." + std::to_string(i)) + "N";
  shared += text("t") + w + "u";
  for (const std::string key : {"other_", "optim_"}) {
    std::string pickle = "}(";
    for (int i = 0; i < 8; i++) pickle += text(key + std::to_string(i)) + (i == 0 ? shared + "p9\n" : "g9\n");
    err = {};
    index = read(pickle + "u", &err);
    EXPECT_EQ(index == nullptr, key == "optim_") << text_of(err);
    if (key == "optim_") {
      EXPECT_EQ(err.status, CKPT_ELIMIT);
      EXPECT_NE(text_of(err).find("again and again in its object (more than "), std::string::npos) << text_of(err);
    }
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
