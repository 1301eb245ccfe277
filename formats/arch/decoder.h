/* decoder.h - what Llama's relatives have in common, as parts of the tables of index/arch.h: a family's file puts them
 * together and says what differs.
 *
 * In the order of the model's parameters, which named_parameters() has, a bias follows its matrix. Notes are those of
 * ckpt_name_note without the prefix. META(name) is Meta's name, for the family that has one. */
#ifndef CKPT_FORMATS_ARCH_DECODER_H
#define CKPT_FORMATS_ARCH_DECODER_H

#include "libckpt/index/arch.h"

#ifndef META
#define META(name) NULL
#endif

#define PARAMETER(hf, gguf, meta, note, split_axis) \
  { hf, gguf, meta, CKPT_NAME_##note, split_axis, CKPT_ROLE_PARAMETER }
#define BUFFER(hf) \
  { hf, NULL, NULL, CKPT_NAME_PLAIN, -1, CKPT_ROLE_BUFFER }

#define LAYER "model.layers.#."
#define MATRIX(hf, gguf, meta, note, split_axis) \
  PARAMETER(LAYER hf ".weight", "blk.#." gguf ".weight", meta, note, split_axis)
#define BIAS(hf, gguf, note, split_axis) PARAMETER(LAYER hf ".bias", "blk.#." gguf ".bias", NULL, note, split_axis)
#define NORM(hf, gguf, meta, note) MATRIX(hf, gguf, meta, note, -1)

/* ---- names ------------------------------------------------------------------------------------------------------- */

#define EMBEDDING PARAMETER("model.embed_tokens.weight", "token_embd.weight", META("tok_embeddings.weight"), PLAIN, 0)
#define LM_HEAD PARAMETER("lm_head.weight", "output.weight", META("output.weight"), PLAIN, 0)
#define FINAL_NORM(note) PARAMETER("model.norm.weight", "output_norm.weight", META("norm.weight"), note, -1)

#define Q_PROJ(note) MATRIX("self_attn.q_proj", "attn_q", META("layers.#.attention.wq.weight"), note, 0)
#define K_PROJ(note) MATRIX("self_attn.k_proj", "attn_k", META("layers.#.attention.wk.weight"), note, 0)
#define V_PROJ MATRIX("self_attn.v_proj", "attn_v", META("layers.#.attention.wv.weight"), PLAIN, 0)
#define O_PROJ MATRIX("self_attn.o_proj", "attn_output", META("layers.#.attention.wo.weight"), PLAIN, 1)
#define Q_BIAS(note) BIAS("self_attn.q_proj", "attn_q", note, 0)
#define K_BIAS(note) BIAS("self_attn.k_proj", "attn_k", note, 0)
#define V_BIAS(note) BIAS("self_attn.v_proj", "attn_v", note, 0)
#define O_BIAS(note) \
  BIAS("self_attn.o_proj", "attn_output", note, -1) /* added once, after rows are summed: replicated */

/* Llama's rotary pairs, see llama.c. */
#define ROPE_ROWS ROPE_PERMUTE
#define ROPE_ROWS_OF_K ROPE_PERMUTE | CKPT_NAME_KV_HEADS

#define GATE_PROJ MATRIX("mlp.gate_proj", "ffn_gate", META("layers.#.feed_forward.w1.weight"), PLAIN, 0)
#define UP_PROJ MATRIX("mlp.up_proj", "ffn_up", META("layers.#.feed_forward.w3.weight"), PLAIN, 0)
#define DOWN_PROJ MATRIX("mlp.down_proj", "ffn_down", META("layers.#.feed_forward.w2.weight"), PLAIN, 1)

#define NORMS                                                                          \
  NORM("input_layernorm", "attn_norm", META("layers.#.attention_norm.weight"), PLAIN), \
      NORM("post_attention_layernorm", "ffn_norm", META("layers.#.ffn_norm.weight"), PLAIN)

#define TIED_HEAD(by_default) \
  { "model.embed_tokens.weight", "lm_head.weight", "tie_word_embeddings", by_default }

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

#define HEADS "num_attention_heads*head_dim|hidden_size/num_attention_heads*num_attention_heads"
/* The class has a number of its own where the config says nothing of heads of keys. */
#define KV_HEADS "num_key_value_heads*head_dim|num_key_value_heads*hidden_size/num_attention_heads"

#define NORM_SHAPE(name) \
  { LAYER name ".weight", {"hidden_size"}, NULL }
#define BIAS_SHAPE(name, width, when) \
  { LAYER name ".bias", {width}, when }
#define MLP_SHAPES                                                                \
  {LAYER "mlp.gate_proj.weight", {"intermediate_size", "hidden_size"}, NULL},     \
      {LAYER "mlp.up_proj.weight", {"intermediate_size", "hidden_size"}, NULL}, { \
    LAYER "mlp.down_proj.weight", {"hidden_size", "intermediate_size"}, NULL      \
  }
#define DECODER_SHAPES(heads, kv_heads, mlp)                                                                          \
  {"model.embed_tokens.weight", {"vocab_size", "hidden_size"}, NULL}, NORM_SHAPE("input_layernorm"),                  \
      {LAYER "self_attn.q_proj.weight", {heads, "hidden_size"}, NULL},                                                \
      {LAYER "self_attn.k_proj.weight", {kv_heads, "hidden_size"}, NULL},                                             \
      {LAYER "self_attn.v_proj.weight", {kv_heads, "hidden_size"}, NULL},                                             \
      {LAYER "self_attn.o_proj.weight", {"hidden_size", heads}, NULL}, NORM_SHAPE("post_attention_layernorm"), mlp, { \
    "model.norm.weight", {"hidden_size"}, NULL                                                                        \
  }
#define QKV_BIAS_SHAPES(heads, kv_heads, when)                                                 \
  BIAS_SHAPE("self_attn.q_proj", heads, when), BIAS_SHAPE("self_attn.k_proj", kv_heads, when), \
      BIAS_SHAPE("self_attn.v_proj", kv_heads, when)

/* What a class has beside the bare model. */
static const ckpt_arch_shape lm_head[] = {{"lm_head.weight", {"vocab_size", "hidden_size"}, NULL}, {0}};
/* One number a label. */
static const ckpt_arch_shape score[] = {{"score.weight", {"num_labels", "hidden_size"}, NULL}, {0}};
/* The same for each token. */
static const ckpt_arch_shape token_score[] = {
    {"score.weight", {"num_labels", "hidden_size"}, NULL},
    {"score.bias", {"num_labels"}, "+token_classification_bias"},
    {0},
};
/* Where an answer begins and ends. */
static const ckpt_arch_shape answers[] = {
    {"qa_outputs.weight", {"2", "hidden_size"}, NULL}, {"qa_outputs.bias", {"2"}, NULL}, {0}};

/* Parts of names that transformers passes over. */
static const char *const passed[] = {"rotary_emb.inv_freq", NULL};
/* Keys of config.json with which a class has other tensors. */
static const char *const undecided[] = {"per_layer_config", "text_config", NULL};

/* Keys of the config of each class. */
#define DECODER_SETTINGS                                                                                         \
  {"hidden_size", CKPT_IS_INT}, {"intermediate_size", CKPT_IS_INT}, {"max_position_embeddings", CKPT_IS_INT},    \
      {"num_attention_heads", CKPT_IS_INT}, {"num_hidden_layers", CKPT_IS_INT}, {"rms_norm_eps", CKPT_IS_FLOAT}, \
      {"rope_theta", CKPT_IS_ROPE}, {                                                                            \
    "partial_rotary_factor", CKPT_IS_NUMBER | CKPT_IS_LOOSE                                                      \
  }
#define WINDOW_SETTING \
  { "sliding_window", CKPT_IS_INT | CKPT_IS_NULL }

/* A class; whole and parts: see ckpt_arch_model. */
#define CLASS(name, type, settings, prefix, body, head, whole, parts) \
  { name, type, settings, prefix, body, head, passed, undecided, whole, parts, true }
#define CLASSES(name, type, settings, body, whole, parts)                                           \
  CLASS(name "Model", type, settings, "model.", body, NULL, whole, parts),                          \
      CLASS(name "ForCausalLM", type, settings, "model.", body, lm_head, whole, parts),             \
      CLASS(name "ForSequenceClassification", type, settings, "model.", body, score, whole, parts), \
      CLASS(name "ForTokenClassification", type, settings, "model.", body, token_score, whole, parts)
#define ANSWERS(name, type, settings, prefix, body, whole, parts) \
  CLASS(name "ForQuestionAnswering", type, settings, prefix, body, answers, whole, parts)

/* ---- GGUF: keys in the order of llama.cpp's converter
 * ---------------------------------------------------------------- */

#define DECODER_KEYS                                                                                                 \
  {"block_count", "num_hidden_layers", CKPT_KEY_U32}, {"context_length", "max_position_embeddings", CKPT_KEY_U32},   \
      {"embedding_length", "hidden_size", CKPT_KEY_U32}, {"feed_forward_length", "intermediate_size", CKPT_KEY_U32}, \
      {"attention.head_count", "num_attention_heads", CKPT_KEY_U32},                                                 \
      {"attention.head_count_kv", "num_key_value_heads", CKPT_KEY_U32}, {"rope.scaling", "", CKPT_KEY_ROPE_SCALING}, \
      {"rope.freq_base", "rope_theta", CKPT_KEY_BASE}, {                                                             \
    "attention.layer_norm_rms_epsilon", "rms_norm_eps", CKPT_KEY_F32                                                 \
  }
#define HEAD_WIDTH_KEYS \
  {"attention.key_length", "head_dim", CKPT_KEY_U32}, { "attention.value_length", "head_dim", CKPT_KEY_U32 }
#define FILE_TYPE_KEY \
  { "", "", CKPT_KEY_FILE_TYPE }
/* The keys that end what llama.cpp calls "llama". */
#define LLAMA_END_KEYS                                                               \
  FILE_TYPE_KEY, {"vocab_size", "vocab_size", CKPT_KEY_U32}, {                       \
    "rope.dimension_count", "head_dim|hidden_size/num_attention_heads", CKPT_KEY_U32 \
  }

/* How the model is trained, loaded or generates, and what follows from its tensors. */
#define DECODER_NEEDLESS                                                                                               \
  "architectures", "model_type", "_name_or_path", "transformers_version", "dtype", "torch_dtype", "initializer_range", \
      "use_cache", "attention_dropout", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",         \
      "rope_parameters", "rope_scaling"

/* What llama.cpp computes, whatever the config says. */
#define SILU \
  { "hidden_act", "\"silu\"|\"swish\"", false }

/* ---- what classes take where a config does not say ----------------------------------------------------------------
 */

#define DECODER_ROPE(base, by_layer) \
  { "rope_theta", "partial_rotary_factor", base, 1, by_layer }
#define DECODER_DEFAULTS(positions, epsilon, type) \
  {"max_position_embeddings", positions, type}, { "rms_norm_eps", epsilon, type }

#define KV_HEAD_KEYS "num_key_value_heads|num_attention_heads"

#endif
