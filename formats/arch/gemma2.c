/* gemma2.c - names of Gemma 2: four norms a layer, each of which counts from 1.
 *
 * Sources: the state dict of transformers' Gemma2ForCausalLM; gguf's tensor name map; Gemma2Model of llama.cpp's
 * converter. GGUF has the norms with 1 added, in f32, and no output head: the embedding always is one. No key of GGUF
 * says by what q is scaled: llama.cpp works it out of the sizes. */
#include "libckpt/index/arch.h"

#define PARAMETER(hf, gguf, split_axis) \
  { hf, gguf, NULL, CKPT_NAME_PLAIN, split_axis, CKPT_ROLE_PARAMETER }
#define NORM(hf, gguf) \
  { hf, gguf, NULL, CKPT_NAME_PLUS_ONE, -1, CKPT_ROLE_PARAMETER }
#define LAYER "model.layers.#."

static const char *const model_types[] = {"gemma2", NULL};

static const char *const classes[] = {"Gemma2Model", "Gemma2ForCausalLM", "Gemma2ForSequenceClassification",
                                      "Gemma2ForTokenClassification", NULL};

/* In the order of the model's parameters, see arch.h. */
static const ckpt_arch_name names[] = {
    PARAMETER("model.embed_tokens.weight", "token_embd.weight", 0),
    PARAMETER(LAYER "self_attn.q_proj.weight", "blk.#.attn_q.weight", 0),
    PARAMETER(LAYER "self_attn.k_proj.weight", "blk.#.attn_k.weight", 0),
    PARAMETER(LAYER "self_attn.v_proj.weight", "blk.#.attn_v.weight", 0),
    PARAMETER(LAYER "self_attn.o_proj.weight", "blk.#.attn_output.weight", 1),
    PARAMETER(LAYER "mlp.gate_proj.weight", "blk.#.ffn_gate.weight", 0),
    PARAMETER(LAYER "mlp.up_proj.weight", "blk.#.ffn_up.weight", 0),
    PARAMETER(LAYER "mlp.down_proj.weight", "blk.#.ffn_down.weight", 1),
    NORM(LAYER "input_layernorm.weight", "blk.#.attn_norm.weight"),
    NORM(LAYER "post_attention_layernorm.weight", "blk.#.post_attention_norm.weight"),
    NORM(LAYER "pre_feedforward_layernorm.weight", "blk.#.ffn_norm.weight"),
    NORM(LAYER "post_feedforward_layernorm.weight", "blk.#.post_ffw_norm.weight"),
    NORM("model.norm.weight", "output_norm.weight"),
    {"lm_head.weight", NULL, NULL, CKPT_NAME_COPY, 0, CKPT_ROLE_PARAMETER},
    {0},
};

static const ckpt_arch_tie ties[] = {
    {"model.embed_tokens.weight", "lm_head.weight", "tie_word_embeddings", true},
    {0},
};

#define HEADS "num_attention_heads*head_dim|hidden_size"
#define KV_HEADS "num_key_value_heads*head_dim|num_key_value_heads*hidden_size/num_attention_heads|" HEADS

static const ckpt_arch_shape shapes[] = {
    {"model.embed_tokens.weight", {"vocab_size", "hidden_size"}, NULL},
    {LAYER "self_attn.q_proj.weight", {HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.k_proj.weight", {KV_HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.v_proj.weight", {KV_HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.o_proj.weight", {"hidden_size", HEADS}, NULL},
    {LAYER "mlp.gate_proj.weight", {"intermediate_size", "hidden_size"}, NULL},
    {LAYER "mlp.up_proj.weight", {"intermediate_size", "hidden_size"}, NULL},
    {LAYER "mlp.down_proj.weight", {"hidden_size", "intermediate_size"}, NULL},
    {LAYER "input_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "post_attention_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "pre_feedforward_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "post_feedforward_layernorm.weight", {"hidden_size"}, NULL},
    {"model.norm.weight", {"hidden_size"}, NULL},
    {"lm_head.weight", {"vocab_size", "hidden_size"}, NULL},
    {0},
};

/* ---- GGUF: the keys that Gemma2Model of llama.cpp's converter writes, in its order; it leaves the base of rotary
 * positions out, which we add where it is another than llama.cpp's own ----------------------------------------------
 */

static const char *const gguf_classes[] = {"Gemma2ForCausalLM", NULL};

static const ckpt_arch_key keys[] = {
    {"context_length", "max_position_embeddings", CKPT_KEY_U32},
    {"embedding_length", "hidden_size", CKPT_KEY_U32},
    {"block_count", "num_hidden_layers", CKPT_KEY_U32},
    {"feed_forward_length", "intermediate_size", CKPT_KEY_U32},
    {"attention.head_count", "num_attention_heads", CKPT_KEY_U32},
    {"attention.head_count_kv", "num_key_value_heads", CKPT_KEY_U32},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", CKPT_KEY_F32},
    {"attention.key_length", "head_dim", CKPT_KEY_U32},
    {"attention.value_length", "head_dim", CKPT_KEY_U32},
    {"", "", CKPT_KEY_FILE_TYPE},
    {"attn_logit_softcapping", "attn_logit_softcapping", CKPT_KEY_F32},
    {"final_logit_softcapping", "final_logit_softcapping", CKPT_KEY_F32},
    {"attention.sliding_window", "sliding_window", CKPT_KEY_U32},
    {"rope.freq_base", "rope_theta|rope_parameters.full_attention.rope_theta|rope_parameters.rope_theta",
     CKPT_KEY_THETA},
    {0},
};

/* How the model is trained, loaded or generates, and what follows from its tensors. */
static const char *const needless[] = {"architectures",
                                       "model_type",
                                       "_name_or_path",
                                       "transformers_version",
                                       "dtype",
                                       "torch_dtype",
                                       "hidden_act",
                                       "initializer_range",
                                       "use_cache",
                                       "cache_implementation",
                                       "attention_dropout",
                                       "tie_word_embeddings",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "vocab_size",
                                       NULL};

static const char *const layer_types[] = {"sliding_attention", "full_attention", NULL};

/* What llama.cpp computes, whatever the config says. */
static const ckpt_arch_constant constants[] = {{"hidden_activation", "\"gelu_pytorch_tanh\""}, {0}};

/* Of 46 layers is the model of 27 billion parameters. */
static const ckpt_arch_implied implied[] = {{"query_pre_attn_scalar", "hidden_size/num_attention_heads", 46},
                                            {"query_pre_attn_scalar", "head_dim|hidden_size/num_attention_heads", 0},
                                            {0}};

static const ckpt_arch_gguf gguf = {.architecture = "gemma2",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = "num_key_value_heads|num_attention_heads",
                                    .keys = keys,
                                    .needless = needless,
                                    .layer_types = layer_types,
                                    .constants = constants,
                                    .implied = implied};

extern const ckpt_arch ckpt_arch_gemma2;
const ckpt_arch ckpt_arch_gemma2 = {.name = "gemma2",
                                    .revision = 1,
                                    .model_types = model_types,
                                    .classes = classes,
                                    .base_prefix = "model.",
                                    .names = names,
                                    .ties = ties,
                                    .shapes = shapes,
                                    .n_layers = "num_hidden_layers",
                                    .gguf = &gguf};
