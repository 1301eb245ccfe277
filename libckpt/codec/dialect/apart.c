/* apart.c - a model under the names of its files where a state dict joins what these have apart: see dialect.h.
 *
 * Releases of transformers join matrices in memory (ckpt_arch_joined), which save_pretrained takes apart again; a run
 * that saves its state dict keeps them joined. */
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/plan/derive.h"

enum { MAX_EXPERTS = 1 << 16 };

typedef struct taker {
  ckpt_index *into;
  const ckpt_index *from;
  const ckpt_arch *arch;
} taker;

static bool is_stacked(const ckpt_arch_joined *row) {
  const char *layer = strchr(row->parts[0], '#');
  return layer != NULL && strchr(layer + 1, '#') != NULL;
}

static uint32_t n_parts(const ckpt_arch_joined *row) {
  uint32_t n = 0;
  while (n < 3 && row->parts[n] != NULL) n++;
  return n;
}

/* Whether it is the copy of a tensor to which the config ties it: that one counts for both, whatever this is called. */
static bool is_tied_copy(const taker *t, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(t->from, i, &kept, &tied); i++)
    if (tied == tensor) return true;
  return false;
}

/* The row of a tensor that joins others; NULL: it joins none. */
static const ckpt_arch_joined *row_of(const taker *t, const ckpt_tensor *tensor, uint64_t numbers[2]) {
  const ckpt_arch_joined *row =
      tensor->role == CKPT_ROLE_PARAMETER ? ckpt_arch_match_joined(t->arch, tensor->name, numbers) : NULL;
  return row == NULL || is_tied_copy(t, tensor) ? NULL : row;
}

/* Whether it can be cut into them. */
static bool comes_apart(const ckpt_arch_joined *row, const ckpt_tensor *tensor) {
  const bool stacked = is_stacked(row);
  if (!ckpt_dtype_is_float((ckpt_dtype)tensor->dtype) || tensor->aliases != NULL) return false;
  if (!stacked && row->parts[1] == NULL) return true;
  return tensor->rank == (stacked ? 3 : 2) && tensor->shape[stacked] % n_parts(row) == 0 &&
         (!stacked || (tensor->shape[0] != 0 && tensor->shape[0] <= MAX_EXPERTS));
}

/* A tensor that is x of the stored one, and lies where that does. */
static ckpt_status add(const taker *t, const char *name, const ckpt_expr *x, const ckpt_tensor *stored,
                       ckpt_error *err) {
  ckpt_index *into = t->into;
  uint32_t number;
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_index_add(into, name, strlen(name), (ckpt_dtype)x->dtype, x->rank, x->shape, (ckpt_role)stored->role,
                          NULL, 0, &number, err));
  ckpt_tensor *tensor = &into->tensors[number];
  tensor->extents = stored->extents;
  tensor->n_extents = stored->n_extents;
  tensor->details->extent_form = stored->details->extent_form;
  into->n_extents += stored->n_extents;
  for (const char *const *alias = stored->aliases; alias != NULL && *alias != NULL; alias++)
    CKPT_TRY(ckpt_index_alias(into, number, *alias, err));
  into->tensors[number].details->n_extra_names = stored->details->n_extra_names;
  return ckpt_derive(into, number, x, err);
}

/* Part i of those that a tensor joins, of one expert where it has all of them. */
static ckpt_status add_part(const taker *t, const ckpt_arch_joined *row, const ckpt_tensor *joined,
                            const uint64_t numbers[2], uint32_t i, ckpt_error *err) {
  ckpt_arena *arena = &t->into->arena;
  const bool stacked = is_stacked(row);
  ckpt_expr *x;
  CKPT_TRY(ckpt_expr_read_in(&x, arena, t->from, joined, err));
  if (stacked) CKPT_TRY(ckpt_expr_slice_in(&x, arena, x, 0, numbers[1], 1, err));
  if (row->parts[1] != NULL) {
    const uint64_t n_rows = joined->shape[stacked] / n_parts(row);
    CKPT_TRY(ckpt_expr_slice_in(&x, arena, x, stacked, i * n_rows, n_rows, err));
  }
  if (stacked) CKPT_TRY(ckpt_expr_reshape_in(&x, arena, x, 2, x->shape + 1, err));
  return add(t, ckpt_arch_fill(row->parts[i], numbers, arena), x, joined, err);
}

static ckpt_status add_tensor(const taker *t, const ckpt_tensor *tensor, ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_joined *row = row_of(t, tensor, numbers);
  ckpt_expr *x;
  if (row == NULL) {
    CKPT_TRY(ckpt_expr_read_in(&x, &t->into->arena, t->from, tensor, err));
    return add(t, tensor->name, x, tensor, err);
  }
  const uint64_t n_experts = is_stacked(row) ? tensor->shape[0] : 1;
  for (numbers[1] = 0; numbers[1] < n_experts; numbers[1]++)
    for (uint32_t i = 0; i < n_parts(row); i++) CKPT_TRY(add_part(t, row, tensor, numbers, i, err));
  return CKPT_OK;
}

/* Copies what the source could not read, and its notes. */
static ckpt_status carry(const taker *t, ckpt_error *err) {
  ckpt_index *into = t->into;
  const ckpt_index *from = t->from;
  CKPT_TRY(ckpt_index_carry(into, from, err));
  into->weights = from->weights;
  for (uint32_t i = 0; i < from->n_side_files; i++) into->side_files[i].is_read = from->side_files[i].is_read;
  for (uint32_t i = 0; i < from->n_unread; i++) {
    CKPT_TRY(ckpt_index_add_unread(into, from->unread[i].name, from->unread[i].role, from->unread[i].why, err));
    into->unread[i] = from->unread[i];
  }
  for (uint32_t i = 0; i < from->n_notes; i++) {
    CKPT_TRY(ckpt_index_note(into, false, err, "%s", from->notes[i].text));
    into->notes[i] = from->notes[i];
  }
  return CKPT_OK;
}

static ckpt_status add_all(const taker *t, ckpt_error *err) {
  CKPT_TRY(carry(t, err));
  for (uint32_t i = 0; i < t->from->n_tensors; i++)
    CKPT_TRY(ckpt_fail_at(add_tensor(t, &t->from->tensors[i], err), err, t->from->path, t->from->tensors[i].name));
  return ckpt_index_finish(t->into, err);
}

ckpt_status ckpt_dialect_apart(ckpt_index **out, const ckpt_index *from, ckpt_error *err) {
  taker t = {.from = from, .arch = from->is_stored ? NULL : ckpt_arch_find(from->architecture)};
  ckpt_error why = {0};
  bool is_any = false;
  *out = NULL;
  for (uint32_t i = 0; t.arch != NULL && i < from->n_tensors; i++) {
    uint64_t numbers[2];
    const ckpt_arch_joined *row = row_of(&t, &from->tensors[i], numbers);
    if (row != NULL && !comes_apart(row, &from->tensors[i])) return CKPT_OK;
    is_any = is_any || row != NULL;
  }
  if (!is_any) return CKPT_OK;
  CKPT_TRY(ckpt_index_new(&t.into, NULL, from->path, from->format, NULL, err));
  const ckpt_status status = add_all(&t, &why);
  if (status == CKPT_OK) {
    *out = t.into;
    return CKPT_OK;
  }
  ckpt_index_free(t.into);
  return status == CKPT_EEXIST ? CKPT_OK : ckpt_fail_as(err, status, why.file, why.tensor, &why);
}
