/* zip.c - pickles in zip archives, also in those that our strict reader refuses.
 *
 * First as one archive. Else as archives one behind another, as DCP files are: each end record (PK56) says how long the
 * archive before it is. What belongs to none is searched for local headers (PK34), which every reader of a record goes
 * through, whatever directory it believes; and the file is said to be broken. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/recipe/scan/look.h"

typedef unsigned long long ull;

enum {
  END_BYTES = 22,
  LOCATOR_BYTES = 20,
  END64_BYTES = 56,
  LOCAL_BYTES = 30,
  WINDOW_BYTES = 1 << 20,
  FLAG_ENCRYPTED = 1,
  MAX_SHOWN_NAME = 255
};

static ckpt_status read_at(const ckpt_place *place, uint64_t at, void *dst, size_t n, ckpt_error *err) {
  return ckpt_source_read(place->source, place->file, place->offset + at, dst, n, err);
}

/* ---- by local headers ------------------------------------------------------------------------------------------- */

/* Looks at the record whose local header is at `at`; n_room bytes are left from there. */
static ckpt_status look_at_header(ckpt_scanner *s, const ckpt_place *place, uint64_t at, uint64_t n_room,
                                  ckpt_error *err) {
  uint8_t head[LOCAL_BYTES];
  char name[MAX_SHOWN_NAME + 1] = "";
  if (n_room < LOCAL_BYTES) return CKPT_OK;
  CKPT_TRY(read_at(place, at, head, sizeof head, err));
  uint32_t n_name = ckpt_le16(head + 26), flags = ckpt_le16(head + 6), method = ckpt_le16(head + 8);
  uint64_t n_head = (uint64_t)LOCAL_BYTES + n_name + ckpt_le16(head + 28);
  if (n_head >= n_room) return CKPT_OK;
  CKPT_TRY(read_at(place, at + LOCAL_BYTES, name, n_name < MAX_SHOWN_NAME ? n_name : MAX_SHOWN_NAME, err));
  ckpt_place record = *place;
  record.offset += at + n_head;
  record.n_bytes = n_room - n_head; /* what the header says may be a lie, and a pickle ends by itself */
  record.depth++;
  record.is_carved = true;
  record.is_tar = false;
  record.member = CKPT_SCAN_NO_MEMBER;
  char *shown = ckpt_scan_name(place, name);
  CKPT_TRY_ALLOC(shown, err);
  record.record = shown;
  bool is_unknown = (flags & FLAG_ENCRYPTED) != 0 || (method != CKPT_ZIP_STORED && method != CKPT_ZIP_DEFLATED);
  ckpt_status status = CKPT_OK;
  if (is_unknown)
    status = ckpt_scan_problem(s, &record, err, "not looked into: encrypted, or compressed by method %u", method);
  if (status == CKPT_OK) /* the flag, too, may be a lie */
    status = method == CKPT_ZIP_DEFLATED ? ckpt_scan_deflated(s, &record, UINT64_MAX, 0, err)
                                         : ckpt_scan_look(s, &record, err);
  free(shown);
  return status;
}

/* Calls `see` for each place in [from, end) where the four bytes `magic` stand, in order. */
typedef struct search {
  ckpt_scanner *s;
  const ckpt_place *place;
  const char *magic;
  uint64_t from, end;
  ckpt_status (*see)(void *arg, uint64_t at, ckpt_error *err);
  void *arg;
} search;

static ckpt_status run_search(const search *q, ckpt_error *err) {
  uint8_t *window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  ckpt_status status = CKPT_OK;
  for (uint64_t at = q->from; q->end - at >= 4 && status == CKPT_OK && !q->s->is_stopped;) {
    size_t n = q->end - at < WINDOW_BYTES ? (size_t)(q->end - at) : WINDOW_BYTES;
    bool may_go_on = true;
    status = read_at(q->place, at, window, n, err);
    if (status == CKPT_OK) status = ckpt_scan_work(q->s, q->place, n, &may_go_on, err);
    const uint8_t *from = window;
    while (status == CKPT_OK && !q->s->is_stopped) {
      const uint8_t *found = memmem(from, n - (size_t)(from - window), q->magic, 4);
      if (found == NULL) break;
      status = q->see(q->arg, at + (uint64_t)(found - window), err);
      from = found + 1;
    }
    at += n - 3; /* one that begins in the last three bytes is whole in the next window */
    if (n < WINDOW_BYTES) break;
  }
  free(window);
  return status;
}

typedef struct carving {
  ckpt_scanner *s;
  const ckpt_place *place;
  uint64_t end;
} carving;

static ckpt_status see_header(void *arg, uint64_t at, ckpt_error *err) {
  carving *c = arg;
  bool may_go_on;
  CKPT_TRY(ckpt_scan_work(c->s, c->place, LOCAL_BYTES, &may_go_on, err));
  return may_go_on ? look_at_header(c->s, c->place, at, c->end - at, err) : CKPT_OK;
}

static ckpt_status carve(ckpt_scanner *s, const ckpt_place *place, uint64_t from, uint64_t end, ckpt_error *err) {
  carving c = {.s = s, .place = place, .end = end};
  const search q = {.s = s, .place = place, .magic = "PK\3\4", .from = from, .end = end, .see = see_header, .arg = &c};
  return run_search(&q, err);
}

/* ---- records of an archive that is in order --------------------------------------------------------------------- */

static ckpt_status check_crc(const ckpt_scanner *s, const ckpt_place *record, uint32_t expected, ckpt_error *err) {
  uint8_t *window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  ckpt_status status = CKPT_OK;
  uint32_t crc = 0;
  for (uint64_t at = 0; at < record->n_bytes && status == CKPT_OK;) {
    size_t n = record->n_bytes - at < WINDOW_BYTES ? (size_t)(record->n_bytes - at) : WINDOW_BYTES;
    status = read_at(record, at, window, n, err);
    if (status == CKPT_OK) crc = ckpt_crc32(crc, window, n);
    at += n;
  }
  free(window);
  if (status != CKPT_OK || crc == expected) return status;
  return ckpt_scan_problem(s, record, err, "its CRC-32 is %08x, the archive says %08x: readers differ about it", crc,
                           expected);
}

static ckpt_status look_at_entry(ckpt_scanner *s, const ckpt_place *place, const ckpt_zip_entry *entry,
                                 ckpt_error *err) {
  ckpt_place record = {.source = place->source,
                       .file = place->file,
                       .offset = entry->offset,
                       .n_bytes = entry->n_stored,
                       .depth = place->depth + 1,
                       .is_item = place->is_item};
  uint64_t n_before = s->scan->n_pickles;
  char *name = ckpt_scan_name(place, entry->name);
  CKPT_TRY_ALLOC(name, err);
  record.record = name;
  ckpt_status status = entry->method == CKPT_ZIP_DEFLATED
                           ? ckpt_scan_deflated(s, &record, entry->n_bytes, entry->crc32, err)
                           : ckpt_scan_look(s, &record, err);
  bool is_checked = entry->method == CKPT_ZIP_STORED && s->scan->n_pickles != n_before && entry->crc32 != 0;
  if (status == CKPT_OK && is_checked) status = check_crc(s, &record, entry->crc32, err);
  free(name);
  return status;
}

static ckpt_status look_at_entries(ckpt_scanner *s, const ckpt_place *place, const ckpt_zip *zip, ckpt_error *err) {
  for (uint32_t i = 0; i < ckpt_zip_count(zip) && !s->is_stopped; i++) {
    bool may_go_on;
    CKPT_TRY(ckpt_scan_work(s, place, 1, &may_go_on, err));
    CKPT_TRY(look_at_entry(s, place, ckpt_zip_at(zip, i), err));
  }
  return CKPT_OK;
}

/* A range of the file that the directory names: a local header with its payload. */
typedef struct listed {
  uint64_t from, end;
} listed;

static int compare_listed(const void *a, const void *b) {
  uint64_t x = ((const listed *)a)->from, y = ((const listed *)b)->from;
  return (x > y) - (x < y);
}

/* Looks at local headers between those that the directory names: what reads an archive from its front sees them. */
static ckpt_status look_at_gaps(ckpt_scanner *s, const ckpt_place *place, const ckpt_zip *zip, ckpt_error *err) {
  uint32_t n = ckpt_zip_count(zip);
  listed *all = reallocarray(NULL, (size_t)n + 1, sizeof *all);
  CKPT_TRY_ALLOC(all, err);
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_zip_entry *entry = ckpt_zip_at(zip, i);
    all[i] = (listed){entry->header, entry->offset + entry->n_stored};
  }
  all[n] = (listed){ckpt_zip_directory(zip), 0};
  qsort(all, n, sizeof *all, compare_listed);
  ckpt_status status = CKPT_OK;
  uint64_t done = place->offset;
  for (uint32_t i = 0; i <= n && status == CKPT_OK && !s->is_stopped; i++) {
    if (all[i].from - done >= LOCAL_BYTES)
      status = carve(s, place, done - place->offset, all[i].from - place->offset, err);
    done = all[i].end;
  }
  free(all);
  return status;
}

/* Looks at [at, at + n_bytes) of a place as one archive; *is_archive: whether it is one. defect: why not. */
static ckpt_status try_archive(ckpt_scanner *s, const ckpt_place *place, uint64_t at, uint64_t n_bytes, bool is_item,
                               bool *is_archive, ckpt_error *defect, ckpt_error *err) {
  ckpt_zip *zip = NULL;
  uint64_t max_bytes = s->run == NULL || s->run->memory == 0 ? CKPT_ZIP_MAX_BYTES : s->run->memory / 4;
  *is_archive = false;
  *defect = (ckpt_error){0};
  ckpt_status status = ckpt_zip_open(&zip, place->source, place->file, place->offset + at, n_bytes, max_bytes, defect);
  if (status == CKPT_ENOMEM || status == CKPT_EIO) {
    if (err != NULL) *err = *defect;
    return status;
  }
  if (status != CKPT_OK) return CKPT_OK;
  *is_archive = true;
  ckpt_place archive = *place;
  archive.offset += at;
  archive.n_bytes = n_bytes;
  archive.is_item = archive.is_item || is_item;
  status = ckpt_scan_items_seen(s, &archive, n_bytes, err);
  if (status == CKPT_OK) status = look_at_entries(s, &archive, zip, err);
  if (status == CKPT_OK) status = look_at_gaps(s, &archive, zip, err);
  ckpt_zip_free(zip);
  return status;
}

/* ---- several archives ------------------------------------------------------------------------------------------- */

typedef struct splitting {
  ckpt_scanner *s;
  const ckpt_place *place;
  uint64_t done; /* looked at up to here */
  uint32_t n;    /* archives found */
} splitting;

/* What lies between archives: something else by its content, or nothing that any reader of them sees. */
static ckpt_status look_between(splitting *p, uint64_t end, ckpt_error *err) {
  uint64_t from = p->done;
  if (from == end || p->place->is_tar) return CKPT_OK;
  CKPT_TRY(ckpt_scan_problem(p->s, p->place, err, "%llu byte%s at %llu belong%s to no zip archive beside them",
                             (ull)(end - from), ckpt_plural(end - from), (ull)from, end - from == 1 ? "s" : ""));
  ckpt_place between = *p->place;
  between.offset += from;
  between.n_bytes = end - from;
  between.is_carved = true;
  if (from != 0) CKPT_TRY(ckpt_scan_look(p->s, &between, err)); /* the beginning has been looked at */
  return carve(p->s, p->place, from, end, err);
}

/* Where the archive begins that has its end record at `at`; false where none can. */
static ckpt_status find_start(const splitting *p, uint64_t at, uint64_t *start, uint64_t *end, bool *is,
                              ckpt_error *err) {
  uint8_t bytes[END64_BYTES], locator[LOCATOR_BYTES] = {0};
  *is = false;
  if (p->place->n_bytes - at < END_BYTES) return CKPT_OK;
  CKPT_TRY(read_at(p->place, at, bytes, END_BYTES, err));
  uint64_t n_directory = ckpt_le32(bytes + 12), directory = ckpt_le32(bytes + 16), before = at;
  if (!ckpt_add_u64(at + END_BYTES, ckpt_le16(bytes + 20), end) || *end > p->place->n_bytes) return CKPT_OK;
  if (at >= LOCATOR_BYTES + END64_BYTES) CKPT_TRY(read_at(p->place, at - LOCATOR_BYTES, locator, LOCATOR_BYTES, err));
  if (memcmp(locator, "PK\6\7", 4) == 0) {
    before = at - LOCATOR_BYTES - END64_BYTES;
    CKPT_TRY(read_at(p->place, before, bytes, END64_BYTES, err));
    n_directory = ckpt_le64(bytes + 40);
    directory = ckpt_le64(bytes + 48);
  }
  uint64_t n_before;
  *is = ckpt_add_u64(n_directory, directory, &n_before) && n_before <= before && before - n_before >= p->done;
  *start = *is ? before - n_before : 0;
  return CKPT_OK;
}

static ckpt_status see_end(void *arg, uint64_t at, ckpt_error *err) {
  splitting *p = arg;
  uint64_t start = 0, end = 0;
  bool is = false, may_go_on = true;
  ckpt_error defect;
  if (at < p->done) return CKPT_OK;
  CKPT_TRY(find_start(p, at, &start, &end, &is, err));
  if (!is) return CKPT_OK;
  CKPT_TRY(ckpt_scan_work(p->s, p->place, at - start, &may_go_on, err));
  if (!may_go_on) return CKPT_OK;
  CKPT_TRY(try_archive(p->s, p->place, start, end - start, true, &is, &defect, err));
  if (!is) return CKPT_OK;
  CKPT_TRY(look_between(p, start, err));
  p->done = end;
  p->n++;
  return CKPT_OK;
}

ckpt_status ckpt_scan_zip(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  bool is_archive;
  ckpt_error defect;
  CKPT_TRY(try_archive(s, place, 0, place->n_bytes, false, &is_archive, &defect, err));
  if (is_archive) return CKPT_OK;
  splitting p = {.s = s, .place = place};
  const search q = {.s = s, .place = place, .magic = "PK\5\6", .end = place->n_bytes, .see = see_end, .arg = &p};
  CKPT_TRY(run_search(&q, err));
  if (p.n != 0) return look_between(&p, place->n_bytes, err);
  bool is_memory = defect.status == CKPT_ELIMIT && s->run != NULL && s->run->memory != 0;
  CKPT_TRY(is_memory ? ckpt_findings_advise(
                           ckpt_scan_problem(s, place, err,
                                             "its directory is not read: needs more than the memory limit (%s)",
                                             defect.message),
                           &s->scan->findings, "raise %memory", NULL)
                     : ckpt_scan_problem(s, place, err, "readers differ about this zip archive: %s", defect.message));
  return carve(s, place, 0, place->n_bytes, err);
}
