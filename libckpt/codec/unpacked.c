/* unpacked.c - see unpacked.h. */
#include "libckpt/codec/unpacked.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/extents/decode.h"

typedef unsigned long long ull;

enum {
  INPUT_BYTES = 64 << 10,
  FIRST_BYTES = 64 << 10,
  HEAD_BYTES = 8 << 20,
  KEPT_BYTES = 1 << 20,
  WINDOW_BYTES = 2 * KEPT_BYTES
};

/* A decoder under way, and the last bytes that it made: [base, base + n). */
typedef struct decoder {
  uint64_t at; /* of the next input */
  uint8_t *input;
  size_t n_input, used;
  uint8_t *bytes;
  size_t n, capacity;
  uint64_t base;
  bool is_open, is_done, is_broken, is_too_wide;
  z_stream deflate;
  ZSTD_DStream *zstd;
} decoder;

struct ckpt_unpacked {
  ckpt_packed packed;
  ckpt_unpacked_work *work;
  void *arg;
  uint8_t *head;
  size_t n_head;
  decoder first, again; /* again: for what is not held */
  uint32_t crc32;
  bool is_stopped;
};

/* ---- decoding --------------------------------------------------------------------------------------------------- */

static ckpt_status decoder_open(decoder *d, const ckpt_unpacked *u, ckpt_error *err) {
  *d = (decoder){.input = malloc(INPUT_BYTES)};
  CKPT_TRY_ALLOC(d->input, err);
  if (u->packed.packing == CKPT_PACKED_ZSTD) {
    d->zstd = ZSTD_createDStream();
    CKPT_TRY_ALLOC(d->zstd, err);
    (void)ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, CKPT_ZSTD_WINDOW_LOG);
  } else if (inflateInit2(&d->deflate, u->packed.packing == CKPT_PACKED_ZLIB ? 15 + 32 : -15) != Z_OK) {
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  d->is_open = true;
  return CKPT_OK;
}

/* Frees what makes more bytes; those that it made stay. */
static void decoder_end(decoder *d) {
  if (d->is_open && d->zstd == NULL) inflateEnd(&d->deflate);
  ZSTD_freeDStream(d->zstd);
  free(d->input);
  d->zstd = NULL;
  d->input = NULL;
  d->is_open = false;
}

static void decoder_close(decoder *d) {
  decoder_end(d);
  free(d->bytes);
  *d = (decoder){0};
}

static ckpt_status more_input(decoder *d, const ckpt_packed *packed, ckpt_error *err) {
  uint64_t n_left = packed->n_bytes - d->at;
  d->n_input = n_left < INPUT_BYTES ? (size_t)n_left : INPUT_BYTES;
  d->used = 0;
  CKPT_TRY(ckpt_source_read(packed->source, packed->file, packed->offset + d->at, d->input, d->n_input, err));
  d->at += d->n_input;
  return CKPT_OK;
}

/* One step; false where the stream is broken. */
static bool step(decoder *d) {
  size_t n_room = d->capacity - d->n, n_in = d->n_input - d->used;
  if (d->zstd != NULL) {
    ZSTD_inBuffer in = {d->input, d->n_input, d->used};
    ZSTD_outBuffer out = {d->bytes, d->capacity, d->n};
    size_t result = ZSTD_decompressStream(d->zstd, &out, &in);
    bool is_stuck = in.pos == d->used && out.pos == d->n && n_in == 0;
    d->used = in.pos;
    d->n = out.pos;
    d->is_done = result == 0;
    d->is_too_wide = ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge;
    return !ZSTD_isError(result) && (d->is_done || !is_stuck);
  }
  d->deflate.next_in = d->input + d->used;
  d->deflate.avail_in = (uInt)n_in;
  d->deflate.next_out = d->bytes + d->n;
  d->deflate.avail_out = n_room > UINT32_MAX ? UINT32_MAX : (uInt)n_room;
  int result = inflate(&d->deflate, Z_NO_FLUSH);
  d->used = d->n_input - d->deflate.avail_in;
  d->n = (size_t)(d->deflate.next_out - d->bytes);
  d->is_done = result == Z_STREAM_END;
  return result == Z_OK || result == Z_STREAM_END;
}

/* Makes bytes until the buffer, which has room, is full, or the stream ends or breaks. */
static ckpt_status fill(ckpt_unpacked *u, decoder *d, ckpt_error *err) {
  size_t before = d->n;
  while (!d->is_done && !d->is_broken && d->n < d->capacity) {
    if (d->used == d->n_input && d->at < u->packed.n_bytes) CKPT_TRY(more_input(d, &u->packed, err));
    d->is_broken = !step(d);
  }
  if (d == &u->first && d->zstd == NULL) u->crc32 = ckpt_crc32(u->crc32, d->bytes + before, d->n - before);
  bool may_go_on = true;
  if (u->work != NULL) CKPT_TRY(u->work(u->arg, d->n - before, &may_go_on, err));
  u->is_stopped = u->is_stopped || !may_go_on;
  return CKPT_OK;
}

static bool has_ended(const ckpt_unpacked *u, const decoder *d) { return d->is_done || d->is_broken || u->is_stopped; }

/* Goes on in a window whose newest bytes are kept. */
static ckpt_status roll(ckpt_unpacked *u, decoder *d, ckpt_error *err) {
  if (d->bytes == NULL) {
    d->bytes = malloc(WINDOW_BYTES);
    CKPT_TRY_ALLOC(d->bytes, err);
    d->capacity = WINDOW_BYTES;
  }
  size_t n_kept = d->n < KEPT_BYTES ? d->n : KEPT_BYTES;
  memmove(d->bytes, d->bytes + d->n - n_kept, n_kept);
  d->base += d->n - n_kept;
  d->n = n_kept;
  return fill(u, d, err);
}

/* ---- the first pass --------------------------------------------------------------------------------------------- */

static ckpt_status hold_head(ckpt_unpacked *u, ckpt_error *err) {
  decoder *d = &u->first;
  while (!has_ended(u, d) && d->n < HEAD_BYTES) {
    size_t capacity = d->capacity == 0 ? FIRST_BYTES : 2 * d->capacity;
    uint8_t *moved = realloc(d->bytes, capacity);
    CKPT_TRY_ALLOC(moved, err);
    d->bytes = moved;
    d->capacity = capacity;
    CKPT_TRY(fill(u, d, err));
  }
  u->head = d->bytes; /* from here on the decoder has a window */
  u->n_head = d->n;
  d->bytes = NULL;
  d->base = d->n;
  d->n = d->capacity = 0;
  return CKPT_OK;
}

ckpt_status ckpt_unpacked_new(ckpt_unpacked **out, const ckpt_packed *packed, ckpt_unpacked_work *work, void *arg,
                              ckpt_error *err) {
  ckpt_unpacked *u = calloc(1, sizeof *u);
  CKPT_TRY_ALLOC(u, err);
  *u = (ckpt_unpacked){.packed = *packed, .work = work, .arg = arg};
  ckpt_status status = decoder_open(&u->first, u, err);
  if (status == CKPT_OK) status = hold_head(u, err);
  if (status == CKPT_OK)
    *out = u;
  else
    ckpt_unpacked_free(u);
  return status;
}

ckpt_status ckpt_unpacked_go(ckpt_unpacked *u, uint64_t max_bytes, ckpt_error *err) {
  decoder *d = &u->first;
  while (!has_ended(u, d) && d->base + d->n < max_bytes) CKPT_TRY(roll(u, d, err));
  return CKPT_OK;
}

ckpt_unpacked_state ckpt_unpacked_at(const ckpt_unpacked *u) {
  const decoder *d = &u->first;
  return (ckpt_unpacked_state){.head = u->head,
                               .n_head = u->n_head,
                               .n_bytes = d->base + d->n,
                               .n_used = d->at - (d->n_input - d->used),
                               .crc32 = u->crc32,
                               .is_whole = d->is_done,
                               .is_broken = d->is_broken,
                               .is_too_wide = d->is_too_wide,
                               .is_stopped = u->is_stopped};
}

void ckpt_unpacked_free(ckpt_unpacked *u) {
  if (u == NULL) return;
  decoder_close(&u->first);
  decoder_close(&u->again);
  free(u->head);
  free(u);
}

/* ---- as a source ------------------------------------------------------------------------------------------------ */

/* Copies what a range has of [base, base + n), from its beginning; how much that is. */
static size_t take_held(uint64_t at, uint8_t *dst, size_t n_bytes, uint64_t base, const uint8_t *held, size_t n) {
  if (at < base || at - base >= n) return 0;
  size_t n_taken = n - (size_t)(at - base) < n_bytes ? n - (size_t)(at - base) : n_bytes;
  memcpy(dst, held + (at - base), n_taken);
  return n_taken;
}

/* Brings `again` to where it has the byte at `at`. */
static ckpt_status unpack_again(ckpt_unpacked *u, uint64_t at, ckpt_error *err) {
  decoder *d = &u->again;
  if (d->is_open && at < d->base) decoder_close(d);
  if (!d->is_open) CKPT_TRY(decoder_open(d, u, err));
  while (at >= d->base + d->n) {
    if (has_ended(u, d))
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "what is compressed cannot be unpacked again up to byte %llu",
                       (ull)at);
    CKPT_TRY(roll(u, d, err));
  }
  return CKPT_OK;
}

static ckpt_status read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  ckpt_unpacked *u = ctx;
  (void)file;
  for (uint8_t *to = dst; n_bytes != 0;) {
    size_t n = take_held(offset, to, n_bytes, 0, u->head, u->n_head);
    if (n == 0) n = take_held(offset, to, n_bytes, u->first.base, u->first.bytes, u->first.n);
    if (n == 0) {
      CKPT_TRY(unpack_again(u, offset, err));
      n = take_held(offset, to, n_bytes, u->again.base, u->again.bytes, u->again.n);
    }
    offset += n;
    to += n;
    n_bytes -= n;
  }
  return CKPT_OK;
}

ckpt_status ckpt_unpacked_source(ckpt_source **out, ckpt_unpacked *u, const char *name, ckpt_error *err) {
  static const ckpt_source_ops ops = {.read_at = read_at};
  uint32_t file;
  decoder_end(&u->first);
  CKPT_TRY(ckpt_source_custom(out, &ops, u, err));
  ckpt_status status = ckpt_source_declare(*out, name, u->first.base + u->first.n, &file, err);
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_source_free(*out);
  *out = NULL;
  return status;
}
