/* group.h - the ranks that share one run: each writes its own files, rank 0 the footers, one commit for all.
 *
 * `self` below is the group of one. Threads, MPI and NCCL's store live outside libckpt and fill the same three slots.
 */
#ifndef CKPT_GROUP_H
#define CKPT_GROUP_H

#include "ckpt.h"

typedef struct ckpt_group {
  void *ctx;
  uint32_t rank, size;
  /* Gathers n_bytes of every rank, in rank order, into dst (size * n_bytes). Blocks until all have called. */
  ckpt_status (*all_gather)(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err);
  /* Returns when every rank has called. */
  ckpt_status (*barrier)(void *ctx, ckpt_error *err);
} ckpt_group;

/* The group of one: what a run without ranks uses. */
extern const ckpt_group ckpt_group_self;

#endif
