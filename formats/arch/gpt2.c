/* gpt2.c - names of GPT-2.
 *
 * Sources: the state dict of transformers' GPT2LMHeadModel; gguf's tensor name map. Its Conv1D modules store matrices
 * as (in, out), the transpose of a Linear's and of GGUF's: so tensor parallelism splits a column-parallel matrix along
 * axis 1 here. c_attn is q, k and v side by side along its last axis, in each of which heads are split. */
#include "libckpt/index/arch.h"

#define PARAMETER(hf, gguf, note, split_axis) \
  { hf, gguf, NULL, CKPT_NAME_##note, split_axis, CKPT_ROLE_PARAMETER }
#define BUFFER(hf) \
  { hf, NULL, NULL, CKPT_NAME_PLAIN, -1, CKPT_ROLE_BUFFER }
#define BLOCK "transformer.h.#."

static const char *const model_types[] = {"gpt2", NULL};

/* In the order of the model's parameters, see arch.h. */
static const ckpt_arch_name names[] = {
    PARAMETER("transformer.wte.weight", "token_embd.weight", PLAIN, 0),
    PARAMETER("transformer.wpe.weight", "position_embd.weight", PLAIN, -1),
    PARAMETER(BLOCK "ln_1.weight", "blk.#.attn_norm.weight", PLAIN, -1),
    PARAMETER(BLOCK "ln_1.bias", "blk.#.attn_norm.bias", PLAIN, -1),
    PARAMETER(BLOCK "attn.c_attn.weight", "blk.#.attn_qkv.weight", FUSED_QKV | CKPT_NAME_TRANSPOSE, 1),
    PARAMETER(BLOCK "attn.c_attn.bias", "blk.#.attn_qkv.bias", FUSED_QKV, 0),
    PARAMETER(BLOCK "attn.c_proj.weight", "blk.#.attn_output.weight", TRANSPOSE, 0),
    PARAMETER(BLOCK "attn.c_proj.bias", "blk.#.attn_output.bias", PLAIN, -1),
    PARAMETER(BLOCK "ln_2.weight", "blk.#.ffn_norm.weight", PLAIN, -1),
    PARAMETER(BLOCK "ln_2.bias", "blk.#.ffn_norm.bias", PLAIN, -1),
    PARAMETER(BLOCK "mlp.c_fc.weight", "blk.#.ffn_up.weight", TRANSPOSE, 1),
    PARAMETER(BLOCK "mlp.c_fc.bias", "blk.#.ffn_up.bias", PLAIN, 0),
    PARAMETER(BLOCK "mlp.c_proj.weight", "blk.#.ffn_down.weight", TRANSPOSE, 0),
    PARAMETER(BLOCK "mlp.c_proj.bias", "blk.#.ffn_down.bias", PLAIN, -1),
    PARAMETER("transformer.ln_f.weight", "output_norm.weight", PLAIN, -1),
    PARAMETER("transformer.ln_f.bias", "output_norm.bias", PLAIN, -1),
    PARAMETER("lm_head.weight", "output.weight", PLAIN, 0),

    /* The causal mask and its fill value, written by older transformers (openai-community/gpt2 has the first). */
    BUFFER(BLOCK "attn.bias"),
    BUFFER(BLOCK "attn.masked_bias"),
    {0},
};

static const ckpt_arch_tie ties[] = {
    {"transformer.wte.weight", "lm_head.weight", "tie_word_embeddings", true},
    {0},
};

/* ---- what transformers expects --------------------------------------------------------------------------------- */

static const ckpt_arch_shape body[] = {
    {"transformer.wte.weight", {"vocab_size", "n_embd"}, NULL},
    {"transformer.wpe.weight", {"n_positions", "n_embd"}, NULL},
    {BLOCK "ln_1.weight", {"n_embd"}, NULL},
    {BLOCK "ln_1.bias", {"n_embd"}, NULL},
    {BLOCK "attn.c_attn.weight", {"n_embd", "3*n_embd"}, NULL},
    {BLOCK "attn.c_attn.bias", {"3*n_embd"}, NULL},
    {BLOCK "attn.c_proj.weight", {"n_embd", "n_embd"}, NULL},
    {BLOCK "attn.c_proj.bias", {"n_embd"}, NULL},
    {BLOCK "crossattention.c_attn.weight", {"n_embd", "2*n_embd"}, "add_cross_attention"},
    {BLOCK "crossattention.c_attn.bias", {"2*n_embd"}, "add_cross_attention"},
    {BLOCK "crossattention.q_attn.weight", {"n_embd", "n_embd"}, "add_cross_attention"},
    {BLOCK "crossattention.q_attn.bias", {"n_embd"}, "add_cross_attention"},
    {BLOCK "crossattention.c_proj.weight", {"n_embd", "n_embd"}, "add_cross_attention"},
    {BLOCK "crossattention.c_proj.bias", {"n_embd"}, "add_cross_attention"},
    {BLOCK "ln_cross_attn.weight", {"n_embd"}, "add_cross_attention"},
    {BLOCK "ln_cross_attn.bias", {"n_embd"}, "add_cross_attention"},
    {BLOCK "ln_2.weight", {"n_embd"}, NULL},
    {BLOCK "ln_2.bias", {"n_embd"}, NULL},
    {BLOCK "mlp.c_fc.weight", {"n_embd", "n_inner|4*n_embd"}, NULL},
    {BLOCK "mlp.c_fc.bias", {"n_inner|4*n_embd"}, NULL},
    {BLOCK "mlp.c_proj.weight", {"n_inner|4*n_embd", "n_embd"}, NULL},
    {BLOCK "mlp.c_proj.bias", {"n_embd"}, NULL},
    {"transformer.ln_f.weight", {"n_embd"}, NULL},
    {"transformer.ln_f.bias", {"n_embd"}, NULL},
    {0},
};

static const ckpt_arch_shape lm_head[] = {{"lm_head.weight", {"vocab_size", "n_embd"}, NULL}, {0}};
static const ckpt_arch_shape score[] = {{"score.weight", {"num_labels", "n_embd"}, NULL}, {0}};
static const ckpt_arch_shape classifier[] = {
    {"classifier.weight", {"num_labels", "n_embd"}, NULL}, {"classifier.bias", {"num_labels"}, NULL}, {0}};
static const ckpt_arch_shape answers[] = {
    {"qa_outputs.weight", {"2", "n_embd"}, NULL}, {"qa_outputs.bias", {"2"}, NULL}, {0}};

#define SUMMARY "multiple_choice_head.summary."
static const ckpt_arch_shape double_heads[] = {
    {"lm_head.weight", {"vocab_size", "n_embd"}, NULL},
    {SUMMARY "weight", {"1", "n_embd"}, "+summary_use_proj&+summary_proj_to_labels"},
    {SUMMARY "bias", {"1"}, "+summary_use_proj&+summary_proj_to_labels"},
    {SUMMARY "weight", {"n_embd", "n_embd"}, "+summary_use_proj&!+summary_proj_to_labels"},
    {SUMMARY "bias", {"n_embd"}, "+summary_use_proj&!+summary_proj_to_labels"},
    {0},
};

/* They also leave out what ends so: a bias of c_attn in a layer that the model has not. */
static const char *const passed[] = {"attn.bias", "crossattention.bias", NULL};

/* Other names of keys, of which the last that is read counts. */
static const char *const undecided[] = {
    "per_layer_config",    "text_config",       "hidden_size", "max_position_embeddings",
    "num_attention_heads", "num_hidden_layers", NULL};

static const ckpt_arch_setting settings[] = {
    {"activation_function", CKPT_IS_WORD},
    {"add_cross_attention", CKPT_IS_BOOL},
    {"attn_pdrop", CKPT_IS_NUMBER},
    {"embd_pdrop", CKPT_IS_NUMBER},
    {"layer_norm_epsilon", CKPT_IS_FLOAT},
    {"n_embd", CKPT_IS_INT},
    {"n_head", CKPT_IS_INT},
    {"n_inner", CKPT_IS_INT | CKPT_IS_NULL},
    {"n_layer", CKPT_IS_INT},
    {"n_positions", CKPT_IS_INT},
    {"reorder_and_upcast_attn", CKPT_IS_BOOL},
    {"resid_pdrop", CKPT_IS_NUMBER},
    {"scale_attn_by_inverse_layer_idx", CKPT_IS_BOOL},
    {"scale_attn_weights", CKPT_IS_BOOL},
    {"summary_activation", CKPT_IS_WORD | CKPT_IS_NULL},
    {"summary_first_dropout", CKPT_IS_NUMBER},
    {"summary_proj_to_labels", CKPT_IS_BOOL},
    {"summary_type", CKPT_IS_WORD},
    {"summary_use_proj", CKPT_IS_BOOL},
    {"hidden_size", CKPT_IS_ALIAS},
    {"max_position_embeddings", CKPT_IS_ALIAS},
    {"num_attention_heads", CKPT_IS_ALIAS},
    {"num_hidden_layers", CKPT_IS_ALIAS},
    {0},
};

#define GPT2(class, head) \
  { class, "gpt2", settings, "transformer.", body, head, passed, undecided, "n_embd", "n_head", false }

static const ckpt_arch_model models[] = {
    GPT2("GPT2Model", NULL),
    GPT2("GPT2LMHeadModel", lm_head),
    GPT2("GPT2DoubleHeadsModel", double_heads),
    GPT2("GPT2ForSequenceClassification", score),
    GPT2("GPT2ForTokenClassification", classifier),
    GPT2("GPT2ForQuestionAnswering", answers),
    {0},
};

/* ---- GGUF: the keys that GPT2Model of llama.cpp's converter writes, in its order; n_ctx is n_positions' old name ---
 */

static const char *const gguf_classes[] = {"GPT2LMHeadModel", NULL};

static const ckpt_arch_key keys[] = {
    {"block_count", "n_layer", CKPT_KEY_U32},
    {"context_length", "n_positions|n_ctx", CKPT_KEY_U32},
    {"embedding_length", "n_embd", CKPT_KEY_U32},
    {"feed_forward_length", "n_inner|4*n_embd", CKPT_KEY_U32},
    {"attention.head_count", "n_head", CKPT_KEY_U32},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", CKPT_KEY_F32},
    {"", "", CKPT_KEY_FILE_TYPE},
    {0},
};

/* How the model is trained, loaded or generates, and what follows from its tensors. */
static const char *const needless[] = {"architectures",
                                       "model_type",
                                       "_name_or_path",
                                       "transformers_version",
                                       "dtype",
                                       "torch_dtype",
                                       "attn_pdrop",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "initializer_range",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "task_specific_params",
                                       "tie_word_embeddings",
                                       "use_cache",
                                       "vocab_size",
                                       NULL};

/* What llama.cpp computes, whatever the config says. */
static const ckpt_arch_constant constants[] = {
    {"activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\"|\"gelu_fast\"", false},
    {"scale_attn_weights", "true", false},
    {"scale_attn_by_inverse_layer_idx", "false", true},
    {0}};

static const ckpt_arch_default defaults[] = {{"layer_norm_epsilon", "1e-05", NULL}, {0}};

static const ckpt_arch_gguf gguf = {.architecture = "gpt2",
                                    .classes = gguf_classes,
                                    .heads = "n_head",
                                    .kv_heads = "n_head",
                                    .keys = keys,
                                    .needless = needless,
                                    .constants = constants,
                                    .defaults = defaults};

extern const ckpt_arch ckpt_arch_gpt2;
const ckpt_arch ckpt_arch_gpt2 = {.name = "gpt2",
                                  .revision = 1,
                                  .model_types = model_types,
                                  .base_prefix = "transformer.",
                                  .names = names,
                                  .ties = ties,
                                  .shapes = body,
                                  .models = models,
                                  .n_layers = "n_layer",
                                  .gguf = &gguf};
