/* elements.h - what becomes of one element: activations, norms, rope, AdamW. The loops over them are each backend's own
 * (pointwise.h, rows.h, kernels/cuda/tape). Included by a file that has defined CKPT_REAL_BITS. */
#ifndef CKPT_KERNELS_REF_TAPE_ELEMENTS_H
#define CKPT_KERNELS_REF_TAPE_ELEMENTS_H

#include "kernels/ref/tape/formulas.h"
#include "kernels/ref/tape/tape_kernels.h"

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* silu(gate) * up */
static inline CKPT_DEVICE real silu_mul_of(real gate, real up) { return gate * real_logistic(gate) * up; }

/* Its gradients. */
static inline CKPT_DEVICE void silu_mul_gradients(real gate, real up, real d_out, real *d_gate, real *d_up) {
  real s = real_logistic(gate), silu = gate * s;
  *d_up = d_out * silu;
  *d_gate = d_out * up * (s + silu * (1 - s));
}

/* gelu(x) = x / 2 (1 + tanh u) = x logistic(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
#define GELU_SLOPE ((real)1.5957691216057307117) /* 2 sqrt(2 / pi) */
#define GELU_CUBE ((real)0.044715)

/* As above. */
static inline CKPT_DEVICE real gelu_of(real x) { return x * real_logistic(GELU_SLOPE * (x + GELU_CUBE * (x * x * x))); }

/* Its gradient. */
static inline CKPT_DEVICE real gelu_gradient(real x, real d_out) {
  real square = x * x, s = real_logistic(GELU_SLOPE * (x + GELU_CUBE * (square * x)));
  real slope = GELU_SLOPE * (1 + 3 * GELU_CUBE * square);
  return d_out * (s + x * (s * (1 - s)) * slope);
}

/* gelu_exact(x) = x / 2 erfc(-x / sqrt 2) */
#define SQRT_HALF ((real)0.70710678118654752440)

/* As above. */
static inline CKPT_DEVICE real gelu_exact_of(real x) { return (real)0.5 * x * real_erfc(-x * SQRT_HALF); }

/* Its gradient. */
static inline CKPT_DEVICE real gelu_exact_gradient(real x, real d_out) {
  real density = (real)0.39894228040143267794 * real_exp((real)-0.5 * x * x);
  return d_out * ((real)0.5 * real_erfc(-x * SQRT_HALF) + x * density);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* 1 / sqrt(sum of squares / n + epsilon) */
static inline CKPT_DEVICE real norm_inverse(real squares, real n, real epsilon) {
  return 1 / REAL_SQRT(squares / n + epsilon);
}

/* An element of rmsnorm. */
static inline CKPT_DEVICE real rmsnorm_of(real x, real inverse, real weight) { return x * inverse * weight; }

/* An element of layernorm. */
static inline CKPT_DEVICE real layernorm_of(real x, real mean, real inverse, real weight, real shift) {
  return (x - mean) * inverse * weight + shift;
}

/* What comes back to an element: tilt and shift are means of d_y * weight, with and without the normalized element. */
static inline CKPT_DEVICE real norm_gradient(real x, real mean, real inverse, real d_y_weight, real shift, real tilt) {
  real normal = (x - mean) * inverse;
  return inverse * (d_y_weight - shift - normal * tilt);
}

/* ---- rope -------------------------------------------------------------------------------------------------------- */

/* A pair, rotated. */
static inline CKPT_DEVICE void rotate_pair(real *first, real *second, real cosine, real sine) {
  real x = *first, y = *second;
  *first = x * cosine - y * sine;
  *second = y * cosine + x * sine;
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

/* log p of the target, and its mean over the vocabulary, in their shares; both less what is most of the row. */
static inline CKPT_DEVICE real smoothed_log(double smoothing, real target, real mean, real log_total) {
  const real share = (real)smoothing;
  if (smoothing == 0) return target - log_total;
  return (1 - share) * (target - log_total) + share * (mean - log_total);
}

/* What is subtracted from each logit's gradient, and what else from the target's. */
static inline CKPT_DEVICE real smoothed_share(double scale, double smoothing, size_t n) {
  return (real)(scale * smoothing / (double)n);
}
static inline CKPT_DEVICE real smoothed_rest(double scale, double smoothing) { /* as above */
  return (real)(scale * (1 - smoothing));
}

/* ---- AdamW ------------------------------------------------------------------------------------------------------- */

/* What the elements of a step share: ckpt_adamw_args in reals. */
typedef struct adamw_step {
  real keep, rate1, rate2, beta2, size, root, epsilon, scale;
} adamw_step;

/* The step of these arguments. */
static inline CKPT_DEVICE adamw_step adamw_step_of(const ckpt_adamw_args *a) {
  const adamw_step step = {(real)a->keep, (real)a->rate1, (real)a->rate2,   (real)a->beta2,
                           (real)a->size, (real)a->root,  (real)a->epsilon, (real)a->scale};
  return step;
}

/* One element, as torch's fused AdamW has it: each of the three is updated from the gradient. A first moment that would
 * be subnormal is 0. That of a row of an embedding which no text uses would stay so for ever, and processors take up to
 * 200 cycles for such a number. */
static inline CKPT_DEVICE void adamw_element(const adamw_step *step, real *weight, real *average, real *average_sq,
                                             real gradient) {
  const real scaled = gradient * step->scale;
  const real first = real_unless_subnormal(*average + (scaled - *average) * step->rate1);
  const real second = *average_sq * step->beta2 + scaled * scaled * step->rate2;
  *average = first;
  *average_sq = second;
  *weight = *weight * step->keep - step->size * (first / (REAL_SQRT(second) / step->root + step->epsilon));
}

#endif
