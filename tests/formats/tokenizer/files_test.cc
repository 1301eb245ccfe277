// Tokenizers in the files of other programs: sentencepiece's own model, and vocabularies that llama.cpp's
// converter wrote (tests/data/make_tokenizer_files.py).
#include <jansson.h>

#include "tests/formats/tokenizer/tokenizer_testing.h"

namespace formats_testing {
namespace {

class TokenizerFiles : public testing::TestWithParam<const char *> {};

TEST_P(TokenizerFiles, GiveTheSameIds) {
  std::ifstream lines(tokenizer_data() + "files.jsonl");
  std::string line;
  Tool tool(tokenizer_data() + GetParam());
  ASSERT_NE(tool.encoder, nullptr);
  size_t n = 0;
  while (std::getline(lines, line)) {
    json_t *row = json_loads(line.c_str(), 0, nullptr);
    ASSERT_NE(row, nullptr);
    if (strcmp(json_string_value(json_object_get(row, "tokenizer")), GetParam()) == 0) {
      const std::string text = unhex(json_string_value(json_object_get(row, "text")));
      EXPECT_EQ(tool.encode(text, 0), ids_of(json_object_get(row, "ids"))) << text;
      EXPECT_EQ(tool.decode(tool.encode(text, CKPT_TEXT_SPECIAL), true), text);
      n++;
    }
    json_decref(row);
  }
  EXPECT_GE(n, 9u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerFiles, testing::Values("spm", "llama2.gguf", "llama-256.gguf"),
                         [](const auto &one) {
                           std::string name = one.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
                           return name;
                         });

// The keys that we make are those of the converter: names, types, bytes, order. other: the id of a token whose type we
// say otherwise; llama.cpp would not find it in text.
void expect_keys(const std::string &folder, const std::string &file, size_t other = SIZE_MAX) {
  ckpt_error err = {};
  Tool tool(folder);
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  ckpt_index *made = nullptr, *wanted = nullptr;
  ASSERT_EQ(ckpt_open(&wanted, file.c_str(), &options, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(ckpt_index_new(&made, nullptr, "made.gguf", "gguf", &options, &err), CKPT_OK);
  const ckpt_tokenizer_ggml_options how = {};
  EXPECT_EQ(ckpt_tokenizer_to_ggml(made, tool.tokenizer, &how, &err), CKPT_OK) << text_of(err);
  uint32_t at = 0;
  for (uint32_t i = 0; i < wanted->n_metadata; i++) {
    const ckpt_meta &meta = wanted->metadata[i];
    if (strncmp(meta.key, "tokenizer.", 10) != 0) continue;
    ASSERT_LT(at, made->n_metadata) << meta.key;
    const ckpt_meta &ours = made->metadata[at++];
    EXPECT_STREQ(ours.key, meta.key);
    ASSERT_EQ(ours.typed == nullptr, meta.typed == nullptr) << meta.key;
    if (meta.typed == nullptr) {
      EXPECT_STREQ(ours.value, meta.value) << meta.key;
      continue;
    }
    std::string bytes(meta.typed->n_bytes, '\0');
    if (meta.typed->bytes != nullptr)
      bytes.assign(reinterpret_cast<const char *>(meta.typed->bytes), meta.typed->n_bytes);
    else
      ASSERT_EQ(ckpt_source_read(wanted->source, meta.typed->file, meta.typed->offset, &bytes[0], bytes.size(), &err),
                CKPT_OK);
    EXPECT_EQ(ours.typed->type, meta.typed->type) << meta.key;
    std::string made_bytes(reinterpret_cast<const char *>(ours.typed->bytes), ours.typed->n_bytes);
    if (other != SIZE_MAX && strcmp(meta.key, "tokenizer.ggml.token_type") == 0) {
      EXPECT_EQ(bytes[12 + 4 * other], CKPT_TOKEN_NORMAL);
      EXPECT_EQ(made_bytes[12 + 4 * other], CKPT_TOKEN_USER_DEFINED);
      made_bytes[12 + 4 * other] = CKPT_TOKEN_NORMAL;
    }
    EXPECT_TRUE(bytes == made_bytes) << meta.key;
  }
  EXPECT_EQ(at, made->n_metadata);
  ckpt_index_free(made);
  ckpt_index_free(wanted);
}

TEST(TokenizerFilesKeys, OfByteLevelAreTheConverters) {
  expect_keys(std::string(CKPT_TESTS_DIR) + "/data/llama-256", tokenizer_data() + "llama-256.gguf");
}

TEST(TokenizerFilesKeys, OfSentencepieceAreTheConverters) {
  expect_keys(tokenizer_data() + "spm", tokenizer_data() + "llama2.gguf", 3);
}

// Cut or changed anywhere, tokenizer.model is refused or read, and never more.
TEST(TokenizerFilesModel, CutAndChanged) {
  Folder folder;
  const std::string whole = slurp(tokenizer_data() + "spm/tokenizer.model"), path = folder.path() + "/tokenizer.model";
  for (size_t n = 0; n < whole.size(); n += 37) {
    std::string changed = whole;
    changed[n] = static_cast<char>(changed[n] ^ 0x55);
    for (const std::string &bytes : {whole.substr(0, n), changed}) {
      spill(path, bytes);
      ckpt_error err = {};
      ckpt_tokenizer *tokenizer = nullptr;
      const ckpt_status status = ckpt_tokenizer_open(&tokenizer, path.c_str(), &err);
      EXPECT_NE(status, CKPT_EINTERNAL);
      EXPECT_EQ(status == CKPT_OK, tokenizer != nullptr);
      ckpt_tokenizer_free(tokenizer);
    }
  }
}

TEST(TokenizerFilesModel, AUnigramModelIsNamed) {
  Folder folder;
  // one piece "a", and a trainer_spec that says Unigram
  const std::string model = std::string(
                                "\x0a\x03\x0a\x01"
                                "a",
                                5) +
                            std::string("\x12\x02\x18\x01", 4);
  spill(folder.path() + "/tokenizer.model", model);
  ckpt_error err = {};
  ckpt_tokenizer *tokenizer = nullptr;
  EXPECT_EQ(ckpt_tokenizer_open(&tokenizer, folder.path().c_str(), &err), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err).find("of type 1 (2, BPE, is read)"), std::string::npos) << text_of(err);
}

TEST(TokenizerFilesOpen, WhatHasNoneSaysWhatIsLookedFor) {
  ckpt_error err = {};
  ckpt_tokenizer *tokenizer = nullptr;
  const std::string file = std::string(CKPT_TESTS_DIR) + "/data/gguf";
  for (const auto &entry : std::filesystem::directory_iterator(file)) {
    if (entry.path().extension() != ".gguf") continue;
    err = {};
    if (ckpt_tokenizer_open(&tokenizer, entry.path().c_str(), &err) == CKPT_ENOTFOUND) break;
    ckpt_tokenizer_free(tokenizer);
  }
  EXPECT_NE(text_of(err).find("no tokenizer (looked for tokenizer.json"), std::string::npos) << text_of(err);
  err = {};
  EXPECT_EQ(ckpt_tokenizer_open(&tokenizer, "/nonexistent", &err), CKPT_ENOTFOUND) << text_of(err);
}

}  // namespace
}  // namespace formats_testing
