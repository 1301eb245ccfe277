/* quant_k.c - Q2_K, Q4_K, Q5_K: superblocks of 256 whose sub-blocks have a scale and a minimum.
 *
 *   Q2_K  16 bytes: scale in the low, minimum in the high four bits | 64 bytes of codes | f16 d | f16 dmin
 *   Q4_K  f16 d | f16 dmin | 12 bytes: 8 scales and 8 minima of six bits | 128 bytes of codes
 *   Q5_K  f16 d | f16 dmin | 12 bytes, the same | 32 bytes of fifth bits | 128 bytes of low four bits
 *
 * x is (d * scale) * code - (dmin * minimum). Q2_K has 16 sub-blocks of 16, the others 8 of 32.
 * Six-bit fields: byte j < 4 is scale j, byte 4 + j minimum j, with two upper bits of scale (minimum) 4 + j; byte 8 + j
 * has the lower four bits of scale 4 + j (low) and of minimum 4 + j (high).
 * Codes: byte 32 k + l of Q2_K has elements 128 k + l + 0, 32, 64, 96 from the low bits on; byte 32 k + l of the others
 * elements 64 k + l (low) and 64 k + 32 + l (high); bit s of fifth-bits byte l belongs to element 32 s + l. */
#include "quant.h"

enum { MAX_SUB = 16 };

typedef struct layout {
  int bits, n_sub, max_scale; /* of a code; sub-blocks; greatest quantized scale and minimum */
  ckpt_quant_steps steps;     /* of the search without importance */
  bool clips; /* scales found with importance are cut at max_scale, as Q5_K does; those of Q4_K wrap in their byte */
} layout;

static const layout q2_k = {2, 16, 15, {-0.5f, 0.1f, 15, true}, false},
                    q4_k = {4, 8, 63, {-1.0f, 0.1f, 20, false}, false},
                    q5_k = {5, 8, 63, {-0.5f, 0.1f, 15, false}, true};
static const ckpt_quant_steps weighted_steps = {-0.9f, 0.05f, 36, false};

/* What the search of a superblock finds. */
typedef struct superblock {
  uint8_t codes[CKPT_SUPER];
  float scales[MAX_SUB], mins[MAX_SUB];
  float weights[MAX_SUB]; /* sums over each sub-block */
} superblock;

/* ---- search ------------------------------------------------------------------------------------------------------ */

static void search_plain(const layout *t, superblock *s, const float *x) {
  int n = CKPT_SUPER / t->n_sub;
  float weights[32];
  for (int j = 0; j < t->n_sub; j++, x += n) {
    float mean = t->bits == 2 ? 0 : sqrtf(ckpt_sum_squares(x, (size_t)n) / (float)n);
    for (int i = 0; i < n; i++) weights[i] = mean + fabsf(x[i]);
    s->scales[j] = ckpt_quant_affine(n, (1 << t->bits) - 1, x, weights, &t->steps, s->codes + j * n, &s->mins[j]);
  }
}

static void search_weighted(const layout *t, superblock *s, const float *x, const float *importance) {
  size_t n = CKPT_SUPER / (size_t)t->n_sub;
  float weights[32], sum = ckpt_sum_squares(x, CKPT_SUPER);
  float sigma2 = (t->bits == 2 ? sum : 2 * sum) / CKPT_SUPER;
  for (int j = 0; j < t->n_sub; j++, x += n, importance += n) {
    ckpt_quant_weigh(weights, x, importance, sigma2, n);
    s->weights[j] = ckpt_sum(weights, n);
    s->scales[j] = ckpt_quant_affine((int)n, (1 << t->bits) - 1, x, weights, &weighted_steps, s->codes + (size_t)j * n,
                                     &s->mins[j]);
  }
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

static float greatest(const float *x, int n) {
  float max = 0;
  for (int i = 0; i < n; i++)
    if (x[i] > max) max = x[i];
  return max;
}

/* Scales, or minima, as multiples of the value that it returns. */
static float scale_plain(const layout *t, const float *x, uint8_t *codes) {
  float max = greatest(x, t->n_sub), inverse = max > 0 ? (float)t->max_scale / max : 0;
  for (int j = 0; j < t->n_sub; j++) {
    codes[j] = (uint8_t)ckpt_nearest(inverse * x[j]);
    if (t->bits != 2 && codes[j] > t->max_scale) codes[j] = (uint8_t)t->max_scale;
  }
  return max > 0 ? max / (float)t->max_scale : 0;
}

static float scale_weighted(const layout *t, const float *x, const float *weights, uint8_t *codes) {
  float scale = ckpt_quant_positive(t->n_sub, t->max_scale, x, weights, codes);
  for (int j = 0; j < t->n_sub && t->clips; j++)
    if (codes[j] > t->max_scale) codes[j] = (uint8_t)t->max_scale;
  return scale;
}

static void pack_scales(const layout *t, uint8_t *fields, const uint8_t *scales, const uint8_t *mins) {
  for (int j = 0; j < t->n_sub && t->bits == 2; j++) fields[j] = (uint8_t)(scales[j] | mins[j] << 4);
  for (int j = 0; j < 4 && t->bits != 2; j++) {
    fields[j] = (uint8_t)(scales[j] | (scales[j + 4] >> 4) << 6);
    fields[j + 4] = (uint8_t)(mins[j] | (mins[j + 4] >> 4) << 6);
    fields[j + 8] = (uint8_t)((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
  }
}

static void unpack_scales(const layout *t, const uint8_t *fields, uint8_t *scales, uint8_t *mins) {
  for (int j = 0; j < t->n_sub && t->bits == 2; j++) {
    scales[j] = fields[j] & 15;
    mins[j] = fields[j] >> 4;
  }
  for (int j = 0; j < 4 && t->bits != 2; j++) {
    scales[j] = fields[j] & 63;
    mins[j] = fields[j + 4] & 63;
    scales[j + 4] = (uint8_t)((fields[j + 8] & 15) | (fields[j] >> 6) << 4);
    mins[j + 4] = (uint8_t)(fields[j + 8] >> 4 | (fields[j + 4] >> 6) << 4);
  }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Where the parts of a block are. */
static uint8_t *header_of(const layout *t, uint8_t *block) { return t->bits == 2 ? block + 80 : block; }
static uint8_t *fields_of(const layout *t, uint8_t *block) { return t->bits == 2 ? block : block + 4; }
static size_t block_bytes(const layout *t) { return t->bits == 2 ? 84 : t->bits == 4 ? 144 : 176; }

static void pack_codes(const layout *t, uint8_t *block, const uint8_t *codes) {
  uint8_t *high = block + 16, *low = block + (t->bits == 5 ? 48 : 16);
  for (int k = 0; k < 2 && t->bits == 2; k++)
    for (int l = 0; l < 32; l++) {
      const uint8_t *c = codes + 128 * k + l;
      low[32 * k + l] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
  for (int k = 0; k < 4 && t->bits != 2; k++)
    for (int l = 0; l < 32; l++) {
      const uint8_t *c = codes + 64 * k + l;
      low[32 * k + l] = (uint8_t)((c[0] & 15) | (c[32] & 15) << 4);
    }
  for (int l = 0; l < 32 && t->bits == 5; l++) {
    high[l] = 0;
    for (int s = 0; s < 8; s++) high[l] |= (uint8_t)((codes[32 * s + l] >> 4) << s);
  }
}

static void unpack_codes(const layout *t, const uint8_t *block, uint8_t *codes) {
  const uint8_t *high = block + 16, *low = block + (t->bits == 5 ? 48 : 16);
  for (int i = 0; i < CKPT_SUPER; i++) {
    int l = i % 32, s = i / 32;
    if (t->bits == 2)
      codes[i] = low[32 * (s / 4) + l] >> 2 * (s % 4) & 3;
    else
      codes[i] = low[32 * (s / 2) + l] >> 4 * (s % 2) & 15;
    if (t->bits == 5) codes[i] = (uint8_t)(codes[i] | (high[l] >> s & 1) << 4);
  }
}

/* The codes under the scales as they will be read. Where a scale is zero, those of the search stay. */
static void recode(const layout *t, const uint8_t *fields, float d, float dmin, const float *x, uint8_t *codes) {
  uint8_t scales[MAX_SUB], mins[MAX_SUB];
  int n = CKPT_SUPER / t->n_sub;
  unpack_scales(t, fields, scales, mins);
  for (int j = 0; j < t->n_sub; j++) {
    float scale = d * (float)scales[j], min = dmin * (float)mins[j];
    if (scale == 0) continue;
    for (int i = n * j; i < n * (j + 1); i++)
      codes[i] = (uint8_t)ckpt_clamp(ckpt_nearest((x[i] + min) / scale), 0, (1 << t->bits) - 1);
  }
}

static void quantize(const layout *t, uint8_t *dst, const float *x, size_t n, const float *importance) {
  superblock s;
  uint8_t scales[MAX_SUB], mins[MAX_SUB];
  for (size_t i = 0; i < n; i += CKPT_SUPER, dst += block_bytes(t)) {
    float d, dmin;
    if (importance) {
      search_weighted(t, &s, x + i, importance + i);
      d = scale_weighted(t, s.scales, s.weights, scales);
      dmin = scale_weighted(t, s.mins, s.weights, mins);
    } else {
      search_plain(t, &s, x + i);
      d = scale_plain(t, s.scales, scales);
      dmin = scale_plain(t, s.mins, mins);
    }
    d = ckpt_put_f16(header_of(t, dst), d);
    dmin = ckpt_put_f16(header_of(t, dst) + 2, dmin);
    pack_scales(t, fields_of(t, dst), scales, mins);
    recode(t, fields_of(t, dst), d, dmin, x + i, s.codes);
    pack_codes(t, dst, s.codes);
  }
}

static void dequantize(const layout *t, float *y, const uint8_t *src, size_t n) {
  uint8_t codes[CKPT_SUPER], scales[MAX_SUB], mins[MAX_SUB];
  int n_each = CKPT_SUPER / t->n_sub;
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += block_bytes(t)) {
    const uint8_t *header = t->bits == 2 ? src + 80 : src;
    float d = ckpt_get_f16(header), dmin = ckpt_get_f16(header + 2);
    unpack_scales(t, t->bits == 2 ? src : src + 4, scales, mins);
    unpack_codes(t, src, codes);
    for (int i = 0; i < CKPT_SUPER; i++)
      y[i] = d * (float)scales[i / n_each] * (float)codes[i] - dmin * (float)mins[i / n_each];
  }
}

#define TYPE(name)                                                                                        \
  static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) {          \
    quantize(&name, dst, x, n, importance);                                                               \
  }                                                                                                       \
  static void dequantize_##name(float *y, const uint8_t *src, size_t n) { dequantize(&name, y, src, n); } \
  const ckpt_quant ckpt_quant_##name = {.quantize = quantize_##name, .dequantize = dequantize_##name};

TYPE(q2_k)
TYPE(q4_k)
TYPE(q5_k)
