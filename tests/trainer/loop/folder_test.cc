// What a run may touch: its own folder, and nothing that it reads or that others put there.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/build.h"

namespace {

namespace fs = std::filesystem;

const std::string data_folder = std::string(CKPT_TESTS_DIR) + "/data/training/";

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ckpt_train_folder_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string at(const std::string &name) const { return (folder_ / name).string(); }
  void write(const std::string &name, const std::string &text) { std::ofstream(at(name)) << text; }
  std::string text(const std::string &name) {
    std::ifstream file(at(name), std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }

  // A short run in this folder; its exit status, and in said_ what it said.
  int train(const std::string &words, const std::string &model = data_folder + "llama") {
    const std::string command = "cd " + folder_.string() + " && " + binary_dir() + "/bin/ckpt-train --model " + model +
                                " --data " + data_folder + "rows.jsonl --threads 1 --max_steps 2 --quiet " +
                                "--per_device_train_batch_size 4 " + words + " >stdout 2>stderr";
    const int status = std::system(command.c_str());
    said_ = text("stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path folder_;
  std::string said_;
};

// The files of a run are no files of its model: the next run that begins with it keeps its own.
TEST_F(Folder, ARunThatBeginsWithAnothersModelKeepsItsOwnLog) {
  ASSERT_EQ(train("-o first"), 0) << said_;
  ASSERT_EQ(train("-o second --seed 7", at("first")), 0) << said_;
  for (const char *name : {"run.json", "log.jsonl", "train_results.json"}) {
    EXPECT_TRUE(fs::exists(at("second/" + std::string(name)))) << name;
    EXPECT_NE(text("first/" + std::string(name)), text("second/" + std::string(name))) << name;
    EXPECT_FALSE(fs::exists(at("second/checkpoint-2/" + std::string(name)))) << name;
  }
  EXPECT_NE(text("second/run.json").find("\"seed\": 7"), std::string::npos) << text("second/run.json");
}

TEST_F(Folder, NothingIsWrittenIntoAFolderThatIsNoRuns) {
  fs::create_directories(at("notes"));
  write("notes/mine.txt", "mine");
  for (const char *how : {"auto", "last"}) {
    EXPECT_EQ(train("-o notes --resume " + std::string(how)), 1);
    EXPECT_NE(said_.find("it holds other files, and no run to go on in"), std::string::npos) << said_;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(at("notes")), fs::directory_iterator()), 1);
}

// Its model, its adapter, its data: by name, by a link, by a glob, with --force and with --resume.
TEST_F(Folder, WhatIsReadMustNotLieWhereItWrites) {
  fs::copy(data_folder + "llama", at("base"), fs::copy_options::recursive);
  fs::create_directories(at("rows"));
  fs::copy(data_folder + "rows.jsonl", at("rows/a.jsonl"));
  fs::create_directory_symlink(at("base"), at("link"));
  const std::string words[] = {"-o base --force", "-o link --resume auto", "-o rows --force --data 'rows/*.jsonl'",
                               "-o rows --force --eval-data rows/a.jsonl --eval_strategy epoch"};
  for (const std::string &one : words) {
    EXPECT_EQ(train(one, at("base")), 1) << one;
    EXPECT_NE(said_.find("which lies there (give another -o)"), std::string::npos) << one << said_;
  }
  EXPECT_FALSE(fs::exists(at("base.1")));
  EXPECT_FALSE(fs::exists(at("rows.1")));
  EXPECT_EQ(train("-o base/tuned", at("base")), 0) << said_;
}

// A run that goes on removes what a killed one left, and no file that only looks like it.
TEST_F(Folder, OnlyLeftoversOfRunsGo) {
  ASSERT_EQ(train("-o run --save_steps 1"), 0) << said_;
  fs::remove_all(at("run/checkpoint-2"));
  for (const char *left : {"run/.final", "run/.checkpoint-2", "run/.going-1", "run/.checkpoint-2.ckpt-tmp.abcdef"})
    fs::create_directories(at(left));
  for (const char *mine : {"run/.final-notes.md", "run/.checkpoint-best", "run/.going-home", "run/.checkpoint-2.txt"})
    write(mine, "mine");
  ASSERT_EQ(train("-o run --save_steps 1 --resume last"), 0) << said_;
  for (const char *left : {"run/.final", "run/.checkpoint-2", "run/.going-1", "run/.checkpoint-2.ckpt-tmp.abcdef"})
    EXPECT_FALSE(fs::exists(at(left))) << left;
  for (const char *mine : {"run/.final-notes.md", "run/.checkpoint-best", "run/.going-home", "run/.checkpoint-2.txt"})
    EXPECT_EQ(text(mine), "mine") << mine;
}

TEST_F(Folder, DumpsReplaceNothingAndMakeNoFolder) {
  fs::copy(data_folder + "llama", at("base"), fs::copy_options::recursive);
  write("there.safetensors", "mine");
  for (const char *what : {"--dump-logits", "--dump-grads"}) {
    EXPECT_EQ(train(what + std::string(" there.safetensors")), 1) << what;
    EXPECT_EQ(train(what + std::string(" base/model.safetensors --force"), at("base")), 1) << what << said_;
    EXPECT_EQ(train(what + std::string(" new.safetensors")), 0) << said_;
    EXPECT_EQ(train(what + std::string(" new.safetensors --force")), 0) << said_;
    fs::remove(at("new.safetensors"));
  }
  EXPECT_EQ(text("there.safetensors"), "mine");
  EXPECT_EQ(text("base/model.safetensors").size(), fs::file_size(data_folder + "llama/model.safetensors"));
  EXPECT_FALSE(fs::exists(at("(null)")));
  EXPECT_EQ(train("-o there.safetensors"), 1);
}

}  // namespace
