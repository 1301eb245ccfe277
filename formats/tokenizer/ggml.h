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

/* Keys of special tokens, in the order in which the converter sets them. */
typedef struct ckpt_ggml_ends {
  struct {
    ckpt_special special;
    uint32_t id;
  } ids[CKPT_N_SPECIALS];
  struct {
    ckpt_special special;
    bool is_added;
  } flags[CKPT_N_SPECIALS];
  uint32_t n_ids, n_flags;
} ckpt_ggml_ends;

/* Those of a tokenizer; pre: tokenizer.ggml.pre, or NULL. */
void ckpt_ggml_ends_of(ckpt_ggml_ends *out, const ckpt_tokenizer *tokenizer, const char *pre);

#endif
