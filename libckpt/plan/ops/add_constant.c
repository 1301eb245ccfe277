/* add_constant.c - one constant added to f32 values, each sum rounded to f32: norms of models that count from 1. Its
 * parameter is the constant, a float. */
#include "libckpt/plan/op.h"

static ckpt_status run_add(const ckpt_op_call *call, ckpt_error *err) {
  const float *x = call->args[0], by = *(const float *)call->node->params;
  float *out = call->out;
  (void)err;
  for (uint64_t i = 0; i < call->n_elements; i++) out[i] = x[i] + by;
  return CKPT_OK;
}

const ckpt_op ckpt_op_add_constant = {.name = "add", .rule = CKPT_RULE_FLAT, .is_pointwise = true, .run = run_add};
