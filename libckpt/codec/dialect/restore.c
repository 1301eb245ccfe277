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
  uint32_t n_heads, n_kv_heads;
} restorer;

static ckpt_status add(restorer *r, const char *name, ckpt_expr *expr, ckpt_error *err) {
  uint32_t number;
  CKPT_TRY(ckpt_index_add(r->into, name, strlen(name), (ckpt_dtype)expr->dtype, expr->rank, expr->shape,
                          CKPT_ROLE_PARAMETER, NULL, 0, &number, err));
  return ckpt_derive(r->into, number, expr, err);
}

/* A tensor of the changed model under GGUF's name. */
static ckpt_status put_back(restorer *r, const ckpt_tensor *tensor, const ckpt_arch_name *row, const char *name,
                            ckpt_error *err) {
  ckpt_expr *x;
  CKPT_TRY(ckpt_expr_read_in(&x, &r->into->arena, r->changed, tensor, err));
  CKPT_TRY(ckpt_dialect_apply(&x, &r->into->arena, row, name, r->n_heads, r->n_kv_heads, err));
  return add(r, name, x, err);
}

static ckpt_status add_stored(restorer *r, const ckpt_tensor *stored, ckpt_dialect_changed *is_changed, const void *arg,
                              ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = ckpt_arch_match_gguf(r->arch, stored->name, numbers);
  const char *name = row == NULL ? NULL : ckpt_arch_fill(row->hf, numbers, &r->into->arena);
  const ckpt_tensor *tensor = name == NULL ? NULL : ckpt_index_find(r->changed, name);
  ckpt_expr *x;
  if (tensor != NULL && is_changed(arg, name)) return put_back(r, tensor, row, stored->name, err);
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
  return ckpt_index_find(r->stored, name) != NULL ? CKPT_OK : put_back(r, tensor, row, name, err);
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
  r.arch = ckpt_dialect_of_gguf(stored);
  if (r.arch == NULL || !ckpt_dialect_gguf_u32(stored, r.arch, "attention.head_count", &r.n_heads))
    return ckpt_fail(err, CKPT_EINTERNAL, from->path, NULL, "a dialect of no family");
  r.n_kv_heads = r.n_heads;
  (void)ckpt_dialect_gguf_u32(stored, r.arch, "attention.head_count_kv", &r.n_kv_heads);
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
