/* lanes.h - products with vectors across the columns of b, for the file that includes it; equal to the reference bit
 * for bit, since every element has its own chain of fused sums, k in order.
 *
 * That file has vd (a vector of WIDTH f64), TARGET, and the size of a block in registers: ROWS x VECTORS. The parts
 * of a and b that meet are packed: STEPS of b's rows, which the nearest cache holds while BLOCK_ROWS rows of a pass. */
#include "kernels/cpu/product/product.h"

/* Steps and rows of a pass, and columns of a block. */
enum { STEPS = 128, SPAN = VECTORS * WIDTH, BLOCK_ROWS = 10 * ROWS };

typedef struct product_block {
  double a[BLOCK_ROWS * STEPS], b[STEPS * SPAN], c[ROWS * SPAN];
} product_block;

/* c (n rows, c_row apart, x SPAN) += a (n rows, STEPS apart) x packed b, k in order. n is a constant of the caller. */
TARGET ALWAYS_INLINE static inline void multiply(double *c, size_t c_row, const double *a, const double *b,
                                                 size_t n_steps, const size_t n) {
  vd sums[ROWS][VECTORS];
  for (size_t i = 0; i < n; i++)
    for (size_t v = 0; v < VECTORS; v++) sums[i][v] = vd_load(c + i * c_row + v * WIDTH);
  for (size_t k = 0; k < n_steps; k++) {
    vd row[VECTORS];
    for (size_t v = 0; v < VECTORS; v++) row[v] = vd_load(b + k * SPAN + v * WIDTH);
    for (size_t i = 0; i < n; i++) {
      const vd factor = vd_set(a[i * STEPS + k]);
      for (size_t v = 0; v < VECTORS; v++) sums[i][v] = vd_fma(factor, row[v], sums[i][v]);
    }
  }
  for (size_t i = 0; i < n; i++)
    for (size_t v = 0; v < VECTORS; v++) vd_store(c + i * c_row + v * WIDTH, sums[i][v]);
}

/* Rows stand STEPS apart. */
static void pack_a(double *packed, const ckpt_product *p, size_t row, size_t n_rows, size_t step, size_t n_steps) {
  const double *a = p->a + row * p->a_row + step * p->a_column;
  if (p->a_column == 1) {
    for (size_t i = 0; i < n_rows; i++) memcpy(packed + i * STEPS, a + i * p->a_row, n_steps * sizeof *packed);
    return;
  }
  for (size_t k = 0; k < n_steps; k++)
    for (size_t i = 0; i < n_rows; i++) packed[i * STEPS + k] = a[i * p->a_row + k * p->a_column];
}

/* Zeros stand behind the last column. */
static void pack_b(double *packed, const ckpt_product *p, size_t column, size_t n, size_t step, size_t n_steps) {
  for (size_t k = 0; k < n_steps; k++) {
    memcpy(packed + k * SPAN, p->b + (step + k) * p->b_row + column, n * sizeof *packed);
    for (size_t j = n; j < SPAN; j++) packed[k * SPAN + j] = 0;
  }
}

/* The same of fewer columns or rows: by way of a whole block. */
TARGET static void multiply_part(product_block *block, double *c, size_t c_row, const double *a, size_t n_steps,
                                 size_t n_columns, size_t n_rows) {
  memset(block->c, 0, sizeof block->c);
  for (size_t i = 0; i < n_rows; i++) memcpy(block->c + i * SPAN, c + i * c_row, n_columns * sizeof *c);
  if (n_rows == ROWS)
    multiply(block->c, SPAN, a, block->b, n_steps, ROWS);
  else
    for (size_t i = 0; i < n_rows; i++) multiply(block->c + i * SPAN, SPAN, a + i * STEPS, block->b, n_steps, 1);
  for (size_t i = 0; i < n_rows; i++) memcpy(c + i * c_row, block->c + i * SPAN, n_columns * sizeof *c);
}

/* As ckpt_backend.product. */
TARGET static void run(const ckpt_product *p) {
  product_block block;
  for (size_t step = 0; step < p->k; step += STEPS) {
    const size_t n_steps = p->k - step < STEPS ? p->k - step : STEPS;
    for (size_t row = 0; row < p->m; row += BLOCK_ROWS) {
      const size_t n_rows = p->m - row < BLOCK_ROWS ? p->m - row : BLOCK_ROWS;
      pack_a(block.a, p, row, n_rows, step, n_steps);
      for (size_t at = 0; at < p->n; at += SPAN) {
        const size_t n = p->n - at < SPAN ? p->n - at : SPAN;
        double *c = p->c + row * p->c_row + at;
        pack_b(block.b, p, at, n, step, n_steps);
        for (size_t i = 0; i < n_rows; i += ROWS) {
          const size_t n_now = n_rows - i < ROWS ? n_rows - i : ROWS;
          if (n == SPAN && n_now == ROWS)
            multiply(c + i * p->c_row, p->c_row, block.a + i * STEPS, block.b, n_steps, ROWS);
          else
            multiply_part(&block, c + i * p->c_row, p->c_row, block.a + i * STEPS, n_steps, n, n_now);
        }
      }
    }
  }
}
