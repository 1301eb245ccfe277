/* fp4.c - MXFP4 and NVFP4 of the reference; fp4.h has the layout. */
#include "kernels/ref/quant/fp4.h"

enum { MX_BLOCK = 32, NV_BLOCK = 64, NV_SUB = 16, NV_N_SUB = 4 };

/* The first of the nearest values. */
static uint8_t code_of(float x, float scale) {
  int best = 0;
  float best_error = fabsf((float)ckpt_fp4_values[0] * scale - x);
  for (int i = 1; i < 16; i++) {
    float error = fabsf((float)ckpt_fp4_values[i] * scale - x);
    if (error < best_error) {
      best = i;
      best_error = error;
    }
  }
  return (uint8_t)best;
}

static void quantize_codes(uint8_t *dst, const float *x, int n, float scale) {
  for (int j = 0; j < n / 2; j++) dst[j] = (uint8_t)(code_of(x[j], scale) | code_of(x[j + n / 2], scale) << 4);
}

/* ---- MXFP4 ------------------------------------------------------------------------------------------------------- */

/* floor(log2(x)) for x > 0, the logarithm rounded to binary32 first: just below 2^k it rounds up to k. With d units of
 * 2^-24 between x / 2^k and 1 it is k - d 2^-24 / ln 2, and rounds to k where that is less than half the spacing of
 * binary32 there away, 2^(j - 25): for d up to limits[j]. */
static int floor_log2(float x) {
  static const uint32_t limits[9] = {0, 0, 1, 2, 5, 11, 22, 44, 88};
  uint32_t bits = ckpt_float_bits(x), mantissa = (bits & 0x7fffff) | 0x800000;
  int k = (int)(bits >> 23) - 126, j = 1; /* 2^(k - 1) <= x < 2^k */
  if (bits < 0x800000) {
    mantissa = bits;
    for (k = -125; mantissa < 0x800000; k--) mantissa <<= 1;
  }
  int magnitude = k < 0 ? -k : k;
  while (magnitude >> j != 0) j++;             /* 2^(j - 1) <= |k| < 2^j */
  if (k > 0 && magnitude == 1 << (j - 1)) j--; /* below a power of two numbers are closer */
  return k != 0 && 0x1000000 - mantissa <= limits[j] ? k : k - 1;
}

static void quantize_mxfp4(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (; n > 0; n -= MX_BLOCK, x += MX_BLOCK, dst += 17) {
    float largest = fabsf(ckpt_extreme(x, MX_BLOCK));
    dst[0] =
        largest > 0 ? (uint8_t)(floor_log2(largest) - 2 + 127) : 0; /* wraps below 2^-125: to 255, then codes are 0 */
    quantize_codes(dst + 1, x, MX_BLOCK, ckpt_fp4_mx_scale(dst[0]));
  }
}

/* ---- NVFP4 ------------------------------------------------------------------------------------------------------- */

/* The code of a scale: half up in its last bit, at most 448; 0 for what is too small. */
static uint8_t nv_code(float x) {
  if (!(x > 0)) return 0;
  if (x > 448) x = 448;
  uint32_t bits = ckpt_float_bits(x);
  int exponent = (int)(bits >> 23) - 120, mantissa = (int)(bits >> 20 & 7) + (int)(bits >> 19 & 1);
  if (exponent <= 0) {
    int code = (int)(x * 512.0f + 0.5f);
    return (uint8_t)(code > 7 ? 7 : code);
  }
  if (mantissa > 7 && exponent < 15) {
    mantissa = 0;
    exponent++;
  }
  return exponent >= 15 ? 0x7e : (uint8_t)(exponent << 3 | mantissa);
}

/* Half of a scale's value. */
static float nv_scale(uint8_t code) {
  int exponent = code >> 3 & 15, mantissa = code & 7;
  if (code == 0x7f) return 0; /* NaN */
  return exponent == 0 ? (float)mantissa * 0x1p-10f : ldexpf((float)(8 + mantissa), exponent - 11);
}

static void quantize_nvfp4(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (; n > 0; n -= NV_BLOCK, x += NV_BLOCK, dst += 36)
    for (int s = 0; s < NV_N_SUB; s++) {
      dst[s] = nv_code(fabsf(ckpt_extreme(x + NV_SUB * s, NV_SUB)) / 6.0f);
      quantize_codes(dst + NV_N_SUB + NV_SUB / 2 * s, x + NV_SUB * s, NV_SUB, nv_scale(dst[s]));
    }
}

const ckpt_quant ckpt_quant_mxfp4 = {
    .quantize = quantize_mxfp4, .dequantize = ckpt_dequantize_mxfp4, .ignores_importance = true};
const ckpt_quant ckpt_quant_nvfp4 = {
    .quantize = quantize_nvfp4, .dequantize = ckpt_dequantize_nvfp4, .ignores_importance = true};
