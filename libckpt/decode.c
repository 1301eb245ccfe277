/* decode.c - decoder chains as one pull interface: see decode.h. zstd windows are limited to 8 MiB (level 19's). */
#include "decode.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "error.h"

enum { INPUT_BYTES = 64 << 10, SKIP_BYTES = 32 << 10, ZSTD_WINDOW_LOG = 23 };

struct ckpt_cursor {
  const ckpt_extent *extent;
  uint64_t at;      /* decoded bytes produced so far */
  uint64_t n_taken; /* stored bytes read so far */
  ckpt_decoder decoder;
  union {
    z_stream inflate;
    ZSTD_DStream *zstd;
    struct {
      uint8_t bytes[8]; /* the value being handed out, little-endian */
      uint32_t n_left;
    } varint;
  };
  size_t n_input, n_used; /* of input */
  uint8_t input[INPUT_BYTES];
};

static ckpt_decoder sequential_part(const ckpt_extent *extent) {
  for (int i = 0; i < 2; i++)
    if (extent->chain[i] >= CKPT_DECODE_INFLATE) return extent->chain[i];
  return CKPT_DECODE_RAW;
}

/* Why a chain cannot be read, or NULL: one sequential decoder at most, integers of at most 8 bytes behind varint. */
static const char *chain_defect(const ckpt_extent *extent, uint32_t unit_bytes) {
  int n_sequential = 0;
  for (int i = 0; i < 2; i++) {
    if (extent->chain[i] == CKPT_DECODE_TORCH_RECORD) return "torch records are not read by this version";
    if (extent->chain[i] == CKPT_DECODE_VARINT && unit_bytes > 8) return "varints of more than 8 bytes";
    n_sequential += extent->chain[i] >= CKPT_DECODE_INFLATE;
  }
  return n_sequential > 1 ? "one compression inside another" : NULL;
}

bool ckpt_extent_is_sequential(const ckpt_extent *extent) { return sequential_part(extent) != CKPT_DECODE_RAW; }

void ckpt_reader_reset(ckpt_reader *reader) {
  ckpt_cursor *cursor = reader->cursor;
  if (cursor == NULL) return;
  if (cursor->decoder == CKPT_DECODE_INFLATE) inflateEnd(&cursor->inflate);
  if (cursor->decoder == CKPT_DECODE_ZSTD) ZSTD_freeDStream(cursor->zstd);
  free(cursor);
  reader->cursor = NULL;
}

static ckpt_status cursor_start(ckpt_reader *reader, const ckpt_extent *extent, ckpt_error *err) {
  ckpt_reader_reset(reader);
  ckpt_cursor *cursor = calloc(1, sizeof *cursor);
  CKPT_TRY_ALLOC(cursor, err);
  cursor->extent = extent;
  cursor->decoder = sequential_part(extent);
  bool started = true;
  if (cursor->decoder == CKPT_DECODE_INFLATE) {
    started = inflateInit2(&cursor->inflate, -MAX_WBITS) == Z_OK;
  } else if (cursor->decoder == CKPT_DECODE_ZSTD) {
    cursor->zstd = ZSTD_createDStream();
    started = cursor->zstd != NULL &&
              !ZSTD_isError(ZSTD_DCtx_setParameter(cursor->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG));
    if (!started) ZSTD_freeDStream(cursor->zstd);
  }
  if (!started) {
    free(cursor);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  reader->cursor = cursor;
  return CKPT_OK;
}

/* Makes input available; false at the end of the stored range. */
static ckpt_status refill(ckpt_reader *reader, ckpt_cursor *cursor, bool *more, ckpt_error *err) {
  *more = true;
  if (cursor->n_used < cursor->n_input) return CKPT_OK;
  uint64_t n_left = cursor->extent->n_stored - cursor->n_taken;
  cursor->n_input = n_left < INPUT_BYTES ? (size_t)n_left : INPUT_BYTES;
  cursor->n_used = 0;
  *more = cursor->n_input != 0;
  if (!*more) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(reader->source, cursor->extent->file, cursor->extent->offset + cursor->n_taken,
                            cursor->input, cursor->n_input, err));
  cursor->n_taken += cursor->n_input;
  return CKPT_OK;
}

static const char *step_inflate(ckpt_cursor *cursor, uint8_t *dst, size_t n_bytes, size_t *n_made) {
  z_stream *stream = &cursor->inflate;
  stream->next_in = cursor->input + cursor->n_used;
  stream->avail_in = (uInt)(cursor->n_input - cursor->n_used);
  stream->next_out = dst;
  stream->avail_out = n_bytes > UINT32_MAX ? UINT32_MAX : (uInt)n_bytes;
  uInt room = stream->avail_out;
  int result = inflate(stream, Z_NO_FLUSH);
  cursor->n_used = cursor->n_input - stream->avail_in;
  *n_made = room - stream->avail_out;
  if (result == Z_OK || result == Z_BUF_ERROR) return NULL;
  return result == Z_STREAM_END ? (*n_made < n_bytes ? "the deflate stream ends early" : NULL)
                                : "damaged deflate stream";
}

static const char *step_zstd(ckpt_cursor *cursor, uint8_t *dst, size_t n_bytes, size_t *n_made) {
  ZSTD_inBuffer in = {cursor->input, cursor->n_input, cursor->n_used};
  ZSTD_outBuffer out = {dst, n_bytes, 0};
  size_t result = ZSTD_decompressStream(cursor->zstd, &out, &in);
  cursor->n_used = in.pos;
  *n_made = out.pos;
  return ZSTD_isError(result) ? ZSTD_getErrorName(result) : NULL;
}

static const char *step_varint(ckpt_cursor *cursor, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes, size_t *n_made) {
  /* A value never spans two refills here: cursor->at counts bytes, the unfinished value lives in varint.bytes. */
  size_t made = 0;
  while (made < n_bytes && cursor->varint.n_left != 0)
    dst[made++] = cursor->varint.bytes[unit_bytes - cursor->varint.n_left--];
  while (made < n_bytes && cursor->n_used < cursor->n_input) {
    uint64_t value = 0;
    unsigned shift = 0;
    size_t used = cursor->n_used;
    for (;; shift += 7) {
      if (used == cursor->n_input || shift > 63) break;
      uint8_t byte = cursor->input[used++];
      value |= (uint64_t)(byte & 0x7F) << shift;
      if (!(byte & 0x80)) goto complete;
    }
    if (shift > 63) return "a varint of more than ten bytes";
    if (cursor->n_taken == cursor->extent->n_stored) return "a varint is cut off";
    break;
  complete:
    cursor->n_used = used;
    for (uint32_t i = 0; i < unit_bytes; i++) cursor->varint.bytes[i] = (uint8_t)(value >> 8 * i);
    cursor->varint.n_left = unit_bytes;
    while (made < n_bytes && cursor->varint.n_left != 0)
      dst[made++] = cursor->varint.bytes[unit_bytes - cursor->varint.n_left--];
  }
  *n_made = made;
  return NULL;
}

/* Keeps the tail of a cut varint when the input is refilled. */
static ckpt_status refill_varint(ckpt_reader *reader, ckpt_cursor *cursor, ckpt_error *err) {
  size_t n_tail = cursor->n_input - cursor->n_used;
  memmove(cursor->input, cursor->input + cursor->n_used, n_tail);
  uint64_t n_left = cursor->extent->n_stored - cursor->n_taken;
  size_t n_more = n_left < INPUT_BYTES - n_tail ? (size_t)n_left : INPUT_BYTES - n_tail;
  CKPT_TRY(ckpt_source_read(reader->source, cursor->extent->file, cursor->extent->offset + cursor->n_taken,
                            cursor->input + n_tail, n_more, err));
  cursor->n_taken += n_more;
  cursor->n_input = n_tail + n_more;
  cursor->n_used = 0;
  return CKPT_OK;
}

static ckpt_status pull(ckpt_reader *reader, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes, ckpt_error *err) {
  ckpt_cursor *cursor = reader->cursor;
  while (n_bytes != 0) {
    bool more = true;
    if (cursor->decoder != CKPT_DECODE_VARINT) {
      CKPT_TRY(refill(reader, cursor, &more, err));
    } else if (cursor->n_used == cursor->n_input || cursor->n_input - cursor->n_used < 10) {
      CKPT_TRY(refill_varint(reader, cursor, err));
    }
    size_t n_made = 0;
    const char *defect = cursor->decoder == CKPT_DECODE_INFLATE ? step_inflate(cursor, dst, n_bytes, &n_made)
                         : cursor->decoder == CKPT_DECODE_ZSTD  ? step_zstd(cursor, dst, n_bytes, &n_made)
                                                               : step_varint(cursor, unit_bytes, dst, n_bytes, &n_made);
    bool stuck = n_made == 0 && (!more || (cursor->decoder == CKPT_DECODE_VARINT && cursor->n_used == cursor->n_input));
    if (defect == NULL && stuck) defect = "the compressed stream ends early";
    if (defect != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(reader->source, cursor->extent->file), NULL,
                       "%s (after %llu decoded bytes)", defect, (unsigned long long)cursor->at);
    dst += n_made, n_bytes -= n_made, cursor->at += n_made;
  }
  return CKPT_OK;
}

static ckpt_status read_sequential(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                                   void *dst, size_t n_bytes, ckpt_error *err) {
  if (reader->cursor == NULL || reader->cursor->extent != extent || reader->cursor->at > at)
    CKPT_TRY(cursor_start(reader, extent, err));
  uint8_t skipped[SKIP_BYTES];
  while (reader->cursor->at < at) {
    uint64_t n_skip = at - reader->cursor->at;
    CKPT_TRY(pull(reader, unit_bytes, skipped, n_skip < SKIP_BYTES ? (size_t)n_skip : SKIP_BYTES, err));
  }
  return pull(reader, unit_bytes, dst, n_bytes, err);
}

static void swap_units(uint8_t *bytes, size_t n_bytes, uint32_t unit_bytes) {
  for (size_t i = 0; i + unit_bytes <= n_bytes; i += unit_bytes)
    for (uint32_t low = 0, high = unit_bytes - 1; low < high; low++, high--) {
      uint8_t byte = bytes[i + low];
      bytes[i + low] = bytes[i + high];
      bytes[i + high] = byte;
    }
}

ckpt_status ckpt_reader_read(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                             void *dst, size_t n_bytes, ckpt_error *err) {
  if (extent->file == CKPT_FILE_ZERO) {
    memset(dst, 0, n_bytes);
    return CKPT_OK;
  }
  const char *defect = chain_defect(extent, unit_bytes);
  if (defect != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_source_path(reader->source, extent->file), NULL, "%s", defect);
  if (ckpt_extent_is_sequential(extent))
    CKPT_TRY(read_sequential(reader, extent, unit_bytes, at, dst, n_bytes, err));
  else
    CKPT_TRY(ckpt_source_read(reader->source, extent->file, extent->offset + at, dst, n_bytes, err));
  if (extent->chain[0] == CKPT_DECODE_SWAPPED || extent->chain[1] == CKPT_DECODE_SWAPPED)
    swap_units(dst, n_bytes, unit_bytes);
  return CKPT_OK;
}
