/* merge.c - `ckpt merge`: adapters into the model that they were trained on. A convert of the merged input. */
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "libckpt/index/index.h"
#include "libckpt/recipe/adapter/forms.h"
#include "tools/report/input.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

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
    status = ckpt_adapter_base_path(&base, adapter, &args->arena, err);
    if (base != NULL) base = ckpt_arena_copy(&args->arena, base);
    ckpt_index_free(adapter);
  }
  free((char *)(uintptr_t)request.path);
  CKPT_TRY(status);
  if (base == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, first->text, NULL,
                     "names no base (base_model_name_or_path): give it as BASE");
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
        "The rest is the base's own. DIR is a folder that PEFT saved (LoRA, rsLoRA, DoRA), or a GGUF adapter; every "
        "tensor in it is used, "
        "or "
        "refused by name. The order of several adapters changes no byte. Without BASE it is the one that the adapter's "
        "config names. Weights that are tied stay so, or are refused: --tied untie makes two tensors of them. "
        "--adapter "
        "works in the same way for ls, cat, hash, diff, convert, quantize, logits and ppl.\n\n"
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
