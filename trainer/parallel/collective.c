/* collective.c - see collective.h. */
#include "trainer/parallel/collective.h"

#include <string.h>

ckpt_status ckpt_collective_sum(ckpt_axis_group *group, double *values, size_t n, ckpt_error *err) {
  return ckpt_axis_run(group, &(ckpt_axis_call){.kind = CKPT_ALL_REDUCE, .dtype = CKPT_F64, .dst = values, .n = n},
                       err);
}

ckpt_status ckpt_collective_barrier(ckpt_axis_group *group, ckpt_error *err) {
  double nothing = 0;
  return ckpt_collective_sum(group, &nothing, 1, err);
}

static ckpt_status over_ranges(ckpt_axis_group *group, ckpt_axis_kind_of_call kind, float *data,
                               const ckpt_range *ranges, uint32_t n_ranges, void *stream, ckpt_error *err) {
  const ckpt_axis_call call = {
      .kind = kind, .dtype = CKPT_F32, .dst = data, .ranges = ranges, .n_ranges = n_ranges, .stream = stream};
  return ckpt_axis_run(group, &call, err);
}

ckpt_status ckpt_collective_reduce_scatter(ckpt_axis_group *group, float *data, const ckpt_range *ranges,
                                           uint32_t n_ranges, void *stream, ckpt_error *err) {
  return over_ranges(group, CKPT_REDUCE_SCATTER, data, ranges, n_ranges, stream, err);
}

ckpt_status ckpt_collective_all_gather(ckpt_axis_group *group, float *data, const ckpt_range *ranges, uint32_t n_ranges,
                                       void *stream, ckpt_error *err) {
  return over_ranges(group, CKPT_ALL_GATHER, data, ranges, n_ranges, stream, err);
}

static ckpt_status gather_bytes(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err) {
  ckpt_axis_group *group = ctx;
  const ckpt_axis_call call = {.kind = CKPT_ALL_GATHER, .dtype = CKPT_U8, .dst = dst, .n = n_bytes};
  if (n_bytes != 0) memcpy((char *)dst + group->rank * n_bytes, src, n_bytes);
  return ckpt_axis_run(group, &call, err);
}

ckpt_group ckpt_collective_group(ckpt_axis_group *group) {
  return (ckpt_group){.ctx = group, .rank = group->rank, .size = group->size, .all_gather = gather_bytes};
}

/* ---- of one rank ------------------------------------------------------------------------------------------------- */

void ckpt_rank_groups_abort(const ckpt_rank_groups *g) {
  ckpt_axis_group *const all[] = {g->all, g->shards, g->background, g->replicas};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ckpt_axis_abort(all[i]);
}

double ckpt_rank_groups_seconds(const ckpt_rank_groups *g) {
  return g->all->seconds + g->shards->seconds + g->replicas->seconds;
}
