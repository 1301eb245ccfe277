/* writing.h - what the writing verbs share: from a command line to outputs, digests on stdout and the closing lines. */
#ifndef CKPT_TOOLS_WRITING_H
#define CKPT_TOOLS_WRITING_H

#include "options.h"

/* What a verb makes of its command line. */
typedef struct ckpt_writing {
  ckpt_convert_options selection; /* casts, patterns, include, allow_overflow */
  const char *to;                 /* format of every output; NULL: by their suffixes */
  uint64_t shard_size;            /* 0: the format's default */
  bool is_one_file, is_folder;    /* what every output must be */
} ckpt_writing;

/* Opens the input, plans, and prints the plan or runs it. Returns the exit status. */
int ckpt_writing_run(ckpt_args *args, const ckpt_writing *writing);

#endif
