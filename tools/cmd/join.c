/* join.c - `ckpt join`: shards into one file. */
#include "tools/report/writing.h"

static int run(ckpt_args *args) { return ckpt_writing_of(args, (ckpt_writing){.is_one_file = true}); }

const ckpt_verb ckpt_verb_join = {
    .name = "join",
    .forms = "join IN -o OUT [--include WHAT]",
    .summary = "write the shards of a checkpoint as one file",
    .details = "IN is a folder of shards, their index, or the first of several GGUF shards. OUT is one file.",
    .json = "as convert",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
