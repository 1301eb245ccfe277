/* rowdigest.h - digests of rows while tiles arrive in any order and cut leaves anywhere.
 *
 * A tile hashes the whole leaves in its range itself; the ends that belong to leaves shared with a neighbour are copied
 * into one of a fixed number of 1 MiB slots, and whoever fills a slot hashes it. When no slot is free the row is
 * marked: the run reads it back from its sink before the commit, or computes it once more where it has none. */
#ifndef CKPT_ROWDIGEST_H
#define CKPT_ROWDIGEST_H

#include <pthread.h>

#include "plan.h"

typedef struct ckpt_leaf_slot {
  uint32_t row;
  uint64_t leaf, n_filled; /* n_filled 0: free */
  uint8_t *bytes;          /* CKPT_LEAF_BYTES */
} ckpt_leaf_slot;

typedef struct ckpt_row_state {
  uint8_t (*leaves)[32]; /* digests, from the row's first tile to its last */
  uint64_t n_left;       /* bytes that have not arrived */
  bool reads_back, is_done;
} ckpt_row_state;

typedef struct ckpt_row_digests {
  ckpt_plan *plan;
  const ckpt_backend *backend;
  pthread_mutex_t mutex;
  ckpt_row_state *rows; /* of every row of the plan */
  ckpt_leaf_slot *slots;
  uint32_t n_slots;
  uint8_t *slot_memory;
} ckpt_row_digests;

/* State for every row of a prepared plan; release with ckpt_row_digests_end also on failure. ENOMEM. */
ckpt_status ckpt_row_digests_start(ckpt_row_digests *digests, ckpt_plan *plan, const ckpt_backend *backend,
                                   ckpt_error *err);

/* Takes bytes [offset, offset + n_bytes) of a row's result. Safe from many threads, each with its own hasher. */
ckpt_status ckpt_row_digests_take(ckpt_row_digests *digests, ckpt_hasher *hasher, uint32_t row, uint64_t offset,
                                  const uint8_t *bytes, uint64_t n_bytes, ckpt_error *err);

/* Whether a row that is written nowhere found no slot: then it starts anew, and its bytes must come once more, in
 * order. Not while tiles run. */
bool ckpt_row_digests_restart(ckpt_row_digests *digests, uint32_t row);

/* Digests rows without elements and rows that have to be read back, through window (n_window bytes, at least a leaf).
 */
ckpt_status ckpt_row_digests_finish(ckpt_row_digests *digests, ckpt_hasher *hasher, uint8_t *window, size_t n_window,
                                    ckpt_error *err);
void ckpt_row_digests_end(ckpt_row_digests *digests); /* frees its memory */

#endif
