/* order.c - which parameter of the model a state of its optimizer is of.
 *
 * By name, where the optimizer has names (accelerate's, gathered by FSDP). By number else: files of weights do not keep
 * the model's order, but where the architecture is known, its row does (arch.h). One group is all parameters in that
 * order. Two groups are the Trainer's: first those that decay, then norms and biases, which do not
 * (Trainer.get_decay_parameter_names): in these architectures those of one axis. What LoRA puts into a module stands
 * where the module does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/optimizer.h"
#include "libckpt/base/error.h"
#include "libckpt/index/config.h"
#include "libckpt/index/name_table.h"

enum { MAX_NAME = 4096 };

#define ADAPTED_BASE "base_model.model." /* PEFT's names begin with, then comes the base model's */

/* A parameter of the model and its place in the model's order. */
typedef struct placed {
  uint32_t tensor;
  bool decays;
  uint64_t place[CKPT_ARCH_PLACE];
} placed;

/* ---- the model's ties -------------------------------------------------------------------------------------------- */

static bool is_stored(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (strcmp(index->tensors[i].name, name) == 0) return true;
  return false;
}

/* Tensors that are stored though the config ties them to others, which are the parameters: bit i, for tie i. */
static uint32_t find_tied(const ckpt_hf_optimizer *o) {
  uint32_t found = 0;
  for (uint32_t t = 0; o->arch != NULL && t < CKPT_MAX_TIES && o->arch->ties[t].kept != NULL; t++)
    if ((o->index->ties >> t & 1) != 0 && is_stored(o->index, o->arch->ties[t].kept)) found |= UINT32_C(1) << t;
  return found;
}

/* The tensor that stands for one that is tied; NULL: it is none. */
static const char *kept_for(const ckpt_hf_optimizer *o, uint32_t ties, const char *name) {
  for (uint32_t t = 0; o->arch != NULL && t < CKPT_MAX_TIES && o->arch->ties[t].kept != NULL; t++)
    if ((ties >> t & 1) != 0 && strcmp(o->arch->ties[t].tied, name) == 0) return o->arch->ties[t].kept;
  return NULL;
}

/* ---- by number --------------------------------------------------------------------------------------------------- */

static int compare_placed(const void *x, const void *y) {
  const placed *a = x, *b = y;
  if (a->decays != b->decays) return a->decays ? -1 : 1;
  for (uint32_t i = 0; i < CKPT_ARCH_PLACE; i++)
    if (a->place[i] != b->place[i]) return a->place[i] < b->place[i] ? -1 : 1;
  return 0;
}

/* Where a parameter stands, and whether it decays. */
static bool place_param(const ckpt_arch *arch, const ckpt_tensor *tensor, placed *param) {
  param->decays = tensor->rank > 1;
  return ckpt_arch_place(arch, tensor->name, param->place);
}

/* The same of an adapter's: a part of a module, or the whole of one that was trained with it. PEFT keeps the parts in
 * this order, and calls nothing but biases and norms what the Trainer does not let decay. */
static bool place_adapted(const ckpt_arch *arch, const ckpt_tensor *tensor, placed *param) {
  static const char *const parts[] = {".lora_A.weight",    ".lora_B.weight",    ".lora_B.bias",
                                      ".lora_embedding_A", ".lora_embedding_B", ".lora_magnitude_vector"};
  char name[MAX_NAME];
  const size_t n = strlen(tensor->name), n_base = sizeof ADAPTED_BASE - 1;
  if (n >= sizeof name || strncmp(tensor->name, ADAPTED_BASE, n_base) != 0) return false;
  ckpt_tensor whole = *tensor;
  whole.name = name;
  uint64_t part = 0;
  snprintf(name, sizeof name, "%s", tensor->name + n_base);
  for (uint64_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *at = strstr(name, parts[i]);
    if (at == NULL || strcmp(at, parts[i]) != 0) continue;
    snprintf(name + (at - name), sizeof name - (size_t)(at - name), ".weight");
    part = i + 1;
  }
  if (!place_param(arch, &whole, param)) return false;
  param->decays |= part != 0 && strcmp(parts[part - 1], ".lora_B.bias") != 0;
  param->place[CKPT_ARCH_PLACE - 1] = param->place[CKPT_ARCH_PLACE - 1] * 8 + part;
  return true;
}

/* Weights of the base, which an adapter of its embedding has beside its own and does not train. */
static bool is_base(const char *name) { return strstr(name, ".base_layer.") != NULL; }

/* The row that has a place for all of an adapter's parameters: its own config names none. */
static const ckpt_arch *find_adapted(const ckpt_index *index) {
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++) {
    placed param;
    uint32_t i = 0;
    while (i < index->n_tensors &&
           (is_base(index->tensors[i].name) || place_adapted(*arch, &index->tensors[i], &param)))
      i++;
    if (i == index->n_tensors) return *arch;
  }
  return NULL;
}

/* The model's parameters as the optimizer numbers them. */
static bool order_params(ckpt_hf_optimizer *o, placed *params) {
  const uint32_t ties = find_tied(o);
  for (uint32_t i = 0; i < o->index->n_tensors; i++) {
    const ckpt_tensor *tensor = &o->index->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role))
      return ckpt_hf_refuse(o, "the model's files have '%.200s'", tensor->name);
    if (tensor->role != CKPT_ROLE_PARAMETER || kept_for(o, ties, tensor->name) != NULL) continue;
    if (o->is_adapter && is_base(tensor->name)) continue;
    placed *param = &params[o->n_params++];
    param->tensor = i;
    if (!(o->is_adapter ? place_adapted : place_param)(o->arch, tensor, param))
      return ckpt_hf_refuse(o, "where '%.200s' stands among a %s's parameters is not known", tensor->name,
                            o->arch->name);
    param->decays &= o->groups->n == 2;
    o->n_decay += param->decays;
  }
  qsort(params, o->n_params, sizeof *params, compare_placed);
  for (uint32_t i = 0; i < o->n_params; i++) o->members[i] = o->params[i] = params[i].tensor;
  return true;
}

/* Whether a release of transformers wrote it whose models had that order. */
static ckpt_status check_version(ckpt_hf_optimizer *o, bool *is_ordered, ckpt_error *err) {
  const int64_t *since = o->arch->ordered_since;
  const ckpt_side_file *side = ckpt_index_side_file(o->index, "config.json");
  ckpt_config *config = NULL;
  ckpt_error broken = {0};
  const char *text, *version;
  *is_ordered = true;
  if (side == NULL || side->n_bytes > CKPT_CONFIG_MAX_BYTES) return CKPT_OK;
  CKPT_TRY(ckpt_index_side_text(o->index, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  if (ckpt_config_parse(&config, text, side->n_bytes, side->name, &broken) == CKPT_ENOMEM)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (config != NULL && ckpt_config_text(config, "transformers_version", &version)) {
    char *end;
    const long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    *is_ordered = major != since[0] ? major > since[0] : minor >= since[1];
    if (!*is_ordered)
      ckpt_hf_refuse(o, "of transformers %.20s, whose %s had another order than since %d.%d", version, o->arch->name,
                     (int)since[0], (int)since[1]);
  }
  ckpt_config_free(config);
  return CKPT_OK;
}

/* Whether a group's parameters decay: no number, and it does not say. */
static bool is_decaying(const ckpt_object *group) {
  const ckpt_object *decay = ckpt_object_field(group, "weight_decay");
  return decay != NULL && ((decay->kind == CKPT_OBJECT_FLOAT && decay->number != 0) ||
                           (decay->kind == CKPT_OBJECT_INT && decay->integer != 0));
}

static bool check_counts(ckpt_hf_optimizer *o) {
  const uint64_t n_first = ckpt_object_field(o->groups->items[0], "params")->n, n_second = o->n_numbered - n_first;
  if (o->groups->n == 1 && n_first != o->n_params)
    return ckpt_hf_refuse(o, "%" PRIu64 " parameters, and the model has %" PRIu32, n_first, o->n_params);
  if (o->groups->n == 2 && (n_first != o->n_decay || n_second != o->n_params - o->n_decay))
    return ckpt_hf_refuse(o,
                          "groups of %" PRIu64 " and %" PRIu64 " parameters, and %" PRIu32 " and %" PRIu32
                          " by the Trainer's rule of what decays",
                          n_first, n_second, o->n_decay, o->n_params - o->n_decay);
  if (o->groups->n == 2 && is_decaying(o->groups->items[1]))
    return ckpt_hf_refuse(o, "its second group decays, which by the Trainer's rule does not");
  if (o->states->n != o->n_params)
    return ckpt_hf_refuse(o, "states of %" PRIu64 " of %" PRIu32 " parameters", o->states->n, o->n_params);
  for (uint32_t i = 0; i < o->n_params; i++)
    if (o->states->items[2 * (size_t)i]->kind != CKPT_OBJECT_INT || o->states->items[2 * (size_t)i]->integer != i)
      return ckpt_hf_refuse(o, "its states are not numbered one after the other");
  return true;
}

static ckpt_status order_by_number(ckpt_hf_optimizer *o, bool *fits, ckpt_error *err) {
  o->is_adapter = ckpt_index_side_file(o->index, "adapter_config.json") != NULL;
  if (o->is_adapter) o->arch = find_adapted(o->index);
  if (o->arch == NULL) {
    *fits = ckpt_hf_refuse(o, "its parameters are numbers in the order of a model that is not known");
    return CKPT_OK;
  }
  if (o->groups->n != 1 && o->groups->n != 2) {
    *fits = ckpt_hf_refuse(o, "%" PRIu64 " groups (the Trainer makes two, others one)", o->groups->n);
    return CKPT_OK;
  }
  CKPT_TRY(check_version(o, fits, err));
  if (!*fits) return CKPT_OK;
  placed *params = calloc((size_t)o->index->n_tensors + 1, sizeof *params);
  CKPT_TRY_ALLOC(params, err);
  *fits = order_params(o, params) && check_counts(o);
  free(params);
  return CKPT_OK;
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

typedef struct finder {
  ckpt_hf_optimizer *o;
  ckpt_name_table *table;
  uint32_t ties;
  uint8_t *is_member, *has_states; /* of each tensor of the index */
} finder;

/* The parameter that a name is of, whose wrappers went and which may lack the prefix of a bare model; -1: none. */
static ckpt_status find_name(const finder *f, const ckpt_object *name, int64_t *number, ckpt_error *err) {
  const ckpt_hf_optimizer *o = f->o;
  *number = -1;
  if (name->kind != CKPT_OBJECT_TEXT || name->n > MAX_NAME || strlen(name->text) != name->n) return CKPT_OK;
  char prefixed[2 * MAX_NAME];
  const char *bare = name->text;
  *number = ckpt_name_table_find(f->table, bare);
  if (*number < 0) {
    CKPT_TRY_ALLOC(bare = ckpt_name_unwrapped(bare, &f->o->nodes), err);
    *number = ckpt_name_table_find(f->table, bare);
  }
  if (*number < 0 && o->arch != NULL) {
    snprintf(prefixed, sizeof prefixed, "%s%s", o->arch->base_prefix, bare);
    *number = ckpt_name_table_find(f->table, prefixed);
  }
  const char *kept = *number < 0 ? NULL : kept_for(o, f->ties, o->index->tensors[*number].name);
  if (kept != NULL) *number = ckpt_name_table_find(f->table, kept);
  if (*number >= 0 && o->index->tensors[*number].role != CKPT_ROLE_PARAMETER) *number = -1;
  return CKPT_OK;
}

/* Puts the parameter of a name into a list; *fits is false where there is none, or it is there already. */
static ckpt_status take_name(const finder *f, const ckpt_object *name, uint8_t *is_seen, uint32_t *slot, bool *fits,
                             ckpt_error *err) {
  int64_t number;
  const char *text = name->kind == CKPT_OBJECT_TEXT ? name->text : "";
  CKPT_TRY(find_name(f, name, &number, err));
  if (number < 0)
    *fits = ckpt_hf_refuse(f->o, "it speaks of '%.200s', which is no parameter of the model's files", text);
  else if (is_seen[number] != 0)
    *fits = ckpt_hf_refuse(f->o, "it has '%.200s' twice", f->o->index->tensors[number].name);
  if (!*fits) return CKPT_OK;
  is_seen[number] = 1;
  *slot = (uint32_t)number;
  return CKPT_OK;
}

static ckpt_status take_names(finder *f, bool *fits, ckpt_error *err) {
  ckpt_hf_optimizer *o = f->o;
  uint32_t n = 0;
  if (o->n_numbered > o->index->n_tensors || o->states->n > o->index->n_tensors) {
    *fits = ckpt_hf_refuse(o, "%" PRIu64 " parameters and states of %" PRIu64 ", and the model has %" PRIu32 " tensors",
                           o->n_numbered, o->states->n, o->index->n_tensors);
    return CKPT_OK;
  }
  for (uint64_t g = 0; g < o->groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(o->groups->items[g], "params");
    for (uint64_t i = 0; i < params->n && *fits; i++)
      CKPT_TRY(take_name(f, params->items[i], f->is_member, &o->members[n++], fits, err));
  }
  for (uint64_t i = 0; i < o->states->n && *fits; i++)
    CKPT_TRY(take_name(f, o->states->items[2 * i], f->has_states, &o->params[o->n_params++], fits, err));
  for (uint32_t i = 0; i < o->n_params && *fits; i++)
    if (f->is_member[o->params[i]] == 0)
      *fits = ckpt_hf_refuse(o, "'%.200s' has states and is in no group", o->index->tensors[o->params[i]].name);
  return CKPT_OK;
}

static ckpt_status order_by_name(ckpt_hf_optimizer *o, bool *fits, ckpt_error *err) {
  const size_t n = (size_t)o->index->n_tensors + 1;
  finder f = {.o = o, .ties = find_tied(o), .is_member = calloc(n, 1), .has_states = calloc(n, 1)};
  ckpt_status status = ckpt_name_table_new(&f.table, o->index, err);
  if (status == CKPT_OK && (f.is_member == NULL || f.has_states == NULL))
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  *fits = true;
  if (status == CKPT_OK) status = take_names(&f, fits, err);
  ckpt_name_table_free(f.table);
  free(f.is_member);
  free(f.has_states);
  return status;
}

ckpt_status ckpt_hf_order(ckpt_hf_optimizer *o, bool *fits, ckpt_error *err) {
  return o->is_named ? order_by_name(o, fits, err) : order_by_number(o, fits, err);
}
