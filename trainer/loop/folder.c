/* folder.c - the output folder of a run: made, moved aside, or gone on in. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/io/temporary.h"
#include "trainer/checkpoint/save.h"
#include "trainer/loop/job.h"

static const char prefix[] = "checkpoint-";

/* What a run that was killed before it had a name leaves is nothing. */
static bool is_empty(const char *path) {
  DIR *folder = opendir(path);
  bool has_some = folder == NULL;
  for (const struct dirent *entry; !has_some && (entry = readdir(folder)) != NULL;) {
    struct stat there;
    const bool is_log = strcmp(entry->d_name, "log.jsonl") == 0 &&
                        fstatat(dirfd(folder), entry->d_name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_size == 0;
    has_some = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
               strcmp(entry->d_name, ".run.json.new") != 0 && !is_log;
  }
  if (folder != NULL) closedir(folder);
  return !has_some;
}

static ckpt_status make_folders(const char *path, ckpt_error *err) {
  char part[PATH_MAX];
  if (ckpt_c_snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
    return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "the path is too long");
  for (char *at = part + 1; *at != '\0'; at++) {
    if (*at != '/') continue;
    *at = '\0';
    if (mkdir(part, 0777) != 0 && errno != EEXIST) return ckpt_fail_errno(err, part, "the folder cannot be made");
    *at = '/';
  }
  if (mkdir(part, 0777) != 0 && errno != EEXIST) return ckpt_fail_errno(err, part, "the folder cannot be made");
  return CKPT_OK;
}

/* OUT becomes OUT.1, or the next number that is free. */
static ckpt_status move_aside(const ckpt_job *job, const char *path, ckpt_error *err) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  for (unsigned i = 1; i < 10000; i++) {
    char old[PATH_MAX];
    struct stat there;
    if (ckpt_c_snprintf(old, sizeof old, "%.*s.%u", (int)n, path, i) >= (int)sizeof old) break;
    if (lstat(old, &there) == 0) continue;
    if (rename(path, old) != 0) return ckpt_fail_errno(err, path, "it cannot be moved to %s", old);
    ckpt_job_report(job, CKPT_REPORT_NOTE, "the old run is now %s", old);
    return CKPT_OK;
  }
  return ckpt_fail(err, CKPT_EEXIST, path, NULL, "there is no free name to move it to");
}

/* The step in the name `prefix`N of a folder's entry. */
static bool step_of(uint64_t *step, const char *name, const char *before) {
  const size_t n = strlen(before);
  char *end;
  if (strncmp(name, before, n) != 0 || name[n] < '0' || name[n] > '9') return false;
  errno = 0;
  *step = strtoull(name + n, &end, 10);
  return *end == '\0' && errno == 0;
}

/* Whether a folder is a run's: it has its run.json, or one of its checkpoints. */
static bool has_a_run(const ckpt_job *job) {
  uint64_t *steps;
  size_t n;
  if (ckpt_job_has_run(job)) return true;
  const bool has_checkpoint = ckpt_job_checkpoints(job, &steps, &n, NULL) == CKPT_OK && n != 0;
  free(steps);
  return has_checkpoint;
}

/* What a run reads must not lie where it writes. A glob stands for the folder before its first pattern. */
static ckpt_status check_input(const ckpt_job *job, const char *path, ckpt_error *err) {
  char out[PATH_MAX], in[PATH_MAX], plain[PATH_MAX];
  ckpt_c_snprintf(plain, sizeof plain, "%s", path == NULL ? "" : path);
  if (plain[strcspn(plain, "*?[")] != '\0') {
    plain[strcspn(plain, "*?[")] = '\0';
    char *slash = strrchr(plain, '/');
    if (slash == NULL) return CKPT_OK;
    *slash = '\0';
  }
  if (path == NULL || realpath(job->options->output, out) == NULL || realpath(plain, in) == NULL) return CKPT_OK;
  const size_t n = strlen(out);
  if (strncmp(in, out, n) != 0 || (in[n] != '\0' && in[n] != '/')) return CKPT_OK;
  return ckpt_fail(err, CKPT_EEXIST, job->options->output, NULL, "the run reads %s, which lies there (give another -o)",
                   path);
}

static ckpt_status check_inputs(const ckpt_job *job, ckpt_error *err) {
  const ckpt_train_options *o = job->options;
  CKPT_TRY(check_input(job, o->model, err));
  CKPT_TRY(check_input(job, o->lora, err));
  for (size_t i = 0; o->data[i] != NULL; i++) CKPT_TRY(check_input(job, o->data[i], err));
  for (size_t i = 0; o->eval_data != NULL && o->eval_data[i] != NULL; i++)
    CKPT_TRY(check_input(job, o->eval_data[i], err));
  return CKPT_OK;
}

/* One run writes a folder at a time, and holds its log. Where the file system has no such locks nothing is locked. */
static ckpt_status lock(ckpt_job *job, int how, ckpt_error *err) {
  char path[PATH_MAX];
  if (job->lock >= 0) close(job->lock); /* of what was moved aside */
  ckpt_c_snprintf(path, sizeof path, "%s/log.jsonl", job->options->output);
  job->lock = open(path, O_RDWR | O_CLOEXEC | how, 0666);
  if (job->lock < 0 && how == 0) return CKPT_OK;
  if (job->lock < 0) return ckpt_fail_errno(err, path, "it cannot be made");
  if (flock(job->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return CKPT_OK;
  return ckpt_fail(err, CKPT_EEXIST, path, NULL, "another run writes it now");
}

ckpt_status ckpt_job_prepare_folder(ckpt_job *job, ckpt_error *err) {
  const ckpt_train_options *o = job->options;
  struct stat there;
  CKPT_TRY(check_inputs(job, err));
  const bool exists = stat(o->output, &there) == 0;
  if (exists && !S_ISDIR(there.st_mode)) return ckpt_fail(err, CKPT_EEXIST, o->output, NULL, "it is no folder");
  if (exists) CKPT_TRY(lock(job, 0, err));
  const bool has_run = exists && !is_empty(o->output);
  if (o->resume == NULL && has_run && !o->force)
    return ckpt_fail(err, CKPT_EEXIST, o->output, NULL,
                     "it is there already (--resume last goes on from it, --force moves it aside)");
  if (o->resume != NULL && has_run && !has_a_run(job))
    return ckpt_fail(err, CKPT_EEXIST, o->output, NULL,
                     "it holds other files, and no run to go on in (give another -o)");
  if (o->resume == NULL && has_run) CKPT_TRY(move_aside(job, o->output, err));
  CKPT_TRY(make_folders(o->output, err));
  return lock(job, O_CREAT, err);
}

static int compare_steps(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

ckpt_status ckpt_job_checkpoints(const ckpt_job *job, uint64_t **steps, size_t *n, ckpt_error *err) {
  DIR *folder = opendir(job->options->output);
  *steps = NULL;
  *n = 0;
  if (folder == NULL) return ckpt_fail_errno(err, job->options->output, "it cannot be opened");
  ckpt_status status = CKPT_OK;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    uint64_t step;
    if (!step_of(&step, entry->d_name, prefix)) continue;
    uint64_t *more = reallocarray(*steps, *n + 1, sizeof *more);
    if (more == NULL) {
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
      break;
    }
    *steps = more;
    more[(*n)++] = step;
  }
  closedir(folder);
  if (*n != 0) qsort(*steps, *n, sizeof **steps, compare_steps);
  return status;
}

/* ---- resuming ---------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_open_checkpoint(ckpt_index **out, const char *path, ckpt_error *err) {
  static const char *const formats[] = {"dcp", "state.pt", "torch/state.pt", "zero", "universal"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    char below[PATH_MAX];
    ckpt_c_snprintf(below, sizeof below, "%s/%s", path, formats[i]);
    if (access(below, F_OK) == 0) return ckpt_open(out, below, NULL, err);
  }
  return ckpt_open(out, path, NULL, err);
}

/* Of a run of this very model a tensor that is missing, or one too many, is damage: ckpt_job_walks_back takes it so. A
 * run that saves no moments has none to go on from. */
static ckpt_status check_damage(const ckpt_job *job, const ckpt_index *index, ckpt_error *err) {
  bool has_moments = false;
  for (uint32_t i = 0; i < index->n_tensors && !has_moments; i++)
    has_moments = index->tensors[i].role == CKPT_ROLE_EXP_AVG;
  if (!has_moments) return CKPT_OK;
  const ckpt_status status = ckpt_state_check(index, job->trained, err);
  return status == CKPT_EINVAL && err != NULL ? (err->status = CKPT_EFORMAT) : status;
}

static ckpt_status take(ckpt_job *job, const char *path, ckpt_error *err) {
  ckpt_index *index = NULL;
  CKPT_TRY(ckpt_open_checkpoint(&index, path, err));
  ckpt_status status = ckpt_state_progress(&job->start, index, &job->arena, err);
  if (status == CKPT_OK && job->recorded.is_of_model) status = check_damage(job, index, err);
  if (status != CKPT_OK) {
    ckpt_index_free(index);
    return status;
  }
  job->resumed = index;
  return CKPT_OK;
}

/* Whether an entry is what a killed run was writing or removing: its own names, or the library's for one of them. */
static bool is_leftover(int folder, const char *entry) {
  uint64_t step;
  char name[NAME_MAX + 1];
  if (strcmp(entry, CKPT_FINAL) == 0 || step_of(&step, entry, CKPT_STAGED) || step_of(&step, entry, CKPT_GOING))
    return true;
  const char *end = strstr(entry, ".ckpt-");
  if (entry[0] != '.' || end == NULL) return false;
  ckpt_c_snprintf(name, sizeof name, "%.*s", (int)(end - entry - 1), entry + 1);
  return (strcmp(name, CKPT_FINAL) == 0 || step_of(&step, name, prefix)) && ckpt_temporary_is_left(folder, entry, name);
}

static ckpt_status remove_leftovers(const ckpt_job *job, ckpt_error *err) {
  DIR *folder = opendir(job->options->output);
  if (folder == NULL) return ckpt_fail_errno(err, job->options->output, "it cannot be opened");
  ckpt_status status = CKPT_OK;
  for (const struct dirent *entry; status == CKPT_OK && (entry = readdir(folder)) != NULL;) {
    char path[PATH_MAX];
    ckpt_c_snprintf(path, sizeof path, "%s/%s", job->options->output, entry->d_name);
    if (is_leftover(dirfd(folder), entry->d_name)) status = ckpt_remove_all(path, err);
  }
  closedir(folder);
  return status;
}

/* A run that was killed between a checkpoint and its row in run.json: the checkpoint says itself whose it is. */
static ckpt_status adopt(ckpt_job *job, uint64_t step, ckpt_error *err) {
  char path[PATH_MAX], name[64], digest_text[72];
  ckpt_c_snprintf(name, sizeof name, "\"%s%llu\"", prefix, (unsigned long long)step);
  if (job->checkpoints != NULL && strstr(job->checkpoints, name) != NULL) return CKPT_OK;
  ckpt_c_snprintf(path, sizeof path, "%s/%s%llu", job->options->output, prefix, (unsigned long long)step);
  ckpt_index *index = NULL;
  ckpt_progress_state state;
  ckpt_digest digest;
  if (ckpt_open_checkpoint(&index, path, NULL) != CKPT_OK) return CKPT_OK;
  ckpt_status status = CKPT_OK;
  if (ckpt_state_progress(&state, index, &job->arena, NULL) == CKPT_OK &&
      strcmp(state.run_id, job->start.run_id) == 0) {
    ckpt_error why = {0};
    const char *text = "";
    status = ckpt_hash(index, NULL, &digest, &why);
    if (status == CKPT_OK) text = ckpt_digest_text(&digest, digest_text);
    if (ckpt_job_walks_back(job, status)) status = CKPT_OK; /* loading it tells, and it is this run's to set aside */
    status = status == CKPT_OK ? ckpt_job_note_checkpoint(job, step, text, err)
                               : ckpt_fail_as(err, status, NULL, NULL, &why);
  }
  ckpt_index_free(index);
  return status;
}

/* The checkpoint that is asked for by name. A later checkpoint of the same run would be mistaken for its
 * continuation. */
static ckpt_status take_named(ckpt_job *job, ckpt_error *err) {
  const ckpt_train_options *o = job->options;
  uint64_t *steps;
  size_t n;
  CKPT_TRY(take(job, o->resume, err));
  const char *id = ckpt_job_read_run(job);
  if (id == NULL) ckpt_job_remember_beside(job, o->resume);
  if (id == NULL) return CKPT_OK;
  if (strcmp(id, job->start.run_id) != 0)
    return ckpt_fail(err, CKPT_EEXIST, o->output, NULL,
                     "it holds run %s, and the checkpoint is one of run %s (give another -o)", id, job->start.run_id);
  CKPT_TRY(ckpt_job_checkpoints(job, &steps, &n, err));
  const uint64_t last = n == 0 ? 0 : steps[n - 1];
  free(steps);
  if (last <= job->start.step) return CKPT_OK;
  return ckpt_fail(err, CKPT_EEXIST, o->output, NULL,
                   "it has the checkpoint of step %llu, and the one to go on from is of step %llu (give another -o, or "
                   "--resume last)",
                   (unsigned long long)last, (unsigned long long)job->start.step);
}

bool ckpt_job_walks_back(const ckpt_job *job, ckpt_status status) {
  const char *resume = job->options->resume;
  const bool is_some = resume != NULL && (strcmp(resume, "last") == 0 || strcmp(resume, "auto") == 0);
  const bool is_damage = status == CKPT_EFORMAT || status == CKPT_EDIFFERENT || status == CKPT_ENOTFOUND ||
                         status == CKPT_EUNSUPPORTED || status == CKPT_ELIMIT; /* as flipped bits may look */
  return is_some && is_damage;
}

/* From the newest back to one that can be opened. */
static ckpt_status take_newest(ckpt_job *job, const uint64_t *steps, size_t n, ckpt_error *err) {
  job->broken = calloc(n + 1, sizeof *job->broken);
  CKPT_TRY_ALLOC(job->broken, err);
  for (size_t i = n; i > 0 && job->resumed == NULL; i--) {
    char path[PATH_MAX], text[2048];
    ckpt_error why = {0};
    const uint64_t step = steps[i - 1];
    ckpt_c_snprintf(path, sizeof path, "%s/%s%llu", job->options->output, prefix, (unsigned long long)step);
    const bool was_tried = job->below != 0 && step >= job->below;
    const ckpt_status status = was_tried ? CKPT_EFORMAT : take(job, path, &why);
    if (status == CKPT_OK) break;
    if (!ckpt_job_walks_back(job, status)) {
      if (err != NULL) *err = why;
      return status;
    }
    job->broken[job->n_broken++] = step;
    if (!was_tried)
      ckpt_job_report(job, CKPT_REPORT_WARNING, "%s is skipped: %s", path, ckpt_error_text(&why, text, sizeof text));
  }
  return CKPT_OK;
}

/* A name that is free: of an earlier time there may be some. */
static ckpt_status name_aside(char out[PATH_MAX], const ckpt_job *job, unsigned long long step, ckpt_error *err) {
  struct stat there;
  ckpt_c_snprintf(out, PATH_MAX, "%s/broken-%s%llu", job->options->output, prefix, step);
  for (unsigned i = 1; lstat(out, &there) == 0; i++) {
    if (i == 10000) return ckpt_fail(err, CKPT_EEXIST, out, NULL, "there is no free name for what is broken");
    ckpt_c_snprintf(out, PATH_MAX, "%s/broken-%s%llu.%u", job->options->output, prefix, step, i);
  }
  return CKPT_OK;
}

ckpt_status ckpt_job_set_aside(ckpt_job *job, ckpt_error *err) {
  for (size_t i = 0; i < job->n_broken; i++) {
    char path[PATH_MAX], aside[PATH_MAX], name[64];
    const unsigned long long step = job->broken[i];
    ckpt_c_snprintf(name, sizeof name, "\"%s%llu\"", prefix, step);
    if (job->checkpoints == NULL || strstr(job->checkpoints, name) == NULL) continue; /* it is not ours */
    ckpt_c_snprintf(path, sizeof path, "%s/%s%llu", job->options->output, prefix, step);
    CKPT_TRY(name_aside(aside, job, step, err));
    if (rename(path, aside) != 0) return ckpt_fail_errno(err, path, "it cannot be moved to %s", aside);
    ckpt_job_report(job, CKPT_REPORT_WARNING, "%s is now %s", path, aside);
    CKPT_TRY(ckpt_job_note_checkpoint(job, step, NULL, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_job_find_resumed(ckpt_job *job, ckpt_error *err) {
  const ckpt_train_options *o = job->options;
  if (o->resume == NULL) return CKPT_OK;
  if (!ckpt_job_only_dumps(job)) CKPT_TRY(remove_leftovers(job, err));
  const bool is_auto = strcmp(o->resume, "auto") == 0;
  if (!is_auto && strcmp(o->resume, "last") != 0) return take_named(job, err);
  uint64_t *steps;
  size_t n;
  CKPT_TRY(ckpt_job_checkpoints(job, &steps, &n, err));
  (void)ckpt_job_read_run(job);
  ckpt_status status = take_newest(job, steps, n, err);
  const bool adopts = job->resumed != NULL && !ckpt_job_only_dumps(job);
  for (size_t i = 0; i < n && adopts && status == CKPT_OK; i++) status = adopt(job, steps[i], err);
  free(steps);
  CKPT_TRY(status);
  if (job->resumed == NULL) {
    job->start = (ckpt_progress_state){.best_metric = NAN};
    job->recorded = (ckpt_recorded_run){.rows = NULL}; /* a new run, whatever the old one was */
    if (!is_auto)
      return ckpt_fail(err, CKPT_ENOTFOUND, o->output, NULL,
                       "there is no checkpoint to go on from (--resume auto starts anew then)");
  }
  return CKPT_OK;
}
