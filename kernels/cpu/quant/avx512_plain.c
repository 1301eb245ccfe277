/* avx512_plain.c - Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 without importance on AVX-512: the scales of sixteen blocks at
 * once, one in each lane, then their codes a block at a time. What is left of a row is done on AVX2.
 *
 * Here too the least, the greatest and the element of greatest magnitude are the first of equal ones; blocks in which
 * that makes a difference are looked at again, one by one. The compiler must not contract products. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/quant/quant.h"
#include "kernels/ref/quant/legacy.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define ALWAYS_INLINE __attribute__((always_inline))

enum { BLOCKS = 16 }; /* at once */

typedef __m512 (*fold)(__m512, __m512);
TARGET static inline __m512 greater(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
TARGET static inline __m512 lesser(__m512 a, __m512 b) { return _mm512_min_ps(a, b); }

/* Lane i of the result is all lanes of rows[i], folded. */
TARGET ALWAYS_INLINE static inline __m512 fold_rows(__m512 rows[BLOCKS], fold f) {
  for (int i = 0; i < 8; i++)
    rows[i] = f(_mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]), _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]));
  for (int i = 0; i < 4; i++)
    rows[i] =
        f(_mm512_shuffle_ps(rows[2 * i], rows[2 * i + 1], 0x44), _mm512_shuffle_ps(rows[2 * i], rows[2 * i + 1], 0xee));
  for (int i = 0; i < 2; i++)
    rows[i] = f(_mm512_shuffle_f32x4(rows[2 * i], rows[2 * i + 1], 0x88),
                _mm512_shuffle_f32x4(rows[2 * i], rows[2 * i + 1], 0xdd));
  return f(_mm512_shuffle_f32x4(rows[0], rows[1], 0x88), _mm512_shuffle_f32x4(rows[0], rows[1], 0xdd));
}

/* The least and the greatest element of each block. */
TARGET ALWAYS_INLINE static inline void find_ends(const float *x, __m512 *least, __m512 *greatest) {
  __m512 rows[BLOCKS];
#pragma GCC unroll 16
  for (int i = 0; i < BLOCKS; i++)
    rows[i] = lesser(_mm512_loadu_ps(x + i * CKPT_LEGACY), _mm512_loadu_ps(x + i * CKPT_LEGACY + 16));
  *least = fold_rows(rows, lesser);
#pragma GCC unroll 16
  for (int i = 0; i < BLOCKS; i++)
    rows[i] = greater(_mm512_loadu_ps(x + i * CKPT_LEGACY), _mm512_loadu_ps(x + i * CKPT_LEGACY + 16));
  *greatest = fold_rows(rows, greater);
}

/* Lanes of mask get the first element of their block that equals theirs, whose sign may be another; with `either`, that
 * equals theirs or its negative. */
TARGET static __m512 first_equal(__m512 of, __mmask16 mask, const float *x, bool either) {
  float values[BLOCKS];
  _mm512_storeu_ps(values, of);
  for (unsigned bits = mask; bits != 0; bits &= bits - 1) {
    const int i = __builtin_ctz(bits);
    const float *at = x + i * CKPT_LEGACY, value = values[i];
    while (*at != value && !(either && *at == -value)) at++;
    values[i] = *at;
  }
  return _mm512_loadu_ps(values);
}

/* 1 / d, 0 where d is 0. */
TARGET static inline __m512 inverse_of(__m512 d) {
  return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(d, _mm512_setzero_ps(), _CMP_NEQ_UQ), _mm512_set1_ps(1), d);
}

TARGET static inline void store_f16(uint16_t *out, __m512 x) {
  _mm256_storeu_si256((__m256i *)out, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* What codes of sixteen blocks come from: (x - offset) * inverse + half, towards zero; f16 are scales, then minima. */
TARGET ALWAYS_INLINE static inline void scale_blocks(ckpt_legacy_layout t, const float *x, uint16_t f16[2 * BLOCKS],
                                                     float inverse[BLOCKS], float offset[BLOCKS]) {
  const __m512 zero = _mm512_setzero_ps();
  __m512 least, greatest, d;
  find_ends(x, &least, &greatest);
  if (t.has_min) {
    const __mmask16 is_zero_min = _mm512_cmp_ps_mask(least, zero, _CMP_EQ_OQ);
    const __mmask16 is_zero_max = _mm512_cmp_ps_mask(greatest, zero, _CMP_EQ_OQ);
    if (is_zero_min != 0) least = first_equal(least, is_zero_min, x, false);
    if (is_zero_max != 0) greatest = first_equal(greatest, is_zero_max, x, false);
    d = _mm512_div_ps(_mm512_sub_ps(greatest, least), _mm512_set1_ps((float)((1 << t.bits) - 1)));
    _mm512_storeu_ps(offset, least);
    store_f16(f16 + BLOCKS, least);
  } else {
    const __m512 below = _mm512_sub_ps(zero, least); /* 0 for both zeros */
    const __mmask16 is_tie = _mm512_cmp_ps_mask(below, greatest, _CMP_EQ_OQ);
    const __mmask16 is_zero = _mm512_mask_cmp_ps_mask(is_tie, greatest, zero, _CMP_EQ_OQ);
    __m512 extreme = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(below, greatest, _CMP_GT_OQ), greatest, least);
    if (is_tie != is_zero) extreme = first_equal(extreme, (__mmask16)(is_tie & ~is_zero), x, true);
    extreme = _mm512_mask_blend_ps(is_zero, extreme, zero);
    d = _mm512_div_ps(extreme, _mm512_set1_ps((float)-(1 << (t.bits - 1))));
  }
  store_f16(f16, d);
  _mm512_storeu_ps(inverse, inverse_of(d));
}

TARGET ALWAYS_INLINE static inline __m512i codes_of(ckpt_legacy_layout t, __m512 x, float inverse, float offset) {
  const __m512 half = _mm512_set1_ps(t.has_min ? 0.5f : (float)(1 << (t.bits - 1)) + 0.5f);
  if (t.has_min) x = _mm512_sub_ps(x, _mm512_set1_ps(offset));
  const __m512 v = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(inverse)), half);
  return _mm512_min_epi32(_mm512_and_si512(_mm512_cvttps_epi32(v), _mm512_set1_epi32(255)),
                          _mm512_set1_epi32((1 << t.bits) - 1));
}

TARGET ALWAYS_INLINE static inline void quantize_blocks(ckpt_legacy_layout t, uint8_t *dst, const float *x) {
  uint16_t f16[2 * BLOCKS];
  float inverse[BLOCKS], offset[BLOCKS] = {0};
  scale_blocks(t, x, f16, inverse, offset);
  for (int i = 0; i < BLOCKS; i++, x += CKPT_LEGACY, dst += ckpt_legacy_block_bytes(t)) {
    __m512i low = codes_of(t, _mm512_loadu_ps(x), inverse[i], offset[i]);
    __m512i high = codes_of(t, _mm512_loadu_ps(x + 16), inverse[i], offset[i]);
    uint8_t *at = dst + (t.has_min ? 4 : 2);
    ckpt_put_u16(dst, f16[i]);
    if (t.has_min) ckpt_put_u16(dst + 2, f16[BLOCKS + i]);
    if (t.bits == 5) {
      const __m512i fifth = _mm512_set1_epi32(16);
      ckpt_put_u32(at, (uint32_t)_mm512_test_epi32_mask(low, fifth) | (uint32_t)_mm512_test_epi32_mask(high, fifth)
                                                                          << 16);
      low = _mm512_and_si512(low, _mm512_set1_epi32(15));
      at += 4;
    }
    low = _mm512_or_si512(low, _mm512_slli_epi32(high, 4)); /* bytes: what is above them goes */
    _mm_storeu_si128((__m128i *)at, _mm512_cvtepi32_epi8(low));
  }
}

#define TYPE(name)                                                                                          \
  TARGET void ckpt_quant_avx512_##name(uint8_t *dst, const float *x, size_t n, const float *none) {         \
    const size_t n_bytes = BLOCKS * ckpt_legacy_block_bytes(ckpt_##name);                                   \
    for (; n >= BLOCKS * CKPT_LEGACY; n -= BLOCKS * CKPT_LEGACY, x += BLOCKS * CKPT_LEGACY, dst += n_bytes) \
      quantize_blocks(ckpt_##name, dst, x);                                                                 \
    ckpt_quant_avx2_##name(dst, x, n, none);                                                                \
  }

TYPE(q4_0)
TYPE(q4_1)
TYPE(q5_0)
TYPE(q5_1)

/* Half away from zero: a number below 0.5 by so little that the sum is rounded up exactly from 0.5 on. */
TARGET static inline __m512i round_away(__m512 v) {
  const __m512i sign = _mm512_set1_epi32(INT32_MIN), half = _mm512_castps_si512(_mm512_set1_ps(0x1.fffffep-2f));
  const __m512i step = _mm512_ternarylogic_epi32(_mm512_castps_si512(v), half, sign, 0xE4); /* sign ? v : half */
  return _mm512_cvttps_epi32(_mm512_add_ps(v, _mm512_castsi512_ps(step)));
}

TARGET static void quantize_q8_0_blocks(uint8_t *dst, const float *x) {
  __m512 rows[BLOCKS];
  uint16_t f16[BLOCKS];
  float inverse[BLOCKS];
#pragma GCC unroll 16
  for (int i = 0; i < BLOCKS; i++)
    rows[i] = greater(_mm512_abs_ps(_mm512_loadu_ps(x + i * CKPT_LEGACY)),
                      _mm512_abs_ps(_mm512_loadu_ps(x + i * CKPT_LEGACY + 16)));
  const __m512 d = _mm512_div_ps(fold_rows(rows, greater), _mm512_set1_ps(127));
  store_f16(f16, d);
  _mm512_storeu_ps(inverse, inverse_of(d));
  for (int i = 0; i < BLOCKS; i++, x += CKPT_LEGACY, dst += 2 + CKPT_LEGACY) {
    const __m512 by = _mm512_set1_ps(inverse[i]);
    ckpt_put_u16(dst, f16[i]);
    for (int half = 0; half < CKPT_LEGACY; half += 16)
      _mm_storeu_si128((__m128i *)(dst + 2 + half),
                       _mm512_cvtepi32_epi8(round_away(_mm512_mul_ps(_mm512_loadu_ps(x + half), by))));
  }
}

TARGET void ckpt_quant_avx512_q8_0(uint8_t *dst, const float *x, size_t n, const float *none) {
  for (; n >= BLOCKS * CKPT_LEGACY;
       n -= BLOCKS * CKPT_LEGACY, x += BLOCKS * CKPT_LEGACY, dst += BLOCKS * (2 + CKPT_LEGACY))
    quantize_q8_0_blocks(dst, x);
  ckpt_quant_avx2_q8_0(dst, x, n, none);
}

#endif
