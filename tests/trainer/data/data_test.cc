// Samples from files, their order, and batches.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "trainer/data/loader.h"
}

namespace {

TEST(Order, PermutesEveryRange) {
  for (uint64_t n : {1u, 2u, 3u, 5u, 64u, 1000u, 4097u}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < n; i++) seen.insert(ckpt_permute(n, 7, 3, i));
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
  std::vector<uint64_t> a, b, c;
  for (uint64_t i = 0; i < 100; i++) {
    a.push_back(ckpt_permute(100, 7, 3, i));
    b.push_back(ckpt_permute(100, 7, 4, i));
    c.push_back(ckpt_permute(100, 8, 3, i));
  }
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  EXPECT_LT(ckpt_permute(UINT64_C(1) << 40, 1, 0, 5), UINT64_C(1) << 40);
}

// Every row of an epoch is somewhere once, for any cut into batches, ranks and accumulation.
TEST(Order, DealsEveryRowOnce) {
  for (uint64_t n : {1u, 7u, 16u, 33u})
    for (uint64_t batch : {1u, 2u, 5u})
      for (uint64_t ranks : {1u, 2u, 3u})
        for (uint64_t accumulation : {1u, 2u, 4u}) {
          const ckpt_order order = {n, batch, accumulation, ranks, 1, false, true};
          std::vector<int> counts(n);
          uint64_t last = 0;
          for (uint64_t step = 0; step < ckpt_order_steps(&order); step++)
            for (uint64_t micro = 0; micro < ckpt_order_accumulated(&order, step); micro++)
              for (uint64_t rank = 0; rank < ranks; rank++) {
                uint64_t first, count;
                ckpt_order_rows(&order, step, micro, rank, &first, &count);
                for (uint64_t i = 0; i < count; i++) counts[first + i]++;
                if (count != 0) {
                  EXPECT_GE(first, last);
                  last = first;
                }
              }
          EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), int(n));
          const ckpt_order dropping = {n, batch, accumulation, ranks, 1, true, true};
          EXPECT_EQ(ckpt_order_batches(&dropping), n / (batch * ranks));
        }
}

class Data : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "ckpt_data_" + std::to_string(getpid()) + "/";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    ckpt_dataset_free(data_);
    ckpt_sample_free(&sample_);
    ckpt_batch_free(&loaded_);
    std::filesystem::remove_all(folder_);
  }
  std::string write(const char *name, const std::string &text) {
    std::ofstream(folder_ + name, std::ios::binary) << text;
    return folder_ + name;
  }
  ckpt_status open(const std::vector<std::string> &paths, ckpt_packing packing = CKPT_PACKING_NONE,
                   uint64_t max_length = 0, ckpt_dtype dtype = CKPT_DTYPE_NONE) {
    std::vector<const char *> list;
    for (const auto &path : paths) list.push_back(path.c_str());
    list.push_back(nullptr);
    ckpt_dataset_options options = {};
    options.paths = list.data();
    options.vocabulary = 100;
    options.max_positions = 16;
    options.max_length = max_length;
    options.measures = true;
    options.packing = packing;
    options.dtype = dtype;
    ckpt_dataset_free(data_);
    data_ = nullptr;
    err_ = {};
    return ckpt_dataset_open(&data_, &options, &err_);
  }
  std::vector<int> ids(uint64_t index) {
    err_ = {};
    status_ = ckpt_dataset_read(data_, index, &sample_, &err_);
    return std::vector<int>(sample_.ids, sample_.ids + (status_ == CKPT_OK ? sample_.n : 0));
  }
  std::string folder_;
  ckpt_dataset *data_ = nullptr;
  ckpt_sample sample_ = {};
  ckpt_loaded loaded_ = {};
  ckpt_error err_ = {};
  ckpt_status status_ = CKPT_OK;
};

TEST_F(Data, RowsOfIds) {
  const auto path = write("a.jsonl",
                          "{\"input_ids\": [1, 2, 3]}\n\n  \n{\"input_ids\": [4, 5], \"labels\": [-100, 5]}\n"
                          "{\"input_ids\": [6, 7, 8], \"attention_mask\": [1, 1, 0]}");
  ASSERT_EQ(open({path}), CKPT_OK) << err_.message;
  ASSERT_EQ(ckpt_dataset_count(data_), 3u);
  EXPECT_EQ(ids(0), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ids(2), (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(sample_.mask[2], 0);
  EXPECT_EQ(sample_.labels[2], -100);
  EXPECT_EQ(ids(1), (std::vector<int>{4, 5}));
  EXPECT_EQ(sample_.labels[0], -100);
}

// What is planned for: the longest list of ids, and what text is cut to.
TEST_F(Data, KnowsHowLongRowsAre) {
  const auto longest = [&](const std::string &row, ckpt_packing packing = CKPT_PACKING_NONE, uint64_t max_length = 0) {
    const auto path = write("a.jsonl", "{\"input_ids\": [1, 2]}\n\n" + row + "\n{\"input_ids\": [1]}");
    EXPECT_EQ(open({path}, packing, max_length), CKPT_OK) << row << err_.message;
    return ckpt_dataset_max_length(data_);
  };
  EXPECT_EQ(longest(R"({"input_ids" : [1,2, 3 ,4,5]})"), 5u);
  EXPECT_EQ(
      longest(R"({"note": "a\"b, [1,2,3,4,5,6,7] \\", "input_ids": [1, 2, 3], "labels": [1, 2, 3], "x": {"y": [1]}})"),
      3u);
  EXPECT_EQ(longest(R"({"input_ids": [1,2,3,4,5,6,7,8,9]})", CKPT_PACKING_NONE, 4), 4u);
  EXPECT_EQ(longest(R"({"text": "\"input_ids\": [1]"})"), 16u);
  EXPECT_EQ(longest(R"({"text": "a", "more": {"input_ids": [1]}})"), 16u);
  EXPECT_EQ(longest(R"({"text": "input_ids", "x": [1]})"), 16u);
  EXPECT_EQ(longest(R"({"text_input_ids": [1], "text": "a b"})"), 16u);
  EXPECT_EQ(longest(R"({"input_ids": [3, 4, 5]})", CKPT_PACKING_CONCAT, 16), 6u);
  EXPECT_EQ(longest(R"({"input_ids": [3, 4, 5]})", CKPT_PACKING_DOCUMENT, 4), 4u);
}

TEST_F(Data, MasksAreOnesAndZerosOrTruthValues) {
  ASSERT_EQ(open({write("a.jsonl", "{\"input_ids\": [6, 7, 8, 9], \"attention_mask\": [true, 1, false, 0]}\n")}),
            CKPT_OK);
  ids(0);
  ASSERT_EQ(status_, CKPT_OK) << err_.message;
  EXPECT_EQ(std::vector<int>(sample_.mask, sample_.mask + 4), (std::vector<int>{1, 1, 0, 0}));
  EXPECT_EQ(std::vector<int>(sample_.labels, sample_.labels + 4), (std::vector<int>{6, 7, -100, -100}));
}

TEST_F(Data, BatchesArePaddedAndShifted) {
  const auto path =
      write("a.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4, 5, 6]}\n{\"input_ids\": [7, 8, 9]}\n");
  ASSERT_EQ(open({path}), CKPT_OK);
  const ckpt_order order = {3, 3, 1, 1, 0, false, true};
  ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 0, 3, false, &sample_, &err_), CKPT_OK);
  EXPECT_EQ(loaded_.batch.length, 4u);
  EXPECT_EQ(loaded_.n_targets, 6u);
  EXPECT_EQ(loaded_.n_tokens, 9u);
  const std::vector<int> wanted = {2, -100, -100, -100, 4, 5, 6, -100, 8, 9, -100, -100};
  EXPECT_EQ(std::vector<int>(loaded_.targets, loaded_.targets + 12), wanted);
  EXPECT_EQ(std::vector<int>(loaded_.mask, loaded_.mask + 12), (std::vector<int>{1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0}));
  ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 1, 1, false, &sample_, &err_), CKPT_OK);
  EXPECT_EQ(loaded_.batch.mask, nullptr);
}

// A batch's room is used again: it grows for a longer row, and what was read before stays. A row may be empty.
TEST_F(Data, BatchesUseTheirRoomAgain) {
  ASSERT_EQ(open({write("a.jsonl",
                        "{\"input_ids\": []}\n{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4, 5, 6, 7]}\n"
                        "{\"input_ids\": [8, 9, 10]}\n{\"input_ids\": []}\n")}),
            CKPT_OK);
  const ckpt_order order = {5, 5, 1, 1, 0, false, true};
  ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 0, 5, true, &sample_, &err_), CKPT_OK);
  const int32_t *const ids = loaded_.ids, *const documents = loaded_.documents;
  for (int again = 0; again < 2; again++) {
    const auto all = [](const auto *from) { return std::vector<int>(from, from + 25); };
    EXPECT_EQ(loaded_.batch.length, 5u);
    EXPECT_EQ(loaded_.n_targets, 7u);
    EXPECT_EQ(all(loaded_.ids),
              (std::vector<int>{0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(all(loaded_.targets),
              (std::vector<int>{-100, -100, -100, -100, -100, 2,    -100, -100, -100, -100, 4,    5,   6,
                                7,    -100, 9,    10,   -100, -100, -100, -100, -100, -100, -100, -100}));
    EXPECT_EQ(all(loaded_.positions),
              (std::vector<int>{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(all(loaded_.documents), (std::vector<int>{-1, -1, -1, -1, -1, 0,  0,  -1, -1, -1, 0,  0, 0,
                                                        0,  0,  0,  0,  0,  -1, -1, -1, -1, -1, -1, -1}));
    EXPECT_EQ(all(loaded_.mask),
              (std::vector<int>{0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0}));
    ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 1, 1, true, &sample_, &err_), CKPT_OK);
    EXPECT_EQ(loaded_.batch.length, 2u);
    ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 0, 5, true, &sample_, &err_), CKPT_OK);
  }
  EXPECT_EQ(loaded_.ids, ids);
  EXPECT_EQ(loaded_.documents, documents);
}

// Threads read ahead: the batches of every rank, in their order, whatever the threads; a row that cannot be read fails
// the batch that has it, and no earlier one.
TEST_F(Data, LoadersGiveBatchesInOrder) {
  std::string rows;
  for (int i = 0; i < 23; i++) rows += "{\"input_ids\": [" + std::to_string(i) + ", 1, 2]}\n";
  ASSERT_EQ(open({write("a.jsonl", rows)}), CKPT_OK);
  const ckpt_order order = {23, 2, 3, 2, 7, false, false};
  for (const uint32_t n_threads : {1U, 5U})
    for (const uint64_t rank : {0, 1}) {
      const ckpt_loader_options options = {data_, &order, rank, 1, 7, false, n_threads};
      ckpt_loader *loader = nullptr;
      ckpt_loaded taken = {};
      ASSERT_EQ(ckpt_loader_new(&loader, &options, &err_), CKPT_OK);
      for (uint64_t step = 1; step < 7; step++)
        for (uint64_t micro = 0; micro < ckpt_order_accumulated(&order, step); micro++) {
          uint64_t first, n;
          ckpt_order_rows(&order, step, micro, rank, &first, &n);
          ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, step / ckpt_order_steps(&order), first, n, false, &sample_,
                                    &err_),
                    CKPT_OK);
          ASSERT_EQ(ckpt_loader_take(loader, &taken, &err_), CKPT_OK) << err_.message;
          ASSERT_EQ(taken.batch.n_rows, loaded_.batch.n_rows);
          ASSERT_EQ(taken.batch.first_row, first);
          const size_t n_ids = static_cast<size_t>(taken.batch.n_rows) * taken.batch.length;
          EXPECT_TRUE(std::equal(taken.ids, taken.ids + n_ids, loaded_.ids)) << step << " " << micro;
        }
      EXPECT_EQ(ckpt_loader_take(loader, &taken, &err_), CKPT_EINTERNAL);
      ckpt_batch_free(&taken);
      ckpt_loader_free(loader);
    }
  ASSERT_EQ(open({write("b.jsonl", rows.substr(0, rows.find("{\"input_ids\": [9")) + "{\n")}), CKPT_OK);
  const ckpt_order plain = {10, 2, 1, 1, 0, false, true};
  const ckpt_loader_options options = {data_, &plain, 0, 0, 100, false, 3};
  ckpt_loader *loader = nullptr;
  ckpt_loaded taken = {};
  err_ = {};
  ASSERT_EQ(ckpt_loader_new(&loader, &options, &err_), CKPT_OK);
  for (int i = 0; i < 4; i++) EXPECT_EQ(ckpt_loader_take(loader, &taken, &err_), CKPT_OK) << err_.message;
  EXPECT_EQ(ckpt_loader_take(loader, &taken, &err_), CKPT_EFORMAT);
  EXPECT_NE(std::string(err_.message).find("line 10"), std::string::npos) << err_.message;
  ckpt_batch_free(&taken);
  ckpt_loader_free(loader);
}

// Rows are counted by threads; of several that are broken the first is named.
TEST_F(Data, PackingCountsAnyNumberOfRows) {
  std::string rows;
  for (int i = 0; i < 3000; i++)
    rows += "{\"input_ids\": [" + std::to_string(i % 90) + (i % 3 == 0 ? ", 1]}\n" : "]}\n");
  ASSERT_EQ(open({write("a.jsonl", rows)}, CKPT_PACKING_CONCAT, 10), CKPT_OK) << err_.message;
  EXPECT_EQ(ckpt_dataset_count(data_), 400u);
  EXPECT_EQ(ids(399).back(), 2999 % 90);
  for (const char *broken : {"[6, 1]}", "[8]}"}) rows.replace(rows.rfind(broken), 1, "x");
  rows.replace(rows.find("[50]}", 20000), 1, "x");
  EXPECT_EQ(open({write("b.jsonl", rows)}, CKPT_PACKING_CONCAT, 10), CKPT_EFORMAT);
  const auto line = 1 + std::count(rows.begin(), rows.begin() + static_cast<long>(rows.find("x50]}")), '\n');
  EXPECT_NE(std::string(err_.message).find("line " + std::to_string(line)), std::string::npos) << err_.message;
}

TEST_F(Data, PackingJoinsRowsAndKeepsDocumentsApart) {
  const auto a = write("a.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n");
  const auto b = write("b.jsonl", "{\"input_ids\": [6, 7, 8, 9, 10]}\n");
  ASSERT_EQ(open({folder_ + "*.jsonl"}, CKPT_PACKING_DOCUMENT, 4), CKPT_OK) << err_.message;
  ASSERT_EQ(ckpt_dataset_count(data_), 3u);
  EXPECT_EQ(ids(2), (std::vector<int>{9, 10}));
  EXPECT_EQ(ids(0), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(sample_.documents[2], 0);
  EXPECT_EQ(sample_.documents[3], 1);
  EXPECT_EQ(ids(1), (std::vector<int>{5, 6, 7, 8}));
  const ckpt_order order = {3, 1, 1, 1, 0, false, true};
  ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 0, 1, true, &sample_, &err_), CKPT_OK);
  EXPECT_EQ(std::vector<int>(loaded_.targets, loaded_.targets + 4), (std::vector<int>{2, 3, -100, -100}));
  EXPECT_EQ(std::vector<int>(loaded_.positions, loaded_.positions + 4), (std::vector<int>{0, 1, 2, 0}));
  ASSERT_EQ(open({a, b}, CKPT_PACKING_CONCAT, 4), CKPT_OK);
  ASSERT_EQ(ckpt_batch_load(&loaded_, data_, &order, 0, 0, 1, false, &sample_, &err_), CKPT_OK);
  EXPECT_EQ(std::vector<int>(loaded_.targets, loaded_.targets + 4), (std::vector<int>{2, 3, 4, -100}));
}

TEST_F(Data, BinaryTokens) {
  std::string u16, u32, llmc(1024, '\0');
  for (int i = 0; i < 10; i++) {
    u16 += std::string({char(i + 1), 0});
    u32 += std::string({char(i + 1), 0, 0, 0});
  }
  const uint32_t header[3] = {20240520, 1, 10};
  llmc.replace(0, sizeof header, reinterpret_cast<const char *>(header), sizeof header);
  const auto a = write("a.bin", u16), b = write("b.bin", u32), c = write("c.bin", llmc + u16);
  for (const auto &path : {a, c}) {
    ASSERT_EQ(open({path}, CKPT_PACKING_NONE, 4), CKPT_OK) << err_.message;
    ASSERT_EQ(ckpt_dataset_count(data_), 3u);
    EXPECT_EQ(ids(1), (std::vector<int>{5, 6, 7, 8}));
    EXPECT_EQ(ids(2), (std::vector<int>{9, 10}));
  }
  ASSERT_EQ(open({b}, CKPT_PACKING_NONE, 4, CKPT_U32), CKPT_OK) << err_.message;
  EXPECT_EQ(ids(0), (std::vector<int>{1, 2, 3, 4}));
  const auto odd = write("odd.bin", u16 + "x"), short_one = write("short.bin", llmc + u16.substr(2));
  EXPECT_EQ(open({odd}, CKPT_PACKING_NONE, 4), CKPT_EFORMAT);
  EXPECT_EQ(open({short_one}, CKPT_PACKING_NONE, 4), CKPT_EFORMAT);
  for (const auto &[magic, version] : std::vector<std::pair<uint32_t, uint32_t>>{
           {20240520, 2}, {20240520, 7}, {20240801, 1}, {20240521, 1}, {20240530, 1}}) {
    const uint32_t wrong[3] = {magic, version, 10};
    llmc.replace(0, sizeof wrong, reinterpret_cast<const char *>(wrong), sizeof wrong);
    EXPECT_EQ(open({write("wrong.bin", llmc + u16)}, CKPT_PACKING_NONE, 4), CKPT_EUNSUPPORTED) << magic;
    const std::string said = "magic " + std::to_string(magic) + " and version " + std::to_string(version);
    EXPECT_NE(std::string(err_.message).find(said), std::string::npos) << err_.message;
  }
  llmc.replace(0, sizeof header, reinterpret_cast<const char *>(header), sizeof header);
  EXPECT_EQ(open({write("cut.bin", llmc.substr(0, 500))}, CKPT_PACKING_NONE, 4), CKPT_EFORMAT);
  const auto past = write("past.bin", u16 + std::string({100, 0}));
  ASSERT_EQ(open({past}, CKPT_PACKING_NONE, 4), CKPT_OK);
  ids(2);
  EXPECT_EQ(status_, CKPT_EFORMAT);
  EXPECT_NE(std::string(err_.message).find("token 10 is 100"), std::string::npos) << err_.message;
}

std::string little(uint64_t value, int n) {
  std::string bytes;
  for (int i = 0; i < n; i++) bytes += char(value >> 8 * i);
  return bytes;
}

// Megatron's index beside a .bin: its sequences are documents.
TEST_F(Data, MegatronsIndexSaysWhereDocumentsBegin) {
  std::string tokens;
  for (int i = 0; i < 9; i++) tokens += little(uint64_t(i + 1), 2);
  const auto index = [](std::vector<int64_t> lengths, std::vector<int64_t> offsets, int type = 8, int version = 1) {
    std::string text = std::string("MMIDIDX\0\0", 9) + little(uint64_t(version), 8) + char(type) +
                       little(lengths.size(), 8) + little(lengths.size() + 1, 8);
    for (auto length : lengths) text += little(uint64_t(length), 4);
    for (auto offset : offsets) text += little(uint64_t(offset), 8);
    for (size_t i = 0; i <= lengths.size(); i++) text += little(i, 8);
    return text;
  };
  const auto path = write("a.bin", tokens);
  write("a.idx", index({3, 0, 4, 2}, {0, 6, 6, 14}));
  ASSERT_EQ(open({path}, CKPT_PACKING_DOCUMENT, 5), CKPT_OK) << err_.message;
  ASSERT_EQ(ckpt_dataset_count(data_), 2u);
  EXPECT_EQ(ids(1), (std::vector<int>{6, 7, 8, 9}));
  EXPECT_NE(sample_.documents[1], sample_.documents[2]);
  EXPECT_EQ(ids(0), (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(sample_.documents[2], 0);
  EXPECT_NE(sample_.documents[3], 0);
  ASSERT_EQ(open({path}, CKPT_PACKING_NONE, 4), CKPT_OK);
  EXPECT_EQ(ids(0), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(sample_.documents[3], 0);
  const std::vector<std::string> wrong = {
      index({3, 7}, {0, 6}),       index({3, 4}, {0, 6}),  index({3, 6}, {0, 8}),         index({9}, {0}, 5),
      index({9}, {0}, 8, 2),       index({-1, 9}, {0, 0}), index({9}, {0}).substr(0, 40), "MMIDIDX",
      index({1 << 30, 9}, {0, 0}), index({9}, {1ll << 40})};
  for (const auto &text : wrong) {
    write("a.idx", text);
    EXPECT_NE(open({path}, CKPT_PACKING_DOCUMENT, 5), CKPT_OK);
    EXPECT_EQ(std::string(err_.file), folder_ + "a.idx") << err_.message;
  }
  // Where documents begin: 0, ascending, and at last the number of sequences. Some may be empty.
  const std::string sequences = index({3, 0, 4, 2}, {0, 6, 6, 14}).substr(0, 34 + 4 * 12);
  const auto documents = [&sequences](std::vector<int64_t> first, uint64_t n) {
    std::string text = sequences;
    text.replace(26, 8, little(n, 8));
    for (const auto one : first) text += little(uint64_t(one), 8);
    return text;
  };
  for (const auto &text : {documents({0, 4}, 2), documents({0, 1, 1, 4}, 4), documents({0, 4, 4, 4, 4, 4}, 6)}) {
    write("a.idx", text);
    EXPECT_EQ(open({path}, CKPT_PACKING_DOCUMENT, 5), CKPT_OK) << err_.message;
  }
  const std::vector<std::pair<std::string, std::string>> broken = {
      {documents({0, -1, 4}, 3), "document 1 begins at sequence -1"},
      {documents({0, 1ll << 40, 4}, 3), "document 1 begins at sequence 1099511627776"},
      {documents({0, 3, 2, 4}, 4), "document 2 begins at sequence 2, the one before at 3"},
      {documents({1, 4}, 2), "document 0 begins at sequence 1"},
      {documents({0, 3}, 2), "its documents end at sequence 3, and there are 4"},
      {documents({0, 4}, 0), "it says 0 entries of documents"},
      {documents({0, 4}, 3), "it says 3 entries of documents"},
      {documents({0, 4}, UINT64_MAX), "it says 18446744073709551615 entries of documents"}};
  for (const auto &[text, what] : broken) {
    write("a.idx", text);
    EXPECT_EQ(open({path}, CKPT_PACKING_DOCUMENT, 5), CKPT_EFORMAT);
    EXPECT_NE(std::string(err_.message).find(what), std::string::npos) << err_.message;
  }
}

TEST_F(Data, HostileRowsNameFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{\"input_ids\": [1, 2}", "no JSON"},
      {"{\"input_ids\": [1, 100]}", "input_ids[1] is 100"},
      {"{\"input_ids\": [1, -1]}", "input_ids[1] is -1"},
      {"{\"input_ids\": [1, 2], \"labels\": [1]}", "labels has 1 entries"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, 200]}", "labels[1] is 200"},
      {"{\"input_ids\": \"text\"}", "list of numbers"},
      {"{\"input_ids\": [1, 2.5]}", "input_ids[1] is 2.5"},
      {"{\"input_ids\": [3.0]}", "input_ids[0] is 3.0"},
      {"{\"input_ids\": [true]}", "input_ids[0] is true"},
      {"{\"input_ids\": [null]}", "input_ids[0] is null"},
      {"{\"input_ids\": [1], \"labels\": [-100.0]}", "labels[0] is -100.0"},
      {"{\"input_ids\": [1, 2], \"attention_mask\": [1, 2]}", "attention_mask[1] is 2"},
      {"{\"input_ids\": [1, 2], \"attention_mask\": [0.5, 1]}", "attention_mask[0] is 0.5"},
      {"{\"input_ids\": [1, 2], \"attention_mask\": [1, \"yes\"]}", "attention_mask[1] is \"yes\""},
      {"{\"input_ids\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", "17 tokens, the model 16 positions"},
      {"{\"text\": \"hello\"}", "no tokenizer"},
      {"{\"other\": 1}", "neither input_ids"},
      {"[1, 2]", "neither input_ids"},
  };
  for (const auto &[line, what] : wrong) {
    const auto path = write("bad.jsonl", "{\"input_ids\": [1]}\n\n" + line + "\n");
    ASSERT_EQ(open({path}), CKPT_OK);
    ids(1);
    EXPECT_NE(status_, CKPT_OK) << line;
    EXPECT_EQ(std::string(err_.file), path);
    EXPECT_EQ(std::string(err_.message).rfind("line 3: ", 0), 0u) << err_.message;
    EXPECT_NE(std::string(err_.message).find(what), std::string::npos) << err_.message;
  }
  EXPECT_EQ(open({write("empty.jsonl", "\n \n")}), CKPT_EINVAL);
  EXPECT_EQ(open({folder_ + "none*.jsonl"}), CKPT_ENOTFOUND);
  EXPECT_EQ(open({folder_ + "none.jsonl"}), CKPT_ENOTFOUND);
}

// Nobody waits for the writer of a FIFO.
TEST_F(Data, AFifoIsNoFile) {
  const auto jsonl = folder_ + "f.jsonl", bin = write("a.bin", std::string(8, '\1')), index = folder_ + "a.idx";
  for (const auto &path : {jsonl, index}) ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(open({jsonl}), CKPT_EFORMAT);
  EXPECT_STREQ(err_.message, "it is not a regular file");
  EXPECT_EQ(open({bin}), CKPT_EFORMAT);
  EXPECT_EQ(std::string(err_.file), index) << err_.message;
}

}  // namespace
