/* quant.h - private to kernels/cpu: block types at the level of the processor, equal to kernels/ref bit for bit.
 *
 * A level has rows for the types it is faster at. Lanes are sub-blocks, blocks, scales that are tried or points of a
 * grid: each lane does what the reference does, in its order, so no sum is ever split.
 *
 * Another instruction set is a file quant_<set>.c, guarded by its architecture, and a line in ckpt_quant_level_at: what
 * belongs to x86 is in avx2*.c, avx512*.c and that function alone. For NEON (quant_neon.c) the file has
 * LANES 8, an empty TARGET, vf and vm as the compiler's vectors of 32 bytes and the functions on them of avx2.c,
 * includes the three quant_lanes*.h and fills its table; its min and max have to give the second operand where both are
 * equal or one is a NaN, as on x86. */
#ifndef CKPT_KERNELS_CPU_QUANT_QUANT_H
#define CKPT_KERNELS_CPU_QUANT_QUANT_H

#include "kernels/ref/quant/quant.h"

/* An empty slot means that the level has no function of its own for the dtype. */
typedef struct ckpt_quant_level {
  const char *name;
  ckpt_quant types[CKPT_N_DTYPES];
} ckpt_quant_level;

extern const ckpt_quant_level ckpt_quant_avx2;   /* x86-64 only */
extern const ckpt_quant_level ckpt_quant_avx512; /* x86-64 only */

/* Rows of types of one scale, without importance, on AVX2 (avx2_plain.c); the last argument is not used. */
void ckpt_quant_avx2_q4_0(uint8_t *dst, const float *x, size_t n, const float *none);
void ckpt_quant_avx2_q4_1(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */
void ckpt_quant_avx2_q5_0(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */
void ckpt_quant_avx2_q5_1(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */
void ckpt_quant_avx2_q8_0(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */

/* The same on AVX-512 (avx512_plain.c). */
void ckpt_quant_avx512_q4_0(uint8_t *dst, const float *x, size_t n, const float *none);
void ckpt_quant_avx512_q4_1(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */
void ckpt_quant_avx512_q5_0(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */
void ckpt_quant_avx512_q5_1(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */
void ckpt_quant_avx512_q8_0(uint8_t *dst, const float *x, size_t n, const float *none); /* as above */

/* Rows of types on grids, on AVX2 (avx2_iq1.c, avx2_grid.c). */
void ckpt_quant_avx2_iq2_xxs(uint8_t *dst, const float *x, size_t n, const float *importance);
void ckpt_quant_avx2_iq1_s(uint8_t *dst, const float *x, size_t n, const float *importance);   /* as above */
void ckpt_quant_avx2_iq1_m(uint8_t *dst, const float *x, size_t n, const float *importance);   /* as above */
void ckpt_quant_avx2_iq2_xs(uint8_t *dst, const float *x, size_t n, const float *importance);  /* as above */
void ckpt_quant_avx2_iq2_s(uint8_t *dst, const float *x, size_t n, const float *importance);   /* as above */
void ckpt_quant_avx2_iq3_xxs(uint8_t *dst, const float *x, size_t n, const float *importance); /* as above */
void ckpt_quant_avx2_iq3_s(uint8_t *dst, const float *x, size_t n, const float *importance);   /* as above */

/* Readers on AVX2 (avx2_points.c). */
void ckpt_dequant_avx2_iq2_xxs(float *y, const uint8_t *src, size_t n);
void ckpt_dequant_avx2_iq2_xs(float *y, const uint8_t *src, size_t n);  /* as above */
void ckpt_dequant_avx2_iq2_s(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_iq3_xxs(float *y, const uint8_t *src, size_t n); /* as above */
void ckpt_dequant_avx2_iq3_s(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_iq1_s(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_iq1_m(float *y, const uint8_t *src, size_t n);   /* as above */

/* Readers on AVX2 (avx2_read.c). */
void ckpt_dequant_avx2_q4_0(float *y, const uint8_t *src, size_t n);
void ckpt_dequant_avx2_q4_1(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q5_0(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q5_1(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q8_0(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q2_k(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q3_k(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q4_k(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q5_k(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q6_k(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q1_0(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_q2_0(float *y, const uint8_t *src, size_t n);   /* as above */
void ckpt_dequant_avx2_mxfp4(float *y, const uint8_t *src, size_t n);  /* as above */
void ckpt_dequant_avx2_iq4_nl(float *y, const uint8_t *src, size_t n); /* as above */
void ckpt_dequant_avx2_iq4_xs(float *y, const uint8_t *src, size_t n); /* as above */
void ckpt_dequant_avx2_tq1_0(float *y, const uint8_t *src, size_t n);  /* as above */
void ckpt_dequant_avx2_tq2_0(float *y, const uint8_t *src, size_t n);  /* as above */

/* The i-th level that this processor can run, the slowest (the reference) first; NULL past the last. */
const ckpt_quant_level *ckpt_quant_level_at(size_t i);

/* The slots of ckpt_backend_cpu on a given level. */
bool ckpt_quant_at(const ckpt_quant_level *level, ckpt_dtype dtype, void *dst, const float *src, size_t n_rows,
                   size_t n_per_row, const float *importance);
void ckpt_dequant_at(const ckpt_quant_level *level, ckpt_dtype dtype, float *dst, const void *src,
                     size_t n_elements); /* as above */

/* The slots of ckpt_backend_cpu. */
bool ckpt_quant_cpu_quantize(ckpt_dtype dtype, void *dst, const float *src, size_t n_rows, size_t n_per_row,
                             const float *importance);
void ckpt_quant_cpu_dequantize(ckpt_dtype dtype, float *dst, const void *src, size_t n_elements); /* as above */

#endif
