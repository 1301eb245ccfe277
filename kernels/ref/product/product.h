/* product.h - products of f64 matrices; private to kernels. */
#ifndef CKPT_KERNELS_REF_PRODUCT_PRODUCT_H
#define CKPT_KERNELS_REF_PRODUCT_PRODUCT_H

#include "libckpt/base/backend.h"

/* As ckpt_backend.product: the definition. */
void ckpt_product_reference(const ckpt_product *p);

#endif
