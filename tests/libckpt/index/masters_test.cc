// Which copy stands for the parameters: what changes in an index, what is said, what is refused, on files and memory.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/index/masters.h"
}

namespace {

struct Item {
  std::string name, dtype, shape, bytes;  // bytes as they are stored
};

std::string Bytes(std::vector<float> values) {
  return std::string(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
}

std::string Bf16(std::vector<float> values) {
  std::string out;
  for (float value : values) out.append(reinterpret_cast<const char *>(&value) + 2, 2);
  return out;
}

std::string Safetensors(const std::vector<Item> &items) {
  std::string header, payload;
  for (const Item &item : items) {
    header += header.empty() ? "{" : ",";
    header += "\"" + item.name + "\":{\"dtype\":\"" + item.dtype + "\",\"shape\":" + item.shape +
              ",\"data_offsets\":[" + std::to_string(payload.size()) + ",";
    payload += item.bytes;
    header += std::to_string(payload.size()) + "]}";
  }
  header += "}";
  uint64_t n = header.size();
  return std::string(reinterpret_cast<const char *>(&n), sizeof n) + header + payload;
}

class Weights : public testing::Test {
 protected:
  void TearDown() override { ckpt_index_free(index_); }

  ckpt_status Open(const std::vector<Item> &items, const char *weights, bool stored_names = false) {
    ckpt_index_free(index_);
    index_ = nullptr;
    err_ = {};
    bytes_ = Safetensors(items);
    ckpt_open_options options = {};
    options.struct_size = sizeof options;
    options.stored_names = stored_names;
    options.weights = weights;
    ckpt_status status = ckpt_open_memory(&index_, bytes_.data(), bytes_.size(), "memory", &options, &err_);
    EXPECT_EQ(status == CKPT_OK, index_ != nullptr);
    return status;
  }
  const ckpt_tensor *Find(const char *name) { return ckpt_index_find(index_, name); }
  // The values of a tensor of two, after its dtype.
  std::string Values(const char *name) {
    float values[2] = {};
    EXPECT_EQ(ckpt_read(index_, Find(name), nullptr, CKPT_F32, values, sizeof values, &err_), CKPT_OK) << err_.message;
    return std::string(ckpt_dtype_name(static_cast<ckpt_dtype>(Find(name)->dtype))) + " " + std::to_string(values[0]) +
           " " + std::to_string(values[1]);
  }
  std::string Note() {
    char text[512];
    if (index_->weights_note == 0) return "";
    const ckpt_note *note = &index_->notes[index_->weights_note - 1];
    return ckpt_advice_text(note->text, note->advice, "", nullptr, text, sizeof text);
  }
  std::string Choice() { return index_->weights == nullptr ? "none" : index_->weights; }

  const std::vector<Item> mixed_ = {{"w", "BF16", "[2]", Bf16({1, 2})},
                                    {"optimizer.state.w.master", "F32", "[2]", Bytes({1.25, 2.25})},
                                    {"norm", "F32", "[1]", Bytes({3})}};
  const std::vector<Item> wrapped_ = {{"module.w", "BF16", "[2]", Bf16({1, 2})},
                                      {"optimizer.state.module.w.master", "F32", "[2]", Bytes({1.25, 2.25})}};
  std::string bytes_;
  ckpt_index *index_ = nullptr;
  ckpt_error err_ = {};
};

TEST_F(Weights, MastersStandWhereThereAreSome) {
  for (const char *weights : {static_cast<const char *>(nullptr), "master"}) {
    ASSERT_EQ(Open(mixed_, weights), CKPT_OK) << err_.message;
    EXPECT_EQ(Values("w"), "f32 1.250000 2.250000");
    EXPECT_EQ(Find("w")->n_bytes, 8u);
    EXPECT_EQ(Find("w")->role, CKPT_ROLE_PARAMETER);
    EXPECT_EQ(Values("optimizer.state.w.master"), "f32 1.250000 2.250000");
    EXPECT_EQ(Find("norm")->n_bytes, 4u);
    EXPECT_EQ(Choice(), "master");
    EXPECT_EQ(Note(), "weights: master f32 (stored parameters are bf16; weights=model)");
    EXPECT_TRUE(ckpt_master_stands(index_, Find("optimizer.state.w.master")));
    EXPECT_FALSE(ckpt_master_stands(index_, Find("w")));
  }
}

TEST_F(Weights, ModelLeavesTheStoredOnes) {
  ASSERT_EQ(Open(mixed_, "model"), CKPT_OK) << err_.message;
  EXPECT_EQ(Values("w"), "bf16 1.000000 2.000000");
  EXPECT_EQ(Find("w")->n_bytes, 4u);
  EXPECT_EQ(Choice(), "model");
  EXPECT_EQ(Note(), "weights: model bf16 (master copies are f32; weights=master)");
  EXPECT_FALSE(ckpt_master_stands(index_, Find("optimizer.state.w.master")));
}

TEST_F(Weights, NamesWithAndWithoutWrappers) {
  ASSERT_EQ(Open(wrapped_, nullptr), CKPT_OK) << err_.message;
  EXPECT_EQ(Values("w"), "f32 1.250000 2.250000");
  ASSERT_EQ(Open(wrapped_, nullptr, true), CKPT_OK) << err_.message;
  EXPECT_EQ(Values("module.w"), "f32 1.250000 2.250000");
}

TEST_F(Weights, NoChoiceWithoutMastersOfParameters) {
  const std::vector<Item> orphan = {mixed_[0], {"optimizer.state.v.master", "F32", "[2]", Bytes({1, 2})}};
  const std::vector<Item> other = {mixed_[0], {"optimizer.state.w.exp_avg", "F32", "[2]", Bytes({1, 2})}};
  for (const std::vector<Item> &items : {orphan, other}) {
    for (const char *weights : {static_cast<const char *>(nullptr), "model"}) {
      ASSERT_EQ(Open(items, weights), CKPT_OK) << err_.message;
      EXPECT_EQ(Values("w"), "bf16 1.000000 2.000000");
      EXPECT_EQ(Choice() + Note(), "none");
      EXPECT_FALSE(
          ckpt_master_stands(index_, Find("optimizer.state.v.master") ? Find("optimizer.state.v.master") : Find("w")));
    }
    EXPECT_EQ(Open(items, "master"), CKPT_ENOTFOUND);
    EXPECT_STREQ(err_.message, "holds no master weights");
    EXPECT_STREQ(err_.advice, "leave out %weights=master");
  }
}

TEST_F(Weights, AnOrphanBesideStandingMastersDoesNotStand) {
  std::vector<Item> items = mixed_;
  items.push_back({"optimizer.state.v.master", "F32", "[2]", Bytes({1, 2})});
  ASSERT_EQ(Open(items, nullptr), CKPT_OK) << err_.message;
  EXPECT_TRUE(ckpt_master_stands(index_, Find("optimizer.state.w.master")));
  EXPECT_FALSE(ckpt_master_stands(index_, Find("optimizer.state.v.master")));
}

TEST_F(Weights, DtypesThatDifferAreMixed) {
  std::vector<Item> items = mixed_;
  items.push_back({"optimizer.state.norm.master", "F32", "[1]", Bytes({4})});
  ASSERT_EQ(Open(items, nullptr), CKPT_OK) << err_.message;
  EXPECT_EQ(Note(), "weights: master f32 (stored parameters are mixed; weights=model)");
}

TEST_F(Weights, ShapesThatDifferAreRefusedWhereMastersStand) {
  for (const char *shape : {"[2,1]", "[1]"}) {
    std::vector<Item> items = mixed_;
    items[1] = {"optimizer.state.w.master", "F32", shape,
                Bytes(shape[2] == ',' ? std::vector<float>{1, 2} : std::vector<float>{1})};
    EXPECT_EQ(Open(items, nullptr), CKPT_EFORMAT);
    EXPECT_STREQ(err_.tensor, "w");
    EXPECT_EQ(Open(items, "model"), CKPT_OK) << err_.message;
    EXPECT_EQ(Values("w"), "bf16 1.000000 2.000000");
  }
}

TEST_F(Weights, AnotherWordIsRefused) { EXPECT_EQ(Open(mixed_, "masters"), CKPT_EINVAL); }

// A caller built before the option existed passes a shorter struct: what lies behind it is not read.
TEST_F(Weights, AShorterStructHasNoWeights) {
  std::string bytes = Safetensors(mixed_);
  ckpt_open_options options = {};
  options.struct_size = offsetof(ckpt_open_options, weights);
  options.weights = "not a word";
  ASSERT_EQ(ckpt_open_memory(&index_, bytes.data(), bytes.size(), "memory", &options, &err_), CKPT_OK) << err_.message;
  EXPECT_EQ(Choice(), "master");
}

// lm_head is tied to the embedding: the master of either name stands, that of the kept name first.
TEST_F(Weights, AMasterUnderAnAlias) {
  ASSERT_EQ(ckpt_index_new(&index_, nullptr, "model", "fake", nullptr, nullptr), CKPT_OK);
  uint64_t shape = 2;
  uint32_t w = 0;
  auto add = [&](const std::string &name, ckpt_dtype dtype, ckpt_role role, uint32_t *number) {
    EXPECT_EQ(ckpt_index_add(index_, name.data(), name.size(), dtype, 1, &shape, role, nullptr, 0, number, &err_),
              CKPT_OK);
  };
  add("w", CKPT_BF16, CKPT_ROLE_PARAMETER, &w);
  ASSERT_EQ(ckpt_index_alias(index_, w, "tied", &err_), CKPT_OK);
  add("optimizer.state.tied.master", CKPT_F64, CKPT_ROLE_MASTER, nullptr);
  ASSERT_EQ(ckpt_index_finish(index_, &err_), CKPT_OK) << err_.message;
  ASSERT_EQ(ckpt_index_choose_weights(index_, nullptr, &err_), CKPT_OK) << err_.message;
  EXPECT_EQ(Find("w")->dtype, CKPT_F64);
  EXPECT_TRUE(ckpt_master_stands(index_, Find("optimizer.state.tied.master")));
}

// A parameter has all that gathering asks of its master's pieces.
TEST_F(Weights, AMasterInBoxes) {
  fake::Random random(1);
  fake::Store store(&random);
  fake::Array master = fake::random_array(&random, CKPT_F32, {32, 6});
  store.add("w", fake::random_array(&random, CKPT_BF16, {32, 6}), fake::Form::kFlat, false);
  store.add("optimizer.state.w.master", master, fake::Form::kBoxes, false).role = CKPT_ROLE_MASTER;
  fake::IndexPointer index = store.build(&err_);
  ASSERT_TRUE(index) << err_.message;
  ASSERT_EQ(ckpt_index_choose_weights(index.get(), nullptr, &err_), CKPT_OK) << err_.message;
  EXPECT_EQ(fake::read_all(index.get(), ckpt_index_find(index.get(), "w")), master.bytes);
}

}  // namespace
