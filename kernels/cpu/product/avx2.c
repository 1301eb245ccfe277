/* avx2.c - products with vectors of 4 f64; see lanes.h. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2,fma")))
#define ALWAYS_INLINE __attribute__((always_inline))
enum { WIDTH = 4, ROWS = 4, VECTORS = 3 }; /* 12 sums in registers */
typedef __m256d vd;

TARGET static inline vd vd_set(double x) { return _mm256_set1_pd(x); }
TARGET static inline vd vd_load(const double *x) { return _mm256_loadu_pd(x); }
TARGET static inline void vd_store(double *x, vd v) { _mm256_storeu_pd(x, v); }
TARGET static inline vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }

#include "kernels/cpu/product/lanes.h"

const ckpt_product_level ckpt_product_avx2 = {.name = "avx2", .run = run};

#endif
