/* log.c - the files of a run beside its checkpoints: log.jsonl, run.json, train_results.json. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"
#include "trainer/checkpoint/save.h"
#include "trainer/loop/job.h"

void ckpt_job_report(const ckpt_job *job, ckpt_report_kind kind, const char *format, ...) {
  char text[4096];
  va_list args;
  if (job->options->report == NULL) return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  job->options->report(job->options->report_arg, kind, text);
}

static void path_in(char out[PATH_MAX], const ckpt_job *job, const char *name) {
  ckpt_c_snprintf(out, PATH_MAX, "%s/%s", job->options->output, name);
}

static ckpt_status write_all(int fd, const char *path, const char *text, size_t n, ckpt_error *err) {
  for (size_t done = 0; done < n;) {
    const ssize_t wrote = write(fd, text + done, n - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return ckpt_fail_errno(err, path, "it cannot be written");
    done += (size_t)wrote;
  }
  return CKPT_OK;
}

/* A small file that is there whole or as it was. */
static ckpt_status replace_file(const ckpt_job *job, const char *name, const json_t *value, ckpt_error *err) {
  char path[PATH_MAX], staged[PATH_MAX];
  path_in(path, job, name);
  ckpt_c_snprintf(staged, sizeof staged, "%s/.%s.new", job->options->output, name);
  char *text = json_dumps(value, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  CKPT_TRY_ALLOC(text, err);
  const int fd = open(staged, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  ckpt_status status = fd < 0 ? ckpt_fail_errno(err, staged, "it cannot be made") : CKPT_OK;
  if (status == CKPT_OK) status = write_all(fd, staged, text, strlen(text), err);
  if (status == CKPT_OK) status = write_all(fd, staged, "\n", 1, err);
  if (status == CKPT_OK && fsync(fd) != 0) status = ckpt_fail_errno(err, staged, "it cannot be synced");
  if (fd >= 0) close(fd);
  if (status == CKPT_OK && rename(staged, path) != 0) status = ckpt_fail_errno(err, path, "it cannot be put in place");
  if (status != CKPT_OK) unlink(staged);
  free(text);
  return status == CKPT_OK ? ckpt_sync_entries(job->options->output, err) : status;
}

/* ---- log.jsonl --------------------------------------------------------------------------------------------------- */

/* Bytes of the log up to the last line of a step that the checkpoint has; what follows was lost, and is written anew.
 */
static uint64_t length_to_keep(FILE *log, uint64_t step) {
  uint64_t n_kept = 0, n = 0;
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t got; (got = getline(&line, &capacity, log)) > 0;) {
    json_t *row = ckpt_config_json(line, (size_t)got, 0, NULL);
    const json_t *at = json_object_get(row, "step");
    n += (uint64_t)got;
    const bool is_kept = json_is_integer(at) && (uint64_t)json_integer_value(at) <= step && line[got - 1] == '\n';
    json_decref(row);
    if (!is_kept) break;
    n_kept = n;
  }
  free(line);
  return n_kept;
}

ckpt_status ckpt_job_open_log(ckpt_job *job, ckpt_error *err) {
  char path[PATH_MAX];
  path_in(path, job, "log.jsonl");
  FILE *old = fopen(path, "rb");
  const uint64_t n_kept = old == NULL || job->resumed == NULL ? 0 : length_to_keep(old, job->start.step);
  if (old != NULL) fclose(old);
  job->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (job->log < 0 || ftruncate(job->log, (off_t)n_kept) != 0) return ckpt_fail_errno(err, path, "it cannot be made");
  return CKPT_OK;
}

/* JSON has no NaN and no infinity. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* A line that cannot be written, on a full disk, is left out and said; training goes on. */
static ckpt_status append_row(ckpt_job *job, json_t *row, ckpt_error *err) {
  char path[PATH_MAX], said[2048];
  ckpt_error why = {0};
  const json_int_t step = json_integer_value(json_object_get(row, "step"));
  char *text = json_dumps(row, JSON_COMPACT | JSON_PRESERVE_ORDER);
  json_decref(row);
  CKPT_TRY_ALLOC(text, err);
  const size_t n = strlen(text);
  text[n] = '\n'; /* in place of the terminator: one write, one line */
  path_in(path, job, "log.jsonl");
  const off_t begin = lseek(job->log, 0, SEEK_END);
  const bool is_written = write_all(job->log, path, text, n + 1, &why) == CKPT_OK;
  free(text);
  if (is_written) return CKPT_OK;
  if (begin >= 0 && ftruncate(job->log, begin) != 0)
    return ckpt_fail_errno(err, path, "a broken line cannot be removed");
  if (!job->log_failed)
    ckpt_job_report(job, CKPT_REPORT_WARNING, "the line of step %lld is not written, training goes on: %s",
                    (long long)step, ckpt_error_text(&why, said, sizeof said));
  job->log_failed = job->save_failed = true;
  return CKPT_OK;
}

/* As the Trainer adds it up: whole epochs, and the share of batches of the one that it is in. */
static double epoch_of(const ckpt_job *job, uint64_t step) {
  const uint64_t n = job->steps_per_epoch, before = step == 0 ? 0 : (step - 1) / n;
  const uint64_t n_batches = ckpt_order_batches(&job->order), done = (step - before * n) * job->order.accumulation;
  return (double)before + (double)(done < n_batches ? done : n_batches) / (double)n_batches;
}

ckpt_status ckpt_job_log_step(ckpt_job *job, const ckpt_rank *rank, const ckpt_step_result *r, bool is_shown,
                              ckpt_error *err) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  json_t *row = json_object();
  CKPT_TRY_ALLOC(row, err);
  const double rate = r->seconds > 0 ? r->n_tokens / r->seconds : 0;
  json_object_set_new(row, "step", json_integer((json_int_t)rank->state.step));
  json_object_set_new(row, "epoch", json_real(epoch_of(job, rank->state.step)));
  json_object_set_new(row, "loss", number(r->loss));
  json_object_set_new(row, "grad_norm", number(r->norm));
  json_object_set_new(row, "clip_ratio", number(r->clip));
  json_object_set_new(row, "learning_rate", json_real(r->learning_rate));
  json_object_set_new(row, "tokens", json_integer((json_int_t)r->n_tokens));
  json_object_set_new(row, "tokens_per_second", number(rate));
  json_object_set_new(row, "seconds", number(r->seconds));
  json_object_set_new(row, "data_seconds", number(r->data_seconds));
  json_object_set_new(row, "comm_seconds", number(r->comm_seconds));
  json_object_set_new(row, "mem_bytes", json_integer((json_int_t)usage.ru_maxrss * 1024));
  if (r->is_skipped) json_object_set_new(row, "skipped", json_true());
  CKPT_TRY(append_row(job, row, err));
  if (is_shown)
    ckpt_job_report(job, CKPT_REPORT_LINE,
                    "step %llu/%llu  epoch %.2f  loss %.4f  grad_norm %.3f  learning_rate %.3g  %.0f tokens/s",
                    (unsigned long long)rank->state.step, (unsigned long long)job->n_steps,
                    epoch_of(job, rank->state.step), r->loss, r->norm, r->learning_rate, rate);
  return CKPT_OK;
}

ckpt_status ckpt_job_log_eval(ckpt_job *job, const ckpt_rank *rank, double loss, double seconds, ckpt_error *err) {
  json_t *row = json_object();
  CKPT_TRY_ALLOC(row, err);
  json_object_set_new(row, "step", json_integer((json_int_t)rank->state.step));
  json_object_set_new(row, "epoch", json_real(epoch_of(job, rank->state.step)));
  json_object_set_new(row, "eval_loss", number(loss));
  json_object_set_new(row, "eval_seconds", number(seconds));
  CKPT_TRY(append_row(job, row, err));
  ckpt_job_report(job, CKPT_REPORT_LINE, "step %llu/%llu  epoch %.2f  eval_loss %.4f  %.1f s",
                  (unsigned long long)rank->state.step, (unsigned long long)job->n_steps,
                  epoch_of(job, rank->state.step), loss, seconds);
  return CKPT_OK;
}

/* ---- run.json ---------------------------------------------------------------------------------------------------- */

bool ckpt_job_has_run(const ckpt_job *job) {
  char path[PATH_MAX];
  path_in(path, job, "run.json");
  json_t *run;
  (void)ckpt_config_json_file(&run, path, 0, NULL);
  const bool has_id = json_is_string(json_object_get(run, "run_id"));
  json_decref(run);
  return has_id;
}

const char *ckpt_job_read_run(ckpt_job *job) {
  char path[PATH_MAX];
  const char *name;
  path_in(path, job, "run.json");
  json_t *run;
  (void)ckpt_config_json_file(&run, path, 0, NULL);
  const char *id = json_string_value(json_object_get(run, "run_id"));
  json_t *checkpoints = json_object_get(run, "checkpoints"), *digest;
  void *next;
  json_object_foreach_safe(checkpoints, next, name, digest) { /* one may have been removed just before a kill */
    path_in(path, job, name);
    if (access(path, F_OK) != 0) json_object_del(checkpoints, name);
  }
  if (json_is_object(checkpoints) && job->checkpoints == NULL) job->checkpoints = json_dumps(checkpoints, JSON_COMPACT);
  const char *kept = id == NULL ? NULL : ckpt_arena_copy(&job->arena, id);
  ckpt_job_remember(job, run);
  json_decref(run);
  return kept;
}

/* Names of checkpoints and their digests; NULL: out of memory. */
static json_t *checkpoints_of(const ckpt_job *job) {
  const char *text = job->checkpoints;
  return text == NULL ? json_object() : ckpt_config_json(text, strlen(text), 0, NULL);
}

static json_t *mesh_of(const ckpt_job *job) {
  const uint32_t n_shards = job->options->stage == 0 ? 1 : ckpt_job_shards(job);
  return json_pack("{s:i, s:i, s:i, s:i}", "dp_replicate", (int)(job->options->n_ranks / n_shards), "dp_shard",
                   (int)n_shards, "stage", (int)job->options->stage, "threads", (int)job->n_threads);
}

ckpt_status ckpt_job_write_run(ckpt_job *job, ckpt_error *err) {
  if (job->resumed != NULL && job->checkpoints == NULL) (void)ckpt_job_read_run(job);
  char rows[64];
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(16) << 20);
  const char *arguments = ckpt_arguments_json(job->arguments, &arena);
  json_t *run = json_object();
  json_object_set_new(run, "run_id", json_string(job->start.run_id));
  json_object_set_new(run, "versions", json_pack("{s:s, s:s}", "ckpt", ckpt_version(), "jansson", JANSSON_VERSION));
  json_object_set_new(run, "model", json_string(job->options->model));
  json_object_set_new(run, "architecture", json_string(job->model->architecture));
  json_object_set_new(run, "n_parameters", json_integer((json_int_t)job->model->n_elements));
  json_object_set_new(run, "base_digest", job->base_digest == NULL ? json_null() : json_string(job->base_digest));
  json_object_set_new(run, "data_digest", json_string(ckpt_dataset_digest(job->data)));
  json_object_set_new(run, "eval_data_digest",
                      job->eval_data == NULL ? json_null() : json_string(ckpt_dataset_digest(job->eval_data)));
  json_object_set_new(run, "rows", json_string(ckpt_job_rows(rows, job)));
  json_object_set_new(run, "n_samples", json_integer((json_int_t)job->order.n_samples));
  json_object_set_new(run, "n_steps", json_integer((json_int_t)job->n_steps));
  json_object_set_new(run, "mesh", mesh_of(job));
  json_object_set_new(run, "device", json_string(job->options->is_on_cuda ? "cuda" : "cpu"));
  json_object_set_new(run, "arguments",
                      arguments == NULL ? json_null() : ckpt_config_json(arguments, strlen(arguments), 0, NULL));
  json_object_set_new(run, "checkpoints", checkpoints_of(job));
  const ckpt_status status =
      run == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : replace_file(job, "run.json", run, err);
  json_decref(run);
  ckpt_arena_free(&arena);
  return status;
}

ckpt_status ckpt_job_note_checkpoint(ckpt_job *job, uint64_t step, const char *digest, ckpt_error *err) {
  char name[64];
  json_t *all = checkpoints_of(job);
  CKPT_TRY_ALLOC(all, err);
  ckpt_c_snprintf(name, sizeof name, "checkpoint-%llu", (unsigned long long)step);
  if (digest == NULL)
    json_object_del(all, name);
  else
    json_object_set_new(all, name, json_string(digest));
  free(job->checkpoints);
  job->checkpoints = json_dumps(all, JSON_COMPACT | JSON_PRESERVE_ORDER);
  json_decref(all);
  CKPT_TRY_ALLOC(job->checkpoints, err);
  return ckpt_job_write_run(job, err);
}

ckpt_status ckpt_job_write_results(ckpt_job *job, const ckpt_rank *rank, double seconds, ckpt_error *err) {
  const double n_updates = (double)rank->state.n_updates, here = (double)(rank->state.step - job->start.step);
  json_t *results = json_object();
  CKPT_TRY_ALLOC(results, err);
  json_object_set_new(results, "epoch", json_real(epoch_of(job, rank->state.step)));
  json_object_set_new(results, "train_loss", number(n_updates > 0 ? rank->state.loss_sum / n_updates : NAN));
  json_object_set_new(results, "train_runtime", number(seconds));
  json_object_set_new(results, "train_samples", json_integer((json_int_t)job->order.n_samples));
  json_object_set_new(results, "train_samples_per_second",
                      number(seconds > 0 ? here * (double)rank->state.batch / seconds : 0));
  json_object_set_new(results, "train_steps_per_second", number(seconds > 0 ? here / seconds : 0));
  json_object_set_new(results, "save_runtime", number(job->save_seconds));
  json_object_set_new(results, "skipped_steps", json_integer((json_int_t)rank->state.n_skipped));
  if (!isnan(rank->state.best_metric)) json_object_set_new(results, "best_metric", number(rank->state.best_metric));
  const ckpt_status status = replace_file(job, "train_results.json", results, err);
  json_decref(results);
  return status;
}
