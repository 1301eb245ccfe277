// What another run does in the moment before this one's rename: nothing of either is lost, and nothing is left.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include "tests/faults/wrapped.h"
#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/io/sink.h"
#include "libckpt/io/sink_pair.h"
}

namespace {

void OwnsW(const char *const *names, uint32_t n, const ckpt_file_set *, bool *is_ours) {
  for (uint32_t i = 0; i < n; i++) is_ours[i] = names[i][0] == 'w';
}

// A sink for folder m with one file, all written.
ckpt_sink *Stage(const Folder &folder, const char *name, bool force) {
  ckpt_sink *sink = nullptr;
  ckpt_sink_file file = {name, 4};
  EXPECT_EQ(ckpt_sink_path(&sink, (folder / "m").c_str(), true, force, nullptr), CKPT_OK);
  ckpt_sink_owns(sink, OwnsW);
  EXPECT_EQ(ckpt_sink_open(sink, &file, 1, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(sink, 0, 0, "data", 4, nullptr), CKPT_OK);
  return sink;
}

TEST(Replace, AnotherRunPublishesBeforeTheExchange) {
  Folder folder;
  folder.write("m/w-old", "old");
  ckpt_sink *first = Stage(folder, "w-first", true), *second = Stage(folder, "w-second", true);
  wrapped::before_rename = [&] { EXPECT_EQ(ckpt_sink_commit(&first, 1, nullptr), CKPT_OK); };
  Error err;
  EXPECT_EQ(ckpt_sink_commit(&second, 1, err), CKPT_OK) << err.text();
  ckpt_sink_free(first);
  ckpt_sink_free(second);
  EXPECT_EQ(folder.tree(), (Names{"m/", "m/w-second"}));
}

TEST(Replace, WhatIsForeignToTheExchangedFolderStays) {
  Folder folder;
  folder.write("m/w-old", "old");
  ckpt_sink *sink = Stage(folder, "w-new", true);
  wrapped::before_rename = [&] { folder.write("m/notes", "theirs"); };
  Error err;
  EXPECT_EQ(ckpt_sink_commit(&sink, 1, err), CKPT_EIO);
  EXPECT_NE(err.text().find("is written, but the old one cannot be removed and stays as '.m.ckpt-tmp."),
            std::string::npos)
      << err.text();
  ckpt_sink_free(sink);
  Names names = folder.tree();
  ASSERT_EQ(names.size(), 4u);
  EXPECT_NE(names[1].find("/notes"), std::string::npos);
  EXPECT_EQ(names[3], "m/w-new");
}

TEST(Replace, ATemporaryFolderThatStaysInsideIsNamed) {
  Folder folder;
  std::filesystem::create_directory(folder / "m");
  ckpt_sink *sink = Stage(folder, "w-new", false);
  wrapped::before_rename = [&] { folder.write(folder.tree().at(1) + "theirs", "theirs"); };
  Error err;
  EXPECT_EQ(ckpt_sink_commit(&sink, 1, err), CKPT_EIO);
  EXPECT_NE(err.text().find("m: is written, but the temporary folder '.m.ckpt-tmp."), std::string::npos) << err.text();
  ckpt_sink_free(sink);
  EXPECT_EQ(folder.tree().back(), "m/w-new");
}

TEST(Replace, ACommitThatFailsNamesWhatIsInPlace) {
  Folder folder;
  std::vector<ckpt_sink *> sinks;
  for (const char *name : {"a", "b", "c"}) {
    ckpt_sink *sink = nullptr;
    ckpt_sink_file file = {nullptr, 0};
    ASSERT_EQ(ckpt_sink_path(&sink, (folder / name).c_str(), false, false, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_sink_open(sink, &file, 1, nullptr), CKPT_OK);
    sinks.push_back(sink);
  }
  folder.write("c", "theirs");
  Error err;
  EXPECT_EQ(ckpt_sink_commit(sinks.data(), 3, err), CKPT_EEXIST);
  EXPECT_NE(err.text().find((folder / "c") + ": exists"), std::string::npos) << err.text();
  EXPECT_NE(err.text().find("(in place already: " + (folder / "a") + ", " + (folder / "b") + ")"), std::string::npos)
      << err.text();
  for (ckpt_sink *sink : sinks) ckpt_sink_free(sink);
  EXPECT_EQ(folder.tree(), (Names{"a", "b", "c"}));
}

// A model and its data, each with the text of both, all written.
ckpt_status StagePair(ckpt_sink **out, const Folder &folder, const std::string &text, bool force, ckpt_error *err) {
  const ckpt_sink_file files[] = {{nullptr, text.size()}, {"m.onnx.data", text.size()}};
  ckpt_status status = ckpt_sink_pair(out, (folder / "m.onnx").c_str(), force, err);
  if (status == CKPT_OK) status = ckpt_sink_open(*out, files, 2, err);
  for (uint32_t i = 0; i < 2 && status == CKPT_OK; i++)
    status = ckpt_sink_write(*out, i, 0, text.data(), text.size(), err);
  return status;
}

ckpt_status WritePair(const Folder &folder, const std::string &text, bool force, ckpt_error *err) {
  ckpt_sink *sink = nullptr;
  ckpt_status status = StagePair(&sink, folder, text, force, err);
  if (status == CKPT_OK) status = ckpt_sink_commit(&sink, 1, err);
  ckpt_sink_free(sink);
  return status;
}

// What a kill leaves: a pair, or no model and a message with the names of the old ones, which make the old pair again.
void ExpectAPair(const Folder &folder, const std::string &before, const std::string &after) {
  std::string model = folder.read("m.onnx"), data = folder.read("m.onnx.data");
  if (!std::filesystem::exists(folder / "m.onnx")) {
    Error err;
    const bool is_aside = ckpt_temporary_explain((folder / "m.onnx").c_str(), err) == CKPT_ENOTFOUND;
    EXPECT_EQ(is_aside, !before.empty());
    if (!is_aside) return;
    const std::string text = err.text();
    for (size_t at = 0, end; (at = text.find("'.", at)) != std::string::npos; at = end) {
      end = text.find('\'', at + 1) + 1;
      const std::string name = text.substr(at + 1, end - at - 2);
      std::filesystem::rename(folder / name, folder / name.substr(1, name.find(".ckpt-old.") - 1));
    }
    model = folder.read("m.onnx"), data = folder.read("m.onnx.data");
    EXPECT_EQ(model, before) << text;
  }
  EXPECT_TRUE(model == before || model == after) << model;
  EXPECT_EQ(model, data);
}

TEST(Replace, AModelIsNeverThereWithTheDataOfAnother) {
  for (const char *before : {"", "old"}) {
    Folder folder;
    size_t n_kills = 0;
    Error err;
    if (*before != 0) {
      ASSERT_EQ(WritePair(folder, before, false, err), CKPT_OK) << err.text();
    }
    wrapped::before_each_rename = [&] {
      Folder killed;
      std::filesystem::copy(folder.path(), killed.path(), std::filesystem::copy_options::recursive);
      ExpectAPair(killed, before, "the new");
      n_kills++;
    };
    EXPECT_EQ(WritePair(folder, "the new", true, err), CKPT_OK) << err.text();
    wrapped::before_each_rename = nullptr;
    EXPECT_EQ(n_kills, *before != 0 ? 4U : 2U);
    EXPECT_EQ(folder.tree(), (Names{"m.onnx", "m.onnx.data"}));
    ExpectAPair(folder, "the new", "the new");
  }
}

// What a run wrote or put aside is no model of the folder: opening that says what opening the model does.
TEST(Replace, TheFolderSaysWhatTheMissingModelDoes) {
  const std::string onnx = "\x08\x07\x12\x01x\x1a";
  Folder folder;
  folder.write("m.onnx.data", "new");
  folder.write(".m.onnx.ckpt-tmp.abcdef", onnx);
  auto open = [&](const std::string &path) {
    ckpt_index *index = nullptr;
    Error err;
    EXPECT_NE(ckpt_open(&index, path.c_str(), nullptr, err), CKPT_OK);
    ckpt_index_free(index);
    return err.text();
  };
  EXPECT_NE(open(folder.path()).find("holds no checkpoint of a known format (m.onnx.data)"), std::string::npos)
      << open(folder.path());
  folder.write(".m.onnx.ckpt-old.abcdef", onnx);
  folder.write(".m.onnx.data.ckpt-old.abcdef", "old");
  EXPECT_NE(open(folder.path()).find("(rename both back, or write it anew)"), std::string::npos) << open(folder.path());
  EXPECT_EQ(open(folder.path()), open(folder / "m.onnx"));
}

// Another run that publishes its pair while this one renames waits until both of this one are there, or comes first.
TEST(Replace, TwoRunsThatPublishAtOnceLeaveThePairOfOne) {
  for (bool forces : {true, false})
    for (long n = 1; n <= (forces ? 4 : 2); n++) {
      Folder folder;
      Error err;
      if (forces) {
        ASSERT_EQ(WritePair(folder, "old", false, err), CKPT_OK) << err.text();
      }
      ckpt_sink *first = nullptr, *second = nullptr;
      ASSERT_EQ(StagePair(&first, folder, "the first", forces, err), CKPT_OK) << err.text();
      ASSERT_EQ(StagePair(&second, folder, "the second", true, err), CKPT_OK) << err.text();
      std::future<ckpt_status> other;
      std::atomic<long> n_renames{0};
      wrapped::before_each_rename = [&] {
        if (++n_renames != n) return;
        other = std::async(std::launch::async, [&] { return ckpt_sink_commit(&second, 1, nullptr); });
        other.wait_for(std::chrono::milliseconds(50));
      };
      EXPECT_EQ(ckpt_sink_commit(&first, 1, err), CKPT_OK) << n << err.text();
      EXPECT_EQ(other.get(), CKPT_OK) << n;
      wrapped::before_each_rename = nullptr;
      ckpt_sink_free(first);
      ckpt_sink_free(second);
      EXPECT_EQ(folder.tree(), (Names{"m.onnx", "m.onnx.data"})) << n;
      ExpectAPair(folder, "the first", "the second");
    }
}

// The run after a kill may be killed too: until its own pair is there the old one is whole, and then nothing is left.
TEST(Replace, TheRunAfterAKillKeepsTheOldPair) {
  Folder folder;
  std::vector<std::unique_ptr<Folder>> killed;
  Error err;
  auto keep = [&](const Folder &from) {
    killed.push_back(std::make_unique<Folder>());
    std::filesystem::copy(from.path(), killed.back()->path(), std::filesystem::copy_options::recursive);
  };
  ASSERT_EQ(WritePair(folder, "old", false, err), CKPT_OK) << err.text();
  wrapped::before_each_rename = [&] { keep(folder); };
  ASSERT_EQ(WritePair(folder, "the new", true, err), CKPT_OK) << err.text();
  wrapped::before_each_rename = nullptr;
  ASSERT_EQ(killed.size(), 4U);
  for (const std::unique_ptr<Folder> &left : killed) {
    wrapped::before_each_rename = [&] {
      Folder again;
      std::filesystem::copy(left->path(), again.path(), std::filesystem::copy_options::recursive);
      ExpectAPair(again, "old", "newest");
    };
    EXPECT_EQ(WritePair(*left, "newest", true, err), CKPT_OK) << err.text();
    wrapped::before_each_rename = nullptr;
    EXPECT_EQ(left->tree(), (Names{"m.onnx", "m.onnx.data"}));
    ExpectAPair(*left, "newest", "newest");
  }
}

// What is kept of a pair is both, and what was left of data goes with what was left of the model, without data as well.
TEST(Replace, WhatIsLeftOfDataIsSaid) {
  for (uint32_t n_files : {1U, 2U}) {
    Folder folder;
    Error err;
    for (const char *name : {".m.onnx.ckpt-old.aaaaaa", ".m.onnx.data.ckpt-old.bbbbbb", ".m.onnx.ckpt-tmp.cccccc",
                             ".m.onnx.data.ckpt-tmp.dddddd"})
      folder.write(name, "left");
    ckpt_sink *sink = nullptr;
    const ckpt_sink_file files[] = {{nullptr, 0}, {"m.onnx.data", 0}};
    ASSERT_EQ(ckpt_sink_pair(&sink, (folder / "m.onnx").c_str(), false, err), CKPT_OK) << err.text();
    ASSERT_EQ(ckpt_sink_open(sink, files, n_files, err), CKPT_OK) << err.text();
    const ckpt_leftovers *found = ckpt_sink_leftovers(sink);
    EXPECT_EQ(found->n_removed, 2U);
    EXPECT_EQ(found->n_bytes, 8U);
    EXPECT_STREQ(found->first, ".m.onnx.ckpt-tmp.cccccc");
    EXPECT_STREQ(found->kept_old, ".m.onnx.ckpt-old.aaaaaa");
    EXPECT_STREQ(found->kept_beside, ".m.onnx.data.ckpt-old.bbbbbb");
    EXPECT_EQ(ckpt_sink_commit(&sink, 1, err), CKPT_OK) << err.text();
    ckpt_sink_free(sink);
    EXPECT_EQ(folder.tree().size(), 2U + n_files);
  }
}

// Killed before the old pair is removed: that has no use any more, whatever comes next.
TEST(Replace, AnOldPairBesideTheNewOneGoes) {
  for (bool is_pair : {true, false}) {
    Folder folder;
    Error err;
    ASSERT_EQ(WritePair(folder, "the new", false, err), CKPT_OK) << err.text();
    folder.write(".m.onnx.ckpt-old.abcdef", "old");
    folder.write(".m.onnx.data.ckpt-old.abcdef", "old");
    if (is_pair) {
      EXPECT_EQ(WritePair(folder, "newest", true, err), CKPT_OK) << err.text();
    } else {
      ckpt_sink *sink = nullptr;
      const ckpt_sink_file file = {nullptr, 0};
      ASSERT_EQ(ckpt_sink_pair(&sink, (folder / "m.onnx").c_str(), true, err), CKPT_OK) << err.text();
      ASSERT_EQ(ckpt_sink_open(sink, &file, 1, err), CKPT_OK) << err.text();
      EXPECT_EQ(ckpt_sink_commit(&sink, 1, err), CKPT_OK) << err.text();
      EXPECT_EQ(ckpt_sink_leftovers(sink)->n_removed, 2U);
      EXPECT_STREQ(ckpt_sink_leftovers(sink)->kept_old, "");
      ckpt_sink_free(sink);
    }
    EXPECT_EQ(folder.tree(), (Names{"m.onnx", "m.onnx.data"}));
  }
}

TEST(Replace, APairThatCannotBeReplacedStays) {
  for (long n = 1; n <= 4; n++) {
    Folder folder;
    Error err;
    ASSERT_EQ(WritePair(folder, "old", false, err), CKPT_OK) << err.text();
    {
      wrapped::Fault fault(wrapped::kRename, n);
      EXPECT_EQ(WritePair(folder, "the new", true, err), CKPT_EIO) << n;
      EXPECT_TRUE(fault.is_hit());
    }
    EXPECT_EQ(folder.tree(), (Names{"m.onnx", "m.onnx.data"})) << n;
    ExpectAPair(folder, "old", "old");
  }
}

}  // namespace
