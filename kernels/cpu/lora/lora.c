/* lora.c - picks the level once per call. */
#include "kernels/cpu/lora/lora.h"

static const ckpt_lora_level reference = {.name = "reference", .run = ckpt_lora};

#if defined(__x86_64__)
const ckpt_lora_level *ckpt_lora_level_at(size_t i) {
  const ckpt_lora_level *levels[3] = {&reference};
  size_t n = 1;
  if (__builtin_cpu_supports("avx2")) levels[n++] = &ckpt_lora_avx2;
  if (__builtin_cpu_supports("avx512f")) levels[n++] = &ckpt_lora_avx512;
  return i < n ? levels[i] : NULL;
}
#else
const ckpt_lora_level *ckpt_lora_level_at(size_t i) { return i == 0 ? &reference : NULL; }
#endif

void ckpt_lora_cpu(const ckpt_lora_rows *rows) {
  const ckpt_lora_level *best = &reference, *level;
  for (size_t i = 0; (level = ckpt_lora_level_at(i)) != NULL; i++) best = level;
  best->run(rows);
}
