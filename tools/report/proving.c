/* proving.c - see proving.h. */
#include "tools/report/proving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "tools/cli/text.h"
#include "tools/report/job.h"
#include "tools/report/json_writer.h"
#include "tools/report/report.h"
#include "tools/report/text_files.h"

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void print_row(void *arg, const char *line, const char *from) {
  (void)arg, (void)from;
  ckpt_text_print(stdout, line);
  putchar('\n');
}

static void emit_row(void *arg, const char *line, const char *from) {
  (void)from;
  ckpt_emit_text(arg, NULL, line);
}

/* All the plans of a proof: their totals, then, in a second pass, their rows. */
static ckpt_status add_up(void *arg, const ckpt_plan *plan, ckpt_error *err) {
  ckpt_planned *planned = arg;
  (void)err;
  planned->n_bytes_read += plan->n_bytes_read;
  planned->n_bytes_fetched += plan->n_bytes_fetched;
  const uint64_t peak = plan->peak + plan->beside;
  if (peak > planned->peak) planned->peak = peak;
  return CKPT_OK;
}

static ckpt_status show_rows(void *arg, const ckpt_plan *plan, ckpt_error *err) {
  return ckpt_plan_print(plan, arg == NULL ? print_row : emit_row, arg, err);
}

static double planned_seconds(const ckpt_planned *planned) {
  return (double)planned->n_bytes_fetched / CKPT_PLANNED_BYTES_PER_SECOND;
}

void ckpt_proving_print_planned(const ckpt_planned *planned) {
  char read[32], peak[32], duration[48];
  printf("reads %s", ckpt_text_size(planned->n_bytes_read, read));
  if (planned->n_bytes_fetched != planned->n_bytes_read)
    printf(" (%s with the gaps between short runs)", ckpt_text_size(planned->n_bytes_fetched, read));
  printf(", writes nothing, memory %s, about %s where it reads at 1 GB/s\n", ckpt_text_size(planned->peak, peak),
         ckpt_text_duration(planned_seconds(planned), duration));
}

void ckpt_proving_emit_planned(const ckpt_args *args, const ckpt_planned *planned, ckpt_emitter *json) {
  ckpt_emit_u64(json, "n_bytes_read", planned->n_bytes_read);
  ckpt_emit_u64(json, "n_bytes_fetched", planned->n_bytes_fetched);
  ckpt_emit_u64(json, "n_bytes_written", 0);
  ckpt_emit_u64(json, "peak_bytes", planned->peak);
  ckpt_emit_number(json, "seconds", planned_seconds(planned));
  ckpt_report_emit_notes(args, json, NULL, 0);
  ckpt_emit_end(json);
}

void ckpt_proving_plan(const ckpt_args *args, const char *row, const ckpt_planned *planned) {
  ckpt_emitter json;
  if (!args->json) {
    if (row != NULL) print_row(NULL, row, NULL);
    if (row != NULL)
      ckpt_proving_print_planned(planned);
    else
      puts("reads headers alone, which has been done to plan this, and writes nothing");
    return;
  }
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_array(&json, "rows");
  if (row != NULL) emit_row(&json, row, NULL);
  ckpt_emit_end(&json);
  ckpt_proving_emit_planned(args, planned, &json);
}

static ckpt_status show_plan(const ckpt_args *args, const ckpt_proof *proof, const ckpt_run_options *run,
                             ckpt_error *err) {
  ckpt_emitter json;
  ckpt_planned planned = {0};
  const bool has_rows = ckpt_args_plans_rows(args);
  CKPT_TRY(ckpt_prove(proof, run, add_up, &planned, err));
  if (!args->json) {
    ckpt_proving_print_planned(&planned);
    return has_rows ? ckpt_prove(proof, run, show_rows, NULL, err) : CKPT_OK;
  }
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  if (has_rows) {
    ckpt_emit_array(&json, "rows");
    CKPT_TRY(ckpt_prove(proof, run, show_rows, &json, err));
    ckpt_emit_end(&json);
  }
  ckpt_proving_emit_planned(args, &planned, &json);
  return CKPT_OK;
}

ckpt_status ckpt_proving_run(const ckpt_args *args, const ckpt_proof *proof, bool *is_printed, ckpt_error *err) {
  ckpt_job job;
  *is_printed = ckpt_args_has(args, "plan");
  ckpt_job_begin(&job, args);
  ckpt_status status =
      *is_printed ? show_plan(args, proof, &job.run, err) : ckpt_prove(proof, &job.run, NULL, NULL, err);
  ckpt_job_end(&job);
  bool is_of_first = args->n_inputs == 1 || (args->n_inputs > 1 && err->tensor[0] == '\0'); /* no tensor: of the run */
  return is_of_first ? ckpt_fail_at(status, err, args->inputs[0], NULL) : status;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Hex digits of an escape. */
static bool read_hex(const char *text, int n_digits, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < n_digits; i++) {
    const char *digits = "0123456789abcdef", *digit = text[i] == '\0' ? NULL : strchr(digits, text[i]);
    if (digit == NULL) return false;
    *value = *value << 4 | (uint32_t)(digit - digits);
  }
  return true;
}

static char *put_utf8(char *out, uint32_t c) {
  static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
  out[0] = (char)(n == 1 ? c : lead[n] | c);
  return out + n;
}

/* Undoes both sha256sum's escapes (\\ \n \r) and those of ckpt_text_print (\xHH \uHHHH \UHHHHHHHH), in place. */
static bool unescape(char *text) {
  char *out = text;
  for (const char *at = text; *at != '\0';) {
    uint32_t value;
    if (*at != '\\') {
      *out++ = *at++;
      continue;
    }
    char kind = at[1];
    int n_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (n_digits != 0) {
      if (!read_hex(at + 2, n_digits, &value) || value == 0 || value > 0x10FFFF) return false;
      if (kind == 'x')
        *out++ = (char)value;
      else
        out = put_utf8(out, value);
    } else {
      if (kind != '\\' && kind != 'n' && kind != 'r') return false;
      *out++ = (char)(kind == 'n' ? '\n' : kind == 'r' ? '\r' : '\\');
    }
    at += 2 + n_digits;
  }
  *out = '\0';
  return true;
}

static bool parse_line(char *line, ckpt_listed *out, bool (*is_sum)(const char *text)) {
  bool is_escaped = line[0] == '\\';
  char *sum = line + is_escaped, *space = strchr(sum, ' ');
  if (space == NULL || (space[1] != ' ' && space[1] != '*') || space[2] == '\0') return false;
  *space = '\0';
  out->sum = sum;
  out->path = space + 2;
  return is_sum(sum) && (!is_escaped || unescape(space + 2));
}

static ckpt_status read_lines(FILE *file, ckpt_listed **out, size_t *n_out, ckpt_args *args, const char *path,
                              bool (*is_sum)(const char *text), const char *what, size_t *n_malformed,
                              ckpt_error *err) {
  char *line = NULL;
  size_t n_line = 0, n = 0, capacity = 0;
  ckpt_status status = CKPT_OK;
  ckpt_listed *listed = NULL;
  ssize_t length;
  enum { MAX_LINE_BYTES = 64 << 10, MAX_LINES = 10 << 20, MAX_SAID = 20 };
  line = malloc(n_line = MAX_LINE_BYTES);
  if (line == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t number = 1; status == CKPT_OK && fgets(line, (int)n_line, file) != NULL; number++) {
    length = (ssize_t)strlen(line);
    if (number > MAX_LINES || length == 0 || (line[length - 1] != '\n' && !feof(file))) {
      status = ckpt_fail(err, CKPT_ELIMIT, path, NULL,
                         "line %u is longer than %d bytes, holds a NUL, or is one too many", number, MAX_LINE_BYTES);
      break;
    }
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) line[--length] = '\0';
    if (length == 0 || line[0] == '#') continue;
    if (n == capacity) {
      capacity = capacity == 0 ? 64 : capacity * 2;
      ckpt_listed *moved = ckpt_arena_array(&args->arena, capacity, sizeof *moved);
      if (moved != NULL && n != 0) memcpy(moved, listed, n * sizeof *listed);
      listed = moved;
    }
    char *copy = listed == NULL ? NULL : ckpt_arena_text(&args->arena, line, (size_t)length);
    if (copy == NULL)
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    else if (strlen(copy) == (size_t)length && parse_line(copy, &listed[n], is_sum))
      listed[n++].line = number;
    else if (n_malformed == NULL)
      status = ckpt_fail(err, CKPT_EFORMAT, path, NULL, "line %u is not `%s`", number, what);
    else if (++*n_malformed <= MAX_SAID)
      ckpt_report_warning(args, "%s: line %u is not `%s`", path, number, what);
  }
  free(line);
  if (status == CKPT_OK && ferror(file)) status = ckpt_fail_errno(err, path, "cannot read");
  if (status == CKPT_OK && n == 0) status = ckpt_fail(err, CKPT_EFORMAT, path, NULL, "holds no line `%s`", what);
  *out = listed;
  *n_out = n;
  return status;
}

ckpt_status ckpt_proving_read_list(ckpt_listed **out, size_t *n, ckpt_args *args, const char *path,
                                   bool (*is_sum)(const char *text), const char *what, size_t *n_malformed,
                                   ckpt_error *err) {
  FILE *file;
  CKPT_TRY(ckpt_text_file_open(&file, path, "a list", err));
  ckpt_status status = read_lines(file, out, n, args, path, is_sum, what, n_malformed, err);
  if (file != stdin) fclose(file);
  return status;
}

void ckpt_proving_print_sum(const char *sum, const char *path) {
  bool is_escaped = strpbrk(path, "\\\n\r") != NULL;
  printf("%s%s  ", is_escaped ? "\\" : "", sum);
  if (!ckpt_text_is_plain(path) &&
      isatty(STDOUT_FILENO)) { /* sha256sum would want it raw; a terminal must not get it */
    ckpt_text_print(stdout, path);
    path = "";
  }
  for (; *path != '\0'; path++) {
    const char *escape = *path == '\\' ? "\\\\" : *path == '\n' ? "\\n" : *path == '\r' ? "\\r" : NULL;
    if (escape != NULL)
      fputs(escape, stdout);
    else
      putchar(*path);
  }
  putchar('\n');
}
