// Receipts: a function of what was done, at no second read, and replayed they find whatever has changed since.
#include <gtest/gtest.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/recipe/records/side_sums.h"
}

namespace {

namespace fs = std::filesystem;

const char *const kLlama = CKPT_TESTS_DIR "/data/llama-tiny";
const char *const kGpt2 = CKPT_TESTS_DIR "/data/gpt2-tiny";

class Receipt : public testing::Test {
 protected:
  Receipt() { options_.struct_size = sizeof options_; }

  std::string Path(const std::string &name) { return (folder_ / name).string(); }

  // A model of our own that may be changed.
  std::string Copy(const char *model) {
    fs::remove_all(folder_ / "in");
    fs::copy(model, folder_ / "in");
    return Path("in");
  }

  // Converts to every output, with the receipt r.json.
  void Write(const std::string &input, const std::vector<std::string> &outputs, const char *like = nullptr,
             const char *verb = "convert", const ckpt_convert_target &as = {}) {
    ckpt_error err = {};
    ckpt_index *from = nullptr, *model = nullptr;
    ckpt_plan *plan = nullptr;
    ckpt_sink *sink = nullptr;
    ckpt_open_options open = {};
    open.struct_size = sizeof open;
    open.stored_names = options_.stored_names;
    if (like != nullptr) {
      ASSERT_EQ(ckpt_open(&model, like, &open, &err), CKPT_OK) << err.message;
    }
    open.like = model;
    ASSERT_EQ(ckpt_open(&from, input.c_str(), &open, &err), CKPT_OK) << err.message;
    std::vector<ckpt_convert_target> targets;
    for (const auto &output : outputs) {
      targets.push_back(as);
      targets.back().path = output.c_str();
    }
    options_.input = input.c_str();
    options_.force = true;
    ckpt_convert_request request = {};
    request.verb = verb;
    request.from = from;
    request.like = model;
    request.like_path = like;
    request.targets = targets.data();
    request.n_targets = static_cast<uint32_t>(targets.size());
    request.options = &options_;
    request.further = ckpt_further_inputs_list(&targets[0].values, quantize_, nullptr);
    ASSERT_EQ(ckpt_further_inputs_open(&request.further, &open, &err), CKPT_OK) << err.message;
    ckpt_quantize_options quantize = {};
    if (quantize_ != nullptr) {
      quantize = *quantize_;
      quantize.imatrix = ckpt_further_index(&request.further, "imatrix");
      request.quantize = &quantize;
    }
    ASSERT_EQ(ckpt_plan_new(&plan, &err), CKPT_OK);
    ASSERT_EQ(ckpt_convert_plan(plan, &request, &err), CKPT_OK) << err.message;
    ASSERT_EQ(ckpt_plan_sink(plan, Path("r.json").c_str(), false, true, &sink, &err), CKPT_OK) << err.message;
    ASSERT_EQ(ckpt_plan_prepare(plan, nullptr, &err), CKPT_OK) << err.message;
    uint64_t n_without = plan->n_bytes_read;
    ASSERT_EQ(ckpt_receipt_plan(plan, &request, &err), CKPT_OK) << err.message;
    ASSERT_EQ(ckpt_convert_run(plan, &request, nullptr, sink, &err), CKPT_OK) << err.message;
    n_more_read_ = plan->n_bytes_read - n_without;
    ckpt_sink_free(sink);
    ckpt_plan_free(plan);
    ckpt_index_free(from);
    ckpt_index_free(model);
    ckpt_further_inputs_close(&request.further);
  }

  // The problems that a replay finds, "tensor: message" or "message"; the failure alone where it fails.
  std::vector<std::string> Replay(const std::string &output, ckpt_status expected = CKPT_OK) {
    std::vector<std::string> problems;
    ckpt_error err = {};
    auto report = [](void *arg, const ckpt_error *problem) {
      EXPECT_TRUE(problem->status == CKPT_EDIFFERENT || problem->status == CKPT_OK);
      EXPECT_STRNE(problem->file, "");
      std::string tensor = problem->status == CKPT_OK ? "remark" : problem->tensor;
      static_cast<std::vector<std::string> *>(arg)->push_back(tensor + (tensor.empty() ? "" : ": ") + problem->message);
    };
    ckpt_status status = ckpt_receipt_replay(Path("r.json").c_str(), output.c_str(), nullptr, nullptr, report,
                                             &problems, &has_side_files_, &err);
    EXPECT_EQ(status, expected) << err.message;
    if (status != CKPT_OK) return {err.message};
    return problems;
  }

  static std::string Read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static void Replace(const std::string &path, const std::string &from, const std::string &to) {
    std::string text = Read(path);
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(path, std::ios::binary) << text;
  }

  // Flips a bit of a file's last byte, which belongs to a tensor.
  static void Damage(const std::string &path) {
    std::string bytes = Read(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
  }

  Folder own_;
  fs::path folder_ = own_.path();
  ckpt_convert_options options_ = {};
  const ckpt_quantize_options *quantize_ = nullptr;
  uint64_t n_more_read_ = 0;
  bool has_side_files_ = false;
};

using Problems = std::vector<std::string>;

TEST_F(Receipt, ReplaysWhatWasDone) {
  const char *match[] = {"*.0.*", "model.norm*", nullptr}, *exclude[] = {"*mlp*", nullptr};
  const char *rename[] = {"s/^model\\.//", nullptr};
  const ckpt_cast_rule casts[] = {{"*norm*", CKPT_F32}, {nullptr, CKPT_F16}};
  Write(kLlama, {Path("plain")});
  EXPECT_EQ(Replay(Path("plain")), Problems());
  Write(kGpt2, {Path("tied.safetensors")});
  EXPECT_EQ(Replay(Path("tied.safetensors")), Problems());
  Write(Path("plain/model.safetensors"), {Path("like")}, kLlama);
  EXPECT_EQ(Replay(Path("like")), Problems());
  options_.stored_names = true;
  Write(kGpt2, {Path("stored.safetensors")});
  EXPECT_EQ(Replay(Path("stored.safetensors")), Problems());
  options_.stored_names = false;
  options_.match = match, options_.exclude = exclude, options_.rename = rename;
  options_.casts = casts, options_.n_casts = 2;
  Write(kLlama, {Path("some"), Path("some/extra.safetensors"), Path("other.safetensors")});
  for (const char *output : {"some", "some/extra.safetensors", "other.safetensors"})
    EXPECT_EQ(Replay(Path(output)), Problems());
}

TEST_F(Receipt, CostsNoSecondRead) {
  const ckpt_cast_rule casts[] = {{nullptr, CKPT_F32}};
  Write(kLlama, {Path("plain")});
  EXPECT_EQ(n_more_read_, 0u);
  options_.casts = casts, options_.n_casts = 1;
  Write(kLlama, {Path("cast")});
  EXPECT_EQ(n_more_read_, 0u);
}

TEST_F(Receipt, ReplayingWritesNothing) {
  Write(kLlama, {Path("out")});
  auto list = [this] {
    std::vector<std::string> all;
    for (const auto &entry : fs::recursive_directory_iterator(folder_))
      all.push_back(entry.path().string() + " " + std::to_string(entry.last_write_time().time_since_epoch().count()));
    std::sort(all.begin(), all.end());
    return all;
  };
  auto before = list();
  EXPECT_EQ(Replay(Path("out")), Problems());
  EXPECT_EQ(list(), before);
}

TEST_F(Receipt, AnOutputThatMovedIsStillTheOne) {
  Write(kGpt2, {Path("out")});
  fs::rename(folder_ / "out", folder_ / "moved");
  EXPECT_EQ(Replay(Path("moved")), Problems());
}

TEST_F(Receipt, AChangedOutputIsFound) {
  Write(kLlama, {Path("out.safetensors")});
  Damage(Path("out.safetensors"));
  EXPECT_EQ(Replay(Path("out.safetensors")),
            Problems({"model.norm.weight: the output has other values, dtype or shape than the receipt says"}));
}

// Tensors that the input has not, or has in another way: masters of its parameters, steps of groups, the values that a
// model computed with.
TEST_F(Receipt, TrainingStateIsListedAsItIsRead) {
  options_.include = "all";
  for (const char *input : {"zero/stage2-fp16", "zero/stage3-bf16", "zero/stage0-bf16", "dcp/fsdp4", "dcp/app"})
    for (uint32_t stage : {0, 1, 3}) {
      ckpt_convert_target target = {};
      const ckpt_format_value value = {"stage", stage, nullptr, nullptr};
      target.to = stage == 0 ? "universal" : "zero", target.values = {&value, 1}, target.world = 3;
      fs::remove_all(folder_ / "out");
      Write(std::string(CKPT_TESTS_DIR "/data/") + input, {Path("out")}, nullptr, "reshard", target);
      EXPECT_EQ(Replay(Path("out")), Problems()) << input << " " << stage;
    }
}

TEST_F(Receipt, AChangedByteOfTrainingStateIsFound) {
  options_.include = "all";
  for (uint32_t stage : {0, 1, 3})
    for (const char *name :
         {"optimizer.state.up.weight.master", "optimizer.state.up.weight.exp_avg", "optimizer.state.up.weight.step"}) {
      ckpt_convert_target target = {};
      const ckpt_format_value value = {"stage", stage, nullptr, nullptr};
      target.to = stage == 0 ? "universal" : "zero", target.values = {&value, 1}, target.world = 3;
      fs::remove_all(folder_ / "out");
      Write(CKPT_TESTS_DIR "/data/zero/stage2-fp16", {Path("out")}, nullptr, "reshard", target);
      ckpt_index *index = nullptr;
      ckpt_error err = {};
      ASSERT_EQ(ckpt_open(&index, Path("out").c_str(), nullptr, &err), CKPT_OK) << err.message;
      const ckpt_tensor *tensor = ckpt_index_find(index, name);
      ASSERT_NE(tensor, nullptr) << name << " " << stage;
      std::string path = ckpt_index_file_of(index, tensor), bytes = Read(path);
      bytes[tensor->extents[0].offset] ^= 1;
      ckpt_index_free(index);
      std::ofstream(path, std::ios::binary) << bytes;
      const Problems problems = Replay(Path("out"));
      EXPECT_EQ(std::count(problems.begin(), problems.end(),
                           name + std::string(": the output has other values, dtype or shape than the receipt says")),
                1)
          << name << " " << stage;
    }
}

TEST_F(Receipt, AChangedInputIsFound) {
  std::string in = Copy(kLlama);
  Write(in, {Path("out.safetensors")});
  Damage(in + "/model-00003-of-00003.safetensors");
  Problems problems = Replay(Path("out.safetensors"));
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].rfind("the input has changed (then ckpt1:", 0), 0u) << problems[0];
  EXPECT_NE(problems[1].find(": the replay has other values"), std::string::npos) << problems[1];
  EXPECT_EQ(problems[2], "the replay gives another content digest than the receipt says");
}

TEST_F(Receipt, OtherTensorsAreFound) {
  Write(kGpt2, {Path("out.safetensors")});
  const char *exclude[] = {"*wpe*", nullptr}, *rename[] = {"s/ln_f/ln_g/", nullptr};
  fs::rename(folder_ / "r.json", folder_ / "first.json");
  options_.exclude = exclude, options_.rename = rename;
  Write(kGpt2, {Path("out.safetensors")});
  fs::rename(folder_ / "first.json", folder_ / "r.json");
  EXPECT_EQ(Replay(Path("out.safetensors")),
            Problems({"transformer.ln_f.bias: the receipt lists it, the output does not have it",
                      "transformer.ln_f.weight: the receipt lists it, the output does not have it",
                      "transformer.wpe.weight: the receipt lists it, the output does not have it",
                      "the output has 2 tensors that the receipt does not list"}));
}

TEST_F(Receipt, AForgedReceiptIsFound) {
  Write(kGpt2, {Path("out.safetensors")});
  std::string text = Read(Path("r.json"));
  Replace(Path("r.json"), R"("names":"hf:gpt2/)", R"("names":"hf:gpt2/9)");
  Problems problems = Replay(Path("out.safetensors"));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rfind("its tensors were named by hf:gpt2/9", 0), 0u) << problems[0];
  std::ofstream(Path("r.json")) << text;
  Replace(Path("r.json"), R"("dtype":[])", R"("dtype":[{"pattern":"*wpe*","dtype":"f16"}])");
  problems = Replay(Path("out.safetensors"));
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(
      problems[1],
      "transformer.wpe.weight: the receipt says that it is f32 of transformer.wpe.weight as f32, the replay makes "
      "it of f32 of transformer.wpe.weight as f16");
  EXPECT_EQ(problems[0], "transformer.wpe.weight: the replay has other values, dtype or shape than the receipt says");
}

TEST_F(Receipt, AForgedDecisionIsFound) {
  const ckpt_cast_rule casts[] = {{nullptr, CKPT_F16}};
  options_.casts = casts, options_.n_casts = 1;
  Write(kLlama, {Path("out.safetensors")});
  std::string text = Read(Path("r.json")), first = R"("source":"model.embed_tokens.weight","from":"bf16","to":"f16")";
  const std::string was = "the receipt says that it is ", is = ", the replay makes it of bf16 of ";
  for (auto [from, to, wanted] : std::vector<std::array<std::string, 3>>{
           {R"("from":"bf16","to":"f16")", R"("from":"f32","to":"f16")",
            was + "f32 of model.embed_tokens.weight as f16"},
           {R"("from":"bf16","to":"f16")", R"("from":"bf16","to":"i8")",
            was + "bf16 of model.embed_tokens.weight as i8"},
           {R"("source":"model.embed_tokens.weight")", R"("source":"other")", was + "bf16 of other as f16"},
           {R"("source":"model.embed_tokens.weight",)", R"("source":null,)", was + "bf16 of nothing as f16"},
           {R"("n_bytes":20480,)", R"("n_bytes":20481,)", "the receipt says 20481 bytes"},
           {R"("n_bytes":20480,)", R"("n_bytes":20480,"n_underflow":7,)",
            "the receipt says 20480 bytes and 7 values"}}) {
    size_t at = text.find(first);
    ASSERT_NE(at, std::string::npos);
    std::string forged = text;
    ASSERT_NE(forged.find(from, at), std::string::npos) << from;
    forged.replace(forged.find(from, at), from.size(), to);
    std::ofstream(Path("r.json")) << forged;
    Problems problems = Replay(Path("out.safetensors"));
    ASSERT_EQ(problems.size(), 1u) << to;
    EXPECT_EQ(problems[0].rfind("model.embed_tokens.weight: " + wanted, 0), 0u) << problems[0];
  }
}

TEST_F(Receipt, AnotherVersionIsRemarkedAndAnotherVerbRefused) {
  Write(kGpt2, {Path("out.safetensors")});
  std::string text = Read(Path("r.json")), version = ckpt_version();
  Replace(Path("r.json"), "\"version\":\"" + version, "\"version\":\"9" + version);
  EXPECT_EQ(Replay(Path("out.safetensors")),
            Problems({"remark: was written by version 9" + version + ", and is run again by " + version}));
  for (const char *verb : {"\"merge\"", "null"}) {
    std::ofstream(Path("r.json")) << text;
    Replace(Path("r.json"), "\"verb\":\"convert\"", std::string("\"verb\":") + verb);
    Replay(Path("out.safetensors"), CKPT_EFORMAT);
  }
}

TEST_F(Receipt, AmongSeveralOutputsThePathOrTheContentDecides) {
  const char *bare[] = {"s/^transformer\\.//", nullptr};
  fs::path before = fs::current_path();
  fs::create_directory(folder_ / "at");
  fs::current_path(folder_);
  Write(kGpt2, {"at/a.safetensors", "at/b.safetensors"});  // of one content
  EXPECT_EQ(Replay("at/a.safetensors"), Problems());
  fs::current_path(before);
  Replay("a.safetensors", CKPT_ENOTFOUND);
  EXPECT_EQ(Replay(Path("at/a.safetensors")), Problems());  // from the receipt's folder
  Damage(Path("at/b.safetensors"));
  EXPECT_EQ(Replay(Path("at/b.safetensors")).size(), 1u);
  fs::rename(folder_ / "at/a.safetensors", folder_ / "moved.safetensors");
  Replay(Path("moved.safetensors"), CKPT_ENOTFOUND);  // it was either
  fs::rename(folder_ / "moved.safetensors", folder_ / "b.safetensors");
  EXPECT_EQ(Replay(Path("b.safetensors")), Problems());  // and now is called as one of them
  options_.rename = bare;  // which only a folder's config.json undoes: other names, another content
  Write(kGpt2, {Path("folder"), Path("c.safetensors")});
  for (const char *output : {"folder", "c.safetensors"}) {
    std::string moved = std::string("moved-") + output;
    fs::rename(folder_ / output, folder_ / moved);
    EXPECT_EQ(Replay(Path(moved)), Problems());
  }
}

TEST_F(Receipt, ATensorListedTwiceDoesNotStandForAnother) {
  Write(kGpt2, {Path("out.safetensors")});
  Replace(Path("r.json"), R"({"name":"transformer.ln_f.bias")", R"({"name":"transformer.ln_f.weight")");
  Problems problems = Replay(Path("out.safetensors"));
  for (const char *wanted : {"the replay has 1 tensor that the receipt does not list",
                             "the output has 1 tensor that the receipt does not list"})
    EXPECT_EQ(std::count(problems.begin(), problems.end(), wanted), 1) << wanted;
}

TEST_F(Receipt, ATensorWithoutANameOrADigestIsToldAsSuch) {
  Write(kGpt2, {Path("out.safetensors")});
  const std::string text = Read(Path("r.json"));
  for (const char *name : {"null", "\"\""}) {
    std::ofstream(Path("r.json")) << text;
    Replace(Path("r.json"), R"({"name":"transformer.ln_f.bias")", std::string(R"({"name":)") + name);
    Problems problems = Replay(Path("out.safetensors"), CKPT_EFORMAT);
    EXPECT_EQ(problems[0].rfind("a tensor without a name (byte ", 0), 0u) << problems[0];
  }
  const size_t at = text.find("\"digest\":", text.find(R"({"name":"transformer.ln_f.bias")")) + 9;
  std::ofstream(Path("r.json")) << text.substr(0, at) + "null" + text.substr(text.find('}', at));
  Problems problems = Replay(Path("out.safetensors"));
  const std::string wanted = "transformer.ln_f.bias: the receipt lists it without a digest";
  EXPECT_EQ(std::count(problems.begin(), problems.end(), wanted), 1);
}

TEST_F(Receipt, ATensorOrAnOutputListedTwiceIsFound) {
  Write(kGpt2, {Path("out.safetensors"), Path("two.safetensors")});
  std::string text = Read(Path("r.json")), begin = "   {\"name\":\"transformer.ln_f.bias\"";
  size_t at = text.find(begin), end = text.find('\n', at) + 1;
  std::ofstream(Path("r.json")) << std::string(text).insert(at, text.substr(at, end - at));
  EXPECT_EQ(Replay(Path("out.safetensors")), Problems({"transformer.ln_f.bias: the receipt lists it twice"}));
  std::ofstream(Path("r.json")) << text;
  Replace(Path("r.json"), Path("two.safetensors"), Path("out.safetensors"));
  Problems problems = Replay(Path("out.safetensors"), CKPT_EFORMAT);
  EXPECT_EQ(problems[0].rfind("output '" + Path("out.safetensors") + "' stands there twice", 0), 0u) << problems[0];
}

// Every value of a receipt changed, every key and item taken out: what a replay lets pass is on a short list.
class EachField : public Receipt {
 protected:
  // Calls try_it after each change of the tree below `node`, which is undone then; path names what was changed.
  void Walk(json_t *node, const std::string &path, const std::function<void(const std::string &)> &try_it) {
    if (json_is_object(node)) {
      std::vector<std::string> keys;
      for (void *at = json_object_iter(node); at != nullptr; at = json_object_iter_next(node, at))
        keys.push_back(json_object_iter_key(at));
      for (const std::string &key : keys) {
        json_t *value = json_incref(json_object_get(node, key.c_str()));
        Walk(value, path + "." + key, try_it);
        json_object_del(node, key.c_str());
        try_it(path + "." + key + " absent");
        for (json_t *other : Others(value)) {
          json_object_set_new(node, key.c_str(), other);
          try_it(path + "." + key);
        }
        json_object_set_new(node, key.c_str(), value);
      }
    }
    const size_t n = json_is_array(node) ? json_array_size(node) : 0;
    for (size_t i = 0; i < n; i += i + 2 < n ? n - 2 : 1) {  // the first and the last ones
      json_t *value = json_incref(json_array_get(node, i));
      Walk(value, path + "[]", try_it);
      json_array_remove(node, i);
      try_it(path + "[] absent");
      json_array_insert_new(node, i, value);
    }
  }

  static std::vector<json_t *> Others(const json_t *value) {
    if (json_is_true(value)) return {json_false(), json_null()};
    if (json_is_false(value)) return {json_true(), json_null()};
    if (json_is_integer(value)) return {json_integer(json_integer_value(value) + 1), json_null(), json_string("1")};
    if (json_is_null(value)) return {json_string("foo"), json_integer(1)};
    if (!json_is_string(value)) return {json_null()};
    std::string text = json_string_value(value);
    text.back() = text.back() == '0' ? '1' : '0';
    return {json_string(text.c_str()), json_null(), json_integer(1)};
  }

  // What passes, of the receipt that was written.
  std::set<std::string> Passing(const std::string &output) {
    std::set<std::string> passing;
    size_t n = 0;
    EXPECT_EQ(Replay(output), Problems());
    json_t *root = json_loads(Read(Path("r.json")).c_str(), 0, nullptr);
    Walk(root, "", [&](const std::string &path) {
      n++;
      EXPECT_EQ(json_dump_file(root, Path("r.json").c_str(), JSON_COMPACT), 0);
      Problems problems;
      ckpt_error err = {};
      auto report = [](void *arg, const ckpt_error *problem) {
        if (problem->status != CKPT_OK) static_cast<Problems *>(arg)->push_back(problem->message);
      };
      ckpt_status status = ckpt_receipt_replay(Path("r.json").c_str(), output.c_str(), nullptr, nullptr, report,
                                               &problems, nullptr, &err);
      if (status == CKPT_OK && problems.empty()) passing.insert(path);
    });
    EXPECT_GT(n, 90u);
    json_decref(root);
    return passing;
  }
  using Problems = std::vector<std::string>;
};

// Outputs may move, another version is remarked, a permission was not needed.
const std::set<std::string> kTold = {".outputs[].path", ".version", ".options.allow_overflow",
                                     ".outputs[].side_files absent"};

TEST_F(EachField, OfAConversion) {
  const char *match[] = {"*.0.*", "*wte*", nullptr}, *exclude[] = {"*mlp*", nullptr};
  const char *rename[] = {"s/ln_1/first/", nullptr};
  const ckpt_cast_rule casts[] = {{"*ln_1*", CKPT_F16}, {nullptr, CKPT_BF16}};
  Write(kGpt2, {Path("bare.safetensors")});
  options_.match = match, options_.exclude = exclude, options_.rename = rename;
  options_.casts = casts, options_.n_casts = 2;
  ckpt_convert_target sharded = {};
  sharded.shard_size = 8192;
  Write(Path("bare.safetensors"), {Path("out")}, kGpt2, "convert", sharded);
  std::set<std::string> told = kTold;
  told.insert(".outputs[].shard_size");  // a byte more cuts the same files
  EXPECT_EQ(Passing(Path("out")), told);
}

TEST_F(EachField, OfAReshard) {
  options_.include = "all";
  ckpt_convert_target ranks = {};
  ranks.to = "dcp", ranks.world = 2;
  const ckpt_format_value level = {"zstd_level", 3, nullptr, nullptr};
  ranks.values = {&level, 1};
  Write(kGpt2, {Path("out")}, nullptr, "reshard", ranks);
  const std::set<std::string> passing = Passing(Path("out"));
  for (const std::string &path : passing)
    EXPECT_TRUE(kTold.count(path) != 0 || path == ".outputs[].zstd_level" || path == ".outputs[].n_bytes" ||
                path == ".outputs[].zstd_level absent" || path == ".outputs[].world")
        << path << " passes: how long compressed items are is not known to a replay";
}

// What decided about a tensor's type is run again: an option, a row that fits no blocks, importance that was there.
TEST_F(EachField, OfAQuantization) {
  const std::string path = CKPT_TESTS_DIR "/data/gguf/imatrix.gguf";
  const char *types[] = {"ffn_up=q4_0", nullptr};
  ckpt_quantize_options quantize = {};
  ckpt_convert_target target = {};
  quantize.tensor_types = types, quantize.output_type = CKPT_Q4_0, quantize.embedding_type = CKPT_DTYPE_NONE;
  quantize.imatrix_path = path.c_str();
  quantize_ = &quantize;
  target.preset = ckpt_preset_find("Q8_0");
  Write(CKPT_TESTS_DIR "/data/gguf/tiny-llama-f16.gguf", {Path("out.gguf")}, nullptr, "quantize", target);
  const std::string text = Read(Path("r.json"));
  for (const char *said :
       {R"("decided_by":"output_type","instead_of":"Q8_0","imatrix":false)", R"("decided_by":"kept",)",
        R"("decided_by":"tensor_types","instead_of":"Q8_0","imatrix":true)"})
    EXPECT_NE(text.find(said), std::string::npos) << said;
  EXPECT_EQ(text.find(R"("decided_by":"preset","imatrix":true)"), std::string::npos);  // Q8_0 ignores it
  std::set<std::string> told = kTold;
  for (const char *permission : {"allow_requantize", "allow_fallback"})
    told.insert(std::string(".options.quantize.") + permission);
  EXPECT_EQ(Passing(Path("out.gguf")), told);
}

TEST_F(EachField, OfAFallback) {
  ckpt_quantize_options quantize = {};
  ckpt_convert_target target = {};
  quantize.output_type = quantize.embedding_type = CKPT_DTYPE_NONE;
  quantize.allow_fallback = true;
  quantize_ = &quantize;
  target.preset = ckpt_preset_find("Q4_K_M");
  Write(CKPT_TESTS_DIR "/data/gguf/whole.gguf", {Path("out.gguf")}, nullptr, "quantize", target);
  EXPECT_NE(Read(Path("r.json")).find(R"("to":"f16","decided_by":"preset","wanted":"Q4_K",)"), std::string::npos);
  std::set<std::string> told = kTold;
  told.insert(".options.quantize.allow_requantize");
  told.insert(".options.quantize.leave_output");  // it has none
  told.insert(".outputs[].names absent");         // of no known family, its names are the stored ones for any reader
  EXPECT_EQ(Passing(Path("out.gguf")), told);
}

// A conversion has no such decisions, and a receipt that tells of some is another one.
TEST_F(Receipt, DecisionsOfAConversionAreFound) {
  Write(kGpt2, {Path("out.safetensors")});
  Replace(Path("r.json"), R"("to":"f32",)", R"("to":"f32","decided_by":"preset",)");
  const Problems problems = Replay(Path("out.safetensors"));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("its type was decided by preset, the replay decides by nothing"), std::string::npos);
}

// A verb, names and sizes that the request of then cannot have had.
TEST_F(Receipt, WhatItsVerbDoesNotTakeIsRefused) {
  const ckpt_cast_rule casts[] = {{nullptr, CKPT_F16}};
  options_.casts = casts, options_.n_casts = 1;
  const char *match[] = {"*wte*", nullptr};
  options_.match = match;
  Write(kGpt2, {Path("out.safetensors")});
  const std::string text = Read(Path("r.json"));
  for (auto [from, to] :
       std::vector<std::array<std::string, 2>>{{R"("verb":"convert")", R"("verb":"reshard")"},
                                               {R"("verb":"convert")", R"("verb":"split")"},
                                               {R"("verb":"convert")", R"("verb":"join")"},
                                               {R"("verb":"convert")", R"("verb":"consolidate")"},
                                               {R"("verb":"convert")", R"("verb":"quantize")"},
                                               {R"("names":null)", R"("names":"foo")"},
                                               {R"("include":null)", R"("include":"some")"},
                                               {R"("shard_size":0)", R"("shard_size":5000)"},
                                               {R"("shard_size":0)", R"("shard_size":0,"world":2)"},
                                               {R"("shard_size":0)", R"("shard_size":0,"zstd_level":2)"},
                                               {R"("shard_size":0)", R"("shard_size":0,"type":"Q8_0")"},
                                               {R"("match":)", R"("external_data":true,"match":)"},
                                               {R"("n_tensors":)", R"("n_tensors":null,"n":)"},
                                               {R"("n_tensors":)", R"("n":)"},
                                               {R"("version":)", R"("version":null,"v":)"}}) {
    std::ofstream(Path("r.json")) << text;
    Replace(Path("r.json"), from, to);
    Replay(Path("out.safetensors"), CKPT_EFORMAT);
  }
}

// One rank more than the command takes, and a receipt can ask for.
TEST_F(Receipt, NoMoreRanksThanTheCommandTakes) {
  options_.include = "all";
  ckpt_convert_target ranks = {};
  ranks.to = "dcp", ranks.world = CKPT_MAX_RANKS;
  Write(kGpt2, {Path("out")}, nullptr, "reshard", ranks);
  Replay(Path("out"), CKPT_OK);
  Replace(Path("r.json"), R"("world":4096)", R"("world":4097)");
  Replay(Path("out"), CKPT_EFORMAT);
}

// Each field of the whole that a replay knows.
TEST_F(Receipt, AForgedTotalIsFound) {
  Write(kGpt2, {Path("out.safetensors")});
  std::string text = Read(Path("r.json"));
  const std::string bytes = std::to_string(fs::file_size(folder_ / "out.safetensors"));
  for (auto [from, to, wanted] : std::vector<std::array<std::string, 3>>{
           {R"("n_tensors":)", R"("n_tensors":1)", "the receipt says 1"},
           {R"("n_bytes":)" + bytes, R"("n_bytes":77)",
            "the receipt says that its files have 77 bytes, the replay "
            "makes " +
                bytes},
           {R"("format":"hf")", R"("format":"dcp")", "the receipt says that it is dcp, and it is hf"},
           {R"("include":"model")", R"("include":"all")", "the receipt says that its digest is of all"}}) {
    std::ofstream(Path("r.json")) << text;
    Replace(Path("r.json"), from, to);
    Problems problems = Replay(Path("out.safetensors"));
    ASSERT_EQ(problems.size(), 1u) << to;
    EXPECT_EQ(problems[0].rfind(wanted, 0), 0u) << problems[0];
  }
}

// An option that cannot be meant is no argument of whoever replays.
TEST_F(Receipt, WhatItRecordsIsNoArgumentOfTheCaller) {
  Write(kGpt2, {Path("out.safetensors")});
  std::string text = Read(Path("r.json"));
  for (auto [from, to] :
       std::vector<std::array<std::string, 2>>{{R"("format":"safetensors")", R"("format":"nope")"},
                                               {R"("rename":[])", R"("rename":["s/a"])"},
                                               {R"("match":[])", R"("match":["re:("])"},
                                               {R"("options":{)", R"("options":{"weights":"nope",)"}}) {
    std::ofstream(Path("r.json")) << text;
    Replace(Path("r.json"), from, to);
    Problems problems = Replay(Path("out.safetensors"), CKPT_EFORMAT);
    EXPECT_EQ(problems[0].rfind("records what cannot be meant: ", 0), 0u) << problems[0];
  }
}

TEST_F(Receipt, KeysComeInAnyOrderAndOnce) {
  Write(kGpt2, {Path("out.safetensors")});
  std::string text = Read(Path("r.json")), last = ",\"verb\":\"convert\"}";
  Replace(Path("r.json"), "\"verb\":\"convert\",", "");
  std::string without = Read(Path("r.json"));
  std::ofstream(Path("r.json")) << without.substr(0, without.rfind('}')) << last;
  EXPECT_EQ(Replay(Path("out.safetensors")), Problems());
  std::ofstream(Path("r.json")) << text.substr(0, text.rfind('}')) << last;
  Replay(Path("out.safetensors"), CKPT_EFORMAT);
}

TEST_F(Receipt, WhatIsNoneIsRefused) {
  Write(kGpt2, {Path("out.safetensors"), Path("two.safetensors")});
  std::string text = Read(Path("r.json"));
  EXPECT_EQ(
      Replay(Path("three.safetensors"), CKPT_ENOTFOUND),
      Problems({"has 2 outputs (" + Path("out.safetensors") + ", " + Path("two.safetensors") +
                "), and neither the path of " + Path("three.safetensors") + ", from " + fs::current_path().string() +
                " or from the receipt's folder, nor its content tells which of them "
                "it is"}));
  for (const char *bad :
       {"[]", "{}", "{\"ckpt_receipt\":2}", "{\"ckpt_receipt\":1}", "", "{\"a\":1,\"a\":1}", "nul\0l"}) {
    std::ofstream(Path("r.json")) << bad;
    Replay(Path("out.safetensors"), CKPT_EFORMAT);
  }
  for (size_t n = 0; n + 1 < text.size(); n += 97) {
    std::ofstream(Path("r.json")) << text.substr(0, n);
    Replay(Path("out.safetensors"), CKPT_EFORMAT);
  }
  fs::remove(folder_ / "r.json");
  Replay(Path("out.safetensors"), CKPT_ENOTFOUND);
}

// What a later version could do is not done without it.
TEST_F(Receipt, AnUnknownOptionIsRefused) {
  Write(kGpt2, {Path("out.safetensors")});
  const std::string text = Read(Path("r.json")), options = "\"options\":{";
  for (const char *option : {"\"transpose\":true,", "\"dtype\\u0000\":[],", "\"dtype\":[{\"round\":1}],",
                             "\"quantize\":{\"imatrix\":{\"scale\":1}},"}) {
    std::string with = text;
    std::ofstream(Path("r.json")) << with.insert(with.find(options) + options.size(), option);
    Problems said = Replay(Path("out.safetensors"), CKPT_EFORMAT);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find("records the option '"), std::string::npos) << said[0];
  }
}

TEST_F(Receipt, AMissingInputIsAFailure) {
  std::string in = Copy(kGpt2);
  Write(in, {Path("out.safetensors")});
  fs::remove_all(in);
  Replay(Path("out.safetensors"), CKPT_ENOTFOUND);
}

// The digests are of what was written, wherever it came from: a config with another dtype, a model of --like.
TEST_F(Receipt, SideFilesAreAmongWhatIsCompared) {
  const ckpt_cast_rule casts[] = {{nullptr, CKPT_F16}};
  options_.casts = casts, options_.n_casts = 1;
  std::string input = Copy(kLlama);
  Write(input, {Path("out"), Path("out/extra.safetensors")});
  EXPECT_NE(Read(Path("out/config.json")), Read(input + "/config.json"));
  EXPECT_EQ(Replay(Path("out")), Problems());
  EXPECT_TRUE(has_side_files_);
  EXPECT_EQ(Replay(Path("out/extra.safetensors")), Problems());
  std::ofstream(Path("out/config.json"), std::ios::app) << " ";
  fs::remove(Path("out/tokenizer.json"));
  std::ofstream(Path("out/NOTES")) << "new";
  Problems found = Replay(Path("out"));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].find("the output has it with SHA-256 "), 0u) << found[0];
  EXPECT_NE(found[0].find(", the receipt does not list it"), std::string::npos) << found[0];
  EXPECT_NE(found[1].find("bytes), the receipt lists it with "), std::string::npos) << found[1];
  EXPECT_EQ(found[2].find("the output does not have it, the receipt lists it with SHA-256 "), 0u) << found[2];
}

// Without a receipt nobody asks for the sums; the ranks of a group would each have those of their own files alone.
TEST_F(Receipt, AloneHashesSideFilesAndOfOneRank) {
  ckpt_error err = {};
  ckpt_index *from = nullptr;
  ckpt_plan *plan = nullptr;
  ckpt_sink *sink = nullptr;
  std::string output = Path("out");
  ckpt_convert_target target = {output.c_str(), nullptr, 0, 0, 0, nullptr, 0};
  options_.input = kLlama;
  ckpt_convert_request request = {};
  request.verb = "convert";
  request.targets = &target;
  request.n_targets = 1;
  request.options = &options_;
  ASSERT_EQ(ckpt_open(&from, kLlama, nullptr, &err), CKPT_OK) << err.message;
  request.from = from;
  ASSERT_EQ(ckpt_plan_new(&plan, &err), CKPT_OK);
  ASSERT_EQ(ckpt_convert_plan(plan, &request, &err), CKPT_OK) << err.message;
  ASSERT_EQ(ckpt_plan_sink(plan, Path("r.json").c_str(), false, true, &sink, &err), CKPT_OK) << err.message;
  ckpt_group two = ckpt_group_self;
  two.size = 2;
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.group = &two;
  EXPECT_EQ(ckpt_convert_run(plan, &request, &run, sink, &err), CKPT_EUNSUPPORTED);
  err = {};
  ASSERT_EQ(ckpt_convert_run(plan, &request, nullptr, nullptr, &err), CKPT_OK) << err.message;
  ckpt_side_sums sums = {};
  ASSERT_EQ(ckpt_side_sums_written(&sums, &plan->outputs[0].layout, &err), CKPT_OK);
  ASSERT_NE(sums.n, 0u);
  const uint8_t zero[32] = {};
  for (uint32_t i = 0; i < sums.n; i++) EXPECT_EQ(memcmp(sums.items[i].sha256, zero, sizeof zero), 0);
  ckpt_side_sums_free(&sums);
  ckpt_sink_free(sink);
  ckpt_plan_free(plan);
  ckpt_index_free(from);
}

TEST_F(Receipt, ASideFileOfTheInputThatChangedShowsInTheReplay) {
  std::string input = Copy(kLlama);
  Write(input, {Path("out")});
  std::ofstream(input + "/tokenizer.json", std::ios::app) << " ";
  Problems found = Replay(Path("out"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].find("the replay has it with SHA-256 "), 0u) << found[0];
  Write(Path("out/model.safetensors"), {Path("like")}, kLlama);
  EXPECT_EQ(Replay(Path("like")), Problems());
  EXPECT_NE(Read(Path("r.json")).find("tokenizer.json"), std::string::npos);
}

// Receipts of before there were lists of side files say nothing of them.
TEST_F(Receipt, WithoutAListOfSideFilesTheyAreNotCompared) {
  Write(kLlama, {Path("out")});
  std::string text = Read(Path("r.json"));
  size_t begin = text.find("\"side_files\":"), end = text.find("\"tensors\":");
  ASSERT_LT(begin, end);
  std::ofstream(Path("r.json"), std::ios::binary) << text.erase(begin, end - begin);
  std::ofstream(Path("out/config.json"), std::ios::app) << " ";
  EXPECT_EQ(Replay(Path("out")), Problems());
  EXPECT_FALSE(has_side_files_);
}

// What a forged receipt may make its replay take is bounded over all of its patterns, and its outputs.
TEST_F(Receipt, ForgedPatternsAreBoundedTogether) {
  const char *match[] = {"*", nullptr};
  options_.match = match;
  Write(kLlama, {Path("out.safetensors")});
  std::string patterns = "\"match\":[\"*\"";
  for (int i = 0; i < 30000; i++) patterns += ",\"re:.*.*[A-Z]$|" + std::to_string(i) + "\"";
  Replace(Path("r.json"), "\"match\":[\"*\"", patterns);
  Problems found = Replay(Path("out.safetensors"), CKPT_ELIMIT);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("the patterns take more than 500000000 steps together"), std::string::npos) << found[0];
}

}  // namespace
