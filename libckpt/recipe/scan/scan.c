/* scan.c - the walk over files, and what is kept of them; look.c knows contents. */
#include "libckpt/recipe/scan/scan.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/format/cache.h"
#include "libckpt/recipe/scan/look.h"
#include "libckpt/run/run.h"

enum { MAX_DEPTH = 32, MAX_FILES = 1 << 20 };

typedef unsigned long long ull;

ckpt_status ckpt_scan_problem(const ckpt_scanner *s, const ckpt_place *place, ckpt_error *err, const char *format,
                              ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return ckpt_findings_add(&s->scan->findings, err, CKPT_PROBLEM, s->path, place == NULL ? NULL : place->record, "%s",
                           text);
}

ckpt_status ckpt_scan_work(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, bool *may_go_on,
                           ckpt_error *err) {
  CKPT_TRY(ckpt_check_cancel(s->run, "cancelled", err));
  if (!ckpt_add_u64(s->n_work, n_bytes, &s->n_work)) s->n_work = UINT64_MAX;
  *may_go_on = s->n_work <= s->max_work;
  if (*may_go_on || s->is_stopped) return CKPT_OK;
  s->is_stopped = true;
  return ckpt_scan_problem(s, place, err,
                           "not looked into any further: its archives overlap or unpack to more than %llu bytes",
                           (ull)s->max_work);
}

char *ckpt_scan_name(const ckpt_place *place, const char *name) {
  char *text = NULL;
  if (place->record == NULL) return strdup(name);
  return asprintf(&text, "%s > %s", place->record, name) < 0 ? NULL : text;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

typedef struct found {
  const char *name; /* below the root */
  uint64_t n_bytes;
} found;

/* The files of a folder, and what stands there that is none. */
typedef struct walk {
  ckpt_scanner *scanner;
  const char *root;
  bool is_bare; /* the root is ".", which the user did not write */
  ckpt_arena names;
  found *files;
  uint32_t n, capacity;
  uint64_t n_bytes;
} walk;

static ckpt_status add_file(walk *w, const char *name, uint64_t n_bytes, ckpt_error *err) {
  if (w->n >= MAX_FILES)
    return ckpt_fail(err, CKPT_ELIMIT, w->root, NULL, "more than %d files (name fewer folders)", MAX_FILES);
  CKPT_TRY(ckpt_grow(&w->files, w->n, &w->capacity, sizeof *w->files, err));
  w->files[w->n++] = (found){name, n_bytes};
  w->n_bytes += n_bytes;
  return CKPT_OK;
}

/* A problem of what is no file that can be looked at. */
static ckpt_status add_unknown(walk *w, const char *path, const char *what, ckpt_error *err) {
  return ckpt_findings_add(&w->scanner->scan->findings, err, CKPT_PROBLEM, path, NULL, "not looked into: %s", what);
}

static ckpt_status walk_folder(walk *w, const char *sub, unsigned depth, ckpt_error *err);

static ckpt_status walk_entry(walk *w, const char *sub, const ckpt_entry *entry, unsigned depth, ckpt_error *err) {
  const char *name = sub[0] == '\0' ? ckpt_arena_copy(&w->names, entry->name)
                                    : ckpt_arena_printf(&w->names, "%s/%s", sub, entry->name);
  const char *path = name == NULL ? NULL : ckpt_arena_printf(&w->names, "%s/%s", w->root, name);
  CKPT_TRY_ALLOC(path, err);
  if (entry->is_file) return add_file(w, name, entry->n_bytes, err);
  if (entry->is_folder && entry->is_link) return add_unknown(w, path, "a link to a folder (name the folder)", err);
  if (entry->is_folder && depth >= MAX_DEPTH) return add_unknown(w, path, "more than 32 folders in one another", err);
  if (entry->is_folder) return walk_folder(w, name, depth + 1, err);
  return add_unknown(w, path, entry->is_link ? "a link that leads out of the folder, or nowhere" : "no regular file",
                     err);
}

static ckpt_status walk_folder(walk *w, const char *sub, unsigned depth, ckpt_error *err) {
  ckpt_entry *entries = NULL;
  size_t n = 0;
  ckpt_error own = {0};
  ckpt_status status = ckpt_list(&entries, &n, w->root, sub, &own);
  if (status == CKPT_ENOMEM || (status != CKPT_OK && depth == 0)) {
    if (err != NULL) *err = own;
    return status;
  }
  if (status != CKPT_OK) return add_unknown(w, own.file[0] == '\0' ? sub : own.file, own.message, err);
  for (size_t i = 0; i < n && status == CKPT_OK; i++) status = walk_entry(w, sub, &entries[i], depth, err);
  ckpt_list_free(entries, n);
  return status;
}

/* A failure that is the file's: it changed, its disk has bad blocks, another may not read it. */
static bool is_of_file(ckpt_status status) {
  return status != CKPT_OK && status != CKPT_ENOMEM && status != CKPT_ECANCELED && status != CKPT_EINTERNAL;
}

/* What may be gone through for a file of so many bytes. */
static void begin_file(ckpt_scanner *s, const ckpt_place *place, const char *path) {
  s->path = path;
  s->first = s->scan->n;
  s->n_work = 0;
  s->is_stopped = false;
  bool fits = ckpt_mul_u64(place->n_bytes, 8, &s->max_work) &&
              ckpt_add_u64(s->max_work, 2 * CKPT_SCAN_UNPACKED_BYTES, &s->max_work);
  if (!fits) s->max_work = UINT64_MAX;
  fits = ckpt_mul_u64(place->n_bytes, CKPT_SCAN_FRAMES_RATIO, &s->max_unpacked) &&
         ckpt_add_u64(s->max_unpacked, CKPT_SCAN_FRAMES_BYTES, &s->max_unpacked);
  if (!fits) s->max_unpacked = UINT64_MAX;
  s->n_unpacked = 0;
}

/* Looks at a file of a source. */
static ckpt_status look_at_place(ckpt_scanner *s, const ckpt_place *place, const char *path, ckpt_error *err) {
  begin_file(s, place, path);
  s->scan->n_files++;
  s->scan->n_bytes += place->n_bytes;
  return ckpt_scan_look(s, place, err);
}

static ckpt_status look_at_file(const walk *w, ckpt_source *source, const char *name, ckpt_error *err) {
  ckpt_scan *scan = w->scanner->scan;
  ckpt_place place = {.source = source};
  ckpt_error own = {0};
  w->scanner->name = name;
  ckpt_status status = ckpt_source_add(source, name, &place.file, &place.n_bytes, &own);
  if (status == CKPT_OK)
    status = look_at_place(w->scanner, &place, w->is_bare ? name : ckpt_source_path(source, place.file), &own);
  scan->n_unread += is_of_file(status);
  if (is_of_file(status))
    return ckpt_findings_add(&scan->findings, err, CKPT_PROBLEM, own.file[0] == '\0' ? name : own.file, NULL,
                             "not looked into: %s", own.message);
  if (status != CKPT_OK && err != NULL) *err = own;
  return status;
}

/* ---- items ------------------------------------------------------------------------------------------------------ */

typedef struct placing {
  const walk *walk;
  ckpt_source *source;
  const char **names; /* of the walk's files, sorted */
  ckpt_place file;    /* n_bytes 0: none that was walked over */
} placing;

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The file of the next items. What is none of the walk's has not been asked about. */
static ckpt_status find_file(placing *p, const char *path, ckpt_error *err) {
  const char **name = bsearch(&path, p->names, p->walk->n, sizeof *p->names, compare_names);
  p->file = (ckpt_place){.source = p->source};
  if (name == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_source_add(p->source, *name, &p->file.file, &p->file.n_bytes, err));
  begin_file(p->walk->scanner, &p->file, ckpt_source_path(p->source, p->file.file));
  return CKPT_OK;
}

static ckpt_status look_at_item(void *arg, const ckpt_scan_item *item, bool is_first, ckpt_error *err) {
  placing *p = arg;
  char record[64];
  bool may_go_on;
  ckpt_scanner *s = p->walk->scanner;
  if (is_first) CKPT_TRY(find_file(p, item->path, err));
  if (item->offset >= p->file.n_bytes || s->is_stopped) return CKPT_OK;
  ckpt_place place = p->file;
  place.offset = item->offset;
  place.n_bytes -= item->offset;
  if (place.n_bytes > item->n_bytes) place.n_bytes = item->n_bytes;
  place.is_item = true;
  snprintf(record, sizeof record, "item at %llu", (ull)item->offset);
  place.record = record;
  CKPT_TRY(ckpt_scan_work(s, &place, 512, &may_go_on, err));
  return ckpt_scan_look(s, &place, err);
}

/* Looks at what metadata has placed in the files. */
static ckpt_status look_at_items(walk *w, ckpt_source *source, ckpt_error *err) {
  placing p = {.walk = w, .source = source, .names = reallocarray(NULL, (size_t)w->n + 1, sizeof *p.names)};
  CKPT_TRY_ALLOC(p.names, err);
  for (uint32_t i = 0; i < w->n; i++) p.names[i] = w->files[i].name;
  if (w->n != 0) qsort(p.names, w->n, sizeof *p.names, compare_names);
  ckpt_status status = ckpt_scan_items_each(w->scanner->items, look_at_item, &p, err);
  free(p.names);
  return status;
}

static ckpt_status look_at_files(walk *w, ckpt_error *err) {
  const ckpt_run_options *run = w->scanner->run;
  ckpt_source *source = NULL;
  CKPT_TRY(ckpt_source_open(&source, w->root, err));
  ckpt_status status = CKPT_OK;
  uint64_t n_done = 0;
  for (uint32_t i = 0; i < w->n && status == CKPT_OK; i++) {
    status = ckpt_tell_progress(run, n_done, w->n_bytes, err);
    if (status == CKPT_OK) status = look_at_file(w, source, w->files[i].name, err);
    n_done += w->files[i].n_bytes;
  }
  if (status == CKPT_OK) status = look_at_items(w, source, err);
  ckpt_source_free(source);
  return status;
}

static ckpt_status walk_path(walk *w, const char *path, ckpt_error *err) {
  struct stat st;
  char snapshot[PATH_MAX];
  if (stat(path, &st) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return ckpt_fail_errno(err, path, "cannot be opened");
    CKPT_TRY(ckpt_cache_find(snapshot, sizeof snapshot, path, err));
    CKPT_TRY_ALLOC(path = ckpt_arena_copy(&w->names, snapshot), err);
    if (stat(path, &st) != 0) return ckpt_fail_errno(err, path, "cannot be opened");
  }
  if (S_ISDIR(st.st_mode)) {
    w->root = path;
    return walk_folder(w, "", 0, err);
  }
  if (!S_ISREG(st.st_mode)) return ckpt_fail(err, CKPT_EINVAL, path, NULL, "neither a file nor a folder");
  const char *slash = strrchr(path, '/');
  w->is_bare = slash == NULL;
  w->root = slash == NULL ? "." : slash == path ? "/" : ckpt_arena_text(&w->names, path, (size_t)(slash - path));
  CKPT_TRY_ALLOC(w->root, err);
  return add_file(w, ckpt_path_name(path), (uint64_t)st.st_size, err);
}

ckpt_status ckpt_scan_path(ckpt_scan *scan, const char *path, const ckpt_run_options *run, ckpt_error *err) {
  if (scan->arena.limit == 0) ckpt_arena_init(&scan->arena, UINT64_MAX);
  ckpt_scan_items items = {0};
  ckpt_arena_init(&items.arena, UINT64_MAX);
  ckpt_scanner scanner = {.scan = scan, .run = run, .items = &items};
  walk w = {.scanner = &scanner};
  ckpt_arena_init(&w.names, UINT64_MAX);
  ckpt_status status = walk_path(&w, path, err);
  if (status == CKPT_OK && w.n == 0) status = add_unknown(&w, w.root, "it holds no file", err);
  if (status == CKPT_OK) status = look_at_files(&w, err);
  ckpt_scan_items_free(&items);
  ckpt_arena_free(&w.names);
  free(w.files);
  return status;
}

ckpt_status ckpt_scan_measure(ckpt_scan_size *size, const char *path, ckpt_error *err) {
  ckpt_scan scan = {0};
  ckpt_scanner scanner = {.scan = &scan};
  walk w = {.scanner = &scanner};
  ckpt_arena_init(&w.names, UINT64_MAX);
  ckpt_status status = walk_path(&w, path, err);
  size->n_files += w.n;
  size->n_bytes += w.n_bytes;
  for (uint32_t i = 0; i < w.n; i++)
    if (w.files[i].n_bytes > size->n_largest) size->n_largest = w.files[i].n_bytes;
  ckpt_arena_free(&w.names);
  free(w.files);
  ckpt_scan_free(&scan);
  return status;
}

ckpt_status ckpt_scan_bytes(ckpt_scan *scan, const void *data, size_t n_bytes, const char *name, ckpt_error *err) {
  if (scan->arena.limit == 0) ckpt_arena_init(&scan->arena, UINT64_MAX);
  ckpt_scanner scanner = {.scan = scan};
  ckpt_place place = {.n_bytes = n_bytes};
  CKPT_TRY(ckpt_source_memory(&place.source, data, n_bytes, name, err));
  ckpt_status status = look_at_place(&scanner, &place, name, err);
  ckpt_source_free(place.source);
  return status;
}

void ckpt_scan_free(ckpt_scan *scan) {
  ckpt_arena_free(&scan->arena);
  ckpt_findings_free(&scan->findings);
  free(scan->pickles);
  *scan = (ckpt_scan){0};
}
