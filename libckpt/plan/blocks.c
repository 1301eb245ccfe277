/* blocks.c - see blocks.h. */
#include "libckpt/plan/blocks.h"

#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/plan/lower.h"

static bool views_are_alike(const ckpt_view *a, const ckpt_view *b) {
  return a->rank == b->rank && memcmp(a->order, b->order, a->rank) == 0 &&
         memcmp(a->start, b->start, a->rank * sizeof *a->start) == 0 &&
         memcmp(a->count, b->count, a->rank * sizeof *a->count) == 0;
}

/* Whether node only moves and casts reads that are all seen through one view; that of the first goes to *view. */
static bool moves_only(const ckpt_batch *batch, const ckpt_expr *node, ckpt_view *view) {
  if (ckpt_dtype_get(node->dtype)->block_elements != 1) return false; /* a column would cut it */
  if (node->op->rule == CKPT_RULE_READ) {
    ckpt_view seen;
    ckpt_expr_view(node, &seen);
    if (view->rank == 0) *view = seen;
    bool is_direct;
    const ckpt_batch_read *read = &batch->reads[ckpt_batch_find_read(batch, node, false, &is_direct)];
    return views_are_alike(view, &seen) &&
           memcmp(read->view->count, seen.count, seen.rank * sizeof *seen.count) == 0; /* no hull of several */
  }
  if (!node->op->is_pointwise || node->n_args == 0) return false;
  for (uint32_t i = 0; i < node->n_args; i++)
    if (!moves_only(batch, node->args[i], view)) return false;
  return true;
}

bool ckpt_block_find(const ckpt_plan *plan, const ckpt_batch *batch, ckpt_block *block) {
  ckpt_view view = {0};
  if (batch->lane != 0) return false;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next)
    if (plan->rows[plan->pieces[p].row].sink >= plan->n_outputs || !moves_only(batch, plan->pieces[p].expr, &view))
      return false;
  uint32_t lead = 0;
  while (lead < view.rank && view.order[lead] == lead) lead++;
  if (lead == view.rank) return false;
  *block = (ckpt_block){.lead = lead, .row_axis = view.order[lead], .n_outer = 1, .n_between = 1};
  for (uint32_t axis = 0; axis < lead; axis++) block->n_outer *= view.count[axis];
  for (uint32_t axis = lead + 1; view.order[axis] != lead; axis++) block->n_between *= view.count[view.order[axis]];
  block->n_rows = view.count[block->row_axis];
  block->n_cols = view.count[lead];
  return true;
}

static uint64_t root(uint64_t n) { /* rounded up to a power of two: near enough */
  uint64_t r = 1;
  while (r < n / r) r *= 2;
  return r;
}

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t parts_of(uint64_t n, uint64_t size) { return (n + size - 1) / size; }

uint64_t ckpt_block_cut(ckpt_block *block, uint64_t n_cells) {
  block->tile_rows = least_of(block->n_rows, least_of(root(n_cells), n_cells));
  block->tile_cols = least_of(block->n_cols, n_cells / block->tile_rows);
  block->tile_rows = least_of(block->n_rows, n_cells / block->tile_cols);
  return block->n_outer * parts_of(block->n_rows, block->tile_rows) * parts_of(block->n_cols, block->tile_cols);
}

/* Columns first: what was written last is written on. */
ckpt_block_part ckpt_block_at(const ckpt_block *block, uint64_t number) {
  uint64_t n_across = parts_of(block->n_cols, block->tile_cols), n_down = parts_of(block->n_rows, block->tile_rows);
  ckpt_block_part part = {.outer = number / (n_across * n_down),
                          .first_row = number / n_across % n_down * block->tile_rows,
                          .first_col = number % n_across * block->tile_cols};
  part.n_rows = least_of(block->tile_rows, block->n_rows - part.first_row);
  part.n_cols = least_of(block->tile_cols, block->n_cols - part.first_col);
  return part;
}
