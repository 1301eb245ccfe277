/* regex.c - patterns of tokenizer.json, which are Oniguruma's (Ruby's syntax), for PCRE2.
 *
 * The two differ where it shows: \s and \w are other sets, \h is a hexadecimal digit, ^ and $ are at every line, sets
 * may stand in sets, and {1,3}+ repeats. What can be said in PCRE2 is rewritten, the rest refused. Steps are bounded:
 * text and pattern are both a stranger's. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"

enum { MAX_PATTERN = 1 << 14, WORST_GROWTH = 160 };

#define SPACES "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* Letters, also in circles and squares, marks, digits, connectors. Oniguruma takes six numbers of Latin-1 for words,
 * but not within a set. */
#define WORDS                                                                                                     \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{" \
  "1f189}"
#define NUMBERS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* A pattern while it is rewritten. */
typedef struct rewrite {
  const char *from;
  char *to;
  bool is_in_set;
  const char *refused; /* what PCRE2 has not */
} rewrite;

static void append(rewrite *r, const char *text, size_t n) {
  memcpy(r->to, text, n);
  r->to += n;
}

/* One of the sets that \s and its kin are. */
static void append_set(rewrite *r, const char *set, bool is_negated) {
  if (r->is_in_set && is_negated) {
    r->refused = "the complement of a set in a set";
    return;
  }
  if (!r->is_in_set) append(r, is_negated ? "[^" : "[", is_negated ? 2 : 1);
  append(r, set, strlen(set));
  if (!r->is_in_set) append(r, "]", 1);
}

/* At a backslash. */
static void rewrite_escape(rewrite *r) {
  const char c = r->from[1];
  switch (c) {
    case 's': append_set(r, SPACES, false); break;
    case 'S': append_set(r, SPACES, true); break;
    case 'w': append_set(r, r->is_in_set ? WORDS : WORDS NUMBERS, false); break;
    case 'W': append_set(r, r->is_in_set ? WORDS : WORDS NUMBERS, true); break;
    case 'h': append_set(r, "0-9a-fA-F", false); break;
    case 'H': append_set(r, "0-9a-fA-F", true); break;
    case 'G':
    case 'K':
    case 'X':
    case 'g':
    case 'k':
    case 'y':
    case 'Y': r->refused = "a rare escape"; break;
    case '\0': r->refused = "a backslash at its end"; return;
    default: append(r, r->from, 2);
  }
  r->from += 2;
}

/* At an opening brace: {1,3}, then what follows; false where it is a literal. */
static bool is_counted(const char *at) {
  size_t n = 1 + strspn(at + 1, "0123456789,");
  return n > 1 && at[n] == '}' && at[n + 1] == '+';
}

static void rewrite_set(rewrite *r) {
  if (strncmp(r->from, "[:", 2) == 0) {
    const char *end = strstr(r->from, ":]");
    if (end != NULL) {
      append(r, r->from, (size_t)(end - r->from) + 2);
      r->from = end + 2;
      return;
    }
  }
  if (*r->from == '[') r->refused = "a set in a set";
  if (strncmp(r->from, "&&", 2) == 0) r->refused = "an intersection of sets";
  if (*r->from == ']') r->is_in_set = false;
  append(r, r->from++, 1);
}

static void rewrite_all(rewrite *r) {
  while (*r->from != '\0' && r->refused == NULL) {
    if (*r->from == '\\') {
      rewrite_escape(r);
    } else if (r->is_in_set) {
      rewrite_set(r);
    } else if (*r->from == '[') {
      append(r, r->from++, 1);
      if (*r->from == '^') append(r, r->from++, 1);
      if (*r->from == ']') append(r, "\\]", 2), r->from++;
      r->is_in_set = true;
    } else {
      if (*r->from == '{' && is_counted(r->from)) r->refused = "a counted repetition that is repeated ({1,3}+)";
      append(r, r->from++, 1);
    }
  }
}

static ckpt_status compile(ckpt_regex *out, const char *regex, const char *text, const char *path, ckpt_error *err) {
  int code;
  PCRE2_SIZE at;
  out->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
  if (out->code == NULL) {
    PCRE2_UCHAR words[160];
    if (pcre2_get_error_message(code, words, sizeof words) < 0) memcpy(words, "not valid", sizeof "not valid");
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "the regex '%.600s': %s", regex, (const char *)words);
  }
  out->has_jit = pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE) == 0;
  return CKPT_OK;
}

ckpt_status ckpt_regex_new(ckpt_regex *out, const char *regex, const char *literal, const char *path, ckpt_error *err) {
  *out = (ckpt_regex){.literal = literal};
  if (regex == NULL) return CKPT_OK;
  size_t n = strlen(regex);
  if (n > MAX_PATTERN)
    return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "a regex of %zu bytes (at most %d)", n, MAX_PATTERN);
  char *text = calloc(n + 1, WORST_GROWTH);
  CKPT_TRY_ALLOC(text, err);
  rewrite r = {.from = regex, .to = text};
  rewrite_all(&r);
  ckpt_status status =
      r.refused != NULL ? ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "the regex '%.600s' has %s", regex, r.refused)
                        : compile(out, regex, text, path, err);
  free(text);
  return status;
}

void ckpt_regex_free(ckpt_regex *regex) { pcre2_code_free(regex->code); }

static ckpt_status fail(const ckpt_regex *regex, int code, ckpt_error *err) {
  (void)regex;
  if (code == PCRE2_ERROR_NOMEMORY) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_DEPTHLIMIT ||
      code == PCRE2_ERROR_JIT_STACKLIMIT)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a regex of the tokenizer takes too many steps on this text");
  return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a regex of the tokenizer cannot be matched (code %d)", code);
}

ckpt_status ckpt_regex_find(const ckpt_regex *regex, ckpt_encode_room *room, const uint8_t *bytes, size_t n, size_t at,
                            bool *found, size_t *begin, size_t *end, ckpt_error *err) {
  if (regex->code == NULL) {
    const size_t n_literal = strlen(regex->literal);
    const uint8_t *hit = n_literal == 0 ? NULL : memmem(bytes + at, n - at, regex->literal, n_literal);
    *found = hit != NULL;
    if (*found) *end = (*begin = (size_t)(hit - bytes)) + n_literal;
    return CKPT_OK;
  }
  int code = regex->has_jit ? pcre2_jit_match(regex->code, bytes, n, at, PCRE2_NO_UTF_CHECK, room->found, room->limits)
                            : pcre2_match(regex->code, bytes, n, at, PCRE2_NO_UTF_CHECK, room->found, room->limits);
  *found = code >= 0;
  if (code < 0) return code == PCRE2_ERROR_NOMATCH ? CKPT_OK : fail(regex, code, err);
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(room->found);
  *begin = ends[0];
  *end = ends[1] < ends[0] ? ends[0] : ends[1];
  return CKPT_OK;
}
