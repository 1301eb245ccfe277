/* importance.c - sums of squares over counts: what an importance matrix says about each channel.
 *
 * Arguments: sums (f32) and counts, whole; as many equal shares of the sums as there are counts. Counts in f32 are
 * those of a GGUF importance matrix: an expert that no token reached has 1 throughout. One in i32 is that of an older
 * file, whose sums stand as they are where nothing was counted. Both as llama-quantize reads them.
 * What is negative, not finite or nothing at all is refused: it would spoil the weights without a word. */
#include <math.h>

#include "libckpt/base/error.h"
#include "libckpt/index/index.h"
#include "libckpt/plan/op.h"

/* Channels of one share, all of which are there. All zero, importance would make zeros of every weight. */
static ckpt_status check_share(const float *importance, uint64_t n, uint64_t share, ckpt_error *err) {
  bool has_weight = false;
  for (uint64_t i = 0; i < n; i++) {
    has_weight = has_weight || importance[i] > 0;
    if (!isfinite(importance[i]) || importance[i] < 0)
      return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "the importance of channel %llu of matrix %llu is %g",
                       (unsigned long long)i, (unsigned long long)share, (double)importance[i]);
  }
  if (has_weight) return CKPT_OK;
  return ckpt_fail(err, CKPT_EVALUE, NULL, NULL,
                   "no channel of matrix %llu has any importance: every weight would become 0",
                   (unsigned long long)share);
}

static ckpt_status weigh(const ckpt_op_call *call, ckpt_error *err) {
  const bool is_old = call->node->args[1]->dtype == CKPT_I32;
  const uint64_t n_shares = call->n_elements_of[1], n_share = call->node->n_elements / n_shares;
  const float *sums = call->args[0];
  float *out = call->out;
  for (uint64_t share = 0; share < n_shares; share++, sums += n_share, out += n_share) {
    const float count =
        is_old ? (float)((const int32_t *)call->args[1])[share] : roundf(((const float *)call->args[1])[share]);
    if (!isfinite(count) || count < 0)
      return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "the importance of matrix %llu counts %g tokens",
                       (unsigned long long)share, (double)count);
    for (uint64_t i = 0; i < n_share; i++) out[i] = count > 0 ? sums[i] / count : is_old ? sums[i] : 1;
    CKPT_TRY(check_share(out, n_share, share, err));
  }
  return CKPT_OK;
}

/* The fault is the importance matrix's, not the model's. */
static ckpt_status run_importance(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_index *matrix = call->node->args[0]->index;
  return ckpt_fail_at(weigh(call, err), err, matrix != NULL ? matrix->path : NULL, NULL);
}

const ckpt_op ckpt_op_importance = {
    .name = "importance", .rule = CKPT_RULE_WHOLE, .whole_args = 3, .run = run_importance};
