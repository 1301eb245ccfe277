/* recorded.c - see recorded.h. Keys may stand in any order, and those that every run writes must stand there; an
 * unknown option is refused, other unknown keys are passed by. Whether the request can be meant: recorded_check.c. */
#include "libckpt/recipe/replay/recorded.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/convert/options.h"
#include "libckpt/recipe/replay/recorded_fields.h"

enum { MAX_OPTION_BYTES = 16 << 20 /* more than any command line holds */, MAX_INPUTS = 1000, MAX_OUTPUTS = 1000 };

typedef ckpt_recorded recorded;
typedef ckpt_recorded_output recorded_output;
typedef ckpt_recorded_field field;

ckpt_status ckpt_recorded_full(const recorded *r, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "its options take more than %d bytes", MAX_OPTION_BYTES);
}

ckpt_status ckpt_recorded_refuse(const recorded *r, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "is no receipt that this version knows (%s)", what);
}

ckpt_status ckpt_recorded_fields(recorded *r, ckpt_json *json, const field *fields, size_t n, ckpt_error *err) {
  uint32_t seen = 0;
  for (;;) {
    ckpt_json_token token;
    size_t i = 0;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    while (i < n && fields[i].key != NULL && strcmp(fields[i].key, ckpt_json_text(json, NULL)) != 0) i++;
    if (i == n) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    if (seen >> i & 1) return ckpt_json_fail(json, err, "%s is given twice", fields[i].key);
    seen |= UINT32_C(1) << i;
    r->key = fields[i].key;
    CKPT_TRY(fields[i].read(r, json, fields[i].into, err));
  }
  for (size_t i = 0; i < n; i++)
    if (fields[i].key != NULL && !fields[i].is_sparse && !(seen >> i & 1))
      return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "is no receipt that this version knows (no \"%s\")",
                       fields[i].key);
  return CKPT_OK;
}

/* An option that is passed by would be replayed as if it had not been given. */
static ckpt_status refuse_option(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records the option '%.80s', which this version does not know",
                   ckpt_json_text(json, NULL));
}

/* Room for item n of an array in the receipt's arena, and for a zero behind it. */
static ckpt_status grow(recorded *r, void *items, size_t n, size_t item_bytes, ckpt_error *err) {
  if ((n & (n - 1)) != 0) return CKPT_OK; /* it grows at powers of two */
  void *moved = ckpt_arena_array(&r->arena, 2 * n + 2, item_bytes), *old;
  if (moved == NULL) return ckpt_recorded_full(r, err);
  memcpy(&old, items, sizeof old);
  if (n != 0) memcpy(moved, old, n * item_bytes);
  memcpy(items, &moved, sizeof moved);
  return CKPT_OK;
}

/* A string or null, kept. */
static ckpt_status read_text(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char *text;
  CKPT_TRY(ckpt_json_take_text(json, "what a receipt records", true, &text, err));
  if (text != NULL && (text = ckpt_arena_copy(&r->arena, text)) == NULL) return ckpt_recorded_full(r, err);
  *(const char **)into = text;
  return CKPT_OK;
}

/* The same where null says nothing that can be meant. */
static ckpt_status read_word(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  CKPT_TRY(read_text(r, json, into, err));
  return *(const char **)into == NULL ? ckpt_recorded_refuse(r, "null", err) : CKPT_OK;
}

ckpt_status ckpt_recorded_flag(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  if (token != CKPT_JSON_TRUE && token != CKPT_JSON_FALSE) return ckpt_recorded_refuse(r, "options", err);
  *(bool *)into = token == CKPT_JSON_TRUE;
  return CKPT_OK;
}

ckpt_status ckpt_recorded_size(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a size", err));
  return ckpt_json_u64(json, into) ? CKPT_OK : ckpt_recorded_refuse(r, "sizes", err);
}

/* Ranks, a level: no option of ours is larger. */
static ckpt_status read_count(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  uint64_t count;
  CKPT_TRY(ckpt_recorded_size(r, json, &count, err));
  if (count > CKPT_MAX_RANKS) return ckpt_recorded_refuse(r, "sizes", err);
  *(uint32_t *)into = (uint32_t)count;
  return CKPT_OK;
}

ckpt_status ckpt_recorded_digest(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  recorded_output *output = into;
  const char *text;
  (void)r;
  CKPT_TRY(ckpt_json_take_text(json, "a digest", true, &text, err));
  output->has_digest = text != NULL && ckpt_digest_parse(text, &output->digest);
  return CKPT_OK;
}

ckpt_status ckpt_recorded_number(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a scale", err));
  (void)r;
  *(double *)into = ckpt_c_strtod(ckpt_json_text(json, NULL), NULL);
  return CKPT_OK;
}

static ckpt_status read_version(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  uint64_t version;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "ckpt_receipt", err));
  *(bool *)into = ckpt_json_u64(json, &version) && version == 1;
  return *(bool *)into ? CKPT_OK : ckpt_recorded_refuse(r, "no \"ckpt_receipt\": 1", err);
}

static ckpt_status read_list(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char **texts = NULL;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "a list of options", err));
  for (size_t n = 0;; n++) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) break;
    if (token != CKPT_JSON_STRING) return ckpt_recorded_refuse(r, "options", err);
    CKPT_TRY(grow(r, &texts, n, sizeof *texts, err));
    size_t n_text;
    const char *text = ckpt_json_text(json, &n_text);
    if (strlen(text) != n_text) return ckpt_recorded_refuse(r, "options", err);
    texts[n] = ckpt_arena_copy(&r->arena, text);
    if (texts[n] == NULL) return ckpt_recorded_full(r, err);
  }
  *(const char *const **)into = texts;
  return CKPT_OK;
}

ckpt_status ckpt_recorded_next(const recorded *r, ckpt_json *json, const char *what, bool *is_end, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  *is_end = token == CKPT_JSON_ARRAY_END;
  return *is_end || token == CKPT_JSON_OBJECT ? CKPT_OK : ckpt_recorded_refuse(r, what, err);
}

static ckpt_status read_casts(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  ckpt_cast_rule *casts = NULL;
  (void)into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "dtype", err));
  for (size_t n = 0;; n++) {
    bool is_end;
    const char *dtype = NULL;
    CKPT_TRY(ckpt_recorded_next(r, json, "dtype", &is_end, err));
    if (is_end) break;
    CKPT_TRY(grow(r, &casts, n, sizeof *casts, err));
    const field fields[] = {{"pattern", read_text, &casts[n].pattern, false},
                            {"dtype", read_text, &dtype, false},
                            {NULL, refuse_option, NULL, false}};
    CKPT_TRY(ckpt_recorded_fields(r, json, fields, 3, err));
    casts[n].dtype = dtype == NULL ? CKPT_DTYPE_NONE : ckpt_dtype_parse(dtype);
    if (casts[n].dtype == CKPT_DTYPE_NONE) return ckpt_recorded_refuse(r, "dtype", err);
    r->options.n_casts = n + 1;
  }
  r->options.casts = casts;
  return CKPT_OK;
}

static ckpt_status read_type(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char *text = NULL;
  CKPT_TRY(read_text(r, json, &text, err));
  *(ckpt_dtype *)into = text == NULL ? CKPT_DTYPE_NONE : ckpt_dtype_parse(text);
  return text != NULL && *(ckpt_dtype *)into == CKPT_DTYPE_NONE ? ckpt_recorded_refuse(r, "types", err) : CKPT_OK;
}

static ckpt_status read_preset(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char *text = NULL;
  CKPT_TRY(read_text(r, json, &text, err));
  *(const ckpt_preset **)into = text == NULL ? NULL : ckpt_preset_find(text);
  return *(const ckpt_preset **)into == NULL ? ckpt_recorded_refuse(r, "types", err) : CKPT_OK;
}

/* The tables that decided: others would decide otherwise. */
static ckpt_status read_presets(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char *text = NULL;
  CKPT_TRY(read_text(r, json, &text, err));
  (void)into;
  if (text != NULL && strcmp(text, CKPT_PRESETS_VERSION) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, NULL, "types were chosen by presets '%.80s', this version has %s",
                   text == NULL ? "" : text, CKPT_PRESETS_VERSION);
}

/* The input that an option names: its path, and what is known of it. */
static ckpt_status read_input(recorded *r, ckpt_json *json, const char *of, const char **path, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  if (token == CKPT_JSON_NULL) return CKPT_OK;
  if (token != CKPT_JSON_OBJECT || r->n_further == CKPT_MAX_FURTHER_INPUTS)
    return ckpt_recorded_refuse(r, "inputs", err);
  ckpt_recorded_input *input = &r->further[r->n_further++];
  input->field = of;
  const field fields[] = {{"path", read_text, path, false},
                          {"digest", ckpt_recorded_digest, &input->digest, false},
                          {NULL, refuse_option, NULL, false}};
  CKPT_TRY(ckpt_recorded_fields(r, json, fields, sizeof fields / sizeof *fields, err));
  return *path == NULL ? ckpt_recorded_refuse(r, "inputs", err) : CKPT_OK;
}

/* The input of an option: its key is the option's field. */
static ckpt_status read_option_input(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  return read_input(r, json, r->key, into, err);
}

/* How an option is read: as its member is. */
static field field_of(const ckpt_option *option, void *place) {
  const bool is_list = (option->flags & CKPT_OPTION_REPEATED) != 0;
  field f = {option->field, read_text, ckpt_option_member(option, place), option->is_sparse};
  switch (option->kind) {
    case CKPT_OPTION_FLAG: f.read = ckpt_recorded_flag; break;
    case CKPT_OPTION_SIZE: f.read = ckpt_recorded_size; break;
    case CKPT_OPTION_INTEGER:
    case CKPT_OPTION_COUNT:
    case CKPT_OPTION_LENGTH: f.read = read_count; break;
    case CKPT_OPTION_NUMBER: f.read = ckpt_recorded_number; break;
    case CKPT_OPTION_TYPE: f.read = read_type; break;
    case CKPT_OPTION_PRESET: f.read = read_preset; break;
    case CKPT_OPTION_CAST: f.read = read_casts; break;
    default: f.read = option->flags & CKPT_OPTION_INPUT ? read_option_input : is_list ? read_list : read_text;
  }
  return f;
}

/* A value of a format, among those of the run or of an output. */
typedef struct value_reader {
  const ckpt_format_option *option;
  ckpt_format_values *values;
} value_reader;

static ckpt_status add_value(recorded *r, ckpt_format_values *values, ckpt_format_value value, ckpt_error *err) {
  ckpt_format_value *items = ckpt_arena_array(&r->arena, values->n + 1, sizeof *items);
  if (items == NULL) return ckpt_recorded_full(r, err);
  for (size_t i = 0; i < values->n; i++) items[i] = values->items[i];
  items[values->n] = value;
  *values = (ckpt_format_values){items, values->n + 1};
  return CKPT_OK;
}

static ckpt_status read_number(recorded *r, ckpt_json *json, const ckpt_format_option *option, uint64_t *value,
                               ckpt_error *err) {
  const char *word = NULL;
  bool is_set = false;
  uint32_t count = 0;
  if (option->words != NULL) {
    CKPT_TRY(read_word(r, json, &word, err));
    *value = ckpt_format_word_number(option->words, word);
    return *value == 0 ? ckpt_recorded_refuse(r, option->name, err) : CKPT_OK;
  }
  const bool is_flag = option->most == 1;
  CKPT_TRY(is_flag ? ckpt_recorded_flag(r, json, &is_set, err) : read_count(r, json, &count, err));
  *value = is_set ? 1 : count;
  return CKPT_OK;
}

static ckpt_status read_value(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const value_reader *to = into;
  ckpt_format_value value = {.name = to->option->name};
  switch (to->option->kind) {
    case CKPT_VALUE_NUMBER: CKPT_TRY(read_number(r, json, to->option, &value.value, err)); break;
    case CKPT_VALUE_TEXT: CKPT_TRY(read_text(r, json, &value.text, err)); break;
    case CKPT_VALUE_INPUT: CKPT_TRY(read_input(r, json, value.name, &value.text, err)); break;
    case CKPT_VALUE_LIST: CKPT_TRY(read_list(r, json, &value.list, err)); break;
  }
  return add_value(r, to->values, value, err);
}

/* One field is left for what refuses others. */
enum { MAX_FIELDS = 32, MAX_VALUES = 16 }; /* of an object; more would be seen by the first receipt that is read */

/* What is read of an object that has the options of a place: other keys first, then those of the rows and values. */
typedef struct field_list {
  field items[MAX_FIELDS];
  value_reader values[MAX_VALUES];
  size_t n, n_values;
} field_list;

static ckpt_status add_options(const recorded *r, field_list *list, ckpt_option_place kind, void *place,
                               ckpt_format_values *values, ckpt_error *err) {
  for (const ckpt_option *option = ckpt_written_options; option->name != NULL; option++) {
    if (option->place != kind || option->key == 0) continue;
    if (list->n + 1 == MAX_FIELDS) return ckpt_recorded_refuse(r, "too many options", err);
    list->items[list->n++] = field_of(option, place);
  }
  const ckpt_format_option *option;
  for (size_t i = 0; values != NULL && (option = ckpt_format_option_at(i)) != NULL; i++) {
    if (option->is_of_all != (kind == CKPT_PLACE_CONVERT)) continue;
    if (list->n + 1 == MAX_FIELDS || list->n_values == MAX_VALUES)
      return ckpt_recorded_refuse(r, "too many options", err);
    value_reader *to = &list->values[list->n_values++];
    *to = (value_reader){option, values};
    list->items[list->n++] = (field){option->name, read_value, to, true};
  }
  return CKPT_OK;
}

/* The object `what`, which has the options of a place behind one field of its own. */
static ckpt_status read_place(recorded *r, ckpt_json *json, const char *what, field first, ckpt_option_place kind,
                              void *place, ckpt_error *err) {
  field_list list = {.items = {first}, .n = 1};
  CKPT_TRY(add_options(r, &list, kind, place, NULL, err));
  list.items[list.n++] = (field){NULL, refuse_option, NULL, false};
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, what, err));
  return ckpt_recorded_fields(r, json, list.items, list.n, err);
}

static ckpt_status read_quantize(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  r->request.quantize = &r->quantize;
  const field presets = {"presets", read_presets, NULL, false};
  return read_place(r, json, "quantize", presets, CKPT_PLACE_QUANTIZE, &r->quantize, err);
}

/* The formulas, up to those of this version: where older ones gave other values, the replay differs. */
typedef struct rules {
  const char *what, *known;
} rules;

static ckpt_status read_rules(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const rules *here = into;
  const char *text = NULL;
  CKPT_TRY(read_word(r, json, &text, err));
  const bool is_number = text[0] >= '1' && text[0] <= '9' && text[strspn(text, "0123456789")] == '\0';
  if (is_number && strtol(text, NULL, 10) <= strtol(here->known, NULL, 10)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, NULL, "%s by rules '%.80s', this version has %s", here->what, text,
                   here->known);
}

static ckpt_status read_merge(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  r->merges = true;
  rules here = {"merged", CKPT_MERGE_RULES};
  return read_place(r, json, "merge", (field){"rules", read_rules, &here, false}, CKPT_PLACE_ADAPTER, &r->merge, err);
}

static ckpt_status read_extract(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  r->extracts = true;
  rules here = {"extracted", CKPT_EXTRACT_RULES};
  return read_place(r, json, "extract", (field){"rules", read_rules, &here, false}, CKPT_PLACE_EXTRACT, &r->extract,
                    err);
}

static ckpt_status read_options(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  field_list list = {.items = {{"merge", read_merge, NULL, true},
                               {"quantize", read_quantize, NULL, true},
                               {"extract", read_extract, NULL, true}},
                     .n = 3};
  CKPT_TRY(add_options(r, &list, CKPT_PLACE_INPUT, &r->given, NULL, err));
  CKPT_TRY(add_options(r, &list, CKPT_PLACE_CONVERT, &r->options, &r->values, err));
  list.items[list.n++] = (field){NULL, refuse_option, NULL, false};
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "options", err));
  CKPT_TRY(ckpt_recorded_fields(r, json, list.items, list.n, err));
  r->options.stored_names = r->given.names != NULL;
  r->request.like_path = r->given.like;
  return r->given.names == NULL || strcmp(r->given.names, "stored") == 0 ? CKPT_OK
                                                                         : ckpt_recorded_refuse(r, "names", err);
}

/* What follows the model: an adapter of it. */
static ckpt_status read_adapter(recorded *r, ckpt_json *json, ckpt_error *err) {
  CKPT_TRY(grow(r, &r->adapters, r->n_adapters, sizeof *r->adapters, err));
  ckpt_recorded_adapter *adapter = &r->adapters[r->n_adapters++];
  const field fields[] = {{"path", read_word, &adapter->path, false},
                          {"scale", ckpt_recorded_number, &adapter->scale, false},
                          {"digest", ckpt_recorded_digest, &adapter->digest, false}};
  return ckpt_recorded_fields(r, json, fields, sizeof fields / sizeof *fields, err);
}

static ckpt_status read_inputs(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "inputs", err));
  for (size_t n = 0;; n++) {
    bool is_end;
    CKPT_TRY(ckpt_recorded_next(r, json, "inputs", &is_end, err));
    if (is_end) return CKPT_OK;
    if (n == MAX_INPUTS) return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "has more than %d inputs", MAX_INPUTS);
    if (n != 0) {
      CKPT_TRY(read_adapter(r, json, err));
      continue;
    }
    const field fields[] = {{"path", read_word, &r->options.input, false},
                            {"format", read_word, &r->input_format, false},
                            {"names", read_word, &r->input_names, false},
                            {"include", read_word, &r->input_include, false},
                            {"digest", ckpt_recorded_digest, &r->input, false}};
    CKPT_TRY(ckpt_recorded_fields(r, json, fields, sizeof fields / sizeof *fields, err));
  }
}

static ckpt_status read_outputs(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "outputs", err));
  for (uint32_t n = 0;; n++) {
    bool is_end;
    CKPT_TRY(ckpt_recorded_next(r, json, "outputs", &is_end, err));
    if (is_end) break;
    if (n == MAX_OUTPUTS) return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "has more than %d outputs", MAX_OUTPUTS);
    CKPT_TRY(grow(r, &r->targets, n, sizeof *r->targets, err));
    CKPT_TRY(grow(r, &r->outputs, n, sizeof *r->outputs, err));
    ckpt_convert_target *target = &r->targets[n];
    recorded_output *output = &r->outputs[n];
    field_list list = {.items = {{"path", read_word, &target->path, false},
                                 {"format", read_word, &target->to, false},
                                 {"n_tensors", ckpt_recorded_size, &output->n_tensors, false},
                                 {"n_bytes", ckpt_recorded_size, &output->n_bytes, false},
                                 {"digest", ckpt_recorded_digest, output, false},
                                 {"names", read_word, &output->names, true}},
                       .n = 6};
    CKPT_TRY(add_options(r, &list, CKPT_PLACE_TARGET, target, &target->values, err));
    CKPT_TRY(ckpt_recorded_fields(r, json, list.items, list.n, err));
    for (uint32_t i = 0; i < n; i++)
      if (strcmp(r->targets[i].path, target->path) == 0)
        return ckpt_json_fail(json, err, "output '%.200s' stands there twice", target->path);
    r->request.n_targets = n + 1;
    const ckpt_format *format = ckpt_format_find(target->to);
    if (format != NULL && format->caps.dialect && output->names == NULL) r->request.keeps_names = true;
  }
  r->request.targets = r->targets;
  return CKPT_OK;
}

/* Values of all outputs, to each. */
static ckpt_status share_values(recorded *r, ckpt_error *err) {
  for (uint32_t i = 0; i < r->request.n_targets; i++)
    for (size_t k = 0; k < r->values.n; k++) CKPT_TRY(add_value(r, &r->targets[i].values, r->values.items[k], err));
  return CKPT_OK;
}

static ckpt_status parse(recorded *r, ckpt_error *err) {
  bool is_one = false;
  const field fields[] = {{"ckpt_receipt", read_version, &is_one, false}, {"version", read_word, &r->version, false},
                          {"verb", read_word, &r->request.verb, false},   {"options", read_options, NULL, false},
                          {"inputs", read_inputs, NULL, false},           {"outputs", read_outputs, NULL, false}};
  ckpt_json *json = NULL;
  ckpt_json_token token;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_file_read(&json, &r->file, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a receipt", err));
  CKPT_TRY_GOTO(ckpt_recorded_fields(r, json, fields, sizeof fields / sizeof *fields, err));
  CKPT_TRY_GOTO(ckpt_json_next(json, &token, err)); /* the end, or an error */
  if (r->options.input == NULL)
    status = ckpt_recorded_refuse(r, "inputs", err);
  else if (r->request.n_targets == 0)
    status = ckpt_recorded_refuse(r, "outputs", err);
  else
    status = share_values(r, err);
  r->request.further = ckpt_further_inputs_list(&r->values, r->request.quantize, r->extracts ? &r->extract : NULL);
  if (status == CKPT_OK) status = ckpt_recorded_check(r, err);
done:
  ckpt_json_free(json);
  return ckpt_fail_at(status, err, r->path, NULL);
}

ckpt_status ckpt_recorded_open(ckpt_recorded *r, const char *path, ckpt_error *err) {
  *r = (recorded){.path = path, .file.fd = -1};
  ckpt_arena_init(&r->arena, MAX_OPTION_BYTES);
  CKPT_TRY(ckpt_json_file_open(&r->file, path, "the receipt", err));
  return parse(r, err);
}

void ckpt_recorded_close_inputs(recorded *r) {
  ckpt_index_free(r->from); /* before what it borrows */
  ckpt_adapters_free(r->opened);
  ckpt_extract_free(r->extraction);
  ckpt_index_free(r->base);
  ckpt_index_free(r->like);
  ckpt_further_inputs_close(&r->request.further);
  r->opened = NULL;
  r->extraction = NULL;
  r->from = r->base = r->like = NULL;
}

void ckpt_recorded_close(ckpt_recorded *r) {
  ckpt_recorded_close_inputs(r);
  ckpt_arena_free(&r->arena);
  ckpt_json_file_close(&r->file);
}
