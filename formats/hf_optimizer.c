/* hf_optimizer.c - the optimizer that a trainer saved beside a model: optimizer.pt (the Trainer of Hugging Face) or
 * optimizer.bin (accelerate).
 *
 *   {"state": {0: {"step": tensor, "exp_avg": tensor, ...}, ...}, "param_groups": [{"lr": ..., "params": [0, 1, ...]}]}
 *
 * Parameters are numbers, and files of weights do not keep the model's order: where the architecture is known, its row
 * does (arch.h). One group is all of them in that order. Two groups are the Trainer's: first those that decay, then
 * norms and biases (Trainer.get_decay_parameter_names), which in these architectures are those of one axis. Nothing is
 * taken unless the groups have as many as that and every state has its parameter's shape; else the file is carried as
 * it is, and a note says why. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf.h"
#include "libckpt/arch.h"
#include "libckpt/codec/torch_file.h"
#include "libckpt/codec/torch_state.h"
#include "libckpt/config.h"
#include "libckpt/error.h"

enum { NAME_BYTES = 8192, WHY_BYTES = 512, MAX_STATES = 16, MAX_KEY = 64, MAX_ENTRIES = 64 };

/* A parameter of the model and its place in the model's order. */
typedef struct placed {
  uint32_t tensor;
  bool decays;
  uint64_t place[CKPT_ARCH_PLACE];
} placed;

typedef struct optimizer {
  ckpt_index *index;
  const ckpt_arch *arch;
  ckpt_side_file *side;
  ckpt_index *held; /* the file as an index of its own: the leaves of its object are numbers of it */
  ckpt_torch_graph graph;
  ckpt_arena nodes;
  const ckpt_object *states, *groups;   /* DICT, LIST of DICTs with a LIST of params */
  placed *params;                       /* the model's, in the optimizer's order */
  uint32_t n_params, n_decay, n_leaves; /* leaves: those that are states */
  char why[WHY_BYTES];                  /* it is not taken */
} optimizer;

static bool refuse(optimizer *o, const char *format, ...) CKPT_PRINTF(2, 3);
static bool refuse(optimizer *o, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(o->why, sizeof o->why, format, arguments);
  va_end(arguments);
  return false;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Opens it; *is_torch is false where it is nothing of torch's. */
static ckpt_status open_file(optimizer *o, bool *is_torch, ckpt_error *err) {
  ckpt_source *source = o->index->source;
  ckpt_pickle_report report;
  uint8_t head[1024];
  size_t n_head = o->side->n_bytes < sizeof head ? (size_t)o->side->n_bytes : sizeof head;
  CKPT_TRY(ckpt_source_read(source, o->side->file, 0, head, n_head, err));
  *is_torch = ckpt_torch_probe(head, n_head);
  if (!*is_torch) return CKPT_OK;
  CKPT_TRY(ckpt_torch_any_read(&o->graph, source, o->side->file, &o->nodes, &report, err));
  return ckpt_torch_graph_add(&o->graph, o->held, "", true, err);
}

/* The groups' params number all parameters, one after the other. */
static bool find_parts(optimizer *o) {
  const ckpt_object *root = o->graph.root;
  o->states = ckpt_object_field(root, "state");
  o->groups = ckpt_object_field(root, "param_groups");
  if (o->states == NULL || o->states->kind != CKPT_OBJECT_DICT || o->groups == NULL ||
      o->groups->kind != CKPT_OBJECT_LIST)
    return refuse(o, "it has no states and groups");
  if (o->groups->n != 1 && o->groups->n != 2)
    return refuse(o, "%" PRIu64 " groups (the Trainer makes two, others one)", o->groups->n);
  int64_t next = 0;
  for (uint64_t g = 0; g < o->groups->n; g++) {
    const ckpt_object *group = o->groups->items[g], *params = ckpt_object_field(group, "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST || group->kind != CKPT_OBJECT_DICT || group->n > MAX_ENTRIES)
      return refuse(o, "a group without params");
    for (uint64_t i = 0; i < params->n; i++, next++)
      if (params->items[i]->kind != CKPT_OBJECT_INT || params->items[i]->integer != next)
        return refuse(o, "its parameters are not numbered one after the other");
  }
  return true;
}

/* ---- the model's order ------------------------------------------------------------------------------------------- */

static int compare_placed(const void *x, const void *y) {
  const placed *a = x, *b = y;
  if (a->decays != b->decays) return a->decays ? -1 : 1;
  for (uint32_t i = 0; i < CKPT_ARCH_PLACE; i++)
    if (a->place[i] != b->place[i]) return a->place[i] < b->place[i] ? -1 : 1;
  return 0;
}

static bool is_named(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (strcmp(index->tensors[i].name, name) == 0) return true;
  return false;
}

/* Tensors that are stored though the config ties them to others, which are the parameters: bit i, for tie i. */
static uint32_t find_tied(const optimizer *o) {
  uint32_t found = 0;
  for (uint32_t t = 0; t < CKPT_MAX_TIES && o->arch->ties[t].kept != NULL; t++)
    if ((o->index->ties >> t & 1) != 0 && is_named(o->index, o->arch->ties[t].kept)) found |= UINT32_C(1) << t;
  return found;
}

static bool is_tied(const optimizer *o, uint32_t ties, const char *name) {
  for (uint32_t t = 0; t < CKPT_MAX_TIES && o->arch->ties[t].kept != NULL; t++)
    if ((ties >> t & 1) != 0 && strcmp(o->arch->ties[t].tied, name) == 0) return true;
  return false;
}

/* The model's parameters as the optimizer numbers them. */
static bool order_params(optimizer *o) {
  const uint32_t ties = find_tied(o);
  for (uint32_t i = 0; i < o->index->n_tensors; i++) {
    const ckpt_tensor *tensor = &o->index->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) return refuse(o, "the model's files have '%.200s'", tensor->name);
    if (tensor->role != CKPT_ROLE_PARAMETER || is_tied(o, ties, tensor->name)) continue;
    placed *param = &o->params[o->n_params++];
    *param = (placed){.tensor = i, .decays = o->groups->n == 2 && tensor->rank > 1};
    if (!ckpt_arch_place(o->arch, tensor->name, param->place))
      return refuse(o, "where '%.200s' stands among a %s's parameters is not known", tensor->name, o->arch->name);
    o->n_decay += param->decays;
  }
  qsort(o->params, o->n_params, sizeof *o->params, compare_placed);
  return true;
}

/* A file beside the model, whatever else it is carried as; NULL where it is not there, or no JSON. */
static ckpt_status read_json(ckpt_config **out, ckpt_index *index, const char *name, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(index, name);
  ckpt_error broken = {0};
  const char *text;
  *out = NULL;
  if (side == NULL || side->n_bytes > CKPT_CONFIG_MAX_BYTES) return CKPT_OK;
  CKPT_TRY(ckpt_index_side_text(index, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  ckpt_status status = ckpt_config_parse(out, text, side->n_bytes, side->name, &broken);
  return status == CKPT_ENOMEM ? ckpt_fail(err, status, NULL, NULL, "out of memory") : CKPT_OK;
}

/* Refuses what a release of transformers wrote whose models had another order. */
static ckpt_status check_version(optimizer *o, bool *is_ordered, ckpt_error *err) {
  const int64_t *since = o->arch->ordered_since;
  ckpt_config *config;
  const char *version;
  CKPT_TRY(read_json(&config, o->index, "config.json", err));
  *is_ordered = true;
  if (config != NULL && ckpt_config_text(config, "transformers_version", &version)) {
    char *end;
    const long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    *is_ordered = major != since[0] ? major > since[0] : minor >= since[1];
    if (!*is_ordered)
      refuse(o, "of transformers %.20s, whose %s had another order than since %d.%d", version, o->arch->name,
             (int)since[0], (int)since[1]);
  }
  ckpt_config_free(config);
  return CKPT_OK;
}

/* ---- whether it fits --------------------------------------------------------------------------------------------- */

static bool check_counts(optimizer *o) {
  const uint64_t n_first = ckpt_object_field(o->groups->items[0], "params")->n;
  const uint64_t n_second = o->groups->n == 1 ? 0 : ckpt_object_field(o->groups->items[1], "params")->n;
  if (o->groups->n == 1 && n_first != o->n_params)
    return refuse(o, "%" PRIu64 " parameters, and the model has %" PRIu32, n_first, o->n_params);
  if (o->groups->n == 2 && (n_first != o->n_decay || n_second != o->n_params - o->n_decay))
    return refuse(o,
                  "groups of %" PRIu64 " and %" PRIu64 " parameters, and %" PRIu32 " and %" PRIu32
                  " by the Trainer's rule of what decays",
                  n_first, n_second, o->n_decay, o->n_params - o->n_decay);
  if (o->states->n != o->n_params)
    return refuse(o, "states of %" PRIu64 " of %" PRIu32 " parameters", o->states->n, o->n_params);
  return true;
}

/* What a state is called in the index: canonically, where it has such a name. */
static const char *name_of(const ckpt_object *key) {
  const ckpt_torch_state *state = ckpt_torch_state_of(key->text, (size_t)key->n);
  return state == NULL ? key->text : state->name;
}

/* Whether entry i of a parameter's states is a tensor under a name that is its own. */
static bool is_state(const ckpt_object *states, uint64_t i) {
  const ckpt_object *key = states->items[2 * i];
  if (key->kind != CKPT_OBJECT_TEXT || key->n == 0 || key->n > MAX_KEY || strlen(key->text) != key->n ||
      states->items[2 * i + 1]->kind != CKPT_OBJECT_TENSOR)
    return false;
  for (uint64_t k = 0; k < i; k++)
    if (strcmp(name_of(states->items[2 * k]), name_of(key)) == 0) return false;
  return true;
}

/* The states of parameter `number`, whose shape all but scalars of them have. */
static bool check_states(optimizer *o, uint32_t number) {
  const ckpt_object *key = o->states->items[2 * (size_t)number], *state = o->states->items[2 * (size_t)number + 1];
  const ckpt_tensor *param = &o->index->tensors[o->params[number].tensor];
  char ours[CKPT_SHAPE_TEXT], theirs[CKPT_SHAPE_TEXT];
  uint32_t n_alike = 0;
  if (key->kind != CKPT_OBJECT_INT || key->integer != number || state->kind != CKPT_OBJECT_DICT ||
      state->n > MAX_STATES)
    return refuse(o, "its states are not numbered one after the other");
  for (uint64_t i = 0; i < state->n; i++) {
    const ckpt_object *name = state->items[2 * i], *leaf = state->items[2 * i + 1];
    if (!is_state(state, i)) return refuse(o, "a state of parameter %" PRIu32 " is no tensor of a name", number);
    o->n_leaves++;
    const ckpt_tensor *tensor = &o->held->tensors[leaf->tensor];
    if (tensor->n_elements == 1 && tensor->rank == 0) continue;
    if (!ckpt_tensor_same_shape(tensor, param))
      return refuse(o, "state %.60s of parameter %" PRIu32 " is %s, and '%.200s', which it would be, is %s", name->text,
                    number, ckpt_tensor_shape_text(tensor, theirs, sizeof theirs), param->name,
                    ckpt_tensor_shape_text(param, ours, sizeof ours));
    n_alike++;
  }
  return n_alike != 0 || refuse(o, "parameter %" PRIu32 " has no state that has its shape", number);
}

static bool fits(optimizer *o) {
  if (!find_parts(o) || !order_params(o) || !check_counts(o)) return false;
  for (uint32_t i = 0; i < o->n_params; i++)
    if (!check_states(o, i)) return false;
  return o->n_leaves == o->graph.n_leaves || refuse(o, "it has tensors that are no states of a parameter");
}

/* ---- into the index ---------------------------------------------------------------------------------------------- */

static ckpt_status add_state(const optimizer *o, const char *parameter, const ckpt_object *key, uint32_t held,
                             ckpt_error *err) {
  const ckpt_torch_state *state = ckpt_torch_state_of(key->text, (size_t)key->n);
  const ckpt_tensor *tensor = &o->held->tensors[held];
  char name[NAME_BYTES];
  int n = snprintf(name, sizeof name, CKPT_STATE_PREFIX "%s.%s", parameter, name_of(key));
  if (n < 0 || n >= NAME_BYTES) return ckpt_fail(err, CKPT_ELIMIT, NULL, parameter, "its name is too long");
  ckpt_extent extent = {0};
  if (tensor->n_extents != 0) extent = tensor->extents[0];
  if (tensor->extent_form != CKPT_EXTENT_FLAT && tensor->n_extents != 0) {
    uint64_t *box = ckpt_arena_array(&o->index->arena, 3 * (size_t)tensor->rank, sizeof *box);
    CKPT_TRY_ALLOC(box, err);
    memcpy(box, extent.box, 3 * (size_t)tensor->rank * sizeof *box);
    extent.box = box;
  }
  uint32_t number;
  CKPT_TRY(ckpt_index_add(o->index, name, strlen(name), (ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape,
                          state == NULL ? CKPT_ROLE_OTHER : state->role, &extent, tensor->n_extents, &number, err));
  o->index->tensors[number].extent_form = tensor->extent_form;
  return CKPT_OK;
}

static ckpt_status add_states(const optimizer *o, ckpt_error *err) {
  for (uint32_t i = 0; i < o->n_params; i++) {
    const ckpt_object *state = o->states->items[2 * (size_t)i + 1];
    const char *name = o->index->tensors[o->params[i].tensor].name;
    for (uint64_t k = 0; k < state->n; k++)
      CKPT_TRY(add_state(o, name, state->items[2 * k], state->items[2 * k + 1]->tensor, err));
  }
  return CKPT_OK;
}

/* The groups, by names: an object of the index. */
static ckpt_status add_groups(optimizer *o, ckpt_error *err) {
  ckpt_arena *arena = &o->index->arena;
  uint32_t next = 0;
  for (uint64_t g = 0; g < o->groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(o->groups->items[g], "params");
    for (uint64_t i = 0; i < params->n; i++, next++) {
      const char *name = o->index->tensors[o->params[next].tensor].name;
      CKPT_TRY_ALLOC(params->items[i] = ckpt_object_text(arena, name, strlen(name)), err);
    }
  }
  if (o->index->objects == NULL) {
    CKPT_TRY_ALLOC(o->index->objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, NULL), err);
    o->index->objects->n = 0;
  }
  CKPT_TRY_ALLOC(ckpt_object_put(arena, o->index->objects, CKPT_STATE_PARAM_GROUPS, o->groups), err);
  for (uint32_t i = 0; i < o->graph.n_leaves; i++) /* numbers of another index: nobody finds one of them */
    *o->graph.leaves[i].node = (ckpt_object){.kind = CKPT_OBJECT_NONE};
  ckpt_arena_adopt(arena, &o->nodes);
  return CKPT_OK;
}

/* What the Trainer counts: optimizer steps. */
static ckpt_status take_step(ckpt_index *index, ckpt_error *err) {
  ckpt_config *config;
  int64_t step;
  CKPT_TRY(read_json(&config, index, "trainer_state.json", err));
  if (config != NULL && ckpt_config_int(config, "global_step", &step) && step >= 0) index->step = step;
  ckpt_config_free(config);
  return CKPT_OK;
}

static ckpt_status take(optimizer *o, ckpt_error *err) {
  CKPT_TRY(add_states(o, err));
  CKPT_TRY(add_groups(o, err));
  CKPT_TRY(take_step(o->index, err));
  o->side->is_read = true;
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

static ckpt_status read_all(optimizer *o, ckpt_error *err) {
  ckpt_error broken = {0};
  bool is_torch = false;
  ckpt_status status = open_file(o, &is_torch, &broken);
  if (status == CKPT_EFORMAT || status == CKPT_EUNSUPPORTED || status == CKPT_ELIMIT)
    refuse(o, "%.400s", broken.message);
  else if (status != CKPT_OK)
    return ckpt_fail(err, status, NULL, NULL, "%s", broken.message);
  if (!is_torch) return CKPT_OK;
  o->params = calloc((size_t)o->index->n_tensors + 1, sizeof *o->params);
  CKPT_TRY_ALLOC(o->params, err);
  bool is_ordered = false;
  if (o->why[0] == '\0') CKPT_TRY(check_version(o, &is_ordered, err));
  if (is_ordered && fits(o)) return take(o, err);
  return ckpt_index_note(o->index, false, err, "%s: its states are not read (%s)", o->side->name, o->why);
}

ckpt_status ckpt_hf_read_optimizer(ckpt_index *index, ckpt_error *err) {
  optimizer o = {.index = index, .arch = ckpt_arch_find(index->architecture), .side = find_file(index)};
  if (o.arch == NULL || o.side == NULL || index->defects.n != 0) return CKPT_OK;
  CKPT_TRY(ckpt_index_new(&o.held, NULL, o.side->name, "torch", NULL, err));
  ckpt_torch_arena_init(&o.nodes, index);
  ckpt_status status = read_all(&o, err);
  ckpt_index_free(o.held);
  ckpt_torch_graph_free(&o.graph);
  ckpt_arena_free(&o.nodes);
  free(o.params);
  return ckpt_fail_at(status, err, ckpt_source_path(index->source, o.side->file), NULL);
}
