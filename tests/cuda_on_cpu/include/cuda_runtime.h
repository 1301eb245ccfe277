/* cuda_runtime.h - what kernels/cuda uses of CUDA, for a C++ compiler: its .cu files run on a CPU (emulator.cc).
 *
 * A grid is run block after block in a shuffled order. Each thread of a block is a fiber; whoever may go on is chosen
 * at random, so that a barrier that is missing shows. Barriers, shuffles and votes are checked more strictly than a GPU
 * does: a thread of theirs that has left, or waits elsewhere, is an error. Memory of the device can be touched in
 * kernels and copies alone, and ends at a page that nobody can touch. */
#ifndef CKPT_TESTS_CUDA_ON_CPU_CUDA_RUNTIME_H
#define CKPT_TESTS_CUDA_ON_CPU_CUDA_RUNTIME_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(n_threads, n_blocks)
#define CKPT_SHARED(type, name) type *name = static_cast<type *>(cuda_on_cpu::SharedMemory(sizeof(type)))

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(16) float4 {
  float x, y, z, w;
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75 };
enum { cudaStreamNonBlocking = 1 };
enum cudaDataType_t { CUDA_R_32F = 0 };

using cudaStream_t = struct CUstream_st *;
using cudaEvent_t = struct CUevent_st *;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaMalloc(void **out, size_t n_bytes);
template <class T>
cudaError_t cudaMalloc(T **out, size_t n_bytes) {
  return cudaMalloc(reinterpret_cast<void **>(out), n_bytes);
}
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemsetAsync(void *dst, int value, size_t n_bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

namespace cuda_on_cpu {

// Of the running block: memory of exactly the size that was launched with.
void *SharedMemory(size_t n_bytes);
// Every thread of the block has to come here.
void Barrier(const char *file, int line);
// Every lane of the mask has to come here; what lane `from(own)` brought.
uint64_t Exchange(unsigned mask, uint64_t value, const std::function<unsigned(unsigned)> &from);
// The lanes of the mask whose predicate holds.
unsigned Vote(unsigned mask, bool holds);
void WarpBarrier(unsigned mask);
unsigned Lane();
cudaError_t Launch(const cudaLaunchConfig_t &config, const std::function<void()> &thread);
// Work of a library's on the host, in the device's memory.
cudaError_t WithMemory(const std::function<void()> &work);

template <class T>
T ExchangeOf(unsigned mask, T value, const std::function<unsigned(unsigned)> &from) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = Exchange(mask, bits, from);
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cuda_on_cpu

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return cuda_on_cpu::Launch(*config, [&] { std::apply(kernel, values); });
}

inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
  cuda_on_cpu::Barrier(file, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffU) { cuda_on_cpu::WarpBarrier(mask); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned segment = ~(static_cast<unsigned>(width) - 1);
  return cuda_on_cpu::ExchangeOf(
      mask, value, [=](unsigned lane) { return (lane & segment) | (static_cast<unsigned>(source) & ~segment); });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const unsigned inside = static_cast<unsigned>(width) - 1;
  return cuda_on_cpu::ExchangeOf(
      mask, value, [=](unsigned lane) { return (lane & inside) + distance <= inside ? lane + distance : lane; });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const unsigned inside = static_cast<unsigned>(width) - 1;
  return cuda_on_cpu::ExchangeOf(mask, value,
                                 [=](unsigned lane) { return (lane & inside) >= distance ? lane - distance : lane; });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const unsigned segment = ~(static_cast<unsigned>(width) - 1);
  return cuda_on_cpu::ExchangeOf(mask, value, [=](unsigned lane) {
    const unsigned other = lane ^ static_cast<unsigned>(distance);
    return (other & segment) > (lane & segment) ? lane : other;
  });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) { return cuda_on_cpu::Vote(mask, predicate != 0); }
inline int __any_sync(unsigned mask, int predicate) { return cuda_on_cpu::Vote(mask, predicate != 0) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return cuda_on_cpu::Vote(mask, predicate != 0) == mask; }

inline int __ffs(int bits) { return __builtin_ffs(bits); }

// A fiber gives way at barriers and exchanges alone, so these are whole.
template <class T>
T atomicAdd(T *at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicMax(T *at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}
template <class T>
T atomicCAS(T *at, T expected, T value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}

#endif
