/* load.c - what a run goes on from, out of a checkpoint that the library opened. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/extents/place.h"
#include "libckpt/extents/record_checks.h"
#include "libckpt/run/read.h"
#include "trainer/checkpoint/state.h"

static ckpt_status read_count(uint64_t *out, const ckpt_index *index, const ckpt_object *trainer, const char *key,
                              ckpt_error *err) {
  const ckpt_object *value = ckpt_object_get(trainer, key);
  if (value == NULL || value->kind != CKPT_OBJECT_INT || value->integer < 0)
    return ckpt_fail(err, CKPT_EFORMAT, index->path, NULL,
                     "no run can go on from it: its state has no %s (only checkpoints of ckpt-train do)", key);
  *out = (uint64_t)value->integer;
  return CKPT_OK;
}

/* The state of reduce_lr_on_plateau, where the run had one. */
static ckpt_status read_plateau(ckpt_plateau *out, const ckpt_index *index, ckpt_error *err) {
  const ckpt_object *scheduler = ckpt_object_get(index->objects, CKPT_STATE_SCHEDULER);
  const ckpt_object *rates = ckpt_object_get(scheduler, "_last_lr"), *best = ckpt_object_get(scheduler, "best");
  if (ckpt_object_get(scheduler, "num_bad_epochs") == NULL) return CKPT_OK;
  CKPT_TRY(read_count(&out->n_bad, index, scheduler, "num_bad_epochs", err));
  CKPT_TRY(read_count(&out->cooldown, index, scheduler, "cooldown_counter", err));
  if (rates == NULL || rates->kind != CKPT_OBJECT_LIST || rates->n == 0 || rates->items[0]->kind != CKPT_OBJECT_FLOAT)
    return ckpt_fail(err, CKPT_EFORMAT, index->path, NULL, "no run can go on from it: its scheduler has no _last_lr");
  out->rate = rates->items[0]->number;
  out->best = best != NULL && best->kind == CKPT_OBJECT_FLOAT ? best->number : NAN;
  return CKPT_OK;
}

ckpt_status ckpt_state_progress(ckpt_progress_state *out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *trainer = ckpt_object_get(index->objects, CKPT_STATE_TRAINER);
  const struct {
    const char *key;
    uint64_t *value;
  } counts[] = {{"global_step", &out->step},    {"n_updates", &out->n_updates}, {"n_tokens", &out->n_tokens},
                {"n_skipped", &out->n_skipped}, {"best_step", &out->best_step}, {"patience", &out->patience},
                {"seed", &out->seed},           {"data_seed", &out->data_seed}, {"n_samples", &out->n_samples},
                {"rows_per_step", &out->batch}};
  *out = (ckpt_progress_state){.best_metric = NAN};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    CKPT_TRY(read_count(counts[i].value, index, trainer, counts[i].key, err));
  out->best_saved = out->best_step; /* of a checkpoint before this was kept apart */
  if (ckpt_object_get(trainer, "best_saved") != NULL)
    CKPT_TRY(read_count(&out->best_saved, index, trainer, "best_saved", err));
  const ckpt_object *loss = ckpt_object_get(trainer, "loss_sum"), *best = ckpt_object_get(trainer, "best_metric");
  const ckpt_object *id = ckpt_object_get(trainer, "run_id");
  if (loss == NULL || loss->kind != CKPT_OBJECT_FLOAT || id == NULL || id->kind != CKPT_OBJECT_TEXT)
    return ckpt_fail(err, CKPT_EFORMAT, index->path, NULL, "no run can go on from it: its trainer state is broken");
  out->loss_sum = loss->number;
  CKPT_TRY(read_plateau(&out->plateau, index, err));
  if (best != NULL && best->kind == CKPT_OBJECT_FLOAT) out->best_metric = best->number;
  out->run_id = ckpt_arena_text(arena, id->text, id->n);
  CKPT_TRY_ALLOC(out->run_id, err);
  return CKPT_OK;
}

enum { PASSED = 1 << 20 }; /* elements that are read at a time for their checksums alone */

/* Moments of every parameter, in pairs: exp_avg, exp_avg_sq. */
typedef struct moments {
  const ckpt_index *index;
  const ckpt_tensor **tensors;
  ckpt_record_checks *checks; /* of those that this rank compares; NULL: none */
} moments;

static ckpt_status check_shape(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_parameter *p,
                               const char *name, ckpt_error *err) {
  if (tensor == NULL) return ckpt_fail(err, CKPT_ENOTFOUND, index->path, name, "the checkpoint lacks it");
  bool is_same = tensor->rank == p->rank;
  for (uint32_t k = 0; is_same && k < p->rank; k++) is_same = tensor->shape[k] == p->shape[k];
  return is_same ? CKPT_OK : ckpt_fail(err, CKPT_EFORMAT, index->path, name, "it has not the shape of the model's");
}

/* Moment `number` of a model's: exp_avg and exp_avg_sq of each parameter. */
static ckpt_status find_moment(const ckpt_tensor **out, const ckpt_index *index, const ckpt_model *model,
                               uint32_t number, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_parameter *p = &model->parameters[number / 2];
  const char *name =
      ckpt_arena_printf(arena, CKPT_STATE_PREFIX "%s.%s", p->name, number % 2 == 0 ? "exp_avg" : "exp_avg_sq");
  CKPT_TRY_ALLOC(name, err);
  *out = ckpt_index_find(index, name);
  if (*out == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, index->path, name,
                     "the checkpoint lacks it (with save_only_model no run can go on)");
  return check_shape(index, *out, p, name, err);
}

/* All moments, into tensors, two for each parameter. */
static ckpt_status find_moments(const ckpt_tensor **tensors, const ckpt_index *index, const ckpt_model *model,
                                ckpt_error *err) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(256) << 20);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < 2 * model->n_parameters && status == CKPT_OK; i++)
    status = find_moment(&tensors[i], index, model, i, &arena, err);
  ckpt_arena_free(&arena);
  return status;
}

/* A model of fewer layers would leave the others out. */
static ckpt_status refuse_more(const ckpt_index *index, const ckpt_model *model, ckpt_error *err) {
  const ckpt_tensor *more;
  if (ckpt_model_unused(index, model, &more) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, index->path, more->name, "it is of another model: %s here has no such parameter",
                   model->architecture);
}

ckpt_status ckpt_state_check(const ckpt_index *index, const ckpt_model *model, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < model->n_parameters && status == CKPT_OK; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    status = check_shape(index, ckpt_model_tensor(index, p), p, p->name, err);
  }
  CKPT_TRY(status);
  CKPT_TRY(refuse_more(index, model, err));
  const ckpt_tensor **tensors = calloc(2 * (size_t)model->n_parameters + 1, sizeof *tensors);
  CKPT_TRY_ALLOC(tensors, err);
  status = find_moments(tensors, index, model, err);
  free(tensors);
  return status;
}

/* A rank keeps only its own rows, which may be a part of a record, or of none. Each rank therefore reads all of the
 * moments of its share of the parameters, and compares their records with the checksums. */
static bool compares(const ckpt_sharded *s, uint32_t moment) { return moment / 2 % s->group->size == s->group->rank; }

static ckpt_status new_checks(moments *m, const ckpt_sharded *s, ckpt_error *err) {
  const uint32_t n = 2 * s->model->n_parameters;
  uint64_t n_extents = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; compares(s, i) && k < m->tensors[i]->n_extents; k++)
      n_extents += ckpt_extent_has_record(m->index->source, &m->tensors[i]->extents[k]);
  if (n_extents == 0 || n_extents > UINT32_MAX) return CKPT_OK;
  CKPT_TRY(ckpt_record_checks_new(&m->checks, (uint32_t)n_extents, err));
  for (uint32_t i = 0; i < n; i++)
    if (compares(s, i)) ckpt_record_checks_want(m->checks, m->index->source, m->tensors[i], m->tensors[i]->n_bytes);
  ckpt_record_checks_begin(m->checks);
  return CKPT_OK;
}

/* Rows [first, first + n) of a moment. */
static ckpt_status read_rows(float *to, const moments *m, uint32_t number, const ckpt_parameter *p, uint64_t first,
                             uint64_t n, ckpt_record_checks *checks, ckpt_error *err) {
  ckpt_box box = {.start = {first}, .count = {n}};
  uint64_t n_elements = n;
  for (uint32_t k = 1; k < p->rank; k++) n_elements *= box.count[k] = p->shape[k];
  if (n_elements == 0) return CKPT_OK;
  return ckpt_read_piece(m->index, m->tensors[number], &box, CKPT_F32, to, n_elements * sizeof(float), checks, err);
}

/* The same of rows that other ranks keep, for the checksums alone. */
static ckpt_status pass_rows(const moments *m, uint32_t number, const ckpt_parameter *p, uint64_t first, uint64_t end,
                             ckpt_error *err) {
  const uint64_t n_rows = p->shape[0], width = n_rows == 0 ? 0 : p->n_elements / n_rows;
  const uint64_t at_once = width == 0 || width >= PASSED ? 1 : PASSED / width;
  if (first >= end || width == 0) return CKPT_OK;
  float *window = reallocarray(NULL, at_once < end - first ? at_once : end - first, width * sizeof *window);
  CKPT_TRY_ALLOC(window, err);
  ckpt_status status = CKPT_OK;
  for (uint64_t row = first; row < end && status == CKPT_OK; row += at_once)
    status = read_rows(window, m, number, p, row, end - row < at_once ? end - row : at_once, m->checks, err);
  free(window);
  return status;
}

/* The rows of a moment that are this rank's, where they lie. */
static ckpt_status load_moment(const moments *m, const ckpt_sharded *s, uint32_t number, ckpt_error *err) {
  const ckpt_parameter *p = &s->model->parameters[number / 2];
  const ckpt_shard_piece *piece = &s->pieces[number / 2];
  float *to = (number % 2 == 0 ? s->host.exp_avg : s->host.exp_avg_sq) + piece->local;
  const uint64_t first = piece->first_row, end = first + piece->n_rows;
  ckpt_record_checks *checks = compares(s, number) ? m->checks : NULL;
  if (checks != NULL) CKPT_TRY(pass_rows(m, number, p, 0, piece->n == 0 ? 0 : first, err));
  if (piece->n != 0) CKPT_TRY(read_rows(to, m, number, p, first, piece->n_rows, checks, err));
  return checks == NULL ? CKPT_OK : pass_rows(m, number, p, piece->n == 0 ? 0 : end, p->shape[0], err);
}

static ckpt_status end_checks(const moments *m, ckpt_error *err) {
  void *window = malloc(CKPT_WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  const ckpt_status status = ckpt_record_checks_end(m->checks, window, CKPT_WINDOW_BYTES, err);
  free(window);
  return status;
}

ckpt_status ckpt_state_load_weights(ckpt_sharded *s, const ckpt_index *index, ckpt_error *err) {
  if (s->own == NULL) return ckpt_model_load(s->host.weights, s->model, index, NULL, NULL, err);
  ckpt_parameter_place *places = calloc((size_t)s->model->n_parameters + 1, sizeof *places);
  CKPT_TRY_ALLOC(places, err);
  for (uint32_t i = 0; i < s->model->n_parameters; i++)
    places[i] = (ckpt_parameter_place){.weights = s->own + s->pieces[i].local,
                                       .is_part = true,
                                       .first = s->pieces[i].flat - s->model->parameters[i].offset,
                                       .n = s->pieces[i].n};
  const ckpt_status status = ckpt_model_load_places(places, s->model, index, NULL, NULL, err);
  free(places);
  return status;
}

ckpt_status ckpt_state_load(ckpt_sharded *s, const ckpt_index *index, ckpt_error *err) {
  CKPT_TRY(ckpt_state_load_weights(s, index, err));
  moments m = {.index = index, .tensors = calloc(2 * (size_t)s->model->n_parameters + 1, sizeof *m.tensors)};
  CKPT_TRY_ALLOC(m.tensors, err);
  ckpt_status status = find_moments(m.tensors, index, s->model, err);
  if (status == CKPT_OK) status = new_checks(&m, s, err);
  for (uint32_t i = 0; i < 2 * s->model->n_parameters && status == CKPT_OK; i++) status = load_moment(&m, s, i, err);
  if (status == CKPT_OK && m.checks != NULL) status = end_checks(&m, err);
  ckpt_record_checks_free(m.checks);
  free(m.tensors);
  return status;
}
