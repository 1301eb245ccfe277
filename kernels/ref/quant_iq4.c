/* quant_iq4.c - IQ4_NL and IQ4_XS: codes of four bits for sixteen values that are not evenly spaced.
 *
 *   IQ4_NL  f16 d | 16 bytes of codes: element j low, j + 16 high; 32 elements
 *   IQ4_XS  f16 d | u16 upper two bits of 8 scales | 4 bytes: their lower four bits | 8 times 16 bytes of codes; 256
 *
 * x is d * value[code], or d * (scale - 32) * value[code]. */
#include "quant.h"

enum { SUB = 32, N_STEPS = 7 };

static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* The nearest value's code; of two as near the greater. */
static int code_of(float x) {
  int low = 0, high = 15;
  if (x <= (float)values[0]) return 0;
  if (x >= (float)values[15]) return 15;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (x < (float)values[middle])
      high = middle;
    else
      low = middle;
  }
  return x - (float)values[high - 1] < (float)values[high] - x ? high - 1 : high;
}

/* The best scale of one sub-block, of 16 tried. */
static float search(const float *x, const float *weights) {
  float extreme = ckpt_extreme(x, SUB), scale = 0, best = 0;
  if (fabsf(extreme) < CKPT_QUANT_EPSILON) return 0;
  for (int step = -N_STEPS - 1; step <= N_STEPS; step++) { /* the first one has the extreme at the other end */
    bool is_first = step == -N_STEPS - 1;
    float inverse = is_first ? 1 / (-extreme / (float)values[0]) : (float)(step + values[0]) / extreme;
    float xq = 0, qq = 0;
    for (int i = 0; i < SUB; i++) {
      float q = (float)values[code_of(inverse * x[i])], w = weights[i];
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
  if (importance) ckpt_quant_weigh(weights, x, importance, sigma2, SUB);
  for (int i = 0; i < SUB && !importance; i++) weights[i] = x[i] * x[i];
}

static void put_codes(uint8_t *dst, const float *x, float inverse) {
  for (int j = 0; j < SUB / 2; j++)
    dst[j] = (uint8_t)(code_of(inverse * x[j]) | code_of(inverse * x[j + SUB / 2]) << 4);
}

static void quantize_nl(uint8_t *dst, const float *x, size_t n, const float *importance) {
  float weights[SUB];
  for (size_t at = 0; at < n; at += SUB, dst += 18) {
    weigh(weights, x + at, importance ? importance + at : NULL, ckpt_sum_squares(x + at, SUB) * (2.0f / SUB));
    float scale = search(x + at, weights);
    ckpt_put_f16(dst, scale);
    put_codes(dst + 2, x + at, scale != 0 ? 1 / scale : 0);
  }
}

static void quantize_xs(uint8_t *dst, const float *x, size_t n, const float *importance) {
  float weights[SUB], scales[8];
  for (size_t at = 0; at < n; at += CKPT_SUPER, x += CKPT_SUPER, dst += 136) {
    float sigma2 = ckpt_sum_squares(x, CKPT_SUPER) * (2.0f / CKPT_SUPER);
    for (int ib = 0; ib < 8; ib++) {
      weigh(weights, x + SUB * ib, importance ? importance + at + SUB * (size_t)ib : NULL, sigma2);
      scales[ib] = search(x + SUB * ib, weights);
    }
    float d = -ckpt_extreme(scales, 8) / 32, inverse = d != 0 ? 1 / d : 0;
    uint32_t high = 0;
    memset(dst, 0, 8);
    for (int ib = 0; ib < 8; ib++) {
      int scale = ckpt_clamp(ckpt_nearest(inverse * scales[ib]), -32, 31);
      float product = d * (float)scale;
      put_codes(dst + 8 + 16 * ib, x + SUB * ib, product != 0 ? 1 / product : 0);
      dst[4 + ib / 2] |= (uint8_t)(((scale + 32) & 15) << 4 * (ib % 2));
      high |= (uint32_t)(scale + 32) >> 4 << 2 * ib;
    }
    ckpt_put_f16(dst, d);
    ckpt_put_u16(dst + 2, high);
  }
}

static void read_codes(float *y, const uint8_t *src, float scale) {
  for (int j = 0; j < SUB / 2; j++) {
    y[j] = scale * (float)values[src[j] & 15];
    y[j + SUB / 2] = scale * (float)values[src[j] >> 4];
  }
}

static void dequantize_nl(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= SUB, y += SUB, src += 18) read_codes(y, src + 2, ckpt_get_f16(src));
}

static void dequantize_xs(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 136)
    for (int ib = 0; ib < 8; ib++) {
      int scale = (src[4 + ib / 2] >> 4 * (ib % 2) & 15) | (ckpt_le16(src + 2) >> 2 * ib & 3) << 4;
      read_codes(y + SUB * ib, src + 8 + 16 * ib, ckpt_get_f16(src) * (float)(scale - 32));
    }
}

const ckpt_quant ckpt_quant_iq4_nl = {.quantize = quantize_nl, .dequantize = dequantize_nl};
const ckpt_quant ckpt_quant_iq4_xs = {.quantize = quantize_xs, .dequantize = dequantize_xs};
