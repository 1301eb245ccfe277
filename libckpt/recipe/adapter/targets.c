/* targets.c - an adapter against what its config says of the base's modules: that all it targets has factors, and
 * nothing else has. Modules of the base are its matrices' names without `.weight`. See changes.h. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/changes.h"

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

static const ckpt_arch *family_of(const ckpt_adapters *all) {
  return all->base->architecture != NULL ? ckpt_arch_find(all->base->architecture) : NULL;
}

/* Whether the config targets a module, which has the matrix; as ckpt_peft_targets. */
static ckpt_status targets(bool *is_target, bool *is_known, const ckpt_adapters *all, ckpt_peft *peft,
                           const char *module, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_arch *arch = family_of(all);
  bool is_excluded;
  if (arch == NULL || !peft->targets.is_all) return ckpt_peft_targets(is_target, is_known, peft, module, err);
  *is_known = true;
  CKPT_TRY(ckpt_peft_excludes(&is_excluded, peft, module, err));
  *is_target = !is_excluded && is_linear(arch, tensor);
  return CKPT_OK;
}

/* The module of a tensor: its name without what follows the last dot. False where it has none. */
static bool module_of(char module[CKPT_ADAPTER_NAME], const char *name) {
  const char *dot = strrchr(name, '.');
  if (dot == NULL || (size_t)(dot - name) >= CKPT_ADAPTER_NAME) return false;
  ckpt_c_snprintf(module, CKPT_ADAPTER_NAME, "%.*s", (int)(dot - name), name);
  return true;
}

static ckpt_status refuse_missing(const ckpt_adapters *all, uint32_t number, const ckpt_name_list *missing,
                                  const char *key, ckpt_error *err) {
  if (missing->n == 0) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_ENOTFOUND, all->list[number].index->path, NULL,
                               "%zu module%s that %s names %s no tensors here: %s", missing->n, ckpt_plural(missing->n),
                               key, missing->n == 1 ? "has" : "have", missing->text),
                     err, "%allow_partial merges what is there");
}

ckpt_status ckpt_changes_check_targets(const ckpt_adapters *all, uint32_t number, ckpt_error *err) {
  ckpt_peft *peft = &all->list[number].peft;
  ckpt_name_list missing = {.n = 0};
  if (all->options.allow_partial || all->list[number].scale == 0) return CKPT_OK;
  for (uint32_t i = 0; i < all->base->n_tensors; i++) {
    const ckpt_tensor *tensor = &all->base->tensors[i];
    char module[CKPT_ADAPTER_NAME];
    bool is_target, is_known;
    if (tensor->rank < 2 || !ckpt_text_ends(tensor->name, ".weight") || !module_of(module, tensor->name)) continue;
    CKPT_TRY(targets(&is_target, &is_known, all, peft, module, tensor, err));
    if (!is_known) return CKPT_OK;
    if (is_target && !is_changed(all, number, tensor)) ckpt_name_list_add(&missing, module);
  }
  return refuse_missing(all, number, &missing, "target_modules", err);
}

/* ---- factors that PEFT would not use ----------------------------------------------------------------------------- */

/* Whether the config targets the matrix under one of its names, as modules that ensure_weight_tying ties do. */
static ckpt_status targets_any(bool *is_target, bool *is_known, const ckpt_adapters *all, ckpt_peft *peft,
                               const ckpt_change *pair, ckpt_error *err) {
  const char *const *alias = pair->base->aliases;
  char module[CKPT_ADAPTER_NAME];
  bool is_tied = false;
  CKPT_TRY(targets(is_target, is_known, all, peft, pair->module, pair->base, err));
  if (*is_target || !*is_known) return CKPT_OK;
  if (module_of(module, pair->name)) CKPT_TRY(targets(is_target, is_known, all, peft, module, pair->base, err));
  ckpt_config_bool(peft->config, "ensure_weight_tying", &is_tied);
  if (*is_target || !is_tied) return CKPT_OK;
  if (module_of(module, pair->base->name)) CKPT_TRY(targets(is_target, is_known, all, peft, module, pair->base, err));
  for (; !*is_target && alias != NULL && *alias != NULL; alias++)
    if (module_of(module, *alias)) CKPT_TRY(targets(is_target, is_known, all, peft, module, pair->base, err));
  return CKPT_OK;
}

ckpt_status ckpt_change_check_target(ckpt_adapters *all, const ckpt_change *pair, const char *wrapper,
                                     ckpt_error *err) {
  ckpt_peft *peft = &all->list[pair->adapter].peft;
  const char *leaf = strrchr(pair->name, '.');
  bool is_target, is_known;
  if (ckpt_peft_targets_parameter(peft, pair->module, leaf == NULL ? pair->name : leaf + 1)) return CKPT_OK;
  CKPT_TRY(targets_any(&is_target, &is_known, all, peft, pair, err));
  if (!is_target && is_known && wrapper != NULL)
    CKPT_TRY(targets(&is_target, &is_known, all, peft, wrapper, pair->base, err));
  if (is_target || !is_known) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "the config does not target '%s' (target_modules), and so PEFT would not use this", pair->module);
}

/* ---- what is saved whole or in rows ------------------------------------------------------------------------------ */

/* Whether modules_to_save names the module of a tensor of the base. */
static bool is_whole(const ckpt_peft *peft, const char *name) {
  char module[CKPT_ADAPTER_NAME];
  return module_of(module, name) && ckpt_peft_names_whole(peft, module);
}

static bool is_row(const char *name, const char *wanted) {
  char module[CKPT_ADAPTER_NAME];
  return ckpt_text_ends(name, ".weight") && module_of(module, name) && ckpt_adapter_ends_with(module, wanted);
}

/* Whether one of a tensor's names is meant: by modules_to_save, or (wanted) as a module of rows. */
static bool is_meant(const ckpt_peft *peft, const ckpt_tensor *tensor, const char *wanted) {
  bool is = wanted == NULL ? is_whole(peft, tensor->name) : is_row(tensor->name, wanted);
  for (const char *const *alias = tensor->aliases; !is && alias != NULL && *alias != NULL; alias++)
    is = wanted == NULL ? is_whole(peft, *alias) : is_row(*alias, wanted);
  return is;
}

static ckpt_status check_saved(const ckpt_adapters *all, uint32_t number, uint32_t first, ckpt_error *err) {
  const ckpt_peft *peft = &all->list[number].peft;
  ckpt_name_list missing = {.n = 0};
  bool is_anywhere = false;
  if (peft->saved.n == 0) return CKPT_OK;
  for (uint32_t i = 0; i < all->base->n_tensors; i++) {
    const ckpt_tensor *tensor = &all->base->tensors[i];
    if (tensor->role != CKPT_ROLE_PARAMETER || !is_meant(peft, tensor, NULL)) continue;
    is_anywhere = true;
    if (!all->is_given[i]) ckpt_name_list_add(&missing, tensor->name);
  }
  for (uint32_t i = first; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    is_anywhere = is_anywhere || is_whole(peft, c->name) || (c->whole != NULL && is_whole(peft, c->module));
  }
  for (size_t i = 0; !is_anywhere && i < peft->saved.n; i++) ckpt_name_list_add(&missing, peft->saved.names[i]);
  return refuse_missing(all, number, &missing, "modules_to_save", err);
}

static ckpt_status check_rows(const ckpt_adapters *all, uint32_t number, uint32_t first, ckpt_error *err) {
  const ckpt_peft *peft = &all->list[number].peft;
  ckpt_name_list missing = {.n = 0};
  const char *module;
  for (size_t i = 0; ckpt_peft_rows_of(peft, i, &module); i++) {
    bool is_there = false;
    for (uint32_t k = first; k < all->n_changes; k++) {
      const ckpt_change *c = &all->changes[k];
      is_there = is_there || (c->rows != NULL && (module == NULL || ckpt_adapter_ends_with(c->module, module)));
    }
    for (uint32_t k = 0; !is_there && module != NULL && k < all->base->n_tensors; k++)
      is_there = all->is_given[k] && is_meant(peft, &all->base->tensors[k], module);
    if (!is_there) ckpt_name_list_add(&missing, module == NULL ? "the input embedding" : module);
  }
  return refuse_missing(all, number, &missing, "trainable_token_indices", err);
}

ckpt_status ckpt_changes_check_given(const ckpt_adapters *all, uint32_t number, uint32_t first, ckpt_error *err) {
  if (all->options.allow_partial) return CKPT_OK;
  CKPT_TRY(check_saved(all, number, first, err));
  return check_rows(all, number, first, err);
}

/* ---- what changes nothing ---------------------------------------------------------------------------------------- */

static bool is_zero(const ckpt_opened_adapter *adapter, const ckpt_tensor *tensor) {
  return adapter->is_zero[tensor - adapter->index->tensors];
}

static bool has_effect(const ckpt_opened_adapter *adapter, const ckpt_change *c) {
  if (c->whole != NULL || c->rows != NULL) return true;
  if ((float)c->scale == 0) return false; /* products are in f32 */
  if (c->bias != NULL && !is_zero(adapter, c->bias)) return true;
  return c->input != NULL && !is_zero(adapter, c->output) && !is_zero(adapter, c->input);
}

ckpt_status ckpt_changes_check_noop(const ckpt_adapters *all, uint32_t number, ckpt_error *err) {
  const ckpt_opened_adapter *adapter = &all->list[number];
  size_t n = 0, n_unscaled = 0, n_tiny = 0, n_zero = 0;
  const char *why = "what it has the base has already";
  if (all->options.allow_noop) return CKPT_OK;
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    if (c->adapter != number) continue;
    if (has_effect(adapter, c)) return CKPT_OK;
    n++;
    n_unscaled += c->scale == 0;
    n_tiny += (float)c->scale == 0;
    n_zero += c->output == NULL || is_zero(adapter, c->output);
  }
  if (adapter->scale == 0)
    why = "its scale is 0";
  else if (n != 0 && n_unscaled == n)
    why = "lora_alpha is 0";
  else if (n != 0 && n_tiny == n)
    why = "its scale is so small that it is 0 in f32";
  else if (n != 0)
    why = n_zero == n ? "every lora_B is zero, as if it was never trained"
                      : "every lora_A or lora_B is zero, or its alpha";
  return ckpt_advise(
      ckpt_fail(err, CKPT_EVALUE, adapter->index->path, NULL, "%s: the merged model would be the base", why), err,
      "%allow_noop merges it");
}
