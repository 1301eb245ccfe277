/* quant_avx2_points.c - IQ1, IQ2 and IQ3 to f32 with AVX2: as quant_avx2_read.c, group by group.
 *
 * What levels stand for is computed from them, in integers. Layouts: quant_iq1.c, quant_iq2.c and quant_iq3.c
 * of kernels/ref. */
#if defined(__x86_64__)
#include "kernels/cpu/quant.h"
#include "kernels/ref/quant_grid.h"

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 __attribute__((always_inline)) static inline

typedef const uint8_t (*levels_table)[CKPT_GRID_MAX_AXES];

/* The eight signs of seven: their number is even. */
INLINE uint32_t with_parity(uint32_t signs) { return signs | (uint32_t)(__builtin_popcount(signs) & 1) << 7; }

/* n levels as step * level + start, and top more for the greatest one; with signs, times scale. */
INLINE void read_group(float *restrict y, const uint8_t *restrict levels, int n, uint32_t signs, float scale, int step,
                       int start, int greatest, int top) {
  for (int i = 0; i < n; i++) {
    int value = step * levels[i] + start + (levels[i] == greatest ? top : 0);
    y[i] = ckpt_flip(scale * (float)value, signs >> i & 1);
  }
}

/* IQ2: 8, 25, 43. */
INLINE void read_iq2(float *y, const uint8_t *levels, uint32_t signs, float d, unsigned code) {
  read_group(y, levels, 8, signs, d * (0.5f + (float)code) * 0.25f, 17, 8, 2, 1);
}

AVX2 void ckpt_dequant_avx2_iq2_xxs(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ2_XXS);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 66) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 32; k++) {
      uint32_t field = ckpt_le32(src + 6 + 8 * (k / 4));
      read_iq2(y + 8 * k, levels[src[2 + 8 * (k / 4) + k % 4]], with_parity(field >> 7 * (k % 4) & 127), d,
               field >> 28);
    }
  }
}

AVX2 void ckpt_dequant_avx2_iq2_xs(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ2_XS);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 74) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 32; k++) {
      uint32_t field = ckpt_le16(src + 2 + 2 * k);
      read_iq2(y + 8 * k, levels[field & 511], with_parity(field >> 9), d, src[66 + k / 4] >> 4 * (k / 2 % 2) & 15u);
    }
  }
}

AVX2 void ckpt_dequant_avx2_iq2_s(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ2_S);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 82) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 32; k++) {
      unsigned point = src[2 + k] | (src[66 + k / 4] >> 2 * (k % 4) & 3u) << 8;
      read_iq2(y + 8 * k, levels[point], src[34 + k], d, src[74 + k / 4] >> 4 * (k / 2 % 2) & 15u);
    }
  }
}

/* IQ3_XXS: 4, 12, ... 52, 62. */
AVX2 void ckpt_dequant_avx2_iq3_xxs(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ3_XXS);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 98) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 32; k++) {
      uint32_t field = ckpt_le32(src + 66 + 4 * (k / 4)), signs = with_parity(field >> 7 * (k % 4) & 127);
      float scale = d * (0.5f + (float)(field >> 28)) * 0.5f;
      read_group(y + 8 * k, levels[src[2 + 2 * k]], 4, signs, scale, 8, 4, 7, 2);
      read_group(y + 8 * k + 4, levels[src[3 + 2 * k]], 4, signs >> 4, scale, 8, 4, 7, 2);
    }
  }
}

/* IQ3_S: 1, 3, ... 15. */
AVX2 void ckpt_dequant_avx2_iq3_s(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ3_S);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 110) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 64; k++) {
      int point = src[2 + k] | (src[66 + k / 8] >> k % 8 & 1) << 8;
      float scale = d * (float)(1 + 2 * (src[106 + k / 16] >> 4 * (k / 8 % 2) & 15));
      read_group(y + 4 * k, levels[point], 4, (uint32_t)src[74 + k / 2] >> 4 * (k % 2), scale, 2, 1, 8, 0);
    }
  }
}

/* ---- IQ1: -1, 0, 1, shifted by an eighth ------------------------------------------------------------------------- */

INLINE void read_iq1(float *restrict y, const uint8_t *restrict levels, float scale, float shift) {
  for (int i = 0; i < 8; i++) y[i] = scale * ((float)(levels[i] - 1) + shift);
}

AVX2 void ckpt_dequant_avx2_iq1_s(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 50) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 32; k++) {
      uint32_t field = ckpt_le16(src + 34 + 2 * (k / 4));
      read_iq1(y + 8 * k, levels[src[2 + k] | (field >> 3 * (k % 4) & 7) << 8], d * (float)(2 * (field >> 12 & 7) + 1),
               field >> 15 ? -0.125f : 0.125f);
    }
  }
}

AVX2 void ckpt_dequant_avx2_iq1_m(float *y, const uint8_t *src, size_t n) {
  levels_table levels = ckpt_grid_levels(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 56) {
    uint32_t bits = 0;
    for (int k = 0; k < 4; k++) bits |= (uint32_t)(ckpt_le16(src + 48 + 2 * k) >> 12) << 4 * k;
    float d = ckpt_f16_value(bits);
    for (int k = 0; k < 32; k++) {
      unsigned high = src[32 + k / 2] >> 4 * (k % 2) & 15u,
               scale = (unsigned)ckpt_le16(src + 48 + 2 * (k / 8)) >> 3 * (k / 2 % 4);
      read_iq1(y + 8 * k, levels[src[k] | (high & 7) << 8], d * (float)(2 * (scale & 7) + 1),
               high >> 3 ? -0.125f : 0.125f);
    }
  }
}

#endif
