/* iq23.c - the search that the IQ2 and IQ3 types share; see iq23.h and grid.h.
 *
 * Signs are taken off first. Then for each of some scales the levels are rounded, brought onto the grid, and fitted;
 * the scale whose fit is best stays. Under it groups that were off the grid are rounded once more. */
#include "kernels/ref/quant/iq23.h"

#include <float.h>

/* Magnitudes and signs of 8 elements. For an even number of signs the one whose flip costs least is flipped: its
 * magnitude becomes negative. */
static uint8_t take_signs(bool is_even, const float *x, const float *weights, float *values) {
  unsigned signs = 0;
  int n_set = 0, least = 0;
  for (int i = 0; i < 8; i++) {
    bool is_set = !(x[i] >= 0);
    values[i] = is_set ? -x[i] : x[i];
    signs |= (unsigned)is_set << i;
    n_set += is_set;
  }
  if (!is_even) return (uint8_t)signs;
  if (n_set % 2 != 0) {
    float min = weights[0] * x[0] * x[0];
    for (int i = 1; i < 8; i++) {
      float cost = weights[i] * x[i] * x[i];
      if (cost < min) {
        min = cost;
        least = i;
      }
    }
    values[least] = -values[least];
    signs ^= 1u << least;
  }
  return signs & 127;
}

static uint32_t nearest_point(const ckpt_grid *grid, uint32_t cell, float scale, const float *x, const float *roots) {
  uint32_t best = grid->first[cell];
  float best_error = FLT_MAX;
  for (uint32_t k = grid->first[cell]; k < grid->first[cell + 1]; k++) {
    const uint8_t *point = grid->levels[grid->neighbours[k]];
    float error = 0;
    for (uint32_t i = 0; i < grid->n_axes; i++) {
      float difference = scale * (float)(2 * point[i] + 1) - x[i];
      error += roots[i] * difference * difference;
    }
    if (error < best_error) {
      best_error = error;
      best = k;
    }
  }
  return grid->neighbours[best];
}

/* Rounds one group; whether it is on the grid. If not, its levels become those of the best neighbour. */
static bool snap(const ckpt_grid *grid, int max_level, float inverse, float scale, const float *x, const float *roots,
                 uint8_t *levels) {
  for (uint32_t i = 0; i < grid->n_axes; i++)
    levels[i] = (uint8_t)ckpt_clamp(ckpt_nearest(0.5f * (inverse * x[i] - 1)), 0, max_level);
  uint32_t cell = ckpt_grid_cell(grid, levels);
  if (grid->point[cell] >= 0) return true;
  memcpy(levels, grid->levels[nearest_point(grid, cell, scale, x, roots)], grid->n_axes);
  return false;
}

static void fit(int n, const float *x, const float *weights, const uint8_t *levels, float *xq, float *qq) {
  *xq = *qq = 0;
  for (int i = 0; i < n; i++) {
    float q = (float)(2 * levels[i] + 1);
    *xq += weights[i] * x[i] * q;
    *qq += weights[i] * q * q;
  }
}

bool ckpt_iq_search_ref(const ckpt_iq_search *s, const ckpt_grid *grid, const float *x, const float *weights, float max,
                        uint8_t *levels, float *found) {
  int n_groups = s->n / (int)grid->n_axes, top = 2 * s->max_level + 1;
  bool is_off[8] = {false}, was_off[8], any_off = false;
  uint8_t candidate[32];
  float roots[32], best = 0, scale = max / (float)top, xq, qq;
  for (int i = 0; i < s->n; i++) roots[i] = sqrtf(weights[i]);
  memset(levels, 0, (size_t)s->n);
  if (s->redo == REDO_ALL_IF_OFF) memset(is_off, true, sizeof is_off);
  if (s->starts_close) {
    scale = ckpt_quant_positive(s->n, s->max_level + 2, x, weights, candidate);
    max = scale * (float)(s->max_level + 1);
    if (max <= 0) return false;
  }
  for (int step = -s->n_steps; step <= s->n_steps; step++) {
    float inverse = ((float)top + (float)step * s->step) / max;
    for (int k = 0; k < n_groups; k++) {
      uint32_t at = (uint32_t)k * grid->n_axes;
      was_off[k] = !snap(grid, s->max_level, inverse, 1 / inverse, x + at, roots + at, candidate + at);
    }
    fit(s->n, x, weights, candidate, &xq, &qq);
    if (qq > 0 && xq * xq > best * qq) {
      scale = xq / qq;
      best = scale * xq;
      memcpy(levels, candidate, (size_t)s->n);
      memcpy(is_off, was_off, (size_t)n_groups * sizeof *is_off);
    }
  }
  for (int k = 0; k < n_groups; k++) any_off = any_off || is_off[k];
  *found = scale;
  if (!(scale > 0) || (s->redo != REDO_ALL && !any_off)) return true;
  for (int k = 0; k < n_groups; k++) {
    uint32_t at = (uint32_t)k * grid->n_axes;
    if (is_off[k] || s->redo != REDO_OFF) snap(grid, s->max_level, 1 / scale, scale, x + at, roots + at, levels + at);
  }
  fit(s->n, x, weights, levels, &xq, &qq);
  if (qq > 0) *found = xq / qq;
  return true;
}

void ckpt_iq_find(const ckpt_iq_search *s, ckpt_iq_search_block *search_block, const float *x, const float *weights,
                  ckpt_iq_found *found) {
  const ckpt_grid *grid = ckpt_grid_get(s->grid);
  *found = (ckpt_iq_found){0};
  for (int ib = 0; ib < CKPT_SUPER / s->n; ib++, x += s->n, weights += s->n) {
    uint16_t *points = found->points + ib * s->n / (int)grid->n_axes;
    uint8_t *signs = found->signs + ib * s->n / 8, levels[32];
    float values[32], max, scale = 0;
    for (int k = 0; k < s->n / 8; k++) signs[k] = take_signs(s->is_even, x + 8 * k, weights + 8 * k, values + 8 * k);
    max = values[0];
    for (int i = 1; i < s->n; i++) max = max > values[i] ? max : values[i];
    if (max < s->epsilon || max == 0 || !search_block(s, grid, values, weights, max, levels, &scale)) {
      memset(signs, 0, (size_t)s->n / 8);
      found->is_empty[ib] = true;
      continue;
    }
    if (scale < 0) {
      scale = -scale;
      for (int k = 0; k < s->n / 8; k++) signs[k] = (uint8_t)(~signs[k] & (s->is_even ? 127 : 255));
    }
    for (int k = 0; k < s->n / (int)grid->n_axes; k++)
      points[k] = (uint16_t)grid->point[ckpt_grid_cell(grid, levels + k * (int)grid->n_axes)];
    found->scales[ib] = scale;
    if (scale > found->max_scale) found->max_scale = scale;
  }
}

uint32_t ckpt_iq_scale_code(float scale, float max_scale) {
  float inverse = 1 / (max_scale / 31);
  return (uint32_t)ckpt_clamp(ckpt_nearest(0.5f * (inverse * scale - 1)), 0, 15);
}
