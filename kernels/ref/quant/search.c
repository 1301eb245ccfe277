/* search.c - the searches for scales that block types share; see quant.h.
 *
 * All of them try some scales, take the codes that each one gives, and keep the scale for which the weighted squared
 * error is least. With codes fixed the best scale is <w x l> / <w l l>, and its error is smaller the larger
 * <w x l>^2 / <w l l> is: comparisons are made crosswise, without dividing.
 * The arithmetic is that of make_qx_quants, make_q3_quants, make_qkx2_quants, make_qkx3_quants and make_qp_quants in
 * ggml-quants.c. Products associate to the left: w * x * l is (w * x) * l. */
#include "kernels/ref/quant/quant.h"

/* Sums over weights w, values x and levels l. */
typedef struct fit {
  float xl, ll; /* <w x l>, <w l l> */
} fit;

static inline float weight_of(const float *weights, const float *x, int i) {
  return weights ? weights[i] : x[i] * x[i];
}

static inline void add_level(fit *f, float w, float x, int l) {
  f->xl += w * x * (float)l;
  f->ll += w * (float)l * (float)l;
}

static inline int level_at(float inverse, float x, int n_levels) {
  return ckpt_clamp(ckpt_nearest(inverse * x), -n_levels, n_levels - 1);
}

static fit fit_levels(int n, int n_levels, const float *x, const float *weights, float inverse) {
  fit f = {0, 0};
  for (int i = 0; i < n; i++) add_level(&f, weight_of(weights, x, i), x[i], level_at(inverse, x[i], n_levels));
  return f;
}

float ckpt_quant_symmetric(int n, int n_levels, const float *x, const float *weights, uint8_t *codes) {
  float extreme = ckpt_extreme(x, (size_t)n);
  if (fabsf(extreme) < CKPT_QUANT_EPSILON) {
    memset(codes, 0, (size_t)n);
    return 0;
  }
  float inverse = (float)-n_levels / extreme;
  fit f = fit_levels(n, n_levels, x, weights, inverse);
  float scale = f.ll != 0 ? f.xl / f.ll : 0, best = scale * f.xl;
  for (int step = -9; step <= 9; step++) {
    if (step == 0) continue; /* that one was the first */
    float candidate = -((float)n_levels + 0.1f * (float)step) / extreme;
    f = fit_levels(n, n_levels, x, weights, candidate);
    if (f.ll > 0 && f.xl * f.xl > best * f.ll) {
      inverse = candidate;
      scale = f.xl / f.ll;
      best = scale * f.xl;
    }
  }
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(n_levels + level_at(inverse, x[i], n_levels));
  return scale;
}

float ckpt_quant_refine(int n, int n_levels, const float *x, uint8_t *codes) {
  enum { MAX_SWEEPS = 5 };
  int levels[32];
  float extreme = ckpt_extreme(x, (size_t)n);
  if (fabsf(extreme) < CKPT_QUANT_EPSILON) {
    memset(codes, 0, (size_t)n);
    return 0;
  }
  fit f = {0, 0};
  for (int i = 0; i < n; i++) {
    levels[i] = level_at((float)-n_levels / extreme, x[i], n_levels);
    add_level(&f, x[i] * x[i], x[i], levels[i]);
  }
  bool has_changed = true;
  for (int sweep = 0; sweep < MAX_SWEEPS && has_changed; sweep++) {
    has_changed = false;
    for (int i = 0; i < n; i++) {
      float w = x[i] * x[i], l = (float)levels[i];
      fit others = {f.xl - w * x[i] * l, f.ll - w * l * l};
      if (!(others.xl > 0)) continue;
      int level = ckpt_clamp(ckpt_nearest(x[i] * others.ll / others.xl), -n_levels, n_levels - 1);
      if (level == levels[i]) continue;
      add_level(&others, w, x[i], level);
      if (others.ll > 0 && others.xl * others.xl * f.ll > f.xl * f.xl * others.ll) {
        levels[i] = level;
        f = others;
        has_changed = true;
      }
    }
  }
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(levels[i] + n_levels);
  return f.ll > 0 ? f.xl / f.ll : 0;
}

/* The weighted error of codes under a scale and a minimum. */
static float affine_error(int n, const float *x, const float *weights, const uint8_t *codes, float scale, float min,
                          bool is_absolute) {
  float error = 0;
  for (int i = 0; i < n; i++) {
    float difference = scale * (float)codes[i] + min - x[i];
    error += weights[i] * (is_absolute ? fabsf(difference) : difference * difference);
  }
  return error;
}

static void affine_codes(int n, int max_code, const float *x, float inverse, float min, uint8_t *codes) {
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)ckpt_clamp(ckpt_nearest(inverse * (x[i] - min)), 0, max_code);
}

/* The scale and minimum that fit codes best, the minimum not above zero; false where there are none. */
static bool fit_affine(int n, const float *x, const float *weights, const uint8_t *codes, float sum_w, float sum_x,
                       float *scale, float *min) {
  float sum_l = 0, sum_ll = 0, sum_xl = 0;
  for (int i = 0; i < n; i++) {
    float w = weights[i], l = (float)codes[i];
    sum_l += w * l;
    sum_ll += w * l * l;
    sum_xl += w * l * x[i];
  }
  float determinant = sum_w * sum_ll - sum_l * sum_l;
  if (!(determinant > 0)) return false;
  *scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
  *min = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
  if (*min > 0) {
    *min = 0;
    *scale = sum_xl / sum_ll;
  }
  return true;
}

float ckpt_quant_affine(int n, int max_code, const float *x, const float *weights, const ckpt_quant_steps *steps,
                        uint8_t *codes, float *negated_min) {
  uint8_t candidate[32];
  float min = x[0], max = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < n; i++) {
    if (x[i] < min) min = x[i];
    if (x[i] > max) max = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (min > 0) min = 0;
  *negated_min = -min;
  if (max <= min) {
    memset(codes, 0, (size_t)n);
    return 0;
  }
  float inverse = (float)max_code / (max - min), scale = 1 / inverse;
  affine_codes(n, max_code, x, inverse, min, codes);
  float best = affine_error(n, x, weights, codes, scale, min, steps->is_absolute);
  for (int step = 0; step <= steps->n; step++) {
    float this_scale, this_min;
    /* min is that of the best so far: later candidates build on it */
    inverse = (steps->first + steps->step * (float)step + (float)max_code) / (max - min);
    affine_codes(n, max_code, x, inverse, min, candidate);
    if (!fit_affine(n, x, weights, candidate, sum_w, sum_x, &this_scale, &this_min)) continue;
    float error = affine_error(n, x, weights, candidate, this_scale, this_min, steps->is_absolute);
    if (error < best) {
      memcpy(codes, candidate, (size_t)n);
      best = error;
      scale = this_scale;
      min = this_min;
    }
  }
  *negated_min = -min;
  return scale;
}

/* The inverse scale, of nine around max_code / max, that gives the least error. */
static float best_positive_inverse(int n, int max_code, const float *x, const float *weights, float max) {
  float best_inverse = (float)max_code / max, best = 0;
  for (int i = 0; i < n; i++) { /* codes of the first are not cut at max_code, but to their byte */
    float difference = x[i] - 1 / best_inverse * (float)(uint8_t)ckpt_nearest(best_inverse * x[i]);
    best += weights[i] * difference * difference;
  }
  for (int step = -4; step <= 4; step++) {
    if (step == 0) continue;
    float inverse = (0.1f * (float)step + (float)max_code) / max, scale = 1 / inverse, error = 0;
    for (int i = 0; i < n; i++) {
      int l = ckpt_nearest(inverse * x[i]);
      float difference = x[i] - scale * (float)(l < max_code ? l : max_code);
      error += weights[i] * difference * difference;
    }
    if (error < best) {
      best = error;
      best_inverse = inverse;
    }
  }
  return best_inverse;
}

float ckpt_quant_positive(int n, int max_code, const float *x, const float *weights, uint8_t *codes) {
  enum { MAX_SWEEPS = 5 };
  float max = 0;
  for (int i = 0; i < n; i++) max = max > x[i] ? max : x[i];
  if (max < CKPT_QUANT_EPSILON) {
    memset(codes, 0, (size_t)n);
    return 0;
  }
  float inverse = best_positive_inverse(n, max_code, x, weights, max);
  fit f = {0, 0};
  for (int i = 0; i < n; i++) {
    int l = ckpt_nearest(inverse * x[i]);
    if (l > max_code) l = max_code;
    codes[i] = (uint8_t)l;
    add_level(&f, weights[i], x[i], l);
  }
  bool has_changed = true;
  for (int sweep = 0; sweep < MAX_SWEEPS && has_changed; sweep++) {
    has_changed = false;
    for (int i = 0; i < n; i++) {
      float w = weights[i], l = (float)codes[i];
      fit others = {f.xl - w * x[i] * l, f.ll - w * l * l};
      if (!(others.xl > 0 && others.ll > 0)) continue;
      int level = ckpt_nearest(x[i] * others.ll / others.xl);
      if (level > max_code) level = max_code;
      if (level == codes[i]) continue;
      add_level(&others, w, x[i], level);
      if (others.xl * others.xl * f.ll > f.xl * f.xl * others.ll) {
        codes[i] = (uint8_t)level;
        f = others;
        has_changed = true;
      }
    }
  }
  return f.ll > 0 ? f.xl / f.ll : 0;
}
