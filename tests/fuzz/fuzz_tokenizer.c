/* fuzz_tokenizer - any bytes as a tokenizer.json, which then encodes a few texts, some of its own bytes among them;
 * what it makes decodes, and its keys and files are printed and read again. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void check_ids(const ckpt_tokenizer *tokenizer, const ckpt_encoding *encoding, size_t n_text) {
  for (size_t i = 0; i < encoding->n; i++) {
    if (encoding->ids[i] >= tokenizer->n_tokens || tokenizer->tokens[encoding->ids[i]].text == NULL) abort();
    if (encoding->begin[i] > encoding->end[i] || encoding->end[i] > n_text) abort();
  }
}

static void encode(const ckpt_tokenizer *tokenizer, const ckpt_text_encoder *encoder, const char *text, size_t n) {
  ckpt_encoding encoding = {0};
  for (unsigned flags = 0; flags < 4; flags++) {
    ckpt_error err = {0};
    char *decoded;
    size_t n_decoded;
    ckpt_status status = ckpt_text_encode(encoder, &encoding, text, n, flags, &err);
    if (status == CKPT_EINTERNAL) abort();
    if (status != CKPT_OK) continue;
    check_ids(tokenizer, &encoding, n);
    if (ckpt_text_decode(encoder, &decoded, &n_decoded, encoding.ids, encoding.n, false, &err) != CKPT_OK) abort();
    free(decoded);
  }
  ckpt_encoding_free(&encoding);
}

/* What was read is printed as files that are read again, and as keys. */
static void print(const ckpt_tokenizer *tokenizer) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 64 << 20);
  char *json, *config;
  size_t n_json, n_config;
  ckpt_error err = {0};
  ckpt_tokenizer *again = NULL;
  if (ckpt_tokenizer_print(&json, &n_json, &config, &n_config, tokenizer, &arena, &err) == CKPT_OK)
    if (ckpt_tokenizer_parse(&again, json, n_json, config, n_config, &err) == CKPT_EINTERNAL) abort();
  ckpt_tokenizer_free(again);
  ckpt_arena_free(&arena);
  ckpt_index *index;
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20};
  const ckpt_tokenizer_ggml_options how = {.pre = "gpt-2"};
  if (ckpt_index_new(&index, NULL, "fuzz", "gguf", &options, &err) != CKPT_OK) return;
  if (ckpt_tokenizer_to_ggml(index, tokenizer, &how, &err) == CKPT_OK &&
      ckpt_tokenizer_read(&again, index, &err) == CKPT_OK)
    ckpt_tokenizer_free(again);
  if (err.status == CKPT_EINTERNAL) abort();
  ckpt_index_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  static const char *const texts[] = {"", "Hello, world!  12345\n\n it's", "\xC3\xA9 e\xCC\x81 \xE4\xBD\xA0 \xFF",
                                      "<s></s>  a b"};
  ckpt_error err = {0};
  ckpt_tokenizer *tokenizer;
  ckpt_text_encoder *encoder;
  ckpt_status status = ckpt_tokenizer_parse(&tokenizer, (const char *)data, n_bytes, NULL, 0, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (tokenizer != NULL)) abort();
  if (status != CKPT_OK) return 0;
  if (tokenizer->n_tokens < 1 << 16) print(tokenizer);
  if (ckpt_text_encoder_new(&encoder, tokenizer, &err) == CKPT_OK) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) encode(tokenizer, encoder, texts[i], strlen(texts[i]));
    encode(tokenizer, encoder, (const char *)data, n_bytes < 4096 ? n_bytes : 4096);
    ckpt_text_encoder_free(encoder);
  }
  if (err.status == CKPT_EINTERNAL) abort();
  ckpt_tokenizer_free(tokenizer);
  return 0;
}
