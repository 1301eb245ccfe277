/* models.c - see models.h. Source: transformers' conversion_mapping.py. */
#include "libckpt/recipe/adapter/models.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/changes.h"

/* prefix, of which n bytes count, and what follows it. */
static const char *join(char out[CKPT_ADAPTER_NAME], const char *prefix, size_t n, const char *rest) {
  const int n_out = snprintf(out, CKPT_ADAPTER_NAME, "%.*s%s", (int)n, prefix, rest);
  return n_out > 0 && n_out < CKPT_ADAPTER_NAME ? out : NULL;
}

static bool has_below(const ckpt_index *base, const char *prefix) {
  const size_t n = strlen(prefix);
  for (uint32_t i = 0; i < base->n_tensors; i++)
    if (strncmp(base->tensors[i].name, prefix, n) == 0) return true;
  return false;
}

ckpt_status ckpt_model_find_tied(ckpt_adapter_place out[CKPT_TIED_NAMES + 1], uint32_t *n, const ckpt_index *base,
                                 ckpt_error *err) {
  ckpt_adapters all = {.base = base};
  *n = 0;
  CKPT_TRY(ckpt_adapters_find_tied(&all, err));
  for (uint32_t i = 0; i < all.n_tied; i++)
    if (!all.tied[i].is_alias) out[(*n)++] = all.tied[i].place;
  return CKPT_OK;
}

/* ---- names that transformers 5 changed --------------------------------------------------------------------------- */

const char *ckpt_model_name(char out[CKPT_ADAPTER_NAME], const ckpt_index *base, const char *name) {
  static const char sparse[] = ".block_sparse_moe.", head[] = "embed_out.";
  const char *at = strstr(name, sparse), *renamed = NULL;
  char first[CKPT_ADAPTER_NAME];
  if (at != NULL) { /* Mixtral's, of which files have a matrix an expert */
    snprintf(first, sizeof first, "%.*s%sexperts.0.w1.weight", (int)(at - name), name, sparse);
    if (ckpt_index_find(base, first) == NULL) return name;
    snprintf(first, sizeof first, ".mlp.%s", at + sizeof sparse - 1);
    renamed = join(out, name, (size_t)(at - name), first);
  } else if (strncmp(name, head, sizeof head - 1) == 0 && base->architecture != NULL &&
             strcmp(base->architecture, "gpt_neox") == 0) {
    renamed = join(out, "lm_head.", sizeof "lm_head." - 1, name + sizeof head - 1);
  }
  return renamed != NULL ? renamed : name;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Whether the config's class is a model without a head. */
static ckpt_status find_bare(bool *is_bare, const ckpt_index *base, ckpt_error *err) {
  const char *class;
  ckpt_config *config;
  CKPT_TRY(ckpt_config_of(&config, base, err));
  *is_bare = config != NULL && ckpt_config_item(config, "architectures", 0, &class) && ckpt_text_ends(class, "Model") &&
             strstr(class, "Head") == NULL && strstr(class, "For") == NULL;
  ckpt_config_free(config);
  return CKPT_OK;
}

ckpt_status ckpt_model_look(ckpt_model_facts *out, const ckpt_index *base, ckpt_error *err) {
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  bool is_bare;
  int transposes;
  CKPT_TRY(find_bare(&is_bare, base, err));
  CKPT_TRY(ckpt_adapter_type_transposes(&transposes, base, err));
  *out = (ckpt_model_facts){.prefix = arch != NULL && is_bare ? arch->base_prefix : NULL,
                            .has_conv1d = arch == NULL && transposes == 1};
  return CKPT_OK;
}

bool ckpt_model_transposes(const ckpt_model_facts *facts, const ckpt_index *base, const ckpt_tensor *tensor) {
  static const char *const leaves[] = {"c_attn.weight", "c_proj.weight", "c_fc.weight", "q_attn.weight"};
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  uint64_t numbers[2];
  if (arch != NULL) {
    const ckpt_arch_name *row = ckpt_arch_match(arch, tensor->name, numbers);
    return row != NULL && (row->notes & CKPT_NAME_TRANSPOSE) != 0;
  }
  for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++)
    if (ckpt_adapter_ends_with(tensor->name, leaves[i])) return facts->has_conv1d;
  return false;
}

bool ckpt_model_routes(const ckpt_index *base, const ckpt_tensor *tensor) {
  static const char *const leaves[] = {"gate.weight", "router.weight"};
  char experts[CKPT_ADAPTER_NAME];
  for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++) {
    if (!ckpt_adapter_ends_with(tensor->name, leaves[i])) continue;
    const size_t n = strlen(tensor->name) - strlen(leaves[i]);
    return join(experts, tensor->name, n, "experts.") != NULL && has_below(base, experts);
  }
  return false;
}
