/* report.c - see report.h. */
#include "tools/report/report.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/base/grow.h"
#include "libckpt/recipe/quantize/quantize.h"
#include "tools/cli/text.h"

/* ---- errors and notes -------------------------------------------------------------------------------------------- */

static void print_line(const char *head, const char *text) {
  fputs(head, stderr);
  ckpt_text_print(stderr, text);
  putc('\n', stderr);
}

static const char *or_null(const char *text) { return text[0] == '\0' ? NULL : text; }

const char *ckpt_report_text(const ckpt_error *err, char *out, size_t n_bytes) {
  char message[2048];
  snprintf(out, n_bytes, "%s%s%s%s%s%s", err->file, err->file[0] ? ": " : "", err->tensor[0] ? "tensor '" : "",
           err->tensor, err->tensor[0] ? "': " : "",
           ckpt_error_message(err, ckpt_option_name_field, message, sizeof message));
  return out;
}

const char *ckpt_report_note_text(const ckpt_note *note, const char *message, char *out, size_t n_bytes) {
  return ckpt_advice_text(message, note->advice, "", ckpt_option_name_field, out, n_bytes);
}

const char *ckpt_report_finding_text(const ckpt_finding *finding, char *out, size_t n_bytes) {
  return ckpt_advice_text(finding->message, finding->advice, finding->value, ckpt_option_name_field, out, n_bytes);
}

const char *ckpt_report_weights(const ckpt_index *index, char *out, size_t n_bytes) {
  if (index->weights_note == 0) return NULL;
  const ckpt_note *note = &index->notes[index->weights_note - 1];
  return ckpt_report_note_text(note, note->text, out, n_bytes);
}

void ckpt_report_line(const ckpt_error *err) {
  char text[3072];
  print_line("ckpt: ", ckpt_report_text(err, text, sizeof text));
}

void ckpt_report_emit_error(ckpt_emitter *json, const ckpt_error *err) {
  ckpt_emit_object(json, "error");
  ckpt_emit_text(json, "code", ckpt_status_code(err->status));
  ckpt_emit_text(json, "file", or_null(err->file));
  ckpt_emit_text(json, "tensor", or_null(err->tensor));
  char message[2048];
  ckpt_emit_text(json, "message", ckpt_error_message(err, ckpt_option_name_field, message, sizeof message));
  ckpt_emit_end(json);
}

int ckpt_report_failure(bool json, const ckpt_error *err) {
  ckpt_report_line(err);
  if (json) {
    ckpt_emitter out;
    ckpt_emit_begin(&out, stdout);
    ckpt_emit_object(&out, NULL);
    ckpt_emit_text(&out, "status", "error");
    ckpt_report_emit_error(&out, err);
    ckpt_emit_end(&out);
  }
  if (err->status == CKPT_EINVAL) return CKPT_EXIT_USAGE;
  if (err->status == CKPT_ECANCELED && ckpt_job_signal() != 0) return 128 + ckpt_job_signal();
  return CKPT_EXIT_FAILED;
}

int ckpt_report_error(const ckpt_args *args, const ckpt_error *err) { return ckpt_report_failure(args->json, err); }

/* Without memory for it a note stands on stderr alone: it is no reason to fail. */
static void keep_note(ckpt_noted *noted, const char *text) {
  char *copy = strdup(text);
  if (copy == NULL || ckpt_grow(&noted->texts, noted->n, &noted->capacity, sizeof *noted->texts, NULL) != CKPT_OK)
    free(copy);
  else
    noted->texts[noted->n++] = copy;
}

static const char note_head[] = "ckpt: note: ", warning_head[] = "ckpt: warning: ";

/* With --quiet remarks alone are left out: a warning is what a script must not miss. */
static void say(const ckpt_args *args, bool is_warning, const char *format, va_list list) {
  char text[2048];
  vsnprintf(text, sizeof text, format, list);
  keep_note(args->noted, text);
  if (is_warning || !ckpt_args_has(args, "quiet")) print_line(is_warning ? warning_head : note_head, text);
}

void ckpt_report_note(const ckpt_args *args, const char *format, ...) {
  va_list list;
  va_start(list, format);
  say(args, false, format, list);
  va_end(list);
}

void ckpt_report_warning(const ckpt_args *args, const char *format, ...) {
  va_list list;
  va_start(list, format);
  say(args, true, format, list);
  va_end(list);
}

void ckpt_report_note_of(const ckpt_args *args, const char *path, const ckpt_note *note, const char *message) {
  char text[1536];
  ckpt_report_note_text(note, message, text, sizeof text);
  (ckpt_note_is_warning(note) ? ckpt_report_warning : ckpt_report_note)(args, "%s: %s", path, text);
}

void ckpt_report_corrupt(void *args, const ckpt_error *damage) {
  char text[2048];
  keep_note(((const ckpt_args *)args)->noted, ckpt_report_text(damage, text, sizeof text));
  print_line(warning_head, text);
}

void ckpt_report_emit_noted(const ckpt_args *args, ckpt_emitter *json) {
  for (uint32_t i = 0; i < args->noted->n; i++) ckpt_emit_text(json, NULL, args->noted->texts[i]);
}

void ckpt_report_emit_notes(const ckpt_args *args, ckpt_emitter *json, const ckpt_written *outputs, size_t n) {
  ckpt_emit_array(json, "notes");
  ckpt_report_emit_noted(args, json);
  for (size_t i = 0; i < n; i++)
    for (const ckpt_said *said = outputs[i].said; said != NULL && said->text != NULL; said++)
      ckpt_emit_text(json, NULL, said->text);
  ckpt_emit_end(json);
}

void ckpt_report_no_trace(const ckpt_args *args) {
  const char *path = ckpt_args_text(args, "trace", NULL);
  if (path != NULL) ckpt_report_warning(args, "--trace %s is not written: %s plans no run", path, args->verb->name);
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

void ckpt_report_digest(const ckpt_digest *digest, const char *path) {
  char text[80];
  printf("%s%s  ", ckpt_text_is_plain(path) ? "" : "\\", ckpt_digest_text(digest, text));
  ckpt_text_print(stdout, path);
  putchar('\n');
}

static void begin_dropped(FILE *out, const char *head, const ckpt_written *output, bool is_named) {
  fputs(head, out);
  if (is_named) ckpt_text_print(out, output->path);
  fputs(is_named ? ": not written: " : "not written: ", out);
}

void ckpt_report_dropped(FILE *out, const char *head, const ckpt_written *output, bool is_named) {
  for (const char *const *text = output->alone; text != NULL && *text != NULL; text++) {
    begin_dropped(out, head, output, is_named);
    ckpt_text_print(out, *text);
    putc('\n', out);
  }
  const char *const *const lists[] = {output->remedied, output->dropped, output->left};
  bool is_any = false;
  for (size_t list = 0; list < 3; list++) {
    size_t n = 0;
    for (; lists[list] != NULL && lists[list][n] != NULL; n++) {
      if (is_any)
        fputs(", ", out);
      else
        begin_dropped(out, head, output, is_named);
      ckpt_text_print(out, lists[list][n]);
      is_any = true;
    }
    if (list == 0 && n != 0 && output->remedy != NULL) fprintf(out, " (%s)", output->remedy);
  }
  if (is_any) putc('\n', out);
}

void ckpt_report_emit_dropped(ckpt_emitter *json, const ckpt_written *output) {
  const char *const *const lists[] = {output->alone, output->remedied, output->dropped, output->left};
  ckpt_emit_array(json, "dropped");
  for (size_t list = 0; list < 4; list++)
    for (const char *const *text = lists[list]; text != NULL && *text != NULL; text++)
      ckpt_emit_text(json, NULL, *text);
  ckpt_emit_end(json);
}

/* "829.7 KB (one.safetensors 414.8 KB, copy 414.9 KB)": what was written, each output where there are several. */
static void print_sizes(const ckpt_written *outputs, size_t n) {
  uint64_t n_bytes = 0;
  char size[32];
  for (size_t i = 0; i < n; i++) n_bytes += outputs[i].n_bytes;
  fputs(ckpt_text_size(n_bytes, size), stderr);
  for (size_t i = 0; n > 1 && i < n; i++) {
    fputs(i == 0 ? " (" : ", ", stderr);
    ckpt_text_print(stderr, outputs[i].path);
    fprintf(stderr, " %s%s", ckpt_text_size(outputs[i].n_bytes, size), i + 1 == n ? ")" : "");
  }
}

/* Warnings, and what is lost, are said even where nothing else is. */
static void print_closing(const ckpt_job *job, const ckpt_written *outputs, size_t n, bool is_quiet) {
  uint64_t n_bytes = 0;
  for (size_t i = 0; i < n; i++) n_bytes += outputs[i].n_bytes;
  char duration[48], rate[32], peak[32];
  double per_second = job->seconds > 0 ? (double)n_bytes / job->seconds : 0;
  if (!is_quiet) {
    print_sizes(outputs, n);
    fprintf(stderr, " in %s, %s/s, peak memory %s\n", ckpt_text_duration(job->seconds, duration),
            ckpt_text_size((uint64_t)per_second, rate), ckpt_text_size(ckpt_report_peak(), peak));
  }
  for (size_t i = 0; i < n; i++) {
    ckpt_report_dropped(stderr, warning_head, &outputs[i], n > 1);
    for (const ckpt_said *said = outputs[i].said; said != NULL && said->text != NULL; said++)
      if (!is_quiet || said->is_warning) print_line(said->is_warning ? warning_head : note_head, said->text);
  }
}

static void write_decisions(ckpt_emitter *json, const ckpt_quantize_decisions *quantized) {
  ckpt_emit_array(json, "fallbacks");
  for (uint32_t i = 0; i < quantized->n_fallbacks; i++) {
    const ckpt_quantize_fallback *fallback = &quantized->fallbacks[i];
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "name", fallback->name);
    ckpt_emit_text(json, "wanted", ckpt_dtype_name(fallback->wanted));
    ckpt_emit_text(json, "dtype", ckpt_dtype_name(fallback->dtype));
    ckpt_emit_u64(json, "row", fallback->n_columns);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
  ckpt_emit_array(json, "imatrix_missing");
  for (uint32_t i = 0; i < quantized->n_unweighted; i++) ckpt_emit_text(json, NULL, quantized->unweighted[i]);
  ckpt_emit_end(json);
}

/* A number that there may be none of. */
static void emit_finite(ckpt_emitter *json, const char *key, double number) {
  if (isfinite(number))
    ckpt_emit_number(json, key, number);
  else
    ckpt_emit_null(json, key);
}

static void write_figures(ckpt_emitter *json, const ckpt_update_figures *figures) {
  emit_finite(json, "norm", figures->norm);
  emit_finite(json, "relative", ckpt_update_relative(figures));
  ckpt_emit_u64(json, "n", figures->n);
  if (figures->n_rounded == 0)
    ckpt_emit_null(json, "n_unchanged");
  else
    ckpt_emit_u64(json, "n_unchanged", figures->n_unchanged);
}

/* What adapters did, and to which tensors. */
static void write_updates(ckpt_emitter *json, const ckpt_written *output) {
  ckpt_update_figures all = {0};
  for (size_t i = 0; i < output->n_updated; i++) ckpt_updates_add(&all, &output->updated[i].figures);
  ckpt_emit_object(json, "update");
  write_figures(json, &all);
  ckpt_emit_end(json);
  ckpt_emit_array(json, "updated");
  for (size_t i = 0; i < output->n_updated; i++) {
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "name", output->updated[i].name);
    write_figures(json, &output->updated[i].figures);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
}

static void write_fields(ckpt_emitter *json, const ckpt_job *job, const ckpt_written *output) {
  char digest[80];
  ckpt_emit_text(json, "output", output->path);
  ckpt_emit_text(json, "format", output->format);
  ckpt_emit_u64(json, "n_tensors", output->n_tensors);
  ckpt_emit_u64(json, "n_params", output->n_params);
  ckpt_emit_u64(json, "n_bytes", output->n_bytes);
  ckpt_emit_text(json, "dtype", output->dtype);
  ckpt_emit_text(json, "weights", output->weights);
  ckpt_report_emit_dropped(json, output);
  ckpt_emit_u64(json, "n_underflow", output->n_underflow);
  ckpt_emit_array(json, "underflowed");
  for (size_t i = 0; i < output->n_underflowed; i++) {
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "name", output->underflowed[i].name);
    ckpt_emit_u64(json, "n", output->underflowed[i].n);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
  if (output->quantized != NULL) write_decisions(json, output->quantized);
  if (output->updated != NULL) write_updates(json, output);
  ckpt_emit_text(json, "digest", output->is_of_none ? NULL : ckpt_digest_text(&output->digest, digest));
  ckpt_emit_number(json, "seconds", job->seconds);
  ckpt_emit_u64(json, "peak_bytes", ckpt_report_peak());
}

/* Whether stdout is a pipe or socket that nobody reads any more. */
static bool reader_is_gone(void) {
  struct pollfd poll_stdout = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return poll(&poll_stdout, 1, 0) == 1 && (poll_stdout.revents & POLLERR) != 0;
}

int ckpt_report_written(const ckpt_args *args, const ckpt_job *job, const ckpt_written *outputs, size_t n) {
  if (args->json) {
    ckpt_emitter json;
    ckpt_emit_begin(&json, stdout);
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "status", "ok");
    if (n == 1) {
      write_fields(&json, job, &outputs[0]);
    } else {
      ckpt_emit_array(&json, "outputs");
      for (size_t i = 0; i < n; i++) {
        ckpt_emit_object(&json, NULL);
        write_fields(&json, job, &outputs[i]);
        ckpt_emit_end(&json);
      }
      ckpt_emit_end(&json);
    }
    ckpt_report_emit_notes(args, &json, outputs, n);
    ckpt_emit_end(&json);
  } else {
    for (size_t i = 0; i < n; i++)
      if (!outputs[i].is_of_none) ckpt_report_digest(&outputs[i].digest, outputs[i].path);
  }
  /* Results come before the closing lines where both go to one place. */
  if ((fflush(stdout) != 0 || ferror(stdout)) && !reader_is_gone())
    for (size_t i = 0; i < n; i++) {
      fputs(warning_head, stderr);
      ckpt_text_print(stderr, outputs[i].path);
      fputs(": is written, whole and in its place; only its result cannot be printed\n", stderr);
    }
  print_closing(job, outputs, n, ckpt_args_has(args, "quiet"));
  return CKPT_EXIT_DONE;
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

uint64_t ckpt_report_peak(void) {
  /* getrusage counts what the process was before exec, too: a large parent would be taken for our own memory. */
  FILE *file = fopen("/proc/self/status", "re");
  char line[256];
  unsigned long long n_kib = 0;
  while (file != NULL && n_kib == 0 && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "VmHWM:", 6) == 0) n_kib = strtoull(line + 6, NULL, 10);
  if (file != NULL) fclose(file);
  struct rusage usage;
  if (n_kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0) n_kib = (unsigned long long)usage.ru_maxrss;
  return (uint64_t)n_kib * 1024;
}

int ckpt_report_finish(int status) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  int code = errno; /* 0 where the failure came before this flush */
  if (reader_is_gone()) return 128 + SIGPIPE;
  fprintf(stderr, "ckpt: stdout: cannot write the result: %s\n",
          code != 0 ? strerror(code) : "an earlier write failed (is the disk full?)");
  return status == CKPT_EXIT_DONE ? CKPT_EXIT_FAILED : status;
}
