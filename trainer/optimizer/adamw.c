/* adamw.c - see adamw.h. The compiler may vectorize every loop here: none of them reorders a sum. */
#include "trainer/optimizer/adamw.h"

#include <math.h>

void ckpt_adamw_update(const ckpt_adamw *how, int decays, float *restrict w, float *restrict m, float *restrict v,
                       const float *restrict g, size_t n) {
  const float keep = decays ? (float)(1.0 - how->learning_rate * how->weight_decay) : 1.0f;
  const float rate1 = (float)(1.0 - how->beta1), beta2 = (float)how->beta2, rate2 = (float)(1.0 - how->beta2);
  const double correction1 = 1.0 - pow(how->beta1, (double)how->step);
  const double correction2 = 1.0 - pow(how->beta2, (double)how->step);
  const float size = (float)(how->learning_rate / correction1), root = (float)sqrt(correction2);
  const float epsilon = (float)how->epsilon, scale = (float)how->scale;
  for (size_t i = 0; i < n; i++) {
    const float gradient = g[i] * scale;
    const float first = m[i] + (gradient - m[i]) * rate1;
    const float second = v[i] * beta2 + gradient * gradient * rate2;
    m[i] = first;
    v[i] = second;
    w[i] = w[i] * keep - size * (first / (sqrtf(second) / root + epsilon));
  }
}

enum { BLOCK = 4096, LANES = 8 };

static double block_sum(const float *g, size_t n) {
  double lanes[LANES] = {0};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lanes[k] += (double)g[i + k] * (double)g[i + k];
  for (int k = 0; i < n; i++, k++) lanes[k] += (double)g[i] * (double)g[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

double ckpt_square_sum(const float *g, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i += BLOCK) sum += block_sum(g + i, n - i < BLOCK ? n - i : BLOCK);
  return sum;
}

double ckpt_clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  const float scale = (float)max_norm / ((float)norm + 1e-6f);
  return scale < 1.0f ? (double)scale : 1.0;
}
