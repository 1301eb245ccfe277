/* updates.c - see updates.h. */
#include "libckpt/recipe/convert/updates.h"

#include <math.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/ops/lora.h"

ckpt_status ckpt_updates_ask(ckpt_plan *plan, ckpt_error *err) {
  plan->wants_updates = true;
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    ckpt_row *row = &plan->rows[i];
    if (row->sink >= plan->n_outputs || ckpt_expr_update_dtype(row->expr) == CKPT_DTYPE_NONE) continue;
    plan->counts_same = plan->counts_same || !ckpt_dtype_is_block((ckpt_dtype)row->expr->dtype);
    row->update = ckpt_arena_alloc(&plan->arena, sizeof *row->update);
    CKPT_TRY_ALLOC(row->update, err);
  }
  return CKPT_OK;
}

bool ckpt_updates_of(const ckpt_row *row, ckpt_update_figures *out) {
  if (row->update == NULL || row->tensor == NULL) return false;
  const ckpt_update_stats *stats = row->update;
  const ckpt_dtype dtype = (ckpt_dtype)row->tensor->dtype;
  const bool is_f32 = dtype == CKPT_F32, is_known = is_f32 || dtype == ckpt_expr_update_dtype(row->expr);
  *out = (ckpt_update_figures){.norm = sqrt(ckpt_exact_sum_value(&stats->added)),
                               .base_norm = sqrt(ckpt_exact_sum_value(&stats->base)),
                               .n = stats->n,
                               .n_rounded = is_known ? stats->n : 0,
                               .n_unchanged = !is_known ? 0
                                              : is_f32  ? stats->n_same_f32
                                                        : stats->n_same};
  return true;
}

void ckpt_updates_add(ckpt_update_figures *into, const ckpt_update_figures *from) {
  into->norm = hypot(into->norm, from->norm);
  into->base_norm = hypot(into->base_norm, from->base_norm);
  into->n += from->n;
  into->n_rounded += from->n_rounded;
  into->n_unchanged += from->n_unchanged;
}

double ckpt_update_relative(const ckpt_update_figures *figures) {
  return figures->base_norm == 0 ? (double)NAN : figures->norm / figures->base_norm;
}
