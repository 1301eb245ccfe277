/* steps.h - turns an optimizer's steps that are numbers into tensors.
 *
 * torch.optim keeps a step per parameter, a tensor of f32. Other optimizers (apex, DeepSpeed) keep a number per
 * parameter or per group. Readers represent both in one way, so that each can continue from the other. */
#ifndef CKPT_CODEC_TORCH_STATE_STEPS_H
#define CKPT_CODEC_TORCH_STATE_STEPS_H

#include "libckpt/index/index.h"

/* Whether a value (NULL is fine) is a number that is a step, and an f32 holds: that is *step then. */
bool ckpt_torch_plain_step(const ckpt_object *value, float *step);

/* Adds the step of a parameter as a literal. ELIMIT: its name is too long. */
ckpt_status ckpt_torch_add_step(ckpt_index *index, const char *parameter, float step, ckpt_error *err);

/* Adds the steps of parameters that have states and none of their own: that of the group which names them, where that
 * is a plain one, and stays there as well. Before the index is finished; takes its objects and states as they are. */
ckpt_status ckpt_torch_add_steps_of_groups(ckpt_index *index, ckpt_error *err);

#endif
