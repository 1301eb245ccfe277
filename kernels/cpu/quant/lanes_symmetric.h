/* lanes_symmetric.h - the searches for scales without minimum, one sub-block in each lane, and the types that use
 * them: Q3_K and Q6_K, and with importance Q4_0, Q5_0, Q4_1, Q5_1. Included behind lanes.h, see there. */
#ifndef CKPT_KERNELS_CPU_QUANT_LANES_SYMMETRIC_H
#define CKPT_KERNELS_CPU_QUANT_LANES_SYMMETRIC_H

#include <float.h>

#include "kernels/cpu/quant/lanes.h"
#include "kernels/ref/quant/k_symmetric.h"
#include "kernels/ref/quant/legacy.h"

/* Levels: integers from -n to n - 1, as f32, for |x| below 2^22. */
TARGET static inline vf round_levels(vf x, vf n) {
  const vf magic = vf_set(12582912.0f);
  return vf_min(vf_max((x + magic) - magic, vf_negate(n)), n - vf_set(1));
}

/* The element of greatest magnitude in each lane, the first of equals; n is a multiple of 4. */
TARGET ALWAYS_INLINE static inline vf extreme_lanes(int n, const vf *x) {
  vf max[4], min[4], extreme = vf_set(0); /* four, so that not each waits for the one before */
  for (int k = 0; k < 4; k++) max[k] = min[k] = extreme;
  for (int i = 0; i < n; i++) {
    max[i % 4] = vf_max(x[i], max[i % 4]);
    min[i % 4] = vf_min(x[i], min[i % 4]);
  }
  max[0] = vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3]));
  min[0] = vf_min(vf_min(min[0], min[1]), vf_min(min[2], min[3]));
  vm is_tie = vm_and(vf_equal(max[0], vf_negate(min[0])), vf_less(vf_set(0), max[0]));
  if (vm_bits(is_tie) == 0) return vf_select(vf_less(max[0], vf_negate(min[0])), min[0], max[0]);
  for (int i = 0; i < n; i++) extreme = vf_select(vf_less(vf_abs(extreme), vf_abs(x[i])), x[i], extreme);
  return extreme;
}

/* Sums over the levels under one inverse scale. */
typedef struct lanes_fit {
  vf xl, ll;
} lanes_fit;

/* wx: the products of w and x. is_within: no product of inverse and x is below -n_levels - 1/2. */
TARGET ALWAYS_INLINE static inline lanes_fit fit_levels_lanes(int n, const vf *x, const vf *w, const vf *wx,
                                                              vf n_levels, vf inverse, bool is_within) {
  const vf magic = vf_set(12582912.0f), top = n_levels - vf_set(1);
  lanes_fit fit = {vf_set(0), vf_set(0)};
  for (int i = 0; i < n; i++) {
    vf l = is_within ? vf_min((inverse * x[i] + magic) - magic, top) : round_levels(inverse * x[i], n_levels);
    fit.xl += wx[i] * l;
    fit.ll += w[i] * l * l;
  }
  return fit;
}

/* ckpt_quant_symmetric: the scale, and the inverse that its codes come from; both 0 where all is zero. */
TARGET ALWAYS_INLINE static inline vf search_symmetric_lanes(int n, int top, const vf *x, const vf *w, vf *inverse) {
  const vf n_levels = vf_set((float)top), zero = vf_set(0);
  vf extreme = extreme_lanes(n, x), wx[32];
  vm is_zero = vf_less(vf_abs(extreme), vf_set(CKPT_QUANT_EPSILON));
  extreme = vf_select(is_zero, vf_set(1), extreme);
  for (int i = 0; i < n; i++) wx[i] = w[i] * x[i];
  *inverse = vf_negate(n_levels) / extreme;
  lanes_fit fit = fit_levels_lanes(n, x, w, wx, n_levels, *inverse, true);
  vf scale = vf_select(vf_equal(fit.ll, zero), zero, fit.xl / fit.ll), best = scale * fit.xl;
  for (int step = -9; step <= 9; step++) {
    if (step == 0) continue;
    vf candidate = vf_set(-((float)top + 0.1f * (float)step)) / extreme;
    fit = step < 5 ? fit_levels_lanes(n, x, w, wx, n_levels, candidate, true)
                   : fit_levels_lanes(n, x, w, wx, n_levels, candidate, false);
    vm is_better = vm_and(vf_less(zero, fit.ll), vf_less(best * fit.ll, fit.xl * fit.xl));
    vf this_scale = fit.xl / fit.ll;
    *inverse = vf_select(is_better, candidate, *inverse);
    scale = vf_select(is_better, this_scale, scale);
    best = vf_select(is_better, this_scale * fit.xl, best);
  }
  *inverse = vf_select(is_zero, zero, *inverse);
  return vf_select(is_zero, zero, scale);
}

/* The codes of a sub-block. */
TARGET ALWAYS_INLINE static inline void symmetric_codes(int n, int top, const float *x, float inverse, uint8_t *codes) {
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(ckpt_clamp(ckpt_nearest(inverse * x[i]), -top, top - 1) + top);
  if (inverse == 0) memset(codes, 0, (size_t)n);
}

/* Vectors of sub-blocks that are refined side by side: each step waits for the one before it, and for a division. */
enum { REFINE_GROUPS = 32 / LANES };

/* Sub-blocks of 16 under refinement, LANES of them. */
typedef struct refinement {
  vf x[CKPT_KS_SUB], w[CKPT_KS_SUB], wx[CKPT_KS_SUB], levels[CKPT_KS_SUB];
  lanes_fit fit;
  vm is_zero, is_lost, has_changed; /* lost: a level may have been out of range */
} refinement;

/* The levels that rounding gives. */
TARGET ALWAYS_INLINE static inline void begin_refinement(refinement *r, vf n_levels) {
  vf extreme = extreme_lanes(CKPT_KS_SUB, r->x);
  r->is_zero = vf_less(vf_abs(extreme), vf_set(CKPT_QUANT_EPSILON));
  r->is_lost = vm_none();
  r->fit = (lanes_fit){vf_set(0), vf_set(0)};
  vf inverse = vf_negate(n_levels) / vf_select(r->is_zero, vf_set(1), extreme);
  for (int i = 0; i < CKPT_KS_SUB; i++) {
    r->w[i] = r->x[i] * r->x[i];
    r->wx[i] = r->w[i] * r->x[i];
    r->levels[i] = round_levels(inverse * r->x[i], n_levels);
    r->fit.xl += r->wx[i] * r->levels[i];
    r->fit.ll += r->w[i] * r->levels[i] * r->levels[i];
  }
}

/* Moves element i of each sub-block where that helps. */
TARGET ALWAYS_INLINE static inline void refine_element(refinement *r, int i, vf n_levels) {
  const vf zero = vf_set(0), old = r->levels[i];
  lanes_fit others = {r->fit.xl - r->wx[i] * old, r->fit.ll - r->w[i] * old * old};
  vm is_open = vm_and(vf_less(zero, others.xl), vm_not(r->is_zero));
  vf exact = r->x[i] * others.ll / others.xl, level = round_levels(exact, n_levels);
  r->is_lost = vm_or(r->is_lost, vm_and(is_open, vm_not(vf_less(vf_abs(exact), vf_set(4194304.0f)))));
  others.xl += r->wx[i] * level;
  others.ll += r->w[i] * level * level;
  vm is_better =
      vm_and(vf_less(zero, others.ll), vf_less(r->fit.xl * r->fit.xl * others.ll, others.xl * others.xl * r->fit.ll));
  is_better = vm_and(vm_and(is_open, is_better), vm_not(vf_equal(level, old)));
  r->levels[i] = vf_select(is_better, level, old);
  r->fit.xl = vf_select(is_better, others.xl, r->fit.xl);
  r->fit.ll = vf_select(is_better, others.ll, r->fit.ll);
  r->has_changed = vm_or(r->has_changed, is_better);
}

/* ckpt_quant_refine of the sub-blocks whose places in x are listed, 1 to 32. Bit j of what it returns: place j is lost.
 */
TARGET static inline uint32_t refine_lanes(const float *x, const int *places, int n_all, int top, float *scales) {
  const vf n_levels = vf_set((float)top), zero = vf_set(0);
  refinement r[REFINE_GROUPS];
  int n_groups = (n_all + LANES - 1) / LANES;
  uint32_t lost = 0;
  for (int g = 0; g < n_groups; g++) {
    int lanes[LANES];
    for (int j = 0; j < LANES; j++) lanes[j] = places[(LANES * g + j) % n_all];
    vf_gather_at(r[g].x, x, CKPT_KS_SUB, lanes);
    begin_refinement(&r[g], n_levels);
  }
  bool has_changed = true;
  for (int sweep = 0; sweep < 5 && has_changed; sweep++) {
    has_changed = false;
    for (int g = 0; g < n_groups; g++) r[g].has_changed = vm_none();
    for (int i = 0; i < CKPT_KS_SUB; i++)
      for (int g = 0; g < n_groups; g++) refine_element(&r[g], i, n_levels);
    for (int g = 0; g < n_groups; g++) has_changed |= vm_bits(r[g].has_changed) != 0;
  }
  for (int g = 0; g < n_groups; g++) {
    vm is_fit = vm_and(vf_less(zero, r[g].fit.ll), vm_not(r[g].is_zero));
    vf_store(scales + LANES * g, vf_select(is_fit, r[g].fit.xl / r[g].fit.ll, zero));
    lost |= vm_bits(r[g].is_lost) << LANES * g;
  }
  return lost;
}

/* The scales of sub-blocks of which no level moves, which is most of them: as long as none does, the sums do not change
 * and elements do not wait for each other. Bit j of what it returns: in sub-block `first` + j one may move. */
TARGET static inline unsigned refine_still_lanes(const float *x, int first, int n_all, int top, float *scales) {
  const vf n_levels = vf_set((float)top), zero = vf_set(0), magic = vf_set(12582912.0f);
  vf xs[CKPT_KS_SUB], levels[CKPT_KS_SUB], xl[CKPT_KS_SUB], ll[CKPT_KS_SUB];
  lanes_fit fit = {zero, zero};
  vm may_move = vm_none();
  vf_gather(xs, x, CKPT_KS_SUB, first, n_all);
  vf extreme = extreme_lanes(CKPT_KS_SUB, xs);
  vm is_zero = vf_less(vf_abs(extreme), vf_set(CKPT_QUANT_EPSILON));
  vf inverse = vf_negate(n_levels) / vf_select(is_zero, vf_set(1), extreme);
  for (int i = 0; i < CKPT_KS_SUB; i++) {
    vf w = xs[i] * xs[i];
    levels[i] = round_levels(inverse * xs[i], n_levels);
    xl[i] = w * xs[i] * levels[i];
    ll[i] = w * levels[i] * levels[i];
    fit.xl += xl[i];
    fit.ll += ll[i];
  }
  for (int i = 0; i < CKPT_KS_SUB; i++) {
    lanes_fit others = {fit.xl - xl[i], fit.ll - ll[i]};
    vf exact = xs[i] * others.ll / others.xl, level = vf_min((exact + magic) - magic, n_levels - vf_set(1));
    vm is_still = vm_and(vf_equal(level, levels[i]), vf_less(exact, vf_set(4194304.0f)));
    may_move = vm_or(may_move, vm_and(vf_less(zero, others.xl), vm_not(is_still)));
  }
  vf_store(scales, vf_select(vm_and(vf_less(zero, fit.ll), vm_not(is_zero)), fit.xl / fit.ll, zero));
  return vm_bits(vm_and(may_move, vm_not(is_zero)));
}

/* ---- Q6_K and Q3_K ----------------------------------------------------------------------------------------------- */

/* Apart from its callers: within them gcc 12 does not make vectors of it. */
TARGET __attribute__((noinline)) static void recode_apart(float scale, int n_levels, const float *x, uint8_t *codes) {
  ckpt_ks_recode(scale, n_levels, x, codes);
}

/* ckpt_quant_symmetric of n values, with a scale in each lane. */
TARGET static inline float symmetric_alone(int n, int top, const float *x, const float *weights, uint8_t *codes) {
  enum { N_TRIED = 19, N_PLACES = (N_TRIED + LANES - 1) / LANES * LANES };
  float extreme = ckpt_extreme(x, (size_t)n), inverses[N_PLACES], xl[N_PLACES], ll[N_PLACES], scale, best;
  vf xs[32], ws[32], wx[32];
  if (!(fabsf(extreme) >= CKPT_QUANT_EPSILON && fabsf(extreme) <= FLT_MAX))
    return ckpt_quant_symmetric(n, top, x, weights, codes);
  for (int i = 0; i < n; i++) {
    if (!(fabsf(x[i]) <= FLT_MAX)) return ckpt_quant_symmetric(n, top, x, weights, codes);
    xs[i] = vf_set(x[i]);
    ws[i] = vf_set(weights[i]);
    wx[i] = ws[i] * xs[i];
  }
  for (int k = 0; k < N_PLACES; k++) inverses[k] = -((float)top + 0.1f * (float)(k - N_TRIED / 2)) / extreme;
  for (int k = 0; k < N_TRIED; k += LANES) {
    lanes_fit fit = fit_levels_lanes(n, xs, ws, wx, vf_set((float)top), vf_load(inverses + k), false);
    vf_store(xl + k, fit.xl);
    vf_store(ll + k, fit.ll);
  }
  int found = N_TRIED / 2;
  scale = ll[found] != 0 ? xl[found] / ll[found] : 0;
  best = scale * xl[found];
  for (int k = 0; k < N_TRIED; k++) {
    if (k == N_TRIED / 2 || !(ll[k] > 0 && xl[k] * xl[k] > best * ll[k])) continue;
    found = k;
    scale = xl[k] / ll[k];
    best = scale * xl[k];
  }
  symmetric_codes(n, top, x, inverses[found], codes);
  return scale;
}

/* Scales, sums of weights and inverses of the 16 sub-blocks of a superblock. */
typedef struct symmetric_found {
  float scales[16], weights[16], inverses[16];
} symmetric_found;

/* importance NULL: weights are squares (Q6_K). sigma2 < 0: they are importance itself (Q6_K). */
TARGET ALWAYS_INLINE static inline void search_symmetric(int top, const float *x, const float *importance, float sigma2,
                                                         symmetric_found *found) {
  for (int first = 0; first < CKPT_KS_N_SUB; first += LANES) {
    vf xs[CKPT_KS_SUB], ws[CKPT_KS_SUB], sum = vf_set(0), inverse;
    vf_gather(xs, x, CKPT_KS_SUB, first, CKPT_KS_N_SUB);
    if (importance) vf_gather(ws, importance, CKPT_KS_SUB, first, CKPT_KS_N_SUB);
    for (int i = 0; i < CKPT_KS_SUB; i++) {
      if (importance == NULL)
        ws[i] = xs[i] * xs[i];
      else if (sigma2 >= 0)
        ws[i] = ws[i] * vf_sqrt(vf_set(sigma2) + xs[i] * xs[i]);
      sum += ws[i];
    }
    vf_store(found->scales + first, search_symmetric_lanes(CKPT_KS_SUB, top, xs, ws, &inverse));
    vf_store(found->weights + first, sum);
    vf_store(found->inverses + first, inverse);
  }
}

/* A row of Q6_K. */
TARGET ALWAYS_INLINE static inline void quantize_q6(uint8_t *dst, const float *x, size_t n, const float *importance) {
  symmetric_found found;
  uint8_t codes[CKPT_SUPER];
  for (size_t at = 0; at < n; at += CKPT_SUPER, dst += CKPT_Q6_BYTES) {
    search_symmetric(32, x + at, importance ? importance + at : NULL, -1, &found);
    for (int j = 0; j < CKPT_KS_N_SUB; j++)
      symmetric_codes(CKPT_KS_SUB, 32, x + at + CKPT_KS_SUB * j, found.inverses[j], codes + CKPT_KS_SUB * j);
    ckpt_ks_finish6(recode_apart, dst, x + at, found.scales, codes);
  }
}

/* The slot. */
TARGET static void quantize_q6_k(uint8_t *dst, const float *x, size_t n, const float *importance) {
  if (importance)
    quantize_q6(dst, x, n, importance);
  else
    quantize_q6(dst, x, n, NULL);
}

/* A superblock of Q3_K. */
TARGET ALWAYS_INLINE static inline void quantize_q3_weighted(uint8_t *dst, const float *x, const float *importance) {
  symmetric_found found;
  uint8_t codes[CKPT_SUPER], scale_codes[CKPT_KS_N_SUB];
  search_symmetric(4, x, importance, 2 * ckpt_sum_squares(x, CKPT_SUPER) / CKPT_SUPER, &found);
  for (int j = 0; j < CKPT_KS_N_SUB; j++)
    symmetric_codes(CKPT_KS_SUB, 4, x + CKPT_KS_SUB * j, found.inverses[j], codes + CKPT_KS_SUB * j);
  float d = symmetric_alone(CKPT_KS_N_SUB, 32, found.scales, found.weights, scale_codes);
  ckpt_ks_finish3(recode_apart, dst, x, d, scale_codes, codes);
}

/* Superblocks of Q3_K that are searched together. */
enum { Q3_CHUNK = 16 };

/* The scales of the sub-blocks of up to Q3_CHUNK superblocks; room for LANES more. */
TARGET static inline void scales_q3_plain(const float *x, int n_sub, float *scales) {
  int moving[Q3_CHUNK * CKPT_KS_N_SUB], n_moving = 0;
  for (int first = 0; first < n_sub; first += LANES) {
    unsigned bits = refine_still_lanes(x, first, n_sub, 4, scales + first);
    for (int j = 0; j < LANES && first + j < n_sub; j++)
      if (bits >> j & 1) moving[n_moving++] = first + j;
  }
  for (int at = 0; at < n_moving; at += 32) {
    float found[32];
    uint8_t codes[CKPT_KS_SUB];
    int n = n_moving - at < 32 ? n_moving - at : 32;
    uint32_t lost = refine_lanes(x, moving + at, n, 4, found);
    for (int j = 0; j < n; j++) {
      int sub = moving[at + j];
      scales[sub] = lost >> j & 1 ? ckpt_quant_refine(CKPT_KS_SUB, 4, x + CKPT_KS_SUB * sub, codes) : found[j];
    }
  }
}

/* Up to Q3_CHUNK superblocks. */
TARGET static inline void quantize_q3_plain(uint8_t *dst, const float *x, int n_blocks) {
  float scales[Q3_CHUNK * CKPT_KS_N_SUB + LANES];
  uint8_t codes[CKPT_SUPER], scale_codes[CKPT_KS_N_SUB];
  scales_q3_plain(x, CKPT_KS_N_SUB * n_blocks, scales);
  for (int b = 0; b < n_blocks; b++, x += CKPT_SUPER, dst += CKPT_Q3_BYTES) {
    float d = ckpt_ks_scale_plain3(scales + CKPT_KS_N_SUB * b, scale_codes), unit = ckpt_f16_value(ckpt_f16_bits(d));
    for (int j = 0; j < CKPT_KS_N_SUB; j++) /* codes of the search stay where the scale is zero */
      if (unit * (float)(scale_codes[j] - 32) == 0)
        ckpt_quant_refine(CKPT_KS_SUB, 4, x + CKPT_KS_SUB * j, codes + CKPT_KS_SUB * j);
    ckpt_ks_finish3(recode_apart, dst, x, d, scale_codes, codes);
  }
}

/* The slot. */
TARGET static void quantize_q3_k(uint8_t *dst, const float *x, size_t n, const float *importance) {
  for (size_t at = 0; at < n && importance; at += CKPT_SUPER, dst += CKPT_Q3_BYTES)
    quantize_q3_weighted(dst, x + at, importance + at);
  for (size_t at = 0; at < n && !importance; at += Q3_CHUNK * CKPT_SUPER, dst += Q3_CHUNK * CKPT_Q3_BYTES) {
    size_t n_left = (n - at) / CKPT_SUPER;
    quantize_q3_plain(dst, x + at, n_left < Q3_CHUNK ? (int)n_left : Q3_CHUNK);
  }
}

/* ---- Q4_0, Q4_1, Q5_0, Q5_1 with importance: blocks in lanes ------------------------------------------------------
 */

/* Up to LANES blocks. */
TARGET ALWAYS_INLINE static inline void quantize_legacy_lanes(ckpt_legacy_layout t, uint8_t *dst, const float *x,
                                                              int n_blocks, const float *importance, float sigma2) {
  const int top = t.has_min ? (1 << t.bits) - 1 : 1 << (t.bits - 1);
  vf xs[CKPT_LEGACY], ws[CKPT_LEGACY];
  float scales[LANES], mins[LANES], inverses[LANES], bases[LANES];
  unsigned lost = 0;
  vf_gather(xs, x, CKPT_LEGACY, 0, n_blocks);
  vf_gather(ws, importance, CKPT_LEGACY, 0, n_blocks);
  for (int i = 0; i < CKPT_LEGACY; i++) ws[i] = ws[i] * vf_sqrt(vf_set(sigma2) + xs[i] * xs[i]);
  if (t.has_min) {
    lanes_affine found;
    search_affine_lanes(CKPT_LEGACY, top, xs, ws, &ckpt_k_weighted_steps, &found);
    vf_store(scales, found.scale);
    vf_store(mins, found.negated_min);
    vf_store(inverses, found.inverse);
    vf_store(bases, found.base);
    lost = vm_bits(found.is_lost);
  } else {
    vf inverse;
    vf_store(scales, search_symmetric_lanes(CKPT_LEGACY, top, xs, ws, &inverse));
    vf_store(inverses, inverse);
  }
  for (int j = 0; j < n_blocks; j++, x += CKPT_LEGACY, dst += ckpt_legacy_block_bytes(t)) {
    uint8_t codes[CKPT_LEGACY];
    if (lost >> j & 1) {
      float weights[CKPT_LEGACY];
      ckpt_quant_weigh(weights, x, importance + CKPT_LEGACY * j, sigma2, CKPT_LEGACY);
      ckpt_legacy_quantize_weighted(t, dst, x, weights);
      continue;
    }
    ckpt_put_f16(dst, scales[j]);
    if (t.has_min) {
      ckpt_put_f16(dst + 2, -mins[j]);
      for (int i = 0; i < CKPT_LEGACY; i++)
        codes[i] = (uint8_t)ckpt_clamp(ckpt_nearest(inverses[j] * (x[i] - bases[j])), 0, top);
    } else {
      symmetric_codes(CKPT_LEGACY, top, x, inverses[j], codes);
    }
    ckpt_legacy_pack(t, dst, codes);
  }
}

/* The slot of a type: rows without importance are done as `plain` says. */
#define LEGACY_TYPE(name, plain)                                                                                      \
  TARGET static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) {               \
    float sigma2 = importance ? ckpt_sum_squares(x, n) / (float)n : 0;                                                \
    if (importance == NULL) {                                                                                         \
      plain(dst, x, n, NULL);                                                                                         \
      return;                                                                                                         \
    }                                                                                                                 \
    for (size_t at = 0; at < n; at += LANES * CKPT_LEGACY) {                                                          \
      size_t n_left = (n - at) / CKPT_LEGACY;                                                                         \
      quantize_legacy_lanes(ckpt_##name, dst, x + at, n_left < LANES ? (int)n_left : LANES, importance + at, sigma2); \
      dst += LANES * ckpt_legacy_block_bytes(ckpt_##name);                                                            \
    }                                                                                                                 \
  }

#endif
