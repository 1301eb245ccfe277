// emulator.cc - grid, blocks as fibers, shared memory, barriers, exchanges of a warp, and the device's memory.
#include "emulator.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define START_SWITCH(save, bottom, n) __sanitizer_start_switch_fiber(save, bottom, n)
#define FINISH_SWITCH(saved, bottom, n) __sanitizer_finish_switch_fiber(saved, bottom, n)
#define UNPOISON(at, n) __asan_unpoison_memory_region(at, n)
#else
#define START_SWITCH(save, bottom, n) (void)(save)
#define FINISH_SWITCH(saved, bottom, n) (void)(saved)
#define UNPOISON(at, n) (void)(at)
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

Control control;

namespace {

constexpr size_t kStack = 256 << 10;
constexpr size_t kUntouched = 32 << 20;  // such a large piece is a library's workspace: each page of it would be closed
                                         // and opened with every launch
constexpr unsigned kMaxThreads = 1024;

struct Random {
  uint64_t state;
  uint64_t Next() {  // splitmix64
    uint64_t x = state += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  size_t Below(size_t n) { return Next() % n; }
};

struct Fiber {
  ucontext_t context;
  char *stack = nullptr;
  void *fake_stack = nullptr;
  unsigned index = 0;
  unsigned n_exchanges = 0;
  bool is_done = false;
};

struct Warp {
  uint64_t slots[2][32];
  unsigned arrived[2] = {0, 0}, masks[2][32];
};

// One launch: the state of the block that runs.
struct Grid {
  const std::function<void()> *thread;
  cudaLaunchConfig_t config;
  Random random;
  std::vector<Fiber *> fibers, ready;
  std::vector<Warp> warps;
  Fiber *current = nullptr;
  ucontext_t scheduler;
  const void *scheduler_bottom = nullptr;
  size_t scheduler_size = 0;
  void *scheduler_fake = nullptr;
  std::string barrier;  // where threads wait
  size_t n_waiting = 0, n_done = 0;
  std::unique_ptr<char[]> shared;
};

std::recursive_mutex mutex;
std::vector<std::unique_ptr<Fiber>> pool;
Grid *grid;

void Fail(const std::string &what) {
  if (control.problem.empty()) control.problem = what;
}

Fiber *FiberAt(size_t i) {
  while (pool.size() <= i) {
    auto fiber = std::make_unique<Fiber>();
    void *memory = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    fiber->stack = static_cast<char *>(memory);
    mprotect(memory, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
    pool.push_back(std::move(fiber));
  }
  return pool[i].get();
}

// Gives way to the scheduler; comes back when this fiber is chosen again.
void Yield() {
  Fiber *self = grid->current;
  START_SWITCH(self->is_done ? nullptr : &self->fake_stack, grid->scheduler_bottom, grid->scheduler_size);
  swapcontext(&self->context, &grid->scheduler);
  FINISH_SWITCH(self->fake_stack, nullptr, nullptr);
}

void Enter() {
  FINISH_SWITCH(nullptr, &grid->scheduler_bottom, &grid->scheduler_size);
  (*grid->thread)();
  grid->current->is_done = true;
  grid->n_done++;
  Yield();
}

void Resume(Fiber *fiber) {
  grid->current = fiber;
  threadIdx = dim3(fiber->index, 0, 0);
  START_SWITCH(&grid->scheduler_fake, fiber->stack, kStack);
  swapcontext(&grid->scheduler, &fiber->context);
  FINISH_SWITCH(grid->scheduler_fake, nullptr, nullptr);
}

void Prepare(unsigned n_threads) {
  grid->fibers.clear();
  grid->warps.assign((n_threads + 31) / 32, Warp());
  grid->n_waiting = grid->n_done = 0;
  grid->barrier.clear();
  grid->shared.reset(new char[std::max<size_t>(grid->config.dynamicSmemBytes, 1)]);
  memset(grid->shared.get(), 0xff, std::max<size_t>(grid->config.dynamicSmemBytes, 1));  // NaNs
  for (unsigned i = 0; i < n_threads; i++) {
    Fiber *fiber = FiberAt(i);
    UNPOISON(fiber->stack, kStack);
    fiber->index = i;
    fiber->n_exchanges = 0;
    fiber->is_done = false;
    fiber->fake_stack = nullptr;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStack;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, Enter, 0);
    fiber->context.uc_stack.ss_size = 0;  // or AddressSanitizer forgets the frames of a fiber that goes on
    grid->fibers.push_back(fiber);
  }
  grid->ready = grid->fibers;
}

// False: threads are left that nothing will wake.
bool RunBlock(unsigned n_threads) {
  Prepare(n_threads);
  while (!grid->ready.empty() && control.problem.empty()) {
    const size_t i = grid->random.Below(grid->ready.size());
    Fiber *fiber = grid->ready[i];
    grid->ready[i] = grid->ready.back();
    grid->ready.pop_back();
    Resume(fiber);
  }
  if (grid->n_done != n_threads)
    Fail("threads wait for ever: " + std::to_string(grid->n_done) + " of " + std::to_string(n_threads) +
         " have left, " + std::to_string(grid->n_waiting) + " are at the barrier " + grid->barrier);
  return control.problem.empty();
}

}  // namespace

void *SharedMemory(size_t n_bytes) {
  if (n_bytes > grid->config.dynamicSmemBytes)
    Fail("shared memory of " + std::to_string(n_bytes) + " bytes, launched with " +
         std::to_string(grid->config.dynamicSmemBytes));
  return grid->shared.get();
}

// Notes that the thread has come to a barrier; false where that is passed over. Nothing of the heap is held while a
// thread waits: one that waits for ever would never give it back.
static bool ComeTo(const char *file, int line) {
  const char *name = strrchr(file, '/');
  const std::string at = std::string(name == nullptr ? file : name + 1) + ":" + std::to_string(line);
  control.barriers.insert(at);
  if (at == control.skipped) return false;
  if (grid->n_waiting != 0 && grid->barrier != at) Fail("threads wait at " + grid->barrier + " and at " + at);
  grid->barrier = at;
  if (++grid->n_waiting == grid->fibers.size()) {
    grid->n_waiting = 0;
    grid->ready = grid->fibers;
  }
  return true;
}

void Barrier(const char *file, int line) {
  if (ComeTo(file, line)) Yield();
}

unsigned Lane() { return grid->current->index % 32; }

// The parity of the exchange that this thread has come to, once all lanes have; their values are in its slots.
static unsigned Meet(unsigned mask, uint64_t value) {
  Fiber *self = grid->current;
  Warp &warp = grid->warps[self->index / 32];
  const unsigned lane = Lane(), parity = self->n_exchanges++ % 2;
  if ((mask >> lane & 1) == 0) Fail("a thread is not in the mask of its own exchange");
  warp.slots[parity][lane] = value;
  warp.masks[parity][lane] = mask;
  warp.arrived[parity] |= 1U << lane;
  if ((warp.arrived[parity] & mask) == mask) {
    warp.arrived[parity] &= ~mask;
    for (unsigned i = 0; i < 32; i++) {
      if ((mask >> i & 1) == 0) continue;
      if (warp.masks[parity][i] != mask) Fail("lanes of one exchange have different masks");
      grid->ready.push_back(grid->fibers[self->index / 32 * 32 + i]);
    }
  }
  Yield();
  return parity;
}

uint64_t Exchange(unsigned mask, uint64_t value, const std::function<unsigned(unsigned)> &from) {
  const unsigned lane = Lane(), parity = Meet(mask, value), source = from(lane);
  if ((mask >> source & 1) == 0) Fail("a shuffle reads from a lane that is not in its mask");
  return grid->warps[grid->current->index / 32].slots[parity][source];
}

unsigned Vote(unsigned mask, bool holds) {
  const unsigned parity = Meet(mask, holds);
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; i++)
    if ((mask >> i & 1) != 0 && grid->warps[grid->current->index / 32].slots[parity][i] != 0) votes |= 1U << i;
  return votes;
}

void WarpBarrier(unsigned mask) { Meet(mask, 0); }

// ---- memory ---------------------------------------------------------------------------------------------------------

namespace {

struct Allocation {
  char *base;
  size_t n_mapped, n_bytes;
};
std::map<char *, Allocation> memory;
int n_open;  // launches and copies that are at work

void Protect(int how) {
  for (auto &item : memory) mprotect(item.second.base, item.second.n_mapped, how);
}

// While one lives the device's memory can be touched.
struct Open {
  std::lock_guard<std::recursive_mutex> lock{mutex};
  Open() {
    if (n_open++ == 0) Protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--n_open == 0) Protect(PROT_NONE);
  }
};

// Whether a range is wholly the device's memory.
bool IsDevice(const void *at, size_t n_bytes) {
  char *begin = static_cast<char *>(const_cast<void *>(at));
  auto after = memory.upper_bound(begin);
  if (after == memory.begin()) return false;
  const auto &item = *std::prev(after);
  return begin + n_bytes <= item.first + item.second.n_bytes;
}

bool TouchesDevice(const void *at, size_t n_bytes) {
  const char *begin = static_cast<const char *>(at);
  for (const auto &item : memory)
    if (begin < item.first + item.second.n_bytes && item.first < begin + n_bytes) return true;
  return false;
}

}  // namespace

cudaError_t Launch(const cudaLaunchConfig_t &config, const std::function<void()> &thread) {
  Open open;
  const unsigned n_threads = config.blockDim.x * config.blockDim.y * config.blockDim.z;
  if (n_threads == 0 || n_threads > kMaxThreads || config.gridDim.x == 0 || config.dynamicSmemBytes > (48 << 10))
    return cudaErrorInvalidConfiguration;
  Grid running;
  running.thread = &thread;
  running.config = config;
  running.random.state = control.seed + ++control.n_launches;
  grid = &running;
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  control.problem.clear();
  std::vector<unsigned> order(config.gridDim.x);
  for (unsigned i = 0; i < order.size(); i++) order[i] = i;
  for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[running.random.Below(i)]);
  for (unsigned block : order) {
    blockIdx = dim3(block, 0, 0);
    if (!RunBlock(n_threads)) break;
  }
  grid = nullptr;
  return control.problem.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t WithMemory(const std::function<void()> &work) {
  Open open;
  work();
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaMalloc(void **out, size_t n_bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), n_used = (n_bytes + 63) / 64 * 64;
  const size_t n_mapped = (n_used + page - 1) / page * page;
  if (n_bytes == 0 || n_mapped < n_bytes || n_bytes > control.limit - std::min(control.limit, control.n_allocated))
    return cudaErrorMemoryAllocation;
  void *base = mmap(nullptr, n_mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return cudaErrorMemoryAllocation;
  if (n_mapped < kUntouched) memset(base, 0xa5, n_mapped);
  mprotect(static_cast<char *>(base), n_mapped + page, PROT_NONE);
  char *begin = static_cast<char *>(base) + n_mapped - n_used;
  memory[begin] = {static_cast<char *>(base), n_mapped, n_bytes};
  control.n_allocated += n_bytes;
  *out = begin;
  return cudaSuccess;
}

cudaError_t cudaFree(void *at) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (at == nullptr) return cudaSuccess;
  auto found = memory.find(static_cast<char *>(at));
  if (found == memory.end()) return cudaErrorInvalidValue;
  munmap(found->second.base, found->second.n_mapped + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  control.n_allocated -= found->second.n_bytes;
  memory.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t n_bytes, cudaStream_t) {
  Open open;
  if (!IsDevice(dst, n_bytes)) return cudaErrorInvalidValue;
  memset(dst, value, n_bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t) {
  Open open;
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  if (to_device ? !IsDevice(dst, n_bytes) : TouchesDevice(dst, n_bytes)) return cudaErrorInvalidValue;
  if (from_device ? !IsDevice(src, n_bytes) : TouchesDevice(src, n_bytes)) return cudaErrorInvalidValue;
  memcpy(dst, src, n_bytes);
  return cudaSuccess;
}

// ---- what is done when it is called ---------------------------------------------------------------------------------

struct CUstream_st {
  int flags;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};

cudaError_t cudaGetDeviceCount(int *n) {
  *n = control.n_devices;
  return *n == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) { return *value = control.capability, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure: return control.problem.c_str();
    default: return "an error";
  }
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  return *out = new CUstream_st{static_cast<int>(flags)}, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *out) { return *out = new CUevent_st{}, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return event->at = std::chrono::steady_clock::now(), cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
