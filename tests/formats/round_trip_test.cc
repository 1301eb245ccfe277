// From every checkpoint of a run to every format that holds one, from there to every other and back: the same digest of
// everything. What a format cannot hold, or refuses, is in round_trips.tsv. CKPT_BLESS=1 writes that table anew: read
// the difference before committing it.
#include <algorithm>
#include <map>

#include "tests/build.h"
#include "tests/formats/reshard_testing.h"

extern "C" {
#include "libckpt/codec/torch/state/state.h"
}

namespace formats_testing {
namespace {

const std::string kTests = CKPT_TESTS_DIR, kData = kTests + "/data/";

const struct {
  const char *name;
  Target target;
} kFormats[] = {{"universal", {"universal", 0, 2}}, {"zero 1", {"zero", 1, 3}}, {"zero 2", {"zero", 2, 2}},
                {"zero 3", {"zero", 3, 3}},         {"dcp", {"dcp", 0, 3}},     {"torch", {"torch", 0, 0}}};

// Every checkpoint with the state of an optimizer.
std::vector<std::string> runs() {
  std::vector<std::string> names = {"dcp/fsdp4", "dcp/accelerate", "dcp/app", "torch/training.pt"};
  for (const char *kind : {"below", "lightning", "tutorial"})
    names.push_back(std::string("torch/training-") + kind + ".pt");
  for (const char *folder : {"zero", "universal", "trainer"})
    for (const auto &entry : std::filesystem::directory_iterator(kData + folder))
      if (entry.is_directory()) names.push_back(folder + ("/" + entry.path().filename().string()));
  std::sort(names.begin(), names.end());
  return names;
}

// Converts, and returns what was lost on the way: the reason where that was all.
std::string lost(const std::string &input, const std::string &output, const Target &target, bool *is_written) {
  ckpt_error err = {};
  std::vector<std::string> losses;
  *is_written = write(input, output, target, &err, "all", 16 << 20, nullptr, &losses, false, "convert") == CKPT_OK;
  std::string text = *is_written ? "" : "refused: " + text_of(err);
  for (const std::string &loss : losses) text += (text.empty() ? "" : "; ") + loss;
  for (size_t at; (at = text.find(output)) != std::string::npos;) text.replace(at, output.size(), "OUT");
  for (size_t at; (at = text.find(input)) != std::string::npos;) text.replace(at, input.size(), "IN");
  return text;
}

class RoundTrip : public testing::TestWithParam<std::string> {};

// Whether there are masters: DeepSpeed's formats add them, which stay on the way back.
bool has_masters(const std::string &path) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false);
  for (uint32_t i = 0; index != nullptr && i < index->n_tensors; i++)
    if (index->tensors[i].role == CKPT_ROLE_MASTER) return true;
  return index != nullptr && index->weights != nullptr;
}

// Tensors in a text, "<tensor 17>", without their numbers.
std::string without_numbers(std::string text) {
  const std::string begin = "<tensor ";
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos; at += begin.size())
    text.erase(at + begin.size(), text.find('>', at) - at - begin.size());
  return text;
}

// What objects hold besides tensors, by path.
void list_values(const ckpt_object *object, const std::string &path, std::map<std::string, std::string> *values) {
  ckpt_arena arena;
  if (object == nullptr || object->kind == CKPT_OBJECT_TENSOR) return;
  ckpt_arena_init(&arena, 1 << 20);
  const bool is_dict = object->kind == CKPT_OBJECT_DICT;
  if (!is_dict && object->kind != CKPT_OBJECT_LIST && object->kind != CKPT_OBJECT_TUPLE) {
    const std::string text = ckpt_object_print(object, 1 << 16, &arena);
    (*values)[path] = without_numbers(text);
    ckpt_arena_free(&arena);
    return;
  }
  for (uint64_t i = 0; i < object->n; i++) {
    const ckpt_object *key = is_dict ? object->items[2 * i] : nullptr;
    const std::string name = !is_dict ? std::to_string(i) : ckpt_object_print(key, 1 << 16, &arena);
    list_values(object->items[is_dict ? 2 * i + 1 : i], path + "/" + name, values);
  }
  ckpt_arena_free(&arena);
}

std::map<std::string, std::string> values_of(const std::string &path) {
  ckpt_error err = {};
  std::map<std::string, std::string> values;
  IndexPointer index = open(path, &err, false);
  if (index == nullptr || index->objects == nullptr) return values;
  const ckpt_object *whole = index->whole;
  list_values(whole == nullptr ? index->objects : whole, "", &values);
  return values;
}

// The last key of a path and what stands there: parts can have another name (optim, optimizer).
std::string entry_of(const std::string &path, const std::string &value) {
  return path.substr(path.rfind('/')) + ": " + value;
}

// Values that are not there any more, or others.
std::string changes(const std::map<std::string, std::string> &was, const std::map<std::string, std::string> &is) {
  std::map<std::string, int> moved;
  std::string text;
  for (const auto &[path, value] : is)
    if (was.count(path) == 0) moved[entry_of(path, value)]++;
  for (const auto &[path, value] : was) {
    const auto found = is.find(path);
    if (found == is.end() ? moved[entry_of(path, value)]-- > 0 : found->second == value) continue;
    text += (text.empty() ? "" : ", ") + path + (found == is.end() ? " gone" : " " + value + " -> " + found->second);
  }
  return text;
}

// Whether a way is tried: under sanitizers one of each format's to another.
bool is_tried(const std::string &there, const std::string &over) {
  const size_t n = sizeof kFormats / sizeof *kFormats;
  size_t i = 0, k = 0;
  while (i < n && kFormats[i].name != there) i++;
  while (k < n && kFormats[k].name != over) k++;
  return is_thorough() || over.empty() || (i + 1) % n == k;
}

// Whether it is, of a row of the table.
bool is_tried_row(const std::string &line) {
  std::istringstream columns(line);
  std::string run, there, over;
  std::getline(columns, run, '\t');
  std::getline(columns, there, '\t');
  std::getline(columns, over, '\t');
  for (const char *prefix : {"objects ", "back from "})
    if (over.rfind(prefix, 0) == 0) over.erase(0, strlen(prefix));
  return is_tried(there, over);
}

// The rows of a run: where from, where to, where over, and what was lost.
std::string table_of(const std::string &run) {
  std::string table;
  auto add = [&](const std::string &there, const std::string &over, const std::string &losses) {
    if (!losses.empty()) table += run + "\t" + there + "\t" + over + "\t" + losses + "\n";
  };
  for (const auto &there : kFormats) {
    Folder folder;
    bool is_written;
    const std::string first = folder / "first";
    add(there.name, "", lost(kData + run, first, there.target, &is_written));
    if (!is_written) continue;
    const std::string digest = digest_of(first);
    EXPECT_EQ(digest.rfind("ckpt1:", 0), 0u) << digest;
    const auto values = values_of(first);
    for (const auto &over : kFormats) {
      if (&over == &there || !is_tried(there.name, over.name)) continue;
      const std::string other = folder / over.name, back = folder / (std::string("back from ") + over.name);
      const std::string losses = lost(first, other, over.target, &is_written);
      add(there.name, over.name, losses);
      if (!is_written) continue;
      add(there.name, std::string("back from ") + over.name, lost(other, back, there.target, &is_written));
      EXPECT_TRUE(is_written) << run << " " << there.name << " " << over.name;
      if (losses.find("side file") != std::string::npos) continue;  // its config says which tensors are one
      add(there.name, std::string("objects back from ") + over.name, changes(values, values_of(back)));
      const std::string wanted = has_masters(first) ? digest : digest_of(other);
      EXPECT_EQ(digest_of(back), wanted) << run << " " << there.name << " " << over.name;
      EXPECT_EQ(digest_of(back, "model"), digest_of(first, "model")) << run << " " << there.name << " " << over.name;
    }
  }
  return table;
}

TEST_P(RoundTrip, GivesWhatThereWas) {
  const std::string run = GetParam(), path = kTests + "/formats/round_trips.tsv";
  std::istringstream lines(slurp(path));
  std::string wanted, others, line;
  while (std::getline(lines, line)) {
    const bool is_own = line.rfind(run + "\t", 0) == 0;
    if (!is_own || is_tried_row(line)) (is_own ? wanted : others) += line + "\n";
  }
  const std::string table = table_of(run);
  if (is_thorough() && getenv("CKPT_BLESS") != nullptr) spill(path, others + table);
  EXPECT_EQ(table, wanted);
}

std::string name_of(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  for (char &c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, testing::ValuesIn(runs()), name_of);

}  // namespace
}  // namespace formats_testing
