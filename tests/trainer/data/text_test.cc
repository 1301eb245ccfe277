// Text becomes samples with the tokenizer's own tokens around it and no more; prompts are no targets.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "trainer/data/batch.h"
}

namespace {

class Text : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = std::string(CKPT_TESTS_DIR) + "/data/tokenizer/llama2-first";
    ckpt_error err = {};
    ASSERT_EQ(ckpt_tokenizer_open(&tokenizer_, path.c_str(), &err), CKPT_OK) << err.message;
    ASSERT_EQ(ckpt_text_encoder_new(&encoder_, tokenizer_, &err), CKPT_OK) << err.message;
    ASSERT_GT(tokenizer_->n_before, 0u);
    folder_ = testing::TempDir() + "ckpt_text_" + std::to_string(getpid()) + "/";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    ckpt_dataset_free(data_);
    ckpt_sample_free(&sample_);
    ckpt_text_encoder_free(encoder_);
    ckpt_tokenizer_free(tokenizer_);
    std::filesystem::remove_all(folder_);
  }

  std::vector<int> encoded(const std::string &text, unsigned flags) {
    ckpt_encoding encoding = {};
    EXPECT_EQ(ckpt_text_encode(encoder_, &encoding, text.data(), text.size(), flags, nullptr), CKPT_OK);
    std::vector<int> ids(encoding.ids, encoding.ids + encoding.n);
    ckpt_encoding_free(&encoding);
    return ids;
  }

  ckpt_status open(const char *name, const std::string &text, ckpt_packing packing, uint64_t max_length,
                   const char *columns = nullptr) {
    const std::string path = folder_ + name;
    std::ofstream(path, std::ios::binary) << text;
    const char *const paths[] = {path.c_str(), nullptr};
    ckpt_dataset_options options = {};
    options.paths = paths;
    options.tokenizer = tokenizer_;
    options.encoder = encoder_;
    options.columns = columns;
    options.vocabulary = 1000;
    options.max_positions = 10000;
    options.max_length = max_length;
    options.packing = packing;
    ckpt_dataset_free(data_);
    data_ = nullptr;
    err_ = {};
    return ckpt_dataset_open(&data_, &options, &err_);
  }

  std::vector<int> ids(uint64_t index) {
    EXPECT_EQ(ckpt_dataset_read(data_, index, &sample_, &err_), CKPT_OK) << err_.message;
    return std::vector<int>(sample_.ids, sample_.ids + sample_.n);
  }

  ckpt_tokenizer *tokenizer_ = nullptr;
  ckpt_text_encoder *encoder_ = nullptr;
  ckpt_dataset *data_ = nullptr;
  ckpt_sample sample_ = {};
  ckpt_error err_ = {};
  std::string folder_;
};

TEST_F(Text, RowsGetTheTokenizersOwnTokens) {
  ASSERT_EQ(open("a.jsonl", "{\"text\": \"the first row\"}\n{\"text\": \"\"}\n", CKPT_PACKING_NONE, 0), CKPT_OK);
  const auto wanted = encoded("the first row", CKPT_TEXT_SPECIAL | CKPT_TEXT_PARSE_SPECIAL);
  EXPECT_EQ(ids(0), wanted);
  EXPECT_EQ(wanted[0], int(tokenizer_->before[0]));
  EXPECT_EQ(sample_.labels[1], wanted[1]);
  EXPECT_EQ(ids(1), encoded("", CKPT_TEXT_SPECIAL));
  ASSERT_EQ(open("b.jsonl", "{\"sentence\": \"the first row\"}\n", CKPT_PACKING_NONE, 3, "text=sentence"), CKPT_OK);
  EXPECT_EQ(ids(0), std::vector<int>(wanted.begin(), wanted.begin() + 3)); /* cut at max_length */
}

TEST_F(Text, PromptsAreNoTargets) {
  ASSERT_EQ(open("a.jsonl", "{\"prompt\": \"what is it\", \"completion\": \" a test of it\"}\n", CKPT_PACKING_NONE, 0),
            CKPT_OK);
  EXPECT_EQ(ids(0), encoded("what is it a test of it", CKPT_TEXT_SPECIAL));
  const size_t n_prompt = encoded("what is it", CKPT_TEXT_SPECIAL).size();
  size_t n_masked = 0;
  while (n_masked < sample_.n && sample_.labels[n_masked] == CKPT_NO_TARGET) n_masked++;
  EXPECT_EQ(n_masked, n_prompt);
  for (size_t i = n_masked; i < sample_.n; i++) EXPECT_EQ(sample_.labels[i], sample_.ids[i]);
  EXPECT_LT(n_masked, sample_.n);
}

// Columns are found as Python's json finds them, whatever else a row holds.
TEST_F(Text, ColumnsComeInAnyOrderAndTheLastOfAKeyCounts) {
  const std::string pair =
      R"({"x": {"prompt": "no"}, "completion": " a test", "prompt": "what is it", "y": [[1], "z"]})";
  const std::string again =
      R"({"prompt": "not this", "pro\u006dpt": "what is it", "completion": 7, "completion": " a test"})";
  const std::string half =
      R"({"prompt": "what is it", "completion": null, "text": "the \u00e9\ud83d\ude00\n\u0000row"})";
  ASSERT_EQ(open("a.jsonl", pair + "\n" + again + "\n" + half + "\n", CKPT_PACKING_NONE, 0), CKPT_OK);
  const auto wanted = encoded("what is it a test", CKPT_TEXT_SPECIAL);
  EXPECT_EQ(ids(0), wanted);
  EXPECT_EQ(ids(1), wanted);
  EXPECT_EQ(ids(2), encoded(std::string("the \u00e9\U0001f600\n\0row", 15), CKPT_TEXT_SPECIAL));
  EXPECT_EQ(sample_.labels[1], sample_.ids[1]);
}

// A file of text is one document, read line by line; its blocks are the same whatever comes before them.
TEST_F(Text, FilesAreBlocksOfOneDocument) {
  const std::vector<std::string> lines = {"a line of text\n", "\n", "another line\n", "the last one"};
  std::vector<int> wanted(tokenizer_->before, tokenizer_->before + tokenizer_->n_before);
  std::string text;
  for (const auto &line : lines) {
    const auto part = encoded(line, 0);
    wanted.insert(wanted.end(), part.begin(), part.end());
    text += line;
  }
  wanted.insert(wanted.end(), tokenizer_->after, tokenizer_->after + tokenizer_->n_after);
  ASSERT_EQ(open("a.txt", text, CKPT_PACKING_NONE, 7), CKPT_OK) << err_.message;
  std::vector<int> all;
  for (uint64_t i = 0; i < ckpt_dataset_count(data_); i++) {
    const auto block = ids(i);
    EXPECT_TRUE(block.size() == 7 || i + 1 == ckpt_dataset_count(data_));
    all.insert(all.end(), block.begin(), block.end());
  }
  if (wanted.size() % 7 == 1) wanted.pop_back();
  EXPECT_EQ(all, wanted);
  const auto second = ids(1);
  (void)ids(ckpt_dataset_count(data_) - 1);
  EXPECT_EQ(ids(1), second);
}

}  // namespace
