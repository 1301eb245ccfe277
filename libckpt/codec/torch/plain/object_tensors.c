/* object_tensors.c - see object_tensors.h. A graph has more paths than nodes: depth is bounded, and so are the steps in
 * what was gone through before. */
#include "libckpt/codec/torch/plain/object_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/node_map.h"
#include "libckpt/codec/expected_names.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/state/state.h"

enum { MAX_DEPTH = 64, MAX_NAME_BYTES = 4096, MAX_STEPS = 1 << 20 };

typedef struct walk {
  ckpt_object_tensors *out;
  const ckpt_index *described;
  const uint32_t *numbers; /* of all leaves */
  uint32_t n_numbers, object, n_steps;
  ckpt_node_map seen; /* containers: how often */
  char path[MAX_NAME_BYTES + 1];
} walk;

/* Objects that are written elsewhere, or under another key, or have no tensors. */
static bool is_own(const char *key) {
  static const char *const keys[] = {CKPT_STATE_PARAM_GROUPS, CKPT_STATE_LOSS_SCALER, CKPT_STATE_TRAINER};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

static ckpt_status take_leaf(walk *w, const ckpt_object *leaf, ckpt_error *err) {
  const uint32_t number = leaf->tensor < w->n_numbers ? w->numbers[leaf->tensor] : UINT32_MAX;
  if (number == UINT32_MAX) return CKPT_OK;
  const ckpt_tensor *tensor = &w->described->tensors[number];
  const char *name = tensor->name;
  if (tensor->role != CKPT_ROLE_OTHER) return CKPT_OK;
  for (const char *const *alias = tensor->aliases; name != NULL && strcmp(name, w->path) != 0; w->n_steps++)
    name = alias == NULL ? NULL : *alias++;
  if (name == NULL) return CKPT_OK;
  ckpt_object_tensors *out = w->out;
  CKPT_TRY(ckpt_grow(&out->names, out->n, &out->capacity, sizeof *out->names, err));
  out->names[out->n++] = (ckpt_object_name){.name = name, .tensor = number, .object = w->object};
  out->numbers[leaf->tensor] = number;
  return CKPT_OK;
}

/* The length of a path with one more key; 0: it is too long, or no text. */
static size_t extend(walk *w, size_t n, const ckpt_object *key, uint64_t number) {
  char digits[24];
  const char *text = digits;
  size_t n_text;
  if (key != NULL && key->kind == CKPT_OBJECT_TEXT) {
    text = key->text;
    n_text = (size_t)key->n;
    if (n_text > MAX_NAME_BYTES || strlen(text) != n_text) return 0;
  } else if (key != NULL && key->kind != CKPT_OBJECT_INT) {
    return 0;
  } else if (key != NULL) {
    n_text = (size_t)snprintf(digits, sizeof digits, "%lld", (long long)key->integer);
  } else {
    n_text = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
  }
  if (n + 1 + n_text > MAX_NAME_BYTES) return 0;
  w->path[n] = '.';
  memcpy(w->path + n + 1, text, n_text);
  w->path[n + 1 + n_text] = '\0';
  return n + 1 + n_text;
}

/* A value at a path of n bytes. */
static ckpt_status take_value(walk *w, const ckpt_object *value, size_t n, uint32_t depth, ckpt_error *err) {
  if (value->kind == CKPT_OBJECT_TENSOR) return take_leaf(w, value, err);
  value = ckpt_torch_held_by(value);
  const bool is_dict = value->kind == CKPT_OBJECT_DICT;
  if ((!is_dict && value->kind != CKPT_OBJECT_LIST && value->kind != CKPT_OBJECT_TUPLE) || depth == MAX_DEPTH)
    return CKPT_OK;
  uint64_t *n_before = ckpt_node_map_at(&w->seen, value);
  CKPT_TRY_ALLOC(n_before, err);
  const uint32_t n_of_item = (*n_before)++ != 0;
  for (uint64_t i = 0; i < value->n && w->n_steps < MAX_STEPS; i++, w->n_steps += n_of_item) {
    const ckpt_object *child = value->items[is_dict ? 2 * i + 1 : i];
    if (child->kind < CKPT_OBJECT_LIST) continue;
    const size_t n_child = extend(w, n, is_dict ? value->items[2 * i] : NULL, i);
    if (n_child != 0) CKPT_TRY(take_value(w, child, n_child, depth + 1, err));
  }
  return CKPT_OK;
}

static int compare_names(const void *x, const void *y) {
  const ckpt_object_name *a = x, *b = y;
  if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
  return strcmp(a->name, b->name);
}

static ckpt_status take_objects(walk *w, ckpt_error *err) {
  const ckpt_object *objects = w->described->objects;
  if (objects->n > UINT32_MAX) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "too many objects");
  for (uint64_t i = 0; i < objects->n; i++) {
    const ckpt_object *key = objects->items[2 * i];
    if (objects->items[2 * i + 1] == w->described->whole) continue;
    if (key->kind != CKPT_OBJECT_TEXT || key->n > MAX_NAME_BYTES || strlen(key->text) != key->n || is_own(key->text))
      continue;
    const char *name = ckpt_torch_state_written(key->text);
    const size_t n = strlen(name);
    memcpy(w->path, name, n + 1);
    w->object = (uint32_t)i;
    CKPT_TRY(take_value(w, objects->items[2 * i + 1], n, 0, err));
  }
  if (w->n_steps >= MAX_STEPS) w->out->n = 0;
  for (uint32_t i = 0; i < w->n_numbers && w->out->n == 0; i++) w->out->numbers[i] = UINT32_MAX;
  if (w->out->n != 0) qsort(w->out->names, w->out->n, sizeof *w->out->names, compare_names);
  return CKPT_OK;
}

ckpt_status ckpt_object_tensors_find(ckpt_object_tensors *out, const ckpt_index *described, ckpt_error *err) {
  uint32_t *numbers = NULL;
  walk w = {.out = out, .described = described};
  if (described->objects == NULL || described->objects_of == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_described_numbers(&numbers, &w.n_numbers, described, true, err));
  w.numbers = numbers;
  ckpt_status status = CKPT_OK;
  out->n_numbers = w.n_numbers;
  out->numbers = reallocarray(NULL, (size_t)w.n_numbers + 1, sizeof *out->numbers);
  if (out->numbers == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < w.n_numbers && status == CKPT_OK; i++) out->numbers[i] = UINT32_MAX;
  if (status == CKPT_OK) status = take_objects(&w, err);
  ckpt_node_map_free(&w.seen);
  free(numbers);
  return status;
}

ckpt_object_name *ckpt_object_tensors_at(const ckpt_object_tensors *held, uint32_t tensor, const char *name) {
  const ckpt_object_name wanted = {.name = name, .tensor = tensor};
  if (held->n == 0) return NULL;
  return bsearch(&wanted, held->names, held->n, sizeof *held->names, compare_names);
}

void ckpt_object_tensors_free(ckpt_object_tensors *held) {
  free(held->names);
  free(held->numbers);
  *held = (ckpt_object_tensors){0};
}
