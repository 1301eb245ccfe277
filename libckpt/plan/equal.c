/* equal.c - see equal.h. */
#include "libckpt/plan/equal.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"

ckpt_status ckpt_plan_add_equal(ckpt_plan *plan, const ckpt_index *from, const ckpt_tensor *kept,
                                const ckpt_tensor *tied, ckpt_error *err) {
  ckpt_expr *expr;
  uint32_t first, second;
  CKPT_TRY(ckpt_expr_read(&expr, plan, from, kept, err));
  CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, kept->name, expr, kept, &first, err));
  CKPT_TRY(ckpt_expr_read(&expr, plan, from, tied, err));
  CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, tied->name, expr, tied, &second, err));
  plan->rows[second].must_equal = first + 1;
  return CKPT_OK;
}

ckpt_status ckpt_plan_add_equal_ties(ckpt_plan *plan, const ckpt_index *from, ckpt_error *err) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(from, i, &kept, &tied); i++)
    if (ckpt_tensor_same_shape(kept, tied) && kept->dtype == tied->dtype)
      CKPT_TRY(ckpt_plan_add_equal(plan, from, kept, tied, err));
  return CKPT_OK;
}

ckpt_status ckpt_plan_check_equal(const ckpt_plan *plan, const char *path, const char *advice, ckpt_error *err) {
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    const ckpt_row *row = &plan->rows[i];
    if (row->must_equal == 0) continue;
    const ckpt_row *kept = &plan->rows[row->must_equal - 1];
    if (memcmp(&row->digest, &kept->digest, sizeof row->digest) == 0) continue;
    const ckpt_status status =
        ckpt_fail(err, CKPT_EDIFFERENT, path, row->name, "differs from %s, to which config.json ties it", kept->name);
    return advice == NULL ? status : ckpt_advise_value(status, err, advice, row->name);
  }
  return CKPT_OK;
}
