/* normalize.c - the normalizer's steps. Unicode's forms are made segment by segment: a segment begins with a character
 * that no composition reaches across, so that what a form leaves alone keeps its bytes' own origins. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"

enum { MAX_SEGMENT = 4096 }; /* bytes; ordering marks takes the square of it */

/* Whether a form leaves a character alone that no mark follows. Ranges that text is full of: of others utf8proc knows.
 */
static bool is_inert(uint32_t code, ckpt_normalize_kind form) {
  if (code < 0x80 || form != CKPT_NORMALIZE_NFC) return code < 0x80;
  return code < 0x300 || (code >= 0x400 && code <= 0x482) || (code >= 0x48A && code <= 0x590) ||
         (code >= 0x2010 && code <= 0x205E) || (code >= 0x3001 && code <= 0x3029) ||
         (code >= 0x3041 && code <= 0x3096) || (code >= 0x30A1 && code <= 0x30FF) ||
         (code >= 0x3400 && code <= 0x9FFF) || (code >= 0xAC00 && code <= 0xD7A3);
}

/* Whether no form reaches across the place before this character: what it decomposes to begins with no mark, and is
 * composed with nothing before it. Of class 0 only marks and vowels and finals of Hangul are. */
static bool is_boundary(uint32_t code, ckpt_normalize_kind form) {
  if (code < 0x300) return true;
  if (form == CKPT_NORMALIZE_NFKC || form == CKPT_NORMALIZE_NFKD) {
    utf8proc_int32_t parts[32]; /* none has more than 18 */
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)code, parts, sizeof parts / sizeof *parts,
                                                 (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &last);
    if (n > 0) code = (uint32_t)parts[0];
  }
  if (code >= 0x1160 && code <= 0x11FF) return false;
  const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)code);
  return property->combining_class == 0 && property->category != UTF8PROC_CATEGORY_MN &&
         property->category != UTF8PROC_CATEGORY_MC;
}

static ckpt_status put_form(ckpt_mapped *to, const ckpt_run *run, size_t from, size_t end, ckpt_normalize_kind form,
                            ckpt_error *err) {
  static const int options[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  if (end - from > MAX_SEGMENT)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%zu bytes of combining marks in a row (at most %d)", end - from,
                     MAX_SEGMENT);
  utf8proc_uint8_t *made = NULL;
  utf8proc_ssize_t n = utf8proc_map(run->bytes + from, (utf8proc_ssize_t)(end - from), &made,
                                    (utf8proc_option_t)(options[form] | UTF8PROC_STABLE));
  if (n < 0) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "text cannot be normalized (%s)", utf8proc_errmsg(n));
  ckpt_status status;
  if ((size_t)n == end - from && memcmp(made, run->bytes + from, (size_t)n) == 0)
    status = ckpt_mapped_copy(to, run, from, end, err);
  else
    status = ckpt_mapped_put(to, made, (size_t)n, ckpt_run_begin(run, from), ckpt_run_end(run, end - 1), err);
  free(made);
  return status;
}

/* The first character that a form may change, or the end. */
static size_t first_live(const ckpt_run *run, size_t at, ckpt_normalize_kind form) {
  for (size_t n; at < run->n; at += n) {
    n = 1;
    if (run->bytes[at] < 0x80) continue;
    if (!is_inert(ckpt_utf8_at(run->bytes + at, &n), form)) break;
  }
  return at;
}

static ckpt_status apply_form(ckpt_mapped *to, const ckpt_run *run, ckpt_normalize_kind form, ckpt_error *err) {
  for (size_t at = 0; at < run->n;) {
    size_t live = first_live(run, at, form), n;
    size_t begin = live; /* of the segment: a character before a mark belongs to it */
    if (live < run->n && live > at && !is_boundary(ckpt_utf8_at(run->bytes + live, &n), form)) do
        begin--;
      while (begin > at && (run->bytes[begin] & 0xC0) == 0x80);
    CKPT_TRY(ckpt_mapped_copy(to, run, at, begin, err));
    if (live == run->n) break;
    size_t end = live;
    do {
      (void)ckpt_utf8_at(run->bytes + end, &n);
      end += n;
    } while (end < run->n && !is_boundary(ckpt_utf8_at(run->bytes + end, &n), form));
    CKPT_TRY(put_form(to, run, begin, end, form, err));
    at = end;
  }
  return CKPT_OK;
}

static ckpt_status apply_replace(ckpt_mapped *to, ckpt_encode_room *room, const ckpt_run *run, const ckpt_regex *regex,
                                 const char *with, ckpt_error *err) {
  size_t done = 0;
  for (size_t at = 0; at <= run->n;) {
    bool found;
    size_t begin = 0, end = 0, n = 1;
    CKPT_TRY(ckpt_regex_find(regex, room, run->bytes, run->n, at, &found, &begin, &end, err));
    if (!found) break;
    CKPT_TRY(ckpt_mapped_copy(to, run, done, begin, err));
    const uint64_t first = begin < run->n ? ckpt_run_begin(run, begin) : ckpt_run_end(run, run->n - 1);
    CKPT_TRY(ckpt_mapped_put(to, with, strlen(with), first, end > begin ? ckpt_run_end(run, end - 1) : first, err));
    done = at = end;
    if (end > begin) continue;
    if (at < run->n) (void)ckpt_utf8_at(run->bytes + at, &n);
    at += n;
  }
  return ckpt_mapped_copy(to, run, done, run->n, err);
}

static ckpt_run strip(const ckpt_run *run, const ckpt_normalize_step *step) {
  size_t begin = 0, end = run->n, n;
  while (step->left && begin < end && ckpt_is_space(ckpt_utf8_at(run->bytes + begin, &n))) begin += n;
  while (step->right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (run->bytes[last] & 0xC0) == 0x80) last--;
    if (!ckpt_is_space(ckpt_utf8_at(run->bytes + last, &n))) break;
    end = last;
  }
  return ckpt_run_cut(run, begin, end);
}

ckpt_status ckpt_normalize_run(const ckpt_text_encoder *encoder, ckpt_encode_room *room, const ckpt_run *run,
                               ckpt_run *out, ckpt_error *err) {
  const ckpt_tokenizer *tokenizer = encoder->tokenizer;
  *out = *run;
  for (uint32_t i = 0, turn = 0; i < tokenizer->n_normalizer && out->n != 0; i++) {
    const ckpt_normalize_step *step = &tokenizer->normalizer[i];
    const uint64_t at = ckpt_run_begin(out, 0);
    ckpt_mapped *to = &room->normal[turn];
    to->n = 0;
    to->limit = room->n_normal_left;
    switch (step->kind) {
      case CKPT_NORMALIZE_STRIP: *out = strip(out, step); continue;
      case CKPT_NORMALIZE_NFC:
      case CKPT_NORMALIZE_NFD:
      case CKPT_NORMALIZE_NFKC:
      case CKPT_NORMALIZE_NFKD:
        if (first_live(out, 0, step->kind) == out->n) continue;
        CKPT_TRY(apply_form(to, out, step->kind, err));
        break;
      case CKPT_NORMALIZE_PREPEND:
        CKPT_TRY(ckpt_mapped_put(to, step->to, strlen(step->to), at, at, err));
        CKPT_TRY(ckpt_mapped_copy(to, out, 0, out->n, err));
        break;
      case CKPT_NORMALIZE_REPLACE: CKPT_TRY(apply_replace(to, room, out, &encoder->replaces[i], step->to, err)); break;
    }
    *out = ckpt_mapped_run(to);
    turn = !turn;
  }
  if (out->bytes != run->bytes) room->n_normal_left -= out->n < room->n_normal_left ? out->n : room->n_normal_left - 1;
  return CKPT_OK;
}
