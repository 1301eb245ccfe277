/* qualifier.h - what lets one source of a formula be C17 and CUDA C++.
 *
 * Headers of formulas mark their functions CKPT_DEVICE and round by these macros alone. A CUDA compiler then makes code
 * of both sides of them; any other sees plain functions. CKPT_UNROLL_16 is for a loop of at most 16 steps that
 * compilers must take apart before they make vectors of the loop around it. */
#ifndef CKPT_KERNELS_REF_TAPE_QUALIFIER_H
#define CKPT_KERNELS_REF_TAPE_QUALIFIER_H

#define CKPT_RESTRICT __restrict__

#if defined(__CUDACC__)
#include <math.h>
#define CKPT_DEVICE __host__ __device__
#define CKPT_FMA_F32(a, b, c) fmaf(a, b, c)
#define CKPT_FMA_F64(a, b, c) fma(a, b, c)
#define CKPT_SQRT_F32(x) sqrtf(x)
#define CKPT_SQRT_F64(x) sqrt(x)
#define CKPT_UNROLL_16 _Pragma("unroll")
#else
#define CKPT_DEVICE
#define CKPT_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define CKPT_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#define CKPT_SQRT_F32(x) __builtin_sqrtf(x)
#define CKPT_SQRT_F64(x) __builtin_sqrt(x)
#define CKPT_UNROLL_16 _Pragma("GCC unroll 16")
#endif

#endif
