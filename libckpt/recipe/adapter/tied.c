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
#include "libckpt/recipe/adapter/tied_classes.h"

/* ---- names that are not stored ----------------------------------------------------------------------------------- */

/* The one matrix of the base whose name ends so; NULL: none, or several. */
static const ckpt_tensor *find_ending(const ckpt_index *base, const char *ending) {
  const ckpt_tensor *found = NULL;
  for (uint32_t i = 0; i < base->n_tensors; i++) {
    const ckpt_tensor *tensor = &base->tensors[i];
    if (tensor->rank != 2 || !ckpt_adapter_ends_with(tensor->name, ending)) continue;
    if (found != NULL) return NULL;
    found = tensor;
  }
  return found;
}

/* Whether another tensor of the base has the name, alone or behind what files put before it. */
static bool is_stored(const ckpt_index *base, const ckpt_tensor *kept, const char *name) {
  for (uint32_t i = 0; i < base->n_tensors; i++)
    if (&base->tensors[i] != kept && ckpt_adapter_ends_with(base->tensors[i].name, name)) return true;
  return false;
}

static void add_tied(ckpt_adapters *all, const ckpt_tensor *kept, const char *name) {
  if (name == NULL || is_stored(all->base, kept, name)) return;
  all->tied[all->n_tied++] =
      (ckpt_tied_name){.place = {kept, name}, .is_alias = ckpt_index_find(all->base, name) == kept};
}

static void find_names(ckpt_adapters *all, const char *class, const ckpt_config *config) {
  const ckpt_tied_class *row = ckpt_tied_class_of(class);
  if (row == NULL) {
    all->is_tie_unknown = !ckpt_tied_class_has_none(class);
    return;
  }
  all->is_always_tied =
      row->is_always && !ckpt_config_has(config, "scale_decoder_outputs"); /* of T5: else by the tie */
  const ckpt_tensor *kept = find_ending(all->base, row->kept);
  for (size_t i = 0; i < CKPT_TIED_NAMES && kept != NULL; i++) add_tied(all, kept, row->tied[i]);
  const ckpt_tensor *bias = row->bias[0] == NULL ? NULL : ckpt_index_find(all->base, row->bias[0]);
  if (bias != NULL) add_tied(all, bias, row->bias[1]);
  all->is_tie_unknown = kept == NULL;
}

/* A head of which no config says that it is another tensor is the embedding, where the base lacks it. */
static bool may_tie(const ckpt_config *config) {
  bool is_tied = true, is_tied_below = false;
  (void)ckpt_config_bool(config, "tie_word_embeddings", &is_tied);
  (void)ckpt_config_bool(config, "text_config.tie_word_embeddings", &is_tied_below);
  return is_tied || is_tied_below;
}

ckpt_status ckpt_adapters_find_tied(ckpt_adapters *all, ckpt_error *err) {
  const ckpt_index *base = all->base;
  const ckpt_side_file *side = ckpt_index_side_file(base, "config.json");
  const bool is_known = base->architecture != NULL && ckpt_arch_find(base->architecture) != NULL;
  ckpt_config *config;
  const char *class = "";
  if (is_known || side == NULL || side->text == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, side->text, side->n_bytes, ckpt_index_side_path(base, side), err));
  (void)ckpt_config_item(config, "architectures", 0, &class);
  if (may_tie(config)) find_names(all, class, config);
  ckpt_config_free(config);
  return CKPT_OK;
}

ckpt_adapter_place ckpt_adapters_tied(const ckpt_adapters *all, const char *wanted) {
  for (uint32_t i = 0; i < all->n_tied; i++)
    if (strcmp(all->tied[i].place.name, wanted) == 0) return all->tied[i].place;
  return (ckpt_adapter_place){0};
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

static ckpt_status rows_of(uint64_t **rows, size_t *n, const ckpt_opened_adapter *adapter, const ckpt_change *c,
                           ckpt_error *err) {
  const uint64_t n_rows = ckpt_change_shape(c, 1)->shape[0];
  return ckpt_peft_rows(rows, n, &adapter->peft, ckpt_change_rows_module(c), n_rows, err);
}

static ckpt_status same_rows(bool *same, const ckpt_adapters *all, const ckpt_change *a, const ckpt_change *b,
                             ckpt_error *err) {
  const ckpt_opened_adapter *adapter = &all->list[a->adapter];
  uint64_t *of_a = NULL, *of_b = NULL;
  size_t n_a, n_b;
  ckpt_status status = rows_of(&of_a, &n_a, adapter, a, err);
  if (status == CKPT_OK) status = rows_of(&of_b, &n_b, adapter, b, err);
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

/* ---- what is said of one and means both -------------------------------------------------------------------------- */

typedef struct added_changes {
  ckpt_change *list;
  uint32_t n, capacity;
} added_changes;

static const ckpt_change *change_of(const ckpt_adapters *all, const ckpt_adapter_place *place, uint32_t adapter) {
  uint32_t n;
  const ckpt_change *changes = ckpt_changes_of(all, place->tensor, place->name, &n);
  for (uint32_t i = 0; i < n; i++)
    if (changes[i].adapter == adapter) return &changes[i];
  return NULL;
}

/* Whether an adapter has another name's tensor whole, of the same shape. */
static bool has_alike(const ckpt_adapters *all, const ckpt_change *change) {
  for (uint32_t i = 0; i < all->n_tied; i++) {
    const ckpt_adapter_place *place = &all->tied[i].place;
    const ckpt_change *other = change_of(all, place, change->adapter);
    if (place->tensor == change->base && strcmp(place->name, change->name) != 0 && other != NULL &&
        other->whole != NULL && ckpt_tensor_same_shape(other->whole, change->whole))
      return true;
  }
  return false;
}

/* Whether what is saved whole is what the adapter was made for: the layer below it, or embedding and head of a model
 * that was resized before, which PEFT saves then under these two names, without training them. */
static bool is_made_for(const ckpt_adapters *all, const ckpt_change *c) {
  if (c->whole == NULL || c->is_below) return c->is_below;
  if (ckpt_tensor_same_shape(c->whole, c->base)) return false;
  if (ckpt_peft_saves(&all->list[c->adapter].peft, c->module)) return false;
  return c->whole->rank == 1 || has_alike(all, c);
}

/* The tensor that an adapter was made for, and rows of the embedding that were trained alone. */
static ckpt_status share(added_changes *added, const ckpt_adapters *all, const ckpt_adapter_place *from,
                         const ckpt_adapter_place *to, uint32_t adapter, bool is_embedding, ckpt_error *err) {
  const ckpt_change *change = change_of(all, from, adapter), *other = change_of(all, to, adapter);
  if (change == NULL) return CKPT_OK;
  const bool is_own = other != NULL && other->whole != NULL;
  ckpt_change copy = {.adapter = adapter, .base = to->tensor, .name = to->name, .module = change->module};
  if (is_made_for(all, change) && !is_own) {
    copy.whole = change->whole;
    copy.is_below = true;
  }
  if (is_embedding && (other == NULL || other->rows == NULL) && (!is_own || other->is_below)) {
    copy.rows = change->rows;
    copy.rows_module = ckpt_change_rows_module(change);
  }
  if (copy.whole == NULL && copy.rows == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&added->list, added->n, &added->capacity, sizeof *added->list, err));
  added->list[added->n++] = copy;
  return CKPT_OK;
}

static bool names_rows(const ckpt_peft *peft, const char *module) {
  const char *name;
  for (size_t i = 0; ckpt_peft_rows_of(peft, i, &name); i++)
    if (name == NULL || ckpt_adapter_ends_with(module, name)) return true;
  return false;
}

/* Rows that PEFT saves under another name too, with a config that lists them under one. */
static void adopt_rows(ckpt_adapters *all, const ckpt_adapter_place *from, const ckpt_adapter_place *to,
                       uint32_t adapter) {
  const ckpt_change *change = change_of(all, from, adapter), *other = change_of(all, to, adapter);
  if (change == NULL || other == NULL || change->rows == NULL || other->rows == NULL) return;
  if (!names_rows(&all->list[adapter].peft, ckpt_change_rows_module(other)))
    all->changes[other - all->changes].rows_module = ckpt_change_rows_module(change);
}

static ckpt_status share_pair(added_changes *added, ckpt_adapters *all, const ckpt_adapter_place *kept,
                              const ckpt_adapter_place *tied, ckpt_error *err) {
  for (uint32_t i = 0; i < all->n && !ckpt_adapters_lacks(all, tied->name); i++) {
    adopt_rows(all, kept, tied, i);
    CKPT_TRY(share(added, all, kept, tied, i, true, err));
    CKPT_TRY(share(added, all, tied, kept, i, false, err));
  }
  return CKPT_OK;
}

/* Puts what was found into the list of changes. */
static ckpt_status settle(ckpt_adapters *all, added_changes *added, ckpt_error *err) {
  ckpt_change *ignored;
  if (added->n == 0) return CKPT_OK;
  for (uint32_t i = 0; i < added->n; i++) CKPT_TRY(ckpt_change_add(&ignored, all, &added->list[i], err));
  added->n = 0;
  CKPT_TRY(ckpt_changes_settle(all, err));
  return ckpt_changes_check_pairs(all, err);
}

static ckpt_status share_stored(added_changes *added, ckpt_adapters *all, ckpt_error *err) {
  ckpt_adapter_place kept, tied;
  for (uint32_t i = 0; i < all->base->n_tensors; i++) {
    kept = tied = (ckpt_adapter_place){&all->base->tensors[i], all->base->tensors[i].name};
    const char *const *alias = kept.tensor->aliases;
    for (; alias != NULL && *alias != NULL; alias++) {
      tied.name = *alias;
      CKPT_TRY(share_pair(added, all, &kept, &tied, err));
    }
  }
  for (size_t i = 0; ckpt_arch_tied_pair(all->base, i, &kept.tensor, &tied.tensor); i++) {
    kept.name = kept.tensor->name;
    tied.name = tied.tensor->name;
    CKPT_TRY(share_pair(added, all, &kept, &tied, err));
  }
  return settle(all, added, err);
}

/* Twice: what is of one of several names goes over the kept one to the others. */
static ckpt_status share_names(added_changes *added, ckpt_adapters *all, ckpt_error *err) {
  for (uint32_t i = 0; i < 2 * all->n_tied; i++) {
    const ckpt_adapter_place *tied = &all->tied[i % all->n_tied].place;
    const ckpt_adapter_place kept = {tied->tensor, tied->tensor->name};
    CKPT_TRY(share_pair(added, all, &kept, tied, err));
    CKPT_TRY(settle(all, added, err));
  }
  return CKPT_OK;
}

static ckpt_status share_all(ckpt_adapters *all, ckpt_error *err) {
  added_changes added = {.list = NULL};
  ckpt_status status = share_stored(&added, all, err);
  if (status == CKPT_OK) status = share_names(&added, all, err);
  free(added.list);
  return status;
}

/* ---- one pair ---------------------------------------------------------------------------------------------------- */

typedef struct pair {
  ckpt_adapter_place kept, tied; /* of one tensor, or of two that have to be equal */
  bool is_crowded;               /* more than two names are one tensor */
  bool is_always;                /* no config makes two tensors of them */
} pair;

static ckpt_status refuse(const ckpt_adapters *all, const pair *p, const ckpt_change *by, const char *why,
                          ckpt_error *err) {
  ckpt_status status =
      ckpt_fail(err, CKPT_EUNSUPPORTED, all->list[by->adapter].index->path, ckpt_change_tensor(by)->name,
                "changes '%s', and '%s' is tied to '%s': %s", by->name, p->tied.name, p->kept.name, why);
  return is_asked(all, "keep") && !p->is_crowded && !p->is_always
             ? ckpt_advise(status, err, "%tied=untie makes two tensors of them")
             : status;
}

static ckpt_status untie(ckpt_adapters *all, const pair *p, ckpt_error *err) {
  const char *const names[] = {p->kept.name, p->tied.name};
  if (ckpt_adapters_untied(all, names[0], names[1])) return CKPT_OK;
  for (size_t i = 0; i < 2; i++) {
    CKPT_TRY(ckpt_grow(&all->untied, all->n_untied, &all->untied_capacity, sizeof *all->untied, err));
    all->untied[all->n_untied++] = names[i];
  }
  return ckpt_adapters_note(all, err, "'%s' and '%s' were tied, and are two tensors now", names[0], names[1]);
}

static ckpt_status decide(ckpt_adapters *all, const pair *p, ckpt_error *err) {
  uint32_t n_kept, n_tied;
  const ckpt_change *kept = ckpt_changes_of(all, p->kept.tensor, p->kept.name, &n_kept);
  const ckpt_change *tied = ckpt_changes_of(all, p->tied.tensor, p->tied.name, &n_tied);
  if ((n_kept == 0 && n_tied == 0) || (n_tied == 0 && ckpt_adapters_lacks(all, p->tied.name))) return CKPT_OK;
  const ckpt_change *first = n_kept != 0 ? kept : tied;
  if (is_asked(all, "error")) return refuse(all, p, first, "no tied weight may change", err);
  bool is_same = n_kept == n_tied;
  for (uint32_t i = 0; is_same && i < n_kept; i++) CKPT_TRY(same_change(&is_same, all, &kept[i], &tied[i], err));
  if (is_same) {
    for (uint32_t i = 0; p->kept.tensor == p->tied.tensor && i < n_tied; i++)
      all->changes[tied - all->changes + i].is_dropped = true;
    return CKPT_OK;
  }
  if (p->is_crowded) return refuse(all, p, first, "they would differ, and more are tied to them", err);
  if (p->is_always)
    return refuse(all, p, first, "they would differ, and this class ties them whatever config.json says", err);
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

static bool is_untied(const ckpt_adapters *all, const char *tied) {
  for (uint32_t i = 1; i < all->n_untied; i += 2)
    if (strcmp(all->untied[i], tied) == 0) return true;
  return false;
}

static void drop(ckpt_adapters *all) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < all->n_changes; i++)
    if (!all->changes[i].is_dropped || is_untied(all, all->changes[i].name)) all->changes[n++] = all->changes[i];
  all->n_changes = n;
}

/* Names that the model's class ties. One key of config.json is for all of them: where two become two tensors, all do.
 */
static ckpt_status decide_names(ckpt_adapters *all, ckpt_error *err) {
  for (int is_rest = 0; is_rest < 2; is_rest++)
    for (uint32_t i = 0; i < all->n_tied; i++) {
      const ckpt_adapter_place *tied = &all->tied[i].place;
      const pair p = {.kept = {tied->tensor, tied->tensor->name}, .tied = *tied, .is_always = all->is_always_tied};
      if (is_rest == 0 && !all->tied[i].is_alias) CKPT_TRY(decide(all, &p, err));
      if (is_rest == 1 && all->n_untied != 0 && !ckpt_adapters_lacks(all, tied->name)) CKPT_TRY(untie(all, &p, err));
    }
  return CKPT_OK;
}

/* Without a head in the base, and with a class of which is not known what it ties, any embedding may be the head. */
static ckpt_status check_unknown(const ckpt_adapters *all, ckpt_error *err) {
  ckpt_vocabularies known;
  if (!all->is_tie_unknown || all->class != NULL) return CKPT_OK;
  CKPT_TRY(ckpt_vocabularies_read(&known, all->base, err));
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    if (c->base != NULL && ckpt_vocabularies_lack_head(&known, all->base, c->base))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, all->list[c->adapter].index->path, ckpt_change_tensor(c)->name,
                       "changes '%s', and the base stores no output head: which tensor its class ties to it is not "
                       "known (tie_word_embeddings: false in its config.json says that none is)",
                       c->name);
  }
  return CKPT_OK;
}

ckpt_status ckpt_changes_untie(ckpt_adapters *all, ckpt_error *err) {
  pair p = {0};
  CKPT_TRY(check_unknown(all, err));
  CKPT_TRY(share_all(all, err));
  for (uint32_t i = 0; i < all->base->n_tensors; i++)
    if (all->base->tensors[i].aliases != NULL) CKPT_TRY(decide_aliases(all, &all->base->tensors[i], err));
  for (size_t i = 0; ckpt_arch_tied_pair(all->base, i, &p.kept.tensor, &p.tied.tensor); i++) {
    p.kept.name = p.kept.tensor->name;
    p.tied.name = p.tied.tensor->name;
    CKPT_TRY(decide(all, &p, err));
  }
  CKPT_TRY(decide_names(all, err));
  drop(all);
  return CKPT_OK;
}
