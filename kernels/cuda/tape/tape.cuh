/* tape.cuh - what the files of kernels/cuda/tape share: the device, and how a kernel is started.
 *
 * Formulas are those of kernels/ref/tape. Each sum keeps its order there, with a thread for each lane, so that results
 * equal the CPU's bit for bit; compiled without contraction. Shared memory is one struct per kernel, whose size is
 * given at launch: CKPT_SHARED. tests/cuda_on_cpu compiles these files with a C++ compiler. */
#ifndef CKPT_KERNELS_CUDA_TAPE_TAPE_CUH
#define CKPT_KERNELS_CUDA_TAPE_TAPE_CUH

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CKPT_REAL_BITS 32
extern "C" {
#include "kernels/cuda/tape/cuda.h"
#include "kernels/ref/quant/grid.h"
#include "kernels/ref/tape/elements.h"
#include "kernels/ref/tape/pairs.h"
#include "libckpt/base/error.h"
}

#ifndef CKPT_SHARED
#define CKPT_SHARED(type, name)                                      \
  extern __shared__ __align__(16) unsigned char ckpt_shared_bytes[]; \
  type *name = (type *)ckpt_shared_bytes
#endif

/* Of functions and loops that work on arrays in registers. */
#if defined(__CUDACC__)
#define CKPT_INLINE __forceinline__
#define CKPT_UNROLL _Pragma("unroll")
#define CKPT_ROLL _Pragma("unroll 1")
#else
#define CKPT_INLINE inline
#define CKPT_UNROLL
#define CKPT_ROLL
#endif

/* What is used of cuBLASLt. */
typedef struct ckpt_cublas {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
} ckpt_cublas;

/* The library, loaded at the first call (kernels/cuda/load); NULL where it cannot be. */
const ckpt_cublas *ckpt_cublas_get(void);

/* How the library makes products of one kind; it takes long to say. */
typedef struct ckpt_cuda_algorithm {
  uint64_t kind[8];
  bool is_known;
  cublasLtMatmulAlgo_t algorithm;
} ckpt_cuda_algorithm;

/* Kinds that are remembered: a kind has one place, and drives out who has it. */
enum { CKPT_CUDA_ALGORITHMS = 256 };

typedef struct ckpt_cuda {
  ckpt_device device; /* first: a ckpt_device is one of these */
  ckpt_device *host;
  cudaStream_t stream;
  cublasLtHandle_t cublas;
  void *workspace; /* CKPT_CUDA_WORKSPACE bytes, of products */
  ckpt_cuda_algorithm algorithms[CKPT_CUDA_ALGORITHMS];
  uint8_t *levels[CKPT_N_GRIDS]; /* of block types, from the first time that one is read */
  cudaError_t error;
  const char *failed; /* what failed first */
} ckpt_cuda;

enum { CKPT_CUDA_WORKSPACE = 32 << 20 }; /* as the library asks for */

/* Keeps the first failure. */
void ckpt_cuda_note(ckpt_cuda *c, cudaError_t error, const char *what);

/* One product. */
ckpt_status ckpt_cuda_gemm(ckpt_cuda *c, const ckpt_gemm *gemm, ckpt_error *err);

/* Blocks to f32; false for types that are no blocks. */
bool ckpt_cuda_dequantize(ckpt_cuda *c, ckpt_dtype dtype, float *dst, const void *src, size_t n_elements);

/* Starts a kernel over [0, n) of its axis. */
typedef void ckpt_cuda_starter(ckpt_cuda *c, const void *args, size_t n);

/* One for each row of tape_kernels.def. */
#define CKPT_TAPE_KERNEL(id) ckpt_cuda_starter ckpt_cuda_start_##id;
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL

/* Threads of a block where they share nothing, and the most blocks of a launch: kernels step over the rest. */
enum { CKPT_CUDA_THREADS = 128, CKPT_CUDA_MAX_BLOCKS = 1 << 20 };

/* The smaller one. */
static CKPT_DEVICE inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Starts n_blocks (cut at the most) of n_threads. */
template <class Args>
static inline void ckpt_cuda_start(ckpt_cuda *c, const char *name, void (*kernel)(Args, size_t), const Args &args,
                                   size_t n, size_t n_blocks, unsigned n_threads, size_t n_shared) {
  if (n == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)least(n_blocks, CKPT_CUDA_MAX_BLOCKS), 1, 1);
  config.blockDim = dim3(n_threads, 1, 1);
  config.dynamicSmemBytes = n_shared;
  config.stream = c->stream;
  ckpt_cuda_note(c, cudaLaunchKernelEx(&config, kernel, args, n), name);
}

/* The same with a thread for each of n. */
template <class Args>
static inline void ckpt_cuda_start_threads(ckpt_cuda *c, const char *name, void (*kernel)(Args, size_t),
                                           const Args &args, size_t n) {
  ckpt_cuda_start(c, name, kernel, args, n, (n + CKPT_CUDA_THREADS - 1) / CKPT_CUDA_THREADS, CKPT_CUDA_THREADS, 0);
}

/* The first of a thread's elements, and the step to the next. */
static __device__ inline size_t first_index(void) { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
/* As above. */
static __device__ inline size_t index_step(void) { return (size_t)gridDim.x * blockDim.x; }

/* use(i, read(i)) for i from `first` to `end` by `step`, in order; N are read before one is used, for memory is what
 * threads wait for. */
template <int N, class Read, class Use>
static __device__ CKPT_INLINE void for_each_ahead(size_t first, size_t end, size_t step, Read read, Use use) {
  for (; first + (N - 1) * step < end; first += N * step) {
    decltype(read(first)) ahead[N];
    CKPT_UNROLL for (int i = 0; i < N; i++) ahead[i] = read(first + i * step);
    CKPT_UNROLL for (int i = 0; i < N; i++) use(first + i * step, ahead[i]);
  }
  for (; first < end; first += step) use(first, read(first));
}

/* Adds a value to a gradient, or replaces it; nobody may want it. */
static __device__ inline void deliver(void *matrix, size_t at, bool adds, float value) {
  if (matrix == NULL) return;
  float *to = (float *)matrix + at;
  *to = adds ? *to + value : value;
}

#endif
