// What another run does in the moment before this one's rename: nothing of either is lost, and nothing is left.
#include <gtest/gtest.h>

#include "tests/bytes/folder.h"
#include "wrapped.h"

extern "C" {
#include "libckpt/sink.h"
}

namespace {

void OwnsW(const char *const *names, uint32_t n, const ckpt_tree *, bool *is_ours) {
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

}  // namespace
