// Adapters as PEFT has them and as llama.cpp has them: the same bytes as llama.cpp's converter writes
// (tests/data/make_lora_gguf.py), the same merged model from either form, and what has no place in the other.
#include <cmath>
#include <fstream>

#include "tests/libckpt/io/folder.h"
#include "tests/libckpt/run/run_testing.h"

extern "C" {
#include "libckpt/index/index.h"
#include "libckpt/recipe/adapter/adapter.h"
#include "libckpt/recipe/adapter/forms.h"
}

namespace {

const std::string kData = CKPT_TESTS_DIR "/data/adapters/";

class Forms : public Run {
 protected:
  IndexPointer open(const std::string &path, bool stored_names = false) {
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    options.stored_names = stored_names;
    ckpt_index *index = nullptr;
    EXPECT_EQ(ckpt_open(&index, path.c_str(), &options, &err_), CKPT_OK) << text_of(err_);
    return IndexPointer(index, ckpt_index_free);
  }
  IndexPointer to_gguf(const ckpt_index *adapter, const ckpt_index *base) {
    ckpt_index *index = nullptr;
    err_ = {};
    (void)ckpt_adapter_to_gguf(&index, adapter, base, &err_);
    return IndexPointer(index, ckpt_index_free);
  }
  IndexPointer from_gguf(const ckpt_index *adapter, const ckpt_index *base) {
    ckpt_index *index = nullptr;
    err_ = {};
    (void)ckpt_adapter_from_gguf(&index, adapter, base, &err_);
    return IndexPointer(index, ckpt_index_free);
  }
  std::map<std::string, std::vector<float>> merge(const ckpt_index *base, const ckpt_index *adapter) {
    const ckpt_adapter_request request = {adapter->path, 1};
    ckpt_adapter_options options = {};
    options.first = adapter;
    std::map<std::string, std::vector<float>> out;
    ckpt_adapters *opened = nullptr;
    ckpt_index *merged = nullptr;
    EXPECT_EQ(ckpt_adapters_open(&opened, base, &request, 1, &options, &err_), CKPT_OK) << text_of(err_);
    if (opened == nullptr) return out;
    EXPECT_EQ(ckpt_adapters_merge(&merged, opened, &err_), CKPT_OK) << text_of(err_);
    for (size_t i = 0; merged != nullptr && i < ckpt_index_count(merged); i++) {
      const ckpt_tensor *tensor = ckpt_index_at(merged, i);
      std::vector<float> &values = out[tensor->name];
      values.resize(tensor->n_elements);
      EXPECT_EQ(ckpt_read(merged, tensor, nullptr, CKPT_F32, values.data(), 4 * values.size(), &err_), CKPT_OK);
    }
    ckpt_index_free(merged);
    ckpt_adapters_free(opened);
    return out;
  }
  float alpha_of(const ckpt_index *gguf) {
    const ckpt_meta *meta = ckpt_index_meta(gguf, CKPT_ADAPTER_ALPHA);
    return meta == nullptr ? NAN : std::stof(meta->value);
  }
};

class EitherForm : public Forms, public testing::WithParamInterface<const char *> {};

TEST_P(EitherForm, MergesAlike) {
  const std::string folder = kData + GetParam();
  const std::map<std::string, std::string> others = {{"mixtral", kData + "experts/base"},
                                                     {"rotary", CKPT_TESTS_DIR "/data/dialect/mistral"}};
  IndexPointer base = open(others.count(GetParam()) != 0 ? others.at(GetParam()) : folder + "/base");
  IndexPointer adapter = open(folder + "/adapter"), gguf = to_gguf(adapter.get(), base.get());
  ASSERT_NE(gguf, nullptr) << text_of(err_);
  ASSERT_EQ(ckpt_adapter_kind_of(gguf.get()), CKPT_ADAPTER_GGUF);
  IndexPointer back = from_gguf(gguf.get(), base.get());
  ASSERT_NE(back, nullptr) << text_of(err_);
  ASSERT_EQ(ckpt_adapter_kind_of(back.get()), CKPT_ADAPTER_PEFT);
  const auto wanted = merge(base.get(), adapter.get()), merged = merge(base.get(), gguf.get());
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(merged, merge(base.get(), back.get()));
  ASSERT_EQ(wanted.size(), merged.size());
  const bool is_folded = std::string(GetParam()) == "patterns" || std::string(GetParam()) == "rslora";
  for (const auto &[name, values] : wanted)
    for (size_t i = 0; i < values.size(); i++) EXPECT_NEAR(merged.at(name)[i], values[i], is_folded ? 1e-6 : 0) << name;
}

INSTANTIATE_TEST_SUITE_P(Adapters, EitherForm,
                         testing::Values("linear", "rslora", "patterns", "embedding", "gpt2", "experts", "mixtral",
                                         "rotary"),
                         [](const auto &tested) { return tested.param; });

std::string Bytes(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Forms, AreByteForByteWhatLlamaCppsConverterWrites) {
  Folder folder;
  for (const std::string kind : {"linear", "embedding", "mixtral", "rotary"}) {
    const std::string input = kData + kind + "/adapter", output = folder / (kind + ".gguf");
    ckpt_convert_options options = {};
    options.struct_size = sizeof options;
    options.input = input.c_str();
    options.output = output.c_str();
    ASSERT_EQ(ckpt_convert(&options, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(Bytes(output), Bytes(kData + kind + "/llama.gguf")) << kind;
  }
}

// It ignores use_rslora: the factors are the same, and alpha is what makes 8 / sqrt(4) of rank 4.
TEST_F(Forms, RsLoraIsInTheAlphaWhereOneCanSayIt) {
  IndexPointer base = open(kData + "rslora/base"), adapter = open(kData + "rslora/adapter");
  IndexPointer ours = to_gguf(adapter.get(), base.get()), theirs = open(kData + "rslora/llama.gguf");
  ASSERT_NE(ours, nullptr) << text_of(err_);
  EXPECT_EQ(alpha_of(ours.get()), 16);
  EXPECT_EQ(alpha_of(theirs.get()), 8);
  ASSERT_EQ(ckpt_index_count(ours.get()), ckpt_index_count(theirs.get()));
  EXPECT_EQ(ours->n_notes, 0u);
}

// Rank 2 with alpha 8 is one alpha with rank 4 and 8; alpha 5 of rank 4 and alpha 3 are not.
TEST_F(Forms, PatternsGoIntoTheValuesWhereOneAlphaCannotSayThem) {
  IndexPointer base = open(kData + "patterns/base"), adapter = open(kData + "patterns/adapter");
  IndexPointer gguf = to_gguf(adapter.get(), base.get());
  ASSERT_NE(gguf, nullptr) << text_of(err_);
  EXPECT_EQ(alpha_of(gguf.get()), 8);
  ASSERT_EQ(gguf->n_notes, 1u);
  EXPECT_NE(std::string(gguf->notes[0].text).find("5 lora_b are multiplied"), std::string::npos) << gguf->notes[0].text;
}

TEST_F(Forms, WhatLlamaCppHasNoPlaceForIsRefusedByName) {
  const std::map<std::string, std::string> told = {{"dora", "by magnitudes (DoRA)"},
                                                   {"saved", "by a whole tensor"},
                                                   {"bias", "by a bias that is added"},
                                                   {"rows", "by rows in place of an embedding's"},
                                                   {"layers", "is of no family that is known"}};
  for (const auto &[kind, message] : told) {
    IndexPointer base = open(kData + kind + "/base"), adapter = open(kData + kind + "/adapter");
    EXPECT_EQ(to_gguf(adapter.get(), base.get()), nullptr) << kind;
    EXPECT_EQ(err_.status, CKPT_EUNSUPPORTED);
    EXPECT_NE(text_of(err_).find(message), std::string::npos) << text_of(err_);
  }
}

// A file of llama.cpp's from what is written here: name of each tensor, its axes.
class LlamaFiles : public Forms {
 protected:
  void refuse(const std::map<std::string, std::vector<uint64_t>> &tensors, const std::string &message,
              ckpt_index *base = nullptr, const char *type = "lora", const char *family = "llama",
              const char *alpha = nullptr) { /* as text */
    ckpt_index *file = nullptr;
    ASSERT_EQ(ckpt_index_new(&file, nullptr, "lora.gguf", "gguf", nullptr, &err_), CKPT_OK);
    IndexPointer made(file, ckpt_index_free);
    for (const auto &[name, shape] : tensors)
      ASSERT_EQ(ckpt_index_add(file, name.c_str(), name.size(), CKPT_F32, static_cast<uint32_t>(shape.size()),
                               shape.data(), CKPT_ROLE_PARAMETER, nullptr, 0, nullptr, &err_),
                CKPT_OK);
    ASSERT_EQ(ckpt_index_set_metadata(file, "general.type", "adapter", &err_), CKPT_OK);
    ASSERT_EQ(ckpt_index_set_metadata(file, "adapter.type", type, &err_), CKPT_OK);
    ASSERT_EQ(ckpt_index_set_metadata(file, "general.architecture", family, &err_), CKPT_OK);
    ASSERT_EQ(ckpt_index_set_metadata(file, alpha == nullptr ? "none" : CKPT_ADAPTER_ALPHA, "8", &err_), CKPT_OK);
    ASSERT_EQ(ckpt_index_finish(file, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(from_gguf(file, base), nullptr) << message;
    EXPECT_NE(text_of(err_).find(message), std::string::npos) << text_of(err_);
  }
};

TEST_F(LlamaFiles, ThatAreNoAdapterOfAKnownFamilyAreRefused) {
  IndexPointer base = open(kData + "linear/base"), other = open(kData + "gpt2/base");
  const std::string o = "blk.0.attn_output.weight.", q = "blk.0.attn_q.weight.";
  refuse({{o + "lora_a", {4, 16}}}, "'" + o + "lora_b' is missing");
  refuse({{o + "lora_b", {16, 4}}}, "'" + o + "lora_a' is missing");
  refuse({{o + "lora_a", {4, 16}}, {o + "lora_b", {16, 3}}}, "its rank is 4, that of '" + o + "lora_b' 3");
  refuse({{o + "lora_a", {2, 4, 16}}, {o + "lora_b", {2, 16, 4}}}, "which is no stack of experts");
  refuse({{o + "lora_a", {4}}, {o + "lora_b", {4}}}, "has 1 axes");
  refuse({{"blk.0.attn_norm.weight", {16}}}, "llama.cpp does not use it");
  refuse({{"nowhere.lora_a", {4, 16}}, {"nowhere.lora_b", {16, 4}}}, "which is no matrix of a model");
  refuse({{q + "lora_a", {4, 16}}, {q + "lora_b", {16, 4}}}, "by heads that only the base knows");
  refuse({{q + "lora_a", {4, 16}}, {q + "lora_b", {15, 4}}}, "15 rows are no pairs of rows", base.get());
  refuse({{q + "lora_a", {4, 16}}, {q + "lora_b", {16, 4}}}, "is for a llama, and", other.get());
  refuse({{q + "lora_a", {4, 16}}}, "of the type 'control_vector'", nullptr, "control_vector");
  refuse({{q + "lora_a", {4, 16}}}, "there are no GGUF rules of such a family", nullptr, "lora", "nothing");
  refuse({{o + "lora_a", {4, 16}}, {o + "lora_b", {16, 4}}}, "adapter.lora.alpha is 8, and no finite f32", nullptr,
         "lora", "llama", "8");
  refuse({}, "no tensors");
}

}  // namespace
