/* model.c - which family a config names, what it says, and the table of parameters. */
#include "trainer/model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"

#define CKPT_FAMILY(name) extern const ckpt_family ckpt_family_##name;
#include "trainer/model/families.def"
#undef CKPT_FAMILY

static const ckpt_family *const families[] = {
#define CKPT_FAMILY(name) &ckpt_family_##name,
#include "trainer/model/families.def"
#undef CKPT_FAMILY
};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* ---- what a config says ---------------------------------------------------------------------------------------------
 */

static ckpt_status fail_value(const ckpt_config *config, const char *key, const char *wanted, ckpt_error *err) {
  char shown[128];
  ckpt_config_show(config, key, shown, sizeof shown);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is %s, which cannot be (%s)", key, shown, wanted);
}

ckpt_status ckpt_model_int(const ckpt_config *config, const char *key, uint64_t min, uint64_t max, int64_t otherwise,
                           uint64_t *out, ckpt_error *err) {
  int64_t value = otherwise;
  char wanted[96];
  (void)snprintf(wanted, sizeof wanted, "%" PRIu64 " to %" PRIu64, min, max);
  if (!ckpt_config_has(config, key)) {
    if (otherwise < 0)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has no %s, without which no model is made", key);
  } else if (!ckpt_config_int(config, key, &value) || value < 0 || (uint64_t)value < min || (uint64_t)value > max) {
    return fail_value(config, key, wanted, err);
  }
  *out = (uint64_t)value;
  return CKPT_OK;
}

ckpt_status ckpt_model_number(const ckpt_config *config, const char *key, double min, double max, double otherwise,
                              double *out, ckpt_error *err) {
  double value = otherwise;
  char wanted[96];
  (void)snprintf(wanted, sizeof wanted, "%g to %g", min, max);
  if (ckpt_config_has(config, key) && (!ckpt_config_number(config, key, &value) || !(value >= min && value <= max)))
    return fail_value(config, key, wanted, err);
  *out = value;
  return CKPT_OK;
}

ckpt_status ckpt_model_rate(const ckpt_config *config, const char *key, double otherwise, double *out,
                            ckpt_error *err) {
  CKPT_TRY(ckpt_model_number(config, key, 0, 1, otherwise, out, err));
  if (*out < 1) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s 1: a rate of dropout has to be below 1", key);
}

ckpt_status ckpt_model_bool(const ckpt_config *config, const char *key, bool otherwise, bool *out, ckpt_error *err) {
  bool value = otherwise;
  if (ckpt_config_has(config, key) && !ckpt_config_bool(config, key, &value))
    return fail_value(config, key, "true or false", err);
  *out = value;
  return CKPT_OK;
}

ckpt_status ckpt_model_text(const ckpt_config *config, const char *key, const char **value, ckpt_error *err) {
  return ckpt_config_text(config, key, value) || !ckpt_config_has(config, key) ? CKPT_OK
                                                                               : fail_value(config, key, "a text", err);
}

/* ---- the family -----------------------------------------------------------------------------------------------------
 */

static bool is_one_of(const char *const *known, const char *name) {
  while (*known != NULL && strcmp(*known, name) != 0) known++;
  return *known != NULL;
}

static const ckpt_family *family_of_class(const char *name) {
  for (uint32_t i = 0; i < N_FAMILIES; i++)
    if (is_one_of(families[i]->classes, name) || is_one_of(families[i]->classifiers, name)) return families[i];
  return NULL;
}

/* The class that a model_type stands for: at the same place of its family's lists. */
static const char *class_of_type(const char *type) {
  for (uint32_t i = 0; i < N_FAMILIES; i++)
    for (uint32_t j = 0; families[i]->model_types[j] != NULL; j++)
      if (strcmp(families[i]->model_types[j], type) == 0) return families[i]->classes[j];
  return NULL;
}

/* What a class that gives labels says of them. */
static ckpt_status find_labels(ckpt_model *model, const ckpt_config *config, bool may_have_labels, ckpt_error *err) {
  if (!may_have_labels)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "'%s' gives labels, not tokens: `ckpt logits` alone can run it", model->architecture);
  if (!ckpt_config_labels(config, &model->n_labels) || model->n_labels == 0 || model->n_labels > INT32_MAX)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "id2label and num_labels do not agree on a number of labels");
  return CKPT_OK;
}

static ckpt_status find_family(const ckpt_family **out, ckpt_model *model, const ckpt_config *config,
                               bool may_have_labels, ckpt_error *err) {
  const char *name = NULL, *type = NULL;
  if (ckpt_config_has(config, "architectures") && ckpt_config_kind_of(config, "architectures") != CKPT_CONFIG_LIST)
    return fail_value(config, "architectures", "a list of texts", err);
  CKPT_TRY(ckpt_model_text(config, "architectures.0", &name, err));
  CKPT_TRY(ckpt_model_text(config, "model_type", &type, err));
  if (name == NULL) {
    if (type == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has neither architectures nor model_type");
    name = class_of_type(type);
    if (name == NULL)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "models of type '%s' cannot be run yet", type);
  }
  *out = family_of_class(name);
  if (*out == NULL) return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "'%s' cannot be run yet", name);
  model->family = (*out)->name;
  model->architecture = ckpt_arena_copy(&model->arena, name);
  CKPT_TRY_ALLOC(model->architecture, err);
  if (!ckpt_config_int(config, "pad_token_id", &model->padding_id)) model->padding_id = INT64_MIN;
  return is_one_of((*out)->classifiers, name) ? find_labels(model, config, may_have_labels, err) : CKPT_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------------------
 */

static ckpt_status grow_table(ckpt_model *model, ckpt_error *err) {
  if (model->n_parameters < model->parameter_capacity) return CKPT_OK;
  uint32_t wanted = model->parameter_capacity == 0 ? 64 : model->parameter_capacity * 2;
  ckpt_parameter *grown = ckpt_arena_array(&model->arena, wanted, sizeof *grown);
  CKPT_TRY_ALLOC(grown, err);
  if (model->n_parameters > 0) memcpy(grown, model->parameters, model->n_parameters * sizeof *grown);
  model->parameters = grown;
  model->parameter_capacity = wanted;
  return CKPT_OK;
}

static void find_split(const ckpt_model *model, ckpt_parameter *p) {
  uint64_t numbers[2];
  const ckpt_arch *arch = ckpt_arch_find(model->family);
  const ckpt_arch_name *row = arch == NULL ? NULL : ckpt_arch_match(arch, p->name, numbers);
  p->split_axis = row == NULL ? -1 : row->split_axis;
  p->split_parts = row != NULL && (row->notes & CKPT_NAME_FUSED_QKV) != 0 ? 3 : 1;
}

ckpt_status ckpt_model_add(ckpt_model *model, const char *pattern, int32_t layer, uint32_t rank, const uint64_t *shape,
                           ckpt_initialization init, double std, uint32_t *value, ckpt_error *err) {
  CKPT_TRY(grow_table(model, err));
  ckpt_parameter *p = &model->parameters[model->n_parameters];
  const uint64_t number = (uint64_t)layer;
  *p = (ckpt_parameter){.rank = rank, .dtype = CKPT_F32, .init = init, .init_std = std};
  p->name = layer < 0 ? ckpt_arena_copy(&model->arena, pattern) : ckpt_arch_fill(pattern, &number, &model->arena);
  CKPT_TRY_ALLOC(p->name, err);
  p->zero_row = -1;
  p->decays = rank >= 2;
  find_split(model, p);
  p->layer = layer;
  for (uint32_t i = 0; i < rank; i++) p->shape[i] = shape[i];
  if (!ckpt_product_u64(shape, rank, &p->n_elements) || !ckpt_add_u64(model->n_flat, p->n_elements, &model->n_flat) ||
      model->n_flat > UINT64_MAX / 64)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, p->name, "the model has more elements than fit 64 bits");
  model->n_flat = (model->n_flat + 15) / 16 * 16;
  model->n_elements += p->n_elements;
  CKPT_TRY(ckpt_tape_parameter(&model->tape, p->name, model->n_parameters, rank, shape, &p->value, err));
  *value = p->value;
  model->n_parameters++;
  return CKPT_OK;
}

/* Of classes that give labels: no family has it among its names, and it comes last. */
static const char score[] = "score.weight";

ckpt_status ckpt_model_head(ckpt_model *model, uint32_t y, uint64_t width, double std, bool is_tied, ckpt_error *err) {
  uint32_t weight = model->parameters[0].value;
  const bool has_labels = model->n_labels != 0, shares = is_tied && !model->is_untied && !has_labels;
  const uint64_t shape[] = {ckpt_model_logits(model), width};
  if (shares)
    model->parameters[0].tied_name = "lm_head.weight";
  else
    CKPT_TRY(ckpt_model_add(model, has_labels ? score : "lm_head.weight", -1, 2, shape, CKPT_INIT_NORMAL, std, &weight,
                            err));
  if (is_tied && !shares && !has_labels) model->parameters[model->n_parameters - 1].source = model->parameters[0].name;
  ckpt_tape_entry entry = {.op = CKPT_OP_linear_loss,
                           .n_in = 2,
                           .n_parameters = 1,
                           .in = {y, model->tape.inputs[CKPT_INPUT_TARGETS]},
                           .parameters = {weight}};
  return ckpt_tape_record(&model->tape, &entry, err);
}

ckpt_status ckpt_model_dropout(ckpt_model *model, double rate, uint32_t *value, ckpt_error *err) {
  if (rate == 0 || !model->tape.needs_backward) return CKPT_OK;
  ckpt_tape_entry entry = {.op = CKPT_OP_dropout, .n_in = 1, .in = {*value}, .attributes = {.dropout = rate}};
  CKPT_TRY(ckpt_tape_record(&model->tape, &entry, err));
  *value = entry.out[0];
  return CKPT_OK;
}

const ckpt_parameter *ckpt_model_parameters(const ckpt_model *model, uint32_t *n) {
  *n = model->n_parameters;
  return model->parameters;
}

const ckpt_parameter *ckpt_model_find(const ckpt_model *model, const char *name) {
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    if (strcmp(p->name, name) == 0 || (p->tied_name != NULL && strcmp(p->tied_name, name) == 0)) return p;
  }
  return NULL;
}

/* ---- life -----------------------------------------------------------------------------------------------------------
 */

/* What a parameter is ordered by: its place among the model's own, of those that have none the order of recording. */
typedef struct ordered {
  uint64_t place[CKPT_ARCH_PLACE];
  uint32_t number;
} ordered;

static int by_place(const void *a, const void *b) {
  const ordered *x = a, *y = b;
  for (int i = 0; i < CKPT_ARCH_PLACE; i++)
    if (x->place[i] != y->place[i]) return x->place[i] < y->place[i] ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

/* Puts the table into the order of the model's named_parameters(), and gives each parameter its place in the buffer. */
static ckpt_status order_table(ckpt_model *model, ckpt_error *err) {
  const uint32_t n = model->n_parameters;
  const ckpt_arch *arch = ckpt_arch_find(model->family);
  ordered *order = ckpt_arena_array(&model->arena, (size_t)n + 1, sizeof *order);
  ckpt_parameter *sorted = ckpt_arena_array(&model->arena, (size_t)n + 1, sizeof *sorted);
  CKPT_TRY_ALLOC(order, err);
  CKPT_TRY_ALLOC(sorted, err);
  for (uint32_t i = 0; i < n; i++) {
    order[i].number = i;
    if (strcmp(model->parameters[i].name, score) == 0)
      memset(order[i].place, 0xFF, sizeof order[i].place);
    else if (arch == NULL || !ckpt_arch_place(arch, model->parameters[i].name, order[i].place))
      return ckpt_fail(err, CKPT_EINTERNAL, NULL, model->parameters[i].name, "has no place in the family's names");
  }
  qsort(order, n, sizeof *order, by_place);
  model->n_flat = 0;
  for (uint32_t i = 0; i < n; i++) {
    sorted[i] = model->parameters[order[i].number];
    sorted[i].offset = model->n_flat;
    model->n_flat += (sorted[i].n_elements + 15) / 16 * 16;
    model->tape.values[sorted[i].value].parameter = i;
  }
  model->parameters = sorted;
  return CKPT_OK;
}

static ckpt_status build(ckpt_model *model, const ckpt_config *config, const ckpt_model_options *options,
                         ckpt_error *err) {
  const ckpt_family *family = NULL;
  CKPT_TRY(find_family(&family, model, config, options != NULL && options->may_have_labels, err));
  CKPT_TRY(ckpt_tape_init(&model->tape, &model->arena, options != NULL && options->needs_backward, err));
  model->tape.is_bf16 = options != NULL && options->is_bf16;
  model->is_untied = options != NULL && options->is_untied;
  CKPT_TRY(family->build(model, config, err));
  return order_table(model, err);
}

ckpt_status ckpt_model_new(ckpt_model **out, const char *config_json, size_t n_bytes, const char *file,
                           const ckpt_model_options *options, ckpt_error *err) {
  ckpt_config *config = NULL;
  CKPT_TRY(ckpt_config_parse(&config, config_json, n_bytes, file, err));
  ckpt_model *model = calloc(1, sizeof *model);
  ckpt_status status = model == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  if (status == CKPT_OK) {
    ckpt_arena_init(&model->arena, UINT64_C(1) << 30);
    status = build(model, config, options, err);
  }
  ckpt_config_free(config);
  if (status == CKPT_OK)
    *out = model;
  else
    ckpt_model_free(model);
  return ckpt_fail_at(status, err, file, NULL);
}

void ckpt_model_free(ckpt_model *model) {
  if (model == NULL) return;
  ckpt_arena_free(&model->arena);
  free(model);
}
