// What universal_checkpoint_info says of slices: means, and vocabularies without their padding, as the run that wrote
// them and DeepSpeed's own ds_to_universal have them (tests/data/make_zero_tensor.py).
#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/recipe/verify/verify.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/";
const std::string kErrors = std::string(CKPT_TESTS_DIR) + "/golden-errors/zero/";

IndexPointer open_with(const std::string &path, const char *weights) {
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.weights = weights;
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_open(&index, path.c_str(), &options, &err), CKPT_OK) << text_of(err);
  return IndexPointer(index, ckpt_index_free);
}

std::string digest_of(const std::string &path, const char *weights) {
  IndexPointer index = open_with(path, weights);
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.include = "all";
  ckpt_digest digest;
  ckpt_error err = {};
  char text[80];
  if (index == nullptr || ckpt_hash(index.get(), &options, &digest, &err) != CKPT_OK) return text_of(err);
  return ckpt_digest_text(&digest, text);
}

std::vector<float> floats_of(const ckpt_index *index, const char *name) {
  const ckpt_tensor *tensor = ckpt_index_find(index, name);
  std::vector<float> values(tensor == nullptr ? 0 : tensor->n_elements);
  EXPECT_TRUE(tensor != nullptr && ckpt_read(index, tensor, nullptr, CKPT_F32, values.data(),
                                             values.size() * sizeof(float), nullptr) == CKPT_OK)
      << name;
  return values;
}

// Three ranks whose masters and moments came apart, and two vocabularies, one averaged and one cut: the bits of the
// mean that the run itself took, those of ds_to_universal, and the 16-bit weights that a run makes of the means.
TEST(ZeroTensor, MeansAreThoseOfTheRunAndOfDeepSpeed) {
  for (const char *weights : {"master", "model"}) {
    const std::string wanted = digest_of(kData + "zero/tensor-mean.safetensors", weights);
    EXPECT_EQ(wanted.rfind("ckpt1:", 0), 0U) << wanted;
    EXPECT_EQ(digest_of(kData + "zero/tensor-mean", weights), wanted);
    EXPECT_EQ(digest_of(kData + "universal/tensor-mean", weights), wanted);
  }
}

// The first rank's masters are 0, 1, 2, ... in the order of a and b, the second one's 10 more; b is at 3 of the first
// data-parallel rank, and from 0 of the second one.
TEST(ZeroTensor, PatternsSayWhatIsRead) {
  const struct {
    const char *name, *tensor;
    std::vector<float> wanted;
  } cases[] = {
      {"noted-averaged", "optimizer.state.a.master", {5, 6, 7}},
      {"noted-averaged", "optimizer.state.a.exp_avg", {0, 1, 2}},  // the same on both
      {"noted-averaged", "optimizer.state.b.master", {8, 5, 6, 7}},
      {"noted-averaged", "c", {0, 1}},  // frozen: the mean of what the model files have
      {"noted-averaged-rows", "optimizer.state.b.master", {8, 5}},
      {"noted-averaged-rows", "b", {8, 5}},
      {"noted-averaged-and-same", "optimizer.state.b.master", {3, 0, 1, 2}},  // the same, says the list that is first
      {"noted-averaged-of-one", "optimizer.state.b.master", {3, 0, 1, 2}},
      {"noted-same-rows", "optimizer.state.b.master", {3, 0}},
      {"noted-same-rows", "optimizer.state.b.exp_avg", {3, 0}},
      {"noted-rows-of-one", "optimizer.state.b.master", {3, 0}},
      {"noted-rows-of-one", "optimizer.state.b.exp_avg_sq", {3, 0}},
      {"noted-rows-of-one-in-stage-3", "optimizer.state.b.master", {2, 3, 2, 3}},
      {"noted-rows-huge", "optimizer.state.b.master", {3, 0, 1, 2, 3, 0, 1, 2}},
  };
  for (const auto &c : cases) {
    IndexPointer index = open_with(kErrors + c.name, nullptr);
    ASSERT_NE(index, nullptr) << c.name;
    EXPECT_EQ(floats_of(index.get(), c.tensor), c.wanted) << c.name << " " << c.tensor;
  }
  for (const char *name : {"noted-same-rows", "noted-rows-of-one"}) {
    IndexPointer model = open_with(kErrors + name, "model");
    EXPECT_EQ(floats_of(model.get(), "b"), std::vector<float>({0, 1})) << name;
  }
}

// Copies of a vocabulary are compared without their padding, and those of a mean not at all.
TEST(ZeroTensor, CopiesAreVerified) {
  const std::pair<const char *, const char *> cases[] = {{"noted-same-rows", "(9 tensors)"}, {"noted-averaged", ""}};
  for (const auto &[name, wanted] : cases) {
    IndexPointer index = open_with(kErrors + name, nullptr);
    ckpt_findings findings = {};
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_verify_format(&findings, index.get(), &run, &err), CKPT_OK) << text_of(err);
    std::string said;
    for (size_t i = 0; i < findings.n; i++) {
      EXPECT_NE(findings.items[i].kind, CKPT_PROBLEM) << findings.items[i].message;
      said += findings.items[i].message;
    }
    EXPECT_NE(said.find(wanted), std::string::npos) << name << " " << said;
    ckpt_findings_free(&findings);
  }
}

// What is written says how ranks of a run cut it, as ds_to_universal does: DeepSpeed goes by no more than that.
TEST(ZeroTensor, UniversalFilesSayHowTheyAreCut) {
  Folder folder;
  const std::string from = kData + "zero/tensor-mean", to = folder / "u";
  ckpt_convert_options options = {};
  options.struct_size = sizeof options;
  options.input = from.c_str(), options.output = to.c_str(), options.to = "universal";
  ckpt_error err = {};
  ASSERT_EQ(ckpt_convert(&options, &err), CKPT_OK) << text_of(err);
  const auto holds = [&](const std::string &parameter, const std::string &wanted) {
    return slurp(folder / ("u/global_step3_universal/zero/" + parameter + "/exp_avg.pt")).find(wanted) !=
           std::string::npos;
  };
  for (const char *parameter : {"embed.weight", "up.weight", "down.weight", "attn.qkv.weight"}) {
    const std::string name = parameter;
    EXPECT_EQ(holds(name, "vocab_tensor"), name == "embed.weight" || name == "up.weight") << name;
    EXPECT_EQ(holds(name, "param_n_sub_params"), name == "attn.qkv.weight") << name;
    EXPECT_EQ(holds(name, "cat_dimq\x08K\x01"), name == "down.weight") << name;
  }
}

// ---- folders of universal checkpoints -------------------------------------------------------------------------------

const char *const kUp = "c/global_step3_universal/zero/up.weight/";

void copy_universal(const Folder &folder) {
  std::filesystem::copy(kData + "universal/stage2-bf16", folder / "c", std::filesystem::copy_options::recursive);
}

std::string refusal(const std::string &path, ckpt_status wanted) {
  ckpt_error err = {};
  EXPECT_EQ(open(path, &err, false, true), nullptr);
  EXPECT_EQ(err.status, wanted);
  return text_of(err);
}

// Makes a file of 13 x 5, row after row, one of 5 x 13: as many elements, all of them elsewhere.
void turn_over(const std::string &file) {
  const std::string was("K\x0DK\x05\x86q\x09K\x05K\x01", 11), is("K\x05K\x0D\x86q\x09K\x0DK\x01", 11);
  std::string bytes = slurp(file);
  const size_t at = bytes.find(was);
  ASSERT_NE(at, std::string::npos) << file;
  spill(file, bytes.replace(at, was.size(), is));
}

TEST(Universal, StatesOfAnotherShapeAreRefused) {
  const std::pair<const char *, const char *> cases[] = {{"fp32.pt", "[13,5] in param_shapes"},
                                                         {"exp_avg.pt", "[13,5] in its fp32.pt"},
                                                         {"exp_avg_sq.pt", "[13,5] in its fp32.pt"}};
  for (const auto &[file, wanted] : cases) {
    Folder folder;
    copy_universal(folder);
    turn_over(folder / (std::string(kUp) + file));
    const std::string said = refusal(folder / "c", CKPT_EFORMAT);
    EXPECT_NE(said.find(std::string(file) + ": tensor 'up.weight': its shape is [5,13], and " + wanted),
              std::string::npos)
        << said;
  }
}

// Makes a file of a step that is a tensor one of the number 3, whose pickle is as long: it drops what comes before.
void make_number(const std::string &file) {
  std::string bytes = slurp(file), pickle("\x80\x02N0", 4);
  const size_t at = bytes.find(
                   "\x80\x02"
                   "ctorch._utils"),
               end = bytes.find("q\x09.", at);
  ASSERT_NE(end, std::string::npos) << file;
  const size_t n = end + 3 - at;
  while (pickle.size() + 3 < n)
    pickle += pickle.size() + 6 > n ? "N0"
                                    : std::string(
                                          "K\x00"
                                          "0",
                                          3);
  pickle += "K\x03.";
  ASSERT_EQ(pickle.size(), n) << file;
  spill(file, bytes.replace(at, n, pickle));
}

// Whether steps are tensors or numbers: where the first parameter has one, so have all.
TEST(Universal, AStepThatIsMissingIsNamed) {
  for (bool is_number : {false, true}) {
    Folder folder;
    copy_universal(folder);
    for (const auto &entry : std::filesystem::directory_iterator(folder / "c/global_step3_universal/zero"))
      if (is_number && std::filesystem::exists(entry.path() / "step.pt")) make_number(entry.path() / "step.pt");
    ckpt_error err = {};
    EXPECT_NE(open(folder / "c", &err, false, true), nullptr) << text_of(err);
    std::filesystem::remove(folder / (std::string(kUp) + "step.pt"));
    const std::string said = refusal(folder / "c", CKPT_ENOTFOUND);
    EXPECT_NE(said.find("up.weight"), std::string::npos) << said;
    EXPECT_NE(said.find("step.pt"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace formats_testing
