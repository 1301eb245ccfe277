/* lora.h - private to kernels/cpu: low-rank updates at the levels of the processor. */
#ifndef CKPT_KERNELS_CPU_LORA_LORA_H
#define CKPT_KERNELS_CPU_LORA_LORA_H

#include "kernels/ref/lora/lora.h"

typedef struct ckpt_lora_level {
  const char *name;
  void (*run)(const ckpt_lora_rows *rows);
} ckpt_lora_level;

extern const ckpt_lora_level ckpt_lora_avx2;   /* x86-64 only */
extern const ckpt_lora_level ckpt_lora_avx512; /* x86-64 only */

/* The i-th level that this processor can run, the slowest first; NULL past the last. */
const ckpt_lora_level *ckpt_lora_level_at(size_t i);

/* ckpt_backend_cpu.lora: at the best level. */
void ckpt_lora_cpu(const ckpt_lora_rows *rows);

#endif
