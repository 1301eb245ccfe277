// The JSON pull reader: tokens, strictness, limits, positions, and independence from where windows end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/json.h"
}

namespace {

// Serves text in reads of whatever size the reader asks for; `shift` bytes of white space before it move the windows.
struct Text {
  std::string bytes;
  uint64_t largest = 0;
};

ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n, ckpt_error *) {
  Text *text = static_cast<Text *>(arg);
  text->largest = std::max<uint64_t>(text->largest, n);
  text->bytes.copy(static_cast<char *>(dst), n, offset);
  return CKPT_OK;
}

// Every token as one line of text: "k:name", "s:text", "n:1", "{", "true"; an error ends it as "! message".
std::string tokens(Text *text, bool allow_nan = false, size_t max_text = 1 << 20) {
  ckpt_json_options options = {fetch, text, text->bytes.size(), max_text, allow_nan, nullptr, 0};
  ckpt_json *json;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_json_new(&json, &options, &err), CKPT_OK);
  std::string out;
  ckpt_json_token token = CKPT_JSON_NULL;
  while (token != CKPT_JSON_END) {
    if (ckpt_json_next(json, &token, &err) != CKPT_OK) {
      out += std::string("! ") + err.message;
      break;
    }
    size_t n;
    const char *value = ckpt_json_text(json, &n);
    switch (token) {
      case CKPT_JSON_KEY: out += "k:" + std::string(value, n) + " "; break;
      case CKPT_JSON_STRING: out += "s:" + std::string(value, n) + " "; break;
      case CKPT_JSON_NUMBER: out += "n:" + std::string(value, n) + " "; break;
      case CKPT_JSON_OBJECT: out += "{ "; break;
      case CKPT_JSON_OBJECT_END: out += "} "; break;
      case CKPT_JSON_ARRAY: out += "[ "; break;
      case CKPT_JSON_ARRAY_END: out += "] "; break;
      case CKPT_JSON_END: out += "."; break;
      default: out += std::string(ckpt_json_token_name(token)) + " ";
    }
  }
  ckpt_json_free(json);
  return out;
}

std::string tokens(const std::string &bytes, bool allow_nan = false, size_t max_text = 1 << 20) {
  Text text{bytes};
  return tokens(&text, allow_nan, max_text);
}

TEST(Json, Tokens) {
  EXPECT_EQ(tokens(R"( {"a": [1, -2.5e+3, true ,false,null], "b":{}, "":[] , "c":"x"} )"),
            "{ k:a [ n:1 n:-2.5e+3 true false null ] k:b { } k: [ ] k:c s:x } .");
  EXPECT_EQ(tokens("0"), "n:0 .");
  EXPECT_EQ(tokens("\"\""), "s: .");
  EXPECT_EQ(tokens("[\"\",\"a\"]"), "[ s: s:a ] .");
  EXPECT_EQ(tokens("[[],[[]],{}]"), "[ [ ] [ [ ] ] { } ] .");
}

TEST(Json, Strings) {
  EXPECT_EQ(tokens(R"("\"\\\/\b\f\n\r\t")"), "s:\"\\/\b\f\n\r\t .");
  EXPECT_EQ(tokens(R"("\u0041\u00e9\u20AC\ud83d\ude00")"), "s:A\u00e9\u20ac\U0001F600 .");
  EXPECT_EQ(tokens("\"\u00e9\u20ac\U0001F600\U0010FFFF\""), "s:\u00e9\u20ac\U0001F600\U0010FFFF .");
  EXPECT_EQ(tokens(R"("\u0000")"), std::string("s:") + '\0' + " .");
}

// A text with a NUL in it never passes for its beginning, yet is there as a whole for who asks for its length.
TEST(Json, ANulDoesNotCutAText) {
  const std::string text = "{\"dtype\\u0000z\":\"F32\\u0000\",\"plain\":\"\\u0000\"}";
  static const char whole[] = "{ k:dtype\0z s:F32\0 k:plain s:\0 } .";
  EXPECT_EQ(tokens(text), std::string(whole, sizeof whole - 1));
  ckpt_json *json;
  ckpt_error err = {};
  ASSERT_EQ(ckpt_json_new_text(&json, text.data(), text.size(), false, nullptr, &err), CKPT_OK);
  std::vector<std::string> seen;
  ckpt_json_token token = CKPT_JSON_NULL;
  while (token != CKPT_JSON_END) {
    ASSERT_EQ(ckpt_json_next(json, &token, &err), CKPT_OK) << err.message;
    if (token == CKPT_JSON_KEY || token == CKPT_JSON_STRING) seen.push_back(ckpt_json_text(json, nullptr));
  }
  ckpt_json_free(json);
  EXPECT_EQ(seen, (std::vector<std::string>{"(holds a NUL)", "(holds a NUL)", "plain", "(holds a NUL)"}));
}

TEST(Json, Refuses) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "the text ends where a value was expected (byte 0)"},
      {"  ", "the text ends where a value was expected (byte 2)"},
      {"{", "the text ends where a key was expected (byte 1)"},
      {"[", "the text ends where a value was expected (byte 1)"},
      {"[1", "',' or ']' was expected (byte 2)"},
      {"[1,]", "a value was expected (byte 3)"},
      {"[,1]", "a value was expected (byte 1)"},
      {"[1 2]", "',' or ']' was expected (byte 3)"},
      {"[1}", "',' or ']' was expected (byte 2)"},
      {"{\"a\":1]", "',' or '}' was expected (byte 6)"},
      {"{\"a\":1,}", "a key was expected (byte 7)"},
      {"{\"a\"}", "':' was expected (byte 4)"},
      {"{\"a\":}", "a value was expected (byte 5)"},
      {"{\"a\"", "':' was expected (byte 4)"},
      {"{1:2}", "a key was expected (byte 1)"},
      {"{'a':1}", "a key was expected (byte 1)"},
      {"1 2", "something follows the JSON value (byte 2)"},
      {std::string("1\0", 2), "something follows the JSON value (byte 1)"},
      {"{}x", "something follows the JSON value (byte 2)"},
      {"01", "a number with a leading zero (byte 0)"},
      {"-01", "a number with a leading zero (byte 0)"},
      {"+1", "a value was expected (byte 0)"},
      {".5", "a value was expected (byte 0)"},
      {"1.", "a digit was expected in a number (byte 2)"},
      {"1e", "a digit was expected in a number (byte 2)"},
      {"1e+", "a digit was expected in a number (byte 3)"},
      {"-", "a digit was expected in a number (byte 1)"},
      {"0x10", "something follows the JSON value (byte 1)"},
      {"tru", "a value was expected (byte 0)"},
      {"True", "a value was expected (byte 0)"},
      {"nul1", "a value was expected (byte 0)"},
      {"NaN", "a value was expected (byte 0)"},
      {"-Infinity", "a digit was expected in a number (byte 1)"},
      {"// c\n1", "a value was expected (byte 0)"},
      {"\xef\xbb\xbf{}", "a value was expected (byte 0)"},
      {"\"a", "the text ends within a string (byte 2)"},
      {"\"\\", "an escape that JSON does not have (byte 2)"},
      {"\"\\x\"", "an escape that JSON does not have (byte 2)"},
      {"\"\\u12g4\"", "four hexadecimal digits have to follow \\u (byte 5)"},
      {"\"\\ud800\"", "half of a surrogate pair (byte 2)"},
      {"\"\\ud800\\u0041\"", "half of a surrogate pair (byte 2)"},
      {"\"\\udc00\"", "half of a surrogate pair (byte 2)"},
      {"\"\\udc00\\udc00\"", "half of a surrogate pair (byte 2)"},
      {"\"a\nb\"", "a control character within a string (byte 2)"},
      {"\"\xff\"", "not UTF-8 (byte 1)"},
      {"\"\xc0\x80\"", "not UTF-8 (byte 1)"},
      {"\"\xe0\x80\x80\"", "not UTF-8 (byte 1)"},
      {"\"\xed\xa0\x80\"", "not UTF-8 (byte 1)"},
      {"\"\xf4\x90\x80\x80\"", "not UTF-8 (byte 1)"},
      {"\"\xf5\x80\x80\x80\"", "not UTF-8 (byte 1)"},
      {"\"\xe2\x82\"", "not UTF-8 (byte 1)"},
  };
  for (const auto &row : table) {
    std::string got = tokens(row.first);
    size_t at = got.find("! ");
    ASSERT_NE(at, std::string::npos) << row.first << " was accepted: " << got;
    EXPECT_EQ(got.substr(at + 2), row.second) << row.first;
  }
}

TEST(Json, NanWherePythonWritesIt) {
  EXPECT_EQ(tokens("[NaN, Infinity, -Infinity, 1]", true), "[ n:NaN n:Infinity n:-Infinity n:1 ] .");
  EXPECT_NE(tokens("[-NaN]", true).find("!"), std::string::npos);
  EXPECT_NE(tokens("[Infinit]", true).find("!"), std::string::npos);
}

TEST(Json, NumbersThatNoDoubleHolds) {
  const std::string zeros(308, '0');
  const std::vector<std::string> fine = {"1e308", "-1.7e308", "0e999", "1e-999", "1" + zeros, "1" + zeros + ".0e-5"};
  for (const std::string &text : fine) {
    EXPECT_EQ(tokens("[" + text + "]"), "[ n:" + text + " ] .");
    EXPECT_EQ(tokens("{\"a\":" + text + "}").find("!"), std::string::npos) << text;
  }
  for (const std::string &text : std::vector<std::string>{"1e999", "-1E+309", "1.8e308", "1" + zeros + "0"}) {
    EXPECT_EQ(tokens("[" + text + "]"), "[ ! a number that no double holds (byte 1)");
    EXPECT_EQ(tokens("[" + text + "]", true), "[ n:" + text + " ] .");  // Python reads Infinity
    ckpt_json *json;
    ckpt_error err = {};
    const std::string nested = "{\"a\":[" + text + "]}";
    ASSERT_EQ(ckpt_json_new_text(&json, nested.data(), nested.size(), false, nullptr, &err), CKPT_OK);
    EXPECT_EQ(ckpt_json_skip(json, &err), CKPT_EFORMAT);  // what nobody looks at too
    EXPECT_STREQ(err.message, "a number that no double holds (byte 6)");
    ckpt_json_free(json);
  }
}

TEST(Json, DepthLimit) {
  std::string deepest = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(tokens(deepest).find("!"), std::string::npos);
  EXPECT_EQ(tokens("[" + deepest + "]").substr(64 * 2), "! JSON nested deeper than 64 (byte 64)");
  std::string objects;
  for (int i = 0; i < 64; i++) objects += "{\"a\":";
  EXPECT_EQ(tokens(objects + "1" + std::string(64, '}')).find("!"), std::string::npos);
}

TEST(Json, TextLimit) {
  EXPECT_EQ(tokens("\"12345\"", false, 5), "s:12345 .");
  EXPECT_EQ(tokens("\"123456\"", false, 5), "! a JSON text of more than 5 bytes (byte 0)");
  EXPECT_EQ(tokens("[123456]", false, 5), "[ ! a JSON text of more than 5 bytes (byte 1)");
  EXPECT_EQ(tokens("[true,null]", false, 0), "[ true null ] .");
}

// The same tokens wherever a window ends: the text slides over the boundary byte by byte.
TEST(Json, WindowsEndAnywhere) {
  const std::string body = "{\"k\\u00e9\u20ac\U0001F600\": [-12.5e-7, true, NaN, \"\\ud83d\\ude00x\"]}";
  const std::string expected = tokens(body, true);
  ASSERT_EQ(expected.find("!"), std::string::npos);
  for (size_t shift = 65536 - body.size() - 1; shift <= 65536; shift++) {
    Text text{std::string(shift, ' ') + body};
    ASSERT_EQ(tokens(&text, true), expected) << shift;
    ASSERT_LE(text.largest, 65536u);
  }
}

// Every truncation of a text is refused, none crashes.
TEST(Json, Truncations) {
  const std::string body = R"({"a":[1,{"b":"\u00e9"},-2.5e3,null,true],"c":{}})";
  for (size_t n = 0; n < body.size(); n++) EXPECT_NE(tokens(body.substr(0, n)).find("!"), std::string::npos) << n;
}

TEST(Json, SkipPositionsAndIntegers) {
  const std::string body = R"({"a": {"x":[1,"\n",{}]}, "b": 18446744073709551615, "c": "text"})";
  ckpt_json *json;
  ckpt_error err = {};
  ASSERT_EQ(ckpt_json_new_text(&json, body.data(), body.size(), false, "f.json", &err), CKPT_OK);
  ASSERT_EQ(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a header", &err), CKPT_OK);
  ASSERT_EQ(ckpt_json_expect(json, CKPT_JSON_KEY, "a key", &err), CKPT_OK);
  EXPECT_EQ(ckpt_json_start(json), 1u);
  EXPECT_EQ(ckpt_json_stop(json), 4u);
  ASSERT_EQ(ckpt_json_skip(json, &err), CKPT_OK);
  EXPECT_EQ(ckpt_json_stop(json), body.find(", \"b\""));
  ASSERT_EQ(ckpt_json_expect(json, CKPT_JSON_KEY, "a key", &err), CKPT_OK);
  EXPECT_STREQ(ckpt_json_text(json, nullptr), "b");
  ASSERT_EQ(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a size", &err), CKPT_OK);
  uint64_t value = 0;
  EXPECT_TRUE(ckpt_json_u64(json, &value));
  EXPECT_EQ(value, UINT64_MAX);
  ASSERT_EQ(ckpt_json_expect(json, CKPT_JSON_KEY, "a key", &err), CKPT_OK);
  EXPECT_EQ(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a size", &err), CKPT_EFORMAT);
  EXPECT_STREQ(err.message, "a size has to be a number, not a string (byte 57)");
  EXPECT_STREQ(err.file, "f.json");
  ckpt_json_free(json);
}

TEST(Json, IntegersOutOfRange) {
  for (const char *text : {"18446744073709551616", "-1", "-0", "1.0", "1e3", "99999999999999999999999"}) {
    ckpt_json *json;
    ckpt_json_token token;
    ASSERT_EQ(ckpt_json_new_text(&json, text, strlen(text), false, nullptr, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_json_next(json, &token, nullptr), CKPT_OK);
    uint64_t value;
    EXPECT_FALSE(ckpt_json_u64(json, &value)) << text;
    ckpt_json_free(json);
  }
}

}  // namespace
