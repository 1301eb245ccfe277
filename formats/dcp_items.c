/* dcp_items.c - what a checkpoint holds besides tensors, as the items of bytes that it is written in.
 *
 * torch flattens the dict that it saves (torch/distributed/checkpoint/_traverse.py): mappings are entered, and lists
 * that hold mappings, tensors or such lists; every other value is an item, named by the keys that lead to it. Here the
 * same is done to the dict that was read, with its optimizer below "optimizer", where our tensors are; or, of another
 * format, to the objects that every format knows (object.h). An item is an archive of torch.save that
 * torch.load(weights_only=True) takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp_write.h"
#include "libckpt/codec/pickle_object.h"
#include "libckpt/codec/torch_params.h"
#include "libckpt/codec/torch_safe.h"
#include "libckpt/codec/torch_state.h"
#include "libckpt/codec/zip_write.h"
#include "libckpt/error.h"
#include "libckpt/grow.h"

enum { MAX_STEPS = 1 << 24 };

typedef struct flattener {
  ckpt_index *described;
  ckpt_losses *losses;
  ckpt_arena *arena;
  ckpt_object **pairs; /* path, value */
  uint32_t n, capacity;
  bool leaves_states;                         /* the optimizer had tensors, and none is written */
  const ckpt_object *path[CKPT_DCP_MAX_KEYS]; /* to the value at hand */
  uint32_t depth;
  uint64_t n_steps; /* values looked at: a graph may have more paths than nodes */
} flattener;

/* ---- flattening -------------------------------------------------------------------------------------------------- */

/* Whether torch takes a value apart. */
static bool is_entered(flattener *f, const ckpt_object *value, uint32_t depth) {
  if (value->kind == CKPT_OBJECT_DICT) return true;
  if (value->kind != CKPT_OBJECT_LIST || depth >= CKPT_DCP_MAX_KEYS || f->n_steps > MAX_STEPS) return false;
  f->n_steps += 1 + value->n;
  for (uint64_t i = 0; i < value->n; i++)
    if (value->items[i]->kind == CKPT_OBJECT_TENSOR || is_entered(f, value->items[i], depth + 1)) return true;
  return false;
}

/* The name of an item: its keys joined with dots. False where it is too long. */
static bool print_name(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_object *const *keys, uint64_t n) {
  size_t at = 0;
  for (uint64_t i = 0; i < n; i++) {
    char number[32];
    bool is_text = keys[i]->kind == CKPT_OBJECT_TEXT;
    if (!is_text) snprintf(number, sizeof number, "%lld", (long long)keys[i]->integer);
    const char *key = is_text ? keys[i]->text : number;
    size_t n_key = is_text ? (size_t)keys[i]->n : strlen(number);
    if (n_key + 1 > CKPT_DCP_NAME_BYTES - at || strlen(key) != n_key) return false;
    if (i != 0) text[at++] = '.';
    memcpy(text + at, key, n_key);
    at += n_key;
  }
  text[at] = '\0';
  return true;
}

size_t ckpt_dcp_item_name(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_object *path) {
  (void)print_name(text, (const ckpt_object *const *)path->items, path->n);
  return strlen(text);
}

/* Whether torch.load(weights_only=True) takes a value with all that it holds; *why not. */
static bool is_data(flattener *f, const ckpt_object *value, uint32_t depth, const char **why) {
  uint64_t n = ckpt_object_n_children(value);
  if (value->kind == CKPT_OBJECT_TENSOR)
    *why = "a tensor in a tuple";
  else if (!ckpt_torch_is_safe(value))
    *why = ckpt_torch_class(value);
  else if (depth == CKPT_DCP_MAX_KEYS || (f->n_steps += 1 + n) > MAX_STEPS)
    *why = "too many values, or too deep";
  for (uint64_t i = 0; i < n && *why == NULL; i++) (void)is_data(f, value->items[i], depth + 1, why);
  return *why == NULL;
}

static ckpt_status add_item(flattener *f, const ckpt_object *value, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  if (!print_name(name, f->path, f->depth)) return ckpt_losses_add(f->losses, err, "an object whose name is too long");
  const char *refused = NULL;
  ckpt_object *path = ckpt_object_new(f->arena, CKPT_OBJECT_TUPLE, f->depth, NULL);
  CKPT_TRY_ALLOC(path, err);
  memcpy(path->items, f->path, f->depth * sizeof *f->path);
  if (!is_data(f, value, 0, &refused)) return ckpt_losses_add(f->losses, err, "object %.200s (%s)", name, refused);
  CKPT_TRY(ckpt_grow(&f->pairs, f->n, &f->capacity, 2 * sizeof *f->pairs, err));
  f->pairs[2 * f->n] = path;
  f->pairs[2 * f->n++ + 1] = (ckpt_object *)(uintptr_t)value;
  return CKPT_OK;
}

static ckpt_status flatten(flattener *f, const ckpt_object *value, ckpt_error *err);

static ckpt_status flatten_child(flattener *f, const ckpt_object *key, const ckpt_object *value, ckpt_error *err) {
  if (f->depth == CKPT_DCP_MAX_KEYS)
    return ckpt_losses_add(f->losses, err, "what lies %d dicts deep", CKPT_DCP_MAX_KEYS);
  f->path[f->depth++] = key;
  ckpt_status status = flatten(f, value, err);
  f->depth--;
  return status;
}

/* Recursion ends with the path's room, time with the steps: a dict that several share is written for each. */
static ckpt_status flatten(flattener *f, const ckpt_object *value, ckpt_error *err) {
  if (value->kind == CKPT_OBJECT_TENSOR) return CKPT_OK; /* written by its name */
  if (!is_entered(f, value, f->depth)) return add_item(f, value, err);
  f->n_steps += 1 + value->n;
  if (f->n_steps > MAX_STEPS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "its objects have more than %d entries", MAX_STEPS);
  for (uint64_t i = 0; i < value->n; i++) {
    const ckpt_object *key, *child = value->items[i];
    if (value->kind == CKPT_OBJECT_DICT) {
      key = value->items[2 * i];
      child = value->items[2 * i + 1];
      if (key->kind == CKPT_OBJECT_INT) { /* torch: str(key) */
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)key->integer);
        key = ckpt_object_text(f->arena, number, strlen(number));
      }
      if (key != NULL && key->kind != CKPT_OBJECT_TEXT) {
        CKPT_TRY(ckpt_losses_add(f->losses, err, "an entry whose key is no text"));
        continue;
      }
    } else {
      key = ckpt_object_int(f->arena, (int64_t)i);
    }
    CKPT_TRY_ALLOC(key, err);
    CKPT_TRY(flatten_child(f, key, child, err));
  }
  return CKPT_OK;
}

/* ---- where it begins --------------------------------------------------------------------------------------------- */

static const ckpt_object *text(flattener *f, const char *key) { return ckpt_object_text(f->arena, key, strlen(key)); }

/* An optimizer's state, or a flattened one. */
static bool is_optimizer(flattener *f, const ckpt_object *value) {
  static const char groups[] = "param_groups", flat[] = "param_groups.";
  if (value->kind != CKPT_OBJECT_DICT || (f->n_steps += 1 + value->n) > MAX_STEPS) return false;
  for (uint64_t i = 0; i < value->n; i++) {
    const ckpt_object *key = value->items[2 * i];
    if (key->kind == CKPT_OBJECT_TEXT &&
        (strcmp(key->text, groups) == 0 || strncmp(key->text, flat, strlen(flat)) == 0))
      return true;
  }
  return false;
}

/* A value below a key of its own. What belongs to an optimizer whose states are left out stays behind with them. */
static ckpt_status add_part(flattener *f, const char *key, const ckpt_object *value, ckpt_error *err) {
  if (value->kind == CKPT_OBJECT_TENSOR || (strcmp(key, "optimizer") == 0 && f->leaves_states)) return CKPT_OK;
  const ckpt_object *name = text(f, key);
  CKPT_TRY_ALLOC(name, err);
  if (is_optimizer(f, value)) {
    ckpt_object *named;
    CKPT_TRY(ckpt_torch_name_params(&named, value, f->described, f->arena, err));
    value = named;
  }
  return flatten_child(f, name, value, err);
}

/* The dict that torch saved: all its parts but tensors. */
static ckpt_status add_own(flattener *f, const ckpt_object *root, ckpt_error *err) {
  if (root->kind != CKPT_OBJECT_DICT) return add_part(f, "object", root, err);
  if (is_optimizer(f, root)) return add_part(f, "optimizer", root, err);
  if (root->n == 1 && root->items[1]->kind == CKPT_OBJECT_DICT && root->items[0]->kind == CKPT_OBJECT_TEXT &&
      strcmp(root->items[0]->text, "model") != 0 && !is_optimizer(f, root->items[1]))
    root = root->items[1]; /* {"app": {"model": ...}} */
  bool has_optimizer = false;
  for (uint64_t i = 0; i < root->n; i++) {
    const ckpt_object *key = root->items[2 * i], *value = root->items[2 * i + 1];
    bool is_first = is_optimizer(f, value) && !has_optimizer;
    has_optimizer = has_optimizer || is_first;
    if (key->kind != CKPT_OBJECT_TEXT)
      CKPT_TRY(ckpt_losses_add(f->losses, err, "an entry whose key is no text"));
    else
      CKPT_TRY(add_part(f, is_first ? "optimizer" : key->text, value, err));
  }
  return CKPT_OK;
}

/* What every format knows. */
static ckpt_status add_known(flattener *f, const ckpt_object *objects, ckpt_error *err) {
  for (uint64_t i = 0; i < objects->n; i++) {
    const ckpt_object *key = objects->items[2 * i], *value = objects->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT) continue;
    if (strcmp(key->text, CKPT_STATE_PARAM_GROUPS) != 0) {
      CKPT_TRY(add_part(f, key->text, value, err));
      continue;
    }
    ckpt_object *optimizer = ckpt_object_new(f->arena, CKPT_OBJECT_DICT, 1, NULL);
    CKPT_TRY_ALLOC(optimizer, err);
    optimizer->items[0] = (ckpt_object *)(uintptr_t)text(f, "param_groups");
    optimizer->items[1] = (ckpt_object *)(uintptr_t)value;
    CKPT_TRY_ALLOC(optimizer->items[0], err);
    CKPT_TRY(add_part(f, "optimizer", optimizer, err));
  }
  return CKPT_OK;
}

static bool is_state(const ckpt_tensor *tensor) {
  return strncmp(tensor->name, CKPT_STATE_PREFIX, sizeof CKPT_STATE_PREFIX - 1) == 0 &&
         tensor->role != CKPT_ROLE_PARAMETER;
}

static bool has_states(const ckpt_index *index) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (is_state(&index->tensors[i])) return true;
  return false;
}

ckpt_status ckpt_dcp_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  flattener f = {.described = described, .losses = losses, .arena = &described->arena};
  if (described->objects == NULL) return CKPT_OK;
  f.leaves_states = described->objects_of != NULL && has_states(described->objects_of) && !has_states(described);
  const ckpt_object *root = ckpt_object_get(described->objects, CKPT_TORCH_OBJECT);
  ckpt_status status = root != NULL ? add_own(&f, root, err) : add_known(&f, described->objects, err);
  described->objects = NULL;
  if (status == CKPT_OK && f.n != 0) {
    ckpt_object *items = described->objects = ckpt_object_new(f.arena, CKPT_OBJECT_DICT, f.n, NULL);
    if (items == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (items != NULL) memcpy(items->items, f.pairs, 2 * (size_t)f.n * sizeof *f.pairs);
  }
  free(f.pairs);
  return status;
}

/* ---- one item ---------------------------------------------------------------------------------------------------- */

static void print_pickle(const ckpt_object *value, ckpt_out *out) {
  ckpt_pickle_writer w = ckpt_pickle_start(out);
  ckpt_pickle_put_object(&w, value, NULL, NULL);
  ckpt_pickle_stop(&w);
}

void ckpt_dcp_print_item(const ckpt_layout *layout, const void *value, ckpt_out *out) {
  enum { N_RECORDS = 3 };
  (void)layout;
  ckpt_out pickle;
  ckpt_out_checksum(&pickle, out->err);
  print_pickle(value, &pickle);
  ckpt_zip_record records[N_RECORDS] = {
      {"archive/data.pkl", pickle.n_bytes, 0, pickle.crc32},
      {"archive/byteorder", 6, 0, ckpt_zip_crc32("little", 6)},
      {"archive/version", 2, 0, ckpt_zip_crc32("3\n", 2)},
  };
  uint64_t directory = ckpt_zip_place(records, N_RECORDS);
  if (pickle.status != CKPT_OK) ckpt_out_fail(out, pickle.status);
  ckpt_zip_put_local(out, &records[0]);
  print_pickle(value, out);
  ckpt_zip_put_descriptor(out, &records[0]);
  ckpt_zip_put_record(out, &records[1], "little");
  ckpt_zip_put_record(out, &records[2], "3\n");
  ckpt_zip_put_end(out, records, N_RECORDS, directory);
}
