/* gemm.c - the GEMM hook of the CPU: oneDNN's sgemm, on the calling thread alone.
 *
 * oneDNN runs on OpenMP: a thread that calls it is told once that it has one thread. Whoever cuts products into parts
 * cuts them by shape, so the same calls are made for any number of threads. */
#include <dnnl.h>

#include "kernels/cpu/tape/tape.h"
#include "libckpt/base/error.h"

void omp_set_num_threads(int n); /* of libgomp; clang has no header for it */

static _Thread_local bool is_limited;

static void add_bias(const ckpt_gemm *g) {
  const float *restrict bias = g->bias;
  for (size_t i = 0; i < g->m; i++) {
    float *restrict c = (float *)g->c + i * g->ldc;
    for (size_t j = 0; j < g->n; j++) c[j] += bias[j];
  }
}

ckpt_status ckpt_gemm_f32(const ckpt_gemm *g, ckpt_error *err) {
  if (!is_limited) omp_set_num_threads(1);
  is_limited = true;
  if (g->m == 0 || g->n == 0) return CKPT_OK;
  dnnl_status_t status = dnnl_sgemm(g->is_a_transposed ? 'T' : 'N', g->is_b_transposed ? 'T' : 'N', (dnnl_dim_t)g->m,
                                    (dnnl_dim_t)g->n, (dnnl_dim_t)g->k, (float)g->alpha, g->a, (dnnl_dim_t)g->lda, g->b,
                                    (dnnl_dim_t)g->ldb, (float)g->beta, g->c, (dnnl_dim_t)g->ldc);
  if (status == dnnl_out_of_memory) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status != dnnl_success)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "dnnl_sgemm gave %d for %zu x %zu x %zu", (int)status, g->m, g->n,
                     g->k);
  if (g->bias != NULL) add_bias(g);
  return CKPT_OK;
}
