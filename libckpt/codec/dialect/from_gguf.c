/* from_gguf.c - a GGUF model of a known family in its Hugging Face dialect: see dialect.h.
 *
 * What the file holds becomes an index of its own, the stored form, from which outputs in GGUF are made; over it stand
 * the tensors under Hugging Face's names. A file that does not fit its family's row in everything keeps its names. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/plan/derive.h"
#include "libckpt/plan/plan.h"

/* ---- what the metadata says -------------------------------------------------------------------------------------- */

const ckpt_arch *ckpt_dialect_of_gguf(const ckpt_index *index) {
  const ckpt_meta *meta = ckpt_index_meta(index, CKPT_GGUF_ARCHITECTURE),
                  *type = ckpt_index_meta(index, "general.type");
  if (meta == NULL || meta->typed != NULL) return NULL;
  if (type != NULL && (type->typed != NULL || strcmp(type->value, "model") != 0)) return NULL; /* an adapter, ... */
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++)
    if ((*arch)->gguf != NULL && strcmp((*arch)->gguf->architecture, meta->value) == 0) return *arch;
  return NULL;
}

bool ckpt_dialect_gguf_u32(const ckpt_index *index, const ckpt_arch *arch, const char *key, uint32_t *out) {
  char full[128];
  const size_t n = strlen(arch->gguf->architecture), n_key = strlen(key);
  if (n + 1 + n_key >= sizeof full) return false;
  memcpy(full, arch->gguf->architecture, n);
  full[n] = '.';
  memcpy(full + n + 1, key, n_key + 1);
  const ckpt_meta *meta = ckpt_index_meta(index, full);
  return meta != NULL && meta->typed != NULL && ckpt_gguf_value_u32(meta->typed, out);
}

typedef struct namer {
  const ckpt_arch *arch;
  uint32_t n_layers, n_heads, n_kv_heads;
} namer;

static bool read_numbers(namer *n, const ckpt_index *index) {
  n->arch = ckpt_dialect_of_gguf(index);
  if (n->arch == NULL || !ckpt_dialect_gguf_u32(index, n->arch, "block_count", &n->n_layers) ||
      !ckpt_dialect_gguf_u32(index, n->arch, "attention.head_count", &n->n_heads))
    return false;
  n->n_kv_heads = n->n_heads;
  (void)ckpt_dialect_gguf_u32(index, n->arch, "attention.head_count_kv", &n->n_kv_heads);
  return n->n_layers != 0 && n->n_heads != 0 && n->n_kv_heads != 0;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static bool is_made(const ckpt_arch *arch, const char *name) {
  for (const ckpt_arch_made *made = arch->gguf->made; made != NULL && made->gguf != NULL; made++)
    if (strcmp(made->gguf, name) == 0) return true;
  return false;
}

static uint64_t heads_of(const namer *n, const ckpt_arch_name *row) {
  return (row->notes & CKPT_NAME_KV_HEADS) != 0 ? n->n_kv_heads : n->n_heads;
}

/* Whether the row's transforms can be undone on a tensor of this shape. */
static bool fits(const namer *n, const ckpt_arch_name *row, const ckpt_tensor *tensor, const uint64_t *numbers) {
  if (strchr(row->gguf, '#') != NULL && numbers[0] >= n->n_layers) return false;
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) return tensor->rank == 2;
  if ((row->notes & CKPT_NAME_ROPE_PERMUTE) == 0) return true;
  const bool has_rows = tensor->rank == 2 || (tensor->rank == 1 && !ckpt_dtype_is_block((ckpt_dtype)tensor->dtype));
  return has_rows && tensor->shape[0] % (2 * heads_of(n, row)) == 0;
}

static bool all_fit(const namer *n, const ckpt_index *index) {
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    uint64_t numbers[2] = {0};
    if (is_made(n->arch, tensor->name)) continue;
    const ckpt_arch_name *row = ckpt_arch_match_gguf(n->arch, tensor->name, numbers);
    if (row == NULL || !fits(n, row, tensor, numbers)) return false;
  }
  return index->n_tensors != 0;
}

/* Pairs of rows that stand side by side back into the halves of each head. */
static ckpt_status separate(ckpt_expr **x, ckpt_arena *arena, uint64_t n_heads, ckpt_error *err) {
  const ckpt_expr whole = **x;
  static const uint32_t order[] = {0, 2, 1, 3};
  const uint64_t shape[4] = {n_heads, whole.shape[0] / n_heads / 2, 2, whole.rank == 2 ? whole.shape[1] : 1};
  CKPT_TRY(ckpt_expr_reshape_in(x, arena, *x, whole.rank + 2U, shape, err));
  CKPT_TRY(ckpt_expr_permute_in(x, arena, *x, order, err));
  return ckpt_expr_reshape_in(x, arena, *x, whole.rank, whole.shape, err);
}

/* A tensor under its other name, which lies where the stored one does. */
static ckpt_status add(ckpt_index *index, const namer *n, const ckpt_tensor *stored, ckpt_error *err) {
  static const uint32_t across[] = {1, 0};
  uint64_t numbers[2] = {0};
  uint32_t number;
  ckpt_expr *x;
  const ckpt_arch_name *row = ckpt_arch_match_gguf(n->arch, stored->name, numbers);
  const char *name = ckpt_arch_fill(row->hf, numbers, &index->arena);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_expr_read_in(&x, &index->arena, index->stored_form, stored, err));
  if ((row->notes & CKPT_NAME_ROPE_PERMUTE) != 0) CKPT_TRY(separate(&x, &index->arena, heads_of(n, row), err));
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) { /* which blocks cannot be: they become their values */
    if (ckpt_dtype_is_block((ckpt_dtype)x->dtype)) CKPT_TRY(ckpt_expr_dequantize_in(&x, &index->arena, x, err));
    CKPT_TRY(ckpt_expr_permute_in(&x, &index->arena, x, across, err));
  }
  CKPT_TRY(ckpt_index_add(index, name, strlen(name), (ckpt_dtype)x->dtype, x->rank, x->shape, row->role, NULL, 0,
                          &number, err));
  ckpt_tensor *tensor = &index->tensors[number];
  tensor->extents = stored->extents;
  tensor->n_extents = stored->n_extents;
  tensor->record->extent_form = stored->record->extent_form;
  tensor->record->origin = stored->record->origin;
  index->n_extents += stored->n_extents;
  return ckpt_derive(index, number, x, err);
}

/* Without an output head of its own the embedding is one. */
static ckpt_status tie(ckpt_index *index, const ckpt_arch *arch, ckpt_error *err) {
  for (uint32_t t = 0; t < CKPT_MAX_TIES && arch->ties[t].kept != NULL; t++) {
    int64_t kept = -1;
    bool has_tied = false;
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      if (strcmp(index->tensors[i].name, arch->ties[t].kept) == 0) kept = i;
      has_tied = has_tied || strcmp(index->tensors[i].name, arch->ties[t].tied) == 0;
    }
    if (kept < 0 || has_tied) continue;
    index->ties |= UINT32_C(1) << t;
    index->ties_without[1] |= UINT32_C(1) << t;
    CKPT_TRY(ckpt_index_alias(index, (uint32_t)kept, arch->ties[t].tied, err));
  }
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Moves what was read into an index of its own, which borrows source and metadata. */
static ckpt_status set_apart(ckpt_index *index, ckpt_error *err) {
  ckpt_index *stored;
  CKPT_TRY(ckpt_index_new(&stored, NULL, index->path, index->format, NULL, err));
  index->stored_form = stored;
  stored->source = index->source;
  stored->metadata = index->metadata;
  stored->n_metadata = index->n_metadata;
  stored->has_metadata = index->has_metadata;
  stored->version = index->version;
  stored->stated_architecture = index->stated_architecture;
  stored->is_stored = true;
  stored->tensors = index->tensors;
  stored->n_tensors = index->n_tensors;
  stored->capacity = index->capacity;
  stored->n_extents = index->n_extents;
  stored->defects = index->defects;
  stored->unread = index->unread;
  stored->n_unread = index->n_unread;
  stored->unread_capacity = index->unread_capacity;
  index->tensors = NULL;
  index->n_tensors = index->capacity = index->n_unread = index->unread_capacity = 0;
  index->n_extents = 0;
  index->unread = NULL;
  ckpt_status status = ckpt_index_finish(stored, err);
  index->defects = stored->defects;
  return status;
}

ckpt_status ckpt_dialect_from_gguf(ckpt_index *index, bool *is_known, ckpt_error *err) {
  namer n;
  *is_known = read_numbers(&n, index) && all_fit(&n, index);
  if (!*is_known) return CKPT_OK;
  CKPT_TRY(set_apart(index, err));
  const ckpt_index *stored = index->stored_form;
  for (uint32_t i = 0; i < stored->n_unread; i++)
    CKPT_TRY(ckpt_index_add_unread(index, stored->unread[i].name, stored->unread[i].role, stored->unread[i].why, err));
  for (uint32_t i = 0; i < stored->n_tensors; i++)
    if (!is_made(n.arch, stored->tensors[i].name)) CKPT_TRY(add(index, &n, &stored->tensors[i], err));
  CKPT_TRY(tie(index, n.arch, err));
  index->architecture = n.arch->name;
  index->names = ckpt_arena_printf(&index->arena, "hf:%s/%u", n.arch->name, n.arch->revision);
  CKPT_TRY_ALLOC(index->names, err);
  return ckpt_index_finish(index, err);
}

/* ---- what a reader finds ----------------------------------------------------------------------------------------- */

/* The expression with another node where it reads a tensor. */
static ckpt_status replace(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const ckpt_tensor *tensor, ckpt_expr *by,
                           ckpt_error *err) {
  *out = x;
  if (x->tensor == tensor) {
    *out = by;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < x->n_args; i++) {
    ckpt_expr *arg;
    CKPT_TRY(replace(&arg, arena, x->args[i], tensor, by, err));
    if (arg == x->args[i]) continue;
    if (*out == x) {
      ckpt_expr *copy = ckpt_arena_alloc(arena, sizeof *copy);
      CKPT_TRY_ALLOC(copy, err);
      *copy = *x;
      copy->args = ckpt_arena_array(arena, x->n_args, sizeof *copy->args);
      CKPT_TRY_ALLOC(copy->args, err);
      memcpy(copy->args, x->args, x->n_args * sizeof *copy->args);
      *out = copy;
    }
    (*out)->args[i] = arg;
  }
  return CKPT_OK;
}

/* The rows of a tensor in Hugging Face's order: of a dialect's those that it was made of, for then nothing has to be
 * put back; else the stored ones, put back. */
static ckpt_status rows_as_read(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *from, const ckpt_tensor *tensor,
                                uint64_t n_heads, ckpt_error *err) {
  const ckpt_derivation *derived = tensor->record->derived;
  if (derived == NULL || derived->n_operands != 1) {
    CKPT_TRY(ckpt_expr_read(out, plan, from, tensor, err));
    return separate(out, &plan->arena, n_heads, err);
  }
  const ckpt_operand *of = &derived->operands[0];
  CKPT_TRY(ckpt_expr_read(out, plan, of->index, of->tensor, err));
  return ckpt_expr_cast(out, plan, *out, (ckpt_dtype)tensor->dtype, err);
}

ckpt_status ckpt_dialect_as_read(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *described, const char *name,
                                 const ckpt_index *from, const ckpt_tensor *tensor, ckpt_expr *expr, ckpt_error *err) {
  static const uint32_t across[] = {1, 0};
  uint64_t numbers[2] = {0};
  namer n;
  *out = NULL;
  if (!read_numbers(&n, described)) return CKPT_OK;
  const ckpt_arch_name *row = ckpt_arch_match_gguf(n.arch, name, numbers);
  if (row == NULL || (row->notes & (CKPT_NAME_ROPE_PERMUTE | CKPT_NAME_TRANSPOSE)) == 0) return CKPT_OK;
  if (!fits(&n, row, tensor, numbers)) return CKPT_OK; /* no reader changes it */
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) {
    if (ckpt_dtype_is_block((ckpt_dtype)expr->dtype)) CKPT_TRY(ckpt_expr_dequantize(&expr, plan, expr, err));
    return ckpt_expr_permute(out, plan, expr, across, err);
  }
  ckpt_expr *rows;
  CKPT_TRY(rows_as_read(&rows, plan, from, tensor, heads_of(&n, row), err));
  CKPT_TRY(replace(out, &plan->arena, expr, tensor, rows, err));
  /* what is written may be computed from what the tensor is before it is rounded */
  return *out == expr ? separate(out, &plan->arena, heads_of(&n, row), err) : CKPT_OK;
}
