/* collect.c - the tensors of one adapter by module, and what each module changes in the base: see changes.h. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/adapter/changes.h"

typedef unsigned long long ull;

/* A tensor of the adapter, and what its name says. */
typedef struct part {
  const char *module, *wanted;
  const ckpt_tensor *tensor;
  uint32_t n_below;
  ckpt_adapter_part part;
  bool is_embedding, is_below;
} part;

typedef struct parts {
  part *items;
  uint32_t n, capacity;
} parts;

static int by_module(const void *x, const void *y) {
  const part *a = x, *b = y;
  int by = strcmp(a->module, b->module);
  if (by == 0) by = a->n_below < b->n_below ? -1 : a->n_below > b->n_below;
  return by != 0 ? by : a->part < b->part ? -1 : a->part > b->part;
}

static ckpt_status check_dtype(const ckpt_tensor *tensor, const char *what, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  if (dtype == CKPT_F32 || dtype == CKPT_F16 || dtype == CKPT_BF16) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "the %s is %s: only f16, bf16 and f32 are merged", what,
                   ckpt_dtype_name(dtype));
}

/* Of the base blocks are merged too, as what they stand for. */
static ckpt_status check_base(const ckpt_adapters *all, const ckpt_tensor *base, ckpt_error *err) {
  if (ckpt_dtype_is_block((ckpt_dtype)base->dtype) && all->base->stored_form != NULL) return CKPT_OK;
  return check_dtype(base, "base's tensor", err);
}

static ckpt_status take_part(parts *to, ckpt_adapters *all, const ckpt_tensor *tensor, ckpt_error *err) {
  ckpt_adapter_name name;
  CKPT_TRY(ckpt_adapter_name_parse(&name, tensor->name, err));
  if (name.is_ignored) return CKPT_OK;
  CKPT_TRY(check_dtype(tensor, "adapter's tensor", err));
  if (tensor->n_elements == 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "has no elements: ZeRO-3 and FSDP leave it so where weights were not gathered before saving");
  CKPT_TRY(ckpt_grow(&to->items, to->n, &to->capacity, sizeof *to->items, err));
  part *item = &to->items[to->n];
  *item = (part){.tensor = tensor,
                 .part = name.part,
                 .is_embedding = name.is_embedding,
                 .is_below = name.is_below,
                 .n_below = name.n_below};
  item->module = ckpt_arena_copy(&all->arena, name.module);
  item->wanted = ckpt_arena_copy(&all->arena, name.wanted);
  CKPT_TRY_ALLOC(item->module, err);
  CKPT_TRY_ALLOC(item->wanted, err);
  to->n++;
  return CKPT_OK;
}

/* ---- one module -------------------------------------------------------------------------------------------------- */

static ckpt_adapter_place find_place(const ckpt_adapters *all, const char *wanted) {
  const ckpt_adapter_place place = ckpt_adapter_find(all->base, wanted);
  return place.tensor == NULL && all->head.tensor != NULL && strcmp(all->head.name, wanted) == 0 ? all->head : place;
}

static ckpt_status refuse_nowhere(const ckpt_adapters *all, const char *wanted, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL, "%s has no '%s', which it is for", all->base->path, wanted);
}

static ckpt_status set_place(ckpt_change *change, const ckpt_adapters *all, const char *wanted, ckpt_error *err) {
  const ckpt_adapter_place place = find_place(all, wanted);
  if (place.tensor == NULL) return refuse_nowhere(all, wanted, err);
  CKPT_TRY(check_base(all, place.tensor, err));
  change->base = place.tensor;
  change->name = place.name;
  return CKPT_OK;
}

/* What a checkpoint of the bare model lacks in its names. */
static ckpt_status learn_prefix(ckpt_adapters *all, const ckpt_change *change, const char *wanted, ckpt_error *err) {
  const size_t n = strlen(wanted), n_name = strlen(change->name);
  if (all->prefix != NULL || n <= n_name || strcmp(wanted + n - n_name, change->name) != 0) return CKPT_OK;
  all->prefix = ckpt_arena_text(&all->arena, wanted, n - n_name);
  CKPT_TRY_ALLOC(all->prefix, err);
  return CKPT_OK;
}

/* The first `.weight` of the module that the base has; that of an attention is called otherwise. */
static ckpt_status find_weight(ckpt_change *change, ckpt_adapters *all, ckpt_error *err) {
  static const char *const leaves[] = {"weight", "in_proj_weight"};
  char wanted[CKPT_ADAPTER_NAME + 32];
  change->base = NULL;
  for (size_t i = 0; i < sizeof leaves / sizeof *leaves && change->base == NULL; i++) {
    ckpt_c_snprintf(wanted, sizeof wanted, "%s.%s", change->module, leaves[i]);
    const ckpt_adapter_place place = find_place(all, wanted);
    change->base = place.tensor;
    change->name = place.name;
  }
  if (change->base == NULL) return CKPT_OK;
  CKPT_TRY(learn_prefix(all, change, wanted, err));
  return check_base(all, change->base, err);
}

/* The rank of a pair's factors: of all experts together, where they are such. */
static ckpt_status check_pair(const ckpt_change *pair, ckpt_error *err) {
  if (pair->input == NULL || pair->output == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the %s of this module is missing",
                     pair->input == NULL ? "lora_A" : "lora_B");
  if (pair->input->rank < 2 || pair->output->rank < 2)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "is no matrix (%u axes)",
                     pair->input->rank < 2 ? pair->input->rank : pair->output->rank);
  if (pair->output->shape[1] != pair->input->shape[0])
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its rank is %llu, that of '%s' %llu", (ull)pair->output->shape[1],
                     pair->input->name, (ull)pair->input->shape[0]);
  return CKPT_OK;
}

static ckpt_status add_pair(ckpt_adapters *all, ckpt_change pair, ckpt_error *err) {
  ckpt_change *change;
  CKPT_TRY(check_pair(&pair, err));
  CKPT_TRY(find_weight(&pair, all, err));
  if (pair.base == NULL) {
    bool is_found;
    char wanted[CKPT_ADAPTER_NAME + 8];
    CKPT_TRY(ckpt_change_experts(&is_found, all, &pair, err));
    if (is_found) return CKPT_OK;
    ckpt_c_snprintf(wanted, sizeof wanted, "%s.weight", pair.module);
    return refuse_nowhere(all, wanted, err);
  }
  pair.rank = pair.input->shape[0];
  CKPT_TRY(ckpt_peft_scale(&all->list[pair.adapter].peft, pair.module, pair.rank, &pair.scale, err));
  pair.scale *= all->list[pair.adapter].scale;
  return ckpt_change_add(&change, all, &pair, err);
}

static ckpt_status add_bias(ckpt_adapters *all, const ckpt_change *pair, const part *item, ckpt_error *err) {
  ckpt_change change = {.adapter = pair->adapter, .module = pair->module, .bias = item->tensor}, *added;
  if (pair->output == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the lora_B of this module is missing");
  CKPT_TRY(set_place(&change, all, item->wanted, err));
  CKPT_TRY(ckpt_peft_scale(&all->list[pair->adapter].peft, pair->module, pair->output->shape[1], &change.scale, err));
  change.scale *= all->list[pair->adapter].scale;
  return ckpt_change_add(&added, all, &change, err);
}

/* A tensor that takes another's place, or is one that the base lacks: the head of another task. */
static ckpt_status add_whole(ckpt_adapters *all, uint32_t number, const part *item, ckpt_error *err) {
  ckpt_change change = {.adapter = number, .module = item->module, .whole = item->tensor}, *added;
  const ckpt_adapter_place place = find_place(all, item->wanted);
  bool is_saved, is_same = false;
  if (place.tensor == NULL) {
    CKPT_TRY(ckpt_peft_saves(&is_saved, &all->list[number].peft, item->wanted, err));
    if (!is_saved) return refuse_nowhere(all, item->wanted, err);
    change.name = item->wanted;
    CKPT_TRY(ckpt_adapters_new_head(all, number, item->wanted, item->tensor, err));
    return ckpt_change_add(&added, all, &change, err);
  }
  CKPT_TRY(check_base(all, place.tensor, err));
  change.base = place.tensor;
  change.name = place.name;
  if (ckpt_tensor_same_shape(place.tensor, item->tensor) && !ckpt_dtype_is_block((ckpt_dtype)place.tensor->dtype))
    CKPT_TRY(ckpt_same_values(&is_same, all->base, place.tensor, all->list[number].index, item->tensor, false, err));
  if (is_same) return CKPT_OK;
  if (item->is_below)
    CKPT_TRY(ckpt_adapters_note(all, err, "%s: '%s' is not what the base has, and takes its place",
                                all->list[number].index->path, item->tensor->name));
  return ckpt_change_add(&added, all, &change, err);
}

static ckpt_status add_rows(ckpt_adapters *all, uint32_t number, const part *item, ckpt_error *err) {
  ckpt_change change = {.adapter = number, .module = item->module, .rows = item->tensor}, *added;
  CKPT_TRY(set_place(&change, all, item->wanted, err));
  return ckpt_change_add(&added, all, &change, err);
}

/* The parts [first, end) of one module. */
static ckpt_status take_module(ckpt_adapters *all, uint32_t number, const part *first, const part *end,
                               ckpt_error *err) {
  const char *path = all->list[number].index->path;
  ckpt_change pair = {.adapter = number, .module = first->module};
  const part *at = first;
  for (; at < end && at->part <= CKPT_ADAPTER_BIAS; at++) {
    const ckpt_tensor **places[] = {&pair.input, &pair.output, &pair.magnitude, &pair.bias};
    if (*places[at->part] != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, path, at->tensor->name, "'%s' says the same of '%s'",
                       (*places[at->part])->name, at->wanted);
    *places[at->part] = at->tensor;
    pair.is_embedding = pair.is_embedding || at->is_embedding;
    if (at->part == CKPT_ADAPTER_BIAS)
      CKPT_TRY(ckpt_fail_at(add_bias(all, &pair, at, err), err, path, at->tensor->name));
  }
  pair.bias = NULL;
  if (pair.input != NULL || pair.output != NULL || pair.magnitude != NULL)
    CKPT_TRY(ckpt_fail_at(add_pair(all, pair, err), err, path, ckpt_change_tensor(&pair)->name));
  for (; at < end; at++) {
    ckpt_status status =
        at->part == CKPT_ADAPTER_ROWS ? add_rows(all, number, at, err) : add_whole(all, number, at, err);
    CKPT_TRY(ckpt_fail_at(status, err, path, at->tensor->name));
  }
  return CKPT_OK;
}

static bool is_one_module(const part *a, const part *b) {
  return a->n_below == b->n_below && strcmp(a->module, b->module) == 0;
}

ckpt_status ckpt_changes_collect(ckpt_adapters *all, uint32_t number, ckpt_error *err) {
  const ckpt_index *index = all->list[number].index;
  parts found = {0};
  ckpt_status status = CKPT_OK;
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    CKPT_TRY_GOTO(ckpt_fail_at(take_part(&found, all, tensor, err), err, index->path, tensor->name));
  }
  if (found.n != 0) qsort(found.items, found.n, sizeof *found.items, by_module);
  for (uint32_t first = 0, end; first < found.n; first = end) {
    for (end = first + 1; end < found.n && is_one_module(&found.items[first], &found.items[end]);) end++;
    CKPT_TRY_GOTO(take_module(all, number, found.items + first, found.items + end, err));
  }
done:
  free(found.items);
  return status;
}
