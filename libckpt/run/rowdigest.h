/* rowdigest.h - digests of rows while tiles arrive in any order and cut leaves anywhere.
 *
 * A worker hashes the whole leaves in its tile, those of all rows together. Ends of leaves that it shares with a
 * neighbour go into one of at most n_slots slots of 1 MiB; the worker that fills a slot hashes it. If no slot is free,
 * the row is marked: the run reads it back from its sink before the commit, or computes it again if it has none. */
#ifndef CKPT_RUN_ROWDIGEST_H
#define CKPT_RUN_ROWDIGEST_H

#include <pthread.h>

#include "libckpt/plan/plan.h"

typedef struct ckpt_leaf_slot {
  uint32_t row;
  uint64_t leaf, n_filled; /* n_filled 0: free */
  uint8_t *bytes;          /* CKPT_LEAF_BYTES; NULL before its first use */
} ckpt_leaf_slot;

/* Whole leaves that a worker has and has not hashed: together they are faster. */
enum { CKPT_QUEUED_LEAVES = 32 };
typedef struct ckpt_leaf_queue {
  ckpt_hasher *hasher;
  uint32_t n;
  const uint8_t *bytes[CKPT_QUEUED_LEAVES]; /* borrowed from the tile, or the slot's */
  struct {
    uint32_t row;
    uint64_t leaf;
    ckpt_leaf_slot *slot; /* NULL: none */
  } of[CKPT_QUEUED_LEAVES];
} ckpt_leaf_queue;

typedef struct ckpt_row_state {
  uint8_t (*leaves)[32]; /* digests, from the row's first tile to its last */
  uint64_t n_left;       /* bytes that are in no digest of a leaf yet */
  bool reads_back, is_done;
} ckpt_row_state;

typedef struct ckpt_row_digests {
  ckpt_plan *plan;
  const ckpt_backend *backend;
  pthread_mutex_t mutex;
  ckpt_row_state *rows; /* of every row of the plan */
  ckpt_leaf_slot *slots;
  uint32_t n_slots;
} ckpt_row_digests;

/* State for every row of a prepared plan; release with ckpt_row_digests_end also on failure. ENOMEM. */
ckpt_status ckpt_row_digests_start(ckpt_row_digests *digests, ckpt_plan *plan, const ckpt_backend *backend,
                                   ckpt_error *err);

/* Takes bytes [offset, offset + n_bytes) of a row's result, which must stay until the queue is flushed. Safe from many
 * threads, each with its own queue. */
ckpt_status ckpt_row_digests_take(ckpt_row_digests *digests, ckpt_leaf_queue *queue, uint32_t row, uint64_t offset,
                                  const uint8_t *bytes, uint64_t n_bytes, ckpt_error *err);

/* Hashes the leaves in the queue. */
ckpt_status ckpt_row_digests_flush(ckpt_row_digests *digests, ckpt_leaf_queue *queue, ckpt_error *err);

/* Whether a row that is written nowhere found no slot: then it starts anew, and its bytes must come once more, in
 * order. Not while tiles run. */
bool ckpt_row_digests_restart(ckpt_row_digests *digests, uint32_t row);

/* Digests rows without elements and rows that have to be read back, through window (n_window bytes, at least a leaf).
 */
ckpt_status ckpt_row_digests_finish(ckpt_row_digests *digests, ckpt_hasher *hasher, uint8_t *window, size_t n_window,
                                    ckpt_error *err);
void ckpt_row_digests_end(ckpt_row_digests *digests); /* frees its memory */

#endif
