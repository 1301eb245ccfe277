// emulator.h - what tests ask of the emulated device beside CUDA's own calls.
#ifndef CKPT_TESTS_CUDA_ON_CPU_EMULATOR_H
#define CKPT_TESTS_CUDA_ON_CPU_EMULATOR_H

#include <cuda_runtime.h>

#include <set>
#include <string>

namespace cuda_on_cpu {

struct Control {
  uint64_t seed = 1;               // of the order of blocks and threads
  int n_devices = 1;               // 0: there is none
  int capability = 9;              // major
  size_t limit = SIZE_MAX;         // bytes that cudaMalloc gives in all
  std::string skipped;             // "file:line" of a barrier that is passed over, as if it were missing
  std::set<std::string> barriers;  // those that were met
  std::string problem;             // what was wrong with the last launch that failed
  size_t n_allocated = 0;          // bytes
  size_t n_launches = 0;
};
extern Control control;

}  // namespace cuda_on_cpu

#endif
