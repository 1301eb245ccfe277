// Which tensors no cast takes alone, in each layout that writers of quantized models use; and what only looks like one.
#include <map>
#include <set>

#include "tests/libckpt/recipe/prove_testing.h"

extern "C" {
#include "libckpt/recipe/quantize/quantized.h"
}

namespace {

using prove::Opened;
using prove::Stored;

Stored Tensor(const std::string &name, const std::string &dtype) {
  static const std::map<std::string, size_t> sizes = {{"F32", 4}, {"I32", 4}, {"F16", 2}, {"BF16", 2},
                                                      {"I64", 8}, {"U32", 4}, {"I16", 2}};
  auto size = sizes.find(dtype);
  return {name, dtype, {2}, std::string(2 * (size == sizes.end() ? 1 : size->second), '\1')};
}

std::set<std::string> Refused(const std::vector<std::pair<std::string, std::string>> &model, bool is_stated = false) {
  std::vector<Stored> tensors;
  for (const auto &tensor : model) tensors.push_back(Tensor(tensor.first, tensor.second));
  Opened file(tensors);
  std::set<std::string> refused;
  for (uint32_t i = 0; i < file.index->n_tensors; i++) {
    ckpt_error err = {};
    if (ckpt_refuse_quantized(file.index, &file.index->tensors[i], is_stated, &err) == CKPT_OK) continue;
    EXPECT_EQ(err.status, CKPT_EUNSUPPORTED);
    EXPECT_STREQ(err.tensor, file.index->tensors[i].name);
    refused.insert(err.tensor);
  }
  return refused;
}

using Names = std::set<std::string>;

TEST(Quantized, EveryLayoutByNamesAndDtypesAlone) {
  // What a layer is stored as; all of it is refused, and nothing that stands around it.
  const std::vector<std::vector<std::pair<std::string, std::string>>> layouts = {
      {{"l.weight", "U8"},
       {"l.weight.absmax", "U8"},
       {"l.weight.quant_map", "F32"},
       {"l.weight.nested_absmax", "F32"},
       {"l.weight.nested_quant_map", "F32"}},
      {{"l.weight", "I8"}, {"l.SCB", "F32"}},
      {{"l.weight", "I8"}, {"l.weight_scale", "BF16"}, {"l.weight_zero_point", "I8"}, {"l.input_scale", "F32"}},
      {{"l.weight", "F8_E4M3"}, {"l.weight_scale", "F32"}, {"l.input_scale", "F32"}},
      {{"l.weight", "F8_E4M3"}, {"l.scale_weight", "F32"}, {"l.scale_input", "F32"}},  // ComfyUI
      {{"l.weight", "F8_E4M3"}, {"l.weights_scaling_factor", "F32"}, {"l.activation_scaling_factor", "F32"}},
      {{"l.weight", "I8"}, {"l.per_channel_scale", "F16"}, {"l.prequant_scaling_factor", "F16"}},
      {{"l.weight", "I8"}, {"l.scale", "F16"}, {"l.zero_point", "I8"}},
      {{"l.weight", "F8_E4M3"}, {"l.scale", "F32"}},
      {{"l.weight_packed", "I32"}, {"l.weight_scale", "F16"}, {"l.weight_zero_point", "I32"}},
      {{"l.weight_packed", "U8"},
       {"l.weight_scale", "F8_E4M3"},
       {"l.weight_global_scale", "F32"},
       {"l.input_global_scale", "F32"}},
      {{"l.qweight", "I32"}, {"l.scales", "F16"}, {"l.qzeros", "I32"}},
      {{"l.weight", "F8_E4M3"}, {"l.weight_scale_inv", "F32"}},
      {{"e.down_proj_blocks", "U8"}, {"e.down_proj_scales", "U8"}},
      {{"l.weight._data", "I8"}, {"l.weight._scale", "F16"}},
      {{"l.W_q", "U8"}, {"l.scale", "F16"}, {"l.zero", "F16"}},
      {{"qweight", "I32"}, {"scales", "F16"}},
      {{"l.weight", "U32"}, {"l.scales", "F16"}, {"l.biases", "F16"}},                          // MLX, affine
      {{"l.weight", "U32"}, {"l.scales", "U8"}},                                                // MLX, mxfp4
      {{"l._weight_qdata", "I8"}, {"l._weight_scale", "F32"}, {"l._weight_zero_point", "I8"}},  // torchao
      {{"l._weight_qdata", "I32"}, {"l._weight_scale_and_zero", "BF16"}, {"l._weight_act_pre_scale", "BF16"}},
      {{"l._weight_qdata", "F8_E4M3"}, {"l._weight_scale", "F32"}},
      {{"l.weight.qdata", "I8"}, {"l.weight.scale", "F32"}},
      {{"l.weight", "I16"}, {"l.scales", "F16"}, {"l.tables", "F16"}, {"l.tables2", "F16"}},  // HIGGS
      {{"l.indices", "I16"},                                                                  // VPTQ
       {"l.centroids.weight", "F16"},
       {"l.res_centroids.weight", "F16"},
       {"l.res_indices", "F16"},
       {"l.outlier_centroids.weight", "F16"},
       {"l.outlier_indices", "F16"},
       {"l.weight_scale", "F16"},
       {"l.weight_bias", "F16"}},
  };
  for (const auto &layout : layouts) {
    std::vector<std::pair<std::string, std::string>> model = layout;
    Names wanted;
    for (const auto &tensor : layout) wanted.insert(tensor.first);
    for (const char *name : {"embed.weight", "norm.weight", "l.bias", "other.scales"}) model.push_back({name, "F16"});
    model.push_back({"l.g_idx", "I32"});
    EXPECT_EQ(Refused(model), wanted) << layout[0].first;
  }
}

TEST(Quantized, ANameWithoutQuantizedValuesBesideProvesNothing) {
  EXPECT_EQ(Refused({{"scales", "F32"}, {"logit_scale", "F32"}, {"l.SCB", "F32"}, {"l.absmax", "F16"}}), Names());
  EXPECT_EQ(Refused({{"l.weight", "F32"}, {"l.weight_scale", "F32"}, {"l.input_scale", "F32"}}), Names());
  EXPECT_EQ(Refused({{"l.qweight", "F32"}, {"l.scales", "F32"}, {"x_blocks", "I64"}, {"x_scales", "F32"}}), Names());
  EXPECT_EQ(Refused({{"myqweight", "I32"}, {"l.scales", "F32"}, {"myscales", "F32"}}), Names());
  EXPECT_EQ(Refused({{"l.weight", "F16"}, {"l.biases", "F16"}, {"m.indices", "I64"}, {"m.perm", "F16"}}), Names());
  EXPECT_EQ(Refused({{"l.myqdata", "I8"}, {"l.myscale", "F32"}, {"l.my_qdata", "I8"}, {"l.my_scale", "F32"}}), Names());
  EXPECT_EQ(Refused({{"l.weight", "I8"}, {"l.xSCB", "F32"}, {"m.SCB", "F32"}}), Names());
  EXPECT_EQ(Refused({{"norm.weight", "BF16"}, {"norm.scale", "BF16"}, {"m.scale", "F32"}, {"scale", "F16"}}), Names());
  EXPECT_EQ(Refused({{"l.weight", "F8_E4M3"}, {"l.rescale", "F32"}, {"scale_weight", "F32"}}), Names());
}

TEST(Quantized, AConfigThatSaysSoMakesEverySuchNameOne) {
  EXPECT_EQ(Refused({{"self_attn.k_scale", "F32"}, {"l.SCB", "F32"}, {"w", "F8_E5M2"}, {"norm.weight", "F32"}}, true),
            Names({"self_attn.k_scale", "l.SCB", "w"}));
  EXPECT_EQ(Refused({{"l.weight", "F32"}, {"l.weight_scale", "F32"}}, true), Names({"l.weight", "l.weight_scale"}));
}

}  // namespace
