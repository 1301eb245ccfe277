/* objects.c - what of a ZeRO checkpoint is no tensor, under the keys of object.h.
 *
 * The groups of the optimizer, which hold one row of elements each, say again which parameters are theirs. Numbers and
 * texts at the top of the model file are the trainer's state; what client_state put beside them keeps its key. The
 * configuration and the layout of the ranks are not carried: they are of the run that was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"

typedef unsigned long long ull;

/* Of which no other format knows, or which stand elsewhere in the index. */
static const char *const own_keys[] = {"module",
                                       "buffer_names",
                                       "optimizer",
                                       "param_shapes",
                                       "shared_params",
                                       "frozen_param_shapes",
                                       "lr_scheduler",
                                       "ds_config",
                                       "frozen_param_fragments",
                                       "ds_version",
                                       "dp_world_size",
                                       "mp_world_size",
                                       "num_experts",
                                       "ds_autoep_layers",
                                       "autoep_layers",
                                       CKPT_ZERO_RULES,
                                       "checkpoint_parallel_dimensions",
                                       "sparse_tensor_module_names",
                                       "csr_tensor_module_names"};

bool ckpt_zero_is_own(const char *key, size_t n) {
  for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
    if (strlen(own_keys[i]) == n && memcmp(own_keys[i], key, n) == 0) return true;
  return false;
}

/* Keys of object.h. */
static bool is_ours(const char *key) {
  static const char *const keys[] = {CKPT_TORCH_OBJECT,      CKPT_STATE_PARAM_GROUPS, CKPT_STATE_SCHEDULER,
                                     CKPT_STATE_LOSS_SCALER, CKPT_STATE_RNG,          CKPT_STATE_TRAINER};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

const char *ckpt_zero_client_key(const char *key) {
  const size_t n = sizeof CKPT_STATE_CLIENT - 1;
  return strncmp(key, CKPT_STATE_CLIENT, n) == 0 && is_ours(key + n) ? key + n : NULL;
}

const char *ckpt_zero_client_name(const char *key, ckpt_arena *arena) {
  return is_ours(key) ? ckpt_arena_printf(arena, CKPT_STATE_CLIENT "%s", key) : key;
}

static ckpt_status add_object(ckpt_zero *zero, const char *key, const ckpt_object *value, ckpt_error *err) {
  if (value == NULL || value->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  CKPT_TRY_ALLOC(ckpt_object_put(&zero->index->arena, zero->index->objects, key, value), err);
  return CKPT_OK;
}

enum { MAX_GROUPS = 4096, MAX_ENTRIES = 64 }; /* of an optimizer, of each: more are not carried */

/* ---- the optimizer's groups -------------------------------------------------------------------------------------- */

/* The first parameter of a shard in partition number k or a later one: they are in that order. */
static uint32_t first_of(const ckpt_zero *zero, const ckpt_zero_shard *shard, uint64_t k) {
  uint32_t low = shard->first_param, high = low + shard->n_params;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (zero->params[middle].group < k)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Names in the order of the model: with round-robin gradients param_shapes has another one than the optimizer, and of
 * experts params have one rank's after the other's. */
static int compare_places(const void *a, const void *b, void *arg) {
  const ckpt_zero_param *x = ckpt_zero_find_any(arg, (*(ckpt_object *const *)a)->text);
  const ckpt_zero_param *y = ckpt_zero_find_any(arg, (*(ckpt_object *const *)b)->text);
  return (x->number > y->number) - (x->number < y->number);
}

/* Appends the names of a shard's parameters in partition k, but for copies. */
static ckpt_status append_names(ckpt_zero *zero, ckpt_object *names, const ckpt_zero_shard *shard, uint64_t k,
                                ckpt_error *err) {
  for (uint32_t p = first_of(zero, shard, k); p < first_of(zero, shard, k + 1); p++) {
    const char *name = zero->params[p].name;
    if (zero->params[p].is_other) continue;
    CKPT_TRY_ALLOC(names->items[names->n++] = ckpt_object_text(&zero->index->arena, name, strlen(name)), err);
  }
  return CKPT_OK;
}

/* A partition that the params of the optimizer's group number g say; UINT64_MAX: none. Without ZeRO it is the group. */
static uint64_t partition_of(const ckpt_zero *zero, const ckpt_object *params, uint64_t g, uint64_t i) {
  const int64_t k = zero->stage == 0 ? (int64_t)g : ckpt_zero_number(params->items[i]);
  return k < 0 || k >= zero->n_groups ? UINT64_MAX : (uint64_t)k;
}

/* What no group has said to be its own yet: a file can share one list among thousands of groups. */
typedef struct unclaimed {
  uint64_t n_partitions, n_names;
} unclaimed;

/* The names of a group's parameters, of one stage of a pipeline after the other; its params themselves where they say
 * more than there are left. */
static ckpt_status name_params(ckpt_zero *zero, ckpt_object **out, const ckpt_object *params, uint64_t g,
                               unclaimed *left, ckpt_error *err) {
  const uint64_t n_partitions = zero->stage == 0 ? 1 : params->n;
  uint64_t n = 0;
  for (uint32_t s = 0; s < zero->n_shards; s++) {
    const ckpt_zero_shard *of = &zero->shards[s];
    if (n_partitions > of->n_shapes || of->n_shapes != zero->n_groups) return CKPT_OK;
    for (uint64_t i = 0; i < n_partitions && n <= left->n_names; i++) {
      const uint64_t k = partition_of(zero, params, g, i);
      if (k != UINT64_MAX) n += first_of(zero, of, k + 1) - first_of(zero, of, k);
    }
  }
  if (n > left->n_names) return CKPT_OK;
  left->n_names -= n;
  ckpt_object *names = *out = ckpt_object_new(&zero->index->arena, CKPT_OBJECT_LIST, n, NULL);
  CKPT_TRY_ALLOC(names, err);
  names->n = 0;
  for (uint32_t s = 0; s < zero->n_shards; s++)
    for (uint64_t i = 0; i < n_partitions; i++) {
      const uint64_t k = partition_of(zero, params, g, i);
      if (k != UINT64_MAX) CKPT_TRY(append_names(zero, names, &zero->shards[s], k, err));
    }
  if ((zero->is_round_robin || zero->n_experts != 0) && names->n > 1)
    qsort_r(names->items, (size_t)names->n, sizeof *names->items, compare_places, zero);
  return CKPT_OK;
}

ckpt_status ckpt_zero_same_groups(const ckpt_object *groups, const ckpt_object *first, const char *path,
                                  ckpt_error *err) {
  uint64_t n_left = 1u << 20; /* nodes: a group has a few numbers and texts */
  if (groups == NULL || first == NULL || groups->kind != CKPT_OBJECT_LIST || first->kind != CKPT_OBJECT_LIST)
    return CKPT_OK;
  if (groups->n != first->n)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "%llu groups of the optimizer, and the first file has %llu",
                     (ull)groups->n, (ull)first->n);
  for (uint64_t g = 0; g < first->n && first->n <= MAX_GROUPS; g++) {
    const ckpt_object *mine = groups->items[g], *of = first->items[g];
    if (mine->kind != CKPT_OBJECT_DICT || of->kind != CKPT_OBJECT_DICT) continue;
    if (mine->n > MAX_ENTRIES && of->n > MAX_ENTRIES) continue;
    if (mine->n > of->n) of = mine, mine = first->items[g];
    for (uint64_t i = 0; i < of->n; i++) {
      const ckpt_object *key = of->items[2 * i], *value = of->items[2 * i + 1];
      if (key->kind != CKPT_OBJECT_TEXT || strcmp(key->text, "params") == 0) continue;
      const ckpt_object *other = ckpt_object_field(mine, key->text);
      bool is_same = other != NULL && other->kind == CKPT_OBJECT_TENSOR && value->kind == CKPT_OBJECT_TENSOR;
      if (other != NULL && !is_same) CKPT_TRY(ckpt_object_compare(&is_same, value, other, &n_left, err));
      if (is_same) continue;
      return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL,
                       "another %.200s in group %llu of the optimizer than the first file: it would be lost", key->text,
                       (ull)g);
    }
  }
  return CKPT_OK;
}

/* What the states of a group say as a number; NULL: nothing. */
static ckpt_status find_step(ckpt_zero *zero, const ckpt_object **step, uint64_t number, unclaimed *left,
                             ckpt_error *err) {
  const ckpt_object *params = ckpt_object_get(zero->groups->items[number], "params");
  const bool has_partitions = zero->stage != 0 && params != NULL && params->kind == CKPT_OBJECT_LIST;
  const uint64_t n = has_partitions ? params->n : 1;
  *step = NULL;
  if (zero->steps == NULL || n > left->n_partitions) return CKPT_OK; /* more than there are */
  left->n_partitions -= n;
  for (uint64_t i = 0; i < n; i++)
    CKPT_TRY(ckpt_zero_step_for(zero, has_partitions ? partition_of(zero, params, number, i) : number, step, err));
  return CKPT_OK;
}

/* A group as it is, but for its params, and for a step that its states say: that of FusedAdam's groups stays 0. */
static ckpt_status copy_group(ckpt_zero *zero, ckpt_object **out, uint64_t number, unclaimed *left, ckpt_error *err) {
  const ckpt_object *group = zero->groups->items[number], *step;
  ckpt_object *copy = *out = ckpt_object_new(&zero->index->arena, CKPT_OBJECT_DICT, group->n + 1, NULL);
  CKPT_TRY_ALLOC(copy, err);
  copy->n = 0;
  CKPT_TRY(find_step(zero, &step, number, left, err));
  for (uint64_t i = 0; i < group->n; i++) {
    const ckpt_object *key = group->items[2 * i], *value = group->items[2 * i + 1];
    const bool is_text = key->kind == CKPT_OBJECT_TEXT;
    if (step != NULL && is_text && strcmp(key->text, "step") == 0) continue;
    memcpy(&copy->items[2 * copy->n++], &group->items[2 * i], 2 * sizeof *copy->items);
    if (is_text && strcmp(key->text, "params") == 0 && value->kind == CKPT_OBJECT_LIST)
      CKPT_TRY(name_params(zero, &copy->items[2 * copy->n - 1], value, number, left, err));
  }
  if (step != NULL) CKPT_TRY_ALLOC(ckpt_object_put(&zero->index->arena, copy, "step", step), err);
  return CKPT_OK;
}

/* Says groups that are not carried: without them a run does not go on. */
static ckpt_status note_groups(ckpt_zero *zero, const char *what, uint64_t n, uint64_t most, ckpt_error *err) {
  CKPT_TRY(ckpt_index_note(zero->index, false, err, "not read: the optimizer's groups (%llu %s, at most %llu are)",
                           (ull)n, what, (ull)most));
  ckpt_index_note_left(zero->index, "not read: ");
  return ckpt_index_note_is(zero->index, CKPT_NOTE_STATE_LEFT, NULL, err);
}

static ckpt_status add_groups(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_object *groups = zero->groups;
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST) return CKPT_OK;
  if (groups->n > MAX_GROUPS) return note_groups(zero, "of them", groups->n, MAX_GROUPS, err);
  ckpt_object *copies = ckpt_object_new(&zero->index->arena, CKPT_OBJECT_LIST, groups->n, NULL);
  CKPT_TRY_ALLOC(copies, err);
  unclaimed left = {.n_partitions = zero->n_groups, .n_names = zero->n_params};
  for (uint64_t i = 0; i < groups->n; i++) {
    const ckpt_object *group = groups->items[i];
    if (group->kind != CKPT_OBJECT_DICT) return CKPT_OK;
    if (group->n > MAX_ENTRIES) return note_groups(zero, "entries in one of them", group->n, MAX_ENTRIES, err);
    CKPT_TRY(copy_group(zero, &copies->items[i], i, &left, err));
  }
  return add_object(zero, CKPT_STATE_PARAM_GROUPS, copies, err);
}

ckpt_status ckpt_zero_name_groups(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_object *groups = ckpt_object_get(zero->index->objects, CKPT_STATE_PARAM_GROUPS);
  uint64_t n_left = zero->n_params; /* a file can share one list among thousands of groups */
  for (uint64_t i = 0; groups != NULL && i < groups->n; i++) {
    ckpt_object *params = (ckpt_object *)(uintptr_t)ckpt_object_field(groups->items[i], "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST || params->n > n_left) continue;
    n_left -= params->n;
    CKPT_TRY(ckpt_index_canonical_params(zero->index, params, err));
  }
  return CKPT_OK;
}

/* ---- the top of the model file ----------------------------------------------------------------------------------- */

/* Objects have texts for keys. Says the first that is none. */
static ckpt_status note_keys(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  uint64_t i = 0;
  while (i < root->n && root->items[2 * i]->kind == CKPT_OBJECT_TEXT) i++;
  if (i == root->n) return CKPT_OK;
  const char *key = ckpt_object_print(root->items[2 * i], 64, &zero->index->arena);
  CKPT_TRY_ALLOC(key, err);
  CKPT_TRY(ckpt_index_note(zero->index, false, err, "not read: the key %s of client_state, which is no text", key));
  ckpt_index_note_left(zero->index, "not read: ");
  return ckpt_index_note_is(zero->index, CKPT_NOTE_STATE_LEFT, NULL, err);
}

static bool is_called(const ckpt_tensor *tensor, const char *key) {
  bool is_name = strcmp(tensor->name, key) == 0;
  for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL && !is_name; alias++)
    is_name = strcmp(*alias, key) == 0;
  return is_name;
}

/* A tensor at the top is written under its name, which an empty key is not, nor one that reads as another's path. Says
 * the first. */
static ckpt_status note_names(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  for (uint64_t i = 0; i < root->n; i++) {
    const ckpt_object *key = root->items[2 * i], *value = root->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT || value->kind != CKPT_OBJECT_TENSOR) continue;
    const ckpt_tensor *tensor = &zero->index->tensors[value->tensor];
    if (ckpt_zero_is_own(key->text, (size_t)key->n) || is_called(tensor, key->text)) continue;
    CKPT_TRY(ckpt_index_note(zero->index, false, err,
                             "the key '%.200s' of client_state is lost: its tensor is called %.200s here", key->text,
                             tensor->name));
    return ckpt_index_note_is(zero->index, CKPT_NOTE_STATE_LEFT, NULL, err);
  }
  return CKPT_OK;
}

/* Whether the model computed in bf16, which in stage 3 no tensor says: names of files depend on it. */
static bool is_bf16(const ckpt_zero *zero, const ckpt_object *root) {
  const ckpt_object *config = ckpt_object_get(root, "ds_config");
  const ckpt_object *bf16 = ckpt_object_get(config, "bf16"), *is_on = ckpt_object_get(bf16, "enabled");
  if (zero->optimizers.like != NULL) return strncmp(zero->optimizers.like, "bf16_", 5) == 0;
  return is_on != NULL && is_on->kind == CKPT_OBJECT_BOOL && is_on->boolean;
}

static ckpt_status add_top(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  ckpt_object *trainer = ckpt_object_new(&zero->index->arena, CKPT_OBJECT_DICT, root->n + 1, NULL);
  CKPT_TRY_ALLOC(trainer, err);
  trainer->n = 0;
  CKPT_TRY(note_keys(zero, root, err));
  CKPT_TRY(note_names(zero, root, err));
  for (uint64_t i = 0; i < root->n; i++) {
    const ckpt_object *key = root->items[2 * i], *value = root->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT || ckpt_zero_is_own(key->text, (size_t)key->n)) continue;
    if (value->kind <= CKPT_OBJECT_TEXT) {
      memcpy(&trainer->items[2 * trainer->n++], &root->items[2 * i], 2 * sizeof *root->items);
      continue;
    }
    const char *name = ckpt_zero_client_name(key->text, &zero->index->arena);
    CKPT_TRY_ALLOC(name, err);
    if (value->kind != CKPT_OBJECT_TENSOR) CKPT_TRY(add_object(zero, name, value, err));
  }
  if (is_bf16(zero, root) && ckpt_object_get(trainer, CKPT_TRAINER_BF16) == NULL) {
    ckpt_arena *arena = &zero->index->arena;
    CKPT_TRY_ALLOC(ckpt_object_put(arena, trainer, CKPT_TRAINER_BF16, ckpt_object_bool(arena, true)), err);
  }
  return trainer->n == 0 ? CKPT_OK : add_object(zero, CKPT_STATE_TRAINER, trainer, err);
}

/* The degrees. Files of all data-parallel ranks are there in stages 1 to 3 alone. */
static void set_parallel(ckpt_zero *zero, const ckpt_object *root) {
  const int64_t said = ckpt_zero_number(ckpt_object_get(root, "dp_world_size"));
  const bool is_said = zero->stage == 0 || zero->is_universal;
  ckpt_parallel *of = &zero->index->parallel;
  of->stage = zero->stage;
  of->tensor = zero->n_tensor == 0 ? 1 : zero->n_tensor;
  of->pipeline = zero->n_shards / of->tensor;
  of->data = !is_said ? zero->world : said > 0 && said < UINT16_MAX ? (uint32_t)said : 0;
  of->world = (of->data == 0 ? 1 : of->data) * zero->n_shards;
  of->expert = zero->expert_optimizers.n == 0 ? 1 : zero->expert_optimizers.n;
  for (uint32_t g = 0; zero->n_parts != NULL && g < zero->n_groups; g++)
    if (zero->n_parts[g] > of->expert) of->expert = zero->n_parts[g];
  zero->index->tag = zero->folder[0] == '\0' ? NULL : zero->folder; /* in the index's arena */
}

static ckpt_status set_writer(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  const ckpt_object *version = ckpt_object_get(root, "ds_version");
  bool is_said = version != NULL && version->kind == CKPT_OBJECT_TEXT && version->n < 32;
  const char *kind = zero->is_universal ? "universal, of " : "",
             *of = zero->is_bf16_optimizer ? ", BF16_Optimizer" : "";
  set_parallel(zero, root);
  const uint32_t n_ranks = zero->index->parallel.world;
  char tensor[40] = "";
  if (zero->n_tensor > 1) snprintf(tensor, sizeof tensor, ", %u tensor parallel", zero->n_tensor);
  zero->index->writer =
      ckpt_arena_printf(&zero->index->arena, "DeepSpeed%s%s (%sZeRO stage %u%s, %u rank%s%s)", is_said ? " " : "",
                        is_said ? version->text : "", kind, zero->stage, of, n_ranks, ckpt_plural(n_ranks), tensor);
  CKPT_TRY_ALLOC(zero->index->writer, err);
  zero->index->min_ranks = n_ranks;
  zero->index->step = ckpt_zero_number(ckpt_object_get(root, "global_steps"));
  return CKPT_OK;
}

bool ckpt_zero_is_round_robin(const ckpt_object *root) {
  const ckpt_object *config = ckpt_object_get(ckpt_object_get(root, "ds_config"), "zero_optimization");
  const ckpt_object *said = ckpt_object_get(config, "round_robin_gradients");
  return said != NULL && said->kind == CKPT_OBJECT_BOOL && said->boolean;
}

ckpt_status ckpt_zero_rules_of_whole(ckpt_object **out, const ckpt_object *info, bool has_padding, ckpt_arena *arena,
                                     ckpt_error *err) {
  static const char *const keys[] = {"parameter_with_row_parallelism_patterns", "parameter_with_2_sub_params_cat_dim_0",
                                     "parameter_with_sub_params", "vocabulary_parameter_patterns"};
  enum { N_KEYS = sizeof keys / sizeof *keys };
  ckpt_object *kept = ckpt_object_new(arena, CKPT_OBJECT_DICT, N_KEYS + 1, NULL);
  CKPT_TRY_ALLOC(kept, err);
  kept->n = 0;
  for (uint32_t i = 0; i < N_KEYS - (has_padding ? 1 : 0); i++) {
    const ckpt_object *list = ckpt_object_get(info, keys[i]);
    if (list != NULL && list->kind == CKPT_OBJECT_LIST && list->n != 0)
      CKPT_TRY_ALLOC(ckpt_object_put(arena, kept, keys[i], list), err);
  }
  const ckpt_object *n_rows = ckpt_object_get(info, "original_vocab_size");
  if (kept->n != 0 && n_rows != NULL && n_rows->kind == CKPT_OBJECT_INT)
    CKPT_TRY_ALLOC(ckpt_object_put(arena, kept, "original_vocab_size", n_rows), err);
  *out = kept->n == 0 ? NULL : kept;
  return CKPT_OK;
}

static ckpt_status add_rules(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  ckpt_object *kept;
  CKPT_TRY(ckpt_zero_rules_of_whole(&kept, ckpt_object_get(root, CKPT_ZERO_RULES), !ckpt_zero_goes_by_rules(zero),
                                    &zero->index->arena, err));
  return add_object(zero, CKPT_ZERO_RULES, kept, err);
}

ckpt_status ckpt_zero_set_objects(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  enum { OWN_OBJECTS = 5 };
  zero->index->objects = ckpt_object_new(&zero->index->arena, CKPT_OBJECT_DICT, root->n + OWN_OBJECTS, NULL);
  CKPT_TRY_ALLOC(zero->index->objects, err);
  zero->index->objects->n = 0;
  zero->is_round_robin = ckpt_zero_is_round_robin(root);
  CKPT_TRY(add_groups(zero, err));
  CKPT_TRY(add_object(zero, CKPT_STATE_SCHEDULER, ckpt_object_get(root, "lr_scheduler"), err));
  const ckpt_object *scaler = zero->loss_scaler, *attributes = NULL;
  if (scaler != NULL) attributes = ckpt_object_extra_of(scaler, CKPT_EXTRA_STATE);
  CKPT_TRY(add_object(zero, CKPT_STATE_LOSS_SCALER, attributes == NULL ? scaler : attributes, err));
  CKPT_TRY(add_rules(zero, root, err));
  CKPT_TRY(add_top(zero, root, err));
  return set_writer(zero, root, err);
}
