/* threads.c - the ranks of one process: each operation shows the others where its data lies, waits for all, and reads
 * theirs. Two meetings enclose every operation, so that nobody's data goes while another reads it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/parallel/collective.h"

typedef struct thread_rank {
  ckpt_collective base; /* first: a ckpt_collective is one of these */
  struct ckpt_thread_ranks *all;
  const void *shown; /* what the others may read until the meeting's end */
} thread_rank;

struct ckpt_thread_ranks {
  pthread_mutex_t mutex;
  pthread_cond_t met;
  uint32_t n, n_waiting;
  uint64_t n_meetings;
  bool is_aborted;
  thread_rank ranks[];
};

static ckpt_status meet(thread_rank *rank, ckpt_error *err) {
  ckpt_thread_ranks *all = rank->all;
  pthread_mutex_lock(&all->mutex);
  const uint64_t meeting = all->n_meetings;
  if (!all->is_aborted && ++all->n_waiting == all->n) {
    all->n_waiting = 0;
    all->n_meetings++;
    pthread_cond_broadcast(&all->met);
  }
  while (!all->is_aborted && all->n_meetings == meeting) pthread_cond_wait(&all->met, &all->mutex);
  const bool is_aborted = all->is_aborted && all->n_meetings == meeting;
  pthread_mutex_unlock(&all->mutex);
  return is_aborted ? ckpt_fail(err, CKPT_ECANCELED, NULL, NULL, "another rank failed") : CKPT_OK;
}

static ckpt_status show(ckpt_collective *c, const void *data, ckpt_error *err) {
  thread_rank *rank = (thread_rank *)c;
  rank->shown = data;
  return meet(rank, err);
}

static const void *shown_by(const ckpt_collective *c, uint32_t rank) {
  return ((const thread_rank *)c)->all->ranks[rank].shown;
}

static ckpt_status barrier(ckpt_collective *c, ckpt_error *err) { return meet((thread_rank *)c, err); }

enum { CHUNK = 1024 };

static ckpt_status sum_doubles(ckpt_collective *c, double *values, size_t n, ckpt_error *err) {
  double chunk[CHUNK];
  for (size_t at = 0; at < n; at += CHUNK) {
    const size_t n_here = n - at < CHUNK ? n - at : CHUNK;
    CKPT_TRY(show(c, values + at, err));
    memset(chunk, 0, sizeof chunk);
    for (uint32_t r = 0; r < c->size; r++) {
      const double *theirs = shown_by(c, r);
      for (size_t i = 0; i < n_here; i++) chunk[i] += theirs[i];
    }
    CKPT_TRY(meet((thread_rank *)c, err));
    memcpy(values + at, chunk, n_here * sizeof *values);
  }
  return CKPT_OK;
}

/* The sum over ranks of [first, first + n), whose place in this rank's buffer no other reads. */
static void sum_range(ckpt_collective *c, float *data, uint64_t first, uint64_t n) {
  float chunk[CHUNK];
  for (uint64_t at = first; at < first + n; at += CHUNK) {
    const size_t n_here = first + n - at < CHUNK ? (size_t)(first + n - at) : CHUNK;
    memcpy(chunk, (const float *)shown_by(c, 0) + at, n_here * sizeof *chunk);
    for (uint32_t r = 1; r < c->size; r++) {
      const float *theirs = (const float *)shown_by(c, r) + at;
      for (size_t i = 0; i < n_here; i++) chunk[i] += theirs[i];
    }
    memcpy(data + at, chunk, n_here * sizeof *chunk);
  }
}

static ckpt_status reduce_scatter(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err) {
  CKPT_TRY(show(c, data, err));
  const ckpt_ranges *own = &owned[c->rank];
  for (uint32_t i = 0; i < own->n; i++) sum_range(c, data, own->ranges[i].first, own->ranges[i].n);
  return meet((thread_rank *)c, err);
}

static ckpt_status all_gather(ckpt_collective *c, float *data, const ckpt_ranges *owned, ckpt_error *err) {
  CKPT_TRY(show(c, data, err));
  for (uint32_t r = 0; r < c->size; r++) {
    if (r == c->rank) continue;
    const float *theirs = shown_by(c, r);
    for (uint32_t i = 0; i < owned[r].n; i++) {
      const ckpt_range range = owned[r].ranges[i];
      memcpy(data + range.first, theirs + range.first, (size_t)range.n * sizeof *data);
    }
  }
  return meet((thread_rank *)c, err);
}

static ckpt_status gather_bytes(ckpt_collective *c, const void *src, void *dst, size_t n_bytes, ckpt_error *err) {
  CKPT_TRY(show(c, src, err));
  for (uint32_t r = 0; r < c->size && n_bytes != 0; r++)
    memcpy((char *)dst + (size_t)r * n_bytes, shown_by(c, r), n_bytes);
  return meet((thread_rank *)c, err);
}

static void abort_all(ckpt_collective *c) {
  ckpt_thread_ranks *all = ((thread_rank *)c)->all;
  pthread_mutex_lock(&all->mutex);
  all->is_aborted = true;
  pthread_cond_broadcast(&all->met);
  pthread_mutex_unlock(&all->mutex);
}

static const ckpt_collective_ops thread_ops = {.barrier = barrier,
                                               .sum_doubles = sum_doubles,
                                               .reduce_scatter = reduce_scatter,
                                               .all_gather = all_gather,
                                               .gather_bytes = gather_bytes,
                                               .abort = abort_all};

ckpt_status ckpt_thread_ranks_new(ckpt_thread_ranks **out, uint32_t n, ckpt_error *err) {
  ckpt_thread_ranks *all = calloc(1, sizeof *all + n * sizeof all->ranks[0]);
  CKPT_TRY_ALLOC(all, err);
  pthread_mutex_init(&all->mutex, NULL);
  pthread_cond_init(&all->met, NULL);
  all->n = n;
  for (uint32_t i = 0; i < n; i++)
    all->ranks[i] = (thread_rank){.base = {.ops = &thread_ops, .rank = i, .size = n}, .all = all};
  *out = all;
  return CKPT_OK;
}

void ckpt_thread_ranks_free(ckpt_thread_ranks *ranks) {
  if (ranks == NULL) return;
  pthread_cond_destroy(&ranks->met);
  pthread_mutex_destroy(&ranks->mutex);
  free(ranks);
}

ckpt_collective *ckpt_thread_ranks_at(ckpt_thread_ranks *ranks, uint32_t rank) { return &ranks->ranks[rank].base; }

/* ---- groups ------------------------------------------------------------------------------------------------------ */

struct ckpt_thread_groups {
  uint32_t n_shards, n_replicas;
  ckpt_thread_ranks *all;
  ckpt_thread_ranks **shards, **background; /* by replica */
  ckpt_thread_ranks **replicas;             /* by shard */
};

static ckpt_status new_each(ckpt_thread_ranks ***out, uint32_t n_groups, uint32_t n_ranks, ckpt_error *err) {
  *out = calloc(n_groups, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  for (uint32_t i = 0; i < n_groups; i++) CKPT_TRY(ckpt_thread_ranks_new(&(*out)[i], n_ranks, err));
  return CKPT_OK;
}

static void free_each(ckpt_thread_ranks **groups, uint32_t n_groups) {
  for (uint32_t i = 0; groups != NULL && i < n_groups; i++) ckpt_thread_ranks_free(groups[i]);
  free(groups);
}

static ckpt_status new_all(ckpt_thread_groups *g, ckpt_error *err) {
  CKPT_TRY(ckpt_thread_ranks_new(&g->all, g->n_shards * g->n_replicas, err));
  CKPT_TRY(new_each(&g->shards, g->n_replicas, g->n_shards, err));
  CKPT_TRY(new_each(&g->background, g->n_replicas, g->n_shards, err));
  return new_each(&g->replicas, g->n_shards, g->n_replicas, err);
}

ckpt_status ckpt_thread_groups_new(ckpt_thread_groups **out, uint32_t n_shards, uint32_t n_replicas, ckpt_error *err) {
  ckpt_thread_groups *g = calloc(1, sizeof *g);
  CKPT_TRY_ALLOC(g, err);
  g->n_shards = n_shards;
  g->n_replicas = n_replicas;
  const ckpt_status status = new_all(g, err);
  if (status == CKPT_OK)
    *out = g;
  else
    ckpt_thread_groups_free(g);
  return status;
}

void ckpt_thread_groups_free(ckpt_thread_groups *g) {
  if (g == NULL) return;
  ckpt_thread_ranks_free(g->all);
  free_each(g->shards, g->n_replicas);
  free_each(g->background, g->n_replicas);
  free_each(g->replicas, g->n_shards);
  free(g);
}

ckpt_rank_groups ckpt_thread_groups_at(ckpt_thread_groups *g, uint32_t rank) {
  const uint32_t replica = rank / g->n_shards, shard = rank % g->n_shards;
  return (ckpt_rank_groups){.all = ckpt_thread_ranks_at(g->all, rank),
                            .shards = ckpt_thread_ranks_at(g->shards[replica], shard),
                            .background = ckpt_thread_ranks_at(g->background[replica], shard),
                            .replicas = ckpt_thread_ranks_at(g->replicas[shard], replica)};
}
