// Every format that can be written, from every kind of checkpoint that can be read: walks ckpt_formats, so that a new
// row is tested as soon as it stands there. What is written has the digest that was printed and that its reader finds,
// is the same bytes when it is written from itself once more, and never opens when it was cut off.
#include <algorithm>
#include <fstream>
#include <map>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/codec/side_files/side_files.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/";

std::string text_of(const ckpt_digest &digest) {
  char text[80];
  return ckpt_digest_text(&digest, text);
}

// The digest that `ckpt hash` gives, of what is included.
std::string hash_of(const std::string &path, bool stored_names = false, const char *include = nullptr) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err, stored_names);
  if (index == nullptr) return formats_testing::text_of(err);
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.include = include;
  ckpt_digest digest;
  return ckpt_hash(index.get(), &options, &digest, &err) == CKPT_OK ? text_of(digest) : formats_testing::text_of(err);
}

// Converts and returns the digest that was printed, or the error.
std::string convert(const std::string &input, const std::string &output, const ckpt_format *format,
                    ckpt_status *status = nullptr, bool stored_names = false) {
  ckpt_convert_options options = {};
  ckpt_digest digest;
  ckpt_error err = {};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  options.to = format->name;
  options.world = 3;
  options.shard_size = format->caps.is_folder && format->caps.cut_by_size ? 100000 : 0;
  options.digest = &digest;
  options.stored_names = stored_names;
  ckpt_status own;
  if (status == nullptr) status = &own;
  *status = ckpt_convert(&options, &err);
  const bool is_of_no_base = strstr(err.advice, "%like=BASE") != nullptr;
  if (strstr(err.advice, "%names=stored") != nullptr || is_of_no_base) { /* a model of no family becomes GGUF under its
                                                                              own names, and so does an adapter */
    EXPECT_EQ(*status, is_of_no_base ? CKPT_ENOTFOUND : CKPT_EUNSUPPORTED);
    err = {};
    options.stored_names = true;
    *status = ckpt_convert(&options, &err);
  }
  return *status == CKPT_OK ? text_of(digest) : formats_testing::text_of(err);
}

// A file's bytes, or those of all files of a folder with their names.
Files bytes_of(const std::string &path) {
  Files files;
  if (!std::filesystem::is_directory(path)) return {{"", slurp(path)}};
  for (const auto &entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files[std::filesystem::relative(entry.path(), path)] = slurp(entry.path());
  return files;
}

// All checkpoints that stand committed below tests/data, but a program.
std::vector<std::string> goldens() {
  std::vector<std::string> paths = {"llama-tiny", "gpt2-tiny"};
  for (const char *folder : {"dcp", "safetensors", "torch", "trainer", "universal", "zero"})
    for (const auto &entry : std::filesystem::directory_iterator(kData + folder)) {
      std::string name = entry.path().filename();
      const std::string of = folder;
      bool is_other = of == "safetensors" || of == "torch"
                          ? entry.path().extension() != (of == "torch" ? ".pt" : ".safetensors")
                          : !entry.is_directory();
      if (!is_other && name != "script.pt") paths.push_back(std::string(folder) + "/" + name);
    }
  std::sort(paths.begin(), paths.end());
  return paths;
}

using Cell = std::tuple<const ckpt_format *, std::string>;

// Whether the format has to refuse a tensor of the input by name: it has no such dtype, rank or, as GGUF, length of
// name.
bool is_refused(const ckpt_format *format, const std::string &input) {
  ckpt_error err = {};
  IndexPointer index = open(kData + input, &err, false);
  EXPECT_NE(index, nullptr) << formats_testing::text_of(err);
  for (uint32_t i = 0; index != nullptr && i < index->n_unread; i++) /* named, and cannot be read */
    if (!index->unread[i].is_kept && (format->caps.training_state || index->unread[i].role <= CKPT_ROLE_BUFFER))
      return true;
  const bool is_gguf = std::string(format->name) == "gguf";
  for (uint32_t i = 0; index != nullptr && i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    bool takes_part = format->caps.training_state || tensor->role <= CKPT_ROLE_BUFFER;
    bool fits = (format->caps.dtypes >> tensor->dtype & 1) != 0 && tensor->rank <= format->caps.max_rank &&
                (!is_gguf || strlen(tensor->name) <= 63);
    if (takes_part && !fits) return true;
  }
  return false;
}

// Whether states of an optimizer are there and not read: numbered ones, where names stay as they are stored.
bool has_unread_states(const std::string &input, bool stored_names) {
  ckpt_error err = {};
  IndexPointer index = open(kData + input, &err, stored_names);
  for (uint32_t i = 0; index != nullptr && i < index->n_notes; i++)
    if (index->notes[i].kind == CKPT_NOTE_STATES_UNREAD) return true;
  return false;
}

// Whether a run goes on from it: one of DeepSpeed, all of which is read by name.
bool is_run(const std::string &input) {
  ckpt_error err = {};
  IndexPointer index = open(kData + input, &err, false);
  for (uint32_t i = 0; index != nullptr && i < index->n_notes; i++)
    if (ckpt_note_is_state(&index->notes[i])) return false;
  return input.rfind("zero/", 0) == 0 || input.rfind("universal/", 0) == 0;
}

// Cells of refused.tsv: format, input, and the names under which it is refused ("canonical", "stored" or "both"). Of
// what trains a model, not all that is golden here is one, and zero and universal refuse what they cannot hold;
// zero/write_test.cc has the reasons.
const std::map<std::pair<std::string, std::string>, std::string> &refused_cells() {
  static const auto cells = [] {
    std::map<std::pair<std::string, std::string>, std::string> made;
    std::ifstream in(std::string(CKPT_TESTS_DIR) + "/formats/refused.tsv");
    for (std::string format, input, names; in >> format >> input >> names;) made[{format, input}] = names;
    return made;
  }();
  return cells;
}

// What has to become of writing an input.
ckpt_status wanted(const ckpt_format *format, const std::string &input, bool stored_names) {
  const auto cell = refused_cells().find({format->name, input});
  const bool is_listed = cell != refused_cells().end() &&
                         (cell->second == "both" || cell->second == (stored_names ? "stored" : "canonical"));
  const bool has_no_graph = format->caps.graph; /* none of these inputs is an ONNX model */
  const bool loses_states =
      format->caps.training_state && !format->caps.side_files && has_unread_states(input, stored_names);
  return is_listed || has_no_graph || loses_states || is_refused(format, input) ? CKPT_EUNSUPPORTED : CKPT_OK;
}

// A run of DeepSpeed is never refused, and rows name what there is.
TEST(RefusedCells, AreCells) {
  EXPECT_FALSE(refused_cells().empty());
  for (const auto &[cell, names] : refused_cells()) {
    const std::string what = cell.first + " " + cell.second;
    EXPECT_TRUE(std::filesystem::exists(kData + cell.second)) << what;
    EXPECT_TRUE(names == "both" || names == "canonical" || names == "stored") << what;
    const ckpt_format *const *format = ckpt_formats;
    while (*format != nullptr && cell.first != (*format)->name) format++;
    ASSERT_NE(*format, nullptr) << what;
    EXPECT_TRUE((*format)->caps.masters && !is_run(cell.second)) << what;
  }
}

class Matrix : public testing::TestWithParam<Cell> {
 protected:
  // Writes the cell's output and returns the digest that was printed; none for a cell that is refused, as it has to be.
  std::string written(const std::string &output) {
    const auto &[format, input] = GetParam();
    ckpt_status status;
    std::string printed = convert(kData + input, output, format, &status);
    EXPECT_EQ(status, wanted(format, input, false)) << printed;
    return status == CKPT_OK ? printed : "";
  }
};

// What an output's name ends in: of a format of one file, or a folder of its shards, both.
std::vector<std::string> endings_of(const ckpt_format *format) {
  return format->caps.shards ? std::vector<std::string>{"", "/"} : std::vector<std::string>{""};
}

TEST_P(Matrix, WhatIsWrittenIsWhatIsRead) {
  for (const std::string &ending : endings_of(std::get<0>(GetParam()))) {
    Folder folder;
    const std::string once = (folder / "once") + ending, twice = (folder / "twice") + ending, printed = written(once);
    if (printed.empty()) return;
    EXPECT_EQ(printed.rfind("ckpt1:", 0), 0U) << printed;
    EXPECT_EQ(hash_of(once), printed);
    EXPECT_EQ(std::filesystem::is_directory(once), ending == "/" || std::get<0>(GetParam())->caps.is_folder);
    EXPECT_EQ(convert(once, twice, std::get<0>(GetParam())), printed);
    Files first = bytes_of(once), second = bytes_of(twice);
    ASSERT_EQ(first.size(), second.size());
    for (const auto &[name, bytes] : first) EXPECT_TRUE(second[name] == bytes) << name;
  }
}

std::vector<const ckpt_format *> writable() {
  std::vector<const ckpt_format *> formats;
  for (const ckpt_format *const *format = ckpt_formats; *format != nullptr; format++)
    if ((*format)->caps.can_write) formats.push_back(*format);
  return formats;
}

// The digest that is printed is the one that `ckpt hash` finds, also where names stay as they are stored.
void expect_printed(const ckpt_format *format, const std::string &input) {
  Folder folder;
  for (bool stored_names : {false, true}) {
    const std::string out = folder / (stored_names ? "stored" : "canonical");
    ckpt_status status;
    std::string printed = convert(kData + input, out, format, &status, stored_names);
    ASSERT_EQ(status, wanted(format, input, stored_names)) << printed;
    if (status != CKPT_OK) continue;
    EXPECT_EQ(hash_of(out), printed) << stored_names;
    if (!format->caps.objects || !format->caps.training_state) continue; /* else all is carried, under its names */
    const bool is_tied = input == "gpt2-tiny" || input == "trainer/gpt2" || input == "trainer/llama-biases";
    bool is_known = input.rfind("torch/dtensor", 0) == 0 || (is_tied && !format->caps.side_files);
    is_known = is_known || has_unread_states(input, stored_names); /* which no digest is of */
    if (!is_known && !format->caps.masters) {                      /* else masters may be more: zero_write_test.cc */
      EXPECT_EQ(hash_of(out, stored_names, "all"), hash_of(kData + input, stored_names, "all")) << stored_names;
    }
  }
}

class Printed : public testing::TestWithParam<std::string> {};

TEST_P(Printed, IsTheDigestOfEveryOutput) {
  for (const ckpt_format *format : writable()) {
    SCOPED_TRACE(format->name);
    expect_printed(format, GetParam());
  }
}

TEST_P(Matrix, WhatIsCutOffIsNotRead) {
  Folder folder;
  const std::string whole = (folder / "whole") + endings_of(std::get<0>(GetParam())).back(), cut = folder / "cut";
  if (written(whole).empty()) return;
  const Files files = bytes_of(whole);
  const size_t n_each = files.size() / 16 + 1; /* of the many files of a parameter each a few, at fewer places */
  size_t number = 0;
  for (const auto &[name, bytes] : files) {
    if (number++ % n_each != 0) continue;
    if (name.find(".json") != std::string::npos || ckpt_side_file_is_training(name.c_str()))
      continue; /* side files have no form of ours */
    for (size_t part = 0; part < 40; part += n_each == 1 ? 1 : 13) {
      std::filesystem::remove_all(cut);
      std::filesystem::copy(whole, cut, std::filesystem::copy_options::recursive);
      std::filesystem::resize_file(name.empty() ? cut : cut + "/" + name, bytes.size() * part / 40);
      ckpt_error err = {};
      IndexPointer index = open(cut, &err, false);
      bool has_problem = false;
      for (uint32_t i = 0; index != nullptr && i < index->n_notes; i++) has_problem |= index->notes[i].is_problem;
      EXPECT_TRUE(index == nullptr || has_problem) << name << " cut to " << bytes.size() * part / 40;
    }
  }
}

std::string identifier(std::string name) {
  for (char &c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

std::string golden_name(const testing::TestParamInfo<std::string> &info) { return identifier(info.param); }

std::string name_of(const testing::TestParamInfo<Cell> &info) {
  return identifier(std::string(std::get<0>(info.param)->name) + "_" + std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    All, Matrix,
    testing::Combine(testing::ValuesIn(writable()),
                     testing::Values("llama-tiny", "gpt2-tiny", "torch/training.pt", "torch/dtypes.pt",
                                     "torch/sparse.pt", "torch/module.pt", "dcp/fsdp4", "dcp/mesh", "dcp/safetensors",
                                     "dcp/objects", "dcp/accelerate", "dcpv2/fsdp", "dcpv2/mesh", "zero/stage3-bf16",
                                     "gguf/every-type.gguf", "gguf/tiny-llama-f16.gguf", "gguf/split")),
    name_of);
INSTANTIATE_TEST_SUITE_P(All, Printed, testing::ValuesIn(goldens()), golden_name);

}  // namespace
}  // namespace formats_testing
