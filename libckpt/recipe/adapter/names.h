/* names.h - what a tensor of a PEFT adapter is, from its name, and which tensor of the base it is for. */
#ifndef CKPT_RECIPE_ADAPTER_NAMES_H
#define CKPT_RECIPE_ADAPTER_NAMES_H

#include "libckpt/index/index.h"

/* What a tensor of an adapter says about one of the base. */
typedef enum ckpt_adapter_part {
  CKPT_ADAPTER_INPUT,     /* lora_A (r, in), or lora_embedding_A (r, rows) */
  CKPT_ADAPTER_OUTPUT,    /* lora_B (out, r), or lora_embedding_B (width, r) */
  CKPT_ADAPTER_MAGNITUDE, /* lora_magnitude_vector */
  CKPT_ADAPTER_BIAS,      /* lora_B's own bias, added to the module's */
  CKPT_ADAPTER_ROWS,      /* rows that take the place of an embedding's: trainable_token_indices */
  CKPT_ADAPTER_WHOLE      /* the tensor itself: modules_to_save, bias, base_layer */
} ckpt_adapter_part;

enum { CKPT_ADAPTER_NAME = 4096 + 32 }; /* bytes of a name, with what is put behind it */

typedef struct ckpt_adapter_name {
  ckpt_adapter_part part;
  bool is_embedding;
  bool is_ignored;                /* a copy of what the base has: original_module */
  bool is_below;                  /* WHOLE: what the base is to an update, base_layer */
  uint32_t n_below;               /* how often base_layer ends the module's path: wrappers of parameters are nested */
  size_t n_wrapper;               /* bytes of `module` before a base_layer in it: a module that holds this one; or 0 */
  char module[CKPT_ADAPTER_NAME]; /* path of the module, wrappers and PEFT's own prefix taken off */
  char wanted[CKPT_ADAPTER_NAME]; /* the base's tensor: `module`.weight or .bias, or the name as it is */
} ckpt_adapter_name;

/* Takes a name apart. EFORMAT: PEFT gives no such name. */
ckpt_status ckpt_adapter_name_parse(ckpt_adapter_name *out, const char *name, ckpt_error *err);

/* A tensor of the base under one of its names. */
typedef struct ckpt_adapter_place {
  const ckpt_tensor *tensor; /* NULL: there is none */
  const char *name;          /* the tensor's own or an alias, which is another module's */
} ckpt_adapter_place;

/* What the base calls so: with or without the prefix of its family's base model, and as transformers 5 calls experts.
 */
ckpt_adapter_place ckpt_adapter_find(const ckpt_index *base, const char *wanted);

/* Whether a tensor of the base is the matrix of a linear layer: no embedding, and not the head. Without a row of the
 * family the names decide. */
bool ckpt_adapter_is_linear(const ckpt_index *base, const ckpt_tensor *tensor);

/* Whether a module's path is the name, or ends with it after a dot. */
bool ckpt_adapter_ends_with(const char *module, const char *name);

#endif
