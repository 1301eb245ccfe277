/* zero_whole.c - the optimizer of a run without ZeRO (stage 0), which is whole in the model file.
 *
 *   {"state": {0: {"exp_avg": tensor, ...}}, "param_groups": [{"params": [0, 1], ...}]}                    in fp32
 *   {"optimizer_state_dict": <that>, "fp32_groups": [[master of each parameter]]}                  in fp16 and bf16
 *
 * Parameters are numbers. Which they are follows from the groups having the model's order, where all parameters of one
 * shape are in one group and none of them is frozen; else the states keep the numbers, and that is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero.h"
#include "libckpt/error.h"

enum { MAX_STATES = 64 };

/* A tensor of the model, or a parameter of the optimizer: something with a shape in an order. */
typedef struct shaped {
  const ckpt_tensor *like;  /* has the shape */
  const ckpt_object *state; /* DICT */
  const ckpt_object *master;
  const char *name; /* of a model's tensor; NULL: a parameter of the optimizer */
  uint64_t group;
  uint32_t order; /* a parameter's: its number */
} shaped;

typedef struct matcher {
  ckpt_zero *zero;
  const ckpt_zero_file *file;
  shaped *items; /* the model's and the optimizer's */
  uint32_t n_model, n_params, max_params;
} matcher;

static int compare_shapes(const shaped *a, const shaped *b) {
  if (a->like->rank != b->like->rank) return a->like->rank < b->like->rank ? -1 : 1;
  for (uint32_t i = 0; i < a->like->rank; i++)
    if (a->like->shape[i] != b->like->shape[i]) return a->like->shape[i] < b->like->shape[i] ? -1 : 1;
  return 0;
}

static int compare_items(const void *x, const void *y) {
  const shaped *a = x, *b = y;
  int order = compare_shapes(a, b);
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

/* The parameter that is number `order` of all; false where the object has no such. */
static bool take_param(matcher *m, const ckpt_object *states, const ckpt_object *masters, uint64_t group, uint64_t i) {
  uint32_t order = m->n_params;
  const ckpt_object *state = NULL, *of_group = ckpt_foreign_arg(masters, group), *like = NULL;
  if (order < states->n && ckpt_zero_number(states->items[2 * order]) == order) state = states->items[2 * order + 1];
  if (state == NULL || state->kind != CKPT_OBJECT_DICT || state->n > MAX_STATES) return false;
  like = ckpt_foreign_arg(of_group, i);
  for (uint64_t k = 0; k < state->n && like == NULL; k++) {
    const ckpt_tensor *tensor = ckpt_zero_tensor(m->file, state->items[2 * k + 1]);
    if (tensor != NULL && tensor->rank != 0) like = state->items[2 * k + 1];
  }
  const ckpt_tensor *tensor = ckpt_zero_tensor(m->file, like);
  if (tensor == NULL || m->n_params == m->max_params) return false;
  m->items[m->n_model + m->n_params++] =
      (shaped){.like = tensor, .state = state, .master = ckpt_foreign_arg(of_group, i), .group = group, .order = order};
  return true;
}

/* The parameters of all groups, numbered through. */
static bool take_params(matcher *m, const ckpt_object *states, const ckpt_object *groups, const ckpt_object *masters) {
  for (uint64_t g = 0; g < groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(groups->items[g], "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST) return false;
    for (uint64_t i = 0; i < params->n; i++)
      if (ckpt_zero_number(params->items[i]) != m->n_params || !take_param(m, states, masters, g, i)) return false;
  }
  return m->n_params == states->n;
}

/* Names the parameters of the optimizer; false where more than one way is thinkable. */
static bool match(matcher *m) {
  shaped *model = m->items, *params = m->items + m->n_model;
  qsort(model, m->n_model, sizeof *model, compare_items);
  qsort(params, m->n_params, sizeof *params, compare_items);
  for (uint32_t i = 0, k = 0, n; i < m->n_params; i += n) {
    for (n = 1; i + n < m->n_params && compare_shapes(&params[i], &params[i + n]) == 0; n++)
      if (params[i + n].group != params[i].group) return false;
    while (k < m->n_model && compare_shapes(&model[k], &params[i]) < 0) k++;
    for (uint32_t j = 0; j < n; j++, k++) {
      if (k == m->n_model || compare_shapes(&model[k], &params[i]) != 0) return false;
      params[i + j].name = model[k].name;
    }
    if (k < m->n_model && compare_shapes(&model[k], &params[i]) == 0) return false; /* one of them is frozen */
  }
  return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static ckpt_status add_state(const matcher *m, const char *parameter, const char *key, const ckpt_object *leaf,
                             ckpt_error *err) {
  char name[CKPT_ZERO_NAME_BYTES];
  ckpt_role role;
  if (ckpt_zero_tensor(m->file, leaf) == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_zero_name_state(name, &role, parameter, key, err));
  return ckpt_zero_copy(m->zero, m->file, leaf->tensor, name, role, NULL, err);
}

/* The parameters become the reader's, one in each group, so that the optimizer's groups find their names. */
static ckpt_status add_params(matcher *m, ckpt_error *err) {
  ckpt_zero *zero = m->zero;
  free(zero->params);
  zero->params = calloc((size_t)m->n_params + 1, sizeof *zero->params);
  CKPT_TRY_ALLOC(zero->params, err);
  for (uint32_t i = 0; i < m->n_params; i++) {
    const shaped *param = &m->items[m->n_model + i];
    char number[16];
    snprintf(number, sizeof number, "%u", param->order);
    const char *name = param->name != NULL ? param->name : ckpt_arena_copy(&zero->index->arena, number);
    CKPT_TRY_ALLOC(name, err);
    zero->params[param->order] = (ckpt_zero_param){.name = name, .group = param->order};
    CKPT_TRY(add_state(m, name, "master", param->master, err));
    for (uint64_t k = 0; k < param->state->n; k++) {
      const ckpt_object *key = param->state->items[2 * k];
      if (key->kind == CKPT_OBJECT_TEXT && key->n != 0 && strlen(key->text) == key->n)
        CKPT_TRY(add_state(m, name, key->text, param->state->items[2 * k + 1], err));
    }
  }
  zero->n_params = zero->n_groups = m->n_params;
  zero->shards[0].n_params = zero->shards[0].n_shapes = m->n_params;
  return CKPT_OK;
}

static ckpt_status add_optimizer(matcher *m, const ckpt_object *optimizer, ckpt_error *err) {
  const ckpt_object *inner = ckpt_object_get(optimizer, "optimizer_state_dict");
  if (inner == NULL) inner = optimizer;
  const ckpt_object *states = ckpt_object_get(inner, "state"), *groups = ckpt_object_get(inner, "param_groups");
  if (states == NULL || states->kind != CKPT_OBJECT_DICT || groups == NULL || groups->kind != CKPT_OBJECT_LIST ||
      (states->n != 0 && !take_params(m, states, groups, ckpt_object_get(optimizer, "fp32_groups"))))
    return ckpt_index_note(m->zero->index, false, err,
                           "not read: the optimizer's states (an optimizer whose layout is not known)");
  const ckpt_object *step = states->n == 0 ? NULL : ckpt_object_field(states->items[1], "step");
  ckpt_zero_take_step(m->zero, step);
  m->zero->groups = groups;
  if (!match(m)) {
    for (uint32_t i = 0; i < m->n_params; i++) m->items[m->n_model + i].name = NULL;
    CKPT_TRY(ckpt_index_note(m->zero->index, false, err,
                             "the optimizer's parameters are numbers, and shapes do not tell which they are: its "
                             "states are called by number"));
  }
  return add_params(m, err);
}

ckpt_status ckpt_zero_add_whole(ckpt_zero *zero, const ckpt_zero_file *file, ckpt_error *err) {
  const ckpt_object *optimizer = ckpt_object_get(file->graph.root, "optimizer");
  if (optimizer == NULL || optimizer->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  if (zero->n_shards > 1)
    return ckpt_index_note(zero->index, false, err,
                           "not read: the optimizer's states (without ZeRO they are slices that have numbers, of %u "
                           "model parallel ranks)",
                           zero->n_shards);
  matcher m = {.zero = zero, .file = file};
  const ckpt_index *index = zero->index;
  m.max_params = file->held->n_tensors; /* each has a state of its own: one that is shared is none of ours */
  m.items = calloc((size_t)index->n_tensors + m.max_params + 1, sizeof *m.items);
  CKPT_TRY_ALLOC(m.items, err);
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (index->tensors[i].role == CKPT_ROLE_PARAMETER)
      m.items[m.n_model++] = (shaped){.like = &index->tensors[i], .name = index->tensors[i].name, .order = i};
  ckpt_status status = add_optimizer(&m, optimizer, err);
  free(m.items);
  return status;
}
