/* k_symmetric.c - Q3_K, Q6_K, Q8_K of the reference; k_symmetric.h has the layout. */
#include "kernels/ref/quant/k_symmetric.h"

/* ---- Q3_K -------------------------------------------------------------------------------------------------------- */

static void quantize_q3_k(uint8_t *dst, const float *x, size_t n, const float *importance) {
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += CKPT_Q3_BYTES) {
    uint8_t codes[CKPT_SUPER], scale_codes[CKPT_KS_N_SUB];
    float scales[CKPT_KS_N_SUB], sums[CKPT_KS_N_SUB], weights[CKPT_KS_SUB], d;
    if (importance) {
      float sigma2 = 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER;
      for (int j = 0; j < CKPT_KS_N_SUB; j++, importance += CKPT_KS_SUB) {
        ckpt_quant_weigh(weights, x + CKPT_KS_SUB * j, importance, sigma2, CKPT_KS_SUB);
        sums[j] = ckpt_sum(weights, CKPT_KS_SUB);
        scales[j] = ckpt_quant_symmetric(CKPT_KS_SUB, 4, x + CKPT_KS_SUB * j, weights, codes + CKPT_KS_SUB * j);
      }
      d = ckpt_quant_symmetric(CKPT_KS_N_SUB, 32, scales, sums, scale_codes);
    } else {
      for (int j = 0; j < CKPT_KS_N_SUB; j++)
        scales[j] = ckpt_quant_refine(CKPT_KS_SUB, 4, x + CKPT_KS_SUB * j, codes + CKPT_KS_SUB * j);
      d = ckpt_ks_scale_plain3(scales, scale_codes);
    }
    ckpt_ks_finish3(ckpt_ks_recode, dst, x, d, scale_codes, codes);
  }
}

/* ---- Q6_K -------------------------------------------------------------------------------------------------------- */

static void quantize_q6_k(uint8_t *dst, const float *x, size_t n, const float *importance) {
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += CKPT_Q6_BYTES) {
    uint8_t codes[CKPT_SUPER];
    float scales[CKPT_KS_N_SUB];
    for (int j = 0; j < CKPT_KS_N_SUB; j++) {
      scales[j] = ckpt_quant_symmetric(CKPT_KS_SUB, 32, x + CKPT_KS_SUB * j, importance, codes + CKPT_KS_SUB * j);
      if (importance) importance += CKPT_KS_SUB;
    }
    ckpt_ks_finish6(ckpt_ks_recode, dst, x, scales, codes);
  }
}

/* ---- Q8_K -------------------------------------------------------------------------------------------------------- */

const ckpt_quant ckpt_quant_q3_k = {.quantize = quantize_q3_k, .dequantize = ckpt_dequantize_q3_k};
const ckpt_quant ckpt_quant_q6_k = {.quantize = quantize_q6_k, .dequantize = ckpt_dequantize_q6_k};
const ckpt_quant ckpt_quant_q8_k = {.dequantize = ckpt_dequantize_q8_k};
