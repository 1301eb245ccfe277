/* skim.c - opcodes by their operands alone, without a stack: what may follow where the machine has refused.
 *
 * The machine is stricter than Python in places (frames, numbers that no pickler writes). A file that is refused there
 * before anything was called would look like no pickle at all; this says whether it goes on as one. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"

enum { WINDOW_BYTES = 64 << 10 };

/* Operand kinds of opcodes.def; NO_OPCODE is what the table has nothing for. */
typedef enum operand_kind { NO_OPCODE, IS_NONE, IS_U8, IS_U16, IS_U32, IS_I32, IS_U64, IS_F64, IS_LINE } operand_kind;

static const uint8_t kinds[256] = {
#define CKPT_PICKLE_OP(name, code, operand, action) [code] = IS_##operand,
#include "libckpt/codec/pickle/opcodes.def"
#undef CKPT_PICKLE_OP
};

typedef struct skim {
  const ckpt_pickle_options *options;
  uint8_t *window;
  uint64_t from, at; /* window: bytes [from, from + n) */
  size_t n;
  char *seen; /* room for a name of ckpt_pickle_rest; NULL: nobody asks */
  size_t n_seen;
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

/* A line that is gone past, byte by byte: its opcode, and what it may be. */
typedef struct line {
  uint8_t op;
  bool is_number; /* what the opcode wants */
  bool has_begun; /* with what is no blank */
  bool has_end;   /* of what C reads as a number: a byte of zero */
  bool is_name;   /* a dotted name, which is not empty */
  bool is_good;   /* nothing in it that every Python refuses */
} line;

static bool is_blank(uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* What stands in a line of this opcode for certain, in every Python: digits of a number, quotes around a string. */
static void add_byte(line *l, uint8_t byte) {
  l->is_name = l->is_name && is_of_name(byte);
  if (l->op == 'P') l->is_good = l->is_good && byte < 0x80;
  if (l->op == 'S' && !l->has_begun) l->is_good = byte == '\'' || byte == '"';
  if (l->is_number && byte == 0) l->has_end = true;
  if (l->is_number && !l->has_end && !is_blank(byte)) {
    bool is_first = (byte >= '0' && byte <= '9') || byte == '+' || byte == '-';
    if (l->op == 'F') is_first = is_first || memchr(".iInN", byte, 5) != NULL;
    bool is_more = is_first || is_of_name(byte);
    l->is_good = l->is_good && (l->has_begun ? is_more : is_first);
  }
  l->has_begun = l->has_begun || !is_blank(byte) || !l->is_number;
}

/* Whether nothing that follows in the line changes what it is. */
static bool is_settled(const line *l) {
  const bool is_judged = l->op == 'P' || (l->is_number && !l->has_end);
  return !l->is_name && !(is_judged && l->is_good);
}

/* Goes past a line; false in *is_whole where none ends, or Python refuses it. One that is no dotted name clears
 * *is_name. */
static ckpt_status skip_line(skim *s, uint8_t op, bool *is_whole, bool *is_name, ckpt_error *err) {
  line l = {.op = op, .is_number = memchr("ILFgp", op, 5) != NULL, .is_name = true, .is_good = true};
  bool ends = false;
  while (!ends) {
    const uint8_t *byte;
    CKPT_TRY(take(s, 1, &byte, err));
    if (byte == NULL) break;
    const uint8_t *from = byte + 1, *end = s->window + s->n;
    for (; byte < end && *byte != '\n' && !is_settled(&l); byte++) {
      add_byte(&l, *byte);
      if (l.is_name && s->seen != NULL && s->n_seen < CKPT_PICKLE_SEEN_BYTES) s->seen[s->n_seen++] = (char)*byte;
    }
    const uint8_t *newline = byte == end ? NULL : memchr(byte, '\n', (size_t)(end - byte));
    ends = newline != NULL;
    s->at += (size_t)((ends ? newline + 1 : end) - from);
  }
  *is_whole = ends && l.is_good;
  *is_name = *is_name && l.is_name && l.has_begun;
  return CKPT_OK;
}

/* The lines of a GLOBAL or INST: a module and a name. */
static ckpt_status skip_name(skim *s, uint8_t op, bool *is_whole, bool *is_name, ckpt_error *err) {
  s->n_seen = 0;
  CKPT_TRY(skip_line(s, op, is_whole, is_name, err));
  if (!*is_whole) return CKPT_OK;
  if (s->seen != NULL && s->n_seen < CKPT_PICKLE_SEEN_BYTES) s->seen[s->n_seen++] = '.';
  CKPT_TRY(skip_line(s, op, is_whole, is_name, err));
  if (s->seen != NULL) s->seen[*is_whole && *is_name ? s->n_seen : 0] = '\0';
  return CKPT_OK;
}

static bool has_payload(uint8_t op) {
  return memchr("TUBCX", op, 5) != NULL || (op >= 0x8A && op <= 0x8E) || op == 0x96;
}
static bool is_text(uint8_t op) { return (op != 0 && strchr("STUVX", op) != NULL) || op == 0x8C || op == 0x8D; }
static bool calls(uint8_t op) { return op == 'R' || op == 'i' || op == 'o' || op == 0x81 || op == 0x92 || op == 'b'; }

/* Goes past what follows an opcode. */
static ckpt_status skip_operand(skim *s, uint8_t op, bool *is_whole, bool *is_name, ckpt_error *err) {
  static const uint8_t sizes[] = {
      [IS_U8] = 1, [IS_U16] = 2, [IS_U32] = 4, [IS_I32] = 4, [IS_U64] = 8, [IS_F64] = 8, [IS_LINE] = 0};
  const uint8_t *bytes = NULL;
  operand_kind kind = kinds[op];
  *is_whole = kind != NO_OPCODE;
  s->n_seen = CKPT_PICKLE_SEEN_BYTES; /* the last name stays */
  if (kind == IS_LINE)
    return op == 'c' || op == 'i' ? skip_name(s, op, is_whole, is_name, err) : skip_line(s, op, is_whole, is_name, err);
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

/* Whether an opcode makes a name of a class or callable. */
static bool names(uint8_t op) { return op == 'c' || op == 'i' || op == 0x93 || (op >= 0x82 && op <= 0x84); }

static ckpt_status begin(skim *s, const ckpt_pickle_options *options, uint64_t at, ckpt_error *err) {
  *s = (skim){.options = options, .window = malloc(WINDOW_BYTES), .at = at};
  CKPT_TRY_ALLOC(s->window, err);
  return CKPT_OK;
}

/* What was read before the refusal counts: text that may become a name, and names. An extension's code is one where
 * there is text, too. */
static void count_before(const ckpt_pickle_options *options, bool *has_text, bool *has_name) {
  const ckpt_pickle_report *report = options->report;
  *has_text = options->base != 0; /* of a pickle before it, through one memo */
  for (unsigned i = 0; i < 256; i++) *has_text = *has_text || (is_text((uint8_t)i) && report->counts[i] != 0);
  *has_name = ckpt_pickle_has_name(report, *has_text);
}

ckpt_status ckpt_pickle_skim(ckpt_pickle_rest *rest, const ckpt_pickle_options *options, ckpt_error *err) {
  const ckpt_pickle_report *report = options->report;
  bool is_whole = true, has_text, has_name;
  const uint8_t *op = NULL;
  skim s;
  *rest = (ckpt_pickle_rest){.end = report->n_consumed};
  if (report->is_refused) return CKPT_OK;
  CKPT_TRY(begin(&s, options, report->n_consumed, err));
  s.seen = rest->seen;
  count_before(options, &has_text, &has_name);
  ckpt_status status = CKPT_OK;
  while (is_whole && !rest->goes_on && !rest->has_stop) {
    CKPT_TRY_GOTO(take(&s, 1, &op, err));
    if (op == NULL) break;
    uint8_t code = *op;
    bool is_name = true;
    if (names(code)) rest->seen[0] = '\0'; /* by values, or by a number, unless it says more */
    CKPT_TRY_GOTO(skip_operand(&s, code, &is_whole, &is_name, err));
    has_text = has_text || is_text(code);
    has_name = has_name || (names(code) && is_whole && is_name && (code < 0x80 || has_text));
    rest->goes_on = is_whole && has_name && calls(code);
    rest->has_stop = code == '.';
  }
done:
  rest->end = s.at;
  free(s.window);
  return status;
}

ckpt_status ckpt_pickle_skip_idle(uint64_t *n_bytes, const ckpt_pickle_options *options, ckpt_error *err) {
  bool is_idle = true, is_name = true;
  const uint8_t *op = NULL;
  skim s;
  *n_bytes = 0;
  CKPT_TRY(begin(&s, options, 0, err));
  ckpt_status status = CKPT_OK;
  while (is_idle) {
    CKPT_TRY_GOTO(take(&s, 1, &op, err));
    if (op == NULL) break;
    uint8_t code = *op;
    if (code == 0x80 || names(code) || calls(code)) break;
    CKPT_TRY_GOTO(skip_operand(&s, code, &is_idle, &is_name, err));
    if (code == '.') *n_bytes = s.at;
  }
done:
  free(s.window);
  return status;
}
