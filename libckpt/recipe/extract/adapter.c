/* adapter.c - what was extracted as an adapter of PEFT's. See extract.h. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"
#include "libckpt/io/descriptors.h"
#include "libckpt/plan/derive.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/extract/items.h"

#define PREFIX "base_model.model."

/* ---- the file of the factors ------------------------------------------------------------------------------------- */

static ckpt_status read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const ckpt_extraction *x = ctx;
  (void)file;
  return ckpt_read_exactly(x->file, x->folder, offset, dst, n_bytes, err);
}

static void keep_open(void *ctx) { (void)ctx; } /* the extraction closes it */

static ckpt_status open_source(ckpt_source **out, const ckpt_extraction *x, uint32_t *file, ckpt_error *err) {
  static const ckpt_source_ops ops = {.read_at = read_at, .close = keep_open};
  CKPT_TRY(ckpt_source_custom(out, &ops, (void *)(uintptr_t)x, err));
  ckpt_status status = ckpt_source_declare(*out, "factors", x->n_file, file, err);
  if (status != CKPT_OK) ckpt_source_free(*out);
  return status;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

typedef struct maker {
  ckpt_index *into;
  const ckpt_extraction *x;
  ckpt_adapter_module *modules;
  const ckpt_extract_item **with_factors; /* sorted by module */
  const char **saved;
  size_t n_modules, n_with_factors, n_saved;
  uint32_t file;
  bool has_biases, is_transposed;
} maker;

static ckpt_status add_factor(maker *m, const ckpt_extract_item *item, const char *part, uint64_t offset,
                              uint64_t n_rows, uint64_t n_columns, ckpt_error *err) {
  const uint64_t shape[2] = {n_rows, n_columns};
  const ckpt_extent extent = {
      .file = m->file, .offset = offset, .n_stored = 4 * n_rows * n_columns, .count = n_rows * n_columns};
  const char *name = ckpt_arena_printf(&m->into->arena, PREFIX "%s.%s", item->module, part);
  CKPT_TRY_ALLOC(name, err);
  return ckpt_index_add(m->into, name, strlen(name), CKPT_F32, 2, shape, CKPT_ROLE_PARAMETER, &extent, 1, NULL, err);
}

static ckpt_status add_factors(maker *m, const ckpt_extract_item *item, ckpt_error *err) {
  const uint64_t *shape = item->base->shape;
  const uint64_t n_in = shape[!item->is_transposed], n_out = shape[item->is_transposed];
  m->modules[m->n_modules++] = (ckpt_adapter_module){.path = item->module, .rank = item->rank};
  m->is_transposed = m->is_transposed || item->is_transposed;
  CKPT_TRY(add_factor(m, item, "lora_A.weight", item->offset, item->rank, n_in, err));
  return add_factor(m, item, "lora_B.weight", item->offset + 4 * item->rank * n_in, n_out, item->rank, err);
}

static ckpt_status add_whole(maker *m, const ckpt_extract_item *item, const char *name, const char *below,
                             ckpt_error *err) {
  const char *leaf = strrchr(name, '.');
  const size_t n_module = leaf == NULL ? strlen(name) : (size_t)(leaf - name);
  const char *full =
      ckpt_arena_printf(&m->into->arena, PREFIX "%.*s%s%s", (int)n_module, name, below, leaf == NULL ? "" : leaf);
  uint32_t number;
  ckpt_expr *expr;
  CKPT_TRY_ALLOC(full, err);
  CKPT_TRY(ckpt_expr_read_in(&expr, &m->into->arena, m->x->tuned, item->tuned, err));
  CKPT_TRY(ckpt_index_add(m->into, full, strlen(full), (ckpt_dtype)expr->dtype, expr->rank, expr->shape,
                          CKPT_ROLE_PARAMETER, NULL, 0, &number, err));
  return ckpt_derive(m->into, number, expr, err);
}

/* A module that is saved whole; add_config drops those that are there twice. */
static ckpt_status save_module(maker *m, const char *name, ckpt_error *err) {
  const char *leaf = strrchr(name, '.');
  char *module = ckpt_arena_text(&m->into->arena, name, leaf == NULL ? strlen(name) : (size_t)(leaf - name));
  CKPT_TRY_ALLOC(module, err);
  m->saved[m->n_saved++] = module;
  return CKPT_OK;
}

static int by_module(const void *x, const void *y) {
  return strcmp((*(const ckpt_extract_item *const *)x)->module, (*(const ckpt_extract_item *const *)y)->module);
}

static bool has_factors(const maker *m, const ckpt_extract_item *item) {
  return bsearch(&item, m->with_factors, m->n_with_factors, sizeof item, by_module) != NULL;
}

/* A tensor that differs and has no factors, under each of its names: weights that are tied stay so. */
static ckpt_status add_other(maker *m, const ckpt_extract_item *item, ckpt_error *err) {
  const char *const *alias = item->aliases;
  if (item->is_of_linear) {
    m->has_biases = true;
    return add_whole(m, item, item->name, has_factors(m, item) ? ".base_layer" : "", err);
  }
  CKPT_TRY(save_module(m, item->name, err));
  CKPT_TRY(add_whole(m, item, item->name, "", err));
  for (; alias != NULL && *alias != NULL; alias++) {
    CKPT_TRY(save_module(m, *alias, err));
    CKPT_TRY(add_whole(m, item, *alias, "", err));
  }
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int by_text(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }

/* Sorts the modules that are saved whole, and keeps each once. */
static void settle_saved(maker *m) {
  size_t n = 0;
  qsort(m->saved, m->n_saved, sizeof *m->saved, by_text);
  for (size_t i = 0; i < m->n_saved; i++)
    if (n == 0 || strcmp(m->saved[i], m->saved[n - 1]) != 0) m->saved[n++] = m->saved[i];
  m->n_saved = n;
}

/* PEFT's task of a model that generates text. */
static const char *task_of(const ckpt_index *base) {
  const ckpt_side_file *side = ckpt_index_side_file(base, "config.json");
  const char *class, *task = NULL;
  ckpt_config *config;
  if (side == NULL || side->text == NULL ||
      ckpt_config_parse(&config, side->text, side->n_bytes, NULL, NULL) != CKPT_OK)
    return NULL;
  if (ckpt_config_item(config, "architectures", 0, &class) &&
      (ckpt_text_ends(class, "ForCausalLM") || ckpt_text_ends(class, "LMHeadModel")))
    task = "CAUSAL_LM";
  ckpt_config_free(config);
  return task;
}

static ckpt_status add_config(maker *m, ckpt_error *err) {
  const char *text, *base_name = m->x->options.base_name;
  settle_saved(m);
  const ckpt_adapter_settings settings = {.base_path = base_name != NULL ? base_name : m->x->base->path,
                                          .task = task_of(m->x->base),
                                          .modules = m->modules,
                                          .n_modules = m->n_modules,
                                          .saved = m->saved,
                                          .n_saved = m->n_saved,
                                          .is_transposed = m->is_transposed,
                                          .has_biases = m->has_biases};
  CKPT_TRY(ckpt_adapter_print_config(&text, &settings, m->x->base, &m->into->arena, err));
  CKPT_TRY(ckpt_index_add_side_file(m->into, "adapter_config.json", 0, strlen(text), err));
  m->into->side_files[0].text = text;
  return CKPT_OK;
}

static ckpt_status list_with_factors(maker *m, ckpt_error *err) {
  m->with_factors = ckpt_arena_array(&m->into->arena, m->x->n + 1, sizeof *m->with_factors);
  CKPT_TRY_ALLOC(m->with_factors, err);
  for (size_t i = 0; i < m->x->n; i++)
    if (m->x->items[i].rank != 0) m->with_factors[m->n_with_factors++] = &m->x->items[i];
  qsort(m->with_factors, m->n_with_factors, sizeof *m->with_factors, by_module);
  return CKPT_OK;
}

static ckpt_status make(maker *m, ckpt_error *err) {
  const ckpt_extraction *x = m->x;
  size_t n_names = 0;
  for (size_t i = 0; i < x->n; i++)
    for (const char *const *alias = x->items[i].aliases; alias != NULL && *alias != NULL; alias++) n_names++;
  m->modules = ckpt_arena_array(&m->into->arena, x->n + 1, sizeof *m->modules);
  m->saved = ckpt_arena_array(&m->into->arena, x->n + n_names + 1, sizeof *m->saved);
  CKPT_TRY_ALLOC(m->modules, err);
  CKPT_TRY_ALLOC(m->saved, err);
  CKPT_TRY(list_with_factors(m, err));
  for (size_t i = 0; i < x->n; i++) {
    const ckpt_extract_item *item = &x->items[i];
    if (item->rank != 0)
      CKPT_TRY(add_factors(m, item, err));
    else if (item->differs)
      CKPT_TRY(add_other(m, item, err));
  }
  CKPT_TRY(add_config(m, err));
  return ckpt_index_finish(m->into, err);
}

ckpt_status ckpt_extract_adapter(ckpt_index **out, const ckpt_extraction *extraction, ckpt_error *err) {
  maker m = {.x = extraction};
  ckpt_source *source;
  CKPT_TRY(open_source(&source, extraction, &m.file, err));
  CKPT_TRY(ckpt_index_new(&m.into, source, extraction->tuned->path, "hf", NULL, err));
  ckpt_status status = make(&m, err);
  if (status == CKPT_OK)
    *out = m.into;
  else
    ckpt_index_free(m.into);
  return status;
}
