/* mixtral.c - names of Mixtral: Mistral's attention, and experts instead of its MLP.
 *
 * Sources: the files that transformers writes of MixtralForCausalLM (its own state dict stacks the experts since
 * version 5, the files do not); gguf's tensor name map; LlamaModel of llama.cpp's converter. In GGUF it is a "llama"
 * with experts, which are stacked: one tensor of all of a layer's gates, one of all that go up, one of all that go
 * down. */
#include "libckpt/index/arch.h"

#define PARAMETER(hf, gguf, note, split_axis) \
  { hf, gguf, NULL, CKPT_NAME_##note, split_axis, CKPT_ROLE_PARAMETER }
#define LAYER "model.layers.#."
#define EXPERT LAYER "block_sparse_moe.experts.#."

static const char *const model_types[] = {"mixtral", NULL};

static const char *const classes[] = {"MixtralModel",
                                      "MixtralForCausalLM",
                                      "MixtralForSequenceClassification",
                                      "MixtralForTokenClassification",
                                      "MixtralForQuestionAnswering",
                                      NULL};

/* In the order of the model's parameters, see arch.h. */
static const ckpt_arch_name names[] = {
    PARAMETER("model.embed_tokens.weight", "token_embd.weight", PLAIN, 0),
    PARAMETER(LAYER "self_attn.q_proj.weight", "blk.#.attn_q.weight", ROPE_PERMUTE, 0),
    PARAMETER(LAYER "self_attn.k_proj.weight", "blk.#.attn_k.weight", ROPE_PERMUTE | CKPT_NAME_KV_HEADS, 0),
    PARAMETER(LAYER "self_attn.v_proj.weight", "blk.#.attn_v.weight", PLAIN, 0),
    PARAMETER(LAYER "self_attn.o_proj.weight", "blk.#.attn_output.weight", PLAIN, 1),
    PARAMETER(LAYER "block_sparse_moe.gate.weight", "blk.#.ffn_gate_inp.weight", PLAIN, -1),
    PARAMETER(EXPERT "w1.weight", "blk.#.ffn_gate_exps.weight", PLAIN, 0),
    PARAMETER(EXPERT "w2.weight", "blk.#.ffn_down_exps.weight", PLAIN, 1),
    PARAMETER(EXPERT "w3.weight", "blk.#.ffn_up_exps.weight", PLAIN, 0),
    PARAMETER(LAYER "input_layernorm.weight", "blk.#.attn_norm.weight", PLAIN, -1),
    PARAMETER(LAYER "post_attention_layernorm.weight", "blk.#.ffn_norm.weight", PLAIN, -1),
    PARAMETER("model.norm.weight", "output_norm.weight", PLAIN, -1),
    PARAMETER("lm_head.weight", "output.weight", PLAIN, 0),
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
    {LAYER "self_attn.k_proj.weight", {KV_HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.v_proj.weight", {KV_HEADS, "hidden_size"}, NULL},
    {LAYER "self_attn.o_proj.weight", {"hidden_size", HEADS}, NULL},
    {LAYER "post_attention_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "block_sparse_moe.gate.weight", {"num_local_experts", "hidden_size"}, NULL},
    {EXPERT "w1.weight", {"intermediate_size", "hidden_size"}, NULL},
    {EXPERT "w2.weight", {"hidden_size", "intermediate_size"}, NULL},
    {EXPERT "w3.weight", {"intermediate_size", "hidden_size"}, NULL},
    {"model.norm.weight", {"hidden_size"}, NULL},
    {"lm_head.weight", {"vocab_size", "hidden_size"}, NULL},
    {0},
};

/* ---- GGUF: the keys that LlamaModel of llama.cpp's converter writes, in its order ---------------------------------
 */

static const char *const gguf_classes[] = {"MixtralForCausalLM", NULL};

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
    {"expert_count", "num_local_experts", CKPT_KEY_U32},
    {"expert_used_count", "num_experts_per_tok", CKPT_KEY_U32},
    {"attention.key_length", "head_dim", CKPT_KEY_U32},
    {"attention.value_length", "head_dim", CKPT_KEY_U32},
    {"", "", CKPT_KEY_FILE_TYPE},
    {"vocab_size", "vocab_size", CKPT_KEY_U32},
    {"rope.dimension_count", "head_dim|hidden_size/num_attention_heads", CKPT_KEY_U32},
    {0},
};

/* How the model is trained, loaded or generates, and what follows from its tensors. */
static const char *const needless[] = {"architectures",
                                       "model_type",
                                       "_name_or_path",
                                       "transformers_version",
                                       "dtype",
                                       "torch_dtype",
                                       "initializer_range",
                                       "use_cache",
                                       "attention_dropout",
                                       "output_router_logits",
                                       "router_aux_loss_coef",
                                       "router_jitter_noise",
                                       "tie_word_embeddings",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "rope_parameters",
                                       "rope_scaling",
                                       NULL};

/* What llama.cpp computes, whatever the config says. */
static const ckpt_arch_constant constants[] = {{"hidden_act", "\"silu\"|\"swish\""}, {0}};

static const ckpt_arch_gguf gguf = {.architecture = "llama",
                                    .having = "expert_count",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = "num_key_value_heads|num_attention_heads",
                                    .experts = "num_local_experts",
                                    .keys = keys,
                                    .needless = needless,
                                    .constants = constants};

extern const ckpt_arch ckpt_arch_mixtral;
const ckpt_arch ckpt_arch_mixtral = {.name = "mixtral",
                                     .revision = 1,
                                     .model_types = model_types,
                                     .classes = classes,
                                     .base_prefix = "model.",
                                     .names = names,
                                     .ties = ties,
                                     .shapes = shapes,
                                     .n_layers = "num_hidden_layers",
                                     .gguf = &gguf};
