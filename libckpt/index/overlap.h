/* overlap.h - outputs stay away from inputs and from each other: real paths compared before anything is written. */
#ifndef CKPT_INDEX_OVERLAP_H
#define CKPT_INDEX_OVERLAP_H

#include "libckpt/index/index.h"

/* EINVAL when writing `output` would touch what index is read from: it is the input or a file of it, lies in the input
 * folder (unless it may), or is a folder around a file of it. given is the input as the user named it; NULL:
 * index->path.
 */
ckpt_status ckpt_refuse_input_overlap(const ckpt_index *index, const char *given, const char *output, bool may_lie_in,
                                      ckpt_error *err);

/* EINVAL when two outputs are one place, or one lies in the other; is_part: path may lie in `other`. */
ckpt_status ckpt_refuse_output_overlap(const char *path, const char *other, bool is_part, ckpt_error *err);

/* Whether two paths, which need not exist, name the same place. */
bool ckpt_is_same_path(const char *a, const char *b);

#endif
