/* derive.h - derived tensors: tensors of an index that are expressions over tensors of that or other indexes, or
 * memory.
 *
 * Who reads the index need not know: ckpt_expr_read gives the expression, and with it every verb, digest and receipt;
 * ckpt_read makes a plan of it. The index that is derived from must outlive the one that holds the result. */
#ifndef CKPT_PLAN_DERIVE_H
#define CKPT_PLAN_DERIVE_H

#include "libckpt/plan/op.h"

/* Makes a tensor of an unfinished index the expression, which has the tensor's dtype and shape and lies in the index's
 * arena. What it reads must not be derived from the tensor. EINTERNAL (dtype, shape), ENOMEM. */
ckpt_status ckpt_derive(ckpt_index *index, uint32_t number, const ckpt_expr *expr, ckpt_error *err);

/* Makes a tensor the mean of n_slices of its shape, in their order (ops/mean.c): of its extents, which are those of all
 * slices in its own form, n_of[i] are the i-th one's. Both dtypes are floating; that of the slices is summed in f32. */
ckpt_status ckpt_derive_mean(ckpt_index *index, uint32_t number, ckpt_dtype slice_dtype, const uint32_t *n_of,
                             uint32_t n_slices, ckpt_error *err);

#endif
