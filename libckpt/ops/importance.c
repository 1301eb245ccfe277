/* importance.c - sums of squares over counts: what an importance matrix says about each channel.
 *
 * Arguments: sums (f32) and counts, whole; as many equal shares of the sums as there are counts. Counts in f32 are
 * those of a GGUF importance matrix: an expert that no token reached has 1 throughout. One in i32 is that of an older
 * file, whose sums stand as they are where nothing was counted. Both as llama-quantize reads them. */
#include <math.h>

#include "libckpt/error.h"
#include "libckpt/op.h"

static ckpt_status run_importance(const ckpt_op_call *call, ckpt_error *err) {
  const bool is_old = call->node->args[1]->dtype == CKPT_I32;
  const uint64_t n_share = call->node->n_elements / call->n_elements_of[1];
  const float *sums = call->args[0];
  float *out = call->out;
  for (uint64_t i = 0; i < call->n_elements; i++) {
    const uint64_t share = (call->begin + i) / n_share;
    const float count =
        is_old ? (float)((const int32_t *)call->args[1])[share] : roundf(((const float *)call->args[1])[share]);
    out[i] = count > 0 ? sums[i] / count : is_old ? sums[i] : 1;
    if (!isfinite(out[i]))
      return ckpt_fail(err, CKPT_EVALUE, NULL, NULL,
                       "the importance of channel %llu is no finite number (%g over a count of %g)",
                       (unsigned long long)(call->begin + i), (double)sums[i], (double)count);
  }
  return CKPT_OK;
}

const ckpt_op ckpt_op_importance = {
    .name = "importance", .rule = CKPT_RULE_FLAT, .whole_args = 2, .run = run_importance};
