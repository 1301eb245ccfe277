/* axis_threads.c - see axis_threads.h. A start shows the others what is asked; the finish waits until all have shown
 * theirs, works on what they showed, and waits until all have read. Calls lie in a ring, so several may be under way.
 */
#include "trainer/parallel/axis_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/error.h"

enum { RING = 64 }; /* calls of a group under way */

typedef struct slot {
  ckpt_axis_call *calls; /* of each rank */
  bool *is_shown;        /* by each rank */
  uint32_t n_shown, n_read, n_left;
} slot;

/* What the ranks of one group share. */
typedef struct meeting {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint32_t size;
  bool is_aborted;
  slot ring[RING];
} meeting;

typedef struct thread_group {
  ckpt_axis_group base; /* first: a ckpt_axis_group is one of these */
  meeting *meeting;
  uint64_t n_started;
} thread_group;

struct ckpt_mesh_threads {
  ckpt_mesh mesh;
  uint32_t n_ranks;
  thread_group *groups; /* n_ranks x axes */
  meeting *meetings;    /* as many; those of the first rank of a group are used */
};

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

static uint32_t first_missing(const slot *s, uint32_t size) {
  uint32_t i = 0;
  while (i + 1 < size && s->is_shown[i]) i++;
  return i;
}

/* Waits, with the mutex held, until *n is the whole group; at the deadline the group is aborted. */
static ckpt_status wait_for(thread_group *g, const slot *s, const uint32_t *n, ckpt_axis_ticket ticket,
                            ckpt_error *err) {
  meeting *m = g->meeting;
  const struct timespec until = deadline_of(&g->base);
  while (*n != m->size && !m->is_aborted) {
    const int status = g->base.deadline_seconds > 0 ? pthread_cond_timedwait(&m->changed, &m->mutex, &until)
                                                    : pthread_cond_wait(&m->changed, &m->mutex);
    if (status != ETIMEDOUT || *n == m->size || m->is_aborted) continue;
    m->is_aborted = true;
    pthread_cond_broadcast(&m->changed);
    return ckpt_fail(err, CKPT_EIO, NULL, NULL, "%s: rank %u of %u has not come to call %llu in %g seconds",
                     g->base.name, first_missing(s, m->size), m->size, (unsigned long long)ticket + 1,
                     g->base.deadline_seconds);
  }
  return m->is_aborted ? fail_aborted(&g->base, err) : CKPT_OK;
}

/* ---- the work ---------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const ckpt_axis_call *call) { return call->dtype == CKPT_F64 ? sizeof(double) : sizeof(float); }

/* out = sum over ranks, in their order, of n elements from `first` on. */
static void sum_ranks(const slot *s, uint32_t size, uint64_t first, uint64_t n, void *out) {
  const bool is_double = s->calls[0].dtype == CKPT_F64;
  memcpy(out, (const char *)s->calls[0].src + first * bytes_of(&s->calls[0]), (size_t)n * bytes_of(&s->calls[0]));
  for (uint32_t r = 1; r < size; r++) {
    if (is_double)
      for (uint64_t i = 0; i < n; i++) ((double *)out)[i] += ((const double *)s->calls[r].src)[first + i];
    else
      for (uint64_t i = 0; i < n; i++) ((float *)out)[i] += ((const float *)s->calls[r].src)[first + i];
  }
}

/* What this rank gets, made in `out`; returns its bytes. */
static size_t work(const thread_group *g, const slot *s, char *out) {
  const uint32_t size = g->meeting->size, rank = g->base.rank;
  const ckpt_axis_call *own = &s->calls[rank];
  const size_t each = bytes_of(own);
  uint64_t first = 0;
  size_t n_out = 0;
  switch (own->kind) {
    case CKPT_ALL_REDUCE: sum_ranks(s, size, 0, own->n, out); return (size_t)own->n * each;
    case CKPT_REDUCE_SCATTER:
      for (uint32_t r = 0; r < rank; r++) first += own->counts[r];
      sum_ranks(s, size, first, own->counts[rank], out);
      return (size_t)own->counts[rank] * each;
    case CKPT_ALL_GATHER:
      for (uint32_t r = 0; r < size; r++) {
        memcpy(out + n_out, s->calls[r].src, (size_t)own->counts[r] * each);
        n_out += (size_t)own->counts[r] * each;
      }
      return n_out;
    case CKPT_ALL_TO_ALL:
      for (uint32_t r = 0; r < size; r++) {
        const size_t part = (size_t)(own->n / size) * each;
        memcpy(out + n_out, (const char *)s->calls[r].src + rank * part, part);
        n_out += part;
      }
      return n_out;
  }
  return 0;
}

static size_t output_bytes(const thread_group *g, const ckpt_axis_call *call) {
  uint64_t n = call->n;
  if (call->kind == CKPT_REDUCE_SCATTER) n = call->counts[g->base.rank];
  if (call->kind == CKPT_ALL_GATHER) {
    n = 0;
    for (uint32_t r = 0; r < g->base.size; r++) n += call->counts[r];
  }
  return (size_t)n * bytes_of(call);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static ckpt_status start(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket,
                         ckpt_error *err) {
  thread_group *g = (thread_group *)group;
  meeting *m = g->meeting;
  if (call->dtype != CKPT_F32 && call->dtype != CKPT_F64)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: collectives sum f32 and f64", group->name);
  *ticket = g->n_started;
  slot *s = &m->ring[g->n_started % RING];
  pthread_mutex_lock(&m->mutex);
  ckpt_status status = m->is_aborted ? fail_aborted(group, err) : CKPT_OK;
  if (status == CKPT_OK && s->is_shown[group->rank])
    status = ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "%s: more than %d calls under way", group->name, RING);
  if (status == CKPT_OK) {
    s->calls[group->rank] = *call;
    s->is_shown[group->rank] = true;
    s->n_shown++;
    g->n_started++;
    pthread_cond_broadcast(&m->changed);
  }
  pthread_mutex_unlock(&m->mutex);
  return status;
}

/* The last rank to leave a slot makes it free. */
static void leave(meeting *m, slot *s) {
  if (++s->n_left != m->size) return;
  s->n_shown = s->n_read = s->n_left = 0;
  memset(s->is_shown, 0, m->size * sizeof *s->is_shown);
  pthread_cond_broadcast(&m->changed);
}

static void abort_group(ckpt_axis_group *group) {
  meeting *m = ((thread_group *)group)->meeting;
  pthread_mutex_lock(&m->mutex);
  m->is_aborted = true;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->mutex);
}

static ckpt_status finish(ckpt_axis_group *group, ckpt_axis_ticket ticket, ckpt_error *err) {
  thread_group *g = (thread_group *)group;
  meeting *m = g->meeting;
  slot *s = &m->ring[ticket % RING];
  char *made = malloc(output_bytes(g, &s->calls[group->rank]) + 1);
  if (made == NULL) { /* the others would wait for this rank to have read theirs */
    abort_group(group);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "%s: out of memory", group->name);
  }
  pthread_mutex_lock(&m->mutex);
  ckpt_status status = wait_for(g, s, &s->n_shown, ticket, err);
  pthread_mutex_unlock(&m->mutex);
  if (status != CKPT_OK) {
    free(made);
    return status;
  }
  const size_t n_bytes = work(g, s, made);
  void *dst = s->calls[group->rank].dst;
  pthread_mutex_lock(&m->mutex);
  s->n_read++;
  pthread_cond_broadcast(&m->changed);
  status = wait_for(g, s, &s->n_read, ticket, err);
  if (status == CKPT_OK && n_bytes != 0) memcpy(dst, made, n_bytes);
  if (status == CKPT_OK) leave(m, s);
  pthread_mutex_unlock(&m->mutex);
  free(made);
  return status;
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
  for (uint32_t i = 0; i < RING; i++) {
    m->ring[i].calls = calloc(size, sizeof *m->ring[i].calls);
    m->ring[i].is_shown = calloc(size, sizeof *m->ring[i].is_shown);
    if (m->ring[i].calls == NULL || m->ring[i].is_shown == NULL) return false;
  }
  return true;
}

/* The first rank of a rank's group along an axis, and its own number in it. */
static uint32_t first_of(const ckpt_mesh *mesh, uint32_t rank, uint32_t axis, uint32_t *own) {
  uint32_t step = 1;
  for (uint32_t i = axis + 1; i < CKPT_N_MESH_AXES; i++) step *= mesh->at[i];
  *own = rank / step % mesh->at[axis];
  return rank - *own * step;
}

ckpt_status ckpt_mesh_threads_new(ckpt_mesh_threads **out, const ckpt_mesh *mesh, double deadline_seconds,
                                  ckpt_error *err) {
  ckpt_mesh_threads *t = calloc(1, sizeof *t);
  CKPT_TRY_ALLOC(t, err);
  t->mesh = *mesh;
  t->n_ranks = ckpt_mesh_size(mesh);
  t->groups = calloc((size_t)t->n_ranks * CKPT_N_MESH_AXES, sizeof *t->groups);
  t->meetings = calloc((size_t)t->n_ranks * CKPT_N_MESH_AXES, sizeof *t->meetings);
  bool is_good = t->groups != NULL && t->meetings != NULL;
  for (uint32_t i = 0; i < t->n_ranks * CKPT_N_MESH_AXES && is_good; i++) {
    const uint32_t rank = i / CKPT_N_MESH_AXES, axis = i % CKPT_N_MESH_AXES;
    uint32_t own;
    meeting *m = &t->meetings[first_of(mesh, rank, axis, &own) * CKPT_N_MESH_AXES + axis];
    t->groups[i] = (thread_group){.base = {.table = &table,
                                           .name = ckpt_mesh_names[axis],
                                           .axes = 1U << axis,
                                           .rank = own,
                                           .size = mesh->at[axis],
                                           .deadline_seconds = deadline_seconds},
                                  .meeting = m};
    is_good = init_meeting(&t->meetings[i], mesh->at[axis]);
  }
  if (is_good) {
    *out = t;
    return CKPT_OK;
  }
  ckpt_mesh_threads_free(t);
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

void ckpt_mesh_threads_free(ckpt_mesh_threads *t) {
  if (t == NULL) return;
  for (uint32_t i = 0; i < t->n_ranks * CKPT_N_MESH_AXES && t->meetings != NULL && t->meetings[i].size != 0; i++) {
    for (uint32_t k = 0; k < RING; k++) {
      free(t->meetings[i].ring[k].calls);
      free(t->meetings[i].ring[k].is_shown);
    }
    pthread_cond_destroy(&t->meetings[i].changed);
    pthread_mutex_destroy(&t->meetings[i].mutex);
  }
  free(t->meetings);
  free(t->groups);
  free(t);
}

ckpt_axis_group *ckpt_mesh_threads_group(ckpt_mesh_threads *t, uint32_t rank, ckpt_mesh_axis axis) {
  return &t->groups[rank * CKPT_N_MESH_AXES + axis].base;
}
