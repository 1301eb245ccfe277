/* decode.c - decoder chains as one pull interface: see decode.h. */
#include "libckpt/extents/decode.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/index/tensor.h"

/* INFLATE_BYTES: what zlib takes for a window of 32 KiB, its state, and a little. */
enum { INPUT_BYTES = 64 << 10, SKIP_BYTES = 32 << 10, INFLATE_BYTES = 48 << 10 };

typedef unsigned long long ull;

/* A compressed range of a file: an extent's, or a record's within it. */
typedef struct stream {
  const ckpt_extent *extent; /* whose it is: the key */
  uint32_t file;
  uint64_t offset, n_stored;
  ckpt_decoder decoder;
} stream;

struct ckpt_cursor {
  ckpt_cursor *next;
  ckpt_source *source;
  stream stream;
  uint64_t at;      /* decoded bytes produced so far */
  uint64_t n_taken; /* stored bytes read so far */
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

/* Records found last, each at the place that its extent's address gives. */
enum { N_FOUND = 128 };
struct ckpt_found_record {
  const ckpt_extent *extent;
  ckpt_torch_record record;
};

static ckpt_decoder sequential_part(const ckpt_extent *extent) {
  for (int i = 0; i < 2; i++)
    if (extent->chain[i] >= CKPT_DECODE_INFLATE) return extent->chain[i];
  return CKPT_DECODE_RAW;
}

static bool has_record(const ckpt_extent *extent) {
  return extent->chain[0] == CKPT_DECODE_TORCH_RECORD || extent->chain[1] == CKPT_DECODE_TORCH_RECORD;
}

/* Why a chain cannot be read, or NULL: one sequential decoder at most, integers of at most 8 bytes behind varint, a
 * torch.save archive as stored or compressed as a whole. */
static const char *chain_defect(const ckpt_extent *extent, uint32_t unit_bytes) {
  int n_sequential = 0;
  for (int i = 0; i < 2; i++) {
    if (extent->chain[i] == CKPT_DECODE_VARINT && unit_bytes > 8) return "varints of more than 8 bytes";
    n_sequential += extent->chain[i] >= CKPT_DECODE_INFLATE;
  }
  if (has_record(extent) && (extent->chain[0] == CKPT_DECODE_TORCH_RECORD
                                 ? extent->chain[1] != CKPT_DECODE_RAW
                                 : extent->chain[0] != CKPT_DECODE_INFLATE && extent->chain[0] != CKPT_DECODE_ZSTD))
    return "a torch record among decoders that it does not go with";
  return n_sequential > 1 ? "one compression inside another" : NULL;
}

bool ckpt_extent_is_sequential(const ckpt_extent *extent) { return sequential_part(extent) != CKPT_DECODE_RAW; }

/* ---- cursors ----------------------------------------------------------------------------------------------------- */

static void cursor_free(ckpt_cursor *cursor) {
  if (cursor->stream.decoder == CKPT_DECODE_INFLATE) inflateEnd(&cursor->inflate);
  if (cursor->stream.decoder == CKPT_DECODE_ZSTD) ZSTD_freeDStream(cursor->zstd);
  free(cursor);
}

void ckpt_reader_reset(ckpt_reader *reader) {
  for (ckpt_cursor *cursor; (cursor = reader->cursors) != NULL;) {
    reader->cursors = cursor->next;
    cursor_free(cursor);
  }
  free(reader->records);
  reader->records = NULL;
}

static uint64_t cursor_bytes(const ckpt_cursor *cursor) {
  return sizeof *cursor + (cursor->stream.decoder == CKPT_DECODE_ZSTD      ? ZSTD_sizeof_DStream(cursor->zstd)
                           : cursor->stream.decoder == CKPT_DECODE_INFLATE ? INFLATE_BYTES
                                                                           : 0);
}

/* What a cursor will hold that has taken its first input: the window that its zstd frame announces (RFC 8878 3.1.1),
 * what is decoded into it, and one block of input. */
static uint64_t announced_bytes(const ckpt_cursor *cursor) {
  enum { BLOCKS_BYTES = 2 * (128 << 10) + 4096, FRAME_BYTES = 14 };
  if (cursor->stream.decoder != CKPT_DECODE_ZSTD) return 0;
  uint64_t n_window = UINT64_C(1) << CKPT_ZSTD_WINDOW_LOG;
  const uint8_t *head = cursor->input;
  static const uint8_t magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
  if (cursor->n_input < FRAME_BYTES || memcmp(head, magic, sizeof magic) != 0) return n_window + BLOCKS_BYTES;
  bool is_one_segment = head[4] >> 5 & 1;
  uint64_t n_content = ZSTD_getFrameContentSize(head, cursor->n_input);
  uint64_t base = UINT64_C(1) << (10 + (head[5] >> 3)),
           n = is_one_segment ? n_content : base + base / 8 * (head[5] & 7);
  return (n < n_window ? n : n_window) + BLOCKS_BYTES;
}

/* Drops all cursors but the first and those that fit with it: the last used ones. n_more: what the first will take. */
static void trim(ckpt_reader *reader, uint64_t n_more) {
  uint64_t n_bytes = cursor_bytes(reader->cursors) + n_more;
  ckpt_cursor **link = &reader->cursors->next;
  for (; *link != NULL && n_bytes + cursor_bytes(*link) <= reader->max_bytes; link = &(*link)->next)
    n_bytes += cursor_bytes(*link);
  for (ckpt_cursor *cursor; (cursor = *link) != NULL;) {
    *link = cursor->next;
    cursor_free(cursor);
  }
}

static ckpt_status take_input(ckpt_cursor *cursor, size_t n_kept, ckpt_error *err) {
  uint64_t n_left = cursor->stream.n_stored - cursor->n_taken;
  size_t n_more = n_left < INPUT_BYTES - n_kept ? (size_t)n_left : INPUT_BYTES - n_kept;
  cursor->n_input = n_kept;
  cursor->n_used = 0;
  CKPT_TRY(ckpt_source_read(cursor->source, cursor->stream.file, cursor->stream.offset + cursor->n_taken,
                            cursor->input + n_kept, n_more, err));
  cursor->n_taken += n_more;
  cursor->n_input = n_kept + n_more;
  return CKPT_OK;
}

static ckpt_status cursor_start(ckpt_reader *reader, const stream *of, ckpt_error *err) {
  ckpt_cursor *cursor = calloc(1, sizeof *cursor);
  CKPT_TRY_ALLOC(cursor, err);
  cursor->source = reader->source;
  cursor->stream = *of;
  bool started = true;
  if (of->decoder == CKPT_DECODE_INFLATE) {
    started = inflateInit2(&cursor->inflate, -MAX_WBITS) == Z_OK;
  } else if (of->decoder == CKPT_DECODE_ZSTD) {
    cursor->zstd = ZSTD_createDStream();
    started = cursor->zstd != NULL &&
              !ZSTD_isError(ZSTD_DCtx_setParameter(cursor->zstd, ZSTD_d_windowLogMax, CKPT_ZSTD_WINDOW_LOG));
    if (!started) ZSTD_freeDStream(cursor->zstd);
  }
  if (!started) {
    free(cursor);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  cursor->next = reader->cursors;
  reader->cursors = cursor;
  ckpt_status status = take_input(cursor, 0, err);
  trim(reader, announced_bytes(cursor));
  return status;
}

/* Makes the stream's cursor the first one, not past `at`. */
static ckpt_status cursor_at(ckpt_reader *reader, const stream *of, uint64_t at, ckpt_error *err) {
  for (ckpt_cursor **link = &reader->cursors; *link != NULL; link = &(*link)->next) {
    ckpt_cursor *cursor = *link;
    if (cursor->stream.extent != of->extent) continue;
    *link = cursor->next;
    if (cursor->at > at) {
      cursor_free(cursor);
      break;
    }
    cursor->next = reader->cursors;
    reader->cursors = cursor;
    trim(reader, 0);
    return CKPT_OK;
  }
  return cursor_start(reader, of, err);
}

/* Makes input available; false at the end of the stored range. */
static ckpt_status refill(ckpt_cursor *cursor, bool *more, ckpt_error *err) {
  if (cursor->n_used == cursor->n_input && cursor->n_taken < cursor->stream.n_stored)
    CKPT_TRY(take_input(cursor, 0, err));
  *more = cursor->n_used < cursor->n_input;
  return CKPT_OK;
}

static const char *step_inflate(ckpt_cursor *cursor, uint8_t *dst, size_t n_bytes, size_t *n_made) {
  z_stream *z = &cursor->inflate;
  z->next_in = cursor->input + cursor->n_used;
  z->avail_in = (uInt)(cursor->n_input - cursor->n_used);
  z->next_out = dst;
  z->avail_out = n_bytes > UINT32_MAX ? UINT32_MAX : (uInt)n_bytes;
  uInt room = z->avail_out;
  int result = inflate(z, Z_NO_FLUSH);
  cursor->n_used = cursor->n_input - z->avail_in;
  *n_made = room - z->avail_out;
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
    if (cursor->n_taken == cursor->stream.n_stored) return "a varint is cut off";
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
static ckpt_status refill_varint(ckpt_cursor *cursor, ckpt_error *err) {
  size_t n_tail = cursor->n_input - cursor->n_used;
  memmove(cursor->input, cursor->input + cursor->n_used, n_tail);
  return take_input(cursor, n_tail, err);
}

static ckpt_status pull(ckpt_cursor *cursor, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes, ckpt_error *err) {
  ckpt_decoder decoder = cursor->stream.decoder;
  while (n_bytes != 0) {
    bool more = true;
    if (decoder != CKPT_DECODE_VARINT) {
      CKPT_TRY(refill(cursor, &more, err));
    } else if (cursor->n_used == cursor->n_input || cursor->n_input - cursor->n_used < 10) {
      CKPT_TRY(refill_varint(cursor, err));
    }
    size_t n_made = 0;
    const char *defect = decoder == CKPT_DECODE_INFLATE ? step_inflate(cursor, dst, n_bytes, &n_made)
                         : decoder == CKPT_DECODE_ZSTD  ? step_zstd(cursor, dst, n_bytes, &n_made)
                                                        : step_varint(cursor, unit_bytes, dst, n_bytes, &n_made);
    bool stuck = n_made == 0 && (!more || (decoder == CKPT_DECODE_VARINT && cursor->n_used == cursor->n_input));
    if (defect == NULL && stuck) defect = "the compressed stream ends early";
    if (defect != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(cursor->source, cursor->stream.file), NULL,
                       "%s (after %llu decoded byte%s)", defect, (ull)cursor->at, ckpt_plural(cursor->at));
    dst += n_made, n_bytes -= n_made, cursor->at += n_made;
  }
  return CKPT_OK;
}

static ckpt_status read_sequential(ckpt_reader *reader, const stream *of, uint32_t unit_bytes, uint64_t at, void *dst,
                                   size_t n_bytes, ckpt_error *err) {
  CKPT_TRY(cursor_at(reader, of, at, err));
  ckpt_cursor *cursor = reader->cursors;
  uint8_t skipped[SKIP_BYTES];
  while (cursor->at < at) {
    uint64_t n_skip = at - cursor->at;
    CKPT_TRY(pull(cursor, unit_bytes, skipped, n_skip < SKIP_BYTES ? (size_t)n_skip : SKIP_BYTES, err));
  }
  return pull(cursor, unit_bytes, dst, n_bytes, err);
}

/* ---- records of torch.save archives ------------------------------------------------------------------------------ */

/* Finds the record of a compressed archive, and how its tensor lies in it. The cursor then stands at its payload. */
static ckpt_status scan_record(ckpt_reader *reader, const stream *of, ckpt_torch_record *out, ckpt_torch_layout *layout,
                               ckpt_error *err) {
  const char *path = ckpt_source_path(reader->source, of->file);
  uint8_t *head = malloc(CKPT_TORCH_HEAD_BYTES);
  CKPT_TRY_ALLOC(head, err);
  ckpt_status status;
  CKPT_TRY_GOTO(cursor_at(reader, of, 0, err));
  for (size_t n = 0, n_needed = 1; n_needed != 0;) {
    if (n_needed > CKPT_TORCH_HEAD_BYTES) {
      status =
          ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                    "no tensor record in the first %u bytes of a compressed torch.save archive", CKPT_TORCH_HEAD_BYTES);
      goto done;
    }
    CKPT_TRY_GOTO(pull(reader->cursors, 1, head + n, n_needed - n, err));
    n = n_needed;
    CKPT_TRY_GOTO(ckpt_torch_record_scan(out, layout, &n_needed, head, n, path, err));
  }
done:
  free(head);
  return status;
}

/* That an archive holds the tensor that is expected. Of one axis its length says it all. An extent with strides was
 * given those that the archive says. */
static ckpt_status check_layout(const ckpt_reader *reader, const ckpt_torch_layout *layout, const char *path,
                                ckpt_error *err) {
  if (reader->is_strided) return CKPT_OK;
  if (reader->counts != NULL && layout->rank > 1 &&
      (layout->rank != reader->rank ||
       memcmp(layout->sizes, reader->counts, layout->rank * sizeof *layout->sizes) != 0)) {
    char held[CKPT_SHAPE_TEXT], said[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its torch.save archive holds the shape %s, the metadata says %s",
                     ckpt_shape_text(held, layout->rank, layout->sizes),
                     ckpt_shape_text(said, reader->rank, reader->counts));
  }
  return ckpt_torch_check_row_major(layout, path, err);
}

/* Looks the extent's record up, once while it stays in its place. */
static ckpt_status find_record(ckpt_reader *reader, const ckpt_extent *extent, const stream *of, ckpt_torch_record *out,
                               ckpt_error *err) {
  if (reader->records == NULL) reader->records = calloc(N_FOUND, sizeof *reader->records);
  CKPT_TRY_ALLOC(reader->records, err);
  ckpt_found_record *found = &reader->records[(uintptr_t)extent / sizeof *extent % N_FOUND];
  if (found->extent != extent) {
    ckpt_torch_layout layout;
    found->extent = NULL;
    CKPT_TRY(of->decoder != CKPT_DECODE_RAW
                 ? scan_record(reader, of, &found->record, &layout, err)
                 : ckpt_torch_record_layout(&found->record, &layout, reader->source, extent->file, extent->offset,
                                            extent->n_stored, err));
    CKPT_TRY(check_layout(reader, &layout, ckpt_source_path(reader->source, of->file), err));
    found->extent = extent;
  }
  *out = found->record;
  return CKPT_OK;
}

static ckpt_status read_record(ckpt_reader *reader, const ckpt_extent *extent, const ckpt_torch_record *record,
                               stream of, uint64_t at, void *dst, size_t n_bytes, ckpt_error *err) {
  uint64_t end = 0, n_expected = reader->n_expected;
  bool is_known = record->n_bytes != UINT64_MAX;
  bool is_right = ckpt_add_u64(at, n_bytes, &end) && end <= record->n_bytes;
  if (is_known && n_expected != 0) is_right = is_right && n_expected == record->n_bytes;
  if (!is_right)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(reader->source, extent->file), NULL,
                     "its torch.save record has %llu byte%s, %llu are expected", (ull)record->n_bytes,
                     ckpt_plural(record->n_bytes), (ull)(n_expected != 0 ? n_expected : end));
  if (record->dtype != CKPT_DTYPE_NONE && reader->dtype != CKPT_DTYPE_NONE && record->dtype != reader->dtype)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(reader->source, extent->file), NULL,
                     "its torch.save archive holds %s, the metadata says %s", ckpt_dtype_name(record->dtype),
                     ckpt_dtype_name(reader->dtype));
  if (of.decoder == CKPT_DECODE_RAW && !record->is_deflated)
    return ckpt_source_read(reader->source, extent->file, record->offset + at, dst, n_bytes, err);
  if (of.decoder == CKPT_DECODE_RAW) {
    of = (stream){extent, extent->file, record->offset, record->n_stored, CKPT_DECODE_INFLATE};
    return read_sequential(reader, &of, 1, at, dst, n_bytes, err);
  }
  CKPT_TRY(read_sequential(reader, &of, 1, record->offset + at, dst, n_bytes, err));
  if (is_known || end != n_expected) return CKPT_OK;
  uint8_t tail[CKPT_TORCH_TAIL_BYTES];
  CKPT_TRY(pull(reader->cursors, 1, tail, sizeof tail, err));
  return ckpt_torch_record_ends(tail, n_expected)
             ? CKPT_OK
             : ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(reader->source, extent->file), NULL,
                         "its torch.save record does not end after the %llu byte%s that are expected", (ull)n_expected,
                         ckpt_plural(n_expected));
}

static void swap_units(uint8_t *bytes, size_t n_bytes, uint32_t unit_bytes) {
  for (size_t i = 0; i + unit_bytes <= n_bytes; i += unit_bytes)
    for (uint32_t low = 0, high = unit_bytes - 1; low < high; low++, high--) {
      uint8_t byte = bytes[i + low];
      bytes[i + low] = bytes[i + high];
      bytes[i + high] = byte;
    }
}

/* Turns the signs of numbers from the `at`-th byte of a record on: of all, or of imaginary parts, which are every
 * second. A sign is the highest bit. */
static void turn_signs(uint8_t *bytes, size_t n_bytes, uint32_t unit_bytes, uint64_t at, const ckpt_torch_record *of) {
  const uint8_t signs[2] = {of->is_negative ? 0x80 : 0, of->is_negative != of->is_conjugate ? 0x80 : 0};
  uint64_t number = at / unit_bytes;
  for (size_t i = unit_bytes; i <= n_bytes; i += unit_bytes, number++) bytes[i - 1] ^= signs[number % 2];
}

ckpt_status ckpt_reader_read(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                             void *dst, size_t n_bytes, ckpt_error *err) {
  if (extent->file == CKPT_FILE_LITERAL) {
    memset(dst, 0, n_bytes);
    for (size_t i = 0; i < n_bytes && extent->offset != 0; i++)
      ((uint8_t *)dst)[i] = (uint8_t)(extent->offset >> 8 * ((at + i) % 8));
    return CKPT_OK;
  }
  const char *defect = chain_defect(extent, unit_bytes);
  if (defect != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_source_path(reader->source, extent->file), NULL, "%s", defect);
  stream of = {extent, extent->file, extent->offset, extent->n_stored, sequential_part(extent)};
  bool swaps = extent->chain[0] == CKPT_DECODE_SWAPPED || extent->chain[1] == CKPT_DECODE_SWAPPED;
  ckpt_torch_record record = {0};
  if (has_record(extent)) {
    CKPT_TRY(find_record(reader, extent, &of, &record, err));
    CKPT_TRY(read_record(reader, extent, &record, of, at, dst, n_bytes, err));
    swaps = record.is_big_endian;
  } else if (of.decoder != CKPT_DECODE_RAW) {
    CKPT_TRY(read_sequential(reader, &of, unit_bytes, at, dst, n_bytes, err));
  } else {
    CKPT_TRY(ckpt_source_read(reader->source, extent->file, extent->offset + at, dst, n_bytes, err));
  }
  if (swaps) swap_units(dst, n_bytes, unit_bytes);
  if (record.is_negative || record.is_conjugate) turn_signs(dst, n_bytes, unit_bytes, at, &record);
  return CKPT_OK;
}

ckpt_status ckpt_decode_layout(ckpt_torch_layout *out, ckpt_source *source, const ckpt_extent *extent,
                               ckpt_error *err) {
  const stream of = {extent, extent->file, extent->offset, extent->n_stored, sequential_part(extent)};
  ckpt_reader reader = {.source = source};
  ckpt_torch_record record;
  ckpt_status status = scan_record(&reader, &of, &record, out, err);
  ckpt_reader_reset(&reader);
  return status;
}

ckpt_status ckpt_decode_zstd(uint8_t **out, size_t *n_bytes, ckpt_source *source, const ckpt_extent *extent,
                             size_t max_bytes, ckpt_error *err) {
  enum { FIRST_BYTES = 4096 };
  const stream of = {extent, extent->file, extent->offset, extent->n_stored, CKPT_DECODE_ZSTD};
  const char *path = ckpt_source_path(source, extent->file);
  ckpt_reader reader = {.source = source};
  uint8_t *bytes = NULL;
  size_t n = 0, room = 0, n_made = 1;
  bool more = true;
  *out = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(cursor_start(&reader, &of, err));
  while (more || n_made != 0) {
    if (n == room) {
      if (n >= max_bytes) {
        status =
            ckpt_fail(err, CKPT_ELIMIT, path, NULL, "decodes to more than %zu bytes, which is the limit", max_bytes);
        goto done;
      }
      room = room == 0 ? FIRST_BYTES : 2 * room;
      uint8_t *moved = realloc(bytes, room);
      if (moved == NULL) {
        status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
        goto done;
      }
      bytes = moved;
    }
    CKPT_TRY_GOTO(refill(reader.cursors, &more, err));
    const char *defect = step_zstd(reader.cursors, bytes + n, room - n, &n_made);
    if (defect != NULL) {
      status = ckpt_fail(err, CKPT_EFORMAT, path, NULL, "%s (after %zu decoded byte%s)", defect, n, ckpt_plural(n));
      goto done;
    }
    n += n_made;
  }
  *out = bytes;
  *n_bytes = n;
  bytes = NULL;
done:
  free(bytes);
  ckpt_reader_reset(&reader);
  return status;
}
