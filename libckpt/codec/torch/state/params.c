/* params.c - see params.h.
 *
 * A table from keys of parameters, as texts, to their names: first what the states' tensors say, then param_names. The
 * graph is hostile: one dict may stand under a million keys, so that of each only the first entries are looked at, and
 * all groups together have at most so many entries, each of which is copied: STEPS_PER_TENSOR, and MORE_STEPS. */
#include "libckpt/codec/torch/state/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/expected_names.h"

enum { STEPS_PER_TENSOR = 64, MORE_STEPS = 1 << 18, MAX_LOOKED_AT = 64, MAX_NAME_BYTES = 4096 };

typedef struct entry {
  const char *key, *name;
  uint32_t order;
} entry;

typedef struct namer {
  const ckpt_index *described;
  ckpt_arena *arena;
  uint32_t *numbers; /* by the number of a leaf: the tensor to be written; UINT32_MAX: it is not */
  uint32_t n_numbers;
  entry *entries;
  uint32_t n, capacity;
  uint64_t n_steps, max_steps;
  bool keeps_numbers; /* of parameters: their names stand in the groups alone */
} namer;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const ckpt_tensor *tensor_of(const namer *w, uint32_t number) {
  uint32_t written = number < w->n_numbers ? w->numbers[number] : UINT32_MAX;
  return written == UINT32_MAX ? NULL : &w->described->tensors[written];
}

/* What a parameter is called that this is a state of. A tensor that several parameters share says nothing. NULL where
 * it is none; *n_name bytes. */
static const char *name_of_state(const namer *w, const ckpt_object *leaf, size_t *n_name) {
  const ckpt_tensor *tensor = leaf->kind == CKPT_OBJECT_TENSOR ? tensor_of(w, leaf->tensor) : NULL;
  if (tensor == NULL || tensor->aliases != NULL || w->described->objects_of->tensors[leaf->tensor].aliases != NULL)
    return NULL;
  if (!w->keeps_numbers) return ckpt_state_parameter(tensor->name, n_name);
  const char *state = strstr(tensor->name, ".state."), *dot = strrchr(tensor->name, '.'); /* of any optimizer */
  if (state == NULL || dot <= state + strlen(".state")) return NULL;
  *n_name = (size_t)(dot - state) - strlen(".state.");
  return state + strlen(".state.");
}

/* A parameter's name as it is written: another one where its tensor has another one. */
static const char *name_written(const namer *w, const char *name) {
  const ckpt_index *from = w->described->objects_of;
  int64_t place = from == NULL ? -1 : ckpt_index_place(from, name);
  const ckpt_tensor *tensor = place < 0 ? NULL : tensor_of(w, from->by_name[place]);
  return tensor == NULL ? name : tensor->name;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* A key as text, a number in room; NULL for what is neither. */
static const char *text_of(const ckpt_object *key, char room[32]) {
  if (key->kind == CKPT_OBJECT_TEXT) return key->n <= MAX_NAME_BYTES && strlen(key->text) == key->n ? key->text : NULL;
  if (key->kind != CKPT_OBJECT_INT) return NULL;
  snprintf(room, 32, "%" PRId64, key->integer);
  return room;
}

static int compare_keys(const void *x, const void *y) {
  return strcmp(((const entry *)x)->key, ((const entry *)y)->key);
}

static int compare_entries(const void *x, const void *y) {
  const entry *a = x, *b = y;
  int order = compare_keys(a, b);
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static ckpt_status add(namer *w, const char *key, const char *name, size_t n_name, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&w->entries, w->n, &w->capacity, sizeof *w->entries, err));
  entry *e = &w->entries[w->n];
  *e = (entry){ckpt_arena_copy(w->arena, key), ckpt_arena_text(w->arena, name, n_name), w->n};
  CKPT_TRY_ALLOC(e->key, err);
  CKPT_TRY_ALLOC(e->name, err);
  w->n++;
  return CKPT_OK;
}

static const ckpt_object *list_of(const ckpt_object *group, const char *key) {
  const ckpt_object *list = ckpt_object_get(group, key);
  return list != NULL && list->kind == CKPT_OBJECT_LIST ? list : NULL;
}

/* Numbers that a group has names for. */
static ckpt_status add_group(namer *w, const ckpt_object *group, ckpt_error *err) {
  const ckpt_object *params = list_of(group, "params"), *names = list_of(group, "param_names");
  w->n_steps += 1 + (params == NULL ? 0 : params->n) + (names == NULL ? 0 : names->n);
  if (group->kind == CKPT_OBJECT_DICT) w->n_steps += group->n;
  if (w->n_steps > w->max_steps)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "its optimizer's groups have more than %" PRIu64 " entries",
                     w->max_steps);
  for (uint64_t i = 0; params != NULL && names != NULL && params->n == names->n && i < params->n; i++) {
    char key[32], room[32];
    const char *name = names->items[i]->kind == CKPT_OBJECT_TEXT ? text_of(names->items[i], room) : NULL;
    if (name == NULL || params->items[i]->kind != CKPT_OBJECT_INT) continue;
    name = name_written(w, name);
    CKPT_TRY(add(w, text_of(params->items[i], key), name, strlen(name), err));
  }
  return CKPT_OK;
}

static ckpt_status add_states(namer *w, const ckpt_object *key, const ckpt_object *states, ckpt_error *err) {
  char room[32];
  size_t n_name = 0;
  const char *name = NULL, *text = text_of(key, room);
  for (uint64_t i = 0; states->kind == CKPT_OBJECT_DICT && i < states->n && i < MAX_LOOKED_AT && name == NULL; i++)
    name = name_of_state(w, states->items[2 * i + 1], &n_name);
  return name == NULL || text == NULL ? CKPT_OK : add(w, text, name, n_name, err);
}

/* The <parameter> in `state.<parameter>.exp_avg` or `param_groups.<parameter>.lr`, behind *n_before bytes. */
static bool parameter_in(const ckpt_object *key, char room[MAX_NAME_BYTES + 1], size_t *n_before) {
  static const char *const prefixes[] = {"state.", "param_groups."};
  if (key->kind != CKPT_OBJECT_TEXT || key->n > 2 * MAX_NAME_BYTES) return false; /* keys can share a long text */
  for (int i = 0; i < 2; i++) {
    const char *dot = strrchr(key->text, '.');
    *n_before = strlen(prefixes[i]);
    if (strncmp(key->text, prefixes[i], *n_before) != 0 || dot <= key->text + *n_before) continue;
    size_t n = (size_t)(dot - key->text) - *n_before;
    if (n > MAX_NAME_BYTES) return false;
    memcpy(room, key->text + *n_before, n);
    room[n] = '\0';
    return true;
  }
  return false;
}

static ckpt_status add_flat(namer *w, const ckpt_object *optimizer, ckpt_error *err) {
  for (uint64_t i = 0; i < optimizer->n; i++) {
    char key[MAX_NAME_BYTES + 1];
    size_t n_before, n_name = 0;
    const char *name = name_of_state(w, optimizer->items[2 * i + 1], &n_name);
    if (name != NULL && parameter_in(optimizer->items[2 * i], key, &n_before)) CKPT_TRY(add(w, key, name, n_name, err));
  }
  return CKPT_OK;
}

static ckpt_status make_table(namer *w, const ckpt_object *optimizer, const ckpt_object *state,
                              const ckpt_object *groups, ckpt_error *err) {
  if (groups == NULL) CKPT_TRY(add_flat(w, optimizer, err));
  for (uint64_t i = 0; state != NULL && i < state->n; i++)
    CKPT_TRY(add_states(w, state->items[2 * i], state->items[2 * i + 1], err));
  for (uint64_t i = 0; groups != NULL && i < groups->n; i++) CKPT_TRY(add_group(w, groups->items[i], err));
  if (w->n != 0) qsort(w->entries, w->n, sizeof *w->entries, compare_entries);
  uint32_t n = 0; /* the first of equals */
  for (uint32_t i = 0; i < w->n; i++)
    if (n == 0 || compare_keys(&w->entries[n - 1], &w->entries[i]) != 0) w->entries[n++] = w->entries[i];
  w->n = n;
  return CKPT_OK;
}

/* The name of the parameter whose key is this text. */
static const char *name_of_key(const namer *w, const char *key) {
  const entry wanted = {.key = key};
  const entry *found = w->n == 0 ? NULL : bsearch(&wanted, w->entries, w->n, sizeof *w->entries, compare_keys);
  return found != NULL ? found->name : name_written(w, key);
}

/* NULL: out of memory. */
static ckpt_object *name_of(const namer *w, const ckpt_object *key) {
  char room[32];
  const char *text = text_of(key, room);
  if (text == NULL || (w->keeps_numbers && key->kind == CKPT_OBJECT_INT)) return (ckpt_object *)(uintptr_t)key;
  const char *name = name_of_key(w, text);
  bool has_name = key->kind != CKPT_OBJECT_INT || strcmp(name, text) != 0;
  return has_name ? ckpt_object_text(w->arena, name, strlen(name)) : (ckpt_object *)(uintptr_t)key;
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

/* What a group calls the parameter that it has this key for: where that is a number, the states bear the name. */
static const char *name_in_group(const namer *w, const ckpt_object *name, const ckpt_object *key) {
  char room[32];
  if (name->kind != CKPT_OBJECT_TEXT || strlen(name->text) != name->n) return NULL;
  bool is_number = w->keeps_numbers && key != NULL && key->kind == CKPT_OBJECT_INT;
  const entry wanted = {.key = is_number ? text_of(key, room) : ""};
  const entry *found = w->n == 0 ? NULL : bsearch(&wanted, w->entries, w->n, sizeof *w->entries, compare_keys);
  return is_number && found != NULL ? found->name : name_written(w, name->text);
}

/* The parameters of a group; or, where these are `of`, their param_names. */
static ckpt_object *copy_list(const namer *w, const ckpt_object *list, const ckpt_object *of) {
  ckpt_object *copy = ckpt_object_new(w->arena, CKPT_OBJECT_LIST, list->n, NULL);
  for (uint64_t i = 0; copy != NULL && i < list->n; i++) {
    const char *name = of == NULL ? NULL : name_in_group(w, list->items[i], i < of->n ? of->items[i] : NULL);
    copy->items[i] = name != NULL ? ckpt_object_text(w->arena, name, strlen(name)) : name_of(w, list->items[i]);
    if (copy->items[i] == NULL) return NULL;
  }
  return copy;
}

/* A dict with the same entries. */
static ckpt_object *copy_dict(const namer *w, const ckpt_object *dict) {
  ckpt_object *copy = ckpt_object_new(w->arena, CKPT_OBJECT_DICT, dict->n, NULL);
  if (copy != NULL && dict->n != 0) memcpy(copy->items, dict->items, 2 * (size_t)dict->n * sizeof *copy->items);
  return copy;
}

/* The place of a key's value in a dict; NULL: there is none. */
static ckpt_object **place_of(ckpt_object *dict, const ckpt_object *value) {
  for (uint64_t i = 0; value != NULL && i < dict->n; i++)
    if (dict->items[2 * i + 1] == value) return &dict->items[2 * i + 1];
  return NULL;
}

static ckpt_object *copy_group(const namer *w, const ckpt_object *group) {
  static const char *const keys[] = {"params", "param_names"};
  static const ckpt_object none = {.kind = CKPT_OBJECT_LIST};
  const ckpt_object *params = list_of(group, keys[0]);
  if (group->kind != CKPT_OBJECT_DICT) return (ckpt_object *)(uintptr_t)group;
  ckpt_object *copy = copy_dict(w, group);
  for (int i = 0; i < 2 && copy != NULL; i++) {
    ckpt_object **list = place_of(copy, list_of(group, keys[i]));
    if (list != NULL && (*list = copy_list(w, *list, i == 0 ? NULL : params == NULL ? &none : params)) == NULL)
      return NULL;
  }
  return copy;
}

static ckpt_object *copy_state(const namer *w, const ckpt_object *state) {
  ckpt_object *copy = copy_dict(w, state);
  for (uint64_t i = 0; copy != NULL && i < copy->n; i++)
    if ((copy->items[2 * i] = name_of(w, copy->items[2 * i])) == NULL) return NULL;
  return copy;
}

/* Of a flattened one, whose keys bear the names. */
static ckpt_object *copy_flat(const namer *w, const ckpt_object *optimizer) {
  ckpt_object *copy = copy_dict(w, optimizer);
  for (uint64_t i = 0; copy != NULL && i < copy->n; i++) {
    char key[MAX_NAME_BYTES + 1];
    size_t n_before;
    const char *text = copy->items[2 * i]->text;
    if (!parameter_in(copy->items[2 * i], key, &n_before)) continue;
    const char *name =
        ckpt_arena_printf(w->arena, "%.*s%s%s", (int)n_before, text, name_of_key(w, key), strrchr(text, '.'));
    copy->items[2 * i] = name == NULL ? NULL : ckpt_object_text(w->arena, name, strlen(name));
    if (copy->items[2 * i] == NULL) return NULL;
  }
  return copy;
}

static ckpt_object *copy_optimizer(const namer *w, const ckpt_object *optimizer, const ckpt_object *state,
                                   const ckpt_object *groups) {
  if (groups == NULL) return copy_flat(w, optimizer);
  ckpt_object *copy = copy_dict(w, optimizer);
  ckpt_object **at = copy == NULL ? NULL : place_of(copy, state);
  if (at != NULL && (*at = copy_state(w, state)) == NULL) return NULL;
  if (copy == NULL) return NULL;
  at = place_of(copy, groups);
  *at = ckpt_object_new(w->arena, CKPT_OBJECT_LIST, groups->n, NULL);
  for (uint64_t i = 0; *at != NULL && i < groups->n; i++)
    if (((*at)->items[i] = copy_group(w, groups->items[i])) == NULL) return NULL;
  return *at == NULL ? NULL : copy;
}

static ckpt_status name_params(ckpt_object **out, const ckpt_object *optimizer, const ckpt_index *described,
                               bool keeps_numbers, ckpt_arena *arena, ckpt_error *err) {
  namer w = {.described = described, .arena = arena, .keeps_numbers = keeps_numbers};
  const ckpt_object *state = ckpt_object_get(optimizer, "state"), *groups = list_of(optimizer, "param_groups");
  if (state != NULL && state->kind != CKPT_OBJECT_DICT) state = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_described_numbers(&w.numbers, &w.n_numbers, described, true, err));
  w.max_steps = STEPS_PER_TENSOR * (uint64_t)w.n_numbers + MORE_STEPS;
  CKPT_TRY_GOTO(make_table(&w, optimizer, state, groups, err));
  *out = copy_optimizer(&w, optimizer, state, groups);
  if (*out == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
done:
  free(w.entries);
  free(w.numbers);
  return status;
}

ckpt_status ckpt_torch_name_params(ckpt_object **out, const ckpt_object *optimizer, const ckpt_index *described,
                                   ckpt_arena *arena, ckpt_error *err) {
  return name_params(out, optimizer, described, false, arena, err);
}

ckpt_status ckpt_torch_rename_params(ckpt_object **out, const ckpt_object *optimizer, const ckpt_index *described,
                                     ckpt_arena *arena, ckpt_error *err) {
  return name_params(out, optimizer, described, true, arena, err);
}
