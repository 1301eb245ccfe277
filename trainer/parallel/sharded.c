/* sharded.c - see sharded.h. */
#include "trainer/parallel/sharded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"

/* Work is cut into these many elements: by pieces alone, so results do not depend on threads. */
enum { CHUNK = 1 << 16, CHUNK_BLOCKS = CHUNK / CKPT_SQUARE_BLOCK };

void ckpt_shard_rows(const ckpt_parameter *p, uint32_t rank, uint32_t n_ranks, uint64_t *first, uint64_t *n) {
  const uint64_t rows = p->rank == 0 ? 1 : p->shape[0], each = rows == 0 ? 0 : (rows - 1) / n_ranks + 1;
  *first = each * rank < rows ? each * rank : rows;
  *n = rows - *first < each ? rows - *first : each;
}

static ckpt_shard_piece piece_of(const ckpt_parameter *p, uint32_t rank, uint32_t n_ranks) {
  ckpt_shard_piece piece = {0};
  ckpt_shard_rows(p, rank, n_ranks, &piece.first_row, &piece.n_rows);
  const uint64_t rows = p->rank == 0 ? 1 : p->shape[0], width = rows == 0 ? 0 : p->n_elements / rows;
  piece.flat = p->offset + piece.first_row * width;
  piece.n = piece.n_rows * width;
  return piece;
}

uint64_t ckpt_shard_aligned(uint64_t n) { return (n + 15) / 16 * 16; }

/* Elements of a rank's own buffers: each piece begins at 64 bytes. */
static uint64_t count_local(const ckpt_model *model, uint32_t rank, uint32_t n_ranks) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++)
    n += ckpt_shard_aligned(piece_of(&model->parameters[i], rank, n_ranks).n);
  return n;
}

void ckpt_sharded_plan(ckpt_sharded_memory *out, const ckpt_model *model, uint32_t stage, bool by_layers, uint32_t rank,
                       uint32_t n_ranks) {
  const bool is_whole = stage == 0 || n_ranks == 1, has_units = by_layers && stage >= 2 && !is_whole;
  const uint64_t n = is_whole ? count_local(model, 0, 1) : count_local(model, rank, n_ranks);
  const uint64_t flat = model->n_flat * sizeof(float), shards = n * sizeof(float);
  *out = (ckpt_sharded_memory){.weights = has_units && stage == 3 ? shards + ckpt_units_bytes(model) : flat,
                               .gradients = has_units ? ckpt_units_bytes(model) : flat,
                               .moments = 2 * shards,
                               .summed = stage >= 2 && !is_whole ? shards : 0};
}

static uint64_t count_blocks(const ckpt_shard_piece *piece) {
  return (piece->n + CKPT_SQUARE_BLOCK - 1) / CKPT_SQUARE_BLOCK;
}

static ckpt_status cut_all(ckpt_sharded *s, ckpt_error *err) {
  const ckpt_model *model = s->model;
  const uint32_t n_ranks = s->group->size, rank = s->group->rank, n = model->n_parameters;
  ckpt_shard_piece *shards = calloc(n, sizeof *shards);
  s->pieces = calloc(n, sizeof *s->pieces);
  s->owned = calloc((size_t)n_ranks * n, sizeof *s->owned);
  if (shards == NULL || s->pieces == NULL || s->owned == NULL) {
    free(shards);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t r = 0; r < n_ranks; r++)
    for (uint32_t i = 0; i < n; i++) {
      const ckpt_shard_piece shard = piece_of(&model->parameters[i], r, n_ranks);
      s->owned[(size_t)r * n + i] = (ckpt_range){shard.flat, shard.n};
      if (r == rank) shards[i] = shard;
    }
  for (uint32_t i = 0; i < n; i++) {
    s->pieces[i] = s->stage == 0 ? piece_of(&model->parameters[i], 0, 1) : shards[i];
    s->pieces[i].local = s->n_local;
    s->n_local += ckpt_shard_aligned(s->pieces[i].n);
    shards[i].local = s->pieces[i].local;
  }
  s->shards = shards;
  for (uint32_t i = 0; i < n; i++) s->n_blocks += count_blocks(&shards[i]);
  s->sums = calloc(s->n_blocks + 1, sizeof *s->sums);
  return s->sums != NULL ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

/* Of the own shards each replica sums a part: in flat gradients (stage 1), or in the buffer of what is summed. */
static ckpt_status cut_sums(ckpt_sharded *s, ckpt_error *err) {
  const uint32_t n_replicas = s->replicas == NULL ? 1 : s->replicas->size, n = s->model->n_parameters;
  if (n_replicas == 1) return CKPT_OK;
  s->summed_by = calloc((size_t)n_replicas * n + 1, sizeof *s->summed_by);
  CKPT_TRY_ALLOC(s->summed_by, err);
  for (uint32_t r = 0; r < n_replicas; r++)
    for (uint32_t i = 0; i < n; i++) {
      const ckpt_shard_piece *piece = &s->pieces[i];
      const uint64_t each = ckpt_shard_aligned((piece->n + n_replicas - 1) / n_replicas);
      const uint64_t first = each * r < piece->n ? each * r : piece->n;
      s->summed_by[(size_t)r * n + i] = (ckpt_range){(s->stage < 2 ? piece->flat : piece->local) + first,
                                                     piece->n - first < each ? piece->n - first : each};
    }
  return CKPT_OK;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static float *allocate(const ckpt_sharded *s, uint64_t n) {
  uint64_t n_bytes;
  if (!ckpt_mul_u64(ckpt_shard_aligned(n == 0 ? 1 : n), sizeof(float), &n_bytes)) return NULL;
  return s->device->table->allocate(s->device, n_bytes);
}

static void release(const ckpt_sharded *s, void *memory, uint64_t n) {
  if (memory != NULL) s->device->table->release(s->device, memory, ckpt_shard_aligned(n == 0 ? 1 : n) * sizeof(float));
}

static float *allocate_host(uint64_t n) {
  uint64_t n_bytes;
  if (!ckpt_mul_u64(ckpt_shard_aligned(n == 0 ? 1 : n), sizeof(float), &n_bytes)) return NULL;
  float *memory = aligned_alloc(64, n_bytes);
  if (memory != NULL) memset(memory, 0, n_bytes);
  return memory;
}

/* What is loaded and saved: the buffers themselves, or copies beside the device. */
static ckpt_status allocate_all(ckpt_sharded *s, ckpt_error *err) {
  const bool is_host = s->device->table->is_host;
  const bool has_own = s->has_units && s->stage == 3;
  s->weights = has_own ? NULL : allocate(s, s->model->n_flat);
  s->own = has_own ? allocate(s, s->n_local) : NULL;
  s->gradients = s->has_units ? NULL : allocate(s, s->model->n_flat);
  s->exp_avg = allocate(s, s->n_local);
  s->exp_avg_sq = allocate(s, s->n_local);
  s->summed = s->stage >= 2 ? allocate(s, s->n_local) : NULL;
  s->device_sums = s->device->table->allocate(s->device, (s->n_blocks + 1) * sizeof(double));
  s->host.weights = has_own ? s->own : is_host ? s->weights : allocate_host(s->model->n_flat);
  s->host.exp_avg = is_host ? s->exp_avg : allocate_host(s->n_local);
  s->host.exp_avg_sq = is_host ? s->exp_avg_sq : allocate_host(s->n_local);
  if ((s->weights == NULL && s->own == NULL) || (s->gradients == NULL && !s->has_units) || s->exp_avg == NULL ||
      s->exp_avg_sq == NULL || s->device_sums == NULL || s->host.weights == NULL || s->host.exp_avg == NULL ||
      s->host.exp_avg_sq == NULL || (s->stage >= 2 && s->summed == NULL))
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory (%llu parameters)",
                     (unsigned long long)s->model->n_elements);
  return CKPT_OK;
}

static void release_all(const ckpt_sharded *s) {
  if (!s->device->table->is_host) {
    free(s->host.weights);
    free(s->host.exp_avg);
    free(s->host.exp_avg_sq);
  }
  release(s, s->weights, s->model->n_flat);
  release(s, s->own, s->n_local);
  release(s, s->gradients, s->model->n_flat);
  release(s, s->exp_avg, s->n_local);
  release(s, s->exp_avg_sq, s->n_local);
  release(s, s->summed, s->n_local);
  if (s->device_sums != NULL) s->device->table->release(s->device, s->device_sums, (s->n_blocks + 1) * sizeof(double));
}

static void move(const ckpt_sharded *s, float *at_device, float *at_host, uint64_t n, bool to_host) {
  const ckpt_device_table *table = s->device->table;
  if (table->is_host) return;
  if (to_host)
    table->copy_out(s->device, at_host, at_device, n * sizeof(float));
  else
    table->copy_in(s->device, at_device, at_host, n * sizeof(float));
}

static ckpt_status move_all(const ckpt_sharded *s, bool to_host, ckpt_error *err) {
  move(s, s->weights, s->host.weights, s->model->n_flat, to_host);
  move(s, s->exp_avg, s->host.exp_avg, s->n_local, to_host);
  move(s, s->exp_avg_sq, s->host.exp_avg_sq, s->n_local, to_host);
  return s->device->table->synchronize(s->device, err);
}

ckpt_status ckpt_sharded_to_host(const ckpt_sharded *s, ckpt_error *err) { return move_all(s, true, err); }

ckpt_status ckpt_sharded_to_device(const ckpt_sharded *s, ckpt_error *err) { return move_all(s, false, err); }

static ckpt_status new_units(ckpt_sharded *s, const ckpt_sharded_options *o, ckpt_error *err) {
  const ckpt_units_options options = {.model = s->model,
                                      .group = o->overlaps ? o->background : o->group,
                                      .waiting = o->group,
                                      .pieces = s->pieces,
                                      .owned = s->owned,
                                      .device = s->device,
                                      .whole = s->weights,
                                      .own = s->own,
                                      .summed = s->summed,
                                      .overlaps = o->overlaps};
  return s->has_units ? ckpt_units_new(&s->units, &options, err) : CKPT_OK;
}

ckpt_status ckpt_sharded_new(ckpt_sharded **out, const ckpt_sharded_options *options, ckpt_error *err) {
  ckpt_sharded *s = calloc(1, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  s->model = options->model;
  s->group = options->group;
  s->replicas = options->replicas;
  s->device = options->device;
  s->stage = options->group->size == 1 ? 0 : options->stage; /* one rank has everything */
  s->has_units = s->stage >= 2 && options->by_layers;
  ckpt_status status = cut_all(s, err);
  if (status == CKPT_OK) status = cut_sums(s, err);
  if (status == CKPT_OK) status = allocate_all(s, err);
  if (status == CKPT_OK) status = new_units(s, options, err);
  if (status != CKPT_OK) {
    ckpt_sharded_free(s);
    return status;
  }
  *out = s;
  return CKPT_OK;
}

void ckpt_sharded_stop(ckpt_sharded *s) {
  if (s != NULL && s->units != NULL) ckpt_units_stop(s->units);
}

void ckpt_sharded_free(ckpt_sharded *s) {
  if (s == NULL) return;
  ckpt_units_free(s->units);
  free(s->owned);
  free(s->summed_by);
  free(s->pieces);
  free(s->shards);
  free(s->sums);
  release_all(s);
  free(s);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void zero(const ckpt_sharded *s, float *memory, uint64_t n) {
  s->device->table->fill_zero(s->device, memory, n * sizeof(float));
}

bool ckpt_sharded_take_beginning(ckpt_sharded *s) {
  const bool begins = s->begins;
  s->begins = false;
  return begins;
}

void ckpt_sharded_clear(ckpt_sharded *s) {
  if (ckpt_sharded_take_beginning(s)) zero(s, s->gradients, s->model->n_flat);
}

ckpt_status ckpt_sharded_begin(ckpt_sharded *s, ckpt_error *err) {
  s->begins = s->gradients != NULL;
  if (s->summed != NULL) zero(s, s->summed, s->n_local);
  return ckpt_sharded_gather(s, err);
}

static void launch(const ckpt_sharded *s, ckpt_tape_kernel_id kernel, const void *args, size_t n, size_t grain) {
  s->device->table->launch(s->device, kernel, args, n, grain);
}

static void *stream_of(const ckpt_sharded *s) { return s->device->table->stream(s->device); }

/* Of a flat buffer of the device: all ranks get the shards of each. */
static ckpt_status gather(const ckpt_sharded *s, float *flat, ckpt_error *err) {
  return ckpt_collective_all_gather(s->group, flat, s->owned, s->model->n_parameters, stream_of(s), err);
}

/* Gradients of one replica: whole, or of the shards. */
static ckpt_status reduce_shards(ckpt_sharded *s, bool is_last, ckpt_error *err) {
  if (s->units != NULL) return ckpt_units_end(s->units, err);
  if (s->stage < 2 && !is_last) return CKPT_OK;
  ckpt_sharded_clear(s); /* no batch had rows */
  CKPT_TRY(ckpt_collective_reduce_scatter(s->group, s->gradients, s->owned, s->model->n_parameters, stream_of(s), err));
  if (s->stage == 0) return gather(s, s->gradients, err);
  if (s->stage == 1) return CKPT_OK;
  for (uint32_t i = 0; i < s->model->n_parameters; i++) {
    const ckpt_shard_piece *piece = &s->pieces[i];
    const ckpt_add_args args = {s->gradients + piece->flat, s->summed + piece->local};
    if (piece->n != 0) launch(s, CKPT_KERNEL_add, &args, piece->n, CHUNK);
  }
  s->begins = !is_last;
  return CKPT_OK;
}

ckpt_status ckpt_sharded_reduce(ckpt_sharded *s, bool is_last, ckpt_error *err) {
  CKPT_TRY(reduce_shards(s, is_last, err));
  if (!is_last || s->summed_by == NULL) return CKPT_OK;
  float *shards = s->summed == NULL ? s->gradients : s->summed;
  const uint32_t n = s->model->n_parameters;
  CKPT_TRY(ckpt_collective_reduce_scatter(s->replicas, shards, s->summed_by, n, stream_of(s), err));
  return ckpt_collective_all_gather(s->replicas, shards, s->summed_by, n, stream_of(s), err);
}

/* Of a shard: its blocks' sums are added in their order, by chunks. */
static double square_sum_of(const double *sums, uint64_t n) {
  double sum = 0;
  for (uint64_t first = 0; first < n; first += CHUNK_BLOCKS) {
    double chunk = 0;
    for (uint64_t i = first; i < n && i < first + CHUNK_BLOCKS; i++) chunk += sums[i];
    sum += chunk;
  }
  return sum;
}

ckpt_status ckpt_sharded_norm(ckpt_sharded *s, double *norm, ckpt_error *err) {
  uint64_t block = 0;
  double sum = 0;
  for (uint32_t i = 0; i < s->model->n_parameters; i++) {
    const ckpt_shard_piece *shard = &s->shards[i];
    const float *gradients = s->summed != NULL ? s->summed + shard->local : s->gradients + shard->flat;
    const ckpt_square_sum_args args = {gradients, s->device_sums + block, shard->n};
    if (shard->n != 0) launch(s, CKPT_KERNEL_square_sum, &args, count_blocks(shard), CHUNK_BLOCKS);
    block += count_blocks(shard);
  }
  s->device->table->copy_out(s->device, s->sums, s->device_sums, s->n_blocks * sizeof *s->sums);
  block = 0;
  for (uint32_t i = 0; i < s->model->n_parameters; block += count_blocks(&s->shards[i++]))
    sum += square_sum_of(s->sums + block, count_blocks(&s->shards[i]));
  CKPT_TRY(s->device->table->synchronize(s->device, err));
  CKPT_TRY(ckpt_collective_sum(s->group, &sum, 1, err));
  *norm = sqrt(sum);
  return CKPT_OK;
}

ckpt_status ckpt_sharded_update(ckpt_sharded *s, const ckpt_adamw *how, ckpt_error *err) {
  ckpt_adamw_args args[] = {ckpt_adamw_args_of(how, 0), ckpt_adamw_args_of(how, 1)};
  for (uint32_t i = 0; i < s->model->n_parameters; i++) {
    const ckpt_shard_piece *piece = &s->pieces[i];
    ckpt_adamw_args *a = &args[s->model->parameters[i].decays];
    a->weights = s->own != NULL ? s->own + piece->local : s->weights + piece->flat;
    a->exp_avg = s->exp_avg + piece->local;
    a->exp_avg_sq = s->exp_avg_sq + piece->local;
    a->gradients = s->summed != NULL ? s->summed + piece->local : s->gradients + piece->flat;
    if (piece->n != 0) launch(s, CKPT_KERNEL_adamw, a, piece->n, CHUNK);
  }
  CKPT_TRY(s->device->table->synchronize(s->device, err));
  if (s->stage == 0 || s->stage == 3) return CKPT_OK;
  return gather(s, s->weights, err);
}

ckpt_status ckpt_sharded_gather(ckpt_sharded *s, ckpt_error *err) {
  if (s->units != NULL) return ckpt_units_begin(s->units, err);
  return s->stage == 3 ? gather(s, s->weights, err) : CKPT_OK;
}

ckpt_status ckpt_sharded_gather_saved(ckpt_sharded *s, ckpt_error *err) {
  return s->own != NULL ? CKPT_OK : ckpt_sharded_gather(s, err);
}

ckpt_status ckpt_sharded_whole_gradients(ckpt_sharded *s, float *out, ckpt_error *err) {
  if (s->summed == NULL) s->device->table->copy_out(s->device, out, s->gradients, s->model->n_flat * sizeof *out);
  for (uint32_t i = 0; s->summed != NULL && i < s->model->n_parameters; i++)
    memcpy(out + s->pieces[i].flat, s->summed + s->pieces[i].local, s->pieces[i].n * sizeof *out);
  if (s->stage == 0) return CKPT_OK;
  return ckpt_collective_all_gather(s->group, out, s->owned, s->model->n_parameters, NULL, err);
}
