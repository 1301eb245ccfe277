/* product.c - the definition of a product's bits: each element sums k in order, fused. See product.h. */
#include "kernels/ref/product/product.h"

#include "kernels/ref/tape/qualifier.h"

void ckpt_product_reference(const ckpt_product *p) {
  for (size_t i = 0; i < p->m; i++) {
    double *c = p->c + i * p->c_row;
    for (size_t k = 0; k < p->k; k++) {
      const double factor = p->a[i * p->a_row + k * p->a_column], *b = p->b + k * p->b_row;
      for (size_t j = 0; j < p->n; j++) c[j] = CKPT_FMA_F64(factor, b[j], c[j]);
    }
  }
}
