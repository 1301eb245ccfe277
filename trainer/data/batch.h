/* batch.h - samples side by side: padded to the longest, targets shifted by one, as a model is given them. */
#ifndef CKPT_TRAINER_DATA_BATCH_H
#define CKPT_TRAINER_DATA_BATCH_H

#include "trainer/data/dataset.h"
#include "trainer/data/order.h"
#include "trainer/model/executor.h"

/* A batch and its room, which only grows: zero-initialise it, load it again and again, free it. */
typedef struct ckpt_loaded {
  ckpt_token_batch batch; /* points into what follows; no rows: nothing to do */
  uint64_t n_targets;     /* positions that have one */
  uint64_t n_tokens;      /* without padding */
  int32_t *ids, *targets, *positions, *documents;
  uint8_t *mask;
  size_t capacity;
} ckpt_loaded;

/* Loads the samples at places [first, first + n) of an epoch. has_documents: positions and documents are given, so that
 * tokens see their own document alone. sample is the room to read in. */
ckpt_status ckpt_batch_load(ckpt_loaded *loaded, const ckpt_dataset *dataset, const ckpt_order *order, uint64_t epoch,
                            uint64_t first, uint64_t n, bool has_documents, ckpt_sample *sample, ckpt_error *err);
void ckpt_batch_free(ckpt_loaded *loaded); /* a zeroed one is fine */

#endif
