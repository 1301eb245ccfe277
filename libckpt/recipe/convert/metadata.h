/* metadata.h - applies the values "remove" and "set" of GGUF to an output's metadata. */
#ifndef CKPT_RECIPE_CONVERT_METADATA_H
#define CKPT_RECIPE_CONVERT_METADATA_H

#include "libckpt/plan/plan.h"

/* Removes keys, then sets them, in an output's described index. An existing value keeps its place and type, a new one
 * goes to the end (types: ckpt_gguf_value_parse). EINVAL: the format has no typed metadata, the value does not fit its
 * type, or it would break the file. ENOTFOUND: a key to remove is missing. */
ckpt_status ckpt_metadata_edit(ckpt_output *output, ckpt_error *err);

#endif
