/* unsharded.c - the optimizer of a run without ZeRO (stage 0), which is whole in the model file; of a pipeline in that
 * of each stage, and of experts in expp_rank_R_mp_rank_00_optim_states.pt of each expert-parallel rank.
 *
 *   {"state": {0: {"exp_avg": tensor, ...}}, "param_groups": [{"params": [0, 1], ...}]}                    in fp32
 *   {"optimizer_state_dict": <that>, "fp32_groups": [[master of each parameter]]}                  in fp16 and bf16
 *   {"optimizer_state_dict": <that>, "fp32_groups_flat": [...]}: unsharded_flat.c                       with FusedAdam
 *
 * Parameters are numbers. Which they are follows from the groups having the model's order, where all parameters of one
 * shape are in one group and none of them is frozen; else the states keep the numbers, and that is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"

enum { MAX_STATES = 64 };

/* A tensor of the model, or a parameter of the optimizer: something with a shape in an order. */
typedef struct shaped {
  const ckpt_tensor *like;    /* has the shape */
  const ckpt_zero_file *file; /* of a parameter */
  const ckpt_object *state;   /* DICT */
  const ckpt_object *master;
  const char *name; /* of a model's tensor; NULL: a parameter of the optimizer */
  uint64_t group;
  bool is_expert;
  uint32_t part;          /* the expert-parallel rank that has it */
  uint32_t order, number; /* order: a parameter's number, through all files; number: of the model's tensor */
} shaped;

typedef struct matcher {
  ckpt_zero *zero;
  const ckpt_zero_file *file; /* the one at hand, which is number `part` of n_parts */
  uint32_t part, n_parts;
  shaped *items; /* the model's and the optimizer's */
  uint32_t n_model, n_params, max_params;
  const ckpt_object *groups;  /* of the first file */
  const ckpt_object **states; /* of the file at hand, by number; NULL: there is none, or a parameter has taken it */
  const char *why;            /* not known */
  bool goes_by_order;         /* several parameters of one shape are told apart by nothing else */
} matcher;

static int compare_shapes(const shaped *a, const shaped *b) {
  if (a->is_expert != b->is_expert) return a->is_expert ? 1 : -1;
  if (a->like->rank != b->like->rank) return a->like->rank < b->like->rank ? -1 : 1;
  for (uint32_t i = 0; i < a->like->rank; i++)
    if (a->like->shape[i] != b->like->shape[i]) return a->like->shape[i] < b->like->shape[i] ? -1 : 1;
  return 0;
}

static int compare_items(const void *x, const void *y) {
  const shaped *a = x, *b = y;
  int order = compare_shapes(a, b);
  if (order == 0 && a->part != b->part) return a->part < b->part ? -1 : 1;
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static bool is_of_experts(const ckpt_object *group) {
  const ckpt_object *said = ckpt_object_get(group, "moe");
  return said != NULL && said->kind == CKPT_OBJECT_BOOL && said->boolean;
}

static bool is_called_step(const ckpt_object *key) {
  return key->kind == CKPT_OBJECT_TEXT && key->n == 4 && memcmp(key->text, "step", 4) == 0;
}

/* Lists the states of the file at hand by their numbers: they stand in the order in which they were made. */
static bool list_states(const matcher *m, const ckpt_object *states) {
  for (uint64_t i = 0; i < states->n; i++) m->states[i] = NULL;
  for (uint64_t i = 0; i < states->n; i++) {
    const int64_t number = ckpt_zero_number(states->items[2 * i]);
    if (number < 0 || (uint64_t)number >= states->n || m->states[number] != NULL) return false;
    m->states[number] = states->items[2 * i + 1];
  }
  return true;
}

/* Takes what a number of a group's params is the state of; NULL: nothing. */
static const ckpt_object *take_state(const matcher *m, const ckpt_object *states, const ckpt_object *param) {
  static const ckpt_object nothing = {.kind = CKPT_OBJECT_DICT}; /* as of SGD, where masters are all there is */
  const int64_t number = ckpt_zero_number(param);
  if (states->n == 0) return &nothing;
  if (number < 0 || (uint64_t)number >= states->n) return NULL;
  const ckpt_object *state = m->states[number];
  m->states[number] = NULL;
  return state;
}

/* The parameter at place i of a group of the file at hand; false where the object has no such. */
static bool take_param(matcher *m, const ckpt_object *state, const ckpt_object *of_group, uint64_t group, uint64_t i) {
  const ckpt_object *like = ckpt_foreign_arg(of_group, i);
  if (state->kind != CKPT_OBJECT_DICT || state->n > MAX_STATES) return false;
  for (uint64_t k = 0; k < state->n && like == NULL; k++)
    if (!is_called_step(state->items[2 * k]) && ckpt_zero_tensor(m->file, state->items[2 * k + 1]) != NULL)
      like = state->items[2 * k + 1];
  const ckpt_tensor *tensor = ckpt_zero_tensor(m->file, like);
  if (tensor == NULL || m->n_params == m->max_params) return false;
  m->items[m->n_model + m->n_params] = (shaped){.like = tensor,
                                                .file = m->file,
                                                .state = state,
                                                .master = ckpt_foreign_arg(of_group, i),
                                                .group = group,
                                                .is_expert = is_of_experts(m->groups->items[group]),
                                                .part = m->part,
                                                .order = m->n_params};
  m->n_params++;
  return true;
}

/* Whether a group has the master of each parameter, where parameters have masters. */
static bool has_masters(const matcher *m, const ckpt_object *of_group, uint64_t n) {
  if (of_group == NULL || of_group->kind != CKPT_OBJECT_LIST || of_group->n != n) return false;
  for (uint64_t i = 0; i < n; i++)
    if (ckpt_zero_tensor(m->file, of_group->items[i]) == NULL) return false;
  return true;
}

/* The parameters of all groups of a file, numbered through; of other expert-parallel ranks their experts alone.
 * masters NULL: they are their own. */
static bool take_params(matcher *m, const ckpt_object *states, const ckpt_object *groups, const ckpt_object *masters) {
  uint32_t n_taken = 0;
  if (groups->n != m->groups->n || !list_states(m, states)) return false;
  for (uint64_t g = 0; g < groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(groups->items[g], "params");
    const bool is_copy = m->part != 0 && !is_of_experts(m->groups->items[g]);
    if (params == NULL || params->kind != CKPT_OBJECT_LIST || (states->n != 0 && params->n > states->n)) return false;
    if (masters != NULL && !has_masters(m, ckpt_foreign_arg(masters, g), params->n)) {
      m->why = "fp32_groups has not the master of each parameter";
      return false;
    }
    for (uint64_t i = 0; i < params->n; i++) {
      const ckpt_object *state = take_state(m, states, params->items[i]);
      if (state == NULL || n_taken++ == m->max_params) return false;
      if (!is_copy && !take_param(m, state, ckpt_foreign_arg(masters, g), g, i)) return false;
    }
  }
  return states->n == 0 || n_taken == states->n;
}

/* Names the parameters of the optimizer; false where more than one way is thinkable. */
static bool match(matcher *m) {
  shaped *model = m->items, *params = m->items + m->n_model;
  qsort(model, m->n_model, sizeof *model, compare_items);
  qsort(params, m->n_params, sizeof *params, compare_items);
  for (uint32_t i = 0, k = 0, n; i < m->n_params; i += n) {
    for (n = 1; i + n < m->n_params && compare_shapes(&params[i], &params[i + n]) == 0; n++)
      if (params[i + n].group != params[i].group) return false;
    m->goes_by_order = m->goes_by_order || (n > 1 && params[i].master == NULL);
    while (k < m->n_model && compare_shapes(&model[k], &params[i]) < 0) k++;
    for (uint32_t j = 0; j < n; j++, k++) {
      if (k == m->n_model || compare_shapes(&model[k], &params[i]) != 0) return false;
      params[i + j].name = model[k].name;
      params[i + j].number = model[k].number;
    }
    if (k < m->n_model && compare_shapes(&model[k], &params[i]) == 0) return false; /* one of them is frozen */
  }
  return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static ckpt_status add_state(const matcher *m, const shaped *of, const char *parameter, const char *key,
                             const ckpt_object *leaf, ckpt_error *err) {
  char name[CKPT_ZERO_NAME_BYTES];
  ckpt_role role;
  if (ckpt_zero_tensor(of->file, leaf) == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_zero_name_state(name, &role, parameter, key, err));
  return ckpt_zero_copy(m->zero, of->file, leaf->tensor, name, role, NULL, err);
}

static int compare_groups(const void *x, const void *y) {
  const shaped *a = x, *b = y;
  if (a->group != b->group) return a->group < b->group ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

/* One parameter becomes the reader's, so that the optimizer's groups find its name. */
static ckpt_status add_param(matcher *m, ckpt_zero_param *out, const shaped *param, ckpt_error *err) {
  char number[16];
  snprintf(number, sizeof number, "%u", param->order);
  const char *name = param->name != NULL ? param->name : ckpt_arena_copy(&m->zero->index->arena, number);
  CKPT_TRY_ALLOC(name, err);
  *out = (ckpt_zero_param){
      .name = name, .group = (uint32_t)param->group, .number = param->name != NULL ? param->number : param->order};
  CKPT_TRY(add_state(m, param, name, "master", param->master, err));
  for (uint64_t k = 0; k < param->state->n; k++) {
    const ckpt_object *key = param->state->items[2 * k], *value = param->state->items[2 * k + 1];
    const bool is_key = key->kind == CKPT_OBJECT_TEXT && key->n != 0 && strlen(key->text) == key->n;
    const bool is_step = is_called_step(key) && ckpt_zero_tensor(param->file, value) == NULL;
    const bool is_number = value->kind == CKPT_OBJECT_INT || value->kind == CKPT_OBJECT_FLOAT;
    if (is_step) {
      const ckpt_status status = ckpt_zero_take_step(m->zero, (uint32_t)param->group, value, err);
      CKPT_TRY(ckpt_fail_at(status, err, param->file->path, name));
    }
    if (value->kind == CKPT_OBJECT_NONE || (is_step && is_number)) continue;
    if (!is_key || ckpt_zero_tensor(param->file, value) == NULL)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, param->file->path, name,
                       "%.200s of its optimizer is no tensor: its state would be lost", is_key ? key->text : "a key");
    CKPT_TRY(add_state(m, param, name, key->text, value, err));
  }
  return CKPT_OK;
}

/* Group by group, as those of the first shard. */
static ckpt_status add_params(matcher *m, ckpt_error *err) {
  ckpt_zero *zero = m->zero;
  shaped *params = m->items + m->n_model;
  if (m->n_params > 1) qsort(params, m->n_params, sizeof *params, compare_groups);
  CKPT_TRY(ckpt_zero_renew_params(zero, m->n_params, m->groups == NULL ? 0 : (uint32_t)m->groups->n, err));
  for (uint32_t i = 0; i < m->n_params; i++) CKPT_TRY(add_param(m, &zero->params[i], &params[i], err));
  return ckpt_zero_sort_params(zero, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The optimizer of a file, which in fp16 and bf16 is in another. */
static const ckpt_object *optimizer_of(const ckpt_zero_file *file) {
  const ckpt_object *optimizer = ckpt_object_get(file->graph.root, "optimizer");
  const ckpt_object *inner = ckpt_object_get(optimizer, "optimizer_state_dict");
  return inner == NULL ? optimizer : inner;
}

/* The rows of masters that FusedAdam's wrapper has; NULL: none. */
static const ckpt_object *flat_of(const ckpt_zero_file *file) {
  return ckpt_object_get(ckpt_object_get(file->graph.root, "optimizer"), "fp32_groups_flat");
}

/* What a file says of its parameters; false where its layout is not known. */
static bool take_file(matcher *m, const ckpt_zero_file *file, uint32_t part) {
  enum { MAX_GROUPS = 4096 };
  const ckpt_object *optimizer = ckpt_object_get(file->graph.root, "optimizer"), *inner = optimizer_of(file);
  const ckpt_object *masters = ckpt_object_get(optimizer, "fp32_groups");
  const ckpt_object *states = ckpt_object_get(inner, "state"), *groups = ckpt_object_get(inner, "param_groups");
  if (states == NULL || states->kind != CKPT_OBJECT_DICT || groups == NULL || groups->kind != CKPT_OBJECT_LIST ||
      groups->n > MAX_GROUPS)
    return false;
  if (m->groups == NULL) m->groups = groups;
  m->file = file;
  m->part = part;
  if (inner != optimizer && masters == NULL) {
    m->why = flat_of(file) == NULL ? "neither fp32_groups nor fp32_groups_flat, which have the masters"
             : m->zero->n_shards > 1 || m->zero->expert_optimizers.n != 0
                 ? "rows of masters of several files, which this version cannot read"
                 : "rows of masters without one parameter for each";
    return false;
  }
  return (states->n == 0 && masters == NULL) || take_params(m, states, groups, masters);
}

/* The model's parameters, and which expert-parallel rank has which. */
static ckpt_status take_model(matcher *m, ckpt_error *err) {
  const ckpt_index *index = m->zero->index;
  const char **names = calloc((size_t)index->n_tensors + 1, sizeof *names);
  uint64_t *n_experts = calloc((size_t)index->n_tensors + 1, sizeof *n_experts);
  ckpt_status status =
      names == NULL || n_experts == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  for (uint32_t i = 0; i < index->n_tensors && status == CKPT_OK; i++) names[i] = index->tensors[i].name;
  if (status == CKPT_OK) status = ckpt_zero_count_experts(names, index->n_tensors, n_experts, err);
  for (uint32_t i = 0; i < index->n_tensors && status == CKPT_OK; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    const int64_t expert = ckpt_zero_expert_of(tensor->name);
    const uint64_t n_local = n_experts[i] / m->n_parts;
    if (tensor->role != CKPT_ROLE_PARAMETER) continue;
    m->items[m->n_model++] = (shaped){.like = tensor,
                                      .name = tensor->name,
                                      .is_expert = expert >= 0,
                                      .part = expert < 0 || n_local == 0 ? 0 : (uint32_t)((uint64_t)expert / n_local),
                                      .order = i,
                                      .number = i};
  }
  free(names);
  free(n_experts);
  return status;
}

/* Experts whose states are in no file. */
static ckpt_status check_experts(const matcher *m, ckpt_error *err) {
  uint32_t n_wanted = 0, n_there = 0;
  for (uint32_t i = 0; i < m->n_model; i++) n_wanted += m->items[i].is_expert;
  for (uint32_t i = 0; i < m->n_params; i++) n_there += m->items[m->n_model + i].is_expert;
  if (n_there == n_wanted || n_there == 0) return CKPT_OK;
  if (n_wanted == 0)
    return ckpt_fail(err, CKPT_EFORMAT, m->zero->index->path, NULL,
                     "%u parameter%s of experts in %s and its like, and the model has no experts: files of different "
                     "saves",
                     n_there, ckpt_plural(n_there), m->zero->expert_optimizers.paths[0]);
  return ckpt_fail(err, n_there < n_wanted ? CKPT_ENOTFOUND : CKPT_EUNSUPPORTED, m->zero->index->path, NULL,
                   n_there < n_wanted
                       ? "the optimizers' files have %u of %u parameters of experts: an "
                         "expp_rank_R_mp_rank_00_optim_states.pt is missing (copy it)"
                       : "the optimizers' files have %u parameters of experts, the model has %u: layers of "
                         "several ep_size, which this version cannot read without ZeRO yet",
                   n_there, n_wanted);
}

/* Without them a run does not go on. */
static ckpt_status note_unread(ckpt_zero *zero, const char *why, ckpt_error *err) {
  CKPT_TRY(ckpt_index_note(zero->index, false, err, "not read: the optimizer's states (%s)", why));
  ckpt_index_note_left(zero->index, "not read: ");
  return ckpt_index_note_is(zero->index, CKPT_NOTE_STATES_UNREAD, NULL, err);
}

static ckpt_status add_files(matcher *m, const ckpt_zero_file *const *files, ckpt_error *err) {
  ckpt_zero *zero = m->zero;
  bool is_known = true;
  const bool is_of_ranks = zero->expert_optimizers.n != 0;
  CKPT_TRY(take_model(m, err));
  const uint32_t n_files = is_of_ranks ? m->n_parts : zero->n_shards;
  for (uint32_t i = 0; i < n_files && is_known; i++) {
    is_known = take_file(m, files[i], is_of_ranks ? i : 0);
    if (!is_known) continue;
    const ckpt_object *groups = ckpt_object_get(optimizer_of(files[i]), "param_groups");
    CKPT_TRY(ckpt_zero_same_groups(groups, m->groups, files[i]->path, err));
  }
  if (!is_known) return note_unread(zero, m->why != NULL ? m->why : "an optimizer whose layout is not known", err);
  CKPT_TRY(check_experts(m, err));
  if (zero->n_layers != 0 && m->n_params > m->n_model)
    return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                     "the optimizers have %u parameters, the files of layers %u: a layer_LL-model_states.pt is missing "
                     "(copy it, or save again)",
                     m->n_params, m->n_model);
  zero->groups = m->groups;
  if (!match(m)) {
    for (uint32_t i = 0; i < m->n_params; i++) m->items[m->n_model + i].name = NULL;
    CKPT_TRY(ckpt_index_note(zero->index, false, err,
                             "the optimizer's parameters are numbers, and shapes do not tell which they are: its "
                             "states are called by number"));
  } else if (m->goes_by_order) {
    CKPT_TRY(ckpt_index_note(zero->index, false, err,
                             "the optimizer's %u numbered parameters are named in the order of the model's (the "
                             "shapes of all states agree)",
                             m->n_params));
  }
  return add_params(m, err);
}

/* The step of a file's first state. */
static ckpt_status step_of(const ckpt_zero *zero, const ckpt_zero_file *file, int64_t *step, ckpt_error *err) {
  const ckpt_object *states = ckpt_object_get(optimizer_of(file), "state");
  const bool has_states = states != NULL && states->kind == CKPT_OBJECT_DICT && states->n != 0;
  const ckpt_object *state = has_states && states->items[1]->kind == CKPT_OBJECT_DICT ? states->items[1] : NULL;
  return ckpt_zero_step_of(zero, file, state == NULL ? NULL : ckpt_object_field(state, "step"), step, err);
}

/* Files of expert-parallel ranks are of one save: what they all train has made as many steps on each. */
static ckpt_status check_steps(ckpt_zero *zero, const ckpt_zero_file *ranks, ckpt_error *err) {
  int64_t first, step;
  CKPT_TRY(step_of(zero, &ranks[0], &first, err));
  for (uint32_t i = 1; i < zero->expert_optimizers.n; i++) {
    CKPT_TRY(step_of(zero, &ranks[i], &step, err));
    if (step >= 0 && first >= 0 && step != first)
      return ckpt_fail(err, CKPT_EFORMAT, ranks[i].path, NULL,
                       "its optimizer has made %lld step%s, and that of rank 0 %lld: files of different saves",
                       (long long)step, ckpt_plural((uint64_t)step), (long long)first);
  }
  return ckpt_zero_check_optimizer(zero, &ranks[0], first, err);
}

/* Of expert-parallel ranks, whose files are opened, or of the stages' model files. */
static ckpt_status add_opened(ckpt_zero *zero, ckpt_zero_file *ranks, const ckpt_zero_file **files, ckpt_error *err) {
  const uint32_t n_ranks = zero->expert_optimizers.n, n_files = n_ranks != 0 ? n_ranks : zero->n_shards;
  matcher m = {.zero = zero, .n_parts = n_ranks != 0 ? n_ranks : 1};
  uint64_t n_held = 0, n_states = 0;
  for (uint32_t i = 0; i < n_files; i++) {
    if (n_ranks != 0) CKPT_TRY(ckpt_zero_open(&ranks[i], zero, zero->expert_optimizers.paths[i], err));
    files[i] = n_ranks != 0 ? &ranks[i] : &zero->shards[i].file;
    n_held += files[i]->held->n_tensors;
    const ckpt_object *optimizer = ckpt_object_get(files[i]->graph.root, "optimizer");
    CKPT_TRY(ckpt_zero_take_settings(zero, files[i], optimizer, err));
    const ckpt_object *states = ckpt_object_get(optimizer_of(files[i]), "state");
    if (states != NULL && states->n > n_states) n_states = states->n;
  }
  if (n_ranks != 0) CKPT_TRY(check_steps(zero, ranks, err));
  CKPT_TRY(ckpt_zero_scaler_of_whole(&zero->loss_scaler, ckpt_object_get(files[0]->graph.root, "optimizer"),
                                     ckpt_object_get(zero->shards[0].file.graph.root, "ds_config"), &zero->index->arena,
                                     err));
  if (n_held > INT32_MAX) return ckpt_fail(err, CKPT_ELIMIT, zero->index->path, NULL, "too many states");
  m.max_params = (uint32_t)n_held; /* each has a state of its own: one that is shared is none of ours */
  m.items = calloc((size_t)zero->index->n_tensors + m.max_params + 1, sizeof *m.items);
  m.states = reallocarray(NULL, (size_t)n_states + 1, sizeof *m.states);
  ckpt_status status =
      m.items == NULL || m.states == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  bool is_read = false;
  if (status == CKPT_OK && n_ranks == 0 && zero->n_shards == 1 && flat_of(files[0]) != NULL)
    status = ckpt_zero_add_flat(zero, files[0], &is_read, err);
  if (status == CKPT_OK && !is_read) status = add_files(&m, files, err);
  free(m.items);
  free(m.states);
  for (uint32_t i = 0; i < n_ranks && status == CKPT_OK; i++) ckpt_zero_keep(&ranks[i], zero, NULL);
  return status;
}

ckpt_status ckpt_zero_add_whole(ckpt_zero *zero, const ckpt_zero_file *file, ckpt_error *err) {
  const ckpt_object *optimizer = ckpt_object_get(file->graph.root, "optimizer");
  const uint32_t n_ranks = zero->expert_optimizers.n, n_files = n_ranks != 0 ? n_ranks : zero->n_shards;
  if (n_ranks == 0 && (optimizer == NULL || optimizer->kind != CKPT_OBJECT_DICT)) return CKPT_OK;
  if (zero->n_tensor > 1)
    return note_unread(zero, "without ZeRO those of tensor-parallel ranks are slices that have numbers", err);
  ckpt_zero_file *ranks = calloc((size_t)n_ranks + 1, sizeof *ranks);
  const ckpt_zero_file **files = calloc(n_files, sizeof *files);
  ckpt_status status = ranks == NULL || files == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory")
                                                      : add_opened(zero, ranks, files, err);
  for (uint32_t i = 0; i < n_ranks && ranks != NULL; i++) ckpt_zero_close(&ranks[i]);
  free(ranks);
  free(files);
  return status;
}
