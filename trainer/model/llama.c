/* llama.c - the tape of LlamaForCausalLM, MistralForCausalLM (a window) and Qwen2ForCausalLM (biases of q, k and v).
 *
 * Source: the forward of these classes in transformers, and what their configurations read, of versions 4 and 5:
 * rope_theta and rope_scaling, or rope_parameters; head_dim; attention_bias and mlp_bias; sliding_window. */
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/model/model.h"

enum { MAX_LAYERS = 4096, MAX_HEADS = 65536 };
#define MAX_WIDTH (UINT64_C(1) << 24)
#define MAX_POSITIONS (UINT64_C(1) << 30)

typedef struct llama {
  ckpt_model *model;
  const ckpt_config *config;
  uint64_t width, inner, n_layers, n_heads, n_kv_heads, head_width, window, first_window_layer;
  double epsilon, std, attention_dropout;
  bool is_tied, has_qkv_bias, has_o_bias, has_mlp_bias;
  ckpt_rope rope;
  uint32_t table; /* of rope */
} llama;

/* ---- the config -----------------------------------------------------------------------------------------------------
 */

/* A key of the rope section, whatever it is called in this config: rope_scaling, or rope_parameters. */
static const char *rope_key(const llama *l, const char *name, char out[64]) {
  (void)snprintf(out, 64, "%s.%s", ckpt_config_rope(l->config), name);
  return out;
}

static ckpt_status read_rope_factors(llama *l, ckpt_error *err) {
  char key[64];
  const double huge = 1e9;
  if (!ckpt_config_has(l->config, rope_key(l, "factor", key)))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has no %s, which its rope type needs", key);
  CKPT_TRY(ckpt_model_number(l->config, key, 1e-9, huge, 1, &l->rope.factor, err));
  if (l->rope.kind != CKPT_ROPE_LLAMA3) return CKPT_OK;
  CKPT_TRY(ckpt_model_number(l->config, rope_key(l, "low_freq_factor", key), 1e-9, huge, 1,
                             &l->rope.low_frequency_factor, err));
  CKPT_TRY(ckpt_model_number(l->config, rope_key(l, "high_freq_factor", key), 1e-9, huge, 4,
                             &l->rope.high_frequency_factor, err));
  if (l->rope.high_frequency_factor <= l->rope.low_frequency_factor)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "high_freq_factor %g is not above low_freq_factor %g",
                     l->rope.high_frequency_factor, l->rope.low_frequency_factor);
  return ckpt_model_int(l->config, rope_key(l, "original_max_position_embeddings", key), 1, MAX_POSITIONS,
                        (int64_t)l->model->max_positions, &l->rope.original_positions, err);
}

/* longrope where it is one: factors of short texts are those of long ones, and attention stays as it is. So a GGUF
 * file's rope_freqs.weight is read. */
static ckpt_status read_longrope(llama *l, ckpt_error *err) {
  static const char *const names[] = {"short_factor", "long_factor"};
  const size_t n = (size_t)l->head_width / 2;
  float *lists[] = {ckpt_arena_array(&l->model->arena, n, sizeof(float)),
                    ckpt_arena_array(&l->model->arena, n, sizeof(float))};
  char key[64], item[96];
  double value;
  CKPT_TRY(ckpt_model_number(l->config, rope_key(l, "attention_factor", key), 0, 1e9, 0, &value, err));
  bool is_one = value == 1;
  for (size_t k = 0; k < 2; k++) {
    CKPT_TRY_ALLOC(lists[k], err);
    is_one = is_one && ckpt_config_count(l->config, rope_key(l, names[k], key)) == n;
    for (size_t i = 0; i < n && is_one; i++) {
      (void)snprintf(item, sizeof item, "%s.%zu", key, i);
      CKPT_TRY(ckpt_model_number(l->config, item, FLT_MIN, FLT_MAX, 1, &value, err));
      lists[k][i] = (float)value;
    }
  }
  l->rope.factors = lists[1];
  if (is_one && memcmp(lists[0], lists[1], n * sizeof(float)) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "rope of type 'longrope' cannot be run yet but with attention_factor 1, and %zu factors in "
                   "short_factor that are those of long_factor",
                   n);
}

static ckpt_status check_object(const ckpt_config *config, const char *key, ckpt_error *err) {
  char shown[128];
  if (!ckpt_config_has(config, key) || ckpt_config_kind_of(config, key) == CKPT_CONFIG_OBJECT) return CKPT_OK;
  ckpt_config_show(config, key, shown, sizeof shown);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is %s, which cannot be (an object)", key, shown);
}

static ckpt_status read_rope(llama *l, ckpt_error *err) {
  char key[64];
  const char *type = "default";
  double part = 1;
  CKPT_TRY(check_object(l->config, "rope_parameters", err));
  CKPT_TRY(check_object(l->config, "rope_scaling", err));
  if (ckpt_config_has(l->config, rope_key(l, "full_attention", key)))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s that differ by layer cannot be run yet",
                     ckpt_config_rope(l->config));
  CKPT_TRY(ckpt_model_text(l->config, rope_key(l, "type", key), &type, err)); /* its older name */
  CKPT_TRY(ckpt_model_text(l->config, rope_key(l, "rope_type", key), &type, err));
  if (strcmp(type, "linear") == 0)
    l->rope.kind = CKPT_ROPE_LINEAR;
  else if (strcmp(type, "llama3") == 0)
    l->rope.kind = CKPT_ROPE_LLAMA3;
  else if (strcmp(type, "longrope") == 0)
    l->rope.kind = CKPT_ROPE_LONG;
  else if (strcmp(type, "default") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "rope of type '%.64s' cannot be run yet (default, linear, llama3)", type);
  CKPT_TRY(ckpt_model_number(l->config, "partial_rotary_factor", 0, 1, 1, &part, err));
  CKPT_TRY(ckpt_model_number(l->config, rope_key(l, "partial_rotary_factor", key), 0, 1, part, &part, err));
  if (part != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s %g: part of a head cannot be rotated yet", key, part);
  CKPT_TRY(ckpt_model_number(l->config, "rope_theta", 1, 1e15, 10000, &l->rope.theta, err));
  CKPT_TRY(ckpt_model_number(l->config, rope_key(l, "rope_theta", key), 1, 1e15, l->rope.theta, &l->rope.theta, err));
  if (l->rope.kind == CKPT_ROPE_LONG) return read_longrope(l, err);
  return l->rope.kind == CKPT_ROPE_DEFAULT ? CKPT_OK : read_rope_factors(l, err);
}

static ckpt_status read_heads(llama *l, bool is_mistral, bool is_qwen, ckpt_error *err) {
  const ckpt_config *c = l->config;
  CKPT_TRY(ckpt_model_int(c, "num_attention_heads", 1, MAX_HEADS, -1, &l->n_heads, err));
  int64_t kv_heads = is_mistral ? 8 : is_qwen ? 32 : (int64_t)l->n_heads;
  CKPT_TRY(ckpt_model_int(c, "num_key_value_heads", 1, MAX_HEADS, kv_heads, &l->n_kv_heads, err));
  if (l->n_heads % l->n_kv_heads != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "num_attention_heads %" PRIu64 " is no multiple of num_key_value_heads %" PRIu64, l->n_heads,
                     l->n_kv_heads);
  if (!ckpt_config_has(c, "head_dim") && l->width % l->n_heads != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "hidden_size %" PRIu64 " is no multiple of %" PRIu64 " heads",
                     l->width, l->n_heads);
  CKPT_TRY(ckpt_model_int(c, "head_dim", 1, MAX_WIDTH, (int64_t)(l->width / l->n_heads), &l->head_width, err));
  if (l->head_width % 2 != 0 || l->head_width > CKPT_MAX_HEAD_WIDTH)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "heads of width %" PRIu64 " cannot be run (even, at most %d)",
                     l->head_width, CKPT_MAX_HEAD_WIDTH);
  return CKPT_OK;
}

/* Mistral's window is on every layer; Qwen2's is on those from max_window_layers on, and only where it is used. */
static ckpt_status read_window(llama *l, bool is_mistral, bool is_qwen, ckpt_error *err) {
  bool is_used = is_mistral;
  char shown[32];
  if (is_qwen) {
    CKPT_TRY(ckpt_model_bool(l->config, "use_sliding_window", false, &is_used, err));
    CKPT_TRY(ckpt_model_int(l->config, "max_window_layers", 0, INT64_MAX, 28, &l->first_window_layer, err));
  }
  /* null says that there is none; a config that does not say has the class's 4096 */
  ckpt_config_show(l->config, "sliding_window", shown, sizeof shown);
  if (!is_used || strcmp(shown, "null") == 0) return CKPT_OK;
  return ckpt_model_int(l->config, "sliding_window", 1, INT64_MAX, 4096, &l->window, err);
}

/* Whether a layer has the window; layer_types has the last word. */
static bool has_window(const llama *l, uint64_t layer) {
  char key[64];
  const char *type;
  (void)snprintf(key, sizeof key, "layer_types.%" PRIu64, layer);
  if (l->window != 0 && ckpt_config_text(l->config, key, &type)) return strcmp(type, "sliding_attention") == 0;
  return l->window != 0 && layer >= l->first_window_layer;
}

static ckpt_status read_config(llama *l, ckpt_error *err) {
  const ckpt_config *c = l->config;
  ckpt_model *m = l->model;
  const char *activation = "silu";
  bool is_mistral = strcmp(m->architecture, "MistralForCausalLM") == 0;
  bool is_qwen = strcmp(m->architecture, "Qwen2ForCausalLM") == 0, has_bias = false;
  CKPT_TRY(ckpt_model_int(c, "vocab_size", 1, INT32_MAX, -1, &m->vocabulary, err));
  CKPT_TRY(ckpt_model_int(c, "hidden_size", 1, MAX_WIDTH, -1, &l->width, err));
  CKPT_TRY(ckpt_model_int(c, "intermediate_size", 1, MAX_WIDTH, -1, &l->inner, err));
  CKPT_TRY(ckpt_model_int(c, "num_hidden_layers", 1, MAX_LAYERS, -1, &l->n_layers, err));
  CKPT_TRY(ckpt_model_int(c, "max_position_embeddings", 1, MAX_POSITIONS, 2048, &m->max_positions, err));
  CKPT_TRY(ckpt_model_number(c, "rms_norm_eps", 0, 1, 1e-6, &l->epsilon, err));
  CKPT_TRY(ckpt_model_number(c, "initializer_range", 0, 100, 0.02, &l->std, err));
  CKPT_TRY(ckpt_model_rate(c, "attention_dropout", 0, &l->attention_dropout, err));
  CKPT_TRY(ckpt_model_bool(c, "tie_word_embeddings", false, &l->is_tied, err));
  CKPT_TRY(read_heads(l, is_mistral, is_qwen, err));
  CKPT_TRY(read_window(l, is_mistral, is_qwen, err));
  CKPT_TRY(read_rope(l, err));
  if (!is_mistral && !is_qwen) {
    CKPT_TRY(ckpt_model_bool(c, "attention_bias", false, &has_bias, err));
    CKPT_TRY(ckpt_model_bool(c, "mlp_bias", false, &l->has_mlp_bias, err));
  }
  l->has_qkv_bias = has_bias || is_qwen;
  l->has_o_bias = has_bias;
  CKPT_TRY(ckpt_model_text(c, "hidden_act", &activation, err));
  if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "hidden_act '%.64s' cannot be run yet (silu)", activation);
  m->width = l->width;
  m->n_layers = l->n_layers;
  m->init_std = l->std;
  return CKPT_OK;
}

/* ---- the tape -------------------------------------------------------------------------------------------------------
 */

/* A linear of `module`: its weight [and bias] are added to the table, and it to the tape. */
static ckpt_status linear(llama *l, const char *module, int32_t layer, uint64_t n_out, uint64_t n_in, bool has_bias,
                          uint32_t x, uint32_t *y, ckpt_error *err) {
  char name[96];
  ckpt_tape_entry entry = {.op = CKPT_OP_linear, .n_in = 1, .n_parameters = has_bias ? 2 : 1, .in = {x}};
  (void)snprintf(name, sizeof name, "model.layers.#.%s.weight", module);
  CKPT_TRY(ckpt_model_add(l->model, name, layer, 2, (uint64_t[]){n_out, n_in}, CKPT_INIT_NORMAL, l->std,
                          &entry.parameters[0], err));
  (void)snprintf(name, sizeof name, "model.layers.#.%s.bias", module);
  if (has_bias)
    CKPT_TRY(ckpt_model_add(l->model, name, layer, 1, &n_out, CKPT_INIT_ZEROS, 0, &entry.parameters[1], err));
  CKPT_TRY(ckpt_tape_record(&l->model->tape, &entry, err));
  *y = entry.out[0];
  return CKPT_OK;
}

/* The norm of x + residual (CKPT_NO_VALUE: of x), and that sum. */
static ckpt_status norm(llama *l, uint32_t weight, uint32_t x, uint32_t *residual, uint32_t *y, ckpt_error *err) {
  bool adds = *residual != CKPT_NO_VALUE;
  ckpt_tape_entry entry = {.op = CKPT_OP_rmsnorm,
                           .n_in = adds ? 2 : 1,
                           .n_parameters = 1,
                           .in = {x, *residual},
                           .parameters = {weight},
                           .attributes = {.epsilon = l->epsilon}};
  CKPT_TRY(ckpt_tape_record(&l->model->tape, &entry, err));
  *residual = adds ? entry.out[2] : x;
  *y = entry.out[0];
  return CKPT_OK;
}

static ckpt_status rope(llama *l, uint64_t n_heads, uint32_t *x, ckpt_error *err) {
  ckpt_tape_entry entry = {.op = CKPT_OP_rope,
                           .n_in = 2,
                           .in = {*x, l->table},
                           .attributes = {.n_heads = (uint32_t)n_heads, .head_width = (uint32_t)l->head_width}};
  CKPT_TRY(ckpt_tape_record(&l->model->tape, &entry, err));
  *x = entry.out[0];
  return CKPT_OK;
}

static ckpt_status attention(llama *l, int32_t layer, uint32_t x, uint32_t *y, ckpt_error *err) {
  const uint64_t q_width = l->n_heads * l->head_width, kv_width = l->n_kv_heads * l->head_width;
  const uint32_t *inputs = l->model->tape.inputs;
  uint32_t q, k, v;
  CKPT_TRY(linear(l, "self_attn.q_proj", layer, q_width, l->width, l->has_qkv_bias, x, &q, err));
  CKPT_TRY(linear(l, "self_attn.k_proj", layer, kv_width, l->width, l->has_qkv_bias, x, &k, err));
  CKPT_TRY(linear(l, "self_attn.v_proj", layer, kv_width, l->width, l->has_qkv_bias, x, &v, err));
  CKPT_TRY(rope(l, l->n_heads, &q, err));
  CKPT_TRY(rope(l, l->n_kv_heads, &k, err));
  ckpt_tape_entry entry = {.op = CKPT_OP_attention,
                           .n_in = 5,
                           .in = {q, k, v, inputs[CKPT_INPUT_DOCUMENTS], inputs[CKPT_INPUT_MASK]},
                           .attributes = {.n_heads = (uint32_t)l->n_heads,
                                          .n_kv_heads = (uint32_t)l->n_kv_heads,
                                          .head_width = (uint32_t)l->head_width,
                                          .window = has_window(l, (uint64_t)layer) ? l->window : 0,
                                          .scale = 1 / __builtin_sqrt((double)l->head_width),
                                          .dropout = l->model->tape.needs_backward ? l->attention_dropout : 0}};
  CKPT_TRY(ckpt_tape_record(&l->model->tape, &entry, err));
  return linear(l, "self_attn.o_proj", layer, l->width, q_width, l->has_o_bias, entry.out[0], y, err);
}

static ckpt_status feed_forward(llama *l, int32_t layer, uint32_t x, uint32_t *y, ckpt_error *err) {
  uint32_t gate, up;
  CKPT_TRY(linear(l, "mlp.gate_proj", layer, l->inner, l->width, l->has_mlp_bias, x, &gate, err));
  CKPT_TRY(linear(l, "mlp.up_proj", layer, l->inner, l->width, l->has_mlp_bias, x, &up, err));
  ckpt_tape_entry entry = {.op = CKPT_OP_silu_mul, .n_in = 2, .in = {gate, up}};
  CKPT_TRY(ckpt_tape_record(&l->model->tape, &entry, err));
  return linear(l, "mlp.down_proj", layer, l->width, l->inner, l->has_mlp_bias, entry.out[0], y, err);
}

/* Hidden values come in and go out as a pair: what the last layer added, and the sum of all before it. */
static ckpt_status layer_of(llama *l, int32_t layer, uint32_t *x, uint32_t *residual, ckpt_error *err) {
  ckpt_model *m = l->model;
  uint32_t before, after, y, norms[2];
  m->tape.layer = layer;
  CKPT_TRY(ckpt_model_add(m, "model.layers.#.input_layernorm.weight", layer, 1, &l->width, CKPT_INIT_ONES, 0, &norms[0],
                          err));
  CKPT_TRY(ckpt_model_add(m, "model.layers.#.post_attention_layernorm.weight", layer, 1, &l->width, CKPT_INIT_ONES, 0,
                          &norms[1], err));
  CKPT_TRY(norm(l, norms[0], *x, residual, &before, err));
  CKPT_TRY(attention(l, layer, before, &y, err));
  CKPT_TRY(norm(l, norms[1], y, residual, &after, err));
  return feed_forward(l, layer, after, x, err);
}

/* pad_token_id is padding_idx of torch's Embedding, which counts a negative one from the end. */
static ckpt_status embed(llama *l, uint32_t *x, ckpt_error *err) {
  ckpt_model *m = l->model;
  const int64_t n_rows = (int64_t)m->vocabulary, padding = m->padding_id < 0 ? n_rows + m->padding_id : m->padding_id;
  const bool has_padding = padding >= 0 && padding < n_rows;
  ckpt_tape_entry entry = {.op = CKPT_OP_embedding,
                           .n_in = 2,
                           .n_parameters = 1,
                           .in = {m->tape.inputs[CKPT_INPUT_IDS], m->tape.inputs[CKPT_INPUT_POSITIONS]},
                           .attributes = {.has_padding = has_padding, .padding = has_padding ? (uint32_t)padding : 0}};
  CKPT_TRY(ckpt_model_add(m, "model.embed_tokens.weight", -1, 2, (uint64_t[]){m->vocabulary, l->width},
                          CKPT_INIT_NORMAL, l->std, &entry.parameters[0], err));
  if (has_padding) m->parameters[0].zero_row = padding;
  CKPT_TRY(ckpt_tape_record(&m->tape, &entry, err));
  *x = entry.out[0];
  ckpt_tape_entry table = {.op = CKPT_OP_rope_table,
                           .n_in = 1,
                           .in = {m->tape.inputs[CKPT_INPUT_POSITIONS]},
                           .attributes = {.head_width = (uint32_t)l->head_width, .rope = l->rope}};
  CKPT_TRY(ckpt_tape_record(&m->tape, &table, err));
  l->table = table.out[0];
  return CKPT_OK;
}

static ckpt_status head(llama *l, uint32_t x, uint32_t residual, ckpt_error *err) {
  ckpt_model *m = l->model;
  uint32_t weight, y;
  m->tape.layer = -1;
  CKPT_TRY(ckpt_model_add(m, "model.norm.weight", -1, 1, &l->width, CKPT_INIT_ONES, 0, &weight, err));
  CKPT_TRY(norm(l, weight, x, &residual, &y, err));
  return ckpt_model_head(m, y, l->width, l->std, l->is_tied, err);
}

static ckpt_status build(ckpt_model *model, const ckpt_config *config, ckpt_error *err) {
  llama l = {.model = model, .config = config};
  uint32_t x, residual = CKPT_NO_VALUE;
  CKPT_TRY(read_config(&l, err));
  CKPT_TRY(embed(&l, &x, err));
  for (uint64_t i = 0; i < l.n_layers; i++) CKPT_TRY(layer_of(&l, (int32_t)i, &x, &residual, err));
  return head(&l, x, residual, err);
}

static const char *const classes[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", NULL};
static const char *const classifiers[] = {"LlamaForSequenceClassification", "MistralForSequenceClassification",
                                          "Qwen2ForSequenceClassification", NULL};
static const char *const model_types[] = {"llama", "mistral", "qwen2", NULL};

extern const ckpt_family ckpt_family_llama;
const ckpt_family ckpt_family_llama = {
    .name = "llama", .classes = classes, .classifiers = classifiers, .model_types = model_types, .build = build};
