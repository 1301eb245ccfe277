/* defects.h - collects several defects of one input, for callers that want all of them.
 *
 * A reader of parts (shards, items, tensors) continues past a broken one: it reports the part and leaves it out of the
 * index. Without a caller that asks, opening fails at the first defect. */
#ifndef CKPT_INDEX_DEFECTS_H
#define CKPT_INDEX_DEFECTS_H

#include "libckpt/base/error.h"

/* Zero-initialise it, but for where to report. */
typedef struct ckpt_defects {
  void (*report)(void *arg, const ckpt_error *defect); /* NULL: opening fails at the first */
  void *arg;
  const char *path; /* of defects that name no file; borrowed */
  uint64_t n;       /* reported */
} ckpt_defects;

/* Whether a failure on an existing input blames the input (a part of it may be missing), not memory, disk or the
 * request. */
bool ckpt_is_defect(ckpt_status status);

/* The status of a part: CKPT_OK if it is whole, or broken and reported, which clears *defect for the next part. A part
 * that cannot be opened, or whose kind or size is unsupported, is a defect too. Any other failure (ENOMEM, ...) is
 * returned, and so is a defect that no caller asks for. */
ckpt_status ckpt_defects_pass(ckpt_defects *defects, ckpt_status status, ckpt_error *defect, ckpt_error *err);

#endif
