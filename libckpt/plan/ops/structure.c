/* structure.c - reads, and slice, permute, reshape and concat as operations in memory.
 *
 * lower.c folds almost all of these into views of reads and into pieces; what it cannot fold runs here, on whole
 * buffers (or, for a concat along an inner axis, on whole blocks below the axes before it). */
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/extents/place.h"
#include "libckpt/plan/op.h"

static uint32_t units_of(const ckpt_expr *node, uint64_t *units) {
  return ckpt_unit_shape(node->dtype, node->rank, node->shape, node->n_elements, units);
}

static ckpt_status run_slice(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_slice_params *params = call->node->params;
  const ckpt_expr *x = call->node->args[0];
  const ckpt_dtype_row *row = ckpt_dtype_get(x->dtype);
  uint64_t units[CKPT_MAX_RANK], start[CKPT_MAX_RANK] = {0}, count[CKPT_MAX_RANK];
  uint32_t rank = units_of(x, units);
  uint32_t block = params->axis + 1 == x->rank ? row->block_elements : 1;
  if (rank != x->rank || params->start % block != 0 || params->count % block != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a slice cuts a block of %s", row->name);
  memcpy(count, units, sizeof count);
  start[params->axis] = params->start / block;
  count[params->axis] = params->count / block;
  ckpt_place_memory(call->args[0], row->block_bytes, rank, units, start, count, 0,
                    call->n_elements / row->block_elements, call->out);
  return CKPT_OK;
}

static ckpt_status run_permute(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_order_params *params = call->node->params;
  const ckpt_expr *x = call->node->args[0];
  const ckpt_dtype_row *row = ckpt_dtype_get(x->dtype);
  uint64_t units[CKPT_MAX_RANK];
  uint32_t rank = units_of(x, units);
  if (rank != x->rank || (row->block_elements > 1 && params->order[rank - 1] != rank - 1))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a permutation cuts blocks of %s", row->name);
  static const uint64_t zeros[CKPT_MAX_RANK];
  ckpt_view_copy(call->args[0], call->out, rank, units, zeros, units, params->order, row->block_bytes);
  return CKPT_OK;
}

static ckpt_status run_reshape(const ckpt_op_call *call, ckpt_error *err) {
  (void)err;
  memcpy(call->out, call->args[0], call->node->n_bytes);
  return CKPT_OK;
}

/* Interleaves the arguments' blocks: everything from the concat axis inward is one run per argument. */
static ckpt_status run_concat(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_axis_params *params = call->node->params;
  const ckpt_dtype_row *row = ckpt_dtype_get(call->node->dtype);
  uint64_t inner = 1;
  for (uint32_t axis = params->axis; axis < call->node->rank; axis++) inner *= call->node->shape[axis];
  uint64_t n_outer = inner == 0 ? 0 : call->n_elements / inner;
  uint8_t *out = call->out;
  for (uint64_t outer = 0; outer < n_outer; outer++)
    for (uint32_t i = 0; i < call->node->n_args; i++) {
      uint64_t n_elements = call->n_elements_of[i] / n_outer;
      if (n_elements % row->block_elements != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a concat cuts a block of %s", row->name);
      size_t n_bytes = (size_t)(n_elements / row->block_elements * row->block_bytes);
      memcpy(out, (const uint8_t *)call->args[i] + outer * n_bytes, n_bytes);
      out += n_bytes;
    }
  return CKPT_OK;
}

const ckpt_op ckpt_op_read = {.name = "read", .rule = CKPT_RULE_READ};
const ckpt_op ckpt_op_memory = {.name = "memory", .rule = CKPT_RULE_READ};
const ckpt_op ckpt_op_slice = {.name = "slice", .rule = CKPT_RULE_STRUCTURE, .run = run_slice};
const ckpt_op ckpt_op_permute = {.name = "permute", .rule = CKPT_RULE_STRUCTURE, .run = run_permute};
const ckpt_op ckpt_op_reshape = {.name = "reshape", .rule = CKPT_RULE_STRUCTURE, .run = run_reshape};
const ckpt_op ckpt_op_concat = {.name = "concat", .rule = CKPT_RULE_OUTER, .run = run_concat};
