/* to_gguf.c - llama.cpp's form of a PEFT adapter. See forms.h.
 *
 * Each update is taken as it lies in the base's tensor, rows x rank and rank x columns, so that the family's transforms
 * act on either side of it: rows that move are those of the first factor, a transpose swaps the two. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/plan/derive.h"
#include "libckpt/plan/ops/lora.h"
#include "libckpt/recipe/adapter/changes.h"
#include "libckpt/recipe/adapter/forms.h"

typedef unsigned long long ull;

enum { QUANTIZATION_VERSION = 2 /* GGML_QNT_VERSION */ };

typedef struct maker {
  ckpt_index *into;
  const ckpt_adapters *all;
  const ckpt_arch *arch;
  ckpt_dialect_sizes sizes;
  float alpha;
  uint32_t n_folded;
} maker;

/* Its alpha, if it were the only one: scale times rank. */
static float alpha_of(const ckpt_change *c) { return (float)(c->scale * (double)c->rank); }

/* ---- what llama.cpp has no place for ----------------------------------------------------------------------------- */

static bool is_tied(const ckpt_index *base, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  if (tensor->aliases != NULL && *tensor->aliases != NULL) return true;
  for (size_t i = 0; ckpt_arch_tied_pair(base, i, &kept, &tied); i++)
    if (kept == tensor || tied == tensor) return true;
  return false;
}

static ckpt_status check(const maker *m, const ckpt_change *c, const ckpt_arch_name *row, ckpt_error *err) {
  const struct {
    bool is_there;
    const char *what;
  } lacking[] = {{c->magnitude != NULL, "magnitudes (DoRA)"},
                 {c->bias != NULL, "a bias that is added"},
                 {c->rows != NULL, "rows in place of an embedding's"},
                 {c->whole != NULL, "a whole tensor"}};
  for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
    if (lacking[i].is_there)
      return ckpt_advise(
          ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                    "changes '%s' by %s, for which an adapter of llama.cpp's has no place", c->name, lacking[i].what),
          err, "ckpt merge takes it");
  if (row == NULL || row->gguf == NULL || c->base->rank != 2)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "changes '%s', which has no place in a GGUF model of the "
                     "family %s",
                     c->name, m->arch->name);
  if (strcmp(row->gguf, "position_embd.weight") == 0 || strcmp(row->gguf, "token_types.weight") == 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "changes '%s', to which llama.cpp applies no adapter",
                     c->name);
  if (is_tied(m->all->base, c->base))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "changes '%s', which is the input embedding and the head: llama.cpp cannot apply it to both (ckpt "
                     "merge takes it)",
                     c->name);
  if (c->scale == 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "has lora_alpha 0, which llama.cpp reads as not set");
  return CKPT_OK;
}

/* ---- one scale for all ------------------------------------------------------------------------------------------- */

static int by_value(const void *x, const void *y) {
  const float a = *(const float *)x, b = *(const float *)y;
  return a < b ? -1 : a > b;
}

/* The alpha that most pairs have: their values stay as they are. */
static ckpt_status choose_alpha(maker *m, ckpt_error *err) {
  const ckpt_adapters *all = m->all;
  float *alphas = reallocarray(NULL, (size_t)all->n_changes + 1, sizeof *alphas);
  CKPT_TRY_ALLOC(alphas, err);
  for (uint32_t i = 0; i < all->n_changes; i++) alphas[i] = alpha_of(&all->changes[i]);
  qsort(alphas, all->n_changes, sizeof *alphas, by_value);
  uint32_t n_most = 0;
  for (uint32_t i = 0, first = 0; i < all->n_changes; i++) {
    if (memcmp(&alphas[i], &alphas[first], sizeof *alphas) != 0) first = i;
    if (i - first + 1 > n_most) n_most = i - first + 1, m->alpha = alphas[i];
  }
  free(alphas);
  return CKPT_OK;
}

/* The factor times what the alpha lacks. */
static ckpt_status fold(ckpt_expr **x, maker *m, const ckpt_change *c, ckpt_error *err) {
  const float own = alpha_of(c);
  if (memcmp(&own, &m->alpha, sizeof own) == 0) return CKPT_OK;
  float *by = ckpt_arena_alloc(&m->into->arena, sizeof *by);
  CKPT_TRY_ALLOC(by, err);
  *by = (float)(c->scale * (double)c->rank / (double)m->alpha);
  m->n_folded++;
  ckpt_expr *single;
  CKPT_TRY(ckpt_expr_cast_in(&single, &m->into->arena, *x, CKPT_F32, err));
  return ckpt_expr_apply_in(x, &m->into->arena, &ckpt_op_multiply, CKPT_F32, &single, 1, by, err);
}

/* ---- one tensor of GGUF ------------------------------------------------------------------------------------------ */

/* lora_a and lora_b of one matrix. llama.cpp looks rows of the embedding's lora_a up: it is the transpose there. */
static ckpt_status make_pair(ckpt_expr **a, ckpt_expr **b, maker *m, const ckpt_change *c, const ckpt_arch_name *row,
                             ckpt_error *err) {
  ckpt_arena *arena = &m->into->arena;
  const bool is_embedding = strcmp(row->gguf, "token_embd.weight") == 0;
  ckpt_lora_term term;
  CKPT_TRY(ckpt_change_term(&term, m->all, c, c->expert, arena, err));
  CKPT_TRY(ckpt_dialect_move_rows(&term.output, arena, &m->sizes, row, false, err));
  const bool is_swapped = (row->notes & CKPT_NAME_TRANSPOSE) != 0;
  *a = is_swapped != is_embedding ? term.output : term.input;
  *b = is_swapped != is_embedding ? term.input : term.output;
  if (is_swapped) CKPT_TRY(ckpt_dialect_transpose(a, arena, err));
  if (is_swapped || is_embedding) CKPT_TRY(ckpt_dialect_transpose(b, arena, err));
  return fold(b, m, c, err);
}

static const ckpt_change *change_of(const maker *m, const char *name) {
  const ckpt_tensor *tensor = ckpt_index_find(m->all->base, name);
  uint32_t n = 0;
  const ckpt_change *c = tensor == NULL ? NULL : ckpt_changes_of(m->all, tensor, tensor->name, &n);
  return n == 0 ? NULL : c;
}

/* Those of all experts of a layer. */
static ckpt_status make_stacks(ckpt_expr **a, ckpt_expr **b, maker *m, const ckpt_arch_name *row, uint64_t layer,
                               ckpt_error *err) {
  ckpt_arena *arena = &m->into->arena;
  const uint64_t n = m->sizes.n_experts;
  if (n > m->all->n_changes)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "there are %llu experts, and not all have an update", (ull)n);
  ckpt_expr **inputs = ckpt_arena_array(arena, n, sizeof *inputs),
            **outputs = ckpt_arena_array(arena, n, sizeof *outputs);
  CKPT_TRY_ALLOC(inputs, err);
  CKPT_TRY_ALLOC(outputs, err);
  for (uint64_t i = 0; i < n; i++) {
    const char *name = ckpt_arch_fill(row->hf, (uint64_t[2]){layer, i}, arena);
    CKPT_TRY_ALLOC(name, err);
    const ckpt_change *c = change_of(m, name);
    if (c == NULL)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                       "'%s' has no update, and an adapter of llama.cpp's has those of all %llu experts", name, (ull)n);
    CKPT_TRY(check(m, c, row, err));
    CKPT_TRY(make_pair(&inputs[i], &outputs[i], m, c, row, err));
  }
  CKPT_TRY(ckpt_dialect_stack(a, arena, inputs, n, err));
  return ckpt_dialect_stack(b, arena, outputs, n, err);
}

static ckpt_status add(maker *m, const char *name, const char *suffix, ckpt_expr *x, ckpt_error *err) {
  uint32_t number;
  const char *full = ckpt_arena_printf(&m->into->arena, "%s.%s", name, suffix);
  CKPT_TRY_ALLOC(full, err);
  CKPT_TRY(ckpt_index_add(m->into, full, strlen(full), (ckpt_dtype)x->dtype, x->rank, x->shape, CKPT_ROLE_PARAMETER,
                          NULL, 0, &number, err));
  return ckpt_derive(m->into, number, x, err);
}

static ckpt_status add_change(maker *m, const ckpt_change *c, ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = c->base == NULL ? NULL : ckpt_arch_match(m->arch, c->base->name, numbers);
  ckpt_expr *a, *b;
  CKPT_TRY(check(m, c, row, err));
  const bool is_stacked = ckpt_dialect_is_stacked(row);
  if (is_stacked && numbers[1] != 0) {
    const char *first = ckpt_arch_fill(row->hf, (uint64_t[2]){numbers[0], 0}, &m->into->arena);
    CKPT_TRY_ALLOC(first, err);
    if (change_of(m, first) != NULL) return CKPT_OK; /* comes with the first */
  }
  const char *name = ckpt_arch_fill(row->gguf, numbers, &m->into->arena);
  CKPT_TRY_ALLOC(name, err);
  if (is_stacked)
    CKPT_TRY(make_stacks(&a, &b, m, row, numbers[0], err));
  else
    CKPT_TRY(make_pair(&a, &b, m, c, row, err));
  CKPT_TRY(add(m, name, "lora_a", a, err));
  return add(m, name, "lora_b", b, err);
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* organization/name of the hub, where that is what the base is called. */
static ckpt_status set_base(maker *m, const char *base, ckpt_error *err) {
  ckpt_index *into = m->into;
  const char *slash = base == NULL ? NULL : strchr(base, '/');
  if (slash == NULL || slash == base || slash[1] == '\0' || strchr(slash + 1, '/') != NULL || base[0] == '.')
    return CKPT_OK;
  const char *organization = ckpt_arena_text(&into->arena, base, (size_t)(slash - base));
  const char *url = ckpt_arena_printf(&into->arena, "https://huggingface.co/%s", base);
  CKPT_TRY_ALLOC(organization, err);
  CKPT_TRY_ALLOC(url, err);
  CKPT_TRY(ckpt_gguf_set_scalar(into, "general.base_model.count", CKPT_GGUF_U32, 1, err));
  CKPT_TRY(ckpt_index_set_metadata(into, "general.base_model.0.name", slash + 1, err));
  CKPT_TRY(ckpt_index_set_metadata(into, "general.base_model.0.organization", organization, err));
  return ckpt_index_set_metadata(into, "general.base_model.0.repo_url", url, err);
}

static ckpt_status set_keys(maker *m, const ckpt_index *adapter, ckpt_error *err) {
  ckpt_index *into = m->into;
  const char *title = ckpt_dialect_title(adapter->path, &into->arena), *base = NULL;
  CKPT_TRY_ALLOC(title, err);
  CKPT_TRY(ckpt_index_set_metadata(into, CKPT_GGUF_ARCHITECTURE, m->arch->gguf->architecture, err));
  CKPT_TRY(ckpt_index_set_metadata(into, "general.type", "adapter", err));
  CKPT_TRY(ckpt_index_set_metadata(into, "adapter.type", "lora", err));
  CKPT_TRY(ckpt_index_set_metadata(into, "general.name", title, err));
  (void)ckpt_config_text(m->all->list[0].peft.config, "base_model_name_or_path", &base);
  CKPT_TRY(set_base(m, base, err));
  CKPT_TRY(ckpt_gguf_set_f32(into, CKPT_ADAPTER_ALPHA, (double)m->alpha, err));
  return ckpt_gguf_set_scalar(into, "general.quantization_version", CKPT_GGUF_U32, QUANTIZATION_VERSION, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* A change, and the first of its tensors in the adapter's file. */
typedef struct place {
  const ckpt_tensor *first;
  const ckpt_change *change;
} place;

static int by_first(const void *x, const void *y) {
  const place *a = x, *b = y;
  return a->first < b->first ? -1 : a->first > b->first;
}

/* In the order of the adapter's tensors, as the converter meets them. */
static ckpt_status add_all(maker *m, const ckpt_index *adapter, ckpt_error *err) {
  const ckpt_adapters *all = m->all;
  place *places = ckpt_arena_array(&m->into->arena, (size_t)all->n_changes + 1, sizeof *places);
  CKPT_TRY_ALLOC(places, err);
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    const bool has_both = c->input != NULL && c->output != NULL;
    places[i].change = c;
    places[i].first = has_both && c->input < c->output ? c->input : ckpt_change_tensor(c);
  }
  qsort(places, all->n_changes, sizeof *places, by_first);
  for (uint32_t i = 0; i < all->n_changes; i++)
    CKPT_TRY(ckpt_fail_at(add_change(m, places[i].change, err), err, adapter->path,
                          ckpt_change_tensor(places[i].change)->name));
  return CKPT_OK;
}

static ckpt_status make(maker *m, const ckpt_index *adapter, ckpt_error *err) {
  CKPT_TRY(ckpt_dialect_of_model(&m->arch, &m->sizes, m->all->base, err));
  CKPT_TRY(choose_alpha(m, err));
  CKPT_TRY(add_all(m, adapter, err));
  CKPT_TRY(set_keys(m, adapter, err));
  if (m->n_folded != 0)
    CKPT_TRY(ckpt_index_note(m->into, false, err,
                             "%u lora_b %s multiplied by what one alpha (%g) cannot say of %s scale", m->n_folded,
                             m->n_folded == 1 ? "is" : "are", (double)m->alpha, m->n_folded == 1 ? "its" : "their"));
  return ckpt_index_finish(m->into, err);
}

ckpt_status ckpt_adapter_to_gguf(ckpt_index **out, const ckpt_index *adapter, const ckpt_index *base, ckpt_error *err) {
  const ckpt_adapter_request request = {.path = adapter->path, .scale = 1};
  const ckpt_adapter_options options = {.tied = "untie", /* refused here, in other words */
                                        .allow_noop = true,
                                        .allow_partial = true,
                                        .first = adapter};
  maker m = {.n_folded = 0};
  ckpt_adapters *all;
  CKPT_TRY(ckpt_adapters_open(&all, base, &request, 1, &options, err));
  m.all = all;
  ckpt_status status = ckpt_index_new(&m.into, NULL, adapter->path, "gguf", NULL, err);
  if (status == CKPT_OK) status = make(&m, adapter, err);
  ckpt_adapters_free(all);
  if (status == CKPT_OK)
    *out = m.into;
  else
    ckpt_index_free(m.into);
  return status;
}
