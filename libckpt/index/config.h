/* config.h - reads a config.json: a small JSON object from a checkpoint, looked up by dotted key.
 *
 * Accepts what Python's json writes. NaN, Infinity and numbers beyond 64 bits are read, but count as absent. Duplicate
 * keys are refused. Bounds: 64 MiB of text, nesting 64, 1,000,000 values. */
#ifndef CKPT_INDEX_CONFIG_H
#define CKPT_INDEX_CONFIG_H

#include "libckpt/ckpt.h"

#define CKPT_CONFIG_MAX_BYTES (UINT64_C(64) << 20)

typedef struct ckpt_config ckpt_config;

/* Parses text[0, n_bytes), which must be one JSON object; `file` is for messages and may be NULL.
 * Fails with EFORMAT (line and column), ELIMIT, ENOMEM. Release with ckpt_config_free. */
ckpt_status ckpt_config_parse(ckpt_config **out, const char *text, uint64_t n_bytes, const char *file, ckpt_error *err);
void ckpt_config_free(ckpt_config *config); /* NULL is fine */

/* The value of a dotted key ("rope_scaling.rope_type"); false, leaving *value alone, where it is absent, null or of
 * another type. Text is UTF-8 without NUL, borrowed from config. */
bool ckpt_config_text(const ckpt_config *config, const char *key, const char **value);
bool ckpt_config_bool(const ckpt_config *config, const char *key, bool *value);   /* as above */
bool ckpt_config_int(const ckpt_config *config, const char *key, int64_t *value); /* as above */

/* The value of a dotted key as JSON in ASCII, cut to n - 1 bytes: for messages. */
void ckpt_config_show(const ckpt_config *config, const char *key, char *out, size_t n);

/* Whether a dotted key is present with a value other than null. */
bool ckpt_config_has(const ckpt_config *config, const char *key);

#endif
