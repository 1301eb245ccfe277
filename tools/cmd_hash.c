/* cmd_hash.c - `ckpt hash`: the content digest, whatever the format, shards and file names. */
#include "options.h"
#include "shared_options.h"

static const ckpt_option options[] = {
    {"tensors", 0, CKPT_OPTION_FLAG, 0, NULL, "a digest per tensor, in name order"},
    CKPT_OPTION_CAST_ROW,
    CKPT_OPTION_ALLOW_OVERFLOW_ROW,
    CKPT_OPTION_INCLUDE_ROW("model"),
    {"output", 'o', CKPT_OPTION_PATH, 0, "FILE", "write the digests as a manifest (JSON) too"},
    {"force", 0, CKPT_OPTION_FLAG, 0, NULL, "replace an existing manifest"},
    {"check", 0, CKPT_OPTION_PATH, 0, "FILE", "check the `ckpt1:...  PATH` lines of FILE, as sha256sum does"},
    {"files", 0, CKPT_OPTION_FLAG, 0, NULL, "SHA-256 of each file, as sha256sum prints it"},
    CKPT_OPTION_END};

const ckpt_verb ckpt_verb_hash = {
    .name = "hash",
    .forms =
        "hash PATH... [--tensors] [--cast DTYPE] [--include WHAT] [-o MANIFEST]\n"
        "hash --check FILE\n"
        "hash --files PATH...",
    .summary = "content digest, independent of format and shards",
    .details =
        "Prints `ckpt1:<64 hex>  PATH`. The digest is over names, dtypes, shapes and values: the same model has "
        "the same digest in every format, however it is sharded, ordered or named on disk. Where a format lost "
        "bits or tensors a note says so; compare across with --cast f32.\n\n"
        "  ckpt hash llama/ > llama.sum && ckpt hash --check llama.sum",
    .json =
        "{\"status\",\"hashes\":[{\"path\",\"digest\",\"names\",\"n_tensors\",\"n_bytes\",\"tensors\":[{\"name\","
        "\"digest\"}]}]}; --check: {\"status\",\"checked\":[{\"path\",\"expected\",\"digest\",\"equal\"}]}; --files: "
        "{\"status\",\"files\":[{\"path\",\"sha256\"}]}",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 0,
    .max_inputs = UINT32_MAX,
};
