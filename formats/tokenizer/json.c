/* json.c - tokenizer.json as `tokenizers` writes it, streamed: vocabulary and merges are never a tree.
 *
 *   {"added_tokens": [{"id", "content", "special", "single_word", "lstrip", "rstrip", "normalized"}, ...],
 *    "normalizer": tree, "pre_tokenizer": tree, "post_processor": tree, "decoder": tree,
 *    "model": {"type": "BPE", "vocab": {token: id}, "merges": ["a b" | ["a", "b"], ...], "byte_fallback", ...}} */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "libckpt/base/error.h"

static ckpt_status text_copy(const char **out, ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  *out = ckpt_arena_copy(&build->out->arena, ckpt_json_text(json, NULL));
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_read_vocab(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "the vocabulary", err));
  char *text = NULL;
  size_t n, n_room = 0;
  ckpt_status status = CKPT_OK;
  for (;;) {
    ckpt_json_token token;
    uint64_t id;
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    if (token != CKPT_JSON_KEY) break;
    const char *key = ckpt_json_text(json, &n);
    if (n >= n_room) {
      char *moved = realloc(text, n_room = n + 256);
      if (moved == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
      if (moved == NULL) goto done;
      text = moved;
    }
    memcpy(text, key, n);
    text[n] = '\0';
    CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a token's id", err));
    if (!ckpt_json_u64(json, &id)) {
      status = ckpt_json_fail(json, err, "an id is a whole number");
      goto done;
    }
    CKPT_TRY_GOTO(ckpt_tokenizer_build_token(build, text, n, id, NULL, err));
  }
  build->has_vocab = true;
done:
  free(text);
  return status;
}

/* One merge as a pair, its `[` read. */
static ckpt_status read_pair(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  size_t n_left, n_right;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_STRING, "the left token of a merge", err));
  const char *text = ckpt_json_text(json, &n_left);
  char *left = malloc(n_left + 1);
  CKPT_TRY_ALLOC(left, err);
  memcpy(left, text, n_left);
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_STRING, "the right token of a merge", err));
  text = ckpt_json_text(json, &n_right);
  CKPT_TRY_GOTO(ckpt_tokenizer_build_merge(build, left, n_left, text, n_right, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_ARRAY_END, "the end of a merge", err));
done:
  free(left);
  return status;
}

static ckpt_status read_merges(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "the merges", err));
  for (;;) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return CKPT_OK;
    if (token == CKPT_JSON_ARRAY) {
      CKPT_TRY(read_pair(build, json, err));
      continue;
    }
    size_t n;
    if (token != CKPT_JSON_STRING) return ckpt_json_fail(json, err, "a merge is \"a b\" or [\"a\", \"b\"]");
    const char *text = ckpt_json_text(json, &n);
    CKPT_TRY(ckpt_tokenizer_build_merge_line(build, text, n, err));
  }
}

/* A setting of the model that is a truth value, or null for none. */
static ckpt_status read_bool(ckpt_json *json, bool *out, const char *key, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  if (token != CKPT_JSON_TRUE && token != CKPT_JSON_FALSE && token != CKPT_JSON_NULL)
    return ckpt_json_fail(json, err, "%s has to be true or false", key);
  *out = token == CKPT_JSON_TRUE;
  return CKPT_OK;
}

/* A setting that has to be empty, null or 0: what it turns on changes ids, and is not run here. */
static ckpt_status refuse(ckpt_tokenizer_build *build, ckpt_json *json, const char *key, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  const char *text = token == CKPT_JSON_STRING || token == CKPT_JSON_NUMBER ? ckpt_json_text(json, NULL) : "";
  if (token == CKPT_JSON_NULL || (token == CKPT_JSON_STRING && text[0] == '\0') ||
      (token == CKPT_JSON_NUMBER && strtod(text, NULL) == 0))
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, build->file, NULL, "a BPE model with %s (%.60s)", key, text);
}

static ckpt_status read_model_key(ckpt_tokenizer_build *build, ckpt_json *json, const char *key, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  if (strcmp(key, "vocab") == 0) return ckpt_tokenizer_read_vocab(build, json, err);
  if (strcmp(key, "merges") == 0) return read_merges(build, json, err);
  if (strcmp(key, "byte_fallback") == 0) return read_bool(json, &out->has_byte_fallback, "byte_fallback", err);
  if (strcmp(key, "fuse_unk") == 0) return read_bool(json, &out->fuses_unknown, "fuse_unk", err);
  if (strcmp(key, "ignore_merges") == 0) return read_bool(json, &out->ignores_merges, "ignore_merges", err);
  if (strcmp(key, "dropout") == 0) return refuse(build, json, "dropout", err);
  if (strcmp(key, "continuing_subword_prefix") == 0) return refuse(build, json, "continuing_subword_prefix", err);
  if (strcmp(key, "end_of_word_suffix") == 0) return refuse(build, json, "end_of_word_suffix", err);
  ckpt_json_token token;
  if (strcmp(key, "unk_token") == 0) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_NULL) return CKPT_OK;
    if (token != CKPT_JSON_STRING) return ckpt_json_fail(json, err, "unk_token has to be a string");
    return text_copy(&build->unknown_text, build, json, err);
  }
  if (strcmp(key, "type") != 0) return ckpt_json_skip(json, err);
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_STRING, "the model's type", err));
  if (strcmp(ckpt_json_text(json, NULL), "BPE") == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, build->file, NULL, "a tokenizer of type %.60s (BPE is read)",
                   ckpt_json_text(json, NULL));
}

static ckpt_status read_model(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "the model", err));
  for (;;) {
    ckpt_json_token token;
    char key[64];
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    strncpy(key, ckpt_json_text(json, NULL), sizeof key - 1);
    key[sizeof key - 1] = '\0';
    CKPT_TRY(read_model_key(build, json, key, err));
  }
}

ckpt_status ckpt_tokenizer_read_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  static const char *const trees[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
  bool has_model = false;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a tokenizer", err));
  for (;;) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    const char *key = ckpt_json_text(json, NULL);
    if (strcmp(key, "model") == 0) {
      CKPT_TRY(read_model(build, json, err));
      has_model = true;
      continue;
    }
    if (strcmp(key, "added_tokens") == 0) {
      CKPT_TRY(ckpt_tree_read(&build->listed, json, &build->out->arena, err));
      continue;
    }
    int tree = -1;
    for (int i = 0; i < 4; i++)
      if (strcmp(key, trees[i]) == 0) tree = i;
    if (tree < 0) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    CKPT_TRY(ckpt_tree_read(&build->out->trees[tree], json, &build->out->arena, err));
    if (build->out->trees[tree]->kind == CKPT_OBJECT_NONE) build->out->trees[tree] = NULL;
  }
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err)); /* nothing follows */
  if (!has_model) return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "no tokenizer: it has no model");
  CKPT_TRY(ckpt_tokenizer_add_listed(build, err)); /* the vocabulary may stand behind them */
  return ckpt_tokenizer_read_steps(build, err);
}
