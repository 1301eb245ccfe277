/* load.c - what a run goes on from, out of a checkpoint that the library opened. */
#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/checkpoint/state.h"

static ckpt_status read_count(uint64_t *out, const ckpt_index *index, const ckpt_object *trainer, const char *key,
                              ckpt_error *err) {
  const ckpt_object *value = ckpt_object_get(trainer, key);
  if (value == NULL || value->kind != CKPT_OBJECT_INT || value->integer < 0)
    return ckpt_fail(err, CKPT_EFORMAT, index->path, NULL,
                     "no run can go on from it: its trainer state has no %s (only checkpoints of ckpt-train do)", key);
  *out = (uint64_t)value->integer;
  return CKPT_OK;
}

ckpt_status ckpt_state_progress(ckpt_progress_state *out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *trainer = ckpt_object_get(index->objects, CKPT_STATE_TRAINER);
  const struct {
    const char *key;
    uint64_t *value;
  } counts[] = {
      {"global_step", &out->step},    {"n_updates", &out->n_updates}, {"n_tokens", &out->n_tokens},
      {"n_skipped", &out->n_skipped}, {"best_step", &out->best_step}, {"n_skipped_in_row", &out->n_skipped_in_row},
      {"patience", &out->patience},   {"seed", &out->seed},           {"data_seed", &out->data_seed},
      {"n_samples", &out->n_samples}, {"rows_per_step", &out->batch}};
  *out = (ckpt_progress_state){.best_metric = NAN};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    CKPT_TRY(read_count(counts[i].value, index, trainer, counts[i].key, err));
  const ckpt_object *loss = ckpt_object_get(trainer, "loss_sum"), *best = ckpt_object_get(trainer, "best_metric");
  const ckpt_object *id = ckpt_object_get(trainer, "run_id");
  if (loss == NULL || loss->kind != CKPT_OBJECT_FLOAT || id == NULL || id->kind != CKPT_OBJECT_TEXT)
    return ckpt_fail(err, CKPT_EFORMAT, index->path, NULL, "no run can go on from it: its trainer state is broken");
  out->loss_sum = loss->number;
  if (best != NULL && best->kind == CKPT_OBJECT_FLOAT) out->best_metric = best->number;
  out->run_id = ckpt_arena_text(arena, id->text, id->n);
  CKPT_TRY_ALLOC(out->run_id, err);
  return CKPT_OK;
}

/* The rows of a state's tensor that are this rank's, where they lie. */
static ckpt_status load_moment(const ckpt_index *index, const ckpt_parameter *p, const ckpt_piece *piece,
                               const char *kind, float *to, ckpt_arena *arena, ckpt_error *err) {
  const char *name = ckpt_arena_printf(arena, CKPT_STATE_PREFIX "%s.%s", p->name, kind);
  CKPT_TRY_ALLOC(name, err);
  const ckpt_tensor *tensor = ckpt_index_find(index, name);
  if (tensor == NULL) return ckpt_fail(err, CKPT_ENOTFOUND, index->path, name, "the checkpoint has not got it");
  bool is_same = tensor->rank == p->rank;
  for (uint32_t k = 0; is_same && k < p->rank; k++) is_same = tensor->shape[k] == p->shape[k];
  if (!is_same) return ckpt_fail(err, CKPT_EFORMAT, index->path, name, "it is not of its parameter's shape");
  ckpt_box box = {{0}, {0}};
  for (uint32_t k = 0; k < p->rank; k++) box.count[k] = p->shape[k];
  box.start[0] = piece->first_row;
  box.count[0] = piece->n_rows;
  if (piece->n == 0) return CKPT_OK;
  return ckpt_read(index, tensor, &box, CKPT_F32, to + piece->local, piece->n * sizeof(float), err);
}

ckpt_status ckpt_state_load(ckpt_sharded *s, const ckpt_index *index, ckpt_error *err) {
  CKPT_TRY(ckpt_model_load(s->weights, s->model, index, NULL, NULL, err));
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(256) << 20);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < s->model->n_parameters && status == CKPT_OK; i++) {
    const ckpt_parameter *p = &s->model->parameters[i];
    status = load_moment(index, p, &s->pieces[i], "exp_avg", s->exp_avg, &arena, err);
    if (status == CKPT_OK) status = load_moment(index, p, &s->pieces[i], "exp_avg_sq", s->exp_avg_sq, &arena, err);
  }
  ckpt_arena_free(&arena);
  return status;
}
