/* stream.c - the stream that torch.save wrote before PyTorch 1.6.
 *
 *   pickle   0x1950a86a20f9469cfc6c
 *   pickle   1001, the version of the protocol
 *   pickle   {'protocol_version': 1001, 'little_endian': True, 'type_sizes': {...}}
 *   pickle   the object; persistent ids have a sixth field, None or (view key, offset, size)
 *   pickle   the keys of the storages, a list
 *   for each key, in that order:  i64 number of elements, then their bytes
 *
 * Lengths count elements, whose size only the object knows: so storages are found after it is understood. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/torch/read/file.h"

typedef unsigned long long ull;

enum { PROTOCOL = 1001 };

#define MAGIC "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
#define MAGIC_TEXT "L119547037146038801333356L\n."

/* Where the magic begins: behind PROTO, and FRAME from protocol 4 on. */
bool ckpt_torch_is_stream(const uint8_t *head, size_t n_head) {
  enum { N_MAGIC = sizeof MAGIC - 1, N_TEXT = sizeof MAGIC_TEXT - 1 };
  if (n_head >= N_TEXT && memcmp(head, MAGIC_TEXT, N_TEXT) == 0) return true;
  size_t at = n_head >= 2 && head[0] == 0x80 ? 2 : 0;
  if (at != 0 && n_head > at && head[at] == 0x95) at += 9;
  return n_head >= at + N_MAGIC && memcmp(head + at, MAGIC, N_MAGIC) == 0;
}

typedef struct stream {
  ckpt_source *source;
  uint32_t file;
  uint64_t at, end; /* where the next pickle begins, and where the place ends */
  ckpt_arena *arena;
  bool is_big_endian;
  const ckpt_object *keys;
} stream;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  stream *s = arg;
  return ckpt_source_read(s->source, s->file, s->at + offset, dst, n_bytes, err);
}

static ckpt_status read_pickle(stream *s, ckpt_object **root, ckpt_pickle_report *report, ckpt_error *err) {
  uint64_t n_consumed;
  ckpt_pickle_options options = {.fetch = fetch, .arg = s, .n_bytes = s->end - s->at, .base = s->at, .report = report};
  CKPT_TRY(ckpt_pickle_read(root, &n_consumed, &options, s->arena, err));
  s->at += n_consumed;
  return CKPT_OK;
}

/* One of those around the object, which are plain data: what they would call runs like the object's own. */
static ckpt_status read_plain(stream *s, ckpt_object **root, ckpt_error *err) {
  ckpt_pickle_report report;
  const uint64_t at = s->at;
  CKPT_TRY(read_pickle(s, root, &report, err));
  if (report.n_globals == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the pickle at byte %llu names %.200s, where a stream has plain data",
                   (ull)at, report.globals[0]->name);
}

static ckpt_status read_head(stream *s, ckpt_error *err) {
  ckpt_object *magic, *version, *system;
  CKPT_TRY(read_plain(s, &magic, err));
  CKPT_TRY(read_plain(s, &version, err));
  if (version->kind != CKPT_OBJECT_INT || version->integer != PROTOCOL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a PyTorch stream of an unknown version");
  CKPT_TRY(read_plain(s, &system, err));
  const ckpt_object *is_little = ckpt_object_get(system, "little_endian");
  s->is_big_endian = is_little != NULL && is_little->kind == CKPT_OBJECT_BOOL && !is_little->boolean;
  return CKPT_OK;
}

/* A storage and its key, sorted by it. */
typedef struct key_row {
  ckpt_torch_storage *storage;
  bool is_found;
} key_row;

static int compare_rows(const void *a, const void *b) {
  return strcmp(((const key_row *)a)->storage->key, ((const key_row *)b)->storage->key);
}

/* The storage that comes next in the stream. */
static ckpt_status take_storage(stream *s, const ckpt_object *key, key_row *rows, uint32_t n_rows, ckpt_error *err) {
  if (key->kind != CKPT_OBJECT_TEXT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the list of storages holds what is no key");
  ckpt_torch_storage wanted = {.key = key->text};
  key_row *row = n_rows == 0 ? NULL : bsearch(&(key_row){&wanted, false}, rows, n_rows, sizeof *rows, compare_rows);
  if (row == NULL || row->is_found)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage '%.40s' is %s", key->text,
                     row == NULL ? "stored, but its object does not know it" : "stored twice");
  ckpt_torch_storage *storage = row->storage;
  uint8_t bytes[8];
  uint64_t n_elements = 0, n_bytes, size = s->end;
  if (!ckpt_range_within(s->at, sizeof bytes, size))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "truncated before storage '%.40s'", key->text);
  CKPT_TRY(ckpt_source_read(s->source, s->file, s->at, bytes, sizeof bytes, err));
  for (size_t i = sizeof bytes; i-- > 0;) n_elements = n_elements << 8 | bytes[i];
  if (!ckpt_mul_u64(n_elements, storage->element_bytes, &n_bytes) || n_bytes != storage->n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "storage '%.40s' is said to have %llu byte%s, the stream has %llu element%s of %u", key->text,
                     (ull)storage->n_bytes, ckpt_plural(storage->n_bytes), (ull)n_elements, ckpt_plural(n_elements),
                     storage->element_bytes);
  s->at += sizeof bytes;
  if (!ckpt_range_within(s->at, n_bytes, size))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "truncated: storage '%.40s' ends at byte %llu, the file at %llu",
                     key->text, (ull)(s->at + n_bytes), (ull)size);
  storage->extent = (ckpt_extent){.file = s->file, .offset = s->at, .n_stored = n_bytes};
  row->is_found = true;
  s->at += n_bytes;
  return CKPT_OK;
}

static ckpt_status locate(void *arg, ckpt_torch_storage *storages, uint32_t n, ckpt_error *err) {
  stream *s = arg;
  key_row *rows = calloc((size_t)n + 1, sizeof *rows);
  CKPT_TRY_ALLOC(rows, err);
  for (uint32_t i = 0; i < n; i++) rows[i].storage = &storages[i];
  qsort(rows, n, sizeof *rows, compare_rows);
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < s->keys->n; i++) CKPT_TRY_GOTO(take_storage(s, s->keys->items[i], rows, n, err));
  for (uint32_t i = 0; i < n && status == CKPT_OK; i++)
    if (!rows[i].is_found)
      status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage '%.40s' is not in the stream", rows[i].storage->key);
done:
  free(rows);
  return status;
}

ckpt_status ckpt_torch_stream_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, uint64_t offset,
                                   uint64_t n_bytes, ckpt_arena *arena, ckpt_pickle_report *report, ckpt_error *err) {
  stream s = {.source = source, .file = file, .at = offset, .end = offset + n_bytes, .arena = arena};
  ckpt_object *root, *keys;
  CKPT_TRY(read_head(&s, err));
  if (s.is_big_endian)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a PyTorch stream written on a big-endian machine");
  CKPT_TRY(read_pickle(&s, &root, report, err));
  CKPT_TRY(read_plain(&s, &keys, err));
  if (keys->kind != CKPT_OBJECT_LIST)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the stream has no list of its storages");
  s.keys = keys;
  CKPT_TRY(ckpt_torch_graph_read(graph, root, locate, &s, arena, err));
  graph->n_trailing = s.end - s.at;
  return CKPT_OK;
}
