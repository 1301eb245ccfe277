/* records.h - which records with checksums a prepared plan reads (extents/record_checks.h). */
#ifndef CKPT_PLAN_RECORDS_H
#define CKPT_PLAN_RECORDS_H

#include "libckpt/extents/record_checks.h"
#include "libckpt/plan/plan.h"

/* Memory of the plan's checks, 0 where it needs none. */
uint64_t ckpt_plan_record_bytes(const ckpt_plan *plan);

/* The checks of a run, ready to take bytes; NULL where it needs none. ENOMEM. */
ckpt_status ckpt_plan_record_checks(ckpt_record_checks **out, const ckpt_plan *plan, ckpt_error *err);

/* Tells of each tensor that was read from a record that is not as it was, once and in byte order of names. ENOMEM. */
ckpt_status ckpt_plan_tell_damage(const ckpt_plan *plan, ckpt_record_checks *checks, ckpt_error *err);

#endif
