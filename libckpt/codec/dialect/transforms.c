/* transforms.c - what a tensor becomes in the other dialect besides its name, each transform with its inverse: the
 * closed set that rows of families choose from (CKPT_NAME_* in index/arch.h). See dialect.h. */
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"

typedef unsigned long long ull;

uint64_t ckpt_dialect_heads(const ckpt_dialect_sizes *sizes, const ckpt_arch_name *row) {
  return (row->notes & CKPT_NAME_KV_HEADS) != 0 ? sizes->n_kv_heads : sizes->n_heads;
}

bool ckpt_dialect_is_stacked(const ckpt_arch_name *row) {
  const char *first = row->gguf == NULL ? NULL : strchr(row->hf, '#');
  return first != NULL && strchr(first + 1, '#') != NULL && strchr(strchr(row->gguf, '#') + 1, '#') == NULL;
}

/* ---- rows in another order --------------------------------------------------------------------------------------- */

/* Rows counted by two numbers and the rest of them, of which the first two or the last two change places. */
static ckpt_status reorder(ckpt_expr **x, ckpt_arena *arena, uint64_t n_first, uint64_t n_second, bool is_first,
                           ckpt_error *err) {
  static const uint32_t first[] = {1, 0, 2, 3}, last[] = {0, 2, 1, 3};
  const ckpt_expr whole = **x;
  const uint64_t shape[4] = {n_first, n_second, whole.shape[0] / n_first / n_second,
                             whole.rank == 2 ? whole.shape[1] : 1};
  CKPT_TRY(ckpt_expr_reshape_in(x, arena, *x, whole.rank + 2U, shape, err));
  CKPT_TRY(ckpt_expr_permute_in(x, arena, *x, is_first ? first : last, err));
  return ckpt_expr_reshape_in(x, arena, *x, whole.rank, whole.shape, err);
}

/* How many rows must go together for a row's transform; 1: none is moved. */
static uint64_t unit_of(const ckpt_dialect_sizes *sizes, const ckpt_arch_name *row) {
  if ((row->notes & CKPT_NAME_ROPE_PERMUTE) != 0) return 2 * ckpt_dialect_heads(sizes, row);
  return (row->notes & CKPT_NAME_BY_HEAD) != 0 ? 3 * sizes->n_heads : 1;
}

static bool has_rows(uint32_t rank, ckpt_dtype dtype) {
  return rank == 2 || (rank == 1 && !ckpt_dtype_is_block(dtype));
}

static ckpt_status check_rows(const ckpt_expr *x, const ckpt_dialect_sizes *sizes, const ckpt_arch_name *row,
                              ckpt_error *err) {
  const uint64_t unit = unit_of(sizes, row);
  if (unit == 1 || (has_rows(x->rank, (ckpt_dtype)x->dtype) && x->shape[0] % unit == 0)) return CKPT_OK;
  return ckpt_fail(
      err, CKPT_EFORMAT, NULL, NULL, "%llu rows are no %s of %llu heads", x->rank == 0 ? 1 : (ull)x->shape[0],
      (row->notes & CKPT_NAME_BY_HEAD) != 0 ? "q, k and v" : "pairs of rows", (ull)ckpt_dialect_heads(sizes, row));
}

ckpt_status ckpt_dialect_transpose(ckpt_expr **x, ckpt_arena *arena, ckpt_error *err) {
  static const uint32_t order[] = {1, 0};
  if ((*x)->rank != 2)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%u axes, a matrix that is transposed has 2", (*x)->rank);
  return ckpt_expr_permute_in(x, arena, *x, order, err);
}

/* ---- a constant added -------------------------------------------------------------------------------------------- */

/* In f32; what was stored as f16 is rounded to it, since torch adds in the tensor's own dtype. */
static ckpt_status add_one(ckpt_expr **x, ckpt_arena *arena, float by, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)(*x)->dtype;
  float *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  *params = by;
  if (ckpt_dtype_is_block(dtype)) CKPT_TRY(ckpt_expr_dequantize_in(x, arena, *x, err));
  ckpt_expr *single;
  CKPT_TRY(ckpt_expr_cast_in(&single, arena, *x, CKPT_F32, err));
  CKPT_TRY(ckpt_expr_apply_in(x, arena, &ckpt_op_add_constant, CKPT_F32, &single, 1, params, err));
  return dtype == CKPT_F16 ? ckpt_expr_cast_in(x, arena, *x, CKPT_F16, err) : CKPT_OK;
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_dialect_stack(ckpt_expr **out, ckpt_arena *arena, ckpt_expr **parts, uint64_t n, ckpt_error *err) {
  bool is_mixed = false;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_expr *first = parts[0], *x = parts[i];
    if (x->rank != 2 || first->rank != 2 || memcmp(x->shape, first->shape, 2 * sizeof *x->shape) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "experts of several shapes cannot be stacked");
    is_mixed = is_mixed || x->dtype != first->dtype;
  }
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t shape[3] = {1, parts[i]->shape[0], parts[i]->shape[1]};
    if (is_mixed && ckpt_dtype_is_block((ckpt_dtype)parts[i]->dtype))
      CKPT_TRY(ckpt_expr_dequantize_in(&parts[i], arena, parts[i], err));
    if (is_mixed) CKPT_TRY(ckpt_expr_cast_in(&parts[i], arena, parts[i], CKPT_F32, err));
    CKPT_TRY(ckpt_expr_reshape_in(&parts[i], arena, parts[i], 3, shape, err));
  }
  return ckpt_expr_concat_in(out, arena, parts, (uint32_t)n, 0, err);
}

/* ---- both ways --------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_dialect_forth(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                               const ckpt_arch_name *row, ckpt_error *err) {
  CKPT_TRY(check_rows(*x, sizes, row, err));
  if ((row->notes & CKPT_NAME_ROPE_PERMUTE) != 0)
    CKPT_TRY(reorder(x, arena, ckpt_dialect_heads(sizes, row), 2, false, err));
  if ((row->notes & CKPT_NAME_BY_HEAD) != 0) CKPT_TRY(reorder(x, arena, sizes->n_heads, 3, true, err));
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) CKPT_TRY(ckpt_dialect_transpose(x, arena, err));
  return (row->notes & CKPT_NAME_PLUS_ONE) != 0 ? add_one(x, arena, 1, err) : CKPT_OK;
}

bool ckpt_dialect_fits(const ckpt_dialect_sizes *sizes, const ckpt_arch_name *row, const ckpt_tensor *tensor) {
  if (ckpt_dialect_is_stacked(row)) /* of one expert leading axes may be left out */
    return (tensor->rank == 3 && tensor->shape[0] == sizes->n_experts) || (tensor->rank < 3 && sizes->n_experts == 1);
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) return tensor->rank == 2;
  const uint64_t unit = unit_of(sizes, row);
  return unit == 1 || (has_rows(tensor->rank, (ckpt_dtype)tensor->dtype) && tensor->shape[0] % unit == 0);
}

ckpt_status ckpt_dialect_back(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                              const ckpt_arch_name *row, uint64_t expert, ckpt_error *err) {
  const uint64_t n_rows = (*x)->rank == 0 ? 1 : (*x)->shape[0], n_heads = ckpt_dialect_heads(sizes, row);
  if (ckpt_dialect_is_stacked(row) && (*x)->rank == 3) {
    const uint64_t shape[2] = {(*x)->shape[1], (*x)->shape[2]};
    CKPT_TRY(ckpt_expr_slice_in(x, arena, *x, 0, expert, 1, err));
    CKPT_TRY(ckpt_expr_reshape_in(x, arena, *x, 2, shape, err));
  }
  if ((row->notes & CKPT_NAME_ROPE_PERMUTE) != 0)
    CKPT_TRY(reorder(x, arena, n_heads, n_rows / n_heads / 2, false, err));
  if ((row->notes & CKPT_NAME_BY_HEAD) != 0) CKPT_TRY(reorder(x, arena, 3, n_heads, true, err));
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) { /* which blocks cannot be: they become their values */
    if (ckpt_dtype_is_block((ckpt_dtype)(*x)->dtype)) CKPT_TRY(ckpt_expr_dequantize_in(x, arena, *x, err));
    CKPT_TRY(ckpt_dialect_transpose(x, arena, err));
  }
  return (row->notes & CKPT_NAME_PLUS_ONE) != 0 ? add_one(x, arena, -1, err) : CKPT_OK;
}

ckpt_status ckpt_dialect_move_rows(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                                   const ckpt_arch_name *row, bool is_back, ckpt_error *err) {
  const ckpt_arch_name rows = {.hf = "",
                               .notes = row->notes & (CKPT_NAME_ROPE_PERMUTE | CKPT_NAME_BY_HEAD | CKPT_NAME_KV_HEADS)};
  if (!ckpt_dialect_moves_rows(row)) return CKPT_OK;
  if (!is_back) return ckpt_dialect_forth(x, arena, sizes, &rows, err);
  CKPT_TRY(check_rows(*x, sizes, &rows, err));
  return ckpt_dialect_back(x, arena, sizes, &rows, 0, err);
}

bool ckpt_dialect_moves_rows(const ckpt_arch_name *row) {
  return (row->notes & (CKPT_NAME_ROPE_PERMUTE | CKPT_NAME_BY_HEAD)) != 0;
}

bool ckpt_dialect_changes(const ckpt_arch_name *row) {
  return ckpt_dialect_moves_rows(row) || ckpt_dialect_is_stacked(row) ||
         (row->notes & (CKPT_NAME_TRANSPOSE | CKPT_NAME_PLUS_ONE)) != 0;
}
