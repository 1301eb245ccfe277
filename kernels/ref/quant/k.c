/* k.c - Q2_K, Q4_K, Q5_K of the reference; k.h has the layout and what follows the search. */
#include "kernels/ref/quant/k.h"

void ckpt_k_search(const ckpt_k_layout *t, int j, const float *x, const float *importance, float sigma2,
                   ckpt_k_found *s) {
  size_t n = CKPT_SUPER / (size_t)t->n_sub, at = n * (size_t)j;
  float weights[32];
  x += at;
  if (importance) {
    ckpt_quant_weigh(weights, x, importance + at, sigma2, n);
  } else {
    float mean = t->bits == 2 ? 0 : sqrtf(ckpt_sum_squares(x, n) / (float)n);
    for (size_t i = 0; i < n; i++) weights[i] = mean + fabsf(x[i]);
  }
  s->weights[j] = ckpt_sum(weights, n);
  s->scales[j] = ckpt_quant_affine((int)n, (1 << t->bits) - 1, x, weights,
                                   importance ? &ckpt_k_weighted_steps : &t->steps, s->codes + at, &s->mins[j]);
}

static void quantize(const ckpt_k_layout *t, uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_k_found s;
  for (size_t at = 0; at < n; at += CKPT_SUPER, x += CKPT_SUPER, dst += ckpt_k_block_bytes(t)) {
    float sum = importance ? ckpt_sum_squares(x, CKPT_SUPER) : 0, d, dmin;
    float sigma2 = (t->bits == 2 ? sum : 2 * sum) / CKPT_SUPER;
    for (int j = 0; j < t->n_sub; j++) ckpt_k_search(t, j, x, importance ? importance + at : NULL, sigma2, &s);
    ckpt_k_put_scales(t, dst, &s, importance != NULL, &d, &dmin);
    ckpt_k_recode(t, ckpt_k_fields_of(t, dst), d, dmin, x, s.codes);
    ckpt_k_pack_codes(t, dst, s.codes);
  }
}

static void dequantize(const ckpt_k_layout *t, float *y, const uint8_t *src, size_t n) {
  uint8_t codes[CKPT_SUPER], scales[CKPT_K_MAX_SUB], mins[CKPT_K_MAX_SUB];
  int n_each = CKPT_SUPER / t->n_sub;
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += ckpt_k_block_bytes(t)) {
    const uint8_t *header = t->bits == 2 ? src + 80 : src;
    float d = ckpt_get_f16(header), dmin = ckpt_get_f16(header + 2);
    ckpt_k_unpack_scales(t, t->bits == 2 ? src : src + 4, scales, mins);
    ckpt_k_unpack_codes(t, src, codes);
    for (int i = 0; i < CKPT_SUPER; i++)
      y[i] = d * (float)scales[i / n_each] * (float)codes[i] - dmin * (float)mins[i / n_each];
  }
}

#define TYPE(name)                                                                                               \
  static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) {                 \
    quantize(&ckpt_##name, dst, x, n, importance);                                                               \
  }                                                                                                              \
  static void dequantize_##name(float *y, const uint8_t *src, size_t n) { dequantize(&ckpt_##name, y, src, n); } \
  const ckpt_quant ckpt_quant_##name = {.quantize = quantize_##name, .dequantize = dequantize_##name};

TYPE(q2_k)
TYPE(q4_k)
TYPE(q5_k)
