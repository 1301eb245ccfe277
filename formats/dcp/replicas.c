/* replicas.c - tensors that several ranks have saved under one name, without collectives: one where their values are
 * equal, else each rank's own, as it is with objects.
 *
 * Opening compares the CRC-32 that records of one box carry, which costs a look at their directories and reads no
 * values. Records without a CRC-32 (compressed, or switched off) are read. `verify` reads all. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/add.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/torch/read/record.h"
#include "libckpt/extents/decode.h"
#include "libckpt/format/findings.h"

typedef unsigned long long ull;

/* One chunk with elements. */
typedef struct replica {
  const ckpt_object *chunk;
  uint64_t box[2 * CKPT_MAX_RANK]; /* starts, counts */
  uint32_t item;                   /* of those with the name */
  bool is_whole;                   /* it is all of its tensor */
} replica;

typedef struct replicas {
  ckpt_dcp_adder *a;
  const ckpt_dcp_item *items;
  ckpt_dcp_described *tensors; /* of each item */
  bool *is_own;                /* of each: not what the first has */
  replica *chunks;
  uint64_t n_items, n_chunks;
} replicas;

static int compare_replicas(const void *a, const void *b) {
  const replica *x = a, *y = b;
  const int order = memcmp(x->box, y->box, sizeof x->box);
  return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

static bool is_same_kind(const ckpt_dcp_described *x, const ckpt_dcp_described *y) {
  return x->dtype == y->dtype && x->rank == y->rank && memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0;
}

/* ---- which chunks ------------------------------------------------------------------------------------------------ */

/* The list of an item's chunks, NULL where it has none: adding the tensor will say so. */
static const ckpt_object *chunks_of(const ckpt_dcp_item *of) {
  const ckpt_object *chunks = ckpt_dcp_attribute(of->value, "chunks");
  return chunks != NULL && chunks->kind == CKPT_OBJECT_LIST ? chunks : NULL;
}

/* Takes a chunk with elements; one that is no box of its tensor is told when the tensor is added. */
static void take_chunk(replicas *r, uint32_t item, const ckpt_object *chunk) {
  const ckpt_dcp_described *tensor = &r->tensors[item];
  replica *out = &r->chunks[r->n_chunks];
  uint32_t n_starts, n_counts;
  uint64_t volume;
  memset(out, 0, sizeof *out);
  if (!ckpt_foreign_u64s(ckpt_dcp_attribute(chunk, "offsets"), out->box, CKPT_MAX_RANK, &n_starts) ||
      !ckpt_foreign_u64s(ckpt_dcp_attribute(chunk, "sizes"), out->box + CKPT_MAX_RANK, CKPT_MAX_RANK, &n_counts) ||
      n_starts != tensor->rank || n_counts != tensor->rank ||
      !ckpt_product_u64(out->box + CKPT_MAX_RANK, tensor->rank, &volume) || volume == 0)
    return;
  out->chunk = chunk;
  out->item = item;
  out->is_whole = true;
  for (uint32_t i = 0; i < tensor->rank; i++)
    out->is_whole = out->is_whole && out->box[i] == 0 && out->box[CKPT_MAX_RANK + i] == tensor->shape[i];
  r->n_chunks++;
}

static ckpt_status list_chunks(replicas *r, ckpt_error *err) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < r->n_items; i++) {
    const ckpt_object *chunks = chunks_of(&r->items[i]);
    if (chunks != NULL) n += chunks->n;
    CKPT_TRY(ckpt_dcp_describe(r->items[i].value, &r->tensors[i], &r->a->index->arena, err));
  }
  if (n > r->a->metadata->n_bytes) return CKPT_OK; /* one list, many times: adding the tensor refuses it */
  r->chunks = calloc((size_t)n + 1, sizeof *r->chunks);
  CKPT_TRY_ALLOC(r->chunks, err);
  for (uint64_t i = 0; i < r->n_items; i++) {
    const ckpt_object *chunks = chunks_of(&r->items[i]);
    for (uint64_t k = 0; chunks != NULL && k < chunks->n; k++) take_chunk(r, (uint32_t)i, chunks->items[k]);
  }
  if (r->n_chunks > 1) qsort(r->chunks, (size_t)r->n_chunks, sizeof *r->chunks, compare_replicas);
  return CKPT_OK;
}

/* ---- two of them ------------------------------------------------------------------------------------------------- */

/* A chunk as a tensor of its own, row-major, and the archive around it. */
typedef struct opened {
  ckpt_dcp_slice at;
  ckpt_extent extent;
  ckpt_tensor_details details;
  ckpt_tensor tensor;
  ckpt_record found; /* where the item is not compressed */
  ckpt_record_layout layout;
} opened;

static ckpt_status open_chunk(opened *out, const replicas *r, const replica *of, ckpt_error *err) {
  const ckpt_dcp_described *tensor = &r->tensors[of->item];
  ckpt_source *source = r->a->index->source;
  *out = (opened){.details = {.extent_form = CKPT_EXTENT_FLAT}};
  CKPT_TRY(ckpt_dcp_peek_slice(r->a, &r->items[of->item], ckpt_dcp_attribute(of->chunk, "offsets"), &out->at, err));
  if (out->at.file == CKPT_FILE_LITERAL) return CKPT_OK; /* it is missing, and told */
  CKPT_TRY(ckpt_dcp_slice_check(source, &out->at, err));
  out->tensor = (ckpt_tensor){.name = r->items[of->item].name->text,
                              .shape = of->box + CKPT_MAX_RANK,
                              .rank = (uint8_t)tensor->rank,
                              .dtype = (uint8_t)tensor->dtype,
                              .n_extents = 1,
                              .extents = &out->extent,
                              .details = &out->details,
                              .n_elements = 1};
  for (uint32_t i = 0; i < tensor->rank; i++) out->tensor.n_elements *= out->tensor.shape[i];
  out->extent = (ckpt_extent){.file = out->at.file,
                              .offset = out->at.offset,
                              .n_stored = out->at.n_bytes,
                              .count = out->tensor.n_elements,
                              .chain = {CKPT_DECODE_RECORD}};
  if (out->at.is_zstd) {
    out->extent.chain[0] = CKPT_DECODE_ZSTD;
    out->extent.chain[1] = CKPT_DECODE_RECORD;
    return CKPT_OK;
  }
  return ckpt_torch_record_layout(&out->found, &out->layout, source, out->at.file, out->at.offset, out->at.n_bytes,
                                  err);
}

/* Whether their values are the same, by reading them: as they lie, where that is the same. */
static ckpt_status compare_values(bool *is_same, const replicas *r, const opened *x, const opened *y, ckpt_error *err) {
  enum { STEP_BYTES = 256 << 10 };
  ckpt_reader one = {.source = r->a->index->source, .max_bytes = CKPT_CURSOR_BYTES, .is_strided = true}, two = one;
  const uint64_t block_bytes = ckpt_dtype_get(x->tensor.dtype)->block_bytes, n_step = STEP_BYTES / block_bytes;
  uint64_t n_bytes = x->tensor.n_elements * block_bytes;
  uint8_t *bytes = calloc(2, STEP_BYTES);
  CKPT_TRY_ALLOC(bytes, err);
  ckpt_status status = CKPT_OK;
  *is_same = true;
  for (uint64_t at = 0; at < n_bytes && *is_same && status == CKPT_OK; at += n_step * block_bytes) {
    const uint64_t n_left = n_bytes - at, n = n_left < n_step * block_bytes ? n_left : n_step * block_bytes;
    one.n_expected = two.n_expected = n_bytes;
    status = ckpt_reader_read(&one, &x->extent, (uint32_t)block_bytes, at, bytes, (size_t)n, err);
    if (status == CKPT_OK)
      status = ckpt_reader_read(&two, &y->extent, (uint32_t)block_bytes, at, bytes + STEP_BYTES, (size_t)n, err);
    *is_same = status == CKPT_OK && memcmp(bytes, bytes + STEP_BYTES, (size_t)n) == 0;
  }
  ckpt_reader_reset(&one);
  ckpt_reader_reset(&two);
  free(bytes);
  return status;
}

static bool lie_alike(const opened *x, const opened *y) {
  const ckpt_record_layout *a = &x->layout, *b = &y->layout;
  return a->dtype == b->dtype && a->rank == b->rank && a->start == b->start &&
         memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes) == 0 &&
         memcmp(a->strides, b->strides, a->rank * sizeof *a->strides) == 0 && a->signs == b->signs &&
         x->found.is_big_endian == y->found.is_big_endian;
}

/* What cannot be looked at is told where it is read, of the first; a replica alone is left to `verify`. */
static ckpt_status compare(bool *is_same, const replicas *r, const replica *first, const replica *other,
                           ckpt_error *err) {
  opened x, y;
  *is_same = true;
  CKPT_TRY(open_chunk(&x, r, first, err));
  CKPT_TRY(open_chunk(&y, r, other, err));
  if (x.at.file == CKPT_FILE_LITERAL || y.at.file == CKPT_FILE_LITERAL) return CKPT_OK;
  ckpt_archive whole = {.name = y.tensor.name,
                        .offset = y.at.offset,
                        .n_bytes = y.at.n_bytes,
                        .file = y.at.file,
                        .is_zstd = y.at.is_zstd};
  const bool is_summed = !x.at.is_zstd && !y.at.is_zstd && x.found.has_crc32 && y.found.has_crc32 &&
                         !x.found.is_deflated && !y.found.is_deflated;
  if (x.at.is_zstd != y.at.is_zstd || (!x.at.is_zstd && !lie_alike(&x, &y)))
    *is_same = false; /* another way to save it, which a rank alone has chosen */
  else if (is_summed) {
    *is_same = x.found.n_bytes == y.found.n_bytes && x.found.crc32 == y.found.crc32;
    whole.n_same = y.found.n_bytes;
    whole.own_offset = y.found.offset;
    whole.same_offset = x.found.offset;
    whole.same_file = x.at.file;
  } else
    CKPT_TRY(compare_values(is_same, r, &x, &y, err));
  return *is_same ? ckpt_index_add_archive(r->a->index, &whole, err) : CKPT_OK; /* which `verify` goes through */
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static ckpt_status refuse_part(const replicas *r, const replica *first, const replica *other, ckpt_error *err) {
  char starts[CKPT_SHAPE_TEXT], counts[CKPT_SHAPE_TEXT];
  const uint32_t rank = r->tensors[other->item].rank;
  return ckpt_fail(err, CKPT_EDIFFERENT, NULL, NULL,
                   "ranks %u and %u have different values of one part of it (%s at %s): their replicas have drifted, "
                   "and neither rank has all of it (in a copy, remove __R.metadata of the ranks whose replica is "
                   "not wanted)",
                   r->items[first->item].root, r->items[other->item].root,
                   ckpt_shape_text(counts, rank, other->box + CKPT_MAX_RANK),
                   ckpt_shape_text(starts, rank, other->box));
}

/* Compares each chunk with the first of the same box. */
static ckpt_status compare_all(replicas *r, ckpt_error *err) {
  for (uint64_t i = 0, first = 0; i < r->n_chunks; i++) {
    const replica *chunk = &r->chunks[i];
    if (memcmp(chunk->box, r->chunks[first].box, sizeof chunk->box) != 0) first = i;
    if (i == first || chunk->item == r->chunks[first].item || r->is_own[chunk->item]) continue;
    bool is_same;
    CKPT_TRY(compare(&is_same, r, &r->chunks[first], chunk, err));
    if (!is_same && !chunk->is_whole) return refuse_part(r, &r->chunks[first], chunk, err);
    r->is_own[chunk->item] = !is_same;
  }
  return CKPT_OK;
}

/* An item of another dtype or shape is its rank's own, where that has all of it. */
static void find_others(replicas *r) {
  for (uint64_t i = 0; i < r->n_chunks; i++) {
    const replica *chunk = &r->chunks[i];
    if (chunk->is_whole && !is_same_kind(&r->tensors[0], &r->tensors[chunk->item])) r->is_own[chunk->item] = true;
  }
}

ckpt_status ckpt_dcp_split_replicas(ckpt_dcp_adder *a, ckpt_dcp_item *items, uint64_t n, uint64_t *n_same,
                                    ckpt_error *err) {
  replicas r = {.a = a, .items = items, .n_items = n};
  *n_same = n;
  if (n == 1) return CKPT_OK;
  ckpt_dcp_item *sorted = calloc((size_t)n, sizeof *sorted);
  r.tensors = calloc((size_t)n, sizeof *r.tensors);
  r.is_own = calloc((size_t)n, sizeof *r.is_own);
  ckpt_status status = CKPT_OK;
  if (sorted == NULL || r.tensors == NULL || r.is_own == NULL)
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) status = list_chunks(&r, err);
  if (status == CKPT_OK) find_others(&r);
  if (status == CKPT_OK && r.tensors[0].reason == NULL) status = compare_all(&r, err);
  if (status == CKPT_OK) { /* the first's before, others behind, each in order of ranks */
    uint64_t n_sorted = 0;
    for (int is_own = 0; is_own < 2; is_own++) {
      for (uint64_t i = 0; i < n; i++)
        if (r.is_own[i] == (is_own != 0)) sorted[n_sorted++] = items[i];
      if (is_own == 0) *n_same = n_sorted;
    }
    memcpy(items, sorted, (size_t)n * sizeof *items);
  }
  free(sorted);
  free(r.tensors);
  free(r.is_own);
  free(r.chunks);
  return status;
}

/* ---- their bytes ------------------------------------------------------------------------------------------------- */

/* Reads two records, a window each at a time, and compares their bytes; with sums also their checksums, into sums[2].
 */
static ckpt_status compare_records(bool *is_same, uint32_t *sums, const ckpt_index *index, const ckpt_archive *of,
                                   uint8_t *window, size_t n_window, ckpt_error *err) {
  *is_same = true;
  for (uint64_t at = 0; at < of->n_same && (*is_same || sums != NULL); at += n_window) {
    const size_t n = of->n_same - at < n_window ? (size_t)(of->n_same - at) : n_window;
    CKPT_TRY(ckpt_source_read(index->source, of->file, of->own_offset + at, window, n, err));
    CKPT_TRY(ckpt_source_read(index->source, of->same_file, of->same_offset + at, window + n_window, n, err));
    *is_same = *is_same && memcmp(window, window + n_window, n) == 0;
    for (size_t i = 0; sums != NULL && i < 2; i++) sums[i] = ckpt_crc32(sums[i], window + i * n_window, n);
  }
  return CKPT_OK;
}

/* Whether records of equal CRC-32 have the same bytes. crc.c reports a record that does not match its own. */
static ckpt_status has_same_bytes(bool *is_same, const ckpt_index *index, const ckpt_archive *of, uint8_t *window,
                                  size_t n_window, ckpt_error *err) {
  uint32_t sums[2] = {0, 0};
  CKPT_TRY(compare_records(is_same, NULL, index, of, window, n_window, err));
  if (*is_same) return CKPT_OK;
  CKPT_TRY(compare_records(is_same, sums, index, of, window, n_window, err));
  *is_same = *is_same || sums[0] != sums[1];
  return CKPT_OK;
}

ckpt_status ckpt_dcp_verify_replicas(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  enum { WINDOW_BYTES = 256 << 10 };
  uint8_t *windows = calloc(2, WINDOW_BYTES);
  CKPT_TRY_ALLOC(windows, err);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < index->n_archives && status == CKPT_OK; i++) {
    const ckpt_archive *of = &index->archives[i];
    bool is_same = true;
    if (of->n_same != 0) status = has_same_bytes(&is_same, index, of, windows, WINDOW_BYTES, err);
    if (status == CKPT_OK && !is_same)
      status = ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, of->file), of->name,
                                 "its values differ from those of its replica in %s, although both have one CRC-32",
                                 ckpt_source_name(index->source, of->same_file));
  }
  free(windows);
  return status;
}
