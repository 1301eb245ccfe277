/* qwen3.c - names of Qwen3: Llama's, with norms of the heads of q and k.
 *
 * Sources: the state dict of transformers' Qwen3ForCausalLM; gguf's tensor name map; Qwen3Model of llama.cpp's
 * converter. llama.cpp rotates halves of a head here, as Hugging Face does, so no rows are permuted. */
#include "libckpt/index/arch.h"

#define PARAMETER(hf, gguf, split_axis) \
  { hf, gguf, NULL, CKPT_NAME_PLAIN, split_axis, CKPT_ROLE_PARAMETER }
/* With attention_bias in the config. */
#define OPTIONAL(hf, gguf, split_axis) \
  { hf, gguf, NULL, CKPT_NAME_OPTIONAL, split_axis, CKPT_ROLE_PARAMETER }
#define LAYER "model.layers.#."

static const char *const model_types[] = {"qwen3", NULL};

/* Qwen3ForQuestionAnswering has another base prefix. */
static const char *const classes[] = {"Qwen3Model", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification",
                                      "Qwen3ForTokenClassification", NULL};

/* In the order of the model's parameters, see arch.h. */
static const ckpt_arch_name names[] = {
    PARAMETER("model.embed_tokens.weight", "token_embd.weight", 0),
    PARAMETER(LAYER "self_attn.q_proj.weight", "blk.#.attn_q.weight", 0),
    OPTIONAL(LAYER "self_attn.q_proj.bias", "blk.#.attn_q.bias", 0),
    PARAMETER(LAYER "self_attn.k_proj.weight", "blk.#.attn_k.weight", 0),
    OPTIONAL(LAYER "self_attn.k_proj.bias", "blk.#.attn_k.bias", 0),
    PARAMETER(LAYER "self_attn.v_proj.weight", "blk.#.attn_v.weight", 0),
    OPTIONAL(LAYER "self_attn.v_proj.bias", "blk.#.attn_v.bias", 0),
    PARAMETER(LAYER "self_attn.o_proj.weight", "blk.#.attn_output.weight", 1),
    OPTIONAL(LAYER "self_attn.o_proj.bias", "blk.#.attn_output.bias", -1),
    PARAMETER(LAYER "self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", -1),
    PARAMETER(LAYER "self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", -1),
    PARAMETER(LAYER "mlp.gate_proj.weight", "blk.#.ffn_gate.weight", 0),
    PARAMETER(LAYER "mlp.up_proj.weight", "blk.#.ffn_up.weight", 0),
    PARAMETER(LAYER "mlp.down_proj.weight", "blk.#.ffn_down.weight", 1),
    PARAMETER(LAYER "input_layernorm.weight", "blk.#.attn_norm.weight", -1),
    PARAMETER(LAYER "post_attention_layernorm.weight", "blk.#.ffn_norm.weight", -1),
    PARAMETER("model.norm.weight", "output_norm.weight", -1),
    PARAMETER("lm_head.weight", "output.weight", 0),
    {0},
};

static const ckpt_arch_tie ties[] = {
    {"model.embed_tokens.weight", "lm_head.weight", "tie_word_embeddings", false},
    {0},
};

#define HEADS "num_attention_heads*head_dim|hidden_size"
#define KV_HEADS "num_key_value_heads*head_dim|num_key_value_heads*hidden_size/num_attention_heads|" HEADS

static const ckpt_arch_shape shapes[] = {
    {"model.embed_tokens.weight", {"vocab_size", "hidden_size"}, NULL},
    {LAYER "input_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "self_attn.q_proj.weight", {HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.q_proj.bias", {HEADS}, NULL},
    {LAYER "self_attn.k_proj.weight", {KV_HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.k_proj.bias", {KV_HEADS}, NULL},
    {LAYER "self_attn.v_proj.weight", {KV_HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.v_proj.bias", {KV_HEADS}, NULL},
    {LAYER "self_attn.o_proj.weight", {"hidden_size", HEADS}, NULL},
    {LAYER "self_attn.q_norm.weight", {"head_dim|hidden_size/num_attention_heads"}, NULL},
    {LAYER "self_attn.k_norm.weight", {"head_dim|hidden_size/num_attention_heads"}, NULL},
    {LAYER "post_attention_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "mlp.gate_proj.weight", {"intermediate_size", "hidden_size"}, NULL},
    {LAYER "mlp.up_proj.weight", {"intermediate_size", "hidden_size"}, NULL},
    {LAYER "mlp.down_proj.weight", {"hidden_size", "intermediate_size"}, NULL},
    {"model.norm.weight", {"hidden_size"}, NULL},
    {"lm_head.weight", {"vocab_size", "hidden_size"}, NULL},
    {0},
};

/* ---- GGUF: the keys that Qwen3Model of llama.cpp's converter writes, in its order -------------------------------- */

static const char *const gguf_classes[] = {"Qwen3ForCausalLM", NULL};

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
    {0},
};

static const ckpt_arch_flag flags[] = {{"attention_bias", "blk.0.attn_q.bias"}, {0}};

/* How the model is trained, loaded or generates, and what follows from its tensors. */
static const char *const needless[] = {"architectures",
                                       "model_type",
                                       "_name_or_path",
                                       "transformers_version",
                                       "dtype",
                                       "torch_dtype",
                                       "initializer_range",
                                       "use_cache",
                                       "attention_bias",
                                       "attention_dropout",
                                       "tie_word_embeddings",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "vocab_size",
                                       NULL};

static const ckpt_arch_needless_without needless_without[] = {
    {"sliding_window", "use_sliding_window"}, {"max_window_layers", "use_sliding_window"}, {0}};

/* What llama.cpp computes, whatever the config says. */
static const ckpt_arch_constant constants[] = {{"hidden_act", "\"silu\"|\"swish\""}, {0}};

static const ckpt_arch_gguf gguf = {.architecture = "qwen3",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = "num_key_value_heads|num_attention_heads",
                                    .keys = keys,
                                    .flags = flags,
                                    .needless = needless,
                                    .needless_without = needless_without,
                                    .constants = constants};

extern const ckpt_arch ckpt_arch_qwen3;
const ckpt_arch ckpt_arch_qwen3 = {.name = "qwen3",
                                   .revision = 1,
                                   .model_types = model_types,
                                   .classes = classes,
                                   .base_prefix = "model.",
                                   .names = names,
                                   .ties = ties,
                                   .shapes = shapes,
                                   .n_layers = "num_hidden_layers",
                                   .gguf = &gguf};
