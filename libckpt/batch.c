/* batch.c - which pieces read the same leaves, and in which tiles: see batch.h and plan.h. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "dtype.h"
#include "error.h"
#include "lower.h"

enum { MAX_LEAVES = 4096 };

ckpt_status ckpt_batcher_start(ckpt_batcher *batcher, ckpt_plan *plan, ckpt_error *err) {
  *batcher = (ckpt_batcher){.plan = plan, .n_table = 1024};
  batcher->table = calloc(batcher->n_table, sizeof *batcher->table);
  batcher->leaves = calloc(MAX_LEAVES, sizeof *batcher->leaves);
  batcher->value_batches = calloc(plan->n_values + 1, sizeof *batcher->value_batches);
  if (batcher->table != NULL && batcher->leaves != NULL && batcher->value_batches != NULL) return CKPT_OK;
  ckpt_batcher_end(batcher);
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

void ckpt_batcher_end(ckpt_batcher *batcher) {
  free(batcher->table);
  free(batcher->hashes);
  free(batcher->leaves);
  free(batcher->value_batches);
}

/* ---- leaves -------------------------------------------------------------------------------------------------- */

static bool view_is_whole(const ckpt_view *view) {
  for (uint32_t axis = 0; axis < view->rank; axis++)
    if (view->order[axis] != axis || view->start[axis] != 0 || view->count[axis] != view->shape[axis]) return false;
  return true;
}

/* The leaf as a batch would read it for this node alone. */
static void leaf_of(ckpt_leaf *leaf, const ckpt_expr *node, bool is_whole) {
  *leaf = (ckpt_leaf){.expr = node, .is_whole = is_whole, .unit_bytes = ckpt_dtype_get(node->dtype)->block_bytes};
  ckpt_leaf_view(node, &leaf->view);
  ckpt_view native = {0};
  if (node->tensor != NULL) {
    native.rank = ckpt_tensor_units(node->tensor, native.shape);
    if (view_is_whole(&leaf->view)) { /* however it was reshaped, it is all of it, in order */
      leaf->view = native;
      memcpy(leaf->view.count, native.shape, sizeof native.shape);
    }
    leaf->is_native = leaf->view.rank == native.rank &&
                      memcmp(leaf->view.shape, native.shape, native.rank * sizeof *native.shape) == 0;
  }
  leaf->cut_axis = leaf->view.order[0];
  leaf->n_units = 1;
  for (uint32_t axis = 0; axis < leaf->view.rank; axis++) {
    leaf->view.order[axis] = (uint8_t)axis;
    leaf->n_units *= leaf->view.count[axis];
  }
  leaf->n_bytes = leaf->n_units * leaf->unit_bytes;
}

static const void *leaf_identity(const ckpt_leaf *leaf) {
  return leaf->expr->tensor != NULL ? (const void *)leaf->expr->tensor : leaf->expr->memory;
}

/* Whether two leaves can be one read: same tensor seen alike, same rows. */
static bool leaves_match(const ckpt_leaf *a, const ckpt_leaf *b) {
  if (leaf_identity(a) != leaf_identity(b) || a->is_whole != b->is_whole || a->cut_axis != b->cut_axis ||
      a->view.rank != b->view.rank || a->unit_bytes != b->unit_bytes ||
      memcmp(a->view.shape, b->view.shape, a->view.rank * sizeof *a->view.shape) != 0)
    return false;
  uint32_t n_fixed = a->cut_axis != 0 || a->is_whole ? a->view.rank : 1;
  return memcmp(a->view.start, b->view.start, n_fixed * sizeof *a->view.start) == 0 &&
         memcmp(a->view.count, b->view.count, n_fixed * sizeof *a->view.count) == 0;
}

/* Grows the hull of `into` over the other's box. */
static void leaf_merge(ckpt_leaf *into, const ckpt_leaf *other) {
  into->n_units = 1;
  for (uint32_t axis = 0; axis < into->view.rank; axis++) {
    uint64_t *start = &into->view.start[axis], *count = &into->view.count[axis];
    uint64_t end_a = *start + *count, end_b = other->view.start[axis] + other->view.count[axis];
    if (other->view.start[axis] < *start) *start = other->view.start[axis];
    *count = (end_a > end_b ? end_a : end_b) - *start;
    into->n_units *= *count;
  }
  into->n_bytes = into->n_units * into->unit_bytes;
}

/* Collects the distinct leaves of an expression, in the order of evaluation. */
static ckpt_status collect(const ckpt_expr *node, bool is_whole, ckpt_leaf *leaves, uint32_t *n, ckpt_error *err) {
  if (node->op->rule == CKPT_RULE_LEAF) {
    ckpt_leaf leaf;
    leaf_of(&leaf, node, is_whole);
    for (uint32_t i = 0; i < *n; i++)
      if (leaves_match(&leaves[i], &leaf)) {
        leaf_merge(&leaves[i], &leaf);
        return CKPT_OK;
      }
    if (*n == MAX_LEAVES)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %d tensors in one expression", MAX_LEAVES);
    leaves[(*n)++] = leaf;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < node->n_args; i++)
    CKPT_TRY(collect(node->args[i], is_whole || (node->op->whole_args >> i & 1), leaves, n, err));
  return CKPT_OK;
}

uint32_t ckpt_batch_leaf(const ckpt_batch *batch, const ckpt_expr *node, bool is_whole, bool *is_direct) {
  ckpt_leaf wanted;
  leaf_of(&wanted, node, is_whole);
  uint32_t number = 0;
  while (number + 1 < batch->n_leaves && !leaves_match(&batch->leaves[number], &wanted)) number++;
  ckpt_view view;
  ckpt_leaf_view(node, &view);
  *is_direct = wanted.n_units == batch->leaves[number].n_units;
  for (uint32_t axis = 0; axis < view.rank; axis++) *is_direct = *is_direct && view.order[axis] == axis;
  return number;
}

/* ---- adding pieces --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

/* How many prologues deep an expression is; `after` becomes the order of the latest batch that it must follow. */
static uint64_t level_of(const ckpt_batcher *batcher, const ckpt_expr *node, uint64_t after[4]) {
  uint64_t level = 0;
  for (uint32_t i = 0; i < node->n_prologue; i++) {
    const ckpt_batch *batch = &batcher->plan->batches[batcher->value_batches[node->prologue[i]->value - 1]];
    if (level == 0 || memcmp(batch->order, after, sizeof batch->order) > 0)
      memcpy(after, batch->order, sizeof batch->order);
    if (batch->order[3] + 1 > level) level = batch->order[3] + 1;
  }
  for (uint32_t i = 0; i < node->n_args; i++) {
    uint64_t below = level_of(batcher, node->args[i], after);
    if (below > level) level = below;
  }
  return level;
}

static void source_order(const ckpt_leaf *leaf, uint64_t order[4]) {
  const ckpt_tensor *tensor = leaf->expr->tensor;
  order[0] = 1;
  order[1] = order[2] = 0;
  if (tensor == NULL || tensor->n_extents == 0) return;
  order[1] = tensor->extents[0].file;
  order[2] = tensor->extents[0].offset + leaf->view.start[0];
}

static ckpt_status insert(ckpt_batcher *batcher, uint64_t hash, uint32_t number, ckpt_error *err) {
  if (2 * (number + 1) > batcher->n_table) {
    uint32_t n_table = batcher->n_table * 2;
    uint32_t *table = calloc(n_table, sizeof *table);
    CKPT_TRY_ALLOC(table, err);
    for (uint32_t i = 0; i < number; i++) {
      uint32_t at = (uint32_t)batcher->hashes[i] & (n_table - 1);
      while (table[at] != 0) at = (at + 1) & (n_table - 1);
      table[at] = i + 1;
    }
    free(batcher->table);
    batcher->table = table;
    batcher->n_table = n_table;
  }
  if (number >= batcher->hash_capacity) {
    uint32_t capacity = batcher->hash_capacity < 64 ? 64 : batcher->hash_capacity * 2;
    uint64_t *hashes = reallocarray(batcher->hashes, capacity, sizeof *hashes);
    CKPT_TRY_ALLOC(hashes, err);
    batcher->hashes = hashes;
    batcher->hash_capacity = capacity;
  }
  batcher->hashes[number] = hash;
  uint32_t at = (uint32_t)hash & (batcher->n_table - 1);
  while (batcher->table[at] != 0) at = (at + 1) & (batcher->n_table - 1);
  batcher->table[at] = number + 1;
  return CKPT_OK;
}

static bool batch_takes(const ckpt_batch *batch, const ckpt_leaf *leaves, uint32_t n, uint64_t level, uint32_t lane) {
  if (batch->n_leaves != n || batch->order[3] != level || (lane != 0 && batch->lane != 0)) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!leaves_match(&batch->leaves[i], &leaves[i])) return false;
  return true;
}

static ckpt_status grow(void *items, uint32_t n, uint32_t *capacity, size_t item_bytes, ckpt_error *err) {
  if (n < *capacity) return CKPT_OK;
  uint32_t wanted = *capacity < 64 ? 64 : *capacity + *capacity / 2;
  void *moved = wanted < *capacity ? NULL : reallocarray(*(void **)items, wanted, item_bytes);
  CKPT_TRY_ALLOC(moved, err);
  *(void **)items = moved;
  *capacity = wanted;
  return CKPT_OK;
}

static ckpt_status new_batch(ckpt_batcher *batcher, const ckpt_leaf *leaves, uint32_t n, const uint64_t *after,
                             uint64_t level, ckpt_error *err) {
  ckpt_plan *plan = batcher->plan;
  CKPT_TRY(grow(&plan->batches, plan->n_batches, &plan->batch_capacity, sizeof *plan->batches, err));
  ckpt_batch batch = {.n_leaves = n, .first_piece = UINT32_MAX, .waits = level != 0};
  batch.leaves = ckpt_arena_array(&plan->work, n, sizeof *leaves);
  CKPT_TRY_ALLOC(batch.leaves, err);
  if (n != 0) memcpy(batch.leaves, leaves, n * sizeof *leaves);
  if (level != 0)
    memcpy(batch.order, after, sizeof batch.order);
  else if (n != 0)
    source_order(&leaves[0], batch.order);
  batch.order[3] = level;
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_tensor *tensor = leaves[i].expr->tensor;
    for (uint32_t k = 0; tensor != NULL && k < tensor->n_extents && !batch.in_order; k++)
      batch.in_order = ckpt_extent_is_sequential(&tensor->extents[k]);
  }
  plan->batches[plan->n_batches++] = batch;
  return CKPT_OK;
}

ckpt_status ckpt_batcher_add(ckpt_batcher *batcher, ckpt_piece piece, ckpt_error *err) {
  ckpt_plan *plan = batcher->plan;
  ckpt_leaf *leaves = batcher->leaves;
  uint32_t n = 0;
  CKPT_TRY(collect(piece.expr, false, leaves, &n, err));
  uint64_t after[4] = {0};
  uint64_t level = level_of(batcher, piece.expr, after), hash = mix(level, n);
  for (uint32_t i = 0; i < n; i++) {
    hash = mix(hash, (uint64_t)(uintptr_t)leaf_identity(&leaves[i]));
    hash = mix(hash, leaves[i].view.start[0] * 3 + leaves[i].view.count[0]);
  }
  uint32_t at = (uint32_t)hash & (batcher->n_table - 1), number = UINT32_MAX;
  for (; batcher->table[at] != 0; at = (at + 1) & (batcher->n_table - 1))
    if (batcher->hashes[batcher->table[at] - 1] == hash &&
        batch_takes(&plan->batches[batcher->table[at] - 1], leaves, n, level, batcher->lane)) {
      number = batcher->table[at] - 1;
      break;
    }
  if (number == UINT32_MAX) {
    number = plan->n_batches;
    CKPT_TRY(new_batch(batcher, leaves, n, after, level, err));
    CKPT_TRY(insert(batcher, hash, number, err));
  }
  ckpt_batch *batch = &plan->batches[number];
  if (plan->rows[piece.row].sink == CKPT_VALUE_SINK) batcher->value_batches[plan->rows[piece.row].value] = number;
  for (uint32_t i = 0; i < n; i++) leaf_merge(&batch->leaves[i], &leaves[i]);
  if (batcher->lane != 0) {
    batch->lane = batcher->lane;
    batch->in_order = true;
    batch->order[0] = 0, batch->order[1] = batcher->lane, batch->order[2] = batcher->segment;
  }
  CKPT_TRY(grow(&plan->pieces, plan->n_pieces, &plan->piece_capacity, sizeof *plan->pieces, err));
  plan->pieces[plan->n_pieces] = piece;
  if (batch->first_piece == UINT32_MAX)
    batch->first_piece = plan->n_pieces;
  else
    plan->pieces[batch->last_piece].next = plan->n_pieces;
  batch->last_piece = plan->n_pieces++;
  batch->n_pieces++;
  return CKPT_OK;
}
