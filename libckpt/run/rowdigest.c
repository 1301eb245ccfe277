/* rowdigest.c - see rowdigest.h. The mutex guards states and slots; hashing happens outside it. */
#include "libckpt/run/rowdigest.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/extents/place.h"

_Static_assert(sizeof(ckpt_row_state) == CKPT_ROW_STATE_BYTES, "plans count it");

ckpt_status ckpt_row_digests_start(ckpt_row_digests *digests, ckpt_plan *plan, const ckpt_backend *backend,
                                   ckpt_error *err) {
  *digests = (ckpt_row_digests){.plan = plan, .backend = backend, .n_slots = plan->n_leaf_slots};
  pthread_mutex_init(&digests->mutex, NULL);
  digests->rows = calloc(plan->n_rows + 1, sizeof *digests->rows);
  digests->slots = calloc(digests->n_slots + 1, sizeof *digests->slots);
  if (digests->rows == NULL || digests->slots == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    digests->rows[i].n_left = plan->rows[i].expr->n_bytes;
    digests->rows[i].reads_back = ckpt_row_is_boxed(plan, &plan->rows[i]);
  }
  for (uint32_t b = 0; b < plan->n_batches; b++)
    for (uint32_t p = plan->batches[b].block == NULL ? UINT32_MAX : plan->batches[b].first_piece; p != UINT32_MAX;
         p = plan->pieces[p].next)
      digests->rows[plan->pieces[p].row].reads_back = true;
  return CKPT_OK;
}

static void free_slot_bytes(ckpt_row_digests *digests) {
  for (uint32_t i = 0; digests->slots != NULL && i < digests->n_slots; i++) {
    free(digests->slots[i].bytes);
    digests->slots[i].bytes = NULL;
  }
}

void ckpt_row_digests_end(ckpt_row_digests *digests) {
  free_slot_bytes(digests);
  for (uint32_t i = 0; digests->rows != NULL && i < digests->plan->n_rows; i++) free(digests->rows[i].leaves);
  free(digests->rows);
  free(digests->slots);
  pthread_mutex_destroy(&digests->mutex);
}

/* Bytes of one of the row's leaves. */
static uint64_t leaf_bytes(const ckpt_row *row, uint64_t leaf) {
  uint64_t rest = row->expr->n_bytes - leaf * CKPT_LEAF_BYTES;
  return rest < CKPT_LEAF_BYTES ? rest : CKPT_LEAF_BYTES;
}

/* The slot of a leaf, taken if need be; NULL when none is free. Holds the mutex. */
static ckpt_leaf_slot *find_slot(ckpt_row_digests *digests, uint32_t row, uint64_t leaf) {
  ckpt_leaf_slot *empty = NULL;
  for (uint32_t i = 0; i < digests->n_slots; i++) {
    ckpt_leaf_slot *slot = &digests->slots[i];
    if (slot->n_filled != 0 && slot->row == row && slot->leaf == leaf) return slot;
    if (slot->n_filled == 0 && empty == NULL) empty = slot;
  }
  if (empty != NULL) empty->row = row, empty->leaf = leaf;
  return empty;
}

/* Counts bytes of hashed leaves and, with the last of them, makes the row's digest. */
static ckpt_status arrive(ckpt_row_digests *digests, ckpt_hasher *hasher, uint32_t number, uint64_t n_bytes,
                          ckpt_error *err) {
  ckpt_row *row = &digests->plan->rows[number];
  ckpt_row_state *state = &digests->rows[number];
  pthread_mutex_lock(&digests->mutex);
  state->n_left -= n_bytes;
  bool is_last = state->n_left == 0 && !state->reads_back;
  pthread_mutex_unlock(&digests->mutex);
  if (!is_last) return CKPT_OK;
  CKPT_TRY(ckpt_digest_tensor(hasher, (ckpt_dtype)row->expr->dtype, row->expr->rank, row->expr->shape,
                              row->expr->n_bytes, (const uint8_t *)state->leaves, &row->digest, err));
  free(state->leaves);
  state->leaves = NULL;
  state->is_done = true;
  return CKPT_OK;
}

static void free_slot(ckpt_row_digests *digests, ckpt_leaf_slot *slot) {
  if (slot == NULL) return;
  pthread_mutex_lock(&digests->mutex);
  slot->n_filled = 0;
  pthread_mutex_unlock(&digests->mutex);
}

ckpt_status ckpt_row_digests_flush(ckpt_row_digests *digests, ckpt_leaf_queue *queue, ckpt_error *err) {
  uint8_t leaves[CKPT_QUEUED_LEAVES][32];
  const uint32_t n = queue->n;
  queue->n = 0;
  CKPT_TRY(ckpt_digest_leaves(queue->hasher, digests->backend, queue->bytes, n, leaves, err));
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t row = queue->of[i].row;
    free_slot(digests, queue->of[i].slot);
    memcpy(digests->rows[row].leaves[queue->of[i].leaf], leaves[i], sizeof leaves[i]);
    CKPT_TRY(arrive(digests, queue->hasher, row, CKPT_LEAF_BYTES, err));
  }
  return CKPT_OK;
}

/* All of a leaf, whose bytes may be a slot's: to the queue, or hashed where it is the short one at the end. */
static ckpt_status take_leaf(ckpt_row_digests *digests, ckpt_leaf_queue *queue, uint32_t number, uint64_t leaf,
                             const uint8_t *bytes, ckpt_leaf_slot *slot, ckpt_error *err) {
  const uint64_t n_bytes = leaf_bytes(&digests->plan->rows[number], leaf);
  if (n_bytes != CKPT_LEAF_BYTES) {
    CKPT_TRY(ckpt_digest_leaf(queue->hasher, bytes, (size_t)n_bytes, digests->rows[number].leaves[leaf], err));
    free_slot(digests, slot);
    return arrive(digests, queue->hasher, number, n_bytes, err);
  }
  if (queue->n == CKPT_QUEUED_LEAVES) CKPT_TRY(ckpt_row_digests_flush(digests, queue, err));
  queue->bytes[queue->n] = bytes;
  queue->of[queue->n].row = number;
  queue->of[queue->n].leaf = leaf;
  queue->of[queue->n++].slot = slot;
  return CKPT_OK;
}

/* A part of a leaf goes to its slot; the part that completes it takes it. n_filled starts at 1 while bytes are on
 * their way, so that a slot with nothing copied yet is not free. */
static ckpt_status take_part(ckpt_row_digests *digests, ckpt_leaf_queue *queue, uint32_t number, uint64_t leaf,
                             uint64_t at, const uint8_t *bytes, uint64_t n_bytes, ckpt_error *err) {
  const ckpt_row *row = &digests->plan->rows[number];
  ckpt_row_state *state = &digests->rows[number];
  pthread_mutex_lock(&digests->mutex);
  ckpt_leaf_slot *slot = state->reads_back ? NULL : find_slot(digests, number, leaf);
  if (slot == NULL && !state->reads_back && queue->n != 0) { /* slots may stand in it */
    pthread_mutex_unlock(&digests->mutex);
    CKPT_TRY(ckpt_row_digests_flush(digests, queue, err));
    pthread_mutex_lock(&digests->mutex);
    slot = state->reads_back ? NULL : find_slot(digests, number, leaf);
  }
  if (slot == NULL) {
    state->reads_back = true;
    for (uint32_t i = 0; i < digests->n_slots; i++) { /* but for full ones: somebody is hashing them */
      ckpt_leaf_slot *held = &digests->slots[i];
      if (held->n_filled != 0 && held->row == number && held->n_filled - 1 < leaf_bytes(row, held->leaf))
        held->n_filled = 0;
    }
  } else if (slot->n_filled == 0) {
    slot->n_filled = 1;
  }
  if (slot != NULL && slot->bytes == NULL) slot->bytes = malloc(CKPT_LEAF_BYTES);
  bool ends_here = false, failed = slot != NULL && slot->bytes == NULL;
  if (slot != NULL && !failed) {
    memcpy(slot->bytes + at, bytes, n_bytes);
    slot->n_filled += n_bytes;
    ends_here = slot->n_filled - 1 == leaf_bytes(row, leaf);
  }
  pthread_mutex_unlock(&digests->mutex);
  if (failed) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  return ends_here ? take_leaf(digests, queue, number, leaf, slot->bytes, slot, err) : CKPT_OK;
}

/* Room for the digests of a row's leaves; *reads_back: none yet, since all of it will be read back. */
static ckpt_status make_leaves(ckpt_row_digests *digests, uint32_t number, bool *reads_back, ckpt_error *err) {
  ckpt_row_state *state = &digests->rows[number];
  pthread_mutex_lock(&digests->mutex);
  if (state->leaves == NULL && !state->reads_back)
    state->leaves = calloc(ckpt_digest_n_leaves(digests->plan->rows[number].expr->n_bytes) + 1, sizeof *state->leaves);
  bool failed = state->leaves == NULL && !state->reads_back;
  *reads_back = state->reads_back;
  pthread_mutex_unlock(&digests->mutex);
  return failed ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

ckpt_status ckpt_row_digests_take(ckpt_row_digests *digests, ckpt_leaf_queue *queue, uint32_t number, uint64_t offset,
                                  const uint8_t *bytes, uint64_t n_bytes, ckpt_error *err) {
  const ckpt_row *row = &digests->plan->rows[number];
  bool reads_back;
  CKPT_TRY(make_leaves(digests, number, &reads_back, err));
  if (reads_back) return CKPT_OK;
  uint64_t end = offset + n_bytes;
  for (uint64_t at = offset, stop; at < end; at = stop) {
    uint64_t leaf = at / CKPT_LEAF_BYTES, begin = leaf * CKPT_LEAF_BYTES, size = leaf_bytes(row, leaf);
    stop = begin + size < end ? begin + size : end;
    if (stop - at == size)
      CKPT_TRY(take_leaf(digests, queue, number, leaf, bytes, NULL, err));
    else
      CKPT_TRY(take_part(digests, queue, number, leaf, at - begin, bytes, stop - at, err));
    bytes += stop - at;
  }
  return CKPT_OK;
}

/* ---- rows that tiles could not finish ---------------------------------------------------------------------------- */

static ckpt_status read_sink(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  return ckpt_sink_read(ctx, file, offset, dst, n_bytes, err);
}

static const ckpt_source_ops sink_ops = {.read_at = read_sink};

/* Reading rows back from their output: its sink as a source, kept from one row to the next. */
typedef struct back {
  const ckpt_output *output; /* whose sink is open; NULL: none */
  ckpt_mover mover;
  uint8_t *leaf; /* of CKPT_LEAF_BYTES, and as much again for a unit that stands across its edge */
} back;

static ckpt_status back_to(back *b, const ckpt_output *output, ckpt_error *err) {
  if (b->output == output) return CKPT_OK;
  ckpt_reader_reset(&b->mover.reader);
  ckpt_source_free(b->mover.reader.source);
  b->output = NULL;
  b->mover.reader.source = NULL;
  CKPT_TRY(ckpt_source_custom(&b->mover.reader.source, &sink_ops, output->sink, err));
  for (uint32_t f = 0, file; f < output->layout.n_files; f++) {
    const char *name = output->layout.files[f].name;
    CKPT_TRY(ckpt_source_declare(b->mover.reader.source, name != NULL ? name : "output", UINT64_MAX, &file, err));
  }
  b->output = output;
  return CKPT_OK;
}

static void back_end(back *b) {
  ckpt_reader_reset(&b->mover.reader);
  ckpt_source_free(b->mover.reader.source);
  free(b->leaf);
}

static ckpt_status read_back(ckpt_row_digests *digests, ckpt_hasher *hasher, uint32_t number, back *b,
                             ckpt_error *err) {
  ckpt_row *row = &digests->plan->rows[number];
  ckpt_row_state *state = &digests->rows[number];
  uint64_t units[CKPT_MAX_RANK], start[CKPT_MAX_RANK] = {0};
  ckpt_tensor_units(row->tensor, units);
  uint32_t unit_bytes = ckpt_dtype_get(row->tensor->dtype)->block_bytes;
  CKPT_TRY(back_to(b, &digests->plan->outputs[row->sink], err));
  if (b->leaf == NULL) {
    free_slot_bytes(digests); /* no tile needs them any more */
    b->leaf = reallocarray(NULL, 2, CKPT_LEAF_BYTES);
  }
  CKPT_TRY_ALLOC(b->leaf, err);
  bool reads_back;
  state->reads_back = false;
  CKPT_TRY(make_leaves(digests, number, &reads_back, err));
  uint64_t n_units = row->tensor->n_bytes / unit_bytes, at = 0, n_leaves = ckpt_digest_n_leaves(row->tensor->n_bytes);
  size_t n_held = 0; /* a unit may stand across the edge of two leaves */
  for (uint64_t leaf = 0; leaf < n_leaves; leaf++) {
    size_t size = (size_t)leaf_bytes(row, leaf);
    uint64_t n = (size - n_held + unit_bytes - 1) / unit_bytes;
    if (n > n_units - at) n = n_units - at;
    CKPT_TRY(ckpt_place(&b->mover, row->tensor, start, units, at, n, b->leaf + n_held, err));
    CKPT_TRY(ckpt_digest_leaf(hasher, b->leaf, size, state->leaves[leaf], err));
    at += n;
    n_held += (size_t)n * unit_bytes - size;
    memmove(b->leaf, b->leaf + size, n_held);
  }
  state->n_left = 0;
  return arrive(digests, hasher, number, 0, err);
}

bool ckpt_row_digests_restart(ckpt_row_digests *digests, uint32_t row) {
  ckpt_row_state *state = &digests->rows[row];
  if (!state->reads_back || digests->plan->rows[row].sink < digests->plan->n_outputs) return false;
  state->reads_back = false;
  state->n_left = digests->plan->rows[row].expr->n_bytes;
  return true;
}

ckpt_status ckpt_row_digests_finish(ckpt_row_digests *digests, ckpt_hasher *hasher, uint8_t *window, size_t n_window,
                                    ckpt_error *err) {
  if (n_window < CKPT_WINDOW_BYTES) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "window of %zu bytes", n_window);
  ckpt_plan *plan = digests->plan;
  /* The workers' cursors and encoders are gone, so that one cursor is paid for in any case. */
  uint64_t n_free = plan->memory - plan->peak + plan->n_workers * plan->cursor_bytes;
  back b = {.mover = {.window = window, .reader.max_bytes = n_free}};
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < plan->n_rows && status == CKPT_OK; i++) {
    const ckpt_row *row = &plan->rows[i];
    if (digests->rows[i].is_done || !ckpt_plan_digests(plan, i)) continue;
    if (row->expr->n_bytes == 0)
      status = arrive(digests, hasher, i, 0, err);
    else if (digests->rows[i].reads_back)
      status = read_back(digests, hasher, i, &b, err);
    else
      status = ckpt_fail(err, CKPT_EINTERNAL, NULL, row->name, "%llu bytes never arrived",
                         (unsigned long long)digests->rows[i].n_left);
  }
  back_end(&b);
  return status;
}
