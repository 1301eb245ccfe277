/* quant.c - picks the level once per call; what a level lacks is done by the one below it. */
#include "kernels/cpu/quant/quant.h"

#include "libckpt/base/dtype.h"

static const ckpt_quant_level reference = {.name = "reference"};

#if defined(__x86_64__)
const ckpt_quant_level *ckpt_quant_level_at(size_t i) {
  const ckpt_quant_level *levels[3] = {&reference};
  size_t n = 1;
  if (__builtin_cpu_supports("avx2")) levels[n++] = &ckpt_quant_avx2;
  if (n == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    levels[n++] = &ckpt_quant_avx512;
  return i < n ? levels[i] : NULL;
}
#else
const ckpt_quant_level *ckpt_quant_level_at(size_t i) { return i == 0 ? &reference : NULL; }
#endif

/* The row with the functions that serve dtype at a level or below it. */
static ckpt_quant row_at(const ckpt_quant_level *level, ckpt_dtype dtype) {
  ckpt_quant row = *ckpt_quant_get(dtype);
  const ckpt_quant_level *each;
  for (size_t i = 0; (each = ckpt_quant_level_at(i)) != NULL; i++) {
    if (each->types[dtype].quantize) row.quantize = each->types[dtype].quantize;
    if (each->types[dtype].dequantize) row.dequantize = each->types[dtype].dequantize;
    if (each == level) break;
  }
  return row;
}

static const ckpt_quant_level *best_level(void) {
  const ckpt_quant_level *best = &reference, *level;
  for (size_t i = 0; (level = ckpt_quant_level_at(i)) != NULL; i++) best = level;
  return best;
}

bool ckpt_quant_at(const ckpt_quant_level *level, ckpt_dtype dtype, void *dst, const float *src, size_t n_rows,
                   size_t n_per_row, const float *importance) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  size_t n_bytes = n_per_row / row->block_elements * row->block_bytes;
  ckpt_quant quant = row_at(level, dtype);
  for (size_t i = 0; i < n_rows; i++)
    quant.quantize((uint8_t *)dst + i * n_bytes, src + i * n_per_row, n_per_row, importance);
  return ckpt_quant_is_finite(dtype, dst, n_rows * n_bytes);
}

void ckpt_dequant_at(const ckpt_quant_level *level, ckpt_dtype dtype, float *dst, const void *src, size_t n_elements) {
  row_at(level, dtype).dequantize(dst, src, n_elements);
}

bool ckpt_quant_cpu_quantize(ckpt_dtype dtype, void *dst, const float *src, size_t n_rows, size_t n_per_row,
                             const float *importance) {
  return ckpt_quant_at(best_level(), dtype, dst, src, n_rows, n_per_row, importance);
}

void ckpt_quant_cpu_dequantize(ckpt_dtype dtype, float *dst, const void *src, size_t n_elements) {
  ckpt_dequant_at(best_level(), dtype, dst, src, n_elements);
}
