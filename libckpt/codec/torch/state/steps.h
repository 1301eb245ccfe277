/* steps.h - steps of an optimizer that are numbers, as tensors.
 *
 * torch.optim has a step of each parameter, a tensor of f32; optimizers of others (apex, DeepSpeed) count in a number
 * of a parameter's state or of a group. Readers say both in one way, so that any of them goes on from any. */
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
