/* loader.h - batches of a run, read and tokenized by threads ahead of the steps that take them.
 *
 * Batches are numbered in the order in which the steps take them; a bounded number of them waits. The step that
 * takes a batch reports why it could not be read. How many threads there are changes nothing but the time. */
#ifndef CKPT_TRAINER_DATA_LOADER_H
#define CKPT_TRAINER_DATA_LOADER_H

#include "trainer/data/batch.h"

typedef struct ckpt_loader ckpt_loader;

typedef struct ckpt_loader_options {
  const ckpt_dataset *dataset; /* borrowed, as the next */
  const ckpt_order *order;
  uint64_t rank, first_step, n_steps; /* steps [first_step, n_steps) are read for this rank */
  bool has_documents;
  uint32_t n_threads; /* 0: one */
} ckpt_loader_options;

/* Starts reading. ENOMEM. */
ckpt_status ckpt_loader_new(ckpt_loader **out, const ckpt_loader_options *options, ckpt_error *err);
void ckpt_loader_free(ckpt_loader *loader); /* NULL is fine; waits for what is being read */

/* Waits for the next batch and exchanges it for what *batch holds, whose room is used again. Fails as ckpt_batch_load.
 * EINTERNAL past the last one. */
ckpt_status ckpt_loader_take(ckpt_loader *loader, ckpt_loaded *batch, ckpt_error *err);

#endif
