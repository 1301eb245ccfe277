/* compare.c - the reduction behind `diff`: in how many bits and by how much two tensors of one shape differ.
 *
 * Arguments are of any dtype. Where both have the same one, equal stretches cost a memcmp and nothing is widened, and
 * differences in bits are counted exactly, whatever the dtype: values beyond 2^53, -0.0 against 0.0, NaN payloads.
 * Partials as in stats.c. The gap between complex values is the distance in the plane. */
#include <math.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/plan/op.h"
#include "libckpt/plan/ops/widen.h"

static void add_value(ckpt_difference *d, const ckpt_tolerance *tolerance, double gap, double size, uint64_t at) {
  if (isnan(gap)) gap = INFINITY;
  double relative = size != 0 && isfinite(size) ? gap / size : INFINITY;
  d->sum_sq += gap * gap;
  if (gap > d->max_abs) d->max_abs = gap;
  if (relative > d->max_rel) d->max_rel = relative;
  if (isfinite(size) && isfinite(gap) && gap <= tolerance->atol + tolerance->rtol * size) return;
  if (d->n_different++ == 0) d->first = at;
}

static bool equals(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void add_reals(ckpt_difference *d, const ckpt_tolerance *tolerance, const double *a, const double *b, size_t n,
                      uint64_t begin) {
  for (size_t i = 0; i < n; i++)
    if (!equals(a[i], b[i])) add_value(d, tolerance, fabs(a[i] - b[i]), fabs(b[i]), begin + i);
}

static void add_complex(ckpt_difference *d, const ckpt_tolerance *tolerance, const double *a, const double *b, size_t n,
                        uint64_t begin) {
  for (size_t i = 0; i < 2 * n; i += 2)
    if (!equals(a[i], b[i]) || !equals(a[i + 1], b[i + 1]))
      add_value(d, tolerance, hypot(a[i] - b[i], a[i + 1] - b[i + 1]), hypot(b[i], b[i + 1]), begin + i / 2);
}

/* Integers that f64 would round: their gap is theirs, not that of their roundings. */
static void add_integers(ckpt_difference *d, const ckpt_tolerance *tolerance, bool is_signed, const uint8_t *a,
                         const uint8_t *b, size_t n, uint64_t begin) {
  for (size_t i = 0; i < n; i++) {
    uint64_t x, y;
    memcpy(&x, a + i * sizeof x, sizeof x);
    memcpy(&y, b + i * sizeof y, sizeof y);
    if (x == y) continue;
    bool is_larger = is_signed ? (int64_t)x > (int64_t)y : x > y;
    double size = is_signed ? fabs((double)(int64_t)y) : (double)y;
    add_value(d, tolerance, (double)(is_larger ? x - y : y - x), size, begin + i);
  }
}

static void add_bit(ckpt_difference *d, uint64_t at) {
  if (d->n_bits++ == 0) d->first_bits = at;
}

/* Elements whose bits differ. Of packed and block dtypes the value's bits say it; where a block has other bytes and no
 * other value (a scale of zero hides what it scales), its first element stands for it. */
static void add_bits(ckpt_difference *d, const ckpt_dtype_row *row, const uint8_t *bytes_a, const uint8_t *bytes_b,
                     const double *a, const double *b, size_t n, uint64_t begin) {
  for (size_t i = 0; i < n; i += row->block_elements, bytes_a += row->block_bytes, bytes_b += row->block_bytes) {
    const uint64_t n_before = d->n_bits;
    if (memcmp(bytes_a, bytes_b, row->block_bytes) == 0) continue;
    for (size_t k = i; k < i + row->block_elements && row->block_elements > 1; k++)
      if (memcmp(&a[k], &b[k], sizeof a[k]) != 0) add_bit(d, begin + k);
    if (d->n_bits == n_before) add_bit(d, begin + i);
  }
}

/* A block of at most CKPT_WIDEN_ELEMENTS that differs, or may. */
static void compare_block(ckpt_difference *d, const ckpt_op_call *call, const uint8_t *at_a, const uint8_t *at_b,
                          size_t n, uint64_t begin) {
  ckpt_dtype dtype_a = call->node->args[0]->dtype, dtype_b = call->node->args[1]->dtype;
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype_a);
  const ckpt_tolerance *tolerance = call->node->params;
  bool is_complex = row->kind == CKPT_KIND_COMPLEX, is_one_dtype = dtype_a == dtype_b;
  double a[CKPT_WIDEN_ELEMENTS], b[CKPT_WIDEN_ELEMENTS];
  ckpt_widen(call->backend, dtype_a, at_a, is_complex ? 2 * n : n, a);
  ckpt_widen(call->backend, dtype_b, at_b, is_complex ? 2 * n : n, b);
  if (is_complex)
    add_complex(d, tolerance, a, b, n, begin);
  else if (is_one_dtype && (dtype_a == CKPT_I64 || dtype_a == CKPT_U64))
    add_integers(d, tolerance, dtype_a == CKPT_I64, at_a, at_b, n, begin);
  else
    add_reals(d, tolerance, a, b, n, begin);
  if (is_one_dtype) add_bits(d, row, at_a, at_b, a, b, n, begin);
}

static void compare_partial(const ckpt_op_call *call, void *partial) {
  const ckpt_dtype_row *row_a = ckpt_dtype_get(call->node->args[0]->dtype);
  const ckpt_dtype_row *row_b = ckpt_dtype_get(call->node->args[1]->dtype);
  size_t step = row_a->kind == CKPT_KIND_COMPLEX ? CKPT_WIDEN_ELEMENTS / 2 : CKPT_WIDEN_ELEMENTS;
  const uint8_t *a = call->args[0], *b = call->args[1];
  ckpt_difference d = {.first = UINT64_MAX, .first_bits = UINT64_MAX, .n = call->n_elements};
  for (uint64_t done = 0; done < call->n_elements; done += step) {
    size_t n = call->n_elements - done < step ? (size_t)(call->n_elements - done) : step;
    size_t n_bytes = n / row_a->block_elements * row_a->block_bytes;
    if (row_a != row_b || memcmp(a, b, n_bytes) != 0) compare_block(&d, call, a, b, n, call->begin + done);
    a += n_bytes;
    b += n / row_b->block_elements * row_b->block_bytes;
  }
  *(ckpt_difference *)partial = d;
}

static void compare_combine(void *value, const void *partial) {
  ckpt_difference *total = value;
  const ckpt_difference *d = partial;
  if (total->n == 0 || total->n_different == 0) total->first = d->first;
  if (total->n == 0 || total->n_bits == 0) total->first_bits = d->first_bits;
  if (d->max_abs > total->max_abs) total->max_abs = d->max_abs;
  if (d->max_rel > total->max_rel) total->max_rel = d->max_rel;
  total->sum_sq += d->sum_sq;
  total->n += d->n;
  total->n_different += d->n_different;
  total->n_bits += d->n_bits;
}

const ckpt_op ckpt_op_compare = {.name = "compare",
                                 .rule = CKPT_RULE_REDUCE,
                                 .value_bytes = sizeof(ckpt_difference),
                                 .partial = compare_partial,
                                 .combine = compare_combine};
