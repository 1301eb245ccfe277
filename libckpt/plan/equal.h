/* equal.h - tensors that have to be equal, which a run finds out on its way: copies that a config ties to each other.
 */
#ifndef CKPT_PLAN_EQUAL_H
#define CKPT_PLAN_EQUAL_H

#include "libckpt/plan/plan.h"

/* Adds rows that are written nowhere, for the digests of a tensor and of the copy that is left out for it. */
ckpt_status ckpt_plan_add_equal(ckpt_plan *plan, const ckpt_index *from, const ckpt_tensor *kept,
                                const ckpt_tensor *tied, ckpt_error *err);

/* The same for every tie of an index of which both sides are stored, in one shape and dtype. */
ckpt_status ckpt_plan_add_equal_ties(ckpt_plan *plan, const ckpt_index *from, ckpt_error *err);

/* After the run: EDIFFERENT where one differs, with its name and the path of its file or folder. advice: NULL or what
 * helps (ckpt_advise_value with the copy's name). */
ckpt_status ckpt_plan_check_equal(const ckpt_plan *plan, const char *path, const char *advice, ckpt_error *err);

#endif
