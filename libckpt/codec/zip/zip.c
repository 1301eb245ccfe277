/* zip.c - zip archives after PKWARE's APPNOTE 6.3: see zip.h. Little-endian, at offsets relative to the slice:
 *
 *   local header       PK34 | version 2, flags 2, method 2, time 4, crc 4, stored 4, size 4, n_name 2, n_extra 2 |
 *                      name, extra | payload | with flag bit 3: [PK78] crc 4, stored and size, 4 or 8 each
 *   central directory  PK12 | made by 2, version 2, flags 2, method 2, time 4, crc 4, stored 4, size 4, n_name 2,
 *                      n_extra 2, n_comment 2, disk 2, attributes 6, header offset 4 | name, extra, comment
 *   zip64 end          PK66 | bytes that follow 8, versions 4, disk 4, its disk 4, entries here 8, entries 8,
 *                      directory bytes 8, directory offset 8; its locator PK67 | disk 4, offset 8, disks 4
 *   end                PK56 | disk 2, its disk 2, entries here 2, entries 2, directory bytes 4, offset 4, comment
 *
 * The last PK56 in the slice counts, as PyTorch and Python have it, and must be right: its comment ends the slice, the
 * directory lies directly before the ends. Sizes come from the directory (an extra field 1 replaces those that are all
 * ones), payloads stand where the local header ends, whose name, method and, without bit 3, sizes must agree. */
#include "libckpt/codec/zip/zip.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/arena.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"

enum {
  MAX_COMMENT = 65535,
  MAX_NAME = 4096,
  READ_BYTES = 4 << 10,    /* what is read at least: a small archive is one read */
  BUFFER_BYTES = 256 << 10 /* a header with its name, extra field and comment always fits */
};

/* Bits of the flags: encrypted, patch data, strongly encrypted, masked headers; sizes follow the payload; UTF-8. */
enum { FLAGS_REFUSED = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 13, FLAG_DESCRIPTOR = 1 << 3, FLAG_UTF8 = 1 << 11 };

/* Deflate makes at most 258 bytes of 2 bits. */
enum { MAX_RATIO = 1032 };

typedef unsigned long long ull;

/* What the open archive needs of an entry, and a caller does not. */
typedef struct item {
  ckpt_zip_entry entry;
  uint64_t header; /* of the local header, in the slice */
  uint64_t hash;   /* of the name */
  uint32_t n_name;
} item;

struct ckpt_zip {
  ckpt_arena arena;
  item *items;
  uint32_t *by_name; /* numbers, by hash and then name */
  uint32_t n;
  uint64_t start, first, directory; /* in the file */
  bool has_end64;
  uint16_t made_by, needed; /* as the zip64 end has them */
  uint32_t n_disks;         /* as its locator has them */
};

/* The slice while its archive is being opened. */
typedef struct slice {
  ckpt_source *source;
  uint32_t file;
  uint64_t offset, n_bytes;
  uint8_t *buffer; /* bytes [from, from + n) */
  uint64_t from;
  size_t n, n_buffer, n_step; /* n_step: how much to read next where that is more than asked */
} slice;

typedef struct directory {
  uint64_t offset, n_bytes, n_entries;
  bool has_end64;
  uint16_t made_by, needed;
  uint32_t n_disks;
} directory;

static bool is_signature(const uint8_t *at, char a, char b) {
  return at[0] == 'P' && at[1] == 'K' && at[2] == a && at[3] == b;
}

bool ckpt_zip_is_start(const uint8_t *bytes, size_t n_bytes) {
  return n_bytes >= 4 && (is_signature(bytes, 3, 4) || is_signature(bytes, 5, 6));
}

static const char *path_of(const slice *s) { return ckpt_source_path(s->source, s->file); }

/* *bytes: n bytes of the slice from `at`, until the next call. */
static ckpt_status need(slice *s, uint64_t at, size_t n, const uint8_t **bytes, ckpt_error *err) {
  if (!ckpt_range_within(at, n, s->n_bytes) || n > s->n_buffer)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "the zip archive is cut off (%zu byte%s at %llu of %llu)", n,
                     ckpt_plural(n), (ull)at, (ull)s->n_bytes);
  if (at < s->from || !ckpt_range_within(at - s->from, n, s->n)) {
    bool goes_on = at >= s->from && at - s->from <= s->n;
    s->n_step = goes_on && s->n_step < s->n_buffer / 4 ? 2 * s->n_step : READ_BYTES;
    uint64_t n_left = s->n_bytes - at;
    size_t n_read = n > s->n_step ? n : s->n_step;
    if (n_read > n_left) n_read = (size_t)n_left;
    if (n_read > s->n_buffer) n_read = s->n_buffer;
    s->n = 0;
    CKPT_TRY(ckpt_source_read(s->source, s->file, s->offset + at, s->buffer, n_read, err));
    s->from = at;
    s->n = n_read;
  }
  *bytes = s->buffer + (at - s->from);
  return CKPT_OK;
}

/* ---- the ends ---------------------------------------------------------------------------------------------------- */

/* Where the last PK56 of the slice is. */
static ckpt_status find_end(slice *s, uint64_t *end, ckpt_error *err) {
  for (size_t n = READ_BYTES;; n = CKPT_ZIP_END_BYTES + MAX_COMMENT) {
    if (n > s->n_bytes) n = (size_t)s->n_bytes;
    const uint8_t *tail = NULL;
    CKPT_TRY(need(s, s->n_bytes - n, n, &tail, err));
    for (size_t at = n < CKPT_ZIP_END_BYTES ? 0 : n - CKPT_ZIP_END_BYTES + 1; at-- > 0;)
      if (is_signature(tail + at, 5, 6)) {
        *end = s->n_bytes - n + at;
        return CKPT_OK;
      }
    if (n == s->n_bytes || n == CKPT_ZIP_END_BYTES + MAX_COMMENT)
      return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL,
                       "no end of a zip archive in its last %zu bytes; it is truncated or no zip archive", n);
  }
}

/* A number that stands in both ends, unless the short one says that it does not. */
static bool agrees(uint64_t in_end, uint64_t ones, uint64_t in_end64) { return in_end == ones || in_end == in_end64; }

/* Takes the zip64 end, where the locator before `end` names one; *before is where the ends begin. */
static ckpt_status read_end64(slice *s, const uint8_t *end_bytes, uint64_t end, directory *dir, uint64_t *before,
                              ckpt_error *err) {
  const uint8_t *bytes = NULL;
  uint8_t own[CKPT_ZIP_END_BYTES];
  memcpy(own, end_bytes, sizeof own);
  *before = end;
  if (end < CKPT_ZIP_LOCATOR_BYTES) return CKPT_OK;
  CKPT_TRY(need(s, end - CKPT_ZIP_LOCATOR_BYTES, CKPT_ZIP_LOCATOR_BYTES, &bytes, err));
  if (!is_signature(bytes, 6, 7)) return CKPT_OK;
  uint64_t at = ckpt_le64(bytes + 8), locator = end - CKPT_ZIP_LOCATOR_BYTES;
  const uint32_t n_disks = ckpt_le32(bytes + 16);
  bool one_disk = ckpt_le32(bytes + 4) == 0 && n_disks <= 1;
  if (!ckpt_range_within(at, CKPT_ZIP_END64_BYTES, locator))
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "the zip64 end lies outside the archive (at %llu of %llu)",
                     (ull)at, (ull)s->n_bytes);
  CKPT_TRY(need(s, at, CKPT_ZIP_END64_BYTES, &bytes, err));
  if (!is_signature(bytes, 6, 6) || ckpt_le64(bytes + 4) != locator - at - 12)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "damaged zip64 end (at %llu)", (ull)at);
  *dir = (directory){.offset = ckpt_le64(bytes + 48),
                     .n_bytes = ckpt_le64(bytes + 40),
                     .n_entries = ckpt_le64(bytes + 32),
                     .has_end64 = true,
                     .made_by = ckpt_le16(bytes + 12),
                     .needed = ckpt_le16(bytes + 14),
                     .n_disks = n_disks};
  one_disk =
      one_disk && ckpt_le32(bytes + 16) == 0 && ckpt_le32(bytes + 20) == 0 && ckpt_le64(bytes + 24) == dir->n_entries;
  if (!one_disk) return ckpt_fail(err, CKPT_EUNSUPPORTED, path_of(s), NULL, "a zip archive of several disks");
  if (!agrees(ckpt_le16(own + 10), UINT16_MAX, dir->n_entries) ||
      !agrees(ckpt_le32(own + 12), UINT32_MAX, dir->n_bytes) || !agrees(ckpt_le32(own + 16), UINT32_MAX, dir->offset))
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "the two ends of the zip archive contradict each other");
  *before = at;
  return CKPT_OK;
}

static ckpt_status read_ends(slice *s, directory *dir, ckpt_error *err) {
  uint64_t end = 0, before = 0;
  const uint8_t *bytes = NULL;
  CKPT_TRY(find_end(s, &end, err));
  CKPT_TRY(need(s, end, CKPT_ZIP_END_BYTES, &bytes, err));
  uint32_t n_comment = ckpt_le16(bytes + 20);
  if (end + CKPT_ZIP_END_BYTES + n_comment != s->n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL,
                     "bytes follow the end of the zip archive (%llu, its comment has %u); it is truncated or has more "
                     "behind it",
                     (ull)(s->n_bytes - end - CKPT_ZIP_END_BYTES), n_comment);
  uint16_t disk = ckpt_le16(bytes + 4), own_disk = ckpt_le16(bytes + 6), n_here = ckpt_le16(bytes + 8);
  *dir = (directory){
      .offset = ckpt_le32(bytes + 16), .n_bytes = ckpt_le32(bytes + 12), .n_entries = ckpt_le16(bytes + 10)};
  bool one_disk = n_here == dir->n_entries && (disk == 0 || disk == UINT16_MAX) && own_disk == disk;
  if (!one_disk) return ckpt_fail(err, CKPT_EUNSUPPORTED, path_of(s), NULL, "a zip archive of several disks");
  CKPT_TRY(read_end64(s, bytes, end, dir, &before, err));
  uint64_t dir_end;
  if (!ckpt_add_u64(dir->offset, dir->n_bytes, &dir_end) || dir_end != before)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL,
                     "the zip directory (%llu byte%s at %llu) does not end where the end begins (%llu)",
                     (ull)dir->n_bytes, ckpt_plural(dir->n_bytes), (ull)dir->offset, (ull)before);
  if (dir->n_entries > dir->n_bytes / CKPT_ZIP_CENTRAL_BYTES)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "%llu entr%s in a zip directory of %llu byte%s",
                     (ull)dir->n_entries, dir->n_entries == 1 ? "y" : "ies", (ull)dir->n_bytes,
                     ckpt_plural(dir->n_bytes));
  if (dir->n_entries <= CKPT_ZIP_MAX_ENTRIES) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, path_of(s), NULL, "%llu zip entries (at most %d)", (ull)dir->n_entries,
                   CKPT_ZIP_MAX_ENTRIES);
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* FNV-1a */
static uint64_t hash_name(const char *name) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *name != '\0'; name++) hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
  return hash;
}

/* Replaces those of size, stored and header (may be NULL) that are all ones by what extra field 1 has. */
static bool take_zip64(const uint8_t *extra, size_t n_extra, uint64_t *size, uint64_t *stored, uint64_t *header) {
  uint64_t *wanted[3] = {size, stored, header};
  bool is_wanted = *size == UINT32_MAX || *stored == UINT32_MAX || (header != NULL && *header == UINT32_MAX);
  while (n_extra >= 4) {
    size_t n = ckpt_le16(extra + 2);
    if (n > n_extra - 4) return false;
    if (ckpt_le16(extra) == 1 && is_wanted) {
      size_t at = 4;
      for (int i = 0; i < 3; i++) {
        if (wanted[i] == NULL || *wanted[i] != UINT32_MAX) continue;
        if (at + 8 > 4 + n) return false;
        *wanted[i] = ckpt_le64(extra + at);
        at += 8;
      }
      return true;
    }
    extra += 4 + n;
    n_extra -= 4 + n;
  }
  return !is_wanted;
}

static ckpt_status check_entry(const slice *s, const item *it, ckpt_error *err) {
  const ckpt_zip_entry *e = &it->entry;
  if (e->flags & FLAGS_REFUSED)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path_of(s), NULL, "zip entry '%s' is encrypted or a patch (flags 0x%x)",
                     e->name, e->flags);
  if (e->method != CKPT_ZIP_STORED && e->method != CKPT_ZIP_DEFLATED)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path_of(s), NULL,
                     "zip entry '%s' is compressed by method %u; stored and deflate are read", e->name, e->method);
  bool lies = e->method == CKPT_ZIP_STORED ? e->n_bytes != e->n_stored : e->n_bytes / MAX_RATIO > e->n_stored;
  if (lies)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "zip entry '%s' cannot have %llu byte%s in %llu stored ones",
                     e->name, (ull)e->n_bytes, ckpt_plural(e->n_bytes), (ull)e->n_stored);
  return CKPT_OK;
}

/* Reads the entry of the directory at *at, and goes past it. */
static ckpt_status read_central(ckpt_zip *zip, slice *s, uint64_t *at, item *it, ckpt_error *err) {
  const uint8_t *bytes = NULL;
  CKPT_TRY(need(s, *at, CKPT_ZIP_CENTRAL_BYTES, &bytes, err));
  uint32_t n_name = ckpt_le16(bytes + 28), n_extra = ckpt_le16(bytes + 30), n_comment = ckpt_le16(bytes + 32);
  if (!is_signature(bytes, 1, 2) || n_name == 0 || n_name > MAX_NAME)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "damaged zip directory at %llu (names have 1 to %d bytes)",
                     (ull)*at, MAX_NAME);
  size_t n_all = CKPT_ZIP_CENTRAL_BYTES + n_name + n_extra + n_comment;
  CKPT_TRY(need(s, *at, n_all, &bytes, err));
  const char *name = (const char *)bytes + CKPT_ZIP_CENTRAL_BYTES;
  it->entry = (ckpt_zip_entry){.name = ckpt_arena_text(&zip->arena, name, n_name),
                               .n_stored = ckpt_le32(bytes + 20),
                               .n_bytes = ckpt_le32(bytes + 24),
                               .crc32 = ckpt_le32(bytes + 16),
                               .time = ckpt_le32(bytes + 12),
                               .attributes = ckpt_le32(bytes + 38),
                               .made_by = ckpt_le16(bytes + 4),
                               .needed = ckpt_le16(bytes + 6),
                               .inner = ckpt_le16(bytes + 36),
                               .n_comment = (uint16_t)n_comment,
                               .flags = ckpt_le16(bytes + 8),
                               .method = ckpt_le16(bytes + 10),
                               .is_utf8 = ckpt_utf8_length(name, n_name) == n_name};
  if (it->entry.name == NULL)
    return ckpt_fail(err, CKPT_ELIMIT, path_of(s), NULL, "the zip directory takes more memory than allowed");
  it->header = ckpt_le32(bytes + 42);
  it->n_name = n_name;
  it->hash = hash_name(it->entry.name);
  if (memchr(name, '\0', n_name) != NULL || ((it->entry.flags & FLAG_UTF8) && !it->entry.is_utf8))
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL,
                     "a zip entry's name is not UTF-8 or has a zero byte (at %llu)", (ull)*at);
  if (ckpt_le16(bytes + 34) != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path_of(s), NULL, "a zip archive of several disks");
  if (!take_zip64(bytes + CKPT_ZIP_CENTRAL_BYTES + n_name, n_extra, &it->entry.n_bytes, &it->entry.n_stored,
                  &it->header))
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "damaged extra field of zip entry '%s'", it->entry.name);
  *at += n_all;
  return check_entry(s, it, err);
}

/* Finds the payload behind the local header, which must say what the directory says. */
static ckpt_status read_local(slice *s, item *it, uint64_t dir_offset, ckpt_error *err) {
  ckpt_zip_entry *e = &it->entry;
  const uint8_t *bytes = NULL;
  if (!ckpt_range_within(it->header, CKPT_ZIP_LOCAL_BYTES + it->n_name, dir_offset))
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "zip entry '%s' lies outside the archive (at %llu)", e->name,
                     (ull)it->header);
  CKPT_TRY(need(s, it->header, CKPT_ZIP_LOCAL_BYTES + it->n_name, &bytes, err));
  uint32_t n_name = ckpt_le16(bytes + 26), n_extra = ckpt_le16(bytes + 28);
  uint64_t n_head = (uint64_t)CKPT_ZIP_LOCAL_BYTES + n_name + n_extra;
  const uint16_t differing = (uint16_t)(ckpt_le16(bytes + 6) ^ e->flags);
  bool same = is_signature(bytes, 3, 4) && (differing & (FLAGS_REFUSED | FLAG_DESCRIPTOR)) == 0 &&
              ckpt_le16(bytes + 8) == e->method && n_name == it->n_name &&
              memcmp(bytes + CKPT_ZIP_LOCAL_BYTES, e->name, n_name) == 0;
  if (same && !(e->flags & FLAG_DESCRIPTOR)) {
    uint64_t n_stored = ckpt_le32(bytes + 18), n_bytes = ckpt_le32(bytes + 22);
    same = ckpt_le32(bytes + 14) == e->crc32;
    if (n_stored == UINT32_MAX || n_bytes == UINT32_MAX) {
      CKPT_TRY(need(s, it->header, n_head, &bytes, err));
      same = same && take_zip64(bytes + CKPT_ZIP_LOCAL_BYTES + n_name, n_extra, &n_bytes, &n_stored, NULL);
    }
    same = same && n_stored == e->n_stored && n_bytes == e->n_bytes;
  }
  if (!same)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL,
                     "the local header of zip entry '%s' contradicts the directory (at %llu)", e->name,
                     (ull)it->header);
  uint64_t payload = it->header + n_head; /* the header lies in the slice, so this fits */
  if (!ckpt_range_within(payload, e->n_stored, dir_offset))
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL,
                     "zip entry '%s' reaches into the directory or past it (%llu byte%s at %llu)", e->name,
                     (ull)e->n_stored, ckpt_plural(e->n_stored), (ull)payload);
  e->header = s->offset + it->header;
  e->offset = s->offset + payload;
  return CKPT_OK;
}

/* ---- all entries ------------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b, void *items) {
  const item *x = (const item *)items + *(const uint32_t *)a, *y = (const item *)items + *(const uint32_t *)b;
  return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : strcmp(x->entry.name, y->entry.name);
}

static int compare_headers(const void *a, const void *b, void *items) {
  const item *x = (const item *)items + *(const uint32_t *)a, *y = (const item *)items + *(const uint32_t *)b;
  return (x->header > y->header) - (x->header < y->header);
}

/* No two entries share a byte or a name. Leaves by_name sorted. */
static ckpt_status check_all(ckpt_zip *zip, const slice *s, ckpt_error *err) {
  uint32_t *order = zip->by_name;
  for (uint32_t i = 0; i < zip->n; i++) order[i] = i;
  if (zip->n > 1) qsort_r(order, zip->n, sizeof *order, compare_headers, zip->items);
  zip->first = zip->n == 0 ? zip->directory : zip->items[order[0]].entry.header;
  for (uint32_t i = 0; i < zip->n; i++)
    zip->items[order[i]].entry.end = i + 1 == zip->n ? zip->directory : zip->items[order[i + 1]].entry.header;
  for (uint32_t i = 1; i < zip->n; i++) {
    const item *x = &zip->items[order[i - 1]], *y = &zip->items[order[i]];
    if (x->entry.offset + x->entry.n_stored > s->offset + y->header)
      return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "zip entries '%s' and '%s' overlap", x->entry.name,
                       y->entry.name);
  }
  if (zip->n > 1) qsort_r(order, zip->n, sizeof *order, compare_names, zip->items);
  for (uint32_t i = 1; i < zip->n; i++)
    if (compare_names(&order[i - 1], &order[i], zip->items) == 0)
      return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "zip entry '%s' stands there twice",
                       zip->items[order[i]].entry.name);
  return CKPT_OK;
}

static ckpt_status read_archive(ckpt_zip *zip, slice *s, ckpt_error *err) {
  directory dir = {0};
  CKPT_TRY(read_ends(s, &dir, err));
  zip->n = (uint32_t)dir.n_entries;
  zip->start = s->offset;
  zip->directory = s->offset + dir.offset;
  zip->has_end64 = dir.has_end64;
  zip->made_by = dir.made_by;
  zip->needed = dir.needed;
  zip->n_disks = dir.n_disks;
  zip->items = ckpt_arena_array(&zip->arena, (size_t)zip->n + 1, sizeof *zip->items);
  zip->by_name = ckpt_arena_array(&zip->arena, (size_t)zip->n + 1, sizeof *zip->by_name);
  if (zip->items == NULL || zip->by_name == NULL)
    return ckpt_fail(err, CKPT_ELIMIT, path_of(s), NULL, "%u zip entries take more memory than allowed", zip->n);
  uint64_t at = dir.offset, end = dir.offset + dir.n_bytes;
  for (uint32_t i = 0; i < zip->n; i++) {
    CKPT_TRY(read_central(zip, s, &at, &zip->items[i], err));
    if (at > end) break;
  }
  if (at != end)
    return ckpt_fail(err, CKPT_EFORMAT, path_of(s), NULL, "the zip directory does not have the %llu byte%s it claims",
                     (ull)dir.n_bytes, ckpt_plural(dir.n_bytes));
  for (uint32_t i = 0; i < zip->n; i++) CKPT_TRY(read_local(s, &zip->items[i], dir.offset, err));
  return check_all(zip, s, err);
}

ckpt_status ckpt_zip_open(ckpt_zip **out, ckpt_source *source, uint32_t file, uint64_t offset, uint64_t n_bytes,
                          uint64_t max_bytes, ckpt_error *err) {
  *out = NULL;
  if (!ckpt_range_within(offset, n_bytes, ckpt_source_size(source, file)))
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, file), NULL,
                     "a zip archive of %llu byte%s at %llu lies past the end of the file", (ull)n_bytes,
                     ckpt_plural(n_bytes), (ull)offset);
  slice s = {.source = source, .file = file, .offset = offset, .n_bytes = n_bytes, .n_step = READ_BYTES};
  s.n_buffer = n_bytes < BUFFER_BYTES ? (size_t)n_bytes : BUFFER_BYTES;
  s.buffer = malloc(s.n_buffer + 1);
  ckpt_zip *zip = calloc(1, sizeof *zip);
  ckpt_status status = CKPT_OK;
  if (s.buffer == NULL || zip == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  } else {
    ckpt_arena_init(&zip->arena, max_bytes);
    status = read_archive(zip, &s, err);
  }
  free(s.buffer);
  if (status != CKPT_OK) {
    ckpt_zip_free(zip);
    return status;
  }
  *out = zip;
  return CKPT_OK;
}

void ckpt_zip_free(ckpt_zip *zip) {
  if (zip == NULL) return;
  ckpt_arena_free(&zip->arena);
  free(zip);
}

ckpt_status ckpt_zip_check_ends(const ckpt_zip *zip, uint32_t n_torch, ckpt_source *source, uint32_t file,
                                ckpt_error *err) {
  enum { TORCH_MADE_BY = 0x031e, TORCH_NEEDED = 0x2d }; /* 3.0 on Unix, 4.5 */
  if (n_torch != 0 && n_torch != zip->n)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, file), NULL,
                     "%u of %u zip entries lack the field that PyTorch pads them with", zip->n - n_torch, zip->n);
  if (!zip->has_end64) return CKPT_OK;
  if (zip->n_disks != 1)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, file), NULL,
                     "the zip archive's end says that it has %u disks (it is one)", zip->n_disks);
  if (n_torch == 0 || (zip->made_by == TORCH_MADE_BY && zip->needed == TORCH_NEEDED)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, file), NULL,
                   "the zip archive's end states versions %04x and %04x (PyTorch writes %04x and %04x)", zip->made_by,
                   zip->needed, TORCH_MADE_BY, TORCH_NEEDED);
}

uint64_t ckpt_zip_start(const ckpt_zip *zip) { return zip->start; }

uint64_t ckpt_zip_first(const ckpt_zip *zip) { return zip->first; }

uint64_t ckpt_zip_directory(const ckpt_zip *zip) { return zip->directory; }

uint32_t ckpt_zip_count(const ckpt_zip *zip) { return zip->n; }

const ckpt_zip_entry *ckpt_zip_at(const ckpt_zip *zip, uint32_t number) { return &zip->items[number].entry; }

const ckpt_zip_entry *ckpt_zip_find(const ckpt_zip *zip, const char *name) {
  uint64_t hash = hash_name(name);
  for (uint32_t low = 0, high = zip->n; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    const item *at = &zip->items[zip->by_name[middle]];
    int order = hash != at->hash ? (hash < at->hash ? -1 : 1) : strcmp(name, at->entry.name);
    if (order == 0) return &at->entry;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}
