/* order.h - which sample comes when: pure functions of (seed, epoch, index), so a run goes on anywhere at once.
 *
 * Steps do not cross epochs, as the Trainer counts them: an epoch has ceil(batches / accumulation) steps. Batch k of an
 * epoch is dealt to rank k % ranks; where the last ones have fewer rows, or none, ranks do nothing in their place. */
#ifndef CKPT_TRAINER_DATA_ORDER_H
#define CKPT_TRAINER_DATA_ORDER_H

#include "libckpt/ckpt.h"

typedef struct ckpt_order {
  uint64_t n_samples, batch, accumulation, ranks, seed;
  bool drops_last, is_sequential;
} ckpt_order;

/* Batches of all ranks together, and steps, in one epoch. */
uint64_t ckpt_order_batches(const ckpt_order *order);
uint64_t ckpt_order_steps(const ckpt_order *order);

/* Batches of each rank in step `step` (from 0, over the whole run). */
uint64_t ckpt_order_accumulated(const ckpt_order *order, uint64_t step);

/* The places in the epoch that batch `micro` of a step gives to a rank: [*first, *first + *n). */
void ckpt_order_rows(const ckpt_order *order, uint64_t step, uint64_t micro, uint64_t rank, uint64_t *first,
                     uint64_t *n);

/* The sample at a place of an epoch. */
uint64_t ckpt_order_sample(const ckpt_order *order, uint64_t epoch, uint64_t place);

/* A permutation of [0, n): a Feistel network of six rounds over the next power of four, walked until it is inside. */
uint64_t ckpt_permute(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t i);

#endif
