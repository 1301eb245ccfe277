/* gpt_neox.c - names of GPT-NeoX (Pythia, Dolly 2).
 *
 * Sources: the state dict of transformers' GPTNeoXForCausalLM; gguf's tensor name map; GPTNeoXModel of llama.cpp's
 * converter. query_key_value has q, k and v of each head together; GGUF has q of all heads, then k, then v. */
#include "libckpt/index/arch.h"

#define PARAMETER(hf, gguf, note, split_axis) \
  { hf, gguf, NULL, CKPT_NAME_##note, split_axis, CKPT_ROLE_PARAMETER }
#define BUFFER(hf) \
  { hf, NULL, NULL, CKPT_NAME_PLAIN, -1, CKPT_ROLE_BUFFER }
#define LAYER "gpt_neox.layers.#."

static const char *const model_types[] = {"gpt_neox", NULL};

/* In the order of the model's parameters, see arch.h. */
static const ckpt_arch_name names[] = {
    PARAMETER("gpt_neox.embed_in.weight", "token_embd.weight", PLAIN, 0),
    PARAMETER(LAYER "input_layernorm.weight", "blk.#.attn_norm.weight", PLAIN, -1),
    PARAMETER(LAYER "input_layernorm.bias", "blk.#.attn_norm.bias", PLAIN, -1),
    PARAMETER(LAYER "post_attention_layernorm.weight", "blk.#.ffn_norm.weight", PLAIN, -1),
    PARAMETER(LAYER "post_attention_layernorm.bias", "blk.#.ffn_norm.bias", PLAIN, -1),
    PARAMETER(LAYER "attention.query_key_value.weight", "blk.#.attn_qkv.weight", FUSED_QKV | CKPT_NAME_BY_HEAD, 0),
    PARAMETER(LAYER "attention.query_key_value.bias", "blk.#.attn_qkv.bias", FUSED_QKV | CKPT_NAME_BY_HEAD, 0),
    PARAMETER(LAYER "attention.dense.weight", "blk.#.attn_output.weight", PLAIN, 1),
    PARAMETER(LAYER "attention.dense.bias", "blk.#.attn_output.bias", PLAIN, -1),
    PARAMETER(LAYER "mlp.dense_h_to_4h.weight", "blk.#.ffn_up.weight", PLAIN, 0),
    PARAMETER(LAYER "mlp.dense_h_to_4h.bias", "blk.#.ffn_up.bias", PLAIN, 0),
    PARAMETER(LAYER "mlp.dense_4h_to_h.weight", "blk.#.ffn_down.weight", PLAIN, 1),
    PARAMETER(LAYER "mlp.dense_4h_to_h.bias", "blk.#.ffn_down.bias", PLAIN, -1),
    PARAMETER("gpt_neox.final_layer_norm.weight", "output_norm.weight", PLAIN, -1),
    PARAMETER("gpt_neox.final_layer_norm.bias", "output_norm.bias", PLAIN, -1),
    PARAMETER("embed_out.weight", "output.weight", PLAIN, 0),

    /* The causal mask, its fill value and rotary frequencies, written by older transformers (all of Pythia has them).
     */
    BUFFER(LAYER "attention.bias"),
    BUFFER(LAYER "attention.masked_bias"),
    BUFFER(LAYER "attention.rotary_emb.inv_freq"),
    {0},
};

/* The model's own state dict since transformers 5; save_pretrained gives it its old name. */
static const ckpt_arch_joined joined[] = {{"lm_head.weight", {"embed_out.weight"}}, {0}};

static const ckpt_arch_tie ties[] = {
    {"gpt_neox.embed_in.weight", "embed_out.weight", "tie_word_embeddings", false},
    {"gpt_neox.embed_in.weight", "lm_head.weight", "tie_word_embeddings", false},
    {0},
};

/* ---- what transformers expects --------------------------------------------------------------------------------- */

static const ckpt_arch_shape body[] = {
    {"gpt_neox.embed_in.weight", {"vocab_size", "hidden_size"}, NULL},
    {LAYER "input_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "input_layernorm.bias", {"hidden_size"}, NULL},
    {LAYER "post_attention_layernorm.weight", {"hidden_size"}, NULL},
    {LAYER "post_attention_layernorm.bias", {"hidden_size"}, NULL},
    {LAYER "attention.query_key_value.weight", {"3*hidden_size", "hidden_size"}, NULL},
    {LAYER "attention.query_key_value.bias", {"3*hidden_size"}, "+attention_bias"},
    {LAYER "attention.dense.weight", {"hidden_size", "hidden_size"}, NULL},
    {LAYER "attention.dense.bias", {"hidden_size"}, "+attention_bias"},
    {LAYER "mlp.dense_h_to_4h.weight", {"intermediate_size", "hidden_size"}, NULL},
    {LAYER "mlp.dense_h_to_4h.bias", {"intermediate_size"}, NULL},
    {LAYER "mlp.dense_4h_to_h.weight", {"hidden_size", "intermediate_size"}, NULL},
    {LAYER "mlp.dense_4h_to_h.bias", {"hidden_size"}, NULL},
    {"gpt_neox.final_layer_norm.weight", {"hidden_size"}, NULL},
    {"gpt_neox.final_layer_norm.bias", {"hidden_size"}, NULL},
    {0},
};

static const ckpt_arch_shape embed_out[] = {{"embed_out.weight", {"vocab_size", "hidden_size"}, NULL}, {0}};
static const ckpt_arch_shape score[] = {{"score.weight", {"num_labels", "hidden_size"}, NULL}, {0}};
static const ckpt_arch_shape classifier[] = {
    {"classifier.weight", {"num_labels", "hidden_size"}, NULL}, {"classifier.bias", {"num_labels"}, NULL}, {0}};
static const ckpt_arch_shape answers[] = {
    {"qa_outputs.weight", {"2", "hidden_size"}, NULL}, {"qa_outputs.bias", {"2"}, NULL}, {0}};

static const char *const passed[] = {"attention.bias", "attention.masked_bias", "rotary_emb.inv_freq", NULL};
static const char *const undecided[] = {"per_layer_config", "text_config", NULL};

static const ckpt_arch_setting settings[] = {
    {"attention_bias", CKPT_IS_BOOL},
    {"attention_dropout", CKPT_IS_NUMBER},
    {"classifier_dropout", CKPT_IS_NUMBER},
    {"hidden_act", CKPT_IS_WORD},
    {"hidden_dropout", CKPT_IS_NUMBER},
    {"hidden_size", CKPT_IS_INT},
    {"intermediate_size", CKPT_IS_INT},
    {"is_decoder", CKPT_IS_BOOL},
    {"layer_norm_eps", CKPT_IS_FLOAT},
    {"max_position_embeddings", CKPT_IS_INT},
    {"num_attention_heads", CKPT_IS_INT},
    {"num_hidden_layers", CKPT_IS_INT},
    {"partial_rotary_factor", CKPT_IS_NUMBER | CKPT_IS_LOOSE},
    {"rope_theta", CKPT_IS_ROPE},
    {"rotary_emb_base", CKPT_IS_ROPE},
    {"rotary_pct", CKPT_IS_NUMBER | CKPT_IS_LOOSE},
    {"use_parallel_residual", CKPT_IS_BOOL},
    {0},
};

#define CLASS(name, head)                                                                                         \
  {                                                                                                               \
    name, "gpt_neox", settings, "gpt_neox.", body, head, passed, undecided, "hidden_size", "num_attention_heads", \
        false                                                                                                     \
  }

static const ckpt_arch_model models[] = {
    CLASS("GPTNeoXModel", NULL),
    CLASS("GPTNeoXForCausalLM", embed_out),
    CLASS("GPTNeoXForSequenceClassification", score),
    CLASS("GPTNeoXForTokenClassification", classifier),
    CLASS("GPTNeoXForQuestionAnswering", answers),
    {0},
};

/* ---- GGUF: the keys that GPTNeoXModel of llama.cpp's converter writes, in its order; it leaves the base of rotary
 * positions out, which we add where it is another than llama.cpp's own ----------------------------------------------
 */

static const char *const gguf_classes[] = {"GPTNeoXForCausalLM", NULL};

static const ckpt_arch_key keys[] = {
    {"context_length", "max_position_embeddings", CKPT_KEY_U32},
    {"embedding_length", "hidden_size", CKPT_KEY_U32},
    {"block_count", "num_hidden_layers", CKPT_KEY_U32},
    {"feed_forward_length", "intermediate_size", CKPT_KEY_U32},
    {"rope.dimension_count", "hidden_size/num_attention_heads", CKPT_KEY_ROTARY},
    {"attention.head_count", "num_attention_heads", CKPT_KEY_U32},
    {"use_parallel_residual", "use_parallel_residual", CKPT_KEY_BOOL},
    {"attention.layer_norm_epsilon", "layer_norm_eps", CKPT_KEY_F32},
    {"rope.freq_base", "rotary_emb_base", CKPT_KEY_THETA},
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
                                       "is_decoder",
                                       "attention_bias",
                                       "attention_dropout",
                                       "attention_probs_dropout_prob",
                                       "hidden_dropout",
                                       "hidden_dropout_prob",
                                       "classifier_dropout",
                                       "tie_word_embeddings",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "vocab_size",
                                       NULL};

/* What llama.cpp computes, whatever the config says: GELU by its tanh formula, of which nothing tells it apart. */
static const ckpt_arch_constant constants[] = {
    {"hidden_act", "\"gelu\"|\"gelu_new\"|\"gelu_fast\"|\"gelu_pytorch_tanh\"", false}, {0}};

static const ckpt_arch_default defaults[] = {
    {"max_position_embeddings", "2048", NULL}, {"layer_norm_eps", "1e-05", NULL}, {0}};

static const ckpt_arch_gguf gguf = {.architecture = "gptneox",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = "num_attention_heads",
                                    .keys = keys,
                                    .needless = needless,
                                    .constants = constants,
                                    .defaults = defaults,
                                    .needs_head = true};

extern const ckpt_arch ckpt_arch_gpt_neox;
const ckpt_arch ckpt_arch_gpt_neox = {.name = "gpt_neox",
                                      .revision = 1,
                                      .model_types = model_types,
                                      .base_prefix = "gpt_neox.",
                                      .names = names,
                                      .joined = joined,
                                      .ties = ties,
                                      .shapes = body,
                                      .models = models,
                                      .n_layers = "num_hidden_layers",
                                      .rope = {"rotary_emb_base", "rotary_pct", 10000, 0.25, false},
                                      .gguf = &gguf};
