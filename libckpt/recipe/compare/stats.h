/* stats.h - statistics of a tensor's values, of any dtype, as reductions of a plan: `ls --stats` and `verify`.
 *
 * They share the read with whatever else the plan does with the tensor. Complex values count by magnitude. */
#ifndef CKPT_RECIPE_COMPARE_STATS_H
#define CKPT_RECIPE_COMPARE_STATS_H

#include "libckpt/plan/plan.h"

/* Adds the statistics of a tensor; *out belongs to the plan and is filled by its run. */
ckpt_status ckpt_stats_add(ckpt_plan *plan, const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_stats **out,
                           ckpt_error *err);

/* Mean and population standard deviation of the finite values, in f64; NaN where there is none, or where the squares
 * overflow. */
double ckpt_stats_mean(const ckpt_stats *stats);
double ckpt_stats_std(const ckpt_stats *stats); /* as above */

#endif
