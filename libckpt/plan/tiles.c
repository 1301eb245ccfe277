/* tiles.c - how finely each batch can be cut, how large its tiles are, and what the run will hold at most.
 *
 * The workspace is cut into equal shares, one per worker. A batch whose smallest tile needs more than a share runs
 * alone with the whole workspace; one that needs more than that is refused here, before a byte is read. Tile edges fall
 * on digest leaves where that costs nothing, and on partials of reductions always. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_estimateCStreamSize */
#include <zstd.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/extents/place.h"
#include "libckpt/io/records.h"
#include "libckpt/plan/batch.h"
#include "libckpt/plan/blocks.h"
#include "libckpt/plan/lower.h"
#include "libckpt/plan/records.h"
#include "libckpt/plan/strips.h"

#define TILE_TARGET_BYTES (UINT64_C(24) << 20)  /* of all that a tile needs */
#define TILE_RESULT_BYTES (8 * CKPT_LEAF_BYTES) /* of what it makes: leaves that are hashed together */

typedef unsigned long long ull;

static uint64_t gcd(uint64_t a, uint64_t b) {
  while (b != 0) {
    uint64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

/* How many rows a read can be cut into for this node: leading axes on which view and hull agree; every unit where they
 * are the same. */
static uint64_t rows_of_read(const ckpt_batch *batch, const ckpt_expr *node) {
  bool is_direct;
  const ckpt_batch_read *read = &batch->reads[ckpt_batch_find_read(batch, node, false, &is_direct)];
  if (is_direct) return read->n_units;
  ckpt_view view;
  ckpt_expr_view(node, &view);
  if (view.order[0] != 0) return view.count[view.order[0]];
  uint64_t n_rows = 1;
  for (uint32_t axis = 0; axis < view.rank; axis++) {
    if (view.order[axis] != axis || view.start[axis] != read->view->start[axis] ||
        view.count[axis] != read->view->count[axis])
      break;
    n_rows *= view.count[axis];
  }
  return n_rows;
}

/* How many rows node can be cut into: every tile edge then falls on whole blocks, rows or units of all it depends on.
 */
static uint64_t node_rows(const ckpt_batch *batch, const ckpt_expr *node) {
  if (node->n_elements == 0) return 0; /* an empty part of a concat: fits any tile */
  uint64_t n_rows = node->n_elements / ckpt_dtype_get(node->dtype)->block_elements;
  switch (node->op->rule) {
    case CKPT_RULE_READ: return rows_of_read(batch, node);
    case CKPT_RULE_STRUCTURE:
    case CKPT_RULE_WHOLE: return 1;
    case CKPT_RULE_ROW: n_rows = node->rank == 0 ? 1 : node->n_elements / node->shape[node->rank - 1]; break;
    case CKPT_RULE_OUTER:
      n_rows = node->op == &ckpt_op_move_rows ? ((const ckpt_move_params *)node->params)->n_parts : 1;
      for (uint32_t axis = 0; node->op == &ckpt_op_concat && axis < ((const ckpt_axis_params *)node->params)->axis;
           axis++)
        n_rows *= node->shape[axis];
      break;
    case CKPT_RULE_FLAT:
    case CKPT_RULE_REDUCE: break;
  }
  for (uint32_t i = 0; i < node->n_args; i++)
    if (!ckpt_op_wants_whole(node->op, i)) n_rows = gcd(n_rows, node_rows(batch, node->args[i]));
  return n_rows;
}

uint64_t ckpt_tile_elements(const ckpt_batch *batch, const ckpt_expr *node, bool is_whole, uint64_t n_rows) {
  return is_whole ? node->n_elements : node->n_elements / batch->n_rows * n_rows;
}

static uint64_t padded(uint64_t n_bytes) { return (n_bytes + 63) & ~UINT64_C(63); }

/* Buffers for evaluating node on a tile of n_rows, reads' own tiles and whole arguments apart. */
static uint64_t buffer_bytes(const ckpt_batch *batch, const ckpt_expr *node, bool is_whole, uint64_t n_rows) {
  uint64_t n_bytes = 0;
  const ckpt_dtype_row *row = ckpt_dtype_get(node->dtype);
  uint64_t n_own = padded(ckpt_tile_elements(batch, node, is_whole, n_rows) / row->block_elements * row->block_bytes);
  if (node->op->rule == CKPT_RULE_READ) {
    bool is_direct;
    ckpt_batch_find_read(batch, node, is_whole, &is_direct);
    return is_direct ? 0 : n_own;
  }
  for (uint32_t i = 0; i < node->n_args; i++)
    if (is_whole || !ckpt_op_wants_whole(node->op, i)) n_bytes += buffer_bytes(batch, node->args[i], is_whole, n_rows);
  if (node->op->rule == CKPT_RULE_REDUCE)
    return n_bytes +
           padded(ckpt_n_partials(ckpt_tile_elements(batch, node->args[0], is_whole, n_rows)) * node->op->value_bytes);
  return n_bytes + n_own;
}

/* a + b, at most UINT64_MAX. */
static uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static uint32_t count_wholes(const ckpt_expr *node) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < node->n_args; i++) n += ckpt_op_wants_whole(node->op, i) ? 1 : count_wholes(node->args[i]);
  return n;
}

static void add_wholes(ckpt_batch *batch, const ckpt_expr *node, uint32_t row) {
  for (uint32_t i = 0; i < node->n_args; i++) {
    uint32_t at = 0;
    if (!ckpt_op_wants_whole(node->op, i)) {
      add_wholes(batch, node->args[i], row);
      continue;
    }
    while (at < batch->n_wholes && batch->wholes[at].node != node->args[i]) at++;
    if (at == batch->n_wholes) batch->wholes[batch->n_wholes++] = (ckpt_whole){node->args[i], row};
  }
}

/* The outermost arguments that the batch's pieces need whole. */
static ckpt_status list_wholes(ckpt_plan *plan, ckpt_batch *batch, ckpt_error *err) {
  uint32_t n = 0;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next)
    n += count_wholes(plan->pieces[p].expr);
  batch->n_wholes = 0;
  if (n == 0) return CKPT_OK;
  batch->wholes = ckpt_arena_array(&plan->work, n, sizeof *batch->wholes);
  CKPT_TRY_ALLOC(batch->wholes, err);
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next)
    add_wholes(batch, plan->pieces[p].expr, plan->pieces[p].row);
  return CKPT_OK;
}

/* Of a tile's memory what does not depend on its rows. */
static uint64_t kept_bytes(const ckpt_batch *batch) {
  uint64_t n_bytes = 0;
  for (uint32_t i = 0; i < batch->n_reads; i++)
    if (batch->reads[i].is_whole) n_bytes = add(n_bytes, padded(batch->reads[i].n_bytes));
  for (uint32_t i = 0; i < batch->n_wholes; i++)
    n_bytes = add(n_bytes, buffer_bytes(batch, batch->wholes[i].node, true, 0));
  return n_bytes;
}

/* Of buffer_bytes, those of the result. */
static uint64_t result_bytes(const ckpt_batch *batch, const ckpt_expr *node, uint64_t n_rows) {
  const ckpt_dtype_row *row = ckpt_dtype_get(node->dtype);
  return padded(ckpt_tile_elements(batch, node, false, n_rows) / row->block_elements * row->block_bytes);
}

/* Buffers for evaluating some pieces together, whose first argument they share: their results, and what is made on the
 * way, a strip at a time. */
static uint64_t together_bytes(const ckpt_batch *batch, const ckpt_expr *const *exprs, uint32_t n, uint64_t n_rows) {
  const uint64_t n_strip = ckpt_strip_rows(batch, exprs, n, n_rows);
  if (n == 1 && n_strip == n_rows) return buffer_bytes(batch, exprs[0], false, n_rows);
  uint64_t n_bytes = 0, most = 0;
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t own = buffer_bytes(batch, exprs[i], false, n_strip) - result_bytes(batch, exprs[i], n_strip);
    n_bytes += result_bytes(batch, exprs[i], n_rows);
    if (own > most) most = own;
  }
  return n_bytes + most;
}

/* The largest result of pieces [first, end) that have rows of another in another order: one at a time, beside it. */
static uint64_t moved_bytes(const ckpt_plan *plan, const ckpt_batch *batch, uint32_t first, uint32_t end,
                            uint64_t n_rows) {
  uint64_t most = 0;
  for (uint32_t p = first; p != end; p = plan->pieces[p].next) {
    const ckpt_expr *expr = plan->pieces[p].expr;
    const uint64_t n = ckpt_expr_made(expr) == expr ? 0 : result_bytes(batch, expr, n_rows);
    if (n > most) most = n;
  }
  return most;
}

static uint64_t tile_bytes(const ckpt_plan *plan, const ckpt_batch *batch, uint64_t n_rows) {
  uint64_t n_reads = kept_bytes(batch), n_buffers = 0;
  for (uint32_t i = 0; i < batch->n_reads; i++) {
    const ckpt_batch_read *read = &batch->reads[i];
    if (!read->is_whole) n_reads = add(n_reads, padded(read->n_units / batch->n_rows * n_rows * read->unit_bytes));
  }
  const ckpt_expr *exprs[CKPT_MAX_TOGETHER];
  for (uint32_t p = batch->first_piece; p != UINT32_MAX;) {
    const uint32_t first = p, n_exprs = ckpt_pieces_together(plan, batch, p, exprs, &p);
    const uint64_t n = add(together_bytes(batch, exprs, n_exprs, n_rows), moved_bytes(plan, batch, first, p, n_rows));
    if (n > n_buffers) n_buffers = n; /* pieces of a tile follow each other in the same buffers */
  }
  return add(n_reads, n_buffers);
}

/* Rows that tiles must be a multiple of (reductions), and had better be (digest leaves); 0 where that is too many. */
static void quanta(const ckpt_plan *plan, const ckpt_batch *batch, uint64_t *must, uint64_t *better) {
  *must = *better = 1;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next) {
    const ckpt_piece *piece = &plan->pieces[p];
    uint64_t per_row = piece->n_elements / batch->n_rows;
    if (piece->expr->op->rule == CKPT_RULE_REDUCE) {
      uint64_t rows = CKPT_REDUCE_ELEMENTS / gcd(CKPT_REDUCE_ELEMENTS, per_row);
      *must = *must / gcd(*must, rows) * rows;
    } else {
      const ckpt_dtype_row *row = ckpt_dtype_get(piece->expr->dtype);
      uint64_t n_bytes = per_row / row->block_elements * row->block_bytes;
      uint64_t rows = CKPT_LEAF_BYTES / gcd(CKPT_LEAF_BYTES, n_bytes);
      if (*better != 0) *better = *better / gcd(*better, rows) * rows;
      if (*better > UINT64_C(1) << 40) *better = 0;
    }
  }
  if (*better != 0) *better = *better / gcd(*better, *must) * *must;
}

/* Rows that make TILE_RESULT_BYTES of the batch's widest result. */
static uint64_t enough_rows(const ckpt_plan *plan, const ckpt_batch *batch) {
  uint64_t widest = 0;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next) {
    const ckpt_piece *piece = &plan->pieces[p];
    const ckpt_dtype_row *row = ckpt_dtype_get(piece->expr->dtype);
    uint64_t n_bytes = piece->n_elements / batch->n_rows / row->block_elements * row->block_bytes;
    if (piece->expr->op->rule != CKPT_RULE_REDUCE && n_bytes > widest) widest = n_bytes;
  }
  return widest == 0 ? UINT64_MAX : TILE_RESULT_BYTES / widest;
}

/* Buffers of the arguments below node that are needed whole. */
static uint64_t whole_bytes(const ckpt_batch *batch, const ckpt_expr *node) {
  uint64_t n_bytes = 0;
  for (uint32_t i = 0; i < node->n_args; i++)
    n_bytes = add(n_bytes, ckpt_op_wants_whole(node->op, i) ? buffer_bytes(batch, node->args[i], true, 0)
                                                            : whole_bytes(batch, node->args[i]));
  return n_bytes;
}

/* What a row of the piece needs at once. */
static uint64_t piece_bytes(const ckpt_batch *batch, const ckpt_piece *piece) {
  return add(whole_bytes(batch, piece->expr), buffer_bytes(batch, piece->expr, false, 1));
}

static ckpt_status refuse(const ckpt_plan *plan, const ckpt_batch *batch, uint64_t needed, uint64_t available,
                          ckpt_error *err) {
  uint32_t widest = batch->first_piece;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next)
    if (piece_bytes(batch, &plan->pieces[p]) > piece_bytes(batch, &plan->pieces[widest])) widest = p;
  char enough[32];
  snprintf(enough, sizeof enough, "%llu", (ull)add(plan->memory, padded(needed) - available));
  return ckpt_advise_value(ckpt_fail(err, CKPT_ELIMIT, NULL, plan->rows[plan->pieces[widest].row].name,
                                     "needs %llu bytes at once, %llu are left of the memory limit of %llu", (ull)needed,
                                     (ull)available, (ull)plan->memory),
                           err, "%memory=$ would do for it", enough);
}

/* Whether tiles of the batch cut digest leaves of a row that is written nowhere: then they had better come in order, so
 * that one leaf at a time is open. */
static bool cuts_unwritten_leaves(const ckpt_plan *plan, const ckpt_batch *batch) {
  if (batch->n_tiles == 1 || !plan->wants_digests) return false;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next) {
    const ckpt_piece *piece = &plan->pieces[p];
    const ckpt_dtype_row *row = ckpt_dtype_get((ckpt_dtype)piece->expr->dtype);
    uint64_t per_tile = piece->n_elements / batch->n_rows * batch->tile_rows;
    if (plan->rows[piece->row].sink == CKPT_NO_SINK &&
        (per_tile / row->block_elements * row->block_bytes % CKPT_LEAF_BYTES != 0 ||
         piece->begin / row->block_elements * row->block_bytes % CKPT_LEAF_BYTES != 0))
      return true;
  }
  return false;
}

/* Bytes that a tile of n_rows reads in one run, where it restricts an inner axis of what is stored. */
static uint64_t run_bytes(const ckpt_batch *batch, uint64_t n_rows) {
  const ckpt_batch_read *read = &batch->reads[0];
  uint64_t n_units = read->view->count[read->cut_axis] / batch->n_rows * n_rows;
  for (uint32_t axis = read->cut_axis + 1; axis < read->view->rank; axis++) n_units *= read->view->count[axis];
  return n_units * read->unit_bytes;
}

/* Cuts the batch into blocks that fit a worker's share, or, one at a time, the workspace; false where none fits. */
static ckpt_status plan_blocks(ckpt_plan *plan, ckpt_batch *batch, const ckpt_block *found, uint64_t workspace,
                               ckpt_error *err) {
  batch->block = ckpt_arena_alloc(&plan->work, sizeof *batch->block);
  CKPT_TRY_ALLOC(batch->block, err);
  *batch->block = *found;
  batch->n_rows = found->n_outer * found->n_rows * found->n_cols;
  uint64_t least = tile_bytes(plan, batch, 1);
  if (least > workspace) return refuse(plan, batch, least, workspace, err);
  batch->exclusive = least > plan->share_bytes;
  uint64_t room = batch->exclusive ? workspace : plan->share_bytes, n_cells = found->n_rows * found->n_cols;
  while (n_cells > 1 && tile_bytes(plan, batch, n_cells) > room) n_cells -= n_cells / 8 + 1;
  batch->n_tiles = ckpt_block_cut(batch->block, n_cells);
  batch->tile_rows = batch->block->tile_rows * batch->block->tile_cols;
  batch->tile_bytes = tile_bytes(plan, batch, batch->tile_rows);
  return CKPT_OK;
}

/* Bytes that boxes of the read fetch which restrict two of its axes to `tile` at a time: most are alike,
 * those at an edge are smaller. */
static uint64_t fetched_in_tiles(const ckpt_batch_read *read, uint64_t *count, const uint32_t *axes,
                                 const uint64_t *tile) {
  const uint64_t n[2] = {count[axes[0]], count[axes[1]]};
  uint64_t n_fetched = 0;
  for (int edge = 0; edge < 4; edge++) {
    uint64_t n_alike = 1;
    for (int i = 0; i < 2; i++) {
      const bool is_last = (edge >> i & 1) != 0;
      count[axes[i]] = is_last ? n[i] % tile[i] : tile[i];
      n_alike *= is_last ? 1 : n[i] / tile[i];
    }
    n_fetched += n_alike * ckpt_place_fetched(read->view->rank, read->view->shape, count, read->unit_bytes);
  }
  return n_fetched;
}

/* Bytes that a read fetches tile by tile: its own, and the gaps that are read with short runs. */
static uint64_t fetched_bytes(const ckpt_batch *batch, const ckpt_batch_read *read) {
  const ckpt_block *block = batch->block;
  uint64_t count[CKPT_MAX_RANK], n_outer = 1;
  if (!read->is_native || read->n_units == 0) return read->n_bytes;
  memcpy(count, read->view->count, sizeof count);
  if (block == NULL && (read->cut_axis == 0 || read->is_whole))
    return ckpt_place_fetched(read->view->rank, read->view->shape, count, read->unit_bytes);
  if (block == NULL)
    return fetched_in_tiles(read, count, (const uint32_t[2]){0, read->cut_axis},
                            (const uint64_t[2]){count[0], count[read->cut_axis] / batch->n_rows * batch->tile_rows});
  for (uint32_t axis = 0; axis < block->lead; axis++) n_outer *= count[axis], count[axis] = 1;
  return n_outer * fetched_in_tiles(read, count, (const uint32_t[2]){block->row_axis, block->lead},
                                    (const uint64_t[2]){block->tile_rows, block->tile_cols});
}

/* How many sequential extents of a tensor take turns in tiles that follow each other: one of flat ranges; of boxes
 * those that can stand side by side along the first axis, by which they are sorted. */
static uint64_t cursors_in_turn(const ckpt_tensor *tensor) {
  if (tensor == NULL || tensor->n_extents == 0 || !ckpt_extent_is_sequential(&tensor->extents[0])) return 0;
  uint64_t most = 1;
  for (uint32_t i = 0, first = 0; i < tensor->n_extents && tensor->details->extent_form != CKPT_EXTENT_FLAT; i++) {
    while (tensor->extents[first].box[0] + tensor->details->longest <= tensor->extents[i].box[0] && first < i) first++;
    if (i - first + 1 > most) most = i - first + 1;
  }
  return most;
}

/* Whether streams are read again from their start for each tile: of a tensor that is stored in another order than it is
 * read, or of more that take turns than there are cursors. */
static bool reads_again(const ckpt_plan *plan, const ckpt_batch *batch) {
  uint64_t n_turns = 0;
  bool is_strided = false;
  for (uint32_t i = 0; i < batch->n_reads && batch->has_cursor; i++) {
    const ckpt_tensor *tensor = batch->reads[i].expr->tensor;
    uint64_t n = cursors_in_turn(tensor);
    n_turns += n;
    is_strided = is_strided || (n != 0 && tensor->details->extent_form == CKPT_EXTENT_STRIDED);
  }
  return is_strided || n_turns > plan->cursor_bytes / CKPT_CURSOR_BYTES;
}

static ckpt_status plan_batch(ckpt_plan *plan, ckpt_batch *batch, uint64_t workspace, ckpt_error *err) {
  batch->n_rows = 0;
  batch->block = NULL;
  CKPT_TRY(list_wholes(plan, batch, err));
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = plan->pieces[p].next)
    batch->n_rows = gcd(batch->n_rows, node_rows(batch, plan->pieces[p].expr));
  for (uint32_t i = 0; i < batch->n_reads; i++) {
    const ckpt_batch_read *read = &batch->reads[i];
    plan->n_bytes_read += read->n_bytes;
    if (!read->is_whole)
      batch->n_rows = gcd(batch->n_rows, read->cut_axis != 0 ? read->view->count[read->cut_axis] : read->n_units);
  }
  uint64_t must, better;
  quanta(plan, batch, &must, &better);
  if (must > batch->n_rows) must = batch->n_rows;
  uint64_t least = tile_bytes(plan, batch, must), share = plan->share_bytes;
  ckpt_block block;
  if (least > share && ckpt_block_find(plan, batch, &block)) return plan_blocks(plan, batch, &block, workspace, err);
  const bool is_wide = reads_again(plan, batch); /* then in as few tiles as there is memory for */
  batch->exclusive = least > share || is_wide;
  if (least > workspace) return refuse(plan, batch, least, workspace, err);
  const uint64_t room = batch->exclusive ? workspace : share, kept = kept_bytes(batch);
  const uint64_t n_some =
      batch->n_rows / must < 4096 ? batch->n_rows : 4096 * must; /* many strips, where it has them */
  uint64_t per_row = (tile_bytes(plan, batch, n_some) - kept) / n_some + 1;
  uint64_t target = room - kept < TILE_TARGET_BYTES ? room - kept : TILE_TARGET_BYTES;
  bool cuts_columns = batch->n_reads != 0 && batch->reads[0].cut_axis != 0 && !batch->reads[0].is_whole;
  if (cuts_columns || is_wide) target = room - kept; /* long runs need wide tiles */
  uint64_t n_rows = target / per_row, enough = enough_rows(plan, batch);
  if (!cuts_columns && !is_wide && n_rows > enough) n_rows = enough;
  n_rows = n_rows / must * must;
  if (n_rows < must) n_rows = must;
  while (n_rows > must && tile_bytes(plan, batch, n_rows) > room) n_rows = n_rows / 2 / must * must;
  if (n_rows < must) n_rows = must;
  if (better != 0 && better <= n_rows) n_rows = n_rows / better * better;
  if (cuts_columns && n_rows < batch->n_rows && run_bytes(batch, n_rows) < CKPT_BLOCK_RUN_BYTES &&
      ckpt_block_find(plan, batch, &block))
    return plan_blocks(plan, batch, &block, workspace, err);
  batch->tile_rows = n_rows < batch->n_rows ? n_rows : batch->n_rows;
  batch->n_tiles = batch->n_rows / batch->tile_rows + (batch->n_rows % batch->tile_rows != 0);
  batch->tile_bytes = tile_bytes(plan, batch, batch->tile_rows);
  batch->in_order = batch->in_order || cuts_unwritten_leaves(plan, batch);
  return CKPT_OK;
}

static int compare_batches(const void *a, const void *b) {
  const ckpt_batch *x = a, *y = b;
  int order = ckpt_compare_orders(x->order, y->order);
  return order != 0 ? order : x->first_piece < y->first_piece ? -1 : 1;
}

/* A lane of which any tensor needs a value runs after everything that computes values. */
static ckpt_status delay_lanes(ckpt_plan *plan, ckpt_error *err) {
  uint32_t n_lanes = 1;
  for (uint32_t i = 0; i < plan->n_outputs; i++) n_lanes += plan->outputs[i].layout.n_files;
  bool *waits = ckpt_arena_array(&plan->work, n_lanes, sizeof *waits);
  CKPT_TRY_ALLOC(waits, err);
  for (uint32_t i = 0; i < plan->n_batches; i++)
    if (plan->batches[i].waits) waits[plan->batches[i].lane] = true;
  for (uint32_t i = 0; i < plan->n_batches; i++) {
    ckpt_batch *batch = &plan->batches[i];
    if (batch->lane == 0 || !waits[batch->lane]) continue;
    batch->order[0] = 2;
    batch->waits = true;
  }
  return CKPT_OK;
}

/* Digests of leaves of rows in several pieces, which wait for each other; one piece's are gone with its batch, and rows
 * that are read back have theirs one after the other. */
static uint64_t leaf_bytes(const ckpt_plan *plan) {
  enum { BESIDE = 2 * 32 }; /* an end that two pieces share, and what each allocation takes */
  uint64_t n_bytes = 0;
  for (uint32_t i = 0; i < plan->n_pieces; i++) {
    const ckpt_piece *piece = &plan->pieces[i];
    const ckpt_row *row = &plan->rows[piece->row];
    if (piece->n_elements == row->expr->n_elements || ckpt_row_is_boxed(plan, row)) continue;
    n_bytes += BESIDE + 32 * (piece->expr->n_bytes / CKPT_LEAF_BYTES);
  }
  return n_bytes;
}

/* Memory of the plan itself, as far as the allowance of the indexes (400 bytes per extent) and 8 of the 32 MiB that a
 * process may have besides do not cover it: it is taken from the budget, so that the rule holds for any number of rows.
 * *beside: of the plan what they do cover, and the indexes. */
static uint64_t plan_bytes(const ckpt_plan *plan, uint64_t *beside) {
  uint64_t taken = plan->arena.n_taken + plan->work.n_taken, allowed = CKPT_PLAN_ALLOWANCE, n_inputs = 0;
  taken += plan->n_rows * (sizeof(ckpt_row) + CKPT_ROW_RUN_BYTES) + plan->n_pieces * sizeof(ckpt_piece) +
           plan->n_batches * sizeof(ckpt_batch) + plan->n_values * sizeof(uint64_t) + ckpt_plan_record_bytes(plan) +
           leaf_bytes(plan);
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    const ckpt_index *described = plan->outputs[i].described;
    taken += described->arena.n_taken + described->n_tensors * sizeof(ckpt_tensor);
    allowed += (uint64_t)described->n_tensors * CKPT_INDEX_ALLOWANCE;
  }
  for (uint32_t i = 0; i < plan->n_inputs; i++) {
    const ckpt_index *index = plan->inputs[i].index;
    uint64_t n_index =
        index->arena.n_taken + index->n_tensors * sizeof(ckpt_tensor) + ckpt_source_record_bytes(index->source);
    uint64_t n_allowed = index->n_extents * CKPT_INDEX_ALLOWANCE;
    if (n_allowed > n_index) allowed += n_allowed - n_index;
    n_inputs += n_index;
  }
  const uint64_t own = taken > allowed ? taken - allowed : 0;
  *beside = n_inputs + taken - own;
  return own;
}

/* What one worker's decoders may hold: a cursor for each sequential read, and for each extent that takes turns as long
 * as that is an eighth of the memory at most. With fewer, streams are read again from their start. */
static uint64_t cursor_bytes(const ckpt_plan *plan) {
  enum { MAX_LEAST = 4 };
  uint64_t most = 0, affordable = plan->memory / 8 / CKPT_CURSOR_BYTES;
  for (uint32_t b = 0; b < plan->n_batches; b++) {
    uint64_t n_reads = 0, n = 0;
    for (uint32_t l = 0; l < plan->batches[b].n_reads && plan->batches[b].has_cursor; l++) {
      uint64_t n_turns = cursors_in_turn(plan->batches[b].reads[l].expr->tensor);
      n_reads += n_turns != 0 && n_reads < MAX_LEAST;
      n += n_turns;
    }
    if (n > affordable) n = affordable > n_reads ? affordable : n_reads;
    if (n > most) most = n;
  }
  return most * CKPT_CURSOR_BYTES;
}

/* What one worker's encoder may hold. */
static uint64_t encoder_bytes(const ckpt_plan *plan) {
  uint8_t level = 0;
  for (uint32_t i = 0; i < plan->n_outputs; i++)
    for (uint32_t f = 0; f < plan->outputs[i].layout.n_files; f++) {
      const ckpt_layout_file *file = &plan->outputs[i].layout.files[f];
      for (uint32_t s = 0; s < file->n_segments && file->has_encoder; s++)
        if (file->segments[s].level > level) level = file->segments[s].level;
    }
  return level == 0 ? 0 : ZSTD_estimateCStreamSize(level) + CKPT_LANE_BYTES;
}

/* Of the results that a tile has at once: each cuts leaves of its own. */
static uint64_t most_results(const ckpt_plan *plan) {
  uint64_t most = 1;
  for (uint32_t b = 0; b < plan->n_batches; b++) {
    uint64_t n = 0;
    for (uint32_t p = plan->batches[b].first_piece; p != UINT32_MAX; p = plan->pieces[p].next) n++;
    if (n > most) most = n;
  }
  return most;
}

/* Divides the memory and plans every batch. */
static ckpt_status divide(ckpt_plan *plan, ckpt_error *err) {
  plan->cursor_bytes = cursor_bytes(plan);
  uint64_t per_worker = CKPT_WINDOW_BYTES + plan->cursor_bytes + encoder_bytes(plan), least_share = UINT64_C(2) << 20;
  /* One worker more than processors, so that reads and writes of one overlap the work of another; as many as half of
   * the memory feeds. */
  const uint64_t own = plan_bytes(plan, &plan->beside);
  uint64_t n_workers = plan->n_threads > 1 ? (uint64_t)plan->n_threads + 1 : 1;
  uint64_t most = plan->memory / 2 / (per_worker + least_share + CKPT_LEAF_BYTES);
  if (n_workers > most) n_workers = most == 0 ? 1 : most;
  const uint64_t left = plan->memory > own ? plan->memory - own : 0;
  uint64_t n_slots = left / (8 * CKPT_LEAF_BYTES), enough = (n_workers + 1) * (1 + most_results(plan));
  if (n_slots > enough) n_slots = enough;
  if (n_slots < n_workers) n_slots = n_workers;
  uint64_t fixed = own + n_workers * per_worker + n_slots * CKPT_LEAF_BYTES + CKPT_WINDOW_BYTES;
  if (fixed >= plan->memory)
    return ckpt_advise(ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                                 "the memory limit of %llu bytes is too low: more than %llu are needed, %llu of them "
                                 "for the plan of %u row%s",
                                 (ull)plan->memory, (ull)fixed, (ull)own, plan->n_rows, ckpt_plural(plan->n_rows)),
                       err, "raise %memory");
  plan->n_leaf_slots = (uint32_t)n_slots;
  plan->n_workers = (uint32_t)n_workers;
  plan->share_bytes = (plan->memory - fixed) / n_workers & ~UINT64_C(63);
  plan->workspace_bytes = plan->share_bytes * n_workers;
  plan->n_bytes_read = plan->n_bytes_fetched = 0;
  uint64_t largest = 0, widest = 64; /* of all at once; of those that share */
  for (uint32_t i = 0; i < plan->n_batches; i++) {
    ckpt_batch *batch = &plan->batches[i];
    CKPT_TRY(plan_batch(plan, batch, plan->workspace_bytes, err));
    for (uint32_t l = 0; l < batch->n_reads; l++) plan->n_bytes_fetched += fetched_bytes(batch, &batch->reads[l]);
    uint64_t n = batch->exclusive ? batch->tile_bytes : batch->tile_bytes * n_workers;
    if (n > largest) largest = n;
    if (!batch->exclusive && batch->tile_bytes > widest) widest = batch->tile_bytes;
  }
  plan->peak = fixed + largest;
  plan->share_bytes = padded(widest); /* the limit is no wish: take what the tiles need */
  plan->workspace_bytes = plan->share_bytes * n_workers > largest ? plan->share_bytes * n_workers : padded(largest);
  return CKPT_OK;
}

ckpt_status ckpt_plan_tiles(ckpt_plan *plan, ckpt_error *err) {
  CKPT_TRY(delay_lanes(plan, err));
  if (plan->n_batches != 0) qsort(plan->batches, plan->n_batches, sizeof *plan->batches, compare_batches);
  for (uint32_t i = 0; i < plan->n_batches; i++) plan->batches[i].has_cursor = plan->batches[i].in_order;
  return divide(plan, err);
}
