/* backend.h - the kernels a run may use: a const row, given in the run options.
 *
 * An empty slot means the reference one (kernels/ref, declared extern as ckpt_backend_reference). All slots work on
 * packed buffers in host memory, are pure, and may be called from many threads at once. */
#ifndef CKPT_BASE_BACKEND_H
#define CKPT_BASE_BACKEND_H

#include "libckpt/ckpt.h"

/* What casts did to values: kept per tile, merged by sum, maximum and or. A cast to the same dtype counts nothing. */
typedef struct ckpt_cast_stats {
  uint64_t n_overflow;  /* sources that became infinite, or NaN, or were clamped to the largest value (infinity too) */
  double largest;       /* largest magnitude among those */
  uint64_t n_nan_lost;  /* NaN sources that the target cannot hold (f8_e8m0 can, f4 and f6 cannot) */
  uint64_t n_underflow; /* sources other than zero that became zero */
  bool has_nonzero;     /* some result is not zero */
} ckpt_cast_stats;

/* Adds what happened in another part of the same values. */
static inline void ckpt_cast_stats_add(ckpt_cast_stats *into, const ckpt_cast_stats *from) {
  into->n_overflow += from->n_overflow;
  into->n_nan_lost += from->n_nan_lost;
  into->n_underflow += from->n_underflow;
  into->has_nonzero = into->has_nonzero || from->has_nonzero;
  if (from->largest > into->largest) into->largest = from->largest;
}

/* Whether a cast made a value infinite, clamped it, lost a NaN, or turned a whole tensor to zero. No cast may do that
 * unless the user allows it. */
bool ckpt_cast_damages(const ckpt_cast_stats *stats);

/* Says so of the named tensor, and that n_more have the same fate: EVALUE. */
ckpt_status ckpt_cast_refuse(const ckpt_cast_stats *stats, ckpt_dtype to, const char *name, uint64_t n_more,
                             ckpt_error *err);

/* c (m x n) += a (m x k) x b (k x n), of f64. The strides are in elements: from one row to the next, of a also from one
 * column to the next, so that it may be a transpose; of b and c columns stand together. */
typedef struct ckpt_product {
  double *c;
  const double *a, *b;
  size_t m, n, k, c_row, a_row, a_column, b_row;
} ckpt_product;

/* One low-rank update of a matrix of f32: scale * output (n_rows x rank) x input (rank x width), row-major. */
typedef struct ckpt_lora_update {
  const float *output, *input;
  size_t rank;
  float scale;
} ckpt_lora_update;

/* Squares that are summed up in f64, of one row: of what the updates add to it, and of its base. */
typedef struct ckpt_lora_squares {
  double added, base;
} ckpt_lora_squares;

/* n_rows rows of a matrix with its updates. */
typedef struct ckpt_lora_rows {
  const float *base;
  float *out;
  size_t n_rows, width;
  const ckpt_lora_update *updates;
  uint32_t n_updates;
  ckpt_lora_squares *squares; /* of each row, or NULL */
} ckpt_lora_rows;

struct ckpt_backend {
  const char *name;
  /* Whether src can be cast to dst. */
  bool (*can_cast)(ckpt_dtype src, ckpt_dtype dst);
  /* n_elements (whole blocks of both dtypes) from src to dst; buffers do not overlap. Rounds once, to nearest even.
   * docs/casts.md says what becomes of infinity and of finite values past dst's range. Adds what it did to *stats. */
  void (*cast)(ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype, const void *src, size_t n_elements,
               ckpt_cast_stats *stats);
  /* What quantize can make: block types of ggml that files hold, some of which need importance. */
  bool (*can_quantize)(ckpt_dtype dtype, bool has_importance);
  /* Whether the quantizer of dtype uses importance. */
  bool (*uses_importance)(ckpt_dtype dtype);
  /* n_rows rows of n_per_row finite f32 (whole blocks) to blocks of dtype: the bytes that ggml's reference gives, see
   * docs/quantization.md. importance: n_per_row weights of every row, or NULL. False if a scale is not finite in its 16
   * bits, which makes the blocks useless. */
  bool (*quantize)(ckpt_dtype dtype, void *dst, const float *src, size_t n_rows, size_t n_per_row,
                   const float *importance);
  /* Whole blocks of a block type to f32, exactly. */
  void (*dequantize)(ckpt_dtype dtype, float *dst, const void *src, size_t n_elements);
  /* Each element sums k in order, each step with one rounding (fma). */
  void (*product)(const ckpt_product *p);
  /* out = base + sum over updates of scale * product: k in order, no contraction, updates added up in their order from
   * zero before the base is. kernels/ref/lora says in which order squares are summed up. */
  void (*lora)(const ckpt_lora_rows *rows);
  /* SHA-256 of the first of n whole leaves (digest.h): as many as it hashes faster than OpenSSL. Returns their number.
   * The reference has none: OpenSSL hashes every leaf. */
  size_t (*hash_leaves)(const uint8_t *const *leaves, size_t n, uint8_t (*digests)[32]);
};

/* Whether ckpt_backend_read takes src to dst: a cast, or block types to any floating dtype. */
bool ckpt_backend_can_read(const ckpt_backend *backend, ckpt_dtype src, ckpt_dtype dst);

/* A cast, before which block types are dequantized to f32; n_elements are whole blocks. */
void ckpt_backend_read(const ckpt_backend *backend, ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype,
                       const void *src, size_t n_elements, ckpt_cast_stats *stats);

extern const ckpt_backend ckpt_backend_reference; /* kernels/ref: the definition */
extern const ckpt_backend ckpt_backend_cpu;       /* kernels/cpu: dispatched at run time, equal bit for bit */

#endif
