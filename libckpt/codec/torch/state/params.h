/* params.h - an optimizer's state keyed by parameter names, as
 * torch.distributed.checkpoint.state_dict.get_optimizer_state_dict gives it.
 *
 *   {"state": {0: {"exp_avg": t}},   "param_groups": [{"lr": ..., "params": [0],   "param_names": ["w"]}]}   ->
 *   {"state": {"w": {"exp_avg": t}}, "param_groups": [{"lr": ..., "params": ["w"], "param_names": ["w"]}]}
 *
 * A flattened one, {"state.w.exp_avg": t, "param_groups.w.lr": ...}, stays so. load_state_dict accepts
 * both, because it follows the order of the groups. */
#ifndef CKPT_CODEC_TORCH_STATE_PARAMS_H
#define CKPT_CODEC_TORCH_STATE_PARAMS_H

#include "libckpt/index/index.h"

/* Copies what bears names of an optimizer's DICT; the rest is shared. A parameter is called as the tensors to be
 * written call it, whose states these are (optimizer.state.<name>.exp_avg); without such states as its group's
 * param_names or its key do, and where that is a tensor that is written under another name, as that. Numbers that have
 * no name stay what they are: load_state_dict finds states by them. ELIMIT, ENOMEM. */
ckpt_status ckpt_torch_name_params(ckpt_object **out, const ckpt_object *optimizer, const ckpt_index *described,
                                   ckpt_arena *arena, ckpt_error *err);

/* The same, but numbers stay numbers: it is its param_names that follow the tensors. */
ckpt_status ckpt_torch_rename_params(ckpt_object **out, const ckpt_object *optimizer, const ckpt_index *described,
                                     ckpt_arena *arena, ckpt_error *err);

#endif
