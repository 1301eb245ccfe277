// Splicing one value into JSON text: everything else stays as it was, byte for byte.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

extern "C" {
#include "libckpt/codec/json_splice.h"
}

namespace {

std::string splice(const std::string &text, const char *path, const char *value) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 20);
  const char *out;
  size_t n;
  ckpt_error err = {};
  ckpt_status status = ckpt_json_splice(&out, &n, text.data(), text.size(), path, value, &arena, "config.json", &err);
  std::string result = status == CKPT_OK ? std::string(out, n) : std::string("! ") + err.message;
  ckpt_arena_free(&arena);
  return result;
}

TEST(JsonSplice, Replaces) {
  EXPECT_EQ(splice(R"({"a" : 1 , "dtype":"float32", "z":[ ]})", "dtype", "\"bfloat16\""),
            R"({"a" : 1 , "dtype":"bfloat16", "z":[ ]})");
  EXPECT_EQ(splice(R"({"a":{"b":[1,2]},"b":0})", "a.b", "null"), R"({"a":{"b":null},"b":0})");
  EXPECT_EQ(splice("{\"x\":NaN,\"a\":\"\\u0041\"}\n", "a", "1"), "{\"x\":NaN,\"a\":1}\n");
  EXPECT_EQ(splice(R"({"a":1,"a":2})", "a", "3"), R"({"a":1,"a":3})");  // the last one counts
}

TEST(JsonSplice, Inserts) {
  EXPECT_EQ(splice("{}", "a", "1"), "{\"a\": 1}");
  EXPECT_EQ(splice("{ }", "a", "1"), "{\"a\": 1 }");
  EXPECT_EQ(splice("{\n  \"x\": 1,\n  \"y\": [\n    2\n  ]\n}\n", "a", "1"),
            "{\n  \"x\": 1,\n  \"y\": [\n    2\n  ],\n  \"a\": 1\n}\n");
  EXPECT_EQ(splice("{\"x\":1}", "a", "1"), "{\"x\":1,\"a\":1}");
  EXPECT_EQ(splice("{\n\t\"t\": {\n\t\t\"x\": 1\n\t}\n}", "t.a", "1"),
            "{\n\t\"t\": {\n\t\t\"x\": 1,\n\t\t\"a\": 1\n\t}\n}");
  EXPECT_EQ(splice("{\"b\":{\"a\":0}}", "a", "1"), "{\"b\":{\"a\":0},\"a\":1}");  // nested keys are others
}

TEST(JsonSplice, Refuses) {
  EXPECT_EQ(splice("{\"x\":1}", "t.a", "1"), "! has no object to hold 't.a'");
  EXPECT_EQ(splice("{\"t\":1}", "t.a", "1"), "! has no object to hold 't.a'");
  EXPECT_EQ(splice("{\"t\":{},\"t\":1}", "t.a", "1"), "! has no object to hold 't.a'");
  EXPECT_EQ(splice("[]", "a", "1"), "! the outermost value has to be an object, not an array (byte 0)");
  EXPECT_EQ(splice("{\"a\":1", "a", "1"), "! ',' or '}' was expected (byte 6)");
  EXPECT_EQ(splice("{\"a\":1} x", "a", "1"), "! something follows the JSON value (byte 8)");
}

}  // namespace
