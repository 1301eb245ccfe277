/* legacy.h - private to kernels: blocks of 32 with one scale, and some with a minimum.
 *
 *   Q4_0  f16 d                | 16 bytes of codes: element j in the low, j + 16 in the high four bits
 *   Q4_1  f16 d, f16 min       | the same
 *   Q5_0  f16 d                | u32 fifth bits: bit j of element j | 16 bytes of low four bits
 *   Q5_1  f16 d, f16 min       | the same
 *   Q8_0  f16 d                | 32 signed bytes
 *   Q8_1  f16 d, f16 d * sum   | 32 signed bytes; only intermediate in ggml, here only read
 *
 * x is d * (code - 8), d * code + min, d * (code - 16), d * code + min, d * code, d * code. */
#ifndef CKPT_KERNELS_REF_QUANT_LEGACY_H
#define CKPT_KERNELS_REF_QUANT_LEGACY_H

#include "kernels/ref/quant/quant.h"

/* Elements of a block. */
enum { CKPT_LEGACY = 32 };

/* What tells those of four and five bits apart. */
typedef struct ckpt_legacy_layout {
  int bits;
  bool has_min;
} ckpt_legacy_layout;

/* The four. */
static const ckpt_legacy_layout ckpt_q4_0 = {4, false}, ckpt_q4_1 = {4, true}, ckpt_q5_0 = {5, false},
                                ckpt_q5_1 = {5, true};

/* Size of a block. */
static inline size_t ckpt_legacy_block_bytes(ckpt_legacy_layout t) {
  return (t.has_min ? 4 : 2) + (t.bits == 5 ? 4 : 0) + CKPT_LEGACY / 2;
}

/* The codes of a block. */
static inline void ckpt_legacy_pack(ckpt_legacy_layout t, uint8_t *dst, const uint8_t *codes) {
  uint8_t *at = dst + (t.has_min ? 4 : 2);
  if (t.bits == 5) {
    uint32_t high = 0;
    for (int j = 0; j < CKPT_LEGACY; j++) high |= (uint32_t)(codes[j] >> 4 & 1) << j;
    ckpt_put_u32(at, high);
    at += 4;
  }
  for (int j = 0; j < CKPT_LEGACY / 2; j++) at[j] = (uint8_t)((codes[j] & 15) | (codes[j + CKPT_LEGACY / 2] & 15) << 4);
}

/* As above. */
static inline void ckpt_legacy_unpack(ckpt_legacy_layout t, int *codes, const uint8_t *src) {
  const uint8_t *at = src + (t.has_min ? 4 : 2);
  uint32_t high = 0;
  if (t.bits == 5) {
    high = ckpt_le32(at);
    at += 4;
  }
  for (int j = 0; j < CKPT_LEGACY; j++)
    codes[j] = (j < CKPT_LEGACY / 2 ? at[j] & 15 : at[j - CKPT_LEGACY / 2] >> 4) | (int)(high >> j & 1) << 4;
}

/* The block of x where its elements count by weights. */
static inline void ckpt_legacy_quantize_weighted(ckpt_legacy_layout t, uint8_t *dst, const float *x,
                                                 const float *weights) {
  static const ckpt_quant_steps steps = {-0.9f, 0.05f, 36, false};
  uint8_t codes[CKPT_LEGACY];
  if (t.has_min) {
    float min;
    ckpt_put_f16(dst, ckpt_quant_affine(CKPT_LEGACY, (1 << t.bits) - 1, x, weights, &steps, codes, &min));
    ckpt_put_f16(dst + 2, -min);
  } else {
    ckpt_put_f16(dst, ckpt_quant_symmetric(CKPT_LEGACY, 1 << (t.bits - 1), x, weights, codes));
  }
  ckpt_legacy_pack(t, dst, codes);
}

#endif
