/* quant_k_symmetric.c - Q3_K, Q6_K, Q8_K: superblocks of 256 with scales only, 16 of them for 16 elements each.
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
#include "quant.h"

enum { N_SUB = 16, SUB = 16, Q3_BYTES = 110, Q6_BYTES = 210, Q8_BYTES = 292 };

/* Codes under the scale as it will be read. A scale of zero leaves those of the search. */
static void recode(float scale, int n_levels, const float *x, uint8_t *codes) {
  if (scale == 0) return;
  for (int i = 0; i < SUB; i++)
    codes[i] = (uint8_t)(ckpt_clamp(ckpt_nearest(x[i] / scale), -n_levels, n_levels - 1) + n_levels);
}

/* ---- Q3_K -------------------------------------------------------------------------------------------------------- */

static void pack_scales3(uint8_t *fields, const uint8_t *scales) {
  memset(fields, 0, 12);
  for (int j = 0; j < N_SUB; j++) {
    fields[j % 8] |= (uint8_t)((scales[j] & 15) << 4 * (j / 8));
    fields[8 + j % 4] |= (uint8_t)((scales[j] >> 4) << 2 * (j / 4));
  }
}

static int scale3(const uint8_t *fields, int j) {
  return ((fields[j % 8] >> 4 * (j / 8) & 15) | (fields[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
}

static void pack3(uint8_t *block, const uint8_t *codes) {
  memset(block, 0, 96);
  for (int i = 0; i < CKPT_SUPER; i++) {
    block[i % 32] |= (uint8_t)((codes[i] >> 2) << i / 32);
    block[32 + 32 * (i / 128) + i % 32] |= (uint8_t)((codes[i] & 3) << 2 * (i / 32 % 4));
  }
}

/* Scales as codes around 32; returns their unit. */
static float scale_plain3(const float *scales, uint8_t *codes) {
  float extreme = ckpt_extreme(scales, N_SUB), inverse = -32.0f / extreme;
  memset(codes, 0, N_SUB);
  if (extreme == 0) return 0;
  for (int j = 0; j < N_SUB; j++)
    codes[j] = (uint8_t)(ckpt_clamp((int8_t)(uint8_t)ckpt_nearest(inverse * scales[j]), -32, 31) + 32);
  return 1 / inverse;
}

static void quantize_q3_k(uint8_t *dst, const float *x, size_t n, const float *importance) {
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += Q3_BYTES) {
    uint8_t codes[CKPT_SUPER], scale_codes[N_SUB];
    float scales[N_SUB], sums[N_SUB], weights[SUB], d;
    if (importance) {
      float sigma2 = 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER;
      for (int j = 0; j < N_SUB; j++, importance += SUB) {
        ckpt_quant_weigh(weights, x + SUB * j, importance, sigma2, SUB);
        sums[j] = ckpt_sum(weights, SUB);
        scales[j] = ckpt_quant_symmetric(SUB, 4, x + SUB * j, weights, codes + SUB * j);
      }
      d = ckpt_quant_symmetric(N_SUB, 32, scales, sums, scale_codes);
    } else {
      for (int j = 0; j < N_SUB; j++) scales[j] = ckpt_quant_refine(SUB, 4, x + SUB * j, codes + SUB * j);
      d = scale_plain3(scales, scale_codes);
    }
    pack_scales3(dst + 96, scale_codes);
    d = ckpt_put_f16(dst + 108, d);
    for (int j = 0; j < N_SUB; j++) recode(d * (float)scale3(dst + 96, j), 4, x + SUB * j, codes + SUB * j);
    pack3(dst, codes);
  }
}

static void dequantize_q3_k(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += Q3_BYTES) {
    float d = ckpt_get_f16(src + 108);
    for (int i = 0; i < CKPT_SUPER; i++) {
      int low = src[32 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3, high = src[i % 32] >> i / 32 & 1;
      y[i] = d * (float)scale3(src + 96, i / SUB) * (float)(low + 4 * high - 4);
    }
  }
}

/* ---- Q6_K -------------------------------------------------------------------------------------------------------- */

static void pack6(uint8_t *block, const uint8_t *codes) {
  memset(block, 0, 192);
  for (int i = 0; i < CKPT_SUPER; i++) {
    int k = i / 128;
    block[64 * k + i % 64] |= (uint8_t)((codes[i] & 15) << 4 * (i / 64 % 2));
    block[128 + 32 * k + i % 32] |= (uint8_t)((codes[i] >> 4) << 2 * (i / 32 % 4));
  }
}

static void quantize_q6_k(uint8_t *dst, const float *x, size_t n, const float *importance) {
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += Q6_BYTES) {
    uint8_t codes[CKPT_SUPER];
    float scales[N_SUB];
    for (int j = 0; j < N_SUB; j++) {
      scales[j] = ckpt_quant_symmetric(SUB, 32, x + SUB * j, importance, codes + SUB * j);
      if (importance) importance += SUB;
    }
    float extreme = ckpt_extreme(scales, N_SUB), inverse = -128.0f / extreme;
    if (fabsf(extreme) < CKPT_QUANT_EPSILON) {
      memset(dst, 0, Q6_BYTES);
      continue;
    }
    float d = ckpt_put_f16(dst + 208, 1 / inverse);
    for (int j = 0; j < N_SUB; j++) {
      int scale = ckpt_nearest(inverse * scales[j]);
      dst[192 + j] = (uint8_t)(scale < 127 ? scale : 127);
      recode(d * (float)(int8_t)dst[192 + j], 32, x + SUB * j, codes + SUB * j);
    }
    pack6(dst, codes);
  }
}

static void dequantize_q6_k(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += Q6_BYTES) {
    float d = ckpt_get_f16(src + 208);
    for (int i = 0; i < CKPT_SUPER; i++) {
      int k = i / 128, low = src[64 * k + i % 64] >> 4 * (i / 64 % 2) & 15;
      int high = src[128 + 32 * k + i % 32] >> 2 * (i / 32 % 4) & 3;
      y[i] = d * (float)(int8_t)src[192 + i / SUB] * (float)((low | high << 4) - 32);
    }
  }
}

/* ---- Q8_K -------------------------------------------------------------------------------------------------------- */

static void dequantize_q8_k(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += Q8_BYTES)
    for (int i = 0; i < CKPT_SUPER; i++) y[i] = ckpt_float_from_bits(ckpt_le32(src)) * (float)(int8_t)src[4 + i];
}

const ckpt_quant ckpt_quant_q3_k = {.quantize = quantize_q3_k, .dequantize = dequantize_q3_k};
const ckpt_quant ckpt_quant_q6_k = {.quantize = quantize_q6_k, .dequantize = dequantize_q6_k};
const ckpt_quant ckpt_quant_q8_k = {.dequantize = dequantize_q8_k};
