// Hugging Face folders: read against what transformers wrote, written as transformers writes, cut as the hub cuts.
#include <sys/stat.h>

#include <set>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/codec/side_files/side_files.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data";

// The tensors of two indexes are the same: names, shapes, dtypes, bytes.
void expect_same_tensors(const ckpt_index *a, const ckpt_index *b) {
  ASSERT_EQ(ckpt_index_count(a), ckpt_index_count(b));
  for (size_t i = 0; i < ckpt_index_count(a); i++) {
    const ckpt_tensor *x = ckpt_index_at(a, i), *y = ckpt_index_at(b, i);
    ASSERT_STREQ(x->name, y->name);
    ASSERT_EQ(x->dtype, y->dtype) << x->name;
    ASSERT_EQ(x->rank, y->rank) << x->name;
    for (uint32_t axis = 0; axis < x->rank; axis++) ASSERT_EQ(x->shape[axis], y->shape[axis]) << x->name;
    ASSERT_EQ(bytes_of(a, x), bytes_of(b, y)) << x->name;
  }
}

TEST(Hf, ReadsWhatTransformersWrote) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "/llama-tiny", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_STREQ(index->format, "hf");
  EXPECT_STREQ(index->architecture, "llama");
  EXPECT_EQ(ckpt_index_count(index.get()), 39u);
  EXPECT_TRUE(notes_of(index.get()).empty());
  EXPECT_NE(ckpt_index_side_file(index.get(), "config.json"), nullptr);
  EXPECT_NE(ckpt_index_side_file(index.get(), "tokenizer.json"), nullptr);
  EXPECT_EQ(ckpt_index_side_file(index.get(), "model.safetensors.index.json"), nullptr);
}

TEST(Hf, AnIndexFileStandsForItsShards) {
  ckpt_error err = {};
  IndexPointer folder = open(kData + "/llama-tiny", &err),
               file = open(kData + "/llama-tiny/model.safetensors.index.json", &err);
  ASSERT_NE(file, nullptr) << text_of(err);
  expect_same_tensors(folder.get(), file.get());
  EXPECT_EQ(file->n_side_files, folder->n_side_files);
}

// With the limit at which transformers cut it, its own files come out, byte for byte: the shards, the index and the
// rest. (transformers cuts in the order of the module, which for this model is not that of names; so each side is cut
// by us.)
TEST(Hf, OneFileIsWhatTransformersWrites) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "/gpt2-tiny", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  std::vector<std::string> losses;
  Files files = write("hf", index.get(), {}, &err, &losses);
  EXPECT_TRUE(losses.empty()) << losses[0];  // lm_head is tied by the config
  ASSERT_EQ(files.size(), 5u) << text_of(err);
  for (const auto &file : files) EXPECT_EQ(file.second, slurp(kData + "/gpt2-tiny/" + file.first)) << file.first;
}

TEST(Hf, RoundTripThroughOtherShards) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "/llama-tiny", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (uint64_t limit : {UINT64_C(1), UINT64_C(20480), UINT64_C(100000), UINT64_C(410752), UINT64_C(0)}) {
    ckpt_layout_options options = {};
    options.shard_size = limit;
    Files files = write("hf", index.get(), options, &err);
    Folder folder;
    spill(folder, files);
    IndexPointer again = open(folder.path(), &err, false);
    ASSERT_NE(again, nullptr) << text_of(err);
    EXPECT_TRUE(notes_of(again.get()).empty()) << notes_of(again.get())[0];
    expect_same_tensors(index.get(), again.get());
    EXPECT_EQ(files.count("model.safetensors"), limit == 0 || limit == 410752 ? 1u : 0u) << limit;
    Files twice = write("hf", again.get(), options, &err);
    EXPECT_EQ(files, twice) << limit;
    EXPECT_EQ(files["tokenizer.json"], slurp(kData + "/llama-tiny/tokenizer.json"));
  }
}

// The index file has the form of transformers' own, which names the same tensors.
TEST(Hf, IndexFileHasTheForm) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "/llama-tiny", &err, false);
  ASSERT_NE(index, nullptr);
  ckpt_layout_options options = {};
  options.shard_size = 150000;
  std::string ours = write("hf", index.get(), options, &err)["model.safetensors.index.json"];
  std::string theirs = slurp(kData + "/llama-tiny/model.safetensors.index.json");
  auto without_shards = [](std::string text) {
    for (size_t at = 0; (at = text.find("model-0000", at)) != std::string::npos; at++) text[at + 10] = '#';
    return text;
  };
  EXPECT_EQ(without_shards(ours), without_shards(theirs));
}

TEST(Hf, IndexFileIsAsciiAsPythonWritesIt) {
  Folder folder;
  const std::string name = "\\u00e9\\u20ac\\ud83d\\ude00\\\"\\\\\\n\\u0001\\u007f";
  spill(folder / "model.safetensors", safetensors("{\"" + name +
                                                      "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                                      "\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                                                  "ab"));
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  ckpt_layout_options options = {};
  options.shard_size = 1;
  // python: json.dumps({...}, indent=2, sort_keys=True) + "\n"
  EXPECT_EQ(
      write("hf", index.get(), options, &err)["model.safetensors.index.json"],
      "{\n  \"metadata\": {\n    \"total_parameters\": 2,\n    \"total_size\": 2\n  },\n  \"weight_map\": {\n"
      "    \"z\": \"model-00001-of-00002.safetensors\",\n"
      "    \"\\u00e9\\u20ac\\ud83d\\ude00\\\"\\\\\\n\\u0001\x7f\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
}

// huggingface_hub's example: sizes 6 6 2 6 2 2 at limit 10 are cut [6] [6 2] [6 2 2]; and a tensor above the limit is a
// shard before the one that is open.
TEST(Hf, CutsAsTheHubCuts) {
  auto cut = [](const std::vector<int> &sizes, uint64_t limit) {
    std::string header = "{", payload, result;
    for (size_t i = 0; i < sizes.size(); i++) {
      header += (i == 0 ? "\"" : ",\"") + std::string(1, static_cast<char>('a' + i)) +
                "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(sizes[i]) + "],\"data_offsets\":[" +
                std::to_string(payload.size()) + "," + std::to_string(payload.size() + static_cast<size_t>(sizes[i])) +
                "]}";
      payload += std::string(static_cast<size_t>(sizes[i]), 'x');
    }
    const std::string bytes = safetensors(header + "}", payload);
    ckpt_error err = {};
    IndexPointer index = open_bytes(bytes, &err);
    ckpt_layout_options options = {};
    options.shard_size = limit;
    for (const auto &file : write("hf", index.get(), options, &err)) {
      if (file.first == "model.safetensors.index.json") continue;
      const std::string shard = file.second;
      IndexPointer part = open_bytes(shard, &err);
      for (size_t i = 0; i < ckpt_index_count(part.get()); i++) result += ckpt_index_at(part.get(), i)->name;
      result += "|";
    }
    return result;
  };
  EXPECT_EQ(cut({6, 6, 2, 6, 2, 2}, 10), "a|bc|def|");
  EXPECT_EQ(cut({2, 20, 2}, 10), "b|ac|");
  EXPECT_EQ(cut({20, 20}, 10), "a|b|");
  EXPECT_EQ(cut({5, 5}, 10), "ab|");
  EXPECT_EQ(cut({5, 5, 1}, 10), "ab|c|");
  EXPECT_EQ(cut({}, 10), "|");
  EXPECT_EQ(cut({0, 10, 0}, 10), "abc|");
}

// Who asks for all defects is told of each, and gets what is whole; who does not gets the first.
TEST(Hf, EveryBrokenShardIsReported) {
  Folder folder;
  const auto one = [](const std::string &name) {
    return safetensors("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1");
  };
  spill(folder / "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":99},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":"
        "\"3.safetensors\",\"d\":\"4.safetensors\",\"ghost\":\"2.safetensors\",\"e\":\"5.safetensors\"}}");
  spill(folder / "1.safetensors", one("a").substr(0, one("a").size() - 1));
  spill(folder / "2.safetensors", one("b") + "tail");
  spill(folder / "4.safetensors", one("d").substr(0, 9));
  spill(folder / "5.safetensors", one("b"));
  spill(folder / "config.json", "{");
  ckpt_error err = {};
  EXPECT_EQ(open(folder.path(), &err), nullptr);
  EXPECT_NE(text_of(err).find("1.safetensors: truncated"), std::string::npos) << text_of(err);
  IndexPointer index(nullptr, ckpt_index_free);
  const std::vector<std::string> reported = broken_parts(folder.path(), &index);
  const char *const wanted[] = {"/1.safetensors: truncated",
                                "/4.safetensors: truncated",
                                "/model.safetensors.index.json: a shard is missing: 3.safetensors",
                                "/5.safetensors: tensor 'b': stands in two files: 2.safetensors and 5.safetensors",
                                "/model.safetensors.index.json: tensor 'ghost': should be in 2.safetensors, which",
                                "/model.safetensors.index.json: tensor 'e': should be in 5.safetensors, which",
                                "/config.json: "};
  ASSERT_EQ(reported.size(), std::size(wanted));
  for (size_t i = 0; i < reported.size(); i++)
    EXPECT_EQ(reported[i].find(folder.path() + wanted[i]), 0u) << reported[i] << "\n" << wanted[i];
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(names_of(index.get()), "b; a b c d ghost e");
  ASSERT_EQ(index->n_notes, 1u);
  EXPECT_STREQ(index->notes[0].message, "bytes follow the last tensor (4)");
  EXPECT_EQ(index->notes[0].file, folder / "2.safetensors");
}

// A tensor that stands in two shards is one fault, whichever of them the index names.
TEST(Hf, ATensorInTwoShardsIsOneProblem) {
  for (const std::string shard : {"1", "2"}) {
    Folder folder;
    for (const std::string own : {"1", "2"})
      spill(folder / (own + ".safetensors"),
            safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b" + own +
                            "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                        "12"));
    spill(folder / "model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{\"a\":\"" + shard +
                                                       ".safetensors\",\"b1\":\"1.safetensors\",\"b2\":"
                                                       "\"2.safetensors\"}}");
    IndexPointer index(nullptr, ckpt_index_free);
    const std::vector<std::string> reported = broken_parts(folder.path(), &index);
    ASSERT_EQ(reported.size(), 1u);
    const std::string first = shard + ".safetensors", second = (shard == "1" ? "2" : "1") + std::string(".safetensors");
    EXPECT_EQ(reported[0], folder / second + ": tensor 'a': stands in two files: " + first + " and " + second);
    ASSERT_NE(index, nullptr);
    EXPECT_EQ(index->n_notes, 0u) << index->notes[0].message;
    EXPECT_EQ(names_of(index.get()), "a b1 b2; a");
  }
}

// An index that cannot be read does not hide the shards beside it.
TEST(Hf, ShardsOfABrokenIndexAreLookedAt) {
  Folder folder;
  spill(folder / "model.safetensors.index.json", "{\"weight_map\":{\"a\":");
  spill(folder / "model-1.safetensors", safetensors("{\"a\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                                    "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                                                    "12"));
  IndexPointer index(nullptr, ckpt_index_free);
  EXPECT_EQ(broken_parts(folder.path(), &index).size(), 2u);
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(names_of(index.get()), "b; a");
  EXPECT_EQ(index->n_notes, 0u); /* no hole where the broken one lies */
}

TEST(Hf, DtypesInTheConfigAreWhatIsWritten) {
  auto config = [](const std::string &text, const char *dtype) {
    Folder folder;
    spill(folder / "config.json", text);
    spill(folder / "model.safetensors", safetensors("{}", ""));
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err);
    ckpt_layout_options options = {};
    options.dtype_written = dtype;
    return write("hf", index.get(), options, &err)["config.json"];
  };
  EXPECT_EQ(config("{\"a\": 1,\n \"torch_dtype\" : \"float32\"}\n", "bfloat16"),
            "{\"a\": 1,\n \"torch_dtype\" : \"bfloat16\"}\n");
  EXPECT_EQ(config("{\"dtype\": null}", "bfloat16"), "{\"dtype\": \"bfloat16\"}");
  EXPECT_EQ(config("{\"torch_dtype\": \"torch.bfloat16\"}", "bfloat16"), "{\"torch_dtype\": \"torch.bfloat16\"}");
  EXPECT_EQ(config("{\"dtype\":\"float16\",\"text_config\":{\"dtype\":\"float16\"}}", "float32"),
            "{\"dtype\":\"float32\",\"text_config\":{\"dtype\":\"float32\"}}");
  EXPECT_EQ(config("{\"dtype\":\"float16\",\"text_config\":{}}", "float32"),
            "{\"dtype\":\"float32\",\"text_config\":{}}");
  EXPECT_EQ(
      config("{\"vision_config\": {\"b\": {\"dtype\": \"bf16\"}, \"torch_dtype\" :\"float16\"},\n \"dtype\":\"auto\"} ",
             "float32"),
      "{\"vision_config\": {\"b\": {\"dtype\": \"float32\"}, \"torch_dtype\" :\"float32\"},\n \"dtype\":\"float32\"} ");
  for (const char *kept :
       {"{\"text_config\":{\"dtype\":null}}", "{\"words\":{\"dtype\":7,\"torch_dtype\":\"x\"}}",
        "{\"quantization_config\":{\"dtype\":\"float16\"}}", "{\"quantization\":{\"mode\":{\"dtype\":\"float16\"}}}",
        "{\"quant_config\":{\"torch_dtype\":\"float16\"}}",
        "{\"text_config\":{\"compression_config\":{\"dtype\":\"float16\"}}}", "{\"a\":[{\"dtype\":\"float16\"}]}",
        "{\"dtype\":{\"text_config\":\"float16\"}}", "{\"text_config\":{\"dtype\":\"int8\"}}"})
    EXPECT_EQ(config(kept, "float32"), kept);
  EXPECT_EQ(config("{\"a\":NaN}", "float32"), "{\"a\":NaN}");
  EXPECT_EQ(config("{\"dtype\":\"float16\"}", nullptr), "{\"dtype\":\"float16\"}");
}

TEST(Hf, OtherMetadataIsCarriedAndFormatIsPt) {
  Folder folder;
  spill(folder / "model.safetensors", safetensors("{\"__metadata__\":{\"format\":\"mlx\",\"by\":\"me\"}}", ""));
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(write("hf", index.get(), {}, &err)["model.safetensors"].substr(8),
            "{\"__metadata__\":{\"by\":\"me\",\"format\":\"pt\"}}      ");
}

TEST(Hf, WhichFileHoldsTheWeights) {
  const std::string one = safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1");
  const std::string two = safetensors("{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "2");
  auto names = [](const Files &files) {
    Folder folder;
    spill(folder, files);
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err);
    if (index == nullptr) return std::string("! ") + err.message;
    std::string text;
    for (size_t i = 0; i < ckpt_index_count(index.get()); i++) text += ckpt_index_at(index.get(), i)->name;
    for (const std::string &note : notes_of(index.get())) text += "; " + note;
    return text;
  };
  const std::string map = "{\"metadata\":{},\"weight_map\":{\"b\":\"x.safetensors\"}}";
  EXPECT_EQ(
      names({{"model.safetensors.index.json", map}, {"x.safetensors", two}, {"model.safetensors", one}}),
      "b; ! holds both model.safetensors and model.safetensors.index.json: the shards are read here, transformers "
      "loads model.safetensors (remove one); also holds other weights, not read or carried: model.safetensors");
  EXPECT_EQ(names({{"model.safetensors", one}, {"x.safetensors", two}}),
            "a; also holds other weights, not read or carried: x.safetensors");
  EXPECT_EQ(names({{"other.safetensors.index.json", map}, {"x.safetensors", two}}), "b");
  EXPECT_EQ(names({{"adapter_model.safetensors", one}}), "a");
  EXPECT_EQ(names({{"m-00001-of-00002.safetensors", one}, {"m-00002-of-00002.safetensors", two}}),
            "ab; ! no m.safetensors.index.json, read as the set of 2 files m-...");
  // numbers count, not how they are printed, and some count from 0
  const std::string read = "ab; ! no m.safetensors.index.json, read as the set of 2 files m-...";
  EXPECT_EQ(names({{"m-00000-of-00002.safetensors", one}, {"m-00001-of-00002.safetensors", two}}), read);
  EXPECT_EQ(names({{"m-1-of-2.safetensors", one}, {"m-00002-of-00002.safetensors", two}}), read);
  EXPECT_EQ(names({{"m-00001-of-00002.safetensors", one}, {"m-1-of-2.safetensors", two}}).find("! holds 2"), 0u);
  EXPECT_EQ(names({{"m-0-of-1.safetensors", one}, {"m-1-of-1.safetensors", two}}).find("! holds 2"), 0u);
  EXPECT_EQ(names({{"m-00003-of-00002.safetensors", one}, {"m-1-of-2.safetensors", two}}).find("! holds 2"), 0u);
  Files eleven;
  for (int i = 1; i <= 11; i++)
    eleven["m-" + std::to_string(i) + "-of-11.safetensors"] =
        safetensors("{\"" + std::string(1, static_cast<char>('a' + i)) +
                        "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                    "1");
  EXPECT_EQ(names(eleven), "bcdefghijkl; ! no m.safetensors.index.json, read as the set of 11 files m-...");
  eleven.erase("m-10-of-11.safetensors");
  EXPECT_EQ(names(eleven), "! file 10 of the 11 called m-... is missing (download it)");
  EXPECT_EQ(names({{"m-00001-of-00002.safetensors", one}, {"n-00002-of-00002.safetensors", two}}),
            "! holds 2 safetensors files that are no set, and no model.safetensors; name one of them: "
            "m-00001-of-00002.safetensors n-00002-of-00002.safetensors");
}

// What a trainer saved beside a model is carried with all of a checkpoint, whole and unread; what of it lies in folders
// is named.
TEST(Hf, TrainingState) {
  const std::string one = safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1");
  Folder folder;
  spill(folder, {{"model.safetensors", one}, {"pytorch_model.bin", "w"}, {"config.json", "{}"}});
  std::set<std::string> expected = {"config.json"};
  for (const char *name : {"optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state_3.pth", "rng_state.pth",
                           "trainer_state.json", "training_args.bin", "optimizer.bin", "optimizer_1.bin",
                           "scheduler.bin", "sampler.bin", "random_states_12.pkl", "custom_checkpoint_0.pkl"}) {
    spill(folder / name, std::string(std::string(name) == "trainer_state.json" ? "{}" : "not a pickle"));
    expected.insert(name);
    EXPECT_TRUE(ckpt_side_file_is_training(name)) << name;
  }
  std::filesystem::create_directory(folder / "optimizer_0");
  std::filesystem::create_directory(folder / "checkpoint-2");
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  std::set<std::string> found;
  for (uint32_t i = 0; i < index->n_side_files; i++) found.insert(index->side_files[i].name);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(notes_of(index.get()),
            (std::vector<std::string>{"also holds other weights, not read or carried: pytorch_model.bin",
                                      "also holds training state, not read or carried: optimizer_0/",
                                      "also holds other checkpoints: checkpoint-2/",
                                      "! optimizer.pt: its states are not read (is no file of torch.save)"}));
  EXPECT_FALSE(ckpt_side_file_is_training("config.json"));
  EXPECT_EQ(ckpt_side_file_rank("rng_state_3.pth"), 3);
  EXPECT_EQ(ckpt_side_file_rank("random_states_12.pkl"), 12);
  for (const char *name : {"rng_state.pth", "rng_state_.pth", "rng_state_x.pth", "rng_state_3x.pth", "optimizer_1.bin",
                           "rng_state_99999999999.pth"})
    EXPECT_EQ(ckpt_side_file_rank(name), -1) << name;
}

// Links in a checkpoint stay inside it; those of a Hugging Face cache reach its blobs.
TEST(Hf, LinksStayInside) {
  const std::string one = safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1");
  Folder folder;
  spill(folder / "outside.txt", "secret");
  spill(folder / "models--o--n/blobs/abc", one);
  spill(folder / "models--o--n/snapshots/r/README.md", "x");
  std::filesystem::create_symlink("../../blobs/abc", folder / "models--o--n/snapshots/r/model.safetensors");
  std::filesystem::create_symlink("../../../outside.txt", folder / "models--o--n/snapshots/r/notes.txt");
  ckpt_error err = {};
  IndexPointer index = open(folder / "models--o--n/snapshots/r", &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_count(index.get()), 1u);
  EXPECT_EQ(ckpt_index_side_file(index.get(), "notes.txt"), nullptr);
  EXPECT_EQ(notes_of(index.get()),
            std::vector<std::string>{"files not carried: notes.txt (no regular file of this folder)"});
}

// A config that cannot be read is not the same as none: names, ties and shapes would no longer be checked.
TEST(Hf, AConfigThatCannotBeReadIsRefused) {
  const std::string one = safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1");
  Folder folder;
  spill(folder / "outside.json", "{}");
  spill(folder / "m/model.safetensors", one);
  const std::string config = folder / "m/config.json";
  auto refusal = [&] {
    ckpt_error err = {};
    EXPECT_EQ(open(folder / "m", &err), nullptr);
    std::filesystem::remove(config);
    EXPECT_TRUE(err.status == CKPT_EFORMAT || err.status == CKPT_ENOTFOUND) << text_of(err);
    EXPECT_NE(text_of(err).find("m/config.json: "), std::string::npos) << text_of(err);
    return std::string(err.message);
  };
  for (const char *target : {"../outside.json", "nowhere.json"}) {
    std::filesystem::create_symlink(target, config);
    EXPECT_NE(refusal().find("a link to " + std::string(target)), std::string::npos) << target;
  }
  std::filesystem::create_symlink("config.json", config);
  EXPECT_NE(refusal().find("link"), std::string::npos);
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "not a regular file");
  ckpt_error err = {};
  std::filesystem::create_symlink("../outside.json", folder / "m/tokenizer.json");
  IndexPointer index = open(folder / "m", &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_EQ(index->n_notes, 1u);
  EXPECT_TRUE(index->notes[0].is_problem);
  EXPECT_STREQ(index->notes[0].text,
               "tokenizer files that cannot be read, and are not carried: tokenizer.json (no regular file of this "
               "folder)");
}

// What is wrong with a config hides nothing of the weights.
TEST(Hf, WeightsBesideAConfigThatIsNoFileAreRead) {
  Folder folder;
  spill(folder / "model.safetensors",
        safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1"));
  ASSERT_EQ(mkfifo((folder / "config.json").c_str(), 0600), 0);
  IndexPointer index(nullptr, ckpt_index_free);
  EXPECT_EQ(broken_parts(folder.path(), &index),
            std::vector<std::string>{folder / "config.json" + ": not a regular file"});
  EXPECT_EQ(ckpt_index_count(index.get()), 1u);
}

// One file has one name, however a map spells it; and a total may count what the map does not name.
TEST(Hf, MapsThatAreRightAreNotAccused) {
  Folder folder;
  const std::string two =
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}";
  spill(folder / "x.safetensors", safetensors(two, "123"));
  auto notes = [&](const std::string &map) {
    spill(folder / "model.safetensors.index.json", map);
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err);
    EXPECT_NE(index, nullptr) << text_of(err);
    return index == nullptr ? std::vector<std::string>{} : notes_of(index.get());
  };
  EXPECT_TRUE(notes("{\"metadata\":{},\"weight_map\":{\"a\":\"./x.safetensors\",\"b\":\"x.safetensors\"}}").empty());
  EXPECT_EQ(notes("{\"weight_map\":{\"a\":\"./x.safetensors\",\"b\":\"x.safetensors\"}}").size(), 1u);
  const std::string unnamed = "! model.safetensors.index.json: does not name what its shards hold: 'b' (1)";
  for (const char *total : {"1", "3"})
    EXPECT_EQ(
        notes("{\"metadata\":{\"total_size\":" + std::string(total) + "},\"weight_map\":{\"a\":\"x.safetensors\"}}"),
        std::vector<std::string>{unnamed});
  EXPECT_EQ(notes("{\"metadata\":{\"total_size\":2},\"weight_map\":{\"a\":\"x.safetensors\"}}").size(), 2u);
}

TEST(Hf, LargeIndexFile) {
  const size_t n = 200000;
  std::string map = "{\"weight_map\":{", headers[2] = {"{", "{"};
  size_t n_in[2] = {0, 0};
  for (size_t i = 0; i < n; i++) {
    const size_t shard = i % 2;  // alternating: the worst case for any cache of the last name
    const std::string name = "model.layers." + std::to_string(i) + ".weight";
    map += (i == 0 ? "\"" : ",\"") + name + "\":\"" + (shard == 0 ? "zero" : "one") + ".safetensors\"";
    headers[shard] += (n_in[shard] == 0 ? "\"" : ",\"") + name +
                      "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" + std::to_string(n_in[shard]) + "," +
                      std::to_string(n_in[shard] + 1) + "]}";
    n_in[shard]++;
  }
  Folder folder;
  spill(folder / "model.safetensors.index.json", map + "}}");
  spill(folder / "zero.safetensors", safetensors(headers[0] + "}", std::string(n_in[0], 'x')));
  spill(folder / "one.safetensors", safetensors(headers[1] + "}", std::string(n_in[1], 'x')));
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(ckpt_index_count(index.get()), n);
}

// Every truncation of the index file is refused or, where only white space is lost, the same.
TEST(Hf, TruncatedIndexFile) {
  const std::string whole = slurp(kData + "/llama-tiny/model.safetensors.index.json");
  Folder folder;
  for (const auto &entry : std::filesystem::directory_iterator(kData + "/llama-tiny"))
    std::filesystem::copy(entry.path(), folder / entry.path().filename().string());
  for (size_t n = 0; n + 1 < whole.size(); n += 7) {
    spill(folder / "model.safetensors.index.json", whole.substr(0, n));
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err);
    ASSERT_EQ(index, nullptr) << n;
    ASSERT_EQ(err.status, CKPT_EFORMAT) << n << text_of(err);
  }
}

}  // namespace
}  // namespace formats_testing
