// An optimizer's parameters get the names of their tensors, whatever its groups call them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/torch/state/groups.h"
#include "libckpt/codec/torch/state/params.h"
#include "libckpt/codec/torch/state/state.h"
}

namespace {

// Tensors as they were read, and as they are to be written, by number; dicts of text and number keys over them.
class TorchParams : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ckpt_index_new(&from_, nullptr, "from", "torch", nullptr, &err_), CKPT_OK);
    ASSERT_EQ(ckpt_index_new(&to_, nullptr, "to", "torch", nullptr, &err_), CKPT_OK);
    to_->objects_of = from_;
  }
  void TearDown() override {
    ckpt_index_free(to_);
    ckpt_index_free(from_);
  }

  // The leaf of a tensor that is written as `written`; "": it is not written.
  ckpt_object *Tensor(const std::string &name, const std::string &written, const char *alias = nullptr) {
    uint64_t shape = 1;
    uint32_t number = 0, other = 0;
    EXPECT_EQ(ckpt_index_add(from_, name.data(), name.size(), CKPT_U8, 1, &shape, CKPT_ROLE_OTHER, nullptr, 0, &number,
                             &err_),
              CKPT_OK);
    if (alias != nullptr) {
      EXPECT_EQ(ckpt_index_alias(from_, number, alias, &err_), CKPT_OK);
    }
    if (!written.empty()) {
      EXPECT_EQ(ckpt_index_add(to_, written.data(), written.size(), CKPT_U8, 1, &shape, CKPT_ROLE_OTHER, nullptr, 0,
                               &other, &err_),
                CKPT_OK);
      to_->tensors[other].details->like = number + 1;
    }
    return ckpt_object_tensor(Arena(), number);
  }
  ckpt_arena *Arena() { return &to_->arena; }
  ckpt_object *Text(const std::string &text) { return ckpt_object_text(Arena(), text.data(), text.size()); }
  ckpt_object *Int(int64_t value) { return ckpt_object_int(Arena(), value); }
  ckpt_object *List(const std::vector<ckpt_object *> &items, ckpt_object_kind kind = CKPT_OBJECT_LIST) {
    ckpt_object *list = ckpt_object_new(Arena(), kind, items.size() / (kind == CKPT_OBJECT_DICT ? 2 : 1), nullptr);
    for (size_t i = 0; i < items.size(); i++) list->items[i] = items[i];
    return list;
  }
  ckpt_object *Dict(const std::vector<ckpt_object *> &items) { return List(items, CKPT_OBJECT_DICT); }

  std::string Named(const ckpt_object *optimizer) {
    EXPECT_EQ(ckpt_index_finish(from_, &err_), CKPT_OK);
    ckpt_object *named = nullptr;
    if (ckpt_torch_name_params(&named, optimizer, to_, Arena(), &err_) != CKPT_OK) return err_.message;
    return ckpt_object_print(named, 4096, Arena());
  }

  ckpt_index *from_ = nullptr, *to_ = nullptr;
  ckpt_error err_ = {};
};

TEST_F(TorchParams, NumbersBecomeWhatTheTensorsAreCalled) {
  // Parameter 0 by a state's new name, 1 (whose one state both share) by its param_name, 2 by that and its tensor's
  // new name, 3 by nothing.
  Tensor("c", "d");
  ckpt_object *shared = Tensor("optimizer.state.a.step", "optimizer.state.a.step", "optimizer.state.b.step");
  ckpt_object *own = Tensor("optimizer.state.a.exp_avg", "optimizer.state.x.y.exp_avg");
  ckpt_object *left = Tensor("optimizer.state.b.exp_avg", "");
  ckpt_object *state =
      Dict({Int(0), Dict({Text("step"), shared, Text("exp_avg"), own}), Int(1),
            Dict({Text("step"), shared, Text("exp_avg"), left}), Int(2), Dict({Text("step"), Int(5)})});
  ckpt_object *groups = List({Dict({Text("lr"), Int(1), Text("params"), List({Int(0), Int(1), Int(2)}),
                                    Text("param_names"), List({Text("a"), Text("b"), Text("c")})}),
                              Dict({Text("params"), List({Int(3), Text("c"), Text("module.z")})})});
  const std::string before = ckpt_object_print(groups, 4096, Arena());
  EXPECT_EQ(Named(Dict({Text("state"), state, Text("param_groups"), groups, Text("extra"), Int(9)})),
            R"({"state": {"x.y": {"step": "<tensor 1>", "exp_avg": "<tensor 2>"}, "b": {"step": "<tensor 1>", )"
            R"("exp_avg": "<tensor 3>"}, "d": {"step": 5}}, "param_groups": [{"lr": 1, "params": ["x.y", "b", "d"], )"
            R"("param_names": ["a", "b", "d"]}, {"params": [3, "d", "module.z"]}], "extra": 9})");
  EXPECT_EQ(std::string(ckpt_object_print(groups, 4096, Arena())), before); /* a copy */
}

TEST_F(TorchParams, FlattenedKeysFollow) {
  ckpt_object *own = Tensor("optimizer.state.a.w.exp_avg", "optimizer.state.x.exp_avg");
  EXPECT_EQ(
      Named(Dict({Text("state.a.w.exp_avg"), own, Text("state.a.w.step"), Int(3), Text("param_groups.a.w.lr"), Int(1),
                  Text("param_groups.b.lr"), Int(2), Text("state."), Int(4), Text("param_groups..lr"), Int(5)})),
      R"({"state.x.exp_avg": "<tensor 0>", "state.x.step": 3, "param_groups.x.lr": 1, "param_groups.b.lr": 2, )"
      R"("state.": 4, "param_groups..lr": 5})");
}

// One list of a million parameters in a million groups.
TEST_F(TorchParams, GroupsWithoutEndAreRefused) {
  ckpt_object *params = ckpt_object_new(Arena(), CKPT_OBJECT_LIST, 100000, nullptr);
  for (uint64_t i = 0; i < params->n; i++) params->items[i] = Int(0);
  ckpt_object *groups = ckpt_object_new(Arena(), CKPT_OBJECT_LIST, 100000, nullptr);
  ckpt_object *group = Dict({Text("params"), params});
  for (uint64_t i = 0; i < groups->n; i++) groups->items[i] = group;
  EXPECT_EQ(Named(Dict({Text("param_groups"), groups})), "its optimizer's groups have more than 262144 entries");
}

// The names of states and their inverse: what is written is read as the same.
TEST(TorchState, KeysAndNames) {
  for (const char *key : {"exp_avg", "exp_avg_sq", "momentum_buffer", "step", "master_param", "master"}) {
    const ckpt_torch_state *state = ckpt_torch_state_of(key, strlen(key));
    ASSERT_NE(state, nullptr) << key;
    EXPECT_LE(strlen(state->name), strlen(key));
    ckpt_tensor tensor = {};
    tensor.role = state->role;
    const char *written = ckpt_torch_state_key(&tensor, state->name);
    EXPECT_EQ(ckpt_torch_state_of(written, strlen(written))->role, state->role);
    tensor.role = CKPT_ROLE_OTHER;
    EXPECT_STREQ(ckpt_torch_state_key(&tensor, state->name), state->name);
  }
  EXPECT_EQ(ckpt_torch_state_of("momentum", 8), nullptr);
}

// Numbers behind, and what PyTorch's tutorials call a state; a model of optimizers is none.
TEST(TorchGroups, OptimizersAreKnownByTheirKeys) {
  for (const char *key : {"optim", "optimizer", "optimizers", "optimizer_0", "optim_12", "optim_state_dict",
                          "optimizer_state_dict", "optimizer_1_state_dict"})
    EXPECT_TRUE(ckpt_torch_is_optimizer_key(key)) << key;
  for (const char *key :
       {"", "opt", "optimal", "optimizer_", "optimizer_x", "optimizer_0x", "optimizer_state", "model"})
    EXPECT_FALSE(ckpt_torch_is_optimizer_key(key)) << key;
}

}  // namespace
