/* fuzz_imatrix - an importance matrix of the older form: open, and what opens lies in the file. */
#include <string.h>

#include "libckpt/index/index.h"
#include "libckpt/recipe/quantize/imatrix.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  ckpt_open_options options = {
      .struct_size = sizeof options, .max_index_bytes = 64 << 20, .stored_names = true, .report = fuzz_report};
  ckpt_error err = {0};
  ckpt_index *index;
  ckpt_status status = ckpt_open_memory(&index, data, n_bytes, "fuzz", &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  if (status != CKPT_OK) return 0;
  uint64_t n_all = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) n_all += index->tensors[i].n_bytes;
  if (strcmp(index->format, "imatrix") == 0 && n_all > n_bytes) abort();
  status = ckpt_imatrix_check(index, &err);
  if (status == CKPT_EINTERNAL || status != err.status) abort();
  ckpt_index_free(index);
  return 0;
}
