// Runs of the writing verbs that end early: signals, a kill, a full disk. What is left behind is looked at.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/build.h"
#include "tests/libckpt/io/folder.h"

namespace {

namespace fs = std::filesystem;

class Writing : public testing::Test {
 protected:
  // A safetensors file of one F32 tensor of zeros, without blocks on the disk.
  void MakeSparse(const std::string &name, uint64_t n_bytes) {
    std::string header = R"({"w":{"dtype":"F32","shape":[)" + std::to_string(n_bytes / 4) + R"(],"data_offsets":[0,)" +
                         std::to_string(n_bytes) + "]}}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    uint64_t n_header = header.size();
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<char *>(&n_header), 8);
    file << header;
    file.close();
    fs::resize_file(folder_ / name, 8 + n_header + n_bytes);
  }

  // Starts a command in the folder, its output in the file `log`.
  pid_t Start(std::vector<std::string> words) {
    pid_t pid = fork();
    if (pid == 0) {
      std::vector<char *> argv;
      for (auto &word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
      std::string path = binary_dir() + "/bin:" + getenv("PATH");
      setenv("PATH", path.c_str(), 1);
      int log = chdir(folder_.c_str()) == 0 ? open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
      dup2(log, 1);
      dup2(log, 2);
      if (log >= 0) execvp(argv[0], argv.data());
      _exit(127);
    }
    return pid;
  }

  static int Wait(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string Log() {
    std::ifstream file(folder_ / "log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::vector<std::string> Entries() {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  // Runs until temporary files of the last output are there, then sends the signal; again where the run was faster.
  int Interrupt(int signal) {
    int status = InterruptOnce(signal);
    for (int n_more = 10; status == 0 && n_more > 0; n_more--) {
      fs::remove(folder_ / "out.safetensors");
      fs::remove_all(folder_ / "folder");
      status = InterruptOnce(signal);
    }
    return status;
  }

  int InterruptOnce(int signal) {
    pid_t pid = Start({"ckpt", "convert", "big.safetensors", "-o", "out.safetensors", "-o", "folder", "--receipt",
                       "folder/receipt.json"});
    auto is_staged = [this] {
      for (const auto &name : Entries())
        if (name.rfind(".folder.ckpt-tmp.", 0) == 0) return true;
      return false;
    };
    while (!is_staged() && waitpid(pid, nullptr, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(pid, signal);
    return Wait(pid);
  }

  Folder own_;
  fs::path folder_ = own_.path();
};

TEST_F(Writing, AnInterruptLeavesNothing) {
  MakeSparse("big.safetensors", 256 << 20);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(Interrupt(signal), 128 + signal);
    EXPECT_EQ(Log(), "ckpt: cancelled; nothing was written\n");
    EXPECT_EQ(Entries(), (std::vector<std::string>{"big.safetensors", "log"}));
  }
}

TEST_F(Writing, AKillLeavesOnlyTemporaryFilesAndCanBeRunAgain) {
  MakeSparse("big.safetensors", 256 << 20);
  EXPECT_EQ(Interrupt(SIGKILL), 128 + SIGKILL);
  size_t n_temporary = 0;
  for (const auto &name : Entries()) {
    bool is_temporary = name[0] == '.' && name.find(".ckpt-tmp.") != std::string::npos;
    n_temporary += is_temporary;
    EXPECT_TRUE(is_temporary || name == "big.safetensors" || name == "log") << name;
  }
  EXPECT_EQ(n_temporary, 2u);
  MakeSparse("small.safetensors", 1 << 20);
  EXPECT_EQ(Wait(Start({"ckpt", "convert", "small.safetensors", "-o", "out.safetensors", "-o", "folder", "--receipt",
                        "folder/receipt.json"})),
            0)
      << Log();
  EXPECT_TRUE(fs::exists(folder_ / "out.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "folder/receipt.json"));
}

TEST_F(Writing, AFullDiskIsSaidWithBothNumbersBeforeAnythingIsRead) {
  MakeSparse("in.safetensors", 1 << 20);
  fs::create_directory(folder_ / "small");
  const char *mount = "mount -t tmpfs -o size=64k none small";
  if (Wait(Start({"unshare", "-rm", "sh", "-c", mount})) != 0) GTEST_SKIP() << "no small file system can be mounted";
  const std::pair<std::string, std::string> cases[] = {{"small/x", "1052672"}, {"small/x.safetensors", "1052672"}};
  for (const auto &[output, n_bytes] : cases) {
    std::string script =
        std::string(mount) + " && ckpt convert in.safetensors -o " + output + "; echo exit $?; ls -A small";
    Wait(Start({"unshare", "-rm", "sh", "-c", script}));
    std::string expected = "ckpt: " + output + ": not enough space: " + n_bytes + " bytes needed, " +
                           "65536 available: No space left on device\nexit 1\n";
    EXPECT_EQ(Log(), expected);
  }
  Wait(Start({"unshare", "-rm", "sh", "-c",
              std::string(mount) + " && ckpt convert in.safetensors -o small/x.safetensors --plan; echo exit $?"}));
  EXPECT_NE(Log().find("ckpt: warning: small/x.safetensors: 1.0 MB to write, and 65.5 KB free there\n"),
            std::string::npos)
      << Log();
}

}  // namespace
