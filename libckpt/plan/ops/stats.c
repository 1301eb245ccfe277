/* stats.c - the reduction behind `ls --stats` and `verify`: range, moments and special values of a tensor of any dtype.
 *
 * Each partial covers at most 2^16 elements in order; partials are combined in index order: the result depends on
 * neither tile nor thread. Of complex values the magnitude counts. */
#include <math.h>

#include "libckpt/base/dtype.h"
#include "libckpt/plan/op.h"
#include "libckpt/plan/ops/widen.h"

/* Adds the moments of n more finite values (Chan, Golub and LeVeque 1979). Means that are farther apart than the range
 * of a double are weighted instead. */
static void add_moments(ckpt_stats *s, double mean, double m2, uint64_t n) {
  if (s->n_finite == 0) {
    s->mean = mean, s->m2 = m2, s->n_finite = n;
    return;
  }
  double n_before = (double)s->n_finite, n_new = (double)n, n_all = n_before + n_new, gap = mean - s->mean;
  s->m2 += m2 + gap * gap * (n_before / n_all * n_new);
  s->mean = isfinite(gap) ? s->mean + gap * (n_new / n_all) : s->mean * (n_before / n_all) + mean * (n_new / n_all);
  s->n_finite += n;
}

/* One buffer's values, counted from its first finite one: what cancels then is at most the buffer's own spread. */
static void add_values(ckpt_stats *s, const double *x, size_t n) {
  double origin = 0, sum = 0, sum_sq = 0, scaled = 0;
  uint64_t n_finite = 0;
  for (size_t i = 0; i < n; i++) {
    double value = x[i];
    if (isnan(value)) {
      s->n_nan++;
    } else if (isinf(value)) {
      s->n_inf++;
    } else {
      if (n_finite++ == 0) origin = value;
      sum += value - origin;
      sum_sq += (value - origin) * (value - origin);
      scaled += value / CKPT_WIDEN_ELEMENTS;
      if (value < s->min) s->min = value;
      if (value > s->max) s->max = value;
      s->n_zero += value == 0;
    }
  }
  if (n_finite == 0) return;
  double count = (double)n_finite, m2 = sum_sq - sum * (sum / count);
  double mean = isfinite(sum) ? origin + sum / count : scaled * (CKPT_WIDEN_ELEMENTS / count);
  add_moments(s, mean, m2 < 0 ? 0 : m2, n_finite);
}

static void stats_partial(const ckpt_op_call *call, void *partial) {
  ckpt_dtype dtype = call->node->args[0]->dtype;
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  bool is_complex = row->kind == CKPT_KIND_COMPLEX;
  size_t step = is_complex ? CKPT_WIDEN_ELEMENTS / 2 : CKPT_WIDEN_ELEMENTS;
  const uint8_t *at = call->args[0];
  double buffer[CKPT_WIDEN_ELEMENTS];
  ckpt_stats s = {.min = INFINITY, .max = -INFINITY, .n = call->n_elements};
  for (uint64_t done = 0; done < call->n_elements; done += step) {
    size_t n = call->n_elements - done < step ? (size_t)(call->n_elements - done) : step;
    ckpt_widen(call->backend, dtype, at, is_complex ? 2 * n : n, buffer);
    for (size_t i = 0; is_complex && i < n; i++) buffer[i] = hypot(buffer[2 * i], buffer[2 * i + 1]);
    add_values(&s, buffer, n);
    at += n / row->block_elements * row->block_bytes;
  }
  *(ckpt_stats *)partial = s;
}

static void stats_combine(void *value, const void *partial) {
  ckpt_stats *total = value;
  const ckpt_stats *s = partial;
  if (s->n_finite != 0) {
    if (total->n_finite == 0 || s->min < total->min) total->min = s->min;
    if (total->n_finite == 0 || s->max > total->max) total->max = s->max;
  }
  if (s->n_finite != 0) add_moments(total, s->mean, s->m2, s->n_finite);
  total->n += s->n;
  total->n_nan += s->n_nan;
  total->n_inf += s->n_inf;
  total->n_zero += s->n_zero;
}

const ckpt_op ckpt_op_stats = {.name = "stats",
                               .rule = CKPT_RULE_REDUCE,
                               .value_bytes = sizeof(ckpt_stats),
                               .partial = stats_partial,
                               .combine = stats_combine};
