/* same.c - see same.h. */
#include "libckpt/plan/same.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/plan/lower.h"
#include "libckpt/plan/strips.h"

enum { MAX_COMPARED = 64 }; /* pieces of a batch, so that one of many takes no more time for each */

/* A copy of a node with an argument array of its own. */
static ckpt_status copy_node(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *node, ckpt_error *err) {
  ckpt_expr *copy = ckpt_arena_alloc(arena, sizeof *copy);
  CKPT_TRY_ALLOC(copy, err);
  *copy = *node;
  copy->args = ckpt_arena_array(arena, node->n_args, sizeof *copy->args);
  CKPT_TRY_ALLOC(copy->args, err);
  if (node->n_args != 0) memcpy(copy->args, node->args, node->n_args * sizeof *copy->args);
  *out = copy;
  return CKPT_OK;
}

/* ---- reads as they are stored ------------------------------------------------------------------------------------
 */

/* A range of a tensor as a box of its own shape; false where no box has those units. */
static bool native_box(const ckpt_tensor *tensor, ckpt_view *view) {
  uint64_t begin, n_units, inner;
  ckpt_view box = {0};
  if (!ckpt_view_range(view, &begin, &n_units, &inner)) return false;
  box.rank = ckpt_tensor_units(tensor, box.shape);
  memcpy(box.count, box.shape, sizeof box.count);
  for (uint32_t axis = 0; axis < box.rank; axis++) box.order[axis] = (uint8_t)axis;
  for (uint32_t axis = 0; axis < box.rank; axis++) {
    inner /= box.shape[axis];
    box.start[axis] = begin / inner;
    begin %= inner;
    box.count[axis] = begin == 0 && n_units % inner == 0 ? n_units / inner : 1;
    if (begin == 0 && box.count[axis] * inner == n_units) {
      *view = box;
      return true;
    }
    if (begin + n_units > inner) return false;
  }
  return false;
}

ckpt_status ckpt_expr_as_stored(ckpt_expr **expr, ckpt_arena *arena, ckpt_error *err) {
  ckpt_expr *x = *expr;
  if (x->op->rule == CKPT_RULE_READ) {
    if (x->tensor == NULL || x->memory != NULL || x->view == NULL) return CKPT_OK;
    ckpt_view view = *x->view;
    if (!native_box(x->tensor, &view) || ckpt_view_is_same(&view, x->view)) return CKPT_OK;
    ckpt_view *kept = ckpt_arena_alloc(arena, sizeof *kept);
    CKPT_TRY_ALLOC(kept, err);
    CKPT_TRY(copy_node(expr, arena, x, err));
    *kept = view;
    (*expr)->view = kept;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < x->n_args; i++) {
    ckpt_expr *arg = x->args[i];
    CKPT_TRY(ckpt_expr_as_stored(&arg, arena, err));
    if (arg == x->args[i]) continue;
    if (x == *expr) CKPT_TRY(copy_node(&x, arena, *expr, err));
    x->args[i] = arg;
  }
  *expr = x;
  return CKPT_OK;
}

/* ---- equal expressions --------------------------------------------------------------------------------------------
 */

/* The view of a read without axes of length 1, which change no byte's place. */
static void plain_view(const ckpt_expr *node, ckpt_view *out) {
  ckpt_view view;
  uint8_t place[CKPT_MAX_RANK] = {0};
  ckpt_expr_view(node, &view);
  *out = (ckpt_view){0};
  for (uint32_t axis = 0; axis < view.rank; axis++) {
    if (view.shape[axis] == 1) continue;
    place[axis] = (uint8_t)out->rank;
    out->shape[out->rank] = view.shape[axis];
    out->start[out->rank] = view.start[axis];
    out->count[out->rank++] = view.count[axis];
  }
  for (uint32_t i = 0, n = 0; i < view.rank; i++)
    if (view.shape[view.order[i]] != 1) out->order[n++] = place[view.order[i]];
}

static uint64_t width_of(const ckpt_expr *x) { return x->rank == 0 ? 1 : x->shape[x->rank - 1]; }

/* Whether two expressions give the same bytes because they are the same, but for axes of length 1. */
static bool is_same(const ckpt_expr *a, const ckpt_expr *b) {
  if (a == b) return true;
  if (a->op != b->op || a->dtype != b->dtype || a->n_elements != b->n_elements || a->n_args != b->n_args ||
      a->params != b->params || a->n_prologue != 0 || b->n_prologue != 0 || a->op->rule == CKPT_RULE_STRUCTURE)
    return false;
  if (a->op->rule == CKPT_RULE_READ) {
    ckpt_view of_a, of_b;
    if (a->tensor != b->tensor || a->memory != b->memory || a->index != b->index) return false;
    plain_view(a, &of_a);
    plain_view(b, &of_b);
    return ckpt_view_is_same(&of_a, &of_b);
  }
  if (width_of(a) != width_of(b)) return false;
  for (uint32_t i = 0; i < a->n_args; i++)
    if (!is_same(a->args[i], b->args[i])) return false;
  return true;
}

/* What is computed for a piece of the batch, or the first argument of that, where it is the same as an expression; else
 * the expression. */
static ckpt_expr *known(const ckpt_plan *plan, const ckpt_batch *batch, ckpt_expr *expr, bool is_argument) {
  uint32_t n = 0;
  if (expr->op->rule == CKPT_RULE_READ) return expr;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX && n < MAX_COMPARED; p = plan->pieces[p].next, n++) {
    ckpt_expr *made = (ckpt_expr *)(uintptr_t)ckpt_expr_made(plan->pieces[p].expr);
    if (is_argument) made = made->n_args == 0 || ckpt_op_wants_whole(made->op, 0) ? NULL : made->args[0];
    if (made != NULL && is_same(made, expr)) return made;
  }
  return expr;
}

static bool has_one_shape(const ckpt_expr *a, const ckpt_expr *b) {
  return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* Another first argument, in a copy: nodes do not change. */
static ckpt_status set_first(ckpt_expr **expr, ckpt_arena *arena, ckpt_expr *first, ckpt_error *err) {
  if ((*expr)->args[0] == first) return CKPT_OK;
  CKPT_TRY(copy_node(expr, arena, *expr, err));
  (*expr)->args[0] = first;
  return CKPT_OK;
}

ckpt_status ckpt_share_expr(ckpt_plan *plan, const ckpt_batch *batch, ckpt_piece *piece, ckpt_error *err) {
  ckpt_expr *made = (ckpt_expr *)(uintptr_t)ckpt_expr_made(piece->expr);
  if (made->op->rule == CKPT_RULE_REDUCE || made->n_args == 0) return CKPT_OK;
  ckpt_expr *same = known(plan, batch, made, false);
  if (same == made && !ckpt_op_wants_whole(made->op, 0)) {
    ckpt_expr *first = known(plan, batch, made->args[0], true);
    const bool needs_axes = made->op->rule == CKPT_RULE_STRUCTURE; /* those of length 1 too */
    if (!needs_axes || has_one_shape(first, made->args[0])) CKPT_TRY(set_first(&same, &plan->work, first, err));
  }
  if (made != piece->expr) return set_first(&piece->expr, &plan->work, same, err);
  piece->expr = same;
  return CKPT_OK;
}
