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

#define TYPE(name)                                                                               \
  static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) { \
    quantize(&ckpt_##name, dst, x, n, importance);                                               \
  }                                                                                              \
  const ckpt_quant ckpt_quant_##name = {.quantize = quantize_##name, .dequantize = ckpt_dequantize_##name};

TYPE(q2_k)
TYPE(q4_k)
TYPE(q5_k)
