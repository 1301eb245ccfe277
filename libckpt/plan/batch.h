/* batch.h - collects pieces with the same reads into batches, and plans tiles and memory for each batch. */
#ifndef CKPT_PLAN_BATCH_H
#define CKPT_PLAN_BATCH_H

#include "libckpt/plan/plan.h"

/* State while a plan is being checked. */
typedef struct ckpt_batcher {
  ckpt_plan *plan;
  uint32_t *table; /* open addressing: batch number + 1, by the hash of its reads */
  uint32_t n_table;
  uint64_t *hashes; /* of each batch's reads as first named */
  uint32_t hash_capacity;
  ckpt_batch_read *reads; /* of the piece being added */
  ckpt_view *views;       /* of those reads */
  uint32_t read_capacity, view_capacity;
  const ckpt_view *recent[16]; /* the last ones made: see share_view */
  size_t n_shared;
  uint32_t *value_batches; /* batch that computes each of the plan's values, UINT32_MAX for none */
  uint32_t lane;           /* of the segment being added; 0: none */
  uint64_t segment;        /* its number in its file */
} ckpt_batcher;

/* An empty batcher for the plan; release with ckpt_batcher_end. ENOMEM. */
ckpt_status ckpt_batcher_start(ckpt_batcher *batcher, ckpt_plan *plan, ckpt_error *err);

/* Adds a piece to the batch with its reads, or to a new one. */
ckpt_status ckpt_batcher_add(ckpt_batcher *batcher, ckpt_piece piece, ckpt_error *err);

/* Orders the plan's batches and plans tiles, workers and memory (tiles.c). ELIMIT names the row that cannot fit. */
ckpt_status ckpt_plan_tiles(ckpt_plan *plan, ckpt_error *err);

/* Order of two batches by their keys: negative, zero or positive. */
int ckpt_compare_orders(const uint64_t *a, const uint64_t *b);

/* Frees the batcher's own memory. */
void ckpt_batcher_end(ckpt_batcher *batcher);

#endif
