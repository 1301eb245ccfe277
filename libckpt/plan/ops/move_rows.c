/* move_rows.c - rows of a matrix put in another order within each of equal parts: as a permutation of axes, but an
 * operation on what has been computed, so that it is computed once for both orders. Blocks stay as they are. */
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/plan/op.h"

static ckpt_status run_move(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_move_params *params = call->node->params;
  const uint64_t n_parts = params->n_parts, n_first = params->n_first, n_second = params->n_second;
  const uint64_t n_chunk = call->node->n_bytes / n_parts / n_first / n_second;
  const uint8_t *in = call->args[0];
  uint8_t *out = call->out;
  (void)err;
  if (call->node->n_elements == 0) return CKPT_OK;
  const uint64_t n = call->n_elements / (call->node->n_elements / n_parts);
  for (uint64_t part = 0; part < n; part++, in += n_first * n_second * n_chunk)
    for (uint64_t j = 0; j < n_second; j++)
      for (uint64_t i = 0; i < n_first; i++, out += n_chunk)
        memcpy(out, in + (i * n_second + j) * n_chunk, (size_t)n_chunk);
  return CKPT_OK;
}

const ckpt_op ckpt_op_move_rows = {.name = "move_rows", .rule = CKPT_RULE_OUTER, .run = run_move};
