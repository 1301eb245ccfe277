/* step.c - one step of training on one rank. All decisions (how many targets, whether the update is taken, whether to
 * stop) come from sums over all ranks, so every rank decides alike. */
#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/loop/job.h"
#include "trainer/optimizer/random.h"

/* What dropout draws under in a step: the same on every rank, and when the step is taken again. */
static uint64_t dropout_key(const ckpt_job *job, uint64_t step) {
  uint32_t words[4];
  ckpt_philox(words, (uint64_t)job->arguments->seed, step, ckpt_name_key("dropout"));
  return (uint64_t)words[1] << 32 | words[0];
}

/* The threads that read ahead, from this step on. */
static ckpt_status start_loader(ckpt_rank *r, uint64_t step, ckpt_error *err) {
  const ckpt_job *job = r->job;
  const ckpt_loader_options options = {.dataset = job->data,
                                       .order = &job->order,
                                       .rank = r->groups.all->rank,
                                       .first_step = step,
                                       .n_steps = job->n_steps,
                                       .has_documents = job->options->packing == CKPT_PACKING_DOCUMENT,
                                       .n_threads = (job->n_threads + 3) / 4};
  return ckpt_loader_new(&r->loader, &options, err);
}

static ckpt_status load_batches(ckpt_rank *r, uint64_t step, uint64_t n, ckpt_error *err) {
  if (r->loader == NULL) CKPT_TRY(start_loader(r, step, err));
  for (uint64_t i = 0; i < n; i++) {
    CKPT_TRY(ckpt_loader_take(r->loader, &r->batches[i], err));
    r->batches[i].batch.label_smoothing = r->job->arguments->label_smoothing_factor;
    r->batches[i].batch.dropout_key = dropout_key(r->job, step);
  }
  return CKPT_OK;
}

/* One batch: its gradients are added to those of what is trained. */
static ckpt_status train(ckpt_rank *r, const ckpt_token_batch *rows, double scale, ckpt_forward_result *result,
                         ckpt_error *err) {
  const ckpt_job *job = r->job;
  ckpt_token_batch batch = *rows;
  if (r->merged == NULL) {
    batch.begins_gradients = rows->n_rows != 0 && ckpt_sharded_take_beginning(r->sharded);
    return ckpt_executor_train(r->executor, &batch, scale, result, err);
  }
  ckpt_sharded_clear(r->sharded);
  memset(r->merged_gradients, 0, job->model->n_flat * sizeof(float));
  CKPT_TRY(ckpt_executor_train(r->executor, &batch, scale, result, err));
  return ckpt_lora_project(job->lora, r->device, r->sharded->gradients, r->merged_gradients, r->merged, r->norms,
                           r->sharded->weights, err);
}

static ckpt_status run_batches(ckpt_rank *r, uint64_t n, double scale, double *loss_sum, ckpt_error *err) {
  CKPT_TRY(ckpt_sharded_begin(r->sharded, err));
  CKPT_TRY(ckpt_rank_merge(r, err));
  *loss_sum = 0;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_token_batch *batch = &r->batches[i].batch;
    const bool has_some = batch->n_rows != 0 && r->batches[i].n_targets != 0;
    if (has_some || r->sharded->units != NULL) { /* one that has no rows meets the others in each layer */
      const ckpt_token_batch none = {0};
      ckpt_forward_result result;
      CKPT_TRY(ckpt_rank_executor(r, has_some ? batch->n_rows : 0, batch->length, err));
      CKPT_TRY(train(r, has_some ? batch : &none, scale, &result, err));
      *loss_sum += result.loss_sum;
    }
    CKPT_TRY(ckpt_sharded_reduce(r->sharded, i + 1 == n, err));
  }
  return ckpt_collective_sum(r->groups.all, loss_sum, 1, err);
}

/* A step whose loss or norm is not finite is not taken. */
static ckpt_status skip(ckpt_rank *r, const ckpt_step_result *result, uint64_t step, ckpt_error *err) {
  const ckpt_job *job = r->job;
  r->state.n_skipped++;
  if (r->state.n_skipped > job->options->max_skipped)
    return ckpt_fail(err, CKPT_EVALUE, NULL, NULL,
                     "step %llu: loss %g, gradient norm %g: the update is not taken, and %llu step%s may be skipped "
                     "(--max-skipped)",
                     (unsigned long long)step + 1, result->loss, result->norm,
                     (unsigned long long)job->options->max_skipped, job->options->max_skipped == 1 ? "" : "s");
  if (r->groups.all->rank == 0)
    ckpt_job_report(job, CKPT_REPORT_WARNING, "step %llu is skipped: loss %g, gradient norm %g",
                    (unsigned long long)step + 1, result->loss, result->norm);
  return CKPT_OK;
}

static ckpt_status update(ckpt_rank *r, ckpt_step_result *result, ckpt_error *err) {
  const ckpt_arguments *a = r->job->arguments;
  r->state.n_updates++;
  r->state.loss_sum += result->loss;
  const ckpt_adamw how = {.learning_rate = result->learning_rate,
                          .beta1 = a->adam_beta1,
                          .beta2 = a->adam_beta2,
                          .epsilon = a->adam_epsilon,
                          .weight_decay = a->weight_decay,
                          .scale = result->clip,
                          .step = r->state.n_updates};
  return ckpt_sharded_update(r->sharded, &how, err);
}

ckpt_status ckpt_rank_step(ckpt_rank *r, uint64_t step, ckpt_step_result *result, ckpt_error *err) {
  const ckpt_job *job = r->job;
  const double begin = ckpt_seconds(), comm = ckpt_rank_groups_seconds(&r->groups);
  const uint64_t n = ckpt_order_accumulated(&job->order, step);
  const volatile sig_atomic_t *stop = job->options->stop;
  double counts[3] = {0, 0, stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0};
  CKPT_TRY(load_batches(r, step, n, err));
  for (uint64_t i = 0; i < n; i++) {
    counts[0] += (double)r->batches[i].n_targets;
    counts[1] += (double)r->batches[i].n_tokens;
  }
  result->data_seconds = ckpt_seconds() - begin;
  CKPT_TRY(ckpt_collective_sum(r->groups.all, counts, 3, err));
  if (counts[0] == 0)
    return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "step %llu has no token to learn from (labels are -100, or masked)",
                     (unsigned long long)step + 1);
  double loss_sum;
  CKPT_TRY(run_batches(r, n, 1.0 / counts[0], &loss_sum, err));
  result->loss = loss_sum / counts[0];
  CKPT_TRY(ckpt_sharded_norm(r->sharded, &result->norm, err));
  if (step == job->start.step && job->options->dump_grads != NULL) return CKPT_OK;
  result->clip = ckpt_clip_scale(result->norm, job->arguments->max_grad_norm);
  result->learning_rate = ckpt_schedule_rate(&job->schedule, &r->state.plateau, step);
  result->is_skipped = !isfinite(result->loss) || !isfinite(result->norm);
  CKPT_TRY(result->is_skipped ? skip(r, result, step, err) : update(r, result, err));
  r->state.step = step + 1;
  r->state.n_tokens += (uint64_t)counts[1];
  r->state.learning_rate = ckpt_schedule_rate(&job->schedule, &r->state.plateau, step + 1);
  result->n_tokens = counts[1];
  result->wants_stop = counts[2] != 0;
  result->comm_seconds = ckpt_rank_groups_seconds(&r->groups) - comm;
  result->seconds = ckpt_seconds() - begin;
  return CKPT_OK;
}
