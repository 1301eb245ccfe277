/* collective.h - what the ranks of a training job ask of their groups (trainer/model/axes.h).
 *
 * A rank that fails aborts its groups: whoever waits in one, and every later call, then fails with ECANCELED, and none
 * waits for ever. */
#ifndef CKPT_TRAINER_PARALLEL_COLLECTIVE_H
#define CKPT_TRAINER_PARALLEL_COLLECTIVE_H

#include "trainer/model/axes.h"

/* Waits for all ranks. */
ckpt_status ckpt_collective_barrier(ckpt_axis_group *group, ckpt_error *err);

/* In place: the sum over ranks, on every rank. */
ckpt_status ckpt_collective_sum(ckpt_axis_group *group, double *values, size_t n, ckpt_error *err);

/* In place, over the n_ranges of each rank: of the own ones the sum; or they are copied to all others. */
ckpt_status ckpt_collective_reduce_scatter(ckpt_axis_group *group, float *data, const ckpt_range *ranges,
                                           uint32_t n_ranges, void *stream, ckpt_error *err);
ckpt_status ckpt_collective_all_gather(ckpt_axis_group *group, float *data, const ckpt_range *ranges, uint32_t n_ranges,
                                       void *stream, ckpt_error *err); /* as above */

/* The same ranks as a group that runs a plan of the library; it borrows the group. */
ckpt_group ckpt_collective_group(ckpt_axis_group *group);

/* The groups of one rank, borrowed. */
typedef struct ckpt_rank_groups {
  ckpt_axis_group *all;
  ckpt_axis_group *shards;     /* those that hold one model together */
  ckpt_axis_group *background; /* the same ranks, for the thread beside */
  ckpt_axis_group *replicas;   /* those that hold the same shard */
} ckpt_rank_groups;

/* Aborts every group that a rank is in. All ranks end: whoever meets one of these ranks fails, and aborts its own. */
void ckpt_rank_groups_abort(const ckpt_rank_groups *groups);

/* Seconds that a rank spent in its groups, but for the thread beside. */
double ckpt_rank_groups_seconds(const ckpt_rank_groups *groups);

#endif
