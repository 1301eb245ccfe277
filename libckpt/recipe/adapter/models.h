/* models.h - what the model of transformers 5 calls a tensor of a base, where files call it otherwise or lack the name.
 *
 * PEFT finds modules in the model. Files keep names of older versions, and one name of tensors that the model ties. */
#ifndef CKPT_RECIPE_ADAPTER_MODELS_H
#define CKPT_RECIPE_ADAPTER_MODELS_H

#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/tied_classes.h"

/* The model's name of a tensor that the base's files call `name`; written to out where it is another one. */
const char *ckpt_model_name(char out[CKPT_ADAPTER_NAME], const ckpt_index *base, const char *name);

/* What config.json says of a base, once for all its tensors. */
typedef struct ckpt_model_facts {
  const char *prefix; /* that a base of the bare model has before its names here and not in the model; NULL: none */
  bool has_conv1d;    /* no family has a row of it, and its type stores linear layers transposed */
} ckpt_model_facts;

/* Borrows the prefix from the family's row. ENOMEM. */
ckpt_status ckpt_model_look(ckpt_model_facts *out, const ckpt_index *base, ckpt_error *err);

/* Further names that the model's class has for stored tensors, and that the base lacks: its head, and what else is tied
 * (tied_classes.h). ENOMEM. */
ckpt_status ckpt_model_find_tied(ckpt_adapter_place out[CKPT_TIED_NAMES + 1], uint32_t *n, const ckpt_index *base,
                                 ckpt_error *err);

/* Whether a matrix of a linear layer is stored transposed, as GPT-2 does: the family, else the model's type says so. */
bool ckpt_model_transposes(const ckpt_model_facts *facts, const ckpt_index *base, const ckpt_tensor *tensor);

/* Whether a matrix is a router's beside its experts: it has a module of its own in transformers 5, no linear layer. */
bool ckpt_model_routes(const ckpt_index *base, const ckpt_tensor *tensor);

#endif
