/* layers.c - see layers.h. */
#include "libckpt/codec/gguf/layers.h"

#include <stdlib.h>
#include <string.h>

int64_t ckpt_gguf_layer(const char *name) {
  if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') return -1;
  char *end;
  const unsigned long long layer = strtoull(name + 4, &end, 10);
  return layer > INT32_MAX ? INT32_MAX : (int64_t)layer;
}

static int by_layer(const void *a, const void *b, void *tensors) {
  const char *x = ((const ckpt_tensor *)tensors)[*(const uint32_t *)a].name;
  const char *y = ((const ckpt_tensor *)tensors)[*(const uint32_t *)b].name;
  const int64_t layer_x = ckpt_gguf_layer(x), layer_y = ckpt_gguf_layer(y);
  return layer_x != layer_y ? (layer_x < layer_y ? -1 : 1) : strcmp(x, y);
}

void ckpt_gguf_sort(uint32_t *numbers, uint32_t n, const ckpt_tensor *tensors) {
  if (n != 0) qsort_r(numbers, n, sizeof *numbers, by_layer, (void *)(uintptr_t)tensors);
}
