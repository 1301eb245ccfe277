/* optimizer.h - AdamW and sums of squares, see tape_kernels.h. Static, for the file that includes it. */
#ifndef CKPT_KERNELS_REF_TAPE_OPTIMIZER_H
#define CKPT_KERNELS_REF_TAPE_OPTIMIZER_H

#include "kernels/ref/tape/elements.h"

/* As tape_kernels.h has it. */
static inline void adamw(const void *args, size_t begin, size_t end) {
  const ckpt_adamw_args *a = args;
  const adamw_step step = adamw_step_of(a);
  real *restrict w = a->weights, *restrict m = a->exp_avg, *restrict v = a->exp_avg_sq;
  const real *restrict g = a->gradients;
  for (size_t i = begin; i < end; i++) adamw_element(&step, &w[i], &m[i], &v[i], g[i]);
}

/* Doubles in which squares are summed: element i of a block in lane i % 8, then a tree. */
enum { SQUARE_LANES = 8 };

/* The sum of one block. */
static inline double square_sum_of(const real *x, size_t n) {
  double lanes[SQUARE_LANES] = {0};
  size_t i = 0;
  for (; i + SQUARE_LANES <= n; i += SQUARE_LANES)
    for (int k = 0; k < SQUARE_LANES; k++) lanes[k] += (double)x[i + (size_t)k] * (double)x[i + (size_t)k];
  for (int k = 0; i < n; i++, k++) lanes[k] += (double)x[i] * (double)x[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* As tape_kernels.h has it. */
static inline void square_sum(const void *args, size_t begin, size_t end) {
  const ckpt_square_sum_args *a = args;
  for (size_t block = begin; block < end; block++) {
    const size_t first = block * CKPT_SQUARE_BLOCK, n = a->n - first;
    a->sums[block] = square_sum_of((const real *)a->x + first, n < CKPT_SQUARE_BLOCK ? n : CKPT_SQUARE_BLOCK);
  }
}

#endif
