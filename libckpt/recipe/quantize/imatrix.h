/* imatrix.h - importance matrices: how much each input channel of a weight matters, for quantizing it.
 *
 * An importance matrix is a checkpoint like another: per tensor NAME the sums `NAME.in_sum2` (one per channel and
 * expert) and `NAME.counts`, in GGUF or in the older form that formats/imatrix.c reads. Its tensors become leaves of
 * the plan, so that it is read as the model is, in bounded memory, and has its place in receipts. */
#ifndef CKPT_RECIPE_QUANTIZE_IMATRIX_H
#define CKPT_RECIPE_QUANTIZE_IMATRIX_H

#include "libckpt/plan/plan.h"

/* Whether an index is an importance matrix: pairs of sums and counts and nothing else. EFORMAT says what is not. */
ckpt_status ckpt_imatrix_check(const ckpt_index *imatrix, ckpt_error *err);

/* The importance of a tensor's channels as f32, one row of them per matrix of the tensor (its experts), or NULL where
 * there is none for it. EDIFFERENT where the widths do not match, but for the embedding, which has no use for what was
 * measured. */
ckpt_status ckpt_imatrix_expr(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *imatrix, const ckpt_tensor *tensor,
                              ckpt_error *err);

/* EDIFFERENT where an entry is of no tensor of the model. *n_entries is how many it has. */
ckpt_status ckpt_imatrix_fits(const ckpt_index *imatrix, const ckpt_index *model, uint32_t *n_entries, ckpt_error *err);

#endif
