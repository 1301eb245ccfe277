/* avx2_nearest.h - of a list of grid points the nearest one, eight points at a time, on AVX2; for the files of
 * the IQ types (avx2_grid.c, avx2_iq1.c).
 *
 * An axis has 3 or 8 levels, so its errors are worked out once for each level and picked from a vector by the levels of
 * each point. Lanes are points: each one sums from the first axis to the last, as the reference does. */
#ifndef CKPT_KERNELS_CPU_QUANT_AVX2_NEAREST_H
#define CKPT_KERNELS_CPU_QUANT_AVX2_NEAREST_H

#include <float.h>
#include <immintrin.h>

#include "kernels/ref/quant/grid.h"

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 __attribute__((always_inline)) static inline

/* Of each lane the entry of table that the lowest n_bits say; with two bits, tables repeat after four. */
INLINE __m256 pick(__m256 table, int n_bits, __m256i lanes) {
  return n_bits == 2 ? _mm256_permutevar_ps(table, lanes) : _mm256_permutevar8x32_ps(table, lanes);
}

/* The error of one axis at each level: values has what the levels stand for. */
INLINE __m256 errors_of_levels(__m256 values, float x, float weight) {
  __m256 difference = _mm256_sub_ps(values, _mm256_set1_ps(x));
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(weight), difference), difference);
}

/* The sums of eight packed points. */
INLINE __m256 errors_of_points(const __m256 *errors, int n_axes, int n_bits, const uint16_t *points) {
  __m256i levels = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)points));
  __m256 sum = pick(errors[0], n_bits, levels);
  for (int i = 1; i < n_axes; i++)
    sum = _mm256_add_ps(sum, pick(errors[i], n_bits, _mm256_srli_epi32(levels, n_bits * i)));
  return sum;
}

/* The least lane, in all lanes. */
INLINE __m256 least_lane(__m256 x) {
  x = _mm256_min_ps(x, _mm256_permute2f128_ps(x, x, 1));
  x = _mm256_min_ps(x, _mm256_permute_ps(x, 0x4e));
  return _mm256_min_ps(x, _mm256_permute_ps(x, 0xb1));
}

/* The place of the first least error among n points, at least one; 0 if none is below FLT_MAX. Reads up to 8 points
 * past the last. */
INLINE uint32_t nearest_place(const __m256 *errors, int n_axes, int n_bits, const uint16_t *points, uint32_t n) {
  const __m256i end = _mm256_set1_epi32((int)n);
  __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), best_place = _mm256_setzero_si256();
  __m256 best = _mm256_set1_ps(FLT_MAX);
  for (uint32_t k = 0; k < n; k += 8, place = _mm256_add_epi32(place, _mm256_set1_epi32(8))) {
    __m256 sum = errors_of_points(errors, n_axes, n_bits, points + k);
    __m256 is_less =
        _mm256_and_ps(_mm256_cmp_ps(sum, best, _CMP_LT_OQ), _mm256_castsi256_ps(_mm256_cmpgt_epi32(end, place)));
    best = _mm256_blendv_ps(best, sum, is_less);
    best_place =
        _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(best_place), _mm256_castsi256_ps(place), is_less));
  }
  __m256 is_least = _mm256_cmp_ps(best, least_lane(best), _CMP_EQ_OQ);
  if (n <= 8) return (uint32_t)__builtin_ctz((unsigned)_mm256_movemask_ps(is_least));
  /* lanes that are not among the least get the greatest of places */
  __m256i places = _mm256_or_si256(best_place, _mm256_xor_si256(_mm256_castps_si256(is_least), _mm256_set1_epi32(-1)));
  __m128i first = _mm_min_epu32(_mm256_castsi256_si128(places), _mm256_extracti128_si256(places, 1));
  first = _mm_min_epu32(first, _mm_shuffle_epi32(first, 0x4e));
  return (uint32_t)_mm_cvtsi128_si32(_mm_min_epu32(first, _mm_shuffle_epi32(first, 0xb1)));
}

#endif
