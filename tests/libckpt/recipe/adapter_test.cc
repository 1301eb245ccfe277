// Adapters that PEFT saved (tests/data/adapters) against PEFT's own merge, formulas in f64, tied weights, and names.
#include <cmath>

#include "tests/libckpt/recipe/adapter_testing.h"

extern "C" {
#include "libckpt/base/backend.h"
#include "libckpt/recipe/adapter/names.h"
}

namespace {

double Farthest(const std::vector<float> &a, const std::vector<float> &b) {
  double gap = a.size() == b.size() ? 0 : INFINITY, size = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); i++) {
    gap = std::fmax(gap, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    size = std::fmax(size, std::fabs(static_cast<double>(b[i])));
  }
  return gap / size;
}

class EveryKind : public Merge, public testing::WithParamInterface<const char *> {};

TEST_P(EveryKind, IsWhatPeftMerges) {
  const std::string folder = kData + GetParam();
  IndexPointer base = Open(folder + "/base"), wanted = Open(folder + "/merged.safetensors");
  ASSERT_EQ(open_adapters(base.get(), {{(folder + "/adapter").c_str(), 1}}), CKPT_OK) << text_of(err_);
  auto merged = merge();
  for (size_t i = 0; i < ckpt_index_count(base.get()); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(base.get(), i), *changed = ckpt_index_find(wanted.get(), tensor->name);
    EXPECT_EQ(ckpt_adapters_change(adapters_.get(), tensor), changed != nullptr) << tensor->name;
    if (changed == nullptr)
      EXPECT_EQ(merged[tensor->name], Values(base.get(), tensor)) << tensor->name;
    else
      EXPECT_LE(Farthest(merged[tensor->name], Values(wanted.get(), changed)), 1e-6) << tensor->name;
  }
  EXPECT_EQ(ckpt_adapters_count(adapters_.get()), ckpt_index_count(wanted.get()));
}

INSTANTIATE_TEST_SUITE_P(Adapters, EveryKind,
                         testing::Values("linear", "rslora", "patterns", "dora", "embedding", "saved", "bias", "gpt2",
                                         "gpt2_dora", "embedding_dora", "rows", "experts", "layers", "layers_dora"),
                         [](const auto &tested) { return tested.param; });

TEST_F(Merge, TheOrderOfAdaptersChangesNoByteAndAScaleOfZeroNothing) {
  const std::string folder = kData + "linear", one = folder + "/adapter", other = kData + "patterns/adapter";
  IndexPointer base = Open(folder + "/base");
  ASSERT_EQ(open_adapters(base.get(), {{one.c_str(), 0.5}, {other.c_str(), 0.25}}), CKPT_OK) << text_of(err_);
  auto first = merge();
  std::vector<bool> changed;
  for (size_t i = 0; i < ckpt_index_count(base.get()); i++)
    changed.push_back(ckpt_adapters_change(adapters_.get(), ckpt_index_at(base.get(), i)));
  ASSERT_EQ(open_adapters(base.get(), {{other.c_str(), 0.25}, {one.c_str(), 0.5}}), CKPT_OK);
  EXPECT_EQ(first, merge());
  EXPECT_EQ(open_adapters(base.get(), {{one.c_str(), 0}}), CKPT_EVALUE);
  EXPECT_NE(text_of(err_).find("its scale is 0: the merged model would be the base"), std::string::npos);
  options_.allow_noop = true;
  ASSERT_EQ(open_adapters(base.get(), {{one.c_str(), 0}}), CKPT_OK);
  auto same = merge();
  for (size_t i = 0; i < ckpt_index_count(base.get()); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(base.get(), i);
    EXPECT_EQ(same[tensor->name], Values(base.get(), tensor)) << tensor->name;
    EXPECT_EQ(first[tensor->name] != same[tensor->name], changed[i]) << tensor->name;
  }
}

// The same adapter twice is ordered by scale.
TEST_F(Merge, AdaptersOfOneContentHaveAnOrderOfTheirOwn) {
  const std::string folder = kData + "linear", path = folder + "/adapter";
  IndexPointer base = Open(folder + "/base");
  for (const bool is_reversed : {false, true}) {
    const double first = is_reversed ? 0.5 : 0.25;
    ASSERT_EQ(open_adapters(base.get(), {{path.c_str(), first}, {path.c_str(), 0.75 - first}}), CKPT_OK);
    ckpt_adapter_info info;
    ASSERT_TRUE(ckpt_adapters_at(adapters_.get(), 0, &info));
    EXPECT_EQ(info.scale, 0.25);
    EXPECT_EQ(info.request, is_reversed ? 1u : 0u);
  }
  ASSERT_EQ(open_adapters(base.get(), {{path.c_str(), 1}, {path.c_str(), 1}, {path.c_str(), 1}}), CKPT_OK);
  ckpt_adapter_info info;
  for (uint32_t i = 0; ckpt_adapters_at(adapters_.get(), i, &info); i++) EXPECT_EQ(info.request, i);
}

class Written : public Refused {};

// One adapter has the experts of a layer in one pair, another a pair for each expert: every expert gets its own.
TEST_F(Written, AnExpertGetsItsOwnUpdatesOfAdaptersThatCutThemOtherwise) {
  base_ = Open(kData + "experts/base");
  const std::string fused = kData + "experts/adapter", single = folder_ / "adapter";
  ASSERT_EQ(open_adapters(base_.get(), {{fused.c_str(), 1}}), CKPT_OK) << text_of(err_);
  auto of_fused = merge();
  std::vector<std::tuple<std::string, size_t, size_t>> tensors;
  for (const char *expert : {"0", "1", "2"}) {
    const std::string module = "base_model.model.model.layers.0.block_sparse_moe.experts." + std::string(expert);
    tensors.emplace_back(module + ".w1.lora_A.weight", 4, 16);
    tensors.emplace_back(module + ".w1.lora_B.weight", 24, 4);
  }
  uint32_t n_first[2] = {0, 0};
  for (float value = 1; value <= 8; value++) {
    write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["w1"]})", Saved(tensors, value));
    ASSERT_EQ(open_adapters(base_.get(), {{fused.c_str(), 1}, {single.c_str(), 1}}), CKPT_OK) << text_of(err_);
    ckpt_adapter_info first;
    ASSERT_TRUE(ckpt_adapters_at(adapters_.get(), 0, &first));
    n_first[first.request]++;
    auto both = merge();
    for (const std::string expert : {"0", "1", "2"}) {
      const std::string name = "model.layers.0.block_sparse_moe.experts." + expert + ".w1.weight";
      for (size_t i = 0; i < both[name].size(); i++)
        ASSERT_NEAR(both[name][i], of_fused[name][i] + 8 * value * value, 1e-4) << name;
    }
  }
  EXPECT_NE(n_first[0], 0u);
  EXPECT_NE(n_first[1], 0u);
}

// What was trained in f32 beside a bf16 base is no copy of it, however near.
TEST_F(Written, AWholeTensorIsTheBasesOnlyInTheWiderDtype) {
  const std::string from = kData + "linear/base", head = "lm_head.weight";
  for (const ckpt_dtype dtype : {CKPT_BF16, CKPT_F16}) {
    const ckpt_cast_rule cast = {nullptr, dtype};
    const std::string to = folder_ / ckpt_dtype_name(dtype);
    ASSERT_EQ(copy(from, to, cast), CKPT_OK) << text_of(err_);
    adapters_.reset();
    base_ = Open(to);
    for (const bool is_trained : {true, false}) {
      std::vector<float> values = Values(base_.get(), ckpt_index_find(base_.get(), head.c_str()));
      for (float &value : values) value *= is_trained ? 1.0001F : 1;
      std::string model =
          Header("\"base_model.model." + head + R"(":{"dtype":"F32","shape":[40,16],)" + R"("data_offsets":[0,2560]})");
      model.append(reinterpret_cast<const char *>(values.data()), 2560);
      write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"modules_to_save":["lm_head"]})", model);
      ASSERT_EQ(open_written(), is_trained ? CKPT_OK : CKPT_EVALUE) << text_of(err_);
      if (!is_trained) continue;
      ckpt_index *opened = nullptr;
      ASSERT_EQ(ckpt_adapters_merge(&opened, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
      IndexPointer merged(opened, ckpt_index_free);
      const std::string out = folder_ / ("merged." + std::string(ckpt_dtype_name(dtype)) + ".safetensors");
      write_as(merged.get(), out, CKPT_F32);
      IndexPointer wide = Open(out);
      EXPECT_EQ(Values(wide.get(), ckpt_index_find(wide.get(), head.c_str())), values);
    }
  }
}

// ---- formulas -------------------------------------------------------------------------------------------------------

// What an adapter makes of a tensor, in f64 and rounded once, by the formulas of docs/merging.md; their sources are
// PEFT's LoraLayer.get_delta_weight, Embedding, _ConvNd and the DoRA layers (Liu et al. 2024, eq. 5).
class Oracle {
 public:
  Oracle(const ckpt_index *base, const ckpt_index *adapter) : base_(base), adapter_(adapter) {}
  // Empty where the tensor's update is of a kind that has no module of its own (attention of torch, experts).
  std::vector<double> operator()(const ckpt_adapter_effect &effect) const {
    const std::string name = effect.name, module = "base_model.model." + name.substr(0, name.rfind('.'));
    const ckpt_tensor *tensor = ckpt_index_find(base_, effect.name), *bias = find(module + ".lora_B.bias");
    std::vector<double> w = doubles(base_, tensor);
    if (name.substr(name.rfind('.')) == ".bias") {
      if (bias == nullptr) return {};
      const std::vector<double> b = doubles(adapter_, bias);
      for (size_t i = 0; i < w.size(); i++) w[i] += effect.scale * b[i];
      return w;
    }
    const bool is_embedding = find(module + ".lora_embedding_A") != nullptr;
    const ckpt_tensor *a = find(module + (is_embedding ? ".lora_embedding_A" : ".lora_A.weight"));
    const ckpt_tensor *b = find(module + (is_embedding ? ".lora_embedding_B" : ".lora_B.weight"));
    if (a == nullptr || b == nullptr || tensor == nullptr) return {};
    const std::string leaf = module.substr(module.rfind('.') + 1);
    const bool is_turned = is_embedding || leaf == "c_attn" || leaf == "c_proj" || leaf == "c_fc";
    const size_t rank = a->shape[0], out = b->shape[0], in = a->n_elements / rank;
    const std::vector<double> x = doubles(adapter_, a), y = doubles(adapter_, b);
    const auto at = [&](size_t o, size_t i) { return is_turned ? i * out + o : o * in + i; };
    for (size_t o = 0; o < out; o++)
      for (size_t i = 0; i < in; i++) {
        double sum = 0;
        for (size_t k = 0; k < rank; k++) sum += y[o * rank + k] * x[k * in + i];
        w[at(o, i)] += effect.scale * sum;
      }
    const ckpt_tensor *magnitude = find(module + ".lora_magnitude_vector");
    if (magnitude == nullptr) return w;
    const std::vector<double> m = doubles(adapter_, magnitude);
    for (size_t o = 0; o < out; o++) {
      double squares = 0;
      for (size_t i = 0; i < in; i++) squares += w[at(o, i)] * w[at(o, i)];
      for (size_t i = 0; i < in; i++) w[at(o, i)] *= m[o] / std::sqrt(squares);
    }
    return w;
  }

 private:
  const ckpt_tensor *find(const std::string &name) const {
    const ckpt_tensor *found = ckpt_index_find(adapter_, name.c_str());
    return found != nullptr ? found : ckpt_index_find(adapter_, (name + ".weight").c_str());
  }
  static std::vector<double> doubles(const ckpt_index *index, const ckpt_tensor *tensor) {
    if (tensor == nullptr) return {};
    const std::vector<float> values = Values(index, tensor);
    return std::vector<double>(values.begin(), values.end());
  }
  const ckpt_index *base_, *adapter_;
};

int64_t OrderedBits(ckpt_dtype dtype, double value) {
  ckpt_cast_stats stats = {};
  uint16_t bits = 0;
  ckpt_backend_reference.cast(dtype, &bits, CKPT_F64, &value, 1, &stats);
  return (bits & 0x8000) != 0 ? -(bits & 0x7fff) : bits;
}

class EveryDtype : public Merge, public testing::WithParamInterface<ckpt_dtype> {};

TEST_P(EveryDtype, FormulasAreThoseOfF64RoundedOnce) {
  const ckpt_dtype dtype = GetParam();
  const ckpt_cast_rule cast = {nullptr, dtype};
  size_t n = 0, n_off = 0;
  for (const std::string kind : {"linear", "rslora", "patterns", "dora", "embedding", "embedding_dora", "gpt2",
                                 "gpt2_dora", "bias", "layers", "layers_dora"}) {
    SCOPED_TRACE(kind);
    Folder folder;
    const std::string from = kData + kind + "/base", adapter = kData + kind + "/adapter", to = folder / "base";
    ASSERT_EQ(copy(from, to, cast), CKPT_OK) << text_of(err_);
    IndexPointer base = Open(to), stored = Open(adapter);
    options_.tied = "untie";
    ASSERT_EQ(open_adapters(base.get(), {{adapter.c_str(), 0.75}}), CKPT_OK) << text_of(err_);
    ckpt_index *opened = nullptr;
    ASSERT_EQ(ckpt_adapters_merge(&opened, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
    IndexPointer merged(opened, ckpt_index_free);
    const Oracle oracle(base.get(), stored.get());
    ckpt_adapter_effect effect;
    size_t n_tensors = 0;
    for (size_t i = 0; ckpt_adapters_effect(adapters_.get(), i, &effect); i++) {
      const std::vector<double> wanted = oracle(effect);
      const ckpt_tensor *tensor = ckpt_index_find(merged.get(), effect.name);
      ASSERT_EQ(tensor->dtype, dtype) << effect.name;
      const std::vector<float> got = Values(merged.get(), tensor);
      double largest = 0;
      for (double value : wanted) largest = std::fmax(largest, std::fabs(value));
      for (size_t k = 0; k < wanted.size(); k++) {
        const double value = static_cast<double>(got[k]);
        if (dtype == CKPT_F32) {
          ASSERT_NEAR(value, wanted[k], 1e-6 * largest) << effect.name;
          continue;
        }
        const int64_t ulps = OrderedBits(dtype, value) - OrderedBits(dtype, wanted[k]);
        ASSERT_LE(std::abs(ulps), 1) << effect.name << " " << k;
        n_off += ulps != 0;
      }
      n += wanted.size();
      n_tensors += !wanted.empty();
    }
    EXPECT_NE(n_tensors, 0u);
  }
  EXPECT_GE(n, 10000u);
  EXPECT_LE(static_cast<double>(n_off), 0.001 * static_cast<double>(n)) << n;
}

INSTANTIATE_TEST_SUITE_P(Adapters, EveryDtype, testing::Values(CKPT_F32, CKPT_F16, CKPT_BF16),
                         [](const auto &tested) { return std::string(ckpt_dtype_name(tested.param)); });

// ---- tied weights ---------------------------------------------------------------------------------------------------

// GPT-2's: lm_head.weight is transformer.wte.weight.
class Tied : public Refused {
 protected:
  const std::string wte_ = "base_model.model.transformer.wte.", head_ = "base_model.model.lm_head.";
  const std::string embedding_ = Saved({{wte_ + "lora_embedding_A", 4, 40}, {wte_ + "lora_embedding_B", 16, 4}}, 0.5);
  void SetUp() override { base_ = Open(kData + "gpt2/base"); }
  std::string config_of(const std::map<std::string, std::vector<float>> &merged) {
    std::string names;
    for (const auto &[name, values] : merged)
      if (name == "transformer.wte.weight" || name == "lm_head.weight") names += name + " ";
    return names;
  }
};

TEST_F(Tied, AnUpdateOfOneOfTwoIsRefusedUnlessTheyMayBecomeTwo) {
  expect(config_, embedding_, "'lm_head.weight' is tied to 'transformer.wte.weight': they would differ");
  options_.tied = "error";
  expect(config_, embedding_, "no tied weight may change");
  options_.tied = "untie";
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  auto merged = merge();
  EXPECT_EQ(config_of(merged), "lm_head.weight transformer.wte.weight ");
  const auto before = Values(base_.get(), ckpt_index_find(base_.get(), "lm_head.weight"));
  EXPECT_EQ(merged["lm_head.weight"], before);
  for (size_t i = 0; i < before.size(); i++)
    EXPECT_FLOAT_EQ(merged["transformer.wte.weight"][i], before[i] + 2 * 4 * 0.25F);
}

TEST_F(Tied, TheSameUpdateOfBothIsAddedOnceAndTheyStayTied) {
  write(config_, Saved({{wte_ + "lora_embedding_A", 4, 40},
                        {wte_ + "lora_embedding_B", 16, 4},
                        {head_ + "lora_A.weight", 4, 16},
                        {head_ + "lora_B.weight", 40, 4}},
                       0.5));
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  auto merged = merge();
  EXPECT_EQ(config_of(merged), "transformer.wte.weight ");
  const auto before = Values(base_.get(), ckpt_index_find(base_.get(), "lm_head.weight"));
  EXPECT_FLOAT_EQ(merged["transformer.wte.weight"][7], before[7] + 2 * 4 * 0.25F);
}

TEST_F(Tied, WhatIsSavedForOneOfThemIsRefusedAndForBothTakesTheirPlace) {
  expect(config_, Saved({{wte_ + "weight", 40, 16}}), "they would differ");
  expect(config_, Saved({{wte_ + "weight", 44, 16}}), "they would differ");
  write(config_, Saved({{wte_ + "weight", 44, 16}, {head_ + "weight", 44, 16}}, 3));
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  auto merged = merge();
  EXPECT_EQ(config_of(merged), "transformer.wte.weight ");
  EXPECT_EQ(merged["transformer.wte.weight"], std::vector<float>(44 * 16, 3));
}

TEST(AdapterNames, AreFoundAsTheyOccur) {
  const struct {
    const char *name;
    ckpt_adapter_part part;
    const char *wanted;
  } cases[] = {
      {"base_model.model.model.layers.0.q.lora_A.weight", CKPT_ADAPTER_INPUT, "model.layers.0.q.weight"},
      {"base_model.model.model.layers.0.q.lora_B.default.weight", CKPT_ADAPTER_OUTPUT, "model.layers.0.q.weight"},
      {"module.base_model.model._orig_mod.layers.0.q.lora_A.weight", CKPT_ADAPTER_INPUT, "layers.0.q.weight"},
      {"layers.0.q.lora_magnitude_vector", CKPT_ADAPTER_MAGNITUDE, "layers.0.q.weight"},
      {"layers.0.q.lora_magnitude_vector.default.weight", CKPT_ADAPTER_MAGNITUDE, "layers.0.q.weight"},
      {"base_model.model.wte.lora_embedding_A", CKPT_ADAPTER_INPUT, "wte.weight"},
      {"base_model.model.wte.lora_embedding_B.default", CKPT_ADAPTER_OUTPUT, "wte.weight"},
      {"base_model.model.q.lora_B.bias", CKPT_ADAPTER_BIAS, "q.bias"},
      {"base_model.model.lm_head.modules_to_save.default.weight", CKPT_ADAPTER_WHOLE, "lm_head.weight"},
      {"base_model.model.q.base_layer.weight", CKPT_ADAPTER_WHOLE, "q.weight"},
      {"base_model.model.q.bias", CKPT_ADAPTER_WHOLE, "q.bias"},
      {"base_model.model.e.token_adapter.trainable_tokens_delta", CKPT_ADAPTER_ROWS, "e.weight"},
      {"base_model.model.e.token_adapter.trainable_tokens_delta.default", CKPT_ADAPTER_ROWS, "e.weight"},
      {"base_model.model.a.base_layer.out_proj.lora_A.weight", CKPT_ADAPTER_INPUT, "a.out_proj.weight"},
  };
  for (const auto &c : cases) {
    ckpt_adapter_name name;
    ASSERT_EQ(ckpt_adapter_name_parse(&name, c.name, nullptr), CKPT_OK) << c.name;
    EXPECT_EQ(name.part, c.part) << c.name;
    EXPECT_STREQ(name.wanted, c.wanted) << c.name;
  }
}

}  // namespace
