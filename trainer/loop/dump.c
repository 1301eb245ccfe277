/* dump.c - what --dump-grads and --dump-logits write: one safetensors file, through a plan. */
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "libckpt/plan/plan.h"
#include "trainer/loop/job.h"

/* A plan of one file, which must not be one that the run reads. */
static ckpt_status plan_file(ckpt_plan **plan, uint32_t *sink, const ckpt_job *job, const char *path, ckpt_error *err) {
  CKPT_TRY(ckpt_plan_new(plan, err));
  if (job->base != NULL) CKPT_TRY(ckpt_plan_reads(*plan, job->base, job->options->model, err));
  if (job->resumed != NULL) CKPT_TRY(ckpt_plan_reads(*plan, job->resumed, job->resumed->path, err));
  return ckpt_plan_output(*plan, path, "safetensors", job->options->force, sink, err);
}

static ckpt_status write_gradients(const ckpt_rank *r, const float *gradients, const char *path, ckpt_error *err) {
  ckpt_plan *plan = NULL;
  uint32_t sink;
  ckpt_status status = plan_file(&plan, &sink, r->job, path, err);
  if (status == CKPT_OK) status = ckpt_model_save_rows(plan, sink, r->job->trained, gradients, CKPT_F32, err);
  if (status == CKPT_OK) status = ckpt_plan_run(plan, NULL, err);
  ckpt_plan_free(plan);
  return status;
}

ckpt_status ckpt_dump_gradients(const ckpt_rank *r, const char *path, ckpt_error *err) {
  float *gradients = calloc((size_t)r->job->trained->n_flat + 1, sizeof *gradients);
  CKPT_TRY_ALLOC(gradients, err);
  ckpt_status status = ckpt_sharded_whole_gradients(r->sharded, gradients, err);
  if (status == CKPT_OK && r->groups.all->rank == 0) status = write_gradients(r, gradients, path, err);
  free(gradients);
  return status;
}

static ckpt_status write_logits(const ckpt_job *job, const ckpt_token_batch *batch, const char *path, ckpt_error *err) {
  const uint64_t shape[] = {batch->n_rows, batch->length, job->model->vocabulary};
  ckpt_plan *plan = NULL;
  ckpt_expr *expr;
  uint32_t sink;
  ckpt_status status = plan_file(&plan, &sink, job, path, err);
  if (status == CKPT_OK) status = ckpt_expr_memory(&expr, plan, CKPT_F32, 3, shape, batch->logits, err);
  if (status == CKPT_OK) status = ckpt_plan_add(plan, sink, "logits", expr, err);
  if (status == CKPT_OK) status = ckpt_plan_run(plan, NULL, err);
  ckpt_plan_free(plan);
  return status;
}

ckpt_status ckpt_dump_logits(ckpt_rank *r, const char *path, ckpt_error *err) {
  const ckpt_job *job = r->job;
  uint64_t first, n_rows;
  ckpt_order_rows(&job->order, 0, 0, 0, &first, &n_rows);
  CKPT_TRY(ckpt_batch_load(&r->eval_batch, job->data, &job->order, 0, first, n_rows,
                           job->options->packing == CKPT_PACKING_DOCUMENT, &r->sample, err));
  ckpt_token_batch batch = r->groups.all->rank == 0 ? r->eval_batch.batch : (ckpt_token_batch){0};
  ckpt_forward_result result;
  CKPT_TRY(ckpt_rank_gather(r, err));
  CKPT_TRY(ckpt_rank_executor(r, batch.n_rows, batch.length, err));
  batch.logits = calloc((size_t)batch.n_rows * batch.length, job->model->vocabulary * sizeof(float));
  CKPT_TRY_ALLOC(batch.logits, err);
  ckpt_status status = ckpt_executor_forward(r->executor, &batch, &result, err);
  if (status == CKPT_OK && r->groups.all->rank == 0) status = write_logits(job, &batch, path, err);
  free(batch.logits);
  return status;
}
