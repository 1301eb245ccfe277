/* avx2_points.c - IQ1, IQ2 and IQ3 to f32 with AVX2, eight elements at a time.
 *
 * Lane i takes the i-th level out of a packed point, and with it a product of the reference out of a table: scale times
 * what each level stands for. Layouts: kernels/ref/quant/iq1.c, kernels/ref/quant/iq2.c and kernels/ref/quant/iq3.c of
 * kernels/ref. */
#if defined(__x86_64__)
#include "kernels/cpu/quant/avx2_nearest.h"
#include "kernels/cpu/quant/quant.h"

/* The eight signs of seven: their number is even. */
INLINE uint32_t with_parity(uint32_t signs) { return signs | (uint32_t)(__builtin_popcount(signs) & 1) << 7; }

/* Eight elements: n_bits of levels for each, and a bit of signs. */
INLINE void read_group(float *y, __m256 products, int n_bits, uint32_t levels, uint32_t signs) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i shift = _mm256_mullo_epi32(lane, _mm256_set1_epi32(n_bits));
  __m256 value = pick(products, n_bits, _mm256_srlv_epi32(_mm256_set1_epi32((int)levels), shift));
  __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32((int)signs), _mm256_sub_epi32(_mm256_set1_epi32(31), lane));
  _mm256_storeu_ps(y, _mm256_xor_ps(value, _mm256_and_ps(_mm256_castsi256_ps(sign), _mm256_set1_ps(-0.0f))));
}

/* ---- IQ2: 8, 25, 43 ---------------------------------------------------------------------------------------------- */

INLINE __m256 products2(float d, uint32_t code) {
  return _mm256_mul_ps(_mm256_set1_ps(d * (0.5f + (float)code) * 0.25f), _mm256_setr_ps(8, 25, 43, 0, 8, 25, 43, 0));
}

AVX2 void ckpt_dequant_avx2_iq2_xxs(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ2_XXS);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 66)
    for (int ib = 0; ib < 8; ib++) {
      uint32_t field = ckpt_le32(src + 6 + 8 * ib);
      __m256 products = products2(ckpt_get_f16(src), field >> 28);
      for (int k = 0; k < 4; k++)
        read_group(y + 32 * ib + 8 * k, products, 2, points[src[2 + 8 * ib + k]], with_parity(field >> 7 * k & 127));
    }
}

AVX2 void ckpt_dequant_avx2_iq2_xs(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ2_XS);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 74)
    for (int ib = 0; ib < 16; ib++) {
      __m256 products = products2(ckpt_get_f16(src), src[66 + ib / 2] >> 4 * (ib % 2) & 15u);
      for (int k = 2 * ib; k < 2 * ib + 2; k++) {
        uint32_t field = ckpt_le16(src + 2 + 2 * k);
        read_group(y + 8 * k, products, 2, points[field & 511], with_parity(field >> 9));
      }
    }
}

AVX2 void ckpt_dequant_avx2_iq2_s(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ2_S);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 82)
    for (int ib = 0; ib < 16; ib++) {
      __m256 products = products2(ckpt_get_f16(src), src[74 + ib / 2] >> 4 * (ib % 2) & 15u);
      for (int k = 2 * ib; k < 2 * ib + 2; k++)
        read_group(y + 8 * k, products, 2, points[src[2 + k] | (src[66 + k / 4] >> 2 * (k % 4) & 3) << 8], src[34 + k]);
    }
}

/* ---- IQ3: two points for eight elements -------------------------------------------------------------------------- */

AVX2 void ckpt_dequant_avx2_iq3_xxs(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ3_XXS);
  const __m256 values = _mm256_setr_ps(4, 12, 20, 28, 36, 44, 52, 62);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 98)
    for (int ib = 0; ib < 8; ib++) {
      uint32_t field = ckpt_le32(src + 66 + 4 * ib);
      float scale = ckpt_get_f16(src) * (0.5f + (float)(field >> 28)) * 0.5f;
      __m256 products = _mm256_mul_ps(_mm256_set1_ps(scale), values);
      for (int k = 0; k < 4; k++) {
        const uint8_t *at = src + 2 + 8 * ib + 2 * k;
        read_group(y + 32 * ib + 8 * k, products, 3, points[at[0]] | (uint32_t)points[at[1]] << 12,
                   with_parity(field >> 7 * k & 127));
      }
    }
}

AVX2 void ckpt_dequant_avx2_iq3_s(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ3_S);
  const __m256 values = _mm256_setr_ps(1, 3, 5, 7, 9, 11, 13, 15);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 110)
    for (int ib = 0; ib < 8; ib++) {
      float scale = ckpt_get_f16(src) * (float)(1 + 2 * (src[106 + ib / 2] >> 4 * (ib % 2) & 15));
      __m256 products = _mm256_mul_ps(_mm256_set1_ps(scale), values);
      for (int k = 0; k < 4; k++) {
        const uint8_t *at = src + 2 + 8 * ib + 2 * k;
        int high = src[66 + ib] >> 2 * k;
        read_group(y + 32 * ib + 8 * k, products, 3,
                   points[at[0] | (high & 1) << 8] | (uint32_t)points[at[1] | (high & 2) << 7] << 12,
                   src[74 + 4 * ib + k]);
      }
    }
}

/* ---- IQ1: -1, 0, 1, shifted by an eighth ------------------------------------------------------------------------- */

INLINE __m256 products1(float scale, bool is_down) {
  const __m256 values = _mm256_setr_ps(-1, 0, 1, 0, -1, 0, 1, 0);
  return _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_add_ps(values, _mm256_set1_ps(is_down ? -0.125f : 0.125f)));
}

AVX2 void ckpt_dequant_avx2_iq1_s(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 50)
    for (int ib = 0; ib < 8; ib++) {
      uint32_t field = ckpt_le16(src + 34 + 2 * ib);
      __m256 products = products1(ckpt_get_f16(src) * (float)(2 * (field >> 12 & 7) + 1), field >> 15);
      for (int k = 0; k < 4; k++)
        read_group(y + 32 * ib + 8 * k, products, 2, points[src[2 + 4 * ib + k] | (field >> 3 * k & 7) << 8], 0);
    }
}

AVX2 void ckpt_dequant_avx2_iq1_m(float *y, const uint8_t *src, size_t n) {
  const uint16_t *points = ckpt_grid_points(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 56) {
    uint32_t bits = 0;
    for (int k = 0; k < 4; k++) bits |= (uint32_t)(ckpt_le16(src + 48 + 2 * k) >> 12) << 4 * k;
    float d = ckpt_f16_value(bits);
    for (int ib = 0; ib < 16; ib++) {
      uint32_t high = src[32 + ib], code = (uint32_t)ckpt_le16(src + 48 + 2 * (ib / 4)) >> 3 * (ib % 4) & 7;
      float scale = d * (float)(2 * code + 1);
      read_group(y + 16 * ib, products1(scale, high & 8), 2, points[src[2 * ib] | (high & 7) << 8], 0);
      read_group(y + 16 * ib + 8, products1(scale, high & 128), 2, points[src[2 * ib + 1] | (high & 112) << 4], 0);
    }
  }
}

#endif
