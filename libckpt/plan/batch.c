/* batch.c - which pieces have the same reads, and in which tiles: see batch.h and plan.h. */
#include "libckpt/plan/batch.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/extents/decode.h"
#include "libckpt/plan/lower.h"
#include "libckpt/plan/same.h"

enum { MAX_READS = 4096, LEVEL = CKPT_N_ORDER - 1 };

ckpt_status ckpt_batcher_start(ckpt_batcher *batcher, ckpt_plan *plan, ckpt_error *err) {
  *batcher = (ckpt_batcher){.plan = plan, .n_table = 1024};
  batcher->table = calloc(batcher->n_table, sizeof *batcher->table);
  size_t n_values = (size_t)plan->n_values + 1;
  batcher->value_batches = reallocarray(NULL, n_values, sizeof *batcher->value_batches);
  if (batcher->value_batches != NULL) memset(batcher->value_batches, 0xFF, n_values * sizeof *batcher->value_batches);
  if (batcher->table != NULL && batcher->value_batches != NULL) return CKPT_OK;
  ckpt_batcher_end(batcher);
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

void ckpt_batcher_end(ckpt_batcher *batcher) {
  free(batcher->table);
  free(batcher->hashes);
  free(batcher->reads);
  free(batcher->views);
  free(batcher->value_batches);
}

/* ---- reads -------------------------------------------------------------------------------------------------- */

static bool view_is_whole(const ckpt_view *view) {
  for (uint32_t axis = 0; axis < view->rank; axis++)
    if (view->order[axis] != axis || view->start[axis] != 0 || view->count[axis] != view->shape[axis]) return false;
  return true;
}

/* The read as a batch would make it for this node alone; its view is written to *view. */
static void read_of(ckpt_batch_read *read, ckpt_view *view, const ckpt_expr *node, bool is_whole) {
  *read = (ckpt_batch_read){.expr = node,
                            .view = view,
                            .is_whole = is_whole,
                            .unit_bytes = ckpt_dtype_get((ckpt_dtype)node->dtype)->block_bytes};
  ckpt_expr_view(node, view);
  read->needs_axes = !view_is_whole(view);
  if (node->tensor != NULL) {
    ckpt_view native = {0};
    native.rank = ckpt_tensor_units(node->tensor, native.shape);
    memcpy(native.count, native.shape, sizeof native.count);
    if (!read->needs_axes) *view = native; /* however it was reshaped, it is all of it, in order */
    read->is_native =
        view->rank == native.rank && memcmp(view->shape, native.shape, native.rank * sizeof *native.shape) == 0;
  }
  read->cut_axis = view->order[0];
  read->n_units = 1;
  for (uint32_t axis = 0; axis < view->rank; axis++) {
    view->order[axis] = (uint8_t)axis;
    read->n_units *= view->count[axis];
  }
  read->n_bytes = read->n_units * read->unit_bytes;
}

static const void *read_identity(const ckpt_batch_read *read) {
  return read->expr->tensor != NULL ? (const void *)read->expr->tensor : read->expr->memory;
}

/* In how many axes reads that are one agree: tiles cut the first that has a length, and a hull grows over those behind
 * it. */
static uint32_t fixed_axes(const ckpt_batch_read *read) {
  uint32_t n = read->cut_axis != 0 || read->is_whole ? read->view->rank : 1;
  while (n < read->view->rank && read->view->count[n - 1] == 1) n++;
  return n;
}

static bool have_one_shape(const ckpt_batch_read *a, const ckpt_batch_read *b) {
  return a->view->rank == b->view->rank &&
         memcmp(a->view->shape, b->view->shape, a->view->rank * sizeof *a->view->shape) == 0;
}

/* Whether tiles go through all of a tensor in its order: then its shape only says where they may be cut. */
static bool is_all_in_order(const ckpt_batch_read *read) {
  return read->expr->tensor != NULL && !read->is_whole && read->cut_axis == 0 && read->n_units != 0 &&
         view_is_whole(read->view);
}

static bool has_all_rows(const ckpt_batch_read *read) {
  return !read->is_whole && read->cut_axis == 0 && read->view->start[0] == 0 &&
         read->view->count[0] == read->view->shape[0];
}

/* Whether two reads can be one: same tensor seen alike, same rows; or all of it, which one of them sees as it is
 * (its rows, and rows of heads that are put in another order) and needs no axes for. */
static bool can_be_one(const ckpt_batch_read *a, const ckpt_batch_read *b) {
  if (read_identity(a) == read_identity(b) && a->unit_bytes == b->unit_bytes && is_all_in_order(a) &&
      is_all_in_order(b) && !have_one_shape(a, b))
    return (a->is_native && !a->needs_axes) || (b->is_native && !b->needs_axes);
  if (read_identity(a) != read_identity(b) || a->is_whole != b->is_whole || a->cut_axis != b->cut_axis ||
      a->unit_bytes != b->unit_bytes || !have_one_shape(a, b))
    return false;
  const uint32_t n_fixed = fixed_axes(a);
  return memcmp(a->view->start, b->view->start, n_fixed * sizeof *a->view->start) == 0 &&
         memcmp(a->view->count, b->view->count, n_fixed * sizeof *a->view->count) == 0;
}

/* Grows the hull of `into` over the other's box; a hull that grows (read_grows) moves to *grown. */
static void read_merge(ckpt_batch_read *into, const ckpt_batch_read *other, ckpt_view *grown) {
  ckpt_view hull = *into->view;
  into->needs_axes = into->needs_axes || other->needs_axes;
  if (!have_one_shape(into, other)) { /* all of it both: what is not as it stands needs its own axes */
    if (!into->is_native) return;
    *grown = *other->view;
    into->view = grown;
    into->is_native = false;
    return;
  }
  into->n_units = 1;
  for (uint32_t axis = 0; axis < hull.rank; axis++) {
    uint64_t *start = &hull.start[axis], *count = &hull.count[axis];
    uint64_t end_a = *start + *count, end_b = other->view->start[axis] + other->view->count[axis];
    if (other->view->start[axis] < *start) *start = other->view->start[axis];
    *count = (end_a > end_b ? end_a : end_b) - *start;
    into->n_units *= *count;
  }
  into->n_bytes = into->n_units * into->unit_bytes;
  if (ckpt_view_is_same(&hull, into->view)) return;
  *grown = hull;
  into->view = grown;
}

/* Whether merging would move the hull. */
static bool read_grows(const ckpt_batch_read *into, const ckpt_batch_read *other) {
  if (!have_one_shape(into, other)) return into->is_native;
  for (uint32_t axis = 0; axis < into->view->rank; axis++)
    if (other->view->start[axis] < into->view->start[axis] ||
        other->view->start[axis] + other->view->count[axis] > into->view->start[axis] + into->view->count[axis])
      return true;
  return false;
}

/* Makes room for one more than n reads. */
static ckpt_status reserve_read(ckpt_batcher *batcher, uint32_t n, ckpt_error *err) {
  if (n == MAX_READS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %d tensors in one expression", MAX_READS);
  CKPT_TRY(ckpt_grow(&batcher->reads, n, &batcher->read_capacity, sizeof *batcher->reads, err));
  const uint32_t before = batcher->view_capacity;
  CKPT_TRY(ckpt_grow(&batcher->views, n, &batcher->view_capacity, sizeof *batcher->views, err));
  for (uint32_t i = 0; batcher->view_capacity != before && i < n; i++) batcher->reads[i].view = &batcher->views[i];
  return CKPT_OK;
}

/* Collects the distinct reads of an expression, in the order of evaluation. */
static ckpt_status collect(ckpt_batcher *batcher, const ckpt_expr *node, bool is_whole, uint32_t *n, ckpt_error *err) {
  if (node->op->rule == CKPT_RULE_READ) {
    ckpt_batch_read *reads = batcher->reads, read;
    ckpt_view view;
    read_of(&read, &view, node, is_whole);
    for (uint32_t i = 0; i < *n; i++)
      if (can_be_one(&reads[i], &read)) {
        read_merge(&reads[i], &read, &batcher->views[i]);
        return CKPT_OK;
      }
    CKPT_TRY(reserve_read(batcher, *n, err));
    batcher->views[*n] = view;
    read.view = &batcher->views[*n];
    batcher->reads[(*n)++] = read;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < node->n_args; i++)
    CKPT_TRY(collect(batcher, node->args[i], is_whole || ckpt_op_wants_whole(node->op, i), n, err));
  return CKPT_OK;
}

uint32_t ckpt_batch_find_read(const ckpt_batch *batch, const ckpt_expr *node, bool is_whole, bool *is_direct) {
  ckpt_batch_read wanted;
  ckpt_view read;
  read_of(&wanted, &read, node, is_whole);
  uint32_t number = 0;
  while (number + 1 < batch->n_reads && !can_be_one(&batch->reads[number], &wanted)) number++;
  ckpt_view view;
  ckpt_expr_view(node, &view);
  *is_direct = wanted.n_units == batch->reads[number].n_units;
  for (uint32_t axis = 0; axis < view.rank; axis++) *is_direct = *is_direct && view.order[axis] == axis;
  return number;
}

/* ---- adding pieces --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

/* Of what is read tile by tile, where anything is: reads that are kept whole join it (reads_match). */
static uint64_t hash_reads(const ckpt_batch_read *reads, uint32_t n, uint64_t level) {
  uint64_t hash = mix(level, 0);
  uint32_t n_cut = 0;
  for (uint32_t i = 0; i < n; i++) n_cut += !reads[i].is_whole;
  for (uint32_t i = 0; i < n; i++) {
    if (reads[i].is_whole && n_cut != 0) continue;
    hash = mix(hash, (uint64_t)(uintptr_t)read_identity(&reads[i]));
    if (has_all_rows(&reads[i])) continue; /* whatever its axes are: can_be_one */
    for (uint32_t axis = 0, n_fixed = fixed_axes(&reads[i]); axis < n_fixed; axis++)
      hash = mix(hash, reads[i].view->start[axis] * 3 + reads[i].view->count[axis]);
  }
  return hash;
}

int ckpt_compare_orders(const uint64_t *a, const uint64_t *b) {
  for (int i = 0; i < CKPT_N_ORDER; i++)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

/* How many prologues deep an expression is (*level, 0 at first); `after` becomes the order of the latest batch that it
 * must follow. */
static ckpt_status find_level(const ckpt_batcher *batcher, const ckpt_expr *node, uint64_t *after, uint64_t *level,
                              ckpt_error *err) {
  for (uint32_t i = 0; i < node->n_prologue; i++) {
    const ckpt_expr *reduction = node->prologue[i];
    uint32_t number = batcher->value_batches[reduction->value - 1];
    if (number == UINT32_MAX && reduction->n_elements == 0) continue; /* its value is that of nothing */
    if (number == UINT32_MAX)
      return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a reduction was added after the row that needs it");
    const ckpt_batch *batch = &batcher->plan->batches[number];
    if (*level == 0 || ckpt_compare_orders(batch->order, after) > 0) memcpy(after, batch->order, sizeof batch->order);
    if (batch->order[LEVEL] + 1 > *level) *level = batch->order[LEVEL] + 1;
  }
  for (uint32_t i = 0; i < node->n_args; i++) CKPT_TRY(find_level(batcher, node->args[i], after, level, err));
  return CKPT_OK;
}

static void source_order(const ckpt_batch_read *read, uint64_t *order) {
  const ckpt_tensor *tensor = read->expr->tensor;
  order[0] = 1;
  if (tensor == NULL || tensor->n_extents == 0) return;
  order[1] = tensor->extents[0].file;
  order[2] = tensor->extents[0].offset + read->view->start[0];
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

/* Finds the batch's read that can serve this one too; n_reads: none can. */
static uint32_t find_read(const ckpt_batch_read *reads, uint32_t n, const ckpt_batch_read *wanted) {
  uint32_t i = 0;
  while (i < n && !can_be_one(&reads[i], wanted)) i++;
  return i;
}

/* Whether the reads of one piece are another's: the same ones tile by tile, and of those that are kept whole
 * one has all that the other has, so that reading for both holds no more than reading for that one. */
static bool reads_match(const ckpt_batch_read *more, uint32_t n_more, const ckpt_batch_read *less, uint32_t n_less) {
  uint32_t n_found = 0, n_cut = 0;
  for (uint32_t i = 0; i < n_less; i++) {
    if (find_read(more, n_more, &less[i]) == n_more) return false;
    n_found += !less[i].is_whole;
  }
  for (uint32_t i = 0; i < n_more; i++) n_cut += !more[i].is_whole;
  return n_found == n_cut && (n_cut != 0 || n_more == n_less);
}

/* Values are computed outside lanes, so that whoever needs one can be ordered behind it. */
static bool batch_takes(const ckpt_batch *batch, const ckpt_batch_read *reads, uint32_t n, uint64_t level,
                        const uint64_t *after, uint32_t lane, bool is_value) {
  if (batch->order[LEVEL] != level || (lane != 0 && batch->lane != 0)) return false;
  if (level != 0 && ckpt_compare_orders(after, batch->order) > 0) return false; /* runs before a value is there */
  if ((lane != 0 && batch->has_value) || (is_value && batch->lane != 0)) return false;
  return n > batch->n_reads ? reads_match(reads, n, batch->reads, batch->n_reads)
                            : reads_match(batch->reads, batch->n_reads, reads, n);
}

/* Points *view at an equal one in the plan's memory: tensors of one shape, one after the other, share it. */
static ckpt_status share_view(ckpt_batcher *batcher, const ckpt_view **view, ckpt_error *err) {
  const size_t n_recent = sizeof batcher->recent / sizeof *batcher->recent;
  for (size_t i = 0; i < n_recent; i++)
    if (batcher->recent[i] != NULL && ckpt_view_is_same(batcher->recent[i], *view)) {
      *view = batcher->recent[i];
      return CKPT_OK;
    }
  ckpt_view *copy = ckpt_arena_alloc(&batcher->plan->work, sizeof *copy);
  CKPT_TRY_ALLOC(copy, err);
  *copy = **view;
  *view = batcher->recent[batcher->n_shared++ % n_recent] = copy;
  return CKPT_OK;
}

/* Adds a read to the batch, which has room for it. */
static ckpt_status add_read(ckpt_batcher *batcher, ckpt_batch *batch, const ckpt_batch_read *read, ckpt_error *err) {
  const ckpt_tensor *tensor = read->expr->tensor;
  ckpt_batch_read *added = &batch->reads[batch->n_reads++];
  *added = *read;
  for (uint32_t k = 0; tensor != NULL && k < tensor->n_extents && !batch->in_order; k++)
    batch->in_order = ckpt_extent_is_sequential(&tensor->extents[k]);
  return share_view(batcher, &added->view, err);
}

/* Adds a piece's reads to the batch's, which they match: hulls grow, and reads that it lacks follow. */
static ckpt_status add_reads(ckpt_batcher *batcher, ckpt_batch *batch, const ckpt_batch_read *reads, uint32_t n,
                             ckpt_error *err) {
  ckpt_arena *arena = &batcher->plan->work;
  if (n > batch->n_reads) {
    ckpt_batch_read *more = ckpt_arena_array(arena, n, sizeof *more);
    CKPT_TRY_ALLOC(more, err);
    if (batch->n_reads != 0) memcpy(more, batch->reads, batch->n_reads * sizeof *more);
    batch->reads = more;
  }
  const uint32_t n_before = batch->n_reads;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t at = find_read(batch->reads, n_before, &reads[i]);
    if (at == n_before) {
      CKPT_TRY(add_read(batcher, batch, &reads[i], err));
    } else {
      ckpt_view *grown = NULL;
      if (read_grows(&batch->reads[at], &reads[i])) CKPT_TRY_ALLOC(grown = ckpt_arena_alloc(arena, sizeof *grown), err);
      read_merge(&batch->reads[at], &reads[i], grown);
    }
  }
  return CKPT_OK;
}

static ckpt_status new_batch(ckpt_batcher *batcher, const ckpt_batch_read *reads, uint32_t n, const uint64_t *after,
                             uint64_t level, ckpt_error *err) {
  ckpt_plan *plan = batcher->plan;
  CKPT_TRY(ckpt_grow(&plan->batches, plan->n_batches, &plan->batch_capacity, sizeof *plan->batches, err));
  ckpt_batch batch = {.first_piece = UINT32_MAX, .waits = level != 0};
  if (level != 0)
    memcpy(batch.order, after, sizeof batch.order);
  else if (n != 0)
    source_order(&reads[0], batch.order);
  batch.order[LEVEL] = level;
  plan->batches[plan->n_batches++] = batch;
  return CKPT_OK;
}

ckpt_status ckpt_batcher_add(ckpt_batcher *batcher, ckpt_piece piece, ckpt_error *err) {
  ckpt_plan *plan = batcher->plan;
  uint32_t n = 0;
  CKPT_TRY(ckpt_expr_as_stored(&piece.expr, &plan->work, err));
  CKPT_TRY(collect(batcher, piece.expr, false, &n, err));
  const ckpt_batch_read *reads = batcher->reads;
  uint64_t after[CKPT_N_ORDER] = {0}, level = 0;
  CKPT_TRY(find_level(batcher, piece.expr, after, &level, err));
  bool is_value = plan->rows[piece.row].sink == CKPT_VALUE_SINK;
  const uint64_t hash = hash_reads(reads, n, level);
  uint32_t at = (uint32_t)hash & (batcher->n_table - 1), number = UINT32_MAX;
  for (; batcher->table[at] != 0; at = (at + 1) & (batcher->n_table - 1))
    if (batcher->hashes[batcher->table[at] - 1] == hash &&
        batch_takes(&plan->batches[batcher->table[at] - 1], reads, n, level, after, batcher->lane, is_value)) {
      number = batcher->table[at] - 1;
      break;
    }
  if (number == UINT32_MAX) {
    number = plan->n_batches;
    CKPT_TRY(new_batch(batcher, reads, n, after, level, err));
    CKPT_TRY(insert(batcher, hash, number, err));
  }
  ckpt_batch *batch = &plan->batches[number];
  if (is_value) batcher->value_batches[plan->rows[piece.row].value] = number;
  batch->has_value = batch->has_value || is_value;
  CKPT_TRY(add_reads(batcher, batch, reads, n, err));
  CKPT_TRY(ckpt_share_expr(plan, batch, &piece, err));
  if (batcher->lane != 0) {
    batch->lane = batcher->lane;
    batch->in_order = true;
    batch->order[0] = 0, batch->order[1] = batcher->lane, batch->order[2] = batcher->segment;
    batch->order[3] = piece.begin;
  }
  CKPT_TRY(ckpt_grow(&plan->pieces, plan->n_pieces, &plan->piece_capacity, sizeof *plan->pieces, err));
  plan->pieces[plan->n_pieces] = piece;
  if (batch->first_piece == UINT32_MAX)
    batch->first_piece = plan->n_pieces;
  else
    plan->pieces[batch->last_piece].next = plan->n_pieces;
  batch->last_piece = plan->n_pieces++;
  batch->n_pieces++;
  return CKPT_OK;
}
