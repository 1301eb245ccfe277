/* avx2_iq1.c - the searches of IQ1_S and IQ1_M on AVX2: eight sub-blocks in lanes; see kernels/ref/quant/iq1.c.
 *
 * Sorting counts, for each element, those before it. Sums over an element's predecessors and cuts are then taken in the
 * reference's order. Few cuts are better than the best so far, so a cut is compared first, in all lanes, and only where
 * one gains it is fitted. Products with 1/8 are exact but for tiny numbers, and the same for -1/8. */
#if defined(__x86_64__)
#include "kernels/cpu/quant/avx2_nearest.h"
#include "kernels/cpu/quant/quant.h"
#include "kernels/ref/quant/iq1.h"

enum { LANES = 8, MAX_SUB = 32 };

/* Sub-blocks in lanes: their products of weight and element, and in which place each element stands once sorted. */
typedef struct sorted {
  __m256 wx[MAX_SUB], w[MAX_SUB];
  __m256i ranks[MAX_SUB];
  __m256 is_lost; /* NaN among the products: no cut is better than another */
} sorted;

/* What was found so far. */
typedef struct best_cut {
  __m256 fit, scale;
  __m256i first, second, down; /* first is -1 where there is none */
} best_cut;

INLINE __m256 product(__m256 a, float b) { return _mm256_mul_ps(a, _mm256_set1_ps(b)); }
INLINE __m256i choose(__m256 mask, int a, __m256i b) {
  return _mm256_blendv_epi8(b, _mm256_set1_epi32(a), _mm256_castps_si256(mask));
}

/* Whether a cut may be better: it is if qq > 0 too. */
INLINE __m256 gains(const best_cut *best, __m256 xq, __m256 qq) {
  return _mm256_cmp_ps(_mm256_mul_ps(xq, xq), _mm256_mul_ps(best->fit, qq), _CMP_GT_OQ);
}

/* Takes a cut where it is better. */
AVX2 __attribute__((noinline)) static void improve(best_cut *best, __m256 xq, __m256 qq, int first, int second,
                                                   int down) {
  __m256 is_better = _mm256_and_ps(_mm256_cmp_ps(qq, _mm256_setzero_ps(), _CMP_GT_OQ), gains(best, xq, qq));
  __m256 scale = _mm256_div_ps(xq, qq);
  best->scale = _mm256_blendv_ps(best->scale, scale, is_better);
  best->fit = _mm256_blendv_ps(best->fit, _mm256_mul_ps(scale, xq), is_better);
  best->first = choose(is_better, first, best->first);
  best->second = choose(is_better, second, best->second);
  best->down = choose(is_better, down, best->down);
}

INLINE void sort(sorted *s, int n, const float *x, const float *weights) {
  const __m256i places = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(n));
  __m256 xs[MAX_SUB];
  s->is_lost = _mm256_setzero_ps();
  for (int i = 0; i < n; i++) {
    xs[i] = _mm256_i32gather_ps(x + i, places, 4);
    s->w[i] = _mm256_i32gather_ps(weights + i, places, 4);
    s->wx[i] = _mm256_mul_ps(s->w[i], xs[i]);
    s->is_lost = _mm256_or_ps(s->is_lost, _mm256_cmp_ps(s->wx[i], s->wx[i], _CMP_UNORD_Q));
    s->ranks[i] = _mm256_set1_epi32(i);
  }
  for (int a = 0; a < n; a++)
    for (int b = a + 1; b < n; b++) { /* -1 where b goes before a */
      __m256i is_less = _mm256_castps_si256(_mm256_cmp_ps(xs[b], xs[a], _CMP_LT_OQ));
      s->ranks[a] = _mm256_sub_epi32(s->ranks[a], is_less);
      s->ranks[b] = _mm256_add_epi32(s->ranks[b], is_less);
    }
}

/* Sums over the first elements in their order, of those in [from, to) as they stand; the others add 0. */
INLINE void sum_sorted(const sorted *s, int n, int from, int to, __m256 *sum_x, __m256 *sum_w) {
  float wx[MAX_SUB][LANES] = {{0}}, w[MAX_SUB][LANES] = {{0}};
  for (int i = from; i < to; i++) {
    const float *from_wx = (const float *)&s->wx[i], *from_w = (const float *)&s->w[i];
    const int *ranks = (const int *)&s->ranks[i];
    for (int j = 0; j < LANES; j++) {
      wx[ranks[j]][j] = from_wx[j];
      w[ranks[j]][j] = from_w[j];
    }
  }
  sum_x[0] = sum_w[0] = _mm256_setzero_ps();
  for (int i = 0; i < n; i++) {
    sum_x[i + 1] = _mm256_add_ps(sum_x[i], _mm256_loadu_ps(wx[i]));
    sum_w[i + 1] = _mm256_add_ps(sum_w[i], _mm256_loadu_ps(w[i]));
  }
}

/* ---- IQ1_S: 32 elements of one shift ----------------------------------------------------------------------------- */

/* The part of the elements from each one on, at the third level. */
typedef struct third_part {
  __m256 x[MAX_SUB + 1], w[MAX_SUB + 1];
} third_part;

INLINE void take_third_part(third_part *part, const __m256 *sum_x, const __m256 *sum_w, float value) {
  for (int j = 0; j <= MAX_SUB; j++) {
    part->x[j] = product(_mm256_sub_ps(sum_x[MAX_SUB], sum_x[j]), value);
    part->w[j] = product(product(_mm256_sub_ps(sum_w[MAX_SUB], sum_w[j]), value), value);
  }
}

AVX2 static void cut_s(const sorted *s, best_cut *best) {
  const float *up = ckpt_iq1_values[0], *down = ckpt_iq1_values[1];
  __m256 sum_x[MAX_SUB + 1], sum_w[MAX_SUB + 1];
  third_part ups, downs;
  best_cut b = *best;
  sum_sorted(s, MAX_SUB, 0, MAX_SUB, sum_x, sum_w);
  take_third_part(&ups, sum_x, sum_w, up[2]);
  take_third_part(&downs, sum_x, sum_w, down[2]);
  for (int i = 0; i <= MAX_SUB; i++) {
    __m256 up_x = product(sum_x[i], up[0]), up_w = product(product(sum_w[i], up[0]), up[0]);
    __m256 down_x = product(sum_x[i], down[0]), down_w = product(product(sum_w[i], down[0]), down[0]);
    for (int j = i; j <= MAX_SUB; j++) {
      __m256 x = product(_mm256_sub_ps(sum_x[j], sum_x[i]), up[1]);
      __m256 w = product(product(_mm256_sub_ps(sum_w[j], sum_w[i]), up[1]), up[1]);
      __m256 up_xq = _mm256_add_ps(_mm256_add_ps(up_x, x), ups.x[j]);
      __m256 down_xq = _mm256_add_ps(_mm256_sub_ps(down_x, x), downs.x[j]);
      __m256 up_qq = _mm256_add_ps(_mm256_add_ps(up_w, w), ups.w[j]);
      __m256 down_qq = _mm256_add_ps(_mm256_add_ps(down_w, w), downs.w[j]);
      if (_mm256_movemask_ps(_mm256_or_ps(gains(&b, up_xq, up_qq), gains(&b, down_xq, down_qq))) == 0) continue;
      improve(&b, up_xq, up_qq, i, j, 0);
      improve(&b, down_xq, down_qq, i, j, 3);
    }
  }
  *best = b;
}

/* ---- IQ1_M: 16 elements, each half with a shift of its own ------------------------------------------------------- */

enum { N_M = 16 };

/* One half under one shift: the sums of its elements at the third level, and what one in a lower part adds. */
typedef struct half_fit {
  __m256 x, w, w_first[N_M + 1], w_second[N_M + 1];
} half_fit;

AVX2 static void cut_m(const sorted *s, best_cut *best) {
  __m256 sum_x[2][N_M + 1], sum_w[2][N_M + 1];
  half_fit fits[2][2];
  best_cut b = *best;
  for (int half = 0; half < 2; half++) {
    sum_sorted(s, N_M, N_M / 2 * half, N_M / 2 * (half + 1), sum_x[half], sum_w[half]);
    for (int down = 0; down < 2; down++) {
      const float *v = ckpt_iq1_values[down];
      half_fit *f = &fits[half][down];
      f->x = product(sum_x[half][N_M], v[2]);
      f->w = product(product(sum_w[half][N_M], v[2]), v[2]);
      for (int i = 0; i <= N_M; i++) {
        f->w_first[i] = _mm256_add_ps(f->w, product(sum_w[half][i], v[0] * v[0] - v[1] * v[1]));
        f->w_second[i] = product(sum_w[half][i], v[1] * v[1] - v[2] * v[2]);
      }
    }
  }
  for (int i = 0; i <= N_M; i++)
    for (int j = i; j <= N_M; j++) {
      __m256 xq[2][2], qq[2][2], any = _mm256_setzero_ps();
      for (int half = 0; half < 2; half++) {
        __m256 sums = _mm256_add_ps(sum_x[half][i], sum_x[half][j]);
        for (int down = 0; down < 2; down++) {
          xq[half][down] = _mm256_sub_ps(fits[half][down].x, sums);
          qq[half][down] = _mm256_add_ps(fits[half][down].w_first[i], fits[half][down].w_second[j]);
        }
      }
      for (int k = 0; k < 4; k++)
        any = _mm256_or_ps(
            any, gains(&b, _mm256_add_ps(xq[0][k >> 1], xq[1][k & 1]), _mm256_add_ps(qq[0][k >> 1], qq[1][k & 1])));
      if (_mm256_movemask_ps(any) == 0) continue;
      for (int k = 0; k < 4; k++)
        improve(&b, _mm256_add_ps(xq[0][k >> 1], xq[1][k & 1]), _mm256_add_ps(qq[0][k >> 1], qq[1][k & 1]), i, j,
                k >> 1 | (k & 1) << 1);
    }
  *best = b;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

/* Eight sub-blocks. */
INLINE void cut_lanes(int n, const float *x, const float *weights, ckpt_iq1_cut *cuts, uint8_t *levels) {
  sorted s;
  best_cut best = {_mm256_set1_ps(-FLT_MAX), _mm256_setzero_ps(), _mm256_set1_epi32(-1), _mm256_setzero_si256(),
                   _mm256_setzero_si256()};
  float scales[LANES];
  int firsts[LANES], downs[LANES], all_levels[LANES];
  sort(&s, n, x, weights);
  if (n == MAX_SUB)
    cut_s(&s, &best);
  else
    cut_m(&s, &best);
  _mm256_storeu_ps(scales, best.scale);
  _mm256_storeu_si256((__m256i *)firsts, _mm256_or_si256(best.first, _mm256_castps_si256(s.is_lost)));
  _mm256_storeu_si256((__m256i *)downs, best.down);
  for (int j = 0; j < LANES; j++) cuts[j] = (ckpt_iq1_cut){firsts[j] >= 0, (unsigned)downs[j], scales[j]};
  for (int i = 0; i < n; i++) {
    __m256i below =
        _mm256_add_epi32(_mm256_cmpgt_epi32(best.first, s.ranks[i]), _mm256_cmpgt_epi32(best.second, s.ranks[i]));
    _mm256_storeu_si256((__m256i *)all_levels, _mm256_add_epi32(_mm256_set1_epi32(2), below));
    for (int j = 0; j < LANES; j++) levels[n * j + i] = (uint8_t)all_levels[j];
  }
}

AVX2 static void cut_blocks(int n, const float *x, const float *weights, ckpt_iq1_cut *cuts, uint8_t *levels) {
  if (n == MAX_SUB)
    cut_lanes(MAX_SUB, x, weights, cuts, levels);
  else
    for (int at = 0; at < CKPT_SUPER; at += LANES * N_M)
      cut_lanes(N_M, x + at, weights + at, cuts + at / N_M, levels + at);
}

AVX2 static uint16_t nearest(const ckpt_grid *grid, uint32_t cell, float scale, const float *v, const float *x,
                             const float *weights) {
  const __m256 values = product(_mm256_setr_ps(v[0], v[1], v[2], 0, v[0], v[1], v[2], 0), scale);
  const uint32_t first = grid->first[cell];
  __m256 errors[8];
  for (int i = 0; i < 8; i++) errors[i] = errors_of_levels(values, x[i], weights[i]);
  return grid->neighbours[first + nearest_place(errors, 8, 2, grid->packed + first, grid->first[cell + 1] - first)];
}

static const ckpt_iq1_search search = {cut_blocks, nearest};

void ckpt_quant_avx2_iq1_s(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq1_s(&search, dst, x, n, importance);
}

void ckpt_quant_avx2_iq1_m(uint8_t *dst, const float *x, size_t n, const float *importance) {
  ckpt_iq1_m(&search, dst, x, n, importance);
}

#endif
