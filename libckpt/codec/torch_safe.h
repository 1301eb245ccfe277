/* torch_safe.h - what torch.load(weights_only=True) takes (torch/_weights_only_unpickler.py of PyTorch 2.15), and that
 * means the same for everyone. Objects that we write for torch hold nothing else. */
#ifndef CKPT_CODEC_TORCH_SAFE_H
#define CKPT_CODEC_TORCH_SAFE_H

#include "libckpt/object.h"

/* Whether a node is taken; what it holds is not looked at. Tensors are. */
bool ckpt_torch_is_safe(const ckpt_object *node);

/* The attributes, a DICT, of an argparse.Namespace, which most training scripts have and weights-only loading refuses;
 * NULL for anything else. */
const ckpt_object *ckpt_torch_attributes(const ckpt_object *node);
#define CKPT_TORCH_NAMESPACE_LOSS "argparse.Namespace as such (its attributes are a dict)"

/* What a node is called where it is left out: its class, mostly. Borrowed. */
const char *ckpt_torch_class(const ckpt_object *node);

#endif
