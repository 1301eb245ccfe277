/* quantize.c - `ckpt quantize`: GGUF in the block types of llama.cpp's presets, any number of them from one read.
 */
#include <string.h>

#include "libckpt/base/error.h"
#include "tools/cli/shared_options.h"
#include "tools/report/input.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

#define PLACEHOLDER "{type}"

static const ckpt_option options[] = {
    {"type", 't', CKPT_OPTION_TEXT, CKPT_OPTION_REQUIRED | CKPT_OPTION_REPEATED, "TYPE",
     "preset: Q4_K_M, Q8_0, IQ4_XS, ..., or F16, BF16, F32; several types need one read"},
    {"imatrix", 0, CKPT_OPTION_PATH, 0, "FILE", "importance matrix of llama-imatrix, GGUF or .dat"},
    {"tensor-type", 0, CKPT_OPTION_TEXT, CKPT_OPTION_REPEATED, "REGEX=TYPE",
     "another type for tensors whose name matches; the first matching rule wins"},
    {"output-tensor-type", 0, CKPT_OPTION_TEXT, 0, "TYPE", "another type for output.weight"},
    {"token-embedding-type", 0, CKPT_OPTION_TEXT, 0, "TYPE", "another type for token_embd.weight"},
    {"pure", 0, CKPT_OPTION_FLAG, 0, NULL, "write every tensor in the preset's base type, without a mixture"},
    {"leave-output-tensor", 0, CKPT_OPTION_FLAG, 0, NULL, "keep output.weight as stored"},
    {"allow-requantize", 0, CKPT_OPTION_FLAG, 0, NULL, "allow quantizing tensors that are quantized already"},
    {"allow-fallback", 0, CKPT_OPTION_FLAG, 0, NULL,
     "if a row is not a whole number of blocks, write a type whose blocks fit"},
    CKPT_OPTION_ALLOW_OVERFLOW_ROW,
    CKPT_OPTION_LATER_ROW("target-size", CKPT_OPTION_SIZE, "SIZE"),
    CKPT_OPTION_END};

static ckpt_status take_type(ckpt_dtype *out, ckpt_args *args, const char *option, ckpt_error *err) {
  const char *name = ckpt_args_text(args, option, NULL);
  *out = CKPT_DTYPE_NONE;
  if (name == NULL) return CKPT_OK;
  *out = ckpt_quantize_type(name);
  if (*out != CKPT_DTYPE_NONE) return CKPT_OK;
  return ckpt_args_fail(args, err, "--%s '%s' is no type of GGUF weights (Q6_K, Q8_0, F16, ...)", option, name);
}

static ckpt_status take_quantize(ckpt_quantize_options *quantize, ckpt_args *args, ckpt_error *err) {
  *quantize = (ckpt_quantize_options){.pure = ckpt_args_has(args, "pure"),
                                      .leave_output = ckpt_args_has(args, "leave-output-tensor"),
                                      .allow_requantize = ckpt_args_has(args, "allow-requantize"),
                                      .allow_fallback = ckpt_args_has(args, "allow-fallback"),
                                      .imatrix_path = ckpt_args_text(args, "imatrix", NULL)};
  CKPT_TRY(ckpt_args_texts(&quantize->tensor_types, args, "tensor-type", err));
  CKPT_TRY(ckpt_quantize_check_types(quantize, err));
  CKPT_TRY(take_type(&quantize->output_type, args, "output-tensor-type", err));
  return take_type(&quantize->embedding_type, args, "token-embedding-type", err);
}

static ckpt_status find_preset(const ckpt_preset **out, ckpt_args *args, const char *name, ckpt_error *err) {
  const char *list = "";
  *out = ckpt_preset_find(name);
  if (*out != NULL) return CKPT_OK;
  for (uint32_t i = 0; i < CKPT_N_PRESETS && list != NULL; i++)
    list = ckpt_arena_printf(&args->arena, "%s%s%s", list, i == 0 ? "" : " ", ckpt_preset_at(i)->name);
  CKPT_TRY_ALLOC(list, err);
  return ckpt_args_fail(args, err, "--type '%s' is none of: %s", name, list);
}

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
  const char *const *types, *const *outputs;
  uint32_t n_types = 0, n_outputs = 0;
  CKPT_TRY(ckpt_args_texts(&types, args, "type", err));
  CKPT_TRY(ckpt_args_texts(&outputs, args, "output", err));
  while (types[n_types] != NULL) n_types++;
  while (outputs[n_outputs] != NULL) n_outputs++;
  if (n_outputs != 1) return ckpt_args_fail(args, err, "takes one -o; several types go to 'NAME-" PLACEHOLDER ".gguf'");
  if (n_types > 1 && strstr(outputs[0], PLACEHOLDER) == NULL)
    return ckpt_args_fail(args, err, "%u types need " PLACEHOLDER " in -o %s, so that each has a name of its own",
                          n_types, outputs[0]);
  ckpt_convert_target *targets = ckpt_arena_array(&args->arena, n_types, sizeof *targets);
  CKPT_TRY_ALLOC(targets, err);
  for (uint32_t i = 0; i < n_types; i++) {
    targets[i] = (ckpt_convert_target){0};
    CKPT_TRY(find_preset(&targets[i].preset, args, types[i], err));
    CKPT_TRY(fill_in(&targets[i].path, args, outputs[0], targets[i].preset, err));
  }
  writing->targets = targets;
  writing->n_targets = n_types;
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_quantize_options quantize;
  ckpt_writing writing = {.selection = {.allow_overflow = ckpt_args_has(args, "allow-overflow")},
                          .quantize = &quantize,
                          .is_one_file = true};
  ckpt_index *imatrix = NULL;
  ckpt_error err = {0};
  ckpt_status status = take_quantize(&quantize, args, &err);
  if (status == CKPT_OK) status = take_targets(&writing, args, &err);
  if (status == CKPT_OK) status = ckpt_input_open_imatrix(&imatrix, args, &err);
  quantize.imatrix = imatrix;
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
        "Writes the same bytes as llama-quantize, on every machine and for any number of threads. IN is a "
        "GGUF model as llama.cpp's convert_hf_to_gguf.py writes it, or a folder of its shards. IN is read "
        "once for any number of types. A preset is a mixture: it gives some tensors more bits than others, "
        "by llama.cpp's rules. A row that is not a whole number of blocks is an error without "
        "--allow-fallback. Types of very few bits need an importance matrix.\n"
        "\n"
        "  ckpt quantize model-f16.gguf -o model-Q4_K_M.gguf --type Q4_K_M --imatrix imatrix.gguf\n"
        "  ckpt quantize model-f16.gguf -o 'model-{type}.gguf' --type Q8_0 --type Q6_K --type Q4_K_M",
    .json = "as convert, and per output \"fallbacks\":[{\"name\",\"wanted\",\"dtype\",\"row\"}],\"imatrix_missing\":[]",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
