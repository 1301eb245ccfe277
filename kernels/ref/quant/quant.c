/* quant.c - the block types of the reference backend, by dtype. */
#include "kernels/ref/quant/quant.h"

#include "kernels/ref/quant/grid.h"
#include "libckpt/base/dtype.h"

#define CKPT_READ(dtype, name, grid)                                                               \
  void ckpt_dequantize_##name(float *y, const uint8_t *src, size_t n) {                            \
    const ckpt_levels levels = CKPT_##grid == CKPT_N_GRIDS ? NULL : ckpt_grid_levels(CKPT_##grid); \
    const size_t n_block = ckpt_dtype_get(CKPT_##dtype)->block_elements;                           \
    const size_t n_bytes = ckpt_dtype_get(CKPT_##dtype)->block_bytes;                              \
    for (; n > 0; n -= n_block, y += n_block, src += n_bytes)                                      \
      for (size_t i = 0; i < n_block; i++) y[i] = ckpt_read_##name(src, (int)i, levels);           \
  }
#include "kernels/ref/quant/read.def"
#undef CKPT_READ

static const ckpt_quant *const types[CKPT_N_DTYPES] = {
    [CKPT_Q1_0] = &ckpt_quant_q1_0,     [CKPT_Q2_0] = &ckpt_quant_q2_0,     [CKPT_Q4_0] = &ckpt_quant_q4_0,
    [CKPT_Q4_1] = &ckpt_quant_q4_1,     [CKPT_Q5_0] = &ckpt_quant_q5_0,     [CKPT_Q5_1] = &ckpt_quant_q5_1,
    [CKPT_Q8_0] = &ckpt_quant_q8_0,     [CKPT_Q8_1] = &ckpt_quant_q8_1,     [CKPT_Q2_K] = &ckpt_quant_q2_k,
    [CKPT_Q3_K] = &ckpt_quant_q3_k,     [CKPT_Q4_K] = &ckpt_quant_q4_k,     [CKPT_Q5_K] = &ckpt_quant_q5_k,
    [CKPT_Q6_K] = &ckpt_quant_q6_k,     [CKPT_Q8_K] = &ckpt_quant_q8_k,     [CKPT_TQ1_0] = &ckpt_quant_tq1_0,
    [CKPT_IQ1_S] = &ckpt_quant_iq1_s,   [CKPT_IQ1_M] = &ckpt_quant_iq1_m,   [CKPT_IQ2_XXS] = &ckpt_quant_iq2_xxs,
    [CKPT_IQ2_XS] = &ckpt_quant_iq2_xs, [CKPT_IQ2_S] = &ckpt_quant_iq2_s,   [CKPT_IQ3_XXS] = &ckpt_quant_iq3_xxs,
    [CKPT_IQ3_S] = &ckpt_quant_iq3_s,   [CKPT_IQ4_NL] = &ckpt_quant_iq4_nl, [CKPT_IQ4_XS] = &ckpt_quant_iq4_xs,
    [CKPT_TQ2_0] = &ckpt_quant_tq2_0,   [CKPT_MXFP4] = &ckpt_quant_mxfp4,   [CKPT_NVFP4] = &ckpt_quant_nvfp4,
};

const ckpt_quant *ckpt_quant_get(ckpt_dtype dtype) { return (unsigned)dtype < CKPT_N_DTYPES ? types[dtype] : NULL; }

bool ckpt_can_quantize(ckpt_dtype dtype, bool has_importance) {
  const ckpt_quant *quant = ckpt_quant_get(dtype);
  return quant != NULL && quant->quantize != NULL && (has_importance || !quant->needs_importance);
}

bool ckpt_uses_importance(ckpt_dtype dtype) {
  return ckpt_can_quantize(dtype, true) && !ckpt_quant_get(dtype)->ignores_importance;
}

bool ckpt_quantize(ckpt_dtype dtype, void *dst, const float *src, size_t n_rows, size_t n_per_row,
                   const float *importance) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  size_t n_bytes = n_per_row / row->block_elements * row->block_bytes;
  for (size_t i = 0; i < n_rows; i++)
    ckpt_quant_get(dtype)->quantize((uint8_t *)dst + i * n_bytes, src + i * n_per_row, n_per_row, importance);
  return ckpt_quant_is_finite(dtype, dst, n_rows * n_bytes);
}

void ckpt_dequantize(ckpt_dtype dtype, float *dst, const void *src, size_t n_elements) {
  ckpt_quant_get(dtype)->dequantize(dst, src, n_elements);
}

/* Where the scales of a block are: n numbers of 16 bits from `at`. */
static const struct {
  uint8_t at, n;
} scales[CKPT_N_DTYPES] = {
    [CKPT_Q1_0] = {0, 1},   [CKPT_Q2_0] = {0, 1},   [CKPT_Q4_0] = {0, 1},    [CKPT_Q4_1] = {0, 2},
    [CKPT_Q5_0] = {0, 1},   [CKPT_Q5_1] = {0, 2},   [CKPT_Q8_0] = {0, 1},    [CKPT_Q8_1] = {0, 2},
    [CKPT_Q2_K] = {80, 2},  [CKPT_Q3_K] = {108, 1}, [CKPT_Q4_K] = {0, 2},    [CKPT_Q5_K] = {0, 2},
    [CKPT_Q6_K] = {208, 1}, [CKPT_IQ1_S] = {0, 1},  [CKPT_IQ2_XXS] = {0, 1}, [CKPT_IQ2_XS] = {0, 1},
    [CKPT_IQ2_S] = {0, 1},  [CKPT_IQ3_S] = {0, 1},  [CKPT_IQ3_XXS] = {0, 1}, [CKPT_IQ4_NL] = {0, 1},
    [CKPT_IQ4_XS] = {0, 1}, [CKPT_TQ1_0] = {52, 1}, [CKPT_TQ2_0] = {64, 1},
};

static bool is_finite(ckpt_dtype dtype, const uint8_t *block) {
  if (dtype == CKPT_MXFP4) return block[0] != 0xff;
  if (dtype == CKPT_Q8_K) return (ckpt_le32(block) & 0x7f800000) != 0x7f800000;
  if (dtype == CKPT_IQ1_M) return ((block[55] >> 4 << 12 | block[53] >> 4 << 8) & 0x7c00) != 0x7c00;
  bool is_bad = false;
  for (size_t i = 0; i < scales[dtype].n; i++)
    is_bad |= (ckpt_le16(block + scales[dtype].at + 2 * i) & 0x7c00) == 0x7c00;
  return !is_bad;
}

bool ckpt_quant_is_finite(ckpt_dtype dtype, const uint8_t *blocks, size_t n_bytes) {
  const size_t n_block = ckpt_dtype_get(dtype)->block_bytes;
  for (size_t at = 0; at < n_bytes; at += n_block)
    if (!is_finite(dtype, blocks + at)) return false;
  return true;
}
