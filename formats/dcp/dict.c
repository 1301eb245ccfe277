/* dict.c - the dict that was saved, from the planner's paths: nested dicts and lists.
 *
 * Leaves are sorted by path, so that what is below one container lies together, then each container is in stored
 * order. Where two leaves claim one place, or one lies below another, paths are left aside and the dict is as flat as
 * the names. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dict.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/torch/read/graph.h"

enum { MAX_KEYS = 256, MAX_DIGITS = 20, MAX_LOOKS = 1 << 24, MORE_PLACES = 16 };

struct ckpt_dcp_leaf {
  const ckpt_object *name, *path; /* TEXT; TUPLE or LIST of TEXT and INT, NULL: the name is the path */
  ckpt_object *value;
  uint32_t order;
};

/* ---- leaves ---- */

static bool is_key(const ckpt_object *key) {
  return ckpt_dcp_is_name(key) || (key != NULL && key->kind == CKPT_OBJECT_INT);
}

bool ckpt_dcp_is_path(const ckpt_object *path) {
  uint64_t n_bytes = 0;
  if (path == NULL || (path->kind != CKPT_OBJECT_TUPLE && path->kind != CKPT_OBJECT_LIST) || path->n == 0 ||
      path->n > MAX_KEYS)
    return false;
  for (uint64_t i = 0; i < path->n; i++) {
    if (!is_key(path->items[i])) return false;
    n_bytes += path->items[i]->kind == CKPT_OBJECT_TEXT ? path->items[i]->n + 1 : MAX_DIGITS;
  }
  return n_bytes <= CKPT_DCP_NAME_BYTES;
}

ckpt_status ckpt_dcp_dict_add(ckpt_dcp_dict *dict, const ckpt_object *name, const ckpt_object *path, ckpt_object *value,
                              ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&dict->leaves, dict->n, &dict->capacity, sizeof *dict->leaves, err));
  ckpt_dcp_leaf *leaf = &dict->leaves[dict->n];
  *leaf = (ckpt_dcp_leaf){.name = name, .path = ckpt_dcp_is_path(path) ? path : NULL, .value = value, .order = dict->n};
  dict->n_keys += leaf->path == NULL ? 1 : leaf->path->n;
  dict->n++;
  return CKPT_OK;
}

/* ---- order ---- */

static uint64_t n_keys_of(const ckpt_dcp_leaf *leaf) { return leaf->path == NULL ? 1 : leaf->path->n; }

static const ckpt_object *key_of(const ckpt_dcp_leaf *leaf, uint64_t depth) {
  return leaf->path == NULL ? leaf->name : leaf->path->items[depth];
}

static int compare_keys(const ckpt_object *a, const ckpt_object *b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->kind == CKPT_OBJECT_INT) return (a->integer > b->integer) - (a->integer < b->integer);
  int order = memcmp(a->text, b->text, (size_t)(a->n < b->n ? a->n : b->n));
  return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_leaves(const void *x, const void *y) {
  const ckpt_dcp_leaf *a = x, *b = y;
  uint64_t n_a = n_keys_of(a), n_b = n_keys_of(b);
  if (a->path == NULL || a->path != b->path)
    for (uint64_t i = 0; i < n_a && i < n_b; i++) {
      int order = compare_keys(key_of(a, i), key_of(b, i));
      if (order != 0) return order;
    }
  if (n_a != n_b) return n_a < n_b ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

/* Leaves with one key at a depth: leaves[low, high), the first of which was met as number `order`. */
typedef struct member {
  uint32_t low, high, order;
} member;

static int compare_members(const void *x, const void *y) {
  const member *a = x, *b = y;
  return (a->order > b->order) - (a->order < b->order);
}

/* A key's own node, which outlives the metadata. */
static ckpt_object *copy_key(ckpt_dcp_dict *dict, const ckpt_object *key) {
  uint64_t *copy = ckpt_node_map_at(&dict->keys, key);
  if (copy == NULL) return NULL;
  if (*copy == 0)
    *copy = (uintptr_t)(key->kind == CKPT_OBJECT_INT ? ckpt_object_int(dict->arena, key->integer)
                                                     : ckpt_object_text(dict->arena, key->text, key->n));
  return (ckpt_object *)(uintptr_t)*copy;
}

/* Lists the members at a depth in order of keys; *is_list: these are places in a list, of which few can be missing:
 * what was empty there, or was not read; in all lists no more than there are leaves. */
static ckpt_status list_members(ckpt_dcp_dict *dict, uint32_t low, uint32_t high, uint32_t depth, member **out,
                                uint32_t *n, bool *is_list, ckpt_error *err) {
  const ckpt_dcp_leaf *leaves = dict->leaves;
  *n = 1;
  for (uint32_t i = low + 1; i < high; i++)
    *n += compare_keys(key_of(&leaves[i - 1], depth), key_of(&leaves[i], depth)) != 0;
  member *members = *out = reallocarray(NULL, *n, sizeof *members);
  CKPT_TRY_ALLOC(members, err);
  *is_list = true;
  for (uint32_t i = low, k = 0; i < high; k++) {
    const ckpt_object *key = key_of(&leaves[i], depth);
    members[k] = (member){i, i, leaves[i].order};
    for (; i < high && compare_keys(key, key_of(&leaves[i], depth)) == 0; i++)
      if (leaves[i].order < members[k].order) members[k].order = leaves[i].order;
    members[k].high = i;
    *is_list =
        *is_list && key->kind == CKPT_OBJECT_INT && key->integer >= 0 && key->integer < 2 * (int64_t)*n + MORE_PLACES;
  }
  if (!*is_list) return CKPT_OK;
  const uint64_t n_empty = (uint64_t)key_of(&leaves[high - 1], depth)->integer + 1 - *n;
  *is_list = n_empty == 0 || dict->n_empty + n_empty <= (uint64_t)dict->n + MORE_PLACES;
  if (*is_list) dict->n_empty += n_empty;
  return CKPT_OK;
}

/* ---- optimizers ---- */

/* Whether all parameters of an optimizer's groups are numbers. */
static bool are_numbered(ckpt_dcp_dict *dict, const ckpt_object *groups) {
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST || groups->n == 0) return false;
  for (uint64_t g = 0; g < groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(groups->items[g], "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST) return false;
    dict->n_looks += 1 + params->n; /* one list can be that of many groups */
    if (dict->n_looks > MAX_LOOKS) return false;
    for (uint64_t i = 0; i < params->n; i++)
      if (params->items[i]->kind != CKPT_OBJECT_INT) return false;
  }
  return true;
}

/* The planner makes texts of keys: where groups number their parameters, states are by these numbers again, by which
 * load_state_dict finds them. */
static ckpt_status number_states(ckpt_dcp_dict *dict, const ckpt_object *optimizer, ckpt_error *err) {
  enum { MAX_OF_NUMBER = 18 };
  const ckpt_object *state = ckpt_object_field(optimizer, "state");
  if (state == NULL || state->kind != CKPT_OBJECT_DICT || state->n == 0 ||
      !are_numbered(dict, ckpt_object_field(optimizer, "param_groups")))
    return CKPT_OK;
  for (uint64_t i = 0; i < state->n; i++) {
    const ckpt_object *key = state->items[2 * i];
    bool is_number = key->kind == CKPT_OBJECT_TEXT && key->n != 0 && key->n <= MAX_OF_NUMBER &&
                     strspn(key->text, "0123456789") == key->n && (key->n == 1 || key->text[0] != '0');
    if (!is_number) return CKPT_OK;
  }
  for (uint64_t i = 0; i < state->n; i++) {
    ckpt_object **key = &state->items[2 * i];
    CKPT_TRY_ALLOC(*key = ckpt_object_int(dict->arena, strtoll((*key)->text, NULL, 10)), err);
  }
  return CKPT_OK;
}

/* The same of all optimizers in an item: of a planner that does not flatten, which makes texts of keys all the same. */
static ckpt_status number_within(ckpt_dcp_dict *dict, const ckpt_object *value, uint32_t depth, ckpt_error *err) {
  enum { MAX_DEPTH = 16 };
  const bool is_container = value->kind == CKPT_OBJECT_DICT || value->kind == CKPT_OBJECT_LIST;
  if (!is_container || value->mark != TORCH_HOLDS || depth == MAX_DEPTH) return CKPT_OK;
  const uint64_t n = value->kind == CKPT_OBJECT_DICT ? 2 * value->n : value->n;
  if ((dict->n_looks += 1 + n) > MAX_LOOKS) return CKPT_OK;
  for (uint64_t i = 0; i < n; i++) CKPT_TRY(number_within(dict, value->items[i], depth + 1, err));
  return number_states(dict, value, err);
}

/* ---- containers ---- */

/* Keeps a container, whose children are there. */
static ckpt_status keep(ckpt_dcp_dict *dict, ckpt_object *container, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&dict->containers, dict->n_containers, &dict->container_capacity, sizeof *dict->containers, err));
  dict->containers[dict->n_containers++] = container;
  return number_states(dict, container, err);
}

static ckpt_status build(ckpt_dcp_dict *dict, uint32_t low, uint32_t high, uint32_t depth, ckpt_object **out,
                         ckpt_error *err);

/* The same of each member of a container. */
static ckpt_status fill(ckpt_dcp_dict *dict, ckpt_object *container, const member *members, uint32_t n, uint32_t depth,
                        ckpt_error *err) {
  ckpt_object *none = NULL;
  if (container->kind == CKPT_OBJECT_LIST && container->n != n)
    CKPT_TRY_ALLOC(none = ckpt_object_none(dict->arena), err);
  for (uint64_t i = 0; none != NULL && i < container->n; i++) container->items[i] = none;
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_object *key = key_of(&dict->leaves[members[i].low], depth);
    ckpt_object **slot = &container->items[container->kind == CKPT_OBJECT_LIST ? key->integer : 0];
    if (container->kind == CKPT_OBJECT_DICT) {
      CKPT_TRY_ALLOC(container->items[2 * (size_t)i] = copy_key(dict, key), err);
      slot = &container->items[2 * (size_t)i + 1];
    }
    CKPT_TRY(build(dict, members[i].low, members[i].high, depth + 1, slot, err));
  }
  return keep(dict, container, err);
}

/* What leaves[low, high), which agree in their first `depth` keys, are: one value or a container. Goes at most MAX_KEYS
 * deep. */
static ckpt_status build(ckpt_dcp_dict *dict, uint32_t low, uint32_t high, uint32_t depth, ckpt_object **out,
                         ckpt_error *err) {
  if (n_keys_of(&dict->leaves[low]) == depth) {
    dict->is_ambiguous = dict->is_ambiguous || high - low > 1;
    *out = dict->leaves[high - 1].value;
    dict->slots[dict->leaves[high - 1].order] = out;
    return number_within(dict, *out, 0, err);
  }
  member *members = NULL;
  uint32_t n;
  bool is_list = false;
  ckpt_status status;
  CKPT_TRY_GOTO(list_members(dict, low, high, depth, &members, &n, &is_list, err));
  if (!is_list) qsort(members, n, sizeof *members, compare_members);
  const uint64_t n_places = is_list ? (uint64_t)key_of(&dict->leaves[high - 1], depth)->integer + 1 : n;
  *out = ckpt_object_new(dict->arena, is_list ? CKPT_OBJECT_LIST : CKPT_OBJECT_DICT, n_places, NULL);
  if (*out == NULL)
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  else
    status = fill(dict, *out, members, n, depth, err);
done:
  free(members);
  return status;
}

ckpt_status ckpt_dcp_dict_build(ckpt_dcp_dict *dict, ckpt_error *err) {
  if (dict->n == 0) return CKPT_OK;
  CKPT_TRY_ALLOC(dict->slots = reallocarray(NULL, dict->n, sizeof *dict->slots), err);
  dict->is_ambiguous = dict->n_keys > dict->max_keys; /* long paths, many times */
  for (int is_flat = dict->is_ambiguous; is_flat < 2; is_flat++) {
    for (uint32_t i = 0; i < dict->n && is_flat; i++) dict->leaves[i].path = NULL;
    memset(dict->slots, 0, dict->n * sizeof *dict->slots);
    dict->is_ambiguous = false;
    dict->n_containers = 0;
    qsort(dict->leaves, dict->n, sizeof *dict->leaves, compare_leaves);
    CKPT_TRY(build(dict, 0, dict->n, 0, &dict->root, err));
    if (!dict->is_ambiguous) break;
  }
  return CKPT_OK;
}

/* ---- values ---- */

void ckpt_dcp_dict_put(ckpt_dcp_dict *dict, uint32_t leaf, ckpt_object *value) {
  if (dict->slots[leaf] != NULL) *dict->slots[leaf] = value;
}

ckpt_status ckpt_dcp_dict_settle(ckpt_dcp_dict *dict, ckpt_error *err) {
  for (uint32_t i = 0; i < dict->n_containers; i++) {
    ckpt_object *container = dict->containers[i];
    const bool is_list = container->kind == CKPT_OBJECT_LIST;
    uint64_t n = 0;
    for (uint64_t k = 0; k < container->n; k++) {
      if (is_list) {
        if (container->items[k] == NULL) CKPT_TRY_ALLOC(container->items[k] = ckpt_object_none(dict->arena), err);
        continue;
      }
      if (container->items[2 * k + 1] == NULL) continue;
      memmove(&container->items[2 * n++], &container->items[2 * k], 2 * sizeof *container->items);
    }
    if (!is_list) container->n = n;
  }
  return CKPT_OK;
}

void ckpt_dcp_dict_free(ckpt_dcp_dict *dict) {
  free(dict->leaves);
  free(dict->containers);
  free(dict->slots);
  ckpt_node_map_free(&dict->keys);
  *dict = (ckpt_dcp_dict){0};
}
