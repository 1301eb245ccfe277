/* pre.h - the ways in which byte-level BPE cuts text, under llama.cpp's names (pre.def). Not for others. */
#ifndef CKPT_FORMATS_TOKENIZER_PRE_H
#define CKPT_FORMATS_TOKENIZER_PRE_H

#include "formats/tokenizer/tokenizer.h"

/* GPT-2's way, which ByteLevel has without saying so. */
extern const char ckpt_gpt2_regex[];
extern const char ckpt_punctuation_regex[]; /* a run of it: ASCII's, and category P */

typedef struct ckpt_pre {
  const char *name;
  const char *splits[6]; /* as tokenizer.json has them, NULL-terminated: each isolated, in order */
  bool has_nfc;          /* a model of this name normalizes */
  bool ignores_merges;   /* a word that is a token is that token */
  bool adds_bos;         /* llama.cpp's default */
} ckpt_pre;

/* The row of a name; NULL: none. Names that share a row's ways are rows of their own. */
const ckpt_pre *ckpt_pre_find(const char *name);

/* The name of a tokenizer's splits; NULL: none has them. */
const char *ckpt_pre_recognize(const ckpt_tokenizer *tokenizer);

/* The first name with a tokenizer's splits, whatever precedes them; NULL: none has them. */
const char *ckpt_pre_of_splits(const ckpt_tokenizer *tokenizer);

/* The splits of a row. */
ckpt_status ckpt_pre_splits(const ckpt_split **out, uint32_t *n, const ckpt_pre *pre, ckpt_arena *arena,
                            ckpt_error *err);

/* The splits of a tokenizer in one line, for messages: regexes and behaviors. */
void ckpt_pre_show(const ckpt_tokenizer *tokenizer, char *out, size_t n_bytes);

/* Whether the text of an added token looks special, as the converter of llama.cpp decides it. */
bool ckpt_token_looks_special(const char *text);

#endif
