/* loader.c - see loader.h. Batch number n waits in slot n % N_SLOTS, from when it is read until it is taken. */
#include "trainer/data/loader.h"

#include <pthread.h>
#include <stdlib.h>

#include "libckpt/base/error.h"

enum { N_SLOTS = 4 }; /* threads too: more would only wait */

typedef struct slot {
  ckpt_loaded loaded;
  bool is_ready;
  ckpt_status status;
  ckpt_error error;
} slot;

struct ckpt_loader {
  ckpt_loader_options o;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t threads[N_SLOTS];
  uint32_t n_threads;
  uint64_t step, micro; /* of the batch that is begun next */
  uint64_t n_begun, n_taken;
  bool ends;
  slot slots[N_SLOTS];
};

static bool is_over(const ckpt_loader *l) { return l->step >= l->o.n_steps; }

static ckpt_status load(const ckpt_loader *l, slot *s, uint64_t step, uint64_t micro, ckpt_sample *sample) {
  uint64_t first, n;
  ckpt_order_rows(l->o.order, step, micro, l->o.rank, &first, &n);
  const ckpt_status status = ckpt_batch_load(&s->loaded, l->o.dataset, l->o.order, step / ckpt_order_steps(l->o.order),
                                             first, n, l->o.has_documents, sample, &s->error);
  s->loaded.batch.first_row = (uint32_t)first;
  return status;
}

static void *run_thread(void *arg) {
  ckpt_loader *l = arg;
  ckpt_sample sample = {0};
  pthread_mutex_lock(&l->mutex);
  for (;;) {
    while (!l->ends && !is_over(l) && l->n_begun - l->n_taken == N_SLOTS) pthread_cond_wait(&l->changed, &l->mutex);
    if (l->ends || is_over(l)) break;
    slot *s = &l->slots[l->n_begun++ % N_SLOTS];
    const uint64_t step = l->step, micro = l->micro++;
    if (l->micro == ckpt_order_accumulated(l->o.order, step)) {
      l->micro = 0;
      l->step++;
    }
    pthread_mutex_unlock(&l->mutex);
    s->error = (ckpt_error){0};
    s->status = load(l, s, step, micro, &sample);
    pthread_mutex_lock(&l->mutex);
    s->is_ready = true;
    pthread_cond_broadcast(&l->changed);
  }
  pthread_mutex_unlock(&l->mutex);
  ckpt_sample_free(&sample);
  return NULL;
}

ckpt_status ckpt_loader_new(ckpt_loader **out, const ckpt_loader_options *options, ckpt_error *err) {
  ckpt_loader *l = calloc(1, sizeof *l);
  CKPT_TRY_ALLOC(l, err);
  l->o = *options;
  l->step = options->first_step;
  pthread_mutex_init(&l->mutex, NULL);
  pthread_cond_init(&l->changed, NULL);
  const uint32_t n = options->n_threads == 0 ? 1 : options->n_threads > N_SLOTS ? N_SLOTS : options->n_threads;
  while (l->n_threads < n && pthread_create(&l->threads[l->n_threads], NULL, run_thread, l) == 0) l->n_threads++;
  if (l->n_threads == 0) {
    ckpt_loader_free(l);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "a thread that reads data cannot be started");
  }
  *out = l;
  return CKPT_OK;
}

void ckpt_loader_free(ckpt_loader *l) {
  if (l == NULL) return;
  pthread_mutex_lock(&l->mutex);
  l->ends = true;
  pthread_cond_broadcast(&l->changed);
  pthread_mutex_unlock(&l->mutex);
  for (uint32_t i = 0; i < l->n_threads; i++) pthread_join(l->threads[i], NULL);
  for (uint32_t i = 0; i < N_SLOTS; i++) ckpt_batch_free(&l->slots[i].loaded);
  pthread_cond_destroy(&l->changed);
  pthread_mutex_destroy(&l->mutex);
  free(l);
}

ckpt_status ckpt_loader_take(ckpt_loader *l, ckpt_loaded *batch, ckpt_error *err) {
  pthread_mutex_lock(&l->mutex);
  slot *s = &l->slots[l->n_taken % N_SLOTS];
  while (!s->is_ready && !(is_over(l) && l->n_begun == l->n_taken)) pthread_cond_wait(&l->changed, &l->mutex);
  ckpt_status status = CKPT_OK;
  if (!s->is_ready) {
    status = ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a batch after the last step");
  } else if (s->status != CKPT_OK) {
    status = s->status;
    if (err != NULL) *err = s->error;
  } else {
    const ckpt_loaded taken = s->loaded;
    s->loaded = *batch;
    *batch = taken;
  }
  s->is_ready = false;
  l->n_taken++;
  pthread_cond_broadcast(&l->changed);
  pthread_mutex_unlock(&l->mutex);
  return status;
}
