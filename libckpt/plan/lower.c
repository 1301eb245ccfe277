/* lower.c - pushing structure down and concat up: see lower.h. Each rule is one function. */
#include "libckpt/plan/lower.h"

#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

static ckpt_status push(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err);

bool ckpt_concat_is_leading(const ckpt_expr *node) {
  if (node->op != &ckpt_op_concat) return false;
  const ckpt_axis_params *params = node->params;
  for (uint32_t axis = 0; axis < params->axis; axis++)
    if (node->shape[axis] != 1) return false;
  return true;
}

void ckpt_expr_view(const ckpt_expr *node, ckpt_view *view) {
  if (node->view != NULL) {
    *view = *node->view;
    return;
  }
  *view = (ckpt_view){0};
  view->rank = ckpt_unit_shape(node->dtype, node->rank, node->shape, node->n_elements, view->shape);
  memcpy(view->count, view->shape, sizeof view->count);
  for (uint32_t axis = 0; axis < view->rank; axis++) view->order[axis] = (uint8_t)axis;
}

/* A copy of node with the structure's shape and its own argument array. */
static ckpt_status reshaped_copy(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *node, const ckpt_expr *shape_of,
                                 ckpt_error *err) {
  CKPT_TRY(ckpt_expr_new(out, arena, node->op, node->dtype, shape_of->rank, shape_of->shape, node->n_args, err));
  if (node->n_args != 0) memcpy((*out)->args, node->args, node->n_args * sizeof *node->args);
  ckpt_expr *copy = *out;
  copy->params = node->params;
  if (node->op->rule == CKPT_RULE_READ) /* what reads a mean is not all of it any more */
    copy->index = node->index, copy->tensor = node->tensor, copy->memory = node->memory, copy->view = node->view;
  copy->prologue = node->prologue, copy->n_prologue = node->n_prologue, copy->value = node->value;
  return CKPT_OK;
}

/* The structure as an operation in memory: what remains when no rule applies. */
static ckpt_status keep(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err) {
  CKPT_TRY(reshaped_copy(out, arena, s, s, err));
  (*out)->args[0] = x;
  return CKPT_OK;
}

/* Whether the read's logical shape is what its view shows, so that axes mean the same in both. */
static bool view_is_regular(const ckpt_expr *read, const ckpt_view *view) {
  uint64_t units[CKPT_MAX_RANK];
  if (ckpt_unit_shape(read->dtype, read->rank, read->shape, read->n_elements, units) != view->rank ||
      view->rank != read->rank)
    return false;
  for (uint32_t axis = 0; axis < view->rank; axis++)
    if (units[axis] != view->count[view->order[axis]]) return false;
  return true;
}

static bool view_slice(ckpt_view *view, const ckpt_slice_params *params, uint32_t block) {
  uint64_t unit = params->axis + 1 == view->rank ? block : 1;
  if (params->start % unit != 0 || params->count % unit != 0) return false;
  uint32_t axis = view->order[params->axis];
  view->start[axis] += params->start / unit;
  view->count[axis] = params->count / unit;
  return true;
}

static bool view_permute(ckpt_view *view, const ckpt_order_params *params, uint32_t block) {
  if (block > 1 && params->order[view->rank - 1] != view->rank - 1) return false;
  uint8_t order[CKPT_MAX_RANK];
  for (uint32_t axis = 0; axis < view->rank; axis++) order[axis] = view->order[params->order[axis]];
  memcpy(view->order, order, view->rank);
  return true;
}

bool ckpt_view_range(const ckpt_view *view, uint64_t *begin, uint64_t *n_units, uint64_t *n_total) {
  bool inner_is_full = true;
  *begin = 0;
  *n_units = *n_total = 1;
  for (uint32_t axis = view->rank; axis-- > 0;) {
    if (view->order[axis] != axis || (!inner_is_full && view->count[axis] != 1)) return false;
    *begin += view->start[axis] * *n_total;
    *n_units *= view->count[axis];
    *n_total *= view->shape[axis];
    inner_is_full = inner_is_full && view->count[axis] == view->shape[axis];
  }
  return *n_units != 0;
}

/* Takes a contiguous view as another shape, where its start and the whole divide by the new rows. */
static bool view_reshape(ckpt_view *view, const ckpt_expr *s) {
  uint64_t begin, n_units, total, units[CKPT_MAX_RANK] = {0};
  if (!ckpt_view_range(view, &begin, &n_units, &total)) return false;
  uint32_t rank = ckpt_unit_shape(s->dtype, s->rank, s->shape, s->n_elements, units);
  uint64_t inner = units[0] == 0 ? 0 : n_units / units[0];
  if (inner == 0 || begin % inner != 0 || total % inner != 0) return false;
  ckpt_view new_view = {.rank = rank};
  memcpy(new_view.shape, units, sizeof units);
  memcpy(new_view.count, units, sizeof units);
  new_view.shape[0] = total / inner;
  new_view.start[0] = begin / inner;
  for (uint32_t axis = 0; axis < rank; axis++) new_view.order[axis] = (uint8_t)axis;
  *view = new_view;
  return true;
}

static ckpt_status push_read(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err) {
  ckpt_view *view = ckpt_arena_alloc(arena, sizeof *view);
  CKPT_TRY_ALLOC(view, err);
  ckpt_expr_view(x, view);
  uint32_t block = ckpt_dtype_get(x->dtype)->block_elements;
  bool folds;
  if (s->op == &ckpt_op_reshape) {
    folds = true; /* flat order stays: where no view has the new shape, only the logical shape changes */
    (void)view_reshape(view, s);
  } else if (!view_is_regular(x, view))
    folds = false;
  else
    folds = s->op == &ckpt_op_slice ? view_slice(view, s->params, block) : view_permute(view, s->params, block);
  if (!folds) return keep(out, arena, s, x, err);
  CKPT_TRY(reshaped_copy(out, arena, x, s, err));
  (*out)->view = view;
  return CKPT_OK;
}

/* Whether the structure, which suits the blocks of node's result, suits those of all its arguments. */
static bool suits_args(const ckpt_expr *s, const ckpt_expr *node) {
  for (uint32_t i = 0; i < node->n_args; i++) {
    uint32_t block = ckpt_dtype_get(node->args[i]->dtype)->block_elements;
    if (block == 1) continue;
    if (s->op == &ckpt_op_slice) {
      const ckpt_slice_params *params = s->params;
      bool is_last = params->axis + 1 == node->rank;
      if (node->shape[node->rank - 1] % block != 0) return false;
      if (is_last && (params->start % block != 0 || params->count % block != 0)) return false;
    } else if (s->op == &ckpt_op_permute && node->rank != 0) {
      if (((const ckpt_order_params *)s->params)->order[node->rank - 1] != node->rank - 1) return false;
      if (node->shape[node->rank - 1] % block != 0) return false;
    }
  }
  return true;
}

/* structure(f(a, b)) = f(structure(a), structure(b)) */
static ckpt_status push_through(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err) {
  ckpt_expr *copy;
  CKPT_TRY(reshaped_copy(&copy, arena, x, s, err));
  for (uint32_t i = 0; i < x->n_args; i++) {
    ckpt_expr structure = *s;
    structure.dtype = x->args[i]->dtype;
    CKPT_TRY(push(&copy->args[i], arena, &structure, x->args[i], err));
  }
  *out = copy;
  return CKPT_OK;
}

/* The structure's node with another shape and, for slices, other parameters. */
static ckpt_status vary(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_dtype dtype, uint32_t rank,
                        const uint64_t *shape, const void *params, ckpt_error *err) {
  CKPT_TRY(ckpt_expr_new(out, arena, s->op, dtype, rank, shape, 1, err));
  (*out)->params = params;
  return CKPT_OK;
}

/* Whether the structure moves rows of the last axis and leaves each as it is. */
static bool moves_rows(const ckpt_expr *s, const ckpt_expr *x) {
  const uint32_t last = x->rank - 1;
  if (x->rank == 0 || s->rank == 0) return false;
  if (s->op == &ckpt_op_slice) return ((const ckpt_slice_params *)s->params)->axis < last;
  if (s->op == &ckpt_op_permute) return ((const ckpt_order_params *)s->params)->order[last] == last;
  return s->shape[s->rank - 1] == x->shape[last];
}

/* Rows of a share argument, one for each of equal shares of the rows of a stack. */
static uint64_t n_shares_of(const ckpt_expr *arg) {
  const uint64_t width = arg->rank == 0 ? 1 : arg->shape[arg->rank - 1];
  return width == 0 ? 0 : arg->n_elements / width;
}

/* The share argument's rows [*first, *first + *n) that go with what a slice leaves of x. False: its rows are cut
 * within a share, and others beside it remain. */
static bool slice_share(const ckpt_slice_params *slice, const ckpt_expr *x, uint64_t n_shares, uint64_t *first,
                        uint64_t *n) {
  const uint32_t stack = x->rank < 3 ? 0 : x->rank - 3;
  const uint64_t n_each = ckpt_rows_of_stack(x->rank, x->shape) / n_shares;
  uint64_t unit = 1; /* rows of the stack in one step along the axis */
  *first = 0, *n = n_shares;
  if (slice->axis < stack) return true; /* whole stacks */
  if (slice->axis > stack) return n_shares == x->shape[stack];
  for (uint32_t axis = stack + 1; axis + 1 < x->rank; axis++) unit *= x->shape[axis];
  const uint64_t begin = slice->start * unit, n_rows = slice->count * unit;
  if (n_each == 0 || n_rows == 0) return false;
  *first = begin / n_each;
  *n = (begin + n_rows - 1) / n_each - *first + 1;
  return *n == 1 || (begin % n_each == 0 && n_rows % n_each == 0);
}

/* The share argument's rows of s(x), as above. */
static bool share_of(const ckpt_expr *s, const ckpt_expr *x, const ckpt_expr *arg, uint64_t *first, uint64_t *n) {
  *first = 0;
  *n = n_shares_of(arg);
  if (*n == 1) return true;
  if (*n == 0 || s->op == &ckpt_op_permute) return false;
  if (s->op == &ckpt_op_slice) return slice_share(s->params, x, *n, first, n);
  return ckpt_rows_of_stack(s->rank, s->shape) == ckpt_rows_of_stack(x->rank, x->shape);
}

/* Whether every share argument has rows of its own for s(x). */
static bool shares_part(const ckpt_expr *s, const ckpt_expr *x) {
  uint64_t first, n;
  for (uint32_t i = 0; i < x->n_args && i < 32; i++)
    if ((x->op->share_args >> i & 1) != 0 && !share_of(s, x, x->args[i], &first, &n)) return false;
  return true;
}

static ckpt_status slice_of(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint32_t axis, uint64_t start,
                            uint64_t count, ckpt_error *err) {
  if (count == x->shape[axis]) {
    *out = x;
    return CKPT_OK;
  }
  uint64_t shape[CKPT_MAX_RANK];
  memcpy(shape, x->shape, x->rank * sizeof *shape);
  shape[axis] = count;
  ckpt_slice_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  *params = (ckpt_slice_params){axis, start, count};
  ckpt_expr *s;
  CKPT_TRY(ckpt_expr_new(&s, arena, &ckpt_op_slice, x->dtype, x->rank, shape, 1, err));
  s->params = params;
  return push(out, arena, s, x, err);
}

/* Argument i of s(x), which is needed whole: its rows for s(x) if it has rows for shares, else as it is. */
static ckpt_status push_whole(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, const ckpt_expr *x, uint32_t i,
                              ckpt_error *err) {
  uint64_t first, n;
  *out = x->args[i];
  if ((x->op->share_args >> i & 1) == 0 || !share_of(s, x, *out, &first, &n) || n == n_shares_of(*out)) return CKPT_OK;
  const uint64_t shape[2] = {n_shares_of(*out), (*out)->shape[(*out)->rank - 1]};
  if ((*out)->rank != 2) CKPT_TRY(ckpt_expr_reshape_in(out, arena, *out, 2, shape, err));
  return slice_of(out, arena, *out, 0, first, n, err);
}

/* structure(f(a, b)) = f(structure(a), structure(b)) where rows move; b may have rows of another width. */
static ckpt_status push_rows(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err) {
  ckpt_expr *copy;
  CKPT_TRY(reshaped_copy(&copy, arena, x, s, err));
  for (uint32_t i = 0; i < x->n_args; i++) {
    ckpt_expr *arg = x->args[i], *structure;
    uint64_t shape[CKPT_MAX_RANK];
    if (ckpt_op_wants_whole(x->op, i)) {
      CKPT_TRY(push_whole(&copy->args[i], arena, s, x, i, err));
      continue;
    }
    memcpy(shape, s->shape, s->rank * sizeof *shape);
    shape[s->rank - 1] = arg->shape[arg->rank - 1];
    CKPT_TRY(vary(&structure, arena, s, arg->dtype, s->rank, shape, s->params, err));
    CKPT_TRY(push(&copy->args[i], arena, structure, arg, err));
  }
  *out = copy;
  return CKPT_OK;
}

/* Only of the parts that the slice touches, of an empty slice one: many slices of one concat take no more memory than
 * what they show. */
static ckpt_status concat_slice(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err) {
  const ckpt_slice_params *slice = s->params;
  uint32_t along = ((const ckpt_axis_params *)x->params)->axis, first = 0, n = x->n_args;
  bool is_along = slice->axis == along;
  uint64_t start = slice->start, left = slice->count; /* start in the part `first` */
  if (is_along) {
    while (first + 1 < x->n_args && start >= x->args[first]->shape[along]) start -= x->args[first++]->shape[along];
    uint64_t end = x->args[first]->shape[along];
    for (n = 1; end < start + slice->count; n++) end += x->args[first + n]->shape[along];
  }
  ckpt_expr *parts;
  CKPT_TRY(ckpt_expr_new(&parts, arena, x->op, x->dtype, s->rank, s->shape, n, err));
  parts->params = x->params;
  for (uint32_t i = 0; i < n; i++) {
    ckpt_expr *part = x->args[first + i];
    uint64_t room = part->shape[slice->axis] - start, count = left < room ? left : room;
    CKPT_TRY(slice_of(&parts->args[i], arena, part, slice->axis, start, count, err));
    if (is_along) start = 0, left -= count;
  }
  *out = n == 1 ? parts->args[0] : parts;
  return CKPT_OK;
}

static ckpt_status concat_permute(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x,
                                  ckpt_error *err) {
  const ckpt_order_params *order = s->params;
  ckpt_axis_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  while (order->order[params->axis] != ((const ckpt_axis_params *)x->params)->axis) params->axis++;
  ckpt_expr *copy;
  CKPT_TRY(reshaped_copy(&copy, arena, x, s, err));
  copy->params = params;
  for (uint32_t i = 0; i < x->n_args; i++) {
    uint64_t shape[CKPT_MAX_RANK];
    for (uint32_t axis = 0; axis < x->rank; axis++) shape[axis] = x->args[i]->shape[order->order[axis]];
    ckpt_expr *part;
    CKPT_TRY(vary(&part, arena, s, x->dtype, x->rank, shape, order, err));
    CKPT_TRY(push(&copy->args[i], arena, part, x->args[i], err));
  }
  *out = copy;
  return CKPT_OK;
}

/* Flat order stays, so the parts stay as they are: the concat is of flat ranges from here on. */
static ckpt_status concat_reshape(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x,
                                  ckpt_error *err) {
  uint32_t lead = 0;
  while (lead + 1 < s->rank && s->shape[lead] == 1) lead++;
  uint64_t inner = 1;
  for (uint32_t axis = lead + 1; axis < s->rank; axis++) inner *= s->shape[axis];
  bool divides = s->rank != 0 && inner != 0;
  for (uint32_t i = 0; divides && i < x->n_args; i++) divides = x->args[i]->n_elements % inner == 0;
  ckpt_axis_params *params = ckpt_arena_alloc(arena, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  params->axis = divides ? lead : 0;
  ckpt_expr *copy;
  CKPT_TRY(reshaped_copy(&copy, arena, x, s, err));
  copy->params = params;
  for (uint32_t i = 0; divides && i < x->n_args; i++) {
    uint64_t shape[CKPT_MAX_RANK];
    memcpy(shape, s->shape, s->rank * sizeof *shape);
    shape[lead] = x->args[i]->n_elements / inner;
    ckpt_expr *part;
    CKPT_TRY(vary(&part, arena, s, x->dtype, s->rank, shape, NULL, err));
    CKPT_TRY(push(&copy->args[i], arena, part, x->args[i], err));
  }
  *out = copy;
  return CKPT_OK;
}

/* Whether the concat's parts still have its rank, so that slices and permutations have meaning in them. */
static bool concat_is_regular(const ckpt_expr *x) {
  for (uint32_t i = 0; i < x->n_args; i++) {
    if (x->args[i]->rank != x->rank) return false;
    for (uint32_t axis = 0; axis < x->rank; axis++)
      if (axis != ((const ckpt_axis_params *)x->params)->axis && x->args[i]->shape[axis] != x->shape[axis])
        return false;
  }
  return true;
}

static ckpt_status push(ckpt_expr **out, ckpt_arena *arena, const ckpt_expr *s, ckpt_expr *x, ckpt_error *err) {
  if (x->op->rule == CKPT_RULE_READ) return push_read(out, arena, s, x, err);
  if (x->op->is_rowwise && moves_rows(s, x) && shares_part(s, x)) return push_rows(out, arena, s, x, err);
  /* with a whole argument the result depends on where an element stands */
  bool can_push = x->op->whole_args == 0 && suits_args(s, x);
  if (x->op->rule == CKPT_RULE_FLAT && can_push) return push_through(out, arena, s, x, err);
  if (x->op->rule == CKPT_RULE_ROW && can_push) {
    const ckpt_slice_params *slice = s->params;
    if (s->op == &ckpt_op_slice && slice->axis + 1 < x->rank) return push_through(out, arena, s, x, err);
  }
  if (x->op == &ckpt_op_concat) {
    if (s->op == &ckpt_op_reshape && ckpt_concat_is_leading(x)) return concat_reshape(out, arena, s, x, err);
    if (s->op == &ckpt_op_slice && concat_is_regular(x)) return concat_slice(out, arena, s, x, err);
    if (s->op == &ckpt_op_permute && concat_is_regular(x)) return concat_permute(out, arena, s, x, err);
  }
  return keep(out, arena, s, x, err);
}

/* f(concat(a, b), c) = concat(f(a, slice c), f(b, slice c)) for a concat along the leading axis. */
static ckpt_status raise_concat(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *node, const ckpt_expr *concat,
                                ckpt_error *err) {
  uint32_t along = ((const ckpt_axis_params *)concat->params)->axis;
  ckpt_expr *top;
  CKPT_TRY(ckpt_expr_new(&top, arena, &ckpt_op_concat, node->dtype, node->rank, node->shape, concat->n_args, err));
  top->params = concat->params;
  uint64_t begin = 0;
  for (uint32_t i = 0; i < concat->n_args; i++) {
    ckpt_expr *part = concat->args[i], *copy;
    CKPT_TRY(reshaped_copy(&copy, arena, node, part, err));
    const ckpt_slice_params slice = {along, begin, part->shape[along]};
    ckpt_expr range = {.op = &ckpt_op_slice, .rank = node->rank, .shape = part->shape, .params = &slice};
    for (uint32_t k = 0; k < node->n_args; k++)
      if (ckpt_op_wants_whole(node->op, k))
        CKPT_TRY(push_whole(&copy->args[k], arena, &range, node, k, err));
      else if (node->args[k] == concat) /* not a slice of it, which would be itself where the other parts are empty */
        copy->args[k] = part;
      else
        CKPT_TRY(slice_of(&copy->args[k], arena, node->args[k], along, begin, part->shape[along], err));
    begin += part->shape[along];
    CKPT_TRY(ckpt_lower(&top->args[i], arena, copy, err));
  }
  *out = top;
  return CKPT_OK;
}

/* Whether what a concat of node's arguments cuts off has share arguments of its own, part by part. */
static bool concat_parts_shares(const ckpt_expr *node, const ckpt_expr *concat) {
  ckpt_slice_params slice = {.axis = ((const ckpt_axis_params *)concat->params)->axis};
  const ckpt_expr range = {.op = &ckpt_op_slice, .rank = node->rank, .params = &slice};
  bool fits = true;
  for (uint32_t i = 0; fits && node->op->share_args != 0 && i < concat->n_args; i++, slice.start += slice.count) {
    slice.count = concat->args[i]->shape[slice.axis];
    fits = shares_part(&range, node);
  }
  return fits;
}

/* Whether node's result has whole blocks of what it makes of each of the concat's parts. */
static bool concat_parts_blocks(const ckpt_expr *node, const ckpt_expr *concat) {
  const uint32_t along = ((const ckpt_axis_params *)concat->params)->axis;
  const uint32_t block = ckpt_dtype_get((ckpt_dtype)node->dtype)->block_elements;
  if (along + 1 != concat->rank) return true;
  for (uint32_t i = 0; i < concat->n_args; i++)
    if (concat->args[i]->shape[along] % block != 0) return false;
  return true;
}

ckpt_status ckpt_lower(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *in, ckpt_error *err) {
  *out = in;
  if (in->op->rule == CKPT_RULE_READ) return CKPT_OK;
  if (in->op->rule == CKPT_RULE_STRUCTURE) {
    ckpt_expr *x = in->args[0];
    if (in->op == &ckpt_op_slice) { /* first, so that what it leaves out is never lowered */
      CKPT_TRY(push(out, arena, in, x, err));
      if ((*out)->op != in->op || (*out)->args[0] != x) return ckpt_lower(out, arena, *out, err);
    }
    CKPT_TRY(ckpt_lower(&x, arena, x, err));
    return push(out, arena, in, x, err);
  }
  ckpt_expr *node = in; /* unless an argument changes: what outputs share stays one node */
  for (uint32_t i = 0; i < in->n_args; i++) {
    ckpt_expr *arg;
    CKPT_TRY(ckpt_lower(&arg, arena, in->args[i], err));
    if (arg == in->args[i]) continue;
    if (node == in) CKPT_TRY(reshaped_copy(&node, arena, in, in, err));
    node->args[i] = arg;
  }
  *out = node;
  bool can_raise = in->op->rule == CKPT_RULE_FLAT || (in->op->rule == CKPT_RULE_ROW && in->rank > 1);
  if (in->op->whole_args != 0) can_raise = in->op->is_rowwise; /* else results depend on where an element stands */
  for (uint32_t i = 0; can_raise && i < in->n_args; i++) {
    const ckpt_expr *arg = node->args[i];
    if (ckpt_op_wants_whole(in->op, i) || !ckpt_concat_is_leading(arg) || !concat_is_regular(arg)) continue;
    if (in->op->rule == CKPT_RULE_ROW && ((const ckpt_axis_params *)arg->params)->axis + 1 == arg->rank) continue;
    if (!concat_parts_blocks(node, arg) || !concat_parts_shares(node, arg)) continue;
    return raise_concat(out, arena, node, arg, err);
  }
  return CKPT_OK;
}
