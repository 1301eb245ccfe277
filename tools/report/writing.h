/* writing.h - what the writing verbs share: from a command line to outputs, digests on stdout and the closing lines. */
#ifndef CKPT_TOOLS_REPORT_WRITING_H
#define CKPT_TOOLS_REPORT_WRITING_H

#include "libckpt/recipe/convert/convert.h"
#include "tools/cli/options.h"

/* What a verb makes of its command line. */
typedef struct ckpt_writing {
  ckpt_convert_options selection;     /* casts, patterns, include, allow_overflow, force */
  ckpt_convert_target target;         /* what every output is asked for; it has no path */
  const ckpt_convert_target *targets; /* what to write where; NULL: each -o as `target` has it */
  uint32_t n_targets;
  ckpt_quantize_options quantize; /* of targets with a preset, where it quantizes */
  bool quantizes;
  bool is_one_file, is_folder; /* what every output must be */
  bool is_split;               /* the format is the input's own, in shards */
  bool has_ranks, is_whole;    /* every output's format is cut among ranks; none is */
  bool drops_nothing;          /* what an output's format cannot hold is an error */
} ckpt_writing;

/* Adds what the options of the command line say, each to what its row names (tools/cli/options.def). Text is in the
 * args' arena. */
ckpt_status ckpt_writing_read(ckpt_writing *writing, ckpt_args *args, ckpt_error *err);

/* Opens the input, plans, and prints the plan or runs it. Returns the exit status. */
int ckpt_writing_run(ckpt_args *args, const ckpt_writing *writing);

/* Both. */
int ckpt_writing_of(ckpt_args *args, ckpt_writing writing);

#endif
