/* quantize.c - f32 to block types and back, by the run's backend.
 *
 * A row is quantized by itself, so rows may be cut, stacked and sliced as they like. Of several rows of importance each
 * belongs to a share of the rows, and is cut with them. Values and scales have to be finite: a NaN in one
 * weight would spoil its whole block. */
#include <math.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/plan.h"

typedef unsigned long long ull;

static ckpt_status refuse_value(const ckpt_op_call *call, const float *x, const char *what, uint64_t begin,
                                ckpt_error *err) {
  size_t i = 0;
  while (isfinite(x[i])) i++;
  return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "%s %llu is %s, which %s cannot hold", what, (ull)(begin + i),
                   isnan(x[i]) ? "NaN" : "infinite", ckpt_dtype_name((ckpt_dtype)call->node->dtype));
}

static ckpt_status quantize_rows(const ckpt_op_call *call, uint64_t first_row, size_t n_rows, const float *importance,
                                 ckpt_error *err) {
  const ckpt_dtype_row *type = ckpt_dtype_get(call->node->dtype);
  size_t n_per_row = (size_t)call->node->shape[call->node->rank - 1];
  size_t row_bytes = n_per_row / type->block_elements * type->block_bytes;
  const float *x = (const float *)call->args[0] + first_row * n_per_row;
  if (!call->is_finite && !ckpt_are_finite(CKPT_F32, x, n_rows * n_per_row))
    return refuse_value(call, x, "value", call->begin + first_row * n_per_row, err);
  if (call->backend->quantize((ckpt_dtype)call->node->dtype, (uint8_t *)call->out + first_row * row_bytes, x, n_rows,
                              n_per_row, importance))
    return CKPT_OK;
  float largest = 0;
  for (size_t i = 0; i < n_rows * n_per_row; i++) largest = fmaxf(largest, fabsf(x[i]));
  return ckpt_fail(err, CKPT_EVALUE, NULL, NULL,
                   "a scale does not fit %s (values up to %g in these rows: keep the tensor in f32 or bf16)",
                   type->name, (double)largest);
}

static ckpt_status run_quantize(const ckpt_op_call *call, ckpt_error *err) {
  size_t n_per_row = (size_t)call->node->shape[call->node->rank - 1];
  if (call->n_elements == 0) return CKPT_OK;
  return quantize_rows(call, 0, (size_t)(call->n_elements / n_per_row), NULL, err);
}

/* Rows of one matrix at a time: those have one row of weights. */
static ckpt_status run_weighted(const ckpt_op_call *call, ckpt_error *err) {
  uint64_t n_per_row = call->node->shape[call->node->rank - 1], n_matrices = call->n_elements_of[1] / n_per_row;
  const float *importance = call->args[1];
  if (call->n_elements == 0) return CKPT_OK;
  if (!ckpt_are_finite(CKPT_F32, importance, (size_t)call->n_elements_of[1]))
    return refuse_value(call, importance, "importance", 0, err);
  uint64_t n_rows = call->n_elements / n_per_row, first = call->begin / n_per_row;
  uint64_t n_each = ckpt_rows_of_stack(call->node->rank, call->node->shape) / n_matrices;
  for (uint64_t row = 0, n; row < n_rows; row += n) {
    uint64_t matrix = (first + row) / n_each, n_left = (matrix + 1) * n_each - (first + row);
    n = n_rows - row < n_left ? n_rows - row : n_left;
    CKPT_TRY(quantize_rows(call, row, (size_t)n, importance + matrix % n_matrices * n_per_row, err));
  }
  return CKPT_OK;
}

static ckpt_status run_dequantize(const ckpt_op_call *call, ckpt_error *err) {
  (void)err;
  call->backend->dequantize((ckpt_dtype)call->node->args[0]->dtype, call->out, call->args[0], (size_t)call->n_elements);
  return CKPT_OK;
}

const ckpt_op ckpt_op_quantize = {
    .name = "quantize", .rule = CKPT_RULE_ROW, .is_rowwise = true, .wants_finite = true, .run = run_quantize};
const ckpt_op ckpt_op_quantize_weighted = {.name = "quantize",
                                           .rule = CKPT_RULE_ROW,
                                           .is_rowwise = true,
                                           .wants_finite = true,
                                           .whole_args = 2,
                                           .share_args = 2,
                                           .run = run_weighted};
const ckpt_op ckpt_op_dequantize = {
    .name = "dequantize", .rule = CKPT_RULE_FLAT, .is_pointwise = true, .run = run_dequantize};

ckpt_status ckpt_expr_quantize(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_dtype dtype, ckpt_expr *importance,
                               ckpt_error *err) {
  CKPT_TRY(ckpt_expr_check_dtype(dtype, err));
  const ckpt_dtype_row *type = ckpt_dtype_get(dtype);
  uint64_t n_per_row = x->rank == 0 ? 1 : x->shape[x->rank - 1];
  if (!ckpt_backend_reference.can_quantize(dtype, true))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "nothing is quantized to %s", type->name);
  if (!ckpt_backend_reference.can_quantize(dtype, importance != NULL))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s needs importance (an imatrix that has this tensor)", type->name);
  if (x->dtype != CKPT_F32)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "quantize takes f32, not %s", ckpt_dtype_name((ckpt_dtype)x->dtype));
  if (n_per_row % type->block_elements != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a row of %llu is no whole number of blocks of %s (%u)",
                     (ull)n_per_row, type->name, type->block_elements);
  if (importance == NULL) return ckpt_expr_apply(out, plan, &ckpt_op_quantize, dtype, &x, 1, NULL, err);
  uint64_t n_rows = n_per_row == 0 ? 0 : x->n_elements / n_per_row,
           n_matrices = importance->n_elements / (n_per_row + !n_per_row);
  if (importance->dtype != CKPT_F32 || importance->n_elements == 0 || n_per_row == 0 ||
      importance->n_elements % n_per_row != 0 || ckpt_rows_of_stack(x->rank, x->shape) % n_matrices != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%llu weight%s of importance (%s) for %llu row%s of %llu",
                     (ull)importance->n_elements, ckpt_plural(importance->n_elements),
                     ckpt_dtype_name((ckpt_dtype)importance->dtype), (ull)n_rows, ckpt_plural(n_rows), (ull)n_per_row);
  if (!ckpt_backend_reference.uses_importance(dtype)) /* nobody has to read it, or to mind what it holds */
    return ckpt_expr_apply(out, plan, &ckpt_op_quantize, dtype, &x, 1, NULL, err);
  ckpt_expr *args[2] = {x, importance};
  return ckpt_expr_apply(out, plan, &ckpt_op_quantize_weighted, dtype, args, 2, NULL, err);
}

ckpt_status ckpt_expr_dequantize_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_error *err) {
  if (!ckpt_dtype_is_block((ckpt_dtype)x->dtype))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s is no block type", ckpt_dtype_name((ckpt_dtype)x->dtype));
  return ckpt_expr_apply_in(out, arena, &ckpt_op_dequantize, CKPT_F32, &x, 1, NULL, err);
}

ckpt_status ckpt_expr_dequantize(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_error *err) {
  return ckpt_expr_dequantize_in(out, &plan->arena, x, err);
}
