/* sharded.h - what one rank holds of parameters, gradients and AdamW's moments, and how a step is taken: stages 0 to 3
 * of ZeRO as one module.
 *
 * Each parameter is cut along its first axis as torch.chunk does, which is how FSDP2 and DCP's layout cut: what a rank
 * holds is what its file of a checkpoint holds. Shards may be uneven or empty.
 *   stage 0  every rank has all moments; gradients are summed over ranks whole
 *   stage 1  a rank has the moments of its shards, updates those, and weights are gathered
 *   stage 2  the same, and gradients are summed into shards, a layer at a time, while the next is computed (units.h)
 *   stage 3  the same, and weights are shards too, gathered a layer at a time ahead of their use
 * An adapter is small: stages 2 and 3 hold its weights and gradients whole.
 * Ranks may be cut into replicas: each holds all shards, and summed gradients are added up over them once a step.
 * The norm is summed over shards in every stage. So stages 0 and 1 give the same bits, and 2 and 3. */
#ifndef CKPT_TRAINER_PARALLEL_SHARDED_H
#define CKPT_TRAINER_PARALLEL_SHARDED_H

#include "trainer/model/device.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/parallel/collective.h"
#include "trainer/parallel/units.h"

/* What a rank updates of a parameter: a range of rows. */
typedef struct ckpt_shard_piece {
  uint64_t first_row, n_rows; /* of its first axis */
  uint64_t flat, n;           /* elements in the flat buffers */
  uint64_t local;             /* where they begin in the rank's own buffers */
} ckpt_shard_piece;

typedef struct ckpt_sharded {
  const ckpt_model *model;
  ckpt_axis_group *group;    /* of those that hold the shards of one replica */
  ckpt_axis_group *replicas; /* of those that hold this rank's shard; NULL: there is one replica */
  ckpt_device *device;       /* borrowed; the buffers are its memory, 64-byte aligned, owned */
  uint32_t stage;
  bool has_units;
  bool begins;                 /* the flat gradients hold nothing that counts */
  float *weights, *gradients;  /* flat */
  float *exp_avg, *exp_avg_sq; /* n_local elements */
  float *summed;               /* stages 2 and 3: gradients of the shards, n_local */
  float *own;                  /* of units, stage 3: weights of the shards; then there are no flat ones */
  ckpt_units *units;           /* stages 2 and 3 by layers: then there are no flat gradients; NULL: whole */
  uint64_t n_local;
  ckpt_shard_piece *pieces; /* those of this rank, n_parameters */
  ckpt_shard_piece *shards; /* the same; in stage 0, the pieces of stage 1: what the norm is summed over */
  ckpt_range *owned;        /* shards of every rank, whatever the stage; n_parameters of each */
  ckpt_range *summed_by;    /* of the own shards what each replica sums, where there are several; as many */
  double *device_sums;      /* of squares, by blocks of the shards; of the device */
  double *sums;             /* the same, of the host */
  uint64_t n_blocks;
  struct {
    float *weights, *exp_avg, *exp_avg_sq;
  } host; /* what is loaded and saved: the same buffers, or of another device copies (to_host, to_device) */
} ckpt_sharded;

/* Elements that a buffer of n takes: whole lines of 64 bytes. */
uint64_t ckpt_shard_aligned(uint64_t n);

/* Bytes of a rank's buffers. */
typedef struct ckpt_sharded_memory {
  uint64_t weights, gradients, moments, summed;
} ckpt_sharded_memory;

/* What rank `rank` of `n_ranks` would hold; by_layers as in the options. */
void ckpt_sharded_plan(ckpt_sharded_memory *out, const ckpt_model *model, uint32_t stage, bool by_layers, uint32_t rank,
                       uint32_t n_ranks);

typedef struct ckpt_sharded_options {
  const ckpt_model *model;
  ckpt_axis_group *group, *background; /* of one replica's ranks; the second of the thread beside */
  ckpt_axis_group *replicas;           /* of the ranks with this rank's shard; NULL: it has no other */
  ckpt_device *device;
  uint32_t stage;
  bool by_layers; /* stages 2 and 3 hold a layer at a time; the model has a tape */
  bool overlaps;  /* with it: the thread beside sums and gathers meanwhile */
} ckpt_sharded_options;

/* The rows of a parameter that belong to a rank: [*first, *first + *n). */
void ckpt_shard_rows(const ckpt_parameter *parameter, uint32_t rank, uint32_t n_ranks, uint64_t *first, uint64_t *n);

/* Zeroed buffers. ENOMEM. */
ckpt_status ckpt_sharded_new(ckpt_sharded **out, const ckpt_sharded_options *options, ckpt_error *err);
void ckpt_sharded_free(ckpt_sharded *sharded); /* NULL is fine */

/* Ends the thread beside, which reads what other ranks hold: of all ranks of a process, before any is freed. No step
 * follows. NULL is fine. */
void ckpt_sharded_stop(ckpt_sharded *sharded);

/* Weights and moments go from the device to `host` before they are saved, and back after they were loaded. EIO. */
ckpt_status ckpt_sharded_to_host(const ckpt_sharded *sharded, ckpt_error *err);
ckpt_status ckpt_sharded_to_device(const ckpt_sharded *sharded, ckpt_error *err); /* as above */

/* Before a step's first batch: gradients begin anew, weights are whole. */
ckpt_status ckpt_sharded_begin(ckpt_sharded *sharded, ckpt_error *err);

/* Whether the flat gradients hold nothing that counts: what comes next sets them (begins_gradients of a batch). True
 * once. */
bool ckpt_sharded_take_beginning(ckpt_sharded *sharded);

/* Makes them zeros, if so. */
void ckpt_sharded_clear(ckpt_sharded *sharded);

/* After each batch of a step. */
ckpt_status ckpt_sharded_reduce(ckpt_sharded *sharded, bool is_last, ckpt_error *err);

/* After the last: the norm of the summed gradients, the same on every rank. */
ckpt_status ckpt_sharded_norm(ckpt_sharded *sharded, double *norm, ckpt_error *err);

/* AdamW on the own pieces; afterwards, but for stage 3, weights are whole. */
ckpt_status ckpt_sharded_update(ckpt_sharded *sharded, const ckpt_adamw *how, ckpt_error *err);

/* Weights as the executor needs them: whole on every rank, or by layers the root of them. */
ckpt_status ckpt_sharded_gather(ckpt_sharded *sharded, ckpt_error *err);

/* Before weights are saved: gathers whole ones, where no rank has its shards alone. */
ckpt_status ckpt_sharded_gather_saved(ckpt_sharded *sharded, ckpt_error *err);

/* The summed gradients, whole on every rank's host (--dump-grads): n_flat elements; after ckpt_sharded_norm. */
ckpt_status ckpt_sharded_whole_gradients(ckpt_sharded *sharded, float *out, ckpt_error *err);

#endif
