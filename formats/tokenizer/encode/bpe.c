/* bpe.c - byte-pair encoding of one piece: the pair with the lowest rank becomes one symbol, until no pair has a rank.
 *
 * Symbols are a linked list in an array. Short pieces look for the lowest rank anew each time; long ones keep pairs in
 * a heap, in which outdated ones are recognised when they come up, so that any text takes O(n log n). */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

enum { SHORT = 24 };

static inline uint64_t mix(uint64_t x) {
  x *= UINT64_C(0x9E3779B97F4A7C15);
  return x ^ x >> 32;
}

static inline const ckpt_merge_slot *merge_of(const ckpt_text_encoder *encoder, uint32_t left, uint32_t right) {
  const uint64_t pair = (uint64_t)left << 32 | right;
  for (size_t at = mix(pair) & encoder->merge_mask;; at = (at + 1) & encoder->merge_mask) {
    const ckpt_merge_slot *slot = &encoder->merges[at];
    if (slot->pair == UINT64_MAX) return NULL; /* also what two symbols that are no tokens would look for */
    if (slot->pair == pair) return slot;
  }
}

/* ---- symbols of a piece ---------------------------------------------------------------------------------------- */

static ckpt_status push(ckpt_encode_room *room, uint32_t id, size_t begin, size_t n_bytes, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&room->symbols, room->n_symbols, &room->symbol_capacity, sizeof *room->symbols, err));
  const int32_t at = (int32_t)room->n_symbols++;
  room->symbols[at] = (ckpt_symbol){id, (uint32_t)begin, (uint32_t)n_bytes, at - 1, at + 1};
  return CKPT_OK;
}

/* The bytes of a character that is no token: their tokens, or the unknown token, which takes in its neighbours. Without
 * one it is left out, as `tokenizers` does: its neighbours may merge. */
static ckpt_status push_unknown(const ckpt_text_encoder *encoder, ckpt_encode_room *room, const uint8_t *text,
                                size_t at, size_t n, bool *is_unknown, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  bool has_bytes = tokenizer->has_byte_fallback;
  for (size_t i = at; i < at + n; i++) has_bytes = has_bytes && encoder->bytes[text[i]] != CKPT_TOKEN_NONE;
  if (has_bytes) {
    for (size_t i = at; i < at + n; i++) CKPT_TRY(push(room, encoder->bytes[text[i]], i, 1, err));
    *is_unknown = false;
    return CKPT_OK;
  }
  if (tokenizer->unknown == CKPT_TOKEN_NONE) return CKPT_OK;
  if (*is_unknown && tokenizer->fuses_unknown) {
    room->symbols[room->n_symbols - 1].n_bytes += (uint32_t)n;
    return CKPT_OK;
  }
  *is_unknown = true;
  return push(room, tokenizer->unknown, at, n, err);
}

static ckpt_status begin_symbols(const ckpt_text_encoder *encoder, ckpt_encode_room *room, const ckpt_run *run,
                                 ckpt_error *err) {
  room->n_symbols = 0;
  bool is_unknown = false;
  const bool is_byte = encoder->tokenizer->kind == CKPT_TOKENIZER_BYTE_BPE;
  for (size_t at = 0, n = 1; at < run->n; at += n) {
    uint32_t id;
    if (is_byte) {
      id = encoder->bytes[run->bytes[at]];
    } else {
      (void)ckpt_utf8_at(run->bytes + at, &n);
      id = ckpt_spellings_find(&encoder->words, (const char *)run->bytes + at, n);
    }
    if (id == CKPT_TOKEN_NONE) {
      CKPT_TRY(push_unknown(encoder, room, run->bytes, at, n, &is_unknown, err));
    } else {
      is_unknown = false;
      CKPT_TRY(push(room, id, at, n, err));
    }
  }
  if (room->n_symbols != 0) room->symbols[room->n_symbols - 1].next = -1;
  return CKPT_OK;
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* Makes symbol `at` the result, and takes its neighbour out of the list. */
static void merge_at(ckpt_encode_room *room, uint32_t at, uint32_t result) {
  ckpt_symbol *left = &room->symbols[at], *right = &room->symbols[left->next];
  left->id = result;
  left->n_bytes = right->begin + right->n_bytes - left->begin;
  left->next = right->next;
  right->n_bytes = 0;
  if (left->next >= 0) room->symbols[left->next].previous = (int32_t)at;
}

static const ckpt_merge_slot *merge_behind(const ckpt_text_encoder *encoder, const ckpt_encode_room *room, int32_t at) {
  if (at < 0) return NULL;
  const ckpt_symbol *symbol = &room->symbols[at];
  return symbol->next < 0 ? NULL : merge_of(encoder, symbol->id, room->symbols[symbol->next].id);
}

static void merge_short(const ckpt_text_encoder *encoder, ckpt_encode_room *room) {
  const ckpt_merge_slot *with[SHORT];
  for (uint32_t i = 0; i < room->n_symbols; i++) with[i] = merge_behind(encoder, room, (int32_t)i);
  for (;;) {
    const ckpt_merge_slot *best = NULL;
    int32_t at = -1;
    for (int32_t i = 0; i >= 0; i = room->symbols[i].next)
      if (with[i] != NULL && (best == NULL || with[i]->rank < best->rank)) best = with[i], at = i;
    if (best == NULL) return;
    merge_at(room, (uint32_t)at, best->result);
    with[at] = merge_behind(encoder, room, at);
    const int32_t before = room->symbols[at].previous;
    if (before >= 0) with[before] = merge_behind(encoder, room, before);
  }
}

static inline bool goes_first(const ckpt_pending *a, const ckpt_pending *b) {
  return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static ckpt_status heap_push(const ckpt_text_encoder *encoder, ckpt_encode_room *room, int32_t at, ckpt_error *err) {
  const ckpt_merge_slot *slot = merge_behind(encoder, room, at);
  if (slot == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&room->heap, room->n_heap, &room->heap_capacity, sizeof *room->heap, err));
  const ckpt_pending item = {slot->rank, (uint32_t)at, slot->result};
  uint32_t i = room->n_heap++;
  for (; i != 0 && goes_first(&item, &room->heap[(i - 1) / 2]); i = (i - 1) / 2)
    room->heap[i] = room->heap[(i - 1) / 2];
  room->heap[i] = item;
  return CKPT_OK;
}

static ckpt_pending heap_pop(ckpt_encode_room *room) {
  const ckpt_pending top = room->heap[0], item = room->heap[--room->n_heap];
  uint32_t i = 0;
  for (uint32_t child; (child = 2 * i + 1) < room->n_heap; i = child) {
    if (child + 1 < room->n_heap && goes_first(&room->heap[child + 1], &room->heap[child])) child++;
    if (!goes_first(&room->heap[child], &item)) break;
    room->heap[i] = room->heap[child];
  }
  room->heap[i] = item;
  return top;
}

static ckpt_status merge_long(const ckpt_text_encoder *encoder, ckpt_encode_room *room, ckpt_error *err) {
  room->n_heap = 0;
  for (uint32_t i = 0; i < room->n_symbols; i++) CKPT_TRY(heap_push(encoder, room, (int32_t)i, err));
  while (room->n_heap != 0) {
    const ckpt_pending top = heap_pop(room);
    if (room->symbols[top.at].n_bytes == 0) continue;
    const ckpt_merge_slot *now = merge_behind(encoder, room, (int32_t)top.at);
    if (now == NULL || now->result != top.result || now->rank != top.rank) continue; /* outdated */
    merge_at(room, top.at, top.result);
    CKPT_TRY(heap_push(encoder, room, (int32_t)top.at, err));
    CKPT_TRY(heap_push(encoder, room, room->symbols[top.at].previous, err));
  }
  return CKPT_OK;
}

/* ---- one piece -----------------------------------------------------------------------------------------------------
 */

static ckpt_status put(ckpt_encoding *encoding, const ckpt_run *run, uint32_t id, size_t at, size_t n,
                       ckpt_error *err) {
  return ckpt_encoding_put(encoding, id, ckpt_run_begin(run, at), ckpt_run_end(run, at + n - 1), err);
}

static ckpt_word *word_of(ckpt_encode_room *room, const ckpt_run *run) {
  uint64_t hash = run->n;
  for (size_t i = 0; i < run->n; i++) hash = (hash ^ run->bytes[i]) * UINT64_C(0x100000001b3);
  return &room->words[mix(hash) >> 16 & (CKPT_WORDS - 1)];
}

static ckpt_status put_word(ckpt_encoding *encoding, const ckpt_run *run, const ckpt_word *word, ckpt_error *err) {
  for (uint32_t i = 0, at = 0; i < word->n_ids; at += word->lengths[i++])
    CKPT_TRY(put(encoding, run, word->ids[i], at, word->lengths[i], err));
  return CKPT_OK;
}

/* Puts the symbols, and keeps them as a word where it has room for them and no byte is left out. */
static ckpt_status put_symbols(ckpt_encoding *encoding, const ckpt_run *run, ckpt_word *word, ckpt_error *err) {
  const ckpt_encode_room *room = encoding->room;
  uint32_t n = 0;
  size_t at = 0;
  if (word != NULL) word->n_bytes = 0;
  for (int32_t i = 0; i >= 0; i = room->symbols[i].next, n++) {
    const ckpt_symbol *symbol = &room->symbols[i];
    if (word != NULL && n < CKPT_WORD_IDS) {
      word->ids[n] = symbol->id;
      word->lengths[n] = (uint8_t)symbol->n_bytes; /* of at most CKPT_WORD_BYTES */
    }
    CKPT_TRY(put(encoding, run, symbol->id, symbol->begin, symbol->n_bytes, err));
    if (symbol->begin == at) at += symbol->n_bytes;
  }
  if (word == NULL || n > CKPT_WORD_IDS || at != run->n) return CKPT_OK;
  word->n_bytes = (uint8_t)run->n;
  word->n_ids = (uint8_t)n;
  memcpy(word->bytes, run->bytes, run->n);
  return CKPT_OK;
}

static ckpt_status encode_word(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                               ckpt_error *err) {
  ckpt_encode_room *room = encoding->room;
  if (run->n > INT32_MAX / 2)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a word of %zu bytes (at most %d)", run->n, INT32_MAX / 2);
  ckpt_word *word = run->n <= CKPT_WORD_BYTES ? word_of(room, run) : NULL;
  if (word != NULL && word->n_bytes == run->n && memcmp(word->bytes, run->bytes, run->n) == 0)
    return put_word(encoding, run, word, err);
  if (encoder->tokenizer->ignores_merges) {
    uint32_t id = ckpt_spellings_find(&encoder->words, (const char *)run->bytes, run->n);
    if (id != CKPT_TOKEN_NONE) return put(encoding, run, id, 0, run->n, err);
  }
  CKPT_TRY(begin_symbols(encoder, room, run, err));
  if (room->n_symbols == 0) return CKPT_OK;
  if (room->n_symbols <= SHORT) {
    merge_short(encoder, room);
  } else {
    CKPT_TRY(merge_long(encoder, room, err));
  }
  return put_symbols(encoding, run, word, err);
}

ckpt_status ckpt_bpe_run(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                         ckpt_error *err) {
  if (!encoder->cuts_at_marks) return encode_word(encoder, encoding, run, err);
  bool is_behind_mark = true; /* a mark is cut off from what is none */
  size_t begin = 0;
  for (size_t at = 0; at < run->n;) {
    const bool is_mark = run->bytes[at] == 0xE2 && run->n - at >= 3 && memcmp(run->bytes + at, "\xE2\x96\x81", 3) == 0;
    if (is_mark && !is_behind_mark) {
      const ckpt_run word = ckpt_run_cut(run, begin, at);
      CKPT_TRY(encode_word(encoder, encoding, &word, err));
      begin = at;
    }
    is_behind_mark = is_mark;
    at += is_mark ? 3 : 1;
  }
  const ckpt_run word = ckpt_run_cut(run, begin, run->n);
  return encode_word(encoder, encoding, &word, err);
}
