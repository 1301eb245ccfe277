/* normalize.c - what of a description's objects a DeepSpeed checkpoint has a place for; the rest is said.
 *
 * Groups, scheduler and loss scaler have DeepSpeed's own keys. All else is client state, by its key at the top of the
 * model file: the numbers and texts of the trainer, and whatever else is plain data. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/expected_names.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/plain/copy.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/state/dict.h"

typedef struct reducer {
  ckpt_index *described;
  ckpt_losses *losses;
  ckpt_torch_copier plain;
  ckpt_object *objects;
  const ckpt_object *known; /* of the input, whose own nodes they are */
  uint64_t n_left;          /* looks at them */
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

/* Says that an entry of something ("": the top) is not kept. */
static ckpt_status say_refused(reducer *r, const char *of, const char *key, ckpt_error *err) {
  const char *dot = of[0] == '\0' ? "" : ".", *class = r->plain.refused;
  if (class == NULL)
    return ckpt_losses_add(r->losses, err,
                           "%s%s%.200s (it has no end or is more than 200 deep, or holds tensors that stand elsewhere)",
                           of, dot, key);
  return ckpt_losses_add(r->losses, err, "%s%s%.200s (no plain data: %.200s)", of, dot, key, class);
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
  CKPT_TRY(ckpt_torch_copy(&r->plain, value, &copy, err));
  if (copy != NULL) CKPT_TRY(put(r, key, copy, err));
  return copy != NULL && r->plain.refused == NULL ? CKPT_OK : say_refused(r, "", key, err); /* a tensor of a subclass */
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
    CKPT_TRY(ckpt_torch_copy(&r->plain, given, &key, err));
    if (key != NULL) CKPT_TRY(ckpt_torch_copy(&r->plain, dict->items[2 * i + 1], &value, err));
    if (value == NULL) {
      const char *name = given->kind == CKPT_OBJECT_TEXT ? given->text : "?";
      CKPT_TRY(say_refused(r, of, name, err));
      continue;
    }
    copy->items[2 * copy->n] = key;
    copy->items[2 * copy->n++ + 1] = value;
  }
  return CKPT_OK;
}

/* The trainer's numbers and texts, but for those to which DeepSpeed gives another meaning. */
static ckpt_status keep_trainer(reducer *r, const ckpt_object *trainer, ckpt_error *err) {
  ckpt_object *copy;
  uint64_t n = 0;
  CKPT_TRY(plain_dict(r, CKPT_STATE_TRAINER, &copy, trainer, err));
  for (uint64_t i = 0; i < copy->n; i++) {
    const ckpt_object *key = copy->items[2 * i];
    if (key->kind != CKPT_OBJECT_TEXT || !ckpt_zero_is_own(key->text, (size_t)key->n))
      memmove(&copy->items[2 * n++], &copy->items[2 * i], 2 * sizeof *copy->items);
    else
      CKPT_TRY(ckpt_losses_add(r->losses, err, "%.200s (DeepSpeed has another meaning for the name)", key->text));
  }
  copy->n = n;
  CKPT_TRY(ckpt_torch_drop_repeated(copy, r->losses, err)); /* below one key and beside it */
  return put(r, CKPT_STATE_TRAINER, copy, err);
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

/* What an optimizer whose groups are known holds besides them and the states. */
static ckpt_status drop_extras(reducer *r, const char *of, const ckpt_object *optimizer, ckpt_error *err) {
  const char *plain = ckpt_torch_state_plain_key(optimizer, &r->n_left);
  ckpt_name_list lost = {.n = 0};
  for (uint64_t i = 0; i < optimizer->n; i++) {
    const ckpt_object *key = optimizer->items[2 * i], *value = optimizer->items[2 * i + 1];
    const char *name = key->kind == CKPT_OBJECT_TEXT ? key->text : "an entry whose key is no text";
    if (strcmp(name, "state") == 0 || strcmp(name, "param_groups") == 0) continue;
    if (ckpt_object_holds_more(value, &r->n_left)) ckpt_name_list_add(&lost, name);
  }
  if (plain != NULL)
    CKPT_TRY(ckpt_losses_add(r->losses, err, "of %.200s: states that are no tensors (%.200s)", of, plain));
  return lost.n == 0 ? CKPT_OK
                     : ckpt_losses_add(r->losses, err, "of %.200s: %s (DeepSpeed has no place for it)", of, lost.text);
}

/* An entry of a torch object. Tensors alone are kept where they stand, if that is nothing of the model's. */
static ckpt_status keep_entry(reducer *r, const ckpt_object *key, const ckpt_object *value, ckpt_error *err) {
  const char *name = key->kind == CKPT_OBJECT_TEXT ? key->text : NULL;
  const ckpt_object *optimizer = ckpt_torch_state_optimizer_at(r->known, value);
  ckpt_object *copy = NULL;
  if (name != NULL && name[0] == '\0' && ckpt_torch_has_tensor(value)) { /* names of tensors leave it out */
    CKPT_TRY(ckpt_torch_copy(&r->plain, value, &copy, err));
    return copy == NULL ? CKPT_OK : ckpt_losses_add(r->losses, err, "an entry whose key is empty");
  }
  if (value->kind == CKPT_OBJECT_NONE && (name == NULL || !has_place(name))) return CKPT_OK;
  if (ckpt_torch_state_is_trainers(key, value) || value->kind == CKPT_OBJECT_TENSOR) return CKPT_OK;
  if (optimizer != NULL) return drop_extras(r, name == NULL ? "the optimizer" : name, optimizer, err);
  const bool holds_more = ckpt_object_holds_more(value, &r->n_left);
  if (name == NULL) return !holds_more ? CKPT_OK : ckpt_losses_add(r->losses, err, "an entry whose key is no text");
  if (ckpt_torch_is_model_key(name, (size_t)key->n) && ckpt_torch_has_tensor(value))
    return !holds_more ? CKPT_OK : ckpt_losses_add(r->losses, err, "of %.200s: what is no tensor", name);
  if (holds_more && value->kind > CKPT_OBJECT_TEXT && ckpt_torch_state_is_known(r->known, value, &r->n_left))
    return CKPT_OK;
  CKPT_TRY_ALLOC(name = ckpt_zero_client_name(name, r->losses->arena), err);
  if (holds_more || !has_place(name)) return holds_more ? keep(r, name, value, err) : CKPT_OK;
  CKPT_TRY(ckpt_torch_copy(&r->plain, value, &copy, err));
  return copy == NULL ? CKPT_OK : put(r, name, copy, err);
}

/* What a torch file or a DCP folder held besides what every format knows. */
static ckpt_status keep_torch(reducer *r, const ckpt_object *whole, const ckpt_object *parts, ckpt_error *err) {
  if (parts == NULL)
    return ckpt_losses_add(r->losses, err, "the object that the tensors were in: %.200s", ckpt_torch_class(whole));
  const ckpt_object *optimizer = ckpt_torch_state_optimizer_at(r->known, parts);
  if (optimizer != NULL) return drop_extras(r, "the optimizer", optimizer, err);
  for (uint64_t i = 0; i < parts->n; i++) CKPT_TRY(keep_entry(r, parts->items[2 * i], parts->items[2 * i + 1], err));
  return CKPT_OK;
}

static ckpt_status reduce(reducer *r, ckpt_error *err) {
  const ckpt_object *given = r->described->objects, *whole = r->described->whole;
  const ckpt_object *parts;
  CKPT_TRY(ckpt_index_parts(&parts, r->described, err));
  r->objects = ckpt_object_new(r->losses->arena, CKPT_OBJECT_DICT, given->n + (parts == NULL ? 0 : parts->n), NULL);
  CKPT_TRY_ALLOC(r->objects, err);
  r->objects->n = 0;
  for (uint64_t i = 0; i < given->n; i++) {
    const ckpt_object *key = given->items[2 * i], *value = given->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT || value == whole) continue;
    if (strcmp(key->text, CKPT_STATE_PARAM_GROUPS) == 0) {
      CKPT_TRY(keep_groups(r, value, err));
    } else if (strcmp(key->text, CKPT_STATE_TRAINER) == 0 && value->kind == CKPT_OBJECT_DICT) {
      CKPT_TRY(keep_trainer(r, value, err));
    } else if (strcmp(key->text, CKPT_STATE_LOSS_SCALER) == 0) {
      CKPT_TRY(keep_scaler(r, value, err));
    } else {
      CKPT_TRY(keep(r, key->text, value, err));
    }
  }
  if (whole != NULL) CKPT_TRY(keep_torch(r, whole, parts, err));
  return ckpt_torch_drop_repeated(r->objects, r->losses, err);
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
    if (tensor->details->n_extra_names == 0 || tensor->details->n_extra_names > n) continue;
    n -= tensor->details->n_extra_names;
    const char **kept = ckpt_arena_array(losses->arena, n + 1, sizeof *kept);
    CKPT_TRY_ALLOC(kept, err);
    memcpy(kept, tensor->aliases, n * sizeof *kept);
    for (uint32_t k = n; tensor->aliases[k] != NULL; k++)
      CKPT_TRY(ckpt_losses_add(losses, err, "name %s (of %s, outside the model)", tensor->aliases[k], tensor->name));
    described->n_aliases -= tensor->details->n_extra_names;
    tensor->aliases = n == 0 ? NULL : kept;
    tensor->details->n_extra_names = 0;
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
  for (uint32_t i = 0; i < described->n_side_files; i++) {
    const char *name = described->side_files[i].name;
    if (ckpt_side_file_is_training(name) && strncmp(ckpt_path_name(name), "scheduler", 9) == 0)
      return ckpt_index_note(described, false, err,
                             "%.200s goes along as it is: an engine that has a scheduler of its own loads this with "
                             "load_checkpoint(load_lr_scheduler_states=False)",
                             name);
  }
  return ckpt_index_note(described, false, err,
                         "no state of a scheduler: an engine that has one loads this with "
                         "load_checkpoint(load_lr_scheduler_states=False)");
}

ckpt_status ckpt_zero_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const ckpt_torch_copier plain = {
      .arena = losses->arena, .described = described, .keeps_numbers = true, .is_whole = true};
  reducer r = {.described = described, .losses = losses, .plain = plain};
  r.known = described->objects_of == NULL ? described->objects : described->objects_of->objects;
  r.n_left = CKPT_OBJECT_LOOKS;
  uint32_t *numbers = NULL;
  CKPT_TRY(drop_own(described, losses, err));
  CKPT_TRY(drop_extra_names(described, losses, err));
  CKPT_TRY(say_unread(described, losses, err));
  CKPT_TRY(note_scheduler(described, err));
  if (described->objects == NULL) return CKPT_OK;
  if (described->objects_of != NULL)
    CKPT_TRY(ckpt_described_numbers(&numbers, &r.plain.n_numbers, described, true, err));
  for (uint32_t i = 0; i < r.plain.n_numbers; i++) /* tensors of the model and the optimizer stand elsewhere */
    if (numbers[i] != UINT32_MAX && described->tensors[numbers[i]].role != CKPT_ROLE_OTHER) numbers[i] = UINT32_MAX;
  r.plain.numbers = numbers;
  ckpt_status status = reduce(&r, err);
  ckpt_torch_copier_free(&r.plain);
  free(numbers);
  if (status == CKPT_OK) ckpt_index_set_objects(described, r.objects, NULL);
  return status;
}
