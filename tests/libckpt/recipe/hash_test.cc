// The digest does not depend on threads or memory, and never runs out of buffers half way: as planned, nothing
// adjusted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "libckpt/ckpt.h"
#include "tests/libckpt/io/folder.h"

namespace {

// A sparse safetensors file of one f32 tensor.
class Hash : public testing::Test {
 protected:
  void SetUp() override {
    int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    const uint64_t n = uint64_t{3} * 5250007 * 4;
    std::string header = R"({"w":{"dtype":"F32","shape":[5250007,3],"data_offsets":[0,)" + std::to_string(n) + "]}}";
    uint64_t n_header = header.size();
    ASSERT_EQ(write(fd, &n_header, 8), 8);
    ASSERT_EQ(write(fd, header.data(), header.size()), static_cast<ssize_t>(header.size()));
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(8 + header.size() + n)), 0);
    const float values[] = {1, -2, 3.5F, 0.25F};
    for (uint64_t at = 0; at + 16 < n; at += 499996) {
      ASSERT_EQ(pwrite(fd, values, 16, static_cast<off_t>(8 + header.size() + at)), 16);
    }
    close(fd);
    ASSERT_EQ(ckpt_open(&index_, path_.c_str(), nullptr, &err_), CKPT_OK) << err_.message;
  }
  void TearDown() override { ckpt_index_free(index_); }

  std::string Digest(ckpt_dtype cast, uint32_t n_threads, uint64_t memory) {
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    run.n_threads = n_threads;
    run.memory = memory;
    ckpt_hash_options options = {};
    options.struct_size = sizeof options;
    options.cast = cast;
    options.run = &run;
    ckpt_digest digest;
    char text[80];
    err_ = {};
    if (ckpt_hash(index_, &options, &digest, &err_) != CKPT_OK) return err_.message;
    return ckpt_digest_text(&digest, text);
  }

  Folder folder_;
  std::string path_ = folder_ / "w.safetensors";
  ckpt_index *index_ = nullptr;
  ckpt_error err_ = {};
};

TEST_F(Hash, ManyThreadsAndLittleMemory) {
  for (ckpt_dtype cast : {CKPT_F8_E4M3, CKPT_F64}) {
    std::string one = Digest(cast, 1, 0);
    ASSERT_EQ(one.substr(0, 6), "ckpt1:");
    for (uint32_t n_threads : {3U, 16U, 28U, 64U})
      EXPECT_EQ(Digest(cast, n_threads, 0), one) << n_threads << " threads";
    for (uint64_t mib : {6, 10, 13, 15, 18}) EXPECT_EQ(Digest(cast, 4, mib << 20), one) << mib << " MiB";
  }
  EXPECT_EQ(Digest(CKPT_DTYPE_NONE, UINT32_MAX, 0), Digest(CKPT_DTYPE_NONE, 1, 0))
      << "any number of threads is planned";
}

}  // namespace
