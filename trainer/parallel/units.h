/* units.h - of stages 2 and 3: weights and gradients of one layer at a time, as FSDP2 has them.
 *
 * A unit is a layer's parameters; what belongs to no layer is one of its own, the root, which is whole for a step. Two
 * slots hold the layers at hand. While one layer is computed, the next one's weights are gathered (stage 3), and the
 * gradients of the one before are summed into the shards (stages 2 and 3). A second thread does that in the order of
 * the requests; where nothing overlaps, it is done at once. Either way the same operations run in the same order, to
 * the same bits. Every rank asks in the same order: one that has no rows visits the layers all the same. */
#ifndef CKPT_TRAINER_PARALLEL_UNITS_H
#define CKPT_TRAINER_PARALLEL_UNITS_H

#include "trainer/model/executor.h"
#include "trainer/parallel/collective.h"

struct ckpt_shard_piece;

typedef struct ckpt_units ckpt_units;

typedef struct ckpt_units_options {
  const ckpt_model *model;
  ckpt_axis_group *group;                /* of the thread beside; where nothing overlaps, the rank's own */
  ckpt_axis_group *waiting;              /* whose seconds grow while the rank waits */
  const struct ckpt_shard_piece *pieces; /* of this rank */
  const ckpt_range *owned;               /* shards of every rank in the flat order, n_parameters of each */
  ckpt_device *device;                   /* the CPU: whose memory the buffers are */
  float *whole;                          /* flat weights, which are not gathered; NULL: they are, from `own` */
  float *own, *summed;                   /* shards: weights, and what gradients are added to */
  bool overlaps;
} ckpt_units_options;

/* Bytes of the root and of both slots, for weights, and as much for gradients. */
uint64_t ckpt_units_bytes(const ckpt_model *model);

/* EINTERNAL: an operation of one layer reads what belongs to another. ENOMEM. */
ckpt_status ckpt_units_new(ckpt_units **out, const ckpt_units_options *options, ckpt_error *err);
void ckpt_units_free(ckpt_units *units); /* NULL is fine */

/* Ends the thread beside, after what it was asked for; nothing may be asked any more. That thread reads buffers of all
 * ranks: those of one process are stopped, each of them, before any is freed. */
void ckpt_units_stop(ckpt_units *units);

/* What an executor is given. */
const ckpt_parameter_place *ckpt_units_places(const ckpt_units *units);
const ckpt_unit_hooks *ckpt_units_hooks(const ckpt_units *units); /* as above */

/* Weights have changed: the root is gathered, and no layer is at hand. */
ckpt_status ckpt_units_begin(ckpt_units *units, ckpt_error *err);

/* After a batch's backward: the root's gradients are summed too, and all is done. */
ckpt_status ckpt_units_end(ckpt_units *units, ckpt_error *err);

#endif
