/* updates.h - what merged adapters did to the tensors of an output, in figures, from a plan that has run. */
#ifndef CKPT_RECIPE_CONVERT_UPDATES_H
#define CKPT_RECIPE_CONVERT_UPDATES_H

#include "libckpt/plan/plan.h"

/* What happened to one tensor, or to several together. */
typedef struct ckpt_update_figures {
  double norm, base_norm; /* Frobenius norms of what was added and of what it was added to; INFINITY past 2^128 */
  uint64_t n;             /* elements that may have changed */
  uint64_t n_rounded;     /* of them those of which it is known what rounding did; none where blocks were made */
  uint64_t n_unchanged;   /* of these, how many kept the base's value because rounding removed the update */
} ckpt_update_figures;

/* Makes every row that is written, and has updates, say what they did; before the run. ENOMEM. */
ckpt_status ckpt_updates_ask(ckpt_plan *plan, ckpt_error *err);

/* Those of a row; false where it has none. */
bool ckpt_updates_of(const ckpt_row *row, ckpt_update_figures *out);

/* Adds those of another tensor. */
void ckpt_updates_add(ckpt_update_figures *into, const ckpt_update_figures *from);

/* The norm as a share of the base's; NaN where no base has been summed. */
double ckpt_update_relative(const ckpt_update_figures *figures);

#endif
