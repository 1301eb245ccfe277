/* ref_f64.c - the kernels of the tape as they are defined, in f64. */
#define CKPT_REAL_BITS 64
#include "kernels/ref/tape/attention.h"
#include "kernels/ref/tape/gemm.h"
#include "kernels/ref/tape/optimizer.h"
#include "kernels/ref/tape/rows.h"

const ckpt_tape_kernels ckpt_tape_kernels_ref_f64 = {.name = "ref",
                                                     .real_bytes = sizeof(real),
                                                     .run =
                                                         {
#define CKPT_TAPE_KERNEL(id) [CKPT_KERNEL_##id] = id,
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
                                                         },
                                                     .gemm = multiply};

double ckpt_tape_exp(double x) { return real_exp(x); }
double ckpt_tape_log(double x) { return real_log(x); }
double ckpt_tape_erfc(double x) { return real_erfc(x); }
void ckpt_tape_sine_cosine(double x, double *sine, double *cosine) { real_sine_cosine(x, sine, cosine); }
