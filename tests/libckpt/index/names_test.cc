// Tests of canonical names: wrappers, base prefix, roles, ties, collisions, and what the naming is called.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/index/arch.h"
}

namespace {

// An index of one-byte tensors that only describes, with a config.json as replaced text.
class NamesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ckpt_index_new(&index_, nullptr, "model", "fake", nullptr, nullptr), CKPT_OK); }
  void TearDown() override { ckpt_index_free(index_); }

  uint32_t Add(const std::string &name, ckpt_role role = CKPT_ROLE_PARAMETER) {
    uint64_t shape = 1;
    uint32_t number = 0;
    EXPECT_EQ(ckpt_index_add(index_, name.data(), name.size(), CKPT_U8, 1, &shape, role, nullptr, 0, &number, nullptr),
              CKPT_OK);
    return number;
  }
  void SetConfig(const char *text) {
    ASSERT_EQ(ckpt_index_add_side_file(index_, "config.json", 0, strlen(text), nullptr), CKPT_OK);
    index_->side_files[0].text = text;
  }
  ckpt_status Canonical(bool stored_names = false, const ckpt_index *like = nullptr) {
    return ckpt_index_canonical_names(index_, stored_names, like, &err_);
  }
  // Canonical names and finish, both of which must work.
  void Finish() {
    ASSERT_EQ(Canonical(), CKPT_OK) << err_.message;
    ASSERT_EQ(ckpt_index_finish(index_, &err_), CKPT_OK) << err_.tensor << ": " << err_.message;
  }
  std::string Name(uint32_t number) { return index_->tensors[number].name; }
  // The canonical name of one tensor alone, architecture unknown.
  std::string Unwrapped(const std::string &name) {
    TearDown();
    SetUp();
    uint32_t number = Add(name);
    EXPECT_EQ(Canonical(), CKPT_OK);
    return Name(number);
  }

  ckpt_index *index_ = nullptr;
  ckpt_error err_ = {};
};

TEST_F(NamesTest, WrappersGoWhereTheyAreWholeComponents) {
  EXPECT_EQ(Unwrapped("a.weight"), "a.weight");
  EXPECT_EQ(Unwrapped("module.a.weight"), "a.weight");
  EXPECT_EQ(Unwrapped("module._orig_mod.a"), "a");
  EXPECT_EQ(Unwrapped("_orig_mod.module.module.a"), "a");
  EXPECT_EQ(Unwrapped("a._orig_mod.b._fsdp_wrapped_module._checkpoint_wrapped_module.c"), "a.b.c");
  EXPECT_EQ(Unwrapped("a.module.b"), "a.module.b");
  EXPECT_EQ(Unwrapped("a._orig_mod.module.b"), "a.module.b");
  EXPECT_EQ(Unwrapped("my_orig_mod.a"), "my_orig_mod.a");
  EXPECT_EQ(Unwrapped("a.x_orig_mod.b"), "a.x_orig_mod.b");
  EXPECT_EQ(Unwrapped("modules.a"), "modules.a");
}

TEST_F(NamesTest, SomethingMustFollowAWrapper) {
  EXPECT_EQ(Unwrapped("module"), "module");
  EXPECT_EQ(Unwrapped("module."), "module.");
  EXPECT_EQ(Unwrapped("module.module."), "module.");
  EXPECT_EQ(Unwrapped("a._orig_mod."), "a._orig_mod.");
  EXPECT_EQ(Unwrapped("_orig_mod._orig_mod"), "_orig_mod");
}

TEST_F(NamesTest, OptimizerStatesFollowTheirParameter) {
  EXPECT_EQ(Unwrapped("optimizer.state.module.a._orig_mod.weight.exp_avg"), "optimizer.state.a.weight.exp_avg");
  EXPECT_EQ(Unwrapped("optimizer.state.module.exp_avg"), "optimizer.state.module.exp_avg");
  EXPECT_EQ(Unwrapped("optimizer.state."), "optimizer.state.");
  EXPECT_EQ(Unwrapped("optimizer.state.x"), "optimizer.state.x");
  SetConfig("{\"model_type\": \"llama\"}");
  uint32_t state = Add("optimizer.state.norm.weight.exp_avg", CKPT_ROLE_EXP_AVG);
  Finish();
  EXPECT_EQ(Name(state), "optimizer.state.model.norm.weight.exp_avg");
  EXPECT_EQ(index_->tensors[state].role, CKPT_ROLE_EXP_AVG);
}

// A parameter that would have a state's name, and be read as one from what is written.
TEST_F(NamesTest, NoParameterBecomesAState) {
  for (const char *name :
       {"module.optimizer.state.w.exp_avg", "optimizer._orig_mod.state.w", "module.optimizer.state."})
    EXPECT_EQ(Unwrapped(name), name);
  EXPECT_EQ(Unwrapped("module.optimizer.states.w"), "optimizer.states.w");
  EXPECT_EQ(Unwrapped("module.optimizer.state"), "optimizer.state");
}

TEST_F(NamesTest, OtherTensorsKeepTheirNames) {
  uint32_t other = Add("module.a", CKPT_ROLE_OTHER);
  Finish();
  EXPECT_EQ(Name(other), "module.a");
}

TEST_F(NamesTest, NamingIsRecorded) {
  Add("a");
  Finish();
  EXPECT_STREQ(index_->names, "stored");
  EXPECT_STREQ(index_->architecture, "");
  Unwrapped("module.a");
  EXPECT_STREQ(index_->names, "hf:any/1");
  TearDown();
  SetUp();
  SetConfig("{\"model_type\": \"mistral\"}");
  Add("x");
  Finish();
  EXPECT_STREQ(index_->names, "hf:llama/1");
  EXPECT_STREQ(index_->architecture, "llama");
}

TEST_F(NamesTest, StoredNamesStay) {
  SetConfig("not even JSON");
  uint32_t number = Add("module.wte.weight");
  ASSERT_EQ(Canonical(true), CKPT_OK);
  EXPECT_EQ(Name(number), "module.wte.weight");
  EXPECT_STREQ(index_->names, "stored");
}

TEST_F(NamesTest, ABareModelGetsItsPrefix) {
  SetConfig("{\"model_type\": \"gpt2\"}");
  uint32_t bare = Add("module.h.11.attn.c_attn.weight"), mask = Add("h.11.attn.bias"),
           whole = Add("transformer.wpe.weight");
  uint32_t head = Add("score.weight"), long_name = Add(std::string(4096, 'h'));
  Finish();
  EXPECT_EQ(Name(bare), "transformer.h.11.attn.c_attn.weight");
  EXPECT_EQ(index_->tensors[bare].role, CKPT_ROLE_PARAMETER);
  EXPECT_EQ(Name(mask), "transformer.h.11.attn.bias");
  EXPECT_EQ(index_->tensors[mask].role, CKPT_ROLE_BUFFER);
  EXPECT_EQ(Name(whole), "transformer.wpe.weight");
  EXPECT_EQ(Name(head), "score.weight");
  EXPECT_EQ(Name(long_name), std::string(4096, 'h'));
}

TEST_F(NamesTest, CollisionsAreRefused) {
  Add("a.b");
  Add("module.a.b");
  ASSERT_EQ(Canonical(), CKPT_OK);
  EXPECT_EQ(ckpt_index_finish(index_, &err_), CKPT_EEXIST);
  EXPECT_STREQ(err_.tensor, "a.b");
  EXPECT_STREQ(err_.message, "two tensors have this name once wrappers are removed");
  EXPECT_STREQ(err_.advice, "%names=stored keeps them apart");
}

TEST_F(NamesTest, CollisionWithAnAliasIsRefused) {
  uint32_t number = Add("x");
  ASSERT_EQ(ckpt_index_alias(index_, number, "_orig_mod.y", nullptr), CKPT_OK);
  Add("y");
  ASSERT_EQ(Canonical(), CKPT_OK);
  EXPECT_EQ(ckpt_index_finish(index_, &err_), CKPT_EEXIST);
  EXPECT_STREQ(err_.tensor, "y");
}

TEST_F(NamesTest, AliasesAreCanonicalToo) {
  SetConfig("{\"model_type\": \"llama\"}");
  uint32_t number = Add("module.lm_head.weight");
  ASSERT_EQ(ckpt_index_alias(index_, number, "module.model.embed_tokens.weight", nullptr), CKPT_OK);
  uint32_t group = Add("module.c");
  ASSERT_EQ(ckpt_index_alias(index_, group, "module.b", nullptr), CKPT_OK);
  ASSERT_EQ(ckpt_index_alias(index_, group, "module.a", nullptr), CKPT_OK);
  Finish();
  EXPECT_EQ(Name(number), "model.embed_tokens.weight");  // the file shares them, whatever the config says
  EXPECT_EQ(ckpt_index_find(index_, "lm_head.weight"), &index_->tensors[number]);
  EXPECT_EQ(Name(group), "a");
  for (const char *name : {"b", "c"}) EXPECT_EQ(ckpt_index_find(index_, name), &index_->tensors[group]) << name;
  const ckpt_tensor *kept, *tied;
  EXPECT_FALSE(ckpt_arch_tied_pair(index_, 0, &kept, &tied));
}

TEST_F(NamesTest, TheKeptNameStaysWhereTheAliasComesFirstInByteOrder) {
  SetConfig("{\"model_type\": \"gpt2\"}");
  uint32_t number = Add("wte.weight");
  ASSERT_EQ(ckpt_index_alias(index_, number, "lm_head.weight", nullptr), CKPT_OK);
  Finish();
  EXPECT_EQ(Name(number), "transformer.wte.weight");
}

TEST_F(NamesTest, TheTiedNameBecomesAnAlias) {
  SetConfig("{\"model_type\": \"gpt2\"}");
  uint32_t number = Add("wte.weight");
  Finish();
  EXPECT_EQ(Name(number), "transformer.wte.weight");
  EXPECT_EQ(ckpt_index_find(index_, "lm_head.weight"), &index_->tensors[number]);
  EXPECT_EQ(ckpt_index_count(index_), 1u);
  const ckpt_tensor *kept, *tied;
  EXPECT_FALSE(ckpt_arch_tied_pair(index_, 0, &kept, &tied));
}

TEST_F(NamesTest, ATiedTensorStandsUnderTheKeptName) {
  SetConfig("{\"model_type\": \"llama\", \"tie_word_embeddings\": true}");
  uint32_t number = Add("lm_head.weight");
  Finish();
  EXPECT_EQ(Name(number), "model.embed_tokens.weight");
  EXPECT_EQ(ckpt_index_find(index_, "lm_head.weight"), &index_->tensors[number]);
}

TEST_F(NamesTest, ConfigDecidesWhatIsTied) {
  const ckpt_tensor *kept, *tied;
  SetConfig("{\"model_type\": \"llama\"}");
  Add("model.embed_tokens.weight");
  Finish();
  EXPECT_EQ(ckpt_index_find(index_, "lm_head.weight"), nullptr);
  TearDown();
  SetUp();
  SetConfig("{\"model_type\": \"gpt2\", \"tie_word_embeddings\": false}");
  Add("transformer.wte.weight");
  Add("lm_head.weight");
  Finish();
  EXPECT_FALSE(ckpt_arch_tied_pair(index_, 0, &kept, &tied));
}

TEST_F(NamesTest, StoredPairsAreListed) {
  SetConfig("{\"model_type\": \"gpt2\"}");
  uint32_t head = Add("lm_head.weight"), wte = Add("wte.weight");
  Finish();
  const ckpt_tensor *kept = nullptr, *tied = nullptr;
  ASSERT_TRUE(ckpt_arch_tied_pair(index_, 0, &kept, &tied));
  EXPECT_EQ(kept, &index_->tensors[wte]);
  EXPECT_EQ(tied, &index_->tensors[head]);
  EXPECT_FALSE(ckpt_arch_tied_pair(index_, 1, &kept, &tied));
}

TEST_F(NamesTest, TheHeadGivesWayInModelsOfAnyFamily) {
  const std::vector<std::vector<std::string>> groups = {
      {"model.embed_tokens.weight", "lm_head.weight"},
      {"tok_embeddings.weight", "output.weight"},
      {"word_embeddings.weight", "embed_out.weight"},
      {"cls.predictions.bias", "cls.predictions.decoder.bias"},
      {"model.shared.weight", "lm_head.weight", "model.decoder.embed_tokens.weight"},
      {"a.weight", "b.weight"}};
  for (const auto &group : groups)
    for (size_t first = 0; first < group.size(); first++) {
      TearDown();
      SetUp();
      uint32_t number = Add(group[first]);
      for (size_t i = 0; i < group.size(); i++)
        if (i != first) {
          ASSERT_EQ(ckpt_index_alias(index_, number, group[i].c_str(), nullptr), CKPT_OK);
        }
      Finish();
      EXPECT_EQ(Name(number), group[0]) << first;
      EXPECT_STREQ(index_->names, group[0] == "a.weight" || group[0] == "cls.predictions.bias" ? "stored" : "hf:any/2");
    }
}

TEST_F(NamesTest, OlderRulesCallATieByTheFirstName) {
  index_->naming_revision = 1;
  uint32_t number = Add("model.embed_tokens.weight");
  ASSERT_EQ(ckpt_index_alias(index_, number, "lm_head.weight", nullptr), CKPT_OK);
  Finish();
  EXPECT_EQ(Name(number), "lm_head.weight");
  EXPECT_STREQ(index_->names, "stored");
}

// A digest from before the family was known is over names by the rules for none.
TEST_F(NamesTest, OlderRulesKnowNoFamilyOfToday) {
  for (uint32_t revision : {1u, 2u}) {
    TearDown();
    SetUp();
    index_->naming_revision = revision;
    SetConfig("{\"model_type\": \"llama\", \"tie_word_embeddings\": true}");
    uint32_t number = Add("model.embed_tokens.weight");
    ASSERT_EQ(ckpt_index_alias(index_, number, "lm_head.weight", nullptr), CKPT_OK);
    Finish();
    EXPECT_EQ(Name(number), revision == 1 ? "lm_head.weight" : "model.embed_tokens.weight");
    EXPECT_STREQ(index_->names, revision == 1 ? "stored" : "hf:any/2");
    EXPECT_EQ(ckpt_naming_revision(index_->names), revision);
  }
  EXPECT_EQ(ckpt_naming_revision("hf:llama/1"), 0u);
}

TEST_F(NamesTest, ABrokenConfigIsNamed) {
  SetConfig("{\"model_type\": \"gpt2\"");
  Add("wte.weight");
  EXPECT_EQ(Canonical(), CKPT_EFORMAT);
  EXPECT_STREQ(err_.file, "config.json");
}

TEST_F(NamesTest, TheConfigOfTheModelThatItIsLikeNamesWhatHasNone) {
  SetConfig(R"({"model_type": "gpt2"})");
  ckpt_index *like = index_;
  SetUp();
  uint32_t number = Add("lm_head.weight"), bare = Add("h.0.ln_1.weight");
  ASSERT_EQ(Canonical(false, like), CKPT_OK) << err_.message;
  EXPECT_EQ(Name(number), "transformer.wte.weight");
  EXPECT_STREQ(index_->tensors[number].aliases[0], "lm_head.weight");
  EXPECT_EQ(Name(bare), "transformer.h.0.ln_1.weight");
  EXPECT_STREQ(index_->names, "hf:gpt2/1");
  TearDown();
  SetUp();  // its own config goes first
  SetConfig(R"({"model_type": "somebody's"})");
  number = Add("lm_head.weight");
  ASSERT_EQ(Canonical(false, like), CKPT_OK) << err_.message;
  EXPECT_EQ(Name(number), "lm_head.weight");
  TearDown();
  SetUp();  // and stored names before all
  number = Add("lm_head.weight");
  ASSERT_EQ(Canonical(true, like), CKPT_OK) << err_.message;
  EXPECT_EQ(Name(number), "lm_head.weight");
  ckpt_index_free(like);
}

TEST_F(NamesTest, UnknownArchitectureIsNoError) {
  SetConfig("{\"model_type\": \"somebody's\", \"architectures\": [\"X\"]}");
  Add("wte.weight");
  Finish();
  EXPECT_STREQ(index_->names, "stored");
  EXPECT_EQ(Name(0), "wte.weight");
}

}  // namespace
