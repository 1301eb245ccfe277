/* duplicates.c - see duplicates.h. Rows are sorted by what is cheap to compare of their tensors, then neighbours are
 * compared in full: time n log n in the number of rows, and linear in that of extents. */
#include "libckpt/plan/duplicates.h"

#include <stdlib.h>

#include "libckpt/base/error.h"
#include "libckpt/index/extent.h"

typedef struct candidate {
  const ckpt_index *index;
  const ckpt_tensor *tensor;
  uint32_t row;
  bool is_written;
} candidate;

static int order(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

static int compare_candidates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  const ckpt_extent *i = x->tensor->extents, *k = y->tensor->extents;
  int by = order((uintptr_t)x->index, (uintptr_t)y->index);
  if (by == 0) by = order(i->file, k->file);
  if (by == 0) by = order(i->offset, k->offset);
  if (by == 0) by = order(i->skip, k->skip);
  if (by == 0) by = order(x->tensor->n_bytes, y->tensor->n_bytes);
  if (by == 0) by = order(x->tensor->dtype, y->tensor->dtype);
  if (by == 0) by = order(y->is_written, x->is_written);
  return by != 0 ? by : order(x->row, y->row);
}

ckpt_status ckpt_plan_find_duplicates(ckpt_plan *plan, ckpt_error *err) {
  candidate *candidates = reallocarray(NULL, (size_t)plan->n_rows + 1, sizeof *candidates);
  CKPT_TRY_ALLOC(candidates, err);
  uint32_t n = 0;
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    ckpt_row *row = &plan->rows[i];
    const ckpt_tensor *tensor = ckpt_expr_tensor(row->expr);
    const bool is_written = row->sink < plan->n_outputs;
    row->same_as = CKPT_NO_ROW;
    if (tensor == NULL || tensor->n_extents == 0 || tensor->details->derived != NULL || !row->wants_digest) continue;
    if (row->sink == CKPT_VALUE_SINK || (is_written && row->tensor == NULL)) continue; /* dropped by the format */
    candidates[n++] = (candidate){row->expr->index, tensor, i, is_written};
  }
  if (n > 1) qsort(candidates, n, sizeof *candidates, compare_candidates);
  for (uint32_t i = 1, first = 0; i < n; i++)
    if (candidates[first].index == candidates[i].index &&
        ckpt_tensor_same_place(candidates[first].tensor, candidates[i].tensor))
      plan->rows[candidates[i].row].same_as = candidates[first].row;
    else
      first = i;
  free(candidates);
  return CKPT_OK;
}
