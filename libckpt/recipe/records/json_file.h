/* json_file.h - a JSON file of the user's (a manifest, a receipt), opened once and read any number of times.
 *
 * It is not part of a checkpoint and may be anywhere. It must be a regular file: a pipe would block and has no size. */
#ifndef CKPT_RECIPE_RECORDS_JSON_FILE_H
#define CKPT_RECIPE_RECORDS_JSON_FILE_H

#include "libckpt/codec/json.h"

#define CKPT_JSON_FILE_MAX_TEXT 8192 /* bytes of its longest string */

typedef struct ckpt_json_file {
  int fd;
  uint64_t n_bytes;
} ckpt_json_file;

/* what: "the manifest". Fails as open does, and with EFORMAT for what is no regular file; then nothing is to be closed.
 */
ckpt_status ckpt_json_file_open(ckpt_json_file *file, const char *path, const char *what, ckpt_error *err);
void ckpt_json_file_close(ckpt_json_file *file); /* once more is fine */

/* A reader from its first byte, which borrows file. */
ckpt_status ckpt_json_file_read(ckpt_json **out, ckpt_json_file *file, ckpt_error *err);

/* The next token as text, without NUL characters; with is_nullable a null gives NULL. Valid until the next call. */
ckpt_status ckpt_json_take_text(ckpt_json *json, const char *what, bool is_nullable, const char **text,
                                ckpt_error *err);

#endif
