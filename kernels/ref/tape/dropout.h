/* dropout.h - factors of dropout by counter, see ckpt_dropout in tape_kernels.h. */
#ifndef CKPT_KERNELS_REF_TAPE_DROPOUT_H
#define CKPT_KERNELS_REF_TAPE_DROPOUT_H

#include "kernels/ref/tape/formulas.h"
#include "kernels/ref/tape/tape_kernels.h"
#include "libckpt/base/philox.h"

/* What four elements from column `quad` * 4 on are multiplied by: 0, or the scale. */
static inline CKPT_DEVICE void dropout_factors(const ckpt_dropout *d, size_t row, size_t position, size_t quad,
                                               uint32_t site, real factors[4]) {
  uint32_t words[4] = {(uint32_t)quad, (uint32_t)position, d->first_row + (uint32_t)row, site};
  philox(words, 1, d->key);
  for (size_t i = 0; i < 4; i++) factors[i] = words[i] < d->threshold ? 0 : (real)d->scale;
}

#endif
