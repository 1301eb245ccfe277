/* decode.c - decoder chains as one pull interface: see decode.h. */
#include "libckpt/extents/decode.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/extents/record_checks.h"
#include "libckpt/index/tensor.h"

enum { INPUT_BYTES = 64 << 10, SKIP_BYTES = 32 << 10 };
/* What is read at once where its checksum is taken, so that it still is in a core's own cache. */
enum { CHECKED_BYTES = 512 << 10 };

typedef unsigned long long ull;

/* An encoded range of a file: an extent's, or a record's within it. */
typedef struct stream {
  const ckpt_extent *extent; /* whose it is: the key */
  uint32_t file;
  uint64_t offset, n_stored;
  const ckpt_stream_decoder *decoder; /* NULL: stored as it is */
} stream;

struct ckpt_cursor {
  ckpt_cursor *next;
  ckpt_source *source;
  stream stream;
  uint64_t at;            /* decoded bytes produced so far */
  uint64_t n_taken;       /* stored bytes read so far */
  void *state;            /* the decoder's */
  size_t n_input, n_used; /* of input */
  uint8_t input[INPUT_BYTES];
};

/* Records found last, each at the place that its extent's address gives. */
enum { N_FOUND = 128 };
struct ckpt_found_record {
  const ckpt_extent *extent;
  ckpt_record record;
};

/* The row that finds the extent's record in its archive; NULL: it is in none. */
static const ckpt_decoder_row *record_row(const ckpt_extent *extent) {
  for (int i = 0; i < 2; i++) {
    const ckpt_decoder_row *row = ckpt_decoders[extent->chain[i]];
    if (row != NULL && row->record != NULL) return row;
  }
  return NULL;
}

static const ckpt_stream_decoder *stream_of(const ckpt_extent *extent) {
  for (int i = 0; i < 2; i++) {
    const ckpt_decoder_row *row = ckpt_decoders[extent->chain[i]];
    if (row != NULL && row->stream != NULL) return row->stream;
  }
  return NULL;
}

/* That a chain can be read: one stream at most, elements that it can hold, an archive as stored or compressed as a
 * whole. */
static ckpt_status check_chain(const ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes,
                               ckpt_error *err) {
  const char *path = ckpt_source_path(reader->source, extent->file);
  const uint8_t *chain = extent->chain;
  int n_streams = 0;
  for (int i = 0; i < 2; i++) {
    const ckpt_decoder_row *row = ckpt_decoders[chain[i]];
    if (row == NULL || row->stream == NULL) continue;
    n_streams++;
    if (row->stream->max_unit_bytes != 0 && unit_bytes > row->stream->max_unit_bytes)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "%ss of more than %u bytes", row->name,
                       row->stream->max_unit_bytes);
  }
  const ckpt_decoder_row *archive = record_row(extent);
  const bool is_packed = chain[0] == CKPT_DECODE_INFLATE || chain[0] == CKPT_DECODE_ZSTD;
  if (archive != NULL && !is_packed && (archive != ckpt_decoders[chain[0]] || chain[1] != CKPT_DECODE_RAW))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "a %s archive among decoders that it does not go with",
                     archive->name);
  return n_streams <= 1 ? CKPT_OK : ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "one compression inside another");
}

bool ckpt_extent_is_sequential(const ckpt_extent *extent) { return stream_of(extent) != NULL; }

/* ---- cursors ----------------------------------------------------------------------------------------------------- */

static void cursor_free(ckpt_cursor *cursor) {
  cursor->stream.decoder->close(cursor->state);
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
  return sizeof *cursor + cursor->stream.decoder->held(cursor->state);
}

/* What a cursor that has taken its first input will hold beyond that. */
static uint64_t announced_bytes(const ckpt_cursor *cursor) {
  const ckpt_stream_decoder *decoder = cursor->stream.decoder;
  return decoder->announced == NULL ? 0 : decoder->announced(cursor->input, cursor->n_input);
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

/* Keeps the input that is not used yet, and reads what is stored behind it. */
static ckpt_status take_input(ckpt_cursor *cursor, ckpt_error *err) {
  uint64_t n_left = cursor->stream.n_stored - cursor->n_taken;
  size_t n_kept = cursor->n_input - cursor->n_used;
  size_t n_more = n_left < INPUT_BYTES - n_kept ? (size_t)n_left : INPUT_BYTES - n_kept;
  memmove(cursor->input, cursor->input + cursor->n_used, n_kept);
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
  ckpt_status status = of->decoder->open(&cursor->state, err);
  if (status != CKPT_OK) {
    free(cursor);
    return status;
  }
  cursor->next = reader->cursors;
  reader->cursors = cursor;
  status = take_input(cursor, err);
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

static ckpt_status fail_at(const ckpt_cursor *cursor, const char *defect, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(cursor->source, cursor->stream.file), NULL,
                   "%s (after %llu decoded byte%s)", defect, (ull)cursor->at, ckpt_plural(cursor->at));
}

/* One step of the decoder: *n_made plain bytes. *is_over: there was neither input nor anything left to make of it. */
static ckpt_status step(ckpt_cursor *cursor, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes, size_t *n_made,
                        bool *is_over, ckpt_error *err) {
  const ckpt_stream_decoder *decoder = cursor->stream.decoder;
  if (cursor->n_input - cursor->n_used < decoder->n_least && cursor->n_taken < cursor->stream.n_stored)
    CKPT_TRY(take_input(cursor, err));
  const bool has_input = cursor->n_used < cursor->n_input;
  *n_made = 0;
  ckpt_stream_input input = {.bytes = cursor->input,
                             .n = cursor->n_input,
                             .n_used = cursor->n_used,
                             .is_last = cursor->n_taken == cursor->stream.n_stored};
  const char *defect = decoder->step(cursor->state, &input, unit_bytes, dst, n_bytes, n_made);
  cursor->n_used = input.n_used;
  *is_over = !has_input && *n_made == 0;
  if (defect != NULL) return fail_at(cursor, defect, err);
  cursor->at += *n_made;
  return CKPT_OK;
}

static ckpt_status pull(ckpt_cursor *cursor, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes, ckpt_error *err) {
  while (n_bytes != 0) {
    size_t n_made;
    bool is_over;
    CKPT_TRY(step(cursor, unit_bytes, dst, n_bytes, &n_made, &is_over, err));
    if (is_over) return fail_at(cursor, "the compressed stream ends early", err);
    dst += n_made, n_bytes -= n_made;
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

/* ---- records of archives ----------------------------------------------------------------------------------------- */

/* Finds the record of a compressed archive, and how its tensor lies in it. The cursor then stands at its payload. */
static ckpt_status scan_record(ckpt_reader *reader, const ckpt_decoder_row *row, const stream *of, ckpt_record *out,
                               ckpt_record_layout *layout, ckpt_error *err) {
  const char *path = ckpt_source_path(reader->source, of->file);
  const ckpt_record_decoder *decoder = row->record;
  uint8_t *head = malloc(decoder->n_head);
  CKPT_TRY_ALLOC(head, err);
  ckpt_status status;
  CKPT_TRY_GOTO(cursor_at(reader, of, 0, err));
  for (size_t n = 0, n_needed = 1; n_needed != 0;) {
    if (n_needed > decoder->n_head) {
      status =
          ckpt_fail(err, CKPT_EFORMAT, path, NULL, "no tensor record in the first %u bytes of a compressed %s archive",
                    decoder->n_head, row->name);
      goto done;
    }
    CKPT_TRY_GOTO(pull(reader->cursors, 1, head + n, n_needed - n, err));
    n = n_needed;
    CKPT_TRY_GOTO(decoder->scan(out, layout, &n_needed, head, n, path, err));
  }
done:
  free(head);
  return status;
}

/* That an archive holds the tensor that is expected. Of one axis its length says it all. An extent with strides was
 * given those that the archive says. */
static ckpt_status check_layout(const ckpt_reader *reader, const ckpt_decoder_row *row,
                                const ckpt_record_layout *layout, const char *path, ckpt_error *err) {
  if (reader->is_strided) return CKPT_OK;
  if (reader->counts != NULL && layout->rank > 1 &&
      (layout->rank != reader->rank ||
       memcmp(layout->sizes, reader->counts, layout->rank * sizeof *layout->sizes) != 0)) {
    char held[CKPT_SHAPE_TEXT], said[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its %s archive holds the shape %s, the metadata says %s",
                     row->name, ckpt_shape_text(held, layout->rank, layout->sizes),
                     ckpt_shape_text(said, reader->rank, reader->counts));
  }
  return row->record->check_row_major(layout, path, err);
}

/* Looks the extent's record up, once while it stays in its place. */
static ckpt_status find_record(ckpt_reader *reader, const ckpt_decoder_row *row, const ckpt_extent *extent,
                               const stream *of, ckpt_record *out, ckpt_error *err) {
  if (reader->records == NULL) reader->records = calloc(N_FOUND, sizeof *reader->records);
  CKPT_TRY_ALLOC(reader->records, err);
  ckpt_found_record *found = &reader->records[(uintptr_t)extent / sizeof *extent % N_FOUND];
  if (found->extent != extent) {
    ckpt_record_layout layout;
    found->extent = NULL;
    CKPT_TRY(of->decoder != NULL ? scan_record(reader, row, of, &found->record, &layout, err)
                                 : row->record->find(&found->record, &layout, reader->source, extent->file,
                                                     extent->offset, extent->n_stored, err));
    CKPT_TRY(check_layout(reader, row, &layout, ckpt_source_path(reader->source, of->file), err));
    found->extent = extent;
  }
  *out = found->record;
  return CKPT_OK;
}

/* That a record has the bytes and the dtype that are expected, as far as it says. `end`: of those that are read. */
static ckpt_status check_record(const ckpt_reader *reader, const ckpt_decoder_row *row, const ckpt_record *record,
                                const char *path, uint64_t end, bool is_right, ckpt_error *err) {
  const uint64_t n_expected = reader->n_expected;
  if (record->n_bytes != UINT64_MAX && n_expected != 0) is_right = is_right && n_expected == record->n_bytes;
  if (!is_right)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its %s record has %llu byte%s, %llu are expected", row->name,
                     (ull)record->n_bytes, ckpt_plural(record->n_bytes), (ull)(n_expected != 0 ? n_expected : end));
  if (record->dtype == CKPT_DTYPE_NONE || reader->dtype == CKPT_DTYPE_NONE || record->dtype == reader->dtype)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its %s archive holds %s, the metadata says %s", row->name,
                   ckpt_dtype_name(record->dtype), ckpt_dtype_name(reader->dtype));
}

/* That a record whose length is not known ends where it is expected to; the cursor stands there. */
static ckpt_status check_end(ckpt_reader *reader, const ckpt_decoder_row *row, const char *path, ckpt_record *record,
                             ckpt_error *err) {
  const ckpt_record_decoder *decoder = row->record;
  const uint64_t n_expected = reader->n_expected;
  uint8_t tail[CKPT_MAX_RECORD_TAIL];
  CKPT_TRY(pull(reader->cursors, 1, tail, decoder->n_tail, err));
  if (decoder->ends(tail, n_expected, &record->crc32)) {
    record->has_crc32 = record->crc32 != 0;
    return CKPT_OK;
  }
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its %s record does not end after the %llu byte%s that are expected",
                   row->name, (ull)n_expected, ckpt_plural(n_expected));
}

static ckpt_status read_record(ckpt_reader *reader, const ckpt_decoder_row *row, const ckpt_extent *extent,
                               ckpt_record *record, stream of, uint64_t at, void *dst, size_t n_bytes,
                               ckpt_error *err) {
  const char *path = ckpt_source_path(reader->source, extent->file);
  uint64_t end = 0;
  const bool is_within = ckpt_add_u64(at, n_bytes, &end) && end <= record->n_bytes;
  CKPT_TRY(check_record(reader, row, record, path, end, is_within, err));
  if (of.decoder != NULL) {
    CKPT_TRY(read_sequential(reader, &of, 1, record->offset + at, dst, n_bytes, err));
    if (record->n_bytes != UINT64_MAX) return CKPT_OK;
    record->n_bytes = reader->n_expected;
    return end == reader->n_expected ? check_end(reader, row, path, record, err) : CKPT_OK;
  }
  if (!record->is_deflated)
    return ckpt_source_read(reader->source, extent->file, record->offset + at, dst, n_bytes, err);
  of = (stream){extent, extent->file, record->offset, record->n_stored, ckpt_decoders[CKPT_DECODE_INFLATE]->stream};
  return read_sequential(reader, &of, 1, at, dst, n_bytes, err);
}

static void swap_units(uint8_t *bytes, size_t n_bytes, uint32_t unit_bytes) {
  for (size_t i = 0; i + unit_bytes <= n_bytes; i += unit_bytes)
    for (uint32_t low = 0, high = unit_bytes - 1; low < high; low++, high--) {
      uint8_t byte = bytes[i + low];
      bytes[i + low] = bytes[i + high];
      bytes[i + high] = byte;
    }
}

/* Turns the signs of numbers from the `at`-th decoded byte on. A sign is the highest bit. */
static void turn_signs(uint8_t *bytes, size_t n_bytes, uint32_t unit_bytes, uint64_t at, uint8_t of) {
  const uint8_t signs[2] = {(of & CKPT_SIGNS_EVEN) != 0 ? 0x80 : 0, (of & CKPT_SIGNS_ODD) != 0 ? 0x80 : 0};
  uint64_t number = at / unit_bytes;
  for (size_t i = unit_bytes; i <= n_bytes; i += unit_bytes, number++) bytes[i - 1] ^= signs[number % 2];
}

/* Bytes that stand in a file as they are. Those of a record are summed up a piece at a time, while it is in the core's
 * cache. */
static ckpt_status read_plain(ckpt_reader *reader, const ckpt_extent *extent, uint64_t at, uint8_t *dst, size_t n_bytes,
                              ckpt_error *err) {
  enum { PIECE = 256 << 10 };
  const size_t n_most = reader->checks == NULL ? n_bytes : PIECE;
  for (size_t n; n_bytes != 0; at += n, dst += n, n_bytes -= n) {
    n = n_bytes < n_most ? n_bytes : n_most;
    CKPT_TRY(ckpt_source_read(reader->source, extent->file, extent->offset + at, dst, n, err));
    if (reader->checks != NULL)
      CKPT_TRY(ckpt_record_checks_take(reader->checks, reader->source, extent, NULL, at, dst, n, err));
  }
  return CKPT_OK;
}

/* Bytes as they are stored, and the archive's record that they are of, if any. */
static ckpt_status read_content(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                                void *dst, size_t n_bytes, ckpt_record *record, ckpt_error *err) {
  const stream of = {extent, extent->file, extent->offset, extent->n_stored, stream_of(extent)};
  const ckpt_decoder_row *row = record_row(extent);
  *record = (ckpt_record){0};
  if (row != NULL) {
    CKPT_TRY(find_record(reader, row, extent, &of, record, err));
    CKPT_TRY(read_record(reader, row, extent, record, of, at, dst, n_bytes, err));
  } else if (of.decoder != NULL) {
    CKPT_TRY(read_sequential(reader, &of, unit_bytes, at, dst, n_bytes, err));
  } else {
    return read_plain(reader, extent, at, dst, n_bytes, err);
  }
  if (reader->checks == NULL) return CKPT_OK;
  return ckpt_record_checks_take(reader->checks, reader->source, extent, row == NULL ? NULL : record, at, dst, n_bytes,
                                 err);
}

ckpt_status ckpt_reader_read_content(ckpt_reader *reader, const ckpt_extent *extent, uint64_t at, void *dst,
                                     size_t n_bytes, ckpt_error *err) {
  ckpt_record record;
  return read_content(reader, extent, 1, at, dst, n_bytes, &record, err);
}

ckpt_status ckpt_reader_read(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                             void *dst, size_t n_bytes, ckpt_error *err) {
  if (extent->file == CKPT_FILE_LITERAL) {
    memset(dst, 0, n_bytes);
    for (size_t i = 0; i < n_bytes && extent->offset != 0; i++)
      ((uint8_t *)dst)[i] = (uint8_t)(extent->offset >> 8 * ((at + i) % 8));
    return CKPT_OK;
  }
  CKPT_TRY(check_chain(reader, extent, unit_bytes, err));
  ckpt_record record = {0};
  const size_t n_step = reader->checks == NULL ? SIZE_MAX : CHECKED_BYTES;
  for (size_t i = 0; i < n_bytes; i += n_step) {
    const size_t n = n_bytes - i < n_step ? n_bytes - i : n_step;
    CKPT_TRY(read_content(reader, extent, unit_bytes, at + i, (uint8_t *)dst + i, n, &record, err));
    if (n == n_bytes) break;
  }
  const bool swaps = record_row(extent) != NULL
                         ? record.is_big_endian
                         : extent->chain[0] == CKPT_DECODE_SWAPPED || extent->chain[1] == CKPT_DECODE_SWAPPED;
  if (swaps) swap_units(dst, n_bytes, unit_bytes);
  const uint8_t signs = extent->signs ^ record.signs;
  if (signs != 0) turn_signs(dst, n_bytes, unit_bytes, at, signs);
  return CKPT_OK;
}

ckpt_status ckpt_decode_layout(ckpt_record_layout *out, ckpt_source *source, const ckpt_extent *extent,
                               ckpt_error *err) {
  const stream of = {extent, extent->file, extent->offset, extent->n_stored, stream_of(extent)};
  ckpt_reader reader = {.source = source};
  ckpt_record record;
  ckpt_status status = scan_record(&reader, record_row(extent), &of, &record, out, err);
  ckpt_reader_reset(&reader);
  return status;
}

ckpt_status ckpt_decode_zstd(uint8_t **out, size_t *n_bytes, ckpt_source *source, const ckpt_extent *extent,
                             size_t max_bytes, ckpt_error *err) {
  enum { FIRST_BYTES = 4096 };
  const stream of = {extent, extent->file, extent->offset, extent->n_stored, ckpt_decoders[CKPT_DECODE_ZSTD]->stream};
  const char *path = ckpt_source_path(source, extent->file);
  ckpt_reader reader = {.source = source};
  uint8_t *bytes = NULL;
  size_t n = 0, room = 0, n_made;
  bool is_over = false;
  *out = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(cursor_start(&reader, &of, err));
  while (!is_over) {
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
    CKPT_TRY_GOTO(step(reader.cursors, 1, bytes + n, room - n, &n_made, &is_over, err));
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
