/* lora.c - low-rank updates by rows: what merging an adapter does to a matrix.
 *
 * Arguments, all f32: the base (..., n), then for each term its factor of the output (..., r), whose rows go with the
 * base's, and its factor of the input (r, n), whole. A row of the result is base + sum over terms of
 * scale * (row of the one x the other): k in order, no contraction, terms added up before the base is. `dora` has one
 * term and a last argument, the magnitudes (..., 1): rows are then scaled to them, by their norm in f64.
 * Sources: PEFT's LoRA layers, merge; Liu et al. 2024 (DoRA), eq. 5. */
#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/plan/op.h"
#include "libckpt/plan/ops/lora.h"

enum { COLUMNS = 256 }; /* of a row at a time: what is summed up stays in the nearest cache */

/* sum[j] += scale * sum over k of b[k] * a[k][j], for n columns of rows that are `width` long. */
static void add_term(float *sum, const float *b, const float *a, uint64_t rank, uint64_t width, size_t n, float scale) {
  float product[COLUMNS] = {0};
  for (uint64_t k = 0; k < rank; k++) {
    const float *row = a + k * width, factor = b[k];
    for (size_t j = 0; j < n; j++) product[j] += factor * row[j];
  }
  for (size_t j = 0; j < n; j++) sum[j] += scale * product[j];
}

static void update_row(const ckpt_op_call *call, uint64_t row, uint64_t width, float *out) {
  const ckpt_lora_params *params = call->node->params;
  const float *base = (const float *)call->args[0] + row * width;
  for (uint64_t at = 0; at < width; at += COLUMNS) {
    const size_t n = width - at < COLUMNS ? (size_t)(width - at) : COLUMNS;
    float sum[COLUMNS] = {0};
    for (uint32_t i = 0; i < params->n_terms; i++) {
      const ckpt_expr *b = call->node->args[1 + 2 * i];
      const uint64_t rank = b->shape[b->rank - 1];
      add_term(sum, (const float *)call->args[1 + 2 * i] + row * rank, (const float *)call->args[2 + 2 * i] + at, rank,
               width, n, params->scales[i]);
    }
    for (size_t j = 0; j < n; j++) out[at + j] = base[at + j] + sum[j];
  }
}

static ckpt_status run_lora(const ckpt_op_call *call, ckpt_error *err) {
  (void)err;
  const uint64_t width = call->node->shape[call->node->rank - 1], n_rows = width == 0 ? 0 : call->n_elements / width;
  for (uint64_t row = 0; row < n_rows; row++) update_row(call, row, width, (float *)call->out + row * width);
  return CKPT_OK;
}

static ckpt_status run_dora(const ckpt_op_call *call, ckpt_error *err) {
  const uint64_t width = call->node->shape[call->node->rank - 1], n_rows = width == 0 ? 0 : call->n_elements / width;
  const float *magnitudes = call->args[3];
  CKPT_TRY(run_lora(call, err));
  for (uint64_t row = 0; row < n_rows; row++) {
    float *out = (float *)call->out + row * width;
    double squares = 0;
    for (uint64_t j = 0; j < width; j++) squares += (double)out[j] * (double)out[j];
    if (squares == 0)
      return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "row %llu is all zero, which no magnitude (%g) can scale",
                       (unsigned long long)(call->begin / width + row), (double)magnitudes[row]);
    const float scale = (float)((double)magnitudes[row] / sqrt(squares));
    for (uint64_t j = 0; j < width; j++) out[j] *= scale;
  }
  return CKPT_OK;
}

/* Bits 2, 4, ...: the factors of the input. */
_Static_assert(CKPT_LORA_TERMS == 15, "whole_args has a bit for each factor of the input");
const ckpt_op ckpt_op_lora = {
    .name = "lora", .rule = CKPT_RULE_ROW, .is_rowwise = true, .whole_args = 0x55555554, .run = run_lora};
const ckpt_op ckpt_op_dora = {
    .name = "dora", .rule = CKPT_RULE_ROW, .is_rowwise = true, .whole_args = 4, .run = run_dora};

/* A factor as f32, of these two axes. */
static ckpt_status factor(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const char *what, uint64_t n_rows,
                          uint64_t n_cols, ckpt_error *err) {
  if (x->rank != 2 || x->shape[0] != n_rows || x->shape[1] != n_cols)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the factor of the %s is no matrix of %llu x %llu", what,
                     (unsigned long long)n_rows, (unsigned long long)n_cols);
  return ckpt_expr_cast_in(out, arena, x, CKPT_F32, err);
}

ckpt_status ckpt_expr_lora_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *base, const ckpt_lora_term *terms,
                              uint32_t n_terms, ckpt_expr *magnitudes, ckpt_error *err) {
  if (base->rank != 2)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "low-rank updates are for matrices, not for %u axes", base->rank);
  if (n_terms > CKPT_LORA_TERMS || (magnitudes != NULL && n_terms != 1))
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u low-rank updates of one matrix%s (at most %d)", n_terms,
                     magnitudes != NULL ? " with magnitudes" : "", magnitudes != NULL ? 1 : CKPT_LORA_TERMS);
  const uint64_t column[2] = {base->shape[0], 1};
  ckpt_expr *args[2 + 2 * CKPT_LORA_TERMS];
  uint32_t n_args = 0;
  ckpt_lora_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  CKPT_TRY(ckpt_expr_cast_in(&args[n_args++], arena, base, CKPT_F32, err));
  for (uint32_t i = 0; i < n_terms; i++) {
    const uint64_t rank = terms[i].output->rank == 2 ? terms[i].output->shape[1] : 0;
    CKPT_TRY(factor(&args[n_args++], arena, terms[i].output, "output", base->shape[0], rank, err));
    CKPT_TRY(factor(&args[n_args++], arena, terms[i].input, "input", rank, base->shape[1], err));
    params->scales[params->n_terms++] = terms[i].scale;
  }
  if (magnitudes != NULL) {
    CKPT_TRY(ckpt_expr_cast_in(&args[n_args], arena, magnitudes, CKPT_F32, err));
    CKPT_TRY(ckpt_expr_reshape_in(&args[n_args], arena, args[n_args], 2, column, err));
    n_args++;
  }
  CKPT_TRY(ckpt_expr_new(out, arena, magnitudes != NULL ? &ckpt_op_dora : &ckpt_op_lora, CKPT_F32, 2, base->shape,
                         n_args, err));
  memcpy((*out)->args, args, n_args * sizeof *args);
  (*out)->params = params;
  return CKPT_OK;
}
