// Lines that are gone past: what is judged in them counts to their end, over any number of windows of 64 KiB.
#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "libckpt/codec/pickle/pickle.h"
}

namespace {

const std::string kCall = "cos\nsystem\nR.";

ckpt_status Fetch(void *arg, uint64_t offset, void *to, size_t n, ckpt_error *) {
  memcpy(to, static_cast<const std::string *>(arg)->data() + offset, n);
  return CKPT_OK;
}

ckpt_pickle_rest Skim(std::string bytes, bool is_fetched) {
  ckpt_pickle_report report = {};
  ckpt_pickle_options options = {};
  options.n_bytes = bytes.size();
  options.report = &report;
  if (is_fetched) {
    options.fetch = Fetch, options.arg = &bytes;
  } else {
    options.data = bytes.data();
  }
  ckpt_pickle_rest rest = {};
  EXPECT_EQ(ckpt_pickle_skim(&rest, &options, nullptr), CKPT_OK);
  return rest;
}

// A line of the opcode: a beginning, `fill` up to n bytes, an end.
std::string Line(const char *begin, char fill, const std::string &end, size_t n) {
  std::string line = begin;
  return line + std::string(n - line.size() - end.size(), fill) + end + "\n";
}

TEST(Skim, ALineIsJudgedToItsEnd) {
  for (size_t n : {100u, 65533u, 65534u, 65535u, 65536u, 65537u, 65538u, 131071u, 200000u})
    for (bool is_fetched : {false, true}) {
      SCOPED_TRACE(std::to_string(n) + (is_fetched ? " fetched" : ""));
      const std::string good[] = {
          Line("I", '1', "", n),   Line("I+", '1', std::string("\0!!", 3), n),  // C reads no further than a zero
          Line("S'", '!', "'", n), Line("P", '!', "", n),
          Line("P", 'a', "!", n),  Line("I", ' ', "7", n)};
      for (const std::string &line : good) {
        const std::string bytes = line + kCall;
        const ckpt_pickle_rest rest = Skim(bytes, is_fetched);
        EXPECT_TRUE(rest.goes_on) << line.substr(0, 3) << line.substr(n - 3);
        EXPECT_STREQ(rest.seen, "os.system");
        EXPECT_EQ(rest.end, bytes.size() - 1);  // behind REDUCE
      }
      const std::string refused[] = {Line("I", '1', "!", n), Line("I+", '1', "!", n),   Line("I!", '!', "", n),
                                     Line("S", '!', "", n),  Line("P", '!', "\x80", n), Line("P", 'a', "\x80", n)};
      for (const std::string &line : refused) {
        const ckpt_pickle_rest rest = Skim(line + kCall, is_fetched);
        EXPECT_FALSE(rest.goes_on) << line.substr(0, 3) << line.substr(n - 3);
        EXPECT_EQ(rest.end, line.size());
      }
      EXPECT_FALSE(Skim(std::string("I") + std::string(n, '1'), is_fetched).goes_on);  // no line
    }
}

// A name is dotted to its end, and of a long one what fits is kept.
TEST(Skim, ANameIsOneToItsEnd) {
  for (size_t n : {100u, 65535u, 65536u, 65537u, 200000u}) {
    const ckpt_pickle_rest rest = Skim(Line("c", 'a', "", n) + "b\nR.", false);
    EXPECT_TRUE(rest.goes_on) << n;
    const std::string seen = std::string(n - 1, 'a') + ".b";
    EXPECT_EQ(rest.seen, seen.substr(0, CKPT_PICKLE_SEEN_BYTES));
    EXPECT_FALSE(Skim(Line("c", 'a', "!", n) + "b\nR.", false).goes_on) << n;
    EXPECT_FALSE(Skim(Line("c", '!', "", n) + "b\nR.", false).goes_on) << n;
  }
}

}  // namespace
