/* trace.c - see trace.h. */
#include "libckpt/run/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

struct ckpt_trace {
  FILE *file;
  const ckpt_plan *plan;
  char *path;
  pthread_mutex_t mutex;
  uint64_t n_read, n_written, n_tiles;
  uint64_t started; /* nanoseconds, as ckpt_trace_now */
};

uint64_t ckpt_trace_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

ckpt_status ckpt_trace_open(ckpt_trace **out, const char *path, const ckpt_plan *plan, ckpt_error *err) {
  ckpt_trace *trace = calloc(1, sizeof *trace);
  CKPT_TRY_ALLOC(trace, err);
  trace->plan = plan;
  trace->started = ckpt_trace_now();
  if (plan->rank == 0)
    trace->path = strdup(path);
  else if (asprintf(&trace->path, "%s.%u", path, plan->rank) < 0)
    trace->path = NULL;
  pthread_mutex_init(&trace->mutex, NULL);
  trace->file = trace->path == NULL ? NULL : fopen(trace->path, "wxe"); /* x: never over a file that is there */
  *out = trace;
  if (trace->file != NULL) return CKPT_OK;
  ckpt_status status = errno == EEXIST
                           ? ckpt_fail(err, CKPT_EEXIST, path, NULL, "exists already; a trace needs a new file")
                           : ckpt_fail_errno(err, path, "the trace cannot be written");
  free(trace->path);
  free(trace);
  *out = NULL;
  return status;
}

static void put(FILE *file, const char *text) { (void)fwrite(text, 1, strlen(text), file); }

/* A JSON string; names are UTF-8, so only quotes, backslashes and control characters need care. */
static void put_text(FILE *file, const char *text) {
  fputc('"', file);
  for (; *text != '\0'; text++) {
    unsigned char byte = (unsigned char)*text;
    char escaped[8];
    if (byte >= 0x20 && byte != '"' && byte != '\\') {
      fputc(byte, file);
    } else {
      snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      put(file, escaped);
    }
  }
  fputc('"', file);
}

static void put_field(FILE *file, const char *text, uint64_t value) {
  char line[64];
  snprintf(line, sizeof line, "%s%llu", text, (unsigned long long)value);
  put(file, line);
}

void ckpt_trace_tile(ckpt_trace *trace, uint32_t number, uint64_t n_read, uint64_t n_written, uint64_t n_used,
                     uint64_t ns) {
  const ckpt_batch *batch = &trace->plan->batches[number];
  FILE *file = trace->file;
  char times[80];
  uint64_t at = ckpt_trace_now() - trace->started;
  ckpt_c_snprintf(times, sizeof times, ",\"at_ms\":%.3f,\"ms\":%.3f}\n", at < ns ? 0.0 : (double)(at - ns) / 1e6,
                  (double)ns / 1e6);
  pthread_mutex_lock(&trace->mutex);
  trace->n_read += n_read;
  trace->n_written += n_written;
  trace->n_tiles++;
  put_field(file, "{\"group\":", number);
  put(file, ",\"leaves\":[");
  for (uint32_t i = 0; i < batch->n_reads; i++) {
    if (i != 0) fputc(',', file);
    put_text(file, batch->reads[i].expr->tensor != NULL ? batch->reads[i].expr->tensor->name : "");
  }
  put_field(file, "],\"read\":", n_read);
  put_field(file, ",\"written\":", n_written);
  put_field(file, ",\"bytes\":", n_used);
  put(file, times);
  pthread_mutex_unlock(&trace->mutex);
}

ckpt_status ckpt_trace_close(ckpt_trace *trace, bool keep, ckpt_error *err) {
  if (trace == NULL) return CKPT_OK;
  put_field(trace->file, "{\"total\":{\"read\":", trace->n_read);
  put_field(trace->file, ",\"written\":", trace->n_written);
  put_field(trace->file, ",\"planned_peak\":", trace->plan->peak);
  put_field(trace->file, ",\"tiles\":", trace->n_tiles);
  char time[48];
  ckpt_c_snprintf(time, sizeof time, "},\"at_ms\":%.3f}\n", (double)(ckpt_trace_now() - trace->started) / 1e6);
  put(trace->file, time);
  ckpt_status status = CKPT_OK;
  bool failed = ferror(trace->file) != 0;
  if (fclose(trace->file) != 0 || failed) status = ckpt_fail_errno(err, trace->path, "the trace cannot be written");
  if (!keep || status != CKPT_OK) unlink(trace->path);
  pthread_mutex_destroy(&trace->mutex);
  free(trace->path);
  free(trace);
  return status;
}
