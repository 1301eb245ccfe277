// What a run goes on from, of torch files whose states are of odd kinds: what it needs is made of them to the bit, and
// what cannot be is refused by name.
#include "tests/formats/reshard_testing.h"
#include "tests/formats/torch_testing.h"

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

// A file of a run of one parameter w, which is in storage 0, and its states.
std::string run_of(const std::string &w, const std::string &states, const std::vector<std::string> &storages) {
  const std::string group = dict({{"lr", "F0.5\n"}, {"params", "(" + text("w") + "l"}});
  const std::string optimizer = dict({{"state", dict({{"w", states}})}, {"param_groups", "(" + group + "l"}});
  return archive(dict({{"model", dict({{"w", w}})}, {"optimizer", optimizer}, {"step", "I3\n"}}) + ".", storages);
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
      EXPECT_STREQ(in->weights_note, "weights: model f32 (master copies are f32; --weights master)") << name;
      EXPECT_EQ(values_of(in.get(), "w"), c.own) << name;
      EXPECT_EQ(values_of(in.get(), "optimizer.state.w.master"), c.master) << name;
      std::vector<std::string> losses;
      ASSERT_EQ(write(folder / "in.pt", folder / "out", target, &err, "all", 16 << 20, nullptr, &losses), CKPT_OK)
          << name << text_of(err);
      IndexPointer out = open_weights(folder / "out", "model");
      ASSERT_NE(out, nullptr) << name;
      const bool is_alone = target.stage == 3; /* whose masters are all that it has */
      EXPECT_EQ(losses.size(), is_alone ? 1u : 0u) << name;
      EXPECT_EQ(values_of(out.get(), "w"), is_alone ? c.master : c.own) << name;
      EXPECT_EQ(values_of(out.get(), "optimizer.state.w.master"), c.master) << name;
    }
}

}  // namespace
}  // namespace formats_testing
