/* twins.c - see twins.h. Rows are sorted by what is cheap to compare of their tensors, then neighbours are compared in
 * full: time n log n in the number of rows, and linear in that of extents. */
#include "twins.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "extent.h"

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

static bool is_same_extent(const ckpt_tensor *tensor, const ckpt_extent *a, const ckpt_extent *b) {
  if (a->file != b->file || a->offset != b->offset || a->n_stored != b->n_stored || a->skip != b->skip ||
      memcmp(a->chain, b->chain, sizeof a->chain) != 0)
    return false;
  if (tensor->extent_form == CKPT_EXTENT_FLAT) return a->start == b->start && a->count == b->count;
  uint64_t units[CKPT_MAX_RANK];
  const uint32_t rank = ckpt_tensor_units(tensor, units);
  const size_t n = tensor->extent_form == CKPT_EXTENT_STRIDED ? 3 : 2;
  return a->box == b->box || memcmp(a->box, b->box, n * rank * sizeof *a->box) == 0;
}

/* Whether all of one is what all of the other is: same elements, same shape, same place of each. */
static bool is_twin(const candidate *x, const candidate *y) {
  const ckpt_tensor *a = x->tensor, *b = y->tensor;
  if (x->index != y->index || a->dtype != b->dtype || a->rank != b->rank || a->extent_form != b->extent_form ||
      a->n_extents != b->n_extents || (a->rank != 0 && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) != 0))
    return false;
  for (uint32_t i = 0; i < a->n_extents && a->extents != b->extents; i++)
    if (!is_same_extent(a, &a->extents[i], &b->extents[i])) return false;
  return true;
}

ckpt_status ckpt_plan_find_twins(ckpt_plan *plan, ckpt_error *err) {
  candidate *candidates = reallocarray(NULL, (size_t)plan->n_rows + 1, sizeof *candidates);
  CKPT_TRY_ALLOC(candidates, err);
  uint32_t n = 0;
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    ckpt_row *row = &plan->rows[i];
    const ckpt_tensor *tensor = ckpt_expr_tensor(row->expr);
    const bool is_written = row->sink < plan->n_outputs;
    row->same_as = CKPT_NO_ROW;
    if (tensor == NULL || tensor->n_extents == 0 || tensor->slices != NULL || !row->wants_digest) continue;
    if (row->sink == CKPT_VALUE_SINK || (is_written && row->tensor == NULL)) continue; /* dropped by the format */
    candidates[n++] = (candidate){row->expr->index, tensor, i, is_written};
  }
  if (n > 1) qsort(candidates, n, sizeof *candidates, compare_candidates);
  for (uint32_t i = 1, first = 0; i < n; i++)
    if (is_twin(&candidates[first], &candidates[i]))
      plan->rows[candidates[i].row].same_as = candidates[first].row;
    else
      first = i;
  free(candidates);
  return CKPT_OK;
}
