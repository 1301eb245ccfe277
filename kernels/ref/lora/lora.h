/* lora.h - low-rank updates of rows, as the reference defines them. */
#ifndef CKPT_KERNELS_REF_LORA_LORA_H
#define CKPT_KERNELS_REF_LORA_LORA_H

#include "libckpt/base/backend.h"

/* Columns at a time: what is summed up stays in registers or the nearest cache. */
enum { CKPT_LORA_COLUMNS = 64, CKPT_LORA_LANES = 8 };

/* The reference's updates; see ckpt_backend.lora. */
void ckpt_lora(const ckpt_lora_rows *rows);

/* The sum of CKPT_LORA_LANES partial sums: halves are added to each other. */
static inline double ckpt_lora_join(const double *lanes) {
  const double a = lanes[0] + lanes[4], b = lanes[1] + lanes[5], c = lanes[2] + lanes[6], d = lanes[3] + lanes[7];
  return (a + c) + (b + d);
}

#endif
