/* torch_state.h - the object of a PyTorch checkpoint among an index's objects.
 *
 * The whole of it stands under "torch", tensors as leaves, so that what holds such objects can write it back. What of
 * it every format knows stands besides under the keys of object.h, as the same nodes. */
#ifndef CKPT_CODEC_TORCH_STATE_H
#define CKPT_CODEC_TORCH_STATE_H

#include "libckpt/index.h"

#define CKPT_TORCH_OBJECT "torch"

/* Makes root and what is known of it the index's objects, and sets the step. top: the DICT whose entries are the parts
 * of the checkpoint, root itself or below it (anything else: none are known). param_groups: the optimizer's, or NULL.
 * The nodes have to live as long as the index. */
ckpt_status ckpt_torch_state_set(ckpt_index *index, ckpt_object *root, const ckpt_object *top,
                                 const ckpt_object *param_groups, ckpt_error *err);

#endif
