/* rename.c - the input's own object for tensors that have other names (--rename), or fewer (--exclude): the keys
 * that lead to them are changed, and all else stays.
 *
 * A tensor in a dict is called by the end of the path to it, so that its key is the end of its name. Where the new name
 * differs in that end alone the key takes its place. An optimizer's parameters are called in its groups. Whether the
 * tensors then have their names, the reader's rules decide (objects.c): nothing is promised here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/base/error.h"
#include "libckpt/base/node_map.h"
#include "libckpt/codec/expected_names.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/params.h"
#include "libckpt/index/arch.h"

enum { MAX_DEPTH = 64, MAX_PATH_BYTES = 8192, MAX_OPTIMIZERS = 64, MAX_STEPS = 1 << 24 };

typedef struct renamer {
  const ckpt_index *described, *from;
  ckpt_arena *arena;
  uint32_t *numbers; /* by the number of a leaf: the tensor to be written; UINT32_MAX: it is not */
  uint32_t n_numbers, n_optimizers;
  uint64_t n_steps; /* names looked at: one tensor may have all, each under a key */
  ckpt_node_map copies;
  char path[MAX_PATH_BYTES + 1];
} renamer;

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const char *name_at(const ckpt_tensor *tensor, size_t i) {
  return i == 0 ? tensor->name : tensor->aliases == NULL ? NULL : tensor->aliases[i - 1];
}

static size_t count_names(const ckpt_tensor *tensor) {
  size_t n = 0;
  while (name_at(tensor, n) != NULL) n++;
  return n;
}

/* What name i is now. Renaming keeps their order; where there are fewer, those that are gone have no name. */
static const char *name_now(const ckpt_tensor *before, const ckpt_tensor *now, size_t i) {
  if (count_names(before) == count_names(now)) return name_at(now, i);
  for (size_t k = 0; name_at(now, k) != NULL; k++)
    if (strcmp(name_at(now, k), name_at(before, i)) == 0) return name_at(now, k);
  return NULL;
}

static bool has_other_names(const ckpt_tensor *before, const ckpt_tensor *now) {
  size_t i = 0;
  while (name_at(before, i) != NULL && name_at(now, i) != NULL && strcmp(name_at(before, i), name_at(now, i)) == 0) i++;
  return name_at(before, i) != NULL || name_at(now, i) != NULL;
}

/* Whether a path is this name, or a container's and this name. */
static bool leads_to(const char *path, const char *name) {
  size_t n_path = strlen(path), n = strlen(name);
  if (n_path < n || strcmp(path + n_path - n, name) != 0) return false;
  return n_path == n || path[n_path - n - 1] == '.';
}

/* The name that a path leads to: the longest, as others are ends of it. -1: none. */
static int64_t name_of_path(const ckpt_tensor *tensor, const char *path) {
  int64_t found = -1;
  size_t n_found = 0;
  for (size_t i = 0; name_at(tensor, i) != NULL; i++) {
    if (strlen(name_at(tensor, i)) < n_found || !leads_to(path, name_at(tensor, i))) continue;
    n_found = strlen(name_at(tensor, i));
    found = (int64_t)i;
  }
  return found;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Appends a key to the path of n bytes; the new length, 0 where it does not fit. */
static size_t extend(renamer *r, size_t n, const ckpt_object *key) {
  char number[32];
  bool is_text = key->kind == CKPT_OBJECT_TEXT;
  if (key->kind != CKPT_OBJECT_INT && (!is_text || strlen(key->text) != key->n)) return 0;
  snprintf(number, sizeof number, "%lld", is_text ? 0 : (long long)key->integer);
  const char *text = is_text ? key->text : number;
  size_t n_text = strlen(text), n_dot = n != 0;
  if (n + n_dot + n_text > MAX_PATH_BYTES) return 0;
  if (n_dot != 0) r->path[n++] = '.';
  memcpy(r->path + n, text, n_text + 1);
  return n + n_text;
}

/* The key under which a tensor stands now, at the end of a path of n bytes; *key stays where none would do. NULL: that
 * name of it is gone. */
static ckpt_status rename_key(renamer *r, size_t n, const ckpt_object *leaf, ckpt_object **key, ckpt_error *err) {
  uint32_t written = leaf->tensor < r->n_numbers ? r->numbers[leaf->tensor] : UINT32_MAX;
  if (written == UINT32_MAX) return CKPT_OK;
  const ckpt_tensor *before = &r->from->tensors[leaf->tensor], *now = &r->described->tensors[written];
  if (r->n_steps <= MAX_STEPS) r->n_steps += count_names(before) + count_names(now);
  if (r->n_steps > MAX_STEPS || !has_other_names(before, now)) return CKPT_OK;
  ckpt_object unwrapped = **key;
  if (unwrapped.kind == CKPT_OBJECT_TEXT && !r->described->is_stored) { /* as names are */
    CKPT_TRY_ALLOC(unwrapped.text = ckpt_name_unwrapped(unwrapped.text, r->arena), err);
    unwrapped.n = strlen(unwrapped.text);
  }
  size_t n_path = extend(r, n, &unwrapped), n_key = n_path - n - (n != 0);
  int64_t i = n_path == 0 ? -1 : name_of_path(before, r->path);
  if (i < 0) return CKPT_OK;
  const char *name = name_now(before, now, (size_t)i), *was = name_at(before, (size_t)i);
  size_t n_was = strlen(was), n_before = n_was < n_key ? 0 : n_was - n_key;
  if (name == NULL) {
    *key = NULL;
    return CKPT_OK;
  }
  if (strlen(name) <= n_before || memcmp(name, was, n_before) != 0) return CKPT_OK;
  const char *kept = n_was < n_key ? r->path + (n_path - n_key) : ""; /* of the key, before the name */
  const char *made =
      ckpt_arena_printf(r->arena, "%.*s%s", (int)(n_was < n_key ? n_key - n_was : 0), kept, name + n_before);
  CKPT_TRY_ALLOC(made, err);
  CKPT_TRY_ALLOC(*key = ckpt_object_text(r->arena, made, strlen(made)), err);
  return CKPT_OK;
}

static int compare_keys(const void *x, const void *y) {
  const ckpt_object *a = *(ckpt_object *const *)x, *b = *(ckpt_object *const *)y;
  if (a->kind != CKPT_OBJECT_TEXT || b->kind != CKPT_OBJECT_TEXT)
    return (a->kind != CKPT_OBJECT_TEXT) - (b->kind != CKPT_OBJECT_TEXT);
  uint64_t n = a->n < b->n ? a->n : b->n;
  int order = memcmp(a->text, b->text, (size_t)n);
  return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

/* Whether two texts among the keys of a dict are one: Python would keep the last alone. */
static ckpt_status find_repeated(const ckpt_object *dict, bool *is_repeated, ckpt_error *err) {
  const ckpt_object **keys = reallocarray(NULL, (size_t)dict->n + 1, sizeof *keys);
  CKPT_TRY_ALLOC(keys, err);
  for (uint64_t i = 0; i < dict->n; i++) keys[i] = dict->items[2 * i];
  if (dict->n != 0) qsort(keys, (size_t)dict->n, sizeof *keys, compare_keys);
  for (uint64_t i = 1; i < dict->n && !*is_repeated; i++)
    *is_repeated = keys[i]->kind == CKPT_OBJECT_TEXT && compare_keys(&keys[i - 1], &keys[i]) == 0;
  free(keys);
  return CKPT_OK;
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

static ckpt_status copy(renamer *r, ckpt_object **node, size_t n, uint32_t depth, ckpt_error *err);

static ckpt_status copy_dict(renamer *r, ckpt_object *dict, size_t n, uint32_t depth, ckpt_error *err) {
  ckpt_object *const *items = dict->items;
  const uint64_t n_pairs = dict->n;
  const uint32_t n_extras = (uint32_t)(ckpt_object_n_children(dict) - 2 * n_pairs);
  bool is_changed = false, is_repeated = false;
  CKPT_TRY_ALLOC(dict->items = ckpt_arena_array(r->arena, 2 * n_pairs + n_extras, sizeof *dict->items), err);
  dict->n = 0;
  for (uint64_t i = 0; i < n_pairs; i++) {
    ckpt_object *key = items[2 * i], *value = items[2 * i + 1];
    if (value->kind == CKPT_OBJECT_TENSOR) {
      CKPT_TRY(rename_key(r, n, value, &key, err));
      is_changed = is_changed || (key != NULL && key != items[2 * i]);
    } else {
      size_t n_path = extend(r, n, key);
      if (n_path != 0) CKPT_TRY(copy(r, &value, n_path, depth + 1, err));
    }
    if (key == NULL) continue;
    dict->items[2 * dict->n] = key;
    dict->items[2 * dict->n++ + 1] = value;
  }
  if (n_extras != 0) memcpy(&dict->items[2 * dict->n], &items[2 * n_pairs], n_extras * sizeof *items);
  if (is_changed) CKPT_TRY(find_repeated(dict, &is_repeated, err));
  if (is_repeated) memcpy(dict->items, items, (2 * n_pairs + n_extras) * sizeof *items), dict->n = n_pairs;
  return CKPT_OK;
}

static ckpt_status copy_list(renamer *r, ckpt_object *list, size_t n, uint32_t depth, ckpt_error *err) {
  ckpt_object *const *items = list->items;
  CKPT_TRY_ALLOC(list->items = ckpt_arena_array(r->arena, (size_t)list->n, sizeof *items), err);
  for (uint64_t i = 0; i < list->n; i++) {
    const ckpt_object place = {.kind = CKPT_OBJECT_INT, .integer = (int64_t)i};
    size_t n_path = extend(r, n, &place);
    list->items[i] = items[i];
    if (n_path != 0) CKPT_TRY(copy(r, &list->items[i], n_path, depth + 1, err));
  }
  return CKPT_OK;
}

/* Its attributes are in its place. */
static ckpt_status copy_namespace(renamer *r, ckpt_object *made, size_t n, uint32_t depth, ckpt_error *err) {
  ckpt_object *attributes = made->items[0];
  CKPT_TRY_ALLOC(made->items = ckpt_arena_array(r->arena, 1, sizeof *made->items), err);
  made->items[0] = attributes;
  return copy(r, &made->items[0], n, depth + 1, err);
}

/* Puts a copy of a container in its place: the same one wherever it stands, within itself too. What lies deeper than
 * MAX_DEPTH stays. */
static ckpt_status copy(renamer *r, ckpt_object **node, size_t n, uint32_t depth, ckpt_error *err) {
  bool is_list = (*node)->kind == CKPT_OBJECT_LIST || (*node)->kind == CKPT_OBJECT_TUPLE;
  bool is_namespace = ckpt_torch_attributes(*node) != NULL, is_dict = (*node)->kind == CKPT_OBJECT_DICT;
  if ((!is_list && !is_dict && !is_namespace) || (is_list && (*node)->extras != 0) || depth == MAX_DEPTH)
    return CKPT_OK;
  uint64_t *known = ckpt_node_map_at(&r->copies, *node);
  CKPT_TRY_ALLOC(known, err);
  if (*known != 0) {
    *node = (ckpt_object *)(uintptr_t)*known;
    return CKPT_OK;
  }
  ckpt_object *made = ckpt_arena_alloc(r->arena, sizeof *made);
  CKPT_TRY_ALLOC(made, err);
  *known = (uint64_t)(uintptr_t)made;
  const ckpt_object *source = *node;
  if (ckpt_torch_is_any_optimizer(source) && r->n_optimizers++ < MAX_OPTIMIZERS) {
    ckpt_object *renamed;
    CKPT_TRY(ckpt_torch_rename_params(&renamed, source, r->described, r->arena, err));
    source = renamed;
  }
  *made = *source;
  made->room = 0;
  *node = made;
  if (is_namespace) return copy_namespace(r, made, n, depth, err);
  return is_list ? copy_list(r, made, n, depth, err) : copy_dict(r, made, n, depth, err);
}

ckpt_status ckpt_torch_rename(ckpt_object **root, const ckpt_index *described, ckpt_arena *arena, ckpt_error *err) {
  renamer r = {.described = described, .from = described->objects_of, .arena = arena};
  bool is_renamed = false;
  for (uint32_t i = 0; i < described->n_tensors && r.from != NULL && !is_renamed; i++) {
    const ckpt_tensor *now = &described->tensors[i];
    is_renamed = now->details->like != 0 && now->details->like <= r.from->n_tensors &&
                 has_other_names(&r.from->tensors[now->details->like - 1], now);
  }
  if (!is_renamed) return CKPT_OK;
  ckpt_status status = ckpt_described_numbers(&r.numbers, &r.n_numbers, described, true, err);
  if (status == CKPT_OK) status = copy(&r, root, 0, 0, err);
  free(r.numbers);
  ckpt_node_map_free(&r.copies);
  return status;
}
