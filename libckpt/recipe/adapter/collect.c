/* collect.c - the tensors of one adapter by module, and what each module changes in the base: see changes.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/adapter/changes.h"
#include "libckpt/recipe/adapter/models.h"
#include "libckpt/recipe/adapter/parts.h"
#include "libckpt/recipe/quantize/quantized.h"

typedef unsigned long long ull;

/* The end of a refusal: by what method the base is quantized, where config.json and a tensor say so. */
typedef struct quantized_text {
  char text[128];
} quantized_text;

static quantized_text by_method(const ckpt_index *base) {
  quantized_text out = {""};
  ckpt_quantization found;
  if (ckpt_index_quantization(base, &found, NULL) == CKPT_OK && found.is_stated && found.is_present)
    ckpt_c_snprintf(out.text, sizeof out.text, " (the base is quantized, by %s: dequantize it first)",
                    found.method[0] == '\0' ? found.key : found.method);
  return out;
}

/* Blocks of the base are merged too, as the values that they stand for. */
static ckpt_status check_base(const ckpt_adapters *all, const ckpt_tensor *base, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)base->dtype;
  if (ckpt_dtype_is_block(dtype) && all->base->stored_form != NULL) return CKPT_OK;
  if (dtype == CKPT_F32 || dtype == CKPT_F16 || dtype == CKPT_BF16) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "the base's tensor is %s: only f16, bf16 and f32 are merged%s",
                   ckpt_dtype_name(dtype), by_method(all->base).text);
}

/* ---- one module -------------------------------------------------------------------------------------------------- */

static ckpt_adapter_place find_place(const ckpt_adapters *all, const char *wanted) {
  const ckpt_adapter_place place = ckpt_adapter_find(all->base, wanted);
  return place.tensor == NULL ? ckpt_adapters_tied(all, wanted) : place;
}

static ckpt_status refuse_nowhere(const ckpt_adapters *all, const char *wanted, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL, "%s has no '%s', which it is for%s", all->base->path, wanted,
                   by_method(all->base).text);
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

ckpt_status ckpt_change_set_scale(ckpt_change *change, const ckpt_adapters *all, const char *path, double n_times,
                                  ckpt_error *err) {
  ckpt_opened_adapter *adapter = &all->list[change->adapter];
  CKPT_TRY(ckpt_peft_scale(&adapter->peft, path, change->rank, &change->scale, err));
  change->scale *= n_times * adapter->scale;
  if (isfinite((float)change->scale)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "its scale is %g, which no f32 holds (lora_alpha / r, times %g)",
                   change->scale, adapter->scale);
}

/* Experts of which one pair has the factors, or nothing. */
static ckpt_status add_experts(ckpt_adapters *all, const ckpt_change *change, ckpt_error *err) {
  bool is_found;
  char wanted[CKPT_ADAPTER_NAME + 8];
  CKPT_TRY(ckpt_change_experts(&is_found, all, change, err));
  if (is_found) return CKPT_OK;
  ckpt_c_snprintf(wanted, sizeof wanted, "%s.weight", change->module);
  return refuse_nowhere(all, wanted, err);
}

/* PEFT adds the update of this layer twice where it wraps an attention of torch's: once with the attention's own, and
 * once more through the layer's merge(). Its forward() does so too. Source: MultiheadAttention.merge. */
static double times_added(const ckpt_adapters *all, const ckpt_adapter_pair *pair) {
  char module[CKPT_ADAPTER_NAME + 32], weight[CKPT_ADAPTER_NAME + 32];
  if (pair->wrapper == NULL) return 1;
  ckpt_c_snprintf(module, sizeof module, "%s.out_proj", pair->wrapper);
  ckpt_c_snprintf(weight, sizeof weight, "%s.in_proj_weight", pair->wrapper);
  return strcmp(pair->module, module) == 0 && find_place(all, weight).tensor != NULL ? 2 : 1;
}

/* Factors of a matrix are matrices. */
static ckpt_status check_axes(const ckpt_change *change, ckpt_error *err) {
  const uint32_t in = change->input->rank, out = change->output->rank;
  if (change->base->rank != 2 || (in == 2 && out == 2)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its lora_A has %u axes and lora_B %u, and '%s' is a matrix", in, out,
                   change->name);
}

static ckpt_status add_pair(ckpt_adapters *all, uint32_t number, const ckpt_adapter_pair *pair, ckpt_error *err) {
  ckpt_opened_adapter *adapter = &all->list[number];
  ckpt_change change = {.adapter = number,
                        .module = pair->module,
                        .input = pair->input,
                        .output = pair->output,
                        .magnitude = pair->magnitude,
                        .is_embedding = pair->is_embedding},
              *added;
  CKPT_TRY(ckpt_adapter_check_pair(pair, &adapter->peft, err));
  CKPT_TRY(find_weight(&change, all, err));
  if (change.base == NULL) return add_experts(all, &change, err);
  CKPT_TRY(check_axes(&change, err));
  CKPT_TRY(ckpt_change_check_target(all, &change, pair->wrapper, err));
  change.rank = pair->input->shape[0];
  CKPT_TRY(ckpt_change_set_scale(&change, all, pair->module, times_added(all, pair), err));
  return ckpt_change_add(&added, all, &change, err);
}

static ckpt_status add_bias(ckpt_adapters *all, uint32_t number, const ckpt_adapter_pair *pair, ckpt_error *err) {
  ckpt_change change = {.adapter = number, .module = pair->module, .bias = pair->bias}, *added, scaled;
  char wanted[CKPT_ADAPTER_NAME + 8];
  if (pair->output == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the lora_B of this module is missing");
  ckpt_c_snprintf(wanted, sizeof wanted, "%s.bias", pair->module);
  CKPT_TRY(set_place(&change, all, wanted, err));
  scaled = change;
  scaled.rank = pair->output->shape[1];
  CKPT_TRY(ckpt_change_set_scale(&scaled, all, pair->module, 1, err));
  change.scale = scaled.scale;
  return ckpt_change_add(&added, all, &change, err);
}

/* Whether a tensor of the adapter is the base's. What PEFT saves of the base beside an update is so once it is rounded
 * to the base's dtype; what was trained has to be so in either's. */
static ckpt_status is_of_base(bool *same, const ckpt_adapters *all, uint32_t number, const ckpt_adapter_tensor *item,
                              const ckpt_tensor *base, ckpt_error *err) {
  const ckpt_index *index = all->list[number].index;
  const bool is_wide = base->dtype == CKPT_F32;
  *same = ckpt_tensor_same_shape(base, item->tensor) && !ckpt_dtype_is_block((ckpt_dtype)base->dtype);
  if (*same && (is_wide || item->is_below || base->dtype == item->tensor->dtype || item->tensor->dtype != CKPT_F32))
    CKPT_TRY(ckpt_same_values(same, all->base, base, index, item->tensor, false, err));
  if (*same && !is_wide && !item->is_below && base->dtype != item->tensor->dtype)
    CKPT_TRY(ckpt_same_values(same, index, item->tensor, all->base, base, false, err));
  return CKPT_OK;
}

/* A tensor that takes another's place, or is one that the base lacks: the head of another task. */
static ckpt_status add_whole(ckpt_adapters *all, uint32_t number, const ckpt_adapter_tensor *item, ckpt_error *err) {
  ckpt_change change = {.adapter = number, .module = item->module, .whole = item->tensor, .is_below = item->is_below},
              *added;
  const ckpt_adapter_place place = find_place(all, item->wanted);
  bool is_same;
  if (place.tensor == NULL) {
    if (!ckpt_peft_saves(&all->list[number].peft, item->wanted)) return refuse_nowhere(all, item->wanted, err);
    change.name = item->wanted;
    CKPT_TRY(ckpt_adapters_new_head(all, number, item->wanted, item->tensor, err));
    return ckpt_change_add(&added, all, &change, err);
  }
  CKPT_TRY(check_base(all, place.tensor, err));
  change.base = place.tensor;
  change.name = place.name;
  CKPT_TRY(is_of_base(&is_same, all, number, item, place.tensor, err));
  if (is_same) all->is_given[place.tensor - all->base->tensors] = true;
  if (is_same) return CKPT_OK;
  if (item->is_below)
    CKPT_TRY(ckpt_adapters_note(all, err, "%s: '%s' is not what the base has, and takes its place",
                                all->list[number].index->path, item->tensor->name));
  return ckpt_change_add(&added, all, &change, err);
}

/* Integers of a module that is saved whole are the base's. */
static ckpt_status check_integers(const ckpt_adapters *all, uint32_t number, const ckpt_adapter_tensor *item,
                                  ckpt_error *err) {
  const ckpt_tensor *base = find_place(all, item->wanted).tensor, *own = item->tensor;
  if (base == NULL || base->dtype != own->dtype || !ckpt_tensor_same_shape(base, own))
    return ckpt_adapter_check_dtype(own, err);
  uint8_t *values = reallocarray(NULL, 2, (size_t)own->n_bytes + 1);
  CKPT_TRY_ALLOC(values, err);
  uint8_t *of_base = values + own->n_bytes;
  ckpt_status status = ckpt_read(all->list[number].index, own, NULL, (ckpt_dtype)own->dtype, values, own->n_bytes, err);
  if (status == CKPT_OK) status = ckpt_read(all->base, base, NULL, (ckpt_dtype)own->dtype, of_base, own->n_bytes, err);
  const bool is_same = status == CKPT_OK && memcmp(values, of_base, (size_t)own->n_bytes) == 0;
  free(values);
  if (status != CKPT_OK) return status;
  if (is_same) all->is_given[base - all->base->tensors] = true;
  return is_same ? CKPT_OK : ckpt_adapter_check_dtype(own, err);
}

static ckpt_status add_rows(ckpt_adapters *all, uint32_t number, const ckpt_adapter_tensor *item, ckpt_error *err) {
  ckpt_change change = {.adapter = number, .module = item->module, .rows = item->tensor}, *added;
  CKPT_TRY(set_place(&change, all, item->wanted, err));
  return ckpt_change_add(&added, all, &change, err);
}

/* A tensor that is no part of an update. */
static ckpt_status add_other(ckpt_adapters *all, uint32_t number, const ckpt_adapter_tensors *found,
                             const ckpt_adapter_tensor *item, ckpt_error *err) {
  if (item->part == CKPT_ADAPTER_ROWS) return add_rows(all, number, item, err);
  CKPT_TRY(ckpt_adapter_check_whole(found, item, &all->list[number].peft, err));
  if (ckpt_adapter_is_integer(item->tensor)) return check_integers(all, number, item, err);
  return add_whole(all, number, item, err);
}

/* The tensors [at, end) of one module. */
static ckpt_status take_module(ckpt_adapters *all, uint32_t number, const ckpt_adapter_tensors *found,
                               const ckpt_adapter_tensor *at, const ckpt_adapter_tensor *end, ckpt_error *err) {
  const char *path = all->list[number].index->path;
  ckpt_adapter_pair pair;
  CKPT_TRY(ckpt_fail_at(ckpt_adapter_gather(&pair, &at, end, err), err, path, NULL));
  if (pair.bias != NULL) CKPT_TRY(ckpt_fail_at(add_bias(all, number, &pair, err), err, path, pair.bias->name));
  if (ckpt_adapter_is_pair(&pair))
    CKPT_TRY(ckpt_fail_at(add_pair(all, number, &pair, err), err, path, ckpt_adapter_pair_tensor(&pair)->name));
  for (; at < end; at++) CKPT_TRY(ckpt_fail_at(add_other(all, number, found, at, err), err, path, at->tensor->name));
  return CKPT_OK;
}

ckpt_status ckpt_changes_collect(ckpt_adapters *all, uint32_t number, ckpt_error *err) {
  const ckpt_index *index = all->list[number].index;
  ckpt_adapter_tensors found = {0};
  ckpt_status status = CKPT_OK;
  const uint32_t n_before = all->n_changes;
  all->is_given = calloc((size_t)all->base->n_tensors + 1, sizeof *all->is_given);
  CKPT_TRY_ALLOC(all->is_given, err);
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue; /* a trainer's states of it */
    CKPT_TRY_GOTO(ckpt_fail_at(ckpt_adapter_take(&found, &all->arena, tensor, err), err, index->path, tensor->name));
  }
  if (found.n_ignored != 0)
    CKPT_TRY_GOTO(ckpt_adapters_note(all, err, "%s: ignores %u tensor%s of original_module, which the base has",
                                     index->path, found.n_ignored, ckpt_plural(found.n_ignored)));
  ckpt_adapter_sort(&found);
  for (uint32_t first = 0, end; first < found.n; first = end) {
    end = ckpt_adapter_module_end(&found, first);
    CKPT_TRY_GOTO(take_module(all, number, &found, found.items + first, found.items + end, err));
  }
  status = ckpt_changes_check_given(all, number, n_before, err);
done:
  free(found.items);
  free(all->is_given);
  all->is_given = NULL;
  return status;
}
