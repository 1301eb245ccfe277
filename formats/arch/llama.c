/* llama.c - names of the Llama family (Llama 1 to 3, Mistral: the same tensors and the same layout).
 *
 * Sources: the state dicts of transformers' LlamaForCausalLM and MistralForCausalLM; gguf's tensor name map; Meta's
 * consolidated.*.pth. Rotary pairs lie half a head apart in Hugging Face's q and k and side by side in GGUF's and
 * Meta's: ROPE_PERMUTE rows are permuted there, weights and biases alike. */
#include "libckpt/index/arch.h"

#define PARAMETER(hf, gguf, meta, note, split_axis) \
  { hf, gguf, meta, CKPT_NAME_##note, split_axis, CKPT_ROLE_PARAMETER }
#define BUFFER(hf) \
  { hf, NULL, NULL, CKPT_NAME_PLAIN, -1, CKPT_ROLE_BUFFER }
#define LAYER "model.layers.#."

static const char *const model_types[] = {"llama", "mistral", NULL};

/* In the order of the model's parameters, see arch.h. */
static const ckpt_arch_name names[] = {
    /* Biases are there with attention_bias or mlp_bias in the config; that of a row-split matrix is added once:
     * replicated. */
    PARAMETER("model.embed_tokens.weight", "token_embd.weight", "tok_embeddings.weight", PLAIN, 0),
    PARAMETER(LAYER "self_attn.q_proj.weight", "blk.#.attn_q.weight", "layers.#.attention.wq.weight", ROPE_PERMUTE, 0),
    PARAMETER(LAYER "self_attn.q_proj.bias", "blk.#.attn_q.bias", NULL, ROPE_PERMUTE | CKPT_NAME_OPTIONAL, 0),
    PARAMETER(LAYER "self_attn.k_proj.weight", "blk.#.attn_k.weight", "layers.#.attention.wk.weight",
              ROPE_PERMUTE | CKPT_NAME_KV_HEADS, 0),
    PARAMETER(LAYER "self_attn.k_proj.bias", "blk.#.attn_k.bias", NULL,
              ROPE_PERMUTE | CKPT_NAME_KV_HEADS | CKPT_NAME_OPTIONAL, 0),
    PARAMETER(LAYER "self_attn.v_proj.weight", "blk.#.attn_v.weight", "layers.#.attention.wv.weight", PLAIN, 0),
    PARAMETER(LAYER "self_attn.v_proj.bias", "blk.#.attn_v.bias", NULL, PLAIN | CKPT_NAME_OPTIONAL, 0),
    PARAMETER(LAYER "self_attn.o_proj.weight", "blk.#.attn_output.weight", "layers.#.attention.wo.weight", PLAIN, 1),
    PARAMETER(LAYER "self_attn.o_proj.bias", "blk.#.attn_output.bias", NULL, PLAIN | CKPT_NAME_OPTIONAL, -1),
    PARAMETER(LAYER "mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "layers.#.feed_forward.w1.weight", PLAIN, 0),
    PARAMETER(LAYER "mlp.gate_proj.bias", "blk.#.ffn_gate.bias", NULL, PLAIN | CKPT_NAME_OPTIONAL, 0),
    PARAMETER(LAYER "mlp.up_proj.weight", "blk.#.ffn_up.weight", "layers.#.feed_forward.w3.weight", PLAIN, 0),
    PARAMETER(LAYER "mlp.up_proj.bias", "blk.#.ffn_up.bias", NULL, PLAIN | CKPT_NAME_OPTIONAL, 0),
    PARAMETER(LAYER "mlp.down_proj.weight", "blk.#.ffn_down.weight", "layers.#.feed_forward.w2.weight", PLAIN, 1),
    PARAMETER(LAYER "mlp.down_proj.bias", "blk.#.ffn_down.bias", NULL, PLAIN | CKPT_NAME_OPTIONAL, -1),
    PARAMETER(LAYER "input_layernorm.weight", "blk.#.attn_norm.weight", "layers.#.attention_norm.weight", PLAIN, -1),
    PARAMETER(LAYER "post_attention_layernorm.weight", "blk.#.ffn_norm.weight", "layers.#.ffn_norm.weight", PLAIN, -1),
    PARAMETER("model.norm.weight", "output_norm.weight", "norm.weight", PLAIN, -1),
    PARAMETER("lm_head.weight", "output.weight", "output.weight", PLAIN, 0),

    /* Written by transformers before 4.32; recomputed from the config by later ones. */
    BUFFER(LAYER "self_attn.rotary_emb.inv_freq"),
    BUFFER("model.rotary_emb.inv_freq"),
    {0},
};

static const ckpt_arch_tie ties[] = {
    {"model.embed_tokens.weight", "lm_head.weight", "tie_word_embeddings", false},
    {0},
};

/* ---- what transformers expects --------------------------------------------------------------------------------- */

#define HEADS "num_attention_heads*head_dim|hidden_size/num_attention_heads*num_attention_heads"
#define MISTRAL_KV "num_key_value_heads*head_dim|num_key_value_heads*hidden_size/num_attention_heads"
#define LLAMA_KV MISTRAL_KV "|" HEADS

#define LAYERS(kv)                                                                  \
  {"model.embed_tokens.weight", {"vocab_size", "hidden_size"}, NULL},               \
      {LAYER "input_layernorm.weight", {"hidden_size"}, NULL},                      \
      {LAYER "self_attn.q_proj.weight", {HEADS, "hidden_size"}, NULL},              \
      {LAYER "self_attn.k_proj.weight", {kv, "hidden_size"}, NULL},                 \
      {LAYER "self_attn.v_proj.weight", {kv, "hidden_size"}, NULL},                 \
      {LAYER "self_attn.o_proj.weight", {"hidden_size", HEADS}, NULL},              \
      {LAYER "post_attention_layernorm.weight", {"hidden_size"}, NULL},             \
      {LAYER "mlp.gate_proj.weight", {"intermediate_size", "hidden_size"}, NULL},   \
      {LAYER "mlp.up_proj.weight", {"intermediate_size", "hidden_size"}, NULL},     \
      {LAYER "mlp.down_proj.weight", {"hidden_size", "intermediate_size"}, NULL}, { \
    "model.norm.weight", {"hidden_size"}, NULL                                      \
  }

static const ckpt_arch_shape llama_body[] = {
    LAYERS(LLAMA_KV),
    {LAYER "self_attn.q_proj.bias", {HEADS}, "attention_bias"},
    {LAYER "self_attn.k_proj.bias", {LLAMA_KV}, "attention_bias"},
    {LAYER "self_attn.v_proj.bias", {LLAMA_KV}, "attention_bias"},
    {LAYER "self_attn.o_proj.bias", {"hidden_size"}, "attention_bias"},
    {LAYER "mlp.gate_proj.bias", {"intermediate_size"}, "mlp_bias"},
    {LAYER "mlp.up_proj.bias", {"intermediate_size"}, "mlp_bias"},
    {LAYER "mlp.down_proj.bias", {"hidden_size"}, "mlp_bias"},
    {0},
};

/* It has 8 heads of keys and values where its config says nothing of them, and never a bias. */
static const ckpt_arch_shape mistral_body[] = {LAYERS(MISTRAL_KV), {0}};

static const ckpt_arch_shape lm_head[] = {{"lm_head.weight", {"vocab_size", "hidden_size"}, NULL}, {0}};
static const ckpt_arch_shape score[] = {{"score.weight", {"num_labels", "hidden_size"}, NULL}, {0}};
static const ckpt_arch_shape token_score[] = {
    {"score.weight", {"num_labels", "hidden_size"}, NULL},
    {"score.bias", {"num_labels"}, "+token_classification_bias"},
    {0},
};
static const ckpt_arch_shape answers[] = {
    {"qa_outputs.weight", {"2", "hidden_size"}, NULL}, {"qa_outputs.bias", {"2"}, NULL}, {0}};

static const char *const passed[] = {"rotary_emb.inv_freq", NULL};
static const char *const undecided[] = {"per_layer_config", "text_config", NULL};

#define LLAMA(class, prefix, head) \
  { class, "llama", prefix, llama_body, head, passed, undecided, "hidden_size", "num_attention_heads", true }
#define MISTRAL(class, head) \
  { class, "mistral", "model.", mistral_body, head, passed, undecided, NULL, NULL, true }

static const ckpt_arch_model models[] = {
    LLAMA("LlamaModel", "model.", NULL),
    LLAMA("LlamaForCausalLM", "model.", lm_head),
    LLAMA("LlamaForSequenceClassification", "model.", score),
    LLAMA("LlamaForTokenClassification", "model.", token_score),
    LLAMA("LlamaForQuestionAnswering", "transformer.", answers),
    MISTRAL("MistralModel", NULL),
    MISTRAL("MistralForCausalLM", lm_head),
    MISTRAL("MistralForSequenceClassification", score),
    MISTRAL("MistralForTokenClassification", token_score),
    MISTRAL("MistralForQuestionAnswering", answers),
    {0},
};

/* ---- GGUF: the keys that LlamaModel of llama.cpp's converter writes, in its order ---------------------------------
 */

static const char *const gguf_classes[] = {"LlamaForCausalLM", "MistralForCausalLM", NULL};

static const ckpt_arch_key keys[] = {
    {"block_count", "num_hidden_layers", CKPT_KEY_U32},
    {"context_length", "max_position_embeddings", CKPT_KEY_U32},
    {"embedding_length", "hidden_size", CKPT_KEY_U32},
    {"feed_forward_length", "intermediate_size", CKPT_KEY_U32},
    {"attention.head_count", "num_attention_heads", CKPT_KEY_U32},
    {"attention.head_count_kv", "num_key_value_heads", CKPT_KEY_U32},
    {"rope.scaling", "", CKPT_KEY_ROPE_SCALING},
    {"rope.freq_base", "rope_theta|rope_parameters.full_attention.rope_theta|rope_parameters.rope_theta", CKPT_KEY_F32},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", CKPT_KEY_F32},
    {"attention.key_length", "head_dim", CKPT_KEY_U32},
    {"attention.value_length", "head_dim", CKPT_KEY_U32},
    {"", "", CKPT_KEY_FILE_TYPE},
    {"vocab_size", "vocab_size", CKPT_KEY_U32},
    {"rope.dimension_count", "head_dim|hidden_size/num_attention_heads", CKPT_KEY_U32},
    {0},
};

static const ckpt_arch_made made[] = {{"rope_freqs.weight", CKPT_MADE_LLAMA3_FACTORS}, {0}};

static const ckpt_arch_flag flags[] = {
    {"attention_bias", "blk.0.attn_q.bias"}, {"mlp_bias", "blk.0.ffn_gate.bias"}, {0}};

/* How the model is trained, loaded or generates, and what follows from its tensors. */
static const char *const needless[] = {"architectures",
                                       "model_type",
                                       "_name_or_path",
                                       "transformers_version",
                                       "dtype",
                                       "torch_dtype",
                                       "initializer_range",
                                       "use_cache",
                                       "pretraining_tp",
                                       "attention_dropout",
                                       "attention_bias",
                                       "mlp_bias",
                                       "tie_word_embeddings",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "original_max_position_embeddings",
                                       NULL};

/* What llama.cpp computes, whatever the config says. */
static const ckpt_arch_constant constants[] = {{"hidden_act", "\"silu\"|\"swish\""}, {0}};

static const ckpt_arch_gguf gguf = {.architecture = "llama",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = "num_key_value_heads|num_attention_heads",
                                    .keys = keys,
                                    .made = made,
                                    .flags = flags,
                                    .needless = needless,
                                    .constants = constants};

extern const ckpt_arch ckpt_arch_llama;
const ckpt_arch ckpt_arch_llama = {.name = "llama",
                                   .revision = 1,
                                   .model_types = model_types,
                                   .base_prefix = "model.",
                                   .names = names,
                                   .ordered_since = {4, 31},
                                   .ties = ties,
                                   .shapes = llama_body,
                                   .models = models,
                                   .n_layers = "num_hidden_layers",
                                   .gguf = &gguf};
