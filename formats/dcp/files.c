/* files.c - the files that a checkpoint's chunks and objects lie in.
 *
 * Each lies in a slice of a file: a torch.save archive, or that behind zstd. With SerializationFormat.SAFETENSORS a
 * file is a safetensors file as a whole, and a chunk one of its tensors. Files that are missing are kept, and told
 * together (add.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/add.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/safetensors/safetensors.h"

typedef unsigned long long ull;

const char *ckpt_dcp_no_name(const ckpt_object *name) {
  if (name == NULL || name->kind != CKPT_OBJECT_TEXT) return "no text";
  return name->n == 0 ? "empty" : "a text with a zero byte";
}

static ckpt_status find_file(ckpt_dcp_adder *a, const ckpt_object *name, const char *folder, uint32_t *file,
                             ckpt_error *err) {
  size_t at = (size_t)((uint64_t)(uintptr_t)name * UINT64_C(0x9e3779b97f4a7c15) >> 52) % CKPT_DCP_CACHED;
  *file = a->cache[at].file;
  if (a->cache[at].name == name) return CKPT_OK;
  if (name != NULL && name->kind == CKPT_OBJECT_TEXT && name->n > CKPT_DCP_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the name of its file has %llu bytes, at most %d", (ull)name->n,
                     CKPT_DCP_NAME_BYTES);
  if (!ckpt_dcp_is_name(name) || name->n == 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the name of its file is %s", ckpt_dcp_no_name(name));
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

static ckpt_status take_slice(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_object *info, ckpt_dcp_slice *out,
                              ckpt_error *err) {
  if (info == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage_data has no place for a chunk of it");
  const ckpt_object *name = ckpt_dcp_attribute(info, "relative_path");
  const ckpt_object *start = ckpt_dcp_attribute(info, "offset"), *n = ckpt_dcp_attribute(info, "length");
  if (name == NULL || start == NULL || n == NULL || start->kind != CKPT_OBJECT_INT || n->kind != CKPT_OBJECT_INT ||
      start->integer < 0 || n->integer < 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its place in storage_data is no file, offset and length");
  out->offset = (uint64_t)start->integer;
  out->n_bytes = (uint64_t)n->integer;
  CKPT_TRY(find_codec(ckpt_dcp_attribute(info, "transform_descriptors"), &out->is_zstd, err));
  return find_file(a, name, a->metadata->roots[of->root].folder, &out->file, err);
}

ckpt_status ckpt_dcp_find_slice(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_object *offset,
                                ckpt_dcp_slice *out, ckpt_error *err) {
  bool is_first = false;
  const ckpt_object *info = ckpt_dcp_find(&a->metadata->places, of->root, of->name, offset, &is_first);
  CKPT_TRY(take_slice(a, of, info, out, err));
  return is_first ? ckpt_dcp_places_add(&a->places, out, of->name, err) : CKPT_OK;
}

ckpt_status ckpt_dcp_peek_slice(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_object *offset,
                                ckpt_dcp_slice *out, ckpt_error *err) {
  return take_slice(a, of, ckpt_dcp_find(&a->metadata->places, of->root, of->name, offset, NULL), out, err);
}

/* ---- safetensors in .distcp files ---- */

static ckpt_status read_held(ckpt_dcp_adder *a, ckpt_dcp_file *file, uint32_t number, uint64_t begin, ckpt_error *err) {
  file->is_safetensors = true;
  CKPT_TRY(ckpt_safetensors_read_alone(&file->held, a->index->source, number, begin, &a->index->defects, err));
  CKPT_TRY(ckpt_name_table_new(&file->table, file->held, err));
  file->is_taken = calloc((size_t)file->held->n_tensors + 1, 1);
  CKPT_TRY_ALLOC(file->is_taken, err);
  return CKPT_OK;
}

/* Whether a safetensors file begins there, or would by its first bytes. */
static ckpt_status begins_at(bool *is_there, const ckpt_dcp_adder *a, uint32_t file, uint64_t begin, ckpt_error *err) {
  uint8_t head[16];
  const uint64_t size = ckpt_source_size(a->index->source, file);
  *is_there = false;
  if (size < sizeof head || begin > size - sizeof head) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(a->index->source, file, begin, head, sizeof head, err));
  const bool is_archive = head[0] == 'P' && head[1] == 'K';
  *is_there = !is_archive && ckpt_safetensors_probe(head, sizeof head);
  return CKPT_OK;
}

ckpt_status ckpt_dcp_look_behind(ckpt_dcp_adder *a, const ckpt_dcp_slice *at, uint64_t n_raw, ckpt_dcp_file *file,
                                 ckpt_error *err) {
  bool is_there;
  if (file->is_safetensors || at->is_zstd || at->n_bytes != n_raw) return CKPT_OK;
  CKPT_TRY(begins_at(&is_there, a, at->file, at->offset, err));
  return is_there ? read_held(a, file, at->file, at->offset, err) : CKPT_OK;
}

ckpt_status ckpt_dcp_look_at(ckpt_dcp_adder *a, const ckpt_dcp_slice *at, ckpt_dcp_file **out, ckpt_error *err) {
  while (at->file >= a->n_files) {
    CKPT_TRY(ckpt_grow(&a->files, a->n_files, &a->file_capacity, sizeof *a->files, err));
    a->files[a->n_files++] = (ckpt_dcp_file){0};
  }
  ckpt_dcp_file *file = *out = &a->files[at->file];
  if (file->is_known) return CKPT_OK;
  file->is_known = true;
  bool is_there = false;
  if (!at->is_zstd) CKPT_TRY(begins_at(&is_there, a, at->file, 0, err));
  return is_there ? read_held(a, file, at->file, 0, err) : CKPT_OK;
}

ckpt_status ckpt_dcp_find_held(ckpt_dcp_file *file, const char *stored, ckpt_dtype dtype, uint32_t rank,
                               const uint64_t *counts, ckpt_extent *out, ckpt_error *err) {
  if (file->held == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a chunk's safetensors file cannot be read");
  int64_t number = ckpt_name_table_find(file->table, stored);
  const ckpt_tensor *held = number < 0 ? NULL : &file->held->tensors[number];
  if (held == NULL || held->n_extents > 1)
    return ckpt_fail(err, CKPT_EFORMAT, file->held->path, NULL, "a chunk is missing in its safetensors file");
  bool is_same = held->dtype == dtype && held->rank == rank &&
                 (rank == 0 || memcmp(held->shape, counts, rank * sizeof *counts) == 0);
  if (file->is_taken[number])
    return ckpt_fail(err, CKPT_EFORMAT, file->held->path, NULL,
                     "two chunks of it were saved under one name: one is lost (save again with another thread_count or "
                     "without SAFETENSORS)");
  if (!is_same) {
    char has[CKPT_SHAPE_TEXT], said[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, CKPT_EFORMAT, file->held->path, NULL,
                     "a chunk is %s %s in its safetensors file, the metadata says %s %s",
                     ckpt_dtype_name((ckpt_dtype)held->dtype), ckpt_tensor_shape_text(held, has, sizeof has),
                     ckpt_dtype_name(dtype), ckpt_shape_text(said, rank, counts));
  }
  file->is_taken[number] = 1;
  out->offset = held->extents[0].offset;
  out->n_stored = held->extents[0].n_stored;
  return CKPT_OK;
}
