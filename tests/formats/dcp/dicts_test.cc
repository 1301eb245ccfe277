// Dicts as training scripts save them (tests/data/make_dcp_dicts.py), by torch.save and by dcp.save: both are read as
// one checkpoint, whatever its parts are called and wherever they stand, and either becomes the other.
#include <algorithm>

#include "tests/formats/reshard_testing.h"
#include "tests/formats/torch/torch_testing.h"

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/dicts/";

struct Dict {
  const char *name;
  std::vector<std::string> model, optimizer;  // the names of parameters, and of those that the first optimizer knows
  const char *other;                          // the name of a tensor that is neither; NULL: there is none
};

class Dicts : public testing::TestWithParam<Dict> {
 protected:
  // Name, role, dtype and shape of every tensor, and what is known of the trainer.
  std::vector<std::string> Told(const std::string &path) {
    ckpt_error err = {};
    IndexPointer index = open(path, &err, false);
    EXPECT_NE(index, nullptr) << text_of(err);
    std::vector<std::string> told;
    for (uint32_t i = 0; index != nullptr && i < index->n_tensors; i++) {
      const ckpt_tensor &tensor = index->tensors[i];
      std::string line = std::string(tensor.name) + " " + ckpt_role_name(static_cast<ckpt_role>(tensor.role)) + " " +
                         ckpt_dtype_name(static_cast<ckpt_dtype>(tensor.dtype));
      for (uint32_t k = 0; k < tensor.rank; k++) line += " " + std::to_string(tensor.shape[k]);
      told.push_back(line);
    }
    std::sort(told.begin(), told.end());
    if (index != nullptr) told.push_back(Printed(index.get(), CKPT_STATE_TRAINER));
    return told;
  }

  static std::string Printed(const ckpt_index *index, const char *key) {
    ckpt_arena arena;
    ckpt_arena_init(&arena, 1 << 20);
    const ckpt_object *object = ckpt_object_get(index->objects, key);
    std::string text = object == nullptr ? "none" : ckpt_object_print(object, 1 << 16, &arena);
    ckpt_arena_free(&arena);
    return text;
  }

  void ExpectOne(const std::string &a, const std::string &b) {
    EXPECT_EQ(Told(a), Told(b)) << a << ", " << b;
    for (const char *include : {"model", "all"}) EXPECT_EQ(digest_of(a, include), digest_of(b, include)) << include;
  }

  std::string Converted(const std::string &input, const char *to, const std::string &output,
                        const char *const *rename = nullptr) {
    ckpt_convert_options options = {};
    options.rename = rename;
    ckpt_error err = {};
    options.struct_size = sizeof options;
    options.input = input.c_str(), options.output = output.c_str(), options.to = to, options.include = "all";
    EXPECT_EQ(ckpt_convert(&options, &err), CKPT_OK) << text_of(err);
    return output;
  }

  Folder folder_;
};

TEST_P(Dicts, AreReadAlike) {
  const Dict &dict = GetParam();
  const std::string dcp = kData + dict.name;
  ExpectOne(dcp, dcp + ".pt");
  ckpt_error err = {};
  IndexPointer index = open(dcp, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  uint32_t n_model = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) n_model += index->tensors[i].role == CKPT_ROLE_PARAMETER;
  EXPECT_EQ(n_model, dict.model.size());
  for (const std::string &name : dict.model) {
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), name.c_str());
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->role, CKPT_ROLE_PARAMETER) << name;
  }
  for (const std::string &name : dict.optimizer) {
    const ckpt_tensor *tensor = ckpt_index_find(index.get(), ("optimizer.state." + name + ".exp_avg").c_str());
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->role, CKPT_ROLE_EXP_AVG) << name;
  }
  if (dict.other == nullptr) return;
  ASSERT_NE(ckpt_index_find(index.get(), dict.other), nullptr);
  EXPECT_FALSE(ckpt_role_is_model(static_cast<ckpt_role>(ckpt_index_find(index.get(), dict.other)->role)));
}

TEST_P(Dicts, BecomeEachOther) {
  const std::string dcp = kData + GetParam().name, torch = dcp + ".pt";
  ExpectOne(Converted(dcp, "torch", folder_ / "from-dcp.pt"), torch);
  ExpectOne(Converted(torch, "dcp", folder_ / "from-torch"), dcp);
  ExpectOne(Converted(dcp, "dcp", folder_ / "from-dcp"), dcp);
  ckpt_error err = {};
  IndexPointer was = open(dcp, &err, false), is = open(folder_ / "from-dcp", &err, false);
  ASSERT_TRUE(was != nullptr && is != nullptr) << text_of(err);
  EXPECT_EQ(Printed(is.get(), CKPT_STATE_PARAM_GROUPS), Printed(was.get(), CKPT_STATE_PARAM_GROUPS));
  if (GetParam().name == std::string("flat")) return;  // without containers, in order of names
  EXPECT_EQ(Printed(is.get(), "torch"), Printed(was.get(), "torch"));
}

class DictsRenamed : public Dicts {};

// Where the input's own dict will not do, its parts stay together, whatever stands beside the dict that has them.
TEST_F(DictsRenamed, PartsBelowOneKeyStayTogether) {
  const char *rename[] = {"s/^a\\.weight$/b.weight/", nullptr};
  const std::string output = Converted(kData + "common.pt", "dcp", folder_ / "o", rename);
  ckpt_error err = {};
  IndexPointer index = open(output, &err, false), was = open(kData + "common.pt", &err, false);
  ASSERT_TRUE(index != nullptr && was != nullptr) << text_of(err);
  const ckpt_object *root = ckpt_object_get(index->objects, "torch");
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(ckpt_object_get(root, "app"), nullptr);
  for (const char *part : {"state", "param_groups"})
    EXPECT_NE(ckpt_object_get(ckpt_object_get(root, "optimizer"), part), nullptr) << part;
  EXPECT_EQ(was->step, 3);
  EXPECT_EQ(index->step, 3);
  EXPECT_NE(ckpt_index_find(index.get(), "b.weight"), nullptr);
}

// torch has a list that holds neither tensors nor dicts as one item: so is what is left of one.
TEST_F(DictsRenamed, ListsWithoutTheirTensorsAreItems) {
  const char *rename[] = {"s/^a$/b/", nullptr};
  const std::string weight = view(storage("FloatStorage", "0", "2"), "0", {"2"}, {"1"});
  const std::string state = view(storage("FloatStorage", "1", "2"), "0", {"2"}, {"1"});
  const std::string root =
      dict({{"model", dict({{"a", weight}})}, {"rng", "(l" + state + "a" + number("5") + "a" + text("x") + "a"}});
  spill(folder_ / "in.pt", archive(root + ".", {std::string(8, 1), std::string(8, 2)}));
  const std::string output = Converted(folder_ / "in.pt", "dcp", folder_ / "o", rename);
  ckpt_error err = {};
  IndexPointer index = open(output, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(slurp(output + "/.metadata").find("rng.1"), std::string::npos);
  const ckpt_object *rng = ckpt_object_get(ckpt_object_get(index->objects, "torch"), "rng");
  ASSERT_NE(rng, nullptr);
  ASSERT_EQ(rng->n, 3u);
  EXPECT_EQ(rng->items[0]->kind, CKPT_OBJECT_NONE);
  EXPECT_EQ(rng->items[1]->integer, 5);
  EXPECT_NE(ckpt_index_find(index.get(), "rng.0"), nullptr);
}

const std::vector<std::string> kModel = {"a.weight", "a.bias"}, kNumbers = {"0", "1"};

INSTANTIATE_TEST_SUITE_P(
    All, Dicts,
    testing::Values(Dict{"common", kModel, kNumbers, "extra.t"}, Dict{"nested", kModel, kNumbers, nullptr},
                    Dict{"lightning", kModel, kNumbers, nullptr}, Dict{"last", kModel, kNumbers, nullptr},
                    Dict{"two", kModel, kNumbers, "optimizers.d.state.0.exp_avg"},
                    Dict{"apart",
                         {"netG.a.weight", "netG.a.bias", "netD.a.weight", "netD.a.bias"},
                         kNumbers,
                         "optD.state.1.exp_avg_sq"},
                    Dict{"named", kModel, kModel, nullptr}, Dict{"beside", kModel, {}, "ema.decay"},
                    Dict{"flat", kModel, {}, "schedule"}, Dict{"tuple", {"w", "b.0", "x.1"}, {}, nullptr},
                    Dict{"groupless", kModel, {"a.bias"}, nullptr},
                    Dict{"unflattened", kModel, kNumbers, "optimizers.1.state.a.bias.exp_avg"},
                    Dict{"hole", kModel, {}, "l.1"}, Dict{"gaps", kModel, {}, "cb.2"},
                    Dict{"keys", kModel, {}, "by.-0.5"}, Dict{"fresh", kModel, {}, "optimizer.param_groups.0.lr"}),
    [](const testing::TestParamInfo<Dict> &of) { return std::string(of.param.name); });

}  // namespace
}  // namespace formats_testing
