/* mark.h - marks that walks over a torch graph set on its nodes. */
#ifndef CKPT_CODEC_TORCH_STATE_MARK_H
#define CKPT_CODEC_TORCH_STATE_MARK_H

#include "libckpt/index/object.h"

/* ckpt_object.mark while a graph is read and named. */
enum { TORCH_UNSEEN, TORCH_PLAIN, TORCH_HOLDS, TORCH_ON_PATH };

#endif
