/* quantized.c - the calls of quantized tensors in an object that is written.
 *
 *   (values, offset, size, stride, (scheme, scales, zero points[, axis]), requires grad, hooks)
 *
 * Read, the values are a tensor, and so are the one scale and zero point of a whole tensor, which torch has as numbers.
 * Written, the values are a storage again, at the place that views.c gives them, and the numbers numbers. */
#include "formats/torch/torch.h"

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"

static const ckpt_tensor *held_in(const ckpt_index *described, const ckpt_object *leaf) {
  return leaf->kind == CKPT_OBJECT_TENSOR ? &described->tensors[leaf->tensor] : NULL;
}

/* Whether a leaf's tensor is a number that stood in a call, and is written as it was read. */
static bool take_number(const ckpt_index *described, ckpt_object *leaf, ckpt_dtype dtype) {
  const ckpt_tensor *tensor = held_in(described, leaf);
  if (tensor == NULL || tensor->dtype != dtype || tensor->rank != 0 || tensor->n_extents != 1 ||
      tensor->extents[0].file != CKPT_FILE_LITERAL)
    return false;
  leaf->form |= CKPT_LEAF_BARE;
  leaf->integer = (int64_t)tensor->extents[0].offset;
  return true;
}

/* Whether scales and zero points are what the scheme asks for: one number each, or tensors of the types that torch
 * has them in. */
static bool take_parameters(const ckpt_index *described, const ckpt_object *with) {
  const ckpt_object *scheme = with->items[0];
  ckpt_object *scales = with->items[1], *zero_points = with->items[2];
  const ckpt_tensor *a = held_in(described, scales), *b = held_in(described, zero_points);
  if (a == NULL || b == NULL) return false;
  if (ckpt_foreign_is_name(scheme, "torch", "per_tensor_affine"))
    return take_number(described, scales, CKPT_F64) && take_number(described, zero_points, CKPT_I64);
  return (a->dtype == CKPT_F64 || a->dtype == CKPT_F32) &&
         (b->dtype == CKPT_F32 || b->dtype == CKPT_I64 || b->dtype == CKPT_I32);
}

static ckpt_status make_tuple(ckpt_object **out, const uint64_t *values, uint32_t n, ckpt_arena *arena,
                              ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(arena, CKPT_OBJECT_TUPLE, n, NULL), err);
  for (uint32_t i = 0; i < n; i++) CKPT_TRY_ALLOC((*out)->items[i] = ckpt_object_int(arena, (int64_t)values[i]), err);
  return CKPT_OK;
}

ckpt_status ckpt_torch_settle_quantized(bool *is_settled, ckpt_object *call, const ckpt_index *described,
                                        const uint32_t *covers, ckpt_arena *arena, ckpt_error *err) {
  ckpt_object *values = call->items[0];
  const ckpt_tensor *tensor = held_in(described, values);
  ckpt_torch_view view = {0};
  if (ckpt_torch_has_bytes(call)) { /* as it was, with several values in a byte */
    *is_settled = call->items[4]->items[1]->kind != CKPT_OBJECT_TENSOR || take_parameters(described, call->items[4]);
    return CKPT_OK;
  }
  *is_settled = tensor != NULL && ckpt_torch_quantized_storage((ckpt_dtype)tensor->dtype) != NULL &&
                take_parameters(described, call->items[4]);
  if (!*is_settled) return CKPT_OK;
  values->form |= CKPT_LEAF_BARE;
  const uint32_t cover = covers == NULL ? values->tensor : covers[values->tensor];
  if (cover == values->tensor)
    ckpt_row_major(tensor->rank, tensor->shape, view.strides);
  else
    ckpt_torch_view_of(&view, tensor, &described->tensors[cover]);
  CKPT_TRY_ALLOC(call->items[1] = ckpt_object_int(arena, (int64_t)view.offset), err);
  CKPT_TRY(make_tuple(&call->items[2], tensor->shape, tensor->rank, arena, err));
  return make_tuple(&call->items[3], view.strides, tensor->rank, arena, err);
}
