/* row.c - see row.h. */
#include "trainer/data/row.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"

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

/* ---- the columns of a row ---------------------------------------------------------------------------------------- */

enum { TEXT, PROMPT, COMPLETION, INPUT_IDS, LABELS, ATTENTION_MASK, N_COLUMNS };

/* A column's value as it lies in the line; of a string, the decoded text in the room. */
typedef struct value {
  ckpt_json_token token; /* END: the row has none */
  uint64_t start, stop;  /* of an array, whose entries are counted */
  uint64_t n_entries;
  size_t text, n_text;
} value;

typedef struct row {
  const char *line;
  value columns[N_COLUMNS];
  ckpt_sample_room *room;
  size_t n_text; /* of the room's text that is used */
} row;

/* Room for n more bytes of text. */
static ckpt_status reserve(const row *r, size_t n, ckpt_error *err) {
  ckpt_sample_room *room = r->room;
  if (room->text != NULL && room->text_capacity - r->n_text >= n) return CKPT_OK;
  const size_t capacity = 2 * (r->n_text + n) + 64;
  char *text = realloc(room->text, capacity);
  CKPT_TRY_ALLOC(text, err);
  room->text = text;
  room->text_capacity = capacity;
  return CKPT_OK;
}

/* The value after a key. */
static ckpt_status read_value(row *r, ckpt_json *json, value *out, ckpt_error *err) {
  *out = (value){.text = r->n_text};
  CKPT_TRY(ckpt_json_next(json, &out->token, err));
  out->start = ckpt_json_start(json);
  if (out->token == CKPT_JSON_STRING) {
    const char *text = ckpt_json_text(json, &out->n_text);
    CKPT_TRY(reserve(r, out->n_text, err));
    memcpy(r->room->text + r->n_text, text, out->n_text);
    r->n_text += out->n_text;
    return CKPT_OK;
  }
  if (out->token != CKPT_JSON_ARRAY) return ckpt_json_skip_rest(json, out->token, err);
  for (ckpt_json_token token;; out->n_entries++) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) break;
    CKPT_TRY(ckpt_json_skip_rest(json, token, err));
  }
  out->stop = ckpt_json_stop(json);
  return CKPT_OK;
}

/* Finds the columns; of keys that come again, the last counts. What is no object has none. */
static ckpt_status read_columns(row *r, const ckpt_columns *c, ckpt_json *json, ckpt_error *err) {
  const char *const names[N_COLUMNS] = {c->text, c->prompt, c->completion, c->input_ids, c->labels, c->attention_mask};
  ckpt_json_token token;
  for (size_t i = 0; i < N_COLUMNS; i++) r->columns[i] = (value){.token = CKPT_JSON_END};
  CKPT_TRY(ckpt_json_next(json, &token, err));
  while (token != CKPT_JSON_END) {
    if (token != CKPT_JSON_KEY || ckpt_json_depth(json) != 1) {
      CKPT_TRY(ckpt_json_next(json, &token, err));
      continue;
    }
    size_t n_key;
    const char *key = ckpt_json_text(json, &n_key);
    bool is_column[N_COLUMNS], is_any = false;
    for (size_t i = 0; i < N_COLUMNS; i++) {
      is_column[i] = strlen(names[i]) == n_key && memcmp(names[i], key, n_key) == 0;
      is_any = is_any || is_column[i];
    }
    value found;
    CKPT_TRY(is_any ? read_value(r, json, &found, err) : ckpt_json_skip(json, err));
    for (size_t i = 0; i < N_COLUMNS; i++)
      if (is_column[i]) r->columns[i] = found;
    CKPT_TRY(ckpt_json_next(json, &token, err));
  }
  return CKPT_OK;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* The entries of a column's array, one after the other. */
typedef struct list {
  const char *name, *line;
  ckpt_json *json; /* NULL: the row has no such column */
  uint64_t first;  /* where the array begins in the line */
  ckpt_json_token token;
  int64_t number;
  bool is_number; /* a whole one */
} list;

static ckpt_status list_open(list *out, const row *r, uint32_t column, const char *name, uint64_t n, ckpt_error *err) {
  const value *v = &r->columns[column];
  *out = (list){.name = name, .line = r->line, .first = v->start};
  if (v->token == CKPT_JSON_END) return CKPT_OK;
  if (v->token != CKPT_JSON_ARRAY)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s has to be a list of numbers", name);
  if (v->n_entries != n)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s has %" PRIu64 " entries, input_ids %" PRIu64, name,
                     v->n_entries, n);
  CKPT_TRY(ckpt_json_new_text(&out->json, r->line + v->start, (size_t)(v->stop - v->start), false, NULL, err));
  return ckpt_json_next(out->json, &out->token, err);
}

static ckpt_status list_next(list *l, ckpt_error *err) {
  if (l->json == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_json_next(l->json, &l->token, err));
  char *end = NULL;
  if (l->token == CKPT_JSON_NUMBER) l->number = strtoll(ckpt_json_text(l->json, NULL), &end, 10);
  l->is_number = end != NULL && *end == '\0';
  return CKPT_OK;
}

static ckpt_status wrong_entry(list *l, uint64_t i, const char *wanted, ckpt_error *err) {
  const uint64_t start = ckpt_json_start(l->json);
  CKPT_TRY(ckpt_json_skip_rest(l->json, l->token, err));
  const uint64_t n = ckpt_json_stop(l->json) - start;
  const char *text = l->line + l->first + start;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s[%" PRIu64 "] is %.*s, %s", l->name, i,
                   (int)ckpt_utf8_length(text, n < 60 ? (size_t)n : 60), text, wanted);
}

static bool is_id(const ckpt_row_rules *rules, const list *l) {
  return l->is_number && l->number >= 0 && (uint64_t)l->number < rules->vocabulary;
}

/* 0 and false, 1 and true; no list is all ones. */
static ckpt_status read_mask(bool *is_seen, list *mask, uint64_t i, ckpt_error *err) {
  CKPT_TRY(list_next(mask, err));
  *is_seen = mask->json == NULL || mask->token == CKPT_JSON_TRUE || (mask->is_number && mask->number == 1);
  if (*is_seen || mask->token == CKPT_JSON_FALSE || (mask->is_number && mask->number == 0)) return CKPT_OK;
  return wrong_entry(mask, i, "and it has to be 0, 1, false or true", err);
}

static ckpt_status add_entries(ckpt_sample *s, const ckpt_row_rules *rules, list *ids, list *labels, list *mask,
                               uint64_t n, int32_t document, ckpt_error *err) {
  for (uint64_t i = 0; i < n && (rules->cut == 0 || i < rules->cut); i++) {
    CKPT_TRY(list_next(ids, err));
    CKPT_TRY(list_next(labels, err));
    list *label = labels->json == NULL ? ids : labels;
    bool is_seen;
    if (!is_id(rules, ids)) {
      char wanted[96];
      ckpt_c_snprintf(wanted, sizeof wanted, "and ids are whole numbers below %" PRIu64 ", the model's vocabulary",
                      rules->vocabulary);
      return wrong_entry(ids, i, wanted, err);
    }
    if (!is_id(rules, label) && !(label->is_number && label->number == CKPT_NO_TARGET))
      return wrong_entry(label, i, "which is no id and not -100", err);
    CKPT_TRY(read_mask(&is_seen, mask, i, err));
    const bool is_target = is_seen || labels->json != NULL;
    CKPT_TRY(ckpt_sample_add(s, (int32_t)ids->number, is_target ? (int32_t)label->number : CKPT_NO_TARGET, document,
                             is_seen, err));
  }
  return CKPT_OK;
}

static ckpt_status add_ids(ckpt_sample *s, const ckpt_row_rules *rules, const row *r, int32_t document,
                           ckpt_error *err) {
  const uint64_t n = r->columns[INPUT_IDS].n_entries;
  list ids, labels = {0}, mask = {0};
  ckpt_status status = list_open(&ids, r, INPUT_IDS, "input_ids", n, err);
  if (status == CKPT_OK) status = list_open(&labels, r, LABELS, "labels", n, err);
  if (status == CKPT_OK) status = list_open(&mask, r, ATTENTION_MASK, "attention_mask", n, err);
  if (status == CKPT_OK && rules->limit != 0 && n > rules->limit)
    status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the row has %" PRIu64 " tokens, the model %" PRIu64 " positions",
                       n, rules->limit);
  if (status == CKPT_OK) status = add_entries(s, rules, &ids, &labels, &mask, n, document, err);
  ckpt_json_free(ids.json);
  ckpt_json_free(labels.json);
  ckpt_json_free(mask.json);
  return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Tokens that begin before n_prompt bytes are no targets. */
static ckpt_status add_encoded(ckpt_sample *s, const ckpt_row_rules *rules, const char *text, size_t n_bytes,
                               size_t n_prompt, int32_t document, ckpt_error *err) {
  ckpt_sample_room *room = NULL;
  CKPT_TRY(ckpt_sample_room_of(&room, s, err));
  if (rules->encoder == NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "the row is text, and the model's folder has no tokenizer (tokenizer.json, tokenizer.model)");
  CKPT_TRY(ckpt_text_encode(rules->encoder, &room->encoding, text, n_bytes, CKPT_TEXT_SPECIAL | CKPT_TEXT_PARSE_SPECIAL,
                            err));
  const ckpt_encoding *e = &room->encoding;
  const size_t n_after = rules->tokenizer == NULL ? 0 : rules->tokenizer->n_after;
  for (size_t i = 0; i < e->n && (rules->cut == 0 || i < rules->cut); i++) {
    if (e->ids[i] >= rules->vocabulary)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "the tokenizer gives id %u, and the model's vocabulary ends at %" PRIu64, e->ids[i],
                       rules->vocabulary);
    const bool is_prompt = n_prompt != 0 && e->begin[i] < n_prompt && i + n_after < e->n;
    CKPT_TRY(ckpt_sample_add(s, (int32_t)e->ids[i], is_prompt ? CKPT_NO_TARGET : (int32_t)e->ids[i], document, 1, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_row_text(ckpt_sample *s, const ckpt_row_rules *rules, const char *text, size_t n_bytes, bool begins,
                          bool ends, int32_t document, ckpt_error *err) {
  ckpt_sample_room *room = NULL;
  CKPT_TRY(ckpt_sample_room_of(&room, s, err));
  if (rules->encoder == NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "it is text, and the model's folder has no tokenizer (tokenizer.json, tokenizer.model)");
  const ckpt_tokenizer *t = rules->tokenizer;
  for (uint32_t i = 0; begins && i < t->n_before; i++)
    CKPT_TRY(ckpt_sample_add(s, (int32_t)t->before[i], (int32_t)t->before[i], document, 1, err));
  CKPT_TRY(ckpt_text_encode(rules->encoder, &room->encoding, text, n_bytes, 0, err));
  for (size_t i = 0; i < room->encoding.n; i++) {
    const uint32_t id = room->encoding.ids[i];
    if (id >= rules->vocabulary)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "the tokenizer gives id %u, and the model's vocabulary ends at %" PRIu64, id, rules->vocabulary);
    CKPT_TRY(ckpt_sample_add(s, (int32_t)id, (int32_t)id, document, 1, err));
  }
  for (uint32_t i = 0; ends && i < t->n_after; i++)
    CKPT_TRY(ckpt_sample_add(s, (int32_t)t->after[i], (int32_t)t->after[i], document, 1, err));
  return CKPT_OK;
}

static ckpt_status add_pair(ckpt_sample *s, const ckpt_row_rules *rules, const row *r, int32_t document,
                            ckpt_error *err) {
  const value *prompt = &r->columns[PROMPT], *completion = &r->columns[COMPLETION];
  CKPT_TRY(reserve(r, prompt->n_text + completion->n_text, err));
  char *text = r->room->text, *both = text + r->n_text;
  memcpy(both, text + prompt->text, prompt->n_text);
  memcpy(both + prompt->n_text, text + completion->text, completion->n_text);
  return add_encoded(s, rules, both, prompt->n_text + completion->n_text, prompt->n_text, document, err);
}

static ckpt_status add_row(ckpt_sample *s, const ckpt_row_rules *rules, const row *r, int32_t document,
                           ckpt_error *err) {
  const value *columns = r->columns, *text = &columns[TEXT];
  if (columns[INPUT_IDS].token != CKPT_JSON_END) return add_ids(s, rules, r, document, err);
  if (columns[PROMPT].token == CKPT_JSON_STRING && columns[COMPLETION].token == CKPT_JSON_STRING)
    return add_pair(s, rules, r, document, err);
  if (text->token == CKPT_JSON_STRING)
    return add_encoded(s, rules, r->room->text + text->text, text->n_text, 0, document, err);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "the row has neither %s, nor %s, nor %s and %s (--columns names others)", rules->columns.input_ids,
                   rules->columns.text, rules->columns.prompt, rules->columns.completion);
}

ckpt_status ckpt_row_json(ckpt_sample *s, const ckpt_row_rules *rules, const char *line, size_t n_bytes,
                          int32_t document, ckpt_error *err) {
  row r = {.line = line};
  ckpt_json *json;
  CKPT_TRY(ckpt_sample_room_of(&r.room, s, err));
  CKPT_TRY(ckpt_json_new_text(&json, line, n_bytes, false, NULL, err));
  ckpt_error why = {.status = CKPT_OK};
  ckpt_status status = read_columns(&r, &rules->columns, json, &why);
  ckpt_json_free(json);
  if (status == CKPT_OK) return add_row(s, rules, &r, document, err);
  return ckpt_fail(err, status, NULL, NULL, "%s%s", status == CKPT_EFORMAT ? "it is no JSON: " : "", why.message);
}
