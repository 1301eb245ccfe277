/* fuzz_gguf - any bytes as one GGUF file in memory. What opens has tensors and values inside its bytes, and is written
 * again: as itself where nothing is odd about it, to a stream that reads every long value. */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "tests/fuzz/fuzz.h"

static ckpt_status drop(void *arg, const void *bytes, size_t n_bytes, ckpt_error *err) {
  (void)bytes, (void)err;
  *(uint64_t *)arg += n_bytes;
  return CKPT_OK;
}

static void check_values(const ckpt_index *index, size_t n_bytes) {
  for (uint32_t i = 0; i < index->n_metadata; i++) {
    const ckpt_meta *meta = &index->metadata[i];
    if (meta->key[0] == '\0' || meta->value == NULL) abort();
    if (meta->typed == NULL) continue;
    if (ckpt_gguf_type_name(meta->typed->type) == NULL) abort();
    if (meta->typed->bytes != NULL) continue;
    if (meta->typed->offset > n_bytes || meta->typed->n_bytes > n_bytes - meta->typed->offset) abort();
  }
}

/* A header of what was read has the size that was counted. */
static void print(const ckpt_index *index) {
  ckpt_error err = {0};
  ckpt_arena arena;
  ckpt_arena_init(&arena, 64 << 20);
  ckpt_layout layout = {.arena = &arena, .index = index};
  uint32_t *order, alignment;
  uint64_t n_printed = 0;
  uint8_t window[64];
  ckpt_stream out;
  if (ckpt_gguf_alignment(index, &alignment, &err) != CKPT_OK || alignment > 1 << 16 ||
      ckpt_gguf_order(&order, &layout, &err) != CKPT_OK || ckpt_layout_file_add(&layout, NULL, &err) != CKPT_OK ||
      ckpt_gguf_lay(&layout, order, index->n_tensors, index->metadata, index->n_metadata, alignment, &err) != CKPT_OK ||
      ckpt_layout_finish(&layout, &err) != CKPT_OK) {
    if (err.status == CKPT_EINTERNAL) abort();
    ckpt_arena_free(&arena);
    return;
  }
  ckpt_stream_function(&out, drop, &n_printed, window, sizeof window, &err);
  layout.files[0].segments[0].print(&layout, layout.files[0].segments[0].arg, &out);
  if (ckpt_stream_end(&out) != CKPT_OK || n_printed != layout.files[0].segments[0].n_bytes) abort();
  ckpt_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  ckpt_open_options options = {
      .struct_size = sizeof options, .max_index_bytes = 64 << 20, .stored_names = true, .report = fuzz_report};
  ckpt_error err = {0};
  ckpt_index *index;
  ckpt_status status = ckpt_open_memory(&index, data, n_bytes, "fuzz", &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  if (status != CKPT_OK) return 0;
  if (strcmp(index->format, "gguf") == 0) {
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      const ckpt_tensor *tensor = &index->tensors[i];
      if (ckpt_index_find(index, tensor->name) != tensor || tensor->rank > CKPT_GGUF_MAX_RANK) abort();
      const ckpt_extent *extent = tensor->extents;
      if (tensor->n_extents != 0 && (extent->offset > n_bytes || extent->n_stored > n_bytes - extent->offset)) abort();
    }
    check_values(index, n_bytes);
    print(index);
  }
  ckpt_index_free(index);
  return 0;
}
