// Scan: no byte of an archive hides what its pickle calls, no tensor is taken for a pickle; tests/tools/cases/scan.sh
// has the files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

extern "C" {
#include "libckpt/recipe/scan.h"
}

namespace {

const std::string kBad = CKPT_TESTS_DIR "/data/scan/bad/";
const std::string kCall = "cposix\nsystem\n(X\x04";  // of make_scan.py, up to the length's zeros

std::string ReadFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Problems of bytes, and pickles in them.
size_t Scan(const std::string &bytes, uint64_t *n_pickles = nullptr) {
  ckpt_scan scan = {};
  ckpt_error err = {};
  EXPECT_EQ(ckpt_scan_bytes(&scan, bytes.data(), bytes.size(), "bytes", &err), CKPT_OK) << err.message;
  size_t n = scan.findings.n_of[CKPT_PROBLEM];
  if (n_pickles != nullptr) *n_pickles = scan.n_pickles;
  ckpt_scan_free(&scan);
  return n;
}

// A change of any byte outside of the pickle leaves it found, or the archive refused.
TEST(Scan, NoByteOfAnArchiveHidesAPickle) {
  for (const char *name : {"torch.pt", "nested.zip", "deflated.pt"}) {
    std::string whole = ReadFile(kBad + name);
    ASSERT_GT(Scan(whole), 0u) << name;
    size_t pickle = whole.find(kCall), end = pickle + 27;
    if (pickle == std::string::npos) pickle = 46, end = pickle + static_cast<uint8_t>(whole[18]);  // deflated
    for (size_t i = 0; i < whole.size(); i++) {
      if (i + 2 >= pickle && i < end) continue;
      for (uint8_t change : {0x01, 0x40, 0xff}) {
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ change);
        ASSERT_GT(Scan(changed), 0u) << name << " byte " << i << " ^ " << int{change};
      }
    }
  }
}

// Cut anywhere behind the call, it is still one; and cut anywhere, nothing but its beginning passes.
TEST(Scan, TruncationHidesNothingThatHasBeenCalled) {
  for (const char *name : {"torch.pt", "reduce4.pkl", "reduce0.pkl", "memo.pkl", "legacy.pt", "payload.joblib"}) {
    std::string whole = ReadFile(kBad + name);
    size_t call = whole.find("tR"), from = call == std::string::npos ? whole.size() : call + 2;
    for (size_t n = from; n <= whole.size(); n++) ASSERT_GT(Scan(whole.substr(0, n)), 0u) << name << " of " << n;
  }
}

// What tensors may hold is no pickle: uniform bytes, small integers, and half floats near one value; also where they
// begin as PROTO does, which one in 10,000 does, next to none is.
TEST(Scan, TensorsAreNoPickles) {
  std::mt19937_64 random(20240501);
  size_t n_forced = 0;
  uint64_t n_all = 0, n_pickles;
  for (int i = 0; i < 60000; i++) {
    std::string bytes(256, '\0');
    for (size_t k = 0; k < bytes.size(); k += 8) {
      uint64_t value = random();
      if (i % 3 == 1) value &= 0x0f0f0f0f0f0f0f0f;
      if (i % 3 == 2) value = (value & 0x00ff00ff00ff00ff) | 0x3c003c003c003c00;
      memcpy(&bytes[k], &value, sizeof value);
    }
    bool is_forced = i % 5 == 0;
    if (is_forced) bytes[0] = static_cast<char>(0x80), bytes[1] = static_cast<char>(i % 6);
    size_t n = Scan(bytes, &n_pickles);
    if (is_forced)
      n_forced += n;
    else
      ASSERT_EQ(n, 0u) << "buffer " << i;
    n_all += n_pickles;
  }
  EXPECT_LT(n_forced, 24u);  // of 12,000
  EXPECT_LT(n_all, 60u);
}

// Text that begins as an opcode does.
TEST(Scan, TextIsNoPickle) {
  for (const char *text :
       {"class Foo:\n  pass\n", "(in a way\nit is\nR.\n", "Introduction\n\nR.", "import os\nos.system\n",
        "cat\ndog\nRabbit.", "PK\n", "x", "", "ZF", "}", "0", "(((((", "cos\nsystem\n"})
    if (std::string(text) == "cos\nsystem\n")
      EXPECT_GT(Scan(text), 0u);  // a name that is dangerous to load
    else
      EXPECT_EQ(Scan(text), 0u) << text;
}

// The walk's bound: archives whose records overlap are not gone through again and again.
TEST(Scan, OverlappingRecordsAreBounded) {
  std::string header("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0a", 31), bytes;
  std::string text = "\x80\x04" + std::string("B\xff\xff\xff\x7f", 5);
  for (int i = 0; i < 20000; i++) bytes += header + text;
  EXPECT_GT(Scan(bytes), 0u);
}

}  // namespace
