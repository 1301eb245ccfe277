// One hostile input per defect, with its status and exact message: tests/golden-errors/<format>/messages.tsv. Inputs
// that are accepted with a note stand there too. CKPT_BLESS=1 rewrites the table: read the difference before committing
// it.
#include <algorithm>

#include "tests/formats/formats_testing.h"

namespace formats_testing {
namespace {

// A status by its name in ckpt.h, without the prefix.
std::string name_of(ckpt_status status) {
  switch (status) {
    case CKPT_OK: return "OK";
    case CKPT_ENOTFOUND: return "ENOTFOUND";
    case CKPT_EEXIST: return "EEXIST";
    case CKPT_EFORMAT: return "EFORMAT";
    case CKPT_EUNSUPPORTED: return "EUNSUPPORTED";
    case CKPT_ELIMIT: return "ELIMIT";
    case CKPT_EIO: return "EIO";
    case CKPT_EVALUE: return "EVALUE";
    case CKPT_EDIFFERENT: return "EDIFFERENT";
    default: break;  // EINVAL among them: what a file says is no usage error
  }
  ADD_FAILURE() << "no status of an input: " << status;
  return "status " + std::to_string(status);
}

// The status and what is said of one input, paths below the table's folder.
std::string verdict(const std::string &folder, const std::string &name) {
  ckpt_error err = {};
  IndexPointer index = open(folder + "/" + name, &err, false);
  std::string text;
  EXPECT_EQ(index == nullptr, err.status != CKPT_OK) << name;
  if (index == nullptr) {
    text = text_of(err);
  } else {
    for (const std::string &note : notes_of(index.get())) text += (text.empty() ? "accepted: " : "; ") + note;
  }
  for (size_t at; (at = text.find(folder + "/")) != std::string::npos;) text.erase(at, folder.size() + 1);
  return name_of(err.status) + "\t" + text;
}

void check(const std::string &format) {
  const std::string folder = std::string(CKPT_TESTS_DIR) + "/golden-errors/" + format;
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename() != "messages.tsv") names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  std::string table;
  for (const std::string &name : names) table += name + "\t" + verdict(folder, name) + "\n";
  const std::string path = folder + "/messages.tsv";
  if (getenv("CKPT_BLESS") != nullptr) spill(path, table);
  std::istringstream expected(slurp(path)), actual(table);
  std::string want, have;
  while (std::getline(expected, want)) {
    ASSERT_TRUE(std::getline(actual, have)) << "no input for: " << want;
    EXPECT_EQ(have, want);
  }
  EXPECT_FALSE(std::getline(actual, have)) << "no row for: " << have;
}

TEST(GoldenErrors, Safetensors) { check("safetensors"); }
TEST(GoldenErrors, Hf) { check("hf"); }
TEST(GoldenErrors, Dcp) { check("dcp"); }
TEST(GoldenErrors, Dcpv2) { check("dcpv2"); }
TEST(GoldenErrors, Imatrix) { check("imatrix"); }
TEST(GoldenErrors, Torch) { check("torch"); }
TEST(GoldenErrors, Gguf) { check("gguf"); }
TEST(GoldenErrors, Onnx) { check("onnx"); }
TEST(GoldenErrors, Zero) { check("zero"); }

}  // namespace
}  // namespace formats_testing
