/* iq4.c - IQ4_NL and IQ4_XS of the reference; iq4.h has the layout. */
#include "kernels/ref/quant/iq4.h"

/* The best scale of one sub-block, of 16 tried. */
static float search(const float *x, const float *weights) {
  float extreme = ckpt_extreme(x, CKPT_IQ4_SUB), scale = 0, best = 0;
  if (fabsf(extreme) < CKPT_QUANT_EPSILON) return 0;
  for (int step = -CKPT_IQ4_STEPS - 1; step <= CKPT_IQ4_STEPS;
       step++) { /* the first one has the extreme at the other end */
    bool is_first = step == -CKPT_IQ4_STEPS - 1;
    float inverse =
        is_first ? 1 / (-extreme / (float)ckpt_iq4_values[0]) : (float)(step + ckpt_iq4_values[0]) / extreme;
    float xq = 0, qq = 0;
    for (int i = 0; i < CKPT_IQ4_SUB; i++) {
      float q = (float)ckpt_iq4_values[ckpt_iq4_code(inverse * x[i])], w = weights[i];
      xq += w * q * x[i];
      qq += w * q * q;
    }
    if (is_first || (qq > 0 && xq * xq > best * qq)) {
      scale = qq > 0 ? xq / qq : 0;
      best = scale * xq;
    }
  }
  return scale;
}

static void weigh(float *weights, const float *x, const float *importance, float sigma2) {
  if (importance) ckpt_quant_weigh(weights, x, importance, sigma2, CKPT_IQ4_SUB);
  for (int i = 0; i < CKPT_IQ4_SUB && !importance; i++) weights[i] = x[i] * x[i];
}

static void quantize_nl(uint8_t *dst, const float *x, size_t n, const float *importance) {
  float weights[CKPT_IQ4_SUB];
  for (size_t at = 0; at < n; at += CKPT_IQ4_SUB, dst += 18) {
    weigh(weights, x + at, importance ? importance + at : NULL,
          ckpt_sum_squares(x + at, CKPT_IQ4_SUB) * (2.0f / CKPT_IQ4_SUB));
    float scale = search(x + at, weights);
    ckpt_put_f16(dst, scale);
    ckpt_iq4_put_codes(dst + 2, x + at, scale != 0 ? 1 / scale : 0);
  }
}

static void quantize_xs(uint8_t *dst, const float *x, size_t n, const float *importance) {
  float weights[CKPT_IQ4_SUB], scales[8];
  for (size_t at = 0; at < n; at += CKPT_SUPER, x += CKPT_SUPER, dst += 136) {
    float sigma2 = ckpt_sum_squares(x, CKPT_SUPER) * (2.0f / CKPT_SUPER);
    for (int ib = 0; ib < 8; ib++) {
      weigh(weights, x + CKPT_IQ4_SUB * ib, importance ? importance + at + CKPT_IQ4_SUB * (size_t)ib : NULL, sigma2);
      scales[ib] = search(x + CKPT_IQ4_SUB * ib, weights);
    }
    ckpt_iq4_finish_xs(dst, x, scales);
  }
}

const ckpt_quant ckpt_quant_iq4_nl = {.quantize = quantize_nl, .dequantize = ckpt_dequantize_iq4_nl};
const ckpt_quant ckpt_quant_iq4_xs = {.quantize = quantize_xs, .dequantize = ckpt_dequantize_iq4_xs};
