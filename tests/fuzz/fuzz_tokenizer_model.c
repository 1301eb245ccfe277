/* fuzz_tokenizer_model - any bytes as sentencepiece's tokenizer.model. What it makes encodes a text and decodes it, and
 * its keys and files are printed. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

static void print(const ckpt_tokenizer *tokenizer) {
  char *json, *config;
  size_t n_json, n_config;
  ckpt_arena arena;
  ckpt_error err = {0};
  ckpt_index *index;
  const ckpt_tokenizer_ggml_options how = {0};
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20};
  ckpt_arena_init(&arena, 64 << 20);
  if (ckpt_tokenizer_print(&json, &n_json, &config, &n_config, tokenizer, &arena, &err) == CKPT_EINTERNAL) abort();
  ckpt_arena_free(&arena);
  if (ckpt_index_new(&index, NULL, "fuzz", "gguf", &options, &err) != CKPT_OK) return;
  if (ckpt_tokenizer_to_ggml(index, tokenizer, &how, &err) == CKPT_EINTERNAL) abort();
  ckpt_index_free(index);
}

static void encode(const ckpt_tokenizer *tokenizer) {
  static const char text[] = "Hello, world!  12345\n\n it's \xC3\xA9 \xE4\xBD\xA0 \xFF";
  ckpt_encoding encoding = {0};
  ckpt_text_encoder *encoder;
  ckpt_error err = {0};
  char *decoded;
  size_t n_decoded;
  if (ckpt_text_encoder_new(&encoder, tokenizer, &err) != CKPT_OK) return;
  ckpt_status status = ckpt_text_encode(encoder, &encoding, text, sizeof text - 1, 0, &err);
  if (status == CKPT_EINTERNAL) abort();
  for (size_t i = 0; status == CKPT_OK && i < encoding.n; i++)
    if (encoding.ids[i] >= tokenizer->n_tokens) abort();
  if (status == CKPT_OK &&
      ckpt_text_decode(encoder, &decoded, &n_decoded, encoding.ids, encoding.n, false, &err) == CKPT_OK)
    free(decoded);
  ckpt_encoding_free(&encoding);
  ckpt_text_encoder_free(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char path[256];
  ckpt_error err = {0};
  ckpt_tokenizer *tokenizer;
  fuzz_folder_make();
  FILE *file = fopen(fuzz_path(path, "tokenizer.model"), "wb");
  if (file == NULL || fwrite(data, 1, n_bytes, file) != n_bytes || fclose(file) != 0) abort();
  ckpt_status status = ckpt_tokenizer_open(&tokenizer, path, &err);
  if (status == CKPT_EINTERNAL || status != err.status) abort();
  if (status != CKPT_OK) return 0;
  if (tokenizer->n_tokens < 1 << 16) print(tokenizer);
  encode(tokenizer);
  ckpt_tokenizer_free(tokenizer);
  return 0;
}
