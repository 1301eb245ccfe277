// What a run goes on from, of torch files whose states are of odd kinds: what it needs is made of them to the bit, and
// what cannot be is refused by name.
#include "tests/formats/reshard_testing.h"
#include "tests/formats/torch/torch_testing.h"

namespace formats_testing {
namespace {

const Target kTargets[] = {{"universal", 0, 1}, {"zero", 1, 2}, {"zero", 3, 1}};

std::string floats(const std::vector<float> &values) {
  return std::string(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
}

std::string values_of(const ckpt_index *index, const char *name) {
  const ckpt_tensor *tensor = ckpt_index_find(index, name);
  if (tensor == nullptr) return "no tensor " + std::string(name);
  return values(index, tensor);
}

IndexPointer open_weights(const std::string &path, const char *weights) {
  ckpt_error err = {};
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.weights = weights;
  ckpt_index *index = nullptr;
  EXPECT_EQ(ckpt_open(&index, path.c_str(), &options, &err), CKPT_OK) << text_of(err);
  return IndexPointer(index, ckpt_index_free);
}

// What is 2 x 2 of a storage of 6 floats.
std::string square(const char *of, const char *row, const char *column) {
  return view(storage("FloatStorage", of, "6"), "0", {"2", "2"}, {row, column});
}

using Items = std::vector<std::pair<std::string, std::string>>;

std::string list(const std::vector<std::string> &items) {
  std::string out = "(";
  for (const std::string &item : items) out += item;
  return out + "l";
}

// A file of a run of these parameters, their states, and the names in its groups.
std::string run_of(const Items &model, const Items &states, const std::vector<std::vector<std::string>> &groups,
                   const std::vector<std::string> &storages) {
  std::vector<std::string> made;
  for (const std::vector<std::string> &names : groups) {
    std::vector<std::string> params;
    for (const std::string &name : names) params.push_back(text(name));
    made.push_back(dict({{"lr", "F0.5\n"}, {"params", list(params)}}));
  }
  const std::string optimizer = dict({{"state", dict(states)}, {"param_groups", list(made)}});
  return archive(dict({{"model", dict(model)}, {"optimizer", optimizer}, {"step", "I3\n"}}) + ".", storages);
}

// Of one parameter w.
std::string run_of(const std::string &w, const std::string &states, const std::vector<std::string> &storages) {
  return run_of({{"w", w}}, {{"w", states}}, {{"w"}}, storages);
}

const std::string kNumbers = floats({1, 2, 3, 4, 5, 6}), kZeros = floats({0, 0, 0, 0, 0, 0});

// A master that is the transposed view of its square parameter lies in the same bytes, and has other values; of a
// parameter that is stored in one piece, and of one that is a view itself.
TEST(Training, AMasterThatIsAViewOfItsParameterIsAnother) {
  const struct {
    const char *row;
    std::string own, master;
  } cases[] = {{"2", floats({1, 2, 3, 4}), floats({1, 3, 2, 4})}, {"3", floats({1, 2, 4, 5}), floats({1, 4, 2, 5})}};
  for (const Target &target : kTargets)
    for (const auto &c : cases) {
      const std::string name = std::string(target.format) + std::to_string(target.stage) + " " + c.row;
      Folder folder;
      ckpt_error err = {};
      spill(folder / "in.pt", run_of(square("0", c.row, "1"),
                                     dict({{"exp_avg", square("1", "2", "1")}, {"master", square("0", "1", c.row)}}),
                                     {kNumbers, kZeros}));
      IndexPointer in = open_weights(folder / "in.pt", "model");
      ASSERT_NE(in, nullptr);
      EXPECT_EQ(said(in->notes[in->weights_note - 1]), "weights: model f32 (master copies are f32; weights=master)")
          << name;
      EXPECT_EQ(values_of(in.get(), "w"), c.own) << name;
      EXPECT_EQ(values_of(in.get(), "optimizer.state.w.master"), c.master) << name;
      std::vector<std::string> losses;
      ASSERT_EQ(write(folder / "in.pt", folder / "out", target, &err, "all", 16 << 20, nullptr, &losses), CKPT_OK)
          << name << text_of(err);
      const bool is_alone = target.stage == 3; /* whose masters are all that it has */
      IndexPointer out = open_weights(folder / "out", is_alone ? "master" : "model");
      ASSERT_NE(out, nullptr) << name;
      EXPECT_EQ(losses.size(), is_alone ? 1u : 0u) << name;
      EXPECT_EQ(values_of(out.get(), "w"), is_alone ? c.master : c.own) << name;
      EXPECT_EQ(values_of(out.get(), "optimizer.state.w.master"), c.master) << name;
    }
}

std::string bytes_of(int64_t number, int n_bytes) {
  std::string out;
  put(&out, static_cast<uint64_t>(number), n_bytes);
  return out;
}

const std::string kWeight = square("0", "2", "1"), kMoment = square("1", "2", "1");

// A step in a storage of its own, of one value or as many as sizes say.
std::string step_of(const std::string &type, const std::vector<std::string> &shape = {},
                    const std::vector<std::string> &strides = {}) {
  return view(storage(type, "2", shape.empty() ? "1" : shape[0]), "0", shape, strides);
}

// Steps of whatever dtype are the f32 that torch has them as, where that is the same number.
TEST(Training, StepsOfAnyDtype) {
  const struct {
    const char *type;
    std::string stored;
    float step;
  } cases[] = {{"FloatStorage", floats({3}), 3},
               {"DoubleStorage", std::string("\0\0\0\0\0\0\x08@", 8), 3},
               {"BFloat16Storage", std::string("\x40\x40", 2), 3},
               {"LongStorage", bytes_of(int64_t{1} << 40, 8), 0x1p40f},
               {"LongStorage", bytes_of(16777215, 8), 16777215},
               {"IntStorage", bytes_of(70000, 4), 70000},
               {"ShortStorage", bytes_of(300, 2), 300},
               {"CharStorage", bytes_of(100, 1), 100},
               {"ByteStorage", bytes_of(200, 1), 200}};
  for (const Target &target : kTargets)
    for (const auto &c : cases) {
      Folder folder;
      ckpt_error err = {};
      spill(folder / "in.pt",
            run_of(kWeight, dict({{"exp_avg", kMoment}, {"step", step_of(c.type)}}), {kNumbers, kZeros, c.stored}));
      ASSERT_EQ(write(folder / "in.pt", folder / "out", target, &err), CKPT_OK) << c.type << " " << text_of(err);
      IndexPointer out = open(folder / "out", &err, false);
      ASSERT_NE(out, nullptr) << text_of(err);
      EXPECT_EQ(values_of(out.get(), "optimizer.state.w.step"), floats({c.step})) << c.type;
    }
}

// A group's step that is a number, as optimizers of others than torch count, stays one where its parameters say no
// other (torch keeps such a key, and counts in its own); parameters have it, unless they have no states at all.
TEST(Training, StepsThatAreNumbersOfGroups) {
  const std::string step = step_of("FloatStorage"), exp_avg = kMoment;
  const struct {
    const char *name;
    Items states;
    float stored;   /* of the tensor, where the states have it */
    bool is_number; /* of the group, in the output */
    float wanted;   /* 0: none */
  } cases[] = {{"the same", {{"exp_avg", exp_avg}, {"step", step}}, 3, true, 3},
               {"gone on in torch", {{"exp_avg", exp_avg}, {"step", step}}, 5, false, 5},
               {"of the group alone", {{"exp_avg", exp_avg}}, 0, true, 3},
               {"masters alone", {{"master", exp_avg}}, 0, true, 0}};
  for (const Target &target : kTargets)
    for (const auto &c : cases) {
      Folder folder;
      ckpt_error err = {};
      const std::string group = dict({{"lr", "F0.5\n"}, {"step", "I3\n"}, {"params", list({text("w")})}});
      const std::string optimizer = dict({{"state", dict({{"w", dict(c.states)}})}, {"param_groups", list({group})}});
      spill(folder / "in.pt", archive(dict({{"model", dict({{"w", kWeight}})}, {"optimizer", optimizer}}) + ".",
                                      {kNumbers, kZeros, floats({c.stored})}));
      ASSERT_EQ(write(folder / "in.pt", folder / "out", target, &err), CKPT_OK) << c.name << " " << text_of(err);
      IndexPointer out = open(folder / "out", &err, false);
      ASSERT_NE(out, nullptr) << c.name << " " << text_of(err);
      const ckpt_object *said =
          ckpt_object_get(ckpt_object_get(out->objects, CKPT_STATE_PARAM_GROUPS)->items[0], "step");
      EXPECT_EQ(said != nullptr && said->kind == CKPT_OBJECT_INT, c.is_number) << c.name << " " << target.format;
      const std::string wanted = c.wanted == 0 ? "no tensor optimizer.state.w.step" : floats({c.wanted});
      EXPECT_EQ(values_of(out.get(), "optimizer.state.w.step"), wanted) << c.name << " " << target.format;
    }
}

// Names of tensors leave an empty key out: they would stand elsewhere.
TEST(Training, AnEmptyKeyOfTensorsIsLost) {
  Folder folder;
  ckpt_error err = {};
  const std::string group = dict({{"lr", "F0.5\n"}, {"params", list({text("w")})}});
  const std::string states = dict({{"w", dict({{"exp_avg", kMoment}})}});
  const std::string optimizer = dict({{"state", states}, {"param_groups", list({group})}});
  const std::string other = view(storage("FloatStorage", "2", "2"), "0", {"2"}, {"1"});
  for (const std::string &value : {other, dict({{"t", other}})}) {
    const std::string root = dict({{"model", dict({{"w", kWeight}})}, {"optimizer", optimizer}, {"", value}});
    spill(folder / "in.pt", archive(root + ".", {kNumbers, kZeros, floats({1, 2})}));
    std::vector<std::string> losses;
    ASSERT_EQ(write(folder / "in.pt", folder / "out", kTargets[1], &err, "all", 16 << 20, nullptr, &losses, true),
              CKPT_OK)
        << text_of(err);
    EXPECT_EQ(losses, std::vector<std::string>({"an entry whose key is empty"}));
  }
}

// Each group has a step of its own, and each parameter that of its group.
TEST(Training, GroupsHaveTheirOwnSteps) {
  for (const Target &target : kTargets) {
    Folder folder;
    ckpt_error err = {};
    Items model, states;
    std::vector<std::string> storages;
    for (int i = 0; i < 3; i++) {
      const std::string first = std::to_string(storages.size()), second = std::to_string(storages.size() + 1);
      const std::string step = view(storage("LongStorage", second, "1"), "0", {}, {});
      const std::string values = square(first.c_str(), "2", "1");
      storages.insert(storages.end(), {kNumbers, bytes_of(10 + i, 8)});
      model.push_back({"w" + std::to_string(i), values});
      states.push_back({model.back().first, dict({{"exp_avg", square(first.c_str(), "1", "2")}, {"step", step}})});
    }
    spill(folder / "in.pt", run_of(model, states, {{"w2"}, {"w0"}, {"w1"}}, storages));
    ASSERT_EQ(write(folder / "in.pt", folder / "out", target, &err), CKPT_OK) << text_of(err);
    IndexPointer out = open(folder / "out", &err, false);
    ASSERT_NE(out, nullptr) << text_of(err);
    for (int i = 0; i < 3; i++)
      EXPECT_EQ(values_of(out.get(), ("optimizer.state.w" + std::to_string(i) + ".step").c_str()),
                floats({static_cast<float>(10 + i)}))
          << target.format << i;
  }
}

TEST(Training, StepsThatAreNone) {
  const std::string other =
      " is not a value of f32, in which this format keeps steps (include=no-optimizer goes on without)";
  const struct {
    std::string step, stored, message;
  } cases[] = {
      {step_of("LongStorage"), bytes_of(16777217, 8), "step 16777217" + other},
      {step_of("LongStorage"), bytes_of((int64_t{1} << 53) + 1, 8), "step 9007199254740992" + other},
      {step_of("LongStorage"), bytes_of(-2, 8), "step -2" + other},
      {step_of("ShortStorage"), bytes_of(-300, 2), "step -300" + other},
      {step_of("CharStorage"), bytes_of(-1, 1), "step -1" + other},
      {step_of("FloatStorage"), std::string("\0\0\x80\x7f", 4), "step inf" + other},
      {step_of("FloatStorage"), std::string("\0\0\xc0\x7f", 4), "step nan" + other},
      {step_of("DoubleStorage"), std::string("\x9a\x99\x99\x99\x99\x99\xb9\x3f", 8),
       "step 0.10000000000000001" + other},
      {step_of("BoolStorage"), "\1", "a step that is bool (include=no-optimizer goes on without)"},
      {step_of("FloatStorage", {"2"}, {"1"}), floats({3, 3}), "a step that is not one value (include=no-optimizer"},
  };
  for (const auto &c : cases) {
    Folder folder;
    ckpt_error err = {};
    const std::string input = folder / "in.pt";
    spill(input, run_of(kWeight, dict({{"exp_avg", kMoment}, {"step", c.step}}), {kNumbers, kZeros, c.stored}));
    EXPECT_EQ(write(input, folder / "out", {"universal", 0, 1}, &err), CKPT_EUNSUPPORTED) << c.message;
    EXPECT_EQ(text_of(err).find(input + ": tensor 'optimizer.state.w.step': " + c.message), 0u) << text_of(err);
  }
}

// What of one parameter or another has no place in the files of the target.
TEST(Training, WhatDoesNotFitIsRefused) {
  const std::string first = square("1", "2", "1"), second = square("2", "2", "1"), other = square("3", "2", "1"),
                    half = view(storage("HalfStorage", "4", "4"), "0", {"2", "2"}, {"2", "1"}),
                    three = view(storage("FloatStorage", "5", "1"), "0", {}, {}),
                    four = view(storage("FloatStorage", "6", "1"), "0", {}, {});
  const std::string moment = dict({{"exp_avg", first}}), go_on = " (include=no-optimizer goes on without)";
  const std::string folder_less =
                        "no folder can have its name, which universal checkpoints have one for (to=zero needs none)",
                    file_less =
                        "no file can have its name, which universal checkpoints have one for (to=zero needs none)";
  const Target universal = {"universal", 0, 1}, zero = {"zero", 1, 1};
  const std::vector<std::string> storages = {kNumbers,    kZeros,     kZeros, kZeros, std::string(8, '\0'),
                                             floats({3}), floats({4})};
  auto alone = [&](const std::string &name, const std::string &states) {
    return run_of({{name, kWeight}}, {{name, states}}, {{name}}, storages);
  };
  auto both = [&](const Items &a, const Items &b, const std::vector<std::vector<std::string>> &groups) {
    const std::string weight = view(storage("FloatStorage", "0", "6"), "2", {"2", "2"}, {"2", "1"});
    return run_of({{"a", kWeight}, {"b", weight}}, {{"a", dict(a)}, {"b", dict(b)}}, groups, storages);
  };
  const std::vector<std::vector<std::string>> one = {{"a", "b"}};
  const struct {
    std::string bytes, message;
    std::vector<Target> targets;
  } cases[] = {
      {both({{"exp_avg", first}}, {{"exp_avg", second}}, {{"a", "b"}, {"b"}}),
       "tensor 'b': it is in two groups of the optimizer",
       {universal, zero}},
      {both({{"exp_avg", first}, {"step", three}}, {{"exp_avg", second}, {"step", four}}, one),
       "tensor 'optimizer.state.b.step': step 4, and 3 of others in its group: this format has one for all" + go_on,
       {universal, zero}},
      {both({{"exp_avg", first}}, {{"exp_avg", half}}, one),
       "tensor 'optimizer.state.b.exp_avg': is f16, and optimizer.state.a.exp_avg is f32: ZeRO has one row of all",
       {universal, zero}},
      {both({{"exp_avg", first}}, {{"exp_avg", second}, {"exp_avg_sq", other}}, one),
       "tensor 'a': it has no exp_avg_sq, and other parameters have one" + go_on,
       {universal, zero}},
      {both({{"exp_avg", first}}, {}, one),
       "tensor 'b': it has no exp_avg, and other parameters have one" + go_on,
       {universal, zero}},
      {alone("a/b", moment), "tensor 'a/b': " + folder_less, {universal}},
      {alone(".a", moment), "tensor '.a': " + folder_less, {universal}},
      {alone("optimizer_state.pt", moment), "tensor 'optimizer_state.pt': " + folder_less, {universal}},
      {alone(std::string(256, 'n'), moment), folder_less, {universal}},
      {alone("w", dict({{"a/b", first}})), "tensor 'optimizer.state.w.a/b': " + file_less, {universal}},
      {alone("w", dict({{"fp32", first}})), "tensor 'optimizer.state.w.fp32': " + file_less, {universal}},
  };
  for (const auto &c : cases)
    for (const Target &target : c.targets) {
      Folder folder;
      ckpt_error err = {};
      spill(folder / "in.pt", c.bytes);
      EXPECT_NE(write(folder / "in.pt", folder / "out", target, &err), CKPT_OK) << c.message;
      EXPECT_NE((text_of(err) + "$").find(c.message + "$"), std::string::npos) << text_of(err);
      EXPECT_FALSE(std::filesystem::exists(folder / "out"));
    }
}

}  // namespace
}  // namespace formats_testing
