// What quantize takes from the metadata of a GGUF model and of an importance matrix: numbers in every form that files
// have them in. The types that follow are tests/libckpt/recipe/preset_test.cc's.
#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/codec/gguf/value.h"
#include "libckpt/recipe/convert/convert.h"
}

namespace formats_testing {
namespace {

std::string little(uint64_t value, size_t n) { return std::string(reinterpret_cast<const char *>(&value), n); }
std::string text(const std::string &value) { return little(value.size(), 8) + value; }
std::string pair(const std::string &key, uint32_t type, const std::string &value) {
  return text(key) + little(type, 4) + value;
}

// A model of one tensor of 32 values, with so many key-value heads, as type and bytes, and more pairs.
std::string model(const std::string &architecture, uint32_t type, const std::string &n_kv_heads,
                  const std::vector<std::string> &more = {}) {
  std::string bytes = "GGUF" + little(3, 4) + little(1, 8) + little(4 + more.size(), 8);
  for (const std::string &one : more) bytes += one;
  bytes += pair("general.architecture", CKPT_GGUF_STRING, text(architecture));
  bytes += pair(architecture + ".block_count", CKPT_GGUF_U32, little(1, 4));
  bytes += pair(architecture + ".attention.head_count", CKPT_GGUF_U32, little(8, 4));
  bytes += pair(architecture + ".attention.head_count_kv", type, n_kv_heads);
  bytes += text("blk.0.attn_q.weight") + little(3, 4) + little(32, 8) + little(1, 8) + little(1, 8) + little(0, 4) +
           little(0, 8);
  bytes.resize((bytes.size() + 31) / 32 * 32 + 128);
  return bytes;
}

std::string array(uint32_t type, uint64_t n, const std::string &bytes) {
  return little(type, 4) + little(n, 8) + bytes;
}

// Plans a preset of a model, with an importance matrix that has this metadata where it is not empty: "" or the message.
// look sees the description of the output.
std::string plan(const std::string &bytes, const std::string &imatrix_metadata = "",
                 const std::function<void(const ckpt_index *)> &look = {}, const char *preset = "Q8_0") {
  Folder folder;
  ckpt_error err = {};
  const std::string path = folder / "out.gguf";
  const std::string header =
      "{\"__metadata__\":" + imatrix_metadata +
      ",\"blk.0.attn_q.weight.in_sum2\":{\"dtype\":\"F32\",\"shape\":[1,32],\"data_offsets\":[0,"
      "128]},\"blk.0.attn_q.weight.counts\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":["
      "128,132]}}";
  IndexPointer from = open_bytes(bytes, &err), imatrix(nullptr, ckpt_index_free);
  if (!imatrix_metadata.empty()) imatrix = open_bytes(safetensors(header, std::string(132, '\0')), &err);
  if (from == nullptr || (imatrix == nullptr && !imatrix_metadata.empty())) return text_of(err);
  ckpt_convert_options options = {};
  options.struct_size = sizeof options;
  ckpt_quantize_options quantize = {};
  quantize.output_type = quantize.embedding_type = CKPT_DTYPE_NONE;
  quantize.imatrix = imatrix.get();
  quantize.imatrix_path = "some/imatrix";
  ckpt_convert_target target = {};
  target.path = path.c_str();
  target.preset = ckpt_preset_find(preset);
  ckpt_convert_request request = {};
  request.verb = "quantize";
  request.from = from.get();
  request.targets = &target;
  request.n_targets = 1;
  request.options = &options;
  request.quantize = &quantize;
  ckpt_plan *made = nullptr;
  EXPECT_EQ(ckpt_plan_new(&made, &err), CKPT_OK);
  const ckpt_status status = ckpt_convert_plan(made, &request, &err);
  if (status == CKPT_OK && look) look(made->outputs[0].described);
  ckpt_plan_free(made);
  return status == CKPT_OK ? "" : err.message;
}

TEST(QuantizeModel, NumbersAreOfAnyIntegerType) {
  const std::pair<uint32_t, size_t> types[] = {{CKPT_GGUF_U8, 1},  {CKPT_GGUF_I8, 1},  {CKPT_GGUF_U16, 2},
                                               {CKPT_GGUF_I16, 2}, {CKPT_GGUF_U32, 4}, {CKPT_GGUF_I32, 4}};
  for (const auto &[type, n] : types) {
    EXPECT_EQ(plan(model("llama", type, little(8, n))), "") << type;
    EXPECT_EQ(plan(model("llama", CKPT_GGUF_ARRAY, array(type, 1, little(8, n)))), "") << type;
    EXPECT_EQ(plan(model("llama", CKPT_GGUF_ARRAY, array(type, 2, little(8, n) + little(4, n)))), "") << type;
  }
}

TEST(QuantizeModel, WhatIsNoNumberIsRefused) {
  const std::string refused = "llama.attention.head_count_kv is no number that a model could have (";
  for (const std::string &value :
       {array(CKPT_GGUF_U8, 0, ""), array(CKPT_GGUF_I8, 1, "\xFF"), array(CKPT_GGUF_BOOL, 1, "\1"),
        array(CKPT_GGUF_STRING, 1, text("8")), array(CKPT_GGUF_F32, 1, little(0, 4))})
    EXPECT_EQ(plan(model("llama", CKPT_GGUF_ARRAY, value)).substr(0, refused.size()), refused);
}

TEST(QuantizeModel, NamesOfArchitecturesAreWhole) {
  const std::string name(300, 'a');
  EXPECT_EQ(plan(model(name, CKPT_GGUF_U32, little(8, 4))), "");
  EXPECT_EQ(plan(model(name, CKPT_GGUF_F32, little(0, 4))),
            std::string(200, 'a') + " is no number that a model could have (0.0)");
}

// A model of tests/data/presets: its bytes, and what llama-quantize chose for each preset.
struct Golden {
  std::string bytes;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::vector<ckpt_dtype>>> chosen;
};

Golden golden(const std::string &name) {
  std::ifstream in(CKPT_TESTS_DIR "/data/presets/" + name + ".txt");
  Golden out;
  std::string pairs, tensors, line;
  std::vector<std::string> types;
  uint64_t n_pairs = 1, n_bytes = 0;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word, first, second, third;
    words >> word >> first >> second >> third;
    if (word == "model") {  // architecture, layers as they are counted, experts
      std::string n_heads, n_kv_heads;
      words >> n_heads >> n_kv_heads;
      pairs += pair("general.architecture", CKPT_GGUF_STRING, text(first)) +
               pair(first + ".attention.head_count", CKPT_GGUF_U32, little(std::stoull(n_heads), 4)) +
               pair(first + ".attention.head_count_kv", CKPT_GGUF_U32, little(std::stoull(n_kv_heads), 4));
      n_pairs += 2;
    } else if (word == "key") {
      pairs += pair(first, CKPT_GGUF_U32, little(std::stoull(second), 4));
      n_pairs++;
    } else if (word == "tensor") {  // name, dtype, shape
      const size_t x = third.find('x');
      const bool is_matrix = x != std::string::npos;
      const uint64_t n_columns = std::stoull(third.substr(is_matrix ? x + 1 : 0));
      const uint64_t n_rows = is_matrix ? std::stoull(third) : 1;
      tensors += text(first) + little(is_matrix ? 2 : 1, 4) + little(n_columns, 8);
      if (is_matrix) tensors += little(n_rows, 8);
      tensors += little(second == "f16" ? 1 : 0, 4) + little(n_bytes, 8);
      n_bytes += n_rows * n_columns * (second == "f16" ? 2 : 4);
      out.names.push_back(first);
    } else if (word == "types") {
      types = {first, second, third};
      while (words >> word) types.push_back(word);
    } else if (word.find('+') == std::string::npos) {
      std::vector<ckpt_dtype> chosen;
      for (char letter : first) chosen.push_back(ckpt_dtype_parse(types[static_cast<size_t>(letter - 'A')].c_str()));
      out.chosen.emplace_back(word, chosen);
    }
  }
  out.bytes = "GGUF" + little(3, 4) + little(out.names.size(), 8) + little(n_pairs, 8) + pairs + tensors;
  out.bytes.resize((out.bytes.size() + 31) / 32 * 32 + n_bytes);
  return out;
}

// Loops over layers (nanbeige), layers that predict further tokens, one for a router (graniteswitch): mixtures go by
// what llama.cpp makes of block_count.
TEST(QuantizeModel, LayersAreCountedAsLlamaCppDoes) {
  for (const char *name : {"nanbeige", "nanbeige-next", "graniteswitch"}) {
    const Golden model = golden(name);
    ASSERT_GT(model.names.size(), 50u) << name;
    size_t n_compared = 0;
    for (const auto &[preset, chosen] : model.chosen) {
      const auto look = [&, &preset = preset, &chosen = chosen](const ckpt_index *described) {
        n_compared++;
        ASSERT_EQ(described->n_tensors, chosen.size());
        for (uint32_t i = 0; i < described->n_tensors; i++) {
          const ckpt_tensor &tensor = described->tensors[i];
          const size_t at =
              static_cast<size_t>(std::find(model.names.begin(), model.names.end(), tensor.name) - model.names.begin());
          ASSERT_LT(at, chosen.size()) << tensor.name;
          EXPECT_STREQ(ckpt_dtype_name(static_cast<ckpt_dtype>(tensor.dtype)), ckpt_dtype_name(chosen[at]))
              << name << ": " << preset << ": " << tensor.name;
        }
      };
      const std::string problem = plan(model.bytes, "", look, preset.c_str());
      EXPECT_TRUE(problem.empty() || problem.find("without importance") != std::string::npos) << problem;
    }
    EXPECT_GT(n_compared, 20u) << name;
  }
}

TEST(QuantizeModel, AxesAreThoseOfGgml) {
  EXPECT_EQ(plan(model("llama", CKPT_GGUF_U32, little(8, 4)), "",
                 [](const ckpt_index *described) {
                   ASSERT_EQ(described->tensors[0].rank, 1);
                   EXPECT_EQ(described->tensors[0].shape[0], 32u);
                 }),
            "");
}

TEST(QuantizeModel, WhatAMergeLeavesOfSplitsGoes) {
  const std::vector<std::string> split = {
      pair("split.no", CKPT_GGUF_U16, little(0, 2)), pair("split.count", CKPT_GGUF_U16, little(0, 2)),
      pair("split.tensors.count", CKPT_GGUF_I32, little(1, 4)), pair("split.custom", CKPT_GGUF_I32, little(1, 4))};
  EXPECT_EQ(plan(model("llama", CKPT_GGUF_U32, little(8, 4), split), "",
                 [](const ckpt_index *described) {
                   for (const char *key : {"split.no", "split.count", "split.tensors.count"})
                     EXPECT_EQ(ckpt_index_meta(described, key), nullptr) << key;
                   EXPECT_NE(ckpt_index_meta(described, "split.custom"), nullptr);
                   EXPECT_NE(ckpt_index_meta(described, "llama.block_count"), nullptr);
                 }),
            "");
}

TEST(QuantizeModel, ChunksAreAPlainNumber) {
  const std::string bytes = model("llama", CKPT_GGUF_U32, little(8, 4));
  const std::pair<const char *, const char *> counts[] = {{"7", "7"},
                                                          {"4294967295", "4294967295"},
                                                          {"4294967296", "(none)"},
                                                          {"-5", "(none)"},
                                                          {"+5", "(none)"},
                                                          {"0", "(none)"},
                                                          {"5.0", "(none)"},
                                                          {"", "(none)"}};
  for (const auto &[given, want] : counts) {
    const auto look = [want = want](const ckpt_index *described) {
      const char *value = ckpt_index_metadata(described, "quantize.imatrix.chunks_count");
      EXPECT_STREQ(value == nullptr ? "(none)" : value, want);
    };
    EXPECT_EQ(plan(bytes, "{\"imatrix.chunk_count\":\"" + std::string(given) + "\"}", look), "") << given;
  }
}

}  // namespace
}  // namespace formats_testing
