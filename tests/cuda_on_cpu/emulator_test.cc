// The emulated device itself: it runs what a grid is, and shows what a GPU would hide.
#include "emulator.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace {

using cuda_on_cpu::control;

// Memory of the device, with values.
template <class T>
struct Buffer {
  explicit Buffer(const std::vector<T> &values) : n(values.size()) {
    EXPECT_EQ(cudaMalloc(&at, n * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(at, values.data(), n * sizeof(T), cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  }
  ~Buffer() { cudaFree(at); }
  std::vector<T> Get() const {
    std::vector<T> out(n);
    EXPECT_EQ(cudaMemcpyAsync(out.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost, nullptr), cudaSuccess);
    return out;
  }
  T *at = nullptr;
  size_t n;
};

template <class... P, class... A>
cudaError_t LaunchOf(unsigned n_blocks, unsigned n_threads, size_t n_shared, void (*kernel)(P...), A... args) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(n_blocks), config.blockDim = dim3(n_threads), config.dynamicSmemBytes = n_shared;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

struct Shared {
  int values[96];
};

__global__ void Count(int *counts) { counts[blockIdx.x * blockDim.x + threadIdx.x]++; }

TEST(CudaOnCpu, EachThreadOfEachBlockRunsOnce) {
  Buffer<int> counts(std::vector<int>(7 * 96, 0));
  EXPECT_EQ(LaunchOf(7, 96, 0, Count, counts.at), cudaSuccess);
  for (int count : counts.Get()) EXPECT_EQ(count, 1);
}

__global__ void Reverse(int *x) {
  CKPT_SHARED(Shared, s);
  s->values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s->values[95 - threadIdx.x];
}

// The same, with the barrier forgotten.
__global__ void ReverseWithoutBarrier(int *x) {
  CKPT_SHARED(Shared, s);
  s->values[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = s->values[95 - threadIdx.x];
}

TEST(CudaOnCpu, AMissingBarrierShows) {
  std::vector<int> numbers(96), expected(96);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int i = 0; i < 96; i++) expected[(size_t)i] = 95 - i;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    control.seed = seed;
    Buffer<int> right(numbers), wrong(numbers);
    EXPECT_EQ(LaunchOf(1, 96, sizeof(Shared), Reverse, right.at), cudaSuccess);
    EXPECT_EQ(right.Get(), expected);
    EXPECT_EQ(LaunchOf(1, 96, sizeof(Shared), ReverseWithoutBarrier, wrong.at), cudaSuccess);
    EXPECT_NE(wrong.Get(), expected);
  }
}

__global__ void SomeAtABarrier(int *x) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void TwoBarriers(int *x) {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void HalfAWarpShuffles(int *x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
}
__global__ void TooMuchShared(int *x) {
  CKPT_SHARED(Shared, s);
  s->values[0] = x[0];
}

TEST(CudaOnCpu, WhatNoGpuPromisesIsAnError) {
  Buffer<int> x(std::vector<int>(64, 0));
  EXPECT_EQ(LaunchOf(1, 64, 0, SomeAtABarrier, x.at), cudaErrorLaunchFailure);
  EXPECT_NE(control.problem.find("32 of 64 have left, 32 are at the barrier"), std::string::npos) << control.problem;
  EXPECT_EQ(LaunchOf(1, 64, 0, TwoBarriers, x.at), cudaErrorLaunchFailure);
  EXPECT_NE(control.problem.find("threads wait at"), std::string::npos) << control.problem;
  EXPECT_EQ(LaunchOf(1, 32, 0, HalfAWarpShuffles, x.at), cudaErrorLaunchFailure);
  EXPECT_EQ(LaunchOf(1, 1, 8, TooMuchShared, x.at), cudaErrorLaunchFailure);
  EXPECT_EQ(LaunchOf(1, 0, 0, Count, x.at), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchOf(1, 64, 0, Count, x.at), cudaSuccess);  // what failed is over
}

__global__ void Warps(int *out) {
  const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x * 8;
  out[at] = __shfl_sync(0xffffffffU, lane, 5);
  out[at + 1] = __shfl_sync(0xffffffffU, lane, 5, 16);
  out[at + 2] = __shfl_down_sync(0xffffffffU, lane, 4, 16);
  out[at + 3] = __shfl_up_sync(0xffffffffU, lane, 4, 16);
  out[at + 4] = __shfl_xor_sync(0xffffffffU, lane, 3);
  out[at + 5] = (int)__ballot_sync(0xffffffffU, lane % 3 == 0);
  out[at + 6] = __any_sync(0xffffffffU, lane == 7) + 2 * __any_sync(0xffffffffU, 0);
  out[at + 7] = __all_sync(0xffffffffU, lane >= 0) + 2 * __all_sync(0xffffffffU, lane != 7);
}

TEST(CudaOnCpu, ShufflesAndVotes) {
  Buffer<int> out(std::vector<int>(64 * 8, -1));
  EXPECT_EQ(LaunchOf(1, 64, 0, Warps, out.at), cudaSuccess) << control.problem;
  const std::vector<int> got = out.Get();
  unsigned thirds = 0;
  for (unsigned i = 0; i < 32; i += 3) thirds |= 1U << i;
  for (int t = 0; t < 64; t++) {
    const int lane = t % 32, *g = &got[(size_t)t * 8];
    EXPECT_EQ(g[0], 5);
    EXPECT_EQ(g[1], lane / 16 * 16 + 5);
    EXPECT_EQ(g[2], lane % 16 + 4 < 16 ? lane + 4 : lane);
    EXPECT_EQ(g[3], lane % 16 >= 4 ? lane - 4 : lane);
    EXPECT_EQ(g[4], lane ^ 3);
    EXPECT_EQ((unsigned)g[5], thirds);
    EXPECT_EQ(g[6], 1);
    EXPECT_EQ(g[7], 1);
  }
}

__global__ void Histogram(const int *x, int *counts, int *greatest) {
  atomicAdd(&counts[x[blockIdx.x * blockDim.x + threadIdx.x]], 1);
  atomicMax(greatest, x[blockIdx.x * blockDim.x + threadIdx.x]);
  atomicCAS(greatest + 1, 0, 9);
}

TEST(CudaOnCpu, Atomics) {
  std::vector<int> x(3 * 64), expected(5, 0);
  for (size_t i = 0; i < x.size(); i++) expected[(size_t)(x[i] = (int)(i * i % 5))]++;
  Buffer<int> values(x), counts(std::vector<int>(5, 0)), greatest(std::vector<int>(2, 0));
  EXPECT_EQ(LaunchOf(3, 64, 0, Histogram, values.at, counts.at, greatest.at), cudaSuccess);
  EXPECT_EQ(counts.Get(), expected);
  EXPECT_EQ(greatest.Get(), (std::vector<int>{4, 9}));
}

TEST(CudaOnCpu, MemoryIsTheDevices) {
  Buffer<int> a(std::vector<int>(10, 1));
  std::vector<int> host(11, 2);
  EXPECT_EQ(cudaMemcpyAsync(a.at, host.data(), 11 * sizeof(int), cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), a.at, 4, cudaMemcpyHostToDevice, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  EXPECT_EQ(a.Get(), std::vector<int>(10, 1));
}

__global__ void PastTheEnd(int *x) { x[16] = 1; }

TEST(CudaOnCpuDeathTest, TheHostCannotTouchItAndKernelsCannotLeaveIt) {
  Buffer<int> a(std::vector<int>(16, 1));
  EXPECT_DEATH(*static_cast<volatile int *>(a.at) = 2, "");
  EXPECT_DEATH(LaunchOf(1, 1, 0, PastTheEnd, a.at), "");
}

}  // namespace
