/* torch_safe.h - what torch.load(weights_only=True) takes (torch/_weights_only_unpickler.py of PyTorch 2.15), and that
 * means the same for everyone. Objects that we write for torch hold nothing else. */
#ifndef CKPT_CODEC_TORCH_SAFE_H
#define CKPT_CODEC_TORCH_SAFE_H

#include "libckpt/object.h"

/* Whether a node is taken; what it holds is not looked at. Tensors are. */
bool ckpt_torch_is_safe(const ckpt_object *node);

/* What a node is an instance of that is nothing but attributes: argparse.Namespace, which most training scripts save,
 * or types.SimpleNamespace. Weights-only loading takes them once it was told to. NULL for anything else. */
const char *ckpt_torch_namespace(const ckpt_object *node);
/* The attributes of one, a DICT; NULL where it has none, and for anything else. */
const ckpt_object *ckpt_torch_attributes(const ckpt_object *node);

/* What a node is called where it is left out: its class, mostly. Borrowed. */
const char *ckpt_torch_class(const ckpt_object *node);

#endif
