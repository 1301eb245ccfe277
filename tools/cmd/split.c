/* split.c - `ckpt split`: one checkpoint into shards. */
#include "tools/report/writing.h"

static int run(ckpt_args *args) { return ckpt_writing_of(args, (ckpt_writing){.is_folder = true, .is_split = true}); }

const ckpt_verb ckpt_verb_split = {
    .name = "split",
    .forms = "split IN -o OUT --shard-size SIZE [--include WHAT]",
    .summary = "cut a checkpoint into shards",
    .details =
        "Writes the folder OUT: shards with at most SIZE bytes of tensors each, their index, and the side "
        "files. Shards are cut as huggingface_hub cuts them; those of a GGUF file as llama-gguf-split does. "
        "A tensor is never cut. A tensor larger than SIZE gets a shard of its own.",
    .json = "as convert",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
