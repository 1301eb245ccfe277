/* axes.c - the mesh, what all back ends have in common, and the group of one rank. */
#include "trainer/model/axes.h"

#include <string.h>
#include <time.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

const char *const ckpt_mesh_names[CKPT_N_MESH_AXES] = {"dp_replicate", "dp_shard", "cp", "tp"};

uint32_t ckpt_mesh_size(const ckpt_mesh *mesh) {
  uint32_t n = 1;
  for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++) n *= mesh->at[i];
  return n;
}

ckpt_mesh ckpt_mesh_place(const ckpt_mesh *mesh, uint32_t rank) {
  ckpt_mesh place = {{0}};
  for (uint32_t i = CKPT_N_MESH_AXES; i-- > 0;) {
    place.at[i] = rank % mesh->at[i];
    rank /= mesh->at[i];
  }
  return place;
}

double ckpt_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_axis_start(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket,
                            ckpt_error *err) {
  const double begin = ckpt_seconds();
  const ckpt_dtype_row *dtype = ckpt_dtype_get(call->dtype);
  const bool sums = call->kind == CKPT_ALL_REDUCE || call->kind == CKPT_REDUCE_SCATTER;
  ckpt_axis_call whole = *call;
  if (sums ? call->dtype != CKPT_F32 && call->dtype != CKPT_F64 : dtype->block_elements != 1)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: ranks cannot %s %s", group->name, sums ? "sum" : "exchange",
                     dtype->name);
  if (whole.src == NULL) whole.src = whole.dst;
  const ckpt_status status = group->table->start(group, &whole, ticket, err);
  group->seconds += ckpt_seconds() - begin;
  return status;
}

ckpt_status ckpt_axis_finish(ckpt_axis_group *group, ckpt_axis_ticket ticket, ckpt_error *err) {
  const double begin = ckpt_seconds();
  const ckpt_status status = group->table->finish(group, ticket, err);
  group->seconds += ckpt_seconds() - begin;
  return status;
}

ckpt_status ckpt_axis_run(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_error *err) {
  ckpt_axis_ticket ticket;
  CKPT_TRY(ckpt_axis_start(group, call, &ticket, err));
  return ckpt_axis_finish(group, ticket, err);
}

void ckpt_axis_abort(ckpt_axis_group *group) { group->table->abort(group); }

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

static ckpt_status start_self(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket,
                              ckpt_error *err) {
  (void)group, (void)err;
  if (call->src != call->dst) memcpy(call->dst, call->src, call->n * ckpt_dtype_get(call->dtype)->block_bytes);
  *ticket = 0;
  return CKPT_OK;
}

static ckpt_status finish_self(ckpt_axis_group *group, ckpt_axis_ticket ticket, ckpt_error *err) {
  (void)group, (void)ticket, (void)err;
  return CKPT_OK;
}

static void abort_self(ckpt_axis_group *group) { (void)group; }

void ckpt_axis_self(ckpt_axis_group *group, const char *name) {
  static const ckpt_axis_table table = {start_self, finish_self, abort_self};
  *group = (ckpt_axis_group){.table = &table, .name = name, .size = 1};
}
