/* float_format.c - decode, encode, and where an element stands in its block. See float_format.h and docs/casts.md.
 *
 * Sources of the formats: IEEE 754-2019 (f64 f32 f16), OCP 8-bit Floating Point 1.0 (f8_e4m3 f8_e5m2), OCP
 * Microscaling Formats 1.0 (f8_e8m0 f6 f4), Graphcore/AMD/Qualcomm "8-bit Numerical Formats" (fnuz). Overflow and NaN
 * codes are those that PyTorch gives where it has the format. */
#include "kernels/ref/cast/float_format.h"

#include <string.h>

#include "libckpt/base/dtype.h"

#define F64_MANTISSA 52
#define F64_BIAS 1023
#define F64_INFINITY 0x7ff0000000000000u
#define F64_QUIET 0x0008000000000000u
#define F64_FRACTION 0x000fffffffffffffu
#define F64_SIGN 0x8000000000000000u

/* Exponent and mantissa are as in IEEE 754; what differs between formats is what the top codes mean. Codes here are
 * without sign. */
typedef struct float_format {
  uint32_t n_mantissa;
  int32_t bias;
  uint64_t largest;  /* the greatest finite code */
  uint64_t overflow; /* where infinity and everything past `largest` goes: infinity, NaN, or `largest` itself */
  uint64_t nan;      /* where NaN goes, or 0: there is none */
  enum {
    INFINITE = 1, /* `overflow` is an infinity */
    SIGNED = 2,   /* NaN keeps its sign */
    PAYLOAD = 4,  /* NaN keeps the top bits of its payload */
    QUIETS = 8,   /* decoding a NaN sets its quiet bit, as the conversion instructions do */
    FNUZ = 16     /* no -0: its code is the NaN */
  } traits;
} float_format;

static const float_format formats[CKPT_N_DTYPES] = {
    [CKPT_F64] = {52, 1023, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000,
                  INFINITE | SIGNED | PAYLOAD | QUIETS},
    [CKPT_F32] = {23, 127, 0x7f7fffff, 0x7f800000, 0x7f800000, INFINITE | SIGNED | PAYLOAD},
    [CKPT_F16] = {10, 15, 0x7bff, 0x7c00, 0x7e00, INFINITE | SIGNED | PAYLOAD | QUIETS},
    [CKPT_BF16] = {7, 127, 0x7f7f, 0x7f80, 0x7fc0, INFINITE},
    [CKPT_F8_E4M3] = {3, 7, 0x7e, 0x7e, 0x7f, SIGNED},
    [CKPT_F8_E5M2] = {2, 15, 0x7b, 0x7c, 0x7f, INFINITE | SIGNED | QUIETS},
    [CKPT_F8_E4M3FNUZ] = {3, 8, 0x7f, 0x80, 0x80, FNUZ},
    [CKPT_F8_E5M2FNUZ] = {2, 16, 0x7f, 0x80, 0x80, FNUZ},
    [CKPT_F6_E2M3] = {3, 1, 0x1f, 0x1f, 0, 0},
    [CKPT_F6_E3M2] = {2, 3, 0x1f, 0x1f, 0, 0},
    [CKPT_F4_E2M1] = {1, 1, 0x07, 0x07, 0, 0},
};

uint32_t ckpt_float_width(ckpt_dtype dtype) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  return row->block_bytes * 8 / row->block_elements;
}

/* A power of two, 2^(code - 127), and one NaN. PyTorch widens its NaN, and that of fnuz, to a signaling one. */
#define LONE_NAN (F64_INFINITY | (uint64_t)1 << (F64_MANTISSA - 23))
static uint64_t decode_e8m0(uint64_t code) { return code == 0xff ? LONE_NAN : (code + F64_BIAS - 127) << F64_MANTISSA; }

uint64_t ckpt_float_decode(ckpt_dtype dtype, uint64_t code) {
  if (dtype == CKPT_F8_E8M0) return decode_e8m0(code);
  const float_format *f = &formats[dtype];
  uint64_t sign_bit = (uint64_t)1 << (ckpt_float_width(dtype) - 1);
  uint64_t magnitude = code & (sign_bit - 1), sign = code & sign_bit ? F64_SIGN : 0;
  if (f->traits & FNUZ && code == f->nan) return LONE_NAN;
  if (magnitude > f->largest) {
    /* Infinity has no payload; a NaN's moves to the top of the mantissa. */
    uint64_t payload = magnitude << (F64_MANTISSA - f->n_mantissa) & F64_FRACTION;
    bool is_infinity = f->traits & INFINITE && magnitude == f->overflow;
    return sign | F64_INFINITY | payload | (f->traits & QUIETS && !is_infinity ? F64_QUIET : 0);
  }
  if (dtype == CKPT_F64 || magnitude == 0) return sign | magnitude;
  uint64_t exponent = magnitude >> f->n_mantissa, mantissa = magnitude & (((uint64_t)1 << f->n_mantissa) - 1);
  uint64_t rebias = (uint64_t)(F64_BIAS - f->bias), widen = F64_MANTISSA - f->n_mantissa;
  if (exponent > 0) return sign | (exponent + rebias) << F64_MANTISSA | mantissa << widen;
  /* A subnormal is a normal binary64: move its leading bit to the implicit place. */
  uint64_t shift = (uint64_t)__builtin_clzll(mantissa) - (63 - f->n_mantissa);
  return sign | (rebias + 1 - shift) << F64_MANTISSA | (mantissa << (shift + widen) & F64_FRACTION);
}

static void count_overflow(uint64_t magnitude, ckpt_cast_stats *stats) {
  double value;
  memcpy(&value, &magnitude, sizeof value);
  stats->n_overflow++;
  if (value > stats->largest) stats->largest = value;
}

/* As PyTorch: the sign is dropped, ties go up, and everything above 2^-127 and below 2^-126 becomes the latter. */
static uint64_t encode_e8m0(uint64_t bits, ckpt_cast_stats *stats) {
  uint64_t magnitude = bits & ~F64_SIGN, half = (uint64_t)1 << (F64_MANTISSA - 1);
  stats->has_nonzero = true; /* it has no zero */
  if (magnitude == F64_INFINITY) count_overflow(magnitude, stats);
  if (magnitude >= F64_INFINITY) return 0xff;
  uint64_t smallest = (uint64_t)(F64_BIAS - 127) << F64_MANTISSA, next = smallest + ((uint64_t)1 << F64_MANTISSA);
  uint64_t code = magnitude <= smallest ? 0 : magnitude < next ? 1 : ((magnitude + half - smallest) >> F64_MANTISSA);
  if (code >= 0xff) code = 0xff;
  if (code == 0xff || (bits & F64_SIGN && magnitude > 0)) count_overflow(magnitude, stats);
  return code;
}

static uint64_t encode_nan(const float_format *f, uint64_t magnitude, uint64_t sign, ckpt_cast_stats *stats) {
  stats->has_nonzero = true;
  if (f->nan == 0) {
    stats->n_nan_lost++;
    return f->largest;
  }
  uint64_t payload = f->traits & PAYLOAD ? (magnitude ^ F64_INFINITY) >> (F64_MANTISSA - f->n_mantissa) : 0;
  return f->nan | payload | (f->traits & SIGNED ? sign : 0);
}

uint64_t ckpt_float_encode(ckpt_dtype dtype, uint64_t bits, ckpt_cast_stats *stats) {
  if (dtype == CKPT_F8_E8M0) return encode_e8m0(bits, stats);
  const float_format *f = &formats[dtype];
  uint64_t magnitude = bits & ~F64_SIGN;
  uint64_t sign = bits & F64_SIGN ? (uint64_t)1 << (ckpt_float_width(dtype) - 1) : 0;
  if (magnitude > F64_INFINITY) return encode_nan(f, magnitude, sign, stats);
  stats->has_nonzero |= dtype == CKPT_F64 && magnitude != 0;
  if (dtype == CKPT_F64) return bits;

  uint64_t code = f->largest + 1;
  if (magnitude < F64_INFINITY) {
    int32_t exponent = (int32_t)(magnitude >> F64_MANTISSA) - F64_BIAS + f->bias; /* in the target's bias */
    uint64_t significand = (magnitude & F64_FRACTION) | (uint64_t)1 << F64_MANTISSA;
    uint32_t drop = F64_MANTISSA - f->n_mantissa; /* bits to round away: more where the target is subnormal */
    if (exponent < 1) drop += (uint32_t)(1 - exponent);
    if (drop > F64_MANTISSA + 2) drop = F64_MANTISSA + 2; /* below half of the smallest subnormal; zero too */
    uint64_t half = (uint64_t)1 << (drop - 1), odd = significand >> drop & 1;
    code = (significand + half - 1 + odd) >> drop;
    /* The implicit bit counts as one in the exponent field, and a carry runs into it as it must. */
    if (exponent > 1) code += (uint64_t)(exponent - 1) << f->n_mantissa;
  }
  if (code > f->largest) {
    /* An infinity is lost where it becomes a number, or NaN. */
    if (magnitude < F64_INFINITY || !(f->traits & INFINITE)) count_overflow(magnitude, stats);
    code = f->overflow;
  }
  stats->n_underflow += code == 0 && magnitude != 0;
  stats->has_nonzero |= code != 0;
  return f->traits & FNUZ && (code == 0 || code == f->nan) ? code : code | sign;
}

/* ---- elements in memory: blocks are little-endian integers, the first element in the lowest bits ---------------- */

typedef struct place {
  size_t offset; /* of the block, in bytes */
  uint32_t n_bytes, shift, width;
} place;

static place place_of(ckpt_dtype dtype, size_t i) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  uint32_t width = ckpt_float_width(dtype);
  return (place){i / row->block_elements * row->block_bytes, row->block_bytes,
                 (uint32_t)(i % row->block_elements) * width, width};
}

uint64_t ckpt_float_load(ckpt_dtype dtype, const void *data, size_t i) {
  place p = place_of(dtype, i);
  const uint8_t *bytes = (const uint8_t *)data + p.offset;
  uint64_t block = 0;
  for (uint32_t k = 0; k < p.n_bytes; k++) block |= (uint64_t)bytes[k] << 8 * k;
  return block >> p.shift & (~(uint64_t)0 >> (64 - p.width));
}

void ckpt_float_store(ckpt_dtype dtype, void *data, size_t i, uint64_t code) {
  place p = place_of(dtype, i);
  uint8_t *bytes = (uint8_t *)data + p.offset;
  for (uint32_t k = 0; k < p.n_bytes; k++)
    bytes[k] = (uint8_t)((p.shift == 0 ? 0 : bytes[k]) | (code << p.shift) >> 8 * k);
}
