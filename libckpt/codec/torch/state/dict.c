/* dict.c - see dict.h. */
#include "libckpt/codec/torch/state/dict.h"

#include <string.h>

#include "libckpt/codec/torch/state/groups.h"

enum { MAX_KEY_BYTES = 4096 }; /* as of a tensor's name; keys can share one long text */

/* ---- kinds of containers ----------------------------------------------------------------------------------------- */

static bool is_dict(const ckpt_object *object) { return object != NULL && object->kind == CKPT_OBJECT_DICT; }

bool ckpt_torch_is_optimizer(const ckpt_object *object) {
  const ckpt_object *groups = ckpt_object_field(object, "param_groups");
  if (!is_dict(object) || groups == NULL || groups->kind != CKPT_OBJECT_LIST) return false;
  const ckpt_object *state = ckpt_object_field(object, "state");
  if (state != NULL) return is_dict(state); /* a planner leaves out an empty one */
  return groups->n != 0 && ckpt_object_field(groups->items[0], "params") != NULL;
}

static bool has_optimizer_key(const ckpt_object *key) {
  return key->kind == CKPT_OBJECT_TEXT && key->n <= MAX_KEY_BYTES && ckpt_torch_is_optimizer_key(key->text);
}

bool ckpt_torch_is_optimizer_at(const ckpt_object *key, const ckpt_object *object) {
  return ckpt_torch_is_optimizer(object) ||
         (is_dict(object) && has_optimizer_key(key) && is_dict(ckpt_object_field(object, "state")));
}

bool ckpt_torch_is_any_optimizer(const ckpt_object *object) {
  return ckpt_torch_is_optimizer(object) || ckpt_torch_is_flat_optimizer(object);
}

bool ckpt_torch_is_module(const ckpt_object *object) {
  return is_dict(ckpt_object_get(object, "_parameters")) && is_dict(ckpt_object_get(object, "_modules"));
}

bool ckpt_torch_is_training_key(const char *key) {
  static const char *const starts[] = {"optim",  "lr_sched", "sched",     "scaler", "grad_scaler",     "rng",
                                       "random", "args",     "callbacks", "loops",  "hyper_parameters"};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
    if (strncmp(key, starts[i], strlen(starts[i])) == 0) return true;
  return false;
}

const char *const ckpt_torch_model_keys[] = {"state_dict", "model_state_dict", "model", "module"};

uint32_t ckpt_torch_model_key(const char *key, size_t n) {
  uint32_t i = 0;
  while (i < CKPT_TORCH_N_MODEL_KEYS &&
         (n != strlen(ckpt_torch_model_keys[i]) || memcmp(key, ckpt_torch_model_keys[i], n) != 0))
    i++;
  return i;
}

/* ---- where the parts are ----------------------------------------------------------------------------------------- */

/* Whether a dict can have parts; else it is one. */
static bool can_have_parts(const ckpt_object *object) {
  return is_dict(object) && !ckpt_torch_is_module(object) && !ckpt_torch_is_optimizer(object);
}

/* Whether it holds tensors whose names have dots: then it is the model itself. */
static bool is_flat(const ckpt_object *top) {
  const uint64_t n = can_have_parts(top) ? top->n : 0;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *key = top->items[2 * i];
    if (top->items[2 * i + 1]->kind == CKPT_OBJECT_TENSOR && key->kind == CKPT_OBJECT_TEXT && key->n <= MAX_KEY_BYTES &&
        memchr(key->text, '.', (size_t)key->n) != NULL)
      return true;
  }
  return false;
}

/* Whether it is an OrderedDict with the versions of a module's parts, as Module.state_dict() makes it. */
static bool is_state_dict(const ckpt_object *top) {
  const ckpt_object *state = can_have_parts(top) ? ckpt_object_extra_of(top, CKPT_EXTRA_STATE) : NULL;
  return is_dict(ckpt_object_field(state, "_metadata"));
}

/* The entry that is the model; NULL where the top is that, or has no such entry. */
static const ckpt_object *find_container(const ckpt_object *top) {
  if (!can_have_parts(top)) return NULL;
  for (size_t i = 0; i < CKPT_TORCH_N_MODEL_KEYS; i++) {
    const ckpt_object *value = ckpt_object_get(top, ckpt_torch_model_keys[i]);
    if (value != NULL && value->mark == TORCH_HOLDS && !ckpt_torch_is_optimizer(value) &&
        (value->kind == CKPT_OBJECT_DICT || value->kind == CKPT_OBJECT_FOREIGN))
      return value;
  }
  return NULL;
}

/* Looks at no more than `max` entries of what may be an optimizer: one can stand under very many keys. */
static bool has_optimizer(const ckpt_object *object, uint64_t max) {
  const uint64_t n = can_have_parts(object) ? object->n : 0;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_object *key = object->items[2 * i], *value = object->items[2 * i + 1];
    if (!ckpt_torch_has_tensor(value)) continue;
    if (ckpt_torch_is_optimizer_at(key, value)) return true;
    if (!has_optimizer_key(key) || value->kind != CKPT_OBJECT_DICT || value->n > max) continue;
    max -= value->n;
    if (ckpt_torch_is_flat_optimizer(value)) return true;
  }
  return false;
}

/* The one entry of the root that has the parts of a checkpoint, whatever stands beside it ({"app": {"model": ...},
 * "step": 3}); else the root. An optimizer alone makes an entry that only where nothing stands beside it. */
static ckpt_object *find_top(ckpt_object *root, uint64_t max) {
  ckpt_object *found = root;
  if (!can_have_parts(root) || root->extras != 0 || find_container(root) != NULL || is_flat(root)) return root;
  for (uint64_t i = 0; i < root->n; i++) {
    ckpt_object *below = root->items[2 * i + 1];
    if (root->items[2 * i]->kind != CKPT_OBJECT_TEXT || !is_dict(below) || !ckpt_torch_has_tensor(below)) continue;
    if (below->n >= max) return root; /* one of many entries, again and again */
    max -= below->n;
    if (find_container(below) == NULL && (root->n != 1 || !has_optimizer(below, max))) continue;
    if (found != root) return root;
    found = below;
  }
  return found;
}

void ckpt_torch_dict_find(ckpt_torch_dict *dict, ckpt_object *root, uint64_t max) {
  dict->top = find_top(root, max);
  dict->container = find_container(dict->top);
  dict->is_flat = is_flat(dict->top);
  dict->is_state_dict = dict->container == NULL && is_state_dict(dict->top);
}
