/* slice.h - the argument of `ckpt cat`: a tensor's name and, in brackets, a box of it.
 *
 * One range per axis, outermost first, as Python slices without a step: a:b, a:, :b, :, or one index. Negative numbers
 * count from the end. Axes that are not named are whole. A range is clipped to its axis; an index past it is an error.
 */
#ifndef CKPT_TOOLS_REPORT_SLICE_H
#define CKPT_TOOLS_REPORT_SLICE_H

#include "libckpt/ckpt.h"

typedef struct ckpt_slice {
  const ckpt_tensor *tensor; /* borrowed from the index */
  ckpt_box box;
  uint64_t n_elements;
  uint32_t rank;                 /* of the result: axes given by one index are gone */
  uint64_t shape[CKPT_MAX_RANK]; /* of the result */
} ckpt_slice;

/* Finds the tensor and the box. A name that has brackets itself is found first. ENOTFOUND (with the nearest name),
 * EINVAL for bad text in the brackets. */
ckpt_status ckpt_slice_parse(ckpt_slice *out, const ckpt_index *index, const char *text, ckpt_error *err);

#endif
