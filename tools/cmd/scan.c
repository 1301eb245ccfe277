/* scan.c - `ckpt scan`: every pickle in files and folders, judged. Nothing is executed. */
#include "libckpt/recipe/scan/scan.h"

#include <inttypes.h>
#include <stdio.h>

#include "libckpt/base/error.h"
#include "tools/cli/text.h"
#include "tools/report/job.h"
#include "tools/report/json_writer.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

/* ---- as text ----------------------------------------------------------------------------------------------------- */

/* What lies behind the break of a broken one is not known. */
static ckpt_pickle_verdict worst_of(const ckpt_scan_pickle *pickle) {
  ckpt_pickle_verdict worst = pickle->is_broken ? CKPT_PICKLE_FOREIGN : CKPT_PICKLE_DATA;
  for (uint32_t i = 0; i < pickle->n_globals; i++)
    if (pickle->globals[i].verdict > worst) worst = pickle->globals[i].verdict;
  return worst;
}

static void print_place(const char *file, const char *record) {
  ckpt_text_print(stdout, file);
  if (record != NULL) fputs(": ", stdout), ckpt_text_print(stdout, record);
}

static void print_global(const ckpt_scan_global *global) {
  static const struct {
    const char *what;
    size_t offset;
  } counts[] = {{"called", offsetof(ckpt_scan_global, n_called)}, {"built", offsetof(ckpt_scan_global, n_built)}};
  printf("  %-21s  ", ckpt_pickle_verdict_name(global->verdict));
  ckpt_text_print(stdout, global->name);
  printf(" at byte %" PRIu64, global->first);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const uint64_t *n = (const void *)((const char *)global + counts[i].offset);
    if (*n != 0) printf(", %s %" PRIu64 " time%s", counts[i].what, *n, ckpt_plural(*n));
  }
  putchar('\n');
}

static void print_pickle(const ckpt_scan_pickle *pickle) {
  char count[32];
  print_place(pickle->file, pickle->record);
  if (pickle->at != 0) printf(": at byte %" PRIu64, pickle->at);
  printf(": %s pickle%s of protocol %d", ckpt_text_count(pickle->n_pickles, count), ckpt_plural(pickle->n_pickles),
         pickle->protocol);
  printf(", %s opcodes, %s\n", ckpt_text_count(pickle->n_opcodes, count), ckpt_pickle_verdict_name(worst_of(pickle)));
  for (uint32_t i = 0; i < pickle->n_globals; i++) print_global(&pickle->globals[i]);
}

static void print_problem(const ckpt_finding *finding) {
  char count[32];
  fputs("problem: ", stdout);
  print_place(finding->file, finding->tensor);
  fputs(": ", stdout);
  char text[2560];
  ckpt_text_print(stdout, ckpt_report_finding_text(finding, text, sizeof text));
  putchar('\n');
  if (finding->n_more != 0) printf("problem: ... and %s more\n", ckpt_text_count(finding->n_more, count));
}

static void print_text(const ckpt_args *args, const ckpt_scan *scan) {
  char count[32];
  size_t n_problems = scan->findings.n_of[CKPT_PROBLEM];
  for (uint32_t i = 0; i < scan->n && !ferror(stdout); i++) print_pickle(&scan->pickles[i]);
  for (size_t i = 0; i < scan->findings.n; i++) print_problem(&scan->findings.items[i]);
  for (uint32_t i = 0; i < args->n_inputs; i++) {
    if (i != 0) fputs(", ", stdout);
    ckpt_text_print(stdout, args->inputs[i]);
  }
  if (n_problems == 0) fputs(": ok", stdout);
  if (n_problems != 0) printf(": %s problem%s", ckpt_text_count(n_problems, count), ckpt_plural(n_problems));
  printf(", %s file%s", ckpt_text_count(scan->n_files, count), ckpt_plural(scan->n_files));
  printf(", %s pickle%s\n", ckpt_text_count(scan->n_pickles, count), ckpt_plural(scan->n_pickles));
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

static void write_pickle(ckpt_emitter *json, const ckpt_scan_pickle *pickle) {
  ckpt_emit_object(json, NULL);
  ckpt_emit_text(json, "file", pickle->file);
  ckpt_emit_text(json, "record", pickle->record);
  ckpt_emit_u64(json, "at", pickle->at);
  ckpt_emit_u64(json, "n_pickles", pickle->n_pickles);
  ckpt_emit_u64(json, "protocol", pickle->protocol);
  ckpt_emit_u64(json, "n_bytes", pickle->n_bytes);
  ckpt_emit_u64(json, "n_opcodes", pickle->n_opcodes);
  ckpt_emit_text(json, "verdict", ckpt_pickle_verdict_name(worst_of(pickle)));
  ckpt_emit_array(json, "globals");
  for (uint32_t i = 0; i < pickle->n_globals; i++) {
    const ckpt_scan_global *global = &pickle->globals[i];
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "name", global->name);
    ckpt_emit_text(json, "verdict", ckpt_pickle_verdict_name(global->verdict));
    ckpt_emit_u64(json, "first", global->first);
    ckpt_emit_u64(json, "n_named", global->n_named);
    ckpt_emit_u64(json, "n_called", global->n_called);
    ckpt_emit_u64(json, "n_built", global->n_built);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
  ckpt_emit_end(json);
}

static void write_json(const ckpt_args *args, const ckpt_scan *scan) {
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", scan->findings.n_of[CKPT_PROBLEM] == 0 ? "ok" : "problems");
  ckpt_emit_array(&json, "problems");
  for (size_t i = 0; i < scan->findings.n; i++) {
    const ckpt_finding *finding = &scan->findings.items[i];
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "file", finding->file);
    ckpt_emit_text(&json, "record", finding->tensor);
    char text[2560];
    ckpt_emit_text(&json, "message", ckpt_report_finding_text(finding, text, sizeof text));
    if (finding->n_more != 0) ckpt_emit_u64(&json, "n_more", finding->n_more);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  ckpt_emit_array(&json, "pickles");
  for (uint32_t i = 0; i < scan->n; i++) write_pickle(&json, &scan->pickles[i]);
  ckpt_emit_end(&json);
  ckpt_emit_u64(&json, "n_problems", scan->findings.n_of[CKPT_PROBLEM]);
  ckpt_emit_u64(&json, "n_files", scan->n_files);
  ckpt_emit_u64(&json, "n_bytes", scan->n_bytes);
  ckpt_emit_u64(&json, "n_pickles", scan->n_pickles);
  ckpt_emit_u64(&json, "n_opcodes", scan->n_opcodes);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* Scans one input. Of several, one that cannot be opened is a problem, and the others are looked at. */
static ckpt_status scan_input(ckpt_scan *scan, const ckpt_args *args, const char *path, const ckpt_run_options *run,
                              ckpt_error *err) {
  ckpt_error own = {0};
  ckpt_status status = ckpt_scan_path(scan, path, run, &own);
  bool goes_on = args->n_inputs > 1 && status != CKPT_ENOMEM && status != CKPT_ECANCELED && status != CKPT_EINTERNAL;
  if (status != CKPT_OK && goes_on)
    return ckpt_findings_add(&scan->findings, err, CKPT_PROBLEM, path, NULL, "not looked into: %s", own.message);
  if (status != CKPT_OK) *err = own;
  return status;
}

/* What pickles take is known when they are read: at most 64 times their bytes, and no more than --memory. */
static ckpt_status show_plan(const ckpt_args *args, ckpt_error *err) {
  ckpt_scan_size size = {0};
  char row[64], count[32];
  for (uint32_t i = 0; i < args->n_inputs; i++) CKPT_TRY(ckpt_scan_measure(&size, args->inputs[i], err));
  uint64_t most = ckpt_args_has(args, "memory") ? ckpt_args_size(args, "memory", 0) : UINT64_C(16) << 30;
  uint64_t peak = size.n_largest < most / 64 ? 64 * size.n_largest : most;
  snprintf(row, sizeof row, "scan %s file%s", ckpt_text_count(size.n_files, count), ckpt_plural(size.n_files));
  ckpt_proving_plan(args, row, &(ckpt_planned){size.n_bytes, size.n_bytes, peak});
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_scan scan = {0};
  ckpt_job job;
  ckpt_status status = CKPT_OK;
  if (ckpt_args_has(args, "plan")) {
    status = show_plan(args, &err);
    return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
  }
  ckpt_job_begin(&job, args);
  if (!ckpt_args_has(args, "memory")) job.run.memory = 0; /* what the largest pickle takes */
  for (uint32_t i = 0; i < args->n_inputs && status == CKPT_OK; i++)
    status = scan_input(&scan, args, args->inputs[i], &job.run, &err);
  ckpt_job_end(&job);
  bool is_ok = scan.findings.n_of[CKPT_PROBLEM] == 0;
  if (status == CKPT_OK) {
    ckpt_report_no_trace(args);
    if (args->json)
      write_json(args, &scan);
    else
      print_text(args, &scan);
  }
  ckpt_scan_free(&scan);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return is_ok ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

const ckpt_verb ckpt_verb_scan = {
    .name = "scan",
    .forms = "scan PATH...",
    .summary = "judge every pickle in files and folders",
    .details =
        "Loading a pickle runs what it names. scan reads every regular file and goes by content, not suffix. "
        "It finds pickles of protocols 0 to 5, also several in a row, and numpy's object arrays. It looks "
        "into DCP folders, tar and zip archives (torch.save writes zip), also broken ones, and into gzip, "
        "zlib and zstd streams. It judges each class or function name: tensor data, known framework class, "
        "foreign, or dangerous. The exit status is 1 if a pickle calls or builds something foreign, names "
        "something dangerous, or if an archive is broken, a file cannot be examined or unknown bytes follow "
        "a pickle. No verb of ckpt ever executes a pickle.",
    .json =
        "{\"status\",\"problems\":[{\"file\",\"record\",\"message\"}],\"pickles\":[{\"file\",\"record\",\"at\","
        "\"n_pickles\",\"protocol\",\"n_bytes\",\"n_opcodes\",\"verdict\",\"globals\":[{\"name\",\"verdict\",\"first\","
        "\"n_named\",\"n_called\",\"n_built\"}]}],\"n_problems\",\"n_files\",\"n_bytes\",\"n_pickles\",\"n_opcodes\","
        "\"notes\":[]}; status is ok or problems; \"first\" is an offset into the file or record; pickles of a "
        "DCP file that name, call and build the same things share one row; \"n_more\" on the last of 1,000 problems "
        "counts the "
        "others",
    .sets = CKPT_SET_RUN,
    .min_inputs = 1,
    .max_inputs = UINT32_MAX,
    .run = run,
};
