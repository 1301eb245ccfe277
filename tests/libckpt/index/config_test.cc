// Tests of config.json reading: what Python writes is read, what is malformed or too large is refused by place.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cerrno>
#include <cstdlib>
#include <string>

extern "C" {
#include "libckpt/index/config.h"
}

namespace {

struct Config {
  explicit Config(const std::string &text) {
    // A copy of exact size, so that a sanitizer sees any read past it.
    std::string exact(text);
    status = ckpt_config_parse(&config, exact.data(), exact.size(), "config.json", &err);
  }
  ~Config() { ckpt_config_free(config); }
  std::string Text(const char *key) {
    const char *value = "absent";
    return ckpt_config_text(config, key, &value) ? std::string("=") + value : value;
  }
  int64_t Int(const char *key) {
    int64_t value = -1;
    return ckpt_config_int(config, key, &value) ? value : -1;
  }

  ckpt_config *config = nullptr;
  ckpt_error err = {};
  ckpt_status status;
};

long n_allocations, failing;

void *AllocateOrFail(size_t n) {
  if (++n_allocations != failing) return malloc(n);
  errno = ENOMEM;
  return nullptr;
}

// jansson leaves out a character that it gets no memory for.
TEST(Config, IsWholeOrOutOfMemory) {
  json_set_alloc_funcs(AllocateOrFail, free);
  bool is_hit = true;
  for (failing = 1; is_hit; failing++) {
    n_allocations = 0;
    Config config(
        R"({"architectures": ["LlamaForCausalLM"], "a_key_of_many_letters": "and a text of many more", "n": 7})");
    is_hit = n_allocations >= failing;
    if (config.status != CKPT_OK) {
      EXPECT_EQ(config.status, CKPT_ENOMEM) << failing << " " << config.err.message;
      continue;
    }
    EXPECT_EQ(config.Text("architectures.0"), "=LlamaForCausalLM") << failing;
    EXPECT_EQ(config.Text("a_key_of_many_letters"), "=and a text of many more") << failing;
    EXPECT_EQ(config.Int("n"), 7) << failing;
  }
  EXPECT_GT(failing, 20);
  json_set_alloc_funcs(malloc, free);
}

TEST(Config, ReadsByDottedKey) {
  Config config(
      R"({"model_type": "llama", "n": 7, "tie": true, "no": null, "rope": {"type": "yarn", "deep": {"k": -2}}})");
  ASSERT_EQ(config.status, CKPT_OK) << config.err.message;
  EXPECT_EQ(config.Text("model_type"), "=llama");
  EXPECT_EQ(config.Text("rope.type"), "=yarn");
  EXPECT_EQ(config.Int("rope.deep.k"), -2);
  EXPECT_EQ(config.Int("n"), 7);
  bool tie = false;
  EXPECT_TRUE(ckpt_config_bool(config.config, "tie", &tie));
  EXPECT_TRUE(tie);
  for (const char *key : {"absent", "", ".", "rope.", "rope.type.x", "n.x", "rope", "n", "no", "tie"})
    EXPECT_EQ(config.Text(key), "absent") << key;
  EXPECT_FALSE(ckpt_config_bool(config.config, "n", &tie));
  EXPECT_EQ(config.Int("tie"), -1);
}

TEST(Config, ReadsNumbersAndPlacesInLists) {
  Config config(R"({"names": ["a", {"b": 7}, []], "theta": 10000.5, "n": 3, "nan": NaN, "text": "1"})");
  ASSERT_EQ(config.status, CKPT_OK) << config.err.message;
  EXPECT_EQ(config.Text("names.0"), "=a");
  EXPECT_EQ(config.Int("names.1.b"), 7);
  for (const char *key :
       {"names.3", "names.", "names.x", "names.-1", "names.2.0", "names.0.0", "theta.0", "names.99999999999999999999"})
    EXPECT_EQ(config.Text(key), "absent") << key;
  double number = -1;
  EXPECT_TRUE(ckpt_config_number(config.config, "theta", &number));
  EXPECT_EQ(number, 10000.5);
  EXPECT_TRUE(ckpt_config_number(config.config, "n", &number));
  EXPECT_EQ(number, 3);
  for (const char *key : {"nan", "text", "names", "absent"})
    EXPECT_FALSE(ckpt_config_number(config.config, key, &number)) << key;
}

TEST(Config, CountsLabelsAsTransformersDoes) {
  const auto count = [](const std::string &text) {
    Config config("{" + text + "}");
    uint64_t n = 0;
    return ckpt_config_labels(config.config, &n) ? static_cast<int64_t>(n) : -1;
  };
  EXPECT_EQ(count(""), 2);
  EXPECT_EQ(count(R"("num_labels":5)"), 5);
  EXPECT_EQ(count(R"("num_labels":0,"id2label":null)"), 0);
  EXPECT_EQ(count(R"("id2label":{"0":"a","1":"b","2":"c"})"), 3);
  EXPECT_EQ(count(R"("id2label":{"0":"a","1":"b","2":"c"},"num_labels":3)"), 3);
  EXPECT_EQ(count(R"("label2id":{"a":0,"b":1,"c":2})"), 2);
  for (const char *text : {R"("id2label":{"0":"a"},"num_labels":2)", R"("num_labels":-1)", R"("num_labels":null)",
                           R"("num_labels":2.0)", R"("id2label":["a"])", R"("id2label":NaN)",
                           R"("id2label":{"1":"a","01":"b"})", R"("id2label":{"":"a"})", R"("id2label":{"1x":"a"})"})
    EXPECT_EQ(count(text), -1) << text;
}

TEST(Config, ReadsWhatPythonWrites) {
  Config config(R"({"a": NaN, "b": [Infinity, -Infinity, NaN], "c": "NaN \" Infinity", "NaN": "k\\",
    "big": 1000000000000000019884624838656, "max": 9223372036854775807, "min": -9223372036854775808,
    "over": 9223372036854775808, "huge": 1e999, "real": -1e999, "last": 3})");
  ASSERT_EQ(config.status, CKPT_OK) << config.err.message;
  EXPECT_EQ(config.Text("c"), "=NaN \" Infinity");
  EXPECT_EQ(config.Text("NaN"), "=k\\");
  EXPECT_EQ(config.Int("max"), INT64_MAX);
  EXPECT_EQ(config.Int("min"), INT64_MIN);
  for (const char *key : {"a", "big", "over", "huge", "real"}) {
    EXPECT_EQ(config.Int(key), -1) << key;
    EXPECT_EQ(config.Text(key), "absent") << key;
  }
  EXPECT_EQ(config.Int("last"), 3);
}

TEST(Config, RefusesWhatIsNotJson) {
  for (const char *text : {"",
                           " ",
                           "{",
                           "{\"a\":}",
                           "[1]",
                           "7",
                           "null",
                           "{\"a\":1}x",
                           "{\"a\":NaNx}",
                           "{\"a\":-NaN}",
                           "{\"a\":1NaN}",
                           "{\"a\":Infinit}",
                           "{NaN:1}",
                           "{\"a\":01}",
                           "{\"a\":\"\\u0000\"}",
                           "{\"a\":\"\xFF\"}",
                           "{\"a",
                           "{\"a\\",
                           "{\"a\":+1}",
                           "{'a':1}",
                           "{\"a\":1,}",
                           "\xEF\xBB\xBF{}",
                           "{\"a\":nan}",
                           "{\"a\":NaN",
                           "NaN"}) {
    Config config(text);
    EXPECT_EQ(config.status, CKPT_EFORMAT) << text;
    EXPECT_STREQ(config.err.file, "config.json");
  }
  Config nul(std::string("{\"a\":1}\0", 8));
  EXPECT_EQ(nul.status, CKPT_EFORMAT);
}

TEST(Config, NamesThePlaceWithoutControlCharacters) {
  Config config("{\"a\": NaN,\n  \"b\": \x1b[31m}");
  ASSERT_EQ(config.status, CKPT_EFORMAT);
  EXPECT_STREQ(config.err.message, "not valid JSON: invalid token near '?' (line 2, column 8)");
}

TEST(Config, RefusesDuplicateKeys) {
  Config config("{\"a\": 1, \"b\": {\"x\": 1, \"x\": 2}}");
  ASSERT_EQ(config.status, CKPT_EFORMAT);
  EXPECT_NE(std::string(config.err.message).find("duplicate object key near '\"x\"'"), std::string::npos)
      << config.err.message;
}

std::string Nested(int depth) {
  std::string text = "{\"a\":";
  for (int i = 1; i < depth; i++) text += "[";
  text += "1";
  for (int i = 1; i < depth; i++) text += "]";
  return text + "}";
}

TEST(Config, DepthIsBounded) {
  EXPECT_EQ(Config(Nested(64)).status, CKPT_OK);
  Config deep(Nested(65));
  EXPECT_EQ(deep.status, CKPT_ELIMIT);
  EXPECT_STREQ(deep.err.message, "JSON nested deeper than 64");
  EXPECT_EQ(Config(std::string(1000000, '[')).status, CKPT_ELIMIT);
}

TEST(Config, NumberOfValuesIsBounded) {
  auto list = [](int n) {  // n commas and brackets, its own and the object's included
    std::string text = "{\"a\":[0";
    for (int i = 2; i < n; i++) text += ",0";
    return text + "]}";
  };
  EXPECT_EQ(Config(list(1000000)).status, CKPT_OK);
  EXPECT_EQ(Config(list(1000001)).status, CKPT_ELIMIT);
}

TEST(Config, SizeIsBounded) {
  std::string text = "{}" + std::string(CKPT_CONFIG_MAX_BYTES - 2, ' ');
  EXPECT_EQ(Config(text).status, CKPT_OK);
  Config large(text + " ");
  EXPECT_EQ(large.status, CKPT_ELIMIT);
  EXPECT_STREQ(large.err.message, "67108865 bytes of JSON (at most 67108864 are read)");
}

TEST(Config, KindsOfValues) {
  Config config(R"({"a": null, "b": true, "c": 1, "d": 1.0, "e": "x", "f": [1, "y"], "g": {"h": NaN, "i": {}}})");
  ASSERT_EQ(config.status, CKPT_OK) << config.err.message;
  const ckpt_config_kind kinds[] = {CKPT_CONFIG_NULL, CKPT_CONFIG_BOOL, CKPT_CONFIG_INT,   CKPT_CONFIG_FLOAT,
                                    CKPT_CONFIG_TEXT, CKPT_CONFIG_LIST, CKPT_CONFIG_OBJECT};
  for (size_t i = 0; i < 7; i++)
    EXPECT_EQ(ckpt_config_kind_of(config.config, std::string(1, static_cast<char>('a' + i)).c_str()), kinds[i]) << i;
  EXPECT_EQ(ckpt_config_kind_of(config.config, "h"), CKPT_CONFIG_ABSENT);
  EXPECT_EQ(ckpt_config_count(config.config, "f"), 2U);
  EXPECT_EQ(ckpt_config_count(config.config, "g"), 2U);
  EXPECT_EQ(ckpt_config_count(config.config, "e"), 0U);
  const char *name = "";
  EXPECT_EQ(ckpt_config_kind_at(config.config, "f", 1, &name), CKPT_CONFIG_TEXT);
  EXPECT_EQ(name, nullptr);
  EXPECT_EQ(ckpt_config_kind_at(config.config, "f", 2, &name), CKPT_CONFIG_ABSENT);
  EXPECT_EQ(ckpt_config_kind_at(config.config, "g", 0, &name), CKPT_CONFIG_LIST); /* no finite number */
  EXPECT_STREQ(name, "h");
  EXPECT_EQ(ckpt_config_kind_at(config.config, "g", 1, &name), CKPT_CONFIG_OBJECT);
  EXPECT_EQ(ckpt_config_kind_at(config.config, "g", 2, &name), CKPT_CONFIG_ABSENT);
  EXPECT_EQ(ckpt_config_kind_at(config.config, "e", 0, &name), CKPT_CONFIG_ABSENT);
}

TEST(Config, ShowsValues) {
  Config config(
      R"({"a": "4\u00e96", "b": 4096.5, "c": 1e400, "d": [1, {"x": 2}], "e": "0123456789012345678901234567"})");
  ASSERT_EQ(config.status, CKPT_OK) << config.err.message;
  const std::pair<const char *, const char *> shown[] = {{"a", R"("4\u00E96")"},          {"b", "4096.5"},
                                                         {"c", "no finite number of"},    {"d", R"([1,{"x":2}])"},
                                                         {"e", R"("012345678901234567)"}, {"none", ""}};
  for (const auto &[key, want] : shown) {
    char text[20] = "untouched";
    ckpt_config_show(config.config, key, text, sizeof text);
    EXPECT_STREQ(text, want) << key;
  }
}

}  // namespace
