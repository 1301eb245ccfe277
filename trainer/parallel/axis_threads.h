/* axis_threads.h - groups along the axes of a mesh whose ranks are threads of one process. */
#ifndef CKPT_TRAINER_PARALLEL_AXIS_THREADS_H
#define CKPT_TRAINER_PARALLEL_AXIS_THREADS_H

#include "trainer/model/axes.h"

typedef struct ckpt_mesh_threads ckpt_mesh_threads;

/* The groups of every axis. deadline_seconds of each wait; 0: none. ENOMEM. Release with ckpt_mesh_threads_free (NULL
 * is fine) when no rank is in a call. */
ckpt_status ckpt_mesh_threads_new(ckpt_mesh_threads **out, const ckpt_mesh *mesh, double deadline_seconds,
                                  ckpt_error *err);
void ckpt_mesh_threads_free(ckpt_mesh_threads *threads); /* as above */

/* The group of a rank along an axis; borrowed. One thread at a time uses it. */
ckpt_axis_group *ckpt_mesh_threads_group(ckpt_mesh_threads *threads, uint32_t rank, ckpt_mesh_axis axis);

#endif
