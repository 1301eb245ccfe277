/* arguments.c - see arguments.h. */
#include "trainer/loop/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"
#include "trainer/loop/yaml.h"

#define ROW(name_, kind_, value_, meaning_, offset_) {#name_, kind_, value_, meaning_, offset_},
static const ckpt_argument table[] = {
#define ARG_BOOL(name, value, meaning) ROW(name, CKPT_ARGUMENT_BOOL, #value, meaning, offsetof(ckpt_arguments, name))
#define ARG_INT(name, value, meaning) ROW(name, CKPT_ARGUMENT_INT, #value, meaning, offsetof(ckpt_arguments, name))
#define ARG_FLOAT(name, value, meaning) ROW(name, CKPT_ARGUMENT_FLOAT, #value, meaning, offsetof(ckpt_arguments, name))
#define ARG_TEXT(name, value, meaning) ROW(name, CKPT_ARGUMENT_TEXT, #value, meaning, offsetof(ckpt_arguments, name))
#define ARG_SAID(name, value, why) ROW(name, CKPT_ARGUMENT_SAID, value, why, 0)
#define ARG_REFUSED(name, value, why) ROW(name, CKPT_ARGUMENT_REFUSED, value, why, 0)
#define ARG_ALIAS(name, of) ROW(name, CKPT_ARGUMENT_ALIAS, #of, "", 0)
#include "trainer/loop/arguments.def"
};
enum { N_ROWS = sizeof table / sizeof table[0] };

const ckpt_argument *ckpt_argument_table(size_t *n) {
  *n = N_ROWS;
  return table;
}

bool ckpt_argument_same_name(const char *a, const char *b) {
  for (; *a != '\0' || *b != '\0'; a++, b++)
    if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
  return true;
}

const ckpt_argument *ckpt_argument_find(const char *name) {
  for (size_t i = 0; i < N_ROWS; i++)
    if (ckpt_argument_same_name(table[i].name, name))
      return table[i].kind == CKPT_ARGUMENT_ALIAS ? ckpt_argument_find(table[i].value) : &table[i];
  return NULL;
}

/* Edits (of one character each) between two names, at most 63 characters of them. */
static int distance(const char *a, const char *b) {
  int row[64];
  const int n = (int)strnlen(b, 63);
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; a[i - 1] != '\0'; i++) {
    int corner = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      const char x = a[i - 1] == '-' ? '_' : a[i - 1], y = b[j - 1] == '-' ? '_' : b[j - 1];
      const int change = corner + (x != y), grow = row[j] + 1, shrink = row[j - 1] + 1;
      corner = row[j];
      row[j] = change < grow ? change : grow;
      if (shrink < row[j]) row[j] = shrink;
    }
  }
  return row[n];
}

const char *ckpt_argument_nearest(const char *name, const char *const *others) {
  const char *best = table[0].name;
  int least = distance(name, best);
  for (size_t i = 1; i < N_ROWS; i++) {
    const int d = distance(name, table[i].name);
    if (d < least) least = d, best = table[i].name;
  }
  for (; others != NULL && *others != NULL; others++) {
    const int d = distance(name, *others);
    if (d < least) least = d, best = *others;
  }
  return best;
}

void ckpt_arguments_init(ckpt_arguments *out, ckpt_arena *arena) {
  *out = (ckpt_arguments){
#define ARG_BOOL(name, value, meaning) .name = value,
#define ARG_INT(name, value, meaning) .name = value,
#define ARG_FLOAT(name, value, meaning) .name = value,
#define ARG_TEXT(name, value, meaning) .name = value,
#include "trainer/loop/arguments.def"
      .arena = arena};
}

/* ---- one value --------------------------------------------------------------------------------------------------- */

static ckpt_status refuse(const ckpt_argument *row, const json_t *value, const char *wanted, ckpt_error *err) {
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const ckpt_status status =
      ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s %.200s: %s", row->name, text == NULL ? "" : text, wanted);
  free(text);
  return status;
}

/* Whether the value is one of a row's defaults. */
static bool is_default(const ckpt_argument *row, const json_t *value) {
  const char *at = row->value;
  while (*at != '\0') {
    const size_t n = strcspn(at, " ");
    json_t *wanted = ckpt_config_json(at, n, JSON_DECODE_ANY, NULL);
    const bool is_equal =
        wanted != NULL && (json_equal(wanted, value) || (json_is_number(wanted) && json_is_number(value) &&
                                                         json_number_value(wanted) == json_number_value(value)));
    json_decref(wanted);
    if (is_equal) return true;
    at += n + (at[n] == ' ');
  }
  return false;
}

static ckpt_status say(ckpt_arguments *a, const ckpt_argument *row, const json_t *value, ckpt_error *err) {
  if (a->say == NULL) return CKPT_OK;
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const char *line = ckpt_arena_printf(a->arena, "%s %.100s: %s", row->name, text == NULL ? "" : text, row->meaning);
  free(text);
  CKPT_TRY_ALLOC(line, err);
  a->say(a->say_arg, line);
  return CKPT_OK;
}

static ckpt_status set_text(ckpt_arguments *a, const ckpt_argument *row, const json_t *value, ckpt_error *err) {
  const char **member = (const char **)((char *)a + row->offset);
  if (json_is_null(value)) {
    *member = NULL;
    return CKPT_OK;
  }
  char *text = json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
  CKPT_TRY_ALLOC(text, err);
  *member = ckpt_arena_copy(a->arena, text);
  free(text);
  CKPT_TRY_ALLOC(*member, err);
  return CKPT_OK;
}

static ckpt_status set_value(ckpt_arguments *a, const ckpt_argument *row, const json_t *value, ckpt_error *err) {
  char *member = (char *)a + row->offset;
  switch (row->kind) {
    case CKPT_ARGUMENT_BOOL: /* None stands for the default in transformers 5 */
      if (!json_is_boolean(value) && !json_is_null(value)) return refuse(row, value, "it has to be true or false", err);
      *(bool *)member = json_is_null(value) ? strcmp(row->value, "true") == 0 : json_is_true(value);
      return CKPT_OK;
    case CKPT_ARGUMENT_INT:
      if (json_is_integer(value))
        *(int64_t *)member = json_integer_value(value);
      else if (json_is_null(value) && strcmp(row->value, "INT64_MIN") == 0)
        *(int64_t *)member = CKPT_ARGUMENT_NONE;
      else
        return refuse(row, value, "it has to be a whole number", err);
      return CKPT_OK;
    case CKPT_ARGUMENT_FLOAT:
      if (json_is_number(value) && isfinite(json_number_value(value)))
        *(double *)member = json_number_value(value);
      else if (json_is_null(value) && strcmp(row->value, "NAN") == 0)
        *(double *)member = NAN;
      else
        return refuse(row, value, "it has to be a number", err);
      return CKPT_OK;
    case CKPT_ARGUMENT_TEXT: return set_text(a, row, value, err);
    case CKPT_ARGUMENT_SAID: return is_default(row, value) ? CKPT_OK : say(a, row, value, err);
    default: return is_default(row, value) ? CKPT_OK : refuse(row, value, row->meaning, err);
  }
}

static ckpt_status unknown(const char *name, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "there is no argument %s (did you mean %s?)", name,
                   ckpt_argument_nearest(name, NULL));
}

/* ---- flags ------------------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *words) {
  for (; *words != NULL; words++)
    if (strcasecmp(text, *words) == 0) return true;
  return false;
}

/* What a flag's text is as JSON: numbers, truth values, null and what looks like JSON; else a string. */
static json_t *value_of(const ckpt_argument *row, const char *text) {
  static const char *const yes[] = {"true", "yes", "y", "t", "on", NULL}, *const no[] = {"false", "no",  "n",
                                                                                         "f",     "off", NULL};
  const bool is_bool =
      row->kind == CKPT_ARGUMENT_BOOL || strstr(row->value, "false") != NULL || strstr(row->value, "true") != NULL;
  if (strcasecmp(text, "none") == 0 || strcmp(text, "null") == 0) return json_null();
  if (is_bool && (is_one_of(text, yes) || strcmp(text, "1") == 0)) return json_true();
  if (is_bool && (is_one_of(text, no) || strcmp(text, "0") == 0)) return json_false();
  if (row->kind == CKPT_ARGUMENT_TEXT) return json_string(text);
  char *end;
  errno = 0;
  const long long integer = strtoll(text, &end, 10);
  if (end != text && *end == '\0' && errno == 0) return json_integer(integer);
  const double number = ckpt_c_strtod(text, &end);
  if (end != text && *end == '\0' && isfinite(number)) return json_real(number);
  json_t *value = text[0] == '{' || text[0] == '[' ? ckpt_config_json(text, strlen(text), JSON_DECODE_ANY, NULL) : NULL;
  return value != NULL ? value : json_string(text);
}

bool ckpt_argument_is_same(const ckpt_argument *row, const char *a, const char *b) {
  json_t *x = value_of(row, a), *y = value_of(row, b);
  const bool is_same = x != NULL && y != NULL && json_equal(x, y);
  json_decref(x);
  json_decref(y);
  return is_same;
}

ckpt_status ckpt_argument_refuse_both(const char *name, const char *other, ckpt_error *err) {
  const char *what = ckpt_argument_same_name(name, other) ? "is given twice" : "is the same argument, and they differ";
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s (%s) %s", name, other, what);
}

ckpt_status ckpt_arguments_set(ckpt_arguments *a, const char *name, const char *text, ckpt_error *err) {
  const ckpt_argument *row = ckpt_argument_find(name);
  if (row == NULL) return unknown(name, err);
  json_t *value = value_of(row, text);
  CKPT_TRY_ALLOC(value, err);
  const ckpt_status status = set_value(a, row, value, err);
  json_decref(value);
  return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* What a file has given of each row of the table. */
typedef struct given {
  const char *names[N_ROWS];
  const json_t *values[N_ROWS];
} given;

/* Sets one; of two names for the same row, a null is as if it were not there, and others have to be the same. */
static ckpt_status set_given(ckpt_arguments *a, given *g, const char *name, const json_t *value, ckpt_error *err) {
  if (name[0] == '_') return CKPT_OK; /* what TrainingArguments keeps for itself: _n_gpu */
  const ckpt_argument *row = ckpt_argument_find(name);
  if (row == NULL) return unknown(name, err);
  const size_t i = (size_t)(row - table);
  const bool has_other = g->names[i] != NULL;
  if (has_other && ckpt_argument_same_name(name, g->names[i])) return ckpt_argument_refuse_both(name, g->names[i], err);
  if (has_other && (json_is_null(value) || json_equal(value, g->values[i]))) return CKPT_OK;
  if (has_other && !json_is_null(g->values[i])) return ckpt_argument_refuse_both(name, g->names[i], err);
  g->names[i] = name;
  g->values[i] = value;
  return set_value(a, row, value, err);
}

ckpt_status ckpt_arguments_read(ckpt_arguments *a, const char *path, ckpt_error *err) {
  json_t *root = NULL;
  const bool is_yaml = ckpt_text_ends(path, ".yaml") || ckpt_text_ends(path, ".yml");
  CKPT_TRY(is_yaml ? ckpt_yaml_read(&root, path, err)
                   : ckpt_config_json_file(&root, path, JSON_REJECT_DUPLICATES, err));
  ckpt_status status = CKPT_OK;
  const char *name;
  json_t *value;
  given g = {0};
  if (!json_is_object(root))
    status = ckpt_fail(err, CKPT_EINVAL, path, NULL, "arguments have to be an object of names and values");
  json_object_foreach(root, name, value) {
    if (status == CKPT_OK) status = set_given(a, &g, name, value, err);
  }
  json_decref(root);
  return ckpt_fail_at(status, err, path, NULL);
}

const char *ckpt_arguments_json(const ckpt_arguments *a, ckpt_arena *arena) {
  json_t *root = json_object();
  for (size_t i = 0; root != NULL && i < N_ROWS; i++) {
    const char *member = (const char *)a + table[i].offset;
    json_t *value = NULL;
    if (table[i].kind == CKPT_ARGUMENT_BOOL) value = json_boolean(*(const bool *)member);
    if (table[i].kind == CKPT_ARGUMENT_INT)
      value = *(const int64_t *)member == CKPT_ARGUMENT_NONE ? json_null() : json_integer(*(const int64_t *)member);
    if (table[i].kind == CKPT_ARGUMENT_FLOAT)
      value = isnan(*(const double *)member) ? json_null() : json_real(*(const double *)member);
    if (table[i].kind == CKPT_ARGUMENT_TEXT)
      value = *(const char *const *)member == NULL ? json_null() : json_string(*(const char *const *)member);
    if (value != NULL) json_object_set_new(root, table[i].name, value);
  }
  char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
  json_decref(root);
  const char *copy = text == NULL ? NULL : ckpt_arena_copy(arena, text);
  free(text);
  return copy;
}
