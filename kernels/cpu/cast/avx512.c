/* avx512.c - cast kernels for AVX-512 F, BW and VL.
 *
 * As avx2.c, sixteen at a time. The processor's own f32 -> bf16 instruction is not used: it flushes
 * subnormals to zero. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/cast/cast.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

AVX512 static inline __m512i load(const void *src, size_t i) { return _mm512_loadu_si512((const char *)src + 4 * i); }

AVX512 static inline __m512i magnitude_of(__m512i bits) {
  return _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
}

AVX512 static inline __mmask16 above(__m512i magnitude, uint32_t limit) {
  return _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32((int)limit));
}

typedef struct lanes {
  __m512i largest, n_underflow;
} lanes;

/* Takes note of magnitudes that become zero up to `lost`; zero wraps around. */
AVX512 static inline void see(lanes *seen, __m512i magnitude, uint32_t lost) {
  const __m512i one = _mm512_set1_epi32(1);
  __mmask16 is_lost = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(magnitude, one), _mm512_set1_epi32((int)lost));
  seen->largest = _mm512_max_epu32(seen->largest, magnitude);
  seen->n_underflow = _mm512_mask_add_epi32(seen->n_underflow, is_lost, seen->n_underflow, one);
}

AVX512 static inline ckpt_convert_seen seen_of(const lanes *seen) {
  return (ckpt_convert_seen){_mm512_reduce_max_epu32(seen->largest),
                             (uint32_t)_mm512_reduce_add_epi32(seen->n_underflow)};
}

AVX512 static ckpt_convert_seen widen_bf16(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    __m256i x = _mm256_loadu_si256((const __m256i *)((const char *)src + 2 * i));
    _mm512_storeu_si512((char *)dst + 4 * i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  return (ckpt_convert_seen){0};
}

AVX512 static ckpt_convert_seen widen_f16(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    __m256i x = _mm256_loadu_si256((const __m256i *)((const char *)src + 2 * i));
    _mm512_storeu_si512((char *)dst + 4 * i, _mm512_castps_si512(_mm512_cvtph_ps(x)));
  }
  return (ckpt_convert_seen){0};
}

AVX512 static ckpt_convert_seen widen_f64(void *dst, const void *src, size_t n) {
  const __m512i one = _mm512_set1_epi64(1), lost = _mm512_set1_epi64((long long)CKPT_LOST_F64_TO_F32);
  lanes seen = {_mm512_setzero_si512(), _mm512_setzero_si512()}; /* of 64 bits */
  for (size_t i = 0; i < n; i += 8) {
    __m512i bits = load(src, 2 * i), magnitude = _mm512_and_si512(bits, _mm512_set1_epi64(0x7fffffffffffffff));
    __mmask8 is_lost = _mm512_cmplt_epu64_mask(_mm512_sub_epi64(magnitude, one), lost);
    seen.largest = _mm512_max_epu64(seen.largest, magnitude);
    seen.n_underflow = _mm512_mask_add_epi64(seen.n_underflow, is_lost, seen.n_underflow, one);
    __m256 narrowed = _mm512_cvtpd_ps(_mm512_castsi512_pd(bits));
    _mm256_storeu_si256((__m256i *)((char *)dst + 4 * i), _mm256_castps_si256(narrowed));
  }
  return (ckpt_convert_seen){_mm512_reduce_max_epu64(seen.largest),
                             (uint64_t)_mm512_reduce_add_epi64(seen.n_underflow)};
}

AVX512 static ckpt_convert_seen narrow_f64(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    __m256i x = _mm256_loadu_si256((const __m256i *)((const char *)src + 4 * i));
    _mm512_storeu_si512((char *)dst + 8 * i, _mm512_castpd_si512(_mm512_cvtps_pd(_mm256_castsi256_ps(x))));
  }
  return (ckpt_convert_seen){0};
}

AVX512 static ckpt_convert_seen narrow_bf16(void *dst, const void *src, size_t n) {
  lanes seen = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < n; i += 16) {
    __m512i bits = load(src, i), magnitude = magnitude_of(bits);
    see(&seen, magnitude, CKPT_LOST_BF16);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m512i code =
        _mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 16), above(magnitude, 0x7f800000), _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256((__m256i *)((char *)dst + 2 * i), _mm512_cvtepi32_epi16(code));
  }
  return seen_of(&seen);
}

AVX512 static ckpt_convert_seen narrow_f16(void *dst, const void *src, size_t n) {
  lanes seen = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < n; i += 16) {
    __m512i bits = load(src, i);
    see(&seen, magnitude_of(bits), CKPT_LOST_F16);
    __m256i half = _mm512_cvtps_ph(_mm512_castsi512_ps(bits), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)((char *)dst + 2 * i), half);
  }
  return seen_of(&seen);
}

AVX512 static inline ckpt_convert_seen narrow8(void *dst, const void *src, size_t n, const ckpt_narrow8 *f) {
  const __m512i magic = _mm512_set1_epi32((int)f->magic), one = _mm512_set1_epi32(1);
  const __m512i below_half = _mm512_set1_epi32((1 << (f->shift - 1)) - 1), rebias = _mm512_set1_epi32((int)f->rebias);
  lanes seen = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < n; i += 16) {
    __m512i bits = load(src, i), magnitude = magnitude_of(bits);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, f->shift), one);
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(magnitude, odd), below_half);
    __m512i code = _mm512_sub_epi32(_mm512_srli_epi32(rounded, f->shift), rebias);
    __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(magic));
    __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32((int)f->min_normal));
    code = _mm512_mask_sub_epi32(code, is_subnormal, _mm512_castps_si512(sum), magic);
    __mmask16 beyond = above(magnitude, f->limit);
    see(&seen, magnitude, f->lost);
    code = _mm512_mask_mov_epi32(code, beyond, _mm512_set1_epi32((int)f->overflow));
    code = _mm512_mask_mov_epi32(code, above(magnitude, 0x7f800000), _mm512_set1_epi32(0x7f));
    code = _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80)));
    _mm_storeu_si128((__m128i *)((char *)dst + i), _mm512_cvtepi32_epi8(code));
  }
  return seen_of(&seen);
}

AVX512 static ckpt_convert_seen narrow_e4m3(void *dst, const void *src, size_t n) {
  return narrow8(dst, src, n, &ckpt_narrow_e4m3);
}
AVX512 static ckpt_convert_seen narrow_e5m2(void *dst, const void *src, size_t n) {
  return narrow8(dst, src, n, &ckpt_narrow_e5m2);
}

const ckpt_convert_level ckpt_convert_avx512 = {
    .name = "avx512",
    .widen = {[CKPT_F64] = widen_f64, [CKPT_F16] = widen_f16, [CKPT_BF16] = widen_bf16},
    .narrow = {[CKPT_F64] = narrow_f64,
               [CKPT_F16] = narrow_f16,
               [CKPT_BF16] = narrow_bf16,
               [CKPT_F8_E4M3] = narrow_e4m3,
               [CKPT_F8_E5M2] = narrow_e5m2},
};
#else
typedef int ckpt_convert_avx512_is_empty; /* ISO C wants a declaration in every file */
#endif
