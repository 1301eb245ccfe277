/* files.h - SHA-256 of whole files of a checkpoint, for `hash --files` and for `verify` with sums and links.
 *
 * Such a digest is sequential, so files are read outside the plan, each by one thread, through the same contained
 * source in 1 MiB windows. */
#ifndef CKPT_RECIPE_RECORDS_FILES_H
#define CKPT_RECIPE_RECORDS_FILES_H

#include "libckpt/io/source.h"

typedef struct ckpt_file_sum {
  uint32_t file; /* number in the source */
  uint8_t sha256[32];
} ckpt_file_sum;

/* Fills sha256 of n files. Obeys threads, progress and cancel of `run` (may be NULL). EIO, ENOMEM, ECANCELED. */
ckpt_status ckpt_sum_files(ckpt_source *source, ckpt_file_sum *sums, size_t n, const ckpt_run_options *run,
                           ckpt_error *err);

/* The SHA-256 that 64 hex digits spell; false if text does not begin with exactly so many. */
bool ckpt_sum_parse(const char *text, uint8_t sha256[32]);

/* 64 hex digits and a terminator into out; returned. */
const char *ckpt_sum_text(const uint8_t sha256[32], char out[65]);

/* Whether the file's path is a link to a blob that is named by its SHA-256, as large files of the Hugging Face cache
 * are; then sha256 is that name. */
bool ckpt_sum_promised(const ckpt_source *source, uint32_t file, uint8_t sha256[32]);

#endif
