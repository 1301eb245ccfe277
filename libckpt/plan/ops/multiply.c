/* multiply.c - f32 values times one constant, each product rounded to f32: what a file's one scale cannot say of a
 * matrix. Its parameter is the constant, a float. */
#include "libckpt/plan/op.h"

static ckpt_status run_multiply(const ckpt_op_call *call, ckpt_error *err) {
  const float *x = call->args[0], by = *(const float *)call->node->params;
  float *out = call->out;
  (void)err;
  for (uint64_t i = 0; i < call->n_elements; i++) out[i] = x[i] * by;
  return CKPT_OK;
}

const ckpt_op ckpt_op_multiply = {
    .name = "multiply", .rule = CKPT_RULE_FLAT, .is_pointwise = true, .run = run_multiply};
