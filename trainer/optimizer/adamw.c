/* adamw.c - see adamw.h. */
#include "trainer/optimizer/adamw.h"

#include <math.h>

ckpt_adamw_args ckpt_adamw_args_of(const ckpt_adamw *how, int decays) {
  const double correction1 = 1.0 - pow(how->beta1, (double)how->step);
  const double correction2 = 1.0 - pow(how->beta2, (double)how->step);
  return (ckpt_adamw_args){.keep = decays ? 1.0 - how->learning_rate * how->weight_decay : 1.0,
                           .rate1 = 1.0 - how->beta1,
                           .rate2 = 1.0 - how->beta2,
                           .beta2 = how->beta2,
                           .size = how->learning_rate / correction1,
                           .root = sqrt(correction2),
                           .epsilon = how->epsilon,
                           .scale = how->scale};
}

double ckpt_clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  const float scale = (float)max_norm / ((float)norm + 1e-6f);
  return scale < 1.0f ? (double)scale : 1.0;
}
