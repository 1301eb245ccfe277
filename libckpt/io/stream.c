/* stream.c - the counting, buffered byte stream: one generator gives a literal's size and, later, its bytes. */
#include "libckpt/io/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"

void ckpt_stream_count(ckpt_stream *out, ckpt_error *err) { *out = (ckpt_stream){.err = err}; }

void ckpt_stream_checksum(ckpt_stream *out, ckpt_error *err) { *out = (ckpt_stream){.has_crc32 = true, .err = err}; }

void ckpt_stream_sink(ckpt_stream *out, ckpt_sink *sink, uint32_t file, uint64_t offset, void *window, size_t n_window,
                      ckpt_error *err) {
  *out =
      (ckpt_stream){.sink = sink, .file = file, .offset = offset, .window = window, .n_window = n_window, .err = err};
}

void ckpt_stream_function(ckpt_stream *out, ckpt_stream_put *put, void *arg, void *window, size_t n_window,
                          ckpt_error *err) {
  *out = (ckpt_stream){.put = put, .arg = arg, .window = window, .n_window = n_window, .err = err};
}

static bool only_counts(const ckpt_stream *out) { return out->sink == NULL && out->put == NULL; }

void ckpt_stream_fail(ckpt_stream *out, ckpt_status status) {
  if (out->status == CKPT_OK) out->status = status;
}

/* Counts n_bytes more; false when nothing is to be done with them. */
static bool count(ckpt_stream *out, uint64_t n_bytes) {
  if (out->status != CKPT_OK) return false;
  uint64_t end;
  if (!ckpt_add_u64(out->n_bytes, n_bytes, &out->n_bytes) || !ckpt_add_u64(out->offset, out->n_bytes, &end)) {
    ckpt_stream_fail(out, ckpt_fail(out->err, CKPT_ELIMIT, NULL, NULL, "output is larger than 2^64 bytes"));
    return false;
  }
  return !only_counts(out);
}

/* Hands on bytes before the last n_behind of those that are counted. */
static void hand_on(ckpt_stream *out, const void *bytes, size_t n_bytes, uint64_t n_behind) {
  uint64_t at = out->offset + out->n_bytes - n_behind - n_bytes;
  ckpt_stream_fail(out, out->put != NULL ? out->put(out->arg, bytes, n_bytes, out->err)
                                         : ckpt_sink_write(out->sink, out->file, at, bytes, n_bytes, out->err));
}

/* Hands on the pending bytes; n_behind of the stream beyond them are counted but not in the window. */
static void flush(ckpt_stream *out, uint64_t n_behind) {
  if (out->n_pending == 0 || out->status != CKPT_OK) return;
  hand_on(out, out->window, out->n_pending, n_behind);
  out->n_pending = 0;
}

void ckpt_stream_bytes(ckpt_stream *out, const void *bytes, size_t n_bytes) {
  if (out->has_crc32) out->crc32 = ckpt_crc32(out->crc32, bytes, n_bytes);
  if (!count(out, n_bytes)) return;
  const uint8_t *from = bytes;
  while (n_bytes > 0 && out->status == CKPT_OK) {
    if (out->n_pending == 0 && n_bytes >= out->n_window) { /* what fills a window needs none */
      hand_on(out, from, n_bytes, 0);
      return;
    }
    size_t n_room = out->n_window - out->n_pending, n = n_bytes < n_room ? n_bytes : n_room;
    memcpy(out->window + out->n_pending, from, n);
    out->n_pending += n;
    from += n;
    n_bytes -= n;
    if (out->n_pending == out->n_window) flush(out, n_bytes);
  }
}

void ckpt_stream_text(ckpt_stream *out, const char *text) { ckpt_stream_bytes(out, text, strlen(text)); }

void ckpt_stream_fill(ckpt_stream *out, uint8_t byte, uint64_t n_bytes) {
  if (only_counts(out) && !out->has_crc32) {
    (void)count(out, n_bytes);
    return;
  }
  uint8_t block[4096];
  memset(block, byte, n_bytes < sizeof block ? (size_t)n_bytes : sizeof block);
  while (n_bytes > 0 && out->status == CKPT_OK) {
    size_t n = n_bytes < sizeof block ? (size_t)n_bytes : sizeof block;
    ckpt_stream_bytes(out, block, n);
    n_bytes -= n;
  }
}

void ckpt_stream_range(ckpt_stream *out, ckpt_source *source, uint32_t file, uint64_t offset, uint64_t n_bytes) {
  if (only_counts(out) && !out->has_crc32) {
    (void)count(out, n_bytes);
    return;
  }
  uint8_t block[16384];
  while (n_bytes > 0 && out->status == CKPT_OK) {
    size_t n = n_bytes < sizeof block ? (size_t)n_bytes : sizeof block;
    ckpt_status status = ckpt_source_read(source, file, offset, block, n, out->err);
    if (status != CKPT_OK) {
      ckpt_stream_fail(out, status);
      return;
    }
    ckpt_stream_bytes(out, block, n);
    offset += n;
    n_bytes -= n;
  }
}

void ckpt_stream_le(ckpt_stream *out, uint64_t value, unsigned n_bytes) {
  uint8_t bytes[8];
  ckpt_put_le64(bytes, value);
  ckpt_stream_bytes(out, bytes, n_bytes < sizeof bytes ? n_bytes : sizeof bytes);
}

void ckpt_stream_printf(ckpt_stream *out, const char *format, ...) {
  char text[513];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n < 0 || (size_t)n >= sizeof text) {
    if (out->status == CKPT_OK)
      ckpt_stream_fail(out, ckpt_fail(out->err, CKPT_EINTERNAL, NULL, NULL, "formatted text of %d bytes", n));
    return;
  }
  ckpt_stream_bytes(out, text, (size_t)n);
}

/* The letter of a character with a short escape, 0 if it has none. */
static char short_escape(uint8_t c) {
  switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

void ckpt_stream_json(ckpt_stream *out, const char *text, size_t n_bytes) {
  ckpt_stream_bytes(out, "\"", 1);
  size_t start = 0;
  for (size_t i = 0; i < n_bytes; i++) {
    uint8_t c = (uint8_t)text[i];
    char letter = short_escape(c);
    if (c >= 0x20 && letter == 0) continue;
    ckpt_stream_bytes(out, text + start, i - start);
    start = i + 1;
    if (letter != 0)
      ckpt_stream_bytes(out, (char[]){'\\', letter}, 2);
    else
      ckpt_stream_printf(out, "\\u%04x", c);
  }
  ckpt_stream_bytes(out, text + start, n_bytes - start);
  ckpt_stream_bytes(out, "\"", 1);
}

ckpt_status ckpt_stream_end(ckpt_stream *out) {
  flush(out, 0);
  return out->status;
}
