/* stats.c - reductions over f64 values: what `ls --stats` and `verify` report, and what `diff` measures.
 *
 * Arguments are f64 (casts in front of them are exact for every floating dtype). Each partial covers at most 2^16
 * elements in order; partials are combined in index order: the result depends on neither tile nor thread. */
#include <math.h>

#include "libckpt/op.h"

static void stats_partial(const ckpt_op_call *call, void *partial) {
  const double *x = call->args[0];
  ckpt_stats s = {.min = INFINITY, .max = -INFINITY};
  for (uint64_t i = 0; i < call->n_elements; i++) {
    double value = x[i];
    if (isnan(value)) {
      s.n_nan++;
    } else if (isinf(value)) {
      s.n_inf++;
    } else {
      s.sum += value;
      s.sum_sq += value * value;
      if (value < s.min) s.min = value;
      if (value > s.max) s.max = value;
      s.n_zero += value == 0;
      s.n_finite++;
    }
  }
  s.n = call->n_elements;
  *(ckpt_stats *)partial = s;
}

static void stats_combine(void *value, const void *partial) {
  ckpt_stats *total = value;
  const ckpt_stats *s = partial;
  if (s->n_finite != 0) {
    if (total->n_finite == 0 || s->min < total->min) total->min = s->min;
    if (total->n_finite == 0 || s->max > total->max) total->max = s->max;
  }
  total->sum += s->sum;
  total->sum_sq += s->sum_sq;
  total->n += s->n;
  total->n_nan += s->n_nan;
  total->n_inf += s->n_inf;
  total->n_zero += s->n_zero;
  total->n_finite += s->n_finite;
}

static void compare_partial(const ckpt_op_call *call, void *partial) {
  const double *a = call->args[0], *b = call->args[1];
  const ckpt_tolerance *tolerance = call->node->params;
  ckpt_difference d = {.first = UINT64_MAX, .n = call->n_elements};
  for (uint64_t i = 0; i < call->n_elements; i++) {
    if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) continue;
    double gap = fabs(a[i] - b[i]);
    if (isnan(gap)) gap = INFINITY;
    double relative = b[i] != 0 && isfinite(b[i]) ? gap / fabs(b[i]) : INFINITY;
    d.sum_sq += gap * gap;
    if (gap > d.max_abs) d.max_abs = gap;
    if (relative > d.max_rel) d.max_rel = relative;
    if (isfinite(b[i]) && gap <= tolerance->atol + tolerance->rtol * fabs(b[i])) continue;
    if (d.n_different++ == 0) d.first = call->begin + i;
  }
  *(ckpt_difference *)partial = d;
}

static void compare_combine(void *value, const void *partial) {
  ckpt_difference *total = value;
  const ckpt_difference *d = partial;
  if (total->n == 0 || (total->n_different == 0 && d->n_different != 0)) total->first = d->first;
  if (d->max_abs > total->max_abs) total->max_abs = d->max_abs;
  if (d->max_rel > total->max_rel) total->max_rel = d->max_rel;
  total->sum_sq += d->sum_sq;
  total->n += d->n;
  total->n_different += d->n_different;
}

const ckpt_op ckpt_op_stats = {.name = "stats",
                               .rule = CKPT_RULE_REDUCE,
                               .value_bytes = sizeof(ckpt_stats),
                               .partial = stats_partial,
                               .combine = stats_combine};
const ckpt_op ckpt_op_compare = {.name = "compare",
                                 .rule = CKPT_RULE_REDUCE,
                                 .value_bytes = sizeof(ckpt_difference),
                                 .partial = compare_partial,
                                 .combine = compare_combine};
