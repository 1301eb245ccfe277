/* cmd_verify.c - `ckpt verify`: read everything and report every problem. */
#include "options.h"
#include "shared_options.h"

static const ckpt_option options[] = {
    {"headers", 0, CKPT_OPTION_FLAG, 0, NULL, "structure only; tensor bytes are not read"},
    {"digest", 0, CKPT_OPTION_TEXT, 0, "ckpt1:HEX", "the content digest that it must have"},
    {"manifest", 0, CKPT_OPTION_PATH, 0, "FILE", "a manifest of ckpt hash -o that it must match, tensor by tensor"},
    {"sums", 0, CKPT_OPTION_PATH, 0, "FILE", "sha256sum lines that its files must match"},
    {"receipt", 0, CKPT_OPTION_PATH, 0, "FILE", "run the receipt's plan again from its inputs into the digest"},
    CKPT_OPTION_END};

const ckpt_verb ckpt_verb_verify = {
    .name = "verify",
    .forms = "verify PATH [--headers] [--digest ckpt1:HEX] [--manifest FILE] [--sums FILE] [--receipt FILE]",
    .summary = "read everything and report every problem",
    .details =
        "Structure, strict where convert is tolerant (holes, trailing bytes, padding); coverage; checksums that "
        "the format carries; config and tokenizer against tensors; NaN and infinities in parameters. All "
        "problems are reported, not only the first; any makes the exit status 1. NaN in buffers and all-zero "
        "matrices are warnings. The result says what could not be proven.",
    .json =
        "{\"status\",\"problems\":[{\"file\",\"tensor\",\"message\"}],\"warnings\":[...],\"unproven\":[...],"
        "\"n_tensors\",\"n_bytes\",\"digest\"}",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
};
