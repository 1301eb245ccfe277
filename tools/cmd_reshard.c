/* cmd_reshard.c - `ckpt reshard`: weights and optimizer states, cut for another number of ranks. */
#include "report.h"
#include "shared_options.h"
#include "writing.h"

static const ckpt_option options[] = {
    {"to", 0, CKPT_OPTION_FORMAT, CKPT_OPTION_REQUIRED | CKPT_OPTION_RANKS, "FORMAT", "output format (dcp)"},
    {"world", 0, CKPT_OPTION_INTEGER, 0, "N", "ranks to cut it among (default 1)"},
    {"drop", 0, CKPT_OPTION_CHOICE, 0, "optimizer", "leave out the optimizer's states"},
    CKPT_OPTION_ZSTD_ROW,
    CKPT_OPTION_LATER_ROW("dp", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("tp", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("pp", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("ep", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("stage", CKPT_OPTION_INTEGER, "1|2|3"),
    CKPT_OPTION_END};

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  if (ckpt_args_size(args, "world", 1) == 0) {
    (void)ckpt_args_fail(args, &err, "--world 0: a job has at least 1 rank");
    return ckpt_report_error(args, &err);
  }
  const ckpt_writing writing = {.selection = {.include = ckpt_args_has(args, "drop") ? "model" : "all"},
                                .to = ckpt_args_text(args, "to", NULL),
                                .world = (uint32_t)ckpt_args_size(args, "world", 1),
                                .zstd_level = (uint32_t)ckpt_args_size(args, "zstd", 0),
                                .is_folder = true,
                                .has_ranks = true,
                                .drops_nothing = true};
  return ckpt_writing_run(args, &writing);
}

const ckpt_verb ckpt_verb_reshard = {
    .name = "reshard",
    .forms = "reshard IN -o OUT --to dcp [--world N] [--drop optimizer] [--zstd LEVEL]",
    .summary = "weights and optimizer states for another parallel layout",
    .details =
        "Writes the folder OUT as a run on N ranks would have saved it: weights, optimizer states, other items and "
        "side files, of random states those of the N first ranks. What the format cannot hold is an error.\n\n"
        "  ckpt reshard checkpoint-500/ -o for-16/ --to dcp --world 16",
    .json = "as convert",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
