/* restore.c - GGUF's dialect of a model that was read from GGUF and changed since: see dialect.h. What was not changed
 * is what the file has; the rest is put back as to_gguf.c makes it. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/plan/derive.h"

typedef struct restorer {
  ckpt_index *into;
  const ckpt_index *changed, *stored;
  const ckpt_arch *arch;
  ckpt_dialect_sizes sizes;
} restorer;

static ckpt_status add(restorer *r, const char *name, ckpt_expr *expr, ckpt_error *err) {
  uint32_t number;
  CKPT_TRY(ckpt_index_add(r->into, name, strlen(name), (ckpt_dtype)expr->dtype, expr->rank, expr->shape,
                          CKPT_ROLE_PARAMETER, NULL, 0, &number, err));
  return ckpt_derive(r->into, number, expr, err);
}

/* A tensor of the changed model, of a stack all of them, under GGUF's name. */
static ckpt_status put_back(restorer *r, const ckpt_arch_name *row, uint64_t layer, const char *name, ckpt_error *err) {
  ckpt_arena *arena = &r->into->arena;
  const bool is_stacked = ckpt_dialect_is_stacked(row);
  const uint64_t n = is_stacked ? r->sizes.n_experts : 1;
  ckpt_expr **parts = ckpt_arena_array(arena, n, sizeof *parts), *x;
  CKPT_TRY_ALLOC(parts, err);
  for (uint64_t i = 0; i < n; i++) {
    const char *hf = ckpt_arch_fill(row->hf, (uint64_t[2]){layer, i}, arena);
    CKPT_TRY_ALLOC(hf, err);
    const ckpt_tensor *tensor = ckpt_index_find(r->changed, hf);
    if (tensor == NULL) return ckpt_fail(err, CKPT_EINTERNAL, r->changed->path, hf, "is gone");
    CKPT_TRY(ckpt_expr_read_in(&parts[i], arena, r->changed, tensor, err));
  }
  x = parts[0];
  if (is_stacked) CKPT_TRY(ckpt_dialect_stack(&x, arena, parts, n, err));
  CKPT_TRY(ckpt_dialect_apply(&x, arena, &r->sizes, row, name, err));
  return add(r, name, x, err);
}

/* Whether a tensor that GGUF's one is made of is another. */
static bool is_any_changed(restorer *r, const ckpt_arch_name *row, uint64_t layer, ckpt_dialect_changed *is_changed,
                           const void *arg) {
  const uint64_t n = ckpt_dialect_is_stacked(row) ? r->sizes.n_experts : 1;
  for (uint64_t i = 0; i < n; i++) {
    const char *hf = ckpt_arch_fill(row->hf, (uint64_t[2]){layer, i}, &r->into->arena);
    if (hf != NULL && ckpt_index_find(r->changed, hf) != NULL && is_changed(arg, hf)) return true;
  }
  return false;
}

static ckpt_status add_stored(restorer *r, const ckpt_tensor *stored, ckpt_dialect_changed *is_changed, const void *arg,
                              ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = ckpt_arch_match_gguf(r->arch, stored->name, numbers);
  ckpt_expr *x;
  if (row != NULL && is_any_changed(r, row, numbers[0], is_changed, arg))
    return put_back(r, row, numbers[0], stored->name, err);
  CKPT_TRY(ckpt_expr_read_in(&x, &r->into->arena, r->stored, stored, err));
  return add(r, stored->name, x, err);
}

/* What the file has no tensor for: a head that was the embedding. */
static ckpt_status add_new(restorer *r, const ckpt_tensor *tensor, ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = ckpt_arch_match(r->arch, tensor->name, numbers);
  const char *name = row == NULL || row->gguf == NULL ? NULL : ckpt_arch_fill(row->gguf, numbers, &r->into->arena);
  if (name == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->changed->path, tensor->name,
                     "has no place in a GGUF model of the family %s", r->arch->name);
  return ckpt_index_find(r->stored, name) != NULL ? CKPT_OK : put_back(r, row, numbers[0], name, err);
}

static ckpt_status add_all(restorer *r, ckpt_dialect_changed *is_changed, const void *arg, ckpt_error *err) {
  for (uint32_t i = 0; i < r->stored->n_tensors; i++)
    CKPT_TRY(ckpt_fail_at(add_stored(r, &r->stored->tensors[i], is_changed, arg, err), err, r->stored->path,
                          r->stored->tensors[i].name));
  for (uint32_t i = 0; i < r->changed->n_tensors; i++) CKPT_TRY(add_new(r, &r->changed->tensors[i], err));
  return ckpt_index_finish(r->into, err);
}

ckpt_status ckpt_dialect_restore(ckpt_index *changed, const ckpt_index *from, ckpt_dialect_changed *is_changed,
                                 const void *arg, ckpt_error *err) {
  const ckpt_index *stored = from->stored_form;
  restorer r = {.changed = changed, .stored = stored};
  if (stored == NULL) return CKPT_OK;
  if (!ckpt_dialect_gguf_sizes(&r.arch, &r.sizes, stored))
    return ckpt_fail(err, CKPT_EINTERNAL, from->path, NULL, "a dialect of no family");
  CKPT_TRY(ckpt_index_new(&r.into, NULL, from->path, from->format, NULL, err));
  changed->stored_form = r.into; /* and released with it */
  r.into->metadata = changed->metadata;
  r.into->n_metadata = changed->n_metadata;
  r.into->has_metadata = changed->has_metadata;
  r.into->version = stored->version;
  r.into->stated_architecture = stored->stated_architecture;
  r.into->is_stored = true;
  return add_all(&r, is_changed, arg, err);
}
