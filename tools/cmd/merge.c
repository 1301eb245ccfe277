/* merge.c - `ckpt merge`: adapters into the model that they were trained on. A convert of the merged input. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/index/config.h"
#include "libckpt/index/index.h"
#include "tools/report/input.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

#define BASE_KEY "base_model_name_or_path"

/* The base that an adapter's config names; the text is the args'. */
static ckpt_status read_base(const char **out, ckpt_args *args, ckpt_index *adapter, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(adapter, "adapter_config.json");
  ckpt_config *config;
  const char *text, *base;
  *out = NULL;
  if (side == NULL) return CKPT_OK; /* opening it as an adapter says so */
  CKPT_TRY(ckpt_index_side_text(adapter, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  CKPT_TRY(ckpt_config_parse(&config, text, side->n_bytes, ckpt_index_side_path(adapter, side), err));
  ckpt_status status = CKPT_OK;
  if (ckpt_config_text(config, BASE_KEY, &base) && *base != '\0') {
    *out = ckpt_arena_copy(&args->arena, base);
    if (*out == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_config_free(config);
  return status;
}

/* A relative path is from the current folder, else from the folder that the adapter lies in; what is neither may be a
 * name of the Hugging Face cache. */
static ckpt_status look_beside(const char **base, ckpt_args *args, const char *adapter, ckpt_error *err) {
  const size_t n = strlen(adapter);
  size_t n_folder = n;
  while (n_folder > 0 && adapter[n_folder - 1] == '/') n_folder--;
  while (n_folder > 0 && adapter[n_folder - 1] != '/') n_folder--;
  if (**base == '/' || n_folder == 0 || access(*base, F_OK) == 0) return CKPT_OK;
  const char *beside = ckpt_arena_printf(&args->arena, "%.*s%s", (int)n_folder, adapter, *base);
  CKPT_TRY_ALLOC(beside, err);
  if (access(beside, F_OK) == 0) *base = beside;
  return CKPT_OK;
}

/* Without BASE: the first adapter's own, as the only input. */
static ckpt_status find_base(ckpt_args *args, ckpt_error *err) {
  const ckpt_open_options stored = {.struct_size = sizeof stored, .stored_names = true};
  const ckpt_arg *first = ckpt_args_get(args, "adapter");
  const char *base = NULL, **inputs;
  ckpt_adapter_request request;
  ckpt_index *adapter;
  CKPT_TRY(ckpt_input_split_adapter(&request, first->text, err));
  ckpt_status status = ckpt_open(&adapter, request.path, &stored, err);
  if (status == CKPT_OK) {
    status = read_base(&base, args, adapter, err);
    ckpt_index_free(adapter);
  }
  if (status == CKPT_OK && base != NULL) status = look_beside(&base, args, request.path, err);
  free((char *)(uintptr_t)request.path);
  CKPT_TRY(status);
  if (base == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, first->text, NULL, "names no base (" BASE_KEY "): give it as BASE");
  inputs = ckpt_arena_array(&args->arena, 1, sizeof *inputs);
  CKPT_TRY_ALLOC(inputs, err);
  inputs[0] = base;
  args->inputs = inputs;
  args->n_inputs = 1;
  ckpt_report_note(args, "the base is %s, as %s says", base, first->text);
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_status status = CKPT_OK;
  if (!ckpt_args_has(args, "adapter")) status = ckpt_args_fail(args, &err, "no --adapter DIR to merge");
  if (status == CKPT_OK && args->n_inputs == 0) status = find_base(args, &err);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return ckpt_writing_of(args, (ckpt_writing){0});
}

const ckpt_verb ckpt_verb_merge = {
    .name = "merge",
    .forms = "merge [BASE] --adapter DIR[=SCALE]... -o OUT [--to FORMAT] [--dtype [PATTERN=]DTYPE]...",
    .summary = "merge LoRA adapters into their model",
    .details =
        "Each merged tensor is base + scale * B x A in f32, rounded once to what is written: the base's dtype or "
        "--dtype. "
        "The rest is the base's own. DIR is a folder that PEFT saved (LoRA, rsLoRA, DoRA); every tensor in it is used, "
        "or "
        "refused by name. The order of several adapters changes no byte. Without BASE it is the one that the adapter's "
        "config names. Weights that are tied stay so, or are refused: --tied untie makes two tensors of them. "
        "--adapter "
        "works in the same way for every verb that reads a model.\n\n"
        "  ckpt merge base/ --adapter lora/ -o merged/\n"
        "  ckpt quantize base/ --adapter lora/ --type Q4_K_M -o merged-Q4_K_M.gguf",
    .json =
        "as convert, and per output \"update\":{\"norm\",\"relative\",\"n\",\"n_unchanged\"},"
        "\"updated\":[{\"name\", the same}]",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 0,
    .max_inputs = 1,
    .run = run,
};
