// Every bit of one small checkpoint of each format is flipped, and `verify` has to find it. Where it does not, one of
// two things must hold, else the test fails and names the bit. The report says that nothing proves these bytes (`not
// proven: bytes` of a format or file without checksums). Or nothing that any verb reads changed, and the byte stands in
// flips.tsv with the reason why it means nothing.
//
// The report of a format without checksums says so of all its bytes, headers too. So every flip that `verify` accepts
// is excused for safetensors, gguf, torch_legacy, dcp_safetensors, dcpv2, onnx and imatrix. These are tested for
// crashes alone, and for the report's words.
//
// A few hundred bits of each checkpoint are drawn from a fixed seed (CKPT_TEST_SEED changes it). With CKPT_TEST_FULL
// at most kMost are drawn, which is all but for imatrix, zero and universal, and a tenth of that under sanitizers.
// CKPT_FLIPS=FILE also writes what was found at each byte that is no problem.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/build.h"
#include "tests/libckpt/io/folder.h"

extern "C" {
#include "tools/report/report.h"
}

namespace {

namespace fs = std::filesystem;

struct Case {
  const char *name, *path;  // below tests/data
  size_t n_sampled;
  const char *before = "", *after = "";  // of a file: a text that is another first, as long
};

// The name alone: a listing of the tests is then the same every time.
void PrintTo(const Case &one, std::ostream *out) { *out << one.name; }

constexpr size_t kMost = 40000;

const Case kCases[] = {
    {"safetensors", "safetensors/names.safetensors", 400},
    {"gguf", "gguf/whole.gguf", 400, "general.architecture", "general.architecturx"},  // no model of any family
    {"torch", "torch/tensor.pt", 300},
    {"torch_deflated", "torch/deflated.pt", 300},
    {"torch_legacy", "torch/legacy4.pt", 200},
    {"dcp", "dcp/alone", 300},
    {"dcp_safetensors", "dcp/safetensors", 150},
    {"dcpv2", "dcpv2/safetensors", 150},
    {"onnx", "onnx/matmulnbits.onnx", 200},
    {"imatrix", "gguf/imatrix.gguf", 150},
    {"zero", "zero/fused-stage0-fp16", 200},
    {"universal", "universal/stage2-bf16", 60},
};

// What a verb prints on stdout, and its exit status.
struct Said {
  std::string out;
  int exit;
};

Said Say(std::vector<std::string> words) {
  std::vector<char *> argv;
  for (size_t i = 1; i < words.size(); i++) argv.push_back(words[i].data());
  ckpt_args *args = nullptr;
  ckpt_error err = {};
  const ckpt_verb *verb = ckpt_verb_find(words[0].c_str());
  EXPECT_EQ(ckpt_args_parse(&args, verb, static_cast<int>(argv.size()), argv.data(), &err), CKPT_OK) << err.message;
  const int out = memfd_create("stdout", MFD_CLOEXEC);
  const int kept[] = {dup(1), dup(2)};
  fflush(stdout);
  fflush(stderr);
  const int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(out, 1);
  dup2(none, 2);
  Said said = {"", verb->run(args)};
  fflush(stdout);
  fflush(stderr);
  dup2(kept[0], 1);
  dup2(kept[1], 2);
  close(kept[0]);
  close(kept[1]);
  close(none);
  said.out.resize(static_cast<size_t>(lseek(out, 0, SEEK_END)));
  EXPECT_EQ(pread(out, said.out.data(), said.out.size(), 0), static_cast<ssize_t>(said.out.size()));
  close(out);
  ckpt_args_free(args);
  return said;
}

// All that verbs read of a checkpoint: names, shapes, values, objects, metadata.
std::string Content(const std::string &path) {
  std::string content;
  content += Say({"hash", path, "--include", "all", "--tensors", "--names", "stored", "--quiet"}).out;
  content += Say({"ls", path, "--include", "all", "--json", "--quiet"}).out;
  content += Say({"inspect", path, "--json", "--quiet"}).out;
  return content;
}

// A byte range of a file that means nothing, for the bits of a mask.
struct Range {
  std::string file;
  size_t begin, end;
  unsigned mask;
};

std::vector<Range> Meaningless(const std::string &name) {
  std::vector<Range> ranges;
  std::ifstream in(CKPT_TESTS_DIR "/tools/flips.tsv");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string of, file;
    Range r = {};
    fields >> of >> file >> r.begin >> r.end >> std::hex >> r.mask;
    EXPECT_FALSE(fields.fail()) << line;
    r.file = file == "." ? "" : file;
    if (of == name) ranges.push_back(r);
  }
  return ranges;
}

bool IsMeaningless(const std::vector<Range> &ranges, const std::string &file, size_t at, unsigned bit) {
  for (const Range &r : ranges)
    if (r.file == file && at >= r.begin && at < r.end && (r.mask >> bit & 1) != 0) return true;
  return false;
}

struct Bit {
  std::string file;  // "": the checkpoint is one
  size_t at;
  unsigned bit;
};

std::vector<Bit> BitsOf(const std::string &path) {
  std::vector<std::pair<std::string, size_t>> files;
  if (!fs::is_directory(path)) files.push_back({"", fs::file_size(path)});
  if (fs::is_directory(path))
    for (const auto &entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file())
        files.push_back({fs::relative(entry.path(), path).string(), static_cast<size_t>(entry.file_size())});
  std::sort(files.begin(), files.end());
  std::vector<Bit> bits;
  for (const auto &file : files)
    for (size_t at = 0; at < file.second; at++)
      for (unsigned bit = 0; bit < 8; bit++) bits.push_back({file.first, at, bit});
  return bits;
}

void Flip(const std::string &path, size_t at, unsigned bit) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  uint8_t byte = 0;
  ASSERT_EQ(pread(fd, &byte, 1, static_cast<off_t>(at)), 1) << path;
  byte = static_cast<uint8_t>(byte ^ 1u << bit);
  ASSERT_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1);
  close(fd);
}

// Whether a report says so of its bytes: of all, or (any) of some file's; of what no verb reads of an ONNX model (not
// any), of the graph.
bool NamesUnproven(const std::string &report, bool any, bool has_graph) {
  json_t *root = json_loads(report.c_str(), JSON_DISABLE_EOF_CHECK, nullptr), *text;
  bool has = false;
  size_t i;
  json_array_foreach(json_object_get(root, "unproven"), i, text) {
    const std::string line = json_string_value(text);
    has = has || line.find(has_graph && !any ? "graph: " : "bytes: no checksum in this format") == 0 ||
          (any && line.find(": no checksum of ") != line.npos);
  }
  json_decref(root);
  return has;
}

// What a run of all bits has found once is looked at every time.
const struct {
  const char *name;
  Bit bit;
} kFoundOnce[] = {{"dcp", {".metadata", 448, 0}}};

class Flips : public testing::TestWithParam<Case> {};

TEST_P(Flips, AreFoundOrMeanNothing) {
  const Case &c = GetParam();
  Folder folder;
  const std::string path = folder / fs::path(c.path).filename().string();
  fs::copy(CKPT_TESTS_DIR "/data/" + std::string(c.path), path, fs::copy_options::recursive);
  for (const auto &entry : fs::recursive_directory_iterator(folder.path()))
    fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
  if (c.before[0] != '\0') {
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    std::string text = bytes.str();
    ASSERT_NE(text.find(c.before), std::string::npos);
    text.replace(text.find(c.before), strlen(c.after), c.after);
    std::ofstream(path, std::ios::binary) << text;
  }
  const Said whole = Say({"verify", path, "--json"});
  ASSERT_EQ(whole.exit, 0) << whole.out;
  const std::string content = Content(path);
  const std::vector<Range> meaningless = Meaningless(c.name);
  std::vector<Bit> bits = BitsOf(path);
  const size_t most = getenv("CKPT_TEST_FULL") == nullptr ? c.n_sampled : is_sanitized() ? kMost / 10 : kMost;
  if (bits.size() > most) {
    const char *seed = getenv("CKPT_TEST_SEED");
    std::mt19937_64 random(seed == nullptr ? 24 : strtoull(seed, nullptr, 10));
    std::shuffle(bits.begin(), bits.end(), random);
    bits.resize(most);
    for (const auto &found : kFoundOnce)
      if (strcmp(found.name, c.name) == 0) bits.push_back(found.bit);
  }
  std::ofstream log;
  if (getenv("CKPT_FLIPS") != nullptr) log.open(getenv("CKPT_FLIPS"), std::ios::app);
  size_t n_missed = 0;
  for (const Bit &bit : bits) {
    const std::string file = bit.file.empty() ? path : path + "/" + bit.file;
    Flip(file, bit.at, bit.bit);
    const Said said = Say({"verify", path, "--json"});
    if (said.exit == 0) {
      const bool is_same = Content(path) == content, has_graph = strcmp(c.name, "onnx") == 0,
                 is_said = NamesUnproven(said.out, !is_same, has_graph);
      const bool is_listed = is_same && IsMeaningless(meaningless, bit.file, bit.at, bit.bit);
      const char *what = is_listed ? "listed" : is_said ? "not proven" : is_same ? "nothing changed" : "CHANGED";
      log << c.name << '\t' << (bit.file.empty() ? "." : bit.file) << '\t' << bit.at << '\t' << bit.bit << '\t' << what
          << '\n';
      if (!is_listed && !is_said && n_missed++ < 20)
        ADD_FAILURE() << (bit.file.empty() ? c.path : bit.file) << ": byte " << bit.at << ", bit " << bit.bit
                      << " is no problem to verify (" << what << ")";
    }
    Flip(file, bit.at, bit.bit);
  }
  EXPECT_EQ(n_missed, 0u) << "of " << bits.size() << " bits";
  EXPECT_EQ(Say({"verify", path, "--json"}).out, whole.out);
}

INSTANTIATE_TEST_SUITE_P(Formats, Flips, testing::ValuesIn(kCases),
                         [](const auto &one) { return std::string(one.param.name); });

}  // namespace
