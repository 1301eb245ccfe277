/* cast.c - the reference backend: what a cast means, one element at a time; quant.c has the block types. */
#include <string.h>

#include "kernels/ref/cast/float_format.h"
#include "kernels/ref/lora/lora.h"
#include "kernels/ref/product/product.h"
#include "kernels/ref/quant/quant.h"
#include "libckpt/base/dtype.h"

static bool can_cast(ckpt_dtype src, ckpt_dtype dst) { return ckpt_dtype_is_float(src) && ckpt_dtype_is_float(dst); }

static void cast(ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype, const void *src, size_t n_elements,
                 ckpt_cast_stats *stats) {
  const ckpt_dtype_row *row = ckpt_dtype_get(src_dtype);
  if (src_dtype == dst_dtype) {
    if (n_elements > 0) memcpy(dst, src, n_elements / row->block_elements * row->block_bytes);
    return;
  }
  for (size_t i = 0; i < n_elements; i++) {
    uint64_t bits = ckpt_float_decode(src_dtype, ckpt_float_load(src_dtype, src, i));
    ckpt_float_store(dst_dtype, dst, i, ckpt_float_encode(dst_dtype, bits, stats));
  }
}

const ckpt_backend ckpt_backend_reference = {.name = "reference",
                                             .can_cast = can_cast,
                                             .cast = cast,
                                             .can_quantize = ckpt_can_quantize,
                                             .uses_importance = ckpt_uses_importance,
                                             .quantize = ckpt_quantize,
                                             .dequantize = ckpt_dequantize,
                                             .lora = ckpt_lora,
                                             .product = ckpt_product_reference};
