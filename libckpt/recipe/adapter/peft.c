/* peft.c - see peft.h. */
#include "libckpt/recipe/adapter/peft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

#define CONFIG "adapter_config.json"

/* Keys that stand for another update than scale * B x A where they are set. */
static const char *const refused[] = {
    "use_qalora", "alora_invocation_tokens", "arrow_config",      "megatron_config",
    "eva_config", "layer_replication",       "monteclora_config", "kappa_tuner_config"};

/* Set in an adapter whose base is not the one it was trained on, but what its initialization left of that. */
static ckpt_status check_init(const ckpt_config *config, ckpt_error *err) {
  const char *how;
  if (!ckpt_config_text(config, "init_lora_weights", &how)) return CKPT_OK;
  if (strncmp(how, "pissa", 5) != 0 && strcmp(how, "olora") != 0 && strcmp(how, "corda") != 0 &&
      strcmp(how, "lora_ga") != 0)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "init_lora_weights is %s: its updates are for a base from which the initialization was taken off "
                   "(save it with path_initial_model_for_weight_conversion)",
                   how);
}

static ckpt_status check_kind(const ckpt_config *config, ckpt_error *err) {
  const char *type;
  bool is_set;
  if (!ckpt_config_text(config, "peft_type", &type))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "peft_type is missing");
  if (strcmp(type, "LORA") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "adapters of the type %s are not merged (LORA is)", type);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (ckpt_config_has(config, refused[i]) && (!ckpt_config_bool(config, refused[i], &is_set) || is_set))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "adapters with %s are not merged", refused[i]);
  return check_init(config, err);
}

/* A rule of rank_pattern or alpha_pattern holds for modules that end in what it says, or match it as Python would. */
static ckpt_status read_rules(ckpt_peft_rule **rules, size_t *n, ckpt_peft *peft, const ckpt_config *config,
                              const char *key, ckpt_error *err) {
  const char *name;
  double value;
  while (ckpt_config_entry(config, key, *n, &name, &value)) {
    char *expression = NULL;
    ckpt_peft_rule *grown = reallocarray(*rules, *n + 1, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    *rules = grown;
    grown[*n] = (ckpt_peft_rule){.value = value};
    if (!(value > 0)) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s: '%s' has no positive number", key, name);
    if (asprintf(&expression, "^(?:.*\\.)?(?:%s)$", name) < 0)
      return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    ckpt_status status = ckpt_pattern_new_search(&grown[*n].pattern, expression, name, 0, &peft->n_steps, err);
    free(expression);
    CKPT_TRY(status);
    ++*n;
  }
  return CKPT_OK;
}

static ckpt_status read_config(ckpt_peft *out, const ckpt_config *config, ckpt_error *err) {
  CKPT_TRY(check_kind(config, err));
  ckpt_config_bool(config, "use_rslora", &out->is_rslora);
  ckpt_config_bool(config, "use_dora", &out->is_dora);
  ckpt_config_bool(config, "fan_in_fan_out", &out->is_transposed);
  if (!ckpt_config_number(config, "r", &out->rank) || !(out->rank > 0))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "r is no positive number");
  if (!ckpt_config_number(config, "lora_alpha", &out->alpha) || !isfinite(out->alpha))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "lora_alpha is missing or no number");
  CKPT_TRY(read_rules(&out->ranks, &out->n_ranks, out, config, "rank_pattern", err));
  return read_rules(&out->alphas, &out->n_alphas, out, config, "alpha_pattern", err);
}

ckpt_status ckpt_peft_read(ckpt_peft *out, ckpt_index *adapter, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(adapter, CONFIG);
  const char *text;
  ckpt_config *config = NULL;
  if (side == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, adapter->path, NULL, "no " CONFIG ": this is no folder that PEFT saved");
  *out = (ckpt_peft){.path = ckpt_index_side_path(adapter, side), .n_steps = CKPT_PATTERN_STEPS};
  CKPT_TRY(ckpt_index_side_text(adapter, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  CKPT_TRY(ckpt_config_parse(&config, text, side->n_bytes, out->path, err));
  ckpt_status status = ckpt_fail_at(read_config(out, config, err), err, out->path, NULL);
  ckpt_config_free(config);
  return status;
}

void ckpt_peft_free(ckpt_peft *peft) {
  for (size_t i = 0; i < peft->n_ranks; i++) ckpt_pattern_free(peft->ranks[i].pattern);
  for (size_t i = 0; i < peft->n_alphas; i++) ckpt_pattern_free(peft->alphas[i].pattern);
  free(peft->ranks);
  free(peft->alphas);
  *peft = (ckpt_peft){0};
}

static ckpt_status find_value(const ckpt_peft_rule *rules, size_t n, const char *module, double *value,
                              ckpt_error *err) {
  for (size_t i = 0; i < n; i++) {
    bool is_match;
    CKPT_TRY(ckpt_pattern_match(rules[i].pattern, module, &is_match, err));
    if (!is_match) continue;
    *value = rules[i].value;
    return CKPT_OK;
  }
  return CKPT_OK;
}

ckpt_status ckpt_peft_scale(ckpt_peft *peft, const char *module, uint64_t rank, double *scale, ckpt_error *err) {
  double stated = peft->rank, alpha = peft->alpha;
  CKPT_TRY(ckpt_fail_at(find_value(peft->ranks, peft->n_ranks, module, &stated, err), err, peft->path, NULL));
  CKPT_TRY(ckpt_fail_at(find_value(peft->alphas, peft->n_alphas, module, &alpha, err), err, peft->path, NULL));
  if (rank != 0 && stated != (double)rank)
    return ckpt_fail(err, CKPT_EFORMAT, peft->path, NULL, "module '%s' has rank %g here, its tensors have %llu", module,
                     stated, (unsigned long long)rank);
  *scale = alpha / (peft->is_rslora ? sqrt(stated) : stated);
  return CKPT_OK;
}
