/* axis_threads.h - groups along the axes of a mesh whose ranks are threads of one process. */
#ifndef CKPT_TRAINER_PARALLEL_AXIS_THREADS_H
#define CKPT_TRAINER_PARALLEL_AXIS_THREADS_H

#include "trainer/model/axes.h"

/* Axes along which there are groups. The same axes twice: groups of the same ranks that do not meet. */
typedef struct ckpt_axis_set {
  const char *name; /* borrowed */
  uint32_t axes;    /* bits of ckpt_mesh_axis */
} ckpt_axis_set;

typedef struct ckpt_axis_threads ckpt_axis_threads;

/* The groups along each set. deadline_seconds of each wait; 0: none. ENOMEM. Release with ckpt_axis_threads_free (NULL
 * is fine) when no rank is in a call. */
ckpt_status ckpt_axis_threads_new(ckpt_axis_threads **out, const ckpt_mesh *mesh, const ckpt_axis_set *sets,
                                  uint32_t n_sets, double deadline_seconds, ckpt_error *err);
void ckpt_axis_threads_free(ckpt_axis_threads *threads); /* as above */

/* The group of a rank along a set; borrowed. */
ckpt_axis_group *ckpt_axis_threads_group(ckpt_axis_threads *threads, uint32_t rank, uint32_t set);

#endif
