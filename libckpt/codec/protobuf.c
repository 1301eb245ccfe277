/* protobuf.c - see protobuf.h. */
#include "libckpt/codec/protobuf.h"

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

enum { FIRST_WINDOW = 4096, MAX_NUMBER = (1 << 29) - 1 };

/* Fills the window from a place on: little after a jump, more and more while one window follows the other. */
static ckpt_status fill(ckpt_wire *wire, uint64_t at, ckpt_error *err) {
  const uint64_t n_left = ckpt_source_size(wire->source, wire->file) - at;
  const bool goes_on = wire->n_window != 0 && at == wire->window_at + wire->n_window;
  size_t n = goes_on ? 4 * wire->n_window : FIRST_WINDOW;
  if (n > CKPT_WIRE_WINDOW) n = CKPT_WIRE_WINDOW;
  if (n > n_left) n = (size_t)n_left;
  wire->n_window = 0;
  CKPT_TRY(ckpt_source_read(wire->source, wire->file, at, wire->window, n, err));
  wire->window_at = at;
  wire->n_window = n;
  return CKPT_OK;
}

/* What the window has at a place of the file, at least a byte. */
static ckpt_status look(ckpt_wire *wire, uint64_t at, const uint8_t **bytes, size_t *n, ckpt_error *err) {
  if (at < wire->window_at || at - wire->window_at >= wire->n_window) CKPT_TRY(fill(wire, at, err));
  *bytes = wire->window + (at - wire->window_at);
  *n = wire->n_window - (size_t)(at - wire->window_at);
  return CKPT_OK;
}

ckpt_status ckpt_wire_bytes(ckpt_wire *wire, uint64_t at, void *out, uint64_t n, ckpt_error *err) {
  for (uint8_t *to = out; n != 0;) {
    const uint8_t *bytes;
    size_t n_there;
    CKPT_TRY(look(wire, at, &bytes, &n_there, err));
    if (n_there > n) n_there = (size_t)n;
    memcpy(to, bytes, n_there);
    to += n_there, at += n_there, n -= n_there;
  }
  return CKPT_OK;
}

ckpt_status ckpt_wire_varint(ckpt_wire *wire, uint64_t *value, ckpt_error *err) {
  const uint64_t begin = wire->at;
  *value = 0;
  for (unsigned i = 0; i < CKPT_WIRE_VARINT_BYTES; i++) {
    const uint8_t *byte;
    size_t n;
    if (wire->at == wire->end)
      return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL,
                       "truncated or lies: a number at byte %llu goes past the end of its message (download it again)",
                       (ull)begin);
    CKPT_TRY(look(wire, wire->at, &byte, &n, err));
    wire->at++;
    *value |= (uint64_t)(*byte & 0x7F) << (7 * i); /* of the tenth byte one bit counts, as everywhere */
    if ((*byte & 0x80) == 0) return CKPT_OK;
  }
  return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL, "a number of more than ten bytes at byte %llu", (ull)begin);
}

ckpt_status ckpt_wire_next(ckpt_wire *wire, ckpt_wire_field *field, ckpt_error *err) {
  uint64_t tag;
  *field = (ckpt_wire_field){.begin = wire->at};
  CKPT_TRY(ckpt_wire_varint(wire, &tag, err));
  const unsigned type = tag & 7;
  if (tag >> 3 == 0 || tag >> 3 > MAX_NUMBER)
    return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL, "field number %llu at byte %llu is none", (ull)(tag >> 3),
                     (ull)field->begin);
  field->number = (uint32_t)(tag >> 3);
  field->type = (ckpt_wire_type)type;
  field->at = wire->at;
  if (type == CKPT_WIRE_VARINT) {
    CKPT_TRY(ckpt_wire_varint(wire, &field->value, err));
    field->n = wire->at - field->at;
    return CKPT_OK;
  }
  if (type == CKPT_WIRE_BYTES) {
    CKPT_TRY(ckpt_wire_varint(wire, &field->n, err));
    field->at = wire->at;
  } else if (type == CKPT_WIRE_FIXED64 || type == CKPT_WIRE_FIXED32) {
    field->n = type == CKPT_WIRE_FIXED64 ? 8 : 4;
  } else {
    return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL, "field %u at byte %llu has wire type %u, which is not read",
                     field->number, (ull)field->begin, type);
  }
  if (field->n > wire->end - wire->at)
    return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL,
                     "truncated or lies: field %u at byte %llu has %llu byte%s, %llu remain (download it again)",
                     field->number, (ull)field->begin, (ull)field->n, ckpt_plural(field->n),
                     (ull)(wire->end - wire->at));
  wire->at += field->n;
  return CKPT_OK;
}

ckpt_status ckpt_wire_count(ckpt_wire *wire, uint64_t at, uint64_t n, uint64_t *count, ckpt_error *err) {
  const uint64_t begin = at;
  bool is_whole = true;
  *count = 0;
  while (n != 0) {
    const uint8_t *bytes;
    size_t n_there;
    CKPT_TRY(look(wire, at, &bytes, &n_there, err));
    if (n_there > n) n_there = (size_t)n;
    for (size_t i = 0; i < n_there; i++) *count += bytes[i] < 0x80;
    is_whole = bytes[n_there - 1] < 0x80;
    at += n_there, n -= n_there;
  }
  if (is_whole) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL, "the last of the packed numbers at byte %llu is cut off",
                   (ull)begin);
}

ckpt_status ckpt_wire_expect(const ckpt_wire *wire, const ckpt_wire_field *field, ckpt_wire_type type, const char *what,
                             ckpt_error *err) {
  if (field->type == type) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL, "field %u of %s at byte %llu has wire type %d, not %d",
                   field->number, what, (ull)field->begin, (int)field->type, (int)type);
}

unsigned ckpt_wire_put(uint8_t out[CKPT_WIRE_VARINT_BYTES], uint64_t value) {
  unsigned n = 0;
  for (; value >= 0x80; value >>= 7) out[n++] = (uint8_t)(value | 0x80);
  out[n++] = (uint8_t)value;
  return n;
}
