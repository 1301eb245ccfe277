/* pickle_skim.c - opcodes by their operands alone, without a stack: what may follow where the machine has refused.
 *
 * The machine is stricter than Python in places (frames, numbers that no pickler writes). A file that is refused there
 * before anything was called would look like no pickle at all; this says whether it goes on as one. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/checked.h"
#include "libckpt/codec/pickle.h"
#include "libckpt/error.h"

enum { WINDOW_BYTES = 64 << 10 };

/* Operand kinds of pickle.def; NO_OPCODE is what the table has nothing for. */
typedef enum operand_kind { NO_OPCODE, IS_NONE, IS_U8, IS_U16, IS_U32, IS_I32, IS_U64, IS_F64, IS_LINE } operand_kind;

static const uint8_t kinds[256] = {
#define CKPT_PICKLE_OP(name, code, operand, action) [code] = IS_##operand,
#include "libckpt/codec/pickle.def"
#undef CKPT_PICKLE_OP
};

typedef struct skim {
  const ckpt_pickle_options *options;
  uint8_t *window;
  uint64_t from, at; /* window: bytes [from, from + n) */
  size_t n;
  char *seen; /* what a GLOBAL or INST named last, as the caller gets it */
} skim;

/* The next n bytes, which the window holds from here on; NULL past the end. */
static ckpt_status take(skim *s, size_t n, const uint8_t **bytes, ckpt_error *err) {
  const ckpt_pickle_options *options = s->options;
  *bytes = NULL;
  if (!ckpt_range_within(s->at, n, options->n_bytes)) return CKPT_OK;
  if (s->at < s->from || !ckpt_range_within(s->at - s->from, n, s->n)) {
    uint64_t left = options->n_bytes - s->at;
    s->from = s->at;
    s->n = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
    if (options->data != NULL)
      memcpy(s->window, (const uint8_t *)options->data + s->at, s->n);
    else
      CKPT_TRY(options->fetch(options->arg, s->at, s->window, s->n, err));
  }
  *bytes = s->window + (s->at - s->from);
  s->at += n;
  return CKPT_OK;
}

static bool is_of_name(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_' ||
         byte == '.';
}

/* Goes past a line; false in *is_line where none ends. A line that is no dotted name clears *is_name; of one that is as
 * much as fits is put behind the *n_seen bytes that were seen. */
static ckpt_status skip_line(skim *s, bool *is_line, bool *is_name, size_t *n_seen, ckpt_error *err) {
  const uint8_t *byte = NULL;
  *is_line = false;
  for (bool is_empty = true;; is_empty = false) {
    CKPT_TRY(take(s, 1, &byte, err));
    if (byte == NULL) return CKPT_OK;
    *is_line = *byte == '\n';
    if (*is_line && is_empty) *is_name = false;
    if (*is_line) return CKPT_OK;
    *is_name = *is_name && is_of_name(*byte);
    if (*is_name && *n_seen < CKPT_PICKLE_SEEN_BYTES) s->seen[(*n_seen)++] = (char)*byte;
  }
}

static bool has_payload(uint8_t op) { return strchr("TUBCX", op) != NULL || (op >= 0x8A && op <= 0x8E) || op == 0x96; }
static bool is_text(uint8_t op) { return (op != 0 && strchr("STUVX", op) != NULL) || op == 0x8C || op == 0x8D; }
static bool calls(uint8_t op) { return op == 'R' || op == 'i' || op == 'o' || op == 0x81 || op == 0x92 || op == 'b'; }

/* Goes past what follows an opcode. */
static ckpt_status skip_operand(skim *s, uint8_t op, bool *is_whole, bool *is_name, ckpt_error *err) {
  static const uint8_t sizes[] = {
      [IS_U8] = 1, [IS_U16] = 2, [IS_U32] = 4, [IS_I32] = 4, [IS_U64] = 8, [IS_F64] = 8, [IS_LINE] = 0};
  const uint8_t *bytes = NULL;
  operand_kind kind = kinds[op];
  *is_whole = kind != NO_OPCODE;
  if (kind == IS_LINE) {
    size_t n_seen = 0;
    CKPT_TRY(skip_line(s, is_whole, is_name, &n_seen, err));
    if (!*is_whole || (op != 'c' && op != 'i')) return CKPT_OK;
    if (n_seen < CKPT_PICKLE_SEEN_BYTES) s->seen[n_seen++] = '.';
    CKPT_TRY(skip_line(s, is_whole, is_name, &n_seen, err));
    s->seen[*is_whole && *is_name ? n_seen : 0] = '\0';
    return CKPT_OK;
  }
  if (kind <= IS_NONE) return CKPT_OK;
  CKPT_TRY(take(s, sizes[kind], &bytes, err));
  *is_whole = bytes != NULL;
  if (bytes == NULL || !has_payload(op)) return CKPT_OK;
  uint64_t n = 0;
  for (size_t i = sizes[kind]; i-- > 0;) n = n << 8 | bytes[i];
  *is_whole = ckpt_range_within(s->at, n, s->options->n_bytes);
  if (*is_whole) s->at += n;
  return CKPT_OK;
}

/* Whether what was read before counts: not where Python, too, refuses, as it does where a stack has too little. */
static bool is_stricter(const skim *s, ckpt_status refusal) {
  const uint8_t *op = s->window + (s->at - s->from);
  return refusal != CKPT_EFORMAT || (s->at - s->from < s->n && kinds[*op] > IS_NONE);
}

ckpt_status ckpt_pickle_goes_on(bool *goes_on, char seen[CKPT_PICKLE_SEEN_BYTES + 1],
                                const ckpt_pickle_options *options, ckpt_status refusal, ckpt_error *err) {
  const ckpt_pickle_report *report = options->report;
  skim s = {.options = options, .window = malloc(WINDOW_BYTES), .at = report->n_consumed, .seen = seen};
  CKPT_TRY_ALLOC(s.window, err);
  seen[0] = '\0';
  const uint8_t *op = NULL;
  ckpt_status status = take(&s, 1, &op, err);
  s.at = report->n_consumed;
  bool is_whole = op != NULL, has_text = false, has_extension = false;
  bool counts = is_whole && is_stricter(&s, refusal), has_name = counts && report->n_globals != 0;
  for (unsigned i = 0; i < 256 && counts; i++) has_text = has_text || (is_text((uint8_t)i) && report->counts[i] != 0);
  *goes_on = false;
  while (is_whole && !*goes_on && status == CKPT_OK) {
    status = take(&s, 1, &op, err);
    if (status != CKPT_OK || op == NULL) break;
    uint8_t code = *op;
    if (code == '.') break;
    bool is_name = code == 'c' || code == 'i';
    if (code == 0x93 || has_extension) seen[0] = '\0'; /* named by values, or by a number */
    status = skip_operand(&s, code, &is_whole, &is_name, err);
    has_text = has_text || is_text(code);
    has_name = has_name || (is_name && is_whole) || (code == 0x93 && has_text) || has_extension;
    *goes_on = has_name && calls(code);
    has_extension = code >= 0x82 && code <= 0x84 && has_text;
  }
  free(s.window);
  return status;
}
