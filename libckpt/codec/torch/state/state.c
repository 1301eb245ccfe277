/* state.c - see state.h: which entries of a training checkpoint are what. */
#include "libckpt/codec/torch/state/state.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/groups.h"

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

const char *ckpt_torch_state_written(const char *key) {
  static const char *const users[] = {CKPT_STATE_CLIENT CKPT_STATE_RNG, CKPT_STATE_CLIENT CKPT_STATE_TRAINER,
                                      CKPT_STATE_CLIENT CKPT_TORCH_OBJECT, CKPT_STATE_CLIENT CKPT_STATE_LOSS_SCALER};
  for (size_t i = 0; i < sizeof users / sizeof *users; i++)
    if (strcmp(key, users[i]) == 0) return key + sizeof CKPT_STATE_CLIENT - 1;
  return strcmp(key, CKPT_STATE_LOSS_SCALER) == 0 ? "scaler" : key;
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

bool ckpt_torch_state_is_trainers(const ckpt_object *key, const ckpt_object *value) {
  enum { MAX_KEY_BYTES = 4096 }; /* keys can share one long text */
  return key->kind == CKPT_OBJECT_TEXT && value->kind != CKPT_OBJECT_NONE && value->kind <= CKPT_OBJECT_TEXT &&
         key->n <= MAX_KEY_BYTES && memchr(key->text, '.', (size_t)key->n) == NULL;
}

/* What of the top is the trainer's; NULL where there is nothing. */
static ckpt_status find_trainer(ckpt_object **out, ckpt_index *index, const ckpt_object *top, ckpt_error *err) {
  *out = NULL;
  ckpt_object *trainer = ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, top->n, NULL);
  CKPT_TRY_ALLOC(trainer, err);
  trainer->n = 0;
  for (uint64_t i = 0; i < top->n; i++) {
    ckpt_object *const *pair = &top->items[2 * i];
    if (ckpt_torch_state_is_trainers(pair[0], pair[1]))
      memcpy(&trainer->items[2 * trainer->n++], pair, 2 * sizeof *pair);
  }
  if (trainer->n != 0) *out = trainer;
  return CKPT_OK;
}

ckpt_status ckpt_torch_state_set(ckpt_index *index, ckpt_object *root, const ckpt_object *top,
                                 const ckpt_object *param_groups, ckpt_error *err) {
  static const char *const steps[] = {"global_step", "step", "iteration", "iter_num"};
  enum { MAX_OBJECTS = 5 };
  ckpt_object *trainer = NULL;
  const ckpt_object *parts;
  ckpt_index_set_objects(index, ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, MAX_OBJECTS, NULL), root);
  CKPT_TRY_ALLOC(index->objects, err);
  index->objects->n = 0;
  CKPT_TRY(add_object(index, CKPT_TORCH_OBJECT, root, err));
  CKPT_TRY(add_object(index, CKPT_STATE_PARAM_GROUPS, param_groups, err));
  if (top == NULL || top->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  index->top = top;
  CKPT_TRY(ckpt_index_parts(&parts, index, err));
  CKPT_TRY(add_object(index, CKPT_STATE_SCHEDULER, entry_of(parts, "scheduler", "lr_scheduler"), err));
  CKPT_TRY(add_object(index, CKPT_STATE_LOSS_SCALER, entry_of(parts, "scaler", "grad_scaler"), err));
  CKPT_TRY(find_trainer(&trainer, index, parts, err));
  for (size_t i = 0; i < sizeof steps / sizeof *steps && index->step < 0; i++) {
    const ckpt_object *step = ckpt_object_get(trainer, steps[i]);
    if (step != NULL && step->kind == CKPT_OBJECT_INT) index->step = step->integer;
  }
  return add_object(index, CKPT_STATE_TRAINER, trainer, err);
}

const ckpt_object *ckpt_torch_state_optimizer(const ckpt_index *index, const ckpt_object *groups) {
  enum { MAX_LOOKED_AT = 64 };
  const ckpt_object *const dicts[] = {index->whole, index->top};
  for (size_t k = 0; k < sizeof dicts / sizeof *dicts; k++) {
    const ckpt_object *dict = dicts[k];
    if (dict == NULL || ckpt_object_get(dict, "param_groups") == groups) return dict;
    for (uint64_t i = 0; dict->kind == CKPT_OBJECT_DICT && i < dict->n && i < MAX_LOOKED_AT; i++)
      if (ckpt_object_get(dict->items[2 * i + 1], "param_groups") == groups) return dict->items[2 * i + 1];
  }
  return NULL;
}

const ckpt_object *ckpt_torch_state_optimizer_at(const ckpt_object *objects, const ckpt_object *value) {
  const ckpt_object *groups = ckpt_object_get(objects, CKPT_STATE_PARAM_GROUPS);
  if (value->kind == CKPT_OBJECT_LIST && value->n == 1) value = value->items[0]; /* Lightning's optimizer_states */
  const bool is_dict = value->kind == CKPT_OBJECT_DICT;
  return is_dict && groups != NULL && ckpt_object_field(value, "param_groups") == groups ? value : NULL;
}

const char *ckpt_torch_state_plain_key(const ckpt_object *optimizer, uint64_t *n_left) {
  const ckpt_object *state = ckpt_object_field(optimizer, "state");
  const uint64_t n = state == NULL || state->kind != CKPT_OBJECT_DICT ? 0 : state->n;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *of = state->items[2 * i + 1];
    for (uint64_t k = 0; of->kind == CKPT_OBJECT_DICT && k < of->n && *n_left != 0; k++) {
      const ckpt_object *key = of->items[2 * k], *value = of->items[2 * k + 1];
      const bool is_plain = value->kind != CKPT_OBJECT_NONE && ckpt_object_holds_more(value, n_left);
      *n_left -= *n_left != 0;
      if (is_plain && (key->kind != CKPT_OBJECT_TEXT || strcmp(key->text, "step") != 0))
        return key->kind == CKPT_OBJECT_TEXT ? key->text : "?";
    }
  }
  return NULL;
}

bool ckpt_torch_state_is_known(const ckpt_object *objects, const ckpt_object *value, uint64_t *n_left) {
  if (value->kind <= CKPT_OBJECT_TEXT || !ckpt_object_holds_more(value, n_left)) return true; /* the trainer's */
  const ckpt_object *optimizer = ckpt_torch_state_optimizer_at(objects, value);
  if (optimizer != NULL) return optimizer->n == 2 && ckpt_torch_state_plain_key(optimizer, n_left) == NULL;
  if (value->kind == CKPT_OBJECT_LIST && value->n == 1) value = value->items[0];
  if (ckpt_object_get(objects, CKPT_STATE_PARAM_GROUPS) != NULL && ckpt_torch_is_flat_optimizer(value)) return true;
  for (uint64_t i = 0; i < objects->n; i++)
    if (objects->items[2 * i + 1] == value) return true;
  return false;
}
