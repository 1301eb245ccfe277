/* added.c - added tokens in text: the leftmost, and of several the longest, by a trie; with their flags. */
#include <stdlib.h>
#include <utf8proc.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"

static size_t slot_of(const ckpt_trie *trie, uint64_t from) {
  size_t at = (size_t)(from * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (trie->capacity - 1);
  while (trie->edges[at].from != UINT64_MAX && trie->edges[at].from != from) at = (at + 1) & (trie->capacity - 1);
  return at;
}

static ckpt_status widen(ckpt_trie *trie, ckpt_error *err) {
  ckpt_trie wide = *trie;
  wide.capacity = trie->capacity == 0 ? 256 : trie->capacity * 2;
  wide.edges = reallocarray(NULL, wide.capacity, sizeof *wide.edges);
  CKPT_TRY_ALLOC(wide.edges, err);
  for (size_t i = 0; i < wide.capacity; i++) wide.edges[i].from = UINT64_MAX;
  for (size_t i = 0; i < trie->capacity; i++)
    if (trie->edges[i].from != UINT64_MAX) wide.edges[slot_of(&wide, trie->edges[i].from)] = trie->edges[i];
  free(trie->edges);
  *trie = wide;
  return CKPT_OK;
}

static ckpt_status new_node(ckpt_trie *trie, uint32_t *node, ckpt_error *err) {
  if (trie->n_nodes == trie->node_capacity) {
    uint32_t capacity = trie->node_capacity == 0 ? 256 : trie->node_capacity * 2;
    uint32_t *ends = reallocarray(trie->ends, capacity, sizeof *ends);
    CKPT_TRY_ALLOC(ends, err);
    trie->ends = ends;
    trie->node_capacity = capacity;
  }
  trie->ends[ *node = trie->n_nodes++] = CKPT_TOKEN_NONE;
  return CKPT_OK;
}

ckpt_status ckpt_trie_add(ckpt_trie *trie, const uint8_t *bytes, size_t n, uint32_t added, ckpt_error *err) {
  uint32_t node = 0;
  if (n == 0) return CKPT_OK;
  if (trie->n_nodes == 0) CKPT_TRY(new_node(trie, &node, err));
  node = 0;
  for (size_t i = 0; i < n; i++) {
    if (trie->n * 2 >= trie->capacity) CKPT_TRY(widen(trie, err));
    struct ckpt_edge *edge = &trie->edges[slot_of(trie, (uint64_t)node << 8 | bytes[i])];
    if (edge->from == UINT64_MAX) {
      uint32_t next = 0;
      CKPT_TRY(new_node(trie, &next, err));
      *edge = (struct ckpt_edge){(uint64_t)node << 8 | bytes[i], next};
      trie->n++;
    }
    node = edge->to;
  }
  trie->starts[bytes[0]] = true;
  trie->ends[node] = added; /* of two with one spelling the last */
  return CKPT_OK;
}

void ckpt_trie_free(ckpt_trie *trie) {
  free(trie->edges);
  free(trie->ends);
  *trie = (ckpt_trie){0};
}

/* The longest token that begins at a place: its end, 0 where none does. */
static size_t longest(const ckpt_trie *trie, const ckpt_run *run, size_t at, uint32_t *added) {
  size_t end = 0;
  uint32_t node = 0;
  for (size_t i = at; i < run->n; i++) {
    const struct ckpt_edge *edge = &trie->edges[slot_of(trie, (uint64_t)node << 8 | run->bytes[i])];
    if (edge->from == UINT64_MAX) break;
    node = edge->to;
    if (trie->ends[node] != CKPT_TOKEN_NONE) *added = trie->ends[node], end = i + 1;
  }
  return end;
}

/* The character that ends before a place. */
static uint32_t code_before(const ckpt_run *run, size_t at, size_t *begin) {
  size_t n;
  do at--;
  while (at > 0 && (run->bytes[at] & 0xC0) == 0x80);
  *begin = at;
  return ckpt_utf8_at(run->bytes + at, &n);
}

/* Circled and squared letters: alphabetic, though their category is that of symbols. */
static bool is_enclosed_letter(uint32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

/* \w, as Unicode's annex on regular expressions has it: alphabetic, a mark, a decimal digit, a connector, a joiner. */
static bool is_word(uint32_t code) {
  if (code == 0x200C || code == 0x200D || is_enclosed_letter(code)) return true;
  switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

static bool is_whole_word(const ckpt_run *run, size_t begin, size_t end) {
  size_t at;
  if (begin != 0 && is_word(code_before(run, begin, &at))) return false;
  return end == run->n || !is_word(ckpt_utf8_at(run->bytes + end, &at));
}

bool ckpt_added_next(const ckpt_text_encoder *encoder, const ckpt_trie *trie, const ckpt_run *run, size_t after,
                     bool parses_special, size_t *from, ckpt_added_match *out) {
  if (trie->n_nodes == 0) return false;
  for (size_t at = *from; at < run->n; at++) {
    if (!trie->starts[run->bytes[at]]) continue;
    uint32_t number = 0;
    size_t end = longest(trie, run, at, &number);
    if (end == 0) continue;
    const ckpt_added_token *added = &encoder->tokenizer->added[number];
    *out = (ckpt_added_match){at, end, number};
    if ((added->is_special && !parses_special) || (added->is_single_word && !is_whole_word(run, at, end))) {
      at = end - 1; /* what it covers is not looked at again */
      continue;
    }
    *from = end;
    while (added->strips_left && out->begin > after) {
      size_t begin;
      if (!ckpt_is_space(code_before(run, out->begin, &begin))) break;
      out->begin = begin < after ? after : begin;
    }
    while (added->strips_right && out->end < run->n) {
      size_t n;
      if (!ckpt_is_space(ckpt_utf8_at(run->bytes + out->end, &n))) break;
      out->end += n;
    }
    if (added->strips_left && out->begin < after) out->begin = after; /* spaces that the one before has taken */
    if (out->end < out->begin) out->end = out->begin;
    return true;
  }
  return false;
}
