/* scalar.c - the level every processor has; also the tails of the vector levels. Any number of elements.
 *
 * Elements are copied in and out, so that buffers may have any alignment. */
#include <string.h>

#include "kernels/cpu/cast/cast.h"
#include "kernels/ref/cast/float_format.h"

#define F32_SIGN 0x80000000u
#define F32_INFINITY 0x7f800000u
#define F32_QUIET 0x00400000u

#define LOAD(type, data, i) (*(type *)memcpy(&(type){0}, (const char *)(data) + (i) * sizeof(type), sizeof(type)))
#define STORE(type, data, i, value) memcpy((char *)(data) + (i) * sizeof(type), &(type){value}, sizeof(type))

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Takes note of a magnitude; zero wraps around and is never lost. */
static void see(ckpt_convert_seen *seen, uint64_t magnitude, uint64_t lost) {
  if (magnitude > seen->largest) seen->largest = magnitude;
  seen->n_underflow += magnitude - 1 < lost;
}

static ckpt_convert_seen widen_bf16(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i++) STORE(uint32_t, dst, i, (uint32_t)LOAD(uint16_t, src, i) << 16);
  return (ckpt_convert_seen){0};
}

static ckpt_convert_seen widen_f16(void *dst, const void *src, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t half = LOAD(uint16_t, src, i), magnitude = half & 0x7fff, bits;
    if (magnitude < 0x0400) /* subnormal: counts units of 2^-24 */
      bits = bits_of((float)magnitude * 0x1p-24f);
    else if (magnitude < 0x7c00)
      bits = (magnitude << 13) + (112u << 23);
    else
      bits = magnitude << 13 | F32_INFINITY | (magnitude > 0x7c00 ? F32_QUIET : 0);
    STORE(uint32_t, dst, i, bits | (half & 0x8000) << 16);
  }
  return (ckpt_convert_seen){0};
}

static ckpt_convert_seen narrow_bf16(void *dst, const void *src, size_t n) {
  ckpt_convert_seen seen = {0};
  for (size_t i = 0; i < n; i++) {
    uint32_t bits = LOAD(uint32_t, src, i), magnitude = bits & ~F32_SIGN;
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    STORE(uint16_t, dst, i, (uint16_t)(magnitude > F32_INFINITY ? 0x7fc0 : rounded));
    see(&seen, magnitude, CKPT_LOST_BF16);
  }
  return seen;
}

static ckpt_convert_seen narrow_f16(void *dst, const void *src, size_t n) {
  ckpt_convert_seen seen = {0};
  for (size_t i = 0; i < n; i++) {
    uint32_t bits = LOAD(uint32_t, src, i), magnitude = bits & ~F32_SIGN, half;
    if (magnitude > F32_INFINITY)
      half = 0x7e00 | (magnitude >> 13 & 0x3ff);
    else if (magnitude > CKPT_LIMIT_F16)
      half = 0x7c00;
    else if (magnitude < 0x38800000) /* below 2^-14: adding 1/2 rounds at 2^-24 */
      half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
    else
      half = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
    STORE(uint16_t, dst, i, (uint16_t)(half | (bits >> 16 & 0x8000)));
    see(&seen, magnitude, CKPT_LOST_F16);
  }
  return seen;
}

static ckpt_convert_seen narrow8(uint8_t *dst, const void *src, size_t n, const ckpt_narrow8 *f) {
  ckpt_convert_seen seen = {0};
  for (size_t i = 0; i < n; i++) {
    uint32_t bits = LOAD(uint32_t, src, i), magnitude = bits & ~F32_SIGN, code;
    if (magnitude > F32_INFINITY)
      code = 0x7f;
    else if (magnitude > f->limit)
      code = f->overflow;
    else if (magnitude < f->min_normal)
      code = bits_of(float_of(magnitude) + float_of(f->magic)) - f->magic;
    else
      code = ((magnitude + ((1u << (f->shift - 1)) - 1) + (magnitude >> f->shift & 1)) >> f->shift) - f->rebias;
    dst[i] = (uint8_t)(code | (bits >> 24 & 0x80));
    see(&seen, magnitude, f->lost);
  }
  return seen;
}

static ckpt_convert_seen narrow_e4m3(void *dst, const void *src, size_t n) {
  return narrow8(dst, src, n, &ckpt_narrow_e4m3);
}
static ckpt_convert_seen narrow_e5m2(void *dst, const void *src, size_t n) {
  return narrow8(dst, src, n, &ckpt_narrow_e5m2);
}

/* What a processor does to a NaN differs between them, so these two stay with integers. */
static ckpt_convert_seen widen_f64(void *dst, const void *src, size_t n) {
  ckpt_cast_stats ignored = {0};
  ckpt_convert_seen seen = {0};
  for (size_t i = 0; i < n; i++) {
    uint64_t bits = ckpt_float_decode(CKPT_F64, LOAD(uint64_t, src, i));
    STORE(uint32_t, dst, i, (uint32_t)ckpt_float_encode(CKPT_F32, bits, &ignored));
    see(&seen, bits & ~((uint64_t)1 << 63), CKPT_LOST_F64_TO_F32);
  }
  return seen;
}

static ckpt_convert_seen narrow_f64(void *dst, const void *src, size_t n) {
  ckpt_cast_stats ignored = {0};
  for (size_t i = 0; i < n; i++) {
    uint64_t bits = ckpt_float_decode(CKPT_F32, LOAD(uint32_t, src, i));
    STORE(uint64_t, dst, i, ckpt_float_encode(CKPT_F64, bits, &ignored));
  }
  return (ckpt_convert_seen){0};
}

const ckpt_convert_level ckpt_convert_scalar = {
    .name = "scalar",
    .widen = {[CKPT_F64] = widen_f64, [CKPT_F16] = widen_f16, [CKPT_BF16] = widen_bf16},
    .narrow = {[CKPT_F64] = narrow_f64,
               [CKPT_F16] = narrow_f16,
               [CKPT_BF16] = narrow_bf16,
               [CKPT_F8_E4M3] = narrow_e4m3,
               [CKPT_F8_E5M2] = narrow_e5m2},
};
