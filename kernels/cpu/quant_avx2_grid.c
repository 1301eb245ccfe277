/* quant_avx2_grid.c - the nearest point of a grid among the neighbours of a cell, eight at a time, on AVX2.
 *
 * Each lane sums one neighbour's error in the reference's order. A lane keeps its first least one, and of the lanes the
 * least, or of equals the one that stands first in the list, is what the reference finds. The lists of IQ2_S and IQ3
 * are too short to gain by it. */
#if defined(__x86_64__)
#include <float.h>
#include <immintrin.h>

#include "kernels/cpu/quant.h"
#include "kernels/ref/quant_iq23.h"

#define AVX2 __attribute__((target("avx2")))

/* Adds the errors of four axes, whose levels are the bytes of `levels`. */
AVX2 static inline __m256 add_errors(__m256 error, __m256i levels, float scale, const float *x, const float *roots) {
  for (int i = 0; i < 4; i++) {
    __m256i level = _mm256_and_si256(_mm256_srli_epi32(levels, 8 * i), _mm256_set1_epi32(255));
    __m256i odd = _mm256_add_epi32(_mm256_add_epi32(level, level), _mm256_set1_epi32(1));
    __m256 difference =
        _mm256_sub_ps(_mm256_mul_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(odd)), _mm256_set1_ps(x[i]));
    __m256 weighted = _mm256_mul_ps(_mm256_set1_ps(roots[i]), difference);
    error = _mm256_add_ps(error, _mm256_mul_ps(weighted, difference));
  }
  return error;
}

/* Where the least of the lanes stands that hold one. */
AVX2 static inline uint32_t first_least(__m256 errors, __m256i places) {
  float all_errors[8];
  uint32_t all_places[8], best = 0;
  _mm256_storeu_ps(all_errors, errors);
  _mm256_storeu_si256((__m256i *)all_places, places);
  for (uint32_t j = 1; j < 8; j++)
    if (all_errors[j] < all_errors[best] || (all_errors[j] == all_errors[best] && all_places[j] < all_places[best]))
      best = j;
  return all_places[best];
}

AVX2 static uint32_t nearest_point(const ckpt_grid *grid, uint32_t cell, float scale, const float *x,
                                   const float *roots) {
  const uint16_t *list = grid->neighbours + grid->first[cell];
  uint32_t n = grid->first[cell + 1] - grid->first[cell];
  const int *levels = (const int *)(const void *)grid->levels; /* 8 bytes a point */
  __m256 best = _mm256_set1_ps(FLT_MAX);
  __m256i best_place = _mm256_setzero_si256(), place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (uint32_t k = 0; k < n; k += 8, place = _mm256_add_epi32(place, _mm256_set1_epi32(8))) {
    uint16_t rest[8] = {0};
    const uint16_t *from = list + k;
    if (n - k < 8) {
      for (uint32_t j = 0; j < n - k; j++) rest[j] = from[j];
      from = rest;
    }
    __m256i points = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 1);
    __m256 error = add_errors(_mm256_setzero_ps(), _mm256_i32gather_epi32(levels, points, 4), scale, x, roots);
    if (grid->n_axes == 8)
      error = add_errors(error, _mm256_i32gather_epi32(levels + 1, points, 4), scale, x + 4, roots + 4);
    __m256i is_there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), place);
    __m256 is_less = _mm256_and_ps(_mm256_cmp_ps(error, best, _CMP_LT_OQ), _mm256_castsi256_ps(is_there));
    best = _mm256_blendv_ps(best, error, is_less);
    best_place = _mm256_blendv_epi8(best_place, place, _mm256_castps_si256(is_less));
  }
  return list[first_least(best, best_place)];
}

#define TYPE(name)                                                                               \
  void ckpt_quant_avx2_##name(uint8_t *dst, const float *x, size_t n, const float *importance) { \
    ckpt_##name(nearest_point, dst, x, n, importance);                                           \
  }

TYPE(iq2_xxs)
TYPE(iq2_xs)

#endif
