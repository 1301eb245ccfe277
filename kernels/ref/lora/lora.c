/* lora.c - the reference of low-rank updates, one row and CKPT_LORA_COLUMNS columns at a time.
 *
 * Squares are summed up in f64: of each stretch of columns in CKPT_LORA_LANES partial sums, column j in lane
 * j % CKPT_LORA_LANES, which ckpt_lora_join adds up; then stretch after stretch. Sources: PEFT's LoRA layers, merge. */
#include "kernels/ref/lora/lora.h"

enum { COLUMNS = CKPT_LORA_COLUMNS, LANES = CKPT_LORA_LANES };

/* sum[j] += scale * sum over k of b[k] * a[k][j], for n columns of rows that are `width` long. */
static void add_update(float *sum, const float *b, const float *a, size_t rank, size_t width, size_t n, float scale) {
  float product[COLUMNS] = {0};
  for (size_t k = 0; k < rank; k++) {
    const float *row = a + k * width, factor = b[k];
    for (size_t j = 0; j < n; j++) product[j] += factor * row[j];
  }
  for (size_t j = 0; j < n; j++) sum[j] += scale * product[j];
}

static double add_squares(const float *x, size_t n) {
  double lanes[LANES] = {0};
  for (size_t j = 0; j < n; j++) lanes[j % LANES] += (double)x[j] * (double)x[j];
  return ckpt_lora_join(lanes);
}

void ckpt_lora(const ckpt_lora_rows *rows) {
  const size_t width = rows->width;
  for (size_t row = 0; row < rows->n_rows; row++) {
    const float *base = rows->base + row * width;
    float *out = rows->out + row * width;
    ckpt_lora_squares squares = {0};
    for (size_t at = 0; at < width; at += COLUMNS) {
      const size_t n = width - at < COLUMNS ? width - at : COLUMNS;
      float sum[COLUMNS] = {0};
      for (uint32_t i = 0; i < rows->n_updates; i++) {
        const ckpt_lora_update *u = &rows->updates[i];
        add_update(sum, u->output + row * u->rank, u->input + at, u->rank, width, n, u->scale);
      }
      if (rows->squares != NULL) {
        squares.added += add_squares(sum, n);
        squares.base += add_squares(base + at, n);
      }
      for (size_t j = 0; j < n; j++) out[at + j] = base[at + j] + sum[j];
    }
    if (rows->squares != NULL) rows->squares[row] = squares;
  }
}
