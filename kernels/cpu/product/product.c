/* product.c - picks the level once per call. */
#include "kernels/cpu/product/product.h"

static const ckpt_product_level reference = {.name = "reference", .run = ckpt_product_reference};

#if defined(__x86_64__)
const ckpt_product_level *ckpt_product_level_at(size_t i) {
  const ckpt_product_level *levels[3] = {&reference};
  size_t n = 1;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels[n++] = &ckpt_product_avx2;
  if (__builtin_cpu_supports("avx512f")) levels[n++] = &ckpt_product_avx512;
  return i < n ? levels[i] : NULL;
}
#else
const ckpt_product_level *ckpt_product_level_at(size_t i) { return i == 0 ? &reference : NULL; }
#endif

void ckpt_product_cpu(const ckpt_product *p) {
  const ckpt_product_level *best = &reference, *level;
  for (size_t i = 0; (level = ckpt_product_level_at(i)) != NULL; i++) best = level;
  best->run(p);
}
