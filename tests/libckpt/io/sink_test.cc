// Sinks: nothing at the final path until all of it is there, nothing left behind, nothing of others touched.
#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/io/publish.h"
#include "libckpt/io/sink.h"
}

namespace {

using Files = std::vector<std::pair<std::string, std::string>>; /* names and bytes */

struct Sink {
  ckpt_sink *sink = nullptr;
  ~Sink() { ckpt_sink_free(sink); }
  operator ckpt_sink *() const { return sink; }
};

// Makes a sink and opens it, with several threads; a file sink takes one name "".
std::string open_sink(Sink *sink, const std::string &path, const Files &files, bool force, bool sizes = true) {
  Error err;
  bool is_folder = files.size() != 1 || !files[0].first.empty();
  if (ckpt_sink_path(&sink->sink, path.c_str(), is_folder, force, err) != CKPT_OK) return err.text();
  ckpt_sink_threads(*sink, 3);
  std::vector<ckpt_sink_file> table;
  for (const auto &[name, bytes] : files)
    table.push_back({is_folder ? name.c_str() : nullptr, sizes ? bytes.size() : CKPT_SIZE_UNKNOWN});
  if (ckpt_sink_open(*sink, table.data(), static_cast<uint32_t>(table.size()), err) != CKPT_OK) return err.text();
  return "";
}

std::string write_files(ckpt_sink *sink, const Files &files) {
  Error err;
  for (uint32_t i = 0; i < files.size(); i++) {
    const std::string &bytes = files[i].second;
    size_t half = bytes.size() / 2; /* the second half first */
    if (ckpt_sink_write(sink, i, half, bytes.data() + half, bytes.size() - half, err) != CKPT_OK) return err.text();
    if (ckpt_sink_write(sink, i, 0, bytes.data(), half, err) != CKPT_OK) return err.text();
  }
  return "";
}

// The whole life; "" or the error.
std::string put(const std::string &path, const Files &files, bool force = false, bool sizes = true) {
  Sink sink;
  std::string failure = open_sink(&sink, path, files, force, sizes);
  if (failure.empty()) failure = write_files(sink, files);
  Error err;
  if (failure.empty() && ckpt_sink_commit(&sink.sink, 1, err) != CKPT_OK) failure = err.text();
  return failure;
}

const Files kModel = {{"model.safetensors.index.json", "{}"},
                      {"config.json", "{c}"},
                      {"b/deep/x.bin", "xx"},
                      {"a.safetensors", "aaaa"},
                      {"b/y.bin", "y"},
                      {"empty", ""}};
const Names kModelTree = {"m/",
                          "m/a.safetensors",
                          "m/b/",
                          "m/b/deep/",
                          "m/b/deep/x.bin",
                          "m/b/y.bin",
                          "m/config.json",
                          "m/empty",
                          "m/model.safetensors.index.json"};

Names sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

TEST(SinkPath, OneFile) {
  for (bool sizes : {true, false}) {
    Folder folder;
    mode_t old = umask(027);
    EXPECT_EQ(put(folder / "out.bin", {{"", "0123456789"}}, false, sizes), "");
    umask(old);
    EXPECT_EQ(folder.read("out.bin"), "0123456789");
    struct stat st;
    ASSERT_EQ(stat((folder / "out.bin").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0640u) << "0666 less the umask";
    EXPECT_EQ(folder.tree(), Names{"out.bin"});
  }
}

// Between making its folder and locking it a run meets others that take the folder for a leftover: it makes another.
TEST(SinkPath, AFolderIsMadeWhileOthersClean) {
  Folder folder;
  std::atomic<bool> is_done{false};
  std::vector<std::thread> others; /* enough of them to interrupt it anywhere */
  for (int i = 0; i < 8; i++)
    others.emplace_back([&] {
      int fd = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
      ckpt_leftovers found = {};
      while (!is_done) ckpt_temporary_clean(fd, "out", nullptr, &found);
      close(fd);
    });
  std::string failure;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(getenv("CKPT_TEST_FULL") != nullptr ? 4000 : 1500);
  for (int i = 0; i < 300 && failure.empty() && std::chrono::steady_clock::now() < end; i++) {
    Sink sink;
    failure = open_sink(&sink, folder / "out", {{"a", "aaaa"}, {"b", ""}}, false);
    if (failure.find("are removed by something else") != std::string::npos) failure = ""; /* eight times: bad luck */
  }
  is_done = true;
  for (std::thread &other : others) other.join();
  EXPECT_EQ(failure, "");
}

TEST(SinkPath, NewFolder) {
  Folder folder;
  EXPECT_EQ(put(folder / "m///", kModel), "");
  EXPECT_EQ(folder.tree(), sorted(kModelTree));
  for (const auto &[name, bytes] : kModel) EXPECT_EQ(folder.read("m/" + name), bytes) << name;
  EXPECT_EQ(put(folder / "none", {}), "") << "a folder of nothing";
  EXPECT_TRUE(std::filesystem::is_directory(folder / "none"));
}

TEST(SinkPath, EmptyFolderIsStagedInside) {
  Folder folder;
  folder.make("m");
  struct stat before, after;
  ASSERT_EQ(stat((folder / "m").c_str(), &before), 0);
  {
    Sink sink;
    ASSERT_EQ(open_sink(&sink, folder / "m", kModel, false), "");
    Names tree = folder.tree();
    ASSERT_GE(tree.size(), 2u);
    EXPECT_EQ(tree[1].rfind("m/.m.ckpt-tmp.", 0), 0u) << tree[1];
    for (const auto &name : tree) EXPECT_TRUE(name == "m/" || name.rfind("m/.m.ckpt-tmp.", 0) == 0) << name;
    EXPECT_EQ(write_files(sink, kModel), "");
    EXPECT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_OK);
  }
  EXPECT_EQ(folder.tree(), sorted(kModelTree));
  ASSERT_EQ(stat((folder / "m").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "the folder itself stays";
}

TEST(SinkPath, EmptyFolderByLinkAndAsCurrent) {
  Folder folder;
  folder.make("real");
  folder.make("here");
  folder.link("link", "real");
  EXPECT_EQ(put(folder / "link", {{"a", "1"}}), "");
  EXPECT_EQ(folder.read("real/a"), "1");
  auto old = std::filesystem::current_path();
  std::filesystem::current_path(folder / "here");
  EXPECT_EQ(put(".", {{"a", "2"}}), "");
  EXPECT_EQ(put("b.bin", {{"", "3"}}), "");
  EXPECT_EQ(put("..", {{"a", "2"}}, true).substr(0, 35), "..: not replaced: it holds 3 entrie");
  std::filesystem::current_path(old);
  EXPECT_EQ(folder.read("here/a"), "2");
  EXPECT_EQ(folder.read("here/b.bin"), "3");
}

TEST(SinkPath, IndexAndConfigComeLast) {
  /* an entry made meanwhile stops the renames where it stands in the order; what was moved goes back */
  for (const char *blocked : {"z", "m.index.json", "config.json"}) {
    Folder folder;
    folder.make("m");
    Sink sink;
    const Files files = {{"config.json", "c"}, {"m.index.json", "i"}, {"z", "z"}, {"a", "a"}};
    ASSERT_EQ(open_sink(&sink, folder / "m", files, false), "");
    ASSERT_EQ(write_files(sink, files), "");
    ASSERT_EQ(ckpt_sink_seal(sink, nullptr), CKPT_OK);
    folder.write(std::string("m/") + blocked, "theirs");
    Error err;
    EXPECT_EQ(ckpt_sink_publish(sink, err), CKPT_EEXIST);
    ckpt_sink_abandon(sink);
    EXPECT_EQ(folder.tree(), (Names{"m/", std::string("m/") + blocked}));
    EXPECT_EQ(folder.read(std::string("m/") + blocked), "theirs");
  }
  /* the order itself, as the kernel saw it */
  Folder folder;
  folder.make("m");
  const Files files = {{"config.json", "c"}, {"m.index.json", "i"}, {"z", "z"}, {"sub/index.json", "s"}, {"a", "a"}};
  Sink sink;
  ASSERT_EQ(open_sink(&sink, folder / "m", files, false), "");
  ASSERT_EQ(write_files(sink, files), "");
  int watch = inotify_init1(IN_NONBLOCK);
  ASSERT_GE(inotify_add_watch(watch, (folder / "m").c_str(), IN_MOVED_TO), 0);
  ASSERT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_OK);
  alignas(inotify_event) char events[4096];
  ssize_t n = read(watch, events, sizeof events);
  close(watch);
  Names order;
  for (ssize_t at = 0; at < n;) {
    const auto *event = reinterpret_cast<const inotify_event *>(events + at);
    order.push_back(event->name);
    at += static_cast<ssize_t>(sizeof *event + event->len);
  }
  EXPECT_EQ(order, (Names{"a", "sub", "z", "m.index.json", "config.json"}));
}

TEST(SinkPath, NeverOverwritesWithoutForce) {
  Folder folder;
  folder.write("file", "old");
  folder.write("full/other", "old");
  folder.link("link", "file");
  folder.link("dangling", "nowhere");
  EXPECT_EQ(put(folder / "file", {{"", "new"}}), folder / "file: exists (force replaces it)");
  EXPECT_EQ(put(folder / "full", {{"a", "new"}}),
            folder /
                "full: exists and is not empty (1 entry: other; force replaces files that would be written "
                "anew)");
  EXPECT_EQ(put(folder / "file", {{"a", "new"}}), folder / "file: exists and is no folder");
  EXPECT_EQ(put(folder / "full", {{"", "new"}}),
            folder / "full: exists and is no regular file (a folder is never replaced)");
  EXPECT_EQ(put(folder / "link", {{"", "new"}}, true),
            folder / "link: exists and is no regular file (a link is never replaced)");
  EXPECT_EQ(put(folder / "dangling", {{"", "new"}}, true),
            folder / "dangling: exists and is no regular file (a link is never replaced)");
  EXPECT_EQ(put(folder / "dangling", {{"a", "new"}}, true), folder / "dangling: exists and is no folder");
  EXPECT_EQ(put(folder / "no/where", {{"", "new"}}),
            folder / "no/where: there is no folder " + (folder / "no") + " to write it in (make it first)");
  EXPECT_EQ(put(folder / "new/", {{"", "new"}}), folder / "new/: cannot be an output");
  EXPECT_EQ(put("", {{"", "new"}}), "the output's path is empty");
  EXPECT_EQ(folder.tree(), (Names{"dangling", "file", "full/", "full/other", "link"}));
  EXPECT_EQ(folder.read("file"), "old");
}

TEST(SinkPath, WhatAppearsMeanwhileIsNotOverwritten) {
  Folder folder;
  for (const char *name : {"f", "d"}) {
    Sink sink;
    Files files = {{name[0] == 'd' ? "a" : "", "new"}};
    ASSERT_EQ(open_sink(&sink, folder / name, files, false), "");
    ASSERT_EQ(write_files(sink, files), "");
    folder.write(name[0] == 'd' ? "d/theirs" : "f", "theirs");
    Error err;
    EXPECT_EQ(ckpt_sink_commit(&sink.sink, 1, err), CKPT_EEXIST);
    EXPECT_EQ(err.text(), folder / name + ": exists: it was made by something else while this was written");
  }
  EXPECT_EQ(folder.tree(), (Names{"d/", "d/theirs", "f"}));
  EXPECT_EQ(folder.read("f"), "theirs");
}

TEST(SinkPath, ForceReplacesAFile) {
  Folder folder;
  folder.write("file", "old");
  {
    Sink sink;
    ASSERT_EQ(open_sink(&sink, folder / "file", {{"", "newer"}}, true), "");
    ASSERT_EQ(write_files(sink, {{"", "newer"}}), "");
    ASSERT_EQ(ckpt_sink_seal(sink, nullptr), CKPT_OK);
    EXPECT_EQ(folder.read("file"), "old") << "until it is published";
    ASSERT_EQ(ckpt_sink_publish(sink, nullptr), CKPT_OK);
  }
  EXPECT_EQ(folder.read("file"), "newer");
  EXPECT_EQ(put(folder / "new", {{"", "n"}}, true), "") << "force needs nothing to replace";
  EXPECT_EQ(folder.tree(), (Names{"file", "new"}));
}

TEST(SinkPath, ForceReplacesAFolderOfOurNames) {
  Folder folder;
  ASSERT_EQ(put(folder / "m", {{"a.safetensors", "old"}, {"b/y.bin", "old"}}), "");
  folder.link("link", "m");
  EXPECT_EQ(put(folder / "link", kModel, true), "") << "a link to a folder stands for it";
  EXPECT_EQ(folder.tree(), sorted([] {
              Names names = kModelTree;
              names.push_back("link");
              return names;
            }()));
  EXPECT_EQ(folder.read("m/a.safetensors"), "aaaa");
}

TEST(SinkPath, ForceRefusesForeignEntries) {
  auto refused = [](const std::function<void(const Folder &)> &prepare, const std::string &list, int n = 1) {
    Folder folder;
    folder.write("m/a.safetensors", "old");
    folder.write("m/b/y.bin", "old");
    prepare(folder);
    Names before = folder.tree();
    Sink sink;
    EXPECT_EQ(open_sink(&sink, folder / "m", kModel, true),
              folder / "m: not replaced: it holds " + std::to_string(n) + (n == 1 ? " entry" : " entries") +
                  " that would not be written anew: " + list + " (move " + (n == 1 ? "it" : "them") +
                  " away, or choose another output)");
    EXPECT_EQ(folder.tree(), before) << list << ": refused before anything is written";
    EXPECT_EQ(folder.read("m/a.safetensors"), "old");
  };
  refused([](const Folder &f) { f.write("m/notes.txt", ""); }, "notes.txt");
  refused([](const Folder &f) { f.write("m/b/notes.txt", ""); }, "b/notes.txt");
  refused([](const Folder &f) { f.make("m/.git"); }, ".git");
  refused([](const Folder &f) { f.write("m/.git/config.json", ""); }, ".git");
  refused([](const Folder &f) { f.make("m/c"); }, "c/");
  refused([](const Folder &f) { f.make("m/empty"); }, "empty/");
  refused([](const Folder &f) { f.write("m/b/deep", ""); }, "b/deep");
  refused([](const Folder &f) { f.link("m/config.json", "a.safetensors"); }, "config.json");
  refused([](const Folder &f) { mkfifo((f / "m/config.json").c_str(), 0600); }, "config.json");
  Folder folder; /* many: the count and the first few */
  for (int i = 0; i < 9; i++) folder.write("m/f" + std::to_string(i), "");
  std::string message = put(folder / "m", kModel, true);
  EXPECT_NE(message.find("it holds 9 entries"), std::string::npos) << message;
  EXPECT_NE(message.find(", ... (move"), std::string::npos) << message;
  /* what comes between open and publish is not deleted either */
  Folder late;
  late.write("m/a.safetensors", "old");
  Sink sink;
  ASSERT_EQ(open_sink(&sink, late / "m", kModel, true), "");
  ASSERT_EQ(write_files(sink, kModel), "");
  late.write("m/notes", "late");
  EXPECT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_EEXIST);
  EXPECT_EQ(late.tree(), (Names{"m/", "m/a.safetensors", "m/notes"}));
  EXPECT_EQ(late.read("m/a.safetensors"), "old");
}

// Owns r0, r1, ... of the subfolder b.
void OwnsRanks(const char *const *names, uint32_t n, const ckpt_file_set *, bool *is_ours) {
  for (uint32_t i = 0; i < n; i++) is_ours[i] = strncmp(names[i], "b/r", 3) == 0;
}

TEST(SinkPath, ForceReplacesWhatAFormatOwnsInSubfolders) {
  auto replace = [](const Folder &folder, ckpt_owns_files *owns) {
    Error err;
    Sink sink;
    std::vector<ckpt_sink_file> files = {{"a.safetensors", 0}, {"b/r0", 0}, {"b/c/x", 0}};
    ckpt_status status = ckpt_sink_path(&sink.sink, (folder / "m").c_str(), true, true, err);
    if (status == CKPT_OK) ckpt_sink_owns(sink.sink, owns);
    if (status == CKPT_OK) status = ckpt_sink_open(sink.sink, files.data(), 3, err);
    if (status == CKPT_OK) status = ckpt_sink_commit(&sink.sink, 1, err);
    return status == CKPT_OK ? "" : err.text();
  };
  auto former = [](const Folder &folder) {
    for (const char *name : {"m/a.safetensors", "m/b/r0", "m/b/r1", "m/b/r2", "m/b/c/x"}) folder.write(name, "old");
  };
  const Names before = {"m/", "m/a.safetensors", "m/b/", "m/b/c/", "m/b/c/x", "m/b/r0"};
  Folder folder;
  former(folder);
  EXPECT_EQ(replace(folder, OwnsRanks), "");
  EXPECT_EQ(folder.tree(), before) << "the former ranks are gone";
  for (const char *stray : {"m/b/c/notes", "m/b/notes", "m/b/d/r3", "m/d/r3", "m/b/c/r1"}) {
    Folder held;
    former(held);
    held.write(stray, "theirs");
    const Names names = held.tree();
    EXPECT_NE(replace(held, OwnsRanks).find("it holds 1 entry that would not be written anew: "), std::string::npos);
    EXPECT_EQ(held.tree(), names) << stray;
  }
  Folder without; /* nobody says that they are ours: what is no part of a set comes first */
  former(without);
  without.write("m/b/s", "theirs");
  EXPECT_NE(replace(without, nullptr).find("3 entries that would not be written anew: b/s, b/r1, b/r2 (move"),
            std::string::npos)
      << replace(without, nullptr);
}

TEST(SinkPath, NamesAreChecked) {
  Folder folder;
  for (const char *name : {"/a", "../a", "a/../b", "a//b", "a/", "./a", "a/.", ".."})
    EXPECT_NE(put(folder / "m", {{name, "x"}, {"b", "x"}}).find("cannot name a file below it"), std::string::npos)
        << name;
  EXPECT_NE(put(folder / "m", {{std::string(256, 'x'), "x"}}).find("cannot name"), std::string::npos);
  std::string deep = "d";
  for (int i = 1; i < 31; i++) deep += "/d";
  EXPECT_NE(put(folder / "m", {{deep + "/d/x", "x"}}).find("cannot name"), std::string::npos);
  EXPECT_EQ(put(folder / "m", {{"same", "x"}, {"b", "x"}, {"same", "y"}}),
            folder / "m: two files would have the name 'same'");
  EXPECT_NE(put(folder / "m", {{"f", "x"}, {"f/g", "x"}}), "") << "a file and a folder of one name";
  EXPECT_EQ(folder.tree(), Names{});
  EXPECT_EQ(put(folder / "m", {{deep + "/x", "x"}}), "");
  EXPECT_EQ(put(folder / std::string(255, 'n'), {{"", "long"}}), "") << "the temporary name is cut to fit";
  std::string umlauts;
  for (int i = 0; i < 127; i++) umlauts += "\xC3\xBC";
  EXPECT_EQ(put(folder / umlauts, {{"", "long"}}), "");
}

TEST(SinkPath, AbandonLeavesNothing) {
  Folder folder;
  folder.make("empty");
  for (const char *path : {"new", "empty", "file"}) {
    Files files = path[0] == 'f' ? Files{{"", "0123"}} : kModel;
    for (int stage = 0; stage < 3; stage++) {
      Sink sink;
      ASSERT_EQ(open_sink(&sink, folder / path, files, false), "");
      EXPECT_GE(folder.tree().size(), 2u);
      ASSERT_EQ(stage > 0 ? write_files(sink, files) : "", "");
      ASSERT_EQ(stage > 1 ? ckpt_sink_seal(sink, nullptr) : CKPT_OK, CKPT_OK);
      if (stage == 1) ckpt_sink_abandon(sink);
    }
    EXPECT_EQ(folder.tree(), Names{"empty/"});
  }
  Sink sink;
  ASSERT_EQ(open_sink(&sink, folder / "kept", kModel, false), "");
  ASSERT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_OK);
  ckpt_sink_abandon(sink);
  EXPECT_TRUE(std::filesystem::exists(folder / "kept/b/deep/x.bin")) << "after publish abandon does nothing";
}

TEST(SinkPath, KillBeforePublishLeavesNothingAtTheFinalPath) {
  for (bool is_sealed : {false, true}) {
    Folder folder;
    folder.write("old/a.safetensors", "old");
    pid_t child = fork();
    if (child == 0) {
      Sink sink, replacing;
      bool is_fine = open_sink(&sink, folder / "m", kModel, false).empty() && write_files(sink, kModel).empty() &&
                     open_sink(&replacing, folder / "old", kModel, true).empty() &&
                     write_files(replacing, kModel).empty();
      if (is_sealed)
        is_fine = is_fine && ckpt_sink_seal(sink, nullptr) == CKPT_OK && ckpt_sink_seal(replacing, nullptr) == CKPT_OK;
      if (!is_fine) _exit(1);
      kill(getpid(), SIGKILL);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(std::filesystem::exists(folder / "m"));
    EXPECT_EQ(folder.read("old/a.safetensors"), "old");
    EXPECT_EQ(put(folder / "m", kModel), "") << "and the next run is not in its way";
    EXPECT_EQ(put(folder / "old", kModel, true), "");
  }
}

TEST(SinkPath, ManyFilesManyThreads) {
  Folder folder;
  constexpr uint32_t n = 1000;
  Files files;
  for (uint32_t i = 0; i < n; i++) files.push_back({"d" + std::to_string(i % 5) + "/f" + std::to_string(i), ""});
  for (bool sizes : {true, false}) {
    for (uint32_t i = 0; i < n; i++)
      files[i].second = std::to_string(i) + std::string(3000, static_cast<char>('a' + i % 26));
    std::string name = sizes ? "known" : "unknown";
    Sink sink;
    ASSERT_EQ(open_sink(&sink, folder / name, files, false, sizes), "");
    uint64_t n_made = 0, n_reserved = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder / ""))
      if (entry.is_regular_file() && entry.path().string().find(".ckpt-tmp.") != std::string::npos)
        n_made++, n_reserved += entry.file_size();
    EXPECT_EQ(n_made, n);
    EXPECT_EQ(n_reserved, sizes ? 1000 * 3000 + 10 + 90 * 2 + 900 * 3u : 0u);
    std::atomic<int> n_wrong = 0;
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 8; t++)
      threads.emplace_back(
          [&, t] { /* each thread an eighth of every file, and reads it back */
                   for (uint32_t i = 0; i < n; i++) {
                     const std::string &bytes = files[(i * 7 + t * 11) % n].second;
                     uint32_t file = (i * 7 + t * 11) % n;
                     size_t from = bytes.size() * t / 8, to = bytes.size() * (t + 1) / 8;
                     std::string back(to - from, '?');
                     n_wrong += ckpt_sink_write(sink, file, from, bytes.data() + from, to - from, nullptr) != CKPT_OK;
                     n_wrong += ckpt_sink_read(sink, file, from, back.data(), back.size(), nullptr) != CKPT_OK;
                     n_wrong += back != bytes.substr(from, to - from);
                   }
          });
    for (auto &thread : threads) thread.join();
    EXPECT_EQ(n_wrong, 0);
    ASSERT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_OK);
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
      ASSERT_EQ(folder.read(name + "/" + files[i].first), files[i].second);
      n_bytes += files[i].second.size();
    }
    EXPECT_EQ(ckpt_sink_bytes_written(sink), n_bytes);
  }
}

TEST(SinkPath, HolesAreZeroAndSizesHold) {
  Folder folder;
  Sink sink;
  ASSERT_EQ(ckpt_sink_path(&sink.sink, (folder / "m").c_str(), true, false, nullptr), CKPT_OK);
  ckpt_sink_file files[] = {{"known", 10}, {"unknown", CKPT_SIZE_UNKNOWN}, {"none", CKPT_SIZE_UNKNOWN}};
  ASSERT_EQ(ckpt_sink_open(sink, files, 3, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(sink, 0, 4, "ab", 2, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(sink, 1, 6, "ab", 2, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(sink, 0, 9, "ab", 2, nullptr), CKPT_EINTERNAL) << "beyond the promised size";
  EXPECT_EQ(ckpt_sink_write(sink, 1, UINT64_MAX - 1, "ab", 2, nullptr), CKPT_EINTERNAL);
  EXPECT_EQ(ckpt_sink_write(sink, 3, 0, "ab", 2, nullptr), CKPT_EINTERNAL);
  EXPECT_EQ(ckpt_sink_publish(sink, nullptr), CKPT_EINTERNAL) << "not sealed";
  ASSERT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_sink_write(sink, 0, 4, "ab", 2, nullptr), CKPT_EINTERNAL);
  EXPECT_EQ(folder.read("m/known"), std::string("\0\0\0\0ab\0\0\0\0", 10));
  EXPECT_EQ(folder.read("m/unknown"), std::string("\0\0\0\0\0\0ab", 8));
  EXPECT_EQ(folder.read("m/none"), "");
}

TEST(SinkPath, FullDiskIsSaidWithSizes) {
  Folder folder;
  folder.make("disk");
  std::string disk = folder / "disk";
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "needs the right to mount a tmpfs: " << strerror(errno);
  std::string early = put(disk + "/m", {{"a", std::string(600000, 'a')}, {"b", std::string(600000, 'b')}});
  Names after_early = folder.tree();
  std::string late = put(disk + "/m", {{"a", std::string(1500000, 'a')}}, false, false);
  Names after_late = folder.tree();
  std::string fits = put(disk + "/m", {{"a", std::string(600000, 'a')}});
  umount(disk.c_str());
  EXPECT_EQ(early, disk + "/m: not enough space: 1204224 bytes needed, 1048576 available: No space left on device");
  EXPECT_EQ(after_early, Names{"disk/"});
  EXPECT_EQ(late.rfind(disk + "/m/a: cannot write ", 0), 0u) << late;
  EXPECT_NE(late.find(": No space left on device"), std::string::npos) << late;
  EXPECT_EQ(after_late, Names{"disk/"});
  EXPECT_EQ(fits, "");
}

TEST(SinkCommit, SealsAllThenPublishesInOrder) {
  Folder folder;
  folder.make("d");
  Sink a, b, c;
  ASSERT_EQ(open_sink(&a, folder / "a", {{"", "a"}}, false), "");
  ASSERT_EQ(open_sink(&b, folder / "b", kModel, false), "");
  ASSERT_EQ(open_sink(&c, folder / "c", {{"", "c"}}, false), "");
  folder.write("b/theirs", "x"); /* the second publish fails */
  ckpt_sink *sinks[] = {a, b, c};
  Error err;
  EXPECT_EQ(ckpt_sink_commit(sinks, 3, err), CKPT_EEXIST);
  EXPECT_EQ(folder.tree(), (Names{"a", "b/", "b/theirs", "d/"})) << "before it: published; from it on: nothing";

  static std::string log;
  struct Named {
    const char *name;
    bool fails;
  };
  static const ckpt_sink_ops ops = {
      [](void *, const ckpt_sink_file *, uint32_t, ckpt_error *) -> ckpt_status { return CKPT_OK; },
      [](void *, uint32_t, uint64_t, const void *, size_t, ckpt_error *) -> ckpt_status { return CKPT_OK; },
      [](void *, uint32_t, uint64_t, void *, size_t, ckpt_error *) -> ckpt_status { return CKPT_OK; },
      [](void *ctx, ckpt_error *) -> ckpt_status {
        log += std::string("seal ") + static_cast<Named *>(ctx)->name + ",";
        return static_cast<Named *>(ctx)->fails ? CKPT_EIO : CKPT_OK;
      },
      [](void *ctx, ckpt_error *) -> ckpt_status {
        log += std::string("publish ") + static_cast<Named *>(ctx)->name + ",";
        return CKPT_OK;
      },
      [](void *ctx) { log += std::string("abandon ") + static_cast<Named *>(ctx)->name + ","; },
      [](void *ctx) { log += std::string("close ") + static_cast<Named *>(ctx)->name + ","; },
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      nullptr};
  for (bool fails : {false, true}) {
    Named x = {"x", false}, y = {"y", fails};
    Sink sx, sy;
    ASSERT_EQ(ckpt_sink_custom(&sx.sink, &ops, &x, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_sink_custom(&sy.sink, &ops, &y, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_sink_open(sx, nullptr, 0, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_sink_open(sy, nullptr, 0, nullptr), CKPT_OK);
    ckpt_sink *both[] = {sx, sy};
    log.clear();
    EXPECT_EQ(ckpt_sink_commit(both, 2, nullptr), fails ? CKPT_EIO : CKPT_OK);
    ckpt_sink_free(sx);
    sx.sink = nullptr;
    EXPECT_EQ(log, fails ? "seal x,seal y,abandon x,abandon y,close x," : "seal x,seal y,publish x,publish y,close x,");
  }
}

TEST(SinkMemory, GrowsZeroFilledFromManyThreads) {
  Sink sink;
  ASSERT_EQ(ckpt_sink_memory(&sink.sink, nullptr), CKPT_OK);
  ckpt_sink_file files[] = {{"grows", CKPT_SIZE_UNKNOWN}, {"known", 5}, {"empty", 0}};
  ASSERT_EQ(ckpt_sink_open(sink, files, 3, nullptr), CKPT_OK);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; t++)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; i++) {
        char byte = static_cast<char>('a' + t);
        ASSERT_EQ(ckpt_sink_write(sink, 0, 1 + i * 9 + t, &byte, 1, nullptr), CKPT_OK);
      }
    });
  for (auto &thread : threads) thread.join();
  ASSERT_EQ(ckpt_sink_write(sink, 1, 1, "xy", 2, nullptr), CKPT_OK);
  char back[3] = {};
  EXPECT_EQ(ckpt_sink_read(sink, 1, 0, back, 3, nullptr), CKPT_OK);
  EXPECT_EQ(std::string(back, 3), std::string("\0xy", 3));
  EXPECT_EQ(ckpt_sink_read(sink, 0, 17999, back, 3, nullptr), CKPT_EIO);
  ASSERT_EQ(ckpt_sink_commit(&sink.sink, 1, nullptr), CKPT_OK);
  uint64_t n;
  const char *bytes = static_cast<const char *>(ckpt_sink_bytes(sink, 0, &n));
  ASSERT_EQ(n, 1 + 1999 * 9 + 8u);
  for (uint64_t i = 0; i < n; i++) ASSERT_EQ(bytes[i], i % 9 == 0 ? '\0' : static_cast<char>('a' + (i - 1) % 9)) << i;
  EXPECT_EQ(std::string(static_cast<const char *>(ckpt_sink_bytes(sink, 1, &n)), 5), std::string("\0xy\0\0", 5));
  EXPECT_EQ(n, 5u);
  EXPECT_NE(ckpt_sink_bytes(sink, 2, &n), nullptr);
  EXPECT_EQ(ckpt_sink_bytes(sink, 3, &n), nullptr);
}

TEST(Publish, SubstitutesDoTheSame) {
  Folder folder;
  int fd = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  folder.write("f", "f");
  folder.write("taken", "t");
  folder.write("d/x", "x");
  folder.write("e/y", "y");
  Error err;
  EXPECT_EQ(ckpt_rename_new_portably(fd, "f", fd, "taken", "P", err), CKPT_EEXIST);
  EXPECT_EQ(ckpt_rename_new_portably(fd, "d", fd, "e", "P", nullptr), CKPT_EEXIST);
  EXPECT_EQ(ckpt_rename_new_portably(fd, "f", fd, "g", "P", nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_rename_new_portably(fd, "d", fd, "h", "P", nullptr), CKPT_OK);
  EXPECT_EQ(folder.tree(), (Names{"e/", "e/y", "g", "h/", "h/x", "taken"}));
  EXPECT_EQ(ckpt_exchange_portably(fd, "h", "e", "P", nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_exchange_portably(fd, "missing", "e", "P", nullptr), CKPT_ENOTFOUND);
  EXPECT_EQ(folder.tree(), (Names{"e/", "e/x", "g", "h/", "h/y", "taken"})) << "undone where it cannot be finished";
  close(fd);
}

}  // namespace
