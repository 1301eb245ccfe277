/* float_format.h - every floating dtype as one table row, and the two functions that define a cast.
 *
 * A code is the bits of one element. Values travel as the bits of a binary64, which holds every value of every format
 * exactly, so that decode then encode rounds once. Integers only: neither the rounding mode, nor flushing of
 * subnormals, nor what a processor does to a NaN can change a result. The rules are stated in docs/casts.md. */
#ifndef CKPT_KERNELS_REF_CAST_FLOAT_FORMAT_H
#define CKPT_KERNELS_REF_CAST_FLOAT_FORMAT_H

#include "libckpt/base/backend.h"

/* Bits of one element of a FLOAT dtype: 4, 6, 8, 16, 32 or 64. */
uint32_t ckpt_float_width(ckpt_dtype dtype);

/* The binary64 bits of a code of a FLOAT dtype. */
uint64_t ckpt_float_decode(ckpt_dtype dtype, uint64_t code);

/* The code of dtype nearest to the binary64 `bits`, ties to even. Adds to *stats what it did. */
uint64_t ckpt_float_encode(ckpt_dtype dtype, uint64_t bits, ckpt_cast_stats *stats);

/* Element i of packed or plain elements of dtype: its code. Bytes are little-endian on every host. */
uint64_t ckpt_float_load(ckpt_dtype dtype, const void *data, size_t i);

/* Writes the code of element i. The elements of a block must be written in order: the first one clears the block. */
void ckpt_float_store(ckpt_dtype dtype, void *data, size_t i, uint64_t code);

#endif
