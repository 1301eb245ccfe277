/* adamw.h - arguments of the kernel `adamw`, which updates flat f32 buffers as torch.optim.AdamW does (fused, CPU).
 *
 * One pass reads each weight, moment and gradient once. Every element is computed by itself, so results do not depend
 * on how a buffer is cut among threads or ranks. The formula and its order, step counted from 1:
 *   w *= 1 - lr * weight_decay;  m += (g - m) * (1 - beta1);  v = v * beta2 + g * g * (1 - beta2);
 *   w -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
 * except that a subnormal m becomes 0. */
#ifndef CKPT_TRAINER_OPTIMIZER_ADAMW_H
#define CKPT_TRAINER_OPTIMIZER_ADAMW_H

#include "kernels/ref/tape/tape_kernels.h"

typedef struct ckpt_adamw {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double scale;  /* of every gradient: that of clipping, rounded to f32; 1 for none */
  uint64_t step; /* from 1 */
} ckpt_adamw;

/* The arguments for a step; pointers are the caller's to fill. Without decays, weight_decay is taken as 0. */
ckpt_adamw_args ckpt_adamw_args_of(const ckpt_adamw *how, int decays);

/* What gradients of this norm are multiplied by, as torch.nn.utils.clip_grad_norm_ does; 1 where max_norm is 0. */
double ckpt_clip_scale(double norm, double max_norm);

#endif
