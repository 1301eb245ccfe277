/* files.c - see files.h. */
#include "libckpt/recipe/records/files.h"

#include <ctype.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/run/run.h"

enum { WINDOW_BYTES = 1 << 20, MAX_THREADS = 64 };

typedef struct summing {
  ckpt_source *source;
  ckpt_file_sum *sums;
  size_t n;
  const ckpt_run_options *run;
  uint64_t n_total;
  pthread_mutex_t mutex; /* guards everything below */
  size_t next;
  uint64_t n_done;
  ckpt_status status;
  ckpt_error error;
} summing;

/* Counts what was read; false when the work is to stop. */
static bool advance(summing *s, size_t n_bytes) {
  pthread_mutex_lock(&s->mutex);
  s->n_done += n_bytes;
  const ckpt_status status = ckpt_tell_progress(s->run, s->n_done, s->n_total, &s->error);
  if (s->status == CKPT_OK) s->status = status;
  bool goes_on = s->status == CKPT_OK;
  pthread_mutex_unlock(&s->mutex);
  return goes_on;
}

static ckpt_status sum_one(summing *s, ckpt_file_sum *sum, ckpt_hasher *hasher, uint8_t *window, ckpt_error *err) {
  uint64_t size = ckpt_source_size(s->source, sum->file);
  CKPT_TRY(ckpt_hasher_begin(hasher, err));
  for (uint64_t at = 0; at < size;) {
    size_t n = size - at < WINDOW_BYTES ? (size_t)(size - at) : WINDOW_BYTES;
    CKPT_TRY(ckpt_source_read(s->source, sum->file, at, window, n, err));
    CKPT_TRY(ckpt_hasher_add(hasher, window, n, err));
    at += n;
    if (!advance(s, n)) return CKPT_OK; /* the reason stands in s */
  }
  return ckpt_hasher_end(hasher, sum->sha256, err);
}

static void *work(void *arg) {
  summing *s = arg;
  ckpt_error error = {0};
  ckpt_hasher *hasher = NULL;
  uint8_t *window = malloc(WINDOW_BYTES);
  ckpt_status status = window == NULL ? ckpt_fail(&error, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  if (status == CKPT_OK) status = ckpt_hasher_new(&hasher, &error);
  for (;;) {
    pthread_mutex_lock(&s->mutex);
    if (s->status == CKPT_OK && status != CKPT_OK) {
      s->status = status;
      s->error = error;
    }
    size_t i = s->status == CKPT_OK ? s->next++ : s->n;
    pthread_mutex_unlock(&s->mutex);
    if (i >= s->n) break;
    status = sum_one(s, &s->sums[i], hasher, window, &error);
  }
  ckpt_hasher_free(hasher);
  free(window);
  return NULL;
}

ckpt_status ckpt_sum_files(ckpt_source *source, ckpt_file_sum *sums, size_t n, const ckpt_run_options *run,
                           ckpt_error *err) {
  summing s = {.source = source, .sums = sums, .n = n, .run = run};
  pthread_t threads[MAX_THREADS];
  long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
  size_t n_threads =
      run != NULL && run->n_threads != 0 ? run->n_threads : (size_t)(n_processors > 0 ? n_processors : 1);
  if (run != NULL && run->memory != 0 && n_threads > run->memory / WINDOW_BYTES)
    n_threads = (size_t)(run->memory / WINDOW_BYTES);
  if (n_threads > n) n_threads = n;
  if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
  for (size_t i = 0; i < n; i++) s.n_total += ckpt_source_size(source, sums[i].file);
  pthread_mutex_init(&s.mutex, NULL);
  size_t n_started = 0; /* beside this one; fewer than wanted only cost time */
  while (n_started + 1 < n_threads && pthread_create(&threads[n_started], NULL, work, &s) == 0) n_started++;
  work(&s);
  for (size_t i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&s.mutex);
  if (s.status == CKPT_OK) return ckpt_source_unchanged(source, err);
  return ckpt_fail_as(err, s.status, s.error.file, s.error.tensor, &s.error);
}

bool ckpt_sum_parse(const char *text, uint8_t sha256[32]) {
  for (size_t i = 0; i < 64; i++)
    if (!isxdigit((unsigned char)text[i])) return false;
  if (isxdigit((unsigned char)text[64])) return false;
  for (size_t i = 0; i < 32; i++) {
    unsigned value;
    if (sscanf(text + 2 * i, "%2x", &value) != 1) return false;
    sha256[i] = (uint8_t)value;
  }
  return true;
}

const char *ckpt_sum_text(const uint8_t sha256[32], char out[65]) {
  for (size_t i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", sha256[i]);
  return out;
}

bool ckpt_sum_promised(const ckpt_source *source, uint32_t file, uint8_t sha256[32]) {
  char target[PATH_MAX + 1];
  if (ckpt_source_root(source)[0] == '\0') return false;
  ssize_t n = readlink(ckpt_source_path(source, file), target, PATH_MAX);
  if (n <= 0) return false;
  target[n] = '\0';
  const char *name = ckpt_path_name(target);
  return strlen(name) == 64 && ckpt_sum_parse(name, sha256);
}
