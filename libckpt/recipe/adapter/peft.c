/* peft.c - see peft.h. */
#include "libckpt/recipe/adapter/peft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/adapter/names.h"

#define CONFIG "adapter_config.json"

enum { MAX_RULES = 4096 };

/* Keys that stand for another update than scale * B x A where they are set, and what they are called. */
static const struct {
  const char *key, *name;
} refused[] = {{"use_qalora", "QA-LoRA"},
               {"alora_invocation_tokens", "aLoRA, which depends on the input"},
               {"arrow_config", "Arrow, which depends on the input"},
               {"use_bdlora", "BD-LoRA"},
               {"megatron_config", "Megatron's layers"},
               {"layer_replication", "replicated layers"},
               {"monteclora_config", "MonteCLoRA"},
               {"kasa_config", "KaSA"}};

/* Keys that are named as those and change nothing that is saved. */
static const char *const harmless[] = {"use_rslora",    "use_dora",       "eva_config",
                                       "corda_config",  "lora_ga_config", "loftq_config", /* by init_lora_weights */
                                       "velora_config", "runtime_config"};

/* What later versions of PEFT may add: a variant of LoRA is a key of one of these forms. */
static ckpt_status check_unknown(const ckpt_config *config, ckpt_error *err) {
  const char *key;
  for (size_t i = 0; i < MAX_RULES && (key = ckpt_config_key(config, i)) != NULL; i++) {
    bool is_set = ckpt_config_has(config, key), is_known = false;
    if (strncmp(key, "use_", 4) != 0 && !ckpt_text_ends(key, "_config")) continue;
    (void)ckpt_config_bool(config, key, &is_set);
    for (size_t k = 0; k < sizeof harmless / sizeof *harmless; k++)
      is_known = is_known || strcmp(key, harmless[k]) == 0;
    if (is_set && !is_known)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "adapters with %.60s are not merged", key);
  }
  return CKPT_OK;
}

/* An initialization that took something off the base: updates are for what was left of that. */
static ckpt_status check_init(const ckpt_config *config, ckpt_error *err) {
  static const char *const plain[] = {"gaussian", "eva", "orthogonal", "mica", "true", "false"};
  const char *how;
  if (!ckpt_config_text(config, "init_lora_weights", &how)) return CKPT_OK;
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strcmp(how, plain[i]) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "init_lora_weights is %.60s: its updates are for a base from which the initialization was taken off "
                   "(save it with path_initial_model_for_weight_conversion)",
                   how);
}

static ckpt_status check_kind(const ckpt_config *config, ckpt_error *err) {
  const char *type;
  bool is_set;
  if (!ckpt_config_text(config, "peft_type", &type))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "peft_type is missing");
  if (strcmp(type, "LORA") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "adapters of the type %.60s are not merged (LORA is)", type);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (ckpt_config_has(config, refused[i].key) && (!ckpt_config_bool(config, refused[i].key, &is_set) || is_set))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "adapters with %s are not merged: %s", refused[i].key,
                       refused[i].name);
  CKPT_TRY(check_unknown(config, err));
  return check_init(config, err);
}

ckpt_status ckpt_peft_compile(ckpt_pattern **out, ckpt_peft *peft, const char *expression, const char *text,
                              ckpt_error *err) {
  ckpt_error mistake = {0};
  const ckpt_status status = ckpt_pattern_new_search(out, expression, text, 0, &peft->n_steps, &mistake);
  if (status == CKPT_OK) return CKPT_OK;
  return ckpt_fail_as(err, status == CKPT_EINVAL ? CKPT_EFORMAT : status, NULL, NULL, &mistake);
}

/* A rule of rank_pattern or alpha_pattern holds for modules that end in what it says, or match it as Python would. */
static ckpt_status read_rules(ckpt_peft_rule **rules, size_t *n, ckpt_peft *peft, const ckpt_config *config,
                              const char *key, ckpt_error *err) {
  const ckpt_config_kind kind = ckpt_config_kind_of(config, key);
  const char *name;
  double value;
  if (kind != CKPT_CONFIG_ABSENT && kind != CKPT_CONFIG_NULL && kind != CKPT_CONFIG_OBJECT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is no object of patterns and numbers", key);
  while (ckpt_config_entry(config, key, *n, &name, &value)) {
    if (*n == MAX_RULES) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%s: more than %d patterns", key, MAX_RULES);
    char *expression = NULL;
    ckpt_peft_rule *grown = reallocarray(*rules, *n + 1, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    *rules = grown;
    grown[*n] = (ckpt_peft_rule){.value = value};
    if (!(value > 0)) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s: '%s' has no positive number", key, name);
    if (asprintf(&expression, "^(?:.*\\.)?(?:%s)$", name) < 0)
      return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    const ckpt_status status = ckpt_peft_compile(&grown[*n].pattern, peft, expression, name, err);
    free(expression);
    CKPT_TRY(status);
    ++*n;
  }
  return CKPT_OK;
}

static ckpt_status check_bias(const ckpt_config *config, ckpt_error *err) {
  static const char *const modes[] = {"none", "all", "lora_only"};
  const char *bias;
  if (!ckpt_config_text(config, "bias", &bias)) return CKPT_OK;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (strcmp(bias, modes[i]) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "bias is '%.60s': none, all or lora_only", bias);
}

static ckpt_status read_config(ckpt_peft *out, const ckpt_config *config, ckpt_error *err) {
  CKPT_TRY(check_kind(config, err));
  ckpt_config_bool(config, "use_rslora", &out->is_rslora);
  ckpt_config_bool(config, "use_dora", &out->is_dora);
  ckpt_config_bool(config, "lora_bias", &out->has_bias);
  ckpt_config_bool(config, "fan_in_fan_out", &out->is_transposed);
  if (!ckpt_config_number(config, "r", &out->rank) || !(out->rank > 0))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "r is no positive number");
  if (!ckpt_config_number(config, "lora_alpha", &out->alpha) || !isfinite(out->alpha))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "lora_alpha is missing or no number");
  CKPT_TRY(check_bias(config, err));
  CKPT_TRY(ckpt_peft_read_modules(out, err));
  CKPT_TRY(read_rules(&out->ranks, &out->n_ranks, out, config, "rank_pattern", err));
  return read_rules(&out->alphas, &out->n_alphas, out, config, "alpha_pattern", err);
}

static ckpt_status parse_config(ckpt_config **out, const ckpt_index *adapter, const ckpt_side_file *side,
                                const char *path, ckpt_error *err) {
  if (side->n_bytes > CKPT_CONFIG_MAX_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "%llu bytes, at most %llu are read",
                     (unsigned long long)side->n_bytes, (unsigned long long)CKPT_CONFIG_MAX_BYTES);
  if (side->text != NULL) return ckpt_config_parse(out, side->text, side->n_bytes, path, err);
  char *text = malloc((size_t)side->n_bytes + 1);
  CKPT_TRY_ALLOC(text, err);
  ckpt_status status =
      ckpt_source_read(ckpt_index_side_source(adapter, side), side->file, 0, text, (size_t)side->n_bytes, err);
  if (status == CKPT_OK) status = ckpt_config_parse(out, text, side->n_bytes, path, err);
  free(text);
  return status;
}

ckpt_status ckpt_peft_config(ckpt_config **out, const char **path, const ckpt_index *adapter, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(adapter, CONFIG);
  if (side == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, adapter->path, NULL, "no " CONFIG ": this is no folder that PEFT saved");
  *path = ckpt_index_side_path(adapter, side);
  return parse_config(out, adapter, side, *path, err);
}

ckpt_status ckpt_peft_read(ckpt_peft *out, const ckpt_index *adapter, ckpt_error *err) {
  *out = (ckpt_peft){.n_steps = CKPT_PATTERN_STEPS};
  CKPT_TRY(ckpt_peft_config(&out->config, &out->path, adapter, err));
  return ckpt_fail_at(read_config(out, out->config, err), err, out->path, NULL);
}

ckpt_status ckpt_peft_parse(ckpt_peft *out, const char *text, const char *path, ckpt_error *err) {
  *out = (ckpt_peft){.n_steps = CKPT_PATTERN_STEPS, .path = path};
  CKPT_TRY(ckpt_config_parse(&out->config, text, strlen(text), path, err));
  return ckpt_fail_at(read_config(out, out->config, err), err, path, NULL);
}

void ckpt_peft_free(ckpt_peft *peft) {
  for (size_t i = 0; i < peft->n_ranks; i++) ckpt_pattern_free(peft->ranks[i].pattern);
  for (size_t i = 0; i < peft->n_alphas; i++) ckpt_pattern_free(peft->alphas[i].pattern);
  ckpt_peft_free_modules(peft);
  free(peft->ranks);
  free(peft->alphas);
  ckpt_config_free(peft->config);
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

ckpt_status ckpt_peft_rank(double *rank, ckpt_peft *peft, const char *module, ckpt_error *err) {
  *rank = peft->rank;
  return ckpt_fail_at(find_value(peft->ranks, peft->n_ranks, module, rank, err), err, peft->path, NULL);
}

ckpt_status ckpt_peft_scale(ckpt_peft *peft, const char *module, uint64_t rank, double *scale, ckpt_error *err) {
  double stated, alpha = peft->alpha;
  CKPT_TRY(ckpt_peft_rank(&stated, peft, module, err));
  CKPT_TRY(ckpt_fail_at(find_value(peft->alphas, peft->n_alphas, module, &alpha, err), err, peft->path, NULL));
  if (rank != 0 && stated != (double)rank)
    return ckpt_fail(err, CKPT_EFORMAT, peft->path, NULL, "module '%s' has rank %g here, its tensors have %llu", module,
                     stated, (unsigned long long)rank);
  *scale = alpha / (peft->is_rslora ? sqrt(stated) : stated);
  return CKPT_OK;
}
