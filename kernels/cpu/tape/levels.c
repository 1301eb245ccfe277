/* levels.c - which levels this processor has. */
#include "kernels/cpu/tape/tape.h"

enum { MAX_LEVELS = 4 };

/* Those that multiply f32; returns how many. */
static size_t find_levels(const ckpt_tape_kernels *levels[MAX_LEVELS]) {
  size_t n = 0;
  levels[n++] = &ckpt_tape_kernels_plain;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) levels[n++] = &ckpt_tape_kernels_avx2;
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    levels[n++] = &ckpt_tape_kernels_avx512;
#endif
  return n;
}

const ckpt_tape_kernels *ckpt_tape_kernels_cpu(size_t i) {
  const ckpt_tape_kernels *levels[MAX_LEVELS];
  size_t n = find_levels(levels);
#if defined(__x86_64__)
  if (levels[n - 1] == &ckpt_tape_kernels_avx512 && __builtin_cpu_supports("avx512bf16") && ckpt_gemm_has_fast_bf16())
    levels[n++] = &ckpt_tape_kernels_avx512_bf16;
#endif
  return i < n ? levels[i] : NULL;
}

const ckpt_tape_kernels *ckpt_tape_kernels_cpu_f32(void) {
  const ckpt_tape_kernels *levels[MAX_LEVELS];
  return levels[find_levels(levels) - 1];
}
