// GGUF of Hugging Face models: tensor by tensor and key by key what llama.cpp's convert_hf_to_gguf makes of them
// (tests/data/make_dialect.py, which says with what), for every outtype; and what is refused.
#include <openssl/sha.h>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/index/index.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/";

std::string sha256_of(const std::vector<uint8_t> &bytes) {
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256(bytes.data(), bytes.size(), digest);
  std::string hex;
  for (uint8_t byte : digest) {
    char text[3];
    snprintf(text, sizeof text, "%02x", byte);
    hex += text;
  }
  return hex;
}

std::string bytes_of(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::vector<uint8_t> bytes(tensor->n_bytes);
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << text_of(err);
  return sha256_of(bytes);
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

std::string shape_of(const ckpt_tensor *tensor) {
  std::string text;
  for (uint32_t i = 0; i < tensor->rank; i++) text += (i == 0 ? "" : ",") + std::to_string(tensor->shape[i]);
  return text;
}

struct Golden {
  std::map<std::string, std::string> tensors;             // name to type, shape, digest
  std::vector<std::pair<std::string, std::string>> keys;  // key and value, in order
};

// By model and outtype. The names of the model, which the converter guesses from the folder's, and the tokenizer's keys
// have tests of their own.
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
    else if (cells[3].rfind("tokenizer.", 0) != 0)
      golden.keys.push_back({cells[3], cells[5]});
  }
  return all;
}

std::string upper(std::string text) {
  for (char &c : text) c = static_cast<char>(toupper(c));
  return text;
}

// A value as Python shows it.
void expect_value(const ckpt_index *index, const std::string &key, const std::string &wanted) {
  const ckpt_meta *meta = ckpt_index_meta(index, key.c_str());
  ASSERT_NE(meta, nullptr) << key;
  if (meta->typed == nullptr) {
    EXPECT_EQ("'" + std::string(meta->value) + "'", wanted) << key;
  } else if (meta->typed->type == CKPT_GGUF_F32) {
    EXPECT_EQ(strtof(meta->value, nullptr), strtof(wanted.c_str(), nullptr)) << key;
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
    for (uint32_t i = 0; i < index->n_metadata; i++)
      if (std::string(index->metadata[i].key).rfind("tokenizer.", 0) != 0) keys.push_back(index->metadata[i].key);
    for (const auto &[key, value] : golden.keys) {
      wanted.push_back(key);
      expect_value(index.get(), key, value);
    }
    EXPECT_EQ(keys, wanted);
    n++;
  }
  EXPECT_EQ(n, 20U);
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

// To GGUF and back is the identity where nothing is rounded; blocks become what they stand for.
TEST(Dialect, ComesBackAsItWas) {
  Folder folder;
  for (const char *model : {"llama-scaled", "llama-tied", "mistral", "gpt2"})
    for (const char *outtype : {"f32", "f16", "q8_0", "auto"}) {
      SCOPED_TRACE(std::string(model) + " " + outtype);
      const std::string gguf = folder / "x.gguf", back = folder / "back", again = folder / "again.gguf";
      const bool is_auto = strcmp(outtype, "auto") == 0;
      ASSERT_EQ(convert(kData + "dialect/" + model, gguf, is_auto ? nullptr : outtype), "");
      ASSERT_EQ(convert(gguf, back), "");
      EXPECT_TRUE(is_equal(digest_of(gguf, CKPT_F32), digest_of(back, CKPT_F32)));
      if (strcmp(outtype, "f32") == 0) {
        EXPECT_TRUE(is_equal(digest_of(gguf, CKPT_F32), digest_of(kData + "dialect/" + model, CKPT_F32)));
      }
      ASSERT_EQ(convert(gguf, again), "");
      EXPECT_TRUE(slurp(gguf) == slurp(again)); /* in its own dialect nothing is changed, whatever it is called by */
      ASSERT_EQ(convert(gguf, again, nullptr, true), "");
      EXPECT_TRUE(slurp(gguf) == slurp(again));
      ckpt_error err = {};
      IndexPointer named = open(gguf, &err, false), stored = open(gguf, &err);
      EXPECT_EQ(std::string(named->names), strcmp(model, "gpt2") == 0 ? "hf:gpt2/1" : "hf:llama/1");
      EXPECT_EQ(std::string(stored->names), "stored");
      std::filesystem::remove_all(back);
    }
}

// A file that its family's row does not fit keeps its names: nothing is guessed.
TEST(Dialect, WhatDoesNotFitKeepsItsNames) {
  Folder folder;
  const std::string gguf = folder / "x.gguf", other = folder / "other.gguf";
  ASSERT_EQ(convert(kData + "dialect/llama-scaled", gguf), "");
  for (const char *rule : {"s/attn_q/attn_qq/", "s/blk\\.1/blk.2/"}) {
    ckpt_convert_options options = {};
    const char *const rename[] = {rule, nullptr};
    ckpt_error err = {};
    options.struct_size = sizeof options;
    options.input = gguf.c_str();
    options.output = other.c_str();
    options.rename = rename;
    options.force = true;
    ckpt_digest digest;
    options.digest = &digest;
    ASSERT_EQ(ckpt_convert(&options, &err), CKPT_OK) << text_of(err);
    IndexPointer index = open(other, &err, false);
    EXPECT_EQ(std::string(index->names), "stored") << rule;
    EXPECT_TRUE(is_equal(digest, digest_of(other, CKPT_DTYPE_NONE))) << rule;
  }
}

// A copy of a model with another config.json, in which a text is replaced.
std::string with_config(const Folder &folder, const std::string &model, const std::string &from,
                        const std::string &to) {
  const std::string path = folder.path() + "/model";
  std::filesystem::remove_all(path);
  std::filesystem::copy(kData + "dialect/" + model, path, std::filesystem::copy_options::recursive);
  std::string config = slurp(path + "/config.json");
  const size_t at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) config.replace(at, from.size(), to);
  spill(path + "/config.json", config);
  return path;
}

TEST(Dialect, RefusesWhatHasNoPlace) {
  Folder folder;
  const std::string out = folder.path() + "/out.gguf";
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"\"model_type\": \"llama\"", "\"model_type\": \"unheard-of\"", "is of no family that is known"},
      {"LlamaForCausalLM", "LlamaForTokenClassification", "there is no GGUF of the class LlamaForTokenClassification"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 0", "have to be numbers above 0"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "5 heads of queries for 2 of keys"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 6", "64 rows are no pairs of rows of 6 heads"},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "has no place in a GGUF model of the family llama"},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "is missing: a model of the family llama has it"},
      {"\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\"", "scaled as 'spiral'"},
      {"\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5", "is none"},
      {"\"head_dim\": 16", "\"head_dim\": 15", "heads of an odd or unknown width"},
      {"\"vocab_size\": 280", "\"vocab_size\": 99999999999", "is a number of 32 bits"},
  };
  for (const auto &c : cases) {
    const std::string said = convert(with_config(folder, "llama-scaled", c.from, c.to), out);
    EXPECT_NE(said.find(c.message), std::string::npos) << c.to << ": " << said;
    EXPECT_FALSE(std::filesystem::exists(out)) << c.to;
  }
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
