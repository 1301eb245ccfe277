/* shard.h - a model cut over a mesh: the pass that makes the tape and the table of one rank from those of the whole.
 *
 * A family's builder knows nothing of ranks. Each row of tape_ops.def says how it can be cut over tp (its `shard`
 * slot), given how its inputs lie and which axis of its parameters may be cut. Where a value lies otherwise than the
 * next operation needs it, the pass records a collective. There are five, each other's backward:
 *
 *   copy_to      <-> reduce_from    a whole value enters what ranks compute in part; parts are summed up
 *   gather       <-> scatter_sum    parts become whole along tokens (cp), or a parameter's rows (dp_shard)
 *   all_to_all   <-> all_to_all
 *
 * Tokens are cut by the batch: rows over dp_replicate and dp_shard, positions over cp. A parameter's shard is its part
 * over tp, of which dp_shard has rows as torch.chunk cuts them; it is gathered before its first use, and its gradient
 * is summed into the shard. Gradients are sums over the axes of `sum_axes` still to be taken. What cannot be cut is
 * refused with its numbers.
 */
#ifndef CKPT_TRAINER_MODEL_SHARD_H
#define CKPT_TRAINER_MODEL_SHARD_H

#include "trainer/model/axes.h"
#include "trainer/model/model.h"

/* How a value lies over the ranks of tp. */
typedef enum ckpt_shard_layout {
  CKPT_SHARD_WHOLE,   /* the same on all, and so is its gradient */
  CKPT_SHARD_COPIED,  /* the same on all, and its gradient is a sum over them: behind a copy_to */
  CKPT_SHARD_CUT,     /* columns are cut */
  CKPT_SHARD_PARTIAL, /* a sum over them: before a reduce_from */
  CKPT_N_SHARD_LAYOUTS
} ckpt_shard_layout;

/* What the pass tells a row. */
typedef struct ckpt_shard_query {
  uint32_t n_tp;
  ckpt_shard_layout in[CKPT_TAPE_MAX_IN];
  int8_t split_axes[CKPT_TAPE_MAX_PARAMETERS]; /* that may be cut, or -1 */
  uint8_t parts[CKPT_TAPE_MAX_PARAMETERS];     /* equal parts of that axis, each of which is cut */
} ckpt_shard_query;

/* What a row answers; zeros, with axes -1: all is whole. It changes the entry's attributes to those of one rank. */
typedef struct ckpt_shard_rule {
  ckpt_shard_layout in[CKPT_TAPE_MAX_IN]; /* that it needs */
  ckpt_shard_layout out[CKPT_TAPE_MAX_OUT];
  int8_t parameter_axes[CKPT_TAPE_MAX_PARAMETERS]; /* that tp cuts; -1: whole */
  uint32_t sums_over_tp;                           /* bits of parameters whose gradient is a sum over tp */
  uint32_t gathers_tokens;                         /* bits of in[]: all tokens of a sequence are needed */
} ckpt_shard_rule;

/* Where a rank's parameter comes from. */
typedef struct ckpt_shard_origin {
  uint32_t parameter;         /* of the whole model */
  int8_t tp_axis;             /* -1: whole */
  uint8_t parts;              /* of that axis */
  uint64_t rows, columns;     /* of its part over tp; columns 1 of a vector */
  uint64_t first_row, n_rows; /* that are its own over dp_shard */
  uint32_t sum_axes;          /* bits of ckpt_mesh_axis over which its gradient is still to be summed */
} ckpt_shard_origin;

typedef struct ckpt_sharded_model {
  ckpt_model *model; /* of the rank: its table has shards, its tape collectives */
  const ckpt_model *whole;
  ckpt_mesh mesh, place;
  ckpt_shard_origin *origins; /* of each parameter */
  ckpt_shard_layout *layouts; /* of each value of the rank's tape */
  uint32_t *values;           /* the whole tape's value that each one is a part of; CKPT_NO_VALUE: a parameter's */
} ckpt_sharded_model;

/* The part of rank `place`. It borrows the whole model. EUNSUPPORTED names what cannot be cut, with numbers; ENOMEM.
 * Release with ckpt_sharded_model_free (NULL is fine). */
ckpt_status ckpt_sharded_model_new(ckpt_sharded_model **out, const ckpt_model *whole, const ckpt_mesh *mesh,
                                   const ckpt_mesh *place, ckpt_error *err);
void ckpt_sharded_model_free(ckpt_sharded_model *sharded); /* as above */

/* Fills the rank's flat buffer from the whole one, or the rank's places of the whole one from the rank's. */
void ckpt_sharded_model_take(const ckpt_sharded_model *sharded, void *local, const void *whole, size_t real_bytes);
void ckpt_sharded_model_give(const ckpt_sharded_model *sharded, const void *local, void *whole,
                             size_t real_bytes); /* as above */

/* n / by where that is whole; else EUNSUPPORTED with what, both numbers and the rest. For `shard` slots. */
ckpt_status ckpt_shard_divide(uint64_t *out, uint64_t n, uint32_t by, const char *what, const char *name,
                              ckpt_error *err);

#endif
