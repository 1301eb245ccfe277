/* axes.c - the mesh, and the group of one rank. */
#include "trainer/model/axes.h"

#include <string.h>

#include "libckpt/base/error.h"

const char *const ckpt_mesh_names[CKPT_N_MESH_AXES] = {"dp_shard", "cp", "tp"};

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

ckpt_status ckpt_axis_run(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_error *err) {
  ckpt_axis_ticket ticket;
  CKPT_TRY(group->table->start(group, call, &ticket, err));
  return group->table->finish(group, ticket, err);
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

static ckpt_status start_self(ckpt_axis_group *group, const ckpt_axis_call *call, ckpt_axis_ticket *ticket,
                              ckpt_error *err) {
  (void)group;
  if (call->dtype != CKPT_F32 && call->dtype != CKPT_F64)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "collectives sum f32 and f64");
  const uint64_t n = call->counts != NULL ? call->counts[0] : call->n;
  if (n != 0) memmove(call->dst, call->src, (size_t)n * (call->dtype == CKPT_F64 ? sizeof(double) : sizeof(float)));
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
