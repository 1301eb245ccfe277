// Tied weights, heads and sizes of vocabularies of families without a row, over bases that a test writes. What the
// models compute is compared with PEFT's in tests/interop/test_peft.py.
#include "tests/libckpt/recipe/adapter_testing.h"

namespace {

struct Tensor {
  std::string name;
  std::vector<size_t> shape;
  float first = 1, step = 0;  // values
};

std::string Stored(const std::vector<Tensor> &tensors) {
  std::string header, data;
  for (const Tensor &tensor : tensors) {
    const size_t begin = data.size();
    size_t n = 1;
    std::string shape;
    for (size_t axis : tensor.shape) {
      n *= axis;
      shape += (shape.empty() ? "" : ",") + std::to_string(axis);
    }
    for (size_t i = 0; i < n; i++) {
      const float value = tensor.first + tensor.step * static_cast<float>(i);
      data.append(reinterpret_cast<const char *>(&value), 4);
    }
    header += (header.empty() ? "\"" : ",\"") + tensor.name + R"(":{"dtype":"F32","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  return Header(header) + data;
}

// Over 8 tokens of 4 elements; every adapter has rank 2 and scale 2.
class OfAClass : public Refused {
 protected:
  const std::string peft_ = R"("peft_type":"LORA","r":2,"lora_alpha":4)", in_ = "base_model.model.";
  void write_base(const std::string &config, const std::vector<Tensor> &tensors) {
    adapters_.reset();
    base_.reset();
    folder_.write("base/config.json", "{" + config + "}");
    folder_.write("base/model.safetensors", Stored(tensors));
    base_ = Open(folder_ / "base");
  }
  void write_adapter(const std::vector<Tensor> &tensors, const std::string &config = "") {
    write("{" + peft_ + config + "}", Stored(tensors));
  }
  // An update of a module: of an embedding, 2 * 2 * 0.25 = 1 everywhere; of a head the same.
  std::vector<Tensor> embedding(const std::string &module) {
    return {{in_ + module + ".lora_embedding_A", {2, 8}, 0.5}, {in_ + module + ".lora_embedding_B", {4, 2}, 0.5}};
  }
  std::vector<Tensor> head(const std::string &module) {
    return {{in_ + module + ".lora_A.weight", {2, 4}, 0.5}, {in_ + module + ".lora_B.weight", {8, 2}, 0.5}};
  }
  std::string refusal() { return open_written() == CKPT_OK ? "" : text_of(err_); }
  std::map<std::string, std::vector<float>> untied() {
    options_.tied = "untie";
    EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
    return adapters_ == nullptr ? std::map<std::string, std::vector<float>>() : merge();
  }
  static std::string class_of(const std::string &name, const std::string &rest = "") {
    return R"("model_type":"any","vocab_size":8,"architectures":[")" + name + "\"]" + rest;
  }
  const std::vector<float> as_stored_ = std::vector<float>(32, 1), changed_ = std::vector<float>(32, 2);
};

TEST_F(OfAClass, HeadsBecomeTensorsOfTheNameThatTheClassHas) {
  const struct {
    const char *name, *kept, *tied;
  } cases[] = {{"BertForMaskedLM", "bert.embeddings.word_embeddings", "cls.predictions.decoder"},
               {"BertLMHeadModel", "bert.embeddings.word_embeddings", "cls.predictions.decoder"},
               {"DebertaV2ForMaskedLM", "deberta.embeddings.word_embeddings", "cls.predictions.decoder"},
               {"RobertaForMaskedLM", "roberta.embeddings.word_embeddings", "lm_head.decoder"},
               {"ModernBertForMaskedLM", "model.embeddings.tok_embeddings", "decoder"},
               {"DistilBertForMaskedLM", "distilbert.embeddings.word_embeddings", "vocab_projector"},
               {"WhisperForConditionalGeneration", "model.decoder.embed_tokens", "proj_out"},
               {"ElectraForMaskedLM", "electra.embeddings.word_embeddings", "generator_lm_head"},
               {"AlbertForMaskedLM", "albert.embeddings.word_embeddings", "predictions.decoder"},
               {"BioGptForCausalLM", "biogpt.embed_tokens", "output_projection"},
               {"OPTForCausalLM", "model.decoder.embed_tokens", "lm_head"},
               {"OpenAIGPTLMHeadModel", "transformer.tokens_embed", "lm_head"},
               {"XLNetLMHeadModel", "transformer.word_embedding", "lm_loss"},
               {"CTRLLMHeadModel", "transformer.w", "lm_head"}};
  for (const auto &c : cases) {
    SCOPED_TRACE(c.name);
    const std::string kept = c.kept, tied = c.tied;
    write_base(class_of(c.name), {{kept + ".weight", {8, 4}}});
    options_.tied = nullptr;
    write_adapter(embedding(kept));
    EXPECT_NE(refusal().find("'" + tied + ".weight' is tied to '" + kept), std::string::npos) << text_of(err_);
    auto merged = untied();
    EXPECT_EQ(merged.size(), 2u);
    EXPECT_EQ(merged[kept + ".weight"], changed_);
    EXPECT_EQ(merged[tied + ".weight"], as_stored_);
    write_adapter(head(tied));
    merged = untied();
    EXPECT_EQ(merged[kept + ".weight"], as_stored_);
    EXPECT_EQ(merged[tied + ".weight"], changed_);
    EXPECT_NE(merged_config().find(R"("tie_word_embeddings": false)"), std::string::npos);
  }
}

TEST_F(OfAClass, TheBiasOfAHeadGoesWithIt) {
  const std::string words = "bert.embeddings.word_embeddings", bias = "cls.predictions.bias",
                    tied = "cls.predictions.decoder.bias";
  write_base(class_of("BertForMaskedLM"), {{words + ".weight", {8, 4}}, {bias, {8}, 3}});
  write_adapter(embedding(words));
  auto merged = untied();
  EXPECT_EQ(merged.size(), 4u);
  EXPECT_EQ(merged[tied], std::vector<float>(8, 3));
  // PEFT's bias="all" saves it under both names.
  options_.tied = nullptr;
  write_adapter({{in_ + bias, {8}, 5}, {in_ + tied, {8}, 5}}, R"(,"bias":"all")");
  ASSERT_EQ(refusal(), "");
  merged = merge();
  EXPECT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[bias], std::vector<float>(8, 5));
  write_adapter({{in_ + bias, {8}, 5}, {in_ + tied, {8}, 6}}, R"(,"bias":"all")");
  EXPECT_NE(refusal().find("they would differ"), std::string::npos) << text_of(err_);
  merged = untied();
  EXPECT_EQ(merged[tied], std::vector<float>(8, 6));
  EXPECT_EQ(merged["cls.predictions.decoder.weight"], as_stored_);
}

TEST_F(OfAClass, AllNamesOfAnEmbeddingBecomeTensors) {
  const std::string bart = class_of("BartForConditionalGeneration");
  write_base(bart, {{"model.shared.weight", {8, 4}}});
  for (const std::string module : {"lm_head", "model.decoder.embed_tokens", "model.encoder.embed_tokens"}) {
    write_adapter(module == "lm_head" ? head(module) : embedding(module));
    auto merged = untied();
    EXPECT_EQ(merged.size(), 4u);
    for (const auto &[name, values] : merged) EXPECT_EQ(values, name == module + ".weight" ? changed_ : as_stored_);
  }
  // What is the same for two of the names is none the less written for both.
  std::vector<Tensor> three = embedding("model.shared"), more = embedding("model.encoder.embed_tokens");
  three.insert(three.end(), more.begin(), more.end());
  write_adapter(three);
  auto merged = untied();
  EXPECT_EQ(merged["model.encoder.embed_tokens.weight"], changed_);
  EXPECT_EQ(merged["model.decoder.embed_tokens.weight"], as_stored_);
}

TEST_F(OfAClass, T5ScalesByTheTieUnlessTheConfigSaysSo) {
  for (const bool is_said : {false, true}) {
    write_base(class_of("T5ForConditionalGeneration", is_said ? R"(,"scale_decoder_outputs":true)" : ""),
               {{"shared.weight", {8, 4}}});
    write_adapter(embedding("shared"));
    options_.tied = "untie";
    const std::string message = refusal();
    EXPECT_EQ(message.find("ties them whatever config.json says") != std::string::npos, !is_said) << message;
    if (!is_said) continue;
    auto merged = merge();
    EXPECT_EQ(merged["shared.weight"], changed_);
    EXPECT_EQ(merged["decoder.embed_tokens.weight"], as_stored_);
    EXPECT_EQ(merged.size(), 4u);
  }
}

TEST_F(OfAClass, AnEmbeddingMayBeTheHeadWhereNothingSaysOtherwise) {
  const std::string words = "decoder.words", message = "the base stores no output head";
  const std::string nested = R"("model_type":"any","architectures":["SomeForCausalLM"],"decoder":{"vocab_size":8})";
  for (const std::string &config : {class_of("SomeForCausalLM"), class_of("EncoderDecoderModel"), nested}) {
    write_base(config, {{words + ".weight", {8, 4}}, {"position.weight", {6, 4}}, {"attention.output.weight", {4, 4}}});
    write_adapter(embedding(words));
    for (const char *tied : {"keep", "untie", "error"}) {
      options_.tied = tied;
      EXPECT_NE(refusal().find(message), std::string::npos) << config << text_of(err_);
    }
    options_.tied = nullptr;
    write_adapter({{in_ + words + ".weight", {8, 4}, 3}});
    EXPECT_NE(refusal().find(message), std::string::npos) << config << text_of(err_);
    write_adapter({{in_ + "position.weight", {6, 4}, 3}});
    EXPECT_EQ(refusal(), "");
  }
  const std::vector<Tensor> alone = {{words + ".weight", {8, 4}}};
  std::vector<Tensor> two = alone;
  two.push_back({"lm_head.weight", {8, 4}});
  write_adapter(embedding(words));
  write_base(class_of("SomeForCausalLM", R"(,"tie_word_embeddings":false)"), alone);
  EXPECT_EQ(refusal(), "");
  write_base(class_of("SomeModel"), alone);
  EXPECT_EQ(refusal(), "");
  write_base(class_of("SomeForCausalLM"), two);
  EXPECT_EQ(refusal(), "");
}

TEST_F(OfAClass, RowsAreTheHeadsTooBeforeItsUpdate) {
  const std::string rows = in_ + "model.embed_tokens.token_adapter.trainable_tokens_delta";
  for (const std::string config : {R"([1,5])", R"({"embed_tokens":[1,5]})"}) {
    write_base(class_of("OPTForCausalLM"), {{"model.embed_tokens.weight", {8, 4}}});
    std::vector<Tensor> tensors = head("lm_head");
    tensors.push_back({rows, {2, 4}, 7});
    write_adapter(tensors, R"(,"trainable_token_indices":)" + config);
    auto merged = untied();
    for (size_t i = 0; i < 32; i++) {
      const float base = i / 4 == 1 || i / 4 == 5 ? 7.0F : 1.0F;
      EXPECT_EQ(merged["model.embed_tokens.weight"][i], base);
      EXPECT_EQ(merged["lm_head.weight"][i], base + 1);
    }
  }
}

TEST_F(OfAClass, NeoXCallsItsHeadOtherwiseThanFilesDo) {
  write_base(R"("model_type":"gpt_neox","architectures":["GPTNeoXForCausalLM"],"vocab_size":8)",
             {{"gpt_neox.embed_in.weight", {8, 4}}, {"embed_out.weight", {8, 4}}});
  write_adapter(head("lm_head"), R"(,"target_modules":["lm_head"])");
  ASSERT_EQ(refusal(), "");
  EXPECT_EQ(merge()["embed_out.weight"], changed_);
  write_adapter({{in_ + "lm_head.weight", {8, 4}, 2}}, R"(,"modules_to_save":["lm_head"])");
  ASSERT_EQ(refusal(), "");
  auto merged = merge();
  EXPECT_EQ(merged["embed_out.weight"], changed_);
  EXPECT_EQ(merged.size(), 2u);
}

// ---- other sizes ----------------------------------------------------------------------------------------------------

TEST_F(OfAClass, OfTwoCopiesTheTrainedOneCounts) {
  const std::string head = in_ + "lm_head.", words = in_ + "model.embed_tokens.";
  write_base(class_of("OPTForCausalLM", R"(,"tie_word_embeddings":false)"),
             {{"model.embed_tokens.weight", {8, 4}}, {"lm_head.weight", {8, 4}}});
  write_adapter({{head + "modules_to_save.weight", {9, 4}, 3},
                 {head + "original_module.weight", {9, 4}, 2},
                 {head + "weight", {9, 4}, 3},
                 {words + "modules_to_save.weight", {9, 4}, 4},
                 {words + "weight", {9, 4}, 5}},
                R"(,"modules_to_save":["embed_tokens","lm_head"])");
  ASSERT_EQ(refusal(), "");
  auto merged = merge();
  EXPECT_EQ(merged["lm_head.weight"], std::vector<float>(36, 3));
  EXPECT_EQ(merged["model.embed_tokens.weight"], std::vector<float>(36, 4));
  write_adapter({{head + "weight", {8, 4}, 3}, {"lm_head.weight", {8, 4}, 4}});
  const std::string message = refusal();
  EXPECT_TRUE(message.find("'base_model.model.lm_head.weight'") != std::string::npos &&
              message.find("'lm_head.weight'") != std::string::npos &&
              message.find("says the same of 'lm_head.weight'") != std::string::npos)
      << message;
}

TEST_F(OfAClass, RowsLieInTheEmbeddingThatTheyWereTrainedIn) {
  const std::string words = in_ + "model.embed_tokens.token_adapter.";
  write_base(class_of("OPTForCausalLM", R"(,"tie_word_embeddings":false)"),
             {{"model.embed_tokens.weight", {8, 4}}, {"lm_head.weight", {8, 4}}});
  write_adapter({{words + "base_layer.weight", {10, 4}, 2},
                 {words + "trainable_tokens_delta", {2, 4}, 3},
                 {in_ + "lm_head.weight", {10, 4}, 5}},
                R"(,"trainable_token_indices":[8,9])");
  ASSERT_EQ(refusal(), "");
  std::vector<float> wanted(40, 2);
  std::fill(wanted.begin() + 32, wanted.end(), 3.0F);
  EXPECT_EQ(merge()["model.embed_tokens.weight"], wanted);
  write_adapter({{words + "base_layer.weight", {10, 4}, 2},
                 {words + "trainable_tokens_delta", {2, 4}, 3},
                 {in_ + "lm_head.weight", {10, 4}, 5}},
                R"(,"trainable_token_indices":[9,10])");
  ASSERT_EQ(refusal(), "");
  ckpt_index *none = nullptr;
  EXPECT_EQ(ckpt_adapters_merge(&none, adapters_.get(), &err_), CKPT_EFORMAT);
}

TEST_F(OfAClass, WhatAnAdapterWasMadeForIsTheHeadToo) {
  write_base(class_of("OPTForCausalLM"), {{"model.embed_tokens.weight", {8, 4}}});
  std::vector<Tensor> tensors = {{in_ + "model.embed_tokens.lora_embedding_A", {2, 9}, 0.5},
                                 {in_ + "model.embed_tokens.lora_embedding_B", {4, 2}, 0.5},
                                 {in_ + "model.embed_tokens.base_layer.weight", {9, 4}, 3}};
  write_adapter(tensors);
  auto merged = untied();
  EXPECT_EQ(merged["model.embed_tokens.weight"], std::vector<float>(36, 4));
  EXPECT_EQ(merged["lm_head.weight"], std::vector<float>(36, 3));
}

// PEFT saves the embeddings of a model that was resized, under the names of input and output, and trains neither.
TEST_F(OfAClass, AResizedModelStaysTied) {
  const std::string config = class_of("T5ForConditionalGeneration");
  write_base(config, {{"shared.weight", {8, 4}}});
  write_adapter({{in_ + "shared.weight", {9, 4}, 3}, {in_ + "lm_head.weight", {9, 4}, 3}});
  ASSERT_EQ(refusal(), "");
  auto merged = merge();
  EXPECT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged["shared.weight"], std::vector<float>(36, 3));
  write_adapter({{in_ + "shared.token_adapter.base_layer.weight", {9, 4}, 2},
                 {in_ + "shared.token_adapter.trainable_tokens_delta", {1, 4}, 3},
                 {in_ + "lm_head.token_adapter.base_layer.weight", {9, 4}, 2},
                 {in_ + "lm_head.token_adapter.trainable_tokens_delta", {1, 4}, 3}},
                R"(,"trainable_token_indices":{"shared":[8]})");
  ASSERT_EQ(refusal(), "");
  merged = merge();
  EXPECT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged["shared.weight"][31], 2);
  EXPECT_EQ(merged["shared.weight"][32], 3);
  write_adapter({{in_ + "shared.weight", {9, 4}, 3}, {in_ + "lm_head.weight", {9, 4}, 3}},
                R"(,"modules_to_save":["shared","lm_head"])");
  EXPECT_NE(refusal().find("they would differ"), std::string::npos) << text_of(err_);
}

TEST_F(OfAClass, ABiasOfLogitsHasToGrowToo) {
  write_base(class_of("BartForConditionalGeneration"),
             {{"model.shared.weight", {8, 4}}, {"final_logits_bias", {1, 8}}});
  write_adapter({{in_ + "model.shared.weight", {9, 4}, 3}, {in_ + "lm_head.weight", {9, 4}, 3}});
  EXPECT_NE(refusal().find("'final_logits_bias': has 8 columns"), std::string::npos) << text_of(err_);
}

TEST_F(OfAClass, AVocabularyIsSetWhereTheConfigHasIt) {
  const std::string head = in_ + "lm_head.weight", words = in_ + "model.embed_tokens.weight";
  write_base(R"("model_type":"any","architectures":["OPTForCausalLM"],"tie_word_embeddings":false,)"
             R"("text_config": {"vocab_size": 8, "n": {"vocab_size": 7}}, "vision_config": {"vocab_size": 5})",
             {{"model.embed_tokens.weight", {8, 4}}, {"lm_head.weight", {8, 4}}});
  write_adapter({{words, {9, 4}, 3}, {head, {9, 4}, 3}});
  ASSERT_EQ(refusal(), "");
  const std::string text = merged_config();
  EXPECT_NE(
      text.find(R"("text_config": {"vocab_size": 9, "n": {"vocab_size": 7}}, "vision_config": {"vocab_size": 5}})"),
      std::string::npos)
      << text;
  write_base(R"("model_type":"any","architectures":["OPTForCausalLM"],"text_config":{"tie_word_embeddings":true})",
             {{"model.embed_tokens.weight", {8, 4}}});
  write_adapter({{words, {8, 4}, 3}});
  untied();
  EXPECT_NE(merged_config().find(R"("text_config":{"tie_word_embeddings":false})"), std::string::npos);
  EXPECT_NE(merged_config().find("\n  \"tie_word_embeddings\": false"), std::string::npos);
}

// ---- square matrices, prefixes, scales ------------------------------------------------------------------------------

TEST_F(OfAClass, SquareMatricesLieAsTheirSideOfTheModelHasThem) {
  const std::string linear = "encoder.encoder.layer.0.query", conv = "decoder.transformer.h.0.q_attn";
  const auto update = [&](const std::string &module, float first) {
    return std::vector<Tensor>{{in_ + module + ".lora_A.weight", {2, 4}, first, 1},
                               {in_ + module + ".lora_B.weight", {4, 2}, 1}};
  };
  const std::string sides = R"("encoder":{"model_type":"bert"},"decoder":{"model_type":"gpt2"})";
  for (const bool is_both : {false, true}) {
    write_base(R"("model_type":"encoder-decoder","architectures":["EncoderDecoderModel"],)" + sides,
               {{linear + ".weight", {4, 4}}, {conv + ".weight", {4, 4}}});
    std::vector<Tensor> tensors = update(conv, 0), more = update(linear, 0);
    if (is_both) tensors.insert(tensors.end(), more.begin(), more.end());
    write_adapter(tensors, R"(,"fan_in_fan_out":true)");
    ASSERT_EQ(refusal(), "");
    auto merged = merge();
    for (size_t i = 0; i < 16; i++) {
      const auto sum = [](size_t in) { return 1 + 2 * static_cast<float>(in + in + 4); };  // of both ranks
      EXPECT_EQ(merged[conv + ".weight"][i], sum(i / 4));
      if (is_both) {
        EXPECT_EQ(merged[linear + ".weight"][i], sum(i % 4));
      }
    }
  }
  write_base(R"("model_type":"other","architectures":["OtherModel"])", {{linear + ".weight", {4, 4}}});
  write_adapter(update(linear, 0), R"(,"fan_in_fan_out":true)");
  EXPECT_NE(refusal().find("is square (4 x 4)"), std::string::npos) << text_of(err_);
  write_adapter(update(linear, 0));
  EXPECT_EQ(refusal(), "");
}

TEST_F(OfAClass, ABareModelLacksAPrefixOfAnyName) {
  write_base(class_of("DebertaV2Model"), {{"encoder.query.weight", {8, 4}}});
  write_adapter(head("deberta.encoder.query"));
  ASSERT_EQ(refusal(), "");
  EXPECT_EQ(merge()["encoder.query.weight"], changed_);
  write_base(class_of("DebertaV2Model"), {{"encoder.query.weight", {8, 4}}, {"deberta.norm.weight", {4, 4}}});
  EXPECT_NE(refusal().find("has no 'deberta.encoder.query.weight'"), std::string::npos) << text_of(err_);
}

TEST_F(OfAClass, TheHeadThatAnotherTaskLacksIsLeftOut) {
  const std::string words = "bert.embeddings.word_embeddings";
  write_base(class_of("BertForMaskedLM"), {{words + ".weight", {8, 4}}, {"cls.predictions.bias", {8}}});
  std::vector<Tensor> tensors = embedding(words);
  tensors.push_back({in_ + "classifier.weight", {3, 4}});
  write_adapter(tensors, R"(,"task_type":"SEQ_CLS")");
  ASSERT_EQ(refusal(), "");
  auto merged = merge();
  EXPECT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[words + ".weight"], changed_);
  EXPECT_EQ(merged.count("classifier.weight"), 1u);
}

TEST_F(OfAClass, AScaleIsNoneOfWhatIsSavedWhole) {
  write_base(class_of("DebertaV2Model"), {{"encoder.query.weight", {8, 4}}, {"norm.weight", {4}}});
  std::vector<Tensor> tensors = head("encoder.query");
  tensors.push_back({in_ + "norm.weight", {4}, 3});
  write_adapter(tensors);
  const std::string path = folder_ / "adapter";
  for (const double scale : {1.0, 0.5}) {
    ASSERT_EQ(open_adapters(base_.get(), {{path.c_str(), scale}}), CKPT_OK) << text_of(err_);
    ckpt_index *merged = nullptr;
    ASSERT_EQ(ckpt_adapters_merge(&merged, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
    IndexPointer index(merged, ckpt_index_free);
    std::string notes;
    for (uint32_t i = 0; i < merged->n_notes; i++) notes += merged->notes[i].text;
    EXPECT_EQ(
        notes.find("the scale 0.5 is of updates: 'norm.weight' is as the adapter has saved it") != std::string::npos,
        scale != 1)
        << notes;
    EXPECT_EQ(Values(merged, ckpt_index_find(merged, "norm.weight")), std::vector<float>(4, 3));
  }
}

}  // namespace
