/* scan_look.c - what a place is, by its first bytes, and the containers that need no file of their own: numpy and tar.
 *
 *   .npy   93 'NUMPY' major minor, n u16 (u32 from version 2 on), a Python dict of n bytes | an object array is a
 * pickle tar    members: 512 bytes of header (name 100, ... size at 124, type at 156, 'ustar' at 257) | payload, padded
 * to 512
 *
 * A file that is no archive at its start may be one at its end: zip archives are found from there by their readers. */
#include "libckpt/recipe/scan_look.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/checked.h"
#include "libckpt/codec/zip.h"
#include "libckpt/error.h"

typedef unsigned long long ull;

enum { HEAD_BYTES = 512, TAR_BLOCK = 512, END_BYTES = 22, TAIL_BYTES = END_BYTES + 65535, MAX_NPY_HEADER = 1 << 16 };

static ckpt_status read_at(const ckpt_place *place, uint64_t at, void *dst, size_t n, ckpt_error *err) {
  return ckpt_source_read(place->source, place->file, place->offset + at, dst, n, err);
}

/* ---- numpy ------------------------------------------------------------------------------------------------------ */

/* Whether a dtype in the header's text is that of objects: '|O', '<O8', 'O'. */
static bool has_objects(const char *text, size_t n) {
  for (size_t i = 1; i + 1 < n; i++)
    if (text[i] == 'O' && strchr("'\"|<>=", text[i - 1]) != NULL && strchr("'\"48", text[i + 1]) != NULL) return true;
  return false;
}

static ckpt_status look_npy(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n_head,
                            ckpt_error *err) {
  char text[MAX_NPY_HEADER];
  size_t n_length = head[6] == 1 ? 2 : 4;
  if (n_head < 8 + n_length) return CKPT_OK;
  uint64_t n = 0;
  for (size_t i = n_length; i-- > 0;) n = n << 8 | head[8 + i];
  uint64_t data = 8 + n_length + n;
  if (n > sizeof text || data > place->n_bytes)
    return ckpt_scan_problem(s, place, err, "not looked into: a numpy array with a header of %llu bytes", (ull)n);
  CKPT_TRY(read_at(place, 8 + n_length, text, (size_t)n, err));
  if (!has_objects(text, (size_t)n)) return CKPT_OK;
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

/* ---- tar -------------------------------------------------------------------------------------------------------- */

static bool is_tar(const uint8_t *head, size_t n_head) { return n_head >= 263 && memcmp(head + 257, "ustar", 5) == 0; }

/* The size in a header: octal text, or base 256 with the highest bit set. */
static uint64_t tar_size(const uint8_t *at) {
  uint64_t size = 0;
  if (at[0] & 0x80) {
    for (int i = 4; i < 12; i++) size = size << 8 | at[i];
    return size;
  }
  for (int i = 0; i < 12; i++)
    if (at[i] >= '0' && at[i] <= '7') size = size << 3 | (uint64_t)(at[i] - '0');
  return size;
}

static ckpt_status look_member(ckpt_scanner *s, const ckpt_place *place, const uint8_t *header, uint64_t at,
                               uint64_t n_bytes, ckpt_error *err) {
  char name[101] = "";
  memcpy(name, header, 100);
  ckpt_place member = *place;
  member.offset += at;
  member.n_bytes = n_bytes;
  member.depth++;
  char *record = ckpt_scan_name(place, name);
  CKPT_TRY_ALLOC(record, err);
  member.record = record;
  ckpt_status status = ckpt_scan_look(s, &member, err);
  free(record);
  return status;
}

static ckpt_status look_tar(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  uint8_t header[TAR_BLOCK];
  bool may_go_on = true;
  for (uint64_t at = 0; may_go_on && ckpt_range_within(at, TAR_BLOCK, place->n_bytes);) {
    CKPT_TRY(read_at(place, at, header, sizeof header, err));
    CKPT_TRY(ckpt_scan_work(s, place, TAR_BLOCK, &may_go_on, err));
    at += TAR_BLOCK;
    if (header[0] == '\0') continue; /* padding, and the blocks of zeros at the end */
    uint64_t n = tar_size(header + 124), n_left = place->n_bytes - at;
    if (!is_tar(header, sizeof header) || n > n_left)
      return ckpt_scan_problem(s, place, err, "broken tar archive (at %llu): not looked into from there",
                               (ull)(at - TAR_BLOCK));
    bool is_file = header[156] == '0' || header[156] == '\0' || header[156] == '7';
    if (is_file) CKPT_TRY(look_member(s, place, header, at, n, err));
    if (!is_file && strchr("125xgLK", header[156]) == NULL)
      CKPT_TRY(ckpt_scan_problem(s, place, err, "not looked into: a tar member of type '%c'",
                                 header[156] >= ' ' && header[156] < 127 ? header[156] : '?'));
    uint64_t n_padded = n + (TAR_BLOCK - n % TAR_BLOCK) % TAR_BLOCK;
    at = n_padded > n_left ? place->n_bytes : at + n_padded;
  }
  return CKPT_OK;
}

/* ---- any -------------------------------------------------------------------------------------------------------- */

/* Whether a place ends as a zip archive does: an end record whose comment is what is left, of one disk. Of records of
 * an archive, which are many, only the end without a comment is looked for. */
static ckpt_status has_zip_end(const ckpt_place *place, bool *has, ckpt_error *err) {
  uint8_t tail[TAIL_BYTES];
  size_t n = place->depth == 0 ? sizeof tail : END_BYTES;
  if (place->n_bytes < n) n = (size_t)place->n_bytes;
  *has = false;
  if (n < END_BYTES) return CKPT_OK;
  CKPT_TRY(read_at(place, place->n_bytes - n, tail, n, err));
  for (size_t i = 0; i + END_BYTES <= n && !*has; i++) {
    const uint8_t *at = tail + i;
    if (memcmp(at, "PK\5\6", 4) != 0) continue;
    size_t n_comment = (size_t)at[20] | (size_t)at[21] << 8;
    *has = i + END_BYTES + n_comment == n && memcmp(at + 4, "\0\0\0\0", 4) == 0;
  }
  return CKPT_OK;
}

/* head: its first n bytes. */
static ckpt_status look_by_content(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n,
                                   ckpt_error *err) {
  bool is_known = false, has_end = false;
  bool is_zip = ckpt_zip_is_start(head, n), is_npy = n >= 12 && memcmp(head, "\x93NUMPY", 6) == 0;
  bool is_packed = ckpt_scan_compressor(head, n, &is_known) != NULL;
  if ((is_zip || is_packed || is_tar(head, n)) && place->depth >= CKPT_SCAN_DEPTH)
    return ckpt_scan_problem(s, place, err, "not looked into: more than %d archives in one another", CKPT_SCAN_DEPTH);
  if (is_zip) return place->is_carved ? CKPT_OK : ckpt_scan_zip(s, place, err);
  if (is_npy) return look_npy(s, place, head, n, err);
  if (is_packed) return ckpt_scan_packed(s, place, err);
  if (is_tar(head, n)) CKPT_TRY(look_tar(s, place, err));
  CKPT_TRY(ckpt_scan_pickles(s, place, err));
  if (!place->is_carved && place->depth < CKPT_SCAN_DEPTH) CKPT_TRY(has_zip_end(place, &has_end, err));
  return has_end ? ckpt_scan_zip(s, place, err) : CKPT_OK;
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
