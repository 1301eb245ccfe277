/* lanes.h - sixteen f32 as one value, at the level that the including file is compiled for: AVX-512, AVX2, or plain C.
 *
 * Only what attention needs; each operation rounds as its scalar one does. */
#ifndef CKPT_KERNELS_CPU_TAPE_LANES_H
#define CKPT_KERNELS_CPU_TAPE_LANES_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES_ROWS 8    /* rows of a product held in registers */
#define LANES_COLUMNS 2 /* and the lanes of each */
typedef __m512 f32x16;
/* Sixteen from memory. */
static inline f32x16 lanes_load(const float *x) { return _mm512_loadu_ps(x); }
/* Sixteen to memory. */
static inline void lanes_store(float *x, f32x16 a) { _mm512_storeu_ps(x, a); }
/* One value in all lanes. */
static inline f32x16 lanes_all(float x) { return _mm512_set1_ps(x); }
/* a * b */
static inline f32x16 lanes_multiply(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
/* a * b + c, rounded once. */
static inline f32x16 lanes_fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LANES_ROWS 6
#define LANES_COLUMNS 1
typedef struct f32x16 {
  __m256 low, high;
} f32x16;
/* Sixteen from memory. */
static inline f32x16 lanes_load(const float *x) { return (f32x16){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
/* Sixteen to memory. */
static inline void lanes_store(float *x, f32x16 a) {
  _mm256_storeu_ps(x, a.low);
  _mm256_storeu_ps(x + 8, a.high);
}
/* One value in all lanes. */
static inline f32x16 lanes_all(float x) { return (f32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
/* a * b */
static inline f32x16 lanes_multiply(f32x16 a, f32x16 b) {
  return (f32x16){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
/* a * b + c, rounded once. */
static inline f32x16 lanes_fma(f32x16 a, f32x16 b, f32x16 c) {
  return (f32x16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
#else
#define LANES_ROWS 1
#define LANES_COLUMNS 1
typedef struct f32x16 {
  float x[16];
} f32x16;
/* Sixteen from memory. */
static inline f32x16 lanes_load(const float *x) {
  f32x16 a;
  __builtin_memcpy(a.x, x, sizeof a.x);
  return a;
}
/* Sixteen to memory. */
static inline void lanes_store(float *x, f32x16 a) { __builtin_memcpy(x, a.x, sizeof a.x); }
/* One value in all lanes. */
static inline f32x16 lanes_all(float x) {
  f32x16 a;
  for (int i = 0; i < 16; i++) a.x[i] = x;
  return a;
}
/* a * b */
static inline f32x16 lanes_multiply(f32x16 a, f32x16 b) {
  for (int i = 0; i < 16; i++) a.x[i] *= b.x[i];
  return a;
}
/* a * b + c, rounded once. */
static inline f32x16 lanes_fma(f32x16 a, f32x16 b, f32x16 c) {
  for (int i = 0; i < 16; i++) c.x[i] = __builtin_fmaf(a.x[i], b.x[i], c.x[i]);
  return c;
}
#endif

/* Four f32 as one value, at any level. */
typedef float f32x4 __attribute__((vector_size(16)));

/* Four rows of four, x_stride apart, become four columns: rows of out, out_stride apart. */
static inline void lanes_turn(float *out, long out_stride, const float *x, long x_stride) {
  f32x4 rows[4], turned[4];
  for (int i = 0; i < 4; i++) __builtin_memcpy(&rows[i], x + i * x_stride, sizeof rows[i]);
  const f32x4 low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const f32x4 low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const f32x4 high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const f32x4 high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  turned[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  turned[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  turned[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  turned[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  for (int i = 0; i < 4; i++) __builtin_memcpy(out + i * out_stride, &turned[i], sizeof turned[i]);
}

/* A small product: sums over s, in its order, of a[r * a_row + s * a_step] * b[s * ldb + i], each a chain of fma.
 *
 * With `adds` a chain begins with keep[r] * c[r][i] (keep NULL: 1), and c becomes the sum. Otherwise it begins with 0,
 * and c becomes scale times the sum; with is_upper, c[r][i] may stay as it is where i < r / 16 * 16. */
typedef struct small_product {
  const float *a, *b, *keep;
  float *c, scale;
  bool adds, is_upper;
  long a_row, a_step, ldb, ldc;
  long n_rows, n_columns, n_steps;
} small_product;

/* n_rows x (16 * n_lanes) of it, all in registers; inlined with constants. */
static inline __attribute__((always_inline)) void product_tile(const small_product *p, long row, long column,
                                                               int n_rows, int n_lanes) {
  f32x16 sums[8][2];
  const float *a = p->a + row * p->a_row, *b = p->b + column;
  float *c = p->c + row * p->ldc + column;
  for (int r = 0; r < n_rows; r++)
    for (int i = 0; i < n_lanes; i++) {
      sums[r][i] = p->adds ? lanes_load(c + r * p->ldc + 16 * i) : lanes_all(0);
      if (p->adds && p->keep != NULL) sums[r][i] = lanes_multiply(lanes_all(p->keep[row + r]), sums[r][i]);
    }
  const long n_steps = p->n_steps, a_step = p->a_step, a_row = p->a_row, ldb = p->ldb;
  for (long s = 0; s < n_steps; s++) {
    f32x16 right[2];
    for (int i = 0; i < n_lanes; i++) right[i] = lanes_load(b + s * ldb + 16 * i);
    for (int r = 0; r < n_rows; r++) {
      const f32x16 left = lanes_all(a[r * a_row + s * a_step]);
      for (int i = 0; i < n_lanes; i++) sums[r][i] = lanes_fma(left, right[i], sums[r][i]);
    }
  }
  const f32x16 scale = lanes_all(p->adds ? 1 : p->scale);
  for (int r = 0; r < n_rows; r++)
    for (int i = 0; i < n_lanes; i++) lanes_store(c + r * p->ldc + 16 * i, lanes_multiply(scale, sums[r][i]));
}

/* All rows of 16 * n_lanes columns. */
static inline __attribute__((always_inline)) void product_columns(const small_product *p, long column, int n_lanes) {
  const long end = column + 16 * n_lanes, n_rows = p->is_upper && end < p->n_rows ? end : p->n_rows;
  long row = 0;
  for (; row + LANES_ROWS <= n_rows; row += LANES_ROWS) product_tile(p, row, column, LANES_ROWS, n_lanes);
  for (; LANES_ROWS > 4 && row + 4 <= n_rows; row += 4) product_tile(p, row, column, 4, n_lanes);
  for (; row < n_rows; row++) product_tile(p, row, column, 1, n_lanes);
}

/* The whole product. */
static void small_multiply(const small_product *p) {
  long column = 0;
  for (; column + 16 * LANES_COLUMNS <= p->n_columns; column += 16 * LANES_COLUMNS)
    product_columns(p, column, LANES_COLUMNS);
  for (; column + 16 <= p->n_columns; column += 16) product_columns(p, column, 1);
  for (; column < p->n_columns; column++)
    for (long row = 0; row < p->n_rows; row++) {
      float *c = p->c + row * p->ldc + column, sum = p->adds ? *c : 0;
      if (p->adds && p->keep != NULL) sum *= p->keep[row];
      for (long s = 0; s < p->n_steps; s++)
        sum = __builtin_fmaf(p->a[row * p->a_row + s * p->a_step], p->b[s * p->ldb + column], sum);
      *c = p->adds ? sum : p->scale * sum;
    }
}

#endif
