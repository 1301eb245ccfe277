/* cover.h - checks that the extents of a tensor cover it exactly. */
#ifndef CKPT_INDEX_COVER_H
#define CKPT_INDEX_COVER_H

#include "libckpt/index/extent.h"
#include "libckpt/io/source.h"

/* Sorts the tensor's extents, drops replicas (identical flat ranges or boxes; the first stays), and checks that each
 * lies in its file and in the tensor, and that together they cover every unit once. Time n log n in the number of
 * extents. Fails with EFORMAT. */
ckpt_status ckpt_cover_check(ckpt_tensor *tensor, const ckpt_source *source, ckpt_error *err);

/* Sorts a tensor's own boxed extents by their starts and records the longest, as ckpt_place needs. */
void ckpt_sort_boxes(ckpt_tensor *tensor);

#endif
