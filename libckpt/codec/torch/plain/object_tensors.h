/* object_tensors.h - tensors inside a description's objects, among values of other kinds.
 *
 * Client state may be {"nested": {"steps": [1, 2], "t": tensor}}: the tensor is called nested.t, and is written into
 * the object where that is its place. The whole object that a source had is not one of these: it is written as a
 * whole. */
#ifndef CKPT_CODEC_TORCH_PLAIN_OBJECT_TENSORS_H
#define CKPT_CODEC_TORCH_PLAIN_OBJECT_TENSORS_H

#include "libckpt/index/index.h"

/* A name of a described tensor that is the path to it in an object, its key first. */
typedef struct ckpt_object_name {
  const char *name; /* the description's */
  uint32_t tensor, object;
  bool is_placed; /* the writer's */
} ckpt_object_name;

/* Zero-initialise it; free with ckpt_object_tensors_free. */
typedef struct ckpt_object_tensors {
  ckpt_object_name *names; /* by tensor and in byte order */
  uint32_t n, capacity;
  uint32_t *numbers; /* by the number of a leaf: the tensor described that one of the names is of; UINT32_MAX: none */
  uint32_t n_numbers;
} ckpt_object_tensors;

/* Finds them in dicts, lists and tuples, and in what holds one of those (ckpt_torch_held_by). None where the objects
 * would take more steps than is sane. ENOMEM, ELIMIT. */
ckpt_status ckpt_object_tensors_find(ckpt_object_tensors *out, const ckpt_index *described, ckpt_error *err);

/* The entry of a name; NULL where the tensor has no place that is called so. */
ckpt_object_name *ckpt_object_tensors_at(const ckpt_object_tensors *held, uint32_t tensor, const char *name);

void ckpt_object_tensors_free(ckpt_object_tensors *held); /* the matching end */

#endif
