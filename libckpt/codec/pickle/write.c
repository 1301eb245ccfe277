/* write.c - opcodes of pickle protocol 2; Lib/pickle.py of Python 3.11 is the reference for which opcode stands
 * for which value. */
#include "libckpt/codec/pickle/write.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"

static void put(ckpt_pickle_writer *w, uint8_t opcode) { ckpt_stream_bytes(w->out, &opcode, 1); }

static void put_le(ckpt_pickle_writer *w, uint8_t opcode, uint64_t value, unsigned n_bytes) {
  put(w, opcode);
  ckpt_stream_le(w->out, value, n_bytes);
}

ckpt_pickle_writer ckpt_pickle_start(ckpt_stream *out) {
  ckpt_pickle_writer writer = {.out = out};
  put_le(&writer, 0x80, 2, 1); /* PROTO */
  return writer;
}

void ckpt_pickle_stop(ckpt_pickle_writer *writer) { put(writer, '.'); }

/* ---- values ------------------------------------------------------------------------------------------------------ */

void ckpt_pickle_put_none(ckpt_pickle_writer *writer) { put(writer, 'N'); }

void ckpt_pickle_put_bool(ckpt_pickle_writer *writer, bool value) { put(writer, value ? 0x88 : 0x89); }

/* LONG1: the shortest two's complement of `n` little-endian bytes. */
static void put_long(ckpt_pickle_writer *w, const uint8_t *bytes, size_t n) {
  while (n > 1 && ((bytes[n - 1] == 0 && bytes[n - 2] < 0x80) || (bytes[n - 1] == 0xFF && bytes[n - 2] >= 0x80))) n--;
  if (n == 1 && bytes[0] == 0) n = 0;
  if (n <= UINT8_MAX)
    put_le(w, 0x8A, n, 1);
  else
    put_le(w, 0x8B, n, 4); /* LONG4 */
  ckpt_stream_bytes(w->out, bytes, n);
}

void ckpt_pickle_put_u64(ckpt_pickle_writer *writer, uint64_t value) {
  uint8_t bytes[9] = {0};
  if (value <= INT64_MAX) {
    ckpt_pickle_put_int(writer, (int64_t)value);
    return;
  }
  ckpt_put_le64(bytes, value);
  put_long(writer, bytes, sizeof bytes);
}

void ckpt_pickle_put_int(ckpt_pickle_writer *writer, int64_t value) {
  uint64_t bits = (uint64_t)value;
  if (value >= 0 && value <= UINT8_MAX) {
    put_le(writer, 'K', bits, 1);
  } else if (value >= 0 && value <= UINT16_MAX) {
    put_le(writer, 'M', bits, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    put_le(writer, 'J', bits & UINT32_MAX, 4);
  } else {
    uint8_t bytes[8];
    ckpt_put_le64(bytes, bits);
    put_long(writer, bytes, sizeof bytes);
  }
}

void ckpt_pickle_put_bigint(ckpt_pickle_writer *writer, const char *digits) {
  uint8_t bytes[CKPT_PICKLE_MAX_DIGITS / 2 + 2] = {0}; /* log2(10) / 8 = 0.42 bytes a digit, and the sign */
  size_t n = 1;
  bool is_negative = digits[0] == '-';
  const char *at = digits + is_negative;
  size_t n_digits = strspn(at, "0123456789");
  if (n_digits == 0 || n_digits > CKPT_PICKLE_MAX_DIGITS || at[n_digits] != '\0') {
    ckpt_stream_fail(writer->out,
                     ckpt_fail(writer->out->err, CKPT_EINTERNAL, NULL, NULL, "no decimal number to pickle"));
    return;
  }
  for (; *at != '\0'; at++) {
    unsigned carry = (unsigned)(*at - '0');
    for (size_t i = 0; i < n; i++) {
      carry += bytes[i] * 10U;
      bytes[i] = (uint8_t)carry;
      carry >>= 8;
    }
    if (carry != 0) bytes[n++] = (uint8_t)carry;
  }
  n++; /* a zero byte: the sign */
  for (size_t i = 0, carry = 1; is_negative && i < n; i++) {
    carry += (uint8_t)~bytes[i];
    bytes[i] = (uint8_t)carry;
    carry >>= 8;
  }
  put_long(writer, bytes, n);
}

void ckpt_pickle_put_float(ckpt_pickle_writer *writer, double value) {
  uint64_t bits;
  uint8_t bytes[9] = {'G'};
  memcpy(&bits, &value, sizeof bits);
  for (unsigned i = 0; i < 8; i++) bytes[1 + i] = (uint8_t)(bits >> (56 - 8 * i));
  ckpt_stream_bytes(writer->out, bytes, sizeof bytes);
}

/* The head of a BINUNICODE of n bytes; false where it cannot hold them. */
static bool put_text_head(ckpt_pickle_writer *w, uint64_t n_bytes) {
  if (n_bytes > UINT32_MAX) {
    ckpt_stream_fail(w->out, ckpt_fail(w->out->err, CKPT_ELIMIT, NULL, NULL,
                                       "a text of %llu bytes is too long for pickle protocol 2 (4,294,967,295 bytes)",
                                       (unsigned long long)n_bytes));
    return false;
  }
  put_le(w, 'X', n_bytes, 4);
  return true;
}

void ckpt_pickle_put_text(ckpt_pickle_writer *writer, const char *text, uint64_t n_bytes) {
  if (put_text_head(writer, n_bytes)) ckpt_stream_bytes(writer->out, text, n_bytes);
}

void ckpt_pickle_put_bytes(ckpt_pickle_writer *writer, const uint8_t *bytes, uint64_t n_bytes) {
  uint64_t n_text = n_bytes;
  for (uint64_t i = 0; i < n_bytes; i++) n_text += bytes[i] >> 7;
  ckpt_pickle_put_global(writer, "_codecs", "encode");
  if (!put_text_head(writer, n_text)) return;
  for (uint64_t i = 0; i < n_bytes; i++) {
    uint8_t pair[2] = {(uint8_t)(0xC0 | bytes[i] >> 6), (uint8_t)(0x80 | (bytes[i] & 0x3F))};
    if (bytes[i] < 0x80)
      ckpt_stream_bytes(writer->out, &bytes[i], 1);
    else
      ckpt_stream_bytes(writer->out, pair, sizeof pair);
  }
  ckpt_pickle_put_text(writer, "latin1", 6);
  ckpt_pickle_put_tuple(writer, 2);
  ckpt_pickle_put_reduce(writer);
}

void ckpt_pickle_put_global(ckpt_pickle_writer *writer, const char *module, const char *name) {
  put(writer, 'c');
  ckpt_stream_text(writer->out, module);
  ckpt_stream_text(writer->out, "\n");
  ckpt_stream_text(writer->out, name);
  ckpt_stream_text(writer->out, "\n");
}

/* ---- containers and calls ---------------------------------------------------------------------------------------- */

void ckpt_pickle_put_mark(ckpt_pickle_writer *writer) { put(writer, '('); }
void ckpt_pickle_put_empty_dict(ckpt_pickle_writer *writer) { put(writer, '}'); }
void ckpt_pickle_put_empty_list(ckpt_pickle_writer *writer) { put(writer, ']'); }
void ckpt_pickle_put_empty_tuple(ckpt_pickle_writer *writer) { put(writer, ')'); }
void ckpt_pickle_put_setitem(ckpt_pickle_writer *writer) { put(writer, 's'); }
void ckpt_pickle_put_setitems(ckpt_pickle_writer *writer) { put(writer, 'u'); }
void ckpt_pickle_put_append(ckpt_pickle_writer *writer) { put(writer, 'a'); }
void ckpt_pickle_put_appends(ckpt_pickle_writer *writer) { put(writer, 'e'); }
void ckpt_pickle_put_reduce(ckpt_pickle_writer *writer) { put(writer, 'R'); }
void ckpt_pickle_put_newobj(ckpt_pickle_writer *writer) { put(writer, 0x81); }
void ckpt_pickle_put_build(ckpt_pickle_writer *writer) { put(writer, 'b'); }
void ckpt_pickle_put_persid(ckpt_pickle_writer *writer) { put(writer, 'Q'); }

void ckpt_pickle_put_tuple(ckpt_pickle_writer *writer, uint64_t n) {
  static const uint8_t opcodes[] = {')', 0x85, 0x86, 0x87};
  put(writer, n < sizeof opcodes ? opcodes[n] : 't');
}

uint32_t ckpt_pickle_keep(ckpt_pickle_writer *writer) {
  if (writer->n_memo <= UINT8_MAX)
    put_le(writer, 'q', writer->n_memo, 1);
  else
    put_le(writer, 'r', writer->n_memo, 4);
  return writer->n_memo++;
}

void ckpt_pickle_recall(ckpt_pickle_writer *writer, uint32_t number) {
  if (number <= UINT8_MAX)
    put_le(writer, 'h', number, 1);
  else
    put_le(writer, 'j', number, 4);
}

void ckpt_pickle_put_u64s(ckpt_pickle_writer *writer, const uint64_t *values, uint32_t n) {
  if (n > 3) ckpt_pickle_put_mark(writer);
  for (uint32_t i = 0; i < n; i++) ckpt_pickle_put_u64(writer, values[i]);
  ckpt_pickle_put_tuple(writer, n);
}
