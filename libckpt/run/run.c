/* run.c - the one loop that moves tensor bytes.
 *
 * Workers claim tiles in batch order; each reads, evaluates, digests and writes its tile, so that one worker's I/O
 * overlaps another's computation. A batch with a sequential decoder or encoder is claimed as a whole (all batches of
 * one encoded file together); a batch that needs the whole workspace, or values of earlier ones, waits until it is
 * alone. Then footers are printed, overflowing casts refused, digests completed, and everything is committed, or
 * nothing is. */
#include "libckpt/run/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/float_env.h"
#include "libckpt/base/group.h"
#include "libckpt/base/options.h"
#include "libckpt/plan/records.h"
#include "libckpt/run/encode.h"
#include "libckpt/run/eval.h"
#include "libckpt/run/output.h"
#include "libckpt/run/rowdigest.h"
#include "libckpt/run/trace.h"

typedef struct worker worker;

typedef struct run {
  ckpt_plan *plan;
  const ckpt_run_options *options;
  const ckpt_backend *backend;
  const ckpt_group *group;
  const ckpt_allocator *allocator; /* of the workspace; NULL: malloc */
  ckpt_row_digests digests;
  ckpt_record_checks *checks; /* of records that are read; NULL: none has a checksum */
  ckpt_trace *trace;          /* NULL: none */
  uint8_t *workspace;         /* n_workers shares */
  uint8_t *window;            /* for literals, side files and footers */
  worker *workers;
  uint32_t n_nodes, n_reads, n_kept;
  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t changed;
  uint64_t *n_reduced; /* of each value: elements whose partials are in it */
  uint32_t next_batch;
  uint64_t next_tile;
  uint32_t n_active; /* claims under way */
  bool is_exclusive; /* one of them has the whole workspace */
  uint64_t n_bytes_done;
  ckpt_status status; /* the first failure ends the run */
  ckpt_error error;
} run;

struct worker {
  run *r;
  ckpt_tile tile;
  ckpt_leaf_queue queue; /* of whole leaves of the tile's results */
  ckpt_lane *lane;
  pthread_t thread;
  bool is_started;
};

typedef struct claim {
  uint32_t batch, n_batches; /* more than one only for a lane */
  uint64_t tile, n_tiles;    /* of the first batch; the others are claimed whole */
  bool is_exclusive;
} claim;

static ckpt_status check_cancel(const run *r, ckpt_error *err) {
  return ckpt_check_cancel(r->options, "cancelled; nothing was written", err);
}

static void fail(run *r, ckpt_status status, const ckpt_error *error) {
  pthread_mutex_lock(&r->mutex);
  if (r->status == CKPT_OK) {
    r->status = status;
    r->error = *error;
  }
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->mutex);
}

/* ---- claiming ------------------------------------------------------------------------------------------------ */

/* The next piece of work, in order; false when it must wait, or when there is none left. Holds the mutex. */
static bool try_claim(run *r, claim *out, bool *must_wait) {
  const ckpt_plan *plan = r->plan;
  *must_wait = false;
  if (r->status != CKPT_OK || r->next_batch == plan->n_batches) return false;
  const ckpt_batch *batch = &plan->batches[r->next_batch];
  *out = (claim){
      .batch = r->next_batch, .n_batches = 1, .tile = r->next_tile, .n_tiles = 1, .is_exclusive = batch->exclusive};
  if (batch->in_order) out->n_tiles = batch->n_tiles;
  for (uint32_t b = out->batch + 1; batch->lane != 0 && b < plan->n_batches && plan->batches[b].lane == batch->lane;
       b++) {
    out->n_batches++;
    out->is_exclusive = out->is_exclusive || plan->batches[b].exclusive;
  }
  bool waits = batch->waits && r->next_tile == 0;
  *must_wait = r->is_exclusive || (r->n_active != 0 && (waits || out->is_exclusive));
  if (*must_wait) return false;
  r->next_tile += out->n_tiles;
  if (r->next_tile >= batch->n_tiles) {
    r->next_batch += out->n_batches;
    r->next_tile = 0;
  }
  r->is_exclusive = out->is_exclusive;
  r->n_active++;
  return true;
}

static bool next_claim(run *r, claim *out) {
  pthread_mutex_lock(&r->mutex);
  bool must_wait, is_claimed;
  while (!(is_claimed = try_claim(r, out, &must_wait)) && must_wait) pthread_cond_wait(&r->changed, &r->mutex);
  pthread_mutex_unlock(&r->mutex);
  return is_claimed;
}

static void finish_claim(run *r) {
  pthread_mutex_lock(&r->mutex);
  r->n_active--;
  r->is_exclusive = false;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->mutex);
}

/* ---- one tile --------------------------------------------------------------------------------------------------- */

/* Folds a tile's partials into their reduction's value once those of the tiles before are in it: each of these is under
 * way, with a worker that waits for none after it. No partial outlives its tile. */
static ckpt_status reduce(worker *w, const ckpt_piece *piece, const uint8_t *partials) {
  run *r = w->r;
  const ckpt_row *row = &r->plan->rows[piece->row];
  const ckpt_op *op = row->expr->op;
  uint64_t per_row = piece->n_elements / w->tile.batch->n_rows, n = per_row * w->tile.n_rows;
  uint64_t *n_reduced = &r->n_reduced[row->value];
  pthread_mutex_lock(&r->mutex);
  while (*n_reduced != per_row * w->tile.first_row && r->status == CKPT_OK) pthread_cond_wait(&r->changed, &r->mutex);
  ckpt_status status = r->status;
  for (uint64_t i = 0; i < ckpt_n_partials(n) && status == CKPT_OK; i++)
    op->combine(r->plan->values[row->value], partials + i * op->value_bytes);
  *n_reduced += n;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->mutex);
  return status;
}

static void finish_bytes(run *r, uint64_t n_read) {
  pthread_mutex_lock(&r->mutex);
  r->n_bytes_done += n_read;
  if (r->options != NULL && r->options->progress != NULL)
    r->options->progress(r->options->progress_arg, r->n_bytes_done, r->plan->n_bytes_read);
  pthread_mutex_unlock(&r->mutex);
}

/* Writes units [begin, begin + n) of a piece's row, or of its segment, to the output. */
static ckpt_status put(worker *w, const ckpt_piece *piece, ckpt_output *output, uint64_t begin, uint64_t n_units,
                       const void *bytes, size_t n_bytes, ckpt_error *err) {
  const ckpt_tensor *tensor = w->r->plan->rows[piece->row].tensor;
  uint32_t file = piece->segment != NULL ? piece->file : tensor->extents[0].file;
  bool is_in_one_file = piece->segment != NULL || tensor->n_extents == 1;
  if (w->r->plan->rows[piece->row].is_shared) return CKPT_OK;
  if (is_in_one_file && output->layout.files[file].is_cloned) return CKPT_OK;
  if (w->lane != NULL && ckpt_lane_holds(w->lane, output, file))
    return ckpt_lane_take(w->lane, piece->segment, bytes, n_bytes, err);
  ckpt_mover mover = {.sink = output->sink, .layout = &output->layout, .window = w->tile.window};
  if (piece->segment != NULL)
    return ckpt_place_segment(&mover, file, piece->segment, begin * (n_bytes / n_units), bytes, n_bytes, err);
  uint64_t units[CKPT_MAX_RANK], start[CKPT_MAX_RANK] = {0};
  ckpt_tensor_units(tensor, units);
  return ckpt_place(&mover, tensor, start, units, begin, n_units, (void *)bytes, err);
}

/* Writes a block: a run of columns for each of its rows. */
static ckpt_status put_block(worker *w, const ckpt_piece *piece, ckpt_output *output, const uint8_t *bytes,
                             ckpt_error *err) {
  const ckpt_block *block = w->tile.batch->block;
  const ckpt_block_part *part = &w->tile.part;
  const ckpt_dtype_row *dtype = ckpt_dtype_get(piece->expr->dtype);
  uint64_t per_cell = piece->n_elements / w->tile.batch->n_rows / block->n_between / dtype->block_elements;
  uint64_t first = piece->begin / dtype->block_elements, n_units = part->n_cols * per_cell;
  for (uint64_t r = 0; r < part->n_rows * block->n_between; r++, bytes += n_units * dtype->block_bytes) {
    uint64_t row = (part->outer * block->n_rows + part->first_row) * block->n_between + r;
    uint64_t begin = first + (row * block->n_cols + part->first_col) * per_cell;
    CKPT_TRY(put(w, piece, output, begin, n_units, bytes, (size_t)(n_units * dtype->block_bytes), err));
  }
  return CKPT_OK;
}

/* Writes and digests a piece's result for the tile. */
static ckpt_status deliver(worker *w, const ckpt_piece *piece, const void *bytes, uint64_t *n_written,
                           ckpt_error *err) {
  ckpt_plan *plan = w->r->plan;
  const ckpt_row *row = &plan->rows[piece->row];
  const ckpt_batch *batch = w->tile.batch;
  const ckpt_dtype_row *dtype = ckpt_dtype_get(piece->expr->dtype);
  uint64_t per_row = piece->n_elements / batch->n_rows;
  uint64_t n_units = per_row * w->tile.n_rows / dtype->block_elements, n_bytes = n_units * dtype->block_bytes;
  if (row->sink < plan->n_outputs) *n_written += n_bytes;
  if (batch->block != NULL) return put_block(w, piece, &plan->outputs[row->sink], bytes, err);
  uint64_t begin = (piece->begin + per_row * w->tile.first_row) / dtype->block_elements;
  bool is_boxed = piece->segment != NULL && piece->segment->box != NULL;
  if (row->wants_digest && row->same_as == CKPT_NO_ROW && plan->wants_digests && !is_boxed)
    CKPT_TRY(
        ckpt_row_digests_take(&w->r->digests, &w->queue, piece->row, begin * dtype->block_bytes, bytes, n_bytes, err));
  if (row->sink >= plan->n_outputs) return CKPT_OK;
  return put(w, piece, &plan->outputs[row->sink], begin, n_units, bytes, (size_t)n_bytes, err);
}

static void merge_stats(run *r, ckpt_row *row, const ckpt_value_stats *stats) {
  const ckpt_cast_stats *cast = &stats->cast;
  const bool is_cast =
      row->stats != NULL && (cast->n_overflow + cast->n_nan_lost + cast->n_underflow != 0 || cast->has_nonzero);
  const bool is_updated = row->update != NULL && stats->update.n != 0;
  if (!is_cast && !is_updated) return;
  pthread_mutex_lock(&r->mutex);
  if (is_cast) ckpt_cast_stats_add(row->stats, cast);
  if (is_updated) ckpt_update_stats_add(row->update, &stats->update);
  pthread_mutex_unlock(&r->mutex);
}

static ckpt_status run_tile(worker *w, uint32_t number, uint64_t tile_number, ckpt_error *err) {
  run *r = w->r;
  const ckpt_batch *batch = &r->plan->batches[number];
  uint64_t n_done = 0, n_written = 0, n_used = 0, started = ckpt_trace_now();
  CKPT_TRY(ckpt_tile_read(&w->tile, batch, tile_number, err));
  for (uint32_t i = 0; i < batch->n_reads; i++) /* as planned: a whole one once, whoever makes it again */
    if (!batch->reads[i].is_whole)
      n_done += batch->reads[i].n_bytes / batch->n_rows * w->tile.n_rows;
    else if (tile_number == 0)
      n_done += batch->reads[i].n_bytes;
  for (uint32_t p = batch->first_piece; p != UINT32_MAX; p = r->plan->pieces[p].next) {
    const ckpt_piece *piece = &r->plan->pieces[p];
    ckpt_row *row = &r->plan->rows[piece->row];
    const void *bytes;
    ckpt_status status = CKPT_OK;
    if (!ckpt_tile_has(&w->tile, p)) status = ckpt_row_digests_flush(&r->digests, &w->queue, err);
    if (status == CKPT_OK) status = ckpt_tile_eval(&w->tile, p, &bytes, err);
    if (status == CKPT_OK && row->sink == CKPT_VALUE_SINK)
      status = reduce(w, piece, bytes);
    else if (status == CKPT_OK)
      status = deliver(w, piece, bytes, &n_written, err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, NULL, row->name);
    merge_stats(r, row, &w->tile.stats);
    if (w->tile.n_used > n_used) n_used = w->tile.n_used;
  }
  CKPT_TRY(ckpt_row_digests_flush(&r->digests, &w->queue, err));
  if (r->trace != NULL)
    ckpt_trace_tile(r->trace, number, w->tile.n_bytes_read, n_written, n_used, ckpt_trace_now() - started);
  finish_bytes(r, n_done);
  return CKPT_OK;
}

static ckpt_status run_claim(worker *w, const claim *c, ckpt_error *err) {
  run *r = w->r;
  const ckpt_plan *plan = r->plan;
  w->tile.workspace = r->workspace + (c->is_exclusive ? 0 : plan->share_bytes * (uint64_t)(w - r->workers));
  w->tile.n_workspace = c->is_exclusive ? plan->workspace_bytes : plan->share_bytes;
  for (uint32_t i = 0; c->is_exclusive && i < plan->n_workers; i++)
    if (&r->workers[i] != w) r->workers[i].tile.kept_in = NULL; /* their shares are overwritten */
  if (plan->batches[c->batch].lane != 0) CKPT_TRY(ckpt_lane_of(&w->lane, r->plan, plan->batches[c->batch].lane, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t b = c->batch; b < c->batch + c->n_batches && status == CKPT_OK; b++) {
    uint64_t end = plan->batches[b].in_order ? plan->batches[b].n_tiles : c->tile + c->n_tiles;
    for (uint64_t t = c->tile; t < end && status == CKPT_OK; t++) {
      status = check_cancel(r, err);
      if (status == CKPT_OK) status = run_tile(w, b, t, err);
    }
  }
  if (w->lane != NULL && status == CKPT_OK) status = ckpt_lane_finish(w->lane, err);
  ckpt_lane_free(w->lane);
  w->lane = NULL;
  ckpt_reader_reset(&w->tile.reader);
  return status;
}

static void *work(void *arg) {
  worker *w = arg;
  claim c;
  while (next_claim(w->r, &c)) {
    ckpt_error error = {0};
    ckpt_status status = run_claim(w, &c, &error);
    if (status != CKPT_OK) fail(w->r, status, &error);
    finish_claim(w->r);
  }
  return NULL;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static ckpt_status worker_init(worker *w, run *r, ckpt_error *err) {
  w->r = r;
  w->tile = (ckpt_tile){
      .plan = r->plan, .backend = r->backend, .reader = {.max_bytes = r->plan->cursor_bytes, .checks = r->checks}};
  w->tile.reads = calloc(r->n_reads, sizeof *w->tile.reads);
  w->tile.kept = calloc(r->n_kept, sizeof *w->tile.kept);
  w->tile.pointers = calloc(r->n_nodes, sizeof *w->tile.pointers);
  w->tile.counts = calloc(r->n_nodes, sizeof *w->tile.counts);
  w->tile.window = malloc(CKPT_WINDOW_BYTES);
  CKPT_TRY(ckpt_hasher_new(&w->queue.hasher, err));
  bool failed = w->tile.reads == NULL || w->tile.kept == NULL || w->tile.pointers == NULL || w->tile.counts == NULL ||
                w->tile.window == NULL;
  return failed ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

static void worker_free(worker *w) {
  free(w->tile.reads);
  free(w->tile.kept);
  free(w->tile.pointers);
  free(w->tile.counts);
  free(w->tile.window);
  ckpt_hasher_free(w->queue.hasher);
}

static ckpt_status run_tiles(run *r, ckpt_error *err) {
  uint32_t n_workers = r->plan->n_workers;
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < n_workers && status == CKPT_OK; i++) status = worker_init(&r->workers[i], r, err);
  for (uint32_t i = 1; i < n_workers && status == CKPT_OK; i++) /* fewer threads than planned only cost time */
    r->workers[i].is_started = pthread_create(&r->workers[i].thread, NULL, work, &r->workers[i]) == 0;
  if (status == CKPT_OK) work(&r->workers[0]);
  for (uint32_t i = 1; i < n_workers; i++)
    if (r->workers[i].is_started) pthread_join(r->workers[i].thread, NULL);
  if (status != CKPT_OK) return status;
  if (r->status != CKPT_OK) return ckpt_fail_as(err, r->status, r->error.file, r->error.tensor, &r->error);
  return check_cancel(r, err);
}

/* Files behind an encoder of which no tensor has elements: no worker came by. */
static ckpt_status write_empty_lanes(const ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    const ckpt_layout_file *file = &output->layout.files[f];
    uint64_t n_raw = 0;
    for (uint32_t s = 0; s < file->n_segments; s++)
      if (file->segments[s].kind == CKPT_SEGMENT_TENSOR) n_raw += file->segments[s].n_raw;
    if (!file->has_encoder || n_raw != 0 || !ckpt_plan_writes(plan, file)) continue;
    ckpt_lane *lane;
    CKPT_TRY(ckpt_lane_new(&lane, output, f, err));
    ckpt_status status = ckpt_lane_finish(lane, err);
    ckpt_lane_free(lane);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static ckpt_status run_init(run *r, ckpt_error *err) {
  ckpt_plan *plan = r->plan;
  pthread_mutex_init(&r->mutex, NULL);
  pthread_cond_init(&r->changed, NULL);
  ckpt_tile_needs(plan, &r->n_nodes, &r->n_reads, &r->n_kept);
  CKPT_TRY(ckpt_row_digests_start(&r->digests, plan, r->backend, err));
  CKPT_TRY(ckpt_plan_record_checks(&r->checks, plan, err));
  r->workers = calloc(plan->n_workers, sizeof *r->workers);
  r->n_reduced = calloc((size_t)plan->n_values + 1, sizeof *r->n_reduced);
  r->window = malloc(CKPT_WINDOW_BYTES);
  r->allocator = r->options != NULL ? r->options->allocator : NULL;
  r->workspace = r->allocator != NULL ? r->allocator->allocate(r->allocator->ctx, (size_t)plan->workspace_bytes)
                                      : aligned_alloc(64, (size_t)plan->workspace_bytes);
  if (r->workers == NULL || r->n_reduced == NULL || r->window == NULL || r->workspace == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    if (plan->rows[i].stats != NULL) *plan->rows[i].stats = (ckpt_cast_stats){0};
    plan->rows[i].is_shared = false;
    if (plan->rows[i].update != NULL) *plan->rows[i].update = (ckpt_update_stats){0};
  }
  for (uint32_t i = 0; i < plan->n_rows; i++)
    if (plan->rows[i].sink == CKPT_VALUE_SINK)
      memset(plan->values[plan->rows[i].value], 0, plan->rows[i].expr->op->value_bytes);
  if (r->options != NULL && r->options->trace != NULL)
    CKPT_TRY(ckpt_trace_open(&r->trace, r->options->trace, plan, err));
  return CKPT_OK;
}

static void run_free(run *r) {
  for (uint32_t i = 0; r->workers != NULL && i < r->plan->n_workers; i++) worker_free(&r->workers[i]);
  ckpt_row_digests_end(&r->digests);
  ckpt_record_checks_free(r->checks);
  free(r->workers);
  free(r->n_reduced);
  free(r->window);
  if (r->allocator == NULL)
    free(r->workspace);
  else if (r->workspace != NULL)
    r->allocator->release(r->allocator->ctx, r->workspace, (size_t)r->plan->workspace_bytes);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->mutex);
}

/* ---- the phases: all ranks go through them together, and end with the same status -------------------------------- */

static ckpt_status open_phase(run *r, ckpt_error *err) { return ckpt_outputs_open(r->plan, r->group, err); }

/* Nothing that was read may have changed since it was opened, or since it was written. */
static ckpt_status check_sources(const run *r, ckpt_error *err) {
  const ckpt_plan *plan = r->plan;
  if (r->checks != NULL) CKPT_TRY(ckpt_record_checks_end(r->checks, r->window, CKPT_WINDOW_BYTES, err));
  if (r->checks != NULL && plan->parts != NULL) CKPT_TRY(ckpt_record_parts_add(plan->parts, r->checks, err));
  for (uint32_t i = 0; i < plan->n_inputs; i++) CKPT_TRY(ckpt_source_unchanged(plan->inputs[i].index->source, err));
  return ckpt_plan_tell_damage(plan, r->checks, err);
}

static ckpt_status finish_side_bytes(void *arg, uint64_t n_bytes, ckpt_error *err) {
  run *r = arg;
  finish_bytes(r, n_bytes);
  return check_cancel(r, err);
}

static ckpt_status tiles_phase(run *r, ckpt_error *err) {
  CKPT_TRY(ckpt_outputs_begin(r->plan, r->window, finish_side_bytes, r, err));
  CKPT_TRY(run_tiles(r, err));
  CKPT_TRY(check_sources(r, err));
  for (uint32_t i = 0; i < r->plan->n_outputs; i++) CKPT_TRY(write_empty_lanes(r->plan, &r->plan->outputs[i], err));
  return CKPT_OK;
}

static ckpt_status settle_phase(run *r, ckpt_error *err) { return ckpt_outputs_settle(r->plan, r->group, err); }

/* Digests may be read back from what other ranks wrote: it is synced before. */
static ckpt_status end_phase(run *r, ckpt_error *err) {
  CKPT_TRY(ckpt_outputs_end(r->plan, r->window, err));
  for (uint32_t i = 0; i < r->plan->n_outputs && r->group->size > 1; i++)
    CKPT_TRY(ckpt_sink_seal(r->plan->outputs[i].sink, err));
  return CKPT_OK;
}

/* Evaluates one piece on all its tiles once more, for the digest of its row. */
static ckpt_status recompute_piece(run *r, uint32_t number, const ckpt_piece *piece, ckpt_error *err) {
  worker *w = &r->workers[0];
  const ckpt_batch *batch = &r->plan->batches[number];
  w->tile.workspace = r->workspace;
  w->tile.n_workspace = r->plan->workspace_bytes;
  w->tile.kept_in = NULL;
  ckpt_status status = CKPT_OK;
  for (uint64_t t = 0; t < batch->n_tiles && status == CKPT_OK; t++) {
    uint64_t n_written = 0;
    const void *bytes;
    status = check_cancel(r, err);
    if (status == CKPT_OK) status = ckpt_tile_read(&w->tile, batch, t, err);
    if (status == CKPT_OK) status = ckpt_tile_eval(&w->tile, (uint32_t)(piece - r->plan->pieces), &bytes, err);
    if (status == CKPT_OK) status = deliver(w, piece, bytes, &n_written, err);
    if (status == CKPT_OK) status = ckpt_row_digests_flush(&r->digests, &w->queue, err);
  }
  ckpt_reader_reset(&w->tile.reader);
  return status;
}

typedef struct again {
  const ckpt_piece *piece;
  uint32_t batch;
} again;

static int compare_again(const void *a, const void *b) {
  const ckpt_piece *x = ((const again *)a)->piece, *y = ((const again *)b)->piece;
  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Rows that are written nowhere, and whose pieces came in such an order that leaves of their digests found no slot, are
 * computed once more, piece after piece. */
static ckpt_status recompute_rows(run *r, ckpt_error *err) {
  const ckpt_plan *plan = r->plan;
  bool *is_again = calloc((size_t)plan->n_rows + 1, sizeof *is_again);
  CKPT_TRY_ALLOC(is_again, err);
  uint32_t n_rows = 0, n = 0;
  for (uint32_t i = 0; i < plan->n_rows; i++) n_rows += is_again[i] = ckpt_row_digests_restart(&r->digests, i);
  for (uint32_t p = 0; p < plan->n_pieces; p++) n += is_again[plan->pieces[p].row];
  again *pieces = n_rows == 0 ? NULL : calloc(n, sizeof *pieces);
  ckpt_status status =
      n_rows != 0 && pieces == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  n = 0;
  for (uint32_t b = 0; b < plan->n_batches && pieces != NULL; b++)
    for (uint32_t p = plan->batches[b].first_piece; p != UINT32_MAX; p = plan->pieces[p].next)
      if (is_again[plan->pieces[p].row]) pieces[n++] = (again){&plan->pieces[p], b};
  if (n != 0) qsort(pieces, n, sizeof *pieces, compare_again);
  for (uint32_t i = 0; i < n && status == CKPT_OK; i++)
    status = ckpt_fail_at(recompute_piece(r, pieces[i].batch, pieces[i].piece, err), err, NULL,
                          plan->rows[pieces[i].piece->row].name);
  free(pieces);
  free(is_again);
  return status;
}

static ckpt_status rows_phase(run *r, ckpt_error *err) {
  if (!r->plan->wants_digests) return CKPT_OK;
  CKPT_TRY(recompute_rows(r, err));
  return ckpt_row_digests_finish(&r->digests, r->workers[0].queue.hasher, r->window, CKPT_WINDOW_BYTES, err);
}

static ckpt_status digest_phase(run *r, ckpt_error *err) { return ckpt_outputs_digest(r->plan, r->group, err); }

ckpt_status ckpt_plan_run_on(ckpt_plan *plan, const ckpt_run_options *options, bool keeps_staged, ckpt_error *err) {
  CKPT_DEFAULT_FLOAT_ENV();
  static ckpt_status (*const phases[])(run *, ckpt_error *) = {open_phase, tiles_phase, settle_phase,
                                                               end_phase,  rows_phase,  digest_phase};
  ckpt_error own = {0};
  if (err == NULL) err = &own; /* other ranks want to know */
  const ckpt_group *group = ckpt_group_of(options);
  run r = {.plan = plan, .options = options, .backend = &ckpt_backend_cpu, .group = group};
  if (options != NULL && options->backend != NULL) r.backend = options->backend;
  ckpt_status status = ckpt_plan_prepare(plan, options, err);
  if (status == CKPT_OK && plan->has_run)
    status =
        ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "this plan has run, and its outputs are written once (make another)");
  status = ckpt_group_agree(group, status, err);
  if (status != CKPT_OK) return status;
  plan->has_run = plan->n_outputs != 0;
  status = ckpt_group_agree(group, run_init(&r, err), err);
  for (size_t i = 0; i < sizeof phases / sizeof *phases && status == CKPT_OK; i++)
    status = ckpt_group_agree(group, phases[i](&r, err), err);
  ckpt_status traced = ckpt_trace_close(r.trace, status == CKPT_OK, status == CKPT_OK ? err : NULL);
  run_free(&r);
  if (status == CKPT_OK) status = ckpt_group_agree(group, traced, err);
  if (status == CKPT_OK) status = ckpt_group_agree(group, ckpt_outputs_commit(plan, keeps_staged, err), err);
  for (uint32_t i = 0; i < plan->n_outputs && status != CKPT_OK; i++) ckpt_sink_abandon(plan->outputs[i].sink);
  return status;
}

ckpt_status ckpt_plan_run(ckpt_plan *plan, const ckpt_run_options *options, ckpt_error *err) {
  ckpt_run_options known;
  CKPT_TRY(ckpt_options_take(&known, sizeof known, options, err));
  return ckpt_plan_run_on(plan, &known, false, err);
}
