/* ls.c - `ckpt ls`: a line per tensor, in byte order of names. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/pattern.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/index/index.h"
#include "libckpt/recipe/select/select.h"
#include "tools/cli/text.h"
#include "tools/report/input.h"
#include "tools/report/json_writer.h"
#include "tools/report/ls_stats.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

/* What is listed, in order. */
typedef struct listing {
  const ckpt_tensor **tensors;
  size_t n;
  const char *include;
  bool has_files; /* what a trainer saved beside the model is listed too: tensors are not chosen by their names */
} listing;

/* Whether a side file is listed: optimizer states, or all that a run goes on from. */
static bool is_listed(const listing *rows, const ckpt_side_file *side) {
  const char *role = ckpt_side_file_role(side->name);
  if (!rows->has_files || role == NULL) return false;
  return strcmp(rows->include, "all") == 0 || strcmp(rows->include, role) == 0;
}

/* ---- which tensors ------------------------------------------------------------------------------------------- */

static ckpt_status compile_patterns(ckpt_pattern ***out, size_t *n, ckpt_args *args, ckpt_error *err) {
  uint32_t at = 0;
  *n = 0;
  *out = ckpt_arena_array(&args->arena, (size_t)args->n_options + 1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  for (const ckpt_arg *arg; (arg = ckpt_args_next(args, "match", &at)) != NULL;) {
    CKPT_TRY(ckpt_pattern_new(&(*out)[*n], arg->text, NULL, err));
    (*n)++;
  }
  return CKPT_OK;
}

/* Whether one of the patterns matches a name of the tensor, or there is none. All are asked: each must match something
 * in the end. */
static ckpt_status matches(ckpt_pattern **patterns, size_t n, const ckpt_tensor *tensor, bool *result,
                           ckpt_error *err) {
  *result = n == 0;
  for (size_t i = 0; i < n; i++) {
    bool matched;
    CKPT_TRY(ckpt_pattern_match(patterns[i], tensor->name, &matched, err));
    for (const char *const *alias = tensor->aliases; !matched && alias != NULL && *alias != NULL; alias++)
      CKPT_TRY(ckpt_pattern_match(patterns[i], *alias, &matched, err));
    *result |= matched;
  }
  return CKPT_OK;
}

/* A pattern without a tensor: there may be one of another role. */
static ckpt_status refuse_idle(ckpt_pattern *pattern, const char *text, const ckpt_index *index, const char *include,
                               ckpt_error *err) {
  bool is_other = false;
  for (size_t i = 0; i < ckpt_index_count(index) && !is_other; i++)
    CKPT_TRY(matches(&pattern, 1, ckpt_index_at(index, i), &is_other, err));
  if (is_other)
    return ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL,
                     "--match '%s' matches no tensor of --include %s (--include all has some)", text, include);
  return ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL, "--match '%s' matches no tensor (%s)", text,
                   ckpt_pattern_is_word(text) ? "a pattern is of the whole name, with * for any part"
                                              : "ckpt ls without it lists the names");
}

static ckpt_status list(listing *out, ckpt_args *args, const ckpt_index *index, ckpt_error *err) {
  const char *include = ckpt_args_text(args, "include", "model");
  ckpt_pattern **patterns = NULL;
  size_t n_patterns = 0, n = ckpt_index_count(index);
  ckpt_status status;
  CKPT_TRY_GOTO(compile_patterns(&patterns, &n_patterns, args, err));
  out->include = include;
  out->has_files = n_patterns == 0;
  out->tensors = calloc(n + 1, sizeof *out->tensors);
  CKPT_TRY_GOTO(out->tensors != NULL ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory"));
  for (size_t i = 0; i < n; i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    bool wanted = ckpt_role_included(include, (ckpt_role)tensor->role, NULL);
    if (wanted) CKPT_TRY_GOTO(matches(patterns, n_patterns, tensor, &wanted, err));
    if (wanted) out->tensors[out->n++] = tensor;
  }
  uint32_t at = 0;
  for (size_t i = 0; i < n_patterns && status == CKPT_OK; i++) {
    const char *text = ckpt_args_next(args, "match", &at)->text;
    if (ckpt_pattern_n_matched(patterns[i]) == 0) status = refuse_idle(patterns[i], text, index, include, err);
  }
done:
  for (size_t i = 0; i < n_patterns; i++) ckpt_pattern_free(patterns[i]);
  return status;
}

/* An empty listing says what there would be: --include may ask for what this checkpoint does not have. */
static void say_roles(const ckpt_args *args, const ckpt_index *index) {
  size_t n_of[CKPT_N_ROLES] = {0}, n = ckpt_index_count(index), n_text = 0;
  char text[512];
  for (size_t i = 0; i < n; i++) n_of[ckpt_index_at(index, i)->role]++;
  for (int role = 0; role < CKPT_N_ROLES; role++)
    if (n_of[role] != 0 && n_text < sizeof text)
      n_text += (size_t)snprintf(text + n_text, sizeof text - n_text, "%s%zu %s", n_text == 0 ? "" : ", ", n_of[role],
                                 ckpt_role_name((ckpt_role)role));
  if (n == 0)
    ckpt_report_warning(args, "%s: holds no tensors", index->path);
  else
    ckpt_report_warning(args, "%s: --include %s lists none of its tensors (%s)", index->path,
                        ckpt_args_text(args, "include", "model"), text);
}

/* Names are not always those in the files. */
static void say_names(const ckpt_args *args, const ckpt_index *index) {
  char count[32];
  if (index->n_wrapped != 0)
    ckpt_report_note(args, "%s: names are shown unwrapped: one of %s is stored as %s (--names stored)", index->path,
                     ckpt_text_count(index->n_wrapped, count), index->first_wrapped);
  else if (index->is_unwrapped)
    ckpt_report_note(args, "%s: names are shown as the family has them, not as stored (--names stored)", index->path);
}

/* ---- as text and as JSON ----------------------------------------------------------------------------------------- */

typedef struct widths {
  size_t name, shape;
  int dtype;
} widths;

static void print_files(const listing *rows, const ckpt_index *index, const widths *w) {
  enum { ROLE_WIDTH = 9 };
  const int width = w->shape < ROLE_WIDTH ? ROLE_WIDTH : (int)w->shape;
  for (uint32_t i = 0; i < index->n_side_files && !ferror(stdout); i++) {
    const ckpt_side_file *side = &index->side_files[i];
    if (!is_listed(rows, side)) continue;
    size_t n_name = ckpt_text_print(stdout, side->name);
    printf("%*s  %-*s  %-*s  %12" PRIu64 "\n", n_name < w->name ? (int)(w->name - n_name) : 0, "", w->dtype, "file",
           width, ckpt_side_file_role(side->name), side->n_bytes);
  }
}

static void print_lines(const listing *rows, const ckpt_index *index, const ckpt_ls_stats *stats) {
  widths w = {0};
  char shape[CKPT_SHAPE_TEXT];
  for (size_t i = 0; i < rows->n; i++) {
    const ckpt_tensor *tensor = rows->tensors[i];
    size_t n_name = ckpt_text_columns(tensor->name),
           n_shape = strlen(ckpt_tensor_shape_text(tensor, shape, sizeof shape));
    int n_dtype = (int)strlen(ckpt_dtype_name((ckpt_dtype)tensor->dtype));
    if (n_name > w.name) w.name = n_name;
    if (n_shape > w.shape) w.shape = n_shape;
    if (n_dtype > w.dtype) w.dtype = n_dtype;
  }
  if (w.name > 120) w.name = 120; /* one monstrous name does not push every line off the screen */
  for (size_t i = 0; i < rows->n && !ferror(stdout); i++) {
    const ckpt_tensor *tensor = rows->tensors[i];
    size_t n_name = ckpt_text_print(stdout, tensor->name);
    printf("%*s  %-*s  %-*s  %12" PRIu64, n_name < w.name ? (int)(w.name - n_name) : 0, "", w.dtype,
           ckpt_dtype_name((ckpt_dtype)tensor->dtype), (int)w.shape,
           ckpt_tensor_shape_text(tensor, shape, sizeof shape), tensor->n_bytes);
    ckpt_ls_stats_print(stats, i);
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++) {
      fputs("  = ", stdout);
      ckpt_text_print(stdout, *alias);
    }
    putchar('\n');
  }
  print_files(rows, index, &w);
}

static void write_tensor(ckpt_emitter *json, const ckpt_tensor *tensor, const ckpt_ls_stats *stats, size_t i_stats) {
  ckpt_emit_object(json, NULL);
  ckpt_emit_text(json, "name", tensor->name);
  if (tensor->aliases != NULL) {
    ckpt_emit_array(json, "aliases");
    for (const char *const *alias = tensor->aliases; *alias != NULL; alias++) ckpt_emit_text(json, NULL, *alias);
    ckpt_emit_end(json);
  }
  ckpt_emit_text(json, "dtype", ckpt_dtype_name((ckpt_dtype)tensor->dtype));
  ckpt_emit_array(json, "shape");
  for (uint32_t i = 0; i < tensor->rank; i++) ckpt_emit_u64(json, NULL, tensor->shape[i]);
  ckpt_emit_end(json);
  ckpt_emit_u64(json, "n_bytes", tensor->n_bytes);
  ckpt_emit_text(json, "role", ckpt_role_name((ckpt_role)tensor->role));
  ckpt_emit_u64(json, "n_extents", tensor->n_extents);
  ckpt_ls_stats_emit(stats, i_stats, json);
  ckpt_emit_end(json);
}

static void write_json(const ckpt_args *args, const ckpt_index *index, const listing *rows,
                       const ckpt_ls_stats *stats) {
  uint64_t n_params = 0, n_bytes = 0; /* of what is listed */
  for (size_t i = 0; i < rows->n; i++) {
    if (rows->tensors[i]->role == CKPT_ROLE_PARAMETER) n_params += rows->tensors[i]->n_elements;
    n_bytes += rows->tensors[i]->n_bytes;
  }
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_text(&json, "format", index->format);
  ckpt_emit_u64(&json, "n_params", n_params);
  ckpt_emit_u64(&json, "n_bytes", n_bytes);
  ckpt_emit_array(&json, "tensors");
  for (size_t i = 0; i < rows->n; i++) write_tensor(&json, rows->tensors[i], stats, i);
  ckpt_emit_end(&json);
  ckpt_emit_array(&json, "files");
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    if (!is_listed(rows, &index->side_files[i])) continue;
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "name", index->side_files[i].name);
    ckpt_emit_text(&json, "role", ckpt_side_file_role(index->side_files[i].name));
    ckpt_emit_u64(&json, "n_bytes", index->side_files[i].n_bytes);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_input input;
  listing rows = {0};
  ckpt_ls_stats stats = {0};
  ckpt_status status = ckpt_input_open(&input, args, 0, &err);
  if (status == CKPT_OK) status = list(&rows, args, input.index, &err);
  if (status == CKPT_OK) status = ckpt_ls_stats_read(&stats, args, input.index, rows.tensors, rows.n, &err);
  bool is_plan = ckpt_args_has(args, "plan");
  if (status == CKPT_OK && is_plan && !stats.is_printed) ckpt_proving_plan(args, NULL, &(ckpt_planned){0});
  if (status == CKPT_OK && !is_plan) {
    ckpt_input_print_notes(args, &input);
    if (!ckpt_args_has(args, "stats")) ckpt_report_no_trace(args);
    if (rows.n == 0) say_roles(args, input.index);
    say_names(args, input.index);
    if (args->json)
      write_json(args, input.index, &rows, &stats);
    else
      print_lines(&rows, input.index, &stats);
  }
  ckpt_ls_stats_free(&stats);
  free(rows.tensors);
  ckpt_input_close(&input);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_ls = {
    .name = "ls",
    .forms = "ls PATH [--match PATTERN] [--include WHAT] [--stats]",
    .summary = "list tensors",
    .details =
        "Prints a line per tensor, in byte order of names: name, dtype, shape, bytes, and `= NAME` for each "
        "further name. With --include all it then lists the files that a trainer saved beside the model. "
        "Each has a role: optimizer, scheduler, scaler, sampler, data, rng, trainer, arguments or custom. "
        "With --include optimizer it lists the optimizer's file. Reads headers only, unless --stats is given.",
    .json =
        "{\"status\",\"format\",\"n_params\",\"n_bytes\",\"tensors\":[{\"name\",\"dtype\",\"shape\",\"n_bytes\","
        "\"role\",\"n_extents\"}],\"files\":[{\"name\",\"role\",\"n_bytes\"}],\"notes\":[]}; --stats adds "
        "\"min\",\"max\",\"mean\",\"std\",\"nan\",\"inf\",\"zeros\"",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
