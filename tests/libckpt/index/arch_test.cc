// Tests of the architecture rows: every name fills and matches both ways, and rows know what transformers writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/index/arch.h"
}

namespace {

std::string Fill(const char *pattern, uint64_t a, uint64_t b = 0) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 16);
  uint64_t numbers[2] = {a, b};
  std::string text = ckpt_arch_fill(pattern, numbers, &arena);
  ckpt_arena_free(&arena);
  return text;
}

size_t Holes(const std::string &pattern) { return std::count(pattern.begin(), pattern.end(), '#'); }

TEST(Arch, FindsByModelTypeAndRowName) {
  ASSERT_NE(ckpt_arch_find("llama"), nullptr);
  EXPECT_STREQ(ckpt_arch_find("llama")->name, "llama");
  EXPECT_EQ(ckpt_arch_find("mistral"), ckpt_arch_find("llama"));
  EXPECT_STREQ(ckpt_arch_find("gpt2")->name, "gpt2");
  for (const char *family : {"qwen2", "qwen3", "mixtral", "gemma2", "gpt_neox"})
    EXPECT_STREQ(ckpt_arch_find(family)->name, family);
  for (const char *unknown : {"", "Llama", "llama2", "t5"}) EXPECT_EQ(ckpt_arch_find(unknown), nullptr) << unknown;
}

TEST(Arch, FillsInOrder) {
  EXPECT_EQ(Fill("plain", 1), "plain");
  EXPECT_EQ(Fill("a.#.b", 12), "a.12.b");
  EXPECT_EQ(Fill("#.#", 3, UINT64_MAX), "3.18446744073709551615");
}

TEST(Arch, MatchesWholeNamesWithPlainNumbers) {
  const ckpt_arch *llama = ckpt_arch_find("llama");
  uint64_t numbers[2] = {77, 77};
  const ckpt_arch_name *row = ckpt_arch_match(llama, "model.layers.31.self_attn.q_proj.weight", numbers);
  ASSERT_NE(row, nullptr);
  EXPECT_STREQ(row->gguf, "blk.#.attn_q.weight");
  EXPECT_STREQ(row->meta, "layers.#.attention.wq.weight");
  EXPECT_EQ(row->notes, CKPT_NAME_ROPE_PERMUTE);
  EXPECT_EQ(row->split_axis, 0);
  EXPECT_EQ(numbers[0], 31u);
  for (const char *name :
       {"", "model", "model.layers..self_attn.q_proj.weight", "model.layers.01.self_attn.q_proj.weight",
        "model.layers.x.self_attn.q_proj.weight", "model.layers.-1.self_attn.q_proj.weight",
        "model.layers.18446744073709551616.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight.x",
        "model.layers.1.self_attn.q_proj.weigh", "model.layers.1", "layers.1.self_attn.q_proj.weight"})
    EXPECT_EQ(ckpt_arch_match(llama, name, numbers), nullptr) << name;
  EXPECT_NE(ckpt_arch_match(llama, "model.layers.18446744073709551615.mlp.up_proj.weight", numbers), nullptr);
}

// The order of named_parameters(): layers one after the other, what is before and behind them around.
TEST(Arch, PlacesAreInTheModelsOrder) {
  const char *const llama[] = {"model.embed_tokens.weight",
                               "model.layers.0.self_attn.q_proj.weight",
                               "model.layers.0.self_attn.q_proj.bias",
                               "model.layers.0.self_attn.o_proj.weight",
                               "model.layers.0.mlp.gate_proj.weight",
                               "model.layers.0.mlp.down_proj.weight",
                               "model.layers.0.input_layernorm.weight",
                               "model.layers.0.post_attention_layernorm.weight",
                               "model.layers.2.self_attn.q_proj.weight",
                               "model.layers.10.self_attn.q_proj.weight",
                               "model.norm.weight",
                               "lm_head.weight"};
  const char *const gpt2[] = {"transformer.wte.weight",          "transformer.wpe.weight",
                              "transformer.h.0.ln_1.weight",     "transformer.h.0.ln_1.bias",
                              "transformer.h.0.mlp.c_proj.bias", "transformer.h.1.ln_1.weight",
                              "transformer.ln_f.weight",         "transformer.ln_f.bias"};
  auto check = [](const ckpt_arch *arch, const char *const *names, size_t n) {
    std::vector<uint64_t> before(CKPT_ARCH_PLACE, 0), place(CKPT_ARCH_PLACE);
    for (size_t i = 0; i < n; i++, before = place) {
      ASSERT_TRUE(ckpt_arch_place(arch, names[i], place.data())) << names[i];
      EXPECT_TRUE(i == 0 || before < place) << names[i];
    }
  };
  check(ckpt_arch_find("llama"), llama, std::size(llama));
  check(ckpt_arch_find("gpt2"), gpt2, std::size(gpt2));
  uint64_t place[CKPT_ARCH_PLACE];
  for (const char *name : {"score.weight", "model.layers.x.mlp.up_proj.weight", "model.rotary_emb.inv_freq"})
    EXPECT_FALSE(ckpt_arch_place(ckpt_arch_find("llama"), name, place)) << name;
}

TEST(Arch, EveryRowIsSoundBothWays) {
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != nullptr; arch++) {
    SCOPED_TRACE((*arch)->name);
    EXPECT_EQ(ckpt_arch_find((*arch)->name), *arch);
    EXPECT_GE((*arch)->revision, 1u);
    std::string prefix = (*arch)->base_prefix;
    EXPECT_EQ(prefix.back(), '.');
    std::set<std::string> hf, gguf, meta;
    for (const ckpt_arch_name *row = (*arch)->names; row->hf != nullptr; row++) {
      SCOPED_TRACE(row->hf);
      EXPECT_TRUE(hf.insert(row->hf).second);
      const bool is_left_out = row->role == CKPT_ROLE_BUFFER || (row->notes & CKPT_NAME_COPY) != 0;
      const bool is_only_there = row->gguf == nullptr && (row->notes & CKPT_NAME_OPTIONAL) != 0;  // llama.cpp has none
      EXPECT_EQ(row->gguf == nullptr, is_left_out || is_only_there);
      for (const auto &[pattern, seen] : {std::pair(row->gguf, &gguf), std::pair(row->meta, &meta)}) {
        if (pattern == nullptr) continue;
        const bool is_stack = pattern == row->gguf && Holes(row->hf) == 2;
        EXPECT_EQ(Holes(pattern) + is_stack, Holes(row->hf)) << pattern;
        EXPECT_TRUE(seen->insert(pattern).second) << pattern;
      }
      EXPECT_TRUE(row->role == CKPT_ROLE_PARAMETER || row->role == CKPT_ROLE_BUFFER);
      EXPECT_GE(row->split_axis, -1);
      EXPECT_LE(row->split_axis, 1);
      uint64_t numbers[2];
      EXPECT_EQ(ckpt_arch_match(*arch, Fill(row->hf, 10, 7).c_str(), numbers), row);
      if (Holes(row->hf) > 0) {
        EXPECT_EQ(numbers[0], 10u);
      }
      // A bare model's name must never be a whole model's name: adding the prefix would be ambiguous.
      std::string name = row->hf;
      if (name.compare(0, prefix.size(), prefix) == 0) {
        EXPECT_EQ(ckpt_arch_match(*arch, Fill(name.c_str() + prefix.size(), 10, 7).c_str(), numbers), nullptr);
      }
    }
    for (const ckpt_arch_model *model = (*arch)->models; model->name != nullptr; model++)
      EXPECT_NE(model->settings, nullptr) << model->name;
    size_t n_ties = 0;
    for (const ckpt_arch_tie *tie = (*arch)->ties; tie->kept != nullptr; tie++, n_ties++) {
      EXPECT_TRUE(hf.count(tie->kept)) << tie->kept;
      bool is_other_name = false;  // that releases call the same tensor by
      for (const ckpt_arch_tie *other = (*arch)->ties; other != tie; other++)
        is_other_name = is_other_name || ckpt_arch_is_one_tensor(*arch, other->tied, tie->tied);
      EXPECT_TRUE(hf.count(tie->tied) != 0 || is_other_name) << tie->tied;
    }
    EXPECT_LE(n_ties, size_t{CKPT_MAX_TIES});
    for (const ckpt_arch_joined *joined = (*arch)->joined; joined != nullptr && joined->hf != nullptr; joined++) {
      SCOPED_TRACE(joined->hf);
      EXPECT_FALSE(hf.count(joined->hf));
      ASSERT_NE(joined->parts[0], nullptr);
      for (size_t i = 0; i < std::size(joined->parts) && joined->parts[i] != nullptr; i++) {
        EXPECT_TRUE(hf.count(joined->parts[i])) << joined->parts[i];
        EXPECT_EQ(Holes(joined->parts[i]), Holes(joined->parts[0]));
        EXPECT_EQ(Holes(joined->hf), std::min<size_t>(Holes(joined->parts[i]), 1));
      }
    }
  }
}

// Names of `state_dict()` as transformers 5.23 gives them for one layer.
TEST(Arch, RowsKnowWhatTransformersWrites) {
  const char *llama[] = {"model.embed_tokens.weight",
                         "model.norm.weight",
                         "lm_head.weight",
                         "model.layers.0.input_layernorm.weight",
                         "model.layers.0.post_attention_layernorm.weight",
                         "model.layers.0.self_attn.q_proj.weight",
                         "model.layers.0.self_attn.q_proj.bias",
                         "model.layers.0.self_attn.k_proj.weight",
                         "model.layers.0.self_attn.k_proj.bias",
                         "model.layers.0.self_attn.v_proj.weight",
                         "model.layers.0.self_attn.v_proj.bias",
                         "model.layers.0.self_attn.o_proj.weight",
                         "model.layers.0.self_attn.o_proj.bias",
                         "model.layers.0.mlp.gate_proj.weight",
                         "model.layers.0.mlp.gate_proj.bias",
                         "model.layers.0.mlp.up_proj.weight",
                         "model.layers.0.mlp.up_proj.bias",
                         "model.layers.0.mlp.down_proj.weight",
                         "model.layers.0.mlp.down_proj.bias"};
  const char *gpt2[] = {"transformer.wte.weight",
                        "transformer.wpe.weight",
                        "transformer.ln_f.weight",
                        "transformer.ln_f.bias",
                        "lm_head.weight",
                        "transformer.h.0.ln_1.weight",
                        "transformer.h.0.ln_1.bias",
                        "transformer.h.0.attn.c_attn.weight",
                        "transformer.h.0.attn.c_attn.bias",
                        "transformer.h.0.attn.c_proj.weight",
                        "transformer.h.0.attn.c_proj.bias",
                        "transformer.h.0.ln_2.weight",
                        "transformer.h.0.ln_2.bias",
                        "transformer.h.0.mlp.c_fc.weight",
                        "transformer.h.0.mlp.c_fc.bias",
                        "transformer.h.0.mlp.c_proj.weight",
                        "transformer.h.0.mlp.c_proj.bias"};
  uint64_t numbers[2];
  for (const char *name : llama) EXPECT_NE(ckpt_arch_match(ckpt_arch_find("llama"), name, numbers), nullptr) << name;
  for (const char *name : gpt2) EXPECT_NE(ckpt_arch_match(ckpt_arch_find("gpt2"), name, numbers), nullptr) << name;
  const std::pair<const char *, const char *> more[] = {
      {"qwen2", "model.layers.0.self_attn.k_proj.bias"},
      {"qwen3", "model.layers.0.self_attn.k_norm.weight"},
      {"mixtral", "model.layers.0.block_sparse_moe.experts.7.w2.weight"},
      {"gemma2", "model.layers.0.pre_feedforward_layernorm.weight"},
      {"gpt_neox", "gpt_neox.layers.0.attention.query_key_value.weight"}};
  for (const auto &[family, name] : more)
    EXPECT_NE(ckpt_arch_match(ckpt_arch_find(family), name, numbers), nullptr) << name;
  const ckpt_arch_name *mask = ckpt_arch_match(ckpt_arch_find("gpt2"), "transformer.h.3.attn.bias", numbers);
  ASSERT_NE(mask, nullptr);
  EXPECT_EQ(mask->role, CKPT_ROLE_BUFFER);
}

}  // namespace
