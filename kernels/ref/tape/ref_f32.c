/* ref_f32.c - the kernels of the tape as they are defined, in f32. */
#define CKPT_REAL_BITS 32
#include "kernels/ref/tape/attention.h"
#include "kernels/ref/tape/gemm.h"
#include "kernels/ref/tape/optimizer.h"
#include "kernels/ref/tape/rows.h"

const ckpt_tape_kernels ckpt_tape_kernels_ref_f32 = {.name = "ref",
                                                     .real_bytes = sizeof(real),
                                                     .run =
                                                         {
#define CKPT_TAPE_KERNEL(id) [CKPT_KERNEL_##id] = id,
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
                                                         },
                                                     .gemm = multiply};

float ckpt_tape_exp_f32(float x) { return real_exp(x); }
float ckpt_tape_log_f32(float x) { return real_log(x); }
float ckpt_tape_erfc_f32(float x) { return real_erfc(x); }
