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

static json_t *scalar(const char *text, bool is_plain) {
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL", "None"};
  static const char *const trues[] = {"true", "True", "TRUE", "yes", "on"};
  static const char *const falses[] = {"false", "False", "FALSE", "no", "off"};
  if (!is_plain) return json_string(text);
  for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
    if (strcmp(text, nulls[i]) == 0) return json_null();
  for (size_t i = 0; i < sizeof trues / sizeof *trues; i++)
    if (strcmp(text, trues[i]) == 0) return json_true();
  for (size_t i = 0; i < sizeof falses / sizeof *falses; i++)
    if (strcmp(text, falses[i]) == 0) return json_false();
  if (strspn(text, "+-0123456789.eE_") != strlen(text) || strpbrk(text, "0123456789") == NULL) return json_string(text);
  char *end;
  errno = 0;
  const long long integer = strtoll(text, &end, 10);
  if (*end == '\0' && errno == 0) return json_integer(integer);
  const double number = ckpt_c_strtod(text, &end);
  return *end == '\0' && isfinite(number) ? json_real(number) : json_string(text);
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
  if (type == YAML_SCALAR_EVENT)
    *out = scalar((const char *)event->data.scalar.value, event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
  yaml_event_delete(event);
  if (type == YAML_SCALAR_EVENT) return CKPT_OK;
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

ckpt_status ckpt_yaml_read(json_t **out, const char *path, ckpt_error *err) {
  reader r = {.path = path, .err = err};
  FILE *file = fopen(path, "rb");
  if (file == NULL) return ckpt_fail_errno(err, path, "it cannot be opened");
  if (!yaml_parser_initialize(&r.parser)) {
    fclose(file);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  yaml_parser_set_input_file(&r.parser, file);
  ckpt_status status = CKPT_OK;
  yaml_event_t event = {.type = YAML_NO_EVENT};
  while (status == CKPT_OK && event.type != YAML_DOCUMENT_START_EVENT && event.type != YAML_STREAM_END_EVENT) {
    yaml_event_delete(&event);
    status = next(&r, &event);
  }
  *out = NULL;
  if (status == CKPT_OK && event.type == YAML_STREAM_END_EVENT)
    *out = json_object();
  else if (status == CKPT_OK && (status = next(&r, &event)) == CKPT_OK)
    status = read_value(out, &r, &event, 0);
  yaml_parser_delete(&r.parser);
  fclose(file);
  return status;
}
