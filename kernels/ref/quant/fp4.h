/* fp4.h - private to kernels: MXFP4 and NVFP4: four-bit floats (e2m1) under a scale of eight bits.
 *
 *   MXFP4  u8 exponent e | 16 bytes of codes: element j low, j + 16 high; 32 elements, scale 2^(e - 127)
 *   NVFP4  4 scales (e4m3 without sign) | 4 times 8 bytes of codes: element j low, j + 8 high; 64 elements
 *
 * As ggml has it, values are twice those of e2m1 (integers up to 12) and scales half of what the formats say. */
#ifndef CKPT_KERNELS_REF_QUANT_FP4_H
#define CKPT_KERNELS_REF_QUANT_FP4_H

#include "kernels/ref/quant/quant.h"

/* What the codes stand for. */
static const int8_t ckpt_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Half of 2^(e - 127). */
static inline float ckpt_fp4_mx_scale(uint8_t e) {
  return ckpt_float_from_bits(e < 2 ? UINT32_C(0x200000) << e : (uint32_t)(e - 1) << 23);
}

#endif
