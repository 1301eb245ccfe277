// Contained open: the same table of names and links for openat2 and for the walk that replaces it.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/io/contained.h"
}

namespace {

using Open = int (*)(const ckpt_root *, const char *, int);

class Contained : public testing::TestWithParam<Open> {
 protected:
  // What a name leads to: its bytes, "(folder)", or the errno.
  std::string resolve(const std::string &root_path, const std::string &name, int flags = 0) {
    ckpt_root root;
    Error err;
    if (ckpt_root_open(&root, root_path.c_str(), err) != CKPT_OK) return err.text();
    int fd = GetParam()(&root, name.c_str(), flags);
    ckpt_root_close(&root);
    if (fd < 0) return strerrorname_np(-fd);
    struct stat st;
    EXPECT_EQ(fstat(fd, &st), 0);
    EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    std::string bytes = S_ISDIR(st.st_mode) ? "(folder)" : S_ISREG(st.st_mode) ? "" : "(special)";
    char buffer[64];
    ssize_t n = bytes.empty() && (flags & O_PATH) == 0 ? read(fd, buffer, sizeof buffer) : 0;
    close(fd);
    return bytes + std::string(buffer, static_cast<size_t>(n < 0 ? 0 : n));
  }
  Folder folder_;
};

TEST_P(Contained, StaysBeneathTheRoot) {
  folder_.write("secret", "secret");
  folder_.write("root/a", "a");
  folder_.write("root/sub/deep/b", "b");
  folder_.link("root/to_a", "a");
  folder_.link("root/to_to_a", "to_a");
  folder_.link("root/sub/up", "../a");
  folder_.link("root/sub/deep/around", "../../sub/deep/./b");
  folder_.link("root/to_sub", "sub");
  folder_.link("root/to_sub_slash", "sub/");
  folder_.link("root/escape", "../secret");
  folder_.link("root/absolute", folder_ / "secret");
  folder_.link("root/absolute_inside", folder_ / "root/a");
  folder_.link("root/chain", "sub/chain");
  folder_.link("root/sub/chain", "../../secret");
  folder_.link("root/out", "..");
  folder_.link("root/there_and_back", "../root/a");
  folder_.link("root/loop", "loop");
  folder_.link("root/dangling", "nowhere");
  folder_.link("root/sub/file_slash", "../a/");
  std::string root = folder_ / "root";
  EXPECT_EQ(resolve(root, "a"), "a");
  EXPECT_EQ(resolve(root, "./a"), "a");
  EXPECT_EQ(resolve(root, "sub/deep/b"), "b");
  EXPECT_EQ(resolve(root, "to_a"), "a");
  EXPECT_EQ(resolve(root, "to_to_a"), "a");
  EXPECT_EQ(resolve(root, "sub/up"), "a");
  EXPECT_EQ(resolve(root, "sub/deep/around"), "b");
  EXPECT_EQ(resolve(root, "to_sub/deep/b"), "b");
  EXPECT_EQ(resolve(root, "to_sub_slash/deep/b"), "b");
  EXPECT_EQ(resolve(root, "to_sub/up"), "a");
  EXPECT_EQ(resolve(root, ""), "(folder)");
  EXPECT_EQ(resolve(root, "to_sub", O_DIRECTORY), "(folder)");
  EXPECT_EQ(resolve(root, "escape"), "EXDEV");
  EXPECT_EQ(resolve(root, "absolute"), "EXDEV");
  EXPECT_EQ(resolve(root, "absolute_inside"), "EXDEV");
  EXPECT_EQ(resolve(root, "chain"), "EXDEV");
  EXPECT_EQ(resolve(root, "out/secret"), "EXDEV");
  EXPECT_EQ(resolve(root, "there_and_back"), "EXDEV");
  EXPECT_EQ(resolve(root, "../secret"), "EXDEV");
  EXPECT_EQ(resolve(root, "sub/../../secret"), "EXDEV");
  EXPECT_EQ(resolve(root, "/etc/passwd"), GetParam() == ckpt_contained_open ? "EXDEV" : "ENOENT");
  EXPECT_EQ(resolve(root, "escape", O_PATH), "EXDEV");
  EXPECT_EQ(resolve(root, "loop"), "ELOOP");
  EXPECT_EQ(resolve(root, "dangling"), "ENOENT");
  EXPECT_EQ(resolve(root, "missing"), "ENOENT");
  EXPECT_EQ(resolve(root, "a/b"), "ENOTDIR");
  EXPECT_EQ(resolve(root, "sub/file_slash"), "ENOTDIR");
  EXPECT_EQ(resolve(root, "a", O_DIRECTORY), "ENOTDIR");
  EXPECT_EQ(resolve(root, std::string(300, 'x')), "ENAMETOOLONG");
  EXPECT_EQ(resolve(root, std::string(5000, 'x')), "ENAMETOOLONG");
}

TEST_P(Contained, FifoDoesNotBlock) {
  folder_.make("root");
  ASSERT_EQ(mkfifo((folder_ / "root/fifo").c_str(), 0600), 0);
  EXPECT_EQ(resolve(folder_ / "root", "fifo"), "(special)");
}

TEST_P(Contained, HuggingFaceCacheLinksStayInTheirModel) {
  folder_.write("hub/models--org--name/blobs/abc", "weights");
  folder_.write("hub/models--org--other/blobs/def", "others");
  std::string snapshot = "hub/models--org--name/snapshots/0123";
  folder_.link(snapshot + "/model.safetensors", "../../blobs/abc");
  folder_.link(snapshot + "/onnx/model.onnx", "../../../blobs/abc");
  folder_.link(snapshot + "/stolen", "../../../models--org--other/blobs/def");
  folder_.link("by_link", folder_ / snapshot);
  folder_.write("plain/blobs/abc", "outside");
  folder_.link("plain/snapshots/0123/model.safetensors", "../../blobs/abc");
  folder_.link("models--x/other/0123/model.safetensors", "../../blobs/abc");
  folder_.link("models--/snapshots/0123/model.safetensors", "../../blobs/abc");
  EXPECT_EQ(resolve(folder_ / snapshot, "model.safetensors"), "weights");
  EXPECT_EQ(resolve(folder_ / snapshot, "onnx/model.onnx"), "weights");
  EXPECT_EQ(resolve(folder_ / (snapshot + "/onnx"), "model.onnx"), "weights");
  EXPECT_EQ(resolve(folder_ / "by_link", "model.safetensors"), "weights") << "the user's own path may be a link";
  EXPECT_EQ(resolve(folder_ / snapshot, "stolen"), "EXDEV");
  EXPECT_EQ(resolve(folder_ / "plain/snapshots/0123", "model.safetensors"), "EXDEV");
  EXPECT_EQ(resolve(folder_ / "models--x/other/0123", "model.safetensors"), "EXDEV");
  EXPECT_EQ(resolve(folder_ / "models--/snapshots/0123", "model.safetensors"), "EXDEV");
}

TEST_P(Contained, DepthAndLinksAreBounded) {
  std::string deep = "root";
  for (int i = 0; i < 80; i++) deep += "/d";
  folder_.write(deep + "/x", "x");
  std::string name = resolve(folder_ / "root", deep.substr(5) + "/x");
  EXPECT_EQ(name, GetParam() == ckpt_contained_open ? "x" : "ENAMETOOLONG");
  for (int i = 0; i < 50; i++) folder_.link("root/l" + std::to_string(i), "l" + std::to_string(i + 1));
  folder_.write("root/l50", "end");
  EXPECT_EQ(resolve(folder_ / "root", "l0"), "ELOOP");
  EXPECT_EQ(resolve(folder_ / "root", "l20"), "end");
}

TEST_P(Contained, WalkLeaksNoDescriptors) {
  folder_.write("root/sub/deep/b", "b");
  folder_.link("root/sub/escape", "../../..");
  int before = dup(0);
  close(before);
  for (int i = 0; i < 10; i++) resolve(folder_ / "root", i % 2 ? "sub/escape" : "sub/deep/b");
  int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

INSTANTIATE_TEST_SUITE_P(Ways, Contained, testing::Values(ckpt_contained_open, ckpt_contained_walk),
                         [](const auto &way) { return way.index == 0 ? "openat2" : "walk"; });

TEST(ContainedName, IsRelativeWithoutDotDot) {
  for (const char *name : {"a", "a/b", "a..b", "..a", ".a/b", "./a"}) EXPECT_TRUE(ckpt_name_is_contained(name)) << name;
  for (const char *name : {"", "/", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b"})
    EXPECT_FALSE(ckpt_name_is_contained(name)) << name;
}

}  // namespace
