/* memo.h - a pickle's memo: numbers to nodes.
 *
 * Picklers number objects from 0, so a number is smaller than the count of bytes read so far, even if unused PUTs were
 * removed. Such entries are in an array, which is linear in the input. Other numbers, which no pickler writes, go to a
 * small map. The map is limited because its hash is not secret. */
#ifndef CKPT_CODEC_PICKLE_MEMO_H
#define CKPT_CODEC_PICKLE_MEMO_H

#include "libckpt/index/object.h"

#define CKPT_PICKLE_MAX_SPARSE 4096 /* numbers larger than their offset */

typedef struct ckpt_pickle_memo {
  ckpt_object **dense; /* by number, below n_dense */
  uint64_t n_dense, dense_room;
  struct ckpt_pickle_memo_slot *sparse; /* open addressing; n_slots is a power of two */
  uint64_t n_sparse, n_slots;
  uint64_t n; /* different numbers in use */
} ckpt_pickle_memo;

/* Stores a node under a number, replacing an earlier one; n_read: bytes of input so far. ENOMEM, ELIMIT (no message).
 */
ckpt_status ckpt_pickle_memo_put(ckpt_pickle_memo *memo, uint64_t number, uint64_t n_read, ckpt_object *object);

/* Bytes that it takes, and how many more it will with a number put. */
uint64_t ckpt_pickle_memo_bytes(const ckpt_pickle_memo *memo);
uint64_t ckpt_pickle_memo_growth(const ckpt_pickle_memo *memo, uint64_t number, uint64_t n_read); /* as above */

/* The node under a number; NULL if there is none. */
ckpt_object *ckpt_pickle_memo_get(const ckpt_pickle_memo *memo, uint64_t number);

/* Frees the memo, not its nodes. */
void ckpt_pickle_memo_free(ckpt_pickle_memo *memo);

#endif
