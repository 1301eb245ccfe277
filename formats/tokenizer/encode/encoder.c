/* encoder.c - an encoder's tables: merges by pair, tokens by the bytes of text that they are, added tokens, patterns.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"

enum { MAX_ADDED_BYTES = 1024 };

static uint64_t fold(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 29;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static ckpt_status index_merges(ckpt_text_encoder *encoder, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  size_t capacity = 16;
  while (capacity < (size_t)tokenizer->n_merges * 2) capacity *= 2;
  encoder->merge_mask = capacity - 1;
  encoder->merges = reallocarray(NULL, capacity, sizeof *encoder->merges);
  CKPT_TRY_ALLOC(encoder->merges, err);
  for (size_t i = 0; i < capacity; i++) encoder->merges[i].pair = UINT64_MAX;
  for (uint32_t i = 0; i < tokenizer->n_merges; i++) {
    const ckpt_token_merge *merge = &tokenizer->merges[i];
    const uint64_t pair = (uint64_t)merge->left << 32 | merge->right, mixed = pair * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(mixed ^ mixed >> 32) & encoder->merge_mask;
    while (encoder->merges[at].pair != UINT64_MAX && encoder->merges[at].pair != pair)
      at = (at + 1) & encoder->merge_mask;
    encoder->merges[at] = (ckpt_merge_slot){pair, merge->rank, merge->result}; /* the last of two, as `tokenizers` */
    encoder->fingerprint = fold(fold(encoder->fingerprint, pair), merge->result);
  }
  return CKPT_OK;
}

/* Whether a spelling has a U+2581 behind another character. */
static bool has_inner_mark(const ckpt_token *token) {
  static const char mark[] = "\xE2\x96\x81";
  uint32_t at = 0;
  while (token->n_bytes - at >= 3 && memcmp(token->text + at, mark, 3) == 0) at += 3;
  return memmem(token->text + at, token->n_bytes - at, mark, 3) != NULL;
}

/* Text of sentencepiece's kind is one word, however long. Where no merge makes a token with a U+2581 within, words end
 * before each of them, and the result is the same. */
static void look_for_cuts(ckpt_text_encoder *encoder) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  encoder->cuts_at_marks = tokenizer->kind == CKPT_TOKENIZER_SPM_BPE && !tokenizer->ignores_merges &&
                           ckpt_spellings_find(&encoder->words, "\xE2\x96\x81", 3) != CKPT_TOKEN_NONE;
  for (uint32_t i = 0; i < tokenizer->n_merges && encoder->cuts_at_marks; i++)
    encoder->cuts_at_marks = !has_inner_mark(&tokenizer->tokens[tokenizer->merges[i].result]);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* The bytes that a spelling in GPT-2's letters means; 0 where it has another letter. */
static size_t unspell(const ckpt_token *token, uint8_t *out) {
  size_t n_out = 0;
  for (size_t at = 0, n; at < token->n_bytes; at += n) {
    int byte = ckpt_letter_byte(ckpt_utf8_at((const uint8_t *)token->text + at, &n));
    if (byte < 0) return 0;
    out[n_out++] = (uint8_t)byte;
  }
  return n_out;
}

static ckpt_status index_token(ckpt_text_encoder *encoder, uint32_t id, const uint8_t *bytes, size_t n,
                               ckpt_error *err) {
  uint32_t other;
  encoder->word_of[id] = bytes;
  encoder->word_lengths[id] = (uint32_t)n;
  for (size_t i = 0; i < n; i++) encoder->fingerprint = fold(encoder->fingerprint, bytes[i]);
  encoder->fingerprint = fold(encoder->fingerprint, id);
  if (!encoder->tokenizer->tokens[id].is_in_model || n == 0) return CKPT_OK;
  if (encoder->tokenizer->kind == CKPT_TOKENIZER_BYTE_BPE && n == 1) encoder->bytes[bytes[0]] = id;
  return ckpt_spellings_add(&encoder->words, (const char *)bytes, n, id, &other, err);
}

static ckpt_status index_tokens(ckpt_text_encoder *encoder, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  size_t n_bytes = 1;
  for (uint32_t id = 0; id < tokenizer->n_tokens; id++) n_bytes += tokenizer->tokens[id].n_bytes;
  encoder->word_bytes = malloc(n_bytes);
  encoder->word_lengths = calloc(tokenizer->n_tokens + 1, sizeof *encoder->word_lengths);
  encoder->word_of = calloc(tokenizer->n_tokens + 1, sizeof *encoder->word_of);
  CKPT_TRY_ALLOC(encoder->word_bytes, err);
  CKPT_TRY_ALLOC(encoder->word_lengths, err);
  CKPT_TRY_ALLOC(encoder->word_of, err);
  for (int i = 0; i < 256; i++) encoder->bytes[i] = CKPT_TOKEN_NONE;
  uint8_t *to = encoder->word_bytes;
  for (uint32_t id = 0; id < tokenizer->n_tokens; id++) {
    const ckpt_token *token = &tokenizer->tokens[id];
    if (token->text == NULL) continue;
    size_t n = tokenizer->kind == CKPT_TOKENIZER_BYTE_BPE && token->is_in_model ? unspell(token, to) : 0;
    if (n == 0) memcpy(to, token->text, n = token->n_bytes);
    CKPT_TRY(index_token(encoder, id, to, n, err));
    if (tokenizer->kind == CKPT_TOKENIZER_SPM_BPE && token->is_in_model && n == 6 && memcmp(to, "<0x", 3) == 0 &&
        strspn(token->text + 3, "0123456789ABCDEF") == 2 && to[5] == '>')
      encoder->bytes[strtoul(token->text + 3, NULL, 16)] = id;
    to += n;
  }
  return CKPT_OK;
}

/* ---- patterns and added tokens -------------------------------------------------------------------------------------
 */

static ckpt_status compile(ckpt_text_encoder *encoder, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  encoder->splits = calloc(tokenizer->n_splits + 1, sizeof *encoder->splits);
  encoder->replaces = calloc(tokenizer->n_normalizer + 1, sizeof *encoder->replaces);
  CKPT_TRY_ALLOC(encoder->splits, err);
  CKPT_TRY_ALLOC(encoder->replaces, err);
  for (uint32_t i = 0; i < tokenizer->n_splits; i++)
    CKPT_TRY(ckpt_regex_new(&encoder->splits[i], tokenizer->splits[i].regex, tokenizer->splits[i].literal,
                            tokenizer->path, err));
  for (uint32_t i = 0; i < tokenizer->n_normalizer; i++) {
    const ckpt_normalize_step *step = &tokenizer->normalizer[i];
    if (step->kind != CKPT_NORMALIZE_REPLACE) continue;
    CKPT_TRY(ckpt_regex_new(&encoder->replaces[i], step->regex, step->from, tokenizer->path, err));
  }
  return CKPT_OK;
}

static ckpt_status index_added(ckpt_text_encoder *encoder, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  ckpt_encoding scratch = {0};
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < tokenizer->n_added; i++) {
    const ckpt_added_token *added = &tokenizer->added[i];
    const ckpt_token *token = &tokenizer->tokens[added->id];
    ckpt_run run = {.bytes = (const uint8_t *)token->text, .n = token->n_bytes};
    ckpt_encode_room *room;
    if (run.n > MAX_ADDED_BYTES) {
      status = ckpt_fail(err, CKPT_ELIMIT, tokenizer->path, NULL, "added token %u has %zu bytes (at most %d)",
                         added->id, run.n, MAX_ADDED_BYTES);
      goto done;
    }
    if (added->is_normalized) {
      CKPT_TRY_GOTO(ckpt_room_of(&room, &scratch, encoder, err));
      CKPT_TRY_GOTO(ckpt_normalize_run(encoder, room, &run, &run, err));
    }
    CKPT_TRY_GOTO(ckpt_trie_add(added->is_normalized ? &encoder->normalized : &encoder->raw, run.bytes, run.n, i, err));
  }
done:
  ckpt_encoding_free(&scratch);
  return status;
}

ckpt_status ckpt_text_encoder_new(ckpt_text_encoder **out, const ckpt_tokenizer *tokenizer, ckpt_error *err) {
  *out = NULL;
  ckpt_text_encoder *encoder = calloc(1, sizeof *encoder);
  CKPT_TRY_ALLOC(encoder, err);
  encoder->tokenizer = tokenizer;
  encoder->fingerprint = 1;
  ckpt_status status;
  CKPT_TRY_GOTO(index_merges(encoder, err));
  CKPT_TRY_GOTO(index_tokens(encoder, err));
  look_for_cuts(encoder);
  CKPT_TRY_GOTO(compile(encoder, err));
  CKPT_TRY_GOTO(index_added(encoder, err));
  *out = encoder;
  return CKPT_OK;
done:
  ckpt_text_encoder_free(encoder);
  return ckpt_fail_at(status, err, tokenizer->path, NULL);
}

void ckpt_text_encoder_free(ckpt_text_encoder *encoder) {
  if (encoder == NULL) return;
  for (uint32_t i = 0; encoder->splits != NULL && i < encoder->tokenizer->n_splits; i++)
    ckpt_regex_free(&encoder->splits[i]);
  for (uint32_t i = 0; encoder->replaces != NULL && i < encoder->tokenizer->n_normalizer; i++)
    ckpt_regex_free(&encoder->replaces[i]);
  ckpt_spellings_free(&encoder->words);
  ckpt_trie_free(&encoder->raw);
  ckpt_trie_free(&encoder->normalized);
  free(encoder->merges);
  free(encoder->word_bytes);
  free(encoder->word_lengths);
  free(encoder->word_of);
  free(encoder->splits);
  free(encoder->replaces);
  free(encoder);
}
