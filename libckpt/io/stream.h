/* stream.h - a counting, buffered byte stream, to which literals and footers are printed.
 *
 * The same generator runs twice: against a counting stream for its size (nothing is kept), and against a sink when it
 * is written. After a failure every call does nothing; the first failure is returned by ckpt_stream_end. */
#ifndef CKPT_IO_STREAM_H
#define CKPT_IO_STREAM_H

#include "libckpt/io/sink.h"
#include "libckpt/io/source.h"

/* Takes the next bytes of a stream. */
typedef ckpt_status ckpt_stream_put(void *arg, const void *bytes, size_t n_bytes, ckpt_error *err);

typedef struct ckpt_stream {
  uint64_t n_bytes; /* produced so far */
  ckpt_sink *sink;  /* NULL: only counts, or what follows */
  ckpt_stream_put *put;
  void *arg;
  bool has_crc32;
  uint32_t crc32; /* of what was produced, where has_crc32 */
  uint32_t file;
  uint64_t offset; /* of the first byte in the file */
  uint8_t *window; /* n_window bytes, the caller's; NULL when counting */
  size_t n_window, n_pending;
  ckpt_status status;
  ckpt_error *err;
} ckpt_stream;

/* Streams that count; that also compute the CRC-32; that write to [offset, ...) of a sink's file through the caller's
 * window; that hand everything to a function, in order, through such a window. */
void ckpt_stream_count(ckpt_stream *out, ckpt_error *err);
void ckpt_stream_checksum(ckpt_stream *out, ckpt_error *err); /* as above */
void ckpt_stream_sink(ckpt_stream *out, ckpt_sink *sink, uint32_t file, uint64_t offset, void *window, size_t n_window,
                      ckpt_error *err); /* as above */
void ckpt_stream_function(ckpt_stream *out, ckpt_stream_put *put, void *arg, void *window, size_t n_window,
                          ckpt_error *err); /* as above */

/* Appends bytes, text, repeated bytes, a little-endian integer of 1..8 bytes, formatted text (at most 512 bytes). */
void ckpt_stream_bytes(ckpt_stream *out, const void *bytes, size_t n_bytes);
void ckpt_stream_text(ckpt_stream *out, const char *text);                            /* as above */
void ckpt_stream_fill(ckpt_stream *out, uint8_t byte, uint64_t n_bytes);              /* as above */
void ckpt_stream_le(ckpt_stream *out, uint64_t value, unsigned n_bytes);              /* as above */
void ckpt_stream_printf(ckpt_stream *out, const char *format, ...) CKPT_PRINTF(2, 3); /* as above */

/* Appends text as a JSON string with its quotes: only `"`, `\` and control characters are escaped (as serde_json). */
void ckpt_stream_json(ckpt_stream *out, const char *text, size_t n_bytes);

/* Appends a range of a source's file; a stream that only counts reads nothing. */
void ckpt_stream_range(ckpt_stream *out, ckpt_source *source, uint32_t file, uint64_t offset, uint64_t n_bytes);

/* Fails the stream from inside a generator. */
void ckpt_stream_fail(ckpt_stream *out, ckpt_status status);

/* Writes what is pending and returns the first failure. */
ckpt_status ckpt_stream_end(ckpt_stream *out);

#endif
