/* rank.c - what one rank does from its first weight to its last file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "trainer/loop/job.h"
#include "trainer/optimizer/random.h"

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* As transformers initializes a model, with numbers of our own, by their place in the whole. */
static void initialize(const ckpt_sharded *s, uint64_t seed) {
  for (uint32_t i = 0; i < s->model->n_parameters; i++) {
    const ckpt_parameter *p = &s->model->parameters[i];
    const ckpt_shard_piece *piece = &s->pieces[i];
    const uint64_t first = s->own == NULL ? 0 : piece->flat - p->offset, n = s->own == NULL ? p->n_elements : piece->n;
    float *w = s->own == NULL ? s->host.weights + p->offset : s->own + piece->local;
    if (p->init == CKPT_INIT_NORMAL)
      ckpt_normal_fill(w, seed, p->name, first, n, p->init_std);
    else
      for (uint64_t k = 0; k < n; k++) w[k] = p->init == CKPT_INIT_ONES ? 1 : 0;
    if (p->init != CKPT_INIT_NORMAL || p->zero_row < 0) continue;
    const uint64_t width = p->rank == 2 ? p->shape[1] : 0, zero = (uint64_t)p->zero_row * width;
    if (zero >= first && zero < first + n) memset(w + (zero - first), 0, width * sizeof *w);
  }
}

static float *new_flat(const ckpt_model *model) {
  uint64_t n_bytes;
  if (!ckpt_mul_u64(model->n_flat, sizeof(float), &n_bytes)) return NULL;
  float *flat = aligned_alloc(64, n_bytes); /* n_flat is a multiple of 16 */
  if (flat != NULL) memset(flat, 0, n_bytes);
  return flat;
}

static ckpt_status resume(ckpt_rank *r, ckpt_error *err) {
  r->is_resuming = true;
  CKPT_TRY(ckpt_state_load(r->sharded, r->job->resumed, err));
  r->is_resuming = false;
  return CKPT_OK;
}

/* The model's weights where the device reads them. */
static ckpt_status place_frozen(ckpt_rank *r, ckpt_error *err) {
  const ckpt_device_table *table = r->device->table;
  const size_t n_bytes = (size_t)r->job->model->n_flat * sizeof(float);
  if (table->is_host) return CKPT_OK;
  r->frozen = table->allocate(r->device, n_bytes);
  CKPT_TRY_ALLOC(r->frozen, err);
  table->copy_in(r->device, r->frozen, r->base, n_bytes);
  return table->synchronize(r->device, err);
}

/* The model that is adapted, and what the adapter begins with. */
static ckpt_status begin_lora(ckpt_rank *r, ckpt_error *err) {
  const ckpt_job *job = r->job;
  const bool is_merged = job->lora->n_merged != 0;
  r->base = new_flat(job->model);
  r->merged = is_merged ? new_flat(job->model) : NULL;
  r->merged_gradients = is_merged ? new_flat(job->model) : NULL;
  r->norms = calloc(job->lora->n_norms + 1, sizeof *r->norms);
  r->places = calloc((size_t)job->model->n_parameters + job->lora->table.n_parameters, sizeof *r->places);
  if (r->base == NULL || r->norms == NULL || r->places == NULL ||
      (is_merged && (r->merged == NULL || r->merged_gradients == NULL)))
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  CKPT_TRY(ckpt_model_load(r->base, job->model, job->base, NULL, NULL, err));
  CKPT_TRY(place_frozen(r, err));
  const ckpt_lora_weights weights = {.base = r->frozen == NULL ? r->base : r->frozen,
                                     .merged = r->merged,
                                     .merged_gradients = r->merged_gradients,
                                     .own = r->sharded->weights,
                                     .own_gradients = r->sharded->gradients};
  ckpt_lora_places(job->lora, &weights, r->places);
  if (job->resumed != NULL) return resume(r, err);
  if (job->lora->folder != NULL) return ckpt_lora_load(job->lora, r->sharded->host.weights, r->base, err);
  ckpt_lora_initialize(job->lora, r->sharded->host.weights, r->base, (uint64_t)job->arguments->seed);
  return CKPT_OK;
}

ckpt_status ckpt_rank_merge(ckpt_rank *r, ckpt_error *err) {
  if (r->merged == NULL) return CKPT_OK;
  return ckpt_lora_merge(r->job->lora, r->device, r->merged, r->norms, r->base, r->sharded->weights, err);
}

ckpt_status ckpt_rank_gather(ckpt_rank *r, ckpt_error *err) {
  CKPT_TRY(ckpt_sharded_gather(r->sharded, err));
  return ckpt_rank_merge(r, err);
}

/* Weights, and moments where the run goes on. */
static ckpt_status load(ckpt_rank *r, ckpt_error *err) {
  const ckpt_job *job = r->job;
  if (job->lora != NULL) return begin_lora(r, err);
  if (job->resumed != NULL) return resume(r, err);
  if (job->base != NULL) return ckpt_state_load_weights(r->sharded, job->base, err);
  initialize(r->sharded, (uint64_t)job->arguments->seed);
  return CKPT_OK;
}

static ckpt_status begin(ckpt_rank *r, ckpt_error *err) {
  ckpt_job *job = r->job;
  r->batches = calloc(job->order.accumulation, sizeof *r->batches);
  CKPT_TRY_ALLOC(r->batches, err);
  CKPT_TRY(ckpt_device_choose(&r->device, job->options->is_on_cuda ? "cuda" : "cpu", job->n_threads, err));
  const ckpt_sharded_options options = {.model = job->trained,
                                        .group = r->groups.shards,
                                        .background = r->groups.background,
                                        .replicas = r->groups.replicas,
                                        .device = r->device,
                                        .stage = job->options->stage,
                                        .by_layers = job->lora == NULL,
                                        .overlaps = job->options->overlaps};
  CKPT_TRY(ckpt_sharded_new(&r->sharded, &options, err));
  job->ranks[r->groups.all->rank] = r->sharded;
  r->state = job->start;
  r->state.learning_rate = ckpt_schedule_rate(&job->schedule, &r->state.plateau, r->state.step);
  CKPT_TRY(load(r, err));
  CKPT_TRY(ckpt_sharded_to_device(r->sharded, err));
  CKPT_TRY(ckpt_collective_barrier(r->groups.all, err));
  if (r->groups.all->rank == 0 && !ckpt_job_only_dumps(job)) CKPT_TRY(ckpt_job_set_aside(job, err));
  return ckpt_collective_barrier(r->groups.all, err);
}

uint32_t ckpt_job_room(const ckpt_job *job, uint32_t length) {
  const uint64_t room = ((uint64_t)length + 31) / 32 * 32;
  return (uint32_t)(room < job->model->max_positions ? room : job->model->max_positions);
}

ckpt_status ckpt_rank_executor(ckpt_rank *r, uint32_t n_rows, uint32_t length, ckpt_error *err) {
  const ckpt_model *model = r->job->model;
  const ckpt_units *units = r->sharded->units;
  if (n_rows == 0 || length == 0) n_rows = length = 1; /* it visits layers alone */
  if (r->executor != NULL && n_rows <= r->max_rows && length <= r->max_length) return CKPT_OK;
  const uint32_t room = ckpt_job_room(r->job, length);
  r->max_rows = n_rows > r->max_rows ? n_rows : r->max_rows;
  r->max_length = room > r->max_length ? room : r->max_length;
  ckpt_executor_free(r->executor);
  r->executor = NULL;
  const ckpt_executor_options options = {.struct_size = sizeof options,
                                         .max_rows = r->max_rows,
                                         .max_length = r->max_length,
                                         .device = r->device,
                                         .has_backward = true,
                                         .recompute = ckpt_job_recomputation(r->job),
                                         .parameters = r->sharded->weights,
                                         .gradients = r->sharded->gradients,
                                         .places = units == NULL ? r->places : ckpt_units_places(units),
                                         .hooks = units == NULL ? NULL : ckpt_units_hooks(units)};
  return ckpt_executor_new(&r->executor, model, &options, err);
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */

static bool is_epoch_end(const ckpt_job *job, uint64_t step) {
  return step % job->steps_per_epoch == 0 || step == job->n_steps;
}

static bool is_due(const ckpt_job *job, const char *strategy, uint64_t every, uint64_t step) {
  if (strcmp(strategy, "steps") == 0) return step % every == 0;
  return strcmp(strategy, "epoch") == 0 && is_epoch_end(job, step);
}

/* By steps the last one too, as the Trainer does. */
static bool eval_is_due(const ckpt_job *job, uint64_t step) {
  const ckpt_arguments *a = job->arguments;
  const bool is_last = step == job->n_steps && strcmp(a->eval_strategy, "steps") == 0;
  const bool by_epoch = strcmp(a->eval_strategy, "epoch") == 0;
  const double at = by_epoch ? (double)step / (double)job->steps_per_epoch : (double)step;
  return at >= a->eval_delay && (is_last || is_due(job, a->eval_strategy, job->eval_every, step));
}

/* Whether early stopping has ended the run; a checkpoint of its last step says so too. */
static bool has_stopped(const ckpt_rank *r) {
  const int64_t patience = r->job->options->patience;
  return patience > 0 && r->state.patience >= (uint64_t)patience;
}

/* What an evaluation means: *is_best for the checkpoints, *ends for early stopping. */
static void judge(ckpt_rank *r, double loss, bool *is_best, bool *ends) {
  const ckpt_train_options *o = r->job->options;
  const char *greater = r->job->arguments->greater_is_better;
  const double sign = greater != NULL && strcmp(greater, "true") == 0 ? -1 : 1;
  const double better = sign * (r->state.best_metric - loss);
  *is_best = isnan(r->state.best_metric) || better > 0;
  const bool is_enough = isnan(r->state.best_metric) || (better > 0 && better > o->threshold);
  if (*is_best) {
    r->state.best_metric = loss;
    r->state.best_step = r->state.step;
  }
  r->state.patience = is_enough ? 0 : r->state.patience + 1;
  *ends = has_stopped(r);
}

/* After a step: log, evaluate, save. *ends: the run is over. */
static ckpt_status after_step(ckpt_rank *r, const ckpt_step_result *result, bool *ends, ckpt_error *err) {
  ckpt_job *job = r->job;
  const ckpt_arguments *a = job->arguments;
  const uint64_t step = r->state.step;
  const bool is_last = step == job->n_steps;
  bool is_best = false, is_early = false;
  const bool is_shown = is_due(job, a->logging_strategy, job->log_every, step) || (a->logging_first_step && step == 1);
  if (r->groups.all->rank == 0) CKPT_TRY(ckpt_job_log_step(job, r, result, is_shown || is_last, err));
  if (job->eval_data != NULL && eval_is_due(job, step)) {
    CKPT_TRY(ckpt_rank_evaluate(r, &r->eval_loss, err));
    judge(r, r->eval_loss, &is_best, &is_early);
    ckpt_plateau_step(&r->state.plateau, &job->schedule, r->eval_loss);
    r->state.learning_rate = ckpt_schedule_rate(&job->schedule, &r->state.plateau, step);
  }
  const bool by_steps = strcmp(a->save_strategy, "steps") == 0;
  bool saves = is_due(job, a->save_strategy, job->save_every, step) || (by_steps && is_last);
  saves = saves || (is_best && strcmp(a->save_strategy, "best") == 0) || result->wants_stop;
  if (saves) CKPT_TRY(ckpt_rank_save(r, err));
  if (result->wants_stop && !is_last) r->outcome = CKPT_OUTCOME_STOPPED;
  if (is_early && r->groups.all->rank == 0)
    ckpt_job_report(job, CKPT_REPORT_NOTE, "early stopping: no better evaluation for %llu in a row",
                    (unsigned long long)r->state.patience);
  *ends = is_last || result->wants_stop || is_early;
  return CKPT_OK;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static ckpt_status dump(ckpt_rank *r, ckpt_error *err) {
  const ckpt_train_options *o = r->job->options;
  if (o->dump_logits != NULL) CKPT_TRY(ckpt_dump_logits(r, o->dump_logits, err));
  if (o->dump_grads == NULL) return CKPT_OK;
  ckpt_step_result result = {0};
  CKPT_TRY(ckpt_rank_step(r, r->state.step, &result, err));
  return ckpt_dump_gradients(r, o->dump_grads, err);
}

static ckpt_status run(ckpt_rank *r, ckpt_error *err) {
  ckpt_job *job = r->job;
  CKPT_TRY(begin(r, err));
  if (ckpt_job_only_dumps(job)) return dump(r, err);
  const double begun = ckpt_seconds();
  if (job->arguments->eval_on_start && job->eval_data != NULL && r->state.step == 0)
    CKPT_TRY(ckpt_rank_evaluate(r, &r->eval_loss, err));
  bool ends = r->state.step >= job->n_steps || has_stopped(r);
  while (!ends) {
    ckpt_step_result result = {0};
    CKPT_TRY(ckpt_rank_step(r, r->state.step, &result, err));
    CKPT_TRY(after_step(r, &result, &ends, err));
  }
  if (r->outcome == CKPT_OUTCOME_STOPPED) {
    if (job->is_unsaved) r->outcome = CKPT_OUTCOME_INCOMPLETE;
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_rank_finish(r, err));
  if (job->save_failed) r->outcome = CKPT_OUTCOME_INCOMPLETE;
  return r->groups.all->rank == 0 ? ckpt_job_write_results(job, r, ckpt_seconds() - begun, err) : CKPT_OK;
}

void ckpt_rank_run(ckpt_rank *r) {
  r->status = run(r, &r->error);
  if (r->status == CKPT_OK) return;
  ckpt_rank_groups_abort(&r->groups);
}
