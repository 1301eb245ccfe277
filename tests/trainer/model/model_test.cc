// Configs: what cannot be is refused by key and number, what cannot be run by name; the table is the model's own.
#include "tests/trainer/model/tape_case.h"

extern "C" {
#include "trainer/model/op.h"
}

namespace {

using tape::Index;
using tape::Model;

const std::string kLlama =
    R"("vocab_size": 50, "hidden_size": 24, "intermediate_size": 33, "num_hidden_layers": 1, "num_attention_heads": 4)";
const std::string kGpt2 = R"("model_type": "gpt2", "vocab_size": 50, "n_embd": 24, "n_layer": 1, "n_head": 2)";

std::string Refusal(const std::string &config, ckpt_status expected = CKPT_EFORMAT) {
  Model model("{" + config + "}", true);
  EXPECT_EQ(model.status, expected) << config << ": " << model.err.message;
  EXPECT_EQ(model.model, nullptr);
  return model.err.message;
}

TEST(ModelConfig, WhatCannotBeIsRefused) {
  const std::string llama = R"("model_type": "llama", )" + kLlama;
  EXPECT_EQ(Refusal(R"("x": 1)"), "has neither architectures nor model_type");
  EXPECT_EQ(Refusal(R"("model_type": "llama")"), "has no vocab_size, without which no model is made");
  EXPECT_EQ(Refusal(R"("model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 8,
                       "num_hidden_layers": 1, "num_attention_heads": 0)"),
            "num_attention_heads is 0, which cannot be (1 to 65536)");
  EXPECT_EQ(Refusal(llama + R"(, "num_key_value_heads": 3)"),
            "num_attention_heads 4 is no multiple of num_key_value_heads 3");
  EXPECT_EQ(Refusal(llama + R"(, "num_key_value_heads": 0)"), "num_key_value_heads is 0, which cannot be (1 to 65536)");
  EXPECT_EQ(Refusal(llama + R"(, "head_dim": 7)", CKPT_EUNSUPPORTED),
            "heads of width 7 cannot be run (even, at most 256)");
  EXPECT_EQ(Refusal(llama + R"(, "head_dim": 512)", CKPT_EUNSUPPORTED),
            "heads of width 512 cannot be run (even, at most 256)");
  EXPECT_EQ(Refusal(llama + R"(, "rms_norm_eps": "x")"), "rms_norm_eps is \"x\", which cannot be (0 to 1)");
  EXPECT_EQ(Refusal(llama + R"(, "max_position_embeddings": -1)"),
            "max_position_embeddings is -1, which cannot be (1 to 1073741824)");
  EXPECT_EQ(Refusal(llama + R"(, "attention_bias": 1)"), "attention_bias is 1, which cannot be (true or false)");
  EXPECT_EQ(Refusal(kGpt2 + R"(, "n_inner": 0)"), "n_inner is 0, which cannot be (1 to 16777216)");
  EXPECT_EQ(Refusal(R"("model_type": "gpt2", "vocab_size": 50, "n_embd": 24, "n_layer": 1, "n_head": 5)"),
            "n_embd 24 is no multiple of n_head 5");
}

TEST(ModelConfig, RopeIsRefusedByNameAndFactor) {
  const std::string llama = R"("model_type": "llama", )" + kLlama;
  for (const char *section : {"rope_scaling", "rope_parameters"}) {
    const std::string key = section, open = llama + ", \"" + key + "\": ";
    EXPECT_EQ(Refusal(open + R"({"rope_type": "yarn", "factor": 2})", CKPT_EUNSUPPORTED),
              "rope of type 'yarn' cannot be run yet (default, linear, llama3)");
    EXPECT_EQ(Refusal(open + R"({"type": "dynamic"})", CKPT_EUNSUPPORTED),
              "rope of type 'dynamic' cannot be run yet (default, linear, llama3)");
    EXPECT_EQ(Refusal(open + R"({"rope_type": "linear"})"), "has no " + key + ".factor, which its rope type needs");
    EXPECT_EQ(Refusal(open + R"({"rope_type": "linear", "factor": [1, 2]})"),
              key + ".factor is [1,2], which cannot be (1e-09 to 1e+09)");
    EXPECT_EQ(Refusal(open + R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})"),
              "high_freq_factor 4 is not above low_freq_factor 4");
    EXPECT_EQ(Refusal(open + R"({"rope_type": "default", "partial_rotary_factor": 0.5})", CKPT_EUNSUPPORTED),
              key + ".partial_rotary_factor 0.5: part of a head cannot be rotated yet");
  }
}

// What a model rotates by: the state of its table.
std::vector<float> Frequencies(const std::string &rope) {
  Model model(R"({"model_type": "llama", )" + kLlama + rope + "}", true);
  EXPECT_EQ(model.status, CKPT_OK) << model.err.message;
  for (uint32_t i = 0; model.model != nullptr && i < model.model->tape.n_entries; i++) {
    const ckpt_tape_entry *entry = &model.model->tape.entries[i];
    if (entry->op != CKPT_OP_rope_table) continue;
    std::vector<float> all(ckpt_tape_ops[entry->op]->state_bytes(entry) / sizeof(float));
    ckpt_tape_ops[entry->op]->state(entry, all.data());
    return all;
  }
  return {};
}

// longrope is run where its factors are one list; so a GGUF file's own are.
TEST(ModelConfig, FactorsOfFrequencies) {
  const std::string open = R"(, "rope_scaling": {"rope_type": "longrope", )", own = R"("short_factor": [1, 2, 1.5], )",
                    one = R"("attention_factor": 1.0, )", all = R"("long_factor": [1, 2, 1.5]})";
  const std::vector<float> plain = Frequencies(""), scaled = Frequencies(open + one + own + all);
  const float factors[] = {1, 2, 1.5};
  ASSERT_EQ(plain.size(), 3U);
  ASSERT_EQ(scaled.size(), 3U);
  for (size_t i = 0; i < 3; i++) EXPECT_FLOAT_EQ(scaled[i], plain[i] / factors[i]);
  const std::string llama = R"("model_type": "llama", )" + kLlama + open;
  for (const std::string &other : {own + all, R"("attention_factor": 1.2, )" + own + all, one + all,
                                   one + own + R"("long_factor": [1, 2, 1.6]})", one + own + R"("long_factor": [1]})"})
    EXPECT_EQ(Refusal(llama + other, CKPT_EUNSUPPORTED),
              "rope of type 'longrope' cannot be run yet but with attention_factor 1, and 3 factors in short_factor "
              "that are those of long_factor");
  EXPECT_EQ(Refusal(llama + one + R"("short_factor": [1, 0, 1], )" + all),
            "rope_scaling.short_factor.1 is 0, which cannot be (1.17549e-38 to 3.40282e+38)");
}

// A value of another type is no default.
TEST(ModelConfig, TypesAreRefusedByKey) {
  const std::string llama = R"("model_type": "llama", )" + kLlama;
  const std::pair<std::string, std::string> wrong[] = {
      {llama + R"(, "rope_parameters": 5)", "rope_parameters is 5, which cannot be (an object)"},
      {llama + R"(, "rope_parameters": ["llama3"])", "rope_parameters is [\"llama3\"], which cannot be (an object)"},
      {llama + R"(, "rope_scaling": "llama3")", "rope_scaling is \"llama3\", which cannot be (an object)"},
      {llama + R"(, "rope_parameters": {"rope_type": "default"}, "rope_scaling": {"factor": 2, "rope_type": 3})",
       "rope_scaling.rope_type is 3, which cannot be (a text)"},
      {llama + R"(, "rope_parameters": {"rope_type": 3})", "rope_parameters.rope_type is 3, which cannot be (a text)"},
      {llama + R"(, "rope_scaling": {"type": ["x"]})", "rope_scaling.type is [\"x\"], which cannot be (a text)"},
      {llama + R"(, "hidden_act": 7)", "hidden_act is 7, which cannot be (a text)"},
      {llama + R"(, "hidden_act": ["relu"])", "hidden_act is [\"relu\"], which cannot be (a text)"},
      {kGpt2 + R"(, "activation_function": ["relu"])", "activation_function is [\"relu\"], which cannot be (a text)"},
      {R"("model_type": 5, )" + kLlama, "model_type is 5, which cannot be (a text)"},
      {R"("architectures": ["LlamaForCausalLM"], "model_type": ["x"], )" + kLlama,
       "model_type is [\"x\"], which cannot be (a text)"},
      {R"("architectures": "LlamaForCausalLM", )" + llama,
       "architectures is \"LlamaForCausalLM\", which cannot be (a list of texts)"},
      {R"("architectures": [1], )" + llama, "architectures.0 is 1, which cannot be (a text)"},
  };
  for (const auto &[config, message] : wrong) EXPECT_EQ(Refusal(config), message);
  for (const char *none : {"\"rope_parameters\": null", "\"rope_scaling\": {}", "\"hidden_act\": null"})
    EXPECT_EQ(Model("{" + llama + ", " + none + "}", true).status, CKPT_OK) << none;
}

TEST(ModelConfig, UnknownFamiliesAndActivationsAreNamed) {
  EXPECT_EQ(Refusal(R"("model_type": "gemma2")", CKPT_EUNSUPPORTED), "models of type 'gemma2' cannot be run yet");
  EXPECT_EQ(Refusal(R"("architectures": ["LlamaForTokenClassification"], )" + kLlama, CKPT_EUNSUPPORTED),
            "'LlamaForTokenClassification' cannot be run yet");
  EXPECT_EQ(Refusal(R"("architectures": ["LlamaForSequenceClassification"], )" + kLlama, CKPT_EUNSUPPORTED),
            "'LlamaForSequenceClassification' gives labels, not tokens: `ckpt logits` alone can run it");
  EXPECT_EQ(Refusal(R"("model_type": "llama", "hidden_act": "relu", )" + kLlama, CKPT_EUNSUPPORTED),
            "hidden_act 'relu' cannot be run yet (silu)");
  EXPECT_EQ(Refusal(kGpt2 + R"(, "activation_function": "relu")", CKPT_EUNSUPPORTED),
            "activation_function 'relu' cannot be run yet (gelu, gelu_new)");
  EXPECT_EQ(Refusal(kGpt2 + R"(, "add_cross_attention": true)", CKPT_EUNSUPPORTED),
            "cross attention cannot be run yet");
}

// Windows by layer, as each class has them; null says that there is none.
TEST(ModelConfig, Windows) {
  auto windows = [](const std::string &config) {
    Model model("{" + config + "}", false);
    EXPECT_EQ(model.status, CKPT_OK) << model.err.message;
    std::string out;
    for (uint32_t i = 0; model.model != nullptr && i < model.model->tape.n_entries; i++)
      if (model.model->tape.entries[i].op == CKPT_OP_attention)
        out += std::to_string(model.model->tape.entries[i].attributes.window) + " ";
    return out;
  };
  const std::string two = R"("vocab_size": 50, "hidden_size": 32, "intermediate_size": 33, "num_hidden_layers": 2,
                             "num_attention_heads": 8, "num_key_value_heads": 2, )";
  EXPECT_EQ(windows(two + R"("model_type": "llama", "sliding_window": 5)"), "0 0 ");
  EXPECT_EQ(windows(two + R"("model_type": "mistral", "sliding_window": 5)"), "5 5 ");
  EXPECT_EQ(windows(two + R"("model_type": "mistral", "sliding_window": null)"), "0 0 ");
  EXPECT_EQ(windows(two + R"("model_type": "mistral")"), "4096 4096 ");
  EXPECT_EQ(windows(two + R"("model_type": "qwen2", "sliding_window": 5, "max_window_layers": 1)"), "0 0 ");
  const std::string qwen = two + R"("model_type": "qwen2", "use_sliding_window": true, "sliding_window": 5)";
  EXPECT_EQ(windows(qwen + R"(, "max_window_layers": 1)"), "0 5 ");
  EXPECT_EQ(windows(qwen + R"(, "layer_types": ["sliding_attention", "full_attention"])"), "5 0 ");
}

TEST(ModelTable, IsTheModelsOwnInItsOrder) {
  Model model("{" + kLlama + R"(, "model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": true,
                                   "pad_token_id": 7})",
              true);
  ASSERT_EQ(model.status, CKPT_OK) << model.err.message;
  uint32_t n;
  const ckpt_parameter *p = ckpt_model_parameters(model.model, &n);
  const std::vector<std::string> expected = {"model.embed_tokens.weight",
                                             "model.layers.0.self_attn.q_proj.weight",
                                             "model.layers.0.self_attn.q_proj.bias",
                                             "model.layers.0.self_attn.k_proj.weight",
                                             "model.layers.0.self_attn.k_proj.bias",
                                             "model.layers.0.self_attn.v_proj.weight",
                                             "model.layers.0.self_attn.v_proj.bias",
                                             "model.layers.0.self_attn.o_proj.weight",
                                             "model.layers.0.mlp.gate_proj.weight",
                                             "model.layers.0.mlp.up_proj.weight",
                                             "model.layers.0.mlp.down_proj.weight",
                                             "model.layers.0.input_layernorm.weight",
                                             "model.layers.0.post_attention_layernorm.weight",
                                             "model.norm.weight"};
  ASSERT_EQ(n, expected.size());
  uint64_t offset = 0;
  for (uint32_t i = 0; i < n; i++) {
    EXPECT_EQ(p[i].name, expected[i]);
    EXPECT_EQ(p[i].offset, offset);
    EXPECT_EQ(p[i].offset % 16, 0U);
    EXPECT_EQ(p[i].decays, p[i].rank == 2) << p[i].name;
    offset += (p[i].n_elements + 15) / 16 * 16;
  }
  EXPECT_EQ(model.model->n_flat, offset);
  EXPECT_STREQ(p[0].tied_name, "lm_head.weight");
  EXPECT_EQ(ckpt_model_find(model.model, "lm_head.weight"), &p[0]);
  EXPECT_EQ(ckpt_model_find(model.model, "absent"), nullptr);
  EXPECT_EQ(p[0].zero_row, 7);
  EXPECT_EQ(p[1].split_axis, 0);
  EXPECT_EQ(p[7].split_axis, 1);
  EXPECT_EQ(p[13].split_axis, -1);
  EXPECT_EQ(p[2].init, CKPT_INIT_ZEROS);
  EXPECT_EQ(p[13].init, CKPT_INIT_ONES);
}

/* ---- loading
 * --------------------------------------------------------------------------------------------------------- */

struct Loading {
  Loading(const std::string &weights, const std::string &config) : index(weights), model(config, false) {
    EXPECT_EQ(model.status, CKPT_OK) << model.err.message;
    flat.assign(model.model->n_flat, -1);
  }
  ckpt_status Run(bool allow_missing) {
    ckpt_load_options options = {};
    options.struct_size = sizeof options, options.allow_missing = allow_missing;
    err = {};
    return ckpt_model_load(flat.data(), model.model, index.index, &options, &n_missing, &err);
  }
  Index index;
  Model model;
  std::vector<float> flat;
  uint32_t n_missing = 99;
  ckpt_error err = {};
};

std::string ConfigWith(const std::string &name, const std::string &from, const std::string &to) {
  std::string text = tape::FileText(tape::DataFolder() + name + "/config.json");
  EXPECT_NE(text.find(from), std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}

TEST(ModelLoad, CastsEveryTensorToItsPlaceAndLeavesGapsAlone) {
  const std::string folder = tape::DataFolder() + "gpt2";
  Loading l(folder, tape::FileText(folder + "/config.json"));
  ASSERT_EQ(l.Run(false), CKPT_OK) << l.err.message;
  EXPECT_EQ(l.n_missing, 0U);
  uint32_t n;
  const ckpt_parameter *p = ckpt_model_parameters(l.model.model, &n);
  size_t n_compared = 0;
  for (uint32_t i = 0; i < n; i++) {
    const std::vector<float> expected = l.index.Read<float>(p[i].name, CKPT_F32);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), l.flat.begin() + (long)p[i].offset)) << p[i].name;
    for (uint64_t j = p[i].offset + p[i].n_elements; j % 16 != 0; j++) EXPECT_EQ(l.flat[j], -1);
    n_compared += expected.size();
  }
  EXPECT_EQ(n_compared, l.model.model->n_elements);
}

TEST(ModelLoad, NamesWhatIsMissing) {
  Loading l(tape::DataFolder() + "gpt2", ConfigWith("gpt2", "\"n_layer\": 2", "\"n_layer\": 3"));
  EXPECT_EQ(l.Run(false), CKPT_ENOTFOUND);
  EXPECT_STREQ(l.err.tensor, "transformer.h.2.ln_1.weight");
  EXPECT_STREQ(l.err.message, "is not there, and GPT2LMHeadModel needs it (12 of 40 parameters are missing)");
  EXPECT_EQ(l.Run(true), CKPT_OK) << l.err.message;
  EXPECT_EQ(l.n_missing, 12U);
}

TEST(ModelLoad, NamesAWrongShape) {
  Loading l(tape::DataFolder() + "gpt2", ConfigWith("gpt2", "\"vocab_size\": 61", "\"vocab_size\": 62"));
  EXPECT_EQ(l.Run(false), CKPT_EFORMAT);
  EXPECT_STREQ(l.err.tensor, "transformer.wte.weight");
  EXPECT_STREQ(l.err.message, "has shape [61, 24] of rank 2, the model's config makes it [62, 24] of rank 2");
}

}  // namespace
