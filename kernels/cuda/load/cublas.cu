/* cublas.cu - cuBLASLt, loaded at the first call: a command that multiplies nothing on a device needs none. */
#include <dlfcn.h>
#include <pthread.h>

#include "kernels/cuda/tape/tape.cuh"

#define TEXT_OF(x) #x
#define NAME_OF(major) "libcublasLt.so." TEXT_OF(major)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ckpt_cublas functions;
static bool has_all;

static void load(void) {
  void *library = dlopen(NAME_OF(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
  const struct {
    void *to;
    const char *name;
  } wanted[] = {{&functions.create, "cublasLtCreate"},
                {&functions.destroy, "cublasLtDestroy"},
                {&functions.matmul, "cublasLtMatmul"},
                {&functions.desc_create, "cublasLtMatmulDescCreate"},
                {&functions.desc_destroy, "cublasLtMatmulDescDestroy"},
                {&functions.desc_set, "cublasLtMatmulDescSetAttribute"},
                {&functions.layout_create, "cublasLtMatrixLayoutCreate"},
                {&functions.layout_destroy, "cublasLtMatrixLayoutDestroy"},
                {&functions.preference_create, "cublasLtMatmulPreferenceCreate"},
                {&functions.preference_destroy, "cublasLtMatmulPreferenceDestroy"},
                {&functions.preference_set, "cublasLtMatmulPreferenceSetAttribute"},
                {&functions.heuristic, "cublasLtMatmulAlgoGetHeuristic"}};
  has_all = library != NULL;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted && has_all; i++) {
    void *found = dlsym(library, wanted[i].name);
    memcpy(wanted[i].to, &found, sizeof found);
    has_all = found != NULL;
  }
}

const ckpt_cublas *ckpt_cublas_get(void) {
  pthread_once(&once, load);
  return has_all ? &functions : NULL;
}
