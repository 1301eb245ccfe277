/* paths.c - where tensors and objects stand in the dict that torch will load.
 *
 * Where the input has such a dict, it is that one as it stands (items.c), if its tensors are then read under their
 * names. Else they stand in containers that PyTorch's own recipes have, {"model": {...}, "optimizer": {"state":
 * {...}}}, what is neither beside them; a model alone, or stored names, in none at all. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dict.h"
#include "formats/dcp/write.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/expected_names.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/state/state.h"

static bool is_state(const ckpt_tensor *tensor) {
  return strncmp(tensor->name, CKPT_STATE_PREFIX, sizeof CKPT_STATE_PREFIX - 1) == 0 &&
         tensor->role != CKPT_ROLE_PARAMETER;
}

static bool has_states(const ckpt_index *index) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (is_state(&index->tensors[i])) return true;
  return false;
}

static bool is_model(const ckpt_index *index) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (!ckpt_role_is_model((ckpt_role)index->tensors[i].role)) return false;
  return true;
}

/* ---- containers that are made ------------------------------------------------------------------------------------ */

/* Nodes that all paths share. */
typedef struct containers {
  const ckpt_object *model, *optimizer, *state;
} containers;

static ckpt_status make_containers(containers *out, ckpt_arena *arena, ckpt_error *err) {
  CKPT_TRY_ALLOC(out->model = ckpt_object_text(arena, "model", 5), err);
  CKPT_TRY_ALLOC(out->optimizer = ckpt_object_text(arena, "optimizer", 9), err);
  CKPT_TRY_ALLOC(out->state = ckpt_object_text(arena, "state", 5), err);
  return CKPT_OK;
}

/* A tensor under one of its names, by which it is the model's or not. */
static ckpt_status add_tensor(ckpt_dcp_flattener *f, const containers *in, uint32_t number, const char *name,
                              bool is_model, ckpt_error *err) {
  ckpt_arena *arena = &f->described->arena;
  const ckpt_tensor *tensor = &f->described->tensors[number];
  const ckpt_object_name *held = ckpt_object_tensors_at(&f->held, number, name);
  size_t n_parameter;
  const char *parameter = ckpt_state_parameter(name, &n_parameter);
  const ckpt_object *keys[4], *leaf = ckpt_object_tensor(arena, number);
  uint32_t n = 0;
  CKPT_TRY_ALLOC(leaf, err);
  if (held != NULL && held->is_placed) return CKPT_OK;
  if (in != NULL && is_model) {
    keys[n++] = in->model;
  } else if (in != NULL && parameter != NULL && parameter[n_parameter + 1] != '\0') {
    keys[n++] = in->optimizer;
    keys[n++] = in->state;
    CKPT_TRY_ALLOC(keys[n++] = ckpt_object_text(arena, parameter, n_parameter), err);
    name = ckpt_torch_state_key(tensor, parameter + n_parameter + 1);
  }
  CKPT_TRY_ALLOC(keys[n++] = ckpt_object_text(arena, name, strlen(name)), err);
  return ckpt_dcp_flattener_add(f, keys, n, leaf, err);
}

/* A tensor under all its names; below no container where `in` is NULL. */
static ckpt_status add_names(ckpt_dcp_flattener *f, const containers *in, uint32_t number, ckpt_error *err) {
  const ckpt_tensor *tensor = &f->described->tensors[number];
  const bool is_model = ckpt_role_is_model((ckpt_role)tensor->role);
  uint32_t n = 0;
  CKPT_TRY(add_tensor(f, in, number, tensor->name, is_model, err));
  while (tensor->aliases != NULL && tensor->aliases[n] != NULL) n++;
  for (uint32_t i = 0; i < n; i++)
    CKPT_TRY(add_tensor(f, in, number, tensor->aliases[i], is_model && i + tensor->details->n_extra_names < n, err));
  return CKPT_OK;
}

/* ---- how it will be read ----------------------------------------------------------------------------------------- */

/* Tensors in items that are carried are called as they were. */
static ckpt_status name_carried(ckpt_expected_names *read, const ckpt_dcp_flattener *f, ckpt_error *err) {
  for (uint32_t i = 0; f->is_carried != NULL && i < f->described->n_tensors; i++) {
    const ckpt_tensor *tensor = &f->described->tensors[i];
    if (f->is_carried[i]) CKPT_TRY(ckpt_expected_names_add(read, i, tensor->name, (ckpt_role)tensor->role, err));
  }
  return CKPT_OK;
}

/* Names of all pairs, as our own reader gives them to the dict that they make. */
static ckpt_status name_pairs(ckpt_expected_names *read, ckpt_expected_names *stored, ckpt_index *described,
                              const ckpt_object *pairs, ckpt_error *err) {
  ckpt_dcp_dict dict = {.arena = &described->arena, .max_keys = UINT64_MAX};
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < pairs->n && status == CKPT_OK; i++) {
    ckpt_object *path = pairs->items[2 * i], *value = pairs->items[2 * i + 1];
    if (value->kind != CKPT_OBJECT_TENSOR) value->mark = TORCH_PLAIN; /* has none, whatever another walk left */
    status = ckpt_dcp_dict_add(&dict, path->items[0], path, value, err);
  }
  if (status == CKPT_OK) status = ckpt_dcp_dict_build(&dict, err);
  if (status == CKPT_OK && dict.root != NULL) status = ckpt_torch_names_of(read, stored, dict.root, described, err);
  ckpt_dcp_dict_free(&dict);
  return status;
}

static ckpt_status take(bool *is_taken, ckpt_expected_names_want want, ckpt_dcp_flattener *f, const ckpt_object *pairs,
                        ckpt_error *err) {
  ckpt_expected_names read = {0}, stored = {0};
  ckpt_status status;
  const bool is_stored = f->described->is_stored;
  CKPT_TRY_GOTO(name_pairs(&read, is_stored ? &stored : NULL, f->described, pairs, err));
  CKPT_TRY_GOTO(name_carried(&read, f, err));
  if (is_stored) CKPT_TRY_GOTO(name_carried(&stored, f, err));
  status = ckpt_expected_names_take(is_taken, want, &read, &stored, f->described, f->described, f->losses, err);
done:
  ckpt_expected_names_free(&read);
  ckpt_expected_names_free(&stored);
  return status;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* A pair on its way to where it stands among the others. */
typedef struct place {
  ckpt_object *path, *value;
  uint32_t order;
} place;

static int compare_keys(const ckpt_object *a, const ckpt_object *b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->kind == CKPT_OBJECT_INT) return (a->integer > b->integer) - (a->integer < b->integer);
  return strcmp(a->text, b->text);
}

static int compare_places(const void *x, const void *y) {
  const place *a = x, *b = y;
  for (uint64_t i = 0; i < a->path->n && i < b->path->n; i++) {
    int order = compare_keys(a->path->items[i], b->path->items[i]);
    if (order != 0) return order;
  }
  if (a->path->n != b->path->n) return a->path->n < b->path->n ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

/* Places with one key at a depth, and the first of their orders. */
typedef struct run {
  uint64_t low, high;
  uint32_t order;
} run;

static int compare_runs(const void *x, const void *y) {
  const run *a = x, *b = y;
  return (a->order > b->order) - (a->order < b->order);
}

/* Brings sorted places, which agree above a depth, into the order in which a dict has them: what is in one container
 * lies together, where the first of it stood. Goes as deep as paths are long. */
static ckpt_status group(place *places, place *room, uint64_t n, uint64_t depth, ckpt_error *err) {
  run *runs = reallocarray(NULL, n, sizeof *runs);
  CKPT_TRY_ALLOC(runs, err);
  uint64_t n_runs = 0, at = 0;
  ckpt_status status = CKPT_OK;
  for (uint64_t low = 0, high; low < n && status == CKPT_OK; low = high) {
    bool is_container = places[low].path->n > depth + 1;
    for (high = low + 1; high < n && is_container; high++)
      if (compare_keys(places[low].path->items[depth], places[high].path->items[depth]) != 0) break;
    if (is_container) status = group(places + low, room, high - low, depth + 1, err);
    runs[n_runs++] = (run){low, high, places[low].order};
  }
  qsort(runs, n_runs, sizeof *runs, compare_runs);
  for (uint64_t i = 0; i < n_runs && status == CKPT_OK; i++) {
    memcpy(room + at, places + runs[i].low, (runs[i].high - runs[i].low) * sizeof *room);
    at += runs[i].high - runs[i].low;
  }
  if (status == CKPT_OK) memcpy(places, room, n * sizeof *places);
  free(runs);
  return status;
}

/* Refuses sorted places of which one is a value where another has a dict: torch would lose one of the two. */
static ckpt_status check_apart(const place *places, uint64_t n, ckpt_error *err) {
  char one[CKPT_DCP_NAME_BYTES + 1], other[CKPT_DCP_NAME_BYTES + 1];
  for (uint64_t i = 1; i < n; i++) {
    const ckpt_object *value = places[i - 1].path, *below = places[i].path;
    uint64_t k = 0;
    while (k < value->n && k < below->n && compare_keys(value->items[k], below->items[k]) == 0) k++;
    if (k != value->n || k == below->n || ckpt_dcp_path_text(one, value) > CKPT_DCP_NAME_BYTES ||
        ckpt_dcp_path_text(other, below) > CKPT_DCP_NAME_BYTES)
      continue;
    return ckpt_fail(
        err, CKPT_EEXIST, NULL, NULL,
        "'%s' would be a value in torch's dict, and a dict that has '%s' (one key is a number and the other "
        "its text?)",
        one, other);
  }
  return CKPT_OK;
}

/* The pairs as a DICT, in the order in which they will be read. */
static ckpt_status make_pairs(ckpt_dcp_flattener *f, ckpt_object **out, ckpt_error *err) {
  place *places = reallocarray(NULL, f->n, 2 * sizeof *places);
  ckpt_object *pairs = *out = ckpt_object_new(&f->described->arena, CKPT_OBJECT_DICT, f->n, NULL);
  ckpt_status status = CKPT_OK;
  if (places == NULL || pairs == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < f->n && status == CKPT_OK; i++)
    places[i] = (place){f->pairs[2 * (size_t)i], f->pairs[2 * (size_t)i + 1], i};
  if (status == CKPT_OK) {
    qsort(places, f->n, sizeof *places, compare_places);
    status = check_apart(places, f->n, err);
    if (status == CKPT_OK) status = group(places, places + f->n, f->n, 0, err);
  }
  for (uint32_t i = 0; i < f->n && status == CKPT_OK; i++) {
    pairs->items[2 * (size_t)i] = places[i].path;
    pairs->items[2 * (size_t)i + 1] = places[i].value;
  }
  free(places);
  return status;
}

static bool is_empty(const ckpt_object *key) { return key->kind == CKPT_OBJECT_TEXT && key->n == 0; }

/* Whether a dict holds nothing but tensors under their own names. */
static bool is_plain(const ckpt_object *pairs) {
  for (uint64_t i = 0; i < pairs->n; i++)
    if (pairs->items[2 * i]->n != 1 || is_empty(pairs->items[2 * i]->items[0]) ||
        pairs->items[2 * i + 1]->kind != CKPT_OBJECT_TENSOR)
      return false;
  return true;
}

/* Tensors that stand in what cannot be flattened stand beside it all; *has_model: some are the model's. */
static ckpt_status add_others(ckpt_dcp_flattener *f, bool *has_model, ckpt_error *err) {
  uint8_t *is_there = calloc((size_t)f->described->n_tensors + 1, 1);
  CKPT_TRY_ALLOC(is_there, err);
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < f->n; i++)
    if (f->pairs[2 * i + 1]->kind == CKPT_OBJECT_TENSOR) is_there[f->pairs[2 * i + 1]->tensor] = 1;
  for (uint32_t i = 0; i < f->described->n_tensors && status == CKPT_OK; i++) {
    if (is_there[i] || f->is_carried[i]) continue;
    *has_model = *has_model || ckpt_role_is_model((ckpt_role)f->described->tensors[i].role);
    status = add_names(f, NULL, i, err);
  }
  free(is_there);
  return status;
}

/* The input's own dict. *out is NULL where it will not do: tensors would have other names, or the model is all that is
 * left of it. */
static ckpt_status choose_own(ckpt_dcp_flattener *f, const ckpt_object *root, ckpt_object **out, ckpt_error *err) {
  const ckpt_index *of = f->described->objects_of;
  const uint32_t n_losses = f->losses->n;
  bool is_taken = false;
  if (root == NULL || root->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  CKPT_TRY(ckpt_dcp_flatten(f, root, err));
  const uint64_t n_own = f->n;
  bool leaves_model = false;
  CKPT_TRY(add_others(f, &leaves_model, err));
  bool is_rest = of != NULL && of->n_tensors > f->described->n_tensors;
  ckpt_object *pairs;
  if (f->n == 0) return CKPT_OK;
  leaves_model = leaves_model && !f->described->is_stored; /* it would stand without its container */
  CKPT_TRY(make_pairs(f, &pairs, err));
  if (!leaves_model && (!is_rest || f->n_items != 0 || !is_model(f->described))) {
    CKPT_TRY(take(&is_taken, CKPT_EXPECTED_ROLES, f, pairs, err));
    if (!is_taken && f->n == n_own) CKPT_TRY(take(&is_taken, CKPT_EXPECTED_NAMES, f, pairs, err));
  }
  if (is_taken)
    *out = pairs;
  else
    f->losses->n = n_losses;
  return CKPT_OK;
}

static ckpt_status choose_made(ckpt_dcp_flattener *f, const ckpt_object *objects, ckpt_object **out, ckpt_error *err) {
  containers in;
  bool is_taken;
  if (!f->described->is_stored) CKPT_TRY(ckpt_object_tensors_find(&f->held, f->described, err));
  CKPT_TRY(ckpt_dcp_flatten_objects(f, objects, err));
  if (f->n_items == 0 && is_model(f->described)) return CKPT_OK;
  CKPT_TRY(make_containers(&in, &f->described->arena, err));
  for (uint32_t i = 0; i < f->described->n_tensors; i++)
    CKPT_TRY(add_names(f, f->described->is_stored ? NULL : &in, i, err));
  if (f->n == 0) return CKPT_OK;
  CKPT_TRY(make_pairs(f, out, err));
  return take(&is_taken, CKPT_EXPECTED_NOTHING, f, *out, err);
}

ckpt_status ckpt_dcp_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const ckpt_object *objects = described->objects, *root = described->whole;
  bool leaves_states = described->objects_of != NULL && has_states(described->objects_of) && !has_states(described);
  ckpt_dcp_flattener own = {.described = described, .losses = losses, .leaves_states = leaves_states};
  ckpt_object *pairs = NULL;
  uint32_t *numbers = NULL;
  uint8_t *is_carried = calloc((size_t)described->n_tensors + 1, 1);
  ckpt_node_map roots = {0};
  own.roots = &roots;
  ckpt_dcp_flattener made = own;
  ckpt_status status = CKPT_OK;
  if (is_carried == NULL) CKPT_TRY_GOTO(ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory"));
  CKPT_TRY_GOTO(ckpt_described_numbers(&numbers, &own.n_numbers, described, false, err));
  own.numbers = numbers;
  own.is_carried = is_carried;
  CKPT_TRY_GOTO(ckpt_dcp_carried_find(&roots, described->objects_of, err));
  CKPT_TRY_GOTO(choose_own(&own, root, &pairs, err));
  const ckpt_dcp_flattener *used = pairs != NULL ? &own : &made;
  if (pairs == NULL) CKPT_TRY_GOTO(choose_made(&made, objects, &pairs, err));
  if (used->n_classes != 0)
    CKPT_TRY_GOTO(ckpt_index_note(described, false, err,
                                  "%u item%s carried as %s (%s): dcp.load takes %s, torch.load with weights_only "
                                  "does not",
                                  used->n_classes, used->n_classes == 1 ? " is" : "s are",
                                  used->n_classes == 1 ? "it lies" : "they lie", used->class_of,
                                  used->n_classes == 1 ? "it" : "them"));
  if (used->n_unfolded != 0)
    CKPT_TRY_GOTO(ckpt_index_note(described, false, err,
                                  "%u item%s of a planner that does not flatten %s written flattened (dcp.load takes "
                                  "them without flatten_state_dict=False)",
                                  used->n_unfolded, used->n_unfolded == 1 ? "" : "s",
                                  used->n_unfolded == 1 ? "is" : "are"));
  if (pairs != NULL && is_plain(pairs)) pairs = NULL; /* as without */
  ckpt_index_set_objects(described, pairs, NULL);
  described->objects_of = NULL;
done:
  ckpt_node_map_free(&roots);
  free(is_carried);
  free(own.pairs);
  free(made.pairs);
  ckpt_object_tensors_free(&made.held);
  free(numbers);
  return status;
}
