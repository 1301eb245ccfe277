/* quant_iq1.c - IQ1_S and IQ1_M: superblocks of 256 whose groups of 8 are points of a grid of -1, 0, 1, shifted.
 *
 *   IQ1_S  f16 d | 32 bytes: lower eight bits of points | 8 u16: four times their upper three bits, a scale (3 bits), a
 * sign IQ1_M  32 bytes: lower eight bits of points | 16 bytes: two times three upper bits and a sign | 4 u16: four
 * scales of three bits and, on top, four bits of the f16 d
 *
 * x is d * (2 scale + 1) * (level - 1 + shift), the shift being 1/8, or -1/8 where the sign is set: for 32 elements in
 * S, for 8 in M. Scales are for 32 elements in S and for 16 in M. The levels are those of quant_grid.h. */
#include <float.h>

#include "quant_grid.h"

/* What levels 0, 1, 2 stand for: shifted up and down. */
static const float shifted[2][3] = {{-1 + 0.125f, 0.125f, 1 + 0.125f}, {-1 - 0.125f, -0.125f, 1 - 0.125f}};

/* How a sub-block of up to 32 is cut in three once it is sorted, and with which shifts: bit k for half k. */
typedef struct cut {
  int first, second; /* levels are 0 before the first, 1 before the second, then 2 */
  unsigned down;
  float scale;
} cut;

/* Places of the elements in ascending order; equal ones keep theirs. */
static void sort(int n, const float *x, int *order) {
  for (int i = 0; i < n; i++) {
    int at = i;
    for (; at > 0 && x[i] < x[order[at - 1]]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
}

/* The better one stays; whether that is the candidate. */
static bool improve(float xq, float qq, float *best, float *scale) {
  if (!(qq > 0 && xq * xq > *best * qq)) return false;
  *scale = xq / qq;
  *best = *scale * xq;
  return true;
}

/* All cuts of 32 elements under one shift for all. False where no cut has weight. */
static bool cut_s(const float *x, const float *weights, const int *order, cut *found) {
  enum { N = 32 };
  float sum_x[N + 1] = {0}, sum_w[N + 1] = {0}, best = -FLT_MAX;
  for (int j = 0; j < N; j++) {
    sum_x[j + 1] = sum_x[j] + weights[order[j]] * x[order[j]];
    sum_w[j + 1] = sum_w[j] + weights[order[j]];
  }
  found->first = -1;
  for (int i = 0; i <= N; i++)
    for (int j = i; j <= N; j++)
      for (unsigned down = 0; down < 2; down++) {
        const float *v = shifted[down];
        float xq = sum_x[i] * v[0] + (sum_x[j] - sum_x[i]) * v[1] + (sum_x[N] - sum_x[j]) * v[2];
        float qq = sum_w[i] * v[0] * v[0] + (sum_w[j] - sum_w[i]) * v[1] * v[1] + (sum_w[N] - sum_w[j]) * v[2] * v[2];
        if (improve(xq, qq, &best, &found->scale)) {
          found->first = i;
          found->second = j;
          found->down = down ? 3 : 0;
        }
      }
  return found->first >= 0;
}

/* All cuts of 16 elements, whose halves may be shifted differently. Levels of a shift are 1 apart, so that the sum over
 * three parts is that of the whole at the third level less two sums from the left. */
static bool cut_m(const float *x, const float *weights, const int *order, cut *found) {
  enum { N = 16 };
  float sum_x[2][N + 1] = {{0}}, sum_w[2][N + 1] = {{0}}, best = -FLT_MAX;
  for (int j = 0; j < N; j++)
    for (int half = 0; half < 2; half++) {
      bool is_in = order[j] / (N / 2) == half;
      sum_x[half][j + 1] = is_in ? sum_x[half][j] + weights[order[j]] * x[order[j]] : sum_x[half][j];
      sum_w[half][j + 1] = is_in ? sum_w[half][j] + weights[order[j]] : sum_w[half][j];
    }
  found->first = -1;
  for (int i = 0; i <= N; i++)
    for (int j = i; j <= N; j++) {
      float xq[2][2], qq[2][2]; /* by half and shift */
      for (int half = 0; half < 2; half++)
        for (int down = 0; down < 2; down++) {
          const float *v = shifted[down];
          xq[half][down] = sum_x[half][N] * v[2] - (sum_x[half][i] + sum_x[half][j]);
          qq[half][down] = sum_w[half][N] * v[2] * v[2] + sum_w[half][i] * (v[0] * v[0] - v[1] * v[1]) +
                           sum_w[half][j] * (v[1] * v[1] - v[2] * v[2]);
        }
      for (unsigned k = 0; k < 4; k++)
        if (improve(xq[0][k >> 1] + xq[1][k & 1], qq[0][k >> 1] + qq[1][k & 1], &best, &found->scale)) {
          found->first = i;
          found->second = j;
          found->down = k >> 1 | (k & 1) << 1;
        }
    }
  return found->first >= 0;
}

/* The point of 8 levels, or the best of its neighbours, whose levels then replace them; whether it was on the grid. */
static bool snap(const ckpt_grid *grid, const float *x, const float *weights, float scale, const float *v,
                 const uint8_t *levels, uint16_t *point) {
  uint32_t cell = ckpt_grid_cell(grid, levels), best = grid->first[cell];
  float best_error = FLT_MAX;
  if (grid->point[cell] >= 0) {
    *point = (uint16_t)grid->point[cell];
    return true;
  }
  for (uint32_t k = grid->first[cell]; k < grid->first[cell + 1]; k++) {
    const uint8_t *candidate = grid->levels[grid->neighbours[k]];
    float error = 0;
    for (int i = 0; i < 8; i++) {
      float difference = scale * v[candidate[i]] - x[i];
      error += weights[i] * difference * difference;
    }
    if (error < best_error) {
      best_error = error;
      best = k;
    }
  }
  *point = grid->neighbours[best];
  return false;
}

/* Points, shifts and scale of a sub-block of n elements (32 or 16); false where it counts as zero. */
static bool find(const ckpt_grid *grid, int n, const float *x, const float *weights, uint16_t *points, cut *found) {
  int order[32];
  uint8_t levels[32];
  bool is_on_grid = true;
  sort(n, x, order);
  if (!(n == 32 ? cut_s : cut_m)(x, weights, order, found)) return false;
  for (int j = 0; j < n; j++) levels[order[j]] = (uint8_t)((j >= found->first) + (j >= found->second));
  if (found->scale < 0) { /* turned about */
    for (int j = 0; j < n; j++) levels[j] = (uint8_t)(2 - levels[j]);
    found->scale = -found->scale;
    found->down ^= 3;
  }
  for (int k = 0; k < n / 8; k++)
    is_on_grid &= snap(grid, x + 8 * k, weights + 8 * k, found->scale, shifted[found->down >> (k & 1) & 1],
                       levels + 8 * k, &points[k]);
  if (is_on_grid) return true;
  float xq = 0, qq = 0;
  for (int i = 0; i < n; i++) {
    float q = shifted[found->down >> (i / 8 & 1) & 1][grid->levels[points[i / 8]][i % 8]];
    xq += weights[i] * q * x[i];
    qq += weights[i] * q * q;
  }
  if (xq > 0 && qq > 0) found->scale = xq / qq;
  return true;
}

static int scale_code(float scale, float d) { return ckpt_clamp(ckpt_nearest(0.5f * (1 / d * scale - 1)), 0, 7); }

static void weigh(float *weights, const float *x, const float *importance) {
  float sigma2 = 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER;
  if (importance) ckpt_quant_weigh(weights, x, importance, sigma2, CKPT_SUPER);
  for (int i = 0; i < CKPT_SUPER && !importance; i++) weights[i] = x[i] * x[i];
}

/* ---- IQ1_S ------------------------------------------------------------------------------------------------------- */

static void quantize_s(uint8_t *dst, const float *x, size_t n, const float *importance) {
  const ckpt_grid *grid = ckpt_grid_get(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, importance += CKPT_SUPER, dst += 50) {
    float weights[CKPT_SUPER], max_scale = 0, scales[8] = {0};
    uint32_t fields[8] = {0};
    unsigned down = 0;
    weigh(weights, x, importance);
    memset(dst, 0, 50);
    for (int ib = 0; ib < 8; ib++) {
      uint16_t points[4];
      cut found;
      if (fabsf(ckpt_extreme(x + 32 * ib, 32)) < 1e-12f ||
          !find(grid, 32, x + 32 * ib, weights + 32 * ib, points, &found))
        continue;
      for (int k = 0; k < 4; k++) {
        dst[2 + 4 * ib + k] = (uint8_t)points[k];
        fields[ib] |= (uint32_t)(points[k] >> 8) << 3 * k;
      }
      scales[ib] = found.scale;
      down |= (found.down & 1) << ib;
      if (found.scale > max_scale) max_scale = found.scale;
    }
    float d = max_scale / 15;
    if (max_scale != 0) ckpt_put_f16(dst, d * 1.125f);
    for (int ib = 0; ib < 8; ib++) {
      if (max_scale != 0) fields[ib] |= (uint32_t)scale_code(scales[ib], d) << 12 | (down >> ib & 1) << 15;
      ckpt_put_u16(dst + 34 + 2 * ib, fields[ib]);
    }
  }
}

static void dequantize_s(float *y, const uint8_t *src, size_t n) {
  const uint8_t(*levels)[CKPT_GRID_MAX_AXES] = ckpt_grid_levels(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 50)
    for (int i = 0; i < CKPT_SUPER; i++) {
      unsigned field = ckpt_le16(src + 34 + 2 * (i / 32)), point = src[2 + i / 8] | (field >> 3 * (i / 8 % 4) & 7) << 8;
      y[i] = ckpt_get_f16(src) * (float)(2 * (field >> 12 & 7) + 1) * shifted[field >> 15][levels[point][i % 8]];
    }
}

/* ---- IQ1_M ------------------------------------------------------------------------------------------------------- */

/* The scale of all that fits points, shifts and scales of sub-blocks best. */
static float fit_m(const ckpt_grid *grid, const float *x, const float *weights, const uint16_t *points,
                   const unsigned *down, const int *scales, float otherwise) {
  float xq = 0, qq = 0;
  for (int i = 0; i < CKPT_SUPER; i++) {
    float v = shifted[down[i / 16] >> (i / 8 & 1) & 1][grid->levels[points[i / 8]][i % 8]];
    float q = v * (float)(2 * scales[i / 16] + 1);
    xq += weights[i] * q * x[i];
    qq += weights[i] * q * q;
  }
  return qq > 0 ? xq / qq : otherwise;
}

static void quantize_m(uint8_t *dst, const float *x, size_t n, const float *importance) {
  const ckpt_grid *grid = ckpt_grid_get(CKPT_GRID_IQ1);
  for (size_t at = 0; at < n; at += CKPT_SUPER, x += CKPT_SUPER, dst += 56) {
    float weights[CKPT_SUPER], max_scale = 0, scales[16] = {0};
    uint16_t points[32] = {0};
    unsigned down[16] = {0};
    int codes[16];
    weigh(weights, x, importance ? importance + at : NULL);
    memset(dst, 0, 56);
    for (int ib = 0; ib < 16; ib++) {
      cut found;
      if (fabsf(ckpt_extreme(x + 16 * ib, 16)) < 1e-7f ||
          !find(grid, 16, x + 16 * ib, weights + 16 * ib, points + 2 * ib, &found))
        continue;
      scales[ib] = found.scale;
      down[ib] = found.down;
      if (found.scale > max_scale) max_scale = found.scale;
    }
    for (int k = 0; k < 32; k++) {
      dst[k] = (uint8_t)points[k];
      dst[32 + k / 2] |= (uint8_t)(points[k] >> 8 << 4 * (k % 2));
    }
    if (max_scale == 0) continue;
    float d = max_scale / 15;
    uint32_t fields[4] = {0};
    for (int ib = 0; ib < 16; ib++) {
      codes[ib] = scale_code(scales[ib], d);
      fields[ib / 4] |= (uint32_t)codes[ib] << 3 * (ib % 4);
      dst[32 + ib] |= (uint8_t)((down[ib] & 1) << 3 | (down[ib] >> 1) << 7);
    }
    uint32_t bits = ckpt_f16_bits(fit_m(grid, x, weights, points, down, codes, d) * 1.1125f);
    for (int k = 0; k < 4; k++) ckpt_put_u16(dst + 48 + 2 * k, fields[k] | (bits >> 4 * k & 15) << 12);
  }
}

static void dequantize_m(float *y, const uint8_t *src, size_t n) {
  const uint8_t(*levels)[CKPT_GRID_MAX_AXES] = ckpt_grid_levels(CKPT_GRID_IQ1);
  for (; n > 0; n -= CKPT_SUPER, y += CKPT_SUPER, src += 56) {
    uint32_t bits = 0;
    for (int k = 0; k < 4; k++) bits |= (uint32_t)(ckpt_le16(src + 48 + 2 * k) >> 12) << 4 * k;
    float d = ckpt_f16_value(bits);
    for (int i = 0; i < CKPT_SUPER; i++) {
      unsigned high = src[32 + i / 16] >> 4 * (i / 8 % 2) & 15,
               scale = ckpt_le16(src + 48 + 2 * (i / 64)) >> 3 * (i / 16 % 4);
      const uint8_t *point = levels[src[i / 8] | (high & 7) << 8];
      y[i] = d * (float)(2 * (scale & 7) + 1) * shifted[high >> 3][point[i % 8]];
    }
  }
}

const ckpt_quant ckpt_quant_iq1_s = {.quantize = quantize_s, .dequantize = dequantize_s, .needs_importance = true};
const ckpt_quant ckpt_quant_iq1_m = {.quantize = quantize_m, .dequantize = dequantize_m};
