/* groups.h - an optimizer's state in PyTorch's flattened form (flatten_optimizer_state_dict), and its groups:
 * {"state.w.exp_avg": t, "param_groups.w.lr": 0.1}. */
#ifndef CKPT_CODEC_TORCH_STATE_GROUPS_H
#define CKPT_CODEC_TORCH_STATE_GROUPS_H

#include "libckpt/base/arena.h"
#include "libckpt/index/object.h"

/* Whether a container's key says that it is an optimizer's: "optim", "optimizer", "optimizers", "optimizer_0",
 * "optimizer_state_dict". */
bool ckpt_torch_is_optimizer_key(const char *key);

/* Whether an object is a flattened state: all of its keys begin as above, of groups one at least. */
bool ckpt_torch_is_flat_optimizer(const ckpt_object *object);

/* The groups of an optimizer's state: its list, or one made of its flat entries `param_groups.<parameter>.<key>`, where
 * parameters with equal values share a group. NULL where there are none; optimizer may be NULL. */
ckpt_status ckpt_torch_groups_of(ckpt_object **out, const ckpt_object *optimizer, ckpt_arena *arena, ckpt_error *err);

#endif
