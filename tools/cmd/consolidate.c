/* consolidate.c - `ckpt consolidate`: what the ranks of a job left becomes one model. */
#include "tools/report/writing.h"

static int run(ckpt_args *args) { return ckpt_writing_of(args, (ckpt_writing){.is_whole = true}); }

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
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
