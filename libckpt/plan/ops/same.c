/* same.c - passes its first argument through and fails the run where the second differs from it, bit for bit. */
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/op.h"

static ckpt_status run_same(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_dtype_row *row = ckpt_dtype_get(call->node->dtype);
  const uint8_t *a = call->args[0], *b = call->args[1];
  size_t n_units = (size_t)(call->n_elements / row->block_elements), n_bytes = n_units * row->block_bytes;
  if (memcmp(a, b, n_bytes) != 0) {
    size_t unit = 0;
    while (memcmp(a + unit * row->block_bytes, b + unit * row->block_bytes, row->block_bytes) == 0) unit++;
    return ckpt_fail(err, CKPT_EDIFFERENT, NULL, NULL, "two copies that must be equal differ (first at element %llu)",
                     (unsigned long long)(call->begin + unit * row->block_elements));
  }
  memcpy(call->out, a, n_bytes);
  return CKPT_OK;
}

const ckpt_op ckpt_op_same = {.name = "same", .rule = CKPT_RULE_FLAT, .run = run_same};
