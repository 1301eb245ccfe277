/* steps.c - see steps.h. */
#include "libckpt/codec/torch/state/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

enum { NAME_BYTES = 8192 };

bool ckpt_torch_plain_step(const ckpt_object *value, float *step) {
  if (value == NULL || (value->kind != CKPT_OBJECT_INT && value->kind != CKPT_OBJECT_FLOAT)) return false;
  const double number = value->kind == CKPT_OBJECT_INT ? (double)value->integer : value->number;
  if (!(number >= 0 && number < 0x1p53)) return false;
  *step = (float)number;
  return (double)*step == number;
}

ckpt_status ckpt_torch_add_step(ckpt_index *index, const char *parameter, float step, ckpt_error *err) {
  ckpt_extent extent = {.file = CKPT_FILE_LITERAL, .count = 1};
  char name[NAME_BYTES];
  uint32_t bits;
  memcpy(&bits, &step, sizeof bits);
  extent.offset = (uint64_t)bits | (uint64_t)bits << 32;
  int n = snprintf(name, sizeof name, CKPT_STATE_PREFIX "%s.step", parameter);
  if (n < 0 || n >= NAME_BYTES) return ckpt_fail(err, CKPT_ELIMIT, NULL, parameter, "its name is too long");
  return ckpt_index_add(index, name, strlen(name), CKPT_F32, 0, NULL, CKPT_ROLE_STEP, &extent, 1, NULL, err);
}

/* ---- steps of groups --------------------------------------------------------------------------------------------- */

/* A parameter that a group with a plain step names. */
typedef struct stepped {
  const char *name;
  size_t n; /* bytes of it */
  float step;
  bool has_states, has_step;
} stepped;

static int compare(const void *x, const void *y) {
  const stepped *a = x, *b = y;
  if (a->name == b->name) return (a->n > b->n) - (a->n < b->n); /* one text can stand for all names of a file */
  const int order = memcmp(a->name, b->name, a->n < b->n ? a->n : b->n);
  return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_steps(const void *x, const void *y) {
  const stepped *a = x, *b = y;
  const int order = compare(a, b);
  return order != 0 ? order : (a->step > b->step) - (a->step < b->step);
}

/* The params of a group with a plain step; NULL: it has none. */
static const ckpt_object *params_of(const ckpt_object *group, float *step) {
  const ckpt_object *params = ckpt_object_get(group, "params");
  if (!ckpt_torch_plain_step(ckpt_object_get(group, "step"), step)) return NULL;
  return params == NULL || params->kind != CKPT_OBJECT_LIST ? NULL : params;
}

/* Sorts n parameters by name, and keeps one of each; how many those are. */
static size_t sort(stepped *params, size_t n) {
  size_t n_kept = 0;
  if (n > 1) qsort(params, n, sizeof *params, compare_steps);
  for (size_t i = 0; i < n; i++)
    if (n_kept == 0 || compare(&params[n_kept - 1], &params[i]) != 0) params[n_kept++] = params[i];
  return n_kept;
}

/* Says of which of n sorted parameters there are states. */
static void find_states(const ckpt_index *index, stepped *params, size_t n) {
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *state = &index->tensors[i];
    stepped key = {.n = 0};
    key.name = ckpt_state_parameter(state->name, &key.n);
    stepped *of = key.name == NULL ? NULL : bsearch(&key, params, n, sizeof *params, compare);
    if (of == NULL || ckpt_role_is_model((ckpt_role)state->role) || state->role == CKPT_ROLE_MASTER) continue;
    of->has_states = true;
    of->has_step = of->has_step || state->role == CKPT_ROLE_STEP;
  }
}

/* Appends the names of a group's parameters. */
static void take_group(stepped *params, size_t *n, const ckpt_object *names, float step) {
  for (uint64_t i = 0; names != NULL && i < names->n; i++) {
    const ckpt_object *name = names->items[i];
    if (name->kind != CKPT_OBJECT_TEXT || name->n >= NAME_BYTES || strlen(name->text) != name->n) continue;
    params[(*n)++] = (stepped){.name = name->text, .n = (size_t)name->n, .step = step};
  }
}

ckpt_status ckpt_torch_add_steps_of_groups(ckpt_index *index, ckpt_error *err) {
  const ckpt_object *groups = ckpt_object_get(index->objects, CKPT_STATE_PARAM_GROUPS), *names;
  uint64_t n_named = 0;
  size_t n = 0;
  float step;
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST) return CKPT_OK;
  for (uint64_t g = 0; g < groups->n && n_named <= index->n_tensors; g++)
    if ((names = params_of(groups->items[g], &step)) != NULL) n_named += names->n; /* of nodes in memory */
  if (n_named == 0 || n_named > index->n_tensors) return CKPT_OK; /* a file can share one list among many groups */
  stepped *params = calloc((size_t)n_named, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  for (uint64_t g = 0; g < groups->n; g++) {
    names = params_of(groups->items[g], &step);
    take_group(params, &n, names, step);
  }
  n = sort(params, n);
  find_states(index, params, n);
  ckpt_status status = CKPT_OK;
  for (size_t i = 0; i < n && status == CKPT_OK; i++)
    if (params[i].has_states && !params[i].has_step)
      status = ckpt_torch_add_step(index, params[i].name, params[i].step, err);
  free(params);
  return status;
}
