/* groups.c - an optimizer's parameter groups from a flattened state.
 *
 * PyTorch flattens [{'lr': 0.1, 'params': ['a', 'b']}] to {'param_groups.a.lr': 0.1, 'param_groups.b.lr': 0.1}. Back:
 * entries are sorted by parameter, and parameters whose values are equal are one group again. */
#include "libckpt/codec/torch/state/groups.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

static const char prefix[] = "param_groups.";
enum { N_PREFIX = sizeof prefix - 1, N_RECENT = 8 /* groups that a parameter is compared with */ };
enum { LOOKS_PER_ENTRY = 64, MORE_LOOKS = 1 << 16 }; /* at nodes of values; past that, values are different */

typedef struct entry {
  const char *parameter, *key;
  size_t n_parameter, n_key;
  ckpt_object *value;
  uint64_t order;
} entry;

/* The entries of one parameter. */
typedef struct run {
  const entry *entries;
  uint64_t n, order, group;
} run;

static int compare_entries(const void *x, const void *y) {
  const entry *a = x, *b = y;
  int order = memcmp(a->parameter, b->parameter, a->n_parameter < b->n_parameter ? a->n_parameter : b->n_parameter);
  if (order == 0) order = (a->n_parameter > b->n_parameter) - (a->n_parameter < b->n_parameter);
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static int compare_runs(const void *x, const void *y) {
  const run *a = x, *b = y;
  return (a->order > b->order) - (a->order < b->order);
}

bool ckpt_torch_is_optimizer_key(const char *key) {
  if (strncmp(key, "optim", 5) != 0) return false;
  key += strncmp(key, "optimizer", 9) == 0 ? 9 : 5;
  if (*key == 's') key++;
  if (*key == '_' && key[1] >= '0' && key[1] <= '9') key += 1 + strspn(key + 1, "0123456789");
  return *key == '\0' || strcmp(key, "_state_dict") == 0;
}

bool ckpt_torch_is_flat_optimizer(const ckpt_object *object) {
  static const char state[] = "state.";
  bool has_groups = false;
  if (object == NULL || object->kind != CKPT_OBJECT_DICT) return false;
  for (uint64_t i = 0; i < object->n; i++) {
    const ckpt_object *key = object->items[2 * i];
    if (key->kind != CKPT_OBJECT_TEXT) return false;
    const bool is_group = strncmp(key->text, prefix, N_PREFIX) == 0;
    if (!is_group && strncmp(key->text, state, sizeof state - 1) != 0) return false;
    has_groups = has_groups || is_group;
  }
  return has_groups;
}

/* Takes `param_groups.<parameter>.<key>` apart; the key has no dot. */
static bool take_entry(entry *out, const ckpt_object *key, ckpt_object *value, uint64_t order) {
  enum { MAX_KEY_BYTES = 8192 }; /* keys can share one long text */
  if (key->kind != CKPT_OBJECT_TEXT || key->n <= N_PREFIX || key->n > MAX_KEY_BYTES ||
      memcmp(key->text, prefix, N_PREFIX) != 0)
    return false;
  const char *begin = key->text + N_PREFIX, *dot = memrchr(begin, '.', (size_t)key->n - N_PREFIX);
  if (dot == NULL) return false;
  const char *end = key->text + key->n;
  *out = (entry){begin, dot + 1, (size_t)(dot - begin), (size_t)(end - dot - 1), value, order};
  return true;
}

static ckpt_status compare(bool *is_equal, const run *a, const run *b, uint64_t *n_left, ckpt_error *err) {
  *is_equal = a->n == b->n;
  for (uint64_t i = 0; i < a->n && *is_equal; i++) {
    const entry *x = &a->entries[i], *y = &b->entries[i];
    *is_equal = x->n_key == y->n_key && memcmp(x->key, y->key, x->n_key) == 0;
    if (*is_equal && x->value != y->value) CKPT_TRY(ckpt_object_compare(is_equal, x->value, y->value, n_left, err));
  }
  return CKPT_OK;
}

/* Numbers groups in runs; firsts gets the first run of each. *n_groups: how many there are. */
static ckpt_status find_groups(run *runs, uint64_t n, const run **firsts, uint64_t *n_groups, ckpt_error *err) {
  uint64_t n_left = MORE_LOOKS;
  *n_groups = 0;
  for (uint64_t i = 0; i < n; i++) n_left += LOOKS_PER_ENTRY * runs[i].n;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t recent = *n_groups;
    bool is_known = false;
    while (recent > 0 && *n_groups - recent < N_RECENT && !is_known) {
      CKPT_TRY(compare(&is_known, firsts[recent - 1], &runs[i], &n_left, err));
      if (!is_known) recent--;
    }
    if (!is_known) firsts[*n_groups] = &runs[i];
    runs[i].group = is_known ? recent - 1 : (*n_groups)++;
  }
  return CKPT_OK;
}

/* A group's dict, without its parameters yet: `params` has room for n of them. */
static ckpt_object *make_group(const run *first, uint64_t n, ckpt_arena *arena) {
  ckpt_object *group = ckpt_object_new(arena, CKPT_OBJECT_DICT, first->n + 1, NULL);
  ckpt_object *params = group == NULL ? NULL : ckpt_object_new(arena, CKPT_OBJECT_LIST, n, NULL);
  if (params == NULL) return NULL;
  params->n = 0;
  for (uint64_t i = 0; i < first->n; i++) {
    group->items[2 * i] = ckpt_object_text(arena, first->entries[i].key, first->entries[i].n_key);
    group->items[2 * i + 1] = first->entries[i].value;
    if (group->items[2 * i] == NULL) return NULL;
  }
  group->items[2 * first->n] = ckpt_object_text(arena, "params", 6);
  group->items[2 * first->n + 1] = params;
  return group->items[2 * first->n] == NULL ? NULL : group;
}

static ckpt_status make_groups(ckpt_object **out, run *runs, uint64_t n, ckpt_arena *arena, ckpt_error *err) {
  const run **firsts = reallocarray(NULL, (size_t)n, sizeof *firsts);
  uint64_t *counts = calloc((size_t)n, sizeof *counts);
  ckpt_object *groups = NULL;
  uint64_t n_groups;
  bool is_made = firsts != NULL && counts != NULL && find_groups(runs, n, firsts, &n_groups, err) == CKPT_OK;
  if (is_made) {
    for (uint64_t i = 0; i < n; i++) counts[runs[i].group]++;
    groups = ckpt_object_new(arena, CKPT_OBJECT_LIST, n_groups, NULL);
    is_made = groups != NULL;
    for (uint64_t i = 0; i < n_groups && is_made; i++)
      is_made = (groups->items[i] = make_group(firsts[i], counts[i], arena)) != NULL;
  }
  for (uint64_t i = 0; i < n && is_made; i++) {
    ckpt_object *group = groups->items[runs[i].group], *params = group->items[2 * group->n - 1];
    ckpt_object *name = ckpt_object_text(arena, runs[i].entries[0].parameter, runs[i].entries[0].n_parameter);
    params->items[params->n++] = name;
    is_made = name != NULL;
  }
  free(firsts);
  free(counts);
  *out = groups;
  return is_made ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

ckpt_status ckpt_torch_groups_of(ckpt_object **out, const ckpt_object *optimizer, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *list = ckpt_object_get(optimizer, "param_groups");
  *out = (ckpt_object *)(uintptr_t)list;
  if (list != NULL || optimizer == NULL || optimizer->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  entry *entries = reallocarray(NULL, (size_t)optimizer->n + 1, sizeof *entries);
  run *runs = reallocarray(NULL, (size_t)optimizer->n + 1, sizeof *runs);
  uint64_t n = 0, n_runs = 0;
  ckpt_status status = CKPT_OK;
  if (entries == NULL || runs == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (uint64_t i = 0; i < optimizer->n; i++)
    n += take_entry(&entries[n], optimizer->items[2 * i], optimizer->items[2 * i + 1], i);
  if (n == 0) goto done;
  qsort(entries, (size_t)n, sizeof *entries, compare_entries);
  for (uint64_t i = 0; i < n; i++) {
    const entry *first = n_runs == 0 ? NULL : runs[n_runs - 1].entries;
    bool is_same = first != NULL && first->n_parameter == entries[i].n_parameter &&
                   memcmp(first->parameter, entries[i].parameter, first->n_parameter) == 0;
    if (!is_same) runs[n_runs++] = (run){&entries[i], 0, entries[i].order, 0};
    runs[n_runs - 1].n++;
  }
  qsort(runs, (size_t)n_runs, sizeof *runs, compare_runs);
  status = make_groups(out, runs, n_runs, arena, err);
done:
  free(entries);
  free(runs);
  return status;
}
