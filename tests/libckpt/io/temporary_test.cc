// What killed runs leave: found by its exact name, removed only when nobody holds it and nobody else's, and said.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/io/publish.h"
#include "libckpt/io/sink.h"
#include "libckpt/io/temporary.h"
}

namespace {

struct Opened {
  int fd;
  explicit Opened(const std::string &path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Opened() { close(fd); }
  operator int() const { return fd; }
};

ckpt_leftovers clean(const Folder &folder, const std::string &name, bool is_replaced = true) {
  ckpt_leftovers found = {};
  ckpt_temporary_clean(Opened(folder.path()), name.c_str(), is_replaced ? name.c_str() : nullptr, &found);
  return found;
}

// Opens a sink of one file of 4 bytes, or of a folder with that file, and returns without closing it.
ckpt_sink *open_sink(const std::string &path, bool is_folder, bool force, ckpt_error *err) {
  ckpt_sink *sink;
  ckpt_sink_file file = {is_folder ? "sub/a" : nullptr, 4};
  if (ckpt_sink_path(&sink, path.c_str(), is_folder, force, err) != CKPT_OK) return nullptr;
  if (ckpt_sink_open(sink, &file, 1, err) == CKPT_OK && ckpt_sink_write(sink, 0, 0, "abcd", 4, err) == CKPT_OK)
    return sink;
  ckpt_sink_free(sink);
  return nullptr;
}

TEST(Temporary, NamesAreRecognisedExactly) {
  std::string umlauts;
  for (int i = 0; i < 127; i++) umlauts += "\xC3\xBC";
  for (const std::string &name : {std::string("m"), std::string(".m"), std::string(255, 'n'), umlauts}) {
    Folder folder;
    char made[NAME_MAX + 1];
    ASSERT_EQ(ckpt_temporary_name(made, name.c_str(), CKPT_TEMPORARY_NEW, nullptr), CKPT_OK);
    folder.write(made, "x");
    EXPECT_EQ(clean(folder, name).n_removed, 1u) << name;
    EXPECT_EQ(folder.tree(), Names{});
  }
  Folder folder;
  for (const char *other : {"m", ".m", ".m.ckpt-tmp.", ".m.ckpt-tmp.abcde", ".m.ckpt-tmp.abcdefg", ".m.ckpt-tmp.ABCDEF",
                            ".m.ckpt-tmp.abcde1", "m.ckpt-tmp.abcdef", ".mm.ckpt-tmp.abcdef", "..ckpt-tmp.abcdef",
                            ".m.ckpt-tmp.abcdef.ckpt-tmp.abcdef", ".m.ckpt_tmp.abcdef"})
    folder.write(other, "x");
  Names before = folder.tree();
  EXPECT_EQ(clean(folder, "m").n_removed, 0u);
  EXPECT_EQ(folder.tree(), before);
}

// Of long names that begin alike, none takes the other's only copy for a leftover of its own.
TEST(Temporary, LongNamesAreToldApart) {
  const std::string one = std::string(240, 'n') + "1", other = std::string(240, 'n') + "2";
  Folder folder;
  char made[NAME_MAX + 1];
  ASSERT_EQ(ckpt_temporary_name(made, one.c_str(), CKPT_TEMPORARY_OLD, nullptr), CKPT_OK);
  folder.write(made, "x");
  folder.write(other, "y");
  EXPECT_FALSE(ckpt_temporary_has_old(Opened(folder.path()), other.c_str()));
  EXPECT_EQ(clean(folder, other).n_removed, 0u);
  EXPECT_STREQ(clean(folder, one).kept_old, made);
}

TEST(Temporary, SaysWhatItRemoved) {
  Folder folder;
  folder.write(".m.ckpt-tmp.aaaaaa/sub/x", "12345");
  folder.write(".m.ckpt-tmp.aaaaaa/y", "123");
  ckpt_leftovers found = clean(folder, "m");
  EXPECT_STREQ(found.first, ".m.ckpt-tmp.aaaaaa");
  EXPECT_EQ(found.n_removed, 1u);
  EXPECT_EQ(found.n_bytes, 8u);
  EXPECT_EQ(folder.tree(), Names{});
}

TEST(Temporary, WhatSomebodyIsAboutToHoldIsNoLeftover) {
  Folder folder;
  folder.write(".m.ckpt-tmp.aaaaaa/x", "x");
  Opened opened(folder.path());
  int begun = ckpt_temporary_begin(opened);
  ASSERT_GE(begun, 0);
  EXPECT_FALSE(ckpt_temporary_is_left(opened, ".m.ckpt-tmp.aaaaaa", "m"));
  EXPECT_EQ(clean(folder, "m").n_removed, 0u);
  close(begun);
  EXPECT_TRUE(ckpt_temporary_is_left(opened, ".m.ckpt-tmp.aaaaaa", "m"));
}

TEST(Temporary, WhatIsHeldOrHostileStays) {
  Folder folder;
  folder.write(".m.ckpt-tmp.aaaaaa/x", "x");
  folder.write(".m.ckpt-tmp.bbbbbb", "x");
  folder.write("victim/precious", "x");
  folder.link(".m.ckpt-tmp.cccccc", "victim");                /* a link in its place */
  folder.link(".m.ckpt-tmp.dddddd/link", "../victim");        /* or in it */
  folder.link(".m.ckpt-tmp.eeeeee/sub/link", "../../victim"); /* or deeper */
  ASSERT_EQ(mkfifo((folder / ".m.ckpt-tmp.ffffff").c_str(), 0600), 0);
  if (geteuid() == 0) {
    folder.write(".m.ckpt-tmp.gggggg", "theirs");
    folder.write(".m.ckpt-tmp.hhhhhh/theirs", "theirs");
    ASSERT_EQ(chown((folder / ".m.ckpt-tmp.gggggg").c_str(), 1234, 1234), 0);
    ASSERT_EQ(chown((folder / ".m.ckpt-tmp.hhhhhh/theirs").c_str(), 1234, 1234), 0);
  }
  Names before = folder.tree();
  {
    Opened held(folder / ".m.ckpt-tmp.aaaaaa"), held_file(folder / ".m.ckpt-tmp.bbbbbb");
    ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB) | flock(held_file, LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(clean(folder, "m").n_removed, 0u);
    EXPECT_EQ(folder.tree(), before);
  }
  EXPECT_EQ(clean(folder, "m").n_removed, 2u) << "when they are let go";
  EXPECT_EQ(folder.tree().size(), before.size() - 3);
  EXPECT_EQ(folder.read("victim/precious"), "x");
}

TEST(Temporary, TheOldOneStaysWhileNothingReplacedIt) {
  Folder folder;
  folder.write(".m.ckpt-old.aaaaaa/x", "x");
  EXPECT_STREQ(clean(folder, "m").kept_old, ".m.ckpt-old.aaaaaa");
  folder.make("m");
  EXPECT_STREQ(clean(folder, "m", false).kept_old, ".m.ckpt-old.aaaaaa");
  EXPECT_EQ(folder.read(".m.ckpt-old.aaaaaa/x"), "x");
  EXPECT_EQ(clean(folder, "m").n_removed, 1u);
  EXPECT_EQ(folder.tree(), Names{"m/"});
}

TEST(Temporary, TwoRenamesThatWereInterruptedAreNamed) {
  Folder folder;
  Error err;
  EXPECT_EQ(ckpt_temporary_explain((folder / "m").c_str(), err), CKPT_OK);
  folder.write(".m.ckpt-old.aaaaaa/x", "x");
  EXPECT_EQ(ckpt_temporary_explain((folder / "m/").c_str(), err), CKPT_ENOTFOUND);
  EXPECT_NE(err.text().find("the old one is at '.m.ckpt-old.aaaaaa' beside it"), std::string::npos) << err.text();
  EXPECT_EQ(ckpt_temporary_explain((folder / "n").c_str(), nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_temporary_explain("/", nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_temporary_explain("", nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_temporary_explain("m", nullptr), CKPT_OK);
}

// A run is killed with its sinks open; meanwhile another one leaves what it holds, afterwards the next removes it.
TEST(Temporary, AKilledRunIsCleanedUpAfter) {
  for (bool is_folder : {false, true})
    for (bool is_inside : {false, true}) {
      if (is_inside && !is_folder) continue;
      Folder folder;
      if (is_inside) folder.make("m");
      int ready[2];
      ASSERT_EQ(pipe(ready), 0);
      pid_t child = fork();
      if (child == 0) {
        ckpt_sink *sink = open_sink(folder / "m", is_folder, false, nullptr);
        if (write(ready[1], sink == nullptr ? "n" : "y", 1) == 1) pause();
        _exit(1);
      }
      char answer = 0;
      ASSERT_EQ(read(ready[0], &answer, 1), 1);
      ASSERT_EQ(answer, 'y');
      close(ready[0]), close(ready[1]);
      if (!is_inside) {
        ckpt_sink *sink = open_sink(folder / "m", is_folder, false, nullptr);
        ASSERT_NE(sink, nullptr);
        EXPECT_EQ(ckpt_sink_leftovers(sink), nullptr) << "both are running";
        EXPECT_EQ(folder.tree().size(), is_folder ? 6u : 2u);
        ckpt_sink_free(sink);
      } else {
        Error err;
        EXPECT_EQ(open_sink(folder / "m", is_folder, false, err), nullptr);
        EXPECT_NE(err.text().find("not empty (1 entry: .m.ckpt-tmp."), std::string::npos) << err.text();
      }
      kill(child, SIGKILL);
      ASSERT_EQ(waitpid(child, nullptr, 0), child);
      EXPECT_GE(folder.tree().size(), 1u);
      for (bool force : {false, true}) { /* an empty folder but for the leftover is empty */
        ckpt_sink *sink = nullptr;
        ASSERT_EQ(ckpt_sink_path(&sink, (folder / "m").c_str(), is_folder, force, nullptr), CKPT_OK);
        EXPECT_GE(folder.tree().size(), 1u) << "nothing is touched before it opens";
        ckpt_sink_free(sink);
      }
      Error err;
      ckpt_sink *sink = open_sink(folder / "m", is_folder, false, err);
      ASSERT_NE(sink, nullptr) << err.text();
      ASSERT_NE(ckpt_sink_leftovers(sink), nullptr);
      EXPECT_EQ(ckpt_sink_leftovers(sink)->n_removed, 1u);
      EXPECT_EQ(ckpt_sink_leftovers(sink)->n_bytes, 4u);
      EXPECT_EQ(ckpt_sink_commit(&sink, 1, nullptr), CKPT_OK);
      ckpt_sink_free(sink);
      EXPECT_EQ(folder.tree(), is_folder ? (Names{"m/", "m/sub/", "m/sub/a"}) : Names{"m"});
    }
}

// What a format calls its own may be replaced though it is not written again.
TEST(Temporary, ForceReplacesWhatTheFormatOwns) {
  auto owns = [](const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours) {
    uint32_t n_found = 0;
    ASSERT_STREQ(written->names[0], "sub/a");
    auto is_shard = [](const char *name) { return name[0] == 's' && strchr(name, '/') == nullptr; };
    for (uint32_t i = 0; i < n; i++) n_found += is_shard(names[i]);
    for (uint32_t i = 0; i < n; i++)
      is_ours[i] = n_found == 2 && (is_shard(names[i]) || strcmp(names[i], "index") == 0);
  };
  struct {
    Names before;
    const char *refused; /* part of the message; nullptr: replaced */
  } cases[] = {
      {{"s1-2", "s2-2", "index"}, nullptr},
      {{"s1-2", "s2-2", "sub/a"}, nullptr},
      {{"s1-2", "sub/a"}, "1 entry that would not be written anew: s1-2 "},
      {{"s1-2", "s2-2", "notes"}, "1 entry that would not be written anew: notes "},
      {{"sub/index"}, "sub/index"},
      {{"s1-2/x"}, "s1-2/"},
  };
  for (const auto &c : cases) {
    Folder folder;
    for (const auto &name : c.before) folder.write("m/" + name, "old");
    Names before = folder.tree();
    Error err;
    ckpt_sink *sink;
    ckpt_sink_file file = {"sub/a", 4};
    ASSERT_EQ(ckpt_sink_path(&sink, (folder / "m").c_str(), true, true, err), CKPT_OK);
    ckpt_sink_owns(sink, owns);
    ckpt_status status = ckpt_sink_open(sink, &file, 1, err);
    EXPECT_EQ(status, c.refused == nullptr ? CKPT_OK : CKPT_EEXIST) << c.before[0];
    if (status == CKPT_OK) {
      EXPECT_EQ(ckpt_sink_commit(&sink, 1, err), CKPT_OK) << err.text();
      EXPECT_EQ(folder.tree(), (Names{"m/", "m/sub/", "m/sub/a"}));
    } else {
      EXPECT_NE(err.text().find(c.refused == nullptr ? "" : c.refused), std::string::npos) << err.text();
      EXPECT_EQ(folder.tree(), before);
    }
    ckpt_sink_free(sink);
  }
}

}  // namespace
