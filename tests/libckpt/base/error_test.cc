// What is said of a failure: the first message wins, an option is named, and so is what to do about it.
#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "libckpt/base/error.h"
}

namespace {

std::string text_of(const ckpt_error &err, size_t n_bytes = 2048) {
  std::string text(n_bytes, '#');
  return ckpt_error_text(&err, text.data(), n_bytes);
}

void dashes(const char *field, const char *value, char *out, size_t n_bytes) {
  snprintf(out, n_bytes, "--%s%s%s", field, *value == '\0' ? "" : " ", value);
}

TEST(Error, AdviceNamesFields) {
  ckpt_error err = {};
  EXPECT_EQ(ckpt_advise(ckpt_fail(&err, CKPT_EEXIST, "a", "t", "exists"), &err, "%force replaces it"), CKPT_EEXIST);
  EXPECT_EQ(text_of(err), "a: tensor 't': exists (force replaces it)");
  char text[256];
  EXPECT_STREQ(ckpt_error_message(&err, dashes, text, sizeof text), "exists (--force replaces it)");
  EXPECT_EQ(ckpt_advise(CKPT_EEXIST, &err, "%other"), CKPT_EEXIST);
  EXPECT_STREQ(err.advice, "%force replaces it") << "the first one stays";
  ckpt_error none = {};
  EXPECT_EQ(ckpt_advise(CKPT_OK, &none, "%force"), CKPT_OK);
  EXPECT_STREQ(none.advice, "");
  EXPECT_EQ(ckpt_advise(CKPT_EIO, nullptr, "%force"), CKPT_EIO);
}

TEST(Error, AdviceGoesOnInTheBracketsOfTheMessage) {
  const struct {
    const char *message, *advice, *value, *said;
  } cases[] = {
      {"two (one is)", "leave out %weights=model", "", "two (one is; leave out --weights model)"},
      {"too small", "raise %memory", "", "too small (raise --memory)"},
      {"too small", "%memory=$ would do", "4096", "too small (--memory 4096 would do)"},
      {"odd", "a first %dtype='NAME=$' keeps it, or %exclude", "f32",
       "odd (a first --dtype 'NAME=f32' keeps it, or --exclude)"},
      {"odd", "another dtype", "", "odd (another dtype)"},
      {"odd", "(%dtype)s", "", "odd ((--dtype)s)"},
      {"odd", nullptr, "", "odd"},
      {"", "%like=MODEL", "", " (--like MODEL)"},
      {")", "%like=MODEL", "", "; --like MODEL)"},
  };
  char text[256];
  for (const auto &c : cases)
    EXPECT_STREQ(ckpt_advice_text(c.message, c.advice, c.value, dashes, text, sizeof text), c.said);
  char tiny[8];
  EXPECT_STREQ(ckpt_advice_text("too small", "raise %memory", "", dashes, tiny, sizeof tiny), "too sma");
}

TEST(Error, TheOptionAtFaultStandsInFront) {
  ckpt_error err = {};
  EXPECT_EQ(ckpt_fail_option(&err, CKPT_EINVAL, "a", "shard_size", "%d is none", 3), CKPT_EINVAL);
  EXPECT_EQ(text_of(err), "a: shard_size: 3 is none");
  EXPECT_EQ(text_of(err, 8), "a: shar");
  ckpt_error quoted = {};
  EXPECT_EQ(ckpt_fail_option(&quoted, CKPT_EINVAL, nullptr, "match", "'x' matches no tensor"), CKPT_EINVAL);
  EXPECT_EQ(text_of(quoted), "match 'x' matches no tensor");
}

TEST(Error, AnErrorPassedOnKeepsItsAdvice) {
  ckpt_error why = {}, err = {}, filled = {};
  ckpt_advise_value(ckpt_fail_option(&why, CKPT_ELIMIT, nullptr, "memory", "is low"), &why, "%memory=$", "9");
  EXPECT_EQ(ckpt_fail_as(&err, CKPT_EIO, "f", nullptr, &why), CKPT_EIO);
  EXPECT_EQ(text_of(err), "f: memory: is low (memory=9)");
  EXPECT_EQ(ckpt_fail(&filled, CKPT_EFORMAT, "g", nullptr, "first"), CKPT_EFORMAT);
  EXPECT_EQ(ckpt_fail_as(&filled, CKPT_EIO, "f", nullptr, &why), CKPT_EIO);
  EXPECT_EQ(text_of(filled), "g: first");
}

}  // namespace
