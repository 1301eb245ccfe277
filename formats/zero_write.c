/* zero_write.c - what all files of a written DeepSpeed checkpoint share: objects, groups, the model file.
 *
 * The keys of a model file are those of zero_model.c. Everything in it besides DeepSpeed's own is client state: the
 * numbers and texts of the trainer, and objects by their keys, as far as they are plain data. */
#include "formats/zero_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero.h"
#include "libckpt/codec/node_map.h"
#include "libckpt/codec/readback.h"
#include "libckpt/codec/side_file.h"
#include "libckpt/codec/torch_dict.h"
#include "libckpt/codec/torch_graph.h"
#include "libckpt/error.h"
#include "libckpt/text.h"

/* ---- objects ----------------------------------------------------------------------------------------------------- */

typedef struct reducer {
  ckpt_index *described;
  ckpt_losses *losses;
  ckpt_zero_plain plain;
  ckpt_object *objects;
} reducer;

static ckpt_status put(reducer *r, const char *key, const ckpt_object *value, ckpt_error *err) {
  CKPT_TRY_ALLOC(ckpt_object_put(r->losses->arena, r->objects, key, value), err);
  return CKPT_OK;
}

/* Whether there is a place for an entry: DeepSpeed's own keys mean something else. */
static bool has_place(const char *key) {
  if (strcmp(key, CKPT_STATE_SCHEDULER) == 0 || strcmp(key, CKPT_STATE_TRAINER) == 0) return true;
  return !ckpt_zero_is_own(key, strlen(key));
}

/* Whether the model file has something else under the key of an entry of client_state. */
static bool is_taken(const reducer *r, const char *key) {
  const ckpt_object *given = r->described->objects, *trainer = ckpt_object_get(given, CKPT_STATE_TRAINER);
  if (ckpt_object_get(trainer, key) != NULL) return true;
  if (strcmp(key, CKPT_STATE_RNG) == 0) return ckpt_object_get(given, key) != NULL;
  return strcmp(key, CKPT_STATE_TRAINER) == 0 && trainer != NULL && trainer->kind != CKPT_OBJECT_DICT;
}

/* Keeps an entry that is plain and has a place; another one is lost. */
static ckpt_status keep(reducer *r, const char *key, const ckpt_object *value, ckpt_error *err) {
  const char *client = ckpt_zero_client_key(key);
  if (client != NULL && is_taken(r, client))
    return ckpt_losses_add(r->losses, err, "%.200s (DeepSpeed has one place for it and %s)", key, client);
  if (strcmp(key, CKPT_ZERO_RULES) == 0) {
    ckpt_object *rules;
    CKPT_TRY(ckpt_zero_rules_of_whole(&rules, value, false, r->losses->arena, err));
    if (rules == NULL) return CKPT_OK; /* of a run whose ranks were others */
    value = rules;
  } else if (!has_place(key)) {
    return ckpt_losses_add(r->losses, err, "%.200s (DeepSpeed has no place for it)", key);
  }
  ckpt_object *copy;
  CKPT_TRY(ckpt_zero_plain_copy(&r->plain, &copy, value, err));
  return copy != NULL ? put(r, key, copy, err) : ckpt_zero_plain_say(&r->plain, "", key, r->losses, err);
}

static ckpt_status keep_scaler(reducer *r, const ckpt_object *given, ckpt_error *err) {
  const ckpt_object *state;
  CKPT_TRY(ckpt_zero_scaler_of(&state, given, r->losses->arena, err));
  if (state != NULL) return keep(r, CKPT_STATE_LOSS_SCALER, state, err);
  if (given->kind == CKPT_OBJECT_DICT && given->n == 0) return CKPT_OK; /* of torch's scaler where it is off */
  return ckpt_losses_add(r->losses, err,
                         CKPT_STATE_LOSS_SCALER
                         " (neither DeepSpeed's nor torch's with one power of two for "
                         "growth_factor and 1 / backoff_factor)");
}

/* A copy of a dict without what is no plain data. */
static ckpt_status plain_dict(reducer *r, const char *of, ckpt_object **out, const ckpt_object *dict, ckpt_error *err) {
  ckpt_object *copy = *out = ckpt_object_new(r->losses->arena, CKPT_OBJECT_DICT, dict->n, NULL);
  CKPT_TRY_ALLOC(copy, err);
  copy->n = 0;
  for (uint64_t i = 0; i < dict->n; i++) {
    const ckpt_object *given = dict->items[2 * i];
    ckpt_object *key, *value = NULL;
    CKPT_TRY(ckpt_zero_plain_copy(&r->plain, &key, given, err));
    if (key != NULL) CKPT_TRY(ckpt_zero_plain_copy(&r->plain, &value, dict->items[2 * i + 1], err));
    if (value == NULL) {
      const char *name = given->kind == CKPT_OBJECT_TEXT ? given->text : "?";
      CKPT_TRY(ckpt_zero_plain_say(&r->plain, of, name, r->losses, err));
      continue;
    }
    copy->items[2 * copy->n] = key;
    copy->items[2 * copy->n++ + 1] = value;
  }
  return CKPT_OK;
}

static ckpt_status keep_groups(reducer *r, const ckpt_object *groups, ckpt_error *err) {
  bool is_known = groups->kind == CKPT_OBJECT_LIST;
  for (uint64_t i = 0; is_known && i < groups->n; i++) is_known = groups->items[i]->kind == CKPT_OBJECT_DICT;
  if (!is_known) return ckpt_losses_add(r->losses, err, "%s (no list of groups)", CKPT_STATE_PARAM_GROUPS);
  ckpt_object *copies = ckpt_object_new(r->losses->arena, CKPT_OBJECT_LIST, groups->n, NULL);
  CKPT_TRY_ALLOC(copies, err);
  for (uint64_t i = 0; i < groups->n; i++)
    CKPT_TRY(plain_dict(r, "optimizer.param_groups", &copies->items[i], groups->items[i], err));
  return put(r, CKPT_STATE_PARAM_GROUPS, copies, err);
}

/* Whether a top entry of a torch object is one whose tensors and parts have names and keys of their own. */
static bool is_known(const reducer *r, const ckpt_object *key, const ckpt_object *value) {
  const ckpt_object *given = r->described->objects, *groups = ckpt_object_get(given, CKPT_STATE_PARAM_GROUPS);
  if (value->kind <= CKPT_OBJECT_TEXT || value->kind == CKPT_OBJECT_TENSOR || key->kind != CKPT_OBJECT_TEXT)
    return true;
  if (ckpt_torch_is_model_key(key->text, (size_t)key->n)) return true;
  if (strncmp(key->text, "optim", 5) == 0 && (groups != NULL || ckpt_object_get(value, "state") != NULL)) return true;
  for (uint64_t i = 0; i < given->n; i++)
    if (given->items[2 * i + 1] == value) return true;
  return false;
}

/* What a torch file or a DCP folder held beside model and optimizer. */
static ckpt_status keep_torch(reducer *r, const ckpt_object *top, ckpt_error *err) {
  const ckpt_object *model = ckpt_object_get(top, "model");
  bool is_training = model != NULL || ckpt_object_get(top, "optimizer") != NULL;
  for (uint64_t i = 0; is_training && top->kind == CKPT_OBJECT_DICT && i < top->n; i++)
    if (!is_known(r, top->items[2 * i], top->items[2 * i + 1]) && r->objects->n < r->described->objects->n + top->n)
      CKPT_TRY(keep(r, top->items[2 * i]->text, top->items[2 * i + 1], err));
  return CKPT_OK;
}

static ckpt_status reduce(reducer *r, ckpt_error *err) {
  const ckpt_object *given = r->described->objects, *top = ckpt_object_get(given, CKPT_TORCH_OBJECT);
  const uint64_t n_top = top != NULL && top->kind == CKPT_OBJECT_DICT ? top->n : 0;
  r->objects = ckpt_object_new(r->losses->arena, CKPT_OBJECT_DICT, given->n + n_top, NULL);
  CKPT_TRY_ALLOC(r->objects, err);
  r->objects->n = 0;
  for (uint64_t i = 0; i < given->n; i++) {
    const ckpt_object *key = given->items[2 * i], *value = given->items[2 * i + 1];
    ckpt_object *copy;
    if (key->kind != CKPT_OBJECT_TEXT || value == top) continue;
    if (strcmp(key->text, CKPT_STATE_PARAM_GROUPS) == 0) {
      CKPT_TRY(keep_groups(r, value, err));
    } else if (strcmp(key->text, CKPT_STATE_TRAINER) == 0 && value->kind == CKPT_OBJECT_DICT) {
      CKPT_TRY(plain_dict(r, CKPT_STATE_TRAINER, &copy, value, err));
      CKPT_TRY(put(r, CKPT_STATE_TRAINER, copy, err));
    } else if (strcmp(key->text, CKPT_STATE_LOSS_SCALER) == 0) {
      CKPT_TRY(keep_scaler(r, value, err));
    } else {
      CKPT_TRY(keep(r, key->text, value, err));
    }
  }
  return top == NULL ? CKPT_OK : keep_torch(r, top, err);
}

/* A tensor whose name DeepSpeed gives another meaning. */
static ckpt_status drop_own(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  uint32_t n = 0;
  size_t n_name;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    bool is_other = tensor->role == CKPT_ROLE_OTHER && ckpt_state_parameter(tensor->name, &n_name) == NULL;
    if (is_other && ckpt_zero_is_own(tensor->name, strcspn(tensor->name, ".")))
      CKPT_TRY(ckpt_losses_add(losses, err, "%s (DeepSpeed has another meaning for the name)", tensor->name));
    else
      described->tensors[n++] = *tensor;
  }
  described->n_tensors = n;
  return CKPT_OK;
}

/* Names outside the model of tensors that are in it: module has the model's. */
static ckpt_status drop_extra_names(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    ckpt_tensor *tensor = &described->tensors[i];
    uint32_t n = 0;
    while (tensor->aliases != NULL && tensor->aliases[n] != NULL) n++;
    if (tensor->n_extra_names == 0 || tensor->n_extra_names > n) continue;
    n -= tensor->n_extra_names;
    const char **kept = ckpt_arena_array(losses->arena, n + 1, sizeof *kept);
    CKPT_TRY_ALLOC(kept, err);
    memcpy(kept, tensor->aliases, n * sizeof *kept);
    for (uint32_t k = n; tensor->aliases[k] != NULL; k++)
      CKPT_TRY(ckpt_losses_add(losses, err, "name %s (of %s, outside the model)", tensor->aliases[k], tensor->name));
    described->n_aliases -= tensor->n_extra_names;
    tensor->aliases = n == 0 ? NULL : kept;
    tensor->n_extra_names = 0;
  }
  return CKPT_OK;
}

/* States beside a model whose numbered parameters got no names, or of a kind that is not read: their file goes along as
 * it is, where DeepSpeed does not look. */
static ckpt_status say_unread(const ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  size_t n;
  for (uint32_t i = 0; i < described->n_tensors; i++)
    if (described->tensors[i].role != CKPT_ROLE_MASTER && ckpt_state_parameter(described->tensors[i].name, &n) != NULL)
      return CKPT_OK;
  for (uint32_t i = 0; i < described->n_side_files; i++) {
    const char *name = described->side_files[i].name;
    if (ckpt_side_file_is_training(name) && strncmp(ckpt_path_name(name), "optimizer", 9) == 0)
      CKPT_TRY(ckpt_losses_add(losses, err, "the optimizer's states in %.200s, which are not read (inspect says why)",
                               name));
  }
  return CKPT_OK;
}

/* DeepSpeed's own runs without a scheduler go on without one; of others it is not known. */
static ckpt_status note_scheduler(ckpt_index *described, ckpt_error *err) {
  const char *format = described->objects_of == NULL ? "" : described->objects_of->format;
  if (strcmp(format, "zero") == 0 || strcmp(format, "universal") == 0) return CKPT_OK;
  if (ckpt_object_get(described->objects, CKPT_STATE_SCHEDULER) != NULL) return CKPT_OK;
  return ckpt_index_note(described, false, err,
                         "no state of a scheduler: an engine that has one loads this with "
                         "load_checkpoint(load_lr_scheduler_states=False)");
}

ckpt_status ckpt_zero_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  reducer r = {.described = described, .losses = losses, .plain = {.described = described, .arena = losses->arena}};
  uint32_t *numbers = NULL;
  CKPT_TRY(drop_own(described, losses, err));
  CKPT_TRY(drop_extra_names(described, losses, err));
  CKPT_TRY(say_unread(described, losses, err));
  CKPT_TRY(note_scheduler(described, err));
  if (described->objects == NULL) return CKPT_OK;
  if (described->objects_of != NULL)
    CKPT_TRY(ckpt_described_numbers(&numbers, &r.plain.n_numbers, described, true, err));
  r.plain.numbers = numbers;
  ckpt_status status = reduce(&r, err);
  ckpt_node_map_free(&r.plain.copies);
  free(numbers);
  if (status == CKPT_OK) described->objects = r.objects;
  return status;
}

/* ---- containers -------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_zero_dict(const ckpt_zero_run *run, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_DICT, n, NULL), err);
  (*out)->n = 0;
  return CKPT_OK;
}

ckpt_status ckpt_zero_set(const ckpt_zero_run *run, ckpt_object *dict, const char *key, const ckpt_object *value,
                          ckpt_error *err) {
  CKPT_TRY_ALLOC(ckpt_object_put(run->arena, dict, key, value), err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_list(const ckpt_zero_run *run, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_LIST, n, NULL), err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_call(const ckpt_zero_run *run, const char *name, uint64_t n, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_FOREIGN, n, name), err);
  (*out)->n_module = (uint32_t)(strrchr(name, '.') - name) & 0xffff;
  return CKPT_OK;
}

ckpt_status ckpt_zero_instance(const ckpt_zero_run *run, const char *name, const ckpt_object *attributes,
                               ckpt_object **out, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_call(run, name, 1, out, err));
  (*out)->form = CKPT_FORM_NEW;
  (*out)->n = 0;
  (*out)->extras = CKPT_EXTRA_STATE;
  (*out)->items[0] = (ckpt_object *)(uintptr_t)attributes;
  return CKPT_OK;
}

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

/* ---- the optimizer's ----------------------------------------------------------------------------------------------
 */

/* A group as it is, but for its params, and for a step that is a state. */
static ckpt_status copy_group(const ckpt_zero_run *run, const ckpt_zero_group *group, ckpt_object **out,
                              ckpt_error *err) {
  const uint64_t n = group->object == NULL || group->object->kind != CKPT_OBJECT_DICT ? 0 : group->object->n;
  CKPT_TRY(ckpt_zero_dict(run, n + 1, out, err));
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *key = group->object->items[2 * i];
    bool is_text = key->kind == CKPT_OBJECT_TEXT;
    if (is_text && (strcmp(key->text, "params") == 0 || strcmp(key->text, "param_names") == 0)) continue;
    if (is_text && group->has_step && strcmp(key->text, "step") == 0) continue;
    memcpy(&(*out)->items[2 * (*out)->n++], &group->object->items[2 * i], 2 * sizeof *(*out)->items);
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_groups(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, out, err));
  (*out)->n = 0;
  for (uint32_t g = 0, n; g < run->n_groups; g += n) {
    ckpt_object *copy, *params;
    for (n = 1; g + n < run->n_groups && run->groups[g + n].of == run->groups[g].of;) n++;
    CKPT_TRY(copy_group(run, &run->groups[g], &copy, err));
    CKPT_TRY(ckpt_zero_list(run, n, &params, err));
    for (uint32_t i = 0; i < n; i++) CKPT_TRY_ALLOC(params->items[i] = ckpt_object_int(run->arena, g + i), err);
    CKPT_TRY(ckpt_zero_set(run, copy, "params", params, err));
    (*out)->items[(*out)->n++] = copy;
  }
  return CKPT_OK;
}

bool ckpt_zero_is_bf16(const ckpt_zero_run *run) {
  const ckpt_object *is_on =
      ckpt_object_get(ckpt_object_get(run->index->objects, CKPT_STATE_TRAINER), CKPT_TRAINER_BF16);
  return is_on != NULL && is_on->kind == CKPT_OBJECT_BOOL && is_on->boolean;
}

/* ---- the model file -----------------------------------------------------------------------------------------------
 */

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
    const bool is_buffer = !run->is_trained[i] && ckpt_zero_is_buffer(tensor);
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

/* Numbers and texts, which the next reader finds before all objects. */
static void set_trainer(const ckpt_zero_run *run, ckpt_object *root) {
  const ckpt_object *trainer = ckpt_object_get(run->index->objects, CKPT_STATE_TRAINER);
  for (uint64_t i = 0; trainer != NULL && trainer->kind == CKPT_OBJECT_DICT && i < trainer->n; i++)
    if (trainer->items[2 * i]->kind == CKPT_OBJECT_TEXT &&
        !ckpt_zero_is_own(trainer->items[2 * i]->text, (size_t)trainer->items[2 * i]->n))
      memcpy(&root->items[2 * root->n++], &trainer->items[2 * i], 2 * sizeof *root->items);
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

/* The step that the model file says: DeepSpeed's own where the input kept it. */
static int64_t step_of(const ckpt_zero_run *run) {
  const ckpt_object *trainer = ckpt_object_get(run->index->objects, CKPT_STATE_TRAINER);
  const int64_t said = ckpt_zero_number(ckpt_object_get(trainer, "global_steps"));
  return said >= 0 ? said : run->index->step < 0 ? 0 : run->index->step;
}

/* What DeepSpeed asks for, where the input did not say it. */
static ckpt_status set_counts(const ckpt_zero_run *run, ckpt_object *root, ckpt_error *err) {
  const int64_t step = step_of(run);
  const struct {
    const char *key;
    int64_t value;
  } counts[] = {{"global_steps", step}, {"skipped_steps", 0}, {"dp_world_size", run->world}, {"mp_world_size", 1}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    if (ckpt_object_get(root, counts[i].key) != NULL) continue;
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
  set_trainer(run, root);
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

/* ---- files --------------------------------------------------------------------------------------------------------
 */

ckpt_status ckpt_zero_lay(const ckpt_zero_run *run, const char *name, const ckpt_object *root, uint32_t n_leaves,
                          ckpt_torch_item_of *of, const void *arg, ckpt_error *err) {
  CKPT_TRY(ckpt_layout_file_add(run->layout, name, err));
  return ckpt_torch_archive_lay(run->layout, root, n_leaves, of, arg, err);
}

static void print_text(const ckpt_layout *layout, const void *arg, ckpt_out *out) {
  (void)layout;
  ckpt_out_text(out, arg);
}

ckpt_status ckpt_zero_lay_text(const ckpt_zero_run *run, const char *name, const char *text, ckpt_error *err) {
  CKPT_TRY(ckpt_layout_file_add(run->layout, name, err));
  return ckpt_layout_literal(run->layout, print_text, text, err);
}

ckpt_status ckpt_zero_lay_sides(const ckpt_zero_run *run, const char *dtype, ckpt_error *err) {
  for (uint32_t i = 0; i < run->index->n_side_files; i++)
    CKPT_TRY(ckpt_side_file_lay(run->layout, &run->index->side_files[i], dtype, err));
  return CKPT_OK;
}

const char *ckpt_zero_tag(const ckpt_zero_run *run) {
  return ckpt_arena_printf(run->arena, "global_step%lld", (long long)step_of(run));
}
