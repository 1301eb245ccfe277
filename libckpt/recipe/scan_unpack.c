/* scan_unpack.c - what is compressed, in memory: deflate (raw, zlib, gzip) and zstd, frame after frame.
 *
 * Others are named, not looked into: a scanner that passes what it cannot open has been evaded by 7z. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "libckpt/checked.h"
#include "libckpt/error.h"
#include "libckpt/recipe/scan_look.h"

typedef unsigned long long ull;

enum { INPUT_BYTES = 64 << 10, FIRST_BYTES = 64 << 10, HEAD_BYTES = 512 };

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
  bool is_zlib = n_head >= 2 && head[0] == 0x78 && (head[0] << 8 | head[1]) % 31 == 0 && (head[1] & 0x20) == 0;
  return is_zlib ? "zlib" : NULL;
}

/* A stream that is being unpacked into memory. */
typedef struct unpacking {
  const ckpt_place *place;
  uint64_t at; /* of the next input */
  uint8_t *input;
  size_t n_input, used;
  uint8_t *bytes; /* what came out */
  size_t n, capacity;
  bool is_done, is_zstd;
  z_stream deflate;
  ZSTD_DStream *zstd;
} unpacking;

static ckpt_status more_input(unpacking *u, ckpt_error *err) {
  uint64_t n_left = u->place->n_bytes - u->at;
  u->n_input = n_left < INPUT_BYTES ? (size_t)n_left : INPUT_BYTES;
  u->used = 0;
  CKPT_TRY(ckpt_source_read(u->place->source, u->place->file, u->place->offset + u->at, u->input, u->n_input, err));
  u->at += u->n_input;
  return CKPT_OK;
}

/* One step; false where the stream is broken. */
static bool step(unpacking *u) {
  size_t n_room = u->capacity - u->n, n_in = u->n_input - u->used;
  if (u->is_zstd) {
    ZSTD_inBuffer in = {u->input, u->n_input, u->used};
    ZSTD_outBuffer out = {u->bytes, u->capacity, u->n};
    size_t result = ZSTD_decompressStream(u->zstd, &out, &in);
    bool is_stuck = in.pos == u->used && out.pos == u->n && n_in == 0;
    u->used = in.pos;
    u->n = out.pos;
    u->is_done = result == 0;
    return !ZSTD_isError(result) && (u->is_done || !is_stuck);
  }
  u->deflate.next_in = u->input + u->used;
  u->deflate.avail_in = (uInt)n_in;
  u->deflate.next_out = u->bytes + u->n;
  u->deflate.avail_out = n_room > UINT32_MAX ? UINT32_MAX : (uInt)n_room;
  int result = inflate(&u->deflate, Z_NO_FLUSH);
  u->used = u->n_input - u->deflate.avail_in;
  u->n = (size_t)(u->deflate.next_out - u->bytes);
  u->is_done = result == Z_STREAM_END;
  return result == Z_OK || result == Z_STREAM_END;
}

static ckpt_status grow(unpacking *u, ckpt_error *err) {
  size_t capacity = u->capacity == 0 ? FIRST_BYTES : 2 * u->capacity;
  uint8_t *moved = realloc(u->bytes, capacity);
  CKPT_TRY_ALLOC(moved, err);
  u->bytes = moved;
  u->capacity = capacity;
  return CKPT_OK;
}

/* Goes to the end of the stream, of max_bytes, or to where it breaks. */
static ckpt_status unpack(unpacking *u, size_t max_bytes, bool *is_broken, ckpt_error *err) {
  *is_broken = false;
  while (!u->is_done && !*is_broken && u->n < max_bytes) {
    if (u->n == u->capacity) CKPT_TRY(grow(u, err));
    if (u->used == u->n_input && u->at < u->place->n_bytes) CKPT_TRY(more_input(u, err));
    *is_broken = !step(u);
  }
  return CKPT_OK;
}

static ckpt_status begin(unpacking *u, const ckpt_place *place, bool is_zstd, int window_bits, ckpt_error *err) {
  *u = (unpacking){.place = place, .is_zstd = is_zstd, .input = malloc(INPUT_BYTES)};
  CKPT_TRY_ALLOC(u->input, err);
  if (is_zstd) {
    u->zstd = ZSTD_createDStream();
    CKPT_TRY_ALLOC(u->zstd, err);
    return CKPT_OK;
  }
  if (inflateInit2(&u->deflate, window_bits) != Z_OK) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  return CKPT_OK;
}

static void end(unpacking *u) {
  if (!u->is_zstd) inflateEnd(&u->deflate);
  ZSTD_freeDStream(u->zstd);
  free(u->input);
  free(u->bytes);
}

/* Looks at what came out, as a place of a source of its own. */
static ckpt_status look_at(ckpt_scanner *s, const unpacking *u, const char *record, ckpt_error *err) {
  ckpt_place place = {.n_bytes = u->n, .record = record, .depth = u->place->depth + 1, .is_item = u->place->is_item};
  CKPT_TRY(ckpt_source_memory(&place.source, u->bytes, u->n, s->path, err));
  ckpt_status status = ckpt_scan_look(s, &place, err);
  ckpt_source_free(place.source);
  return status;
}

/* Whether bytes may hold a pickle further on: all but plain numbers. */
static bool is_of_interest(const uint8_t *head, size_t n_head) {
  bool is_known;
  return ckpt_scan_compressor(head, n_head, &is_known) != NULL || (n_head >= 2 && memcmp(head, "PK", 2) == 0) ||
         (n_head >= 2 && head[0] == 0x80 && head[1] <= 5) || (n_head >= 263 && memcmp(head + 257, "ustar", 5) == 0);
}

/* What has been unpacked, whole or not. */
static ckpt_status take(ckpt_scanner *s, const unpacking *u, const char *record, bool is_broken, const char *what,
                        ckpt_error *err) {
  bool may_go_on = true, is_whole = u->is_done;
  CKPT_TRY(ckpt_scan_work(s, u->place, u->n, &may_go_on, err));
  if (!may_go_on || u->n == 0) return CKPT_OK;
  CKPT_TRY(look_at(s, u, record, err));
  size_t n_head = u->n < HEAD_BYTES ? u->n : HEAD_BYTES;
  if (is_broken)
    return ckpt_scan_problem(s, u->place, err, "broken %s: looked into up to byte %zu of what it holds", what, u->n);
  if (is_whole || !is_of_interest(u->bytes, n_head)) return CKPT_OK;
  return ckpt_scan_problem(s, u->place, err,
                           "not looked into any further: more than %llu bytes when unpacked (%s; unpack it first)",
                           (ull)CKPT_SCAN_UNPACKED_BYTES, what);
}

ckpt_status ckpt_scan_packed(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err) {
  bool is_known = true, is_broken = false, may_go_on = true;
  ckpt_place rest = *place;
  while (rest.n_bytes != 0 && !is_broken && may_go_on) {
    uint8_t head[HEAD_BYTES];
    size_t n_head = rest.n_bytes < sizeof head ? (size_t)rest.n_bytes : sizeof head;
    CKPT_TRY(ckpt_source_read(rest.source, rest.file, rest.offset, head, n_head, err));
    const char *what = ckpt_scan_compressor(head, n_head, &is_known);
    if (what == NULL || !is_known)
      return ckpt_scan_problem(s, place, err, "not looked into: %s (%llu bytes at %llu)",
                               what == NULL ? "bytes behind what is compressed" : what, (ull)rest.n_bytes,
                               (ull)(rest.offset - place->offset));
    char *record = ckpt_scan_name(place, what);
    CKPT_TRY_ALLOC(record, err);
    unpacking u;
    ckpt_status status = begin(&u, &rest, strcmp(what, "zstd") == 0, 15 + 32, err);
    if (status == CKPT_OK) status = unpack(&u, CKPT_SCAN_UNPACKED_BYTES, &is_broken, err);
    if (status == CKPT_OK) status = take(s, &u, record, is_broken, what, err);
    uint64_t n_used = u.at - (u.n_input - u.used);
    bool is_whole = u.is_done;
    end(&u);
    free(record);
    CKPT_TRY(status);
    CKPT_TRY(ckpt_scan_work(s, place, n_used, &may_go_on, err));
    if (!is_whole) break;
    rest.offset += n_used;
    rest.n_bytes -= n_used;
    rest.is_item = true;
  }
  return CKPT_OK;
}

ckpt_status ckpt_scan_deflated(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, uint32_t crc,
                               ckpt_error *err) {
  unpacking u;
  bool is_broken = false;
  uint64_t n_before = s->scan->n_pickles;
  ckpt_status status = begin(&u, place, false, -15, err);
  if (status == CKPT_OK) status = unpack(&u, HEAD_BYTES, &is_broken, err);
  if (status == CKPT_OK && !is_broken && !u.is_done) status = unpack(&u, CKPT_SCAN_UNPACKED_BYTES, &is_broken, err);
  if (status == CKPT_OK) status = take(s, &u, place->record, is_broken, "deflate", err);
  bool has_pickles = status == CKPT_OK && s->scan->n_pickles != n_before && u.is_done;
  uint32_t actual = (uint32_t)crc32_z(0, u.bytes, u.n);
  if (has_pickles && n_bytes != UINT64_MAX && ((crc != 0 && actual != crc) || n_bytes != u.n))
    status = ckpt_scan_problem(s, place, err,
                               "its CRC-32 is %08x, the archive says %08x (and %llu bytes, of %zu): readers differ",
                               actual, crc, (ull)n_bytes, u.n);
  end(&u);
  return status;
}
