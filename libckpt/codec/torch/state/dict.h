/* dict.h - the parts of a training checkpoint's dict: the model, optimizers, and everything else.
 *
 * One rule covers all that torch saves, whether the dict comes from a pickle or from the paths of a DCP folder. */
#ifndef CKPT_CODEC_TORCH_STATE_DICT_H
#define CKPT_CODEC_TORCH_STATE_DICT_H

#include "libckpt/codec/torch/state/mark.h"

/* Whether a node is a tensor or, as its mark says, holds one. */
static inline bool ckpt_torch_has_tensor(const ckpt_object *node) {
  return node->kind == CKPT_OBJECT_TENSOR || node->mark == TORCH_HOLDS;
}

/* Whether an object is an optimizer's state dict, {'state': {...}, 'param_groups': [...]}; DCP has no empty state. */
bool ckpt_torch_is_optimizer(const ckpt_object *object);

/* The same of an entry's key and value: what an optimizer's key says needs no groups. */
bool ckpt_torch_is_optimizer_at(const ckpt_object *key, const ckpt_object *object);

/* Whether an object is an optimizer's state dict, or a flattened one (groups.h). */
bool ckpt_torch_is_any_optimizer(const ckpt_object *object);

/* Whether an object holds the attributes of a torch.nn.Module. */
bool ckpt_torch_is_module(const ckpt_object *object);

/* Whether an entry of a root where no entry is known as the model is training state by its key. */
bool ckpt_torch_is_training_key(const char *key);

enum { CKPT_TORCH_N_MODEL_KEYS = 4 }; /* of the table below */

/* What the entry that is a checkpoint's model is called: the first of these that there is. */
extern const char *const ckpt_torch_model_keys[CKPT_TORCH_N_MODEL_KEYS];

/* The number of a key of n bytes among them, or CKPT_TORCH_N_MODEL_KEYS. */
uint32_t ckpt_torch_model_key(const char *key, size_t n);

/* Whether an entry under this key of n bytes can be a checkpoint's model. */
static inline bool ckpt_torch_is_model_key(const char *key, size_t n) {
  return ckpt_torch_model_key(key, n) < CKPT_TORCH_N_MODEL_KEYS;
}

/* Where the parts of a checkpoint are. */
typedef struct ckpt_torch_dict {
  ckpt_object *top;             /* the dict that has them: the root, or the one entry of it that does */
  const ckpt_object *container; /* the model, in the top; NULL: the top is it, or there is none */
  bool is_flat;                 /* the top has tensors whose names have dots: it is the model */
  bool is_state_dict;           /* the top is what Module.state_dict() gave: all its tensors are the model's */
} ckpt_torch_dict;

/* Finds them below a root that is marked; looks at max entries of dicts at most, where the root is the top past that.
 */
void ckpt_torch_dict_find(ckpt_torch_dict *dict, ckpt_object *root, uint64_t max);

#endif
