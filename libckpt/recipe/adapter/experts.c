/* experts.c - updates of experts, whose factors PEFT keeps in one pair (target_parameters). See changes.h.
 *
 * Of E experts and rank r, A is (E * r, in), an expert after the other, and B (out, r * E), the experts of one column
 * of rank side by side. The parameter is fused, (E, out, in) or (E, in, out), or the base has a matrix an expert: files
 * of Mixtral call them w1, w2, w3. Source: PEFT's ParamWrapper.get_delta_weight. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/adapter/changes.h"

typedef unsigned long long ull;

enum { MAX_EXPERTS = 4096 };

/* A parameter of the module, as the base has it. */
typedef struct parameter {
  const char *leaf;
  ckpt_adapter_place fused;      /* tensor NULL: a matrix an expert */
  const char *prefix, *parts[2]; /* of that: <prefix>.<expert>.<part>.weight; parts[1] NULL: one */
  uint64_t n_experts, n_rows[2]; /* rows of each part */
  uint64_t out, in;              /* of one expert, as the update has it */
  bool fits, is_transposed;
} parameter;

/* What is fused of what, in the families that do. */
static const struct {
  const char *leaf, *parts[2];
} splits[] = {{"gate_up_proj", {"gate_proj", "up_proj"}},
              {"gate_up_proj", {"w1", "w3"}},
              {"down_proj", {"down_proj", NULL}},
              {"down_proj", {"w2", NULL}}};

static ckpt_adapter_place expert_at(const ckpt_adapters *all, const parameter *p, uint64_t expert, size_t part) {
  char name[CKPT_ADAPTER_NAME + 64];
  ckpt_c_snprintf(name, sizeof name, "%s.%llu.%s.weight", p->prefix, (ull)expert, p->parts[part]);
  const ckpt_adapter_place found = ckpt_adapter_find(all->base, name);
  const bool is_matrix = found.tensor != NULL && found.tensor->rank == 2;
  return is_matrix ? found : (ckpt_adapter_place){0};
}

/* ---- what the base has ------------------------------------------------------------------------------------------- */

static bool find_fused(parameter *p, const ckpt_adapters *all, const char *module) {
  char name[CKPT_ADAPTER_NAME + 64];
  ckpt_c_snprintf(name, sizeof name, "%s.%s", module, p->leaf);
  p->fused = ckpt_adapter_find(all->base, name);
  if (p->fused.tensor == NULL || (p->fused.tensor->rank != 3 && p->fused.tensor->rank != 2)) return false;
  const ckpt_tensor *tensor = p->fused.tensor;
  p->n_experts = tensor->rank == 3 ? tensor->shape[0] : 1;
  p->out = tensor->shape[tensor->rank - 2];
  p->in = tensor->shape[tensor->rank - 1];
  return true;
}

static bool find_split(parameter *p, const ckpt_adapters *all, const char *module) {
  p->fused = (ckpt_adapter_place){0};
  p->prefix = module;
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
    if (strcmp(splits[i].leaf, p->leaf) != 0) continue;
    memcpy(p->parts, splits[i].parts, sizeof p->parts);
    p->out = p->in = p->n_rows[1] = 0;
    for (size_t k = 0; k < 2 && p->parts[k] != NULL; k++) {
      const ckpt_adapter_place first = expert_at(all, p, 0, k);
      p->n_rows[k] = first.tensor == NULL ? 0 : first.tensor->shape[0];
      p->in = first.tensor == NULL ? 0 : first.tensor->shape[1];
      p->out += p->n_rows[k];
    }
    for (p->n_experts = 0; p->in != 0 && expert_at(all, p, p->n_experts, 0).tensor != NULL;) p->n_experts++;
    if (p->n_experts != 0) return true;
  }
  return false;
}

/* Families whose experts transformers marks as (E, in, out), which PEFT asks; 1: this is one, 0: none, -1: nothing says
 * which. */
static ckpt_status type_transposes(int *out, const ckpt_adapters *all, ckpt_error *err) {
  static const char *const types[] = {"gpt_oss", "openai_privacy_filter", "aria", "aria_text"};
  ckpt_config *config;
  const char *type;
  CKPT_TRY(ckpt_config_of(&config, all->base, err));
  *out = -1;
  if (config != NULL && ckpt_config_text(config, "model_type", &type)) {
    *out = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
      if (strcmp(type, types[i]) == 0) *out = 1;
  }
  ckpt_config_free(config);
  return CKPT_OK;
}

static bool fits(const parameter *p, const ckpt_change *pair, bool is_transposed) {
  const uint64_t out = is_transposed ? p->in : p->out, in = is_transposed ? p->out : p->in;
  return pair->output->shape[0] == out && pair->input->shape[1] == in && p->n_experts != 0 &&
         pair->input->shape[0] % p->n_experts == 0;
}

static ckpt_status look(parameter *p, const ckpt_adapters *all, const ckpt_change *pair, ckpt_error *err) {
  const bool is_split = p->fused.tensor == NULL, may_transpose = !is_split && p->fused.tensor->rank == 3;
  p->is_transposed = may_transpose && !fits(p, pair, false);
  p->fits = fits(p, pair, p->is_transposed);
  if (!may_transpose || !p->fits || p->out != p->in) return CKPT_OK;
  int by_type;
  CKPT_TRY(type_transposes(&by_type, all, err));
  if (by_type < 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "'%s' has square experts, and no config.json beside the base shows how they lie", p->fused.name);
  p->is_transposed = by_type == 1;
  return CKPT_OK;
}

/* ---- its changes ------------------------------------------------------------------------------------------------- */

static ckpt_status add_changes(ckpt_adapters *all, const parameter *p, const ckpt_change *pair, ckpt_error *err) {
  ckpt_change change = *pair, *added;
  const char *path = ckpt_arena_printf(&all->arena, "%s.%s", pair->module, p->leaf);
  CKPT_TRY_ALLOC(path, err);
  change.n_experts = (uint32_t)p->n_experts;
  change.is_transposed = p->is_transposed;
  change.rank = pair->input->shape[0] / p->n_experts;
  CKPT_TRY(ckpt_change_set_scale(&change, all, path, 1, err));
  change.base = p->fused.tensor;
  change.name = p->fused.name;
  if (change.base != NULL) return ckpt_change_add(&added, all, &change, err);
  for (uint32_t expert = 0; expert < change.n_experts; expert++) {
    change.first = 0;
    for (size_t k = 0; k < 2 && p->parts[k] != NULL; k++) {
      const ckpt_adapter_place place = expert_at(all, p, expert, k);
      if (place.tensor == NULL || place.tensor->shape[0] != p->n_rows[k] || place.tensor->shape[1] != p->in)
        return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "expert %u of %s.%s is not as the first", expert, p->prefix,
                         p->parts[k]);
      change.base = place.tensor;
      change.name = place.name;
      change.expert = expert;
      CKPT_TRY(ckpt_change_add(&added, all, &change, err));
      change.first += p->n_rows[k];
    }
  }
  return CKPT_OK;
}

static ckpt_status refuse(const ckpt_change *pair, const parameter *p, const char *other, ckpt_error *err) {
  if (other != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "could be of '%s' and of '%s' of the module '%s'", other,
                     p->leaf, pair->module);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                   "its update is %llu x %llu, and %s.%s has %llu experts of %llu x %llu", (ull)pair->output->shape[0],
                   (ull)pair->input->shape[1], pair->module, p->leaf, (ull)p->n_experts, (ull)p->out, (ull)p->in);
}

ckpt_status ckpt_change_experts(bool *found, ckpt_adapters *all, const ckpt_change *pair, ckpt_error *err) {
  const ckpt_config *config = all->list[pair->adapter].peft.config;
  parameter last = {0}, chosen = {0};
  const char *target;
  *found = false;
  for (size_t i = 0; ckpt_config_item(config, "target_parameters", i, &target); i++) {
    char path[CKPT_ADAPTER_NAME + 64];
    const char *leaf = strrchr(target, '.');
    parameter p = {.leaf = leaf == NULL ? target : leaf + 1};
    ckpt_c_snprintf(path, sizeof path, "%s.%s", pair->module, p.leaf);
    if (!ckpt_adapter_ends_with(path, target)) continue;
    if (chosen.leaf != NULL && strcmp(chosen.leaf, p.leaf) == 0) continue; /* named twice */
    if (!find_fused(&p, all, pair->module) && !find_split(&p, all, pair->module)) continue;
    CKPT_TRY(look(&p, all, pair, err));
    *found = true;
    last = p;
    if (p.fits && chosen.leaf != NULL) return refuse(pair, &p, chosen.leaf, err);
    if (p.fits) chosen = p;
  }
  if (!*found) return CKPT_OK;
  if (last.n_experts > MAX_EXPERTS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%llu experts (at most %d)", (ull)last.n_experts, MAX_EXPERTS);
  if (chosen.leaf == NULL) return refuse(pair, &last, NULL, err);
  if (pair->magnitude != NULL || all->list[pair->adapter].peft.is_dora)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "DoRA of experts is not merged");
  return add_changes(all, &chosen, pair, err);
}
