/* targets.c - which modules an adapter's config targets, so that an adapter that lost some of its tensors is noticed.
 * Source: PEFT's check_target_module_exists. Modules of the base are its matrices' names without `.weight`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/changes.h"

/* Whether a list of the config has an entry that a module's path ends with; one text is an expression. */
static ckpt_status in_list(bool *is_in, ckpt_peft *peft, const char *key, const char *module, ckpt_error *err) {
  const char *text;
  *is_in = false;
  for (size_t i = 0; !*is_in && ckpt_config_item(peft->config, key, i, &text); i++)
    *is_in = ckpt_adapter_ends_with(module, text);
  if (!ckpt_config_text(peft->config, key, &text)) return CKPT_OK;
  ckpt_pattern *pattern;
  char *expression = NULL;
  if (asprintf(&expression, "^(?:%s)$", text) < 0) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  ckpt_status status = ckpt_pattern_new_search(&pattern, expression, text, 0, &peft->n_steps, err);
  free(expression);
  CKPT_TRY(ckpt_fail_at(status, err, peft->path, NULL));
  status = ckpt_fail_at(ckpt_pattern_match(pattern, module, is_in, err), err, peft->path, NULL);
  ckpt_pattern_free(pattern);
  return status;
}

/* The first number in a path that at least two components and a dot come before; -1: none. */
static int64_t layer_of(const char *module) {
  int n_before = 0;
  for (const char *at = module; at != NULL; at = strchr(at, '.'), at = at == NULL ? NULL : at + 1, n_before++) {
    const size_t n = strspn(at, "0123456789");
    if (n != 0 && n < 10 && at[n] == '.' && n_before >= 2) return strtol(at, NULL, 10);
  }
  return -1;
}

/* Whether the layers that the config is for have the module's; *is_known: whether it says so by their numbers. */
static bool in_layers(const ckpt_peft *peft, const char *module, bool *is_known) {
  int64_t layer;
  *is_known = !ckpt_config_has(peft->config, "layers_pattern");
  if (!ckpt_config_has(peft->config, "layers_to_transform")) {
    *is_known = true;
    return true;
  }
  if (ckpt_config_int(peft->config, "layers_to_transform", &layer)) return layer_of(module) == layer;
  char key[64];
  for (size_t i = 0;; i++) {
    ckpt_c_snprintf(key, sizeof key, "layers_to_transform.%zu", i);
    if (!ckpt_config_int(peft->config, key, &layer)) return i == 0;
    if (layer_of(module) == layer) return true;
  }
}

ckpt_status ckpt_peft_targets(bool *targets, bool *is_known, ckpt_peft *peft, const char *module, ckpt_error *err) {
  const char *text;
  bool is_excluded, has_text = ckpt_config_text(peft->config, "target_modules", &text);
  *targets = false;
  *is_known = has_text || ckpt_config_item(peft->config, "target_modules", 0, &text);
  if (has_text && strcmp(text, "all-linear") == 0) *is_known = false;
  if (!*is_known) return CKPT_OK;
  CKPT_TRY(in_list(&is_excluded, peft, "exclude_modules", module, err));
  if (!is_excluded) CKPT_TRY(in_list(&is_excluded, peft, "modules_to_save", module, err));
  if (is_excluded) return CKPT_OK;
  CKPT_TRY(in_list(targets, peft, "target_modules", module, err));
  if (*targets && !has_text) *targets = in_layers(peft, module, is_known);
  return CKPT_OK;
}

/* ---- what lacks an update ---------------------------------------------------------------------------------------- */

static bool is_changed(const ckpt_adapters *all, uint32_t number, const ckpt_tensor *tensor) {
  uint32_t n;
  const ckpt_change *changes = ckpt_changes_of(all, tensor, tensor->name, &n);
  for (uint32_t i = 0; i < n; i++)
    if (changes[i].adapter == number) return true;
  return false;
}

/* Whether `all-linear` means a matrix of a known family: all but embeddings and the head. */
static bool is_linear(const ckpt_arch *arch, const ckpt_tensor *tensor) {
  uint64_t numbers[2];
  const ckpt_arch_name *row = ckpt_arch_match(arch, tensor->name, numbers);
  if (row == NULL || tensor->rank != 2 || row->role != CKPT_ROLE_PARAMETER) return false;
  if (ckpt_text_ends(tensor->name, "wpe.weight") || strcmp(tensor->name, arch->shapes[0].hf) == 0) return false;
  for (const ckpt_arch_tie *tie = arch->ties; tie->kept != NULL; tie++)
    if (strcmp(tensor->name, tie->kept) == 0 || strcmp(tensor->name, tie->tied) == 0) return false;
  return true;
}

bool ckpt_adapter_is_linear(const ckpt_index *base, const ckpt_tensor *tensor) {
  static const char *const tables[] = {"embed", "wte.", "wpe.", "shared.weight", "lm_head.", "relative_attention_bias"};
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  if (arch != NULL) return is_linear(arch, tensor);
  if (tensor->rank != 2 || tensor->role != CKPT_ROLE_PARAMETER || !ckpt_text_ends(tensor->name, ".weight"))
    return false;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    if (strstr(tensor->name, tables[i]) != NULL) return false;
  return true;
}

/* Whether the config targets a module, which has the matrix; as ckpt_peft_targets. */
static ckpt_status targets(bool *is_target, bool *is_known, const ckpt_adapters *all, ckpt_peft *peft,
                           const char *module, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_arch *arch = all->base->architecture != NULL ? ckpt_arch_find(all->base->architecture) : NULL;
  const char *text;
  bool is_excluded, is_saved;
  if (arch == NULL || !ckpt_config_text(peft->config, "target_modules", &text) || strcmp(text, "all-linear") != 0)
    return ckpt_peft_targets(is_target, is_known, peft, module, err);
  *is_known = true;
  CKPT_TRY(in_list(&is_excluded, peft, "exclude_modules", module, err));
  CKPT_TRY(in_list(&is_saved, peft, "modules_to_save", module, err));
  *is_target = !is_excluded && !is_saved && is_linear(arch, tensor);
  return CKPT_OK;
}

ckpt_status ckpt_changes_check_targets(const ckpt_adapters *all, uint32_t number, ckpt_error *err) {
  ckpt_peft *peft = &all->list[number].peft;
  ckpt_name_list missing = {.n = 0};
  if (all->options.allow_partial || all->list[number].scale == 0) return CKPT_OK;
  for (uint32_t i = 0; i < all->base->n_tensors; i++) {
    const ckpt_tensor *tensor = &all->base->tensors[i];
    const size_t n = strlen(tensor->name), n_leaf = sizeof ".weight" - 1;
    char module[CKPT_ADAPTER_NAME];
    bool is_target, is_known;
    if (tensor->rank < 2 || n <= n_leaf || n - n_leaf >= sizeof module || !ckpt_text_ends(tensor->name, ".weight"))
      continue;
    ckpt_c_snprintf(module, sizeof module, "%.*s", (int)(n - n_leaf), tensor->name);
    CKPT_TRY(targets(&is_target, &is_known, all, peft, module, tensor, err));
    if (!is_known) return CKPT_OK;
    if (is_target && !is_changed(all, number, tensor)) ckpt_name_list_add(&missing, module);
  }
  if (missing.n == 0) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_ENOTFOUND, all->list[number].index->path, NULL,
                               "%zu module%s that target_modules names %s no tensors here: %s", missing.n,
                               ckpt_plural(missing.n), missing.n == 1 ? "has" : "have", missing.text),
                     err, "%allow_partial merges what is there");
}
