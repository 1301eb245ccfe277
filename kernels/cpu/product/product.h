/* product.h - private to kernels/cpu: products of f64 matrices at the levels of the processor. */
#ifndef CKPT_KERNELS_CPU_PRODUCT_PRODUCT_H
#define CKPT_KERNELS_CPU_PRODUCT_PRODUCT_H

#include "kernels/ref/product/product.h"

typedef struct ckpt_product_level {
  const char *name;
  void (*run)(const ckpt_product *p);
} ckpt_product_level;

extern const ckpt_product_level ckpt_product_avx2;   /* x86-64 only */
extern const ckpt_product_level ckpt_product_avx512; /* x86-64 only */

/* The i-th level that this processor can run, the slowest first; NULL past the last. */
const ckpt_product_level *ckpt_product_level_at(size_t i);

/* ckpt_backend_cpu.product: at the best level. */
void ckpt_product_cpu(const ckpt_product *p);

#endif
