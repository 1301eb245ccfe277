/* quant_legacy.c - Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1: blocks of 32 with one scale.
 *
 *   Q4_0  f16 d                | 16 bytes of codes: element j in the low, j + 16 in the high four bits
 *   Q4_1  f16 d, f16 min       | the same
 *   Q5_0  f16 d                | u32 fifth bits: bit j of element j | 16 bytes of low four bits
 *   Q5_1  f16 d, f16 min       | the same
 *   Q8_0  f16 d                | 32 signed bytes
 *   Q8_1  f16 d, f16 d * sum   | 32 signed bytes; only intermediate in ggml, here only read
 *
 * x is d * (code - 8), d * code + min, d * (code - 16), d * code + min, d * code, d * code. */
#include <float.h>

#include "quant.h"

enum { BLOCK = 32 };

typedef struct layout {
  int bits;
  bool has_min;
} layout;

static const layout q4_0 = {4, false}, q4_1 = {4, true}, q5_0 = {5, false}, q5_1 = {5, true};

static size_t block_bytes(layout t) { return (t.has_min ? 4 : 2) + (t.bits == 5 ? 4 : 0) + BLOCK / 2; }

static void pack(layout t, uint8_t *dst, const uint8_t *codes) {
  uint8_t *at = dst + (t.has_min ? 4 : 2);
  if (t.bits == 5) {
    uint32_t high = 0;
    for (int j = 0; j < BLOCK; j++) high |= (uint32_t)(codes[j] >> 4 & 1) << j;
    ckpt_put_u32(at, high);
    at += 4;
  }
  for (int j = 0; j < BLOCK / 2; j++) at[j] = (uint8_t)((codes[j] & 15) | (codes[j + BLOCK / 2] & 15) << 4);
}

static void unpack(layout t, int *codes, const uint8_t *src) {
  const uint8_t *at = src + (t.has_min ? 4 : 2);
  uint32_t high = 0;
  if (t.bits == 5) {
    high = ckpt_le32(at);
    at += 4;
  }
  for (int j = 0; j < BLOCK; j++)
    codes[j] = (j < BLOCK / 2 ? at[j] & 15 : at[j - BLOCK / 2] >> 4) | (int)(high >> j & 1) << 4;
}

/* Rounds half up. What does not fit (the inverse of a tiny scale is infinite) is 0, as on x86. */
static uint8_t code_of(float x, int max_code) {
  int code = (int8_t)(uint8_t)ckpt_truncate(x);
  return (uint8_t)(code < max_code ? code : max_code);
}

static void quantize_plain(layout t, uint8_t *dst, const float *x) {
  int max_code = (1 << t.bits) - 1, middle = 1 << (t.bits - 1);
  uint8_t codes[BLOCK];
  float min = FLT_MAX, max = -FLT_MAX, d;
  for (int j = 0; j < BLOCK; j++) {
    if (x[j] < min) min = x[j];
    if (x[j] > max) max = x[j];
  }
  d = t.has_min ? (max - min) / (float)max_code : ckpt_extreme(x, BLOCK) / (float)-middle;
  float inverse = d != 0 ? 1.0f / d : 0.0f;
  ckpt_put_f16(dst, d);
  if (t.has_min) ckpt_put_f16(dst + 2, min);
  for (int j = 0; j < BLOCK; j++)
    codes[j] = t.has_min ? code_of((x[j] - min) * inverse + 0.5f, max_code)
                         : code_of(x[j] * inverse + ((float)middle + 0.5f), max_code);
  pack(t, dst, codes);
}

static void quantize_weighted(layout t, uint8_t *dst, const float *x, const float *weights) {
  static const ckpt_quant_steps steps = {-0.9f, 0.05f, 36, false};
  uint8_t codes[BLOCK];
  if (t.has_min) {
    float min;
    ckpt_put_f16(dst, ckpt_quant_affine(BLOCK, (1 << t.bits) - 1, x, weights, &steps, codes, &min));
    ckpt_put_f16(dst + 2, -min);
  } else {
    ckpt_put_f16(dst, ckpt_quant_symmetric(BLOCK, 1 << (t.bits - 1), x, weights, codes));
  }
  pack(t, dst, codes);
}

static void quantize(layout t, uint8_t *dst, const float *x, size_t n, const float *importance) {
  float weights[BLOCK], sigma2 = importance ? ckpt_sum_squares(x, n) / (float)n : 0; /* of the row */
  for (size_t i = 0; i < n; i += BLOCK, dst += block_bytes(t)) {
    if (importance == NULL) {
      quantize_plain(t, dst, x + i);
      continue;
    }
    ckpt_quant_weigh(weights, x + i, importance + i, sigma2, BLOCK);
    quantize_weighted(t, dst, x + i, weights);
  }
}

static void dequantize(layout t, float *y, const uint8_t *src, size_t n) {
  int codes[BLOCK], middle = 1 << (t.bits - 1);
  for (size_t i = 0; i < n; i += BLOCK, src += block_bytes(t)) {
    float d = ckpt_get_f16(src), min = t.has_min ? ckpt_get_f16(src + 2) : 0;
    unpack(t, codes, src);
    for (int j = 0; j < BLOCK; j++)
      y[i + (size_t)j] = t.has_min ? (float)codes[j] * d + min : (float)(codes[j] - middle) * d;
  }
}

#define TYPE(name)                                                                                       \
  static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) {         \
    quantize(name, dst, x, n, importance);                                                               \
  }                                                                                                      \
  static void dequantize_##name(float *y, const uint8_t *src, size_t n) { dequantize(name, y, src, n); } \
  const ckpt_quant ckpt_quant_##name = {.quantize = quantize_##name, .dequantize = dequantize_##name};

TYPE(q4_0)
TYPE(q4_1)
TYPE(q5_0)
TYPE(q5_1)

/* ---- eight bits -------------------------------------------------------------------------------------------------- */

static void quantize_q8_0(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (size_t i = 0; i < n; i += BLOCK, dst += 2 + BLOCK) {
    float d = fabsf(ckpt_extreme(x + i, BLOCK)) / 127, inverse = d != 0 ? 1.0f / d : 0.0f;
    ckpt_put_f16(dst, d);
    for (size_t j = 0; j < BLOCK; j++) dst[2 + j] = (uint8_t)ckpt_truncate(roundf(x[i + j] * inverse));
  }
}

static void dequantize_bytes(float *y, const uint8_t *src, size_t n, size_t n_header) {
  for (size_t i = 0; i < n; i += BLOCK, src += n_header + BLOCK) {
    float d = ckpt_get_f16(src);
    for (size_t j = 0; j < BLOCK; j++) y[i + j] = (float)(int8_t)src[n_header + j] * d;
  }
}

static void dequantize_q8_0(float *y, const uint8_t *src, size_t n) { dequantize_bytes(y, src, n, 2); }
static void dequantize_q8_1(float *y, const uint8_t *src, size_t n) { dequantize_bytes(y, src, n, 4); }

const ckpt_quant ckpt_quant_q8_0 = {.quantize = quantize_q8_0, .dequantize = dequantize_q8_0};
const ckpt_quant ckpt_quant_q8_1 = {.dequantize = dequantize_q8_1};
