/* avx2_plain.c - Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 without importance, a block at a time on AVX2.
 *
 * No sums here, so elements stand in lanes. The least, the greatest and the element of greatest magnitude are, as in
 * the reference, the first of equal ones: their zeros have signs, which are written. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/quant/quant.h"
#include "kernels/ref/quant/legacy.h"

#define AVX2 __attribute__((target("avx2")))

/* A block: elements 8 k to 8 k + 7 in vector k. */
typedef struct block {
  __m256 x[4];
} block;

AVX2 static inline block load(const float *x) {
  return (block){{_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)}};
}

AVX2 static inline float greatest(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

/* Bit i: element i of b equals value. */
AVX2 static inline uint32_t equal_to(const block *b, float value) {
  uint32_t bits = 0;
  for (int k = 0; k < 4; k++)
    bits |= (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(b->x[k], _mm256_set1_ps(value), _CMP_EQ_OQ)) << 8 * k;
  return bits;
}

AVX2 static inline float first_of(const float *x, uint32_t bits) { return x[bits ? __builtin_ctz(bits) : 0]; }

AVX2 static inline block magnitudes(const block *b) {
  block m;
  for (int k = 0; k < 4; k++) m.x[k] = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), b->x[k]);
  return m;
}

AVX2 static inline float greatest_of(const block *b) {
  return greatest(_mm256_max_ps(_mm256_max_ps(b->x[0], b->x[1]), _mm256_max_ps(b->x[2], b->x[3])));
}

AVX2 static inline float least_of(const block *b) {
  block negated;
  for (int k = 0; k < 4; k++) negated.x[k] = _mm256_xor_ps(_mm256_set1_ps(-0.0f), b->x[k]);
  return -greatest_of(&negated);
}

/* 32 numbers of 0 to 255 as bytes, in two halves. */
AVX2 static inline __m128i bytes_of(__m256i a, __m256i b) {
  __m128i low = _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  __m128i high = _mm_packus_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  return _mm_packus_epi16(low, high);
}

/* Writes scale and minimum; gives what codes come from: (x - offset) * inverse + half, towards zero. */
AVX2 static inline void scale_block(ckpt_legacy_layout t, uint8_t *dst, const float *x, const block *b, float *inverse,
                                    float *offset, float *half) {
  float d;
  if (t.has_min) {
    float min = least_of(b), max = greatest_of(b);
    if (min == 0) min = first_of(x, equal_to(b, min)); /* the only equal ones that differ */
    if (max == 0) max = first_of(x, equal_to(b, max));
    d = (max - min) / (float)((1 << t.bits) - 1);
    *offset = min;
    *half = 0.5f;
    ckpt_put_f16(dst + 2, min);
  } else {
    block m = magnitudes(b);
    float largest = greatest_of(&m), extreme = largest > 0 ? first_of(x, equal_to(&m, largest)) : 0;
    d = extreme / (float)-(1 << (t.bits - 1));
    *offset = 0;
    *half = (float)(1 << (t.bits - 1)) + 0.5f;
  }
  ckpt_put_f16(dst, d);
  *inverse = d != 0 ? 1.0f / d : 0.0f;
}

AVX2 __attribute__((always_inline)) static inline void quantize(ckpt_legacy_layout t, uint8_t *dst, const float *x,
                                                                size_t n) {
  for (; n > 0; n -= CKPT_LEGACY, x += CKPT_LEGACY, dst += ckpt_legacy_block_bytes(t)) {
    block b = load(x);
    float inverse, offset, half;
    uint8_t *at = dst + (t.has_min ? 4 : 2);
    __m256i codes[4];
    uint32_t high = 0;
    scale_block(t, dst, x, &b, &inverse, &offset, &half);
    for (int k = 0; k < 4; k++) {
      __m256 v = t.has_min ? _mm256_sub_ps(b.x[k], _mm256_set1_ps(offset)) : b.x[k];
      v = _mm256_add_ps(_mm256_mul_ps(v, _mm256_set1_ps(inverse)), _mm256_set1_ps(half));
      codes[k] = _mm256_min_epi32(_mm256_and_si256(_mm256_cvttps_epi32(v), _mm256_set1_epi32(255)),
                                  _mm256_set1_epi32((1 << t.bits) - 1));
      if (t.bits != 5) continue;
      high |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32(codes[k], 27))) << 8 * k;
      codes[k] = _mm256_and_si256(codes[k], _mm256_set1_epi32(15));
    }
    if (t.bits == 5) ckpt_put_u32(at, high);
    __m256i first = _mm256_or_si256(codes[0], _mm256_slli_epi32(codes[2], 4));
    __m256i second = _mm256_or_si256(codes[1], _mm256_slli_epi32(codes[3], 4));
    _mm_storeu_si128((__m128i *)(at + (t.bits == 5 ? 4 : 0)), bytes_of(first, second));
  }
}

#define TYPE(name)                                                                              \
  AVX2 void ckpt_quant_avx2_##name(uint8_t *dst, const float *x, size_t n, const float *none) { \
    (void)none;                                                                                 \
    quantize(ckpt_##name, dst, x, n);                                                           \
  }

TYPE(q4_0)
TYPE(q4_1)
TYPE(q5_0)
TYPE(q5_1)

AVX2 void ckpt_quant_avx2_q8_0(uint8_t *dst, const float *x, size_t n, const float *none) {
  const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
  (void)none;
  for (; n > 0; n -= CKPT_LEGACY, x += CKPT_LEGACY, dst += 2 + CKPT_LEGACY) {
    block b = load(x), m = magnitudes(&b);
    float d = greatest_of(&m) / 127, inverse = d != 0 ? 1.0f / d : 0.0f;
    __m256i codes[4];
    ckpt_put_f16(dst, d);
    for (int k = 0; k < 4; k++) { /* half away from zero */
      __m256 v = _mm256_mul_ps(b.x[k], _mm256_set1_ps(inverse));
      __m256 whole = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
      __m256 rest = _mm256_andnot_ps(sign, _mm256_sub_ps(v, whole));
      __m256 step = _mm256_and_ps(_mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ),
                                  _mm256_or_ps(_mm256_and_ps(v, sign), one));
      codes[k] = _mm256_and_si256(_mm256_cvttps_epi32(_mm256_add_ps(whole, step)), _mm256_set1_epi32(255));
    }
    _mm_storeu_si128((__m128i *)(dst + 2), bytes_of(codes[0], codes[1]));
    _mm_storeu_si128((__m128i *)(dst + 18), bytes_of(codes[2], codes[3]));
  }
}

#endif
