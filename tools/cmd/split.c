/* split.c - `ckpt split`: one checkpoint into shards. */
#include "tools/cli/shared_options.h"
#include "tools/report/writing.h"

static const ckpt_option options[] = {{"shard-size", 0, CKPT_OPTION_SIZE, CKPT_OPTION_REQUIRED, "SIZE",
                                       "most bytes of tensors per file, headers not included"},
                                      CKPT_OPTION_INCLUDE_ROW("model"),
                                      CKPT_OPTION_END};

static int run(ckpt_args *args) {
  const ckpt_writing writing = {.selection = {.include = ckpt_args_text(args, "include", NULL)},
                                .is_folder = true,
                                .is_split = true,
                                .shard_size = ckpt_args_size(args, "shard-size", 0)};
  return ckpt_writing_run(args, &writing);
}

const ckpt_verb ckpt_verb_split = {
    .name = "split",
    .forms = "split IN -o OUT --shard-size SIZE [--include WHAT]",
    .summary = "cut a checkpoint into shards",
    .details =
        "Writes the folder OUT: shards with at most SIZE bytes of tensors each, their index, and the side "
        "files. Shards are cut as huggingface_hub cuts them; those of a GGUF file as llama-gguf-split does. "
        "A tensor is never cut. A tensor larger than SIZE gets a shard of its own.",
    .json = "as convert",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
