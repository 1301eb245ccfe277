/* cache.h - finds models in this machine's Hugging Face cache. Nothing is ever downloaded. */
#ifndef CKPT_FORMAT_CACHE_H
#define CKPT_FORMAT_CACHE_H

#include "libckpt/ckpt.h"

/* Writes the snapshot folder of `org/name[@revision]` (revision: a ref or a commit; default "main") into path.
 * Looks in HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub. The message of ENOTFOUND names the command that would
 * fetch it. A name that is no such reference is a missing path: ENOTFOUND. */
ckpt_status ckpt_cache_find(char *path, size_t n_path, const char *reference, ckpt_error *err);

#endif
