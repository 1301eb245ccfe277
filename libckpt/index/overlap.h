/* overlap.h - keeps outputs apart from inputs and from each other, by real paths, before anything is written. */
#ifndef CKPT_INDEX_OVERLAP_H
#define CKPT_INDEX_OVERLAP_H

#include "libckpt/index/index.h"

/* EINVAL if writing `output` would touch the index's input: it is the input or one of its files, is inside the input
 * folder (unless may_lie_in), or contains one of its files. given: the input as the user named it; NULL: index->path.
 */
ckpt_status ckpt_refuse_input_overlap(const ckpt_index *index, const char *given, const char *output, bool may_lie_in,
                                      ckpt_error *err);

/* EINVAL if two outputs are the same place, or one is inside the other; is_part: path may be inside `other`. */
ckpt_status ckpt_refuse_output_overlap(const char *path, const char *other, bool is_part, ckpt_error *err);

/* Whether two paths, which need not exist, name the same place. */
bool ckpt_is_same_path(const char *a, const char *b);

#endif
