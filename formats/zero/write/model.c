/* model.c - the model file of a DeepSpeed checkpoint that is written, whose keys are those of
 * formats/zero/read/model.c.
 *
 * Everything in it besides DeepSpeed's own is client state (normalize.c). */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"
#include "libckpt/base/error.h"
#include "libckpt/base/node_map.h"

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* torch.Size([...]) */
static ckpt_status size_of(const ckpt_zero_run *run, const ckpt_tensor *tensor, ckpt_object **out, ckpt_error *err) {
  ckpt_object *shape = ckpt_object_new(run->arena, CKPT_OBJECT_TUPLE, tensor->rank, NULL);
  CKPT_TRY_ALLOC(shape, err);
  for (uint32_t i = 0; i < tensor->rank; i++)
    CKPT_TRY_ALLOC(shape->items[i] = ckpt_object_int(run->arena, (int64_t)tensor->shape[i]), err);
  CKPT_TRY(ckpt_zero_call(run, "torch.Size", 1, out, err));
  (*out)->items[0] = shape;
  return CKPT_OK;
}

ckpt_status ckpt_zero_set_names(const ckpt_zero_run *run, ckpt_object *dict, const ckpt_tensor *tensor,
                                const ckpt_object *leaf, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_set(run, dict, tensor->name, leaf, err));
  for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
    CKPT_TRY(ckpt_zero_set(run, dict, *alias, leaf, err));
  return CKPT_OK;
}

static ckpt_status set_module(const ckpt_zero_run *run, ckpt_object *root, ckpt_error *err) {
  const ckpt_index *index = run->index;
  ckpt_object *module, *buffers, *frozen, *fragments, *size;
  const uint64_t n_names = (uint64_t)index->n_tensors + index->n_aliases;
  CKPT_TRY(ckpt_zero_dict(run, n_names, &module, err));
  CKPT_TRY(ckpt_zero_list(run, n_names, &buffers, err));
  CKPT_TRY(ckpt_zero_dict(run, index->n_tensors, &frozen, err));
  CKPT_TRY(ckpt_zero_dict(run, n_names, &fragments, err));
  buffers->n = 0;
  for (uint32_t k = 0; k < index->n_tensors; k++) { /* in order of names: whatever was read gives the same bytes */
    const uint32_t i = index->by_name[k];
    const ckpt_tensor *tensor = &index->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role) || (run->is_trained[i] && !run->has_copy[i])) continue;
    const uint64_t first = module->n;
    CKPT_TRY(ckpt_zero_set_names(run, module, tensor, ckpt_zero_leaf(run, i), err));
    const bool is_buffer = !run->is_trained[i] && ckpt_tensor_is_buffer(tensor);
    for (uint64_t name = first; name < module->n && is_buffer; name++)
      buffers->items[buffers->n++] = module->items[2 * name];
    if (is_buffer || run->is_trained[i]) continue;
    CKPT_TRY(size_of(run, tensor, &size, err));
    CKPT_TRY(ckpt_zero_set(run, frozen, tensor->name, size, err));
    /* The same storage, under all names: an engine asks for the one that is first in its model. */
    CKPT_TRY(ckpt_zero_set_names(run, fragments, tensor, module->items[2 * first + 1], err));
  }
  CKPT_TRY(ckpt_zero_set(run, root, "module", module, err));
  CKPT_TRY(ckpt_zero_set(run, root, "buffer_names", buffers, err));
  if (frozen->n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_zero_set(run, root, "frozen_param_shapes", frozen, err));
  return run->stage == 3 ? CKPT_OK : ckpt_zero_set(run, root, "frozen_param_fragments", fragments, err);
}

static ckpt_status set_shapes(const ckpt_zero_run *run, ckpt_object *root, ckpt_error *err) {
  ckpt_object *shapes, *shared, *group, *size;
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, &shapes, err));
  CKPT_TRY(ckpt_zero_dict(run, (uint64_t)run->index->n_aliases + run->n_params, &shared, err));
  for (uint32_t g = 0; g < run->n_groups; g++) {
    CKPT_TRY(ckpt_zero_dict(run, run->groups[g].n, &group, err));
    shapes->items[g] = group;
    for (uint32_t i = 0; i < run->groups[g].n; i++) {
      const ckpt_zero_trained *param = &run->params[run->groups[g].first + i];
      const ckpt_tensor *tensor = &run->index->tensors[param->tensor];
      ckpt_object *name = ckpt_object_text(run->arena, param->name, strlen(param->name));
      CKPT_TRY(size_of(run, tensor, &size, err));
      CKPT_TRY(ckpt_zero_set(run, group, param->name, size, err));
      if (strcmp(tensor->name, param->name) != 0) CKPT_TRY(ckpt_zero_set(run, shared, tensor->name, name, err));
      for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
        if (strcmp(*alias, param->name) != 0) CKPT_TRY(ckpt_zero_set(run, shared, *alias, name, err));
    }
  }
  CKPT_TRY(ckpt_zero_set(run, root, "param_shapes", shapes, err));
  return ckpt_zero_set(run, root, "shared_params", shared, err);
}

/* ---- client state ------------------------------------------------------------------------------------------------ */

/* The keys of client_state's objects, sorted. */
typedef struct client_keys {
  const char **keys;
  uint64_t n;
} client_keys;

typedef struct prefix {
  const char *text;
  size_t n;
} prefix;

static int compare_keys(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int compare_prefix(const void *wanted, const void *key) {
  const prefix *p = wanted;
  const char *text = *(char *const *)key;
  const int order = strncmp(p->text, text, p->n);
  return order != 0 ? order : text[p->n] == '\0' ? 0 : -1;
}

static ckpt_status list_keys(const ckpt_zero_run *run, client_keys *out, ckpt_error *err) {
  const ckpt_object *objects = run->index->objects;
  *out = (client_keys){.n = objects == NULL ? 0 : objects->n};
  CKPT_TRY_ALLOC(out->keys = ckpt_arena_array(run->arena, out->n + 1, sizeof *out->keys), err);
  for (uint64_t i = 0; i < out->n; i++) {
    const char *key = objects->items[2 * i]->text, *client = ckpt_zero_client_key(key);
    out->keys[i] = client != NULL ? client : key;
  }
  qsort(out->keys, out->n, sizeof *out->keys, compare_keys);
  return CKPT_OK;
}

/* Whether a name is a place in one of the objects. */
static bool is_within(const client_keys *keys, const char *name) {
  for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
    if (bsearch(&(prefix){name, (size_t)(dot - name)}, keys->keys, keys->n, sizeof *keys->keys, compare_prefix) != NULL)
      return true;
  return false;
}

/* Tensors that are no model's and no optimizer's, under each name; placed: by tensor, the leaves of those that objects
 * hold, which stand there by the names that are places in them. */
static ckpt_status set_others(const ckpt_zero_run *run, ckpt_object *root, const ckpt_object **placed,
                              ckpt_error *err) {
  client_keys keys;
  size_t n;
  CKPT_TRY(list_keys(run, &keys, err));
  for (uint32_t k = 0; k < run->index->n_tensors; k++) {
    const uint32_t i = run->index->by_name[k];
    const ckpt_tensor *tensor = &run->index->tensors[i];
    if (ckpt_role_is_model((ckpt_role)tensor->role) || ckpt_state_parameter(tensor->name, &n) != NULL) continue;
    const ckpt_object *leaf = placed[i] != NULL ? placed[i] : ckpt_zero_leaf(run, i);
    if (placed[i] == NULL || !is_within(&keys, tensor->name))
      CKPT_TRY(ckpt_zero_set(run, root, tensor->name, leaf, err));
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      if (placed[i] == NULL || !is_within(&keys, *alias)) CKPT_TRY(ckpt_zero_set(run, root, *alias, leaf, err));
  }
  return CKPT_OK;
}

/* Keeps the leaves of a plain graph. */
static ckpt_status mark(const ckpt_zero_run *run, const ckpt_object *node, const ckpt_object **placed,
                        ckpt_node_map *seen, ckpt_error *err) {
  if (node->kind == CKPT_OBJECT_TENSOR) {
    const uint32_t number = node->tensor < run->n_numbers ? run->numbers[node->tensor] : UINT32_MAX;
    if (number < run->index->n_tensors) placed[number] = node;
  }
  if (node->kind < CKPT_OBJECT_LIST || node->kind == CKPT_OBJECT_TENSOR) return CKPT_OK;
  uint64_t *known = ckpt_node_map_at(seen, node);
  CKPT_TRY_ALLOC(known, err);
  if (*known != 0) return CKPT_OK;
  *known = 1;
  for (uint64_t i = 0; i < ckpt_object_n_children(node); i++)
    if (node->items[i] != NULL) CKPT_TRY(mark(run, node->items[i], placed, seen, err));
  return CKPT_OK;
}

/* Numbers and texts, which the next reader finds before all objects; the word for bf16 is that of the engine. */
static ckpt_status set_trainer(const ckpt_zero_run *run, ckpt_object *root, ckpt_error *err) {
  const ckpt_object *trainer = ckpt_object_get(run->index->objects, CKPT_STATE_TRAINER);
  if (trainer == NULL || trainer->kind != CKPT_OBJECT_DICT || trainer->n == 0) return CKPT_OK;
  const uint64_t first = root->n;
  memcpy(&root->items[2 * first], trainer->items, 2 * (size_t)trainer->n * sizeof *root->items);
  root->n += trainer->n;
  for (uint64_t i = first; i < root->n && run->engine != CKPT_ENGINE_SAID; i++) {
    const ckpt_object *key = root->items[2 * i];
    if (key->kind != CKPT_OBJECT_TEXT || strcmp(key->text, CKPT_TRAINER_BF16) != 0) continue;
    root->items[2 * i + 1] = ckpt_object_bool(run->arena, ckpt_zero_is_bf16(run));
    CKPT_TRY_ALLOC(root->items[2 * i + 1], err);
  }
  return CKPT_OK;
}

static ckpt_status set_client(const ckpt_zero_run *run, ckpt_object *root, const ckpt_object **placed,
                              ckpt_error *err) {
  const ckpt_object *objects = run->index->objects, *trainer = ckpt_object_get(objects, CKPT_STATE_TRAINER);
  ckpt_node_map seen = {0};
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; objects != NULL && i < objects->n && status == CKPT_OK; i++) {
    const char *key = objects->items[2 * i]->text;
    const ckpt_object *value = objects->items[2 * i + 1];
    bool is_set = strcmp(key, CKPT_STATE_PARAM_GROUPS) == 0 || strcmp(key, CKPT_STATE_SCHEDULER) == 0 ||
                  (value == trainer && value->kind == CKPT_OBJECT_DICT) || strcmp(key, CKPT_STATE_LOSS_SCALER) == 0;
    if (is_set) continue;
    if (ckpt_zero_is_own(key, strlen(key)) && strcmp(key, CKPT_ZERO_RULES) != 0) continue;
    if (ckpt_zero_client_key(key) != NULL) key = ckpt_zero_client_key(key);
    status = ckpt_zero_set(run, root, key, value, err);
    if (status == CKPT_OK) status = mark(run, value, placed, &seen, err);
  }
  ckpt_node_map_free(&seen);
  return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The step of all groups; 0 where they have none, or not one. */
static int64_t step_of_groups(const ckpt_zero_run *run) {
  int64_t step = -1;
  for (uint32_t g = 0; g < run->n_groups; g++) {
    const ckpt_zero_group *group = &run->groups[g];
    const int64_t own = group->has_step ? (int64_t)group->step : group->is_number ? group->number : 0;
    if (step >= 0 && own != step) return 0;
    step = own;
  }
  return step < 0 ? 0 : step;
}

int64_t ckpt_zero_step_said(const ckpt_zero_run *run) {
  const ckpt_object *trainer = ckpt_object_get(run->index->objects, CKPT_STATE_TRAINER);
  const int64_t said = ckpt_zero_number(ckpt_object_get(trainer, "global_steps"));
  return said >= 0 ? said : run->index->step >= 0 ? run->index->step : step_of_groups(run);
}

/* Whether an object or a tensor of client state has a key, which comes over DeepSpeed's own there, too. */
static bool is_client(const ckpt_zero_run *run, const char *key) {
  const ckpt_tensor *tensor = ckpt_index_find(run->index, key);
  return ckpt_object_get(run->index->objects, key) != NULL ||
         (tensor != NULL && !ckpt_role_is_model((ckpt_role)tensor->role));
}

/* What DeepSpeed asks for, where the input did not say it. */
static ckpt_status set_counts(const ckpt_zero_run *run, ckpt_object *root, ckpt_error *err) {
  const int64_t step = ckpt_zero_step_said(run);
  const struct {
    const char *key;
    int64_t value;
  } counts[] = {{"global_steps", step}, {"skipped_steps", 0}, {"dp_world_size", run->world}, {"mp_world_size", 1}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    if (ckpt_object_get(root, counts[i].key) != NULL || is_client(run, counts[i].key)) continue;
    CKPT_TRY(ckpt_zero_set(run, root, counts[i].key, ckpt_object_int(run->arena, counts[i].value), err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_model(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err) {
  enum { OWN_KEYS = 16 };
  const ckpt_object *objects = run->index->objects, *trainer = ckpt_object_get(objects, CKPT_STATE_TRAINER);
  const ckpt_object *scheduler = ckpt_object_get(objects, CKPT_STATE_SCHEDULER), *none = ckpt_object_none(run->arena);
  const uint64_t n_trainer = trainer != NULL && trainer->kind == CKPT_OBJECT_DICT ? trainer->n : 0;
  const ckpt_object **placed = ckpt_arena_array(run->arena, (size_t)run->index->n_tensors + 1, sizeof *placed);
  CKPT_TRY_ALLOC(placed, err);
  CKPT_TRY(ckpt_zero_dict(
      run, OWN_KEYS + n_trainer + (objects == NULL ? 0 : objects->n) + run->index->n_tensors + run->index->n_aliases,
      out, err));
  ckpt_object *root = *out;
  CKPT_TRY(set_module(run, root, err));
  CKPT_TRY(ckpt_zero_set(run, root, "optimizer", none, err));
  CKPT_TRY(set_shapes(run, root, err));
  CKPT_TRY(ckpt_zero_set(run, root, "lr_scheduler", scheduler == NULL ? none : scheduler, err));
  CKPT_TRY(ckpt_zero_set(run, root, "ds_version",
                         ckpt_object_text(run->arena, CKPT_ZERO_VERSION, sizeof CKPT_ZERO_VERSION - 1), err));
  CKPT_TRY(set_trainer(run, root, err));
  CKPT_TRY(set_counts(run, root, err));
  CKPT_TRY(set_client(run, root, placed, err));
  return set_others(run, root, placed, err);
}

/* Whether a plain graph holds a tensor. */
static ckpt_status find_tensor(const ckpt_object *node, ckpt_node_map *seen, bool *holds, ckpt_error *err) {
  enum { HOLDS = 1, HOLDS_NONE = 2 };
  *holds = node != NULL && node->kind == CKPT_OBJECT_TENSOR;
  if (node == NULL || node->kind < CKPT_OBJECT_LIST || *holds) return CKPT_OK;
  uint64_t *known = ckpt_node_map_at(seen, node);
  CKPT_TRY_ALLOC(known, err);
  *holds = *known == HOLDS;
  if (*known != 0) return CKPT_OK;
  *known = HOLDS; /* or being looked at */
  for (uint64_t i = 0; i < ckpt_object_n_children(node) && !*holds; i++)
    CKPT_TRY(find_tensor(node->items[i], seen, holds, err));
  known = ckpt_node_map_at(seen, node); /* which may have moved */
  CKPT_TRY_ALLOC(known, err);
  *known = *holds ? HOLDS : HOLDS_NONE;
  return CKPT_OK;
}

ckpt_status ckpt_zero_without_tensors(const ckpt_zero_run *run, const ckpt_object *root, ckpt_object **out,
                                      ckpt_error *err) {
  ckpt_node_map seen = {0};
  ckpt_object *module;
  CKPT_TRY(ckpt_zero_dict(run, root->n + 1, out, err));
  CKPT_TRY(ckpt_zero_dict(run, 0, &module, err));
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < root->n && status == CKPT_OK; i++) {
    ckpt_object *key = root->items[2 * i], *value = root->items[2 * i + 1];
    bool holds = false;
    if (strcmp(key->text, "module") == 0)
      value = module;
    else
      status = find_tensor(value, &seen, &holds, err);
    if (holds) continue;
    (*out)->items[2 * (*out)->n] = key;
    (*out)->items[2 * (*out)->n++ + 1] = value;
  }
  ckpt_node_map_free(&seen);
  return status;
}
