/* tensors.c - tensors of a checkpoint's metadata, and their chunks as extents.
 *
 * A chunk is a box of its tensor, in a slice of a file that holds a torch.save archive (or that, compressed) of just
 * this box; or, with SerializationFormat.SAFETENSORS, a tensor of a file that is a safetensors file as a whole. Where
 * a tensor is not contiguous its chunks' own strides are looked up. Older PyTorch did not say whether it is: there the
 * first chunk is looked at. */
#include <string.h>

#include "formats/dcp/add.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/read/record.h"
#include "libckpt/extents/decode.h"
#include "libckpt/io/records.h"

typedef unsigned long long ull;

/* Tensors at most whose first chunk is looked at; of more, those that are not contiguous are refused when read. */
enum { MAX_LOOKS = 1 << 16 };

/* Part i of TensorProperties' state: (dtype, layout, requires_grad, memory_format, pin_memory[, strides]), or what it
 * is called where the state is a dict. */
static const ckpt_object *property(const ckpt_object *properties, uint64_t i, const char *name) {
  const ckpt_object *state = properties == NULL ? NULL : ckpt_object_extra_of(properties, CKPT_EXTRA_STATE);
  if (state == NULL || state->kind != CKPT_OBJECT_TUPLE) return ckpt_dcp_attribute(properties, name);
  return i < state->n ? state->items[i] : NULL;
}

/* What we cannot hold is no defect: reason says it, and the rest of the checkpoint is read. */
ckpt_status ckpt_dcp_describe(const ckpt_object *row, ckpt_dcp_described *out, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *size = ckpt_dcp_attribute(row, "size");
  *out = (ckpt_dcp_described){.dtype = CKPT_DTYPE_NONE};
  const ckpt_object *properties = ckpt_dcp_attribute(row, "properties");
  const ckpt_object *dtype = property(properties, 0, "dtype"), *strides = property(properties, 5, "strides");
  const ckpt_object *axes = size != NULL && size->kind == CKPT_OBJECT_FOREIGN ? ckpt_foreign_arg(size, 0) : size;
  if (axes != NULL && (axes->kind == CKPT_OBJECT_TUPLE || axes->kind == CKPT_OBJECT_LIST) && axes->n > CKPT_MAX_RANK)
    CKPT_TRY_ALLOC(out->reason = ckpt_arena_printf(arena, "of %llu axes (at most %d)", (ull)axes->n, CKPT_MAX_RANK),
                   err);
  else if (!ckpt_foreign_u64s(size, out->shape, CKPT_MAX_RANK, &out->rank))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its size is no shape of at most %d axes", CKPT_MAX_RANK);
  if (dtype == NULL || dtype->kind != CKPT_OBJECT_FOREIGN || dtype->form != CKPT_FORM_NAME)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its properties have no dtype");
  out->dtype = ckpt_torch_dtype(dtype);
  if (out->dtype == CKPT_DTYPE_NONE)
    CKPT_TRY_ALLOC(out->reason = ckpt_arena_printf(
                       arena, "of dtype %.60s", dtype->n_module == 0 ? dtype->name : dtype->name + dtype->n_module + 1),
                   err);
  if (out->dtype == CKPT_F4_E2M1 && out->rank == 0) out->reason = "a scalar of dtype float4_e2m1fn_x2";
  uint64_t of_strides[CKPT_MAX_RANK];
  uint32_t n;
  if (strides != NULL && ckpt_foreign_u64s(strides, of_strides, CKPT_MAX_RANK, &n) && n == out->rank)
    out->is_strided = !ckpt_is_row_major(out->rank, out->shape, of_strides);
  out->is_unsaid = strides == NULL && out->rank > 1;
  return CKPT_OK;
}

/* One more extent of the tensor at hand; its box is behind it in `boxes`. */
static ckpt_status next_extent(ckpt_dcp_adder *a, ckpt_extent **extent, uint64_t **box, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&a->extents, a->n_extents, &a->capacity, sizeof *a->extents, err));
  CKPT_TRY(ckpt_grow(&a->boxes, a->n_extents, &a->box_capacity, 2 * CKPT_MAX_RANK * sizeof *a->boxes, err));
  *extent = &a->extents[a->n_extents];
  *box = a->boxes + (size_t)a->n_extents * 2 * CKPT_MAX_RANK;
  **extent = (ckpt_extent){0};
  return CKPT_OK;
}

static void set_place(ckpt_extent *extent, const ckpt_dcp_slice *at) {
  extent->file = at->file;
  extent->offset = at->offset;
  extent->n_stored = at->n_bytes;
  if (at->file == CKPT_FILE_LITERAL) return;
  extent->chain[0] = at->is_zstd ? CKPT_DECODE_ZSTD : CKPT_DECODE_RECORD;
  if (at->is_zstd) extent->chain[1] = CKPT_DECODE_RECORD;
}

static bool is_whole(const ckpt_dcp_described *tensor, const uint64_t *box) {
  for (uint32_t i = 0; i < tensor->rank; i++)
    if (box[i] != 0 || box[CKPT_MAX_RANK + i] != tensor->shape[i]) return false;
  return true;
}

/* A chunk without elements is an archive all the same: where its file was cut, it is missing. A tensor of nothing else
 * keeps its place, by which its other names are found. */
static ckpt_status add_empty(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_dcp_described *tensor,
                             const ckpt_object *offsets, const uint64_t *box, ckpt_extent *extent, ckpt_error *err) {
  ckpt_dcp_slice at;
  ckpt_dcp_file *file;
  if (ckpt_dcp_find(&a->metadata->places, of->root, of->name, offsets, NULL) == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_dcp_find_slice(a, of, offsets, &at, err));
  if (at.file == CKPT_FILE_LITERAL) return CKPT_OK;
  CKPT_TRY(ckpt_dcp_slice_check(a->index->source, &at, err));
  if (a->n_extents != 0 || !is_whole(tensor, box)) return CKPT_OK;
  CKPT_TRY(ckpt_dcp_look_at(a, &at, &file, err));
  if (file->is_safetensors || at.n_bytes == 0) return CKPT_OK; /* its offset means nothing */
  set_place(extent, &at);
  a->n_extents++;
  return CKPT_OK;
}

/* Takes one chunk. */
static ckpt_status add_chunk(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_dcp_described *tensor,
                             const ckpt_object *chunk, ckpt_error *err) {
  ckpt_extent *extent;
  uint64_t *box, volume;
  uint32_t n_starts, n_counts;
  CKPT_TRY(next_extent(a, &extent, &box, err));
  const ckpt_object *offsets = ckpt_dcp_attribute(chunk, "offsets");
  if (!ckpt_foreign_u64s(offsets, box, CKPT_MAX_RANK, &n_starts) || n_starts != tensor->rank ||
      !ckpt_foreign_u64s(ckpt_dcp_attribute(chunk, "sizes"), box + CKPT_MAX_RANK, CKPT_MAX_RANK, &n_counts) ||
      n_counts != tensor->rank)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a chunk of it is no box of its %u ax%s", tensor->rank,
                     tensor->rank == 1 ? "is" : "es");
  ckpt_dcp_slice at;
  ckpt_dcp_file *file;
  if (!ckpt_product_u64(box + CKPT_MAX_RANK, tensor->rank, &volume)) volume = UINT64_MAX;
  if (volume == 0) return add_empty(a, of, tensor, offsets, box, extent, err);
  CKPT_TRY(ckpt_dcp_find_slice(a, of, offsets, &at, err));
  set_place(extent, &at);
  if (at.file != CKPT_FILE_LITERAL) {
    CKPT_TRY(ckpt_dcp_look_at(a, &at, &file, err));
    if (ckpt_mul_u64(volume, ckpt_dtype_get(tensor->dtype)->block_bytes, &volume))
      CKPT_TRY(ckpt_dcp_look_behind(a, &at, volume, file, err));
    if (file->is_safetensors) {
      extent->chain[0] = CKPT_DECODE_RAW;
      CKPT_TRY(ckpt_dcp_find_held(file, of->name->text, tensor->dtype, tensor->rank, box + CKPT_MAX_RANK, extent, err));
    }
  }
  a->n_extents++;
  return CKPT_OK;
}

/* That a chunk's archive holds what the metadata says, in however many bytes. */
static ckpt_status check_layout(ckpt_dcp_adder *a, const ckpt_extent *extent, const ckpt_record_layout *layout,
                                const ckpt_dcp_described *tensor, const uint64_t *counts, ckpt_error *err) {
  const char *path = ckpt_source_path(a->index->source, extent->file);
  char held[CKPT_SHAPE_TEXT], said[CKPT_SHAPE_TEXT];
  if (layout->rank != tensor->rank || memcmp(layout->sizes, counts, layout->rank * sizeof *counts) != 0)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "a chunk's archive holds the shape %s, the metadata says %s",
                     ckpt_shape_text(held, layout->rank, layout->sizes), ckpt_shape_text(said, tensor->rank, counts));
  if (layout->dtype == CKPT_DTYPE_NONE || layout->dtype == tensor->dtype) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "a chunk's archive holds %s, the metadata says %s",
                   ckpt_dtype_name(layout->dtype), ckpt_dtype_name(tensor->dtype));
}

/* That a chunk's bytes are all of its record, which is found again when it is read. PyTorch copies what has gaps before
 * it saves it. */
static ckpt_status take_dense(const ckpt_record_layout *layout, const uint64_t *counts, uint64_t *strides,
                              const char *what, ckpt_error *err) {
  uint64_t volume = 0, reach = 1, far;
  bool is_dense = layout->start == 0 && ckpt_product_u64(counts, layout->rank, &volume);
  for (uint32_t i = 0; i < layout->rank && is_dense; i++)
    is_dense = ckpt_mul_u64(counts[i] - 1, layout->strides[i], &far) && ckpt_add_u64(reach, far, &reach);
  if (!is_dense || reach != volume)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a view with gaps, and %s", what);
  memcpy(strides, layout->strides, layout->rank * sizeof *strides);
  return CKPT_OK;
}

/* The strides of a chunk behind zstd. */
static ckpt_status find_strides_behind(ckpt_dcp_adder *a, const ckpt_extent *extent, const ckpt_dcp_described *tensor,
                                       const uint64_t *counts, uint64_t *strides, ckpt_error *err) {
  ckpt_record_layout layout;
  CKPT_TRY(ckpt_dcp_slice_check(
      a->index->source, &(ckpt_dcp_slice){.file = extent->file, .offset = extent->offset, .n_bytes = extent->n_stored},
      err));
  CKPT_TRY(ckpt_decode_layout(&layout, a->index->source, extent, err));
  CKPT_TRY(check_layout(a, extent, &layout, tensor, counts, err));
  return take_dense(&layout, counts, strides, "compressed (save it without extensions)", err);
}

/* The strides of a chunk that is not row-major, and its record's own place in the file. */
static ckpt_status find_strides(ckpt_dcp_adder *a, ckpt_extent *extent, const char *name,
                                const ckpt_dcp_described *tensor, const uint64_t *counts, uint64_t *strides,
                                ckpt_error *err) {
  ckpt_record record;
  ckpt_record_layout layout;
  uint64_t start, n_bytes = UINT64_MAX, block_bytes = ckpt_dtype_get(tensor->dtype)->block_bytes;
  if (extent->chain[0] == CKPT_DECODE_ZSTD) return find_strides_behind(a, extent, tensor, counts, strides, err);
  if (extent->chain[0] == CKPT_DECODE_RAW) { /* safetensors: always row-major */
    ckpt_row_major(tensor->rank, counts, strides);
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_torch_record_layout(&record, &layout, a->index->source, extent->file, extent->offset, extent->n_stored,
                                    err));
  CKPT_TRY(check_layout(a, extent, &layout, tensor, counts, err));
  if (layout.signs != 0) return take_dense(&layout, counts, strides, "a conjugate or a negative", err);
  if (!ckpt_product_u64(counts, layout.rank, &n_bytes) || !ckpt_mul_u64(n_bytes, block_bytes, &n_bytes) ||
      n_bytes > record.n_bytes) /* PyTorch makes a copy of a view before it saves it */
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(a->index->source, extent->file), NULL,
                     "a chunk's archive has fewer bytes (%llu) than the chunk (%llu)", (ull)record.n_bytes,
                     (ull)n_bytes);
  memcpy(strides, layout.strides, layout.rank * sizeof *strides);
  if (!ckpt_mul_u64(layout.start, block_bytes, &start))
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(a->index->source, extent->file), NULL,
                     "a chunk begins at element %llu of its storage, past 2^64 bytes", (ull)layout.start);
  const ckpt_archive whole = {
      .name = name, .offset = extent->offset, .n_bytes = extent->n_stored, .file = extent->file};
  CKPT_TRY(ckpt_index_add_archive(a->index, &whole, err));
  const ckpt_decoder order = record.is_big_endian ? CKPT_DECODE_SWAPPED : CKPT_DECODE_RAW;
  if (record.has_crc32 && record.n_bytes != 0) {
    const ckpt_stored_record row =
        ckpt_stored_record_of(extent->file, record.offset, record.n_stored, record.n_bytes, record.crc32, "data/0");
    CKPT_TRY(ckpt_source_add_record(a->index->source, &row, err));
  }
  extent->skip = start;
  extent->offset = record.offset;
  extent->n_stored = record.n_stored;
  extent->chain[0] = record.is_deflated ? CKPT_DECODE_INFLATE : order;
  extent->chain[1] = record.is_deflated ? order : CKPT_DECODE_RAW;
  return CKPT_OK;
}

/* Whether the first chunk of the tensor at hand lies in another order. Where that cannot be told it is not: whoever
 * reads it will be told why. */
static bool lies_otherwise(ckpt_dcp_adder *a, const ckpt_dcp_described *tensor) {
  const ckpt_extent *extent = a->extents;
  const uint64_t *counts = a->boxes + CKPT_MAX_RANK;
  ckpt_record record;
  ckpt_record_layout layout;
  ckpt_error untold = {0};
  if (a->n_extents == 0 || extent->file == CKPT_FILE_LITERAL || extent->chain[0] == CKPT_DECODE_RAW ||
      a->n_looks++ >= MAX_LOOKS)
    return false;
  const ckpt_dcp_slice at = {.file = extent->file, .offset = extent->offset, .n_bytes = extent->n_stored};
  ckpt_status status = ckpt_dcp_slice_check(a->index->source, &at, &untold);
  if (status == CKPT_OK && extent->chain[0] == CKPT_DECODE_ZSTD)
    status = ckpt_decode_layout(&layout, a->index->source, extent, &untold);
  else if (status == CKPT_OK)
    status = ckpt_torch_record_layout(&record, &layout, a->index->source, at.file, at.offset, at.n_bytes, &untold);
  return status == CKPT_OK && check_layout(a, extent, &layout, tensor, counts, &untold) == CKPT_OK &&
         !ckpt_is_row_major(layout.rank, layout.sizes, layout.strides);
}

/* Gives the extents of the tensor at hand their parts; *form says of which kind. */
static ckpt_status place_extents(ckpt_dcp_adder *a, const char *name, const ckpt_dcp_described *tensor,
                                 uint64_t n_units, ckpt_extent_form *form, ckpt_error *err) {
  bool all_whole = !tensor->is_strided || n_units == 0;
  for (uint32_t i = 0; i < a->n_extents && all_whole; i++)
    all_whole = is_whole(tensor, a->boxes + (size_t)i * 2 * CKPT_MAX_RANK);
  *form = all_whole ? CKPT_EXTENT_FLAT : tensor->is_strided ? CKPT_EXTENT_STRIDED : CKPT_EXTENT_BOX;
  uint32_t rank = tensor->rank;
  for (uint32_t i = 0; i < a->n_extents; i++) {
    ckpt_extent *extent = &a->extents[i];
    const uint64_t *from = a->boxes + (size_t)i * 2 * CKPT_MAX_RANK;
    if (*form == CKPT_EXTENT_FLAT) {
      extent->start = 0;
      extent->count = n_units;
      continue;
    }
    uint64_t *box =
        ckpt_arena_array(&a->index->arena, (*form == CKPT_EXTENT_STRIDED ? 3 : 2) * (size_t)rank, sizeof *box);
    CKPT_TRY_ALLOC(box, err);
    memcpy(box, from, rank * sizeof *box);
    memcpy(box + rank, from + CKPT_MAX_RANK, rank * sizeof *box);
    if (*form == CKPT_EXTENT_STRIDED && extent->file != CKPT_FILE_LITERAL)
      CKPT_TRY(find_strides(a, extent, name, tensor, box + rank, box + 2 * rank, err));
    extent->box = box;
  }
  return CKPT_OK;
}

/* The list of an item's chunks. */
static ckpt_status chunks_of(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_object **out, ckpt_error *err) {
  *out = ckpt_dcp_attribute(of->value, "chunks");
  if (*out == NULL || (*out)->kind != CKPT_OBJECT_LIST)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "it has no list of chunks");
  a->n_chunks += (*out)->n;
  if (a->n_chunks > a->metadata->n_bytes) /* one list, many times */
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more chunks (%llu) than the metadata has bytes (%llu)",
                     (ull)a->n_chunks, (ull)a->metadata->n_bytes);
  return CKPT_OK;
}

/* A tensor that is not read: its chunks have to be there all the same, and `verify` goes through them. */
static ckpt_status leave_tensor(ckpt_dcp_adder *a, const ckpt_dcp_item *items, uint64_t n, const char *name,
                                ckpt_role role, const char *reason, uint32_t *number, ckpt_error *err) {
  ckpt_arena *arena = &a->index->arena;
  *number = UINT32_MAX;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *chunks = NULL;
    CKPT_TRY(chunks_of(a, &items[i], &chunks, err));
    for (uint64_t k = 0; k < chunks->n; k++) {
      ckpt_dcp_slice at;
      ckpt_dcp_file *file = NULL;
      CKPT_TRY(ckpt_dcp_find_slice(a, &items[i], ckpt_dcp_attribute(chunks->items[k], "offsets"), &at, err));
      if (at.file == CKPT_FILE_LITERAL) continue;
      CKPT_TRY(ckpt_dcp_slice_check(a->index->source, &at, err));
      CKPT_TRY(ckpt_dcp_look_at(a, &at, &file, err));
      const ckpt_archive whole = {
          .name = name, .offset = at.offset, .n_bytes = at.n_bytes, .file = at.file, .is_zstd = at.is_zstd};
      if (!file->is_safetensors) CKPT_TRY(ckpt_index_add_archive(a->index, &whole, err));
    }
  }
  const char *copy = ckpt_arena_copy(arena, name);
  CKPT_TRY_ALLOC(copy, err);
  ckpt_torch_unread_add(&a->unread, reason, copy);
  return ckpt_index_add_unread(a->index, name, role, reason, err);
}

/* Two ranks say different things of one tensor. */
static ckpt_status refuse_other(const ckpt_dcp_described *x, const ckpt_dcp_described *y, uint32_t rank, uint32_t other,
                                ckpt_error *err) {
  char one[CKPT_SHAPE_TEXT], two[CKPT_SHAPE_TEXT];
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "rank %u says %s %s%s, rank %u %s %s%s", rank,
                   ckpt_dtype_name(x->dtype), ckpt_shape_text(one, x->rank, x->shape), x->is_strided ? ", strided" : "",
                   other, ckpt_dtype_name(y->dtype), ckpt_shape_text(two, y->rank, y->shape),
                   y->is_strided ? ", strided" : "");
}

ckpt_status ckpt_dcp_add_tensor(ckpt_dcp_adder *a, const ckpt_dcp_item *items, uint64_t n, const char *name,
                                ckpt_role role, uint32_t *number, ckpt_error *err) {
  ckpt_dcp_described tensor, other;
  CKPT_TRY(ckpt_dcp_describe(items[0].value, &tensor, &a->index->arena, err));
  if (tensor.reason != NULL) return leave_tensor(a, items, n, name, role, tensor.reason, number, err);
  a->n_extents = 0;
  for (uint64_t i = 0; i < n; i++) {
    CKPT_TRY(ckpt_dcp_describe(items[i].value, &other, &a->index->arena, err));
    if (other.dtype != tensor.dtype || other.rank != tensor.rank || other.is_strided != tensor.is_strided ||
        memcmp(other.shape, tensor.shape, tensor.rank * sizeof *tensor.shape) != 0)
      return refuse_other(&tensor, &other, items[0].root, items[i].root, err);
    const ckpt_object *chunks = NULL;
    CKPT_TRY(chunks_of(a, &items[i], &chunks, err));
    for (uint64_t k = 0; k < chunks->n; k++) CKPT_TRY(add_chunk(a, &items[i], &tensor, chunks->items[k], err));
  }
  uint64_t n_units, shape[CKPT_MAX_RANK];
  ckpt_extent_form form;
  if (!ckpt_product_u64(tensor.shape, tensor.rank, &n_units))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "shape has more than 2^64 elements");
  if (tensor.is_unsaid && n_units != 0) tensor.is_strided = lies_otherwise(a, &tensor);
  CKPT_TRY(place_extents(a, name, &tensor, n_units, &form, err));
  memcpy(shape, tensor.shape, sizeof shape);
  uint64_t block = ckpt_dtype_get(tensor.dtype)->block_elements;
  if (block != 1 && !ckpt_mul_u64(shape[tensor.rank - 1], block, &shape[tensor.rank - 1]))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "shape has more than 2^64 elements");
  ckpt_tensor_details details = {.extent_form = (uint8_t)form};
  const ckpt_tensor wanted = {.dtype = (uint8_t)tensor.dtype,
                              .rank = tensor.rank,
                              .shape = shape,
                              .extents = a->extents,
                              .n_extents = a->n_extents,
                              .details = &details};
  int64_t twin = ckpt_dcp_twins_find(&a->twins, a->index, &wanted);
  if (twin >= 0) {
    *number = (uint32_t)twin;
    return ckpt_index_alias_as(a->index, *number, name, role, err);
  }
  CKPT_TRY(ckpt_index_add(a->index, name, strlen(name), tensor.dtype, tensor.rank, shape, role, a->extents,
                          a->n_extents, number, err));
  a->index->tensors[*number].details->extent_form = (uint8_t)form;
  CKPT_TRY(ckpt_dcp_twins_add(&a->twins, a->index, *number, err));
  for (uint32_t i = 0; i < a->n_extents; i++) /* of a file that is missing, which is told */
    if (a->extents[i].file == CKPT_FILE_LITERAL) ckpt_index_break(a->index, *number, *number + 1);
  return CKPT_OK;
}
