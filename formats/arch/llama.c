/* llama.c - names of the Llama family (Llama 1 to 3, Mistral: the same tensors and the same layout).
 *
 * Sources: the state dicts of transformers' LlamaForCausalLM and MistralForCausalLM; gguf's tensor name map; Meta's
 * consolidated.*.pth. Rotary pairs lie half a head apart in Hugging Face's q and k and side by side in GGUF's and
 * Meta's: ROPE_PERMUTE rows are permuted there, weights and biases alike. */
#define META(name) name
#include "formats/arch/decoder.h"

static const char *const model_types[] = {"llama", "mistral", NULL};

/* Biases are there with attention_bias or mlp_bias in the config. */
static const ckpt_arch_name names[] = {
    EMBEDDING,
    Q_PROJ(ROPE_ROWS),
    Q_BIAS(ROPE_ROWS | CKPT_NAME_OPTIONAL),
    K_PROJ(ROPE_ROWS_OF_K),
    K_BIAS(ROPE_ROWS_OF_K | CKPT_NAME_OPTIONAL),
    V_PROJ,
    V_BIAS(OPTIONAL),
    O_PROJ,
    O_BIAS(OPTIONAL),
    GATE_PROJ,
    BIAS("mlp.gate_proj", "ffn_gate", OPTIONAL, 0),
    UP_PROJ,
    BIAS("mlp.up_proj", "ffn_up", OPTIONAL, 0),
    DOWN_PROJ,
    BIAS("mlp.down_proj", "ffn_down", OPTIONAL, -1),
    NORMS,
    FINAL_NORM(PLAIN),
    LM_HEAD,

    /* Written by transformers before 4.32; recomputed from the config by later ones. */
    BUFFER(LAYER "self_attn.rotary_emb.inv_freq"),
    BUFFER("model.rotary_emb.inv_freq"),
    {0},
};

static const ckpt_arch_tie ties[] = {TIED_HEAD(false), {0}};

/* ---- what transformers expects --------------------------------------------------------------------------------- */

#define LLAMA_KV_HEADS KV_HEADS "|" HEADS

static const ckpt_arch_shape llama_body[] = {
    DECODER_SHAPES(HEADS, LLAMA_KV_HEADS, MLP_SHAPES),
    QKV_BIAS_SHAPES(HEADS, LLAMA_KV_HEADS, "attention_bias"),
    BIAS_SHAPE("self_attn.o_proj", "hidden_size", "attention_bias"),
    BIAS_SHAPE("mlp.gate_proj", "intermediate_size", "mlp_bias"),
    BIAS_SHAPE("mlp.up_proj", "intermediate_size", "mlp_bias"),
    BIAS_SHAPE("mlp.down_proj", "hidden_size", "mlp_bias"),
    {0},
};

/* It has 8 heads of keys and values where its config says nothing of them, and never a bias. */
static const ckpt_arch_shape mistral_body[] = {DECODER_SHAPES(HEADS, KV_HEADS, MLP_SHAPES), {0}};

static const ckpt_arch_setting llama_settings[] = {
    DECODER_SETTINGS,
    {"attention_bias", CKPT_IS_BOOL},
    {"attention_dropout", CKPT_IS_NUMBER | CKPT_IS_NULL},
    {"head_dim", CKPT_IS_INT | CKPT_IS_NULL | CKPT_IS_FILLED},
    {"hidden_act", CKPT_IS_WORD},
    {"mlp_bias", CKPT_IS_BOOL},
    {"num_key_value_heads", CKPT_IS_INT | CKPT_IS_NULL},
    {"pretraining_tp", CKPT_IS_INT | CKPT_IS_NULL},
    {0},
};

static const ckpt_arch_setting mistral_settings[] = {
    DECODER_SETTINGS,
    WINDOW_SETTING,
    {"attention_dropout", CKPT_IS_NUMBER},
    {"head_dim", CKPT_IS_INT | CKPT_IS_NULL | CKPT_IS_FILLED},
    {"hidden_act", CKPT_IS_WORD},
    {"num_key_value_heads", CKPT_IS_INT},
    {0},
};

static const ckpt_arch_model models[] = {
    CLASSES("Llama", "llama", llama_settings, llama_body, "hidden_size", "num_attention_heads"),
    ANSWERS("Llama", "llama", llama_settings, "transformer.", llama_body, "hidden_size", "num_attention_heads"),
    CLASSES("Mistral", "mistral", mistral_settings, mistral_body, NULL, NULL),
    ANSWERS("Mistral", "mistral", mistral_settings, "model.", mistral_body, NULL, NULL),
    {0},
};

/* ---- GGUF: the keys that LlamaModel of llama.cpp's converter writes, in its order ---------------------------------
 */

static const char *const gguf_classes[] = {"LlamaForCausalLM", "MistralForCausalLM", NULL};

static const ckpt_arch_key keys[] = {DECODER_KEYS, HEAD_WIDTH_KEYS, LLAMA_END_KEYS, {0}};

static const ckpt_arch_made made[] = {{"rope_freqs.weight", CKPT_MADE_ROPE_FACTORS}, {0}};

static const ckpt_arch_flag flags[] = {
    {"attention_bias", "blk.0.attn_q.bias"}, {"mlp_bias", "blk.0.ffn_gate.bias"}, {0}};

static const char *const needless[] = {DECODER_NEEDLESS, "pretraining_tp", "attention_bias", "mlp_bias", NULL};

static const ckpt_arch_constant constants[] = {SILU, {0}};

static const ckpt_arch_default defaults[] = {
    DECODER_DEFAULTS("2048", "1e-06", "llama"), DECODER_DEFAULTS("131072", "1e-06", "mistral"), {0}};

static const char *const taken[] = {"attn_qkv.weight", "attn_qkv.bias", NULL};

static const ckpt_arch_gguf gguf = {.architecture = "llama",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = KV_HEAD_KEYS,
                                    .keys = keys,
                                    .made = made,
                                    .flags = flags,
                                    .needless = needless,
                                    .constants = constants,
                                    .defaults = defaults,
                                    .taken = taken};

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
                                   .rope = DECODER_ROPE(10000, false),
                                   .gguf = &gguf};
