/* avx2.c - cast kernels for AVX2 and F16C (no processor has the first without the second).
 *
 * Each function carries its own target attribute, so the rest of the build stays portable. n is a multiple of
 * CKPT_CONVERT_STEP. The arithmetic is that of scalar.c, eight at a time. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/cast/cast.h"

#define AVX2 __attribute__((target("avx2,f16c")))

AVX2 static inline __m256i load(const void *src, size_t i) {
  return _mm256_loadu_si256((const __m256i *)((const char *)src + 4 * i));
}

AVX2 static inline __m256i magnitude_of(__m256i bits) { return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)); }

/* Lanes of magnitude above limit: without sign the signed comparison serves. */
AVX2 static inline __m256i above(__m256i magnitude, uint32_t limit) {
  return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((int)limit));
}

typedef struct lanes {
  __m256i largest, n_underflow;
} lanes;

/* Takes note of magnitudes that become zero up to `lost`. AVX2 compares signed numbers only: one is taken off, so that
 * zero wraps around, and the sign bit turned, in one addition. */
AVX2 static inline void see(lanes *seen, __m256i magnitude, uint32_t lost) {
  __m256i turned = _mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7fffffff));
  __m256i is_lost = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(lost ^ 0x80000000)), turned);
  seen->largest = _mm256_max_epi32(seen->largest, magnitude);
  seen->n_underflow = _mm256_sub_epi32(seen->n_underflow, is_lost);
}

AVX2 static inline ckpt_convert_seen seen_of(const lanes *seen) {
  uint32_t largest[8], n_underflow[8];
  ckpt_convert_seen all = {0};
  _mm256_storeu_si256((__m256i *)largest, seen->largest);
  _mm256_storeu_si256((__m256i *)n_underflow, seen->n_underflow);
  for (int i = 0; i < 8; i++) {
    if (largest[i] > all.largest) all.largest = largest[i];
    all.n_underflow += n_underflow[i];
  }
  return all;
}

AVX2 static ckpt_convert_seen widen_bf16(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    __m128i x = _mm_loadu_si128((const __m128i *)((const char *)src + 2 * i));
    _mm256_storeu_si256((__m256i *)((char *)dst + 4 * i), _mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
  return (ckpt_convert_seen){0};
}

AVX2 static ckpt_convert_seen widen_f16(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    __m128i x = _mm_loadu_si128((const __m128i *)((const char *)src + 2 * i));
    _mm256_storeu_si256((__m256i *)((char *)dst + 4 * i), _mm256_castps_si256(_mm256_cvtph_ps(x)));
  }
  return (ckpt_convert_seen){0};
}

/* As see, in lanes of 64 bits. */
AVX2 static ckpt_convert_seen widen_f64(void *dst, const void *src, size_t n) {
  __m256i largest = _mm256_setzero_si256(), n_underflow = largest;
  for (size_t i = 0; i < n; i += 4) {
    __m256i bits = load(src, 2 * i);
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi64x(0x7fffffffffffffff));
    __m256i turned = _mm256_add_epi64(magnitude, _mm256_set1_epi64x(0x7fffffffffffffff));
    __m256i bound = _mm256_set1_epi64x((long long)(CKPT_LOST_F64_TO_F32 ^ 0x8000000000000000));
    largest = _mm256_blendv_epi8(largest, magnitude, _mm256_cmpgt_epi64(magnitude, largest));
    n_underflow = _mm256_sub_epi64(n_underflow, _mm256_cmpgt_epi64(bound, turned));
    __m128 narrowed = _mm256_cvtpd_ps(_mm256_castsi256_pd(bits));
    _mm_storeu_si128((__m128i *)((char *)dst + 4 * i), _mm_castps_si128(narrowed));
  }
  uint64_t all[4];
  ckpt_convert_seen seen = {0};
  _mm256_storeu_si256((__m256i *)all, largest);
  for (int i = 0; i < 4; i++) seen.largest = all[i] > seen.largest ? all[i] : seen.largest;
  _mm256_storeu_si256((__m256i *)all, n_underflow);
  for (int i = 0; i < 4; i++) seen.n_underflow += all[i];
  return seen;
}

AVX2 static ckpt_convert_seen narrow_f64(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i += 4) {
    __m128i x = _mm_loadu_si128((const __m128i *)((const char *)src + 4 * i));
    __m256d widened = _mm256_cvtps_pd(_mm_castsi128_ps(x));
    _mm256_storeu_si256((__m256i *)((char *)dst + 8 * i), _mm256_castpd_si256(widened));
  }
  return (ckpt_convert_seen){0};
}

AVX2 static inline __m256i round_bf16(__m256i bits) {
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i is_nan = above(magnitude_of(bits), 0x7f800000);
  return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(0x7fc0), is_nan);
}

AVX2 static ckpt_convert_seen narrow_bf16(void *dst, const void *src, size_t n) {
  lanes seen = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (size_t i = 0; i < n; i += 16) {
    __m256i a = load(src, i), b = load(src, i + 8);
    see(&seen, magnitude_of(a), CKPT_LOST_BF16);
    see(&seen, magnitude_of(b), CKPT_LOST_BF16);
    /* Packing works within 128-bit lanes; the permutation puts the quarters back in order. */
    __m256i packed = _mm256_packus_epi32(round_bf16(a), round_bf16(b));
    _mm256_storeu_si256((__m256i *)((char *)dst + 2 * i), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  return seen_of(&seen);
}

AVX2 static ckpt_convert_seen narrow_f16(void *dst, const void *src, size_t n) {
  lanes seen = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (size_t i = 0; i < n; i += 8) {
    __m256i bits = load(src, i);
    see(&seen, magnitude_of(bits), CKPT_LOST_F16);
    __m128i half = _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)((char *)dst + 2 * i), half);
  }
  return seen_of(&seen);
}

/* Codes of eight values, one in each 32-bit lane. */
AVX2 static inline __m256i code8(__m256i bits, const ckpt_narrow8 *f) {
  __m256i magnitude = magnitude_of(bits), magic = _mm256_set1_epi32((int)f->magic);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, (int)f->shift), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, odd), _mm256_set1_epi32((1 << (f->shift - 1)) - 1));
  __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(rounded, (int)f->shift), _mm256_set1_epi32((int)f->rebias));
  __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(magic));
  __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(sum), magic);
  __m256i code = _mm256_blendv_epi8(subnormal, normal, above(magnitude, f->min_normal - 1));
  code = _mm256_blendv_epi8(code, _mm256_set1_epi32((int)f->overflow), above(magnitude, f->limit));
  code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), above(magnitude, 0x7f800000));
  return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

AVX2 static inline ckpt_convert_seen narrow8(void *dst, const void *src, size_t n, const ckpt_narrow8 *f) {
  lanes seen = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  /* The two packings leave groups of four elements in the order 0 2 4 6 1 3 5 7. */
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (size_t i = 0; i < n; i += 32) {
    __m256i x[4], code[4];
    for (int k = 0; k < 4; k++) {
      x[k] = load(src, i + 8 * (size_t)k);
      code[k] = code8(x[k], f);
      see(&seen, magnitude_of(x[k]), f->lost);
    }
    __m256i low = _mm256_packus_epi32(code[0], code[1]), high = _mm256_packus_epi32(code[2], code[3]);
    __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    _mm256_storeu_si256((__m256i *)((char *)dst + i), packed);
  }
  return seen_of(&seen);
}

AVX2 static ckpt_convert_seen narrow_e4m3(void *dst, const void *src, size_t n) {
  return narrow8(dst, src, n, &ckpt_narrow_e4m3);
}
AVX2 static ckpt_convert_seen narrow_e5m2(void *dst, const void *src, size_t n) {
  return narrow8(dst, src, n, &ckpt_narrow_e5m2);
}

const ckpt_convert_level ckpt_convert_avx2 = {
    .name = "avx2",
    .widen = {[CKPT_F64] = widen_f64, [CKPT_F16] = widen_f16, [CKPT_BF16] = widen_bf16},
    .narrow = {[CKPT_F64] = narrow_f64,
               [CKPT_F16] = narrow_f16,
               [CKPT_BF16] = narrow_bf16,
               [CKPT_F8_E4M3] = narrow_e4m3,
               [CKPT_F8_E5M2] = narrow_e5m2},
};
#else
typedef int ckpt_convert_avx2_is_empty; /* ISO C wants a declaration in every file */
#endif
