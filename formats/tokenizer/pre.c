/* pre.c - see pre.h. */
#include "formats/tokenizer/pre.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

#define CKPT_PRE(name, nfc, ignores, bos, ...) {name, {__VA_ARGS__, NULL}, nfc, ignores, bos},
static const ckpt_pre rows[] = {
#include "formats/tokenizer/pre.def"
};
#undef CKPT_PRE

const char ckpt_gpt2_regex[] = CKPT_GPT2;
const char ckpt_punctuation_regex[] = CKPT_PUNCTUATION;

enum { N_ROWS = sizeof rows / sizeof *rows };

const ckpt_pre *ckpt_pre_find(const char *name) {
  for (size_t i = 0; i < N_ROWS; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}

static bool has_splits(const ckpt_tokenizer *tokenizer, const ckpt_pre *pre) {
  uint32_t n = 0;
  for (; n < tokenizer->n_splits; n++) {
    const ckpt_split *split = &tokenizer->splits[n];
    if (pre->splits[n] == NULL || split->regex == NULL || split->behavior != CKPT_SPLIT_ISOLATED ||
        strcmp(split->regex, pre->splits[n]) != 0)
      return false;
  }
  return n != 0 && pre->splits[n] == NULL;
}

const char *ckpt_pre_recognize(const ckpt_tokenizer *tokenizer) {
  const bool has_nfc = tokenizer->n_normalizer == 1 && tokenizer->normalizer[0].kind == CKPT_NORMALIZE_NFC;
  if ((tokenizer->n_normalizer != 0 && !has_nfc) || tokenizer->prefix != CKPT_PREFIX_NEVER) return NULL;
  for (size_t i = 0; i < N_ROWS; i++)
    if (rows[i].has_nfc == has_nfc && has_splits(tokenizer, &rows[i])) return rows[i].name;
  return NULL;
}

const char *ckpt_pre_of_splits(const ckpt_tokenizer *tokenizer) {
  for (size_t i = 0; i < N_ROWS; i++)
    if (has_splits(tokenizer, &rows[i])) return rows[i].name;
  return NULL;
}

ckpt_status ckpt_pre_splits(const ckpt_split **out, uint32_t *n, const ckpt_pre *pre, ckpt_arena *arena,
                            ckpt_error *err) {
  for (*n = 0; pre->splits[*n] != NULL;) ++*n;
  ckpt_split *splits = ckpt_arena_array(arena, *n, sizeof *splits);
  CKPT_TRY_ALLOC(splits, err);
  for (uint32_t i = 0; i < *n; i++) splits[i] = (ckpt_split){.regex = pre->splits[i], .behavior = CKPT_SPLIT_ISOLATED};
  *out = splits;
  return CKPT_OK;
}

void ckpt_pre_show(const ckpt_tokenizer *tokenizer, char *out, size_t n_bytes) {
  static const char *const behaviors[] = {"isolated", "removed", "merged with previous", "merged with next",
                                          "contiguous"};
  size_t n = 0;
  out[0] = '\0';
  for (uint32_t i = 0; i < tokenizer->n_splits && n < n_bytes; i++) {
    const ckpt_split *split = &tokenizer->splits[i];
    const char *text = split->regex != NULL ? split->regex : split->literal;
    int wrote = snprintf(out + n, n_bytes - n, "%s%s %s%s", i == 0 ? "" : ", then ", text, behaviors[split->behavior],
                         split->is_inverted ? ", inverted" : "");
    n += wrote < 0 ? 0 : (size_t)wrote;
  }
  size_t whole = ckpt_utf8_length(out, strlen(out));
  out[whole] = '\0';
}

static bool is_between(const char *text, const char *start, const char *end) {
  size_t n = strlen(text), n_start = strlen(start), n_end = strlen(end);
  return n >= n_start + n_end && strncmp(text, start, n_start) == 0 && strcmp(text + n - n_end, end) == 0;
}

bool ckpt_token_looks_special(const char *text) {
  static const char *const names[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(text, names[i]) == 0) return true;
  return is_between(text, "<|", "|>") || is_between(text, "<｜", "｜>") || is_between(text, "<unused", ">");
}
