/* avx2_grid.c - the search of the IQ2 and IQ3 types on AVX2; see kernels/ref/quant/iq23.c.
 *
 * Scales that are tried do not depend on each other: lanes are scales where levels are rounded and where sums are
 * taken over a sub-block, and points of the grid where the nearest one is looked for. Which scale stays is decided
 * afterwards, from the first to the last. */
#if defined(__x86_64__)
#include "kernels/cpu/quant/avx2_nearest.h"
#include "kernels/cpu/quant/quant.h"
#include "kernels/ref/quant/iq23.h"

enum { MAX_TRIED = 32, MAX_GROUPS = 8, MAX_SUB = 32 };

/* A kind of grid; by value and always inlined, so that its numbers are constants. */
typedef struct layout {
  int n_axes, n_bits, max_level;
} layout;

static const layout iq2 = {8, 2, 2}, iq3 = {4, 3, 7};

/* What does not change while a sub-block of n is searched. */
typedef struct block {
  const ckpt_grid *grid;
  int n;
  const float *x, *weights;
  float roots[MAX_SUB];
} block;

/* The sub-block under each scale: the packed points of its groups, and bit k of is_off where group k was off the grid.
 */
typedef struct tried {
  float inverses[MAX_TRIED], scales[MAX_TRIED], xq[MAX_TRIED], qq[MAX_TRIED];
  uint16_t points[MAX_GROUPS][MAX_TRIED];
  uint32_t is_off[MAX_TRIED];
} tried;

/* The odd numbers that levels stand for. */
INLINE __m256 odd_numbers(layout g) {
  return g.n_bits == 2 ? _mm256_setr_ps(1, 3, 5, 7, 1, 3, 5, 7) : _mm256_setr_ps(1, 3, 5, 7, 9, 11, 13, 15);
}

/* Rounds the group at x under eight inverse scales: cells, and the same levels packed. */
INLINE void round_group(layout g, const float *x, __m256 inverses, uint32_t *cells, uint32_t *packed) {
  __m256i cell = _mm256_setzero_si256(), point = cell;
  for (int i = g.n_axes; i-- > 0;) {
    __m256 v = _mm256_sub_ps(_mm256_mul_ps(inverses, _mm256_set1_ps(x[i])), _mm256_set1_ps(1));
    v = _mm256_add_ps(_mm256_mul_ps(_mm256_set1_ps(0.5f), v), _mm256_set1_ps(12582912.0f)); /* as ckpt_nearest */
    __m256i level = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x007fffff));
    level = _mm256_max_epi32(_mm256_sub_epi32(level, _mm256_set1_epi32(0x00400000)), _mm256_setzero_si256());
    level = _mm256_min_epi32(level, _mm256_set1_epi32(g.max_level));
    point = _mm256_or_si256(_mm256_slli_epi32(point, g.n_bits), level);
    cell = _mm256_add_epi32(_mm256_add_epi32(cell, level), _mm256_slli_epi32(cell, 1)); /* radix 3 */
  }
  _mm256_storeu_si256((__m256i *)cells, g.n_bits == 3 ? point : cell);
  _mm256_storeu_si256((__m256i *)packed, point);
}

/* The packed point for a cell of group k: itself, or the nearest neighbour; then *is_off gets bit k. */
INLINE uint16_t snap(layout g, const block *b, int k, float scale, uint32_t cell, uint32_t packed, uint32_t *is_off) {
  if (b->grid->point[cell] >= 0) return (uint16_t)packed;
  const float *x = b->x + k * g.n_axes, *roots = b->roots + k * g.n_axes;
  const __m256 values = _mm256_mul_ps(_mm256_set1_ps(scale), odd_numbers(g));
  const uint16_t *list = b->grid->packed + b->grid->first[cell];
  __m256 errors[CKPT_GRID_MAX_AXES];
  for (int i = 0; i < g.n_axes; i++) errors[i] = errors_of_levels(values, x[i], roots[i]);
  *is_off |= UINT32_C(1) << k;
  return list[nearest_place(errors, g.n_axes, g.n_bits, list, b->grid->first[cell + 1] - b->grid->first[cell])];
}

/* What fits the levels under eight scales. */
INLINE void fit_scales(layout g, const block *b, tried *t, int first) {
  const __m256 odd = odd_numbers(g);
  __m256 xq = _mm256_setzero_ps(), qq = xq;
  for (int k = 0; k < b->n / g.n_axes; k++) {
    const float *x = b->x + k * g.n_axes, *weights = b->weights + k * g.n_axes;
    __m256i levels = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(t->points[k] + first)));
    for (int i = 0; i < g.n_axes; i++) {
      __m256 q = pick(odd, g.n_bits, _mm256_srli_epi32(levels, g.n_bits * i)), w = _mm256_set1_ps(weights[i]);
      xq = _mm256_add_ps(xq, _mm256_mul_ps(_mm256_mul_ps(w, _mm256_set1_ps(x[i])), q));
      qq = _mm256_add_ps(qq, _mm256_mul_ps(_mm256_mul_ps(w, q), q));
    }
  }
  _mm256_storeu_ps(t->xq + first, xq);
  _mm256_storeu_ps(t->qq + first, qq);
}

/* All groups under the scales. */
INLINE void try_scales(layout g, const block *b, tried *t, int n_scales) {
  for (int k = 0; k < b->n / g.n_axes; k++) {
    uint32_t cells[MAX_TRIED], packed[MAX_TRIED];
    for (int i = 0; i < n_scales; i += 8)
      round_group(g, b->x + k * g.n_axes, _mm256_loadu_ps(t->inverses + i), cells + i, packed + i);
    for (int i = 0; i < n_scales; i++)
      t->points[k][i] = snap(g, b, k, t->scales[i], cells[i], packed[i], &t->is_off[i]);
  }
  for (int i = 0; i < n_scales; i += 8) fit_scales(g, b, t, i);
}

/* Rounds groups anew under the scale found, those of which bits has theirs; the scale that fits the levels then. */
INLINE float round_anew(layout g, const block *b, uint32_t groups, float scale, uint16_t *points, uint8_t *levels) {
  float xq = 0, qq = 0;
  for (int k = 0; k < b->n / g.n_axes; k++) {
    uint32_t cells[8], packed[8], is_off = 0;
    if (!(groups >> k & 1)) continue;
    round_group(g, b->x + k * g.n_axes, _mm256_set1_ps(1 / scale), cells, packed);
    points[k] = snap(g, b, k, scale, cells[0], packed[0], &is_off);
  }
  for (int i = 0; i < b->n; i++) {
    levels[i] = (uint8_t)(points[i / g.n_axes] >> g.n_bits * (i % g.n_axes) & ((1 << g.n_bits) - 1));
    float q = (float)(2 * levels[i] + 1);
    xq += b->weights[i] * b->x[i] * q;
    qq += b->weights[i] * q * q;
  }
  return groups != 0 && qq > 0 ? xq / qq : scale;
}

/* ckpt_iq_search_ref, for one kind of grid. */
INLINE bool search_block(const ckpt_iq_search *s, layout g, block *b, float max, uint8_t *levels, float *found) {
  int top = 2 * s->max_level + 1, n_tried = 2 * s->n_steps + 1;
  uint32_t all = (UINT32_C(1) << b->n / g.n_axes) - 1, is_off = s->redo == REDO_ALL_IF_OFF ? all : 0;
  uint16_t points[MAX_GROUPS] = {0};
  float best = 0, scale = max / (float)top;
  tried t = {.points = {{0}}, .is_off = {0}};
  if (s->starts_close) {
    uint8_t codes[MAX_SUB];
    scale = ckpt_quant_positive(s->n, s->max_level + 2, b->x, b->weights, codes);
    max = scale * (float)(s->max_level + 1);
    if (max <= 0) return false;
  }
  for (int i = 0; i < b->n; i += 8) _mm256_storeu_ps(b->roots + i, _mm256_sqrt_ps(_mm256_loadu_ps(b->weights + i)));
  for (int i = 0; i < MAX_TRIED; i++) {
    t.inverses[i] = ((float)top + (float)(i - s->n_steps) * s->step) / max;
    t.scales[i] = 1 / t.inverses[i];
  }
  try_scales(g, b, &t, n_tried);
  for (int i = 0; i < n_tried; i++) {
    if (!(t.qq[i] > 0 && t.xq[i] * t.xq[i] > best * t.qq[i])) continue;
    scale = t.xq[i] / t.qq[i];
    best = scale * t.xq[i];
    is_off = t.is_off[i];
    for (int k = 0; k < b->n / g.n_axes; k++) points[k] = t.points[k][i];
  }
  if (!(scale > 0) || (s->redo != REDO_ALL && is_off == 0))
    is_off = 0;
  else if (s->redo != REDO_OFF)
    is_off = all;
  *found = round_anew(g, b, is_off, scale, points, levels);
  return true;
}

AVX2 static bool search_iq2(const ckpt_iq_search *s, const ckpt_grid *grid, const float *x, const float *weights,
                            float max, uint8_t *levels, float *found) {
  block b = {.grid = grid, .n = s->n, .x = x, .weights = weights};
  return search_block(s, iq2, &b, max, levels, found);
}

AVX2 static bool search_iq3(const ckpt_iq_search *s, const ckpt_grid *grid, const float *x, const float *weights,
                            float max, uint8_t *levels, float *found) {
  block b = {.grid = grid, .n = 32, .x = x, .weights = weights};
  return search_block(s, iq3, &b, max, levels, found);
}

#define TYPE(name, search_block)                                                                 \
  void ckpt_quant_avx2_##name(uint8_t *dst, const float *x, size_t n, const float *importance) { \
    ckpt_##name(search_block, dst, x, n, importance);                                            \
  }

TYPE(iq2_xxs, search_iq2)
TYPE(iq2_xs, search_iq2)
TYPE(iq2_s, search_iq2)
TYPE(iq3_xxs, search_iq3)
TYPE(iq3_s, search_iq3)

#endif
