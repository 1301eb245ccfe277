/* defects.h - several defects of one input, where a caller wants all of them and not the first alone.
 *
 * What is made of parts (shards, items, tensors) goes on past a part that is broken, and fails when all have been
 * looked at. Each defect but the last is reported; the last is what the whole fails with, so that those who ask for no
 * report and those who do see failures alike. Without a report it fails at the first. */
#ifndef CKPT_DEFECTS_H
#define CKPT_DEFECTS_H

#include "error.h"

/* Zero-initialise it, but for where to report. */
typedef struct ckpt_defects {
  void (*report)(void *arg, const ckpt_error *defect); /* NULL: nobody asks */
  void *arg;
  const char *path; /* of defects that name no file; borrowed */
  ckpt_error last;  /* found and neither reported nor returned yet */
} ckpt_defects;

/* Whether a failure over an input that is there says what is wrong with it (a part of it may be missing), not with the
 * memory, the disk or the request. */
bool ckpt_is_defect(ckpt_status status);

/* The status of a part: CKPT_OK where it is whole, or broken and to be gone past. All else fails with defect: what is
 * no defect of the input (ENOMEM, EIO, ...), or nobody asks. */
ckpt_status ckpt_defects_pass(ckpt_defects *defects, ckpt_status status, ckpt_error *defect, ckpt_error *err);

/* The status of all parts: of the last defect, which is then told. */
ckpt_status ckpt_defects_end(ckpt_defects *defects, ckpt_error *err);

/* Reports what the whole did not come to tell, for it failed of something else. */
void ckpt_defects_flush(ckpt_defects *defects);

#endif
