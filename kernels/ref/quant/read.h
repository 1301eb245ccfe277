/* read.h - private to kernels: the value of one element of a block, for every block type, in C and CUDA.
 *
 * `block` is the block's bytes, `i` the element, `levels` those of the type's grid (grid.h) or NULL. The headers of
 * the types have the layouts. Values are ggml's, bit for bit: what is multiplied first is part of the format. */
#ifndef CKPT_KERNELS_REF_QUANT_READ_H
#define CKPT_KERNELS_REF_QUANT_READ_H

#include "kernels/ref/quant/bits.h"

/* Levels of the points of a grid. */
typedef const uint8_t (*ckpt_levels)[8];

/* Defines the reader of a type. */
#define CKPT_READER(name) \
  static inline CKPT_DEVICE float ckpt_read_##name(const uint8_t *block, int i, ckpt_levels levels)

/* ---- one scale, or a scale and a minimum ------------------------------------------------------------------------- */

/* Four bits: element j low, j + half high. */
static inline CKPT_DEVICE int ckpt_nibble(const uint8_t *codes, int i, int half) {
  return i < half ? codes[i] & 15 : codes[i - half] >> 4;
}

/* Q4_0 */
CKPT_READER(q4_0) { return (void)levels, (float)(ckpt_nibble(block + 2, i, 16) - 8) * ckpt_get_f16(block); }
/* Q4_1 */
CKPT_READER(q4_1) {
  return (void)levels, (float)ckpt_nibble(block + 4, i, 16) * ckpt_get_f16(block) + ckpt_get_f16(block + 2);
}
/* Q5_0 */
CKPT_READER(q5_0) {
  int code = ckpt_nibble(block + 6, i, 16) | (int)(ckpt_get_u32(block + 2) >> i & 1) << 4;
  return (void)levels, (float)(code - 16) * ckpt_get_f16(block);
}
/* Q5_1 */
CKPT_READER(q5_1) {
  int code = ckpt_nibble(block + 8, i, 16) | (int)(ckpt_get_u32(block + 4) >> i & 1) << 4;
  return (void)levels, (float)code * ckpt_get_f16(block) + ckpt_get_f16(block + 2);
}
/* Q8_0 */
CKPT_READER(q8_0) { return (void)levels, (float)(int8_t)block[2 + i] * ckpt_get_f16(block); }
/* Q8_1 */
CKPT_READER(q8_1) { return (void)levels, (float)(int8_t)block[4 + i] * ckpt_get_f16(block); }
/* Q1_0 */
CKPT_READER(q1_0) { return (void)levels, ckpt_flip(ckpt_get_f16(block), ~(uint32_t)block[2 + i / 8] >> i % 8 & 1); }
/* Q2_0 */
CKPT_READER(q2_0) { return (void)levels, (float)((block[2 + i / 4] >> 2 * (i % 4) & 3) - 1) * ckpt_get_f16(block); }
/* TQ1_0 */
CKPT_READER(tq1_0) {
  const int at = i < 160 ? i : i < 240 ? i - 160 : i - 240, n = i < 160 ? 32 : i < 240 ? 16 : 4;
  const int byte = (i < 160 ? 0 : i < 240 ? 32 : 48) + at % n;
  int power = 1;
  for (int k = at / n; k > 0; k--) power *= 3;
  return (void)levels, (float)(((uint8_t)(block[byte] * power) * 3 >> 8) - 1) * ckpt_get_f16(block + 52);
}
/* TQ2_0 */
CKPT_READER(tq2_0) {
  return (void)levels, (float)((block[32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3) - 1) * ckpt_get_f16(block + 64);
}

/* ---- superblocks ------------------------------------------------------------------------------------------------- */

/* Q2_K */
CKPT_READER(q2_k) {
  const int code = block[16 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3, field = block[i / 16];
  const float scale = ckpt_get_f16(block + 80) * (float)(field & 15);
  return (void)levels, scale * (float)code - ckpt_get_f16(block + 82) * (float)(field >> 4);
}

/* Scale and minimum of sub-block j, and a code under them: Q4_K and Q5_K. */
static inline CKPT_DEVICE float ckpt_read_six_bits(const uint8_t *block, int j, int code) {
  const uint8_t *fields = block + 4;
  const int scale = j < 4 ? fields[j] & 63 : (fields[j + 4] & 15) | (fields[j - 4] >> 6) << 4;
  const int min = j < 4 ? fields[j + 4] & 63 : fields[j + 4] >> 4 | (fields[j] >> 6) << 4;
  return ckpt_get_f16(block) * (float)scale * (float)code - ckpt_get_f16(block + 2) * (float)min;
}

/* Q4_K */
CKPT_READER(q4_k) {
  const int code = block[16 + 32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
  return (void)levels, ckpt_read_six_bits(block, i / 32, code);
}
/* Q5_K */
CKPT_READER(q5_k) {
  const int code = block[48 + 32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15, high = block[16 + i % 32] >> i / 32 & 1;
  return (void)levels, ckpt_read_six_bits(block, i / 32, code | high << 4);
}
/* Q3_K */
CKPT_READER(q3_k) {
  const int low = block[32 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3, high = block[i % 32] >> i / 32 & 1;
  const int j = i / 16, bits = (block[96 + j % 8] >> 4 * (j / 8) & 15) | (block[104 + j % 4] >> 2 * (j / 4) & 3) << 4;
  return (void)levels, ckpt_get_f16(block + 108) * (float)(bits - 32) * (float)(low + 4 * high - 4);
}
/* Q6_K */
CKPT_READER(q6_k) {
  const int k = i / 128, low = block[64 * k + i % 64] >> 4 * (i / 64 % 2) & 15;
  const int high = block[128 + 32 * k + i % 32] >> 2 * (i / 32 % 4) & 3;
  return (void)levels, ckpt_get_f16(block + 208) * (float)(int8_t)block[192 + i / 16] * (float)((low | high << 4) - 32);
}
/* Q8_K */
CKPT_READER(q8_k) { return (void)levels, ckpt_float_from_bits(ckpt_get_u32(block)) * (float)(int8_t)block[4 + i]; }

/* ---- four bits for uneven values --------------------------------------------------------------------------------- */

/* What a code of IQ4 stands for. */
static inline CKPT_DEVICE float ckpt_iq4_value(int code) {
  static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return (float)values[code];
}

/* IQ4_NL */
CKPT_READER(iq4_nl) { return (void)levels, ckpt_get_f16(block) * ckpt_iq4_value(ckpt_nibble(block + 2, i, 16)); }
/* IQ4_XS */
CKPT_READER(iq4_xs) {
  const int ib = i / 32;
  const int scale = (block[4 + ib / 2] >> 4 * (ib % 2) & 15) | (int)(ckpt_get_u16(block + 2) >> 2 * ib & 3) << 4;
  return (void)levels,
         ckpt_get_f16(block) * (float)(scale - 32) * ckpt_iq4_value(ckpt_nibble(block + 8 + 16 * ib, i % 32, 16));
}

/* What a code of e2m1 stands for, doubled. */
static inline CKPT_DEVICE float ckpt_fp4_value(int code) {
  static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return (float)values[code];
}

/* MXFP4 */
CKPT_READER(mxfp4) {
  const uint32_t e = block[0], bits = e < 2 ? UINT32_C(0x200000) << e : (e - 1) << 23;
  return (void)levels, ckpt_fp4_value(ckpt_nibble(block + 1, i, 16)) * ckpt_float_from_bits(bits);
}
/* NVFP4 */
CKPT_READER(nvfp4) {
  const int s = i / 16, exponent = block[s] >> 3 & 15, mantissa = block[s] & 7;
  const float power = ckpt_float_from_bits((uint32_t)(exponent - 11 + 127) << 23);
  const float scale = block[s] == 0x7f ? 0 : exponent == 0 ? (float)mantissa * 0x1p-10f : (float)(8 + mantissa) * power;
  return (void)levels, ckpt_fp4_value(ckpt_nibble(block + 4 + 8 * s, i % 16, 8)) * scale;
}

/* ---- points of grids --------------------------------------------------------------------------------------------- */

/* Bit i % 8 of eight signs, of which seven are stored and make their number even. */
static inline CKPT_DEVICE uint32_t ckpt_sign_of_seven(uint32_t signs, int i) {
  uint32_t odd = signs ^ signs >> 4;
  odd ^= odd >> 2;
  return (signs | ((odd ^ odd >> 1) & 1) << 7) >> i % 8 & 1;
}

/* A level of IQ2 under its scale: d * (code + 1/2) / 4. */
static inline CKPT_DEVICE float ckpt_read_iq2(const uint8_t *block, uint32_t code, int level, uint32_t flips) {
  const float scale = ckpt_get_f16(block) * (0.5f + (float)code) * 0.25f;
  return ckpt_flip(scale * (level == 0 ? 8.0f : level == 1 ? 25.0f : 43.0f), flips);
}

/* IQ2_XXS */
CKPT_READER(iq2_xxs) {
  const int k = i / 8;
  const uint32_t field = ckpt_get_u32(block + 6 + 8 * (k / 4)), signs = field >> 7 * (k % 4) & 127;
  return ckpt_read_iq2(block, field >> 28, levels[block[2 + 8 * (k / 4) + k % 4]][i % 8], ckpt_sign_of_seven(signs, i));
}
/* IQ2_XS */
CKPT_READER(iq2_xs) {
  const int k = i / 8;
  const uint32_t field = ckpt_get_u16(block + 2 + 2 * k), code = block[66 + k / 4] >> 4 * (k / 2 % 2) & 15;
  return ckpt_read_iq2(block, code, levels[field & 511][i % 8], ckpt_sign_of_seven(field >> 9, i));
}
/* IQ2_S */
CKPT_READER(iq2_s) {
  const int k = i / 8, point = block[2 + k] | (block[66 + k / 4] >> 2 * (k % 4) & 3) << 8;
  const uint32_t code = block[74 + k / 4] >> 4 * (k / 2 % 2) & 15;
  return ckpt_read_iq2(block, code, levels[point][i % 8], block[34 + k] >> i % 8 & 1u);
}
/* IQ3_XXS */
CKPT_READER(iq3_xxs) {
  const uint32_t field = ckpt_get_u32(block + 66 + 4 * (i / 32)), signs = field >> 7 * (i / 8 % 4) & 127;
  const float scale = ckpt_get_f16(block) * (0.5f + (float)(field >> 28)) * 0.5f;
  const int level = levels[block[2 + i / 4]][i % 4]; /* 4, 12, ... 52, 62 */
  return ckpt_flip(scale * (level == 7 ? 62.0f : (float)(8 * level + 4)), ckpt_sign_of_seven(signs, i));
}
/* IQ3_S */
CKPT_READER(iq3_s) {
  const int k = i / 4, point = block[2 + k] | (block[66 + k / 8] >> k % 8 & 1) << 8;
  const float scale = ckpt_get_f16(block) * (float)(1 + 2 * (block[106 + i / 64] >> 4 * (i / 32 % 2) & 15));
  return ckpt_flip(scale * (float)(2 * levels[point][i % 4] + 1), block[74 + i / 8] >> i % 8 & 1u);
}

/* A level of IQ1, shifted by an eighth up or down. */
static inline CKPT_DEVICE float ckpt_iq1_value(int level, uint32_t is_down) {
  return (float)(level - 1) + (is_down ? -0.125f : 0.125f);
}

/* IQ1_S */
CKPT_READER(iq1_s) {
  const uint32_t field = ckpt_get_u16(block + 34 + 2 * (i / 32));
  const uint32_t point = block[2 + i / 8] | (field >> 3 * (i / 8 % 4) & 7) << 8;
  return ckpt_get_f16(block) * (float)(2 * (field >> 12 & 7) + 1) * ckpt_iq1_value(levels[point][i % 8], field >> 15);
}
/* IQ1_M */
CKPT_READER(iq1_m) {
  uint32_t bits = 0;
  for (int k = 0; k < 4; k++) bits |= (ckpt_get_u16(block + 48 + 2 * k) >> 12) << 4 * k;
  const uint32_t high = block[32 + i / 16] >> 4 * (i / 8 % 2) & 15;
  const uint32_t scale = ckpt_get_u16(block + 48 + 2 * (i / 64)) >> 3 * (i / 16 % 4) & 7;
  const uint32_t point = block[i / 8] | (high & 7) << 8;
  return ckpt_f16_value(bits) * (float)(2 * scale + 1) * ckpt_iq1_value(levels[point][i % 8], high >> 3);
}

#endif
