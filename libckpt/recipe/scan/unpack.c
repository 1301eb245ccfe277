/* unpack.c - what is compressed: deflate (raw, zlib, gzip) and zstd, frame after frame (unpacked.h).
 *
 * Others are named, not looked into: a scanner that passes what it cannot open has been evaded by 7z. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/unpacked.h"
#include "libckpt/extents/decode.h"
#include "libckpt/recipe/scan/look.h"

typedef unsigned long long ull;

enum { HEAD_BYTES = 512, BUFFER_BYTES = 64 << 10 };

/* A frame of zstd that decoders skip: 50 to 5F, 2A 4D 18 | n u32 | n bytes. Its bytes; 0 for anything else. */
static uint64_t skippable(const uint8_t *head, size_t n_head) {
  if (n_head < 8 || head[0] >> 4 != 5 || memcmp(head + 1, "\x2a\x4d\x18", 3) != 0) return 0;
  return UINT64_C(8) + ckpt_le32(head + 4);
}

const char *ckpt_scan_compressor(const uint8_t *head, size_t n_head, bool *is_known) {
  static const struct {
    const char *name, *magic;
    size_t n;
    bool is_known;
  } rows[] = {{"gzip", "\x1f\x8b\x08", 3, true},
              {"zstd", "\x28\xb5\x2f\xfd", 4, true},
              {"bzip2", "BZh", 3, false},
              {"xz",
               "\xfd"
               "7zXZ\0",
               6, false},
              {"7z", "7z\xbc\xaf\x27\x1c", 6, false},
              {"lz4", "\x04\x22\x4d\x18", 4, false},
              {"rar", "Rar!\x1a\x07", 6, false},
              {"joblib's old zlib format", "ZF0x", 4, false},
              {"lzma", "\x5d\0\0", 3, false},
              {"snappy", "\xff\x06\0\0sNaPpY", 10, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    *is_known = rows[i].is_known;
    if (n_head >= rows[i].n && memcmp(head, rows[i].magic, rows[i].n) == 0) return rows[i].name;
  }
  /* a zlib stream: deflate, a window of at most 32 KiB, a check of 5 bits, no dictionary; 'x' is no opcode */
  *is_known = true;
  if (skippable(head, n_head) != 0) return "zstd";
  bool is_zlib = n_head >= 2 && head[0] == 0x78 && (head[0] << 8 | head[1]) % 31 == 0 && (head[1] & 0x20) == 0;
  return is_zlib ? "zlib" : NULL;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

typedef struct unpacking {
  ckpt_scanner *s;
  const ckpt_place *place;
  bool is_free; /* zeros pack well, and are honest, where no directory lies about what there is */
} unpacking;

static ckpt_status count(void *arg, uint64_t n_bytes, bool *may_go_on, ckpt_error *err) {
  const unpacking *u = arg;
  uint64_t n_free = u->is_free ? u->s->max_unpacked - u->s->n_unpacked : 0;
  if (n_free > n_bytes) n_free = n_bytes;
  u->s->n_unpacked += n_free;
  return ckpt_scan_work(u->s, u->place, n_bytes - n_free, may_go_on, err);
}

static ckpt_status begin(ckpt_unpacked **out, unpacking *u, ckpt_scanner *s, const ckpt_place *place,
                         ckpt_packing packing, ckpt_error *err) {
  *u = (unpacking){s, place, !place->is_carved};
  const ckpt_packed packed = {place->source, place->file, place->offset, place->n_bytes, packing};
  return ckpt_unpacked_new(out, &packed, count, u, err);
}

/* Looks at what came out, as a place of a source of its own. */
static ckpt_status look_at(ckpt_scanner *s, const ckpt_place *around, ckpt_unpacked *u, const char *record,
                           ckpt_error *err) {
  ckpt_place place = {
      .n_bytes = ckpt_unpacked_at(u).n_bytes, .record = record, .depth = around->depth + 1, .is_item = around->is_item};
  CKPT_TRY(ckpt_unpacked_source(&place.source, u, s->path, err));
  ckpt_status status = ckpt_scan_look(s, &place, err);
  ckpt_source_free(place.source);
  return status;
}

/* Looks at all that a stream unpacks to: a pickle may do nothing for gigabytes, and then call. */
static ckpt_status take(ckpt_scanner *s, const ckpt_place *place, ckpt_unpacked *u, const char *record,
                        const char *what, ckpt_error *err) {
  CKPT_TRY(ckpt_unpacked_go(u, UINT64_MAX, err));
  ckpt_unpacked_state now = ckpt_unpacked_at(u);
  if (now.is_too_wide)
    return ckpt_scan_problem(s, place, err, "not looked into: %s with a window of more than %d MiB", what,
                             1 << (CKPT_ZSTD_WINDOW_LOG - 20));
  bool is_chance = strcmp(what, "zstd") != 0; /* two or three bytes that begin a stream */
  if (now.is_stopped || (now.n_bytes == 0 && (!now.is_broken || is_chance))) return CKPT_OK; /* which has been said */
  if (now.n_bytes != 0) CKPT_TRY(look_at(s, place, u, record, err));
  if (!now.is_broken) return CKPT_OK;
  return ckpt_scan_problem(s, place, err, "broken %s: looked into up to byte %llu of what it holds", what,
                           (ull)now.n_bytes);
}

ckpt_status ckpt_scan_packed(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  bool is_known = true, may_go_on = true;
  ckpt_place rest = *place;
  while (rest.n_bytes != 0 && may_go_on) {
    uint8_t head[HEAD_BYTES];
    size_t n_head = rest.n_bytes < sizeof head ? (size_t)rest.n_bytes : sizeof head;
    CKPT_TRY(ckpt_source_read(rest.source, rest.file, rest.offset, head, n_head, err));
    const char *what = ckpt_scan_compressor(head, n_head, &is_known);
    if (what == NULL || !is_known)
      return ckpt_scan_problem(s, place, err, "not looked into: %s (%llu byte%s at %llu)",
                               what == NULL ? "bytes behind what is compressed" : what, (ull)rest.n_bytes,
                               ckpt_plural(rest.n_bytes), (ull)(rest.offset - place->offset));
    uint64_t n_skipped = skippable(head, n_head);
    if (n_skipped > rest.n_bytes)
      return ckpt_scan_problem(s, place, err, "broken zstd: a frame of %llu byte%s where %llu are left", (ull)n_skipped,
                               ckpt_plural(n_skipped), (ull)rest.n_bytes);
    CKPT_TRY(ckpt_scan_work(s, place, n_head, &may_go_on, err));
    rest.offset += n_skipped;
    rest.n_bytes -= n_skipped;
    if (n_skipped != 0) continue;
    char *record = ckpt_scan_name(place, what);
    CKPT_TRY_ALLOC(record, err);
    unpacking counted;
    ckpt_unpacked *u = NULL;
    ckpt_packing packing = strcmp(what, "zstd") == 0 ? CKPT_PACKED_ZSTD : CKPT_PACKED_ZLIB;
    ckpt_status status = begin(&u, &counted, s, &rest, packing, err);
    if (status == CKPT_OK) status = take(s, &rest, u, record, what, err);
    ckpt_unpacked_state end = {0};
    if (status == CKPT_OK) end = ckpt_unpacked_at(u);
    ckpt_unpacked_free(u);
    free(record);
    CKPT_TRY(status);
    CKPT_TRY(ckpt_scan_work(s, place, end.n_used, &may_go_on, err));
    if (!end.is_whole) break;
    CKPT_TRY(ckpt_scan_items_seen(s, &rest, end.n_used, err));
    rest.offset += end.n_used;
    rest.n_bytes -= end.n_used;
    rest.is_item = true;
  }
  return CKPT_OK;
}

ckpt_status ckpt_scan_deflated(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, uint32_t crc,
                               ckpt_error *err) {
  unpacking counted;
  ckpt_unpacked *u = NULL;
  uint64_t n_before = s->scan->n_pickles;
  ckpt_status status = begin(&u, &counted, s, place, CKPT_PACKED_DEFLATE, err);
  if (status == CKPT_OK) status = take(s, place, u, place->record, "deflate", err);
  ckpt_unpacked_state end = {0};
  if (status == CKPT_OK) end = ckpt_unpacked_at(u);
  ckpt_unpacked_free(u);
  bool may_go_on;
  if (status == CKPT_OK) /* its input, which may be much where nothing comes out, and a buffer of it at least */
    status = ckpt_scan_work(s, place, end.n_used + (place->is_carved ? BUFFER_BYTES : 0), &may_go_on, err);
  bool has_pickles = end.is_whole && s->scan->n_pickles != n_before;
  if (has_pickles && n_bytes != UINT64_MAX && ((crc != 0 && end.crc32 != crc) || n_bytes != end.n_bytes))
    status = ckpt_scan_problem(s, place, err,
                               "its CRC-32 is %08x, the archive says %08x (and %llu byte%s, of %llu): readers differ",
                               end.crc32, crc, (ull)n_bytes, ckpt_plural(n_bytes), (ull)end.n_bytes);
  return status;
}
