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

/* LlamaForQuestionAnswering has another base prefix. */
static const char *const classes[] = {"LlamaModel",
                                      "LlamaForCausalLM",
                                      "LlamaForSequenceClassification",
                                      "LlamaForTokenClassification",
                                      "MistralModel",
                                      "MistralForCausalLM",
                                      "MistralForSequenceClassification",
                                      "MistralForTokenClassification",
                                      "MistralForQuestionAnswering",
                                      NULL};

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

#define HEADS "num_attention_heads*head_dim|hidden_size"
#define KV_HEADS "num_key_value_heads*head_dim|num_key_value_heads*hidden_size/num_attention_heads|" HEADS

static const ckpt_arch_shape shapes[] = {
    {"model.embed_tokens.weight", {"vocab_size", "hidden_size"}},
    {LAYER "input_layernorm.weight", {"hidden_size"}},
    {LAYER "self_attn.q_proj.weight", {HEADS, "hidden_size"}},
    {LAYER "self_attn.q_proj.bias", {HEADS}},
    {LAYER "self_attn.k_proj.weight", {KV_HEADS, "hidden_size"}},
    {LAYER "self_attn.k_proj.bias", {KV_HEADS}},
    {LAYER "self_attn.v_proj.weight", {KV_HEADS, "hidden_size"}},
    {LAYER "self_attn.v_proj.bias", {KV_HEADS}},
    {LAYER "self_attn.o_proj.weight", {"hidden_size", HEADS}},
    {LAYER "post_attention_layernorm.weight", {"hidden_size"}},
    {LAYER "mlp.gate_proj.weight", {"intermediate_size", "hidden_size"}},
    {LAYER "mlp.up_proj.weight", {"intermediate_size", "hidden_size"}},
    {LAYER "mlp.down_proj.weight", {"hidden_size", "intermediate_size"}},
    {"model.norm.weight", {"hidden_size"}},
    {"lm_head.weight", {"vocab_size", "hidden_size"}},
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
                                   .classes = classes,
                                   .base_prefix = "model.",
                                   .names = names,
                                   .ordered_since = {4, 31},
                                   .ties = ties,
                                   .shapes = shapes,
                                   .n_layers = "num_hidden_layers",
                                   .gguf = &gguf};
