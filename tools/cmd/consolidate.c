/* consolidate.c - `ckpt consolidate`: what the ranks of a job left becomes one model. */
#include "libckpt/base/error.h"
#include "tools/cli/shared_options.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

static const ckpt_option options[] = {
    {"to", 0, CKPT_OPTION_FORMAT, 0, "FORMAT", "output format (default: by the suffix; a folder is hf)"},
    CKPT_OPTION_CASTS_ROW,
    CKPT_OPTION_ALLOW_OVERFLOW_ROW,
    CKPT_OPTION_INCLUDE_ROW("by format"),
    CKPT_OPTION_SHARD_SIZE_ROW,
    CKPT_OPTION_END};

static int run(ckpt_args *args) {
  ckpt_writing writing = {.selection = {.include = ckpt_args_text(args, "include", NULL),
                                        .allow_overflow = ckpt_args_has(args, "allow-overflow")},
                          .to = ckpt_args_text(args, "to", NULL),
                          .shard_size = ckpt_args_size(args, "shard-size", 0),
                          .is_whole = true};
  ckpt_error err = {0};
  if (ckpt_writing_casts(&writing.selection, args, &err) != CKPT_OK) return ckpt_report_error(args, &err);
  return ckpt_writing_run(args, &writing);
}

const ckpt_verb ckpt_verb_consolidate = {
    .name = "consolidate",
    .forms = "consolidate IN -o OUT [--dtype [PATTERN=]DTYPE]... [--shard-size SIZE]",
    .summary = "write a distributed checkpoint as one model",
    .details =
        "IN is what the ranks of a training run saved. OUT is a Hugging Face folder or one file. Nothing is "
        "gathered in memory: ckpt reads each piece of a tensor from its file and writes it to its place. "
        "Config and tokenizer come from IN's folder, or from the model that was trained (--like).\n"
        "\n"
        "  ckpt consolidate checkpoint-500/ --like base/ -o model/ --dtype bf16\n"
        "  ckpt consolidate step-1000/ -o model.safetensors",
    .json = "as convert",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
