/* read_derived.h - what ckpt_read and ckpt_read_cost do for derived tensors: a plan of one row into the caller's
 * memory. The arguments have been checked. */
#ifndef CKPT_RUN_READ_DERIVED_H
#define CKPT_RUN_READ_DERIVED_H

#include "libckpt/index/index.h"

ckpt_status ckpt_read_derived(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as,
                              void *dst, size_t n_bytes, ckpt_error *err); /* as ckpt_read */
ckpt_status ckpt_read_derived_cost(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box,
                                   uint64_t *n_read, uint64_t *n_fetched, ckpt_error *err); /* as ckpt_read_cost */

#endif
