/* pointwise.h - embedding, bias, activations, addition, rope: see tape_kernels.h. Static, for the file that includes
 * it. */
#ifndef CKPT_KERNELS_REF_TAPE_POINTWISE_H
#define CKPT_KERNELS_REF_TAPE_POINTWISE_H

#include "kernels/ref/tape/dropout.h"
#include "kernels/ref/tape/elements.h"
#include "kernels/ref/tape/tape_kernels.h"

enum { COLUMN_BLOCK = 64 }; /* columns whose sums over rows are held at once */

/* The position of a token. */
static inline size_t position_of(const int32_t *positions, size_t token, size_t length) {
  return positions != NULL ? (size_t)positions[token] : token % length;
}

/* As tape_kernels.h has it. */
static void embedding(const void *args, size_t begin, size_t end) {
  const ckpt_embedding_args *a = args;
  const size_t n = a->n_columns;
  for (size_t t = begin; t < end; t++) {
    real *out = (real *)a->out + t * n;
    const real *row = (const real *)a->table + (size_t)a->ids[t] * n;
    const real *place = a->position_table;
    if (place != NULL) place += position_of(a->positions, t, a->length) * n;
    if (place == NULL)
      memcpy(out, row, n * sizeof *out);
    else
      for (size_t i = 0; i < n; i++) out[i] = row[i] + place[i];
  }
}

/* As tape_kernels.h has it. */
static void embedding_backward(const void *args, size_t begin, size_t end) {
  const ckpt_embedding_args *a = args;
  for (size_t t = 0; t < a->n_tokens; t++) {
    if (a->ids != NULL && a->has_padding && a->ids[t] == a->padding) continue;
    size_t row = a->ids != NULL ? (size_t)a->ids[t] : position_of(a->positions, t, a->length);
    real *restrict to = (real *)a->table + row * a->n_columns;
    const real *restrict from = (const real *)a->out + t * a->n_columns;
    for (size_t i = begin; i < end; i++) to[i] += from[i];
  }
}

/* As tape_kernels.h has it. */
static void bias(const void *args, size_t begin, size_t end) {
  const ckpt_bias_args *a = args;
  const real *restrict from = a->bias;
  for (size_t r = begin; r < end; r++) {
    real *restrict y = (real *)a->y + r * a->stride;
    for (size_t i = 0; i < a->n_columns; i++) y[i] += from[i];
  }
}

/* As tape_kernels.h has it. */
static void bias_backward(const void *args, size_t begin, size_t end) {
  const ckpt_bias_args *a = args;
  for (size_t first = begin; first < end; first += COLUMN_BLOCK) {
    const size_t n = end - first < COLUMN_BLOCK ? end - first : COLUMN_BLOCK;
    real sums[COLUMN_BLOCK] = {0};
    for (size_t r = 0; r < a->n_rows; r++) {
      const real *restrict y = (const real *)a->y + r * a->stride + first;
      for (size_t i = 0; i < n; i++) sums[i] += y[i];
    }
    for (size_t i = 0; i < n; i++) ((real *)a->bias)[first + i] += sums[i];
  }
}

/* As tape_kernels.h has it. */
static void add(const void *args, size_t begin, size_t end) {
  const ckpt_add_args *a = args;
  const real *restrict x = a->x;
  real *restrict y = a->y;
  for (size_t i = begin; i < end; i++) y[i] += x[i];
}

/* ---- dropout -----------------------------------------------------------------------------------------------------
 */

/* As tape_kernels.h has it. */
static void dropout(const void *args, size_t begin, size_t end) {
  const ckpt_dropout_args *a = args;
  for (size_t t = begin; t < end; t++) {
    const real *x = (const real *)a->x + t * a->n_columns;
    real *y = (real *)a->y + t * a->n_columns, factors[4] = {1, 1, 1, 1};
    for (size_t i = 0; i < a->n_columns; i++) {
      if (i % 4 == 0 && a->dropout.threshold != 0)
        dropout_factors(&a->dropout, t / a->length, t % a->length, i / 4, a->dropout.site, factors);
      y[i] = a->adds ? y[i] + x[i] * factors[i % 4] : x[i] * factors[i % 4];
    }
  }
}

/* ---- activations ----------------------------------------------------------------------------------------------------
 */

enum { PART = 256 }; /* elements of a gradient that are made before they are delivered; a multiple of the lanes */

/* Adds values to a gradient, or replaces it; nobody may want it. */
static inline void deliver(real *restrict to, bool adds, const real *restrict values, size_t n) {
  if (to == NULL) return;
  if (!adds)
    memcpy(to, values, n * sizeof *to);
  else
    for (size_t i = 0; i < n; i++) to[i] += values[i];
}

/* Elements of the next part. */
static inline size_t part_of(size_t begin, size_t end) { return end - begin < PART ? end - begin : PART; }

/* Where part of a matrix that may be absent begins. */
static inline real *real_at(void *matrix, size_t at) { return matrix == NULL ? NULL : (real *)matrix + at; }

/* As tape_kernels.h has it. */
static void silu_mul(const void *args, size_t begin, size_t end) {
  const ckpt_activation_args *a = args;
  const real *restrict gate = a->a, *restrict up = a->b;
  real *restrict out = a->out;
  for (size_t i = begin; i < end; i++) out[i] = silu_mul_of(gate[i], up[i]);
}

/* As tape_kernels.h has it. */
static void silu_mul_backward(const void *args, size_t begin, size_t end) {
  const ckpt_activation_args *a = args;
  for (size_t first = begin; first < end; first += PART) {
    const size_t n = part_of(first, end);
    const real *restrict gate = (const real *)a->a + first, *restrict up = (const real *)a->b + first;
    const real *restrict d_out = (const real *)a->d_out + first;
    real d_gate[PART], d_up[PART];
    for (size_t i = 0; i < n; i++) silu_mul_gradients(gate[i], up[i], d_out[i], &d_gate[i], &d_up[i]);
    deliver(real_at(a->d_a, first), a->adds_a, d_gate, n);
    deliver(real_at(a->d_b, first), a->adds_b, d_up, n);
  }
}

/* As tape_kernels.h has it. */
static void gelu(const void *args, size_t begin, size_t end) {
  const ckpt_activation_args *a = args;
  const real *restrict x = a->a;
  real *restrict out = a->out;
  for (size_t i = begin; i < end; i++) out[i] = gelu_of(x[i]);
}

/* As tape_kernels.h has it. */
static void gelu_backward(const void *args, size_t begin, size_t end) {
  const ckpt_activation_args *a = args;
  for (size_t first = begin; first < end; first += PART) {
    const size_t n = part_of(first, end);
    const real *restrict x = (const real *)a->a + first, *restrict d_out = (const real *)a->d_out + first;
    real d_x[PART];
    for (size_t i = 0; i < n; i++) d_x[i] = gelu_gradient(x[i], d_out[i]);
    deliver(real_at(a->d_a, first), a->adds_a, d_x, n);
  }
}

/* As tape_kernels.h has it. */
static void gelu_exact(const void *args, size_t begin, size_t end) {
  const ckpt_activation_args *a = args;
  const real *restrict x = a->a;
  real *restrict out = a->out;
  for (size_t i = begin; i < end; i++) out[i] = gelu_exact_of(x[i]);
}

/* As tape_kernels.h has it. */
static void gelu_exact_backward(const void *args, size_t begin, size_t end) {
  const ckpt_activation_args *a = args;
  for (size_t first = begin; first < end; first += PART) {
    const size_t n = part_of(first, end);
    const real *restrict x = (const real *)a->a + first, *restrict d_out = (const real *)a->d_out + first;
    real d_x[PART];
    for (size_t i = 0; i < n; i++) d_x[i] = gelu_exact_gradient(x[i], d_out[i]);
    deliver(real_at(a->d_a, first), a->adds_a, d_x, n);
  }
}

/* ---- rope -----------------------------------------------------------------------------------------------------------
 */

/* As tape_kernels.h has it. */
static void rope_table(const void *args, size_t begin, size_t end) {
  const ckpt_rope_table_args *a = args;
  const size_t half = a->head_width / 2;
  for (size_t t = begin; t < end; t++) {
    real *cosines = (real *)a->table + t * a->head_width, *sines = cosines + half;
    const float position = (float)position_of(a->positions, t, a->length);
    for (size_t i = 0; i < half; i++) {
      double sine, cosine;
      float angle = position * a->frequencies[i];
      real_sine_cosine(angle, &sine, &cosine);
      cosines[i] = (real)cosine;
      sines[i] = (real)sine;
    }
  }
}

/* As tape_kernels.h has it. */
static void rope(const void *args, size_t begin, size_t end) {
  const ckpt_rope_args *a = args;
  const size_t half = a->head_width / 2, n_columns = a->n_heads * a->head_width;
  const real sign = a->is_inverse ? -1 : 1;
  for (size_t t = begin; t < end; t++) {
    const real *restrict cosines = (const real *)a->table + t * a->head_width, *restrict sines = cosines + half;
    for (size_t head = 0; head < a->n_heads; head++) {
      const real *restrict x = (const real *)a->x + t * n_columns + head * a->head_width;
      real rotated[CKPT_MAX_HEAD_WIDTH];
      for (size_t i = 0; i < half; i++) {
        real first = x[i], second = x[i + half];
        rotate_pair(&first, &second, cosines[i], sign * sines[i]);
        rotated[i] = first, rotated[i + half] = second;
      }
      deliver((real *)a->y + t * n_columns + head * a->head_width, a->adds, rotated, a->head_width);
    }
  }
}

#endif
