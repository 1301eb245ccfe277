/* reshard.c - `ckpt reshard`: weights and optimizer states, cut for another number of ranks. */
#include "libckpt/format/format.h"
#include "libckpt/format/layout.h"
#include "tools/cli/shared_options.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

static const ckpt_option options[] = {
    {"to", 0, CKPT_OPTION_FORMAT, CKPT_OPTION_REQUIRED | CKPT_OPTION_RANKS, "FORMAT",
     "output format (dcp, universal, zero)"},
    {"world", 0, CKPT_OPTION_COUNT, 0, "N", "number of ranks, at most 4096 (default 1)"},
    {"drop", 0, CKPT_OPTION_CHOICE, 0, "optimizer", "leave out the optimizer states"},
    CKPT_OPTION_ZSTD_ROW,
    {"stage", 0, CKPT_OPTION_CHOICE, 0, "1|2|3", "ZeRO stage (default 3)"},
    {"dp", 0, CKPT_OPTION_COUNT, 0, "N", "DeepSpeed's word for --world: data-parallel ranks"},
    CKPT_OPTION_LATER_ROW("tp", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("pp", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_LATER_ROW("ep", CKPT_OPTION_INTEGER, "N"),
    CKPT_OPTION_END};

_Static_assert(CKPT_OPTION_INTEGER_MAX == CKPT_MAX_RANKS, "what --world takes is what can be written");

/* Ranks, by either name. */
static ckpt_status read_world(ckpt_args *args, uint32_t *world, ckpt_error *err) {
  static const char *const names[] = {"world", "dp"};
  *world = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!ckpt_args_has(args, names[i])) continue;
    const uint32_t n = (uint32_t)ckpt_args_size(args, names[i], 0);
    if (*world != 0 && *world != n)
      return ckpt_args_fail(args, err, "--world %u and --dp %u are two names of one number", *world, n);
    *world = n;
  }
  if (*world == 0) *world = 1;
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_writing writing = {.selection = {.include = ckpt_args_has(args, "drop") ? "no-optimizer" : "all"},
                          .to = ckpt_args_text(args, "to", NULL),
                          .stage = (uint32_t)(ckpt_args_text(args, "stage", "0")[0] - '0'),
                          .zstd_level = (uint32_t)ckpt_args_size(args, "zstd", 0),
                          .is_folder = true,
                          .has_ranks = true,
                          .drops_nothing = true};
  if (read_world(args, &writing.world, &err) != CKPT_OK) return ckpt_report_error(args, &err);
  const ckpt_format *to = ckpt_format_find(writing.to);
  if (writing.stage != 0 && to != NULL && to->caps.stages == 0) {
    (void)ckpt_args_fail(args, &err, "--stage is of --to zero");
    return ckpt_report_error(args, &err);
  }
  return ckpt_writing_run(args, &writing);
}

const ckpt_verb ckpt_verb_reshard = {
    .name = "reshard",
    .forms =
        "reshard IN -o OUT --to dcp|universal|zero [--world N | --dp N] [--stage 1|2|3] [--drop optimizer] [--zstd "
        "LEVEL]",
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
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT | CKPT_SET_OUTPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
