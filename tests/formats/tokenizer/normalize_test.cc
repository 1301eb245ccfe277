// Unicode's forms, made segment by segment, against utf8proc on the whole text; and where bytes came from.
#include <random>

#include "tests/formats/tokenizer/tokenizer_testing.h"

extern "C" {
#include <utf8proc.h>
}

namespace formats_testing {
namespace {

std::string utf8(uint32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  return std::string(reinterpret_cast<char *>(bytes), static_cast<size_t>(n));
}

// A tokenizer of all bytes and one normalizer, so that decoding its ids gives the normalized text; before the bytes,
// `pre` cuts, and m is merged with the first bytes of U+00BD and U+2167 (256, 257).
std::string json_of(const std::string &normalizer, const std::string &pre = "") {
  std::string vocab;
  for (uint32_t byte = 0, next = 256; byte < 256; byte++) {
    const bool is_printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string letter = utf8(is_printed ? byte : next++);
    if (letter == "\"" || letter == "\\") letter = "\\" + letter;
    vocab += (byte == 0 ? "\"" : ",\"") + letter + "\":" + std::to_string(byte);
  }
  return R"({"normalizer":)" + normalizer + R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + pre +
         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
         R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
         vocab + R"(,"m\u00c2":256,"m\u00e2":257},"merges":["m \u00c2","m \u00e2"]}})";
}

struct Form {
  const char *name;
  int options;
};

class TokenizerNormalize : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    const std::string json = json_of(std::string(R"({"type":")") + GetParam().name + "\"}");
    ckpt_error err = {};
    ckpt_tokenizer *tokenizer = nullptr;
    ASSERT_EQ(ckpt_tokenizer_parse(&tokenizer, json.data(), json.size(), nullptr, 0, &err), CKPT_OK) << text_of(err);
    tool_ = std::make_unique<Tool>(tokenizer);
  }
  std::string ours(const std::string &text) { return tool_->decode(tool_->encode(text, 0), false); }
  static std::string whole(const std::string &text) {
    utf8proc_uint8_t *out = nullptr;
    const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                                            static_cast<utf8proc_ssize_t>(text.size()), &out,
                                            static_cast<utf8proc_option_t>(GetParam().options | UTF8PROC_STABLE));
    std::string result(reinterpret_cast<char *>(out), static_cast<size_t>(n));
    free(out);
    return result;
  }

  std::unique_ptr<Tool> tool_;
};

// Every character, and its decomposition, between others.
TEST_P(TokenizerNormalize, EveryCharacter) {
  size_t n_wrong = 0;
  for (uint32_t code = 0x80; code < 0x110000 && n_wrong < 5; code++) {
    if ((code >= 0xD800 && code < 0xE000) || utf8proc_category(static_cast<utf8proc_int32_t>(code)) == 0) continue;
    if ((code >= 0x3400 && code < 0x9FFF && code % 64) || (code >= 0xAC00 && code < 0xD7A4 && code % 64) ||
        (code >= 0x17000 && code < 0x2F800 && code % 512) || (code >= 0x2FA20 && code % 512))
      continue; /* of ranges that are alike, a sample */
    utf8proc_uint8_t *parts = utf8proc_NFD(reinterpret_cast<const utf8proc_uint8_t *>(utf8(code).c_str()));
    const std::string text = "a" + utf8(code) + "\u0301 " + reinterpret_cast<char *>(parts) + utf8(code) + "x";
    free(parts);
    const bool is_equal = ours(text) == whole(text);
    EXPECT_TRUE(is_equal) << std::hex << code;
    n_wrong += !is_equal;
  }
}

// Runs of characters that compose, decompose, reorder, or do nothing.
TEST_P(TokenizerNormalize, RandomRuns) {
  static const uint32_t codes[] = {
      'a',    'e',    ' ',    0xC5,   0xE9,   0x300,  0x301,  0x316,   0x327,   0x344,   0x345, 0x1100, 0x1161, 0x11A8,
      0xAC00, 0xAC01, 0x915,  0x93C,  0x958,  0x9C7,  0x9BE,  0x9D7,   0xB47,   0xB56,   0xDD9, 0xDCF,  0x1025, 0x102E,
      0x212B, 0xFB2A, 0x4F60, 0x304B, 0x3099, 0xFF76, 0xFF9E, 0x1F600, 0x11099, 0x110BA, 0x439, 0x418,  0x306};
  std::mt19937 random(11);
  for (int i = 0; i < 3000; i++) {
    std::string text;
    for (unsigned n = 1 + random() % 12; n-- > 0;) text += utf8(codes[random() % (sizeof codes / sizeof *codes)]);
    ASSERT_EQ(ours(text), whole(text));
    for (size_t k = 0; k < tool_->encoding.n; k++) {
      ASSERT_LT(tool_->encoding.begin[k], tool_->encoding.end[k]);
      ASSERT_LE(tool_->encoding.end[k], text.size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TokenizerNormalize,
                         testing::Values(Form{"NFC", UTF8PROC_COMPOSE}, Form{"NFD", UTF8PROC_DECOMPOSE},
                                         Form{"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                                         Form{"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}),
                         [](const auto &one) { return std::string(one.param.name); });

// What a form leaves alone keeps its own bytes; what it changes has those of its segment.
TEST(TokenizerNormalizeOrigin, OfBytes) {
  const std::string json = json_of(R"({"type":"NFC"})"), text = "xe\u0301y\u4F60";
  ckpt_error err = {};
  ckpt_tokenizer *tokenizer = nullptr;
  ASSERT_EQ(ckpt_tokenizer_parse(&tokenizer, json.data(), json.size(), nullptr, 0, &err), CKPT_OK) << text_of(err);
  Tool tool(tokenizer);
  tool.encode(text, 0);
  const std::vector<uint64_t> begin(tool.encoding.begin, tool.encoding.begin + tool.encoding.n),
      end(tool.encoding.end, tool.encoding.end + tool.encoding.n);
  EXPECT_EQ(begin, (std::vector<uint64_t>{0, 1, 1, 4, 5, 6, 7}));
  EXPECT_EQ(end, (std::vector<uint64_t>{1, 4, 4, 5, 6, 7, 8}));
}

// What is of a word: for Oniguruma, in a set of it, and for Whitespace, as `tokenizers` 0.23.3 cuts.
TEST(TokenizerWords, AreThoseOfEachCutter) {
  const std::string split = R"({"type":"Split","behavior":"Removed","invert":true,"pattern":{"Regex":")";
  const Ids half_apart = {'m', 0xC2, 0xBD}, half_within = {256, 0xBD}, eight_within = {257, 0x85, 0xA7};
  const struct {
    std::string pre;
    Ids half;
  } cases[] = {{split + R"(\\w+|\\W+"}},)", half_within},
               {split + R"([\\w]+|[^\\w]+"}},)", half_apart},
               {R"({"type":"Whitespace"},)", half_apart}};
  for (const auto &[pre, half] : cases) {
    const std::string json = json_of("null", pre);
    ckpt_error err = {};
    ckpt_tokenizer *tokenizer = nullptr;
    ASSERT_EQ(ckpt_tokenizer_parse(&tokenizer, json.data(), json.size(), nullptr, 0, &err), CKPT_OK) << text_of(err);
    Tool tool(tokenizer);
    EXPECT_EQ(tool.encode("m\u00BD", 0), half) << pre;
    EXPECT_EQ(tool.encode("m\u2167", 0), eight_within) << pre;
  }
}

}  // namespace
}  // namespace formats_testing
