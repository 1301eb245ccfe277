/* bits.h - private to kernels: numbers of 16 and 32 bits as blocks hold them, for C and CUDA. */
#ifndef CKPT_KERNELS_REF_QUANT_BITS_H
#define CKPT_KERNELS_REF_QUANT_BITS_H

#include <stdint.h>
#include <string.h>

#include "kernels/ref/tape/qualifier.h"

/* The bits of x, and back. */
static inline CKPT_DEVICE uint32_t ckpt_float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* As above. */
static inline CKPT_DEVICE float ckpt_float_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* x, negated where flips is 1: the bit alone, which -x leaves open for a NaN. */
static inline CKPT_DEVICE float ckpt_flip(float x, uint32_t flips) {
  return ckpt_float_from_bits(ckpt_float_bits(x) ^ flips << 31);
}

/* The value of binary16 bits, exactly. */
static inline CKPT_DEVICE float ckpt_f16_value(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fff;
  float x = magnitude >= 0x7c00  ? ckpt_float_from_bits(0x7f800000 | (magnitude & 0x3ff) << 13)
            : magnitude < 0x0400 ? (float)magnitude * 0x1p-24f
                                 : ckpt_float_from_bits((magnitude << 13) + (UINT32_C(112) << 23));
  return bits & 0x8000 ? -x : x;
}

/* The number, or the binary16, in the bytes at any address. */
static inline CKPT_DEVICE uint32_t ckpt_get_u16(const uint8_t *at) { return at[0] | (uint32_t)at[1] << 8; }
/* As above. */
static inline CKPT_DEVICE uint32_t ckpt_get_u32(const uint8_t *at) {
  return ckpt_get_u16(at) | ckpt_get_u16(at + 2) << 16;
}
/* As above. */
static inline CKPT_DEVICE float ckpt_get_f16(const uint8_t *at) { return ckpt_f16_value(ckpt_get_u16(at)); }

#endif
