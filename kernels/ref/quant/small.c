/* small.c - Q1_0, Q2_0, TQ1_0, TQ2_0: one scale, and codes of one or two bits or of three values.
 *
 *   Q1_0   f16 d | 16 bytes: bit j % 8 of byte j / 8 is set where element j is d, clear where it is -d; 128 elements
 *   Q2_0   f16 d | 16 bytes of two-bit codes, element j in bits 2 (j % 4) of byte j / 4: d * (code - 1); 64 elements
 *   TQ1_0  48 bytes of five trits | 4 bytes of four trits | f16 d; 256 elements
 *   TQ2_0  64 bytes of two-bit codes | f16 d; 256 elements
 *
 * Trits are -1, 0, 1 as 0, 1, 2. A byte of TQ1_0 is its trits as a number in base 3, the first one leading, times
 * 256 / 243, rounded up: times 3^k and cut to eight bits it begins with trit k, which times 3 is the carry. Bytes 0 to
 * 31 hold elements l + 32 k, bytes 32 to 47 elements 160 + l + 16 k, the last four 240 + l + 4 k.
 * Byte 32 h + l of TQ2_0 holds elements 128 h + l + 0, 32, 64, 96 from the low bits on. */
#include "kernels/ref/quant/quant.h"

enum { Q1_BLOCK = 128, Q2_BLOCK = 64, TQ1_BYTES = 54, TQ2_BYTES = 66 };

static void quantize_q1_0(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (; n > 0; n -= Q1_BLOCK, x += Q1_BLOCK, dst += 18) {
    float sum = 0;
    for (int j = 0; j < Q1_BLOCK; j++) sum += fabsf(x[j]);
    memset(dst, 0, 18);
    ckpt_put_f16(dst, sum / Q1_BLOCK);
    for (int j = 0; j < Q1_BLOCK; j++) dst[2 + j / 8] |= (uint8_t)((x[j] >= 0) << j % 8);
  }
}

static void quantize_q2_0(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (; n > 0; n -= Q2_BLOCK, x += Q2_BLOCK, dst += 18) {
    float d = fabsf(ckpt_extreme(x, Q2_BLOCK)), inverse = d > 0 ? 1.0f / d : 0;
    memset(dst, 0, 18);
    ckpt_put_f16(dst, d);
    for (int j = 0; j < Q2_BLOCK; j++)
      dst[2 + j / 4] |= (uint8_t)(ckpt_clamp(ckpt_truncate(roundf(x[j] * inverse)) + 1, 0, 3) << 2 * (j % 4));
  }
}

/* ---- trits ------------------------------------------------------------------------------------------------------- */

/* 0, 1 or 2; 1 where the inverse is infinite, whose product with x has no nearest integer. */
static int trit_of(float x, float inverse) {
  float nearest = roundf(x * inverse);
  return fabsf(nearest) < 2147483648.0f ? (int)nearest + 1 : 1;
}

/* Calls for each byte of TQ1_0: its first element, how far apart its elements are, and how many. */
typedef struct five {
  int first, stride, n;
} five;

static five trits_of(int byte) {
  if (byte < 32) return (five){byte, 32, 5};
  if (byte < 48) return (five){160 + byte - 32, 16, 5};
  return (five){240 + byte - 48, 4, 4};
}

static void quantize_tq1_0(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += TQ1_BYTES) {
    float d = fabsf(ckpt_extreme(x, CKPT_SUPER)), inverse = d != 0 ? 1.0f / d : 0;
    for (int byte = 0; byte < 52; byte++) {
      five t = trits_of(byte);
      uint8_t number = 0;
      for (int k = 0; k < 5; k++)
        number = (uint8_t)(number * 3 + (k < t.n ? trit_of(x[t.first + t.stride * k], inverse) : 0));
      dst[byte] = (uint8_t)((number * 256 + 242) / 243);
    }
    ckpt_put_f16(dst + 52, d);
  }
}

static void quantize_tq2_0(uint8_t *dst, const float *x, size_t n, const float *importance) {
  (void)importance;
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, dst += TQ2_BYTES) {
    float d = fabsf(ckpt_extreme(x, CKPT_SUPER)), inverse = d != 0 ? 1.0f / d : 0;
    memset(dst, 0, 64);
    for (int i = 0; i < CKPT_SUPER; i++)
      dst[32 * (i / 128) + i % 32] |= (uint8_t)((trit_of(x[i], inverse) & 3) << 2 * (i / 32 % 4));
    ckpt_put_f16(dst + 64, d);
  }
}

const ckpt_quant ckpt_quant_q1_0 = {
    .quantize = quantize_q1_0, .dequantize = ckpt_dequantize_q1_0, .ignores_importance = true};
const ckpt_quant ckpt_quant_q2_0 = {
    .quantize = quantize_q2_0, .dequantize = ckpt_dequantize_q2_0, .ignores_importance = true};
const ckpt_quant ckpt_quant_tq1_0 = {
    .quantize = quantize_tq1_0, .dequantize = ckpt_dequantize_tq1_0, .ignores_importance = true};
const ckpt_quant ckpt_quant_tq2_0 = {
    .quantize = quantize_tq2_0, .dequantize = ckpt_dequantize_tq2_0, .ignores_importance = true};
