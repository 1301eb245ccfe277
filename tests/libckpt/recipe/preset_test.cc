// Tests of presets: the types that llama-quantize itself chose (tests/data/presets, with its script), overrides,
// fallbacks and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/codec/gguf/layers.h"
#include "libckpt/recipe/quantize/preset.h"
}

namespace {

struct Named {
  std::string name;
  ckpt_dtype dtype;
  std::vector<uint64_t> shape;
};

// A model as tensors that have names, dtypes and shapes.
class Model {
 public:
  ckpt_preset_model model = {"llama", 4, 0, 8, 2};
  std::string architecture;
  std::vector<Named> named;

  std::vector<ckpt_preset_choice> Choose(const ckpt_preset_request &request, ckpt_error *err = nullptr,
                                         ckpt_status expected = CKPT_OK) const {
    std::vector<ckpt_tensor> tensors(named.size());
    std::vector<uint32_t> numbers;
    for (size_t i = 0; i < named.size(); i++) {
      tensors[i].name = named[i].name.c_str();
      tensors[i].dtype = static_cast<uint8_t>(named[i].dtype);
      tensors[i].rank = static_cast<uint8_t>(named[i].shape.size());
      tensors[i].shape = named[i].shape.data();
      numbers.push_back(static_cast<uint32_t>(i));
    }
    std::vector<ckpt_preset_choice> choices(named.size());
    const uint32_t n = static_cast<uint32_t>(numbers.size());
    ckpt_gguf_sort(numbers.data(), n, tensors.data());
    EXPECT_EQ(ckpt_preset_choose(&request, &model, tensors.data(), numbers.data(), n, choices.data(), err), expected);
    return choices;
  }
};

ckpt_dtype DtypeOf(const std::string &name) {
  const ckpt_dtype dtype = ckpt_dtype_parse(name.c_str());
  EXPECT_NE(dtype, CKPT_DTYPE_NONE) << name;
  return dtype;
}

ckpt_preset_request Request(const char *preset) {
  ckpt_preset_request request = {};
  request.preset = ckpt_preset_find(preset);
  EXPECT_NE(request.preset, nullptr) << preset;
  return request;
}

std::vector<std::string> Cut(const std::string &text, char at) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) out.push_back(part);
  return out;
}

// One file of goldens: every preset on one model. Reversed, the order of the tensors must make no difference.
void CheckGolden(const std::filesystem::path &path, bool is_reversed) {
  std::ifstream in(path);
  Model model;
  std::vector<std::string> types;
  size_t n_presets = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word, rest;
    words >> word;
    if (word == "model") {
      words >> model.architecture >> model.model.n_layers >> model.model.n_experts >> model.model.n_heads >>
          model.model.n_kv_heads;
      model.model.architecture = model.architecture.c_str();
    } else if (word == "tensor") {
      std::string name, dtype, shape;
      words >> name >> dtype >> shape;
      Named named = {name, DtypeOf(dtype), {}};
      for (const std::string &n : Cut(shape, 'x')) named.shape.push_back(std::stoull(n));
      model.named.push_back(named);
    } else if (word == "types") {
      while (words >> rest) types.push_back(rest);
    } else if (word != "key") {  // those of the file are tests/formats/gguf/quantize_test.cc's
      words >> rest;
      n_presets++;
      const size_t plus = word.find('+');
      ckpt_preset_request request = Request(word.substr(0, plus).c_str());
      request.has_imatrix = plus != std::string::npos;
      Model asked = model;
      if (is_reversed) std::reverse(asked.named.begin(), asked.named.end());
      const bool is_refused = rest == "refused";
      const auto choices = asked.Choose(request, nullptr, is_refused ? CKPT_EUNSUPPORTED : CKPT_OK);
      if (is_refused) continue;
      if (is_reversed) std::reverse(rest.begin(), rest.end());
      ASSERT_EQ(rest.size(), asked.named.size()) << path << ": " << word;
      for (size_t i = 0; i < rest.size(); i++)
        EXPECT_STREQ(ckpt_dtype_name(choices[i].dtype), ckpt_dtype_name(DtypeOf(types[rest[i] - 'A'])))
            << path << ": " << word << ": " << asked.named[i].name;
    }
  }
  EXPECT_EQ(n_presets, 2 * static_cast<size_t>(CKPT_N_PRESETS)) << path;
}

TEST(Preset, ChoosesAsLlamaQuantize) {
  size_t n_files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(CKPT_TESTS_DIR "/data/presets")) {
    if (entry.path().extension() != ".txt") continue;
    CheckGolden(entry.path(), false);
    CheckGolden(entry.path(), true);
    n_files++;
  }
  EXPECT_GE(n_files, 22u);
}

TEST(Preset, IsFoundByName) {
  for (uint32_t i = 0; i < CKPT_N_PRESETS; i++) {
    EXPECT_EQ(ckpt_preset_find(ckpt_preset_at(i)->name), ckpt_preset_at(i));
    EXPECT_EQ(ckpt_preset_at(i)->id, static_cast<ckpt_preset_id>(i));
  }
  EXPECT_STREQ(ckpt_preset_find("q4_k")->name, "Q4_K_M");
  EXPECT_EQ(ckpt_preset_find("Q7_K"), nullptr);
}

class PresetOverrides : public ::testing::Test {
 protected:
  void SetUp() override {
    model_.named = {{"token_embd.weight", CKPT_F16, {8, 256}},
                    {"output.weight", CKPT_F16, {8, 256}},
                    {"blk.0.attn_q.weight", CKPT_F16, {8, 256}},
                    {"blk.0.attn_norm.weight", CKPT_F32, {256}},
                    {"blk.0.ffn_down.weight", CKPT_F16, {8, 96}}};
  }
  void TearDown() override { ckpt_pattern_free(pattern_); }
  void Override(ckpt_preset_request *request, const char *text, ckpt_dtype dtype) {
    ASSERT_EQ(ckpt_pattern_new(&pattern_, text, nullptr, nullptr), CKPT_OK);
    override_ = {pattern_, dtype};
    request->overrides = &override_;
    request->n_overrides = 1;
  }
  Model model_;
  ckpt_pattern *pattern_ = nullptr;
  ckpt_preset_override override_ = {};
};

TEST_F(PresetOverrides, PatternBeatsMixtureButNotOutputType) {
  ckpt_preset_request request = Request("Q4_K_M");
  request.output_type = CKPT_Q8_0;
  Override(&request, "re:attn_q|output", CKPT_Q5_K);
  const auto choices = model_.Choose(request);
  EXPECT_EQ(choices[0].dtype, CKPT_Q4_K);
  EXPECT_EQ(choices[1].dtype, CKPT_Q8_0);
  EXPECT_EQ(choices[2].dtype, CKPT_Q5_K);
  EXPECT_TRUE(choices[3].is_kept);
}

// One table for every layer is an embedding, but one that a pattern may name.
TEST_F(PresetOverrides, EmbeddingOfEveryLayerMayBeNamed) {
  model_.named.push_back({"per_layer_token_embd.weight", CKPT_F16, {8, 256}});
  ckpt_preset_request request = Request("Q4_K_M");
  request.embedding_type = CKPT_Q8_0;
  auto choices = model_.Choose(request);
  EXPECT_EQ(choices[5].dtype, CKPT_Q8_0);
  Override(&request, "re:token_embd", CKPT_Q5_K);
  choices = model_.Choose(request);
  EXPECT_EQ(choices[0].dtype, CKPT_Q8_0);
  EXPECT_EQ(choices[5].dtype, CKPT_Q5_K);
  EXPECT_STREQ(choices[5].decided_by, "tensor_types");
}

TEST_F(PresetOverrides, FallbackIsSaid) {
  const auto choices = model_.Choose(Request("Q4_K_S"));
  EXPECT_EQ(choices[4].wanted, CKPT_Q4_K);
  EXPECT_EQ(choices[4].dtype, CKPT_Q5_0);
  EXPECT_EQ(choices[2].wanted, choices[2].dtype);
}

TEST_F(PresetOverrides, PureAndLeaveOutput) {
  ckpt_preset_request request = Request("Q2_K");
  request.pure = true;
  request.leave_output = true;
  const auto choices = model_.Choose(request);
  EXPECT_EQ(choices[0].dtype, CKPT_Q2_K);
  EXPECT_EQ(choices[1].dtype, CKPT_F16);
  EXPECT_TRUE(choices[1].is_kept);
}

// What decided is named, and what the preset alone would have wanted: options that count no tensor change no place.
TEST_F(PresetOverrides, WhatDecidedIsSaid) {
  ckpt_preset_request request = Request("Q4_K_M");
  auto choices = model_.Choose(request);
  EXPECT_STREQ(choices[2].decided_by, "preset");
  EXPECT_STREQ(choices[3].decided_by, "kept");
  EXPECT_EQ(choices[1].instead_of, CKPT_DTYPE_NONE);
  request.output_type = CKPT_Q8_0, request.embedding_type = CKPT_Q4_K;
  Override(&request, "re:ffn_down", CKPT_Q4_0);
  choices = model_.Choose(request);
  EXPECT_STREQ(choices[0].decided_by, "embedding_type");
  EXPECT_EQ(choices[0].instead_of, CKPT_DTYPE_NONE);  // as the preset has it
  EXPECT_STREQ(choices[1].decided_by, "output_type");
  EXPECT_EQ(choices[1].instead_of, CKPT_Q6_K);
  EXPECT_STREQ(choices[4].decided_by, "tensor_types");
  EXPECT_EQ(choices[4].instead_of, CKPT_Q4_K);
  EXPECT_EQ(choices[4].wanted, CKPT_Q4_0);
  request = Request("Q4_K_M");
  request.leave_output = true, request.pure = true;
  for (int layer = 1; layer < 8; layer++)
    model_.named.push_back({"blk." + std::to_string(layer) + ".ffn_down.weight", CKPT_F16, {8, 256}});
  model_.model.n_layers = 8;
  choices = model_.Choose(request);
  EXPECT_STREQ(choices[1].decided_by, "leave_output");
  EXPECT_EQ(choices[1].instead_of, CKPT_Q6_K);
  EXPECT_EQ(choices[1].dtype, CKPT_F16);
  for (size_t layer = 0; layer < 8; layer++) {
    EXPECT_STREQ(choices[4 + layer].decided_by, "pure");
    EXPECT_EQ(choices[4 + layer].wanted, CKPT_Q4_K);
    const bool has_more = layer < 1 || layer >= 7 || (layer - 1) % 3 == 2;
    EXPECT_EQ(choices[4 + layer].instead_of, has_more ? CKPT_Q6_K : CKPT_DTYPE_NONE) << layer;
  }
  request = Request("Q4_K_M"), request.output_type = CKPT_Q8_0;
  model_.named.erase(model_.named.begin() + 1);  // the embedding stands for the output
  choices = model_.Choose(request);
  EXPECT_STREQ(choices[0].decided_by, "output_type");
  EXPECT_EQ(choices[0].instead_of, CKPT_Q6_K);
}

TEST_F(PresetOverrides, LowBitTypesNeedImportance) {
  const auto choices = model_.Choose(Request("IQ2_XS"));
  EXPECT_TRUE(choices[2].needs_imatrix);
  EXPECT_FALSE(choices[0].needs_imatrix);  // never of the embedding
}

TEST_F(PresetOverrides, RowsThatNothingFitsAreRefused) {
  ckpt_error err = {};
  ckpt_preset_request request = Request("Q1_0");
  request.pure = true;
  (void)model_.Choose(request, &err, CKPT_EUNSUPPORTED);
  EXPECT_STREQ(err.tensor, "blk.0.ffn_down.weight");
}

}  // namespace
