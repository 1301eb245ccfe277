/* dataset.h - samples of tokens from files that are read by position and never loaded.
 *
 * JSONL rows (`input_ids` with `labels` and `attention_mask`; `text`; `prompt` and `completion`), plain text, and
 * binary tokens (u16 or u32; llm.c's header is known). An index of where lines begin is kept, 8 bytes a row; with
 * packing also how many tokens are before each row, which costs one pass. Any sample is then read at once. Several
 * threads may read, each with its own ckpt_sample. */
#ifndef CKPT_TRAINER_DATA_DATASET_H
#define CKPT_TRAINER_DATA_DATASET_H

#include "formats/tokenizer/tokenizer.h"

#define CKPT_NO_TARGET (-100)

typedef enum ckpt_packing {
  CKPT_PACKING_NONE,     /* a row is a sample */
  CKPT_PACKING_DOCUMENT, /* rows are joined and cut into blocks; tokens see their own row alone */
  CKPT_PACKING_CONCAT    /* the same, and tokens see all before them */
} ckpt_packing;

typedef struct ckpt_dataset_options {
  const char *const *paths;         /* files and globs, NULL-terminated */
  const ckpt_tokenizer *tokenizer;  /* of encoder, or NULL */
  const ckpt_text_encoder *encoder; /* NULL: rows of ids alone; borrowed */
  const char *columns;              /* "text=sentence,prompt=q", or NULL */
  uint64_t vocabulary;              /* ids from it on are refused */
  uint64_t max_positions;           /* at least 1; longer rows of ids are refused */
  uint64_t max_length;              /* text and rows are cut there, blocks have it; 0: max_positions */
  ckpt_packing packing;
  ckpt_dtype dtype; /* of .bin without a header: U16 (NONE too) or U32 */
  bool measures;    /* ckpt_dataset_max_length finds the longest row of ids, for which opening looks at each byte */
} ckpt_dataset_options;

typedef struct ckpt_dataset ckpt_dataset;

/* ENOTFOUND (a file, a glob without one), EFORMAT (a broken row, with file and line), EINVAL (text without tokenizer,
 * no sample at all), ELIMIT, EIO, ENOMEM. Reads all of JSONL and text once; blocks on that. */
ckpt_status ckpt_dataset_open(ckpt_dataset **out, const ckpt_dataset_options *options, ckpt_error *err);
void ckpt_dataset_free(ckpt_dataset *dataset); /* NULL is fine */

uint64_t ckpt_dataset_count(const ckpt_dataset *dataset); /* samples */
/* No sample is longer. Of blocks, and of ids where it measures, the longest has this length. */
uint64_t ckpt_dataset_max_length(const ckpt_dataset *dataset);
/* "sha256:..." of all that was read to make the index (of binary files: their sizes and ends). */
const char *ckpt_dataset_digest(const ckpt_dataset *dataset);

/* A sample, and the room to read it in: zero-initialise it, read into it again and again, free it. */
typedef struct ckpt_sample {
  int32_t *ids, *labels; /* n; CKPT_NO_TARGET: this token is no target */
  int32_t *documents;    /* n; of packing, else zeros */
  uint8_t *mask;         /* n; 0: no token sees it */
  size_t n, capacity;
  struct ckpt_sample_room *room;
} ckpt_sample;

ckpt_status ckpt_dataset_read(const ckpt_dataset *dataset, uint64_t index, ckpt_sample *sample, ckpt_error *err);
void ckpt_sample_free(ckpt_sample *sample); /* a zeroed one is fine */

#endif
