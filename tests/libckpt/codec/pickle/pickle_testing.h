// The pickle machine over pickles in memory, and those of tests/data/pickles.tsv.
#ifndef CKPT_TESTS_CODEC_PICKLE_TESTING_H
#define CKPT_TESTS_CODEC_PICKLE_TESTING_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/pickle/pickle.h"
}

namespace pickle_testing {

struct Row {
  std::string name, data, json, globals;
  uint64_t n;
};

inline std::vector<Row> rows() {
  std::ifstream file(CKPT_TESTS_DIR "/data/pickles.tsv", std::ios::binary);
  std::vector<Row> all;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields(1);
    for (char c : line)
      if (c == '\t')
        fields.emplace_back();
      else
        fields.back() += c;
    Row row{fields.at(0), "", fields.at(3), fields.at(4), std::stoull(fields.at(2))};
    for (size_t i = 0; i < fields[1].size(); i += 2)
      row.data += static_cast<char>(std::stoi(fields[1].substr(i, 2), nullptr, 16));
    all.push_back(row);
  }
  return all;
}

// Reads in windows, from memory of the exact size.
inline ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n, ckpt_error *err) {
  const auto *bytes = static_cast<const std::string *>(arg);
  EXPECT_LE(offset + n, bytes->size());
  (void)err;
  bytes->copy(static_cast<char *>(dst), n, offset);
  return CKPT_OK;
}

class PickleTest : public ::testing::Test {
 protected:
  void SetUp() override { ckpt_arena_init(&arena_, UINT64_C(1) << 30); }
  void TearDown() override { ckpt_arena_free(&arena_); }

  // What bytes describe, or "! message".
  std::string Read(const std::string &bytes, bool in_memory = true) {
    std::string exact(bytes);
    exact.shrink_to_fit();
    ckpt_pickle_options options = {};
    if (in_memory)
      options.data = exact.data();
    else
      options.fetch = fetch, options.arg = &exact;
    options.n_bytes = exact.size();
    options.file = "f";
    options.limits = &limits_;
    options.report = &report_;
    err_ = {};
    root_ = nullptr;
    n_ = 0;
    status_ = ckpt_pickle_read(&root_, &n_, &options, &arena_, &err_);
    EXPECT_EQ(err_.status, status_);
    EXPECT_NE(status_, CKPT_EINTERNAL);
    if (status_ != CKPT_OK) return std::string("! ") + err_.message;
    return ckpt_object_print(root_, UINT64_C(1) << 24, &arena_);
  }
  std::string Globals() const {
    std::string text;
    for (uint32_t i = 0; i < report_.n_globals; i++) {
      std::string name = report_.globals[i]->name;
      for (char &c : name)
        if (c == ' ') c = '_';
      text += (i == 0 ? "" : " ") + name + "@" + std::to_string(report_.globals[i]->first);
    }
    return text;
  }
  const ckpt_pickle_global *Global(const std::string &name) const {
    for (uint32_t i = 0; i < report_.n_globals; i++)
      if (report_.globals[i]->name == name) return report_.globals[i];
    return nullptr;
  }

  ckpt_arena arena_;
  ckpt_pickle_limits limits_ = CKPT_PICKLE_LIMITS;
  ckpt_pickle_report report_;
  ckpt_error err_;
  ckpt_object *root_;
  uint64_t n_;
  ckpt_status status_;
};

inline std::string Be(std::initializer_list<int> bytes) { return std::string(bytes.begin(), bytes.end()); }
inline std::string text_times(const std::string &text, int n) {
  std::string out;
  for (int i = 0; i < n; i++) out += text;
  return out;
}
inline std::string Le(uint64_t value, int n) {
  std::string text;
  for (int i = 0; i < n; i++) text += static_cast<char>(value >> (8 * i));
  return text;
}

}  // namespace pickle_testing

#endif
