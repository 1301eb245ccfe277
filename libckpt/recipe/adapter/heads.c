/* heads.c - the head of another task, which an adapter has saved and its base lacks: the class of the merged model, its
 * labels, and the head of the base's class, which it lacks. See changes.h.
 *
 * The class is the base's with the ending of the task that the adapter's config names. Transformers counts the labels
 * in id2label, else takes num_labels (ckpt_config_labels). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/changes.h"

enum { MAX_LABELS = 4096 /* more are no labels */ };

static const struct {
  const char *task, *ending;
  bool has_labels;
} tasks[] = {{"SEQ_CLS", "ForSequenceClassification", true},
             {"TOKEN_CLS", "ForTokenClassification", true},
             {"QUESTION_ANS", "ForQuestionAnswering", false}};

/* What stands before the ending of a class: Bert of BertModel and BertForMaskedLM. */
static size_t stem_of(const char *class) {
  static const char *const endings[] = {"LMHeadModel", "DoubleHeadsModel", "Model"};
  for (const char *at = class; (at = strstr(at, "For")) != NULL; at++)
    if (at != class && isupper((unsigned char)at[3])) return (size_t)(at - class);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    const size_t n = strlen(class), n_ending = strlen(endings[i]);
    if (n > n_ending && strcmp(class + n - n_ending, endings[i]) == 0) return n - n_ending;
  }
  return 0;
}

/* The class of the merged model, in the arena; NULL where it is not known. */
static ckpt_status find_class(const char **out, ckpt_adapters *all, const char *ending, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(all->base, "config.json");
  ckpt_config *config;
  const char *class;
  *out = NULL;
  if (side == NULL || side->text == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, side->text, side->n_bytes, ckpt_index_side_path(all->base, side), err));
  ckpt_status status = CKPT_OK;
  const size_t n = ckpt_config_item(config, "architectures", 0, &class) ? stem_of(class) : 0;
  if (n != 0) {
    *out = ckpt_arena_printf(&all->arena, "%.*s%s", (int)n, class, ending);
    if (*out == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_config_free(config);
  return status;
}

ckpt_status ckpt_adapters_new_head(ckpt_adapters *all, uint32_t number, const char *name, const ckpt_tensor *tensor,
                                   ckpt_error *err) {
  const char *task;
  size_t i = 0;
  const bool is_first = !all->has_new_head;
  all->has_new_head = true;
  if (!ckpt_config_text(all->list[number].peft.config, "task_type", &task)) task = "";
  while (i < sizeof tasks / sizeof *tasks && strcmp(tasks[i].task, task) != 0) i++;
  if (i < sizeof tasks / sizeof *tasks) {
    if (is_first) CKPT_TRY(find_class(&all->class, all, tasks[i].ending, err));
    const bool is_last = ckpt_adapter_ends_with(name, "score.weight") ||
                         ckpt_adapter_ends_with(name, "out_proj.weight") ||
                         ckpt_adapter_ends_with(name, "classifier.weight");
    if (tasks[i].has_labels && is_last && tensor->rank == 2 && tensor->shape[0] <= MAX_LABELS)
      all->n_labels = tensor->shape[0];
  }
  if (all->class != NULL)
    return is_first ? ckpt_adapters_note(all, err, "'%s' is new: config.json says %s now", name, all->class) : CKPT_OK;
  return ckpt_adapters_doubt(all, err, "'%s' is new: config.json still names the class of the base, which lacks it",
                             name);
}

/* ---- heads that the class lacks ---------------------------------------------------------------------------------- */

static bool has_row(const ckpt_arch_shape *rows, const char *name) {
  uint64_t numbers[2];
  for (; rows != NULL && rows->hf != NULL; rows++)
    if (ckpt_arch_matches(rows->hf, name, numbers)) return true;
  return false;
}

/* Of a family with a row: a head's tensor of one of its classes, and none of this class. */
static bool row_lacks(const ckpt_arch *arch, const char *class, const char *name) {
  bool is_head = false;
  for (const ckpt_arch_model *model = arch->models; model != NULL && model->name != NULL; model++) {
    const bool has = has_row(model->head, name);
    if (has && strcmp(model->name, class) == 0) return false;
    is_head = is_head || has;
  }
  return is_head;
}

/* Heads of language models in families without a row, by the modules that hold them in transformers' classes. */
static bool is_of_words(const char *name) {
  static const char *const modules[] = {"lm_head.",
                                        "cls.",
                                        "embed_out.",
                                        "generator_lm_head.",
                                        "generator_predictions.",
                                        "predictions.",
                                        "vocab_transform.",
                                        "vocab_layer_norm.",
                                        "vocab_projector.",
                                        "lm_loss.",
                                        "pred_layer.",
                                        "output_projection."};
  static const char *const whole[] = {"decoder.weight", "decoder.bias", "final_logits_bias"};
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
    if (strncmp(name, modules[i], strlen(modules[i])) == 0) return true;
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
    if (strcmp(name, whole[i]) == 0) return true;
  return false;
}

bool ckpt_adapters_lacks(const ckpt_adapters *all, const char *name) {
  const ckpt_arch *arch = all->base->architecture != NULL ? ckpt_arch_find(all->base->architecture) : NULL;
  if (all->class == NULL) return false;
  return arch != NULL ? row_lacks(arch, all->class, name) : is_of_words(name);
}

ckpt_status ckpt_adapters_note_lacking(ckpt_adapters *all, ckpt_error *err) {
  uint32_t n = 0;
  const char *first = NULL;
  for (uint32_t i = 0; all->class != NULL && i < all->base->n_tensors; i++) {
    const ckpt_tensor *tensor = &all->base->tensors[i];
    if (!ckpt_adapters_lacks(all, tensor->name) || ckpt_adapters_change(all, tensor)) continue;
    if (n++ == 0) first = tensor->name;
  }
  if (n == 0) return CKPT_OK;
  if (n == 1) return ckpt_adapters_note(all, err, "'%s' is left out: %s has no such tensor", first, all->class);
  return ckpt_adapters_note(all, err, "'%s' and %u more are left out: %s has no such tensors", first, n - 1,
                            all->class);
}

/* ---- config.json ------------------------------------------------------------------------------------------------- */

enum { MAX_LABEL = 48 /* bytes that one takes */ };

/* {"0": "LABEL_0", ...}, or the reverse. NULL: out of memory. */
static const char *list_labels(ckpt_arena *arena, uint64_t n, bool is_reverse) {
  char *text = ckpt_arena_array(arena, (size_t)n + 1, MAX_LABEL);
  size_t at = 1;
  if (text == NULL) return NULL;
  text[0] = '{';
  for (uint64_t i = 0; i < n; i++)
    at += (size_t)snprintf(text + at, MAX_LABEL, is_reverse ? "%s\"LABEL_%llu\": %llu" : "%s\"%llu\": \"LABEL_%llu\"",
                           i == 0 ? "" : ", ", (unsigned long long)i, (unsigned long long)i);
  memcpy(text + at, "}", 2);
  return text;
}

ckpt_status ckpt_adapters_edit_head(ckpt_side_file *config_file, ckpt_arena *arena, const ckpt_adapters *all,
                                    ckpt_error *err) {
  ckpt_config *config;
  uint64_t n;
  if (all->class == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, config_file->text, config_file->n_bytes, NULL, err));
  const bool is_right = ckpt_config_labels(config, &n) && n == all->n_labels,
             has_number = ckpt_config_has(config, "num_labels");
  ckpt_config_free(config);
  const char *text = ckpt_arena_printf(arena, "[\"%s\"]", all->class);
  CKPT_TRY_ALLOC(text, err);
  CKPT_TRY(ckpt_config_set(config_file, arena, "architectures", text, err));
  if (all->n_labels == 0 || is_right) return CKPT_OK;
  for (size_t i = 0; i < 2; i++) {
    CKPT_TRY_ALLOC(text = list_labels(arena, all->n_labels, i == 1), err);
    CKPT_TRY(ckpt_config_set(config_file, arena, i == 1 ? "label2id" : "id2label", text, err));
  }
  if (!has_number) return CKPT_OK;
  CKPT_TRY_ALLOC(text = ckpt_arena_printf(arena, "%llu", (unsigned long long)all->n_labels), err);
  return ckpt_config_set(config_file, arena, "num_labels", text, err);
}
