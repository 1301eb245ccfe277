/* input.c - see input.h. */
#include "tools/report/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/adapter.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/select/select.h"
#include "tools/report/report.h"

static bool is_model(const ckpt_tensor *tensor) { return ckpt_role_included("model", (ckpt_role)tensor->role, NULL); }

/* Whether it repeats a tensor to which the config ties it, and which both have. */
static bool is_tied_copy(const ckpt_input *input, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(input->index, i, &kept, &tied); i++)
    if (tied == tensor && ckpt_index_find(input->like, kept->name) != NULL) return true;
  return false;
}

/* The tensor of an index that joins one with others, or one of those that it joins; NULL: there is none. */
static const ckpt_tensor *joined_with(const ckpt_index *in, const ckpt_index *of, const ckpt_tensor *tensor,
                                      ckpt_arena *arena) {
  const ckpt_arch *arch = ckpt_arch_find(of->architecture);
  uint64_t numbers[2] = {0};
  if (arch == NULL || arch->joined == NULL) return NULL;
  const ckpt_arch_name *row = ckpt_arch_match(arch, tensor->name, numbers);
  const ckpt_arch_joined *joined = row != NULL ? NULL : ckpt_arch_match_joined(arch, tensor->name, numbers);
  const char *name = row != NULL      ? ckpt_arch_joined_name(arch, row->hf, numbers, arena)
                     : joined != NULL ? ckpt_arch_fill(joined->parts[0], numbers, arena)
                                      : NULL;
  return name == NULL ? NULL : ckpt_index_find(in, name);
}

/* Every model tensor of one stands in the other, and with the same shape; the shape of a joined tensor is not compared
 * here. */
static ckpt_status check_like(const ckpt_input *input, const char *like_path, ckpt_defects *defects, ckpt_error *err) {
  ckpt_index *const both[] = {input->like, input->index};
  for (size_t side = 0; side < 2; side++)
    for (size_t i = 0; i < ckpt_index_count(both[side]); i++) {
      const ckpt_tensor *tensor = ckpt_index_at(both[side], i), *other = ckpt_index_find(both[1 - side], tensor->name);
      if (!is_model(tensor) || (side == 1 && (other != NULL || is_tied_copy(input, tensor)))) continue;
      if (input->index->defects.n != 0 && ckpt_index_is_unread(both[1 - side], tensor->name)) continue; /* told */
      if (other == NULL && joined_with(both[1 - side], both[side], tensor, &input->index->arena) != NULL) continue;
      const char *file = ckpt_index_file_of(input->index, side == 1 ? tensor : other);
      ckpt_error defect = {0};
      ckpt_status status = CKPT_OK;
      if (side == 1)
        status =
            ckpt_fail(&defect, CKPT_EDIFFERENT, file, tensor->name, "extra: %s does not have it (--like)", like_path);
      else if (other == NULL)
        status = ckpt_fail(&defect, CKPT_EDIFFERENT, file, tensor->name, "missing, but %s has it (--like)", like_path);
      else if (!ckpt_tensor_same_shape(other, tensor))
        status = ckpt_fail(&defect, CKPT_EDIFFERENT, file, tensor->name, "not of the shape that it has in %s (--like)",
                           like_path);
      CKPT_TRY(ckpt_defects_pass(defects, status, &defect, err));
    }
  return CKPT_OK;
}

static const char *text_of(const ckpt_arg *arg) { return arg == NULL ? NULL : arg->text; }

/* The model of --like first: its config names an input that has none. */
static ckpt_status open_like(ckpt_input *out, const char *path, const char *like, ckpt_open_options *options,
                             ckpt_error *err) {
  ckpt_open_options of_like = *options;
  of_like.report = NULL; /* its defects are none of the input's */
  if (like != NULL) CKPT_TRY(ckpt_open(&out->like, like, &of_like, err));
  options->like = out->like;
  options->weights = out->weights;
  CKPT_TRY(ckpt_open(&out->index, path, options, err));
  ckpt_defects defects = {.report = options->report, .arg = options->report_arg, .path = out->index->path};
  const bool is_model = ckpt_adapter_kind_of(out->index) == CKPT_ADAPTER_NONE; /* an adapter's is its base */
  return like == NULL || !is_model ? CKPT_OK : check_like(out, like, &defects, err);
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_input_split_adapter(ckpt_adapter_request *out, const char *text, ckpt_error *err) {
  const char *equals = strrchr(text, '=');
  char *end = NULL;
  const double scale = equals == NULL ? 0 : ckpt_c_strtod(equals + 1, &end);
  const bool has_scale = equals != NULL && end != equals + 1 && *end == '\0' && isfinite(scale);
  if (equals != NULL && !has_scale && access(text, F_OK) != 0) {
    char *folder = strndup(text, (size_t)(equals - text));
    const bool is_there = folder != NULL && access(folder, F_OK) == 0;
    free(folder);
    if (is_there)
      return ckpt_fail(err, CKPT_EINVAL, text, NULL, "the scale '%.40s' is no finite number (%s)", equals + 1,
                       "--adapter DIR=0.5");
  }
  char *path = strndup(text, has_scale ? (size_t)(equals - text) : strlen(text));
  CKPT_TRY_ALLOC(path, err);
  *out = (ckpt_adapter_request){.path = path, .scale = has_scale ? scale : 1};
  return CKPT_OK;
}

static ckpt_status merge_all(ckpt_input *out, const ckpt_args *args, const ckpt_adapter_request *requests, uint32_t n,
                             ckpt_error *err) {
  ckpt_adapter_options options = {.memory = ckpt_args_size(args, "memory", 0),
                                  .n_threads = (uint32_t)ckpt_args_size(args, "threads", 0)};
  ckpt_index *merged;
  for (uint32_t i = 0; i < args->n_options; i++)
    if (args->options[i].option->place == CKPT_PLACE_ADAPTER)
      ckpt_arg_fill(ckpt_option_member(args->options[i].option, &options), &args->options[i]);
  CKPT_TRY(ckpt_adapters_open(&out->adapters, out->index, requests, n, &options, err));
  CKPT_TRY(ckpt_adapters_merge(&merged, out->adapters, err));
  out->base = out->index;
  out->index = merged;
  return CKPT_OK;
}

/* Merges what stands behind an input, or anywhere where it is the only one, or one of a list. */
static ckpt_status merge_adapters(ckpt_input *out, const ckpt_args *args, uint32_t number, bool is_listed,
                                  ckpt_error *err) {
  if (!ckpt_verb_takes(args->verb, "adapter")) return CKPT_OK;
  ckpt_adapter_request *requests = calloc(args->n_options + 1, sizeof *requests);
  CKPT_TRY_ALLOC(requests, err);
  const ckpt_arg *arg;
  uint32_t n = 0;
  ckpt_status status = CKPT_OK;
  for (uint32_t at = 0; status == CKPT_OK && (arg = ckpt_args_next(args, "adapter", &at)) != NULL;)
    if (is_listed || ckpt_args_belongs(args, arg, number))
      status = ckpt_input_split_adapter(&requests[n++], arg->text, err);
  if (status == CKPT_OK && n != 0) status = merge_all(out, args, requests, n, err);
  for (uint32_t i = 0; i < n; i++) free((char *)(uintptr_t)requests[i].path);
  free(requests);
  return status;
}

ckpt_open_options ckpt_input_options(const ckpt_args *args, bool stored_names) {
  return (ckpt_open_options){
      .struct_size = sizeof(ckpt_open_options),
      .stored_names = stored_names,
      .allow_corrupt = ckpt_verb_takes(args->verb, "allow-corrupt") && ckpt_args_has(args, "allow-corrupt"),
      .corrupt = ckpt_report_corrupt,
      .corrupt_arg = (void *)(uintptr_t)args};
}

ckpt_status ckpt_input_open(ckpt_input *out, const ckpt_args *args, uint32_t number, ckpt_error *err) {
  return ckpt_input_open_all(out, args, number, false, NULL, NULL, err);
}

/* An input by its path, with the modifiers of `number`. */
static ckpt_status open_at(ckpt_input *out, const ckpt_args *args, const char *path, uint32_t number,
                           const ckpt_open_options *with, ckpt_error *err) {
  ckpt_open_options options = *with;
  *out = (ckpt_input){.weights = text_of(ckpt_args_of(args, "weights", number))};
  CKPT_TRY(open_like(out, path, text_of(ckpt_args_of(args, "like", number)), &options, err));
  return merge_adapters(out, args, number, false, err);
}

ckpt_status ckpt_input_open_option(ckpt_input *out, const ckpt_args *args, const char *option, ckpt_error *err) {
  const bool stored_names = ckpt_args_of(args, "names", CKPT_INPUT_OF_OPTION) != NULL;
  const ckpt_open_options options = ckpt_input_options(args, stored_names);
  return open_at(out, args, ckpt_args_text(args, option, NULL), CKPT_INPUT_OF_OPTION, &options, err);
}

ckpt_status ckpt_input_open_all(ckpt_input *out, const ckpt_args *args, uint32_t number, bool stored_names,
                                void (*report)(void *arg, const ckpt_error *defect), void *arg, ckpt_error *err) {
  ckpt_open_options options = ckpt_input_options(args, stored_names || ckpt_args_of(args, "names", number) != NULL);
  options.report = report;
  options.report_arg = arg;
  if (report != NULL) { /* checksums are a matter of their own, where the bytes are looked at */
    options.allow_corrupt = true;
    options.corrupt = ckpt_args_has(args, "headers") ? report : NULL;
    options.corrupt_arg = arg;
  }
  return open_at(out, args, args->inputs[number], number, &options, err);
}

ckpt_status ckpt_input_open_listed(ckpt_input *out, const ckpt_args *args, const char *path, ckpt_error *err) {
  ckpt_open_options options = ckpt_input_options(args, ckpt_args_has(args, "names"));
  *out = (ckpt_input){.weights = ckpt_args_text(args, "weights", NULL)};
  CKPT_TRY(open_like(out, path, ckpt_args_text(args, "like", NULL), &options, err));
  return merge_adapters(out, args, 0, true, err);
}

ckpt_status ckpt_input_open_imatrix(ckpt_index **out, const ckpt_args *args, ckpt_error *err) {
  const char *path = ckpt_args_text(args, "imatrix", NULL);
  const ckpt_open_options options = {.struct_size = sizeof options, .stored_names = true};
  *out = NULL;
  return path == NULL ? CKPT_OK : ckpt_open(out, path, &options, err);
}

void ckpt_input_close(ckpt_input *input) {
  ckpt_index_free(input->index); /* before what it borrows */
  ckpt_adapters_free(input->adapters);
  ckpt_index_free(input->base);
  ckpt_index_free(input->like);
  *input = (ckpt_input){0};
}

void ckpt_input_print_notes(const ckpt_args *args, const ckpt_input *input) {
  const bool has_closing_lines = (args->verb->sets & CKPT_SET_OUTPUT) != 0; /* weights and losses are said there */
  for (uint32_t i = 0; i < input->index->n_notes; i++) {
    const ckpt_note *note = &input->index->notes[i];
    if (!has_closing_lines || (i + 1 != input->index->weights_note && note->left == NULL))
      ckpt_report_note_of(args, note->file != NULL ? note->file : input->index->path, note, note->message);
  }
}
