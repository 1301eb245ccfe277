/* rules.c - universal_checkpoint_info of a model file: lists of patterns, which name parameters by how they are
 * cut.
 *
 *   {"tp_replicated_parameter_patterns": [pattern], ..., "parameter_with_sub_params": [{"patterns": [pattern], ...}],
 *    "autotp_unsupported_parameter_patterns": {pattern: reason}, "affine_map": {"params": {pattern: {...}}}}
 *
 * A pattern is a regular expression that Python matches from the beginning of a name on. AutoTP writes one for each
 * parameter (^attn\.qkv\.weight$), which is looked up as the name that it is; others are matched one by one, in steps
 * that are counted (pattern.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/pattern.h"
#include "libckpt/codec/parallel/cut.h"

/* A name, or one that a pattern spells: what is read of it. */
typedef struct spelled {
  const char *at, *end;
} spelled;

/* One pattern of a list. */
typedef struct entry {
  spelled name; /* the one that it matches; at NULL: an expression */
  ckpt_pattern *pattern;
  ckpt_zero_said said;
  uint32_t rule, order;
  bool is_used; /* it has matched a name */
} entry;

struct ckpt_zero_rules {
  const ckpt_object *info;
  const char *path;
  entry *entries; /* sorted: names first, in their order */
  uint32_t n_entries, n_names, capacity;
  int64_t vocabulary;       /* rows; -1: not said */
  uint64_t n_steps, n_left; /* of patterns; bytes of the file */
};

static ckpt_status bad(const ckpt_zero_rules *rules, const char *key, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, rules->path, NULL, "universal_checkpoint_info: %s holds no patterns", key);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Its next character, less what re.escape puts before it; 0 at the end. */
static int next_of(spelled *name) {
  if (name->at == name->end) return 0;
  if (*name->at == '\\') name->at++;
  return (unsigned char)*name->at++;
}

static int compare_spelled(spelled a, spelled b) {
  for (;;) {
    const int x = next_of(&a), y = next_of(&b);
    if (x != y || x == 0) return x - y;
  }
}

/* The name that ^name$ matches and nothing else; false: the pattern is another expression. */
static bool is_name(const char *pattern, spelled *name) {
  const size_t n = strlen(pattern);
  if (n < 2 || pattern[0] != '^' || pattern[n - 1] != '$') return false;
  *name = (spelled){pattern + 1, pattern + n - 1};
  for (const char *at = name->at; at < name->end; at++) {
    const bool is_escaped = *at == '\\';
    if (is_escaped && ++at == name->end) return false; /* of the $ */
    const bool is_special = strchr("\\.^$*+?{}[]|()", *at) != NULL;
    if (is_escaped ? !is_special && strchr("-&~#@ /:%!,;=<>'\"`", *at) == NULL : is_special) return false;
  }
  return true;
}

static ckpt_status add(ckpt_zero_rules *rules, ckpt_zero_rule rule, const char *key, const ckpt_object *pattern,
                       const ckpt_object *value, ckpt_error *err) {
  if (pattern->kind != CKPT_OBJECT_TEXT || strlen(pattern->text) != pattern->n) return bad(rules, key, err);
  if (rules->n_entries == CKPT_ZERO_MAX_PATTERNS)
    return ckpt_fail(err, CKPT_ELIMIT, rules->path, NULL, "universal_checkpoint_info: more than %d patterns",
                     CKPT_ZERO_MAX_PATTERNS);
  CKPT_TRY(ckpt_grow(&rules->entries, rules->n_entries, &rules->capacity, sizeof *rules->entries, err));
  entry *made = &rules->entries[rules->n_entries];
  *made = (entry){.said = {pattern->text, value}, .rule = rule, .order = rules->n_entries++};
  if (is_name(pattern->text, &made->name)) return CKPT_OK;
  made->name = (spelled){0};
  size_t n = strlen(pattern->text) + sizeof "re:\\A(?:)";
  char *text = malloc(n);
  CKPT_TRY_ALLOC(text, err);
  snprintf(text, n, "re:\\A(?:%s)", pattern->text);
  ckpt_status status = ckpt_pattern_new(&made->pattern, text, &rules->n_steps, err);
  free(text);
  if (status == CKPT_EINVAL) { /* the file says it, no caller */
    status = CKPT_EFORMAT;
    if (err != NULL) err->status = status;
  }
  return ckpt_fail_at(status, err, rules->path, NULL);
}

static bool is_list(const ckpt_object *object) {
  return object->kind == CKPT_OBJECT_LIST || object->kind == CKPT_OBJECT_TUPLE;
}

/* The patterns of a list, which all say the same. */
static ckpt_status add_list(ckpt_zero_rules *rules, ckpt_zero_rule rule, const char *key, const ckpt_object *list,
                            const ckpt_object *value, ckpt_error *err) {
  if (list == NULL || list->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  if (!is_list(list)) return bad(rules, key, err);
  for (uint64_t i = 0; i < list->n; i++) CKPT_TRY(add(rules, rule, key, list->items[i], value, err));
  return CKPT_OK;
}

/* The patterns of a table, each of which says something of its own. */
static ckpt_status add_table(ckpt_zero_rules *rules, ckpt_zero_rule rule, const char *key, const ckpt_object *table,
                             ckpt_error *err) {
  if (table == NULL || table->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  if (table->kind != CKPT_OBJECT_DICT) return bad(rules, key, err);
  for (uint64_t i = 0; i < table->n; i++)
    CKPT_TRY(add(rules, rule, key, table->items[2 * i], table->items[2 * i + 1], err));
  return CKPT_OK;
}

static ckpt_status add_parts(ckpt_zero_rules *rules, ckpt_error *err) {
  static const char key[] = "parameter_with_sub_params";
  const ckpt_object *list = ckpt_object_get(rules->info, key);
  if (list == NULL || list->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  if (!is_list(list)) return bad(rules, key, err);
  for (uint64_t i = 0; i < list->n; i++) {
    const ckpt_object *parts = list->items[i], *patterns = ckpt_object_field(parts, "patterns");
    if (parts->kind != CKPT_OBJECT_DICT || patterns == NULL) return bad(rules, key, err);
    CKPT_TRY(add_list(rules, CKPT_ZERO_PARTS, key, patterns, parts, err));
  }
  return CKPT_OK;
}

static ckpt_status add_map(ckpt_zero_rules *rules, ckpt_error *err) {
  const ckpt_object *map = ckpt_object_get(rules->info, "affine_map"), *version = ckpt_object_get(map, "version");
  if (map == NULL || map->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  if (version == NULL || version->kind != CKPT_OBJECT_INT || version->integer != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, rules->path, NULL,
                     "universal_checkpoint_info: affine_map is of another version than 1");
  return add_table(rules, CKPT_ZERO_MAPPED, "affine_map", ckpt_object_get(map, "params"), err);
}

static ckpt_status add_all(ckpt_zero_rules *rules, ckpt_error *err) {
  static const char *const lists[] = {
      [CKPT_ZERO_REPLICATED] = "tp_replicated_parameter_patterns",
      [CKPT_ZERO_AVERAGED] = "parameter_to_average_patterns",
      [CKPT_ZERO_BY_COLUMNS] = "parameter_with_row_parallelism_patterns",
      [CKPT_ZERO_VOCABULARY] = "vocabulary_parameter_patterns",
      [CKPT_ZERO_TWO_PARTS] = "parameter_with_2_sub_params_cat_dim_0",
  };
  if (rules->info->kind != CKPT_OBJECT_DICT) return bad(rules, "it", err);
  for (uint32_t i = 0; i < sizeof lists / sizeof *lists; i++)
    CKPT_TRY(add_list(rules, (ckpt_zero_rule)i, lists[i], ckpt_object_get(rules->info, lists[i]), NULL, err));
  const ckpt_object *vocabulary = ckpt_object_get(rules->info, "original_vocab_size");
  if (vocabulary != NULL && vocabulary->kind == CKPT_OBJECT_INT) rules->vocabulary = vocabulary->integer;
  CKPT_TRY(add_parts(rules, err));
  static const char widths[] = "sub_param_shard_widths";
  CKPT_TRY(add_table(rules, CKPT_ZERO_WIDTHS, widths, ckpt_object_get(rules->info, widths), err));
  static const char undescribed[] = "autotp_unsupported_parameter_patterns";
  CKPT_TRY(add_table(rules, CKPT_ZERO_UNDESCRIBED, undescribed, ckpt_object_get(rules->info, undescribed), err));
  return add_map(rules, err);
}

static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if ((x->name.at == NULL) != (y->name.at == NULL)) return x->name.at == NULL ? 1 : -1;
  const int order = compare_spelled(x->name, y->name);
  return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

ckpt_status ckpt_zero_rules_new(ckpt_zero_rules **out, const ckpt_object *info, const char *path, uint64_t n_bytes,
                                ckpt_error *err) {
  *out = NULL;
  if (info == NULL || info->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  ckpt_zero_rules *rules = calloc(1, sizeof *rules);
  CKPT_TRY_ALLOC(rules, err);
  *rules =
      (ckpt_zero_rules){.info = info, .path = path, .vocabulary = -1, .n_steps = CKPT_PATTERN_STEPS, .n_left = n_bytes};
  ckpt_status status = add_all(rules, err);
  if (status != CKPT_OK || rules->n_entries == 0) { /* an empty one would put norms behind each other, too */
    ckpt_zero_rules_free(rules);
    return status;
  }
  if (rules->n_entries > 1) qsort(rules->entries, rules->n_entries, sizeof *rules->entries, compare_entries);
  while (rules->n_names < rules->n_entries && rules->entries[rules->n_names].name.at != NULL) rules->n_names++;
  *out = rules;
  return CKPT_OK;
}

void ckpt_zero_rules_free(ckpt_zero_rules *rules) {
  if (rules == NULL) return;
  for (uint32_t i = 0; i < rules->n_entries; i++) ckpt_pattern_free(rules->entries[i].pattern);
  free(rules->entries);
  free(rules);
}

bool ckpt_zero_rules_spend(ckpt_zero_rules *rules, uint64_t n) {
  const bool is_enough = rules->n_left >= n;
  rules->n_left -= is_enough ? n : rules->n_left;
  return is_enough;
}

bool ckpt_zero_rules_mention(const ckpt_zero_rules *rules, const char *text) {
  for (uint32_t i = 0; rules != NULL && i < rules->n_entries; i++)
    if (strstr(rules->entries[i].said.pattern, text) != NULL) return true;
  return false;
}

int64_t ckpt_zero_rules_vocabulary(const ckpt_zero_rules *rules) { return rules->vocabulary; }

/* ---- looking up -------------------------------------------------------------------------------------------------- */

/* Sub-parameters go by their first pattern, as in DeepSpeed; of its lists it refuses two, and so do we. */
static ckpt_status take(const ckpt_zero_rules *rules, entry *e, const char *name,
                        ckpt_zero_said said[CKPT_ZERO_N_RULES], ckpt_error *err) {
  ckpt_zero_said *of = &said[e->rule];
  e->is_used = true;
  if (of->pattern == NULL) {
    *of = e->said;
  } else if (e->rule != CKPT_ZERO_PARTS && e->rule != CKPT_ZERO_WIDTHS && e->rule != CKPT_ZERO_UNDESCRIBED &&
             strcmp(of->pattern, e->said.pattern) != 0) {
    return ckpt_fail(err, CKPT_EFORMAT, rules->path, name,
                     "universal_checkpoint_info: two patterns of one list match it ('%.200s', '%.200s')", of->pattern,
                     e->said.pattern);
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_rules_find(ckpt_zero_rules *rules, const char *name, ckpt_zero_said said[CKPT_ZERO_N_RULES],
                                 ckpt_error *err) {
  const spelled wanted = {name, name + strlen(name)};
  uint32_t low = 0;
  memset(said, 0, CKPT_ZERO_N_RULES * sizeof *said);
  for (uint32_t high = rules->n_names; low < high;) { /* the first that is not before the name */
    const uint32_t middle = low + (high - low) / 2;
    if (compare_spelled(rules->entries[middle].name, wanted) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (uint32_t i = low; i < rules->n_names && compare_spelled(rules->entries[i].name, wanted) == 0; i++)
    CKPT_TRY(take(rules, &rules->entries[i], name, said, err));
  for (uint32_t i = rules->n_names; i < rules->n_entries; i++) {
    bool is_matched;
    CKPT_TRY(
        ckpt_fail_at(ckpt_pattern_match(rules->entries[i].pattern, name, &is_matched, err), err, rules->path, NULL));
    if (is_matched) CKPT_TRY(take(rules, &rules->entries[i], name, said, err));
  }
  return CKPT_OK;
}

const char *ckpt_zero_rules_unused(const ckpt_zero_rules *rules, uint32_t *n) {
  const entry *first = NULL;
  *n = 0;
  for (uint32_t i = 0; i < rules->n_entries; i++) {
    const entry *e = &rules->entries[i];
    if (e->is_used || e->rule == CKPT_ZERO_WIDTHS || e->rule == CKPT_ZERO_MAPPED || e->rule == CKPT_ZERO_UNDESCRIBED)
      continue;
    if (first == NULL || e->order < first->order) first = e;
    ++*n;
  }
  return first == NULL ? NULL : first->said.pattern;
}
