/* legacy.c - Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1 of the reference; legacy.h has the layout. */
#include <float.h>

#include "kernels/ref/quant/legacy.h"

/* Rounds half up. What does not fit (the inverse of a tiny scale is infinite) is 0, as on x86. */
static uint8_t code_of(float x, int max_code) {
  int code = (int8_t)(uint8_t)ckpt_truncate(x);
  return (uint8_t)(code < max_code ? code : max_code);
}

static void quantize_plain(ckpt_legacy_layout t, uint8_t *dst, const float *x) {
  int max_code = (1 << t.bits) - 1, middle = 1 << (t.bits - 1);
  uint8_t codes[CKPT_LEGACY];
  float min = FLT_MAX, max = -FLT_MAX, d;
  for (int j = 0; j < CKPT_LEGACY; j++) {
    if (x[j] < min) min = x[j];
    if (x[j] > max) max = x[j];
  }
  d = t.has_min ? (max - min) / (float)max_code : ckpt_extreme(x, CKPT_LEGACY) / (float)-middle;
  float inverse = d != 0 ? 1.0f / d : 0.0f;
  ckpt_put_f16(dst, d);
  if (t.has_min) ckpt_put_f16(dst + 2, min);
  for (int j = 0; j < CKPT_LEGACY; j++)
    codes[j] = t.has_min ? code_of((x[j] - min) * inverse + 0.5f, max_code)
                         : code_of(x[j] * inverse + ((float)middle + 0.5f), max_code);
  ckpt_legacy_pack(t, dst, codes);
}

static void quantize(ckpt_legacy_layout t, uint8_t *dst, const float *x, size_t n, const float *importance) {
  float weights[CKPT_LEGACY], sigma2 = importance ? ckpt_sum_squares(x, n) / (float)n : 0; /* of the row */
  for (size_t i = 0; i < n; i += CKPT_LEGACY, dst += ckpt_legacy_block_bytes(t)) {
    if (importance == NULL) {
      quantize_plain(t, dst, x + i);
      continue;
    }
    ckpt_quant_weigh(weights, x + i, importance + i, sigma2, CKPT_LEGACY);
    ckpt_legacy_quantize_weighted(t, dst, x + i, weights);
  }
}

#define TYPE(name)                                                                               \
  static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) { \
    quantize(ckpt_##name, dst, x, n, importance);                                                \
  }                                                                                              \
  const ckpt_quant ckpt_quant_##name = {.quantize = quantize_##name, .dequantize = ckpt_dequantize_##name};

TYPE(q4_0)
TYPE(q4_1)
TYPE(q5_0)
TYPE(q5_1)

/* ---- eight bits -------------------------------------------------------------------------------------------------- */

static void quantize_q8_0(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (size_t i = 0; i < n; i += CKPT_LEGACY, dst += 2 + CKPT_LEGACY) {
    float d = fabsf(ckpt_extreme(x + i, CKPT_LEGACY)) / 127, inverse = d != 0 ? 1.0f / d : 0.0f;
    ckpt_put_f16(dst, d);
    for (size_t j = 0; j < CKPT_LEGACY; j++) dst[2 + j] = (uint8_t)ckpt_truncate(roundf(x[i + j] * inverse));
  }
}

const ckpt_quant ckpt_quant_q8_0 = {
    .quantize = quantize_q8_0, .dequantize = ckpt_dequantize_q8_0, .ignores_importance = true};
const ckpt_quant ckpt_quant_q8_1 = {.dequantize = ckpt_dequantize_q8_1};
