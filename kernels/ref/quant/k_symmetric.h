/* k_symmetric.h - private to kernels: Q3_K, Q6_K, Q8_K: superblocks of 256 with scales only, 16 of them for 16
 * elements each.
 *
 *   Q3_K  32 bytes of third bits | 64 bytes of low two bits | 12 bytes of six-bit scales | f16 d
 *   Q6_K  128 bytes of low four bits | 64 bytes of upper two bits | 16 signed bytes of scales | f16 d
 *   Q8_K  f32 d | 256 signed bytes | 16 sums (i16) of 16 codes each; only intermediate in ggml, here only read
 *
 * x is (d * (scale - 32)) * (code - 4), (d * scale) * (code - 32), d * code.
 * Scales of Q3_K: low four bits of scale j < 8 in the low half of byte j, of scale 8 + j in its high half; upper two
 * bits of scale j in bits 2 (j / 4) of byte 8 + j % 4.
 * Codes of Q3_K: byte 32 k + l has elements 128 k + l + 0, 32, 64, 96 from the low bits on; bit s of third-bits byte l
 * belongs to element 32 s + l. Codes of Q6_K: byte 64 k + l has the low bits of elements 128 k + l and 128 k + 64 + l,
 * for l < 64; byte 32 k + l of the upper bits elements 128 k + l + 0, 32, 64, 96. */
#ifndef CKPT_KERNELS_REF_QUANT_K_SYMMETRIC_H
#define CKPT_KERNELS_REF_QUANT_K_SYMMETRIC_H

#include "kernels/ref/quant/quant.h"

/* Sub-blocks, their elements, and bytes of blocks. */
enum { CKPT_KS_N_SUB = 16, CKPT_KS_SUB = 16, CKPT_Q3_BYTES = 110, CKPT_Q6_BYTES = 210, CKPT_Q8_BYTES = 292 };

/* Codes of a sub-block under the scale as it will be read. A scale of zero leaves those of the search. */
typedef void ckpt_ks_recoder(float scale, int n_levels, const float *x, uint8_t *codes);

/* The one of the reference. */
static inline void ckpt_ks_recode(float scale, int n_levels, const float *x, uint8_t *codes) {
  if (scale == 0) return;
  for (int i = 0; i < CKPT_KS_SUB; i++)
    codes[i] = (uint8_t)(ckpt_clamp(ckpt_nearest(x[i] / scale), -n_levels, n_levels - 1) + n_levels);
}

/* The fields of sixteen scales, and one of them. */
static inline void ckpt_ks_pack_scales3(uint8_t *fields, const uint8_t *scales) {
  memset(fields, 0, 12);
  for (int j = 0; j < CKPT_KS_N_SUB; j++) {
    fields[j % 8] |= (uint8_t)((scales[j] & 15) << 4 * (j / 8));
    fields[8 + j % 4] |= (uint8_t)((scales[j] >> 4) << 2 * (j / 4));
  }
}

/* As above. */
static inline int ckpt_ks_scale3(const uint8_t *fields, int j) {
  return ((fields[j % 8] >> 4 * (j / 8) & 15) | (fields[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
}

/* The codes of a block. */
static inline void ckpt_ks_pack3(uint8_t *block, const uint8_t *codes) {
  for (int l = 0; l < 32; l++) {
    unsigned high = 0;
    for (int s = 0; s < 8; s++) high |= (unsigned)(codes[32 * s + l] >> 2) << s;
    block[l] = (uint8_t)high;
  }
  for (int k = 0; k < 2; k++)
    for (int l = 0; l < 32; l++) {
      const uint8_t *c = codes + 128 * k + l;
      block[32 + 32 * k + l] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

/* Scales as codes around 32; returns their unit. */
static inline float ckpt_ks_scale_plain3(const float *scales, uint8_t *codes) {
  float extreme = ckpt_extreme(scales, CKPT_KS_N_SUB), inverse = -32.0f / extreme;
  memset(codes, 0, CKPT_KS_N_SUB);
  if (extreme == 0) return 0;
  for (int j = 0; j < CKPT_KS_N_SUB; j++)
    codes[j] = (uint8_t)(ckpt_clamp((int8_t)(uint8_t)ckpt_nearest(inverse * scales[j]), -32, 31) + 32);
  return 1 / inverse;
}

/* As above. */
static inline void ckpt_ks_pack6(uint8_t *block, const uint8_t *codes) {
  for (int k = 0; k < 2; k++) {
    const uint8_t *c = codes + 128 * k;
    for (int l = 0; l < 64; l++) block[64 * k + l] = (uint8_t)((c[l] & 15) | (c[l + 64] & 15) << 4);
    for (int l = 0; l < 32; l++)
      block[128 + 32 * k + l] =
          (uint8_t)(c[l] >> 4 | (c[l + 32] >> 4) << 2 | (c[l + 64] >> 4) << 4 | (c[l + 96] >> 4) << 6);
  }
}

/* Writes a block of Q3_K; codes hold what the search found. */
static inline void ckpt_ks_finish3(ckpt_ks_recoder *recode, uint8_t *dst, const float *x, float d,
                                   const uint8_t *scale_codes, uint8_t *codes) {
  ckpt_ks_pack_scales3(dst + 96, scale_codes);
  d = ckpt_put_f16(dst + 108, d);
  for (int j = 0; j < CKPT_KS_N_SUB; j++)
    recode(d * (float)ckpt_ks_scale3(dst + 96, j), 4, x + CKPT_KS_SUB * j, codes + CKPT_KS_SUB * j);
  ckpt_ks_pack3(dst, codes);
}

/* Writes a block of Q6_K; as above. */
static inline void ckpt_ks_finish6(ckpt_ks_recoder *recode, uint8_t *dst, const float *x, const float *scales,
                                   uint8_t *codes) {
  float extreme = ckpt_extreme(scales, CKPT_KS_N_SUB), inverse = -128.0f / extreme;
  if (fabsf(extreme) < CKPT_QUANT_EPSILON) {
    memset(dst, 0, CKPT_Q6_BYTES);
    return;
  }
  float d = ckpt_put_f16(dst + 208, 1 / inverse);
  for (int j = 0; j < CKPT_KS_N_SUB; j++) {
    int scale = ckpt_nearest(inverse * scales[j]);
    dst[192 + j] = (uint8_t)(scale < 127 ? scale : 127);
    recode(d * (float)(int8_t)dst[192 + j], 32, x + CKPT_KS_SUB * j, codes + CKPT_KS_SUB * j);
  }
  ckpt_ks_pack6(dst, codes);
}

#endif
