/* reshard.c - `ckpt reshard`: weights and optimizer states, cut for another number of ranks. */
#include "libckpt/format/layout.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

_Static_assert(CKPT_OPTION_INTEGER_MAX == CKPT_MAX_RANKS, "what --world takes is what can be written");

/* Ranks, by either name. */
static ckpt_status read_world(ckpt_args *args, uint32_t *world, ckpt_error *err) {
  if (*world == 0) *world = 1;
  if (!ckpt_args_has(args, "dp")) return CKPT_OK;
  const uint32_t n = (uint32_t)ckpt_args_size(args, "dp", 0);
  if (ckpt_args_has(args, "world") && *world != n)
    return ckpt_args_fail(args, err, "--world %u and --dp %u are two names of one number", *world, n);
  *world = n;
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_writing writing = {.selection = {.include = "all"}, .is_folder = true, .has_ranks = true, .drops_nothing = true};
  ckpt_status status = ckpt_writing_read(&writing, args, &err);
  if (status == CKPT_OK) status = read_world(args, &writing.target.world, &err);
  return status == CKPT_OK ? ckpt_writing_run(args, &writing) : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_reshard = {
    .name = "reshard",
    .forms =
        "reshard IN -o OUT --to dcp|universal|zero [--world N | --dp N] [--stage 1|2|3] [--engine "
        "bf16|fp16|fp32] [--drop optimizer] [--zstd LEVEL]",
    .summary = "write weights and optimizer states for another parallel layout",
    .details =
        "Writes the folder OUT as a run on N ranks would have saved it: weights, optimizer states, other "
        "objects and side files. It keeps the random states of the first N ranks. Anything that the format "
        "cannot hold is an error.\n"
        "\n"
        "  ckpt reshard checkpoint-500/ -o for-16/ --to dcp --world 16\n"
        "  ckpt reshard checkpoint-500/ -o for-3/ --to zero --stage 1 --dp 3\n"
        "  ckpt reshard checkpoint-500/ -o any/ --to universal --dp 8",
    .json = "as convert",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
