/* values.c - see values.h. Formats come from the registry, dtypes from dtype.def: a new row is accepted at once. */
#include "tools/cli/values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/format/format.h"

/* ---- sizes ------------------------------------------------------------------------------------------------ */

static bool parse_unit(const char *text, uint64_t *unit) {
  static const struct {
    const char *name;
    uint64_t unit;
  } units[] = {{"", 1},
               {"K", UINT64_C(1) << 10},
               {"M", UINT64_C(1) << 20},
               {"G", UINT64_C(1) << 30},
               {"T", UINT64_C(1) << 40},
               {"KB", 1000},
               {"MB", 1000000},
               {"GB", 1000000000},
               {"TB", UINT64_C(1000000000000)}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcasecmp(text, units[i].name) == 0) {
      *unit = units[i].unit;
      return true;
    }
  return false;
}

bool ckpt_value_size(const char *text, uint64_t *n_bytes) {
  uint64_t whole = 0, fraction = 0, scale = 1, unit;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++)
    if (!ckpt_mul_u64(whole, 10, &whole) || !ckpt_add_u64(whole, (uint64_t)(*at - '0'), &whole)) return false;
  if (at == text) return false;
  if (*at == '.') {
    const char *first = ++at;
    for (; *at >= '0' && *at <= '9'; at++) {
      if (at - first == 6) return false; /* 10^6 * 2^40 still fits 64 bits */
      fraction = fraction * 10 + (uint64_t)(*at - '0');
      scale *= 10;
    }
    if (at == first) return false;
  }
  if (!parse_unit(at, &unit) || (scale > 1 && unit == 1)) return false;
  return ckpt_mul_u64(whole, unit, n_bytes) && ckpt_add_u64(*n_bytes, fraction * unit / scale, n_bytes) && *n_bytes > 0;
}

/* ---- words ------------------------------------------------------------------------------------------------ */

/* Whether word stands in a list with '|' between. */
static bool in_list(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; *at != '\0';) {
    size_t n_word = strcspn(at, "|");
    if (n_word == n && memcmp(at, word, n) == 0) return true;
    at += n_word + (at[n_word] == '|');
  }
  return false;
}

static const char *writable_formats(ckpt_arena *arena, bool only_ranks) {
  const char *list = "";
  for (size_t i = 0; ckpt_formats[i] != NULL && list != NULL; i++)
    if (ckpt_formats[i]->caps.can_write && (ckpt_formats[i]->caps.ranks || !only_ranks))
      list = ckpt_arena_printf(arena, "%s%s%s", list, *list ? "|" : "", ckpt_formats[i]->name);
  return list;
}

static const char *all_presets(ckpt_arena *arena) {
  const char *list = "";
  for (uint32_t i = 0; i < CKPT_N_PRESETS && list != NULL; i++)
    list = ckpt_arena_printf(arena, "%s%s%s", list, *list ? "|" : "", ckpt_preset_at(i)->name);
  return list;
}

/* Types of GGUF weights. */
static const char *all_types(ckpt_arena *arena) {
  const char *list = "";
  for (int i = 1; i < CKPT_N_DTYPES && list != NULL; i++)
    if (ckpt_quantize_type(ckpt_dtype_name((ckpt_dtype)i)) != CKPT_DTYPE_NONE)
      list = ckpt_arena_printf(arena, "%s%s%s", list, *list ? "|" : "", ckpt_dtype_name((ckpt_dtype)i));
  return list;
}

/* What casts give. */
static const char *all_dtypes(ckpt_arena *arena) {
  const char *list = "";
  for (int i = 1; i < CKPT_N_DTYPES && list != NULL; i++)
    if (ckpt_dtype_is_float((ckpt_dtype)i)) /* blocks are quantized to, and no others are cast to */
      list = ckpt_arena_printf(arena, "%s%s%s", list, *list ? "|" : "", ckpt_dtype_name((ckpt_dtype)i));
  return list;
}

const char *ckpt_value_choices(const ckpt_option *option, ckpt_arena *arena) {
  switch (option->kind) {
    case CKPT_OPTION_CHOICE: return option->metavar;
    case CKPT_OPTION_FORMAT: return writable_formats(arena, option->flags & CKPT_OPTION_RANKS);
    case CKPT_OPTION_DTYPE:
    case CKPT_OPTION_CAST: return all_dtypes(arena);
    case CKPT_OPTION_PRESET: return all_presets(arena);
    case CKPT_OPTION_TYPE: return all_types(arena);
    default: return NULL;
  }
}

unsigned ckpt_value_distance(const char *a, const char *b) {
  enum { MAX = 64 };
  size_t n = strnlen(a, MAX), m = strnlen(b, MAX);
  unsigned rows[3][MAX + 1]; /* the row two back, the last one, and the one being filled, in turn */
  for (size_t j = 0; j <= m; j++) rows[0][j] = (unsigned)j;
  for (size_t i = 1; i <= n; i++) {
    unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= m; j++) {
      unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);
      if (above[j] + 1 < best) best = above[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two_above[j - 2] + 1 < best)
        best = two_above[j - 2] + 1;
      row[j] = best;
    }
  }
  return rows[n % 3][m];
}

void ckpt_value_nearest(const char *typed, const char *name, const char **nearest) {
  size_t n = strlen(typed);
  bool begins = (n > 1 && strncmp(typed, name, n) == 0) || strcasecmp(typed, name) == 0;
  unsigned distance = begins ? 0 : ckpt_value_distance(typed, name);
  unsigned best = *nearest == NULL                   ? 2 + (unsigned)(n / 5)
                  : strncmp(typed, *nearest, n) == 0 ? 0
                                                     : ckpt_value_distance(typed, *nearest);
  if (distance < best) *nearest = name;
}

/* ---- values of options ------------------------------------------------------------------------------------- */

/* The one message of a bad value: accepted, then list, say what would be good. */
static ckpt_status bad_value(const ckpt_verb *verb, const ckpt_arg *arg, const char *accepted, const char *list,
                             ckpt_error *err) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: --%s '%s' is not %s%s", verb->name, arg->option->name, arg->text,
                   accepted, list);
}

/* The word of a list with '|' between that was probably meant; NULL if none is near. */
static const char *nearest_of(const char *list, const char *typed, ckpt_arena *arena) {
  const char *nearest = NULL;
  for (const char *at = list; *at != '\0';) {
    size_t n = strcspn(at, "|");
    const char *word = ckpt_arena_text(arena, at, n);
    if (word != NULL) ckpt_value_nearest(typed, word, &nearest);
    at += n + (at[n] == '|');
  }
  return nearest;
}

/* The same with the word that was probably meant, where there is one. */
static ckpt_status bad_word(const ckpt_verb *verb, const ckpt_arg *arg, const char *typed, const char *choices,
                            ckpt_arena *arena, ckpt_error *err) {
  const char *nearest = nearest_of(choices, typed, arena);
  if (nearest == NULL) return bad_value(verb, arg, "one of ", choices, err);
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: --%s '%s', did you mean '%s'? (one of %s)", verb->name,
                   arg->option->name, arg->text, nearest, choices);
}

static ckpt_status parse_word(const ckpt_verb *verb, ckpt_arg *arg, ckpt_arena *arena, ckpt_error *err) {
  const char *choices = ckpt_value_choices(arg->option, arena);
  CKPT_TRY_ALLOC(choices, err);
  if (in_list(choices, arg->text)) return CKPT_OK;
  return bad_word(verb, arg, arg->text, choices, arena, err);
}

static ckpt_status parse_dtype(const ckpt_verb *verb, ckpt_arg *arg, ckpt_arena *arena, ckpt_error *err) {
  const char *name = arg->text;
  const char *equals = arg->option->kind == CKPT_OPTION_CAST ? strrchr(arg->text, '=') : NULL;
  if (equals != NULL) {
    arg->pattern = ckpt_arena_text(arena, arg->text, (size_t)(equals - arg->text));
    CKPT_TRY_ALLOC(arg->pattern, err);
    name = equals + 1;
  }
  arg->dtype = ckpt_dtype_parse(name);
  if (equals == arg->text)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: --%s '%s' has no pattern before the '='", verb->name,
                     arg->option->name, arg->text);
  if (arg->dtype != CKPT_DTYPE_NONE && !ckpt_dtype_is_block(arg->dtype)) return CKPT_OK;
  const bool is_outtype = arg->option->kind == CKPT_OPTION_CAST && equals == NULL; /* of llama.cpp's converter */
  if (is_outtype && (arg->dtype == CKPT_Q8_0 || strcmp(name, "auto") == 0)) return CKPT_OK;
  if (arg->dtype != CKPT_DTYPE_NONE)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: --%s '%s' is a block type, which no cast gives (ckpt quantize)",
                     verb->name, arg->option->name, arg->text);
  const char *choices = all_dtypes(arena);
  CKPT_TRY_ALLOC(choices, err);
  return bad_word(verb, arg, name, choices, arena, err);
}

static ckpt_status parse_type(const ckpt_verb *verb, ckpt_arg *arg, ckpt_error *err) {
  arg->dtype = ckpt_quantize_type(arg->text);
  if (arg->dtype != CKPT_DTYPE_NONE) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: --%s '%s' is no type of GGUF weights (Q6_K, Q8_0, F16, ...)",
                   verb->name, arg->option->name, arg->text);
}

static ckpt_status parse_preset(const ckpt_verb *verb, ckpt_arg *arg, ckpt_arena *arena, ckpt_error *err) {
  arg->preset = ckpt_preset_find(arg->text);
  if (arg->preset != NULL) return CKPT_OK;
  const char *list = all_presets(arena);
  CKPT_TRY_ALLOC(list, err);
  return bad_word(verb, arg, arg->text, list, arena, err);
}

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

static bool parse_integer(const char *text, uint64_t max, uint64_t *value) {
  *value = 0;
  for (const char *at = text; *at != '\0'; at++) {
    if (*at < '0' || *at > '9') return false;
    *value = *value * 10 + (uint64_t)(*at - '0');
    if (*value > max) return false;
  }
  return *text != '\0';
}

/* Decimal only: strtod alone would take hexadecimal, nan, infinity and leading spaces too. */
static bool parse_number(const char *text, double *value) {
  char *end;
  if (*text == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0' || *text == '-') return false;
  *value = strtod(text, &end);
  return *end == '\0' && isfinite(*value);
}

ckpt_status ckpt_value_parse(const ckpt_verb *verb, ckpt_arg *arg, ckpt_arena *arena, ckpt_error *err) {
  if (arg->option->kind != CKPT_OPTION_FLAG && arg->text[0] == '\0')
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: --%s: its value is empty (--%s %s)", verb->name,
                     arg->option->name, arg->option->name, arg->option->metavar);
  switch (arg->option->kind) {
    case CKPT_OPTION_FLAG:
    case CKPT_OPTION_TEXT:
    case CKPT_OPTION_PATH:
    case CKPT_OPTION_PATTERN: return CKPT_OK;
    case CKPT_OPTION_CHOICE:
    case CKPT_OPTION_FORMAT: return parse_word(verb, arg, arena, err);
    case CKPT_OPTION_DTYPE:
    case CKPT_OPTION_CAST: return parse_dtype(verb, arg, arena, err);
    case CKPT_OPTION_TYPE: return parse_type(verb, arg, err);
    case CKPT_OPTION_PRESET: return parse_preset(verb, arg, arena, err);
    case CKPT_OPTION_SIZE:
      if (ckpt_value_size(arg->text, &arg->size)) return CKPT_OK;
      return bad_value(verb, arg, "a size of 1 byte to 16777215T",
                       " (4096 is bytes; 512M, 1.5G are 1024-based, 5GB is 1000-based)", err);
    case CKPT_OPTION_INTEGER:
      if (parse_integer(arg->text, CKPT_OPTION_INTEGER_MAX, &arg->size)) return CKPT_OK;
      return bad_value(verb, arg, "a whole number from 0 to ", STRING(CKPT_OPTION_INTEGER_MAX), err);
    case CKPT_OPTION_COUNT:
      if (parse_integer(arg->text, CKPT_OPTION_INTEGER_MAX, &arg->size) && arg->size != 0) return CKPT_OK;
      return bad_value(verb, arg, "a whole number from 1 to ", STRING(CKPT_OPTION_INTEGER_MAX), err);
    case CKPT_OPTION_LENGTH:
      if (parse_integer(arg->text, UINT32_MAX, &arg->size) && arg->size != 0) return CKPT_OK;
      return bad_value(verb, arg, "a whole number from 1 to 4294967295", "", err);
    case CKPT_OPTION_NUMBER:
      if (parse_number(arg->text, &arg->number)) return CKPT_OK;
      return bad_value(verb, arg, "a number from 0 to 1.8e308", " (0.5, 1e-3)", err);
  }
  return CKPT_EINTERNAL;
}
