/* eval.c - see eval.h. */
#include "libckpt/run/eval.h"

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/lower.h"

static uint32_t count_nodes(const ckpt_expr *node) {
  uint32_t n = 1;
  for (uint32_t i = 0; i < node->n_args; i++) n += count_nodes(node->args[i]);
  return n;
}

void ckpt_tile_needs(const ckpt_plan *plan, uint32_t *n_nodes, uint32_t *n_reads, uint32_t *n_kept) {
  *n_nodes = *n_reads = *n_kept = 1;
  for (uint32_t i = 0; i < plan->n_pieces; i++) {
    uint32_t n = count_nodes(plan->pieces[i].expr);
    if (n > *n_nodes) *n_nodes = n;
  }
  for (uint32_t i = 0; i < plan->n_batches; i++) {
    if (plan->batches[i].n_wholes > *n_kept) *n_kept = plan->batches[i].n_wholes;
    if (plan->batches[i].n_reads > *n_reads) *n_reads = plan->batches[i].n_reads;
  }
}

static ckpt_status take(ckpt_tile *tile, uint64_t n_bytes, void **out, ckpt_error *err) {
  uint64_t n = (n_bytes + 63) & ~UINT64_C(63);
  if (n > tile->n_workspace - tile->n_used)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a tile needs %llu bytes more than planned (%llu of %llu used)",
                     (unsigned long long)n, (unsigned long long)tile->n_used, (unsigned long long)tile->n_workspace);
  *out = tile->workspace + tile->n_used;
  tile->n_used += n;
  return CKPT_OK;
}

typedef struct reshaped_read {
  ckpt_mover *mover;
  const ckpt_tensor *tensor;
  const ckpt_view *view;
  const uint64_t *start; /* of the box, in the view's shape */
  uint64_t units[CKPT_MAX_RANK], zeros[CKPT_MAX_RANK];
  uint32_t unit_bytes;
  uint8_t *out;
} reshaped_read;

/* A box of a reshaped tensor is a set of flat runs of the tensor itself. */
static ckpt_status visit_reshaped(void *arg, const uint64_t *from, const uint64_t *count, ckpt_error *err) {
  reshaped_read *r = arg;
  uint32_t rank = r->view->rank, inner = rank;
  uint64_t run = 1, at[CKPT_MAX_RANK] = {0}, strides[CKPT_MAX_RANK], stride = 1;
  for (uint32_t axis = rank; axis-- > 0;) {
    strides[axis] = stride;
    stride *= r->view->shape[axis];
  }
  while (inner > 0) {
    run *= count[--inner];
    if (count[inner] != r->view->shape[inner]) break;
  }
  for (;;) {
    uint64_t begin = 0;
    for (uint32_t axis = 0; axis < rank; axis++) begin += (r->start[axis] + from[axis] + at[axis]) * strides[axis];
    CKPT_TRY(ckpt_place(r->mover, r->tensor, r->zeros, r->units, begin, run, r->out, err));
    r->out += run * r->unit_bytes;
    uint32_t axis = inner;
    while (axis > 0 && ++at[axis - 1] == count[axis - 1]) at[--axis] = 0;
    if (axis == 0) return CKPT_OK;
  }
}

/* Reads units [begin, begin + n) of a box of a read, row-major. */
static ckpt_status read_box(ckpt_tile *tile, uint32_t number, const uint64_t *start, const uint64_t *count,
                            uint64_t begin, uint64_t n, void *out, ckpt_error *err) {
  const ckpt_batch_read *read = &tile->batch->reads[number];
  const ckpt_expr *node = read->expr;
  if (n == 0) return CKPT_OK; /* memory without elements may be NULL */
  if (node->memory != NULL) {
    ckpt_place_memory(node->memory, read->unit_bytes, read->view->rank, read->view->shape, start, count, begin, n, out);
    return CKPT_OK;
  }
  tile->reader.source = node->index->source;
  ckpt_mover mover = {.reader = tile->reader, .window = tile->window};
  ckpt_status status;
  if (read->is_native) {
    status = ckpt_place(&mover, node->tensor, start, count, begin, n, out, err);
  } else {
    reshaped_read r = {.mover = &mover,
                       .tensor = node->tensor,
                       .view = read->view,
                       .start = start,
                       .unit_bytes = read->unit_bytes,
                       .out = out};
    ckpt_tensor_units(node->tensor, r.units);
    status = ckpt_split_range(read->view->rank, count, begin, n, visit_reshaped, &r, err);
  }
  tile->reader = mover.reader;
  return ckpt_fail_at(status, err, NULL, node->tensor->name);
}

/* Which of its rows or cells a tile is. */
static void find_tile(ckpt_tile *tile, const ckpt_batch *batch, uint64_t number) {
  tile->batch = batch;
  tile->number = number;
  tile->n_used = 0;
  tile->n_made = 0;
  if (batch->block != NULL) {
    tile->part = ckpt_block_at(batch->block, number);
    tile->n_rows = tile->part.n_rows * tile->part.n_cols;
    return;
  }
  tile->first_row = number * batch->tile_rows;
  tile->n_rows = batch->n_rows - tile->first_row;
  if (tile->n_rows > batch->tile_rows) tile->n_rows = batch->tile_rows;
}

/* The box of a read that the tile sees where that is no flat range of it. */
static void find_box(const ckpt_tile *tile, const ckpt_batch_read *read, uint64_t *start, uint64_t *count) {
  const ckpt_block *block = tile->batch->block;
  if (block == NULL) {
    uint64_t per_step = read->view->count[read->cut_axis] / tile->batch->n_rows;
    start[read->cut_axis] += tile->first_row * per_step;
    count[read->cut_axis] = tile->n_rows * per_step;
    return;
  }
  uint64_t outer = tile->part.outer;
  for (uint32_t axis = block->lead; axis-- > 0; outer /= read->view->count[axis]) {
    start[axis] += outer % read->view->count[axis];
    count[axis] = 1;
  }
  start[block->row_axis] += tile->part.first_row;
  count[block->row_axis] = tile->part.n_rows;
  start[block->lead] += tile->part.first_col;
  count[block->lead] = tile->part.n_cols;
}

static ckpt_status make_read(ckpt_tile *tile, uint32_t number, ckpt_error *err) {
  const ckpt_batch *batch = tile->batch;
  const ckpt_batch_read *read = &batch->reads[number];
  bool is_range = read->is_whole || (read->cut_axis == 0 && batch->block == NULL);
  uint64_t per_row = read->n_units / batch->n_rows;
  uint64_t n_units = read->is_whole ? read->n_units : per_row * tile->n_rows;
  uint64_t begin = read->is_whole || !is_range ? 0 : per_row * tile->first_row;
  uint64_t n_stored; /* units of the memory that the view is of */
  bool is_in_memory = read->expr->memory != NULL && is_range && read->cut_axis == 0 &&
                      ckpt_product_u64(read->view->shape, read->view->rank, &n_stored) && read->n_units == n_stored;
  tile->n_bytes_read += read->is_whole ? read->n_bytes : read->n_bytes / batch->n_rows * tile->n_rows;
  if (is_in_memory) { /* already packed: used where it is */
    tile->reads[number] = (const uint8_t *)read->expr->memory + begin * read->unit_bytes;
    return CKPT_OK;
  }
  void *bytes = NULL;
  CKPT_TRY(take(tile, n_units * read->unit_bytes, &bytes, err));
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK];
  memcpy(start, read->view->start, sizeof start);
  memcpy(count, read->view->count, sizeof count);
  if (!is_range) find_box(tile, read, start, count);
  CKPT_TRY(read_box(tile, number, start, count, begin, n_units, bytes, err));
  tile->reads[number] = bytes;
  return CKPT_OK;
}

/* Copies a view out of its read's tile: [outer rows][sub-box of the hull below them], permuted. */
static void view_copy(const ckpt_tile *tile, const ckpt_batch_read *read, const ckpt_view *view, bool is_whole,
                      const uint8_t *in, uint8_t *out) {
  uint32_t rank = view->rank, lead = 0;
  uint64_t box[CKPT_MAX_RANK], held[CKPT_MAX_RANK], start[CKPT_MAX_RANK], n_outer = 1;
  memcpy(held, read->view->count, sizeof held);
  memcpy(box, view->count, sizeof box);
  for (uint32_t axis = 0; axis < rank; axis++) start[axis] = view->start[axis] - read->view->start[axis];
  if (!is_whole && (read->cut_axis != 0 || tile->batch->block != NULL)) {
    uint64_t first[CKPT_MAX_RANK] = {0};
    find_box(tile, read, first, held);
    memcpy(box, held, sizeof box); /* such reads are no hulls (can_be_one, ckpt_block_find) */
  } else if (!is_whole) {
    uint64_t n_below = 1;
    for (uint32_t axis = 0; axis < rank; axis++) n_below *= held[axis];
    for (; lead < rank; lead++) { /* axes that tiles cut: view and hull agree there */
      if (view->order[lead] != lead || start[lead] != 0 || box[lead] != held[lead]) break;
      n_below /= held[lead];
    }
    n_outer = tile->n_rows * (read->n_units / tile->batch->n_rows) / n_below;
  }
  uint64_t in_bytes = read->unit_bytes, out_bytes = read->unit_bytes, units[CKPT_MAX_RANK];
  uint8_t order[CKPT_MAX_RANK];
  uint32_t inner = rank - lead;
  for (uint32_t axis = 0; axis < inner; axis++) {
    units[axis] = box[lead + axis];
    order[axis] = (uint8_t)(view->order[lead + axis] - lead);
    in_bytes *= held[lead + axis];
    out_bytes *= units[axis];
  }
  for (uint64_t outer = 0; outer < n_outer; outer++, in += in_bytes, out += out_bytes)
    ckpt_view_copy(in, out, inner, held + lead, start + lead, units, order, read->unit_bytes);
}

static void add_stats(ckpt_value_stats *into, const ckpt_value_stats *from) {
  ckpt_cast_stats_add(&into->cast, &from->cast);
  if (from->update.n != 0) ckpt_update_stats_add(&into->update, &from->update);
}

static ckpt_status eval(ckpt_tile *tile, const ckpt_expr *node, bool is_whole, const void **out, ckpt_error *err);

/* What the batch keeps of an argument that it needs whole. */
static const ckpt_kept *find_kept(const ckpt_tile *tile, const ckpt_expr *node) {
  uint32_t i = 0;
  while (tile->batch->wholes[i].node != node) i++;
  return &tile->kept[i];
}

/* What every tile of the batch needs: whole reads, and what is made of them. */
static ckpt_status keep(ckpt_tile *tile, ckpt_error *err) {
  const ckpt_batch *batch = tile->batch;
  for (uint32_t i = 0; i < batch->n_reads; i++)
    if (batch->reads[i].is_whole) CKPT_TRY(make_read(tile, i, err));
  for (uint32_t i = 0; i < batch->n_wholes; i++) {
    tile->n_pointers = 0;
    tile->stats = (ckpt_value_stats){0};
    ckpt_status status = eval(tile, batch->wholes[i].node, true, &tile->kept[i].bytes, err);
    CKPT_TRY(ckpt_fail_at(status, err, NULL, tile->plan->rows[batch->wholes[i].row].name));
    tile->kept[i].stats = tile->stats;
  }
  tile->n_kept_bytes = tile->n_used;
  return CKPT_OK;
}

ckpt_status ckpt_tile_read(ckpt_tile *tile, const ckpt_batch *batch, uint64_t number, ckpt_error *err) {
  const bool is_kept = tile->batch == batch && tile->kept_in == tile->workspace;
  find_tile(tile, batch, number);
  tile->n_bytes_read = 0;
  tile->kept_in = NULL;
  if (is_kept)
    tile->n_used = tile->n_kept_bytes;
  else
    CKPT_TRY(keep(tile, err));
  tile->kept_in = tile->workspace;
  for (uint32_t i = 0; i < batch->n_reads; i++)
    if (!batch->reads[i].is_whole) CKPT_TRY(make_read(tile, i, err));
  tile->n_used_by_reads = tile->n_used;
  return CKPT_OK;
}

/* Evaluates the arguments of a node, the first one where it is not given, into consecutive places of the pointer
 * arrays. */
static ckpt_status eval_args(ckpt_tile *tile, const ckpt_expr *node, bool is_whole, const void *first,
                             ckpt_op_call *call, ckpt_error *err) {
  uint32_t base = tile->n_pointers;
  tile->n_pointers += node->n_args;
  for (uint32_t i = 0; i < node->n_args; i++) {
    bool whole = is_whole || ckpt_op_wants_whole(node->op, i);
    if (i == 0 && first != NULL) {
      tile->pointers[base] = first;
    } else if (whole && !is_whole) {
      const ckpt_kept *kept = find_kept(tile, node->args[i]);
      tile->pointers[base + i] = kept->bytes;
      if (tile->number == 0 && tile->n_before == 0) add_stats(&tile->stats, &kept->stats); /* counted once */
    } else {
      CKPT_TRY(eval(tile, node->args[i], whole, &tile->pointers[base + i], err));
    }
    tile->counts[base + i] = ckpt_tile_elements(tile->batch, node->args[i], whole, tile->n_rows);
  }
  call->node = node;
  call->backend = tile->backend;
  call->args = tile->pointers + base;
  call->n_elements_of = tile->counts + base;
  call->n_elements = ckpt_tile_elements(tile->batch, node, is_whole, tile->n_rows);
  call->begin = is_whole ? 0 : node->n_elements / tile->batch->n_rows * tile->first_row;
  call->stats = &tile->stats.cast;
  call->update = tile->plan->wants_updates ? &tile->stats.update : NULL;
  call->counts_same = tile->plan->counts_same;
  return CKPT_OK;
}

/* Runs a node's operation, whose arguments the call has. */
static ckpt_status apply(const ckpt_tile *tile, const ckpt_expr *node, ckpt_op_call *call, void *out, ckpt_error *err) {
  const void *values[8];
  if (node->n_prologue > sizeof values / sizeof *values)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u prologues of one operation", node->n_prologue);
  for (uint32_t i = 0; i < node->n_prologue; i++) values[i] = tile->plan->values[node->prologue[i]->value - 1];
  call->values = values;
  call->out = out;
  return node->op->run(call, err);
}

static ckpt_status eval(ckpt_tile *tile, const ckpt_expr *node, bool is_whole, const void **out, ckpt_error *err) {
  const ckpt_dtype_row *row = ckpt_dtype_get(node->dtype);
  uint64_t n_bytes =
      ckpt_tile_elements(tile->batch, node, is_whole, tile->n_rows) / row->block_elements * row->block_bytes;
  void *buffer = NULL;
  if (node->op->rule == CKPT_RULE_READ) {
    bool is_direct;
    uint32_t number = ckpt_batch_find_read(tile->batch, node, is_whole, &is_direct);
    *out = tile->reads[number];
    if (is_direct) {
      *out = (const uint8_t *)*out + (is_whole ? 0 : node->n_bytes / tile->batch->n_rows * tile->n_before);
      return CKPT_OK;
    }
    CKPT_TRY(take(tile, n_bytes, &buffer, err));
    ckpt_view view;
    ckpt_expr_view(node, &view);
    if (n_bytes != 0) view_copy(tile, &tile->batch->reads[number], &view, is_whole, *out, buffer);
    *out = buffer;
    return CKPT_OK;
  }
  ckpt_op_call call = {0};
  CKPT_TRY(eval_args(tile, node, is_whole, NULL, &call, err));
  if (!node->op->is_check) CKPT_TRY(take(tile, n_bytes, &buffer, err));
  *out = node->op->is_check ? call.args[0] : buffer;
  return apply(tile, node, &call, buffer, err);
}

/* One strip, the tile's rows at this moment, of what is to be made of one first argument. */
static ckpt_status eval_strip(ckpt_tile *tile, uint32_t n, uint64_t n_before, ckpt_error *err) {
  const void *shared = NULL;
  tile->n_pointers = 0;
  tile->stats = (ckpt_value_stats){0};
  if (n > 1) CKPT_TRY(eval(tile, tile->made[0].expr->args[0], false, &shared, err));
  const ckpt_value_stats stats = tile->stats;
  const uint64_t n_used = tile->n_used;
  bool is_finite = false;
  for (uint32_t i = 0; i < n; i++) {
    ckpt_made *made = &tile->made[i];
    ckpt_op_call call = {0};
    uint8_t *out = (uint8_t *)(uintptr_t)made->bytes + made->expr->n_bytes / tile->batch->n_rows * n_before;
    tile->n_used = n_used;
    tile->n_pointers = 0;
    tile->stats = stats;
    CKPT_TRY(eval_args(tile, made->expr, false, shared, &call, err));
    call.is_finite = is_finite;
    CKPT_TRY(apply(tile, made->expr, &call, out, err));
    if (made->expr->op->is_check && call.n_elements != 0)
      memcpy(out, call.args[0], made->expr->n_bytes / tile->batch->n_rows * tile->n_rows);
    is_finite = is_finite || made->expr->op->wants_finite;
    add_stats(&made->stats, &tile->stats);
  }
  return CKPT_OK;
}

/* Evaluates what is to be made a few rows at a time, so that what one operation makes the next finds in the core's own
 * cache. */
static ckpt_status eval_strips(ckpt_tile *tile, const ckpt_expr *const *exprs, uint32_t n, ckpt_error *err) {
  const uint64_t first = tile->first_row, n_rows = tile->n_rows;
  const uint64_t n_strip = ckpt_strip_rows(tile->batch, exprs, n, n_rows);
  for (uint32_t i = 0; i < n; i++) tile->made[i] = (ckpt_made){.expr = exprs[i]};
  if (n == 1 && n_strip == n_rows) {
    ckpt_status status = eval(tile, exprs[0], false, &tile->made[0].bytes, err);
    tile->made[0].stats = tile->stats;
    return status;
  }
  for (uint32_t i = 0; i < n; i++) {
    void *buffer = NULL;
    CKPT_TRY(take(tile, tile->made[i].expr->n_bytes / tile->batch->n_rows * n_rows, &buffer, err));
    tile->made[i].bytes = buffer;
  }
  const uint64_t n_used = tile->n_used;
  ckpt_status status = CKPT_OK;
  for (uint64_t at = 0; at < n_rows && status == CKPT_OK; at += n_strip) {
    tile->n_used = n_used;
    tile->n_before = at;
    tile->first_row = first + at;
    tile->n_rows = n_rows - at < n_strip ? n_rows - at : n_strip;
    status = eval_strip(tile, n, at, err);
  }
  tile->n_before = 0;
  tile->first_row = first;
  tile->n_rows = n_rows;
  return status;
}

/* Cuts a reduction's tile into partials of CKPT_REDUCE_ELEMENTS. */
static ckpt_status reduce(ckpt_tile *tile, const ckpt_expr *node, const void **out, ckpt_error *err) {
  ckpt_op_call whole = {0};
  CKPT_TRY(eval_args(tile, node, false, NULL, &whole, err));
  const void *args[8];
  if (node->n_args > sizeof args / sizeof *args)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "%u arguments", node->n_args);
  void *partials = NULL;
  CKPT_TRY(take(tile, ckpt_n_partials(whole.n_elements) * node->op->value_bytes, &partials, err));
  *out = partials;
  for (uint64_t at = 0; at < whole.n_elements; at += CKPT_REDUCE_ELEMENTS) {
    uint64_t n = whole.n_elements - at < CKPT_REDUCE_ELEMENTS ? whole.n_elements - at : CKPT_REDUCE_ELEMENTS;
    for (uint32_t i = 0; i < node->n_args; i++) {
      const ckpt_dtype_row *row = ckpt_dtype_get(node->args[i]->dtype);
      args[i] = (const uint8_t *)whole.args[i] + at / row->block_elements * row->block_bytes;
    }
    ckpt_op_call call = whole;
    call.args = args;
    call.begin = whole.begin + at;
    call.n_elements = n;
    node->op->partial(&call, (uint8_t *)partials + at / CKPT_REDUCE_ELEMENTS * node->op->value_bytes);
  }
  return CKPT_OK;
}

/* The place of a piece among what the tile has; n_made where it has not. */
static uint32_t find_made(const ckpt_tile *tile, uint32_t piece) {
  uint32_t i = 0;
  while (i < tile->n_made && tile->made[i].expr != ckpt_expr_made(tile->plan->pieces[piece].expr)) i++;
  return i;
}

bool ckpt_tile_has(const ckpt_tile *tile, uint32_t piece) {
  const ckpt_expr *expr = tile->plan->pieces[piece].expr;
  return ckpt_expr_made(expr) == expr && find_made(tile, piece) != tile->n_made;
}

/* Rows of what was made, in another order, behind all that was made: where the last such ones were. */
static ckpt_status move_rows(ckpt_tile *tile, const ckpt_expr *expr, const void **bytes, ckpt_error *err) {
  const void *made = *bytes;
  void *out = NULL;
  tile->n_used = tile->n_made_bytes;
  tile->n_pointers = 0;
  ckpt_op_call call = {0};
  CKPT_TRY(eval_args(tile, expr, false, made, &call, err));
  CKPT_TRY(take(tile, expr->n_bytes / tile->batch->n_rows * tile->n_rows, &out, err));
  *bytes = out;
  return apply(tile, expr, &call, out, err);
}

ckpt_status ckpt_tile_eval(ckpt_tile *tile, uint32_t piece, const void **bytes, ckpt_error *err) {
  const ckpt_expr *expr = tile->plan->pieces[piece].expr, *exprs[CKPT_MAX_TOGETHER];
  uint32_t i = find_made(tile, piece), n, next;
  *bytes = NULL;
  if (i == tile->n_made) {
    tile->n_used = tile->n_used_by_reads;
    tile->n_pointers = 0;
    tile->n_made = 0;
    tile->stats = (ckpt_value_stats){0};
    if (expr->op->rule == CKPT_RULE_REDUCE) return reduce(tile, expr, bytes, err);
    n = ckpt_pieces_together(tile->plan, tile->batch, piece, exprs, &next);
    CKPT_TRY(eval_strips(tile, exprs, n, err));
    tile->n_made = n;
    tile->n_made_bytes = tile->n_used;
    i = 0;
  }
  *bytes = tile->made[i].bytes;
  tile->stats = tile->made[i].stats;
  return ckpt_expr_made(expr) == expr ? CKPT_OK : move_rows(tile, expr, bytes, err);
}
