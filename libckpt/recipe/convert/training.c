/* training.c - see training.h. Runs between the rows of the selection and the check of the plan: the description is not
 * finished, so that names are looked up in a table of their own. The steps of tensors are read here, one value each. */
#include "libckpt/recipe/convert/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/torch/state/params.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/torch/state/steps.h"
#include "libckpt/index/masters.h"
#include "libckpt/index/name_table.h"

enum { NAME_BYTES = 8192 };
#define NO_TENSOR UINT32_MAX
#define MOST_STEPS 0x1p53 /* whole numbers below are themselves as doubles */

/* What is known of a described tensor. */
typedef struct known {
  uint32_t master;  /* of a parameter: its tensor; NO_TENSOR */
  uint32_t group;   /* of a parameter: its place in the groups, + 1; 0: in none */
  const char *name; /* as the group has it */
  bool has_states, has_step, is_dropped;
  bool has_moments; /* states beside masters and steps */
} known;

typedef struct trainer {
  ckpt_plan *plan;
  const ckpt_index *from;
  ckpt_output *output;
  ckpt_index *described;
  uint32_t sink, n; /* tensors that the input has */
  ckpt_name_table *table;
  known *of;
  ckpt_object *groups; /* LIST of DICTs that are ours to change; NULL: there are none */
  uint32_t n_own;      /* parameters whose own values stand nowhere beside their masters */
  uint64_t n_own_bytes;
  bool has_groups, is_bf16;
  const char *only_masters, *instead; /* as the format says (format.h) */
} trainer;

static ckpt_row *row_of(const trainer *t, uint32_t number) {
  return &t->plan->rows[t->described->tensors[number].details->origin];
}

/* ---- parameters and their states --------------------------------------------------------------------------------- */

/* The parameter whose state a tensor is; -1: of none, or it is no state. */
static int64_t parameter_of(const trainer *t, const ckpt_tensor *state) {
  char name[NAME_BYTES];
  size_t n;
  const char *parameter = ckpt_state_parameter(state->name, &n);
  if (parameter == NULL || n >= sizeof name) return -1;
  memcpy(name, parameter, n);
  name[n] = '\0';
  int64_t number = ckpt_name_table_find(t->table, name);
  return number < 0 || t->described->tensors[number].role != CKPT_ROLE_PARAMETER ? -1 : number;
}

/* Whether n bytes are digits: torch's own name for a parameter that it was given without one. */
static bool is_number(const char *name, size_t n) { return strspn(name, "0123456789") >= n; }

static ckpt_status match_states(trainer *t, ckpt_error *err) {
  for (uint32_t i = 0; i < t->n; i++) t->of[i].master = NO_TENSOR;
  for (uint32_t i = 0; i < t->n; i++) {
    const ckpt_tensor *state = &t->described->tensors[i];
    size_t n;
    if (ckpt_role_is_model((ckpt_role)state->role) || ckpt_state_parameter(state->name, &n) == NULL) continue;
    int64_t number = parameter_of(t, state);
    if (number < 0 && is_number(ckpt_state_parameter(state->name, &n), n))
      return ckpt_advise(
          ckpt_fail(err, CKPT_EUNSUPPORTED, t->from->path, state->name,
                    "the optimizer numbers its parameters, and nothing says which is which (torch writes names for "
                    "an optimizer of named_parameters())"),
          err, "%include=no-optimizer goes on without");
    if (number < 0)
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, t->from->path, state->name,
                                   "a state of a parameter that is not there under this name"),
                         err, "%include=no-optimizer goes on without");
    t->of[number].has_states = true;
    if (state->role != CKPT_ROLE_MASTER && state->role != CKPT_ROLE_STEP) t->of[number].has_moments = true;
    if (state->role != CKPT_ROLE_MASTER) continue;
    if (!ckpt_tensor_same_shape(&t->described->tensors[number], state))
      return ckpt_advise(
          ckpt_fail(err, CKPT_EUNSUPPORTED, t->from->path, state->name, "a master of another shape than its parameter"),
          err, "%include=no-optimizer goes on without");
    t->of[number].master = i;
  }
  return CKPT_OK;
}

/* Whether a parameter is trained: a group names it; where there are no groups, it can be. */
static bool is_trained(const trainer *t, uint32_t i) {
  if (!ckpt_tensor_may_train(&t->described->tensors[i])) return false;
  return !t->has_groups || t->of[i].group != 0;
}

/* ---- masters ----------------------------------------------------------------------------------------------------- */

/* The tensor of the input that a row is; NULL: it is made of some. */
static const ckpt_tensor *input_of(const trainer *t, uint32_t number) {
  const ckpt_expr *expr = row_of(t, number)->expr;
  return expr->index == t->from ? ckpt_expr_tensor(expr) : NULL;
}

/* A row of a trained parameter that the input has not: it is called as a reader of the output will call it. */
static ckpt_status add_state(const trainer *t, uint32_t parameter, const char *key, ckpt_role role, ckpt_expr *expr,
                             ckpt_error *err) {
  char name[NAME_BYTES];
  const char *of = t->of[parameter].name != NULL ? t->of[parameter].name : t->described->tensors[parameter].name;
  int n = snprintf(name, sizeof name, CKPT_STATE_PREFIX "%s.%s", of, key);
  if (n < 0 || n >= NAME_BYTES) return ckpt_fail(err, CKPT_ELIMIT, NULL, of, "its name is too long");
  CKPT_TRY(ckpt_plan_add_like(t->plan, t->sink, name, expr, NULL, NULL, err));
  t->described->tensors[t->described->n_tensors - 1].role = (uint8_t)role;
  return CKPT_OK;
}

/* Gives the row of a described tensor another value. */
static void set_row(const trainer *t, uint32_t number, ckpt_expr *expr) {
  row_of(t, number)->expr = expr;
  t->described->tensors[number].dtype = (uint8_t)expr->dtype;
  t->described->tensors[number].n_bytes = expr->n_bytes;
}

/* What the model computed with, where masters are all that parameters have: left out, unless it was asked for. */
static ckpt_status say_own(const trainer *t, ckpt_error *err) {
  char size[32], advice[sizeof err->advice];
  if (t->n_own == 0) return CKPT_OK;
  snprintf(advice, sizeof advice, "leave out %%weights=model, or %s", t->instead);
  if (t->from->weights != NULL && strcmp(t->from->weights, "model") == 0)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, t->from->path, NULL,
                                 "%s and no weights of the model beside them", t->only_masters),
                       err, advice);
  return ckpt_losses_add(&t->output->losses, err, "the model's own values of %u parameter%s %s (%s)", t->n_own,
                         ckpt_plural(t->n_own), ckpt_text_size(t->n_own_bytes, size), t->only_masters);
}

/* What a row is before a rule of the user's rounded it: masters are made of that. */
static ckpt_expr *before_cast(const trainer *t, ckpt_expr *expr) {
  const bool is_cast = expr->op == &ckpt_op_cast;
  ckpt_expr *from = is_cast ? expr->args[0] : expr;
  return is_cast && from->index == t->from && ckpt_expr_tensor(from) != NULL && from->dtype != CKPT_F64 ? from : expr;
}

/* Gives a trained parameter a master. Where both are one, so are their rows, of which formats write one. */
static ckpt_status settle(trainer *t, uint32_t i, ckpt_error *err) {
  const ckpt_tensor *parameter = &t->described->tensors[i], *input = input_of(t, i);
  const ckpt_tensor *stored = input == NULL ? NULL : ckpt_stored_copy(t->from, input);
  const bool is_alone = t->only_masters != NULL; /* the master is all that the parameter has */
  ckpt_expr *expr = row_of(t, i)->expr;
  t->is_bf16 = t->is_bf16 || (stored == NULL ? parameter : stored)->dtype == CKPT_BF16;
  if (t->of[i].master != NO_TENSOR) {
    const ckpt_tensor *master = input_of(t, t->of[i].master), *own = stored == NULL ? input : stored;
    const bool is_read = own != NULL && master != NULL, is_one = is_read && ckpt_tensor_same_place(own, master);
    if (is_alone && is_read && !is_one) {
      t->n_own++;
      t->n_own_bytes += own->n_bytes;
    }
    if (is_alone || is_one)
      expr = row_of(t, t->of[i].master)->expr;
    else if (stored != NULL)
      CKPT_TRY(ckpt_expr_read(&expr, t->plan, t->from, stored, err));
    set_row(t, i, expr);
    return CKPT_OK;
  }
  if (expr->dtype == CKPT_F64)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, t->from->path, parameter->name,
                                 "its values are f64, which masters of f32 would round"),
                       err, "%to=dcp keeps them");
  if (is_alone && expr->dtype != CKPT_F32) {
    t->n_own++;
    t->n_own_bytes += expr->n_bytes;
  }
  CKPT_TRY(ckpt_expr_cast(&expr, t->plan, before_cast(t, expr), CKPT_F32, err));
  if (is_alone) set_row(t, i, expr);
  return add_state(t, i, "master", CKPT_ROLE_MASTER, expr, err);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static ckpt_status set_key(ckpt_arena *arena, ckpt_object *dict, const char *key, const ckpt_object *value,
                           ckpt_error *err) {
  CKPT_TRY_ALLOC(ckpt_object_put(arena, dict, key, value), err);
  return CKPT_OK;
}

/* Groups by names, as copies with room for a step; t->groups stays NULL where there are none. */
static ckpt_status name_groups(trainer *t, ckpt_error *err) {
  enum { MAX_GROUPS = 4096, MAX_ENTRIES = 256 };
  ckpt_arena *arena = &t->described->arena;
  const ckpt_object *given = ckpt_object_get(t->described->objects, CKPT_STATE_PARAM_GROUPS), *optimizer;
  ckpt_object *named = NULL;
  if (given == NULL) return CKPT_OK;
  optimizer = ckpt_torch_state_optimizer(t->described, given);
  if (optimizer == NULL) {
    CKPT_TRY_ALLOC(named = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, NULL), err);
    named->n = 0;
    CKPT_TRY(set_key(arena, named, "param_groups", given, err));
    optimizer = named;
  }
  CKPT_TRY(ckpt_torch_name_params(&named, optimizer, t->described, arena, err));
  const ckpt_object *list = ckpt_object_get(named, "param_groups");
  if (list == NULL || list->kind != CKPT_OBJECT_LIST || list->n > MAX_GROUPS) return CKPT_OK;
  CKPT_TRY_ALLOC(t->groups = ckpt_object_new(arena, CKPT_OBJECT_LIST, list->n, NULL), err);
  for (uint64_t g = 0; g < list->n; g++) {
    const ckpt_object *group = list->items[g];
    if (group->kind != CKPT_OBJECT_DICT || group->n > MAX_ENTRIES) {
      t->groups = NULL;
      return CKPT_OK;
    }
    ckpt_object *copy = ckpt_object_new(arena, CKPT_OBJECT_DICT, group->n + 1, NULL);
    CKPT_TRY_ALLOC(copy, err);
    copy->n = group->n;
    if (group->n != 0) memcpy(copy->items, group->items, 2 * (size_t)group->n * sizeof *copy->items);
    t->groups->items[g] = copy;
  }
  return CKPT_OK;
}

/* Which group each parameter is in. */
static ckpt_status match_groups(trainer *t, ckpt_error *err) {
  for (uint64_t g = 0; t->groups != NULL && g < t->groups->n; g++) {
    const ckpt_object *params = ckpt_object_get(t->groups->items[g], "params");
    for (uint64_t i = 0; params != NULL && params->kind == CKPT_OBJECT_LIST && i < params->n; i++) {
      const ckpt_object *name = params->items[i];
      int64_t number = name->kind == CKPT_OBJECT_TEXT ? ckpt_name_table_find(t->table, name->text) : -1;
      if (number < 0 || !ckpt_tensor_may_train(&t->described->tensors[number])) continue;
      if (t->of[number].group != 0)
        return ckpt_fail(err, CKPT_EFORMAT, t->from->path, name->text, "it is in two groups of the optimizer");
      t->of[number].group = (uint32_t)g + 1;
      t->of[number].name = name->text;
      t->has_groups = true;
    }
  }
  for (uint32_t i = 0; i < t->n; i++)
    if (ckpt_tensor_may_train(&t->described->tensors[i]) && t->of[i].has_states && t->of[i].group == 0)
      return ckpt_advise(
          ckpt_fail(err, CKPT_EUNSUPPORTED, t->from->path, t->described->tensors[i].name, "it has states, and %s",
                    t->groups == NULL ? "the optimizer has no param_groups: its hyperparameters are not known"
                                      : "the optimizer's param_groups do not name it"),
          err, "%include=no-optimizer goes on without");
  return CKPT_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The one value of a tensor of the input, which torch has as f32, and older optimizers as a whole number. */
static ckpt_status read_value(const trainer *t, const ckpt_tensor *stored, double *value, ckpt_error *err) {
  const ckpt_dtype_row *row = ckpt_dtype_get(stored->dtype);
  uint8_t bytes[8] = {0};
  if (row->kind == CKPT_KIND_FLOAT) return ckpt_read(t->from, stored, NULL, CKPT_F64, value, sizeof *value, err);
  if (row->kind != CKPT_KIND_INT && row->kind != CKPT_KIND_UINT)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a step that is %s", row->name), err,
                       "%include=no-optimizer goes on without");
  CKPT_TRY(ckpt_read(t->from, stored, NULL, CKPT_DTYPE_NONE, bytes, (size_t)stored->n_bytes, err));
  const uint64_t number = ckpt_le64(bytes), sign = UINT64_C(1) << (8 * stored->n_bytes - 1);
  const bool is_negative = row->kind == CKPT_KIND_INT && (number & sign) != 0;
  *value = is_negative ? (double)(int64_t)(number | (0 - sign)) : (double)number;
  return CKPT_OK;
}

static ckpt_status take_step(const trainer *t, uint32_t i, double *steps, ckpt_error *err) {
  const ckpt_tensor *state = &t->described->tensors[i], *stored = input_of(t, i);
  const int64_t number = parameter_of(t, state);
  double step = 0;
  if (number < 0 || t->of[number].group == 0) return CKPT_OK; /* of nothing that is trained */
  const char *file = stored == NULL ? t->from->path : ckpt_index_file_of(t->from, stored);
  if (stored == NULL || stored->n_elements != 1)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, file, state->name, "a step that is not one value"), err,
                       "%include=no-optimizer goes on without");
  CKPT_TRY(ckpt_fail_at(read_value(t, stored, &step, err), err, file, state->name));
  if (!(step >= 0 && step < MOST_STEPS) || (double)(float)step != step)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, file, state->name,
                                 "step %.17g is not a value of f32, in which this format keeps steps", step),
                       err, "%include=no-optimizer goes on without");
  double *of = &steps[t->of[number].group - 1];
  if (*of < 0) *of = step;
  if (*of != step)
    return ckpt_advise(
        ckpt_fail(err, CKPT_EUNSUPPORTED, file, state->name,
                  "step %.17g, and %.17g of others in its group: this format has one for all", step, *of),
        err, "%include=no-optimizer goes on without");
  t->of[i].is_dropped = stored->dtype != CKPT_F32 || stored->rank != 0; /* and added as the output has it */
  t->of[number].has_step = !t->of[i].is_dropped;
  return CKPT_OK;
}

/* The steps of the groups' parameters, which their files hold once per group: one walk, however many groups. */
static ckpt_status add_steps(const trainer *t, ckpt_error *err) {
  const uint64_t n = t->groups->n;
  float *steps = ckpt_arena_array(&t->plan->arena, (size_t)n + 1, sizeof *steps);
  CKPT_TRY_ALLOC(steps, err);
  for (uint64_t g = 0; g < n; g++) {
    const ckpt_object *given = ckpt_object_get(t->groups->items[g], "step");
    if (given != NULL && given->kind == CKPT_OBJECT_FLOAT)
      steps[g] = (float)given->number;
    else if (!ckpt_torch_plain_step(given, &steps[g]))
      steps[g] = NAN;
  }
  for (uint32_t i = 0; i < t->n; i++) {
    ckpt_expr *expr;
    const uint32_t group = t->of[i].group;
    if (group == 0 || t->of[i].has_step || isnan(steps[group - 1])) continue;
    const ckpt_object *given = ckpt_object_get(t->groups->items[group - 1], "step");
    if (given->kind == CKPT_OBJECT_INT && !t->of[i].has_moments) continue; /* a number beside no states is not read */
    CKPT_TRY(ckpt_expr_memory(&expr, t->plan, CKPT_F32, 0, NULL, &steps[group - 1], err));
    CKPT_TRY(add_state(t, i, "step", CKPT_ROLE_STEP, expr, err));
  }
  return CKPT_OK;
}

/* The kind of a state: its name behind the parameter's. */
static const char *kind_of(const ckpt_tensor *state) {
  size_t n;
  return ckpt_state_parameter(state->name, &n) + n + 1;
}

/* Compares a state with the first of its kind in its group, or makes it the first. */
static ckpt_status compare_value(const trainer *t, uint32_t i, uint32_t *first, uint32_t n_kinds, ckpt_error *err) {
  const ckpt_tensor *state = &t->described->tensors[i], *stored = input_of(t, i);
  const char *file = stored == NULL ? t->from->path : ckpt_index_file_of(t->from, stored);
  uint32_t k = 0;
  double value, wanted;
  while (k < n_kinds && first[k] != 0 && strcmp(kind_of(&t->described->tensors[first[k] - 1]), kind_of(state)) != 0)
    k++;
  if (k == n_kinds) return CKPT_OK; /* more than any optimizer has */
  if (stored == NULL)
    return ckpt_advise(
        ckpt_fail(err, CKPT_EUNSUPPORTED, file, state->name, "one value of a group, and not as it is stored"), err,
        "%include=no-optimizer goes on without");
  if (first[k] == 0) first[k] = i + 1;
  const ckpt_tensor *like = input_of(t, first[k] - 1);
  if (ckpt_tensor_same_place(stored, like)) return CKPT_OK;
  CKPT_TRY(ckpt_fail_at(read_value(t, stored, &value, err), err, file, state->name));
  CKPT_TRY(ckpt_fail_at(read_value(t, like, &wanted, err), err, file, state->name));
  if (memcmp(&value, &wanted, sizeof value) == 0) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, file, state->name,
                               "%.17g, and %.17g of others in its group: this format has one for all", value, wanted),
                     err, "%include=no-optimizer goes on without");
}

/* Whether a state is one value beside a parameter of more, which files have once for each group: NAdam's mu_product. */
static bool is_one_value(const trainer *t, const ckpt_tensor *state, int64_t number) {
  size_t n;
  return number >= 0 && state->role != CKPT_ROLE_STEP && state->role != CKPT_ROLE_MASTER && state->n_elements == 1 &&
         !ckpt_role_is_model((ckpt_role)state->role) && ckpt_state_parameter(state->name, &n) != NULL &&
         !ckpt_tensor_same_shape(&t->described->tensors[number], state);
}

/* What is one value of each group has to be the same of all its parameters. States of one kind follow each other where
 * their first ones are kept: there are few kinds. */
static ckpt_status check_values(const trainer *t, ckpt_error *err) {
  enum { MAX_KINDS = 8 };
  const uint64_t n = t->groups->n;
  uint32_t *first = calloc((size_t)n + 1, MAX_KINDS * sizeof *first); /* by group and kind: a tensor + 1 */
  CKPT_TRY_ALLOC(first, err);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < t->n && status == CKPT_OK; i++) {
    const ckpt_tensor *state = &t->described->tensors[i];
    if (state->n_elements != 1) continue;
    const int64_t number = parameter_of(t, state);
    if (!is_one_value(t, state, number) || t->of[number].group == 0) continue;
    status = compare_value(t, i, &first[(t->of[number].group - 1) * MAX_KINDS], MAX_KINDS, err);
  }
  free(first);
  return status;
}

static ckpt_status read_steps(const trainer *t, double *steps, ckpt_error *err) {
  ckpt_arena *arena = &t->described->arena;
  for (uint64_t g = 0; g < t->groups->n; g++) steps[g] = -1;
  for (uint32_t i = 0; i < t->n; i++) {
    if (t->described->tensors[i].role != CKPT_ROLE_STEP) continue;
    t->of[i].is_dropped = true;
    CKPT_TRY(take_step(t, i, steps, err));
  }
  for (uint64_t g = 0; g < t->groups->n; g++) {
    ckpt_object *group = t->groups->items[g];
    const ckpt_object *given = ckpt_object_get(group, "step");
    if (steps[g] < 0) continue;
    if (given != NULL && given->kind == CKPT_OBJECT_INT && (double)given->integer == steps[g]) continue;
    uint64_t place = 0;
    while (place < group->n &&
           !(group->items[2 * place]->kind == CKPT_OBJECT_TEXT && strcmp(group->items[2 * place]->text, "step") == 0))
      place++;
    const uint64_t n = group->n;
    group->n = place;
    CKPT_TRY(set_key(arena, group, "step", ckpt_object_float(arena, steps[g]), err));
    if (place < n) group->n = n;
  }
  return add_steps(t, err);
}

static ckpt_status set_steps(const trainer *t, ckpt_error *err) {
  if (t->groups == NULL) return CKPT_OK;
  CKPT_TRY(check_values(t, err));
  double *steps = calloc((size_t)t->groups->n + 1, sizeof *steps);
  CKPT_TRY_ALLOC(steps, err);
  ckpt_status status = read_steps(t, steps, err);
  free(steps);
  return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The trainer's state with the word that the model computes in bf16, where it does. */
static ckpt_status make_trainer(const trainer *t, const ckpt_object **out, ckpt_error *err) {
  const ckpt_object *given = *out = ckpt_object_get(t->described->objects, CKPT_STATE_TRAINER);
  if (!t->is_bf16 || ckpt_object_get(given, CKPT_TRAINER_BF16) != NULL) return CKPT_OK;
  if (given != NULL && given->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  const uint64_t n = given == NULL ? 0 : given->n;
  ckpt_object *copy = ckpt_object_new(&t->described->arena, CKPT_OBJECT_DICT, n + 1, NULL);
  CKPT_TRY_ALLOC(copy, err);
  copy->n = n;
  if (n != 0) memcpy(copy->items, given->items, 2 * (size_t)n * sizeof *copy->items);
  *out = copy;
  return set_key(&t->described->arena, copy, CKPT_TRAINER_BF16, ckpt_object_bool(&t->described->arena, true), err);
}

/* The description gets its own objects, with these groups and that. */
static ckpt_status set_objects(const trainer *t, ckpt_error *err) {
  const ckpt_object *given = t->described->objects, *training;
  const uint64_t n = given == NULL ? 0 : given->n;
  CKPT_TRY(make_trainer(t, &training, err));
  if (t->groups == NULL && training == NULL) return CKPT_OK;
  ckpt_object *objects = ckpt_object_new(&t->described->arena, CKPT_OBJECT_DICT, n + 1, NULL);
  CKPT_TRY_ALLOC(objects, err);
  bool has_training = training == NULL;
  objects->n = n;
  if (n != 0) memcpy(objects->items, given->items, 2 * (size_t)n * sizeof *objects->items);
  for (uint64_t i = 0; i < n; i++) {
    if (objects->items[2 * i]->kind != CKPT_OBJECT_TEXT) continue;
    if (t->groups != NULL && strcmp(objects->items[2 * i]->text, CKPT_STATE_PARAM_GROUPS) == 0)
      objects->items[2 * i + 1] = t->groups;
    if (training == NULL || strcmp(objects->items[2 * i]->text, CKPT_STATE_TRAINER) != 0) continue;
    objects->items[2 * i + 1] = (ckpt_object *)(uintptr_t)training;
    has_training = true;
  }
  if (!has_training) CKPT_TRY(set_key(&t->described->arena, objects, CKPT_STATE_TRAINER, training, err));
  t->described->objects = objects;
  return CKPT_OK;
}

/* The description without the tensors that are dropped. */
static void compact(const trainer *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->described->n_tensors; i++)
    if (i >= t->n || !t->of[i].is_dropped) t->described->tensors[n++] = t->described->tensors[i];
  t->described->n_tensors = n;
}

static ckpt_status add_all(trainer *t, ckpt_error *err) {
  CKPT_TRY(ckpt_name_table_new(&t->table, t->described, err));
  CKPT_TRY(match_states(t, err));
  CKPT_TRY(name_groups(t, err));
  CKPT_TRY(match_groups(t, err));
  CKPT_TRY(set_steps(t, err));
  for (uint32_t i = 0; i < t->n; i++)
    if (is_trained(t, i)) CKPT_TRY(settle(t, i, err));
  CKPT_TRY(say_own(t, err));
  CKPT_TRY(set_objects(t, err));
  compact(t);
  return CKPT_OK;
}

ckpt_status ckpt_training_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_error *err) {
  ckpt_output *output = &plan->outputs[sink];
  trainer t = {.plan = plan, .from = from, .output = output, .described = output->described, .sink = sink};
  t.n = t.described->n_tensors;
  if (output->format->only_masters != NULL)
    t.only_masters = output->format->only_masters(&output->options.values, &t.instead);
  t.of = calloc((size_t)t.n + 1, sizeof *t.of);
  CKPT_TRY_ALLOC(t.of, err);
  ckpt_status status = add_all(&t, err);
  ckpt_name_table_free(t.table);
  free(t.of);
  return status;
}
