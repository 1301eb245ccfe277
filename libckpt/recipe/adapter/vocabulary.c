/* vocabulary.c - embeddings that an adapter makes larger or smaller, and config.json as the merge makes it. See
 * changes.h. Whatever has a row a token has to change with the embedding: the head, and its bias. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/ties.h"
#include "libckpt/recipe/adapter/changes.h"

typedef unsigned long long ull;

/* Whether a name is that of a tensor with a row a token. */
static bool has_tokens(const ckpt_index *base, const char *name) {
  static const char *const leaves[] = {
      "embed_tokens.weight", "wte.weight",     "word_embeddings.weight", "tok_embeddings.weight", "embed_in.weight",
      "shared.weight",       "lm_head.weight", "embed_out.weight",       "output.weight",         "decoder.weight",
      "predictions.bias",    "decoder.bias",   "lm_head.bias",           "output_layer.bias"};
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++)
    if (ckpt_adapter_ends_with(name, leaves[i])) return true;
  return arch != NULL && arch->shapes != NULL && arch->shapes[0].hf != NULL && strcmp(arch->shapes[0].hf, name) == 0;
}

static ckpt_status take_size(ckpt_adapters *all, const ckpt_change *c, ckpt_error *err) {
  const ckpt_tensor *whole = c->whole;
  char text[CKPT_SHAPE_TEXT], base[CKPT_SHAPE_TEXT];
  if (whole == NULL || c->base == NULL || c->base->rank == 0 || whole->shape[0] == c->base->shape[0]) return CKPT_OK;
  if (!has_tokens(all->base, c->name))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "its shape is %s, that of '%s' %s",
                     ckpt_tensor_shape_text(whole, text, sizeof text), c->name,
                     ckpt_tensor_shape_text(c->base, base, sizeof base));
  if (all->n_vocabulary != 0 && all->n_vocabulary != whole->shape[0])
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has %llu rows, another embedding of the merge %llu",
                     (ull)whole->shape[0], (ull)all->n_vocabulary);
  all->n_vocabulary = whole->shape[0];
  return CKPT_OK;
}

/* Rows that a tensor of the base has in the merged model, under one of its names. */
static uint64_t rows_of(const ckpt_adapters *all, const ckpt_tensor *tensor, const char *name) {
  uint32_t n;
  const ckpt_change *changes = ckpt_changes_of(all, tensor, name, &n);
  return n == 0 ? tensor->shape[0] : ckpt_change_shape(changes, n)->shape[0];
}

static ckpt_status check_rest(const ckpt_adapters *all, const ckpt_tensor *tensor, const char *name, uint64_t n_before,
                              ckpt_error *err) {
  if (ckpt_adapter_ends_with(name, "final_logits_bias") && tensor->n_elements == n_before) /* of BART's relatives */
    return ckpt_fail(err, CKPT_EUNSUPPORTED, all->base->path, name,
                     "has %llu columns, and the merged embedding %llu rows: no adapter has the new ones", (ull)n_before,
                     (ull)all->n_vocabulary);
  if (tensor->rank == 0 || tensor->shape[0] != n_before || !has_tokens(all->base, name)) return CKPT_OK;
  if (rows_of(all, tensor, name) == all->n_vocabulary) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, all->base->path, name,
                   "has %llu rows, and the merged embedding %llu: no adapter has the new rows of it",
                   (ull)tensor->shape[0], (ull)all->n_vocabulary);
}

ckpt_status ckpt_changes_check_vocabulary(ckpt_adapters *all, ckpt_error *err) {
  uint64_t n_before = 0;
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    CKPT_TRY(ckpt_fail_at(take_size(all, c, err), err, all->list[c->adapter].index->path, ckpt_change_tensor(c)->name));
    if (all->n_vocabulary != 0 && n_before == 0) n_before = c->base->shape[0];
  }
  if (all->n_vocabulary == 0) return CKPT_OK;
  for (uint32_t i = 0; i < all->base->n_tensors; i++) {
    const ckpt_tensor *tensor = &all->base->tensors[i];
    CKPT_TRY(check_rest(all, tensor, tensor->name, n_before, err));
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      if (ckpt_adapters_untied(all, tensor->name, *alias)) CKPT_TRY(check_rest(all, tensor, *alias, n_before, err));
  }
  for (uint32_t i = 0; i < all->n_tied; i++) {
    const ckpt_adapter_place *tied = &all->tied[i].place;
    if (!all->tied[i].is_alias && ckpt_adapters_untied(all, tied->tensor->name, tied->name))
      CKPT_TRY(check_rest(all, tied->tensor, tied->name, n_before, err));
  }
  all->n_vocabulary_base = n_before;
  return ckpt_adapters_note(all, err, "the vocabulary has %llu rows instead of %llu (vocab_size)",
                            (ull)all->n_vocabulary, (ull)n_before);
}

/* ---- config.json ------------------------------------------------------------------------------------------------- */

enum { MAX_PLACES = 16, MAX_PLACE = 256, MAX_DEPTH = 4 };

/* Where a config has a key, in itself and in the configs in it: dotted. */
typedef struct places {
  char list[MAX_PLACES][MAX_PLACE];
  size_t n;
} places;

static void find_places(places *out, const ckpt_config *config, const char *object, const char *key, int depth) {
  char place[MAX_PLACE];
  for (size_t i = 0; depth < MAX_DEPTH; i++) {
    const char *name = *object == '\0' ? ckpt_config_key(config, i) : NULL;
    if (*object != '\0' && ckpt_config_kind_at(config, object, i, &name) == CKPT_CONFIG_ABSENT) return;
    if (name == NULL) return;
    ckpt_c_snprintf(place, sizeof place, "%s%s%s", object, *object == '\0' ? "" : ".", name);
    if (strchr(name, '.') != NULL || strlen(place) + 1 == sizeof place) continue; /* no place that can be said */
    if (strcmp(name, key) == 0 && out->n < MAX_PLACES) memcpy(out->list[out->n++], place, sizeof place);
    if (ckpt_config_kind_of(config, place) == CKPT_CONFIG_OBJECT) find_places(out, config, place, key, depth + 1);
  }
}

static bool is_nested(const char *place) { return strchr(place, '.') != NULL; }

ckpt_status ckpt_vocabularies_read(ckpt_vocabularies *out, const ckpt_index *base, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(base, "config.json");
  ckpt_config *config;
  places found = {.n = 0};
  int64_t size;
  *out = (ckpt_vocabularies){.n = 0};
  if (side == NULL || side->text == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, side->text, side->n_bytes, ckpt_index_side_path(base, side), err));
  find_places(&found, config, "", "vocab_size", 0);
  for (size_t i = 0; i < found.n && out->n < CKPT_VOCABULARIES; i++)
    if (ckpt_config_int(config, found.list[i], &size) && size > 0) out->sizes[out->n++] = (uint64_t)size;
  ckpt_config_free(config);
  for (uint32_t i = 0; i < base->n_tensors; i++) {
    const ckpt_tensor *tensor = &base->tensors[i];
    if (tensor->rank != 2 || !ckpt_tie_is_head(tensor->name)) continue;
    out->has_any_head = true;
    for (size_t k = 0; k < out->n; k++) out->has_head[k] = out->has_head[k] || out->sizes[k] == tensor->shape[0];
  }
  return CKPT_OK;
}

bool ckpt_vocabularies_lack_head(const ckpt_vocabularies *all, const ckpt_index *base, const ckpt_tensor *tensor) {
  if (tensor->rank != 2) return false;
  if (all->n == 0) return !all->has_any_head && has_tokens(base, tensor->name);
  for (size_t i = 0; i < all->n; i++)
    if (all->sizes[i] == tensor->shape[0] && !all->has_head[i]) return true;
  return false;
}

/* The place of a dotted key's value, or of the end of the object that lacks it; *has: whether it is there. */
static ckpt_status find_key(const ckpt_side_file *side, const char *key, bool *has, size_t *first, size_t *end,
                            bool *is_empty, ckpt_error *err) {
  ckpt_json *json;
  ckpt_json_token token;
  ckpt_status status = CKPT_OK;
  *has = false;
  *is_empty = true;
  CKPT_TRY(ckpt_json_new_text(&json, side->text, (size_t)side->n_bytes, true, side->name, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "the outermost value", err));
  for (;;) {
    const size_t n = strcspn(key, ".");
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    *first = *end = (size_t)ckpt_json_start(json);
    if (token == CKPT_JSON_OBJECT_END) goto done;
    *is_empty = false;
    const char *name = ckpt_json_text(json, NULL);
    const bool is_it = strlen(name) == n && memcmp(name, key, n) == 0;
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    *first = (size_t)ckpt_json_start(json);
    if (is_it && key[n] == '.' && token == CKPT_JSON_OBJECT) {
      key += n + 1;
      *is_empty = true;
      continue;
    }
    CKPT_TRY_GOTO(ckpt_json_skip_rest(json, token, err));
    *end = (size_t)ckpt_json_stop(json);
    *has = is_it && key[n] == '\0';
    if (*has) goto done;
  }
done:
  ckpt_json_free(json);
  return status;
}

ckpt_status ckpt_config_set(ckpt_side_file *side, ckpt_arena *arena, const char *key, const char *value,
                            ckpt_error *err) {
  size_t first, end, n_before;
  bool has, is_empty;
  CKPT_TRY(find_key(side, key, &has, &first, &end, &is_empty, err));
  n_before = first;
  while (!has && n_before > 0 && strchr(" \t\r\n", side->text[n_before - 1]) != NULL) n_before--;
  const char *start = has ? "" : ckpt_arena_printf(arena, "%s\n  \"%s\": ", is_empty ? "" : ",", key);
  CKPT_TRY_ALLOC(start, err);
  const char *text = ckpt_arena_printf(arena, "%.*s%s%s%s%.*s", (int)n_before, side->text, start, value,
                                       has ? "" : "\n", (int)(side->n_bytes - end), side->text + end);
  CKPT_TRY_ALLOC(text, err);
  side->text = text;
  side->n_bytes = strlen(text);
  return CKPT_OK;
}

/* Both are tied no more: in the config, and in the configs in it that say otherwise. */
static ckpt_status set_untied(ckpt_side_file *side, ckpt_arena *arena, const ckpt_config *config, ckpt_error *err) {
  places found = {.n = 0};
  CKPT_TRY(ckpt_config_set(side, arena, "tie_word_embeddings", "false", err));
  find_places(&found, config, "", "tie_word_embeddings", 0);
  for (size_t i = 0; i < found.n; i++) {
    bool is_tied = false;
    (void)ckpt_config_bool(config, found.list[i], &is_tied);
    if (is_tied && is_nested(found.list[i])) CKPT_TRY(ckpt_config_set(side, arena, found.list[i], "false", err));
  }
  return CKPT_OK;
}

/* Whether a config in the config may be that of the larger embedding: of two sides, that in which it lies. */
static bool is_of_side(const ckpt_adapters *all, const char *place) {
  const size_t n = strcspn(place, ".") + 1;
  if (strncmp(place, "encoder.", n) != 0 && strncmp(place, "decoder.", n) != 0) return true;
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    if (c->base != NULL && c->whole != NULL && c->whole->shape[0] == all->n_vocabulary &&
        c->whole->shape[0] != c->base->shape[0] && strncmp(c->name, place, n) == 0)
      return true;
  }
  return false;
}

/* Where the config has it: a model of several has it in the config of its part that has words. */
static ckpt_status set_vocabulary(ckpt_side_file *side, ckpt_arena *arena, const ckpt_adapters *all,
                                  const ckpt_config *config, ckpt_error *err) {
  places found = {.n = 0};
  int64_t was;
  bool is_set = false;
  const char *n = ckpt_arena_printf(arena, "%llu", (ull)all->n_vocabulary);
  CKPT_TRY_ALLOC(n, err);
  find_places(&found, config, "", "vocab_size", 0);
  for (size_t i = 0; i < found.n; i++) {
    const bool is_of_base = ckpt_config_int(config, found.list[i], &was) && was == (int64_t)all->n_vocabulary_base;
    if (is_nested(found.list[i]) && (!is_of_base || !is_of_side(all, found.list[i]))) continue;
    CKPT_TRY(ckpt_config_set(side, arena, found.list[i], n, err));
    is_set = true;
  }
  return is_set ? CKPT_OK : ckpt_config_set(side, arena, "vocab_size", n, err);
}

ckpt_status ckpt_adapters_edit_config(ckpt_index *merged, const ckpt_adapters *all, ckpt_error *err) {
  ckpt_side_file *side = NULL;
  ckpt_config *config;
  for (uint32_t i = 0; i < merged->n_side_files; i++)
    if (strcmp(merged->side_files[i].name, "config.json") == 0) side = &merged->side_files[i];
  if (side == NULL || side->text == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_adapters_edit_head(side, &merged->arena, all, err));
  if (all->n_untied == 0 && all->n_vocabulary == 0) return CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, side->text, side->n_bytes, NULL, err));
  ckpt_status status = CKPT_OK;
  if (all->n_untied != 0) status = set_untied(side, &merged->arena, config, err);
  if (status == CKPT_OK && all->n_vocabulary != 0) status = set_vocabulary(side, &merged->arena, all, config, err);
  ckpt_config_free(config);
  return status;
}

/* ---- tokenizer --------------------------------------------------------------------------------------------------- */

static ckpt_status same_bytes(bool *same, ckpt_index *index, const ckpt_side_file *a, const ckpt_side_file *b,
                              ckpt_error *err) {
  const char *of_a, *of_b;
  *same = a->n_bytes == b->n_bytes;
  if (!*same) return CKPT_OK;
  CKPT_TRY(ckpt_index_side_text(index, a, CKPT_CONFIG_MAX_BYTES, &of_a, err));
  CKPT_TRY(ckpt_index_side_text(index, b, CKPT_CONFIG_MAX_BYTES, &of_b, err));
  *same = memcmp(of_a, of_b, (size_t)a->n_bytes) == 0;
  return CKPT_OK;
}

static ckpt_status take_file(ckpt_index *merged, const ckpt_adapters *all, const ckpt_index *adapter,
                             const ckpt_side_file *side, ckpt_error *err) {
  ckpt_side_file file = *side, *to = NULL;
  bool is_same;
  if (file.source == NULL) file.source = adapter->source;
  for (uint32_t i = 0; i < merged->n_side_files; i++)
    if (strcmp(merged->side_files[i].name, file.name) == 0) to = &merged->side_files[i];
  if (to == NULL) {
    CKPT_TRY(ckpt_index_add_side_file(merged, file.name, file.file, file.n_bytes, err));
    to = &merged->side_files[merged->n_side_files - 1];
  } else if (to->source != all->base->source) {
    CKPT_TRY(same_bytes(&is_same, merged, to, &file, err));
    if (!is_same)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, adapter->path, NULL,
                       "%s is not that of another adapter: which tokenizer "
                       "the merged model has would depend on their order (delete it in one)",
                       file.name);
  }
  *to = file;
  return CKPT_OK;
}

ckpt_status ckpt_adapters_carry_tokenizer(ckpt_index *merged, const ckpt_adapters *all, ckpt_error *err) {
  for (uint32_t i = 0; i < all->n; i++) {
    const ckpt_index *adapter = all->list[i].index;
    for (uint32_t k = 0; k < adapter->n_side_files; k++)
      if (ckpt_side_file_is_tokenizer(adapter->side_files[k].name))
        CKPT_TRY(take_file(merged, all, adapter, &adapter->side_files[k], err));
  }
  return CKPT_OK;
}
