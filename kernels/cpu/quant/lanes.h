/* lanes.h - the searches of kernels/ref/quant/search.c with one sub-block in each lane; included by the file of
 * one instruction set, which defines LANES, TARGET, vf (f32), vm (masks) and the functions on them that are used here.
 *
 * Every lane does the reference's operations in its order; a lane that has stopped improving goes on computing, but
 * keeps what it has. Rounding adds and takes off 2^23 + 2^22, which is the reference's result for magnitudes below
 * 2^22: lanes in which a larger one may occur are reported, and done again by the reference. */
#ifndef CKPT_KERNELS_CPU_QUANT_LANES_H
#define CKPT_KERNELS_CPU_QUANT_LANES_H

#include "kernels/ref/quant/k.h"

/* Vector i has element i of each of the sub-blocks (of n, a multiple of 4) at these places. */
TARGET static inline void vf_gather_at(vf *out, const float *x, int n, const int *places) {
  for (int i = 0; i < n; i += 4) {
    vf a = vf_load_rows(x + i, n, places), b = vf_load_rows(x + i, n, places + 1);
    vf c = vf_load_rows(x + i, n, places + 2), d = vf_load_rows(x + i, n, places + 3);
    vf ab = vf_zip_low(a, b), cd = vf_zip_low(c, d);
    out[i] = vf_join_low(ab, cd);
    out[i + 1] = vf_join_high(ab, cd);
    ab = vf_zip_high(a, b);
    cd = vf_zip_high(c, d);
    out[i + 2] = vf_join_low(ab, cd);
    out[i + 3] = vf_join_high(ab, cd);
  }
}

/* Vector i has element i of each of the sub-blocks (of n) from `first` on, the first ones again behind n_all. */
TARGET static inline void vf_gather(vf *out, const float *x, int n, int first, int n_all) {
  int places[LANES];
  for (int j = 0; j < LANES; j++) places[j] = (first + j) % n_all;
  vf_gather_at(out, x, n, places);
}

/* Codes: integers from 0 to max, as f32. */
TARGET static inline vf round_codes(vf x, vf max) {
  const vf magic = vf_set(12582912.0f);
  return vf_min(vf_max((x + magic) - magic, vf_set(0)), max);
}

/* Lanes in which some x of [low, high] may not be rounded as above. */
TARGET static inline vm out_of_range(vf low, vf high) {
  return vm_not(vm_and(vf_less(vf_set(-4194304.0f), low), vf_less(high, vf_set(4194304.0f))));
}

/* What ckpt_quant_affine finds, in each lane. */
typedef struct lanes_affine {
  vf scale, negated_min, sum_w;
  vf inverse, base; /* codes are inverse * (x - base), rounded */
  vm is_lost;       /* to be done again */
} lanes_affine;

/* One candidate: codes under inverse and min, and the scale and minimum that fit them best. */
typedef struct affine_fit {
  vf scale, min;
  vm is_valid;
} affine_fit;

/* The fit of the codes under inverse and min, which it gives too. */
TARGET static inline affine_fit fit_affine_lanes(int n, const vf *x, const vf *w, vf inverse, vf min, vf max_code,
                                                 vf sum_w, vf sum_x, vf *codes) {
  const vf zero = vf_set(0);
  vf sum_l = zero, sum_ll = zero, sum_xl = zero;
  for (int i = 0; i < n; i++) {
    vf l = round_codes(inverse * (x[i] - min), max_code), wl = w[i] * l;
    codes[i] = l;
    sum_l += wl;
    sum_ll += wl * l;
    sum_xl += wl * x[i];
  }
  vf determinant = sum_w * sum_ll - sum_l * sum_l;
  vf scale = (sum_w * sum_xl - sum_x * sum_l) / determinant, this_min = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
  vm is_above = vf_less(zero, this_min);
  return (affine_fit){vf_select(is_above, sum_xl / sum_ll, scale), vf_select(is_above, zero, this_min),
                      vf_less(zero, determinant)};
}

/* The weighted error of codes. */
TARGET static inline vf affine_error_lanes(int n, const vf *x, const vf *w, const vf *codes, vf scale, vf min,
                                           bool is_absolute) {
  vf error = vf_set(0);
  for (int i = 0; i < n; i++) {
    vf difference = scale * codes[i] + min - x[i];
    if (is_absolute)
      error += w[i] * vf_abs(difference);
    else
      error += w[i] * (difference * difference);
  }
  return error;
}

/* ckpt_quant_affine of the n vectors at x with weights w. Always inlined: n, is_absolute and the bounds are constants
 * of the callers. */
TARGET ALWAYS_INLINE static inline void search_affine_lanes(int n, int top, const vf *x, const vf *w,
                                                            const ckpt_quant_steps *steps, lanes_affine *found) {
  const vf zero = vf_set(0), max_code = vf_set((float)top);
  vf codes[32], min = x[0], max = x[0], sum_w = w[0], sum_x = w[0] * x[0];
  for (int i = 1; i < n; i++) {
    min = vf_min(x[i], min);
    max = vf_max(x[i], max);
    sum_w += w[i];
    sum_x += w[i] * x[i];
  }
  vf lowest = min;
  min = vf_min(zero, min); /* the second of equals: -0 stays */
  vm is_alive = vf_less(min, max), is_lost = vm_none();
  vf range = vf_select(is_alive, max - min, vf_set(1)), inverse = max_code / range, scale = vf_set(1) / inverse;
  is_lost = vm_or(is_lost, out_of_range(inverse * (lowest - min), inverse * (max - min)));
  for (int i = 0; i < n; i++) codes[i] = round_codes(inverse * (x[i] - min), max_code);
  vf best = affine_error_lanes(n, x, w, codes, scale, min, steps->is_absolute);
  found->inverse = vf_select(is_alive, inverse, zero);
  found->base = min;
  for (int step = 0; step <= steps->n; step++) {
    range = vf_select(is_alive, max - min, vf_set(1)); /* min is that of the best so far */
    inverse = vf_set(steps->first + steps->step * (float)step + (float)top) / range;
    is_lost = vm_or(is_lost, out_of_range(inverse * (lowest - min), inverse * (max - min)));
    affine_fit fit = fit_affine_lanes(n, x, w, inverse, min, max_code, sum_w, sum_x, codes);
    vf error = affine_error_lanes(n, x, w, codes, fit.scale, fit.min, steps->is_absolute);
    vm is_better = vm_and(fit.is_valid, vf_less(error, best));
    best = vf_select(is_better, error, best);
    found->inverse = vf_select(vm_and(is_better, is_alive), inverse, found->inverse);
    found->base = vf_select(is_better, min, found->base);
    scale = vf_select(is_better, fit.scale, scale);
    min = vf_select(is_better, fit.min, min);
  }
  found->scale = vf_select(is_alive, scale, zero);
  found->negated_min = vf_negate(vf_select(is_alive, min, vf_min(zero, lowest)));
  found->sum_w = sum_w + zero;
  found->is_lost = vm_and(is_lost, is_alive);
}

/* ---- superblocks with minima: Q2_K, Q4_K, Q5_K ------------------------------------------------------------------- */

/* Superblocks that fill the lanes, or one that fills them several times. */
enum { K_CHUNK = LANES > 8 ? 2 : 1 };

/* Sub-blocks [first, first + LANES) of a chunk of superblocks; found and sigma2 are per superblock. */
TARGET ALWAYS_INLINE static inline void search_k_lanes(const ckpt_k_layout *t, int n_sub, int first, int n_all,
                                                       const float *x, const float *importance, const float *sigma2,
                                                       ckpt_k_found *found) {
  const int n = CKPT_SUPER / n_sub;
  vf xs[32], ws[32], lane_sigma2 = vf_set(0);
  float scales[LANES], mins[LANES], sums[LANES], sigmas[LANES];
  lanes_affine lanes;
  for (int j = 0; j < LANES; j++) sigmas[j] = sigma2[(first + j) % n_all / n_sub];
  lane_sigma2 = vf_load(sigmas);
  vf_gather(xs, x, n, first, n_all);
  if (importance) {
    vf_gather(ws, importance, n, first, n_all);
    for (int i = 0; i < n; i++) ws[i] = ws[i] * vf_sqrt(lane_sigma2 + xs[i] * xs[i]);
    search_affine_lanes(n, (1 << t->bits) - 1, xs, ws, &ckpt_k_weighted_steps, &lanes);
  } else {
    vf mean = vf_set(0);
    for (int i = 0; i < n && t->bits != 2; i++) mean += xs[i] * xs[i];
    mean = vf_sqrt(mean / vf_set((float)n));
    for (int i = 0; i < n; i++) ws[i] = mean + vf_abs(xs[i]);
    search_affine_lanes(n, (1 << t->bits) - 1, xs, ws, &t->steps, &lanes);
  }
  vf_store(scales, lanes.scale);
  vf_store(mins, lanes.negated_min);
  vf_store(sums, lanes.sum_w);
  unsigned lost = vm_bits(lanes.is_lost);
  for (int j = 0; j < LANES && first + j < n_all; j++) {
    int block = (first + j) / n_sub, sub = (first + j) % n_sub;
    found[block].scales[sub] = scales[j];
    found[block].mins[sub] = mins[j];
    found[block].weights[sub] = sums[j];
    if (lost >> j & 1)
      ckpt_k_search(t, sub, x + CKPT_SUPER * block, importance ? importance + CKPT_SUPER * block : NULL, sigma2[block],
                    &found[block]);
  }
}

/* Codes, under the scales that were written. Those of a sub-block whose scale is zero come from its search. */
TARGET ALWAYS_INLINE static inline void finish_k(const ckpt_k_layout *t, uint8_t *dst, const float *x,
                                                 const float *importance, float sigma2, ckpt_k_found *s) {
  uint8_t scales[CKPT_K_MAX_SUB], mins[CKPT_K_MAX_SUB];
  float d, dmin;
  ckpt_k_put_scales(t, dst, s, importance != NULL, &d, &dmin);
  ckpt_k_unpack_scales(t, ckpt_k_fields_of(t, dst), scales, mins);
  for (int j = 0; j < t->n_sub; j++)
    if (d * (float)scales[j] == 0) ckpt_k_search(t, j, x, importance, sigma2, s);
  ckpt_k_recode(t, ckpt_k_fields_of(t, dst), d, dmin, x, s->codes);
  ckpt_k_pack_codes(t, dst, s->codes);
}

/* A row. */
TARGET ALWAYS_INLINE static inline void quantize_k(const ckpt_k_layout *t, uint8_t *dst, const float *x, size_t n,
                                                   const float *importance) {
  ckpt_k_found found[K_CHUNK];
  float sigma2[K_CHUNK] = {0};
  size_t n_bytes = ckpt_k_block_bytes(t);
  for (size_t at = 0; at < n; at += K_CHUNK * CKPT_SUPER) {
    size_t n_left = (n - at) / CKPT_SUPER, n_blocks = n_left < K_CHUNK ? n_left : K_CHUNK;
    const float *weights = importance ? importance + at : NULL;
    for (size_t b = 0; b < n_blocks && importance; b++) {
      float sum = ckpt_sum_squares(x + at + b * CKPT_SUPER, CKPT_SUPER);
      sigma2[b] = (t->bits == 2 ? sum : 2 * sum) / CKPT_SUPER;
    }
    for (int first = 0, n_all = (int)n_blocks * t->n_sub; first < n_all; first += LANES)
      search_k_lanes(t, t->n_sub, first, n_all, x + at, weights, sigma2, found);
    for (size_t b = 0; b < n_blocks; b++, dst += n_bytes)
      finish_k(t, dst, x + at + b * CKPT_SUPER, weights ? weights + b * CKPT_SUPER : NULL, sigma2[b], &found[b]);
  }
}

/* The slot of a type. */
#define K_TYPE(name)                                                                                    \
  TARGET static void quantize_##name(uint8_t *dst, const float *x, size_t n, const float *importance) { \
    if (importance)                                                                                     \
      quantize_k(&ckpt_##name, dst, x, n, importance);                                                  \
    else                                                                                                \
      quantize_k(&ckpt_##name, dst, x, n, NULL);                                                        \
  }

/* The three. */
K_TYPE(q2_k)
K_TYPE(q4_k)
K_TYPE(q5_k)

#endif
