/* merge.c - a merged tensor as an expression over the base and the adapters. See changes.h, docs/merging.md. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/plan/derive.h"
#include "libckpt/plan/ops/lora.h"
#include "libckpt/recipe/adapter/changes.h"

static ckpt_status read_part(ckpt_expr **out, const ckpt_adapters *all, const ckpt_change *c, ckpt_arena *arena,
                             const ckpt_tensor *tensor, ckpt_error *err) {
  CKPT_TRY(ckpt_expr_read_in(out, arena, all->list[c->adapter].index, tensor, err));
  return ckpt_expr_finite_in(out, arena, *out, err);
}

/* x as rows of all that its first axis has not. */
static ckpt_status as_matrix(ckpt_expr **x, ckpt_arena *arena, ckpt_error *err) {
  const uint64_t n_rows = (*x)->rank == 0 ? 1 : (*x)->shape[0];
  const uint64_t shape[2] = {n_rows, n_rows == 0 ? 0 : (*x)->n_elements / n_rows};
  return (*x)->rank == 2 ? CKPT_OK : ckpt_expr_reshape_in(x, arena, *x, 2, shape, err);
}

/* ---- updates ----------------------------------------------------------------------------------------------------- */

/* One expert's factors, of those of all; of the output n_rows from `first`. */
static ckpt_status cut_expert(ckpt_expr **input, ckpt_expr **output, const ckpt_change *c, uint64_t expert,
                              uint64_t n_rows, ckpt_arena *arena, ckpt_error *err) {
  const uint64_t all_rows = (*output)->shape[0], apart[3] = {all_rows, c->rank, c->n_experts},
                 own[2] = {n_rows, c->rank};
  CKPT_TRY(ckpt_expr_slice_in(input, arena, *input, 0, expert * c->rank, c->rank, err));
  CKPT_TRY(ckpt_expr_reshape_in(output, arena, *output, 3, apart, err));
  CKPT_TRY(ckpt_expr_slice_in(output, arena, *output, 0, c->first, n_rows, err));
  CKPT_TRY(ckpt_expr_slice_in(output, arena, *output, 2, expert, 1, err));
  return ckpt_expr_reshape_in(output, arena, *output, 2, own, err);
}

ckpt_status ckpt_change_term(ckpt_lora_term *out, const ckpt_adapters *all, const ckpt_change *c, uint64_t expert,
                             ckpt_arena *arena, ckpt_error *err) {
  ckpt_expr *input, *output;
  CKPT_TRY(read_part(&input, all, c, arena, c->input, err));
  CKPT_TRY(read_part(&output, all, c, arena, c->output, err));
  CKPT_TRY(as_matrix(&input, arena, err));
  CKPT_TRY(as_matrix(&output, arena, err));
  if (c->n_experts != 0) {
    const uint64_t n_rows = c->base->rank == 2 ? c->base->shape[0] : output->shape[0];
    CKPT_TRY(cut_expert(&input, &output, c, expert, n_rows, arena, err));
  }
  *out = (ckpt_lora_term){.output = output, .input = input, .scale = (float)c->scale};
  if (!c->is_transposed) return CKPT_OK;
  *out = (ckpt_lora_term){.output = input, .input = output, .scale = (float)c->scale};
  CKPT_TRY(ckpt_dialect_transpose(&out->output, arena, err));
  return ckpt_dialect_transpose(&out->input, arena, err);
}

/* What the changes add to a matrix; of fused experts it is that of `expert`, else each change says whose it is. */
static ckpt_status add_updates(ckpt_expr **value, const ckpt_adapters *all, const ckpt_change *changes, uint32_t n,
                               uint64_t expert, ckpt_arena *arena, ckpt_error *err) {
  ckpt_lora_term terms[CKPT_LORA_TERMS];
  ckpt_expr *magnitudes = NULL;
  uint32_t n_terms = 0;
  bool is_turned = false; /* magnitudes are of columns: rows of the transpose */
  for (uint32_t i = 0; i < n; i++) {
    if (changes[i].input == NULL) continue;
    if (n_terms == CKPT_LORA_TERMS)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %d adapters change it", CKPT_LORA_TERMS);
    const uint64_t of = changes[i].base->rank == 3 ? expert : changes[i].expert;
    CKPT_TRY(ckpt_change_term(&terms[n_terms++], all, &changes[i], of, arena, err));
    if (changes[i].magnitude == NULL) continue;
    CKPT_TRY(read_part(&magnitudes, all, &changes[i], arena, changes[i].magnitude, err));
    is_turned = changes[i].is_transposed;
  }
  if (n_terms == 0) return CKPT_OK;
  if (is_turned) {
    ckpt_expr *output = terms[0].output;
    terms[0].output = terms[0].input;
    terms[0].input = output;
    CKPT_TRY(ckpt_dialect_transpose(value, arena, err));
    CKPT_TRY(ckpt_dialect_transpose(&terms[0].output, arena, err));
    CKPT_TRY(ckpt_dialect_transpose(&terms[0].input, arena, err));
  }
  CKPT_TRY(
      ckpt_expr_lora_in(value, arena, *value, terms, n_terms, magnitudes, ckpt_change_dtype(all, changes, n), err));
  return is_turned ? ckpt_dialect_transpose(value, arena, err) : CKPT_OK;
}

/* Experts that are fused, (E, ...): each with its own update. */
static ckpt_status add_to_experts(ckpt_expr **value, const ckpt_adapters *all, const ckpt_change *changes, uint32_t n,
                                  ckpt_arena *arena, ckpt_error *err) {
  const uint64_t *shape = (*value)->shape, one[3] = {1, shape[1], shape[2]};
  const uint32_t n_experts = (uint32_t)shape[0];
  ckpt_expr **parts = ckpt_arena_array(arena, n_experts, sizeof *parts);
  CKPT_TRY_ALLOC(parts, err);
  for (uint32_t i = 0; i < n_experts; i++) {
    CKPT_TRY(ckpt_expr_slice_in(&parts[i], arena, *value, 0, i, 1, err));
    CKPT_TRY(ckpt_expr_reshape_in(&parts[i], arena, parts[i], 2, one + 1, err));
    CKPT_TRY(add_updates(&parts[i], all, changes, n, i, arena, err));
    CKPT_TRY(ckpt_expr_reshape_in(&parts[i], arena, parts[i], 3, one, err));
  }
  return ckpt_expr_concat_in(value, arena, parts, n_experts, 0, err);
}

/* A bias of the module's own: base + scale * bias, as a column with one term of rank 1. */
static ckpt_status add_biases(ckpt_expr **value, const ckpt_adapters *all, const ckpt_change *changes, uint32_t n,
                              ckpt_arena *arena, ckpt_error *err) {
  static const float one = 1;
  const uint64_t shape[2] = {(*value)->n_elements, 1}, single[2] = {1, 1};
  ckpt_lora_term terms[CKPT_LORA_TERMS];
  uint32_t n_terms = 0;
  for (uint32_t i = 0; i < n; i++) {
    ckpt_expr *bias;
    if (changes[i].bias == NULL) continue;
    if (n_terms == CKPT_LORA_TERMS)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %d adapters change it", CKPT_LORA_TERMS);
    CKPT_TRY(read_part(&bias, all, &changes[i], arena, changes[i].bias, err));
    CKPT_TRY(ckpt_expr_reshape_in(&terms[n_terms].output, arena, bias, 2, shape, err));
    CKPT_TRY(ckpt_expr_memory_in(&terms[n_terms].input, arena, CKPT_F32, 2, single, &one, err));
    terms[n_terms++].scale = (float)changes[i].scale;
  }
  if (n_terms == 0) return CKPT_OK;
  CKPT_TRY(ckpt_expr_reshape_in(value, arena, *value, 2, shape, err));
  CKPT_TRY(ckpt_expr_lora_in(value, arena, *value, terms, n_terms, NULL, ckpt_change_dtype(all, changes, n), err));
  return ckpt_expr_reshape_in(value, arena, *value, 1, shape, err);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef struct placed_row {
  uint64_t row, from; /* in the embedding, and among those that take places */
} placed_row;

static int by_row(const void *x, const void *y) {
  const placed_row *a = x, *b = y;
  return a->row < b->row ? -1 : a->row > b->row;
}

/* The rows of the base between those that take places, in one concat. */
static ckpt_status put_rows(ckpt_expr **value, const placed_row *rows, size_t n, ckpt_expr *given, ckpt_arena *arena,
                            ckpt_error *err) {
  ckpt_expr **parts = ckpt_arena_array(arena, 2 * n + 1, sizeof *parts);
  uint32_t n_parts = 0;
  uint64_t at = 0;
  CKPT_TRY_ALLOC(parts, err);
  for (size_t i = 0; i < n; i++) {
    if (rows[i].row != at) CKPT_TRY(ckpt_expr_slice_in(&parts[n_parts++], arena, *value, 0, at, rows[i].row - at, err));
    CKPT_TRY(ckpt_expr_slice_in(&parts[n_parts++], arena, given, 0, rows[i].from, 1, err));
    at = rows[i].row + 1;
  }
  if (at != (*value)->shape[0])
    CKPT_TRY(ckpt_expr_slice_in(&parts[n_parts++], arena, *value, 0, at, (*value)->shape[0] - at, err));
  return ckpt_expr_concat_in(value, arena, parts, n_parts, 0, err);
}

static ckpt_status replace_rows(ckpt_expr **value, const ckpt_adapters *all, const ckpt_change *c, ckpt_arena *arena,
                                ckpt_error *err) {
  const ckpt_opened_adapter *adapter = &all->list[c->adapter];
  uint64_t *indices = NULL;
  placed_row *rows = NULL;
  ckpt_expr *given;
  size_t n;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_peft_rows(&indices, &n, &adapter->peft, ckpt_change_rows_module(c), (*value)->shape[0], err));
  if (n != c->rows->shape[0]) {
    status = ckpt_fail(err, CKPT_EFORMAT, adapter->index->path, c->rows->name,
                       "has %llu rows, the config names %zu (trainable_token_indices)",
                       (unsigned long long)c->rows->shape[0], n);
    goto done;
  }
  rows = reallocarray(NULL, n, sizeof *rows);
  if (rows == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (size_t i = 0; i < n; i++) rows[i] = (placed_row){indices[i], i};
  qsort(rows, n, sizeof *rows, by_row);
  CKPT_TRY_GOTO(read_part(&given, all, c, arena, c->rows, err));
  CKPT_TRY_GOTO(ckpt_expr_cast_in(&given, arena, given, CKPT_F32, err));
  CKPT_TRY_GOTO(ckpt_expr_cast_in(value, arena, *value, CKPT_F32, err));
  status = put_rows(value, rows, n, given, arena, err);
done:
  free(indices);
  free(rows);
  return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

ckpt_dtype ckpt_change_dtype(const ckpt_adapters *all, const ckpt_change *changes, uint32_t n) {
  (void)n;
  if (changes[0].base != NULL)
    return ckpt_dtype_is_block((ckpt_dtype)changes[0].base->dtype) ? CKPT_F32 : (ckpt_dtype)changes[0].base->dtype;
  for (uint32_t i = 0; i < all->base->n_tensors; i++) { /* a new head is as the rest of the model */
    const ckpt_tensor *tensor = &all->base->tensors[i];
    if (tensor->rank == 2 && (tensor->dtype == CKPT_F32 || tensor->dtype == CKPT_F16 || tensor->dtype == CKPT_BF16))
      return (ckpt_dtype)tensor->dtype;
  }
  return (ckpt_dtype)changes[0].whole->dtype;
}

const ckpt_tensor *ckpt_change_shape(const ckpt_change *changes, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (changes[i].whole != NULL) return changes[i].whole;
  return changes[0].base;
}

ckpt_status ckpt_change_expr(ckpt_expr **out, const ckpt_adapters *all, const ckpt_change *changes, uint32_t n,
                             ckpt_arena *arena, ckpt_error *err) {
  const ckpt_change *first = &changes[0];
  ckpt_expr *value;
  if (first->whole != NULL)
    CKPT_TRY(read_part(&value, all, first, arena, first->whole, err));
  else
    CKPT_TRY(ckpt_expr_read_in(&value, arena, all->base, first->base, err));
  const ckpt_expr shape = *value;
  if (ckpt_dtype_is_block((ckpt_dtype)value->dtype)) CKPT_TRY(ckpt_expr_dequantize_in(&value, arena, value, err));
  if (first->rows != NULL) CKPT_TRY(replace_rows(&value, all, first, arena, err));
  const bool has_update = first->input != NULL || n > 1;
  if (first->n_experts != 0 && value->rank == 3)
    CKPT_TRY(add_to_experts(&value, all, changes, n, arena, err));
  else if (has_update && value->rank >= 2) {
    CKPT_TRY(as_matrix(&value, arena, err));
    CKPT_TRY(add_updates(&value, all, changes, n, 0, arena, err));
    if (shape.rank != 2) CKPT_TRY(ckpt_expr_reshape_in(&value, arena, value, shape.rank, shape.shape, err));
  }
  if (value->rank == 1) CKPT_TRY(add_biases(&value, all, changes, n, arena, err));
  return ckpt_expr_round_in(out, arena, value, ckpt_change_dtype(all, changes, n), err);
}
