/* archive.c - see archive.h. The pickle is read by windows through the decoders that payloads go through,
 * so that a deflated one takes no more memory than a stored one. */
#include "libckpt/codec/torch/read/archive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/extents/decode.h"
#include "libckpt/io/records.h"

typedef unsigned long long ull;

enum { MAX_ROOT_BYTES = 4096 };
/* A deflated pickle may be so many times as long as it is in the file, and so many bytes beside: what it describes
 * takes memory by its length (CKPT_PICKLE_LIMITS), and those of checkpoints deflate to a tenth or so. */
enum { PICKLE_RATIO = 64, PICKLE_SLACK = 4 << 20 };

/* Records that are no storage's. */
static const char *const own[] = {"data.pkl",        "byteorder",          "version",
                                  ".format_version", ".storage_alignment", ".data/serialization_id",
                                  ".data/version"};
enum { N_OWN = sizeof own / sizeof *own };

typedef struct archive {
  ckpt_source *source;
  ckpt_zip *zip;
  uint32_t file;
  const ckpt_zip_entry **used; /* records of storages */
  uint32_t n_used;
  size_t n_root;
  bool is_big_endian;
  char name[2 * MAX_ROOT_BYTES]; /* root, a slash, and the rest of a record's name */
} archive;

/* The record <root>/<rest>; NULL where there is none. */
static const ckpt_zip_entry *find(archive *a, const char *folder, const char *rest) {
  int n = snprintf(a->name + a->n_root, sizeof a->name - a->n_root, "/%s%s", folder, rest);
  return n < 0 || (size_t)n >= sizeof a->name - a->n_root ? NULL : ckpt_zip_find(a->zip, a->name);
}

/* A record's bytes. */
static ckpt_extent extent_of(const archive *a, const ckpt_zip_entry *entry) {
  ckpt_extent extent = {.file = a->file, .offset = entry->offset, .n_stored = entry->n_stored};
  if (entry->method != CKPT_ZIP_STORED) extent.chain[0] = CKPT_DECODE_INFLATE;
  return extent;
}

/* Compares the sum of a record's bytes with the archive's; another one is refused, unless the source allows it. */
static ckpt_status compare(archive *a, const ckpt_zip_entry *entry, uint32_t sum, ckpt_error *err) {
  if (entry->crc32 == 0 || sum == entry->crc32) return CKPT_OK; /* 0: none is carried */
  return ckpt_source_refuse_record(a->source, a->file, NULL, entry->name, sum, entry->crc32, entry->n_bytes, err);
}

/* Reads a record whole, and compares its checksum. */
static ckpt_status read_record(archive *a, const ckpt_zip_entry *entry, void *dst, ckpt_error *err) {
  const ckpt_extent extent = extent_of(a, entry);
  const size_t n = (size_t)entry->n_bytes;
  ckpt_reader reader = {.source = a->source, .max_bytes = CKPT_CURSOR_BYTES};
  ckpt_status status = ckpt_reader_read(&reader, &extent, 1, 0, dst, n, err);
  ckpt_reader_reset(&reader);
  return status == CKPT_OK ? compare(a, entry, ckpt_crc32(0, dst, n), err) : status;
}

/* Compares the checksum of one that is read later, before anybody makes something of it. */
static ckpt_status check_record(archive *a, const ckpt_zip_entry *entry, ckpt_error *err) {
  enum { WINDOW_BYTES = 64 << 10 };
  const ckpt_extent extent = extent_of(a, entry);
  ckpt_reader reader = {.source = a->source, .max_bytes = CKPT_CURSOR_BYTES};
  uint8_t window[WINDOW_BYTES];
  uint32_t sum = 0;
  ckpt_status status = CKPT_OK;
  if (entry->crc32 == 0) return CKPT_OK;
  for (uint64_t at = 0; at < entry->n_bytes && status == CKPT_OK; at += WINDOW_BYTES) {
    const size_t n = entry->n_bytes - at < WINDOW_BYTES ? (size_t)(entry->n_bytes - at) : WINDOW_BYTES;
    status = ckpt_reader_read(&reader, &extent, 1, at, window, n, err);
    if (status == CKPT_OK) sum = ckpt_crc32(sum, window, n);
  }
  ckpt_reader_reset(&reader);
  return status == CKPT_OK ? compare(a, entry, sum, err) : status;
}

static ckpt_status read_byteorder(archive *a, ckpt_error *err) {
  const ckpt_zip_entry *entry = find(a, "", "byteorder");
  char text[8] = "little";
  if (entry != NULL) {
    memset(text, 0, sizeof text);
    CKPT_TRY(entry->n_bytes < sizeof text ? read_record(a, entry, text, err) : check_record(a, entry, err));
  }
  a->is_big_endian = strcmp(text, "big") == 0;
  if (a->is_big_endian || strcmp(text, "little") == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "byteorder is neither 'little' nor 'big'");
}

/* Reads a short record as text. A missing or long record gives an empty text. */
static ckpt_status read_text(archive *a, const ckpt_zip_entry *entry, char *text, size_t n_text, ckpt_error *err) {
  memset(text, 0, n_text);
  if (entry == NULL || entry->n_bytes == 0 || entry->n_bytes >= n_text) return CKPT_OK;
  return read_record(a, entry, text, err);
}

static const char *skip_blanks(const char *text) { return text + strspn(text, " \t\n\v\f\r"); }

/* Whether Python's int() takes a text. */
static bool is_whole_number(const char *text) {
  text = skip_blanks(text);
  text += *text == '+' || *text == '-';
  bool has_digit = false;
  while ((*text >= '0' && *text <= '9') || (has_digit && *text == '_' && text[1] >= '0' && text[1] <= '9')) {
    has_digit = true;
    text++;
  }
  return has_digit && *skip_blanks(text) == '\0';
}

/* The number that PyTorch's own reader goes by. A file that has none, or another than its releases read, is read all
 * the same, and refused by torch. */
static ckpt_status read_version(archive *a, ckpt_torch_graph *graph, ckpt_arena *arena, ckpt_error *err) {
  enum { NEWEST = 10 };
  const ckpt_zip_entry *newer = find(a, "", ".data/version"), *entry = newer != NULL ? newer : find(a, "", "version");
  char text[32];
  graph->version = "";
  CKPT_TRY(read_text(a, entry, text, sizeof text, err));
  const char *digits = skip_blanks(text);
  digits += *digits == '+';
  const size_t n = strspn(digits, "0123456789");
  const unsigned long version = n == 0 ? 0 : strtoul(digits, NULL, 10);
  if (n != 0) CKPT_TRY_ALLOC(graph->version = ckpt_arena_printf(arena, "zip %.*s", (int)n, digits), err);
  if (n != 0 && version >= 1 && version <= NEWEST) return CKPT_OK;
  graph->refused[0] = entry == NULL ? "it has no record of its version: torch refuses it"
                                    : ckpt_arena_printf(arena,
                                                        "torch refuses its version "
                                                        "('%.16s', 1 to %d are)",
                                                        text, NEWEST);
  CKPT_TRY_ALLOC(graph->refused[0], err);
  return CKPT_OK;
}

/* What torch reads as a number, whatever it is. */
static ckpt_status read_alignment(archive *a, ckpt_torch_graph *graph, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_zip_entry *entry = find(a, "", ".storage_alignment");
  char text[64];
  CKPT_TRY(read_text(a, entry, text, sizeof text, err));
  if (entry == NULL || is_whole_number(text)) return CKPT_OK;
  graph->refused[1] =
      ckpt_arena_printf(arena, "its .storage_alignment is no whole number ('%.16s'), and torch refuses it", text);
  CKPT_TRY_ALLOC(graph->refused[1], err);
  return CKPT_OK;
}

/* Sets the root, and refuses archives that are no torch.save file. */
static ckpt_status check_archive(archive *a, ckpt_error *err) {
  const char *first = ckpt_zip_count(a->zip) == 0 ? "" : ckpt_zip_at(a->zip, 0)->name;
  const char *slash = strchr(first, '/');
  a->n_root = slash == NULL ? 0 : (size_t)(slash - first);
  if (a->n_root == 0 || a->n_root >= MAX_ROOT_BYTES)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a zip archive without data.pkl, no PyTorch file");
  memcpy(a->name, first, a->n_root);
  bool has_code = find(a, "", "constants.pkl") != NULL;
  memcpy(a->name + a->n_root, "/code/", sizeof "/code/");
  for (uint32_t i = 0; i < ckpt_zip_count(a->zip) && !has_code; i++)
    has_code = strncmp(ckpt_zip_at(a->zip, i)->name, a->name, a->n_root + sizeof "/code/" - 1) == 0;
  if (has_code)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "a TorchScript archive, which is a program (save its state_dict with torch.save)");
  if (find(a, "", "data.pkl") == NULL && find(a, "", ".data/extern_modules") != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "a torch.package archive, which holds modules and their code (save their state_dict with "
                     "torch.save)");
  if (find(a, "", "data.pkl") == NULL && find(a, "", "archive_format") != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "a torch.export archive, which is a program (save its state_dict with torch.save)");
  if (find(a, "", "data.pkl") == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a zip archive without %.60s, no PyTorch file", a->name);
  return CKPT_OK;
}

static ckpt_status locate(void *arg, ckpt_torch_storage *storages, uint32_t n, ckpt_error *err) {
  archive *a = arg;
  a->used = reallocarray(NULL, (size_t)n + N_OWN, sizeof *a->used);
  CKPT_TRY_ALLOC(a->used, err);
  for (uint32_t i = 0; i < n; i++) {
    ckpt_torch_storage *storage = &storages[i];
    const ckpt_zip_entry *entry = find(a, "data/", storage->key);
    if (entry == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage '%.40s' has no record", storage->key);
    if (entry->n_bytes != storage->n_bytes)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "storage '%.40s' is said to have %llu byte%s, its record has %llu", storage->key,
                       (ull)storage->n_bytes, ckpt_plural(storage->n_bytes), (ull)entry->n_bytes);
    storage->extent = extent_of(a, entry);
    storage->is_big_endian = a->is_big_endian;
    a->used[a->n_used++] = entry;
    if (entry->crc32 == 0) continue; /* none is carried */
    const ckpt_stored_record row = ckpt_stored_record_of(a->file, entry->offset, entry->n_stored, entry->n_bytes,
                                                         entry->crc32, entry->name + a->n_root + 1);
    CKPT_TRY(ckpt_source_add_record(a->source, &row, err));
  }
  return CKPT_OK;
}

typedef struct pickle_input {
  ckpt_reader reader;
  ckpt_extent extent;
} pickle_input;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  pickle_input *input = arg;
  return ckpt_reader_read(&input->reader, &input->extent, 1, offset, dst, n_bytes, err);
}

static ckpt_status read_object(archive *a, ckpt_object **root, ckpt_arena *arena, ckpt_pickle_report *report,
                               ckpt_error *err) {
  const ckpt_zip_entry *entry = find(a, "", "data.pkl");
  if (entry->method != CKPT_ZIP_STORED && entry->n_bytes > PICKLE_SLACK &&
      (entry->n_bytes - PICKLE_SLACK) / PICKLE_RATIO > entry->n_stored)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                     "data.pkl has %llu bytes in %llu deflated ones (at most %d times as many, and %d)",
                     (ull)entry->n_bytes, (ull)entry->n_stored, PICKLE_RATIO, PICKLE_SLACK);
  CKPT_TRY(check_record(a, entry, err));
  pickle_input input = {.reader = {.source = a->source, .max_bytes = CKPT_CURSOR_BYTES}};
  input.extent = extent_of(a, entry);
  ckpt_pickle_options options = {.fetch = fetch, .arg = &input, .n_bytes = entry->n_bytes, .report = report};
  ckpt_status status = ckpt_pickle_read(root, NULL, &options, arena, err);
  ckpt_reader_reset(&input.reader);
  return status;
}

static int compare_entries(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (const ckpt_zip_entry *const *)a, y = (uintptr_t) * (const ckpt_zip_entry *const *)b;
  return (x > y) - (x < y);
}

/* Records that loading would never look at: another root's, storages that the object does not know. */
static ckpt_status find_strays(archive *a, ckpt_torch_graph *graph, ckpt_arena *arena, ckpt_error *err) {
  for (size_t i = 0; i < N_OWN; i++)
    if ((a->used[a->n_used] = find(a, "", own[i])) != NULL) a->n_used++;
  qsort(a->used, a->n_used, sizeof *a->used, compare_entries);
  for (uint32_t i = 0; i < ckpt_zip_count(a->zip); i++) {
    const ckpt_zip_entry *entry = ckpt_zip_at(a->zip, i);
    const bool is_folder = entry->name[strlen(entry->name) - 1] == '/';
    if (is_folder || bsearch(&entry, a->used, a->n_used, sizeof *a->used, compare_entries) != NULL) continue;
    if (graph->n_strays++ == 0) CKPT_TRY_ALLOC(graph->stray = ckpt_arena_copy(arena, entry->name), err);
  }
  return CKPT_OK;
}

ckpt_status ckpt_torch_archive_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, uint64_t offset,
                                    uint64_t n_bytes, ckpt_arena *arena, ckpt_pickle_report *report, ckpt_error *err) {
  archive *a = calloc(1, sizeof *a);
  CKPT_TRY_ALLOC(a, err);
  a->source = source;
  a->file = file;
  ckpt_object *root = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_zip_open(&a->zip, source, file, offset, n_bytes, arena->limit, err));
  CKPT_TRY_GOTO(check_archive(a, err));
  CKPT_TRY_GOTO(read_byteorder(a, err));
  CKPT_TRY_GOTO(read_version(a, graph, arena, err));
  CKPT_TRY_GOTO(read_alignment(a, graph, arena, err));
  CKPT_TRY_GOTO(read_object(a, &root, arena, report, err));
  CKPT_TRY_GOTO(ckpt_torch_graph_read(graph, root, locate, a, arena, err));
  if (!graph->has_unknown_storage) CKPT_TRY_GOTO(find_strays(a, graph, arena, err));
  graph->archive = ckpt_arena_printf(arena, "%.*s", (int)a->n_root, a->name);
  status = graph->archive != NULL ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
done:
  free(a->used);
  ckpt_zip_free(a->zip);
  free(a);
  return status;
}
