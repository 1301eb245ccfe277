// GGUF of Hugging Face models: tensor by tensor and key by key what llama.cpp's convert_hf_to_gguf makes of them
// (tests/data/make_dialect.py, which says with what), for every outtype; and what is refused.
#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/index/index.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/";

std::string bytes_of(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::vector<uint8_t> bytes(tensor->n_bytes);
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << text_of(err);
  return sha256_of(bytes.data(), bytes.size());
}

// What a conversion says: "" where it is done.
std::string convert(const std::string &input, const std::string &output, const char *dtype = nullptr,
                    bool stored_names = false) {
  ckpt_convert_options options = {};
  const ckpt_cast_rule rule = {nullptr, dtype == nullptr ? CKPT_DTYPE_NONE : ckpt_dtype_parse(dtype)};
  ckpt_error err = {};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  options.casts = &rule;
  options.n_casts = rule.dtype == CKPT_DTYPE_NONE ? 0 : 1;
  options.stored_names = stored_names;
  options.force = true;
  return ckpt_convert(&options, &err) == CKPT_OK ? "" : text_of(err);
}

// What a conversion says that renames by a rule, and leaves a tensor out.
std::string renamed(const std::string &input, const std::string &output, const std::string &rule,
                    const char *without = nullptr, ckpt_digest *digest = nullptr) {
  const char *const rename[] = {rule.c_str(), nullptr}, *const exclude[] = {without, nullptr};
  ckpt_convert_options options = {};
  ckpt_error err = {};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  options.rename = rename;
  options.exclude = exclude;
  options.digest = digest;
  options.force = true;
  return ckpt_convert(&options, &err) == CKPT_OK ? "" : text_of(err);
}

std::string shape_of(const ckpt_tensor *tensor) {
  std::string text;
  for (uint32_t i = 0; i < tensor->rank; i++) text += (i == 0 ? "" : ",") + std::to_string(tensor->shape[i]);
  return text;
}

struct Golden {
  std::map<std::string, std::string> tensors;             // name to type, shape, digest
  std::vector<std::pair<std::string, std::string>> keys;  // key and value, in order
};

// By model and outtype. The names of the model, which the converter guesses from the folder's, have tests of their own.
std::map<std::pair<std::string, std::string>, Golden> goldens() {
  std::map<std::pair<std::string, std::string>, Golden> all;
  std::ifstream in(kData + "dialect.tsv");
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    Golden &golden = all[{cells[0], cells[1]}];
    if (cells[2] == "tensor")
      golden.tensors[cells[3]] = cells[4] + " " + cells[5] + " " + cells[6];
    else
      golden.keys.push_back({cells[3], cells[5]});
  }
  return all;
}

std::string upper(std::string text) {
  for (char &c : text) c = static_cast<char>(toupper(c));
  return text;
}

// A text as Python shows it; none here holds what is not printed.
std::string python_text(const std::string &text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (char c : text) out += (c == quote || c == '\\' ? "\\" : "") + std::string(1, c);
  return out + quote;
}

// An array as the golden has it: "2 items, sha256 of Python's list".
std::string array_text(const ckpt_index *index, const ckpt_typed_value *value) {
  std::vector<uint8_t> bytes(value->n_bytes);
  ckpt_error err = {};
  if (value->bytes != nullptr)
    memcpy(bytes.data(), value->bytes, bytes.size());
  else
    EXPECT_EQ(ckpt_source_read(index->source, value->file, value->offset, bytes.data(), bytes.size(), &err), CKPT_OK);
  const bool has_texts = ckpt_le32(bytes.data()) == CKPT_GGUF_STRING;
  const uint64_t n = ckpt_le64(bytes.data() + 4);
  std::string list = "[";
  size_t at = 12;
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t n_bytes = has_texts ? ckpt_le64(bytes.data() + at) : 4;
    at += has_texts ? 8 : 0;
    list += i == 0 ? "" : ", ";
    list += has_texts ? python_text(std::string(reinterpret_cast<char *>(bytes.data()) + at, n_bytes))
                      : std::to_string(static_cast<int32_t>(ckpt_le32(bytes.data() + at)));
    at += n_bytes;
  }
  list += "]";
  return std::to_string(n) + " items, sha256 " + sha256_of(list.data(), list.size());
}

// A value as Python shows it.
void expect_value(const ckpt_index *index, const std::string &key, const std::string &wanted) {
  const ckpt_meta *meta = ckpt_index_meta(index, key.c_str());
  ASSERT_NE(meta, nullptr) << key;
  if (meta->typed == nullptr) {
    EXPECT_EQ("'" + std::string(meta->value) + "'", wanted) << key;
  } else if (meta->typed->type == CKPT_GGUF_F32) {
    EXPECT_EQ(strtof(meta->value, nullptr), strtof(wanted.c_str(), nullptr)) << key;
  } else if (meta->typed->type == CKPT_GGUF_BOOL) {
    EXPECT_EQ(meta->value, std::string(wanted == "True" ? "true" : "false")) << key;
  } else if (meta->typed->type == CKPT_GGUF_ARRAY) {
    EXPECT_EQ(array_text(index, meta->typed), wanted) << key;
  } else {
    EXPECT_EQ(meta->value, wanted) << key;
  }
}

TEST(Dialect, IsWhatTheConverterMakes) {
  Folder folder;
  size_t n = 0;
  for (const auto &[which, golden] : goldens()) {
    const auto &[model, outtype] = which;
    SCOPED_TRACE(model + " " + outtype);
    const std::string path = folder.path() + "/" + model + "-" + outtype + ".gguf";
    ASSERT_EQ(convert(kData + "dialect/" + model, path, outtype == "auto" ? nullptr : outtype.c_str()), "");
    ckpt_error err = {};
    IndexPointer index = open(path, &err);
    ASSERT_TRUE(index) << text_of(err);
    std::map<std::string, std::string> made;
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      const ckpt_tensor *tensor = &index->tensors[i];
      made[tensor->name] = upper(ckpt_dtype_name(static_cast<ckpt_dtype>(tensor->dtype))) + " " + shape_of(tensor) +
                           " " + bytes_of(index.get(), tensor);
    }
    EXPECT_EQ(made, golden.tensors);
    std::vector<std::string> keys, wanted;
    for (uint32_t i = 0; i < index->n_metadata; i++) keys.push_back(index->metadata[i].key);
    for (const auto &[key, value] : golden.keys) {
      wanted.push_back(key);
      expect_value(index.get(), key, value);
    }
    const ckpt_meta *pre = ckpt_index_meta(index.get(), "tokenizer.ggml.pre");
    ASSERT_NE(pre, nullptr);
    if (strcmp(pre->value, "llama-bpe") == 0) { /* llama.cpp would add a BOS that the tokenizer does not */
      wanted.push_back("tokenizer.ggml.add_bos_token");
      expect_value(index.get(), wanted.back(), "False");
    }
    if (model == "gpt-neox") { /* the converter leaves it out */
      std::sort(keys.begin(), keys.end());
      std::sort(wanted.begin(), wanted.end());
      wanted.insert(std::lower_bound(wanted.begin(), wanted.end(), "general.file_type"), "general.file_type");
    }
    EXPECT_EQ(keys, wanted);
    n++;
  }
  EXPECT_EQ(n, 45U);
}

// A folder that is called by dots has the name that it has.
TEST(Dialect, TheNameOfDots) {
  Folder folder;
  for (const char *path : {"dialect/llama-scaled/.", "dialect/llama-scaled/./", "dialect/llama-scaled"}) {
    ASSERT_EQ(convert(kData + path, folder / "x.gguf"), "");
    ckpt_error err = {};
    IndexPointer index = open(folder / "x.gguf", &err);
    ASSERT_TRUE(index) << text_of(err);
    EXPECT_STREQ(ckpt_index_meta(index.get(), "general.name")->value, "Llama Scaled") << path;
  }
}

ckpt_digest digest_of(const std::string &path, ckpt_dtype cast) {
  ckpt_error err = {};
  ckpt_digest digest = {};
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.cast = cast;
  IndexPointer index = open(path, &err, false);
  EXPECT_TRUE(index) << text_of(err);
  if (index != nullptr) {
    EXPECT_EQ(ckpt_hash(index.get(), &options, &digest, &err), CKPT_OK) << text_of(err);
  }
  return digest;
}

bool is_equal(const ckpt_digest &a, const ckpt_digest &b) { return memcmp(&a, &b, sizeof a) == 0; }

// To GGUF and back is the identity where nothing is rounded; blocks become what they stand for. Norms of Gemma in f16
// are rounded, since GGUF has their sums with 1.
TEST(Dialect, ComesBackAsItWas) {
  const struct {
    const char *model, *family;
    bool is_rounded = false;
  } models[] = {{"llama-scaled", "llama"}, {"llama-tied", "llama"},    {"mistral", "llama"},
                {"gpt2", "gpt2"},          {"qwen2", "qwen2"},         {"qwen3", "qwen3"},
                {"mixtral", "mixtral"},    {"gemma2", "gemma2", true}, {"gpt-neox", "gpt_neox"}};
  Folder folder;
  for (const auto &[model, family, is_rounded] : models)
    for (const char *outtype : {"f32", "f16", "q8_0", "auto"}) {
      SCOPED_TRACE(std::string(model) + " " + outtype);
      const std::string gguf = folder / "x.gguf", back = folder / "back", again = folder / "again.gguf";
      const bool is_auto = strcmp(outtype, "auto") == 0;
      ASSERT_EQ(convert(kData + "dialect/" + model, gguf, is_auto ? nullptr : outtype), "");
      ASSERT_EQ(convert(gguf, back), "");
      EXPECT_TRUE(is_equal(digest_of(gguf, CKPT_F32), digest_of(back, CKPT_F32)));
      if (strcmp(outtype, "f32") == 0 && !is_rounded) {
        EXPECT_TRUE(is_equal(digest_of(gguf, CKPT_F32), digest_of(kData + "dialect/" + model, CKPT_F32)));
      }
      ASSERT_EQ(convert(gguf, again), "");
      EXPECT_TRUE(slurp(gguf) == slurp(again)); /* in its own dialect nothing is changed, whatever it is called by */
      ASSERT_EQ(convert(gguf, again, nullptr, true), "");
      EXPECT_TRUE(slurp(gguf) == slurp(again));
      ckpt_error err = {};
      IndexPointer named = open(gguf, &err, false), stored = open(gguf, &err);
      EXPECT_EQ(std::string(named->names), "hf:" + std::string(family) + "/1");
      EXPECT_EQ(std::string(stored->names), "stored");
      std::filesystem::remove_all(back);
    }
}

// A file that its family's row does not fit keeps its names: nothing is guessed, and no folder is made of it.
TEST(Dialect, WhatDoesNotFitKeepsItsNames) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", other = folder / "other.gguf", back = folder / "back";
  ASSERT_EQ(convert(kData + "dialect/llama-scaled", gguf), "");
  const std::map<std::string, std::string> rules = {
      {"s/attn_q/attn_qq/", "tensor 'blk.0.attn_qq.weight': is none of a llama of 2 layers"},
      {"s/blk\\.1/blk.2/", "tensor 'blk.2.attn_k.weight': is none of a llama of 2 layers"}};
  for (const auto &[rule, message] : rules) {
    ckpt_digest digest;
    ckpt_error err = {};
    ASSERT_EQ(renamed(gguf, other, rule, nullptr, &digest), "");
    IndexPointer index = open(other, &err, false);
    EXPECT_EQ(std::string(index->names), "stored") << rule;
    EXPECT_TRUE(is_equal(digest, digest_of(other, CKPT_DTYPE_NONE))) << rule;
    const std::string said = convert(other, back);
    EXPECT_NE(said.find(message), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(back)) << rule;
    EXPECT_EQ(convert(other, back, nullptr, true), "");
    std::filesystem::remove_all(back);
  }
}

// A copy of a model with another config.json, or other file, in which a text is replaced.
std::string with_config(const Folder &folder, const std::string &model, const std::string &from, const std::string &to,
                        const std::string &file = "/config.json") {
  const std::string path = folder.path() + "/model";
  std::filesystem::remove_all(path);
  std::filesystem::copy(kData + "dialect/" + model, path, std::filesystem::copy_options::recursive);
  std::string config = slurp(path + file);
  const size_t at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) config.replace(at, from.size(), to);
  spill(path + file, config);
  return path;
}

// One defect a case: of a model, where a text of its config.json is another.
TEST(Dialect, RefusesWhatHasNoPlace) {
  Folder folder;
  const std::string out = folder.path() + "/out.gguf";
  const struct {
    const char *from, *to, *message, *model = "llama-scaled";
  } cases[] = {
      {"\"model_type\": \"llama\"", "\"model_type\": \"unheard-of\"", "is of no family that is known"},
      {"LlamaForCausalLM", "LlamaForTokenClassification", "there is no GGUF of the class LlamaForTokenClassification"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 0", "have to be numbers above 0"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "5 heads of queries for 2 of keys"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 6",
       "its shape is [64, 64], config.json says [64, 96] (hidden_size, num_attention_heads*head_dim)"},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "has no place in a GGUF model of the family llama"},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "is missing: a model of the family llama has it"},
      {"\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\"", "scaled as 'spiral'"},
      {"\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5", "no llama3 scaling goes by"},
      {"\"head_dim\": 16", "\"head_dim\": 15", "heads of an odd or unknown width"},
      {"\"head_dim\": 16", "\"head_dim\": 32", "its shape is [32, 64], config.json says [64, 64]"},
      {"\"vocab_size\": 280", "\"vocab_size\": 279", "its shape is [280, 64], config.json says [279, 64]"},
      {"\"vocab_size\": 280", "\"vocab_size\": 281", "its shape is [280, 64], config.json says [281, 64]"},
      {"\"num_key_value_heads\": 2,", "", "its shape is [32, 64], config.json says [64, 64]"},
      {"\"intermediate_size\": 96", "\"intermediate_size\": 64", "its shape is [64, 96], config.json says [64, 64]"},
      {"\"max_position_embeddings\": 128", "\"max_position_embeddings\": 99999999999", "is a number of 32 bits"},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "computes a llama with \"silu\""},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.5", "0.5 of a head rotates"},
      {"\"num_local_experts\": 4", "\"num_local_experts\": 0", "have to be numbers above 0", "mixtral"},
      {"\"num_local_experts\": 4", "\"num_local_experts\": 3", "experts.3.w2.weight': has no place", "mixtral"},
      {"\"num_local_experts\": 4", "\"num_local_experts\": 5", "is missing: a model of the family mixtral", "mixtral"},
      {"\"num_local_experts\": 4", "\"num_local_experts\": 4000000000", "says 4000000000, and there are", "mixtral"},
      {"\"attn_logit_softcapping\": 50.0", "\"attn_logit_softcapping\": null", "is null", "gemma2"},
      {"\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": 2.0", "scaled as 'linear'", "gemma2"},
      {"\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.5", "1.5 of a head of 16", "gpt-neox"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "192 rows are no q, k and v of 5", "gpt-neox"},
  };
  for (const auto &c : cases) {
    const std::string said = convert(with_config(folder, c.model, c.from, c.to), out);
    EXPECT_NE(said.find(c.message), std::string::npos) << c.to << ": " << said;
    EXPECT_FALSE(std::filesystem::exists(out)) << c.to;
  }
}

// The head has as many rows as the vocabulary, whichever family's row says it.
TEST(Dialect, RefusesAHeadOfAnotherVocabulary) {
  Folder folder;
  const std::map<std::string, std::string> rules = {
      {"llama-tied", "s/^model.layers.0.mlp.gate_proj.weight$/lm_head.weight/"},
      {"gpt2", "s/^transformer.h.0.mlp.c_fc.weight$/lm_head.weight/"},
      {"gpt-neox", "s/^gpt_neox.layers.0.mlp.dense_h_to_4h.weight$/embed_out.weight/"}};
  for (const auto &[model, rule] : rules) {
    const std::string tied = "\"tie_word_embeddings\": true", untied = "\"tie_word_embeddings\": false";
    const std::string other = folder / ("other-" + model), out = folder / "out.gguf";
    const std::string input = with_config(folder, model, model == "gpt-neox" ? untied : tied, untied);
    ASSERT_EQ(renamed(input, other, rule, model == "gpt-neox" ? "embed_out.weight" : nullptr), "");
    const std::string said = convert(other, out);
    EXPECT_NE(said.find("(vocab_size, "), std::string::npos) << model << ": " << said;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

// Mistral's class has no biases, whatever its config says: they are not run, and not looked for. Llama's has them.
TEST(Dialect, BiasesAreThoseOfTheClass) {
  Folder folder;
  const std::string out = folder / "out.gguf", biased = folder / "biased", head = "\"head_dim\":";
  const std::string key = "\"attention_bias\": ", with_bias = key + "true, " + head;
  const std::string rule = "s/^model.layers.0.input_layernorm.weight$/model.layers.0.self_attn.o_proj.bias/";
  EXPECT_EQ(convert(with_config(folder, "mistral", head, with_bias), out), "");
  const std::string none = convert(with_config(folder, "llama-scaled", key + "false", key + "true"), out);
  EXPECT_NE(none.find("q_proj.bias': is missing"), std::string::npos) << none;
  ASSERT_EQ(renamed(with_config(folder, "mistral", head, with_bias), biased, rule), "");
  const std::string extra = convert(biased, out);
  EXPECT_NE(extra.find("o_proj.bias': is no part of the model that config.json describes"), std::string::npos) << extra;
}

// Without a number of heads of keys nobody knows the order of their rows, but where transformers has a default.
TEST(Dialect, HeadsOfKeysAreNotGuessed) {
  Folder folder;
  const std::string out = folder / "out.gguf", key = "\"num_key_value_heads\": ";
  for (const auto &[model, n] : std::map<std::string, std::string>{{"mixtral", "2,"}, {"mistral", "1,"}}) {
    const std::string said = convert(with_config(folder, model, key + n, ""), out);
    EXPECT_NE(said.find("config.json does not say how long an axis is (num_key_value_heads*"), std::string::npos)
        << said;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  const std::string said = convert(with_config(folder, "gemma2", key + "2,", ""), out);  // 4, and the tensors have 2
  EXPECT_NE(said.find("config.json says"), std::string::npos) << said;
}

// llama.cpp takes a window of 4096 positions where no key says one, as does transformers; without one it is the
// context.
TEST(Dialect, AWindowIsAlwaysStated) {
  Folder folder;
  const std::map<std::string, uint32_t> windows = {
      {"\"sliding_window\": 32,", 32}, {"\"sliding_window\": null,", 128}, {"", 4096}};
  for (const auto &[line, n] : windows) {
    const std::string out = folder / "out.gguf";
    ASSERT_EQ(convert(with_config(folder, "gemma2", "\"sliding_window\": 32,", line), out), "") << line;
    ckpt_error err = {};
    IndexPointer index = open(out, &err);
    ASSERT_TRUE(index) << text_of(err);
    const ckpt_meta *meta = ckpt_index_meta(index.get(), "gemma2.attention.sliding_window");
    ASSERT_NE(meta, nullptr) << line;
    EXPECT_EQ(std::string(meta->value), std::to_string(n)) << line;
  }
}

// The same of the tokenizer beside it; what tests/formats/tokenizer/hostile_test.cc has reaches who converts.
TEST(Dialect, RefusesTokenizersThatContradict) {
  Folder folder;
  const std::string out = folder.path() + "/out.gguf";
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"\"Ġtens\": 279", "\"Ġtens\": 278", "two"},
      {"\"Ġtens\": 279", "\"or\": 279", "'or' has two ids"},
      {"\"Ġtens\": 279", "\"Ġtens\": 280", "ids up to 280, and the model 280 rows"},
      {"\"h\",\n        \"e\"", "\"h\",\n        \"unheard-of\"", "unheard-of"},
  };
  for (const auto &c : cases) {
    const std::string said = convert(with_config(folder, "llama-scaled", c.from, c.to, "/tokenizer.json"), out);
    EXPECT_NE(said.find(c.message), std::string::npos) << c.to << ": " << said;
    EXPECT_NE(said.find("token"), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(out)) << c.to;
  }
  const std::string model = with_config(folder, "llama-scaled", "\"vocab_size\"", "\"vocab_size\"");
  std::filesystem::remove(model + "/tokenizer.json");
  spill(model + "/tokenizer.model", std::string(10000, '\x0b')); /* groups in groups */
  const std::string said = convert(model, out);
  EXPECT_NE(said.find("tokenizer.model"), std::string::npos) << said;
}

// A GGUF file with other values of metadata.
std::string with_metadata(const std::string &gguf, const std::string &out, const std::vector<std::string> &values) {
  std::vector<const char *> set;
  for (const std::string &value : values) set.push_back(value.c_str());
  set.push_back(nullptr);
  ckpt_convert_options options = {};
  ckpt_error err = {};
  options.struct_size = sizeof options;
  options.input = gguf.c_str();
  options.output = out.c_str();
  const ckpt_format_value edit = {"set", 0, nullptr, set.data()};
  options.values = &edit;
  options.n_values = 1;
  options.force = true;
  EXPECT_EQ(ckpt_convert(&options, &err), CKPT_OK) << text_of(err);
  return out;
}

// The way back: metadata that is not that of the tensors makes no folder.
TEST(Dialect, NoFolderOfMetadataThatLies) {
  Folder folder;
  const std::string edited = folder / "edited.gguf", back = folder / "back";
  const struct {
    const char *model, *value, *message;
  } cases[] = {
      {"llama-scaled", "llama.block_count=0", "have to be above 0"},
      {"llama-scaled", "llama.block_count=1", "tensor 'blk.1.attn_k.weight': is none of a llama of 1 layers"},
      {"llama-scaled", "llama.block_count=3", "tensor 'blk.2.attn_q.weight': is missing: a llama of 3 layers has it"},
      {"llama-scaled", "llama.block_count=4000000000", "tensor 'blk.2.attn_q.weight': is missing"},
      {"llama-scaled", "llama.attention.head_count=0", "have to be above 0"},
      {"llama-scaled", "llama.attention.head_count=5", "its shape is none for 5 heads"},
      {"llama-scaled", "llama.attention.head_count=2", "its shape is [64, 64], the file's metadata says [64, 32]"},
      {"llama-scaled", "llama.attention.key_length=8", "the file's metadata says"},
      {"llama-scaled", "llama.embedding_length=128", "the file's metadata says"},
      {"llama-scaled", "llama.feed_forward_length=95", "the file's metadata says [64, 95]"},
      {"llama-scaled", "llama.vocab_size=281", "the file's metadata says [281, 64]"},
      {"mixtral", "llama.expert_count=3", "its shape is none for 4 heads, 2 of keys, 3 experts"},
      {"gpt-neox", "gptneox.attention.head_count=7", "its shape is none for 7 heads"},
  };
  for (const auto &c : cases) {
    SCOPED_TRACE(c.value);
    const std::string gguf = folder.path() + "/" + c.model + ".gguf";
    if (!std::filesystem::exists(gguf)) {
      ASSERT_EQ(convert(kData + "dialect/" + c.model, gguf), "");
    }
    const std::string said = convert(with_metadata(gguf, edited, {c.value}), back);
    EXPECT_NE(said.find(c.message), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(back));
  }
}

// Bytes of a GGUF file: another text in place of one of the same length.
TEST(Dialect, NoFolderOfTensorsAndTokensThatContradict) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", edited = folder / "edited.gguf", back = folder / "back";
  ASSERT_EQ(convert(kData + "dialect/llama-scaled", gguf), "");
  const std::string whole = slurp(gguf);
  auto text = [](const std::string &x) {
    std::string length(8, '\0');
    length[0] = static_cast<char>(x.size());
    return length + x;
  };
  const std::string rank("\1\0\0\0", 4), eight("\10\0\0\0\0\0\0\0", 8), four("\4\0\0\0\0\0\0\0", 8);
  const struct {
    std::string from, to, message;
  } cases[] = {
      {"rope_freqs.weight" + rank + eight, "rope_freqs.weight" + rank + four, "4 rotary factors"},
      {text("Ġand"), text("Ġtha"), "merge"},
      {text("Ġc"), text("Ġa"), "'Ġa'"},
  };
  for (const auto &c : cases) {
    std::string bytes = whole;
    const size_t at = bytes.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.message;
    bytes.replace(at, c.from.size(), c.to);
    spill(edited, bytes);
    const std::string said = convert(edited, back);
    EXPECT_NE(said.find(c.message), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(back)) << c.message;
  }
}

// How a model is sampled comes back in its own file.
TEST(Dialect, SamplingComesBack) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", back = folder / "back";
  ASSERT_EQ(convert(kData + "dialect/llama-tied", gguf), "");
  ASSERT_EQ(convert(gguf, back), "");
  const std::string text = slurp(back + "/generation_config.json");
  for (const char *line : {"\"temperature\": 0.75", "\"top_p\": 0.9", "\"do_sample\": true", "\"eos_token_id\": 1"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
}

// Under the stored names nothing is known, and nothing is changed.
TEST(Dialect, StoredNamesAreWrittenAsTheyAre) {
  Folder folder;
  const std::string out = folder.path() + "/out.gguf";
  ASSERT_EQ(convert(kData + "dialect/llama-scaled", out, nullptr, true), "");
  ckpt_error err = {};
  IndexPointer index = open(out, &err), from = open(kData + "dialect/llama-scaled", &err);
  ASSERT_TRUE(index && from) << text_of(err);
  EXPECT_EQ(names_of(index.get()), names_of(from.get()));
  EXPECT_EQ(ckpt_index_meta(index.get(), "general.architecture"), nullptr);
}

}  // namespace
}  // namespace formats_testing
