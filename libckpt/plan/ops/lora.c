/* lora.c - low-rank updates by rows: what merging an adapter does to a matrix.
 *
 * Arguments, all f32: the base (..., n), then for each term its factor of the output (..., r), whose rows go with the
 * base's, and its factor of the input (r, n), whole. A row of the result is base + sum over terms of
 * scale * (row of the one x the other): the backend's `lora` (backend.h). `dora` has one term and a last argument, the
 * magnitudes (..., 1): rows are then scaled to them, by their norm in f64.
 *
 * What is not finite of a finite base counts as overflow. Where somebody asks, what the update did is added up in the
 * same pass: squares by rows, in f64, then exactly.
 * Sources: PEFT's LoRA layers, merge; Liu et al. 2024 (DoRA), eq. 5. */
#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/plan/op.h"
#include "libckpt/plan/ops/lora.h"

enum { ROWS = 96 /* at a time, as long as their squares are kept */, VALUES = 512 /* that are rounded at a time */ };

void ckpt_update_stats_add(ckpt_update_stats *into, const ckpt_update_stats *from) {
  ckpt_exact_sum_join(&into->added, &from->added);
  ckpt_exact_sum_join(&into->base, &from->base);
  into->n += from->n;
  into->n_same += from->n_same;
  into->n_same_f32 += from->n_same_f32;
}

/* Rows [row, row + n) of the call, before magnitudes. */
static void update_rows(const ckpt_op_call *call, uint64_t row, size_t n, ckpt_lora_squares *squares) {
  const ckpt_lora_params *params = call->node->params;
  const uint64_t width = call->node->shape[call->node->rank - 1];
  ckpt_lora_update updates[CKPT_LORA_TERMS];
  for (uint32_t i = 0; i < params->n_terms; i++) {
    const ckpt_expr *b = call->node->args[1 + 2 * i];
    const size_t rank = (size_t)b->shape[b->rank - 1];
    updates[i] = (ckpt_lora_update){.output = (const float *)call->args[1 + 2 * i] + row * rank,
                                    .input = call->args[2 + 2 * i],
                                    .rank = rank,
                                    .scale = params->scales[i]};
  }
  const ckpt_lora_rows rows = {.base = (const float *)call->args[0] + row * width,
                               .out = (float *)call->out + row * width,
                               .n_rows = n,
                               .width = (size_t)width,
                               .updates = updates,
                               .n_updates = params->n_terms,
                               .squares = squares};
  call->backend->lora(&rows);
}

/* Of n results those that are the base's values, once they are rounded to the dtype that the update is for. */
static uint64_t count_same(const ckpt_op_call *call, ckpt_dtype dtype, const float *base, const float *out, size_t n) {
  float rounded[VALUES];
  uint64_t buffer[VALUES], n_same = 0; /* as wide as any dtype */
  ckpt_cast_stats ignored = {0};
  if (dtype != CKPT_F32) {
    call->backend->cast(dtype, buffer, CKPT_F32, out, n, &ignored);
    call->backend->cast(CKPT_F32, rounded, dtype, buffer, n, &ignored);
    out = rounded;
  }
  for (size_t i = 0; i < n; i++) n_same += out[i] == base[i];
  return n_same;
}

/* What became of n rows. */
static void look(const ckpt_op_call *call, uint64_t row, size_t n, const ckpt_lora_squares *squares) {
  const ckpt_dtype dtype = ((const ckpt_lora_params *)call->node->params)->dtype;
  const uint64_t width = call->node->shape[call->node->rank - 1], n_values = n * width;
  const float *base = (const float *)call->args[0] + row * width, *out = (const float *)call->out + row * width;
  ckpt_update_stats *stats = call->update;
  for (size_t i = 0; i < n; i++) {
    ckpt_exact_sum_add(&stats->added, squares[i].added);
    ckpt_exact_sum_add(&stats->base, squares[i].base);
  }
  stats->n += n_values;
  for (uint64_t at = 0; at < n_values && call->counts_same; at += VALUES) {
    const size_t n_now = n_values - at < VALUES ? (size_t)(n_values - at) : VALUES;
    const uint64_t n_same_f32 = count_same(call, CKPT_F32, base + at, out + at, n_now);
    stats->n_same += dtype == CKPT_F32 ? n_same_f32 : count_same(call, dtype, base + at, out + at, n_now);
    stats->n_same_f32 += n_same_f32;
  }
}

/* In eight partial sums over the whole row; the kernels begin anew every 64 columns. */
static double sum_squares(const float *x, const float *from, uint64_t n) {
  double lanes[8] = {0};
  for (uint64_t i = 0; i < n; i++) {
    const double value = from == NULL ? (double)x[i] : (double)x[i] - (double)from[i];
    lanes[i % 8] += value * value;
  }
  for (size_t half = 4; half != 0; half /= 2)
    for (size_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

/* Gives a row, which has its update, the norm that it is to have. */
static ckpt_status scale_row(const ckpt_op_call *call, uint64_t row, ckpt_lora_squares *squares, ckpt_error *err) {
  const uint64_t width = call->node->shape[call->node->rank - 1];
  const float magnitude = ((const float *)call->args[3])[row], *base = (const float *)call->args[0] + row * width;
  float *out = (float *)call->out + row * width;
  const double n_squares = sum_squares(out, NULL, width);
  if (n_squares == 0)
    return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "row %llu is all zero, which no magnitude (%g) can scale",
                     (unsigned long long)(call->begin / width + row), (double)magnitude);
  const float scale = (float)((double)magnitude / sqrt(n_squares));
  for (uint64_t i = 0; i < width; i++) out[i] *= scale;
  if (squares != NULL) squares->added = sum_squares(out, base, width);
  return CKPT_OK;
}

static bool are_finite(const float *x, uint64_t n) {
  uint32_t most = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
  return most < 0x7F800000;
}

/* Results of rows that f32 does not hold, of values that it holds: they count as those of a cast. */
static void count_overflow(const ckpt_op_call *call, uint64_t row, size_t n_rows) {
  const uint64_t width = call->node->shape[call->node->rank - 1], n_values = n_rows * width;
  const float *base = (const float *)call->args[0] + row * width, *out = (const float *)call->out + row * width;
  uint64_t n = 0;
  if (are_finite(out, n_values)) return;
  for (uint64_t i = 0; i < n_values; i++) n += !isfinite(out[i]) && isfinite(base[i]);
  if (n == 0) return;
  call->stats->n_overflow += n;
  call->stats->largest = INFINITY;
}

static ckpt_status run(const ckpt_op_call *call, bool has_magnitudes, ckpt_error *err) {
  const uint64_t width = call->node->shape[call->node->rank - 1], n_rows = width == 0 ? 0 : call->n_elements / width;
  ckpt_lora_squares squares[ROWS];
  for (uint64_t row = 0; row < n_rows; row += ROWS) {
    const size_t n = n_rows - row < ROWS ? (size_t)(n_rows - row) : ROWS;
    update_rows(call, row, n, call->update == NULL ? NULL : squares);
    for (size_t i = 0; i < n && has_magnitudes; i++)
      CKPT_TRY(scale_row(call, row + i, call->update == NULL ? NULL : &squares[i], err));
    if (call->update != NULL) look(call, row, n, squares);
    count_overflow(call, row, n);
  }
  return CKPT_OK;
}

static ckpt_status run_lora(const ckpt_op_call *call, ckpt_error *err) { return run(call, false, err); }

static ckpt_status run_dora(const ckpt_op_call *call, ckpt_error *err) { return run(call, true, err); }

/* Bits 2, 4, ...: the factors of the input. */
_Static_assert(CKPT_LORA_TERMS == 15, "whole_args has a bit for each factor of the input");
const ckpt_op ckpt_op_lora = {
    .name = "lora", .rule = CKPT_RULE_ROW, .is_rowwise = true, .whole_args = 0x55555554, .run = run_lora};
const ckpt_op ckpt_op_dora = {
    .name = "dora", .rule = CKPT_RULE_ROW, .is_rowwise = true, .whole_args = 4, .run = run_dora};

static ckpt_status run_nothing(const ckpt_op_call *call, ckpt_error *err) {
  (void)call;
  (void)err;
  return CKPT_OK;
}

/* Passes the base through. It lists the update's arguments, so that one batch reads both. */
const ckpt_op ckpt_op_unchanged = {
    .name = "unchanged", .rule = CKPT_RULE_ROW, .is_check = true, .whole_args = 0x55555554, .run = run_nothing};

/* A factor as f32, of these two axes. */
static ckpt_status factor(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const char *what, uint64_t n_rows,
                          uint64_t n_cols, ckpt_error *err) {
  if (x->rank != 2 || x->shape[0] != n_rows || x->shape[1] != n_cols)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the factor of the %s is no matrix of %llu x %llu", what,
                     (unsigned long long)n_rows, (unsigned long long)n_cols);
  return ckpt_expr_cast_in(out, arena, x, CKPT_F32, err);
}

ckpt_status ckpt_expr_lora_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *base, const ckpt_lora_term *terms,
                              uint32_t n_terms, ckpt_expr *magnitudes, ckpt_dtype dtype, ckpt_error *err) {
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
  params->dtype = dtype;
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

/* The update that a node has of a tensor, all of it and in its order; NULL: none. */
static const ckpt_expr *find_update(const ckpt_expr *node, const ckpt_tensor *tensor) {
  const ckpt_expr *found = NULL;
  if (node->op == &ckpt_op_lora || node->op == &ckpt_op_dora) {
    const ckpt_expr *base = node->args[0];
    while (ckpt_op_is_cast(base->op) || base->op == &ckpt_op_dequantize) base = base->args[0];
    return ckpt_expr_tensor(base) == tensor ? node : NULL;
  }
  for (uint32_t i = 0; i < node->n_args && found == NULL; i++) found = find_update(node->args[i], tensor);
  return found;
}

ckpt_status ckpt_expr_unchanged_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const ckpt_expr *updated,
                                   ckpt_error *err) {
  const ckpt_tensor *tensor = ckpt_expr_tensor(x);
  const ckpt_expr *update = tensor == NULL || x->rank != 2 ? NULL : find_update(updated, tensor);
  *out = x;
  if (update == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_expr_new(out, arena, &ckpt_op_unchanged, (ckpt_dtype)x->dtype, x->rank, x->shape, update->n_args, err));
  memcpy((*out)->args, update->args, update->n_args * sizeof *update->args);
  (*out)->args[0] = x;
  return CKPT_OK;
}

ckpt_dtype ckpt_expr_update_dtype(const ckpt_expr *expr) {
  if (expr->op == &ckpt_op_lora || expr->op == &ckpt_op_dora) return ((const ckpt_lora_params *)expr->params)->dtype;
  ckpt_dtype dtype = CKPT_DTYPE_NONE;
  for (uint32_t i = 0; i < expr->n_args && dtype == CKPT_DTYPE_NONE; i++) dtype = ckpt_expr_update_dtype(expr->args[i]);
  return dtype;
}
