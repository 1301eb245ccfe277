/* parts.h - the tensors of one adapter by module, before the base is looked at. */
#ifndef CKPT_RECIPE_ADAPTER_PARTS_H
#define CKPT_RECIPE_ADAPTER_PARTS_H

#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/peft.h"

/* A tensor of the adapter, and what its name says. */
typedef struct ckpt_adapter_tensor {
  const char *module, *wanted; /* in an arena */
  const char *wrapper;         /* the module that holds this one, as an attention its projection; or NULL */
  const ckpt_tensor *tensor;
  uint32_t n_below;
  ckpt_adapter_part part;
  bool is_embedding, is_below;
} ckpt_adapter_tensor;

/* Zero-initialise it; items is the caller's to free. */
typedef struct ckpt_adapter_tensors {
  ckpt_adapter_tensor *items;
  uint32_t n, capacity;
  uint32_t n_ignored;       /* copies of the base's modules beside those that take their place: original_module */
  const ckpt_tensor *named; /* the first whose name has the adapter's own, as `default`; or NULL */
} ckpt_adapter_tensors;

/* The parts of one module's update; NULL: there is none. */
typedef struct ckpt_adapter_pair {
  const char *module, *wrapper;
  const ckpt_tensor *input, *output, *magnitude, *bias;
  bool is_embedding;
} ckpt_adapter_pair;

/* Adds one tensor, unless it is a copy of the base's. EFORMAT, EUNSUPPORTED: no merge takes its name, dtype or shape,
 * or it is another adapter's than those before it. */
ckpt_status ckpt_adapter_take(ckpt_adapter_tensors *to, ckpt_arena *arena, const ckpt_tensor *tensor, ckpt_error *err);

/* Whether a tensor's values are whole numbers, or truth values. */
bool ckpt_adapter_is_integer(const ckpt_tensor *tensor);

/* EUNSUPPORTED: a tensor's values are of a dtype that no merge takes. */
ckpt_status ckpt_adapter_check_dtype(const ckpt_tensor *tensor, ckpt_error *err);

/* Sorts them: those of a module stand together, its update's parts first. */
void ckpt_adapter_sort(ckpt_adapter_tensors *tensors);

/* The end of the module that begins with item `first`. */
uint32_t ckpt_adapter_module_end(const ckpt_adapter_tensors *tensors, uint32_t first);

/* Takes the parts of an update off the tensors [*at, end) of a module, and leaves *at behind them. EFORMAT: two tensors
 * are the same part. */
ckpt_status ckpt_adapter_gather(ckpt_adapter_pair *out, const ckpt_adapter_tensor **at, const ckpt_adapter_tensor *end,
                                ckpt_error *err);

/* Whether there is an update, and not a bias alone. */
bool ckpt_adapter_is_pair(const ckpt_adapter_pair *pair);

/* Checks that both factors are there and fit each other, and that a bias is where the config says so. EFORMAT. */
ckpt_status ckpt_adapter_check_pair(const ckpt_adapter_pair *pair, const ckpt_peft *peft, ckpt_error *err);

/* Refuses a tensor that PEFT does not load: of a module that has factors too, whose own tensors are its base_layer's.
 * EFORMAT. */
ckpt_status ckpt_adapter_check_whole(const ckpt_adapter_tensors *tensors, const ckpt_adapter_tensor *item,
                                     const ckpt_peft *peft, ckpt_error *err);

/* A tensor of the update, for messages. */
const ckpt_tensor *ckpt_adapter_pair_tensor(const ckpt_adapter_pair *pair);

#endif
