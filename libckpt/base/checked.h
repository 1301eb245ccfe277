/* checked.h - adds and multiplies sizes that come from a file.
 *
 * Each function returns false and leaves *out alone if the result does not fit 64 bits. Lint refuses unchecked products
 * as sizes of allocations. */
#ifndef CKPT_BASE_CHECKED_H
#define CKPT_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* a + b */
static inline bool ckpt_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return false;
  *out = sum;
  return true;
}

/* a * b */
static inline bool ckpt_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

/* Whether [offset, offset + length) lies in [0, size). */
static inline bool ckpt_range_within(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

/* Product of n extents; 1 when n is 0. Multiplies in order, as safetensors and PyTorch do: a zero before the overflow
 * gives 0, a zero after it does not help. */
static inline bool ckpt_product_u64(const uint64_t *extents, uint32_t n, uint64_t *out) {
  uint64_t product = 1;
  for (uint32_t i = 0; i < n; i++)
    if (!ckpt_mul_u64(product, extents[i], &product)) return false;
  *out = product;
  return true;
}

/* Whether elements with these strides are contiguous in row-major order. An empty tensor is; strides of axes of length
 * 1 do not matter. */
static inline bool ckpt_is_row_major(uint32_t rank, const uint64_t *shape, const uint64_t *strides) {
  uint64_t expected = 1;
  bool is_plain = true;
  for (uint32_t axis = rank; axis-- > 0;) {
    if (shape[axis] == 0) return true;
    is_plain =
        is_plain && (shape[axis] == 1 || (strides[axis] == expected && ckpt_mul_u64(expected, shape[axis], &expected)));
  }
  return is_plain;
}

/* The strides of elements that follow each other in row-major order; UINT64_MAX for what is beyond it. */
static inline void ckpt_row_major(uint32_t rank, const uint64_t *shape, uint64_t *strides) {
  uint64_t stride = 1;
  for (uint32_t axis = rank; axis-- > 0;) {
    strides[axis] = stride;
    if (!ckpt_mul_u64(stride, shape[axis], &stride)) stride = UINT64_MAX;
  }
}

#endif
