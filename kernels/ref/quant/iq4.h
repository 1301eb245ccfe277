/* iq4.h - private to kernels: IQ4_NL and IQ4_XS: codes of four bits for sixteen values that are not evenly
 * spaced.
 *
 *   IQ4_NL  f16 d | 16 bytes of codes: element j low, j + 16 high; 32 elements
 *   IQ4_XS  f16 d | u16 upper two bits of 8 scales | 4 bytes: their lower four bits | 8 times 16 bytes of codes; 256
 *
 * x is d * value[code], or d * (scale - 32) * value[code]. */
#ifndef CKPT_KERNELS_REF_QUANT_IQ4_H
#define CKPT_KERNELS_REF_QUANT_IQ4_H

#include "kernels/ref/quant/quant.h"

/* Elements of a sub-block, and scales tried on each side. */
enum { CKPT_IQ4_SUB = 32, CKPT_IQ4_STEPS = 7 };

/* What the codes stand for. */
static const int8_t ckpt_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* The nearest value's code; of two as near the greater. */
static inline int ckpt_iq4_code(float x) {
  int low = 0, high = 15;
  if (x <= (float)ckpt_iq4_values[0]) return 0;
  if (x >= (float)ckpt_iq4_values[15]) return 15;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (x < (float)ckpt_iq4_values[middle])
      high = middle;
    else
      low = middle;
  }
  return x - (float)ckpt_iq4_values[high - 1] < (float)ckpt_iq4_values[high] - x ? high - 1 : high;
}

/* The codes of a sub-block. */
static inline void ckpt_iq4_put_codes(uint8_t *dst, const float *x, float inverse) {
  for (int j = 0; j < CKPT_IQ4_SUB / 2; j++)
    dst[j] = (uint8_t)(ckpt_iq4_code(inverse * x[j]) | ckpt_iq4_code(inverse * x[j + CKPT_IQ4_SUB / 2]) << 4);
}

/* Writes a block of IQ4_XS with these scales of its sub-blocks. */
static inline void ckpt_iq4_finish_xs(uint8_t *dst, const float *x, const float *scales) {
  float d = -ckpt_extreme(scales, 8) / 32, inverse = d != 0 ? 1 / d : 0;
  uint32_t high = 0;
  memset(dst, 0, 8);
  for (int ib = 0; ib < 8; ib++) {
    int scale = ckpt_clamp(ckpt_nearest(inverse * scales[ib]), -32, 31);
    float product = d * (float)scale;
    ckpt_iq4_put_codes(dst + 8 + 16 * ib, x + CKPT_IQ4_SUB * ib, product != 0 ? 1 / product : 0);
    dst[4 + ib / 2] |= (uint8_t)(((scale + 32) & 15) << 4 * (ib % 2));
    high |= (uint32_t)(scale + 32) >> 4 << 2 * ib;
  }
  ckpt_put_f16(dst, d);
  ckpt_put_u16(dst + 2, high);
}

#endif
