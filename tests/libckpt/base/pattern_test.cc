// Tests of patterns and renames on tensor names: what they match, what they refuse, and that matching is bounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/base/pattern.h"
}

namespace {

bool Matches(const std::string &pattern, const std::string &name) {
  ckpt_pattern *compiled = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_pattern_new(&compiled, pattern.c_str(), nullptr, &err), CKPT_OK) << err.message;
  bool matched = false;
  EXPECT_EQ(ckpt_pattern_match(compiled, name.c_str(), &matched, &err), CKPT_OK) << err.message;
  EXPECT_EQ(ckpt_pattern_n_matched(compiled), matched ? 1u : 0u);
  ckpt_pattern_free(compiled);
  return matched;
}

std::string PatternError(const std::string &pattern) {
  ckpt_pattern *compiled = nullptr;
  ckpt_error err = {};
  EXPECT_NE(ckpt_pattern_new(&compiled, pattern.c_str(), nullptr, &err), CKPT_OK) << pattern;
  EXPECT_EQ(compiled, nullptr);
  return err.message;
}

TEST(Pattern, GlobsMatchWholeNames) {
  EXPECT_TRUE(Matches("*", "a.b/c"));
  EXPECT_TRUE(Matches("model.layers.*.weight", "model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(Matches("*.weight", "a/b.weight"));
  EXPECT_TRUE(Matches("lm_head.weight", "lm_head.weight"));
  EXPECT_TRUE(Matches("layers.?.w[qk]", "layers.3.wk"));
  EXPECT_TRUE(Matches("layers.[!0-3].w", "layers.4.w"));
  EXPECT_TRUE(Matches("caf\xC3\xA9?", "caf\xC3\xA9\xE2\x82\xAC"));
  EXPECT_TRUE(Matches("a\\*", "a*"));
  EXPECT_FALSE(Matches("lm_head", "lm_head.weight"));
  EXPECT_FALSE(Matches("weight", "lm_head.weight"));
  EXPECT_FALSE(Matches("a.b", "axb"));
  EXPECT_FALSE(Matches("a+", "aa"));
  EXPECT_FALSE(Matches("layers.?.w", "layers.10.w"));
  EXPECT_FALSE(Matches("layers.[!0-3].w", "layers.3.w"));
  EXPECT_FALSE(Matches("a\\*", "ab"));
  EXPECT_FALSE(Matches("*.weight", "a.weight\n"));
}

TEST(Pattern, ExpressionsSearch) {
  EXPECT_TRUE(Matches("re:attn", "model.attn.weight"));
  EXPECT_TRUE(Matches("re:^layers\\.(0|1)\\.", "layers.1.w"));
  EXPECT_FALSE(Matches("re:^layers\\.(0|1)\\.", "layers.11.w"));
  EXPECT_FALSE(Matches("re:w$", "w\n"));
  EXPECT_TRUE(Matches("re:^.$", "\xC3\xA9"));
}

TEST(Pattern, CountsItsMatches) {
  ckpt_pattern *pattern = nullptr;
  ASSERT_EQ(ckpt_pattern_new(&pattern, "a*", nullptr, nullptr), CKPT_OK);
  bool matched;
  for (const char *name : {"a", "b", "ab"}) ASSERT_EQ(ckpt_pattern_match(pattern, name, &matched, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_pattern_n_matched(pattern), 2u);
  ckpt_pattern_free(pattern);
}

TEST(Pattern, MistakesAreNamedWithTheirPlace) {
  EXPECT_EQ(PatternError("re:a("), "pattern 're:a(': missing closing parenthesis (at byte 5)");
  EXPECT_EQ(PatternError("re:ab**["), "pattern 're:ab**[': quantifier does not follow a repeatable item (at byte 6)");
  EXPECT_EQ(PatternError("a[b"), "pattern 'a[b': missing terminating ] for character class (at byte 3)");
  EXPECT_EQ(PatternError(""), "an empty pattern ('*' matches every name)");
  EXPECT_EQ(PatternError(std::string(4097, 'a')), "a pattern of 4097 bytes (at most 4096)");
  EXPECT_NE(PatternError("re:\\C"), "");
  EXPECT_NE(PatternError("re:\xFF"), "");
  EXPECT_NE(PatternError("\xFF*"), "");
}

// An expression that stands within what the user wrote, changed since: messages show that, and where in it.
TEST(Pattern, MistakesOfAPartAreShownInTheWhole) {
  ckpt_pattern *pattern = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_pattern_new_search(&pattern, "attn_(v", "re:ATTN_(V=q8_0", 3, nullptr, &err), CKPT_EINVAL);
  EXPECT_STREQ(err.message, "pattern 're:ATTN_(V=q8_0': missing closing parenthesis (at byte 10)");
  ASSERT_EQ(ckpt_pattern_new_search(&pattern, "attn_v", "ATTN_V=q8_0", 0, nullptr, nullptr), CKPT_OK);
  bool matches = false;
  EXPECT_EQ(ckpt_pattern_match(pattern, "blk.0.attn_v.weight", &matches, nullptr), CKPT_OK);
  EXPECT_TRUE(matches);
  ckpt_pattern_free(pattern);
}

TEST(Pattern, MatchingIsBounded) {
  ckpt_pattern *pattern = nullptr;
  ASSERT_EQ(ckpt_pattern_new(&pattern, "re:^(a+)+$", nullptr, nullptr), CKPT_OK);
  bool matched = true;
  ckpt_error err = {};
  std::string name = std::string(60, 'a') + "b";
  EXPECT_EQ(ckpt_pattern_match(pattern, name.c_str(), &matched, &err), CKPT_ELIMIT);
  EXPECT_STREQ(err.message, "pattern 're:^(a+)+$' takes more than 1000000 steps (write it without nested repeats)");
  EXPECT_EQ(err.tensor, name);
  EXPECT_FALSE(matched);
  EXPECT_EQ(ckpt_pattern_n_matched(pattern), 0u);
  ckpt_pattern_free(pattern);
  std::string stars;
  for (int i = 0; i < 30; i++) stars += "a*";
  EXPECT_FALSE(Matches(stars + "b", std::string(4000, 'a')));
}

// Each match is within its own bound; together they are not, whichever pattern comes last.
TEST(Pattern, PatternsOfOneBudgetAreBoundedTogether) {
  uint64_t n_steps = 40000000;
  std::vector<ckpt_pattern *> patterns;
  ckpt_status status = CKPT_OK;
  ckpt_error err = {};
  for (int i = 0; i < 200; i++) {
    std::string text = "re:a*a*[b-y]|" + std::to_string(i);
    patterns.push_back(nullptr);
    ASSERT_EQ(ckpt_pattern_new(&patterns.back(), text.c_str(), &n_steps, &err), CKPT_OK) << err.message;
  }
  uint64_t n_compiled = n_steps, n_matches = 0;
  EXPECT_GT(n_compiled, 30000000u);
  const std::string name(60, 'a');
  bool matched;
  for (int k = 0; k < 300 && status == CKPT_OK; k++)
    for (size_t i = 0; i < patterns.size() && status == CKPT_OK; i++, n_matches++)
      status = ckpt_pattern_match(patterns[i], name.c_str(), &matched, &err);
  EXPECT_EQ(status, CKPT_ELIMIT);
  EXPECT_LT(n_matches, 30000u);
  EXPECT_EQ(n_steps, 0u);
  EXPECT_STREQ(strstr(err.message, "': ") + 3,
               "the patterns take more than 500000000 steps together (give fewer or simpler ones)");
  EXPECT_EQ(err.tensor, name);
  EXPECT_EQ(ckpt_pattern_match(patterns[0], "x", &matched, nullptr), CKPT_ELIMIT);
  ckpt_pattern *late = nullptr;
  EXPECT_EQ(ckpt_pattern_new(&late, "x", &n_steps, nullptr), CKPT_ELIMIT);
  for (ckpt_pattern *pattern : patterns) ckpt_pattern_free(pattern);
}

TEST(Pattern, AnHonestSetIsWithinTheBudget) {
  uint64_t n_steps = CKPT_PATTERN_STEPS;
  ckpt_pattern *pattern = nullptr;
  ASSERT_EQ(ckpt_pattern_new(&pattern, "model.layers.*.mlp.experts.*.down_proj.weight", &n_steps, nullptr), CKPT_OK);
  bool matched;
  for (int i = 0; i < 1000; i++) {
    std::string name = "model.layers." + std::to_string(i) + ".mlp.experts.100.down_proj.weight";
    ASSERT_EQ(ckpt_pattern_match(pattern, name.c_str(), &matched, nullptr), CKPT_OK);
    EXPECT_TRUE(matched);
  }
  EXPECT_LT((CKPT_PATTERN_STEPS - n_steps) * 100 * 40, CKPT_PATTERN_STEPS);  // 40 on 100,000 names
  ckpt_pattern_free(pattern);
}

TEST(Pattern, ABadNameIsRefused) {
  ckpt_pattern *pattern = nullptr;
  ASSERT_EQ(ckpt_pattern_new(&pattern, "*", nullptr, nullptr), CKPT_OK);
  bool matched;
  EXPECT_EQ(ckpt_pattern_match(pattern, "\xFF", &matched, nullptr), CKPT_EINVAL);
  ckpt_pattern_free(pattern);
}

class RenameTest : public ::testing::Test {
 protected:
  void SetUp() override { ckpt_arena_init(&arena_, 1 << 20); }
  void TearDown() override { ckpt_arena_free(&arena_); }

  std::string Apply(const std::string &text, const std::string &name, ckpt_status expected = CKPT_OK) {
    ckpt_renaming *rename = nullptr;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_renaming_new(&rename, text.c_str(), nullptr, &err), CKPT_OK) << err.message;
    if (rename == nullptr) return "";
    const char *out = nullptr;
    EXPECT_EQ(ckpt_renaming_apply(rename, name.c_str(), &arena_, &out, &err), expected) << err.message;
    std::string result = expected == CKPT_OK ? out : err.message;
    EXPECT_EQ(ckpt_renaming_n_matched(rename), result == name ? 0u : 1u);
    ckpt_renaming_free(rename);
    return result;
  }
  std::string Error(const std::string &text) {
    ckpt_renaming *rename = nullptr;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_renaming_new(&rename, text.c_str(), nullptr, &err), CKPT_EINVAL) << text;
    return err.message;
  }

  ckpt_arena arena_;
};

// Every match of a name that has many is found in the time of one: that it is UTF-8 is looked at once.
TEST_F(RenameTest, ManyMatchesOfALongNameTakeLinearTime) {
  ckpt_renaming *rename = nullptr;
  ASSERT_EQ(ckpt_renaming_new(&rename, "s/a/b/g", nullptr, nullptr), CKPT_OK);
  auto fastest = [&](size_t n, int repeats) {
    double best = 1e9;
    for (int i = 0; i < 9; i++) {
      clock_t start = clock();
      for (int k = 0; k < repeats; k++) {
        const char *out = nullptr;
        EXPECT_EQ(ckpt_renaming_apply(rename, std::string(n, 'a').c_str(), &arena_, &out, nullptr), CKPT_OK);
        EXPECT_EQ(out, std::string(n, 'b'));
      }
      best = std::min(best, static_cast<double>(clock() - start) / repeats);
    }
    return best;
  };
  double small = fastest(256, 40), large = fastest(4096, 4);  // 16 times as long; 60 times as much where quadratic
  EXPECT_LT(large, 40 * small);
  ckpt_renaming_free(rename);
}

TEST_F(RenameTest, Replaces) {
  EXPECT_EQ(Apply("s/^model\\.//", "model.norm.weight"), "norm.weight");
  EXPECT_EQ(Apply("s/^/model./", "norm.weight"), "model.norm.weight");
  EXPECT_EQ(Apply("s/$/.x/", "w"), "w.x");
  EXPECT_EQ(Apply("s/a/b/", "aaa"), "baa");
  EXPECT_EQ(Apply("s/a/b/g", "aaa"), "bbb");
  EXPECT_EQ(Apply("s/layers\\.(\\d+)\\.(w)/blk.\\1.\\2_\\0/", "x.layers.12.w.y"), "x.blk.12.w_layers.12.w.y");
  EXPECT_EQ(Apply("s/.+/p.&/", "w"), "p.w");
  EXPECT_EQ(Apply("s/a\\/b/c\\/\\&\\\\/", "a/b"), "c/&\\");
  EXPECT_EQ(Apply("s/(x)|(y)/<\\1|\\2>/g", "xy"), "<x|><|y>");
  EXPECT_EQ(Apply("s/nothing/else/", "w"), "w");
}

TEST_F(RenameTest, EmptyMatchesAdvanceByCharacters) {
  EXPECT_EQ(Apply("s/x*/-/g", "abxc"), "-a-b-c-");
  EXPECT_EQ(Apply("s/a*/-/g", "aa"), "-");
  EXPECT_EQ(Apply("s/a*/-/g", "baac"), "-b-c-");
  EXPECT_EQ(Apply("s/(?=b)/./g", "abab"), "a.ba.b");
  EXPECT_EQ(Apply("s/()/-/g", "\xC3\xA9\xE2\x82\xAC"), "-\xC3\xA9-\xE2\x82\xAC-");
  EXPECT_EQ(Apply("s/\\b/|/g", "ab.c"), "|ab|.|c|");
}

TEST_F(RenameTest, ResultIsAName) {
  EXPECT_EQ(Apply("s/.*//", "w", CKPT_EINVAL), "rename 's/.*//' leaves an empty name");
  std::string name(2048, 'a');
  EXPECT_EQ(Apply("s/a/bb/g", name), std::string(4096, 'b'));
  EXPECT_EQ(Apply("s/a/bb/g", name + "a", CKPT_ELIMIT), "rename 's/a/bb/g' makes a name of more than 4096 bytes");
}

TEST_F(RenameTest, MistakesAreNamed) {
  for (const char *text :
       {"", "s", "s/", "s/a", "s/a/", "s/a/b", "s//b/", "s/a/b/x", "s/a/b/gg", "y/a/b/", "s|a|b|", "s/a/b\\/"})
    EXPECT_EQ(Error(text), std::string("rename '") + text + "': expected s/expression/replacement/ or .../g");
  EXPECT_EQ(Error("s/a/\\1/"), "rename 's/a/\\1/': there is no group \\1 (0 groups)");
  EXPECT_EQ(Error("s/(a)/$1/"), "rename 's/(a)/$1/': groups are written \\1, not $1");
  EXPECT_EQ(Error("s/a/\\n/"), "rename 's/a/\\n/': unknown escape \\n in the replacement");
  EXPECT_EQ(Error("s/a(/b/"), "pattern 's/a(/b/': missing closing parenthesis (at byte 4)");
}

}  // namespace
