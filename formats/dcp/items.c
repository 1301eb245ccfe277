/* items.c - the dict that torch saves, flattened; and what in it is no tensor, as the items of bytes that it is
 * written in.
 *
 * torch flattens the dict (torch/distributed/checkpoint/_traverse.py): mappings are entered, and lists that hold
 * mappings, tensors or such lists; every other value is an item, named by the keys that lead to it. Here the same is
 * done to the dict that was read, and to tuples and namespaces with tensors, which torch would leave in an item, but
 * for those that are one and go on as they lie (carry.c). An item is an archive of torch.save that
 * torch.load(weights_only=True) takes; one with a namespace or numpy's arrays torch's planner takes, which loads items
 * without that. */
#include <stdio.h>
#include <string.h>

#include "formats/dcp/write.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/object.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/params.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/zip/write.h"
#include "libckpt/index/arch.h"

enum { MAX_STEPS = CKPT_DCP_MAX_STEPS, MAX_OPTIMIZERS = 64 };

typedef ckpt_dcp_flattener flattener;

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Whether a tuple or a namespace holds a tensor, so that it can be no item. */
static bool holds_tensor(flattener *f, const ckpt_object *value, uint32_t depth) {
  if (value->kind == CKPT_OBJECT_TENSOR) return true;
  bool is_container = value->kind == CKPT_OBJECT_TUPLE || value->kind == CKPT_OBJECT_LIST ||
                      value->kind == CKPT_OBJECT_DICT || ckpt_torch_namespace(value) != NULL;
  uint64_t n = is_container ? ckpt_object_n_children(value) : 0;
  if (depth >= CKPT_DCP_MAX_KEYS || f->n_steps > MAX_STEPS) return false;
  f->n_steps += 1 + n;
  for (uint64_t i = 0; i < n; i++)
    if (holds_tensor(f, value->items[i], depth + 1)) return true;
  return false;
}

/* Whether a value is taken apart. */
static bool is_entered(flattener *f, const ckpt_object *value, uint32_t depth) {
  if (value->kind == CKPT_OBJECT_DICT) return value->n != 0 || depth == 0; /* an empty one would be lost */
  if (value->kind == CKPT_OBJECT_TUPLE && (f->numbers != NULL || f->held.n != 0)) return holds_tensor(f, value, depth);
  if (value->kind != CKPT_OBJECT_LIST || depth >= CKPT_DCP_MAX_KEYS || f->n_steps > MAX_STEPS) return false;
  f->n_steps += 1 + value->n;
  for (uint64_t i = 0; i < value->n; i++)
    if (value->items[i]->kind == CKPT_OBJECT_TENSOR || is_entered(f, value->items[i], depth + 1)) return true;
  return false;
}

static bool is_optimizer(flattener *f, const ckpt_object *value) {
  if (value->kind != CKPT_OBJECT_DICT || (f->n_steps += 1 + value->n) > MAX_STEPS) return false;
  return ckpt_torch_is_any_optimizer(value);
}

/* Whether torch.load(weights_only=True) takes a value with all that it holds, but for namespaces, numpy and Python's
 * own collections; *why not. */
static bool is_data(flattener *f, const ckpt_object *value, uint32_t depth, const char **why) {
  ckpt_torch_numpy numpy;
  ckpt_torch_collection collection;
  if (ckpt_torch_numpy_of(&numpy, value)) return true;
  if (ckpt_torch_collection_of(&collection, value, &f->described->arena, NULL) != CKPT_OK) *why = "out of memory";
  if (collection.what != NULL && f->own_class == NULL) f->own_class = ckpt_torch_class(value);
  if (collection.what != NULL) value = collection.node;
  const uint64_t n = ckpt_object_n_children(value);
  if (value->kind == CKPT_OBJECT_TENSOR)
    *why = "a tensor in it, which an item cannot be here";
  else if (ckpt_torch_sparse_parts(value, NULL) != NULL || ckpt_torch_is_quantized(value) ||
           ckpt_torch_has_bytes(value))
    *why = "not a plain dense tensor, and DCP places nothing else";
  else if (!ckpt_torch_is_safe(value) && ckpt_torch_namespace(value) == NULL && collection.what == NULL)
    *why = ckpt_torch_class(value);
  else if (depth == CKPT_DCP_MAX_KEYS || (f->n_steps += 1 + n) > MAX_STEPS)
    *why = "too many values, or too deep";
  for (uint64_t i = collection.first; i < n && *why == NULL; i++) (void)is_data(f, value->items[i], depth + 1, why);
  return *why == NULL;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Keys joined with dots; the bytes that the whole has, more than the room where there is no text, also for a key that
 * holds a zero byte. */
static size_t print_name(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_object *const *keys, uint64_t n) {
  size_t at = 0;
  for (uint64_t i = 0; i < n; i++) {
    char number[32];
    bool is_text = keys[i]->kind == CKPT_OBJECT_TEXT;
    if (!is_text) snprintf(number, sizeof number, "%lld", (long long)keys[i]->integer);
    const char *key = is_text ? keys[i]->text : number;
    size_t n_key = is_text ? (size_t)keys[i]->n : strlen(number), n_dot = i != 0;
    if (strlen(key) != n_key) return CKPT_DCP_NAME_BYTES + 1;
    if (at + n_dot + n_key <= CKPT_DCP_NAME_BYTES) {
      if (n_dot != 0) text[at] = '.';
      memcpy(text + at + n_dot, key, n_key);
    }
    at += n_dot + n_key;
  }
  if (at <= CKPT_DCP_NAME_BYTES) text[at] = '\0';
  return at;
}

size_t ckpt_dcp_path_text(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_object *path) {
  return print_name(text, (const ckpt_object *const *)path->items, path->n);
}

ckpt_status ckpt_dcp_flattener_add(flattener *f, const ckpt_object *const *keys, uint32_t n, const ckpt_object *value,
                                   ckpt_error *err) {
  ckpt_object *path = ckpt_object_new(&f->described->arena, CKPT_OBJECT_TUPLE, n, NULL);
  CKPT_TRY_ALLOC(path, err);
  memcpy(path->items, keys, n * sizeof *keys);
  if (f->n == UINT32_MAX) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "too many names");
  CKPT_TRY(ckpt_grow(&f->pairs, (uint32_t)f->n, &f->capacity, 2 * sizeof *f->pairs, err));
  f->pairs[2 * f->n] = path;
  f->pairs[2 * f->n++ + 1] = (ckpt_object *)(uintptr_t)value;
  f->n_items += value->kind != CKPT_OBJECT_TENSOR;
  return CKPT_OK;
}

/* A namespace that cannot be written loses the attributes for which it cannot, as in a torch file; *value becomes NULL
 * where it is none. */
static ckpt_status take_writable(flattener *f, const ckpt_object **value, const char *name, ckpt_error *err) {
  ckpt_arena *arena = &f->described->arena;
  const ckpt_object *given = ckpt_torch_attributes(*value), *whole = *value;
  *value = NULL;
  if (given == NULL || given->kind != CKPT_OBJECT_DICT || given->extras != 0) return CKPT_OK;
  if ((f->n_steps += 1 + given->n) > MAX_STEPS) return CKPT_OK; /* several items may share it */
  ckpt_object *kept = ckpt_object_new(arena, CKPT_OBJECT_DICT, given->n, NULL),
              *made = ckpt_arena_alloc(arena, sizeof *made);
  CKPT_TRY_ALLOC(kept, err);
  CKPT_TRY_ALLOC(made, err);
  kept->n = 0;
  for (uint64_t i = 0; i < given->n; i++) {
    const ckpt_object *key = given->items[2 * i];
    const char *refused = NULL;
    if (is_data(f, key, 0, &refused) && is_data(f, given->items[2 * i + 1], 0, &refused))
      memcpy(&kept->items[2 * kept->n++], &given->items[2 * i], 2 * sizeof *kept->items);
    else
      CKPT_TRY(ckpt_losses_add(f->losses, err, "object %.200s.%.100s (%s)", name,
                               key->kind == CKPT_OBJECT_TEXT ? key->text : "(no text)", refused));
  }
  *made = *whole;
  made->room = 0;
  CKPT_TRY_ALLOC(made->items = ckpt_arena_array(arena, 1, sizeof *made->items), err);
  made->items[0] = kept;
  *value = made;
  return CKPT_OK;
}

/* Whether an object is a tensor that is not read: it was left out by its name. */
static bool is_told(const flattener *f, const char *name) {
  return f->described->objects_of != NULL && ckpt_index_is_unread(f->described->objects_of, name);
}

static ckpt_status add_item(flattener *f, const ckpt_object *value, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  if (print_name(name, f->path, f->depth) > CKPT_DCP_NAME_BYTES)
    return ckpt_losses_add(f->losses, err, "an object whose name is too long");
  const char *refused = NULL;
  f->own_class = NULL;
  if (!is_data(f, value, 0, &refused) || f->own_class != NULL) {
    const ckpt_object *given = value;
    CKPT_TRY(ckpt_dcp_carry(f, &value, err));
    if (value == given && refused != NULL) {
      CKPT_TRY(take_writable(f, &value, name, err));
      if (value == NULL && is_told(f, name)) return CKPT_OK;
      if (value == NULL) return ckpt_losses_add(f->losses, err, "object %.200s (%s)", name, refused);
      return ckpt_dcp_flattener_add(f, f->path, f->depth, value, err);
    }
    if (value != given && f->n_classes++ == 0)
      f->class_of =
          ckpt_arena_printf(&f->described->arena, "%.200s, %.200s", name, refused != NULL ? refused : f->own_class);
    if (value != given) CKPT_TRY_ALLOC(f->class_of, err);
  }
  return ckpt_dcp_flattener_add(f, f->path, f->depth, value, err);
}

/* Of the dict as it stands; else tensors are written by their names. Wrappers go, as they do from names. */
static ckpt_status add_tensor(flattener *f, const ckpt_object *leaf, ckpt_error *err) {
  uint32_t number = leaf->tensor < f->n_numbers ? f->numbers[leaf->tensor] : UINT32_MAX;
  if (number == UINT32_MAX) return CKPT_OK;
  ckpt_arena *arena = &f->described->arena;
  const ckpt_object *key = f->path[f->depth - 1], *written = ckpt_object_tensor(arena, number);
  CKPT_TRY_ALLOC(written, err);
  if (!f->described->is_stored && key->kind == CKPT_OBJECT_TEXT && strlen(key->text) == key->n) {
    const char *name = ckpt_name_unwrapped(key->text, arena);
    CKPT_TRY_ALLOC(name, err);
    if (name != key->text) CKPT_TRY_ALLOC(key = ckpt_object_text(arena, name, strlen(name)), err);
  }
  const ckpt_object *given = f->path[f->depth - 1];
  f->path[f->depth - 1] = key;
  ckpt_status status = ckpt_dcp_flattener_add(f, f->path, f->depth, written, err);
  f->path[f->depth - 1] = given;
  return status;
}

/* A tensor in an object that is written where it stands there, once under each of its names. */
static ckpt_status add_held(flattener *f, const ckpt_object *leaf, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  const uint32_t number = leaf->tensor < f->held.n_numbers ? f->held.numbers[leaf->tensor] : UINT32_MAX;
  if (number == UINT32_MAX || print_name(name, f->path, f->depth) > CKPT_DCP_NAME_BYTES) return CKPT_OK;
  ckpt_object_name *held = ckpt_object_tensors_at(&f->held, number, name);
  if (held == NULL || held->is_placed) return CKPT_OK;
  held->is_placed = true;
  const ckpt_object *written = ckpt_object_tensor(&f->described->arena, number);
  CKPT_TRY_ALLOC(written, err);
  return ckpt_dcp_flattener_add(f, f->path, f->depth, written, err);
}

/* ---- flattening -------------------------------------------------------------------------------------------------- */

static ckpt_status flatten(flattener *f, const ckpt_object *value, ckpt_error *err);

static ckpt_status flatten_child(flattener *f, const ckpt_object *key, const ckpt_object *value, ckpt_error *err) {
  if (f->depth == CKPT_DCP_MAX_KEYS)
    return ckpt_losses_add(f->losses, err, "what lies %d dicts deep", CKPT_DCP_MAX_KEYS);
  f->path[f->depth++] = key;
  ckpt_status status = flatten(f, value, err);
  f->depth--;
  return status;
}

/* What stands for a value: of a namespace that can be no item its attributes. */
static ckpt_status take_attributes(flattener *f, const ckpt_object **value, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  const ckpt_object *attributes = ckpt_torch_attributes(*value);
  if (attributes == NULL || (f->depth != 0 && !holds_tensor(f, attributes, f->depth))) return CKPT_OK;
  const char *class = ckpt_torch_namespace(*value);
  *value = attributes;
  if (print_name(name, f->path, f->depth) > CKPT_DCP_NAME_BYTES) return CKPT_OK;
  return ckpt_losses_add(f->losses, err, "%.200s as %s (tensors are in it: it is a dict)", name, class);
}

/* The text of a dict's key, as torch makes it: str(key); *key is NULL where there is none here, which is said by the
 * entry's place, as a tensor there is called. */
static ckpt_status take_key(flattener *f, const ckpt_object **key, uint64_t place, ckpt_error *err) {
  char text[CKPT_DCP_NAME_BYTES + 1];
  if ((*key)->kind == CKPT_OBJECT_TEXT) return CKPT_OK;
  const char *made = ckpt_object_key_text(text, *key);
  *key = made == NULL ? NULL : ckpt_object_text(&f->described->arena, made, strlen(made));
  if (made != NULL) {
    CKPT_TRY_ALLOC(*key, err);
    return CKPT_OK;
  }
  if (print_name(text, f->path, f->depth) > CKPT_DCP_NAME_BYTES) text[0] = '\0';
  return ckpt_losses_add(f->losses, err, "%.200s%skey%llu (its key is no text and no number)", text,
                         text[0] == '\0' ? "" : ".", (unsigned long long)place);
}

static ckpt_status flatten_dict(flattener *f, const ckpt_object *dict, ckpt_error *err) {
  for (uint64_t i = 0; i < dict->n; i++) {
    const ckpt_object *key = dict->items[2 * i];
    CKPT_TRY(take_key(f, &key, i, err));
    if (key != NULL) CKPT_TRY(flatten_child(f, key, dict->items[2 * i + 1], err));
  }
  return CKPT_OK;
}

/* torch looks for a list as one item where no part of it is a tensor or has parts: so is what is left of one, whose
 * pairs are those from n_before on. is_left: some of them stand for what is written. */
static ckpt_status settle_list(flattener *f, uint64_t n_before, bool is_left, ckpt_error *err) {
  const uint64_t n = f->n - n_before;
  ckpt_object *list = ckpt_object_new(&f->described->arena, CKPT_OBJECT_LIST, n, NULL);
  CKPT_TRY_ALLOC(list, err);
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *path = f->pairs[2 * (n_before + i)], *value = f->pairs[2 * (n_before + i) + 1];
    if (path->n != f->depth + 1 || value->kind == CKPT_OBJECT_TENSOR || ckpt_dcp_carried(f->described, value) != NULL)
      return CKPT_OK;
    list->items[i] = f->pairs[2 * (n_before + i) + 1];
  }
  f->n = n_before;
  f->n_items -= n;
  return is_left ? ckpt_dcp_flattener_add(f, f->path, f->depth, list, err) : CKPT_OK;
}

static ckpt_status flatten_list(flattener *f, const ckpt_object *list, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  const uint64_t n_first = f->n;
  bool is_left = false;
  if (list->kind == CKPT_OBJECT_TUPLE && print_name(name, f->path, f->depth) <= CKPT_DCP_NAME_BYTES)
    CKPT_TRY(
        ckpt_index_note(f->described, false, err, "%.200s, a tuple that holds tensors, is written as a list", name));
  for (uint64_t i = 0; i < list->n; i++) {
    const ckpt_object *key = ckpt_object_int(&f->described->arena, (int64_t)i), *none;
    const uint64_t n_before = f->n;
    CKPT_TRY_ALLOC(key, err);
    CKPT_TRY(flatten_child(f, key, list->items[i], err));
    is_left = is_left || f->n != n_before;
    if (f->n != n_before) continue;
    CKPT_TRY_ALLOC(none = ckpt_object_none(&f->described->arena), err); /* what is left out leaves no hole */
    CKPT_TRY(flatten_child(f, key, none, err));
  }
  return settle_list(f, n_first, is_left, err);
}

/* An optimizer's parameters are called as their tensors are, where these have names of ours; those that a folder has by
 * number stay so, for whoever loads that. What belongs to one whose states are left out stays behind with them: *value
 * is NULL. */
static ckpt_status take_optimizer(flattener *f, const ckpt_object **value, ckpt_error *err) {
  const ckpt_index *of = f->described->objects_of;
  ckpt_object *named;
  if (f->leaves_states && f->n_optimizers == 0) {
    f->n_optimizers++;
    *value = NULL;
    return CKPT_OK;
  }
  if (f->described->is_stored || f->n_optimizers++ >= MAX_OPTIMIZERS) return CKPT_OK;
  const bool is_folder = of != NULL && strcmp(of->format, CKPT_DCP_FORMAT) == 0;
  CKPT_TRY((is_folder ? ckpt_torch_rename_params : ckpt_torch_name_params)(&named, *value, f->described,
                                                                           &f->described->arena, err));
  *value = named;
  return CKPT_OK;
}

/* Recursion ends with the path's room, time with the steps: a dict that several share is written for each. */
static ckpt_status flatten(flattener *f, const ckpt_object *value, ckpt_error *err) {
  if (value->kind == CKPT_OBJECT_TENSOR) {
    f->n_attributes += value->extras != 0;
    return f->numbers == NULL ? add_held(f, value, err) : add_tensor(f, value, err);
  }
  const bool is_whole = value->kind == CKPT_OBJECT_TUPLE || value->kind == CKPT_OBJECT_FOREIGN;
  if (is_whole && f->numbers != NULL && f->depth != 0 && holds_tensor(f, value, f->depth)) {
    const ckpt_object *given = value;
    CKPT_TRY(ckpt_dcp_carry(f, &value, err));
    if (value != given) return ckpt_dcp_flattener_add(f, f->path, f->depth, value, err);
  }
  CKPT_TRY(take_attributes(f, &value, err));
  if (!is_entered(f, value, f->depth)) return add_item(f, value, err);
  f->n_steps += 1 + value->n;
  if (f->n_steps > MAX_STEPS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "its objects have more than %d entries", MAX_STEPS);
  const uint64_t *item = f->roots == NULL ? NULL : ckpt_node_map_at(f->roots, value);
  f->n_unfolded += item != NULL && *item != 0;
  if (f->numbers != NULL && is_optimizer(f, value)) CKPT_TRY(take_optimizer(f, &value, err));
  if (value == NULL) return CKPT_OK;
  return value->kind == CKPT_OBJECT_DICT ? flatten_dict(f, value, err) : flatten_list(f, value, err);
}

static ckpt_status say_attributes(flattener *f, ckpt_error *err) {
  if (f->n_attributes == 0) return CKPT_OK;
  return ckpt_index_note(f->described, false, err, "attributes of %llu tensor%s are left out, as PyTorch leaves them",
                         (unsigned long long)f->n_attributes, ckpt_plural(f->n_attributes));
}

ckpt_status ckpt_dcp_flatten(flattener *f, const ckpt_object *root, ckpt_error *err) {
  CKPT_TRY(flatten(f, root, err));
  return say_attributes(f, err);
}

/* ---- objects below containers that are made ---------------------------------------------------------------------- */

static const ckpt_object *text(flattener *f, const char *key) {
  return ckpt_object_text(&f->described->arena, key, strlen(key));
}

/* A value below a key of its own. What belongs to an optimizer whose states are left out stays behind with them. */
static ckpt_status add_part(flattener *f, const char *key, const ckpt_object *value, ckpt_error *err) {
  f->n_attributes += value->kind == CKPT_OBJECT_TENSOR && value->extras != 0;
  if (value->kind == CKPT_OBJECT_TENSOR || (strcmp(key, "optimizer") == 0 && f->leaves_states)) return CKPT_OK;
  const ckpt_object *name = text(f, key);
  CKPT_TRY_ALLOC(name, err);
  if (is_optimizer(f, value) && f->n_optimizers++ < MAX_OPTIMIZERS) {
    ckpt_object *named;
    CKPT_TRY(ckpt_torch_name_params(&named, value, f->described, &f->described->arena, err));
    value = named;
  }
  return flatten_child(f, name, value, err);
}

/* Whether a value under this key would stand where the model's container does, which a dict is part of. */
static bool is_in_the_way(const flattener *f, const ckpt_object *key, const ckpt_object *value) {
  bool has_model = false;
  if (strcmp(key->text, "model") != 0 || (value->kind == CKPT_OBJECT_DICT && value->n != 0)) return false;
  for (uint32_t i = 0; i < f->described->n_tensors && !has_model; i++)
    has_model = ckpt_role_is_model((ckpt_role)f->described->tensors[i].role);
  return has_model;
}

/* The dict that torch saved: all its parts but tensors. */
static ckpt_status add_own(flattener *f, const ckpt_object *root, ckpt_error *err) {
  const ckpt_object *parts;
  if (root->kind != CKPT_OBJECT_DICT) {
    if (root->kind != CKPT_OBJECT_TENSOR)
      CKPT_TRY(ckpt_index_note(f->described, false, err,
                               "what was saved is no dict, as DCP has them: what is no tensor in it is called object"));
    return add_part(f, "object", root, err);
  }
  if (is_optimizer(f, root)) return add_part(f, "optimizer", root, err);
  CKPT_TRY(ckpt_index_parts(&parts, f->described, err));
  if (parts == NULL) parts = root;
  bool has_optimizer = false;
  for (uint64_t i = 0; i < parts->n; i++) {
    const ckpt_object *key = parts->items[2 * i], *value = parts->items[2 * i + 1];
    bool is_first = is_optimizer(f, value) && !has_optimizer;
    has_optimizer = has_optimizer || is_first;
    CKPT_TRY(take_key(f, &key, i, err));
    if (key != NULL && is_in_the_way(f, key, value)) {
      if (value->kind != CKPT_OBJECT_NONE && value->kind != CKPT_OBJECT_DICT && value->kind != CKPT_OBJECT_TENSOR)
        CKPT_TRY(ckpt_losses_add(f->losses, err, "%s (something else has that name)", key->text));
      continue;
    }
    if (key != NULL) CKPT_TRY(add_part(f, is_first ? "optimizer" : key->text, value, err));
  }
  return CKPT_OK;
}

/* An object below the root, where the model and its optimizer have their containers. */
static ckpt_status add_beside(flattener *f, const char *key, const ckpt_object *value, ckpt_error *err) {
  if (strcmp(key, "model") == 0 || strcmp(key, "optimizer") == 0)
    return ckpt_losses_add(f->losses, err, "%s (something else has that name)", key);
  return add_part(f, key, value, err);
}

/* Numbers and texts stand at the root, as torch's files have them. */
static ckpt_status add_trainer(flattener *f, const ckpt_object *trainer, ckpt_error *err) {
  for (uint64_t i = 0; i < trainer->n; i++)
    if (trainer->items[2 * i]->kind == CKPT_OBJECT_TEXT)
      CKPT_TRY(add_beside(f, trainer->items[2 * i]->text, trainer->items[2 * i + 1], err));
  return CKPT_OK;
}

/* What every format knows. */
static ckpt_status add_known(flattener *f, const ckpt_object *objects, ckpt_error *err) {
  for (uint64_t i = 0; i < objects->n; i++) {
    const ckpt_object *key = objects->items[2 * i], *value = objects->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT) continue;
    if (strcmp(key->text, CKPT_STATE_TRAINER) == 0 && value->kind == CKPT_OBJECT_DICT) {
      CKPT_TRY(add_trainer(f, value, err));
    } else if (strcmp(key->text, CKPT_STATE_PARAM_GROUPS) != 0) {
      CKPT_TRY(add_beside(f, ckpt_torch_state_written(key->text), value, err));
    } else {
      ckpt_object *optimizer = ckpt_object_new(&f->described->arena, CKPT_OBJECT_DICT, 1, NULL);
      CKPT_TRY_ALLOC(optimizer, err);
      optimizer->items[0] = (ckpt_object *)(uintptr_t)text(f, "param_groups");
      optimizer->items[1] = (ckpt_object *)(uintptr_t)value;
      CKPT_TRY_ALLOC(optimizer->items[0], err);
      CKPT_TRY(add_part(f, "optimizer", optimizer, err));
    }
  }
  return CKPT_OK;
}

ckpt_status ckpt_dcp_flatten_objects(flattener *f, const ckpt_object *objects, ckpt_error *err) {
  const ckpt_object *root = f->described->whole;
  if (objects == NULL) return CKPT_OK;
  CKPT_TRY(root != NULL ? add_own(f, root, err) : add_known(f, objects, err));
  return say_attributes(f, err);
}

/* ---- one item ---------------------------------------------------------------------------------------------------- */

static void print_pickle(const ckpt_object *value, ckpt_stream *out) {
  ckpt_pickle_writer w = ckpt_pickle_start(out);
  ckpt_pickle_put_object(&w, value, NULL, NULL);
  ckpt_pickle_stop(&w);
}

void ckpt_dcp_print_item(const ckpt_layout *layout, const void *value, ckpt_stream *out) {
  enum { N_RECORDS = 3 };
  (void)layout;
  ckpt_stream pickle;
  ckpt_stream_checksum(&pickle, out->err);
  print_pickle(value, &pickle);
  ckpt_zip_record records[N_RECORDS] = {
      {"archive/data.pkl", pickle.n_bytes, 0, pickle.crc32},
      {"archive/byteorder", 6, 0, ckpt_zip_crc32("little", 6)},
      {"archive/version", 2, 0, ckpt_zip_crc32("3\n", 2)},
  };
  uint64_t directory = ckpt_zip_place(records, N_RECORDS);
  if (pickle.status != CKPT_OK) ckpt_stream_fail(out, pickle.status);
  ckpt_zip_put_local(out, &records[0]);
  print_pickle(value, out);
  ckpt_zip_put_descriptor(out, &records[0]);
  ckpt_zip_put_record(out, &records[1], "little");
  ckpt_zip_put_record(out, &records[2], "3\n");
  ckpt_zip_put_end(out, records, N_RECORDS, directory);
}
