/* cmd_diff.c - `ckpt diff`: what two checkpoints do not have in common. */
#include "options.h"
#include "shared_options.h"

static const ckpt_option options[] = {
    {"atol", 0, CKPT_OPTION_NUMBER, 0, "X", "values differ only past this absolute difference (default 0)"},
    {"rtol", 0, CKPT_OPTION_NUMBER, 0, "X", "and past this share of the value in B (default 0)"},
    CKPT_OPTION_CAST_ROW,
    CKPT_OPTION_ALLOW_OVERFLOW_ROW,
    CKPT_OPTION_INCLUDE_ROW("model"),
    CKPT_OPTION_LATER_ROW("requantize", CKPT_OPTION_FLAG, NULL),
    CKPT_OPTION_LATER_ROW("imatrix", CKPT_OPTION_PATH, "FILE"),
    CKPT_OPTION_END};

const ckpt_verb ckpt_verb_diff = {
    .name = "diff",
    .forms = "diff A B [--atol X] [--rtol X] [--cast DTYPE] [--include WHAT]",
    .summary = "compare two checkpoints",
    .details =
        "Names only in A, only in B, different dtypes, shapes and values (largest absolute and relative "
        "difference, count, first index). Formats and shards may differ. Exit 0 when equal, 1 when different.",
    .json =
        "{\"status\",\"equal\",\"only_a\":[],\"only_b\":[],\"dtype\":[],\"shape\":[],\"value\":[{\"name\",\"max_abs\","
        "\"max_rel\",\"rmse\",\"n_different\"}]}",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 2,
    .max_inputs = 2,
};
