/* units.c - see units.h. */
#include "trainer/parallel/units.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/parallel/sharded.h"

enum { N_SLOTS = 2, QUEUE = 16, NO_LAYER = -1 };

typedef struct unit {
  uint32_t *parameters, n; /* numbers in the table */
  uint64_t n_elements;     /* of its buffer */
  ckpt_range *owned;       /* n of every rank, in its buffer */
} unit;

/* What the thread beside does: of a unit, in a buffer. */
typedef struct work {
  const unit *unit;
  float *buffer;
  bool reduces; /* or gathers */
} work;

struct ckpt_units {
  ckpt_units_options o;
  unit *units; /* the root, then the layers */
  uint32_t n_layers;
  uint64_t *offsets; /* of each parameter in its unit's buffer */
  uint64_t slot_elements;
  float *weights[N_SLOTS], *gradients[N_SLOTS], *root_weights, *root_gradients;
  int32_t at;                                   /* the layer entered last; NO_LAYER: the root */
  int32_t held[N_SLOTS];                        /* layer whose weights are in the slot, or will be */
  uint64_t gathered[N_SLOTS], reduced[N_SLOTS]; /* numbers of the work to wait for */
  ckpt_parameter_place *places;
  ckpt_unit_hooks hooks;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  work queue[QUEUE];
  uint64_t n_asked, n_done;
  ckpt_status status;
  ckpt_error error;
  bool has_thread, ends;
};

/* ---- what belongs together --------------------------------------------------------------------------------------- */

static uint64_t unit_elements(const ckpt_model *model, int32_t layer) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++)
    if (model->parameters[i].layer == layer) n += ckpt_shard_aligned(model->parameters[i].n_elements);
  return n;
}

static uint64_t largest_layer(const ckpt_model *model) {
  uint64_t most = 0;
  for (uint64_t layer = 0; layer < model->n_layers; layer++) {
    const uint64_t n = unit_elements(model, (int32_t)layer);
    most = n > most ? n : most;
  }
  return most;
}

uint64_t ckpt_units_bytes(const ckpt_model *model) {
  return (unit_elements(model, NO_LAYER) + N_SLOTS * largest_layer(model)) * sizeof(float);
}

static ckpt_status fill_unit(ckpt_units *u, unit *at, int32_t layer, ckpt_error *err) {
  const ckpt_model *model = u->o.model;
  const uint32_t n_ranks = u->o.group->size;
  for (uint32_t i = 0; i < model->n_parameters; i++) at->n += model->parameters[i].layer == layer;
  at->parameters = calloc(at->n + 1u, sizeof *at->parameters);
  at->owned = calloc((size_t)n_ranks * at->n + 1, sizeof *at->owned);
  if (at->parameters == NULL || at->owned == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  uint32_t n = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    if (p->layer != layer) continue;
    u->offsets[i] = at->n_elements;
    at->n_elements += ckpt_shard_aligned(p->n_elements);
    for (uint32_t r = 0; r < n_ranks; r++) {
      const ckpt_range whole = u->o.owned[(size_t)r * model->n_parameters + i];
      at->owned[(size_t)r * at->n + n] = (ckpt_range){u->offsets[i] + whole.first - p->offset, whole.n};
    }
    at->parameters[n++] = i;
  }
  return CKPT_OK;
}

/* An operation reads parameters of its own layer, and of the root. */
static ckpt_status check_tape(const ckpt_model *model, ckpt_error *err) {
  for (uint32_t i = 0; i < model->tape.n_entries; i++) {
    const ckpt_tape_entry *entry = &model->tape.entries[i];
    for (uint32_t k = 0; k < entry->n_parameters; k++) {
      const ckpt_tape_value *value = &model->tape.values[entry->parameters[k]];
      const int32_t layer = model->parameters[value->parameter].layer;
      if (layer != NO_LAYER && layer != entry->layer)
        return ckpt_fail(err, CKPT_EINTERNAL, NULL, value->name, "layer %d reads what belongs to layer %d",
                         entry->layer, layer);
    }
  }
  return CKPT_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static ckpt_status gather(const ckpt_units *u, const work *w, ckpt_error *err) {
  for (uint32_t i = 0; i < w->unit->n; i++) {
    const uint32_t number = w->unit->parameters[i];
    const ckpt_shard_piece *piece = &u->o.pieces[number];
    float *to = w->buffer + u->offsets[number] + (piece->flat - u->o.model->parameters[number].offset);
    if (piece->n != 0) memcpy(to, u->o.own + piece->local, piece->n * sizeof *to);
  }
  return ckpt_collective_all_gather(u->o.group, w->buffer, w->unit->owned, w->unit->n, NULL, err);
}

static ckpt_status reduce(const ckpt_units *u, const work *w, ckpt_error *err) {
  CKPT_TRY(ckpt_collective_reduce_scatter(u->o.group, w->buffer, w->unit->owned, w->unit->n, NULL, err));
  for (uint32_t i = 0; i < w->unit->n; i++) {
    const uint32_t number = w->unit->parameters[i];
    const ckpt_shard_piece *piece = &u->o.pieces[number];
    const float *from = w->buffer + u->offsets[number] + (piece->flat - u->o.model->parameters[number].offset);
    float *to = u->o.summed + piece->local;
    for (uint64_t k = 0; k < piece->n; k++) to[k] += from[k];
  }
  memset(w->buffer, 0, w->unit->n_elements * sizeof(float));
  return CKPT_OK;
}

static ckpt_status perform(const ckpt_units *u, const work *w, ckpt_error *err) {
  return w->reduces ? reduce(u, w, err) : gather(u, w, err);
}

static void *run_thread(void *arg) {
  ckpt_units *u = arg;
  pthread_mutex_lock(&u->mutex);
  for (;;) {
    while (u->n_done == u->n_asked && !u->ends) pthread_cond_wait(&u->changed, &u->mutex);
    if (u->n_done == u->n_asked) break;
    const work w = u->queue[u->n_done % QUEUE];
    ckpt_status status = u->status;
    ckpt_error why = {0};
    pthread_mutex_unlock(&u->mutex);
    if (status == CKPT_OK) status = perform(u, &w, &why);
    pthread_mutex_lock(&u->mutex);
    if (u->status == CKPT_OK && status != CKPT_OK) {
      u->status = status;
      u->error = why;
    }
    u->n_done++;
    pthread_cond_broadcast(&u->changed);
  }
  pthread_mutex_unlock(&u->mutex);
  return NULL;
}

/* Asks for work; *number is what to wait for. */
static ckpt_status ask(ckpt_units *u, work w, uint64_t *number, ckpt_error *err) {
  if (!u->has_thread) {
    *number = 0;
    return perform(u, &w, err);
  }
  pthread_mutex_lock(&u->mutex);
  while (u->n_asked - u->n_done == QUEUE) pthread_cond_wait(&u->changed, &u->mutex);
  u->queue[u->n_asked % QUEUE] = w;
  *number = ++u->n_asked;
  pthread_cond_broadcast(&u->changed);
  pthread_mutex_unlock(&u->mutex);
  return CKPT_OK;
}

static ckpt_status wait_for(ckpt_units *u, uint64_t number, ckpt_error *err) {
  if (!u->has_thread) return CKPT_OK;
  const double begin = ckpt_seconds();
  pthread_mutex_lock(&u->mutex);
  while (u->n_done < number) pthread_cond_wait(&u->changed, &u->mutex);
  const ckpt_status status = u->status;
  if (status != CKPT_OK && err != NULL) *err = u->error;
  pthread_mutex_unlock(&u->mutex);
  u->o.waiting->seconds += ckpt_seconds() - begin;
  return status;
}

/* ---- visits ------------------------------------------------------------------------------------------------------ */

static ckpt_status want(ckpt_units *u, int32_t layer, ckpt_error *err) {
  const uint32_t slot = (uint32_t)layer % N_SLOTS;
  if (layer < 0 || (uint32_t)layer >= u->n_layers || u->o.whole != NULL || u->held[slot] == layer) return CKPT_OK;
  u->held[slot] = layer;
  return ask(u, (work){&u->units[layer + 1], u->weights[slot], false}, &u->gathered[slot], err);
}

/* Before a layer: its weights are there, the next one's are on their way, and its gradients begin with zeros. */
static ckpt_status enter(void *arg, int32_t layer, bool is_backward, ckpt_error *err) {
  ckpt_units *u = arg;
  const bool ends = u->at != NO_LAYER; /* the root's last entries follow layers, which backward needs next */
  u->at = layer;
  if (layer < 0) return is_backward || ends ? CKPT_OK : want(u, 0, err);
  const uint32_t slot = (uint32_t)layer % N_SLOTS;
  const unit *at = &u->units[layer + 1];
  CKPT_TRY(want(u, layer, err));
  if (u->o.whole == NULL) CKPT_TRY(wait_for(u, u->gathered[slot], err));
  CKPT_TRY(want(u, is_backward ? layer - 1 : layer + 1, err));
  if (is_backward) CKPT_TRY(wait_for(u, u->reduced[slot], err));
  for (uint32_t i = 0; i < at->n; i++) {
    ckpt_parameter_place *place = &u->places[at->parameters[i]];
    if (u->o.whole == NULL) place->weights = u->weights[slot] + u->offsets[at->parameters[i]];
    place->gradients = u->gradients[slot] + u->offsets[at->parameters[i]];
  }
  return CKPT_OK;
}

static ckpt_status leave(void *arg, int32_t layer, bool is_backward, ckpt_error *err) {
  ckpt_units *u = arg;
  const uint32_t slot = (uint32_t)layer % N_SLOTS;
  if (layer < 0 || !is_backward) return CKPT_OK;
  return ask(u, (work){&u->units[layer + 1], u->gradients[slot], true}, &u->reduced[slot], err);
}

ckpt_status ckpt_units_begin(ckpt_units *u, ckpt_error *err) {
  uint64_t number;
  if (u->o.whole != NULL) return CKPT_OK;
  for (uint32_t i = 0; i < N_SLOTS; i++) u->held[i] = NO_LAYER;
  u->at = NO_LAYER;
  CKPT_TRY(ask(u, (work){&u->units[0], u->root_weights, false}, &number, err));
  return wait_for(u, number, err);
}

ckpt_status ckpt_units_end(ckpt_units *u, ckpt_error *err) {
  uint64_t number;
  CKPT_TRY(ask(u, (work){&u->units[0], u->root_gradients, true}, &number, err));
  return wait_for(u, number, err);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static ckpt_status allocate(const ckpt_units *u, float **out, uint64_t n, ckpt_error *err) {
  *out = u->o.device->table->allocate(u->o.device, (size_t)(n == 0 ? 16 : n) * sizeof(float));
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

static ckpt_status allocate_all(ckpt_units *u, ckpt_error *err) {
  const bool gathers = u->o.whole == NULL;
  u->at = NO_LAYER;
  if (gathers) CKPT_TRY(allocate(u, &u->root_weights, u->units[0].n_elements, err));
  CKPT_TRY(allocate(u, &u->root_gradients, u->units[0].n_elements, err));
  for (uint32_t i = 0; i < N_SLOTS; i++) {
    if (gathers) CKPT_TRY(allocate(u, &u->weights[i], u->slot_elements, err));
    CKPT_TRY(allocate(u, &u->gradients[i], u->slot_elements, err));
    u->held[i] = NO_LAYER;
  }
  for (uint32_t i = 0; i < u->o.model->n_parameters; i++) {
    const bool is_root = u->o.model->parameters[i].layer == NO_LAYER;
    if (!gathers) u->places[i].weights = u->o.whole + u->o.model->parameters[i].offset;
    if (gathers && is_root) u->places[i].weights = u->root_weights + u->offsets[i];
    if (is_root) u->places[i].gradients = u->root_gradients + u->offsets[i];
  }
  return CKPT_OK;
}

static ckpt_status build(ckpt_units *u, ckpt_error *err) {
  const ckpt_model *model = u->o.model;
  CKPT_TRY(check_tape(model, err));
  u->n_layers = (uint32_t)model->n_layers;
  u->slot_elements = largest_layer(model);
  u->units = calloc(u->n_layers + 1u, sizeof *u->units);
  u->offsets = calloc(model->n_parameters + 1u, sizeof *u->offsets);
  u->places = calloc(model->n_parameters + 1u, sizeof *u->places);
  if (u->units == NULL || u->offsets == NULL || u->places == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i <= u->n_layers; i++) CKPT_TRY(fill_unit(u, &u->units[i], (int32_t)i - 1, err));
  CKPT_TRY(allocate_all(u, err));
  if (!u->o.overlaps) return CKPT_OK;
  if (pthread_create(&u->thread, NULL, run_thread, u) != 0)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "a thread cannot be started");
  u->has_thread = true;
  return CKPT_OK;
}

ckpt_status ckpt_units_new(ckpt_units **out, const ckpt_units_options *options, ckpt_error *err) {
  ckpt_units *u = calloc(1, sizeof *u);
  CKPT_TRY_ALLOC(u, err);
  u->o = *options;
  u->hooks = (ckpt_unit_hooks){.arg = u, .enter = enter, .leave = leave};
  pthread_mutex_init(&u->mutex, NULL);
  pthread_cond_init(&u->changed, NULL);
  const ckpt_status status = build(u, err);
  if (status == CKPT_OK)
    *out = u;
  else
    ckpt_units_free(u);
  return status;
}

static void release(const ckpt_units *u, float *memory, uint64_t n) {
  if (memory != NULL) u->o.device->table->release(u->o.device, memory, (size_t)(n == 0 ? 16 : n) * sizeof(float));
}

void ckpt_units_stop(ckpt_units *u) {
  if (!u->has_thread) return;
  pthread_mutex_lock(&u->mutex);
  u->ends = true;
  pthread_cond_broadcast(&u->changed);
  pthread_mutex_unlock(&u->mutex);
  pthread_join(u->thread, NULL);
  u->has_thread = false;
}

void ckpt_units_free(ckpt_units *u) {
  if (u == NULL) return;
  ckpt_units_stop(u);
  for (uint32_t i = 0; i < N_SLOTS; i++) {
    release(u, u->weights[i], u->slot_elements);
    release(u, u->gradients[i], u->slot_elements);
  }
  for (uint32_t i = 0; u->units != NULL && i <= u->n_layers; i++) {
    if (i == 0) release(u, u->root_weights, u->units[0].n_elements);
    if (i == 0) release(u, u->root_gradients, u->units[0].n_elements);
    free(u->units[i].owned);
    free(u->units[i].parameters);
  }
  free(u->units);
  free(u->offsets);
  free(u->places);
  pthread_cond_destroy(&u->changed);
  pthread_mutex_destroy(&u->mutex);
  free(u);
}

const ckpt_parameter_place *ckpt_units_places(const ckpt_units *u) { return u->places; }

const ckpt_unit_hooks *ckpt_units_hooks(const ckpt_units *u) { return &u->hooks; }
