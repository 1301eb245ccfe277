/* lanes.h - low-rank updates with vectors across columns, for the file that includes it; equal to the reference bit for
 * bit, since every column has its own chain of sums, k in order. The compiler must not contract products.
 *
 * That file has vf (a vector of WIDTH f32), square_sums, TARGET, ALWAYS_INLINE, and the size of a block in registers:
 * ROWS x VECTORS. Of the input's factor STEPS x COLUMNS are packed, which the nearest cache holds while BLOCK_ROWS rows
 * pass: in the matrix they lie a row apart, where they would push each other out. */
#include "kernels/cpu/lora/lora.h"

/* Sizes of a block: columns, lanes of squares, steps that are packed, rows; columns that registers hold. */
enum { COLUMNS = CKPT_LORA_COLUMNS, LANES = CKPT_LORA_LANES, STEPS = 128, BLOCK_ROWS = 48, SPAN = VECTORS * WIDTH };

typedef struct lora_block {
  float input[STEPS * COLUMNS]; /* of one update: packed, zeros behind the last column */
  float product[BLOCK_ROWS * COLUMNS], sum[BLOCK_ROWS * COLUMNS];
} lora_block;

/* product (n x SPAN columns) += b (n rows, `rank` apart) x packed input, k in order. n is a constant of the caller. */
TARGET ALWAYS_INLINE static inline void multiply(float *product, const float *b, size_t rank, const float *input,
                                                 size_t n_steps, const size_t n) {
  vf sums[ROWS][VECTORS];
  for (size_t i = 0; i < n; i++)
    for (size_t v = 0; v < VECTORS; v++) sums[i][v] = vf_load(product + i * COLUMNS + v * WIDTH);
  for (size_t k = 0; k < n_steps; k++) {
    vf row[VECTORS];
    for (size_t v = 0; v < VECTORS; v++) row[v] = vf_load(input + k * COLUMNS + v * WIDTH);
    for (size_t i = 0; i < n; i++) {
      const vf factor = vf_set(b[i * rank + k]);
      for (size_t v = 0; v < VECTORS; v++) sums[i][v] = vf_add(sums[i][v], vf_mul(factor, row[v]));
    }
  }
  for (size_t i = 0; i < n; i++)
    for (size_t v = 0; v < VECTORS; v++) vf_store(product + i * COLUMNS + v * WIDTH, sums[i][v]);
}

/* The products of n_rows rows and some columns with n_steps steps of an update, from step `first`. */
TARGET static void multiply_block(lora_block *block, const ckpt_lora_update *u, const float *b, size_t n_rows,
                                  size_t first, size_t n_steps) {
  for (size_t at = 0; at < COLUMNS; at += SPAN) {
    size_t i = 0;
    for (; i + ROWS <= n_rows; i += ROWS)
      multiply(block->product + i * COLUMNS + at, b + i * u->rank + first, u->rank, block->input + at, n_steps, ROWS);
    for (; i < n_rows; i++)
      multiply(block->product + i * COLUMNS + at, b + i * u->rank + first, u->rank, block->input + at, n_steps, 1);
  }
}

/* n columns of n_steps steps, one after the other. */
static void pack(float *packed, const float *input, size_t width, size_t n_steps, size_t n) {
  for (size_t k = 0; k < n_steps; k++, packed += COLUMNS, input += width) {
    memcpy(packed, input, n * sizeof *packed);
    if (n < COLUMNS) memset(packed + n, 0, (COLUMNS - n) * sizeof *packed);
  }
}

/* sum += scale * product of one update, for rows [row, row + n_rows) and n columns at `at`. */
TARGET static void add_update(lora_block *block, const ckpt_lora_update *u, size_t width, size_t row, size_t n_rows,
                              size_t at, size_t n) {
  memset(block->product, 0, n_rows * COLUMNS * sizeof *block->product);
  for (size_t k = 0; k < u->rank; k += STEPS) {
    const size_t n_steps = u->rank - k < STEPS ? u->rank - k : STEPS;
    pack(block->input, u->input + k * width + at, width, n_steps, n);
    multiply_block(block, u, u->output + row * u->rank, n_rows, k, n_steps);
  }
  const vf scale = vf_set(u->scale);
  for (size_t i = 0; i < n_rows * COLUMNS; i += WIDTH)
    vf_store(block->sum + i, vf_add(vf_load(block->sum + i), vf_mul(scale, vf_load(block->product + i))));
}

/* The sum of n squares in the reference's order. */
TARGET static double add_squares(const float *x, size_t n) {
  double lanes[LANES];
  square_sums(lanes, x, n / LANES * LANES);
  for (size_t j = n / LANES * LANES; j < n; j++) lanes[j % LANES] += (double)x[j] * (double)x[j];
  return ckpt_lora_join(lanes);
}

/* Adds what is summed up to the base, n columns at `at` of one row. */
TARGET static void finish_row(const ckpt_lora_rows *rows, const float *sum, size_t row, size_t at, size_t n) {
  const float *base = rows->base + row * rows->width + at;
  float *out = rows->out + row * rows->width + at;
  size_t j = 0;
  for (; j + WIDTH <= n; j += WIDTH) vf_store(out + j, vf_add(vf_load(base + j), vf_load(sum + j)));
  for (; j < n; j++) out[j] = base[j] + sum[j];
  if (rows->squares == NULL) return;
  rows->squares[row].added += add_squares(sum, n);
  rows->squares[row].base += add_squares(base, n);
}

/* ckpt_lora_level.run. */
TARGET static void run(const ckpt_lora_rows *rows) {
  lora_block block;
  for (size_t row = 0; rows->squares != NULL && row < rows->n_rows; row++) rows->squares[row] = (ckpt_lora_squares){0};
  for (size_t row = 0; row < rows->n_rows; row += BLOCK_ROWS) {
    const size_t n_rows = rows->n_rows - row < BLOCK_ROWS ? rows->n_rows - row : BLOCK_ROWS;
    for (size_t at = 0; at < rows->width; at += COLUMNS) {
      const size_t n = rows->width - at < COLUMNS ? rows->width - at : COLUMNS;
      memset(block.sum, 0, n_rows * COLUMNS * sizeof *block.sum);
      for (uint32_t i = 0; i < rows->n_updates; i++)
        add_update(&block, &rows->updates[i], rows->width, row, n_rows, at, n);
      for (size_t i = 0; i < n_rows; i++) finish_row(rows, block.sum + i * COLUMNS, row + i, at, n);
    }
  }
}
