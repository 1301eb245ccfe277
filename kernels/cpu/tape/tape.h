/* tape.h - the levels of kernels/cpu/tape: each file compiles the same sources for other instructions. */
#ifndef CKPT_KERNELS_CPU_TAPE_TAPE_H
#define CKPT_KERNELS_CPU_TAPE_TAPE_H

#include "kernels/ref/tape/tape_kernels.h"

/* Levels, slowest first. */
extern const ckpt_tape_kernels ckpt_tape_kernels_plain, ckpt_tape_kernels_avx2, ckpt_tape_kernels_avx512;

/* One product on the calling thread, by oneDNN. */
ckpt_status ckpt_gemm_f32(const ckpt_gemm *gemm, ckpt_error *err);

#endif
