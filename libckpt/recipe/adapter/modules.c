/* modules.c - which modules an adapter's config names: that have factors, that are saved whole, or in rows. See peft.h.
 * Sources: PEFT's check_target_module_exists, _set_trainable and set_additional_trainable_modules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/peft.h"

enum { MAX_RULES = 4096 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int by_text(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }

/* An expression of whole paths, as Python's fullmatch. */
static ckpt_status read_expression(ckpt_peft_names *out, ckpt_peft *peft, const char *text, ckpt_error *err) {
  char *expression = NULL;
  if (asprintf(&expression, "^(?:%s)$", text) < 0) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  const ckpt_status status = ckpt_peft_compile(&out->pattern, peft, expression, text, err);
  free(expression);
  return status;
}

/* A list of names, or one text. */
static ckpt_status read_names(ckpt_peft_names *out, ckpt_peft *peft, const char *key, ckpt_error *err) {
  const char *text;
  char shown[64], item[64];
  size_t n = 0;
  out->is_said = ckpt_config_has(peft->config, key);
  if (!out->is_said) return CKPT_OK;
  if (ckpt_config_text(peft->config, key, &text)) {
    out->is_all = strcasecmp(text, "all-linear") == 0;
    return out->is_all ? CKPT_OK : read_expression(out, peft, text, err);
  }
  while (ckpt_config_item(peft->config, key, n, &text)) n++;
  ckpt_c_snprintf(item, sizeof item, "%.40s.%zu", key, n);
  ckpt_config_show(peft->config, key, shown, sizeof shown);
  const bool is_list = shown[0] == '[' || (n == 0 && shown[0] == 'n'); /* an empty one is shown as "no finite number" */
  if (!is_list || ckpt_config_has(peft->config, item))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is no list of names", key);
  out->names = reallocarray(NULL, n + 1, sizeof *out->names);
  CKPT_TRY_ALLOC(out->names, err);
  while (out->n < n && ckpt_config_item(peft->config, key, out->n, &out->names[out->n])) out->n++;
  qsort(out->names, out->n, sizeof *out->names, by_text);
  return CKPT_OK;
}

ckpt_status ckpt_peft_read_modules(ckpt_peft *peft, ckpt_error *err) {
  CKPT_TRY(read_names(&peft->targets, peft, "target_modules", err));
  CKPT_TRY(read_names(&peft->excluded, peft, "exclude_modules", err));
  CKPT_TRY(read_names(&peft->saved, peft, "modules_to_save", err));
  return read_names(&peft->parameters, peft, "target_parameters", err);
}

static void free_names(ckpt_peft_names *names) {
  free(names->names);
  ckpt_pattern_free(names->pattern);
}

void ckpt_peft_free_modules(ckpt_peft *peft) {
  free_names(&peft->targets);
  free_names(&peft->excluded);
  free_names(&peft->saved);
  free_names(&peft->parameters);
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

static bool has_name(const ckpt_peft_names *names, const char *name) {
  return names->n != 0 && bsearch(&name, names->names, names->n, sizeof *names->names, by_text) != NULL;
}

/* Whether a path is one of the names, or ends with one after a dot. */
static bool has_end(const ckpt_peft_names *names, const char *path) {
  for (const char *at = path; at != NULL; at = strchr(at, '.'), at = at == NULL ? NULL : at + 1)
    if (has_name(names, at)) return true;
  return false;
}

/* As above, or matches the expression. */
static ckpt_status is_in(bool *out, ckpt_peft *peft, const ckpt_peft_names *names, const char *path, ckpt_error *err) {
  *out = has_end(names, path);
  if (*out || names->pattern == NULL) return CKPT_OK;
  return ckpt_fail_at(ckpt_pattern_match(names->pattern, path, out, err), err, peft->path, NULL);
}

/* Whether a module is one that is saved whole, or in such a one. */
static ckpt_status is_in_saved(bool *out, ckpt_peft *peft, const char *module, ckpt_error *err) {
  char path[CKPT_ADAPTER_NAME];
  ckpt_c_snprintf(path, sizeof path, "%s", module);
  for (char *dot = NULL;; *dot = '\0') {
    CKPT_TRY(is_in(out, peft, &peft->saved, path, err));
    if (*out || (dot = strrchr(path, '.')) == NULL) return CKPT_OK;
  }
}

/* The number behind the first component `pattern` of a path; NULL: the first that at least two components come before.
 * -1 without a number. */
static int64_t layer_of(const char *module, const char *pattern) {
  const size_t n_pattern = pattern == NULL ? 0 : strlen(pattern);
  int n_before = 0;
  for (const char *at = module; at != NULL; at = strchr(at, '.'), at = at == NULL ? NULL : at + 1, n_before++) {
    const char *digits = at;
    if (pattern != NULL) {
      if (strncmp(at, pattern, n_pattern) != 0 || at[n_pattern] != '.') continue;
      digits = at + n_pattern + 1;
    }
    const size_t n = strspn(digits, "0123456789");
    if (n != 0 && n < 10 && digits[n] == '.' && (pattern != NULL || n_before >= 2)) return strtol(digits, NULL, 10);
  }
  return -1;
}

static bool is_word(const char *text) {
  return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] == '\0';
}

/* The layer of a module by layers_pattern, whose first entry with a layer counts; expressions are not taken. */
static ckpt_status find_layer(int64_t *layer, const ckpt_peft *peft, const char *module, ckpt_error *err) {
  const char *text;
  const bool is_text = ckpt_config_text(peft->config, "layers_pattern", &text);
  *layer = -1;
  for (size_t i = 0; *layer < 0 && (is_text ? i == 0 : ckpt_config_item(peft->config, "layers_pattern", i, &text));
       i++) {
    if (!is_word(text))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, peft->path, NULL,
                       "layers_pattern: '%s' is an expression, and only names are taken", text);
    *layer = layer_of(module, *text == '\0' ? NULL : text);
    if (*text == '\0') return CKPT_OK;
  }
  if (!is_text && !ckpt_config_item(peft->config, "layers_pattern", 0, &text)) *layer = layer_of(module, NULL);
  return CKPT_OK;
}

/* Whether the layers that the config is for have the module's. */
static ckpt_status in_layers(bool *out, const ckpt_peft *peft, const char *module, ckpt_error *err) {
  int64_t wanted, layer;
  char key[64];
  *out = true;
  if (!ckpt_config_has(peft->config, "layers_to_transform")) return CKPT_OK;
  CKPT_TRY(find_layer(&layer, peft, module, err));
  *out = false;
  if (ckpt_config_int(peft->config, "layers_to_transform", &wanted)) {
    *out = layer >= 0 && layer == wanted;
    return CKPT_OK;
  }
  for (size_t i = 0;; i++) {
    ckpt_c_snprintf(key, sizeof key, "layers_to_transform.%zu", i);
    if (!ckpt_config_int(peft->config, key, &wanted)) {
      *out = i == 0;
      return CKPT_OK;
    }
    if (layer < 0 || layer != wanted) continue;
    *out = true;
    return CKPT_OK;
  }
}

ckpt_status ckpt_peft_excludes(bool *excludes, ckpt_peft *peft, const char *module, ckpt_error *err) {
  CKPT_TRY(is_in(excludes, peft, &peft->excluded, module, err));
  return *excludes ? CKPT_OK : is_in_saved(excludes, peft, module, err);
}

ckpt_status ckpt_peft_targets(bool *targets, bool *is_known, ckpt_peft *peft, const char *module, ckpt_error *err) {
  bool is_excluded;
  *targets = false;
  *is_known = peft->targets.is_said && !peft->targets.is_all;
  if (!*is_known) return CKPT_OK;
  CKPT_TRY(ckpt_peft_excludes(&is_excluded, peft, module, err));
  if (is_excluded) return CKPT_OK;
  CKPT_TRY(is_in(targets, peft, &peft->targets, module, err));
  if (!*targets || peft->targets.pattern != NULL || has_name(&peft->targets, module)) return CKPT_OK;
  return in_layers(targets, peft, module, err);
}

bool ckpt_peft_targets_parameter(const ckpt_peft *peft, const char *module, const char *leaf) {
  char path[CKPT_ADAPTER_NAME + 64];
  for (size_t i = 0; leaf == NULL && i < peft->parameters.n; i++) {
    const char *name = peft->parameters.names[i], *dot = strrchr(name, '.');
    ckpt_c_snprintf(path, sizeof path, "%.*s", dot == NULL ? 0 : (int)(dot - name), name);
    if (dot == NULL || ckpt_adapter_ends_with(module, path)) return true;
  }
  if (leaf == NULL) return false;
  ckpt_c_snprintf(path, sizeof path, "%s.%s", module, leaf);
  return has_end(&peft->parameters, path);
}

/* ---- modules that are saved whole -------------------------------------------------------------------------------- */

/* Whether a name of modules_to_save is of a module, or of one that it lies in. PEFT asks for no dot before it. */
static bool is_of(const char *name, const char *module) {
  const size_t n = strlen(name), n_module = strlen(module);
  for (size_t end = n; n != 0 && end <= n_module; end++)
    if ((module[end] == '.' || module[end] == '\0') && memcmp(module + end - n, name, n) == 0) return true;
  return false;
}

bool ckpt_peft_names_whole(const ckpt_peft *peft, const char *module) {
  for (size_t i = 0; i < peft->saved.n; i++)
    if (is_of(peft->saved.names[i], module)) return true;
  return false;
}

/* The module of a tensor; false where its name has none. */
static bool module_of(char module[CKPT_ADAPTER_NAME], const char *tensor) {
  const char *leaf = strrchr(tensor, '.');
  if (leaf == NULL || (size_t)(leaf - tensor) >= CKPT_ADAPTER_NAME) return false;
  ckpt_c_snprintf(module, CKPT_ADAPTER_NAME, "%.*s", (int)(leaf - tensor), tensor);
  return true;
}

bool ckpt_peft_names_module_of(const char *name, const char *tensor) {
  char module[CKPT_ADAPTER_NAME];
  return module_of(module, tensor) && is_of(name, module);
}

bool ckpt_peft_is_task_head(const char *module) {
  static const char *const heads[] = {"classifier", "score", "qa_outputs"};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    if (ckpt_adapter_ends_with(module, heads[i])) return true;
  return false;
}

bool ckpt_peft_saves(const ckpt_peft *peft, const char *tensor) {
  static const char *const tasks[] = {"SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS"};
  char module[CKPT_ADAPTER_NAME];
  const char *task;
  if (!module_of(module, tensor)) return false;
  if (ckpt_peft_names_whole(peft, module)) return true;
  if (!ckpt_config_text(peft->config, "task_type", &task)) return false;
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
    if (strcmp(task, tasks[i]) == 0) return ckpt_peft_is_task_head(module);
  return false;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

#define ROWS "trainable_token_indices"

/* Item k of the rows of a module: of a list, which is the input embedding's, or of the module's entry. */
static bool row_at(const ckpt_peft *peft, int64_t entry, size_t k, int64_t *row) {
  char key[64];
  if (entry >= 0) return ckpt_config_entry_int(peft->config, ROWS, (size_t)entry, k, row);
  ckpt_c_snprintf(key, sizeof key, ROWS ".%zu", k);
  return ckpt_config_int(peft->config, key, row);
}

static int by_row(const void *x, const void *y) {
  const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return a < b ? -1 : a > b;
}

static ckpt_status check_rows(const ckpt_peft *peft, const uint64_t *rows, size_t n, uint64_t n_rows, ckpt_error *err) {
  uint64_t *sorted = reallocarray(NULL, n, sizeof *sorted);
  CKPT_TRY_ALLOC(sorted, err);
  memcpy(sorted, rows, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, by_row);
  ckpt_status status = CKPT_OK;
  if (sorted[n - 1] >= n_rows)
    status = ckpt_fail(err, CKPT_EFORMAT, peft->path, NULL, ROWS ": there is no row %llu (%llu rows)",
                       (unsigned long long)sorted[n - 1], (unsigned long long)n_rows);
  for (size_t i = 1; status == CKPT_OK && i < n; i++)
    if (sorted[i] == sorted[i - 1])
      status = ckpt_fail(err, CKPT_EFORMAT, peft->path, NULL, ROWS ": row %llu is there twice",
                         (unsigned long long)sorted[i]);
  free(sorted);
  return status;
}

ckpt_status ckpt_peft_rows(uint64_t **out, size_t *n, const ckpt_peft *peft, const char *module, uint64_t n_rows,
                           ckpt_error *err) {
  const char *name;
  double ignored;
  int64_t entry = -1, row;
  size_t capacity = 0;
  *out = NULL;
  *n = 0;
  for (size_t i = 0; i < MAX_RULES && ckpt_config_entry(peft->config, ROWS, i, &name, &ignored); i++)
    if (ckpt_adapter_ends_with(module, name)) entry = (int64_t)i;
  while (row_at(peft, entry, *n, &row)) {
    if (row < 0) return ckpt_fail(err, CKPT_EFORMAT, peft->path, NULL, ROWS ": there is no row %lld", (long long)row);
    if (*n == capacity) {
      uint64_t *grown = reallocarray(*out, capacity = capacity == 0 ? 64 : 2 * capacity, sizeof *grown);
      CKPT_TRY_ALLOC(grown, err);
      *out = grown;
    }
    (*out)[(*n)++] = (uint64_t)row;
  }
  if (*n == 0) return ckpt_fail(err, CKPT_EFORMAT, peft->path, NULL, ROWS " has no rows of '%s'", module);
  return check_rows(peft, *out, *n, n_rows, err);
}

bool ckpt_peft_rows_of(const ckpt_peft *peft, size_t i, const char **module) {
  int64_t row;
  double ignored;
  *module = NULL;
  if (ckpt_config_int(peft->config, ROWS ".0", &row)) return i == 0;
  return ckpt_config_entry(peft->config, ROWS, i, module, &ignored);
}
