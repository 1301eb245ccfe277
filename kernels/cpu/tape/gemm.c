/* gemm.c - the GEMM hook of the CPU: oneDNN's products of f32 and of bf16, on the calling thread alone.
 *
 * The library is loaded at the first product, or where a processor with AVX512_BF16 chooses its kernels, so that a
 * command that runs no model pays nothing for it (4 MiB and 2 ms). oneDNN runs on OpenMP: a thread that calls it is
 * told once that it has one thread. Whoever cuts products into parts cuts them by shape, so the same calls are made for
 * any number of threads.
 *
 * Products of bf16 pay where the processor multiplies pairs of them at the rate of f32 or has tiles (AMD with
 * AVX512_BF16; AMX). Intel's AVX512_BF16 alone has half of it: 85 GFLOP/s a core against 150 of f32, measured. */
#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/tape/tape.h"
#include "libckpt/base/error.h"

/* Memory that threads keep in their own storage until they end: LeakSanitizer is told not to look there, since it
 * crashes where the storage is of a library that was loaded late (tests/CMakeLists.txt). So it does not watch what is
 * allocated from ignore_leaks to watch_leaks. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
static void ignore_leaks(void) { __lsan_disable(); }
static void watch_leaks(void) { __lsan_enable(); }
#else
static void ignore_leaks(void) {}
static void watch_leaks(void) {}
#endif

#define TEXT_OF(x) #x
#define NAME_OF(major) "libdnnl.so." TEXT_OF(major)

typedef dnnl_status_t sgemm_function(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float *, dnnl_dim_t,
                                     const float *, dnnl_dim_t, float, float *, dnnl_dim_t);

typedef dnnl_status_t bf16_gemm_function(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const uint16_t *,
                                         dnnl_dim_t, const uint16_t *, dnnl_dim_t, float, float *, dnnl_dim_t);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sgemm_function *sgemm;
static bf16_gemm_function *bf16_gemm; /* missing from its header, exported by every release */
static bool has_fast_bf16;
static void (*set_threads)(int n);
static _Thread_local bool is_limited;
static pthread_key_t scratch_key;
static bool has_key;

static void free_scratch(void *arg);

/* Whether oneDNN, as it may use the processor, multiplies bf16 faster than f32. */
static bool is_bf16_fast(void *library) {
#if defined(__x86_64__)
  dnnl_cpu_isa_t (*get_isa)(void);
  void *found = dlsym(library, "dnnl_get_effective_cpu_isa");
  memcpy(&get_isa, &found, sizeof found);
  const unsigned isa = get_isa == NULL ? 0 : get_isa(), tiles = dnnl_cpu_isa_avx512_core_amx;
  const unsigned pairs = dnnl_cpu_isa_avx512_core_bf16;
  return (isa & tiles) == tiles || ((isa & pairs) == pairs && !__builtin_cpu_is("intel"));
#else
  (void)library;
  return false;
#endif
}

static void load(void) {
  void *library = dlopen(NAME_OF(DNNL_VERSION_MAJOR), RTLD_NOW | RTLD_LOCAL);
  has_key = pthread_key_create(&scratch_key, free_scratch) == 0;
  if (library == NULL) return;
  void *found = dlsym(library, "dnnl_sgemm"), *narrow = dlsym(library, "dnnl_gemm_bf16bf16f32");
  void *limit = dlsym(library, "omp_set_num_threads"); /* of libgomp, which it needs */
  memcpy(&sgemm, &found, sizeof found);
  memcpy(&set_threads, &limit, sizeof limit);
  memcpy(&bf16_gemm, &narrow, sizeof narrow);
  has_fast_bf16 = bf16_gemm != NULL && is_bf16_fast(library);
}

/* What the calling thread has for panels. */
typedef struct scratch {
  void *memory;
  size_t n_bytes;
} scratch;

static void free_scratch(void *arg) {
  scratch *s = arg;
  free(s->memory);
  free(s);
}

/* The calling thread's; NULL without memory. */
static void *scratch_of_thread(size_t n_bytes) {
  scratch *s = pthread_getspecific(scratch_key);
  if (s == NULL) {
    s = calloc(1, sizeof *s);
    if (s == NULL || pthread_setspecific(scratch_key, s) != 0) return free(s), NULL;
  }
  if (s->n_bytes >= n_bytes) return s->memory;
  free(s->memory);
  s->n_bytes = (n_bytes + 63) / 64 * 64;
  s->memory = aligned_alloc(64, s->n_bytes);
  if (s->memory == NULL) s->n_bytes = 0;
  return s->memory;
}

void *ckpt_gemm_scratch(size_t n_bytes) {
  pthread_once(&once, load);
  if (!has_key) return NULL;
  ignore_leaks();
  void *memory = scratch_of_thread(n_bytes);
  watch_leaks();
  return memory;
}

static void add_bias(const ckpt_gemm *g) {
  const float *restrict bias = g->bias;
  for (size_t i = 0; i < g->m; i++) {
    float *restrict c = (float *)g->c + i * g->ldc;
    for (size_t j = 0; j < g->n; j++) c[j] += bias[j];
  }
}

static ckpt_status start(ckpt_error *err) {
  pthread_once(&once, load);
  if (sgemm == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "%s, which multiplies matrices, cannot be loaded (install oneDNN)", NAME_OF(DNNL_VERSION_MAJOR));
  ignore_leaks();
  if (!is_limited && set_threads != NULL) set_threads(1);
  is_limited = true;
  watch_leaks();
  return CKPT_OK;
}

static ckpt_status finish(const ckpt_gemm *g, dnnl_status_t status, ckpt_error *err) {
  watch_leaks();
  if (status == dnnl_unimplemented)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "oneDNN has no such product on this processor");
  if (status == dnnl_out_of_memory) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status != dnnl_success)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "oneDNN gave %d for a product of %zu x %zu x %zu", (int)status,
                     g->m, g->n, g->k);
  if (g->bias != NULL) add_bias(g);
  return CKPT_OK;
}

ckpt_status ckpt_gemm_f32(const ckpt_gemm *g, ckpt_error *err) {
  CKPT_TRY(start(err));
  if (g->m == 0 || g->n == 0) return CKPT_OK;
  ignore_leaks();
  return finish(g,
                sgemm(g->is_a_transposed ? 'T' : 'N', g->is_b_transposed ? 'T' : 'N', (dnnl_dim_t)g->m,
                      (dnnl_dim_t)g->n, (dnnl_dim_t)g->k, (float)g->alpha, g->a, (dnnl_dim_t)g->lda, g->b,
                      (dnnl_dim_t)g->ldb, (float)g->beta, g->c, (dnnl_dim_t)g->ldc),
                err);
}

ckpt_status ckpt_gemm_bf16(const ckpt_gemm *g, ckpt_error *err) {
  CKPT_TRY(start(err));
  if (bf16_gemm == NULL) return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "oneDNN has no product of bf16");
  if (g->m == 0 || g->n == 0) return CKPT_OK;
  ignore_leaks();
  return finish(g,
                bf16_gemm(g->is_a_transposed ? 'T' : 'N', g->is_b_transposed ? 'T' : 'N', (dnnl_dim_t)g->m,
                          (dnnl_dim_t)g->n, (dnnl_dim_t)g->k, (float)g->alpha, g->a, (dnnl_dim_t)g->lda, g->b,
                          (dnnl_dim_t)g->ldb, (float)g->beta, g->c, (dnnl_dim_t)g->ldc),
                err);
}

bool ckpt_gemm_has_fast_bf16(void) {
  pthread_once(&once, load);
  return has_fast_bf16;
}
