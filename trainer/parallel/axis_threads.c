/* axis_threads.c - see axis_threads.h. A start shows the others where its data lies; the finish waits until all have
 * shown theirs, works on what they showed, and waits until all have read, so that nobody's data goes while another
 * reads it. No rank writes what another reads meanwhile: nothing is copied on the way. Calls lie in a ring, so several
 * may be under way. */
#include "trainer/parallel/axis_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

enum {
  RING = 64,    /* calls of a group under way */
  CHUNK = 1024, /* elements summed at once */
  LINE = 16     /* elements that two ranks do not share */
};

/* How far a rank is in a call. */
typedef enum step { NOT_COME, SHOWN, SUMMED, READ, LEFT } step;

/* What the ranks of one group share. */
typedef struct meeting {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint32_t size;
  bool is_aborted;
  ckpt_axis_call *calls; /* RING x ranks */
  uint8_t *steps;        /* the same */
} meeting;

typedef struct thread_group {
  ckpt_axis_group base; /* first: a ckpt_axis_group is one of these */
  meeting *meeting;
  uint64_t n_started;
} thread_group;

struct ckpt_axis_threads {
  uint32_t n_ranks, n_sets;
  thread_group *groups; /* n_sets x n_ranks */
  meeting *meetings;    /* as many; those of the first rank of a group are used */
};

static ckpt_axis_call *calls_of(const meeting *m, ckpt_axis_ticket ticket) {
  return m->calls + ticket % RING * m->size;
}

static uint8_t *steps_of(const meeting *m, ckpt_axis_ticket ticket) { return m->steps + ticket % RING * m->size; }

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static struct timespec deadline_of(const ckpt_axis_group *group) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const double seconds = group->deadline_seconds;
  t.tv_sec += (time_t)seconds;
  t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
  return t;
}

static ckpt_status fail_aborted(const ckpt_axis_group *group, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ECANCELED, NULL, NULL, "%s: another rank failed", group->name);
}

/* The first rank that has not got as far; the size: all have. */
static uint32_t first_behind(const meeting *m, ckpt_axis_ticket ticket, step to) {
  uint32_t i = 0;
  while (i < m->size && steps_of(m, ticket)[i] >= to) i++;
  return i;
}

/* With the mutex held: this rank has got as far. */
static void reach(const thread_group *g, ckpt_axis_ticket ticket, step to) {
  meeting *m = g->meeting;
  steps_of(m, ticket)[g->base.rank] = (uint8_t)to;
  if (first_behind(m, ticket, to) == m->size) pthread_cond_broadcast(&m->changed);
}

static void abort_group(ckpt_axis_group *group) {
  meeting *m = ((thread_group *)group)->meeting;
  pthread_mutex_lock(&m->mutex);
  m->is_aborted = true;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->mutex);
}

/* Gets as far, and waits until all have; at the deadline the group is aborted. */
static ckpt_status meet(thread_group *g, ckpt_axis_ticket ticket, step to, ckpt_error *err) {
  meeting *m = g->meeting;
  const bool ends = g->base.deadline_seconds > 0;
  const struct timespec until = ends ? deadline_of(&g->base) : (struct timespec){0};
  uint32_t behind;
  int waited = 0;
  pthread_mutex_lock(&m->mutex);
  reach(g, ticket, to);
  while ((behind = first_behind(m, ticket, to)) != m->size && !m->is_aborted && waited != ETIMEDOUT)
    waited = ends ? pthread_cond_timedwait(&m->changed, &m->mutex, &until) : pthread_cond_wait(&m->changed, &m->mutex);
  const bool is_aborted = m->is_aborted;
  pthread_mutex_unlock(&m->mutex);
  if (behind == m->size) return CKPT_OK;
  if (is_aborted) return fail_aborted(&g->base, err);
  abort_group(&g->base);
  return ckpt_fail(err, CKPT_EIO, NULL, NULL, "%s: rank %u of %u has not %s call %llu in %g seconds", g->base.name,
                   behind, m->size, to == SHOWN ? "come to" : "ended", (unsigned long long)ticket + 1,
                   g->base.deadline_seconds);
}

/* ---- the work ---------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const ckpt_axis_call *call) { return ckpt_dtype_get(call->dtype)->block_bytes; }

static uint32_t count_ranges(const ckpt_axis_call *call) { return call->ranges == NULL ? 1 : call->n_ranges; }

/* What a rank owns; of ALL_REDUCE what it sums for all. */
static ckpt_range range_of(const ckpt_axis_call *call, uint32_t size, uint32_t rank, uint32_t i) {
  if (call->ranges != NULL) return call->ranges[(size_t)rank * call->n_ranges + i];
  if (call->kind != CKPT_ALL_REDUCE) return (ckpt_range){rank * call->n, call->n};
  const uint64_t each = (call->n / size / LINE + 1) * LINE;
  const uint64_t first = each * rank < call->n ? each * rank : call->n;
  return (ckpt_range){first, call->n - first < each ? call->n - first : each};
}

static void add(void *to, const void *from, size_t n, ckpt_dtype dtype) {
  if (dtype == CKPT_F64)
    for (size_t i = 0; i < n; i++) ((double *)to)[i] += ((const double *)from)[i];
  else
    for (size_t i = 0; i < n; i++) ((float *)to)[i] += ((const float *)from)[i];
}

typedef union chunk {
  float f32[CHUNK];
  double f64[CHUNK];
} chunk;

/* The sum over ranks, in their order. */
static void sum_chunk(const thread_group *g, const ckpt_axis_call *calls, uint64_t first, size_t n, chunk *out) {
  const size_t each = bytes_of(calls);
  if (n != 0) memcpy(out, (const char *)calls[0].src + first * each, n * each);
  for (uint32_t r = 1; r < g->base.size; r++) add(out, (const char *)calls[r].src + first * each, n, calls[r].dtype);
}

/* What is written may lie where this rank's own part is read, and no other's. */
static void sum_range(const thread_group *g, const ckpt_axis_call *calls, ckpt_range range) {
  const ckpt_axis_call *own = &calls[g->base.rank];
  const size_t each = bytes_of(own);
  chunk sum;
  for (uint64_t at = range.first; at < range.first + range.n; at += CHUNK) {
    const size_t n = range.first + range.n - at < CHUNK ? (size_t)(range.first + range.n - at) : CHUNK;
    sum_chunk(g, calls, at, n, &sum);
    memcpy((char *)own->dst + at * each, &sum, n * each);
  }
}

static void sum_own(const thread_group *g, const ckpt_axis_call *calls) {
  const ckpt_axis_call *own = &calls[g->base.rank];
  for (uint32_t i = 0; i < count_ranges(own); i++) sum_range(g, calls, range_of(own, g->base.size, g->base.rank, i));
}

static void copy_others(const thread_group *g, const ckpt_axis_call *calls) {
  const ckpt_axis_call *own = &calls[g->base.rank];
  const size_t each = bytes_of(own);
  for (uint32_t r = 0; r < g->base.size; r++)
    for (uint32_t i = 0; i < count_ranges(own) && r != g->base.rank; i++) {
      const ckpt_range range = range_of(own, g->base.size, r, i);
      if (range.n == 0) continue;
      memcpy((char *)own->dst + range.first * each, (const char *)calls[r].dst + range.first * each, range.n * each);
    }
}

static void exchange(const thread_group *g, const ckpt_axis_call *calls) {
  const ckpt_axis_call *own = &calls[g->base.rank];
  const size_t part = (size_t)(own->n / g->base.size) * bytes_of(own);
  for (uint32_t r = 0; r < g->base.size && part != 0; r++)
    memcpy((char *)own->dst + r * part, (const char *)calls[r].src + g->base.rank * part, part);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static ckpt_status start(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket,
                         ckpt_error *err) {
  thread_group *g = (thread_group *)group;
  meeting *m = g->meeting;
  *ticket = g->n_started;
  pthread_mutex_lock(&m->mutex);
  ckpt_status status = m->is_aborted ? fail_aborted(group, err) : CKPT_OK;
  if (status == CKPT_OK && steps_of(m, *ticket)[group->rank] != NOT_COME)
    status = ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "%s: more than %d calls under way", group->name, RING);
  if (status == CKPT_OK) {
    calls_of(m, *ticket)[group->rank] = *call;
    reach(g, *ticket, SHOWN);
    g->n_started++;
  }
  pthread_mutex_unlock(&m->mutex);
  return status;
}

/* The last rank to leave a call makes its place in the ring free. */
static void leave(const thread_group *g, ckpt_axis_ticket ticket) {
  meeting *m = g->meeting;
  pthread_mutex_lock(&m->mutex);
  steps_of(m, ticket)[g->base.rank] = LEFT;
  if (first_behind(m, ticket, LEFT) == m->size) memset(steps_of(m, ticket), NOT_COME, m->size);
  pthread_mutex_unlock(&m->mutex);
}

static ckpt_status work(thread_group *g, const ckpt_axis_call *calls, ckpt_axis_ticket ticket, ckpt_error *err) {
  switch (calls[g->base.rank].kind) {
    case CKPT_ALL_REDUCE: /* each rank sums its part, for all */
      sum_own(g, calls);
      CKPT_TRY(meet(g, ticket, SUMMED, err));
      copy_others(g, calls);
      break;
    case CKPT_REDUCE_SCATTER: sum_own(g, calls); break;
    case CKPT_ALL_GATHER: copy_others(g, calls); break;
    case CKPT_ALL_TO_ALL: exchange(g, calls); break;
  }
  return CKPT_OK;
}

static ckpt_status finish(ckpt_axis_group *group, ckpt_axis_ticket ticket, ckpt_error *err) {
  thread_group *g = (thread_group *)group;
  const ckpt_axis_call *calls = calls_of(g->meeting, ticket), *own = &calls[group->rank];
  const bool is_few = own->kind == CKPT_ALL_REDUCE && own->n <= CHUNK; /* each rank sums all: they meet once less */
  chunk sum;
  CKPT_TRY(meet(g, ticket, SHOWN, err));
  if (is_few)
    sum_chunk(g, calls, 0, (size_t)own->n, &sum);
  else
    CKPT_TRY(work(g, calls, ticket, err));
  CKPT_TRY(meet(g, ticket, READ, err));
  if (is_few && own->n != 0) memcpy(own->dst, &sum, (size_t)own->n * bytes_of(own));
  leave(g, ticket);
  return CKPT_OK;
}

static const ckpt_axis_table table = {start, finish, abort_group};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool init_meeting(meeting *m, uint32_t size) {
  pthread_condattr_t monotonic;
  pthread_mutex_init(&m->mutex, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&m->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  m->size = size;
  m->calls = calloc((size_t)RING * size, sizeof *m->calls);
  m->steps = calloc((size_t)RING * size, sizeof *m->steps);
  return m->calls != NULL && m->steps != NULL;
}

/* A rank's number in its group along some axes, which has *size, and the group's first rank. */
static uint32_t place_in(const ckpt_mesh *mesh, uint32_t rank, uint32_t axes, uint32_t *size, uint32_t *first) {
  const ckpt_mesh place = ckpt_mesh_place(mesh, rank);
  uint32_t own = 0;
  *size = 1;
  *first = 0;
  for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++) {
    const bool is_along = (axes >> i & 1) != 0;
    *first = *first * mesh->at[i] + (is_along ? 0 : place.at[i]);
    if (!is_along) continue;
    own = own * mesh->at[i] + place.at[i];
    *size *= mesh->at[i];
  }
  return own;
}

/* The groups along one set; those of one rank need no other. */
static bool init_set(ckpt_axis_threads *t, const ckpt_mesh *mesh, const ckpt_axis_set *set, uint32_t number) {
  thread_group *groups = t->groups + (size_t)number * t->n_ranks;
  meeting *meetings = t->meetings + (size_t)number * t->n_ranks;
  for (uint32_t rank = 0; rank < t->n_ranks; rank++) {
    uint32_t size, first;
    const uint32_t own = place_in(mesh, rank, set->axes, &size, &first);
    ckpt_axis_self(&groups[rank].base, set->name);
    if (size == 1) continue;
    groups[rank].meeting = &meetings[first];
    groups[rank].base.table = &table;
    groups[rank].base.rank = own;
    groups[rank].base.size = size;
    if (own == 0 && !init_meeting(&meetings[first], size)) return false;
  }
  return true;
}

ckpt_status ckpt_axis_threads_new(ckpt_axis_threads **out, const ckpt_mesh *mesh, const ckpt_axis_set *sets,
                                  uint32_t n_sets, double deadline_seconds, ckpt_error *err) {
  ckpt_axis_threads *t = calloc(1, sizeof *t);
  CKPT_TRY_ALLOC(t, err);
  t->n_ranks = ckpt_mesh_size(mesh);
  t->n_sets = n_sets;
  t->groups = calloc((size_t)t->n_ranks * n_sets, sizeof *t->groups);
  t->meetings = calloc((size_t)t->n_ranks * n_sets, sizeof *t->meetings);
  bool is_good = t->groups != NULL && t->meetings != NULL;
  for (uint32_t i = 0; i < n_sets && is_good; i++) is_good = init_set(t, mesh, &sets[i], i);
  if (!is_good) {
    ckpt_axis_threads_free(t);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t i = 0; i < t->n_ranks * n_sets; i++) t->groups[i].base.deadline_seconds = deadline_seconds;
  *out = t;
  return CKPT_OK;
}

void ckpt_axis_threads_free(ckpt_axis_threads *t) {
  if (t == NULL) return;
  for (uint32_t i = 0; i < t->n_ranks * t->n_sets && t->meetings != NULL; i++) {
    meeting *m = &t->meetings[i];
    if (m->size == 0) continue;
    free(m->calls);
    free(m->steps);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
  }
  free(t->meetings);
  free(t->groups);
  free(t);
}

ckpt_axis_group *ckpt_axis_threads_group(ckpt_axis_threads *t, uint32_t rank, uint32_t set) {
  return &t->groups[(size_t)set * t->n_ranks + rank].base;
}
