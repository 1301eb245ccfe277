/* pattern.c - globs, regular expressions and renames over PCRE2.
 *
 * A glob is converted to a regular expression by PCRE2, so that there is one matcher, and one place that bounds it:
 * patterns come from command lines and receipts, names from files, and either may be made to backtrack for ever.
 *
 * A budget is counted down by callouts, which PCRE2 makes before every item of a pattern that it tries; an item may
 * scan the rest of the name, so it costs more on a long one. Starting a match and compiling have their price too. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "libckpt/base/pattern.h"

#include <inttypes.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

enum { MAX_STEPS = 1000000, MAX_HEAP_KIB = 8192, MAX_PATTERN_BYTES = 4096, MAX_NAME_BYTES = 4096 };

/* Prices in steps, one of which is about 10 ns: of compiling and each byte of code, of starting a match. Bytes of a
 * name that cost a step more: to see that they are UTF-8, and where an item scans them. */
enum { COMPILE_STEPS = 20000, CODE_STEPS = 16, MATCH_STEPS = 16, CHECKED_BYTES = 8, SCANNED_BYTES = 64 };

struct ckpt_pattern {
  char *text; /* as the user wrote it, for messages */
  pcre2_code *code;
  pcre2_match_data *found;
  pcre2_match_context *limits;
  uint64_t n_matched;
  uint64_t *n_left, n_own; /* steps of the budget; it is n_own where no other was given */
  uint64_t item_steps;     /* what one item costs on the name that is being matched */
};

struct ckpt_renaming {
  ckpt_pattern *pattern;
  char *replacement; /* still escaped */
  bool every;
};

/* A mistake at a byte of text, in PCRE2's words. */
static ckpt_status fail_pattern(const char *text, int code, size_t at, ckpt_error *err) {
  if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  PCRE2_UCHAR words[160];
  if (pcre2_get_error_message(code, words, sizeof words) < 0) memcpy(words, "not valid", sizeof "not valid");
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "pattern '%s': %s (at byte %zu)", text, (const char *)words, at);
}

static bool take_steps(ckpt_pattern *pattern, uint64_t n) {
  bool is_enough = *pattern->n_left >= n;
  *pattern->n_left -= is_enough ? n : *pattern->n_left;
  return is_enough;
}

static ckpt_status fail_budget(const ckpt_pattern *pattern, const char *name, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ELIMIT, NULL, name,
                   "pattern '%s': the patterns take more than %" PRIu64 " steps together (give fewer or simpler ones)",
                   pattern->text, CKPT_PATTERN_STEPS);
}

static int count_item(pcre2_callout_block *block, void *arg) {
  ckpt_pattern *pattern = arg;
  (void)block;
  return take_steps(pattern, pattern->item_steps) ? 0 : PCRE2_ERROR_CALLOUT;
}

static ckpt_status compile(ckpt_pattern *pattern, const char *expression, size_t n, size_t skipped, ckpt_error *err) {
  int code;
  PCRE2_SIZE at;
  size_t n_code = 0;
  pattern->code =
      pcre2_compile((PCRE2_SPTR)expression, n,
                    PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY | PCRE2_AUTO_CALLOUT, &code, &at, NULL);
  if (pattern->code == NULL) return fail_pattern(pattern->text, code, skipped + at, err);
  (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_SIZE, &n_code);
  if (!take_steps(pattern, COMPILE_STEPS + n_code * CODE_STEPS)) return fail_budget(pattern, NULL, err);
  pattern->found = pcre2_match_data_create_from_pattern(pattern->code, NULL);
  pattern->limits = pcre2_match_context_create(NULL);
  if (pattern->found == NULL || pattern->limits == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  pcre2_set_match_limit(pattern->limits, MAX_STEPS);
  pcre2_set_heap_limit(pattern->limits, MAX_HEAP_KIB);
  pcre2_set_callout(pattern->limits, count_item, pattern);
  return CKPT_OK;
}

static ckpt_status compile_glob(ckpt_pattern *pattern, ckpt_error *err) {
  PCRE2_UCHAR *expression = NULL;
  PCRE2_SIZE n = 0;
  int code = pcre2_pattern_convert((PCRE2_SPTR)pattern->text, strlen(pattern->text),
                                   PCRE2_CONVERT_UTF | PCRE2_CONVERT_GLOB_NO_WILD_SEPARATOR, &expression, &n, NULL);
  if (code != 0) return fail_pattern(pattern->text, code, n, err);
  ckpt_status status = compile(pattern, (const char *)expression, n, 0, err);
  pcre2_converted_pattern_free(expression);
  return status;
}

/* A pattern that has its text but no code yet. */
static ckpt_status pattern_alloc(ckpt_pattern **out, const char *text, uint64_t *n_steps, ckpt_error *err) {
  if (strlen(text) > MAX_PATTERN_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a pattern of %zu bytes (at most %d)", strlen(text),
                     MAX_PATTERN_BYTES);
  ckpt_pattern *pattern = calloc(1, sizeof *pattern);
  CKPT_TRY_ALLOC(pattern, err);
  pattern->n_own = CKPT_PATTERN_STEPS;
  pattern->n_left = n_steps != NULL ? n_steps : &pattern->n_own;
  pattern->text = strdup(text);
  if (pattern->text == NULL) {
    free(pattern);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  *out = pattern;
  return CKPT_OK;
}

bool ckpt_pattern_is_word(const char *text) {
  return strncmp(text, "re:", 3) != 0 && strncmp(text, "s/", 2) != 0 && strpbrk(text, "*?[") == NULL;
}

ckpt_status ckpt_pattern_new_search(ckpt_pattern **out, const char *expression, const char *text, size_t at,
                                    uint64_t *n_steps, ckpt_error *err) {
  ckpt_pattern *pattern = NULL;
  CKPT_TRY(pattern_alloc(&pattern, text, n_steps, err));
  ckpt_status status = compile(pattern, expression, strlen(expression), at, err);
  if (status != CKPT_OK)
    ckpt_pattern_free(pattern);
  else
    *out = pattern;
  return status;
}

ckpt_status ckpt_pattern_new(ckpt_pattern **out, const char *text, uint64_t *n_steps, ckpt_error *err) {
  ckpt_pattern *pattern = NULL;
  if (text[0] == '\0') return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "an empty pattern ('*' matches every name)");
  if (strncmp(text, "re:", 3) == 0) return ckpt_pattern_new_search(out, text + 3, text, 3, n_steps, err);
  CKPT_TRY(pattern_alloc(&pattern, text, n_steps, err));
  ckpt_status status = compile_glob(pattern, err);
  if (status != CKPT_OK)
    ckpt_pattern_free(pattern);
  else
    *out = pattern;
  return status;
}

void ckpt_pattern_free(ckpt_pattern *pattern) {
  if (pattern == NULL) return;
  pcre2_match_context_free(pattern->limits);
  pcre2_match_data_free(pattern->found);
  pcre2_code_free(pattern->code);
  free(pattern->text);
  free(pattern);
}

/* Looks for the pattern from byte `start` of name on; where it matches is in pattern->found. Later searches of a name
 * come with a start: its first one has seen that it is UTF-8, and seeing it at every match would be quadratic. */
static ckpt_status find(ckpt_pattern *pattern, const char *name, size_t n_name, size_t start, bool *matched,
                        ckpt_error *err) {
  pattern->item_steps = 1 + n_name / SCANNED_BYTES;
  if (!take_steps(pattern, MATCH_STEPS + (start == 0 ? n_name / CHECKED_BYTES : 0)))
    return fail_budget(pattern, name, err);
  int code = pcre2_match(pattern->code, (PCRE2_SPTR)name, n_name, start, start == 0 ? 0 : PCRE2_NO_UTF_CHECK,
                         pattern->found, pattern->limits);
  *matched = code >= 0;
  if (code >= 0 || code == PCRE2_ERROR_NOMATCH) return CKPT_OK;
  if (code == PCRE2_ERROR_NOMEMORY) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (code == PCRE2_ERROR_CALLOUT) return fail_budget(pattern, name, err);
  if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_DEPTHLIMIT)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, name,
                     "pattern '%s' takes more than %d steps (write it without nested repeats)", pattern->text,
                     MAX_STEPS);
  PCRE2_UCHAR words[160];
  if (pcre2_get_error_message(code, words, sizeof words) < 0) memcpy(words, "cannot match", sizeof "cannot match");
  return ckpt_fail(err, CKPT_EINVAL, NULL, name, "pattern '%s': %s", pattern->text, (const char *)words);
}

ckpt_status ckpt_pattern_match(ckpt_pattern *pattern, const char *name, bool *matched, ckpt_error *err) {
  CKPT_TRY(find(pattern, name, strlen(name), 0, matched, err));
  pattern->n_matched += *matched;
  return CKPT_OK;
}

uint64_t ckpt_pattern_n_matched(const ckpt_pattern *pattern) { return pattern->n_matched; }

/* The next slash that no backslash precedes, or NULL. */
static const char *unescaped_slash(const char *text) {
  for (; *text != '\0' && *text != '/'; text++)
    if (*text == '\\' && text[1] != '\0') text++;
  return *text == '/' ? text : NULL;
}

/* Refuses escapes that mean nothing, groups that do not exist, and Perl's $1. */
static ckpt_status check_replacement(const ckpt_renaming *rename, ckpt_error *err) {
  uint32_t n_groups = 0;
  pcre2_pattern_info(rename->pattern->code, PCRE2_INFO_CAPTURECOUNT, &n_groups);
  for (const char *c = rename->replacement; *c != '\0'; c++) {
    if (*c == '$' && c[1] >= '0' && c[1] <= '9')
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rename '%s': groups are written \\%c, not $%c",
                       rename->pattern->text, c[1], c[1]);
    if (*c != '\\') continue;
    c++;
    if (*c >= '0' && *c <= '9' && (uint32_t)(*c - '0') > n_groups)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rename '%s': there is no group \\%c (%u group%s)",
                       rename->pattern->text, *c, n_groups, ckpt_plural(n_groups));
    if (!(*c >= '0' && *c <= '9') && (*c == '\0' || strchr("\\/&", *c) == NULL))
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rename '%s': unknown escape \\%c in the replacement",
                       rename->pattern->text, *c);
  }
  return CKPT_OK;
}

static ckpt_status parse_rename(ckpt_renaming *rename, const char *text, uint64_t *n_steps, ckpt_error *err) {
  const char *middle = strncmp(text, "s/", 2) == 0 ? unescaped_slash(text + 2) : NULL;
  const char *end = middle == NULL ? NULL : unescaped_slash(middle + 1);
  if (end == NULL || middle == text + 2 || (strcmp(end, "/") != 0 && strcmp(end, "/g") != 0))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rename '%s': expected s/expression/replacement/ or .../g", text);
  rename->every = end[1] == 'g';
  rename->replacement = strndup(middle + 1, (size_t)(end - middle - 1));
  CKPT_TRY_ALLOC(rename->replacement, err);
  CKPT_TRY(pattern_alloc(&rename->pattern, text, n_steps, err));
  CKPT_TRY(compile(rename->pattern, text + 2, (size_t)(middle - text - 2), 2, err));
  return check_replacement(rename, err);
}

ckpt_status ckpt_renaming_new(ckpt_renaming **out, const char *text, uint64_t *n_steps, ckpt_error *err) {
  ckpt_renaming *rename = calloc(1, sizeof *rename);
  CKPT_TRY_ALLOC(rename, err);
  ckpt_status status = parse_rename(rename, text, n_steps, err);
  if (status != CKPT_OK)
    ckpt_renaming_free(rename);
  else
    *out = rename;
  return status;
}

void ckpt_renaming_free(ckpt_renaming *rename) {
  if (rename == NULL) return;
  ckpt_pattern_free(rename->pattern);
  free(rename->replacement);
  free(rename);
}

/* The new name while it grows; n > MAX_NAME_BYTES once it no longer fits. */
typedef struct name_buffer {
  char bytes[MAX_NAME_BYTES];
  size_t n;
} name_buffer;

static void append(name_buffer *to, const char *bytes, size_t n) {
  if (to->n > MAX_NAME_BYTES || n > MAX_NAME_BYTES - to->n) {
    to->n = MAX_NAME_BYTES + 1;
    return;
  }
  memcpy(to->bytes + to->n, bytes, n);
  to->n += n;
}

static void append_replacement(name_buffer *to, const ckpt_renaming *rename, const char *name) {
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(rename->pattern->found);
  uint32_t n_ends = pcre2_get_ovector_count(rename->pattern->found);
  for (const char *c = rename->replacement; *c != '\0'; c++) {
    uint32_t group = UINT32_MAX;
    if (*c == '&') group = 0;
    if (*c == '\\' && *++c >= '0' && *c <= '9') group = (uint32_t)(*c - '0');
    if (group == UINT32_MAX)
      append(to, c, 1);
    else if (group < n_ends && ends[2 * group] != PCRE2_UNSET)
      append(to, name + ends[2 * group], ends[2 * group + 1] - ends[2 * group]);
  }
}

/* Bytes of the UTF-8 character at name[at], which is not the end. */
static size_t character(const char *name, size_t at) {
  size_t n = 1;
  while (((unsigned char)name[at + n] & 0xC0) == 0x80) n++;
  return n;
}

static ckpt_status substitute(ckpt_renaming *rename, const char *name, name_buffer *to, bool *matched,
                              ckpt_error *err) {
  const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(rename->pattern->found);
  size_t n_name = strlen(name), at = 0, last_end = SIZE_MAX;
  bool found;
  *matched = false;
  do {
    CKPT_TRY(find(rename->pattern, name, n_name, at, &found, err));
    if (!found || ends[0] < at || ends[1] < ends[0]) break;
    *matched = true;
    bool is_empty = ends[0] == ends[1];
    append(to, name + at, ends[0] - at);
    if (!is_empty || ends[0] != last_end) append_replacement(to, rename, name); /* as sed: a* in "aa" is found once */
    at = last_end = ends[1];
    if (!is_empty) continue;
    if (at == n_name) break;
    size_t n = character(name, at); /* the next search would find the same nothing */
    append(to, name + at, n);
    at += n;
  } while (rename->every);
  append(to, name + at, n_name - at);
  return CKPT_OK;
}

ckpt_status ckpt_renaming_apply(ckpt_renaming *rename, const char *name, ckpt_arena *arena, const char **out,
                                ckpt_error *err) {
  name_buffer to = {.n = 0};
  bool matched;
  CKPT_TRY(substitute(rename, name, &to, &matched, err));
  *out = name;
  if (!matched) return CKPT_OK;
  rename->pattern->n_matched++;
  if (to.n == 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, name, "rename '%s' leaves an empty name", rename->pattern->text);
  if (to.n > MAX_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, name, "rename '%s' makes a name of more than %d bytes",
                     rename->pattern->text, MAX_NAME_BYTES);
  char *copy = ckpt_arena_text(arena, to.bytes, to.n);
  CKPT_TRY_ALLOC(copy, err);
  *out = copy;
  return CKPT_OK;
}

uint64_t ckpt_renaming_n_matched(const ckpt_renaming *rename) { return rename->pattern->n_matched; }
