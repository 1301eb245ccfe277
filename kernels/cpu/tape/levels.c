/* levels.c - which levels this processor has. */
#include "kernels/cpu/tape/tape.h"

const ckpt_tape_kernels *ckpt_tape_kernels_cpu(size_t i) {
  const ckpt_tape_kernels *levels[4] = {&ckpt_tape_kernels_plain};
  size_t n = 1;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) levels[n++] = &ckpt_tape_kernels_avx2;
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    levels[n++] = &ckpt_tape_kernels_avx512;
  if (levels[n - 1] == &ckpt_tape_kernels_avx512 && __builtin_cpu_supports("avx512bf16") && ckpt_gemm_has_fast_bf16())
    levels[n++] = &ckpt_tape_kernels_avx512_bf16;
#endif
  return i < n ? levels[i] : NULL;
}
