/* tensor.h - one tensor of an index: its shape in units, its place, its role. */
#ifndef CKPT_INDEX_TENSOR_H
#define CKPT_INDEX_TENSOR_H

#include "libckpt/index/extent.h"

/* A tensor and the index that says where its bytes are. */
typedef struct ckpt_operand {
  const ckpt_index *index;
  const ckpt_tensor *tensor;
} ckpt_operand;

/* What a derived tensor is: an expression (plan/derive.h) over stored tensors. */
typedef struct ckpt_derivation {
  const ckpt_expr *expr;
  const ckpt_operand *operands; /* what it reads, each once */
  uint32_t n_operands;
  bool is_renamed; /* it is its one operand under another name */
  uint64_t form;   /* a hash of the expression but for its operands: equal for equal ones */
} ckpt_derivation;

/* What an index keeps of each tensor beside what callers see. */
typedef struct ckpt_tensor_details {
  uint64_t longest;               /* units on the first axis of the longest boxed extent */
  const ckpt_derivation *derived; /* NULL: its bytes are stored */
  uint32_t origin;                /* number of the tensor that it was described from */
  uint32_t part;                  /* and which of several that are read from that one */
  uint32_t like;                  /* number of the tensor that it stands for in the index of the objects, + 1 */
  uint32_t n_extra_names;         /* the last of its aliases, those that are no names of the model */
  uint8_t extent_form;            /* ckpt_extent_form */
} ckpt_tensor_details;

/* Whether tensors of this role are the model's own. */
static inline bool ckpt_role_is_model(ckpt_role role) {
  return role == CKPT_ROLE_PARAMETER || role == CKPT_ROLE_BUFFER;
}

/* The shape of a tensor in units: its axes, the last divided by the block; one axis of n_elements / block where that
 * does not divide; {1} for a scalar. Returns the rank (1..CKPT_MAX_RANK). */
uint32_t ckpt_unit_shape(ckpt_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t n_elements, uint64_t *units);

/* Whether two tensors have one shape. */
bool ckpt_tensor_same_shape(const ckpt_tensor *a, const ckpt_tensor *b);

/* Whether two tensors of one index are one under two names: of one dtype and shape, and every element of them read from
 * the same place. A transposed view of a square tensor, which lies in the same bytes, is another. False for tensors
 * without bytes; derived ones are one where they are computed in one way from the
 * same places. */
bool ckpt_tensor_same_place(const ckpt_tensor *a, const ckpt_tensor *b);

/* Whether a tensor is a buffer of the model: by its role or, since few formats record buffers, because it is int64 or
 * bool or a statistic of torch's norms. */
bool ckpt_tensor_is_buffer(const ckpt_tensor *tensor);

/* Whether a tensor is a parameter that can be trained: a floating one. */
bool ckpt_tensor_may_train(const ckpt_tensor *tensor);

/* Bytes of any shape as text. */
enum { CKPT_SHAPE_TEXT = 22 * CKPT_MAX_RANK + 3 };

/* A shape as "[2,3]". Returns out. */
const char *ckpt_shape_text(char out[CKPT_SHAPE_TEXT], uint32_t rank, const uint64_t *shape);

/* A tensor's shape, in n_bytes of out; CKPT_SHAPE_TEXT always suffice. Returns out. */
const char *ckpt_tensor_shape_text(const ckpt_tensor *tensor, char *out, size_t n_bytes);

/* Unit shape of a tensor of the index; see ckpt_unit_shape. */
uint32_t ckpt_tensor_units(const ckpt_tensor *tensor, uint64_t *units);

/* Role of a name: "parameter" and so on; CKPT_N_ROLES if unknown. */
ckpt_role ckpt_role_parse(const char *name);

/* Role of a tensor that is known by its canonical name alone: a state is called optimizer.state.<parameter>.<role>. */
ckpt_role ckpt_role_of_name(const char *name);

#endif
