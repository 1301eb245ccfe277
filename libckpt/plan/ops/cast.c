/* cast.c - the one node that rounds: to nearest even, by the run's backend, counting what became infinite, clamped or
 * zero. `round` is the cast of a computed tensor to its own dtype, in whose place another cast comes: so what is merged
 * is rounded once, to the dtype that is written (expr.c). */
#include "libckpt/plan/op.h"

static ckpt_status run_cast(const ckpt_op_call *call, ckpt_error *err) {
  (void)err;
  call->backend->cast(call->node->dtype, call->out, call->node->args[0]->dtype, call->args[0], (size_t)call->n_elements,
                      call->stats);
  return CKPT_OK;
}

const ckpt_op ckpt_op_cast = {.name = "cast", .rule = CKPT_RULE_FLAT, .is_pointwise = true, .run = run_cast};
const ckpt_op ckpt_op_round = {.name = "round", .rule = CKPT_RULE_FLAT, .is_pointwise = true, .run = run_cast};
