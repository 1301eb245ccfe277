/* same.h - what several pieces of a batch compute alike is computed once: a tensor and what a reader of the output
 * finds for it, or one tensor in several outputs. */
#ifndef CKPT_PLAN_SAME_H
#define CKPT_PLAN_SAME_H

#include "libckpt/plan/plan.h"

/* The expression with reads as boxes of their tensors' own shapes where they are such, however they were reshaped: so
 * that two reads of one place are one read. A copy in the arena where anything differs. ENOMEM. */
ckpt_status ckpt_expr_as_stored(ckpt_expr **expr, ckpt_arena *arena, ckpt_error *err);

/* A piece joins the batch. Where its expression, or the first argument of that, gives the same bytes as a node that the
 * batch has, it becomes that node. ENOMEM. */
ckpt_status ckpt_share_expr(ckpt_plan *plan, const ckpt_batch *batch, ckpt_piece *piece, ckpt_error *err);

#endif
