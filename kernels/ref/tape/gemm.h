/* gemm.h - a matrix product element by element: what the library's is compared with, and that of f64. Static. */
#ifndef CKPT_KERNELS_REF_TAPE_GEMM_H
#define CKPT_KERNELS_REF_TAPE_GEMM_H

#include "kernels/ref/tape/formulas.h"
#include "kernels/ref/tape/tape_kernels.h"
#include "libckpt/base/error.h"

/* A factor: its f32 rounded to bf16 where a product is in bf16. A NaN stays one. */
static inline real factor_of(const ckpt_gemm *g, real x) {
  uint32_t bits;
  const float narrow = (float)x;
  if (!g->is_bf16 || narrow != narrow) return x;
  memcpy(&bits, &narrow, sizeof bits);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
  float rounded;
  memcpy(&rounded, &bits, sizeof rounded);
  return rounded;
}

/* The product, in order of the summed axis. What is stored otherwise than in reals is not taken. */
static ckpt_status multiply(const ckpt_gemm *g, ckpt_error *err) {
  if (g->b_dtype != CKPT_DTYPE_NONE)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "the reference multiplies reals alone");
  const size_t a_row = g->is_a_transposed ? 1 : g->lda, a_step = g->is_a_transposed ? g->lda : 1;
  const size_t b_row = g->is_b_transposed ? g->ldb : 1, b_step = g->is_b_transposed ? 1 : g->ldb;
  for (size_t i = 0; i < g->m; i++)
    for (size_t j = 0; j < g->n; j++) {
      const real *a = (const real *)g->a + i * a_row, *b = (const real *)g->b + j * b_row;
      real sum = 0, *c = (real *)g->c + i * g->ldc + j;
      for (size_t k = 0; k < g->k; k++) sum = REAL_FMA(factor_of(g, a[k * a_step]), factor_of(g, b[k * b_step]), sum);
      sum *= (real)g->alpha;
      if (g->beta != 0) sum += (real)g->beta * *c;
      *c = g->bias == NULL ? sum : sum + ((const real *)g->bias)[j];
    }
  return CKPT_OK;
}

#endif
