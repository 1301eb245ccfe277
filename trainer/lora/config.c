/* config.c - PEFT's LoraConfig for a model: which parameters it adapts, and the table of what is trained. */
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"
#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/peft.h"
#include "trainer/lora/lora.h"

/* Every key that PEFT 0.21 writes, with its default, but for peft_version, which is that of the writer. */
static const char defaults[] =
    "{\"alora_invocation_tokens\":null,\"alpha_pattern\":{},\"arrow_config\":null,\"auto_mapping\":null,"
    "\"base_model_name_or_path\":null,\"bias\":\"none\",\"corda_config\":null,\"ensure_weight_tying\":false,"
    "\"eva_config\":null,\"exclude_modules\":null,\"fan_in_fan_out\":false,\"inference_mode\":true,"
    "\"init_lora_weights\":true,\"kasa_config\":null,\"layer_replication\":null,\"layers_pattern\":null,\"layers_to_"
    "transform\":null,"
    "\"loftq_config\":{},\"lora_alpha\":8,\"lora_bias\":false,\"lora_dropout\":0.0,\"lora_ga_config\":null,\"megatron_"
    "config\":null,"
    "\"megatron_core\":\"megatron.core\",\"modules_to_save\":null,\"monteclora_config\":null,\"peft_type\":\"LORA\","
    "\"qalora_group_size\":16,"
    "\"r\":8,\"rank_pattern\":{},\"revision\":null,\"target_modules\":null,\"target_parameters\":null,"
    "\"task_type\":\"CAUSAL_LM\",\"trainable_token_indices\":null,\"use_bdlora\":null,\"use_dora\":false,"
    "\"use_qalora\":false,\"use_rslora\":false,\"velora_config\":null}";

static ckpt_status wrong(const char *path, const char *key, const json_t *value, const char *why, ckpt_error *err) {
  char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const ckpt_status status =
      ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "%s %.100s: %s", key, text == NULL ? "" : text, why);
  free(text);
  return status;
}

static bool is_plain(const json_t *value) {
  return value == NULL || json_is_null(value) || json_is_false(value) ||
         (json_is_object(value) && json_object_size(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0);
}

static bool is_bias(const json_t *config, const char *which) {
  const char *bias = json_string_value(json_object_get(config, "bias"));
  return bias != NULL && strcmp(bias, which) == 0;
}

/* Keys of PEFT's whose default, null, says nothing of their kind: a list or a text, a text. */
static bool fits(const char *key, const json_t *value, const json_t *otherwise) {
  static const char *const lists[] = {"target_modules", "exclude_modules", "modules_to_save"};
  if (json_is_null(otherwise)) {
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
      if (strcmp(lists[i], key) == 0)
        return json_is_null(value) || json_is_array(value) || (i != 2 && json_is_string(value));
    return true;
  }
  if (strcmp(key, "init_lora_weights") == 0) return json_is_boolean(value) || json_is_string(value);
  if (json_is_object(otherwise)) return json_is_object(value) || json_is_null(value);
  if (json_is_boolean(otherwise)) return json_is_boolean(value);
  if (json_is_number(otherwise)) return json_is_number(value);
  return true;
}

/* Every key is one of PEFT's, with a value of its kind. A newer PEFT may write others, as long as they ask for nothing.
 */
static ckpt_status check_keys(json_t *config, const json_t *known, const char *path, ckpt_error *err) {
  const char *key;
  json_t *value;
  json_object_foreach(config, key, value) {
    const json_t *otherwise = json_object_get(known, key);
    if (otherwise == NULL && strcmp(key, "peft_version") != 0 && !is_plain(value))
      return ckpt_fail(err, CKPT_EINVAL, path, NULL, "%.100s: PEFT's LoraConfig has no such key", key);
    if (otherwise != NULL && !fits(key, value, otherwise))
      return wrong(path, key, value, "it is of another kind than PEFT's", err);
  }
  return CKPT_OK;
}

/* layers_to_transform is a layer or a list of them, and goes with names as target_modules, as PEFT has it. */
static ckpt_status check_layers(const json_t *config, const char *path, ckpt_error *err) {
  const json_t *layers = json_object_get(config, "layers_to_transform");
  bool is_fit = json_is_null(layers) || json_is_integer(layers) || json_is_array(layers);
  for (size_t i = 0; i < json_array_size(layers); i++) is_fit = is_fit && json_is_integer(json_array_get(layers, i));
  if (!is_fit) return wrong(path, "layers_to_transform", layers, "it has to be a number or a list of numbers", err);
  if (!json_is_null(layers) && json_is_string(json_object_get(config, "target_modules")))
    return wrong(path, "layers_to_transform", layers, "target_modules has to be a list beside it", err);
  if (json_is_null(layers) && !is_plain(json_object_get(config, "layers_pattern")))
    return wrong(path, "layers_pattern", json_object_get(config, "layers_pattern"), "layers_to_transform is not given",
                 err);
  return CKPT_OK;
}

/* What would be trained otherwise than it is here. */
static ckpt_status refuse(const json_t *config, const char *path, ckpt_error *err) {
  static const char *const absent[] = {"use_qalora",
                                       "lora_bias",
                                       "ensure_weight_tying",
                                       "layer_replication",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "alora_invocation_tokens",
                                       "use_bdlora",
                                       "megatron_config",
                                       "arrow_config",
                                       "kasa_config",
                                       "lora_ga_config",
                                       "monteclora_config",
                                       "velora_config"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    if (!is_plain(json_object_get(config, absent[i])))
      return wrong(path, absent[i], json_object_get(config, absent[i]), "it is not there yet", err);
  const json_t *type = json_object_get(config, "peft_type");
  const json_t *task = json_object_get(config, "task_type"), *init = json_object_get(config, "init_lora_weights");
  if (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)
    return wrong(path, "peft_type", type, "it has to be LORA", err);
  if (!is_bias(config, "none") && !is_bias(config, "lora_only") && !is_bias(config, "all"))
    return wrong(path, "bias", json_object_get(config, "bias"), "it has to be none, lora_only or all", err);
  if (!json_is_null(task) && (!json_is_string(task) || strcmp(json_string_value(task), "CAUSAL_LM") != 0))
    return wrong(path, "task_type", task, "it has to be CAUSAL_LM", err);
  if (!json_is_boolean(init) && (!json_is_string(init) || strcmp(json_string_value(init), "gaussian") != 0))
    return wrong(path, "init_lora_weights", init, "it has to be true, false or gaussian", err);
  return check_layers(config, path, err);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static bool is_embedding(const char *module) {
  const char *last = strrchr(module, '.');
  last = last == NULL ? module : last + 1;
  return strcmp(last, "embed_tokens") == 0 || strcmp(last, "wte") == 0 || strcmp(last, "wpe") == 0;
}

/* The module of a weight: its name without ".weight"; false where it is no matrix that a linear layer has. */
static bool module_of(char out[512], const ckpt_parameter *p) {
  static const char ending[] = ".weight";
  const size_t n = strlen(p->name), n_ending = sizeof ending - 1;
  if (p->rank != 2 || n <= n_ending || n >= 512 || !ckpt_text_ends(p->name, ending)) return false;
  ckpt_c_snprintf(out, 512, "%.*s", (int)(n - n_ending), p->name);
  return !is_embedding(out);
}

/* What a parameter's name has before its last dot. */
static void name_module(char out[512], const char *parameter) {
  ckpt_c_snprintf(out, 512, "%.*s", (int)(strrchr(parameter, '.') - parameter), parameter);
}

/* Whether a parameter lies in a module of modules_to_save. */
static bool is_whole(const ckpt_peft *peft, const char *parameter) {
  char module[512];
  name_module(module, parameter);
  return ckpt_peft_names_whole(peft, module);
}

/* Whether the config adapts a module that is a linear layer: of all of them, all but the head. */
static ckpt_status adapts(bool *out, ckpt_peft *peft, const char *module, ckpt_error *err) {
  bool is_known, is_excluded;
  CKPT_TRY(ckpt_peft_targets(out, &is_known, peft, module, err));
  if (is_known) return CKPT_OK;
  CKPT_TRY(ckpt_peft_excludes(&is_excluded, peft, module, err));
  *out = !is_excluded && !ckpt_adapter_ends_with(module, "lm_head");
  return CKPT_OK;
}

/* The same of the module of a weight. */
static ckpt_status is_adapted(bool *out, ckpt_peft *peft, const ckpt_parameter *p, char module[512], ckpt_error *err) {
  *out = false;
  return module_of(module, p) ? adapts(out, peft, module, err) : CKPT_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static ckpt_status add_parameter(ckpt_lora *l, const char *name, const ckpt_parameter *like, const uint64_t *shape,
                                 uint32_t rank, uint32_t *number, ckpt_error *err) {
  ckpt_model *t = &l->table;
  ckpt_parameter *p = &t->parameters[t->n_parameters];
  *p = (ckpt_parameter){.name = name, .rank = rank, .dtype = CKPT_F32, .n_elements = 1, .offset = t->n_flat};
  CKPT_TRY_ALLOC(name, err);
  for (uint32_t i = 0; i < rank; i++) p->n_elements *= p->shape[i] = shape[i];
  p->decays = like->decays;
  p->layer = like->layer;
  p->zero_row = -1;
  p->split_axis = -1;
  t->n_flat += (p->n_elements + 15) / 16 * 16;
  t->n_elements += p->n_elements;
  *number = t->n_parameters++;
  return CKPT_OK;
}

static ckpt_status add_target(ckpt_lora *l, ckpt_peft *peft, uint32_t base, const char *module, ckpt_error *err) {
  const ckpt_parameter *p = &l->base->parameters[base];
  const bool is_transposed = strcmp(l->base->family, "gpt2") == 0 && !ckpt_adapter_ends_with(module, "lm_head");
  double rank;
  CKPT_TRY(ckpt_peft_rank(&rank, peft, module, err));
  if (!(rank >= 1) || rank != floor(rank) || rank > 65536)
    return ckpt_fail(err, CKPT_EINVAL, peft->path, NULL, "%s gets rank %g: it has to be a whole number from 1 on",
                     module, rank);
  ckpt_lora_target *t = &l->targets[l->n_targets];
  *t = (ckpt_lora_target){.base = base,
                          .is_transposed = is_transposed,
                          .rank = (uint64_t)rank,
                          .n_in = p->shape[is_transposed ? 0 : 1],
                          .n_out = p->shape[is_transposed ? 1 : 0]};
  CKPT_TRY(ckpt_peft_scale(peft, module, t->rank, &t->scale, err));
  const uint64_t shape_a[] = {t->rank, t->n_in}, shape_b[] = {t->n_out, t->rank};
  CKPT_TRY(add_parameter(l, ckpt_arena_printf(&l->arena, "base_model.model.%s.lora_A.weight", module), p, shape_a, 2,
                         &t->a, err));
  CKPT_TRY(add_parameter(l, ckpt_arena_printf(&l->arena, "base_model.model.%s.lora_B.weight", module), p, shape_b, 2,
                         &t->b, err));
  l->n_targets++;
  t->magnitude = UINT32_MAX;
  if (!peft->is_dora) return CKPT_OK;
  t->norms = l->n_norms;
  l->n_norms += t->n_out;
  return add_parameter(l, ckpt_arena_printf(&l->arena, "base_model.model.%s.lora_magnitude_vector", module), p,
                       &t->n_out, 1, &t->magnitude, err);
}

/* The copy of a parameter that is trained whole. */
static ckpt_status add_copy(ckpt_lora *l, uint32_t base, const char *module, const char *rest, ckpt_error *err) {
  const ckpt_parameter *p = &l->base->parameters[base];
  const char *name = ckpt_arena_printf(&l->arena, "base_model.model.%s%s", module, rest);
  l->copies[l->n_copies].base = base;
  return add_parameter(l, name, p, p->shape, p->rank, &l->copies[l->n_copies++].own, err);
}

/* A bias, where the config wants it trained: of an adapted layer PEFT has it below base_layer. */
static ckpt_status add_bias(ckpt_lora *l, ckpt_peft *peft, const json_t *config, uint32_t base, const char *module,
                            ckpt_error *err) {
  char weight[640], ignored[512];
  bool is_target = false;
  if (!ckpt_text_ends(l->base->parameters[base].name, ".bias") || is_bias(config, "none")) return CKPT_OK;
  ckpt_c_snprintf(weight, sizeof weight, "%s.weight", module);
  const ckpt_parameter *p = ckpt_model_find(l->base, weight);
  if (p != NULL) CKPT_TRY(is_adapted(&is_target, peft, p, ignored, err));
  if (!is_target && !is_bias(config, "all")) return CKPT_OK;
  return add_copy(l, base, module, is_target ? ".base_layer.bias" : ".bias", err);
}

/* What PEFT would train, and is not trained here. *unties: one name of a tied tensor. */
static ckpt_status check_modules(bool *unties, const ckpt_lora *l, ckpt_peft *peft, ckpt_error *err) {
  for (uint32_t i = 0; i < l->base->n_parameters; i++) {
    const ckpt_parameter *p = &l->base->parameters[i];
    bool is_target = false;
    char module[512];
    name_module(module, p->name);
    if (is_embedding(module) && !peft->targets.is_all) CKPT_TRY(adapts(&is_target, peft, module, err));
    if (is_target)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, peft->path, NULL,
                       "target_modules takes %s: adapters of embeddings are not trained (modules_to_save is)", module);
    if (p->tied_name == NULL) continue;
    CKPT_TRY(adapts(&is_target, peft, "lm_head", err));
    *unties = *unties || is_target || is_whole(peft, p->name) || is_whole(peft, p->tied_name);
  }
  return CKPT_OK;
}

/* Some name of modules_to_save is one of the model's: a list may serve several families, as target_modules may. */
static ckpt_status check_saved(const ckpt_lora *l, const ckpt_peft *peft, const json_t *saved, ckpt_error *err) {
  bool is_some = peft->saved.n == 0;
  for (uint32_t i = 0; i < l->base->n_parameters && !is_some; i++)
    is_some = is_whole(peft, l->base->parameters[i].name);
  return is_some ? CKPT_OK : wrong(peft->path, "modules_to_save", saved, "the model has no such module", err);
}

static ckpt_status add_all(ckpt_lora *l, ckpt_peft *peft, const json_t *config, ckpt_error *err) {
  const uint32_t n = l->base->n_parameters;
  l->targets = ckpt_arena_array(&l->arena, n, sizeof *l->targets);
  l->copies = ckpt_arena_array(&l->arena, n, sizeof *l->copies);
  l->table.parameters = ckpt_arena_array(&l->arena, 3 * (size_t)n, sizeof *l->table.parameters);
  if (l->targets == NULL || l->copies == NULL || l->table.parameters == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_parameter *p = &l->base->parameters[i];
    char module[512];
    bool is_target = false;
    name_module(module, p->name);
    if (ckpt_peft_names_whole(peft, module)) {
      CKPT_TRY(add_copy(l, i, module, p->name + strlen(module), err));
      continue;
    }
    CKPT_TRY(add_bias(l, peft, config, i, module, err));
    CKPT_TRY(is_adapted(&is_target, peft, p, module, err));
    if (is_target) CKPT_TRY(add_target(l, peft, i, module, err));
  }
  if (l->n_targets != 0) return CKPT_OK;
  char *text = json_dumps(json_object_get(config, "target_modules"), JSON_ENCODE_ANY | JSON_COMPACT);
  const ckpt_status status =
      ckpt_fail(err, CKPT_ENOTFOUND, peft->path, NULL, "target_modules %.200s: no linear layer of %s is called so",
                text == NULL ? "" : text, l->base->architecture);
  free(text);
  return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static ckpt_status read_config(json_t **out, ckpt_lora *l, const char *path, ckpt_error *err) {
  char file[PATH_MAX];
  struct stat about;
  const bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
  ckpt_c_snprintf(file, sizeof file, "%s%s", path, is_folder ? "/adapter_config.json" : "");
  if (is_folder) l->folder = ckpt_arena_copy(&l->arena, path);
  json_t *given;
  CKPT_TRY(ckpt_config_json_file(&given, file, JSON_REJECT_DUPLICATES, err));
  *out = ckpt_config_json(defaults, strlen(defaults), 0, NULL);
  ckpt_status status = json_is_object(given) && *out != NULL
                           ? check_keys(given, *out, file, err)
                           : ckpt_fail(err, CKPT_EINVAL, file, NULL, "it has to be an object, a LoraConfig of PEFT");
  if (status == CKPT_OK && json_object_update(*out, given) != 0)
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  json_decref(given);
  return status;
}

/* What is not said: the modules that PEFT takes for the family, where the base is. */
static ckpt_status complete(json_t *config, const ckpt_lora *l, const char *model_path, ckpt_error *err) {
  const bool is_gpt2 = strcmp(l->base->family, "gpt2") == 0;
  char real[PATH_MAX];
  if (json_is_null(json_object_get(config, "target_modules")))
    json_object_set_new(config, "target_modules",
                        is_gpt2 ? json_pack("[s]", "c_attn") : json_pack("[s, s]", "q_proj", "v_proj"));
  json_object_set_new(config, "base_model_name_or_path",
                      json_string(realpath(model_path, real) != NULL ? real : model_path));
  json_object_set_new(config, "inference_mode", json_true());
  json_object_set_new(config, "fan_in_fan_out", json_boolean(is_gpt2));
  if (json_is_null(json_object_get(config, "task_type")))
    json_object_set_new(config, "task_type", json_string("CAUSAL_LM"));
  return json_is_number(json_object_get(config, "lora_alpha")) && json_is_number(json_object_get(config, "r"))
             ? CKPT_OK
             : ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "r and lora_alpha have to be numbers");
}

static ckpt_status add_modules(ckpt_lora *l, const json_t *config, const char *path, ckpt_error *err) {
  ckpt_peft peft;
  ckpt_status status = ckpt_peft_parse(&peft, l->config, path, err);
  if (status == CKPT_OK) status = check_modules(&l->unties, l, &peft, err);
  if (status == CKPT_OK && !l->unties) status = check_saved(l, &peft, json_object_get(config, "modules_to_save"), err);
  if (status == CKPT_OK && !l->unties) status = add_all(l, &peft, config, err);
  ckpt_peft_free(&peft);
  return status;
}

static ckpt_status fill(ckpt_lora *l, json_t *config, const char *path, const char *model_path, ckpt_error *err) {
  CKPT_TRY(complete(config, l, model_path, err));
  CKPT_TRY(refuse(config, path, err));
  char *text = json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS);
  l->config = text == NULL ? NULL : ckpt_arena_printf(&l->arena, "%s\n", text);
  free(text);
  CKPT_TRY_ALLOC(l->config, err);
  CKPT_TRY(add_modules(l, config, path, err));
  const json_t *init = json_object_get(config, "init_lora_weights");
  l->is_gaussian = json_is_string(init);
  l->is_zero = !json_is_false(init);
  l->dropout = json_number_value(json_object_get(config, "lora_dropout"));
  if (l->unties || (l->dropout >= 0 && l->dropout < 1)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, path, NULL, "lora_dropout %g: it has to be from 0 on and below 1", l->dropout);
}

ckpt_status ckpt_lora_new(ckpt_lora **out, const char *path, const ckpt_model *model, const char *model_path,
                          ckpt_error *err) {
  ckpt_lora *l = calloc(1, sizeof *l);
  json_t *config = NULL;
  CKPT_TRY_ALLOC(l, err);
  ckpt_arena_init(&l->arena, UINT64_C(256) << 20);
  l->base = model;
  l->table.family = model->family;
  l->table.architecture = model->architecture;
  ckpt_status status = read_config(&config, l, path, err);
  if (status == CKPT_OK) status = fill(l, config, path, model_path, err);
  json_decref(config);
  if (status != CKPT_OK) {
    ckpt_lora_free(l);
    return ckpt_fail_at(status, err, path, NULL);
  }
  *out = l;
  return CKPT_OK;
}

void ckpt_lora_free(ckpt_lora *l) {
  if (l == NULL) return;
  ckpt_arena_free(&l->arena);
  free(l);
}
