/* metadata.h - what --set and --remove do to the metadata of an output. */
#ifndef CKPT_RECIPE_CONVERT_METADATA_H
#define CKPT_RECIPE_CONVERT_METADATA_H

#include "libckpt/plan/plan.h"

/* Removes keys, then sets them, in the described index of an output: a value that is there keeps its place and type, a
 * new one stands at the end (types: ckpt_gguf_value_parse). EINVAL: the format has no typed metadata, a value that is
 * none of its type, one that would break the file; ENOTFOUND: a key to remove that is not there. */
ckpt_status ckpt_metadata_edit(ckpt_output *output, const ckpt_convert_options *options, ckpt_error *err);

#endif
