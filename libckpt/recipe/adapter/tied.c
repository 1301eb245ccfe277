/* tied.c - what becomes of input embedding and output head that are one tensor. See changes.h.
 *
 * The model that PEFT wraps computes with two modules: an update of one of them is none of the other's. So a tie stays
 * where both change in the same way, as PEFT saves it with ensure_weight_tying. Rows that were trained alone
 * (trainable_token_indices) PEFT applies to both. Else the merged model needs two tensors. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/changes.h"

/* ---- heads that are not stored ----------------------------------------------------------------------------------- */

/* The one matrix of the base that is an input embedding by its name; NULL: none, or several. */
static const ckpt_tensor *find_embedding(const ckpt_index *base) {
  static const char *const leaves[] = {
      "embed_tokens.weight", "wte.weight",    "word_embeddings.weight", "tok_embeddings.weight",
      "embed_in.weight",     "shared.weight", "tokens_embed.weight",    "backbone.embeddings.weight"};
  const ckpt_tensor *found = NULL;
  for (uint32_t i = 0; i < base->n_tensors; i++)
    for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
      const ckpt_tensor *tensor = &base->tensors[i];
      if (tensor->rank != 2 || !ckpt_adapter_ends_with(tensor->name, leaves[k])) continue;
      if (found != NULL) return NULL;
      found = tensor;
    }
  return found;
}

/* What the class of a model calls its head; NULL: it has none that could be tied. */
static const char *head_of(const char *class) {
  if (strncmp(class, "DistilBert", 10) == 0 && strstr(class, "ForMaskedLM") != NULL) return "vocab_projector.weight";
  if (strncmp(class, "Electra", 7) == 0 && strstr(class, "LM") != NULL) return "generator_lm_head.weight";
  if (strncmp(class, "Whisper", 7) == 0 && strstr(class, "For") != NULL) return "proj_out.weight";
  if (strncmp(class, "Albert", 6) == 0 && strstr(class, "ForMaskedLM") != NULL) return "predictions.decoder.weight";
  if (strstr(class, "ForCausalLM") != NULL || strstr(class, "LMHeadModel") != NULL ||
      strstr(class, "ForConditionalGeneration") != NULL)
    return "lm_head.weight";
  if (strncmp(class, "Bert", 4) == 0 && (strstr(class, "ForMaskedLM") != NULL || strstr(class, "PreTraining") != NULL))
    return "cls.predictions.decoder.weight";
  return strstr(class, "ForMaskedLM") != NULL ? "lm_head.decoder.weight" : NULL;
}

ckpt_status ckpt_adapters_find_head(ckpt_adapters *all, ckpt_error *err) {
  static const char *const stored[] = {"lm_head.weight", "embed_out.weight", "output.weight", "lm_head.decoder.weight",
                                       "cls.predictions.decoder.weight"};
  const ckpt_index *base = all->base;
  const ckpt_side_file *side = ckpt_index_side_file(base, "config.json");
  const bool is_known = base->architecture != NULL && ckpt_arch_find(base->architecture) != NULL;
  ckpt_config *config;
  const char *class = NULL;
  bool is_tied = true;
  if (is_known || side == NULL || side->text == NULL) return CKPT_OK;
  for (size_t i = 0; i < sizeof stored / sizeof *stored; i++)
    if (ckpt_index_find(base, stored[i]) != NULL) return CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, side->text, side->n_bytes, ckpt_index_side_path(base, side), err));
  (void)ckpt_config_bool(config, "tie_word_embeddings", &is_tied);
  if (is_tied && ckpt_config_item(config, "architectures", 0, &class)) {
    all->head.name = head_of(class);
    const bool is_stored = all->head.name == NULL || ckpt_index_find(base, all->head.name) != NULL;
    all->head.tensor = is_stored ? NULL : find_embedding(base);
  }
  ckpt_config_free(config);
  return CKPT_OK;
}

/* ---- whether two changes are the same ---------------------------------------------------------------------------- */

static ckpt_status same_factors(bool *same, const ckpt_index *index, const ckpt_change *a, const ckpt_change *b,
                                ckpt_error *err) {
  const bool is_crossed = a->is_embedding != b->is_embedding; /* what is A of the one is B of the other */
  *same = a->scale == b->scale && a->rank == b->rank && a->magnitude == NULL && b->magnitude == NULL;
  if (*same)
    CKPT_TRY(ckpt_same_values(same, index, a->input, index, is_crossed ? b->output : b->input, is_crossed, err));
  if (*same)
    CKPT_TRY(ckpt_same_values(same, index, a->output, index, is_crossed ? b->input : b->output, is_crossed, err));
  return CKPT_OK;
}

static ckpt_status same_rows(bool *same, const ckpt_adapters *all, const ckpt_change *a, const ckpt_change *b,
                             ckpt_error *err) {
  const ckpt_opened_adapter *adapter = &all->list[a->adapter];
  uint64_t *of_a = NULL, *of_b = NULL;
  size_t n_a, n_b;
  ckpt_status status = ckpt_peft_rows(&of_a, &n_a, &adapter->peft, a->module, a->base->shape[0], err);
  if (status == CKPT_OK) status = ckpt_peft_rows(&of_b, &n_b, &adapter->peft, b->module, b->base->shape[0], err);
  *same = status == CKPT_OK && n_a == n_b && memcmp(of_a, of_b, n_a * sizeof *of_a) == 0;
  free(of_a);
  free(of_b);
  if (*same) CKPT_TRY(ckpt_same_values(same, adapter->index, a->rows, adapter->index, b->rows, false, err));
  return status;
}

static ckpt_status same_change(bool *same, const ckpt_adapters *all, const ckpt_change *a, const ckpt_change *b,
                               ckpt_error *err) {
  const ckpt_index *index = all->list[a->adapter].index;
  *same = a->adapter == b->adapter && (a->input == NULL) == (b->input == NULL) &&
          (a->whole == NULL) == (b->whole == NULL) && (a->rows == NULL) == (b->rows == NULL);
  if (*same && a->whole != NULL) {
    *same = ckpt_tensor_same_shape(a->whole, b->whole);
    if (*same) CKPT_TRY(ckpt_same_values(same, index, a->whole, index, b->whole, false, err));
  }
  if (*same && a->input != NULL) CKPT_TRY(same_factors(same, index, a, b, err));
  if (*same && a->rows != NULL) CKPT_TRY(same_rows(same, all, a, b, err));
  return CKPT_OK;
}

static bool is_asked(const ckpt_adapters *all, const char *tied) {
  return strcmp(all->options.tied == NULL ? "keep" : all->options.tied, tied) == 0;
}

/* ---- one pair ---------------------------------------------------------------------------------------------------- */

typedef struct pair {
  ckpt_adapter_place kept, tied; /* of one tensor, or of two that have to be equal */
  bool is_crowded;               /* more than two names are one tensor */
} pair;

static ckpt_status refuse(const ckpt_adapters *all, const pair *p, const ckpt_change *by, const char *why,
                          ckpt_error *err) {
  ckpt_status status =
      ckpt_fail(err, CKPT_EUNSUPPORTED, all->list[by->adapter].index->path, ckpt_change_tensor(by)->name,
                "changes '%s', and '%s' is tied to '%s': %s", by->name, p->tied.name, p->kept.name, why);
  return is_asked(all, "keep") && !p->is_crowded ? ckpt_advise(status, err, "%tied=untie makes two tensors of them")
                                                 : status;
}

static ckpt_status untie(ckpt_adapters *all, const pair *p, ckpt_error *err) {
  const char *const names[] = {p->kept.name, p->tied.name};
  for (size_t i = 0; i < 2; i++) {
    CKPT_TRY(ckpt_grow(&all->untied, all->n_untied, &all->untied_capacity, sizeof *all->untied, err));
    all->untied[all->n_untied++] = names[i];
  }
  return ckpt_adapters_note(all, err, "'%s' and '%s' were tied, and are two tensors now", names[0], names[1]);
}

/* Rows that were trained alone are both modules' rows. */
static ckpt_status share_rows(ckpt_adapters *all, const pair *p, const ckpt_change *changes, uint32_t n,
                              ckpt_error *err) {
  for (uint32_t i = 0; i < n && p->kept.tensor != p->tied.tensor; i++) {
    ckpt_change copy = changes[i], *added;
    copy.base = p->tied.tensor;
    copy.name = p->tied.name;
    const size_t at = (size_t)(&changes[i] - all->changes);
    CKPT_TRY(ckpt_change_add(&added, all, &copy, err));
    changes = all->changes + at - i; /* the list may have moved */
  }
  return CKPT_OK;
}

static ckpt_status decide(ckpt_adapters *all, const pair *p, ckpt_error *err) {
  uint32_t n_kept, n_tied;
  const ckpt_change *kept = ckpt_changes_of(all, p->kept.tensor, p->kept.name, &n_kept);
  const ckpt_change *tied = ckpt_changes_of(all, p->tied.tensor, p->tied.name, &n_tied);
  bool is_same = n_kept == n_tied, has_rows_alone = n_kept != 0 && n_tied == 0;
  if (n_kept == 0 && n_tied == 0) return CKPT_OK;
  const ckpt_change *first = n_kept != 0 ? kept : tied;
  if (is_asked(all, "error")) return refuse(all, p, first, "no tied weight may change", err);
  for (uint32_t i = 0; i < n_kept; i++) has_rows_alone = has_rows_alone && kept[i].rows != NULL;
  if (has_rows_alone) return share_rows(all, p, kept, n_kept, err);
  for (uint32_t i = 0; is_same && i < n_kept; i++) CKPT_TRY(same_change(&is_same, all, &kept[i], &tied[i], err));
  if (is_same) {
    for (uint32_t i = 0; p->kept.tensor == p->tied.tensor && i < n_tied; i++)
      all->changes[tied - all->changes + i].is_dropped = true;
    return CKPT_OK;
  }
  if (p->is_crowded) return refuse(all, p, first, "they would differ, and more are tied to them", err);
  if (is_asked(all, "untie")) return untie(all, p, err);
  return refuse(all, p, first, "they would differ, as they do in the model that PEFT wraps", err);
}

/* ---- all pairs --------------------------------------------------------------------------------------------------- */

bool ckpt_adapters_untied(const ckpt_adapters *all, const char *kept, const char *tied) {
  for (uint32_t i = 0; i + 1 < all->n_untied; i += 2)
    if (strcmp(all->untied[i], kept) == 0 && strcmp(all->untied[i + 1], tied) == 0) return true;
  return false;
}

static ckpt_status decide_aliases(ckpt_adapters *all, const ckpt_tensor *tensor, ckpt_error *err) {
  size_t n = 0;
  while (tensor->aliases != NULL && tensor->aliases[n] != NULL) n++;
  for (size_t i = 0; i < n; i++) {
    const pair p = {.kept = {tensor, tensor->name}, .tied = {tensor, tensor->aliases[i]}, .is_crowded = n > 1};
    CKPT_TRY(decide(all, &p, err));
  }
  return CKPT_OK;
}

static void drop(ckpt_adapters *all) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < all->n_changes; i++)
    if (!all->changes[i].is_dropped) all->changes[n++] = all->changes[i];
  all->n_changes = n;
}

ckpt_status ckpt_changes_untie(ckpt_adapters *all, ckpt_error *err) {
  pair p;
  for (uint32_t i = 0; i < all->base->n_tensors; i++)
    if (all->base->tensors[i].aliases != NULL) CKPT_TRY(decide_aliases(all, &all->base->tensors[i], err));
  if (all->head.tensor != NULL) {
    p = (pair){.kept = {all->head.tensor, all->head.tensor->name}, .tied = all->head};
    CKPT_TRY(decide(all, &p, err));
  }
  p = (pair){0};
  const uint32_t n = all->n_changes;
  for (size_t i = 0; ckpt_arch_tied_pair(all->base, i, &p.kept.tensor, &p.tied.tensor); i++) {
    p.kept.name = p.kept.tensor->name;
    p.tied.name = p.tied.tensor->name;
    CKPT_TRY(decide(all, &p, err));
    if (all->n_changes != n) CKPT_TRY(ckpt_changes_settle(all, err)); /* what was added stands at the end */
  }
  drop(all);
  return CKPT_OK;
}
