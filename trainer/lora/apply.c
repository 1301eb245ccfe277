/* apply.c - an adapter put into its model's tape: each linear that has one is recorded again as lora, and all weights
 * of the model but those trained whole are frozen. What lora cannot be (DoRA, a head) stays for merging. */
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/lora/lora.h"

typedef struct applying {
  ckpt_lora *lora;
  ckpt_model *model;
  uint32_t *now;              /* by value of the old tape: the one that stands for it */
  ckpt_lora_target **targets; /* by parameter of the model, or NULL */
  bool *is_trained;           /* by parameter of the model: whole */
} applying;

/* Targets of parameters that a linear, and nothing else, has; the others are merged. */
static void choose(applying *a) {
  const ckpt_tape *tape = &a->model->tape;
  for (uint32_t i = 0; i < a->lora->n_targets; i++) {
    ckpt_lora_target *t = &a->lora->targets[i];
    t->is_merged = t->magnitude != UINT32_MAX;
    a->targets[t->base] = t;
  }
  for (uint32_t i = 0; i < tape->n_entries; i++)
    for (uint32_t k = 0; k < tape->entries[i].n_parameters; k++) {
      ckpt_lora_target *t = a->targets[tape->values[tape->entries[i].parameters[k]].parameter];
      if (t != NULL && tape->entries[i].op != CKPT_OP_linear) t->is_merged = true;
    }
  for (uint32_t i = 0; i < a->lora->n_targets; i++) a->lora->n_merged += a->lora->targets[i].is_merged;
  for (uint32_t i = 0; i < a->lora->n_copies; i++) a->is_trained[a->lora->copies[i].base] = true;
}

static ckpt_status add_value(applying *a, uint32_t number, uint32_t *value, ckpt_error *err) {
  const ckpt_parameter *p = &a->lora->table.parameters[number];
  return ckpt_tape_parameter(&a->model->tape, p->name, a->model->n_parameters + number, p->rank, p->shape, value, err);
}

/* A linear becomes lora, behind dropout of its own where the config asks for it. */
static ckpt_status adapt(applying *a, const ckpt_lora_target *t, ckpt_tape_entry *entry, ckpt_error *err) {
  const uint32_t bias = entry->n_parameters == 2 ? entry->parameters[1] : CKPT_NO_VALUE;
  uint32_t dropped = entry->in[0];
  CKPT_TRY(ckpt_model_dropout(a->model, a->lora->dropout, &dropped, err));
  if (dropped != entry->in[0]) entry->in[entry->n_in++] = dropped;
  entry->op = CKPT_OP_lora;
  entry->attributes.scale = t->scale;
  CKPT_TRY(add_value(a, t->a, &entry->parameters[1], err));
  CKPT_TRY(add_value(a, t->b, &entry->parameters[2], err));
  entry->parameters[3] = bias;
  entry->n_parameters = bias == CKPT_NO_VALUE ? 3 : 4;
  return CKPT_OK;
}

static ckpt_status record(applying *a, const ckpt_tape_entry *old, ckpt_error *err) {
  ckpt_tape *tape = &a->model->tape;
  ckpt_tape_entry entry = *old;
  const ckpt_lora_target *t = NULL;
  tape->layer = old->layer;
  for (uint32_t i = 0; i < entry.n_in; i++)
    if (entry.in[i] != CKPT_NO_VALUE) entry.in[i] = a->now[entry.in[i]];
  if (entry.op == CKPT_OP_linear) {
    const uint32_t weight = tape->values[entry.parameters[0]].parameter;
    t = a->targets[weight];
    entry.attributes.is_frozen = !a->is_trained[weight] && (t == NULL || !t->is_merged);
  }
  if (t != NULL && !t->is_merged) CKPT_TRY(adapt(a, t, &entry, err));
  CKPT_TRY(ckpt_tape_record(tape, &entry, err));
  for (uint32_t i = 0; i < old->n_out; i++) a->now[old->out[i]] = entry.out[i];
  return CKPT_OK;
}

static ckpt_status record_all(applying *a, ckpt_error *err) {
  ckpt_tape *tape = &a->model->tape;
  const uint32_t n = tape->n_entries, n_values = tape->n_values;
  ckpt_tape_entry *old = ckpt_arena_array(&a->lora->arena, n + 1, sizeof *old);
  a->now = ckpt_arena_array(&a->lora->arena, n_values + 1, sizeof *a->now);
  CKPT_TRY_ALLOC(old, err);
  CKPT_TRY_ALLOC(a->now, err);
  memcpy(old, tape->entries, n * sizeof *old);
  for (uint32_t i = 0; i < n_values; i++) a->now[i] = i;
  tape->n_entries = tape->n_sites = 0;
  for (uint32_t i = 0; i < n; i++) CKPT_TRY(record(a, &old[i], err));
  return CKPT_OK;
}

ckpt_status ckpt_lora_apply(ckpt_lora *lora, ckpt_model *model, ckpt_error *err) {
  applying a = {.lora = lora, .model = model};
  a.targets = ckpt_arena_array(&lora->arena, model->n_parameters + 1, sizeof *a.targets);
  a.is_trained = ckpt_arena_array(&lora->arena, model->n_parameters + 1, sizeof *a.is_trained);
  CKPT_TRY_ALLOC(a.targets, err);
  CKPT_TRY_ALLOC(a.is_trained, err);
  choose(&a);
  return record_all(&a, err);
}

void ckpt_lora_places(const ckpt_lora *lora, const ckpt_lora_weights *w, ckpt_parameter_place *places) {
  const ckpt_model *model = lora->base;
  for (uint32_t i = 0; i < model->n_parameters; i++)
    places[i] = (ckpt_parameter_place){.weights = w->base + model->parameters[i].offset};
  for (uint32_t i = 0; i < lora->n_targets; i++) {
    const uint32_t number = lora->targets[i].base;
    const uint64_t offset = model->parameters[number].offset;
    if (lora->targets[i].is_merged)
      places[number] = (ckpt_parameter_place){.weights = w->merged + offset, .gradients = w->merged_gradients + offset};
  }
  for (uint32_t i = 0; i < lora->table.n_parameters; i++) {
    const uint64_t offset = lora->table.parameters[i].offset;
    places[model->n_parameters + i] =
        (ckpt_parameter_place){.weights = w->own + offset, .gradients = w->own_gradients + offset};
  }
  for (uint32_t i = 0; i < lora->n_copies; i++)
    places[lora->copies[i].base] = places[model->n_parameters + lora->copies[i].own];
}
