/* parts.c - see parts.h. */
#include "libckpt/recipe/adapter/parts.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef unsigned long long ull;

static ckpt_status check_tensor(const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  if (dtype != CKPT_F32 && dtype != CKPT_F16 && dtype != CKPT_BF16)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "the adapter's tensor is %s: only f16, bf16 and f32 are merged", ckpt_dtype_name(dtype));
  if (tensor->n_elements != 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "has no elements: ZeRO-3 and FSDP leave it so where weights were not gathered before saving");
}

ckpt_status ckpt_adapter_take(ckpt_adapter_tensors *to, ckpt_arena *arena, const ckpt_tensor *tensor, ckpt_error *err) {
  ckpt_adapter_name name;
  CKPT_TRY(ckpt_adapter_name_parse(&name, tensor->name, err));
  if (name.is_ignored) return CKPT_OK;
  CKPT_TRY(check_tensor(tensor, err));
  CKPT_TRY(ckpt_grow(&to->items, to->n, &to->capacity, sizeof *to->items, err));
  ckpt_adapter_tensor *item = &to->items[to->n];
  *item = (ckpt_adapter_tensor){.tensor = tensor,
                                .part = name.part,
                                .is_embedding = name.is_embedding,
                                .is_below = name.is_below,
                                .n_below = name.n_below};
  item->module = ckpt_arena_copy(arena, name.module);
  item->wanted = ckpt_arena_copy(arena, name.wanted);
  CKPT_TRY_ALLOC(item->module, err);
  CKPT_TRY_ALLOC(item->wanted, err);
  if (name.n_wrapper != 0) {
    item->wrapper = ckpt_arena_text(arena, name.module, name.n_wrapper);
    CKPT_TRY_ALLOC(item->wrapper, err);
  }
  to->n++;
  return CKPT_OK;
}

static int by_module(const void *x, const void *y) {
  const ckpt_adapter_tensor *a = x, *b = y;
  int by = strcmp(a->module, b->module);
  if (by == 0) by = a->n_below < b->n_below ? -1 : a->n_below > b->n_below;
  return by != 0 ? by : a->part < b->part ? -1 : a->part > b->part;
}

void ckpt_adapter_sort(ckpt_adapter_tensors *tensors) {
  if (tensors->n != 0) qsort(tensors->items, tensors->n, sizeof *tensors->items, by_module);
}

uint32_t ckpt_adapter_module_end(const ckpt_adapter_tensors *tensors, uint32_t first) {
  const ckpt_adapter_tensor *a = &tensors->items[first];
  uint32_t end = first + 1;
  while (end < tensors->n && tensors->items[end].n_below == a->n_below &&
         strcmp(tensors->items[end].module, a->module) == 0)
    end++;
  return end;
}

ckpt_status ckpt_adapter_gather(ckpt_adapter_pair *out, const ckpt_adapter_tensor **at, const ckpt_adapter_tensor *end,
                                ckpt_error *err) {
  *out = (ckpt_adapter_pair){.module = (*at)->module, .wrapper = (*at)->wrapper};
  for (; *at < end && (*at)->part <= CKPT_ADAPTER_BIAS; ++*at) {
    const ckpt_tensor **places[] = {&out->input, &out->output, &out->magnitude, &out->bias};
    const ckpt_tensor **place = places[(*at)->part];
    if (*place != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, (*at)->tensor->name, "'%s' says the same of '%s'", (*place)->name,
                       (*at)->wanted);
    *place = (*at)->tensor;
    out->is_embedding = out->is_embedding || (*at)->is_embedding;
  }
  return CKPT_OK;
}

bool ckpt_adapter_is_pair(const ckpt_adapter_pair *pair) {
  return pair->input != NULL || pair->output != NULL || pair->magnitude != NULL;
}

const ckpt_tensor *ckpt_adapter_pair_tensor(const ckpt_adapter_pair *pair) {
  const ckpt_tensor *const any[] = {pair->output, pair->input, pair->bias};
  for (size_t i = 0; i < sizeof any / sizeof *any; i++)
    if (any[i] != NULL) return any[i];
  return pair->magnitude;
}

/* The rank of a pair's factors: of all experts together, where they are such. */
static ckpt_status check_factors(const ckpt_tensor *input, const ckpt_tensor *output, ckpt_error *err) {
  if (input == NULL || output == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the %s of this module is missing",
                     output == NULL ? "lora_B" : "lora_A");
  if (input->rank < 2 || output->rank < 2)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "is no matrix (%u axes)",
                     input->rank < 2 ? input->rank : output->rank);
  if (output->shape[1] == input->shape[0]) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its rank is %llu, that of '%s' %llu", (ull)output->shape[1],
                   input->name, (ull)input->shape[0]);
}

ckpt_status ckpt_adapter_check_pair(const ckpt_adapter_pair *pair, const ckpt_peft *peft, ckpt_error *err) {
  CKPT_TRY(check_factors(pair->input, pair->output, err));
  if (peft->has_bias == (pair->bias != NULL) || pair->is_embedding) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the config %s lora_bias, and lora_B's bias of this module is %s",
                   peft->has_bias ? "sets" : "does not set", pair->bias != NULL ? "there" : "missing");
}
