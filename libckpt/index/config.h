/* config.h - reading a config.json: a small JSON object from a checkpoint, looked up by dotted key. A part of a key
 * that is a number is a place in a list ("architectures.0").
 *
 * Accepts what Python's json writes. NaN, Infinity and numbers beyond 64 bits are read, but count as absent. Duplicate
 * keys are refused. Bounds: 64 MiB of text, nesting 64, 1,000,000 values. */
#ifndef CKPT_INDEX_CONFIG_H
#define CKPT_INDEX_CONFIG_H

#include "libckpt/ckpt.h"

#define CKPT_CONFIG_MAX_BYTES (UINT64_C(64) << 20)

typedef struct ckpt_config ckpt_config;
struct json_t; /* of jansson */
struct json_error_t;

/* Parses text[0, n_bytes), which must be one JSON object; `file` is for messages and may be NULL.
 * Fails with EFORMAT (line and column), ELIMIT, ENOMEM. Release with ckpt_config_free. */
ckpt_status ckpt_config_parse(ckpt_config **out, const char *text, uint64_t n_bytes, const char *file, ckpt_error *err);
void ckpt_config_free(ckpt_config *config); /* NULL is fine */

/* JSON as json_loadb reads it, with its flags; NULL as there, with errno ENOMEM where memory ran out. It is read twice:
 * jansson's scanner leaves out characters that it gets no memory for, and says nothing. */
struct json_t *ckpt_config_json(const char *text, size_t n_bytes, size_t flags, struct json_error_t *error);

/* The same of a small file. EIO, EINVAL (no JSON: its line), ELIMIT, ENOMEM; all but the last name the file. */
ckpt_status ckpt_config_json_file(struct json_t **out, const char *path, size_t flags, ckpt_error *err);

/* The config.json among an index's side files, of which readers keep the text; *out is NULL where it is missing or
 * cannot be read, which others report. ENOMEM. */
ckpt_status ckpt_config_of(ckpt_config **out, const ckpt_index *index, ckpt_error *err);

/* The value of a dotted key ("rope_scaling.rope_type"); false, leaving *value alone, where it is absent, null or of
 * another type. Text is UTF-8 without NUL, borrowed from config. */
bool ckpt_config_text(const ckpt_config *config, const char *key, const char **value);
bool ckpt_config_bool(const ckpt_config *config, const char *key, bool *value);     /* as above */
bool ckpt_config_int(const ckpt_config *config, const char *key, int64_t *value);   /* as above */
bool ckpt_config_number(const ckpt_config *config, const char *key, double *value); /* as above; an integer too */

/* The text that is item i of the list at a dotted key; false where there is none. */
bool ckpt_config_item(const ckpt_config *config, const char *key, size_t i, const char **value);

/* The i-th key of the object itself, in the order of the file; NULL past the last. Borrowed from config. */
const char *ckpt_config_key(const ckpt_config *config, size_t i);

/* What a product like "a*b/c" of integer keys and numbers is, or the first of several with "|" between them whose keys
 * are all there and positive (ckpt_arch_shape). False where the config decides none. */
bool ckpt_config_extent(const ckpt_config *config, const char *text, uint64_t *out);
/* The i-th entry of the object at a dotted key, in the order of the text; false past the last one and where there is no
 * object. A value that is no finite number is NaN. */
bool ckpt_config_entry(const ckpt_config *config, const char *key, size_t i, const char **name, double *value);

/* Item k of the list that is the value of such an entry, a whole number; false where there is none. */
bool ckpt_config_entry_int(const ckpt_config *config, const char *key, size_t i, size_t k, int64_t *value);

/* The key of the object that has a config's settings of rotary positions, as transformers 5 chooses: rope_scaling where
 * that has entries, else rope_parameters. A family's own keys say what it lacks (ckpt_arch_rope). */
const char *ckpt_config_rope(const ckpt_config *config);

/* Gives a key, not a dotted one, a value: JSON text of our own. ENOMEM. */
ckpt_status ckpt_config_put(ckpt_config *config, const char *key, const char *json, ckpt_error *err);

/* A key of transformers 5: the file of the weights, or their index. */
#define CKPT_CONFIG_WEIGHTS_KEY "transformers_weights"

/* Whether a config's text may have a key; escapes could spell it. */
bool ckpt_config_may_have(const char *text, const char *key);

/* How many labels a config has, as transformers counts them: entries of id2label, else num_labels, else 2. False where
 * either is no such value, where two keys could be one label, or where the two disagree. */
bool ckpt_config_labels(const ckpt_config *config, uint64_t *n);

/* What a value is. A list without items is also what a number beyond 64 bits, NaN and Infinity count as. */
typedef enum ckpt_config_kind {
  CKPT_CONFIG_ABSENT,
  CKPT_CONFIG_NULL,
  CKPT_CONFIG_BOOL,
  CKPT_CONFIG_INT,
  CKPT_CONFIG_FLOAT,
  CKPT_CONFIG_TEXT,
  CKPT_CONFIG_LIST,
  CKPT_CONFIG_OBJECT
} ckpt_config_kind;

/* The kind of a dotted key's value. */
ckpt_config_kind ckpt_config_kind_of(const ckpt_config *config, const char *key);

/* The kind of entry or item i of the object or list at a dotted key, and its own key in *name (NULL in a list). ABSENT
 * past the last one and where there is neither. */
ckpt_config_kind ckpt_config_kind_at(const ckpt_config *config, const char *key, size_t i, const char **name);

/* How many entries or items the object or list at a dotted key has; 0 where there is neither. */
size_t ckpt_config_count(const ckpt_config *config, const char *key);

/* The value of a dotted key as JSON in ASCII, cut to n - 1 bytes: for messages. */
void ckpt_config_show(const ckpt_config *config, const char *key, char *out, size_t n);

/* Whether a dotted key is present with a value other than null. */
bool ckpt_config_has(const ckpt_config *config, const char *key);

#endif
