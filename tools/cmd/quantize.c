/* quantize.c - `ckpt quantize`: GGUF in the block types of llama.cpp's presets, any number of them from one read.
 */
#include <string.h>

#include "libckpt/base/error.h"
#include "tools/report/input.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

#define PLACEHOLDER "{type}"

/* The path with the preset's name wherever it asks for it. */
static ckpt_status fill_in(const char **out, ckpt_args *args, const char *path, const ckpt_preset *preset,
                           ckpt_error *err) {
  for (const char *at; (at = strstr(path, PLACEHOLDER)) != NULL;) {
    path = ckpt_arena_printf(&args->arena, "%.*s%s%s", (int)(at - path), path, preset->name, at + strlen(PLACEHOLDER));
    CKPT_TRY_ALLOC(path, err);
  }
  *out = path;
  return CKPT_OK;
}

static ckpt_status take_targets(ckpt_writing *writing, ckpt_args *args, ckpt_error *err) {
  const char *const *outputs;
  uint32_t n_types = 0, n_outputs = 0;
  CKPT_TRY(ckpt_args_texts(&outputs, args, "output", err));
  for (uint32_t at = 0; ckpt_args_next(args, "type", &at) != NULL;) n_types++;
  while (outputs[n_outputs] != NULL) n_outputs++;
  if (n_outputs != 1) return ckpt_args_fail(args, err, "takes one -o; several types go to 'NAME-" PLACEHOLDER ".gguf'");
  if (n_types > 1 && strstr(outputs[0], PLACEHOLDER) == NULL)
    return ckpt_args_fail(args, err, "%u types need " PLACEHOLDER " in -o %s, so that each has a name of its own",
                          n_types, outputs[0]);
  ckpt_convert_target *targets = ckpt_arena_array(&args->arena, n_types, sizeof *targets);
  CKPT_TRY_ALLOC(targets, err);
  for (uint32_t i = 0, at = 0; i < n_types; i++) {
    targets[i] = (ckpt_convert_target){.preset = ckpt_args_next(args, "type", &at)->preset};
    CKPT_TRY(fill_in(&targets[i].path, args, outputs[0], targets[i].preset, err));
  }
  writing->targets = targets;
  writing->n_targets = n_types;
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_writing writing = {.quantizes = true, .is_one_file = true};
  ckpt_index *imatrix = NULL;
  ckpt_error err = {0};
  ckpt_status status = ckpt_writing_read(&writing, args, &err);
  if (status == CKPT_OK) status = ckpt_quantize_check_types(&writing.quantize, &err);
  if (status == CKPT_OK) status = take_targets(&writing, args, &err);
  if (status == CKPT_OK) status = ckpt_input_open_imatrix(&imatrix, args, &err);
  writing.quantize.imatrix = imatrix;
  const int exit_status = status == CKPT_OK ? ckpt_writing_run(args, &writing) : ckpt_report_error(args, &err);
  ckpt_index_free(imatrix);
  return exit_status;
}

const ckpt_verb ckpt_verb_quantize = {
    .name = "quantize",
    .forms =
        "quantize IN -o OUT.gguf --type TYPE [--imatrix FILE] [--tensor-type REGEX=TYPE]...\n"
        "quantize IN -o 'OUT-{type}.gguf' --type TYPE --type TYPE...",
    .summary = "write GGUF in the block types of llama.cpp's presets",
    .details =
        "The bytes are those of llama-quantize, on every machine and for any number of threads. IN is a GGUF model, as "
        "llama.cpp's convert_hf_to_gguf.py writes it, or a folder of its parts; it is read once, whatever the number "
        "of "
        "types. A preset is a mixture: it gives some tensors more bits than others, by "
        "llama.cpp's rules. A row that is no whole number of blocks is an error unless --allow-fallback, and types of "
        "very few bits need an importance matrix.\n\n"
        "  ckpt quantize model-f16.gguf -o model-Q4_K_M.gguf --type Q4_K_M --imatrix imatrix.gguf\n"
        "  ckpt quantize model-f16.gguf -o 'model-{type}.gguf' --type Q8_0 --type Q6_K --type Q4_K_M",
    .json = "as convert, and per output \"fallbacks\":[{\"name\",\"wanted\",\"dtype\",\"row\"}],\"imatrix_missing\":[]",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
