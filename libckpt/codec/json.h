/* json.h - a streaming reader of JSON text (RFC 8259): the caller pulls one token after another, without a tree.
 *
 * Text comes from a callback in windows of 64 KiB, so memory is constant whatever its size. It is strict: it checks
 * UTF-8 and decodes escapes and surrogate pairs. It refuses control characters, lone surrogates, leading zeros,
 * trailing commas and anything after the value. It refuses numbers that no double holds, unless NaN is allowed: Python
 * reads them as Infinity. Depth is at most CKPT_JSON_MAX_DEPTH. The caller handles duplicate keys. */
#ifndef CKPT_CODEC_JSON_H
#define CKPT_CODEC_JSON_H

#include "libckpt/ckpt.h"
#include "libckpt/io/source.h"

#define CKPT_JSON_MAX_DEPTH 64

typedef enum ckpt_json_token {
  CKPT_JSON_END, /* the value is complete and nothing but white space follows it */
  CKPT_JSON_OBJECT,
  CKPT_JSON_OBJECT_END,
  CKPT_JSON_ARRAY,
  CKPT_JSON_ARRAY_END,
  CKPT_JSON_KEY,
  CKPT_JSON_STRING,
  CKPT_JSON_NUMBER, /* its text, unchanged; also NaN, Infinity and -Infinity where they are allowed */
  CKPT_JSON_TRUE,
  CKPT_JSON_FALSE,
  CKPT_JSON_NULL
} ckpt_json_token;

/* Exactly n_bytes of the text at offset into dst. */
typedef ckpt_status ckpt_json_fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err);

/* Where text comes from and what is accepted. */
typedef struct ckpt_json_options {
  ckpt_json_fetch *fetch;
  void *arg;
  uint64_t n_bytes; /* of the text */
  size_t max_text;  /* longest decoded string, key or number, in bytes; longer ones are ELIMIT */
  bool allow_nan;   /* NaN, Infinity, -Infinity, as Python writes them */
  const char *file; /* for messages, or NULL */
  uint64_t base;    /* added to positions in messages: offset of the text in that file */
} ckpt_json_options;

typedef struct ckpt_json ckpt_json;

/* A reader before its first token; free with ckpt_json_free (NULL is fine). */
ckpt_status ckpt_json_new(ckpt_json **out, const ckpt_json_options *options, ckpt_error *err);
void ckpt_json_free(ckpt_json *json); /* as above */

/* A reader of n_bytes of text in memory, which must outlive it; max_text is n_bytes. */
ckpt_status ckpt_json_new_text(ckpt_json **out, const char *text, size_t n_bytes, bool allow_nan, const char *file,
                               ckpt_error *err);

/* A reader of [offset, offset + n_bytes) of a source's file. */
ckpt_status ckpt_json_new_source(ckpt_json **out, ckpt_source *source, uint32_t file, uint64_t offset, uint64_t n_bytes,
                                 size_t max_text, bool allow_nan, ckpt_error *err);

/* The next token. EFORMAT with the byte position where the text is no JSON, ELIMIT for depth and length. After END
 * it is END again; after a failure every call fails. */
ckpt_status ckpt_json_next(ckpt_json *json, ckpt_json_token *token, ckpt_error *err);

/* The next token, which has to be `wanted`; what: "the shape of a tensor". EFORMAT otherwise. */
ckpt_status ckpt_json_expect(ckpt_json *json, ckpt_json_token wanted, const char *what, ckpt_error *err);

/* Reads past the next value (after a KEY: its value), checking it; of its text no more is kept than one number. */
ckpt_status ckpt_json_skip(ckpt_json *json, ckpt_error *err);

/* After a failure over what a value says: reads on, past its end, until `depth` containers are open (ckpt_json_depth
 * before the value). Fails as before where the text itself is no JSON, which cannot be read on. */
ckpt_status ckpt_json_resume(ckpt_json *json, uint32_t depth, ckpt_error *err);
uint32_t ckpt_json_depth(const ckpt_json *json); /* as above */

/* After `token`: for OBJECT and ARRAY reads past the matching end in the same way; for others does nothing. */
ckpt_status ckpt_json_skip_rest(ckpt_json *json, ckpt_json_token token, ckpt_error *err);

/* Text of the last KEY, STRING or NUMBER, terminated; it may hold NUL bytes. Without n_bytes a text that holds one is
 * "(holds a NUL)" instead: compared as a C string it would pass for its beginning. Valid until the next call. */
const char *ckpt_json_text(const ckpt_json *json, size_t *n_bytes);

/* The last NUMBER as an unsigned integer: digits only, below 2^64. False otherwise. */
bool ckpt_json_u64(const ckpt_json *json, uint64_t *out);

/* Offsets of the last token in the text: first byte, and one past the last. */
uint64_t ckpt_json_start(const ckpt_json *json);
uint64_t ckpt_json_stop(const ckpt_json *json); /* as above */

/* Fails with EFORMAT at the last token: `<what> (byte N)`. */
ckpt_status ckpt_json_fail(const ckpt_json *json, ckpt_error *err, const char *format, ...) CKPT_PRINTF(3, 4);

/* "a string", "the end", ...; static storage. */
const char *ckpt_json_token_name(ckpt_json_token token);

#endif
