// What of a LoraConfig is trained as PEFT trains it, and what is refused by name. Curves:
// Train.FollowsTheTrainerWithPeft.
#include "tests/trainer/loop/train_case.h"

using namespace training;

namespace {

class Lora : public Train {
 protected:
  Outcome with(const std::string &config, const std::string &words = "", const std::string &model = "llama") {
    std::ofstream(at("lora.json")) << config;
    fs::remove_all(at("run"));
    return train("run", "--max_steps 1 --quiet --save_strategy no --lora " + at("lora.json") + " " + words, model);
  }
};

TEST_F(Lora, KeysThatPeftDoesNotKnowAreRefused) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"r": 4, "lora_aplha": 64})", "lora_aplha: PEFT's LoraConfig has no such key"},
      {R"({"use_dora": 1})", "use_dora 1: it is of another kind than PEFT's"},
      {R"({"use_dora": "true"})", "use_dora \"true\""},
      {R"({"use_rslora": "x"})", "use_rslora \"x\""},
      {R"({"lora_dropout": "x"})", "lora_dropout \"x\""},
      {R"({"modules_to_save": "lm_head"})", "modules_to_save \"lm_head\""},
      {R"({"rank_pattern": []})", "rank_pattern []"},
      {R"({"target_modules": 3})", "target_modules 3"},
      {R"({"task_type": "SEQ_CLS"})", "task_type \"SEQ_CLS\": it has to be CAUSAL_LM"},
      {R"({"ensure_weight_tying": true})", "ensure_weight_tying true: it is not there yet"},
      {R"({"layers_to_transform": ["1"]})", "layers_to_transform [\"1\"]: it has to be a number or a list of numbers"},
      {R"({"layers_to_transform": 1, "target_modules": "all-linear"})", "target_modules has to be a list beside it"},
      {R"({"layers_to_transform": 7})", "target_modules [\"q_proj\",\"v_proj\"]: no linear layer"},
      {R"({"layers_pattern": "layers"})", "layers_pattern \"layers\": layers_to_transform is not given"},
      {R"({"modules_to_save": ["nope"]})", "modules_to_save [\"nope\"]: the model has no such module"},
      {R"({"target_modules": ["q_proj", "embed_tokens"]})", "adapters of embeddings are not trained"},
      {R"+({"target_modules": ".*(q_proj|embed_tokens)"})+", "adapters of embeddings are not trained"}};
  for (const auto &[config, message] : wrong) {
    const Outcome done = with(config);
    EXPECT_NE(done.code, 0) << config;
    EXPECT_NE(done.text.find(message), std::string::npos) << config << "\n" << done.text;
  }
  EXPECT_EQ(with(R"({"modules_to_save": ["nope", "lm_head"]})").code, 0);
  EXPECT_EQ(with(R"({"a_key_of_a_later_peft": null, "another": false, "peft_version": "0.99"})").code, 0);
}

// Names and expressions mean what they mean to a merge: what is excluded is no target, and no expression is cut.
TEST_F(Lora, ModulesAreThoseOfAMerge) {
  const std::string modules = ".*(q_proj|embed_tokens)|" + std::string(2000, 'x');
  ASSERT_EQ(with(R"({"r": 2, "target_modules": ")" + modules + R"(", "exclude_modules": ["embed_tokens"]})").code, 0);
  size_t n = 0;
  for (const auto &[name, tensor] : tensors("run")) n += name.find(".q_proj.lora_A.weight") != std::string::npos;
  EXPECT_EQ(n, 2u);
  const Outcome done = with(R"({"r": 2, "target_modules": "q_proj(", "rank_pattern": {}})");
  EXPECT_NE(done.code, 0);
  EXPECT_NE(done.text.find("'q_proj('"), std::string::npos) << done.text;
}

TEST_F(Lora, TensorsThatTheConfigDoesNotTrainAreRefused) {
  fs::copy(data_folder + "lora-dora", at("given"));
  fs::permissions(at("given"), fs::perms::owner_all);
  std::string config = bytes("given/adapter_config.json");
  ASSERT_NE(config.find("\"down_proj\""), std::string::npos);
  config.replace(config.find("\"down_proj\""), 11, "\"q_proj\"");
  fs::remove(at("given/adapter_config.json"));
  std::ofstream(at("given/adapter_config.json")) << config;
  const Outcome done = train("run", "--max_steps 1 --quiet --save_strategy no --lora " + at("given"));
  EXPECT_NE(done.code, 0);
  EXPECT_NE(done.text.find("is no part of what its adapter_config.json trains"), std::string::npos) << done.text;
}

// DoRA begins as the same adapter without it: magnitudes are the norms of what the layer computes.
TEST_F(Lora, DoraBeginsAsLora) {
  const std::string common = R"({"r": 4, "target_modules": "all-linear", "init_lora_weights": false, "use_dora": )";
  ASSERT_EQ(with(common + "false}").code, 0);
  const double plain = log("run").at(0).loss;
  ASSERT_EQ(with(common + "true}").code, 0);
  EXPECT_NEAR(log("run").at(0).loss, plain, 2e-6);
  ASSERT_EQ(with(common + "false}", "", "gpt2").code, 0);
  const double turned = log("run").at(0).loss;
  ASSERT_EQ(with(common + "true}", "", "gpt2").code, 0);
  EXPECT_NEAR(log("run").at(0).loss, turned, 2e-6);
}

// One name of a tied tensor is trained apart from the other, which stays as it was.
TEST_F(Lora, OneNameOfATiedTensorIsTrainedByItself) {
  for (const std::string name : {"embed_tokens", "lm_head"}) {
    ASSERT_EQ(with(R"({"r": 2, "target_modules": ["q_proj"], "modules_to_save": [")" + name + "\"]}", "", "qwen2").code,
              0);
    const auto saved = tensors("run");
    EXPECT_EQ(saved.count("base_model.model.model.embed_tokens.weight"), name == "embed_tokens" ? 1u : 0u);
    EXPECT_EQ(saved.count("base_model.model.lm_head.weight"), name == "lm_head" ? 1u : 0u);
  }
}

}  // namespace
