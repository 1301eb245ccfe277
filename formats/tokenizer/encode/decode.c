/* decode.c - ids to bytes: each token's text, then the decoder's steps on the list of them, and all of it joined. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"

/* Texts of tokens, one behind another in a buffer; ends[i] is the end of the i-th. */
typedef struct texts {
  uint8_t *bytes;
  size_t n_bytes, byte_capacity;
  size_t *ends;
  size_t n, capacity;
} texts;

static ckpt_status add(texts *t, const void *bytes, size_t n, ckpt_error *err) {
  if (t->bytes == NULL || n > t->byte_capacity - t->n_bytes) {
    size_t capacity = t->byte_capacity + t->byte_capacity / 2 + n + 256;
    uint8_t *moved = realloc(t->bytes, capacity);
    CKPT_TRY_ALLOC(moved, err);
    t->bytes = moved;
    t->byte_capacity = capacity;
  }
  if (n != 0) memcpy(t->bytes + t->n_bytes, bytes, n);
  t->n_bytes += n;
  return CKPT_OK;
}

static ckpt_status end_text(texts *t, ckpt_error *err) {
  CKPT_TRY(add(t, NULL, 0, err)); /* so that there are bytes to point into */
  if (t->n == t->capacity) {
    size_t capacity = t->capacity + t->capacity / 2 + 256;
    size_t *moved = reallocarray(t->ends, capacity, sizeof *moved);
    CKPT_TRY_ALLOC(moved, err);
    t->ends = moved;
    t->capacity = capacity;
  }
  t->ends[t->n++] = t->n_bytes;
  return CKPT_OK;
}

static void texts_free(texts *t) {
  free(t->bytes);
  free(t->ends);
  *t = (texts){0};
}

/* One token's text in the decoder's terms: its spelling, or the bytes that it stands for where the step comes first. */
static ckpt_status add_token(const ckpt_text_encoder *encoder, texts *t, uint32_t id, bool is_byte_level,
                             ckpt_error *err) {
  const ckpt_token *token = &encoder->tokenizer->tokens[id];
  if (!is_byte_level) {
    CKPT_TRY(add(t, token->text, token->n_bytes, err));
    return end_text(t, err);
  }
  /* a spelling in GPT-2's letters is its bytes, any other is itself: of added tokens, too */
  size_t start = t->n_bytes;
  for (size_t at = 0, n; at < token->n_bytes; at += n) {
    int byte = ckpt_letter_byte(ckpt_utf8_at((const uint8_t *)token->text + at, &n));
    if (byte < 0) {
      t->n_bytes = start;
      CKPT_TRY(add(t, token->text, token->n_bytes, err));
      break;
    }
    const uint8_t one = (uint8_t)byte;
    CKPT_TRY(add(t, &one, 1, err));
  }
  return end_text(t, err);
}

/* The byte of a token <0xXX>; -1: it is none. */
static int byte_of(const uint8_t *text, size_t n) {
  char digits[3] = "";
  if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  memcpy(digits, text + 3, 2);
  if (strspn(digits, "0123456789abcdefABCDEF") != 2) return -1;
  return (int)strtoul(digits, NULL, 16);
}

static ckpt_status replace(texts *to, const uint8_t *text, size_t n, const char *from, const char *with,
                           ckpt_error *err) {
  const size_t n_from = strlen(from);
  for (size_t at = 0; at < n;) {
    const uint8_t *hit = memmem(text + at, n - at, from, n_from);
    size_t n_kept = hit == NULL ? n - at : (size_t)(hit - text) - at;
    CKPT_TRY(add(to, text + at, n_kept, err));
    if (hit == NULL) break;
    CKPT_TRY(add(to, with, strlen(with), err));
    at += n_kept + n_from;
  }
  return CKPT_OK;
}

static ckpt_status strip(texts *to, const uint8_t *text, size_t n, const ckpt_decode_step *step, ckpt_error *err) {
  const size_t n_from = strlen(step->from);
  for (uint32_t i = 0; i < step->start && n >= n_from && memcmp(text, step->from, n_from) == 0; i++) {
    text += n_from;
    n -= n_from;
  }
  for (uint32_t i = 0; i < step->stop && n >= n_from && memcmp(text + n - n_from, step->from, n_from) == 0; i++)
    n -= n_from;
  return add(to, text, n, err);
}

/* One step on all texts. */
static ckpt_status run_step(const ckpt_decode_step *step, const texts *from, texts *to, ckpt_error *err) {
  for (size_t i = 0, at = 0; i < from->n; at = from->ends[i++]) {
    const uint8_t *text = from->bytes + at;
    size_t n = from->ends[i] - at;
    int byte = step->kind == CKPT_DECODE_BYTE_FALLBACK ? byte_of(text, n) : -1;
    const uint8_t one = (uint8_t)byte;
    switch (step->kind) {
      case CKPT_DECODE_BYTE_LEVEL: /* done where texts were made */
      case CKPT_DECODE_FUSE: CKPT_TRY(add(to, text, n, err)); break;
      case CKPT_DECODE_BYTE_FALLBACK: CKPT_TRY(add(to, byte < 0 ? text : &one, byte < 0 ? n : 1, err)); break;
      case CKPT_DECODE_REPLACE: CKPT_TRY(replace(to, text, n, step->from, step->to, err)); break;
      case CKPT_DECODE_STRIP: CKPT_TRY(strip(to, text, n, step, err)); break;
      case CKPT_DECODE_METASPACE:
        /* the first token has no spaces at all */
        CKPT_TRY(replace(to, text, n, step->from, i == 0 && step->prefix != CKPT_PREFIX_NEVER ? "" : step->to, err));
        break;
    }
    if (step->kind != CKPT_DECODE_FUSE) CKPT_TRY(end_text(to, err));
  }
  return step->kind == CKPT_DECODE_FUSE ? end_text(to, err) : CKPT_OK;
}

static ckpt_status gather(const ckpt_text_encoder *encoder, texts *t, const uint32_t *ids, size_t n, bool skip_special,
                          ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  bool is_byte_level = tokenizer->n_decoder != 0 && tokenizer->decoder[0].kind == CKPT_DECODE_BYTE_LEVEL;
  for (size_t i = 0; i < n; i++) {
    if (ids[i] >= tokenizer->n_tokens || tokenizer->tokens[ids[i]].text == NULL)
      return ckpt_fail(err, CKPT_EINVAL, tokenizer->path, NULL, "id %u is no token (there are %u)", ids[i],
                       tokenizer->n_tokens);
    const uint32_t added = tokenizer->tokens[ids[i]].added;
    if (skip_special && added != CKPT_TOKEN_NONE && tokenizer->added[added].is_special) continue;
    if (tokenizer->n_decoder == 0 && t->n != 0) CKPT_TRY(add(t, " ", 1, err)); /* as `tokenizers` joins them */
    CKPT_TRY(add_token(encoder, t, ids[i], is_byte_level, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_text_decode(const ckpt_text_encoder *encoder, char **out, size_t *n_bytes, const uint32_t *ids,
                             size_t n, bool skip_special, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  texts now = {0}, next = {0};
  ckpt_status status;
  *out = NULL;
  CKPT_TRY_GOTO(gather(encoder, &now, ids, n, skip_special, err));
  for (uint32_t i = 0; i < tokenizer->n_decoder; i++) {
    CKPT_TRY_GOTO(run_step(&tokenizer->decoder[i], &now, &next, err));
    texts_free(&now);
    now = next;
    next = (texts){0};
  }
  CKPT_TRY_GOTO(add(&now, "", 1, err));
  *n_bytes = now.n_bytes - 1;
  *out = (char *)now.bytes;
  now.bytes = NULL;
done:
  texts_free(&now);
  texts_free(&next);
  return status;
}
