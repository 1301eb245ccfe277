/* split.c - cuts a run into the pieces that BPE sees: the pre-tokenizer's steps, each on what the one before left. */
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

static ckpt_status push(ckpt_encode_room *room, size_t begin, size_t end, bool is_match, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&room->spans, room->n_spans, &room->span_capacity, sizeof *room->spans, err));
  room->spans[room->n_spans++] = (ckpt_span){begin, end, is_match};
  return CKPT_OK;
}

/* All of a run as matches and what lies between them. */
static ckpt_status find_spans(const ckpt_regex *regex, ckpt_encode_room *room, const ckpt_run *run, ckpt_error *err) {
  size_t at = 0, done = 0;
  while (at <= run->n) {
    bool found;
    size_t begin = 0, end = 0;
    CKPT_TRY(ckpt_regex_find(regex, room, run->bytes, run->n, at, &found, &begin, &end, err));
    if (!found) break;
    if (begin > done) CKPT_TRY(push(room, done, begin, false, err));
    if (end > begin) CKPT_TRY(push(room, begin, end, true, err));
    done = at = end;
    if (end > begin) continue;
    size_t n = 1; /* an empty match: the next search begins a character later */
    if (at < run->n) (void)ckpt_utf8_at(run->bytes + at, &n);
    at += n;
  }
  return done < run->n ? push(room, done, run->n, false, err) : CKPT_OK;
}

/* Joins what a behavior puts together among the spans from `base`. */
static void join(ckpt_encode_room *room, uint32_t base, ckpt_split_behavior behavior) {
  ckpt_span *spans = room->spans + base;
  uint32_t n = room->n_spans - base, kept = 0;
  bool last = false;
  if (behavior == CKPT_SPLIT_MERGED_WITH_NEXT) { /* from the end, so that matches take what follows them */
    uint32_t first = n;
    for (uint32_t i = n; i-- > 0;) {
      const ckpt_span span = spans[i];
      if (span.is_match && !last && first < n)
        spans[first].begin = span.begin;
      else
        spans[--first] = span;
      last = span.is_match;
    }
    memmove(spans, spans + first, (n - first) * sizeof *spans);
    room->n_spans = base + n - first;
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_span span = spans[i];
    bool joins = kept != 0 && (behavior == CKPT_SPLIT_CONTIGUOUS ? span.is_match == last : span.is_match && !last);
    if (behavior == CKPT_SPLIT_REMOVED && span.is_match) continue;
    if (joins && behavior != CKPT_SPLIT_REMOVED)
      spans[kept - 1].end = span.end;
    else
      spans[kept++] = span;
    last = span.is_match;
  }
  room->n_spans = base + kept;
}

static ckpt_status cut(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run, uint32_t step,
                       ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  if (run->n == 0) return CKPT_OK;
  if (step == tokenizer->n_splits) return ckpt_bpe_run(encoder, encoding, run, err);
  ckpt_encode_room *room = encoding->room;
  const ckpt_split *split = &tokenizer->splits[step];
  const uint32_t base = room->n_spans;
  CKPT_TRY(find_spans(&encoder->splits[step], room, run, err));
  if (split->is_inverted)
    for (uint32_t i = base; i < room->n_spans; i++) room->spans[i].is_match = !room->spans[i].is_match;
  if (split->behavior != CKPT_SPLIT_ISOLATED) join(room, base, split->behavior);
  const uint32_t end = room->n_spans;
  for (uint32_t i = base; i < end; i++) {
    const ckpt_run piece = ckpt_run_cut(run, room->spans[i].begin, room->spans[i].end);
    CKPT_TRY(cut(encoder, encoding, &piece, step + 1, err));
  }
  room->n_spans = base;
  return CKPT_OK;
}

/* With the space before it that the pre-tokenizer puts there, and spaces escaped. */
static ckpt_status prefix(const ckpt_tokenizer *tokenizer, ckpt_encode_room *room, const ckpt_run *run, ckpt_run *out,
                          ckpt_error *err) {
  static const char mark[] = "\xE2\x96\x81";
  const bool escapes = tokenizer->escapes_spaces;
  const char *space = escapes ? mark : " ";
  const size_t n_space = strlen(space);
  *out = *run;
  bool has_one = run->bytes[0] == ' ' || (escapes && run->n >= 3 && memcmp(run->bytes, mark, 3) == 0);
  bool wants_one = tokenizer->prefix == CKPT_PREFIX_ALWAYS ||
                   (tokenizer->prefix == CKPT_PREFIX_FIRST && ckpt_run_begin(run, 0) == 0);
  if (!escapes && (!wants_one || has_one)) return CKPT_OK;
  ckpt_mapped *to = &room->prefixed;
  to->n = 0;
  const uint64_t at = ckpt_run_begin(run, 0);
  if (wants_one && !has_one) CKPT_TRY(ckpt_mapped_put(to, space, n_space, at, at, err));
  for (size_t i = 0, from = 0; i <= run->n; i++) {
    if (i < run->n && !(escapes && run->bytes[i] == ' ')) continue;
    CKPT_TRY(ckpt_mapped_copy(to, run, from, i, err));
    if (i < run->n) CKPT_TRY(ckpt_mapped_put(to, mark, 3, ckpt_run_begin(run, i), ckpt_run_end(run, i), err));
    from = i + 1;
  }
  *out = ckpt_mapped_run(to);
  return CKPT_OK;
}

ckpt_status ckpt_split_run(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                           ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  ckpt_run prefixed = *run;
  if (run->n == 0) return CKPT_OK;
  if (tokenizer->prefix != CKPT_PREFIX_NEVER || tokenizer->escapes_spaces)
    CKPT_TRY(prefix(tokenizer, encoding->room, run, &prefixed, err));
  encoding->room->n_spans = 0;
  return cut(encoder, encoding, &prefixed, 0, err);
}
