/* strips.h - chooses which expressions of a batch are evaluated together, and on how many rows of a tile at once.
 *
 * The planner sizes buffers with the same functions that the run uses. */
#ifndef CKPT_PLAN_STRIPS_H
#define CKPT_PLAN_STRIPS_H

#include "libckpt/plan/plan.h"

/* Expressions that are evaluated together at most. */
enum { CKPT_MAX_TOGETHER = 8 };

/* What is evaluated for a piece's expression: itself, or that whose rows it has in another order. */
static inline const ckpt_expr *ckpt_expr_made(const ckpt_expr *expr) {
  return expr->op == &ckpt_op_move_rows ? expr->args[0] : expr;
}

/* Collects what is evaluated for the batch's pieces from number `first` on: expressions that share their first
 * argument, at most CKPT_MAX_TOGETHER. They are evaluated together, so that the argument is evaluated once. *next is
 * the piece after them. Returns their number, mostly 1. */
uint32_t ckpt_pieces_together(const ckpt_plan *plan, const ckpt_batch *batch, uint32_t first, const ckpt_expr **exprs,
                              uint32_t *next);

/* How many of n_rows rows of a tile such expressions are evaluated on at a time: n_rows, or as few as stay in the
 * core's cache with all that is made on the way. */
uint64_t ckpt_strip_rows(const ckpt_batch *batch, const ckpt_expr *const *exprs, uint32_t n, uint64_t n_rows);

#endif
