/* state.h - the object of a PyTorch checkpoint among an index's objects, and torch's names of optimizer states.
 *
 * The whole of it is the index's `whole`. What of it every format knows stands besides under the keys of object.h, as
 * the same nodes. */
#ifndef CKPT_CODEC_TORCH_STATE_STATE_H
#define CKPT_CODEC_TORCH_STATE_STATE_H

#include "libckpt/index/index.h"

/* What an index's objects call the whole, which is what torch.load would give. Whoever looks for it asks for `whole`.
 */
#define CKPT_TORCH_OBJECT "torch"

/* In the trainer's state: the model computes in bf16. DeepSpeed's own word; names of its files depend on it. */
#define CKPT_TRAINER_BF16 "bf16_enabled"

/* A state of one parameter: torch's key of it, its canonical name (object.h; never longer), and its role. */
typedef struct ckpt_torch_state {
  const char *key, *name;
  ckpt_role role;
} ckpt_torch_state;

/* The state with a key of n_key bytes; NULL if it is unknown. */
const ckpt_torch_state *ckpt_torch_state_of(const char *key, size_t n_key);

/* What torch calls a tensor's state whose name ends in `name`: "momentum_buffer" for a momentum's "momentum". */
const char *ckpt_torch_state_key(const ckpt_tensor *tensor, const char *name);

/* What an object is called in a dict of torch, by its key among an index's: "scaler", and what a user calls rng,
 * trainer, torch or loss_scaler by that name. */
const char *ckpt_torch_state_written(const char *key);

/* Makes root and what is known of it the index's objects, and sets the step. top: the DICT whose entries are the parts
 * of the checkpoint, root itself or below it (anything else: none are known). param_groups: the optimizer's, or NULL.
 * The nodes have to live as long as the index. */
ckpt_status ckpt_torch_state_set(ckpt_index *index, ckpt_object *root, const ckpt_object *top,
                                 const ckpt_object *param_groups, ckpt_error *err);

/* The optimizer's DICT that has these groups, in the whole or among the parts; NULL: there is none. */
const ckpt_object *ckpt_torch_state_optimizer(const ckpt_index *index, const ckpt_object *groups);

/* Whether an entry of the parts is among the trainer's: numbers and texts ({'epoch': 3, 'best': 0.5}); keys with dots
 * are flattened state of something else. */
bool ckpt_torch_state_is_trainers(const ckpt_object *key, const ckpt_object *value);

/* The optimizer whose groups objects have, which an entry of the parts is, or a list of it alone; NULL: it is not. */
const ckpt_object *ckpt_torch_state_optimizer_at(const ckpt_object *objects, const ckpt_object *value);

/* The key of a state of an optimizer's parameters that is no tensor, but for None and the step; NULL: there is none.
 * n_left as of ckpt_object_holds_more. */
const char *ckpt_torch_state_plain_key(const ckpt_object *optimizer, uint64_t *n_left);

/* Whether what an entry of the parts holds besides tensors stands among the other objects, too. n_left as of
 * ckpt_object_holds_more. */
bool ckpt_torch_state_is_known(const ckpt_object *objects, const ckpt_object *value, uint64_t *n_left);

#endif
