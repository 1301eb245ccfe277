/* defects.h - several defects of one input, where a caller wants all of them and not the first alone.
 *
 * What is made of parts (shards, items, tensors) goes on past a part that is broken: it is told of, left out of the
 * index, and what is whole comes in. Where nobody asks, opening fails at the first. */
#ifndef CKPT_INDEX_DEFECTS_H
#define CKPT_INDEX_DEFECTS_H

#include "libckpt/base/error.h"

/* Zero-initialise it, but for where to report. */
typedef struct ckpt_defects {
  void (*report)(void *arg, const ckpt_error *defect); /* NULL: nobody asks */
  void *arg;
  const char *path; /* of defects that name no file; borrowed */
  uint64_t n;       /* told */
} ckpt_defects;

/* Whether a failure over an input that is there says what is wrong with it (a part of it may be missing), not with the
 * memory, the disk or the request. */
bool ckpt_is_defect(ckpt_status status);

/* The status of a part: CKPT_OK where it is whole, or broken and told of, which clears *defect for the next part. Of a
 * part it is a defect too that it cannot be opened or read, or is of a kind, or a size, that is not read. All else
 * fails with defect: what is no defect of the input (ENOMEM, ...), or nobody asks. */
ckpt_status ckpt_defects_pass(ckpt_defects *defects, ckpt_status status, ckpt_error *defect, ckpt_error *err);

#endif
