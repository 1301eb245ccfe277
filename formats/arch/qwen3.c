/* qwen3.c - Qwen3: Llama's names, with norms of the heads of q and k.
 *
 * Sources: the state dict of transformers' Qwen3ForCausalLM; gguf's tensor name map; Qwen3Model of llama.cpp's
 * converter. llama.cpp rotates halves of a head here, as Hugging Face does, so no rows are permuted. */
#include "formats/arch/decoder.h"

static const char *const model_types[] = {"qwen3", NULL};

/* Biases are there with attention_bias in the config. */
static const ckpt_arch_name names[] = {
    EMBEDDING,
    Q_PROJ(PLAIN),
    Q_BIAS(OPTIONAL),
    K_PROJ(PLAIN),
    K_BIAS(OPTIONAL),
    V_PROJ,
    V_BIAS(OPTIONAL),
    O_PROJ,
    PARAMETER(LAYER "self_attn.o_proj.bias", NULL, NULL, OPTIONAL, -1), /* llama.cpp has none */
    NORM("self_attn.q_norm", "attn_q_norm", NULL, PLAIN),
    NORM("self_attn.k_norm", "attn_k_norm", NULL, PLAIN),
    GATE_PROJ,
    UP_PROJ,
    DOWN_PROJ,
    NORMS,
    FINAL_NORM(PLAIN),
    LM_HEAD,
    {0},
};

static const ckpt_arch_tie ties[] = {TIED_HEAD(false), {0}};

/* A head's width does not follow from others: where the config says nothing of it, it is this. */
#define WIDTH "head_dim|128"
#define QWEN3_HEADS "num_attention_heads*head_dim|num_attention_heads*128"
#define QWEN3_KV_HEADS "num_key_value_heads*head_dim|num_key_value_heads*128"

static const ckpt_arch_shape body[] = {
    DECODER_SHAPES(QWEN3_HEADS, QWEN3_KV_HEADS, MLP_SHAPES),
    QKV_BIAS_SHAPES(QWEN3_HEADS, QWEN3_KV_HEADS, "attention_bias"),
    BIAS_SHAPE("self_attn.o_proj", "hidden_size", "attention_bias"),
    {LAYER "self_attn.q_norm.weight", {WIDTH}, NULL},
    {LAYER "self_attn.k_norm.weight", {WIDTH}, NULL},
    {0},
};

static const ckpt_arch_setting settings[] = {
    DECODER_SETTINGS,
    WINDOW_SETTING,
    {"attention_bias", CKPT_IS_BOOL},
    {"attention_dropout", CKPT_IS_NUMBER},
    {"head_dim", CKPT_IS_INT},
    {"hidden_act", CKPT_IS_WORD},
    {"max_window_layers", CKPT_IS_INT},
    {"num_key_value_heads", CKPT_IS_INT | CKPT_IS_NULL},
    {"use_sliding_window", CKPT_IS_BOOL},
    {0},
};

static const ckpt_arch_model models[] = {CLASSES("Qwen3", "qwen3", settings, body, NULL, NULL),
                                         ANSWERS("Qwen3", "qwen3", settings, "transformer.", body, NULL, NULL),
                                         {0}};

/* ---- GGUF: the keys that Qwen3Model of llama.cpp's converter writes, in its order -------------------------------- */

static const char *const gguf_classes[] = {"Qwen3ForCausalLM", NULL};

static const ckpt_arch_key keys[] = {DECODER_KEYS,
                                     {"attention.key_length", WIDTH, CKPT_KEY_U32},
                                     {"attention.value_length", WIDTH, CKPT_KEY_U32},
                                     FILE_TYPE_KEY,
                                     {0}};

static const ckpt_arch_flag flags[] = {{"attention_bias", "blk.0.attn_q.bias"}, {0}};

static const char *const needless[] = {DECODER_NEEDLESS, "attention_bias", "vocab_size", NULL};

static const ckpt_arch_needless_without needless_without[] = {
    {"sliding_window", "use_sliding_window"}, {"max_window_layers", "use_sliding_window"}, {0}};

/* A bias of the attention's output, which attention_bias has with the others, llama.cpp does not load. */
static const ckpt_arch_constant constants[] = {SILU, {"attention_bias", "false", true}, {0}};

static const ckpt_arch_default defaults[] = {DECODER_DEFAULTS("32768", "1e-06", NULL), {0}};

static const char *const taken[] = {"attn_qkv.weight", "attn_qkv.bias", "cls.output.weight", NULL};

static const ckpt_arch_gguf gguf = {.architecture = "qwen3",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = KV_HEAD_KEYS,
                                    .keys = keys,
                                    .flags = flags,
                                    .needless = needless,
                                    .needless_without = needless_without,
                                    .constants = constants,
                                    .defaults = defaults,
                                    .taken = taken};

extern const ckpt_arch ckpt_arch_qwen3;
const ckpt_arch ckpt_arch_qwen3 = {.name = "qwen3",
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
