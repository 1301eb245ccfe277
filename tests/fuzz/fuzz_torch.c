/* fuzz_torch - any bytes as a PyTorch file in memory; what does not begin like one is the data.pkl of an archive with
 * one record of 64 bytes. Whatever opens has tensors inside its bytes, and small ones can be read. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/zip/zip.h"
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"

enum { N_PAYLOAD = 64, N_MORE = 1024, MAX_READ = 1 << 16 };

static uint8_t *put(uint8_t *to, uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; i++) *to++ = (uint8_t)(i < 8 ? value >> 8 * i : 0);
  return to;
}

static uint8_t *copy(uint8_t *to, const void *bytes, size_t n_bytes) {
  if (n_bytes != 0) memcpy(to, bytes, n_bytes);
  return to + n_bytes;
}

/* The fields that a local header and an entry of the directory share. */
static uint8_t *put_fields(uint8_t *to, size_t n_bytes, size_t n_name) {
  to = put(put(put(to, 20, 2), 0, 8), 0, 4);
  return put(put(put(put(to, n_bytes, 4), n_bytes, 4), n_name, 2), 0, 2);
}

/* An archive of a/data.pkl and a/data/0; its length. */
static size_t wrap(uint8_t *out, const uint8_t *data, size_t n_bytes) {
  static const char *const names[] = {"a/data.pkl", "a/data/0"};
  const uint8_t payload[N_PAYLOAD] = {1, 2, 3};
  const uint8_t *contents[] = {data, payload};
  const size_t lengths[] = {n_bytes, N_PAYLOAD};
  uint8_t *at = out;
  size_t offsets[2];
  for (int i = 0; i < 2; i++) {
    offsets[i] = (size_t)(at - out);
    at = put_fields(copy(at, "PK\3\4", 4), lengths[i], strlen(names[i]));
    at = copy(copy(at, names[i], strlen(names[i])), contents[i], lengths[i]);
  }
  size_t directory = (size_t)(at - out);
  for (int i = 0; i < 2; i++) {
    at = put_fields(put(copy(at, "PK\1\2", 4), 20, 2), lengths[i], strlen(names[i]));
    at = copy(put(put(at, 0, 10), offsets[i], 4), names[i], strlen(names[i]));
  }
  size_t n_directory = (size_t)(at - out) - directory;
  at = put(put(put(copy(at, "PK\5\6", 4), 0, 4), 2, 2), 2, 2);
  at = put(put(put(at, n_directory, 4), directory, 4), 0, 2);
  return (size_t)(at - out);
}

static void check(const ckpt_index *index, size_t n_bytes) {
  static uint8_t buffer[MAX_READ];
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    if (ckpt_index_find(index, tensor->name) != tensor) abort();
    for (uint32_t k = 0; k < tensor->n_extents; k++) {
      const ckpt_extent *extent = &tensor->extents[k];
      if (extent->file == CKPT_FILE_LITERAL) continue; /* a scale: its value stands in the extent */
      if (extent->offset > n_bytes || extent->n_stored > n_bytes - extent->offset) abort();
    }
    if (tensor->n_bytes > MAX_READ) continue;
    ckpt_error err = {0};
    ckpt_status status = ckpt_read(index, tensor, NULL, CKPT_DTYPE_NONE, buffer, tensor->n_bytes, &err);
    if (status == CKPT_EINTERNAL || status != err.status) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20, .report = fuzz_report};
  ckpt_error err = {0};
  ckpt_index *index;
  bool is_file =
      data != NULL && (ckpt_zip_is_start(data, n_bytes) || (n_bytes > 4 && memcmp(data + 2, "\x8a\x0a\x6c", 3) == 0));
  uint8_t *made = is_file ? NULL : malloc(n_bytes + N_MORE);
  if (made != NULL) {
    n_bytes = wrap(made, data, n_bytes);
    data = made;
  }
  options.stored_names = n_bytes % 2 != 0;
  ckpt_status status = ckpt_open_memory(&index, data, n_bytes, "fuzz", &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  if (status == CKPT_OK) check(index, n_bytes);
  ckpt_index_free(index);
  free(made);
  return 0;
}
