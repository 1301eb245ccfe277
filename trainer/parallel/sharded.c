/* sharded.c - see sharded.h. */
#include "trainer/parallel/sharded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"

/* Work is cut into these many elements: by pieces alone, so results do not depend on threads. */
enum { CHUNK = 1 << 16 };

typedef struct ckpt_chunk {
  uint64_t flat, local, n;
  bool decays;
} chunk;

void ckpt_shard_rows(const ckpt_parameter *p, uint32_t rank, uint32_t n_ranks, uint64_t *first, uint64_t *n) {
  const uint64_t rows = p->rank == 0 ? 1 : p->shape[0], each = rows == 0 ? 0 : (rows - 1) / n_ranks + 1;
  *first = each * rank < rows ? each * rank : rows;
  *n = rows - *first < each ? rows - *first : each;
}

static ckpt_shard_piece piece_of(const ckpt_parameter *p, uint32_t number, uint32_t rank, uint32_t n_ranks) {
  ckpt_shard_piece piece = {.parameter = number};
  ckpt_shard_rows(p, rank, n_ranks, &piece.first_row, &piece.n_rows);
  const uint64_t rows = p->rank == 0 ? 1 : p->shape[0], width = rows == 0 ? 0 : p->n_elements / rows;
  piece.flat = p->offset + piece.first_row * width;
  piece.n = piece.n_rows * width;
  return piece;
}

static uint64_t aligned(uint64_t n) { return (n + 15) / 16 * 16; }

/* Elements of a rank's own buffers: each piece begins at 64 bytes. */
static uint64_t count_local(const ckpt_model *model, uint32_t rank, uint32_t n_ranks) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++) n += aligned(piece_of(&model->parameters[i], i, rank, n_ranks).n);
  return n;
}

void ckpt_sharded_plan(ckpt_sharded_memory *out, const ckpt_model *model, uint32_t stage, uint32_t rank,
                       uint32_t n_ranks) {
  const bool is_whole = stage == 0 || n_ranks == 1;
  const uint64_t n = is_whole ? count_local(model, 0, 1) : count_local(model, rank, n_ranks);
  *out = (ckpt_sharded_memory){.weights = model->n_flat * sizeof(float),
                               .gradients = model->n_flat * sizeof(float),
                               .moments = 2 * n * sizeof(float),
                               .summed = stage >= 2 && !is_whole ? n * sizeof(float) : 0};
}

static float *allocate(uint64_t n) {
  uint64_t n_bytes;
  if (!ckpt_mul_u64(aligned(n == 0 ? 1 : n), sizeof(float), &n_bytes)) return NULL;
  float *buffer = aligned_alloc(64, n_bytes);
  if (buffer != NULL) memset(buffer, 0, n_bytes);
  return buffer;
}

/* Cuts ranges into chunks; counts them where chunks is NULL. */
static uint32_t cut(chunk *chunks, const ckpt_model *model, const ckpt_shard_piece *pieces) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++)
    for (uint64_t at = 0; at < pieces[i].n; at += CHUNK, n++)
      if (chunks != NULL)
        chunks[n] = (chunk){.flat = pieces[i].flat + at,
                            .local = pieces[i].local + at,
                            .n = pieces[i].n - at < CHUNK ? pieces[i].n - at : CHUNK,
                            .decays = model->parameters[pieces[i].parameter].decays};
  return n;
}

static ckpt_status cut_all(ckpt_sharded *s, ckpt_error *err) {
  const ckpt_model *model = s->model;
  const uint32_t n_ranks = s->collective->size, rank = s->collective->rank, n = model->n_parameters;
  ckpt_shard_piece *shards = calloc(n, sizeof *shards);
  s->pieces = calloc(n, sizeof *s->pieces);
  s->owned = calloc(n_ranks, sizeof *s->owned);
  ckpt_range *ranges = calloc((size_t)n_ranks * n, sizeof *ranges);
  if (s->owned != NULL) s->owned[0].ranges = ranges;
  if (shards == NULL || s->pieces == NULL || s->owned == NULL || ranges == NULL) {
    free(shards);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t r = 0; r < n_ranks; r++) {
    s->owned[r] = (ckpt_ranges){.ranges = ranges + (size_t)r * n, .n = n};
    for (uint32_t i = 0; i < n; i++) {
      const ckpt_shard_piece shard = piece_of(&model->parameters[i], i, r, n_ranks);
      ranges[(size_t)r * n + i] = (ckpt_range){shard.flat, shard.n};
      if (r == rank) shards[i] = shard;
    }
  }
  for (uint32_t i = 0; i < n; i++) {
    s->pieces[i] = s->stage == 0 ? piece_of(&model->parameters[i], i, 0, 1) : shards[i];
    s->pieces[i].local = s->n_local;
    s->n_local += aligned(s->pieces[i].n);
    shards[i].local = s->pieces[i].local;
  }
  s->n_chunks = cut(NULL, model, s->pieces);
  s->n_norm_chunks = cut(NULL, model, shards);
  s->chunks = calloc(s->n_chunks + 1u, sizeof *s->chunks);
  s->norm_chunks = calloc(s->n_norm_chunks + 1u, sizeof *s->norm_chunks);
  s->partial = calloc(s->n_norm_chunks + 1u, sizeof *s->partial);
  const bool has_all = s->chunks != NULL && s->norm_chunks != NULL && s->partial != NULL;
  if (has_all) {
    (void)cut(s->chunks, model, s->pieces);
    (void)cut(s->norm_chunks, model, shards);
  }
  free(shards);
  return has_all ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

ckpt_status ckpt_sharded_new(ckpt_sharded **out, const ckpt_model *model, ckpt_collective *collective,
                             ckpt_device *device, uint32_t stage, ckpt_error *err) {
  ckpt_sharded *s = calloc(1, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  s->model = model;
  s->collective = collective;
  s->device = device;
  s->stage = stage = collective->size == 1 ? 0 : stage; /* one rank has everything */
  ckpt_status status = cut_all(s, err);
  if (status == CKPT_OK) {
    s->weights = allocate(model->n_flat);
    s->gradients = allocate(model->n_flat);
    s->exp_avg = allocate(s->n_local);
    s->exp_avg_sq = allocate(s->n_local);
    s->summed = stage >= 2 ? allocate(s->n_local) : NULL;
    if (s->weights == NULL || s->gradients == NULL || s->exp_avg == NULL || s->exp_avg_sq == NULL ||
        (stage >= 2 && s->summed == NULL))
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory (%llu parameters)",
                         (unsigned long long)model->n_elements);
  }
  if (status != CKPT_OK) {
    ckpt_sharded_free(s);
    return status;
  }
  *out = s;
  return CKPT_OK;
}

void ckpt_sharded_free(ckpt_sharded *s) {
  if (s == NULL) return;
  if (s->owned != NULL) free((ckpt_range *)s->owned[0].ranges);
  free(s->owned);
  free(s->pieces);
  free(s->chunks);
  free(s->norm_chunks);
  free(s->partial);
  free(s->weights);
  free(s->gradients);
  free(s->exp_avg);
  free(s->exp_avg_sq);
  free(s->summed);
  free(s);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void zero_part(const void *arg, size_t begin, size_t end) {
  const ckpt_sharded *s = arg;
  memset(s->gradients + begin, 0, (end - begin) * sizeof(float));
}

static void zero_gradients(const ckpt_sharded *s) {
  s->device->table->run_host(s->device, zero_part, s, s->model->n_flat, CHUNK);
}

ckpt_status ckpt_sharded_begin(ckpt_sharded *s, ckpt_error *err) {
  zero_gradients(s);
  if (s->summed != NULL) memset(s->summed, 0, s->n_local * sizeof(float));
  return s->stage == 3 ? ckpt_collective_all_gather(s->collective, s->weights, s->owned, err) : CKPT_OK;
}

static void add_part(const void *arg, size_t begin, size_t end) {
  const ckpt_sharded *s = arg;
  for (size_t i = begin; i < end; i++) {
    float *to = s->summed + s->chunks[i].local;
    const float *from = s->gradients + s->chunks[i].flat;
    for (uint64_t k = 0; k < s->chunks[i].n; k++) to[k] += from[k];
  }
}

ckpt_status ckpt_sharded_reduce(ckpt_sharded *s, bool is_last, ckpt_error *err) {
  if (s->stage < 2 && !is_last) return CKPT_OK;
  CKPT_TRY(ckpt_collective_reduce_scatter(s->collective, s->gradients, s->owned, err));
  if (s->stage == 0) return ckpt_collective_all_gather(s->collective, s->gradients, s->owned, err);
  if (s->stage == 1) return CKPT_OK;
  s->device->table->run_host(s->device, add_part, s, s->n_chunks, 1);
  if (!is_last) zero_gradients(s);
  return CKPT_OK;
}

static void norm_part(const void *arg, size_t begin, size_t end) {
  const ckpt_sharded *s = arg;
  for (size_t i = begin; i < end; i++) {
    const chunk *c = &s->norm_chunks[i];
    s->partial[i] = ckpt_square_sum(s->summed != NULL ? s->summed + c->local : s->gradients + c->flat, c->n);
  }
}

ckpt_status ckpt_sharded_norm(ckpt_sharded *s, double *norm, ckpt_error *err) {
  s->device->table->run_host(s->device, norm_part, s, s->n_norm_chunks, 1);
  double sum = 0;
  for (uint32_t i = 0; i < s->n_norm_chunks; i++) sum += s->partial[i];
  CKPT_TRY(ckpt_collective_sum(s->collective, &sum, 1, err));
  *norm = sqrt(sum);
  return CKPT_OK;
}

typedef struct updating {
  const ckpt_sharded *s;
  const ckpt_adamw *how;
} updating;

static void update_part(const void *arg, size_t begin, size_t end) {
  const updating *u = arg;
  const ckpt_sharded *s = u->s;
  for (size_t i = begin; i < end; i++) {
    const chunk *c = &s->chunks[i];
    const float *gradients = s->summed != NULL ? s->summed + c->local : s->gradients + c->flat;
    ckpt_adamw_update(u->how, c->decays, s->weights + c->flat, s->exp_avg + c->local, s->exp_avg_sq + c->local,
                      gradients, c->n);
  }
}

ckpt_status ckpt_sharded_update(ckpt_sharded *s, const ckpt_adamw *how, ckpt_error *err) {
  const updating u = {s, how};
  s->device->table->run_host(s->device, update_part, &u, s->n_chunks, 1);
  if (s->stage == 0 || s->stage == 3) return CKPT_OK;
  return ckpt_collective_all_gather(s->collective, s->weights, s->owned, err);
}

ckpt_status ckpt_sharded_gather(ckpt_sharded *s, ckpt_error *err) {
  return s->stage == 3 ? ckpt_collective_all_gather(s->collective, s->weights, s->owned, err) : CKPT_OK;
}

ckpt_status ckpt_sharded_gather_gradients(ckpt_sharded *s, ckpt_error *err) {
  if (s->stage == 0) return CKPT_OK;
  for (uint32_t i = 0; s->summed != NULL && i < s->n_chunks; i++)
    memcpy(s->gradients + s->chunks[i].flat, s->summed + s->chunks[i].local, s->chunks[i].n * sizeof(float));
  return ckpt_collective_all_gather(s->collective, s->gradients, s->owned, err);
}
