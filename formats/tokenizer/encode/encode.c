/* encode.c - a text to ids: made valid, cut at added tokens, normalized, cut at those again, cut into pieces, merged.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

enum { MATCH_STEPS = 10000000, HEAP_KIB = 65536, STACK_BYTES = 8 << 20 };

/* ---- the encoding and its room --------------------------------------------------------------------------------- */

ckpt_status ckpt_encoding_put(ckpt_encoding *encoding, uint32_t id, uint64_t begin, uint64_t end, ckpt_error *err) {
  if (encoding->n == encoding->capacity) {
    size_t capacity = encoding->capacity == 0 ? 256 : encoding->capacity * 2;
    uint32_t *ids = reallocarray(encoding->ids, capacity, sizeof *ids);
    if (ids != NULL) encoding->ids = ids;
    uint64_t *begins = reallocarray(encoding->begin, capacity, sizeof *begins);
    if (begins != NULL) encoding->begin = begins;
    uint64_t *ends = reallocarray(encoding->end, capacity, sizeof *ends);
    if (ends != NULL) encoding->end = ends;
    if (ids == NULL || begins == NULL || ends == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    encoding->capacity = capacity;
  }
  encoding->ids[encoding->n] = id;
  encoding->begin[encoding->n] = begin;
  encoding->end[encoding->n++] = end;
  return CKPT_OK;
}

static ckpt_status room_new(ckpt_encode_room **out, ckpt_error *err) {
  ckpt_encode_room *room = *out = calloc(1, sizeof *room);
  CKPT_TRY_ALLOC(room, err);
  room->words = calloc(CKPT_WORDS, sizeof *room->words);
  room->found = pcre2_match_data_create(1, NULL);
  room->limits = pcre2_match_context_create(NULL);
  room->stack = pcre2_jit_stack_create(32 << 10, STACK_BYTES, NULL); /* NULL where there is no JIT */
  if (room->words == NULL || room->found == NULL || room->limits == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  pcre2_set_match_limit(room->limits, MATCH_STEPS);
  pcre2_set_heap_limit(room->limits, HEAP_KIB);
  if (room->stack != NULL) pcre2_jit_stack_assign(room->limits, NULL, room->stack);
  return CKPT_OK;
}

static void room_free(ckpt_encode_room *room) {
  if (room == NULL) return;
  pcre2_match_data_free(room->found);
  pcre2_match_context_free(room->limits);
  pcre2_jit_stack_free(room->stack);
  ckpt_mapped_free(&room->whole);
  ckpt_mapped_free(&room->normal[0]);
  ckpt_mapped_free(&room->normal[1]);
  ckpt_mapped_free(&room->prefixed);
  free(room->words);
  free(room->spans);
  free(room->symbols);
  free(room->heap);
  free(room);
}

ckpt_status ckpt_room_of(ckpt_encode_room **out, ckpt_encoding *encoding, const ckpt_text_encoder *encoder,
                         ckpt_error *err) {
  if (encoding->room == NULL) {
    ckpt_status status = room_new(&encoding->room, err);
    if (status != CKPT_OK) {
      room_free(encoding->room);
      encoding->room = NULL;
      return status;
    }
  }
  *out = encoding->room;
  if ((*out)->of != encoder->fingerprint) {
    memset((*out)->words, 0, CKPT_WORDS * sizeof *(*out)->words);
    (*out)->of = encoder->fingerprint;
  }
  return CKPT_OK;
}

void ckpt_encoding_free(ckpt_encoding *encoding) {
  free(encoding->ids);
  free(encoding->begin);
  free(encoding->end);
  room_free(encoding->room);
  *encoding = (ckpt_encoding){0};
}

/* ---- text that is no UTF-8 ------------------------------------------------------------------------------------- */

/* Bytes that begin a character and do not end it: as many as could have, so that each such part is one U+FFFD. */
static size_t broken_length(const uint8_t *at, size_t n) {
  const uint8_t lead = at[0];
  const size_t wanted = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 1;
  size_t i = 1;
  for (; i < wanted && i < n && (at[i] & 0xC0) == 0x80; i++) {
    const bool is_overlong = i == 1 && ((lead == 0xE0 && at[1] < 0xA0) || (lead == 0xF0 && at[1] < 0x90));
    const bool is_beyond = i == 1 && ((lead == 0xED && at[1] > 0x9F) || (lead == 0xF4 && at[1] > 0x8F));
    if (is_overlong || is_beyond) break;
  }
  return i;
}

static ckpt_status make_valid(ckpt_encode_room *room, const ckpt_run *run, ckpt_run *out, ckpt_error *err) {
  ckpt_mapped *to = &room->whole;
  to->n = 0;
  for (size_t at = 0; at < run->n;) {
    size_t n = ckpt_utf8_length(run->bytes + at, run->n - at);
    CKPT_TRY(ckpt_mapped_copy(to, run, at, at + n, err));
    at += n;
    if (at == run->n) break;
    n = broken_length(run->bytes + at, run->n - at);
    CKPT_TRY(ckpt_mapped_put(to, "\xEF\xBF\xBD", 3, at, at + n, err));
    at += n;
  }
  *out = ckpt_mapped_run(to);
  return CKPT_OK;
}

/* ---- cutting at added tokens ------------------------------------------------------------------------------------- */

typedef ckpt_status encode_gap(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                               unsigned flags, ckpt_error *err);

static ckpt_status cut_at_added(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_trie *trie,
                                const ckpt_run *run, unsigned flags, encode_gap *encode, ckpt_error *err) {
  size_t done = 0, from = 0;
  ckpt_added_match match;
  while (ckpt_added_next(encoder, trie, run, done, (flags & CKPT_TEXT_PARSE_SPECIAL) != 0, &from, &match)) {
    if (match.begin > done) {
      const ckpt_run gap = ckpt_run_cut(run, done, match.begin);
      CKPT_TRY(encode(encoder, encoding, &gap, flags, err));
    }
    if (match.end > match.begin)
      CKPT_TRY(ckpt_encoding_put(encoding, encoder->tokenizer->added[match.added].id, ckpt_run_begin(run, match.begin),
                                 ckpt_run_end(run, match.end - 1), err));
    done = match.end;
  }
  const ckpt_run gap = ckpt_run_cut(run, done, run->n);
  return gap.n == 0 ? CKPT_OK : encode(encoder, encoding, &gap, flags, err);
}

static ckpt_status encode_piece(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                                unsigned flags, ckpt_error *err) {
  (void)flags;
  return ckpt_split_run(encoder, encoding, run, err);
}

static ckpt_status encode_raw(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                              unsigned flags, ckpt_error *err) {
  ckpt_run normal;
  CKPT_TRY(ckpt_normalize_run(encoder, encoding->room, run, &normal, err));
  return cut_at_added(encoder, encoding, &encoder->normalized, &normal, flags, encode_piece, err);
}

static ckpt_status put_ends(ckpt_encoding *encoding, const uint32_t *ids, uint32_t n, uint64_t at, ckpt_error *err) {
  for (uint32_t i = 0; i < n; i++) CKPT_TRY(ckpt_encoding_put(encoding, ids[i], at, at, err));
  return CKPT_OK;
}

ckpt_status ckpt_text_encode(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const char *text,
                             size_t n_bytes, unsigned flags, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  const bool has_ends = (flags & CKPT_TEXT_SPECIAL) != 0;
  ckpt_encode_room *room;
  CKPT_TRY(ckpt_room_of(&room, encoding, encoder, err));
  encoding->n = 0;
  room->n_normal_left = CKPT_NORMAL_BYTES + (n_bytes > SIZE_MAX / 64 ? SIZE_MAX / 4 : n_bytes * CKPT_NORMAL_FACTOR);
  ckpt_run run = {.bytes = (const uint8_t *)text, .n = n_bytes};
  if (ckpt_utf8_length(text, n_bytes) != n_bytes) CKPT_TRY(make_valid(room, &run, &run, err));
  if (has_ends) CKPT_TRY(put_ends(encoding, tokenizer->before, tokenizer->n_before, 0, err));
  if (run.n != 0) CKPT_TRY(cut_at_added(encoder, encoding, &encoder->raw, &run, flags, encode_raw, err));
  return has_ends ? put_ends(encoding, tokenizer->after, tokenizer->n_after, n_bytes, err) : CKPT_OK;
}
