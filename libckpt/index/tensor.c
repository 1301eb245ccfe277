/* tensor.c - see tensor.h. */
#include "libckpt/index/tensor.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/index/index.h"

static void view_extent(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_extent *extent, bool is_raw,
                        ckpt_extent_view *out) {
  ckpt_extent_view view = {.struct_size = out->struct_size, .flat = tensor->details->extent_form == CKPT_EXTENT_FLAT};
  if (extent->file != CKPT_FILE_LITERAL) { /* what a literal has in `offset` is its value */
    view.raw = is_raw && extent->chain[0] == CKPT_DECODE_RAW && extent->signs == 0 &&
               tensor->details->extent_form != CKPT_EXTENT_STRIDED;
    view.offset = extent->offset + (view.raw ? extent->skip : 0);
    view.n_bytes = extent->n_stored - (view.raw ? extent->skip : 0);
    if (ckpt_source_root(index->source)[0] != '\0') view.file = ckpt_source_path(index->source, extent->file);
  }
  uint32_t block = ckpt_dtype_get(tensor->dtype)->block_elements;
  if (view.flat) {
    view.start[0] = extent->start * block;
    view.count[0] = extent->count * block;
  } else {
    uint64_t units[CKPT_MAX_RANK];
    uint32_t rank = ckpt_tensor_units(tensor, units);
    for (uint32_t axis = 0; axis < rank; axis++) {
      uint32_t scale = axis + 1 == rank ? block : 1;
      view.start[axis] = extent->box[axis] * scale;
      view.count[axis] = extent->box[rank + axis] * scale;
    }
  }
  memcpy(out, &view, out->struct_size < sizeof view ? out->struct_size : sizeof view);
}

bool ckpt_tensor_extents(const ckpt_index *index, const ckpt_tensor *tensor, size_t i, ckpt_extent_view *out) {
  const ckpt_derivation *derived = tensor->details->derived;
  if (derived == NULL) {
    if (i >= tensor->n_extents) return false;
    view_extent(index, tensor, &tensor->extents[i], true, out);
    return true;
  }
  for (uint32_t k = 0; k < derived->n_operands; k++) {
    const ckpt_operand *of = &derived->operands[k];
    if (i < of->tensor->n_extents) {
      view_extent(of->index, of->tensor, &of->tensor->extents[i], derived->is_renamed, out);
      return true;
    }
    i -= of->tensor->n_extents;
  }
  return false;
}

uint32_t ckpt_unit_shape(ckpt_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t n_elements, uint64_t *units) {
  uint32_t block = ckpt_dtype_get(dtype)->block_elements;
  if (rank == 0 || shape[rank - 1] % block != 0) {
    units[0] = n_elements / block;
    return 1;
  }
  memcpy(units, shape, rank * sizeof *units);
  units[rank - 1] /= block;
  return rank;
}

bool ckpt_tensor_same_shape(const ckpt_tensor *a, const ckpt_tensor *b) {
  return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

static bool is_same_extent(const ckpt_tensor *tensor, const ckpt_extent *a, const ckpt_extent *b) {
  if (a->file != b->file || a->offset != b->offset || a->n_stored != b->n_stored || a->skip != b->skip ||
      a->signs != b->signs || memcmp(a->chain, b->chain, sizeof a->chain) != 0)
    return false;
  if (tensor->details->extent_form == CKPT_EXTENT_FLAT) return a->start == b->start && a->count == b->count;
  uint64_t units[CKPT_MAX_RANK];
  const uint32_t rank = ckpt_tensor_units(tensor, units);
  const size_t n = tensor->details->extent_form == CKPT_EXTENT_STRIDED ? 3 : 2;
  return a->box == b->box || memcmp(a->box, b->box, n * rank * sizeof *a->box) == 0;
}

/* Whether two derived tensors are the same of the same. */
static bool is_same_derivation(const ckpt_derivation *a, const ckpt_derivation *b) {
  if (a == b) return true;
  if (a == NULL || b == NULL || a->form != b->form || a->n_operands != b->n_operands) return false;
  for (uint32_t i = 0; i < a->n_operands; i++)
    if (a->operands[i].index != b->operands[i].index ||
        !ckpt_tensor_same_place(a->operands[i].tensor, b->operands[i].tensor))
      return false;
  return true;
}

bool ckpt_tensor_same_place(const ckpt_tensor *a, const ckpt_tensor *b) {
  if (a->dtype != b->dtype || !ckpt_tensor_same_shape(a, b) || a->details->extent_form != b->details->extent_form ||
      a->n_extents != b->n_extents || a->n_extents == 0)
    return false;
  if (a->details->derived != NULL || b->details->derived != NULL)
    return is_same_derivation(a->details->derived, b->details->derived);
  for (uint32_t i = 0; i < a->n_extents && a->extents != b->extents; i++)
    if (!is_same_extent(a, &a->extents[i], &b->extents[i])) return false;
  return true;
}

const char *ckpt_tensor_shape_text(const ckpt_tensor *tensor, char *out, size_t n_bytes) {
  size_t n = (size_t)snprintf(out, n_bytes, "[");
  for (uint32_t i = 0; i < tensor->rank; i++)
    n += (size_t)snprintf(out + n, n_bytes - n, "%s%llu", i ? "," : "", (unsigned long long)tensor->shape[i]);
  snprintf(out + n, n_bytes - n, "]");
  return out;
}

const char *ckpt_shape_text(char out[CKPT_SHAPE_TEXT], uint32_t rank, const uint64_t *shape) {
  const ckpt_tensor tensor = {.rank = (uint8_t)rank, .shape = (uint64_t *)(uintptr_t)shape};
  return ckpt_tensor_shape_text(&tensor, out, CKPT_SHAPE_TEXT);
}

uint32_t ckpt_tensor_units(const ckpt_tensor *tensor, uint64_t *units) {
  return ckpt_unit_shape(tensor->dtype, tensor->rank, tensor->shape, tensor->n_elements, units);
}

static const char *const role_names[CKPT_N_ROLES] = {"parameter",  "buffer",   "master", "exp_avg",
                                                     "exp_avg_sq", "momentum", "step",   "other"};

const char *ckpt_role_name(ckpt_role role) { return (unsigned)role < CKPT_N_ROLES ? role_names[role] : "other"; }

ckpt_role ckpt_role_parse(const char *name) {
  int role = 0;
  while (role < CKPT_N_ROLES && strcmp(role_names[role], name) != 0) role++;
  return (ckpt_role)role;
}

ckpt_role ckpt_role_of_name(const char *name) {
  if (strncmp(name, CKPT_STATE_PREFIX, sizeof CKPT_STATE_PREFIX - 1) != 0) return CKPT_ROLE_PARAMETER;
  ckpt_role role = ckpt_role_parse(strrchr(name, '.') + 1);
  return role == CKPT_N_ROLES ? CKPT_ROLE_OTHER : role;
}

bool ckpt_tensor_is_buffer(const ckpt_tensor *tensor) {
  static const char *const statistics[] = {"running_mean", "running_var"};
  if (tensor->role != CKPT_ROLE_PARAMETER) return tensor->role == CKPT_ROLE_BUFFER;
  const char *dot = strrchr(tensor->name, '.'), *last = dot == NULL ? tensor->name : dot + 1;
  for (size_t i = 0; i < sizeof statistics / sizeof *statistics; i++)
    if (strcmp(last, statistics[i]) == 0) return true;
  return tensor->dtype == CKPT_I64 || tensor->dtype == CKPT_BOOL;
}

bool ckpt_tensor_may_train(const ckpt_tensor *tensor) {
  return tensor->role == CKPT_ROLE_PARAMETER && !ckpt_tensor_is_buffer(tensor) &&
         ckpt_dtype_is_float((ckpt_dtype)tensor->dtype);
}
