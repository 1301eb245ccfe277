/* yaml.c - see yaml.h. */
#include "trainer/loop/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

enum { MAX_DEPTH = 16 };

typedef struct reader {
  yaml_parser_t parser;
  const char *path;
  ckpt_error *err;
} reader;

static ckpt_status wrong(reader *r, size_t line, const char *what) {
  return ckpt_fail(r->err, CKPT_EINVAL, r->path, NULL, "line %zu: %s", line + 1, what);
}

/* Whether a whole number begins with a 0 that YAML 1.1 reads as octal, and 1.2 does not. */
static bool is_octal(const char *text) {
  text += *text == '+' || *text == '-';
  return text[0] == '0' && text[1] != '\0' && strspn(text, "0123456789_") == strlen(text);
}

/* Truth values and null as PyYAML has them (YAML 1.1), and Python's None. NULL: out of memory, or no UTF-8. */
static json_t *scalar(const char *text, bool is_plain) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL", "None", NULL};
  static const char *const trues[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", NULL};
  static const char *const falses[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", NULL};
  if (!is_plain) return json_string(text);
  if (ckpt_text_is_one_of(text, nulls)) return json_null();
  if (ckpt_text_is_one_of(text, trues)) return json_true();
  if (ckpt_text_is_one_of(text, falses)) return json_false();
  if (strspn(text, "+-0123456789.eE_") != strlen(text) || strpbrk(text, "0123456789") == NULL) return json_string(text);
  char *end;
  errno = 0;
  const long long integer = strtoll(text, &end, 10);
  if (*end == '\0' && errno == 0) return json_integer(integer);
  const double number = ckpt_c_strtod(text, &end);
  return *end == '\0' && isfinite(number) ? json_real(number) : json_string(text);
}

static ckpt_status read_scalar(json_t **out, reader *r, const yaml_event_t *event) {
  const char *text = (const char *)event->data.scalar.value;
  const bool is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  if (is_plain && is_octal(text))
    return ckpt_fail(r->err, CKPT_EINVAL, r->path, NULL,
                     "line %zu: %.60s could be octal: leave out its first 0, or put it in quotes",
                     event->start_mark.line + 1, text);
  *out = scalar(text, is_plain);
  return CKPT_OK;
}

static ckpt_status next(reader *r, yaml_event_t *event) {
  if (yaml_parser_parse(&r->parser, event)) return CKPT_OK;
  return wrong(r, r->parser.problem_mark.line, r->parser.problem == NULL ? "no YAML" : r->parser.problem);
}

static ckpt_status read_value(json_t **out, reader *r, yaml_event_t *event, int depth);

static ckpt_status read_items(json_t *into, reader *r, int depth) {
  const bool is_map = json_is_object(into);
  for (;;) {
    yaml_event_t event;
    CKPT_TRY(next(r, &event));
    if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT) {
      yaml_event_delete(&event);
      return CKPT_OK;
    }
    json_t *key = NULL, *value = NULL;
    const size_t line = event.start_mark.line;
    ckpt_status status = CKPT_OK;
    if (is_map && event.type == YAML_SCALAR_EVENT) {
      key = json_string((const char *)event.data.scalar.value);
      yaml_event_delete(&event);
      status = next(r, &event);
    } else if (is_map) {
      yaml_event_delete(&event);
      return wrong(r, line, "a name has to be a text");
    }
    if (status == CKPT_OK) status = read_value(&value, r, &event, depth + 1);
    if (status == CKPT_OK && is_map && (key == NULL || json_object_get(into, json_string_value(key)) != NULL))
      status = wrong(r, line, "this name is given twice, or is no UTF-8");
    if (status == CKPT_OK && (value == NULL || (is_map ? json_object_set(into, json_string_value(key), value)
                                                       : json_array_append(into, value)) != 0))
      status = wrong(r, line, "a value that is no UTF-8");
    json_decref(key);
    json_decref(value);
    CKPT_TRY(status);
  }
}

/* The value that begins with an event, which is deleted. */
static ckpt_status read_value(json_t **out, reader *r, yaml_event_t *event, int depth) {
  const size_t line = event->start_mark.line;
  const yaml_event_type_t type = event->type;
  *out = NULL;
  const ckpt_status scalar_status = type == YAML_SCALAR_EVENT ? read_scalar(out, r, event) : CKPT_OK;
  yaml_event_delete(event);
  if (type == YAML_SCALAR_EVENT) return scalar_status;
  if (type == YAML_ALIAS_EVENT) return wrong(r, line, "anchors and aliases are not read");
  if (depth > MAX_DEPTH) return wrong(r, line, "it is nested too deeply");
  *out = type == YAML_MAPPING_START_EVENT ? json_object() : json_array();
  CKPT_TRY_ALLOC(*out, r->err);
  const ckpt_status status = read_items(*out, r, depth);
  if (status != CKPT_OK) {
    json_decref(*out);
    *out = NULL;
  }
  return status;
}

/* The one document of a stream. */
static ckpt_status read_document(json_t **out, reader *r) {
  yaml_event_t event = {.type = YAML_NO_EVENT};
  while (event.type != YAML_DOCUMENT_START_EVENT && event.type != YAML_STREAM_END_EVENT) {
    yaml_event_delete(&event);
    CKPT_TRY(next(r, &event));
  }
  if (event.type == YAML_STREAM_END_EVENT) return wrong(r, event.start_mark.line, "it is empty");
  yaml_event_delete(&event);
  CKPT_TRY(next(r, &event));
  CKPT_TRY(read_value(out, r, &event, 0));
  while (event.type != YAML_STREAM_END_EVENT) {
    CKPT_TRY(next(r, &event));
    const bool is_second = event.type == YAML_DOCUMENT_START_EVENT;
    const size_t line = event.start_mark.line;
    if (is_second) yaml_event_delete(&event);
    if (is_second) return wrong(r, line, "a second document begins, and only one is read");
  }
  return CKPT_OK;
}

ckpt_status ckpt_yaml_read(json_t **out, const char *path, ckpt_error *err) {
  reader r = {.path = path, .err = err};
  *out = NULL;
  FILE *file = fopen(path, "rb");
  if (file == NULL) return ckpt_fail_errno(err, path, "it cannot be opened");
  if (!yaml_parser_initialize(&r.parser)) {
    fclose(file);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  yaml_parser_set_input_file(&r.parser, file);
  const ckpt_status status = read_document(out, &r);
  if (status != CKPT_OK) {
    json_decref(*out);
    *out = NULL;
  }
  yaml_parser_delete(&r.parser);
  fclose(file);
  return status;
}
