/* adamw.h - AdamW over flat f32 buffers, as torch.optim.AdamW computes it (fused, CPU).
 *
 * One pass reads each weight, moment and gradient once. Every element is computed by itself, so results do not depend
 * on how a buffer is cut among threads or ranks. The formula and its order, step counted from 1:
 *   w *= 1 - lr * weight_decay;  m += (g - m) * (1 - beta1);  v = v * beta2 + g * g * (1 - beta2);
 *   w -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps) */
#ifndef CKPT_TRAINER_OPTIMIZER_ADAMW_H
#define CKPT_TRAINER_OPTIMIZER_ADAMW_H

#include "kernels/ref/tape/tape_kernels.h"

typedef struct ckpt_adamw {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double scale;  /* of every gradient: that of clipping, rounded to f32; 1 for none */
  uint64_t step; /* from 1 */
} ckpt_adamw;

/* The arguments of the tape's kernel `adamw` for a step; its pointers are the caller's to fill. */
ckpt_adamw_args ckpt_adamw_args_of(const ckpt_adamw *how, int decays);

/* Updates n weights with their moments. Without decays, weight_decay is taken as 0. */
void ckpt_adamw_update(const ckpt_adamw *how, int decays, float *w, float *m, float *v, const float *g, size_t n);

/* Sum of squares in double: of blocks of 4,096 elements, each in 8 lanes, added in order. */
double ckpt_square_sum(const float *g, size_t n);

/* What gradients of this norm are multiplied by, as torch.nn.utils.clip_grad_norm_ does; 1 where max_norm is 0. */
double ckpt_clip_scale(double norm, double max_norm);

#endif
