/* train.c - see train.h: the ranks are threads; the first that fails says why. */
#include "trainer/loop/train.h"

#include <pthread.h>
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "trainer/loop/job.h"
#include "trainer/parallel/axis_threads.h"

static void *run_rank(void *arg) {
  ckpt_rank_run(arg);
  return NULL;
}

static void free_rank(ckpt_rank *r, uint64_t accumulation) {
  ckpt_loader_free(r->loader);
  for (uint64_t i = 0; r->batches != NULL && i < accumulation; i++) ckpt_batch_free(&r->batches[i]);
  free(r->batches);
  ckpt_batch_free(&r->eval_batch);
  ckpt_sample_free(&r->sample);
  ckpt_executor_free(r->executor);
  ckpt_sharded_free(r->sharded);
  free(r->base);
  if (r->frozen != NULL) r->device->table->release(r->device, r->frozen, (size_t)r->job->model->n_flat * sizeof(float));
  free(r->merged);
  free(r->norms);
  free(r->places);
  free(r->merged_gradients);
  ckpt_device_free(r->device);
}

/* No thread of any rank is at work when the first of them goes. */
static void free_ranks(ckpt_rank *ranks, uint32_t n, uint64_t accumulation) {
  for (uint32_t i = 0; i < n; i++) ckpt_sharded_stop(ranks[i].sharded);
  for (uint32_t i = 0; i < n; i++) free_rank(&ranks[i], accumulation);
  free(ranks);
}

/* The failure that was first a rank's own, and not that of waiting for another. */
static ckpt_status first_failure(const ckpt_rank *ranks, uint32_t n, ckpt_error *err) {
  const ckpt_rank *failed = NULL;
  for (uint32_t i = 0; i < n; i++)
    if (ranks[i].status != CKPT_OK && (failed == NULL || failed->status == CKPT_ECANCELED)) failed = &ranks[i];
  if (failed == NULL) return CKPT_OK;
  if (n == 1) {
    if (err != NULL) *err = failed->error;
    return failed->status;
  }
  return ckpt_fail(err, failed->status, failed->error.file, failed->error.tensor, "rank %u: %.900s",
                   failed->groups.all->rank, failed->error.message);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

enum { ALL, SHARDS, BACKGROUND, REPLICAS, N_GROUPS };

static ckpt_status new_groups(ckpt_axis_threads **out, const ckpt_job *job, ckpt_error *err) {
  static const ckpt_axis_set sets[N_GROUPS] = {
      [ALL] = {"all ranks", (1U << CKPT_N_MESH_AXES) - 1},
      [SHARDS] = {"dp_shard", 1U << CKPT_MESH_DP_SHARD},
      [BACKGROUND] = {"dp_shard beside", 1U << CKPT_MESH_DP_SHARD},
      [REPLICAS] = {"dp_replicate", 1U << CKPT_MESH_DP_REPLICATE},
  };
  const uint32_t n_shards = ckpt_job_shards(job);
  const ckpt_mesh mesh = {{job->options->n_ranks / n_shards, n_shards, 1, 1}};
  return ckpt_axis_threads_new(out, &mesh, sets, N_GROUPS, 0, err);
}

static ckpt_rank_groups groups_of(ckpt_axis_threads *groups, uint32_t rank) {
  return (ckpt_rank_groups){.all = ckpt_axis_threads_group(groups, rank, ALL),
                            .shards = ckpt_axis_threads_group(groups, rank, SHARDS),
                            .background = ckpt_axis_threads_group(groups, rank, BACKGROUND),
                            .replicas = ckpt_axis_threads_group(groups, rank, REPLICAS)};
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* Runs all ranks, the first on this thread. */
static ckpt_status run_ranks(ckpt_job *job, ckpt_rank *ranks, ckpt_axis_threads *groups, ckpt_error *err) {
  const uint32_t n = job->options->n_ranks;
  pthread_t *threads = calloc(n, sizeof *threads);
  CKPT_TRY_ALLOC(threads, err);
  uint32_t n_started = 1;
  for (uint32_t i = 0; i < n; i++) ranks[i] = (ckpt_rank){.job = job, .groups = groups_of(groups, i)};
  while (n_started < n && pthread_create(&threads[n_started], NULL, run_rank, &ranks[n_started]) == 0) n_started++;
  ckpt_status status = CKPT_OK;
  if (n_started < n) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "rank %u of %u cannot be started", n_started, n);
    for (uint32_t i = 0; i < n; i++) ckpt_rank_groups_abort(&ranks[i].groups);
  } else {
    ckpt_rank_run(&ranks[0]);
  }
  for (uint32_t i = 1; i < n_started; i++) pthread_join(threads[i], NULL);
  free(threads);
  return status != CKPT_OK ? status : first_failure(ranks, n, err);
}

static ckpt_status check_device(const ckpt_train_options *options, ckpt_error *err) {
  if (!options->is_on_cuda) return CKPT_OK;
  if (options->n_ranks != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "--device cuda: one rank on one GPU so far, not %u ranks",
                     options->n_ranks);
  return options->plan ? CKPT_OK : ckpt_device_check("cuda", err);
}

/* Whether it was a checkpoint that could not be loaded, and an earlier one is to be tried. */
static bool is_broken_checkpoint(const ckpt_job *job, const ckpt_rank *ranks, ckpt_status status) {
  bool is_resuming = false;
  for (uint32_t i = 0; i < job->options->n_ranks; i++)
    is_resuming = is_resuming || (ranks[i].is_resuming && ranks[i].status != CKPT_ECANCELED);
  return is_resuming && ckpt_job_walks_back(job, status);
}

/* A run from one checkpoint, or from none. *below becomes its step where it could not be loaded; else 0. */
static ckpt_status train_from(const ckpt_train_options *options, uint64_t *below, ckpt_outcome *outcome,
                              ckpt_error *err) {
  ckpt_job job = {.below = *below};
  ckpt_axis_threads *groups = NULL;
  ckpt_rank *ranks = NULL;
  *below = 0;
  ckpt_status status = ckpt_job_open(&job, options, err);
  if (status == CKPT_OK && options->plan) {
    status = ckpt_job_plan(&job, err);
    goto done;
  }
  if (status == CKPT_OK) status = new_groups(&groups, &job, err);
  if (status != CKPT_OK) goto done;
  ranks = calloc(options->n_ranks, sizeof *ranks);
  status =
      ranks == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : run_ranks(&job, ranks, groups, err);
  if (status == CKPT_OK) *outcome = ranks[0].outcome;
  if (ranks != NULL && is_broken_checkpoint(&job, ranks, status)) {
    char text[2048];
    *below = job.start.step;
    ckpt_job_report(&job, CKPT_REPORT_WARNING, "%s is skipped: %s", job.resumed->path,
                    ckpt_error_text(err, text, sizeof text));
  }
  if (ranks != NULL) free_ranks(ranks, options->n_ranks, job.order.accumulation);
done:
  ckpt_axis_threads_free(groups);
  ckpt_job_close(&job);
  return status;
}

ckpt_status ckpt_train(const ckpt_train_options *options, ckpt_outcome *outcome, ckpt_error *err) {
  uint64_t below = 0;
  ckpt_status status;
  *outcome = CKPT_OUTCOME_DONE;
  CKPT_TRY(check_device(options, err));
  do {
    ckpt_error why = {0};
    status = train_from(options, &below, outcome, &why);
    if (status != CKPT_OK && err != NULL) *err = why;
  } while (status != CKPT_OK && below != 0);
  return status;
}
