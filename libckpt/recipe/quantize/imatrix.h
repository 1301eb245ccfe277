/* imatrix.h - importance matrices: how much each input channel of a weight matters, for quantizing it.
 *
 * An importance matrix is a checkpoint like another: per tensor NAME the sums `NAME.in_sum2` (one per channel and
 * expert) and `NAME.counts`, in GGUF or in the older form that formats/imatrix.c reads. The plan reads its tensors
 * like the model's, in bounded memory, and receipts record it. */
#ifndef CKPT_RECIPE_QUANTIZE_IMATRIX_H
#define CKPT_RECIPE_QUANTIZE_IMATRIX_H

#include "libckpt/plan/plan.h"

/* Whether an index is an importance matrix: pairs of sums and counts and nothing else. EFORMAT names the defect. */
ckpt_status ckpt_imatrix_check(const ckpt_index *imatrix, ckpt_error *err);

/* The importance of a tensor's channels as f32, one row of them per matrix of the tensor (its experts), or NULL if
 * it has none. EDIFFERENT if the widths do not match, except for the embedding, whose importance is not used. */
ckpt_status ckpt_imatrix_expr(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *imatrix, const ckpt_tensor *tensor,
                              ckpt_error *err);

/* EDIFFERENT if an entry belongs to no tensor of the model. *n_entries receives the number of entries. */
ckpt_status ckpt_imatrix_fits(const ckpt_index *imatrix, const ckpt_index *model, uint32_t *n_entries, ckpt_error *err);

#endif
