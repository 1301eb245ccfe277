/* dequantize.cu - block types to f32, with a thread for each element: what kernels/ref/quant/read.h says of it. */
#include "kernels/cuda/tape/tape.cuh"
extern "C" {
#include "kernels/ref/quant/grid.h"
#include "libckpt/base/dtype.h"
}

typedef struct blocks {
  const uint8_t *src;
  float *dst;
  ckpt_levels levels;
  int n_block; /* elements */
  size_t n_bytes;
} blocks;

#define CKPT_READ(dtype, name, grid)                                                                  \
  static __global__ void read_##name(blocks b, size_t n) {                                            \
    for (size_t i = first_index(); i < n; i += index_step()) {                                        \
      const size_t block = i / (size_t)b.n_block;                                                     \
      b.dst[i] = ckpt_read_##name(b.src + block * b.n_bytes, (int)(i % (size_t)b.n_block), b.levels); \
    }                                                                                                 \
  }
#include "kernels/ref/quant/read.def"
#undef CKPT_READ

/* The levels of a grid in the device's memory, brought there once. */
static ckpt_levels levels_of(ckpt_cuda *c, ckpt_grid_name grid) {
  if (grid == CKPT_N_GRIDS) return NULL;
  const size_t n_bytes = ckpt_grid_count(grid) * CKPT_GRID_MAX_AXES;
  if (c->levels[grid] == NULL) {
    ckpt_cuda_note(c, cudaMalloc(&c->levels[grid], n_bytes), "dequantize");
    if (c->levels[grid] == NULL) return NULL;
    ckpt_cuda_note(c,
                   cudaMemcpyAsync(c->levels[grid], ckpt_grid_levels(grid), n_bytes, cudaMemcpyHostToDevice, c->stream),
                   "dequantize");
  }
  return (ckpt_levels)c->levels[grid];
}

bool ckpt_cuda_dequantize(ckpt_cuda *c, ckpt_dtype dtype, float *dst, const void *src, size_t n_elements) {
  static const struct {
    ckpt_dtype dtype;
    void (*kernel)(blocks, size_t);
    ckpt_grid_name grid;
  } types[] = {
#define CKPT_READ(dtype, name, grid) {CKPT_##dtype, read_##name, CKPT_##grid},
#include "kernels/ref/quant/read.def"
#undef CKPT_READ
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (types[i].dtype != dtype) continue;
    const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
    const blocks b = {(const uint8_t *)src, dst, levels_of(c, types[i].grid), (int)row->block_elements,
                      (size_t)row->block_bytes};
    if (b.levels != NULL || types[i].grid == CKPT_N_GRIDS)
      ckpt_cuda_start_threads(c, "dequantize", types[i].kernel, b, n_elements);
    return true;
  }
  return false;
}
