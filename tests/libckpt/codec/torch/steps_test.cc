// Steps that are numbers of an optimizer's groups become tensors of its parameters, once each, and of those with
// states.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/torch/state/steps.h"
}

namespace {

class TorchSteps : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ckpt_index_new(&index_, nullptr, "i", "zero", nullptr, &err_), CKPT_OK);
    index_->objects = ckpt_object_new(&index_->arena, CKPT_OBJECT_DICT, 1, nullptr);
    index_->objects->n = 0;
  }
  void TearDown() override { ckpt_index_free(index_); }

  void Add(const std::string &name, ckpt_role role) {
    ckpt_extent extent = {};
    extent.file = CKPT_FILE_LITERAL;
    extent.count = 1;
    ASSERT_EQ(ckpt_index_add(index_, name.data(), name.size(), CKPT_F32, 0, nullptr, role, &extent, 1, nullptr, &err_),
              CKPT_OK);
  }
  void State(const std::string &parameter, const char *key, ckpt_role role) {
    Add("optimizer.state." + parameter + "." + key, role);
  }
  ckpt_object *Text(const std::string &text) { return ckpt_object_text(&index_->arena, text.data(), text.size()); }
  ckpt_object *Names(const std::vector<std::string> &names) {
    ckpt_object *list = ckpt_object_new(&index_->arena, CKPT_OBJECT_LIST, names.size(), nullptr);
    for (size_t i = 0; i < names.size(); i++) list->items[i] = Text(names[i]);
    return list;
  }
  ckpt_object *Group(ckpt_object *step, ckpt_object *params) {
    ckpt_object *group = ckpt_object_new(&index_->arena, CKPT_OBJECT_DICT, 2, nullptr);
    ckpt_object *items[] = {Text("step"), step, Text("params"), params};
    memcpy(group->items, items, sizeof items);
    return group;
  }
  ckpt_object *Int(int64_t value) { return ckpt_object_int(&index_->arena, value); }
  ckpt_object *Float(double value) { return ckpt_object_float(&index_->arena, value); }

  // The steps that there are then.
  std::map<std::string, float> Steps(const std::vector<ckpt_object *> &groups) {
    ckpt_object *list = ckpt_object_new(&index_->arena, CKPT_OBJECT_LIST, groups.size(), nullptr);
    for (size_t i = 0; i < groups.size(); i++) list->items[i] = groups[i];
    EXPECT_TRUE(ckpt_object_put(&index_->arena, index_->objects, CKPT_STATE_PARAM_GROUPS, list));
    EXPECT_EQ(ckpt_torch_add_steps_of_groups(index_, &err_), CKPT_OK) << err_.message;
    std::map<std::string, float> steps;
    for (uint32_t i = 0; i < index_->n_tensors; i++) {
      const ckpt_tensor *tensor = &index_->tensors[i];
      if (tensor->role != CKPT_ROLE_STEP) continue;
      EXPECT_TRUE(tensor->dtype == CKPT_F32 && tensor->rank == 0) << tensor->name;
      const uint32_t bits = static_cast<uint32_t>(tensor->extents[0].offset);
      float step;
      memcpy(&step, &bits, sizeof step);
      EXPECT_TRUE(steps.emplace(tensor->name, step).second) << tensor->name << " is there twice";
    }
    return steps;
  }

  ckpt_index *index_ = nullptr;
  ckpt_error err_ = {};
};

TEST_F(TorchSteps, OfParametersThatHaveStatesAndNoStep) {
  State("a", "exp_avg", CKPT_ROLE_EXP_AVG);
  State("a.b", "exp_avg", CKPT_ROLE_EXP_AVG);
  State("c", "exp_avg", CKPT_ROLE_EXP_AVG);
  State("c", "step", CKPT_ROLE_STEP);
  State("d", "master", CKPT_ROLE_MASTER);
  State("e", "exp_avg", CKPT_ROLE_EXP_AVG);
  const std::map<std::string, float> wanted = {
      {"optimizer.state.a.step", 3}, {"optimizer.state.a.b.step", 7}, {"optimizer.state.c.step", 0}};
  EXPECT_EQ(Steps({Group(Int(3), Names({"a", "c", "d", "f"})), Group(Float(7), Names({"a.b"}))}), wanted);
}

// What f32 has not, or is none, is no step; a parameter that is named twice has one, the lower.
TEST_F(TorchSteps, OfPlainNumbersOnce) {
  for (const char *name : {"a", "b", "c", "d", "e"}) State(name, "exp_avg", CKPT_ROLE_EXP_AVG);
  const std::map<std::string, float> wanted = {{"optimizer.state.e.step", 0x1p24f}};
  EXPECT_EQ(Steps({Group(Int(16777217), Names({"a"})), Group(Int(-1), Names({"b"})), Group(Float(0.1), Names({"c"})),
                   Group(Text("3"), Names({"d"})), Group(Int(1 << 25), Names({"e"})),
                   Group(Int(1 << 24), Names({"e", "e"}))}),
            wanted);
}

// A file can share one list of names among all of its groups.
TEST_F(TorchSteps, MoreNamesThanTensorsAreNotWalked) {
  State("a", "exp_avg", CKPT_ROLE_EXP_AVG);
  ckpt_object *names = Names(std::vector<std::string>(1000, "a"));
  EXPECT_TRUE(Steps(std::vector<ckpt_object *>(4096, Group(Int(3), names))).empty());
}

}  // namespace
