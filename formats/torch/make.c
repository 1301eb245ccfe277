/* make.c - an object for tensors that come from elsewhere, with training state:
 *
 *   {"model": {name: tensor}, "optimizer": {"state": {P: {"exp_avg": tensor}}, "param_groups": [...]},
 *    "scheduler": ..., "scaler": ..., <first part of another name>: {<rest>: tensor}, <key>: <object>}
 *
 * Tensors that stand in an object beside other values stay in it (libckpt/codec/torch/plain/object_tensors.h). It is
 * read again with the same names, by the rules of libckpt/codec/torch/read/names.c. Where names stand in each other's
 * way (a tensor `model.x` beside the model) it is one dict of all, and that is said. */
#include "formats/torch/torch.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/torch/plain/copy.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/groups.h"
#include "libckpt/codec/torch/state/params.h"
#include "libckpt/codec/torch/state/state.h"

/* One name of a tensor, and where it goes: root[dict]["state"][sub][key], parts of length 0 left out. */
typedef struct entry {
  const char *name, *dict, *sub, *key;
  size_t n_dict, n_sub, n_key;
  uint32_t tensor, order;
  uint32_t object; /* that it stands in, + 1; 0: none */
  bool is_model;
} entry;

typedef struct maker {
  ckpt_index *described;
  ckpt_losses *losses;
  ckpt_arena *arena;
  entry *entries; /* sorted: one dict's, and one parameter's, follow each other */
  uint32_t n;
  ckpt_object_tensors held;
  bool *takes_held;         /* by object: its tensors stand in it */
  const ckpt_object *parts; /* of the input's own; NULL: none */
  bool *is_rest;            /* by its entry: nothing of it is known */
  uint64_t n_rest;
  bool is_numbered;              /* the optimizer's parameters are */
  ckpt_object *root, *optimizer; /* room for all that may come */
} maker;

static bool equals(const char *text, size_t n, const char *wanted) {
  return n == strlen(wanted) && memcmp(text, wanted, n) == 0;
}

/* ---- where names go --------------------------------------------------------------------------------------------- */

static entry make_entry(const ckpt_tensor *tensor, const char *name, bool is_extra, uint32_t number, uint32_t order) {
  entry e = {.name = name, .key = name, .n_key = strlen(name), .tensor = number, .order = order};
  e.is_model = ckpt_role_is_model((ckpt_role)tensor->role) && !is_extra;
  if (e.is_model) {
    e.dict = "model";
    e.n_dict = sizeof "model" - 1;
    return e;
  }
  const char *dot = strchr(name, '.');
  if (dot == NULL || strstr(name, "._spec.") != NULL) return e; /* a DTensor's mesh, no state of a parameter */
  e.dict = name;
  e.n_dict = (size_t)(dot - name);
  e.key = dot + 1;
  e.sub = ckpt_state_parameter(name, &e.n_sub);
  if (e.sub != NULL) e.key = ckpt_torch_state_key(tensor, e.sub + e.n_sub + 1);
  e.n_key = strlen(e.key);
  return e;
}

static int compare_parts(const char *a, size_t n_a, const char *b, size_t n_b) {
  size_t n = n_a < n_b ? n_a : n_b;
  int order = n == 0 ? 0 : memcmp(a, b, n);
  return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_entries(const void *x, const void *y) {
  const entry *a = x, *b = y;
  int order = compare_parts(a->dict, a->n_dict, b->dict, b->n_dict);
  if (order == 0) order = compare_parts(a->sub, a->n_sub, b->sub, b->n_sub);
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static ckpt_status list_entries(maker *m, ckpt_error *err) {
  const ckpt_index *described = m->described;
  uint64_t n = described->n_tensors;
  for (uint32_t i = 0; i < described->n_tensors; i++)
    for (const char *const *alias = described->tensors[i].aliases; alias != NULL && *alias != NULL; alias++) n++;
  if (n > UINT32_MAX - 1) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "too many names");
  m->entries = reallocarray(NULL, (size_t)n + 1, sizeof *m->entries);
  CKPT_TRY_ALLOC(m->entries, err);
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    m->entries[m->n] = make_entry(tensor, tensor->name, false, i, m->n);
    m->n++;
    uint32_t n_aliases = 0;
    while (tensor->aliases != NULL && tensor->aliases[n_aliases] != NULL) n_aliases++;
    for (uint32_t k = 0; k < n_aliases; k++, m->n++)
      m->entries[m->n] =
          make_entry(tensor, tensor->aliases[k], k + tensor->details->n_extra_names >= n_aliases, i, m->n);
  }
  if (m->n != 0) qsort(m->entries, m->n, sizeof *m->entries, compare_entries);
  return CKPT_OK;
}

static int compare_dict(const void *key, const void *item) {
  const entry *a = key, *b = item;
  return compare_parts(a->dict, a->n_dict, b->dict, b->n_dict);
}

/* Whether some entries are in this dict of the root. */
static bool has_dict(const maker *m, const char *name, size_t n_name) {
  const entry wanted = {.dict = name, .n_dict = n_name};
  return m->n != 0 && bsearch(&wanted, m->entries, m->n, sizeof *m->entries, compare_dict) != NULL;
}

/* Names that the object would give another meaning when it is read. */
static const entry *find_conflict(const maker *m) {
  static const char *const objects[] = {"optimizer", "scheduler", "scaler"};
  for (uint32_t i = 0; i < m->n; i++) {
    const entry *e = &m->entries[i];
    const char *top = e->n_dict == 0 ? e->key : e->dict;
    size_t n_top = e->n_dict == 0 ? e->n_key : e->n_dict;
    if (!e->is_model && ckpt_torch_is_model_key(top, n_top)) return e;
    for (size_t k = 0; k < sizeof objects / sizeof *objects && e->n_dict == 0; k++)
      if (equals(top, n_top, objects[k])) return e;
    if (e->n_dict == 0 && has_dict(m, e->key, e->n_key)) return e;
    bool is_optimizer = e->n_sub == 0 && equals(e->dict, e->n_dict, "optimizer");
    if (is_optimizer && (equals(e->key, e->n_key, "state") || equals(e->key, e->n_key, "param_groups"))) return e;
  }
  return NULL;
}

/* ---- tensors in objects ------------------------------------------------------------------------------------------ */

static int compare_keys(const void *a, const void *b) {
  ckpt_object *const *x = *(ckpt_object * *const *)a, *const *y = *(ckpt_object * *const *)b;
  int order = compare_parts(x[0]->text, (size_t)x[0]->n, y[0]->text, (size_t)y[0]->n);
  return order != 0 ? order : (x > y) - (x < y);
}

/* Tensors do not stand in an object whose key something else has at the root. */
static ckpt_status drop_shared_keys(maker *m, ckpt_error *err) {
  const ckpt_object *objects = m->described->objects, *trainer = ckpt_object_get(objects, CKPT_STATE_TRAINER);
  const uint64_t n_more = trainer != NULL && trainer->kind == CKPT_OBJECT_DICT ? trainer->n : 0;
  ckpt_object ***pairs = reallocarray(NULL, (size_t)objects->n + (size_t)n_more + 1, sizeof *pairs);
  CKPT_TRY_ALLOC(pairs, err);
  uint64_t n = 0;
  for (uint64_t i = 0; i < objects->n; i++)
    if (objects->items[2 * i]->kind == CKPT_OBJECT_TEXT) pairs[n++] = &objects->items[2 * i];
  for (uint64_t i = 0; i < n_more; i++)
    if (trainer->items[2 * i]->kind == CKPT_OBJECT_TEXT) pairs[n++] = &trainer->items[2 * i];
  qsort(pairs, (size_t)n, sizeof *pairs, compare_keys);
  for (uint64_t i = 0; i < n; i++) {
    const bool is_own = pairs[i] >= objects->items && pairs[i] < objects->items + 2 * objects->n;
    const bool is_alone = (i == 0 || strcmp(pairs[i - 1][0]->text, pairs[i][0]->text) != 0) &&
                          (i + 1 == n || strcmp(pairs[i + 1][0]->text, pairs[i][0]->text) != 0);
    const char *key = pairs[i][0]->text;
    if (is_own && (!is_alone || strcmp(key, "optimizer") == 0 || strcmp(key, "scaler") == 0))
      m->takes_held[(pairs[i] - objects->items) / 2] = false;
  }
  free(pairs);
  return CKPT_OK;
}

/* Whether all entries of the dict with an object's key stand in the object: else that dict takes the key. */
static bool has_all(const maker *m, uint32_t object) {
  const char *key = m->described->objects->items[2 * (size_t)object]->text;
  const entry wanted = {.dict = key, .n_dict = strlen(key)};
  const entry *found = bsearch(&wanted, m->entries, m->n, sizeof *m->entries, compare_dict), *low = found;
  if (found == NULL) return true;
  while (low != m->entries && compare_dict(&wanted, low - 1) == 0) low--;
  for (; low != m->entries + m->n && compare_dict(&wanted, low) == 0; low++)
    if (low->object != object + 1) return false;
  return true;
}

/* Finds the tensors that stand in objects, and leaves them to those. */
static ckpt_status find_held(maker *m, ckpt_error *err) {
  const uint64_t n_objects = m->described->objects == NULL ? 0 : m->described->objects->n;
  m->takes_held = ckpt_arena_array(m->arena, n_objects + 1, sizeof *m->takes_held);
  CKPT_TRY_ALLOC(m->takes_held, err);
  CKPT_TRY(ckpt_object_tensors_find(&m->held, m->described, err));
  if (m->held.n == 0) return CKPT_OK;
  for (uint32_t i = 0; i < m->held.n; i++) m->takes_held[m->held.names[i].object] = true;
  CKPT_TRY(drop_shared_keys(m, err));
  for (uint32_t i = 0; i < m->n; i++) {
    const ckpt_object_name *held = ckpt_object_tensors_at(&m->held, m->entries[i].tensor, m->entries[i].name);
    m->entries[i].object = held == NULL ? 0 : held->object + 1;
  }
  for (uint64_t i = 0; i < n_objects; i++) m->takes_held[i] = m->takes_held[i] && has_all(m, (uint32_t)i);
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n; i++)
    if (m->entries[i].object == 0 || !m->takes_held[m->entries[i].object - 1]) m->entries[n++] = m->entries[i];
  m->n = n;
  return CKPT_OK;
}

/* ---- dicts ------------------------------------------------------------------------------------------------------ */

static ckpt_status set_pair(ckpt_object *dict, ckpt_object *key, ckpt_object *value, ckpt_error *err) {
  ckpt_object **pair = &dict->items[2 * dict->n++];
  CKPT_TRY_ALLOC(pair[0] = key, err);
  CKPT_TRY_ALLOC(pair[1] = value, err);
  return CKPT_OK;
}

static ckpt_status set_key(const maker *m, ckpt_object *dict, const char *key, size_t n_key, ckpt_object *value,
                           ckpt_error *err) {
  return set_pair(dict, ckpt_object_text(m->arena, key, n_key), value, err);
}

/* The key of a parameter's states: a number where groups name it by that, for PyTorch does not take a text as one. */
static ckpt_status set_state(const maker *m, ckpt_object *state, const entry *e, ckpt_object *own, ckpt_error *err) {
  enum { MAX_DIGITS = 9 };
  const size_t n = e->n_sub <= MAX_DIGITS && (e->sub[0] != '0' || e->n_sub == 1) ? e->n_sub : 0;
  int64_t number = 0;
  size_t i = 0;
  for (; m->is_numbered && i < n && e->sub[i] >= '0' && e->sub[i] <= '9'; i++) number = number * 10 + (e->sub[i] - '0');
  if (n == 0 || i != n) return set_key(m, state, e->sub, e->n_sub, own, err);
  return set_pair(state, ckpt_object_int(m->arena, number), own, err);
}

/* An empty dict with room for n keys. */
static ckpt_status new_dict(const maker *m, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(m->arena, CKPT_OBJECT_DICT, n, NULL), err);
  (*out)->n = 0;
  return CKPT_OK;
}

static ckpt_status set_tensors(const maker *m, ckpt_object *dict, const entry *entries, uint32_t n, ckpt_error *err) {
  for (uint32_t i = 0; i < n; i++)
    CKPT_TRY(set_key(m, dict, entries[i].key, entries[i].n_key, ckpt_object_tensor(m->arena, entries[i].tensor), err));
  return CKPT_OK;
}

/* Entries of one dict, the first without sub; *state takes those of parameters. */
static ckpt_status fill_dict(const maker *m, ckpt_object *dict, const entry *entries, uint32_t n, ckpt_object *state,
                             ckpt_error *err) {
  for (uint32_t i = 0, n_same; i < n; i += n_same) {
    for (n_same = 1; i + n_same < n; n_same++)
      if (compare_parts(entries[i].sub, entries[i].n_sub, entries[i + n_same].sub, entries[i + n_same].n_sub) != 0)
        break;
    ckpt_object *own = dict;
    if (entries[i].n_sub != 0) {
      CKPT_TRY(new_dict(m, n_same, &own, err));
      CKPT_TRY(set_state(m, state, &entries[i], own, err));
    }
    CKPT_TRY(set_tensors(m, own, &entries[i], n_same, err));
  }
  return CKPT_OK;
}

/* The groups, with the names that the states' tensors have here. */
static ckpt_status name_groups(const maker *m, const ckpt_object *given, ckpt_object **groups, ckpt_error *err) {
  const ckpt_object *optimizer = ckpt_torch_state_optimizer(m->described, given);
  ckpt_object *named = NULL;
  if (optimizer == NULL) {
    CKPT_TRY(new_dict(m, 1, &named, err));
    CKPT_TRY(set_key(m, named, "param_groups", 12, (ckpt_object *)(uintptr_t)given, err));
    optimizer = named;
  }
  CKPT_TRY(ckpt_torch_name_params(&named, optimizer, m->described, m->arena, err));
  static const char at[] = CKPT_STATE_PARAM_GROUPS;
  return ckpt_torch_copy_data(groups, ckpt_object_get(named, "param_groups"), NULL, at, sizeof at - 1, m->described,
                              m->losses, err);
}

/* Whether groups name parameters by numbers. */
static bool are_numbered(const ckpt_object *groups) {
  for (uint64_t i = 0; i < groups->n; i++) {
    const ckpt_object *params = ckpt_object_field(groups->items[i], "params");
    if (params != NULL && params->kind == CKPT_OBJECT_LIST && params->n != 0)
      return params->items[0]->kind == CKPT_OBJECT_INT;
  }
  return false;
}

static ckpt_status set_optimizer(maker *m, const entry *entries, uint32_t n, ckpt_error *err) {
  ckpt_object *state, *groups = NULL;
  const ckpt_object *given = ckpt_object_get(m->described->objects, CKPT_STATE_PARAM_GROUPS);
  if (given != NULL) CKPT_TRY(name_groups(m, given, &groups, err));
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST)
    CKPT_TRY_ALLOC(groups = ckpt_object_new(m->arena, CKPT_OBJECT_LIST, 0, NULL), err);
  m->is_numbered = are_numbered(groups);
  CKPT_TRY(new_dict(m, (uint64_t)n + 2, &m->optimizer, err));
  CKPT_TRY(new_dict(m, n, &state, err));
  CKPT_TRY(set_key(m, m->optimizer, "state", 5, state, err));
  CKPT_TRY(set_key(m, m->optimizer, "param_groups", 12, groups, err));
  CKPT_TRY(set_key(m, m->root, "optimizer", 9, m->optimizer, err));
  return fill_dict(m, m->optimizer, entries, n, state, err);
}

static ckpt_status set_dicts(maker *m, ckpt_error *err) {
  for (uint32_t i = 0, n; i < m->n; i += n) {
    const entry *e = &m->entries[i];
    for (n = 1; i + n < m->n && compare_dict(e, &m->entries[i + n]) == 0;) n++;
    if (e->n_dict == 0) {
      CKPT_TRY(set_tensors(m, m->root, e, n, err));
    } else if (equals(e->dict, e->n_dict, "optimizer")) {
      CKPT_TRY(set_optimizer(m, e, n, err));
    } else {
      ckpt_object *dict;
      CKPT_TRY(new_dict(m, n, &dict, err));
      CKPT_TRY(set_key(m, m->root, e->dict, e->n_dict, dict, err));
      CKPT_TRY(fill_dict(m, dict, e, n, NULL, err));
    }
  }
  return CKPT_OK;
}

/* ---- objects ---------------------------------------------------------------------------------------------------- */

static ckpt_status set_object(const maker *m, const char *key, size_t n_key, const ckpt_object *object, bool takes_held,
                              ckpt_error *err) {
  const ckpt_object_tensors *held = takes_held ? &m->held : NULL;
  ckpt_object *copy;
  CKPT_TRY(ckpt_torch_copy_data(&copy, object, held, key, n_key, m->described, m->losses, err));
  return copy == NULL ? CKPT_OK : set_key(m, m->root, key, n_key, copy, err);
}

/* Numbers and texts stand at the root, where they are looked for. */
static ckpt_status set_trainer(const maker *m, const ckpt_object *trainer, ckpt_error *err) {
  for (uint64_t i = 0; i < trainer->n; i++) {
    const ckpt_object *key = trainer->items[2 * i];
    if (key->kind == CKPT_OBJECT_TEXT)
      CKPT_TRY(set_object(m, key->text, key->n, trainer->items[2 * i + 1], false, err));
  }
  return CKPT_OK;
}

static ckpt_status set_objects(maker *m, ckpt_error *err) {
  const ckpt_object *objects = m->described->objects, *whole = m->described->whole;
  for (uint64_t i = 0; objects != NULL && i < objects->n; i++) {
    const ckpt_object *key = objects->items[2 * i], *value = objects->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT || value == whole) continue;
    if (strcmp(key->text, CKPT_STATE_PARAM_GROUPS) == 0) {
      if (m->optimizer == NULL) CKPT_TRY(set_optimizer(m, NULL, 0, err));
    } else if (strcmp(key->text, CKPT_STATE_TRAINER) == 0 && value->kind == CKPT_OBJECT_DICT) {
      CKPT_TRY(set_trainer(m, value, err));
    } else {
      const char *name = ckpt_torch_state_written(key->text);
      CKPT_TRY(set_object(m, name, strlen(name), value, m->takes_held[i], err));
    }
  }
  return CKPT_OK;
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

/* Finds the entries of the input's object of which nothing is known (a trainer's arguments). */
static ckpt_status find_rest(maker *m, ckpt_error *err) {
  const ckpt_object *objects = m->described->objects, *parts;
  uint64_t n_left = CKPT_OBJECT_LOOKS;
  CKPT_TRY(ckpt_index_parts(&parts, m->described, err));
  m->parts = parts;
  if (parts == NULL) return CKPT_OK;
  m->is_rest = ckpt_arena_array(m->arena, parts->n + 1, sizeof *m->is_rest);
  CKPT_TRY_ALLOC(m->is_rest, err);
  for (uint64_t i = 0; i < parts->n; i++) {
    m->is_rest[i] = !ckpt_torch_state_is_known(objects, parts->items[2 * i + 1], &n_left);
    m->n_rest += m->is_rest[i];
  }
  return CKPT_OK;
}

/* Copies them, but for what tensors were in: a dict of those stands there. */
static ckpt_status set_rest(maker *m, ckpt_error *err) {
  if (m->n_rest == 0) return CKPT_OK;
  bool *is_taken = ckpt_arena_array(m->arena, m->parts->n, sizeof *is_taken);
  CKPT_TRY_ALLOC(is_taken, err);
  for (uint64_t i = 0; i < m->parts->n; i++) {
    const ckpt_object *key = m->parts->items[2 * i];
    is_taken[i] = m->is_rest[i] && key->kind == CKPT_OBJECT_TEXT && !has_dict(m, key->text, (size_t)key->n);
  }
  CKPT_TRY(ckpt_torch_copy_entries(m->root, m->parts, is_taken, m->described, m->losses, err));
  for (uint64_t i = 0; i < m->parts->n; i++) m->is_rest[i] = m->is_rest[i] && !is_taken[i];
  return CKPT_OK;
}

/* Says which of them, or what else, is not written besides the tensors. */
static ckpt_status say_lost(const maker *m, ckpt_error *err) {
  const ckpt_object *whole = m->described->whole;
  ckpt_name_list lost = {.n = 0};
  if (whole == NULL) return CKPT_OK;
  for (uint64_t i = 0; m->parts != NULL && i < m->parts->n; i++) {
    const ckpt_object *key = m->parts->items[2 * i];
    if (m->is_rest[i])
      ckpt_name_list_add(&lost, key->kind == CKPT_OBJECT_TEXT ? key->text : "an entry whose key is no text");
  }
  if (lost.n == 0)
    return ckpt_losses_add(m->losses, err, "the object that the tensors were in%s%.200s",
                           whole->kind == CKPT_OBJECT_FOREIGN ? ": " : "",
                           whole->kind == CKPT_OBJECT_FOREIGN ? ckpt_torch_class(whole) : "");
  return ckpt_losses_add(m->losses, err, "%zu object%s, but for %s tensors (%s)", lost.n, ckpt_plural(lost.n),
                         lost.n == 1 ? "its" : "their", lost.text);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static ckpt_status make(maker *m, ckpt_object **out, ckpt_error *err) {
  const ckpt_object *objects = m->described->objects;
  const ckpt_object *trainer = ckpt_object_get(objects, CKPT_STATE_TRAINER);
  uint64_t n_objects = objects == NULL ? 0 : objects->n;
  const bool has_own = m->described->whole != NULL; /* which no entry is made of */
  bool is_model = n_objects == (has_own ? 1 : 0);
  CKPT_TRY(list_entries(m, err));
  for (uint32_t i = 0; i < m->n && is_model; i++) is_model = m->entries[i].is_model;
  CKPT_TRY(find_rest(m, err));
  if (is_model && m->n_rest == 0) return say_lost(m, err);
  if (m->described->is_stored) /* names below a container would be others */
    return ckpt_losses_add(m->losses, err, "roles and objects (tensors have their stored names)");
  const entry *conflict = find_conflict(m);
  if (conflict != NULL)
    return ckpt_losses_add(m->losses, err, "roles and objects (%s stands in their way)",
                           m->described->tensors[conflict->tensor].name);
  CKPT_TRY(find_held(m, err));
  if (trainer != NULL && trainer->kind == CKPT_OBJECT_DICT) n_objects += trainer->n;
  CKPT_TRY(new_dict(m, m->n + n_objects + m->n_rest + 1, &m->root, err));
  CKPT_TRY(set_dicts(m, err));
  CKPT_TRY(set_objects(m, err));
  CKPT_TRY(set_rest(m, err));
  CKPT_TRY(say_lost(m, err));
  *out = m->root;
  return ckpt_torch_drop_repeated(m->root, m->losses, err);
}

ckpt_status ckpt_torch_make_object(ckpt_object **out, ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  maker m = {.described = described, .losses = losses, .arena = losses->arena};
  *out = NULL;
  ckpt_status status = make(&m, out, err);
  free(m.entries);
  ckpt_object_tensors_free(&m.held);
  return status;
}

/* ---- a model alone ----------------------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b) {
  return strcmp((*(ckpt_object *const *)a)->text, (*(ckpt_object *const *)b)->text);
}

ckpt_status ckpt_torch_make_state_dict(ckpt_object **out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err) {
  ckpt_object *dict = ckpt_object_new(arena, CKPT_OBJECT_DICT, (uint64_t)index->n_tensors + index->n_aliases, NULL);
  CKPT_TRY_ALLOC(dict, err);
  uint64_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    const char *name = tensor->name;
    const uint64_t first = n;
    for (const char *const *alias = tensor->aliases; name != NULL && n < dict->n;) {
      CKPT_TRY_ALLOC(dict->items[2 * n] = ckpt_object_text(arena, name, strlen(name)), err);
      CKPT_TRY_ALLOC(dict->items[2 * n++ + 1] = ckpt_object_tensor(arena, i), err);
      name = alias == NULL ? NULL : *alias++;
    }
    if (n - first > 1) qsort(dict->items + 2 * first, n - first, 2 * sizeof *dict->items, compare_texts);
  }
  dict->n = n;
  *out = dict;
  return CKPT_OK;
}
