/* dcp_names.c - which of a checkpoint's containers hold the model and the optimizer, and what their tensors are called.
 *
 * The planner keeps the path of keys that led to each item, so that a container ("model") is told from a name that
 * begins with one ("model.norm.weight"). What is taken off:
 *   app.model.W             one key around everything, where a container is below it (PyTorch's own recipe)
 *   model.W, module.W, state_dict.W, model_state_dict.W  -> W
 *   optimizer.state.W.exp_avg, optim...  -> optimizer.state.W.exp_avg
 *   state.W.exp_avg, param_groups...     (an optimizer saved alone) -> optimizer.state.W.exp_avg
 * Without paths (Megatron) names stay as they are. Where no container is known, every tensor is the model's. */
#include <stdio.h>
#include <string.h>

#include "formats/dcp.h"
#include "libckpt/codec/torch_graph.h"
#include "libckpt/codec/torch_groups.h"
#include "libckpt/codec/torch_state.h"
#include "libckpt/error.h"

/* ---- paths ---- */

static bool is_path(const ckpt_object *path) {
  enum { MAX_KEYS = 256 };
  return path != NULL && (path->kind == CKPT_OBJECT_TUPLE || path->kind == CKPT_OBJECT_LIST) && path->n != 0 &&
         path->n <= MAX_KEYS;
}

/* A key as text; "" for what is neither text nor a number. `room` is for numbers. */
static const char *key_text(const ckpt_object *key, char room[32]) {
  if (ckpt_dcp_is_name(key)) return key->text;
  room[0] = '\0';
  if (key->kind == CKPT_OBJECT_INT) snprintf(room, 32, "%lld", (long long)key->integer);
  return room;
}

bool ckpt_dcp_is_container(const char *key, const char *like) {
  return ckpt_torch_is_optimizer_key(like) ? ckpt_torch_is_optimizer_key(key)
                                           : ckpt_torch_is_model_key(key, strlen(key));
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* ---- the structure ---- */

/* What is counted over all items, at one depth. */
typedef struct survey {
  uint64_t n, n_tensors, n_flat, n_flat_tensors; /* flat: a path that ends here; tensors, in a name with dots */
  uint64_t n_state, n_groups;                    /* an optimizer's own keys */
  uint64_t n_model[CKPT_TORCH_N_MODEL_KEYS + 1]; /* tensors below each */
  char optimizer[64];                            /* the first of its keys */
  bool is_mixed;                                 /* keys differ */
  char key[256];
} survey;

/* What a survey goes over: a checkpoint that is read, or paths and values of one that is to be written. */
typedef struct items {
  const ckpt_dcp_metadata *metadata;
  const ckpt_object *pairs;
} items;

static void count(survey *s, bool holds, const ckpt_object *name, const ckpt_object *path, uint32_t depth) {
  char room[32];
  bool is_flat = !is_path(path) || path->n <= depth + 1;
  const char *key = is_path(path) && depth < path->n ? key_text(path->items[depth], room) : key_text(name, room);
  s->n++;
  s->n_tensors += holds;
  if (s->n == 1) snprintf(s->key, sizeof s->key, "%s", key);
  s->is_mixed = s->is_mixed || strcmp(s->key, key) != 0;
  bool is_groups = begins(key, "param_groups") && (key[12] == '\0' || key[12] == '.');
  s->n_groups += is_groups;
  s->n_state += is_groups || (is_flat ? begins(key, "state.") : strcmp(key, "state") == 0);
  s->n_flat += is_flat;
  s->n_flat_tensors += is_flat && holds && strchr(key, '.') != NULL;
  if (is_flat) return;
  s->n_model[ckpt_torch_model_key(key, strlen(key))] += holds;
  if (s->optimizer[0] == '\0' && strlen(key) < sizeof s->optimizer && ckpt_torch_is_optimizer_key(key))
    snprintf(s->optimizer, sizeof s->optimizer, "%s", key);
}

static void look(survey *out, const items *of, uint32_t depth) {
  *out = (survey){0};
  for (uint64_t i = 0; of->pairs != NULL && i < of->pairs->n; i++) {
    const ckpt_object *path = of->pairs->items[2 * i];
    count(out, of->pairs->items[2 * i + 1]->kind == CKPT_OBJECT_TENSOR, path->items[path->n - 1], path, depth);
  }
  for (uint32_t r = 0; of->metadata != NULL && r < of->metadata->n_roots; r++) {
    const ckpt_object *rows = of->metadata->roots[r].tensors;
    for (uint64_t i = 0; i < rows->n; i++)
      if (ckpt_dcp_is_name(rows->items[2 * i]))
        count(out, ckpt_dcp_attribute(rows->items[2 * i + 1], "size") != NULL, rows->items[2 * i],
              ckpt_dcp_find(&of->metadata->paths, r, rows->items[2 * i], NULL, NULL), depth);
  }
}

static uint32_t container(const survey *s) {
  uint32_t i = 0;
  while (i < CKPT_TORCH_N_MODEL_KEYS && s->n_model[i] == 0) i++;
  return i;
}

static bool is_known(const survey *s) {
  return container(s) < CKPT_TORCH_N_MODEL_KEYS || s->optimizer[0] != '\0' || (s->n_groups != 0 && s->n_state == s->n);
}

static void find_structure(ckpt_dcp_structure *out, const items *of) {
  survey s, below;
  *out = (ckpt_dcp_structure){0};
  look(&s, of, 0);
  if (s.n != 0 && !s.is_mixed && s.n_flat == 0 && !is_known(&s)) {
    look(&below, of, 1);
    if (is_known(&below)) { /* else it is a part like any other, as in a torch file */
      out->n_common = 1;
      s = below;
    }
  }
  uint32_t model = container(&s);
  if (model < CKPT_TORCH_N_MODEL_KEYS) snprintf(out->model, sizeof out->model, "%s", ckpt_torch_model_keys[model]);
  snprintf(out->optimizer, sizeof out->optimizer, "%s", s.optimizer);
  out->is_optimizer = s.n_groups != 0 && s.n_state == s.n;
  out->is_flat = model == CKPT_TORCH_N_MODEL_KEYS && s.n_flat_tensors != 0;
}

void ckpt_dcp_structure_find(ckpt_dcp_structure *out, const ckpt_dcp_metadata *metadata) {
  find_structure(out, &(items){.metadata = metadata});
}

void ckpt_dcp_structure_of(ckpt_dcp_structure *out, const ckpt_object *pairs) {
  find_structure(out, &(items){.pairs = pairs});
}

/* ---- one name ---- */

typedef struct joined {
  char *text;
  size_t n;
} joined;

static void append(joined *to, const char *text) {
  size_t n = strlen(text), n_dot = to->n != 0;
  if (to->n + n_dot + n > CKPT_DCP_NAME_BYTES) n = n_dot = 0, to->n = CKPT_DCP_NAME_BYTES + 1;
  if (n_dot) to->text[to->n++] = '.';
  memcpy(to->text + to->n, text, n);
  to->n += n;
}

/* What an optimizer's tensor is, by the last part of its name, which becomes the canonical one. */
static ckpt_role state_role(char *text) {
  char *leaf = strrchr(text, '.') + 1;
  const ckpt_torch_state *state = ckpt_torch_state_of(leaf, strlen(leaf));
  if (state == NULL) return CKPT_ROLE_OTHER;
  memcpy(leaf, state->name, strlen(state->name) + 1); /* never longer */
  return state->role;
}

/* Whether a name that stands for the optimizer's is one of its states. */
static bool is_first_state(const char *text) {
  const char *leaf = strrchr(text, '.');
  return begins(text, CKPT_STATE_PREFIX) && leaf >= text + strlen(CKPT_STATE_PREFIX);
}

/* Whether a path beside the model leads to a state of another optimizer: (..., state, P, exp_avg). */
static bool is_other_state(const ckpt_object *path) {
  char room[32];
  return path->n > 3 && strcmp(key_text(path->items[path->n - 3], room), "state") == 0;
}

/* Where the name of an item begins in its path, and its role; *is_state: behind what says "optimizer". */
static uint64_t place(const ckpt_dcp_structure *structure, const ckpt_object *path, ckpt_role *role, bool *is_state) {
  char room[32];
  uint64_t first = structure->n_common;
  *role = CKPT_ROLE_PARAMETER;
  if (structure->is_optimizer) {
    *is_state = true;
    return first;
  }
  const char *key = first < path->n ? key_text(path->items[first], room) : "";
  bool is_below = first + 1 < path->n;
  if (is_below && structure->model[0] != '\0' && strcmp(key, structure->model) == 0) return first + 1;
  if (is_below && structure->optimizer[0] != '\0' && strcmp(key, structure->optimizer) == 0) {
    *is_state = true;
    return first + 1;
  }
  if (structure->model[0] != '\0' || (structure->is_flat && is_below)) *role = CKPT_ROLE_OTHER;
  return first;
}

ckpt_status ckpt_dcp_name(const ckpt_dcp_structure *structure, const ckpt_object *name, const ckpt_object *path,
                          char text[CKPT_DCP_NAME_BYTES + 1], ckpt_role *role, ckpt_error *err) {
  joined to = {text, 0};
  char room[32];
  bool is_state = false;
  *role = CKPT_ROLE_PARAMETER;
  if (is_path(path)) {
    uint64_t first = place(structure, path, role, &is_state);
    if (is_state) append(&to, "optimizer");
    for (uint64_t i = first; i < path->n && to.n <= CKPT_DCP_NAME_BYTES; i++)
      append(&to, key_text(path->items[i], room));
  } else {
    append(&to, name->text);
    if (begins(name->text, "optimizer.")) *role = CKPT_ROLE_OTHER;
  }
  if (to.n > CKPT_DCP_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a name of more than %d bytes", CKPT_DCP_NAME_BYTES);
  text[to.n] = '\0';
  if (to.n == 0) snprintf(text, CKPT_DCP_NAME_BYTES, "tensor"); /* under an empty key: as in a torch file */
  if (is_state ? is_first_state(text) : *role == CKPT_ROLE_OTHER && is_path(path) && is_other_state(path))
    *role = state_role(text);
  else if (is_state)
    *role = CKPT_ROLE_OTHER;
  return CKPT_OK;
}
