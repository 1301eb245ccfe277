// What a config.json or the metadata of a GGUF file says and does not say, in the other dialect. Values are those of
// transformers 5.23's configuration classes and of llama.cpp's converter and loader, which were asked for each.
#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/format/findings.h"
#include "libckpt/index/config.h"
#include "libckpt/index/index.h"
#include "libckpt/recipe/verify/verify.h"
}

namespace formats_testing {
namespace {

const std::string kModels = std::string(CKPT_TESTS_DIR) + "/data/dialect/";

using Keys = std::vector<std::pair<std::string, std::string>>;

// A config.json of two spaces a level with other values of its own keys; "" takes a key away.
std::string with_keys(std::string config, const Keys &keys) {
  for (const auto &[key, value] : keys) {
    const size_t at = config.find("\n  \"" + key + "\": ");
    if (at != std::string::npos) {
      const size_t next = config.find("\n  \"", at + 1), end = next == std::string::npos ? config.find("\n}") : next;
      const bool is_last = next == std::string::npos;
      config.erase(at, end - at);
      if (is_last) config.erase(config.rfind(','), 1);
    }
    if (!value.empty()) config.insert(1, "\n  \"" + key + "\": " + value + ",");
  }
  return config;
}

std::string copy_of(const Folder &folder, const std::string &model, const Keys &keys) {
  const std::string path = folder.path() + "/model";
  std::filesystem::remove_all(path);
  std::filesystem::copy(kModels + model, path, std::filesystem::copy_options::recursive);
  spill(path + "/config.json", with_keys(slurp(path + "/config.json"), keys));
  return path;
}

// A model's GGUF dialect: why there is none, or its metadata and notes.
struct Dialect {
  std::string error, notes;
  IndexPointer from{nullptr, ckpt_index_free}, index{nullptr, ckpt_index_free};

  explicit Dialect(const std::string &path) {
    ckpt_error err = {};
    const ckpt_dialect_options options = {};
    ckpt_index *made = nullptr;
    from = open(path, &err, false);
    EXPECT_TRUE(from) << text_of(err);
    if (from == nullptr) return;
    if (ckpt_dialect_to_gguf(&made, from.get(), &options, &err) != CKPT_OK) error = text_of(err);
    index.reset(made);
    for (uint32_t i = 0; made != nullptr && i < made->n_notes; i++) notes += said(made->notes[i]) + "\n";
  }
  std::string operator[](const std::string &key) const {
    const ckpt_meta *meta = index == nullptr ? nullptr : ckpt_index_meta(index.get(), key.c_str());
    return meta == nullptr ? "none" : meta->value;
  }
};

// Or "none".
void expect_number(const std::string &is, const std::string &wanted) {
  EXPECT_EQ(is == "none", wanted == "none") << is;
  if (wanted != "none") {
    EXPECT_EQ(strtof(is.c_str(), nullptr), strtof(wanted.c_str(), nullptr)) << is;
  }
}

const std::string kYarn = "\"rope_type\": \"yarn\", \"factor\": 4.0";

// Which of several settings of rotary positions counts: AutoConfig.from_pretrained(folder).rope_parameters says it.
TEST(DialectConfig, RotaryPositionsAreReadAsTransformersReadsThem) {
  const std::string of_million = "{\"rope_type\": \"default\", \"rope_theta\": 1000000.0}";
  const struct {
    const char *model;
    Keys keys;
    const char *base, *type, *positions, *noted;
  } cases[] = {
      {"llama-tied",
       {{"rope_theta", "30000.0"}, {"rope_parameters", of_million}},
       "1000000",
       "none",
       "none",
       "1 key of config.json (rope_theta)"},
      {"llama-tied", {{"rope_theta", "1000000.0"}, {"rope_parameters", of_million}}, "1000000", "none", "none", ""},
      {"llama-tied",
       {{"rope_theta", "30000.0"}, {"rope_parameters", "{\"rope_type\": \"default\"}"}},
       "30000",
       "none",
       "none",
       ""},
      {"llama-tied", {{"rope_scaling", of_million}, {"rope_parameters", ""}}, "1000000", "none", "none", ""},
      {"llama-tied", {{"rope_scaling", "{}"}, {"rope_parameters", of_million}}, "1000000", "none", "none", ""},
      {"llama-tied", {{"rope_scaling", "null"}, {"rope_parameters", of_million}}, "1000000", "none", "none", ""},
      {"llama-tied", {{"rope_parameters", ""}}, "10000", "none", "none", ""},
      {"qwen2",
       {{"rope_scaling", "{" + kYarn + ", \"original_max_position_embeddings\": 32}"}},
       "10000",
       "yarn",
       "32",
       "1 key of config.json (rope_parameters)"},
      {"qwen2",
       {{"rope_scaling", "{" + kYarn + "}"}, {"rope_theta", "30000.0"}},
       "30000",
       "yarn",
       "128",
       "1 key of config.json (rope_parameters)"},
      {"qwen2", {{"rope_parameters", "{\"full_attention\": " + of_million + "}"}}, "1000000", "none", "none", ""},
      {"qwen3",
       {{"rope_parameters", "{" + kYarn + "}"}, {"original_max_position_embeddings", "64"}},
       "10000",
       "yarn",
       "128",
       "1 key of config.json (original_max_position_embeddings)"},
      {"qwen3", {{"rope_parameters", "{\"type\": \"linear\", \"factor\": 2}"}}, "10000", "linear", "none", ""},
      {"mixtral", {{"rope_parameters", ""}}, "1000000", "none", "none", ""},
      {"mixtral", {{"rope_scaling", "{" + kYarn + "}"}, {"rope_parameters", ""}}, "1000000", "yarn", "128", ""},
      {"gpt-neox", {{"rotary_emb_base", "777"}}, "none", "none", "none", "1 key of config.json (rotary_emb_base)"},
      {"gpt-neox", {{"rotary_emb_base", "777"}, {"rope_parameters", ""}}, "777", "none", "none", ""},
      {"gpt-neox",
       {{"rope_parameters", of_million}, {"rope_theta", "888"}},
       "1000000",
       "none",
       "none",
       "1 key of config.json (rope_theta)"},
      {"gemma2", {{"rope_theta", "30000"}, {"rope_parameters", ""}}, "30000", "none", "none", ""},
  };
  Folder folder;
  for (const auto &c : cases) {
    SCOPED_TRACE(std::string(c.model) + " " + with_keys("{\n}", c.keys));
    const Dialect dialect(copy_of(folder, c.model, c.keys));
    EXPECT_EQ(dialect.error, "");
    const std::string family = dialect["general.architecture"];
    expect_number(dialect[family + ".rope.freq_base"], c.base);
    EXPECT_EQ(dialect[family + ".rope.scaling.type"], c.type);
    EXPECT_EQ(dialect[family + ".rope.scaling.original_context_length"], c.positions);
    if (c.noted[0] != '\0') {
      EXPECT_NE(dialect.notes.find(c.noted), std::string::npos) << dialect.notes;
    } else {
      EXPECT_EQ(dialect.notes.find("rope"), std::string::npos) << dialect.notes;
    }
  }
}

// Scaling that no key says is no model in GGUF; what a type of scaling does not read is named.
TEST(DialectConfig, ScalingIsNeverDropped) {
  const std::string linear = "{\"rope_type\": \"linear\", \"factor\": 2.0}";
  const std::string llama3 = "{\"rope_type\": \"llama3\", \"factor\": 8.0}";
  const struct {
    const char *model;
    Keys keys;
    const char *message;
  } cases[] = {
      {"llama-tied", {{"rope_scaling", "{\"rope_type\": \"dynamic\", \"factor\": 2.0}"}}, "as 'dynamic'"},
      {"llama-tied", {{"rope_scaling", "{\"rope_type\": \"linear\"}"}}, "linear scaling without rope_scaling.factor"},
      {"llama-tied",
       {{"rope_scaling", "{\"type\": \"linear\", \"factor\": \"2\"}"}},
       "rope_scaling.factor is \"2\", and has to be a number"},
      {"llama-tied", {{"rope_scaling", "{\"type\": \"linear\", \"factor\": 0}"}}, "and has to be above 0"},
      {"llama-tied", {{"rope_scaling", "\"linear\""}}, "rope_scaling is \"linear\", and has to be an object"},
      {"llama-tied", {{"rope_parameters", "[1]"}}, "rope_parameters is [1], and has to be an object"},
      {"llama-tied", {{"rope_scaling", "{\"rope_type\": 3}"}}, "rope_scaling.rope_type is 3, and has to be a text"},
      {"llama-tied", {{"rope_parameters", "{\"rope_theta\": \"x\"}"}}, "and has to be a number"},
      {"llama-tied", {{"rope_parameters", "{\"full_attention\": {}}"}}, "kinds of layers, which a llama does not have"},
      {"qwen3", {{"rope_parameters", "{" + kYarn + ", \"truncate\": false}"}}, "does not round dimensions"},
      {"qwen3",
       {{"rope_parameters", "{" + kYarn + ", \"mscale\": 0.7, \"mscale_all_dim\": 0.3}"}},
       "yarn's mscale 0.7 and mscale_all_dim 0.3"},
      {"qwen2", {{"rope_scaling", llama3}}, "has no tensor that says how rotary positions are scaled as 'llama3'"},
      {"gemma2", {{"rope_scaling", linear}}, "no key of a gemma2 in GGUF says"},
      {"gpt-neox", {{"rope_scaling", linear}}, "no key of a gpt_neox in GGUF says"},
      {"gemma2",
       {{"rope_parameters",
         "{\"full_attention\": {\"rope_theta\": 20000}, \"sliding_attention\": {\"rope_theta\": "
         "30000}}"}},
       "a gemma2 in GGUF has one"},
  };
  Folder folder;
  for (const auto &c : cases) {
    const Dialect dialect(copy_of(folder, c.model, c.keys));
    EXPECT_NE(dialect.error.find(c.message), std::string::npos) << c.message << ": " << dialect.error;
  }
  const Dialect named(copy_of(folder, "qwen3", {{"rope_parameters", "{" + kYarn + ", \"mscale\": 0.7}"}}));
  EXPECT_NE(named.notes.find("(rope_parameters.mscale)"), std::string::npos) << named.error << named.notes;
}

// A key that a config lacks is what its class takes, not what llama.cpp takes.
TEST(DialectConfig, WhatAConfigLacksIsItsClassesOwn) {
  const struct {
    const char *model, *key, *gguf, *value;
  } cases[] = {
      {"llama-tied", "max_position_embeddings", "llama.context_length", "2048"},
      {"llama-tied", "rms_norm_eps", "llama.attention.layer_norm_rms_epsilon", "1e-06"},
      {"mistral", "max_position_embeddings", "llama.context_length", "131072"},
      {"mixtral", "max_position_embeddings", "llama.context_length", "131072"},
      {"mixtral", "rms_norm_eps", "llama.attention.layer_norm_rms_epsilon", "1e-05"},
      {"mixtral", "num_experts_per_tok", "llama.expert_used_count", "2"},
      {"qwen2", "max_position_embeddings", "qwen2.context_length", "32768"},
      {"qwen3", "rms_norm_eps", "qwen3.attention.layer_norm_rms_epsilon", "1e-06"},
      {"gemma2", "max_position_embeddings", "gemma2.context_length", "8192"},
      {"gemma2", "attn_logit_softcapping", "gemma2.attn_logit_softcapping", "50"},
      {"gpt-neox", "max_position_embeddings", "gptneox.context_length", "2048"},
      {"gpt-neox", "layer_norm_eps", "gptneox.attention.layer_norm_epsilon", "1e-05"},
      {"gpt2", "layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", "1e-05"},
  };
  Folder folder;
  for (const auto &c : cases) {
    const Dialect dialect(copy_of(folder, c.model, {{c.key, ""}}));
    SCOPED_TRACE(std::string(c.model) + " " + c.key + dialect.error);
    expect_number(dialect[c.gguf], c.value);
  }
  const Dialect gemma(copy_of(folder, "gemma2", {{"query_pre_attn_scalar", ""}}));
  EXPECT_NE(gemma.error.find("query_pre_attn_scalar is 256, and llama.cpp computes a gemma2 of these sizes with"),
            std::string::npos)
      << gemma.error;
}

// What llama.cpp would compute or load otherwise.
TEST(DialectConfig, RefusesWhatLlamaCppComputesOtherwise) {
  const struct {
    const char *model;
    Keys keys;
    const char *message;
  } cases[] = {
      {"gemma2", {{"sliding_window", "0"}}, "sliding_window is 0, and has to be a whole number above 0"},
      {"gemma2", {{"query_pre_attn_scalar", "64"}}, "query_pre_attn_scalar is 64"},
      {"mixtral", {{"num_experts_per_tok", "5"}}, "num_experts_per_tok is 5, and num_local_experts 4"},
      {"gpt2", {{"scale_attn_by_inverse_layer_idx", "true"}}, "scale_attn_by_inverse_layer_idx is true"},
      {"qwen3", {{"attention_bias", "true"}}, "attention_bias is true, and llama.cpp computes a qwen3 with false"},
      {"llama-tied", {{"attention_bias", "false"}}, ".bias': is no part of the model that config.json describes"},
      {"llama-scaled", {{"attention_bias", "true"}}, ".bias': is missing: a model of the family llama has it"},
  };
  Folder folder;
  for (const auto &c : cases) {
    const Dialect dialect(copy_of(folder, c.model, c.keys));
    EXPECT_NE(dialect.error.find(c.message), std::string::npos) << c.message << ": " << dialect.error;
  }
}

std::string convert(const std::string &input, const std::string &output, const std::vector<const char *> &set = {},
                    const char *rename = nullptr, const char *without = nullptr) {
  ckpt_convert_options options = {};
  ckpt_error err = {};
  std::vector<const char *> texts = set;
  texts.push_back(nullptr);
  const ckpt_format_value edit = {"set", 0, nullptr, texts.data()};
  const char *const renames[] = {rename, nullptr}, *const excludes[] = {without, nullptr};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  options.force = true;
  options.rename = rename == nullptr ? nullptr : renames;
  options.exclude = without == nullptr ? nullptr : excludes;
  options.values = &edit;
  options.n_values = set.empty() ? 0 : 1;
  return ckpt_convert(&options, &err) == CKPT_OK ? "" : text_of(err);
}

// llama.cpp takes no embedding for the head of a GPT-NeoX.
TEST(DialectConfig, AHeadThatIsNeededIsNotTied) {
  Folder folder;
  const std::string model = copy_of(folder, "gpt-neox", {}), tied = folder / "tied", out = folder / "out.gguf",
                    without = folder / "without.gguf";
  ASSERT_EQ(convert(model, tied, {}, nullptr, "embed_out.weight"), "");
  spill(tied + "/config.json", with_keys(slurp(tied + "/config.json"), {{"tie_word_embeddings", "true"}}));
  EXPECT_NE(
      convert(tied, out).find("'embed_out.weight': is the embedding (tie_word_embeddings), and llama.cpp loads no"),
      std::string::npos)
      << convert(tied, out);
  ASSERT_EQ(convert(model, out), "");
  ASSERT_EQ(convert(out, without, {}, nullptr, "output.weight"), "");
  ckpt_error err = {};
  ckpt_findings findings = {};
  IndexPointer index = open(without, &err);
  ASSERT_EQ(ckpt_dialect_check(&findings, index.get(), nullptr, 0, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(findings.n_of[CKPT_PROBLEM], 1U);
  EXPECT_EQ(std::string(findings.items[0].message), "is missing: llama.cpp loads no gptneox without it");
  ckpt_findings_free(&findings);
}

// A GGUF file in which a key of type u32 is an array of numbers, one for each layer: behind it all is moved.
std::string with_array(std::string bytes, const std::string &key, const std::vector<uint32_t> &numbers) {
  auto word = [](uint64_t x, int n) {
    std::string out;
    for (int i = 0; i < n; i++) out += static_cast<char>(x >> 8 * i & 255);
    return out;
  };
  const std::string scalar = word(key.size(), 8) + key + word(CKPT_GGUF_U32, 4);
  const size_t at = bytes.find(scalar);
  EXPECT_NE(at, std::string::npos) << key;
  std::string array = word(CKPT_GGUF_ARRAY, 4) + word(CKPT_GGUF_U32, 4) + word(numbers.size(), 8);
  for (uint32_t number : numbers) array += word(number, 4);
  bytes.replace(at + scalar.size() - 4, 8, array);
  return bytes;
}

// ... and padded again to 32 bytes, behind the last tensor's name.
std::string padded_again(const std::string &before, std::string after, const std::string &last, size_t rank) {
  const size_t info = last.size() + 4 + 8 * rank + 4 + 8;
  const size_t end_before = before.rfind(last) + info, end = after.rfind(last) + info;
  const size_t n_before = (32 - end_before % 32) % 32, n = (32 - end % 32) % 32;
  return after.replace(end, n_before, std::string(n, '\0'));
}

TEST(DialectConfig, OneNumberForEachLayerIsThatNumber) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", other = folder / "other.gguf", back = folder / "back",
                    again = folder / "again";
  ASSERT_EQ(convert(kModels + "llama-scaled", gguf), "");
  ASSERT_EQ(convert(gguf, back), "");
  const std::string whole = slurp(gguf);
  ckpt_error err = {};
  IndexPointer index = open(gguf, &err);
  const ckpt_tensor *last = &index->tensors[0];
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (index->tensors[i].extents[0].offset > last->extents[0].offset) last = &index->tensors[i];
  for (const auto &[key, number] : std::map<std::string, uint32_t>{{"llama.attention.head_count_kv", 2},
                                                                   {"llama.attention.head_count", 4},
                                                                   {"llama.feed_forward_length", 96}}) {
    SCOPED_TRACE(key);
    spill(other, padded_again(whole, with_array(whole, key, {number, number}), last->name, last->rank));
    std::filesystem::remove_all(again);
    EXPECT_EQ(convert(other, again), "");
    EXPECT_EQ(slurp(again + "/config.json"), slurp(back + "/config.json"));
    EXPECT_TRUE(slurp(again + "/model.safetensors") == slurp(back + "/model.safetensors"));
    spill(other, padded_again(whole, with_array(whole, key, {number, 2 * number}), last->name, last->rank));
    IndexPointer named = open(other, &err, false);
    ASSERT_TRUE(named) << text_of(err);
    EXPECT_EQ(std::string(named->names), "stored");
    const std::string said = convert(other, folder / "none");
    EXPECT_NE(said.find(key + " is not the same for each layer, and a llama has one number"), std::string::npos)
        << said;
  }
}

// The converter's `auto`: the first matrix of a file by name, whatever stands first.
TEST(DialectConfig, AutoGoesByNames) {
  Folder folder;
  const std::string path = folder / "model/model.safetensors";
  std::string header =
      "{\"z.weight\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
      "\"b.weight\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
      "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,24]}}";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() & 255), length[1] = static_cast<char>(header.size() >> 8);
  spill(path, length + header + std::string(24, '\0'));
  ckpt_error err = {};
  IndexPointer index = open(path, &err);
  ASSERT_TRUE(index) << text_of(err);
  EXPECT_EQ(ckpt_dialect_auto(index.get()), CKPT_F16);
}

// A folder's name may be no text; GGUF's texts are.
TEST(DialectConfig, ANameIsText) {
  Folder folder;
  const std::string path = copy_of(folder, "llama-tied", {}), odd = folder.path() + "/my-\xff\xc3\xa9-\xc3";
  std::filesystem::rename(path, odd);
  EXPECT_EQ(Dialect(odd)["general.name"], "My \xef\xbf\xbd\xc3\xa9 \xef\xbf\xbd");
}

// Of texts longer than a window too, in which a character may stand across its end.
TEST(DialectConfig, VerifyNamesWhatIsNoText) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", long_text = std::string(65535, 'a') + "\u00e9" + std::string(65535, 'b');
  for (const std::string &name : {std::string("Name"), long_text}) {
    ASSERT_EQ(convert(kModels + "llama-tied", gguf, {("general.name=" + name).c_str()}), "");
    const std::string bytes = slurp(gguf);
    const size_t at = bytes.find(name, bytes.find("general.name") + 12);
    ASSERT_NE(at, std::string::npos);
    for (const size_t broken : {std::string::npos, size_t{0}, name.size() - 1}) {
      std::string other = bytes;
      if (broken != std::string::npos) other[at + broken] = '\xff';
      spill(gguf, other);
      ckpt_error err = {};
      ckpt_findings findings = {};
      ckpt_run_options run = {};
      run.struct_size = sizeof run;
      IndexPointer index = open(gguf, &err, false);
      ASSERT_TRUE(index) << text_of(err);
      ASSERT_EQ(ckpt_verify_format(&findings, index.get(), &run, &err), CKPT_OK) << text_of(err);
      ASSERT_EQ(findings.n_of[CKPT_PROBLEM], broken == std::string::npos ? 0U : 1U) << broken;
      if (broken != std::string::npos) {
        EXPECT_EQ(std::string(findings.items[0].message).find("general.name is no UTF-8"), 0U);
      }
      ckpt_findings_free(&findings);
    }
  }
}

// Llama 3.1's factors of a program whose powers are an ulp off, as torch's are at some widths, are found again.
TEST(DialectConfig, FactorsAreFoundAgain) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", other = folder / "other.gguf", back = folder / "back";
  ASSERT_EQ(convert(kModels + "llama-scaled", gguf), "");
  ckpt_error err = {};
  IndexPointer index = open(gguf, &err);
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "rope_freqs.weight");
  ASSERT_NE(tensor, nullptr);
  std::string bytes = slurp(gguf);
  const size_t at = tensor->extents[0].offset, n = tensor->n_elements;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    float value;
    memcpy(&bits, bytes.data() + at + 4 * i, 4);
    memcpy(&value, &bits, 4);
    if (value == 1 || value == 8) continue;
    bits += i % 2 == 0 ? 1 : -1;
    memcpy(bytes.data() + at + 4 * i, &bits, 4);
  }
  spill(other, bytes);
  ASSERT_NE(bytes, slurp(gguf));
  ASSERT_EQ(convert(other, back), "");
  EXPECT_NE(slurp(back + "/config.json").find("\"rope_type\": \"llama3\", \"factor\": 8"), std::string::npos);
}

// Factors that no numbers of Llama 3.1 give are those of longrope, where they can be.
TEST(DialectConfig, OtherFactorsAreLongropes) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", other = folder / "other.gguf", back = folder / "llama-scaled",
                    again = folder / "again.gguf";
  const std::string list = "[1, 1.5, 1.10000002, 3, 2, 2.5, 7, 2.5]", long_too = ", \"long_factor\": " + list;
  ASSERT_EQ(convert(kModels + "llama-scaled", gguf), "");
  ckpt_error err = {};
  IndexPointer index = open(gguf, &err);
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "rope_freqs.weight");
  ASSERT_NE(tensor, nullptr);
  ASSERT_EQ(tensor->n_elements, 8U);
  for (const float last : {2.5F, 0.F}) {
    const float factors[] = {1, 1.5, 1.1F, 3, 2, 2.5, 7, last};
    std::string changed = slurp(gguf);
    memcpy(&changed[tensor->extents[0].offset], factors, sizeof factors);
    spill(other, changed);
    std::filesystem::remove_all(back);
    ASSERT_EQ(convert(other, back), "");
    const std::string config = slurp(back + "/config.json");
    if (last == 0) {
      EXPECT_EQ(config.find("rope_scaling"), std::string::npos);
    } else {
      EXPECT_NE(
          config.find("\"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 1.0, \"attention_factor\": 1.0, "
                      "\"short_factor\": " +
                      list + long_too + ", \"original_max_position_embeddings\": 128}"),
          std::string::npos)
          << config;
      ASSERT_EQ(convert(back, again), "");
      EXPECT_TRUE(slurp(again) == changed);
    }
  }
}

// What no tensor of factors says is refused, with the numbers.
TEST(DialectConfig, LongropeOfTwoListsIsRefused) {
  const std::string list = "[1, 1.5, 1.1, 3, 2, 2.5, 7, 2.5]", one = "\"attention_factor\": 1.0, ",
                    both = "\"short_factor\": " + list + ", \"long_factor\": ";
  const struct {
    std::string rest, message;
  } cases[] = {
      {one + both + list, ""},
      {both + list, "no GGUF key says that longrope makes attention grow (rope_scaling.attention_factor 1 does not)"},
      {one + both + "[1, 1.5, 1.1, 3, 2, 2.5, 7, 9]",
       "rope_scaling.long_factor.7 is 9, and 2.5 for short texts: a tensor of GGUF has one factor for both"},
      {one + both + "[1, 2]", "rope_scaling.long_factor has 2 factors, and heads rotate by 8"},
      {one + both + "[1, 1.5, 1.1, 3, 2, 2.5, 7, -1]",
       "rope_scaling.long_factor.7 is -1, and has to be a number above 0 that f32 has"},
      {one + "\"short_factor\": " + list, "rope_scaling.long_factor has 0 factors, and heads rotate by 8"},
  };
  Folder folder;
  const std::string model = folder / "model", config = slurp(kModels + "llama-scaled/config.json");
  std::filesystem::copy(kModels + "llama-scaled", model);
  const size_t at = config.find("\"rope_"), end = config.find('}', at);
  ASSERT_NE(end, std::string::npos);
  for (const auto &c : cases) {
    SCOPED_TRACE(c.rest);
    spill(model + "/config.json",
          config.substr(0, at) + "\"rope_scaling\": {\"rope_type\": \"longrope\", " + c.rest + config.substr(end));
    const std::string message = convert(model, folder / "x.gguf");
    if (c.message.empty()) {
      EXPECT_EQ(message, "");
    } else {
      EXPECT_NE(message.find(c.message), std::string::npos) << message;
    }
  }
}

// The way back: a key that GGUF lacks is what llama.cpp takes then, where the class would take another.
TEST(DialectConfig, WhatMetadataLacksIsLlamaCppsOwn) {
  const struct {
    const char *model, *without, *line;
    std::vector<const char *> set = {};
  } cases[] = {
      {"gpt-neox", "gptneox.rope.dimension_count", "\"rotary_pct\": 1.0"},
      {"mixtral", "llama.rope.freq_base", "\"rope_theta\": 10000.0"},
      {"qwen2", "", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4}", {"qwen2.rope.scaling.factor=4.0"}},
  };
  Folder folder;
  for (const auto &c : cases) {
    SCOPED_TRACE(c.line);
    const std::string gguf = folder / "x.gguf", other = folder / "other.gguf", back = folder / "back";
    std::filesystem::remove_all(back);
    ASSERT_EQ(convert(kModels + c.model, gguf), "");
    const char *const remove[] = {c.without, nullptr};
    std::vector<const char *> set = c.set;
    set.push_back(nullptr);
    const ckpt_format_value edits[] = {{"remove", 0, nullptr, remove}, {"set", 0, nullptr, set.data()}};
    ckpt_convert_options options = {};
    ckpt_error err = {};
    options.struct_size = sizeof options;
    options.input = gguf.c_str();
    options.output = other.c_str();
    options.force = true;
    options.values = c.without[0] != '\0' ? &edits[0] : &edits[1];
    options.n_values = 1;
    ASSERT_EQ(ckpt_convert(&options, &err), CKPT_OK) << text_of(err);
    ASSERT_EQ(convert(other, back), "");
    EXPECT_NE(slurp(back + "/config.json").find(c.line), std::string::npos) << slurp(back + "/config.json");
  }
}

// Scaling that config.json cannot say is named or refused, and biases are not lost.
TEST(DialectConfig, NothingIsLostOnTheWayBack) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", other = folder / "other.gguf", back = folder / "back";
  ASSERT_EQ(convert(kModels + "llama-scaled", gguf), "");
  ASSERT_EQ(convert(gguf, other, {"llama.rope.scaling.type=linear", "llama.rope.scaling.factor=2.0"}), "");
  EXPECT_NE(convert(other, back).find("scales rotary positions, and so does llama.rope.scaling (linear)"),
            std::string::npos)
      << convert(other, back);
  ASSERT_EQ(convert(kModels + "qwen2", gguf), "");
  ASSERT_EQ(convert(gguf, other,
                    {"qwen2.rope.scaling.type=longrope", "qwen2.rope.scaling.attn_factor=2.0",
                     "qwen2.rope.scaling.yarn_log_multiplier=0.1"}),
            "");
  ckpt_error err = {};
  IndexPointer index = open(other, &err, false);
  ckpt_losses losses = {};
  ckpt_index *described = nullptr;
  ASSERT_EQ(ckpt_index_new(&described, nullptr, "x", "safetensors", nullptr, &err), CKPT_OK);
  IndexPointer into(described, ckpt_index_free);
  losses.arena = &described->arena;
  described->metadata = index->metadata;
  described->n_metadata = index->n_metadata;
  ASSERT_EQ(ckpt_dialect_hf_files(described, index.get(), &losses, &err), CKPT_OK) << text_of(err);
  std::string lost;
  for (size_t i = 0; i < losses.n; i++) lost += losses.texts[i];
  described->metadata = nullptr;
  for (const char *key : {"4 keys", "rope.scaling.type", "rope.scaling.attn_factor"})  // the name of the model is one
    EXPECT_NE(lost.find(key), std::string::npos) << lost;
  ASSERT_EQ(convert(kModels + "llama-tied", gguf), "");
  ASSERT_EQ(convert(gguf, other, {}, nullptr, "blk.0.attn_q.bias"), "");
  EXPECT_NE(convert(other, back).find("blk.0.attn_q.bias is not: with attention_bias in config.json a llama has both"),
            std::string::npos)
      << convert(other, back);
}

}  // namespace
}  // namespace formats_testing
