/* parts.c - see parts.h. */
#include "libckpt/recipe/adapter/parts.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef unsigned long long ull;

bool ckpt_adapter_is_integer(const ckpt_tensor *tensor) {
  const ckpt_dtype_kind kind = ckpt_dtype_get(tensor->dtype)->kind;
  return kind == CKPT_KIND_INT || kind == CKPT_KIND_UINT || kind == CKPT_KIND_BOOL;
}

ckpt_status ckpt_adapter_check_dtype(const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  if (dtype == CKPT_F32 || dtype == CKPT_F16 || dtype == CKPT_BF16) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "the adapter's tensor is %s: only f16, bf16 and f32 are merged",
                   ckpt_dtype_name(dtype));
}

/* A module that is saved whole may have integers, as counts of batches: the base's are none of a merge's business. */
static ckpt_status check_tensor(const ckpt_tensor *tensor, bool is_whole, ckpt_error *err) {
  if (!is_whole || !ckpt_adapter_is_integer(tensor)) CKPT_TRY(ckpt_adapter_check_dtype(tensor, err));
  if (tensor->n_elements != 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "has no elements: ZeRO-3 and FSDP leave it so where weights were not gathered before saving");
}

/* What a name of an update's part calls the adapter, between its component and the end; *n 0: nothing. */
static const char *own_name(const char *name, size_t *n) {
  static const char *const parts[] = {".lora_A.",
                                      ".lora_B.",
                                      ".lora_embedding_A.",
                                      ".lora_embedding_B.",
                                      ".lora_magnitude_vector.",
                                      ".trainable_tokens_delta."};
  static const char *const leaves[] = {"weight", "bias"};
  *n = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *at = strstr(name, parts[i]);
    if (at == NULL) continue;
    at += strlen(parts[i]);
    *n = strlen(at);
    for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
      const size_t n_leaf = strlen(leaves[k]);
      if (*n < n_leaf || strcmp(at + *n - n_leaf, leaves[k]) != 0) continue;
      if (*n == n_leaf) *n = 0;
      if (*n > n_leaf && at[*n - n_leaf - 1] == '.') *n -= n_leaf + 1;
      break;
    }
    return at;
  }
  return name;
}

/* A file may have several adapters, where each tensor's name says whose it is: one config is for one. */
static ckpt_status check_own_name(ckpt_adapter_tensors *all, const ckpt_tensor *tensor, ckpt_error *err) {
  size_t n, n_other;
  const char *name = own_name(tensor->name, &n);
  if (n == 0) return CKPT_OK;
  if (all->named == NULL) all->named = tensor;
  const char *other = own_name(all->named->name, &n_other);
  if (n == n_other && memcmp(name, other, n) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "is of the adapter '%.*s', and '%s' of another", (int)n, name,
                   all->named->name);
}

ckpt_status ckpt_adapter_take(ckpt_adapter_tensors *to, ckpt_arena *arena, const ckpt_tensor *tensor, ckpt_error *err) {
  ckpt_adapter_name name;
  CKPT_TRY(ckpt_adapter_name_parse(&name, tensor->name, err));
  if (name.is_ignored) {
    to->n_ignored++;
    return CKPT_OK;
  }
  CKPT_TRY(check_tensor(tensor, name.part == CKPT_ADAPTER_WHOLE, err));
  CKPT_TRY(check_own_name(to, tensor, err));
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

/* Whether factors of a module are among the sorted tensors; of wrappers of parameters, those of the outermost. */
static bool has_factors(const ckpt_adapter_tensors *tensors, const char *module, size_t n_module) {
  uint32_t low = 0, high = tensors->n;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const char *other = tensors->items[middle].module;
    const int by = strncmp(other, module, n_module);
    if (by < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < tensors->n && strncmp(tensors->items[low].module, module, n_module) == 0; low++) {
    const ckpt_adapter_tensor *item = &tensors->items[low];
    if (item->module[n_module] != '\0') return false; /* longer ones follow */
    if (item->part <= CKPT_ADAPTER_MAGNITUDE) return true;
  }
  return false;
}

ckpt_status ckpt_adapter_check_whole(const ckpt_adapter_tensors *tensors, const ckpt_adapter_tensor *item,
                                     const ckpt_peft *peft, ckpt_error *err) {
  const char *leaf = strrchr(item->wanted, '.'), *bias;
  const bool has_leaf = leaf != NULL && (strcmp(leaf, ".weight") == 0 || strcmp(leaf, ".bias") == 0);
  if (item->is_below || !has_leaf || !has_factors(tensors, item->wanted, (size_t)(leaf - item->wanted))) return CKPT_OK;
  if (ckpt_peft_saves(peft, item->wanted)) return CKPT_OK;
  /* versions of PEFT before base_layer saved biases so */
  if (strcmp(leaf, ".bias") == 0 && ckpt_config_text(peft->config, "bias", &bias) && strcmp(bias, "none") != 0)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "PEFT would not load this: the module has factors too, and so it is called %.*s.base_layer%s there",
                   (int)(leaf - item->wanted), item->wanted, leaf);
}
