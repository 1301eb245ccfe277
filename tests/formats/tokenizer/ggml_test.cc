// tokenizer.ggml.* keys: what is written of each kind, and that the structure read back, and the files printed of it,
// give the same ids.
#include "tests/formats/tokenizer/tokenizer_testing.h"

extern "C" {
#include "libckpt/base/little.h"
#include "libckpt/codec/gguf/value.h"
}

namespace formats_testing {
namespace {

// An index that describes, with a tokenizer's keys.
struct Keys {
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  ckpt_status status;

  explicit Keys(const ckpt_tokenizer *tokenizer, const char *pre = nullptr, uint32_t n_vocab = 0) {
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    EXPECT_EQ(ckpt_index_new(&index, nullptr, "made.gguf", "gguf", &options, &err), CKPT_OK);
    const ckpt_tokenizer_ggml_options how = {pre, n_vocab};
    status = ckpt_tokenizer_to_ggml(index, tokenizer, &how, &err);
  }
  Keys(const Keys &) = delete;
  ~Keys() { ckpt_index_free(index); }

  std::string text(const std::string &key) const {
    const ckpt_meta *meta = ckpt_index_meta(index, key.c_str());
    return meta == nullptr ? "(none)" : meta->value;
  }
  std::vector<std::string> texts(const std::string &key) const {
    const ckpt_meta *meta = ckpt_index_meta(index, key.c_str());
    std::vector<std::string> out;
    if (meta == nullptr || meta->typed == nullptr) return out;
    const uint8_t *at = meta->typed->bytes + 12;
    for (uint64_t n = ckpt_le64(meta->typed->bytes + 4); n-- > 0; at += 8 + ckpt_le64(at))
      out.emplace_back(reinterpret_cast<const char *>(at) + 8, ckpt_le64(at));
    return out;
  }
  std::vector<uint32_t> numbers(const std::string &key) const {
    const ckpt_meta *meta = ckpt_index_meta(index, key.c_str());
    std::vector<uint32_t> out;
    if (meta == nullptr || meta->typed == nullptr) return out;
    for (uint64_t i = 0; i < ckpt_le64(meta->typed->bytes + 4); i++)
      out.push_back(ckpt_le32(meta->typed->bytes + 12 + 4 * i));
    return out;
  }
};

const std::vector<std::string> kTexts = {"",
                                         " ",
                                         "Hello, world! It's 12345   spaces\n\n  here",
                                         "<s>special</s> <|im_start|>user",
                                         "naïve café 你好 🙂",
                                         "They'RE e\u0301 \u212b   ",
                                         "a\t\tb\r\n\r\nc",
                                         "\xff\xfe bytes",
                                         "<tool> x<mask>"};

class TokenizerGgml : public testing::TestWithParam<const char *> {};

// To keys and back, and from there to files and back: the same ids.
TEST_P(TokenizerGgml, KeepsIds) {
  Tool from(tokenizer_data() + GetParam());
  ASSERT_NE(from.encoder, nullptr);
  Keys keys(from.tokenizer);
  ASSERT_EQ(keys.status, CKPT_OK) << text_of(keys.err);
  ckpt_tokenizer *read = nullptr;
  ckpt_error err = {};
  ASSERT_EQ(ckpt_tokenizer_read(&read, keys.index, &err), CKPT_OK) << text_of(err);
  Tool back(read);
  ckpt_arena arena;
  ckpt_arena_init(&arena, 64 << 20);
  char *json, *config;
  size_t n_json, n_config;
  ASSERT_EQ(ckpt_tokenizer_print(&json, &n_json, &config, &n_config, read, &arena, &err), CKPT_OK) << text_of(err);
  ckpt_tokenizer *again = nullptr;
  ASSERT_EQ(ckpt_tokenizer_parse(&again, json, n_json, config, n_config, &err), CKPT_OK) << text_of(err);
  Tool printed(again);
  for (const std::string &text : kTexts)
    for (unsigned flags = 0; flags < 4; flags++) {
      const Ids ids = from.encode(text, flags);
      EXPECT_EQ(back.encode(text, flags), ids) << text;
      EXPECT_EQ(printed.encode(text, flags), ids) << text;
      EXPECT_EQ(back.decode(ids, false), from.decode(ids, false)) << text;
      EXPECT_EQ(printed.decode(ids, true), from.decode(ids, true)) << text;
    }
  ckpt_arena_free(&arena);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGgml, testing::Values("gpt2", "llama3", "gpt4o", "smollm", "llama2"),
                         [](const auto &one) { return std::string(one.param); });

TEST(TokenizerGgmlKeys, OfTheTestModel) {
  Tool tool(std::string(CKPT_TESTS_DIR) + "/data/llama-256");
  Keys keys(tool.tokenizer, nullptr, 1026);
  ASSERT_EQ(keys.status, CKPT_OK) << text_of(keys.err);
  EXPECT_EQ(keys.text("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(keys.text("tokenizer.ggml.pre"), "llama-bpe");
  EXPECT_EQ(keys.text("tokenizer.ggml.bos_token_id"), "1021");
  EXPECT_EQ(keys.text("tokenizer.ggml.eos_token_id"), "1022");
  EXPECT_EQ(keys.text("tokenizer.ggml.padding_token_id"), "1023");
  EXPECT_EQ(keys.text("tokenizer.ggml.unknown_token_id"), "(none)");
  EXPECT_EQ(keys.text("tokenizer.ggml.add_bos_token"), "true");
  EXPECT_EQ(keys.text("tokenizer.ggml.add_eos_token"), "false");  // ByteLevel says so
  EXPECT_EQ(keys.text("tokenizer.ggml.add_sep_token"), "false");  // BOS stands between two texts
  const auto tokens = keys.texts("tokenizer.ggml.tokens");
  const auto types = keys.numbers("tokenizer.ggml.token_type");
  ASSERT_EQ(tokens.size(), 1026u);
  ASSERT_EQ(types.size(), 1026u);
  EXPECT_EQ(tokens[1021], "<|begin_of_text|>");
  EXPECT_EQ(types[1021], 3u);
  EXPECT_EQ(tokens[1025], "[PAD1025]");
  EXPECT_EQ(types[1025], 5u);
  EXPECT_EQ(types[0], 1u);
  EXPECT_EQ(keys.texts("tokenizer.ggml.merges").size(), 765u);
  EXPECT_EQ(keys.texts("tokenizer.ggml.merges")[0], "h e");
}

TEST(TokenizerGgmlKeys, MoreTokensThanRowsAreRefused) {
  Tool tool(std::string(CKPT_TESTS_DIR) + "/data/llama-256");
  Keys keys(tool.tokenizer, nullptr, 1000);
  EXPECT_EQ(keys.status, CKPT_EFORMAT);
  EXPECT_NE(text_of(keys.err).find("ids up to 1023, and the model 1000 rows"), std::string::npos) << text_of(keys.err);
}

TEST(TokenizerGgmlKeys, AnUnknownWayOfCuttingNamesItsRegexAndPre) {
  Tool tool(tokenizer_data() + "behaviors");
  Keys keys(tool.tokenizer);
  EXPECT_EQ(keys.status, CKPT_EUNSUPPORTED);
  const std::string said = text_of(keys.err);
  EXPECT_NE(said.find("[aeiou] contiguous"), std::string::npos) << said;
  EXPECT_NE(said.find("pre=NAME"), std::string::npos) << said;
  Keys named(tool.tokenizer, "smollm");
  EXPECT_EQ(named.status, CKPT_OK);
  EXPECT_EQ(named.text("tokenizer.ggml.pre"), "smollm");
  EXPECT_EQ(named.index->n_notes, 0u);
}

TEST(TokenizerGgmlKeys, APreThatIsNotTheTokenizersIsSaid) {
  Tool tool(tokenizer_data() + "llama3");
  Keys named(tool.tokenizer, "smollm"), same(tool.tokenizer, "llama-bpe");
  EXPECT_EQ(named.text("tokenizer.ggml.pre"), "smollm");
  ASSERT_EQ(named.index->n_notes, 1u);
  EXPECT_STREQ(named.index->notes[0].text,
               "tokenizer.ggml.pre is smollm, as asked, and the tokenizer cuts text as llama-bpe");
  EXPECT_EQ(named.index->notes[0].kind, CKPT_NOTE_DOUBT);
  EXPECT_EQ(same.index->n_notes, 0u);
}

TEST(TokenizerGgmlKeys, NamesOfSplits) {
  const std::map<std::string, std::string> names = {{"gpt2", "gpt-2"},    {"llama3", "llama-bpe"},
                                                    {"qwen2", "qwen2"},   {"gpt4o", "gpt-4o"},
                                                    {"smollm", "smollm"}, {"gpt2-slow", "gpt-2"}};
  for (const auto &[folder, name] : names) {
    Tool tool(tokenizer_data() + folder);
    ASSERT_NE(tool.tokenizer, nullptr);
    EXPECT_STREQ(tool.tokenizer->pre, name.c_str()) << folder;
  }
  Tool prefixed(tokenizer_data() + "gpt2-prefix");  // llama.cpp puts no space before text of this kind
  EXPECT_EQ(prefixed.tokenizer->pre, nullptr);
}

}  // namespace
}  // namespace formats_testing
