/* k.h - private to kernels: Q2_K, Q4_K, Q5_K: superblocks of 256 whose sub-blocks have a scale and a minimum.
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
#ifndef CKPT_KERNELS_REF_QUANT_K_H
#define CKPT_KERNELS_REF_QUANT_K_H

#include "kernels/ref/quant/quant.h"

/* Sub-blocks of a superblock, at most. */
enum { CKPT_K_MAX_SUB = 16 };

/* What tells the types apart. */
typedef struct ckpt_k_layout {
  int bits, n_sub, max_scale; /* of a code; sub-blocks; greatest quantized scale and minimum */
  ckpt_quant_steps steps;     /* of the search without importance */
  bool clips; /* scales found with importance are cut at max_scale, as Q5_K does; those of Q4_K wrap in their byte */
} ckpt_k_layout;

/* The three. */
static const ckpt_k_layout ckpt_q2_k = {2, 16, 15, {-0.5f, 0.1f, 15, true}, false},
                           ckpt_q4_k = {4, 8, 63, {-1.0f, 0.1f, 20, false}, false},
                           ckpt_q5_k = {5, 8, 63, {-0.5f, 0.1f, 15, false}, true};
/* Those of the search with importance. */
static const ckpt_quant_steps ckpt_k_weighted_steps = {-0.9f, 0.05f, 36, false};

/* What the search of a superblock finds. */
typedef struct ckpt_k_found {
  uint8_t codes[CKPT_SUPER]; /* needed only where a scale rounds to zero */
  float scales[CKPT_K_MAX_SUB], mins[CKPT_K_MAX_SUB];
  float weights[CKPT_K_MAX_SUB]; /* sums over each sub-block */
} ckpt_k_found;

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* The greatest of n, at least 0. */
static inline float ckpt_k_greatest(const float *x, int n) {
  float max = 0;
  for (int i = 0; i < n; i++)
    if (x[i] > max) max = x[i];
  return max;
}

/* Scales, or minima, as multiples of the value that it returns. */
static inline float ckpt_k_scale_plain(const ckpt_k_layout *t, const float *x, uint8_t *codes) {
  float max = ckpt_k_greatest(x, t->n_sub), inverse = max > 0 ? (float)t->max_scale / max : 0;
  for (int j = 0; j < t->n_sub; j++) {
    codes[j] = (uint8_t)ckpt_nearest(inverse * x[j]);
    if (t->bits != 2 && codes[j] > t->max_scale) codes[j] = (uint8_t)t->max_scale;
  }
  return max > 0 ? max / (float)t->max_scale : 0;
}

/* As above, where sub-blocks count by their weights. */
static inline float ckpt_k_scale_weighted(const ckpt_k_layout *t, const float *x, const float *weights,
                                          uint8_t *codes) {
  float scale = ckpt_quant_positive(t->n_sub, t->max_scale, x, weights, codes);
  for (int j = 0; j < t->n_sub && t->clips; j++)
    if (codes[j] > t->max_scale) codes[j] = (uint8_t)t->max_scale;
  return scale;
}

/* The fields of scales and minima. */
static inline void ckpt_k_pack_scales(const ckpt_k_layout *t, uint8_t *fields, const uint8_t *scales,
                                      const uint8_t *mins) {
  for (int j = 0; j < t->n_sub && t->bits == 2; j++) fields[j] = (uint8_t)(scales[j] | mins[j] << 4);
  for (int j = 0; j < 4 && t->bits != 2; j++) {
    fields[j] = (uint8_t)(scales[j] | (scales[j + 4] >> 4) << 6);
    fields[j + 4] = (uint8_t)(mins[j] | (mins[j + 4] >> 4) << 6);
    fields[j + 8] = (uint8_t)((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
  }
}

/* As above. */
static inline void ckpt_k_unpack_scales(const ckpt_k_layout *t, const uint8_t *fields, uint8_t *scales, uint8_t *mins) {
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
static inline uint8_t *ckpt_k_header_of(const ckpt_k_layout *t, uint8_t *block) {
  return t->bits == 2 ? block + 80 : block;
}
/* As above. */
static inline uint8_t *ckpt_k_fields_of(const ckpt_k_layout *t, uint8_t *block) {
  return t->bits == 2 ? block : block + 4;
}
/* Size of a block. */
static inline size_t ckpt_k_block_bytes(const ckpt_k_layout *t) { return t->bits == 2 ? 84 : t->bits == 4 ? 144 : 176; }

/* The codes of a block. */
static inline void ckpt_k_pack_codes(const ckpt_k_layout *t, uint8_t *block, const uint8_t *codes) {
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

/* As above. */
static inline void ckpt_k_unpack_codes(const ckpt_k_layout *t, const uint8_t *block, uint8_t *codes) {
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
static inline void ckpt_k_recode(const ckpt_k_layout *t, const uint8_t *fields, float d, float dmin, const float *x,
                                 uint8_t *codes) {
  uint8_t scales[CKPT_K_MAX_SUB], mins[CKPT_K_MAX_SUB];
  int n = CKPT_SUPER / t->n_sub;
  ckpt_k_unpack_scales(t, fields, scales, mins);
  for (int j = 0; j < t->n_sub; j++) {
    float scale = d * (float)scales[j], min = dmin * (float)mins[j];
    if (scale == 0) continue;
    for (int i = n * j; i < n * (j + 1); i++)
      codes[i] = (uint8_t)ckpt_clamp(ckpt_nearest((x[i] + min) / scale), 0, (1 << t->bits) - 1);
  }
}

/* Writes the scales of what was found, and gives them as they will be read. */
static inline void ckpt_k_put_scales(const ckpt_k_layout *t, uint8_t *dst, const ckpt_k_found *s, bool is_weighted,
                                     float *d, float *dmin) {
  uint8_t scales[CKPT_K_MAX_SUB], mins[CKPT_K_MAX_SUB];
  *d = is_weighted ? ckpt_k_scale_weighted(t, s->scales, s->weights, scales) : ckpt_k_scale_plain(t, s->scales, scales);
  *dmin = is_weighted ? ckpt_k_scale_weighted(t, s->mins, s->weights, mins) : ckpt_k_scale_plain(t, s->mins, mins);
  *d = ckpt_put_f16(ckpt_k_header_of(t, dst), *d);
  *dmin = ckpt_put_f16(ckpt_k_header_of(t, dst) + 2, *dmin);
  ckpt_k_pack_scales(t, ckpt_k_fields_of(t, dst), scales, mins);
}

/* Searches sub-block j of the superblock at x (k.c). importance, of the superblock, or NULL. sigma2: the mean of
 * its squares, times two but for Q2_K; used with importance. */
void ckpt_k_search(const ckpt_k_layout *t, int j, const float *x, const float *importance, float sigma2,
                   ckpt_k_found *s);

#endif
