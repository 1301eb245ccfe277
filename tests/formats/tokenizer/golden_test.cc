// Ids, offsets and texts as the `tokenizers` library gives them (tests/data/make_tokenizers.py).
#include <jansson.h>

#include "tests/formats/tokenizer/tokenizer_testing.h"

namespace formats_testing {
namespace {

// What is no UTF-8 as U+FFFD, as Python's errors="replace" has it: an encoder's own way, asked of a byte-level one.
std::string replaced(Tool *identity, const std::string &bytes) {
  return identity->decode(identity->encode(bytes, 0), false);
}

void expect_offsets(const ckpt_encoding &encoding, const json_t *offsets, const std::string &what) {
  ASSERT_EQ(encoding.n, json_array_size(offsets)) << what;
  for (size_t i = 0; i < encoding.n; i++) {
    const Ids pair = ids_of(json_array_get(offsets, i));
    EXPECT_EQ(encoding.begin[i], pair[0]) << what << " token " << i;
    EXPECT_EQ(encoding.end[i], pair[1]) << what << " token " << i;
  }
}

class TokenizerGolden : public testing::TestWithParam<const char *> {};

TEST_P(TokenizerGolden, EqualsTheLibrary) {
  std::ifstream lines(tokenizer_data() + "golden.jsonl");
  std::string line;
  Tool tool(tokenizer_data() + GetParam()), identity(tokenizer_data() + "gpt2");
  ASSERT_NE(tool.encoder, nullptr);
  size_t n = 0;
  while (std::getline(lines, line)) {
    json_t *row = json_loads(line.c_str(), 0, nullptr);
    ASSERT_NE(row, nullptr);
    auto hex = [row](const char *key) { return unhex(json_string_value(json_object_get(row, key))); };
    if (strcmp(json_string_value(json_object_get(row, "tokenizer")), GetParam()) == 0) {
      const std::string text = hex("text");
      const std::string what = std::string(GetParam()) + " '" + text + "'";
      const Ids ids = ids_of(json_object_get(row, "ids"));
      EXPECT_EQ(tool.encode(text, CKPT_TEXT_SPECIAL | CKPT_TEXT_PARSE_SPECIAL), ids) << what;
      EXPECT_EQ(tool.encode(text, 0), ids_of(json_object_get(row, "closed"))) << what;
      EXPECT_EQ(tool.encode(text, CKPT_TEXT_PARSE_SPECIAL), ids_of(json_object_get(row, "plain"))) << what;
      if (json_is_array(json_object_get(row, "offsets")))
        expect_offsets(tool.encoding, json_object_get(row, "offsets"), what);
      EXPECT_EQ(replaced(&identity, tool.decode(ids, false)), hex("decoded")) << what;
      EXPECT_EQ(replaced(&identity, tool.decode(ids, true)), hex("skipped")) << what;
      n++;
    }
    json_decref(row);
  }
  EXPECT_GT(n, 40u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGolden,
                         testing::Values("gpt2", "gpt2-prefix", "gpt2-slow", "llama3", "qwen2", "gpt4o", "smollm",
                                         "partial", "llama2", "llama2-first", "llama2-unknown", "behaviors", "gaps"),
                         [](const auto &one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A token that is a whole word begins and ends where Unicode's words do, as `tokenizers` 0.23.3 finds: circled letters
// and Roman numerals are of a word, digits in circles are not.
TEST(TokenizerAdded, WordsAreUnicodes) {
  Tool tool(tokenizer_data() + "gpt2-prefix");
  ASSERT_NE(tool.encoder, nullptr);
  for (const char *text : {"<tool>-", "<tool> x", "<tool>\u00B2", "<tool>\u24FF"}) {
    const Ids ids = tool.encode(text, 0);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 421u), 1) << text;
  }
  for (const char *text : {"<tool>\u2167", "\u24D0<tool>", "<tool>\u200D", "<tool>\U0001F130", "<tool>\u0301"}) {
    const Ids ids = tool.encode(text, 0);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 421u), 0) << text;
  }
}

}  // namespace
}  // namespace formats_testing
