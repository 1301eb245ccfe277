/* value.c - scalars: binary operands, and the text forms of protocol 0 with Python's own rules.
 *
 * Python's int() and float() accept spaces around a number and underscores between digits; no pickler writes either,
 * and neither is accepted here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libckpt/base/text.h"
#include "libckpt/codec/pickle/machine.h"

/* ---- integers ----------------------------------------------------------------------------------------------- */

static ckpt_status push_int(ckpt_pickle_machine *m, int64_t value) {
  ckpt_object **cached = &m->ints[((uint64_t)value ^ (uint64_t)value >> 12) % PICKLE_CACHED_INTS];
  if (*cached != NULL && (*cached)->integer == value) return ckpt_pickle_push(m, *cached);
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_INT, &object));
  object->integer = value;
  *cached = object;
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_int(ckpt_pickle_machine *m, uint64_t operand) { return push_int(m, (int64_t)operand); }

/* Of decimal text in the arena. */
static ckpt_status push_bigint(ckpt_pickle_machine *m, const char *text, size_t n) {
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_BIGINT, &object));
  object->text = text;
  object->n = n;
  return ckpt_pickle_push(m, object);
}

static ckpt_status long_limit(const ckpt_pickle_machine *m, uint64_t n, const char *what) {
  return ckpt_pickle_fail(m, CKPT_ELIMIT, "an integer of %" PRIu64 " %s (the limit is %" PRIu64 " bytes)", n, what,
                          m->limits.n_long);
}

/* The i-th four bytes of a two's complement number, complemented where it is negative (~x = -x - 1). */
static uint32_t limb_of(const uint8_t *bytes, size_t n_bytes, size_t i, bool negative) {
  uint32_t limb = 0;
  for (size_t k = 4; k-- > 0;) {
    uint8_t byte = 4 * i + k < n_bytes ? bytes[4 * i + k] : negative ? 0xFF : 0;
    limb = limb << 8 | byte;
  }
  return negative ? ~limb : limb;
}

/* Decimal digits, with a sign, of n_bytes > 0 two's complement bytes: digits of base 10^9, lowest first, by multiplying
 * and adding from the top. The caller frees *text. */
static ckpt_status decimal_of(ckpt_pickle_machine *m, const uint8_t *bytes, size_t n_bytes, char **text) {
  enum { BASE = 1000000000 };
  size_t n_room = n_bytes * 8 / 29 + 2, n = 1;
  bool negative = (bytes[n_bytes - 1] & 0x80) != 0;
  uint32_t *digits = calloc(n_room, sizeof *digits);
  *text = calloc(n_room + 1, 9);
  if (digits == NULL || *text == NULL) {
    free(digits);
    return ckpt_pickle_fail(m, CKPT_ENOMEM, "out of memory");
  }
  for (size_t i = (n_bytes + 3) / 4; i-- > 0;) {
    uint64_t carry = limb_of(bytes, n_bytes, i, negative);
    for (size_t k = 0; k < n; k++) {
      carry += (uint64_t)digits[k] << 32;
      digits[k] = (uint32_t)(carry % BASE);
      carry /= BASE;
    }
    for (; carry != 0; carry /= BASE) digits[n++] = (uint32_t)(carry % BASE);
  }
  for (size_t k = 0; negative; k++) { /* the complement plus one */
    if (k == n) n++;
    if (++digits[k] < BASE) break;
    digits[k] = 0;
  }
  size_t at = (size_t)snprintf(*text, 12, "%s%" PRIu32, negative ? "-" : "", digits[n - 1]);
  while (--n > 0) at += (size_t)snprintf(*text + at, 10, "%09" PRIu32, digits[n - 1]);
  free(digits);
  return CKPT_OK;
}

ckpt_status ckpt_pickle_do_long(ckpt_pickle_machine *m, uint64_t n) {
  if ((int64_t)n < 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "an integer of size %" PRId64, (int64_t)n);
  if (n > m->limits.n_long) return long_limit(m, n, "bytes");
  const uint8_t *bytes;
  CKPT_TRY(ckpt_pickle_take(m, (size_t)n, &bytes));
  while (n > 8 && bytes[n - 1] == ((bytes[n - 2] & 0x80) != 0 ? 0xFF : 0)) n--; /* no more than its sign */
  if (n <= 8) {
    uint64_t value = n != 0 && (bytes[n - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (uint64_t i = n; i-- > 0;) value = value << 8 | bytes[i];
    return push_int(m, (int64_t)value);
  }
  char *decimal = NULL, *text;
  ckpt_status status = decimal_of(m, bytes, (size_t)n, &decimal);
  if (status == CKPT_OK) {
    size_t n_text = strlen(decimal);
    text = ckpt_pickle_text(m, decimal, n_text);
    status = text == NULL ? ckpt_pickle_fail_memory(m) : push_bigint(m, text, n_text);
  }
  free(decimal);
  return status;
}

/* A decimal integer: digits without leading zeros, perhaps a sign. */
static ckpt_status push_decimal(ckpt_pickle_machine *m, const uint8_t *line, size_t n) {
  bool negative = n != 0 && line[0] == '-', fits = true;
  size_t at = n != 0 && (line[0] == '-' || line[0] == '+');
  if (n / 2 > m->limits.n_long) return long_limit(m, n, "characters");
  if (at == n) return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s without digits", ckpt_pickle_opcode_name(m->op));
  while (at + 1 < n && line[at] == '0' && line[at + 1] == '0') at++;
  bool octal = line[at] == '0' && at + 1 < n; /* to Python an error, or octal, by the version */
  int64_t value = 0;
  for (size_t i = at; i < n; i++) {
    if (octal || line[i] < '0' || line[i] > '9')
      return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s is no decimal integer (character %zu)",
                              ckpt_pickle_opcode_name(m->op), i);
    int digit = negative ? '0' - line[i] : line[i] - '0';
    fits = fits && !__builtin_mul_overflow(value, 10, &value) && !__builtin_add_overflow(value, digit, &value);
  }
  if (fits) return push_int(m, value);
  char *text;
  PICKLE_TRY_ALLOC(m, text = ckpt_pickle_alloc(m, n - at + negative + 1, 1));
  text[0] = '-';
  memcpy(text + negative, line + at, n - at);
  return push_bigint(m, text, n - at + negative);
}

ckpt_status ckpt_pickle_do_int_line(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  const uint8_t *line;
  size_t n;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  if (n == 2 && memcmp(line, "01", 2) == 0) return ckpt_pickle_push(m, m->yes);
  if (n == 2 && memcmp(line, "00", 2) == 0) return ckpt_pickle_push(m, m->no);
  return push_decimal(m, line, n);
}

ckpt_status ckpt_pickle_do_long_line(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  const uint8_t *line;
  size_t n;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  return push_decimal(m, line, n - (n != 0 && line[n - 1] == 'L'));
}

ckpt_status ckpt_pickle_index(ckpt_pickle_machine *m, uint64_t *index) {
  const uint8_t *line;
  size_t n;
  *index = 0;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  bool good = n != 0;
  for (size_t i = 0; i < n && good; i++)
    good = line[i] >= '0' && line[i] <= '9' && !__builtin_mul_overflow(*index, 10, index) &&
           !__builtin_add_overflow(*index, (uint64_t)(line[i] - '0'), index);
  return good ? CKPT_OK
              : ckpt_pickle_fail(m, CKPT_EFORMAT, "%s is no memo number below 2^64", ckpt_pickle_opcode_name(m->op));
}

/* ---- floats ------------------------------------------------------------------------------------------------- */

static ckpt_status push_float(ckpt_pickle_machine *m, double value) {
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_FLOAT, &object));
  object->number = value;
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_float(ckpt_pickle_machine *m, uint64_t operand) {
  double value;
  memcpy(&value, &operand, sizeof value);
  return push_float(m, value);
}

ckpt_status ckpt_pickle_do_float_line(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  const uint8_t *line;
  size_t n;
  char text[128], *end = text;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  if (n != 0 && n < sizeof text) {
    memcpy(text, line, n);
    text[n] = '\0';
    const char *words[] = {"inf", "infinity", "nan"};
    const char *word = text + (text[0] == '+' || text[0] == '-');
    bool is_word = strspn(text, "0123456789+-.eE") == n;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) is_word = is_word || strcasecmp(word, words[i]) == 0;
    double value = ckpt_c_strtod(text, &end);
    if (is_word && end == text + n) return push_float(m, value);
  }
  return ckpt_pickle_fail(m, CKPT_EFORMAT, "FLOAT is no decimal number (of size %zu)", n);
}

/* ---- text and bytes ----------------------------------------------------------------------------------------- */

size_t ckpt_pickle_utf8(const uint8_t *bytes, size_t n) {
  size_t i = 0;
  while (i < n) {
    uint64_t word;
    if (i + sizeof word <= n && (memcpy(&word, bytes + i, sizeof word), (word & UINT64_C(0x8080808080808080)) == 0)) {
      i += sizeof word;
      continue;
    }
    uint8_t c = bytes[i];
    size_t n_more = c < 0x80                ? 0
                    : c >= 0xC2 && c < 0xE0 ? 1
                    : c >= 0xE0 && c < 0xF0 ? 2
                    : c >= 0xF0 && c < 0xF5 ? 3
                                            : n;
    if (n_more >= n - i) return i;
    for (size_t k = 1; k <= n_more; k++)
      if ((bytes[i + k] & 0xC0) != 0x80) return i;
    if ((c == 0xE0 && bytes[i + 1] < 0xA0) || (c == 0xF0 && bytes[i + 1] < 0x90) || (c == 0xF4 && bytes[i + 1] > 0x8F))
      return i;
    i += n_more + 1;
  }
  return n;
}

static ckpt_status push_text(ckpt_pickle_machine *m, ckpt_object_kind kind, const char *text, uint64_t n) {
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_node(m, kind, &object));
  object->text = text; /* bytes lie in the same place of the union */
  object->n = n;
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_unicode(ckpt_pickle_machine *m, uint64_t n) {
  char *text;
  CKPT_TRY(ckpt_pickle_payload(m, n, &text));
  size_t at = ckpt_pickle_utf8((const uint8_t *)text, (size_t)n);
  m->report->is_refused = at != n;
  if (at != n) return ckpt_pickle_fail(m, CKPT_EFORMAT, "text that is no UTF-8 (byte %zu of %" PRIu64 ")", at, n);
  return push_text(m, CKPT_OBJECT_TEXT, text, n);
}

ckpt_status ckpt_pickle_do_bytes(ckpt_pickle_machine *m, uint64_t n) {
  char *text;
  CKPT_TRY(ckpt_pickle_payload(m, n, &text));
  return push_text(m, CKPT_OBJECT_BYTES, text, n);
}

ckpt_status ckpt_pickle_do_bytearray(ckpt_pickle_machine *m, uint64_t n) {
  CKPT_TRY(ckpt_pickle_do_bytes(m, n));
  m->stack[m->n_stack - 1]->name = CKPT_PICKLE_BYTEARRAY;
  return CKPT_OK;
}

/* Text of Python 2, which was bytes: TEXT where it can be. */
static ckpt_status push_string(ckpt_pickle_machine *m, const char *text, size_t n) {
  bool is_text = ckpt_pickle_utf8((const uint8_t *)text, n) == n;
  return push_text(m, is_text ? CKPT_OBJECT_TEXT : CKPT_OBJECT_BYTES, text, n);
}

ckpt_status ckpt_pickle_do_string(ckpt_pickle_machine *m, uint64_t n) {
  char *text;
  if ((int64_t)n < 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "a string of size %" PRId64, (int64_t)n);
  CKPT_TRY(ckpt_pickle_payload(m, n, &text));
  return push_string(m, text, (size_t)n);
}

/* The value of a hexadecimal digit, -1 for another character. */
static int hex(uint8_t c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* What stands after a backslash in a string's repr: the byte in *byte; how many characters; 0 where it is no escape, -1
 * where it is a broken one. */
static int unescape(const uint8_t *text, size_t n, char *byte) {
  static const char letters[] = "\\'\"bftnrva", values[] = "\\'\"\b\f\t\n\r\v\a";
  if (n == 0) return -1;
  const char *letter = memchr(letters, text[0], sizeof letters - 1);
  if (letter != NULL) {
    *byte = values[letter - letters];
    return 1;
  }
  if (text[0] == 'x') {
    if (n < 3 || hex(text[1]) < 0 || hex(text[2]) < 0) return -1;
    *byte = (char)(hex(text[1]) << 4 | hex(text[2]));
    return 3;
  }
  int value = 0, n_digits = 0;
  for (; n_digits < 3 && (size_t)n_digits < n && text[n_digits] >= '0' && text[n_digits] <= '7'; n_digits++)
    value = value << 3 | (text[n_digits] - '0');
  *byte = (char)value;
  return n_digits;
}

ckpt_status ckpt_pickle_do_string_line(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  const uint8_t *line;
  size_t n, n_out = 0;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  if (n < 2 || line[0] != line[n - 1] || (line[0] != '"' && line[0] != '\''))
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "STRING without quotes around it (of size %zu)", n);
  line++;
  n -= 2;
  char *out;
  PICKLE_TRY_ALLOC(m, out = ckpt_pickle_alloc(m, n + 1, 1));
  for (size_t i = 0; i < n; i++) {
    out[n_out++] = (char)line[i];
    if (line[i] != '\\') continue;
    int n_escape = unescape(line + i + 1, n - i - 1, &out[n_out - 1]);
    if (n_escape < 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "STRING has a broken escape (byte %zu of %zu)", i, n);
    if (n_escape == 0) out[n_out - 1] = '\\';
    i += (size_t)n_escape;
  }
  out[n_out] = '\0';
  return push_string(m, out, n_out);
}

/* Writes a code point as UTF-8, surrogates too; returns the number of bytes. */
static size_t put_utf8(char *out, uint32_t code) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = n; --i > 0; code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
  out[0] = (char)(0xF00 >> n | code);
  return n;
}

ckpt_status ckpt_pickle_do_unicode_line(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  const uint8_t *line;
  size_t n, n_out = 0;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  char *out;
  PICKLE_TRY_ALLOC(m, out = ckpt_pickle_alloc(m, n + 1, 2));
  for (size_t i = 0; i < n; i++) {
    uint32_t code = line[i];
    bool is_pair = code == '\\' && i + 1 < n;
    if (is_pair && (line[i + 1] == 'u' || line[i + 1] == 'U')) {
      size_t n_digits = line[i + 1] == 'u' ? 4 : 8, k = 0;
      for (code = 0; k < n_digits && i + 2 + k < n && hex(line[i + 2 + k]) >= 0; k++)
        code = code << 4 | (uint32_t)hex(line[i + 2 + k]);
      if (k < n_digits || code > 0x10FFFF)
        return ckpt_pickle_fail(m, CKPT_EFORMAT, "UNICODE has a broken escape (byte %zu of %zu)", i, n);
      i += 1 + n_digits;
    } else if (is_pair) { /* the next character is no escape's beginning, whatever it is */
      out[n_out++] = '\\';
      code = line[++i];
    }
    n_out += put_utf8(out + n_out, code);
  }
  out[n_out] = '\0';
  return push_text(m, CKPT_OBJECT_TEXT, out, n_out);
}
