/* look.c - what a place is, by its first bytes and its last ones, and numpy's arrays.
 *
 *   .npy   93 'NUMPY' major minor, n u16 (u32 from version 2 on), a Python dict of n bytes | payload
 *
 * The payload of an object array is a pickle.
 *
 * Whatever a file is at its start, it may be a zip archive at its end, from where readers of zip files find them. */
#include "libckpt/recipe/scan/look.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/zip/zip.h"

typedef unsigned long long ull;

enum {
  HEAD_BYTES = 512,
  END_BYTES = 22,
  LOCATOR_BYTES = 20,
  TAIL_BYTES = LOCATOR_BYTES + END_BYTES + 65536, /* as zipfile searches */
  MAX_NPY_HEADER = 1 << 16
};

static ckpt_status read_at(const ckpt_place *place, uint64_t at, void *dst, size_t n, ckpt_error *err) {
  return ckpt_source_read(place->source, place->file, place->offset + at, dst, n, err);
}

/* ---- numpy ------------------------------------------------------------------------------------------------------ */

/* Goes past a text that must stand here. */
static bool skip(const char **at, const char *text) {
  size_t n = strlen(text);
  if (strncmp(*at, text, n) != 0) return false;
  *at += n;
  return true;
}

/* Whether a header is, to the byte, as numpy writes those of plain numbers, times, texts and raw bytes. Any other text
 * may spell out a dtype of objects: '\117', 'object_', 'f4,O'. */
static bool is_of_numbers(const char *at) {
  if (!skip(&at, "{'descr': '") || *at == '\0' || strchr("<>|=", *at++) == NULL) return false;
  if (*at == '\0' || strchr("?bBiufcmMSUV", *at++) == NULL || *at < '0' || *at > '9') return false;
  at += strspn(at, "0123456789");
  if (*at == '[') { /* the unit of a time */
    at += 1 + strspn(at + 1, "0123456789abcdefghijklmnopqrstuvwxyzDMWY");
    if (*at++ != ']') return false;
  }
  if (!skip(&at, "', 'fortran_order': ") || (!skip(&at, "False") && !skip(&at, "True"))) return false;
  if (!skip(&at, ", 'shape': (")) return false;
  at += strspn(at, "0123456789L, ");
  if (!skip(&at, ")") || !(skip(&at, ", }") || skip(&at, "}"))) return false;
  return at[strspn(at, " \n")] == '\0';
}

static ckpt_status look_npy(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n_head,
                            ckpt_error *err) {
  char text[MAX_NPY_HEADER + 1];
  size_t n_length = head[6] == 1 ? 2 : 4;
  if (n_head < 8 + n_length) return CKPT_OK;
  uint64_t n = 0;
  for (size_t i = n_length; i-- > 0;) n = n << 8 | head[8 + i];
  uint64_t data = 8 + n_length + n;
  if (n >= sizeof text || data > place->n_bytes)
    return ckpt_scan_problem(s, place, err, "not looked into: a numpy array with a header of %llu byte%s", (ull)n,
                             ckpt_plural(n));
  bool may_go_on;
  CKPT_TRY(read_at(place, 8 + n_length, text, (size_t)n, err));
  CKPT_TRY(ckpt_scan_work(s, place, n, &may_go_on, err));
  text[n] = '\0';
  if (strlen(text) == n && is_of_numbers(text)) return CKPT_OK;
  ckpt_place objects = *place;
  objects.offset += data;
  objects.n_bytes -= data;
  char *record = ckpt_scan_name(place, "objects");
  CKPT_TRY_ALLOC(record, err);
  objects.record = record;
  ckpt_status status = ckpt_scan_pickles(s, &objects, err);
  free(record);
  return status;
}

/* ---- any -------------------------------------------------------------------------------------------------------- */

/* Whether the end record at tail[at] has what readers want of it: the directory before it, or a zip64 locator. */
static ckpt_status leads_to_directory(const ckpt_place *place, const uint8_t *tail, size_t at, uint64_t tail_at,
                                      bool *leads, ckpt_error *err) {
  uint8_t magic[4];
  uint64_t n_directory = ckpt_le32(tail + at + 12), end = tail_at + at;
  *leads = at >= LOCATOR_BYTES && memcmp(tail + at - LOCATOR_BYTES, "PK\6\7", 4) == 0;
  if (*leads || n_directory < sizeof magic || n_directory > end) return CKPT_OK;
  CKPT_TRY(read_at(place, end - n_directory, magic, sizeof magic, err));
  *leads = memcmp(magic, "PK\1\2", 4) == 0;
  return CKPT_OK;
}

/* An end record within what may be its comment, whatever that is said to be, or behind it. */
ckpt_status ckpt_scan_has_zip_end(const ckpt_place *place, bool *has, ckpt_error *err) {
  *has = false;
  size_t n = place->n_bytes < TAIL_BYTES ? (size_t)place->n_bytes : TAIL_BYTES;
  if (n < END_BYTES) return CKPT_OK;
  uint8_t *tail = malloc(n);
  CKPT_TRY_ALLOC(tail, err);
  uint64_t tail_at = place->n_bytes - n;
  ckpt_status status = read_at(place, tail_at, tail, n, err);
  for (const uint8_t *from = tail; status == CKPT_OK && !*has;) {
    const uint8_t *found = memmem(from, n - (size_t)(from - tail), "PK\5\6", 4);
    if (found == NULL || n - (size_t)(found - tail) < END_BYTES) break;
    status = leads_to_directory(place, tail, (size_t)(found - tail), tail_at, has, err);
    from = found + 1;
  }
  free(tail);
  return status;
}

/* head: its first n bytes. */
static ckpt_status look_by_content(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n,
                                   ckpt_error *err) {
  bool is_known = false, has_end = false, is_tar = false;
  uint64_t first = 0;
  bool is_zip = ckpt_zip_is_start(head, n), is_npy = n >= 12 && memcmp(head, "\x93NUMPY", 6) == 0;
  bool is_packed = ckpt_scan_compressor(head, n, &is_known) != NULL;
  if (!is_zip && !is_npy && !is_packed) CKPT_TRY(ckpt_scan_find_tar(s, place, head, n, &is_tar, &first, err));
  if ((is_zip || is_packed || is_tar) && place->depth >= CKPT_SCAN_DEPTH)
    return ckpt_scan_problem(s, place, err, "not looked into: more than %d archives in one another", CKPT_SCAN_DEPTH);
  if (is_zip && ckpt_scan_is_object(place)) CKPT_TRY(ckpt_scan_pickles(s, place, err));
  if (is_zip) return place->is_carved ? CKPT_OK : ckpt_scan_zip(s, place, err);
  if (is_tar) CKPT_TRY(ckpt_scan_tar(s, place, first, err));
  if (is_npy) CKPT_TRY(look_npy(s, place, head, n, err));
  if (is_packed) CKPT_TRY(ckpt_scan_packed(s, place, err));
  /* the first bytes of some of these are opcodes, too; and torch unpickles an object whatever it begins with */
  CKPT_TRY(ckpt_scan_pickles(s, place, err));
  if (place->is_carved || s->is_stopped) return CKPT_OK;
  CKPT_TRY(ckpt_scan_has_zip_end(place, &has_end, err));
  if (!has_end) return CKPT_OK;
  if (place->depth >= CKPT_SCAN_DEPTH)
    return ckpt_scan_problem(s, place, err, "not looked into: more than %d archives in one another", CKPT_SCAN_DEPTH);
  ckpt_place archive = *place;
  archive.is_tar = is_tar;
  return ckpt_scan_zip(s, &archive, err);
}

ckpt_status ckpt_scan_look(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  uint8_t head[HEAD_BYTES];
  size_t n = place->n_bytes < sizeof head ? (size_t)place->n_bytes : sizeof head;
  if (n == 0 || s->is_stopped) return CKPT_OK;
  CKPT_TRY(read_at(place, 0, head, n, err));
  if (n < place->n_bytes || place->depth == 0) return look_by_content(s, place, head, n, err);
  /* small records, of which DCP files have many, are read once */
  ckpt_place own = *place;
  own.offset = own.file = 0;
  CKPT_TRY(ckpt_source_memory(&own.source, head, n, s->path, err));
  ckpt_status status = look_by_content(s, &own, head, n, err);
  ckpt_source_free(own.source);
  return status;
}
