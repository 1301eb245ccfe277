/* shared_options.h - option rows that several verbs use in their own tables. */
#ifndef CKPT_TOOLS_CLI_SHARED_OPTIONS_H
#define CKPT_TOOLS_CLI_SHARED_OPTIONS_H

#include "tools/cli/options.h"

#define CKPT_OPTION_END \
  { NULL, 0, CKPT_OPTION_FLAG, 0, NULL, NULL }

/* Which roles take part; verbs differ in the default. */
#define CKPT_OPTION_INCLUDE_ROW(if_absent)                                                \
  {                                                                                       \
    "include", 0, CKPT_OPTION_CHOICE, 0, "model|optimizer|all",                           \
        "parameters and buffers, optimizer states, or everything (default " if_absent ")" \
  }

#define CKPT_OPTION_CAST_ROW \
  { "cast", 0, CKPT_OPTION_DTYPE, 0, "DTYPE", "take floating tensors as this dtype (rounds to nearest even)" }

#define CKPT_OPTION_CASTS_ROW                                                                          \
  {                                                                                                    \
    "dtype", 0, CKPT_OPTION_CAST, CKPT_OPTION_REPEATED, "[PATTERN=]DTYPE",                             \
        "cast all floating tensors, or those whose name matches PATTERN; the first matching rule wins" \
  }

#define CKPT_OPTION_SHARD_SIZE_ROW \
  { "shard-size", 0, CKPT_OPTION_SIZE, 0, "SIZE", "most bytes of tensors per file of a folder (default 5GB)" }

#define CKPT_OPTION_ZSTD_ROW \
  { "zstd", 0, CKPT_OPTION_INTEGER, 0, "LEVEL", "compress items, if the format can (dcp)" }

#define CKPT_OPTION_ALLOW_OVERFLOW_ROW                                                           \
  {                                                                                              \
    "allow-overflow", 0, CKPT_OPTION_FLAG, 0, NULL,                                              \
        "allow a cast to make values infinite, to clamp them, or to turn a whole tensor to zero" \
  }

#define CKPT_OPTION_LATER_ROW(name, value_kind, value) \
  { name, 0, value_kind, CKPT_OPTION_LATER, value, "" }

#endif
