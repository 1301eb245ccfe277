/* json.c - the pull reader of json.h: a window over the text, a bit per open container, a buffer for decoded text.
 *
 * `state` says what may come next; containers are bits of `objects` (1: object, 0: array), so depth costs nothing and
 * there is no recursion. Positions are offsets in the text: window_at + (cursor - window). */
#include "libckpt/codec/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

enum { WINDOW_BYTES = 1 << 16 };

typedef enum json_state {
  WANT_VALUE,        /* a value has to come */
  WANT_FIRST_ITEM,   /* after `[`: a value or `]` */
  WANT_FIRST_KEY,    /* after `{`: a key or `}` */
  WANT_COLON,        /* after a key */
  WANT_COMMA_OR_END, /* after a value in a container */
  WANT_NOTHING       /* after the outermost value */
} json_state;

struct ckpt_json {
  ckpt_json_options options;
  const uint8_t *cursor, *limit; /* rest of the window */
  uint64_t window_at;            /* offset of the window in the text */
  uint64_t start;                /* of the last token */
  uint64_t objects;              /* bit d: the container at depth d is an object */
  uint32_t depth;
  json_state state;
  bool keep;      /* whether decoded text is kept */
  bool is_broken; /* the text is no JSON: there is nothing to read on */
  char *text;
  size_t n_text, n_room; /* n_room counts the terminator */
  const uint8_t *window; /* own below, or the caller's text */
  uint8_t own[];
};

ckpt_status ckpt_json_new(ckpt_json **out, const ckpt_json_options *options, ckpt_error *err) {
  ckpt_json *json = malloc(sizeof *json + (options->fetch != NULL ? WINDOW_BYTES : 0));
  CKPT_TRY_ALLOC(json, err);
  *json = (ckpt_json){.options = *options, .state = WANT_VALUE, .keep = true};
  json->window = json->cursor = json->limit = json->own;
  *out = json;
  return CKPT_OK;
}

ckpt_status ckpt_json_new_text(ckpt_json **out, const char *text, size_t n_bytes, bool allow_nan, const char *file,
                               ckpt_error *err) {
  ckpt_json_options options = {.n_bytes = n_bytes, .max_text = n_bytes, .allow_nan = allow_nan, .file = file};
  CKPT_TRY(ckpt_json_new(out, &options, err));
  ckpt_json *json = *out;
  json->window = json->cursor = (const uint8_t *)text;
  json->limit = json->window + n_bytes;
  return CKPT_OK;
}

/* A range of a source's file. */
typedef struct source_range {
  ckpt_source *source;
  uint32_t file;
  uint64_t offset;
} source_range;

static ckpt_status fetch_source(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const source_range *range = arg;
  return ckpt_source_read(range->source, range->file, range->offset + offset, dst, n_bytes, err);
}

ckpt_status ckpt_json_new_source(ckpt_json **out, ckpt_source *source, uint32_t file, uint64_t offset, uint64_t n_bytes,
                                 size_t max_text, bool allow_nan, ckpt_error *err) {
  source_range *range = malloc(sizeof *range);
  CKPT_TRY_ALLOC(range, err);
  *range = (source_range){source, file, offset};
  ckpt_json_options options = {.fetch = fetch_source,
                               .arg = range,
                               .n_bytes = n_bytes,
                               .max_text = max_text,
                               .allow_nan = allow_nan,
                               .file = ckpt_source_path(source, file),
                               .base = offset};
  ckpt_status status = ckpt_json_new(out, &options, err);
  if (status != CKPT_OK) free(range);
  return status;
}

void ckpt_json_free(ckpt_json *json) {
  if (json == NULL) return;
  if (json->options.fetch == fetch_source) free(json->options.arg);
  free(json->text);
  free(json);
}

static inline uint64_t position(const ckpt_json *json) {
  return json->window_at + (uint64_t)(json->cursor - json->window);
}

uint64_t ckpt_json_start(const ckpt_json *json) { return json->start; }
uint64_t ckpt_json_stop(const ckpt_json *json) { return position(json); }

static ckpt_status fail_at(const ckpt_json *json, ckpt_error *err, uint64_t at, const char *what) {
  return ckpt_fail(err, CKPT_EFORMAT, json->options.file, NULL, "%s (byte %" PRIu64 ")", what, json->options.base + at);
}

ckpt_status ckpt_json_fail(const ckpt_json *json, ckpt_error *err, const char *format, ...) {
  char what[768];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return fail_at(json, err, json->start, what);
}

/* Puts at least one byte into the window, if the text has any left; the caller sees cursor == limit at its end. */
static ckpt_status refill(ckpt_json *json, ckpt_error *err) {
  uint64_t at = position(json), n_left = json->options.n_bytes - at;
  if (n_left == 0) return CKPT_OK;
  size_t n = n_left < WINDOW_BYTES ? (size_t)n_left : WINDOW_BYTES;
  CKPT_TRY(json->options.fetch(json->options.arg, at, json->own, n, err));
  json->window_at = at;
  json->cursor = json->window = json->own;
  json->limit = json->own + n;
  return CKPT_OK;
}

/* The byte at the cursor, or -1 at the end of the text. */
static inline ckpt_status peek(ckpt_json *json, int *byte, ckpt_error *err) {
  if (json->cursor == json->limit) CKPT_TRY(refill(json, err));
  *byte = json->cursor == json->limit ? -1 : *json->cursor;
  return CKPT_OK;
}

static ckpt_status skip_space(ckpt_json *json, int *byte, ckpt_error *err) {
  for (;;) {
    CKPT_TRY(peek(json, byte, err));
    if (*byte != ' ' && *byte != '\n' && *byte != '\r' && *byte != '\t') return CKPT_OK;
    json->cursor++;
  }
}

static ckpt_status append(ckpt_json *json, const void *bytes, size_t n, ckpt_error *err) {
  if (!json->keep) return CKPT_OK;
  if (n > json->options.max_text - json->n_text)
    return ckpt_fail(err, CKPT_ELIMIT, json->options.file, NULL,
                     "a JSON text of more than %zu bytes (byte %" PRIu64 ")", json->options.max_text,
                     json->options.base + json->start);
  if (json->n_room - json->n_text <= n) {
    size_t n_room = json->n_text + n + 1;
    if (n_room < 64) n_room = 64;
    if (n_room < json->n_room * 2) n_room = json->n_room * 2;
    char *moved = realloc(json->text, n_room);
    CKPT_TRY_ALLOC(moved, err);
    json->text = moved;
    json->n_room = n_room;
  }
  memcpy(json->text + json->n_text, bytes, n);
  json->n_text += n;
  return CKPT_OK;
}

static ckpt_status finish_text(ckpt_json *json, ckpt_error *err) {
  if (!json->keep) return CKPT_OK;
  if (json->text == NULL) { /* an empty string before any other */
    json->text = malloc(64);
    CKPT_TRY_ALLOC(json->text, err);
    json->n_room = 64;
  }
  json->text[json->n_text] = '\0';
  return CKPT_OK;
}

/* ---- strings ---- */

static ckpt_status append_utf8(ckpt_json *json, uint32_t code, ckpt_error *err) {
  uint8_t bytes[4];
  size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = n; i-- > 1; code >>= 6) bytes[i] = (uint8_t)(0x80 | (code & 0x3F));
  bytes[0] = (uint8_t)(lead[n] | code);
  return append(json, bytes, n, err);
}

static ckpt_status read_hex4(ckpt_json *json, uint32_t *out, ckpt_error *err) {
  *out = 0;
  for (int i = 0; i < 4; i++) {
    int byte;
    CKPT_TRY(peek(json, &byte, err));
    int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                             : -1;
    if (digit < 0) return fail_at(json, err, position(json), "four hexadecimal digits have to follow \\u");
    *out = *out * 16 + (uint32_t)digit;
    json->cursor++;
  }
  return CKPT_OK;
}

/* After a backslash. */
static ckpt_status read_escape(ckpt_json *json, ckpt_error *err) {
  uint64_t at = position(json);
  int byte;
  CKPT_TRY(peek(json, &byte, err));
  static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  const char *found = byte > 0 ? strchr(plain, byte) : NULL;
  if (found == NULL && byte != 'u') return fail_at(json, err, at, "an escape that JSON does not have");
  json->cursor++;
  if (found != NULL) return append(json, &meant[found - plain], 1, err);
  uint32_t code, low;
  CKPT_TRY(read_hex4(json, &code, err));
  if (code < 0xD800 || code > 0xDFFF) return append_utf8(json, code, err);
  static const char *const lone = "half of a surrogate pair";
  if (code > 0xDBFF) return fail_at(json, err, at, lone);
  for (int i = 0; i < 2; i++) {
    CKPT_TRY(peek(json, &byte, err));
    if (byte != "\\u"[i]) return fail_at(json, err, at, lone);
    json->cursor++;
  }
  CKPT_TRY(read_hex4(json, &low, err));
  if (low < 0xDC00 || low > 0xDFFF) return fail_at(json, err, at, lone);
  return append_utf8(json, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), err);
}

/* One character of two to four bytes, at the cursor. */
static ckpt_status read_multibyte(ckpt_json *json, ckpt_error *err) {
  uint64_t at = position(json);
  uint8_t bytes[4] = {*json->cursor++};
  size_t n = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
  bool is_valid = bytes[0] >= 0xC2 && bytes[0] <= 0xF4;
  for (size_t i = 1; i < n && is_valid; i++) {
    int byte;
    CKPT_TRY(peek(json, &byte, err));
    int low = 0x80, high = 0xBF;
    if (i == 1 && bytes[0] == 0xE0) low = 0xA0;  /* overlong */
    if (i == 1 && bytes[0] == 0xED) high = 0x9F; /* surrogates */
    if (i == 1 && bytes[0] == 0xF0) low = 0x90;  /* overlong */
    if (i == 1 && bytes[0] == 0xF4) high = 0x8F; /* past U+10FFFF */
    is_valid = byte >= low && byte <= high;
    if (is_valid) {
      bytes[i] = (uint8_t)byte;
      json->cursor++;
    }
  }
  return is_valid ? append(json, bytes, n, err) : fail_at(json, err, at, "not UTF-8");
}

/* A string, its opening quote at the cursor. */
static ckpt_status read_string(ckpt_json *json, ckpt_error *err) {
  json->n_text = 0;
  json->cursor++;
  for (;;) {
    int byte;
    CKPT_TRY(peek(json, &byte, err));
    const uint8_t *run = json->cursor;
    while (json->cursor != json->limit && (byte = *json->cursor) >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\')
      json->cursor++;
    if (json->cursor != run) {
      CKPT_TRY(append(json, run, (size_t)(json->cursor - run), err));
    } else if (byte == '"') {
      json->cursor++;
      return finish_text(json, err);
    } else if (byte == '\\') {
      json->cursor++;
      CKPT_TRY(read_escape(json, err));
    } else if (byte >= 0x80) {
      CKPT_TRY(read_multibyte(json, err));
    } else {
      return fail_at(json, err, position(json),
                     byte < 0 ? "the text ends within a string" : "a control character within a string");
    }
  }
}

/* ---- numbers and words ---- */

/* Appends the digits at the cursor; at least one. */
static ckpt_status read_digits(ckpt_json *json, ckpt_error *err) {
  int byte;
  CKPT_TRY(peek(json, &byte, err));
  if (byte < '0' || byte > '9') return fail_at(json, err, position(json), "a digit was expected in a number");
  do {
    const uint8_t *run = json->cursor;
    while (json->cursor != json->limit && *json->cursor >= '0' && *json->cursor <= '9') json->cursor++;
    CKPT_TRY(append(json, run, (size_t)(json->cursor - run), err));
    CKPT_TRY(peek(json, &byte, err));
  } while (byte >= '0' && byte <= '9');
  return CKPT_OK;
}

/* Reads past exactly this word. */
static ckpt_status read_word(ckpt_json *json, const char *word, ckpt_error *err) {
  uint64_t at = position(json);
  for (const char *c = word; *c != '\0'; c++) {
    int byte;
    CKPT_TRY(peek(json, &byte, err));
    if (byte != *c) return fail_at(json, err, at, "a value was expected");
    json->cursor++;
  }
  return CKPT_OK;
}

/* A part of a number that begins with one of these bytes, then digits; signs: an exponent, which may have one. */
static ckpt_status read_part(ckpt_json *json, const char *leads, bool signs, ckpt_error *err) {
  int byte;
  CKPT_TRY(peek(json, &byte, err));
  if (byte <= 0 || strchr(leads, byte) == NULL) return CKPT_OK;
  char lead = (char)byte;
  CKPT_TRY(append(json, &lead, 1, err));
  json->cursor++;
  CKPT_TRY(peek(json, &byte, err));
  if (signs && (byte == '+' || byte == '-')) {
    lead = (char)byte;
    CKPT_TRY(append(json, &lead, 1, err));
    json->cursor++;
  }
  return read_digits(json, err);
}

static ckpt_status read_digits_and_parts(ckpt_json *json, ckpt_error *err) {
  int byte;
  json->n_text = 0;
  CKPT_TRY(peek(json, &byte, err));
  if (byte == '-') {
    CKPT_TRY(append(json, "-", 1, err));
    json->cursor++;
    CKPT_TRY(peek(json, &byte, err));
  }
  if (json->options.allow_nan && byte == 'I') {
    CKPT_TRY(read_word(json, "Infinity", err));
    CKPT_TRY(append(json, "Infinity", 8, err));
  } else if (byte == '0') {
    CKPT_TRY(append(json, "0", 1, err));
    json->cursor++;
    CKPT_TRY(peek(json, &byte, err));
    if (byte >= '0' && byte <= '9') return fail_at(json, err, json->start, "a number with a leading zero");
    CKPT_TRY(read_part(json, ".", false, err));
    CKPT_TRY(read_part(json, "eE", true, err));
  } else {
    CKPT_TRY(read_digits(json, err));
    CKPT_TRY(read_part(json, ".", false, err));
    CKPT_TRY(read_part(json, "eE", true, err));
  }
  return finish_text(json, err);
}

/* What no double holds other readers refuse; Python's, which allows NaN, makes it Infinity. */
static ckpt_status read_number(ckpt_json *json, ckpt_error *err) {
  const bool keep = json->keep;
  json->keep = true; /* to be looked at, also where it is skipped */
  ckpt_status status = read_digits_and_parts(json, err);
  json->keep = keep;
  if (status != CKPT_OK || json->options.allow_nan) return status;
  const bool is_long = json->n_text > DBL_MAX_10_EXP || strpbrk(json->text, "eE") != NULL;
  return is_long && isinf(ckpt_c_strtod(json->text, NULL)) != 0
             ? fail_at(json, err, json->start, "a number that no double holds")
             : CKPT_OK;
}

/* ---- structure ---- */

static json_state after_value(const ckpt_json *json) { return json->depth == 0 ? WANT_NOTHING : WANT_COMMA_OR_END; }

static ckpt_status open_container(ckpt_json *json, bool is_object, ckpt_error *err) {
  if (json->depth == CKPT_JSON_MAX_DEPTH)
    return ckpt_fail(err, CKPT_ELIMIT, json->options.file, NULL, "JSON nested deeper than %d (byte %" PRIu64 ")",
                     CKPT_JSON_MAX_DEPTH, json->options.base + json->start);
  uint64_t bit = UINT64_C(1) << json->depth;
  json->objects = is_object ? json->objects | bit : json->objects & ~bit;
  json->depth++;
  json->cursor++;
  json->state = is_object ? WANT_FIRST_KEY : WANT_FIRST_ITEM;
  return CKPT_OK;
}

static bool in_object(const ckpt_json *json) { return (json->objects >> (json->depth - 1) & 1) != 0; }

static void close_container(ckpt_json *json) {
  json->depth--;
  json->cursor++;
  json->state = after_value(json);
}

static ckpt_status read_value(ckpt_json *json, int byte, ckpt_json_token *token, ckpt_error *err) {
  *token = byte == '{' ? CKPT_JSON_OBJECT : CKPT_JSON_ARRAY;
  if (byte == '{' || byte == '[') return open_container(json, byte == '{', err);
  json->state = after_value(json);
  json->n_text = 0;
  switch (byte) {
    case '"': *token = CKPT_JSON_STRING; return read_string(json, err);
    case 't': *token = CKPT_JSON_TRUE; return read_word(json, "true", err);
    case 'f': *token = CKPT_JSON_FALSE; return read_word(json, "false", err);
    case 'n': *token = CKPT_JSON_NULL; return read_word(json, "null", err);
    default: *token = CKPT_JSON_NUMBER; break;
  }
  if (byte == '-' || (byte >= '0' && byte <= '9') || (json->options.allow_nan && byte == 'I'))
    return read_number(json, err);
  if (json->options.allow_nan && byte == 'N') {
    CKPT_TRY(read_word(json, "NaN", err));
    CKPT_TRY(append(json, "NaN", 3, err));
    return finish_text(json, err);
  }
  return fail_at(json, err, json->start,
                 byte < 0 ? "the text ends where a value was expected" : "a value was expected");
}

static ckpt_status read_key(ckpt_json *json, int byte, ckpt_json_token *token, ckpt_error *err) {
  if (byte != '"')
    return fail_at(json, err, json->start, byte < 0 ? "the text ends where a key was expected" : "a key was expected");
  *token = CKPT_JSON_KEY;
  return read_string(json, err);
}

/* A comma and what follows it, or the end of the container. */
static ckpt_status read_separator(ckpt_json *json, int *byte, ckpt_json_token *token, ckpt_error *err) {
  bool is_object = in_object(json);
  if (*byte == (is_object ? '}' : ']')) {
    close_container(json);
    *token = is_object ? CKPT_JSON_OBJECT_END : CKPT_JSON_ARRAY_END;
    return CKPT_OK;
  }
  if (*byte != ',')
    return fail_at(json, err, json->start, is_object ? "',' or '}' was expected" : "',' or ']' was expected");
  json->cursor++;
  json->state = is_object ? WANT_COLON : WANT_VALUE;
  CKPT_TRY(skip_space(json, byte, err));
  json->start = position(json);
  return is_object ? read_key(json, *byte, token, err) : read_value(json, *byte, token, err);
}

/* After a key: the colon, and the value. */
static ckpt_status read_colon(ckpt_json *json, int *byte, ckpt_error *err) {
  if (*byte != ':') return fail_at(json, err, json->start, "':' was expected");
  json->cursor++;
  CKPT_TRY(skip_space(json, byte, err));
  json->start = position(json);
  return CKPT_OK;
}

static ckpt_status read_token(ckpt_json *json, ckpt_json_token *token, ckpt_error *err) {
  int byte;
  CKPT_TRY(skip_space(json, &byte, err));
  json->start = position(json);
  switch (json->state) {
    case WANT_NOTHING:
      *token = CKPT_JSON_END;
      return byte < 0 ? CKPT_OK : fail_at(json, err, json->start, "something follows the JSON value");
    case WANT_FIRST_KEY:
      if (byte != '}') {
        json->state = WANT_COLON;
        return read_key(json, byte, token, err);
      }
      *token = CKPT_JSON_OBJECT_END;
      close_container(json);
      return CKPT_OK;
    case WANT_FIRST_ITEM:
      if (byte != ']') return read_value(json, byte, token, err);
      *token = CKPT_JSON_ARRAY_END;
      close_container(json);
      return CKPT_OK;
    case WANT_COMMA_OR_END: return read_separator(json, &byte, token, err);
    case WANT_COLON: CKPT_TRY(read_colon(json, &byte, err)); break;
    case WANT_VALUE: break;
  }
  return read_value(json, byte, token, err);
}

ckpt_status ckpt_json_next(ckpt_json *json, ckpt_json_token *token, ckpt_error *err) {
  if (json->is_broken) return ckpt_json_fail(json, err, "no JSON");
  ckpt_status status = read_token(json, token, err);
  json->is_broken = status != CKPT_OK;
  return status;
}

ckpt_status ckpt_json_expect(ckpt_json *json, ckpt_json_token wanted, const char *what, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  if (token == wanted) return CKPT_OK;
  return ckpt_json_fail(json, err, "%s has to be %s, not %s", what, ckpt_json_token_name(wanted),
                        ckpt_json_token_name(token));
}

ckpt_status ckpt_json_skip_rest(ckpt_json *json, ckpt_json_token token, ckpt_error *err) {
  if (token != CKPT_JSON_OBJECT && token != CKPT_JSON_ARRAY) return CKPT_OK;
  uint32_t depth = json->depth;
  ckpt_status status = CKPT_OK;
  json->keep = false;
  while (status == CKPT_OK && json->depth >= depth) status = ckpt_json_next(json, &token, err);
  json->keep = true;
  return status;
}

uint32_t ckpt_json_depth(const ckpt_json *json) { return json->depth; }

ckpt_status ckpt_json_resume(ckpt_json *json, uint32_t depth, ckpt_error *err) {
  ckpt_json_token token;
  ckpt_status status = json->is_broken ? ckpt_json_next(json, &token, err) : CKPT_OK;
  json->keep = false;
  while (status == CKPT_OK && json->depth > depth) status = ckpt_json_next(json, &token, err);
  json->keep = true;
  return status;
}

ckpt_status ckpt_json_skip(ckpt_json *json, ckpt_error *err) {
  ckpt_json_token token;
  json->keep = false;
  ckpt_status status = ckpt_json_next(json, &token, err);
  json->keep = true;
  return status == CKPT_OK ? ckpt_json_skip_rest(json, token, err) : status;
}

const char *ckpt_json_text(const ckpt_json *json, size_t *n_bytes) {
  if (n_bytes != NULL) *n_bytes = json->n_text;
  bool is_cut = n_bytes == NULL && json->n_text != 0 && memchr(json->text, '\0', json->n_text) != NULL;
  return is_cut ? "(holds a NUL)" : json->text;
}

bool ckpt_json_u64(const ckpt_json *json, uint64_t *out) {
  uint64_t value = 0;
  if (json->n_text == 0) return false;
  for (size_t i = 0; i < json->n_text; i++) {
    unsigned digit = (unsigned char)json->text[i] - (unsigned)'0';
    if (digit > 9 || __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
      return false;
  }
  *out = value;
  return true;
}

const char *ckpt_json_token_name(ckpt_json_token token) {
  static const char *const names[] = {"the end",
                                      "an object",
                                      "the end of an object",
                                      "an array",
                                      "the end of an array",
                                      "a key",
                                      "a string",
                                      "a number",
                                      "true",
                                      "false",
                                      "null"};
  return (unsigned)token < sizeof names / sizeof *names ? names[token] : "unknown";
}
