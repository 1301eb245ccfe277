/* duplicates.h - finds rows that read the same bytes from the same places, so that their digest is computed once.
 *
 * A weight that was trained in f32 is its own master, and checkpoints name both. */
#ifndef CKPT_PLAN_DUPLICATES_H
#define CKPT_PLAN_DUPLICATES_H

#include "libckpt/plan/plan.h"

/* Sets row->same_as of each row that reads the same as another digested row; a written row is preferred as that other.
 * Considers only rows that read a whole tensor unchanged. ENOMEM. */
ckpt_status ckpt_plan_find_duplicates(ckpt_plan *plan, ckpt_error *err);

#endif
