/* json_writer.c - see json_writer.h. Compact: no spaces, one newline at the end. */
#include "tools/report/json_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/cli/text.h"

static void write_string(FILE *out, const char *text, size_t n) {
  putc('"', out);
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t length = ckpt_text_next(text + i, n - i, &c);
    if (length == 0)
      fputs("\\ufffd", out);
    else if (c == '"' || c == '\\')
      fprintf(out, "\\%c", (int)c);
    else if (c == '\n')
      fputs("\\n", out);
    else if (c == '\t')
      fputs("\\t", out);
    else if (ckpt_text_is_control(c) && c < 0x10000)
      fprintf(out, "\\u%04x", (unsigned)c);
    else if (ckpt_text_is_control(c))
      fprintf(out, "\\u%04x\\u%04x", 0xD7C0 + (unsigned)(c >> 10), 0xDC00 + (unsigned)(c & 0x3FF));
    else
      fwrite(text + i, 1, length, out);
    i += length == 0 ? 1 : length;
  }
  putc('"', out);
}

/* The comma and key before a value. */
static void before(ckpt_emitter *json, const char *key) {
  if (json->has_items[json->depth]) putc(',', json->out);
  json->has_items[json->depth] = true;
  if (key == NULL) return;
  write_string(json->out, key, strlen(key));
  putc(':', json->out);
}

static void open_with(ckpt_emitter *json, const char *key, char opener, char closer) {
  assert(json->depth < CKPT_EMIT_DEPTH);
  before(json, key);
  putc(opener, json->out);
  json->depth++;
  json->has_items[json->depth] = false;
  json->closers[json->depth] = closer;
}

void ckpt_emit_begin(ckpt_emitter *json, FILE *out) { *json = (ckpt_emitter){.out = out}; }

void ckpt_emit_object(ckpt_emitter *json, const char *key) { open_with(json, key, '{', '}'); }

void ckpt_emit_array(ckpt_emitter *json, const char *key) { open_with(json, key, '[', ']'); }

void ckpt_emit_end(ckpt_emitter *json) {
  assert(json->depth > 0);
  putc(json->closers[json->depth--], json->out);
  json->is_ended = json->depth == 0;
  if (json->is_ended) putc('\n', json->out);
}

void ckpt_emit_text_n(ckpt_emitter *json, const char *key, const char *text, size_t n_bytes) {
  before(json, key);
  write_string(json->out, text, n_bytes);
}

void ckpt_emit_text(ckpt_emitter *json, const char *key, const char *text) {
  if (text == NULL)
    ckpt_emit_null(json, key);
  else
    ckpt_emit_text_n(json, key, text, strlen(text));
}

void ckpt_emit_u64(ckpt_emitter *json, const char *key, uint64_t value) {
  before(json, key);
  fprintf(json->out, "%" PRIu64, value);
}

void ckpt_emit_i64(ckpt_emitter *json, const char *key, int64_t value) {
  before(json, key);
  fprintf(json->out, "%" PRId64, value);
}

/* "-0" would be read back as an integer, without its sign. */
static const char *or_zero(const char *text) { return strcmp(text, "-0") == 0 ? "-0.0" : text; }

void ckpt_emit_number(ckpt_emitter *json, const char *key, double value) {
  char text[32];
  before(json, key);
  fputs(isfinite(value) ? or_zero(ckpt_text_number(value, text)) : "null", json->out);
}

void ckpt_emit_float(ckpt_emitter *json, const char *key, float value) {
  char text[32];
  before(json, key);
  fputs(isfinite(value) ? or_zero(ckpt_text_float(value, text)) : "null", json->out);
}

void ckpt_emit_bool(ckpt_emitter *json, const char *key, bool value) {
  before(json, key);
  fputs(value ? "true" : "false", json->out);
}

void ckpt_emit_literal(ckpt_emitter *json, const char *key, const char *text) {
  before(json, key);
  fputs(text, json->out);
}

void ckpt_emit_null(ckpt_emitter *json, const char *key) {
  before(json, key);
  fputs("null", json->out);
}
