/* memory_plan.h - the schedule of a tape, and the place of each value in the arena. Made before anything is allocated.
 */
#ifndef CKPT_TRAINER_MODEL_MEMORY_PLAN_H
#define CKPT_TRAINER_MODEL_MEMORY_PLAN_H

#include "trainer/model/op.h"

#define CKPT_NEVER UINT32_MAX

typedef struct ckpt_schedule_step {
  uint32_t entry;
  bool is_backward;
  uint8_t adds;      /* bit i: the gradient of input i has been begun before */
  bool may_set;      /* the operation can set its weight's gradient, and no step before gives that any */
  bool x_is_scratch; /* input 0 is a factor of bf16 products alone: they may round it where it lies */
  bool x_is_rounded; /* and a step before has let them */
  uint32_t scratch;  /* number of its buffer, or CKPT_NEVER */
} ckpt_schedule_step;

/* A range of the arena that is in use from step `first` to step `last`. */
typedef struct ckpt_planned_buffer {
  uint64_t offset, n_bytes; /* n_bytes 0: it is not there */
  uint32_t first, last;
} ckpt_planned_buffer;

typedef struct ckpt_memory_plan {
  ckpt_schedule_step *steps;
  uint32_t n_steps, n_forward; /* the first n_forward are the pass forward */
  /* [0, n_values): values; then as many gradients; then as many values that are made again; then scratch of steps */
  ckpt_planned_buffer *buffers;
  uint32_t n_buffers, n_values;
  bool *is_set;     /* by number of the parameter: whether the step that begins its gradient may set it */
  bool *is_factor;  /* by value: factors of bf16 products are all that reads it, forward and backward */
  uint64_t *states; /* by entry: offset of its state */
  uint64_t inputs[CKPT_N_INPUTS];
  uint64_t arena, live, state; /* bytes */
} ckpt_memory_plan;

/* Where a value is at a step. */
static inline ckpt_planned_buffer *ckpt_planned_value(const ckpt_memory_plan *plan, uint32_t value, uint32_t step) {
  ckpt_planned_buffer *again = &plan->buffers[2 * plan->n_values + value];
  return again->first != CKPT_NEVER && step >= again->first ? again : &plan->buffers[value];
}

enum { CKPT_PLAN_ALIGNMENT = 64 }; /* bytes, of every buffer in the arena */

/* Plans a tape for batches of at most `limits`. Everything is in the arena given. ELIMIT (an overflow), ENOMEM. */
ckpt_status ckpt_memory_plan_make(ckpt_memory_plan *out, ckpt_arena *arena, const ckpt_tape *tape,
                                  const ckpt_tape_limits *limits, bool has_backward, ckpt_error *err);

#endif
