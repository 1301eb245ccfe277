/* adapter.c - adapters opened one by one, and the merged model as an index. See adapter.h. */
#include "libckpt/recipe/adapter/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/plan/derive.h"
#include "libckpt/plan/plan.h"
#include "libckpt/recipe/adapter/changes.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/compare/stats.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Sorts adapters with the same content by scale, so that the order of requests does not change the merged model. */
static int by_digest(const void *x, const void *y) {
  const ckpt_opened_adapter *a = x, *b = y;
  const int by_content = memcmp(&a->digest, &b->digest, sizeof a->digest);
  if (by_content != 0) return by_content;
  if (a->scale < b->scale || a->scale > b->scale) return a->scale < b->scale ? -1 : 1;
  return a->request < b->request ? -1 : a->request > b->request;
}

static ckpt_status check_values(ckpt_opened_adapter *adapter, const ckpt_stats *const *stats, ckpt_error *err) {
  const ckpt_index *index = adapter->index;
  adapter->is_zero = calloc(ckpt_index_count(index) + 1, sizeof *adapter->is_zero);
  CKPT_TRY_ALLOC(adapter->is_zero, err);
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    if (stats[i] == NULL) continue;
    if (stats[i]->n_nan != 0 || stats[i]->n_inf != 0)
      return ckpt_fail(err, CKPT_EVALUE, index->path, ckpt_index_at(index, i)->name,
                       "%llu values are NaN and %llu infinite: nothing can be merged with them",
                       (unsigned long long)stats[i]->n_nan, (unsigned long long)stats[i]->n_inf);
    adapter->is_zero[i] = stats[i]->n_zero == stats[i]->n;
  }
  return CKPT_OK;
}

/* One more read of the adapter, which is small, without a trainer's states. */
static ckpt_status look_at_values(ckpt_opened_adapter *adapter, const ckpt_run_options *run, ckpt_error *err) {
  const size_t n = ckpt_index_count(adapter->index);
  const ckpt_stats **stats = calloc(n, sizeof *stats);
  ckpt_plan *plan = NULL;
  ckpt_status status;
  CKPT_TRY_ALLOC(stats, err);
  CKPT_TRY_GOTO(ckpt_plan_new(&plan, err));
  plan->wants_digests = false;
  for (size_t i = 0; i < n; i++) {
    const ckpt_tensor *tensor = ckpt_index_at(adapter->index, i);
    if (ckpt_role_is_model((ckpt_role)tensor->role))
      CKPT_TRY_GOTO(ckpt_stats_add(plan, adapter->index, tensor, &stats[i], err));
  }
  CKPT_TRY_GOTO(ckpt_plan_run(plan, run, err));
  status = check_values(adapter, stats, err);
done:
  ckpt_plan_free(plan);
  free(stats);
  return status;
}

/* The base's digest, which ckpt-train records beside an adapter. A run.json that does not parse records no base. An
 * adapter that the caller opened is converted, not merged. */
static ckpt_status read_base(ckpt_opened_adapter *out, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(out->index, "run.json");
  const char *text;
  ckpt_config *config;
  if (out->opened == NULL || side == NULL || side->n_bytes > CKPT_CONFIG_MAX_BYTES) return CKPT_OK;
  CKPT_TRY(ckpt_index_side_text(out->opened, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  if (ckpt_config_parse(&config, text, side->n_bytes, NULL, NULL) != CKPT_OK) return CKPT_OK;
  out->has_base = ckpt_config_text(config, "base_digest", &text) && ckpt_digest_parse(text, &out->base);
  ckpt_config_free(config);
  return CKPT_OK;
}

/* Request `number`, with the path in the arena of all. */
static ckpt_status open_one(ckpt_adapters *all, const ckpt_adapter_request *request, uint32_t number, ckpt_error *err) {
  ckpt_opened_adapter *out = &all->list[number];
  const ckpt_open_options options = {.struct_size = sizeof options, .stored_names = true};
  const ckpt_run_options run = {
      .struct_size = sizeof run, .memory = all->options.memory, .n_threads = all->options.n_threads};
  const ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "model", .run = &run};
  out->scale = request->scale;
  out->request = number;
  out->path = ckpt_arena_copy(&all->arena, request->path);
  CKPT_TRY_ALLOC(out->path, err);
  if (!isfinite(request->scale))
    return ckpt_fail(err, CKPT_EINVAL, request->path, NULL, "a scale of %g", request->scale);
  out->index = number == 0 ? all->options.first : NULL;
  if (out->index == NULL) {
    CKPT_TRY(ckpt_open(&out->opened, request->path, &options, err));
    out->index = out->opened;
  }
  if (ckpt_adapter_kind_of(out->index) == CKPT_ADAPTER_GGUF) {
    out->under = out->opened;
    out->opened = NULL;
    CKPT_TRY(ckpt_adapter_from_gguf(&out->opened, out->index, all->base, err));
    out->index = out->opened;
  }
  CKPT_TRY(ckpt_peft_read(&out->peft, out->index, err));
  if (out->index->n_unread != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, out->index->path, out->index->unread[0].name, "is there and not read: %s",
                     out->index->unread[0].why);
  if (ckpt_index_count(out->index) == 0) return ckpt_fail(err, CKPT_EFORMAT, out->index->path, NULL, "no tensors");
  if (out->opened != NULL) CKPT_TRY(ckpt_hash(out->index, &hash, &out->digest, err));
  CKPT_TRY(read_base(out, err));
  return look_at_values(out, &run, err);
}

/* The last component of a path or a name of the hub. */
static const char *last_of(const char *path, size_t *n) {
  size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') end--;
  size_t first = end;
  while (first > 0 && path[first - 1] != '/') first--;
  *n = end - first;
  return path + first;
}

/* Whether a path may be what a config calls its base: by the last component, which a cache has after "--". */
static bool may_be(const char *path, const char *recorded) {
  size_t n, n_path;
  const char *name = last_of(recorded, &n), *last = last_of(path, &n_path);
  if (n == 0 || (n == n_path && strncmp(name, last, n) == 0)) return true;
  for (const char *at = path; (at = strstr(at, "--")) != NULL; at += 2)
    if (strncmp(at + 2, name, n) == 0 && (at[2 + n] == '/' || at[2 + n] == '\0')) return true;
  return false;
}

/* An update is for one base: another may have the same shapes. */
static ckpt_status note_base(ckpt_adapters *all, const ckpt_opened_adapter *adapter, ckpt_error *err) {
  const char *recorded, *name;
  ckpt_config *config;
  bool is_other = ckpt_config_text(adapter->peft.config, "base_model_name_or_path", &recorded);
  if (!is_other || may_be(all->base->path, recorded)) return CKPT_OK;
  CKPT_TRY(ckpt_config_of(&config, all->base, err));
  if (config != NULL) is_other = !ckpt_config_text(config, "_name_or_path", &name) || !may_be(name, recorded);
  ckpt_config_free(config);
  if (!is_other) return CKPT_OK;
  return ckpt_adapters_doubt(all, err,
                             "%s was trained on '%.200s', which may be another base (base_model_name_or_path)",
                             adapter->index->path, recorded);
}

/* Weights beside the adapter's may have been trained with it: trainers save in their own files what PEFT does not know.
 */
static ckpt_status note_other_weights(ckpt_adapters *all, const ckpt_opened_adapter *adapter, ckpt_error *err) {
  const ckpt_index *index = adapter->under != NULL ? adapter->under : adapter->index;
  for (uint32_t i = 0; i < index->n_notes; i++)
    if (index->notes[i].kind == CKPT_NOTE_WEIGHTS_LEFT)
      CKPT_TRY(ckpt_adapters_doubt(all, err, "%s %s", index->path, index->notes[i].text));
  return CKPT_OK;
}

/* PEFT takes its own list for the family then, which may be shorter. */
static ckpt_status note_targets(ckpt_adapters *all, const ckpt_opened_adapter *adapter, ckpt_error *err) {
  const ckpt_peft *peft = &adapter->peft;
  if (peft->targets.is_said || peft->parameters.is_said) return CKPT_OK;
  return ckpt_adapters_doubt(all, err, "%s: target_modules is not set, so every module with factors is merged",
                             peft->path);
}

static ckpt_status find_changes(ckpt_adapters *all, ckpt_error *err) {
  CKPT_TRY(ckpt_adapters_find_tied(all, err));
  for (uint32_t i = 0; i < all->n; i++) {
    CKPT_TRY(note_base(all, &all->list[i], err));
    CKPT_TRY(note_other_weights(all, &all->list[i], err));
    CKPT_TRY(note_targets(all, &all->list[i], err));
    CKPT_TRY(ckpt_changes_collect(all, i, err));
  }
  CKPT_TRY(ckpt_changes_settle(all, err));
  CKPT_TRY(ckpt_changes_note_unscaled(all, err));
  CKPT_TRY(ckpt_changes_orient(all, err));
  for (uint32_t i = 0; i < all->n; i++) CKPT_TRY(ckpt_changes_check_noop(all, i, err));
  CKPT_TRY(ckpt_changes_check_pairs(all, err));
  for (uint32_t i = 0; i < all->n; i++) CKPT_TRY(ckpt_changes_check_targets(all, i, err));
  CKPT_TRY(ckpt_changes_untie(all, err));
  CKPT_TRY(ckpt_adapters_note_lacking(all, err));
  return ckpt_changes_check_vocabulary(all, err);
}

static ckpt_status check_options(const ckpt_adapter_options *options, ckpt_error *err) {
  const char *tied = options->tied == NULL ? "keep" : options->tied;
  if (strcmp(tied, "keep") != 0 && strcmp(tied, "untie") != 0 && strcmp(tied, "error") != 0)
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "tied", "'%.80s' is unknown: keep, untie or error", tied);
  if (options->combine != NULL && strcmp(options->combine, "cat") != 0)
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "combine", "'%.80s' is not cat", options->combine);
  return CKPT_OK;
}

ckpt_status ckpt_adapters_open(ckpt_adapters **out, const ckpt_index *base, const ckpt_adapter_request *requests,
                               uint32_t n, const ckpt_adapter_options *options, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  if (options != NULL) CKPT_TRY(check_options(options, err));
  ckpt_adapters *all = calloc(1, sizeof *all);
  CKPT_TRY_ALLOC(all, err);
  all->base = base;
  if (options != NULL) all->options = *options;
  ckpt_arena_init(&all->arena, base->max_bytes);
  all->list = calloc(n == 0 ? 1 : n, sizeof *all->list);
  if (all->list == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (; all->n < n && status == CKPT_OK; all->n++) /* what was opened is released, too */
    status = open_one(all, &requests[all->n], all->n, err);
  if (status != CKPT_OK) goto done;
  qsort(all->list, n, sizeof *all->list, by_digest);
  status = find_changes(all, err);
done:
  if (status == CKPT_OK)
    *out = all;
  else
    ckpt_adapters_free(all);
  return status;
}

void ckpt_adapters_free(ckpt_adapters *adapters) {
  if (adapters == NULL) return;
  for (uint32_t i = 0; i < adapters->n; i++) {
    ckpt_peft_free(&adapters->list[i].peft);
    free(adapters->list[i].is_zero);
    ckpt_index_free(adapters->list[i].opened);
    ckpt_index_free(adapters->list[i].under);
  }
  free(adapters->list);
  free(adapters->changes);
  free(adapters->untied);
  free(adapters->notes);
  ckpt_arena_free(&adapters->arena);
  free(adapters);
}

const ckpt_index *ckpt_adapters_base(const ckpt_adapters *adapters) { return adapters->base; }

const ckpt_adapter_options *ckpt_adapters_options(const ckpt_adapters *adapters) { return &adapters->options; }

/* ---- what they do ------------------------------------------------------------------------------------------------ */

bool ckpt_adapters_at(const ckpt_adapters *adapters, uint32_t i, ckpt_adapter_info *info) {
  if (i >= adapters->n) return false;
  const ckpt_opened_adapter *adapter = &adapters->list[i];
  *info = (ckpt_adapter_info){.path = adapter->path,
                              .request = adapter->request,
                              .scale = adapter->scale,
                              .digest = adapter->digest,
                              .base = adapter->has_base ? &adapter->base : NULL,
                              .index = adapter->index};
  return true;
}

bool ckpt_adapters_effect(const ckpt_adapters *adapters, size_t i, ckpt_adapter_effect *effect) {
  if (i >= adapters->n_changes) return false;
  const ckpt_change *change = &adapters->changes[i];
  *effect = (ckpt_adapter_effect){
      .adapter = change->adapter, .name = change->name, .rank = change->rank, .scale = change->scale};
  return true;
}

bool ckpt_adapters_change(const ckpt_adapters *adapters, const ckpt_tensor *tensor) {
  uint32_t n;
  ckpt_changes_of(adapters, tensor, tensor->name, &n);
  const char *const *alias = tensor->aliases;
  for (; n == 0 && alias != NULL && *alias != NULL; alias++) ckpt_changes_of(adapters, tensor, *alias, &n);
  return n != 0;
}

size_t ckpt_adapters_count(const ckpt_adapters *adapters) {
  size_t n = 0;
  for (uint32_t i = 0; i < adapters->n_changes; i++) {
    const ckpt_change *a = &adapters->changes[i], *before = a - 1;
    n += i == 0 || a->base != before->base || strcmp(a->name, before->name) != 0;
  }
  return n;
}

/* ---- the merged model -------------------------------------------------------------------------------------------- */

/* A name of the base in the merged model: with a new head the class is another, whose names have a prefix. */
static ckpt_status name_in_merged(const char **out, ckpt_index *into, const ckpt_adapters *all, const char *name,
                                  ckpt_error *err) {
  *out = name;
  if (all->prefix == NULL || all->changes[0].base != NULL) return CKPT_OK; /* new tensors come first in the list */
  *out = ckpt_arena_printf(&into->arena, "%s%s", all->prefix, name);
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

/* A tensor of the base under one of its names, changed or not. */
static ckpt_status add_named(ckpt_index *into, const ckpt_adapters *all, const ckpt_tensor *tensor, const char *name,
                             uint32_t *number, ckpt_error *err) {
  uint32_t n;
  const ckpt_change *changes = ckpt_changes_of(all, tensor, name, &n);
  ckpt_expr *expr;
  if (n == 0)
    CKPT_TRY(ckpt_expr_read_in(&expr, &into->arena, all->base, tensor, err));
  else
    CKPT_TRY(ckpt_change_expr(&expr, all, changes, n, &into->arena, err));
  const ckpt_role role = tensor == NULL ? CKPT_ROLE_PARAMETER : (ckpt_role)tensor->role;
  if (tensor != NULL) CKPT_TRY(name_in_merged(&name, into, all, name, err));
  CKPT_TRY(ckpt_index_add(into, name, strlen(name), (ckpt_dtype)expr->dtype, expr->rank, expr->shape, role, NULL, 0,
                          number, err));
  return ckpt_derive(into, *number, expr, err);
}

/* With the names that are still its; those that are untied are tensors of their own. */
static ckpt_status add_tensor(ckpt_index *into, const ckpt_adapters *all, const ckpt_tensor *tensor, ckpt_error *err) {
  uint32_t number, other;
  if (ckpt_adapters_lacks(all, tensor->name) && !ckpt_adapters_change(all, tensor)) return CKPT_OK;
  CKPT_TRY(add_named(into, all, tensor, tensor->name, &number, err));
  for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
    if (ckpt_adapters_untied(all, tensor->name, *alias))
      CKPT_TRY(add_named(into, all, tensor, *alias, &other, err));
    else if (!ckpt_adapters_lacks(all, *alias)) {
      const char *name;
      CKPT_TRY(name_in_merged(&name, into, all, *alias, err));
      CKPT_TRY(ckpt_index_alias(into, number, name, err));
    }
  for (uint32_t i = 0; i < all->n_tied; i++) {
    const ckpt_adapter_place *tied = &all->tied[i].place;
    if (tied->tensor == tensor && !all->tied[i].is_alias && ckpt_adapters_untied(all, tensor->name, tied->name))
      CKPT_TRY(add_named(into, all, tensor, tied->name, &other, err));
  }
  return CKPT_OK;
}

/* What the base has not. */
static ckpt_status add_new(ckpt_index *into, const ckpt_adapters *all, ckpt_error *err) {
  uint32_t number;
  for (uint32_t i = 0; i < all->n_changes && all->changes[i].base == NULL; i++) {
    if (i != 0 && strcmp(all->changes[i].name, all->changes[i - 1].name) == 0) continue;
    CKPT_TRY(add_named(into, all, NULL, all->changes[i].name, &number, err));
  }
  return CKPT_OK;
}

/* Blocks cannot be added to: they become their values, and what comes of them is no block. */
static ckpt_status note_blocks(ckpt_index *into, const ckpt_adapters *all, ckpt_error *err) {
  uint32_t n = 0;
  const char *type = NULL;
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    const bool is_first = i == 0 || c->base != c[-1].base;
    if (c->base == NULL || !is_first || !ckpt_dtype_is_block((ckpt_dtype)c->base->dtype)) continue;
    type = ckpt_dtype_name((ckpt_dtype)c->base->dtype);
    n++;
  }
  if (n == 0) return CKPT_OK;
  return ckpt_index_note(into, false, err, "%u tensor%s of blocks (%s, ...) %s f32 in the merged model", n,
                         ckpt_plural(n), type, n == 1 ? "is" : "are");
}

/* Side files are the base's, and lie in its source; the tokenizer is an adapter's, where it brings one. */
static ckpt_status carry(ckpt_index *into, const ckpt_adapters *all, ckpt_error *err) {
  const ckpt_index *base = all->base;
  CKPT_TRY(ckpt_index_carry(into, base, err));
  for (uint32_t i = 0; i < into->n_side_files; i++)
    if (into->side_files[i].source == NULL) into->side_files[i].source = base->source;
  if (base->stored_form == NULL)
    CKPT_TRY(ckpt_adapters_carry_tokenizer(into, all, err)); /* GGUF keeps it in its metadata */
  else if (all->n_vocabulary != 0)
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED, base->path, NULL,
        "the adapter has another vocabulary, and a GGUF base keeps its own (merge into the model that it was "
        "made from)");
  CKPT_TRY(note_blocks(into, all, err));
  for (uint32_t i = 0; i < all->n_notes; i++) {
    CKPT_TRY(ckpt_index_note(into, false, err, "%s", all->notes[i].text));
    if (all->notes[i].is_doubt) CKPT_TRY(ckpt_index_note_is(into, CKPT_NOTE_DOUBT, NULL, err));
  }
  into->objects = NULL; /* a run cannot go on from another model's state */
  into->top = NULL;
  into->graph = NULL;
  if (all->n_untied == 0) return ckpt_adapters_edit_config(into, all, err);
  into->ties = 0;
  into->stated_ties = NULL;
  return ckpt_adapters_edit_config(into, all, err);
}

static bool changes_name(const void *arg, const char *name) {
  const ckpt_adapters *all = arg;
  const ckpt_tensor *tensor = ckpt_index_find(all->base, name);
  uint32_t n;
  ckpt_changes_of(all, tensor, name, &n);
  return n != 0;
}

ckpt_status ckpt_adapters_merge(ckpt_index **out, const ckpt_adapters *adapters, ckpt_error *err) {
  const ckpt_index *base = adapters->base;
  ckpt_index *merged;
  ckpt_status status;
  CKPT_TRY(ckpt_index_new(&merged, NULL, base->path, base->format, NULL, err));
  CKPT_TRY_GOTO(carry(merged, adapters, err));
  for (uint32_t i = 0; i < base->n_tensors; i++) {
    const ckpt_tensor *tensor = &base->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue;
    CKPT_TRY_GOTO(ckpt_fail_at(add_tensor(merged, adapters, tensor, err), err, base->path, tensor->name));
  }
  CKPT_TRY_GOTO(add_new(merged, adapters, err));
  CKPT_TRY_GOTO(ckpt_index_finish(merged, err));
  status = ckpt_dialect_restore(merged, base, changes_name, adapters, err);
done:
  if (status == CKPT_OK)
    *out = merged;
  else
    ckpt_index_free(merged);
  return status;
}
