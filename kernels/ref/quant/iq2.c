/* iq2.c - IQ2_XXS, IQ2_XS, IQ2_S: superblocks of 256 whose groups of 8 are points of a grid, with signs.
 *
 *   IQ2_XXS  f16 d | 8 times: u32 of four points, u32 of four times seven signs and, on top, a scale
 *   IQ2_XS   f16 d | 32 u16: a point (9 bits) and seven signs | 8 bytes of two scales
 *   IQ2_S    f16 d | 32 bytes: lower eight bits of points | 32 bytes of signs | 8 bytes: upper two bits | 8 bytes of
 * two scales
 *
 * Scales have four bits: c stands for d * (c + 1/2) / 4, for 32 elements in XXS and for 16 in the others. Of seven
 * signs the eighth makes their number even. Levels 0, 1, 2 are 8, 25, 43. */
#include "kernels/ref/quant/iq23.h"

static const ckpt_iq_search xxs = {CKPT_GRID_IQ2_XXS, 32, 2, 6, 0.1f, CKPT_QUANT_EPSILON, true, true, REDO_ALL},
                            xs = {CKPT_GRID_IQ2_XS, 16, 2, 9, 0.1f, CKPT_QUANT_EPSILON, true, false, REDO_OFF},
                            s = {CKPT_GRID_IQ2_S, 16, 2, 9, 0.1f, 1e-8f, false, false, REDO_OFF};

/* ---- IQ2_XXS ----------------------------------------------------------------------------------------------------- */

void ckpt_iq2_xxs(ckpt_iq_search_block *search_block, uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq_found found;
  float weights[CKPT_SUPER];
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, importance += CKPT_SUPER, dst += 66) {
    ckpt_quant_weigh(weights, x, importance, ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER, CKPT_SUPER);
    ckpt_iq_find(&xxs, search_block, x, weights, &found);
    memset(dst, 0, 66);
    if (found.max_scale == 0) continue;
    ckpt_put_f16(dst, found.max_scale / 31);
    for (int ib = 0; ib < 8; ib++) {
      const uint16_t *p = found.points + 4 * ib;
      const uint8_t *signs = found.signs + 4 * ib;
      for (int k = 0; k < 4; k++) dst[2 + 8 * ib + k] = (uint8_t)p[k];
      ckpt_put_u32(dst + 6 + 8 * ib, signs[0] | (uint32_t)signs[1] << 7 | (uint32_t)signs[2] << 14 |
                                         (uint32_t)signs[3] << 21 |
                                         ckpt_iq_scale_code(found.scales[ib], found.max_scale) << 28);
    }
  }
}

/* ---- IQ2_XS ------------------------------------------------------------------------------------------------------ */

static void put_scales(uint8_t *dst, const ckpt_iq_found *found) {
  for (int i = 0; i < 8; i++)
    dst[i] = (uint8_t)(ckpt_iq_scale_code(found->scales[2 * i], found->max_scale) |
                       ckpt_iq_scale_code(found->scales[2 * i + 1], found->max_scale) << 4);
}

void ckpt_iq2_xs(ckpt_iq_search_block *search_block, uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq_found found;
  float weights[CKPT_SUPER];
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, importance += CKPT_SUPER, dst += 74) {
    ckpt_quant_weigh(weights, x, importance, ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER, CKPT_SUPER);
    ckpt_iq_find(&xs, search_block, x, weights, &found);
    memset(dst, 0, 74);
    if (found.max_scale == 0) continue;
    ckpt_put_f16(dst, found.max_scale / 31);
    for (int k = 0; k < 32; k++) ckpt_put_u16(dst + 2 + 2 * k, found.points[k] | (uint32_t)found.signs[k] << 9);
    put_scales(dst + 66, &found);
  }
}

/* ---- IQ2_S ------------------------------------------------------------------------------------------------------- */

void ckpt_iq2_s(ckpt_iq_search_block *search_block, uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq_found found;
  float weights[CKPT_SUPER];
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += 82) {
    float sigma2 = 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER;
    for (int i = 0; i < CKPT_SUPER && !importance; i++) weights[i] = 0.25f * sigma2 + x[i] * x[i];
    if (importance) {
      ckpt_quant_weigh(weights, x, importance, sigma2, CKPT_SUPER);
      importance += CKPT_SUPER;
    }
    ckpt_iq_find(&s, search_block, x, weights, &found);
    memset(dst, 0, 82);
    for (int k = 0; k < 32; k++) {
      dst[2 + k] = (uint8_t)found.points[k];
      dst[34 + k] = found.signs[k];
      dst[66 + k / 4] |= (uint8_t)(found.points[k] >> 8 << 2 * (k % 4));
    }
    if (found.max_scale == 0) continue;
    ckpt_put_f16(dst, found.max_scale / 31 * 0.9875f);
    put_scales(dst + 74, &found);
  }
}

static void quantize_xxs(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq2_xxs(ckpt_iq_search_ref, dst, x, n, importance);
}

static void quantize_xs(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq2_xs(ckpt_iq_search_ref, dst, x, n, importance);
}

static void quantize_s(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq2_s(ckpt_iq_search_ref, dst, x, n, importance);
}

const ckpt_quant ckpt_quant_iq2_xxs = {
    .quantize = quantize_xxs, .dequantize = ckpt_dequantize_iq2_xxs, .needs_importance = true};
const ckpt_quant ckpt_quant_iq2_xs = {
    .quantize = quantize_xs, .dequantize = ckpt_dequantize_iq2_xs, .needs_importance = true};
const ckpt_quant ckpt_quant_iq2_s = {.quantize = quantize_s, .dequantize = ckpt_dequantize_iq2_s};
