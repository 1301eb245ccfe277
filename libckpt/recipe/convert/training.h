/* training.h - what rows a training run needs that goes on from an output, beside those of its input. */
#ifndef CKPT_RECIPE_CONVERT_TRAINING_H
#define CKPT_RECIPE_CONVERT_TRAINING_H

#include "libckpt/plan/plan.h"

/* For an output whose format keeps masters, when all rows of `from` are there:
 * - a parameter that a master stood for is what the model computed with again;
 * - a trained parameter has a master: where the input has none, its own values as f32; in stage 3 it is what that is;
 * - the step of a group of parameters, which is one value, stands in the group, as a FLOAT where it was a tensor and
 *   the group has not the same as an INT, and each parameter of it has it, as an f32 tensor.
 * So the rows are what a reader of the output finds; which of them files hold once is the format's affair.
 * Groups name their parameters. EUNSUPPORTED for states of a parameter that is not there or in no group, masters of
 * another shape than it, and steps that differ within a group. */
ckpt_status ckpt_training_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_error *err);

#endif
