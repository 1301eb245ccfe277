/* mixtral.c - Mixtral: Mistral's attention, and experts instead of its MLP.
 *
 * Sources: the files that transformers writes of MixtralForCausalLM (its own state dict stacks the experts since
 * version 5, the files do not); gguf's tensor name map; LlamaModel of llama.cpp's converter. In GGUF it is a "llama"
 * with experts, which are stacked: one tensor of all of a layer's gates, one of all that go up, one of all that go
 * down. */
#include "formats/arch/decoder.h"

#define EXPERT LAYER "block_sparse_moe.experts.#."

static const char *const model_types[] = {"mixtral", NULL};

static const ckpt_arch_name names[] = {
    EMBEDDING,
    Q_PROJ(ROPE_ROWS),
    K_PROJ(ROPE_ROWS_OF_K),
    V_PROJ,
    O_PROJ,
    MATRIX("block_sparse_moe.gate", "ffn_gate_inp", NULL, PLAIN, -1),
    PARAMETER(EXPERT "w1.weight", "blk.#.ffn_gate_exps.weight", NULL, PLAIN, 0),
    PARAMETER(EXPERT "w2.weight", "blk.#.ffn_down_exps.weight", NULL, PLAIN, 1),
    PARAMETER(EXPERT "w3.weight", "blk.#.ffn_up_exps.weight", NULL, PLAIN, 0),
    NORMS,
    FINAL_NORM(PLAIN),
    LM_HEAD,
    {0},
};

/* The model's own state dict since transformers 5; save_pretrained takes them apart again. */
static const ckpt_arch_joined joined[] = {
    {LAYER "mlp.experts.gate_up_proj", {EXPERT "w1.weight", EXPERT "w3.weight"}},
    {LAYER "mlp.experts.down_proj", {EXPERT "w2.weight"}},
    {LAYER "mlp.gate.weight", {LAYER "block_sparse_moe.gate.weight"}},
    {0},
};

static const ckpt_arch_tie ties[] = {TIED_HEAD(false), {0}};

#define EXPERT_SHAPES                                                                 \
  {LAYER "block_sparse_moe.gate.weight", {"num_local_experts", "hidden_size"}, NULL}, \
      {EXPERT "w1.weight", {"intermediate_size", "hidden_size"}, NULL},               \
      {EXPERT "w2.weight", {"hidden_size", "intermediate_size"}, NULL}, {             \
    EXPERT "w3.weight", {"intermediate_size", "hidden_size"}, NULL                    \
  }

/* It has 8 heads of keys and values where its config says nothing of them. */
static const ckpt_arch_shape body[] = {DECODER_SHAPES(HEADS, KV_HEADS, EXPERT_SHAPES), {0}};

static const ckpt_arch_setting settings[] = {
    DECODER_SETTINGS,
    WINDOW_SETTING,
    {"attention_dropout", CKPT_IS_NUMBER},
    {"head_dim", CKPT_IS_INT | CKPT_IS_NULL},
    {"hidden_act", CKPT_IS_WORD},
    {"num_key_value_heads", CKPT_IS_INT},
    {"num_experts_per_tok", CKPT_IS_INT},
    {"num_local_experts", CKPT_IS_INT},
    {"num_experts", CKPT_IS_ALIAS},
    {"output_router_logits", CKPT_IS_BOOL},
    {"router_aux_loss_coef", CKPT_IS_FLOAT},
    {"router_jitter_noise", CKPT_IS_FLOAT},
    {0},
};

static const ckpt_arch_model models[] = {CLASSES("Mixtral", "mixtral", settings, body, NULL, NULL),
                                         ANSWERS("Mixtral", "mixtral", settings, "model.", body, NULL, NULL),
                                         {0}};

/* ---- GGUF: the keys that LlamaModel of llama.cpp's converter writes, in its order ---------------------------------
 */

static const char *const gguf_classes[] = {"MixtralForCausalLM", NULL};

static const ckpt_arch_key keys[] = {
    DECODER_KEYS,
    {"expert_count", "num_local_experts", CKPT_KEY_U32},
    {"expert_used_count", "num_experts_per_tok", CKPT_KEY_U32},
    HEAD_WIDTH_KEYS,
    LLAMA_END_KEYS,
    {0},
};

static const char *const needless[] = {DECODER_NEEDLESS, "output_router_logits", "router_aux_loss_coef",
                                       "router_jitter_noise", NULL};

static const ckpt_arch_made made[] = {{"rope_freqs.weight", CKPT_MADE_ROPE_FACTORS}, {0}};

static const ckpt_arch_constant constants[] = {SILU, {0}};

static const ckpt_arch_default defaults[] = {
    DECODER_DEFAULTS("131072", "1e-05", NULL), {"num_experts_per_tok", "2", NULL}, {0}};

static const char *const taken[] = {"attn_q.bias",     "attn_k.bias",   "attn_v.bias",   "attn_output.bias",
                                    "attn_qkv.weight", "attn_qkv.bias", "_shexp.weight", NULL};

static const ckpt_arch_gguf gguf = {.architecture = "llama",
                                    .having = "expert_count",
                                    .classes = gguf_classes,
                                    .heads = "num_attention_heads",
                                    .kv_heads = KV_HEAD_KEYS,
                                    .keys = keys,
                                    .made = made,
                                    .needless = needless,
                                    .constants = constants,
                                    .defaults = defaults,
                                    .taken = taken};

extern const ckpt_arch ckpt_arch_mixtral;
const ckpt_arch ckpt_arch_mixtral = {.name = "mixtral",
                                     .revision = 1,
                                     .model_types = model_types,
                                     .base_prefix = "model.",
                                     .names = names,
                                     .joined = joined,
                                     .ties = ties,
                                     .shapes = body,
                                     .models = models,
                                     .n_layers = "num_hidden_layers",
                                     .rope = DECODER_ROPE(1e6, false),
                                     .n_experts = "num_local_experts",
                                     .gguf = &gguf};
