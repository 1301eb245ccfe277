/* dropout.h - dropout by counter, see ckpt_dropout in tape_kernels.h. Static, for the file that includes it. */
#ifndef CKPT_KERNELS_REF_TAPE_DROPOUT_H
#define CKPT_KERNELS_REF_TAPE_DROPOUT_H

#include "kernels/ref/tape/formulas.h"
#include "kernels/ref/tape/philox.h"
#include "kernels/ref/tape/tape_kernels.h"

/* What four elements from column `quad` * 4 on are multiplied by: 0, or the scale. */
static inline void dropout_factors(const ckpt_dropout *d, size_t row, size_t position, size_t quad, uint32_t site,
                                   real factors[4]) {
  uint32_t words[4] = {(uint32_t)quad, (uint32_t)position, d->first_row + (uint32_t)row, site};
  philox(words, 1, d->key);
  for (size_t i = 0; i < 4; i++) factors[i] = words[i] < d->threshold ? 0 : (real)d->scale;
}

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

#endif
