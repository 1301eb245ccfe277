/* avx512.c - low-rank updates with vectors of 16 f32; see lanes.h. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f")))
#define ALWAYS_INLINE __attribute__((always_inline))
enum { WIDTH = 16, ROWS = 6, VECTORS = 4 }; /* 24 sums in registers */
typedef __m512 vf;

TARGET static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
TARGET static inline vf vf_load(const float *x) { return _mm512_loadu_ps(x); }
TARGET static inline void vf_store(float *x, vf v) { _mm512_storeu_ps(x, v); }
TARGET static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
TARGET static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }

/* The squares of n values, a multiple of the lanes, in their eight partial sums. */
TARGET static inline void square_sums(double *lanes, const float *x, size_t n) {
  __m512d sums = _mm512_setzero_pd();
  for (size_t j = 0; j < n; j += 8) {
    const __m512d values = _mm512_cvtps_pd(_mm256_loadu_ps(x + j));
    sums = _mm512_add_pd(sums, _mm512_mul_pd(values, values));
  }
  _mm512_storeu_pd(lanes, sums);
}

#include "kernels/cpu/lora/lanes.h"

const ckpt_lora_level ckpt_lora_avx512 = {.name = "avx512", .run = run};

#endif
