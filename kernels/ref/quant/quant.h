/* quant.h - private to kernels: ggml's block types, the searches they share, and how blocks are read and written.
 *
 * This defines both directions, bit for bit: the bytes of quantize and the values of dequantize are those of ggml's
 * reference C (ggml-quants.c of the version in dtype.def), compiled without contraction of a * b + c. So the order of
 * every sum, where a product is rounded, and which candidate wins a tie are part of the format here: sums run from the
 * first element to the last, in f32, and nothing is reassociated. Blocks are bytes, little-endian on every host.
 * docs/quantization.md describes the types. */
#ifndef CKPT_KERNELS_REF_QUANT_QUANT_H
#define CKPT_KERNELS_REF_QUANT_QUANT_H

#include <math.h>
#include <string.h>

#include "kernels/ref/quant/read.h"
#include "libckpt/base/backend.h"
#include "libckpt/base/little.h"

/* Elements of a superblock: the block of all types that have sub-blocks. */
enum { CKPT_SUPER = 256 };

/* Below this a group counts as all zero. */
#define CKPT_QUANT_EPSILON 1e-15f

/* One type. n: elements of a row, whole blocks. importance: n weights, or NULL. */
typedef struct ckpt_quant {
  void (*quantize)(uint8_t *dst, const float *x, size_t n, const float *importance); /* NULL: only read */
  void (*dequantize)(float *y, const uint8_t *src, size_t n);
  bool needs_importance, ignores_importance; /* importance is never NULL; it makes no difference */
} ckpt_quant;

/* The row of a block type; NULL for others. */
const ckpt_quant *ckpt_quant_get(ckpt_dtype dtype);

/* The slots of the reference backend. */
bool ckpt_can_quantize(ckpt_dtype dtype, bool has_importance);
bool ckpt_uses_importance(ckpt_dtype dtype); /* as above */
bool ckpt_quantize(ckpt_dtype dtype, void *dst, const float *src, size_t n_rows, size_t n_per_row,
                   const float *importance);                                            /* as above */
void ckpt_dequantize(ckpt_dtype dtype, float *dst, const void *src, size_t n_elements); /* as above */

/* Whether no scale of n_bytes of blocks is infinite or NaN: what ggml's loader and quantizer check. */
bool ckpt_quant_is_finite(ckpt_dtype dtype, const uint8_t *blocks, size_t n_bytes);

/* One for each type. */
extern const ckpt_quant ckpt_quant_q1_0, ckpt_quant_q2_0, ckpt_quant_q4_0, ckpt_quant_q4_1, ckpt_quant_q5_0,
    ckpt_quant_q5_1, ckpt_quant_q8_0, ckpt_quant_q8_1, ckpt_quant_q2_k, ckpt_quant_q3_k, ckpt_quant_q4_k,
    ckpt_quant_q5_k, ckpt_quant_q6_k, ckpt_quant_q8_k, ckpt_quant_iq1_s, ckpt_quant_iq1_m, ckpt_quant_iq2_xxs,
    ckpt_quant_iq2_xs, ckpt_quant_iq2_s, ckpt_quant_iq3_xxs, ckpt_quant_iq3_s, ckpt_quant_iq4_nl, ckpt_quant_iq4_xs,
    ckpt_quant_tq1_0, ckpt_quant_tq2_0, ckpt_quant_mxfp4, ckpt_quant_nvfp4;

/* Reading of each type: read.h, over rows. */
#define CKPT_READ(dtype, name, grid) void ckpt_dequantize_##name(float *y, const uint8_t *src, size_t n);
#include "kernels/ref/quant/read.def"
#undef CKPT_READ

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* x, or the bound that it is beyond. */
static inline int ckpt_clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/* To the nearest integer, ties to even, for magnitudes below 2^22. Beyond it and for NaN the result is what the bits
 * give, the same everywhere: 2^23 + 2^22 is added, so that the low bits are the integer. */
static inline int ckpt_nearest(float x) { return (int)(ckpt_float_bits(x + 12582912.0f) & 0x007fffff) - 0x00400000; }

/* Towards zero. Where x is NaN or does not fit, INT32_MIN, as x86 has it: C leaves it open, and a scale whose inverse
 * overflows gets here. */
static inline int ckpt_truncate(float x) { return fabsf(x) < 2147483648.0f ? (int)x : INT32_MIN; }

/* The binary16 bits nearest to x, ties to even. */
static inline uint32_t ckpt_f16_bits(float x) {
  uint32_t bits = ckpt_float_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude < 0x38800000) /* subnormal: 0.5 has its unit in the last place where binary16 has its smallest */
    return sign | (ckpt_float_bits(fabsf(x) + 0.5f) - 0x3f000000);
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - (UINT32_C(112) << 23);
  return sign | (rounded >= UINT32_C(0x7c00) << 13 ? 0x7c00 : rounded >> 13);
}

/* ---- bytes of blocks -------------------------------------------------------------------------------------------- */

/* Numbers at any address. */
static inline void ckpt_put_u16(uint8_t *at, uint32_t bits) {
  at[0] = (uint8_t)bits;
  at[1] = (uint8_t)(bits >> 8);
}

/* As above. */
static inline void ckpt_put_u32(uint8_t *at, uint32_t bits) {
  ckpt_put_u16(at, bits);
  ckpt_put_u16(at + 2, bits >> 16);
}

/* Writes x and gives what a reader will find. */
static inline float ckpt_put_f16(uint8_t *at, float x) {
  uint32_t bits = ckpt_f16_bits(x);
  ckpt_put_u16(at, bits);
  return ckpt_f16_value(bits);
}

/* ---- sums and weights -------------------------------------------------------------------------------------------- */

/* Sums from the first to the last. */
static inline float ckpt_sum(const float *x, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i];
  return sum;
}

/* As above. */
static inline float ckpt_sum_squares(const float *x, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

/* What an error in x[i] costs: its importance, more for large values. */
static inline void ckpt_quant_weigh(float *weights, const float *x, const float *importance, float sigma2, size_t n) {
  for (size_t i = 0; i < n; i++) weights[i] = importance[i] * sqrtf(sigma2 + x[i] * x[i]);
}

/* The element of greatest magnitude, the first of equals; 0 of zeros. */
static inline float ckpt_extreme(const float *x, size_t n) {
  float extreme = 0;
  for (size_t i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
  return extreme;
}

/* ---- searches (search.c): n is at most 32 ------------------------------------------------------------------ */

/* x ~ scale * (code - n_levels), codes below 2 * n_levels: the best of 19 scales. weights NULL: x squared. Returns the
 * scale, 0 (and codes 0) where all is zero. */
float ckpt_quant_symmetric(int n, int n_levels, const float *x, const float *weights, uint8_t *codes);

/* The same, weighted by x squared, by moving one code after the other as long as that helps. */
float ckpt_quant_refine(int n, int n_levels, const float *x, uint8_t *codes);

/* Which scales ckpt_quant_affine tries: (first + step * i + max_code) / range, for i from 0 to n. */
typedef struct ckpt_quant_steps {
  float first, step;
  int n;
  bool is_absolute; /* errors count by magnitude, not squared */
} ckpt_quant_steps;

/* x ~ scale * code - *min with *min >= 0, codes up to max_code. Returns the scale. */
float ckpt_quant_affine(int n, int max_code, const float *x, const float *weights, const ckpt_quant_steps *steps,
                        uint8_t *codes, float *min);

/* x ~ scale * code for x >= 0, codes up to max_code. Returns the scale, 0 where all is zero. */
float ckpt_quant_positive(int n, int max_code, const float *x, const float *weights, uint8_t *codes);

#endif
