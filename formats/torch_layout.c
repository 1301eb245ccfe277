/* torch_layout.c - a torch.save archive of a normalized description, as PyTorch 2.15 writes it.
 *
 *   archive/data.pkl, .format_version, .storage_alignment, byteorder   literals
 *   archive/data/0 ... data/<n - 1>                                    tensors, in order of first use in the object
 *   archive/version, .data/serialization_id, the directory             literals
 *
 * The checksums of the tensors come from the run: what stands behind one is a trailer (layout.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch.h"
#include "libckpt/codec/pickle_object.h"
#include "libckpt/codec/torch_write.h"
#include "libckpt/codec/zip.h"
#include "libckpt/codec/zip_write.h"
#include "libckpt/error.h"

enum { N_BEFORE = 4, N_BEHIND = 2, N_KEY = 16 };

typedef struct archive {
  const ckpt_index *index;
  ckpt_object *root;
  uint32_t *keys;  /* of each tensor's storage, + 1: in order of first use; 0 while it has not been used */
  uint32_t *order; /* tensors by key */
  uint32_t n_storages;
  const uint32_t *covers;       /* ckpt_torch_covers */
  const ckpt_torch_view *views; /* of each tensor, where there are covers */
  ckpt_zip_record *records;     /* N_BEFORE, n_storages, N_BEHIND */
  uint64_t directory;
  char id[41];
} archive;

/* A trailer: what stands behind storage `key`, up to the next one's payload. */
typedef struct behind {
  archive *archive;
  uint32_t key;
} behind;

/* ---- the pickle ------------------------------------------------------------------------------------------------- */

typedef struct leaf_printer {
  archive *archive;
  ckpt_torch_memo memo;
} leaf_printer;

static void put_leaf(void *arg, ckpt_pickle_writer *writer, const ckpt_object *leaf) {
  leaf_printer *p = arg;
  archive *a = p->archive;
  const ckpt_tensor *tensor = &a->index->tensors[leaf->tensor];
  char key[N_KEY];
  const uint32_t cover = a->covers == NULL ? leaf->tensor : a->covers[leaf->tensor];
  const ckpt_torch_view *view = cover == leaf->tensor ? NULL : &a->views[leaf->tensor];
  if (a->keys[cover] == 0) {
    a->order[a->n_storages++] = cover;
    a->keys[cover] = a->n_storages;
  }
  snprintf(key, sizeof key, "%u", a->keys[cover] - 1);
  ckpt_torch_put_tensor(&p->memo, writer, (ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape, key, view,
                        leaf->name != NULL, (ckpt_object_grad)(leaf->form & (CKPT_GRAD_NO | CKPT_GRAD_YES)));
}

static void print_pickle(archive *a, ckpt_out *out) {
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
    record->name = ckpt_arena_printf(arena, "archive/data/%u", key);
    CKPT_TRY_ALLOC(record->name, err);
    record->n_bytes = a->index->tensors[a->order[key]].n_bytes;
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
  static const char *const before[N_BEFORE] = {"archive/data.pkl", "archive/.format_version",
                                               "archive/.storage_alignment", "archive/byteorder"};
  static const char *const behind_names[N_BEHIND] = {"archive/version", "archive/.data/serialization_id"};
  ckpt_out out;
  ckpt_out_checksum(&out, err);
  print_pickle(a, &out);
  CKPT_TRY(ckpt_out_end(&out));
  uint32_t n = N_BEFORE + a->n_storages + N_BEHIND; /* the storages were counted just now */
  CKPT_TRY_ALLOC(a->records = ckpt_arena_array(arena, n, sizeof *a->records), err);
  a->records[0] = (ckpt_zip_record){.name = before[0], .n_bytes = out.n_bytes, .crc32 = out.crc32};
  CKPT_TRY(name_storages(a, arena, err));
  for (uint32_t i = 1; i < N_BEFORE; i++) a->records[i].n_bytes = strlen(content_of(a, i));
  make_id(a);
  for (uint32_t i = 1; i < n; i++) {
    ckpt_zip_record *record = &a->records[i];
    if (i >= N_BEFORE && i < N_BEFORE + a->n_storages) continue;
    const char *content = content_of(a, i);
    record->name = i < N_BEFORE ? before[i] : behind_names[i - N_BEFORE - a->n_storages];
    record->n_bytes = strlen(content);
    record->crc32 = ckpt_zip_crc32(content, strlen(content));
  }
  a->directory = ckpt_zip_place(a->records, n);
  return CKPT_OK;
}

/* ---- segments --------------------------------------------------------------------------------------------------- */

/* Records from `first` on up to a storage's payload, or the archive's end. */
static void print_records(const archive *a, uint32_t first, ckpt_out *out) {
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

static void print_begin(const ckpt_layout *layout, const void *arg, ckpt_out *out) {
  archive *a = (archive *)(uintptr_t)arg;
  (void)layout;
  ckpt_zip_put_local(out, &a->records[0]);
  print_pickle(a, out);
  ckpt_zip_put_descriptor(out, &a->records[0]);
  print_records(a, 1, out);
}

/* Segments are the beginning, and of each storage its bytes and what stands behind it. */
static void print_behind(const ckpt_layout *layout, const void *arg, ckpt_out *out) {
  const behind *b = arg;
  archive *a = b->archive;
  ckpt_zip_record *record = &a->records[N_BEFORE + b->key];
  record->crc32 = layout->files[0].segments[1 + 2 * b->key].crc32;
  ckpt_zip_put_descriptor(out, record);
  print_records(a, N_BEFORE + b->key + 1, out);
}

/* Tensors that are views of others have no bytes of their own. */
static ckpt_status hold_views(archive *a, ckpt_layout *layout, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  CKPT_TRY(ckpt_torch_covers(&a->covers, index, layout->arena, err));
  if (a->covers == NULL) return CKPT_OK;
  ckpt_torch_view *views = ckpt_arena_array(layout->arena, index->n_tensors, sizeof *views);
  CKPT_TRY_ALLOC(a->views = views, err);
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    if (a->covers[i] == i) continue;
    ckpt_torch_view_of(&views[i], &index->tensors[i], &index->tensors[a->covers[i]]);
    CKPT_TRY(ckpt_layout_elsewhere(layout, i, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_torch_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  (void)options;
  const ckpt_index *index = layout->index;
  archive *a = ckpt_arena_alloc(layout->arena, sizeof *a);
  CKPT_TRY_ALLOC(a, err);
  if (index->n_tensors > CKPT_ZIP_MAX_ENTRIES - N_BEFORE - N_BEHIND) /* a record of each */
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u tensors, a torch file holds at most %d", index->n_tensors,
                     CKPT_ZIP_MAX_ENTRIES - N_BEFORE - N_BEHIND);
  a->index = index;
  a->root = (ckpt_object *)(uintptr_t)ckpt_object_get(index->objects, CKPT_TORCH_OBJECT);
  if (a->root == NULL) CKPT_TRY(ckpt_torch_make_state_dict(&a->root, index, layout->arena, err));
  CKPT_TRY_ALLOC(a->keys = ckpt_arena_array(layout->arena, index->n_tensors, sizeof *a->keys), err);
  CKPT_TRY_ALLOC(a->order = ckpt_arena_array(layout->arena, index->n_tensors, sizeof *a->order), err);
  CKPT_TRY(hold_views(a, layout, err));
  CKPT_TRY(make_records(a, layout->arena, err));
  behind *trailers = ckpt_arena_array(layout->arena, a->n_storages, sizeof *trailers);
  CKPT_TRY_ALLOC(trailers, err);
  CKPT_TRY(ckpt_layout_file_add(layout, NULL, err));
  CKPT_TRY(ckpt_layout_reserve(layout, 1 + 2 * a->n_storages, err));
  CKPT_TRY(ckpt_layout_literal(layout, print_begin, a, err));
  for (uint32_t key = 0; key < a->n_storages; key++) {
    trailers[key] = (behind){a, key};
    CKPT_TRY(ckpt_layout_tensor(layout, a->order[key], NULL, CKPT_CHECKSUM_CRC32, err));
    CKPT_TRY(ckpt_layout_trailer(layout, print_behind, &trailers[key], err));
  }
  return CKPT_OK;
}
