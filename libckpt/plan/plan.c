/* plan.c - building and printing plans; check.c looks at them, run.c runs them. */
#include "libckpt/plan/plan.h"
#include "libckpt/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/index/overlap.h"
#include "libckpt/io/sink_pair.h"
#include "libckpt/io/sink_parts.h"

ckpt_status ckpt_plan_new(ckpt_plan **out, ckpt_error *err) {
  ckpt_plan *plan = calloc(1, sizeof *plan);
  CKPT_TRY_ALLOC(plan, err);
  ckpt_arena_init(&plan->arena, UINT64_MAX);
  ckpt_arena_init(&plan->work, UINT64_MAX);
  plan->wants_digests = true;
  *out = plan;
  return CKPT_OK;
}

void ckpt_plan_drop_work(ckpt_plan *plan) {
  ckpt_arena_free(&plan->work);
  free(plan->pieces);
  free(plan->batches);
  plan->pieces = NULL;
  plan->batches = NULL;
  plan->n_pieces = plan->piece_capacity = plan->n_batches = plan->batch_capacity = 0;
  plan->is_checked = false;
}

void ckpt_plan_free(ckpt_plan *plan) {
  if (plan == NULL) return;
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    ckpt_sink_free(plan->outputs[i].sink);
    ckpt_index_free(plan->outputs[i].described);
  }
  ckpt_plan_drop_work(plan);
  ckpt_arena_free(&plan->arena);
  free(plan->inputs);
  free(plan->rows);
  free(plan->outputs);
  free(plan->values);
  ckpt_index_free(plan->dialect);
  ckpt_index_free(plan->apart);
  free(plan);
}

static ckpt_status add_output(ckpt_plan *plan, ckpt_output output, uint32_t *number, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&plan->outputs, plan->n_outputs, &plan->output_capacity, sizeof *plan->outputs, err));
  CKPT_TRY(ckpt_index_new(&output.described, NULL, output.path, output.format->name, NULL, err));
  output.losses.arena = &output.described->arena;
  *number = plan->n_outputs;
  plan->outputs[plan->n_outputs++] = output;
  plan->is_checked = false;
  return CKPT_OK;
}

ckpt_status ckpt_plan_reads(ckpt_plan *plan, const ckpt_index *index, const char *given, ckpt_error *err) {
  if (plan->n_inputs != 0 && plan->inputs[plan->last_input].index == index) return CKPT_OK;
  for (uint32_t i = 0; i < plan->n_inputs; i++) {
    if (plan->inputs[i].index != index) continue;
    plan->last_input = i;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < plan->n_outputs; i++)
    if (plan->outputs[i].is_at_path)
      CKPT_TRY(ckpt_refuse_input_overlap(index, given, plan->outputs[i].path, plan->links, err));
  CKPT_TRY(ckpt_grow(&plan->inputs, plan->n_inputs, &plan->input_capacity, sizeof *plan->inputs, err));
  plan->last_input = plan->n_inputs;
  plan->inputs[plan->n_inputs++] = (ckpt_plan_input){index, given};
  return CKPT_OK;
}

ckpt_status ckpt_plan_keeps_apart(const ckpt_plan *plan, const char *path, ckpt_error *err) {
  for (uint32_t i = 0; i < plan->n_inputs; i++)
    CKPT_TRY(ckpt_refuse_input_overlap(plan->inputs[i].index, plan->inputs[i].given, path, plan->links, err));
  return CKPT_OK;
}

/* Appends printf text to a line of fixed size; what does not fit is cut. */
static void append(char *line, size_t n_line, const char *format, ...) CKPT_PRINTF(3, 4);
static void append(char *line, size_t n_line, const char *format, ...) {
  size_t n = strlen(line);
  __builtin_va_list args;
  __builtin_va_start(args, format);
  vsnprintf(line + n, n_line - n, format, args);
  __builtin_va_end(args);
}

/* Whether the path is or ends as a folder. */
static bool names_folder(const char *path) {
  struct stat found;
  size_t n = strlen(path);
  return (n != 0 && path[n - 1] == '/') || (stat(path, &found) == 0 && S_ISDIR(found.st_mode));
}

/* The suffix of a path's name: a dot, a letter, then letters or digits to the end. NULL where it has none: the dot of
 * "Llama-3.1-8B" or "model.v1.5" begins none, and neither does that of ".cache". */
static const char *suffix_of(const char *path) {
  const char *name = ckpt_path_name(path), *dot = strrchr(name, '.');
  if (dot == NULL || dot == name || !isalpha((unsigned char)dot[1])) return NULL;
  for (const char *at = dot + 1; *at != '\0'; at++)
    if (!isalnum((unsigned char)*at)) return NULL;
  return dot;
}

/* The format that a path without --to asks for: its suffix's, a Hugging Face folder where it has none. */
static const ckpt_format *format_of_path(const char *path) {
  return names_folder(path) || suffix_of(path) == NULL ? ckpt_format_find("hf") : ckpt_format_of_suffix(path);
}

static ckpt_status refuse_format(const char *path, const char *format, ckpt_error *err) {
  char list[256] = "";
  for (const ckpt_format *const *row = ckpt_formats; *row != NULL; row++)
    if ((*row)->layout != NULL) append(list, sizeof list, "%s%s", list[0] == '\0' ? "" : " ", (*row)->name);
  if (format != NULL)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "format '%s' is none that can be written: %s", format, list);
  return ckpt_advise(ckpt_fail(err, CKPT_EINVAL, path, NULL,
                               "its suffix %s names no format that can be written: %s (a folder's name ends with /)",
                               suffix_of(path), list),
                     err, "say which with %to");
}

const char *ckpt_path_below(const char *folder, const char *path) {
  size_t n = strlen(folder);
  while (n > 1 && folder[n - 1] == '/') n--;
  if (n == 0 || strncmp(path, folder, n) != 0 || path[n] != '/') return NULL;
  path += n + strspn(path + n, "/");
  return *path == '\0' ? NULL : path;
}

ckpt_status ckpt_plan_sink(ckpt_plan *plan, const char *path, bool is_folder, bool force, ckpt_sink **out,
                           ckpt_error *err) {
  ckpt_output *around = NULL;
  const char *name = NULL; /* below it */
  CKPT_TRY(ckpt_plan_keeps_apart(plan, path, err));
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    ckpt_output *output = &plan->outputs[i];
    if (!output->is_at_path) continue;
    const char *below = output->options.is_folder ? ckpt_path_below(output->path, path) : NULL;
    CKPT_TRY(ckpt_refuse_output_overlap(path, output->path, below != NULL, err));
    if (below != NULL && around == NULL) around = output, name = below;
  }
  if (around != NULL) return ckpt_sink_below(out, &around->sink, name, err);
  return is_folder ? ckpt_sink_path(out, path, true, force, err) : ckpt_sink_pair(out, path, force, err);
}

ckpt_status ckpt_plan_output(ckpt_plan *plan, const char *path, const char *format, bool force, uint32_t *sink,
                             ckpt_error *err) {
  const ckpt_format *row = format != NULL ? ckpt_format_find(format) : format_of_path(path);
  if (row == NULL || row->layout == NULL) return refuse_format(path, format, err);
  ckpt_output output = {.format = row, .is_at_path = true, .force = force};
  output.options.is_folder = row->caps.is_folder || names_folder(path);
  if (output.options.is_folder && !row->caps.is_folder && !row->caps.shards)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "is a folder; %s is one file (name a file in it)", row->name);
  /* of a format that can be a file too, the path says what it is: receipts have nothing else to go by */
  const bool is_marked = !output.options.is_folder || row->caps.is_folder || ckpt_text_ends(path, "/");
  output.path = ckpt_arena_printf(&plan->arena, "%s%s", path, is_marked ? "" : "/");
  CKPT_TRY_ALLOC(output.path, err);
  output.options.name = output.options.is_folder ? NULL : ckpt_path_name(output.path);
  CKPT_TRY(ckpt_plan_sink(plan, path, output.options.is_folder, force, &output.sink, err));
  ckpt_sink_owns(output.sink, row->owns);
  ckpt_status status = add_output(plan, output, sink, err);
  if (status != CKPT_OK) ckpt_sink_free(output.sink);
  return status;
}

ckpt_status ckpt_plan_output_sink(ckpt_plan *plan, ckpt_sink *sink, const ckpt_format *format,
                                  const ckpt_layout_options *options, uint32_t *number, ckpt_error *err) {
  ckpt_output output = {.path = "", .format = format, .sink = sink};
  if (options != NULL) output.options = *options;
  ckpt_status status = add_output(plan, output, number, err);
  if (status != CKPT_OK) ckpt_sink_free(sink);
  return status;
}

static ckpt_status add_row(ckpt_plan *plan, ckpt_row row, uint32_t *number, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&plan->rows, plan->n_rows, &plan->row_capacity, sizeof *plan->rows, err));
  if (number != NULL) *number = plan->n_rows;
  plan->rows[plan->n_rows++] = row;
  plan->is_checked = false;
  return CKPT_OK;
}

enum { MAX_DEPTH = 256, MAX_NODES = 1 << 16 };

/* Whether an expression has at most n_left nodes: nodes that are shared count each time, as everything that follows
 * walks them each time. */
static bool is_within(const ckpt_expr *node, uint32_t depth, uint32_t *n_left) {
  if (depth == 0 || *n_left == 0) return false;
  --*n_left;
  for (uint32_t i = 0; i < node->n_args; i++)
    if (!is_within(node->args[i], depth - 1, n_left)) return false;
  return true;
}

static ckpt_status check_size(const char *name, const ckpt_expr *expr, ckpt_error *err) {
  if (is_within(expr, MAX_DEPTH, &(uint32_t){MAX_NODES})) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, NULL, name, "an expression of more than %d operations, or %d inside each other",
                   MAX_NODES, MAX_DEPTH);
}

/* A description says which tensors were read from one storage. Those that are written as they were read keep the
 * extents that it was from until they are laid out: a format may write such memory once, or say what it does not keep.
 */
static void keep_storage(ckpt_tensor *described, const ckpt_tensor *read, bool is_as_read) {
  described->storage = read->storage;
  const bool is_one = read->n_extents == 1;
  const bool is_special = is_one && (read->extents[0].file == CKPT_FILE_LITERAL || read->extents[0].signs != 0);
  if (!is_as_read || (read->storage == 0 && !is_special && read->details->extent_form != CKPT_EXTENT_STRIDED)) return;
  described->extents = read->extents;
  described->n_extents = read->n_extents;
  described->details->extent_form = read->details->extent_form;
}

ckpt_status ckpt_plan_add_like(ckpt_plan *plan, uint32_t sink, const char *name, ckpt_expr *expr,
                               const ckpt_tensor *like, uint32_t *row, ckpt_error *err) {
  if (sink != CKPT_NO_SINK && sink >= plan->n_outputs)
    return ckpt_fail(err, CKPT_EINVAL, NULL, name, "the plan has no output number %u", sink);
  if (expr->op->rule == CKPT_RULE_REDUCE)
    return ckpt_fail(err, CKPT_EINVAL, NULL, name, "%s is a reduction, not a tensor", expr->op->name);
  CKPT_TRY(check_size(name, expr, err));
  ckpt_row added = {.sink = sink, .output = sink, .expr = expr, .wants_digest = true};
  ckpt_role role = like != NULL ? (ckpt_role)like->role : CKPT_ROLE_PARAMETER;
  if (sink == CKPT_NO_SINK) {
    bool is_borrowed = like != NULL && name == like->name; /* its index outlives the plan */
    added.name = is_borrowed ? name : ckpt_arena_copy(&plan->arena, name);
    CKPT_TRY_ALLOC(added.name, err);
    return add_row(plan, added, row, err);
  }
  ckpt_index *described = plan->outputs[sink].described;
  if (plan->outputs[sink].layout.files != NULL) /* its tensors have their places: none can be added */
    return ckpt_fail(err, CKPT_EINVAL, NULL, name, "the plan was checked already; add all rows before");
  uint32_t number;
  CKPT_TRY(
      ckpt_index_add(described, name, strlen(name), expr->dtype, expr->rank, expr->shape, role, NULL, 0, &number, err));
  described->tensors[number].details->origin = plan->n_rows;
  const ckpt_index *of = described->objects_of;
  if (like != NULL && of != NULL && like >= of->tensors && like < of->tensors + of->n_tensors)
    described->tensors[number].details->like = (uint32_t)(like - of->tensors) + 1;
  if (like != NULL)
    keep_storage(&described->tensors[number], like, expr->op->rule == CKPT_RULE_READ && expr->tensor == like);
  added.name = described->tensors[number].name;
  return add_row(plan, added, row, err);
}

ckpt_status ckpt_plan_add(ckpt_plan *plan, uint32_t sink, const char *name, ckpt_expr *expr, ckpt_error *err) {
  if (sink == CKPT_NO_SINK) /* ours alone: it would be written nowhere */
    return ckpt_fail(err, CKPT_EINVAL, NULL, name, "the plan has no output number %u", sink);
  return ckpt_plan_add_like(plan, sink, name, expr, NULL, NULL, err);
}

ckpt_status ckpt_plan_carry(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_error *err) {
  CKPT_TRY(ckpt_plan_reads(plan, from, NULL, err));
  plan->outputs[sink].carried = from;
  return ckpt_index_carry(plan->outputs[sink].described, from, err);
}

ckpt_status ckpt_plan_reduce(ckpt_plan *plan, const char *name, ckpt_expr *reduction, const void **value,
                             ckpt_error *err) {
  if (reduction->op->rule != CKPT_RULE_REDUCE)
    return ckpt_fail(err, CKPT_EINVAL, NULL, name, "%s is no reduction", reduction->op->name);
  CKPT_TRY(check_size(name, reduction, err));
  CKPT_TRY(ckpt_grow(&plan->values, plan->n_values, &plan->value_capacity, sizeof *plan->values, err));
  void *memory = ckpt_arena_alloc(&plan->arena, reduction->op->value_bytes);
  ckpt_row row = {.sink = CKPT_VALUE_SINK,
                  .output = CKPT_VALUE_SINK,
                  .name = ckpt_arena_copy(&plan->arena, name),
                  .expr = reduction,
                  .value = plan->n_values};
  CKPT_TRY_ALLOC(row.name, err);
  CKPT_TRY_ALLOC(memory, err);
  CKPT_TRY(add_row(plan, row, NULL, err));
  plan->values[plan->n_values++] = memory;
  reduction->value = plan->n_values;
  *value = memory;
  return CKPT_OK;
}

static void print_expr(char *line, size_t n_line, const ckpt_expr *node, int depth) {
  if (node->op->rule == CKPT_RULE_READ) {
    append(line, n_line, "%s(%s)", node->op->name, node->tensor != NULL ? node->tensor->name : "");
    return;
  }
  append(line, n_line, "%s(", node->op->name);
  for (uint32_t i = 0; i < node->n_args && depth < 16; i++) {
    if (i == 4 && node->n_args > 5) {
      append(line, n_line, ", ... %u more", node->n_args - i);
      break;
    }
    if (i != 0) append(line, n_line, ", ");
    print_expr(line, n_line, node->args[i], depth + 1);
  }
  if (ckpt_op_is_cast(node->op)) append(line, n_line, ", %s", ckpt_dtype_name(node->dtype));
  append(line, n_line, ")");
}

ckpt_cast_stats ckpt_row_stats(const ckpt_row *row) { return row->stats == NULL ? (ckpt_cast_stats){0} : *row->stats; }

ckpt_status ckpt_plan_print(const ckpt_plan *plan, ckpt_plan_printer *print, void *arg, ckpt_error *err) {
  if (!plan->is_checked) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the plan has not been checked");
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    const ckpt_row *row = &plan->rows[i];
    if (row->sink < plan->n_outputs && row->tensor == NULL) continue; /* dropped by the format */
    char line[4096] = "";
    append(line, sizeof line, "%s %s [", row->tensor != NULL ? row->tensor->name : row->name,
           ckpt_dtype_name(row->expr->dtype));
    for (uint32_t axis = 0; axis < row->expr->rank; axis++)
      append(line, sizeof line, "%s%llu", axis != 0 ? ", " : "", (unsigned long long)row->expr->shape[axis]);
    append(line, sizeof line, "] <- ");
    const char *from = line + strlen(line);
    print_expr(line, sizeof line, row->expr, 0);
    print(arg, line, from);
  }
  return CKPT_OK;
}

uint32_t ckpt_lane_number(const ckpt_plan *plan, const ckpt_output *output, uint32_t file) {
  uint32_t number = file + 1;
  for (const ckpt_output *before = plan->outputs; before != output; before++) number += before->layout.n_files;
  return number;
}

uint64_t ckpt_output_side_bytes(const ckpt_plan *plan, const ckpt_output *output) {
  uint64_t n_bytes = 0;
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    const ckpt_layout_file *file = &output->layout.files[f];
    for (uint32_t s = 0; s < file->n_segments && ckpt_plan_writes(plan, file); s++)
      if (file->segments[s].kind == CKPT_SEGMENT_SIDE_FILE && file->segments[s].side->text == NULL)
        n_bytes += file->segments[s].n_bytes;
  }
  return n_bytes;
}
