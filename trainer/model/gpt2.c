/* gpt2.c - the tape of GPT2LMHeadModel.
 *
 * Source: its forward in transformers, and what GPT2Config reads. Matrices are Conv1D's: (in, out). c_attn gives q, k
 * and v beside each other in one value. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/model/model.h"

enum { MAX_LAYERS = 4096, MAX_HEADS = 65536 };
#define MAX_WIDTH (UINT64_C(1) << 24)
#define MAX_POSITIONS (UINT64_C(1) << 30)

typedef struct gpt2 {
  ckpt_model *model;
  const ckpt_config *config;
  uint64_t width, inner, n_layers, n_heads;
  double epsilon, std, embedding_dropout, attention_dropout, residual_dropout;
  bool is_tied, is_scaled, is_scaled_by_layer, is_exact;
} gpt2;

/* ---- the config -----------------------------------------------------------------------------------------------------
 */

static ckpt_status read_activation(gpt2 *g, ckpt_error *err) {
  const char *name = "gelu_new";
  CKPT_TRY(ckpt_model_text(g->config, "activation_function", &name, err));
  g->is_exact = strcmp(name, "gelu") == 0;
  if (g->is_exact || strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0 ||
      strcmp(name, "gelu_fast") == 0)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "activation_function '%.64s' cannot be run yet (gelu, gelu_new)",
                   name);
}

static ckpt_status read_config(gpt2 *g, ckpt_error *err) {
  const ckpt_config *c = g->config;
  ckpt_model *m = g->model;
  bool has_cross_attention;
  CKPT_TRY(ckpt_model_int(c, "vocab_size", 1, INT32_MAX, -1, &m->vocabulary, err));
  CKPT_TRY(ckpt_model_int(c, "n_positions", 1, MAX_POSITIONS, 1024, &m->max_positions, err));
  CKPT_TRY(ckpt_model_int(c, "n_embd", 1, MAX_WIDTH, -1, &g->width, err));
  CKPT_TRY(ckpt_model_int(c, "n_inner", 1, MAX_WIDTH, (int64_t)(4 * g->width), &g->inner, err));
  CKPT_TRY(ckpt_model_int(c, "n_layer", 1, MAX_LAYERS, -1, &g->n_layers, err));
  CKPT_TRY(ckpt_model_int(c, "n_head", 1, MAX_HEADS, -1, &g->n_heads, err));
  CKPT_TRY(ckpt_model_number(c, "layer_norm_epsilon", 0, 1, 1e-5, &g->epsilon, err));
  CKPT_TRY(ckpt_model_number(c, "initializer_range", 0, 100, 0.02, &g->std, err));
  CKPT_TRY(ckpt_model_rate(c, "embd_pdrop", 0.1, &g->embedding_dropout, err));
  CKPT_TRY(ckpt_model_rate(c, "attn_pdrop", 0.1, &g->attention_dropout, err));
  CKPT_TRY(ckpt_model_rate(c, "resid_pdrop", 0.1, &g->residual_dropout, err));
  CKPT_TRY(ckpt_model_bool(c, "tie_word_embeddings", true, &g->is_tied, err));
  CKPT_TRY(ckpt_model_bool(c, "scale_attn_weights", true, &g->is_scaled, err));
  CKPT_TRY(ckpt_model_bool(c, "scale_attn_by_inverse_layer_idx", false, &g->is_scaled_by_layer, err));
  CKPT_TRY(ckpt_model_bool(c, "add_cross_attention", false, &has_cross_attention, err));
  if (has_cross_attention) return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "cross attention cannot be run yet");
  if (g->width % g->n_heads != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "n_embd %" PRIu64 " is no multiple of n_head %" PRIu64, g->width,
                     g->n_heads);
  m->width = g->width;
  m->n_layers = g->n_layers;
  m->init_std = g->std;
  m->has_position_table = true;
  return read_activation(g, err);
}

/* ---- the tape -------------------------------------------------------------------------------------------------------
 */

static ckpt_status linear(gpt2 *g, const char *module, int32_t layer, uint64_t n_in, uint64_t n_out, double std,
                          uint32_t x, uint32_t *y, ckpt_error *err) {
  char name[96];
  ckpt_tape_entry entry = {
      .op = CKPT_OP_linear, .n_in = 1, .n_parameters = 2, .in = {x}, .attributes = {.is_in_by_out = true}};
  (void)snprintf(name, sizeof name, "transformer.h.#.%s.weight", module);
  CKPT_TRY(ckpt_model_add(g->model, name, layer, 2, (uint64_t[]){n_in, n_out}, CKPT_INIT_NORMAL, std,
                          &entry.parameters[0], err));
  (void)snprintf(name, sizeof name, "transformer.h.#.%s.bias", module);
  CKPT_TRY(ckpt_model_add(g->model, name, layer, 1, &n_out, CKPT_INIT_ZEROS, 0, &entry.parameters[1], err));
  CKPT_TRY(ckpt_tape_record(&g->model->tape, &entry, err));
  *y = entry.out[0];
  return CKPT_OK;
}

static ckpt_status norm(gpt2 *g, const char *module, int32_t layer, uint32_t x, uint32_t *residual, uint32_t *y,
                        ckpt_error *err) {
  char name[96];
  bool adds = *residual != CKPT_NO_VALUE;
  ckpt_tape_entry entry = {.op = CKPT_OP_layernorm,
                           .n_in = adds ? 2 : 1,
                           .n_parameters = 2,
                           .in = {x, *residual},
                           .attributes = {.epsilon = g->epsilon}};
  (void)snprintf(name, sizeof name, "transformer.%s.weight", module);
  CKPT_TRY(ckpt_model_add(g->model, name, layer, 1, &g->width, CKPT_INIT_ONES, 0, &entry.parameters[0], err));
  (void)snprintf(name, sizeof name, "transformer.%s.bias", module);
  CKPT_TRY(ckpt_model_add(g->model, name, layer, 1, &g->width, CKPT_INIT_ZEROS, 0, &entry.parameters[1], err));
  CKPT_TRY(ckpt_tape_record(&g->model->tape, &entry, err));
  *residual = adds ? entry.out[2] : x;
  *y = entry.out[0];
  return CKPT_OK;
}

static ckpt_status attention(gpt2 *g, int32_t layer, uint32_t x, uint32_t *y, ckpt_error *err) {
  const ckpt_model *m = g->model;
  const uint32_t *inputs = m->tape.inputs, width = (uint32_t)g->width;
  const uint64_t head_width = g->width / g->n_heads;
  double scale = g->is_scaled ? 1 / __builtin_sqrt((double)head_width) : 1;
  uint32_t qkv;
  if (g->is_scaled_by_layer) scale /= layer + 1;
  CKPT_TRY(linear(g, "attn.c_attn", layer, g->width, 3 * g->width, g->std, x, &qkv, err));
  ckpt_tape_entry entry = {.op = CKPT_OP_attention,
                           .n_in = 5,
                           .in = {qkv, qkv, qkv, inputs[CKPT_INPUT_DOCUMENTS], inputs[CKPT_INPUT_MASK]},
                           .attributes = {.n_heads = (uint32_t)g->n_heads,
                                          .n_kv_heads = (uint32_t)g->n_heads,
                                          .head_width = (uint32_t)head_width,
                                          .scale = scale,
                                          .dropout = m->tape.needs_backward ? g->attention_dropout : 0,
                                          .columns = {0, width, 2 * width}}};
  CKPT_TRY(ckpt_tape_record(&g->model->tape, &entry, err));
  CKPT_TRY(linear(g, "attn.c_proj", layer, g->width, g->width, g->std / __builtin_sqrt(2.0 * (double)g->n_layers),
                  entry.out[0], y, err));
  return ckpt_model_dropout(g->model, g->residual_dropout, y, err);
}

static ckpt_status feed_forward(gpt2 *g, int32_t layer, uint32_t x, uint32_t *y, ckpt_error *err) {
  uint32_t inner;
  CKPT_TRY(linear(g, "mlp.c_fc", layer, g->width, g->inner, g->std, x, &inner, err));
  ckpt_tape_entry entry = {.op = CKPT_OP_gelu, .n_in = 1, .in = {inner}, .attributes = {.is_exact = g->is_exact}};
  CKPT_TRY(ckpt_tape_record(&g->model->tape, &entry, err));
  CKPT_TRY(linear(g, "mlp.c_proj", layer, g->inner, g->width, g->std / __builtin_sqrt(2.0 * (double)g->n_layers),
                  entry.out[0], y, err));
  return ckpt_model_dropout(g->model, g->residual_dropout, y, err);
}

static ckpt_status layer_of(gpt2 *g, int32_t layer, uint32_t *x, uint32_t *residual, ckpt_error *err) {
  uint32_t before, after, y;
  g->model->tape.layer = layer;
  CKPT_TRY(norm(g, "h.#.ln_1", layer, *x, residual, &before, err));
  CKPT_TRY(attention(g, layer, before, &y, err));
  CKPT_TRY(norm(g, "h.#.ln_2", layer, y, residual, &after, err));
  return feed_forward(g, layer, after, x, err);
}

static ckpt_status embed(gpt2 *g, uint32_t *x, ckpt_error *err) {
  ckpt_model *m = g->model;
  ckpt_tape_entry entry = {.op = CKPT_OP_embedding,
                           .n_in = 2,
                           .n_parameters = 2,
                           .in = {m->tape.inputs[CKPT_INPUT_IDS], m->tape.inputs[CKPT_INPUT_POSITIONS]}};
  CKPT_TRY(ckpt_model_add(m, "transformer.wte.weight", -1, 2, (uint64_t[]){m->vocabulary, g->width}, CKPT_INIT_NORMAL,
                          g->std, &entry.parameters[0], err));
  CKPT_TRY(ckpt_model_add(m, "transformer.wpe.weight", -1, 2, (uint64_t[]){m->max_positions, g->width},
                          CKPT_INIT_NORMAL, g->std, &entry.parameters[1], err));
  CKPT_TRY(ckpt_tape_record(&m->tape, &entry, err));
  *x = entry.out[0];
  return ckpt_model_dropout(m, g->embedding_dropout, x, err);
}

static ckpt_status head(gpt2 *g, uint32_t x, uint32_t residual, ckpt_error *err) {
  ckpt_model *m = g->model;
  uint32_t y;
  m->tape.layer = -1;
  CKPT_TRY(norm(g, "ln_f", -1, x, &residual, &y, err));
  return ckpt_model_head(m, y, g->width, g->std, g->is_tied, err);
}

static ckpt_status build(ckpt_model *model, const ckpt_config *config, ckpt_error *err) {
  gpt2 g = {.model = model, .config = config};
  uint32_t x, residual = CKPT_NO_VALUE;
  CKPT_TRY(read_config(&g, err));
  CKPT_TRY(embed(&g, &x, err));
  for (uint64_t i = 0; i < g.n_layers; i++) CKPT_TRY(layer_of(&g, (int32_t)i, &x, &residual, err));
  return head(&g, x, residual, err);
}

static const char *const classes[] = {"GPT2LMHeadModel", NULL};
static const char *const classifiers[] = {"GPT2ForSequenceClassification", NULL};
static const char *const model_types[] = {"gpt2", NULL};

extern const ckpt_family ckpt_family_gpt2;
const ckpt_family ckpt_family_gpt2 = {
    .name = "gpt2", .classes = classes, .classifiers = classifiers, .model_types = model_types, .build = build};
