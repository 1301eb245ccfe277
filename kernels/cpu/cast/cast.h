/* cast.h - private to kernels/cpu: the levels of the processor and their cast kernels.
 *
 * f32 holds every value of every format of 16 bits and less, so a cast is "widen to f32" then "narrow from f32", and
 * rounds once, in the second step. A level is one row of such kernels; files for one instruction set fill one row. */
#ifndef CKPT_KERNELS_CPU_CAST_CAST_H
#define CKPT_KERNELS_CPU_CAST_CAST_H

#include "libckpt/base/backend.h"

/* Kernels of vector levels take multiples of this many elements; the scalar level takes the rest. */
#define CKPT_CONVERT_STEP 32

/* What a kernel that rounds saw of its sources; exact ones say nothing. */
typedef struct ckpt_convert_seen {
  uint64_t largest;     /* bits of the greatest magnitude; infinity and NaN are greater than numbers */
  uint64_t n_underflow; /* magnitudes that became zero and were not */
} ckpt_convert_seen;

/* src and dst may have any alignment. At most 2^32 elements. */
typedef ckpt_convert_seen ckpt_convert_kernel(void *dst, const void *src, size_t n_elements);

/* An empty slot means that the level has no kernel of its own for the dtype. */
typedef struct ckpt_convert_level {
  const char *name;
  ckpt_convert_kernel *widen[CKPT_N_DTYPES];  /* from the dtype to f32; the slot of f64 rounds */
  ckpt_convert_kernel *narrow[CKPT_N_DTYPES]; /* from f32 to the dtype; the slot of f64 is exact */
} ckpt_convert_level;

extern const ckpt_convert_level ckpt_convert_scalar; /* every processor; any number of elements */
extern const ckpt_convert_level ckpt_convert_avx2;   /* x86-64 only */
extern const ckpt_convert_level ckpt_convert_avx512; /* x86-64 only */

/* The i-th level that this processor can run, the slowest first; NULL past the last. */
const ckpt_convert_level *ckpt_convert_level_at(size_t i);

/* ckpt_backend_cpu.cast on a given level, which the processor must be able to run. */
void ckpt_convert_cast(const ckpt_convert_level *level, ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype,
                       const void *src, size_t n_elements, ckpt_cast_stats *stats);

/* How f32 bits become an 8-bit format with infinity, NaN and sign where IEEE has them, for magnitudes a (no sign):
 *   a <  min_normal: the code is the mantissa of a + magic, which the addition has rounded at the right bit
 *   a <= limit:      round at `shift`, then move the exponent by `rebias`
 *   beyond:          `overflow`; NaN: 0x7f */
typedef struct ckpt_narrow8 {
  uint32_t shift;      /* mantissa bits to drop */
  uint32_t rebias;     /* (127 - bias) << mantissa bits of the target */
  uint32_t min_normal; /* f32 bits of the smallest normal */
  uint32_t magic;      /* f32 bits of the power of two whose unit in the last place is the smallest subnormal */
  uint32_t limit;      /* f32 bits of the greatest magnitude that rounds to a finite code */
  uint32_t lost;       /* f32 bits of the greatest magnitude that rounds to zero */
  uint32_t overflow;
} ckpt_narrow8;

/* The greatest f32 magnitudes that stay finite, and the greatest that become zero, as bits; for f64 to f32 those of the
 * f64. */
#define CKPT_LIMIT_BF16 0x7f7f7fffu
#define CKPT_LIMIT_F16 0x477fefffu
#define CKPT_LIMIT_E4M3 0x43e80000u
#define CKPT_LIMIT_E5M2 0x476fffffu
#define CKPT_LIMIT_F64_TO_F32 0x47efffffefffffffu
#define CKPT_LOST_BF16 0x00008000u
#define CKPT_LOST_F16 0x33000000u
#define CKPT_LOST_E4M3 0x3a800000u
#define CKPT_LOST_E5M2 0x37000000u
#define CKPT_LOST_F64_TO_F32 0x3690000000000000u

/* Overflows to 448. */
static const ckpt_narrow8 ckpt_narrow_e4m3 = {20,  120u << 3, 0x3c800000, 0x46800000, CKPT_LIMIT_E4M3, CKPT_LOST_E4M3,
                                              0x7e};
/* Overflows to infinity. */
static const ckpt_narrow8 ckpt_narrow_e5m2 = {21,  112u << 2, 0x38800000, 0x43000000, CKPT_LIMIT_E5M2, CKPT_LOST_E5M2,
                                              0x7c};

#endif
