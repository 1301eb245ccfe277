/* derive.c - see derive.h. An expression's operands are found once, when the tensor is made, so that what knows no
 * expressions (coverage, extents, the inputs of a plan) can go by them. */
#include "libckpt/plan/derive.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef struct operands {
  ckpt_operand *items;
  uint32_t n, capacity;
} operands;

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 32;
}

/* The parameters of an operation that a dialect has. */
static uint64_t mix_params(uint64_t hash, const ckpt_expr *node) {
  const ckpt_slice_params *slice = node->params;
  const ckpt_order_params *order = node->params;
  if (node->op == &ckpt_op_slice) return mix(mix(mix(hash, slice->axis), slice->start), slice->count);
  if (node->op == &ckpt_op_add_constant) {
    uint32_t bits;
    memcpy(&bits, node->params, sizeof bits);
    return mix(hash, bits);
  }
  if (node->op == &ckpt_op_concat) return mix(hash, ((const ckpt_axis_params *)node->params)->axis);
  for (uint32_t i = 0; node->op == &ckpt_op_permute && i < node->rank; i++) hash = mix(hash, order->order[i]);
  return hash;
}

/* Adds what a node reads to the operands, and the node to the hash of the expression. */
static ckpt_status look(operands *found, uint64_t *hash, const ckpt_expr *node, ckpt_error *err) {
  for (uint32_t i = 0; i < node->n_args; i++) CKPT_TRY(look(found, hash, node->args[i], err));
  *hash = mix(mix(mix(*hash, (uintptr_t)node->op), node->dtype), node->rank);
  for (uint32_t i = 0; i < node->rank; i++) *hash = mix(*hash, node->shape[i]);
  *hash = mix(mix_params(*hash, node), (uintptr_t)node->memory);
  if (node->op != &ckpt_op_read) return CKPT_OK;
  uint32_t i = 0;
  while (i < found->n && found->items[i].tensor != node->tensor) i++;
  *hash = mix(*hash, i);
  if (i < found->n) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&found->items, found->n, &found->capacity, sizeof *found->items, err));
  found->items[found->n++] = (ckpt_operand){node->index, node->tensor};
  return CKPT_OK;
}

ckpt_status ckpt_derive(ckpt_index *index, uint32_t number, const ckpt_expr *expr, ckpt_error *err) {
  const ckpt_tensor *tensor = &index->tensors[number];
  const bool fits = expr->dtype == tensor->dtype && expr->rank == tensor->rank &&
                    (expr->rank == 0 || memcmp(expr->shape, tensor->shape, expr->rank * sizeof *expr->shape) == 0);
  if (!fits) return ckpt_fail(err, CKPT_EINTERNAL, NULL, tensor->name, "is derived from something of another shape");
  operands found = {0};
  ckpt_derivation derived = {.expr = expr};
  ckpt_status status = look(&found, &derived.form, expr, err);
  derived.operands = found.items;
  derived.n_operands = found.n;
  derived.is_renamed = expr->op == &ckpt_op_read;
  if (status == CKPT_OK) status = ckpt_index_derive(index, number, &derived, err);
  free(found.items);
  return status;
}

ckpt_status ckpt_derive_mean(ckpt_index *index, uint32_t number, ckpt_dtype slice_dtype, const uint32_t *n_of,
                             uint32_t n_slices, ckpt_error *err) {
  const ckpt_tensor *tensor = &index->tensors[number];
  ckpt_arena *arena = &index->arena;
  ckpt_expr **slices = ckpt_arena_array(arena, n_slices, sizeof *slices), *mean;
  CKPT_TRY_ALLOC(slices, err);
  uint32_t n_before = 0;
  for (uint32_t i = 0; i < n_slices; i++) {
    ckpt_tensor *slice;
    const ckpt_extent *extents = tensor->extents == NULL ? NULL : tensor->extents + n_before;
    CKPT_TRY(ckpt_index_operand(&slice, index, tensor, slice_dtype, extents, n_of[i], err));
    CKPT_TRY(ckpt_expr_read_in(&slices[i], arena, index, slice, err));
    CKPT_TRY(ckpt_expr_cast_in(&slices[i], arena, slices[i], CKPT_F32, err));
    n_before += n_of[i];
  }
  CKPT_TRY(ckpt_expr_apply_in(&mean, arena, &ckpt_op_mean, CKPT_F32, slices, n_slices, NULL, err));
  CKPT_TRY(ckpt_expr_cast_in(&mean, arena, mean, (ckpt_dtype)tensor->dtype, err));
  return ckpt_derive(index, number, mean, err);
}
