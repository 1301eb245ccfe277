/* quant_inputs.h - the values that quantizers are tried on, the same on every machine: integers decide all of them, no
 * function of libm does. C and C++; included by the golden test and by the comparison with ggml. */
#ifndef CKPT_TESTS_QUANT_INPUTS_H
#define CKPT_TESTS_QUANT_INPUTS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { QUANT_ROW = 1024, QUANT_ROWS = 3, QUANT_VALUES = QUANT_ROW * QUANT_ROWS };

static const char *const quant_inputs[] = {"gaussian", "uniform",  "heavy",    "bf16",      "f16",    "zeros",
                                           "equal",    "positive", "outlier",  "alternate", "sparse", "denormal",
                                           "below_2k", "ties",     "overflow", "tiny",      "scales", "ternary"};
static const char *const quant_importances[] = {"none", "random", "zeros", "one_hot", "range"};

enum {
  QUANT_N_INPUTS = sizeof quant_inputs / sizeof *quant_inputs,
  QUANT_N_IMPORTANCES = sizeof quant_importances / sizeof *quant_importances
};

/* splitmix64 */
static inline uint64_t quant_bits(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* In [0, 1), 24 bits. */
static inline float quant_unit(uint64_t *state) { return (float)(quant_bits(state) >> 40) * 0x1p-24f; }

/* The sum of twelve: mean 0, variance 1. */
static inline float quant_gauss(uint64_t *state) {
  float sum = -6;
  for (int i = 0; i < 12; i++) sum += quant_unit(state);
  return sum;
}

static inline float quant_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Not inlined: gcc 12 then forgets the mask where kinds are merged. */
static __attribute__((noinline)) float quant_keep_bits(float x, uint32_t mask) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return quant_from_bits(bits & mask);
}

static inline float quant_value(int kind, int i, uint64_t *state) {
  float g = quant_gauss(state) * 0.02f, u = quant_unit(state);
  uint32_t r = (uint32_t)(quant_bits(state) >> 32);
  float sign = r & 1 ? -1.0f : 1.0f;
  switch (kind) {
    case 0: return g;
    case 1: return u - 0.5f;
    case 2: return g * u * u * quant_unit(state) * 40;
    case 3: return quant_keep_bits(r % 500 == 0 ? 12 * g : g, 0xffff0000u);
    case 4: return quant_keep_bits(r % 500 == 0 ? 12 * g : g, 0xffffe000u);
    case 5: return r % 7 == 0 ? -0.0f : 0.0f;
    case 6: return i / 256 % 2 ? -0.375f : 0.15625f;
    case 7: return u * 3 + 0.25f;
    case 8: return r % 256 == 3 ? sign * 300 : g * 0.001f;
    case 9: return (i % 2 ? -1.0f : 1.0f) * (i / 32 % 3 == 0 ? 0.5f : u);
    case 10: return r % 16 == 0 ? g : 0;
    case 11: return sign * quant_from_bits(r >> 9 >> i / 64 % 20);
    case 12:
      return sign * quant_from_bits(((r >> 8) % 40 + 100) << 23) -
             sign * quant_from_bits(((r >> 8) % 40 + 76) << 23) * (float)(r >> 20 & 127);
    case 13: return (float)((int)(r >> 8) % 33 - 16) * 0.5f;
    case 14: return sign * (65000 + u * 4000) * (i / 256 % 2 ? 16 : 1);
    case 15: return g * (i / 256 % 4 == 0 ? 1e-14f : i / 256 % 4 == 1 ? 1e-7f : i / 256 % 4 == 2 ? 1e-30f : 1e-38f);
    case 16: return g * quant_from_bits((uint32_t)(97 + i / 16 % 60) << 23);
    default: return (float)((int)(r >> 8) % 3 - 1) * (i / 256 % 2 ? 0.0123f : 1);
  }
}

/* The values of a kind: QUANT_ROWS rows. */
static inline void quant_fill(int kind, float *x) {
  uint64_t state = 1000 + (uint64_t)kind;
  for (int i = 0; i < QUANT_VALUES; i++) x[i] = quant_value(kind, i, &state);
}

/* Weights of one row; false for "none". */
static inline bool quant_importance(int kind, float *w) {
  uint64_t state = 2000 + (uint64_t)kind;
  for (int i = 0; i < QUANT_ROW; i++) {
    float u = quant_unit(&state);
    uint32_t r = (uint32_t)(quant_bits(&state) >> 32);
    w[i] = kind == 1   ? u * u * 4 + 0.01f
           : kind == 2 ? (r & 1 ? 0.0f : u)
           : kind == 3 ? (i % 40 == 7 ? 1.0f : 0.0f)
                       : u * quant_from_bits((80 + r % 90) << 23);
  }
  return kind != 0;
}

#endif
