// folder.h - a temporary folder and the files in it, for every test that needs one.
#ifndef TESTS_BYTES_FOLDER_H
#define TESTS_BYTES_FOLDER_H

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/base/error.h"
}

// Where temporary folders are: $TMPDIR, else in memory where there is room. A disk makes a test of many small files
// wait for each of them to be synced.
inline std::filesystem::path temporary_base() {
  const char *const memory = "/dev/shm";
  std::error_code failed;
  const auto space = std::filesystem::space(memory, failed);
  const bool is_room = !failed && space.available >= (uintmax_t{1} << 30) && access(memory, W_OK) == 0;
  return getenv("TMPDIR") == nullptr && is_room ? memory : std::filesystem::temp_directory_path();
}

// Removed with everything in it at the end of the test.
class Folder {
 public:
  explicit Folder(const std::filesystem::path &base = temporary_base()) {
    std::string path = (base / "ckpt-test-XXXXXX").string();
    const char *made = mkdtemp(path.data());
    EXPECT_NE(made, nullptr) << path;
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;

  std::string operator/(const std::string &name) const { return path_ + "/" + name; }
  const std::string &path() const { return path_; }

  // Writes a file, making the folders above it.
  std::string write(const std::string &name, const std::string &bytes) const {
    std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  void make(const std::string &name) const { std::filesystem::create_directories(*this / name); }
  void link(const std::string &name, const std::string &target) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::filesystem::create_symlink(target, *this / name);
  }
  std::string read(const std::string &name) const {
    std::ifstream file(*this / name, std::ios::binary);
    if (!file) return "(cannot be opened)";
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  // Everything below it, sorted, folders with a slash at the end.
  std::vector<std::string> tree() const {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path_)) {
      std::string name = std::filesystem::relative(entry.path().parent_path(), path_) / entry.path().filename();
      if (name.rfind("./", 0) == 0) name = name.substr(2);
      names.push_back(name + (entry.is_directory() && !entry.is_symlink() ? "/" : ""));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

// An error and its text.
struct Error {
  ckpt_error err = {CKPT_OK, "", "", "", "", "", ""};
  operator ckpt_error *() { return &err; }
  std::string text() const {
    char out[2048];
    return ckpt_error_text(&err, out, sizeof out);
  }
};

using Names = std::vector<std::string>;

#endif
