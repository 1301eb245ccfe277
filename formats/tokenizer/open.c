/* open.c - a tokenizer of its files: in a folder, among the side files of an index, or beside one of them. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/files.h"
#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"

#define LOOKED_FOR "tokenizer.json, tokenizer.model, vocab.json with merges.txt, tokenizer.ggml.* of a GGUF file"

typedef ckpt_tokenizer_files files;
typedef ckpt_tokenizer_file found;

static ckpt_status read_config_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  const ckpt_object *config;
  CKPT_TRY(ckpt_tree_read(&config, json, &build->out->arena, err));
  return ckpt_tokenizer_read_config(build, config, err);
}

static ckpt_status read_map_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  CKPT_TRY(ckpt_tree_read(&build->map, json, &build->out->arena, err));
  if (build->map->kind == CKPT_OBJECT_DICT && build->map->n <= 4096) return CKPT_OK;
  return ckpt_json_fail(json, err, "no JSON object of special tokens, or more than 4096");
}

static ckpt_status read_added_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  return ckpt_tree_read(&build->added_json, json, &build->out->arena, err);
}

/* The class of a model whose tokenizer_config.json names none. */
static ckpt_status read_class_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  const ckpt_object *tree;
  CKPT_TRY(ckpt_tree_read(&tree, json, &build->out->arena, err));
  const bool is_dict = tree->kind == CKPT_OBJECT_DICT;
  const ckpt_object *class = is_dict ? ckpt_object_get(tree, "tokenizer_class") : NULL,
                    *type = is_dict ? ckpt_object_get(tree, "model_type") : NULL;
  if (class != NULL && class->kind == CKPT_OBJECT_TEXT) build->out->tokenizer_class = class->text;
  const bool is_qwen = type != NULL && type->kind == CKPT_OBJECT_TEXT &&
                       (strncmp(type->text, "qwen2", 5) == 0 || strncmp(type->text, "qwen3", 5) == 0);
  if (build->out->tokenizer_class == NULL && is_qwen) build->out->tokenizer_class = "Qwen2Tokenizer";
  return CKPT_OK;
}

/* Special ids that no tokenizer file gives, from the model's config. */
static ckpt_status read_model_config(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  found at;
  bool is_there;
  char *text;
  CKPT_TRY(ckpt_tokenizer_find_file(f, "config.json", &at, &is_there, err));
  if (!is_there) return CKPT_OK;
  CKPT_TRY(ckpt_tokenizer_file_bytes(&text, &at, err));
  ckpt_config *config = NULL;
  ckpt_status status = ckpt_config_parse(&config, text, at.n_bytes, at.path, err);
  free(text);
  for (int i = 0; status == CKPT_OK && i < CKPT_N_SPECIALS; i++) {
    char key[32] = "";
    int64_t id;
    strncat(key, ckpt_special_name((ckpt_special)i), 8);
    strncat(key, "_token_id", 10);
    if (!ckpt_config_int(config, key, &id) || id < 0 || id >= build->out->n_tokens || build->tokens[id].text == NULL)
      continue;
    build->out->model_special[i] = (uint32_t)id;
    if (build->out->special[i] == CKPT_TOKEN_NONE) build->out->special[i] = (uint32_t)id;
  }
  ckpt_config_free(config);
  return status;
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

static ckpt_status read_merges_file(ckpt_tokenizer_build *build, const found *at, ckpt_error *err) {
  char *text;
  CKPT_TRY(ckpt_tokenizer_file_bytes(&text, at, err));
  build->file = at->path;
  ckpt_status status = ckpt_tokenizer_read_merges(build, text, (size_t)at->n_bytes, err);
  free(text);
  return status;
}

/* Special tokens of a vocabulary without a tokenizer.json are found in text. */
static ckpt_status add_specials(ckpt_tokenizer_build *build, ckpt_error *err) {
  const ckpt_added_token flags = {.is_special = true};
  ckpt_tokenizer *out = build->out;
  for (uint32_t id = 0; out->kind == CKPT_TOKENIZER_SPM_BPE && id < out->n_tokens; id++) {
    const ckpt_token *token = &build->tokens[id];
    if (token->text != NULL && token->added == CKPT_TOKEN_NONE &&
        (token->type == CKPT_TOKEN_CONTROL || token->type == CKPT_TOKEN_UNKNOWN))
      CKPT_TRY(ckpt_tokenizer_build_added(build, token->text, token->n_bytes, id, &flags, err));
  }
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    const uint32_t id = out->special[i];
    if (id == CKPT_TOKEN_NONE) continue;
    const ckpt_token *token = &build->tokens[id];
    CKPT_TRY(ckpt_tokenizer_build_added(build, token->text, token->n_bytes, id, &flags, err));
  }
  return CKPT_OK;
}

/* The vocabulary, in the first of the forms that is there. */
static ckpt_status read_vocabulary(ckpt_tokenizer_build *build, const files *f, bool *is_there, ckpt_error *err) {
  found at, merges;
  bool has_merges;
  build->out->origin = CKPT_TOKENIZER_OF_JSON;
  CKPT_TRY(ckpt_tokenizer_find_file(f, "tokenizer.json", &at, is_there, err));
  if (*is_there) return ckpt_tokenizer_read_file(build, &at, ckpt_tokenizer_read_json, err);
  build->out->origin = CKPT_TOKENIZER_OF_MODEL;
  CKPT_TRY(ckpt_tokenizer_find_file(f, "tokenizer.model", &at, is_there, err));
  if (*is_there) {
    build->file = at.path;
    build->n_bytes += at.n_bytes;
    return ckpt_fail_at(ckpt_tokenizer_read_sentencepiece(build, at.source, at.file, err), err, at.path, NULL);
  }
  build->out->origin = CKPT_TOKENIZER_OF_VOCAB;
  CKPT_TRY(ckpt_tokenizer_find_file(f, "vocab.json", &at, is_there, err));
  CKPT_TRY(ckpt_tokenizer_find_file(f, "merges.txt", &merges, &has_merges, err));
  *is_there = *is_there && has_merges;
  if (!*is_there) return CKPT_OK;
  CKPT_TRY(ckpt_tokenizer_read_file(build, &at, ckpt_tokenizer_read_vocab, err));
  return read_merges_file(build, &merges, err);
}

/* The files beside the vocabulary. */
static ckpt_status read_beside(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  CKPT_TRY(ckpt_tokenizer_read_if_there(build, f, "tokenizer_config.json", read_config_json, err));
  CKPT_TRY(ckpt_tokenizer_read_if_there(build, f, "special_tokens_map.json", read_map_json, err));
  CKPT_TRY(ckpt_tokenizer_read_if_there(build, f, "added_tokens.json", read_added_json, err));
  CKPT_TRY(ckpt_tokenizer_read_template_files(build, f, err));
  if (build->out->tokenizer_class != NULL || build->out->origin != CKPT_TOKENIZER_OF_VOCAB) return CKPT_OK;
  return ckpt_tokenizer_read_if_there(build, f, "config.json", read_class_json, err);
}

static bool says(const ckpt_tokenizer *t, const char *key, bool what) {
  const ckpt_object *value = t->config == NULL ? NULL : ckpt_object_get(t->config, key);
  return value != NULL && value->kind == CKPT_OBJECT_BOOL && value->boolean == what;
}

/* vocab.json and merges.txt do not say how text is cut: the class does. */
static ckpt_status cut_by_class(ckpt_tokenizer_build *build, ckpt_error *err) {
  static const struct { const char *class, *pre; } rows[] = {{"GPT2Tokenizer", "gpt-2"}, {"Qwen2Tokenizer", "qwen2"}};
  ckpt_tokenizer *out = build->out;
  const char *given = build->ggml == NULL ? NULL : build->ggml->pre, *pre = given;
  bool is_known = out->tokenizer_class == NULL || pre != NULL;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!ckpt_tokenizer_has_class(out, rows[i].class)) continue;
    is_known = true;
    pre = rows[i].pre;
  }
  if (!is_known) {
    const ckpt_status status =
        ckpt_fail(err, CKPT_EUNSUPPORTED, build->file, NULL,
                  "vocab.json and merges.txt of a %.60s, which do not say how it cuts text (GPT2Tokenizer and "
                  "Qwen2Tokenizer are known)",
                  out->tokenizer_class);
    return ckpt_advise(status, err, build->ggml != NULL ? "give %pre=NAME" : "save it with a tokenizer.json");
  }
  CKPT_TRY(ckpt_tokenizer_assume_bytes(build, pre, err));
  if (given != NULL && pre == given) out->pre = ckpt_pre_find(pre)->name; /* of names with these splits this one */
  if (says(out, "add_prefix_space", true)) out->prefix = CKPT_PREFIX_ALWAYS;
  return CKPT_OK;
}

/* What Llama's class does by the settings of tokenizer_config.json. */
static void apply_llama(ckpt_tokenizer_build *build) {
  ckpt_tokenizer *out = build->out;
  if (out->kind != CKPT_TOKENIZER_SPM_BPE || !ckpt_tokenizer_has_class(out, "LlamaTokenizer")) return;
  const bool has_prefix = !says(out, "add_prefix_space", false);
  if (out->origin == CKPT_TOKENIZER_OF_MODEL && says(out, "legacy", false)) { /* once, not behind special tokens */
    out->n_normalizer = 0;
    out->escapes_spaces = true;
    out->prefix = CKPT_PREFIX_FIRST;
  }
  if (has_prefix) return;
  out->prefix = CKPT_PREFIX_NEVER;
  while (out->n_normalizer != 0 && out->normalizer[0].kind == CKPT_NORMALIZE_PREPEND)
    out->normalizer++, out->n_normalizer--;
  while (out->n_decoder != 0 && out->decoder[out->n_decoder - 1].kind == CKPT_DECODE_STRIP) out->n_decoder--;
}

/* Tokens that no vocabulary has, special ones, and those around a text. */
static ckpt_status read_specials(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  if (out->origin == CKPT_TOKENIZER_OF_MODEL && build->ggml != NULL)
    CKPT_TRY(ckpt_tokenizer_place_stated(build, err));
  else
    CKPT_TRY(ckpt_tokenizer_add_stated(build, err));
  CKPT_TRY(read_model_config(build, f, err));
  if (out->origin == CKPT_TOKENIZER_OF_JSON) return CKPT_OK;
  CKPT_TRY(add_specials(build, err));
  ckpt_flag *adds_bos = &out->adds[CKPT_SPECIAL_BOS];
  const ckpt_flag said = *adds_bos;
  if (out->kind == CKPT_TOKENIZER_SPM_BPE && said == CKPT_FLAG_UNSAID) *adds_bos = CKPT_FLAG_YES; /* Llama's class */
  CKPT_TRY(ckpt_tokenizer_assume_ends(build, err));
  *adds_bos = said;
  return CKPT_OK;
}

/* ---- tokenizer.model beside tokenizer.json ----------------------------------------------------------------------- */

/* Gives tokens the scores and types of another structure, whose ids are the same; else says where they differ. */
static ckpt_status take_pieces(ckpt_tokenizer_build *to, const ckpt_tokenizer_build *from, ckpt_error *err) {
  const uint32_t n = from->out->n_tokens;
  for (uint32_t id = 0; id < n && id < to->out->n_tokens; id++) {
    const ckpt_token *token = &to->tokens[id], *piece = &from->tokens[id];
    if (token->text == NULL || piece->text == NULL ||
        (token->n_bytes == piece->n_bytes && memcmp(token->text, piece->text, token->n_bytes) == 0))
      continue;
    to->out->left =
        ckpt_arena_printf(&to->out->arena, "tokenizer.model, which has another token of id %u than tokenizer.json", id);
    CKPT_TRY_ALLOC(to->out->left, err);
    return CKPT_OK;
  }
  for (uint32_t id = 0; id < n; id++) {
    const ckpt_token *piece = &from->tokens[id];
    if (piece->text == NULL) continue;
    if (id >= to->out->n_tokens || to->tokens[id].text == NULL)
      CKPT_TRY(ckpt_tokenizer_build_token(to, piece->text, piece->n_bytes, id, NULL, err));
    to->tokens[id].score = piece->score;
    to->tokens[id].type = piece->type;
  }
  for (uint32_t id = 0; id < to->out->n_tokens; id++)
    if (id >= n || from->tokens[id].text == NULL) to->tokens[id].score = -1000.0f; /* as of those that a config adds */
  to->out->has_scores = true;
  return CKPT_OK;
}

/* The converter goes by tokenizer.model where there is one. One of another kind, which transformers does not look at
 * either, leaves the structure as it is. */
static ckpt_status read_pieces(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  found at;
  bool is_there;
  ckpt_error unheard = {0};
  if (build->ggml == NULL || build->out->origin != CKPT_TOKENIZER_OF_JSON || build->out->kind != CKPT_TOKENIZER_SPM_BPE)
    return CKPT_OK;
  CKPT_TRY(ckpt_tokenizer_find_file(f, "tokenizer.model", &at, &is_there, err));
  if (!is_there) return CKPT_OK;
  ckpt_tokenizer_build pieces;
  CKPT_TRY(ckpt_tokenizer_build_new(&pieces, at.path, err));
  pieces.ggml = build->ggml;
  pieces.added_json = build->added_json;
  ckpt_status status = ckpt_tokenizer_read_sentencepiece(&pieces, at.source, at.file, &unheard);
  pieces.out->config = build->out->config;
  if (status == CKPT_OK) {
    status = ckpt_tokenizer_place_stated(&pieces, err);
    if (status == CKPT_OK) status = take_pieces(build, &pieces, err);
    if (status == CKPT_OK) build->out->n_dropped = pieces.out->n_dropped;
  } else if (status == CKPT_ENOMEM || status == CKPT_EIO) {
    (void)ckpt_fail_as(err, status, at.path, NULL, &unheard);
  } else {
    status = CKPT_OK;
  }
  ckpt_tokenizer_build_free(&pieces);
  return status;
}

static ckpt_status read_files(ckpt_tokenizer **out, const files *f, const char *path,
                              const ckpt_tokenizer_ggml_options *ggml, ckpt_error *err) {
  ckpt_tokenizer_build build;
  bool is_there;
  CKPT_TRY(ckpt_tokenizer_build_new(&build, path, err));
  build.ggml = ggml;
  ckpt_status status;
  CKPT_TRY_GOTO(read_vocabulary(&build, f, &is_there, err));
  if (!is_there) {
    status = ckpt_fail(err, CKPT_ENOTFOUND, path, NULL, "no tokenizer (looked for " LOOKED_FOR ")");
    goto done;
  }
  CKPT_TRY_GOTO(read_beside(&build, f, err));
  if (build.out->origin == CKPT_TOKENIZER_OF_VOCAB) CKPT_TRY_GOTO(cut_by_class(&build, err));
  apply_llama(&build);
  CKPT_TRY_GOTO(read_specials(&build, f, err));
  CKPT_TRY_GOTO(read_pieces(&build, f, err));
  CKPT_TRY_GOTO(ckpt_tokenizer_build_finish(out, &build, err));
done:
  ckpt_tokenizer_build_free(&build);
  return ckpt_fail_at(status, err, path, NULL);
}

/* ---- what a path is ---------------------------------------------------------------------------------------------- */

static ckpt_status open_index(ckpt_tokenizer **out, const char *path, ckpt_error *err) {
  ckpt_open_options options = {.struct_size = sizeof options};
  ckpt_index *index;
  CKPT_TRY(ckpt_open(&index, path, &options, err));
  ckpt_status status = ckpt_tokenizer_read(out, index, err);
  ckpt_index_free(index);
  return status;
}

static ckpt_status read_index(ckpt_tokenizer **out, const ckpt_index *index, const ckpt_tokenizer_ggml_options *ggml,
                              ckpt_error *err) {
  *out = NULL;
  if (ckpt_index_meta(index, "tokenizer.ggml.tokens") == NULL) {
    const files f = {.index = index};
    return read_files(out, &f, index->path, ggml, err);
  }
  ckpt_tokenizer_build build;
  CKPT_TRY(ckpt_tokenizer_build_new(&build, index->path, err));
  ckpt_status status = ckpt_tokenizer_read_ggml(&build, index, err);
  if (status == CKPT_OK) status = ckpt_tokenizer_build_finish(out, &build, err);
  ckpt_tokenizer_build_free(&build);
  return ckpt_fail_at(status, err, index->path, NULL);
}

ckpt_status ckpt_tokenizer_read(ckpt_tokenizer **out, const ckpt_index *index, ckpt_error *err) {
  return read_index(out, index, NULL, err);
}

ckpt_status ckpt_tokenizer_read_for_ggml(ckpt_tokenizer **out, const ckpt_index *index,
                                         const ckpt_tokenizer_ggml_options *options, ckpt_error *err) {
  return read_index(out, index, options, err);
}

/* Whether a folder's entries hold a tokenizer's files. */
static bool has_files(const ckpt_entry *entries, size_t n) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
      if (entries[i].is_file && strcmp(entries[i].name, names[k]) == 0) return true;
  return false;
}

static ckpt_status open_folder(ckpt_tokenizer **out, const char *folder, const char *path, bool *is_done,
                               ckpt_error *err) {
  files f = {0};
  ckpt_entry *entries = NULL;
  size_t n = 0;
  ckpt_error unheard = {0};
  *is_done = false;
  ckpt_status status = ckpt_list(&entries, &n, folder, "", &unheard);
  if (status == CKPT_ENOMEM) return ckpt_fail_as(err, status, folder, NULL, &unheard);
  if (status != CKPT_OK) return CKPT_OK; /* no folder */
  if (has_files(entries, n)) {
    *is_done = true;
    f.entries = entries;
    f.n_entries = n;
    CKPT_TRY_GOTO(ckpt_source_open(&f.source, folder, err));
    status = read_files(out, &f, path, NULL, err);
  }
done:
  ckpt_source_free(f.source);
  ckpt_list_free(entries, n);
  return status;
}

ckpt_status ckpt_tokenizer_open(ckpt_tokenizer **out, const char *path, ckpt_error *err) {
  *out = NULL;
  bool is_done;
  const char *name = ckpt_path_name(path);
  if (strcmp(name, "tokenizer.json") == 0 || strcmp(name, "tokenizer.model") == 0 || strcmp(name, "vocab.json") == 0) {
    char *folder = name == path ? strdup(".") : strndup(path, (size_t)(name - path));
    CKPT_TRY_ALLOC(folder, err);
    ckpt_status status = open_folder(out, folder, path, &is_done, err);
    free(folder);
    if (status != CKPT_OK || is_done) return status;
  }
  CKPT_TRY(open_folder(out, path, path, &is_done, err));
  return is_done ? CKPT_OK : open_index(out, path, err);
}

ckpt_status ckpt_tokenizer_parse(ckpt_tokenizer **out, const char *json, size_t n_json, const char *config,
                                 size_t n_config, ckpt_error *err) {
  ckpt_tokenizer_build build;
  ckpt_json *text = NULL, *more = NULL;
  *out = NULL;
  CKPT_TRY(ckpt_tokenizer_build_new(&build, "tokenizer.json", err));
  ckpt_status status;
  build.out->origin = CKPT_TOKENIZER_OF_JSON;
  build.n_bytes = n_json;
  CKPT_TRY_GOTO(ckpt_json_new_text(&text, json, n_json, true, "tokenizer.json", err));
  CKPT_TRY_GOTO(ckpt_tokenizer_read_json(&build, text, err));
  if (config != NULL) {
    build.file = "tokenizer_config.json";
    CKPT_TRY_GOTO(ckpt_json_new_text(&more, config, n_config, true, "tokenizer_config.json", err));
    CKPT_TRY_GOTO(read_config_json(&build, more, err));
  }
  CKPT_TRY_GOTO(ckpt_tokenizer_add_stated(&build, err));
  CKPT_TRY_GOTO(ckpt_tokenizer_build_finish(out, &build, err));
done:
  ckpt_json_free(text);
  ckpt_json_free(more);
  ckpt_tokenizer_build_free(&build);
  return status;
}
