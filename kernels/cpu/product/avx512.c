/* avx512.c - products with vectors of 8 f64; see lanes.h. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f")))
#define ALWAYS_INLINE __attribute__((always_inline))
enum { WIDTH = 8, ROWS = 12, VECTORS = 2 }; /* 24 sums in registers */
typedef __m512d vd;

TARGET static inline vd vd_set(double x) { return _mm512_set1_pd(x); }
TARGET static inline vd vd_load(const double *x) { return _mm512_loadu_pd(x); }
TARGET static inline void vd_store(double *x, vd v) { _mm512_storeu_pd(x, v); }
TARGET static inline vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }

#include "kernels/cpu/product/lanes.h"

const ckpt_product_level ckpt_product_avx512 = {.name = "avx512", .run = run};

#endif
