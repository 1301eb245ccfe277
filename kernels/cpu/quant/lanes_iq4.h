/* lanes_iq4.h - IQ4_NL and IQ4_XS with one sub-block in each lane; included behind lanes_symmetric.h.
 *
 * The nearest of sixteen values is found by counting the midpoints that x has reached: midpoints are exact, and the
 * distances that the reference compares are equal there and nowhere else. */
#ifndef CKPT_KERNELS_CPU_QUANT_LANES_IQ4_H
#define CKPT_KERNELS_CPU_QUANT_LANES_IQ4_H

#include "kernels/cpu/quant/lanes_symmetric.h"
#include "kernels/ref/quant/iq4.h"

/* The value nearest to x. */
TARGET ALWAYS_INLINE static inline vf nearest_value(vf x) {
  vf q = vf_set((float)ckpt_iq4_values[0]);
  for (int k = 1; k < 16; k++) {
    float a = (float)ckpt_iq4_values[k - 1], b = (float)ckpt_iq4_values[k];
    q += vf_select(vf_less(x, vf_set((a + b) * 0.5f)), vf_set(0), vf_set(b - a));
  }
  return q;
}

/* Sums under one inverse scale. */
TARGET ALWAYS_INLINE static inline lanes_fit fit_values(const vf *x, const vf *w, vf inverse) {
  lanes_fit fit = {vf_set(0), vf_set(0)};
  for (int i = 0; i < CKPT_IQ4_SUB; i++) {
    vf q = nearest_value(inverse * x[i]), wq = w[i] * q;
    fit.xl += wq * x[i];
    fit.ll += wq * q;
  }
  return fit;
}

/* The best scale of each lane; 0 where all is zero. */
TARGET static inline vf search_iq4_lanes(const vf *x, const vf *w) {
  const vf zero = vf_set(0);
  vf extreme = extreme_lanes(CKPT_IQ4_SUB, x);
  vm is_zero = vf_less(vf_abs(extreme), vf_set(CKPT_QUANT_EPSILON));
  extreme = vf_select(is_zero, vf_set(1), extreme);
  lanes_fit fit = fit_values(x, w, vf_set(1) / (vf_negate(extreme) / vf_set((float)ckpt_iq4_values[0])));
  vf scale = vf_select(vf_less(zero, fit.ll), fit.xl / fit.ll, zero), best = scale * fit.xl;
  for (int step = -CKPT_IQ4_STEPS; step <= CKPT_IQ4_STEPS; step++) {
    fit = fit_values(x, w, vf_set((float)(step + ckpt_iq4_values[0])) / extreme);
    vm is_better = vm_and(vf_less(zero, fit.ll), vf_less(best * fit.ll, fit.xl * fit.xl));
    vf this_scale = fit.xl / fit.ll;
    scale = vf_select(is_better, this_scale, scale);
    best = vf_select(is_better, this_scale * fit.xl, best);
  }
  return vf_select(is_zero, zero, scale);
}

/* Scales of the sub-blocks at x, LANES at most. sigma2: one for each. */
TARGET ALWAYS_INLINE static inline void scales_iq4(const float *x, int n_sub, const float *importance,
                                                   const float *sigma2, float *scales) {
  vf xs[CKPT_IQ4_SUB], ws[CKPT_IQ4_SUB];
  vf_gather(xs, x, CKPT_IQ4_SUB, 0, n_sub);
  if (importance) vf_gather(ws, importance, CKPT_IQ4_SUB, 0, n_sub);
  for (int i = 0; i < CKPT_IQ4_SUB; i++)
    ws[i] = importance ? ws[i] * vf_sqrt(vf_load(sigma2) + xs[i] * xs[i]) : xs[i] * xs[i];
  vf_store(scales, search_iq4_lanes(xs, ws));
}

/* The slots: LANES sub-blocks at a time. */
TARGET static void quantize_iq4_nl(uint8_t *dst, const float *x, size_t n, const float *importance) {
  float scales[LANES], sigma2[LANES] = {0};
  for (size_t at = 0; at < n; at += LANES * CKPT_IQ4_SUB) {
    size_t n_left = (n - at) / CKPT_IQ4_SUB;
    int n_sub = n_left < LANES ? (int)n_left : LANES;
    for (int j = 0; j < n_sub && importance; j++)
      sigma2[j] = ckpt_sum_squares(x + at + CKPT_IQ4_SUB * j, CKPT_IQ4_SUB) * (2.0f / CKPT_IQ4_SUB);
    scales_iq4(x + at, n_sub, importance ? importance + at : NULL, sigma2, scales);
    for (int j = 0; j < n_sub; j++, dst += 18) {
      ckpt_put_f16(dst, scales[j]);
      ckpt_iq4_put_codes(dst + 2, x + at + CKPT_IQ4_SUB * j, scales[j] != 0 ? 1 / scales[j] : 0);
    }
  }
}

/* As above: one or two superblocks. */
TARGET static void quantize_iq4_xs(uint8_t *dst, const float *x, size_t n, const float *importance) {
  float scales[LANES], sigma2[LANES] = {0};
  for (size_t at = 0; at < n; at += LANES * CKPT_IQ4_SUB) {
    size_t n_left = (n - at) / CKPT_IQ4_SUB;
    int n_sub = n_left < LANES ? (int)n_left : LANES;
    for (int j = 0; j < n_sub && importance; j++)
      sigma2[j] =
          j % 8 != 0 ? sigma2[j - 1] : ckpt_sum_squares(x + at + CKPT_IQ4_SUB * j, CKPT_SUPER) * (2.0f / CKPT_SUPER);
    scales_iq4(x + at, n_sub, importance ? importance + at : NULL, sigma2, scales);
    for (int j = 0; j < n_sub; j += 8, dst += 136) ckpt_iq4_finish_xs(dst, x + at + CKPT_IQ4_SUB * j, scales + j);
  }
}

#endif
