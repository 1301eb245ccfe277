/* avx2.c - low-rank updates with vectors of 8 f32; see lanes.h. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2")))
#define ALWAYS_INLINE __attribute__((always_inline))
enum { WIDTH = 8, ROWS = 6, VECTORS = 2 }; /* 12 sums in registers */
typedef __m256 vf;

TARGET static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
TARGET static inline vf vf_load(const float *x) { return _mm256_loadu_ps(x); }
TARGET static inline void vf_store(float *x, vf v) { _mm256_storeu_ps(x, v); }
TARGET static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
TARGET static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }

/* The squares of n values, a multiple of the lanes, in their eight partial sums. */
TARGET static inline void square_sums(double *lanes, const float *x, size_t n) {
  __m256d low = _mm256_setzero_pd(), high = low;
  for (size_t j = 0; j < n; j += 8) {
    const __m256d first = _mm256_cvtps_pd(_mm_loadu_ps(x + j)), second = _mm256_cvtps_pd(_mm_loadu_ps(x + j + 4));
    low = _mm256_add_pd(low, _mm256_mul_pd(first, first));
    high = _mm256_add_pd(high, _mm256_mul_pd(second, second));
  }
  _mm256_storeu_pd(lanes, low);
  _mm256_storeu_pd(lanes + 4, high);
}

#include "kernels/cpu/lora/lanes.h"

const ckpt_lora_level ckpt_lora_avx2 = {.name = "avx2", .run = run};

#endif
