// Sources: exact reads, thousands of files through few descriptors, threads, files that change, what is refused.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/io/source.h"
}

namespace {

struct Source {
  ckpt_source *source = nullptr;
  ~Source() { ckpt_source_free(source); }
  operator ckpt_source *() const { return source; }
};

// The bytes of a range, or the error.
std::string read_range(ckpt_source *source, uint32_t file, uint64_t offset, size_t n) {
  std::string bytes(n, '?');
  Error err;
  return ckpt_source_read(source, file, offset, bytes.data(), n, err) == CKPT_OK ? bytes : err.text();
}

std::string add(ckpt_source *source, const std::string &name) {
  Error err;
  uint32_t file;
  uint64_t size;
  if (ckpt_source_add(source, name.c_str(), &file, &size, err) != CKPT_OK) return err.text();
  return std::to_string(file) + ":" + std::to_string(size);
}

int n_open_descriptors() {
  int n = 0;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) n += !entry.path().empty();
  return n - 1;
}

TEST(Source, ReadsExactlyWhatIsThere) {
  Folder folder;
  folder.write("a", "0123456789");
  folder.write("sub/b", "bb");
  folder.write("empty", "");
  Source source;
  Error err;
  ASSERT_EQ(ckpt_source_open(&source.source, folder.path().c_str(), err), CKPT_OK) << err.text();
  EXPECT_EQ(add(source, "a"), "0:10");
  EXPECT_EQ(add(source, "sub/b"), "1:2");
  EXPECT_EQ(add(source, "a"), "0:10") << "the same name is the same file";
  EXPECT_EQ(add(source, "empty"), "2:0");
  EXPECT_EQ(ckpt_source_count(source), 3u);
  EXPECT_STREQ(ckpt_source_name(source, 1), "sub/b");
  EXPECT_EQ(ckpt_source_path(source, 1), folder / "sub/b");
  EXPECT_EQ(ckpt_source_root(source), folder.path());
  EXPECT_EQ(ckpt_source_size(source, 0), 10u);
  EXPECT_EQ(read_range(source, 0, 3, 4), "3456");
  EXPECT_EQ(read_range(source, 1, 0, 2), "bb");
  EXPECT_EQ(read_range(source, 2, 0, 0), "");
  EXPECT_EQ(ckpt_source_bytes_read(source), 6u);
  EXPECT_EQ(read_range(source, 0, 8, 3), folder / "a: ends early: 3 bytes wanted at offset 8, file has 10");
  EXPECT_EQ(read_range(source, 0, UINT64_MAX, 1).substr(folder.path().size()),
            "/a: ends early: 1 byte wanted at offset 18446744073709551615, file has 10");
}

TEST(Source, FileThatShrinksIsAnError) {
  Folder folder;
  std::string path = folder.write("a", "0123456789");
  Source source;
  ASSERT_EQ(ckpt_source_open(&source.source, folder.path().c_str(), nullptr), CKPT_OK);
  add(source, "a");
  ASSERT_EQ(truncate(path.c_str(), 4), 0);
  EXPECT_EQ(read_range(source, 0, 2, 5), path + ": ends early: 5 bytes wanted at offset 2, only 2 are there");
}

TEST(Source, RefusesWhatIsNotAFileBelowIt) {
  Folder folder;
  folder.write("secret", "s");
  folder.make("root/sub");
  folder.link("root/escape", "../secret");
  ASSERT_EQ(mkfifo((folder / "root/fifo").c_str(), 0600), 0);
  std::string root = folder / "root";
  Source source;
  ASSERT_EQ(ckpt_source_open(&source.source, root.c_str(), nullptr), CKPT_OK);
  EXPECT_EQ(add(source, "../secret"),
            "file name '../secret' is not one below the checkpoint's folder (relative, no '..')");
  EXPECT_EQ(add(source, "/etc/passwd"),
            "file name '/etc/passwd' is not one below the checkpoint's folder (relative, no '..')");
  EXPECT_EQ(
      add(source, "escape"),
      root +
          "/escape: a link to ../secret leads out of the checkpoint's folder (name the path it leads to, or copy that "
          "into the folder)");
  EXPECT_EQ(add(source, "fifo"), root + "/fifo: not a regular file");
  EXPECT_EQ(add(source, "sub"), root + "/sub: not a regular file");
  EXPECT_EQ(add(source, "missing"), root + "/missing: cannot open: No such file or directory");
  EXPECT_EQ(ckpt_source_count(source), 0u) << "what failed leaves nothing";
  folder.write("root/missing", "now");
  EXPECT_EQ(add(source, "missing"), "0:3");
  ckpt_source *none;
  Error err;
  EXPECT_EQ(ckpt_source_open(&none, (folder / "nowhere").c_str(), err), CKPT_ENOTFOUND);
  EXPECT_EQ(none, nullptr);
}

TEST(Source, TheUsersOwnFileMayBeALink) {
  Folder folder;
  std::string snapshot = "hub/models--org--name/snapshots/0123";
  folder.write("hub/models--org--name/blobs/abc", "weights");
  folder.link(snapshot + "/model.safetensors", "../../blobs/abc");
  folder.write("elsewhere/real", "real");
  folder.link("here/mine", folder / "elsewhere/real");
  folder.link("here/other", folder / "elsewhere/real");
  folder.link("here/cached", folder / (snapshot + "/model.safetensors"));
  for (auto [path, name, bytes] : {std::tuple{snapshot + "/model.safetensors", "model.safetensors", "weights"},
                                   {"here/mine", "mine", "real"},
                                   {"here/cached", "cached", "weights"}}) {
    Source source;
    Error err;
    ASSERT_EQ(ckpt_source_open(&source.source, (folder / path).c_str(), err), CKPT_OK) << err.text();
    EXPECT_EQ(add(source, name), "0:" + std::to_string(strlen(bytes))) << path;
    EXPECT_EQ(read_range(source, 0, 0, strlen(bytes)), bytes);
    EXPECT_EQ(add(source, "other").find("0:"), std::string::npos) << "only the named file";
  }
}

class ManyFiles : public testing::Test {
 protected:
  static constexpr uint32_t kFiles = 1000;
  void SetUp() override {
    for (uint32_t i = 0; i < kFiles; i++) folder_.write(name(i), "file " + std::to_string(i));
    ASSERT_EQ(ckpt_source_open(&source_.source, folder_.path().c_str(), nullptr), CKPT_OK);
    for (uint32_t i = 0; i < kFiles; i++)
      ASSERT_EQ(add(source_, name(i)), std::to_string(i) + ":" + std::to_string(text(i).size()));
  }
  static std::string name(uint32_t i) { return "d" + std::to_string(i % 7) + "/f" + std::to_string(i); }
  static std::string text(uint32_t i) { return "file " + std::to_string(i); }
  Folder folder_;
  Source source_;
};

TEST_F(ManyFiles, FewDescriptors) {
  EXPECT_LE(n_open_descriptors(), CKPT_MAX_DESCRIPTORS + 16);
  for (uint32_t i = kFiles; i-- > 0;) ASSERT_EQ(read_range(source_, i, 0, text(i).size()), text(i));
  EXPECT_LE(n_open_descriptors(), CKPT_MAX_DESCRIPTORS + 16);
  EXPECT_GE(n_open_descriptors(), CKPT_MAX_DESCRIPTORS) << "and they are used";
}

TEST_F(ManyFiles, ManyReaders) {
  std::atomic<int> n_wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 16; t++)
    threads.emplace_back([&, t] {
      uint32_t i = t * 61;
      for (int k = 0; k < 1000; k++, i = (i * 31 + 17 + t) % kFiles)
        if (read_range(source_, i, 0, text(i).size()) != text(i)) n_wrong++;
    });
  for (auto &thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
  EXPECT_LE(n_open_descriptors(), CKPT_MAX_DESCRIPTORS + 16);
}

TEST_F(ManyFiles, FewerDescriptorsThanTheLimit) {
  struct rlimit old, few;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  few = old;
  few.rlim_cur = 40;
  Source source;
  ASSERT_EQ(ckpt_source_open(&source.source, folder_.path().c_str(), nullptr), CKPT_OK);
  ckpt_source_free(source_);
  source_.source = nullptr;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string last;
  for (uint32_t i = 0; i < 100; i++) last = add(source, name(i));
  static std::atomic<int> n_wrong;
  n_wrong = 0;
  pthread_t threads[8]; /* not std::thread: the sanitizer's check of its class needs descriptors of its own */
  for (auto &thread : threads)
    pthread_create(
        &thread, nullptr,
        [](void *ctx) -> void * {
          for (uint32_t i = 0, k = 0; k < 100; k++, i = (i + 37) % 100)
            if (read_range(static_cast<ckpt_source *>(ctx), i, 0, 6) != text(i).substr(0, 6)) n_wrong++;
          return nullptr;
        },
        source.source);
  for (auto thread : threads) pthread_join(thread, nullptr);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(last, "99:7");
  EXPECT_EQ(n_wrong, 0);
}

TEST_F(ManyFiles, ReplacedFileIsNoticedWhenReopened) {
  auto push_out = [&] { /* reads so many others that file 0 is closed */
                        for (uint32_t i = 1; i <= CKPT_MAX_DESCRIPTORS + 1; i++) read_range(source_, i, 0, 1);
  };
  std::string path = folder_ / name(0);
  push_out();
  EXPECT_EQ(read_range(source_, 0, 0, 6), "file 0");
  std::filesystem::rename(folder_.write("new", "file X"), path);
  EXPECT_EQ(read_range(source_, 0, 0, 6), "file 0") << "still open: still the old one";
  push_out();
  EXPECT_EQ(read_range(source_, 0, 0, 6), path + ": changed while being read (6 bytes before, 6 now)");
  std::string other = folder_ / name(900);
  EXPECT_EQ(read_range(source_, 900, 0, 1), "f");
  struct timespec later[2] = {{2000000000, 5}, {2000000000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, other.c_str(), later, 0), 0);
  EXPECT_EQ(read_range(source_, 900, 0, 1), "f") << "still open";
  push_out();
  EXPECT_EQ(read_range(source_, 900, 0, 1), other + ": changed while being read (8 bytes before, 8 now)");
}

TEST_F(ManyFiles, AChangeIsSeenAtTheEnd) {
  auto read_all = [&] {
    for (uint32_t i = 0; i <= CKPT_MAX_DESCRIPTORS + 1; i++) read_range(source_, i, 0, 1);
  };
  read_all();
  EXPECT_EQ(ckpt_source_unchanged(source_, nullptr), CKPT_OK);
  std::filesystem::rename(folder_.write("new", "file X"), folder_ / name(CKPT_MAX_DESCRIPTORS));
  EXPECT_EQ(ckpt_source_unchanged(source_, nullptr), CKPT_OK) << "the one that was read is as it was";
  std::string open = folder_ / name(CKPT_MAX_DESCRIPTORS - 1);
  std::filesystem::resize_file(open, 2);
  Error err;
  EXPECT_EQ(ckpt_source_unchanged(source_, err), CKPT_EIO);
  EXPECT_EQ(err.text(), open + ": changed while being read (8 bytes before, 2 now)");
}

TEST_F(ManyFiles, AChangeIsSeenThoughTheFileWasClosed) {
  read_range(source_, 0, 0, 1);
  std::filesystem::resize_file(folder_ / name(0), 100);
  for (uint32_t i = 1; i <= CKPT_MAX_DESCRIPTORS + 1; i++) read_range(source_, i, 0, 1);
  Error err;
  EXPECT_EQ(ckpt_source_unchanged(source_, err), CKPT_EIO);
  EXPECT_EQ(err.text(), folder_ / name(0) + ": changed while being read (6 bytes before, 100 now)");
}

TEST(Source, MemoryAndCustom) {
  Source memory;
  ASSERT_EQ(ckpt_source_memory(&memory.source, "0123", 4, "x.bin", nullptr), CKPT_OK);
  EXPECT_EQ(add(memory, "x.bin"), "0:4");
  EXPECT_EQ(add(memory, "y"), "y: no such file in this source");
  EXPECT_EQ(read_range(memory, 0, 1, 3), "123");
  EXPECT_EQ(read_range(memory, 0, 1, 4), "x.bin: ends early: 4 bytes wanted at offset 1, file has 4");
  EXPECT_STREQ(ckpt_source_root(memory), "");
  EXPECT_EQ(ckpt_source_bytes_read(memory), 3u);

  static bool is_closed;
  is_closed = false;
  const ckpt_source_ops ops = {
      [](void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n, ckpt_error *err) -> ckpt_status {
        if (file == 1) return ckpt_fail(err, CKPT_EIO, nullptr, nullptr, "device is gone");
        memcpy(dst, static_cast<char *>(ctx) + offset, n);
        return CKPT_OK;
      },
      [](void *) { is_closed = true; }};
  {
    char bytes[] = "device";
    Source custom;
    uint32_t file;
    ASSERT_EQ(ckpt_source_custom(&custom.source, &ops, bytes, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_source_declare(custom, "gpu0", 6, &file, nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_source_declare(custom, "gpu1", 6, &file, nullptr), CKPT_OK);
    EXPECT_EQ(file, 1u);
    EXPECT_EQ(ckpt_source_declare(custom, "gpu1", 6, &file, nullptr), CKPT_EEXIST);
    EXPECT_EQ(read_range(custom, 0, 2, 4), "vice");
    EXPECT_EQ(read_range(custom, 1, 2, 4), "gpu1: device is gone");
  }
  EXPECT_TRUE(is_closed);
}

TEST(Source, ThousandsOfNamesAreFoundFast) {
  Source source;
  const ckpt_source_ops ops = {nullptr, nullptr};
  ASSERT_EQ(ckpt_source_custom(&source.source, &ops, nullptr, nullptr), CKPT_OK);
  uint32_t file;
  uint64_t size;
  for (int i = 0; i < 200000; i++) { /* sorted names: what would make a plain tree a list */
    char name[32];
    snprintf(name, sizeof name, "shard-%08d", i);
    ASSERT_EQ(ckpt_source_declare(source, name, static_cast<uint64_t>(i), &file, nullptr), CKPT_OK);
  }
  for (int i = 0; i < 200000; i++) {
    char name[32];
    snprintf(name, sizeof name, "shard-%08d", i);
    ASSERT_EQ(ckpt_source_add(source, name, &file, &size, nullptr), CKPT_OK);
    ASSERT_EQ(size, static_cast<uint64_t>(i));
  }
}

TEST(List, EntriesInByteOrder) {
  Folder folder;
  folder.write("root/b", "bb");
  folder.write("root/a", "a");
  folder.write("root/sub/c", "ccc");
  folder.write("outside", "o");
  folder.link("root/Link", "a");
  folder.link("root/sub/up", "../b");
  folder.link("root/escape", "../outside");
  folder.link("root/to_sub", "sub");
  ASSERT_EQ(mkfifo((folder / "root/fifo").c_str(), 0600), 0);
  auto list = [&](const std::string &root, const std::string &sub) {
    ckpt_entry *entries;
    size_t n;
    Error err;
    if (ckpt_list(&entries, &n, (folder / root).c_str(), sub.c_str(), err) != CKPT_OK) return Names{err.text()};
    Names names;
    for (size_t i = 0; i < n; i++)
      names.push_back(std::string(entries[i].name) + (entries[i].is_folder ? "/" : "") +
                      (entries[i].is_file ? ":" + std::to_string(entries[i].n_bytes) : ""));
    ckpt_list_free(entries, n);
    return names;
  };
  EXPECT_EQ(list("root", ""), (Names{"Link:1", "a:1", "b:2", "escape", "fifo", "sub/", "to_sub/"}));
  EXPECT_EQ(list("root", "sub"), (Names{"c:3", "up:2"}));
  EXPECT_EQ(list("root", "to_sub"), (Names{"c:3", "up:2"}));
  EXPECT_EQ(list("root/sub", ""), (Names{"c:3", "up"})) << "the root is where the caller says";
  EXPECT_EQ(list("root", ".."), Names{folder / "root: folder name '..' is not one below it"});
  EXPECT_EQ(list("nowhere", "").size(), 1u);
}

}  // namespace
