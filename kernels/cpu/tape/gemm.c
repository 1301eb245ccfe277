/* gemm.c - the GEMM hook of the CPU: oneDNN's sgemm, on the calling thread alone.
 *
 * The library is loaded at the first product, so that a command that multiplies nothing pays nothing for it (4 MiB and
 * 2 ms). oneDNN runs on OpenMP: a thread that calls it is told once that it has one thread. Whoever cuts products into
 * parts cuts them by shape, so the same calls are made for any number of threads. */
#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <string.h>

#include "kernels/cpu/tape/tape.h"
#include "libckpt/base/error.h"

#define TEXT_OF(x) #x
#define NAME_OF(major) "libdnnl.so." TEXT_OF(major)

typedef dnnl_status_t sgemm_function(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float *, dnnl_dim_t,
                                     const float *, dnnl_dim_t, float, float *, dnnl_dim_t);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sgemm_function *sgemm;
static void (*set_threads)(int n);
static _Thread_local bool is_limited;

static void load(void) {
  void *library = dlopen(NAME_OF(DNNL_VERSION_MAJOR), RTLD_NOW | RTLD_LOCAL);
  void *found = library == NULL ? NULL : dlsym(library, "dnnl_sgemm");
  void *limit = library == NULL ? NULL : dlsym(library, "omp_set_num_threads"); /* of libgomp, which it needs */
  memcpy(&sgemm, &found, sizeof found);
  memcpy(&set_threads, &limit, sizeof limit);
}

static void add_bias(const ckpt_gemm *g) {
  const float *restrict bias = g->bias;
  for (size_t i = 0; i < g->m; i++) {
    float *restrict c = (float *)g->c + i * g->ldc;
    for (size_t j = 0; j < g->n; j++) c[j] += bias[j];
  }
}

ckpt_status ckpt_gemm_f32(const ckpt_gemm *g, ckpt_error *err) {
  pthread_once(&once, load);
  if (sgemm == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "%s, which multiplies matrices, cannot be loaded (install oneDNN)", NAME_OF(DNNL_VERSION_MAJOR));
  if (!is_limited && set_threads != NULL) set_threads(1);
  is_limited = true;
  if (g->m == 0 || g->n == 0) return CKPT_OK;
  dnnl_status_t status = sgemm(g->is_a_transposed ? 'T' : 'N', g->is_b_transposed ? 'T' : 'N', (dnnl_dim_t)g->m,
                               (dnnl_dim_t)g->n, (dnnl_dim_t)g->k, (float)g->alpha, g->a, (dnnl_dim_t)g->lda, g->b,
                               (dnnl_dim_t)g->ldb, (float)g->beta, g->c, (dnnl_dim_t)g->ldc);
  if (status == dnnl_out_of_memory) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status != dnnl_success)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "dnnl_sgemm gave %d for %zu x %zu x %zu", (int)status, g->m, g->n,
                     g->k);
  if (g->bias != NULL) add_bias(g);
  return CKPT_OK;
}
