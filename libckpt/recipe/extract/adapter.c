/* adapter.c - what was extracted as an adapter of PEFT's. See extract.h. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"
#include "libckpt/io/descriptors.h"
#include "libckpt/plan/derive.h"
#include "libckpt/recipe/adapter/adapter.h"
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
  size_t n_modules, n_with_factors;
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

static int by_module(const void *x, const void *y) {
  return strcmp((*(const ckpt_extract_item *const *)x)->module, (*(const ckpt_extract_item *const *)y)->module);
}

static bool has_factors(const maker *m, const ckpt_extract_item *item) {
  return bsearch(&item, m->with_factors, m->n_with_factors, sizeof item, by_module) != NULL;
}

/* A tensor as it is. PEFT has the bias of a layer with factors in its base_layer. */
static ckpt_status add_whole(maker *m, const ckpt_extract_whole *whole, ckpt_error *err) {
  const char *leaf = strrchr(whole->name, '.');
  const int n_module = (int)(leaf - whole->name);
  const bool is_below = whole->bias != NULL && has_factors(m, whole->bias);
  const char *full =
      ckpt_arena_printf(&m->into->arena, PREFIX "%.*s%s%s", n_module, whole->name, is_below ? ".base_layer" : "", leaf);
  uint32_t number;
  ckpt_expr *expr;
  CKPT_TRY_ALLOC(full, err);
  m->has_biases = m->has_biases || whole->bias != NULL;
  CKPT_TRY(ckpt_expr_read_in(&expr, &m->into->arena, whole->index, whole->tensor, err));
  CKPT_TRY(ckpt_index_add(m->into, full, strlen(full), (ckpt_dtype)expr->dtype, expr->rank, expr->shape,
                          CKPT_ROLE_PARAMETER, NULL, 0, &number, err));
  return ckpt_derive(m->into, number, expr, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* PEFT's task of a model that generates text; NULL: another one. */
static ckpt_status find_task(const char **task, const ckpt_index *base, ckpt_error *err) {
  const char *class;
  ckpt_config *config;
  *task = NULL;
  CKPT_TRY(ckpt_config_of(&config, base, err));
  if (config != NULL && ckpt_config_item(config, "architectures", 0, &class) &&
      (ckpt_text_ends(class, "ForCausalLM") || ckpt_text_ends(class, "LMHeadModel")))
    *task = "CAUSAL_LM";
  ckpt_config_free(config);
  return CKPT_OK;
}

static ckpt_status add_config(maker *m, ckpt_error *err) {
  const char *text, *task, *base_name = m->x->options.base_name;
  CKPT_TRY(find_task(&task, m->x->base, err));
  const ckpt_adapter_settings settings = {.base_path = base_name != NULL ? base_name : m->x->base->path,
                                          .task = task,
                                          .modules = m->modules,
                                          .n_modules = m->n_modules,
                                          .saved = m->x->saved,
                                          .n_saved = m->x->n_saved,
                                          .rank = m->x->expert_rank,
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
  m->modules = ckpt_arena_array(&m->into->arena, x->n + 1, sizeof *m->modules);
  CKPT_TRY_ALLOC(m->modules, err);
  CKPT_TRY(list_with_factors(m, err));
  for (size_t i = 0; i < x->n; i++)
    if (x->items[i].rank != 0) CKPT_TRY(add_factors(m, &x->items[i], err));
  for (size_t i = 0; i < x->n_wholes; i++) CKPT_TRY(add_whole(m, &x->wholes[i], err));
  CKPT_TRY(add_config(m, err));
  return ckpt_index_finish(m->into, err);
}

/* ---- what it is worth -------------------------------------------------------------------------------------------- */

/* The first problem that `verify` finds in the adapter; false: none. */
static ckpt_status check_alone(const ckpt_index *adapter, ckpt_error *err) {
  ckpt_findings findings = {0};
  ckpt_status status = ckpt_adapter_verify(&findings, adapter, err);
  for (size_t i = 0; status == CKPT_OK && i < findings.n; i++)
    if (findings.items[i].kind == CKPT_PROBLEM || findings.items[i].kind == CKPT_UNPROVEN)
      status = ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s", findings.items[i].message);
  ckpt_findings_free(&findings);
  return status;
}

/* Merges it, up to the values. */
static ckpt_status check_merge(const ckpt_extraction *x, const ckpt_index *adapter, ckpt_error *err) {
  const ckpt_adapter_request request = {.path = x->tuned->path, .scale = 1};
  const ckpt_adapter_options options = {.tied = "untie", .allow_noop = true, .first = adapter};
  ckpt_adapters *adapters = NULL;
  ckpt_index *merged = NULL;
  ckpt_status status = ckpt_adapters_open(&adapters, x->base, &request, 1, &options, err);
  if (status == CKPT_OK) status = ckpt_adapters_merge(&merged, adapters, err);
  ckpt_index_free(merged);
  ckpt_adapters_free(adapters);
  return status;
}

/* No adapter is written that a merge would refuse. */
static ckpt_status check(const ckpt_extraction *x, const ckpt_index *adapter, ckpt_error *err) {
  ckpt_error defect = {0};
  ckpt_status status = check_alone(adapter, &defect);
  if (status == CKPT_OK) status = check_merge(x, adapter, &defect);
  if (status == CKPT_OK || status == CKPT_ENOMEM || status == CKPT_EIO || status == CKPT_ECANCELED)
    return status == CKPT_OK ? status : ckpt_fail_as(err, status, defect.file, defect.tensor, &defect);
  return ckpt_fail(err, CKPT_EUNSUPPORTED, x->tuned->path, defect.tensor[0] == '\0' ? NULL : defect.tensor,
                   "no adapter of PEFT's has this difference: %s", defect.message);
}

ckpt_status ckpt_extract_adapter(ckpt_index **out, const ckpt_extraction *extraction, ckpt_error *err) {
  maker m = {.x = extraction};
  ckpt_source *source;
  CKPT_TRY(open_source(&source, extraction, &m.file, err));
  CKPT_TRY(ckpt_index_new(&m.into, source, extraction->tuned->path, "hf", NULL, err));
  ckpt_status status = make(&m, err);
  if (status == CKPT_OK) status = check(extraction, m.into, err);
  if (status == CKPT_OK)
    *out = m.into;
  else
    ckpt_index_free(m.into);
  return status;
}
