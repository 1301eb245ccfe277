/* dcp_tensors.c - the tables of a checkpoint's metadata to tensors, extents and objects.
 *
 * A chunk is a box of its tensor, in a slice of a file that holds a torch.save archive (or that, compressed) of just
 * this box; or, with SerializationFormat.SAFETENSORS, a tensor of a file that is a safetensors file as a whole. Where
 * a tensor is not contiguous its chunks' own strides are looked up. Items that are no tensors go to dcp_objects.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp_objects.h"
#include "libckpt/checked.h"
#include "libckpt/codec/name_table.h"
#include "libckpt/codec/pickle.h"
#include "libckpt/codec/safetensors.h"
#include "libckpt/codec/torch_graph.h"
#include "libckpt/decode.h"
#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/grow.h"

typedef unsigned long long ull;

enum { N_CACHED = 4096, MAX_LISTED = 4 };

/* An item of one root; those of all roots with one name are one tensor. */
typedef struct item {
  const ckpt_object *name, *value;
  uint32_t root;
} item;

/* A file of chunks. */
typedef struct data_file {
  bool is_known, is_safetensors;
  ckpt_index *held;       /* what a safetensors file holds */
  ckpt_name_table *table; /* its names */
  uint8_t *is_taken;      /* of each, whether a chunk lies there */
} data_file;

typedef struct adder {
  ckpt_index *index;
  const ckpt_dcp_metadata *metadata;
  ckpt_dcp_structure structure;
  bool stored_names;
  item *items;
  uint64_t n_items, n_chunks;
  struct {
    const ckpt_object *name;
    uint32_t file;
  } cache[N_CACHED]; /* by the node that names the file: a pickle repeats it */
  data_file *files;
  uint32_t n_files, file_capacity;
  const char **missing; /* paths, some more than once */
  uint32_t n_missing, missing_capacity;
  ckpt_extent *extents; /* of the tensor at hand */
  uint64_t *boxes;      /* 2 * CKPT_MAX_RANK of each: starts, counts */
  uint32_t n_extents, capacity, box_capacity;
  ckpt_dcp_objects *objects;
  ckpt_dcp_twins twins;
  ckpt_dcp_places places; /* of all items but those in safetensors files */
  ckpt_torch_unread unread;
} adder;

/* ---- files ---- */

/* What is wrong with a text that is short enough to be a name. */
static const char *no_name(const ckpt_object *name) {
  if (name == NULL || name->kind != CKPT_OBJECT_TEXT) return "no text";
  return name->n == 0 ? "empty" : "a text with a zero byte";
}

static ckpt_status find_file(adder *a, const ckpt_object *name, const char *folder, uint32_t *file, ckpt_error *err) {
  size_t at = (size_t)((uint64_t)(uintptr_t)name * UINT64_C(0x9e3779b97f4a7c15) >> 52) % N_CACHED;
  *file = a->cache[at].file;
  if (a->cache[at].name == name) return CKPT_OK;
  if (name != NULL && name->kind == CKPT_OBJECT_TEXT && name->n > CKPT_DCP_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the name of its file has %llu bytes, at most %d", (ull)name->n,
                     CKPT_DCP_NAME_BYTES);
  if (!ckpt_dcp_is_name(name) || name->n == 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the name of its file is %s", no_name(name));
  char joined[2 * CKPT_DCP_NAME_BYTES];
  const char *path = folder == NULL ? name->text : joined;
  if (folder != NULL && (size_t)snprintf(joined, sizeof joined, "%s/%s", folder, name->text) >= sizeof joined)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the name of its file is longer than %zu bytes", sizeof joined - 1);
  uint64_t n_bytes;
  ckpt_error why = {0};
  ckpt_status status = ckpt_source_add(a->index->source, path, file, &n_bytes, &why);
  if (status == CKPT_ENOTFOUND) { /* all of them are said together */
    *file = CKPT_FILE_LITERAL;
    CKPT_TRY(ckpt_grow(&a->missing, a->n_missing, &a->missing_capacity, sizeof *a->missing, err));
    CKPT_TRY_ALLOC(a->missing[a->n_missing++] = ckpt_arena_copy(&a->index->arena, path), err);
  } else if (status != CKPT_OK) {
    if (err != NULL) *err = why;
    return status;
  }
  a->cache[at].name = name;
  a->cache[at].file = *file;
  return CKPT_OK;
}

static ckpt_status find_codec(const ckpt_object *codecs, bool *is_zstd, ckpt_error *err) {
  *is_zstd = false;
  if (codecs == NULL || codecs->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  const ckpt_object *codec = ckpt_foreign_arg(codecs, 0);
  if (codecs->kind != CKPT_OBJECT_LIST && codecs->kind != CKPT_OBJECT_TUPLE)
    codec = NULL;
  else if (codecs->n == 0)
    return CKPT_OK;
  if (codec == NULL || codec->kind != CKPT_OBJECT_TEXT || codecs->n != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "its bytes went through several extensions");
  *is_zstd = strncmp(codec->text, "stream.zstd/1", 13) == 0 && (codec->text[13] == '\0' || codec->text[13] == '.');
  if (*is_zstd) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "its bytes went through the extension %.80s (only stream.zstd/1 is known)", codec->text);
}

static ckpt_status find_slice(adder *a, const item *of, const ckpt_object *offset, ckpt_dcp_slice *out,
                              ckpt_error *err) {
  bool is_first = false;
  const ckpt_object *info = ckpt_dcp_find(&a->metadata->places, of->root, of->name, offset, &is_first);
  if (info == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage_data has no place for a chunk of it");
  const ckpt_object *name = ckpt_dcp_attribute(info, "relative_path");
  const ckpt_object *start = ckpt_dcp_attribute(info, "offset"), *n = ckpt_dcp_attribute(info, "length");
  if (name == NULL || start == NULL || n == NULL || start->kind != CKPT_OBJECT_INT || n->kind != CKPT_OBJECT_INT ||
      start->integer < 0 || n->integer < 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its place in storage_data is no file, offset and length");
  out->offset = (uint64_t)start->integer;
  out->n_bytes = (uint64_t)n->integer;
  CKPT_TRY(find_codec(ckpt_dcp_attribute(info, "transform_descriptors"), &out->is_zstd, err));
  CKPT_TRY(find_file(a, name, a->metadata->roots[of->root].folder, &out->file, err));
  return is_first ? ckpt_dcp_places_add(&a->places, out, of->name, err) : CKPT_OK;
}

/* ---- safetensors in .distcp files ---- */

static ckpt_status read_held(adder *a, data_file *file, uint32_t number, ckpt_error *err) {
  file->is_safetensors = true;
  CKPT_TRY(ckpt_safetensors_read_alone(&file->held, a->index->source, number, &a->index->defects, err));
  CKPT_TRY(ckpt_name_table_new(&file->table, file->held, err));
  file->is_taken = calloc((size_t)file->held->n_tensors + 1, 1);
  CKPT_TRY_ALLOC(file->is_taken, err);
  return CKPT_OK;
}

/* What kind of file a chunk lies in, by its first bytes. */
static ckpt_status look_at_file(adder *a, const ckpt_dcp_slice *at, data_file **out, ckpt_error *err) {
  while (at->file >= a->n_files) {
    CKPT_TRY(ckpt_grow(&a->files, a->n_files, &a->file_capacity, sizeof *a->files, err));
    a->files[a->n_files++] = (data_file){0};
  }
  data_file *file = *out = &a->files[at->file];
  if (file->is_known) return CKPT_OK;
  file->is_known = true;
  uint8_t head[16];
  if (at->is_zstd || ckpt_source_size(a->index->source, at->file) < sizeof head) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(a->index->source, at->file, 0, head, sizeof head, err));
  bool is_archive = head[0] == 'P' && head[1] == 'K';
  return !is_archive && ckpt_safetensors_probe(head, sizeof head) ? read_held(a, file, at->file, err) : CKPT_OK;
}

/* The extent of the one chunk of a tensor that a safetensors file holds. */
static ckpt_status find_held(data_file *file, const char *stored, ckpt_dtype dtype, uint32_t rank,
                             const uint64_t *counts, ckpt_extent *out, ckpt_error *err) {
  if (file->held == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a chunk's safetensors file cannot be read");
  int64_t number = ckpt_name_table_find(file->table, stored);
  const ckpt_tensor *held = number < 0 ? NULL : &file->held->tensors[number];
  if (held == NULL || held->n_extents > 1)
    return ckpt_fail(err, CKPT_EFORMAT, file->held->path, NULL, "a chunk is missing in its safetensors file");
  bool is_same = held->dtype == dtype && held->rank == rank &&
                 (rank == 0 || memcmp(held->shape, counts, rank * sizeof *counts) == 0);
  if (!is_same || file->is_taken[number])
    return ckpt_fail(err, CKPT_EFORMAT, file->held->path, NULL,
                     file->is_taken[number] ? "two chunks of it were saved under one name: one is lost (save again "
                                              "with another thread_count or without SAFETENSORS)"
                                            : "a chunk has another dtype or shape in its safetensors file");
  file->is_taken[number] = 1;
  out->offset = held->extents[0].offset;
  out->n_stored = held->extents[0].n_stored;
  return CKPT_OK;
}

/* ---- tensors ---- */

/* A tensor's description: the same in every root. Shape is torch's; of packed dtypes, in packs. */
typedef struct described {
  ckpt_dtype dtype;
  uint32_t rank;
  uint64_t shape[CKPT_MAX_RANK];
  bool is_strided;    /* its chunks may not be row-major */
  const char *reason; /* why it is not read; or NULL */
} described;

/* Part i of TensorProperties' state: (dtype, layout, requires_grad, memory_format, pin_memory[, strides]), or what it
 * is called where the state is a dict. */
static const ckpt_object *property(const ckpt_object *properties, uint64_t i, const char *name) {
  const ckpt_object *state = properties == NULL ? NULL : ckpt_object_extra_of(properties, CKPT_EXTRA_STATE);
  if (state == NULL || state->kind != CKPT_OBJECT_TUPLE) return ckpt_dcp_attribute(properties, name);
  return i < state->n ? state->items[i] : NULL;
}

/* What we cannot hold is no defect: reason says it, and the rest of the checkpoint is read. */
static ckpt_status describe(const ckpt_object *row, described *out, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *size = ckpt_dcp_attribute(row, "size");
  *out = (described){.dtype = CKPT_DTYPE_NONE};
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
  return CKPT_OK;
}

/* One more extent of the tensor at hand; its box is behind it in `boxes`. */
static ckpt_status next_extent(adder *a, ckpt_extent **extent, uint64_t **box, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&a->extents, a->n_extents, &a->capacity, sizeof *a->extents, err));
  CKPT_TRY(ckpt_grow(&a->boxes, a->n_extents, &a->box_capacity, 2 * CKPT_MAX_RANK * sizeof *a->boxes, err));
  *extent = &a->extents[a->n_extents];
  *box = a->boxes + (size_t)a->n_extents * 2 * CKPT_MAX_RANK;
  **extent = (ckpt_extent){0};
  return CKPT_OK;
}

/* A chunk without elements is an archive all the same: where its file was cut, it is missing. */
static ckpt_status check_empty(adder *a, const item *of, const ckpt_object *offsets, ckpt_error *err) {
  ckpt_dcp_slice at;
  if (ckpt_dcp_find(&a->metadata->places, of->root, of->name, offsets, NULL) == NULL) return CKPT_OK;
  CKPT_TRY(find_slice(a, of, offsets, &at, err));
  return at.file == CKPT_FILE_LITERAL ? CKPT_OK : ckpt_dcp_slice_check(a->index->source, &at, err);
}

/* Takes one chunk, unless it is empty. */
static ckpt_status add_chunk(adder *a, const item *of, const described *tensor, const ckpt_object *chunk,
                             ckpt_error *err) {
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
  data_file *file;
  if (ckpt_product_u64(box + CKPT_MAX_RANK, tensor->rank, &volume) && volume == 0)
    return check_empty(a, of, offsets, err);
  CKPT_TRY(find_slice(a, of, offsets, &at, err));
  extent->file = at.file;
  extent->offset = at.offset;
  extent->n_stored = at.n_bytes;
  if (at.file != CKPT_FILE_LITERAL) {
    CKPT_TRY(look_at_file(a, &at, &file, err));
    extent->chain[0] = at.is_zstd ? CKPT_DECODE_ZSTD : CKPT_DECODE_TORCH_RECORD;
    if (at.is_zstd) extent->chain[1] = CKPT_DECODE_TORCH_RECORD;
    if (file->is_safetensors) {
      extent->chain[0] = CKPT_DECODE_RAW;
      CKPT_TRY(find_held(file, of->name->text, tensor->dtype, tensor->rank, box + CKPT_MAX_RANK, extent, err));
    }
  }
  a->n_extents++;
  return CKPT_OK;
}

static bool is_whole(const described *tensor, const uint64_t *box) {
  for (uint32_t i = 0; i < tensor->rank; i++)
    if (box[i] != 0 || box[CKPT_MAX_RANK + i] != tensor->shape[i]) return false;
  return true;
}

/* That a chunk's archive holds what the metadata says, in however many bytes. */
static ckpt_status check_layout(adder *a, const ckpt_extent *extent, const ckpt_torch_layout *layout,
                                const described *tensor, const uint64_t *counts, ckpt_error *err) {
  const char *path = ckpt_source_path(a->index->source, extent->file);
  if (layout->rank != tensor->rank || memcmp(layout->sizes, counts, layout->rank * sizeof *counts) != 0)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "a chunk's archive holds another shape than the metadata says");
  if (layout->dtype == CKPT_DTYPE_NONE || layout->dtype == tensor->dtype) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "a chunk's archive holds %s, the metadata says %s",
                   ckpt_dtype_name(layout->dtype), ckpt_dtype_name(tensor->dtype));
}

/* The strides of a chunk behind zstd, whose record is found again when it is read. PyTorch copies what has gaps before
 * it saves it, so that all bytes of the record are the chunk's. */
static ckpt_status find_strides_behind(adder *a, const ckpt_extent *extent, const described *tensor,
                                       const uint64_t *counts, uint64_t *strides, ckpt_error *err) {
  ckpt_torch_layout layout;
  uint64_t volume = 0, reach = 1, far;
  CKPT_TRY(ckpt_dcp_slice_check(
      a->index->source, &(ckpt_dcp_slice){.file = extent->file, .offset = extent->offset, .n_bytes = extent->n_stored},
      err));
  CKPT_TRY(ckpt_decode_layout(&layout, a->index->source, extent, err));
  CKPT_TRY(check_layout(a, extent, &layout, tensor, counts, err));
  bool is_dense = layout.start == 0 && ckpt_product_u64(counts, layout.rank, &volume);
  for (uint32_t i = 0; i < layout.rank && is_dense; i++)
    is_dense = ckpt_mul_u64(counts[i] - 1, layout.strides[i], &far) && ckpt_add_u64(reach, far, &reach);
  if (!is_dense || reach != volume)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "a view with gaps, and compressed (save it without extensions)");
  memcpy(strides, layout.strides, layout.rank * sizeof *strides);
  return CKPT_OK;
}

/* The strides of a chunk that is not row-major, and its record's own place in the file. */
static ckpt_status find_strides(adder *a, ckpt_extent *extent, const char *name, const described *tensor,
                                const uint64_t *counts, uint64_t *strides, ckpt_error *err) {
  ckpt_torch_record record;
  ckpt_torch_layout layout;
  uint64_t start, n_bytes, block_bytes = ckpt_dtype_get(tensor->dtype)->block_bytes;
  if (extent->chain[0] == CKPT_DECODE_ZSTD) return find_strides_behind(a, extent, tensor, counts, strides, err);
  if (extent->chain[0] == CKPT_DECODE_RAW) { /* safetensors: always row-major */
    ckpt_row_major(tensor->rank, counts, strides);
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_torch_record_layout(&record, &layout, a->index->source, extent->file, extent->offset, extent->n_stored,
                                    err));
  CKPT_TRY(check_layout(a, extent, &layout, tensor, counts, err));
  if (!ckpt_product_u64(counts, layout.rank, &n_bytes) || !ckpt_mul_u64(n_bytes, block_bytes, &n_bytes) ||
      n_bytes > record.n_bytes) /* PyTorch makes a copy of a view before it saves it */
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(a->index->source, extent->file), NULL,
                     "a chunk's archive has fewer bytes (%llu) than the chunk", (ull)record.n_bytes);
  memcpy(strides, layout.strides, layout.rank * sizeof *strides);
  if (!ckpt_mul_u64(layout.start, block_bytes, &start))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a chunk begins past its storage");
  const ckpt_archive whole = {name, extent->offset, extent->n_stored, extent->file, false};
  CKPT_TRY(ckpt_index_add_archive(a->index, &whole, err));
  const ckpt_decoder order = record.is_big_endian ? CKPT_DECODE_SWAPPED : CKPT_DECODE_RAW;
  extent->skip = start;
  extent->offset = record.offset;
  extent->n_stored = record.n_stored;
  extent->chain[0] = record.is_deflated ? CKPT_DECODE_INFLATE : order;
  extent->chain[1] = record.is_deflated ? order : CKPT_DECODE_RAW;
  return CKPT_OK;
}

/* Gives the extents of the tensor at hand their parts; *form says of which kind. */
static ckpt_status place_extents(adder *a, const char *name, const described *tensor, uint64_t n_units,
                                 ckpt_extent_form *form, ckpt_error *err) {
  bool all_whole = !tensor->is_strided;
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
static ckpt_status chunks_of(adder *a, const item *of, const ckpt_object **out, ckpt_error *err) {
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
static ckpt_status leave_tensor(adder *a, const item *items, uint64_t n, const char *name, ckpt_role role,
                                const char *reason, uint32_t *number, ckpt_error *err) {
  ckpt_arena *arena = &a->index->arena;
  *number = UINT32_MAX;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *chunks = NULL;
    CKPT_TRY(chunks_of(a, &items[i], &chunks, err));
    for (uint64_t k = 0; k < chunks->n; k++) {
      ckpt_dcp_slice at;
      data_file *file = NULL;
      CKPT_TRY(find_slice(a, &items[i], ckpt_dcp_attribute(chunks->items[k], "offsets"), &at, err));
      if (at.file == CKPT_FILE_LITERAL) continue;
      CKPT_TRY(ckpt_dcp_slice_check(a->index->source, &at, err));
      CKPT_TRY(look_at_file(a, &at, &file, err));
      const ckpt_archive whole = {name, at.offset, at.n_bytes, at.file, at.is_zstd};
      if (!file->is_safetensors) CKPT_TRY(ckpt_index_add_archive(a->index, &whole, err));
    }
  }
  const char *copy = ckpt_arena_copy(arena, name);
  CKPT_TRY_ALLOC(copy, err);
  ckpt_torch_unread_add(&a->unread, reason, copy);
  return ckpt_index_add_unread(a->index, name, role, reason, err);
}

/* Tensor of the n items with one name, or one more name of the tensor that lies in the same places; *number is
 * UINT32_MAX where it is not read. */
static ckpt_status add_tensor(adder *a, const item *items, uint64_t n, const char *name, ckpt_role role,
                              uint32_t *number, ckpt_error *err) {
  described tensor, other;
  CKPT_TRY(describe(items[0].value, &tensor, &a->index->arena, err));
  if (tensor.reason != NULL) return leave_tensor(a, items, n, name, role, tensor.reason, number, err);
  a->n_extents = 0;
  for (uint64_t i = 0; i < n; i++) {
    CKPT_TRY(describe(items[i].value, &other, &a->index->arena, err));
    if (other.dtype != tensor.dtype || other.rank != tensor.rank || other.is_strided != tensor.is_strided ||
        memcmp(other.shape, tensor.shape, tensor.rank * sizeof *tensor.shape) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "ranks %u and %u say different dtypes or shapes", items[0].root,
                       items[i].root);
    const ckpt_object *chunks = NULL;
    CKPT_TRY(chunks_of(a, &items[i], &chunks, err));
    for (uint64_t k = 0; k < chunks->n; k++) CKPT_TRY(add_chunk(a, &items[i], &tensor, chunks->items[k], err));
  }
  uint64_t n_units, shape[CKPT_MAX_RANK];
  ckpt_extent_form form;
  if (!ckpt_product_u64(tensor.shape, tensor.rank, &n_units))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "shape has more than 2^64 elements");
  CKPT_TRY(place_extents(a, name, &tensor, n_units, &form, err));
  memcpy(shape, tensor.shape, sizeof shape);
  uint64_t block = ckpt_dtype_get(tensor.dtype)->block_elements;
  if (block != 1 && !ckpt_mul_u64(shape[tensor.rank - 1], block, &shape[tensor.rank - 1]))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "shape has more than 2^64 elements");
  const ckpt_tensor wanted = {.dtype = (uint8_t)tensor.dtype,
                              .rank = tensor.rank,
                              .shape = shape,
                              .extents = a->extents,
                              .n_extents = a->n_extents,
                              .extent_form = (uint8_t)form};
  int64_t twin = ckpt_dcp_twins_find(&a->twins, a->index, &wanted);
  if (twin >= 0) {
    *number = (uint32_t)twin;
    return ckpt_index_alias_as(a->index, *number, name, role, err);
  }
  CKPT_TRY(ckpt_index_add(a->index, name, strlen(name), tensor.dtype, tensor.rank, shape, role, a->extents,
                          a->n_extents, number, err));
  a->index->tensors[*number].extent_form = (uint8_t)form;
  CKPT_TRY(ckpt_dcp_twins_add(&a->twins, a->index, *number, err));
  for (uint32_t i = 0; i < a->n_extents; i++) /* of a file that is missing, which is told */
    if (a->extents[i].file == CKPT_FILE_LITERAL) ckpt_index_break(a->index, *number, *number + 1);
  return CKPT_OK;
}

/* ---- objects ---- */

/* The path of rank R's own object: the last key gets @R. */
static ckpt_status rank_path(adder *a, const item *of, const ckpt_object *path, ckpt_object **out, ckpt_error *err) {
  ckpt_arena *arena = &a->index->arena;
  bool has_path = path != NULL && path->kind == CKPT_OBJECT_TUPLE && path->n != 0;
  uint64_t n = has_path ? path->n : 1;
  const ckpt_object *last = has_path ? path->items[n - 1] : of->name;
  char *text = last->kind == CKPT_OBJECT_TEXT  ? ckpt_arena_printf(arena, "%s@%u", last->text, of->root)
               : last->kind == CKPT_OBJECT_INT ? ckpt_arena_printf(arena, "%lld@%u", (long long)last->integer, of->root)
                                               : ckpt_arena_printf(arena, "@%u", of->root);
  CKPT_TRY_ALLOC(text, err);
  ckpt_object *own = *out = ckpt_object_new(arena, CKPT_OBJECT_TUPLE, n, NULL);
  CKPT_TRY_ALLOC(own, err);
  for (uint64_t i = 0; i + 1 < n; i++) own->items[i] = path->items[i];
  own->items[n - 1] = ckpt_object_text(arena, text, strlen(text));
  CKPT_TRY_ALLOC(own->items[n - 1], err);
  return CKPT_OK;
}

/* The objects of n roots with one name: one where all are equal, else those that differ from the first are their
 * ranks' own. */
static ckpt_status add_objects(adder *a, const item *items, uint64_t n, const char *name, const ckpt_object *path,
                               ckpt_error *err) {
  ckpt_object *first = NULL;
  for (uint64_t i = 0; i < n; i++) {
    char own_name[CKPT_DCP_NAME_BYTES + 32];
    ckpt_dcp_slice at;
    ckpt_object *value, *own = NULL;
    CKPT_TRY(find_slice(a, &items[i], NULL, &at, err));
    if (at.file == CKPT_FILE_LITERAL) continue;
    snprintf(own_name, sizeof own_name, "%s@%u", name, items[i].root);
    CKPT_TRY(ckpt_dcp_objects_read(&value, a->objects, &at, i == 0 ? name : own_name, err));
    if (i == 0) first = value;
    if (i != 0 && (value == NULL || (first != NULL && ckpt_object_equal(first, value)))) continue;
    if (i != 0) CKPT_TRY(rank_path(a, &items[i], path, &own, err));
    CKPT_TRY(ckpt_dcp_objects_add(a->objects, items[i].name, i == 0 ? path : own, value, err));
  }
  return CKPT_OK;
}

/* ---- all items ---- */

static int compare_items(const void *x, const void *y) {
  const item *a = x, *b = y;
  uint64_t n = a->name->n < b->name->n ? a->name->n : b->name->n;
  int order = memcmp(a->name->text, b->name->text, (size_t)n);
  if (order == 0) order = (a->name->n > b->name->n) - (a->name->n < b->name->n);
  return order != 0 ? order : (a->root > b->root) - (a->root < b->root);
}

static bool is_same_name(const item *a, const item *b) {
  return a->name->n == b->name->n && memcmp(a->name->text, b->name->text, (size_t)a->name->n) == 0;
}

static bool is_tensor(const item *of) { return ckpt_dcp_attribute(of->value, "size") != NULL; }

static ckpt_status refuse_name(const ckpt_object *name, uint64_t number, ckpt_error *err) {
  if (name->kind == CKPT_OBJECT_TEXT && name->n > CKPT_DCP_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                     "the name of item %llu of state_dict_metadata has %llu bytes, at most %d", (ull)number,
                     (ull)name->n, CKPT_DCP_NAME_BYTES);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the name of item %llu of state_dict_metadata is %s", (ull)number,
                   no_name(name));
}

/* The pickle that a root's defects are told of, where all are asked for. */
static const char *path_of(const adder *a, uint32_t root) {
  if (a->index->defects.report == NULL) return NULL;
  return ckpt_source_path(a->index->source, a->metadata->roots[root].file);
}

/* Lists the items of all roots; those of several are sorted so that one name's follow each other. */
static ckpt_status list_items(adder *a, ckpt_error *err) {
  for (uint32_t r = 0; r < a->metadata->n_roots; r++) a->n_items += a->metadata->roots[r].tensors->n;
  a->items = reallocarray(NULL, (size_t)a->n_items + 1, sizeof *a->items);
  CKPT_TRY_ALLOC(a->items, err);
  uint64_t n = 0;
  for (uint32_t r = 0; r < a->metadata->n_roots; r++) {
    const ckpt_object *rows = a->metadata->roots[r].tensors;
    for (uint64_t i = 0; i < rows->n; i++) {
      item of = {rows->items[2 * i], rows->items[2 * i + 1], r};
      if (!ckpt_dcp_is_name(of.name)) return ckpt_fail_at(refuse_name(of.name, i, err), err, path_of(a, r), NULL);
      a->items[n++] = of;
    }
  }
  if (a->metadata->n_roots > 1) qsort(a->items, (size_t)n, sizeof *a->items, compare_items);
  return CKPT_OK;
}

/* What n items are that have one name: a tensor, or an object of each root. */
static ckpt_status add_named(adder *a, const item *items, uint64_t n, const char *name, ckpt_role role,
                             const ckpt_object *path, ckpt_error *err) {
  const uint32_t n_before = a->index->n_tensors;
  for (uint64_t i = 0; i < n; i++)
    if (is_tensor(&items[i]) != is_tensor(&items[0]))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a tensor for one rank, something else for another");
  uint32_t number = UINT32_MAX;
  bool has_tensors = is_tensor(&items[0]);
  if (has_tensors) {
    const uint32_t first = a->places.n;
    CKPT_TRY(add_tensor(a, items, n, name, role, &number, err));
    ckpt_dcp_places_own(&a->places, first, number == UINT32_MAX ? CKPT_DCP_UNREAD : number);
    if (number == UINT32_MAX) return CKPT_OK;
    CKPT_TRY(ckpt_dcp_objects_add_tensor(a->objects, items[0].name, path, number, err));
  } else {
    CKPT_TRY(add_objects(a, items, n, name, path, err));
    has_tensors = a->index->n_tensors != n_before; /* objects may hold some */
  }
  if (has_tensors && strcmp(name, items[0].name->text) != 0) a->index->is_renamed = true;
  return CKPT_OK;
}

/* The same, which goes past what is broken where all defects are asked for. */
static ckpt_status add_items(adder *a, const item *items, uint64_t n, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  ckpt_role role;
  ckpt_error defect = {0};
  ckpt_index *index = a->index;
  const uint32_t n_before = index->n_tensors;
  const ckpt_object *path = ckpt_dcp_find(&a->metadata->paths, items[0].root, items[0].name, NULL, NULL);
  ckpt_status status = ckpt_dcp_name(&a->structure, items[0].name, path, name, &role, &defect);
  const bool is_named = status == CKPT_OK;
  const char *used = a->stored_names && items[0].name->n != 0 ? items[0].name->text : name;
  if (is_named) status = add_named(a, items, n, used, role, path, &defect);
  ckpt_fail_at(status, &defect, path_of(a, items[0].root), items[0].name->text);
  CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_index_break(index, n_before, index->n_tensors);
  if (!is_named || index->n_tensors != n_before || !is_tensor(&items[0])) return CKPT_OK;
  return ckpt_index_add_broken(index, used, role, a->metadata->roots[items[0].root].file, err);
}

static int compare_paths(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ckpt_status refuse_missing(adder *a, ckpt_error *err) {
  char listed[512] = "";
  uint32_t n = 0;
  qsort(a->missing, a->n_missing, sizeof *a->missing, compare_paths);
  for (uint32_t i = 0; i < a->n_missing; i++) {
    if (i != 0 && strcmp(a->missing[i - 1], a->missing[i]) == 0) continue;
    size_t end = strlen(listed);
    if (n++ < MAX_LISTED) snprintf(listed + end, sizeof listed - end, "%s%.100s", end == 0 ? "" : ", ", a->missing[i]);
  }
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL,
                   "%u of the files that its metadata names are missing: %s%s (__R_... are rank R's; copy them, or "
                   "save again)",
                   n, listed, n > MAX_LISTED ? ", ..." : "");
}

static ckpt_status add_everything(adder *a, ckpt_error *err) {
  CKPT_TRY(list_items(a, err));
  ckpt_error defect = {0};
  for (uint64_t i = 0, n; i < a->n_items; i += n) {
    for (n = 1; a->metadata->n_roots > 1 && i + n < a->n_items; n++)
      if (!is_same_name(&a->items[i], &a->items[i + n])) break;
    CKPT_TRY(add_items(a, &a->items[i], n, err));
  }
  if (a->n_missing != 0) CKPT_TRY(ckpt_defects_pass(&a->index->defects, refuse_missing(a, &defect), &defect, err));
  CKPT_TRY(ckpt_torch_unread_note(&a->unread, a->index, err));
  CKPT_TRY(ckpt_dcp_table_note(&a->metadata->places, a->index, err));
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->places.n; i++) { /* offsets in safetensors files mean nothing */
    const ckpt_dcp_place *place = &a->places.items[i];
    if (place->file >= a->n_files || !a->files[place->file].is_safetensors) a->places.items[n++] = *place;
  }
  a->places.n = n;
  CKPT_TRY(ckpt_dcp_places_note(&a->places, a->index, err));
  return ckpt_dcp_objects_set(a->objects, &a->structure, err);
}

ckpt_status ckpt_dcp_add_all(ckpt_index *index, ckpt_dcp_objects *objects, const ckpt_dcp_metadata *metadata,
                             bool stored_names, ckpt_error *err) {
  adder *a = calloc(1, sizeof *a);
  CKPT_TRY_ALLOC(a, err);
  a->index = index;
  a->objects = objects;
  a->metadata = metadata;
  a->stored_names = stored_names;
  ckpt_dcp_structure_find(&a->structure, metadata);
  ckpt_dcp_objects_begin(objects, index, metadata);
  ckpt_status status = add_everything(a, err);
  for (uint32_t i = 0; i < a->n_files; i++) {
    ckpt_index_free(a->files[i].held);
    ckpt_name_table_free(a->files[i].table);
    free(a->files[i].is_taken);
  }
  ckpt_dcp_twins_free(&a->twins);
  ckpt_dcp_places_free(&a->places);
  free(a->files);
  free(a->items);
  free(a->missing);
  free(a->extents);
  free(a->boxes);
  free(a);
  return status;
}
