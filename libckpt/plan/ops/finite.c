/* finite.c - looks at floats and fails the run at the first that is NaN or infinite: what quantize ships as it
 * is, or casts. */
#include <math.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/plan.h"

/* An exponent of ones carries into the sign where one more is added to it. */
#define ARE_FINITE(type, one)                                                             \
  {                                                                                       \
    type carried = 0;                                                                     \
    for (size_t i = 0; i < n; i++) {                                                      \
      type bits;                                                                          \
      memcpy(&bits, (const uint8_t *)x + i * sizeof bits, sizeof bits);                   \
      carried = (type)(carried | ((type)(bits & (type)(((type)-1) >> 1)) + (type)(one))); \
    }                                                                                     \
    return carried >> (8 * sizeof carried - 1) == 0;                                      \
  }

bool ckpt_are_finite(ckpt_dtype dtype, const void *x, size_t n) {
  switch (dtype) {
    case CKPT_F64: ARE_FINITE(uint64_t, UINT64_C(1) << 52)
    case CKPT_F32: ARE_FINITE(uint32_t, UINT32_C(1) << 23)
    case CKPT_BF16: ARE_FINITE(uint16_t, 1 << 7)
    case CKPT_F16: ARE_FINITE(uint16_t, 1 << 10)
    default: return true;
  }
}

static ckpt_status run_finite(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)call->node->dtype;
  const size_t n_each = ckpt_dtype_get(dtype)->block_bytes, n = (size_t)call->n_elements;
  const uint8_t *x = call->args[0];
  if (call->is_finite || ckpt_are_finite(dtype, x, n)) return CKPT_OK;
  size_t i = 0;
  while (ckpt_are_finite(dtype, x + i * n_each, 1)) i++;
  double value;
  ckpt_cast_stats ignored = {0};
  call->backend->cast(CKPT_F64, &value, dtype, x + i * n_each, 1, &ignored);
  return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "value %llu is %s, and no run of a model survives that",
                   (unsigned long long)(call->begin + i), isnan(value) ? "NaN" : "infinite");
}

const ckpt_op ckpt_op_finite = {
    .name = "finite", .rule = CKPT_RULE_FLAT, .wants_finite = true, .is_check = true, .run = run_finite};

ckpt_status ckpt_expr_finite_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_error *err) {
  *out = x;
  if (!ckpt_dtype_is_float((ckpt_dtype)x->dtype)) return CKPT_OK;
  if (x->op == &ckpt_op_round) { /* under it, so that a cast still takes its place */
    CKPT_TRY(ckpt_expr_finite_in(out, arena, x->args[0], err));
    return ckpt_expr_round_in(out, arena, *out, (ckpt_dtype)x->dtype, err);
  }
  return ckpt_expr_apply_in(out, arena, &ckpt_op_finite, (ckpt_dtype)x->dtype, &x, 1, NULL, err);
}

ckpt_status ckpt_expr_finite(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_error *err) {
  return ckpt_expr_finite_in(out, &plan->arena, x, err);
}
