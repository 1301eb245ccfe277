/* fuzz_zip - any bytes as one zip archive, and as a torch.save archive of one tensor: by the directory and forwards.
 * Whatever opens has entries inside its bytes that share none, each found by its name. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/torch/read/record.h"
#include "libckpt/codec/zip/zip.h"
#include "tests/fuzz/fuzz.h"

static void check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
}

static void check_zip(const ckpt_zip *zip, size_t n_bytes) {
  size_t n_payload = 0;
  for (uint32_t i = 0; i < ckpt_zip_count(zip); i++) {
    const ckpt_zip_entry *entry = ckpt_zip_at(zip, i);
    if (ckpt_zip_find(zip, entry->name) != entry || strlen(entry->name) == 0) abort();
    if (entry->offset > n_bytes || entry->n_stored > n_bytes - entry->offset) abort();
    n_payload += (size_t)entry->n_stored;
  }
  if (n_payload > n_bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  ckpt_error err = {0};
  ckpt_source *source;
  if (ckpt_source_memory(&source, data, n_bytes, "fuzz", NULL) != CKPT_OK) abort();
  ckpt_zip *zip;
  ckpt_status status = ckpt_zip_open(&zip, source, 0, 0, n_bytes, 64 << 20, &err);
  check(status, &err);
  if ((status == CKPT_OK) != (zip != NULL)) abort();
  if (zip != NULL) check_zip(zip, n_bytes);
  ckpt_zip_free(zip);
  ckpt_record record;
  ckpt_record_layout layout;
  err = (ckpt_error){0};
  status = ckpt_torch_record_layout(&record, &layout, source, 0, 0, n_bytes, &err);
  check(status, &err);
  if (status == CKPT_OK && (record.offset > n_bytes || record.n_stored > n_bytes - record.offset)) abort();
  err = (ckpt_error){0};
  status = CKPT_OK;
  for (size_t n = 0, n_needed = 1; n_needed != 0 && n_needed <= n_bytes && status == CKPT_OK;) {
    uint8_t *head = malloc(n = n_needed); /* memory of its own size: reading past it is seen */
    if (head == NULL) abort();
    memcpy(head, data, n);
    status = ckpt_torch_record_scan(&record, &layout, &n_needed, head, n, "fuzz", &err);
    check(status, &err);
    if (status == CKPT_OK && n_needed != 0 && n_needed <= n) abort(); /* no progress */
    if (status == CKPT_OK && n_needed == 0 && record.offset != n) abort();
    free(head);
  }
  ckpt_source_free(source);
  return 0;
}
