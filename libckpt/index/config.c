/* config.c - config.json through jansson, with what Python writes and jansson refuses made harmless first.
 *
 * One pass over a copy of the text bounds nesting and the number of values (jansson builds its DOM before anyone could
 * count, at up to 150 bytes per byte of text) and overwrites NaN, Infinity and out-of-range numbers outside strings
 * with an empty list of the same length: positions in messages stay true, and a lookup finds no value of its type. */
#include "libckpt/index/config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/index/index.h"

enum { MAX_DEPTH = 64, MAX_VALUES = 1000000 };

struct ckpt_config {
  json_t *root;
};

static void blank(char *token, size_t n) {
  memset(token, ' ', n);
  token[0] = '[';
  token[1] = ']';
}

/* The string that opens at text: its length with both quotes, or up to the end where it is not closed. */
static size_t string_length(const char *text) {
  size_t i = 1;
  for (; text[i] != '\0'; i++) {
    if (text[i] == '"') return i + 1;
    if (text[i] == '\\' && text[i + 1] != '\0') i++;
  }
  return i;
}

/* Length of a run of characters that a number or word is made of, after blanking what jansson cannot represent. */
static size_t take_token(char *token) {
  size_t n = strspn(token, "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
  char after = token[n];
  token[n] = '\0';
  bool is_number = token[strspn(token, "+-.0123456789eE")] == '\0', is_real = strpbrk(token, ".eE") != NULL;
  bool refused = strcmp(token, "NaN") == 0 || strcmp(token, "Infinity") == 0 || strcmp(token, "-Infinity") == 0;
  if (is_number && n > 1) {
    errno = 0;
    if (is_real)
      refused = isinf(ckpt_c_strtod(token, NULL));
    else
      refused = strtoll(token, NULL, 10) != 0 && errno == ERANGE; /* clamped */
  }
  token[n] = after;
  if (refused) blank(token, n);
  return n;
}

static ckpt_status prepare(char *text, ckpt_error *err) {
  size_t depth = 0, n_values = 0;
  for (size_t i = 0; text[i] != '\0';) {
    char c = text[i];
    if (c == '"') {
      i += string_length(text + i);
      continue;
    }
    if (c == '-' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) {
      i += take_token(text + i);
      continue;
    }
    if (c == '{' || c == '[') {
      n_values++;
      if (++depth > MAX_DEPTH) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "JSON nested deeper than %d", MAX_DEPTH);
    }
    if ((c == '}' || c == ']') && depth != 0) depth--;
    if (c == ',' && ++n_values > MAX_VALUES)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %d JSON values", MAX_VALUES);
    i++;
  }
  return CKPT_OK;
}

/* jansson reports most failed allocations as errors of syntax: only errno tells. It quotes the text near an error:
 * nothing of that may reach a terminal as a control sequence. */
static ckpt_status fail_json(json_error_t *error, ckpt_error *err) {
  if (errno == ENOMEM) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (char *c = error->text; *c != '\0'; c++)
    if (*c < ' ' || *c > '~') *c = '?';
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "not valid JSON: %s (line %d, column %d)", error->text, error->line,
                   error->column);
}

json_t *ckpt_config_json(const char *text, size_t n_bytes, size_t flags, json_error_t *error) {
  json_t *root = json_loadb(text, n_bytes, flags, error);
  json_t *again = root == NULL ? NULL : json_loadb(text, n_bytes, flags, NULL);
  const bool is_whole = root == NULL || (again != NULL && json_equal(root, again));
  json_decref(again);
  if (is_whole) return root;
  json_decref(root);
  errno = ENOMEM;
  return NULL;
}

ckpt_status ckpt_config_json_file(json_t **out, const char *path, size_t flags, ckpt_error *err) {
  FILE *file = fopen(path, "rb");
  *out = NULL;
  if (file == NULL) return ckpt_fail_errno(err, path, "it cannot be opened");
  char *text = NULL;
  uint32_t n = 0, capacity = 0;
  ckpt_status status = CKPT_OK;
  for (size_t n_read = 1; n_read != 0 && status == CKPT_OK; n += (uint32_t)n_read) {
    status = ckpt_grow(&text, n, &capacity, 1, err);
    n_read = status == CKPT_OK ? fread(text + n, 1, capacity - n, file) : 0;
    if (ferror(file)) status = ckpt_fail_errno(err, path, "it cannot be read");
    if (n + n_read > CKPT_CONFIG_MAX_BYTES)
      status = ckpt_fail(err, CKPT_ELIMIT, path, NULL, "more than %llu bytes of JSON",
                         (unsigned long long)CKPT_CONFIG_MAX_BYTES);
  }
  json_error_t where = {.text = ""};
  errno = 0;
  if (status == CKPT_OK) *out = ckpt_config_json(text, n, flags, &where);
  if (status == CKPT_OK && *out == NULL)
    status = errno == ENOMEM ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory")
                             : ckpt_fail(err, CKPT_EINVAL, path, NULL, "line %d: %s", where.line, where.text);
  free(text);
  fclose(file);
  return status;
}

static ckpt_status parse(ckpt_config *config, const char *text, uint64_t n_bytes, ckpt_error *err) {
  if (n_bytes > CKPT_CONFIG_MAX_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%llu bytes of JSON (at most %llu are read)",
                     (unsigned long long)n_bytes, (unsigned long long)CKPT_CONFIG_MAX_BYTES);
  if (memchr(text, '\0', (size_t)n_bytes) != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "not valid JSON: holds a NUL byte");
  char *copy = strndup(text, (size_t)n_bytes);
  CKPT_TRY_ALLOC(copy, err);
  ckpt_status status;
  CKPT_TRY_GOTO(prepare(copy, err));
  json_error_t error;
  errno = 0;
  config->root = ckpt_config_json(copy, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &error);
  if (config->root == NULL)
    status = fail_json(&error, err);
  else if (!json_is_object(config->root))
    status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "not a JSON object");
done:
  free(copy);
  return status;
}

ckpt_status ckpt_config_parse(ckpt_config **out, const char *text, uint64_t n_bytes, const char *file,
                              ckpt_error *err) {
  ckpt_config *config = calloc(1, sizeof *config);
  CKPT_TRY_ALLOC(config, err);
  ckpt_status status = parse(config, text, n_bytes, err);
  if (status == CKPT_OK)
    *out = config;
  else
    ckpt_config_free(config);
  return ckpt_fail_at(status, err, file, NULL);
}

void ckpt_config_free(ckpt_config *config) {
  if (config == NULL) return;
  json_decref(config->root);
  free(config);
}

ckpt_status ckpt_config_of(ckpt_config **out, const ckpt_index *index, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
  *out = NULL;
  if (side == NULL || side->text == NULL) return CKPT_OK;
  const ckpt_status status = ckpt_config_parse(out, side->text, side->n_bytes, NULL, NULL);
  if (status != CKPT_OK) *out = NULL;
  return status == CKPT_ENOMEM ? ckpt_fail(err, status, NULL, NULL, "out of memory") : CKPT_OK;
}

/* The item of a list that the digits of a key number; NULL: they are none, or past its end. */
static const json_t *item_of(const json_t *list, const char *key, const char *end) {
  size_t place = 0;
  for (const char *c = key; c < end; c++) {
    if (*c < '0' || *c > '9' || place > MAX_VALUES) return NULL;
    place = place * 10 + (size_t)(*c - '0');
  }
  return key == end ? NULL : json_array_get(list, place);
}

static const json_t *find(const ckpt_config *config, const char *key) {
  const json_t *value = config->root;
  for (;;) {
    const char *dot = strchrnul(key, '.');
    value = json_is_array(value) ? item_of(value, key, dot) : json_object_getn(value, key, (size_t)(dot - key));
    if (value == NULL || *dot == '\0') return value;
    key = dot + 1;
  }
}

bool ckpt_config_text(const ckpt_config *config, const char *key, const char **value) {
  const json_t *found = find(config, key);
  if (!json_is_string(found)) return false;
  *value = json_string_value(found);
  return true;
}

bool ckpt_config_bool(const ckpt_config *config, const char *key, bool *value) {
  const json_t *found = find(config, key);
  if (!json_is_boolean(found)) return false;
  *value = json_is_true(found);
  return true;
}

bool ckpt_config_int(const ckpt_config *config, const char *key, int64_t *value) {
  const json_t *found = find(config, key);
  if (!json_is_integer(found)) return false;
  *value = json_integer_value(found);
  return true;
}

bool ckpt_config_number(const ckpt_config *config, const char *key, double *value) {
  const json_t *found = find(config, key);
  if (!json_is_number(found)) return false;
  *value = json_number_value(found);
  return true;
}

const char *ckpt_config_key(const ckpt_config *config, size_t i) {
  void *at = json_object_iter(config->root);
  while (at != NULL && i-- != 0) at = json_object_iter_next(config->root, at);
  return at == NULL ? NULL : json_object_iter_key(at);
}

bool ckpt_config_item(const ckpt_config *config, const char *key, size_t i, const char **value) {
  const json_t *item = json_array_get(find(config, key), i);
  if (!json_is_string(item)) return false;
  *value = json_string_value(item);
  return true;
}

/* A number, or a positive integer of the config. */
static bool factor(const ckpt_config *config, const char *text, size_t n, uint64_t *value) {
  char key[64];
  if (n == 0 || n >= sizeof key) return false;
  memcpy(key, text, n);
  key[n] = '\0';
  int64_t number = strtoll(key, NULL, 10);
  if (number == 0 && !ckpt_config_int(config, key, &number)) return false;
  *value = (uint64_t)number;
  return number > 0;
}

/* A product like "a*b/c" of n characters; false where a key of it is absent. */
static bool product(const ckpt_config *config, const char *text, size_t n, uint64_t *out) {
  char sign = '*';
  *out = 1;
  for (size_t at = 0; at < n; at++) { /* past the sign */
    size_t length = strcspn(text + at, "*/|");
    uint64_t value;
    if (!factor(config, text + at, length, &value)) return false;
    if (sign == '*' && !ckpt_mul_u64(*out, value, out)) *out = UINT64_MAX; /* no tensor has such an axis */
    if (sign == '/') *out /= value;
    at += length;
    sign = text[at];
  }
  return true;
}

bool ckpt_config_extent(const ckpt_config *config, const char *text, uint64_t *out) {
  for (;; text++) {
    size_t n = strcspn(text, "|");
    if (product(config, text, n, out)) return true;
    text += n;
    if (*text == '\0') return false;
  }
}

static void *entry_of(const ckpt_config *config, const char *key, size_t i) {
  json_t *found = (json_t *)(uintptr_t)find(config, key);
  void *at = json_object_iter(found);
  while (at != NULL && i-- > 0) at = json_object_iter_next(found, at);
  return at;
}

bool ckpt_config_entry_int(const ckpt_config *config, const char *key, size_t i, size_t k, int64_t *value) {
  void *at = entry_of(config, key, i);
  const json_t *item = at == NULL ? NULL : json_array_get(json_object_iter_value(at), k);
  if (!json_is_integer(item)) return false;
  *value = json_integer_value(item);
  return true;
}

bool ckpt_config_entry(const ckpt_config *config, const char *key, size_t i, const char **name, double *value) {
  void *at = entry_of(config, key, i);
  if (at == NULL) return false;
  const json_t *entry = json_object_iter_value(at);
  *name = json_object_iter_key(at);
  *value = json_is_number(entry) ? json_number_value(entry) : NAN;
  return true;
}

/* Whether a key of id2label is a number as one writes it: of "1" and "01" Python makes one label. */
static bool is_label(const char *key) {
  const size_t n = strspn(key, "0123456789");
  return n != 0 && key[n] == '\0' && (key[0] != '0' || n == 1);
}

bool ckpt_config_labels(const ckpt_config *config, uint64_t *n) {
  const json_t *number = find(config, "num_labels");
  json_t *map = (json_t *)(uintptr_t)find(config, "id2label");
  const json_int_t stated = json_integer_value(number);
  if (number != NULL && (!json_is_integer(number) || stated < 0)) return false;
  if (map != NULL && !json_is_null(map) && !json_is_object(map)) return false;
  *n = number == NULL ? 2 : (uint64_t)stated;
  if (!json_is_object(map)) return true;
  *n = json_object_size(map);
  for (void *at = json_object_iter(map); at != NULL; at = json_object_iter_next(map, at))
    if (!is_label(json_object_iter_key(at))) return false;
  return number == NULL || (uint64_t)stated == *n;
}

bool ckpt_config_may_have(const char *text, const char *key) {
  return strstr(text, key) != NULL || strchr(text, '\\') != NULL;
}

bool ckpt_config_has(const ckpt_config *config, const char *key) {
  const json_t *found = find(config, key);
  return found != NULL && !json_is_null(found);
}

const char *ckpt_config_rope(const ckpt_config *config) {
  const json_t *scaling = find(config, "rope_scaling");
  const bool is_empty = json_is_object(scaling) && json_object_size(scaling) == 0;
  return scaling == NULL || json_is_null(scaling) || is_empty ? "rope_parameters" : "rope_scaling";
}

ckpt_status ckpt_config_put(ckpt_config *config, const char *key, const char *json, ckpt_error *err) {
  json_t *value = ckpt_config_json(json, strlen(json), JSON_DECODE_ANY, NULL);
  const bool is_set = value != NULL && json_object_set_new(config->root, key, value) == 0;
  return is_set ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

typedef struct shown {
  char *text;
  size_t n, capacity;
} shown;

static int show(const char *text, size_t n, void *arg) {
  shown *to = arg;
  if (n > to->capacity - to->n) n = to->capacity - to->n;
  memcpy(to->text + to->n, text, n);
  to->n += n;
  return 0;
}

static ckpt_config_kind kind_of(const json_t *value) {
  if (value == NULL) return CKPT_CONFIG_ABSENT;
  switch (json_typeof(value)) {
    case JSON_NULL: return CKPT_CONFIG_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return CKPT_CONFIG_BOOL;
    case JSON_INTEGER: return CKPT_CONFIG_INT;
    case JSON_REAL: return CKPT_CONFIG_FLOAT;
    case JSON_STRING: return CKPT_CONFIG_TEXT;
    case JSON_ARRAY: return CKPT_CONFIG_LIST;
    case JSON_OBJECT: return CKPT_CONFIG_OBJECT;
  }
  return CKPT_CONFIG_ABSENT;
}

ckpt_config_kind ckpt_config_kind_of(const ckpt_config *config, const char *key) { return kind_of(find(config, key)); }

ckpt_config_kind ckpt_config_kind_at(const ckpt_config *config, const char *key, size_t i, const char **name) {
  json_t *found = (json_t *)(uintptr_t)find(config, key);
  *name = NULL;
  if (json_is_array(found)) return kind_of(json_array_get(found, i));
  void *at = json_is_object(found) ? json_object_iter(found) : NULL;
  while (at != NULL && i-- != 0) at = json_object_iter_next(found, at);
  if (at != NULL) *name = json_object_iter_key(at);
  return at == NULL ? CKPT_CONFIG_ABSENT : kind_of(json_object_iter_value(at));
}

size_t ckpt_config_count(const ckpt_config *config, const char *key) {
  const json_t *found = find(config, key);
  return json_is_array(found) ? json_array_size(found) : json_object_size(found);
}

void ckpt_config_show(const ckpt_config *config, const char *key, char *out, size_t n) {
  const json_t *found = find(config, key);
  shown to = {.text = out, .capacity = n - 1};
  if (json_is_array(found) && json_array_size(found) == 0)
    (void)show("no finite number of 64 bits", sizeof "no finite number of 64 bits" - 1, &to);
  else if (found != NULL)
    (void)json_dump_callback(found, show, &to, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
  out[to.n] = '\0';
}
