/* torch_state.c - see torch_state.h: which entries of a training checkpoint are what. */
#include "libckpt/codec/torch_state.h"

#include <string.h>

#include "libckpt/codec/torch_groups.h"
#include "libckpt/error.h"

/* The first of a role's is the one that is written. */
static const ckpt_torch_state states[] = {
    {"exp_avg", "exp_avg", CKPT_ROLE_EXP_AVG},           {"exp_avg_sq", "exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
    {"momentum_buffer", "momentum", CKPT_ROLE_MOMENTUM}, {"step", "step", CKPT_ROLE_STEP},
    {"master_param", "master", CKPT_ROLE_MASTER},        {"master", "master", CKPT_ROLE_MASTER}};
enum { N_STATES = sizeof states / sizeof *states };

const ckpt_torch_state *ckpt_torch_state_of(const char *key, size_t n_key) {
  for (size_t i = 0; i < N_STATES; i++)
    if (strlen(states[i].key) == n_key && memcmp(states[i].key, key, n_key) == 0) return &states[i];
  return NULL;
}

const char *ckpt_torch_state_key(const ckpt_tensor *tensor, const char *name) {
  for (size_t i = 0; i < N_STATES; i++)
    if (states[i].role == (ckpt_role)tensor->role && strcmp(states[i].name, name) == 0) return states[i].key;
  return name;
}

/* An entry of the top under one of two keys, where it is no tensor. */
static const ckpt_object *entry_of(const ckpt_object *top, const char *key, const char *other) {
  const ckpt_object *value = ckpt_object_get(top, key);
  if (value == NULL) value = ckpt_object_get(top, other);
  return value == NULL || value->kind == CKPT_OBJECT_TENSOR ? NULL : value;
}

static ckpt_status add_object(ckpt_index *index, const char *key, const ckpt_object *value, ckpt_error *err) {
  if (value == NULL) return CKPT_OK;
  CKPT_TRY_ALLOC(ckpt_object_put(&index->arena, index->objects, key, value), err);
  return CKPT_OK;
}

/* Numbers and texts at the top: {'epoch': 3, 'best': 0.5}; keys with dots are flattened state of something else. NULL
 * where there are none. */
static ckpt_status find_trainer(ckpt_object **out, ckpt_index *index, const ckpt_object *top, ckpt_error *err) {
  enum { MAX_KEY_BYTES = 4096 }; /* keys can share one long text */
  *out = NULL;
  ckpt_object *trainer = ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, top->n, NULL);
  CKPT_TRY_ALLOC(trainer, err);
  trainer->n = 0;
  for (uint64_t i = 0; i < top->n; i++) {
    ckpt_object *const *pair = &top->items[2 * i];
    if (pair[0]->kind != CKPT_OBJECT_TEXT || pair[1]->kind == CKPT_OBJECT_NONE || pair[1]->kind > CKPT_OBJECT_TEXT ||
        pair[0]->n > MAX_KEY_BYTES || memchr(pair[0]->text, '.', (size_t)pair[0]->n) != NULL)
      continue;
    memcpy(&trainer->items[2 * trainer->n++], pair, 2 * sizeof *pair);
  }
  if (trainer->n != 0) *out = trainer;
  return CKPT_OK;
}

ckpt_status ckpt_torch_state_set(ckpt_index *index, ckpt_object *root, const ckpt_object *top,
                                 const ckpt_object *param_groups, ckpt_error *err) {
  static const char *const steps[] = {"global_step", "step", "iteration"};
  enum { MAX_OBJECTS = 5 };
  ckpt_object *trainer = NULL;
  index->objects = ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, MAX_OBJECTS, NULL);
  CKPT_TRY_ALLOC(index->objects, err);
  index->objects->n = 0;
  CKPT_TRY(add_object(index, CKPT_TORCH_OBJECT, root, err));
  CKPT_TRY(add_object(index, CKPT_STATE_PARAM_GROUPS, param_groups, err));
  if (top == NULL || top->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  CKPT_TRY(add_object(index, CKPT_STATE_SCHEDULER, entry_of(top, "scheduler", "lr_scheduler"), err));
  CKPT_TRY(add_object(index, CKPT_STATE_LOSS_SCALER, entry_of(top, "scaler", "grad_scaler"), err));
  CKPT_TRY(find_trainer(&trainer, index, top, err));
  for (size_t i = 0; i < sizeof steps / sizeof *steps && index->step < 0; i++) {
    const ckpt_object *step = ckpt_object_get(trainer, steps[i]);
    if (step != NULL && step->kind == CKPT_OBJECT_INT) index->step = step->integer;
  }
  return add_object(index, CKPT_STATE_TRAINER, trainer, err);
}

const ckpt_object *ckpt_torch_state_top(const ckpt_object *objects) {
  const ckpt_object *top = ckpt_object_get(objects, CKPT_TORCH_OBJECT);
  if (top == NULL || top->kind != CKPT_OBJECT_DICT) return NULL;
  return top->n == 1 && top->items[1]->kind == CKPT_OBJECT_DICT ? top->items[1] : top;
}

bool ckpt_torch_state_is_known(const ckpt_object *objects, const ckpt_object *value, uint64_t *n_left) {
  const ckpt_object *groups = ckpt_object_get(objects, CKPT_STATE_PARAM_GROUPS);
  if (value->kind <= CKPT_OBJECT_TEXT || !ckpt_object_holds_more(value, n_left)) return true; /* the trainer's */
  if (value->kind == CKPT_OBJECT_LIST && value->n == 1) value = value->items[0]; /* Lightning's optimizer_states */
  if (value->kind == CKPT_OBJECT_DICT && groups != NULL && ckpt_object_field(value, "param_groups") == groups)
    return value->n == 2; /* and the states */
  if (groups != NULL && ckpt_torch_is_flat_optimizer(value)) return true;
  for (uint64_t i = 0; i < objects->n; i++)
    if (objects->items[2 * i + 1] == value) return true;
  return false;
}
