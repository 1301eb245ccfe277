/* mean.c - the mean of f32 values, as DeepSpeed's ds_to_universal has torch compute it: sum(slices) / len(slices).
 *
 * Python's sum begins with 0, so that of nothing but -0.0 it makes 0.0; slices are added in their order, each addition
 * rounded to f32; one division by their number ends it. What compilers and processors do with NaN differs: here it is
 * the first of the slices', made quiet, and where infinities cancel that of x86. */
#include <string.h>

#include "libckpt/plan/op.h"

/* a + b, of which one is NaN, or which cancel. */
static float not_a_number(float a, float b) {
  uint32_t bits = UINT32_C(0xFFC00000);
  if (b != b) memcpy(&bits, &b, sizeof bits);
  if (a != a) memcpy(&bits, &a, sizeof bits);
  bits |= UINT32_C(0x00400000);
  memcpy(&a, &bits, sizeof a);
  return a;
}

static void add(float *sum, const float *slice, size_t n, bool is_first) {
  for (size_t i = 0; i < n; i++) {
    const float a = is_first ? 0 : sum[i], total = a + slice[i];
    sum[i] = total == total ? total : not_a_number(a, slice[i]);
  }
}

static ckpt_status run_mean(const ckpt_op_call *call, ckpt_error *err) {
  const size_t n = (size_t)call->n_elements;
  (void)err;
  for (uint32_t i = 0; i < call->node->n_args; i++) add(call->out, call->args[i], n, i == 0);
  const float divisor = (float)call->node->n_args;
  for (size_t i = 0; i < n; i++) ((float *)call->out)[i] /= divisor;
  return CKPT_OK;
}

const ckpt_op ckpt_op_mean = {.name = "mean", .rule = CKPT_RULE_FLAT, .is_pointwise = true, .run = run_mean};
