/* iq1.c - IQ1_S and IQ1_M of the reference; iq1.h has the layout. */
#include "kernels/ref/quant/iq1.h"

#include <float.h>

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
        const float *v = ckpt_iq1_values[down];
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
          const float *v = ckpt_iq1_values[down];
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

static void cut_blocks(int n, const float *x, const float *weights, ckpt_iq1_cut *cuts, uint8_t *levels) {
  for (int at = 0; at < CKPT_SUPER; at += n, cuts++) {
    int order[32];
    cut found;
    sort(n, x + at, order);
    cuts->is_found = (n == 32 ? cut_s : cut_m)(x + at, weights + at, order, &found);
    if (!cuts->is_found) continue;
    cuts->down = found.down;
    cuts->scale = found.scale;
    for (int j = 0; j < n; j++) levels[at + order[j]] = (uint8_t)((j >= found.first) + (j >= found.second));
  }
}

static uint16_t nearest(const ckpt_grid *grid, uint32_t cell, float scale, const float *values, const float *x,
                        const float *weights) {
  uint32_t best = grid->first[cell];
  float best_error = FLT_MAX;
  for (uint32_t k = grid->first[cell]; k < grid->first[cell + 1]; k++) {
    const uint8_t *candidate = grid->levels[grid->neighbours[k]];
    float error = 0;
    for (int i = 0; i < 8; i++) {
      float difference = scale * values[candidate[i]] - x[i];
      error += weights[i] * difference * difference;
    }
    if (error < best_error) {
      best_error = error;
      best = k;
    }
  }
  return grid->neighbours[best];
}

static const ckpt_iq1_search reference = {cut_blocks, nearest};

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* A superblock as found: of each sub-block scale, shifts and points; all 0 where it counts as zero. */
typedef struct superblock {
  float scales[16], max_scale;
  unsigned down[16];
  uint16_t points[32];
} superblock;

/* Points of a sub-block that was cut, and the scale that fits them if not all levels were on the grid. */
static float snap(ckpt_iq1_nearest *find_nearest, const ckpt_grid *grid, int n, const float *x, const float *weights,
                  float scale, unsigned down, const uint8_t *levels, uint16_t *points) {
  bool is_on_grid = true;
  float xq = 0, qq = 0;
  for (int k = 0; k < n / 8; k++) {
    uint32_t cell = ckpt_grid_cell(grid, levels + 8 * k);
    is_on_grid &= grid->point[cell] >= 0;
    points[k] = grid->point[cell] >= 0
                    ? (uint16_t)grid->point[cell]
                    : find_nearest(grid, cell, scale, ckpt_iq1_values[down >> (k & 1) & 1], x + 8 * k, weights + 8 * k);
  }
  if (is_on_grid) return scale;
  for (int i = 0; i < n; i++) {
    float q = ckpt_iq1_values[down >> (i / 8 & 1) & 1][grid->levels[points[i / 8]][i % 8]];
    xq += weights[i] * q * x[i];
    qq += weights[i] * q * q;
  }
  return xq > 0 && qq > 0 ? xq / qq : scale;
}

/* Sub-blocks of n whose elements are all below epsilon count as zero. */
static void find(const ckpt_iq1_search *search, int n, float epsilon, const float *x, const float *weights,
                 superblock *found) {
  const ckpt_grid *grid = ckpt_grid_get(CKPT_GRID_IQ1);
  ckpt_iq1_cut cuts[16];
  uint8_t levels[CKPT_SUPER];
  *found = (superblock){0};
  search->cut_blocks(n, x, weights, cuts, levels);
  for (int ib = 0, at = 0; at < CKPT_SUPER; ib++, at += n) {
    if (fabsf(ckpt_extreme(x + at, (size_t)n)) < epsilon || !cuts[ib].is_found) continue;
    if (cuts[ib].scale < 0) { /* turned about */
      for (int j = 0; j < n; j++) levels[at + j] = (uint8_t)(2 - levels[at + j]);
      cuts[ib].scale = -cuts[ib].scale;
      cuts[ib].down ^= 3;
    }
    found->down[ib] = cuts[ib].down;
    found->scales[ib] = snap(search->nearest, grid, n, x + at, weights + at, cuts[ib].scale, cuts[ib].down, levels + at,
                             found->points + at / 8);
    if (found->scales[ib] > found->max_scale) found->max_scale = found->scales[ib];
  }
}

static int scale_code(float scale, float d) { return ckpt_clamp(ckpt_nearest(0.5f * (1 / d * scale - 1)), 0, 7); }

static void weigh(float *weights, const float *x, const float *importance) {
  float sigma2 = 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER;
  if (importance) ckpt_quant_weigh(weights, x, importance, sigma2, CKPT_SUPER);
  for (int i = 0; i < CKPT_SUPER && !importance; i++) weights[i] = x[i] * x[i];
}

/* ---- IQ1_S ------------------------------------------------------------------------------------------------------- */

void ckpt_iq1_s(const ckpt_iq1_search *search, uint8_t *dst, const float *x, size_t n, const float *importance) {
  for (; n > 0; n -= CKPT_SUPER, x += CKPT_SUPER, importance += CKPT_SUPER, dst += 50) {
    float weights[CKPT_SUPER];
    superblock found;
    weigh(weights, x, importance);
    find(search, 32, 1e-12f, x, weights, &found);
    memset(dst, 0, 50);
    float d = found.max_scale / 15;
    if (found.max_scale != 0) ckpt_put_f16(dst, d * 1.125f);
    for (int ib = 0; ib < 8; ib++) {
      uint32_t field = 0;
      for (int k = 0; k < 4; k++) {
        dst[2 + 4 * ib + k] = (uint8_t)found.points[4 * ib + k];
        field |= (uint32_t)(found.points[4 * ib + k] >> 8) << 3 * k;
      }
      if (found.max_scale != 0) field |= (uint32_t)scale_code(found.scales[ib], d) << 12 | (found.down[ib] & 1) << 15;
      ckpt_put_u16(dst + 34 + 2 * ib, field);
    }
  }
}

/* ---- IQ1_M ------------------------------------------------------------------------------------------------------- */

/* The scale of all that fits points, shifts and scales of sub-blocks best. */
static float fit_m(const ckpt_grid *grid, const float *x, const float *weights, const uint16_t *points,
                   const unsigned *down, const int *scales, float otherwise) {
  float xq = 0, qq = 0;
  for (int i = 0; i < CKPT_SUPER; i++) {
    float v = ckpt_iq1_values[down[i / 16] >> (i / 8 & 1) & 1][grid->levels[points[i / 8]][i % 8]];
    float q = v * (float)(2 * scales[i / 16] + 1);
    xq += weights[i] * q * x[i];
    qq += weights[i] * q * q;
  }
  return qq > 0 ? xq / qq : otherwise;
}

void ckpt_iq1_m(const ckpt_iq1_search *search, uint8_t *dst, const float *x, size_t n, const float *importance) {
  const ckpt_grid *grid = ckpt_grid_get(CKPT_GRID_IQ1);
  for (size_t at = 0; at < n; at += CKPT_SUPER, x += CKPT_SUPER, dst += 56) {
    float weights[CKPT_SUPER];
    superblock found;
    int codes[16];
    weigh(weights, x, importance ? importance + at : NULL);
    find(search, 16, 1e-7f, x, weights, &found);
    memset(dst, 0, 56);
    for (int k = 0; k < 32; k++) {
      dst[k] = (uint8_t)found.points[k];
      dst[32 + k / 2] |= (uint8_t)(found.points[k] >> 8 << 4 * (k % 2));
    }
    if (found.max_scale == 0) continue;
    float d = found.max_scale / 15;
    uint32_t fields[4] = {0};
    for (int ib = 0; ib < 16; ib++) {
      codes[ib] = scale_code(found.scales[ib], d);
      fields[ib / 4] |= (uint32_t)codes[ib] << 3 * (ib % 4);
      dst[32 + ib] |= (uint8_t)((found.down[ib] & 1) << 3 | (found.down[ib] >> 1) << 7);
    }
    uint32_t bits = ckpt_f16_bits(fit_m(grid, x, weights, found.points, found.down, codes, d) * 1.1125f);
    for (int k = 0; k < 4; k++) ckpt_put_u16(dst + 48 + 2 * k, fields[k] | (bits >> 4 * k & 15) << 12);
  }
}

static void quantize_s(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq1_s(&reference, dst, x, n, importance);
}

static void quantize_m(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq1_m(&reference, dst, x, n, importance);
}

const ckpt_quant ckpt_quant_iq1_s = {
    .quantize = quantize_s, .dequantize = ckpt_dequantize_iq1_s, .needs_importance = true};
const ckpt_quant ckpt_quant_iq1_m = {.quantize = quantize_m, .dequantize = ckpt_dequantize_iq1_m};
