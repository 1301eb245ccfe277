// How former versions of DeepSpeed named files and wrote param_shapes: what DeepSpeed saved, under those names, holds
// the same, and what is said of it has them.
#include "tests/formats/reshard_testing.h"

extern "C" {
#include "libckpt/recipe/verify/verify.h"
}

namespace formats_testing {
namespace {

const std::string kTests = std::string(CKPT_TESTS_DIR) + "/";
const std::string kEnd = "optim_states.pt";

// How a name of an optimizer's file is spelled: what stands before it, and before its end.
struct Spelling {
  const char *data, *prefix, *before_end;
};

const Spelling kSpellings[] = {{"stage1", "", ""},       {"stage1", "fp16_", "_"},     {"stage2-fp16", "fp16_", ""},
                               {"stage2-bf16", "", "_"}, {"stage3-bf16", "bf16_", ""}, {"grid-stage1", "", ""}};

std::string respelled(const std::string &name, const Spelling &spelling) {
  const size_t begin = name.find("zero_pp_rank_"), end = name.find("_" + kEnd);
  return spelling.prefix + name.substr(begin, end - begin) + spelling.before_end + kEnd;
}

// A golden with its optimizers' files spelled so: the folder that they are in.
std::string respell(const Folder &folder, const Spelling &spelling) {
  std::filesystem::copy(kTests + "data/zero/" + spelling.data, folder / "c", std::filesystem::copy_options::recursive);
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(folder / "c/global_step3"))
    if (entry.path().filename().string().find("_" + kEnd) != std::string::npos)
      names.push_back(entry.path().filename().string());
  EXPECT_GE(names.size(), 2u) << spelling.data;
  for (const std::string &name : names)
    std::filesystem::rename(folder / "c/global_step3/" + name, folder / "c/global_step3/" + respelled(name, spelling));
  return folder / "c/global_step3/";
}

TEST(ZeroSpellings, OfFilesOfOptimizers) {
  for (const Spelling &spelling : kSpellings) {
    Folder folder;
    const std::string tag = respell(folder, spelling);
    const std::string what = spelling.data + std::string(" as ") + respelled("zero_pp_rank_N_" + kEnd, spelling);
    EXPECT_EQ(digest_of(folder / "c"), digest_of(kTests + "data/zero/" + spelling.data + ".safetensors")) << what;
    ckpt_error err = {};
    ASSERT_EQ(write(folder / "c", folder / "out", {"zero", 1, 2}, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(digest_of(folder / "out"), digest_of(folder / "c")) << what;
    const std::string lost = respelled("zero_pp_rank_1_mp_rank_00_" + kEnd, spelling);
    std::filesystem::remove(tag + lost);
    EXPECT_EQ(open(folder / "c", &err), nullptr);
    EXPECT_NE(text_of(err).find(": " + lost + " is missing"), std::string::npos) << text_of(err);
  }
}

// One rank under two spellings: nothing says which of them counts.
TEST(ZeroSpellings, OfOneRankTwice) {
  Folder folder;
  const std::string tag = respell(folder, kSpellings[0]), twice = "zero_pp_rank_1_mp_rank_00_" + kEnd;
  std::filesystem::copy(kTests + "data/zero/stage1/global_step3/" + twice, tag + twice);
  ckpt_error err = {};
  EXPECT_EQ(open(folder / "c", &err), nullptr);
  EXPECT_NE(text_of(err).find(twice), std::string::npos) << text_of(err);
}

// Nothing in a rank's file of stage 3 says whose it is: verify tells by what archives record.
TEST(ZeroSpellings, OfOneRankUnderTwoNames) {
  Folder folder;
  const std::string tag = respell(folder, {"stage3", "", ""}), first = "zero_pp_rank_0_mp_rank_00" + kEnd;
  std::string bytes = slurp(tag + first); /* its records are called after the other rank */
  for (size_t at = 0; (at = bytes.find("zero_pp_rank_0", at)) != std::string::npos; at++) bytes[at + 13] = '1';
  spill(tag + "zero_pp_rank_1_mp_rank_00" + kEnd, bytes);
  ckpt_error err = {};
  IndexPointer index = open(folder / "c", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  ckpt_findings findings = {};
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  ASSERT_EQ(ckpt_verify_format(&findings, index.get(), &run, &err), CKPT_OK) << text_of(err);
  std::string said;
  for (size_t i = 0; i < findings.n; i++)
    if (findings.items[i].kind == CKPT_PROBLEM) said += findings.items[i].message;
  ckpt_findings_free(&findings);
  EXPECT_NE(said.find("has the same records as " + first), std::string::npos) << said;
}

// param_shapes of one group, as a table alone, under such names.
TEST(ZeroSpellings, OfParameters) {
  const std::string errors = kTests + "golden-errors/zero/";
  EXPECT_EQ(digest_of(errors + "noted-former-spellings"), digest_of(errors + "noted-without-mappings"));
}

}  // namespace
}  // namespace formats_testing
