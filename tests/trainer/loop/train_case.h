// A folder of runs of ckpt-train on tiny models, and what they leave in it.
#pragma once
#include <gtest/gtest.h>
#include <jansson.h>
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/ckpt.h"
}

#include "tests/build.h"

namespace training {

namespace fs = std::filesystem;

inline const std::string data_folder = std::string(CKPT_TESTS_DIR) + "/data/training/";

struct Row { /* of log.jsonl */
  double loss, norm, rate, epoch;
};

struct Outcome {
  int code;
  std::string text; /* of stderr */
};

class Train : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ckpt_train_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string at(const std::string &name) const { return (folder_ / name).string(); }

  Outcome run(const std::string &words) {
    const std::string said = at("stderr");
    const std::string command = binary_dir() + "/bin/ckpt-train " + words + " >" + at("stdout") + " 2>" + said;
    const int status = std::system(command.c_str());
    std::ifstream file(said);
    std::stringstream text;
    text << file.rdbuf();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text.str()};
  }

  // A run on the common data, in `out`.
  Outcome train(const std::string &out, const std::string &words, const std::string &model = "llama") {
    return run("--model " + data_folder + model + " --data " + data_folder + "rows.jsonl -o " + at(out) +
               " --threads 1 --learning_rate 5e-3 " + words);
  }

  std::vector<Row> log(const std::string &out, const char *key = "loss") {
    std::vector<Row> rows;
    std::ifstream file(at(out) + "/log.jsonl");
    for (std::string line; std::getline(file, line);) {
      json_t *row = json_loads(line.c_str(), 0, nullptr);
      EXPECT_NE(row, nullptr) << line;
      const auto number = [row](const char *name) { return json_number_value(json_object_get(row, name)); };
      if (json_object_get(row, key) != nullptr)
        rows.push_back({number(key), number("grad_norm"), number("learning_rate"), number("epoch")});
      json_decref(row);
    }
    return rows;
  }

  std::string bytes(const std::string &path) {
    std::ifstream file(at(path), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // Tensors of a checkpoint.
  std::map<std::string, std::vector<float>> tensors(const std::string &path) {
    std::map<std::string, std::vector<float>> all;
    ckpt_index *index = nullptr;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_open(&index, at(path).c_str(), nullptr, &err), CKPT_OK) << err.message;
    for (size_t i = 0; index != nullptr && i < ckpt_index_count(index); i++) {
      const ckpt_tensor *tensor = ckpt_index_at(index, i);
      std::vector<float> values(tensor->n_elements);
      EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_F32, values.data(), values.size() * 4, &err), CKPT_OK);
      all[tensor->name] = values;
    }
    ckpt_index_free(index);
    return all;
  }

  std::vector<std::string> checkpoints(const std::string &out) {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(at(out)))
      if (entry.path().filename().string().rfind("checkpoint-", 0) == 0)
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path folder_;
};

}  // namespace training
