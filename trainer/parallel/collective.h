/* collective.h - how the ranks of one training job exchange numbers: a small table of operations that nothing above
 * knows the back end of. threads.c makes the ranks threads of one process.
 *
 * Sums are taken in the order of ranks, element by element, so a given number of ranks gives the same bits every time.
 * Every operation is called by all ranks, in the same order. A rank that fails calls ckpt_collective_abort: whoever
 * waits, and every later call, then fails with ECANCELED, and none waits for ever. */
#ifndef CKPT_TRAINER_PARALLEL_COLLECTIVE_H
#define CKPT_TRAINER_PARALLEL_COLLECTIVE_H

#include "libckpt/ckpt.h"

/* A range of a flat buffer. */
typedef struct ckpt_range {
  uint64_t first, n;
} ckpt_range;

/* What belongs to one rank of a flat buffer: ranges in ascending order. */
typedef struct ckpt_ranges {
  const ckpt_range *ranges;
  uint32_t n;
} ckpt_ranges;

typedef struct ckpt_collective ckpt_collective;

/* The slots of a back end. */
typedef struct ckpt_collective_ops {
  ckpt_status (*barrier)(ckpt_collective *c, ckpt_error *err);
  /* Of doubles, in place: the sum over ranks, on every rank. */
  ckpt_status (*sum_doubles)(ckpt_collective *c, double *values, size_t n, ckpt_error *err);
  /* Each rank's own ranges of data become the sum over ranks; what it owns none of is left as it is. */
  ckpt_status (*reduce_scatter)(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err);
  /* Each rank's own ranges are copied to all others. owned: of every rank. */
  ckpt_status (*all_gather)(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err);
  /* n_bytes of every rank, in order of ranks. */
  ckpt_status (*gather_bytes)(ckpt_collective *c, const void *src, void *dst, size_t n_bytes, ckpt_error *err);
  void (*abort)(ckpt_collective *c);
} ckpt_collective_ops;

struct ckpt_collective {
  const ckpt_collective_ops *ops;
  uint32_t rank, size;
  double seconds; /* spent in operations, waiting too */
};

/* Seconds of a clock that only goes forward. */
double ckpt_seconds(void);

/* The slots, with time added up. A group of one does nothing. */
ckpt_status ckpt_collective_barrier(ckpt_collective *c, ckpt_error *err);
ckpt_status ckpt_collective_sum(ckpt_collective *c, double *values, size_t n, ckpt_error *err); /* as the slot */
/* owned[rank] for every rank. */
ckpt_status ckpt_collective_reduce_scatter(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err);
ckpt_status ckpt_collective_all_gather(ckpt_collective *c, float *data, const ckpt_ranges *owned,
                                       ckpt_error *err); /* as above */
ckpt_status ckpt_collective_gather_bytes(ckpt_collective *c, const void *src, void *dst, size_t n_bytes,
                                         ckpt_error *err); /* as the slot */
void ckpt_collective_abort(ckpt_collective *c);            /* as the slot */

/* The same ranks as a group that runs a plan of the library; it borrows c. */
ckpt_group ckpt_collective_group(ckpt_collective *c);

/* ---- threads of one process -------------------------------------------------------------------------------------- */

typedef struct ckpt_thread_ranks ckpt_thread_ranks;

/* n ranks that meet in memory. */
ckpt_status ckpt_thread_ranks_new(ckpt_thread_ranks **out, uint32_t n, ckpt_error *err);
void ckpt_thread_ranks_free(ckpt_thread_ranks *ranks);                          /* NULL is fine */
ckpt_collective *ckpt_thread_ranks_at(ckpt_thread_ranks *ranks, uint32_t rank); /* borrowed */

/* The groups of one rank, borrowed: of n_shards * n_replicas ranks, rank = replica * n_shards + shard. */
typedef struct ckpt_rank_groups {
  ckpt_collective *all;
  ckpt_collective *shards;     /* those that hold one model together */
  ckpt_collective *background; /* the same ranks, for the thread beside */
  ckpt_collective *replicas;   /* those that hold the same shard */
} ckpt_rank_groups;

typedef struct ckpt_thread_groups ckpt_thread_groups;

/* ENOMEM. */
ckpt_status ckpt_thread_groups_new(ckpt_thread_groups **out, uint32_t n_shards, uint32_t n_replicas, ckpt_error *err);
void ckpt_thread_groups_free(ckpt_thread_groups *groups); /* NULL is fine */
ckpt_rank_groups ckpt_thread_groups_at(ckpt_thread_groups *groups, uint32_t rank);

/* Aborts every group that a rank is in. All ranks end: whoever meets one of these ranks fails, and aborts its own. */
void ckpt_rank_groups_abort(const ckpt_rank_groups *groups);

/* Seconds that a rank spent in its groups, but for the thread beside. */
double ckpt_rank_groups_seconds(const ckpt_rank_groups *groups);

#endif
