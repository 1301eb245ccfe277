/* dialect.c - what libckpt asks tokenizers for when a model goes from one dialect to the other (codec/dialect/): the
 * slot that formats/registry.c names. */
#include "libckpt/codec/dialect/dialect.h"
#include "formats/tokenizer/pre.h"
#include "formats/tokenizer/tokenizer.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

static ckpt_status to_ggml(ckpt_index *into, const ckpt_index *from, const char *pre, uint32_t n_vocab,
                           ckpt_error *err) {
  ckpt_tokenizer *tokenizer;
  const ckpt_tokenizer_ggml_options options = {.pre = pre, .n_vocab = n_vocab};
  ckpt_status status = ckpt_tokenizer_read_for_ggml(&tokenizer, from, &options, err);
  if (status != CKPT_OK) return status;
  status = ckpt_tokenizer_to_ggml(into, tokenizer, &options, err);
  if (status == CKPT_OK && tokenizer->left != NULL) status = ckpt_index_note(into, false, err, "%s", tokenizer->left);
  if (status == CKPT_OK && tokenizer->n_dropped != 0)
    status = ckpt_index_note(into, false, err, "%u token%s of the tokenizer past the rows of the embedding",
                             tokenizer->n_dropped, ckpt_plural(tokenizer->n_dropped));
  ckpt_tokenizer_free(tokenizer);
  return status;
}

static ckpt_status to_files(const char **json, const char **config, const ckpt_index *gguf, ckpt_arena *arena,
                            ckpt_error *err) {
  ckpt_tokenizer *tokenizer;
  char *text, *settings;
  size_t n_text, n_settings;
  CKPT_TRY(ckpt_tokenizer_read(&tokenizer, gguf, err));
  ckpt_status status = ckpt_tokenizer_print(&text, &n_text, &settings, &n_settings, tokenizer, arena, err);
  ckpt_tokenizer_free(tokenizer);
  if (status != CKPT_OK) return status;
  *json = text;
  *config = settings;
  return CKPT_OK;
}

static bool knows_pre(const char *pre) { return ckpt_pre_find(pre) != NULL; }

extern const ckpt_dialect_tokenizer ckpt_tokenizer_dialect;
const ckpt_dialect_tokenizer ckpt_tokenizer_dialect = {to_ggml, to_files, knows_pre};
