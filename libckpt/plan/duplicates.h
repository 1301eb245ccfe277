/* duplicates.h - rows that read the same bytes from the same places: their digests are made once.
 *
 * A weight that was trained in f32 is its own master, and checkpoints have names for both. */
#ifndef CKPT_PLAN_DUPLICATES_H
#define CKPT_PLAN_DUPLICATES_H

#include "libckpt/plan/plan.h"

/* Notes (row->same_as) which rows read what another one, digested, reads; one that is written goes before others. Only
 * rows that read a whole tensor as it is are looked at. ENOMEM. */
ckpt_status ckpt_plan_find_duplicates(ckpt_plan *plan, ckpt_error *err);

#endif
