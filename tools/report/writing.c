/* writing.c - see writing.h. In this order: open the input, refuse, plan, run, commit, say what was done. Nothing is
 * created before every refusal that the command line, the headers and the paths allow has been made. */
#include "tools/report/writing.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/index/overlap.h"
#include "libckpt/recipe/convert/receipt.h"
#include "tools/cli/text.h"
#include "tools/report/describe.h"
#include "tools/report/input.h"
#include "tools/report/json_writer.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

typedef struct job {
  ckpt_args *args;
  const ckpt_writing *writing;
  ckpt_input input;
  ckpt_quantize_options quantize;
  ckpt_further_inputs further;
  ckpt_convert_options options;
  ckpt_convert_target *targets;
  ckpt_convert_request request;
  ckpt_plan *plan;
  uint32_t first_digested; /* row of the plan; from there on they are the input's digest's */
  ckpt_sink *receipt;      /* NULL without --receipt */
} job;

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* The shards of what split cuts: a folder in the input's own format where that has them. */
static ckpt_status cut(const job *j, ckpt_convert_target *target, ckpt_error *err) {
  const bool is_own = ckpt_caps_of(j->input.index).shards;
  target->to = is_own ? j->input.index->format : "hf";
  if (!is_own || ckpt_text_ends(target->path, "/") || ckpt_format_of_suffix(target->path) != NULL) return CKPT_OK;
  target->path = ckpt_arena_printf(&j->args->arena, "%s/", target->path); /* what says that it is a folder */
  CKPT_TRY_ALLOC(target->path, err);
  return CKPT_OK;
}

/* Whether a path is that of one file in a format that shards can have: those of safetensors stand in a folder of hf. */
static bool names_shardable(const char *path) {
  const ckpt_format *format = ckpt_format_of_suffix(path);
  return format != NULL && (format->caps.shards || strcmp(format->name, "safetensors") == 0);
}

/* Whether an output of quantize may be a folder: the model itself, in whatever form, and shards. */
static bool may_be_folder(const ckpt_writing *w, const ckpt_convert_target *target) {
  return w->quantizes && (target->preset == NULL || target->to != NULL);
}

/* The outputs as given, but a folder before what is written into it. */
static ckpt_status make_targets(job *j, uint32_t *n_targets, ckpt_error *err) {
  const ckpt_writing *w = j->writing;
  const char *const *outputs;
  uint32_t n = w->n_targets;
  CKPT_TRY(ckpt_args_texts(&outputs, j->args, "output", err));
  while (w->targets == NULL && outputs[n] != NULL) n++;
  j->targets = ckpt_arena_array(&j->args->arena, n, sizeof *j->targets);
  CKPT_TRY_ALLOC(j->targets, err);
  for (uint32_t i = 0; i < n; i++) {
    ckpt_convert_target target = w->targets != NULL ? w->targets[i] : w->target;
    if (w->targets == NULL) target.path = outputs[i];
    if (w->is_split) CKPT_TRY(cut(j, &target, err));
    if (w->is_one_file && !may_be_folder(w, &target) && !names_shardable(target.path))
      return ckpt_args_fail(
          j->args, err, "writes one file, and %s is not named as one (%s)", target.path,
          w->quantizes ? "*.gguf; shards go to FOLDER/ with --shard-size" : "*.safetensors or *.gguf");
    uint32_t at = 0;
    while (at < i && ckpt_path_below(target.path, j->targets[at].path) == NULL) at++;
    memmove(j->targets + at + 1, j->targets + at, (i - at) * sizeof *j->targets);
    j->targets[at] = target;
  }
  *n_targets = n;
  return CKPT_OK;
}

/* What options name beside the input: a model under names as the input's. */
static ckpt_status open_further(job *j, ckpt_error *err) {
  const ckpt_writing *w = j->writing;
  const ckpt_open_options options = {.struct_size = sizeof options,
                                     .stored_names = ckpt_args_of(j->args, "names", 0) != NULL};
  j->further = ckpt_further_inputs_list(&w->target.values, w->quantizes ? &w->quantize : NULL, NULL);
  const ckpt_further_input *graph = ckpt_further_inputs_find(&j->further, "graph");
  if (graph != NULL && j->input.like != NULL)
    return ckpt_args_fail(j->args, err, "--like with --graph: the graph's model is the one");
  CKPT_TRY(ckpt_further_inputs_open(&j->further, &options, err));
  if (graph == NULL || graph->index->graph != NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, graph->path, NULL, "has no graph (--graph takes an ONNX model)");
}

/* The input under canonical names; from a run to a run of the same framework under those that the files have, which its
 * model goes by. */
static ckpt_status open_input(job *j, ckpt_error *err) {
  CKPT_TRY(ckpt_input_open(&j->input, j->args, 0, err));
  if (!j->writing->has_ranks || !j->input.index->is_unwrapped) return CKPT_OK;
  const ckpt_format *to = ckpt_format_find(j->writing->target.to), *from = ckpt_format_find(j->input.index->format);
  if (to == NULL || from == NULL || !to->caps.masters || !from->caps.masters) return CKPT_OK;
  ckpt_input_close(&j->input);
  CKPT_TRY(ckpt_input_open_all(&j->input, j->args, 0, true, NULL, NULL, err));
  return ckpt_index_note(j->input.index, false, err, "names stay as stored, for the run that goes on has them");
}

static ckpt_status make_request(job *j, ckpt_error *err) {
  ckpt_args *args = j->args;
  uint32_t n = 0;
  const ckpt_arg *like = ckpt_args_of(args, "like", 0);
  CKPT_TRY(make_targets(j, &n, err));
  j->options = j->writing->selection;
  j->options.struct_size = sizeof j->options;
  j->options.input = args->inputs[0];
  j->options.stored_names = j->input.index->is_stored;
  j->quantize = j->writing->quantize;
  j->quantize.imatrix = ckpt_further_index(&j->further, "imatrix");
  j->request = (ckpt_convert_request){.verb = args->verb->name,
                                      .from = j->input.index,
                                      .adapters = j->input.adapters,
                                      .like = j->input.like,
                                      .like_path = like == NULL ? NULL : like->text,
                                      .further = j->further,
                                      .targets = j->targets,
                                      .n_targets = n,
                                      .options = &j->options,
                                      .quantize = j->writing->quantizes ? &j->quantize : NULL};
  return CKPT_OK;
}

/* A file that an option names must be none of the outputs. */
static ckpt_status check_apart(const job *j, const char *option, const char *path, ckpt_error *err) {
  for (uint32_t i = 0; i < j->request.n_targets; i++)
    if (ckpt_is_same_path(j->targets[i].path, path))
      return ckpt_args_fail(j->args, err, "--%s %s is an output too", option, path);
  return CKPT_OK;
}

/* Whether an adapter says of which content its base was. */
static bool knows_base(const job *j) {
  ckpt_adapter_info info;
  for (uint32_t i = 0; j->input.adapters != NULL && ckpt_adapters_at(j->input.adapters, i, &info); i++)
    if (info.base != NULL) return true;
  return false;
}

/* The base that was merged into, against those that adapters were trained on. */
static ckpt_status say_base(const job *j, ckpt_error *err) {
  ckpt_adapter_info info;
  ckpt_digest base;
  char trained[80], merged[80];
  if (!knows_base(j)) return CKPT_OK;
  CKPT_TRY(ckpt_receipt_input(j->plan, &j->request, &base, err));
  for (uint32_t i = 0; ckpt_adapters_at(j->input.adapters, i, &info); i++)
    if (info.base != NULL && memcmp(info.base, &base, sizeof base) != 0)
      ckpt_report_warning(j->args, "%s was trained on another base: its run.json says %s, and %s is %s", info.path,
                          ckpt_digest_text(info.base, trained), j->input.base->path, ckpt_digest_text(&base, merged));
  return CKPT_OK;
}

static ckpt_status plan_receipt(job *j, ckpt_error *err) {
  const char *path = ckpt_args_text(j->args, "receipt", NULL), *trace = ckpt_args_text(j->args, "trace", NULL);
  if (trace != NULL) CKPT_TRY(ckpt_plan_keeps_apart(j->plan, trace, err));
  if (trace != NULL) CKPT_TRY(check_apart(j, "trace", trace, err));
  if (trace != NULL && path != NULL && ckpt_is_same_path(path, trace))
    return ckpt_args_fail(j->args, err, "--trace %s is the receipt too", trace);
  j->first_digested = j->plan->n_rows;
  if (path == NULL) return knows_base(j) ? ckpt_receipt_plan_input(j->plan, &j->request, err) : CKPT_OK;
  CKPT_TRY(check_apart(j, "receipt", path, err));
  CKPT_TRY(ckpt_plan_sink(j->plan, path, false, j->options.force, &j->receipt, err));
  return ckpt_receipt_plan(j->plan, &j->request, err);
}

/* Split and join only cut: a model that GGUF would name anew, or GGUF has named, is another model in another format. */
static ckpt_status check_same_names(const job *j, const ckpt_output *output, ckpt_error *err) {
  const bool only_cuts = j->writing->is_split || (j->writing->is_one_file && !j->writing->quantizes);
  if (!only_cuts || ckpt_caps_of(j->input.index).dialect == output->format->caps.dialect) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, output->path, NULL,
                   "would be %s, and %s is %s, which %s does not change (ckpt convert)", output->format->name,
                   j->input.index->path, j->input.index->format, j->args->verb->name);
}

/* What the verb writes, a file or a folder, against what the outputs are called. */
static ckpt_status check_forms(const job *j, ckpt_error *err) {
  for (uint32_t i = 0; i < j->plan->n_outputs; i++) {
    const ckpt_output *output = &j->plan->outputs[i];
    if (strcmp(output->path, "-") == 0)
      return ckpt_args_fail(j->args, err, "-o - : a checkpoint cannot be written to stdout (./- is a file named -)");
    const ckpt_format *named = ckpt_format_of_suffix(output->path);
    if (j->writing->is_one_file && !may_be_folder(j->writing, &j->targets[i]) && output->options.is_folder)
      return ckpt_args_fail(j->args, err, "writes one file, and %s would be a folder (name it *.safetensors or *.gguf)",
                            output->path);
    CKPT_TRY(check_same_names(j, output, err));
    if (j->writing->is_folder && named != NULL && !named->caps.is_folder)
      return ckpt_args_fail(j->args, err, "writes a folder, and %s is named as a file", output->path);
    if (j->writing->is_whole && output->format->caps.ranks)
      return ckpt_args_fail(j->args, err, "writes a model in one piece, and %s is cut among ranks (ckpt reshard)",
                            output->format->name);
    if (j->writing->has_ranks && !output->format->caps.ranks)
      return ckpt_args_fail(j->args, err, "writes what is cut among ranks, and %s is not (ckpt consolidate)",
                            output->format->name);
  }
  return CKPT_OK;
}

/* One file of several is no model to be joined, and what one rank has of a tensor is not the tensor. */
static ckpt_status refuse_part(const job *j, ckpt_error *err) {
  const ckpt_index *index = j->input.index;
  size_t n_prefix;
  unsigned number, total;
  if (index->part != NULL && (j->writing->is_whole || j->writing->has_ranks))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL,
                     "%s: the other ranks' are not here (convert writes what is)", index->part);
  if (!j->writing->is_one_file || strcmp(index->format, "safetensors") != 0 ||
      !ckpt_safetensors_numbered(ckpt_path_name(index->path), &n_prefix, &number, &total) || total < 2)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL,
                   "is file %u of the %u of a model (name the folder, or its index; convert takes one alone)", number,
                   total);
}

/* A resharded run is to go on: what lies beside its weights and is not read would be missing, an optimizer's file among
 * it that would go along as it is, unless optimizer states are to be left out. */
static ckpt_status refuse_left(const job *j, ckpt_error *err) {
  const ckpt_index *index = j->input.index;
  for (uint32_t i = 0; i < index->n_notes && strcmp(j->options.include, "all") == 0; i++)
    if (ckpt_note_is_state(&index->notes[i]))
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL, "%s", index->notes[i].text), err,
                         "%include=no-optimizer goes on without");
  return CKPT_OK;
}

static ckpt_status make_plan(job *j, const ckpt_run_options *run, ckpt_error *err) {
  CKPT_TRY(refuse_part(j, err));
  CKPT_TRY(make_request(j, err));
  CKPT_TRY(ckpt_plan_new(&j->plan, err));
  if (j->writing->drops_nothing) CKPT_TRY(refuse_left(j, err));
  CKPT_TRY(ckpt_convert_plan(j->plan, &j->request, err));
  CKPT_TRY(check_forms(j, err));
  CKPT_TRY(plan_receipt(j, err));
  const uint32_t n_left_out = j->plan->outputs[0].losses.n; /* as asked; what follows is the format's */
  CKPT_TRY(ckpt_fail_at(ckpt_plan_prepare(j->plan, run, err), err, j->input.index->path, NULL));
  const ckpt_losses *losses = &j->plan->outputs[0].losses;
  if (j->writing->drops_nothing && losses->n > n_left_out)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, j->plan->outputs[0].path, NULL,
                     "%s cannot hold %s (convert writes what it can hold)", j->plan->outputs[0].format->name,
                     losses->texts[n_left_out]);
  return CKPT_OK;
}

/* ---- --plan ------------------------------------------------------------------------------------------------------ */

static ckpt_status describe(const job *j, ckpt_written **out, ckpt_error *err) {
  const ckpt_described described = {.arena = &j->args->arena,
                                    .plan = j->plan,
                                    .input = &j->input,
                                    .options = &j->options,
                                    .writing = j->writing,
                                    .takes_include = ckpt_verb_takes(j->args->verb, "include")};
  return ckpt_describe_outputs(&described, out, err);
}

/* Whether these are the bytes that will be written. */
static bool is_sized(const ckpt_output *output) {
  for (uint32_t i = 0; i < output->layout.n_files; i++)
    if (output->layout.files[i].n_bytes == CKPT_SIZE_UNKNOWN) return false;
  return true;
}

/* Goes through the rows as ckpt_plan_print does, for those of one output. */
typedef struct row_printer {
  const ckpt_plan *plan;
  ckpt_emitter *json; /* NULL: lines */
  uint32_t row, sink;
} row_printer;

static void emit_row(ckpt_emitter *json, const ckpt_row *row, const char *from) {
  ckpt_emit_object(json, NULL);
  ckpt_emit_text(json, "name", row->tensor->name);
  ckpt_emit_text(json, "dtype", ckpt_dtype_name((ckpt_dtype)row->expr->dtype));
  ckpt_emit_array(json, "shape");
  for (uint32_t axis = 0; axis < row->expr->rank; axis++) ckpt_emit_u64(json, NULL, row->expr->shape[axis]);
  ckpt_emit_end(json);
  ckpt_emit_text(json, "from", from);
  ckpt_emit_end(json);
}

static void print_heading(const char *path) {
  ckpt_text_print(stdout, path);
  puts(":");
}

static void print_row(void *arg, const char *line, const char *from) {
  row_printer *printer = arg;
  const ckpt_row *row;
  do {
    row = &printer->plan->rows[printer->row++];
  } while (row->sink < printer->plan->n_outputs && row->tensor == NULL); /* dropped by its format: not printed */
  if (row->output != printer->sink) return;
  if (printer->json != NULL) {
    emit_row(printer->json, row, from);
    return;
  }
  ckpt_text_print(stdout, line);
  putchar('\n');
}

/* An output's own fields, into the object that is open. */
static ckpt_status emit_output(const job *j, uint32_t number, const ckpt_written *output, ckpt_emitter *json,
                               ckpt_error *err) {
  ckpt_emit_text(json, "output", output->path);
  ckpt_emit_text(json, "format", output->format);
  ckpt_emit_u64(json, "n_tensors", output->n_tensors);
  ckpt_emit_u64(json, "n_params", output->n_params);
  ckpt_emit_u64(json, "n_bytes", output->n_bytes);
  ckpt_emit_bool(json, "is_exact", is_sized(&j->plan->outputs[number]));
  ckpt_emit_text(json, "dtype", output->dtype);
  ckpt_emit_text(json, "weights", output->weights);
  ckpt_report_emit_dropped(json, output);
  if (!ckpt_args_plans_rows(j->args)) return CKPT_OK;
  ckpt_emit_array(json, "rows");
  row_printer printer = {.plan = j->plan, .json = json, .sink = number};
  CKPT_TRY(ckpt_plan_print(j->plan, print_row, &printer, err));
  ckpt_emit_end(json);
  return CKPT_OK;
}

/* One output or several, in the shape of a run's own result. */
static ckpt_status emit_plan(const job *j, const ckpt_written *outputs, uint64_t n_bytes_written, uint64_t n_free,
                             double seconds, ckpt_error *err) {
  const ckpt_plan *plan = j->plan;
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  if (plan->n_outputs > 1) ckpt_emit_array(&json, "outputs");
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    if (plan->n_outputs > 1) ckpt_emit_object(&json, NULL);
    CKPT_TRY(emit_output(j, i, &outputs[i], &json, err));
    if (plan->n_outputs > 1) ckpt_emit_end(&json);
  }
  if (plan->n_outputs > 1) ckpt_emit_end(&json);
  ckpt_emit_u64(&json, "n_bytes_read", plan->n_bytes_read);
  ckpt_emit_u64(&json, "n_bytes_fetched", plan->n_bytes_fetched);
  ckpt_emit_u64(&json, "n_bytes_written", n_bytes_written);
  if (n_free == CKPT_SIZE_UNKNOWN)
    ckpt_emit_null(&json, "n_bytes_free");
  else
    ckpt_emit_u64(&json, "n_bytes_free", n_free);
  ckpt_emit_u64(&json, "peak_bytes", plan->peak + plan->beside);
  ckpt_emit_number(&json, "seconds", seconds);
  ckpt_report_emit_notes(j->args, &json, outputs, plan->n_outputs);
  ckpt_emit_end(&json);
  return CKPT_OK;
}

/* Bytes that are free where a path is, or would be; CKPT_SIZE_UNKNOWN where nobody says. *device: of what. */
static uint64_t free_at(const char *path, dev_t *device) {
  char folder[PATH_MAX];
  struct statvfs space;
  struct stat found;
  if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder) return CKPT_SIZE_UNKNOWN;
  while (stat(folder, &found) != 0) {
    char *slash = strrchr(folder, '/');
    if (slash == NULL) {
      snprintf(folder, sizeof folder, ".");
    } else if (slash == folder) {
      folder[1] = '\0';
    } else {
      *slash = '\0';
    }
    if (slash == NULL || slash == folder) break;
  }
  if (stat(folder, &found) != 0 || statvfs(folder, &space) != 0) return CKPT_SIZE_UNKNOWN;
  *device = found.st_dev;
  return (uint64_t)space.f_bavail * space.f_frsize;
}

/* The least space that outputs find; a warning for the first of a device that has too little for all that it gets. */
static uint64_t compare_space(const job *j, const ckpt_written *outputs) {
  uint64_t least = CKPT_SIZE_UNKNOWN;
  bool is_told = false;
  for (uint32_t i = 0; i < j->plan->n_outputs; i++) {
    dev_t device = 0, other = 0;
    const uint64_t n_free = free_at(outputs[i].path, &device);
    uint64_t n_needed = 0;
    for (uint32_t k = 0; k < j->plan->n_outputs; k++)
      if (free_at(outputs[k].path, &other) != CKPT_SIZE_UNKNOWN && other == device) n_needed += outputs[k].n_bytes;
    if (n_free < least) least = n_free;
    char needed[32], left[32];
    if (n_free != CKPT_SIZE_UNKNOWN && n_needed > n_free && !is_told)
      ckpt_report_warning(j->args, "%s: %s to write, and %s free there", outputs[i].path,
                          ckpt_text_size(n_needed, needed), ckpt_text_size(n_free, left));
    is_told = is_told || n_needed > n_free;
  }
  return least;
}

static ckpt_status show_plan(const job *j, ckpt_error *err) {
  const ckpt_plan *plan = j->plan;
  ckpt_written *outputs;
  uint64_t n_digested = 0, n_bytes = 0;
  bool is_exact = true;
  char read[32], write[32], peak[32], count[32], space[48] = "", duration[48];
  CKPT_TRY(describe(j, &outputs, err));
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    n_bytes += outputs[i].n_bytes;
    is_exact = is_exact && is_sized(&plan->outputs[i]);
  }
  double seconds = ((double)plan->n_bytes_fetched + (double)n_bytes) / CKPT_PLANNED_BYTES_PER_SECOND;
  const uint64_t n_free = compare_space(j, outputs);
  if (j->args->json) return emit_plan(j, outputs, n_bytes, n_free, seconds, err);
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    ckpt_text_print(stdout, outputs[i].path);
    printf(": %s, %s tensor%s, %s%s%s\n", outputs[i].format, ckpt_text_count(outputs[i].n_tensors, count),
           ckpt_plural(outputs[i].n_tensors), is_sized(&plan->outputs[i]) ? "" : "about ",
           ckpt_text_size(outputs[i].n_bytes, write), is_sized(&plan->outputs[i]) ? "" : " before compression");
    ckpt_report_dropped(stdout, "", &outputs[i], false);
    for (const ckpt_said *said = outputs[i].said; said != NULL && said->text != NULL; said++) puts(said->text);
  }
  for (uint32_t i = j->first_digested; i < plan->n_rows; i++) n_digested += plan->rows[i].output == CKPT_NO_SINK;
  if (n_digested != 0)
    printf("%s more tensor%s read for the input's digest%s\n", ckpt_text_count(n_digested, count),
           ckpt_plural(n_digested), j->receipt != NULL ? " in the receipt" : "");
  printf("reads %s", ckpt_text_size(plan->n_bytes_read, read));
  if (plan->n_bytes_fetched != plan->n_bytes_read)
    printf(" (%s with the gaps between short runs)", ckpt_text_size(plan->n_bytes_fetched, read));
  if (n_free != CKPT_SIZE_UNKNOWN) snprintf(space, sizeof space, ", %s free", ckpt_text_size(n_free, count));
  printf(", writes %s%s, memory %s%s, about %s where both go at 1 GB/s\n", is_exact ? "" : "about ",
         ckpt_text_size(n_bytes, write), ckpt_text_size(plan->peak + plan->beside, peak), space,
         ckpt_text_duration(seconds, duration));
  for (uint32_t i = 0; i < plan->n_outputs && ckpt_args_plans_rows(j->args); i++) {
    row_printer printer = {.plan = plan, .sink = i};
    if (plan->n_outputs > 1) print_heading(outputs[i].path);
    CKPT_TRY(ckpt_plan_print(plan, print_row, &printer, err));
  }
  return CKPT_OK;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* What killed runs had left at an output's place: it is gone, or in the user's way. */
static void say_leftovers(const job *j, const ckpt_leftovers *found) {
  char size[32];
  if (found == NULL) return;
  if (found->n_removed == 1)
    ckpt_report_note(j->args, "removed what an interrupted run left: %s (%s)", found->first,
                     ckpt_text_size(found->n_bytes, size));
  else if (found->n_removed > 1)
    ckpt_report_note(j->args, "removed what interrupted runs left: %s and %u more (%s)", found->first,
                     found->n_removed - 1, ckpt_text_size(found->n_bytes, size));
  if (found->kept_beside[0] != '\0')
    ckpt_report_warning(j->args,
                        "the output that an interrupted run was replacing still is at %s, and its data at %s (the next "
                        "--force removes both)",
                        found->kept_old, found->kept_beside);
  else if (found->kept_old[0] != '\0')
    ckpt_report_warning(j->args,
                        "the output that an interrupted run was replacing still is at %s (the next --force removes it)",
                        found->kept_old);
}

static void say_all_leftovers(const job *j) {
  const ckpt_leftovers *before = NULL;
  for (uint32_t i = 0; j->plan != NULL && i < j->plan->n_outputs; i++) {
    const ckpt_leftovers *found = ckpt_sink_leftovers(j->plan->outputs[i].sink);
    if (found != before) say_leftovers(j, found); /* outputs in one folder share them */
    before = found;
  }
  const ckpt_leftovers *found = j->receipt == NULL ? NULL : ckpt_sink_leftovers(j->receipt);
  if (found != before) say_leftovers(j, found);
}

/* A file of data beside a model that has all data in itself: the replaced model's, or another's. */
static void say_data_beside(const job *j) {
  for (uint32_t i = 0; i < j->plan->n_outputs; i++) {
    const ckpt_output *output = &j->plan->outputs[i];
    const ckpt_leftovers *found = ckpt_sink_leftovers(output->sink);
    char path[PATH_MAX];
    struct stat st;
    if (found != NULL && (found->kept_old[0] != '\0' || found->kept_beside[0] != '\0'))
      continue; /* whose data they may be */
    if (!output->format->caps.graph || output->layout.n_files != 1 || output->options.folder != NULL) continue;
    if ((size_t)snprintf(path, sizeof path, "%s.data", output->path) < sizeof path && lstat(path, &st) == 0)
      ckpt_report_warning(
          j->args, "%s stays beside it, which has no part in it (remove it, unless another model needs it)", path);
  }
}

int ckpt_writing_run(ckpt_args *args, const ckpt_writing *writing) {
  job j = {.args = args, .writing = writing};
  ckpt_error err = {0};
  ckpt_written *outputs = NULL;
  ckpt_status status = open_input(&j, &err);
  if (status == CKPT_OK) status = open_further(&j, &err);
  if (status == CKPT_OK) {
    ckpt_job run;
    ckpt_input_print_notes(args, &j.input);
    ckpt_job_begin(&run, args);
    status = make_plan(&j, &run.run, &err);
    bool is_run = status == CKPT_OK && !ckpt_args_has(args, "plan");
    if (is_run) status = ckpt_convert_run(j.plan, &j.request, &run.run, j.receipt, &err);
    if (is_run) say_all_leftovers(&j);
    if (status != CKPT_OK) { /* temporary files go while a second signal cannot yet end the process */
      ckpt_sink_free(j.receipt);
      ckpt_plan_free(j.plan);
      j.receipt = NULL;
      j.plan = NULL;
    }
    ckpt_job_end(&run);
    if (status == CKPT_OK && is_run) status = describe(&j, &outputs, &err);
    if (status == CKPT_OK && is_run) say_data_beside(&j);
    if (status == CKPT_OK && is_run) status = say_base(&j, &err);
    if (status == CKPT_OK && is_run) ckpt_report_written(args, &run, outputs, j.plan->n_outputs);
    if (status == CKPT_OK && !is_run) status = show_plan(&j, &err);
  }
  ckpt_sink_free(j.receipt);
  ckpt_plan_free(j.plan);
  ckpt_input_close(&j.input);
  ckpt_further_inputs_close(&j.further);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

int ckpt_writing_of(ckpt_args *args, ckpt_writing writing) {
  ckpt_error err = {0};
  if (ckpt_writing_read(&writing, args, &err) != CKPT_OK) return ckpt_report_error(args, &err);
  return ckpt_writing_run(args, &writing);
}
