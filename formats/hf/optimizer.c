/* optimizer.c - the optimizer that a trainer saved beside a model: optimizer.pt (the Trainer of Hugging Face) or
 * optimizer.bin (accelerate; of FSDP, gathered, with names for numbers).
 *
 *   {"state": {0: {"step": tensor, "exp_avg": tensor, ...}, ...}, "param_groups": [{"lr": ..., "params": [0, 1, ...]}]}
 *
 * order.c says which parameter each state is of. Nothing is taken unless that is certain and the states' shapes
 * agree; else the file is carried as it is, and a note says why. */
#include "formats/hf/optimizer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/hf.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/torch/state/steps.h"

enum { NAME_BYTES = 8192, MAX_STATES = 16, MAX_KEY = 64, MAX_ENTRIES = 64, MAX_GROUPS = 4096, MAX_TEXT = 1 << 16 };

typedef ckpt_hf_optimizer optimizer;

bool ckpt_hf_refuse(optimizer *o, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(o->why, sizeof o->why, format, arguments);
  va_end(arguments);
  return false;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */
/* Opens it. What a trainer would not have written under this name is damaged. */
static ckpt_status open_file(optimizer *o, ckpt_error *err) {
  ckpt_source *source = o->index->source;
  ckpt_pickle_report report;
  uint8_t head[1024];
  size_t n_head = o->side->n_bytes < sizeof head ? (size_t)o->side->n_bytes : sizeof head;
  CKPT_TRY(ckpt_source_read(source, o->side->file, 0, head, n_head, err));
  if (!ckpt_torch_probe(head, n_head)) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "is no file of torch.save");
  CKPT_TRY(ckpt_torch_any_read(&o->graph, source, o->side->file, &o->nodes, &report, err));
  return ckpt_torch_graph_add(&o->graph, o->held, "", true, err);
}

/* Whether a parameter of a group is the next number, or a name. */
static bool is_next(optimizer *o, const ckpt_object *param) {
  const bool is_first = o->n_numbered == 0;
  if (is_first) o->is_named = param->kind == CKPT_OBJECT_TEXT;
  const uint64_t next = o->n_numbered++;
  if (o->is_named) return param->kind == CKPT_OBJECT_TEXT;
  return param->kind == CKPT_OBJECT_INT && (uint64_t)param->integer == next;
}

/* The states, and the groups, which name their parameters, or number them one after the other. */
static bool find_parts(optimizer *o) {
  const ckpt_object *root = o->graph.root;
  o->states = ckpt_object_field(root, "state");
  o->groups = ckpt_object_field(root, "param_groups");
  if (o->states == NULL || o->states->kind != CKPT_OBJECT_DICT || o->groups == NULL ||
      o->groups->kind != CKPT_OBJECT_LIST)
    return ckpt_hf_refuse(o, "it has no states and groups");
  if (o->groups->n > MAX_GROUPS) return ckpt_hf_refuse(o, "%" PRIu64 " groups", o->groups->n);
  for (uint64_t g = 0; g < o->groups->n; g++) {
    const ckpt_object *group = o->groups->items[g], *params = ckpt_object_field(group, "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST || group->kind != CKPT_OBJECT_DICT || group->n > MAX_ENTRIES)
      return ckpt_hf_refuse(o, "a group without params");
    for (uint64_t i = 0; i < params->n; i++)
      if (!is_next(o, params->items[i]))
        return ckpt_hf_refuse(o, "its parameters are neither names nor numbered one after the other");
    if (o->n_numbered > o->index->n_tensors) break; /* one list again and again: refused for its number */
  }
  for (uint64_t i = 0; i < root->n; i++)
    if (root->items[2 * i]->kind != CKPT_OBJECT_TEXT) return ckpt_hf_refuse(o, "an entry of it has no name");
  return true;
}

/* ---- whether it fits --------------------------------------------------------------------------------------------- */

/* What a state is called in the index: canonically, where it has such a name. */
static const char *name_of(const ckpt_object *key) {
  const ckpt_torch_state *state = ckpt_torch_state_of(key->text, (size_t)key->n);
  return state == NULL ? key->text : state->name;
}

/* Whether entry i of a parameter's states has a name that is its own. */
static bool has_name(const ckpt_object *states, uint64_t i) {
  const ckpt_object *key = states->items[2 * i];
  if (key->kind != CKPT_OBJECT_TEXT || key->n == 0 || key->n > MAX_KEY || strlen(key->text) != key->n) return false;
  for (uint64_t k = 0; k < i; k++)
    if (strcmp(name_of(states->items[2 * k]), name_of(key)) == 0) return false;
  return true;
}

/* A step that is a number, as older optimizers count. */
static bool is_plain_step(const ckpt_object *key, const ckpt_object *value, float *step) {
  return strcmp(key->text, "step") == 0 && ckpt_torch_plain_step(value, step);
}

/* Whether a state is a factor of one of its parameter's shape, as Adafactor's are: of a row, which lacks the last axis,
 * or has one value along it, and so a column the one before. */
static bool is_factor(const ckpt_object *key, const ckpt_tensor *state, const ckpt_tensor *param) {
  const bool is_row = strstr(key->text, "row") != NULL, is_column = strstr(key->text, "col") != NULL;
  if (param->rank < 2 || is_row == is_column) return false;
  if (state->rank + 1 != param->rank && state->rank != param->rank) return false;
  const uint32_t out = param->rank - (is_row ? 1 : 2);
  for (uint32_t i = 0, at = 0; i < param->rank; i++) {
    if (i == out && state->rank < param->rank) continue;
    if (state->shape[at++] != (i == out ? 1 : param->shape[i])) return false;
  }
  return true;
}

static bool refuse_shape(optimizer *o, const ckpt_object *key, uint32_t number, const ckpt_tensor *tensor,
                         const ckpt_tensor *param) {
  char ours[CKPT_SHAPE_TEXT], theirs[CKPT_SHAPE_TEXT];
  return ckpt_hf_refuse(o, "state %.60s of parameter %" PRIu32 " is %s, and '%.200s', which it would be, is %s",
                        key->text, number, ckpt_tensor_shape_text(tensor, theirs, sizeof theirs), param->name,
                        ckpt_tensor_shape_text(param, ours, sizeof ours));
}

/* The states of parameter `number`. Those that every optimizer has have its shape, or are scalars; of a numbered one so
 * has at least one of the others, or two of them make it up. */
static bool check_states(optimizer *o, uint32_t number) {
  const ckpt_object *state = o->states->items[2 * (size_t)number + 1];
  const ckpt_tensor *param = &o->index->tensors[o->params[number]];
  const ckpt_object *odd = NULL; /* the first that has another shape */
  const ckpt_tensor *odd_tensor = NULL;
  uint32_t n_alike = 0, n_factors = 0;
  float step;
  if (state->kind != CKPT_OBJECT_DICT || state->n > MAX_STATES)
    return ckpt_hf_refuse(o, "the states of parameter %" PRIu32 " are no dict of at most %d", number, MAX_STATES);
  for (uint64_t i = 0; i < state->n; i++) {
    const ckpt_object *key = state->items[2 * i], *leaf = state->items[2 * i + 1];
    if (!has_name(state, i))
      return ckpt_hf_refuse(o, "a state of parameter %" PRIu32 " has no name of its own", number);
    if (leaf->kind == CKPT_OBJECT_NONE || is_plain_step(key, leaf, &step)) continue;
    if (leaf->kind != CKPT_OBJECT_TENSOR)
      return ckpt_hf_refuse(o, "state %.60s of parameter %" PRIu32 " is no tensor", key->text, number);
    o->n_leaves++;
    const ckpt_tensor *tensor = &o->held->tensors[leaf->tensor];
    const bool is_alike = ckpt_tensor_same_shape(tensor, param);
    if (!is_alike && tensor->rank != 0 && ckpt_torch_state_of(key->text, (size_t)key->n) != NULL)
      return refuse_shape(o, key, number, tensor, param);
    if (!is_alike && tensor->rank != 0 && odd == NULL && !is_factor(key, tensor, param)) odd = key, odd_tensor = tensor;
    n_alike += is_alike;
    n_factors += !is_alike && is_factor(key, tensor, param);
  }
  if (o->is_named || n_alike != 0 || n_factors >= 2) return true;
  return odd != NULL ? refuse_shape(o, odd, number, odd_tensor, param)
                     : ckpt_hf_refuse(o, "parameter %" PRIu32 " has no state that has its shape", number);
}

static bool fits(optimizer *o) {
  for (uint32_t i = 0; i < o->n_params; i++)
    if (!check_states(o, i)) return false;
  return o->n_leaves == o->graph.n_leaves || ckpt_hf_refuse(o, "it has tensors that are no states of a parameter");
}

/* ---- into the index ---------------------------------------------------------------------------------------------- */

static ckpt_status add_tensor(const optimizer *o, const char *parameter, const ckpt_object *key, uint32_t held,
                              ckpt_error *err) {
  const ckpt_torch_state *state = ckpt_torch_state_of(key->text, (size_t)key->n);
  const ckpt_tensor *tensor = &o->held->tensors[held];
  char name[NAME_BYTES];
  int n = snprintf(name, sizeof name, CKPT_STATE_PREFIX "%s.%s", parameter, name_of(key));
  if (n < 0 || n >= NAME_BYTES) return ckpt_fail(err, CKPT_ELIMIT, NULL, parameter, "its name is too long");
  ckpt_extent extent = {0};
  if (tensor->n_extents != 0) extent = tensor->extents[0];
  if (tensor->details->extent_form != CKPT_EXTENT_FLAT && tensor->n_extents != 0) {
    uint64_t *box = ckpt_arena_array(&o->index->arena, 3 * (size_t)tensor->rank, sizeof *box);
    CKPT_TRY_ALLOC(box, err);
    memcpy(box, extent.box, 3 * (size_t)tensor->rank * sizeof *box);
    extent.box = box;
  }
  uint32_t number;
  CKPT_TRY(ckpt_index_add(o->index, name, strlen(name), (ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape,
                          state == NULL ? CKPT_ROLE_OTHER : state->role, &extent, tensor->n_extents, &number, err));
  o->index->tensors[number].details->extent_form = tensor->details->extent_form;
  return CKPT_OK;
}

static ckpt_status add_states(const optimizer *o, ckpt_error *err) {
  for (uint32_t i = 0; i < o->n_params; i++) {
    const ckpt_object *state = o->states->items[2 * (size_t)i + 1];
    const char *name = o->index->tensors[o->params[i]].name;
    for (uint64_t k = 0; k < state->n; k++) {
      const ckpt_object *key = state->items[2 * k], *value = state->items[2 * k + 1];
      float step;
      if (value->kind == CKPT_OBJECT_TENSOR)
        CKPT_TRY(add_tensor(o, name, key, value->tensor, err));
      else if (is_plain_step(key, value, &step))
        CKPT_TRY(ckpt_torch_add_step(o->index, name, step, err));
    }
  }
  return CKPT_OK;
}

/* The groups, by names, and what else the optimizer has beside its states: objects of the index. */
static ckpt_status add_objects(optimizer *o, ckpt_error *err) {
  ckpt_arena *arena = &o->index->arena;
  const ckpt_object *root = o->graph.root;
  uint32_t next = 0;
  for (uint64_t g = 0; g < o->groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(o->groups->items[g], "params");
    for (uint64_t i = 0; i < params->n; i++, next++) {
      const char *name = o->index->tensors[o->members[next]].name;
      CKPT_TRY_ALLOC(params->items[i] = ckpt_object_text(arena, name, strlen(name)), err);
    }
  }
  const ckpt_object *given = o->index->objects;
  const uint64_t n_given = given == NULL ? 0 : given->n;
  CKPT_TRY_ALLOC(o->index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, n_given + root->n, NULL), err);
  if (n_given != 0) memcpy(o->index->objects->items, given->items, 2 * (size_t)n_given * sizeof *given->items);
  o->index->objects->n = n_given;
  for (uint64_t i = 0; i < root->n; i++) {
    const ckpt_object *value = root->items[2 * i + 1];
    if (value == o->states) continue;
    const char *key = ckpt_arena_printf(arena, "optimizer.%s", root->items[2 * i]->text);
    CKPT_TRY_ALLOC(key, err);
    CKPT_TRY_ALLOC(ckpt_object_put(arena, o->index->objects, key, value), err);
  }
  for (uint32_t i = 0; i < o->graph.n_leaves; i++) /* numbers of another index: nobody finds one of them */
    *o->graph.leaves[i].node = (ckpt_object){.kind = CKPT_OBJECT_NONE};
  ckpt_arena_adopt(arena, &o->nodes);
  return CKPT_OK;
}

/* The number under "global_step", the last one as for Python; -1: there is none. */
static ckpt_status find_step(ckpt_json *json, int64_t *step, ckpt_error *err) {
  ckpt_json_token token;
  uint64_t said;
  *step = -1;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "the trainer's state", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return ckpt_json_next(json, &token, err); /* the end, or an error */
    if (strcmp(ckpt_json_text(json, NULL), "global_step") != 0) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    CKPT_TRY(ckpt_json_next(json, &token, err));
    *step = token == CKPT_JSON_NUMBER && ckpt_json_u64(json, &said) && said <= INT64_MAX ? (int64_t)said : -1;
    CKPT_TRY(ckpt_json_skip_rest(json, token, err));
  }
}

/* What the Trainer counts: optimizer steps. Its log grows with them, so that the file is walked and never held. */
static ckpt_status take_step(ckpt_index *index, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(index, "trainer_state.json");
  ckpt_json *json;
  ckpt_error broken = {0};
  int64_t step = -1;
  if (side == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_json_new_source(&json, index->source, side->file, 0, side->n_bytes, MAX_TEXT, true, err));
  ckpt_status status = find_step(json, &step, &broken);
  ckpt_json_free(json);
  if (status == CKPT_EFORMAT || status == CKPT_ELIMIT)
    return ckpt_index_problem(index, side->file, err, "%s", broken.message);
  if (status != CKPT_OK) return ckpt_fail_as(err, status, ckpt_index_side_path(index, side), NULL, &broken);
  if (step >= 0) index->step = step;
  return CKPT_OK;
}

static ckpt_status take(optimizer *o, ckpt_error *err) {
  CKPT_TRY(add_states(o, err));
  CKPT_TRY(add_objects(o, err));
  o->side->is_read = true;
  if (o->is_named) return CKPT_OK;
  if (o->groups->n == 1)
    return ckpt_index_note(o->index, false, err,
                           "%s: its %" PRIu32
                           " numbered parameters are named in the order of a %s's parameters (the "
                           "shapes of all states agree)",
                           o->side->name, o->n_params, o->arch->name);
  return ckpt_index_note(o->index, false, err,
                         "%s: its %" PRIu32
                         " numbered parameters are named in the order of a %s's parameters, the %" PRIu32
                         " first that decay by the Trainer's rule (the shapes of all states agree)",
                         o->side->name, o->n_params, o->arch->name, o->n_decay);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Its file, where there is one. */
static ckpt_side_file *find_file(const ckpt_index *index) {
  static const char *const names[] = {"optimizer.pt", "optimizer.bin"};
  ckpt_side_file *found = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && found == NULL; i++)
    found = (ckpt_side_file *)(uintptr_t)ckpt_index_side_file(index, names[i]);
  return found;
}

/* A file that is broken is a problem; one that is not understood only goes along as it is. */
static ckpt_status read_all(optimizer *o, ckpt_error *err) {
  ckpt_error broken = {0};
  bool is_ordered = false;
  ckpt_status status = open_file(o, &broken);
  if (status == CKPT_EFORMAT || status == CKPT_EUNSUPPORTED || status == CKPT_ELIMIT)
    ckpt_hf_refuse(o, "%.400s", broken.message);
  else if (status != CKPT_OK)
    return ckpt_fail_as(err, status, NULL, NULL, &broken);
  o->members = calloc((size_t)o->index->n_tensors + 1, sizeof *o->members);
  o->params = calloc((size_t)o->index->n_tensors + 1, sizeof *o->params);
  if (o->members == NULL || o->params == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK && find_parts(o)) CKPT_TRY(ckpt_hf_order(o, &is_ordered, err));
  if (is_ordered && fits(o)) return take(o, err);
  if (status == CKPT_EFORMAT)
    CKPT_TRY(ckpt_index_problem(o->index, o->side->file, err, "its states are not read (%s)", o->why));
  else
    CKPT_TRY(ckpt_index_note(o->index, false, err, "%s: its states are not read (%s)", o->side->name, o->why));
  return ckpt_index_note_is(o->index, CKPT_NOTE_STATES_UNREAD, o->why, err);
}

ckpt_status ckpt_hf_read_optimizer(ckpt_index *index, ckpt_error *err) {
  optimizer o = {.index = index, .arch = ckpt_arch_find(index->architecture), .side = find_file(index)};
  if (index->defects.n != 0) return CKPT_OK;
  CKPT_TRY(take_step(index, err));
  if (o.side == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_index_new(&o.held, NULL, o.side->name, "torch", NULL, err));
  ckpt_torch_arena_init(&o.nodes, index);
  ckpt_status status = read_all(&o, err);
  ckpt_index_free(o.held);
  ckpt_torch_graph_free(&o.graph);
  ckpt_arena_free(&o.nodes);
  free(o.members);
  free(o.params);
  return ckpt_fail_at(status, err, ckpt_source_path(index->source, o.side->file), NULL);
}
