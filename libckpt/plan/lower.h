/* lower.h - rewrites an expression so that its structure costs nothing.
 *
 * Slices, permutations and reshapes sink through elementwise (and, where they keep rows whole, row) operations down to
 * the reads, where they become views; a concat along the leading axis rises to the top, where it cuts the row into
 * pieces. What cannot be rewritten stays an operation in memory. The value of the expression does not change. */
#ifndef CKPT_PLAN_LOWER_H
#define CKPT_PLAN_LOWER_H

#include "libckpt/plan/op.h"

/* The rewritten expression, its new nodes in arena; nodes that need no change are shared with `in`. */
ckpt_status ckpt_lower(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *in, ckpt_error *err);

/* Whether node is a concat whose parts follow each other in the row-major result: axes before its own are all 1. */
bool ckpt_concat_is_leading(const ckpt_expr *node);

/* The view of a READ node, the whole one where node->view is NULL. */
void ckpt_expr_view(const ckpt_expr *node, ckpt_view *view);

/* Where a view begins in row-major order, how many units it has, and how many what it is a view of has. False where
 * the units are no range, or none. */
bool ckpt_view_range(const ckpt_view *view, uint64_t *begin, uint64_t *n_units, uint64_t *n_total);

#endif
