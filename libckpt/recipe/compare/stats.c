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

double ckpt_stats_mean(const ckpt_stats *stats) {
  return stats->n_finite == 0 ? NAN : stats->sum / (double)stats->n_finite;
}

double ckpt_stats_std(const ckpt_stats *stats) {
  double mean = ckpt_stats_mean(stats), variance = stats->sum_sq / (double)stats->n_finite - mean * mean;
  if (stats->n_finite == 0 || !isfinite(variance)) return NAN;
  return variance > 0 ? sqrt(variance) : 0;
}
