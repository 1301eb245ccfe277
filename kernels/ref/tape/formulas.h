/* formulas.h - exp, log, the logistic function, erfc, sine and cosine of reals: our own, so that they have the same
 * bits wherever they are compiled. Included by a file that has defined CKPT_REAL_BITS as 32 or 64; everything is
 * static.
 *
 * Only +, -, *, /, comparisons, integer operations on bits, and fma where it is written. No table, no branch in what
 * runs over elements, so that compilers make vectors of it. Coefficients are those of the series themselves (Taylor,
 * and Chebyshev of erfc(x) exp(x^2) / t in t = 2 / (2 + x), computed with 50 digits). */
#ifndef CKPT_KERNELS_REF_TAPE_FORMULAS_H
#define CKPT_KERNELS_REF_TAPE_FORMULAS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/ref/tape/qualifier.h"

#if CKPT_REAL_BITS == 64
/* What formulas compute with, and integers of its size. */
typedef double real;
typedef int64_t real_bits; /* as above */
#define REAL_MANTISSA 52
#define REAL_BIAS 1023
#define REAL_ROUNDER 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to an integer */
#define REAL_EXP_LOW -746.0             /* exp is 0 below, infinite above */
#define REAL_EXP_HIGH 710.0
#define REAL_N_EXP 13
#define REAL_N_LOG 11
#define REAL_N_ERFC 28
#define REAL_FMA(a, b, c) CKPT_FMA_F64(a, b, c)
#define REAL_SQRT(x) CKPT_SQRT_F64(x)
#define REAL_LN2_HIGH 0x1.62e42fefa0000p-1 /* times an exponent it is exact */
#define REAL_LN2_LOW 0x1.cf79abc9e3b3ap-40
#else
/* As above, of f32. */
typedef float real;
typedef int32_t real_bits; /* as above */
#define REAL_MANTISSA 23
#define REAL_BIAS 127
#define REAL_ROUNDER 12582912.0F
#define REAL_EXP_LOW -105.0F
#define REAL_EXP_HIGH 89.0F
#define REAL_N_EXP 7
#define REAL_N_LOG 5
#define REAL_N_ERFC 13
#define REAL_FMA(a, b, c) CKPT_FMA_F32(a, b, c)
#define REAL_SQRT(x) CKPT_SQRT_F32(x)
#define REAL_LN2_HIGH 0x1.62e0000000000p-1F
#define REAL_LN2_LOW 0x1.0bfbe8p-15F
#endif

#define REAL_INFINITY ((real)__builtin_inf())

/* The real of these bits. */
static inline CKPT_DEVICE real real_of_bits(real_bits bits) {
  real x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The bits of a real. */
static inline CKPT_DEVICE real_bits bits_of_real(real x) {
  real_bits bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The power of 2 that has this exponent, bias included. */
static inline CKPT_DEVICE real real_of_exponent(real_bits biased) {
  return real_of_bits((real_bits)((uint64_t)biased << REAL_MANTISSA));
}

/* 2^n for n in the range of normal numbers. */
static inline CKPT_DEVICE real real_power_of_2(real_bits n) { return real_of_exponent(n + REAL_BIAS); }

/* x, or 0 where it is subnormal. */
static inline CKPT_DEVICE real real_unless_subnormal(real x) {
  const real least_normal = real_power_of_2(1 - REAL_BIAS);
  return ((x > -least_normal) & (x < least_normal)) ? 0 : x;
}

/* e^x within 2 units of the last place; subnormal results, 0, infinity and NaN as they should be. A result of 0 is
 * chosen, not multiplied: processors take 200 cycles for a product that underflows, and half of a causal block is
 * e^-infinity. It is chosen by a mask, and 2^n is two factors whose exponents come from one sum: vectors of it take
 * fewer instructions so. */
static inline CKPT_DEVICE real real_exp(real x) {
  static const real coefficients[] = {(real)(1.0 / 6227020800.0),
                                      (real)(1.0 / 479001600.0),
                                      (real)(1.0 / 39916800.0),
                                      (real)(1.0 / 3628800.0),
                                      (real)(1.0 / 362880.0),
                                      (real)(1.0 / 40320.0),
                                      (real)(1.0 / 5040.0),
                                      (real)(1.0 / 720.0),
                                      (real)(1.0 / 120.0),
                                      (real)(1.0 / 24.0),
                                      (real)(1.0 / 6.0),
                                      (real)0.5,
                                      (real)1.0,
                                      (real)1.0};
  const real_bits unless_zero = -(real_bits) !(x < REAL_EXP_LOW);
  x = real_of_bits(bits_of_real(x) & unless_zero);
  x = x > REAL_EXP_HIGH ? REAL_EXP_HIGH : x;
  real shifted = REAL_FMA(x, (real)1.4426950408889634074, REAL_ROUNDER);
  real_bits biased = bits_of_real(shifted) - bits_of_real(REAL_ROUNDER) + 2 * REAL_BIAS, half = biased >> 1;
  real whole = shifted - REAL_ROUNDER;
  real rest = REAL_FMA(-whole, REAL_LN2_LOW, REAL_FMA(-whole, REAL_LN2_HIGH, x));
  real sum = coefficients[13 - REAL_N_EXP];
  CKPT_UNROLL_16
  for (int i = 14 - REAL_N_EXP; i < 14; i++) sum = REAL_FMA(sum, rest, coefficients[i]);
  const real value = sum * real_of_exponent(half) * real_of_exponent(biased - half);
  return real_of_bits(bits_of_real(value) & unless_zero);
}

/* Natural logarithm of a positive number; -infinity of 0, NaN below. Not for loops over elements. */
static inline CKPT_DEVICE real real_log(real x) {
  if (!(x > 0)) return x == 0 ? -REAL_INFINITY : x - x + (real)__builtin_nan("");
  if (x == REAL_INFINITY) return x;
  real_bits exponent = 0;
  if (x < real_power_of_2(1 - REAL_BIAS)) {
    x *= real_power_of_2(REAL_MANTISSA + 1);
    exponent = -(REAL_MANTISSA + 1);
  }
  real_bits bits = bits_of_real(x);
  exponent += (bits >> REAL_MANTISSA) - REAL_BIAS;
  real m = real_of_bits((bits & (((real_bits)1 << REAL_MANTISSA) - 1)) | bits_of_real((real)1));
  if (m > (real)1.4142135623730950488) {
    m *= (real)0.5;
    exponent += 1;
  }
  real f = m - 1, s = f / (2 + f), z = s * s, sum = 0;
  for (int i = REAL_N_LOG; i >= 1; i--) sum = (sum + (real)1 / (real)(2 * i + 1)) * z;
  real e = (real)exponent; /* log m = f - s (f - 2 sum) */
  return e * REAL_LN2_HIGH + (f - (s * (f - 2 * sum) - e * REAL_LN2_LOW));
}

/* 1 / (1 + e^-x) */
static inline CKPT_DEVICE real real_logistic(real x) { return 1 / (1 + real_exp(-x)); }

/* 1 - erf x */
static inline CKPT_DEVICE real real_erfc(real x) {
  static const real coefficients[REAL_N_ERFC] = {
    (real)1.1540674772329393772,
    (real)0.35543692127049848731,
    (real)0.06509515882878652455,
    (real)0.0036711423958366391659,
    (real)-0.0011128447433526324969,
    (real)-0.00016075829915378079758,
    (real)0.000032780315741731370605,
    (real)5.4424416455050160333e-6,
    (real)-1.5154665553171481622e-6,
    (real)-1.4297608181169864917e-7,
    (real)8.234608827419493433e-8,
    (real)-1.2962846852306562536e-9,
    (real)-4.1547216310151983042e-9,
#if CKPT_REAL_BITS == 64
    6.3470582783628111814e-10,
    1.4320822712256223707e-10,
    -6.1603901052045855418e-11,
    2.0612138554721696306e-12,
    3.571493148847704445e-12,
    -8.5864228432517964757e-13,
    -6.145600213790630554e-14,
    7.4187257485966170573e-14,
    -1.2895042755032325615e-14,
    -2.3587263857106323568e-15,
    1.5729349381685911397e-15,
    -2.2782966239546465174e-16,
    -6.3123304507564298101e-17,
    3.5916763531814922992e-17,
    -5.0498091498477292793e-18,
#endif
  };
  real magnitude = x < 0 ? -x : x;
  magnitude = magnitude > 30 ? 30 : magnitude; /* where it is 0 for long */
  real t = 2 / (2 + magnitude), u = 2 * t - 1, twice = 2 * u, b = 0, before = 0;
  for (int i = REAL_N_ERFC - 1; i > 0; i--) {
    real next = twice * b - before + coefficients[i];
    before = b;
    b = next;
  }
  real value = t * (u * b - before + (real)0.5 * coefficients[0]) * real_exp(-magnitude * magnitude);
  value = x < 0 ? 2 - value : value;
  return x != x ? x : value;
}

/* Sine and cosine, computed in double. Arguments up to 10^6 lose nothing. */
static inline CKPT_DEVICE void real_sine_cosine(double x, double *sine, double *cosine) {
  double shifted = x * 0.63661977236758134308 + 6755399441055744.0, n = shifted - 6755399441055744.0;
  int64_t bits, rounder_bits;
  double rounder = 6755399441055744.0;
  memcpy(&bits, &shifted, sizeof bits);
  memcpy(&rounder_bits, &rounder, sizeof bits);
  int64_t quarter = (bits - rounder_bits) & 3;
  /* pi / 2 in three parts, of 33 bits the first two */
  double r = ((x - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69, z = r * r;
  double sum_s = 1, sum_c = 1;
  for (int i = 9; i >= 1; i--) sum_s = 1 - sum_s * z / (double)((2 * i) * (2 * i + 1));
  for (int i = 9; i >= 1; i--) sum_c = 1 - sum_c * z / (double)((2 * i - 1) * (2 * i));
  double sine_r = r * sum_s, cosine_r = sum_c;
  double first = (quarter & 1) != 0 ? cosine_r : sine_r, second = (quarter & 1) != 0 ? sine_r : cosine_r;
  *sine = (quarter & 2) != 0 ? -first : first;
  *cosine = quarter == 1 || quarter == 2 ? -second : second;
}

/* ---- sums in a fixed order: sixteen lanes, element i in lane i % 16, then a tree
 * --------------------------------------- */

/* Partial sums of a row. */
enum { N_LANES = 16 };

#ifndef __cplusplus /* CUDA has a thread for each lane */
/* A row of n added to its partial sums. Arrays, of which compilers make vectors of whatever width a level has. */
static inline void add_to_lanes(real *restrict sums, const real *restrict x, size_t n) {
  size_t i = 0;
  for (; i + N_LANES <= n; i += N_LANES)
    for (size_t j = 0; j < N_LANES; j++) sums[j] += x[i + j];
  for (size_t j = 0; i < n; i++, j++) sums[j] += x[i];
}

/* The tree, in place. */
static inline real total_of_lanes(real *sums) {
  for (int half = N_LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  return sums[0];
}

#endif

#endif
