/* axes.h - the mesh of ranks, and the collectives along its axes: a table that nothing above knows the back end of.
 *
 * Calls start and finish: a start gives a ticket and may return before anything has moved, a finish waits for it. All
 * ranks of a group start the same calls in the same order; they may finish later ones first. Sums are taken in the
 * order of ranks, element by element, so a number of ranks gives the same bits every time. A call takes the stream of
 * its data (NULL: the host's), so that a library of the device's fits, and a blocking transport may do all of its work
 * in either. Every wait ends at the group's deadline: whoever is late is named, and the group is aborted for all. Back
 * ends: self (axes.c), threads (trainer/parallel/axis_threads.c). */
#ifndef CKPT_TRAINER_MODEL_AXES_H
#define CKPT_TRAINER_MODEL_AXES_H

#include "libckpt/ckpt.h"

/* Outermost first: rank = ((dp_replicate * n_dp_shard + dp_shard) * n_cp + cp) * n_tp + tp. */
typedef enum ckpt_mesh_axis {
  CKPT_MESH_DP_REPLICATE,
  CKPT_MESH_DP_SHARD,
  CKPT_MESH_CP,
  CKPT_MESH_TP,
  CKPT_N_MESH_AXES
} ckpt_mesh_axis;

extern const char *const ckpt_mesh_names[CKPT_N_MESH_AXES]; /* "dp_replicate", "dp_shard", "cp", "tp" */

/* Sizes of axes, or a place on them. */
typedef struct ckpt_mesh {
  uint32_t at[CKPT_N_MESH_AXES];
} ckpt_mesh;

/* The product of all sizes; the place of a rank. */
uint32_t ckpt_mesh_size(const ckpt_mesh *mesh);
ckpt_mesh ckpt_mesh_place(const ckpt_mesh *mesh, uint32_t rank); /* as above */

typedef enum ckpt_axis_kind_of_call {
  CKPT_ALL_REDUCE,     /* dst: the sum of n */
  CKPT_ALL_GATHER,     /* in place: each rank's own ranges are copied to all others */
  CKPT_REDUCE_SCATTER, /* in place: the own ranges become the sum; what no rank owns is left as it is */
  CKPT_ALL_TO_ALL      /* src: n / size for every rank; dst, which is not src: what every rank has for this one */
} ckpt_axis_kind_of_call;

/* A range of a buffer, in elements. */
typedef struct ckpt_range {
  uint64_t first, n;
} ckpt_range;

/* Memory is borrowed until the call is finished. */
typedef struct ckpt_axis_call {
  ckpt_axis_kind_of_call kind;
  ckpt_dtype dtype; /* F32 and F64 are summed; what is no block type is copied */
  const void *src;  /* NULL: dst, in place */
  void *dst;
  uint64_t n;
  const ckpt_range *ranges; /* n_ranges of rank 0, then of rank 1, ...; NULL: n elements of each, in their order */
  uint32_t n_ranges;
  void *stream; /* of the device whose memory this is; NULL: the host's */
} ckpt_axis_call;

typedef uint64_t ckpt_axis_ticket; /* of a call that has begun and is to be waited for */

typedef struct ckpt_axis_group ckpt_axis_group;

/* The slots of a back end; src of a call is set. */
typedef struct ckpt_axis_table {
  ckpt_status (*start)(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket, ckpt_error *err);
  ckpt_status (*finish)(ckpt_axis_group *group, ckpt_axis_ticket ticket, ckpt_error *err);
  void (*abort)(ckpt_axis_group *group); /* whoever waits, and every later call, fails with ECANCELED */
} ckpt_axis_table;

/* The ranks along some axes. One thread at a time uses it, but for an abort. */
struct ckpt_axis_group {
  const ckpt_axis_table *table;
  const char *name; /* of its axes: "tp" */
  uint32_t rank, size;
  double deadline_seconds; /* of each wait; 0: none */
  double seconds;          /* spent in calls, waiting too */
};

/* EINVAL: a dtype that it does not sum or copy; ECANCELED: aborted; EIO: the deadline passed. */
ckpt_status ckpt_axis_start(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket,
                            ckpt_error *err);
ckpt_status ckpt_axis_finish(ckpt_axis_group *group, ckpt_axis_ticket ticket, ckpt_error *err); /* as above */
ckpt_status ckpt_axis_run(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_error *err); /* both */
void ckpt_axis_abort(ckpt_axis_group *group);                                                   /* as the slot */

/* A group of one rank: everything is done when it starts. */
void ckpt_axis_self(ckpt_axis_group *group, const char *name);

/* Seconds of a clock that only goes forward. */
double ckpt_seconds(void);

#endif
