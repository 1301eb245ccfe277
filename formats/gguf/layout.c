/* layout.c - GGUF version 3 as ggml writes it: header, keys in the order of the metadata, tensors in order, every
 * one padded to the alignment that general.alignment states (ggml's own writer pads to 32 whatever it states).
 *
 * Long values are copied from the file that they were read from when the header is printed. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/layers.h"

/* What a file's header is printed from. */
typedef struct header {
  const uint32_t *tensors;
  uint32_t n;
  const ckpt_meta *metadata;
  uint32_t n_metadata, alignment;
} header;

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

/* Whoever writes a model that llama.cpp refuses hears it then, in the words of `verify`. */
static ckpt_status note_model(ckpt_index *described, ckpt_error *err) {
  enum { MAX_SAID = 3 };
  ckpt_findings findings = {0};
  char more[40] = "";
  size_t n_said = 0;
  ckpt_dialect_find_misfit(described);
  ckpt_status status = ckpt_gguf_check_model(&findings, described, NULL, err);
  const size_t n_more = findings.n_of[CKPT_PROBLEM] > MAX_SAID ? findings.n_of[CKPT_PROBLEM] - MAX_SAID : 0;
  for (size_t i = 0; i < findings.n && n_said < MAX_SAID && status == CKPT_OK; i++) {
    const ckpt_finding *found = &findings.items[i];
    if (found->kind != CKPT_PROBLEM) continue;
    if (++n_said == MAX_SAID && n_more != 0) snprintf(more, sizeof more, " (and %zu more)", n_more);
    status = ckpt_index_note(described, true, err, "%s%s%s%s", found->tensor == NULL ? "" : found->tensor,
                             found->tensor == NULL ? "" : ": ", found->message, more);
  }
  ckpt_findings_free(&findings);
  return status;
}

ckpt_status ckpt_gguf_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    const ckpt_dtype_row *row = ckpt_dtype_get(tensor->dtype);
    const size_t n = strlen(tensor->name);
    if (n > CKPT_GGUF_MAX_NAME)
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                                   "a name of %zu bytes, GGUF holds at most %d", n, CKPT_GGUF_MAX_NAME),
                         err, "%rename makes it shorter");
    if (tensor->rank != 0 && tensor->shape[tensor->rank - 1] % row->block_elements != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "rows of %llu element%s are no whole blocks of %s",
                       (unsigned long long)tensor->shape[tensor->rank - 1],
                       ckpt_plural(tensor->shape[tensor->rank - 1]), row->name);
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < described->n_metadata; i++) {
    const ckpt_meta meta = described->metadata[i];
    const size_t n_key = strlen(meta.key);
    if (n_key == 0 || n_key > CKPT_GGUF_MAX_KEY)
      CKPT_TRY(ckpt_losses_add(losses, err, "a metadata key of %zu bytes", n_key));
    else
      described->metadata[n++] = meta;
  }
  described->n_metadata = n;
  return note_model(described, err);
}

uint32_t ckpt_gguf_stated_alignment(const ckpt_index *index) {
  const ckpt_meta *meta = ckpt_index_meta(index, CKPT_GGUF_ALIGNMENT);
  uint32_t stated = 0;
  if (meta == NULL) return CKPT_GGUF_DEFAULT_ALIGNMENT;
  if (meta->typed == NULL || meta->typed->type != CKPT_GGUF_U32 || !ckpt_gguf_value_u32(meta->typed, &stated)) return 0;
  return (stated & (stated - 1)) == 0 ? stated : 0;
}

ckpt_status ckpt_gguf_alignment(const ckpt_index *index, uint32_t *out, ckpt_error *err) {
  *out = ckpt_gguf_stated_alignment(index);
  if (*out != 0 && *out <= CKPT_GGUF_MAX_ALIGNMENT) return CKPT_OK;
  const ckpt_meta *meta = ckpt_index_meta(index, CKPT_GGUF_ALIGNMENT);
  return ckpt_advise(
      ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                CKPT_GGUF_ALIGNMENT " has to be a power of two up to %d as u32 to be written, not %.100s",
                CKPT_GGUF_MAX_ALIGNMENT, meta->value),
      err, "%set it");
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_gguf_order(uint32_t **out, const ckpt_layout *layout, ckpt_error *err) {
  const ckpt_index *index = layout->index, *from = index->objects_of;
  uint32_t *order = *out = ckpt_arena_array(layout->arena, (size_t)index->n_tensors + 1, sizeof *order);
  CKPT_TRY_ALLOC(order, err);
  for (uint32_t i = 0; i < index->n_tensors; i++) order[i] = i;
  if (from != NULL && ckpt_caps_of(from).presets) return CKPT_OK;
  ckpt_gguf_sort(order, index->n_tensors, index->tensors);
  return CKPT_OK;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void put_text(ckpt_stream *out, const char *text) {
  ckpt_stream_le(out, strlen(text), 8);
  ckpt_stream_text(out, text);
}

static void put_meta(ckpt_stream *out, const ckpt_meta *meta) {
  const ckpt_typed_value *value = meta->typed;
  put_text(out, meta->key);
  ckpt_stream_le(out, value == NULL ? CKPT_GGUF_STRING : value->type, 4);
  if (value == NULL)
    put_text(out, meta->value);
  else if (value->bytes != NULL)
    ckpt_stream_bytes(out, value->bytes, (size_t)value->n_bytes);
  else
    ckpt_stream_range(out, value->source, value->file, value->offset, value->n_bytes);
}

static void put_tensor(ckpt_stream *out, const ckpt_tensor *tensor, uint64_t offset) {
  put_text(out, tensor->name);
  ckpt_stream_le(out, tensor->rank, 4);
  for (uint32_t axis = tensor->rank; axis-- > 0;) ckpt_stream_le(out, tensor->shape[axis], 8);
  ckpt_stream_le(out, (uint64_t)ckpt_dtype_get(tensor->dtype)->ggml, 4);
  ckpt_stream_le(out, offset, 8);
}

/* The file's first bytes, up to the first tensor. */
static void print_header(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const header *h = arg;
  uint64_t offset = 0;
  ckpt_stream_text(out, "GGUF");
  ckpt_stream_le(out, 3, 4);
  ckpt_stream_le(out, h->n, 8);
  ckpt_stream_le(out, h->n_metadata, 8);
  for (uint32_t i = 0; i < h->n_metadata; i++) put_meta(out, &h->metadata[i]);
  for (uint32_t i = 0; i < h->n; i++) {
    const ckpt_tensor *tensor = &layout->index->tensors[h->tensors[i]];
    put_tensor(out, tensor, offset);
    offset += tensor->n_bytes +
              ckpt_gguf_padding(tensor->n_bytes, h->alignment); /* ckpt_layout_finish refuses what overflows */
  }
  ckpt_stream_fill(out, 0, ckpt_gguf_padding(out->n_bytes, h->alignment));
}

ckpt_status ckpt_gguf_lay(ckpt_layout *layout, const uint32_t *tensors, uint32_t n, const ckpt_meta *metadata,
                          uint32_t n_metadata, uint32_t alignment, ckpt_error *err) {
  header *h = ckpt_arena_alloc(layout->arena, sizeof *h);
  CKPT_TRY_ALLOC(h, err);
  *h = (header){tensors, n, metadata, n_metadata, alignment};
  if (n > CKPT_GGUF_MAX_TENSORS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u tensors, a GGUF file holds at most %d (write shards)", n,
                     CKPT_GGUF_MAX_TENSORS);
  CKPT_TRY(ckpt_layout_reserve(layout, 1 + 2 * n, err));
  CKPT_TRY(ckpt_layout_literal(layout, print_header, h, err));
  for (uint32_t i = 0; i < n; i++) {
    CKPT_TRY(ckpt_layout_tensor(layout, tensors[i], NULL, CKPT_CHECKSUM_NONE, err));
    CKPT_TRY(ckpt_layout_zeros(layout, ckpt_gguf_padding(layout->index->tensors[tensors[i]].n_bytes, alignment), err));
  }
  return CKPT_OK;
}
