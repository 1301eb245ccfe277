/* panels.h - what oneDNN is given: operands in place, or panels of them that are rounded or dequantized.
 *
 * A panel is the part of a matrix that one product reads, packed, in the calling thread's own memory. Whoever cuts a
 * product keeps them small (trainer/model/gemm_cpu.c). The product is the one of f32 with the same shapes, so that a
 * stored matrix gives the bits of its f32. Static, for the file that includes it. */
#ifndef CKPT_KERNELS_CPU_TAPE_PANELS_H
#define CKPT_KERNELS_CPU_TAPE_PANELS_H

#include "kernels/cpu/tape/tape.h"
#include "libckpt/base/backend.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

#ifndef CKPT_SLOW_STRIDE
#define CKPT_SLOW_STRIDE 0 /* ckpt_tape_kernels.slow_stride */
#endif

/* A matrix in memory, and what the product wants of it. */
typedef struct operand {
  const void *at;
  ckpt_dtype dtype, wanted; /* wanted: f32 or bf16 */
  bool rounds;              /* to bf16, whatever is wanted */
  bool is_turned;           /* it lies as the transpose: rows are its columns */
  bool is_spread;           /* f32: rows of its panel lie CKPT_GEMM_SPREAD elements further apart */
  size_t rows, columns, stride, first;
  size_t panel_bytes; /* 0: it is taken in place */
} operand;

/* Rows that are turned at once: a line of the panel's. */
enum { TURNED = 16 };

/* A size in whole lines of 64 bytes. */
static inline size_t whole_lines(size_t n_bytes) { return (n_bytes + 63) / 64 * 64; }

/* Elements from a row of its panel to the next. */
static inline size_t panel_stride(const operand *o) { return o->columns + (o->is_spread ? CKPT_GEMM_SPREAD : 0); }

/* Whether it needs a panel, and how large. */
static inline void make_operand(operand *o, size_t element_bytes) {
  const bool is_ready = o->dtype == o->wanted && (!o->rounds || o->wanted == CKPT_BF16) && !o->is_turned;
  o->panel_bytes = is_ready && !o->is_spread ? 0 : whole_lines(o->rows * panel_stride(o) * element_bytes);
}

/* The bits of a value rounded to bf16, above 16 others. */
static inline uint32_t rounded_bits(const float *x) {
  uint32_t bits, is_nan;
  memcpy(&bits, x, sizeof bits);
  is_nan = (uint32_t) - ((bits & 0x7FFFFFFF) > 0x7F800000);
  return ((bits + 0x7FFF + (bits >> 16 & 1)) & ~is_nan) | ((bits | 0x400000) & is_nan);
}

/* n elements rounded to bf16, in f32. */
static void round_to_f32(float *restrict out, const float *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const uint32_t bits = rounded_bits(x + i) & 0xFFFF0000;
    memcpy(out + i, &bits, sizeof bits);
  }
}

/* The same as bf16. */
static inline void round_to_bf16(uint16_t *restrict out, const float *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = (uint16_t)(rounded_bits(x + i) >> 16);
}

/* Row r in f32, in `row` (whose size is the columns and two blocks) unless it lies in f32 already. */
static inline const float *widen_row(const operand *o, size_t r, float *row) {
  const ckpt_dtype_row *type = ckpt_dtype_get(o->dtype);
  const size_t unit = type->block_elements, begin = o->first / unit * unit;
  const size_t n_columns = o->is_turned ? o->rows : o->columns;
  const size_t end = (o->first + n_columns + unit - 1) / unit * unit;
  const char *from = (const char *)o->at + (r * o->stride + begin) / unit * type->block_bytes;
  ckpt_cast_stats ignored = {0};
  if (o->dtype == CKPT_F32) return (const float *)(const void *)from;
  ckpt_backend_read(&ckpt_backend_cpu, CKPT_F32, row, o->dtype, from, end - begin, &ignored);
  return row + (o->first - begin);
}

/* Fills the panel; row is for one row in f32. */
static inline void fill_panel(const operand *o, void *panel, float *row) {
  const size_t unit = ckpt_dtype_get(o->dtype)->block_elements;
  const bool is_whole = o->first % unit == 0 && o->columns % unit == 0;
  const bool is_direct = is_whole && o->wanted == CKPT_F32 && !o->rounds && o->dtype != CKPT_F32;
  for (size_t r = 0; r < o->rows; r++) {
    float *out = (float *)panel + r * panel_stride(o);
    const float *x = widen_row(o, r, is_direct ? out : row);
    if (o->wanted == CKPT_BF16)
      round_to_bf16((uint16_t *)panel + r * o->columns, x, o->columns);
    else if (o->rounds)
      round_to_f32(out, x, o->columns);
    else if (!is_direct)
      memcpy(out, x, o->columns * sizeof *out);
  }
}

/* The same of a transposed operand; rows are for TURNED rows of it in f32. */
static inline void fill_turned(const operand *o, void *panel, float *rows) {
  for (size_t first = 0; first < o->columns; first += TURNED) {
    const size_t n = o->columns - first < TURNED ? o->columns - first : TURNED;
    const float *at[TURNED];
    for (size_t j = 0; j < n; j++) at[j] = widen_row(o, first + j, rows + j * o->rows);
    for (size_t r = 0; r < o->rows; r++) {
      float line[TURNED];
      for (size_t j = 0; j < n; j++) line[j] = at[j][r];
      if (o->wanted == CKPT_BF16)
        round_to_bf16((uint16_t *)panel + r * o->columns + first, line, n);
      else if (o->rounds)
        round_to_f32((float *)panel + r * o->columns + first, line, n);
      else
        memcpy((float *)panel + r * o->columns + first, line, n * sizeof *line);
    }
  }
}

/* The product; has_bf16: one in bf16 is made of bf16, not of f32 that are rounded to it. */
static inline ckpt_status multiply_panels_as(const ckpt_gemm *gemm, bool has_bf16, ckpt_error *err) {
  enum { MOST_IN_A_BLOCK = 256 };
  ckpt_gemm g = *gemm;
  const bool is_native = g.is_bf16 && has_bf16;
  const size_t element_bytes = is_native ? sizeof(uint16_t) : sizeof(float);
  const ckpt_dtype wanted = is_native ? CKPT_BF16 : CKPT_F32;
  operand a = {.at = g.a, .dtype = CKPT_F32, .wanted = wanted, .stride = g.lda};
  operand b = {
      .at = g.b, .wanted = wanted, .rounds = g.is_bf16 && !g.is_b_rounded, .stride = g.ldb, .first = g.b_first};
  a.rounds = g.is_bf16 && !g.is_a_rounded;
  a.is_spread = !is_native && ckpt_gemm_spreads_a(&g, CKPT_SLOW_STRIDE);
  b.is_spread = !is_native && ckpt_gemm_spreads_b(&g, CKPT_SLOW_STRIDE);
  b.is_turned = g.is_b_turned;
  a.rows = g.is_a_transposed ? g.k : g.m, a.columns = g.is_a_transposed ? g.m : g.k;
  b.rows = g.is_b_transposed ? g.n : g.k, b.columns = g.is_b_transposed ? g.k : g.n;
  b.dtype = g.b_dtype == CKPT_DTYPE_NONE ? CKPT_F32 : g.b_dtype;
  make_operand(&a, element_bytes);
  if (b.dtype == CKPT_BF16) b.rounds = false; /* nothing is left to round */
  make_operand(&b, element_bytes);
  size_t row_elements = (a.columns > b.columns ? a.columns : b.columns) + 2 * MOST_IN_A_BLOCK;
  if (b.is_turned && row_elements < TURNED * b.rows) row_elements = TURNED * b.rows;
  if (a.panel_bytes + b.panel_bytes != 0) {
    char *panels = ckpt_gemm_scratch(a.panel_bytes + b.panel_bytes + row_elements * sizeof(float));
    if (panels == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "no memory for panels of a product");
    float *row = (float *)(void *)(panels + a.panel_bytes + b.panel_bytes);
    if (a.panel_bytes != 0) {
      fill_panel(&a, panels, row);
      g.a = panels, g.lda = panel_stride(&a);
    }
    if (b.panel_bytes != 0) {
      if (b.is_turned)
        fill_turned(&b, panels + a.panel_bytes, row);
      else
        fill_panel(&b, panels + a.panel_bytes, row);
      g.b = panels + a.panel_bytes, g.ldb = panel_stride(&b);
    }
  }
  if (b.panel_bytes == 0) g.b = (const char *)g.b + g.b_first * (b.dtype == CKPT_BF16 ? 2 : 4);
  return is_native ? ckpt_gemm_bf16(&g, err) : ckpt_gemm_f32(&g, err);
}

/* ckpt_gemm_function of tape_kernels.h. */
static ckpt_status multiply_panels(const ckpt_gemm *g, ckpt_error *err) { return multiply_panels_as(g, false, err); }

#endif
