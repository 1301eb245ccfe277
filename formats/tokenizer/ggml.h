/* ggml.h - the keys of GGUF's metadata that are a tokenizer's. Not for others. */
#ifndef CKPT_FORMATS_TOKENIZER_GGML_H
#define CKPT_FORMATS_TOKENIZER_GGML_H

#include "formats/tokenizer/tokenizer.h"

#define CKPT_GGML_MODEL "tokenizer.ggml.model"
#define CKPT_GGML_PRE "tokenizer.ggml.pre"
#define CKPT_GGML_TOKENS "tokenizer.ggml.tokens"
#define CKPT_GGML_TOKEN_TYPE "tokenizer.ggml.token_type"
#define CKPT_GGML_SCORES "tokenizer.ggml.scores"
#define CKPT_GGML_MERGES "tokenizer.ggml.merges"
#define CKPT_GGML_ADD_PREFIX "tokenizer.ggml.add_space_prefix"

/* What stands between tokenizer.ggml. and _token_id of each special. */
extern const char *const ckpt_ggml_specials[CKPT_N_SPECIALS];

#endif
