/* recorded_fields.h - what the readers of a receipt share: objects field by field, and their simplest values. */
#ifndef CKPT_RECIPE_REPLAY_RECORDED_FIELDS_H
#define CKPT_RECIPE_REPLAY_RECORDED_FIELDS_H

#include "libckpt/recipe/replay/recorded.h"

/* What is read of an object: keys in any order, each once. Others are passed by, or met by a last field without a
 * key. */
typedef struct ckpt_recorded_field {
  const char *key;
  ckpt_status (*read)(ckpt_recorded *r, ckpt_json *json, void *into, ckpt_error *err); /* its value */
  void *into;
  bool is_sparse; /* only where it was asked for or says something */
} ckpt_recorded_field;

/* The rest of an object whose beginning has been read. EFORMAT where a key is given twice or is missing. */
ckpt_status ckpt_recorded_fields(ckpt_recorded *r, ckpt_json *json, const ckpt_recorded_field *fields, size_t n,
                                 ckpt_error *err);

/* The array's next object has begun, or *is_end. */
ckpt_status ckpt_recorded_next(const ckpt_recorded *r, ckpt_json *json, const char *what, bool *is_end,
                               ckpt_error *err);

/* EFORMAT: no receipt that this version knows. */
ckpt_status ckpt_recorded_refuse(const ckpt_recorded *r, const char *what, ckpt_error *err);

/* Values, into a bool, a uint64_t, a double and a ckpt_recorded_output. */
ckpt_status ckpt_recorded_flag(ckpt_recorded *r, ckpt_json *json, void *into, ckpt_error *err);
ckpt_status ckpt_recorded_size(ckpt_recorded *r, ckpt_json *json, void *into, ckpt_error *err);   /* as above */
ckpt_status ckpt_recorded_number(ckpt_recorded *r, ckpt_json *json, void *into, ckpt_error *err); /* as above */
ckpt_status ckpt_recorded_digest(ckpt_recorded *r, ckpt_json *json, void *into, ckpt_error *err); /* as above */

#endif
