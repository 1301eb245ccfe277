// Optimizers that trainers saved beside a model (tests/data/make_trainer.py), whose parameters are numbers: named where
// everything agrees, and left alone where anything does not.
#include <functional>

#include "tests/formats/formats_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/trainer/";
const struct Saved {
  const char *name;
  uint64_t n_groups;
  int64_t step;
  bool is_named;      // by the file itself
  const char *first;  // of its parameters
} kCases[] = {{"llama", 2, 2, false, "model.embed_tokens.weight"},
              {"llama-biases", 2, 2, false, "model.embed_tokens.weight"},
              {"gpt2", 2, 2, false, "transformer.wte.weight"},
              {"llama-accelerate", 1, -1, false, "model.embed_tokens.weight"},
              {"llama-adafactor", 1, -1, false, "model.embed_tokens.weight"},
              {"llama-sgd", 1, -1, false, "model.embed_tokens.weight"},
              {"llama-older", 1, -1, false, "model.embed_tokens.weight"},
              {"llama-lora", 2, 2, false, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"},
              {"llama-dora", 2, 2, false, "base_model.model.model.embed_tokens.lora_embedding_A"},
              {"gpt2-lora", 2, 2, false, "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"},
              {"fsdp1-full", 1, -1, true, "0.weight"},
              {"fsdp2-full", 1, -1, true, "0.weight"}};

// A copy of a case in a folder, to be changed.
std::string copy(const char *name, const Folder &folder) {
  std::filesystem::copy(kData + name, folder / name, std::filesystem::copy_options::recursive);
  return folder / name;
}

// Changes a text of a file.
void replace(const std::string &path, const std::string &from, const std::string &to) {
  std::string text = slurp(path);
  size_t n = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()), n++)
    text.replace(at, from.size(), to);
  ASSERT_NE(n, 0u) << from;
  spill(path, text);
}

// Gives the second group the decay of the first.
void decay_all(const std::string &path) {
  std::string text = slurp(path + "/optimizer.pt");
  const size_t key = text.find("weight_decay") + 12; /* then r and its number in the memo */
  ASSERT_EQ(text[key], 'r');
  const std::string decay = text.substr(key + 5, 9), again = "j" + text.substr(key + 1, 4) + "G";
  ASSERT_EQ(decay[0], 'G');
  const size_t second = text.find(again, key);
  ASSERT_NE(second, std::string::npos);
  text.replace(second + 5, decay.size(), decay);
  spill(path + "/optimizer.pt", text);
}

// What is said of it, and that then nothing but the model is read.
std::string refusal(const std::string &path) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false, true);
  if (index == nullptr) return "! " + text_of(err);
  size_t n;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    EXPECT_EQ(ckpt_state_parameter(index->tensors[i].name, &n), nullptr) << index->tensors[i].name;
  EXPECT_EQ(index->objects, nullptr);
  EXPECT_EQ(index->n_notes, 1u);
  return index->n_notes == 0 ? "" : index->notes[0].text;
}

TEST(HfOptimizer, StatesAreThoseOfTheRunThatWroteThem) {
  for (const Saved &saved : kCases) {
    const char *name = saved.name;
    ckpt_error err = {};
    IndexPointer ours = open(kData + name, &err, false), theirs = open(kData + name + ".safetensors", &err, false);
    ASSERT_NE(ours, nullptr) << text_of(err);
    ASSERT_EQ(ckpt_index_count(ours.get()), ckpt_index_count(theirs.get())) << name;
    for (size_t i = 0; i < ckpt_index_count(ours.get()); i++) {
      const ckpt_tensor *a = ckpt_index_at(ours.get(), i), *b = ckpt_index_at(theirs.get(), i);
      ASSERT_STREQ(a->name, b->name) << name;
      EXPECT_EQ(a->role, b->role) << a->name;
      EXPECT_TRUE(ckpt_tensor_same_shape(a, b)) << a->name;
      EXPECT_EQ(bytes_of(ours.get(), a), bytes_of(theirs.get(), b)) << name << " " << a->name;
    }
    const ckpt_object *groups = ckpt_object_get(ours->objects, CKPT_STATE_PARAM_GROUPS);
    ASSERT_NE(groups, nullptr) << name;
    EXPECT_EQ(groups->n, saved.n_groups) << name;
    EXPECT_EQ(ours->step, saved.step) << name;
    const std::string first = ckpt_object_get(groups->items[0], "params")->items[0]->text;
    EXPECT_EQ(first, saved.first) << name;
    ASSERT_EQ(ours->n_notes, saved.is_named ? 0u : 1u) << name;
    EXPECT_TRUE(saved.is_named || !ours->notes[0].is_problem);
  }
}

TEST(HfOptimizer, WhatDoesNotFitIsNotTaken) {
  struct Case {
    const char *name;
    std::function<void(const std::string &)> change;
    const char *said;
  };
  auto other = [](const char *from, const char *file, const char *as) {
    return [=](const std::string &path) { spill(path + "/" + as, slurp(kData + from + "/" + file)); };
  };
  const Case cases[] = {
      {"gpt2", other("llama", "optimizer.pt", "optimizer.pt"),
       "groups of 16 and 5 parameters, and 10 and 18 by the Trainer's rule of what decays"},
      {"llama-biases", other("llama-accelerate", "optimizer.bin", "optimizer.pt"),
       "21 parameters, and the model has 34"},
      {"llama", /* a matrix of the same bytes that lies down where the states stand */
       [](const std::string &path) { replace(path + "/model.safetensors", "\"shape\":[12,8]", "\"shape\":[8,12]"); },
       "state exp_avg of parameter 5 is [12,8], and 'model.layers.0.mlp.gate_proj.weight', which it would be, is "
       "[8,12]"},
      {"llama", /* a head that the row does not know */
       [](const std::string &path) {
         replace(path + "/model.safetensors", "\"lm_head.weight\"", "\"myscore.weight\"");
       },
       "where 'myscore.weight' stands among a llama's parameters is not known"},
      {"llama", /* down_proj stood before up_proj then */
       [](const std::string &path) { replace(path + "/config.json", "\"5.23.0\"", "\"4.30.2\""); },
       "of transformers 4.30.2, whose llama had another order than since 4.31"},
      {"llama-accelerate",
       [](const std::string &path) { replace(path + "/optimizer.bin", "param_groups", "other_groups"); },
       "it has no states and groups"},
      {"llama", decay_all, "its second group decays, which by the Trainer's rule does not"},
      {"llama-older", /* a number that is no step, or none that a float holds */
       [](const std::string &path) { replace(path + "/optimizer.bin", "step", "stop"); },
       "state stop of parameter 0 is no tensor"},
      {"llama-adafactor", /* columns for rows */
       [](const std::string &path) { replace(path + "/model.safetensors", "\"shape\":[6,4]", "\"shape\":[4,6]"); },
       "state exp_avg_sq_row of parameter 5 is [6], and 'model.layers.0.mlp.gate_proj.weight', which it would be, is "
       "[4,6]"},
      {"fsdp1-full", [](const std::string &path) { replace(path + "/optimizer.bin", "2.weight", "3.weight"); },
       "it speaks of '3.weight', which is no parameter of the model's files"},
      {"fsdp2-full", [](const std::string &path) { replace(path + "/optimizer.bin", "2.weight", "0.weight"); },
       "it has '0.weight' twice"},
      {"llama", /* an adapter by its config, and not by its names */
       [](const std::string &path) { spill(path + "/adapter_config.json", std::string("{}")); },
       "its parameters are numbers in the order of a model that is not known"},
      {"llama-lora", /* of a base that no row is of */
       [](const std::string &path) { replace(path + "/adapter_model.safetensors", "mlp.up_proj", "mlp.up_frog"); },
       "its parameters are numbers in the order of a model that is not known"},
      {"gpt2-lora", other("llama-lora", "optimizer.pt", "optimizer.pt"),
       "groups of 15 and 3 parameters, and 16 and 8 by the Trainer's rule of what decays"},
      {"llama",
       [](const std::string &path) {
         const std::string whole = slurp(path + "/optimizer.pt");
         spill(path + "/optimizer.pt", whole.substr(0, whole.size() / 2));
       },
       "truncated"},
  };
  for (const Case &c : cases) {
    Folder folder;
    const std::string path = copy(c.name, folder);
    c.change(path);
    const std::string said = refusal(path);
    EXPECT_NE(said.find(c.said), std::string::npos) << said;
    EXPECT_EQ(said.find("optimizer."), 0u) << said;
    EXPECT_NE(said.find(": its states are not read ("), std::string::npos) << said;
  }
}

// Of a model that no row is of, numbers have no names: the file is one more that is carried.
TEST(HfOptimizer, AnUnknownModelHasNoOrder) {
  Folder folder;
  const std::string path = copy("llama", folder);
  replace(path + "/config.json", "\"llama\"", "\"alpaca\"");
  EXPECT_EQ(refusal(path),
            "optimizer.pt: its states are not read (its parameters are numbers in the order of a model that is not "
            "known)");
}

// What the file has beside states and groups is not lost where its tensors stand for it.
TEST(HfOptimizer, WhatElseItHasIsAnObject) {
  ckpt_error err = {};
  IndexPointer index = open(kData + "llama-older", &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  const ckpt_object *own = ckpt_object_get(index->objects, "optimizer.own");
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(ckpt_object_get(own, "loss_scale")->number, 8.0);
}

// One that is broken is a problem; one that is only not understood is not.
TEST(HfOptimizer, ABrokenFileIsAProblem) {
  Folder folder;
  const std::string path = copy("llama-accelerate", folder), whole = slurp(path + "/optimizer.bin");
  spill(path + "/optimizer.bin", whole.substr(0, whole.size() / 2));
  spill(path + "/trainer_state.json", std::string("{\"global_step\": "));
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false, true);
  ASSERT_NE(index, nullptr) << text_of(err);
  ASSERT_EQ(index->n_notes, 2u);
  EXPECT_TRUE(index->notes[0].is_problem);
  EXPECT_TRUE(index->notes[1].is_problem);
  EXPECT_EQ(std::string(index->notes[0].text).find("trainer_state.json: the text ends where a value"), 0u)
      << index->notes[0].text;
}

// The log of a long run has more values than a config may have; what it says of the step is found before it or after.
TEST(HfOptimizer, TheStepOfALongRun) {
  std::string log;
  for (int i = 0; i < 150000; i++) log += "{\"epoch\": 0.1, \"loss\": NaN, \"x\": [1, 2, 3, 4], \"global_step\": 9},\n";
  log = "\"log_history\": [" + log + "{}]";
  const struct {
    std::string text;
    int64_t step;
    const char *problem;
  } cases[] = {{"{\"global_step\": 7, " + log + "}", 7, nullptr},
               {"{" + log + ", \"global_step\": 7}", 7, nullptr},
               {"{" + log + "}", -1, nullptr},
               {"{\"global_step\": 7, " + log + ", \"global_step\": 8}", 8, nullptr},
               {"{\"global_step\": \"7\"}", -1, nullptr},
               {"{\"global_step\": [7]}", -1, nullptr},
               {"{\"global_step\": -7}", -1, nullptr},
               {"{\"global_step\": 9223372036854775808}", -1, nullptr},
               {"{\"global_step\": 7, " + log, -1, "trainer_state.json: "},
               {"{\"global_step\": 7} {}", -1, "trainer_state.json: "},
               {"[7]", -1, "trainer_state.json: the trainer's state has to be an object, not an array"},
               {"{\"" + std::string(1 << 17, 'k') + "\": 7}", -1, "trainer_state.json: "}};
  Folder folder;
  const std::string path = copy("llama-accelerate", folder);
  for (const auto &c : cases) {
    spill(path + "/trainer_state.json", c.text);
    ckpt_error err = {};
    IndexPointer index = open(path, &err, false, true);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(index->step, c.step) << c.text.substr(0, 40);
    ASSERT_EQ(index->n_notes, c.problem == nullptr ? 1u : 2u) << c.text.substr(0, 40);
    if (c.problem == nullptr) continue;
    EXPECT_TRUE(index->notes[0].is_problem);
    EXPECT_EQ(std::string(index->notes[0].text).find(c.problem), 0u) << index->notes[0].text;
  }
}

// A file cut anywhere, or with a byte changed: whatever it is then, the model is read.
TEST(HfOptimizer, DamageHidesNothingOfTheModel) {
  Folder folder;
  const std::string path = copy("llama-accelerate", folder), whole = slurp(path + "/optimizer.bin");
  for (size_t i = 0; i < 400; i++) {
    std::string damaged = whole;
    if (i % 2 == 0)
      damaged.resize(whole.size() * i / 400);
    else
      damaged[(i * 7919) % whole.size()] ^= static_cast<char>(1 << i % 8);
    spill(path + "/optimizer.bin", damaged);
    ckpt_error err = {};
    IndexPointer index = open(path, &err, false, true);
    ASSERT_NE(index, nullptr) << i << " " << text_of(err);
    EXPECT_GE(ckpt_index_count(index.get()), 21u);
  }
}

}  // namespace
}  // namespace formats_testing
