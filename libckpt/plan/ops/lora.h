/* lora.h - low-rank updates of a matrix as an expression; see lora.c for the formula. */
#ifndef CKPT_PLAN_OPS_LORA_H
#define CKPT_PLAN_OPS_LORA_H

#include "libckpt/plan/op.h"

enum { CKPT_LORA_TERMS = 15 }; /* of one matrix */

/* base (m, n) gets scale * output (m, r) x input (r, n): PEFT's B and A, of any floating dtypes. */
typedef struct ckpt_lora_term {
  ckpt_expr *output, *input;
  float scale;
} ckpt_lora_term;

typedef struct ckpt_lora_params {
  ckpt_dtype dtype; /* that the result is for */
  uint32_t n_terms;
  float scales[CKPT_LORA_TERMS];
} ckpt_lora_params;

/* base, a matrix of any floating dtype, plus the terms, as f32; statistics are of its rounding to dtype. magnitudes (m)
 * or NULL: the norms that the rows get afterwards, with one term only. EINVAL: shapes that do not fit; ELIMIT. */
ckpt_status ckpt_expr_lora_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *base, const ckpt_lora_term *terms,
                              uint32_t n_terms, ckpt_expr *magnitudes, ckpt_dtype dtype, ckpt_error *err);

/* x, which reads a tensor, as it is. Where `updated` has an update of that tensor, its row reads in the same tiles. */
ckpt_status ckpt_expr_unchanged_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const ckpt_expr *updated,
                                   ckpt_error *err);

/* The dtype of the first of these that a node is made of; NONE without one. */
ckpt_dtype ckpt_expr_update_dtype(const ckpt_expr *expr);

#endif
