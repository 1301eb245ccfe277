/* stats.c - see stats.h. */
#include "libckpt/recipe/compare/stats.h"

#include <math.h>

#include "libckpt/base/error.h"

ckpt_status ckpt_stats_add(ckpt_plan *plan, const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_stats **out,
                           ckpt_error *err) {
  ckpt_expr *read, *reduction;
  const void *value;
  CKPT_TRY(ckpt_expr_read(&read, plan, index, tensor, err));
  CKPT_TRY(ckpt_expr_apply(&reduction, plan, &ckpt_op_stats, CKPT_F64, &read, 1, NULL, err));
  CKPT_TRY(ckpt_plan_reduce(plan, tensor->name, reduction, &value, err));
  *out = value;
  return CKPT_OK;
}

double ckpt_stats_mean(const ckpt_stats *stats) { return stats->n_finite == 0 ? NAN : stats->mean; }

double ckpt_stats_std(const ckpt_stats *stats) {
  double variance = stats->m2 / (double)stats->n_finite;
  return stats->n_finite == 0 || !isfinite(variance) ? NAN : sqrt(variance);
}
