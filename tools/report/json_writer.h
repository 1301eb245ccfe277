/* json_writer.h - one JSON value, streamed to a FILE: nothing is held, so half a million tensors cost nothing.
 *
 * Every function takes the key that the value has in its object, or NULL in an array and at the top. Text is always
 * valid JSON: bytes that are no UTF-8 become U+FFFD, characters that a terminal would obey are \u escapes. Failures of
 * the FILE are sticky in the FILE itself (ferror); the caller looks once, at the end. */
#ifndef CKPT_TOOLS_REPORT_JSON_WRITER_H
#define CKPT_TOOLS_REPORT_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CKPT_EMIT_DEPTH 160

typedef struct ckpt_emitter {
  FILE *out;
  unsigned depth;
  bool is_ended; /* an object or array at the top was closed, and its line ended */
  bool has_items[CKPT_EMIT_DEPTH + 1];
  char closers[CKPT_EMIT_DEPTH + 1];
} ckpt_emitter;

/* A writer to out, at the top of an empty document. */
void ckpt_emit_begin(ckpt_emitter *json, FILE *out);

/* Opens an object or array; at most CKPT_EMIT_DEPTH deep (asserted: shapes are ours, not the input's). */
void ckpt_emit_object(ckpt_emitter *json, const char *key);
void ckpt_emit_array(ckpt_emitter *json, const char *key); /* as above */

/* Closes the innermost object or array; after the outermost one a newline ends the document. */
void ckpt_emit_end(ckpt_emitter *json);

/* Scalars. text NULL is null; so are NaN and infinite numbers, which JSON cannot hold. */
void ckpt_emit_text(ckpt_emitter *json, const char *key, const char *text);
void ckpt_emit_text_n(ckpt_emitter *json, const char *key, const char *text, size_t n_bytes); /* as above */
void ckpt_emit_u64(ckpt_emitter *json, const char *key, uint64_t value);                      /* as above */
void ckpt_emit_i64(ckpt_emitter *json, const char *key, int64_t value);                       /* as above */
void ckpt_emit_number(ckpt_emitter *json, const char *key, double value);                     /* as above */
void ckpt_emit_float(ckpt_emitter *json, const char *key, float value);                       /* as above */
void ckpt_emit_bool(ckpt_emitter *json, const char *key, bool value);                         /* as above */
void ckpt_emit_null(ckpt_emitter *json, const char *key);                                     /* as above */
void ckpt_emit_literal(ckpt_emitter *json, const char *key, const char *text); /* text that is JSON itself */

#endif
