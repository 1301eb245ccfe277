// Tests of objects: building, lookup, equality with sharing and cycles, bounded printing.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>

extern "C" {
#include "libckpt/index/object.h"
}

namespace {

class ObjectTest : public ::testing::Test {
 protected:
  void SetUp() override { ckpt_arena_init(&arena_, UINT64_C(1) << 30); }
  void TearDown() override { ckpt_arena_free(&arena_); }

  ckpt_object *Int(int64_t value) { return ckpt_object_int(&arena_, value); }
  ckpt_object *Text(const std::string &text) { return ckpt_object_text(&arena_, text.data(), text.size()); }
  ckpt_object *Make(ckpt_object_kind kind, std::initializer_list<ckpt_object *> items, const char *name = nullptr) {
    uint64_t n = kind == CKPT_OBJECT_DICT ? items.size() / 2 : items.size();
    ckpt_object *object = ckpt_object_new(&arena_, kind, n, name);
    size_t i = 0;
    for (ckpt_object *item : items) object->items[i++] = item;
    return object;
  }
  std::string Print(const ckpt_object *object, uint64_t max_bytes = 10000) {
    return ckpt_object_print(object, max_bytes, &arena_);
  }
  // A list in a list in a list ...
  ckpt_object *Deep(size_t depth) {
    ckpt_object *object = Make(CKPT_OBJECT_LIST, {});
    while (depth-- > 0) object = Make(CKPT_OBJECT_LIST, {object});
    return object;
  }
  // 2^depth paths over depth nodes: every list holds the next one twice.
  ckpt_object *Laughs(int depth) {
    ckpt_object *object = Make(CKPT_OBJECT_LIST, {Int(1)});
    while (depth-- > 0) object = Make(CKPT_OBJECT_LIST, {object, object});
    return object;
  }

  ckpt_arena arena_;
};

TEST_F(ObjectTest, GetTakesTheLastOfEqualKeys) {
  ckpt_object *dict = Make(CKPT_OBJECT_DICT, {Text("a"), Int(1), Int(2), Int(3), Text("a"), Int(4), nullptr, nullptr});
  ASSERT_NE(ckpt_object_get(dict, "a"), nullptr);
  EXPECT_EQ(ckpt_object_get(dict, "a")->integer, 4);
  EXPECT_EQ(ckpt_object_get(dict, "b"), nullptr);
  EXPECT_EQ(ckpt_object_get(dict, ""), nullptr);
  EXPECT_EQ(ckpt_object_get(Int(1), "a"), nullptr);
  EXPECT_EQ(ckpt_object_get(nullptr, "a"), nullptr);
}

TEST_F(ObjectTest, FullArenaGivesNull) {
  ckpt_arena small;
  ckpt_arena_init(&small, 8192);
  EXPECT_EQ(ckpt_object_new(&small, CKPT_OBJECT_LIST, 10000, nullptr), nullptr);
  EXPECT_EQ(ckpt_object_new(&small, CKPT_OBJECT_DICT, UINT64_MAX / 2 + 1, nullptr), nullptr);
  EXPECT_EQ(ckpt_object_text(&small, "", 0)->n, 0u);
  ckpt_arena_free(&small);
}

TEST_F(ObjectTest, LeavesAreComparedByKindAndBits) {
  ckpt_object *values[] = {ckpt_object_none(&arena_),
                           ckpt_object_bool(&arena_, false),
                           ckpt_object_bool(&arena_, true),
                           Int(0),
                           Int(1),
                           ckpt_object_float(&arena_, 0.0),
                           ckpt_object_float(&arena_, -0.0),
                           ckpt_object_float(&arena_, NAN),
                           Text(""),
                           Text("ab"),
                           Text(std::string("a\0b", 3)),
                           Text(std::string("a\0c", 3)),
                           ckpt_object_bytes(&arena_, "ab", 2),
                           ckpt_object_tensor(&arena_, 0),
                           ckpt_object_tensor(&arena_, 1),
                           Make(CKPT_OBJECT_LIST, {}),
                           Make(CKPT_OBJECT_TUPLE, {}),
                           Make(CKPT_OBJECT_DICT, {}),
                           Make(CKPT_OBJECT_FOREIGN, {}, "a.B"),
                           Make(CKPT_OBJECT_FOREIGN, {}, "a.C")};
  for (const ckpt_object *a : values)
    for (const ckpt_object *b : values) {
      const ckpt_object copy = *b;
      EXPECT_EQ(ckpt_object_equal(a, &copy), a == b) << Print(a) << " " << Print(b);
    }
  EXPECT_TRUE(ckpt_object_equal(nullptr, nullptr));
  EXPECT_FALSE(ckpt_object_equal(nullptr, values[0]));
}

TEST_F(ObjectTest, OrderOfKeysAndItemsCounts) {
  auto dict = [&](const char *first, const char *second) {
    return Make(CKPT_OBJECT_DICT, {Text(first), Int(1), Text(second), Int(1)});
  };
  EXPECT_TRUE(ckpt_object_equal(dict("a", "b"), dict("a", "b")));
  EXPECT_FALSE(ckpt_object_equal(dict("a", "b"), dict("b", "a")));
  EXPECT_FALSE(ckpt_object_equal(Make(CKPT_OBJECT_LIST, {Int(1), Int(2)}), Make(CKPT_OBJECT_LIST, {Int(2), Int(1)})));
}

TEST_F(ObjectTest, SharingStructureCounts) {
  auto inner = [&] { return Make(CKPT_OBJECT_LIST, {Int(1)}); };
  auto shared = [&] {
    ckpt_object *one = inner();
    return Make(CKPT_OBJECT_LIST, {one, one});
  };
  ckpt_object *apart = Make(CKPT_OBJECT_LIST, {inner(), inner()});
  EXPECT_TRUE(ckpt_object_equal(shared(), shared()));
  EXPECT_FALSE(ckpt_object_equal(shared(), apart));
  EXPECT_FALSE(ckpt_object_equal(apart, shared()));
  ckpt_object *text = Text("same");  // writers share equal leaves or not as they please
  EXPECT_TRUE(
      ckpt_object_equal(Make(CKPT_OBJECT_LIST, {text, text}), Make(CKPT_OBJECT_LIST, {Text("same"), Text("same")})));
}

TEST_F(ObjectTest, CyclesEnd) {
  auto ring = [&](int n) {
    ckpt_object *first = Make(CKPT_OBJECT_LIST, {nullptr}), *last = first;
    for (int i = 1; i < n; i++) last = last->items[0] = Make(CKPT_OBJECT_LIST, {nullptr});
    last->items[0] = first;
    return first;
  };
  EXPECT_TRUE(ckpt_object_equal(ring(3), ring(3)));
  EXPECT_FALSE(ckpt_object_equal(ring(2), ring(3)));
  EXPECT_LT(Print(ring(1)).size(), 200u);
}

TEST_F(ObjectTest, HostileGraphsAreComparedInLinearTime) {
  auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(ckpt_object_equal(Laughs(1000), Laughs(1000)));
  EXPECT_FALSE(ckpt_object_equal(Laughs(1000), Laughs(1001)));
  EXPECT_TRUE(ckpt_object_equal(Deep(1000000), Deep(1000000)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(ObjectTest, PrintsEveryKind) {
  ckpt_object *big = Text("123456789012345678901234567890");
  big->kind = CKPT_OBJECT_BIGINT;
  ckpt_object *object = Make(
      CKPT_OBJECT_DICT,
      {Text("a\"\\\n\x01"), Make(CKPT_OBJECT_TUPLE, {ckpt_object_none(&arena_), ckpt_object_bool(&arena_, true)}),
       Int(-5), big, Make(CKPT_OBJECT_TUPLE, {Text("k\"")}), ckpt_object_bytes(&arena_, "xyz", 3), Text("\xC3\xA9"),
       ckpt_object_tensor(&arena_, 7), Text("f"), Make(CKPT_OBJECT_FOREIGN, {Int(1)}, "a.B"), Text("null"), nullptr});
  EXPECT_EQ(Print(object),
            R"({"a\"\\\n\u0001": [null, true], "-5": 123456789012345678901234567890, "[\"k\\\"\"]": "<3 bytes>", )"
            "\"\xC3\xA9\": \"<tensor 7>\", \"f\": {\"a.B\": [1]}, \"null\": null}");
}

TEST_F(ObjectTest, PrintsNumbersAsPythonDoes) {
  const std::pair<double, const char *> cases[] = {{0.1, "0.1"},
                                                   {1, "1.0"},
                                                   {-0.0, "-0.0"},
                                                   {1e-5, "1e-05"},
                                                   {5e-324, "4.94065645841247e-324"},
                                                   {0.1 + 0.2, "0.30000000000000004"},
                                                   {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                   {NAN, "NaN"},
                                                   {INFINITY, "Infinity"},
                                                   {-INFINITY, "-Infinity"}};
  for (const auto &[number, text] : cases) EXPECT_EQ(Print(ckpt_object_float(&arena_, number)), text);
  EXPECT_EQ(Print(Int(INT64_MIN)), "-9223372036854775808");
}

TEST_F(ObjectTest, PrintIsCutAtItsLimit) {
  ckpt_object *text = Text("abcdef");
  EXPECT_EQ(Print(text, 8), "\"abcdef\"");
  EXPECT_EQ(Print(text, 7), "\"abcdef...");
  EXPECT_EQ(Print(text, 0), "...");
  ckpt_object *accents = Text("\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(Print(accents, 2), "\"...");  // not half of the first
  EXPECT_EQ(Print(accents, 3), "\"\xC3\xA9...");
  EXPECT_EQ(Print(accents, 5), "\"\xC3\xA9...");
  EXPECT_EQ(Print(accents, 6), "\"\xC3\xA9\xE2\x82\xAC...");
}

TEST_F(ObjectTest, PrintOfHostileGraphsIsBounded) {
  EXPECT_EQ(Print(Laughs(60), 1000).size(), 1003u);
  EXPECT_LT(Print(Deep(1000000)).size(), 300u);
}

// As Python 3.11 prints them.
TEST(Object, KeysThatAreNoText) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 20);
  const std::pair<double, const char *> floats[] = {{1, "1.0"},
                                                    {-2.5, "-2.5"},
                                                    {100, "100.0"},
                                                    {-0.0, "-0.0"},
                                                    {1e15, "1000000000000000.0"},
                                                    {1e16, "1e+16"},
                                                    {123456789012345678.0, "1.2345678901234568e+17"},
                                                    {0.0001, "0.0001"},
                                                    {0.00001, "1e-05"},
                                                    {1.0 / 3, "0.3333333333333333"},
                                                    {0.1 + 0.2, "0.30000000000000004"},
                                                    {5e-324, "5e-324"},
                                                    {0x1p-44, "5.684341886080802e-14"},
                                                    {0x1p-496, "4.887898181599368e-150"},
                                                    {9007199254740992, "9007199254740992.0"},
                                                    {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                    {-HUGE_VAL, "-inf"}};
  char text[CKPT_OBJECT_KEY_BYTES];
  for (const auto &[number, wanted] : floats)
    EXPECT_STREQ(ckpt_object_key_text(text, ckpt_object_float(&arena, number)), wanted);
  EXPECT_STREQ(ckpt_object_key_text(text, ckpt_object_bool(&arena, true)), "True");
  EXPECT_STREQ(ckpt_object_key_text(text, ckpt_object_bool(&arena, false)), "False");
  EXPECT_STREQ(ckpt_object_key_text(text, ckpt_object_none(&arena)), "None");
  EXPECT_STREQ(ckpt_object_key_text(text, ckpt_object_int(&arena, INT64_MIN)), "-9223372036854775808");
  EXPECT_EQ(ckpt_object_key_text(text, ckpt_object_new(&arena, CKPT_OBJECT_TUPLE, 0, nullptr)), nullptr);
  ckpt_arena_free(&arena);
}

}  // namespace
