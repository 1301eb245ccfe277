/* fuzz_safetensors - any bytes as one checkpoint in memory. Whatever opens has tensors inside its bytes. */
#include <stdlib.h>

#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20, .report = fuzz_report};
  ckpt_error err = {0};
  ckpt_index *index;
  ckpt_status status = ckpt_open_memory(&index, data, n_bytes, "fuzz", &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  if (status != CKPT_OK) return 0;
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    if (ckpt_index_find(index, tensor->name) != tensor) abort();
    uint64_t n_stored = 0;
    for (uint32_t k = 0; k < tensor->n_extents; k++) {
      n_stored += tensor->extents[k].n_stored;
      if (tensor->extents[k].offset > n_bytes || tensor->extents[k].n_stored > n_bytes - tensor->extents[k].offset)
        abort();
    }
    if (n_stored != tensor->n_bytes) abort();
  }
  ckpt_index_free(index);
  return 0;
}
