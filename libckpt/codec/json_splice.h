/* json_splice.h - changing one value in JSON text and leaving every other byte as it is.
 *
 * Config files are carried as the bytes their author wrote; a key that must follow what was written (`torch_dtype`) is
 * spliced into that text. Paths are keys joined with dots ("text_config.torch_dtype"); a key that itself holds a dot
 * cannot be named. Of equal keys the last one counts, as in Python. */
#ifndef CKPT_JSON_SPLICE_H
#define CKPT_JSON_SPLICE_H

#include "libckpt/arena.h"
#include "libckpt/codec/json.h"

/* Where a value is, or where it would be inserted. */
typedef struct ckpt_json_place {
  bool is_found;
  ckpt_json_token token; /* of the value, where found */
  uint64_t start, stop;  /* of the value, where found */
  bool has_parent;       /* the object that holds, or would hold, the key exists */
  bool is_empty;         /* that object has no keys */
  uint64_t insert_at;    /* one past its last value, or past its `{` */
  uint64_t gap, key;     /* [gap, key): what stands before its last key: a comma, white space, or nothing */
  uint64_t colon, value; /* [colon, value): what stands between its last key and value */
} ckpt_json_place;

/* Finds the value at path in text, NaN and Infinity allowed. The outermost value has to be an object; EFORMAT where
 * the text is no JSON. */
ckpt_status ckpt_json_find(const char *text, size_t n_bytes, const char *path, ckpt_json_place *place, const char *file,
                           ckpt_error *err);

/* The text with the value at path replaced by `value` (JSON text), or inserted as the last key of its object, indented
 * as the keys beside it. Arena text of *n_out bytes, terminated. ENOTFOUND where the object that would hold it is
 * absent. */
ckpt_status ckpt_json_splice(const char **out, size_t *n_out, const char *text, size_t n_bytes, const char *path,
                             const char *value, ckpt_arena *arena, const char *file, ckpt_error *err);

#endif
