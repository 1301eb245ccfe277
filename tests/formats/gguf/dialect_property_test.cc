// To GGUF and back is the identity for what is not quantized: random configs of each family, from folders of any
// shards, DCP and universal checkpoints, with any threads and memory. What comes back makes the same GGUF file, byte
// for byte. CKPT_TEST_SEED: the first seed; CKPT_TEST_FULL: many more cases, with tensors of many tiles.
#include <functional>
#include <random>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/index/arch.h"
}

namespace formats_testing {
namespace {

const bool kIsFull = getenv("CKPT_TEST_FULL") != nullptr;

class Model {
 public:
  Model(const std::string &family, unsigned seed) : random_(seed) {
    if (family == "gpt2")
      gpt2();
    else if (family == "gpt_neox")
      gpt_neox();
    else
      decoder(family);
    const bool may_tie = !arch_->gguf->needs_head && chance(2);
    set("tie_word_embeddings", arch_->name == std::string("gemma2") || may_tie ? "true" : "false");
    make_tensors();
  }
  ~Model() { ckpt_config_free(config_); }

  std::string dtype() const { return dtype_; }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(uint32_t n) { return below(n) == 0; }
  std::string config() const { return "{" + keys_ + "}"; }

  void save(const std::string &folder) const {
    std::filesystem::create_directories(folder);
    spill(folder + "/config.json", config());
    spill(folder + "/model.safetensors", safetensors("{" + header_ + "}", payload_));
  }

 private:
  void set(const std::string &key, const std::string &value) {
    keys_ += (keys_.empty() ? "\"" : ", \"") + key + "\": " + value;
  }
  void set(const std::string &key, uint64_t value) { set(key, std::to_string(value)); }
  uint32_t one_of(std::vector<uint32_t> values) { return values[below(static_cast<uint32_t>(values.size()))]; }
  uint32_t vocabulary() { return kIsFull && chance(4) ? 20000 + below(9) : 8 + below(40); }

  void begin(const std::string &type, const std::string &name) {
    set("model_type", "\"" + type + "\"");
    set("architectures", "[\"" + name + "\"]");
    set("bos_token_id", chance(2) ? "null" : "1");
    arch_ = ckpt_arch_find(type.c_str());
  }

  void gpt2() {
    const uint32_t n_heads = 1 + below(3), width = n_heads * one_of({2, 4, 8});
    begin("gpt2", "GPT2LMHeadModel");
    set("n_layer", 1 + below(3)), set("n_head", n_heads), set("n_embd", width), set("n_positions", 4 + below(30));
    set("vocab_size", vocabulary()), set("layer_norm_epsilon", "1e-05"), set("activation_function", "\"gelu_new\"");
    if (chance(2)) set("n_inner", chance(2) ? "null" : std::to_string(4 + below(20)));
  }

  void gpt_neox() {
    const uint32_t n_heads = one_of({1, 2, 3}), width = n_heads * one_of({4, 8});
    begin("gpt_neox", "GPTNeoXForCausalLM");
    set("num_hidden_layers", 1 + below(3)), set("num_attention_heads", n_heads), set("hidden_size", width);
    set("intermediate_size", 4 + below(30)), set("vocab_size", vocabulary()), set("max_position_embeddings", 64);
    set("layer_norm_eps", "1e-05"), set("hidden_act", "\"gelu\""), set("rotary_pct", chance(2) ? "0.5" : "1.0");
    set("rotary_emb_base", chance(2) ? "10000" : "25000"), set("use_parallel_residual", chance(2) ? "true" : "false");
  }

  void rope(bool may_scale) {
    std::string scaling;
    if (may_scale && chance(3))
      scaling = chance(2) ? "\"rope_type\": \"linear\", \"factor\": 2.0"
                          : "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                            "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192";
    const std::string theta = chance(2) ? "10000.0" : "500000.0";
    if (chance(2)) {  // as transformers 5 has it
      set("rope_parameters",
          "{\"rope_theta\": " + theta + ", " + (scaling.empty() ? "\"rope_type\": \"default\"" : scaling) + "}");
      return;
    }
    set("rope_theta", theta);
    if (!scaling.empty()) set("rope_scaling", "{" + scaling + "}");
  }

  void decoder(const std::string &family) {
    const std::map<std::string, std::string> classes = {{"llama", "Llama"},     {"mistral", "Mistral"},
                                                        {"mixtral", "Mixtral"}, {"qwen2", "Qwen2"},
                                                        {"qwen3", "Qwen3"},     {"gemma2", "Gemma2"}};
    const uint32_t n_kv = 1 + below(3), n_heads = n_kv * (1 + below(3)), head = one_of({2, 4, 8});
    const bool is_gemma = family == "gemma2", states_width = is_gemma || family == "qwen3" || chance(2);
    begin(family, classes.at(family) + "ForCausalLM");
    set("num_hidden_layers", 1 + below(3)), set("num_attention_heads", n_heads), set("num_key_value_heads", n_kv);
    set("hidden_size", states_width ? n_heads * (1 + below(6)) : n_heads * head);
    if (states_width) set("head_dim", head);
    set("intermediate_size", 4 + below(30)), set("vocab_size", vocabulary()), set("max_position_embeddings", 128);
    set("rms_norm_eps", "1e-06");
    set(is_gemma ? "hidden_activation" : "hidden_act", is_gemma ? "\"gelu_pytorch_tanh\"" : "\"silu\"");
    rope(family == "llama");
    if (family == "llama") {
      set("attention_bias", chance(2) ? "true" : "false"), set("mlp_bias", chance(2) ? "true" : "false");
    } else if (family == "qwen3") {
      set("attention_bias", "false");  // llama.cpp loads no bias of its attention's output
    } else if (family == "mixtral") {
      set("num_local_experts", 1 + below(4)), set("num_experts_per_tok", 1);
    } else if (is_gemma) {
      set("attn_logit_softcapping", "50.0"), set("final_logit_softcapping", "30.0");
      set("query_pre_attn_scalar", head), set("sliding_window", chance(2) ? "null" : "32");
    }
  }

  bool is_wanted(const ckpt_arch_shape *row) const {
    if (row->when == nullptr) return true;
    const bool by_default = row->when[0] == '+';
    bool value = by_default;
    (void)ckpt_config_bool(config_, row->when + by_default, &value);
    return value;
  }

  void add_tensor(const std::string &name, const std::vector<uint64_t> &shape) {
    uint64_t n = 1;
    std::string text;
    for (uint64_t extent : shape) n *= extent, text += (text.empty() ? "" : ",") + std::to_string(extent);
    const size_t begin = payload_.size();
    for (uint64_t i = 0; i < n; i++) {  // numbers that no dtype and no sum with 1 rounds
      const float value = static_cast<float>(static_cast<int>(below(511)) - 255) / 256;
      uint32_t bits;
      memcpy(&bits, &value, sizeof bits);
      if (dtype_ == "F32") payload_.append(reinterpret_cast<const char *>(&bits), 4);
      if (dtype_ == "BF16") payload_.append(reinterpret_cast<const char *>(&bits) + 2, 2);
      if (dtype_ != "F16") continue;
      const uint32_t exponent = bits >> 23 & 255;
      const uint16_t half = static_cast<uint16_t>((bits >> 16 & 0x8000) |
                                                  (exponent == 0 ? 0 : (exponent - 112) << 10 | (bits >> 13 & 0x3FF)));
      payload_.append(reinterpret_cast<const char *>(&half), 2);
    }
    header_ += (header_.empty() ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype_ + "\",\"shape\":[" + text +
               "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(payload_.size()) + "]}";
  }

  void make_tensors() {
    const std::string text = config();
    ckpt_error err = {};
    ASSERT_EQ(ckpt_config_parse(&config_, text.c_str(), text.size(), nullptr, &err), CKPT_OK) << text_of(err);
    const char *name = nullptr;
    ASSERT_TRUE(ckpt_config_item(config_, "architectures", 0, &name));
    const ckpt_arch_model *model = arch_->models;
    while (std::string(model->name) != name) model++;
    bool is_tied = false;
    (void)ckpt_config_bool(config_, "tie_word_embeddings", &is_tied);
    dtype_ = std::vector<std::string>{"F32", "F16", "BF16"}[below(3)];
    uint64_t n_layers = 0, n_experts = 1;
    ASSERT_TRUE(ckpt_config_extent(config_, arch_->n_layers, &n_layers));
    if (arch_->n_experts != nullptr) (void)ckpt_config_extent(config_, arch_->n_experts, &n_experts);
    for (const ckpt_arch_shape *rows : {model->body, is_tied ? nullptr : model->head})
      for (const ckpt_arch_shape *row = rows; row != nullptr && row->hf != nullptr; row++) {
        if (!is_wanted(row)) continue;
        std::vector<uint64_t> shape;
        for (int axis = 0; axis < 3 && row->axes[axis] != nullptr; axis++) {
          shape.push_back(0);
          ASSERT_TRUE(ckpt_config_extent(config_, row->axes[axis], &shape.back())) << row->hf;
        }
        const std::string pattern = row->hf;
        const auto n_holes = std::count(pattern.begin(), pattern.end(), '#');
        for (uint64_t layer = 0; layer < (n_holes == 0 ? 1 : n_layers); layer++)
          for (uint64_t expert = 0; expert < (n_holes < 2 ? 1 : n_experts); expert++) {
            std::string filled = pattern;
            for (uint64_t number : {layer, expert}) {
              const size_t at = filled.find('#');
              if (at != std::string::npos) filled.replace(at, 1, std::to_string(number));
            }
            add_tensor(filled, shape);
          }
      }
  }

  std::mt19937 random_;
  std::string keys_, header_, payload_, dtype_;
  const ckpt_arch *arch_ = nullptr;
  ckpt_config *config_ = nullptr;
};

struct Way {
  const char *to = nullptr, *dtype = nullptr;
  uint64_t shard_size = 0, memory = 0;
  uint32_t world = 0, n_threads = 1;
};

std::string convert(const std::string &input, const std::string &output, const Way &run) {
  const ckpt_cast_rule rule = {nullptr, run.dtype == nullptr ? CKPT_DTYPE_NONE : ckpt_dtype_parse(run.dtype)};
  ckpt_run_options how = {};
  how.struct_size = sizeof how;
  how.memory = run.memory;
  how.n_threads = run.n_threads;
  ckpt_convert_options options = {};
  ckpt_error err = {};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  options.to = run.to;
  options.casts = &rule;
  options.n_casts = run.dtype != nullptr;
  options.shard_size = run.shard_size;
  options.world = run.world;
  options.run = &how;
  return ckpt_convert(&options, &err) == CKPT_OK ? "" : text_of(err);
}

std::string digest(const std::string &path) {
  ckpt_error err = {};
  ckpt_digest digest = {};
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.cast = CKPT_F32;
  IndexPointer index = open(path, &err, false);
  if (!index || ckpt_hash(index.get(), &options, &digest, &err) != CKPT_OK) return text_of(err);
  return std::string(reinterpret_cast<const char *>(&digest), sizeof digest);
}

// The same checkpoint, packed otherwise; the folder's name, which GGUF has as the model's, stays.
std::string packed(Model *model, const std::string &input, const Folder &folder) {
  const std::string path = folder / "packed/model";
  std::filesystem::create_directories(folder / "packed");
  Way run;
  switch (model->below(4)) {
    case 0: return input;
    case 1: run.shard_size = 1000 + model->below(9000); break;
    case 2: run.to = "dcp", run.world = 1 + model->below(4); break;
    default: run.to = "universal"; break;
  }
  EXPECT_EQ(convert(input, path, run), "");
  return path;
}

class Families : public testing::TestWithParam<const char *> {};

TEST_P(Families, ThereAndBackIsTheIdentity) {
  const char *first = getenv("CKPT_TEST_SEED");
  const unsigned seed = first == nullptr ? 1 : static_cast<unsigned>(strtoul(first, nullptr, 10));
  for (unsigned i = 0; i < (kIsFull ? 60U : 3U); i++) {
    Model model(GetParam(), seed + i);
    SCOPED_TRACE("CKPT_TEST_SEED=" + std::to_string(seed + i) + ": " + model.config());
    Folder folder;
    const std::string input = folder / "a/model", back = folder / "b/model", gguf = folder / "1.gguf";
    model.save(input);
    std::filesystem::create_directories(folder / "b");
    Way there, home;
    const bool is_auto = model.dtype() != "F32" && model.chance(2);
    there.dtype = is_auto ? nullptr : "f32";
    there.n_threads = 1 + model.below(4), home.n_threads = 1 + model.below(4);
    there.memory = model.chance(2) ? 0 : 12 << 20, home.memory = model.chance(2) ? 0 : 12 << 20;
    const std::string from = packed(&model, input, folder);
    ASSERT_EQ(convert(from, gguf, there), "");
    home.shard_size = model.chance(2) ? 0 : 1000 + model.below(9000);
    ASSERT_EQ(convert(gguf, back, home), "");
    EXPECT_EQ(digest(gguf), digest(input));
    EXPECT_EQ(digest(back), digest(input));
    home.dtype = there.dtype, home.shard_size = 0;
    ASSERT_EQ(convert(back, folder / "2.gguf", home), "");
    EXPECT_TRUE(slurp(folder / "2.gguf") == slurp(gguf));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Values("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "gpt2", "gpt_neox"),
                         [](const auto &family) { return std::string(family.param); });

}  // namespace
}  // namespace formats_testing
