/* join.c - `ckpt join`: shards into one file. */
#include "tools/cli/shared_options.h"
#include "tools/report/writing.h"

static const ckpt_option options[] = {CKPT_OPTION_INCLUDE_ROW("model"), CKPT_OPTION_END};

static int run(ckpt_args *args) {
  const ckpt_writing writing = {.selection = {.include = ckpt_args_text(args, "include", NULL)}, .is_one_file = true};
  return ckpt_writing_run(args, &writing);
}

const ckpt_verb ckpt_verb_join = {
    .name = "join",
    .forms = "join IN -o OUT [--include WHAT]",
    .summary = "write the shards of a checkpoint as one file",
    .details = "IN is a folder of shards, their index, or the first of several GGUF shards. OUT is one file.",
    .json = "as convert",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
