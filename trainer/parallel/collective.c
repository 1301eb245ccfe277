/* collective.c - see collective.h. */
#include "trainer/parallel/collective.h"

#include <time.h>

#include "libckpt/base/error.h"

double ckpt_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One operation, timed. */
#define TIMED(c, call)                       \
  do {                                       \
    if ((c)->size == 1) return CKPT_OK;      \
    const double begin_ = ckpt_seconds();    \
    const ckpt_status status_ = (call);      \
    (c)->seconds += ckpt_seconds() - begin_; \
    return status_;                          \
  } while (0)

ckpt_status ckpt_collective_barrier(ckpt_collective *c, ckpt_error *err) { TIMED(c, c->ops->barrier(c, err)); }

ckpt_status ckpt_collective_sum(ckpt_collective *c, double *values, size_t n, ckpt_error *err) {
  TIMED(c, c->ops->sum_doubles(c, values, n, err));
}

ckpt_status ckpt_collective_reduce_scatter(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err) {
  TIMED(c, c->ops->reduce_scatter(c, data, owned, err));
}

ckpt_status ckpt_collective_all_gather(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err) {
  TIMED(c, c->ops->all_gather(c, data, owned, err));
}

ckpt_status ckpt_collective_gather_bytes(ckpt_collective *c, const void *src, void *dst, size_t n_bytes,
                                         ckpt_error *err) {
  const double begin = ckpt_seconds();
  const ckpt_status status = c->ops->gather_bytes(c, src, dst, n_bytes, err);
  c->seconds += ckpt_seconds() - begin;
  return status;
}

void ckpt_collective_abort(ckpt_collective *c) { c->ops->abort(c); }

void ckpt_rank_groups_abort(const ckpt_rank_groups *g) {
  ckpt_collective *const all[] = {g->all, g->shards, g->background, g->replicas};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ckpt_collective_abort(all[i]);
}

double ckpt_rank_groups_seconds(const ckpt_rank_groups *g) {
  return g->all->seconds + g->shards->seconds + g->replicas->seconds;
}

static ckpt_status group_gather(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err) {
  return ckpt_collective_gather_bytes(ctx, src, dst, n_bytes, err);
}

ckpt_group ckpt_collective_group(ckpt_collective *c) {
  return (ckpt_group){.ctx = c, .rank = c->rank, .size = c->size, .all_gather = group_gather};
}
