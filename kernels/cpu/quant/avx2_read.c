/* avx2_read.c - block types to f32 with AVX2: the reference's products, mostly in loops that compilers turn
 * into vectors.
 *
 * A value is one product, or a product and a difference, of its own block: there is no sum whose order could matter,
 * and no contraction as everywhere. Layouts: the headers of kernels/ref/quant_*. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/quant/quant.h"
#include "kernels/ref/quant/fp4.h"
#include "kernels/ref/quant/iq4.h"
#include "kernels/ref/quant/k.h"
#include "kernels/ref/quant/k_symmetric.h"
#include "kernels/ref/quant/legacy.h"

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 __attribute__((always_inline)) static inline

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

INLINE void read_legacy(ckpt_legacy_layout t, float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= CKPT_LEGACY, y += CKPT_LEGACY, src += ckpt_legacy_block_bytes(t)) {
    const uint8_t *at = src + (t.has_min ? 4 : 2), *low = at + (t.bits == 5 ? 4 : 0);
    float d = ckpt_get_f16(src), min = t.has_min ? ckpt_get_f16(src + 2) : 0;
    uint32_t high = t.bits == 5 ? ckpt_le32(at) : 0;
    int middle = t.has_min ? 0 : 1 << (t.bits - 1), codes[CKPT_LEGACY];
    for (int j = 0; j < 16; j++) {
      codes[j] = low[j] & 15;
      codes[j + 16] = low[j] >> 4;
    }
    for (int j = 0; j < CKPT_LEGACY && t.bits == 5; j++) codes[j] |= (int)(high >> j & 1) << 4;
    for (int j = 0; j < CKPT_LEGACY; j++) y[j] = t.has_min ? (float)codes[j] * d + min : (float)(codes[j] - middle) * d;
  }
}

#define LEGACY(name) \
  AVX2 void ckpt_dequant_avx2_##name(float *y, const uint8_t *src, size_t n) { read_legacy(ckpt_##name, y, src, n); }

LEGACY(q4_0)
LEGACY(q4_1)
LEGACY(q5_0)
LEGACY(q5_1)

AVX2 void ckpt_dequant_avx2_q8_0(float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= CKPT_LEGACY, y += CKPT_LEGACY, src += 2 + CKPT_LEGACY) {
    float d = ckpt_get_f16(src);
    for (int j = 0; j < CKPT_LEGACY; j++) y[j] = (float)(int8_t)src[2 + j] * d;
  }
}

/* ---- superblocks ------------------------------------------------------------------------------------------------- */

/* 32 elements of one shift: two halves of 16, or one scale for all. */
INLINE void read_sub(float *restrict y, const uint8_t *restrict low, const uint8_t *restrict high, int shift, int mask,
                     int high_bit, float scale, float min, int n) {
  for (int l = 0; l < n; l++) {
    int code = (low[l] >> shift & mask) | (high ? (high[l] >> high_bit & 1) << 4 : 0);
    y[l] = scale * (float)code - min;
  }
}

INLINE void read_k(const ckpt_k_layout *t, float *restrict y, const uint8_t *restrict src, size_t n) {
  uint8_t scales[CKPT_K_MAX_SUB], mins[CKPT_K_MAX_SUB];
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += ckpt_k_block_bytes(t)) {
    const uint8_t *header = t->bits == 2 ? src + 80 : src, *low = src + (t->bits == 5 ? 48 : 16);
    float d = ckpt_get_f16(header), dmin = ckpt_get_f16(header + 2);
    ckpt_k_unpack_scales(t, t->bits == 2 ? src : src + 4, scales, mins);
    for (int s = 0; s < 8 && t->bits != 2; s++)
      read_sub(y + 32 * s, low + 32 * (s / 2), t->bits == 5 ? src + 16 : NULL, 4 * (s % 2), 15, s, d * (float)scales[s],
               dmin * (float)mins[s], 32);
    for (int s = 0; s < 16 && t->bits == 2; s++)
      read_sub(y + 16 * s, low + 32 * (s / 8) + 16 * (s % 2), NULL, 2 * (s / 2 % 4), 3, 0, d * (float)scales[s],
               dmin * (float)mins[s], 16);
  }
}

#define K(name) \
  AVX2 void ckpt_dequant_avx2_##name(float *y, const uint8_t *src, size_t n) { read_k(&ckpt_##name, y, src, n); }

K(q2_k)
K(q4_k)
K(q5_k)

AVX2 void ckpt_dequant_avx2_q3_k(float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += CKPT_Q3_BYTES) {
    float d = ckpt_get_f16(src + 108);
    for (int s = 0; s < CKPT_KS_N_SUB; s++) {
      const uint8_t *low = src + 32 + 32 * (s / 8) + 16 * (s % 2), *high = src + 16 * (s % 2);
      float scale = d * (float)ckpt_ks_scale3(src + 96, s);
      int shift = 2 * (s / 2 % 4), bit = s / 2;
      for (int l = 0; l < 16; l++)
        y[16 * s + l] = scale * (float)((low[l] >> shift & 3) + 4 * (high[l] >> bit & 1) - 4);
    }
  }
}

AVX2 void ckpt_dequant_avx2_q6_k(float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += CKPT_Q6_BYTES) {
    float d = ckpt_get_f16(src + 208);
    for (int s = 0; s < CKPT_KS_N_SUB; s++) {
      const uint8_t *low = src + 64 * (s / 8) + 16 * (s % 4), *high = src + 128 + 32 * (s / 8) + 16 * (s % 2);
      float scale = d * (float)(int8_t)src[192 + s];
      int low_shift = 4 * (s / 4 % 2), high_shift = 2 * (s / 2 % 4);
      for (int l = 0; l < 16; l++)
        y[16 * s + l] = scale * (float)((low[l] >> low_shift & 15) + ((high[l] >> high_shift & 3) << 4) - 32);
    }
  }
}

AVX2 void ckpt_dequant_avx2_tq2_0(float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 66) {
    float d = ckpt_get_f16(src + 64);
    for (int s = 0; s < 8; s++)
      for (int l = 0; l < 32; l++) y[32 * s + l] = (float)((src[32 * (s / 4) + l] >> 2 * (s % 4) & 3) - 1) * d;
  }
}

/* ---- codes of four bits for sixteen values ----------------------------------------------------------------------- */

/* 32 elements: the low codes, then the high ones. */
INLINE void read_values(float *y, const uint8_t *src, const int8_t *values, float scale) {
  const __m128i table = _mm_loadu_si128((const __m128i *)values), low = _mm_set1_epi8(15);
  __m128i codes = _mm_loadu_si128((const __m128i *)src);
  for (int half = 0; half < 2; half++, y += 16, codes = _mm_srli_epi16(codes, 4)) {
    __m128i found = _mm_shuffle_epi8(table, _mm_and_si128(codes, low));
    __m256 first = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(found));
    __m256 second = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(found, 8)));
    _mm256_storeu_ps(y, _mm256_mul_ps(first, _mm256_set1_ps(scale)));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(second, _mm256_set1_ps(scale)));
  }
}

AVX2 void ckpt_dequant_avx2_mxfp4(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= 32, y += 32, src += 17) read_values(y, src + 1, ckpt_fp4_values, ckpt_fp4_mx_scale(src[0]));
}

AVX2 void ckpt_dequant_avx2_iq4_nl(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= CKPT_IQ4_SUB, y += CKPT_IQ4_SUB, src += 18)
    read_values(y, src + 2, ckpt_iq4_values, ckpt_get_f16(src));
}

AVX2 void ckpt_dequant_avx2_iq4_xs(float *y, const uint8_t *src, size_t n) {
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 136)
    for (int ib = 0; ib < 8; ib++) {
      int scale = (src[4 + ib / 2] >> 4 * (ib % 2) & 15) | (ckpt_le16(src + 2) >> 2 * ib & 3) << 4;
      read_values(y + CKPT_IQ4_SUB * ib, src + 8 + 16 * ib, ckpt_iq4_values, ckpt_get_f16(src) * (float)(scale - 32));
    }
}

/* ---- small blocks and tables ------------------------------------------------------------------------------------- */

AVX2 void ckpt_dequant_avx2_q1_0(float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= 128, y += 128, src += 18) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 16; k++)
      for (uint32_t j = 0; j < 8; j++) y[8 * k + (int)j] = ckpt_flip(d, (uint32_t)~src[2 + k] >> j & 1);
  }
}

AVX2 void ckpt_dequant_avx2_q2_0(float *restrict y, const uint8_t *restrict src, size_t n) {
  for (; n > 0; n -= 64, y += 64, src += 18) {
    float d = ckpt_get_f16(src);
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 4; j++) y[4 * k + j] = (float)((src[2 + k] >> 2 * j & 3) - 1) * d;
  }
}

AVX2 void ckpt_dequant_avx2_tq1_0(float *restrict y, const uint8_t *restrict src, size_t n) {
  static const uint8_t powers[5] = {1, 3, 9, 27, 81};
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 54) {
    float d = ckpt_get_f16(src + 52);
    for (int k = 0; k < 5; k++) {
      for (int l = 0; l < 32; l++) y[32 * k + l] = (float)(((uint8_t)(src[l] * powers[k]) * 3 >> 8) - 1) * d;
      for (int l = 0; l < 16; l++) y[160 + 16 * k + l] = (float)(((uint8_t)(src[32 + l] * powers[k]) * 3 >> 8) - 1) * d;
      for (int l = 0; l < 4 && k < 4; l++)
        y[240 + 4 * k + l] = (float)(((uint8_t)(src[48 + l] * powers[k]) * 3 >> 8) - 1) * d;
    }
  }
}

#endif
