/* side_sums.h - the SHA-256 of side files: receipts and manifests record them, and `verify` checks them.
 *
 * In JSON it is a list in byte order of names, each once:
 *
 *   "side_files": [{"name": "config.json", "n_bytes": 731, "sha256": "<64 hex>"}, ...]
 *
 * Older records lack the list: they prove nothing about side files. */
#ifndef CKPT_RECIPE_RECORDS_SIDE_SUMS_H
#define CKPT_RECIPE_RECORDS_SIDE_SUMS_H

#include "libckpt/codec/json.h"
#include "libckpt/format/layout.h"
#include "libckpt/index/index.h"
#include "libckpt/io/stream.h"

typedef struct ckpt_side_sum {
  const char *name; /* below the checkpoint's folder */
  uint64_t n_bytes;
  uint8_t sha256[32];
} ckpt_side_sum;

/* (value) Side files in byte order of names. Zero is the empty list; items are freed by ckpt_side_sums_free, names are
 * borrowed: from an arena, an index or a layout. */
typedef struct ckpt_side_sums {
  ckpt_side_sum *items;
  uint32_t n, capacity;
} ckpt_side_sums;

void ckpt_side_sums_free(ckpt_side_sums *sums); /* once more is fine */

/* Reads the side files of an open checkpoint, and files of `also` (may be NULL) that exist in its folder: another
 * format may carry more than this one's reader looks for. Training state counts only with with_training, or if `also`
 * lists any, since it does not belong to the model. Each thread of run (may be NULL) has a window of 1 MiB. EIO,
 * ENOMEM, ECANCELED. */
ckpt_status ckpt_side_sums_take(ckpt_side_sums *out, const ckpt_index *index, const ckpt_side_sums *also,
                                bool with_training, const ckpt_run_options *run, ckpt_error *err);

/* EUNSUPPORTED for a side file whose name is no UTF-8 text: JSON cannot hold it. */
ckpt_status ckpt_side_sums_check_names(const ckpt_index *index, ckpt_error *err);

/* Those of a layout whose side files a run of one rank has written and hashed (the plan's wants_side_sums). */
ckpt_status ckpt_side_sums_written(ckpt_side_sums *out, const ckpt_layout *layout, ckpt_error *err);

/* Prints the list, from its bracket on; gap precedes each item ("\n    "). */
void ckpt_side_sums_print(const ckpt_side_sums *sums, const char *gap, ckpt_stream *out);

/* Reads the list; the arena keeps the names. EFORMAT: not such a list, a duplicate name, or one that leads out of the
 * folder. ELIMIT: more than 10,000 files. */
ckpt_status ckpt_side_sums_read(ckpt_side_sums *out, ckpt_json *json, ckpt_arena *arena, ckpt_error *err);

/* Receives each difference: file and message, status EDIFFERENT. */
typedef void ckpt_side_difference(void *arg, const ckpt_error *difference);

/* Two lists to be compared, and what messages call them. */
typedef struct ckpt_side_comparison {
  const ckpt_side_sums *then, *now;
  const char *record, *whose;                      /* "the receipt", "the output" */
  const char *folder;                              /* of the files */
  bool (*is_excused)(void *arg, const char *name); /* a file that only `now` has is accepted; NULL: none is accepted */
  ckpt_side_difference *report;
  void *arg;
} ckpt_side_comparison;

/* Reports files that are changed, missing or not listed. */
void ckpt_side_sums_compare(const ckpt_side_comparison *c);

#endif
