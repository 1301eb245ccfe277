// The built command as a user meets it: scripts with their expected output, and what needs an odd stdout.
//
// tests/tools/cases/NAME.sh runs under sh in an empty folder, with `ckpt` on the PATH and $DATA naming tests/data; its
// stdout, stderr and exit status must be NAME.stdout, NAME.stderr and NAME.exit (no file: empty, and 0). After a wanted
// change, `CKPT_WRITE_CASES=1 build/.../test_tools --gtest_filter='*Cases*'` writes these files anew: read the diff.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <jansson.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/build.h"
#include "tests/libckpt/io/folder.h"

namespace {

std::string ReadFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Result {
  std::string out, err;
  int exit;
};

// Runs sh with a script file or `-c` text, in folder/work.
Result RunShell(const Folder &folder, const std::vector<std::string> &arguments) {
  std::string base = folder.path(), work = base + "/work", out = base + "/out", err = base + "/err";
  mkdir(work.c_str(), 0700);
  pid_t pid = fork();
  if (pid == 0) {
    std::string path = binary_dir() + "/bin:" + binary_dir() + "/tests/cases:" + getenv("PATH");
    setenv("PATH", path.c_str(), 1);
    setenv("DATA", CKPT_TESTS_DIR "/data", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("HF_HUB_CACHE", work.c_str(), 1);
    std::vector<char *> argv = {const_cast<char *>("sh")};
    for (const auto &argument : arguments) argv.push_back(const_cast<char *>(argument.c_str()));
    argv.push_back(nullptr);
    bool ok = chdir(work.c_str()) == 0 && freopen("/dev/null", "r", stdin) && freopen(out.c_str(), "w", stdout) &&
              freopen(err.c_str(), "w", stderr);
    if (ok) execv("/bin/sh", argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {ReadFile(out), ReadFile(err), WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

Result Shell(const std::string &script) {
  Folder folder;
  return RunShell(folder, {"-c", script});
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  DIR *folder = opendir(CKPT_TESTS_DIR "/tools/cases");
  for (struct dirent *entry; folder != nullptr && (entry = readdir(folder)) != nullptr;) {
    std::string name = entry->d_name;
    if (name.size() > 3 && name.substr(name.size() - 3) == ".sh") names.push_back(name.substr(0, name.size() - 3));
  }
  if (folder != nullptr) closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

class Cases : public testing::TestWithParam<std::string> {};

void Compare(const std::string &path, const std::string &actual, const std::string &if_absent) {
  struct stat status;
  if (getenv("CKPT_WRITE_CASES") != nullptr) {
    if (actual == if_absent) {
      unlink(path.c_str());
    } else {
      std::ofstream(path, std::ios::binary) << actual;
    }
    return;
  }
  EXPECT_EQ(actual, stat(path.c_str(), &status) == 0 ? ReadFile(path) : if_absent) << path;
}

TEST_P(Cases, GiveWhatTheyGave) {
  if (is_sanitized() && std::string(GetParam()) == "quantize_presets")
    GTEST_SKIP() << "hundreds of files: sanitizers see the same kernels in test_kernels, and presets in quantize";
  Folder folder;
  std::string base = std::string(CKPT_TESTS_DIR "/tools/cases/") + GetParam();
  Result result = RunShell(folder, {base + ".sh"});
  EXPECT_EQ((result.out + result.err).find(CKPT_TESTS_DIR), std::string::npos) << "holds where the tree is: " << base;
  Compare(base + ".stdout", result.out, "");
  Compare(base + ".stderr", result.err, "");
  Compare(base + ".exit", std::to_string(result.exit) + "\n", "0\n");
}

INSTANTIATE_TEST_SUITE_P(Tools, Cases, testing::ValuesIn(CaseNames()), [](const auto &one) {
  std::string name = one.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// ---- the process ----------------------------------------------------------------------------------------------

TEST(Process, AFullDiskIsAnError) {
  for (const char *what : {"--version", "help convert", "help --completion bash"}) {
    Result result = Shell(std::string("ckpt ") + what + " > /dev/full");
    EXPECT_EQ(result.exit, 1) << what;
    EXPECT_EQ(result.err.find("ckpt: stdout: cannot write the result: "), 0u) << what << result.err;
  }
}

TEST(Process, AReaderThatGoesAwayIsNone) {
  Result result = Shell("{ sleep 0.2; ckpt help --completion bash; echo $? >&2; } | true");
  EXPECT_EQ(result.err, "141\n");
}

TEST(Process, AClosedStdoutIsNeverAnotherFile) {
  Result result = Shell("ckpt --version >&-");
  EXPECT_EQ(result.exit, 1);
  EXPECT_EQ(result.err,
            "ckpt: stdout: is closed, and results go there; nothing was done (redirect it, at least to /dev/null)\n");
}

// ---- what comes from the tables -----------------------------------------------------------------------------------

TEST(Generated, MarkdownIsThePageInDocs) {
  std::string path = CKPT_TESTS_DIR "/../docs/cli.md", page = Shell("ckpt help --markdown").out;
  if (getenv("CKPT_WRITE_CASES") != nullptr) std::ofstream(path, std::ios::binary) << page;
  EXPECT_EQ(page, ReadFile(path)) << "CKPT_WRITE_CASES=1 writes it anew";
}

TEST(Generated, ManPagesAreCleanTroff) {
  if (Shell("command -v groff").exit != 0) GTEST_SKIP() << "no groff";
  Result result = Shell(
      "for verb in '' $(ckpt help --verbs); do ckpt help --man $verb | groff -man -Tutf8 -ww >page || exit 1;"
      " test -s page || exit 1; done");
  EXPECT_EQ(result.exit, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Generated, EveryVerbHasHelpOfItsOptions) {
  std::istringstream verbs(Shell("ckpt help --verbs").out);
  for (std::string verb; std::getline(verbs, verb);) {
    Result help = Shell("ckpt help " + verb), option = Shell("ckpt " + verb + " --help");
    EXPECT_EQ(help.exit, 0);
    EXPECT_EQ(help.out, option.out);
    EXPECT_EQ(help.out.find("ckpt " + verb + ": "), 0u);
    EXPECT_EQ(help.err, "");
  }
}

// Completes the last word of a line in a real shell; the reply sorted, one a line.
std::string Complete(const std::string &words, const std::string &last) {
  return Shell("cat > script <<'END'\n. ./ckpt.bash; COMP_WORDS=(" + words + " " + last +
               "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _ckpt; printf '%s\\n' \"${COMPREPLY[@]}\" | sort\nEND\n"
               "ckpt help --completion bash > ckpt.bash && bash -u script")
      .out;
}

TEST(Generated, BashCompletes) {
  if (Shell("command -v bash").exit != 0) GTEST_SKIP() << "no bash";
  EXPECT_EQ(Complete("ckpt", "in"), "inspect\n");
  EXPECT_EQ(Complete("ckpt help", "sp"), "split\n");
  EXPECT_EQ(Complete("ckpt ls x", "--ma"), "--match\n");
  EXPECT_EQ(Complete("ckpt ls --include", "''"), "all\nmodel\noptimizer\n");
  EXPECT_EQ(Complete("ckpt ls --include =", "o"), "optimizer\n");
  EXPECT_EQ(Complete("ckpt hash --cast", "bf"), "bf16\n");
  EXPECT_EQ(Complete("ckpt convert x --dtype", "i"), "\n");  // no cast gives one
  EXPECT_EQ(Complete("ckpt convert x --plan =", "r"), "rows\n");
  EXPECT_EQ(Complete("ckpt convert x --plan", "r"), "\n");
  EXPECT_EQ(Complete("ckpt convert x --adapt", ""), "--adapter\n");
  EXPECT_EQ(Complete("ckpt quantize x --type", "Q4_K_"), "Q4_K_M\nQ4_K_S\n");
  EXPECT_EQ(Complete("ckpt quantize x -t", "Q8"), "Q8_0\n");
  EXPECT_EQ(Complete("ckpt quantize x --output-tensor-type", "Q6"), "Q6_K\n");
  EXPECT_EQ(Complete("ckpt convert x -o", "y"), "\n");  // left to file names
}

// Groups of verbs, the formats of the registry, three examples.
TEST(Generated, HelpHasVerbsInGroupsFormatsAndExamples) {
  const std::string help = Shell("ckpt help").out;
  size_t at = 0;
  for (const char *part : {"\nLook:\n  ls ", "\nCheck:\n  hash ", "\nWrite:\n  convert ", "\nRun a model:\n",
                           "\nTraining:\n  ckpt-train ", "\nFormats: ", "HF_HUB_CACHE", "\nExamples:\n"}) {
    size_t next = help.find(part, at);
    ASSERT_NE(next, std::string::npos) << part;
    at = next;
  }
  EXPECT_NE(Shell("ckpt help --man").out.find("HF_HUB_CACHE"), std::string::npos);
}

class Completion : public ::testing::TestWithParam<const char *> {};

TEST_P(Completion, IsAScriptOfItsShell) {
  const std::string shell = GetParam();
  if (Shell("command -v " + shell).exit != 0) GTEST_SKIP() << "there is no " << shell;
  Result result = Shell("ckpt help --completion " + shell + " > script && " + shell + " -n script");
  EXPECT_EQ(result.exit, 0) << result.err;
}

INSTANTIATE_TEST_SUITE_P(Generated, Completion, ::testing::Values("bash", "zsh", "fish"),
                         [](const auto &shell) { return std::string(shell.param); });

TEST(Json, UsageErrorsAreJsonToo) {
  for (const char *line : {"zap --json", "ls --json", "ls --json --zap", "merge a --json"}) {
    Result result = Shell(std::string("ckpt ") + line);
    EXPECT_EQ(result.exit, 2) << line;
    json_t *root = json_loads(result.out.c_str(), 0, nullptr);
    ASSERT_NE(root, nullptr) << result.out;
    EXPECT_STREQ(json_string_value(json_object_get(root, "status")), "error");
    json_t *error = json_object_get(root, "error");
    EXPECT_TRUE(json_is_null(json_object_get(error, "file")));
    EXPECT_EQ("ckpt: " + std::string(json_string_value(json_object_get(error, "message"))) + "\n", result.err);
    json_decref(root);
  }
}

}  // namespace
