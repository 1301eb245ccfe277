/* saving.c - checkpoints of a run, those that go, and the final model. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/group.h"
#include "libckpt/base/text.h"
#include "trainer/checkpoint/save.h"
#include "trainer/loop/job.h"

static void path_of(char out[PATH_MAX], const ckpt_job *job, const char *what, uint64_t step) {
  ckpt_c_snprintf(out, PATH_MAX, "%s/%s%llu", job->options->output, what, (unsigned long long)step);
}

static ckpt_status index_of(ckpt_index **out, const ckpt_rank *r, bool has_optimizer, ckpt_error *err) {
  const ckpt_job *job = r->job;
  const ckpt_arguments *a = job->arguments;
  const ckpt_group_settings settings = {r->state.learning_rate, a->learning_rate, a->adam_beta1,
                                        a->adam_beta2,          a->adam_epsilon,  a->weight_decay};
  const ckpt_state_parts parts = {.model = job->trained,
                                  .ranks = job->ranks,
                                  .n_ranks = r->groups.shards->size,
                                  .stage = r->sharded->stage,
                                  .weights = r->sharded->own != NULL ? NULL : r->sharded->host.weights,
                                  .progress = &r->state,
                                  .settings = &settings,
                                  .carried = job->carried,
                                  .n_carried = job->n_carried,
                                  .has_optimizer = has_optimizer};
  return ckpt_state_index(out, &parts, err);
}

/* Writes the state in one format; called by all ranks of the first replica. */
static ckpt_status write_shards(ckpt_rank *r, const char *path, const char *format, ckpt_digest *digest,
                                ckpt_error *err) {
  const bool has_optimizer = !r->job->arguments->save_only_model;
  const ckpt_group group = ckpt_collective_group(r->groups.shards);
  ckpt_index *state = NULL;
  ckpt_status status = ckpt_group_agree(&group, index_of(&state, r, has_optimizer, err), err);
  if (status != CKPT_OK) { /* of one of them: the others have theirs */
    ckpt_index_free(state);
    return status;
  }
  const ckpt_save_request request = {.state = state,
                                     .path = path,
                                     .format = format,
                                     .include = has_optimizer ? "all" : "model",
                                     .n_ranks = strcmp(format, "torch") == 0 ? 0 : group.size,
                                     .stage = strcmp(format, "zero") == 0 ? r->job->options->stage : 0,
                                     .group = group.size == 1 ? NULL : &group,
                                     .n_threads = r->job->n_threads};
  status = ckpt_save(&request, digest, err);
  ckpt_index_free(state);
  return status;
}

/* The same, called by all ranks: other replicas have what the first one has, and learn how it went. */
static ckpt_status write_format(ckpt_rank *r, const char *path, const char *format, ckpt_digest *digest,
                                ckpt_error *err) {
  const ckpt_group group = ckpt_collective_group(r->groups.all);
  const bool writes = r->groups.replicas->rank == 0;
  return ckpt_group_agree(&group, writes ? write_shards(r, path, format, digest, err) : CKPT_OK, err);
}

/* What a checkpoint of one format, or of each of several, is called below its folder. torch writes a file. */
static ckpt_status place_of(char out[PATH_MAX], const char *folder, const char *format, bool is_one, bool is_maker,
                            ckpt_error *err) {
  const bool is_file = strcmp(format, "torch") == 0;
  ckpt_c_snprintf(out, PATH_MAX, "%s/%s", folder, is_one ? "" : format);
  if (!is_file) return CKPT_OK;
  if (is_maker && !is_one && mkdir(out, 0777) != 0) return ckpt_fail_errno(err, out, "the folder cannot be made");
  ckpt_c_snprintf(out, PATH_MAX, "%s/%s%sstate.pt", folder, is_one ? "" : format, is_one ? "" : "/");
  return CKPT_OK;
}

/* Several formats, each in a folder of its name, or a file, below the folder `staged`, which this makes. */
static ckpt_status write_staged(ckpt_rank *r, const char *staged, const char *formats, ckpt_digest *digest,
                                ckpt_error *err) {
  char below[PATH_MAX], format[32];
  ckpt_status status = CKPT_OK;
  const bool is_one = strchr(formats, ',') == NULL, is_maker = r->groups.all->rank == 0;
  const ckpt_group group = ckpt_collective_group(r->groups.all);
  if (is_maker) status = ckpt_remove_all(staged, err);
  if (status == CKPT_OK && is_maker && mkdir(staged, 0777) != 0)
    status = ckpt_fail_errno(err, staged, "the folder cannot be made");
  while (*formats != '\0') {
    const size_t n = strcspn(formats, ",");
    ckpt_c_snprintf(format, sizeof format, "%.*s", (int)n, formats);
    if (status == CKPT_OK) status = place_of(below, staged, format, is_one, is_maker, err);
    CKPT_TRY(ckpt_group_agree(&group, status, err));
    CKPT_TRY(write_format(r, below, format, digest, err));
    formats += n + (formats[n] == ',');
  }
  return CKPT_OK;
}

/* A durable folder under its name; the folder above is synced before anything that it replaces may go. */
static ckpt_status put_in_place(const ckpt_job *job, const char *staged, const char *path, ckpt_error *err) {
  CKPT_TRY(ckpt_sync_entries(staged, err));
  if (rename(staged, path) != 0) return ckpt_fail_errno(err, path, "it cannot be put in place");
  return ckpt_sync_entries(job->options->output, err);
}

/* The same in a folder that appears with all that is in it. What cannot be finished gives its room back. */
static ckpt_status write_several(ckpt_rank *r, const char *path, const char *formats, ckpt_digest *digest,
                                 ckpt_error *err) {
  char staged[PATH_MAX];
  const bool is_maker = r->groups.all->rank == 0;
  const ckpt_group group = ckpt_collective_group(r->groups.all);
  path_of(staged, r->job, CKPT_STAGED, r->state.step);
  ckpt_status status = write_staged(r, staged, formats, digest, err);
  if (status == CKPT_OK && is_maker) status = put_in_place(r->job, staged, path, err);
  status = ckpt_group_agree(&group, status, err);
  if (status != CKPT_OK && is_maker) (void)ckpt_remove_all(staged, NULL);
  return status;
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

/* Of those that this run wrote, the oldest go, the best one never. */
static ckpt_status rotate(ckpt_job *job, const ckpt_rank *r, ckpt_error *err) {
  const int64_t limit = job->arguments->save_total_limit;
  if (limit == CKPT_ARGUMENT_NONE || limit <= 0) return CKPT_OK;
  uint64_t *steps;
  size_t n;
  CKPT_TRY(ckpt_job_checkpoints(job, &steps, &n, err));
  const bool keeps_best = job->arguments->load_best_model_at_end || strcmp(job->arguments->save_strategy, "best") == 0;
  const bool has_best = keeps_best && r->state.best_saved != 0;
  size_t n_own = 0;
  for (size_t i = 0; i < n; i++) { /* only those that run.json names */
    char name[64];
    ckpt_c_snprintf(name, sizeof name, "\"checkpoint-%llu\"", (unsigned long long)steps[i]);
    if (job->checkpoints != NULL && strstr(job->checkpoints, name) != NULL) steps[n_own++] = steps[i];
  }
  int64_t n_kept = (int64_t)n_own;
  ckpt_status status = CKPT_OK;
  const bool best_is_last = n_own != 0 && steps[n_own - 1] == r->state.best_saved;
  const int64_t least = has_best && !best_is_last ? 2 : 1; /* best and last stay, even where one is asked for */
  for (size_t i = 0; i + 1 < n_own && n_kept > (limit > least ? limit : least) && status == CKPT_OK; i++) {
    char path[PATH_MAX], going[PATH_MAX];
    if (has_best && steps[i] == r->state.best_saved) continue;
    path_of(path, job, "checkpoint-", steps[i]);
    path_of(going, job, CKPT_GOING, steps[i]);
    if (rename(path, going) != 0) status = ckpt_fail_errno(err, path, "it cannot be removed");
    if (status == CKPT_OK) status = ckpt_remove_all(going, err);
    if (status == CKPT_OK) status = ckpt_job_note_checkpoint(job, steps[i], NULL, err);
    n_kept--;
  }
  free(steps);
  return status;
}

/* An old checkpoint that stays is no loss. */
static void rotate_or_warn(ckpt_job *job, const ckpt_rank *r) {
  char text[2048];
  ckpt_error why = {0};
  if (rotate(job, r, &why) != CKPT_OK)
    ckpt_job_report(job, CKPT_REPORT_WARNING, "an old checkpoint stays: %s", ckpt_error_text(&why, text, sizeof text));
}

/* ---- a checkpoint ------------------------------------------------------------------------------------------------ */

ckpt_status ckpt_rank_save(ckpt_rank *r, ckpt_error *err) {
  ckpt_job *job = r->job;
  char path[PATH_MAX], text[2048];
  ckpt_digest digest;
  ckpt_error why = {0};
  const char *formats = job->options->save_format == NULL ? "dcp" : job->options->save_format;
  path_of(path, job, "checkpoint-", r->state.step);
  CKPT_TRY(ckpt_sharded_gather_saved(r->sharded, err));
  CKPT_TRY(ckpt_sharded_to_host(r->sharded, err));
  double exists = access(path, F_OK) == 0;
  CKPT_TRY(ckpt_collective_sum(r->groups.all, &exists, 1, err));
  const uint64_t best_saved = r->state.best_saved;
  if (r->state.best_step == r->state.step) r->state.best_saved = r->state.step; /* the checkpoint says so itself */
  const bool is_staged = strchr(formats, ',') != NULL || strcmp(formats, "torch") == 0;
  const double begin = ckpt_seconds();
  ckpt_status status = exists != 0
                           ? ckpt_fail(&why, CKPT_EEXIST, path, NULL, "it is there, and this run did not write it")
                       : is_staged ? write_several(r, path, formats, &digest, &why)
                                   : write_format(r, path, formats, &digest, &why);
  if (r->groups.all->rank == 0 && status == CKPT_OK) {
    status = ckpt_job_note_checkpoint(job, r->state.step, ckpt_digest_text(&digest, text), &why);
    if (status == CKPT_OK) rotate_or_warn(job, r);
  }
  if (status != CKPT_OK) r->state.best_saved = best_saved;
  if (status == CKPT_ECANCELED) return ckpt_fail(err, status, NULL, NULL, "%s", why.message);
  if (r->groups.all->rank == 0) job->is_unsaved = status != CKPT_OK;
  if (r->groups.all->rank == 0) job->save_seconds += ckpt_seconds() - begin;
  if (status != CKPT_OK && r->groups.all->rank == 0) {
    job->save_failed = true;
    ckpt_job_report(job, CKPT_REPORT_WARNING, "the checkpoint of step %llu is not written, training goes on: %s",
                    (unsigned long long)r->state.step, ckpt_error_text(&why, text, sizeof text));
  }
  return ckpt_collective_barrier(r->groups.all, err); /* nobody's memory changes before all have written it */
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The best evaluation may have been between two checkpoints: then the best that was saved is taken, as the Trainer
 * does. */
static ckpt_status load_best(ckpt_rank *r, ckpt_error *err) {
  const unsigned long long best = r->state.best_step, saved = r->state.best_saved;
  char path[PATH_MAX];
  ckpt_index *index = NULL;
  path_of(path, r->job, "checkpoint-", saved);
  const bool is_there = saved != 0 && access(path, F_OK) == 0, is_first = r->groups.all->rank == 0;
  if (!is_there && is_first)
    ckpt_job_report(r->job, CKPT_REPORT_WARNING,
                    "the best evaluation, of step %llu, has no checkpoint: the last weights stay", best);
  else if (best != saved && is_first)
    ckpt_job_report(r->job, CKPT_REPORT_WARNING,
                    "the best evaluation, of step %llu, has no checkpoint: the weights are those of step %llu", best,
                    saved);
  if (!is_there) return CKPT_OK;
  CKPT_TRY(ckpt_open_checkpoint(&index, path, err));
  const ckpt_status status = ckpt_state_load_weights(r->sharded, index, err);
  ckpt_index_free(index);
  return status;
}

/* An adapter's folder, as PEFT writes it. */
static ckpt_status write_adapter(const ckpt_rank *r, const char *staged, ckpt_error *err) {
  const ckpt_job *job = r->job;
  char path[PATH_MAX];
  ckpt_plan *plan = NULL;
  uint32_t sink;
  if (mkdir(staged, 0777) != 0) return ckpt_fail_errno(err, staged, "the folder cannot be made");
  ckpt_c_snprintf(path, sizeof path, "%s/adapter_model.safetensors", staged);
  CKPT_TRY(ckpt_plan_new(&plan, err));
  ckpt_status status = ckpt_plan_output(plan, path, "safetensors", false, &sink, err);
  const float *weights = r->sharded->host.weights;
  if (status == CKPT_OK) status = ckpt_model_save_rows(plan, sink, job->trained, weights, CKPT_F32, err);
  if (status == CKPT_OK) status = ckpt_plan_run(plan, NULL, err);
  ckpt_plan_free(plan);
  for (uint32_t i = 0; i < job->n_carried && status == CKPT_OK; i++) {
    ckpt_c_snprintf(path, sizeof path, "%s/%s", staged, job->carried[i].name);
    status = ckpt_write_whole(path, job->carried[i].bytes, job->carried[i].n_bytes, err);
  }
  return status == CKPT_OK ? ckpt_publish_files(staged, job->options->output, err) : status;
}

/* Rank 0 alone: it has all weights. */
static ckpt_status write_final(ckpt_rank *r, ckpt_error *err) {
  char staged[PATH_MAX];
  ckpt_index *state = NULL;
  ckpt_c_snprintf(staged, sizeof staged, "%s/" CKPT_FINAL, r->job->options->output);
  CKPT_TRY(ckpt_remove_all(staged, err));
  if (r->job->lora != NULL) return write_adapter(r, staged, err);
  CKPT_TRY(index_of(&state, r, false, err));
  const ckpt_save_request request = {
      .state = state, .path = staged, .format = "hf", .include = "model", .n_threads = r->job->n_threads};
  const ckpt_status status = ckpt_save(&request, NULL, err);
  ckpt_index_free(state);
  CKPT_TRY(status);
  return ckpt_publish_files(staged, r->job->options->output, err);
}

ckpt_status ckpt_rank_finish(ckpt_rank *r, ckpt_error *err) {
  CKPT_TRY(ckpt_sharded_gather_saved(r->sharded, err));
  CKPT_TRY(ckpt_sharded_to_host(r->sharded, err));
  CKPT_TRY(ckpt_collective_barrier(r->groups.all, err)); /* the first one reads what all have */
  if (r->job->arguments->load_best_model_at_end && !isnan(r->state.best_metric)) CKPT_TRY(load_best(r, err));
  CKPT_TRY(ckpt_collective_barrier(r->groups.all, err));
  if (r->groups.all->rank == 0) rotate_or_warn(r->job, r); /* a run that was killed may not have come to it */
  if (r->groups.all->rank == 0) CKPT_TRY(write_final(r, err));
  return ckpt_collective_barrier(r->groups.all, err);
}
