/* op.h - a row of tape_ops.def: the slots of an operation.
 *
 * Slots that all rows need: shapes, keeps, forward. What a tape that is trained needs: backward; one that is cut over
 * tp: shard. Slots of passes that do not exist yet (ONNX) are added here, and a tape that wants them refuses rows
 * without. */
#ifndef CKPT_TRAINER_MODEL_OP_H
#define CKPT_TRAINER_MODEL_OP_H

#include "trainer/model/executor.h"
#include "trainer/model/shard.h"

enum { CKPT_TAPE_MAX_LINEARS = 3 }; /* of an entry */

/* One run of an entry: what the executor gives it. Pointers are of the device; NULL for what is absent. */
typedef struct ckpt_tape_call {
  ckpt_device *device;
  const ckpt_tape *tape;
  const ckpt_tape_entry *entry;
  const ckpt_token_batch *batch; /* its arrays are the host's; those of the device are in[] */
  size_t n_tokens;
  void *in[CKPT_TAPE_MAX_IN], *out[CKPT_TAPE_MAX_OUT], *parameters[CKPT_TAPE_MAX_PARAMETERS];
  ckpt_dtype dtypes[CKPT_TAPE_MAX_PARAMETERS]; /* of parameters as stored; NONE: reals */
  bool is_turned;                              /* parameter 0 lies transposed */
  void *scratch, *state;
  bool x_is_scratch;            /* a product may round in[0] where it lies: products of bf16 alone read it */
  bool x_is_rounded;            /* and has, in an entry before */
  ckpt_axis_group *const *axes; /* of the mesh */
  size_t loss_rows;
  size_t head_first, head_rows; /* tokens that linear_loss is made of: all, but for ckpt_executor_head */
  bool keeps_logits;            /* theirs are wanted in scratch: there are at most loss_rows */
  /* backward: */
  void *d_in[CKPT_TAPE_MAX_IN];                 /* NULL: nobody wants it */
  void *d_out[CKPT_TAPE_MAX_OUT];               /* NULL: nothing came back */
  void *d_parameters[CKPT_TAPE_MAX_PARAMETERS]; /* added to, unless `sets` */
  bool sets;                                    /* that of parameter 0 holds nothing yet, and is set */
  bool adds[CKPT_TAPE_MAX_IN];                  /* whether d_in holds something already */
  double scale;                                 /* of the loss */
  bool is_training;                             /* dropout drops */
} ckpt_tape_call;

/* A matrix that tokens go through, at the largest batch: (n_tokens x n_in) times (n_in x n_out). */
typedef struct ckpt_tape_linear {
  uint64_t n_tokens, n_in, n_out;
} ckpt_tape_linear;

/* What backward reads, as bits of in[] and out[]; and which of them have gradients. */
typedef struct ckpt_tape_keeps {
  uint32_t in, out;
  uint32_t d_in, d_out;
} ckpt_tape_keeps;

typedef struct ckpt_tape_limits {
  uint64_t n_tokens, n_rows, length, loss_rows, real_bytes;
  ckpt_recompute_kind recompute;
} ckpt_tape_limits;

typedef struct ckpt_tape_op {
  const char *name;
  uint8_t min_in, max_in, min_parameters, max_parameters;
  bool sets_weight;          /* backward can set the gradient of parameter 0 as well as add to it */
  uint8_t stored_parameters; /* bit i: parameter i may lie as a checkpoint stores it (weights.h), all others in reals */
  bool may_share_inputs;     /* a value may fill several slots; backward then writes disjoint parts of its gradient */
  /* Checks inputs, parameters and attributes, and adds the outputs. EINVAL with both shapes. */
  ckpt_status (*shapes)(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err);
  ckpt_tape_keeps (*keeps)(const ckpt_tape_entry *entry);
  ckpt_status (*forward)(const ckpt_tape_call *call, ckpt_error *err);
  ckpt_status (*backward)(const ckpt_tape_call *call, ckpt_error *err);
  /* How it is cut over tp, given its inputs: shard.h. EUNSUPPORTED: what does not divide, with its numbers. */
  ckpt_status (*shard)(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                       const ckpt_shard_query *query, ckpt_error *err);
  uint8_t dual; /* of a collective: the operation that its backward is */
  bool is_collective;
  bool is_costly;              /* selective recomputation keeps what it makes */
  bool is_forward_in_backward; /* backward does forward's work too: while training forward is not run */
  bool has_backward_scratch;   /* forward has none */
  /* Bytes of scratch at the largest batch; NULL: none. */
  uint64_t (*scratch)(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits);
  /* The matrices of its products, and how many there are; NULL: it makes none. */
  uint32_t (*linears)(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits,
                      ckpt_tape_linear out[CKPT_TAPE_MAX_LINEARS]);
  /* What outlives calls: bytes, and what they hold (on the host). NULL: none. */
  uint64_t (*state_bytes)(const ckpt_tape_entry *entry);
  void (*state)(const ckpt_tape_entry *entry, void *out);
} ckpt_tape_op;

#define CKPT_TAPE_OP(id) extern const ckpt_tape_op ckpt_tape_op_##id;
#include "trainer/model/tape_ops.def"
#undef CKPT_TAPE_OP

extern const ckpt_tape_op *const ckpt_tape_ops[CKPT_N_TAPE_OPS]; /* every row, by its number */

/* EUNSUPPORTED, with the row's name and the slot's, where a row lacks what a tape needs. */
ckpt_status ckpt_tape_check_op(const ckpt_tape_op *op, bool needs_backward, ckpt_error *err);

/* The last axis of a value. */
static inline uint64_t ckpt_tape_columns(const ckpt_tape *tape, uint32_t value) {
  const ckpt_tape_shape *shape = &tape->values[value].shape;
  return shape->rank < 2 ? 1 : shape->sizes[shape->rank - 1];
}

/* EINVAL where a value is not tokens x n_columns. */
ckpt_status ckpt_tape_expect_columns(const ckpt_tape *tape, const ckpt_tape_entry *entry, uint32_t value,
                                     uint64_t n_columns, ckpt_error *err);

/* EINVAL where a parameter is not of this shape (n_rows 0: a vector). */
ckpt_status ckpt_tape_expect_parameter(const ckpt_tape *tape, const ckpt_tape_entry *entry, uint32_t which,
                                       uint64_t n_rows, uint64_t n_columns, ckpt_error *err);

/* What an entry's dropout is in this call; nothing is dropped where it is not training. */
ckpt_dropout ckpt_tape_dropout(const ckpt_tape_call *call);

/* Launches over rows of n_columns, over columns, and over elements, in parts of a size that pays. */
void ckpt_tape_over_rows(const ckpt_tape_call *call, ckpt_tape_kernel_id kernel, const void *args, size_t n_rows,
                         size_t n_columns);
void ckpt_tape_over_columns(const ckpt_tape_call *call, ckpt_tape_kernel_id kernel, const void *args,
                            size_t n_columns); /* as above */
void ckpt_tape_over_elements(const ckpt_tape_call *call, ckpt_tape_kernel_id kernel, const void *args,
                             size_t n); /* as above */

#endif
