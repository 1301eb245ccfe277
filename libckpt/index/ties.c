/* ties.c - see ties.h. Names are judged by their modules: `decoder.embed_tokens.weight` is an embedding wherever it
 * stands, and `lm_head.weight` a head. The lists are those of transformers' models and of torch's own examples. */
#include "libckpt/index/ties.h"

#include <string.h>

#include "libckpt/base/error.h"

enum { MAX_STATED = 8, RANK_LIKE = 0, RANK_SHARED, RANK_EMBEDDING, RANK_OTHER, RANK_HEAD };

static const char *const heads[] = {"lm_head",
                                    "output",
                                    "embed_out",
                                    "score",
                                    "cls.predictions.decoder",
                                    "lm_head.decoder",
                                    "predictions.decoder",
                                    "proj_out",
                                    "output_projection",
                                    "output_layer",
                                    "unembed",
                                    "vocab_projector",
                                    "lm_loss",
                                    "pred_layer.proj",
                                    "generator_lm_head",
                                    "decoder",
                                    "logits",
                                    NULL};
static const char *const embeddings[] = {"embed_tokens", "wte",        "word_embeddings", "tok_embeddings",
                                         "embed_in",     "embeddings", "word_embedding",  "transformer.w",
                                         "shared",       NULL};
static const char *const shared[] = {"shared", NULL};

/* Whether a parameter of a module whose name ends in one of these components. */
static bool is_of(const char *name, const char *const *modules) {
  const char *leaf = strrchr(name, '.');
  if (leaf == NULL || (strcmp(leaf, ".weight") != 0 && strcmp(leaf, ".bias") != 0)) return false;
  const size_t n = (size_t)(leaf - name);
  for (; *modules != NULL; modules++) {
    const size_t n_module = strlen(*modules);
    if (n >= n_module && memcmp(leaf - n_module, *modules, n_module) == 0 &&
        (n == n_module || leaf[-(ptrdiff_t)n_module - 1] == '.'))
      return true;
  }
  return false;
}

/* Whether the model of --like is one that was opened. */
static bool is_open(const ckpt_index *like) { return like != NULL && like->source != NULL && like->by_name != NULL; }

int ckpt_tie_rank(const char *name, const ckpt_index *like) {
  if (is_open(like) && ckpt_index_place(like, name) >= 0) return RANK_LIKE;
  if (is_of(name, heads)) return RANK_HEAD;
  if (is_of(name, shared)) return RANK_SHARED;
  return is_of(name, embeddings) ? RANK_EMBEDDING : RANK_OTHER;
}

bool ckpt_tie_is_head(const char *name) { return is_of(name, heads); }

/* ---- what a config states ---------------------------------------------------------------------------------------- */

typedef struct found_name {
  const char *name;
  const ckpt_tensor *tensor;
} found_name;

/* The first `max` names of the model's matrices that are of these modules; how many there are. */
static size_t find_names(found_name *out, size_t max, const ckpt_index *index, const char *const *modules) {
  size_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->rank != 2 || tensor->role != CKPT_ROLE_PARAMETER) continue;
    const char *name = tensor->name;
    for (const char *const *alias = tensor->aliases; name != NULL; name = alias == NULL ? NULL : *alias++)
      if (is_of(name, modules) && n++ < max) out[n - 1] = (found_name){name, tensor};
  }
  return n;
}

/* The one that the others are tied to: the only one, a tensor's own name before its aliases, or `shared`. */
static const found_name *find_embedding(const found_name *found, size_t n) {
  const found_name *kept = NULL;
  for (size_t i = 0; i < n; i++)
    if (is_of(found[i].name, shared)) return &found[i];
  for (size_t i = 0; i < n; i++) {
    if (kept != NULL && kept->tensor != found[i].tensor) return NULL;
    if (kept == NULL || strcmp(found[i].name, found[i].tensor->name) == 0) kept = &found[i];
  }
  return kept;
}

static bool is_alike(const ckpt_tensor *a, const ckpt_tensor *b) {
  return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static const ckpt_tensor *find_parameter(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (index->tensors[i].role == CKPT_ROLE_PARAMETER && strcmp(index->tensors[i].name, name) == 0)
      return &index->tensors[i];
  return NULL;
}

/* A head that is a `decoder` in a module has that module's bias: cls.predictions.decoder.bias is cls.predictions.bias
 * in BERT, lm_head.decoder.bias lm_head.bias in RoBERTa. Adds that pair where both are stored. */
static ckpt_status add_bias(ckpt_index *index, const char *head, const char **pairs, uint32_t *n_pairs,
                            ckpt_error *err) {
  static const char end[] = ".decoder.weight";
  const size_t n = strlen(head);
  if (n < sizeof end || strcmp(head + n - (sizeof end - 1), end) != 0) return CKPT_OK;
  const int n_module = (int)(n - (sizeof end - 1));
  const char *kept = ckpt_arena_printf(&index->arena, "%.*s.bias", n_module, head);
  const char *tied = ckpt_arena_printf(&index->arena, "%.*s.decoder.bias", n_module, head);
  CKPT_TRY_ALLOC(kept, err);
  CKPT_TRY_ALLOC(tied, err);
  const ckpt_tensor *a = find_parameter(index, kept), *b = find_parameter(index, tied);
  if (a == NULL || b == NULL || a->rank != 1 || !is_alike(a, b)) return CKPT_OK;
  pairs[2 * *n_pairs] = kept;
  pairs[2 * (*n_pairs)++ + 1] = tied;
  return CKPT_OK;
}

static bool states_tie(const ckpt_config *config) {
  bool is_tied = false;
  if (ckpt_config_has(config, "tie_word_embeddings")) {
    (void)ckpt_config_bool(config, "tie_word_embeddings", &is_tied);
    return is_tied;
  }
  (void)ckpt_config_bool(config, "text_config.tie_word_embeddings", &is_tied);
  return is_tied;
}

/* The first `max` matrices that the model of --like has not: how many there are. Where the config ties, its own writer
 * left the tied names out. */
static size_t find_extra(found_name *out, size_t max, const ckpt_index *index, const ckpt_index *like) {
  size_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors && is_open(like); i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->rank != 2 || tensor->role != CKPT_ROLE_PARAMETER || is_of(tensor->name, heads)) continue;
    if (ckpt_index_find(like, tensor->name) == NULL && n++ < max) out[n - 1] = (found_name){tensor->name, tensor};
  }
  return n;
}

/* Heads, and what stands for one. */
static size_t find_heads(found_name *out, const ckpt_index *index, const ckpt_index *like) {
  const size_t n = find_names(out, MAX_STATED, index, heads);
  if (n > MAX_STATED) return 0;
  const size_t n_extra = find_extra(out + n, MAX_STATED - n, index, like);
  return n_extra > MAX_STATED - n ? n : n + n_extra;
}

ckpt_status ckpt_index_find_ties(ckpt_index *index, const ckpt_config *config, const ckpt_index *like,
                                 ckpt_error *err) {
  found_name found[2 * MAX_STATED];
  if (config == NULL || !states_tie(config)) return CKPT_OK;
  const size_t n = find_names(found, MAX_STATED, index, embeddings);
  const found_name *kept = n > MAX_STATED ? NULL : find_embedding(found, n);
  if (kept == NULL) return CKPT_OK;
  const size_t n_heads = find_heads(found + n, index, like);
  const char **pairs = ckpt_arena_array(&index->arena, 8 * MAX_STATED + 1, sizeof *pairs);
  CKPT_TRY_ALLOC(pairs, err);
  uint32_t n_pairs = 0;
  for (size_t i = 0; i < n + n_heads; i++) {
    if (strcmp(found[i].name, kept->name) == 0 || !is_alike(found[i].tensor, kept->tensor)) continue;
    pairs[2 * n_pairs] = kept->name;
    pairs[2 * n_pairs++ + 1] = found[i].name;
    CKPT_TRY(add_bias(index, found[i].name, pairs, &n_pairs, err));
  }
  pairs[2 * n_pairs] = NULL;
  index->stated_ties = n_pairs == 0 ? NULL : pairs;
  return CKPT_OK;
}

bool ckpt_ties_state(const ckpt_index *index, const char *a, const char *b) {
  for (const char *const *pair = index->stated_ties; pair != NULL && *pair != NULL; pair += 2)
    if ((strcmp(pair[0], a) == 0 && strcmp(pair[1], b) == 0) || (strcmp(pair[0], b) == 0 && strcmp(pair[1], a) == 0))
      return true;
  return false;
}
