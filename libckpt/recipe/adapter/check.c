/* check.c - an adapter alone: its config as a merge reads it, and its tensors against that. See forms.h.
 *
 * What only the base shows is not looked at: whether its modules are there, their shapes, and what they tie. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/defects.h"
#include "libckpt/index/ties.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/adapter/parts.h"

/* Reports a defect as a problem, and what no merge takes as unproven. */
static ckpt_status report(ckpt_findings *findings, ckpt_status status, const char *file, const char *tensor,
                          const ckpt_error *defect, ckpt_error *err) {
  if (status == CKPT_OK) return CKPT_OK;
  if (status == CKPT_EUNSUPPORTED)
    return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "adapter: %s: %s", tensor, defect->message);
  if (!ckpt_is_defect(status)) return ckpt_fail_as(err, status, file, tensor, defect);
  return ckpt_findings_add_error(findings, err, CKPT_PROBLEM, defect->file[0] != '\0' ? defect->file : file, tensor,
                                 defect);
}

/* Modules that a model may tie: its input embedding and its head. */
static bool may_be_tied(const ckpt_adapter_pair *pair) {
  char weight[CKPT_ADAPTER_NAME];
  ckpt_c_snprintf(weight, sizeof weight, "%s.weight", pair->module);
  return pair->is_embedding || ckpt_tie_is_head(weight);
}

/* The config's word on a pair: its rank, and whether it is targeted at all. */
static ckpt_status check_config(ckpt_peft *peft, const ckpt_adapter_pair *pair, ckpt_error *err) {
  bool is_target, is_known, is_tied = false;
  double scale;
  CKPT_TRY(ckpt_peft_targets(&is_target, &is_known, peft, pair->module, err));
  if (!is_target && is_known && pair->wrapper != NULL)
    CKPT_TRY(ckpt_peft_targets(&is_target, &is_known, peft, pair->wrapper, err));
  /* of a parameter that is targeted the rank is that of all experts */
  if (!(is_target && is_known) && ckpt_peft_targets_parameter(peft, pair->module, NULL)) return CKPT_OK;
  if (peft->is_dora != (pair->magnitude != NULL))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the config %s use_dora, and its magnitude vector is %s",
                     peft->is_dora ? "sets" : "does not set", pair->magnitude != NULL ? "there" : "missing");
  CKPT_TRY(ckpt_peft_scale(peft, pair->module, pair->input->shape[0], &scale, err));
  ckpt_config_bool(peft->config, "ensure_weight_tying", &is_tied);
  if (is_target || !is_known || (is_tied && may_be_tied(pair))) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "the config does not target '%s' (target_modules), and so PEFT would not use this", pair->module);
}

/* Tensors that are no parts of updates. */
static ckpt_status check_others(ckpt_findings *findings, const ckpt_peft *peft, const ckpt_index *adapter,
                                const ckpt_adapter_tensors *found, const ckpt_adapter_tensor *at,
                                const ckpt_adapter_tensor *end, ckpt_error *err) {
  for (; at < end; at++) {
    ckpt_error defect = {0};
    if (at->part != CKPT_ADAPTER_WHOLE) continue;
    const ckpt_status status = ckpt_adapter_check_whole(found, at, peft, &defect);
    CKPT_TRY(report(findings, status, ckpt_index_file_of(adapter, at->tensor), at->tensor->name, &defect, err));
  }
  return CKPT_OK;
}

static ckpt_status check_module(ckpt_findings *findings, ckpt_peft *peft, const ckpt_index *adapter,
                                const ckpt_adapter_tensors *found, const ckpt_adapter_tensor *at,
                                const ckpt_adapter_tensor *end, ckpt_error *err) {
  ckpt_adapter_pair pair;
  ckpt_error defect = {0};
  const char *name = at->tensor->name;
  ckpt_status status = ckpt_adapter_gather(&pair, &at, end, &defect);
  if (status == CKPT_OK) CKPT_TRY(check_others(findings, peft, adapter, found, at, end, err));
  if (status == CKPT_OK && !ckpt_adapter_is_pair(&pair) && pair.bias == NULL) return CKPT_OK;
  if (status == CKPT_OK) name = ckpt_adapter_pair_tensor(&pair)->name;
  if (status == CKPT_OK) status = ckpt_adapter_check_pair(&pair, peft, &defect);
  if (status == CKPT_OK) status = check_config(peft, &pair, &defect);
  return report(findings, status, ckpt_index_file_of(adapter, ckpt_index_find(adapter, name)), name, &defect, err);
}

static bool has_whole(const ckpt_adapter_tensors *found, const char *name) {
  for (uint32_t i = 0; i < found->n; i++)
    if (found->items[i].part == CKPT_ADAPTER_WHOLE && ckpt_peft_names_module_of(name, found->items[i].wanted))
      return true;
  return false;
}

/* Modules that the config says are saved whole; which of them the model has, only the base shows. */
static ckpt_status check_saved(ckpt_findings *findings, const ckpt_peft *peft, const ckpt_adapter_tensors *found,
                               ckpt_error *err) {
  ckpt_name_list missing = {.n = 0};
  bool has_any = false, has_head = false;
  for (size_t i = 0; i < peft->saved.n; i++) {
    const char *name = peft->saved.names[i];
    const bool has = has_whole(found, name);
    has_any = has_any || has;
    has_head = has_head || (has && ckpt_peft_is_task_head(name));
  }
  for (size_t i = 0; i < peft->saved.n; i++) {
    const char *name = peft->saved.names[i];
    if (!has_whole(found, name) && !(has_head && ckpt_peft_is_task_head(name))) ckpt_name_list_add(&missing, name);
  }
  if (missing.n == 0) return CKPT_OK;
  if (!has_any)
    return ckpt_findings_add(findings, err, CKPT_PROBLEM, peft->path, NULL,
                             "modules_to_save: no module of them (%s) has tensors here", missing.text);
  return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "adapter: %s of modules_to_save: no tensors are here, so the base must lack %s",
                           missing.text, missing.n == 1 ? "it" : "them");
}

/* Modules that have rows alone. */
static ckpt_status check_rows(ckpt_findings *findings, const ckpt_peft *peft, const ckpt_adapter_tensors *found,
                              ckpt_error *err) {
  const char *module;
  if (!ckpt_peft_rows_of(peft, 0, &module)) return CKPT_OK;
  for (uint32_t i = 0; i < found->n; i++)
    if (found->items[i].part == CKPT_ADAPTER_ROWS) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, peft->path, NULL, "trainable_token_indices: no rows are here");
}

static ckpt_status check_tensors(ckpt_findings *findings, ckpt_peft *peft, const ckpt_index *adapter, ckpt_error *err) {
  ckpt_adapter_tensors found = {0};
  ckpt_arena arena;
  ckpt_status status = CKPT_OK;
  ckpt_arena_init(&arena, adapter->max_bytes);
  for (size_t i = 0; i < ckpt_index_count(adapter) && status == CKPT_OK; i++) {
    const ckpt_tensor *tensor = ckpt_index_at(adapter, i);
    ckpt_error defect = {0};
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue; /* a trainer's states of it */
    status = ckpt_adapter_take(&found, &arena, tensor, &defect);
    status = report(findings, status, ckpt_index_file_of(adapter, tensor), tensor->name, &defect, err);
  }
  ckpt_adapter_sort(&found);
  for (uint32_t first = 0, end; first < found.n && status == CKPT_OK; first = end) {
    end = ckpt_adapter_module_end(&found, first);
    status = check_module(findings, peft, adapter, &found, found.items + first, found.items + end, err);
  }
  if (status == CKPT_OK) status = check_saved(findings, peft, &found, err);
  if (status == CKPT_OK) status = check_rows(findings, peft, &found, err);
  free(found.items);
  ckpt_arena_free(&arena);
  return status;
}

ckpt_status ckpt_adapter_verify(ckpt_findings *findings, const ckpt_index *adapter, ckpt_error *err) {
  const size_t n_problems = findings->n_of[CKPT_PROBLEM], n_unproven = findings->n_of[CKPT_UNPROVEN];
  ckpt_peft peft;
  ckpt_error defect = {0};
  ckpt_status status = ckpt_peft_read(&peft, adapter, &defect);
  if (status == CKPT_EUNSUPPORTED)
    status = ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "adapter: %s", defect.message);
  else if (status != CKPT_OK)
    status = report(findings, status == CKPT_EINVAL ? CKPT_EFORMAT : status, adapter->path, NULL, &defect, err);
  else
    status = check_tensors(findings, &peft, adapter, err);
  if (status == CKPT_OK && defect.status == CKPT_OK && peft.alpha == 0 && peft.n_alphas == 0)
    status = ckpt_findings_add(findings, err, CKPT_WARNING, peft.path, NULL,
                               "lora_alpha is 0: its lora_A and lora_B change nothing");
  const bool is_read = peft.config != NULL && defect.status == CKPT_OK;
  ckpt_peft_free(&peft);
  if (status != CKPT_OK || !is_read || findings->n_of[CKPT_PROBLEM] != n_problems ||
      findings->n_of[CKPT_UNPROVEN] != n_unproven)
    return status;
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL,
                           "adapter: modules, parts and ranks are what adapter_config.json says");
}
