/* dtype.h - the table of element types: dtype.def as data. */
#ifndef CKPT_BASE_DTYPE_H
#define CKPT_BASE_DTYPE_H

#include "libckpt/ckpt.h"

typedef enum ckpt_dtype_kind {
  CKPT_KIND_NONE,
  CKPT_KIND_BOOL,
  CKPT_KIND_UINT,
  CKPT_KIND_INT,
  CKPT_KIND_FLOAT,
  CKPT_KIND_COMPLEX,
  CKPT_KIND_BLOCK
} ckpt_dtype_kind;

typedef struct ckpt_dtype_row {
  const char *name;
  uint32_t block_elements, block_bytes;
  ckpt_dtype_kind kind;
  int ggml; /* its number in ggml and in GGUF files; -1: none */
} ckpt_dtype_row;

/* The row of a dtype; that of NONE ("none", 1, 0) for ids out of range. */
const ckpt_dtype_row *ckpt_dtype_get(ckpt_dtype dtype);

/* Bytes of n_elements; false if they are not a whole number of blocks, or the size overflows. */
bool ckpt_dtype_bytes(ckpt_dtype dtype, uint64_t n_elements, uint64_t *n_bytes);

/* Every dtype of the kind BLOCK, as caps.dtypes: bit i: ckpt_dtype i. Their rows stand together. */
#define CKPT_BLOCK_DTYPES (((UINT64_C(2) << CKPT_Q2_0) - 1) & ~((UINT64_C(1) << CKPT_Q4_0) - 1))

/* The dtype with that number in ggml; NONE if there is none. */
ckpt_dtype ckpt_dtype_of_ggml(uint32_t number);

/* Whether it is a block type of ggml: the BLOCK kind. */
bool ckpt_dtype_is_block(ckpt_dtype dtype);

/* Whether a cast may touch it: the FLOAT kind. */
bool ckpt_dtype_is_float(ckpt_dtype dtype);

/* Whether a cast for all tensors includes it: the FLOAT kind, and BLOCK, which holds floats. */
bool ckpt_dtype_holds_floats(ckpt_dtype dtype);

#endif
