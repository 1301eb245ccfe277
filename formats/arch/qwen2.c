/* qwen2.c - Qwen2 (and Qwen2.5): Llama's names, with biases of q, k and v.
 *
 * Sources: the state dict of transformers' Qwen2ForCausalLM; gguf's tensor name map; Qwen2Model of llama.cpp's
 * converter. llama.cpp rotates halves of a head here, as Hugging Face does, so no rows are permuted. */
#include "formats/arch/decoder.h"

static const char *const model_types[] = {"qwen2", NULL};

static const ckpt_arch_name names[] = {
    EMBEDDING, Q_PROJ(PLAIN), Q_BIAS(PLAIN), K_PROJ(PLAIN),     K_BIAS(PLAIN), V_PROJ, V_BIAS(PLAIN), O_PROJ, GATE_PROJ,
    UP_PROJ,   DOWN_PROJ,     NORMS,         FINAL_NORM(PLAIN), LM_HEAD,       {0}};

static const ckpt_arch_tie ties[] = {TIED_HEAD(false), {0}};

/* It has 32 heads of keys and values where its config says nothing of them. */
static const ckpt_arch_shape body[] = {
    DECODER_SHAPES(HEADS, KV_HEADS, MLP_SHAPES), QKV_BIAS_SHAPES(HEADS, KV_HEADS, NULL), {0}};

static const ckpt_arch_setting settings[] = {
    DECODER_SETTINGS,
    WINDOW_SETTING,
    {"attention_dropout", CKPT_IS_NUMBER},
    {"hidden_act", CKPT_IS_WORD},
    {"max_window_layers", CKPT_IS_INT},
    {"num_key_value_heads", CKPT_IS_INT | CKPT_IS_NULL},
    {"use_sliding_window", CKPT_IS_BOOL},
    {0},
};

static const ckpt_arch_model models[] = {CLASSES("Qwen2", "qwen2", settings, body, NULL, NULL),
                                         ANSWERS("Qwen2", "qwen2", settings, "transformer.", body, NULL, NULL),
                                         {0}};

/* ---- GGUF: the keys that Qwen2Model of llama.cpp's converter writes, in its order -------------------------------- */

static const char *const gguf_classes[] = {"Qwen2ForCausalLM", NULL};

static const ckpt_arch_key keys[] = {DECODER_KEYS, HEAD_WIDTH_KEYS, FILE_TYPE_KEY, {0}};

static const char *const needless[] = {DECODER_NEEDLESS, "vocab_size", NULL};

static const ckpt_arch_needless_without needless_without[] = {
    {"sliding_window", "use_sliding_window"}, {"max_window_layers", "use_sliding_window"}, {0}};

static const ckpt_arch_constant constants[] = {SILU, {0}};

static const ckpt_arch_default defaults[] = {DECODER_DEFAULTS("32768", "1e-06", NULL), {0}};

static const char *const taken[] = {"attn_qkv.weight", "attn_qkv.bias", "output.bias", NULL};

static const ckpt_arch_gguf gguf = {.architecture = "qwen2",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = KV_HEAD_KEYS,
                                    .keys = keys,
                                    .needless = needless,
                                    .needless_without = needless_without,
                                    .constants = constants,
                                    .defaults = defaults,
                                    .taken = taken};

extern const ckpt_arch ckpt_arch_qwen2;
const ckpt_arch ckpt_arch_qwen2 = {.name = "qwen2",
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
