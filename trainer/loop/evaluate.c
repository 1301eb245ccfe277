/* evaluate.c - the loss over the data to evaluate on: batches are cut as one process cuts them and dealt out whole, and
 * the mean of their means, weighted by rows, is taken in their order. So it is the same for any number of ranks. */
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "trainer/loop/job.h"

static ckpt_status evaluate_batches(ckpt_rank *r, const ckpt_order *order, uint64_t n, double *means, double *rows,
                                    ckpt_error *err) {
  const ckpt_job *job = r->job;
  const uint64_t size = r->groups.all->size;
  for (uint64_t k = r->groups.all->rank; k < (n + size - 1) / size * size; k += size) {
    const ckpt_token_batch none = {0};
    uint64_t first, n_rows = 0;
    ckpt_forward_result result;
    r->eval_batch.n_targets = 0;
    if (k < n) {
      ckpt_order_rows(order, k, 0, 0, &first, &n_rows);
      CKPT_TRY(ckpt_batch_load(&r->eval_batch, job->eval_data, order, 0, first, n_rows,
                               job->options->packing == CKPT_PACKING_DOCUMENT, &r->sample, err));
    }
    const bool has_some = r->eval_batch.n_targets != 0; /* else it has no mean */
    if (!has_some && r->sharded->units == NULL) continue;
    r->eval_batch.batch.label_smoothing = job->arguments->label_smoothing_factor;
    const ckpt_token_batch *batch = has_some ? &r->eval_batch.batch : &none;
    CKPT_TRY(ckpt_rank_executor(r, batch->n_rows, batch->length, err));
    CKPT_TRY(ckpt_executor_forward(r->executor, batch, &result, err));
    if (!has_some) continue;
    means[k] = result.loss_sum / (double)result.n_targets;
    rows[k] = (double)n_rows;
  }
  return CKPT_OK;
}

ckpt_status ckpt_rank_evaluate(ckpt_rank *r, double *loss, ckpt_error *err) {
  const ckpt_job *job = r->job;
  const ckpt_order order = {.n_samples = ckpt_dataset_count(job->eval_data),
                            .batch = (uint64_t)job->arguments->per_device_eval_batch_size,
                            .accumulation = 1,
                            .ranks = 1,
                            .is_sequential = true};
  const uint64_t n = ckpt_order_batches(&order);
  const double begin = ckpt_seconds();
  double *means = calloc(2 * n, sizeof *means), *rows = means == NULL ? NULL : means + n;
  CKPT_TRY_ALLOC(means, err);
  ckpt_status status = ckpt_rank_gather(r, err);
  if (status == CKPT_OK) status = evaluate_batches(r, &order, n, means, rows, err);
  if (status == CKPT_OK) status = ckpt_collective_sum(r->groups.all, means, 2 * n, err);
  double sum = 0, n_rows = 0;
  for (uint64_t k = 0; k < n; k++) {
    sum += means[k] * rows[k];
    n_rows += rows[k];
  }
  *loss = n_rows == 0 ? 0 : sum / n_rows;
  free(means);
  if (status == CKPT_OK && n_rows == 0)
    return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "the data to evaluate on have no token to predict");
  if (status == CKPT_OK && r->groups.all->rank == 0)
    status = ckpt_job_log_eval(r->job, r, *loss, ckpt_seconds() - begin, err);
  return status;
}
