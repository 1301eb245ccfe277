// Checksums of records that are read in pieces: any order, twice, with gaps, several tensors in one record, and from
// several threads at once. What is read whole is compared, what is not is left alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/base/crc32.h"
#include "libckpt/extents/decode.h"
#include "libckpt/extents/record_checks.h"
#include "libckpt/io/records.h"
}

namespace {

using namespace fake;

struct Told {
  std::vector<std::string> tensors;
  static void take(void *arg, const ckpt_error *damage) { static_cast<Told *>(arg)->tensors.push_back(damage->tensor); }
};

// A file with one record at byte 64, and tensors of bytes in it: {first byte, bytes}.
class RecordChecks : public ::testing::Test {
 protected:
  void make(size_t n, const std::vector<std::pair<uint64_t, uint64_t>> &parts, uint32_t change = 0) {
    Random random(n);
    bytes_.assign(64 + n + 32, 'x');
    for (size_t i = 0; i < n; i++) bytes_[64 + i] = static_cast<char>(random.below(256));
    source_ = memory_source({{"file", bytes_}});
    const uint32_t sum = ckpt_crc32(0, bytes_.data() + 64, n) ^ change;
    const ckpt_stored_record row = ckpt_stored_record_of(0, 64, n, n, sum, "data/0");
    ckpt_error err = {};
    ASSERT_EQ(ckpt_source_add_record(source_, &row, &err), CKPT_OK);
    ASSERT_EQ(ckpt_index_new(&index_, source_, "file", "fake", nullptr, &err), CKPT_OK);
    for (size_t i = 0; i < parts.size(); i++) {
      ckpt_extent extent = {};
      extent.offset = 64 + parts[i].first;
      extent.n_stored = extent.count = parts[i].second;
      const std::string name = "t" + std::to_string(i);
      ASSERT_EQ(ckpt_index_add(index_, name.c_str(), name.size(), CKPT_U8, 1, &parts[i].second, CKPT_ROLE_PARAMETER,
                               &extent, 1, nullptr, &err),
                CKPT_OK);
    }
    uint32_t n_extents = 0;
    for (size_t i = 0; i < parts.size(); i++) n_extents += ckpt_extent_has_record(source_, index_->tensors[i].extents);
    ASSERT_EQ(ckpt_record_checks_new(&checks_, n_extents, &err), CKPT_OK);
    for (size_t i = 0; i < parts.size(); i++)
      ckpt_record_checks_want(checks_, source_, &index_->tensors[i], index_->tensors[i].n_bytes);
    ckpt_record_checks_begin(checks_);
  }
  void TearDown() override {
    ckpt_record_checks_free(checks_);
    ckpt_index_free(index_);
  }
  ckpt_status read(size_t tensor, uint64_t at, uint64_t n) {
    ckpt_reader reader = {};
    reader.source = source_;
    reader.checks = checks_;
    std::string out(n, '\0');
    ckpt_error err = {};
    const ckpt_status status = ckpt_reader_read(&reader, index_->tensors[tensor].extents, 1, at, &out[0], n, &err);
    if (status == CKPT_OK) {
      EXPECT_EQ(out, bytes_.substr(index_->tensors[tensor].extents->offset + at, n));
    }
    said_ = text_of(err);
    ckpt_reader_reset(&reader);
    return status;
  }
  ckpt_status end() {
    std::string window(1000, '\0');
    ckpt_error err = {};
    const ckpt_status status = ckpt_record_checks_end(checks_, &window[0], window.size(), &err);
    said_ = text_of(err);
    return status;
  }

  std::string bytes_, said_;
  ckpt_source *source_ = nullptr;
  ckpt_index *index_ = nullptr;
  ckpt_record_checks *checks_ = nullptr;
};

TEST_F(RecordChecks, PiecesInAnyOrder) {
  for (uint32_t change : {0, 1}) {
    for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(20); seed++) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Random random(seed);
      const uint64_t n = random.between(1, 40000);
      make(n, {{0, n}}, change);
      std::vector<uint64_t> cuts = {0, n};
      for (int i = 0; i < 30; i++) cuts.push_back(random.below(n + 1));
      std::sort(cuts.begin(), cuts.end());
      std::vector<size_t> order(cuts.size() - 1);
      std::iota(order.begin(), order.end(), 0);
      for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random.below(i)]);
      int n_refused = 0;
      for (size_t i : order) n_refused += read(0, cuts[i], cuts[i + 1] - cuts[i]) == CKPT_EDIFFERENT;
      EXPECT_EQ(n_refused, static_cast<int>(change));
      EXPECT_EQ(end(), CKPT_OK);  // told once
      TearDown();
      checks_ = nullptr, index_ = nullptr;
    }
  }
}

TEST_F(RecordChecks, NamesFileRecordAndTensor) {
  make(1000, {{0, 1000}}, 0x80);
  EXPECT_EQ(read(0, 0, 999), CKPT_OK);
  EXPECT_EQ(read(0, 999, 1), CKPT_EDIFFERENT);
  EXPECT_NE(said_.find("file: tensor 't0': record 'data/0': the CRC-32 of its content is"), std::string::npos) << said_;
  EXPECT_NE(said_.find("(size 1000; allow_corrupt reads it all the same)"), std::string::npos) << said_;
}

TEST_F(RecordChecks, BytesThatComeTwiceCountOnce) {
  make(1000, {{0, 1000}}, 1);
  EXPECT_EQ(read(0, 100, 500), CKPT_OK);
  EXPECT_EQ(read(0, 100, 500), CKPT_OK);
  EXPECT_EQ(read(0, 0, 300), CKPT_OK);
  EXPECT_EQ(read(0, 550, 400), CKPT_OK);
  EXPECT_EQ(read(0, 0, 1000), CKPT_EDIFFERENT);
}

TEST_F(RecordChecks, SeveralTensorsInOne) {
  make(1000, {{600, 400}, {0, 600}, {100, 100}}, 1);
  EXPECT_EQ(read(0, 0, 400), CKPT_OK);
  EXPECT_EQ(read(2, 0, 100), CKPT_OK);
  EXPECT_EQ(read(1, 0, 600), CKPT_EDIFFERENT);
}

TEST_F(RecordChecks, APartIsLeftAlone) {
  make(100000, {{0, 60000}}, 1);
  EXPECT_EQ(read(0, 0, 60000), CKPT_OK);
  EXPECT_EQ(end(), CKPT_OK);
}

TEST_F(RecordChecks, PaddingIsReadAtTheEnd) {
  for (uint32_t change : {0, 1}) {
    make(1000, {{40, 200}, {240, 700}}, change);
    EXPECT_EQ(read(1, 0, 700), CKPT_OK);
    EXPECT_EQ(read(0, 0, 200), CKPT_OK);
    EXPECT_EQ(end(), change == 0 ? CKPT_OK : CKPT_EDIFFERENT) << said_;
    TearDown();
    checks_ = nullptr, index_ = nullptr;
  }
}

TEST_F(RecordChecks, TooManyRangesAreReadAgain) {
  for (uint32_t change : {0, 1}) {
    make(20000, {{0, 20000}}, change);
    for (uint64_t at = 0; at < 20000; at += 2) ASSERT_EQ(read(0, at, 1), CKPT_OK);
    for (uint64_t at = 1; at < 20000; at += 2) ASSERT_EQ(read(0, at, 1), CKPT_OK);
    EXPECT_EQ(end(), change == 0 ? CKPT_OK : CKPT_EDIFFERENT) << said_;
    TearDown();
    checks_ = nullptr, index_ = nullptr;
  }
}

TEST_F(RecordChecks, AnotherIsToldWhereReadingGoesOn) {
  make(1000, {{0, 500}, {500, 500}}, 1);
  Told told;
  ckpt_source_allow_corrupt(source_, Told::take, &told);
  EXPECT_EQ(read(1, 0, 500), CKPT_OK);
  EXPECT_EQ(read(0, 0, 500), CKPT_OK);
  EXPECT_EQ(end(), CKPT_OK);
  ASSERT_TRUE(ckpt_record_checks_has_damage(checks_));
  for (size_t i : {0, 1}) ckpt_record_checks_tell(checks_, source_, &index_->tensors[i]);
  EXPECT_EQ(told.tensors, (std::vector<std::string>{"t0", "t1"}));
}

TEST_F(RecordChecks, ManyThreads) {
  for (uint32_t change : {0, 1}) {
    const uint64_t n = 1 << 20, n_piece = 1 << 12;
    make(n, {{0, n}}, change);
    std::atomic<uint64_t> next{0};
    std::atomic<int> n_refused{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
      threads.emplace_back([&] {
        std::string out(n_piece, '\0');
        ckpt_reader reader = {};
        reader.source = source_;
        reader.checks = checks_;
        for (uint64_t at; (at = next.fetch_add(n_piece)) < n;) {
          ckpt_error err = {};
          n_refused += ckpt_reader_read(&reader, index_->tensors[0].extents, 1, at, &out[0], n_piece, &err) != CKPT_OK;
        }
        ckpt_reader_reset(&reader);
      });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(n_refused, static_cast<int>(change));
    TearDown();
    checks_ = nullptr, index_ = nullptr;
  }
}

}  // namespace
