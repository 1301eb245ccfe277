// Faults: every allocation, read, write, sync, rename and open of a small copy fails in turn (tests/faults/fault.c).
// Each time the output is whole or not there, the old one is whole, and nothing is left behind.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/build.h"
#include "tests/libckpt/io/folder.h"

namespace {

class Fault : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (is_sanitized()) GTEST_SKIP() << "a sanitizer's allocator cannot be replaced";
    if (access((binary_dir() + "/bin/fault.so").c_str(), R_OK) != 0) GTEST_SKIP() << "fault.so is not built";
    for (const auto &[name, bytes] : files_) folder_.write("in/" + name, bytes);
    folder_.make("work");
  }

  // Runs the copy with a fault; true when it ended well. is_hit says whether the fault was reached.
  bool copy(const std::string &fault, bool *is_hit) {
    std::string command = "CKPT_FAULT=" + fault + " CKPT_FAULT_REPORT=" + (folder_ / "report") +
                          " LD_PRELOAD=" + binary_dir() + "/bin/fault.so " + binary_dir() + "/bin/fault_copy " +
                          (folder_ / "in") + " " + (folder_ / "work/out") + (is_replacing_ ? " 1" : " 0");
    for (const auto &file : files_) command += " " + file.first;
    int status = system((command + " 2> " + (folder_ / "message")).c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << fault << ": " << folder_.read("message");
    *is_hit = folder_.read("report") == "hit\n";
    return status == 0;
  }

  void prepare() {
    std::filesystem::remove_all(folder_ / "work/out");
    if (is_replacing_) folder_.write("work/out/a", "old");
  }

  Names names_in_work() {
    Names names;
    for (const auto &entry : std::filesystem::directory_iterator(folder_ / "work"))
      names.push_back(entry.path().filename());
    return names;
  }

  // What a run that failed or not may leave.
  void expect_whole_or_untouched(bool is_done, const std::string &fault) {
    bool is_new = std::filesystem::exists(folder_ / "work/out/sub/b");
    EXPECT_TRUE(is_new || !is_done) << fault;
    if (is_new) {
      for (const auto &[name, bytes] : files_) EXPECT_EQ(folder_.read("work/out/" + name), bytes) << fault;
    } else if (is_replacing_) {
      EXPECT_EQ(folder_.read("work/out/a"), "old") << fault;
    }
    EXPECT_EQ(names_in_work(), is_new || is_replacing_ ? Names{"out"} : Names{}) << fault;
    EXPECT_EQ(folder_.read("message").empty(), is_done) << fault << ": says why";
  }

  Folder folder_;
  bool is_replacing_ = GetParam();
  std::vector<std::pair<std::string, std::string>> files_ = {
      {"a", std::string(2500, 'a')}, {"sub/b", std::string(1500, 'b')}, {"config.json", "{}"}};
};

TEST_P(Fault, EveryCallFailsInTurn) {
  for (const char *kind : {"alloc", "read", "write", "fsync", "rename", "open", "fallocate"}) {
    bool is_hit = true;
    int n = 1, n_failed = 0;
    for (; is_hit && n < 500; n++) {
      std::string fault = std::string(kind) + ":" + std::to_string(n);
      prepare();
      bool is_done = copy(fault, &is_hit);
      expect_whole_or_untouched(is_done, fault);
      n_failed += !is_done;
      EXPECT_TRUE(is_hit || is_done) << fault;
      if (HasFailure()) return;
    }
    EXPECT_FALSE(is_hit) << kind << " never ended";
    EXPECT_GT(n_failed, 0) << kind;
    printf("%s: %d calls, %d failures\n", kind, n - 2, n_failed);
  }
}

TEST_P(Fault, ShortTransfersAndInterruptionsAreNotNoticed) {
  bool is_hit;
  prepare();
  EXPECT_TRUE(copy("short:1", &is_hit)) << folder_.read("message");
  EXPECT_TRUE(is_hit);
  expect_whole_or_untouched(true, "short");
}

TEST_P(Fault, OldKernelsAndFileSystems) {
  for (const char *fault : {"norename2:1", "noopenat2:1"}) {
    bool is_hit;
    prepare();
    EXPECT_TRUE(copy(fault, &is_hit)) << folder_.read("message");
    EXPECT_TRUE(is_hit) << fault;
    expect_whole_or_untouched(true, fault);
  }
}

INSTANTIATE_TEST_SUITE_P(Outputs, Fault, testing::Bool(),
                         [](const auto &output) { return output.param ? "replaced" : "new"; });

}  // namespace
