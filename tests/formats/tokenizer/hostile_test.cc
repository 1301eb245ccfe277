// Files that are broken or hostile, one defect each, and what is said of it.
#include "tests/formats/tokenizer/tokenizer_testing.h"

namespace formats_testing {
namespace {

struct Parts {
  std::string vocab = R"({"a":0,"b":1,"ab":2})", merges = R"(["a b"])", added = "[]", normalizer = "null",
              pre = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})", post = "null",
              decoder = R"({"type":"ByteLevel"})", model = R"("type":"BPE")";

  std::string json() const {
    return R"({"added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre +
           R"(,"post_processor":)" + post + R"(,"decoder":)" + decoder + R"(,"model":{)" + model + R"(,"vocab":)" +
           vocab + R"(,"merges":)" + merges + "}}";
  }
};

// What is said of a tokenizer.json; "" where it is read.
std::string said_of(const std::string &json, ckpt_status *status = nullptr) {
  ckpt_error err = {};
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_status got = ckpt_tokenizer_parse(&tokenizer, json.data(), json.size(), nullptr, 0, &err);
  if (status != nullptr) *status = got;
  EXPECT_EQ(got == CKPT_OK, tokenizer != nullptr);
  ckpt_tokenizer_free(tokenizer);
  return got == CKPT_OK ? "" : text_of(err);
}

void expect_said(const Parts &parts, ckpt_status wanted, const std::string &words) {
  ckpt_status status;
  const std::string said = said_of(parts.json(), &status);
  EXPECT_EQ(status, wanted) << said;
  EXPECT_NE(said.find(words), std::string::npos) << said;
}

TEST(TokenizerHostile, TheWholeOneIsRead) { EXPECT_EQ(said_of(Parts().json()), ""); }

TEST(TokenizerHostile, Tokens) {
  expect_said({.vocab = R"({"a":0,"b":1,"ab":1})"}, CKPT_EFORMAT, "id 1 has two tokens ('b' and 'ab')");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":2,"a":3})"}, CKPT_EFORMAT, "token 'a' has two ids (0 and 3)");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":2,"a":0})"}, CKPT_EFORMAT, "token 'a' stands there twice (id 0)");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":99999999})"}, CKPT_ELIMIT, "token id 99999999 (at most 16777215)");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":16777215})"}, CKPT_ELIMIT, "token id 16777215 in ");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":-2})"}, CKPT_EFORMAT, "an id is a whole number");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":2.5})"}, CKPT_EFORMAT, "an id is a whole number");
  expect_said({.vocab = "{}", .merges = "[]"}, CKPT_EFORMAT, "a tokenizer without tokens");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":2,")" + std::string(70000, 'x') + R"(":3})"}, CKPT_ELIMIT,
              "token 3 has 70000 bytes (at most 65536)");
}

TEST(TokenizerHostile, Merges) {
  expect_said({.merges = R"(["a c"])"}, CKPT_EFORMAT, "merge 0 is of 'c', which is no token");
  expect_said({.merges = R"(["a b","b a"])"}, CKPT_EFORMAT, "merge 1 makes 'ba', which is no token");
  expect_said({.merges = R"(["a b",["a"]])"}, CKPT_EFORMAT, "the right token of a merge");
  expect_said({.merges = R"(["ab"])"}, CKPT_EFORMAT, "merge 0 is not two tokens ('ab')");
  expect_said({.merges = R"(["a b c"])"}, CKPT_EFORMAT, "merge 0 is not two tokens ('a b c')");
  expect_said({.merges = R"([1])"}, CKPT_EFORMAT, R"(a merge is "a b" or ["a", "b"])");
  // merges that stand before the vocabulary wait for it
  const std::string early = R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","merges":["a b"],"vocab":)";
  EXPECT_EQ(said_of(early + R"({"a":0,"b":1,"ab":2}}})"), "");
  EXPECT_NE(said_of(early + R"({"a":0,"b":1}}})").find("merge 0 makes 'ab'"), std::string::npos);
}

TEST(TokenizerHostile, AddedTokens) {
  // `tokenizers` has no eye for the ids: "x" is 3, "a" stays 0
  EXPECT_EQ(said_of(Parts{.added = R"([{"id":1,"content":"x"}])"}.json()), "");
  EXPECT_EQ(said_of(Parts{.added = R"([{"id":5,"content":"a"}])"}.json()), "");
  expect_said({.vocab = R"({"a":0,"b":1,"ab":3})", .added = R"([{"id":4,"content":"x"}])"}, CKPT_EFORMAT,
              "id 3 has two tokens ('ab' and 'x')");
  expect_said({.added = R"([{"id":5}])"}, CKPT_EFORMAT, "entry 0 of added_tokens lacks an id or a content");
  expect_said({.post = R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],
                        "special_tokens":{"x":{"ids":[7]}}})"},
              CKPT_EFORMAT, "the post_processor puts in id 7, which is no token");
}

TEST(TokenizerHostile, KindsThatAreNotRunAreNamed) {
  expect_said({.model = R"("type":"WordPiece")"}, CKPT_EUNSUPPORTED, "a tokenizer of type WordPiece (BPE is read)");
  expect_said({.normalizer = R"({"type":"Precompiled"})"}, CKPT_EUNSUPPORTED, "a normalizer of type Precompiled");
  expect_said({.pre = R"({"type":"UnicodeScripts"})"}, CKPT_EUNSUPPORTED, "a pre_tokenizer of type UnicodeScripts");
  expect_said({.decoder = R"({"type":"CTC"})"}, CKPT_EUNSUPPORTED, "a decoder of type CTC");
  expect_said({.decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteLevel"}]})"},
              CKPT_EUNSUPPORTED, "a decoder of type ByteLevel behind another step");
  expect_said({.model = R"("type":"BPE","dropout":0.1)"}, CKPT_EUNSUPPORTED, "a BPE model with dropout (0.1)");
  expect_said({.pre = "null", .decoder = "null"}, CKPT_EUNSUPPORTED, "neither byte-level");
  expect_said({.model = R"("type":"BPE","unk_token":"<unk>")"}, CKPT_EFORMAT, "unk_token '<unk>' is no token");
}

TEST(TokenizerHostile, Depth) {
  std::string tree = R"({"type":"NFC"})";
  for (int i = 0; i < 40; i++) tree = R"({"type":"Sequence","normalizers":[)" + tree + "]}";
  expect_said({.normalizer = tree}, CKPT_EFORMAT, "nested deeper than 24");
  expect_said({.added = std::string(100000, '[')}, CKPT_EFORMAT, "nested deeper than 24");
}

// Cut at every byte: never read, never a crash.
TEST(TokenizerHostile, CutFilesAreRefused) {
  const std::string whole = Parts().json();
  for (size_t n = 0; n < whole.size(); n++) EXPECT_NE(said_of(whole.substr(0, n)), "") << n;
}

std::string split_by(const std::string &regex) {
  return R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":")" + regex +
         R"("}},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
}

// What an encoder says of a text, or of its own making.
std::string encoder_said(const Parts &parts, const std::string &text, ckpt_status *status) {
  ckpt_error err = {};
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_text_encoder *encoder = nullptr;
  ckpt_encoding encoding = {};
  const std::string json = parts.json();
  EXPECT_EQ(ckpt_tokenizer_parse(&tokenizer, json.data(), json.size(), nullptr, 0, &err), CKPT_OK) << text_of(err);
  *status = ckpt_text_encoder_new(&encoder, tokenizer, &err);
  if (*status == CKPT_OK) *status = ckpt_text_encode(encoder, &encoding, text.data(), text.size(), 0, &err);
  ckpt_encoding_free(&encoding);
  ckpt_text_encoder_free(encoder);
  ckpt_tokenizer_free(tokenizer);
  return text_of(err);
}

TEST(TokenizerHostile, Regexes) {
  ckpt_status status;
  EXPECT_NE(encoder_said({.pre = split_by("(")}, "a", &status).find("the regex '('"), std::string::npos);
  EXPECT_EQ(status, CKPT_EUNSUPPORTED);
  EXPECT_NE(encoder_said({.pre = split_by("[a[b]]")}, "a", &status).find("a set in a set"), std::string::npos);
  EXPECT_NE(encoder_said({.pre = split_by("[a-z&&b]")}, "a", &status).find("an intersection"), std::string::npos);
  EXPECT_NE(encoder_said({.pre = split_by("a{1,3}+")}, "a", &status).find("({1,3}+)"), std::string::npos);
  EXPECT_EQ(status, CKPT_EUNSUPPORTED);
  const std::string bomb = encoder_said({.pre = split_by("^(a+)+$")}, std::string(64, 'a') + "b", &status);
  EXPECT_EQ(status, CKPT_ELIMIT) << bomb;
  EXPECT_NE(bomb.find("takes too many steps"), std::string::npos) << bomb;
}

TEST(TokenizerHostile, RunsOfMarks) {
  ckpt_status status;
  std::string marks = "a";
  for (int i = 0; i < 100000; i++) marks += i % 2 ? "\u0316" : "\u0300";
  const std::string said = encoder_said({.normalizer = R"({"type":"NFC"})"}, marks, &status);
  EXPECT_EQ(status, CKPT_ELIMIT);
  EXPECT_NE(said.find("combining marks in a row"), std::string::npos) << said;
}

// What a normalizer makes of a text is bounded.
TEST(TokenizerHostile, TextThatGrows) {
  ckpt_status status;
  std::string replace = R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(1000, 'a') + "\"}";
  std::string said = encoder_said(
      {.normalizer = R"({"type":"Sequence","normalizers":[)" + replace + "," + replace + "," + replace + "]}"}, "a",
      &status);
  EXPECT_EQ(status, CKPT_ELIMIT);
  EXPECT_NE(said.find("the normalizer makes too much of a text"), std::string::npos) << said;
  EXPECT_NE(said.find("of 16 times its own and 65536)"), std::string::npos) << said;
  EXPECT_EQ(encoder_said({.normalizer = replace}, "a", &status), "");
  std::string prepend = R"({"type":"Prepend","prepend":")" + std::string(1 << 20, 'a') + "\"}", many = prepend;
  for (int i = 1; i < 50; i++) many += "," + prepend;
  EXPECT_NE(encoder_said({.normalizer = R"({"type":"Sequence","normalizers":[)" + many + "]}"}, "a", &status)
                .find("1048576 bytes (65552 are left"),
            std::string::npos);
  EXPECT_EQ(status, CKPT_ELIMIT);
  std::string ligatures; /* of which NFKC makes the most */
  for (int i = 0; i < 20000; i++) ligatures += "\uFDFA";
  EXPECT_EQ(encoder_said({.normalizer = R"({"type":"NFKC"})"}, ligatures, &status), "");
}

// A word of a megabyte takes n log n, not n squared.
TEST(TokenizerHostile, LongWords) {
  ckpt_status status;
  std::string word;
  for (int i = 0; i < 500000; i++) word += "ab";
  EXPECT_EQ(encoder_said({}, word, &status), "");
  EXPECT_EQ(status, CKPT_OK);
}

}  // namespace
}  // namespace formats_testing
