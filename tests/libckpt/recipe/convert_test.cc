// What convert adds to plans and sinks: the digest that readers find, outputs away from inputs, outputs in one folder.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/format/format.h"
#include "libckpt/index/overlap.h"
#include "libckpt/io/sink_parts.h"
#include "libckpt/recipe/convert/convert.h"
}

namespace {

namespace fs = std::filesystem;

const char *const kLlama = CKPT_TESTS_DIR "/data/llama-tiny";
const char *const kGpt2 = CKPT_TESTS_DIR "/data/gpt2-tiny";

class Convert : public testing::Test {
 protected:
  Convert() {
    options_.struct_size = sizeof options_;
    options_.digest = &digest_;
  }

  std::string Path(const std::string &name) { return (folder_ / name).string(); }

  ckpt_status Run(const std::string &input, const std::string &output) {
    err_ = {};
    options_.input = input.c_str();
    options_.output = output.c_str();
    return ckpt_convert(&options_, &err_);
  }

  // What `ckpt hash` prints of a path.
  static std::string Hash(const std::string &path, bool stored_names = false) {
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    options.stored_names = stored_names;
    ckpt_index *index = nullptr;
    ckpt_digest digest = {};
    ckpt_error err = {};
    ckpt_status status = ckpt_open(&index, path.c_str(), &options, &err);
    if (status == CKPT_OK) status = ckpt_hash(index, nullptr, &digest, &err);
    EXPECT_EQ(status, CKPT_OK) << err.message;
    ckpt_index_free(index);
    char text[80];
    return ckpt_digest_text(&digest, text);
  }

  std::string Digest() {
    char text[80];
    return ckpt_digest_text(&digest_, text);
  }

  enum Training { kNone, kStates, kGroups };  // what an input has: states alone, or the optimizer's param groups too

  // What a run came to, as it has to: none of these models has a graph or names that GGUF knows. ZeRO needs param
  // groups, and so do the states of a universal checkpoint.
  bool IsWritten(ckpt_status status, Training training) {
    const std::string to = options_.to;
    const char *why = to == "onnx"                                                 ? "has no graph"
                      : to == "gguf"                                               ? "names=stored"
                      : (to == "zero" || to == "universal") && training == kStates ? "has no param_groups"
                      : to == "zero" && training == kNone                          ? "in the order of an optimizer"
                                                                                   : nullptr;
    char text[2048];
    const std::string told = ckpt_error_text(&err_, text, sizeof text);
    EXPECT_EQ(status, why == nullptr ? CKPT_OK : CKPT_EUNSUPPORTED) << "as " << to << ": " << told;
    if (why != nullptr) {
      EXPECT_NE(told.find(why), std::string::npos) << "as " << to << ": " << told;
    }
    err_ = {};
    return status == CKPT_OK;
  }

  size_t CountEntries() {
    size_t n = 0;
    for (const auto &entry : fs::directory_iterator(folder_)) n += entry.exists();
    return n;
  }

  Folder own_;
  fs::path folder_ = own_.path();
  ckpt_convert_options options_ = {};
  ckpt_digest digest_ = {};
  ckpt_error err_ = {};
};

// A side file may be larger than the weights: what is read of it is told and counted, and between its parts it is
// looked whether to go on.
TEST_F(Convert, SideFilesAreReadAsAllElseIs) {
  struct Meter {
    volatile int cancel = 0;
    uint64_t n_after = 0, n_read = 0, n_total = 0, cancel_at = 0;  // n_after: calls since it was cancelled
    static void Take(void *arg, uint64_t n_read, uint64_t n_total) {
      Meter *m = static_cast<Meter *>(arg);
      m->n_read = n_read, m->n_total = n_total;
      m->n_after += m->cancel != 0;
      if (m->cancel_at != 0 && n_read >= m->cancel_at) m->cancel = 1;
    }
  };
  fs::copy(kLlama, Path("in"), fs::copy_options::recursive);
  const uint64_t n_side = 1 << 20;
  std::ofstream(Path("in/tokenizer.model")) << std::string(n_side, 't');
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.progress = Meter::Take;
  options_.run = &run;
  options_.to = "hf";
  for (uint64_t cancel_at : {UINT64_C(0), n_side / 4}) {
    Meter meter;
    meter.cancel_at = cancel_at;
    run.progress_arg = &meter;
    run.cancel = &meter.cancel;
    const ckpt_status status = Run(Path("in"), Path("out"));
    EXPECT_GT(meter.n_total, n_side);
    if (cancel_at == 0) {
      EXPECT_EQ(status, CKPT_OK) << err_.message;
      EXPECT_EQ(meter.n_read, meter.n_total);
      fs::remove_all(Path("out"));
    } else {
      EXPECT_EQ(status, CKPT_ECANCELED);
      EXPECT_EQ(meter.n_after, 0u);
      EXPECT_FALSE(fs::exists(Path("out")));
    }
  }
}

// As the command's: nothing that was asked for is passed over in silence.
TEST_F(Convert, OptionsWithoutAUseAreRefused) {
  const auto refuse = [&](const char *output, const char *why) {
    EXPECT_EQ(Run(kLlama, Path(output)), CKPT_EINVAL) << output;
    char text[2048];
    EXPECT_NE(std::string(ckpt_error_text(&err_, text, sizeof text)).find(why), std::string::npos) << text;
    EXPECT_EQ(err_.file, Path(output));
    EXPECT_EQ(CountEntries(), 0u);
    const ckpt_convert_options none = {};
    options_ = none;
    options_.struct_size = sizeof options_;
  };
  const auto ask = [&](const std::vector<ckpt_format_value> &values) {
    static std::vector<ckpt_format_value> kept;
    kept = values;
    options_.values = kept.data();
    options_.n_values = kept.size();
  };
  options_.to = "dcp";
  ask({{"zstd_level", 99, nullptr, nullptr}});
  refuse("o", "zstd_level: 99 is not from 1 to 22");
  options_.to = "dcp";
  ask({{"zstd_level", 0, "3", nullptr}});
  refuse("o", "zstd_level: its value is of another kind");
  options_.to = "gguf";
  ask({{"set", 1, nullptr, nullptr}});
  refuse("o", "set: its value is of another kind");
  ask({{"zstd_level", 3, nullptr, nullptr}});
  refuse("o.safetensors", "zstd_level: safetensors has no such option (dcp has)");
  options_.shard_size = 10;
  refuse("o.safetensors", "shard_size: it cuts a folder's files, and this is one file (output=FOLDER/)");
  ask({{"external_data", 1, nullptr, nullptr}});
  refuse("o.safetensors", "external_data: safetensors has no such option (onnx has)");
  ask({{"external_data", 1, nullptr, nullptr}});
  refuse("o", "external_data: hf has no such option (onnx has)");
  ask({{"link", 1, nullptr, nullptr}});
  refuse("o.safetensors", "link: safetensors has no such option");
  ask({{"external_data", 1, nullptr, nullptr}, {"link", 1, nullptr, nullptr}});
  refuse("o.onnx", "link: linked data stand outside already (leave out link or external_data)");
  ask({{"colour", 1, nullptr, nullptr}});
  refuse("o.safetensors", "values 'colour' is an option of no format");
}

// ---- digests --------------------------------------------------------------------------------------------------

TEST_F(Convert, TheDigestIsWhatAReaderFinds) {
  for (const char *model : {kLlama, kGpt2}) {
    ASSERT_EQ(Run(model, Path("folder")), CKPT_OK) << err_.message;
    EXPECT_EQ(Digest(), Hash(model));
    EXPECT_EQ(Digest(), Hash(Path("folder")));
    ASSERT_EQ(Run(model, Path("file.safetensors")), CKPT_OK) << err_.message;
    EXPECT_EQ(Digest(), Hash(Path("file.safetensors")));
    options_.force = true;
  }
}

// Every format that can be written, with "/" behind it where what it writes is a folder of its shards.
std::vector<std::pair<const char *, const char *>> EveryForm() {
  std::vector<std::pair<const char *, const char *>> forms;
  for (const ckpt_format *const *format = ckpt_formats; *format != nullptr; format++) {
    if ((*format)->layout != nullptr) forms.push_back({(*format)->name, ""});
    if ((*format)->caps.shards) forms.push_back({(*format)->name, "/"});
  }
  return forms;
}

TEST_F(Convert, TheDigestIsWhatAReaderFindsInEveryFormat) {
  const std::string data = CKPT_TESTS_DIR "/data/";
  size_t n_written = 0, n_again = 0;
  for (const auto &[to, ending] : EveryForm()) {
    const std::string out = Path("out") + ending;
    for (const char *input : {"gpt2-tiny", "llama-tiny", "torch/views.pt", "torch/training.pt", "dcp/fsdp4"})
      for (const char *include : {"model", "all"}) {
        SCOPED_TRACE(std::string(input) + " as " + to + ending + ", " + include);
        options_.to = to;
        options_.include = include;
        const bool trains = strcmp(input, "torch/training.pt") == 0 || strcmp(input, "dcp/fsdp4") == 0;
        if (!IsWritten(Run(data + input, out), trains ? kGroups : kNone)) continue;
        EXPECT_EQ(Digest(), Hash(out));
        n_written++;
        // What was written is an input like any: now a tie is known as its format gives it.
        bool has_extras = strcmp(input, "torch/training.pt") == 0;  // which a made torch object has no place for
        // DeepSpeed's formats always have groups; the others what they were given, flat files without groups.
        const bool is_flat = strcmp(to, "safetensors") == 0 || strcmp(to, "hf") == 0;
        const bool is_of_deepspeed = strcmp(to, "universal") == 0 || strcmp(to, "zero") == 0;
        const bool with_states = trains && strcmp(include, "all") == 0;
        const Training now = is_of_deepspeed ? kGroups : !with_states ? kNone : is_flat ? kStates : kGroups;
        for (const auto &[then, then_ending] : EveryForm()) {
          if (has_extras && strcmp(then, "torch") == 0) continue;
          const std::string again = Path("again") + then_ending;
          options_.to = then;
          if (!IsWritten(Run(out, again), now)) continue;
          n_again++;
          EXPECT_EQ(Digest(), Hash(again)) << "then as " << then << then_ending;
          fs::remove_all(Path("again"));
        }
        fs::remove_all(Path("out"));
      }
  }
  EXPECT_EQ(EveryForm().size(), 9u);
  EXPECT_EQ(n_written, 5u * 10 + 4);   // five forms take all, ZeRO the two that train
  EXPECT_EQ(n_again, 156u + 52 + 64);  // of three that do not train, of training.pt (not as torch), of fsdp4
}

TEST_F(Convert, WhatIsNoOptimizerStateStaysWithoutIt) {
  options_.include = "no-optimizer";
  options_.to = "dcp";
  ASSERT_EQ(Run(CKPT_TESTS_DIR "/data/torch/training.pt", Path("out")), CKPT_OK) << err_.message;
  ckpt_index *index = nullptr;
  ASSERT_EQ(ckpt_open(&index, Path("out").c_str(), nullptr, &err_), CKPT_OK) << err_.message;
  std::vector<std::string> names;
  for (size_t i = 0; i < ckpt_index_count(index); i++) names.push_back(ckpt_index_at(index, i)->name);
  ckpt_index_free(index);
  EXPECT_EQ(names, (std::vector<std::string>{"0.bias", "0.weight", "1.bias", "1.weight", "args.mask", "rng"}));
}

TEST_F(Convert, TheDigestFollowsTheNamesThatTheConfigGives) {
  // The names of the bare model are written; who opens the folder gives them the prefix again.
  const char *bare[] = {"s/^model\\.//", nullptr};
  options_.rename = bare;
  ASSERT_EQ(Run(kLlama, Path("folder")), CKPT_OK) << err_.message;
  EXPECT_EQ(Digest(), Hash(kLlama));
  EXPECT_EQ(Digest(), Hash(Path("folder")));
  EXPECT_NE(Digest(), Hash(Path("folder"), true));
  // Without a config beside it the same names stay as they are.
  ASSERT_EQ(Run(kLlama, Path("file.safetensors")), CKPT_OK) << err_.message;
  EXPECT_EQ(Digest(), Hash(Path("file.safetensors")));
  EXPECT_NE(Digest(), Hash(kLlama));
}

TEST_F(Convert, NothingAppearsWhereReadersWouldFail) {
  // Both names are fine as written, but a reader removes the wrapper from one and finds the other.
  const char *wrap[] = {"s/^lm_head\\.weight$/module.model.norm.weight/", nullptr};
  options_.rename = wrap;
  EXPECT_EQ(Run(kLlama, Path("folder")), CKPT_EEXIST) << err_.message;
  EXPECT_EQ(CountEntries(), 0u);
}

// One f32 tensor "w".
void WriteOne(const std::string &path, const std::vector<float> &values) {
  std::string size = std::to_string(values.size()), end = std::to_string(4 * values.size());
  std::string header = R"({"w":{"dtype":"F32","shape":[)" + size + R"(],"data_offsets":[0,)" + end + "]}}";
  uint64_t n_header = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<char *>(&n_header), 8) << header;
  file.write(reinterpret_cast<const char *>(values.data()), static_cast<std::streamsize>(4 * values.size()));
}

TEST_F(Convert, AnOverflowLeavesNothingAndNamesTheInput) {
  ckpt_cast_rule casts[] = {{nullptr, CKPT_F32}};
  WriteOne(Path("in.safetensors"), {1e6f});
  options_.casts = casts;
  options_.n_casts = 1;
  ASSERT_EQ(Run(Path("in.safetensors"), Path("same.safetensors")), CKPT_OK) << err_.message;
  casts[0].dtype = CKPT_F16;
  EXPECT_EQ(Run(Path("in.safetensors"), Path("out")), CKPT_EVALUE);
  EXPECT_EQ(err_.file, Path("in.safetensors"));
  EXPECT_STREQ(err_.tensor, "w");
  EXPECT_EQ(CountEntries(), 2u);
}

TEST_F(Convert, NothingButZerosIsRefused) {
  ckpt_cast_rule casts[] = {{nullptr, CKPT_F16}};
  options_.casts = casts;
  options_.n_casts = 1;
  // Over many tiles: only the last value, or none, is kept.
  std::vector<float> values(3 << 20, -1e-9f);
  values[7] = 0;
  WriteOne(Path("lost.safetensors"), values);
  EXPECT_EQ(Run(Path("lost.safetensors"), Path("out")), CKPT_EVALUE);
  EXPECT_EQ(err_.file, Path("lost.safetensors"));
  EXPECT_STREQ(err_.tensor, "w");
  EXPECT_NE(std::string(err_.message).find("3145727 values were others"), std::string::npos) << err_.message;
  EXPECT_EQ(CountEntries(), 1u);
  options_.allow_overflow = true;
  EXPECT_EQ(Run(Path("lost.safetensors"), Path("out.safetensors")), CKPT_OK) << err_.message;
  options_.allow_overflow = false;
  values.back() = 1;
  WriteOne(Path("kept.safetensors"), values);
  EXPECT_EQ(Run(Path("kept.safetensors"), Path("kept16.safetensors")), CKPT_OK) << err_.message;
  WriteOne(Path("zeros.safetensors"), {0, -0.0f});
  EXPECT_EQ(Run(Path("zeros.safetensors"), Path("zeros16.safetensors")), CKPT_OK) << "zeros are no loss";
}

TEST_F(Convert, AnInfinityThatBecomesANumberIsRefused) {
  ckpt_cast_rule casts[] = {{nullptr, CKPT_F8_E4M3}};
  options_.casts = casts;
  options_.n_casts = 1;
  WriteOne(Path("in.safetensors"), {1, -INFINITY});
  EXPECT_EQ(Run(Path("in.safetensors"), Path("e4m3.safetensors")), CKPT_EVALUE);
  EXPECT_NE(std::string(err_.message).find("the largest is inf"), std::string::npos) << err_.message;
  casts[0].dtype = CKPT_F8_E5M2;  // has one
  EXPECT_EQ(Run(Path("in.safetensors"), Path("e5m2.safetensors")), CKPT_OK) << err_.message;
}

TEST_F(Convert, AModelFolderHasADtypeThatConfigsCanName) {
  ckpt_cast_rule casts[] = {{nullptr, CKPT_F8_E8M0}};
  options_.casts = casts;
  options_.n_casts = 1;
  options_.allow_overflow = true;  // signs are lost
  EXPECT_EQ(Run(kLlama, Path("folder")), CKPT_EUNSUPPORTED);
  EXPECT_EQ(CountEntries(), 0u);
  EXPECT_EQ(Run(kLlama, Path("file.safetensors")), CKPT_OK) << err_.message;
  casts[0].pattern = "*norm*";  // most of it stays loadable
  EXPECT_EQ(Run(kLlama, Path("mixed")), CKPT_OK) << err_.message;
}

// ---- apart ----------------------------------------------------------------------------------------------------

TEST_F(Convert, LinksDoNotHideAnInput) {
  // As in the Hugging Face cache: a snapshot of links to blobs.
  fs::path model = folder_ / "models--o--n", snapshot = model / "snapshots/abc";
  fs::create_directories(model / "blobs");
  fs::create_directories(snapshot);
  fs::copy_file(std::string(kGpt2) + "/model.safetensors", model / "blobs/b1");
  fs::create_symlink("../../blobs/b1", snapshot / "model.safetensors");
  options_.force = true;
  std::string before = Hash(snapshot.string());
  EXPECT_EQ(Run(snapshot.string(), (model / "blobs/b1").string()), CKPT_EINVAL);
  options_.to = "safetensors";
  EXPECT_EQ(Run(snapshot.string(), (model / "blobs/b1").string()), CKPT_EINVAL);
  EXPECT_NE(std::string(err_.message).find("is a file of the input"), std::string::npos) << err_.message;
  options_.to = nullptr;
  EXPECT_EQ(Run(snapshot.string(), model.string()), CKPT_EINVAL);
  EXPECT_EQ(Run(snapshot.string(), (snapshot / "sub").string()), CKPT_EINVAL);
  fs::create_directory_symlink(snapshot, folder_ / "link");
  EXPECT_EQ(Run((folder_ / "link").string(), (snapshot / "sub").string()), CKPT_EINVAL);
  EXPECT_EQ(Run(snapshot.string(), (folder_ / "link/new").string()), CKPT_EINVAL);
  EXPECT_EQ(Hash(snapshot.string()), before);
  EXPECT_EQ(Run(snapshot.string(), (folder_ / "beside").string()), CKPT_OK) << err_.message;
}

TEST_F(Convert, PlacesAreComparedWhereverTheyEnd) {
  fs::create_directory(folder_ / "a");
  fs::create_directory_symlink(folder_ / "a", folder_ / "l");
  EXPECT_TRUE(ckpt_is_same_path(Path("a").c_str(), Path("l").c_str()));
  EXPECT_TRUE(ckpt_is_same_path(Path("a/").c_str(), Path("./a").c_str()));
  EXPECT_TRUE(ckpt_is_same_path(Path("a/x/y").c_str(), Path("l//x/y/").c_str()));
  EXPECT_FALSE(ckpt_is_same_path(Path("a/x").c_str(), Path("a/xy").c_str()));
  EXPECT_FALSE(ckpt_is_same_path(Path("a").c_str(), Path("ab").c_str()));
  EXPECT_TRUE(ckpt_is_same_path("none", "./none"));
  EXPECT_TRUE(ckpt_is_same_path("/", "//"));
  EXPECT_FALSE(ckpt_is_same_path("/none", "none"));
}

// Whoever uses the library is kept from it too, not the recipes alone.
TEST_F(Convert, PlansKeepOutputsApart) {
  fs::create_directory(folder_ / "a");
  fs::create_directory_symlink(folder_ / "a", folder_ / "l");
  struct {
    const char *first, *second, *said; /* nullptr: both are fine */
  } cases[] = {
      {"a/x.safetensors", "a/x.safetensors", "is given twice as output (the other is "},
      {"a/x.safetensors", "a/./x.safetensors", "is given twice as output (the other is "},
      {"a/x.safetensors", "l/x.safetensors", "is given twice as output (the other is "},
      {"l", "a", "is given twice as output (the other is "},
      {"new", "a/../new", "is given twice as output (the other is "},
      {"a", "l/x.safetensors", "lies in the output "},
      {"a/x.safetensors", "l", "contains the output "},
      {"a/x.safetensors", "a/y.safetensors", nullptr},
      {"a", "a/x.safetensors", nullptr}, /* one folder, published at once */
  };
  for (const auto &c : cases) {
    ckpt_plan *plan = nullptr;
    uint32_t sink;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_plan_new(&plan, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_plan_output(plan, Path(c.first).c_str(), nullptr, true, &sink, &err), CKPT_OK) << err.message;
    EXPECT_EQ(ckpt_plan_output(plan, Path(c.second).c_str(), nullptr, true, &sink, &err),
              c.said == nullptr ? CKPT_OK : CKPT_EINVAL);
    if (c.said != nullptr) {
      EXPECT_EQ(Path(c.second), err.file);
      EXPECT_EQ(std::string(err.message).rfind(c.said + Path(c.first), 0), 0u) << err.message;
    }
    ckpt_plan_free(plan);
  }
}

TEST_F(Convert, PlansKeepOutputsApartFromTheirInputs) {
  fs::create_directory(folder_ / "in");
  fs::create_directory_symlink(folder_ / "in", folder_ / "l");
  fs::copy_file(std::string(kGpt2) + "/model.safetensors", folder_ / "in/model.safetensors");
  fs::create_symlink("in/model.safetensors", folder_ / "by-link.safetensors");
  struct {
    const char *input, *output, *said; /* nullptr: it is fine */
  } cases[] = {
      {"in/model.safetensors", "in/model.safetensors", "is a file of the input"},
      {"by-link.safetensors", "l/model.safetensors", "is a file of the input"},
      {"in", "l/model.safetensors", "lies in the input"},
      {"in", "in", "is the input itself"},
      {"l", "in/new/", "lies in the input"},
      {"in/model.safetensors", "l", "contains the input"},
      {"by-link.safetensors", "l/other.safetensors", nullptr},
  };
  for (const auto &c : cases)
    for (bool reads_first : {false, true}) { /* whichever comes last fails */
      ckpt_plan *plan = nullptr;
      ckpt_index *index = nullptr;
      ckpt_expr *expr;
      uint32_t sink;
      ckpt_error err = {};
      fs::create_directory(folder_ / "in/new");
      ASSERT_EQ(ckpt_open(&index, Path(c.input).c_str(), nullptr, &err), CKPT_OK) << err.message;
      ASSERT_EQ(ckpt_plan_new(&plan, nullptr), CKPT_OK);
      auto read = [&] { return ckpt_expr_read(&expr, plan, index, ckpt_index_at(index, 0), &err); };
      auto write = [&] { return ckpt_plan_output(plan, Path(c.output).c_str(), nullptr, true, &sink, &err); };
      ASSERT_EQ(reads_first ? read() : write(), CKPT_OK) << err.message;
      EXPECT_EQ(reads_first ? write() : read(), c.said == nullptr ? CKPT_OK : CKPT_EINVAL)
          << c.input << " to " << c.output;
      EXPECT_NE(std::string(err.message).find(c.said == nullptr ? "" : c.said), std::string::npos) << err.message;
      ckpt_plan_free(plan);
      ckpt_index_free(index);
      fs::remove(folder_ / "in/new");
    }
}

// ---- parts ----------------------------------------------------------------------------------------------------

class Parts : public Convert {
 protected:
  void SetUp() override {
    ASSERT_EQ(ckpt_sink_path(&folder_sink_, Path("out").c_str(), true, false, &err_), CKPT_OK);
    ASSERT_EQ(ckpt_sink_below(&one_, &folder_sink_, "sub/one", &err_), CKPT_OK);
    ASSERT_EQ(ckpt_sink_below(&two_, &folder_sink_, "two", &err_), CKPT_OK);
  }
  void TearDown() override {
    ckpt_sink_free(folder_sink_);
    ckpt_sink_free(two_);
    ckpt_sink_free(one_);
  }
  ckpt_status Open(const char *first, const char *second) {
    const ckpt_sink_file own[] = {{"a", 1}, {first, 1}}, file = {nullptr, CKPT_SIZE_UNKNOWN}, inside = {second, 1};
    ckpt_status status = ckpt_sink_open(folder_sink_, own, 2, &err_);
    if (status == CKPT_OK) status = ckpt_sink_open(one_, &file, 1, &err_);
    return status == CKPT_OK ? ckpt_sink_open(two_, &inside, 1, &err_) : status;
  }
  ckpt_sink *folder_sink_ = nullptr, *one_ = nullptr, *two_ = nullptr;
};

TEST_F(Parts, AppearTogether) {
  ASSERT_EQ(Open("b", "c"), CKPT_OK) << err_.message;
  ckpt_sink *all[] = {folder_sink_, one_, two_};
  EXPECT_EQ(ckpt_sink_write(folder_sink_, 0, 0, "A", 1, &err_), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(folder_sink_, 1, 0, "B", 1, &err_), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(one_, 0, 0, "12345", 5, &err_), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(two_, 0, 0, "C", 1, &err_), CKPT_OK);
  char back = 0;
  EXPECT_EQ(ckpt_sink_read(two_, 0, 0, &back, 1, &err_), CKPT_OK);
  EXPECT_EQ(back, 'C');
  for (ckpt_sink *sink : all) ASSERT_EQ(ckpt_sink_seal(sink, &err_), CKPT_OK) << err_.message;
  for (ckpt_sink *sink : all) {
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    ASSERT_EQ(ckpt_sink_publish(sink, &err_), CKPT_OK) << err_.message;
  }
  const std::map<std::string, std::string> expected = {{"a", "A"}, {"b", "B"}, {"sub/one", "12345"}, {"two/c", "C"}};
  for (const auto &[name, bytes] : expected) {
    std::ifstream file(folder_ / "out" / name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), bytes) << name;
  }
}

TEST_F(Parts, GoTogetherToo) {
  ASSERT_EQ(Open("b", "c"), CKPT_OK) << err_.message;
  ASSERT_EQ(ckpt_sink_seal(folder_sink_, &err_), CKPT_OK);
  ckpt_sink_abandon(two_);
  EXPECT_NE(ckpt_sink_write(one_, 0, 0, "x", 1, &err_), CKPT_OK);
  EXPECT_EQ(CountEntries(), 0u);
}

TEST_F(Parts, ShareOneSetOfNames) {
  EXPECT_EQ(Open("two/c", "c"), CKPT_EEXIST);
  EXPECT_EQ(CountEntries(), 0u);
}

}  // namespace
