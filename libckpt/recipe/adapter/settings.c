/* settings.c - adapter_config.json, written; and the base that one names. See forms.h. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/peft.h"

ckpt_adapter_kind ckpt_adapter_kind_of(const ckpt_index *index) {
  const ckpt_meta *type = ckpt_index_meta(index, "general.type");
  if (type != NULL && type->typed == NULL && strcmp(type->value, "adapter") == 0) return CKPT_ADAPTER_GGUF;
  const bool is_peft =
      ckpt_index_side_file(index, "adapter_config.json") != NULL && ckpt_index_side_file(index, "config.json") == NULL;
  return is_peft ? CKPT_ADAPTER_PEFT : CKPT_ADAPTER_NONE;
}

/* ---- written ----------------------------------------------------------------------------------------------------- */

static const char *leaf_of(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot == NULL ? path : dot + 1;
}

static int by_path(const void *x, const void *y) {
  return strcmp(((const ckpt_adapter_module *)x)->path, ((const ckpt_adapter_module *)y)->path);
}

/* The leaves of those modules of the base that have no factors, and of those that hold others: by such a name one would
 * be targeted, too. NULL: out of memory. */
static json_t *list_others(const ckpt_adapter_settings *s, const ckpt_index *base) {
  json_t *others = json_object();
  char module[CKPT_ADAPTER_NAME];
  for (uint32_t i = 0; base != NULL && i < base->n_tensors; i++) {
    const char *name = base->tensors[i].name;
    if (strlen(name) >= sizeof module) continue;
    memcpy(module, name, strlen(name) + 1);
    for (char *dot = strrchr(module, '.'); dot != NULL; dot = strrchr(module, '.')) {
      *dot = '\0';
      const ckpt_adapter_module key = {.path = module};
      if (bsearch(&key, s->modules, s->n_modules, sizeof key, by_path) != NULL) continue;
      if (json_object_set_new(others, leaf_of(module), json_true()) == 0) continue;
      json_decref(others);
      return NULL;
    }
  }
  return others;
}

/* Each leaf once, or the paths of its modules. PEFT takes an adapter without factors by a name of its own. NULL: out of
 * memory. */
static json_t *list_targets(const ckpt_adapter_settings *s, const ckpt_index *base) {
  if (s->n_modules == 0) return json_string("dummy-target-modules");
  json_t *others = list_others(s, base), *seen = json_object(), *list = json_array();
  bool is_full = others == NULL || seen == NULL;
  for (size_t i = 0; i < s->n_modules && !is_full; i++) {
    const char *path = s->modules[i].path, *leaf = leaf_of(path);
    const bool is_by_path = base == NULL || json_object_get(others, leaf) != NULL;
    if (!is_by_path && json_object_get(seen, leaf) != NULL) continue;
    is_full = json_array_append_new(list, json_string(is_by_path ? path : leaf)) != 0 ||
              json_object_set_new(seen, leaf, json_true()) != 0;
  }
  json_decref(others);
  json_decref(seen);
  if (!is_full) return list;
  json_decref(list);
  return NULL;
}

static int by_rank(const void *x, const void *y) {
  const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return a < b ? -1 : a > b;
}

/* The rank that most modules have, of these the least. */
static ckpt_status most_usual(uint64_t *out, const ckpt_adapter_settings *s, ckpt_error *err) {
  uint64_t *ranks = reallocarray(NULL, s->n_modules + 1, sizeof *ranks);
  size_t n_best = 0;
  CKPT_TRY_ALLOC(ranks, err);
  *out = 8; /* as PEFT's own */
  for (size_t i = 0; i < s->n_modules; i++) ranks[i] = s->modules[i].rank;
  qsort(ranks, s->n_modules, sizeof *ranks, by_rank);
  for (size_t i = 0, first = 0; i < s->n_modules; i++) {
    if (ranks[i] != ranks[first]) first = i;
    if (i - first + 1 > n_best) n_best = i - first + 1, *out = ranks[i];
  }
  free(ranks);
  return CKPT_OK;
}

static json_t *number(double value) {
  return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value) : json_real(value);
}

/* NULL, as below: out of memory. */
static json_t *list_ranks(const ckpt_adapter_settings *s, uint64_t usual) {
  json_t *pattern = json_object();
  for (size_t i = 0; i < s->n_modules; i++) {
    if (s->modules[i].rank == usual) continue;
    if (json_object_set_new(pattern, s->modules[i].path, json_integer((json_int_t)s->modules[i].rank)) == 0) continue;
    json_decref(pattern);
    return NULL;
  }
  return pattern;
}

static json_t *list_saved(const ckpt_adapter_settings *s) {
  json_t *saved = s->n_saved == 0 ? json_null() : json_array();
  for (size_t i = 0; i < s->n_saved; i++) {
    if (json_array_append_new(saved, json_string(s->saved[i])) == 0) continue;
    json_decref(saved);
    return NULL;
  }
  return saved;
}

ckpt_status ckpt_adapter_check_base(const char *path, ckpt_error *err) {
  const size_t n = path == NULL ? 0 : strlen(path);
  if (ckpt_utf8_length(path, n) == n) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, path, NULL,
                   "is no UTF-8 text, and adapter_config.json cannot name it as the base");
}

ckpt_status ckpt_adapter_print_config(const char **out, const ckpt_adapter_settings *s, const ckpt_index *base,
                                      ckpt_arena *arena, ckpt_error *err) {
  uint64_t usual = 0;
  CKPT_TRY(ckpt_adapter_check_base(s->base_path, err));
  CKPT_TRY(most_usual(&usual, s, err));
  if (s->rank != 0) usual = s->rank;
  qsort(s->modules, s->n_modules, sizeof *s->modules, by_path);
  json_t *config = json_pack(
      "{s:s?, s:s, s:b, s:b, s:b, s:o, s:f, s:o, s:s, s:I, s:o, s:o, s:o, s:s?, s:b, s:b}", "base_model_name_or_path",
      s->base_path, "bias", s->has_biases ? "all" : "none", "fan_in_fan_out", s->is_transposed, "inference_mode", 1,
      "init_lora_weights", 1, "lora_alpha", number(s->alpha == 0 ? (double)usual : s->alpha), "lora_dropout", 0.0,
      "modules_to_save", list_saved(s), "peft_type", "LORA", "r", (json_int_t)usual, "rank_pattern",
      list_ranks(s, usual), "alpha_pattern", s->alpha == 0 ? list_ranks(s, usual) : json_object(), "target_modules",
      list_targets(s, base), "task_type", s->task, "use_dora", 0, "use_rslora", 0);
  char *text = config == NULL ? NULL : json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS);
  if (text != NULL) *out = ckpt_arena_printf(arena, "%s\n", text);
  const bool is_printed = text != NULL && *out != NULL;
  free(text);
  json_decref(config);
  return is_printed ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

/* ---- the base that one names ------------------------------------------------------------------------------------- */

#define REPOSITORY "general.base_model.0.repo_url"
#define HUB "https://huggingface.co/"

static ckpt_status recorded(const char **out, const ckpt_index *adapter, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_meta *url = ckpt_index_meta(adapter, REPOSITORY);
  ckpt_config *config;
  const char *path, *base;
  *out = NULL;
  if (ckpt_adapter_kind_of(adapter) == CKPT_ADAPTER_GGUF) {
    const bool is_hub = url != NULL && url->typed == NULL && strncmp(url->value, HUB, sizeof HUB - 1) == 0;
    if (is_hub) *out = url->value + sizeof HUB - 1;
    return CKPT_OK;
  }
  if (ckpt_index_side_file(adapter, "adapter_config.json") == NULL) return CKPT_OK; /* opening it says so */
  CKPT_TRY(ckpt_peft_config(&config, &path, adapter, err));
  ckpt_status status = CKPT_OK;
  if (ckpt_config_text(config, "base_model_name_or_path", &base) && *base != '\0') {
    *out = ckpt_arena_copy(arena, base);
    if (*out == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_config_free(config);
  return status;
}

ckpt_status ckpt_adapter_base_path(const char **out, const ckpt_index *adapter, ckpt_arena *arena, ckpt_error *err) {
  size_t n = strlen(adapter->path);
  CKPT_TRY(recorded(out, adapter, arena, err));
  while (n > 0 && adapter->path[n - 1] == '/') n--;
  while (n > 0 && adapter->path[n - 1] != '/') n--;
  if (*out == NULL || **out == '/' || n == 0 || access(*out, F_OK) == 0) return CKPT_OK;
  const char *beside = ckpt_arena_printf(arena, "%.*s%s", (int)n, adapter->path, *out);
  CKPT_TRY_ALLOC(beside, err);
  if (access(beside, F_OK) == 0) *out = beside;
  return CKPT_OK;
}

ckpt_status ckpt_adapter_open_base(ckpt_index **out, const char **name, const ckpt_index *adapter, ckpt_arena *arena,
                                   ckpt_error *err) {
  const bool may_lack = ckpt_adapter_kind_of(adapter) == CKPT_ADAPTER_GGUF;
  *out = NULL;
  CKPT_TRY(ckpt_adapter_base_path(name, adapter, arena, err));
  if (*name == NULL) return CKPT_OK;
  ckpt_status status = ckpt_open(out, *name, NULL, may_lack ? NULL : err);
  if (status != CKPT_OK) *out = NULL;
  return may_lack ? CKPT_OK : status;
}
