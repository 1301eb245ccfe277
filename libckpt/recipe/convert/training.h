/* training.h - the rows that a training run needs to continue from an output, beyond those of its input. */
#ifndef CKPT_RECIPE_CONVERT_TRAINING_H
#define CKPT_RECIPE_CONVERT_TRAINING_H

#include "libckpt/plan/plan.h"

/* For an output whose format keeps masters, when all rows of `from` are there:
 * - A parameter that a master replaced is again what the model computed with.
 * - A trained parameter has a master: if the input has none, its own values as f32. Where the output keeps masters
 * alone (only_masters of format.h) the parameter equals it.
 * - A param group has one step: a FLOAT if it was a tensor, unless the group has the same as an INT. Each of its
 *   parameters has it as an f32 tensor.
 * So a reader of the output finds these rows; the format decides which of them its files hold once.
 * Groups name their parameters. EUNSUPPORTED: states of a parameter that is missing or in no group, a master of another
 * shape, or steps that differ within a group. */
ckpt_status ckpt_training_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_error *err);

#endif
