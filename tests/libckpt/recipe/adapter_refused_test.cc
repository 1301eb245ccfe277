// What of adapters is refused by name, warned of or left alone; and an adapter that is verified without its base.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/libckpt/recipe/adapter_testing.h"

extern "C" {
#include "libckpt/recipe/verify/verify.h"
}

namespace {

TEST_F(Refused, ConfigsThatSaySomethingElse) {
  expect(R"({"peft_type":"LOHA","r":4,"lora_alpha":8})", good_, "type LOHA");
  expect(R"({"r":4,"lora_alpha":8})", good_, "peft_type is missing");
  expect(R"({"peft_type":"LORA","r":0,"lora_alpha":8})", good_, "r is no positive number");
  expect(R"({"peft_type":"LORA","r":4})", good_, "lora_alpha is missing");
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":NaN})", good_, "lora_alpha is missing");
  expect(R"({"peft_type":"LORA","r":8,"lora_alpha":8})", good_, "has rank 8 here, its tensors have 4");
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"init_lora_weights":"pissa_niter_4"})", good_, "pissa_niter_4");
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"use_dora":true})", good_, "magnitude vector is missing");
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"alpha_pattern":{"q_proj":-1}})", good_, "no positive number");
  for (const char *rest : {R"("alpha_pattern":{"(":1}})", R"("rank_pattern":{"(":1}})", R"("target_modules":"("})"}) {
    expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,)" + std::string(rest), good_, "missing closing parenthesis");
    EXPECT_EQ(err_.status, CKPT_EFORMAT) << "a fault of the file";
  }
  for (const char *key : {"alpha_pattern", "rank_pattern"})
    for (const char *value : {R"(["q_proj",2])", R"("q_proj")", "2", "[]", "false"})
      expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,")" + std::string(key) + "\":" + value + "}", good_,
             std::string(key) + " is no object of patterns and numbers");
  write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"alpha_pattern":null,"rank_pattern":{}})", good_);
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
}

TEST_F(Refused, TensorsThatFitNothing) {
  expect(config_, Saved({{q_ + "lora_A.weight", 4, 16}}), "lora_B of this module is missing");
  expect(config_, Saved({{q_ + "lora_B.weight", 16, 4}}), "lora_A of this module is missing");
  expect(config_, Saved({{q_ + "lora_A.weight", 4, 15}, {q_ + "lora_B.weight", 16, 4}}), "its update is 16 x 15");
  expect(config_, Saved({{q_ + "lora_A.weight", 5, 16}, {q_ + "lora_B.weight", 16, 4}}), "its rank is 4");
  const std::string nowhere = "base_model.model.nowhere.";
  expect(config_, Saved({{nowhere + "lora_A.weight", 4, 16}, {nowhere + "lora_B.weight", 16, 4}}),
         "has no 'nowhere.weight'");
  expect(config_, Saved({{nowhere + "bias", 4, 16}}), "has no 'nowhere.bias'");
  expect(config_, Saved({{q_ + "lora_B.bias", 16, 1}}), "lora_B of this module is missing");
  expect(config_, Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_A.default.weight", 4, 16}}), "says the same of");
  expect(config_, Saved({{q_ + "lora_C.weight", 4, 16}}), "no part of a LoRA module");
  const auto shaped = [&](const std::string &a, const std::string &b, size_t n_a, size_t n_b) {
    return Header("\"" + q_ + R"(lora_A.weight":{"dtype":"F32","shape":)" + a + R"(,"data_offsets":[0,)" +
                  std::to_string(n_a) + "]},\"" + q_ + R"(lora_B.weight":{"dtype":"F32","shape":)" + b +
                  ",\"data_offsets\":[" + std::to_string(n_a) + "," + std::to_string(n_a + n_b) + "]}") +
           std::string(n_a + n_b, '\1');
  };
  expect(config_, shaped("[4,4,4]", "[16,4]", 256, 256), "its lora_A has 3 axes and lora_B 2, and 'model.layers.0");
  expect(config_, shaped("[4,16,1]", "[16,4]", 256, 256), "its lora_A has 3 axes and lora_B 2");
  expect(config_, shaped("[4,16]", "[16,4,1]", 256, 256), "its lora_A has 2 axes and lora_B 3");
}

// A file with several adapters says in each name whose the tensor is.
TEST_F(Refused, TensorsOfTwoAdaptersInOneFile) {
  const std::string k = "base_model.model.model.layers.0.self_attn.k_proj.";
  expect(config_, Saved({{q_ + "lora_A.one.weight", 4, 16}, {q_ + "lora_B.two.weight", 16, 4}}),
         "is of the adapter 'two', and");
  expect(config_,
         Saved({{q_ + "lora_A.one.weight", 4, 16},
                {q_ + "lora_B.one.weight", 16, 4},
                {k + "lora_A.two.weight", 4, 16},
                {k + "lora_B.two.weight", 8, 4}}),
         "of another");
  write(config_, Saved({{q_ + "lora_A.one.weight", 4, 16}, {q_ + "lora_B.one.weight", 16, 4}}));
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
}

// PEFT's module of a layer with factors has its weight as base_layer.weight.
TEST_F(Refused, AWholeTensorThatPeftWouldNotLoad) {
  const std::string lora_A = q_ + "lora_A.weight", lora_B = q_ + "lora_B.weight";
  const std::string ignored =
      "PEFT would not load this: the module has factors too, and so it is called "
      "model.layers.0.self_attn.q_proj.base_layer.weight there";
  expect(config_, Saved({{lora_A, 4, 16}, {lora_B, 16, 4}, {q_ + "weight", 16, 16}}), ignored);
  const std::string start =
      R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["layers.0.self_attn.q_proj"],)";
  const std::string model = "\"" + q_ + R"(bias":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},")" + q_ +
                            R"(lora_A.weight":{"dtype":"F32","shape":[4,16],"data_offsets":[64,320]},")" + q_ +
                            R"(lora_B.weight":{"dtype":"F32","shape":[16,4],"data_offsets":[320,576]})";
  expect(start + R"("bias":"none"})", Header(model) + std::string(576, '\1'), "q_proj.base_layer.bias there");
  write(start + R"("bias":"all"})", Header(model) + std::string(576, '\1')); /* as PEFT had it before base_layer */
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
}

// Products are in f32: what it does not hold is no scale, and what it holds as 0 changes nothing.
TEST_F(Refused, ScalesThatF32DoesNotHold) {
  const std::string path = folder_ / "adapter";
  const auto open_scaled = [&](double scale) { return open_adapters(base_.get(), {{path.c_str(), scale}}); };
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":1e300})", good_, "its scale is 2.5e+299, which no f32 holds");
  write(config_, good_);
  EXPECT_EQ(open_scaled(1e39), CKPT_EVALUE);
  EXPECT_NE(text_of(err_).find("its scale is 2e+39, which no f32 holds"), std::string::npos) << text_of(err_);
  EXPECT_EQ(open_scaled(1e-60), CKPT_EVALUE);
  EXPECT_NE(text_of(err_).find("its scale is so small that it is 0 in f32: the merged model would be the base"),
            std::string::npos)
      << text_of(err_);
  ASSERT_EQ(open_scaled(1e-30), CKPT_OK) << text_of(err_);
  ASSERT_EQ(open_scaled(1e38), CKPT_OK) << text_of(err_);
  ckpt_index *opened = nullptr;
  ASSERT_EQ(ckpt_adapters_merge(&opened, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
  IndexPointer merged(opened, ckpt_index_free);
  err_ = {};
  EXPECT_EQ(write_as(merged.get(), folder_ / "out.safetensors", CKPT_F32), CKPT_EVALUE);
  EXPECT_NE(text_of(err_).find("256 of its values do not fit f32, the largest is inf"), std::string::npos)
      << text_of(err_);
}

// What trainers save beside an adapter may belong to it.
TEST_F(Refused, OtherWeightsBesideTheAdapterAreAWarning) {
  bool is_warning = false;
  const std::string start =
      R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["layers.0.self_attn.q_proj"]})";
  for (const char *name : {"non_lora_trainables.bin", "adapter_model.bin"}) {
    write(start, good_);
    folder_.write("adapter/" + std::string(name), "PK");
    ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
    merged_config(&is_warning);
    EXPECT_TRUE(is_warning) << name;
    adapters_.reset();
    std::filesystem::remove(folder_ / "adapter/" + std::string(name));
  }
}

TEST_F(Refused, ValuesThatAreNotFiniteOrChangeNothing) {
  expect(config_, Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}}, NAN), "64 values are NaN");
  expect(config_, Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}}, INFINITY), "64 infinite");
  const std::string zero = Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}}, 0);
  expect(config_, zero, "every lora_B is zero, as if it was never trained");
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":0})", good_, "lora_alpha is 0: the merged model would be the base");
  const auto base = Values(base_.get(), ckpt_index_find(base_.get(), "model.norm.weight"));
  const std::string norm = "base_model.model.model.norm.weight";
  std::string header = Header("\"" + norm + R"(":{"dtype":"F32","shape":[16],"data_offsets":[0,64]})");
  header.append(reinterpret_cast<const char *>(base.data()), 64);
  expect(config_, header, "what it has the base has already");
  write(R"({"peft_type":"LORA","r":4,"lora_alpha":0,"alpha_pattern":{"q_proj":8}})", good_);
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
  write(R"({"peft_type":"LORA","r":4,"lora_alpha":0})",
        Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}, {norm, 1, 1}}));
  EXPECT_NE(open_written(), CKPT_EVALUE) << "its other tensor is no update";
  write(config_, zero);
  options_.allow_noop = true;
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
  EXPECT_EQ(adapters_ != nullptr, true);
}

TEST_F(Refused, EmptyTensorsAsZero3LeavesThem) {
  expect(config_, Saved({{q_ + "lora_A.weight", 0, 16}, {q_ + "lora_B.weight", 16, 4}}), "has no elements: ZeRO-3");
}

TEST_F(Refused, TargetsWithoutTensorsUnlessAllowed) {
  const std::string named = R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":)";
  expect(named + R"(["q_proj"]})", good_, "1 module that target_modules names has no tensors here: model.layers.1");
  expect(named + R"(".*\\.(q|v)_proj"})", good_, "3 modules that target_modules names have no tensors here");
  expect(named + R"("all-linear"})", good_, "13 modules that target_modules names have no tensors here");
  expect(named + R"("(a+)+("})", good_, "missing closing parenthesis");
  for (const char *rest : {R"(["q_proj"],"layers_to_transform":[0]})", R"(["q_proj"],"layers_to_transform":0})",
                           R"(["q_proj"],"exclude_modules":".*layers.1.*"})", "null}"}) {
    write(named + rest, good_);
    EXPECT_EQ(open_written(), CKPT_OK) << rest << text_of(err_);
  }
  write(named + R"(["q_proj"]})", good_);
  options_.allow_partial = true;
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
}

// PEFT warns of unexpected keys, and merges what its config targets: here such factors are refused.
TEST_F(Refused, FactorsOfModulesThatTheConfigDoesNotTarget) {
  const std::string named = R"({"peft_type":"LORA","r":4,"lora_alpha":8,)",
                    not_targeted = "does not target 'model.layers";
  options_.allow_partial = true;
  for (const char *rest :
       {R"("target_modules":["k_proj"]})", R"("target_modules":["_proj"]})", R"("target_modules":[]})",
        R"("target_modules":"q_proj"})", R"("target_modules":["q_proj"],"exclude_modules":["self_attn.q_proj"]})",
        R"("target_modules":["q_proj"],"layers_to_transform":[1]})",
        R"("target_modules":["q_proj"],"layers_to_transform":1})",
        R"("target_modules":["q_proj"],"layers_to_transform":[1],"layers_pattern":"layers"})",
        R"("target_modules":["q_proj"],"layers_to_transform":[0],"layers_pattern":["blocks","h"]})",
        R"("target_modules":["q_proj"],"modules_to_save":["self_attn"]})",
        R"("target_modules":"all-linear","exclude_modules":["q_proj"]})",
        R"("target_modules":["k_proj"],"target_parameters":["k_proj.weight"]})"})
    expect(named + rest, good_, not_targeted);
  const std::string embedding = "base_model.model.model.embed_tokens.", head = "base_model.model.lm_head.";
  expect(named + R"("target_modules":"All-Linear"})",
         Saved({{embedding + "lora_embedding_A", 4, 40}, {embedding + "lora_embedding_B", 16, 4}}), "does not target");
  expect(named + R"("target_modules":"all-linear"})",
         Saved({{head + "lora_A.weight", 4, 16}, {head + "lora_B.weight", 40, 4}}), "does not target 'lm_head'");
  for (const char *key : {"target_modules", "exclude_modules", "modules_to_save", "target_parameters"})
    expect(named + "\"" + key + R"(":["q_proj",1]})", good_, std::string(key) + " is no list of names");
  expect(named + R"x("target_modules":["q_proj"],"layers_to_transform":[0],"layers_pattern":"(h|layers)"
})x",
         good_, "is an expression");
  for (const char *rest : {R"("target_modules":["q_proj"]})",
                           R"("target_modules":["model.layers.0.self_attn.q_proj"],"layers_to_transform":[1]})",
                           R"("target_modules":"model\\.layers\\..*"})",
                           R"("target_modules":["q_proj"],"layers_to_transform":[0],"layers_pattern":"layers"})",
                           R"("target_modules":["q_proj"],"layers_to_transform":[],"layers_pattern":[]})",
                           R"("target_modules":"ALL-linear"})",
                           R"("target_modules":["k_proj"],"target_parameters":["self_attn.q_proj.weight"]})",
                           R"("target_modules":["q_proj"],"exclude_modules":["proj"]})"}) {
    write(named + rest, good_);
    EXPECT_EQ(open_written(), CKPT_OK) << rest << text_of(err_);
  }
}

// PEFT raises on each of these.
TEST_F(Refused, WhatTheConfigSavesAndTheFileLacks) {
  const std::string named =
      R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["layers.0.self_attn.q_proj"],)";
  expect(named + R"("modules_to_save":["lm_head"]})", good_,
         "1 module that modules_to_save names has no tensors here: lm_head.weight");
  expect(named + R"("modules_to_save":["norm"]})", good_, "5 modules that modules_to_save names have no tensors here");
  expect(named + R"("modules_to_save":["score","classifier"]})", good_,
         "names have no tensors here: classifier, score");
  expect(named + R"("trainable_token_indices":[1]})", good_,
         "trainable_token_indices names has no tensors here: the input embedding");
  expect(named + R"("trainable_token_indices":{"embed_tokens":[1]}})", good_,
         "trainable_token_indices names has no tensors here: embed_tokens");
  expect(named + R"("bias":"some"})", good_, "bias is 'some'");
  options_.allow_partial = true;
  for (const char *rest : {R"("modules_to_save":["lm_head"]})", R"("trainable_token_indices":[1]})"}) {
    write(named + rest, good_);
    EXPECT_EQ(open_written(), CKPT_OK) << rest << text_of(err_);
  }
  expect(named + R"("lora_bias":true})", good_,
         "the config sets lora_bias, and lora_B's bias of this module is missing");
  const std::string header = "\"" + q_ + R"(lora_B.bias":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},)";
  std::string biased =
      Header(header + "\"" + q_ + R"(lora_A.weight":{"dtype":"F32","shape":[4,16],"data_offsets":[64,320]},")" + q_ +
             R"(lora_B.weight":{"dtype":"F32","shape":[16,4],"data_offsets":[320,576]})") +
      std::string(576, '\1');
  expect(named + R"("lora_bias":false})", biased,
         "the config does not set lora_bias, and lora_B's bias of this module is there");
  write(named + R"("lora_bias":true})", biased);
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
}

// The config says nothing of modules: PEFT would take its own list for the family.
TEST_F(Refused, AConfigWithoutTargetsIsAWarning) {
  bool is_warning = false;
  write(config_, good_);
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  merged_config(&is_warning);
  EXPECT_TRUE(is_warning);
}

TEST_F(Refused, WhatItsConfigCallsAnotherKindOfUpdate) {
  for (const char *key : {"use_qalora", "use_bdlora", "use_something_new"})
    expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,")" + std::string(key) + R"(":true})", good_, key);
  for (const char *key : {"kasa_config", "arrow_config", "alora_invocation_tokens", "some_new_config"})
    expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,")" + std::string(key) + R"(":{"a":1}})", good_, key);
  for (const char *how : {"pissa", "olora", "corda", "loftq", "lora_ga", "something_new"})
    expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"init_lora_weights":")" + std::string(how) + "\"}", good_, how);
  write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"init_lora_weights":"eva","eva_config":{"rho":2},"use_rslora":true,
            "corda_config":null,"use_dora":false,"loftq_config":{},"runtime_config":{"ephemeral_gpu_offload":false}})",
        good_);
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
}

TEST_F(Refused, HostileConfigs) {
  const std::string start = R"({"peft_type":"LORA","r":4,"lora_alpha":8,)";
  expect(start + R"("r":4})", good_, "duplicate");
  expect(start + R"("alpha_pattern":{"(([a-z._0-9])*)*[!?]":3}})", good_, "steps");
  std::string many = start + R"("alpha_pattern":{)";
  for (int i = 0; i <= 4096; i++) many += (i == 0 ? "\"a" : ",\"a") + std::to_string(i) + "\":1";
  expect(many + "}}", good_, "more than 4096 patterns");
  expect(config_, Saved({{"base_model.model.../../etc/passwd.lora_A.weight", 4, 16}}), "is missing");
  expect(R"({"peft_type":"LORA","r":1e300,"lora_alpha":8})", good_, "has rank 1e+300 here");
  expect(R"({"peft_type":"LORA","r":-4,"lora_alpha":8})", good_, "r is no positive number");
  expect(R"({"peft_type":"LORA","r":4,"lora_alpha":"8"})", good_, "lora_alpha is missing or no number");
  write(R"({"peft_type":"LORA","r":4,"lora_alpha":-8})", good_);  // subtracts, as in PEFT
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  ckpt_adapter_effect effect;
  ASSERT_TRUE(ckpt_adapters_effect(adapters_.get(), 0, &effect));
  EXPECT_EQ(effect.scale, -2);
  write(config_, good_);
  ASSERT_EQ(truncate((folder_ / "adapter/adapter_config.json").c_str(), 100 << 20), 0);
  EXPECT_EQ(open_written(), CKPT_ELIMIT) << text_of(err_);
}

TEST_F(Refused, TwoAdaptersThatReplaceOneTensorDifferently) {
  const std::string folder = kData + "saved", one = folder + "/adapter", dora = kData + "dora/adapter";
  IndexPointer base = Open(folder + "/base");
  write(config_, Saved({{"base_model.model.lm_head.weight", 40, 16}}));
  const std::string other = folder_ / "adapter";
  EXPECT_EQ(open_adapters(base.get(), {{one.c_str(), 1}, {other.c_str(), 1}}), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err_).find("would depend on their order"), std::string::npos) << text_of(err_);
  EXPECT_EQ(open_adapters(base.get(), {{other.c_str(), 1}, {other.c_str(), 1}}), CKPT_OK) << text_of(err_);
  EXPECT_EQ(open_adapters(base.get(), {{dora.c_str(), 1}, {dora.c_str(), 1}}), CKPT_EUNSUPPORTED);
}

TEST_F(Refused, RowsThatTheConfigDoesNotName) {
  const std::string delta = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta";
  const std::string start = R"({"peft_type":"LORA","r":4,"lora_alpha":8,"trainable_token_indices":)";
  options_.allow_partial = true;
  const auto refuse = [&](const std::string &rows, const std::string &message) {
    write(start + rows + "}", Saved({{delta, 2, 16}}));
    if (open_written() == CKPT_OK) {
      ckpt_index *merged = nullptr;
      EXPECT_NE(ckpt_adapters_merge(&merged, adapters_.get(), &err_), CKPT_OK) << message;
    }
    EXPECT_NE(text_of(err_).find(message), std::string::npos) << text_of(err_);
  };
  refuse("[1,40]", "there is no row 40 (40 rows)");
  refuse("[1,-1]", "there is no row -1");
  refuse("[1,1]", "row 1 is there twice");
  refuse("[1]", "has 2 rows, the config names 1");
  refuse(R"({"lm_head":[1,2]})", "has no rows of 'model.embed_tokens'");
}

TEST_F(Refused, NotTheBaseThatItNamesIsNoted) {
  const auto notes = [&](const std::string &name) {
    write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["layers.0.self_attn.q_proj"],)"
          R"("base_model_name_or_path":")" +
              name + "\"}",
          good_);
    EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
    ckpt_index *merged = nullptr;
    EXPECT_EQ(ckpt_adapters_merge(&merged, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
    IndexPointer index(merged, ckpt_index_free);
    return merged->n_notes == 0 ? "" : std::string(merged->notes[0].text);
  };
  EXPECT_EQ(notes("somewhere/base"), "");
  EXPECT_EQ(notes("org/base/"), "");
  EXPECT_EQ(notes(""), "");
  EXPECT_NE(notes("org/other").find("was trained on 'org/other'"), std::string::npos);
  bool is_warning = false;
  merged_config(&is_warning);
  EXPECT_TRUE(is_warning);
}

TEST_F(Refused, AHeadThatTheBaseLacksUnlessTheConfigSavesIt) {
  const std::string model = Saved({{"base_model.model.score.weight", 3, 16}}, 2);
  expect(config_, model, "has no 'score.weight', which it is for");
  for (const char *rest : {R"("modules_to_save":["classifier","score"]})", R"("task_type":"SEQ_CLS"})"}) {
    write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,)" + std::string(rest), model);
    ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
    auto merged = merge();
    EXPECT_EQ(merged["score.weight"], std::vector<float>(3 * 16, 2));
    const bool has_task = strstr(rest, "SEQ_CLS") != nullptr;
    EXPECT_EQ(merged.count("lm_head.weight"), has_task ? 0u : 1u);
    EXPECT_EQ(merged.size(), ckpt_index_count(base_.get()) + (has_task ? 0 : 1));
    const std::string text = merged_config();
    EXPECT_EQ(text.find("[\"LlamaForSequenceClassification\"]") != std::string::npos, has_task) << text;
    EXPECT_EQ(text.find(R"("id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})") != std::string::npos,
              has_task)
        << text;
    EXPECT_EQ(text.find(R"("label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2})") != std::string::npos, has_task);
  }
}

// Labels are counted as transformers counts them: what is right stays as it is.
TEST_F(Refused, ANewHeadGetsLabelsWhereTheConfigCountsOthers) {
  const auto merged = [&](const std::string &keys, size_t n_rows) {
    std::filesystem::copy(kData + "linear/base", folder_ / "base",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    std::ifstream file(kData + "linear/base/config.json");
    std::string config((std::istreambuf_iterator<char>(file)), {});
    folder_.write("base/config.json", config.insert(config.find('{') + 1, keys));
    adapters_.reset();
    base_ = Open(folder_ / "base");
    write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"task_type":"SEQ_CLS"})",
          Saved({{"base_model.model.score.weight", n_rows, 16}}, 2));
    EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
    return merged_config();
  };
  const auto has = [](const std::string &text, const std::string &key) { return text.find(key) != std::string::npos; };
  const std::string three = R"("id2label":{"0":"a","1":"b","2":"c"},)";
  std::string text = merged(R"("num_labels":5,)", 5);
  EXPECT_FALSE(has(text, "id2label") || has(text, "label2id")) << text;
  EXPECT_TRUE(has(text, R"("num_labels":5)")) << text;
  text = merged(R"("num_labels":5,)", 3);
  EXPECT_TRUE(has(text, R"("2": "LABEL_2"})") && has(text, R"("num_labels":3)")) << text;
  text = merged(three, 3);
  EXPECT_TRUE(has(text, three) && !has(text, "label2id") && !has(text, "num_labels")) << text;
  text = merged(three, 4);
  EXPECT_TRUE(has(text, R"("3": "LABEL_3"})") && !has(text, "num_labels")) << text;
  text = merged(R"("num_labels":2,)" + three, 3); /* which disagree */
  EXPECT_TRUE(has(text, R"("2": "LABEL_2"})") && has(text, R"("num_labels":3)")) << text;
}

TEST_F(Refused, QuantizedBases) {
  const std::string module = "model.layers.0.self_attn.q_proj.";
  const auto refuse = [&](const std::string &method, const std::string &values, const std::string &dtype,
                          const std::string &scales, const std::string &message) {
    const std::string n = dtype == "I32" ? "1024" : "256", end = dtype == "I32" ? "1088" : "320";
    folder_.write("base/config.json",
                  R"({"model_type":"llama","quantization_config":{"quant_method":")" + method + "\"}}");
    folder_.write(
        "base/model.safetensors",
        Header("\"" + module + values + "\":{\"dtype\":\"" + dtype + R"(","shape":[16,16],"data_offsets":[0,)" + n +
               "]},\"" + module + scales + R"(":{"dtype":"F32","shape":[16],"data_offsets":[)" + n + "," + end + "]}") +
            std::string(std::stoul(end), '\1'));
    adapters_.reset();
    base_ = Open(folder_ / "base");
    expect(config_, good_, message + " (the base is quantized, by " + method + ": dequantize it first)");
  };
  const std::string nowhere = "has no '" + module + "weight', which it is for";
  refuse("gptq", "qweight", "I32", "scales", nowhere);
  refuse("awq", "qweight", "I32", "scales", nowhere);
  const std::string merged = ": only f16, bf16 and f32 are merged";
  refuse("bitsandbytes", "weight", "U8", "weight.absmax", "the base's tensor is u8" + merged);
  refuse("bitsandbytes", "weight", "I8", "SCB", "the base's tensor is i8" + merged);
  refuse("fp8", "weight", "F8_E4M3", "weight_scale_inv", "the base's tensor is f8_e4m3" + merged);
}

// Factors of single experts, over a file that holds all experts of a layer together.
TEST_F(Refused, FactorsOfOneExpertWhereTheBaseHasThemInOne) {
  base_ = Open(kData + "experts/base");
  const std::string expert = "base_model.model.model.layers.0.block_sparse_moe.experts.0.w1.";
  const std::string model = Saved({{expert + "lora_A.weight", 4, 16}, {expert + "lora_B.weight", 24, 4}});
  options_.allow_partial = true;
  write(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["w1"]})", model);
  EXPECT_EQ(open_written(), CKPT_OK) << text_of(err_);
  EXPECT_EQ(ckpt_adapters_count(adapters_.get()), 1u);
  adapters_.reset();
  const auto one = [](const std::string &name, const std::string &shape, size_t first, size_t n) {
    return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + ",\"data_offsets\":[" + std::to_string(first) + "," +
           std::to_string(first + n) + "]}";
  };
  folder_.write("fused/config.json", R"({"model_type":"mixtral","architectures":["MixtralForCausalLM"]})");
  folder_.write("fused/model.safetensors",
                Header(one("model.layers.0.mlp.experts.gate_up_proj", "[3,48,16]", 0, 9216) + "," +
                       one("model.layers.0.mlp.experts.down_proj", "[3,16,24]", 9216, 4608)) +
                    std::string(13824, '\1'));
  base_ = Open(folder_ / "fused");
  for (const char *names : {R"(["w1"])", R"(["w1","w2","w3"],"target_parameters":["mlp.experts.gate_up_proj"])"})
    expect(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":)" + std::string(names) + "}", model,
           "has no 'model.layers.0.block_sparse_moe.experts.0.w1.weight', which it is for");
}

// base_layer is what the adapter's base is, original_module a copy of it.
TEST_F(Refused, WhatPeftKeepsOfTheBaseTakesItsPlaceOrIsIgnored) {
  const std::string lora_A = q_ + "lora_A.weight", lora_B = q_ + "lora_B.weight";
  const std::string head = "base_model.model.lm_head.";
  write(config_, Saved({{lora_A, 4, 16},
                        {lora_B, 16, 4},
                        {q_ + "base_layer.weight", 16, 16},
                        {head + "original_module.weight", 40, 16}}));
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  ckpt_index *opened = nullptr;
  ASSERT_EQ(ckpt_adapters_merge(&opened, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
  IndexPointer index(opened, ckpt_index_free);
  std::string notes;
  for (uint32_t i = 0; i < index->n_notes; i++) notes += index->notes[i].text + std::string("\n");
  EXPECT_NE(notes.find("q_proj.base_layer.weight' is not what the base has, and takes its place"), std::string::npos)
      << notes;
  EXPECT_NE(notes.find("ignores 1 tensor of original_module"), std::string::npos) << notes;
  auto merged = merge();
  EXPECT_EQ(merged["model.layers.0.self_attn.q_proj.weight"], std::vector<float>(256, 1 + 2 * 4));
  EXPECT_EQ(merged["lm_head.weight"], Values(base_.get(), ckpt_index_find(base_.get(), "lm_head.weight")));
  EXPECT_EQ(ckpt_adapters_count(adapters_.get()), 1u);
}

TEST_F(Refused, TokenizersOfTwoAdaptersThatDiffer) {
  const std::string a = folder_ / "a", b = folder_ / "b";
  const auto save = [&](const std::string &name, const std::string &tokenizer, float value) {
    folder_.write(name + "/adapter_config.json", config_);
    folder_.write(name + "/adapter_model.safetensors",
                  Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}}, value));
    folder_.write(name + "/tokenizer_config.json", tokenizer);
  };
  const auto merged = [&](std::string *text) {
    ckpt_index *index = nullptr;
    EXPECT_EQ(open_adapters(base_.get(), {{a.c_str(), 1}, {b.c_str(), 1}}), CKPT_OK) << text_of(err_);
    const ckpt_status status = ckpt_adapters_merge(&index, adapters_.get(), &err_);
    const ckpt_side_file *side = index == nullptr ? nullptr : ckpt_index_side_file(index, "tokenizer_config.json");
    EXPECT_EQ(side != nullptr, status == CKPT_OK) << text_of(err_);
    if (side != nullptr) {
      text->resize(side->n_bytes);
      EXPECT_EQ(ckpt_source_read(ckpt_index_side_source(index, side), side->file, 0, text->data(), text->size(), &err_),
                CKPT_OK);
    }
    ckpt_index_free(index);
    return status;
  };
  std::string text;
  save("a", R"({"model_max_length":7})", 1);
  save("b", R"({"model_max_length":7})", 2);
  EXPECT_EQ(merged(&text), CKPT_OK);
  EXPECT_EQ(text, R"({"model_max_length":7})");
  save("b", R"({"model_max_length":8})", 2);
  EXPECT_EQ(merged(&text), CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err_).find("tokenizer_config.json"), std::string::npos) << text_of(err_);
}

// ---- an adapter without its base -----------------------------------------------------------------------------------

class AnAdapterAlone : public Refused {
 protected:
  // "problem: message" and so on, of all findings.
  std::string verify(const std::string &config, const std::string &model) {
    write(config, model);
    IndexPointer adapter = Open(folder_ / "adapter");
    ckpt_findings findings = {};
    EXPECT_EQ(ckpt_verify_config(&findings, adapter.get(), nullptr, &err_), CKPT_OK) << text_of(err_);
    static const char *const kinds[] = {"problem: ", "warning: ", "proven: ", "unproven: "};
    std::string all;
    for (size_t i = 0; i < findings.n; i++)
      all += kinds[findings.items[i].kind] + std::string(findings.items[i].message) + "\n";
    ckpt_findings_free(&findings);
    return all;
  }
  void expect_in(const std::string &config, const std::string &model, const std::string &message) {
    const std::string found = verify(config, model);
    EXPECT_NE(found.find(message), std::string::npos) << found;
    EXPECT_EQ(found.find("proven: adapter: modules") != std::string::npos, message[0] != 'p' && message[0] != 'u')
        << found;
  }
  const std::string start_ = R"({"peft_type":"LORA","r":4,"lora_alpha":8,)";
};

TEST_F(AnAdapterAlone, IsVerifiedAsAMergeReadsItsConfig) {
  EXPECT_EQ(verify(start_ + R"("target_modules":["q_proj"]})", good_),
            "proven: adapter: modules, parts and ranks are what adapter_config.json says\n");
  expect_in(std::string(300, '\0'), good_, "problem: ");
  expect_in("", good_, "problem: ");
  expect_in(R"({"peft_type":null,"r":4,"lora_alpha":8})", good_, "problem: peft_type is missing");
  expect_in(R"({"peft_type":"LORA","r":-1,"lora_alpha":8})", good_, "problem: r is no positive number");
  expect_in(R"({"peft_type":"LORA","r":4})", good_, "problem: lora_alpha is missing");
  expect_in(start_ + R"("rank_pattern":{"q_proj":2}})", good_,
            "problem: module 'model.layers.0.self_attn.q_proj' has rank 2");
  expect_in(start_ + R"("alpha_pattern":{"(":2}})", good_, "problem: pattern '(': missing closing");
  expect_in(start_ + R"("target_modules":["k_proj"]})", good_, "problem: the config does not target");
  expect_in(start_ + R"("use_dora":true})", good_, "problem: the config sets use_dora");
  expect_in(start_ + R"("target_modules":["k_proj"],"ensure_weight_tying":true})", good_,
            "problem: the config does not target");
  expect_in(start_ + R"("target_modules":["q_proj"],"target_parameters":["gate_up_proj"],"use_dora":true})", good_,
            "problem: the config sets use_dora");
  expect_in(start_ + R"("lora_bias":true})", good_, "problem: the config sets lora_bias");
  expect_in(start_ + R"("modules_to_save":["lm_head"]})", good_,
            "problem: modules_to_save: no module of them (lm_head)");
  const std::string score = "base_model.model.score.weight";
  expect_in(start_ + R"("modules_to_save":["lm_head"],"task_type":"SEQ_CLS"})", Saved({{score, 3, 16}}),
            "problem: modules_to_save: no module of them (lm_head)");
  expect_in(start_ + R"("modules_to_save":["lm_head","score"],"task_type":"SEQ_CLS"})", Saved({{score, 3, 16}}),
            "unproven: adapter: lm_head of modules_to_save: no tensors are here, so the base must lack it");
  EXPECT_EQ(
      verify(start_ + R"("modules_to_save":["classifier","score"],"task_type":"SEQ_CLS"})", Saved({{score, 3, 16}})),
      "proven: adapter: modules, parts and ranks are what adapter_config.json says\n");
  expect_in(config_, Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}, {q_ + "weight", 16, 16}}),
            "problem: PEFT would not load this");
  expect_in(start_ + R"("trainable_token_indices":[1]})", good_, "problem: trainable_token_indices: no rows");
  expect_in(config_, Saved({{q_ + "lora_A.weight", 4, 16}}), "problem: the lora_B of this module is missing");
  expect_in(config_, Saved({{q_ + "lora_A.weight", 0, 16}, {q_ + "lora_B.weight", 16, 4}}), "problem: has no elements");
  expect_in(R"({"peft_type":"LOHA","r":4})", good_, "unproven: adapter: adapters of the type LOHA are not merged");
  expect_in(R"({"peft_type":"LORA","r":4,"lora_alpha":0})", good_, "warning: lora_alpha is 0");
  for (const char *kind :
       {"linear", "patterns", "dora", "embedding", "saved", "bias", "gpt2", "rows", "experts", "layers"}) {
    IndexPointer adapter = Open(kData + kind + "/adapter");
    ckpt_findings findings = {};
    ASSERT_EQ(ckpt_verify_config(&findings, adapter.get(), nullptr, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(findings.n_of[CKPT_PROVEN], 1u) << kind << ": " << findings.items[0].message;
    ckpt_findings_free(&findings);
  }
}

TEST_F(Refused, AVocabularyOfWhichOnlyAPartGrows) {
  const std::string embed = "base_model.model.model.embed_tokens.weight", head = "base_model.model.lm_head.weight";
  expect(config_, Saved({{embed, 44, 16}}), "'lm_head.weight': has 40 rows, and the merged embedding 44");
  expect(config_, Saved({{embed, 44, 16}, {head, 45, 16}}), "another embedding of the merge");
  expect(config_, Saved({{q_ + "weight", 20, 16}}), "its shape is [20,16], that of 'model.layers.0.self_attn.q_proj");
  write(config_, Saved({{embed, 44, 16}, {head, 44, 16}}));
  ASSERT_EQ(open_written(), CKPT_OK) << text_of(err_);
  ckpt_index *merged = nullptr;
  ASSERT_EQ(ckpt_adapters_merge(&merged, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
  IndexPointer index(merged, ckpt_index_free);
  EXPECT_NE(std::string(ckpt_index_side_file(merged, "config.json")->text).find("\"vocab_size\": 44"),
            std::string::npos);
}

}  // namespace
