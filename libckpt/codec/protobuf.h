/* protobuf.h - walks protobuf's wire format field by field over a file. It decodes nothing and trusts nothing.
 *
 * A message is a sequence of fields: a tag (number and type), a length if the type has one, and a value. The walk reads
 * tags and lengths through a small window and steps over values, so gigabytes of data cost only their structure. It
 * refuses groups, which nobody has written for years. */
#ifndef CKPT_CODEC_PROTOBUF_H
#define CKPT_CODEC_PROTOBUF_H

#include "libckpt/io/source.h"

typedef enum ckpt_wire_type {
  CKPT_WIRE_VARINT = 0,
  CKPT_WIRE_FIXED64 = 1,
  CKPT_WIRE_BYTES = 2, /* a length and so many bytes: text, a message, packed numbers */
  CKPT_WIRE_FIXED32 = 5
} ckpt_wire_type;

/* Bytes of the largest window, and of the longest number. */
enum { CKPT_WIRE_WINDOW = 1 << 16, CKPT_WIRE_VARINT_BYTES = 10 };

/* A walk. Zero-initialise it but for source, file, path (for messages; borrowed) and end (the file's size). */
typedef struct ckpt_wire {
  ckpt_source *source;
  uint32_t file;
  const char *path;
  uint64_t at;  /* the next field; set it to go elsewhere */
  uint64_t end; /* of the message that is walked */
  uint64_t window_at;
  size_t n_window;
  uint8_t window[CKPT_WIRE_WINDOW];
} ckpt_wire;

typedef struct ckpt_wire_field {
  uint32_t number;
  ckpt_wire_type type;
  uint64_t begin; /* of the tag */
  uint64_t at, n; /* of the value's bytes, behind the length where there is one */
  uint64_t value; /* VARINT */
} ckpt_wire_field;

/* Reads the field at `at` and moves `at` behind it. EFORMAT: it is no field, or exceeds the message; EIO. */
ckpt_status ckpt_wire_next(ckpt_wire *wire, ckpt_wire_field *field, ckpt_error *err);

/* The number at `at`, which moves behind it: one of those that are packed in a field. EFORMAT, EIO. */
ckpt_status ckpt_wire_varint(ckpt_wire *wire, uint64_t *value, ckpt_error *err);

/* n bytes at a place of the file, which has them. The walk stays where it is. */
ckpt_status ckpt_wire_bytes(ckpt_wire *wire, uint64_t at, void *out, uint64_t n, ckpt_error *err);

/* How many varints are packed in n bytes at a place. EFORMAT: the last one is cut off. */
ckpt_status ckpt_wire_count(ckpt_wire *wire, uint64_t at, uint64_t n, uint64_t *count, ckpt_error *err);

/* EFORMAT unless the field has this type. what: of which it is a part. */
ckpt_status ckpt_wire_expect(const ckpt_wire *wire, const ckpt_wire_field *field, ckpt_wire_type type, const char *what,
                             ckpt_error *err);

/* Writes a varint of at most 10 bytes; returns how many. */
unsigned ckpt_wire_put(uint8_t out[CKPT_WIRE_VARINT_BYTES], uint64_t value);

/* The tag of a field. */
static inline uint64_t ckpt_wire_tag(uint32_t number, ckpt_wire_type type) {
  return (uint64_t)number << 3 | (unsigned)type;
}

#endif
