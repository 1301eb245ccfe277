/* iq3.c - IQ3_XXS, IQ3_S: superblocks of 256 whose groups of 4 are points of a grid, with signs.
 *
 *   IQ3_XXS  f16 d | 64 points of eight bits | 8 u32: four times seven signs and, on top, a scale
 *   IQ3_S    f16 d | 64 bytes: lower eight bits of points | 8 bytes: their ninth bits | 32 bytes of signs | 4 bytes of
 * two scales
 *
 * Scales have four bits, for 32 elements: c stands for d * (c + 1/2) / 2 in XXS, for d * (2 c + 1) in S. Level l is
 * 8 l + 4 in XXS, but 62 for the last one, and 2 l + 1 in S. Of seven signs the eighth makes their number even. */
#include "kernels/ref/quant/iq23.h"

static const ckpt_iq_search xxs = {CKPT_GRID_IQ3_XXS, 32, 7, 15, 0.2f, 1e-8f, true, false, REDO_OFF},
                            s = {CKPT_GRID_IQ3_S, 32, 7, 9, 0.2f, 0, false, false, REDO_ALL_IF_OFF};

static void find(const ckpt_iq_search *search, ckpt_iq_search_block *search_block, const float *x,
                 const float *importance, ckpt_iq_found *found) {
  float weights[CKPT_SUPER], sigma2 = 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER;
  if (importance) ckpt_quant_weigh(weights, x, importance, sigma2, CKPT_SUPER);
  for (int i = 0; i < CKPT_SUPER && !importance; i++) weights[i] = x[i] * x[i];
  ckpt_iq_find(search, search_block, x, weights, found);
}

void ckpt_iq3_xxs(ckpt_iq_search_block *search_block, uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq_found found;
  for (size_t at = 0; at < n; at += CKPT_SUPER, dst += 98) {
    find(&xxs, search_block, x + at, importance ? importance + at : NULL, &found);
    memset(dst, 0, 98);
    if (found.max_scale == 0) continue;
    ckpt_put_f16(dst, found.max_scale / 31 * 1.0125f);
    for (int k = 0; k < 64; k++) dst[2 + k] = (uint8_t)found.points[k];
    for (int ib = 0; ib < 8; ib++) {
      const uint8_t *signs = found.signs + 4 * ib;
      ckpt_put_u32(dst + 66 + 4 * ib, signs[0] | (uint32_t)signs[1] << 7 | (uint32_t)signs[2] << 14 |
                                          (uint32_t)signs[3] << 21 |
                                          ckpt_iq_scale_code(found.scales[ib], found.max_scale) << 28);
    }
  }
}

void ckpt_iq3_s(ckpt_iq_search_block *search_block, uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq_found found;
  for (size_t at = 0; at < n; at += CKPT_SUPER, dst += 110) {
    find(&s, search_block, x + at, importance ? importance + at : NULL, &found);
    memset(dst, 0, 110);
    uint8_t *points = dst + 2, *signs = dst + 74;
    for (int ib = 0; ib < 8; ib++) {
      if (found.is_empty[ib]) continue; /* in ggml the next one's points and signs, but not its ninth bits, move up */
      for (int k = 8 * ib; k < 8 * ib + 8; k++) {
        *points++ = (uint8_t)found.points[k];
        dst[66 + ib] |= (uint8_t)(found.points[k] >> 8 << k % 8);
      }
      memcpy(signs, found.signs + 4 * ib, 4);
      signs += 4;
    }
    if (found.max_scale == 0) continue;
    ckpt_put_f16(dst, found.max_scale / 31 * 1.033f);
    for (int i = 0; i < 4; i++)
      dst[106 + i] = (uint8_t)(ckpt_iq_scale_code(found.scales[2 * i], found.max_scale) |
                               ckpt_iq_scale_code(found.scales[2 * i + 1], found.max_scale) << 4);
  }
}

static void quantize_xxs(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq3_xxs(ckpt_iq_search_ref, dst, x, n, importance);
}

static void quantize_s(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq3_s(ckpt_iq_search_ref, dst, x, n, importance);
}

const ckpt_quant ckpt_quant_iq3_xxs = {.quantize = quantize_xxs, .dequantize = ckpt_dequantize_iq3_xxs};
const ckpt_quant ckpt_quant_iq3_s = {.quantize = quantize_s, .dequantize = ckpt_dequantize_iq3_s};
