/* open.c - finding a tokenizer's files: in a folder, among the side files of an index, or beside one of them. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"

#define LOOKED_FOR "tokenizer.json, tokenizer.model, vocab.json with merges.txt, tokenizer.ggml.* of a GGUF file"

enum { MAX_TEXT_BYTES = 1 << 26 };

/* Where files are looked up: in a folder (source is its own), or among side files. */
typedef struct files {
  ckpt_source *source; /* owned; NULL for an index */
  const ckpt_entry *entries;
  size_t n_entries;
  const ckpt_index *index;
} files;

typedef struct found {
  ckpt_source *source;
  uint32_t file;
  uint64_t n_bytes;
  const char *path, *text; /* text: replaces what is stored; NULL */
} found;

/* The file of a name; false where there is none. */
static ckpt_status look_up(const files *f, const char *name, found *out, bool *is_there, ckpt_error *err) {
  *is_there = false;
  *out = (found){0};
  for (uint32_t i = 0; f->index != NULL && i < f->index->n_side_files; i++) {
    const ckpt_side_file *side = &f->index->side_files[i];
    if (strcmp(side->name, name) != 0) continue;
    *is_there = true;
    *out = (found){side->source != NULL ? side->source : f->index->source, side->file, side->n_bytes, NULL, side->text};
  }
  for (size_t i = 0; i < f->n_entries; i++) {
    if (strcmp(f->entries[i].name, name) != 0 || !f->entries[i].is_file) continue;
    CKPT_TRY(ckpt_source_add(f->source, name, &out->file, &out->n_bytes, err));
    *is_there = true;
    out->source = f->source;
  }
  if (!*is_there) return CKPT_OK;
  out->path = ckpt_source_path(out->source, out->file);
  if (out->n_bytes <= CKPT_TOKENIZER_MAX_BYTES) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, out->path, NULL, "%llu bytes, more than a tokenizer's files have (%llu)",
                   (unsigned long long)out->n_bytes, (unsigned long long)CKPT_TOKENIZER_MAX_BYTES);
}

static ckpt_status json_of(ckpt_json **out, const found *at, ckpt_error *err) {
  if (at->text != NULL) return ckpt_json_new_text(out, at->text, (size_t)at->n_bytes, true, at->path, err);
  return ckpt_json_new_source(out, at->source, at->file, 0, at->n_bytes, MAX_TEXT_BYTES, true, err);
}

/* All bytes, terminated; the caller frees them. */
static ckpt_status bytes_of(char **out, const found *at, ckpt_error *err) {
  char *bytes = malloc((size_t)at->n_bytes + 1);
  CKPT_TRY_ALLOC(bytes, err);
  ckpt_status status = CKPT_OK;
  if (at->text != NULL)
    memcpy(bytes, at->text, (size_t)at->n_bytes);
  else
    status = ckpt_source_read(at->source, at->file, 0, bytes, (size_t)at->n_bytes, err);
  bytes[at->n_bytes] = '\0';
  *out = bytes;
  if (status != CKPT_OK) free(bytes);
  return status;
}

typedef ckpt_status read_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err);

static ckpt_status read_with(ckpt_tokenizer_build *build, const found *at, read_json *take, ckpt_error *err) {
  ckpt_json *json;
  CKPT_TRY(json_of(&json, at, err));
  build->file = at->path;
  ckpt_status status = take(build, json, err);
  ckpt_json_free(json);
  return ckpt_fail_at(status, err, at->path, NULL);
}

static ckpt_status read_config_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  const ckpt_object *config;
  CKPT_TRY(ckpt_tree_read(&config, json, &build->out->arena, err));
  if (build->out->config == NULL) build->out->config = config;
  return ckpt_tokenizer_read_config(build, config, err);
}

/* {"text": id}: tokens beside a vocab.json. */
static ckpt_status read_added_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  const ckpt_object *tree;
  CKPT_TRY(ckpt_tree_read(&tree, json, &build->out->arena, err));
  if (tree->kind != CKPT_OBJECT_DICT) return ckpt_json_fail(json, err, "no JSON object of tokens and ids");
  const ckpt_added_token flags = {.is_normalized = true};
  for (uint64_t i = 0; i < tree->n; i++) {
    const ckpt_object *key = tree->items[2 * i], *id = tree->items[2 * i + 1];
    if (id->kind != CKPT_OBJECT_INT || id->integer < 0) return ckpt_json_fail(json, err, "an id is a whole number");
    CKPT_TRY(ckpt_tokenizer_build_added(build, key->text, (size_t)key->n, (uint64_t)id->integer, &flags, err));
  }
  return CKPT_OK;
}

/* A file that may be missing. */
static ckpt_status read_if_there(ckpt_tokenizer_build *build, const files *f, const char *name, read_json *take,
                                 ckpt_error *err) {
  found at;
  bool is_there;
  CKPT_TRY(look_up(f, name, &at, &is_there, err));
  return is_there ? read_with(build, &at, take, err) : CKPT_OK;
}

/* Special ids that no tokenizer file gives, from the model's config. */
static ckpt_status read_model_config(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  found at;
  bool is_there;
  char *text;
  CKPT_TRY(look_up(f, "config.json", &at, &is_there, err));
  if (!is_there) return CKPT_OK;
  CKPT_TRY(bytes_of(&text, &at, err));
  ckpt_config *config = NULL;
  ckpt_status status = ckpt_config_parse(&config, text, at.n_bytes, at.path, err);
  free(text);
  for (int i = 0; status == CKPT_OK && i < CKPT_N_SPECIALS; i++) {
    char key[32] = "";
    int64_t id;
    strncat(key, ckpt_special_name((ckpt_special)i), 8);
    strncat(key, "_token_id", 10);
    if (build->out->special[i] == CKPT_TOKEN_NONE && ckpt_config_int(config, key, &id) && id >= 0 &&
        id < build->out->n_tokens && build->tokens[id].text != NULL)
      build->out->special[i] = (uint32_t)id;
  }
  ckpt_config_free(config);
  return status;
}

static ckpt_status read_template_file(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  found at;
  bool is_there;
  char *text;
  CKPT_TRY(look_up(f, "chat_template.jinja", &at, &is_there, err));
  if (!is_there || build->out->n_templates != 0) return CKPT_OK;
  CKPT_TRY(bytes_of(&text, &at, err));
  ckpt_status status = ckpt_tokenizer_add_template(build, NULL, text, (size_t)at.n_bytes, err);
  free(text);
  return status;
}

static ckpt_status read_merges_file(ckpt_tokenizer_build *build, const found *at, ckpt_error *err) {
  char *text;
  CKPT_TRY(bytes_of(&text, at, err));
  build->file = at->path;
  ckpt_status status = ckpt_tokenizer_read_merges(build, text, (size_t)at->n_bytes, err);
  free(text);
  return status;
}

/* Special tokens of a vocabulary without a tokenizer.json are found in text. */
static ckpt_status add_specials(ckpt_tokenizer_build *build, ckpt_error *err) {
  const ckpt_added_token flags = {.is_special = true};
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    const uint32_t id = build->out->special[i];
    if (id == CKPT_TOKEN_NONE) continue;
    const ckpt_token *token = &build->tokens[id];
    CKPT_TRY(ckpt_tokenizer_build_added(build, token->text, token->n_bytes, id, &flags, err));
  }
  return CKPT_OK;
}

/* The vocabulary, in the first of the forms that is there. */
static ckpt_status read_vocabulary(ckpt_tokenizer_build *build, const files *f, bool *is_there, bool *is_fallback,
                                   ckpt_error *err) {
  found at, merges;
  bool has_merges;
  CKPT_TRY(look_up(f, "tokenizer.json", &at, is_there, err));
  if (*is_there) return read_with(build, &at, ckpt_tokenizer_read_json, err);
  *is_fallback = true;
  CKPT_TRY(look_up(f, "tokenizer.model", &at, is_there, err));
  if (*is_there) {
    build->file = at.path;
    return ckpt_fail_at(ckpt_tokenizer_read_sentencepiece(build, at.source, at.file, err), err, at.path, NULL);
  }
  CKPT_TRY(look_up(f, "vocab.json", &at, is_there, err));
  CKPT_TRY(look_up(f, "merges.txt", &merges, &has_merges, err));
  *is_there = *is_there && has_merges;
  if (!*is_there) return CKPT_OK;
  CKPT_TRY(read_with(build, &at, ckpt_tokenizer_read_vocab, err));
  CKPT_TRY(read_merges_file(build, &merges, err));
  CKPT_TRY(read_if_there(build, f, "added_tokens.json", read_added_json, err));
  return ckpt_tokenizer_assume_gpt2(build, err);
}

static ckpt_status read_files(ckpt_tokenizer **out, const files *f, const char *path, ckpt_error *err) {
  ckpt_tokenizer_build build;
  bool is_there, is_fallback = false;
  CKPT_TRY(ckpt_tokenizer_build_new(&build, path, err));
  ckpt_status status;
  CKPT_TRY_GOTO(read_vocabulary(&build, f, &is_there, &is_fallback, err));
  if (!is_there) {
    status = ckpt_fail(err, CKPT_ENOTFOUND, path, NULL, "no tokenizer (looked for " LOOKED_FOR ")");
    goto done;
  }
  CKPT_TRY_GOTO(read_if_there(&build, f, "tokenizer_config.json", read_config_json, err));
  CKPT_TRY_GOTO(read_if_there(&build, f, "special_tokens_map.json", read_config_json, err));
  CKPT_TRY_GOTO(read_template_file(&build, f, err));
  CKPT_TRY_GOTO(read_model_config(&build, f, err));
  if (is_fallback) {
    if (build.out->kind == CKPT_TOKENIZER_SPM_BPE && build.out->adds[CKPT_SPECIAL_BOS] == CKPT_FLAG_UNSAID)
      build.out->adds[CKPT_SPECIAL_BOS] = CKPT_FLAG_YES; /* Llama's class does */
    CKPT_TRY_GOTO(add_specials(&build, err));
    CKPT_TRY_GOTO(ckpt_tokenizer_assume_ends(&build, err));
  }
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

ckpt_status ckpt_tokenizer_read(ckpt_tokenizer **out, const ckpt_index *index, ckpt_error *err) {
  *out = NULL;
  if (ckpt_index_meta(index, "tokenizer.ggml.tokens") == NULL) {
    const files f = {.index = index};
    return read_files(out, &f, index->path, err);
  }
  ckpt_tokenizer_build build;
  CKPT_TRY(ckpt_tokenizer_build_new(&build, index->path, err));
  ckpt_status status = ckpt_tokenizer_read_ggml(&build, index, err);
  if (status == CKPT_OK) status = ckpt_tokenizer_build_finish(out, &build, err);
  ckpt_tokenizer_build_free(&build);
  return ckpt_fail_at(status, err, index->path, NULL);
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
  if (ckpt_list(&entries, &n, folder, "", &unheard) != CKPT_OK) return CKPT_OK; /* no folder */
  ckpt_status status = CKPT_OK;
  if (has_files(entries, n)) {
    *is_done = true;
    f.entries = entries;
    f.n_entries = n;
    CKPT_TRY_GOTO(ckpt_source_open(&f.source, folder, err));
    status = read_files(out, &f, path, err);
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
  CKPT_TRY_GOTO(ckpt_json_new_text(&text, json, n_json, true, "tokenizer.json", err));
  CKPT_TRY_GOTO(ckpt_tokenizer_read_json(&build, text, err));
  if (config != NULL) {
    build.file = "tokenizer_config.json";
    CKPT_TRY_GOTO(ckpt_json_new_text(&more, config, n_config, true, "tokenizer_config.json", err));
    CKPT_TRY_GOTO(read_config_json(&build, more, err));
  }
  CKPT_TRY_GOTO(ckpt_tokenizer_build_finish(out, &build, err));
done:
  ckpt_json_free(text);
  ckpt_json_free(more);
  ckpt_tokenizer_build_free(&build);
  return status;
}
