/* gemma2.c - names of Gemma 2: four norms a layer, each of which counts from 1.
 *
 * Sources: the state dict of transformers' Gemma2ForCausalLM; gguf's tensor name map; Gemma2Model of llama.cpp's
 * converter. GGUF has the norms with 1 added, in f32, and no output head: the embedding always is one. No key of GGUF
 * says by what q is scaled: llama.cpp works it out of the sizes. */
#include "formats/arch/decoder.h"

static const char *const model_types[] = {"gemma2", NULL};

/* Biases, with attention_bias in the config, have no place in GGUF. */
static const ckpt_arch_name names[] = {
    EMBEDDING,
    Q_PROJ(PLAIN),
    K_PROJ(PLAIN),
    V_PROJ,
    O_PROJ,
    GATE_PROJ,
    UP_PROJ,
    DOWN_PROJ,
    NORM("input_layernorm", "attn_norm", NULL, PLUS_ONE),
    NORM("post_attention_layernorm", "post_attention_norm", NULL, PLUS_ONE),
    NORM("pre_feedforward_layernorm", "ffn_norm", NULL, PLUS_ONE),
    NORM("post_feedforward_layernorm", "post_ffw_norm", NULL, PLUS_ONE),
    FINAL_NORM(PLUS_ONE),
    {"lm_head.weight", NULL, NULL, CKPT_NAME_COPY, 0, CKPT_ROLE_PARAMETER},
    {0},
};

static const ckpt_arch_tie ties[] = {TIED_HEAD(true), {0}};

/* transformers' defaults, where the config names neither the heads of keys nor their width. */
#define GEMMA2_HEADS "num_attention_heads*head_dim|num_attention_heads*256"
#define GEMMA2_KV_HEADS "num_key_value_heads*head_dim|num_key_value_heads*256|4*head_dim|4*256"

static const ckpt_arch_shape body[] = {
    DECODER_SHAPES(GEMMA2_HEADS, GEMMA2_KV_HEADS, MLP_SHAPES),
    NORM_SHAPE("pre_feedforward_layernorm"),
    NORM_SHAPE("post_feedforward_layernorm"),
    QKV_BIAS_SHAPES(GEMMA2_HEADS, GEMMA2_KV_HEADS, "attention_bias"),
    BIAS_SHAPE("self_attn.o_proj", "hidden_size", "attention_bias"),
    {0},
};

static const ckpt_arch_setting settings[] = {
    DECODER_SETTINGS,
    WINDOW_SETTING,
    {"attention_bias", CKPT_IS_BOOL},
    {"attention_dropout", CKPT_IS_NUMBER | CKPT_IS_NULL},
    {"attn_logit_softcapping", CKPT_IS_FLOAT | CKPT_IS_NULL},
    {"final_logit_softcapping", CKPT_IS_FLOAT | CKPT_IS_NULL},
    {"head_dim", CKPT_IS_INT},
    {"hidden_activation", CKPT_IS_WORD},
    {"num_key_value_heads", CKPT_IS_INT},
    {"query_pre_attn_scalar", CKPT_IS_INT},
    {"use_bidirectional_attention", CKPT_IS_BOOL | CKPT_IS_NULL},
    {0},
};

static const ckpt_arch_model models[] = {
    CLASSES("Gemma2", "gemma2", settings, body, "hidden_size", "num_attention_heads"), {0}};

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
    {"attention.head_count_kv", "num_key_value_heads|4", CKPT_KEY_U32},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", CKPT_KEY_F32},
    {"attention.key_length", "head_dim|256", CKPT_KEY_U32},
    {"attention.value_length", "head_dim|256", CKPT_KEY_U32},
    FILE_TYPE_KEY,
    {"attn_logit_softcapping", "attn_logit_softcapping", CKPT_KEY_F32},
    {"final_logit_softcapping", "final_logit_softcapping", CKPT_KEY_F32},
    {"attention.sliding_window", "sliding_window|4096", CKPT_KEY_WINDOW},
    {"rope.freq_base", "rope_theta", CKPT_KEY_THETA},
    {0},
};

static const char *const needless[] = {DECODER_NEEDLESS, "hidden_act", "cache_implementation", "vocab_size", NULL};

static const char *const layer_types[] = {"sliding_attention", "full_attention", NULL};

/* What llama.cpp computes, whatever the config says. */
static const ckpt_arch_constant constants[] = {{"hidden_activation", "\"gelu_pytorch_tanh\"", false}, {0}};

/* Of 46 layers is the model of 27 billion parameters. */
static const ckpt_arch_implied implied[] = {{"query_pre_attn_scalar", "hidden_size/num_attention_heads", 46},
                                            {"query_pre_attn_scalar", "head_dim|hidden_size/num_attention_heads", 0},
                                            {0}};

static const ckpt_arch_default defaults[] = {DECODER_DEFAULTS("8192", "1e-06", NULL),
                                             {"query_pre_attn_scalar", "256", NULL},
                                             {"attn_logit_softcapping", "50.0", NULL},
                                             {"final_logit_softcapping", "30.0", NULL},
                                             {0}};

static const char *const taken[] = {"attn_q.bias",     "attn_k.bias",   "attn_v.bias",
                                    "attn_qkv.weight", "attn_qkv.bias", NULL};

static const ckpt_arch_gguf gguf = {.architecture = "gemma2",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = "num_key_value_heads|4",
                                    .keys = keys,
                                    .needless = needless,
                                    .layer_types = layer_types,
                                    .constants = constants,
                                    .implied = implied,
                                    .defaults = defaults,
                                    .taken = taken};

extern const ckpt_arch ckpt_arch_gemma2;
const ckpt_arch ckpt_arch_gemma2 = {.name = "gemma2",
                                    .revision = 1,
                                    .model_types = model_types,
                                    .base_prefix = "model.",
                                    .names = names,
                                    .ties = ties,
                                    .shapes = body,
                                    .models = models,
                                    .n_layers = "num_hidden_layers",
                                    .rope = DECODER_ROPE(10000, true),
                                    .gguf = &gguf};
