/* rows.h - what sums along a row: norms and the loss, see tape_kernels.h. Static, for the file that includes it. */
#ifndef CKPT_KERNELS_REF_TAPE_ROWS_H
#define CKPT_KERNELS_REF_TAPE_ROWS_H

#include "kernels/ref/tape/pointwise.h"

/* Sum of x: sixteen lanes and a tree. */
static inline real sum_of(const real *x, size_t n) {
  real sums[N_LANES] = {0};
  add_to_lanes(sums, x, n);
  return total_of_lanes(sums);
}

/* Sum of x * y in the same way. */
static inline real sum_of_products(const real *x, const real *y, size_t n) {
  real sums[N_LANES] = {0};
  size_t i = 0;
  for (; i + N_LANES <= n; i += N_LANES)
    for (size_t j = 0; j < N_LANES; j++) sums[j] += x[i + j] * y[i + j];
  for (size_t j = 0; i < n; i++, j++) sums[j] += x[i] * y[i];
  return total_of_lanes(sums);
}

/* Sum of (x - mean)^2 in the same way. */
static inline real sum_of_deviations(const real *x, real mean, size_t n) {
  real sums[N_LANES] = {0};
  size_t i = 0;
  for (; i + N_LANES <= n; i += N_LANES)
    for (size_t j = 0; j < N_LANES; j++) sums[j] += (x[i + j] - mean) * (x[i + j] - mean);
  for (size_t j = 0; i < n; i++, j++) sums[j] += (x[i] - mean) * (x[i] - mean);
  return total_of_lanes(sums);
}

/* x, or x + residual, which is then kept. */
static inline const real *row_to_normalize(const ckpt_norm_args *a, size_t row) {
  const size_t n = a->n_columns;
  const real *restrict x = (const real *)a->x + row * n;
  if (a->residual == NULL) return x;
  const real *restrict residual = (const real *)a->residual + row * n;
  real *restrict sum = (real *)a->sum + row * n;
  for (size_t i = 0; i < n; i++) sum[i] = x[i] + residual[i];
  return sum;
}

/* As tape_kernels.h has it. */
static void rmsnorm(const void *args, size_t begin, size_t end) {
  const ckpt_norm_args *a = args;
  const size_t n = a->n_columns;
  const real *restrict weight = a->weight;
  for (size_t r = begin; r < end; r++) {
    const real *x = row_to_normalize(a, r);
    real *restrict y = (real *)a->y + r * n;
    const real inverse = norm_inverse(sum_of_products(x, x, n), (real)n, (real)a->epsilon);
    ((real *)a->inverse)[r] = inverse;
    for (size_t i = 0; i < n; i++) y[i] = rmsnorm_of(x[i], inverse, weight[i]);
  }
}

/* As tape_kernels.h has it. */
static void layernorm(const void *args, size_t begin, size_t end) {
  const ckpt_norm_args *a = args;
  const size_t n = a->n_columns;
  const real *restrict weight = a->weight, *restrict shift = a->bias;
  for (size_t r = begin; r < end; r++) {
    const real *x = row_to_normalize(a, r);
    real *restrict y = (real *)a->y + r * n;
    const real mean = sum_of(x, n) / (real)n;
    const real inverse = norm_inverse(sum_of_deviations(x, mean, n), (real)n, (real)a->epsilon);
    ((real *)a->mean)[r] = mean;
    ((real *)a->inverse)[r] = inverse;
    for (size_t i = 0; i < n; i++) y[i] = layernorm_of(x[i], mean, inverse, weight[i], shift[i]);
  }
}

/* What came through the norm, and through the sum: to x and to the residual alike. */
static inline void give_sum(const ckpt_norm_backward_args *a, size_t at, real *restrict values, size_t n) {
  const real *restrict d_sum = real_at((void *)(uintptr_t)a->d_sum, at);
  for (size_t i = 0; i < n && d_sum != NULL; i++) values[i] += d_sum[i];
  deliver(real_at(a->d_x, at), a->adds_x, values, n);
  deliver(real_at(a->d_residual, at), a->adds_residual, values, n);
}

/* Sums of d_y * weight * normal and of d_y * weight over a row, where normal is (x - mean) * inverse. */
static inline void norm_sums(const real *restrict x, const real *restrict d_y, const real *restrict weight, size_t n,
                             real mean, real inverse, real *tilt, real *shift) {
  real sums[N_LANES] = {0}, slopes[N_LANES] = {0};
  for (size_t first = 0; first < n; first += PART) {
    const size_t count = part_of(first, n);
    real g[PART], products[PART];
    for (size_t i = 0; i < count; i++) {
      g[i] = d_y[first + i] * weight[first + i];
      products[i] = g[i] * ((x[first + i] - mean) * inverse);
    }
    add_to_lanes(sums, g, count);
    add_to_lanes(slopes, products, count);
  }
  *tilt = total_of_lanes(slopes) / (real)n;
  *shift = total_of_lanes(sums) / (real)n;
}

/* Both norms: rmsnorm's mean and shift are 0. */
static inline void norm_backward(const ckpt_norm_backward_args *a, size_t row, real mean, bool has_shift) {
  const size_t n = a->n_columns;
  const real *restrict weight = a->weight;
  const real *x = (const real *)a->x + row * n, *d_y = (const real *)a->d_y + row * n;
  const real inverse = ((const real *)a->inverse)[row];
  real tilt, shift;
  norm_sums(x, d_y, weight, n, mean, inverse, &tilt, &shift);
  if (!has_shift) shift = 0;
  for (size_t first = 0; first < n; first += PART) {
    const size_t count = part_of(first, n);
    real values[PART];
    for (size_t i = 0; i < count; i++)
      values[i] = norm_gradient(x[first + i], mean, inverse, d_y[first + i] * weight[first + i], shift, tilt);
    give_sum(a, row * n + first, values, count);
  }
}

/* As tape_kernels.h has it. */
static void rmsnorm_backward(const void *args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; r++) norm_backward(args, r, 0, false);
}

/* As tape_kernels.h has it. */
static void layernorm_backward(const void *args, size_t begin, size_t end) {
  const ckpt_norm_backward_args *a = args;
  for (size_t r = begin; r < end; r++) norm_backward(a, r, ((const real *)a->mean)[r], true);
}

/* Sums over rows, in their order, of d_y * normal and of d_y, for columns [first, first + n). */
static inline void norm_weights(const ckpt_norm_backward_args *a, size_t first, size_t n) {
  real weights[COLUMN_BLOCK] = {0}, shifts[COLUMN_BLOCK] = {0};
  for (size_t r = 0; r < a->n_tokens; r++) {
    const real *restrict x = (const real *)a->x + r * a->n_columns + first;
    const real *restrict d_y = (const real *)a->d_y + r * a->n_columns + first;
    const real inverse = ((const real *)a->inverse)[r], mean = a->mean == NULL ? 0 : ((const real *)a->mean)[r];
    for (size_t i = 0; i < n; i++) {
      weights[i] += d_y[i] * ((x[i] - mean) * inverse);
      shifts[i] += d_y[i];
    }
  }
  for (size_t i = 0; i < n && a->d_weight != NULL; i++) ((real *)a->d_weight)[first + i] += weights[i];
  for (size_t i = 0; i < n && a->d_bias != NULL; i++) ((real *)a->d_bias)[first + i] += shifts[i];
}

/* As tape_kernels.h has it. */
static void layernorm_weights(const void *args, size_t begin, size_t end) {
  for (size_t first = begin; first < end; first += COLUMN_BLOCK)
    norm_weights(args, first, end - first < COLUMN_BLOCK ? end - first : COLUMN_BLOCK);
}

/* As tape_kernels.h has it. */
static void rmsnorm_weights(const void *args, size_t begin, size_t end) { layernorm_weights(args, begin, end); }

/* ---- loss -----------------------------------------------------------------------------------------------------------
 */

/* In each of n lanes the greater one; a NaN of x is passed over. */
static inline void keep_greater(real *restrict most, const real *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) most[i] = x[i] > most[i] ? x[i] : most[i];
}

/* The greatest element; a NaN is passed over (it comes back through the sum). */
static inline real greatest_of(const real *x, size_t n) {
  enum { CHAINS = 4 * N_LANES }; /* each waits for itself */
  real most[CHAINS], greatest = -REAL_INFINITY;
  size_t i = 0;
  for (size_t j = 0; j < CHAINS; j++) most[j] = -REAL_INFINITY;
  for (; i + CHAINS <= n; i += CHAINS) keep_greater(most, x + i, CHAINS);
  keep_greater(most, x + i, n - i);
  for (size_t j = 0; j < CHAINS; j++) greatest = most[j] > greatest ? most[j] : greatest;
  return greatest;
}

/* Sum of exp(x - most); keeps them in x where has_gradient. */
static inline real sum_of_exponentials(real *x, size_t n, real most, bool has_gradient) {
  real sums[N_LANES] = {0}, exponentials[PART];
  for (size_t first = 0; first < n; first += PART) {
    const size_t count = part_of(first, n);
    for (size_t i = 0; i < count; i++) exponentials[i] = real_exp(x[first + i] - most);
    if (has_gradient) memcpy(x + first, exponentials, count * sizeof *x);
    add_to_lanes(sums, exponentials, count);
  }
  return total_of_lanes(sums);
}

/* Sum of x - most. */
static inline real sum_of_distances(const real *x, size_t n, real most) {
  real sums[N_LANES] = {0}, distances[PART];
  for (size_t first = 0; first < n; first += PART) {
    const size_t count = part_of(first, n);
    for (size_t i = 0; i < count; i++) distances[i] = x[first + i] - most;
    add_to_lanes(sums, distances, count);
  }
  return total_of_lanes(sums);
}

/* As tape_kernels.h has it. */
static void loss(const void *args, size_t begin, size_t end) {
  const ckpt_loss_args *a = args;
  const size_t n = a->n_columns;
  for (size_t r = begin; r < end; r++) {
    real *x = (real *)a->logits + r * n, *out = (real *)a->log_probability + r;
    if (a->targets[r] < 0) {
      *out = 0;
      if (a->has_gradient) memset(x, 0, n * sizeof *x);
      continue;
    }
    const real most = greatest_of(x, n), target = x[a->targets[r]];
    const real mean = a->smoothing == 0 ? 0 : sum_of_distances(x, n, most) / (real)n;
    const real total = sum_of_exponentials(x, n, most, a->has_gradient);
    *out = smoothed_log(a->smoothing, target - most, mean, real_log(total));
    if (!a->has_gradient) continue;
    const real factor = (real)a->scale / total, each = smoothed_share(a->scale, a->smoothing, n);
    for (size_t i = 0; i < n; i++) x[i] = x[i] * factor - each;
    x[a->targets[r]] -= smoothed_rest(a->scale, a->smoothing);
  }
}

#endif
