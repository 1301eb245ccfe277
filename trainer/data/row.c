/* row.c - see row.h. */
#include "trainer/data/row.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static char *column_of(ckpt_columns *c, const char *name, size_t n) {
  const struct {
    const char *name;
    char *column;
  } rows[] = {{"text", c->text},           {"prompt", c->prompt}, {"completion", c->completion},
              {"input_ids", c->input_ids}, {"labels", c->labels}, {"attention_mask", c->attention_mask}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) return rows[i].column;
  return NULL;
}

ckpt_status ckpt_columns_parse(ckpt_columns *out, const char *text, ckpt_error *err) {
  *out = (ckpt_columns){"text", "prompt", "completion", "input_ids", "labels", "attention_mask"};
  while (text != NULL && *text != '\0') {
    const size_t n_name = strcspn(text, "=,");
    char *column = column_of(out, text, n_name);
    const char *value = text + n_name + (text[n_name] == '=');
    const size_t n_value = strcspn(value, ",");
    if (column == NULL || text[n_name] != '=' || n_value == 0 || n_value > 63)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                       "--columns %.100s: it has to be NAME=COLUMN,..., where NAME is text, prompt, completion, "
                       "input_ids, labels or attention_mask",
                       text);
    memcpy(column, value, n_value);
    column[n_value] = '\0';
    text = value + n_value + (value[n_value] == ',');
  }
  return CKPT_OK;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_sample_room_of(ckpt_sample_room **out, ckpt_sample *sample, ckpt_error *err) {
  if (sample->room == NULL) {
    sample->room = calloc(1, sizeof *sample->room);
    CKPT_TRY_ALLOC(sample->room, err);
    sample->room->row_index = UINT64_MAX;
  }
  *out = sample->room;
  return CKPT_OK;
}

static ckpt_status grow(ckpt_sample *s, ckpt_error *err) {
  const size_t capacity = s->capacity == 0 ? 1024 : 2 * s->capacity;
  int32_t *ids = reallocarray(s->ids, capacity, sizeof *ids);
  if (ids != NULL) s->ids = ids;
  int32_t *labels = reallocarray(s->labels, capacity, sizeof *labels);
  if (labels != NULL) s->labels = labels;
  int32_t *documents = reallocarray(s->documents, capacity, sizeof *documents);
  if (documents != NULL) s->documents = documents;
  uint8_t *mask = reallocarray(s->mask, capacity, sizeof *mask);
  if (mask != NULL) s->mask = mask;
  if (ids == NULL || labels == NULL || documents == NULL || mask == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  s->capacity = capacity;
  return CKPT_OK;
}

ckpt_status ckpt_sample_add(ckpt_sample *s, int32_t id, int32_t label, int32_t document, uint8_t mask,
                            ckpt_error *err) {
  if (s->n == s->capacity) CKPT_TRY(grow(s, err));
  s->ids[s->n] = id;
  s->labels[s->n] = label;
  s->documents[s->n] = document;
  s->mask[s->n++] = mask;
  return CKPT_OK;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static ckpt_status check_list(const json_t *list, const char *name, size_t n, ckpt_error *err) {
  if (!json_is_array(list)) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s has to be a list of numbers", name);
  if (json_array_size(list) != n)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s has %zu entries, input_ids %zu", name, json_array_size(list),
                     n);
  return CKPT_OK;
}

static ckpt_status wrong_entry(ckpt_error *err, const char *name, size_t i, const json_t *value, const char *wanted) {
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
  const ckpt_status status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s[%zu] is %.60s, %s", name, i,
                                       text == NULL ? "no value" : text, wanted);
  free(text);
  return status;
}

static bool is_id(const ckpt_row_rules *r, const json_t *value) {
  const json_int_t id = json_integer_value(value);
  return json_is_integer(value) && id >= 0 && (uint64_t)id < r->vocabulary;
}

/* 0 and false, 1 and true; no list is all ones. */
static ckpt_status read_mask(bool *is_seen, const json_t *mask, size_t i, ckpt_error *err) {
  const json_t *value = mask == NULL ? NULL : json_array_get(mask, i);
  const bool is_number = json_is_integer(value);
  const json_int_t number = json_integer_value(value);
  *is_seen = mask == NULL || json_is_true(value) || (is_number && number == 1);
  if (*is_seen || json_is_false(value) || (is_number && number == 0)) return CKPT_OK;
  return wrong_entry(err, "attention_mask", i, value, "and it has to be 0, 1, false or true");
}

static ckpt_status add_ids(ckpt_sample *s, const ckpt_row_rules *r, const json_t *row, int32_t document,
                           ckpt_error *err) {
  const json_t *ids = json_object_get(row, r->columns.input_ids), *labels = json_object_get(row, r->columns.labels);
  const json_t *mask = json_object_get(row, r->columns.attention_mask);
  const size_t n = json_array_size(ids);
  CKPT_TRY(check_list(ids, "input_ids", n, err));
  if (labels != NULL) CKPT_TRY(check_list(labels, "labels", n, err));
  if (mask != NULL) CKPT_TRY(check_list(mask, "attention_mask", n, err));
  if (r->limit != 0 && n > r->limit)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the row has %zu tokens, the model %" PRIu64 " positions", n,
                     r->limit);
  for (size_t i = 0; i < n && (r->cut == 0 || i < r->cut); i++) {
    const json_t *id = json_array_get(ids, i), *label = labels == NULL ? id : json_array_get(labels, i);
    bool is_seen;
    if (!is_id(r, id)) {
      char wanted[96];
      ckpt_c_snprintf(wanted, sizeof wanted, "and ids are whole numbers below %" PRIu64 ", the model's vocabulary",
                      r->vocabulary);
      return wrong_entry(err, "input_ids", i, id, wanted);
    }
    const json_int_t value = json_integer_value(id), target = json_integer_value(label);
    if (!is_id(r, label) && !(json_is_integer(label) && target == CKPT_NO_TARGET))
      return wrong_entry(err, "labels", i, label, "which is no id and not -100");
    CKPT_TRY(read_mask(&is_seen, mask, i, err));
    CKPT_TRY(ckpt_sample_add(s, (int32_t)value, is_seen || labels != NULL ? (int32_t)target : CKPT_NO_TARGET, document,
                             is_seen, err));
  }
  return CKPT_OK;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Tokens that begin before n_prompt bytes are no targets. */
static ckpt_status add_encoded(ckpt_sample *s, const ckpt_row_rules *r, const char *text, size_t n_bytes,
                               size_t n_prompt, int32_t document, ckpt_error *err) {
  ckpt_sample_room *room = NULL;
  CKPT_TRY(ckpt_sample_room_of(&room, s, err));
  if (r->encoder == NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "the row is text, and the model's folder has no tokenizer (tokenizer.json, tokenizer.model)");
  CKPT_TRY(
      ckpt_text_encode(r->encoder, &room->encoding, text, n_bytes, CKPT_TEXT_SPECIAL | CKPT_TEXT_PARSE_SPECIAL, err));
  const ckpt_encoding *e = &room->encoding;
  const size_t n_after = r->tokenizer == NULL ? 0 : r->tokenizer->n_after;
  for (size_t i = 0; i < e->n && (r->cut == 0 || i < r->cut); i++) {
    if (e->ids[i] >= r->vocabulary)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "the tokenizer gives id %u, and the model's vocabulary ends at %" PRIu64, e->ids[i],
                       r->vocabulary);
    const bool is_prompt = n_prompt != 0 && e->begin[i] < n_prompt && i + n_after < e->n;
    CKPT_TRY(ckpt_sample_add(s, (int32_t)e->ids[i], is_prompt ? CKPT_NO_TARGET : (int32_t)e->ids[i], document, 1, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_row_text(ckpt_sample *s, const ckpt_row_rules *r, const char *text, size_t n_bytes, bool begins,
                          bool ends, int32_t document, ckpt_error *err) {
  ckpt_sample_room *room = NULL;
  CKPT_TRY(ckpt_sample_room_of(&room, s, err));
  if (r->encoder == NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "it is text, and the model's folder has no tokenizer (tokenizer.json, tokenizer.model)");
  const ckpt_tokenizer *t = r->tokenizer;
  for (uint32_t i = 0; begins && i < t->n_before; i++)
    CKPT_TRY(ckpt_sample_add(s, (int32_t)t->before[i], (int32_t)t->before[i], document, 1, err));
  CKPT_TRY(ckpt_text_encode(r->encoder, &room->encoding, text, n_bytes, 0, err));
  for (size_t i = 0; i < room->encoding.n; i++) {
    const uint32_t id = room->encoding.ids[i];
    if (id >= r->vocabulary)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "the tokenizer gives id %u, and the model's vocabulary ends at %" PRIu64, id, r->vocabulary);
    CKPT_TRY(ckpt_sample_add(s, (int32_t)id, (int32_t)id, document, 1, err));
  }
  for (uint32_t i = 0; ends && i < t->n_after; i++)
    CKPT_TRY(ckpt_sample_add(s, (int32_t)t->after[i], (int32_t)t->after[i], document, 1, err));
  return CKPT_OK;
}

static ckpt_status add_pair(ckpt_sample *s, const ckpt_row_rules *r, const json_t *prompt, const json_t *completion,
                            int32_t document, ckpt_error *err) {
  const size_t n = json_string_length(prompt), n_rest = json_string_length(completion);
  char *text = malloc(n + n_rest + 1);
  CKPT_TRY_ALLOC(text, err);
  memcpy(text, json_string_value(prompt), n);
  memcpy(text + n, json_string_value(completion), n_rest);
  const ckpt_status status = add_encoded(s, r, text, n + n_rest, n, document, err);
  free(text);
  return status;
}

ckpt_status ckpt_row_json(ckpt_sample *s, const ckpt_row_rules *r, const char *line, size_t n_bytes, int32_t document,
                          ckpt_error *err) {
  json_error_t where;
  json_t *row = json_loadb(line, n_bytes, JSON_ALLOW_NUL, &where);
  if (row == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "it is no JSON: %s (byte %d)", where.text, where.position);
  const json_t *text = json_object_get(row, r->columns.text);
  const json_t *prompt = json_object_get(row, r->columns.prompt);
  const json_t *completion = json_object_get(row, r->columns.completion);
  ckpt_status status;
  if (json_object_get(row, r->columns.input_ids) != NULL)
    status = add_ids(s, r, row, document, err);
  else if (json_is_string(prompt) && json_is_string(completion))
    status = add_pair(s, r, prompt, completion, document, err);
  else if (json_is_string(text))
    status = add_encoded(s, r, json_string_value(text), json_string_length(text), 0, document, err);
  else
    status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "the row has neither %s, nor %s, nor %s and %s (--columns names others)", r->columns.input_ids,
                       r->columns.text, r->columns.prompt, r->columns.completion);
  json_decref(row);
  return status;
}
