/* grow.c - see grow.h. */
#include "libckpt/base/grow.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

uint32_t ckpt_grown(uint32_t capacity) { return capacity < 16 ? 16 : capacity + capacity / 2; }

ckpt_status ckpt_grow(void *items, uint32_t n, uint32_t *capacity, size_t item_bytes, ckpt_error *err) {
  if (n < *capacity) return CKPT_OK;
  if (n > INT32_MAX / 2) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %u entries", n);
  uint32_t wanted = ckpt_grown(*capacity);
  void *array;
  memcpy(&array, items, sizeof array);
  array = reallocarray(array, wanted, item_bytes);
  CKPT_TRY_ALLOC(array, err);
  memcpy(items, &array, sizeof array);
  *capacity = wanted;
  return CKPT_OK;
}
