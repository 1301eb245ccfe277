/* tape.h - the levels of kernels/cpu/tape: each file compiles the same sources for other instructions. */
#ifndef CKPT_KERNELS_CPU_TAPE_TAPE_H
#define CKPT_KERNELS_CPU_TAPE_TAPE_H

#include "kernels/ref/tape/tape_kernels.h"

/* Levels, slowest first. */
extern const ckpt_tape_kernels ckpt_tape_kernels_plain, ckpt_tape_kernels_avx2, ckpt_tape_kernels_avx512,
    ckpt_tape_kernels_avx512_bf16;

/* One product of f32 on the calling thread, by oneDNN: is_bf16 and b_dtype are the caller's (panels.h). ENOMEM,
 * EINTERNAL, EUNSUPPORTED (there is no oneDNN). */
ckpt_status ckpt_gemm_f32(const ckpt_gemm *gemm, ckpt_error *err);

/* The same of two matrices of bf16; EUNSUPPORTED where oneDNN has none. */
ckpt_status ckpt_gemm_bf16(const ckpt_gemm *gemm, ckpt_error *err);

/* Whether this processor's products of bf16 are faster than its products of f32 (gemm.c). */
bool ckpt_gemm_has_fast_bf16(void);

/* At least n_bytes of memory of the calling thread, 64-byte aligned, until its next call of this; freed when it ends.
 * NULL: there is none. */
void *ckpt_gemm_scratch(size_t n_bytes);

#endif
