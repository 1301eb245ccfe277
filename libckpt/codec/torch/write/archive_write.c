/* archive_write.c - see archive_write.h. */
#include "libckpt/codec/torch/write/archive_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/pickle/object.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/write/write.h"
#include "libckpt/codec/zip/write.h"
#include "libckpt/codec/zip/zip.h"

enum { N_BEFORE = 4, N_BEHIND = 2, N_KEY = 16 };

#define IN_PICKLE UINT32_MAX

typedef struct archive {
  const ckpt_index *index;
  const ckpt_object *root;
  ckpt_torch_item_of *of;
  const void *arg;
  /* Of each leaf's storage, + 1: in order of first use; 0 while it has not been used; IN_PICKLE: a number. */
  uint32_t *keys;
  uint32_t *order; /* leaves by key */
  uint32_t n_leaves, n_storages, file;
  bool has_stray;           /* the object has a leaf that is none of n_leaves */
  ckpt_zip_record *records; /* N_BEFORE, n_storages, N_BEHIND */
  uint64_t directory;
  const char *name; /* below which all records are */
  char id[41];
} archive;

/* A trailer: what stands behind storage `key`, up to the next one's payload. */
typedef struct behind {
  archive *archive;
  uint32_t key, first_segment; /* of the storage's */
} behind;

static ckpt_torch_item item_of(const archive *a, uint32_t leaf) {
  ckpt_torch_item item = {.whole = leaf};
  if (a->of != NULL) a->of(a->arg, leaf, &item);
  if (item.n_parts != 0 || item.shape != NULL) return item;
  const ckpt_tensor *tensor = &a->index->tensors[item.whole];
  item.dtype = tensor->dtype;
  item.rank = tensor->rank;
  item.shape = tensor->shape;
  return item;
}

static uint64_t part_bytes(const archive *a, const ckpt_torch_part *part) {
  if (part->tensor == CKPT_TORCH_LITERAL) return part->n_bytes;
  const ckpt_tensor *tensor = &a->index->tensors[part->tensor];
  return part->range.count == 0 ? tensor->n_bytes : part->range.count * ckpt_dtype_get(tensor->dtype)->block_bytes;
}

static uint64_t item_bytes(const archive *a, uint32_t leaf) {
  const ckpt_torch_item item = item_of(a, leaf);
  uint64_t n_bytes = item.n_parts == 0 ? a->index->tensors[item.whole].n_bytes : 0;
  for (uint32_t i = 0; i < item.n_parts; i++) n_bytes += part_bytes(a, &item.parts[i]);
  return n_bytes;
}

/* Segments of an item: an empty one has none. */
static uint32_t n_segments_of(const ckpt_torch_item *item) {
  const bool is_empty = item->n_parts == 1 && item->parts->tensor == CKPT_TORCH_LITERAL && item->parts->n_bytes == 0;
  return item->n_parts == 0 ? 1 : is_empty ? 0 : item->n_parts;
}

/* ---- the pickle ------------------------------------------------------------------------------------------------- */

typedef struct leaf_printer {
  archive *archive;
  ckpt_torch_memo memo;
} leaf_printer;

/* A number that stands where its tensor was read from: in the call of another. */
static void put_number(ckpt_pickle_writer *writer, const ckpt_object *leaf, ckpt_dtype dtype) {
  double number;
  memcpy(&number, &leaf->integer, sizeof number);
  if (dtype == CKPT_F64)
    ckpt_pickle_put_float(writer, number);
  else
    ckpt_pickle_put_int(writer, leaf->integer);
}

static void put_leaf(void *arg, ckpt_pickle_writer *writer, const ckpt_object *leaf) {
  leaf_printer *p = arg;
  archive *a = p->archive;
  if (leaf->tensor >= a->n_leaves) {
    a->has_stray = true;
    return;
  }
  const ckpt_torch_item item = item_of(a, leaf->tensor);
  const bool is_bare = (leaf->form & CKPT_LEAF_BARE) != 0;
  char key[N_KEY];
  if (is_bare && leaf->name == NULL && ckpt_torch_quantized_storage((ckpt_dtype)item.dtype) == NULL) {
    a->keys[leaf->tensor] = IN_PICKLE;
    put_number(writer, leaf, (ckpt_dtype)item.dtype);
    return;
  }
  const uint32_t storage = item.view == NULL ? leaf->tensor : item.storage;
  if (a->keys[storage] == 0) {
    a->order[a->n_storages++] = storage;
    a->keys[storage] = a->n_storages;
  }
  snprintf(key, sizeof key, "%u", a->keys[storage] - 1);
  if (is_bare && leaf->name != NULL) {
    ckpt_torch_put_bytes(&p->memo, writer, leaf, key, a->index->tensors[item.whole].n_bytes / (uint64_t)leaf->integer);
    return;
  }
  if (is_bare) {
    const ckpt_tensor *tensor = &a->index->tensors[item.whole];
    ckpt_torch_put_storage(&p->memo, writer, (ckpt_dtype)item.dtype, true, key,
                           item.view == NULL ? tensor->n_elements : item.view->n_elements);
    return;
  }
  ckpt_torch_put_tensor(&p->memo, writer, (ckpt_dtype)item.dtype, item.rank, item.shape, key, item.view,
                        leaf->name != NULL, (ckpt_object_grad)leaf->form, leaf->extras != 0);
}

static void print_pickle(archive *a, ckpt_stream *out) {
  leaf_printer p = {.archive = a};
  ckpt_pickle_writer writer = ckpt_pickle_start(out);
  ckpt_pickle_put_object(&writer, a->root, put_leaf, &p);
  ckpt_pickle_stop(&writer);
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

/* What a record holds that is neither the pickle nor a storage. */
static const char *content_of(const archive *a, uint32_t record) {
  static const char *const before[N_BEFORE] = {NULL, "1", "64", "little"};
  if (record < N_BEFORE) return before[record];
  return record == N_BEFORE + a->n_storages ? "3\n" : a->id;
}

static ckpt_status name_storages(archive *a, ckpt_arena *arena, ckpt_error *err) {
  for (uint32_t key = 0; key < a->n_storages; key++) {
    ckpt_zip_record *record = &a->records[N_BEFORE + key];
    record->name = ckpt_arena_printf(arena, "%s/data/%u", a->name, key);
    CKPT_TRY_ALLOC(record->name, err);
    record->n_bytes = item_bytes(a, a->order[key]);
  }
  return CKPT_OK;
}

/* Twice twenty digits, as PyTorch's: of the records' sizes, and the pickle's CRC. The tensors' values are not known
 * before the run and do not count; any digits will do for reading. */
static void make_id(archive *a) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < N_BEFORE + a->n_storages; i++)
    hash = (hash ^ a->records[i].n_bytes) * UINT64_C(0x100000001b3);
  snprintf(a->id, sizeof a->id, "%020llu%020llu", (unsigned long long)hash, (unsigned long long)a->records[0].crc32);
}

static ckpt_status make_records(archive *a, ckpt_arena *arena, ckpt_error *err) {
  static const char *const before[N_BEFORE] = {"data.pkl", ".format_version", ".storage_alignment", "byteorder"};
  static const char *const behind_names[N_BEHIND] = {"version", ".data/serialization_id"};
  ckpt_stream out;
  ckpt_stream_checksum(&out, err);
  print_pickle(a, &out);
  CKPT_TRY(ckpt_stream_end(&out));
  if (a->has_stray) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "an object holds a tensor that is not laid out");
  uint32_t n = N_BEFORE + a->n_storages + N_BEHIND; /* the storages were counted just now */
  CKPT_TRY_ALLOC(a->records = ckpt_arena_array(arena, n, sizeof *a->records), err);
  a->records[0] = (ckpt_zip_record){.n_bytes = out.n_bytes, .crc32 = out.crc32};
  CKPT_TRY(name_storages(a, arena, err));
  for (uint32_t i = 1; i < N_BEFORE; i++) a->records[i].n_bytes = strlen(content_of(a, i));
  make_id(a);
  for (uint32_t i = 0; i < n; i++) {
    ckpt_zip_record *record = &a->records[i];
    if (i >= N_BEFORE && i < N_BEFORE + a->n_storages) continue;
    record->name = ckpt_arena_printf(arena, "%s/%s", a->name,
                                     i < N_BEFORE ? before[i] : behind_names[i - N_BEFORE - a->n_storages]);
    CKPT_TRY_ALLOC(record->name, err);
    if (i == 0) continue; /* the pickle */
    const char *content = content_of(a, i);
    record->n_bytes = strlen(content);
    record->crc32 = ckpt_zip_crc32(content, strlen(content));
  }
  a->directory = ckpt_zip_place(a->records, n);
  return CKPT_OK;
}

/* ---- segments --------------------------------------------------------------------------------------------------- */

/* Records from `first` on up to a storage's payload, or the archive's end. */
static void print_records(const archive *a, uint32_t first, ckpt_stream *out) {
  uint32_t n = N_BEFORE + a->n_storages + N_BEHIND;
  for (uint32_t i = first; i < n; i++) {
    if (i >= N_BEFORE && i < N_BEFORE + a->n_storages) {
      ckpt_zip_put_local(out, &a->records[i]);
      return;
    }
    ckpt_zip_put_record(out, &a->records[i], content_of(a, i));
  }
  ckpt_zip_put_end(out, a->records, n, a->directory);
}

static void print_begin(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  archive *a = (archive *)(uintptr_t)arg;
  (void)layout;
  ckpt_zip_put_local(out, &a->records[0]);
  print_pickle(a, out);
  ckpt_zip_put_descriptor(out, &a->records[0]);
  print_records(a, 1, out);
}

static void print_part(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const ckpt_torch_part *part = arg;
  (void)layout;
  if (part->bytes == NULL)
    ckpt_stream_fill(out, 0, part->n_bytes);
  else
    ckpt_stream_bytes(out, part->bytes, part->n_bytes);
}

/* The checksum of a storage: those of its segments, one after the other. */
static uint32_t sum_up(const ckpt_layout *layout, const behind *b, const ckpt_torch_item *item) {
  const ckpt_segment *segments = &layout->files[b->archive->file].segments[b->first_segment];
  if (item->n_parts == 0) return segments[0].crc32;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < n_segments_of(item); i++) {
    uint32_t crc32 = segments[i].crc32;
    if (segments[i].kind == CKPT_SEGMENT_LITERAL) {
      ckpt_stream out;
      ckpt_stream_checksum(&out, NULL);
      print_part(layout, &item->parts[i], &out);
      crc32 = out.crc32;
    }
    sum = (uint32_t)crc32_combine(sum, crc32, (z_off_t)segments[i].n_raw);
  }
  return sum;
}

static void print_behind(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const behind *b = arg;
  archive *a = b->archive;
  const ckpt_torch_item item = item_of(a, a->order[b->key]);
  ckpt_zip_record *record = &a->records[N_BEFORE + b->key];
  record->crc32 = sum_up(layout, b, &item);
  ckpt_zip_put_descriptor(out, record);
  print_records(a, N_BEFORE + b->key + 1, out);
}

static ckpt_status lay_storage(ckpt_layout *layout, const archive *a, behind *b, ckpt_error *err) {
  const ckpt_torch_item item = item_of(a, a->order[b->key]);
  b->first_segment = layout->files[a->file].n_segments;
  if (item.n_parts == 0) CKPT_TRY(ckpt_layout_tensor(layout, item.whole, NULL, CKPT_CHECKSUM_CRC32, err));
  for (uint32_t i = 0; item.n_parts != 0 && i < n_segments_of(&item); i++) {
    const ckpt_torch_part *part = &item.parts[i];
    if (part->tensor == CKPT_TORCH_LITERAL)
      CKPT_TRY(ckpt_layout_literal(layout, print_part, part, err));
    else if (part->range.count == 0)
      CKPT_TRY(ckpt_layout_tensor(layout, part->tensor, NULL, CKPT_CHECKSUM_CRC32, err));
    else
      CKPT_TRY(ckpt_layout_range(layout, part->tensor, &part->range, CKPT_CHECKSUM_CRC32, err));
  }
  return ckpt_layout_trailer(layout, print_behind, b, err);
}

/* As torch.save calls it: after the file, without the suffix, where that has a name of its own. */
static ckpt_status name_archive(archive *a, const ckpt_layout *layout, ckpt_error *err) {
  const char *path = layout->files[a->file].name, *file = path == NULL ? "archive" : ckpt_path_name(path);
  const char *suffix = strrchr(file, '.');
  a->name = ckpt_arena_text(layout->arena, file, suffix == NULL ? strlen(file) : (size_t)(suffix - file));
  CKPT_TRY_ALLOC(a->name, err);
  return CKPT_OK;
}

ckpt_status ckpt_torch_archive_lay(ckpt_layout *layout, const ckpt_object *root, uint32_t n_leaves,
                                   ckpt_torch_item_of *of, const void *arg, ckpt_error *err) {
  archive *a = ckpt_arena_alloc(layout->arena, sizeof *a);
  CKPT_TRY_ALLOC(a, err);
  if (n_leaves > CKPT_ZIP_MAX_ENTRIES - N_BEFORE - N_BEHIND) /* a record of each */
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u tensors, a torch file holds at most %d", n_leaves,
                     CKPT_ZIP_MAX_ENTRIES - N_BEFORE - N_BEHIND);
  *a = (archive){
      .index = layout->index, .root = root, .of = of, .arg = arg, .n_leaves = n_leaves, .file = layout->n_files - 1};
  CKPT_TRY(name_archive(a, layout, err));
  CKPT_TRY_ALLOC(a->keys = ckpt_arena_array(layout->arena, n_leaves, sizeof *a->keys), err);
  CKPT_TRY_ALLOC(a->order = ckpt_arena_array(layout->arena, n_leaves, sizeof *a->order), err);
  CKPT_TRY(make_records(a, layout->arena, err));
  for (uint32_t leaf = 0; leaf < n_leaves; leaf++)
    if (a->keys[leaf] == IN_PICKLE) CKPT_TRY(ckpt_layout_elsewhere(layout, leaf, err));
  behind *trailers = ckpt_arena_array(layout->arena, a->n_storages, sizeof *trailers);
  CKPT_TRY_ALLOC(trailers, err);
  uint32_t n_segments = 1 + a->n_storages;
  for (uint32_t key = 0; key < a->n_storages; key++) {
    const ckpt_torch_item item = item_of(a, a->order[key]);
    n_segments += n_segments_of(&item);
  }
  CKPT_TRY(ckpt_layout_reserve(layout, n_segments, err));
  CKPT_TRY(ckpt_layout_literal(layout, print_begin, a, err));
  for (uint32_t key = 0; key < a->n_storages; key++) {
    trailers[key] = (behind){.archive = a, .key = key};
    CKPT_TRY(lay_storage(layout, a, &trailers[key], err));
  }
  return CKPT_OK;
}
