/* quantize.c - `ckpt quantize`: GGUF in the block types of llama.cpp's presets, any number of them from one read, and
 * the model itself beside them. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
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

/* Whether an output is in the presets' types: one that says where the type goes, or, where none does, the first. The
 * others are the model itself. */
static bool is_typed(const char *const *outputs, uint32_t i, bool has_placeholder) {
  return has_placeholder ? strstr(outputs[i], PLACEHOLDER) != NULL : i == 0;
}

static ckpt_status take_targets(ckpt_writing *writing, ckpt_args *args, ckpt_error *err) {
  const char *const *outputs;
  uint32_t n_types = 0, n_outputs = 0, n = 0;
  bool has_placeholder = false;
  CKPT_TRY(ckpt_args_texts(&outputs, args, "output", err));
  for (uint32_t at = 0; ckpt_args_next(args, "type", &at) != NULL;) n_types++;
  for (; outputs[n_outputs] != NULL; n_outputs++)
    has_placeholder = has_placeholder || strstr(outputs[n_outputs], PLACEHOLDER) != NULL;
  if (n_types > 1 && !has_placeholder)
    return ckpt_args_fail(args, err, "%u types need " PLACEHOLDER " in -o %s, so that each has a name of its own",
                          n_types, outputs[0]);
  ckpt_convert_target *targets = ckpt_arena_array(&args->arena, (size_t)n_types * n_outputs, sizeof *targets);
  CKPT_TRY_ALLOC(targets, err);
  for (uint32_t k = 0; k < n_outputs; k++) {
    const bool is_of_type = is_typed(outputs, k, has_placeholder);
    if (!is_of_type) targets[n++] = (ckpt_convert_target){.path = outputs[k]};
    for (uint32_t i = 0, at = 0; i < n_types && is_of_type; i++, n++) {
      targets[n] = (ckpt_convert_target){.preset = ckpt_args_next(args, "type", &at)->preset};
      CKPT_TRY(fill_in(&targets[n].path, args, outputs[k], targets[n].preset, err));
    }
  }
  for (uint32_t i = 0; i < n; i++) {
    targets[i].shard_size = writing->target.shard_size;
    targets[i].values = writing->target.values;
    if (targets[i].preset != NULL && targets[i].shard_size != 0 && ckpt_text_ends(targets[i].path, "/"))
      targets[i].to = "gguf"; /* in shards */
  }
  writing->targets = targets;
  writing->n_targets = n;
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_writing writing = {.quantizes = true, .is_one_file = true};
  ckpt_error err = {0};
  ckpt_status status = ckpt_writing_read(&writing, args, &err);
  if (status == CKPT_OK) status = ckpt_quantize_check_types(&writing.quantize, &err);
  if (status == CKPT_OK) status = take_targets(&writing, args, &err);
  return status == CKPT_OK ? ckpt_writing_run(args, &writing) : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_quantize = {
    .name = "quantize",
    .forms =
        "quantize IN -o OUT.gguf --type TYPE [--imatrix FILE] [--tensor-type REGEX=TYPE]...\n"
        "quantize IN -o 'OUT-{type}.gguf' --type TYPE --type TYPE... [-o FOLDER/]...",
    .summary = "write GGUF in the block types of llama.cpp's presets",
    .details =
        "The bytes are those of llama-quantize, on every machine and for any number of threads. IN is any "
        "checkpoint of a family that has rules for GGUF (--like MODEL where it has no config.json), or a GGUF model. "
        "It is "
        "read once, whatever the number of types; a further -o without {type} is the model itself: a folder in its "
        "stored dtypes, a .gguf in the dtype of its matrices. With --shard-size, -o FOLDER/ gets shards. A preset is a "
        "mixture: it gives some tensors more bits "
        "than others, by "
        "llama.cpp's rules. A row that is no whole number of blocks is an error unless --allow-fallback, and types of "
        "very few bits need an importance matrix.\n\n"
        "  ckpt quantize model-f16.gguf -o model-Q4_K_M.gguf --type Q4_K_M --imatrix imatrix.gguf\n"
        "  ckpt quantize model-f16.gguf -o 'model-{type}.gguf' --type Q8_0 --type Q6_K --type Q4_K_M\n"
        "  ckpt quantize checkpoint/ --like model/ -o 'out/{type}.gguf' -o out/hf/ --type Q8_0 --type Q4_K_M",
    .json = "as convert, and per output \"fallbacks\":[{\"name\",\"wanted\",\"dtype\",\"row\"}],\"imatrix_missing\":[]",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
