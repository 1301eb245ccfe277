/* run.c - a description as a training run: which parameters are trained, by which group, with which states. */
#include "formats/zero/write/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/expected_names.h"

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* The number of a tensor's slot among the run's keys, a new one for a new key; -1: there are too many. */
static int slot_of(ckpt_zero_run *run, const char *key) {
  uint32_t i = 0;
  while (i < run->n_keys && strcmp(run->keys[i], key) != 0) i++;
  if (i == CKPT_ZERO_MAX_STATES) return -1;
  if (i == run->n_keys) run->keys[run->n_keys++] = key;
  return (int)i;
}

/* The trained parameters by tensor: numbers + 1. */
typedef struct finder {
  ckpt_zero_run *run;
  uint32_t *of;
} finder;

/* Whether a parameter and its master are read from one place, and nothing else is done with them. */
static bool is_same_read(const ckpt_layout *layout, uint32_t parameter, uint32_t master) {
  const ckpt_layout_read *a = &layout->reads[parameter], *b = &layout->reads[master];
  return a->index != NULL && a->index == b->index && a->tensor == b->tensor;
}

static ckpt_status take_state(const finder *f, uint32_t number, ckpt_error *err) {
  ckpt_zero_run *run = f->run;
  const ckpt_tensor *state = &run->index->tensors[number];
  char name[CKPT_ZERO_NAME_BYTES];
  size_t n;
  const char *parameter = ckpt_state_parameter(state->name, &n);
  if (parameter == NULL || ckpt_role_is_model((ckpt_role)state->role)) return CKPT_OK;
  if (n >= sizeof name) return ckpt_fail(err, CKPT_ELIMIT, NULL, state->name, "its name is too long");
  memcpy(name, parameter, n);
  name[n] = '\0';
  const ckpt_tensor *of = ckpt_index_find(run->index, name);
  const uint32_t place = of == NULL ? 0 : f->of[of - run->index->tensors];
  if (place == 0)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, state->name,
                                 "its parameter is no floating one that a group of the optimizer names"),
                       err, "%include=no-optimizer goes on without");
  ckpt_zero_trained *param = &run->params[place - 1];
  if (state->role == CKPT_ROLE_STEP && (run->groups[param->of].has_step || run->groups[param->of].is_number))
    return ckpt_layout_elsewhere(run->layout, number, err);
  const bool is_scalar = !ckpt_tensor_same_shape(of, state);
  if (is_scalar && (run->stage == 0 || state->rank != 0 || state->role == CKPT_ROLE_STEP))
    return run->stage == 0 && state->rank == 0
               ? ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, state->name,
                                       "one value beside a parameter of more: of such states universal checkpoints "
                                       "have the step alone"),
                             err, "%to=zero, or %include=no-optimizer")
               : ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, state->name,
                                       "has another shape than its parameter: of such states only single values are "
                                       "written"),
                             err, "%include=no-optimizer goes on without");
  if (state->role == CKPT_ROLE_MASTER) {
    param->fp32 = number;
    if (run->stage == 3 ||
        (run->stage == 0 && run->layout->reads != NULL && is_same_read(run->layout, param->tensor, number)))
      return ckpt_layout_elsewhere(run->layout, param->tensor, err);
    run->has_copy[param->tensor] = true;
    return CKPT_OK;
  }
  int slot = slot_of(run, ckpt_torch_state_key(state, parameter + n + 1));
  if (slot < 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, state->name, "more than %d states of a parameter",
                     CKPT_ZERO_MAX_STATES);
  param->states[slot] = number;
  if (is_scalar) run->scalars |= 1u << slot;
  return CKPT_OK;
}

/* Of all trained parameters, in one dtype. */
static ckpt_status check_row(const ckpt_tensor *a, const ckpt_tensor *b, ckpt_error *err) {
  if (a->dtype == b->dtype) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, a->name, "is %s, and %s is %s: ZeRO has one row of all",
                   ckpt_dtype_name((ckpt_dtype)a->dtype), b->name, ckpt_dtype_name((ckpt_dtype)b->dtype));
}

static uint32_t bits_of(const ckpt_zero_run *run, const ckpt_zero_trained *param) {
  uint32_t bits = 0;
  for (uint32_t slot = 0; slot < run->n_keys; slot++)
    if (param->states[slot] != CKPT_NO_TENSOR) bits |= 1u << slot;
  return bits;
}

/* Parameters of one group have the same states, and those of another the same or none of them. */
static ckpt_status check_kind(const ckpt_zero_run *run, const ckpt_zero_trained *param, uint32_t wanted,
                              ckpt_error *err) {
  const uint32_t bits = bits_of(run, param);
  const ckpt_zero_trained *without = param;
  uint32_t slot = 0;
  if (bits == wanted) return CKPT_OK;
  while (((bits ^ wanted) >> slot & 1) == 0) slot++;
  if (bits >> slot & 1) without = run->params;
  while (without != param && bits_of(run, without) != wanted) without++;
  return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, without->name,
                               "it has no %s, and other parameters have one", run->keys[slot]),
                     err, "%include=no-optimizer goes on without");
}

static ckpt_status check_states(const ckpt_zero_run *run, ckpt_error *err) {
  const ckpt_tensor *tensors = run->index->tensors;
  uint32_t first[CKPT_ZERO_MAX_STATES], wanted = 0;
  ckpt_zero_kinds kinds = {.n = 0};
  for (uint32_t i = 0; i < CKPT_ZERO_MAX_STATES; i++) first[i] = CKPT_NO_TENSOR;
  for (uint32_t i = 0; i < run->n_params; i++) {
    const ckpt_zero_trained *param = &run->params[i];
    CKPT_TRY(check_row(&tensors[param->fp32], &tensors[run->params[0].fp32], err));
    if (i == 0 || param->of != param[-1].of) wanted = ckpt_zero_kind_of(&kinds, bits_of(run, param), 0);
    CKPT_TRY(check_kind(run, param, wanted, err));
    for (uint32_t slot = 0; slot < run->n_keys; slot++) {
      if (param->states[slot] == CKPT_NO_TENSOR) continue;
      if (first[slot] == CKPT_NO_TENSOR) first[slot] = param->states[slot];
      CKPT_TRY(check_row(&tensors[param->states[slot]], &tensors[first[slot]], err));
    }
  }
  return CKPT_OK;
}

/* What is one value of some parameters is so of all. */
static ckpt_status check_scalars(const ckpt_zero_run *run, ckpt_error *err) {
  for (uint32_t i = 0; i < run->n_params && run->scalars != 0; i++)
    for (uint32_t slot = 0; slot < run->n_keys; slot++) {
      const uint32_t number = run->params[i].states[slot];
      if ((run->scalars >> slot & 1) == 0 || number == CKPT_NO_TENSOR || run->index->tensors[number].rank == 0)
        continue;
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, run->index->tensors[number].name,
                                   "has axes, and of other parameters it is one value"),
                         err, "%include=no-optimizer goes on without");
    }
  return CKPT_OK;
}

ckpt_status ckpt_zero_run_share(ckpt_zero_run *run, ckpt_error *err) {
  for (uint32_t g = 0; g < run->n_groups && run->scalars != 0; g++)
    for (uint32_t i = 1; i < run->groups[g].n; i++)
      for (uint32_t slot = 0; slot < run->n_keys; slot++) {
        const uint32_t number = run->params[run->groups[g].first + i].states[slot];
        if ((run->scalars >> slot & 1) != 0 && number != CKPT_NO_TENSOR)
          CKPT_TRY(ckpt_layout_elsewhere(run->layout, number, err));
      }
  return CKPT_OK;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static ckpt_status add_param(const finder *f, const char *name, uint32_t number, ckpt_error *err) {
  ckpt_zero_run *run = f->run;
  if (f->of[number] != 0) return CKPT_OK;
  if (run->n_params == run->index->n_tensors) return ckpt_fail(err, CKPT_EINTERNAL, NULL, name, "too many parameters");
  ckpt_zero_trained *param = &run->params[run->n_params++];
  *param = (ckpt_zero_trained){.name = name, .of = run->n_groups - 1, .tensor = number, .fp32 = number};
  for (uint32_t i = 0; i < CKPT_ZERO_MAX_STATES; i++) param->states[i] = CKPT_NO_TENSOR;
  f->of[number] = run->n_params;
  run->is_trained[number] = true;
  run->groups[run->n_groups - 1].n++;
  return CKPT_OK;
}

static ckpt_status take_group(const finder *f, const ckpt_object *object, ckpt_error *err) {
  ckpt_zero_run *run = f->run;
  ckpt_zero_group *group = &run->groups[run->n_groups++];
  const ckpt_object *step = ckpt_object_get(object, "step"), *params = ckpt_object_get(object, "params");
  *group = (ckpt_zero_group){.object = object, .of = run->n_groups - 1, .first = run->n_params};
  group->has_step = step != NULL && step->kind == CKPT_OBJECT_FLOAT;
  group->is_number = step != NULL && step->kind == CKPT_OBJECT_INT;
  if (group->has_step) group->step = (float)step->number;
  if (group->is_number) group->number = step->integer;
  for (uint64_t i = 0; params != NULL && params->kind == CKPT_OBJECT_LIST && i < params->n; i++) {
    const ckpt_object *name = params->items[i];
    const ckpt_tensor *tensor = name->kind == CKPT_OBJECT_TEXT ? ckpt_index_find(run->index, name->text) : NULL;
    if (tensor != NULL && ckpt_tensor_may_train(tensor))
      CKPT_TRY(add_param(f, name->text, (uint32_t)(tensor - run->index->tensors), err));
  }
  return CKPT_OK;
}

/* Without an optimizer all that may be trained is one group, in order of names. */
static ckpt_status take_all(const finder *f, ckpt_error *err) {
  ckpt_zero_run *run = f->run;
  run->groups[run->n_groups++] = (ckpt_zero_group){.first = 0};
  for (uint32_t k = 0; k < run->index->n_tensors; k++) {
    const uint32_t i = run->index->by_name[k];
    if (ckpt_tensor_may_train(&run->index->tensors[i])) CKPT_TRY(add_param(f, run->index->tensors[i].name, i, err));
  }
  return CKPT_OK;
}

static ckpt_status make_steps(ckpt_zero_run *run, ckpt_error *err) {
  CKPT_TRY_ALLOC(run->steps = ckpt_arena_array(run->arena, run->n_groups, sizeof *run->steps), err);
  for (uint32_t g = 0; g < run->n_groups; g++)
    run->steps[g] = (ckpt_torch_part){
        .tensor = CKPT_TORCH_LITERAL, .bytes = &run->groups[g].step, .n_bytes = sizeof run->groups[g].step};
  run->n_leaves = run->n_numbers + run->index->n_tensors + run->n_groups;
  return CKPT_OK;
}

static ckpt_status find_all(const finder *f, ckpt_error *err) {
  ckpt_zero_run *run = f->run;
  const ckpt_object *groups = ckpt_object_get(run->index->objects, CKPT_STATE_PARAM_GROUPS);
  const bool is_known = groups != NULL && groups->kind == CKPT_OBJECT_LIST;
  const uint64_t n_groups = is_known ? groups->n : 0;
  CKPT_TRY_ALLOC(run->groups = ckpt_arena_array(run->arena, (size_t)n_groups + 1, sizeof *run->groups), err);
  for (uint64_t g = 0; is_known && g < n_groups; g++) CKPT_TRY(take_group(f, groups->items[g], err));
  run->has_order = run->n_params != 0;
  if (!run->has_order) {
    run->n_groups = 0;
    CKPT_TRY(take_all(f, err));
  }
  for (uint32_t i = 0; i < run->index->n_tensors; i++) CKPT_TRY(take_state(f, i, err));
  CKPT_TRY(check_states(run, err));
  CKPT_TRY(check_scalars(run, err));
  return make_steps(run, err);
}

ckpt_status ckpt_zero_run_find(ckpt_zero_run **out, ckpt_layout *layout, uint32_t stage, uint32_t world,
                               ckpt_error *err) {
  const ckpt_index *index = layout->index;
  ckpt_zero_run *run = *out = ckpt_arena_alloc(layout->arena, sizeof *run);
  CKPT_TRY_ALLOC(run, err);
  *run = (ckpt_zero_run){.layout = layout, .index = index, .arena = layout->arena};
  run->stage = stage;
  run->world = world == 0 ? 1 : world;
  uint32_t *numbers = NULL, n_numbers = 0;
  if (index->objects_of != NULL) CKPT_TRY(ckpt_described_numbers(&numbers, &n_numbers, index, true, err));
  run->numbers = ckpt_arena_array(run->arena, (size_t)n_numbers + 1, sizeof *run->numbers);
  if (run->numbers != NULL && n_numbers != 0) memcpy(run->numbers, numbers, n_numbers * sizeof *numbers);
  free(numbers);
  CKPT_TRY_ALLOC(run->numbers, err);
  run->n_numbers = n_numbers;
  run->params = ckpt_arena_array(run->arena, (size_t)index->n_tensors + 1, sizeof *run->params);
  run->is_trained = ckpt_arena_array(run->arena, (size_t)index->n_tensors + 1, sizeof *run->is_trained);
  run->has_copy = ckpt_arena_array(run->arena, (size_t)index->n_tensors + 1, sizeof *run->has_copy);
  const finder f = {run, calloc((size_t)index->n_tensors + 1, sizeof(uint32_t))};
  ckpt_status status = run->params == NULL || run->is_trained == NULL || run->has_copy == NULL || f.of == NULL
                           ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory")
                           : find_all(&f, err);
  free(f.of);
  return status;
}

/* ---- sub-groups ---------------------------------------------------------------------------------------------------
 */

ckpt_status ckpt_zero_run_split(ckpt_zero_run *run, uint64_t sub_group_size, ckpt_error *err) {
  const ckpt_zero_group *whole = run->groups;
  const uint32_t n_whole = run->n_groups;
  run->groups = ckpt_arena_array(run->arena, (size_t)run->n_params + n_whole + 1, sizeof *run->groups);
  CKPT_TRY_ALLOC(run->groups, err);
  run->n_groups = 0;
  for (uint32_t g = 0; g < n_whole; g++) {
    ckpt_zero_group *part = &run->groups[run->n_groups++];
    *part = whole[g];
    part->n = 0;
    uint64_t n_elements = 0;
    for (uint32_t i = 0; i < whole[g].n; i++) {
      const uint64_t n = run->index->tensors[run->params[whole[g].first + i].tensor].n_elements;
      part->n++;
      n_elements += n / run->world + (n % run->world != 0);
      if (n_elements < sub_group_size || i + 1 == whole[g].n) continue;
      part = &run->groups[run->n_groups++];
      *part = whole[g];
      part->first = whole[g].first + i + 1;
      part->n = 0;
      n_elements = 0;
    }
  }
  return make_steps(run, err);
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

ckpt_object *ckpt_zero_leaf(const ckpt_zero_run *run, uint32_t tensor) {
  return ckpt_object_tensor(run->arena, run->n_numbers + tensor);
}

ckpt_object *ckpt_zero_step_leaf(const ckpt_zero_run *run, uint32_t group) {
  return ckpt_object_tensor(run->arena, run->n_numbers + run->index->n_tensors + group);
}

void ckpt_zero_item(const void *arg, uint32_t leaf, ckpt_torch_item *item) {
  static const uint64_t no_shape[1] = {0};
  const ckpt_zero_run *run = arg;
  if (leaf < run->n_numbers) {
    item->whole = run->numbers[leaf];
  } else if (leaf - run->n_numbers < run->index->n_tensors) {
    item->whole = leaf - run->n_numbers;
  } else { /* a step */
    *item = (ckpt_torch_item){.dtype = CKPT_F32, .shape = no_shape, .n_parts = 1};
    item->parts = &run->steps[leaf - run->n_numbers - run->index->n_tensors];
  }
}
