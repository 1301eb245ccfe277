/* expr.c - building expressions: shapes and dtypes are inferred here, once, so that everything after can trust them. */
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/plan.h"

typedef unsigned long long ull;

static ckpt_status measure(ckpt_expr *node, ckpt_error *err) {
  const ckpt_dtype_row *dtype = ckpt_dtype_get((ckpt_dtype)node->dtype);
  node->n_elements = 1;
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (!ckpt_mul_u64(node->n_elements, node->shape[axis], &node->n_elements))
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                       "the axes of a result, multiplied in order, pass 2^64 elements (%llu times the %llu of axis %u)",
                       (ull)node->n_elements, (ull)node->shape[axis], axis);
  if (node->n_elements % dtype->block_elements != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a result of %llu element%s is no whole number of blocks of %s (%u)",
                     (ull)node->n_elements, ckpt_plural(node->n_elements), dtype->name, dtype->block_elements);
  if (!ckpt_dtype_bytes((ckpt_dtype)node->dtype, node->n_elements, &node->n_bytes) || node->n_bytes > INT64_MAX)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a result of %llu elements of %s is larger than 2^63 bytes",
                     (ull)node->n_elements, dtype->name);
  return CKPT_OK;
}

ckpt_status ckpt_expr_new(ckpt_expr **out, ckpt_arena *arena, const ckpt_op *op, ckpt_dtype dtype, uint32_t rank,
                          const uint64_t *shape, uint32_t n_args, ckpt_error *err) {
  if (rank > CKPT_MAX_RANK) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%u axes (at most %d)", rank, CKPT_MAX_RANK);
  ckpt_expr *node = ckpt_arena_alloc(arena, sizeof *node);
  CKPT_TRY_ALLOC(node, err);
  node->op = op;
  node->dtype = (uint8_t)dtype;
  node->rank = (uint8_t)rank;
  node->n_args = n_args;
  if (rank != 0) {
    uint64_t *copy = ckpt_arena_array(arena, rank, sizeof *copy);
    CKPT_TRY_ALLOC(copy, err);
    memcpy(copy, shape, rank * sizeof *copy);
    node->shape = copy;
  }
  if (n_args != 0) {
    node->args = ckpt_arena_array(arena, n_args, sizeof *node->args);
    CKPT_TRY_ALLOC(node->args, err);
  }
  CKPT_TRY(measure(node, err));
  *out = node;
  return CKPT_OK;
}

ckpt_status ckpt_expr_read_in(ckpt_expr **out, ckpt_arena *arena, const ckpt_index *index, const ckpt_tensor *tensor,
                              ckpt_error *err) {
  ckpt_expr *node = ckpt_arena_alloc(arena, sizeof *node);
  CKPT_TRY_ALLOC(node, err);
  const ckpt_derivation *derived = tensor->details == NULL ? NULL : tensor->details->derived;
  if (derived != NULL)
    *node = *derived->expr; /* what it stands on is shared: nodes do not change */
  else
    *node = (ckpt_expr){.op = &ckpt_op_read,
                        .rank = tensor->rank,
                        .dtype = tensor->dtype,
                        .shape = tensor->shape,
                        .n_elements = tensor->n_elements,
                        .n_bytes = tensor->n_bytes};
  if (derived == NULL || derived->expr->op->rule != CKPT_RULE_READ) node->index = index, node->tensor = tensor;
  *out = node;
  return CKPT_OK;
}

ckpt_status ckpt_expr_read(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *index, const ckpt_tensor *tensor,
                           ckpt_error *err) {
  const ckpt_derivation *derived = tensor->details == NULL ? NULL : tensor->details->derived;
  for (uint32_t i = 0; derived != NULL && i < derived->n_operands; i++)
    CKPT_TRY(ckpt_plan_reads(plan, derived->operands[i].index, NULL, err));
  CKPT_TRY(ckpt_plan_reads(plan, index, NULL, err));
  return ckpt_expr_read_in(out, &plan->arena, index, tensor, err);
}

const ckpt_tensor *ckpt_expr_tensor(const ckpt_expr *node) {
  return node->index != NULL && node->view == NULL ? node->tensor : NULL;
}

ckpt_status ckpt_expr_check_dtype(ckpt_dtype dtype, ckpt_error *err) {
  if (dtype > CKPT_DTYPE_NONE && dtype < CKPT_N_DTYPES) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "dtype number %d", (int)dtype);
}

ckpt_status ckpt_expr_memory_in(ckpt_expr **out, ckpt_arena *arena, ckpt_dtype dtype, uint32_t rank,
                                const uint64_t *shape, const void *data, ckpt_error *err) {
  CKPT_TRY(ckpt_expr_check_dtype(dtype, err));
  CKPT_TRY(ckpt_expr_new(out, arena, &ckpt_op_memory, dtype, rank, shape, 0, err));
  if (data == NULL && (*out)->n_bytes != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "no memory is given for a tensor of %llu byte%s",
                     (ull)(*out)->n_bytes, ckpt_plural((*out)->n_bytes));
  (*out)->memory = data;
  return CKPT_OK;
}

ckpt_status ckpt_expr_memory(ckpt_expr **out, ckpt_plan *plan, ckpt_dtype dtype, uint32_t rank, const uint64_t *shape,
                             const void *data, ckpt_error *err) {
  return ckpt_expr_memory_in(out, &plan->arena, dtype, rank, shape, data, err);
}

static ckpt_status make_cast(ckpt_expr **out, ckpt_arena *arena, const ckpt_op *op, ckpt_expr *x, ckpt_dtype dtype,
                             ckpt_error *err) {
  CKPT_TRY(ckpt_expr_new(out, arena, op, dtype, x->rank, x->shape, 1, err));
  (*out)->args[0] = x;
  return CKPT_OK;
}

ckpt_status ckpt_expr_round_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_dtype dtype, ckpt_error *err) {
  *out = x;
  return x->dtype == dtype ? CKPT_OK : make_cast(out, arena, &ckpt_op_round, x, dtype, err);
}

/* Takes what is rounded in place of what rounds it; the dtype is for round_again, NONE where nothing rounds. */
static ckpt_dtype before_rounding(ckpt_expr **x) {
  if ((*x)->op != &ckpt_op_round) return CKPT_DTYPE_NONE;
  const ckpt_dtype dtype = (ckpt_dtype)(*x)->dtype;
  *x = (*x)->args[0];
  return dtype;
}

static ckpt_status round_again(ckpt_expr **x, ckpt_arena *arena, ckpt_dtype dtype, ckpt_error *err) {
  return dtype == CKPT_DTYPE_NONE ? CKPT_OK : ckpt_expr_round_in(x, arena, *x, dtype, err);
}

ckpt_status ckpt_expr_cast_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_dtype dtype, ckpt_error *err) {
  CKPT_TRY(ckpt_expr_check_dtype(dtype, err));
  if (x->dtype != dtype) (void)before_rounding(&x);
  if (x->dtype == dtype) {
    *out = x;
    return CKPT_OK;
  }
  if (ckpt_dtype_is_block((ckpt_dtype)x->dtype) && ckpt_dtype_is_float(dtype)) {
    CKPT_TRY(ckpt_expr_dequantize_in(&x, arena, x, err));
    return ckpt_expr_cast_in(out, arena, x, dtype, err);
  }
  if (!ckpt_backend_reference.can_cast(x->dtype, dtype))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "no cast from %s to %s (only floating-point dtypes are cast, to one another: choose one of them)",
                     ckpt_dtype_name(x->dtype), ckpt_dtype_name(dtype));
  return make_cast(out, arena, &ckpt_op_cast, x, dtype, err);
}

ckpt_status ckpt_expr_cast(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_dtype dtype, ckpt_error *err) {
  return ckpt_expr_cast_in(out, &plan->arena, x, dtype, err);
}

ckpt_status ckpt_expr_slice(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, uint32_t axis, uint64_t start,
                            uint64_t count, ckpt_error *err) {
  return ckpt_expr_slice_in(out, &plan->arena, x, axis, start, count, err);
}

ckpt_status ckpt_expr_slice_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint32_t axis, uint64_t start,
                               uint64_t count, ckpt_error *err) {
  if (axis >= x->rank || !ckpt_range_within(start, count, x->shape[axis]))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "slice [%llu, %llu) of axis %u does not fit %u ax%s (%llu there)",
                     (ull)start, (ull)(start + count), axis, x->rank, x->rank == 1 ? "is" : "es",
                     axis < x->rank ? (ull)x->shape[axis] : 0);
  uint64_t shape[CKPT_MAX_RANK];
  memcpy(shape, x->shape, x->rank * sizeof *shape);
  shape[axis] = count;
  ckpt_slice_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  *params = (ckpt_slice_params){axis, start, count};
  const ckpt_dtype rounded = before_rounding(&x);
  CKPT_TRY(ckpt_expr_new(out, arena, &ckpt_op_slice, x->dtype, x->rank, shape, 1, err));
  (*out)->args[0] = x;
  (*out)->params = params;
  return round_again(out, arena, rounded, err);
}

ckpt_status ckpt_expr_permute_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const uint32_t *order,
                                 ckpt_error *err) {
  uint64_t shape[CKPT_MAX_RANK];
  uint32_t seen = 0, rank = x->rank < CKPT_MAX_RANK ? x->rank : CKPT_MAX_RANK;
  bool is_identity = true;
  ckpt_order_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  for (uint32_t axis = 0; axis < rank; axis++) {
    if (order[axis] >= rank || seen >> order[axis] & 1)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "not a permutation of %u ax%s", rank, rank == 1 ? "is" : "es");
    seen |= UINT32_C(1) << order[axis];
    params->order[axis] = (uint8_t)order[axis];
    shape[axis] = x->shape[order[axis]];
    is_identity = is_identity && order[axis] == axis;
  }
  if (is_identity) {
    *out = x;
    return CKPT_OK;
  }
  const ckpt_dtype rounded = before_rounding(&x);
  CKPT_TRY(ckpt_expr_new(out, arena, &ckpt_op_permute, x->dtype, x->rank, shape, 1, err));
  (*out)->args[0] = x;
  (*out)->params = params;
  return round_again(out, arena, rounded, err);
}

ckpt_status ckpt_expr_permute(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, const uint32_t *order, ckpt_error *err) {
  return ckpt_expr_permute_in(out, &plan->arena, x, order, err);
}

ckpt_status ckpt_expr_reshape_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint32_t rank, const uint64_t *shape,
                                 ckpt_error *err) {
  const ckpt_dtype rounded = before_rounding(&x);
  CKPT_TRY(ckpt_expr_new(out, arena, &ckpt_op_reshape, x->dtype, rank, shape, 1, err));
  if ((*out)->n_elements != x->n_elements)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "reshape of %llu element%s to %llu", (ull)x->n_elements,
                     ckpt_plural(x->n_elements), (ull)(*out)->n_elements);
  (*out)->args[0] = x;
  return round_again(out, arena, rounded, err);
}

ckpt_status ckpt_expr_reshape(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, uint32_t rank, const uint64_t *shape,
                              ckpt_error *err) {
  return ckpt_expr_reshape_in(out, &plan->arena, x, rank, shape, err);
}

/* The dtype that a concat is rounded to, as some of its parts are and all others are exact in f32; else NONE. */
static ckpt_dtype rounding_of(ckpt_expr *const *parts, uint32_t n) {
  const uint8_t dtype = parts[0]->dtype;
  bool is_any = false, are_exact = dtype == CKPT_F16 || dtype == CKPT_BF16;
  for (uint32_t i = 0; i < n; i++) {
    is_any = is_any || parts[i]->op == &ckpt_op_round;
    are_exact = are_exact && parts[i]->dtype == dtype;
  }
  return is_any && are_exact ? (ckpt_dtype)dtype : CKPT_DTYPE_NONE;
}

ckpt_status ckpt_expr_concat_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *const *xs, uint32_t n, uint32_t axis,
                                ckpt_error *err) {
  if (n == 0 || axis >= xs[0]->rank)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "concat of %u along axis %u", n, axis);
  uint64_t shape[CKPT_MAX_RANK];
  memcpy(shape, xs[0]->shape, xs[0]->rank * sizeof *shape);
  for (uint32_t i = 1; i < n; i++) {
    bool fits = xs[i]->rank == xs[0]->rank && xs[i]->dtype == xs[0]->dtype;
    for (uint32_t k = 0; fits && k < xs[0]->rank; k++) fits = k == axis || xs[i]->shape[k] == shape[k];
    if (!fits || !ckpt_add_u64(shape[axis], xs[i]->shape[axis], &shape[axis]))
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "concat: part %u differs in rank, dtype or shape", i);
  }
  ckpt_axis_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  params->axis = axis;
  const ckpt_dtype rounded = rounding_of(xs, n);
  const ckpt_dtype dtype = rounded != CKPT_DTYPE_NONE ? CKPT_F32 : (ckpt_dtype)xs[0]->dtype;
  CKPT_TRY(ckpt_expr_new(out, arena, &ckpt_op_concat, dtype, xs[0]->rank, shape, n, err));
  for (uint32_t i = 0; i < n; i++) CKPT_TRY(ckpt_expr_cast_in(&(*out)->args[i], arena, xs[i], dtype, err));
  (*out)->params = params;
  return round_again(out, arena, rounded, err);
}

ckpt_status ckpt_expr_concat(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *const *xs, uint32_t n, uint32_t axis,
                             ckpt_error *err) {
  return ckpt_expr_concat_in(out, &plan->arena, xs, n, axis, err);
}

ckpt_status ckpt_expr_apply_in(ckpt_expr **out, ckpt_arena *arena, const ckpt_op *op, ckpt_dtype dtype,
                               ckpt_expr *const *args, uint32_t n_args, const void *params, ckpt_error *err) {
  const ckpt_expr *x = args[0];
  for (uint32_t i = 1; i < n_args; i++) {
    if (ckpt_op_wants_whole(op, i)) continue;
    bool fits = args[i]->rank == x->rank;
    for (uint32_t k = 0; fits && k < x->rank; k++) fits = args[i]->shape[k] == x->shape[k];
    if (!fits) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: arguments differ in shape", op->name);
  }
  CKPT_TRY(ckpt_expr_new(out, arena, op, dtype, x->rank, x->shape, n_args, err));
  memcpy((*out)->args, args, n_args * sizeof *args);
  (*out)->params = params;
  return CKPT_OK;
}

ckpt_status ckpt_expr_move_rows_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint64_t n_parts, uint64_t n_first,
                                   uint64_t n_second, ckpt_error *err) {
  const ckpt_move_params wanted = {n_parts, n_first, n_second};
  uint64_t n_chunks;
  if (n_parts == 0 || n_first == 0 || n_second == 0 || !ckpt_mul_u64(n_parts, n_first, &n_chunks) ||
      !ckpt_mul_u64(n_chunks, n_second, &n_chunks) || x->rank < 2 || x->shape[0] % n_chunks != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rows that are no %llu parts of %llu times %llu",
                     (unsigned long long)n_parts, (unsigned long long)n_first, (unsigned long long)n_second);
  ckpt_move_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  *params = wanted;
  return ckpt_expr_apply_in(out, arena, &ckpt_op_move_rows, (ckpt_dtype)x->dtype, &x, 1, params, err);
}

ckpt_status ckpt_expr_apply(ckpt_expr **out, ckpt_plan *plan, const ckpt_op *op, ckpt_dtype dtype,
                            ckpt_expr *const *args, uint32_t n_args, const void *params, ckpt_error *err) {
  return ckpt_expr_apply_in(out, &plan->arena, op, dtype, args, n_args, params, err);
}

ckpt_status ckpt_expr_add_prologue(ckpt_expr *node, ckpt_plan *plan, ckpt_expr *reduction, ckpt_error *err) {
  if (reduction->op->rule != CKPT_RULE_REDUCE)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s is no reduction", reduction->op->name);
  ckpt_expr **grown = ckpt_arena_array(&plan->arena, node->n_prologue + 1, sizeof *grown);
  CKPT_TRY_ALLOC(grown, err);
  if (node->n_prologue != 0) memcpy(grown, node->prologue, node->n_prologue * sizeof *grown);
  grown[node->n_prologue++] = reduction;
  node->prologue = grown;
  if (reduction->value != 0) return CKPT_OK; /* shared with another node: computed once */
  const void *value;
  return ckpt_plan_reduce(plan, reduction->op->name, reduction, &value, err);
}

ckpt_dtype ckpt_expr_rounds_to(const ckpt_expr *expr) {
  if (ckpt_op_is_cast(expr->op) || expr->op == &ckpt_op_lora || expr->op == &ckpt_op_dora)
    return (ckpt_dtype)expr->dtype;
  ckpt_dtype dtype = CKPT_DTYPE_NONE;
  for (uint32_t i = 0; i < expr->n_args && dtype == CKPT_DTYPE_NONE; i++) dtype = ckpt_expr_rounds_to(expr->args[i]);
  return dtype;
}
